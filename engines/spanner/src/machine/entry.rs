//! What stands in a shard's log, and what its replicas are asked.

use crate::txn::{CallRef, Fate, PreparedTxn, ReadSet, ShardId, TxnId};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader};
use parts::Ballot;
use paxos::Members;
use wire::txn::{CallKey, KeyRow, KeyWrite, ScannedRows, Timestamp};

kernel::messages! {
    /// A change of a shard's state.
    pub enum Change {
        /// A transaction of this shard alone.
        1 => CommitAlone {
            /// Which.
            txn: TxnId,
            /// What the user calls it.
            call: Option<CallRef>,
            /// Its commit timestamp.
            t_c: Timestamp,
            /// Its writes.
            writes: Vec<KeyWrite>,
        },
        /// A participant has prepared.
        2 => Prepare {
            /// With everything that it holds.
            prepared: PreparedTxn,
        },
        /// The coordinator has decided. Its own part is in here.
        3 => Decide {
            /// Which.
            txn: TxnId,
            /// What the user calls it.
            call: Option<CallRef>,
            /// How it ends; a call that was committed before ends as aborted.
            fate: Fate,
            /// The coordinator's writes.
            writes: Vec<KeyWrite>,
            /// The other participants, which are sent the decision until they have logged it.
            participants: Vec<ShardId>,
        },
        /// A participant knows the decision.
        4 => Conclude {
            /// Which.
            txn: TxnId,
            /// How it ended.
            fate: Fate,
        },
        /// Readers may be promised timestamps up to `horizon`; no later change has a timestamp at or below `closed`.
        5 => Extend {
            /// The horizon.
            horizon: Timestamp,
            /// What is closed.
            closed: Timestamp,
        },
        /// A participant has these decisions in its log.
        6 => Settle {
            /// The participant.
            by: ShardId,
            /// The transactions.
            txns: Vec<TxnId>,
        },
        /// Nobody may read below this any more.
        7 => Collect {
            /// The low watermark.
            below: Timestamp,
        },
        /// A gateway has the answers to all its attempts below this one, and will not ask for them again.
        8 => ForgetBelow {
            /// The gateway.
            gateway: NodeId,
            /// Its incarnation; earlier ones are over.
            incarnation: u64,
            /// The number.
            below: u64,
        },
        /// The shard's log is to be on these hosts.
        9 => Follow {
            /// The members of the cluster, later ones than were followed before.
            members: Members,
        },
    }
}

/// An entry of a shard's log.
#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    /// A leader begins: what leaders before it have not put into the log is void.
    Begin {
        /// Its ballot in the log.
        ballot: Ballot,
        /// Its node.
        leader: NodeId,
        /// Counts the beginnings of that leader.
        attempt: u64,
    },
    /// All changes of a burst.
    Step(Step),
}

kernel::record! {
    /// Changes that a leader made together.
    pub struct Step {
        /// The leader's.
        epoch: u64,
        /// Which of its steps. One that does not follow the one before is void.
        index: u64,
        /// In order.
        changes: Vec<Change>,
    }
}

impl Encode for Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { ballot, leader, attempt } => {
                out.push(1);
                ballot.encode(out);
                leader.encode(out);
                attempt.encode(out);
            }
            Self::Step(step) => {
                out.push(2);
                step.encode(out);
            }
        }
    }
}

impl Decode for Entry {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Ok(Self::Begin { ballot: input.field()?, leader: input.field()?, attempt: input.field()? }),
            2 => Step::decode(input).map(Self::Step),
            tag => Err(DecodeError::UnknownTag("entry of a shard's log", tag)),
        }
    }
}

kernel::messages! {
    /// What a replica is asked as it is.
    pub enum Question {
        /// What is there at a timestamp?
        1 => ValuesAt {
            /// The timestamp; the largest: what is newest.
            at: Timestamp,
            /// What to read.
            what: ReadSet,
        },
        /// What became of a call?
        2 => FateOf {
            /// The call.
            key: CallKey,
        },
    }
}

/// What is there.
#[derive(Clone, PartialEq, Debug)]
pub enum ReplicaValues {
    /// This.
    Found(FoundValues),
    /// Versions of that time are not retained any more.
    Collected,
}

kernel::record! {
    /// What a replica has.
    pub struct FoundValues {
        /// Keys, in the order in which they were asked for.
        rows: Vec<KeyRow>,
        /// Scans, in the order in which they were asked for.
        scans: Vec<ScannedRows>,
        /// The newest version that was looked at, deletions included: the answer holds from then on.
        newest: Timestamp,
        /// There was no room for all rows of keys; the rest is to be asked for again.
        is_short: bool,
    }
}

impl Encode for ReplicaValues {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Found(found) => {
                out.push(1);
                found.encode(out);
            }
            Self::Collected => out.push(2),
        }
    }
}

impl Decode for ReplicaValues {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => FoundValues::decode(input).map(Self::Found),
            2 => Ok(Self::Collected),
            tag => Err(DecodeError::UnknownTag("values", tag)),
        }
    }
}

impl Question {
    /// Reads a question from borrowed bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decoded(&Bytes::copy_from_slice(bytes))
    }
}
