//! What a batcher can be sent.

use crate::configuration::Configurations;
use crate::multipaxos::{Message, Pulse};
use parts::Slot;
pub use wire::commands::{Query, Reconfigure, Submit};

kernel::messages! {
    /// Everything a batcher can be sent. What comes from clients is part of the native protocol.
    pub enum BatcherIn in Message::Batcher {
        /// From an acceptor: how far it has voted.
        4 => PreReadAck {
            /// The question.
            id: u64,
            /// The slot after the highest one voted in.
            voted_through: Slot,
        },
        /// From an acceptor: you asked by a configuration that is no longer read from.
        5 => Superseded {
            /// The question.
            id: u64,
            /// What the acceptor knows.
            configurations: Configurations,
        },
        /// From the leader.
        6 => Heartbeat {
            /// What it sends everybody.
            pulse: Pulse,
        },
        /// From an unbatcher: the batch was executed.
        7 => Done {
            /// The batch's number.
            number: u64,
        },
    }
    and {
        /// From a client: execute, or open or close the session.
        1 => Submit,
        /// From a client: answer these reads.
        2 => Query,
        /// From a client: change the cluster to this configuration, if its version is the next one.
        3 => Reconfigure,
    }
}
