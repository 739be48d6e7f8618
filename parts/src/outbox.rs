//! The part of a gateway that talks to groups: numbers operations, and sends them again until they are answered.

use crate::Incarnation;
use kernel::{Bytes, Instant, NodeId};
use std::collections::VecDeque;
use std::time::Duration;

/// Operations of one origin that have no answer yet, by group; `A` says who waits for the answer.
///
/// Every group admits an incarnation's operations in the order of their tags, which begin at 1. What is sent again is therefore all that
/// has no answer, from the first on.
#[derive(Clone, Debug)]
pub struct Outbox<A> {
    incarnation: Incarnation,
    lanes: Vec<Lane<A>>,
    resend_after: Duration,
}

/// The way to one group.
#[derive(Clone, Debug)]
struct Lane<A> {
    /// The node of the group that takes its operations.
    to: NodeId,
    pending: VecDeque<Pending<A>>,
    /// The tag of the first pending one.
    first: u64,
    /// The first tag that was never sent.
    unsent: u64,
    heard_at: Instant,
}

#[derive(Clone, Debug)]
struct Pending<A> {
    body: Bytes,
    /// None once it is answered; it stays until those before it are, too.
    asker: Option<A>,
}

/// An operation by its group, its origin's incarnation, and its tag there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tagged {
    /// The group, by its index.
    pub group: usize,
    /// The incarnation that asked.
    pub incarnation: u64,
    /// Which operation.
    pub tag: u64,
}

/// Operations of one message.
const PER_MESSAGE_MAX: usize = 4_096;
/// Bytes of one message, unless one operation is longer.
const BYTES_PER_MESSAGE_MAX: usize = 256 << 10;

impl<A> Lane<A> {
    fn new(to: NodeId) -> Self {
        Self { to, pending: VecDeque::new(), first: 1, unsent: 1, heard_at: Instant(0) }
    }
}

impl<A> Outbox<A> {
    /// An outbox of the origin's incarnation; `groups` are the nodes that take its operations, by group.
    pub fn new(incarnation: Incarnation, groups: &[NodeId], resend_after: Duration) -> Self {
        Self { incarnation, lanes: groups.iter().map(|&to| Lane::new(to)).collect(), resend_after }
    }

    /// The incarnation that its operations are of.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.lanes.len()
    }

    /// Adds an operation, to be sent by the next `flush`. Nothing happens if there is no such group.
    pub fn push(&mut self, group: usize, body: Bytes, asker: A, now: Instant) {
        let Some(lane) = self.lanes.get_mut(group) else { return };
        if lane.pending.is_empty() {
            lane.heard_at = now;
        }
        lane.pending.push_back(Pending { body, asker: Some(asker) });
    }

    /// An answer has come: the operation need not be sent again. None if it had one before, or is another incarnation's.
    pub fn answered(&mut self, of: Tagged, now: Instant) -> Option<A> {
        let lane = self.lanes.get_mut(of.group)?;
        if of.incarnation != self.incarnation.number {
            return None;
        }
        let at = usize::try_from(of.tag.checked_sub(lane.first)?).ok()?;
        let asker = lane.pending.get_mut(at)?.asker.take()?;
        lane.heard_at = now;
        while lane.pending.front().is_some_and(|pending| pending.asker.is_none()) {
            lane.pending.pop_front();
            lane.first += 1;
        }
        lane.unsent = lane.unsent.max(lane.first);
        Some(asker)
    }

    /// The operation was not executed and will not be there: who waits, and its body, to be pushed to another group. None if it was
    /// answered before, or is another incarnation's.
    pub fn turned_away(&mut self, of: Tagged, now: Instant) -> Option<(A, Bytes)> {
        let lane = self.lanes.get(of.group)?;
        let at = usize::try_from(of.tag.checked_sub(lane.first)?).ok()?;
        let body = lane.pending.get(at)?.body.clone();
        Some((self.answered(of, now)?, body))
    }

    /// Gives up everything unanswered, and numbers what follows anew: some of it may have been executed, some may be yet, until
    /// the first operation of the new incarnation is admitted. Returns who waited.
    pub fn restart(&mut self, incarnation: Incarnation) -> Vec<A> {
        self.incarnation = incarnation;
        let mut waited = Vec::new();
        for lane in &mut self.lanes {
            waited.extend(lane.pending.drain(..).filter_map(|pending| pending.asker));
            *lane = Lane::new(lane.to);
        }
        waited
    }

    /// Who waits for an answer.
    pub fn askers(&self) -> impl Iterator<Item = &A> {
        self.lanes.iter().flat_map(|lane| &lane.pending).filter_map(|pending| pending.asker.as_ref())
    }

    /// Operations of the longest lane.
    pub fn longest(&self) -> usize {
        self.lanes.iter().map(|lane| lane.pending.len()).max().unwrap_or(0)
    }

    /// What is to be sent now: what is new, and everything unanswered where nothing has been heard for long. `operation` makes what
    /// travels, `send` gets each message's operations.
    pub fn flush<O>(
        &mut self,
        now: Instant,
        mut operation: impl FnMut(Tagged, Bytes) -> O,
        mut send: impl FnMut(NodeId, Vec<O>),
    ) {
        let incarnation = self.incarnation.number;
        for (group, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| !lane.pending.is_empty()) {
            if lane.first < lane.unsent && now.since(lane.heard_at) >= self.resend_after {
                lane.heard_at = now;
                lane.unsent = lane.first;
            }
            let (mut operations, mut bytes) = (Vec::new(), 0);
            let skip = (lane.unsent - lane.first) as usize;
            for (tag, pending) in (lane.unsent..).zip(lane.pending.iter().skip(skip)) {
                if operations.len() >= PER_MESSAGE_MAX || bytes + pending.body.len() > BYTES_PER_MESSAGE_MAX {
                    bytes = 0;
                    send_if_any(lane.to, &mut operations, &mut send);
                }
                bytes += pending.body.len();
                operations.push(operation(Tagged { group, incarnation, tag }, pending.body.clone()));
            }
            send_if_any(lane.to, &mut operations, &mut send);
            lane.unsent = lane.first + lane.pending.len() as u64;
        }
    }
}

