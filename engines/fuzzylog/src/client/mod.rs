//! The client role (the paper's library): appends, plays, takes snapshots, trims, and finishes what other clients have left unfinished.
//!
//! `requests` is what local applications ask, `calls` how that begins, `batches` how appends of one burst go together, `reads` are syncs and plays, `several` appends to several partitions and how they are taken
//! over, `moving` what comes of it that colours move, `passing` answers that wait until their times have passed.
//!
//! A user is named by a number of its own, the client, and numbers its appends and snapshots. It may ask again by any client role, under the same
//! number, until it has the answer. It hands on the last time that it has seen: what it does later is ordered behind.

mod batches;
mod calls;
mod moving;
mod passing;
mod reads;
mod requests;
mod several;

pub use crate::messages::client::*;
pub use passing::PassedWaits;
pub use requests::{
    AppendCall, AppendOutcome, CountLogsCall, CutCall, FindLogsCall, FuzzyRefusal, FuzzyRequest,
    FuzzyResponse, OpenCall, PlayCall, PlayOutcome, PlayedPage, RestoreCall, ScanCall, SnapshotCall,
    SyncCall, TrimCall,
};

use crate::FuzzyLog;
use crate::map::ColourMap;
use crate::messages::chain_server::Submit;
use crate::messages::director::WantProjection;
use crate::parameters::FuzzyParameters;
use crate::partition::command::{Command, Outcome, Placed};
use crate::projection::ChainProjection;
use crate::terms::{AppendId, AppendTime, ChainEpoch, ColourPlacement, Content, PartitionId};
use batches::Batches;
use kernel::{AwaitedTimers, Cx, Instant, NodeId, Position, Recount, RequestId, Role, Statement};
use moving::Changing;
use passing::Passing;
pub use reads::EndedSync;
use reads::Reading;
pub use several::SeveralInFlight;
use several::SeveralTask;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

kernel::timers! {
    /// The client's timers.
    pub enum FuzzyClientTimer {
        /// Look after what is late, or answer what has passed. One timer for both: who has this role within another one gives it one.
        Tick,
    }
}

/// What a call needs.
#[derive(Clone, Debug)]
enum Task {
    /// One command.
    One { partition: PartitionId, command: Command },
    /// An append or a snapshot of several partitions.
    Several(Box<SeveralTask>),
    /// A sync or a play.
    Reading(Box<Reading>),
    /// Directors are to change where colours are.
    Changing(Box<Changing>),
}

impl Task {
    /// Bytes of what it appends.
    fn bytes(&self) -> usize {
        match self {
            Self::One { command: Command::Append(append), .. } => append.content.bytes(),
            Self::One { command: Command::Restore(restore), .. } => {
                restore.nodes.iter().map(|node| node.body.len()).sum()
            }
            Self::Several(task) => task.bytes(),
            Self::One { .. } | Self::Reading(_) | Self::Changing(_) => 0,
        }
    }
}

/// A call in flight; none asks for a take-over.
#[derive(Clone, Debug)]
struct Operation {
    request: Option<RequestId>,
    task: Task,
    sent_at: Instant,
    /// How often it was sent again.
    repeats: u32,
}

/// What is late again and again is sent again after so many doublings of the wait at the most: a head that is busy, or a disk that is slow,
/// has enough to do.
const DOUBLINGS_MAX: u32 = 4;

impl Operation {
    fn is_late(&self, resend_after: Duration, now: Instant) -> bool {
        now.since(self.sent_at) >= resend_after * (1 << self.repeats.min(DOUBLINGS_MAX))
    }
}

/// The client of a host.
#[derive(Clone, Debug)]
pub struct FuzzyClient {
    parameters: FuzzyParameters,
    map: ColourMap,
    /// When a later one was asked for last.
    asked_for_map_at: Instant,
    directors: Vec<NodeId>,
    projections: Vec<ChainProjection>,
    /// When each partition's projection was asked for last.
    asked_at: Vec<Instant>,
    batches: Batches,
    next_call: u64,
    operations: BTreeMap<u64, Operation>,
    /// Bytes of what is appended by calls and take-overs in flight.
    bytes: usize,
    /// Take-overs in flight, by what they finish.
    recovering: BTreeMap<AppendId, u64>,
    passing: Passing,
    /// Cuts and openings in flight: they are of all partitions.
    of_all: BTreeSet<RequestId>,
    /// When it is to look after what is late.
    ticks_at: Instant,
    ended_sync: Option<EndedSync>,
}

