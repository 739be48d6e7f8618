//! Maps over FuzzyLog: processes at the clients' hosts have maps open, as hosts and programs have them, over the chains of the family
//! `fuzzylog` with all its faults.
//!
//! ```text
//! user -> MapProcess (ordinate_client::maps) -> Port -> client role of its host -> chains
//!    '--> another process, under the same number, when there is no answer
//! ```

mod judged;
mod port;
mod process;
mod twin;

use super::{FuzzyScenario, Node};
use ::fuzzylog::{AppendTime, FuzzyMessage, FuzzyOrder, FuzzyResponse};
use judged::Judged;
use kernel::{HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use ordinate_client::{FuzzyError, FuzzyFailure, NumberedBy};
use port::ColourNames;
use process::{Attempt, Call, Done, Found, KINDS, Kind, MapProcess};
use sim::{
    Classes, Cluster, Control, Core, Fact, HostSpec, Incarnation, IsClaim, OperationId, Replacement,
    Scenario, StrikeKind, Tuning,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One cluster, and its maps, drawn from a seed.
pub struct MapsScenario {
    log: FuzzyScenario,
    names: Arc<ColourNames>,
    /// The kinds that its users use.
    kinds: Vec<Kind>,
    /// How likely a user numbers a change, and tries to store views.
    numbered: f64,
    stores: f64,
    /// A user without an answer sends a numbered change again after so long.
    again_after: Duration,
    processes: BTreeMap<HostId, (u64, MapProcess)>,
    made: u64,
    /// What client roles were asked: by which host's process, and as which of its questions.
    asked: BTreeMap<RequestId, (HostId, u64, u64)>,
    users: BTreeMap<u16, User>,
    operations: BTreeMap<u64, Operation>,
    begun: u64,
    judged: Judged,
}

/// A user: one operation at a time.
#[derive(Default)]
struct User {
    /// How often something of the user's had an unknown outcome before.
    incarnation: u32,
    number: u64,
    is_waiting: bool,
    seen: AppendTime,
    /// Where its last call was answered.
    at: Option<HostId>,
}

/// A call of a user without an answer.
struct Operation {
    user: u16,
    kind: Kind,
    call: Call,
    by: Option<NumberedBy>,
    begun: u64,
    home: HostId,
    /// Processes at whose hosts it is on its way.
    attempts: BTreeSet<HostId>,
    tries: u32,
    /// One of its attempts may have been executed.
    may_be_done: bool,
    read: Arc<Mutex<Option<Vec<Found>>>>,
}

/// How an operation ended.
enum Ended {
    /// So.
    Done(Done),
    /// It may have been done.
    Unknown,
    /// It was not done, or has changed nothing.
    Void,
}

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "maps.changed_again_elsewhere",
    "maps.lost_a_process",
    "maps.refused_a_transaction",
    "maps.stored_a_view",
    "maps.was_answered_elsewhere",
    "partition.single_went_ahead",
    "scenario.struck_an_origin_in_phase_1",
    "scenario.struck_an_origin_in_phase_2",
];

/// Alarms from here on are those of operations.
const OPERATIONS_FROM: u64 = 1_000;
/// A numbered change is sent so often at most.
const TRIES_MAX: u32 = 40;
/// Users of one client of the workload.
const COMPANIONS: u16 = 3;
const COMPANIONS_FROM: u16 = 1_000;
/// Keys of each map.
const KEYS: usize = 4;
/// Numbers of processes, and of users as clients of the log.
const PROCESSES_FROM: u64 = 1 << 40;
const USERS_FROM: u64 = 1 << 20;

impl MapsScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let mut log = FuzzyScenario::draw(rng);
        log.strictness.some_lie = false;
        log.strictness.heal();
        let mut kinds = KINDS.to_vec();
        rng.shuffle(&mut kinds);
        kinds.truncate(rng.between(1, 3) as usize);
        let colours = KINDS.iter().flat_map(|kind| kind.colours());
        let names = colours.flat_map(|colour| [format!("{colour}.view"), colour]);
        Self {
            log,
            names: Arc::new(ColourNames::of(names)),
            kinds,
            numbered: rng.unit(),
            stores: if rng.chance(0.7) { 0.15 * rng.unit() } else { 0.0 },
            again_after: Duration::from_millis(rng.between(40, 1_000)),
            processes: BTreeMap::new(),
            made: 0,
            asked: BTreeMap::new(),
            users: BTreeMap::new(),
            operations: BTreeMap::new(),
            begun: 0,
            judged: Judged::default(),
        }
    }

    /// What a user wants next.
    fn plan(&mut self, kind: Kind, rng: &mut Rng) -> Call {
        if rng.chance(self.stores) {
            return Call::StoreViews;
        }
        let one = rng.index(KEYS);
        let two = [one, (one + 1 + rng.index(KEYS - 1)) % KEYS].map(|key| format!("k{key}"));
        let [key, _] = two.clone();
        let (is_change, is_rare) = (rng.chance(0.5), rng.chance(0.2));
        let mut write = |key: &String| (key.clone(), self.judged.value());
        match kind {
            Kind::Crdt | Kind::TxCrdt if is_rare => {
                // Keys that are removed, too: their copies must be equal in the end.
                let key = format!("d{}", one % 2);
                if is_change { Call::Delete(key) } else { Call::Put(vec![write(&key)]) }
            }
            Kind::Log | Kind::Sharded | Kind::Crdt if is_change => Call::Put(vec![write(&key)]),
            Kind::Atomic | Kind::TxCrdt if is_change => Call::Put(two.iter().map(write).collect()),
            Kind::Tx if is_change || is_rare => {
                let writes = two[..1 + rng.index(2)].iter().map(write).collect();
                Call::Transact(two.to_vec(), writes)
            }
            Kind::Crdt | Kind::TxCrdt if rng.chance(0.3) => Call::Sync,
            Kind::Atomic | Kind::TxCrdt => Call::Get(two.to_vec()),
            Kind::Log | Kind::Sharded | Kind::Tx | Kind::Crdt => Call::Get(vec![key]),
        }
    }

    /// A user that waits for nothing, among those of a client of the workload.
    fn idle_user(&self, client: u16) -> Option<u16> {
        let all = (0..COMPANIONS).map(|nth| nth * COMPANIONS_FROM + client);
        all.into_iter().find(|it| self.users.get(it).is_none_or(|user| !user.is_waiting))
    }

    /// Sends an operation to the process of a host.
    fn attempt(&mut self, number: u64, host: HostId, control: &mut Control<'_, Node>) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        operation.attempts.insert(host);
        let user = self.users.entry(operation.user).or_default();
        let attempt = Attempt {
            call: operation.call.clone(),
            by: operation.by,
            seen: user.seen,
            read: Arc::clone(&operation.read),
        };
        let (kind, has_moved) = (operation.kind, user.at.is_some_and(|at| at != host));
        let (names, made) = (&self.names, &mut self.made);
        let (_, process) = self.processes.entry(host).or_insert_with(|| {
            *made += 1;
            let process = PROCESSES_FROM + *made;
            (process, MapProcess::new(names, process))
        });
        process.begin(number, kind, attempt, has_moved);
        self.drive(host, control);
    }

    /// Has a process go on, and asks what it wants to know.
    fn drive(&mut self, host: HostId, control: &mut Control<'_, Node>) {
        let Some((made, process)) = self.processes.get_mut(&host) else { return };
        let (over, made) = (process.go_on(), *made);
        let node = self.log.deployment.client_of(host);
        for (question, request) in process.take_questions() {
            let id = control.request(node, request);
            self.asked.insert(id, (host, made, question));
        }
        for (number, done) in over {
            self.on_over(number, host, done, control);
        }
    }

    fn on_over(&mut self, number: u64, host: HostId, done: Done, control: &mut Control<'_, Node>) {
        // It may have been answered elsewhere.
        let Some(operation) = self.operations.get_mut(&number) else { return };
        operation.attempts.remove(&host);
        match &done.result {
            Ok((_, is_committed)) => {
                if !is_committed {
                    control.mark("maps.refused_a_transaction");
                }
                if done.stored > 0 {
                    control.mark("maps.stored_a_view");
                }
                if host != operation.home {
                    control.mark("maps.was_answered_elsewhere");
                }
                self.end(number, Some(host), Ended::Done(done), control.cluster.now());
            }
            Err(FuzzyError::Failed(why @ (FuzzyFailure::NumberUsed | FuzzyFailure::Forgotten))) => {
                invariant!(ONCE, false, "{:?} as {:?} is refused: {why}", operation.call, operation.by);
            }
            Err(error @ (FuzzyError::AlreadyTrimmed { .. } | FuzzyError::BeyondTail { .. })) => {
                invariant!(VIEW, false, "{:?} of {:?} fails: {error}", operation.call, operation.kind);
            }
            Err(FuzzyError::Failed(FuzzyFailure::Malformed) | FuzzyError::Unreached(_)) => {
                invariant!(VIEW, false, "{:?} of {:?} is {done:?}", operation.call, operation.kind);
            }
            Err(error) => {
                let is_void = error.is_surely_void();
                operation.may_be_done |= !is_void;
                // A numbered one is sent again, by its alarm.
                if operation.by.is_none() {
                    let ended = if is_void { Ended::Void } else { Ended::Unknown };
                    self.end(number, None, ended, control.cluster.now());
                }
            }
        }
    }

    /// An operation is over for its user.
    fn end(&mut self, number: u64, at: Option<HostId>, ended: Ended, now: u64) {
        let Some(operation) = self.operations.remove(&number) else { return };
        let user = self.users.entry(operation.user).or_default();
        let who = u64::from(user.incarnation) << 16 | u64::from(operation.user);
        user.is_waiting = false;
        user.at = at.or(user.at);
        match ended {
            Ended::Done(Done { result: Ok((found, is_committed)), seen, .. }) => {
                user.seen = user.seen.max(seen);
                if is_committed {
                    let found = Some(&found[..]);
                    self.judged.add(
                        operation.kind,
                        &operation.call,
                        found,
                        who,
                        (operation.begun, now),
                        true,
                    );
                }
            }
            Ended::Done(_) | Ended::Void => {}
            Ended::Unknown => {
                let read = operation.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let found: Option<Vec<_>> =
                    read.map(|found| found.into_iter().map(|(value, _)| value).collect());
                let times = (operation.begun, u64::MAX);
                self.judged.add(operation.kind, &operation.call, found.as_deref(), who, times, false);
                user.incarnation += 1;
            }
        }
    }

    /// A process is gone, with all that it had in memory.
    fn end_process(&mut self, host: HostId) {
        let Some((_, process)) = self.processes.remove(&host) else { return };
        self.judged.lost_a_process();
        for number in process.running() {
            let Some(operation) = self.operations.get_mut(&number) else { continue };
            operation.attempts.remove(&host);
            operation.may_be_done = true;
            if operation.by.is_none() {
                self.end(number, None, Ended::Unknown, u64::MAX);
            }
        }
    }

    /// There is no answer yet: it is sent to another process.
    fn send_again(&mut self, number: u64, control: &mut Control<'_, Node>) {
        let hosts = self.log.clients.clone();
        let Some(operation) = self.operations.get_mut(&number) else { return };
        operation.tries += 1;
        if operation.tries > TRIES_MAX && operation.attempts.is_empty() {
            let ended = if operation.may_be_done { Ended::Unknown } else { Ended::Void };
            return self.end(number, None, ended, control.cluster.now());
        }
        control.alarm(self.again_after, OPERATIONS_FROM + number);
        let home = hosts.iter().position(|it| *it == operation.home).unwrap_or_default();
        let host = hosts[(home + operation.tries as usize) % hosts.len()];
        let has_read = operation.read.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let is_read = !matches!(operation.call, Call::Transact(..)) || has_read;
        let is_on_its_way = operation.attempts.contains(&host);
        if !control.cluster.is_up(host) || is_on_its_way || (!is_read && !operation.attempts.is_empty()) {
            return;
        }
        control.mark("maps.changed_again_elsewhere");
        self.attempt(number, host, control);
    }
}

