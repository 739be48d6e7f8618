//! Why a host does not start, or stops by itself.

use crate::clock::ClockError;
use crate::data::DataError;
use crate::journal::JournalError;
use kernel::{DecodeError, HostSlot, Position};
use std::io;
use std::path::PathBuf;

/// Why a host does not start, or has stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The journal cannot be used (any more). Nothing that it did not confirm was acknowledged.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another host knows that this one's journal had held more.
    #[error(
        "the journal has {found} batches, and host {peer} knows that it had {reported}: its end is gone, or the data are an old copy"
    )]
    JournalBehind {
        /// Who knows.
        peer: String,
        /// How many batches there were.
        reported: u64,
        /// How many there are.
        found: u64,
    },
    /// A blob cannot be written, for another reason than want of space.
    #[error("cannot {action} {}: {source}", file.display())]
    Blob {
        /// What was tried.
        action: &'static str,
        /// On which file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no usable wall clock.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A record that this version cannot read.
    #[error("record {} of slot {} cannot be read: {cause}", position.0, host_slot.0)]
    Record {
        /// Whose.
        host_slot: HostSlot,
        /// Which.
        position: Position,
        /// Why.
        cause: DecodeError,
    },
    /// The journal holds records of a node that is not placed here.
    #[error("the journal holds {records} records of slot {}, which is not on this host", host_slot.0)]
    Orphan {
        /// Whose.
        host_slot: HostSlot,
        /// How many are still needed.
        records: u64,
    },
    /// Two nodes at one slot, or a slot reserved for clients.
    #[error("slot {} cannot be used: given twice, or above {:#x}", host_slot.0, crate::clients::CLIENT_SLOTS)]
    Slot {
        /// Which.
        host_slot: HostSlot,
    },
    /// A bug: an assertion failed on the reactor's thread.
    #[error("a role panicked: {0}")]
    Panicked(String),
}
