//! What a storage server writes to its journal.

use crate::projection::{Entry, Epoch, JournalId, LogPosition};
use kernel::{Decode, DecodeError, Encode, Reader};

/// What a storage server keeps.
#[derive(Clone, PartialEq, Debug)]
pub enum StorageRecord {
    /// It serves no epoch below.
    Sealed(Epoch),
    /// A position is written.
    Retained(LogPosition, Entry),
    /// Positions below are gone.
    Trimmed(LogPosition),
    /// Its incarnation.
    JournalId(JournalId),
    /// It is in the projection of this epoch, and serves it.
    Serves(Epoch),
    /// What it had there was not what its chain has.
    Dropped(LogPosition),
}

impl Encode for StorageRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sealed(epoch) => {
                out.push(1);
                epoch.encode(out);
            }
            Self::Retained(position, entry) => {
                out.push(2);
                position.encode(out);
                entry.encode(out);
            }
            Self::Trimmed(before) => {
                out.push(3);
                before.encode(out);
            }
            Self::JournalId(journal) => {
                out.push(4);
                journal.encode(out);
            }
            Self::Serves(epoch) => {
                out.push(5);
                epoch.encode(out);
            }
            Self::Dropped(position) => {
                out.push(6);
                position.encode(out);
            }
        }
    }
}

impl Decode for StorageRecord {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Epoch::decode(input).map(Self::Sealed),
            2 => Ok(Self::Retained(input.field()?, input.field()?)),
            3 => LogPosition::decode(input).map(Self::Trimmed),
            4 => JournalId::decode(input).map(Self::JournalId),
            5 => Epoch::decode(input).map(Self::Serves),
            6 => LogPosition::decode(input).map(Self::Dropped),
            tag => Err(DecodeError::UnknownTag("record of a storage server", tag)),
        }
    }
}
