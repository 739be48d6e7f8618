//! Ballots: whose proposals count.

use kernel::{Decode, DecodeError, Encode, NodeId, Reader};
use std::fmt;

/// A ballot: the round, then the leader who owns it. Greater ballots supersede smaller ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Grows with every election.
    pub round: u64,
    /// Who may propose in it. One incarnation of a leader never reuses a round of an earlier one.
    pub leader: NodeId,
}

impl Ballot {
    /// Below every ballot that anybody owns.
    pub const ZERO: Ballot = Ballot { round: 0, leader: NodeId::ZERO };

    /// The least ballot of `leader` above this one.
    pub fn above(self, leader: NodeId) -> Ballot {
        Ballot { round: self.round + 1, leader }
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.round, self.leader)
    }
}

impl Encode for Ballot {
    fn encode(&self, out: &mut Vec<u8>) {
        self.round.encode(out);
        self.leader.encode(out);
    }
}

impl Decode for Ballot {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { round: u64::decode(input)?, leader: NodeId::decode(input)? })
    }
}