fn send_if_any<O>(to: NodeId, operations: &mut Vec<O>, send: &mut impl FnMut(NodeId, Vec<O>)) {
    if !operations.is_empty() {
        send(to, std::mem::take(operations));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};

    const PATIENCE: Duration = Duration::from_millis(100);

    fn node(slot: u32) -> NodeId {
        NodeId::new(HostId(1), HostSlot(slot))
    }

    fn sent(outbox: &mut Outbox<char>, now: u64) -> Vec<(NodeId, u64)> {
        let mut sent = Vec::new();
        outbox.flush(
            Instant(now),
            |of, _| of.tag,
            |to, tags| sent.extend(tags.into_iter().map(|tag| (to, tag))),
        );
        sent
    }

    // An operation that is turned away is pushed to another group once, and by the incarnation that asked.
    #[test]
    fn what_was_turned_away_is_given_back() {
        let mut outbox = Outbox::new(Incarnation { number: 9 }, &[node(1), node(2)], PATIENCE);
        outbox.push(1, Bytes::from_static(b"b"), 'a', Instant(0));
        let mut away =
            |incarnation, tag| outbox.turned_away(Tagged { group: 1, incarnation, tag }, Instant(0));
        assert_eq!(away(8, 1), None);
        assert_eq!(away(9, 2), None);
        assert_eq!(away(9, 1), Some(('a', Bytes::from_static(b"b"))));
        assert_eq!(away(9, 1), None);
    }

    // An outbox that leaves a gap when it sends again stops its origin for good: tags are admitted in their order.
    #[test]
    fn what_is_unanswered_is_sent_again_in_order() {
        let mut outbox = Outbox::new(Incarnation { number: 9 }, &[node(1), node(2)], PATIENCE);
        let body = || Bytes::from_static(b"x");
        let of = |incarnation, tag| Tagged { group: 0, incarnation, tag };
        outbox.push(0, body(), 'a', Instant(0));
        outbox.push(0, body(), 'b', Instant(0));
        outbox.push(1, body(), 'c', Instant(0));
        assert_eq!(sent(&mut outbox, 0), [(node(1), 1), (node(1), 2), (node(2), 1)]);
        assert_eq!(sent(&mut outbox, 1), []);
        outbox.push(0, body(), 'd', Instant(1));
        assert_eq!(outbox.answered(of(8, 2), Instant(2)), None, "of another incarnation");
        assert_eq!(outbox.answered(of(9, 2), Instant(2)), Some('b'));
        assert_eq!(outbox.answered(of(9, 2), Instant(2)), None, "answered twice");
        assert_eq!(sent(&mut outbox, 3), [(node(1), 3)]);
        let late = 200_000_000;
        assert_eq!(sent(&mut outbox, late), [(node(1), 1), (node(1), 2), (node(1), 3), (node(2), 1)]);
        assert_eq!(outbox.answered(of(9, 1), Instant(late)), Some('a'));
        assert_eq!(sent(&mut outbox, 2 * late), [(node(1), 3), (node(2), 1)]);
        assert_eq!(outbox.restart(Incarnation { number: 10 }), ['d', 'c']);
        outbox.push(0, body(), 'e', Instant(0));
        assert_eq!(sent(&mut outbox, 0), [(node(1), 1)], "a new incarnation counts anew");
    }
}
