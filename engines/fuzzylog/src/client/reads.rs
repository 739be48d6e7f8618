//! Syncs and plays.

use super::requests::{
    CountLogsCall, FindLogsCall, FuzzyRefusal, FuzzyResponse, PlayCall, PlayedPage, ScanCall, SnapshotCall,
    SyncCall,
};
use super::{
    EpochInForce, FuzzyClient, InForceThrough, LogsCounted, LogsFound, NodesPage, Scanned, Synced, Task,
};
use crate::chain_server::latest;
use crate::map::ColourMap;
use crate::messages::chain_server::{CountLogs, FindLogs, Play, Scan, Sync, SyncThrough};
use crate::partition::command::Placed;
use crate::terms::{AppendTime, ChainEpoch, Colour, Edge, NodePosition, PartitionId, RowIndex};
use kernel::{Cx, NodeId, RequestId, Wall, planted};

/// A sync that has ended: the tail has answered, and so has every other server of the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedSync {
    /// The call that it was of.
    pub call: u64,
    /// Whose chain was asked.
    pub partition: PartitionId,
    /// In which epoch.
    pub epoch: ChainEpoch,
}

/// A sync or a play in flight.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    partition: PartitionId,
    colour: Colour,
    from: NodePosition,
    seen: AppendTime,
    /// In the strict order, of a sync: all that was answered before it began has an earlier time.
    begun: AppendTime,
    stage: Stage,
    /// Only where a planted bug asks for one colour after the other.
    one_by_one: Option<(Vec<Colour>, Vec<Placed>)>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The tail is to answer, and all others to say that the epoch is in force.
    Syncing {
        epoch: ChainEpoch,
        in_force: Vec<NodeId>,
        synced: Option<Synced>,
        /// In the strict order: the longest row of those in force; the tail is asked when all have said it.
        through: RowIndex,
    },
    /// Some server is to hand over nodes; which one is asked goes round.
    Playing { to: NodePosition, source: u64 },
    /// The same, to count what of each region's log is below the position.
    Counting { source: u64 },
    /// The same, to find so much of each.
    Finding { counts: Vec<Edge>, source: u64 },
    /// The same, to read what the partition had at a cut.
    Scanning { scan: ScanCall, source: u64 },
}

impl Stage {
    fn syncing() -> Self {
        Self::Syncing { epoch: ChainEpoch(0), in_force: Vec::new(), synced: None, through: RowIndex(0) }
    }
}

impl Reading {
    pub(super) fn sync(partition: PartitionId, call: SyncCall, wall: Wall) -> Self {
        let SyncCall { colour, from, seen } = call;
        let (begun, stage) = (latest(wall), Stage::syncing());
        Self { partition, colour, from, seen, begun, stage, one_by_one: None }
    }

    fn new(partition: PartitionId, colour: Colour, from: NodePosition, stage: Stage) -> Self {
        let (seen, begun) = (AppendTime::ZERO, AppendTime::ZERO);
        Self { partition, colour, from, seen, begun, stage, one_by_one: None }
    }

    pub(super) fn play(partition: PartitionId, call: PlayCall, source: u64) -> Self {
        let PlayCall { colour, from, to } = call;
        let stage = Stage::Playing { to, source };
        Self::new(partition, colour, from, stage)
    }

    pub(super) fn count_logs(partition: PartitionId, call: CountLogsCall, source: u64) -> Self {
        let CountLogsCall { colour, below } = call;
        let stage = Stage::Counting { source };
        Self::new(partition, colour, below, stage)
    }

    pub(super) fn find_logs(partition: PartitionId, call: FindLogsCall, source: u64) -> Self {
        let FindLogsCall { colour, counts } = call;
        let stage = Stage::Finding { counts, source };
        Self::new(partition, colour, NodePosition(0), stage)
    }

    pub(super) fn scan(scan: ScanCall, source: u64) -> Self {
        let (partition, colour, from) = (scan.partition, scan.from.colour, scan.from.position);
        let stage = Stage::Scanning { scan, source };
        Self::new(partition, colour, from, stage)
    }

