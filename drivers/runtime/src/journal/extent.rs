//! How far the journal is known to reach, in a file beside its segments: what nobody else would miss is its end.
//!
//! A segment in the middle is missed by the one behind it. The last one is missed by this file, which names the highest segment that
//! was ever prepared, and is written before that is used; and the end of the last stop that was clean, which must be there again.
//! It costs two syncs a segment, on the thread that prepares segments, and none a batch. A journal of a version that did not
//! write it gets one with its next segment.
//!
//! ```text
//! magic "ORDJEXT\0" | format: u32 | crc: u32 | incarnation: u128 | prepared: u64 | durable generation: u64 | durable offset: u64
//! ```

use super::JournalError;
use super::format::{Generation, Mark};
use crate::disk::Disk;
use std::io;

/// The name of the file.
pub(crate) const EXTENT: &str = "extent";
const UNFINISHED: &str = "extent.unfinished";
const MAGIC: &[u8; 8] = b"ORDJEXT\0";
const FORMAT: u32 = 1;
const BYTES: usize = 56;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extent {
    /// The highest segment that was ever prepared.
    pub(crate) prepared: Generation,
    /// Everything before is durable.
    pub(crate) durable: Mark,
}

impl Extent {
    fn encode(&self, incarnation: u128) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..32].copy_from_slice(&incarnation.to_le_bytes());
        let words = [self.prepared.0, self.durable.generation.0, self.durable.offset];
        for (index, word) in words.into_iter().enumerate() {
            out[32 + 8 * index..40 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        let crc = checksum(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], incarnation: u128) -> Result<Self, String> {
        let bytes: &[u8; BYTES] = bytes.first_chunk().ok_or("it ends early")?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        if &bytes[..8] != MAGIC || half(12) != checksum(bytes) {
            return Err("the checksum does not match".to_owned());
        }
        if u128::from(word(16)) | u128::from(word(24)) << 64 != incarnation {
            return Err("it belongs to another data directory".to_owned());
        }
        let durable = Mark { generation: Generation(word(40)), offset: word(48) };
        Ok(Self { prepared: Generation(word(32)), durable })
    }

    /// What the disk has; none of a journal that never had one.
    pub(crate) fn read(disk: &dyn Disk, incarnation: u128) -> Result<Option<Self>, JournalError> {
        let file = disk.path_of(EXTENT);
        let io = |action| {
            let file = file.clone();
            move |source| JournalError::Io { action, file, source }
        };
        if !disk.names().map_err(io("list"))?.iter().any(|name| name == EXTENT) {
            return Ok(None);
        }
        let mut bytes = [0; BYTES];
        let read = disk.open(EXTENT).and_then(|file| file.read(0, &mut bytes)).map_err(io("read"))?;
        let found = u32::from_le_bytes(std::array::from_fn(|byte| bytes[8 + byte]));
        if &bytes[..8] == MAGIC && found > FORMAT {
            return Err(JournalError::NewerFormat { file, found });
        }
        let decoded = Self::decode(&bytes[..read], incarnation);
        decoded.map(Some).map_err(|cause| JournalError::Damaged { file, offset: 0, cause })
    }

    /// Puts it instead of what was there, whole or not at all.
    pub(crate) fn write(&self, disk: &dyn Disk, incarnation: u128) -> io::Result<()> {
        disk.write_new(UNFINISHED, &self.encode(incarnation))?;
        disk.rename(UNFINISHED, EXTENT)?;
        disk.sync_directory()
    }
}

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

#[cfg(test)]
mod tests {
    use super::*;

    // Bytes that read back otherwise would refuse a sound journal, or let a shortened one pass.
    #[test]
    fn the_golden_bytes_stay() {
        let extent =
            Extent { prepared: Generation(9), durable: Mark { generation: Generation(8), offset: 12_288 } };
        let bytes = extent.encode(77);
        assert_eq!(Extent::decode(&bytes, 77), Ok(extent));
        assert!(Extent::decode(&bytes, 78).is_err() && Extent::decode(&bytes[..55], 77).is_err());
        for bit in 0..8 * BYTES {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Extent::decode(&flipped, 77).is_err(), "bit {bit}");
        }
        assert_eq!(crc32c::crc32c(&bytes), GOLDEN);
    }

    const GOLDEN: u32 = 3104281322;
}
