//! What a partition has of other regions' logs, and what it retains for them.
//!
//! A colour has a log in each region. What other regions have appended to theirs is copied here (the paper's shadow logs), node by node
//! in the order of its log, and placed into the colour's chain among the region's own nodes: so one chain has everything that may be
//! played here, and positions, syncs, snapshots and trims mean what they mean without regions.
//!
//! Invariant: a chain has a beginning of each region's log; before a node come all nodes that its edges name.

use super::command::{CopyNodes, LogBegin, Placed, RegionPartitions, ShadowNode, ShadowPart, StreamPoint};
use super::{Across, ColourNode, NodeSource, PartitionState};
use crate::terms::{AppendTime, Colour, ColourPlacement, Edge, NodePosition, PartitionId, RegionId};
use kernel::{Bytes, PageBudget, planted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// What a region's log costs, about, beside its nodes; and what is retained of a node until all regions have it.
const LOG_BYTES: usize = 64;
const OUTGOING_BYTES: usize = 96;

/// More nodes than a log can have: a million a second for 280 years. A page that says more is wrong.
const LOG_NODES_MAX: u64 = 1 << 53;

/// Appends that are counted which another region's partition has not copied; more are as many.
const LACKS_COUNTED_MAX: usize = 10_000;

/// A partition of another region.
pub(super) type Stream = (RegionId, PartitionId);

/// A region's log of a colour, as far as it is in the chain here.
#[derive(Clone, Debug, Default)]
struct PlacedLog {
    /// Nodes of it that were trimmed, here or before it came here.
    before: u64,
    /// Those of them that never were here.
    absent: u64,
    /// Where the others are.
    positions: VecDeque<NodePosition>,
    /// How many come before the nodes of the own region's log.
    edge: u64,
    /// The same of those that were trimmed: the first one that is left follows them.
    edge_of_trimmed: u64,
}

/// What was delivered at one time and is retained for other regions.
#[derive(Clone, Debug, Default)]
pub(super) struct Outgoing {
    /// Where the nodes are.
    pub(super) placed: Vec<Placed>,
    /// Logs that begin here for who does not have what is before.
    pub(super) begins: Vec<LogBegin>,
}

impl PlacedLog {
    fn count(&self) -> u64 {
        self.before + self.positions.len() as u64
    }

    /// How many are below a position.
    fn count_below(&self, position: NodePosition) -> u64 {
        self.before + self.positions.partition_point(|it| *it < position) as u64
    }
}

kernel::record! {
    /// A region's log of a colour, but for where its nodes are.
    pub struct LogHead {
        /// The region.
        region: RegionId,
        /// Nodes of it that were trimmed here.
        before: u64,
        /// How many come before the nodes of the own region's log.
        edge: u64,
    }
}

/// All regions' logs of a colour, but for where their nodes are.
pub(super) struct SavedLogs {
    pub(super) logs: Vec<LogHead>,
    /// What comes before those nodes of the own region's log that were trimmed; none, if nothing does.
    pub(super) of_trimmed: Option<Vec<Edge>>,
    /// How many nodes of each never were here; none, if all were.
    pub(super) absent: Option<Vec<Edge>>,
}

/// What is known of other regions.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    pub(super) own: RegionId,
    pub(super) others: Vec<RegionPartitions>,
    /// How far each partition of other regions is copied here, by the times there.
    pub(super) copied: BTreeMap<Stream, AppendTime>,
    /// How far each partition of other regions has copied this one.
    pub(super) confirmed: BTreeMap<Stream, AppendTime>,
    /// All of them have copied so much.
    pub(super) everywhere: AppendTime,
    /// Regions that there were, which do not come back.
    pub(super) removed: BTreeSet<RegionId>,
    /// Nodes of a region's logs that were trimmed before they could be copied here.
    pub(super) gone: BTreeMap<RegionId, u64>,
    /// The own nodes that not all of them have, by their times.
    pub(super) outgoing: BTreeMap<AppendTime, Outgoing>,
    logs: BTreeMap<Colour, BTreeMap<RegionId, PlacedLog>>,
    /// Nodes whose time has not come, in the order of their logs.
    pub(super) waiting: BTreeMap<(Colour, RegionId), VecDeque<ShadowNode>>,
    /// Trims that wait for other regions.
    pub(super) trims: BTreeMap<Colour, NodePosition>,
    waiting_bytes: usize,
}

