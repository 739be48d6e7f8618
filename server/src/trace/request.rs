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
    /// What a node does for it.
    pub fn span_at(self, node: NodeId) -> SpanNumber {
        let hash = scattered(self.0 as u64 ^ scattered(node.as_u64()));
        SpanNumber((hash ^ (self.0 >> 64) as u64).max(1))
    }
}

/// Which requests are followed: about one in so many, the same ones on every host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// At least 1: all.
    pub one_in: u64,
}

impl Sampling {
    /// A command of a session of the key-value service.
    pub fn of_command(self, session: SessionId, sequence: Sequence) -> Option<RequestTrace> {
        self.of(&[1, session.0, sequence.0])
    }

    /// An operation that a gateway has submitted to a group.
    pub fn of_tagged(self, group: Group, origin: NodeId, incarnation: u64, tag: u64) -> Option<RequestTrace> {
        self.of(&[2, u64::from(group.0), origin.as_u64(), incarnation, tag])
    }

    /// The same, of the operation itself.
    pub fn of_operation(self, group: Group, operation: &Operation) -> Option<RequestTrace> {
        self.of_tagged(group, operation.origin, operation.incarnation, operation.tag)
    }

    /// An attempt of a transaction.
    pub fn of_txn(self, gateway: NodeId, incarnation: u64, number: u64) -> Option<RequestTrace> {
        self.of(&[3, gateway.as_u64(), incarnation, number])
    }

    /// By what names the request, as numbers of which the first says what the others are. Most requests are not followed, and cost one
    /// of the two hashes.
    fn of(self, words: &[u64]) -> Option<RequestTrace> {
        let half = |seed: u64| words.iter().fold(seed, |hash, word| scattered(hash ^ word));
        let low = half(SECOND);
        let trace = || RequestTrace((u128::from(half(FIRST)) << 64 | u128::from(low)).max(1));
        low.is_multiple_of(self.one_in.max(1)).then(trace)
    }
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

    const ALL: Sampling = Sampling { one_in: 1 };

    // Requests follow one another by their numbers: a hash that does not scatter them samples all of a client or none.
    #[test]
    fn one_of_so_many_is_sampled_in_every_session() {
        let few = Sampling { one_in: 1_000 };
        for session in [0, 1, 0xfeed_0000_0000] {
            let of = |sampling: Sampling, number| sampling.of_command(SessionId(session), Sequence(number));
            let sampled: Vec<u64> = (0..100_000).filter(|number| of(few, *number).is_some()).collect();
            assert!((60..=140).contains(&sampled.len()), "{} of 100,000 of {session}", sampled.len());
            assert!((0..100).all(|number| of(ALL, number).is_some()), "one in one is all");
            assert!(sampled.iter().all(|number| of(few, *number) == of(ALL, *number)), "it has one trace");
        }
    }

    // Two requests with one trace, or two nodes with one span, would be shown as one.
    #[test]
    fn traces_and_spans_differ() {
        let mut traces = BTreeSet::new();
        for session in 0..100 {
            for sequence in 0..100 {
                traces.insert(ALL.of_command(SessionId(session), Sequence(sequence)));
                let gateway = NodeId::new(HostId(7), HostSlot(session as u32));
                traces.insert(ALL.of_tagged(Group(0), gateway, 1, sequence));
                traces.insert(ALL.of_tagged(Group(1), gateway, 1, sequence));
                traces.insert(ALL.of_txn(gateway, 1, sequence));
            }
        }
        assert_eq!(traces.len(), 40_000);
        let nodes = (0..1_000).map(|slot| NodeId::new(HostId(7), HostSlot(slot)));
        let trace = ALL.of_command(SessionId(1), Sequence(1)).expect("all are sampled");
        assert_eq!(nodes.map(|node| trace.span_at(node)).collect::<BTreeSet<_>>().len(), 1_000);
    }
}
