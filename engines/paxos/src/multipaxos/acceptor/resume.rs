//! What a replica that starts had executed: the acceptor of its host has the values, and was notified which are chosen.
//!
//! A vote in the ballot in which a slot was chosen, or in a later one, is for the chosen value. So what the replica has executed from this
//! acceptor's votes is chosen with whatever the acceptor voted for last, and after a restart needs no leader to say so again.
//!
//! That needs the votes from the replica's own snapshot on. Leaders have votes forgotten when enough replicas have snapshots, of which this
//! one may be none: it would have to take a peer's snapshot, the whole state. So votes are held for it, within bounds.

use super::{Acceptor, AcceptorRecord, Executed, Hold, Resume, Vote};
use crate::multipaxos::messages::replica;
use kernel::bounds::VOTE_BYTES;
use kernel::{Cx, NodeId, PageBudget, planted};
use parts::{Slot, SlotRing};

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
    fn begin(&mut self, message: &Hold) {
        let Hold { from, bytes_max } = *message;
        *self = Self { from, bytes_max, counted: from, bytes: 0 };
    }

    /// Votes below this slot may be forgotten when the leader says so of those below `below`.
    pub(super) fn truncation(&mut self, below: Slot, votes: &SlotRing<Vote>) -> Slot {
        if below <= self.from {
            return below;
        }
        let news = votes.iter_from(self.counted).take_while(|(slot, _)| *slot < below);
        self.bytes += news.map(|(_, vote)| (vote.value.size() + VOTE_BYTES) as u64).sum::<u64>();
        self.counted = self.counted.max(below);
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
        if self.active().is_none() || below <= self.executed.end {
            return;
        }
        self.executed = from..below;
        // Nobody waits for it, and the votes stand before it.
        cx.append(&AcceptorRecord::Executed { from, below });
    }

    pub(super) fn on_hold(&mut self, message: &Hold) {
        self.held.begin(message);
    }

    /// A page of `page_bytes`, or one value; an empty one ends it.
    pub(super) fn on_resume(&mut self, replica: NodeId, message: &Resume, cx: &mut Cx<'_, Self>) {
        let (executed, page_bytes) = (self.executed.clone(), self.parameters.page_bytes);
        let (mut values, mut page, mut slot) = (Vec::new(), PageBudget::new(page_bytes), message.from);
        while (executed.contains(&slot) || planted!(unchosen_votes_given_to_resuming_replica))
            && let Some(vote) = self.votes.get(slot)
            && page.admits(vote.value.size())
        {
            values.push(vote.value.clone());
            slot = slot.next();
        }
        cx.send(replica, replica::Resumed { from: message.from, values });
    }
}
