//! What an acceptor can be sent.

use crate::configuration::Configurations;
use crate::multipaxos::{Message, Pulse};
use crate::value::Value;
use kernel::NodeId;
use parts::{Ballot, Slot};

kernel::messages! {
    /// Everything an acceptor can be sent.
    pub enum AcceptorIn in Message::Acceptor {
        /// From a would-be leader: would you promise, or do you hear a leader?
        1 => PreVote {
            /// The ballot it would use.
            ballot: Ballot,
            /// The latest configuration it knows.
            version: Option<u64>,
        },
        /// From a leader: promise not to vote below `ballot`, and report your votes from `from` on.
        2 => Phase1a {
            /// The ballot to promise.
            ballot: Ballot,
            /// The first slot of interest; later pages start later.
            from: Slot,
            /// The leader's name for the question.
            inquiry: u64,
            /// The latest configuration that a candidate knows; none from a leader that reads votes back.
            version: Option<u64>,
        },
        /// From a proxy leader: vote.
        3 => Phase2a {
            /// Whose proposal it is.
            ballot: Ballot,
            /// For which slot.
            slot: Slot,
            /// The proposal.
            value: Value,
        },
        /// From a batcher: how far have you voted?
        4 => PreRead {
            /// The batcher's name for the question.
            id: u64,
            /// The configuration by which it chose whom to ask.
            version: u64,
        },
        /// From a leader about to use the configuration `version`: stop answering reads of older ones.
        5 => Seal {
            /// Whose configuration it is.
            ballot: Ballot,
            /// The configuration that supersedes.
            version: u64,
        },
        /// From the leader.
        6 => Heartbeat {
            /// What it sends everybody.
            pulse: Pulse,
        },
        /// From an acceptor whose journal is blank, begun with this incarnation: is yours blank, too?
        7 => Blank {
            /// Drawn at random when its journal began.
            incarnation: u64,
            /// The question's name: drawn anew when another incarnation of who is asked is heard. Absent from earlier versions.
            question: Option<u64>,
        },
        /// From a blank acceptor to another one: so is mine.
        18 => BlankToo {
            /// Drawn at random when its journal began.
            incarnation: u64,
            /// The question that it answers. An answer to an earlier one may come late, when the cluster has bootstrapped long ago.
            question: u64,
        },
        /// From an active acceptor to a blank one: the cluster has bootstrapped, with these acceptors.
        /// Promise: these acceptors were there at the bootstrap.
        8 => Bootstrapped {
            /// Each with its incarnation.
            members: Vec<(NodeId, u64)>,
        },
        /// From a leader, or one that may become it: who counts as an acceptor.
        9 => Known {
            /// The configurations.
            configurations: Configurations,
        },
        /// From this host's replica: these slots are chosen and executed, and their values are those learned or voted for here.
        10 => Executed {
            /// The first of them.
            from: Slot,
            /// The slot after the last.
            below: Slot,
        },
        /// From itself: its votes below are durable.
        /// Promise: all votes up to this slot are on its disk.
        12 => Durable {
            /// The slot after the last of them.
            voted_through: Slot,
        },
        /// From this host's replica, which starts: what was chosen from `from` on, as far as I reported it to you?
        11 => Resume {
            /// The first slot that it lacks.
            from: Slot,
        },
        /// From this host's replica: its durable snapshot holds what is below `from` only. A restart needs the votes from there on.
        13 => Hold {
            /// The first slot that the snapshot lacks.
            from: Slot,
            /// What a peer's snapshot would cost instead: more than that is not worth it.
            bytes_max: u64,
        },
        /// From a leader that wants it in a configuration: have yourself counted.
        14 => Invite {
            /// The configurations.
            configurations: Configurations,
        },
        /// From a leader that hands over: nobody leads in this ballot any more.
        15 => Resigned {
            /// The ballot.
            ballot: Ballot,
        },
        /// From a leader that rests: it is alive, and nothing has changed.
        17 => Resting {
            /// Its ballot.
            ballot: Ballot,
            /// What it sends everybody, now and then.
            pulse: Option<Pulse>,
        },
        /// From this host's replica: this slot is chosen with this value, which the acceptor did not vote for, or not as it was chosen.
        /// Comes before the word that the slot was executed.
        16 => Learned {
            /// Which slot.
            slot: Slot,
            /// Its value.
            value: Value,
        },
    }
}
