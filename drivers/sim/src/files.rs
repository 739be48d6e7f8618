//! The blobs on one disk: files that are whole or not there, and that may rot.

use crate::draw::mix;
use kernel::{BlobId, BlobRange, Bytes, HostSlot};
use std::collections::BTreeMap;

/// A blob on the disk.
#[derive(Clone, Debug)]
struct Blob {
    bytes: Vec<u8>,
    checksum: u32,
}

impl Blob {
    fn is_sound(&self) -> bool {
        crc32c::crc32c(&self.bytes) == self.checksum
    }
}

/// The files of one disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    blobs: BTreeMap<(HostSlot, BlobId), Blob>,
    /// How often any came or went.
    changes: u64,
}

impl Files {
    pub(crate) fn read(&self, host_slot: HostSlot, range: BlobRange) -> Option<Bytes> {
        let blob = self.blobs.get(&(host_slot, range.id)).filter(|blob| blob.is_sound())?;
        let start = range.offset.min(blob.bytes.len() as u64);
        let end = start.saturating_add(range.bytes).min(blob.bytes.len() as u64);
        Some(Bytes::copy_from_slice(&blob.bytes[start as usize..end as usize]))
    }

    pub(crate) fn write(&mut self, host_slot: HostSlot, id: BlobId, bytes: &Bytes) {
        let blob = Blob { bytes: bytes.to_vec(), checksum: crc32c::crc32c(bytes) };
        self.changes += 1;
        self.blobs.insert((host_slot, id), blob);
    }

    /// Removes those of `slot` that are not in `ids`; returns those of `ids` that are not there.
    pub(crate) fn keep(&mut self, host_slot: HostSlot, mut ids: Vec<BlobId>) -> Vec<BlobId> {
        self.changes += 1;
        self.blobs.retain(|(of, id), _| *of != host_slot || ids.contains(id));
        ids.retain(|id| !self.blobs.contains_key(&(host_slot, *id)));
        ids
    }

    pub(crate) fn has(&self, host_slot: HostSlot, id: BlobId) -> bool {
        self.blobs.contains_key(&(host_slot, id))
    }

    pub(crate) fn drop(&mut self, host_slot: HostSlot, id: BlobId) {
        self.changes += 1;
        self.blobs.remove(&(host_slot, id));
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether there is a bit to flip.
    pub(crate) fn can_rot(&self) -> bool {
        self.blobs.values().any(|blob| !blob.bytes.is_empty() && blob.is_sound())
    }

    /// Flips a bit of one, and of about half of the others, as when a region of a disk goes bad; false if there is none.
    pub(crate) fn rot(&mut self, draw: u64) -> bool {
        let sound = self.blobs.values_mut().filter(|blob| !blob.bytes.is_empty() && blob.is_sound());
        let mut sound: Vec<&mut Blob> = sound.collect();
        let count = sound.len() as u64;
        let one = mix(draw, 1) % count.max(1);
        for (nth, blob) in (0..).zip(&mut sound) {
            let of_it = mix(draw, 2 + nth);
            if nth == one || of_it & 1 == 0 {
                let bit = (of_it >> 1) as usize % (blob.bytes.len() * 8);
                blob.bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        count > 0
    }

    /// Whether one of them cannot be read back.
    pub(crate) fn are_rotten(&self) -> bool {
        self.blobs.values().any(|blob| !blob.is_sound())
    }
}

/// All of a blob.
pub(crate) fn whole(id: BlobId) -> BlobRange {
    BlobRange { id, offset: 0, bytes: u64::MAX }
}

/// Whether a bit that rots is one of a blob, if there are any: half of the draws.
pub(crate) fn rots_a_blob(draw: u64) -> bool {
    mix(draw, 0) & 1 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_SLOT: HostSlot = HostSlot(3);

    // A bit that rots unnoticed lets every test of damaged blobs pass.
    #[test]
    fn what_rots_is_not_read_and_what_is_written_again_is() {
        let (mut files, id) = (Files::default(), BlobId { series: 1, first: 2 });
        let range = BlobRange { id, offset: 1, bytes: 9 };
        assert!(!files.rot(7));
        files.write(HOST_SLOT, id, &Bytes::from_static(b"abc"));
        assert_eq!(files.read(HOST_SLOT, range).as_deref(), Some(&b"bc"[..]));
        assert!(
            files.rot(7) && files.are_rotten() && !files.rot(8),
            "there is one, and it is rotten already"
        );
        assert_eq!(files.read(HOST_SLOT, range), None);
        files.write(HOST_SLOT, id, &Bytes::from_static(b"abc"));
        assert!(!files.are_rotten());
        let other = BlobId { series: 1, first: 3 };
        assert_eq!(files.keep(HOST_SLOT, vec![other]), [other]);
        assert_eq!(files.read(HOST_SLOT, range), None);
    }
}
