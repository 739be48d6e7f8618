//! What an acceptor writes to its journal.

use crate::value::Value;
use kernel::{Decode, DecodeError, Encode, NodeId, Reader};
use parts::{Ballot, Slot};

/// What an acceptor must not forget.
#[derive(Clone, PartialEq, Debug)]
pub enum AcceptorRecord {
    /// Its journal began blank.
    Blank {
        /// Drawn at random.
        incarnation: u64,
    },
    /// It may vote: the cluster began with these acceptors, or it was made a member later (then the row is empty).
    Active {
        /// The acceptors at the cluster's bootstrap.
        members: Vec<(NodeId, u64)>,
    },
    /// It promised a ballot.
    Promise {
        /// The ballot.
        ballot: Ballot,
    },
    /// It voted.
    Vote {
        /// In which ballot.
        ballot: Ballot,
        /// For which slot.
        slot: Slot,
        /// The value.
        value: Value,
    },
    /// It stopped answering reads of older configurations.
    Sealed {
        /// The first version it still answers.
        version: u64,
    },
    /// These slots are chosen, with the values that it learned, or else voted for last. True when written; what is lost of it costs time
    /// and nothing else.
    Executed {
        /// The first of them.
        from: Slot,
        /// The slot after the last.
        below: Slot,
    },
    /// All of the above but the votes and what is chosen, so that older records can go.
    Summary(Summary),
    /// This slot is chosen, with this value. It is no vote.
    Learned {
        /// Which slot.
        slot: Slot,
        /// The value.
        value: Value,
    },
}

kernel::record! {
    /// Everything an acceptor remembers apart from its votes.
    pub struct Summary {
        /// Drawn when its journal began.
        incarnation: u64,
        /// It may vote.
        active: bool,
        /// The acceptors at the cluster's bootstrap, if it was there.
        members: Vec<(NodeId, u64)>,
        /// The highest ballot promised.
        promised: Ballot,
        /// The slot after the highest one it has voted in.
        voted_through: Slot,
        /// Votes below are forgotten: those slots are chosen, and in the snapshots of enough replicas.
        truncated_below: Slot,
        /// The first configuration whose reads it answers.
        sealed: u64,
    }
}

impl Summary {
    pub(super) fn blank(incarnation: u64) -> Self {
        Self {
            incarnation,
            active: false,
            members: Vec::new(),
            promised: Ballot::ZERO,
            voted_through: Slot(0),
            truncated_below: Slot(0),
            sealed: 0,
        }
    }
}

impl Encode for AcceptorRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Blank { incarnation } => {
                out.push(1);
                incarnation.encode(out);
            }
            Self::Active { members } => {
                out.push(2);
                members.encode(out);
            }
            Self::Promise { ballot } => {
                out.push(3);
                ballot.encode(out);
            }
            Self::Vote { ballot, slot, value } => {
                out.push(4);
                ballot.encode(out);
                slot.encode(out);
                value.encode(out);
            }
            Self::Sealed { version } => {
                out.push(5);
                version.encode(out);
            }
            Self::Summary(summary) => {
                out.push(6);
                summary.encode(out);
            }
            Self::Executed { from, below } => {
                out.push(7);
                from.encode(out);
                below.encode(out);
            }
            Self::Learned { slot, value } => {
                out.push(8);
                slot.encode(out);
                value.encode(out);
            }
        }
    }
}

impl Decode for AcceptorRecord {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match u8::decode(input)? {
            1 => Self::Blank { incarnation: input.field()? },
            2 => Self::Active { members: input.field()? },
            3 => Self::Promise { ballot: input.field()? },
            4 => Self::Vote { ballot: input.field()?, slot: input.field()?, value: input.field()? },
            5 => Self::Sealed { version: input.field()? },
            6 => Self::Summary(input.field()?),
            7 => Self::Executed { from: input.field()?, below: input.field()? },
            8 => Self::Learned { slot: input.field()?, value: input.field()? },
            tag => return Err(DecodeError::UnknownTag("acceptor record", tag)),
        })
    }
}
