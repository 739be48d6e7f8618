//! The part of a gateway that talks to proxies: numbers operations, and sends them again until they are answered.

use crate::client::Answer;
use crate::order::{Group, Operation};
use crate::proxy::Submit;
use kernel::{Bytes, Instant, NodeId, Wall};
use std::collections::BTreeMap;
use std::time::Duration;

/// Operations of one origin that have no answer yet, by group.
#[derive(Clone, Debug)]
pub struct Outbox {
    incarnation: u64,
    groups: Vec<Lane>,
    resend_after: Duration,
}

#[derive(Clone, Debug)]
struct Lane {
    proxy: NodeId,
    next: u64,
    unsent_from: u64,
    unanswered: BTreeMap<u64, Bytes>,
    heard_at: Instant,
}

/// Operations of one message.
const PER_MESSAGE_MAX: usize = 4_096;
/// Bytes of one message.
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

impl Outbox {
    /// An outbox of the origin's life `incarnation`; `proxies` are those of its host, by group.
    pub fn new(incarnation: u64, proxies: &[NodeId], resend_after: Duration) -> Self {
        let lane = |&proxy: &NodeId| Lane {
            proxy,
            next: 1,
            unsent_from: 1,
            unanswered: BTreeMap::new(),
            heard_at: Instant(0),
        };
        Self { incarnation, groups: proxies.iter().map(lane).collect(), resend_after }
    }

    /// Adds an operation, to be sent by the next `flush`. Returns its tag.
    pub fn push(&mut self, group: Group, body: Bytes) -> u64 {
        let lane = &mut self.groups[usize::from(group.0)];
        let tag = lane.next;
        lane.next += 1;
        lane.unanswered.insert(tag, body);
        tag
    }

    /// An answer has come: the operation need not be sent again. False if it had one before, or is another life's.
    pub fn answered(&mut self, group: Group, answer: &Answer, now: Instant) -> bool {
        let Some(lane) = self.groups.get_mut(usize::from(group.0)) else { return false };
        if answer.incarnation != self.incarnation {
            return false;
        }
        lane.heard_at = now;
        lane.unanswered.remove(&answer.tag).is_some()
    }

    /// Gives up everything unanswered, and numbers what follows anew: some of it may have been executed, some may be yet, until
    /// the first operation of the new life is admitted.
    pub fn restart(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
        for lane in &mut self.groups {
            (lane.next, lane.unsent_from) = (1, 1);
            lane.unanswered.clear();
        }
    }

    /// Operations without an answer.
    pub fn outstanding(&self) -> usize {
        self.groups.iter().map(|lane| lane.unanswered.len()).sum()
    }

    /// What is to be sent now: what is new, and everything unanswered where nothing has been heard for long.
    pub fn flush(&mut self, origin: NodeId, now: Instant, mut send: impl FnMut(NodeId, Submit)) {
        let incarnation = self.incarnation;
        for lane in &mut self.groups {
            if lane.unanswered.is_empty() {
                lane.heard_at = now;
                lane.unsent_from = lane.next;
                continue;
            }
            if now.since(lane.heard_at) >= self.resend_after {
                lane.heard_at = now;
                lane.unsent_from = 1;
            }
            let (mut operations, mut bytes) = (Vec::new(), 0);
            for (&tag, body) in lane.unanswered.range(lane.unsent_from..) {
                bytes += body.len();
                operations.push(Operation { origin, incarnation, tag, body: body.clone() });
                if operations.len() >= PER_MESSAGE_MAX || bytes >= BYTES_PER_MESSAGE_MAX {
                    bytes = 0;
                    send(lane.proxy, Submit { operations: std::mem::take(&mut operations) });
                }
            }
            if !operations.is_empty() {
                send(lane.proxy, Submit { operations });
            }
            lane.unsent_from = lane.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, Place};

    fn node(place: u32) -> NodeId {
        NodeId::new(HostId(1), Place(place))
    }

    // An outbox that leaves a gap when it sends again stops its origin for good: tags are admitted in their order.
    #[test]
    fn what_is_unanswered_is_sent_again_in_order() {
        let mut outbox = Outbox::new(9, &[node(1), node(2)], Duration::from_millis(100));
        let tags = |outbox: &mut Outbox, now: u64| {
            let mut sent = Vec::new();
            outbox.flush(node(7), Instant(now), |to, submit| {
                sent.extend(submit.operations.iter().map(|operation| (to, operation.tag)));
            });
            sent
        };
        assert_eq!(outbox.push(Group(0), Bytes::from_static(b"a")), 1);
        assert_eq!(outbox.push(Group(0), Bytes::from_static(b"b")), 2);
        assert_eq!(outbox.push(Group(1), Bytes::from_static(b"c")), 1);
        assert_eq!(tags(&mut outbox, 0), [(node(1), 1), (node(1), 2), (node(2), 1)]);
        assert_eq!(tags(&mut outbox, 1), []);
        assert_eq!(outbox.push(Group(0), Bytes::from_static(b"d")), 3);
        let answer =
            |incarnation, tag| Answer { incarnation, tag, stamp: crate::Stamp(1), body: Bytes::new() };
        assert!(!outbox.answered(Group(0), &answer(8, 1), Instant(2)), "of another life");
        assert!(outbox.answered(Group(0), &answer(9, 1), Instant(2)));
        assert!(!outbox.answered(Group(0), &answer(9, 1), Instant(2)));
        assert_eq!(tags(&mut outbox, 3), [(node(1), 3)]);
        let late = 200_000_000;
        assert_eq!(tags(&mut outbox, late), [(node(1), 2), (node(1), 3), (node(2), 1)]);
        assert_eq!(outbox.outstanding(), 3);
        outbox.restart(10);
        assert_eq!(outbox.outstanding(), 0);
        assert_eq!(outbox.push(Group(0), Bytes::from_static(b"e")), 1);
    }
}
