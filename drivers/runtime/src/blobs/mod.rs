//! The blobs of a host's nodes: files beside the journal, written and read on threads of their own.
//!
//! **Promises.** A blob that was reported stored is a whole file whose bytes and name were synced. What is read back is what was
//! written, or reported lost. A full disk, or want of files or memory, delays a blob, and it is tried
//! again; any other error of a write stops the host.

mod archive;
mod format;

pub(crate) use archive::Changed;
pub use archive::{Archive, ArchiveError};
pub use format::{BlobError, BlobFile, parse_file_name};

use crate::disk::Disk;
use crate::error::HostError;
use crate::metrics::{ArchiveCounts, BlobCounts};
use crate::shortage::{Shortage, patiently};
use crate::worker::Worker;
use archive::Archiver;
use format::{UNFINISHED, file_name};
use kernel::{BlobEffect, BlobId, BlobNotice, BlobRange, Bytes, HostSlot, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

type Notify = Arc<dyn Fn() + Send + Sync>;

/// How long a write that found no room waits.
const RETRY_EVERY: Duration = Duration::from_millis(250);

enum Write {
    Store { host_slot: HostSlot, id: BlobId, bytes: Bytes },
    Remove { host_slot: HostSlot, id: BlobId },
}

/// What came of a store.
struct Stored {
    host_slot: HostSlot,
    id: BlobId,
    bytes: Bytes,
    outcome: io::Result<()>,
}

/// Where blobs are.
enum Store {
    Memory(BTreeMap<(HostSlot, BlobId), Bytes>),
    Disk { disk: Arc<dyn Disk>, writer: Option<Worker<Write, Stored>>, reader: Option<Worker<Load, Loaded>> },
}

type Load = (HostSlot, BlobRange);
type Loaded = (HostSlot, BlobNotice);

/// See the module.
pub(crate) struct Blobs {
    store: Store,
    archiver: Option<Archiver>,
    notify: Notify,
    /// Contents of the blobs that are durable, in bytes; of those found at the start, their files' length.
    sizes: BTreeMap<(HostSlot, BlobId), u64>,
    /// What is known without asking the disk.
    notices: VecDeque<(HostSlot, BlobNotice)>,
    /// Stores that found no room.
    stuck: VecDeque<Write>,
    retry_at: Option<Instant>,
    /// What was short when they were tried.
    shortage: Option<Shortage>,
    counts: BlobCounts,
}

impl Blobs {
    /// The blobs of `disk`, or of nothing but memory. `notify` is called from other threads when `poll` has something to fetch.
    pub(crate) fn open(
        disk: Option<Arc<dyn Disk>>,
        archive: Option<Arc<dyn Archive>>,
        notify: Notify,
    ) -> Result<Self, HostError> {
        let mut sizes = BTreeMap::new();
        if let Some(disk) = &disk {
            // Nothing refers to it; if it cannot be deleted, the next blob replaces it.
            let _ = disk.remove(UNFINISHED);
            let list = |source| HostError::Blob { action: "list", file: disk.path_of(""), source };
            for name in disk.names().map_err(list)? {
                if let Some(key) = parse_file_name(&name) {
                    sizes.insert(key, disk.open(&name).and_then(|file| file.bytes()).map_err(list)?);
                }
            }
        }
        let store = match disk {
            None => Store::Memory(BTreeMap::new()),
            Some(disk) => Store::Disk { disk, writer: None, reader: None },
        };
        let (notices, stuck) = (VecDeque::new(), VecDeque::new());
        let (archiver, counts) = (archive.map(Archiver::new), BlobCounts::default());
        Ok(Self { store, archiver, notify, sizes, notices, stuck, retry_at: None, shortage: None, counts })
    }

    /// Carries out what the node at `slot` asks for. The caller has waited until a drop may take effect.
    pub(crate) fn carry_out(&mut self, host_slot: HostSlot, effect: BlobEffect) {
        match effect {
            BlobEffect::Store { id, bytes } => self.write(Write::Store { host_slot, id, bytes }),
            BlobEffect::Load { range } => self.load(host_slot, range),
            BlobEffect::Archive { id, object } => {
                let Self { archiver, store, notify, .. } = self;
                let taken = archiver.as_mut().is_some_and(|it| it.push(host_slot, id, object, store, notify));
                if !taken {
                    self.notices.push_back((host_slot, BlobNotice::Unarchived { id }));
                }
            }
            BlobEffect::Drop { id } => self.remove(host_slot, id),
            BlobEffect::Keep { ids } => {
                let of_slot = (host_slot, BlobId { series: 0, first: 0 })
                    ..=(host_slot, BlobId { series: u64::MAX, first: u64::MAX });
                let found: Vec<BlobId> = self.sizes.range(of_slot).map(|(&(_, id), _)| id).collect();
                let known: BTreeSet<BlobId> = ids.into_iter().collect();
                for id in known.iter().filter(|id| found.binary_search(id).is_err()) {
                    self.notices.push_back((host_slot, BlobNotice::Lost { id: *id }));
                }
                for id in found.into_iter().filter(|id| !known.contains(id)) {
                    self.remove(host_slot, id);
                }
            }
        }
    }

    fn write(&mut self, write: Write) {
        match (&mut self.store, write) {
            (Store::Memory(blobs), Write::Store { host_slot, id, bytes }) => {
                self.sizes.insert((host_slot, id), bytes.len() as u64);
                blobs.insert((host_slot, id), bytes);
                self.counts.stores += 1;
                self.notices.push_back((host_slot, BlobNotice::Stored { id }));
            }
            (Store::Memory(blobs), Write::Remove { host_slot, id }) => _ = blobs.remove(&(host_slot, id)),
            (Store::Disk { disk, writer, .. }, write) => {
                if writer.is_none() {
                    let disk = Arc::clone(disk);
                    let work = move |write| perform(&*disk, write);
                    *writer = Worker::start("blob-write", Arc::clone(&self.notify), work).ok();
                }
                match writer {
                    Some(writer) => writer.push(write),
                    // No thread to be had now: as if there were no room.
                    None => self.stuck.push_back(write),
                }
            }
        }
    }

    fn remove(&mut self, host_slot: HostSlot, id: BlobId) {
        self.stuck.retain(|write| !matches!(write, Write::Store { host_slot: of, id: stuck, .. } if (*of, *stuck) == (host_slot, id)));
        self.sizes.remove(&(host_slot, id));
        self.write(Write::Remove { host_slot, id });
    }

    fn load(&mut self, host_slot: HostSlot, range: BlobRange) {
        match &mut self.store {
            Store::Memory(blobs) => {
                let notice = match blobs.get(&(host_slot, range.id)) {
                    Some(bytes) => {
                        let start = range.offset.min(bytes.len() as u64);
                        let end = start.saturating_add(range.bytes).min(bytes.len() as u64);
                        BlobNotice::Loaded { range, bytes: bytes.slice(start as usize..end as usize) }
                    }
                    None => BlobNotice::Lost { id: range.id },
                };
                self.notices.push_back((host_slot, notice));
            }
            Store::Disk { disk, reader, .. } => {
                if reader.is_none() {
                    let disk = Arc::clone(disk);
                    let work = move |load| Some(read_patiently(&*disk, load));
                    *reader = Worker::start("blob-read", Arc::clone(&self.notify), work).ok();
                }
                match reader {
                    Some(reader) => reader.push((host_slot, range)),
                    None => self.notices.push_back(read(&**disk, (host_slot, range))),
                }
            }
        }
    }

    /// The next notice. Errors only for a write that failed for another reason than want of space.
    pub(crate) fn poll(&mut self, now: Instant) -> Result<Option<(HostSlot, BlobNotice)>, HostError> {
        if !self.stuck.is_empty() {
            self.retry_at.get_or_insert(now + RETRY_EVERY);
        }
        if let Some(notice) = self.notices.pop_front() {
            return Ok(Some(self.count(notice)));
        }
        if let Some(notice) = self.archiver.as_mut().and_then(Archiver::poll) {
            return Ok(Some(notice));
        }
        let Store::Disk { disk, writer, reader } = &self.store else { return Ok(None) };
        if let Some(loaded) = reader.as_ref().and_then(Worker::poll) {
            return Ok(Some(self.count(loaded)));
        }
        while let Some(Stored { host_slot, id, bytes, outcome }) = writer.as_ref().and_then(Worker::poll) {
            match outcome {
                Ok(()) => {
                    self.sizes.insert((host_slot, id), bytes.len() as u64);
                    self.counts.stores += 1;
                    return Ok(Some((host_slot, BlobNotice::Stored { id })));
                }
                Err(error) if Shortage::of(&error).is_some() => {
                    self.shortage = Shortage::of(&error);
                    self.stuck.push_back(Write::Store { host_slot, id, bytes });
                    self.retry_at.get_or_insert(now + RETRY_EVERY);
                }
                Err(source) => {
                    let file = disk.path_of(&file_name(host_slot, id));
                    return Err(HostError::Blob { action: "write", file, source });
                }
            }
        }
        Ok(None)
    }

    fn count(&mut self, (host_slot, notice): (HostSlot, BlobNotice)) -> (HostSlot, BlobNotice) {
        match &notice {
            BlobNotice::Loaded { bytes, .. } => {
                self.counts.loads += 1;
                self.counts.loaded_bytes += bytes.len() as u64;
            }
            BlobNotice::Lost { .. } => self.counts.lost += 1,
            BlobNotice::Stored { .. } | BlobNotice::Archived { .. } | BlobNotice::Unarchived { .. } => {}
        }
        (host_slot, notice)
    }

    /// True if `poll` has something at once, of which no other thread has given notice.
    pub(crate) fn is_ready(&self) -> bool {
        !self.notices.is_empty()
    }

    /// When stores that found no room are tried again; `None` if there are none.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.retry_at
    }

    /// What stores wait for; none if there are none that wait.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        self.shortage.filter(|_| self.retry_at.is_some())
    }

    /// Tries again what is due.
    pub(crate) fn retry(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            for write in std::mem::take(&mut self.stuck) {
                self.write(write);
            }
        }
    }

    /// What there is to say of the archive, since it was last asked.
    pub(crate) fn archive_change(&mut self) -> Option<Changed> {
        self.archiver.as_mut().and_then(Archiver::change)
    }

    /// See [`ArchiveCounts`]; none without an archive.
    pub(crate) fn archive_counts(&self) -> Option<ArchiveCounts> {
        self.archiver.as_ref().map(Archiver::counts)
    }

    /// See [`BlobCounts`].
    pub(crate) fn counts(&self) -> BlobCounts {
        BlobCounts { files: self.sizes.len() as u64, bytes: self.sizes.values().sum(), ..self.counts }
    }
}

