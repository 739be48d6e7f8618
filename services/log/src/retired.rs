//! Segments that are part of no log any more, trimmed or with their log deleted, and wait for the archive.

use crate::archive::ArchivedSegment;
use crate::segment::Part;
use kernel::{ArchiveObject, BlobId};
use mason::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a space's trimmed segments are archived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Archiving {
    /// The cluster's name, with which the objects' names begin.
    pub cluster: String,
    /// With more that waits for the archive, in bytes, the gateways of this host refuse appends to the space.
    pub backlog_bytes_max: u64,
}

/// A log, whatever has become of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(crate) name: String,
    /// No other log of the space had this number or will have it.
    pub(crate) number: u64,
    /// In milliseconds since 1970; 0 if that was before logs remembered it.
    pub(crate) created_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) origin: Arc<Origin>,
    pub(crate) part: Part,
}

/// What waits, if there is an archive to wait for.
///
/// What comes here depends on what was executed alone; when it goes, on what this server knows of the archive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retired {
    archiving: Option<Archiving>,
    waiting: BTreeMap<BlobId, Waiting>,
    bytes: u64,
}

impl Retired {
    pub(crate) fn begin(&mut self, archiving: Archiving) {
        self.archiving = Some(archiving);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.archiving.is_some()
    }

    pub(crate) fn add(&mut self, id: BlobId, origin: &Arc<Origin>, part: Part) {
        let bytes = part.bytes() as u64;
        if self.waiting.insert(id, Waiting { origin: Arc::clone(origin), part }).is_none() {
            self.bytes += bytes;
        }
    }

    /// It is in the archive; false if it did not wait.
    pub(crate) fn remove(&mut self, id: BlobId) -> bool {
        let waited = self.waiting.remove(&id);
        self.bytes -= waited.as_ref().map_or(0, |waiting| waiting.part.bytes() as u64);
        waited.is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (BlobId, &Waiting)> {
        self.waiting.iter().map(|(&id, waiting)| (id, waiting))
    }

    pub(crate) fn part(&self, id: BlobId) -> Option<&Part> {
        self.waiting.get(&id).map(|waiting| &waiting.part)
    }

    /// The segment is on the disk.
    pub(crate) fn stored(&mut self, id: BlobId, page_bytes: usize) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.part.stored(id, page_bytes);
        }
    }

    /// Those of a log, in the order of their positions.
    pub(crate) fn of(&self, number: u64) -> impl Iterator<Item = &Part> {
        let all = BlobId { series: number, first: 0 }..=BlobId { series: number, first: u64::MAX };
        self.waiting.range(all).map(|(_, waiting)| &waiting.part)
    }

    /// What they cost, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What they cost, if that is more than may wait; 0 otherwise.
    pub(crate) fn overfull(&self) -> u64 {
        let most = self.archiving.as_ref().map_or(u64::MAX, |archiving| archiving.backlog_bytes_max);
        if self.bytes > most { self.bytes } else { 0 }
    }

    /// The first `max` that the disk has.
    pub(crate) fn stored_ones(&self, max: usize) -> Vec<BlobId> {
        let stored = self.waiting.iter().filter(|(_, it)| matches!(it.part, Part::Stored(_)));
        stored.map(|(&id, _)| id).take(max).collect()
    }

    pub(crate) fn object(&self, id: BlobId, space: Space) -> Option<ArchiveObject> {
        let (archiving, waiting) = (self.archiving.as_ref()?, self.waiting.get(&id)?);
        let Part::Stored(stored) = &waiting.part else { return None };
        let segment = ArchivedSegment {
            cluster: archiving.cluster.clone(),
            log: waiting.origin.name.clone(),
            created_ms: waiting.origin.created_ms,
            space: space.0,
            number: waiting.origin.number,
            first: stored.first,
            next: stored.next,
            last_ms: stored.last_time,
            bytes: stored.blob.bytes,
            digest: stored.blob.digest,
        };
        Some(ArchiveObject { name: segment.object_name(), head: segment.head() })
    }
}
