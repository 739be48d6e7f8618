//! What a leader can be sent.

use crate::configuration::{Configuration, Configurations};
use crate::multipaxos::{Message, Pulse};
use crate::value::Value;
use kernel::NodeId;
use parts::{Ballot, Slot};
use std::sync::Arc;

kernel::record! {
    /// One vote of an acceptor.
    pub struct ReportedVote {
        /// The slot.
        slot: Slot,
        /// In which ballot it voted last.
        ballot: Ballot,
        /// For what.
        value: Value,
    }
}

kernel::messages! {
    /// Everything a leader can be sent.
    pub enum LeaderIn in Message::Leader {
        /// From a batcher: give this a slot.
        1 => Propose {
            /// The batch.
            value: Value,
        },
        /// From an acceptor, to a candidate.
        2 => PreVoteAck {
            /// The ballot asked about.
            ballot: Ballot,
            /// True if it hears no leader and has promised nothing higher.
            granted: bool,
            /// The highest ballot it has promised.
            promised: Ballot,
        },
        /// From an acceptor: promised, durably; a page of votes.
        /// Promise: it votes in no ballot below this one.
        3 => Phase1b {
            /// The ballot promised.
            ballot: Ballot,
            /// The question.
            inquiry: u64,
            /// Votes below are forgotten: chosen, and in snapshots.
            truncated_below: Slot,
            /// The votes in order.
            votes: Vec<ReportedVote>,
            /// Where the next page starts.
            more: Option<Slot>,
        },
        /// From an acceptor or a proxy leader: a higher ballot is promised.
        4 => Nack {
            /// That ballot.
            promised: Ballot,
        },
        /// From the leader, to the others who may lead.
        5 => Heartbeat {
            /// What it sends everybody.
            pulse: Pulse,
        },
        /// From an acceptor: I hear you.
        6 => HeartbeatAck {
            /// The ballot heard.
            ballot: Ballot,
            /// It understands how a leader rests.
            knows_rest: Option<bool>,
        },
        /// From a replica.
        7 => Executed {
            /// The next slot it will execute.
            executed: Slot,
            /// The latest configuration it has executed.
            version: u64,
            /// A durable snapshot holds everything below.
            snapshot: Slot,
            /// Its configurations, when it was asked or time has passed.
            configurations: Option<Configurations>,
            /// The leader it has heard of late.
            hears: Option<Ballot>,
        },
        /// From a replica: a read waits for everything below to be executed; fill what is idle.
        8 => Wanted {
            /// The slot after the last one wanted.
            through: Slot,
        },
        /// From a batcher: change the cluster.
        9 => ChangeConfiguration {
            /// The configuration wanted.
            configuration: Arc<Configuration>,
        },
        /// From an acceptor: older configurations' reads are refused, durably.
        /// Promise: it answers no read of an older configuration.
        10 => Sealed {
            /// The leader's ballot.
            ballot: Ballot,
            /// The configuration sealed for.
            version: u64,
        },
        /// From an acceptor: have me counted. A node that does not lead hands it on to the leader: a machine that joins knows
        /// some members, and need not know the one that leads.
        11 => Enlist {
            /// Drawn when its journal began.
            incarnation: u64,
            /// Who is to be counted, if another hands it on.
            acceptor: Option<NodeId>,
        },
        /// From a proxy leader: I hear you.
        13 => ProxyAlive {},
        /// From an acceptor, to a candidate: what you know of the cluster governs nothing any more.
        14 => Known {
            /// What the acceptor knows.
            configurations: Configurations,
        },
        /// From the role that proposes on this host: let another one lead, if it may.
        15 => HandOver {
            /// Who is to lead.
            to: NodeId,
        },
        /// From a leader that has resigned: stand now.
        16 => Stand {
            /// The ballot in which it led.
            ballot: Ballot,
        },
        /// From the acceptor of this host: whom it hears, whenever that changes. It is heard until the acceptor reports otherwise.
        17 => Hears {
            /// The leader; none after an election timeout of silence.
            leader: Option<Ballot>,
        },
        /// From a replica: no other replica gives me what was chosen from `from` on; ask the acceptors.
        12 => Stuck {
            /// The first slot it lacks.
            from: Slot,
            /// Who governs the slots it lacks, as far as it knows.
            configurations: Configurations,
        },
    }
}