/// A page of what another region's partition is to copy.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OutgoingPage {
    /// The page goes so far.
    pub through: AppendTime,
    /// The nodes, in the order of their times.
    pub nodes: Vec<ShadowNode>,
    /// Logs whose first nodes are gone, before their other nodes.
    pub begins: Vec<LogBegin>,
}

impl ShadowNode {
    /// What it costs on a page and in memory, about.
    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| LOG_BYTES + size_of::<Edge>() * part.edges.len());
        let bodies = self.bodies.iter().map(Bytes::len);
        size_of::<Colour>() * self.colours.len() + parts.sum::<usize>() + bodies.sum::<usize>()
    }
}

impl Regions {
    pub(super) fn new(own: RegionId, others: Vec<RegionPartitions>) -> Self {
        Self {
            own,
            others,
            copied: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            everywhere: AppendTime::ZERO,
            removed: BTreeSet::new(),
            gone: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            logs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            trims: BTreeMap::new(),
            waiting_bytes: 0,
        }
    }

    /// What all of it costs in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let logs: usize = self.logs.values().map(BTreeMap::len).sum();
        LOG_BYTES * (logs + self.trims.len()) + OUTGOING_BYTES * self.outgoing.len() + self.waiting_bytes
    }

    /// The partitions of other regions that have colours of a partition here.
    pub(super) fn streams(&self, placement: ColourPlacement, partition: PartitionId) -> Vec<Stream> {
        let of = |other: &RegionPartitions| {
            let (region, there) = (other.region, ColourPlacement::over(other.partitions));
            let all = (0..there.partitions()).map(PartitionId);
            all.filter(move |it| placement.meets(partition, there, *it)).map(move |it| (region, it))
        };
        self.others.iter().flat_map(of).collect()
    }

    /// How many nodes of a region's log are in a colour's chain; not for the own region.
    pub(super) fn count(&self, colour: Colour, region: RegionId) -> u64 {
        self.logs.get(&colour).and_then(|logs| logs.get(&region)).map_or(0, PlacedLog::count)
    }

    /// Which node of the own region's log is at a position of a colour's chain, or would be.
    pub(super) fn own_number(&self, colour: Colour, position: NodePosition) -> u64 {
        let logs = self.logs.get(&colour).into_iter().flatten();
        position.0 - logs.map(|(_, log)| log.count_below(position) - log.absent).sum::<u64>()
    }

    /// The edges of a node that is appended by one who has played the colour so far.
    pub(super) fn edges_of(&mut self, colour: Colour, played: NodePosition) -> Vec<Edge> {
        let mut edges = Vec::new();
        if planted!(edges_left_out) {
            return edges;
        }
        let removed = &self.removed;
        let logs = self.logs.get_mut(&colour).into_iter().flatten();
        for (&region, log) in logs.filter(|(region, _)| !removed.contains(region)) {
            let count = log.count_below(played);
            // What the log's earlier nodes have before them, this one has too.
            if count > log.edge {
                log.edge = count;
                edges.push(Edge { region, count });
            }
        }
        edges
    }

    /// True if everything is there that comes before a node.
    pub(super) fn may_be_placed(&self, colour: Colour, edges: &[Edge], tail: NodePosition) -> bool {
        edges.iter().all(|edge| {
            let count = match edge.region == self.own {
                true => self.own_number(colour, tail),
                false => self.count(colour, edge.region),
            };
            // Of a region that is gone nothing comes any more.
            count >= edge.count || self.removed.contains(&edge.region)
        })
    }

    /// The edges of an own node, for other regions. The first one that is left says what those before it have said.
    fn edges_out(&self, colour: Colour, number: u64, first: NodePosition, node: &ColourNode) -> Vec<Edge> {
        let mut edges: BTreeMap<RegionId, u64> =
            node.edges().iter().map(|it| (it.region, it.count)).collect();
        if number == self.own_number(colour, first) {
            for (&region, log) in self.logs.get(&colour).into_iter().flatten() {
                if log.edge_of_trimmed > 0 {
                    let count = edges.entry(region).or_default();
                    *count = log.edge_of_trimmed.max(*count);
                }
            }
        }
        let comes = |(region, _): &(RegionId, u64)| !self.removed.contains(region);
        edges.into_iter().filter(comes).map(|(region, count)| Edge { region, count }).collect()
    }

    /// An own node with these edges is trimmed.
    pub(super) fn note_trimmed(&mut self, colour: Colour, edges: &[Edge]) {
        let Some(logs) = self.logs.get_mut(&colour).filter(|_| !edges.is_empty()) else { return };
        for edge in edges {
            if let Some(log) = logs.get_mut(&edge.region) {
                log.edge_of_trimmed = edge.count.max(log.edge_of_trimmed);
            }
        }
    }

    /// Nothing is here of a region's log, and its first nodes are not to be had; true if that was so.
    pub(super) fn begin_log(&mut self, region: RegionId, LogBegin { colour, number }: LogBegin) -> bool {
        if self.count(colour, region) > 0 || self.waiting.contains_key(&(colour, region)) {
            return false;
        }
        let log = self.logs.entry(colour).or_default().entry(region).or_default();
        (log.before, log.absent) = (number, number);
        let gone = self.gone.entry(region).or_default();
        *gone = gone.saturating_add(number);
        true
    }

    /// True if there is no region that it does not know among these edges.
    fn knows(&self, edges: &[Edge]) -> bool {
        edges.iter().all(|edge| {
            edge.region == self.own
                || self.removed.contains(&edge.region)
                || self.others.iter().any(|it| it.region == edge.region)
        })
    }

    /// The position behind so many nodes of the own region's log, which are there; not before `first`.
    fn behind_own(
        &self,
        colour: Colour,
        count: u64,
        first: NodePosition,
        tail: NodePosition,
    ) -> NodePosition {
        let (mut low, mut high) = (first, tail);
        while low < high {
            let middle = NodePosition(low.0.midpoint(high.0));
            match self.own_number(colour, middle) < count {
                true => low = middle.next(),
                false => high = middle,
            }
        }
        low
    }

    /// The same of another region's log.
    fn behind_other(&self, colour: Colour, edge: Edge, first: NodePosition) -> NodePosition {
        let log = self.logs.get(&colour).and_then(|logs| logs.get(&edge.region));
        let last = |log: &PlacedLog| {
            let nth = edge.count.checked_sub(log.before + 1)?;
            log.positions.get(usize::try_from(nth).ok()?).map(|it| it.next())
        };
        log.and_then(last).unwrap_or(first)
    }

    pub(super) fn place(&mut self, colour: Colour, region: RegionId, position: NodePosition) {
        self.logs.entry(colour).or_default().entry(region).or_default().positions.push_back(position);
    }

    /// The chain begins here now.
    pub(super) fn forget_below(&mut self, colour: Colour, first: NodePosition) {
        for log in self.logs.get_mut(&colour).into_iter().flat_map(|logs| logs.values_mut()) {
            while log.positions.front().is_some_and(|it| *it < first) {
                log.positions.pop_front();
                log.before += 1;
            }
        }
    }

    pub(super) fn wait(&mut self, colour: Colour, region: RegionId, node: ShadowNode) {
        self.waiting_bytes += node.bytes();
        self.waiting.entry((colour, region)).or_default().push_back(node);
    }

    pub(super) fn take_waiting(&mut self, colour: Colour, region: RegionId) -> Option<ShadowNode> {
        let waiting = self.waiting.get_mut(&(colour, region))?;
        let node = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&(colour, region));
        }
        self.waiting_bytes -= node.bytes();
        Some(node)
    }

    /// Everything of logs but where their nodes are.
    pub(super) fn log_heads(&self) -> impl Iterator<Item = (Colour, SavedLogs)> {
        self.logs.iter().map(|(&colour, logs)| {
            let head = |(&region, log): (&RegionId, &PlacedLog)| LogHead {
                region,
                before: log.before,
                edge: log.edge,
            };
            let counts = |of: fn(&PlacedLog) -> u64| {
                let edge = |(&region, log): (&RegionId, &PlacedLog)| Edge { region, count: of(log) };
                let counts: Vec<Edge> = logs.iter().map(edge).filter(|it| it.count > 0).collect();
                Some(counts).filter(|it| !it.is_empty())
            };
            let (of_trimmed, absent) = (counts(|log| log.edge_of_trimmed), counts(|log| log.absent));
            (colour, SavedLogs { logs: logs.iter().map(head).collect(), of_trimmed, absent })
        })
    }

    pub(super) fn install_logs(&mut self, colour: Colour, saved: SavedLogs) {
        let SavedLogs { logs, of_trimmed, absent } = saved;
        let count = |of: &Option<Vec<Edge>>, region| {
            of.iter().flatten().find(|it| it.region == region).map_or(0, |it| it.count)
        };
        let log = |head: LogHead| {
            let LogHead { region, before, edge } = head;
            let (edge_of_trimmed, absent) = (count(&of_trimmed, region), count(&absent, region));
            (region, PlacedLog { before, absent, positions: VecDeque::new(), edge, edge_of_trimmed })
        };
        self.logs.insert(colour, logs.into_iter().map(log).collect());
    }

    /// A node is taken back from a snapshot.
    pub(super) fn install_node(&mut self, placed: Placed, node: &ColourNode) {
        match node.source() {
            Some(source) => self.place(placed.colour, source.region, placed.position),
            None if node.at > self.everywhere && !self.others.is_empty() => {
                self.outgoing.entry(node.at).or_default().placed.push(placed);
            }
            None => {}
        }
    }
}

