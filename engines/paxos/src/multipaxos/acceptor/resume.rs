//! What a replica that starts had executed: the acceptor of its host has the values, and was notified which are chosen.
//!
//! A vote in the ballot in which a slot was chosen, or in a later one, is for the chosen value. So what the replica has executed from this
//! acceptor's votes is chosen with whatever the acceptor voted for last, and after a restart needs no leader to say so again.

use super::{Acceptor, AcceptorRecord, Executed, Resume};
use crate::multipaxos::messages::replica;
use kernel::{Cx, NodeId, PageBudget, planted};

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
