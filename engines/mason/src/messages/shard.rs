//! What a shard's server can be sent.

use crate::MasonMessage;
use crate::order::{ConsistentCut, Group, Gsn, Number, Placed, Space};
use crate::proxy::delivery::Run;
use kernel::{BlobId, Bytes};
use paxos::Members;

kernel::messages! {
    /// Everything a shard's server can be sent.
    pub enum ShardIn in MasonMessage::Shard {
        /// From a gateway: answer these, in order, when every operation of this space with a global sequence number up to `at_least` is
        /// executed, as is everything that this host's proxies had handed over when this arrived.
        1 => ReadShard {
            /// The least global sequence number.
            at_least: Gsn,
            /// The reads.
            reads: Vec<ShardQuery>,
            /// The version of the shard map by which this space was chosen; none where it does not matter.
            shard_map: Option<u64>,
            /// For each read the largest answer that the reader has room for, in bytes; larger ones are withheld. None: any.
            limits: Option<Vec<u64>>,
        },
        /// From a gateway: it starts; report the progress to it from now on, and forget what it watched in an earlier incarnation.
        2 => Attach {},
        /// From a proxy's replica: operations of a group, with their numbers. (3 was one operation a row, 11 did not say
        /// whether there is more.)
        20 => Deliver {
            /// The group.
            group: Group,
            /// The operations.
            runs: Vec<Run>,
            /// What the sequencer knew after the batch they were in.
            cut: Option<ConsistentCut>,
            /// It is a page of what was lacking, and there is another behind it.
            more: bool,
        },
        /// From a proxy's replica, or another participant: what was asked for is gone; take another server's snapshot.
        4 => ShardBehind {
            /// Enough servers have durable snapshots of everything below.
            durable: Number,
        },
        /// From a proxy of this host: numbers up to `through` are assigned.
        5 => Reach {
            /// The highest number that is known to be assigned.
            through: Number,
        },
        /// From another participant of an operation: what it needs to know of that shard. (6 came one at a time.)
        21 => Inputs {
            /// The operation, by its number in the receiver's space.
            number: Number,
            /// The sender's space.
            space: Space,
            /// What the service wrote.
            inputs: Bytes,
            /// The last of a page: there are inputs for later operations, too, or more for this one.
            more: bool,
            /// Which part it is of what the sender says of the operation, and of how many.
            part: Option<(u32, u32)>,
        },
        /// From another participant: send me your inputs for this operation again, and a page of those for later ones.
        7 => WantInputs {
            /// The operation, by its number in the receiver's space.
            number: Number,
            /// And by its number in the sender's.
            wanted_at: Number,
            /// The first part of those for this operation that is wanted.
            part: Option<u32>,
        },
        /// From a server of the same shard that lacks too much: give me a chunk of a snapshot.
        8 => PullShardSnapshot {
            /// Names the transfer.
            transfer: u64,
            /// Which chunk.
            index: u64,
        },
        /// From a server of the same shard: a chunk of its snapshot.
        9 => ShardSnapshotChunk {
            /// Names the transfer.
            transfer: u64,
            /// The snapshot holds everything below this number.
            below: Number,
            /// Which chunk.
            index: u64,
            /// Its contents.
            chunk: Bytes,
            /// No chunk follows.
            last: bool,
        },
        /// From a proxy's replica of this host: enough servers have durable snapshots of everything below, and inputs for it need not
        /// be retained.
        10 => Settled {
            /// Their space, and the number.
            below: Placed,
        },
        /// From a proxy's replica of this host: the deployment's hosts are others.
        12 => Moved {
            /// Who they are.
            members: Members,
        },
        /// From the leader of a group that is to be taken out: what it assigned waits for a durable snapshot.
        13 => Hurry {},
        /// From another shard's server of this host: what readers watch there is this shard's from this shard map on.
        22 => Watched {
            /// The version of the shard map.
            version: u64,
            /// The sender's space.
            space: Space,
            /// What the service wrote; empty if nothing is watched.
            watches: Bytes,
        },
        /// From another shard's server of this host: I wait for what is watched there.
        23 => WantWatched {
            /// The version of the shard map.
            version: u64,
            /// The sender's space.
            space: Space,
        },
        /// From a server of the same shard that lacks a blob: give me a part of it.
        14 => PullBlob {
            /// Which.
            id: BlobId,
            /// Bytes from its start.
            offset: u64,
            /// How many at most.
            bytes: u64,
        },
        /// From a server of the same shard: a part of a blob.
        15 => BlobPage {
            /// Which.
            id: BlobId,
            /// Bytes from its start.
            offset: u64,
            /// Its contents from there on.
            page: Bytes,
        },
        /// From a server of the same shard: which of these does the archive have?
        16 => WhetherArchived {
            /// Blobs that wait for it.
            blobs: Vec<BlobId>,
        },
        /// From a server of the same shard: the archive has these.
        17 => WereArchived {
            /// Of those that were asked about.
            blobs: Vec<BlobId>,
        },
    }
}

kernel::record! {
    /// One read.
    pub struct ShardQuery {
        /// The reader's number for it.
        tag: u64,
        /// What is read, in the service's encoding.
        body: Bytes,
    }
}
