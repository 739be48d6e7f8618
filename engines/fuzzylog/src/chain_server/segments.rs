//! The segments of a server: blobs that its snapshots name instead of having their nodes.
//!
//! ```text
//! server                       its disk                          after a restart
//!   | a segment is cut            |                                 | Keep: what the snapshot names
//!   |-- Store ------------------->|                                 |-- Load -->   some at a time
//!   |<------------------- Stored -|                                 |<-- Loaded
//!   | all are stored: the snapshot ends, the journal is trimmed     | all are there: it begins
//!   |-- Drop -------------------->| what it does not name
//! ```
//! A server that loads is silent, as if its process had not been started yet: what is asked of it is lost, and asked again, there or of
//! another server. Who has lost a segment has lost its disk, as far as others know: it begins under another name, without anything, and
//! copies the chain. What it has is left on its disk until a chain that serves without it lets it copy.
//!
//! Invariant: what a durable snapshot names is durable. So a snapshot ends when all of its segments are stored, and a blob is dropped only
//! when a later snapshot that does not name it is durable.

use super::{ChainServer, Forgets, JournalName, SealedFor, Serves};
use crate::partition::{PartitionState, SegmentBlob};
use crate::terms::ChainJournal;
use kernel::{BlobId, BlobNotice, BlobRange, Bytes, Cx, planted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes that are read at the same time, unless one segment is larger.
const LOADING_BYTES_MAX: u64 = 8 << 20;
/// The next chunk of a snapshot waits while so many segments are on their way to the disk.
const STORING_MAX: usize = 4;

/// Segments that are read back.
#[derive(Clone, Debug)]
struct Loading {
    /// Those that were not asked for.
    wanted: VecDeque<SegmentBlob>,
    /// The others, with their bytes.
    in_flight: BTreeMap<BlobId, u64>,
}

/// What a server knows of its blobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Blobs {
    on_disk: BTreeSet<BlobId>,
    storing: BTreeMap<BlobId, usize>,
    /// What the last durable snapshot names.
    named: BTreeSet<BlobId>,
    loading: Option<Loading>,
    /// One could not be read: nothing on the disk is this server's any more.
    is_damaged: bool,
    /// Own snapshots that were begun in this run.
    begun: u64,
}

impl Blobs {
    /// All segments of a snapshot that is read back were stored before it was complete.
    pub(super) fn restored(&mut self, named: impl Iterator<Item = BlobId>) {
        self.named = named.collect();
    }

    /// The series of the next snapshot's segments: no other run has it.
    pub(super) fn next_series(&mut self, run: u64) -> u64 {
        self.begun += 1;
        run.wrapping_add(self.begun)
    }
}

impl ChainServer {
    /// Segments that the last durable snapshot names.
    pub fn segments_named(&self) -> impl Iterator<Item = BlobId> {
        self.blobs.named.iter().copied()
    }

    /// Bytes of segments on their way to the disk.
    pub fn storing_bytes(&self) -> usize {
        self.blobs.storing.values().sum()
    }

    /// Segments that are still to be read back after a restart; it is silent until all are there.
    pub fn segments_to_load(&self) -> usize {
        self.blobs.loading.as_ref().map_or(0, |it| it.wanted.len() + it.in_flight.len())
    }

    /// True if a segment could not be read, and it has not begun to copy what others have.
    pub fn is_damaged(&self) -> bool {
        self.blobs.is_damaged
    }

    pub(super) fn is_loading(&self) -> bool {
        self.blobs.loading.is_some()
    }

    /// Says what the disk is to have, and reads segments back. Returns whether there are any to wait for.
    pub(super) fn start_segments(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let wanted: VecDeque<SegmentBlob> = self.state.missing_segments().collect();
        self.blobs.on_disk = wanted.iter().map(|it| it.id).chain(self.blobs.named.iter().copied()).collect();
        cx.keep_blobs(self.blobs.on_disk.iter().copied().collect());
        if wanted.is_empty() {
            return false;
        }
        cx.mark("chain.loads_its_segments");
        self.blobs.loading = Some(Loading { wanted, in_flight: BTreeMap::new() });
        self.load_more(cx);
        true
    }

    fn load_more(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(Loading { wanted, in_flight }) = &mut self.blobs.loading else { return };
        while let Some(next) = wanted.front()
            && (in_flight.is_empty() || in_flight.values().sum::<u64>() + next.bytes <= LOADING_BYTES_MAX)
        {
            let SegmentBlob { id, bytes, .. } = *next;
            in_flight.insert(id, bytes);
            wanted.pop_front();
            cx.load_blob(BlobRange { id, offset: 0, bytes });
        }
    }

