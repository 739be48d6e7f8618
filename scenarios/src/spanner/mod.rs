//! Spanner: every host has a gateway that plays the client for the users there, and some have a replica of a shard. Hosts come and go.

mod changing;
mod conditions;
mod early;
mod history;
mod lies;
mod model_log;
mod plots;
mod probes;
pub mod smallest;
mod truth;
mod workload;

use crate::audit::{self, spanner::SpannerAudit};
use crate::limits;
use crate::moments::{shards, snapshots::DeafReplica};
use ::spanner::{SpannerDeployment, SpannerMember, SpannerMessage, SpannerParameters};
use changing::Changes;
use early::EarlyReaders;
use history::History;
use kernel::client::Response;
use kernel::{Decode as _, Encode as _, HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use lies::Lies;
use plots::Plots;
use probes::Probes;
use sim::{
    Class, Classes, Cluster, Control, Core, Fact, Hindrance, HostSpec, Incarnation, IsClaim, Loss,
    OperationId, Scenario, StrikeKind, Tuning,
};
use std::collections::BTreeMap;
use std::time::Duration;
use truth::Truth;
use wire::txn::{TxnCall, TxnLevel, TxnReply};
use workload::{Interactive, Mix, Sessions};

/// What a host runs.
type Node = SpannerMember;

/// One cluster, drawn from a seed.
pub struct SpannerScenario {
    hosts: Vec<HostId>,
    deployment: SpannerDeployment,
    parameters: SpannerParameters,
    mix: Mix,
    sessions: Sessions,
    interactive: BTreeMap<RequestId, Interactive>,
    history: History,
    truth: Truth,
    audit: SpannerAudit,
    core: Vec<HostId>,
    /// In seeds where hosts are as far apart as continents.
    distances: Vec<Duration>,
    /// In some seeds clocks are coarse, and timestamps of several hosts are equal.
    clock_grain: Duration,
    /// In seeds where clocks lie.
    lies: Option<Lies>,
    plots: Option<Plots>,
    /// In seeds where commits that have not ended are read early.
    early: Option<EarlyReaders>,
    changes: Changes,
    probes: Probes,
    deaf: DeafReplica,
    asked_when_paused: u16,
}

/// The alarm by which it is looked at what the dead have left.
const LOOK_FOR_THE_DEAD: u64 = 2;
/// So long after the heal, nothing is prepared or locked for the dead.
const DEAD_FOR: Duration = Duration::from_secs(10);
/// The same where hosts are as far apart as continents, and wait for each other four times as long.
const DEAD_FOR_FAR_APART: Duration = Duration::from_secs(40);

/// The sessions of who asks a paused host follow those of plots.
const ASKS_WHEN_PAUSED_FROM: u16 = 20_000;

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "scenario.dumped_all_at_one_timestamp",
    "scenario.held_a_decision",
    "scenario.killed_between_conclusion_and_settling",
    "scenario.killed_between_decision_and_conclusion",
    "scenario.killed_between_lock_and_prepare",
    "scenario.killed_between_prepare_and_decision",
    "scenario.power_lost_between_conclusion_and_settling",
    "scenario.power_lost_between_decision_and_conclusion",
    "scenario.power_lost_between_lock_and_prepare",
    "scenario.power_lost_between_prepare_and_decision",
    "scenario.read_at_a_coordinator_behind_an_own_read",
    "scenario.read_what_is_held_back_behind_a_fence",
    "scenario.read_what_is_held_back_behind_an_answer",
    "scenario.read_what_is_held_back_behind_an_own_read",
    "scenario.asked_a_paused_leader",
    "scenario.clock_lied",
    "scenario.waited_for_a_lock_with_a_clock_ahead",
    "scenario.changed_the_hosts",
    "gateway.asked_to_prepare_again",
    "gateway.lost_its_locks",
    "gateway.read_again",
    "gateway.snapshot_below_what_its_session_had_seen",
    "gateway.tried_again",
    "gateway.waited_for_a_slow_reply",
    "gateway.waited_out_an_earliest_end",
    "shard.aborted_what_was_undecided",
    "shard.aborted_when_busy",
    "shard.refused_to_prepare_when_busy",
    "shard.asked_a_coordinator_to_make_way",
    "shard.made_way_while_it_waited",
    "shard.dropped_what_a_dead_gateway_had_open",
    "shard.executed_a_call_once",
    "shard.gave_up_collecting",
    "shard.asked_for_the_leadership",
    "shard.began_again_behind_a_snapshot",
    "shard.handed_a_read_to_another_replica",
    "shard.handed_over_before_it_leaves",
    "shard.handed_over_to_who_is_to_lead",
    "shard.leads",
    "shard.logged_the_abort_of_lost_locks",
    "shard.logged_the_abort_of_what_it_does_not_know",
    "shard.moved_with_prepared",
    "shard.moves_its_log",
    "shard.new_leader_waited_for_the_time_of_a_commit",
    "shard.proposed_again",
    "shard.put_off_an_earliest_end",
    "shard.read_waited_for_the_horizon",
    "shard.refused_to_prepare",
    "shard.replica_read_waited",
    "shard.rss_read_skipped_a_prepared_transaction",
    "shard.rss_read_was_blocked",
    "shard.strict_read_was_blocked",
    "shard.notified_of_a_commit",
    "shard.notified_of_an_abort",
    "shard.took_back_prepared_locks",
    "shard.wounded",
];

