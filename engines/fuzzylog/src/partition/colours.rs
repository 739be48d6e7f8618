//! The chains of a partition's colours.

use super::runs::{Run, Segments, run_at};
use crate::terms::{
    AppendId, AppendTime, Colour, Edge, MapVersion, NodePosition, RegionId, RestoreId, begins_with,
};
use kernel::{Bytes, Decode, DecodeError, Encode, Reader, Recount, planted};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A node of a colour.
#[derive(Clone, PartialEq, Debug)]
pub struct ColourNode {
    /// The append.
    pub id: AppendId,
    /// When it was delivered in this region: later than the nodes before.
    pub at: AppendTime,
    /// All its colours, other partitions' too.
    pub colours: Vec<Colour>,
    /// The body.
    pub body: Bytes,
    /// What it has to do with other regions, if it has.
    pub across: Option<Box<Across>>,
}

kernel::record! {
    /// What a node has to do with other regions.
    pub struct Across {
        /// What of other regions comes before it, as far as that is not before the nodes before it in its own region's log.
        edges: Vec<Edge>,
        /// Where it was appended. A node that is stored in its own region has none; on a page of several regions each has one.
        source: Option<NodeSource>,
    }
}

kernel::record! {
    /// Where a node was appended.
    pub struct NodeSource {
        /// The region.
        region: RegionId,
        /// Which node of that region's log of the colour; the first is 0.
        number: u64,
        /// When it was delivered there.
        at: AppendTime,
    }
}

impl ColourNode {
    /// What it costs on a page and in memory, about.
    pub fn bytes(&self) -> usize {
        let across = self.across.as_ref().map_or(0, |it| ACROSS_BYTES + size_of::<Edge>() * it.edges.len());
        NODE_HEAD_BYTES + self.body.len() + size_of::<Colour>() * self.colours.len() + across
    }

    /// Without what does not belong to it of the memory that it was read from.
    pub(super) fn compact(&self) -> Self {
        Self { body: Bytes::copy_from_slice(&self.body), ..self.clone() }
    }

    /// Stands where a node will be: none is without a colour.
    pub(super) fn place() -> Self {
        let id = AppendId { client: 0, number: 0, content: 0 };
        Self { id, at: AppendTime::ZERO, colours: Vec::new(), body: Bytes::new(), across: None }
    }

    pub(super) fn is_place(&self) -> bool {
        self.colours.is_empty()
    }

    /// Where it was appended, if it says so.
    pub fn source(&self) -> Option<&NodeSource> {
        self.across.as_ref()?.source.as_ref()
    }

    /// Its edges to other regions.
    pub fn edges(&self) -> &[Edge] {
        self.across.as_ref().map_or(&[], |it| &it.edges)
    }
}

/// Stands where the number of colours does, if something about other regions follows the body.
const ACROSS: u32 = u32::MAX;

impl Encode for ColourNode {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.at.encode(out);
        // Without regions it is written as it was before there were any.
        if self.across.is_some() {
            ACROSS.encode(out);
        }
        self.colours.encode(out);
        self.body.encode(out);
        if let Some(across) = &self.across {
            across.encode(out);
        }
    }
}

impl Decode for ColourNode {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let (id, at) = (AppendId::decode(input)?, AppendTime::decode(input)?);
        let is_across = begins_with(ACROSS, input)?;
        let (colours, body) = (Vec::decode(input)?, Bytes::decode(input)?);
        let across = if is_across { Some(Box::decode(input)?) } else { None };
        Ok(Self { id, at, colours, body, across })
    }
}

/// What it costs a node to have to do with other regions, beside its edges.
const ACROSS_BYTES: usize = 64;

/// What a node costs beside its body and its colours.
const NODE_HEAD_BYTES: usize = 64;
/// What a colour costs beside its nodes: it stays when they are gone, because positions go on.
const COLOUR_BYTES: usize = 128;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chain {
    pub(super) first: NodePosition,
    pub(super) nodes: VecDeque<ColourNode>,
    /// When the last node was delivered, which may be dropped by now.
    pub(super) last: AppendTime,
    /// Out of view: this makes it.
    pub(super) made_by: Option<Maker>,
    /// Which nodes are in segments.
    pub(super) runs: VecDeque<Run>,
}

/// What makes a colour that is out of view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Maker {
    /// A restore.
    Restore(RestoreId),
    /// A move that brings it here.
    Move(MapVersion),
}

impl Chain {
    pub(super) fn tail(&self) -> NodePosition {
        self.first.plus(self.nodes.len() as u64)
    }
}

