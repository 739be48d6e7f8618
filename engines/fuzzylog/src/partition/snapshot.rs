//! Snapshots of a partition's state: written item by item while commands go on, as the state was when the snapshot began.
//!
//! What is large, clients and colours, is read where it is, and what changes meanwhile is retained as it was. The rest is copied when
//! the snapshot begins.

use super::clients::DoneAppend;
use super::colours::{Maker, SavedPart};
use super::command::{
    CommandOrigin, Delivered, LogBegin, MovePoint, Placed, RegionPartitions, ShadowNode, StreamPoint,
};
use super::moving::{Mark, Moves, Taking};
use super::regions::{LogHead, Regions, SavedLogs, Stream};
use super::runs::{Run, SegmentBlob};
use super::segments::{EndOfWalk, Segmenting};
use super::several::{Several, Stage};
use super::{ColourNode, PartitionState, Queued, Single};
use crate::map::ColourMove;
use crate::parameters::FuzzyOrder;
use crate::terms::{
    AppendId, AppendTime, Colour, ColourPlacement, Content, Edge, MapVersion, NodePosition, Owner,
    PartitionId, RegionId, RestoreId, RowIndex,
};
use kernel::{BlobId, Bytes, Decode, DecodeError, Encode, NodeId, Reader, SnapshotStep, planted};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

kernel::messages! {
    /// An item of a snapshot.
    pub enum SnapshotItem {
        /// What the state is but for its tables.
        1 => StateHead {
            /// The clock.
            clock: u64,
            /// When the append was delivered that was delivered last.
            last: AppendTime,
            /// Commands that were applied.
            applied: RowIndex,
            /// The digest.
            digest: u64,
        },
        /// A client, whose appends follow.
        2 => ClientHead {
            /// The client.
            client: u64,
            /// It has the answers to all numbers below.
            below: u64,
            /// Its last command.
            used: RowIndex,
        },
        /// An append that is delivered, and that its client may ask for again.
        3 => ClientDone {
            /// The append.
            done: DoneAppend,
        },
        /// An append to several partitions that is not cleaned up.
        4 => SeveralState {
            /// Its name.
            id: AppendId,
            /// Who works on it.
            owner: Owner,
            /// What it is.
            content: Content,
            /// Its time; the proposed one until it is fixed.
            at: AppendTime,
            /// The time is its final one.
            is_fixed: bool,
            /// Where it is, when it is delivered.
            delivered: Option<Delivered>,
            /// Who asked last.
            origin: NodeId,
            /// By which call.
            call: u64,
        },
        /// An append to this partition alone that waits.
        5 => WaitingSingle {
            /// Its name.
            id: AppendId,
            /// What it is.
            content: Content,
            /// Its time.
            at: AppendTime,
            /// Who asked last.
            origin: NodeId,
            /// By which call.
            call: u64,
        },
        /// A colour, whose nodes follow.
        6 => ColourHead {
            /// The colour.
            colour: Colour,
            /// Its first node that is left.
            first: NodePosition,
            /// When its last node was delivered.
            last: AppendTime,
        },
        /// The next node of the colour.
        7 => NextNode {
            /// The colour.
            colour: Colour,
            /// The node.
            node: ColourNode,
        },
        /// Other regions, if there are any.
        8 => RegionsHead {
            /// This one.
            own: RegionId,
            /// The others.
            others: Vec<RegionPartitions>,
            /// How far their partitions are copied.
            copied: Vec<StreamPoint>,
            /// How far they have copied this one.
            confirmed: Vec<StreamPoint>,
            /// All of them have copied so much.
            everywhere: AppendTime,
            /// Regions that were removed; none, if there are none.
            removed: Option<Vec<RegionId>>,
            /// Nodes of regions' logs that were trimmed before they could be copied; none, if there are none.
            gone: Option<Vec<Edge>>,
        },
        /// Other regions' logs of a colour, of which nodes follow with the colour.
        9 => LogHeads {
            /// The colour.
            colour: Colour,
            /// The logs.
            logs: Vec<LogHead>,
            /// What comes before those nodes of the own region's log that were trimmed; none, if nothing does.
            of_trimmed: Option<Vec<Edge>>,
            /// How many nodes of each never were here; none, if all were.
            absent: Option<Vec<Edge>>,
        },
        /// A node of another region that waits for what comes before it.
        10 => WaitingShadow {
            /// The colour.
            colour: Colour,
            /// The region.
            region: RegionId,
            /// The node.
            node: ShadowNode,
        },
        /// A trim that waits for other regions.
        11 => WaitingTrim {
            /// The colour.
            colour: Colour,
            /// The first node that is to stay.
            before: NodePosition,
        },
        /// A colour that is out of view, whose nodes follow.
        12 => RestoredHead {
            /// The restore that makes it.
            restore: RestoreId,
            /// The colour.
            colour: Colour,
            /// Its first node.
            first: NodePosition,
            /// When its last node was delivered.
            last: AppendTime,
        },
        /// Logs that begin at a time for regions that do not have what is before.
        13 => LogBegins {
            /// When.
            at: AppendTime,
            /// Where.
            begins: Vec<LogBegin>,
        },
        /// Colours that have moved, and that do, if there are any.
        14 => MovesHead {
            /// The last version of the map by which something ended.
            version: MapVersion,
            /// The one by which colours came last.
            arrived: MapVersion,
            /// All moves up to this one are over.
            over: MapVersion,
            /// The latest time at which colours came or left.
            since: AppendTime,
            /// By this move colours leave.
            leaving: Option<ColourMove>,
            /// By this one they come.
            taking: Option<ColourMove>,
            /// Where its next page begins; none: all of it is here.
            next: Option<MovePoint>,
            /// The clock of where they come from.
            clock: u64,
            /// Colours that came, and what the clock was of where they came from.
            here: Vec<ArrivedColour>,
            /// Colours that have left.
            gone: Vec<Colour>,
        },
        /// A colour that is to come, whose nodes follow.
        15 => TakenHead {
            /// The move.
            id: MapVersion,
            /// The colour.
            colour: Colour,
            /// Its first node that is left.
            first: NodePosition,
            /// When its last node was delivered.
            last: AppendTime,
        },
        /// Consecutive nodes of a colour are in a segment.
        16 => SegmentRun {
            /// The colour.
            colour: Colour,
            /// The segment's blob.
            segment: BlobId,
            /// The first of the nodes.
            first: NodePosition,
            /// How many.
            count: u64,
        },
        /// Nodes that are in no segment.
        17 => LooseNodes {
            /// Encoded as in a segment.
            nodes: Bytes,
        },
        /// A segment that has nodes of the state.
        18 => SegmentStored {
            /// Its blob.
            segment: SegmentBlob,
        },
    }
}

