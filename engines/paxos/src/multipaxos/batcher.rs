//! The batcher: gathers clients' commands for the leader, and clients' reads for a replica (the paper's section 4.1).

mod reads;

use super::{Paxos, Pulse};
use crate::configuration::{Configuration, Configurations};
pub use crate::multipaxos::messages::batcher::*;
use crate::multipaxos::messages::{client, leader, replica};
use crate::parameters::Parameters;
use crate::value::{Batch, BatchId, COMMAND_HEAD_BYTES, CommandGroup, Commands, Level, Rules, Value};
use kernel::bounds::{BATCH_HEAD_BYTES, VALUE_BYTES_MAX};
use kernel::{AwaitedTimers, Cx, Encode, Instant, NodeId, Position, Recount, Role, Statement, planted};
use parts::{Ballot, Sequence, SessionId, Set, Slot, Tally};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

kernel::timers! {
    /// The batcher's timers.
    pub enum BatcherTimer {
        /// A batch has waited long enough to fill.
        Flush,
        /// Look for batches and reads without an answer.
        Resend,
    }
}

#[derive(Clone, Debug)]
struct InFlight {
    value: Value,
    sent_at: Instant,
    names: Vec<GroupName>,
}

/// What distinguishes a group that was sent again from another one: connection, session, first command, size.
type GroupName = (NodeId, SessionId, Sequence, usize);

/// False of a group that opens a session.
fn has_commands((_, _, _, bytes): &GroupName) -> bool {
    *bytes > 0
}

/// A batch that takes groups, encoded one behind the other.
///
/// Invariant: its groups never come to more than `bytes_max`, or there is one only.
#[derive(Clone, Debug, Default)]
struct OpenBatch {
    groups: Vec<u8>,
    names: Vec<GroupName>,
}

impl OpenBatch {
    fn admits(&self, bytes: usize, bytes_max: usize) -> bool {
        self.groups.is_empty() || self.groups.len() + bytes <= bytes_max
    }

    fn push(&mut self, group: &CommandGroup, name: GroupName) {
        group.encode(&mut self.groups);
        self.names.push(name);
    }

    /// The batch's encoding, and the names of its groups.
    fn close(self, id: BatchId, unbatcher: NodeId) -> (Vec<u8>, Vec<GroupName>) {
        let mut batch = Vec::with_capacity(self.groups.len() + BATCH_HEAD_BYTES);
        let rules = Some(Rules::BRIEF);
        Batch { id, unbatcher, groups: Vec::new(), rules }.encode(&mut batch);
        // The groups are encoded already: put their count instead of the empty row's, and the row behind it.
        let behind = batch.split_off(batch.len() - rules.encoded().len());
        let count_at = batch.len() - 4;
        batch[count_at..].copy_from_slice(&(self.names.len() as u32).to_le_bytes());
        batch.extend_from_slice(&self.groups);
        batch.extend_from_slice(&behind);
        (batch, self.names)
    }
}

/// What a group adds to its commands, at most.
const GROUP_HEAD_BYTES: usize = 40;
/// What follows the groups.
const RULES_BYTES: usize = 9;
const _: () = assert!(
    GROUP_HEAD_BYTES + 28 + RULES_BYTES <= BATCH_HEAD_BYTES,
    "a batch's head, and that of its only group"
);

/// Reads of one level that go to a replica with the next flush.
#[derive(Clone, Debug, Default)]
struct Unasked {
    through: Slot,
    bytes: usize,
    groups: Vec<replica::ReadGroup>,
}

#[derive(Clone, Debug)]
struct ReadBatch {
    version: u64,
    /// The acceptor group asked; its number and whom of it.
    group: usize,
    tally: Tally,
    /// How far each of those heard has voted.
    voted_through: BTreeMap<usize, Slot>,
    attempts: u64,
    sent_at: Instant,
    reads: Vec<replica::ReadGroup>,
}

#[derive(Clone, Debug)]
struct Reconfiguration {
    client: NodeId,
    session: SessionId,
    sequence: Sequence,
    configuration: Arc<Configuration>,
}

/// Reconfigurations that clients wait for.
const RECONFIGURATIONS_MAX: usize = 16;
/// How many times a read batch is asked before its clients are asked to send again.
const READ_ATTEMPTS_MAX: u64 = 20;

