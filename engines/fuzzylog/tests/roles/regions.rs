//! Regions: what partitions copy of each other, command by command.

use fuzzylog::partition::command::{
    Append, Command, CopiedThrough, CopyNodes, Delivered, JoinRegions, LogBegin, Outcome, RegionPartitions,
    RowEntry, StreamPoint, Trim, TrimmedTo,
};
use fuzzylog::{
    AppendId, AppendTime, Colour, ColourNode, ColourPlacement, Content, Edge, FuzzyOrder, NodePosition,
    PartitionId, PartitionState, RegionId,
};
use kernel::{Bytes, NodeId, Rng, SnapshotStep};
use std::collections::BTreeMap;

pub(super) const OHIO: RegionId = RegionId(1);
pub(super) const TOKYO: RegionId = RegionId(2);
pub(super) const PARIS: RegionId = RegionId(3);
pub(super) const RED: Colour = Colour(0);

/// A region: its partitions.
pub(super) struct Region {
    pub(super) id: RegionId,
    pub(super) partitions: Vec<PartitionState>,
    pub(super) calls: u64,
}

impl Region {
    pub(super) fn placement(&self) -> ColourPlacement {
        ColourPlacement::over(self.partitions.len() as u16)
    }

    pub(super) fn of(&self, colour: Colour) -> &PartitionState {
        &self.partitions[usize::from(self.placement().partition_of(colour).0)]
    }

    pub(super) fn apply(&mut self, partition: PartitionId, command: impl Into<Command>) -> Vec<Outcome> {
        self.calls += 1;
        let entry = RowEntry { origin: NodeId::ZERO, call: self.calls, command: command.into() };
        let state = &mut self.partitions[usize::from(partition.0)];
        state.apply(&entry);
        state.take_answers().into_iter().map(|it| it.outcome).collect()
    }

