//! The chains of a partition's colours.

use crate::terms::{AppendId, AppendTime, Colour, NodePosition};
use kernel::{Bytes, planted};
use std::collections::{BTreeMap, VecDeque};

kernel::record! {
    /// A node of a colour.
    pub struct ColourNode {
        /// The append.
        id: AppendId,
        /// When it was delivered: later than the nodes before.
        at: AppendTime,
        /// All its colours, other partitions' too.
        colours: Vec<Colour>,
        /// The body.
        body: Bytes,
    }
}

impl ColourNode {
    /// What it costs on a page and in memory, about.
    pub fn bytes(&self) -> usize {
        NODE_HEAD_BYTES + self.body.len() + size_of::<Colour>() * self.colours.len()
    }
}

/// What a node costs beside its body and its colours.
const NODE_HEAD_BYTES: usize = 64;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chain {
    pub(super) first: NodePosition,
    pub(super) nodes: VecDeque<ColourNode>,
    /// When the last node was delivered, which may be dropped by now.
    pub(super) last: AppendTime,
}

impl Chain {
    fn tail(&self) -> NodePosition {
        self.first.plus(self.nodes.len() as u64)
    }
}

/// The colours that have had a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Colours {
    chains: BTreeMap<Colour, Chain>,
    bytes: usize,
}

impl Colours {
    /// The position after the colour's last node.
    pub(super) fn tail(&self, colour: Colour) -> NodePosition {
        self.chains.get(&colour).map_or(NodePosition(0), Chain::tail)
    }

    /// The first node that is left.
    pub(super) fn first(&self, colour: Colour) -> NodePosition {
        self.chains.get(&colour).map_or(NodePosition(0), |chain| chain.first)
    }

    /// When its last node was delivered.
    pub(super) fn last_time(&self, colour: Colour) -> AppendTime {
        self.chains.get(&colour).map_or(AppendTime::ZERO, |chain| chain.last)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns where the node stands.
    pub(super) fn push(&mut self, colour: Colour, node: ColourNode) -> NodePosition {
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
        let position = chain.tail();
        self.bytes += node.bytes();
        chain.last = node.at;
        chain.nodes.push_back(node);
        position
    }

    /// Nodes from a position on.
    pub(super) fn nodes(&self, colour: Colour, from: NodePosition) -> impl Iterator<Item = &ColourNode> {
        let chain = self.chains.get(&colour);
        let skipped = chain.map_or(0, |chain| from.0.saturating_sub(chain.first.0) as usize);
        chain.into_iter().flat_map(move |chain| chain.nodes.iter().skip(skipped))
    }

    /// Drops nodes below a position, which is not beyond the tail. They stay in their other colours.
    pub(super) fn trim(&mut self, colour: Colour, before: NodePosition) {
        let Some(chain) = self.chains.get_mut(&colour) else { return };
        let mut dropped = Vec::new();
        while chain.first < before
            && let Some(node) = chain.nodes.pop_front()
        {
            chain.first = chain.first.next();
            self.bytes -= node.bytes();
            dropped.push(node);
        }
        if planted!(trim_drops_other_colours) {
            for other in dropped.iter().flat_map(|node| node.colours.clone()) {
                let Some(chain) = self.chains.get_mut(&other) else { continue };
                while chain.nodes.front().is_some_and(|front| dropped.iter().any(|it| it.id == front.id)) {
                    chain.first = chain.first.next();
                    self.bytes -= chain.nodes.pop_front().map_or(0, |node| node.bytes());
                }
            }
        }
    }

    pub(super) fn chains(&self) -> impl Iterator<Item = (Colour, &Chain)> {
        self.chains.iter().map(|(&colour, chain)| (colour, chain))
    }
}