kernel::record! {
    /// A colour that came from another partition.
    #[derive(Copy)]
    pub struct ArrivedColour {
        /// The colour.
        colour: Colour,
        /// The clock of where it came from.
        clock: u64,
    }
}

/// What there is of moves.
fn moves_of(moves: &Moves) -> Option<SnapshotItem> {
    let Moves { marks, leaving, taking, over, version, arrived, since } = moves.clone();
    let here = marks.iter().filter_map(|(&colour, mark)| match mark {
        Mark::Here(clock) => Some(ArrivedColour { colour, clock: *clock }),
        Mark::Gone => None,
    });
    let gone = marks.iter().filter(|(_, mark)| **mark == Mark::Gone).map(|(&colour, _)| colour);
    let (here, gone) = (here.collect(), gone.collect());
    let (next, clock) = taking.as_ref().map_or((None, 0), |it| (it.next, it.clock));
    let taking = taking.map(|it| it.begun);
    let item = MovesHead { version, arrived, over, since, leaving, taking, next, clock, here, gone };
    (*moves != Moves::default()).then(|| item.into())
}

/// A snapshot that is written.
#[derive(Clone, Debug)]
pub(super) struct Saving {
    /// What comes before the next client or colour.
    ready: VecDeque<SnapshotItem>,
    /// Of a snapshot for the server's own journal.
    pub(super) segmenting: Option<Segmenting>,
}

/// A snapshot goes on with an item, or a node that is in none; or its chunk ends.
type Next = ControlFlow<SnapshotStep, Option<SnapshotItem>>;