const STRIKES: [StrikeKind; 10] = [
    StrikeKind { name: "kill a shard's leader", class: Class::Strike },
    StrikeKind { name: "pause a shard's leader", class: Class::Strike },
    StrikeKind { name: "kill all leaders", class: Class::Strike },
    StrikeKind { name: "kill everybody", class: Class::Strike },
    StrikeKind { name: "kill a gateway that commits", class: Class::Strike },
    StrikeKind { name: "a clock lies", class: Class::Strike },
    StrikeKind { name: "replace a host", class: Class::Membership },
    StrikeKind { name: "grow or shrink", class: Class::Membership },
    StrikeKind { name: "a leader's replica hears nobody", class: Class::Strike },
    StrikeKind { name: "restart who hands a snapshot over", class: Class::Strike },
];

/// In some seeds there is little room for anything: bounds that are never met hold by themselves.
fn tight(rng: &mut Rng) -> SpannerParameters {
    let mut parameters = SpannerParameters::default();
    if rng.chance(0.25) {
        parameters.transactions_max = rng.between(3, 8) as usize;
        parameters.locks_max = rng.between(12, 40) as usize;
        parameters.queue_bytes_max = rng.between(6_500, 8_000) as usize;
        parameters.waiting_reads_max = rng.between(3, 8) as usize;
        parameters.calls_max = rng.between(3, 8) as usize;
    }
    parameters
}

/// True if there is little room.
fn is_tight(parameters: &SpannerParameters) -> bool {
    parameters.calls_max < SpannerParameters::DEFAULT.calls_max
}