impl FuzzyClient {
    /// A client of partitions whose first projections are these. Those beyond the placement's are of partitions that may be added.
    pub fn new(
        parameters: FuzzyParameters,
        placement: ColourPlacement,
        directors: Vec<NodeId>,
        initial: Vec<ChainProjection>,
    ) -> Self {
        let asked_at = vec![Instant(0); initial.len()];
        let map = ColourMap::new(placement).with_room(initial.len());
        Self {
            parameters,
            map,
            asked_for_map_at: Instant(0),
            directors,
            projections: initial,
            asked_at,
            batches: Batches::default(),
            next_call: 0,
            operations: BTreeMap::new(),
            bytes: 0,
            recovering: BTreeMap::new(),
            passing: Passing::default(),
            of_all: BTreeSet::new(),
            ticks_at: Instant(0),
            ended_sync: None,
        }
    }

    /// Where colours are, as far as it knows.
    pub fn map(&self) -> &ColourMap {
        &self.map
    }

    /// The projections that it knows.
    pub fn projections(&self) -> impl Iterator<Item = &ChainProjection> {
        self.projections.iter()
    }

    /// Calls of local applications in flight.
    pub fn outstanding(&self) -> usize {
        self.operations.len() - self.recovering.len() + self.passing.len()
    }

    /// Take-overs in flight.
    pub fn recovering(&self) -> usize {
        self.recovering.len()
    }

    /// How far appends to several partitions are that are in flight here: whether they are in phase 2, whether they are taken over, how
    /// many partitions have answered, and how many are asked.
    pub fn several_in_flight(&self) -> impl Iterator<Item = SeveralInFlight> {
        self.operations.values().filter_map(|operation| match &operation.task {
            Task::Several(task) => Some(task.in_flight()),
            Task::One { .. } | Task::Reading(_) | Task::Changing(_) => None,
        })
    }

    /// What is in flight, in a few words, for reports.
    pub fn describe(&self) -> String {
        let words = self.operations.values().map(|operation| match &operation.task {
            Task::One { partition, command } => format!("{command:?} at {partition}"),
            Task::Several(task) => task.describe(),
            Task::Reading(reading) => format!("{reading:?}"),
            Task::Changing(changing) => format!("{changing:?}"),
        });
        words.chain(self.passing.describe()).collect::<Vec<_>>().join(", ")
    }

