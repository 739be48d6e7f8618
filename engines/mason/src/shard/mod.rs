//! A shard's server: executes one space in order, without holes (the paper's sections 2.1 and 6.3).
//!
//! It is given operations by the proxies' replicas of its own host, and asks for what it lacks. What it executes is in the
//! proxies' logs, durably, so it journals nothing but snapshots.
//!
//! An operation over several shards, at each participant:
//! ```text
//! shard a                      shard b
//!   | (a's number is due)         |
//!   |   Inputs ------------------>|  (b's number is due)
//!   |<------------------ Inputs   |
//!   | executes all of it          | executes all of it,
//!   | and applies its part        | and applies its part
//! ```
//! Nobody coordinates and nobody votes twice: inputs are a function of the numbers before, so any server of a shard can send
//! them, again and again. A participant waits only for operations with smaller global sequence numbers: there is no deadlock.

mod archive;
mod blobs;
mod execute;
mod inputs;
pub mod resharding;
mod snapshot;

use crate::Mason;
use crate::messages::client::{OperationAnswer, Remark};
use crate::messages::proxy;
pub use crate::messages::shard::*;
use crate::order::{ConsistentCut, Group, Gsn, Number, Placed, Space};
use crate::proxy::delivery::{Delivered, Work};
use crate::service::{Shard, ShardOut};
use crate::topology::{MasonParameters, Topology};
use kernel::{AwaitedTimers, BlobNotice, Bytes, Cx, Instant, NodeId, Position, Recount, Role, Statement};
use parts::{SnapshotRecord, Snapshots};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

kernel::timers! {
    /// The server's timers.
    pub enum ShardTimer {
        /// Look for what is missing, and report how far it is durable.
        Tick,
        /// Write the next chunk of a snapshot.
        Snapshot,
    }
}

#[derive(Clone, Debug)]
struct Entry {
    group: Group,
    delivered: Delivered,
}

#[derive(Clone, Debug)]
struct Waiting {
    reader: NodeId,
    at_least: Gsn,
    through: Number,
    reads: Vec<ShardQuery>,
    shard_map: Option<u64>,
    /// As in [`Read`]; fewer than reads where the rest has no limit.
    limits: Vec<u64>,
}

/// Executes a space.
///
/// Invariant: numbers are executed in order, each once, and none is left out.
#[derive(Debug)]
pub struct ShardServer<S> {
    space: Space,
    topology: Arc<Topology>,
    /// Servers that left with the last change: nobody else may have a snapshot of what only they and lost ones had.
    former: Vec<NodeId>,
    parameters: MasonParameters,
    service: S,
    /// The next number to execute.
    next: Number,
    /// The global sequence number of the last operation executed.
    executed: Gsn,
    /// Operations that wait for their turn.
    waiting: BTreeMap<Number, Entry>,
    inputs: inputs::Exchange,
    resharding: resharding::Resharding,
    cuts: VecDeque<ConsistentCut>,
    /// Everything with a global sequence number below this is executed, as far as it concerns this space.
    covered: Gsn,
    reported: Gsn,
    /// Numbers up to this one are assigned: they will come.
    reach: Number,
    observers: BTreeSet<NodeId>,
    /// What the service has said last to them.
    remarked: Option<Bytes>,
    reads: VecDeque<Waiting>,
    answers: BTreeMap<(NodeId, Group), Vec<OperationAnswer>>,
    out: ShardOut,
    scratch: Vec<u8>,
    /// Since when the next number has been missing, or its inputs.
    stuck_since: Option<Instant>,
    /// When it last had something new, or asked whether there is.
    asked_at: Instant,
    /// The number it asked for last.
    asked_from: Number,
    /// How often it has asked for the same again.
    asked_again: u32,
    /// When it last asked for another page of operations.
    page_asked_at: Instant,
    snapshots: Snapshots<Number, snapshot::Writer>,
    /// The one that is read back.
    restoring: snapshot::Installation,
    due: snapshot::Due,
    blobs: blobs::Blobs,
    archiving: archive::Archiving,
    /// The next tick is a while away: nothing is late.
    rests: bool,
}

