//! What must be true of what regions have of each other's logs, checked node by node as each region places it.

use super::super::truth::Truth;
use ::fuzzylog::{AppendId, Colour, ColourNode, Content, NodePosition, RegionId};
use kernel::{Bytes, invariant};
use std::collections::BTreeMap;

/// So many nodes of each region's log.
type Counts = BTreeMap<RegionId, u64>;

/// A node as its own region has it.
#[derive(Clone, PartialEq, Debug)]
struct Original {
    id: AppendId,
    body: Bytes,
    colours: Vec<Colour>,
}

/// All regions' logs.
#[derive(Default)]
pub(super) struct Audit {
    logs: BTreeMap<(RegionId, Colour), Vec<Original>>,
    /// What others have of a log beyond what is known of it: its own region was not seen since that became durable there.
    early: BTreeMap<(RegionId, Colour, u64), Original>,
    /// How much of each region's log each region has placed.
    counts: BTreeMap<(RegionId, Colour), Counts>,
    /// Where a region's log begins for one that came later: what is before was trimmed by then.
    begins: BTreeMap<(RegionId, RegionId, Colour), u64>,
    /// It is removed, and others name it no more.
    goes: Option<RegionId>,
    /// What the writer of an append had played of its colours.
    played: BTreeMap<(AppendId, Colour), Counts>,
}

impl Audit {
    /// Somebody who has played so much of its region appends.
    pub(super) fn appends(&mut self, id: AppendId, content: &Content, truth: &Truth) {
        for (index, &colour) in content.colours.iter().enumerate() {
            let NodePosition(played) = content.played(index);
            let nodes = truth.nodes(colour);
            let counts = self.played.entry((id, colour)).or_default();
            for source in nodes[..nodes.len().min(played as usize)].iter().filter_map(ColourNode::source) {
                let count = counts.entry(source.region).or_default();
                *count = (source.number + 1).max(*count);
            }
        }
    }

    /// A region has taken one up: its logs begin there.
    pub(super) fn begin(&mut self, here: RegionId, begins: Vec<(RegionId, Colour, u64)>) {
        for (comes, colour, number) in begins {
            self.begins.insert((here, comes, colour), number);
        }
    }

    /// This region is removed at some time.
    pub(super) fn goes(&mut self, region: Option<RegionId>) {
        self.goes = region;
    }

    /// Where other regions' logs begin in one.
    pub(super) fn begins_in(&self, here: RegionId) -> BTreeMap<(RegionId, Colour), u64> {
        let of = self.begins.iter().filter(|((_, comes, _), _)| *comes == here);
        of.map(|(&(region, _, colour), &number)| ((region, colour), number)).collect()
    }

    /// A region has placed a node: the next one of its log, the same as in its own region, and behind all that its writer had played.
    pub(super) fn placed(&mut self, here: RegionId, colour: Colour, node: &ColourNode) {
        let Some(source) = node.source() else { return };
        let begins = |region| self.begins.get(&(region, here, colour)).copied().unwrap_or(0);
        let counts = self.counts.entry((here, colour)).or_default();
        let count_of =
            |counts: &Counts, region| counts.get(&region).copied().unwrap_or_else(|| begins(region));
        let count = count_of(counts, source.region);
        let number = source.number;
        invariant!(
            SHADOW,
            count == number,
            "in region {here}, node {number} of {colour} of {} follows {count}",
            source.region
        );
        let original = Original { id: node.id, body: node.body.clone(), colours: node.colours.clone() };
        let log = self.logs.entry((source.region, colour)).or_default();
        if here == source.region {
            if let Some(early) = self.early.remove(&(here, colour, number)) {
                invariant!(
                    SHADOW,
                    early == original,
                    "{early:?} is known elsewhere, and in {here} {original:?}"
                );
            }
            log.push(original);
        } else {
            let early = (source.region, colour, number);
            let known = match log.get(number as usize) {
                Some(known) => known,
                None => self.early.entry(early).or_insert_with(|| original.clone()),
            };
            invariant!(
                SHADOW,
                *known == original,
                "in region {here}, node {number} of {colour} of {} is {original:?}, and there {known:?}",
                source.region
            );
        }
        let counts_for_all = |region: &RegionId| Some(*region) != self.goes;
        for edge in node.edges().iter().filter(|it| counts_for_all(&it.region)) {
            let there = count_of(counts, edge.region);
            invariant!(
                CAUSAL,
                there >= edge.count,
                "in region {here}, {node:?} of {colour} follows {counts:?}"
            );
        }
        let played = self.played.get(&(node.id, colour)).into_iter().flatten();
        for (region, wanted) in played.filter(|(region, _)| counts_for_all(region)) {
            let there = count_of(counts, *region);
            invariant!(
                CAUSAL,
                there >= *wanted,
                "in region {here}, {node:?} of {colour} follows {counts:?}, and its writer had played {wanted} of {region}"
            );
        }
        counts.insert(source.region, number + 1);
    }

    /// Nobody has what its own region has not.
    pub(super) fn end(&self) {
        let first = self.early.first_key_value();
        invariant!(SHADOW, first.is_none(), "others have {first:?}, and its own region has not");
    }

    /// What keeps a region from having everything; none if it has.
    pub(super) fn lacks(&self, here: RegionId, goes: Option<RegionId>) -> Option<String> {
        let stay = self.logs.iter().filter(|((region, _), _)| Some(*region) != goes);
        stay.into_iter().find_map(|(&(region, colour), log)| {
            let counts = self.counts.get(&(here, colour));
            let begins = self.begins.get(&(region, here, colour));
            let count = counts.and_then(|it| it.get(&region)).or(begins).copied().unwrap_or(0);
            let lacks = count < log.len() as u64;
            lacks.then(|| format!("region {here} has {count} of {} of {colour} of {region}", log.len()))
        })
    }
}