    fn new_call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call
    }

    fn projection(&self, partition: PartitionId) -> &ChainProjection {
        &self.projections[usize::from(partition.0)]
    }

    fn begin(&mut self, request: Option<RequestId>, task: Task, cx: &mut Cx<'_, Self>) -> u64 {
        let call = self.new_call();
        self.bytes += task.bytes();
        self.operations.insert(call, Operation { request, task, sent_at: cx.now(), repeats: 0 });
        self.say(call, cx);
        call
    }

    /// Sends what a call needs now.
    fn say(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(operation) = self.operations.get_mut(&call) else { return };
        operation.sent_at = cx.now();
        match &operation.task {
            Task::One { partition, command: Command::Append(_) } => self.batches.add(*partition, call),
            Task::One { partition, command } => {
                let (partition, command) = (*partition, command.clone());
                self.submit(call, partition, command, cx);
            }
            Task::Several(_) => self.say_several(call, cx),
            Task::Reading(_) => self.say_reading(call, cx),
            Task::Changing(_) => self.say_change(call, cx),
        }
    }

    fn submit(&mut self, call: u64, partition: PartitionId, command: Command, cx: &mut Cx<'_, Self>) {
        let projection = self.projection(partition);
        let epoch = projection.epoch;
        match projection.head().filter(|_| projection.is_bootstrapped()) {
            Some(head) => cx.send(head, Submit { call, epoch, command }),
            None => self.want(partition, epoch.next(), cx),
        }
    }

    /// Asks for a projection, unless that was done lately.
    fn want(&mut self, partition: PartitionId, epoch: ChainEpoch, cx: &mut Cx<'_, Self>) {
        let (now, at) = (cx.now(), usize::from(partition.0));
        let is_late = self.asked_at[at] == Instant(0) || now.since(self.asked_at[at]) >= self.parameters.tick;
        if epoch > self.projection(partition).epoch && is_late {
            self.asked_at[at] = now;
            cx.multicast(self.directors.iter().copied(), WantProjection { partition, epoch });
        }
    }

    fn take(&mut self, call: u64) -> Option<Operation> {
        let operation = self.operations.remove(&call)?;
        let bytes = operation.task.bytes();
        kernel::invariant!(BOUND, bytes <= self.bytes, "{bytes} bytes end of {} in flight", self.bytes);
        self.bytes -= bytes;
        Some(operation)
    }

    fn end(&mut self, call: u64, response: FuzzyResponse, cx: &mut Cx<'_, Self>) {
        if let Some(operation) = self.take(call) {
            match operation.request {
                Some(request) => {
                    self.of_all.remove(&request);
                    cx.respond(request, response);
                }
                None => self.recovering.retain(|_, recovering| *recovering != call),
            }
        }
    }

    fn on_done(&mut self, call: u64, partition: PartitionId, outcome: Outcome, cx: &mut Cx<'_, Self>) {
        let Some(operation) = self.operations.get(&call) else { return };
        if matches!(outcome, Outcome::Restoring(_)) {
            // It is sent again, until the restore is over.
            return cx.mark("client.waited_for_a_restore");
        }
        match (&operation.task, &outcome) {
            (_, Outcome::Moving(_)) => return cx.mark("client.waited_for_a_move"),
            (_, Outcome::Elsewhere(it)) => return self.on_elsewhere(call, it.version, cx),
            (Task::One { command: Command::Append(_), .. }, Outcome::Held(held)) => {
                return self.go_on_as_several(call, held.owner, cx);
            }
            (Task::One { .. } | Task::Several(_) | Task::Reading(_) | Task::Changing(_), _) => {}
        }
        match &operation.task {
            Task::One { partition: own, command } if *own == partition => {
                let content = match command {
                    Command::Append(append) => Some(&append.content),
                    _ => None,
                };
                let reveals = outcome.at();
                let response = response_of(outcome, content);
                self.end_when_passed(call, response, reveals, cx);
            }
            Task::Several(_) => self.on_several(call, partition, outcome, cx),
            Task::One { .. } | Task::Reading(_) | Task::Changing(_) => {}
        }
    }

    /// It is sent again after a while, unless it concerns one partition alone, and that is full.
    fn on_busy(&mut self, message: &HeadBusy, cx: &mut Cx<'_, Self>) {
        cx.mark("client.was_busy");
        let operation = self.operations.get(&message.call);
        let is_one = operation.is_some_and(
            |it| matches!(&it.task, Task::One { partition, .. } if *partition == message.partition),
        );
        if message.is_full && is_one {
            self.end(message.call, FuzzyResponse::Refused(FuzzyRefusal::Full), cx);
        }
    }

    fn on_decided(&mut self, projection: ChainProjection, cx: &mut Cx<'_, Self>) {
        let partition = projection.partition;
        let Some(known) = self.projections.get_mut(usize::from(partition.0)) else { return };
        if projection.epoch <= known.epoch || !projection.is_sound() {
            return;
        }
        *known = projection;
        let concerned = |operation: &Operation| match &operation.task {
            Task::One { partition: own, .. } => *own == partition,
            Task::Several(task) => task.waits_for(partition),
            Task::Reading(reading) => reading.partition() == partition,
            Task::Changing(_) => false,
        };
        let calls: Vec<u64> =
            self.operations.iter().filter(|(_, it)| concerned(it)).map(|(&call, _)| call).collect();
        for call in calls {
            if let Some(operation) = self.operations.get_mut(&call) {
                operation.repeats = 0;
            }
            self.restart_reading(call);
            self.say(call, cx);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, resend_after) = (cx.now(), self.parameters.resend_after);
        let late: Vec<u64> = self
            .operations
            .iter()
            .filter(|(_, operation)| operation.is_late(resend_after, now))
            .map(|(&call, _)| call)
            .collect();
        let mut silent = Vec::new();
        for call in late {
            if let Some(operation) = self.operations.get_mut(&call) {
                operation.repeats = operation.repeats.saturating_add(1);
                match &operation.task {
                    Task::One { partition, .. } => silent.push(*partition),
                    Task::Several(task) => silent.extend(task.waiting_for()),
                    Task::Reading(reading) => silent.push(reading.partition()),
                    Task::Changing(_) => {}
                }
            }
            self.next_source(call);
            self.say(call, cx);
        }
        silent.sort_unstable();
        silent.dedup();
        for partition in silent {
            // Somebody is silent: there may be a new projection.
            let epoch = self.projection(partition).epoch.next();
            self.want(partition, epoch, cx);
        }
        self.end_back_offs(cx);
    }
}

/// What a local application is answered; of an append: to this content.
fn response_of(outcome: Outcome, content: Option<&Content>) -> FuzzyResponse {
    match outcome {
        Outcome::Delivered(it) => match content {
            Some(content) => delivered(it.at, it.placed, content),
            None => FuzzyResponse::Refused(FuzzyRefusal::NumberUsed),
        },
        Outcome::TrimmedTo(it) => FuzzyResponse::Trimmed { first: it.first },
        Outcome::BeyondTail(it) => FuzzyResponse::Refused(FuzzyRefusal::BeyondTail { tail: it.tail }),
        Outcome::Forgotten(_) => FuzzyResponse::Refused(FuzzyRefusal::Forgotten),
        Outcome::RestoredTo(it) => FuzzyResponse::Restored { tail: it.tail },
        Outcome::Conflict(_)
        | Outcome::Moving(_)
        | Outcome::Elsewhere(_)
        | Outcome::Restoring(_)
        | Outcome::Unknown(_)
        | Outcome::Proposed(_)
        | Outcome::Fixed(_)
        | Outcome::Held(_) => FuzzyResponse::Refused(FuzzyRefusal::NumberUsed),
    }
}

