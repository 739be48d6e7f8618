//! What names a request, and so its trace: every host computes the same from what it sees of it, and no message has to say it.

use kernel::NodeId;
use mason::{Group, Operation};
use parts::{Sequence, SessionId};

/// A request's trace, as 16 bytes of OpenTelemetry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestTrace(pub u128);

/// A part of a trace: what one node does for the request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpanNumber(pub u64);

impl RequestTrace {
    /// Of a command of a session of the key-value service.
    pub fn of_command(session: SessionId, sequence: Sequence) -> Self {
        Self::of(&[1, session.0, sequence.0])
    }

    /// Of an operation that a gateway has submitted to a group.
    pub fn of_operation(group: Group, origin: NodeId, incarnation: u64, tag: u64) -> Self {
        Self::of(&[2, u64::from(group.0), origin.as_u64(), incarnation, tag])
    }

    /// Of an attempt of a transaction.
    pub fn of_txn(gateway: NodeId, incarnation: u64, number: u64) -> Self {
        Self::of(&[3, gateway.as_u64(), incarnation, number])
    }

    /// Of what names the request, as numbers of which the first says what the others are.
    fn of(words: &[u64]) -> Self {
        let half = |seed: u64| words.iter().fold(seed, |hash, word| scattered(hash ^ scattered(*word)));
        Self((u128::from(half(FIRST)) << 64 | u128::from(half(SECOND))).max(1))
    }

    /// True if it is one of those that are followed: about one of so many, the same ones on every host.
    pub fn is_sampled(self, one_in: u64) -> bool {
        (self.0 as u64).is_multiple_of(one_in.max(1))
    }

    /// What a node does for it.
    pub fn span_at(self, node: NodeId) -> SpanNumber {
        let hash = scattered(self.0 as u64 ^ scattered(node.as_u64()));
        SpanNumber((hash ^ (self.0 >> 64) as u64).max(1))
    }
}

/// Of an operation, by the group that takes it.
pub fn trace_of(group: Group, operation: &Operation) -> RequestTrace {
    RequestTrace::of_operation(group, operation.origin, operation.incarnation, operation.tag)
}

// Digits of pi: any two numbers that differ.
const FIRST: u64 = 0x243f_6a88_85a3_08d3;
const SECOND: u64 = 0x1319_8a2e_0370_7344;

/// Bits of a number that follow from all of its bits (the finalizer of SplitMix64).
fn scattered(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};
    use std::collections::BTreeSet;

    // Requests follow one another by their numbers: a hash that does not scatter them samples all of a client or none.
    #[test]
    fn one_of_so_many_is_sampled_in_every_session() {
        for session in [0, 1, 0xfeed_0000_0000] {
            let of = |sequence| RequestTrace::of_command(SessionId(session), Sequence(sequence));
            let sampled = (0..100_000).filter(|sequence| of(*sequence).is_sampled(1_000)).count();
            assert!((60..=140).contains(&sampled), "{sampled} of 100,000 of session {session}");
            assert!((0..100).all(|sequence| of(sequence).is_sampled(1)), "one in one is all");
        }
    }

    // Two requests with one trace, or two nodes with one span, would be shown as one.
    #[test]
    fn traces_and_spans_differ() {
        let mut traces = BTreeSet::new();
        for session in 0..100 {
            for sequence in 0..100 {
                traces.insert(RequestTrace::of_command(SessionId(session), Sequence(sequence)));
                let gateway = NodeId::new(HostId(7), HostSlot(session as u32));
                traces.insert(RequestTrace::of_operation(Group(0), gateway, 1, sequence));
                traces.insert(RequestTrace::of_operation(Group(1), gateway, 1, sequence));
            }
        }
        assert_eq!(traces.len(), 30_000);
        let nodes = (0..1_000).map(|slot| NodeId::new(HostId(7), HostSlot(slot)));
        let trace = RequestTrace::of_command(SessionId(1), Sequence(1));
        assert_eq!(nodes.map(|node| trace.span_at(node)).collect::<BTreeSet<_>>().len(), 1_000);
    }
}
