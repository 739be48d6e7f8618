//! The replica: executes the chosen values in slot order and answers (the paper's sections 2.3, 3.3, 3.4).
//!
//! `execute` runs commands and reads, `catch_up` closes gaps from peers, `snapshot` writes, serves and takes snapshots,
//! `divergence` compares what replicas did, `resume` goes on after a restart with what this host's acceptor has.

mod catch_up;
mod divergence;
mod execute;
mod resume;
mod snapshot;

use super::{Paxos, Pulse};
use crate::configuration::Configurations;
use crate::multipaxos::messages::leader;
pub use crate::multipaxos::messages::replica::*;
use crate::parameters::Parameters;
use crate::value::Value;
use kernel::{
    AwaitedTimers, Bytes, Cx, Instant, NodeId, Position, Recount, Role, StateMachine, Statement, planted,
};
use parts::{Ballot, SessionId, Sessions, Slot, SlotRing, SnapshotRecord, Snapshots, WantedPage};
use std::collections::VecDeque;
use std::time::Duration;

kernel::timers! {
    /// The replica's timers.
    pub enum ReplicaTimer {
        /// Look for gaps, blocked reads and stalled transfers.
        CatchUp,
        /// Write the next chunk of a snapshot.
        Snapshot,
    }
}

const CATCH_UP_EVERY: Duration = Duration::from_millis(20);
/// Chosen but not yet executed slots span at most this much.
const LOG_SPAN_MAX: usize = 1 << 16;
/// How often a replica reports to the leader how far it has executed, while the leader's window passes by.
const REPORTS_PER_WINDOW: u64 = 16;
/// Answers to reads in one burst, in bytes: a few bytes of query may ask for a megabyte. Beyond, clients ask again.
const READ_BYTES_PER_BURST_MAX: usize = 4 << 20;

#[derive(Clone, Debug, Default)]
struct Entry {
    /// What this host's acceptor voted for last.
    vote: Option<(Ballot, Value)>,
    /// The ballot in which the slot was chosen, while the value is missing.
    chosen_in: Option<Ballot>,
    /// The chosen value.
    value: Option<Value>,
    /// It is the one that this host's acceptor voted for.
    own: bool,
}

#[derive(Clone, Debug)]
struct WaitingRead {
    through: Slot,
    unbatcher: NodeId,
    reads: Vec<ReadGroup>,
}

/// Everything that is a function of the executed commands, apart from the machine itself.
#[derive(Clone, Debug)]
struct Replicated {
    /// The next slot to execute.
    executed: Slot,
    sessions: Sessions,
    configurations: Configurations,
    /// Of all slots, values and answers so far.
    digest: divergence::Digest,
}

/// What was reported last to all who may lead, and when; and to the leader.
#[derive(Clone, Copy, Debug)]
struct Shown {
    executed: Slot,
    snapshot: Slot,
    version: u64,
    hears: Option<Ballot>,
    at: Instant,
    to_leader_at: Instant,
}

/// Those who may lead one day are reported again what has not changed after so many heartbeats.
const SHOWN_AGAIN_AFTER: u32 = 10;

/// Executes the log on a state machine.
///
/// Invariant: slots are executed in order, each once, and only when chosen.
#[derive(Clone, Debug)]
pub struct Replica<S> {
    parameters: Parameters,
    machine: S,
    state: Replicated,
    log: SlotRing<Entry>,
    waiting_reads: VecDeque<WaitingRead>,
    waiting_read_bytes: usize,
    /// Answered to reads in this burst.
    read_bytes: usize,
    retained: SlotRing<Value>,
    retained_bytes: usize,
    leader: Option<Ballot>,
    heard_leader_at: Option<Instant>,
    /// The leader that rests, as the acceptor of this host hears.
    resting: Option<Ballot>,
    /// The timer runs that looks for what is missing.
    looks: bool,
    /// Replicas to turn to as far as leaders have reported, those that are alive first; unconfirmed, which serves for nothing else.
    peers: Vec<NodeId>,
    /// True until a snapshot is installed: the configurations are unconfirmed, and nothing may be executed on them.
    joining: bool,
    /// True where it asks for a snapshot only when a leader counts on it.
    waits: bool,
    reported: Option<(Slot, Slot)>,
    shown: Option<Shown>,
    catch_up: catch_up::CatchUp,
    resume: resume::Resume,
    snapshots: Snapshots<Slot, snapshot::Writer>,
    /// The one that is read back.
    restoring: snapshot::Installation,
    due: snapshot::Due,
    checkpoints: divergence::Checkpoints,
    scratch: Vec<u8>,
    notices: Vec<(NodeId, Bytes)>,
}

