//! The part of a gateway that talks to proxies: numbers operations, and sends them again until they are answered.

use crate::client::{Answer, Elsewhere};
use crate::order::{Group, Operation, Stamp};
use crate::proxy::Submit;
use kernel::{Bytes, Instant, NodeId, Wall};
use std::collections::VecDeque;
use std::time::Duration;

/// Operations of one origin that have no answer yet, by group; `A` says who waits for the answer.
#[derive(Clone, Debug)]
pub struct Outbox<A> {
    incarnation: u64,
    lanes: Vec<Lane<A>>,
    resend_after: Duration,
}

/// The way to one group.
#[derive(Clone, Debug)]
struct Lane<A> {
    proxy: NodeId,
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

/// Operations of one message.
const PER_MESSAGE_MAX: usize = 4_096;
/// Bytes of one message, unless one operation is longer.
const BYTES_PER_MESSAGE_MAX: usize = 256 << 10;

kernel::record! {
    /// What a gateway must not forget: the lives of its outbox. A later life has a larger number, so that what an earlier one has
    /// sent, and the network delivers late, is not taken for new.
    pub struct Life {
        /// The life that begins.
        incarnation: u64,
    }
}

impl Life {
    /// The life after this one. The clock only matters where journals are not kept.
    #[must_use]
    pub fn next(&self, wall: Wall) -> Self {
        Self { incarnation: (self.incarnation + 1).max(wall.latest) }
    }
}

impl<A> Lane<A> {
    fn new(proxy: NodeId) -> Self {
        Self { proxy, pending: VecDeque::new(), first: 1, unsent: 1, heard_at: Instant(0) }
    }
}

impl<A> Outbox<A> {
    /// An outbox of the origin's life `incarnation`; `proxies` are those of its host, by group.
    pub fn new(incarnation: u64, proxies: &[NodeId], resend_after: Duration) -> Self {
        let lanes = proxies.iter().map(|&proxy| Lane::new(proxy)).collect();
        Self { incarnation, lanes, resend_after }
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.lanes.len()
    }

    /// Adds an operation, to be sent by the next `flush`. Nothing happens if there is no such group.
    pub fn push(&mut self, group: Group, body: Bytes, asker: A, now: Instant) {
        let Some(lane) = self.lanes.get_mut(usize::from(group.0)) else { return };
        if lane.pending.is_empty() {
            lane.heard_at = now;
        }
        lane.pending.push_back(Pending { body, asker: Some(asker) });
    }

