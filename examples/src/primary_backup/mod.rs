//! A toy engine: a primary orders commands, and a backup has a copy of each before it is executed.
//!
//! ```text
//! client             primary                 backup
//!   |  Submit ---------> |                      |
//!   |                    | (appends)            |
//!   |                    |  Copy -------------> | (appends)
//!   |                    | <---- Stored, durable|
//!   |                    | <-- Stored, durable (its own)
//!   |                    | (executes)           |
//!   | <------- Answer -- |                      |
//! ```
//! Nothing is ordered while one of the two is down, and nothing is lost when one comes back. A real engine elects another primary and takes
//! snapshots; this one is bounded by [`ENTRIES_MAX`].

mod backup;
mod client;
mod messages;
mod primary;

pub use backup::Backup;
pub use client::{Client, ClientTimer};
pub use messages::{Answer, BackupIn, ClientIn, Copy, Entry, PrimaryIn, Stored, Submit};
pub use primary::{Primary, PrimaryTimer};

use kernel::{Bytes, Family, StateMachine};

/// The log holds so many entries, and clients are not answered beyond.
pub const ENTRIES_MAX: usize = 1 << 16;
/// Longer commands are rejected.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;

/// The engine's family.
#[derive(Debug)]
pub struct PrimaryBackup;

impl Family for PrimaryBackup {
    type Message = Message;
    type Request = Bytes;
    type Response = Bytes;
}

kernel::family! {
    /// Everything that travels. Tags: 1 primary, 2 backup, 3 client.
    messages Message;
    /// What a host runs: any role of the engine, under the service `M`.
    members Member [M: StateMachine] [M] of PrimaryBackup {
        /// Orders and executes.
        1 => Primary(PrimaryIn, Primary<M>, "primary"),
        /// Has a copy.
        2 => Backup(BackupIn, Backup, "backup"),
        /// Asks.
        3 => Client(ClientIn, Client, "client"),
    }
}
