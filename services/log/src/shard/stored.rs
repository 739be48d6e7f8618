//! What of the logs is on the disk, and what goes to the archive from there.

use super::Logs;
use crate::segment::Part;
use kernel::{ArchiveObject, BlobId, BlobRange, Bytes};
use mason::{Archived, BlobBacked, BlobRef};
use std::sync::Arc;

fn stored_in(part: &Part) -> Option<BlobRef> {
    match part {
        Part::InMemory(_) => None,
        Part::Stored(stored) => Some(stored.blob),
    }
}

impl BlobBacked for Logs {
    fn unstored(&mut self) -> Option<(BlobId, Bytes)> {
        while let Some(id) = self.storage.next() {
            if let Some(Part::InMemory(segment)) = self.part(id) {
                return Some((id, segment.rows_bytes()));
            }
        }
        None
    }

    fn stored(&mut self, id: BlobId) {
        let page_bytes = self.storage.bounds.page_bytes;
        if self.storage.settled(id) {
            match self.numbers.get(&id.series).and_then(|name| self.logs.get_mut(name)) {
                Some(log) if log.part(id.first).is_some() => log.stored(id.first, page_bytes),
                Some(_) | None => self.storage.retired.stored(id, page_bytes),
            }
        }
    }

    fn loaded(&mut self, range: BlobRange, bytes: &Bytes) {
        if let Some(Part::Stored(stored)) = self.part(range.id) {
            let stored = Arc::clone(stored);
            self.storage.cache.insert(range.id, stored.pages_in(range, bytes));
        }
    }

    fn blobs(&self) -> Vec<BlobRef> {
        let retired = self.storage.retired.all().map(|(_, waiting)| &waiting.part);
        let parts = self.logs.values().flat_map(|log| &log.parts).chain(retired);
        parts.filter_map(stored_in).collect()
    }

    fn blob(&self, id: BlobId) -> Option<BlobRef> {
        self.part(id).and_then(stored_in)
    }

    fn in_memory(&self, range: BlobRange) -> Option<Bytes> {
        let Part::InMemory(segment) = self.part(range.id)? else { return None };
        let rows = segment.rows();
        let end = range.offset.saturating_add(range.bytes).min(rows.len() as u64);
        rows.get(range.offset as usize..end as usize).map(Bytes::copy_from_slice)
    }

    fn is_full(&self) -> bool {
        self.storage.is_full()
    }
}

impl Archived for Logs {
    fn to_archive(&self, max: usize) -> Vec<BlobId> {
        self.storage.retired.stored_ones(max)
    }

    fn archive_object(&self, id: BlobId) -> Option<ArchiveObject> {
        self.storage.retired.object(id, self.space)
    }

    fn archived(&mut self, id: BlobId) {
        self.storage.archived(id);
    }

    fn overfull(&self) -> u64 {
        self.storage.retired.overfull()
    }
}