/// What others may know.
impl PartitionState {
    /// The region, if there are several.
    pub fn region(&self) -> Option<RegionId> {
        self.regions.as_ref().map(|regions| regions.own)
    }

    /// The other regions.
    pub fn other_regions(&self) -> &[RegionPartitions] {
        self.regions.as_ref().map_or(&[], |regions| &regions.others)
    }

    /// Regions that were removed.
    pub fn removed_regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.regions.iter().flat_map(|regions| regions.removed.iter().copied())
    }

    /// Nodes of other regions that were trimmed there before they could be copied here.
    pub fn gone_nodes(&self) -> impl Iterator<Item = Edge> + '_ {
        let of = |(&region, &count): (&RegionId, &u64)| Edge { region, count };
        self.regions.iter().flat_map(move |regions| regions.gone.iter().map(of))
    }

    /// The partitions of other regions that have colours of this one, and how far they are copied here.
    pub fn copied(&self) -> Vec<StreamPoint> {
        self.points(|regions| &regions.copied)
    }

    /// The same, and how far they have copied this one.
    pub fn confirmed(&self) -> Vec<StreamPoint> {
        self.points(|regions| &regions.confirmed)
    }

    fn points(&self, of: impl Fn(&Regions) -> &BTreeMap<Stream, AppendTime>) -> Vec<StreamPoint> {
        let Some(regions) = &self.regions else { return Vec::new() };
        let known = of(regions);
        let point = |(region, partition)| {
            let at = known.get(&(region, partition)).copied().unwrap_or(AppendTime::ZERO);
            StreamPoint { region, partition, at }
        };
        regions.streams(self.placement, self.partition).into_iter().map(point).collect()
    }

    /// How many appends of this region each other one has not copied, as far as it has said; of each of its partitions at most
    /// 10,000 are counted.
    pub fn not_copied(&self) -> BTreeMap<RegionId, usize> {
        let Some(regions) = &self.regions else { return BTreeMap::new() };
        let mut lacks: BTreeMap<RegionId, usize> = BTreeMap::new();
        for StreamPoint { region, partition, at } in self.confirmed() {
            let partitions =
                regions.others.iter().find(|it| it.region == region).map_or(1, |it| it.partitions);
            let there = ColourPlacement::over(partitions);
            let behind = regions.outgoing.range((Bound::Excluded(at), Bound::Unbounded));
            let goes_there = |placed: &Placed| there.partition_of(placed.colour) == partition;
            let counted = behind.take(LACKS_COUNTED_MAX);
            let count = counted.filter(|(_, of)| of.placed.iter().any(goes_there)).count();
            *lacks.entry(region).or_default() += count;
        }
        lacks
    }

    /// How many nodes wait for what comes before them.
    pub fn waiting_nodes(&self) -> usize {
        self.regions.as_ref().map_or(0, |regions| regions.waiting.values().map(VecDeque::len).sum())
    }

    /// How many appends of this region others have not copied.
    pub fn outgoing(&self) -> usize {
        self.regions.as_ref().map_or(0, |regions| regions.outgoing.len())
    }

    /// How many trims wait for other regions.
    pub fn waiting_trims(&self) -> usize {
        self.regions.as_ref().map_or(0, |regions| regions.trims.len())
    }

    /// The length of a region's log of a colour, as far as it may be played here.
    pub fn log_length(&self, colour: Colour, region: RegionId) -> u64 {
        match &self.regions {
            Some(regions) if regions.own != region => regions.count(colour, region),
            Some(regions) => regions.own_number(colour, self.tail(colour)),
            None => self.tail(colour).0,
        }
    }

    /// How many nodes of each region's log are below a position of a colour's chain, of those regions that have some; none without regions.
    /// A position that was trimmed counts as the first one that is left.
    pub fn counts_below(&self, colour: Colour, position: NodePosition) -> Vec<Edge> {
        let Some(regions) = &self.regions else { return Vec::new() };
        let position = position.clamp(self.first(colour), self.tail(colour));
        let own = Edge { region: regions.own, count: regions.own_number(colour, position) };
        let logs = regions.logs.get(&colour).into_iter().flatten();
        let others = logs.map(|(&region, log)| Edge { region, count: log.count_below(position) });
        // Nobody waits for what a region had that is gone.
        let others = others.filter(|it| !regions.removed.contains(&it.region));
        let others = others.filter(|_| !planted!(carries_one_region_alone));
        let mut counts: Vec<Edge> = others.chain([own]).filter(|it| it.count > 0).collect();
        counts.sort_unstable();
        counts
    }

    /// The position of a colour's chain behind so many nodes of each region's log; none while some of them are not in the chain.
    pub fn position_behind(&self, colour: Colour, counts: &[Edge]) -> Option<NodePosition> {
        let regions = self.regions.as_ref()?;
        let (first, tail) = (self.first(colour), self.tail(colour));
        let is_there = regions.may_be_placed(colour, counts, tail);
        if !is_there && planted!(found_before_it_is_there) {
            return Some(tail);
        }
        let behind = |edge: &Edge| match edge.region == regions.own {
            true => regions.behind_own(colour, edge.count, first, tail),
            false => regions.behind_other(colour, *edge, first),
        };
        is_there.then(|| counts.iter().map(behind).max().unwrap_or(first).max(first))
    }

    /// A node as it is handed out: of several regions each says where it was appended.
    pub fn sourced(&self, colour: Colour, position: NodePosition, node: &ColourNode) -> ColourNode {
        let Some(regions) = self.regions.as_ref().filter(|_| node.source().is_none()) else {
            return node.clone();
        };
        let number = regions.own_number(colour, position);
        let source = Some(NodeSource { region: regions.own, number, at: node.at });
        let across = Some(Box::new(Across { edges: node.edges().to_vec(), source }));
        ColourNode { across, ..node.clone() }
    }

    /// What a partition of another region, of so many, is to copy behind a time; the first node of a page may be larger.
    pub fn outgoing_page(
        &self,
        there: (ColourPlacement, PartitionId),
        after: AppendTime,
        bytes: usize,
    ) -> OutgoingPage {
        let mut page = OutgoingPage { through: after, ..OutgoingPage::default() };
        let Some(regions) = &self.regions else { return page };
        let mut budget = PageBudget::new(bytes);
        for (&at, of) in regions.outgoing.range((Bound::Excluded(after), Bound::Unbounded)) {
            let lost = of.placed.iter().find(|it| it.position < self.first(it.colour));
            kernel::invariant!(TRIM, lost.is_none(), "{lost:?} is gone, and {:?} lacks it", there.1);
            let goes_there = |colour: Colour| there.0.partition_of(colour) == there.1;
            let parts: Vec<&Placed> = of.placed.iter().filter(|it| goes_there(it.colour)).collect();
            let node = self.shadow_of(at, &parts);
            let begins: Vec<LogBegin> =
                of.begins.iter().filter(|it| goes_there(it.colour)).copied().collect();
            let bytes = node.as_ref().map_or(0, ShadowNode::bytes) + LOG_BYTES * begins.len();
            if bytes > 0 && !budget.admits(bytes) {
                return page;
            }
            page.nodes.extend(node);
            page.begins.extend(begins);
            page.through = at;
        }
        page
    }

    /// What was delivered at a time, as another region copies it, as far as it is in these places.
    fn shadow_of(&self, at: AppendTime, parts: &[&Placed]) -> Option<ShadowNode> {
        let regions = self.regions.as_ref()?;
        let found = parts.iter().filter_map(|it| Some((*it, self.nodes(it.colour, it.position).next()?)));
        let nodes: Vec<(&Placed, &ColourNode)> = found.collect();
        let (_, first) = nodes.first()?;
        let part = |(placed, node): &(&Placed, &ColourNode)| {
            let colour = placed.colour;
            let number = regions.own_number(colour, placed.position);
            ShadowPart { colour, number, edges: regions.edges_out(colour, number, self.first(colour), node) }
        };
        let mut bodies: Vec<Bytes> = nodes.iter().map(|(_, node)| node.body.clone()).collect();
        if bodies.iter().all(|body| *body == first.body) {
            bodies.truncate(1);
        }
        let (id, colours, parts) = (first.id, first.colours.clone(), nodes.iter().map(part).collect());
        Some(ShadowNode { id, at, colours, parts, bodies })
    }

    /// True if all regions are known here that a page's nodes depend on. Another region may know of one before it is known here.
    pub fn knows_regions_of(&self, command: &CopyNodes) -> bool {
        let parts = || command.nodes.iter().flat_map(|node| &node.parts);
        self.regions.as_ref().is_some_and(|regions| parts().all(|part| regions.knows(&part.edges)))
    }

    /// True if a page may be put into the row: its nodes are those that come next of their logs, and are of colours here.
    pub fn may_copy(&self, command: &CopyNodes) -> bool {
        let Some(regions) = &self.regions else { return false };
        let stream = (command.region, command.partition);
        let after = regions.copied.get(&stream).copied().unwrap_or(AppendTime::ZERO);
        let mut last = command.after;
        let mut next: BTreeMap<Colour, u64> = BTreeMap::new();
        let is_known = regions.streams(self.placement, self.partition).contains(&stream);
        let begins: BTreeMap<Colour, u64> =
            command.begins.iter().flatten().map(|it| (it.colour, it.number)).collect();
        is_known
            && begins.iter().all(|(colour, number)| self.is_here(*colour) && *number <= LOG_NODES_MAX)
            && command.after == after
            && command.through > after
            && command.nodes.iter().all(|node| {
                let is_later = node.at > std::mem::replace(&mut last, node.at);
                is_later
                    && node.at <= command.through
                    && (node.bodies.len() == 1 || node.bodies.len() == node.parts.len())
                    && !node.parts.is_empty()
                    && node.parts.iter().all(|part| {
                        let region = command.region;
                        let waiting = regions.waiting.get(&(part.colour, region)).map_or(0, VecDeque::len);
                        let known = regions.count(part.colour, region) + waiting as u64;
                        let begin = begins.get(&part.colour).copied().unwrap_or(0);
                        let known = if known == 0 { begin } else { known };
                        let next = next.entry(part.colour).or_insert(known);
                        let is_next = std::mem::replace(next, *next + 1) == part.number;
                        is_next && self.is_here(part.colour) && node.colours.contains(&part.colour)
                    })
            })
    }
}