/// The colours that have had a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Colours {
    pub(super) chains: BTreeMap<Colour, Chain>,
    pub(super) bytes: usize,
    pub(super) segments: Segments,
    saved: Option<SavedColours>,
}

/// The colours as they were when a snapshot began, as far as they are not written.
#[derive(Clone, Debug, Default)]
struct SavedColours {
    /// Nodes that are in segments are not written.
    in_segments: bool,
    /// All colours up to this one are written.
    after: Option<Colour>,
    /// The one that is written now, and its next node.
    current: Option<(Colour, NodePosition)>,
    /// How colours were that have changed since; the current one in any case.
    was: BTreeMap<Colour, WasChain>,
}

/// A colour as it was.
#[derive(Clone, Debug)]
struct WasChain {
    /// It had had a node.
    exists: bool,
    first: NodePosition,
    tail: NodePosition,
    last: AppendTime,
    made_by: Option<Maker>,
    /// Nodes that are in segments, and need not be written.
    runs: VecDeque<Run>,
    /// Nodes that were dropped since and are not written, in order: those before what is left.
    dropped: VecDeque<(NodePosition, ColourNode)>,
}

impl WasChain {
    fn of(chain: Option<&Chain>, in_segments: bool) -> Self {
        let (first, tail) = chain.map_or_else(Default::default, |it| (it.first, it.tail()));
        let last = chain.map_or(AppendTime::ZERO, |it| it.last);
        let made_by = chain.and_then(|it| it.made_by);
        let runs = chain.filter(|_| in_segments).map_or_else(VecDeque::new, |it| it.runs.clone());
        Self { exists: chain.is_some(), first, tail, last, made_by, runs, dropped: VecDeque::new() }
    }
}

/// What comes next of what is written.
pub(super) enum SavedPart {
    /// A colour: its first node, when its last one was delivered, and by what it is made, if it is out of view.
    Colour(Colour, NodePosition, AppendTime, Option<Maker>),
    /// Its next node.
    Node(Colour, NodePosition, ColourNode),
    /// Its next nodes are in a segment.
    Run(Colour, Run),
}

impl Colours {
    /// A colour that is in view.
    pub(super) fn chain(&self, colour: Colour) -> Option<&Chain> {
        self.chains.get(&colour).filter(|chain| chain.made_by.is_none())
    }

    /// The position after the colour's last node.
    pub(super) fn tail(&self, colour: Colour) -> NodePosition {
        self.chain(colour).map_or(NodePosition(0), Chain::tail)
    }

    /// The first node that is left.
    pub(super) fn first(&self, colour: Colour) -> NodePosition {
        self.chain(colour).map_or(NodePosition(0), |chain| chain.first)
    }