    pub(super) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Its colour is elsewhere, unless a partition is read as it is: nothing of what was answered counts. True if that is so.
    pub(super) fn moves_to(&mut self, map: &ColourMap) -> bool {
        let partition = map.partition_of(self.colour);
        let stays = partition == self.partition || matches!(self.stage, Stage::Scanning { .. });
        if stays {
            return false;
        }
        self.partition = partition;
        if matches!(self.stage, Stage::Syncing { .. }) {
            self.stage = Stage::syncing();
        }
        true
    }
}

impl FuzzyClient {
    /// Syncs in flight: their calls, and the epochs in which they are asked.
    pub fn syncs(&self) -> impl Iterator<Item = (u64, ChainEpoch)> {
        self.operations.iter().filter_map(|(&call, operation)| match &operation.task {
            Task::Reading(reading) => match reading.stage {
                Stage::Syncing { epoch, .. } => Some((call, epoch)),
                Stage::Playing { .. }
                | Stage::Counting { .. }
                | Stage::Finding { .. }
                | Stage::Scanning { .. } => None,
            },
            Task::One { .. } | Task::Several(_) | Task::Changing(_) => None,
        })
    }

    /// The sync that has ended last.
    pub fn ended_sync(&self) -> Option<EndedSync> {
        self.ended_sync
    }

    fn reading(&mut self, call: u64) -> Option<&mut Reading> {
        match &mut self.operations.get_mut(&call)?.task {
            Task::Reading(reading) => Some(reading),
            Task::One { .. } | Task::Several(_) | Task::Changing(_) => None,
        }
    }

    pub(super) fn say_reading(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(reading) = self.reading(call) else { return };
        let (partition, colour, seen, from) = (reading.partition, reading.colour, reading.seen, reading.from);
        let (stage, begun) = (reading.stage.clone(), reading.begun);
        let projection = self.projection(partition);
        let epoch = projection.epoch;
        if !projection.is_bootstrapped() {
            return self.want(partition, epoch.next(), cx);
        }
        let nodes: Vec<NodeId> = projection.nodes().collect();
        match stage {
            Stage::Syncing { epoch: asked_in, in_force, synced, through } => {
                let tail = projection.tail();
                let is_asked = |node: &NodeId| {
                    asked_in != epoch || !in_force.contains(node) && (synced.is_none() || tail != Some(*node))
                };
                let mut asked: Vec<NodeId> = nodes.into_iter().filter(is_asked).collect();
                if self.parameters.order.is_strict() {
                    // The tail is asked when the others have answered.
                    let is_last = asked.iter().all(|node| tail == Some(*node));
                    if is_last && let Some(tail) = asked.pop() {
                        let through = if asked_in == epoch { through } else { RowIndex(0) };
                        cx.send(tail, SyncThrough { call, epoch, colour, seen, begun, through });
                    }
                    asked.retain(|node| tail != Some(*node));
                }
                cx.multicast(asked, Sync { call, epoch, colour, seen });
                if asked_in != epoch {
                    self.begin_syncing(call, epoch);
                }
            }
            Stage::Playing { to, source } => {
                let source = nodes[(source % nodes.len() as u64) as usize];
                cx.send(source, Play { call, colour, from, to });
            }
            Stage::Counting { source } => {
                let source = nodes[(source % nodes.len() as u64) as usize];
                cx.send(source, CountLogs { call, colour, below: from });
            }
            Stage::Finding { counts, source } => {
                let source = nodes[(source % nodes.len() as u64) as usize];
                cx.send(source, FindLogs { call, colour, counts });
            }
            Stage::Scanning { scan: ScanCall { below, from, to, digests, .. }, source } => {
                let source = nodes[(source % nodes.len() as u64) as usize];
                cx.send(source, Scan { call, below, from, to, digests });
            }
        }
    }