/// Consistent cuts that wait to be covered: an early one that goes is covered by a later one.
const CUTS_MAX: usize = 1_024;
/// While nothing is late, it looks only so often.
const REST: Duration = kernel::REPEAT_WITHIN.saturating_mul(19);
/// Reads that wait; more are dropped, and their gateway asks again.
const READS_MAX: usize = 65_536;
/// Operations that wait for a number before them; beyond it later ones are dropped and asked for again.
const WAITING_MAX: usize = 1 << 20;
/// The same while the service waits for its disk.
const WAITING_FULL_MAX: usize = 1 << 10;

/// How far a shard's server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardProgress {
    /// The next number that it will execute.
    pub next: Number,
    /// The highest number that it knows to be assigned.
    pub reach: Number,
    /// Operations that wait for one before them.
    pub behind: usize,
    /// Inputs of other shards that its next operation waits for; none if that has not come.
    pub inputs_missing: Option<usize>,
    /// It takes a peer's snapshot.
    pub installs: bool,
}

impl<S: Shard> ShardServer<S> {
    /// A server that has executed nothing.
    pub fn new(space: Space, topology: Arc<Topology>, parameters: MasonParameters, service: S) -> Self {
        Self {
            space,
            former: Vec::new(),
            parameters,
            service,
            next: Number(1),
            executed: Gsn(0),
            waiting: BTreeMap::new(),
            inputs: inputs::Exchange::default(),
            resharding: resharding::Resharding::new(topology.layout.shard_map.clone()),
            cuts: VecDeque::new(),
            covered: Gsn(0),
            reported: Gsn(0),
            reach: Number(0),
            observers: BTreeSet::new(),
            remarked: None,
            reads: VecDeque::new(),
            answers: BTreeMap::new(),
            out: ShardOut::default(),
            scratch: Vec::new(),
            stuck_since: None,
            asked_at: Instant(0),
            asked_from: Number(0),
            asked_again: 0,
            page_asked_at: Instant(0),
            snapshots: Snapshots::default(),
            restoring: snapshot::Installation::default(),
            due: snapshot::Due::default(),
            blobs: blobs::Blobs::default(),
            archiving: archive::Archiving::default(),
            rests: false,
            topology,
        }
    }

    /// The shard it serves.
    pub fn space(&self) -> Space {
        self.space
    }

    /// The next number it will execute.
    pub fn next(&self) -> Number {
        self.next
    }

    /// The service's state.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Its durable snapshot holds everything below.
    pub fn durable_below(&self) -> Number {
        self.snapshots.durable_below()
    }

    /// How often it has taken a peer's snapshot in this incarnation, instead of executing what that holds; for invariants.
    pub fn skips(&self) -> u64 {
        self.due.skips()
    }

    /// The global sequence number of the last operation executed.
    pub fn executed(&self) -> Gsn {
        self.executed
    }

    /// Everything with a global sequence number below this is executed, as far as it concerns this shard.
    pub fn covered(&self) -> Gsn {
        self.covered
    }

    /// What it keeps of what it has said to other participants of operations, for invariants: by number, with the operation's numbers
    /// in their spaces and a digest of what was said.
    pub fn inputs_retained(&self) -> impl Iterator<Item = (Number, &[Placed], u64)> {
        self.inputs.sent().iter().map(|(&number, sent)| (number, &sent.others[..], sent.digest()))
    }

    /// Of how many operations it keeps what it has said, and the last of those.
    pub fn inputs_count(&self) -> (usize, Option<Number>) {
        let sent = self.inputs.sent();
        (sent.len(), sent.last_key_value().map(|(&number, _)| number))
    }

