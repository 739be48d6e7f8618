//! FuzzyLog: a partially ordered log (the paper's Dapple).
//!
//! **Promised.** A node is appended to one or several *colours*, each a totally ordered chain of nodes. What was acknowledged is on the disks
//! of all servers of the chain in force, and at least of `replicas_min`. An append is executed once under its user's number, in all its
//! colours or in none for good. Appends and syncs of one colour are linearizable. All appends, syncs and snapshots are serializable,
//! in an order that each user's own order agrees with; over several colours that order need not be the one of real time, unless [`FuzzyOrder::Strict`] is asked for. From: Lockerman et al., *The
//! FuzzyLog: A Partially Ordered Shared Log*, OSDI 2018.
//!
//! ```text
//! client              head            tail         another partition
//!   | Submit(Append)    |               |                |
//!   |------------------>| Forward       |                |
//!   |                   |-------------->|                |
//!   |                   | DurableThrough|                |
//!   |                   |-------------->|                |
//!   |<-------------------------- CommandDone             |
//!   |
//!   | Submit(ProposeTime)|               |                |   to several partitions: phase 1
//!   |------------------>|---...-------->|                |
//!   |--------------------------------------------------->|
//!   |<----------- CommandDone(Proposed), of each         |
//!   | Submit(Fix)                                        |   phase 2, as long
//!   |
//!   | Sync, to all servers of the chain |                |
//!   |---------------------------------->|                |
//!   |<-------------------------- Synced |                |
//!   | Play, to any server               |                |
//!   |------------------>|               |                |
//!   |<---------NodesPage|               |                |
//! ```
//! A partition ([`partition`]) is a deterministic state machine. Its commands stand in a row, which chain servers ([`chain_server`])
//! replicate; what a server applies is on the disks of all of them. Clients ([`client`]) order appends to several partitions by Skeen's
//! algorithm, and finish what others have left unfinished. Directors ([`director`]) decide by a replicated log who serves which
//! partition.
//!
//! **Where we differ, and why.**
//! - Servers have disks where the paper's have memory with batteries. A head forwards before its fsync, all disks of a chain write at
//!   the same time, and the tail answers when the word that all of them have it comes down.
//! - A server applies only what is stable, so nothing that was applied is ever taken back, and any server may serve plays.
//! - The paper asks the tail for a snapshot of a log. A tail that was left out without knowing would answer wrongly; ours asks all servers of the chain, and needs no clock.
//! - Everything that decides an answer later is in the row: queue, proposals, owners, users' clients. The paper leaves chains'
//!   reconfiguration open.
//! - The paper fences a client by invalidating its leases. Ours replaces the owner of one append, by a command; leases are time-outs
//!   that decide when somebody may take over, and a wrong one costs messages.
//! - A partition proposes one time for an append, no matter who asks; so everybody who has all proposals comes to the same time. Owners decide who goes on
//!   and cleans up.
//! - An append to one partition need not wait for a pending one of other users: see [`partition`].
//! - In the strict order ([`FuzzyOrder::Strict`]) times are those of wall clocks and are waited out, as Spanner does; the paper has none.
//! - A snapshot of several colours is ordered as an append is, and stores nothing.
//! - Appends that come together at a client role are one command of the row, each with its own name and outcome.
//! - Backups, which the paper has none of: a cut is a snapshot in all partitions, nodes are scanned below its time, and what is restored
//!   comes into view in all partitions at one time.
//! - Other regions' nodes are placed into a colour's own chain when what they depend on is there. The paper has a log for each region, which
//!   clients merge.
//!
//! - Colours move between partitions while users append, and partitions are added and removed: see [`partition`].
//!
//! **Not built here**: nodes of a region got from a third one, appends through another region.
#![forbid(unsafe_code)]

pub mod chain_server;
pub mod client;
mod deployment;
pub mod director;
mod family;
mod map;
pub mod messages;
mod parameters;
pub mod partition;
pub mod planted;
mod projection;
mod terms;

pub use chain_server::{ChainServer, OtherRegion, RegionPlan, SourceSeen};
pub use client::{
    AppendCall, AppendOutcome, CountLogsCall, CutCall, FindLogsCall, FuzzyClient, FuzzyRefusal, FuzzyRequest,
    FuzzyResponse, OpenCall, PassedWaits, PlayCall, PlayOutcome, PlayedPage, RestoreCall, ScanCall,
    SnapshotCall, SyncCall, TrimCall,
};
pub use deployment::{FuzzyDeployment, FuzzySlot};
pub use director::{Director, DirectorMachine};
pub use family::{FuzzyLog, FuzzyMember, FuzzyMessage};
pub use map::{
    BeginMove, BeginPartition, ColourMap, ColourMove, ColourMoves, EmptyPartition, EndMove, EndPartition,
    MOVE_COLOURS_MAX, MOVED_MAX, MapDecision, MoveFlaw, MovedColour, PartitionFlaw, TakeMoveBack,
};
pub use parameters::{FuzzyOrder, FuzzyParameters};
pub use partition::{
    Across, ColourNode, NodeSource, PartitionState, ScanPage, ScannedNode, SeveralStage, SpanDigest,
};
pub use projection::{CHAIN_MAX, ChainMember, ChainProjection};
pub use terms::{
    AppendId, AppendTime, ChainEpoch, ChainJournal, Colour, ColourPlacement, ColourPlan, Content,
    ContentFlaw, Edge, MapVersion, NodePosition, Owner, PARTITIONS_MAX, PartitionId, RegionId, RestoreId,
    RowIndex, ScanPoint,
};
