//! Blobs on their way to the archive: on threads of their own, since an archive may be far away, and slow.
//!
//! An object is looked for before its blob is read, for another host may have written it and this one lost its copy. Threads are not
//! waited for when the host stops: what they are at is written whole or not at all, and the next run asks again.

use super::{BlobFile, Notify, Store};
use crate::disk::Disk;
use crate::metrics::ArchiveCounts;
use crate::worker::Worker;
use kernel::{ArchiveObject, BlobId, BlobNotice, Bytes, HostSlot};
use std::collections::VecDeque;
use std::sync::Arc;

/// Where blobs are archived: a slot that all hosts share, and that outlives them.
///
/// **Contract.** Called on threads that may wait, for a bounded time. An object is there whole or not at all.
pub trait Archive: Send + Sync {
    /// Whether the whole object is there, and can be read back.
    fn has(&self, object: &ArchiveObject) -> Result<bool, ArchiveError>;
    /// Adds an object: its head, and behind it `contents`. When this returns `Ok` it is there for good, whichever host has written it.
    fn put(&self, object: &ArchiveObject, contents: Bytes) -> Result<(), ArchiveError>;
}

/// The archive cannot be reached, or refuses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ArchiveError(pub String);

/// Objects in flight at a time.
const WORKERS: usize = 4;

struct Task {
    host_slot: HostSlot,
    id: BlobId,
    object: ArchiveObject,
    /// The contents, where they are in memory.
    bytes: Option<Bytes>,
}

struct Done {
    host_slot: HostSlot,
    id: BlobId,
    /// How many bytes were written; none if they were there. Or that the blob is lost.
    outcome: Result<Option<u64>, Failed>,
}

enum Failed {
    Lost,
    Archive(ArchiveError),
}

/// The archive's state changed.
pub(crate) enum Changed {
    Failing(String),
    Back,
}

pub(super) struct Archiver {
    archive: Arc<dyn Archive>,
    /// Each with how many tasks it has: one that hangs must not hold up others.
    workers: Vec<(Worker<Task, Done>, usize)>,
    counts: ArchiveCounts,
    changes: VecDeque<Changed>,
}

impl Drop for Archiver {
    fn drop(&mut self) {
        self.workers.drain(..).for_each(|(worker, _)| worker.abandon());
    }
}

impl Archiver {
    pub(super) fn new(archive: Arc<dyn Archive>) -> Self {
        let (counts, changes) = (ArchiveCounts::default(), VecDeque::new());
        Self { archive, workers: Vec::new(), counts, changes }
    }

    /// False if there is no thread to be had now.
    pub(super) fn push(
        &mut self,
        host_slot: HostSlot,
        id: BlobId,
        object: ArchiveObject,
        store: &Store,
        notify: &Notify,
    ) -> bool {
        let (disk, bytes) = match store {
            Store::Disk { disk, .. } => (Some(Arc::clone(disk)), None),
            Store::Memory(blobs) => (None, blobs.get(&(host_slot, id)).cloned()),
        };
        let all_busy = self.workers.iter().all(|(_, tasks)| *tasks > 0);
        if all_busy && self.workers.len() < WORKERS {
            let archive = Arc::clone(&self.archive);
            let work = move |task| Some(perform(&*archive, disk.as_deref(), task));
            if let Ok(worker) = Worker::start("archive", Arc::clone(notify), work) {
                self.workers.push((worker, 0));
            }
        }
        let Some((worker, tasks)) = self.workers.iter_mut().min_by_key(|(_, tasks)| *tasks) else {
            return false;
        };
        *tasks += 1;
        worker.push(Task { host_slot, id, object, bytes });
        true
    }

    pub(super) fn poll(&mut self) -> Option<(HostSlot, BlobNotice)> {
        let done = self.workers.iter_mut().find_map(|(worker, tasks)| {
            let done = worker.poll()?;
            *tasks -= 1;
            Some(done)
        });
        let Done { host_slot, id, outcome } = done?;
        let notice = match outcome {
            Ok(written) => {
                self.counts.objects += u64::from(written.is_some());
                self.counts.bytes += written.unwrap_or(0);
                if self.counts.error.take().is_some() {
                    self.changes.push_back(Changed::Back);
                }
                BlobNotice::Archived { id }
            }
            Err(Failed::Lost) => BlobNotice::Lost { id },
            Err(Failed::Archive(ArchiveError(error))) => {
                self.counts.failures += 1;
                if self.counts.error.is_none() {
                    self.changes.push_back(Changed::Failing(error.clone()));
                }
                self.counts.error = Some(error);
                BlobNotice::Unarchived { id }
            }
        };
        Some((host_slot, notice))
    }

    pub(super) fn change(&mut self) -> Option<Changed> {
        self.changes.pop_front()
    }

    pub(super) fn counts(&self) -> ArchiveCounts {
        self.counts.clone()
    }
}

fn perform(archive: &dyn Archive, disk: Option<&dyn Disk>, task: Task) -> Done {
    let Task { host_slot, id, object, bytes } = task;
    let outcome = archive.has(&object).map_err(Failed::Archive).and_then(|there| {
        if there {
            return Ok(None);
        }
        let read =
            |disk| BlobFile::open(disk, host_slot, id).and_then(|file| file.read(0, file.bytes())).ok();
        let contents = bytes.or_else(|| disk.and_then(read)).ok_or(Failed::Lost)?;
        let written = (object.head.len() + contents.len()) as u64;
        archive.put(&object, contents).map_err(Failed::Archive)?;
        Ok(Some(written))
    });
    Done { host_slot, id, outcome }
}
