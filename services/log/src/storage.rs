//! What of a space's segments is in memory, and what bounds it.

use crate::pages::PageCache;
use crate::retired::{Origin, Retired};
use crate::segment::Part;
use kernel::{BlobId, Recount};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What bounds a space's memory, in bytes. Everything else of its entries is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceBounds {
    /// Where a segment ends, unless one append is larger; a log that may hold less than four of them has smaller ones. Equal on all
    /// servers, for retention drops whole segments.
    pub segment_bytes: usize,
    /// What the open segments of all logs hold together; beyond it the largest ends. Equal on all servers.
    pub open_bytes: usize,
    /// One entry of the index of a stored segment stands for so much.
    pub page_bytes: usize,
    /// What may wait to be stored before execution waits, too.
    pub unstored_bytes: usize,
    /// What is retained of what was read from the disk.
    pub cache_bytes: usize,
}

impl Default for SpaceBounds {
    fn default() -> Self {
        Self::within(64 << 20)
    }
}

impl SpaceBounds {
    /// The least that a space can do with.
    pub const MEMORY_BYTES_MIN: u64 = 32 << 20;

    /// Those of a space that may take about so much memory, and never less than [`Bounds::MEMORY_BYTES_MIN`].
    pub fn within(memory_bytes: u64) -> Self {
        let open_bytes = 16 << 20;
        let rest = (memory_bytes.max(Self::MEMORY_BYTES_MIN) as usize - open_bytes) / 2;
        Self {
            segment_bytes: 1 << 20,
            open_bytes,
            page_bytes: 64 << 10,
            unstored_bytes: rest,
            cache_bytes: rest,
        }
    }
}

/// What a space keeps where.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StorageStat {
    /// Segments on the disk.
    pub segments: u64,
    /// Bytes of their entries.
    pub stored_bytes: u64,
    /// Bytes of entries that are in memory because they are not on the disk yet.
    pub memory_bytes: u64,
    /// Segments that wait for the archive, on the disk or not.
    pub waiting: u64,
    /// Bytes of their entries.
    pub waiting_bytes: u64,
    /// Bytes of pages in memory that were read from the disk.
    pub cached_bytes: u64,
    /// Pages that a read has found in memory, since the start.
    pub hits: u64,
    /// Pages that were read from the disk, since the start.
    pub loads: u64,
}

kernel::record! {
    /// What the gateways of a host are to know of a space's logs there.
    pub(crate) struct Held {
        /// What is used of the disk budget, in bytes.
        bytes: u64,
        /// The digests of the names of logs that drop entries for want of room.
        droppable: Vec<u64>,
    }
}

/// A space's bounds, what waits to be stored, and what was read back.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) bounds: SpaceBounds,
    /// Segments that nothing is added to any more and that are not on the disk, with what they hold.
    unstored: BTreeMap<BlobId, usize>,
    unstored_bytes: usize,
    /// Those of them that the disk was not given yet.
    queue: VecDeque<BlobId>,
    pub(crate) cache: PageCache,
    pub(crate) retired: Retired,
    /// What the entries of all logs cost, in bytes.
    pub(crate) entry_bytes: u64,
}

impl Storage {
    pub(crate) fn new(bounds: SpaceBounds) -> Self {
        let (unstored, queue) = (BTreeMap::new(), VecDeque::new());
        let (cache, retired) = (PageCache::new(bounds.cache_bytes), Retired::default());
        Self { bounds, unstored, unstored_bytes: 0, queue, cache, retired, entry_bytes: 0 }
    }

    pub(crate) fn recounts(&self) -> Vec<Recount> {
        let unstored = self.unstored.values().sum();
        vec![
            Recount::of("bytes for the disk", self.unstored_bytes, unstored),
            Recount {
                what: "bytes for the archive",
                known: self.retired.bytes(),
                counted: self.retired.all().map(|(_, waiting)| waiting.part.bytes() as u64).sum(),
            },
        ]
    }

    /// A segment has ended.
    pub(crate) fn ended(&mut self, id: BlobId, bytes: usize) {
        if self.unstored.insert(id, bytes).is_none() {
            self.unstored_bytes += bytes;
            self.queue.push_back(id);
        }
    }

    /// The next segment for the disk.
    pub(crate) fn next(&mut self) -> Option<BlobId> {
        self.queue.pop_front()
    }

    /// A segment is on the disk, or waits for it no more; false if it did not wait.
    pub(crate) fn settled(&mut self, id: BlobId) -> bool {
        let waited = self.unstored.remove(&id);
        self.unstored_bytes -= waited.unwrap_or(0);
        waited.is_some()
    }

    /// A segment is no part of its log any more: it goes, or waits for the archive.
    pub(crate) fn retired(&mut self, id: BlobId, origin: &Arc<Origin>, part: Part) {
        if !self.retired.is_on() {
            return self.forget(id);
        }
        if let Part::InMemory(_) = part {
            // It may have been open until now.
            self.ended(id, part.bytes());
        }
        self.retired.add(id, origin, part);
    }

    /// A segment that waited for the archive is there.
    pub(crate) fn archived(&mut self, id: BlobId) {
        if self.retired.remove(id) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: BlobId) {
        self.settled(id);
        self.cache.forget(id);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.unstored_bytes > self.bounds.unstored_bytes
    }

    /// Nothing waits any more; what was read stays, for names mean the same as before.
    pub(crate) fn reset(&mut self) {
        self.unstored.clear();
        self.queue.clear();
        self.retired.clear();
        (self.unstored_bytes, self.entry_bytes) = (0, 0);
    }

    /// What of the disk budget is used: by logs, and by what waits for the archive.
    pub(crate) fn held(&self) -> u64 {
        self.entry_bytes + self.retired.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u64) -> BlobId {
        BlobId { series: 1, first }
    }

    // Memory that is counted twice, or given back twice, stops execution for ever or never.
    #[test]
    fn what_waits_for_the_disk_is_counted_once() {
        let mut storage = Storage::new(SpaceBounds { unstored_bytes: 10, ..SpaceBounds::default() });
        storage.ended(id(1), 8);
        storage.ended(id(1), 8);
        assert!(!storage.is_full());
        storage.ended(id(2), 8);
        assert!(storage.is_full());
        assert_eq!((storage.next(), storage.next(), storage.next()), (Some(id(1)), Some(id(2)), None));
        storage.settled(id(1));
        storage.forget(id(1));
        assert!(!storage.is_full());
        assert_eq!(storage.unstored_bytes, 8);
    }
}