impl SpannerScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let count = [3, 3, 3, 4, 5][rng.below(5) as usize];
        let entries: Vec<paxos::HostEntry> = (0..count).map(crate::moments::operator::entry).collect();
        let hosts: Vec<HostId> = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let lies = rng.chance(0.15).then(Lies::default);
        let is_early = lies.is_none() && rng.chance(0.35);
        let shards = rng.between(if is_early { 2 } else { 1 }, 4) as u16;
        let is_wide = is_early || rng.chance(0.25);
        // What waits for answers waits for those from the other side of the world.
        let far = if is_wide { 4 } else { 1 };
        let parameters = SpannerParameters {
            tick: ms(rng.between(5, 30)),
            resend_after: ms(far * rng.between(30, 150)),
            horizon_ahead: ms(rng.between(5, 300)),
            close_every: ms(rng.between(5, 50)),
            owner_silence: ms(rng.between(500, 2_000)),
            owner_alive_every: ms(rng.between(50, 200)),
            keep: ms(if rng.chance(0.5) && lies.is_none() { rng.between(6_000, 10_000) } else { 600_000 }),
            try_for: ms(far * rng.between(1_000, 2_000)),
            fence_bound: Self::fence_bound(is_early, rng),
            clock_error_max: ms(500),
            doubt_after: ms(far * rng.between(100, 600)),
            collect_for: ms(far * rng.between(1_000, 4_000)),
            idle_max: ms(rng.between(2_000, 6_000)),
            replicas: if rng.chance(0.6) { 3 } else { rng.between(1, count as u64) as usize },
            lead_after: ms(far * rng.between(300, 3_000)),
            steps_max: rng.between(1, 6) as usize,
            step_bytes_max: 512 << rng.below(4),
            ..tight(rng)
        };
        let log = Self::log_parameters(far, rng);
        let levels = if is_early { 0 } else { rng.below(2) as u32 };
        let deployment = SpannerDeployment::new(0, entries, shards, levels, parameters.clone(), log);
        let (distances, away) = Self::distances(count, is_wide, is_early, rng);
        let early = is_early.then(|| EarlyReaders::new(away.map(|at| hosts[at]), rng));
        let mut scenario = Self {
            hosts,
            mix: Mix::draw(parameters.keep / 4, is_tight(&parameters), rng),
            sessions: Sessions::default(),
            interactive: BTreeMap::new(),
            history: History::default(),
            truth: Truth::new(deployment.directory().clone()),
            changes: Changes::new(deployment.clone(), parameters.replicas, lies.is_some(), rng.chance(0.5)),
            deployment,
            audit: SpannerAudit::new(parameters.fence_bound, parameters.keep, lies.is_none()),
            parameters,
            core: Vec::new(),
            distances,
            clock_grain: ms(if lies.is_none() && rng.chance(0.3) { 1 << rng.below(4) } else { 0 }),
            plots: (lies.is_none() && rng.chance(0.35)).then(|| Plots::draw(rng)),
            early,
            lies,
            probes: Probes::default(),
            deaf: DeafReplica::default(),
            asked_when_paused: 0,
        };
        let participants_first = is_early && rng.chance(0.5);
        scenario.early = scenario.early.map(|early| early.with_participants_first(participants_first));
        scenario
    }

    /// Those of the shards' logs, with links so many times as long as usual.
    fn log_parameters(far: u64, rng: &mut Rng) -> paxos::Parameters {
        let ms = Duration::from_millis;
        paxos::Parameters {
            election_timeout: ms(far * rng.between(80 + 40 * far, 400)),
            heartbeat_every: ms(rng.between(15, 40)),
            resend_after: ms(far * rng.between(50, 150)),
            window: 8 << rng.below(4),
            snapshot_every_bytes: 2_000 << rng.below(6).min(rng.below(6)),
            snapshot_chunk_bytes: 128 << rng.below(5),
            retained_bytes_max: 4_000 << rng.below(6).min(rng.below(6)),
            batch_bytes_max: limits::OPERATION_BYTES_MAX,
            page_bytes: limits::OPERATION_BYTES_MAX,
            ..paxos::Parameters::default()
        }
    }

    /// L. Commits from afar are put off, to L before their earliest end, where it is short.
    fn fence_bound(is_early: bool, rng: &mut Rng) -> Duration {
        let ms = Duration::from_millis;
        match (is_early, rng.chance(0.3)) {
            (true, false) => ms(rng.between(400, 800)),
            (true, true) => ms(rng.between(10, 60)),
            (false, _) => ms(1 << rng.below(9)),
        }
    }

    /// How far each host is from the middle of the network. For early readers, one is far away.
    fn distances(
        count: usize,
        is_wide: bool,
        is_early: bool,
        rng: &mut Rng,
    ) -> (Vec<Duration>, Option<usize>) {
        let ms = Duration::from_millis;
        if is_early {
            let (away, far) = (rng.index(count), ms(if rng.chance(0.5) { 60 } else { 110 }));
            let distance = |host| if host == away { far } else { ms(0) };
            return ((0..count).map(distance).collect(), Some(away));
        }
        ((0..count).map(|_| if is_wide { ms(rng.between(0, 55)) } else { ms(0) }).collect(), None)
    }

    /// True once every acceptor of the bootstrap may vote, durably.
    fn is_bootstrapped(&self) -> bool {
        let shards = usize::from(self.deployment.directory().count());
        self.audit.bootstrapped(&self.hosts) == self.hosts.len() * shards
    }

    fn answered(&mut self, node: NodeId, id: RequestId, reply: &TxnReply, now: u64) {
        let lies = self.lies.as_ref();
        if let TxnReply::Committed(committed) = reply
            && let Some(end) = self.audit.earliest_end(node, committed.at).filter(|_| lies.is_none())
        {
            let passed = audit::spanner::true_time(end);
            invariant!(TEE, passed < now, "a commit at {} is over before {end} has passed", committed.at);
        }
        self.history.answered(id, reply, now, (&self.parameters, lies), &mut self.sessions);
    }

    /// A host that leads is paused. What its users ask meanwhile waits there, and it may turn to that before it looks at the time.
    fn pause_and_ask(&mut self, host: HostId, lasts: Duration, control: &mut Control<'_, Node>) {
        control.pause(host, lasts);
        control.mark("scenario.asked_a_paused_leader");
        self.asked_when_paused += 1;
        let client = ASKS_WHEN_PAUSED_FROM + self.asked_when_paused;
        let planned = workload::read_of_all(u64::from(client) << 32, TxnLevel::Strict);
        let node = self.deployment.gateway_of(host);
        let id = self.ask(node, &planned.call, control);
        self.history.asked(id, (client, 0), node, &planned, control.cluster.now());
    }

    /// The replica beside a shard's leader hears no other host: its leader goes on, and it may have to take a snapshot of another one.
    fn deafen_a_replica(&self, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let leads = control.cluster.nodes().filter_map(|(id, node)| match node {
            Node::Shard(role) if role.is_leading() => Some((id.host(), role.shard())),
            Node::Shard(_) | Node::Gateway(_) | Node::Log(_) => None,
        });
        let leads: Vec<_> = leads.collect();
        let Some(&(host, shard)) = rng.pick(&leads) else { return false };
        let replica = self.deployment.log_of(shard).node(host, paxos::LogRole::Replica);
        let second = Duration::from_secs(1);
        control.hinder(replica, Hindrance::Lost, rng.duration(second, 6 * second));
        true
    }

    fn ask(&mut self, node: NodeId, call: &TxnCall, control: &mut Control<'_, Node>) -> RequestId {
        control.request(node, call.encoded().into())
    }
}

