//! MultiPaxos by roles.
//!
//! **Promised.** Commands of all clients are executed in one order on every replica, each exactly once; what was answered
//! survives any `f` crashes and the loss of everything that was not fsynced. Reads are linearizable, sequential or
//! eventual, by request. From: Whittaker et al., *Scaling Replicated State Machines with Compartmentalization*,
//! sections 2.3 (MultiPaxos), 3.1 to 3.6, 4.1 and 4.2.
//!
//! A write:
//! ```text
//! client      batcher      leader   proxy leader   acceptors    replicas    unbatcher
//!   | Submit     |            |           |            |            |           |
//!   |----------->|  Propose   |           |            |            |           |
//!   |            |----------->|  Assign   |            |            |           |
//!   |            |            |---------->|  Phase2a   |            |           |
//!   |            |            |           |----------->| (fsync)    |           |
//!   |            |            |           |  Phase2b   |            |           |
//!   |            |            |           |<-----------|            |           |
//!   |            |            |           |        Chosen           |           |
//!   |            |            |           |------------------------>|  Results  |
//!   |            |            | Executed                            |---------->|
//!   |            |            |<------------------------------------|           |
//!   | Results    |                            Done                              |
//!   |<------------------------------------------------------------------------- |
//! ```
//! A linearizable read: `Query` to a batcher, `PreRead` to a read quorum of acceptors, `PreReadAck` with how far each has
//! voted, `Read` to one replica, `Results` through the unbatcher. A sequential or eventual one skips the acceptors.
//!
//! An election: silence, `PreVote` to the acceptors (granted by those who hear no leader), `Phase1a` to a read quorum of
//! every configuration that matters, `Phase1b` in pages, then `Assign` of what was voted for and no-ops for the gaps.
//!
//! A leader at rest sends `Resting` to the acceptors instead of `Heartbeat`, and the others its pulse rarely. Each acceptor reports to the
//! leader role of its host whom it `Hears`, and to its replica that the leader rests (`LeaderRests`).
//!
//! A leader that makes room for another one: its host asks it to (`HandOver`), it resigns and reports that to the acceptors (`Resigned`),
//! and the one that is to lead (`Stand`) begins with `Phase1a`. Nobody waits for a silence.
//!
//! A change of membership: `Reconfigure`, a `Configure` value in slot `s`, in force from slot `s + window` on after
//! `Phase1a` to the new acceptors and `Seal` to the old ones.
//!
//! **Where we differ, and why.**
//! - Roles of one host exchange messages in memory, so that classic MultiPaxos is a placement and not another program.
//! - The leader prefers the proxy leader of its own host; spread over machines it takes them in turn.
//! - A replica whose host has an acceptor takes the value from its vote, so that co-located hosts send each value once.
//! - The unbatcher is the one where the client's connection ends, not a random one; the replica of that host answers,
//!   and a hash of the slot decides only where that host has none.
//! - Linearizable reads are asked for by the batcher for many clients at once (the paper's read batches), always.
//! - With several acceptor groups a read may wait for a slot that nobody has proposed; the replica then asks the leader
//!   to fill it (`Wanted`), so an idle system does not block.
//! - Leader election, truncation, snapshots, catch-up, exactly-once sessions and membership are not in the paper.
//!   Acceptors answer pre-votes, which keeps a half-connected candidate from unseating a leader that a quorum hears.

pub mod acceptor;
pub mod batcher;
pub mod client;
pub mod leader;
pub mod messages;
pub mod proxy_leader;
pub mod replica;
pub mod unbatcher;

use crate::configuration::Configurations;
use kernel::{Family, NodeId, StateMachine};
use parts::{Ballot, Slot};

pub use client::{Call, Outcome, Refusal};

kernel::record! {
    /// What a leader sends everybody, again and again.
    pub struct Pulse {
        /// Its ballot.
        ballot: Ballot,
        /// Who plays which role.
        configurations: Configurations,
        /// Some replica has executed everything below.
        executed: Slot,
        /// Enough replicas have durable snapshots of everything below.
        truncate_below: Slot,
        /// Replicas and proxy leaders that the leader has heard of late: those to turn to.
        alive: Vec<NodeId>,
    }
}

/// The family of MultiPaxos roles.
#[derive(Clone, Copy, Debug)]
pub struct Paxos;

impl Family for Paxos {
    type Message = Message;
    type Request = Call;
    type Response = Outcome;
}

kernel::family! {
    /// Everything that travels between MultiPaxos roles. Tags: 1 batcher, 2 leader, 3 proxy leader, 4 acceptor,
    /// 5 replica, 6 unbatcher, 7 client.
    messages Message;
    /// Any MultiPaxos role.
    #[derive(Clone, Debug)]
    members Member [S: StateMachine] [S] of Paxos {
        /// Gathers commands and reads.
        1 => Batcher(messages::batcher::BatcherIn, batcher::Batcher, "batcher"),
        /// Orders commands.
        2 => Leader(messages::leader::LeaderIn, leader::Leader, "leader"),
        /// Broadcasts proposals.
        3 => ProxyLeader(messages::proxy_leader::ProxyLeaderIn, proxy_leader::ProxyLeader, "proxy_leader"),
        /// Votes.
        4 => Acceptor(messages::acceptor::AcceptorIn, acceptor::Acceptor, "acceptor"),
        /// Executes.
        5 => Replica(messages::replica::ReplicaIn, replica::Replica<S>, "replica"),
        /// Answers clients.
        6 => Unbatcher(messages::unbatcher::UnbatcherIn, unbatcher::Unbatcher, "unbatcher"),
        /// Asks.
        7 => Client(messages::client::ClientIn, client::CommandClient<Paxos>, "client"),
    }
}