    /// Operations that wait for one before them.
    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }

    /// The operations that wait, for invariants.
    pub fn waiting(&self) -> impl Iterator<Item = (Number, &Delivered)> {
        self.waiting.iter().map(|(&number, entry)| (number, &entry.delivered))
    }

    /// How far it is, in numbers.
    pub fn status(&self) -> ShardProgress {
        let inputs_missing = self.waiting.get(&self.next).map(|_| self.missing_inputs().len());
        let (next, reach, behind) = (self.next, self.reach, self.waiting.len());
        ShardProgress { next, reach, behind, inputs_missing, installs: self.snapshots.is_taking() }
    }

    /// Where it stands, in words.
    pub fn describe(&self) -> String {
        let waits = match self.waiting.get(&self.next) {
            None if self.reach < self.next => "idle".to_owned(),
            None => format!("lacks its next number, {} is assigned", self.reach),
            Some(entry) => {
                let missing = self.missing_inputs();
                let shard_map = matches!(entry.delivered.work, Work::Reshard(_));
                let watches = if shard_map { ", or what is watched there" } else { "" };
                format!("lacks inputs of {missing:?}{watches}")
            }
        };
        let (space, next, behind) = (self.space, self.next, self.waiting.len());
        let installs = if self.snapshots.is_taking() { ", takes a snapshot" } else { "" };
        let missing = self.blobs_missing();
        let lacks = if missing > 0 { format!(", lacks {missing} blobs") } else { String::new() };
        format!("space {space} next {next}: {waits}; {behind} behind it{installs}{lacks}")
    }

    fn on_moved(&mut self, message: &Moved) {
        if message.members.version > self.topology.version {
            let before = self.topology.clone();
            self.topology = Arc::new(before.moved_to(&message.members));
            let now = self.topology.servers(self.space);
            self.former = before.servers(self.space).iter().filter(|it| !now.contains(it)).copied().collect();
            // Soon durable: the hosts that left are needed until enough of those that stay are.
            self.due.hurry();
        }
    }

    /// True if nothing waits for a look of the tick.
    fn is_at_rest(&self) -> bool {
        self.stuck_since.is_none()
            && self.waiting.is_empty()
            && self.reads.is_empty()
            && self.snapshots.is_idle()
            && !self.snapshots.is_taking()
            && !self.is_installing_half()
            && self.blobs.are_all_here()
            && self.service.as_archived().is_none_or(|archived| archived.to_archive(1).is_empty())
    }

    /// What has come may have to be looked after.
    fn end_rest(&mut self, cx: &mut Cx<'_, Self>) {
        if std::mem::take(&mut self.rests) {
            cx.set_timer(ShardTimer::Tick, self.parameters.ask_after);
        }
    }

    fn remark(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(body) = self.service.remark() else { return };
        for &observer in &self.observers {
            cx.send(observer, Remark { space: self.space, body: body.clone() });
        }
        self.remarked = Some(body);
    }

    /// Another server of this shard; servers that left with the last change included.
    fn any_peer(&self, cx: &mut Cx<'_, Self>) -> Option<NodeId> {
        let servers = self.topology.servers(self.space).iter().chain(&self.former).copied();
        let peers: Vec<NodeId> = servers.filter(|&server| server != cx.node()).collect();
        cx.rng().pick(&peers).copied()
    }

    fn ask_proxies(&mut self, cx: &mut Cx<'_, Self>) {
        self.asked_again = if self.asked_from == self.next { self.asked_again.saturating_add(1) } else { 0 };
        (self.asked_at, self.asked_from) = (cx.now(), self.next);
        let from = Placed { space: self.space, number: self.next };
        for group in self.topology.groups() {
            if let Some(proxy) = self.topology.proxy_on(group, cx.node().host()) {
                cx.send(proxy, proxy::Lacking { from: from.clone() });
            }
        }
    }
}

impl<S: Shard> Role for ShardServer<S> {
    type Family = Mason;
    type In = ShardIn;
    type Timer = ShardTimer;
    type Record = SnapshotRecord<Number>;

    fn restore(&mut self, position: Position, record: SnapshotRecord<Number>) {
        self.restore_snapshot(position, record);
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(ShardTimer::Tick, self.parameters.ask_after);
        self.snapshots.drop_unfinished();
        self.ask_proxies(cx);
        self.start_blobs(cx);
    }