/// Forgets everything when it crashes; clients send again.
#[derive(Clone, Debug)]
pub struct Batcher {
    parameters: Parameters,
    configurations: Configurations,
    unbatcher: NodeId,
    leader: Option<Ballot>,
    /// Whom the leader has heard of late.
    alive: Vec<NodeId>,
    /// Batches that are full and wait until fewer are in flight.
    full: VecDeque<OpenBatch>,
    /// Groups that wait for a batch.
    open: OpenBatch,
    pending_bytes: usize,
    /// Groups that wait or are in flight: a copy of one adds nothing.
    names: Set<GroupName>,
    in_flight: BTreeMap<u64, InFlight>,
    in_flight_bytes: usize,
    next_number: u64,
    pending_reads: VecDeque<replica::ReadGroup>,
    pending_read_bytes: usize,
    /// Reads that need not ask acceptors.
    unasked: BTreeMap<Level, Unasked>,
    read_bytes_in_flight: usize,
    reads_in_flight: BTreeMap<u64, ReadBatch>,
    next_read: u64,
    reconfigurations: VecDeque<Reconfiguration>,
    flush_due: bool,
    resend_set: bool,
}

impl Batcher {
    /// A batcher whose clients are reached through `unbatcher`.
    pub fn new(parameters: Parameters, configurations: Configurations, unbatcher: NodeId) -> Self {
        Self {
            parameters,
            configurations,
            unbatcher,
            leader: None,
            alive: Vec::new(),
            full: VecDeque::new(),
            open: OpenBatch::default(),
            pending_bytes: 0,
            names: Set::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            next_number: 0,
            pending_reads: VecDeque::new(),
            pending_read_bytes: 0,
            unasked: BTreeMap::new(),
            read_bytes_in_flight: 0,
            reads_in_flight: BTreeMap::new(),
            next_read: 0,
            reconfigurations: VecDeque::new(),
            flush_due: false,
            resend_set: false,
        }
    }

    /// The leader it sends to, as far as it knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader.map(|ballot| ballot.leader)
    }

    /// The configurations it knows.
    pub fn configurations(&self) -> &Configurations {
        &self.configurations
    }

    /// Bytes that wait here, for metrics and bounds.
    pub fn waiting_bytes(&self) -> usize {
        let unasked: usize = self.unasked.values().map(|reads| reads.bytes).sum();
        self.pending_bytes
            + self.in_flight_bytes
            + self.pending_read_bytes
            + unasked
            + self.read_bytes_in_flight
    }

    /// The numbers that it keeps beside what they count.
    pub fn recounts(&self) -> Vec<Recount> {
        let waiting = self.full.iter().chain([&self.open]);
        let asking = self.reads_in_flight.values().flat_map(|batch| &batch.reads);
        let unasked = self.unasked.values();
        let unasked_groups = unasked.clone().flat_map(|reads| &reads.groups);
        let in_flight = self.in_flight.values();
        // Openings of sessions may come twice.
        let held =
            waiting.clone().map(|batch| &batch.names).chain(in_flight.clone().map(|batch| &batch.names));
        let held = held.flatten().filter(|name| has_commands(name)).count();
        let sum = |groups: &mut dyn Iterator<Item = &replica::ReadGroup>| groups.map(bytes_of).sum();
        vec![
            Recount::of("pending bytes", self.pending_bytes, waiting.map(|batch| batch.groups.len()).sum()),
            Recount::of("bytes in flight", self.in_flight_bytes, in_flight.map(|it| it.value.size()).sum()),
            Recount::of("bytes of reads", self.pending_read_bytes, sum(&mut self.pending_reads.iter())),
            Recount::of("bytes of reads in flight", self.read_bytes_in_flight, sum(&mut asking.into_iter())),
            Recount::of(
                "bytes of reads that ask nobody",
                unasked.map(|it| it.bytes).sum(),
                sum(&mut unasked_groups.into_iter()),
            ),
            Recount::of("names of groups", self.names.iter().filter(|name| has_commands(name)).count(), held),
        ]
    }
}

