//! What a gateway can be sent.

use crate::SpannerMessage;
use crate::messages::shard::LockedUnder;
use crate::txn::{Fate, ShardId, TxnId};
use kernel::Bytes;
use wire::txn::{KeyWrite, Timestamp};

kernel::messages! {
    /// Everything a gateway can be sent by shards.
    pub enum GatewayIn in SpannerMessage::Gateway {
        /// From a shard's leader: what was read under locks.
        1 => LockedValues {
            /// The transaction.
            txn: TxnId,
            /// The shard.
            shard: ShardId,
            /// What the transaction holds there now.
            held: LockedUnder,
            /// What is there, as [`crate::machine::entry::ReplicaValues`].
            values: Bytes,
        },
        /// From a shard's leader: the transaction holds no locks there any more, and is not prepared.
        2 => LostLocks {
            /// The transaction.
            txn: TxnId,
            /// The shard.
            shard: ShardId,
            /// Too much is waiting there: try again later.
            busy: bool,
        },
        /// From a coordinator: the transaction has ended.
        /// Promise: its log has the decision.
        3 => Ended {
            /// The transaction.
            txn: TxnId,
            /// The shard.
            shard: ShardId,
            /// How.
            fate: Fate,
            /// The client ends no earlier than this.
            t_ee: Timestamp,
        },
        /// From a shard's leader: what was read at a timestamp (the paper's ROFastReply).
        4 => FastReply {
            /// The gateway's number for the read.
            id: u64,
            /// The shard.
            shard: ShardId,
            /// What is there, as [`crate::machine::entry::ReplicaValues`].
            values: Bytes,
            /// Prepared transactions that were skipped.
            skipped: Vec<SkippedTxn>,
        },
        /// From a shard's leader: a transaction that was skipped has ended (the paper's ROSlowReply).
        5 => SlowReply {
            /// The gateway's number for the read.
            id: u64,
            /// The shard.
            shard: ShardId,
            /// The transaction.
            txn: TxnId,
            /// How.
            fate: Fate,
        },
        /// From a shard: the read is not made.
        6 => ReadRefused {
            /// The gateway's number for the read.
            id: u64,
            /// The shard.
            shard: ShardId,
            /// Why.
            why: ReadRefusal,
        },
        /// From a shard's role on this host: how far its replica may be read.
        7 => ReplicaSafe {
            /// The shard.
            shard: ShardId,
            /// The timestamp.
            safe: Timestamp,
        },
        /// From a shard's leader: what became of a user's commit.
        8 => FateFound {
            /// The gateway's number for the question.
            id: u64,
            /// The shard.
            shard: ShardId,
            /// The commit timestamp.
            committed: Option<Timestamp>,
        },
    }
}

kernel::record! {
    /// A prepared transaction that a read has skipped, with its writes that the read is about: if another shard shows that it was committed,
    /// the reader need not wait for this one.
    pub struct SkippedTxn {
        /// The transaction.
        txn: TxnId,
        /// It will commit at this or later.
        t_p: Timestamp,
        /// Its writes.
        writes: Vec<KeyWrite>,
    }
}

kernel::number! {
    /// Why a read is not made.
    pub struct ReadRefusal(u8);
}

impl ReadRefusal {
    /// Too much is waiting.
    pub const BUSY: Self = Self(1);
    /// The timestamp is further in the future than clocks may differ.
    pub const FROM_THE_FUTURE: Self = Self(2);
}
