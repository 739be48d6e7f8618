//! What of a space's segments is in memory, and what bounds it.

use crate::log::Part;
use crate::retired::{Origin, Retired};
use kernel::{BlobId, Bytes};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What bounds a space's memory, in bytes. Everything else of its entries is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Where a segment ends, unless one append is larger; a log that may hold less than four of them has smaller ones. Equal on all
    /// servers, for retention drops whole segments.
    pub segment_bytes: usize,
    /// What the open segments of all logs hold together; beyond it the largest ends. Equal on all servers.
    pub open_bytes: usize,
    /// One entry of the index of a stored segment stands for so much.
    pub page_bytes: usize,
    /// What may wait to be stored before execution waits, too.
    pub unstored_bytes: usize,
    /// What is kept of what was read from the disk.
    pub cache_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::within(64 << 20)
    }
}

impl Bounds {
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

/// A space's bounds, what waits to be stored, and what was read back.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) bounds: Bounds,
    /// Segments that nothing is added to any more and that are not on the disk, with what they hold.
    unstored: BTreeMap<BlobId, usize>,
    unstored_bytes: usize,
    /// Those of them that the disk was not given yet.
    queue: VecDeque<BlobId>,
    pub(crate) cache: PageCache,
    pub(crate) retired: Retired,
}

impl Storage {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let (unstored, queue) = (BTreeMap::new(), VecDeque::new());
        let (cache, retired) = (PageCache::new(bounds.cache_bytes), Retired::default());
        Self { bounds, unstored, unstored_bytes: 0, queue, cache, retired }
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
    pub(crate) fn dropped(&mut self, id: BlobId, origin: &Arc<Origin>, part: Part) {
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
        self.unstored_bytes = 0;
    }
}

/// Pages of stored segments that were read lately.
#[derive(Clone, Debug)]
pub(crate) struct PageCache {
    capacity_bytes: usize,
    bytes: usize,
    pages: BTreeMap<(BlobId, u32), (u64, Bytes)>,
    /// The same by when they were last used.
    recent: BTreeMap<u64, (BlobId, u32)>,
    used: u64,
    hits: u64,
    loads: u64,
}

impl PageCache {
    fn new(capacity_bytes: usize) -> Self {
        let (pages, recent) = (BTreeMap::new(), BTreeMap::new());
        Self { capacity_bytes, bytes: 0, pages, recent, used: 0, hits: 0, loads: 0 }
    }

    pub(crate) fn get(&mut self, id: BlobId, page: u32) -> Option<Bytes> {
        let (used, bytes) = self.pages.get_mut(&(id, page))?;
        self.recent.remove(used);
        self.used += 1;
        self.hits += 1;
        *used = self.used;
        self.recent.insert(*used, (id, page));
        Some(bytes.clone())
    }

    /// Takes the pages of one read; others give way to them, and they never to each other, so that the read can be answered.
    pub(crate) fn insert<'a>(&mut self, id: BlobId, pages: impl Iterator<Item = (u32, &'a [u8])>) {
        let oldest_kept = self.used + 1;
        for (page, bytes) in pages {
            self.remove((id, page));
            self.used += 1;
            self.loads += 1;
            self.bytes += bytes.len();
            self.pages.insert((id, page), (self.used, Bytes::copy_from_slice(bytes)));
            self.recent.insert(self.used, (id, page));
        }
        while self.bytes > self.capacity_bytes
            && let Some((&used, &key)) = self.recent.first_key_value()
            && used < oldest_kept
        {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: (BlobId, u32)) {
        if let Some((used, bytes)) = self.pages.remove(&key) {
            self.recent.remove(&used);
            self.bytes -= bytes.len();
        }
    }

    fn forget(&mut self, id: BlobId) {
        let of_it: Vec<(BlobId, u32)> =
            self.pages.range((id, 0)..=(id, u32::MAX)).map(|(&key, _)| key).collect();
        for key in of_it {
            self.remove(key);
        }
    }

    /// Fills in what it knows.
    pub(crate) fn count_into(&self, stat: &mut StorageStat) {
        (stat.cached_bytes, stat.hits, stat.loads) = (self.bytes as u64, self.hits, self.loads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u64) -> BlobId {
        BlobId { series: 1, first }
    }

    // A cache without an end, or one that drops what a read waits for: the read asks for ever.
    #[test]
    fn the_cache_keeps_what_was_used_last_and_what_came_last() {
        let mut cache = PageCache::new(10);
        let page = [7; 4];
        cache.insert(id(1), [(0, &page[..]), (1, &page[..])].into_iter());
        assert!(cache.get(id(1), 0).is_some());
        cache.insert(id(2), [(0, &page[..])].into_iter());
        assert!(
            cache.get(id(1), 1).is_none() && cache.get(id(1), 0).is_some() && cache.get(id(2), 0).is_some()
        );
        cache.insert(id(3), [(0, &page[..]), (1, &page[..]), (2, &page[..])].into_iter());
        assert!((0..3).all(|at| cache.get(id(3), at).is_some()), "larger than the cache, and whole");
        assert_eq!((cache.bytes, cache.pages.len(), cache.recent.len()), (12, 3, 3));
        cache.forget(id(3));
        assert_eq!((cache.bytes, cache.pages.len(), cache.recent.len()), (0, 0, 0));
    }

    // Memory that is counted twice, or given back twice, stops execution for ever or never.
    #[test]
    fn what_waits_for_the_disk_is_counted_once() {
        let mut storage = Storage::new(Bounds { unstored_bytes: 10, ..Bounds::default() });
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
