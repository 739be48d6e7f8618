//! The regions of a partition: it joins others once, and others come and go while it serves.
//!
//! Who comes has nothing. So everything that is left here is retained for it, and where the logs begin of which it cannot have the first
//! nodes: those were trimmed when all others had them.

use super::PartitionState;
use super::command::{AddRegion, JoinRegions, LogBegin, Placed, RegionPartitions, RemoveRegion};
use super::regions::Regions;
use crate::terms::{AppendTime, Colour, NodePosition};
use std::collections::BTreeSet;

impl PartitionState {
    pub(super) fn join_regions(&mut self, command: &JoinRegions) {
        if self.regions.is_some() {
            return;
        }
        let JoinRegions { own, others } = command.clone();
        self.regions = Some(Regions::new(own, others));
        self.retain_all_for_others();
    }

    pub(super) fn add_region(&mut self, command: &AddRegion) {
        let AddRegion { region, partitions } = *command;
        let Some(regions) = self.regions.as_mut().filter(|it| it.own != region) else { return };
        if regions.removed.contains(&region) || regions.others.iter().any(|it| it.region == region) {
            return;
        }
        regions.others.push(RegionPartitions { region, partitions });
        regions.others.sort_by_key(|it| it.region);
        self.marks.push("partition.added_a_region");
        self.retain_all_for_others();
    }

    /// What it has appended and is here stays. Nobody has the rest, so nothing waits for it.
    pub(super) fn remove_region(&mut self, command: &RemoveRegion) {
        let RemoveRegion { region } = *command;
        let Some(regions) = &mut self.regions else { return };
        let Some(at) = regions.others.iter().position(|it| it.region == region) else { return };
        regions.others.remove(at);
        regions.removed.insert(region);
        regions.copied.retain(|(of, _), _| *of != region);
        regions.confirmed.retain(|(of, _), _| *of != region);
        let colours: BTreeSet<Colour> = regions.waiting.keys().map(|(colour, _)| *colour).collect();
        self.marks.push("partition.removed_a_region");
        for colour in colours {
            self.place_waiting(colour);
        }
        self.release_copied();
    }

    /// Nobody is known to have all that is here.
    fn retain_all_for_others(&mut self) {
        let Some(mut regions) = self.regions.take() else { return };
        regions.outgoing.clear();
        regions.everywhere = AppendTime::ZERO;
        let has_others = !regions.others.is_empty();
        for (colour, chain) in self.colours.chains().filter(|_| has_others) {
            let nodes = (chain.first.0..).zip(&chain.nodes).filter(|(_, node)| node.source().is_none());
            let mut begins_at = chain.last;
            for (position, node) in nodes {
                begins_at = begins_at.min(node.at);
                let placed = Placed { colour, position: NodePosition(position) };
                regions.outgoing.entry(node.at).or_default().placed.push(placed);
            }
            let number = regions.own_number(colour, chain.first);
            if number > 0 {
                let begin = LogBegin { colour, number };
                regions.outgoing.entry(begins_at).or_default().begins.push(begin);
            }
        }
        self.regions = Some(regions);
    }
}