impl Scenario for MapsScenario {
    type Node = Node;

    const FAMILY: &'static str = "maps";
    const STRIKES: &'static [StrikeKind] = FuzzyScenario::STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        self.log.hosts()
    }

    fn clients(&self) -> Vec<NodeId> {
        self.log.clients()
    }

    fn classes(&self) -> Classes {
        self.log.classes()
    }

    fn tuning(&self) -> Tuning {
        Tuning { operations: (15, 50), liveness: Duration::from_secs(120), ..self.log.tuning() }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        self.end_process(incarnation.host);
        self.log.build(incarnation)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        self.log.blank_nodes(host)
    }

    fn on_dry_restart(&mut self, node: NodeId, running: &Node, restarted: &Node) {
        self.log.on_dry_restart(node, running, restarted);
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let Some(user) = self.idle_user(operation.client) else { return };
        let kind = *rng.pick(&self.kinds).unwrap_or(&Kind::Log);
        let call = self.plan(kind, rng);
        let is_change = matches!(call, Call::Put(_) | Call::Delete(_) | Call::Transact(..));
        let is_numbered = rng.chance(self.numbered) && is_change;
        if self.judged.take_lost() {
            control.mark("maps.lost_a_process");
        }
        let of = self.users.entry(user).or_default();
        of.is_waiting = true;
        of.number += 1;
        let client = USERS_FROM + (u64::from(of.incarnation) << 16) + u64::from(user);
        let by = NumberedBy { client, number: of.number, below: of.number };
        self.begun += 1;
        let (number, home) = (self.begun, node.host());
        let begun = control.cluster.now();
        let operation = Operation {
            user,
            kind,
            call,
            by: is_numbered.then_some(by),
            begun,
            home,
            attempts: BTreeSet::new(),
            tries: 0,
            may_be_done: false,
            read: Arc::default(),
        };
        self.operations.insert(number, operation);
        if is_numbered {
            control.alarm(self.again_after, OPERATIONS_FROM + number);
        }
        self.attempt(number, home, control);
    }

    fn on_response(
        &mut self,
        _node: NodeId,
        id: RequestId,
        response: FuzzyResponse,
        control: &mut Control<'_, Node>,
    ) {
        if let Some((host, made, question)) = self.asked.remove(&id) {
            let process = self.processes.get_mut(&host).filter(|(number, _)| *number == made);
            if let Some((_, process)) = process {
                process.answer(question, response);
                self.drive(host, control);
            }
            return;
        }
        self.log.on_followed(id, &response, control);
    }

    fn on_lost(&mut self, node: NodeId, id: RequestId) {
        match self.asked.remove(&id) {
            Some((host, made, _)) => {
                if self.processes.get(&host).is_some_and(|(number, _)| *number == made) {
                    self.end_process(host);
                }
            }
            None => self.log.on_lost(node, id),
        }
    }

    fn drawn(&mut self, classes: Classes) {
        self.log.drawn(classes);
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, Node>) {
        match token.checked_sub(OPERATIONS_FROM) {
            Some(number) => self.send_again(number, control),
            None => self.log.on_alarm(token, control),
        }
    }

    fn members(&self) -> Vec<HostId> {
        self.log.members()
    }

    fn claims(&self) -> Option<IsClaim<Node>> {
        self.log.claims()
    }

    fn on_fact(&mut self, fact: Fact<FuzzyMessage>, cluster: &Cluster<'_, Node>) {
        self.log.on_fact(fact, cluster);
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.log.after_burst(host, cluster);
        self.judged.check_views(&self.names, &self.log.truth);
    }

    fn reads_blobs_at_start(&self) -> bool {
        self.log.reads_blobs_at_start()
    }

    fn watches(&self) -> bool {
        self.log.watches()
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        self.log.watch(control);
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        self.log.may_lose_disk(host, cluster)
    }

    fn on_disk_lost(&mut self, host: HostId, cluster: &Cluster<'_, Node>) -> Replacement {
        self.log.on_disk_lost(host, cluster)
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        self.log.strike(which, rng, control)
    }

    fn core(&mut self, cluster: &Cluster<'_, Node>, rng: &mut Rng) -> Core {
        self.log.core(cluster, rng)
    }

    fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        self.log.converged(core, cluster)?;
        match self.operations.values().next() {
            Some(it) => Err(format!("{:?} of {:?} has no answer", it.call, it.kind)),
            None => Ok(()),
        }
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        self.log.describe(cluster)
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        self.log.finish_log(cluster);
        self.judged.check_views(&self.names, &self.log.truth);
        for (_, process) in self.processes.values_mut() {
            twin::check(process, &self.kinds, &self.names, &self.log.truth);
        }
        let is_strict = self.log.strictness.order == FuzzyOrder::Strict;
        self.judged.check(is_strict);
    }

    fn history(&self) -> Option<String> {
        Some(self.judged.to_text())
    }
}
