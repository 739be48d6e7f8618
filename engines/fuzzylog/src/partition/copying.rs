//! How what other regions have appended comes into a partition's chains, and when what is appended here may go.

use super::command::{CopiedThrough, CopyNodes, Placed, ShadowNode, ShadowPart};
use super::regions::Outgoing;
use super::{Across, ColourNode, NodeSource, PartitionState};
use crate::terms::{AppendTime, Colour, Content, NodePosition, RegionId};
use kernel::{Bytes, planted};
use std::collections::BTreeSet;

impl PartitionState {
    /// The edges of a node that is placed now.
    pub(super) fn across(&mut self, colour: Colour, content: &Content, index: usize) -> Option<Box<Across>> {
        let edges = self.regions.as_mut()?.edges_of(colour, content.played(index));
        (!edges.is_empty()).then(|| Box::new(Across { edges, source: None }))
    }

    /// A node of this region is placed.
    pub(super) fn retain_for_others(&mut self, at: AppendTime, placed: &[Placed]) {
        if let Some(regions) = self.regions.as_mut().filter(|it| !it.others.is_empty()) {
            regions.outgoing.entry(at).or_default().placed.extend_from_slice(placed);
        }
    }

    pub(super) fn copy_nodes(&mut self, command: &CopyNodes) {
        let CopyNodes { region, partition, after, through, ref nodes, ref begins } = *command;
        let stream = (region, partition);
        let Some(regions) = &mut self.regions else { return };
        if !regions.others.iter().any(|it| it.region == region) {
            // It was asked for before the region was removed.
            return self.marks.push("partition.page_of_a_removed_region");
        }
        let known = regions.copied.get(&stream).copied().unwrap_or(AppendTime::ZERO);
        if known != after {
            // Two heads have asked for it, one after the other.
            return self.marks.push("partition.page_came_twice");
        }
        regions.copied.insert(stream, through);
        let mut colours = BTreeSet::new();
        for begin in begins.iter().flatten() {
            if regions.begin_log(region, *begin) {
                self.marks.push("partition.log_begins_later");
                // What other logs' nodes name of it and is gone counts as there.
                colours.insert(begin.colour);
            }
        }
        for node in nodes {
            // Without the memory of which they are parts.
            let bodies: Vec<Bytes> = node.bodies.iter().map(|it| Bytes::copy_from_slice(it)).collect();
            for (index, part) in node.parts.iter().enumerate() {
                colours.insert(part.colour);
                let body = if bodies.len() == 1 { bodies.first() } else { bodies.get(index) };
                let (parts, bodies) = (vec![part.clone()], body.cloned().into_iter().collect());
                let (id, at, of) = (node.id, node.at, node.colours.clone());
                regions.wait(part.colour, region, ShadowNode { id, at, colours: of, parts, bodies });
            }
        }
        for colour in colours {
            self.place_waiting(colour);
        }
    }

    /// Places what has everything before it.
    pub(super) fn place_waiting(&mut self, colour: Colour) {
        let Some(regions) = &self.regions else { return };
        let all = (colour, RegionId(0))..=(colour, RegionId(u32::MAX));
        let others: Vec<RegionId> = regions.waiting.range(all).map(|((_, region), _)| *region).collect();
        let mut is_done = false;
        while !is_done {
            is_done = true;
            for &region in &others {
                while self.may_place_next(colour, region)
                    && let Some(node) = self.regions.as_mut().and_then(|it| it.take_waiting(colour, region))
                {
                    self.place_shadow(region, node);
                    is_done = false;
                }
            }
        }
        let Some(regions) = &self.regions else { return };
        if others.iter().any(|region| regions.waiting.contains_key(&(colour, *region))) {
            self.marks.push("partition.node_waits_for_another_region");
        }
    }

    fn may_place_next(&self, colour: Colour, region: RegionId) -> bool {
        let Some(regions) = &self.regions else { return false };
        let part = regions.waiting.get(&(colour, region)).and_then(|it| it.front()?.parts.first());
        let is_whole = |part: &ShadowPart| {
            regions.may_be_placed(colour, &part.edges, self.tail(colour))
                || planted!(shadow_before_its_dependencies)
        };
        part.is_some_and(is_whole)
    }