    pub(super) fn on_blob_notice(&mut self, notice: BlobNotice, cx: &mut Cx<'_, Self>) {
        match notice {
            BlobNotice::Stored { id } => {
                self.blobs.storing.remove(&id);
                self.blobs.on_disk.insert(id);
                self.write_snapshot(cx);
            }
            BlobNotice::Loaded { range, bytes } => self.on_loaded(range.id, &bytes, cx),
            BlobNotice::Lost { id } => {
                self.blobs.on_disk.remove(&id);
                if self.is_loading() {
                    self.lose_everything(cx);
                }
            }
            BlobNotice::Archived { .. } | BlobNotice::Unarchived { .. } => {
                cx.reject("word of an archive to a chain server");
            }
        }
    }

    fn on_loaded(&mut self, id: BlobId, bytes: &Bytes, cx: &mut Cx<'_, Self>) {
        let Some(loading) = &mut self.blobs.loading else { return };
        if loading.in_flight.remove(&id).is_none() {
            return;
        }
        let is_last = loading.in_flight.is_empty() && loading.wanted.is_empty();
        let loaded = self.state.load_segment(id, bytes);
        kernel::invariant!(DUR, loaded.is_ok(), "{}: the segment {id} reads back as {loaded:?}", cx.node());
        match loaded {
            Err(_) => self.lose_everything(cx),
            Ok(()) if is_last => {
                self.blobs.loading = None;
                cx.mark("chain.loaded_its_segments");
                self.begin(cx);
            }
            Ok(()) => self.load_more(cx),
        }
    }

    /// It begins without anything, and under another name: nobody counts on what it had.
    fn lose_everything(&mut self, cx: &mut Cx<'_, Self>) {
        cx.mark("chain.lost_a_segment");
        let (named, on_disk) = (std::mem::take(&mut self.blobs.named), self.blobs.on_disk.clone());
        self.forget_everything();
        self.blobs = Blobs { named, on_disk, is_damaged: true, ..Blobs::default() };
        self.journal = Some(ChainJournal(cx.rng().bits()));
        self.begin(cx);
    }

    /// All but for which epochs it is sealed, and has served.
    pub(super) fn forget_everything(&mut self) {
        self.state = PartitionState::new(self.partition, self.placement, self.parameters.order);
        (self.row, self.saved) = Default::default();
        (self.journal, self.copied) = (None, None);
        self.blobs = Blobs::default();
    }

    /// Others have everything, and let it copy that: what is on its disk is of no use.
    pub(super) fn drop_what_is_damaged(&mut self, cx: &mut Cx<'_, Self>) {
        if !std::mem::take(&mut self.blobs.is_damaged) {
            return;
        }
        let from = cx.append(&Forgets {}.into());
        if let Some(journal) = self.journal {
            cx.append(&JournalName { journal }.into());
        }
        cx.append(&SealedFor { epoch: self.sealed }.into());
        cx.append(&Serves { epoch: self.opened }.into());
        cx.trim(from);
        self.drop_segments_but(BTreeSet::new(), cx);
    }
}

/// For a snapshot that is written.
impl ChainServer {
    /// What it cuts goes to the disk.
    pub(super) fn store_cut_segments(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some((id, bytes)) = self.written_state().take_cut_segment() {
            self.blobs.storing.insert(id, bytes.len());
            cx.store_blob(id, bytes);
        }
    }

    /// True while the next chunk, or the end, of a snapshot has to wait for segments on their way to the disk.
    pub(super) fn waits_for_segments(&mut self) -> bool {
        let is_walked = self.written_state().has_cut_all_segments();
        let storing = self.blobs.storing.len();
        let ends = is_walked && !planted!(snapshot_ends_before_its_segments);
        storing >= STORING_MAX && !is_walked || storing > 0 && ends
    }

    /// A snapshot that names these is about to be durable: others are dropped, but those that the state has come to have nodes in.
    pub(super) fn drop_segments_but(&mut self, named: BTreeSet<BlobId>, cx: &mut Cx<'_, Self>) {
        let held: BTreeSet<BlobId> = self.state.segments().map(|blob| blob.id).collect();
        let mut is_any_gone = false;
        self.blobs.on_disk.retain(|&id| {
            let stays = named.contains(&id) || held.contains(&id);
            if !stays {
                cx.drop_blob(id);
                is_any_gone = true;
            }
            stays
        });
        if is_any_gone {
            cx.mark("chain.dropped_a_segment");
        }
        self.blobs.named = named;
    }
}
