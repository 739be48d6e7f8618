//! From a leader to its log: all changes of a burst as one step, steps in their order.

use super::SpannerShard;
use super::frame::Frame;
use crate::machine::entry::{Change, Entry, Extend, Step};
use crate::txn::TxnId;
use kernel::{Bytes, Cx, Encode, Instant, NodeId};
use parts::Ballot;
use paxos::multipaxos::leader;
use paxos::{Members, Value};
use std::collections::VecDeque;
use wire::txn::{CallKey, Timestamp};

/// What is done when a change was applied.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Applied {
    /// A transaction of this shard alone, with its timestamp.
    Alone(TxnId, Timestamp),
    /// A participant has prepared.
    Prepared(TxnId),
    /// The coordinator has decided.
    Decided(TxnId),
    /// The decision of a transaction that is not known here any more.
    DecidedForUnknown(TxnId),
    /// A participant knows the decision.
    Concluded(TxnId),
    /// Participants have logged the decisions of these.
    Settled(Vec<TxnId>),
    /// The horizon is this.
    Extended(Timestamp),
    /// Somebody asked what became of a commit.
    Asked {
        /// Who.
        gateway: NodeId,
        /// Its number for the question.
        id: u64,
        /// The commit.
        key: CallKey,
    },
    /// The log follows these members of the cluster.
    Followed(Members),
    /// Nothing.
    Nothing,
}

#[derive(Clone, Debug)]
struct InFlight {
    index: u64,
    entry: Bytes,
    then: Vec<Applied>,
    since: Instant,
}

/// Changes on their way to the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    epoch: u64,
    index: u64,
    queue: VecDeque<(Change, Applied, usize)>,
    queue_bytes: usize,
    in_flight: VecDeque<InFlight>,
}

/// What a change adds to its keys and values, at most.
pub(super) const CHANGE_HEAD_BYTES: usize = 160;

impl Steps {
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// True if nothing is on its way to the log.
    pub(super) fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// The last step that is known to be in the log.
    pub(super) fn last_applied(&self) -> u64 {
        self.index - self.in_flight.len() as u64
    }

    pub(super) fn describe(&self) -> String {
        let (queued, in_flight) = (self.queue.len(), self.in_flight.len());
        format!(
            "epoch {}, step {}, {in_flight} steps in flight, {queued} changes queued",
            self.epoch, self.index
        )
    }

    pub(super) fn begin(&mut self, epoch: u64, index: u64) {
        (self.epoch, self.index) = (epoch, index);
    }

    /// True if another change of so many bytes may wait.
    pub(super) fn has_room(&self, bytes: usize, frame: &Frame<'_>) -> bool {
        self.queue_bytes + bytes <= frame.parameters.queue_bytes_max
    }

    /// Adds a change of so many bytes of keys and values.
    pub(super) fn push(&mut self, change: impl Into<Change>, then: Applied, bytes: usize) {
        self.queue_bytes += bytes + CHANGE_HEAD_BYTES;
        self.queue.push_back((change.into(), then, bytes + CHANGE_HEAD_BYTES));
    }

    /// True if nothing waits to be proposed: what can wait is added then.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Has the horizon logged, with what waits to be if there is one.
    pub(super) fn push_horizon(&mut self, horizon: Timestamp) {
        for (change, then, _) in &mut self.queue {
            if let (Change::Extend(extend), Applied::Extended(applied)) = (change, then) {
                extend.horizon = extend.horizon.max(horizon);
                *applied = extend.horizon;
                return;
            }
        }
        self.push(Extend { horizon, closed: Timestamp(0) }, Applied::Extended(horizon), 0);
    }

    /// Proposes what waits, as far as steps may be in flight.
    pub(super) fn propose(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        while !self.queue.is_empty() && self.in_flight.len() < frame.parameters.steps_max {
            let (mut changes, mut then) = (Vec::new(), Vec::new());
            let mut page = kernel::PageBudget::new(frame.parameters.step_bytes_max);
            while let Some((.., bytes)) = self.queue.front()
                && page.admits(*bytes)
                && let Some((change, after, bytes)) = self.queue.pop_front()
            {
                self.queue_bytes -= bytes;
                changes.push(change);
                then.push(after);
            }
            self.index += 1;
            let step = Step { epoch: self.epoch, index: self.index, changes };
            let entry = Bytes::from(Entry::Step(step).encoded());
            propose(entry.clone(), frame, cx);
            self.in_flight.push_back(InFlight { index: self.index, entry, then, since: cx.now() });
        }
    }

    pub(super) fn propose_again(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let now = cx.now();
        for step in &mut self.in_flight {
            if now.since(step.since) >= 2 * frame.parameters.resend_after {
                step.since = now;
                cx.mark("shard.proposed_again");
                propose(step.entry.clone(), frame, cx);
            }
        }
    }

    /// A step was applied: what is to be done for it and those before it.
    pub(super) fn applied(&mut self, epoch: u64, index: u64) -> Vec<Applied> {
        let mut then = Vec::new();
        while epoch == self.epoch
            && let Some(step) = self.in_flight.pop_front_if(|step| step.index <= index)
        {
            then.extend(step.then);
        }
        then
    }

    pub(super) fn propose_begin(
        ballot: Ballot,
        attempt: u64,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let entry = Entry::Begin { ballot, leader: cx.node(), attempt };
        propose(entry.encoded().into(), frame, cx);
    }
}

fn propose(entry: Bytes, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
    match Value::entry(entry) {
        Ok(value) => cx.send(frame.log.leader, paxos::Message::from(leader::Propose { value })),
        // Transactions are bounded where gateways and shards take them.
        Err(_) => cx.reject("step larger than a slot holds"),
    }
}