    /// A time for a node of another region: nobody waits for what is pending with it.
    fn shadow_time(&mut self) -> AppendTime {
        if let Some(at) = self.ahead_of_pending(AppendTime::ZERO) {
            return at;
        }
        self.clock += 1;
        AppendTime { clock: self.clock, partition: self.partition, ahead: 0 }
    }

    fn place_shadow(&mut self, region: RegionId, node: ShadowNode) {
        let at = self.shadow_time();
        self.last = self.last.max(at);
        let ShadowNode { id, at: there, colours, parts, bodies } = node;
        for (ShadowPart { colour, number, edges }, body) in parts.into_iter().zip(bodies) {
            let Some(regions) = &mut self.regions else { return };
            let count = regions.count(colour, region);
            kernel::invariant!(
                SHADOW,
                count == number,
                "node {number} of region {region} follows {count} of {colour}"
            );
            let source = Some(NodeSource { region, number, at: there });
            let across = Some(Box::new(Across { edges, source }));
            let node = ColourNode { id, at, colours: colours.clone(), body, across };
            let position = self.colours.push(colour, node);
            regions.place(colour, region, position);
        }
    }

    pub(super) fn copied_through(&mut self, command: &CopiedThrough) {
        let CopiedThrough { region, partition, through } = *command;
        let (placement, own, last) = (self.placement, self.partition, self.last);
        let Some(regions) = &mut self.regions else { return };
        let streams = regions.streams(placement, own);
        // Nobody has what is not there.
        if !streams.contains(&(region, partition)) || through > last {
            return;
        }
        let known = regions.confirmed.entry((region, partition)).or_default();
        *known = through.max(*known);
        self.release_copied();
    }

    /// What all other regions have is not retained for them any more, and trims that waited for it go on.
    pub(super) fn release_copied(&mut self) {
        let (placement, own, last) = (self.placement, self.partition, self.last);
        let Some(regions) = &mut self.regions else { return };
        let streams = regions.streams(placement, own);
        let least = streams.iter().map(|it| regions.confirmed.get(it).copied().unwrap_or_default()).min();
        let everywhere = least.unwrap_or(last).max(regions.everywhere);
        regions.everywhere = everywhere;
        let mut waited = BTreeSet::new();
        while let Some(first) = regions.outgoing.first_entry().filter(|it| *it.key() <= everywhere) {
            let Outgoing { placed, .. } = first.remove();
            waited.extend(placed.iter().map(|it| it.colour).filter(|it| regions.trims.contains_key(it)));
        }
        for colour in waited {
            self.trim_copied(colour);
        }
    }

    /// Among several regions: drops nodes below a position as far as all regions have copied them, and the others when they have.
    pub(super) fn trim_when_copied(&mut self, colour: Colour, before: NodePosition) {
        if let Some(regions) = &mut self.regions {
            let wanted = regions.trims.entry(colour).or_default();
            *wanted = before.max(*wanted);
            self.trim_copied(colour);
        }
    }

    fn trim_copied(&mut self, colour: Colour) {
        let Some(regions) = &mut self.regions else { return };
        let Some(&wanted) = regions.trims.get(&colour) else { return };
        let first = self.colours.first(colour);
        let most = wanted.0.saturating_sub(first.0) as usize;
        let mut before = first;
        for node in self.colours.nodes(colour, first).take(most) {
            let is_own = node.source().is_none();
            let has_everybody =
                node.at <= regions.everywhere || regions.others.is_empty() || planted!(trim_waits_for_nobody);
            if is_own && !has_everybody {
                break;
            }
            if is_own {
                regions.note_trimmed(colour, node.edges());
            }
            before = before.next();
        }
        self.colours.trim(colour, before);
        let first = self.colours.first(colour);
        regions.forget_below(colour, first);
        match first >= wanted {
            true => drop(regions.trims.remove(&colour)),
            false => self.marks.push("partition.trim_waits_for_a_region"),
        }
    }
}
