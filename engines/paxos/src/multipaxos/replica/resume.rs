//! Going on after a restart: the acceptor of this host has the values of what was executed since the last snapshot, and was notified.
//!
//! Without it every value would have to be voted for again: a new leader would be sent all of them, and send them to everybody.

use super::{Entry, Replica, Resumed};
use crate::multipaxos::messages::acceptor;
use crate::value::Value;
use kernel::{Cx, NodeId, StateMachine, planted};
use parts::{Shape, Slot};

/// It is reported to the acceptor when so many slots were executed since the last report.
const REPORT_AFTER_SLOTS: u64 = 16;
/// The acceptor is asked to hold more votes when the state has grown by this share.
const HELD_AGAIN_SHARE: u64 = 4;
/// After this many looks of the timer without progress the rest is left to a leader.
const LOOKS_MAX: u32 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct Resume {
    /// From here on this host's acceptor has everything executed: it voted for it, or was handed it.
    own_from: Slot,
    /// The acceptor knows of what was executed below.
    reported: Slot,
    /// Whom it waits for.
    waits_for: Option<NodeId>,
    stood_at: Slot,
    looks: u32,
    /// How many bytes of votes the acceptor was last asked to hold.
    held_bytes_max: u64,
}

impl Resume {
    /// A snapshot was installed.
    pub(super) fn begin_at(&mut self, slot: Slot) {
        self.reported = slot;
        if !planted!(own_votes_counted_across_snapshot) {
            self.own_from = slot;
        }
    }
}

impl<S: StateMachine> Replica<S> {
    /// Until it has executed what it had executed before, it reports to no leader how far it is: one that believed it would have the
    /// rest voted for again.
    pub(super) fn is_resuming(&self) -> bool {
        self.resume.waits_for.is_some()
    }

    fn acceptor_here(&self, cx: &Cx<'_, Self>) -> Option<NodeId> {
        let configuration = self.state.configurations.latest();
        configuration.acceptors.nodes().find(|acceptor| acceptor.host() == cx.node().host())
    }

    /// A slot is executed. Of what the acceptor did not vote for, as it was chosen, it needs the value.
    pub(super) fn hand_to_acceptor(&mut self, slot: Slot, own: bool, value: &Value, cx: &mut Cx<'_, Self>) {
        if own || planted!(learned_value_recorded_as_own_vote) {
            return;
        }
        match self.acceptor_here(cx).filter(|acceptor| self.is_asked(*acceptor, slot)) {
            Some(acceptor) => cx.send(acceptor, acceptor::Learned { slot, value: value.clone() }),
            None => self.resume.own_from = slot.next(),
        }
    }

    /// Whether an acceptor is asked for its vote in a slot whenever it can be reached. Others would journal what they are spared.
    fn is_asked(&self, acceptor: NodeId, slot: Slot) -> bool {
        let group = self.state.configurations.governing(slot).group(slot);
        let asks_all = group.shape() == Shape::Majority && !self.parameters.thrifty;
        asks_all && group.index_of(acceptor).is_some()
    }

    pub(super) fn begin_to_resume(&mut self, cx: &mut Cx<'_, Self>) {
        if self.joining {
            return;
        }
        if let Some(acceptor) = self.acceptor_here(cx) {
            self.resume.waits_for = Some(acceptor);
            self.have_votes_held(cx);
            cx.send(acceptor, acceptor::Resume { from: self.state.executed });
        }
    }

    /// What follows the snapshot on this disk is worth as many votes as a peer's snapshot is large, which is of the state as it is now.
    pub(super) fn have_votes_held(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(acceptor) = self.acceptor_here(cx) {
            let (from, bytes_max) = (self.snapshots.durable_below(), self.votes_worth_holding());
            self.resume.held_bytes_max = bytes_max;
            cx.send_durable(acceptor, acceptor::Hold { from, bytes_max });
        }
    }

    fn votes_worth_holding(&self) -> u64 {
        if self.is_resuming() {
            // They were worth it when this host died, and the state is still to become what it was.
            return u64::MAX;
        }
        let state_bytes = self.machine.snapshot_bytes().max(self.snapshots.bytes());
        state_bytes.max(self.parameters.snapshot_every_bytes)
    }

    /// A state that grows faster than snapshots of it are written is worth more votes than the last snapshot was.
    fn have_more_votes_held(&mut self, cx: &mut Cx<'_, Self>) {
        let before = self.resume.held_bytes_max;
        if self.votes_worth_holding() > before.saturating_add(before / HELD_AGAIN_SHARE) {
            self.have_votes_held(cx);
        }
    }

    pub(super) fn on_resumed(&mut self, from: NodeId, message: Resumed, cx: &mut Cx<'_, Self>) {
        if self.resume.waits_for != Some(from) {
            return cx.reject("votes that were not asked for");
        }
        let mut slot = message.from;
        for value in message.values {
            if self.log.admits(slot) && self.log.get(slot).is_none_or(|entry| entry.value.is_none()) {
                let entry = Entry { value: Some(value), own: true, ..Entry::default() };
                let _ = self.log.insert(slot, entry);
            }
            slot = slot.next();
        }
        self.execute(cx);
        if self.state.executed > message.from {
            cx.mark("replica.resumed_from_its_acceptor");
            cx.send(from, acceptor::Resume { from: self.state.executed });
        } else {
            self.end_resuming(cx);
        }
    }

    fn end_resuming(&mut self, cx: &mut Cx<'_, Self>) {
        self.resume.waits_for = None;
        self.have_votes_held(cx);
        self.report(cx);
        self.report_to_all(cx);
    }

    /// Called by the timer.
    pub(super) fn report_to_acceptor(&mut self, cx: &mut Cx<'_, Self>) {
        let executed = self.state.executed;
        if self.is_resuming() {
            // A configuration may name an acceptor here that has left.
            self.resume.looks = if self.resume.stood_at == executed { self.resume.looks + 1 } else { 0 };
            self.resume.stood_at = executed;
            if self.resume.looks > LOOKS_MAX {
                cx.mark("replica.gave_up_resuming");
                self.end_resuming(cx);
            }
            return;
        }
        if !self.joining {
            self.have_more_votes_held(cx);
        }
        let (from, reported) = (self.resume.own_from, self.resume.reported);
        let news = executed.0.saturating_sub(from.max(reported).0);
        if news < REPORT_AFTER_SLOTS || self.joining {
            return;
        }
        if let Some(acceptor) = self.acceptor_here(cx) {
            self.resume.reported = executed;
            let below = if planted!(executed_one_slot_too_many) { executed.next() } else { executed };
            cx.send(acceptor, acceptor::Executed { from, below });
        }
    }
}
