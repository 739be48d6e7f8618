//! The blobs of a shard's server: what its service has written to the disk instead of keeping it in memory and in snapshots.
//!
//! ```text
//! service                 server                  its disk             a peer
//!   | a part is whole        |                        |                   |
//!   |----------------------->| Store ---------------->|                   |
//!   |                        |<--------------- Stored |                   |
//!   | lets it go from memory |                        |                   |
//!   |                        | (a snapshot of a peer names one that is not here, or one rots)
//!   |                        | PullBlob ------------------------------->  |
//!   |                        |<------------------------------- BlobPage   |
//!   |                        | Store ---------------->|                   |
//! ```
//!
//! Invariant: what a durable snapshot of this server names is durable here. So it writes none while it lacks a blob, and drops a
//! blob only when a later snapshot that does not name it is durable. A proxy that forgets an operation because enough servers have it
//! in snapshots then forgets nothing that a lost host takes with it.

use super::{ShardQuery, ShardServer, Waiting};
use crate::order::{Gsn, Number};
use crate::service::{BlobBacked, BlobRef, Shard};
use kernel::{BlobId, BlobNotice, BlobRange, Bytes, Cx, NodeId};
use parts::Pull;
use std::collections::{BTreeMap, BTreeSet};

/// Blobs being written.
const STORES_MAX: usize = 4;
/// Parts being read for readers.
const LOADS_MAX: usize = 8;
/// Parts being read for peers; more pulls are left unanswered, and come again.
const PULLS_MAX: usize = 8;
/// The largest page of a blob on its way to a peer, in bytes.
const PAGE_BYTES_MAX: u64 = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct Blobs {
    on_disk: BTreeSet<BlobId>,
    storing: BTreeSet<BlobId>,
    /// What the state is made of and is not here.
    missing: BTreeSet<BlobId>,
    fetch: Option<Fetch>,
    /// Reads that wait for a part, by their reader and tag.
    waiting: BTreeMap<BlobRange, BTreeMap<(NodeId, u64), Bytes>>,
    loading: BTreeSet<BlobRange>,
    /// Peers that wait for a part.
    pulls: BTreeMap<BlobRange, BTreeSet<NodeId>>,
    /// What the last durable snapshot names.
    named: BTreeSet<BlobId>,
}

impl Blobs {
    /// True if none is missing, or being read or written.
    pub(super) fn are_all_here(&self) -> bool {
        let Self { storing, missing, fetch, waiting, loading, pulls, .. } = self;
        storing.is_empty()
            && missing.is_empty()
            && fetch.is_none()
            && waiting.is_empty()
            && loading.is_empty()
            && pulls.is_empty()
    }
}

/// A blob on its way here.
#[derive(Debug)]
struct Fetch {
    blob: BlobRef,
    pull: Pull,
    bytes: Vec<u8>,
}

/// The blobs that snapshots of the service's present state name.
pub(super) fn blobs_of(service: &impl Shard) -> Vec<BlobRef> {
    service.as_blob_backed().map_or_else(Vec::new, BlobBacked::blobs)
}

/// One of them.
pub(super) fn blob_of(service: &impl Shard, id: BlobId) -> Option<BlobRef> {
    service.as_blob_backed()?.blob(id)
}

impl<S: Shard> ShardServer<S> {
    /// What waits to be stored takes so much memory that nothing more must be executed.
    pub(super) fn is_full(&self) -> bool {
        self.service.as_blob_backed().is_some_and(BlobBacked::is_full)
    }

    fn note_stored(&mut self, id: BlobId) {
        if let Some(blobs) = self.service.as_blob_backed_mut() {
            blobs.stored(id);
        }
    }

    /// The blobs that are durable here.
    pub fn blobs_on_disk(&self) -> impl Iterator<Item = BlobId> {
        self.blobs.on_disk.iter().copied()
    }

    /// The blobs that the last durable snapshot names.
    pub fn blobs_named(&self) -> impl Iterator<Item = BlobId> {
        self.blobs.named.iter().copied()
    }

    pub(super) fn has_blob(&self, id: BlobId) -> bool {
        self.blobs.on_disk.contains(&id)
    }

    /// Blobs that are not here, and are fetched.
    pub fn blobs_missing(&self) -> usize {
        self.blobs.missing.len()
    }