    /// Appends to colours of one partition, by one who has played them so far. Returns the first position.
    pub(super) fn append(&mut self, colours: &[Colour], played: &[u64]) -> NodePosition {
        let body = Bytes::from(format!("{}.{}", self.id, self.calls));
        let played = played.iter().copied().map(NodePosition).collect();
        let content = Content { played, ..Content::new(colours.to_vec(), vec![body]) };
        let id = AppendId { client: 1 + u64::from(self.id.0), number: self.calls, content: content.digest() };
        let append = Append { id, below: self.calls, seen: AppendTime::ZERO, content };
        match &self.apply(self.placement().partition_of(colours[0]), append)[..] {
            [Outcome::Delivered(Delivered { placed, .. })] => placed[0].position,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn trim(&mut self, colour: Colour, before: u64) -> NodePosition {
        let before = NodePosition(before);
        match &self.apply(self.placement().partition_of(colour), Trim { colour, before })[..] {
            [Outcome::TrimmedTo(TrimmedTo { first })] => *first,
            other => panic!("{other:?}"),
        }
    }

    /// What its partition is to copy next of another region's one.
    pub(super) fn next_page(
        &self,
        partition: PartitionId,
        from: &Region,
        source: PartitionId,
        bytes: usize,
    ) -> CopyNodes {
        let here = &self.partitions[usize::from(partition.0)];
        let of = |it: &StreamPoint| (it.region, it.partition) == (from.id, source);
        let after = here.copied().into_iter().find(of).map_or(AppendTime::ZERO, |it| it.at);
        let state = &from.partitions[usize::from(source.0)];
        let page = state.outgoing_page((self.placement(), partition), after, bytes);
        let (through, nodes, begins) = (page.through, page.nodes, Some(page.begins));
        CopyNodes { region: from.id, partition: source, after, through, nodes, begins }
    }

    /// Copies a page of all partitions of another region; true if there was something.
    pub(super) fn copy(&mut self, from: &mut Region, bytes: usize) -> bool {
        let mut is_new = false;
        for partition in (0..self.partitions.len() as u16).map(PartitionId) {
            for source in (0..from.partitions.len() as u16).map(PartitionId) {
                let meets = |it: &StreamPoint| (it.region, it.partition) == (from.id, source);
                if !self.partitions[usize::from(partition.0)].copied().iter().any(meets) {
                    continue;
                }
                let page = self.next_page(partition, from, source, bytes);
                let through = page.through;
                if through > page.after {
                    assert!(self.partitions[usize::from(partition.0)].may_copy(&page), "{page:?}");
                    self.apply(partition, page);
                    is_new = true;
                }
                from.apply(source, CopiedThrough { region: self.id, partition, through });
            }
        }
        is_new
    }

    pub(super) fn nodes(&self, colour: Colour) -> Vec<ColourNode> {
        let state = self.of(colour);
        let first = state.first(colour);
        let nodes = state.nodes(colour, first).zip(first.0..);
        nodes.map(|(node, position)| state.sourced(colour, NodePosition(position), node)).collect()
    }

    /// Every region's log of a colour, by what was appended.
    pub(super) fn logs(&self, colour: Colour) -> BTreeMap<RegionId, Vec<AppendId>> {
        let mut logs: BTreeMap<RegionId, Vec<AppendId>> = BTreeMap::new();
        for node in self.nodes(colour) {
            let source = node.source().expect("one of several regions");
            let log = logs.entry(source.region).or_default();
            assert_eq!(source.number, log.len() as u64, "a log is there from its first node on, in order");
            log.push(node.id);
        }
        logs
    }

    /// Each node comes behind what its edges name, and behind the nodes before it in its log.
    pub(super) fn check_causal(&self, colour: Colour) {
        let mut counts: BTreeMap<RegionId, u64> = BTreeMap::new();
        for node in self.nodes(colour) {
            for edge in node.edges() {
                let count = counts.get(&edge.region).copied().unwrap_or(0);
                assert!(count >= edge.count, "{node:?} comes behind {counts:?} in region {}", self.id);
            }
            *counts.entry(node.source().expect("one of several regions").region).or_default() += 1;
        }
    }

    /// The same partitions, from their snapshots.
    pub(super) fn restarted(&mut self) {
        let placement = self.placement();
        for (partition, state) in (0..).map(PartitionId).zip(&mut self.partitions) {
            let (mut copy, mut image) = (state.clone(), Vec::new());
            copy.begin_snapshot();
            while copy.snapshot_step(64, &mut image) == SnapshotStep::More {}
            let chunks = vec![Bytes::from(image)];
            *state = PartitionState::of_chunks(partition, placement, FuzzyOrder::Serializable, chunks)
                .expect("just written");
        }
    }
}

/// Regions of so many partitions each.
pub(super) fn regions(sizes: &[(RegionId, u16)]) -> Vec<Region> {
    let region = |&(own, partitions): &(RegionId, u16)| {
        let placement = ColourPlacement::over(partitions);
        let states = (0..partitions)
            .map(|it| PartitionState::new(PartitionId(it), placement, FuzzyOrder::Serializable))
            .collect();
        let others = sizes.iter().filter(|(id, _)| *id != own);
        let others: Vec<RegionPartitions> =
            others.map(|&(region, partitions)| RegionPartitions { region, partitions }).collect();
        let mut region = Region { id: own, partitions: states, calls: 0 };
        for partition in (0..partitions).map(PartitionId) {
            region.apply(partition, JoinRegions { own, others: others.clone() });
        }
        region
    };
    sizes.iter().map(region).collect()
}

pub(super) fn pair(all: &mut [Region], one: usize, other: usize) -> (&mut Region, &mut Region) {
    let [one, other] = all.get_disjoint_mut([one, other]).expect("two of them");
    (one, other)
}

// A node that is shown before what its writer had seen is an answer before its question.
#[test]
fn a_node_waits_for_what_its_writer_had_played() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1), (PARIS, 1)]);
    all[0].append(&[RED], &[0]);
    // Tokyo answers what it has seen of Ohio; its second node says nothing new.
    let (tokyo, ohio) = pair(&mut all, 1, 0);
    tokyo.copy(ohio, 1 << 20);
    let answer = tokyo.append(&[RED], &[1]);
    tokyo.append(&[RED], &[2]);
    let nodes = tokyo.nodes(RED);
    assert_eq!(nodes[answer.0 as usize].edges(), [Edge { region: OHIO, count: 1 }]);
    assert_eq!(nodes[2].edges(), [], "what the log has said is not said again");
    // Paris hears Tokyo first.
    let (paris, tokyo) = pair(&mut all, 2, 1);
    paris.copy(tokyo, 1 << 20);
    assert_eq!((paris.nodes(RED).len(), paris.partitions[0].waiting_nodes()), (0, 2));
    paris.restarted();
    assert_eq!(paris.partitions[0].waiting_nodes(), 2);
    let (paris, ohio) = pair(&mut all, 2, 0);
    paris.copy(ohio, 1 << 20);
    let order: Vec<RegionId> = paris.nodes(RED).iter().map(|it| it.source().expect("three").region).collect();
    assert_eq!(order, [OHIO, TOKYO, TOKYO]);
    assert_eq!(paris.partitions[0].waiting_nodes(), 0);
}