impl Role for Batcher {
    type Family = Paxos;
    type In = BatcherIn;
    type Timer = BatcherTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        // Numbers of an earlier incarnation must not be taken for this one's.
        self.next_number = cx.rng().bits() >> 1;
        self.next_read = cx.rng().bits() >> 1;
    }

    fn on_message(&mut self, from: NodeId, message: BatcherIn, cx: &mut Cx<'_, Self>) {
        match message {
            BatcherIn::Submit(message) => self.on_submit(from, message, cx),
            BatcherIn::Query(message) => self.on_query(from, message, cx),
            BatcherIn::Reconfigure(message) => self.on_reconfigure(from, message, cx),
            BatcherIn::PreReadAck(message) => self.on_pre_read_ack(from, message, cx),
            BatcherIn::Superseded(message) => self.on_superseded(message, cx),
            BatcherIn::Heartbeat(message) => self.on_heartbeat(message, cx),
            BatcherIn::Done(message) => self.on_done(message),
        }
    }

    fn on_timer(&mut self, timer: BatcherTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            BatcherTimer::Flush => self.flush_due = true,
            BatcherTimer::Resend => self.resend(cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(BatcherTimer::Resend, self.resend_set || self.has_work())
    }

    fn statement(&self) -> Statement {
        let unfinished = vec![
            ("batches in flight", self.in_flight.len()),
            ("batches of reads in flight", self.reads_in_flight.len()),
        ];
        let most = self.parameters.pending_bytes_max + self.parameters.batch_bytes_max;
        let bounds = vec![("bytes of commands and reads", self.waiting_bytes(), most)];
        Statement { recounts: self.recounts(), unfinished, bounds, ..Statement::default() }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        let due = self.parameters.batch_delay == Duration::ZERO || self.flush_due;
        self.flush(due, cx);
        if due {
            self.flush_unasked(cx);
        }
        if due || self.pending_read_bytes >= self.parameters.read_batch_bytes() {
            self.flush_reads(cx);
        }
        self.flush_due = false;
        if !self.resend_set && self.has_work() {
            self.resend_set = true;
            cx.set_timer(BatcherTimer::Resend, self.parameters.resend_after);
        }
    }
}

/// Writes.
impl Batcher {
    fn on_submit(&mut self, from: NodeId, message: Submit, cx: &mut Cx<'_, Self>) {
        let Submit { session, acknowledged, kind, commands } = message;
        if !commands.is_sound() {
            cx.mark("batcher.refused_as_malformed");
            return self.refuse(from, session, &commands, client::Status::Malformed, cx);
        }
        if cx.is_disk_full() {
            cx.mark("batcher.refused_for_want_of_disk_space");
            return self.refuse(from, session, &commands, client::Status::DiskFull, cx);
        }
        if commands.size() <= self.parameters.batch_bytes_max {
            return self.take(CommandGroup { client: from, session, acknowledged, kind, commands }, cx);
        }
        // Of a row that is longer than a batch, each command counts for itself.
        for command in commands.iter() {
            let mut row = Vec::with_capacity(command.bytes.len() + COMMAND_HEAD_BYTES);
            Commands::push(&mut row, command.sequence, command.bytes);
            let commands = Commands::from_row(row);
            if commands.size() <= self.parameters.batch_bytes_max {
                self.take(CommandGroup { client: from, session, acknowledged, kind, commands }, cx);
            } else {
                cx.mark("batcher.refused_as_malformed");
                self.refuse(from, session, &commands, client::Status::Malformed, cx);
            }
        }
    }

    /// Takes a group that fits in a batch.
    fn take(&mut self, group: CommandGroup, cx: &mut Cx<'_, Self>) {
        let bytes = group.commands.size() + GROUP_HEAD_BYTES;
        let first = group.commands.iter().next().map_or(Sequence(0), |command| command.sequence);
        let name = (group.client, group.session, first, group.commands.size());
        if has_commands(&name) && self.names.contains(&name) {
            // Its answer comes as it is; a client that is impatient must not fill the batcher with copies.
            return cx.mark("batcher.has_a_group_already");
        }
        if self.waiting_bytes() + bytes > self.parameters.pending_bytes_max {
            cx.mark("batcher.refused_as_busy");
            return self.refuse(group.client, group.session, &group.commands, client::Status::Busy, cx);
        }
        if !self.open.admits(bytes, self.parameters.batch_bytes_max) && planted!(batch_grows_past_bound) {
            self.flush(true, cx);
        } else if !self.open.admits(bytes, self.parameters.batch_bytes_max) {
            if self.in_flight.len() >= self.parameters.batches_in_flight_max {
                cx.mark("batcher.held_a_full_batch_back");
            }
            self.full.push_back(std::mem::take(&mut self.open));
            self.flush(false, cx);
        }
        self.expect_flush(cx);
        let before = self.open.groups.len();
        self.open.push(&group, name);
        self.names.insert(name);
        self.pending_bytes += self.open.groups.len() - before;
    }

