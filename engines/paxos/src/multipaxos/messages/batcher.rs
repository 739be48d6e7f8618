//! What a batcher can be sent.

use crate::configuration::{Configuration, Configurations};
use crate::multipaxos::{Message, Pulse};
use crate::value::{Commands, GroupKind, Level};
use parts::{Sequence, SessionId, Slot};
use std::sync::Arc;

kernel::messages! {
    /// Everything a batcher can be sent. The first three come from clients and are part of the native protocol.
    pub enum BatcherIn in Message::Batcher {
        /// From a client: execute, or open or close the session.
        1 => Submit {
            /// The client's session.
            session: SessionId,
            /// The client has every answer below this.
            acknowledged: Sequence,
            /// What is wanted.
            kind: GroupKind,
            /// The commands, if any.
            commands: Commands,
        },
        /// From a client: answer these reads.
        2 => Query {
            /// The client's session, for the answer.
            session: SessionId,
            /// How fresh.
            level: Level,
            /// What the client has seen: the slot after the last one. For sequential reads.
            seen: Slot,
            /// The reads, numbered by the client.
            queries: Commands,
        },
        /// From a client: change the cluster to this configuration, if its version is the next one.
        3 => Reconfigure {
            /// The client's session, for the answer.
            session: SessionId,
            /// Which of its calls this is.
            sequence: Sequence,
            /// The configuration wanted; its `first_slot` is ignored.
            configuration: Arc<Configuration>,
        },
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
            /// What it tells everybody.
            pulse: Pulse,
        },
        /// From an unbatcher: the batch was executed.
        7 => Done {
            /// The batch's number.
            number: u64,
        },
    }
}