    /// What the restored snapshot names was durable before it was; the disk says what is gone.
    pub(super) fn start_blobs(&mut self, cx: &mut Cx<'_, Self>) {
        self.blobs.on_disk = blobs_of(&self.service).iter().map(|blob| blob.id).collect();
        self.blobs.named = self.blobs.on_disk.clone();
        cx.keep_blobs(self.blobs.on_disk.iter().copied().collect());
    }

    /// A peer's snapshot was installed.
    pub(super) fn look_for_missing_blobs(&mut self) {
        let here = |blob: &BlobRef| self.blobs.on_disk.contains(&blob.id);
        self.blobs.missing =
            blobs_of(&self.service).iter().filter(|blob| !here(blob)).map(|blob| blob.id).collect();
    }

    /// Whether all that the state is made of is here.
    pub(super) fn has_all_blobs(&mut self) -> bool {
        let service = &self.service;
        self.blobs.missing.retain(|&id| blob_of(service, id).is_some());
        self.blobs.missing.is_empty()
    }

    /// A snapshot that names these is about to be durable: all others but those that the state has come to be made of are dropped.
    pub(super) fn drop_blobs_but(&mut self, named: BTreeSet<BlobId>, cx: &mut Cx<'_, Self>) {
        let service = &self.service;
        self.blobs.on_disk.retain(|&id| {
            let retained = named.contains(&id) || blob_of(service, id).is_some();
            if !retained {
                cx.drop_blob(id);
            }
            retained
        });
        self.blobs.named = named;
    }

    /// A read that needs a part of a blob waits for it.
    pub(super) fn wait_for(&mut self, range: BlobRange, reader: NodeId, query: ShardQuery) {
        // Asked again while it waits, it waits once.
        self.blobs.waiting.entry(range).or_default().insert((reader, query.tag), query.body);
    }

    pub(super) fn reads_waiting_for_blobs(&self) -> usize {
        self.blobs.waiting.values().map(BTreeMap::len).sum()
    }

    pub(super) fn step_blobs(&mut self, cx: &mut Cx<'_, Self>) {
        while self.blobs.storing.len() < STORES_MAX
            && let Some((id, bytes)) = self.service.as_blob_backed_mut().and_then(BlobBacked::unstored)
        {
            self.blobs.storing.insert(id);
            cx.store_blob(id, bytes);
            if kernel::planted!(segment_freed_before_durable) {
                self.blobs.on_disk.insert(id);
                self.note_stored(id);
            }
        }
        let Blobs { waiting, loading, on_disk, .. } = &mut self.blobs;
        for (range, _) in waiting.iter() {
            if loading.len() >= LOADS_MAX {
                break;
            }
            if on_disk.contains(&range.id) && loading.insert(*range) {
                cx.load_blob(*range);
            }
        }
        self.fetch_missing(cx);
    }

    pub(super) fn on_blob_notice(&mut self, notice: BlobNotice, cx: &mut Cx<'_, Self>) {
        match notice {
            BlobNotice::Stored { id } => {
                cx.mark("shard.stored_a_blob");
                self.blobs.storing.remove(&id);
                self.blobs.on_disk.insert(id);
                if self.blobs.missing.remove(&id) {
                    cx.mark("shard.fetched_a_blob");
                }
                self.note_stored(id);
                self.execute(cx);
            }
            BlobNotice::Loaded { range, bytes } => {
                for peer in self.blobs.pulls.remove(&range).unwrap_or_default() {
                    cx.send(
                        peer,
                        super::BlobPage { id: range.id, offset: range.offset, page: bytes.clone() },
                    );
                }
                self.blobs.loading.remove(&range);
                if let Some(reads) = self.blobs.waiting.remove(&range) {
                    cx.mark("shard.read_a_blob");
                    if let Some(blobs) = self.service.as_blob_backed_mut() {
                        blobs.loaded(range, &bytes);
                    }
                    self.read_again(reads);
                }
            }
            BlobNotice::Archived { id } => self.on_archived(id, cx),
            BlobNotice::Unarchived { id } => self.on_unarchived(id, cx),
            BlobNotice::Lost { id } => {
                self.on_lost_for_archive(id);
                self.blobs.on_disk.remove(&id);
                self.blobs.loading.retain(|range| range.id != id);
                self.blobs.pulls.retain(|range, _| range.id != id);
                if blob_of(&self.service, id).is_some() {
                    cx.mark("shard.lost_a_blob");
                    self.blobs.missing.insert(id);
                }
            }
        }
    }

