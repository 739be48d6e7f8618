//! Pages of segments that went to the disk, retained for readers.

use kernel::{BlobId, Bytes};
use std::collections::BTreeMap;

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
    pub(crate) fn new(capacity_bytes: usize) -> Self {
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
        let oldest_retained = self.used + 1;
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
            && used < oldest_retained
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

    pub(crate) fn forget(&mut self, id: BlobId) {
        let of_it: Vec<(BlobId, u32)> =
            self.pages.range((id, 0)..=(id, u32::MAX)).map(|(&key, _)| key).collect();
        for key in of_it {
            self.remove(key);
        }
    }

    /// Bytes that it holds, pages found in it, pages put into it.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.bytes as u64, self.hits, self.loads)
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
}
