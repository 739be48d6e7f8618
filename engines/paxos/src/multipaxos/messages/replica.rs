//! What a replica can be sent.

use crate::multipaxos::{Message, Pulse};
use crate::value::{Commands, Value};
use kernel::{Bytes, NodeId};
use parts::{Ballot, SessionId, Slot};

kernel::record! {
    /// Reads of one client.
    pub struct ReadGroup {
        /// Its connection.
        client: NodeId,
        /// Its session.
        session: SessionId,
        /// The reads.
        queries: Commands,
    }
}

kernel::messages! {
    /// Everything a replica can be sent.
    pub enum ReplicaIn in Message::Replica {
        /// From a proxy leader: this slot's value is chosen.
        1 => Chosen {
            /// In which ballot.
            ballot: Ballot,
            /// The slot.
            slot: Slot,
            /// The value; none where this host's acceptor was asked to vote for it.
            value: Option<Value>,
        },
        /// From this host's acceptor: it voted.
        2 => Voted {
            /// In which ballot.
            ballot: Ballot,
            /// For which slot.
            slot: Slot,
            /// The value.
            value: Value,
        },
        /// From a batcher: answer these when you have executed everything below `through`.
        3 => ReadBatch {
            /// The slot after the last one the reads must see.
            through: Slot,
            /// Where the answers go.
            unbatcher: NodeId,
            /// The reads.
            reads: Vec<ReadGroup>,
        },
        /// From a peer that lags: what was chosen from `from` on?
        4 => Fetch {
            /// The first slot it lacks.
            from: Slot,
        },
        /// From a peer: chosen values, in order.
        5 => ChosenValues {
            /// The slot of the first.
            from: Slot,
            /// The values.
            values: Vec<Value>,
            /// How far the peer has executed.
            executed: Slot,
        },
        /// From a peer: what you lack is gone here; take a snapshot.
        6 => Behind {
            /// How far the peer has executed.
            executed: Slot,
        },
        /// From a peer that takes a snapshot: give me a chunk.
        7 => PullSnapshot {
            /// Names the transfer.
            transfer: u64,
            /// Which chunk.
            index: u64,
        },
        /// From a peer: a chunk of its snapshot.
        8 => SnapshotChunk {
            /// Names the transfer.
            transfer: u64,
            /// The snapshot holds everything below this slot.
            through: Slot,
            /// Which chunk.
            index: u64,
            /// Its contents; the first is the header.
            chunk: Bytes,
            /// No chunk follows.
            last: bool,
        },
        /// From the leader.
        9 => Heartbeat {
            /// What it sends everybody.
            pulse: Pulse,
        },
        /// From a leader: report your configurations.
        10 => Describe {},
        /// From a peer: how I stand after a slot that all compare.
        11 => Checkpoint {
            /// Everything below is executed.
            executed: Slot,
            /// What was executed, and what was answered.
            digest: u64,
        },
        /// From this host's acceptor: whether the leader rests, and is heard, whenever that changes.
        13 => LeaderRests {
            /// The leader; none if it does not rest, or is silent.
            leader: Option<Ballot>,
        },
        /// From this host's acceptor: what this replica had reported to it as executed. An empty page ends it.
        12 => Resumed {
            /// The slot of the first.
            from: Slot,
            /// The values, in order.
            values: Vec<Value>,
        },
    }
}
