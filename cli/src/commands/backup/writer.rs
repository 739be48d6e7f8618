//! Chunks that are not there yet are written, and all are counted.

use super::manifest::{BackupChunk, digest_of};
use super::store::BackupStore;
use crate::failure::Failure;
use indicatif::ProgressBar;

/// A chunk ends behind a record whose key's digest is a multiple of this, when it has so many bytes at least; and when it has so many at
/// most. So a record that comes or goes changes the chunk that it is in, and no other.
pub const ENDS_ONE_IN: u64 = 64;
pub const CHUNK_BYTES_MIN: usize = 64 << 10;
pub const CHUNK_BYTES_MAX: usize = 2 << 20;

/// What became of chunks.
#[derive(Default)]
pub struct Counts {
    pub chunks: u64,
    pub bytes: u64,
    pub written: u64,
    pub written_bytes: u64,
}

/// Writes chunks that are not there yet.
pub struct Writer<'a> {
    store: &'a BackupStore,
    pub counts: Counts,
    bar: Option<&'a ProgressBar>,
}

impl<'a> Writer<'a> {
    pub fn new(store: &'a BackupStore, bar: Option<&'a ProgressBar>) -> Self {
        Self { store, counts: Counts::default(), bar }
    }

    /// Writes a chunk, unless it is there.
    pub async fn write(&mut self, bytes: Vec<u8>, first: u64, count: u64) -> Result<BackupChunk, Failure> {
        let chunk = BackupChunk { digest: digest_of(&bytes), bytes: bytes.len() as u64, first, count };
        self.counts.chunks += 1;
        self.counts.bytes += chunk.bytes;
        if self.store.length(&chunk.name()).await? != Some(chunk.bytes) {
            self.counts.written += 1;
            self.counts.written_bytes += chunk.bytes;
            self.store.put(&chunk.name(), bytes).await?;
        }
        if let Some(bar) = self.bar {
            bar.set_position(self.counts.bytes);
        }
        Ok(chunk)
    }

    /// A chunk of an earlier backup that is still there.
    pub async fn has(&mut self, chunk: &BackupChunk) -> Result<bool, Failure> {
        let there = self.store.length(&chunk.name()).await? == Some(chunk.bytes);
        if there {
            self.counts.chunks += 1;
            self.counts.bytes += chunk.bytes;
        }
        Ok(there)
    }
}