    fn read_again(&mut self, reads: BTreeMap<(NodeId, u64), Bytes>) {
        for ((reader, tag), body) in reads {
            let reads = vec![ShardQuery { tag, body }];
            self.reads.push_back(Waiting {
                reader,
                at_least: Gsn(0),
                through: Number(0),
                reads,
                shard_map: None,
                limits: Vec::new(),
            });
        }
    }

    /// Reads that wait for what the state is made of no more, trimmed since: they are answered so.
    pub(super) fn read_again_what_wants_none(&mut self) {
        let service = &self.service;
        let gone: Vec<BlobRange> =
            self.blobs.waiting.keys().filter(|range| blob_of(service, range.id).is_none()).copied().collect();
        for range in gone {
            let reads = self.blobs.waiting.remove(&range).unwrap_or_default();
            self.read_again(reads);
        }
    }
}

/// Between servers. The receiver pulls, as it does a snapshot.
impl<S: Shard> ShardServer<S> {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES_MAX.min(self.parameters.snapshot_chunk_bytes as u64).max(1)
    }

    /// Goes on with the blob on its way, or begins with the next.
    fn fetch_missing(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, service) = (cx.now(), &self.service);
        self.blobs.fetch.take_if(|fetch| blob_of(service, fetch.blob.id).is_none());
        if self.blobs.fetch.as_ref().is_some_and(|fetch| !fetch.pull.is_late(now)) {
            return;
        }
        if self.blobs.fetch.is_none() && (self.blobs.storing.len() >= STORES_MAX || self.has_all_blobs()) {
            return;
        }
        let Some(peer) = self.any_peer(cx) else { return };
        let page_bytes = self.page_bytes();
        if self.blobs.fetch.is_none() {
            let mut missing = self.blobs.missing.iter().filter(|id| !self.blobs.storing.contains(id));
            let next = missing.find_map(|&id| blob_of(&self.service, id));
            self.blobs.fetch =
                next.map(|blob| Fetch { blob, pull: Pull::begin(peer, now), bytes: Vec::new() });
        }
        if let Some(fetch) = &mut self.blobs.fetch {
            // A peer that does not answer has not got it, or is gone: another goes on.
            fetch.pull.ask(peer, now);
            let (id, offset) = (fetch.blob.id, fetch.pull.next());
            cx.send(peer, super::PullBlob { id, offset, bytes: page_bytes });
        }
    }

    pub(super) fn on_pull_blob(&mut self, from: NodeId, message: &super::PullBlob, cx: &mut Cx<'_, Self>) {
        let super::PullBlob { id, offset, bytes } = *message;
        let range = BlobRange { id, offset, bytes: bytes.min(PAGE_BYTES_MAX) };
        if let Some(page) = self.service.as_blob_backed().and_then(|it| it.in_memory(range)) {
            cx.send(from, super::BlobPage { id, offset, page });
        } else if self.blobs.on_disk.contains(&id) && self.blobs.pulls.len() < PULLS_MAX {
            self.blobs.pulls.entry(range).or_default().insert(from);
            cx.load_blob(range);
        }
    }

    pub(super) fn on_blob_page(&mut self, from: NodeId, message: &super::BlobPage, cx: &mut Cx<'_, Self>) {
        let page_bytes = self.page_bytes();
        let Some(fetch) = &mut self.blobs.fetch else { return };
        if fetch.blob.id != message.id || !fetch.pull.expects(from, message.offset) {
            return;
        }
        fetch.bytes.extend_from_slice(&message.page);
        let (have, whole) = (fetch.bytes.len() as u64, fetch.blob.bytes);
        if have < whole && !message.page.is_empty() {
            fetch.pull.advance(have, cx.now());
            return cx.send(from, super::PullBlob { id: message.id, offset: have, bytes: page_bytes });
        }
        let Some(Fetch { blob, bytes, .. }) = self.blobs.fetch.take() else { return };
        if have != whole || parts::digest(&bytes) != blob.digest {
            return cx.reject("a blob that is not what a snapshot names");
        }
        self.blobs.storing.insert(blob.id);
        cx.store_blob(blob.id, bytes.into());
    }
}