    fn refuse(
        &self,
        to: NodeId,
        session: SessionId,
        commands: &Commands,
        status: client::Status,
        cx: &mut Cx<'_, Self>,
    ) {
        let mut results = client::Row::default();
        for command in commands.iter() {
            results.push(command.sequence, status, &[]);
        }
        if results.is_empty() && status == client::Status::DiskFull {
            results.push(client::OPENING, status, &[]);
        }
        cx.send(to, client::Results { session, executed: Slot(0), results });
    }

    fn expect_flush(&mut self, cx: &mut Cx<'_, Self>) {
        let delay = self.parameters.batch_delay;
        let waits =
            !self.open.groups.is_empty() || !self.pending_reads.is_empty() || !self.unasked.is_empty();
        if delay > Duration::ZERO && !waits {
            cx.set_timer(BatcherTimer::Flush, delay);
        }
    }

    /// Sends what is full, and if `due` what is open, as long as not enough are in flight: then what comes meanwhile waits.
    fn flush(&mut self, due: bool, cx: &mut Cx<'_, Self>) {
        while self.in_flight.len() < self.parameters.batches_in_flight_max {
            let open_goes = due || self.open.groups.len() >= self.parameters.batch_bytes_max;
            let batch = match self.full.pop_front() {
                Some(full) => full,
                None if open_goes && !self.open.groups.is_empty() => std::mem::take(&mut self.open),
                None => return,
            };
            self.send(batch, cx);
        }
    }

    fn send(&mut self, batch: OpenBatch, cx: &mut Cx<'_, Self>) {
        let number = self.next_number;
        self.next_number += 1;
        self.pending_bytes -= batch.groups.len();
        let (batch, names) = batch.close(BatchId { batcher: cx.node(), number }, self.unbatcher);
        let bytes = batch.len();
        let Ok(value) = Value::batch(batch) else {
            // The parameters are checked when a host starts, so only our own mistake comes here.
            kernel::invariant!(BOUND, bytes <= VALUE_BYTES_MAX, "a batch of {bytes} bytes fits in no slot");
            return;
        };
        self.in_flight_bytes += value.size();
        if let Some(ballot) = self.leader {
            cx.send(ballot.leader, leader::Propose { value: value.clone() });
        }
        let before = self.in_flight.insert(number, InFlight { value, sent_at: cx.now(), names });
        kernel::invariant!(UNIQ, before.is_none(), "two batches are called {number}");
    }

    fn on_done(&mut self, message: Done) {
        if let Some(done) = self.in_flight.remove(&message.number) {
            let (bytes, all) = (done.value.size(), self.in_flight_bytes);
            kernel::invariant!(BOUND, bytes <= all, "a batch of {bytes} bytes of {all} in flight is done");
            self.in_flight_bytes = all - bytes;
            for name in &done.names {
                self.names.remove(name);
            }
        }
    }
}

/// Membership, leaders, and what got lost.
impl Batcher {
    fn on_reconfigure(&mut self, from: NodeId, message: Reconfigure, cx: &mut Cx<'_, Self>) {
        let Reconfigure { session, sequence, configuration } = message;
        // Asked again, perhaps over another connection: the answer goes there.
        let same = |wanted: &&mut Reconfiguration| (wanted.session, wanted.sequence) == (session, sequence);
        if let Some(asked) = self.reconfigurations.iter_mut().find(same) {
            asked.client = from;
            return;
        }
        if !configuration.is_complete() || self.reconfigurations.len() >= RECONFIGURATIONS_MAX {
            let mut results = client::Row::default();
            results.push(sequence, client::Status::Malformed, &[]);
            return cx.send(from, client::Results { session, executed: Slot(0), results });
        }
        if let Some(ballot) = self.leader {
            cx.send(ballot.leader, leader::ChangeConfiguration { configuration: configuration.clone() });
        }
        self.reconfigurations.push_back(Reconfiguration { client: from, session, sequence, configuration });
    }

    fn on_heartbeat(&mut self, message: Heartbeat, cx: &mut Cx<'_, Self>) {
        let Pulse { ballot, configurations, executed, alive, truncate_below } = message.pulse;
        self.alive = alive;
        self.configurations.adopt(&configurations);
        self.answer_reconfigurations(truncate_below, cx);
        self.configurations.forget_before(Slot(executed.0.saturating_sub(1)));
        if self.leader >= Some(ballot) {
            return;
        }
        self.leader = Some(ballot);
        for in_flight in self.in_flight.values_mut() {
            in_flight.sent_at = cx.now();
            cx.send(ballot.leader, leader::Propose { value: in_flight.value.clone() });
        }
    }

