//! Mason: a scalable, contiguous multi-sequence, and the frame of services that execute it on shards.
//!
//! **Promised.** Every operation gets one number in each space it concerns; every number of a space gets exactly one operation,
//! a no-op if need be; where operations share spaces the numbers agree on their order, and the order respects real time. What
//! was answered survives the loss of a minority of every group and of everything that was not fsynced. From: Hodsdon et al.,
//! *Mason: Scalable, Contiguous Sequencing for Building Consistent Services*, sections 3 to 6 and appendix A.
//!
//! ```text
//! gateway      proxy (leader)     sequencer     log (paxos)      shards (each host)
//!   | Submit        |                 |              |                  |
//!   |-------------->|    Allocate     |              |                  |
//!   |               |---------------->|              |                  |
//!   |               |    Allocated    |              |                  |
//!   |               |<----------------|              |                  |
//!   |               | Batch (operations, numbers)    |                  |
//!   |               |------------------------------->| (fsync, chosen)  |
//!   |               |                                |     Deliver      |
//!   |               |            Applied             |----------------->| executes in order
//!   |               |<-------------------------------|                  |
//!   |                            Answers                                |
//!   |<------------------------------------------------------------------|
//! ```
//! A linearizable read: `Barrier` to a proxy of every group, which reads its log (leaderless, by its acceptors) for how far
//! numbers are assigned and notifies the shards of its host (`Reach`); then `Read` to a shard's server there.
//!
//! **Where we differ, and why.**
//! - What a log has chosen is handed to the shards by the replica of each host, so operations travel to the shards' servers once,
//!   as part of being replicated; the paper's stub sends them a second time.
//! - A proxy puts batches into its log in the order of its requests, under the epoch of its leader and of the sequencer, and the log
//!   ignores a batch that does not follow the one before. The paper replicates assignments as they come and checks the sequencer
//!   once, when the answer arrives: an origin's later operation could then survive without its earlier one, and a sealed
//!   sequencer's answer could be assigned after the seal.
//! - A new leader does not probe request by request with a count of nothing: the sequencer reports what it allocated after the
//!   last request in the log, and refuses the leaders before (Algorithm 3).
//! - The index of the active sequencer is an explicit epoch, of which the largest counts; a recovery may be asked for any number
//!   of times (Algorithm 2, line 38, skips a sequencer then).
//! - Reads are no operations of the sequence. The paper's peeks at the sequencer would need a proof that it is not deposed; the logs
//!   know what was answered, and asking a read quorum of their acceptors needs no such proof.
//! - A group alone, with its log as the order, needs no sequencer: the same roles are the paper's RSMKeeper then.
#![forbid(unsafe_code)]

pub mod deployment;
mod family;
pub mod messages;
pub mod order;
pub mod planted;
pub mod proxy;
mod questions;
pub mod sequencer;
pub mod service;
pub mod shard;
mod slots;
pub mod topology;
pub mod view;

pub use deployment::{Deployment, HostParts};
pub use family::{GatewayRole, Mason, MasonMember, MasonMessage};
pub use messages::client;
pub use order::{ConsistentCut, Group, GroupTime, Gsn, Number, Operation, Order, Placed, Range, Space};
pub use paxos::{LogRole, Members};
pub use questions::{Questions, To};
pub use service::{Archived, BlobBacked, BlobRef, Resharded, Shard, ShardOut, Stub, StubOut, Verdict};
pub use slots::{GATEWAY, Part, Post, SLOTS_PER_DEPLOYMENT};
pub use topology::{Layout, MasonParameters, ProxyGroup, ShardMap, Topology};