    /// An answer has come: the operation need not be sent again. None if it had one before, or is another life's.
    pub fn answered(&mut self, group: Group, answer: &Answer, now: Instant) -> Option<A> {
        let lane = self.lanes.get_mut(usize::from(group.0))?;
        if answer.incarnation != self.incarnation {
            return None;
        }
        let at = usize::try_from(answer.tag.checked_sub(lane.first)?).ok()?;
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
    /// answered before, or is another life's.
    pub fn turned_away(&mut self, message: &Elsewhere, now: Instant) -> Option<(A, Bytes)> {
        let Elsewhere { group, incarnation, tag, .. } = *message;
        let lane = self.lanes.get(usize::from(group.0))?;
        let at = usize::try_from(tag.checked_sub(lane.first)?).ok()?;
        let body = lane.pending.get(at)?.body.clone();
        let answer = Answer { incarnation, tag, stamp: Stamp(0), body: Bytes::new() };
        Some((self.answered(group, &answer, now)?, body))
    }

    /// Gives up everything unanswered, and numbers what follows anew: some of it may have been executed, some may be yet, until
    /// the first operation of the new life is admitted. Returns who waited.
    pub fn restart(&mut self, incarnation: u64) -> Vec<A> {
        self.incarnation = incarnation;
        let mut waited = Vec::new();
        for lane in &mut self.lanes {
            waited.extend(lane.pending.drain(..).filter_map(|pending| pending.asker));
            *lane = Lane::new(lane.proxy);
        }
        waited
    }

    /// Operations of the longest lane.
    pub fn longest(&self) -> usize {
        self.lanes.iter().map(|lane| lane.pending.len()).max().unwrap_or(0)
    }

    /// What is to be sent now: what is new, and everything unanswered where nothing has been heard for long.
    pub fn flush(&mut self, origin: NodeId, now: Instant, mut send: impl FnMut(NodeId, Submit)) {
        let incarnation = self.incarnation;
        for lane in &mut self.lanes {
            if lane.pending.is_empty() {
                continue;
            }
            if lane.first < lane.unsent && now.since(lane.heard_at) >= self.resend_after {
                lane.heard_at = now;
                lane.unsent = lane.first;
            }
            let (mut operations, mut bytes) = (Vec::new(), 0);
            let skip = (lane.unsent - lane.first) as usize;
            for (tag, pending) in (lane.unsent..).zip(lane.pending.iter().skip(skip)) {
                if operations.len() >= PER_MESSAGE_MAX || bytes + pending.body.len() > BYTES_PER_MESSAGE_MAX {
                    bytes = 0;
                    send_if_any(lane.proxy, &mut operations, &mut send);
                }
                bytes += pending.body.len();
                operations.push(Operation { origin, incarnation, tag, body: pending.body.clone() });
            }
            send_if_any(lane.proxy, &mut operations, &mut send);
            lane.unsent = lane.first + lane.pending.len() as u64;
        }
    }
}

fn send_if_any(proxy: NodeId, operations: &mut Vec<Operation>, send: &mut impl FnMut(NodeId, Submit)) {
    if !operations.is_empty() {
        send(proxy, Submit { operations: std::mem::take(operations) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, Place};

    const PATIENCE: Duration = Duration::from_millis(100);

    fn node(place: u32) -> NodeId {
        NodeId::new(HostId(1), Place(place))
    }

    fn answer(incarnation: u64, tag: u64) -> Answer {
        Answer { incarnation, tag, stamp: crate::Stamp(1), body: Bytes::new() }
    }

    fn sent(outbox: &mut Outbox<char>, now: u64) -> Vec<(NodeId, u64)> {
        let mut sent = Vec::new();
        outbox.flush(node(7), Instant(now), |to, submit| {
            sent.extend(submit.operations.iter().map(|operation| (to, operation.tag)));
        });
        sent
    }

    // An outbox that leaves a gap when it sends again stops its origin for good: tags are admitted in their order.
    #[test]
    fn what_is_unanswered_is_sent_again_in_order() {
        let mut outbox = Outbox::new(9, &[node(1), node(2)], PATIENCE);
        let body = || Bytes::from_static(b"x");
        outbox.push(Group(0), body(), 'a', Instant(0));
        outbox.push(Group(0), body(), 'b', Instant(0));
        outbox.push(Group(1), body(), 'c', Instant(0));
        assert_eq!(sent(&mut outbox, 0), [(node(1), 1), (node(1), 2), (node(2), 1)]);
        assert_eq!(sent(&mut outbox, 1), []);
        outbox.push(Group(0), body(), 'd', Instant(1));
        assert_eq!(outbox.answered(Group(0), &answer(8, 2), Instant(2)), None, "of another life");
        assert_eq!(outbox.answered(Group(0), &answer(9, 2), Instant(2)), Some('b'));
        assert_eq!(outbox.answered(Group(0), &answer(9, 2), Instant(2)), None, "answered twice");
        assert_eq!(sent(&mut outbox, 3), [(node(1), 3)]);
        let late = 200_000_000;
        assert_eq!(sent(&mut outbox, late), [(node(1), 1), (node(1), 2), (node(1), 3), (node(2), 1)]);
        assert_eq!(outbox.answered(Group(0), &answer(9, 1), Instant(late)), Some('a'));
        assert_eq!(sent(&mut outbox, 2 * late), [(node(1), 3), (node(2), 1)]);
        assert_eq!(outbox.restart(10), ['d', 'c']);
        outbox.push(Group(0), body(), 'e', Instant(0));
        assert_eq!(sent(&mut outbox, 0), [(node(1), 1)], "a new life counts anew");
    }
}
