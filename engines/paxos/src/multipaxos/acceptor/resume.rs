//! What a replica that starts had executed: the acceptor of its host has the values, and was notified which are chosen.
//!
//! A vote in the ballot in which a slot was chosen, or in a later one, is for the chosen value. So what the replica has executed from this
//! acceptor's votes is chosen with whatever the acceptor voted for last, and after a restart needs no leader to say so again.
//!
//! What the replica learned elsewhere, from a peer or from a leader that found it again, it hands to the acceptor, which holds it beside the
//! votes: else what was executed would have a hole, and a replica that meets one at its start takes the whole state from a peer.
//!
//! That needs the votes from the replica's own snapshot on. Leaders have votes forgotten when enough replicas have snapshots, of which this
//! one may be none: it would have to take a peer's snapshot, the whole state. So votes are held for it, within bounds.

use super::{Acceptor, AcceptorRecord, Executed, Hold, Learned, Resume, Vote};
use crate::multipaxos::messages::replica;
use crate::value::Value;
use kernel::bounds::VOTE_BYTES;
use kernel::{Cx, NodeId, PageBudget, Position, planted};
use parts::{Slot, SlotRing};
use std::collections::BTreeMap;

/// Chosen values that are not those of this acceptor's votes.
///
/// Invariant: they are of slots whose votes it retains, or would retain: one for each, and none that is forgotten.
#[derive(Clone, Debug, Default)]
pub(super) struct LearnedValues {
    values: BTreeMap<Slot, (Value, Position)>,
    /// Of some below it was not noted what they are.
    missed_below: Slot,
}

impl LearnedValues {
    pub(super) fn get(&self, slot: Slot) -> Option<&Value> {
        self.values.get(&slot).map(|(value, _)| value)
    }

    pub(super) fn insert(&mut self, slot: Slot, value: Value, position: Position) {
        self.values.insert(slot, (value, position));
    }

    pub(super) fn forget_below(&mut self, below: Slot) {
        while self.values.first_key_value().is_some_and(|(slot, _)| *slot < below) {
            self.values.pop_first();
        }
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.values.values().map(|(_, position)| *position)
    }
}

/// The votes that this host's replica would need after a restart, though the leader would have them forgotten.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The last slot there is where none are held.
    from: Slot,
    /// They are given up when they come to more.
    bytes_max: u64,
    /// What those from `from` on and below here come to.
    counted: Slot,
    bytes: u64,
}

impl Default for Held {
    fn default() -> Self {
        let none = Slot(u64::MAX);
        Self { from: none, bytes_max: 0, counted: none, bytes: 0 }
    }
}

impl Held {
    /// Without the first of them, which are forgotten below `retained_from`, the others are of no use.
    fn begin(&mut self, message: &Hold, retained_from: Slot) {
        let Hold { from, bytes_max } = *message;
        let asked = Self { from, bytes_max, counted: from, bytes: 0 };
        *self = if from < retained_from { Self::default() } else { asked };
    }

    /// Votes below this slot may be forgotten when the leader says so of those below `below`.
    pub(super) fn truncation(
        &mut self,
        below: Slot,
        votes: &SlotRing<Vote>,
        learned: &LearnedValues,
    ) -> Slot {
        if below <= self.from {
            return below;
        }
        let news = votes.iter_from(self.counted).take_while(|(slot, _)| *slot < below);
        let until = self.counted.max(below);
        let learned = learned.values.range(self.counted..until).map(|(_, (value, _))| value);
        let values = news.map(|(_, vote)| &vote.value).chain(learned);
        self.bytes += values.map(|value| (value.size() + VOTE_BYTES) as u64).sum::<u64>();
        self.counted = until;
        if self.bytes > self.bytes_max {
            *self = Self::default();
            return below;
        }
        self.from
    }
}

impl Acceptor {
    pub(super) fn on_executed(&mut self, message: &Executed, cx: &mut Cx<'_, Self>) {
        let Executed { from, below } = *message;
        let from = from.max(self.learned.missed_below);
        if self.active().is_none() || below <= self.executed.end.max(from) {
            return;
        }
        self.executed = from..below;
        // Nobody waits for it, and the votes stand before it.
        cx.append(&AcceptorRecord::Executed { from, below });
    }

    pub(super) fn on_learned(&mut self, message: Learned, cx: &mut Cx<'_, Self>) {
        let Learned { slot, value } = message;
        let known = self.learned.get(slot);
        kernel::invariant!(
            AGREE,
            known.is_none_or(|known| *known == value),
            "learned of {slot} that {known:?} is chosen, and {value:?}"
        );
        if known.is_some() {
            return;
        }
        if self.active().is_none() || !self.votes.admits(slot) {
            // A vote for something else may be all there is of this slot later.
            self.learned.missed_below = self.learned.missed_below.max(slot.next());
            return cx.mark("acceptor.did_not_note_a_learned_value");
        }
        cx.mark("acceptor.noted_a_learned_value");
        let value = value.owned();
        let position = cx.append(&AcceptorRecord::Learned { slot, value: value.clone() });
        self.learned.insert(slot, value, position);
    }

    pub(super) fn on_hold(&mut self, message: &Hold) {
        self.held.begin(message, self.votes.start());
    }

    /// A page of `page_bytes`, or one value; an empty one ends it.
    pub(super) fn on_resume(&mut self, replica: NodeId, message: &Resume, cx: &mut Cx<'_, Self>) {
        let (executed, page_bytes) = (self.executed.clone(), self.parameters.page_bytes);
        let (mut values, mut page, mut slot) = (Vec::new(), PageBudget::new(page_bytes), message.from);
        while (executed.contains(&slot) || planted!(unchosen_votes_given_to_resuming_replica))
            && let Some(value) = self.executed_value(slot)
            && page.admits(value.size())
        {
            values.push(value.clone());
            slot = slot.next();
        }
        cx.send(replica, replica::Resumed { from: message.from, values });
    }
}
