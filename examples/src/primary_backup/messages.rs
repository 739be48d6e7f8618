//! All messages and records of the engine, by who receives them.

use super::Message;
use kernel::{Bytes, NodeId};

kernel::record! {
    /// A command in the log.
    pub struct Entry {
        /// The client that wants to know the answer.
        client: NodeId,
        /// The client's name for it: later ones are larger.
        tag: u64,
        /// The service's command.
        command: Bytes,
    }
}

kernel::messages! {
    /// To the primary.
    pub enum PrimaryIn in Message::Primary {
        /// From a client: execute this once.
        1 => Submit {
            /// The client's name for it: later ones are larger.
            tag: u64,
            /// The service's command.
            command: Bytes,
        },
        /// From the backup, or the primary's own journal: all entries below are durable there.
        2 => Stored {
            /// An index of the log.
            below: u64,
        },
    }
}

kernel::messages! {
    /// To the backup.
    pub enum BackupIn in Message::Backup {
        /// From the primary: the entry at this index of the log.
        1 => Copy {
            /// Where in the log.
            index: u64,
            /// What.
            entry: Entry,
        },
    }
}

kernel::messages! {
    /// To a client.
    pub enum ClientIn in Message::Client {
        /// From the primary: this was executed.
        1 => Answer {
            /// The client's name for the command.
            tag: u64,
            /// The service's answer.
            response: Bytes,
        },
    }
}