impl<S: StateMachine> Replica<S> {
    /// A replica that has executed nothing.
    pub fn new(parameters: Parameters, configurations: Configurations, machine: S) -> Self {
        let sessions = Sessions::new(parameters.sessions_max, parameters.outstanding_max);
        Self {
            parameters,
            machine,
            state: Replicated {
                executed: Slot(0),
                sessions,
                configurations,
                digest: divergence::Digest::default(),
            },
            log: SlotRing::new(Slot(0), LOG_SPAN_MAX),
            waiting_reads: VecDeque::new(),
            waiting_read_bytes: 0,
            read_bytes: 0,
            retained: SlotRing::new(Slot(0), usize::MAX),
            retained_bytes: 0,
            leader: None,
            heard_leader_at: None,
            resting: None,
            looks: false,
            peers: Vec::new(),
            joining: false,
            waits: false,
            reported: None,
            shown: None,
            catch_up: catch_up::CatchUp::default(),
            resume: resume::Resume::default(),
            snapshots: Snapshots::default(),
            restoring: snapshot::Installation::default(),
            due: snapshot::Due::default(),
            checkpoints: divergence::Checkpoints::default(),
            scratch: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// A replica of a machine that joins a living cluster: `configurations` only say whom to ask, and it starts from a
    /// snapshot.
    pub fn joining(parameters: Parameters, configurations: Configurations, machine: S) -> Self {
        Self {
            joining: !planted!(joining_replica_trusts_cluster_file),
            ..Self::new(parameters, configurations, machine)
        }
    }

    /// The same where many logs run and few of them are for this machine: it waits for the word of a leader.
    pub fn invited(parameters: Parameters, configurations: Configurations, machine: S) -> Self {
        Self { waits: true, ..Self::joining(parameters, configurations, machine) }
    }

    /// True while it has no state of its own yet.
    pub fn is_joining(&self) -> bool {
        self.joining
    }

    /// The slot after the last one executed.
    pub fn executed(&self) -> Slot {
        self.state.executed
    }

    /// The machine, for reading.
    pub fn machine(&self) -> &S {
        &self.machine
    }

    /// A digest of every slot, value and answer up to the last executed slot.
    pub fn digest(&self) -> u64 {
        self.state.digest.value()
    }

    /// Below which number each client is taken to have every answer, for invariants.
    pub fn acknowledged(&self) -> impl Iterator<Item = (SessionId, parts::Sequence)> {
        self.state.sessions.acknowledged()
    }

    /// A digest of what is retained for clients, so that nothing is executed twice.
    pub fn sessions_digest(&self) -> u64 {
        self.state.sessions.digest()
    }

    /// The slot after which half of the others, at least, stood otherwise: this replica has stopped.
    pub fn diverged(&self) -> Option<Slot> {
        self.checkpoints.diverged()
    }

    /// The configurations as of the last executed slot.
    pub fn configurations(&self) -> &Configurations {
        &self.state.configurations
    }

    /// The slot through which a durable snapshot holds everything.
    pub fn snapshot_through(&self) -> Slot {
        self.snapshots.durable_below()
    }

    /// The chunk of a peer's snapshot that it waits for.
    pub fn wanted_chunk(&self) -> Option<WantedPage> {
        self.snapshots.wanted()
    }

    /// The executed values still retained, for invariants.
    pub fn retained(&self) -> impl Iterator<Item = (Slot, &Value)> {
        self.retained.iter()
    }

    /// Bytes of reads that wait for their slot.
    pub fn waiting_read_bytes(&self) -> usize {
        self.waiting_read_bytes
    }

    /// The numbers that it keeps beside what they count, and those of its machine.
    pub fn recounts(&self) -> Vec<Recount> {
        let reads = self.waiting_reads.iter().flat_map(|waiting| &waiting.reads);
        let reads = reads.map(|read| read.queries.size() + 64).sum();
        let retained = self.retained.iter().map(|(_, value)| value.size()).sum();
        let mut all = self.machine.recounts();
        all.push(Recount::of("bytes of waiting reads", self.waiting_read_bytes, reads));
        all.push(Recount::of("retained bytes", self.retained_bytes, retained));
        all.extend(self.state.sessions.recounts());
        all
    }

    /// How many client sessions are open.
    pub fn open_sessions(&self) -> usize {
        self.state.sessions.len()
    }
}

impl<S: StateMachine> Role for Replica<S> {
    type Family = Paxos;
    type In = ReplicaIn;
    type Timer = ReplicaTimer;
    type Record = SnapshotRecord<Slot>;

    fn restore(&mut self, position: Position, record: SnapshotRecord<Slot>) {
        self.restore_snapshot(position, record);
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.look_soon(cx);
        self.snapshots.drop_unfinished();
        // What a snapshot holds may have to be reported again.
        self.send_notices(cx);
        self.begin_to_resume(cx);
        self.report(cx);
    }

    fn on_message(&mut self, from: NodeId, message: ReplicaIn, cx: &mut Cx<'_, Self>) {
        if self.checkpoints.diverged().is_some() {
            return;
        }
        self.look_soon(cx);
        match message {
            ReplicaIn::Chosen(message) => self.on_chosen(message, cx),
            ReplicaIn::Voted(message) => self.on_voted(message, cx),
            ReplicaIn::ReadBatch(message) => self.on_read(message, cx),
            ReplicaIn::Fetch(message) => self.on_fetch(from, message, cx),
            ReplicaIn::ChosenValues(message) => self.on_entries(message, cx),
            ReplicaIn::Behind(message) => self.on_behind(from, message, cx),
            ReplicaIn::PullSnapshot(message) => self.on_pull_snapshot(from, message, cx),
            ReplicaIn::SnapshotChunk(message) => self.on_snapshot_chunk(from, message, cx),
            ReplicaIn::Heartbeat(message) => self.on_heartbeat(message, cx),
            ReplicaIn::LeaderRests(_) if from.host() != cx.node().host() => {
                cx.reject("word of an acceptor that is not this host's");
            }
            ReplicaIn::LeaderRests(message) => self.resting = message.leader,
            ReplicaIn::Checkpoint(message) => self.on_checkpoint(from, message, cx),
            ReplicaIn::Resumed(message) => self.on_resumed(from, message, cx),
            ReplicaIn::Describe(Describe {}) if self.joining || self.is_resuming() => {}
            ReplicaIn::Describe(Describe {}) => {
                let configurations = Some(self.state.configurations.clone());
                // A snapshot that it reports counts only when it is durable.
                cx.send_durable(from, self.describe(configurations, cx.now()));
            }
        }
    }

    fn on_timer(&mut self, timer: ReplicaTimer, cx: &mut Cx<'_, Self>) {
        if self.checkpoints.diverged().is_some() {
            return;
        }
        match timer {
            ReplicaTimer::CatchUp => {
                self.looks = false;
                self.report_checkpoint(cx);
                self.report_to_acceptor(cx);
                self.seek_what_is_missing(cx);
                // The leader may be one that a change has just removed: it is none of "all" then, and has to end the change.
                if self.reported != Some((self.state.executed, self.snapshot_through())) {
                    self.report(cx);
                }
                self.report_to_all(cx);
                if !self.is_at_rest() {
                    self.look_soon(cx);
                }
            }
            // The burst's end does it.
            ReplicaTimer::Snapshot => {}
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        // A snapshot that is written has it report at its end.
        let (goes_on, writes) = (self.checkpoints.diverged().is_none(), self.snapshots.is_writing());
        AwaitedTimers::NONE
            .and(ReplicaTimer::CatchUp, goes_on && (self.looks || !writes && !self.is_at_rest()))
            .and(ReplicaTimer::Snapshot, goes_on && writes)
    }

    fn statement(&self) -> Statement {
        let (parameters, configurations) = (&self.parameters, self.state.configurations.all().len());
        // One that governs the last slot, and one that will govern later ones.
        let configurations = if self.joining { 0 } else { configurations };
        Statement {
            recounts: self.recounts(),
            unfinished: vec![("reads that wait", self.waiting_reads.len())],
            bounds: vec![
                ("configurations", configurations, 2),
                ("bytes of values for others", self.retained_bytes, parameters.retained_bytes_max),
                ("bytes of waiting reads", self.waiting_read_bytes, parameters.waiting_read_bytes_max),
                ("sessions", self.state.sessions.len(), parameters.sessions_max.max(1)),
            ],
            ..Statement::default()
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.read_bytes = 0;
        if self.checkpoints.diverged().is_some() {
            return;
        }
        self.step_snapshot(cx);
        if self.has_news() {
            self.report(cx);
        }
    }
}

impl<S: StateMachine> Replica<S> {
    /// Every message may be the first of what gets lost.
    fn look_soon(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.looks {
            self.looks = true;
            cx.set_timer(ReplicaTimer::CatchUp, CATCH_UP_EVERY);
        }
    }

    /// True if the leader rests and nothing is missing, or on its way, or still to be reported: the next message ends that.
    fn is_at_rest(&self) -> bool {
        self.resting.is_some()
            && self.resting == self.leader
            && !self.joining
            && !self.is_resuming()
            && self.waiting_reads.is_empty()
            && self.snapshots.is_idle()
            && !self.snapshots.is_taking()
            && !self.lacks_entries()
            && self.reported == Some((self.state.executed, self.snapshot_through()))
    }
}

/// What is reported to leaders.
impl<S: StateMachine> Replica<S> {
    fn describe(&self, configurations: Option<Configurations>, now: Instant) -> leader::Executed {
        let patience = self.parameters.election_timeout;
        let hears = self.heard_leader_at.is_some_and(|at| now.since(at) < patience)
            || (self.resting.is_some() && self.resting == self.leader);
        leader::Executed {
            executed: self.state.executed,
            version: self.state.configurations.latest().version,
            snapshot: self.snapshot_through(),
            configurations,
            hears: self.leader.filter(|_| hears),
        }
    }

    /// Whether a report is worth the leader's time. Its window is far larger than the steps in which execution is reported to it, and
    /// what is left is reported by the timer: a report for every slot of every replica would cost a leader more than its proposals.
    fn has_news(&self) -> bool {
        let step = (self.parameters.window / REPORTS_PER_WINDOW).max(1);
        self.reported.is_none_or(|(executed, snapshot)| {
            self.state.executed.0 >= executed.0 + step || self.snapshot_through() != snapshot
        })
    }

    /// Reports to the leader, whose window waits for it.
    fn report(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_resuming() {
            return;
        }
        self.reported = Some((self.state.executed, self.snapshot_through()));
        if let Some(ballot) = self.leader.filter(|_| !self.joining) {
            // What a leader learns here it may rely on: a snapshot counts only when it is durable.
            if planted!(snapshot_reported_before_journaled) {
                return cx.send(ballot.leader, self.describe(None, cx.now()));
            }
            cx.send_durable(ballot.leader, self.describe(None, cx.now()));
        }
    }

    /// Reports to everybody who may lead one day, with the configurations; what has not changed, to the leader alone in between.
    fn report_to_all(&mut self, cx: &mut Cx<'_, Self>) {
        if self.joining || self.is_resuming() {
            return;
        }
        let (now, every) = (cx.now(), self.parameters.heartbeat_every);
        let leader::Executed { executed, version, snapshot, hears, .. } = self.describe(None, now);
        let before = self.shown.filter(|shown| {
            (shown.executed, shown.snapshot, shown.version, shown.hears)
                == (executed, snapshot, version, hears)
        });
        // The acceptor of this host answers a leader that rests.
        let is_due = |shown: Shown| self.resting.is_none() && now.since(shown.to_leader_at) >= every;
        let for_leader = hears.filter(|_| before.is_none_or(is_due));
        let to_all = before.is_none_or(|shown| now.since(shown.at) >= SHOWN_AGAIN_AFTER * every);
        if !to_all && for_leader.is_none() {
            return;
        }
        let latest = self.state.configurations.latest();
        let leaders: Vec<NodeId> = if to_all {
            latest.leaders.clone()
        } else {
            for_leader.iter().map(|ballot| ballot.leader).collect()
        };
        let at = before.filter(|_| !to_all).map_or(now, |shown| shown.at);
        self.shown = Some(Shown { executed, snapshot, version, hears, at, to_leader_at: now });
        let report = self.describe(Some(self.state.configurations.clone()), now);
        cx.repeat_durable(leaders, report);
    }

    fn on_heartbeat(&mut self, message: Heartbeat, cx: &mut Cx<'_, Self>) {
        let Pulse { ballot, configurations, executed, truncate_below, alive } = message.pulse;
        let replicas = &configurations.latest().replicas;
        let living = alive.into_iter().filter(|node| replicas.contains(node) && *node != cx.node());
        self.peers = living.collect();
        self.peers.extend(replicas.iter().copied().filter(|&node| node != cx.node()));
        if self.leader <= Some(ballot) {
            self.heard_leader_at = Some(cx.now());
        }
        if self.leader < Some(ballot) {
            self.leader = Some(ballot);
            self.report(cx);
        }
        if self.joining {
            self.state.configurations.adopt(&configurations);
        }
        self.catch_up.saw_executed(executed);
        self.forget_retained_before(truncate_below);
    }
}
