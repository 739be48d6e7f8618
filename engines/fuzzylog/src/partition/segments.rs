//! Segments: nodes that snapshots name instead of having them, each a blob of its server.
//!
//! ```text
//! own snapshot   head  clients  colours  runs of nodes in segments  loose nodes  segments' blobs
//! blob           node  node  node ...     by colour and position, each with where it is
//! ```
//! The writer of a snapshot walks the colours. Nodes that are in no segment fill one, which is cut when it is full; the rest, if it is small,
//! stays in the snapshot. So a node is written to a blob once, and again only when most of its segment was trimmed. Which nodes are in
//! which segment is each server's own affair: the state does not depend on it, and a snapshot for another server has all nodes.
//!
//! A state that is read back from a server's own snapshot has everything but the nodes of its segments. It must not be used before all of
//! them were loaded: a trim, an edge and a page all look at nodes.
//!
//! Invariant: a chain's runs are in order and disjoint, and each names nodes that its segment has at these positions.

use super::PartitionState;
use super::colours::{Chain, ColourNode, Colours};
use super::command::Placed;
use super::runs::{Run, Segment, SegmentBlob, run_at};
use crate::terms::{Colour, NodePosition};
use kernel::{BlobId, Bytes, Decode, DecodeError, Encode, Reader, Recount, planted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A segment of which less than one of so many parts is left is written again.
const SPARSE: usize = 2;
/// What is less than one of so many parts of a segment stays in the snapshot.
const LOOSE: usize = 4;

/// What a snapshot has at most of nodes that are in no segment: one item of one of its chunks, which has to fit in a record of the journal.
pub const fn loose_bytes_max(segment_bytes: usize) -> usize {
    segment_bytes / LOOSE
}

kernel::record! {
    /// A node of a segment, and where it is.
    pub(super) struct SegmentNode {
        colour: Colour,
        position: NodePosition,
        node: ColourNode,
    }
}

/// How many nodes a segment has, those included that are trimmed. An error: it is none.
pub fn nodes_in(bytes: &Bytes) -> Result<u64, DecodeError> {
    let (mut reader, mut count) = (Reader::new(bytes.clone()), 0);
    while reader.remaining() > 0 {
        SegmentNode::decoded(&Bytes::decode(&mut reader)?)?;
        count += 1;
    }
    Ok(count)
}

/// A segment that is not cut.
#[derive(Clone, Debug)]
struct Filling {
    id: BlobId,
    bytes: Vec<u8>,
    cost: usize,
    runs: Vec<(Colour, Run)>,
}

impl Filling {
    fn new(series: u64, first: u64) -> Self {
        Self { id: BlobId { series, first }, bytes: Vec::new(), cost: 0, runs: Vec::new() }
    }

    fn push(&mut self, colour: Colour, position: NodePosition, node: ColourNode, loses: bool) {
        self.cost += node.bytes();
        let last = self.runs.last_mut().filter(|(of, run)| *of == colour && run.end() == position);
        match last {
            Some((_, run)) => run.count += 1,
            None => self.runs.push((colour, Run { segment: self.id, first: position, count: 1 })),
        }
        if !loses {
            SegmentNode { colour, position, node }.encode_sized(&mut self.bytes);
        }
    }
}

/// What the snapshot has to say when all colours were walked.
#[derive(Default)]
pub(super) struct EndOfWalk {
    /// Which nodes the last segment has.
    pub(super) runs: Vec<(Colour, Run)>,
    /// Nodes that are in none, encoded as in a segment.
    pub(super) loose: Option<Bytes>,
    /// All segments.
    pub(super) named: Vec<SegmentBlob>,
}

/// What a snapshot that is written makes of segments.
#[derive(Clone, Debug)]
pub(super) struct Segmenting {
    segment_bytes: usize,
    filling: Filling,
    /// Those that are full, for the disk.
    cut: VecDeque<(BlobId, Bytes)>,
    /// Those that the snapshot names.
    named: BTreeMap<BlobId, SegmentBlob>,
    is_walked: bool,
    /// It writes segments again.
    rewrites: bool,
}

impl Segmenting {
    /// Bytes of nodes that are in the segment being filled, or wait to be taken.
    pub(super) fn bytes(&self) -> usize {
        self.filling.bytes.len() + self.cut.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }

    /// All colours were walked; what follows names segments.
    pub(super) fn is_walked(&self) -> bool {
        self.is_walked
    }

    /// Returns which nodes the segment has, if that has filled it.
    pub(super) fn push(
        &mut self,
        colour: Colour,
        position: NodePosition,
        node: ColourNode,
        colours: &mut Colours,
    ) -> Vec<(Colour, Run)> {
        colours.enter_segment(colour, position, &node, self.filling.id);
        let loses =
            planted!(rewritten_segment_loses_a_node) && self.rewrites && self.filling.bytes.is_empty();
        self.rewrites &= !loses;
        self.filling.push(colour, position, node, loses);
        if self.filling.bytes.len() < self.segment_bytes { Vec::new() } else { self.cut(colours) }
    }

    fn cut(&mut self, colours: &mut Colours) -> Vec<(Colour, Run)> {
        let BlobId { series, first } = self.filling.id;
        let next = Filling::new(series, first + 1);
        let Filling { id, bytes, cost, runs } = std::mem::replace(&mut self.filling, next);
        let blob =
            SegmentBlob { id, bytes: bytes.len() as u64, digest: parts::digest(&bytes), cost: cost as u64 };
        self.named.insert(id, blob);
        colours.segment_is_cut(blob);
        self.cut.push_back((id, bytes.into()));
        runs
    }

    /// Nothing more comes.
    pub(super) fn end_walk(&mut self, colours: &mut Colours) -> EndOfWalk {
        self.is_walked = true;
        let mut end = EndOfWalk::default();
        if self.filling.bytes.len() >= loose_bytes_max(self.segment_bytes) && !self.filling.runs.is_empty() {
            end.runs = self.cut(colours);
        } else if !self.filling.bytes.is_empty() {
            colours.leave_segment(&self.filling);
            let BlobId { series, first } = self.filling.id;
            let loose = std::mem::replace(&mut self.filling, Filling::new(series, first));
            end.loose = Some(loose.bytes.into());
        }
        end.named = self.named.values().copied().collect();
        end
    }
}

/// For a snapshot that is written.
impl Colours {
    /// A node that is written fills a segment. What was dropped meanwhile is in it, and does not count.
    fn enter_segment(&mut self, colour: Colour, position: NodePosition, node: &ColourNode, id: BlobId) {
        let segment = self.segments.all.entry(id).or_insert(Segment { blob: None, live: 0 });
        let Some(chain) = self.chains.get_mut(&colour) else { return };
        if chain.node_at(position).is_none_or(|it| it.id != node.id) {
            return;
        }
        segment.live += node.bytes();
        let after = chain.runs.partition_point(|run| run.first <= position);
        let before = after.checked_sub(1).and_then(|at| chain.runs.get_mut(at));
        match before.filter(|run| run.segment == id && run.end() == position) {
            Some(run) => run.count += 1,
            None => chain.runs.insert(after, Run { segment: id, first: position, count: 1 }),
        }
    }

    fn segment_is_cut(&mut self, blob: SegmentBlob) {
        if let Some(segment) = self.segments.all.get_mut(&blob.id) {
            segment.blob = Some(blob);
        }
        self.segments.all.retain(|_, segment| segment.live > 0 || segment.blob.is_none());
    }

    /// It will not be cut: its nodes are in no segment.
    fn leave_segment(&mut self, filling: &Filling) {
        for (colour, _) in &filling.runs {
            if let Some(chain) = self.chains.get_mut(colour) {
                chain.runs.retain(|run| run.segment != filling.id);
            }
        }
        self.segments.all.remove(&filling.id);
    }

    /// Segments of which little is left are none any more: their nodes are to be written again. Returns whether there were any.
    fn release_sparse(&mut self) -> bool {
        let is_sparse = |segment: &Segment, blob: SegmentBlob| SPARSE * segment.live < blob.cost as usize;
        let sparse: BTreeSet<BlobId> = self
            .segments
            .stored()
            .filter(|(segment, blob)| is_sparse(segment, *blob))
            .map(|(_, blob)| blob.id)
            .collect();
        if sparse.is_empty() {
            return false;
        }
        for chain in self.chains.values_mut() {
            chain.runs.retain(|run| !sparse.contains(&run.segment));
        }
        self.segments.all.retain(|id, _| !sparse.contains(id));
        true
    }

    /// What the nodes of segments cost, counted anew.
    pub(super) fn segments_recount(&self) -> Recount {
        let in_runs = |chain: &Chain| -> usize {
            let of_run = |run: &Run| {
                let skipped = (run.first.0 - chain.first.0) as usize;
                let nodes = chain.nodes.iter().skip(skipped).take(run.count as usize);
                nodes.filter(|node| !node.is_place()).map(ColourNode::bytes).sum::<usize>()
            };
            chain.runs.iter().map(of_run).sum()
        };
        let known = self.segments.all.values().map(|segment| segment.live).sum();
        Recount::of("bytes of nodes in segments", known, self.chains.values().map(in_runs).sum())
    }
}

/// For what is read back.
impl Colours {
    /// A segment has these nodes of a colour.
    pub(super) fn install_run(&mut self, colour: Colour, run: Run) -> Result<(), DecodeError> {
        let chain = self.chains.get_mut(&colour).ok_or(DecodeError::Invalid("run of no colour"))?;
        let after = chain.runs.partition_point(|known| known.first <= run.first);
        let before = after.checked_sub(1).and_then(|at| chain.runs.get(at));
        let is_free = before.is_none_or(|before| before.end() <= run.first)
            && chain.runs.get(after).is_none_or(|next| run.end() <= next.first);
        if run.first < chain.first || run.count == 0 || !is_free {
            return Err(DecodeError::Invalid("run of nodes"));
        }
        chain.runs.insert(after, run);
        self.segments.unfilled += chain.make_room(run.end());
        self.segments.is_filled = true;
        Ok(())
    }

    pub(super) fn install_segment(&mut self, blob: SegmentBlob) {
        self.segments.all.insert(blob.id, Segment { blob: Some(blob), live: 0 });
        self.segments.missing.insert(blob.id);
    }

    /// Takes nodes back: those of a segment that its runs name, or loose ones.
    pub(super) fn fill(&mut self, nodes: &Bytes, of: Option<BlobId>) -> Result<(), DecodeError> {
        self.segments.is_filled = true;
        let mut reader = Reader::new(nodes.clone());
        let mut live = 0;
        while reader.remaining() > 0 {
            let SegmentNode { colour, position, node } = SegmentNode::decoded(&Bytes::decode(&mut reader)?)?;
            let Some(chain) = self.chains.get_mut(&colour) else { continue };
            let is_of = |of: BlobId| run_at(&chain.runs, position).is_some_and(|run| run.segment == of);
            if position < chain.first || of.is_some_and(|of| !is_of(of)) {
                continue;
            }
            if node.is_place() {
                return Err(DecodeError::Invalid("node without a colour"));
            }
            self.segments.unfilled += chain.make_room(position.next());
            let at = (position.0 - chain.first.0) as usize;
            let Some(place) = chain.nodes.get_mut(at).filter(|place| place.is_place()) else {
                return Err(DecodeError::Invalid("node that is there already"));
            };
            *place = node.compact();
            live += place.bytes();
            self.segments.unfilled -= 1;
        }
        self.bytes += live;
        if let Some(segment) = of.and_then(|of| self.segments.all.get_mut(&of)) {
            segment.live += live;
        }
        Ok(())
    }
}

impl Chain {
    fn node_at(&self, position: NodePosition) -> Option<&ColourNode> {
        self.nodes.get(position.0.checked_sub(self.first.0)? as usize)
    }

    /// Makes places for nodes up to here. Returns how many.
    fn make_room(&mut self, end: NodePosition) -> u64 {
        let lacks = end.0.saturating_sub(self.tail().0);
        self.nodes.extend((0..lacks).map(|_| ColourNode::place()));
        lacks
    }
}

impl PartitionState {
    /// A snapshot of the present state for the server's own journal begins; one that was in flight is dropped. Segments of about so many
    /// bytes are cut, whose blobs are of this series, which no other snapshot has.
    pub fn begin_own_snapshot(&mut self, segment_bytes: usize, series: u64) {
        self.begin_snapshot();
        let rewrites = self.colours.release_sparse();
        if rewrites {
            self.marks.push("partition.wrote_a_segment_again");
        }
        self.colours.begin_saving(true);
        let named = self.segments().map(|blob| (blob.id, blob)).collect();
        let (filling, cut) = (Filling::new(series, 0), VecDeque::new());
        let segmenting = Segmenting { segment_bytes, filling, cut, named, is_walked: false, rewrites };
        if let Some(saving) = &mut self.saving {
            saving.segmenting = Some(segmenting);
        }
    }

    /// What is left of a segment that is not cut is in none.
    pub(super) fn leave_segment(&mut self) {
        if let Some(segmenting) = self.saving.as_mut().and_then(|saving| saving.segmenting.take()) {
            self.colours.leave_segment(&segmenting.filling);
        }
    }

    fn segmenting(&self) -> Option<&Segmenting> {
        self.saving.as_ref()?.segmenting.as_ref()
    }

    /// The next segment of the snapshot that is written, for the disk.
    pub fn take_cut_segment(&mut self) -> Option<(BlobId, Bytes)> {
        self.saving.as_mut()?.segmenting.as_mut()?.cut.pop_front()
    }

    /// All segments of the snapshot that is written are cut.
    pub fn has_cut_all_segments(&self) -> bool {
        self.segmenting().is_some_and(|it| it.is_walked && it.cut.is_empty())
    }

    /// The segments that the snapshot that is written names.
    pub fn named_segments(&self) -> impl Iterator<Item = BlobId> {
        self.segmenting().into_iter().flat_map(|it| it.named.keys().copied())
    }

    /// The segments that have nodes of the state.
    pub fn segments(&self) -> impl Iterator<Item = SegmentBlob> {
        self.colours.segments.stored().map(|(_, blob)| blob)
    }

    /// Bytes of the segments' blobs.
    pub fn segment_bytes(&self) -> usize {
        self.segments().map(|blob| blob.bytes as usize).sum()
    }

    /// Segments that are not loaded: the state must not be used before all are.
    pub fn missing_segments(&self) -> impl Iterator<Item = SegmentBlob> {
        let segments = &self.colours.segments;
        segments.missing.iter().filter_map(|id| segments.all.get(id)?.blob)
    }

    /// Takes a segment's nodes back. An error: it is not what the snapshot names.
    pub fn load_segment(&mut self, id: BlobId, bytes: &Bytes) -> Result<(), DecodeError> {
        let blob = self.missing_segments().find(|blob| blob.id == id);
        let blob = blob.ok_or(DecodeError::Invalid("segment"))?;
        if blob.bytes != bytes.len() as u64 || blob.digest != parts::digest(bytes) {
            return Err(DecodeError::Invalid("digest of a segment"));
        }
        self.colours.fill(bytes, Some(id))?;
        self.colours.segments.missing.remove(&id);
        self.end_filling()
    }

    /// All nodes must be there when all segments are.
    pub(super) fn end_filling(&mut self) -> Result<(), DecodeError> {
        let segments = &mut self.colours.segments;
        if !segments.missing.is_empty() || !std::mem::take(&mut segments.is_filled) {
            return Ok(());
        }
        if segments.unfilled > 0 {
            return Err(DecodeError::Invalid("nodes that no segment has"));
        }
        segments.all.retain(|_, segment| segment.live > 0);
        let Some(regions) = &mut self.regions else { return Ok(()) };
        for (&colour, chain) in &self.colours.chains {
            for (position, node) in (chain.first.0..).map(NodePosition).zip(&chain.nodes) {
                regions.install_node(Placed { colour, position }, node);
            }
        }
        Ok(())
    }
}