/// What there is of other regions but for their nodes in chains.
fn items_of(regions: &Regions) -> impl Iterator<Item = SnapshotItem> {
    let points = |of: &BTreeMap<Stream, AppendTime>| -> Vec<StreamPoint> {
        of.iter().map(|(&(region, partition), &at)| StreamPoint { region, partition, at }).collect()
    };
    let head = RegionsHead {
        own: regions.own,
        others: regions.others.clone(),
        copied: points(&regions.copied),
        confirmed: points(&regions.confirmed),
        everywhere: regions.everywhere,
        removed: (!regions.removed.is_empty()).then(|| regions.removed.iter().copied().collect()),
        gone: (!regions.gone.is_empty()).then(|| {
            let gone = regions.gone.iter();
            gone.map(|(&region, &count)| Edge { region, count }).collect()
        }),
    };
    let logs = regions.log_heads().map(|(colour, saved)| {
        let SavedLogs { logs, of_trimmed, absent } = saved;
        LogHeads { colour, logs, of_trimmed, absent }.into()
    });
    let begins = regions.outgoing.iter().filter(|(_, of)| !of.begins.is_empty());
    let begins = begins.map(|(&at, of)| LogBegins { at, begins: of.begins.clone() }.into());
    let waiting = regions.waiting.iter().flat_map(|(&(colour, region), nodes)| {
        nodes.iter().map(move |node| WaitingShadow { colour, region, node: node.clone() }.into())
    });
    let trims = regions.trims.iter().map(|(&colour, &before)| WaitingTrim { colour, before }.into());
    std::iter::once(head.into()).chain(logs).chain(begins).chain(waiting).chain(trims)
}

fn run_item((colour, run): (Colour, Run)) -> SnapshotItem {
    let Run { segment, first, count } = run;
    SegmentRun { colour, segment, first, count }.into()
}

fn regions_in(it: RegionsHead) -> Regions {
    let mut regions = Regions::new(it.own, it.others);
    let points = |of: Vec<StreamPoint>| of.into_iter().map(|it| ((it.region, it.partition), it.at)).collect();
    (regions.copied, regions.confirmed) = (points(it.copied), points(it.confirmed));
    regions.everywhere = it.everywhere;
    regions.removed = it.removed.into_iter().flatten().collect();
    regions.gone = it.gone.into_iter().flatten().map(|it| (it.region, it.count)).collect();
    regions
}

fn moves_in(it: MovesHead) -> Moves {
    let MovesHead { version, arrived, over, since, leaving, taking, next, clock, here, gone } = it;
    let here = here.into_iter().map(|it| (it.colour, Mark::Here(it.clock)));
    let marks = here.chain(gone.into_iter().map(|colour| (colour, Mark::Gone))).collect();
    let taking = taking.map(|begun| Taking { begun, next, clock });
    Moves { marks, leaving, taking, over, version, arrived, since }
}

impl PartitionState {
    /// A snapshot of the present state begins, with all nodes; one that was in flight is dropped.
    pub fn begin_snapshot(&mut self) {
        self.leave_segment();
        let (clock, last) = (self.clock, self.last);
        let head = StateHead { clock, last, applied: self.applied, digest: self.digest };
        let mut ready = VecDeque::from([head.into()]);
        for (&id, several) in &self.several {
            let Several { owner, content, stage, asker } = several.clone();
            let (at, is_fixed, delivered) = match stage {
                Stage::Proposed(at) => (at, false, None),
                Stage::Fixed(at) => (at, true, None),
                Stage::Delivered(delivered) => (delivered.at, true, Some(delivered)),
            };
            let CommandOrigin { node: origin, call } = asker;
            ready
                .push_back(SeveralState { id, owner, content, at, is_fixed, delivered, origin, call }.into());
        }
        for (&at, queued) in &self.queue {
            if let Queued::Single(Single { id, content, asker }) = queued.clone() {
                let CommandOrigin { node: origin, call } = asker;
                ready.push_back(WaitingSingle { id, content, at, origin, call }.into());
            }
        }
        ready.extend(self.regions.iter().flat_map(items_of));
        ready.extend(moves_of(&self.moves));
        self.clients.begin_saving();
        self.colours.begin_saving(false);
        self.saving = Some(Saving { ready, segmenting: None });
    }

