//! How a head notices that an append to several partitions is not going on: its client may have died.

use super::ChainServer;
use crate::messages::client::StuckAppend;
use crate::partition::SeveralStage;
use crate::terms::{AppendId, Owner};
use kernel::{Cx, Instant, NodeId};
use std::collections::BTreeMap;

/// What a head has seen of each unfinished append.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    appends: BTreeMap<AppendId, Seen>,
}

/// Since when an append is as it is.
#[derive(Clone, Copy, Debug)]
struct Seen {
    owner: Owner,
    stage: SeveralStage,
    since: Instant,
    /// When it was reported last, or seen so first.
    reported_at: Instant,
}

impl Watched {
    pub(super) fn forget(&mut self) {
        self.appends.clear();
    }
}

/// A clean-up is waited for so many times as long as a client.
const CLEAN_UP_AFTER: u32 = 4;
/// Appends that are reported at once.
const REPORTS_MAX: usize = 16;

impl ChainServer {
    /// Since when an append to several partitions is as it is here, as far as this server has seen it as a head.
    pub fn unchanged_since(&self, id: AppendId) -> Option<Instant> {
        self.watched.appends.get(&id).map(|seen| seen.since)
    }

    /// Reports what is stuck to the client beside it, and to those whose appends wait.
    pub(super) fn look_after_stuck(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.is_head(cx.node()) {
            return self.watched.forget();
        }
        let (now, stuck_after) = (cx.now(), self.parameters.stuck_after);
        let mut appends = BTreeMap::new();
        let mut reports = Vec::new();
        for it in self.state.unfinished() {
            let before = self.watched.appends.get(&it.id).copied();
            let same = before.filter(|seen| (seen.owner, seen.stage) == (it.owner, it.stage));
            let first = Seen { owner: it.owner, stage: it.stage, since: now, reported_at: now };
            let mut seen = same.unwrap_or(first);
            // What is delivered is in nobody's way, and its clean-up may still come. What is fixed here is fixed or pending elsewhere.
            let patience = match it.stage {
                SeveralStage::Proposed => Some(stuck_after),
                SeveralStage::Fixed => None,
                SeveralStage::Delivered => Some(CLEAN_UP_AFTER * stuck_after),
            };
            if patience.is_some_and(|patience| now.since(seen.reported_at) >= patience)
                && reports.len() < REPORTS_MAX
            {
                seen.reported_at = now;
                reports.push(StuckAppend { id: it.id, owner: it.owner, content: it.content.clone() });
            }
            appends.insert(it.id, seen);
        }
        self.watched.appends = appends;
        if reports.is_empty() {
            return;
        }
        cx.mark("chain.reported_what_is_stuck");
        let mut clients: Vec<NodeId> = self.state.waiting().take(REPORTS_MAX).map(|it| it.node).collect();
        clients.push(self.client);
        clients.sort_unstable();
        clients.dedup();
        for report in reports {
            cx.multicast(clients.iter().copied(), report);
        }
    }
}
