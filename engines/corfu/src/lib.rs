//! CORFU': a shared log whose clients do the work.
//!
//! **Promised.** A log position holds one entry for good: what was appended, or junk. What was acknowledged stays while one server
//! of each chain keeps its journal; an append that began after another was acknowledged has the higher position; a read
//! returns what is at a position, junk, or that nothing is there yet, and a later read never takes that back. From: Balakrishnan
//! et al., *CORFU: A Shared Log Design for Flash Clusters*, as Mason's paper runs it for a baseline (sections 6.2 and 7.2).
//!
//! ```text
//! client            sequencer      chain: head        tail
//!   |     Next          |            |                 |
//!   |------------------>|            |                 |
//!   |<------- Token     |            |                 |
//!   | Write                          | (fsync)         |
//!   |------------------------------->|                 |
//!   |<-------------------- Written   |                 |
//!   | Write                                            | (fsync)
//!   |------------------------------------------------->|
//!   |<-------------------------------------- Written   |
//! ```
//! Positions go round over the chains. A **read** asks the tail. What is not there may be half written or a hole: then the whole
//! chain is asked, what its head has is copied down, and a position that the sequencer has given away and nobody writes is
//! filled with junk after a while.
//!
//! **When a sequencer or a storage server fails** an auxiliary seals the storage servers for the next epoch (they refuse the old
//! one from then on, and say how far they are written: the slow check), leaves out who is silent, and has the auxiliaries
//! agree on the next [`Projection`]; a majority of them decides each epoch once (single-decree Paxos).
//!
//! **Where we differ, and why.**
//! - The paper leaves the agreement on projections to "an auxiliary"; ours are roles of their own, and they also look after failures.
//!   Every server of a new projection is sealed before the projection is proposed, so that no write of the old epoch can end.
//! - An append whose position was sealed under it asks the new head for its entry before it takes another position: its entry is in
//!   the log once, whatever happens. Entries carry who wrote them for that.
//! - A sequencer journals the epoch that it serves. One that restarts does not serve that epoch again, where it would give away
//!   positions below acknowledged ones.
//! - "Nothing is there" is said only after every server of the chain said so in the epoch in force; a tail that was left out of the
//!   projection without knowing would otherwise deny what was acknowledged.
//! - Positions are trimmed from the beginning only, and servers drop their oldest entries beyond what they may hold. An append whose
//!   place is gone by the time that it is asked for takes another one: its entry is in the log once as far as anybody can read.
//! - A server that was left out does not come back into its chain: this is the baseline, and the log to use is the one over Mason.
#![forbid(unsafe_code)]

pub mod auxiliary;
pub mod client;
mod projection;
pub mod sequencer;
pub mod storage;

pub use auxiliary::{Auxiliary, Newcomer};
pub use client::{Client, Extent, Request, Response};
pub use projection::{Data, Entry, Epoch, Life, Lived, LogPosition, Parameters, Projection};
pub use sequencer::Sequencer;
pub use storage::StorageServer;

use auxiliary::AuxiliaryIn;
use client::ClientIn;
use kernel::Family;
use sequencer::SequencerIn;
use storage::StorageIn;

/// The family.
#[derive(Debug)]
pub struct Corfu;

impl Family for Corfu {
    type Message = Message;
    type Request = Request;
    type Response = Response;
}

kernel::family! {
    /// Everything that travels between the nodes, by who receives it.
    messages Message;
    /// Any role.
    members Member [] [] of Corfu {
        /// Gives positions away.
        1 => Sequencer(SequencerIn, Sequencer, "sequencer"),
        /// Keeps entries.
        2 => Storage(StorageIn, StorageServer, "storage server"),
        /// Decides who serves.
        3 => Auxiliary(AuxiliaryIn, Auxiliary, "auxiliary"),
        /// Appends and reads.
        4 => Client(ClientIn, Client, "client"),
    }
}
