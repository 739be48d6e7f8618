//! Carrying out disk work: the batch that is being made durable, and the segment that is being prepared. Either on the
//! caller's thread or on one of the journal's own, whose answers are fetched later.

use super::extent::Extent;
use super::format::{Generation, SegmentHeader, segment_name};
use crate::direct::Blocks;
use crate::disk::{Disk, DiskFile};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One batch to write and sync.
pub(crate) struct Write {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) offset: u64,
    pub(crate) blocks: Blocks,
}

/// How it went, with the buffer back.
pub(crate) struct Written {
    pub(crate) blocks: Blocks,
    pub(crate) outcome: Result<(), WriteError>,
    pub(crate) took: Duration,
}

/// Which half failed: a failed write may be repeated, a failed sync never.
pub(crate) enum WriteError {
    Write(io::Error),
    Sync(io::Error),
}

impl Write {
    pub(crate) fn perform(self) -> Written {
        let start = Instant::now();
        let outcome = self
            .file
            .write(self.offset, self.blocks.bytes())
            .map_err(WriteError::Write)
            .and_then(|()| self.file.sync().map_err(WriteError::Sync));
        Written { blocks: self.blocks, outcome, took: start.elapsed() }
    }
}

/// Work on segment files.
pub(crate) enum Chore {
    /// Make the file of a generation, out of an old one if given.
    Prepare { header: SegmentHeader, reuse: Option<Generation>, extent: Extent },
    /// Delete the file of a generation.
    Remove(Generation),
}

/// What came of a `Prepare`.
pub(crate) type Prepared = io::Result<Arc<dyn DiskFile>>;

/// The name of a file that is not yet a segment.
pub(crate) const UNFINISHED: &str = "segment.unfinished";

pub(crate) fn perform_chore(disk: &dyn Disk, chore: Chore) -> Option<Prepared> {
    match chore {
        Chore::Prepare { header, reuse, extent } => Some(prepare(disk, &header, reuse, extent)),
        Chore::Remove(generation) => {
            // A file that cannot be deleted is found again at the next start.
            let _ = disk.remove(&segment_name(generation)).and_then(|()| disk.sync_directory());
            None
        }
    }
}

/// Invariant: a file under a segment's name has had its header and all its blocks synced.
/// Before it is used, the extent names it.
fn prepare(disk: &dyn Disk, header: &SegmentHeader, reuse: Option<Generation>, extent: Extent) -> Prepared {
    let file = match reuse {
        Some(old) => {
            disk.rename(&segment_name(old), UNFINISHED)?;
            disk.sync_directory()?;
            disk.open(UNFINISHED)?
        }
        None => disk.create(UNFINISHED, header.bytes)?,
    };
    let mut block = Blocks::default();
    block.extend_from_slice(&header.encode());
    block.pad();
    file.write(0, block.bytes())?;
    file.sync()?;
    disk.rename(UNFINISHED, &segment_name(header.generation))?;
    disk.sync_directory()?;
    extent.write(disk, header.incarnation)?;
    Ok(file)
}