// One who has not played another region's nodes does not depend on them, though they are there.
#[test]
fn a_node_depends_on_what_was_played_and_not_on_what_is_there() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1)]);
    all[0].append(&[RED], &[0]);
    let (tokyo, ohio) = pair(&mut all, 1, 0);
    tokyo.copy(ohio, 1 << 20);
    let position = tokyo.append(&[RED], &[0]);
    assert_eq!(tokyo.nodes(RED)[position.0 as usize].edges(), []);
    // A position beyond the end is no more than the end.
    let position = tokyo.append(&[RED], &[1_000]);
    assert_eq!(tokyo.nodes(RED)[position.0 as usize].edges(), [Edge { region: OHIO, count: 1 }]);
}

// The next head asks again for what the one before has asked for: copied twice, a log would differ for good.
#[test]
fn a_page_that_comes_twice_counts_once() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1)]);
    all[0].append(&[RED], &[0]);
    let (tokyo, ohio) = pair(&mut all, 1, 0);
    let page = tokyo.next_page(PartitionId(0), ohio, PartitionId(0), 1 << 20);
    tokyo.apply(PartitionId(0), page.clone());
    assert!(!tokyo.partitions[0].may_copy(&page));
    tokyo.apply(PartitionId(0), page);
    assert_eq!(tokyo.nodes(RED).len(), 1);
}

// Pages that do not follow each other, or are of colours that are elsewhere, are a peer's fault.
#[test]
fn only_what_comes_next_may_be_copied() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 2)]);
    let placement = all[1].placement();
    let colour =
        (0..9).map(Colour).find(|it| placement.partition_of(*it) == PartitionId(0)).expect("one of them");
    all[0].append(&[colour], &[0]);
    all[0].append(&[colour], &[0]);
    let here = PartitionId(0);
    let page = all[1].next_page(here, &all[0], here, 1 << 20);
    let may = |page: &CopyNodes| all[1].partitions[0].may_copy(page);
    assert!(may(&page));
    let mut gap = page.clone();
    gap.nodes.remove(0);
    assert!(!may(&gap));
    let mut elsewhere = page.clone();
    elsewhere.nodes[0].parts[0].colour = Colour(colour.0 + 1_000);
    assert!(!may(&elsewhere));
    let mut stranger = page.clone();
    stranger.region = PARIS;
    assert!(!may(&stranger));
    let mut backwards = page.clone();
    backwards.nodes.reverse();
    assert!(!may(&backwards));
    assert!(!may(&CopyNodes { through: page.after, nodes: Vec::new(), ..page.clone() }));
    let other = (0..9).map(Colour).find(|it| placement.partition_of(*it) != here).expect("one of them");
    let begins = |colour, number| Some(vec![LogBegin { colour, number }]);
    let behind = |number| CopyNodes { nodes: Vec::new(), begins: begins(colour, number), ..page.clone() };
    assert!(may(&behind(7)) && !may(&behind(u64::MAX)), "no log has so many nodes");
    assert!(!may(&CopyNodes { begins: begins(other, 7), ..behind(7) }));
    assert!(!may(&CopyNodes { partition: PartitionId(7), ..page }));
}

