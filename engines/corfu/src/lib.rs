//! CORFU': a shared log whose clients do the work.
//!
//! **Promised.** A log position holds one entry for good: what was appended, or junk. What was acknowledged stays while one server
//! of each chain that is in the projection keeps its journal; an append that began after another was acknowledged has the higher position;
//! a read returns what is at a position, junk, or that nothing is there yet, and a later read never takes that back. From: Balakrishnan
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
//! **When a server comes back**, or a spare one is there, it copies its chain's last server in the background ([`storage`] has the
//! ladder), and when it is close an auxiliary begins a change: the chain is sealed, the learner copies the rest, says so when its
//! disk has it, and is proposed behind the server that it copied.
//!
//! **Why a learner may serve.** Of a chain in force each server has, position by position, what the ones behind it have: clients
//! write from the head to the tail, write-once decides at the head, and a server changes nothing while it is sealed and not asked to
//! serve. A server that stays keeps that order. So the last of those who stay, *t*, has all that was acknowledged, and a server with
//! exactly what *t* has may stand behind it. That a learner has exactly that rests on four things:
//! 1. *t* only adds to its entries (and trims) from the moment that its projection was decided until another one is. The learner
//!    compares all positions with *t*, taking what it lacks and dropping what it has otherwise, and then follows *t*'s journal from
//!    the length that it had when the comparison began: what was written below a page that was compared before is in there.
//! 2. It says that it is whole when *t* has answered, sealed for the epoch to come and not serving it: there is no more to come.
//!    What *t* answers is durable there, and what the learner says waits for its own disk.
//! 3. Who stays is settled before learners are asked to finish, and a copy is of one epoch and one source. If another
//!    auxiliary's projection is decided instead, the learner is not in it, and begins anew.
//! 4. It serves nobody before it is notified of a decided projection that means its journal. What it had before may be what no client
//!    can ask for any more: it has refused all epochs in which it served since before it began to copy.
//!
//! **Who is meant.** A node draws a number when it starts with an empty journal, its [`JournalId`]. A projection names the incarnations of
//! its servers, its sequencer and all auxiliaries, and what another incarnation says does not count: a storage server with an empty disk is
//! a learner, a sequencer does not begin what it may have served, and an auxiliary has no vote on what follows a projection that
//! does not mean it. The first projection, which everybody knows from the beginning, names nobody, and nobody serves in it: the log's
//! bootstrap needs everybody once.
//!
//! **Under churn.** A server waits before it is let in again, twice as long if it did not stay; a change does not wait for a learner
//! for long; and auxiliaries suspect less readily each time that somebody they had taken for failed was there all the time.
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
//!   position is gone by the time that it is asked for takes another one: its entry is in the log once as far as anybody can read.
//! - CORFU's projections map ranges of positions to sets of drives, so that new positions may be stored elsewhere than old ones. Ours
//!   have one map for the whole log: a learner copies everything that is left, before it is in the projection.
#![forbid(unsafe_code)]

pub mod auxiliary;
pub mod client;
pub mod messages;
pub mod planted;
mod projection;
pub mod sequencer;
pub mod storage;

pub use auxiliary::{Auxiliary, Learner};
pub use client::{Client, CorfuRequest, CorfuResponse, Extent};
pub use projection::{Data, Entry, Epoch, JournalId, LogPosition, NodeJournal, Parameters, Projection};
pub use sequencer::Sequencer;
pub use storage::StorageServer;

use kernel::Family;
use messages::auxiliary::AuxiliaryIn;
use messages::client::ClientIn;
use messages::sequencer::SequencerIn;
use messages::storage::StorageIn;

/// The family.
#[derive(Debug)]
pub struct Corfu;

impl Family for Corfu {
    type Message = CorfuMessage;
    type Request = CorfuRequest;
    type Response = CorfuResponse;
}

kernel::family! {
    /// Everything that travels between the nodes, by who receives it.
    messages CorfuMessage;
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