    /// Nobody of this epoch has answered.
    fn begin_syncing(&mut self, call: u64, epoch: ChainEpoch) {
        if let Some(Reading { stage, .. }) = self.reading(call)
            && let Stage::Syncing { .. } = stage
        {
            *stage = Stage::Syncing { epoch, in_force: Vec::new(), synced: None, through: RowIndex(0) };
        }
    }

    /// Another projection: what the servers of the one before have said does not count.
    pub(super) fn restart_reading(&mut self, call: u64) {
        if let Some(Reading { stage: Stage::Syncing { epoch, .. }, .. }) = self.reading(call) {
            let epoch = *epoch;
            self.begin_syncing(call, epoch);
        }
    }

    /// Another server is asked next.
    pub(super) fn next_source(&mut self, call: u64) {
        match self.reading(call).map(|reading| &mut reading.stage) {
            Some(
                Stage::Playing { source, .. }
                | Stage::Counting { source }
                | Stage::Finding { source, .. }
                | Stage::Scanning { source, .. },
            ) => *source += 1,
            Some(Stage::Syncing { .. }) | None => {}
        }
    }

    pub(super) fn on_in_force(&mut self, from: NodeId, message: &EpochInForce, cx: &mut Cx<'_, Self>) {
        let EpochInForce { call, epoch } = *message;
        if let Some(Reading { stage: Stage::Syncing { epoch: own, in_force, .. }, .. }) = self.reading(call)
            && *own == epoch
            && !in_force.contains(&from)
        {
            in_force.push(from);
            self.end_sync(call, cx);
        }
    }

    pub(super) fn on_in_force_through(
        &mut self,
        from: NodeId,
        message: &InForceThrough,
        cx: &mut Cx<'_, Self>,
    ) {
        let InForceThrough { call, epoch, length } = *message;
        let Some(reading) = self.reading(call) else { return };
        let partition = reading.partition;
        let Stage::Syncing { epoch: own, in_force, through, .. } = &mut reading.stage else { return };
        if *own != epoch || in_force.contains(&from) {
            return;
        }
        in_force.push(from);
        *through = length.max(*through);
        let in_force = in_force.clone();
        let projection = self.projection(partition);
        if projection.nodes().all(|node| Some(node) == projection.tail() || in_force.contains(&node)) {
            self.say(call, cx);
        }
    }

    pub(super) fn on_synced(&mut self, from: NodeId, message: &Synced, cx: &mut Cx<'_, Self>) {
        let Some(reading) = self.reading(message.call) else { return };
        let partition = reading.partition;
        let tail = self.projection(partition).tail();
        if let Some(Reading { stage: Stage::Syncing { epoch, synced, .. }, .. }) = self.reading(message.call)
            && *epoch == message.epoch
            && tail == Some(from)
        {
            *synced = Some(message.clone());
            self.end_sync(message.call, cx);
        }
    }

    /// Goes on if everybody has answered.
    fn end_sync(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(reading) = self.reading(call) else { return };
        let (partition, from, seen) = (reading.partition, reading.from, reading.seen);
        let Stage::Syncing { epoch, in_force, synced: Some(synced), .. } = &reading.stage else { return };
        let (epoch, in_force, synced) = (*epoch, in_force.clone(), synced.clone());
        let projection = self.projection(partition);
        let all = projection.nodes().all(|node| Some(node) == projection.tail() || in_force.contains(&node));
        if projection.epoch != epoch || !all && !planted!(tail_answers_alone) {
            return;
        }
        self.ended_sync = Some(EndedSync { call, partition, epoch });
        let seen = seen.max(synced.last);
        let Some(reading) = self.reading(call) else { return };
        reading.seen = seen;
        if reading.one_by_one.is_some() {
            return self.next_of_one_by_one(call, synced.tail, cx);
        }
        if from < synced.first {
            let response = FuzzyResponse::AlreadyTrimmed { first: synced.first };
            return self.end_when_passed(call, response, synced.last, cx);
        }
        let colour = reading.colour;
        if from >= synced.tail {
            let response = if from > synced.tail {
                FuzzyResponse::Refused(FuzzyRefusal::BeyondTail { tail: synced.tail })
            } else {
                let (tail, nodes) = (synced.tail, Vec::new());
                FuzzyResponse::Played(PlayedPage { colour, from, nodes, tail, seen })
            };
            return self.end_when_passed(call, response, synced.last, cx);
        }
        reading.stage = Stage::Playing { to: synced.tail, source: call };
        self.say(call, cx);
    }