fn perform(disk: &dyn Disk, write: Write) -> Option<Stored> {
    match write {
        Write::Store { host_slot, id, bytes } => {
            let name = file_name(host_slot, id);
            let outcome = disk
                .write_new(UNFINISHED, &format::encode(host_slot, id, &bytes))
                .and_then(|()| disk.rename(UNFINISHED, &name))
                .and_then(|()| disk.sync_directory());
            Some(Stored { host_slot, id, bytes, outcome })
        }
        Write::Remove { host_slot, id } => {
            // A file that cannot be deleted, or comes back after a power failure, is found by the next start.
            let _ = disk.remove(&file_name(host_slot, id));
            None
        }
    }
}

fn read(disk: &dyn Disk, (host_slot, range): Load) -> Loaded {
    let read =
        BlobFile::open(disk, host_slot, range.id).and_then(|file| file.read(range.offset, range.bytes));
    loaded((host_slot, range), read)
}

/// A blob whose file cannot be opened for want of files is not lost.
fn read_patiently(disk: &dyn Disk, (host_slot, range): Load) -> Loaded {
    let read =
        || BlobFile::open(disk, host_slot, range.id).and_then(|file| file.read(range.offset, range.bytes));
    let error = |error: &BlobError| match error {
        BlobError::Io(error) => error.raw_os_error(),
        BlobError::Damaged(_) | BlobError::NewerFormat(_) => None,
    };
    loaded((host_slot, range), patiently(read, error))
}

fn loaded((host_slot, range): Load, read: Result<Bytes, BlobError>) -> Loaded {
    match read {
        Ok(bytes) => (host_slot, BlobNotice::Loaded { range, bytes }),
        Err(_) => (host_slot, BlobNotice::Lost { id: range.id }),
    }
}

#[cfg(test)]
mod archive_tests;
#[cfg(test)]
mod tests;