    /// When its last node was delivered.
    pub(super) fn last_time(&self, colour: Colour) -> AppendTime {
        self.chain(colour).map_or(AppendTime::ZERO, |chain| chain.last)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of nodes, counted anew.
    pub(super) fn recount(&self) -> Recount {
        let nodes = self.chains.values().flat_map(|chain| &chain.nodes).filter(|node| !node.is_place());
        Recount::of("bytes of nodes", self.bytes, nodes.map(ColourNode::bytes).sum())
    }

    /// What colours cost beside their nodes.
    pub(super) fn head_bytes(&self) -> usize {
        COLOUR_BYTES * self.chains.len()
    }

    /// Returns where the node stands.
    pub(super) fn push(&mut self, colour: Colour, node: ColourNode) -> NodePosition {
        self.save(colour);
        let chain = self.chains.entry(colour).or_default();
        let before = chain.last;
        kernel::invariant!(
            TS,
            before < node.at
                || planted!(delivered_before_pending)
                || planted!(clock_not_raised)
                || planted!(repeated_proposal_is_new),
            "colour {colour}: {:?} follows {before:?}",
            node.at
        );
        kernel::invariant!(
            ATOMIC,
            chain.made_by.is_none(),
            "{:?} goes to colour {colour}, which is out of view",
            node.id
        );
        let position = chain.tail();
        self.bytes += node.bytes();
        chain.last = node.at;
        chain.nodes.push_back(node);
        position
    }

    /// Nodes from a position on.
    pub(super) fn nodes(&self, colour: Colour, from: NodePosition) -> impl Iterator<Item = &ColourNode> {
        let chain = self.chain(colour);
        let skipped = chain.map_or(0, |chain| from.0.saturating_sub(chain.first.0) as usize);
        chain.into_iter().flat_map(move |chain| chain.nodes.iter().skip(skipped))
    }

    /// Drops nodes below a position, which is not beyond the tail. They stay in their other colours.
    pub(super) fn trim(&mut self, colour: Colour, before: NodePosition) {
        let mut dropped = Vec::new();
        while self.first(colour) < before
            && let Some(node) = self.drop_first(colour)
        {
            if planted!(trim_drops_other_colours) {
                dropped.push(node);
            }
        }
        for other in dropped.iter().flat_map(|node| node.colours.clone()) {
            let is_dropped = |front: &ColourNode| dropped.iter().any(|it| it.id == front.id);
            while self.nodes(other, NodePosition(0)).next().is_some_and(is_dropped) {
                self.drop_first(other);
            }
        }
    }

    fn drop_first(&mut self, colour: Colour) -> Option<ColourNode> {
        self.save(colour);
        let chain = self.chains.get_mut(&colour)?;
        let node = chain.nodes.pop_front()?;
        let position = chain.first;
        chain.first = position.next();
        self.bytes -= node.bytes();
        if let Some(run) = chain.runs.front_mut().filter(|run| run.first == position) {
            self.segments.lost(run.segment, node.bytes());
            (run.first, run.count) = (position.next(), run.count - 1);
            if run.count == 0 {
                chain.runs.pop_front();
            }
        }
        if let Some(saved) = &mut self.saved
            && let Some(was) = saved.was.get_mut(&colour)
        {
            let next = saved.current.filter(|(current, _)| *current == colour).map_or(was.first, |it| it.1);
            if position >= next && position < was.tail && run_at(&was.runs, position).is_none() {
                was.dropped.push_back((position, node.clone()));
            }
        }
        Some(node)
    }

    pub(super) fn chains(&self) -> impl Iterator<Item = (Colour, &Chain)> {
        self.chains_from(Colour(0))
    }

    /// Those that are in view.
    pub(super) fn chains_from(&self, first: Colour) -> impl Iterator<Item = (Colour, &Chain)> {
        let in_view = self.chains.range(first..).filter(|(_, chain)| chain.made_by.is_none());
        in_view.map(|(&colour, chain)| (colour, chain))
    }
}

/// For what is made out of view.
impl Colours {
    /// What makes a colour.
    pub(super) fn made(&self, colour: Colour) -> Option<Maker> {
        self.chains.get(&colour)?.made_by
    }

    /// The restore that makes a colour, and the colour as far as it is made.
    pub(super) fn restored(&self, colour: Colour) -> Option<(RestoreId, &Chain)> {
        let chain = self.chains.get(&colour)?;
        match chain.made_by {
            Some(Maker::Restore(restore)) => Some((restore, chain)),
            Some(Maker::Move(_)) | None => None,
        }
    }

    /// A colour that has nothing in view is made by this restore from now on, and begins at a position.
    pub(super) fn begin_restoring(&mut self, colour: Colour, restore: RestoreId, first: NodePosition) {
        self.clear(colour);
        let chain = self.chains.entry(colour).or_default();
        (chain.first, chain.made_by) = (first, Some(Maker::Restore(restore)));
    }

    /// The same by a move: it begins there, and its last node was delivered then.
    pub(super) fn begin_taking(
        &mut self,
        colour: Colour,
        id: MapVersion,
        first: NodePosition,
        last: AppendTime,
    ) {
        self.clear(colour);
        let chain = self.chains.entry(colour).or_default();
        (chain.first, chain.last, chain.made_by) = (first, last, Some(Maker::Move(id)));
    }

    /// Puts a node behind those that were put there.
    pub(super) fn push_made(&mut self, colour: Colour, node: ColourNode) {
        self.save(colour);
        if let Some(chain) = self.chains.get_mut(&colour) {
            self.bytes += node.bytes();
            chain.last = node.at.max(chain.last);
            chain.nodes.push_back(node);
        }
    }

    /// A colour that came is in view.
    pub(super) fn show(&mut self, colour: Colour) {
        self.save(colour);
        if let Some(chain) = self.chains.get_mut(&colour) {
            chain.made_by = None;
        }
    }

    /// Drops a colour that this move has brought, if it is not in view.
    pub(super) fn remove_taken(&mut self, colour: Colour, id: MapVersion) {
        if self.made(colour) == Some(Maker::Move(id)) {
            self.remove(colour);
        }
    }

    /// Drops a colour, as if it had never been here.
    pub(super) fn remove(&mut self, colour: Colour) {
        self.clear(colour);
        self.chains.remove(&colour);
    }

