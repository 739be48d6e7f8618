//! What a client sends a batcher.

use super::configuration::Configuration;
use super::value::{Commands, GroupKind, Level};
use parts::{Sequence, SessionId, Slot};
use std::sync::Arc;

kernel::messages! {
    /// Everything a client sends.
    pub enum ToBatcher {
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
    }
}
