//! How a head notices that an append to several partitions is not going on: its client may have died.

use super::ChainServer;
use crate::messages::client::StuckAppend;
use crate::partition::SeveralStage;
use crate::terms::{AppendId, Owner};
use kernel::{Cx, Instant, NodeId};
use std::collections::BTreeMap;

/// Since when each unfinished append is as it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    since: BTreeMap<AppendId, (Owner, SeveralStage, Instant)>,
}

impl Watched {
    pub(super) fn forget(&mut self) {
        self.since.clear();
    }
}

/// A clean-up is waited for so many times as long as a client.
const CLEAN_UP_AFTER: u32 = 4;
/// Appends that are reported at once.
const REPORTS_MAX: usize = 16;

impl ChainServer {
    /// Reports what is stuck to the client beside it, and to those whose appends wait.
    pub(super) fn look_after_stuck(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.is_head(cx.node()) {
            return self.watched.forget();
        }
        let (now, stuck_after) = (cx.now(), self.parameters.stuck_after);
        let mut since = BTreeMap::new();
        let mut reports = Vec::new();
        for it in self.state.unfinished() {
            let before = self.watched.since.get(&it.id).copied();
            let same = before.filter(|(owner, stage, _)| (*owner, *stage) == (it.owner, it.stage));
            let mut at = same.map_or(now, |(.., at)| at);
            // What is delivered is in nobody's way, and its clean-up may still come. What is fixed here is fixed or pending elsewhere.
            let patience = match it.stage {
                SeveralStage::Proposed => Some(stuck_after),
                SeveralStage::Fixed => None,
                SeveralStage::Delivered => Some(CLEAN_UP_AFTER * stuck_after),
            };
            if patience.is_some_and(|patience| now.since(at) >= patience) && reports.len() < REPORTS_MAX {
                at = now;
                reports.push(StuckAppend { id: it.id, owner: it.owner, content: it.content.clone() });
            }
            since.insert(it.id, (it.owner, it.stage, at));
        }
        self.watched.since = since;
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