    /// Drops all of a colour, which is as if it had never had a node.
    fn clear(&mut self, colour: Colour) {
        // What a snapshot has not written yet is retained for it.
        self.save(colour);
        while self.drop_first(colour).is_some() {}
        if let Some(chain) = self.chains.get_mut(&colour) {
            *chain = Chain::default();
        }
    }

    /// What this restore has made comes into view; what others have is dropped. Returns how many colours came.
    pub(super) fn open(&mut self, restore: RestoreId, at: AppendTime) -> NodePosition {
        let made = self.chains.iter().filter_map(|(&colour, chain)| match chain.made_by? {
            Maker::Restore(by) => Some((colour, by)),
            Maker::Move(_) => None,
        });
        let made: Vec<(Colour, RestoreId)> = made.collect();
        let mut opened = NodePosition(0);
        for (colour, by) in made {
            if by != restore {
                self.clear(colour);
                continue;
            }
            self.save(colour);
            if let Some(chain) = self.chains.get_mut(&colour) {
                // Who has seen one of them has seen that all of them came.
                (chain.made_by, chain.last) = (None, at);
                opened = opened.next();
            }
        }
        opened
    }
}

/// For snapshots.
impl Colours {
    /// The colours are to be written as they are now, with or without the nodes that are in segments.
    pub(super) fn begin_saving(&mut self, in_segments: bool) {
        self.saved = Some(SavedColours { in_segments, ..SavedColours::default() });
    }

    pub(super) fn end_saving(&mut self) {
        self.saved = None;
    }

    /// A colour is about to change.
    fn save(&mut self, colour: Colour) {
        // Those before the current one are written, or are new.
        if let Some(saved) = &mut self.saved
            && saved.after.is_none_or(|after| colour > after)
            && saved.current.is_none_or(|(current, _)| colour >= current)
        {
            let in_segments = saved.in_segments;
            saved.was.entry(colour).or_insert_with(|| WasChain::of(self.chains.get(&colour), in_segments));
        }
    }

    /// What comes next of the colours as they were when the snapshot began.
    pub(super) fn next_saved(&mut self) -> Option<SavedPart> {
        loop {
            let saved = self.saved.as_mut()?;
            if let Some((colour, next)) = saved.current {
                let was = saved.was.get_mut(&colour)?;
                if let Some(run) = run_at(&was.runs, next) {
                    saved.current = Some((colour, run.end()));
                    return Some(SavedPart::Run(colour, run));
                }
                if next < was.tail {
                    saved.current = Some((colour, next.next()));
                    // One that was dropped as a whole has its nodes among those that were dropped.
                    let dropped = was.dropped.pop_front_if(|(position, _)| *position == next);
                    let chain = self.chains.get(&colour);
                    let nth = chain.and_then(|chain| next.0.checked_sub(chain.first.0));
                    let left = || nth.and_then(|nth| chain?.nodes.get(nth as usize)).cloned();
                    if let Some(node) = dropped.map(|(_, node)| node).or_else(left) {
                        return Some(SavedPart::Node(colour, next, node));
                    }
                    continue;
                }
                saved.was.remove(&colour);
                (saved.after, saved.current) = (Some(colour), None);
            }
            let first = saved.after.map_or(Bound::Unbounded, Bound::Excluded);
            let stored = self.chains.range((first, Bound::Unbounded)).next().map(|(&colour, _)| colour);
            let changed = saved.was.first_key_value().map(|(&colour, _)| colour);
            let colour = stored.into_iter().chain(changed).min()?;
            let in_segments = saved.in_segments;
            let was = saved
                .was
                .entry(colour)
                .or_insert_with(|| WasChain::of(self.chains.get(&colour), in_segments));
            saved.current = Some((colour, was.first));
            if was.exists {
                return Some(SavedPart::Colour(colour, was.first, was.last, was.made_by));
            }
        }
    }

    /// Takes a colour back from a snapshot.
    pub(super) fn install(
        &mut self,
        colour: Colour,
        first: NodePosition,
        last: AppendTime,
        made_by: Option<Maker>,
    ) {
        let first = if planted!(snapshot_without_trims) { NodePosition(0) } else { first };
        self.chains.insert(colour, Chain { first, last, made_by, ..Chain::default() });
    }

    /// Takes a node back.
    pub(super) fn install_node(&mut self, colour: Colour, node: ColourNode) {
        self.bytes += node.bytes();
        self.chains.entry(colour).or_default().nodes.push_back(node);
    }
}