    /// Nobody wants the rest of it.
    pub fn end_snapshot(&mut self) {
        self.leave_segment();
        self.saving = None;
        self.clients.end_saving();
        self.colours.end_saving();
    }

    /// Appends the next chunk, of about `budget` bytes and one item, to `chunk`. What segments take counts as well. When all are cut the
    /// chunk ends, and the next one names them.
    pub fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let in_segments = |state: &Self| {
            let segmenting = state.saving.as_ref().and_then(|saving| saving.segmenting.as_ref());
            segmenting.map_or(0, Segmenting::bytes)
        };
        let full = chunk.len() + in_segments(self) + budget.max(1);
        while chunk.len() + in_segments(self) < full {
            match self.next_item() {
                // Each item says how long it is, so that it can grow at its end.
                Next::Continue(Some(item)) => item.encode_sized(chunk),
                Next::Continue(None) => {}
                Next::Break(SnapshotStep::More) => break,
                Next::Break(SnapshotStep::Done) => {
                    self.end_snapshot();
                    return SnapshotStep::Done;
                }
            }
        }
        SnapshotStep::More
    }

    fn next_item(&mut self) -> Next {
        let Some(saving) = &mut self.saving else { return Next::Break(SnapshotStep::Done) };
        if let Some(item) = saving.ready.pop_front() {
            return Next::Continue(Some(item));
        }
        if let Some((client, row)) = self.clients.next_saved() {
            let done = row.done().map(|done| ClientDone { done: done.clone() }.into());
            saving.ready.extend(done);
            let head = ClientHead { client, below: row.below, used: row.used };
            return Next::Continue(Some(head.into()));
        }
        let Some(part) = self.colours.next_saved() else {
            let Some(segmenting) = saving.segmenting.as_mut().filter(|it| !it.is_walked()) else {
                return Next::Break(SnapshotStep::Done);
            };
            let EndOfWalk { runs, loose, named } = segmenting.end_walk(&mut self.colours);
            saving.ready.extend(runs.into_iter().map(run_item));
            saving.ready.extend(loose.map(|nodes| LooseNodes { nodes }.into()));
            saving.ready.extend(named.into_iter().map(|segment| SegmentStored { segment }.into()));
            return Next::Break(SnapshotStep::More);
        };
        Next::Continue(Some(match part {
            SavedPart::Colour(colour, first, last, None) => ColourHead { colour, first, last }.into(),
            SavedPart::Colour(colour, first, last, Some(Maker::Restore(restore))) => {
                RestoredHead { restore, colour, first, last }.into()
            }
            SavedPart::Colour(colour, first, last, Some(Maker::Move(id))) => {
                TakenHead { id, colour, first, last }.into()
            }
            SavedPart::Run(colour, run) => run_item((colour, run)),
            SavedPart::Node(colour, position, node) => {
                let Some(segmenting) = &mut saving.segmenting else {
                    return Next::Continue(Some(NextNode { colour, node }.into()));
                };
                let runs = segmenting.push(colour, position, node, &mut self.colours);
                saving.ready.extend(runs.into_iter().map(run_item));
                return Next::Continue(None);
            }
        }))
    }

    /// The state that these chunks are of. Each is freed when it is read, or the state would be in memory twice.
    pub fn of_chunks(
        partition: PartitionId,
        placement: ColourPlacement,
        order: FuzzyOrder,
        chunks: Vec<Bytes>,
    ) -> Result<Self, DecodeError> {
        let mut state = Self::new(partition, placement, order);
        for chunk in chunks {
            let mut reader = Reader::new(chunk);
            while reader.remaining() > 0 {
                let item = Bytes::decode(&mut reader)?;
                state.install(SnapshotItem::decoded(&item)?)?;
            }
        }
        state.end_filling()?;
        Ok(state)
    }

    fn install(&mut self, item: SnapshotItem) -> Result<(), DecodeError> {
        match item {
            SnapshotItem::StateHead(StateHead { clock, last, applied, digest }) => {
                let clock = if planted!(clock_starts_from_delivered) { last.clock } else { clock };
                (self.clock, self.last, self.applied, self.digest) = (clock, last, applied, digest);
            }
            SnapshotItem::ClientHead(_) | SnapshotItem::ClientDone(_)
                if planted!(snapshot_without_clients) => {}
            SnapshotItem::ClientHead(it) => self.clients.install(it.client, it.below, it.used),
            SnapshotItem::ClientDone(ClientDone { done }) => {
                let DoneAppend { id, at, placed } = done;
                self.clients.finish(id, &Delivered { at, placed });
            }
            SnapshotItem::SeveralState(it) => self.install_several(it),
            SnapshotItem::WaitingSingle(_) if planted!(snapshot_without_queue) => {}
            SnapshotItem::WaitingSingle(it) => {
                let asker = CommandOrigin { node: it.origin, call: it.call };
                self.wait(it.at, Single { id: it.id, content: it.content.compact(), asker });
            }
            SnapshotItem::ColourHead(it) => self.colours.install(it.colour, it.first, it.last, None),
            SnapshotItem::RestoredHead(it) => {
                self.colours.install(it.colour, it.first, it.last, Some(Maker::Restore(it.restore)));
            }
            SnapshotItem::TakenHead(it) => {
                self.colours.install(it.colour, it.first, it.last, Some(Maker::Move(it.id)));
            }
            SnapshotItem::MovesHead(it) => self.moves = moves_in(it),
            SnapshotItem::NextNode(it) => {
                let placed = Placed { colour: it.colour, position: self.colours.tail(it.colour) };
                if let Some(regions) = &mut self.regions {
                    regions.install_node(placed, &it.node);
                }
                self.colours.install_node(it.colour, it.node.compact());
            }
            SnapshotItem::RegionsHead(it) => self.regions = Some(regions_in(it)),
            SnapshotItem::LogHeads(it) => {
                if let Some(regions) = &mut self.regions {
                    let LogHeads { colour, logs, of_trimmed, absent } = it;
                    regions.install_logs(colour, SavedLogs { logs, of_trimmed, absent });
                }
            }
            SnapshotItem::WaitingShadow(_) if planted!(snapshot_without_waiting_shadows) => {}
            SnapshotItem::WaitingShadow(it) => {
                if let Some(regions) = &mut self.regions {
                    regions.wait(it.colour, it.region, it.node);
                }
            }
            SnapshotItem::LogBegins(it) => {
                if let Some(regions) = &mut self.regions {
                    regions.outgoing.entry(it.at).or_default().begins.extend(it.begins);
                }
            }
            SnapshotItem::WaitingTrim(it) => {
                if let Some(regions) = &mut self.regions {
                    regions.trims.insert(it.colour, it.before);
                }
            }
            SnapshotItem::SegmentRun(SegmentRun { colour, segment, first, count }) => {
                self.colours.install_run(colour, Run { segment, first, count })?;
            }
            SnapshotItem::LooseNodes(it) => self.colours.fill(&it.nodes, None)?,
            SnapshotItem::SegmentStored(it) => self.colours.install_segment(it.segment),
        }
        Ok(())
    }

    fn install_several(&mut self, it: SeveralState) {
        let asker = CommandOrigin { node: it.origin, call: it.call };
        let is_queued = !planted!(snapshot_without_queue);
        let stage = match (it.is_fixed, it.delivered) {
            (_, Some(delivered)) => Stage::Delivered(delivered),
            (true, None) => {
                let queued = is_queued.then_some(Queued::Fixed(it.id));
                self.queue.extend(queued.map(|queued| (it.at, queued)));
                Stage::Fixed(it.at)
            }
            (false, None) => {
                let queued = is_queued.then_some(Queued::Pending);
                self.queue.extend(queued.map(|queued| (it.at, queued)));
                Stage::Proposed(it.at)
            }
        };
        let owner = if planted!(snapshot_without_owners) { Owner::default() } else { it.owner };
        self.remember(it.id, Several { owner, content: it.content.compact(), stage, asker });
    }
}