// What one region has dropped before another one has it is nowhere.
#[test]
fn a_trim_waits_for_regions_that_have_not_copied() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1), (PARIS, 1)]);
    for _ in 0..3 {
        all[0].append(&[RED], &[0]);
    }
    assert_eq!(all[0].trim(RED, 2), NodePosition(0));
    let (tokyo, ohio) = pair(&mut all, 1, 0);
    tokyo.copy(ohio, 1 << 20);
    ohio.restarted();
    assert_eq!((ohio.of(RED).first(RED), ohio.of(RED).waiting_trims()), (NodePosition(0), 1));
    let (paris, ohio) = pair(&mut all, 2, 0);
    paris.copy(ohio, 1 << 20);
    assert_eq!((ohio.of(RED).first(RED), ohio.of(RED).waiting_trims()), (NodePosition(2), 0));
    assert_eq!(ohio.of(RED).outgoing(), 0);
    // Copies are trimmed at once, and the log goes on behind what is gone.
    assert_eq!(paris.trim(RED, 2), NodePosition(2));
    paris.restarted();
    ohio.append(&[RED], &[3]);
    paris.copy(ohio, 1 << 20);
    assert_eq!(paris.of(RED).log_length(RED, OHIO), 4);
    assert_eq!(paris.nodes(RED).last().and_then(|it| it.source().cloned()).map(|it| it.number), Some(3));
}

// One who carries what it has seen to another region learns that it is there while a part of it waits, or waits for what nobody has.
#[test]
fn what_was_seen_is_found_in_another_region_when_all_of_it_is_there() {
    let mut all = regions(&[(OHIO, 1), (TOKYO, 1), (PARIS, 1)]);
    let count = |region, count| Edge { region, count };
    all[0].append(&[RED], &[0]);
    all[0].append(&[RED], &[0]);
    let (tokyo, ohio) = pair(&mut all, 1, 0);
    tokyo.copy(ohio, 1 << 20);
    let answer = tokyo.append(&[RED], &[2]);
    tokyo.append(&[RED], &[0]);
    let of = |region: &Region, below| region.of(RED).counts_below(RED, NodePosition(below));
    assert_eq!(of(tokyo, 0), []);
    assert_eq!(of(tokyo, 1), [count(OHIO, 1)]);
    let seen = of(tokyo, answer.0 + 1);
    assert_eq!(seen, [count(OHIO, 2), count(TOKYO, 1)]);
    assert_eq!(of(tokyo, 1_000), [count(OHIO, 2), count(TOKYO, 2)], "beyond the end is the end");
    let find = |region: &Region, counts: &[Edge]| region.of(RED).position_behind(RED, counts);
    assert_eq!(find(tokyo, &seen), Some(answer.next()), "in its own region it is where it was");
    // Paris has copied Tokyo's node, which waits for Ohio's.
    let (paris, tokyo) = pair(&mut all, 2, 1);
    paris.copy(tokyo, 1 << 20);
    paris.append(&[RED], &[0]);
    assert_eq!(find(paris, &seen), None);
    assert_eq!(find(paris, &[]), Some(NodePosition(0)), "nothing is everywhere");
    let (paris, ohio) = pair(&mut all, 2, 0);
    paris.copy(ohio, 1 << 20);
    // Its own one, two of Ohio's, two of Tokyo's.
    assert_eq!(find(paris, &seen), Some(NodePosition(4)));
    assert_eq!(find(paris, &[count(OHIO, 1), count(PARIS, 1)]), Some(NodePosition(2)));
    assert_eq!(find(paris, &[count(TOKYO, 3)]), None, "nobody has it");
    // What is trimmed is behind the beginning.
    for other in [0, 1] {
        let (other, paris) = pair(&mut all, other, 2);
        other.copy(paris, 1 << 20);
    }
    let paris = &mut all[2];
    assert_eq!(paris.trim(RED, 3), NodePosition(3));
    paris.restarted();
    assert_eq!(find(paris, &[count(OHIO, 1)]), Some(NodePosition(3)), "it is behind the beginning");
    assert_eq!(find(paris, &seen), Some(NodePosition(4)));
}