    fn on_message(&mut self, from: NodeId, message: ShardIn, cx: &mut Cx<'_, Self>) {
        self.end_rest(cx);
        match message {
            ShardIn::ReadShard(message) => self.on_read(from, message, cx),
            ShardIn::Attach(Attach {}) => {
                self.service.forget_reader(from);
                self.observers.insert(from);
                cx.send(
                    from,
                    crate::messages::client::Progress { space: self.space, through: self.progress() },
                );
                self.report_shard_map(from, cx);
                let bytes = self.waiting_for_archive();
                if bytes > 0 {
                    cx.send(from, crate::messages::client::Overfull { space: self.space, bytes });
                }
                if let Some(body) = self.remarked.clone() {
                    cx.send(from, Remark { space: self.space, body });
                }
            }
            ShardIn::Deliver(message) => self.on_deliver(message, cx),
            ShardIn::ShardBehind(message) => self.on_behind(message, cx),
            ShardIn::Reach(message) => self.reach = self.reach.max(message.through),
            ShardIn::Inputs(message) => self.on_inputs(from, message, cx),
            ShardIn::WantInputs(message) => self.on_want_inputs(from, &message, cx),
            ShardIn::PullShardSnapshot(message) => self.on_pull_snapshot(from, message, cx),
            ShardIn::ShardSnapshotChunk(message) => self.on_snapshot_chunk(from, message, cx),
            ShardIn::Settled(_) | ShardIn::Moved(_) | ShardIn::Watched(_) | ShardIn::WantWatched(_)
                if from.host() != cx.node().host() =>
            {
                cx.reject("a replica's word from another host");
            }
            ShardIn::Watched(message) => self.on_watched(message, cx),
            ShardIn::WantWatched(message) => self.on_want_watched(from, &message, cx),
            ShardIn::Settled(message) => self.on_settled(&message),
            ShardIn::Moved(message) => self.on_moved(&message),
            ShardIn::Hurry(Hurry {}) => {
                if self.snapshots.durable_below() < self.next {
                    self.due.hurry();
                }
            }
            ShardIn::PullBlob(message) => self.on_pull_blob(from, &message, cx),
            ShardIn::BlobPage(message) => self.on_blob_page(from, &message, cx),
            ShardIn::WhetherArchived(message) => self.on_whether_archived(from, &message, cx),
            ShardIn::WereArchived(message) => self.on_were_archived(&message, cx),
        }
    }

    fn on_timer(&mut self, timer: ShardTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ShardTimer::Tick => {
                self.look_for_what_is_missing(cx);
                self.retry_transfer(cx);
                self.read_again_what_wants_none();
                self.step_archive(cx);
                self.report_durable(cx);
                self.rests = self.is_at_rest();
                let rest = if self.rests { REST + kernel::until_moment(cx.now()) } else { Duration::ZERO };
                cx.set_timer(ShardTimer::Tick, rest.max(self.parameters.ask_after));
            }
            // The burst's end does it.
            ShardTimer::Snapshot => {}
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(ShardTimer::Tick, true).and(ShardTimer::Snapshot, self.snapshots.is_writing())
    }

    fn statement(&self) -> Statement {
        let to_come = self.waiting.range(self.next..).count();
        let (received, needed) = self.inputs.received_from(self.next);
        let mut recounts = self.service.recounts();
        recounts.push(Recount::of("operations that wait for their number", self.waiting.len(), to_come));
        recounts.push(Recount::of("inputs of what is not executed", received, needed));
        Statement {
            recounts,
            unfinished: vec![("operations that wait", to_come), ("reads that wait", self.reads.len())],
            ..Statement::default()
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.send_answers(cx);
        self.report_progress(cx);
        self.answer_reads(cx);
        self.step_blobs(cx);
        self.step_snapshot(cx);
        self.report_what_waits(cx);
        self.remark(cx);
    }

    fn on_blob(&mut self, notice: BlobNotice, cx: &mut Cx<'_, Self>) {
        self.end_rest(cx);
        self.on_blob_notice(notice, cx);
    }
}