    /// Answers when the new configuration's replicas have all slots of the one before, and one of their own, in durable
    /// snapshots: the machines that left may go then, and not before.
    fn answer_reconfigurations(&mut self, truncate_below: Slot, cx: &mut Cx<'_, Self>) {
        let configurations = &self.configurations;
        self.reconfigurations.retain(|wanted| {
            let version = wanted.configuration.version;
            let status = match configurations.with_version(version) {
                _ if configurations.latest().version < version => return true,
                // Came and went while nothing was heard: whether it was this one is not known any more.
                None => {
                    cx.mark("batcher.lost_track_of_a_change");
                    client::Status::SessionLost
                }
                Some(found) if !found.is_like(&wanted.configuration) => {
                    cx.mark("batcher.refused_a_change_that_lost");
                    client::Status::Conflict
                }
                Some(found)
                    if truncate_below <= found.first_slot && !planted!(change_answered_before_durable) =>
                {
                    return true;
                }
                Some(_) => client::Status::Done,
            };
            let mut results = client::Row::default();
            results.push(wanted.sequence, status, &[]);
            cx.send(wanted.client, client::Results { session: wanted.session, executed: Slot(0), results });
            false
        });
    }

    fn has_work(&self) -> bool {
        !self.in_flight.is_empty()
            || !self.reads_in_flight.is_empty()
            || !self.reconfigurations.is_empty()
            || !self.open.groups.is_empty()
            || !self.full.is_empty()
            || !self.pending_reads.is_empty()
    }

    fn resend(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, patience) = (cx.now(), self.parameters.resend_after);
        if let Some(ballot) = self.leader {
            for in_flight in self.in_flight.values_mut().filter(|batch| now.since(batch.sent_at) >= patience)
            {
                in_flight.sent_at = now;
                cx.mark("batcher.resent_a_batch");
                cx.send(ballot.leader, leader::Propose { value: in_flight.value.clone() });
            }
            for wanted in &self.reconfigurations {
                cx.send(
                    ballot.leader,
                    leader::ChangeConfiguration { configuration: wanted.configuration.clone() },
                );
            }
        }
        let late: Vec<u64> = self
            .reads_in_flight
            .iter()
            .filter(|(_, batch)| now.since(batch.sent_at) >= patience)
            .map(|(&id, _)| id)
            .collect();
        for id in late {
            if self.reads_in_flight.get(&id).is_some_and(|batch| batch.attempts >= READ_ATTEMPTS_MAX) {
                for read in self.end_reads(id) {
                    self.refuse(read.client, read.session, &read.queries, client::Status::Busy, cx);
                }
                continue;
            }
            let Some(mut batch) = self.reads_in_flight.remove(&id) else { continue };
            batch.attempts += 1;
            batch.sent_at = now;
            cx.mark("batcher.asked_acceptors_again");
            self.ask_acceptors(id, &mut batch, cx);
            self.reads_in_flight.insert(id, batch);
        }
        // Resending may have been all that was left to do; the burst's end sets the timer again if not.
        self.resend_set = false;
        self.flush_due = true;
    }
}

/// The slot after the last one that may be chosen, by what some acceptors of a group have voted in: a slot is chosen by a write quorum,
/// and those who were not heard may have voted in any.
fn chosen_below(group: &parts::AcceptorGroup, voted_through: &BTreeMap<usize, Slot>) -> Slot {
    let mut voted: Vec<Slot> = voted_through.values().copied().collect();
    voted.sort_unstable_by(|a, b| b.cmp(a));
    let members = group.members().len();
    let others = match group.shape() {
        parts::Shape::Majority => members / 2,
        parts::Shape::Grid { .. } => 0,
    };
    let unheard = members - voted.len();
    voted.get(others.saturating_sub(unheard)).or(voted.first()).copied().unwrap_or(Slot(0))
}

/// What a group of reads counts for; in a message it takes four times as much at most.
fn bytes_of(group: &replica::ReadGroup) -> usize {
    group.queries.size().max(READ_BYTES_MIN)
}

const READ_BYTES_MIN: usize = 16;
const _: () = assert!(READ_BYTES_MIN + GROUP_HEAD_BYTES <= 4 * READ_BYTES_MIN, "four times as much at most");