    pub(super) fn on_page(&mut self, message: NodesPage, cx: &mut Cx<'_, Self>) {
        let NodesPage { call, colour, from, first, nodes } = message;
        let Some(reading) = self.reading(call) else { return };
        let Stage::Playing { to, .. } = reading.stage else { return };
        if (reading.colour, reading.from) != (colour, from) {
            return;
        }
        if first > from {
            return self.end(call, FuzzyResponse::AlreadyTrimmed { first }, cx);
        }
        if from.0 + nodes.len() as u64 > to.0 || nodes.is_empty() && from < to {
            return cx.reject("page of nodes that were not asked for");
        }
        let seen = nodes.last().map_or(reading.seen, |node| node.at.max(reading.seen));
        let page = PlayedPage { colour, from, nodes, tail: to, seen };
        self.end_when_passed(call, FuzzyResponse::Played(page), seen, cx);
    }

    pub(super) fn on_logs_counted(&mut self, message: LogsCounted, cx: &mut Cx<'_, Self>) {
        let LogsCounted { call, first, counts } = message;
        let Some(Reading { from, stage: Stage::Counting { .. }, .. }) = self.reading(call) else { return };
        let response = match *from < first {
            true => FuzzyResponse::AlreadyTrimmed { first },
            false => FuzzyResponse::LogsCounted { counts },
        };
        self.end(call, response, cx);
    }

    pub(super) fn on_logs_found(&mut self, message: &LogsFound, cx: &mut Cx<'_, Self>) {
        let LogsFound { call, below, at } = *message;
        if let Some(Reading { stage: Stage::Finding { .. }, .. }) = self.reading(call) {
            self.end(call, FuzzyResponse::LogsFound { below, at }, cx);
        }
    }

    pub(super) fn on_scanned(&mut self, message: Scanned, cx: &mut Cx<'_, Self>) {
        let Scanned { call, page } = message;
        if let Some(Reading { stage: Stage::Scanning { .. }, .. }) = self.reading(call) {
            self.end(call, FuzzyResponse::Scanned(page), cx);
        }
    }

    /// The mistake of a snapshot that asks for one colour after the other.
    pub(super) fn snapshot_one_by_one(&mut self, id: RequestId, call: &SnapshotCall, cx: &mut Cx<'_, Self>) {
        let colour = call.colours[0];
        let partition = self.map.partition_of(colour);
        let mut reading =
            Reading::sync(partition, SyncCall { colour, from: NodePosition(0), seen: call.seen }, cx.wall());
        reading.one_by_one = Some((call.colours[1..].to_vec(), Vec::new()));
        self.begin(Some(id), Task::Reading(Box::new(reading)), cx);
    }

    fn next_of_one_by_one(&mut self, call: u64, position: NodePosition, cx: &mut Cx<'_, Self>) {
        let map = self.map.clone();
        let Some(reading) = self.reading(call) else { return };
        let (colour, at) = (reading.colour, reading.seen);
        let Some((left, found)) = &mut reading.one_by_one else { return };
        found.push(Placed { colour, position });
        if left.is_empty() {
            let tails = std::mem::take(found);
            return self.end(call, FuzzyResponse::Snapshotted { at, tails }, cx);
        }
        reading.colour = left.remove(0);
        reading.partition = map.partition_of(reading.colour);
        reading.stage = Stage::syncing();
        self.say(call, cx);
    }
}
