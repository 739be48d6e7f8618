//! Which nodes of a colour are in which segment, and what is left of each segment.

use crate::terms::NodePosition;
use kernel::BlobId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

kernel::record! {
    /// A segment as its snapshot names it.
    #[derive(Copy)]
    pub struct SegmentBlob {
        /// The blob.
        id: BlobId,
        /// Its length.
        bytes: u64,
        /// Its digest.
        digest: u64,
        /// What its nodes cost when it was cut.
        cost: u64,
    }
}

/// Consecutive nodes of a colour that are in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) segment: BlobId,
    pub(super) first: NodePosition,
    pub(super) count: u64,
}

impl Run {
    pub(super) fn end(self) -> NodePosition {
        self.first.plus(self.count)
    }

    fn has(self, position: NodePosition) -> bool {
        self.first <= position && position < self.end()
    }
}

/// The run that has a position.
pub(super) fn run_at(runs: &VecDeque<Run>, position: NodePosition) -> Option<Run> {
    let after = runs.partition_point(|run| run.first <= position);
    let run = *runs.get(after.checked_sub(1)?)?;
    run.has(position).then_some(run)
}

#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// None: it is being filled.
    pub(super) blob: Option<SegmentBlob>,
    /// What its nodes cost that are left.
    pub(super) live: usize,
}

/// The segments that have nodes of a state.
#[derive(Clone, Debug, Default)]
pub(super) struct Segments {
    pub(super) all: BTreeMap<BlobId, Segment>,
    /// Those that are not loaded.
    pub(super) missing: BTreeSet<BlobId>,
    /// Nodes of which only the place is known, here or in a segment.
    pub(super) unfilled: u64,
    /// The state was read back from a snapshot that names segments, or could have.
    pub(super) is_filled: bool,
}

impl Segments {
    /// A node of a segment is gone.
    pub(super) fn lost(&mut self, id: BlobId, bytes: usize) {
        if let Some(segment) = self.all.get_mut(&id) {
            segment.live = segment.live.saturating_sub(bytes);
            if segment.live == 0 && segment.blob.is_some() {
                self.all.remove(&id);
            }
        }
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = (&Segment, SegmentBlob)> {
        self.all.values().filter_map(|segment| Some((segment, segment.blob?)))
    }
}
