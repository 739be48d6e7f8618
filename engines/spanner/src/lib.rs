//! Spanner and Spanner-RSS: transactions over shards, each a replicated log, placed on one axis of time by clocks whose error is
//! bounded.
//!
//! **Promised.** Read-write transactions are strictly serializable, and each lies on the axis at a commit timestamp between its true start
//! and its true end. Read-only transactions are what their level says: strictly serializable, regular sequential serializable (RSS),
//! process-ordered, or the state at a timestamp. What was answered survives the loss of a minority of every shard's replicas and of
//! everything that was not fsynced. From: Helt et al., *Regular Sequential Serializability and Regular Sequential Consistency*,
//! section 5 and appendix D.1.
//!
//! A read-write transaction of two shards; `gateway` is the paper's client, and each shard is its leader with its log (paxos):
//! ```text
//! gateway        coordinator        log       participant       log
//!   | ReadLocked      |               |            |              |
//!   |---------------->| (read locks)  |            |              |
//!   | LockedValues    |               |            |              |
//!   |<----------------|               |            |              |
//!   | PrepareTxn      |               |            |              |
//!   |---------------->| (write locks) |            |              |
//!   |--------------------------------------------->| (write locks, t_p)
//!   |                 |               |            |  Prepare     |
//!   |                 |               |            |------------->| (fsync, chosen)
//!   |                 |       DidPrepare(t_p, t_ee)               |
//!   |                 |<---------------------------|              |
//!   |                 | Decide(t_c)   |            |              |
//!   |                 |-------------->| (fsync, chosen)           |
//!   | Ended(t_c, t_ee)|               |            |              |
//!   |<----------------|          Decided           |              |
//!   | (t_c and t_ee   |--------------------------->|  Conclude    |
//!   |  have passed)   |               |            |------------->|
//!   |                 |       DidConclude          |              |
//!   |                 |<---------------------------|              |
//! ```
//! One shard alone puts one entry into its log: `CommitAlone`. Locks are held until the commit timestamp has surely passed.
//!
//! A read-only transaction: `ReadAt(t_read, t_min)` to each shard's leader, `FastReply` with the values and what was skipped, and
//! `SlowReply` when that has ended (Algorithms 1 and 2).
//!
//! **Where we differ, and why.**
//! - No lease by time. What a leader promises readers lies at or below a *horizon* that its log has, and its successor assigns
//!   nothing at or below it: clocks matter for real time, never for agreement. A deposed leader can answer nothing wrong.
//! - The client is a gateway on each host: users need no clock, and their session is a token, the t_min that every answer carries.
//! - All changes of a burst are one entry of the log, and entries of a leader follow one another: one that does not is void.
//! - A participant shows nothing of a commit before its timestamp has surely passed by its own clock. The paper says so of the
//!   coordinator alone.
//! - A read-only transaction is placed at max(t_snap, t_min, t_read - L); the paper starts t_snap at 0 (Alg. 1, line 15), which may lie
//!   below what its session has seen, and below what a fence has made sure of: the session's next read, at another level, would miss that.
//! - `t_ee - t_c <= L` holds because the commit timestamp is raised, not because L was chosen large.
//! - A scan never skips a prepared transaction: what it skipped could change which rows its limit lets through.
//! - Wound-wait has a fourth party: a prepared transaction cannot be wounded where it is prepared, so its coordinator is asked to abort
//!   it. Without that, it and an older one that waits for it could wait for each other through two shards.
//! - A coordinator logs an end before it sends it to its gateway or a participant, aborts too: a late message finds the end there.
#![forbid(unsafe_code)]

pub mod deployment;
mod directory;
mod family;
pub mod gateway;
pub mod machine;
pub mod messages;
mod parameters;
pub mod placement;
pub mod planted;
pub mod shard;
mod txn;

pub use deployment::{SpannerDeployment, SpannerSlot};
pub use directory::Directory;
pub use family::{Spanner, SpannerMember, SpannerMessage};
pub use machine::ShardMachine;
pub use parameters::SpannerParameters;
pub use txn::{CallRef, Fate, PreparedTxn, Priority, ReadSet, ShardId, TrueTime, TxnId, shard_of};