fn delivered(at: AppendTime, placed: Vec<Placed>, content: &Content) -> FuzzyResponse {
    if placed.len() < content.colours.len() {
        FuzzyResponse::PlacesForgotten { at }
    } else if content.is_snapshot() {
        FuzzyResponse::Snapshotted { at, tails: placed }
    } else {
        FuzzyResponse::Appended { at, placed }
    }
}

impl Role for FuzzyClient {
    type Family = FuzzyLog;
    type In = FuzzyClientIn;
    type Timer = FuzzyClientTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        // What is answered to an earlier run means nothing to this one.
        self.next_call = cx.rng().bits() >> 1;
        self.ticks_at = cx.now() + self.parameters.tick;
        self.set_tick(cx);
    }

    fn on_message(&mut self, from: NodeId, message: FuzzyClientIn, cx: &mut Cx<'_, Self>) {
        match message {
            FuzzyClientIn::CommandDone(CommandDone { call, partition, outcome, takes_many_in }) => {
                if let Some(epoch) = takes_many_in {
                    self.batches.note_takes_many(partition, epoch);
                }
                self.on_done(call, partition, outcome, cx);
            }
            FuzzyClientIn::CommandsDone(CommandsDone { partition, outcomes }) => {
                for NamedOutcome { call, outcome } in outcomes {
                    self.on_done(call, partition, outcome, cx);
                }
            }
            FuzzyClientIn::HeadBusy(message) => self.on_busy(&message, cx),
            FuzzyClientIn::ServerSealed(message) => {
                if usize::from(message.partition.0) < self.projections.len() {
                    self.want(message.partition, message.epoch, cx);
                }
            }
            FuzzyClientIn::EpochInForce(message) => self.on_in_force(from, &message, cx),
            FuzzyClientIn::InForceThrough(message) => self.on_in_force_through(from, &message, cx),
            FuzzyClientIn::Synced(message) => self.on_synced(from, &message, cx),
            FuzzyClientIn::NodesPage(message) => self.on_page(message, cx),
            FuzzyClientIn::LogsCounted(message) => self.on_logs_counted(message, cx),
            FuzzyClientIn::LogsFound(message) => self.on_logs_found(&message, cx),
            FuzzyClientIn::Scanned(message) => self.on_scanned(message, cx),
            // Another server is asked when it is late.
            FuzzyClientIn::NotThere(_) | FuzzyClientIn::ScanTooEarly(_) => {
                cx.mark("client.asked_a_server_that_lags")
            }
            FuzzyClientIn::StuckAppend(message) => self.on_stuck(message, cx),
            FuzzyClientIn::ProjectionDecided(message) => self.on_decided(message.projection, cx),
            FuzzyClientIn::DirectorsMoved(message) if from.host() == cx.node().host() => {
                self.directors = message.directors;
            }
            FuzzyClientIn::ColourElsewhere(message) => self.on_elsewhere(message.call, message.version, cx),
            FuzzyClientIn::ColoursPlaced(message) => self.on_placed(message.moves, cx),
            FuzzyClientIn::ScanOutdated(message) => {
                self.end(message.call, FuzzyResponse::Refused(FuzzyRefusal::MovedSince), cx);
            }
            FuzzyClientIn::ChangeStands(message) => self.on_change_stands(message, cx),
            FuzzyClientIn::DirectorsMoved(_) => cx.reject("another host's word of who directs"),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(FuzzyClientTimer::Tick, true)
    }

    fn statement(&self) -> Statement {
        let bytes = self.operations.values().map(|operation| operation.task.bytes()).sum();
        let in_flight = self.recovering.values().filter(|call| self.operations.contains_key(call)).count();
        let recounts = vec![
            Recount::of("bytes of calls", self.bytes, bytes),
            Recount::of("take-overs", self.recovering.len(), in_flight),
        ];
        let unfinished = vec![("calls", self.outstanding()), ("take-overs", self.recovering.len())];
        Statement { recounts, unfinished, ..Statement::default() }
    }

    fn on_timer(&mut self, timer: FuzzyClientTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            FuzzyClientTimer::Tick => {
                self.answer_what_has_passed(cx);
                if !self.parameters.order.is_strict() || cx.now() >= self.ticks_at {
                    self.tick(cx);
                    self.ticks_at = cx.now() + self.parameters.tick;
                }
                self.set_tick(cx);
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        self.on_call(id, request, cx);
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.send_batches(cx);
    }
}
