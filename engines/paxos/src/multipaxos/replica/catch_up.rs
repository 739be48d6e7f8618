//! Catching up: a replica that lacks values asks its peers, in turn, for entries or for a snapshot.

use super::{Behind, ChosenValues, Fetch, Replica};
use crate::multipaxos::messages::leader;
use crate::value::Value;
use kernel::{Cx, NodeId, PageBudget, StateMachine, planted};
use parts::Slot;

/// Values of a reply to `Fetch`, which holds a page at most.
const ENTRIES_MAX: usize = 4096;

/// What a replica knows of being behind.
#[derive(Clone, Debug, Default)]
pub(super) struct CatchUp {
    /// Somebody has executed everything below.
    ahead: Slot,
    /// Where execution stood when the timer last looked.
    stood_at: Slot,
    asked: u64,
    /// How often the timer found no progress in a row.
    looks_without_progress: u32,
}

/// After this many looks without progress the leader is asked, who asks the acceptors.
const LOOKS_BEFORE_STUCK: u32 = 10;

impl CatchUp {
    pub(super) fn saw_executed(&mut self, executed: Slot) {
        self.ahead = self.ahead.max(executed);
    }
}

impl<S: StateMachine> Replica<S> {
    /// Called by the timer: asks only if nothing moved since the last time, so that what is merely on its way is not
    /// fetched twice.
    pub(super) fn seek_what_is_missing(&mut self, cx: &mut Cx<'_, Self>) {
        let stood_still = self.catch_up.stood_at == self.state.executed;
        self.catch_up.stood_at = self.state.executed;
        self.retry_transfer(cx);
        if !stood_still || self.is_installing() {
            self.catch_up.looks_without_progress = 0;
            return;
        }
        if let Some(through) = self.waiting_reads.iter().map(|read| read.through).max() {
            self.want(through, cx);
        }
        if self.joining || self.lacks_entries() {
            self.fetch(cx);
            self.catch_up.looks_without_progress += 1;
            if !self.joining
                && self.catch_up.looks_without_progress.is_multiple_of(LOOKS_BEFORE_STUCK)
                && let Some(ballot) = self.leader
            {
                cx.mark("replica.asked_the_leader_for_entries");
                let configurations = self.state.configurations.clone();
                cx.send(ballot.leader, leader::Stuck { from: self.state.executed, configurations });
            }
        }
    }

    /// True if something is known to be chosen that is not executed.
    pub(super) fn lacks_entries(&self) -> bool {
        let chosen_ahead =
            self.log.iter().any(|(_, entry)| entry.value.is_some() || entry.chosen_in.is_some());
        chosen_ahead || self.catch_up.ahead > self.state.executed
    }

    fn fetch(&mut self, cx: &mut Cx<'_, Self>) {
        let me = cx.node();
        let replicas = &self.state.configurations.latest().replicas;
        // Those of the leader's word as well: all that this replica knows of may have left.
        let mut peers = self.peers.clone();
        let is_wanted = !self.joining || !self.waits || self.heard_leader_at.is_some();
        peers.extend(replicas.iter().copied().filter(|&peer| peer != me && is_wanted));
        if peers.is_empty() {
            return;
        }
        let peer = peers[(self.catch_up.asked % peers.len() as u64) as usize];
        self.catch_up.asked += 1;
        if self.joining {
            return self.begin_transfer(peer, cx);
        }
        cx.mark("replica.fetched_from_a_peer");
        cx.send(peer, Fetch { from: self.state.executed });
    }

    pub(super) fn on_fetch(&mut self, from: NodeId, message: Fetch, cx: &mut Cx<'_, Self>) {
        if message.from >= self.state.executed || self.joining {
            return;
        }
        if message.from < self.retained.start() {
            return cx.send(from, Behind { executed: self.state.executed });
        }
        let mut page = PageBudget::new(self.parameters.page_bytes);
        let values: Vec<Value> = self
            .retained
            .iter_from(message.from)
            .take(ENTRIES_MAX)
            .map(|(_, value)| value.clone())
            .filter(|value| !planted!(resumed_log_has_hole) || *value != Value::Noop)
            .take_while(|value| page.admits(value.size()))
            .collect();
        cx.send(from, ChosenValues { from: message.from, values, executed: self.state.executed });
    }

    pub(super) fn on_entries(&mut self, message: ChosenValues, cx: &mut Cx<'_, Self>) {
        if self.is_installing() || self.joining {
            return;
        }
        self.catch_up.saw_executed(message.executed);
        let mut slot = message.from;
        for value in message.values {
            if self.log.admits(slot) {
                let entry = super::Entry { value: Some(value), ..Default::default() };
                let known = self.log.get(slot).is_some_and(|entry| entry.value.is_some());
                if !known {
                    let _ = self.log.insert(slot, entry);
                }
            }
            slot = slot.next();
        }
        let before = self.state.executed;
        self.execute(cx);
        if self.state.executed > before && self.catch_up.ahead > self.state.executed {
            self.catch_up.asked = self.catch_up.asked.saturating_sub(1);
            self.fetch(cx);
        }
    }

    pub(super) fn on_behind(&mut self, from: NodeId, message: Behind, cx: &mut Cx<'_, Self>) {
        self.catch_up.saw_executed(message.executed);
        if message.executed > self.state.executed {
            self.begin_transfer(from, cx);
        }
    }

    pub(super) fn retain(&mut self, slot: Slot, value: Value) {
        self.retained_bytes += value.size();
        if self.retained.is_empty() {
            self.retained.advance(slot);
        }
        let _ = self.retained.insert(slot, value);
        while self.retained_bytes > self.parameters.retained_bytes_max {
            let first = self.retained.start();
            self.drop_retained(first);
        }
    }

    pub(super) fn forget_retained_before(&mut self, below: Slot) {
        while self.retained.start() < below.min(self.state.executed) && !self.retained.is_empty() {
            let first = self.retained.start();
            self.drop_retained(first);
        }
    }

    pub(super) fn forget_all_retained(&mut self) {
        self.retained = parts::SlotRing::new(self.state.executed, usize::MAX);
        self.retained_bytes = 0;
    }

    fn drop_retained(&mut self, first: Slot) {
        if let Some(value) = self.retained.get(first) {
            self.retained_bytes -= value.size();
        }
        self.retained.advance(first.next());
    }
}
