//! Blobs: bytes that a node writes once and reads back in parts, beside its journal. What is large and never changes is there,
//! so that neither memory nor snapshots must hold it.
//!
//! **Contract with the driver.** A blob exists for good when [`BlobNotice::Stored`] says so, and until it is dropped; before, a crash
//! may leave it or not. A full disk delays that notice and is no error. Notices of an incarnation end with it: a role that starts says by
//! [`BlobEffect::Keep`] which blobs it knows, every other one of the node is removed, and what is retained and is not there is
//! reported lost. A read hands out what was written or says that it cannot; it never hands out anything else.
//!
//! There may be an **archive**, which all hosts share and nothing is ever removed from. [`BlobNotice::Archived`] says that the object
//! is there, whole and for good; [`BlobNotice::Unarchived`] that nobody knows, and that it may be asked for again.

use crate::codec::{Decode, DecodeError, Encode, Reader};
use bytes::Bytes;
use std::fmt;

/// A blob's name among those of its node. The node chooses it, and never gives it to other bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlobId {
    /// What it is a part of.
    pub series: u64,
    /// Where in that it begins.
    pub first: u64,
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.series, self.first)
    }
}

impl BlobId {
    /// What [`fmt::Display`] wrote; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (series, first) = text.split_once('-')?;
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let id = Self { series: number(series)?, first: number(first)? };
        (id.to_string() == text).then_some(id)
    }
}

impl Encode for BlobId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.series.encode(out);
        self.first.encode(out);
    }
}

impl Decode for BlobId {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { series: u64::decode(input)?, first: u64::decode(input)? })
    }
}

/// A part of a blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BlobRange {
    /// The blob.
    pub id: BlobId,
    /// Bytes from its start.
    pub offset: u64,
    /// How many; what is beyond its end is left out.
    pub bytes: u64,
}

/// What a blob becomes in the archive: a head, and behind it the blob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArchiveObject {
    /// Its name, parts separated by `/`. The same name always stands for the same bytes, whichever host writes them.
    pub name: String,
    /// What comes before the blob.
    pub head: Bytes,
}

/// What a node asks of its blobs.
#[derive(Clone, PartialEq, Debug)]
pub enum BlobEffect {
    /// Write one; answered by [`BlobNotice::Stored`]. One of that name is replaced.
    Store {
        /// Its name.
        id: BlobId,
        /// The contents.
        bytes: Bytes,
    },
    /// Read a part; answered by [`BlobNotice::Loaded`] or [`BlobNotice::Lost`].
    Load {
        /// Which.
        range: BlobRange,
    },
    /// Remove one. Takes effect only when everything appended before this effect is durable, as a trim does.
    Drop {
        /// Which; nothing if there is none.
        id: BlobId,
    },
    /// Copy one into the archive, unless the object is there already; answered by [`BlobNotice::Archived`] or
    /// [`BlobNotice::Unarchived`], or by [`BlobNotice::Lost`] if it is in neither.
    Archive {
        /// Which.
        id: BlobId,
        /// What it becomes there.
        object: ArchiveObject,
    },
    /// Of all blobs, the node knows these.
    Keep {
        /// Which.
        ids: Vec<BlobId>,
    },
}

/// What a driver reports to a node of its blobs.
#[derive(Clone, PartialEq, Debug)]
pub enum BlobNotice {
    /// It is durable.
    Stored {
        /// Which.
        id: BlobId,
    },
    /// A part was read.
    Loaded {
        /// Which; as it was asked for.
        range: BlobRange,
        /// What was written there.
        bytes: Bytes,
    },
    /// It cannot be read: there is none, or what is there is not what was written.
    Lost {
        /// Which.
        id: BlobId,
    },
    /// It is in the archive.
    Archived {
        /// Which.
        id: BlobId,
    },
    /// The archive did not say that it has it.
    Unarchived {
        /// Which.
        id: BlobId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    // A file whose name is read as another blob's is removed as one that nobody knows, or retained for ever.
    #[test]
    fn names_of_blobs_read_back() {
        let id = BlobId { series: 7, first: u64::MAX - 1 };
        assert_eq!(BlobId::parse(&id.to_string()), Some(id));
        for text in ["", "7-1", "0000000000000007", "+000000000000007-000000000000000a", &format!("{id}.tmp")]
        {
            assert_eq!(BlobId::parse(text), None, "{text}");
        }
        assert_eq!(BlobId::decoded(&id.encoded().into()), Ok(id));
    }
}
