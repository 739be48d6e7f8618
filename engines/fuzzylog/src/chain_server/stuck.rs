//! How a head notices that an append to several partitions is not going on: its client may have died.

use super::ChainServer;
use crate::messages::client::StuckAppend;
use crate::partition::SeveralStage;
use crate::terms::{AppendId, Owner, RowIndex};
use kernel::{Cx, Instant, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a head has seen of each unfinished append.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    appends: BTreeMap<AppendId, Seen>,
    pace: Pace,
}

/// How long a chain takes for a command: from when its head orders it until all have it on their disks.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The row had this length then, and is not applied so far.
    waits_for: Option<(RowIndex, Instant)>,
    takes: Duration,
}

impl Pace {
    fn look(&mut self, applied: RowIndex, length: RowIndex, now: Instant) {
        if let Some((through, since)) = self.waits_for {
            let took = now.since(since);
            if applied >= through {
                (self.waits_for, self.takes) = (None, took);
            } else {
                self.takes = self.takes.max(took);
            }
        }
        if self.waits_for.is_none() && applied < length {
            self.waits_for = Some((length, now));
        }
    }
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
        *self = Self::default();
    }
}

/// Who works on an append waits for so many commands before this chain sees that it goes on: those of other chains, which may be as slow,
/// and its own.
const COMMANDS: u32 = 3;
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
        let now = cx.now();
        self.watched.pace.look(self.state.applied(), self.length(), now);
        let usual = self.parameters.stuck_after.max(COMMANDS * self.watched.pace.takes);
        let mut appends = BTreeMap::new();
        let mut reports = Vec::new();
        for it in self.state.unfinished() {
            let before = self.watched.appends.get(&it.id).copied();
            let same = before.filter(|seen| (seen.owner, seen.stage) == (it.owner, it.stage));
            let first = Seen { owner: it.owner, stage: it.stage, since: now, reported_at: now };
            let mut seen = same.unwrap_or(first);
            let stuck_after = it.owner.patience() * usual;
            // What is delivered is in nobody's way, and its clean-up may still come. What is fixed here is fixed or pending elsewhere.
            let patience = match it.stage {
                SeveralStage::Proposed => Some(stuck_after),
                SeveralStage::Fixed => None,
                SeveralStage::Delivered if kernel::planted!(missing_clean_up_not_minded) => None,
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
