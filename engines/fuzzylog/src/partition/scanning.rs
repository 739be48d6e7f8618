//! What a partition had as of a cut's time, colour by colour, for backups.
//!
//! A cut is a snapshot of a colour of each partition, so all that was acknowledged before it is earlier, and whatever is delivered later is
//! later: nodes below its time stay what they are. Trims go on meanwhile; what they have dropped is not there.

use super::{ColourNode, PartitionState};
use crate::terms::{AppendTime, Colour, NodePosition, ScanPoint};
use kernel::PageBudget;

/// Colours and nodes that are looked at for one page, and for one digest.
const LOOKS_MAX: usize = 16_384;
const DIGESTED_MAX: usize = 131_072;
/// What a node costs on a page beside itself.
const PLACE_BYTES: usize = 32;

kernel::record! {
    /// A node and where it is.
    pub struct ScannedNode {
        /// The colour.
        colour: Colour,
        /// The position.
        position: NodePosition,
        /// None: all nodes of the colour were trimmed, up to this position.
        node: Option<ColourNode>,
    }
}

kernel::record! {
    /// A page of a partition's nodes, by colour and position.
    pub struct ScanPage {
        /// The nodes; none if a digest was asked for.
        nodes: Vec<ScannedNode>,
        /// The digest of what was looked at.
        digest: u64,
        /// Where to go on; none: that was all.
        next: Option<ScanPoint>,
    }
}

/// A digest of nodes by their names, which have digests of what they hold, and of where and when they are.
#[derive(Clone, Default)]
pub struct SpanDigest(parts::Digester);

impl SpanDigest {
    /// The next node.
    pub fn add(&mut self, colour: Colour, position: NodePosition, node: Option<&ColourNode>) {
        let mut write = |word: u64| self.0.write(&word.to_le_bytes());
        [colour.0, position.0, u64::from(node.is_some())].into_iter().for_each(&mut write);
        if let Some(ColourNode { id, at, .. }) = node {
            let at = [at.clock, u64::from(at.partition.0), at.ahead];
            [id.client, id.number, id.content].into_iter().chain(at).for_each(&mut write);
        }
    }

    /// The digest.
    pub fn finish(self) -> u64 {
        self.0.finish()
    }
}

/// What has been found of a page.
struct Scanned {
    nodes: Vec<ScannedNode>,
    digest: SpanDigest,
    page: Option<PageBudget>,
    looks: usize,
}

impl Scanned {
    /// True if one more may be looked at.
    fn looks(&mut self) -> bool {
        self.looks += 1;
        self.looks <= if self.page.is_some() { LOOKS_MAX } else { DIGESTED_MAX }
    }

    /// False if it does not go on the page any more.
    fn add(&mut self, colour: Colour, position: NodePosition, node: Option<&ColourNode>) -> bool {
        if let Some(page) = &mut self.page {
            if !page.admits(PLACE_BYTES + node.map_or(0, ColourNode::bytes)) {
                return false;
            }
            self.nodes.push(ScannedNode { colour, position, node: node.cloned() });
        }
        self.digest.add(colour, position, node);
        true
    }

    fn end(self, next: Option<ScanPoint>) -> ScanPage {
        ScanPage { nodes: self.nodes, digest: self.digest.finish(), next }
    }
}

impl PartitionState {
    /// What there is from one point to another, or to the end, of what was delivered before a cut; a page of so many bytes, or its digest
    /// alone. None: the cut has not come here yet.
    pub fn scan(
        &self,
        from: ScanPoint,
        to: Option<ScanPoint>,
        below: AppendTime,
        page_bytes: Option<usize>,
    ) -> Option<ScanPage> {
        if self.last < below {
            return None;
        }
        let page = page_bytes.map(PageBudget::new);
        let mut found = Scanned { nodes: Vec::new(), digest: SpanDigest::default(), page, looks: 0 };
        for (colour, chain) in self.colours.chains_from(from.colour) {
            let start = if colour == from.colour { from.position } else { NodePosition(0) };
            let here = |position| ScanPoint { colour, position };
            if to.is_some_and(|to| here(start) >= to) {
                break;
            }
            let count = chain.nodes.partition_point(|node| node.at < below);
            let is_trimmed = count == 0 && chain.first > start;
            if !found.looks() || is_trimmed && !found.add(colour, chain.first, None) {
                return Some(found.end(Some(here(start))));
            }
            let skipped = start.0.saturating_sub(chain.first.0) as usize;
            for (index, node) in chain.nodes.iter().enumerate().take(count).skip(skipped) {
                let position = chain.first.plus(index as u64);
                if to.is_some_and(|to| here(position) >= to) {
                    break;
                }
                if !found.looks() || !found.add(colour, position, Some(node)) {
                    return Some(found.end(Some(here(position))));
                }
            }
        }
        Some(found.end(None))
    }
}
