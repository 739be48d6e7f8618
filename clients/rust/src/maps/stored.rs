//! Views in the log: a shard's view is stored in a colour of its own, and what it covers is trimmed behind it.
//!
//! ```text
//! colour m.0         ....nodes that were trimmed.... | nodes that no stored view but the last covers | nodes that none covers
//! colour m.0.view    begun A, chunk, chunk, stored A, begun B, chunk, chunk, stored B
//! ```
//! A view begins with a node that names the last one before it, and counts if that is still the last one when it ends. So of two that are
//! stored at once the first to end counts, and the other one is nothing: its end says so to everybody alike. Each that counts covers at least
//! as much as the one before it. The last two stay: readers, and backups that are being taken, have the older one and the nodes behind it.
//!
//! Among several regions each has views of its own, since positions are: a colour of views has those of all regions, and of them only the
//! region's own count. A trim drops the others with its own ones. It waits for regions that have not copied what it drops, so what is left may
//! begin anywhere; then a view that counted is one that a later one names.
//!
//! Invariant: nodes are trimmed up to where the last view but one ends to cover them, and views up to where that one begins.

use super::log::MapLog;
use crate::CallError;
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, Decode as _, Encode as _};

/// How often a view is looked up that somebody else trims meanwhile; each time a newer one was stored.
const ROUNDS_MAX: usize = 16;

kernel::messages! {
    /// What a node of a colour of views says.
    pub enum ViewNode {
        /// A view begins. Its position names the view.
        1 => ViewBegun {
            /// The last view that counted: where it began.
            after: Option<u64>,
        },
        /// A part of a view.
        2 => ViewChunk {
            /// Where the view began.
            view: u64,
            /// Counts the view's chunks, from 0.
            index: u32,
            /// A part of its bytes.
            bytes: Bytes,
        },
        /// All of a view is there.
        3 => ViewStored {
            /// Where it began.
            view: u64,
            /// As its beginning says; it counts if no other one has counted since.
            after: Option<u64>,
            /// It is made of the nodes below this position.
            covers: u64,
            /// How many chunks it has.
            chunks: u32,
            /// Its bytes.
            len: u64,
            /// What it takes in memory when it is loaded, about, in bytes.
            takes: u64,
        },
    }
}

/// A view that is stored whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredView {
    /// It is made of the nodes of its colour below this position.
    pub covers: u64,
    /// Its bytes.
    pub len: u64,
    /// Where it begins in the colour of views, and where it ends.
    begun: u64,
    stored: u64,
    chunks: u32,
    takes: u64,
}

/// When views are stored, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewLimits {
    /// A view is stored when so many bytes of nodes were played since the last one; at least 1. Up to three times as many stay in the log.
    pub log_bytes: u64,
    /// The longest view that is stored or loaded, in bytes; while one is, it is in memory twice.
    pub view_bytes: usize,
    /// The longest chunk, in bytes; at most 512 KiB, which a node holds.
    pub chunk_bytes: usize,
}

/// Chunks beyond this do not surely fit into a node.
const CHUNK_BYTES_MAX: usize = 512 << 10;

impl Default for ViewLimits {
    fn default() -> Self {
        Self { log_bytes: 8 << 20, view_bytes: VIEW_BYTES_MAX, chunk_bytes: 256 << 10 }
    }
}

/// The longest view that is loaded.
const VIEW_BYTES_MAX: usize = 256 << 20;

/// Why a view was not stored. Nothing that is needed was dropped, and it may be tried again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The log is not trimmed.
    #[error("a view of {bytes} bytes is longer than {limit}: it is not stored, and its log is not trimmed")]
    TooLarge {
        /// The view's bytes.
        bytes: usize,
        /// The longest that is stored.
        limit: usize,
    },
    /// The log's word. A part of the view may be stored, which nobody loads and the next one trims.
    #[error(transparent)]
    Log(#[from] FuzzyError),
}

/// What the nodes of a colour of views say.
#[derive(Clone, Default, Debug)]
pub(super) struct StoredViews {
    /// The first position that was not read.
    next: u64,
    /// A beginning was read.
    has_begun: bool,
    /// Where the last view that counts began, which may be trimmed.
    after: Option<u64>,
    /// The last view that counts, and the one before it, if they are there.
    last: Option<StoredView>,
    before: Option<StoredView>,
}

impl StoredViews {
    pub(super) fn last(&self) -> Option<&StoredView> {
        self.last.as_ref()
    }

    fn take(&mut self, node: &FuzzyNode) {
        match ViewNode::decoded(&node.body) {
            // The colour begins, or was trimmed up to a view that counted: what it names was the last one then.
            Ok(ViewNode::ViewBegun(begun)) if !self.has_begun => {
                (self.has_begun, self.after) = (true, begun.after);
            }
            Ok(ViewNode::ViewStored(stored)) if self.has_begun && stored.after == self.after => {
                let ViewStored { view, covers, chunks, len, takes, .. } = stored;
                self.after = Some(view);
                self.before = self.last;
                let stored = node.position;
                self.last = Some(StoredView { covers, len, begun: view, stored, chunks, takes });
            }
            Ok(ViewNode::ViewBegun(_) | ViewNode::ViewChunk(_) | ViewNode::ViewStored(_)) | Err(_) => {}
        }
    }
}

fn body_of(node: impl Into<ViewNode>) -> Bytes {
    node.into().encoded().into()
}

fn unreadable(colour: &str) -> FuzzyError {
    FuzzyError::Unreached(CallError::Unreadable(format!("the view that is stored in {colour}")))
}

/// The views of one colour.
#[derive(Clone, Debug)]
pub(super) struct ViewStore<L> {
    log: L,
    colour: String,
    views: String,
}