// Nodes that were there before a cluster had regions are copied, too.
#[test]
fn what_was_appended_before_there_were_regions_is_copied() {
    let placement = ColourPlacement::over(1);
    let states = || vec![PartitionState::new(PartitionId(0), placement, FuzzyOrder::Serializable)];
    let mut ohio = Region { id: OHIO, partitions: states(), calls: 0 };
    for _ in 0..2 {
        ohio.append(&[RED, Colour(1)], &[]);
    }
    let mut tokyo = Region { id: TOKYO, partitions: states(), calls: 0 };
    for (region, other) in [(&mut ohio, TOKYO), (&mut tokyo, OHIO)] {
        let others = vec![RegionPartitions { region: other, partitions: 1 }];
        region.apply(PartitionId(0), JoinRegions { own: region.id, others });
    }
    tokyo.copy(&mut ohio, 1 << 20);
    assert_eq!((tokyo.logs(RED), tokyo.logs(Colour(1))), (ohio.logs(RED), ohio.logs(Colour(1))));
}

/// Copies until nothing is new.
fn copy_all(all: &mut [Region]) {
    let mut is_new = true;
    while is_new {
        is_new = false;
        let count = all.len();
        for (one, other) in (0..count).flat_map(|one| (0..count).map(move |other| (one, other))) {
            if one != other {
                let (one, other) = pair(all, one, other);
                is_new |= one.copy(other, 1 << 10);
            }
        }
    }
}

/// One run: appends, copies, trims and restarts in any order; in the end everything is everywhere.
fn mixed(seed: u64) {
    let mut rng = Rng::seeded(seed);
    let sizes: Vec<(RegionId, u16)> = [OHIO, TOKYO, PARIS]
        .into_iter()
        .take(rng.between(2, 3) as usize)
        .map(|id| (id, rng.between(1, 4) as u16))
        .collect();
    let mut all = regions(&sizes);
    let colours: Vec<Colour> = (0..6).map(Colour).collect();
    let trims = rng.chance(0.3);
    let mut appended = 0;
    for _ in 0..rng.between(50, 200) {
        let (one, other) = (rng.below(all.len() as u64) as usize, rng.below(all.len() as u64) as usize);
        let bytes = 1 << rng.between(0, 12);
        match rng.below(10) {
            0..=3 => {
                let placement = all[one].placement();
                let first = colours[rng.below(6) as usize];
                let is_beside = |it: &&Colour| placement.partition_of(**it) == placement.partition_of(first);
                let mut some: Vec<Colour> = colours.iter().filter(is_beside).copied().collect();
                rng.shuffle(&mut some);
                some.truncate(rng.between(1, 3) as usize);
                some.sort_unstable();
                let played =
                    some.iter().map(|&it| rng.between(0, all[one].of(it).tail(it).0)).collect::<Vec<_>>();
                all[one].append(&some, &played);
                appended += some.len();
            }
            4..=7 if one != other => {
                let (one, other) = pair(&mut all, one, other);
                one.copy(other, bytes);
            }
            8 => all[one].restarted(),
            9 if trims => {
                let colour = colours[rng.below(6) as usize];
                let before = rng.between(0, all[one].of(colour).tail(colour).0);
                all[one].trim(colour, before);
            }
            _ => {}
        }
        if !trims {
            all.iter().for_each(|region| colours.iter().for_each(|&it| region.check_causal(it)));
        }
    }
    copy_all(&mut all);
    let mut found = 0;
    for &colour in &colours {
        for region in &all {
            let state = region.of(colour);
            assert_eq!((state.waiting_nodes(), state.waiting_trims(), state.outgoing()), (0, 0, 0));
            for (id, _) in &sizes {
                let lengths = (state.log_length(colour, *id), all[0].of(colour).log_length(colour, *id));
                assert_eq!(lengths.0, lengths.1, "{id} of {colour} in {}", region.id);
            }
        }
        found += all[0].of(colour).tail(colour).0 as usize;
        if !trims {
            all.iter().for_each(|region| assert_eq!(region.logs(colour), all[0].logs(colour)));
            all.iter().for_each(|region| region.check_causal(colour));
        }
    }
    assert_eq!(found, appended, "each node is in each of its colours once");
}

// Orders that nobody has thought of.
#[test]
fn regions_agree_whatever_the_order_of_copies() {
    (0..300).for_each(mixed);
}