impl Scenario for SpannerScenario {
    type Node = Node;

    const FAMILY: &'static str = "spanner";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        let first = self.hosts.iter().map(|&host| HostSpec::server(host));
        first.chain(self.changes.spares().map(HostSpec::spare)).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        let of_host = |host: &HostId| [self.deployment.gateway_of(*host); 3];
        let of_spare = self.changes.spares().map(|host| self.deployment.gateway_of(host));
        self.hosts.iter().flat_map(of_host).chain(of_spare).collect()
    }

    fn classes(&self) -> Classes {
        if self.lies.is_some() {
            return lies::classes();
        }
        Classes::PHYSICAL.with(Class::Strike).with(Class::Membership)
    }

    fn tuning(&self) -> Tuning {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        Tuning {
            safety: (s(10), s(30)),
            busy_at_least: Some(s(5)),
            operations: (20, 150),
            // Steps are small and few at a time, and all clients want the same keys.
            liveness: s(240),
            clock_error: self.early.as_ref().map_or((ms(1), ms(200)), EarlyReaders::clock_error),
            clock_error_max: Some(ms(500)),
            clock_grain: self.clock_grain,
            distances: self.distances.clone(),
            bounds: limits::BOUNDS,
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        self.truth.forget(incarnation.host);
        self.audit.forget(incarnation.host);
        self.blank_nodes(incarnation.host)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        self.changes.deployment_of(host).build(host)
    }

    fn on_dry_restart(&mut self, node: NodeId, running: &Node, restarted: &Node) {
        self.audit.on_dry_restart(node, running, restarted);
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let client = operation.client;
        if let Some(message) = self.sessions.exchange(client, rng) {
            self.history.message_sent(&message, control.cluster.now());
        }
        let session = self.sessions.of(client);
        let incarnation = session.incarnation;
        let planned = self.mix.plan(operation, session, control.cluster.now(), rng);
        let id = self.ask(node, &planned.call, control);
        self.history.asked(id, (client, incarnation), node, &planned, control.cluster.now());
        if let Some(mut interactive) = planned.interactive {
            interactive.first(id);
            self.interactive.insert(id, interactive);
        }
    }

    fn on_response(
        &mut self,
        node: NodeId,
        id: RequestId,
        response: Response,
        control: &mut Control<'_, Node>,
    ) {
        let now = control.cluster.now();
        if response.0.is_empty() || self.changes.on_answer(id, &response, control) {
            return;
        }
        let reply = TxnReply::decoded(&response.0).expect("a gateway answers in the words of the protocol");
        self.probes.on_answer(id, &reply);
        // An interactive transaction goes on until it is committed, and answers its first request then.
        if let Some(mut interactive) = self.interactive.remove(&id) {
            if let TxnReply::RowsWithin(rows) = &reply {
                self.history.has_read(interactive.first(id), rows);
            }
            if let Some(call) = interactive.next(&reply) {
                let next = self.ask(node, &call, control);
                self.interactive.insert(next, interactive);
                return;
            }
            self.answered(node, interactive.first(id), &reply, now);
            self.go_on_early(interactive.first(id), &reply, control);
            return;
        }
        self.answered(node, id, &reply, now);
        if self.history.is_dump(id) {
            control.mark("scenario.dumped_all_at_one_timestamp");
        }
        self.history.check_answer(id, &self.truth);
        self.go_on_early(id, &reply, control);
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, Node>) {
        if token == changing::ASK {
            self.changes.ask_whether_settled(control);
        }
        if token == probes::ASK_AGAIN {
            self.probe(control);
        }
        if token == lies::WAITS_FOR_A_LOCK {
            self.wait_for_a_lock(control);
        }
        if token == LOOK_FOR_THE_DEAD {
            Truth::check_the_dead(&self.core, &control.cluster);
        }
    }

    fn on_lost(&mut self, _node: NodeId, id: RequestId) {
        self.changes.lost(id);
        self.probes.lost(id);
        let first = self.interactive.remove(&id).map_or(id, |mut interactive| interactive.first(id));
        self.history.lost(first, &mut self.sessions);
    }

    fn members(&self) -> Vec<HostId> {
        self.changes.needed().into_iter().collect()
    }

    fn claims(&self) -> Option<IsClaim<Node>> {
        Some(audit::spanner::is_claim)
    }

    fn on_fact(&mut self, fact: Fact<SpannerMessage>, cluster: &Cluster<'_, Node>) {
        self.audit.on_fact(fact, cluster);
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.audit.check_host(host, cluster);
        self.truth.look(host, cluster);
        truth::check_bounds(host, &self.parameters, cluster);
        if let Some(lies) = &self.lies {
            lies.check(cluster);
        }
    }

    fn watches(&self) -> bool {
        self.plots.is_some() || self.early.is_some() || self.deaf.any()
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        self.deaf.look(control);
        self.go_on_plotting(control);
        self.send_early_readers(control);
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        if which == 5 || self.lies.is_some() {
            return self.lie(rng, control);
        }
        if which == 6 || which == 7 {
            return self.change_hosts(which == 7, rng, control);
        }
        let second = Duration::from_secs(1);
        match which {
            8 => return self.deafen_a_replica(rng, control),
            9 => return self.deaf.lay(rng, control),
            _ => {}
        }
        let leaders = shards::leaders(&control.cluster);
        let down = rng.duration(second / 20, 2 * second);
        let one = rng.pick(&leaders).copied();
        match (which, one) {
            (0, Some(host)) => control.crash(host, Loss::All, down, rng),
            (1, Some(host)) => self.pause_and_ask(host, down, control),
            (2, Some(_)) => leaders.into_iter().for_each(|host| control.crash(host, Loss::All, down, rng)),
            (3, _) => control.crash_all(self.hosts.iter().copied(), Loss::All, rng),
            (4, _) => return shards::kill_a_busy_gateway(rng, control),
            _ => return false,
        }
        true
    }

    fn core(&mut self, cluster: &Cluster<'_, Node>, rng: &mut Rng) -> Core {
        Core::Hosts(self.changes.core(self.is_bootstrapped(), cluster, rng))
    }

    fn on_heal(&mut self, core: &[HostId], control: &mut Control<'_, Node>) {
        self.core = core.to_vec();
        self.changes.change_back(control);
        let is_wide = self.distances.iter().any(|distance| !distance.is_zero());
        let after = if is_wide { DEAD_FOR_FAR_APART } else { DEAD_FOR };
        control.alarm(after, LOOK_FOR_THE_DEAD);
        self.begin_probes(core, control);
        if let Some(lies) = &mut self.lies {
            lies.end(control.cluster.now());
        }
    }

    /// Nothing is prepared, locked or undecided for those who are gone, and all replicas of the core are alike.
    fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        if let Some(missing) = self.changes.unsettled().or_else(|| self.probes.missing()) {
            return Err(missing);
        }
        self.truth.converged(core, |shard| self.changes.preferred(shard), cluster)
    }

    /// Shards go from host to host: a log that a host has left may have something left there for ever.
    fn is_in_use(&self, _node: NodeId, _cluster: &Cluster<'_, Node>) -> bool {
        false
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        truth::describe(cluster)
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        self.truth.look_at_all(cluster);
        self.audit.check_answers(&self.truth);
        self.history.check(&self.truth, self.lies.as_ref());
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}