impl<L: MapLog> ViewStore<L> {
    /// Those of this colour.
    pub(super) fn of(log: L, colour: &str) -> Self {
        Self { log, colour: colour.to_owned(), views: format!("{colour}.view") }
    }

    /// Another region's views are none here.
    fn is_own(&self, node: &FuzzyNode) -> bool {
        let own = self.log.region();
        node.origin.as_ref().is_none_or(|origin| own.is_some_and(|own| own == origin.region))
    }

    /// Where to begin, of what is left behind a trim: with a view that counted.
    async fn begin(&self, first: u64) -> Result<u64, FuzzyError> {
        let (mut next, mut end, mut named) = (first, None, None::<u64>);
        while end.is_none_or(|end| next < end) {
            let page = self.log.play(&self.views, next, end).await?;
            if !self.log.is_among_regions() {
                // A trim begins exactly there.
                return Ok(first);
            }
            for node in page.nodes.iter().filter(|node| self.is_own(node)) {
                if let Ok(ViewNode::ViewBegun(ViewBegun { after })) = ViewNode::decoded(&node.body) {
                    named = named.max(after.filter(|after| *after >= first));
                }
            }
            (next, end) = (page.next, Some(page.tail));
        }
        Ok(named.unwrap_or(first))
    }

    async fn append(&self, node: impl Into<ViewNode> + Send) -> Result<u64, FuzzyError> {
        let body = body_of(node);
        let appended = self.log.append(vec![(self.views.clone(), body)]).await?;
        appended.positions.get(&self.views).copied().ok_or_else(|| unreadable(&self.views))
    }

    /// Reads on, up to what was appended before.
    pub(super) async fn read(&self, known: &mut StoredViews) -> Result<(), FuzzyError> {
        let (mut end, mut rounds) = (None, 0);
        while end.is_none_or(|end| known.next < end) {
            match self.log.play(&self.views, known.next, end).await {
                Ok(page) => {
                    page.nodes.iter().filter(|node| self.is_own(node)).for_each(|node| known.take(node));
                    (known.next, end) = (page.next, Some(page.tail));
                }
                Err(FuzzyError::AlreadyTrimmed { resume_from }) if rounds < ROUNDS_MAX => {
                    (end, rounds) = (None, rounds + 1);
                    match self.begin(resume_from).await {
                        Ok(next) => *known = StoredViews { next, ..StoredViews::default() },
                        // More was trimmed meanwhile: the next play says so, too.
                        Err(FuzzyError::AlreadyTrimmed { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Stores a view as the next one, and reads whether it counts.
    pub(super) async fn write(
        &self,
        known: &mut StoredViews,
        covers: u64,
        (view, takes): (&[u8], usize),
        chunk_bytes: usize,
    ) -> Result<Option<StoredView>, FuzzyError> {
        let after = known.after;
        let begun = self.append(ViewBegun { after }).await?;
        let mut chunks = 0;
        for bytes in view.chunks(chunk_bytes.clamp(1, CHUNK_BYTES_MAX)) {
            let bytes = Bytes::copy_from_slice(bytes);
            self.append(ViewChunk { view: begun, index: chunks, bytes }).await?;
            chunks += 1;
        }
        let (len, takes) = (view.len() as u64, takes as u64);
        self.append(ViewStored { view: begun, after, covers, chunks, len, takes }).await?;
        self.read(known).await?;
        Ok(known.last.filter(|last| last.begun == begun))
    }

    /// Trims what the last view but one covers, and the views before that one.
    pub(super) async fn trim(&self, known: &StoredViews) -> Result<(), FuzzyError> {
        let Some(before) = known.before else { return Ok(()) };
        self.log.trim(&self.colour, before.covers).await?;
        self.log.trim(&self.views, before.begun).await
    }

    /// The last view, which covers the nodes below a position that were trimmed.
    pub(super) async fn load(
        &self,
        first: u64,
        has_room: impl Fn(u64) -> Result<(), FuzzyError>,
    ) -> Result<(StoredView, Bytes), FuzzyError> {
        let trimmed = FuzzyError::AlreadyTrimmed { resume_from: first };
        for _ in 0..ROUNDS_MAX {
            let mut known = StoredViews::default();
            self.read(&mut known).await?;
            // Else it was trimmed by somebody who has stored no view.
            let Some(last) = known.last.filter(|last| last.covers >= first) else { return Err(trimmed) };
            has_room(last.len.saturating_add(last.takes))?;
            match self.bytes_of(&last).await {
                Ok(bytes) => return Ok((last, bytes)),
                Err(FuzzyError::AlreadyTrimmed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(trimmed)
    }

    async fn bytes_of(&self, stored: &StoredView) -> Result<Bytes, FuzzyError> {
        if stored.len > VIEW_BYTES_MAX as u64 || stored.begun >= stored.stored {
            return Err(unreadable(&self.views));
        }
        let (mut next, mut chunks, mut view) = (stored.begun, 0, Vec::new());
        while next < stored.stored {
            let page = self.log.play(&self.views, next, Some(stored.stored)).await?;
            for node in page.nodes.iter().filter(|node| self.is_own(node)) {
                let Ok(ViewNode::ViewChunk(chunk)) = ViewNode::decoded(&node.body) else { continue };
                if chunk.view == stored.begun {
                    if chunk.index != chunks || (view.len() + chunk.bytes.len()) as u64 > stored.len {
                        return Err(unreadable(&self.views));
                    }
                    view.extend_from_slice(&chunk.bytes);
                    chunks += 1;
                }
            }
            next = page.next;
        }
        let is_whole = chunks == stored.chunks && view.len() as u64 == stored.len;
        if is_whole { Ok(view.into()) } else { Err(unreadable(&self.views)) }
    }
}
