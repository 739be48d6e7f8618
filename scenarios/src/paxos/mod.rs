//! MultiPaxos under the key-value store, co-located and compartmentalized.

mod adversary;
mod calls;
mod cluster;
mod floods;
mod history;
mod invariants;
mod judged;
mod membership;
mod reads;
mod served;
mod sessions;
pub mod smallest;

use crate::audit::{self, log::LogAudit};
use crate::limits;
use ::paxos::multipaxos::batcher::BatcherIn;
use ::paxos::multipaxos::client::CommandClient;
use ::paxos::multipaxos::replica::ReplicaIn;
use ::paxos::{Call, Configuration, Level, Member, Message, Outcome, Parameters};
use cluster::Layout;
use history::Histories;
use invariants::Invariants;
use judged::Judged;
use kernel::{HostId, HostSlot, NodeId, RequestId, Rng};
use kv::{Command, Expect, Query};
use sim::{
    Class, Classes, Cluster, Control, Core, Fact, HostSpec, Incarnation, IsClaim, Loss, OperationId,
    Replacement, Scenario, StrikeKind, Tuning,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

type Node = Member<Judged>;

/// One cluster, drawn from a seed.
pub struct PaxosScenario {
    layout: Layout,
    parameters: Parameters,
    /// Nothing fails in this run.
    has_no_faults: bool,
    histories: Histories,
    /// The history was too hard to check.
    undecided: bool,
    invariants: Invariants,
    audit: LogAudit,
    reads: reads::Reads,
    /// Requests that are changes of membership, with the hosts that leave and come.
    reconfigurations: BTreeMap<RequestId, Configuration>,
    wiped: BTreeSet<HostId>,
    /// Every configuration that a client ever asked for.
    wanted: Vec<Configuration>,
    /// The cluster files of the spares that were booted.
    files: BTreeMap<HostId, Configuration>,
    /// Hosts that a change of membership has removed for good.
    gone: BTreeSet<HostId>,
    /// Whether leaders are killed in the middle of a change.
    ambushes: bool,
    plots: Vec<adversary::Plot>,
    healed: bool,
    /// Those who are healed.
    core: Vec<HostId>,
    /// Whether hosts that left are switched off.
    switches_off: bool,
    /// Whether machines that join may lose their disks.
    blanks: bool,
    focus: Focus,
    floods: floods::Floods,
}

/// What a run is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Focus {
    /// Everything.
    None,
    /// Few sessions and many late copies of messages.
    Sessions,
    /// Hosts are replaced one after the other, and each time somebody plots against it.
    Changes,
}

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "acceptor.admitted_by_a_configuration",
    "acceptor.phase1b_in_pages",
    "acceptor.read_of_a_superseded_configuration",
    "acceptor.reported_a_silence",
    "acceptor.refused_because_it_lost_its_votes",
    "acceptor.stood_by_its_leader",
    "acceptor.reported_a_candidate_of_later_configurations",
    "acceptor.truncated",
    "batcher.asked_acceptors_again",
    "batcher.has_a_group_already",
    "batcher.held_a_full_batch_back",
    "batcher.refused_a_change_that_lost",
    "batcher.refused_a_read_as_busy",
    "batcher.refused_as_busy",
    "batcher.refused_for_want_of_disk_space",
    "batcher.refused_as_malformed",
    "batcher.resent_a_batch",
    "client.gave_up_a_busy_call",
    "client.lost_its_session",
    "client.sent_again",
    "leader.assigned_again",
    "leader.bears_longer_silence",
    "leader.began_phase1",
    "leader.began_to_rest",
    "leader.ended_its_rest",
    "leader.filled_idle_slots_for_a_read",
    "leader.filled_the_slots_of_another_group",
    "leader.found_gaps",
    "leader.handed_a_learner_on",
    "leader.leads",
    "leader.left_the_cluster",
    "leader.proposed_a_configuration",
    "leader.put_a_configuration_in_force",
    "leader.recalled_entries_for_a_replica",
    "leader.recovered_votes",
    "leader.resigned",
    "leader.resigned_because_unheard",
    "leader.waited_for_a_learner",
    "leader.waited_for_a_replica",
    "leader.waited_for_replicas_to_catch_up",
    "leader.waited_for_the_last_change_to_settle",
    "proxy_leader.asked_beyond_a_thrifty_quorum",
    "proxy_leader.assigned_under_an_unknown_configuration",
    "proxy_leader.resent_phase2a",
    "replica.asked_the_leader_for_entries",
    "replica.compared_with_a_peer",
    "replica.executed_a_configuration",
    "replica.fetched_from_a_peer",
    "replica.gave_up_a_transfer",
    "replica.pulled_a_chunk_again",
    "replica.read_waited_for_its_slot",
    "replica.refused_a_lost_session",
    "replica.resumed_from_its_acceptor",
    "replica.served_a_snapshot",
    "replica.took_a_snapshot_from_a_peer",
    "replica.wrote_a_snapshot",
    "scenario.brought_a_deposed_leader_back",
    "scenario.brought_an_outvoted_leader_back",
    "scenario.hid_the_votes_for_a_change",
    "scenario.left_old_members_in_a_backwater",
    "scenario.lost_the_disk_of_a_host_that_joins",
    "scenario.paused_the_leader_in_the_middle_of_a_change",
    "scenario.replaced_a_host_of_a_compartmentalized_cluster",
];

/// A batch that holds no more than this turns a value as large away.
const TOO_LARGE: usize = 64 << 10;

const STRIKES: [StrikeKind; 8] = [
    StrikeKind { name: "kill the leader", class: Class::Strike },
    StrikeKind { name: "pause the leader", class: Class::Strike },
    StrikeKind { name: "mute the leader", class: Class::Strike },
    StrikeKind { name: "kill everybody", class: Class::Strike },
    StrikeKind { name: "replace a host", class: Class::Membership },
    StrikeKind { name: "grow or shrink", class: Class::Membership },
    StrikeKind { name: "coup", class: Class::Strike },
    StrikeKind { name: "bring a leader back that the next one has outvoted", class: Class::Strike },
];

/// How long an operation takes at most where nothing fails.
const CALM_MOST: Duration = Duration::from_millis(100);

impl PaxosScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let window = 8 << rng.below(4);
        let focus = match rng.below(8) {
            0 => Focus::Sessions,
            1 => Focus::Changes,
            _ => Focus::None,
        };
        let mut parameters = Parameters {
            election_timeout: ms(rng.between(100, 400)),
            heartbeat_every: ms(rng.between(15, 40)),
            resend_after: ms(rng.between(50, 200)),
            window,
            batch_delay: if rng.chance(0.3) { ms(1) } else { Duration::ZERO },
            batches_in_flight_max: rng.between(1, 8) as usize,
            read_batches_in_flight_max: rng.between(1, 8) as usize,
            thrifty: rng.chance(0.3),
            page_bytes: 200 << rng.below(8),
            batch_bytes_max: if rng.chance(0.2) { TOO_LARGE } else { 256 << 10 },
            pending_bytes_max: if rng.chance(0.1) { 300 } else { 64 << 20 },
            snapshot_every_bytes: 500 << rng.below(8),
            snapshot_chunk_bytes: 64 << rng.below(6),
            retained_bytes_max: 2_000 << rng.below(6),
            sessions_max: if focus == Focus::Sessions { rng.between(1, 2) as usize } else { 64 },
            outstanding_max: 64,
            ..Parameters::default()
        };
        let clients_min = if focus == Focus::None { 1 } else { 3 };
        let layout = Layout::draw(focus == Focus::Changes, clients_min, rng);
        let (ambushes, switches_off) = (rng.chance(0.5), rng.chance(0.5));
        let floods = floods::Floods::draw(&mut parameters, rng);
        // More than a client has in flight at once is refused, and its table fills.
        if rng.chance(0.25) {
            parameters.outstanding_max = rng.between(2, 8) as usize;
        }
        let has_no_faults = focus == Focus::None && !floods.are_on() && limits::is_calm(rng);
        if has_no_faults {
            parameters.resend_after = limits::CALM_PATIENCE;
        }
        let misfit = parameters.misfit(&floods.bounds);
        assert!(misfit.is_none(), "BOUND: {misfit:?} of {parameters:?}");
        Self {
            layout,
            parameters,
            has_no_faults,
            floods,
            histories: Histories::default(),
            undecided: false,
            invariants: Invariants::default(),
            audit: LogAudit::default(),
            reads: reads::Reads::default(),
            reconfigurations: BTreeMap::new(),
            wiped: BTreeSet::new(),
            wanted: Vec::new(),
            files: BTreeMap::new(),
            gone: BTreeSet::new(),
            ambushes: ambushes || focus == Focus::Changes,
            plots: Vec::new(),
            healed: false,
            core: Vec::new(),
            switches_off: switches_off && focus != Focus::Changes,
            blanks: false,
            focus,
        }
    }

    /// The newest configuration that was executed.
    fn latest(&self) -> Configuration {
        self.invariants.truth.latest().unwrap_or(self.layout.first()).clone()
    }

    /// The configurations that own slots which may have to be asked for, and those that a client wanted and that may be
    /// chosen any moment.
    fn needed(&self) -> Vec<Configuration> {
        let mut needed = self.invariants.truth.needed();
        if needed.is_empty() {
            needed.push(self.layout.first().clone());
        }
        let next = self.latest().version + 1;
        needed.extend(self.wanted.iter().filter(|wanted| wanted.version == next).cloned());
        needed
    }

    fn leader(&self, cluster: &Cluster<'_, Node>) -> Option<HostId> {
        let leading = adversary::leaders(cluster).filter_map(|(host, role)| Some((role.leader()?, host)));
        leading.max().map(|(_, host)| host)
    }

    /// True if the host holds votes that are gone or wrong.
    fn is_bad(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        self.wiped.contains(&host) || cluster.is_lost(host) || cluster.is_damaged(host)
    }
}

impl Scenario for PaxosScenario {
    type Node = Node;

    const FAMILY: &'static str = "paxos";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        self.layout.host_specs()
    }

    fn clients(&self) -> Vec<NodeId> {
        // Twice each: two operations in flight in one session.
        self.layout.client_nodes().into_iter().flat_map(|node| [node, node]).collect()
    }

    fn classes(&self) -> Classes {
        Classes::ALL.without(Class::Upgrade).without(Class::ClockLie)
    }

    fn tuning(&self) -> Tuning {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let tuning = Tuning {
            safety: (s(20), s(60)),
            busy_at_least: Some(s(10)),
            operations: (20, 150),
            // Where a disk is slow and links stay cut, a client sends much again before it turns to a batcher that is there.
            liveness: s(120),
            bounds: self.floods.bounds,
            calm: self.has_no_faults.then_some(CALM_MOST),
            ..Tuning::default()
        };
        match self.focus {
            Focus::None => tuning,
            Focus::Sessions => Tuning { message_rate: (0.01, 0.2), think: (ms(1), ms(100)), ..tuning },
            Focus::Changes => Tuning {
                safety: (s(10), s(20)),
                busy_at_least: Some(s(5)),
                blows: (0.3, 10.0),
                think: (ms(2), ms(50)),
                operations: (200, 500),
                ..tuning
            },
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        if incarnation.wiped {
            self.wiped.insert(incarnation.host);
        }
        self.invariants.forget(incarnation.host);
        self.audit.forget(incarnation.host);
        if let Some(client) = self.layout.client_on(incarnation.host) {
            self.histories.forget(client);
            let batchers = self.layout.batchers();
            let index = client.host().0 as usize;
            let patience = Duration::from_millis(300 + 100 * (index as u64 % 3));
            return vec![(
                client.host_slot(),
                Member::Client(CommandClient::new(batchers, patience).starting_at(index)),
            )];
        }
        self.blank_nodes(incarnation.host)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        if self.layout.client_on(host).is_some() {
            return Vec::new();
        }
        let file = self.files.get(&host).unwrap_or(self.layout.first());
        self.layout.build(host, &self.parameters, file)
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
        let key = rng.pick(&history::KEYS).copied().unwrap_or(history::KEYS[0]);
        let value = format!("{}.{}.{}", operation.client, operation.nth, rng.below(1 << 20));
        let now = control.cluster.now();
        if rng.chance(0.2) {
            let id = control.request(node, calls::draw(rng));
            return self.histories.asked(id, node, key, history::Asked::Other, now);
        }
        let read = |level| {
            let mut query = Vec::new();
            Query::Get { key: key.as_bytes() }.encode(&mut query);
            Call::Read { query: query.into(), level }
        };
        let write = |command: Command<'_>| {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            Call::Write(bytes.into())
        };
        let bytes = key.as_bytes();
        let deletes = key.starts_with('k');
        let (call, asked) = match rng.below(10) {
            0..=2 => (read(Level::Linearizable), history::Asked::Get),
            3 => (read(Level::Sequential), history::Asked::SequentialGet),
            4 => (read(Level::Eventual), history::Asked::EventualGet),
            5 | 6 => {
                let call = write(Command::Put { key: bytes, value: value.as_bytes() });
                (call, history::Asked::Put(value))
            }
            7 => match self.histories.version_to_expect(node, key) {
                Some(version) => {
                    let expect = Expect::Version(version);
                    let command =
                        Command::CompareAndSet { key: bytes, expect, value: Some(value.as_bytes()) };
                    (write(command), history::Asked::CompareAndSet { version, value })
                }
                None => (read(Level::Linearizable), history::Asked::Get),
            },
            8 if deletes => (write(Command::Delete { key: bytes }), history::Asked::Delete),
            9 if self.parameters.batch_bytes_max == TOO_LARGE && rng.chance(0.03) => {
                let large = vec![b'x'; TOO_LARGE];
                let command = Command::Put { key: bytes, value: &large };
                (write(command), history::Asked::TooLarge)
            }
            _ => {
                let command = Command::Put { key: bytes, value: value.as_bytes() };
                (write(command), history::Asked::Put(value))
            }
        };
        let id = control.request(node, call);
        self.histories.asked(id, node, key, asked, now);
    }

    fn on_response(
        &mut self,
        node: NodeId,
        id: RequestId,
        outcome: Outcome,
        control: &mut Control<'_, Node>,
    ) {
        if let Some(wanted) = self.reconfigurations.remove(&id) {
            if matches!(outcome, Outcome::Done(_)) {
                if !self.layout.is_colocated() {
                    control.mark("scenario.replaced_a_host_of_a_compartmentalized_cluster");
                }
                self.retire(&wanted, control);
            }
            return;
        }
        self.histories.answered(node, id, outcome, control.cluster.now());
    }

    fn on_lost(&mut self, node: NodeId, id: RequestId) {
        self.reconfigurations.remove(&id);
        self.histories.lost(node, id);
    }

    fn drawn(&mut self, classes: Classes) {
        self.blanks = classes.has(Class::DiskLost);
        self.histories.messages_repeat = classes.has(Class::Duplication);
    }

    fn on_begin(&mut self, control: &mut Control<'_, Node>) {
        self.floods.begin(control);
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, Node>) {
        if token == floods::FLOOD {
            self.flood(control);
        }
    }

    fn watches(&self) -> bool {
        !self.plots.is_empty()
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        self.look(control);
    }

    fn on_heal(&mut self, core: &[HostId], _control: &mut Control<'_, Node>) {
        (self.healed, self.core) = (true, core.to_vec());
    }

    fn claims(&self) -> Option<IsClaim<Node>> {
        Some(audit::log::is_claim)
    }

    fn on_fact(&mut self, fact: Fact<::paxos::Message>, _cluster: &Cluster<'_, Node>) {
        match fact {
            Fact::Durable { node, position, record } => {
                self.audit.on_durable(cluster::journal_of(node), node, position, &record);
            }
            Fact::Trimmed { node, before } => {
                self.audit.on_trimmed(cluster::journal_of(node), node, before);
            }
            Fact::Reported { from, message: Message::Batcher(BatcherIn::Query(query)), .. } => {
                self.reads.on_query(from, &query, self.invariants.truth.executed);
            }
            Fact::Reported { from, message: Message::Replica(ReplicaIn::ReadBatch(batch)), .. } => {
                self.reads.on_batch(from, &batch);
            }
            Fact::Reported { from, message, .. } => self.audit.on_report(from, &message),
            Fact::DiskLost { host } => self.audit.on_disk_lost(host),
        }
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        cluster.called_nodes_of(host).for_each(|(id, member)| self.audit.check(id, member));
        self.invariants.check_host(host, cluster, &self.parameters);
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let leader = self.leader(&control.cluster);
        let second = Duration::from_secs(1);
        match (which, leader) {
            (0, Some(leader)) => control.crash(leader, Loss::All, rng.duration(second / 10, 3 * second), rng),
            (1, Some(leader)) => control.pause(leader, rng.duration(second / 10, 4 * second)),
            (2, Some(leader)) => control.mute(leader, rng.duration(second / 10, 4 * second)),
            (3, _) => control.crash_all(self.layout.all_hosts(), Loss::All, rng),
            (4, _) => return self.replace_a_host(rng, control),
            (5, _) if self.focus == Focus::Changes => return self.replace_a_host(rng, control),
            (5, _) => return self.grow_or_shrink(rng, control),
            (6 | 7, _) => return self.coup(which == 7, rng, control),
            _ => return false,
        }
        true
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        if self.layout.client_on(host).is_some() {
            return false;
        }
        let needed = self.needed();
        // Every configuration that matters must be able to bear one more loss, for it has no other copy of the votes.
        let bears = |configuration: &Configuration| {
            let hosts = cluster::hosts_of(configuration);
            let bad = hosts.iter().filter(|&&other| other == host || self.is_bad(other, cluster)).count();
            !hosts.contains(&host) || bad <= configuration.acceptors.faults()
        };
        let plays = needed.iter().any(|configuration| cluster::hosts_of(configuration).contains(&host));
        (plays || self.gone.contains(&host)) && needed.iter().all(bears)
    }

    fn on_disk_lost(&mut self, host: HostId, _cluster: &Cluster<'_, Node>) -> Replacement {
        self.wiped.insert(host);
        // An operator who starts all machines of the first cluster file with empty disks, long after they were replaced, starts
        // another cluster: no protocol can distinguish that from the bootstrap of the first. Operators must not.
        if self.gone.contains(&host) { Replacement::StayDown } else { Replacement::Wiped }
    }

    fn core(&mut self, cluster: &Cluster<'_, Node>, rng: &mut Rng) -> Core {
        let mut hosts: Vec<HostId> = self.layout.client_nodes().iter().map(|node| node.host()).collect();
        for configuration in self.needed() {
            let sound: Vec<HostId> = cluster::hosts_of(&configuration)
                .into_iter()
                .filter(|&host| !self.is_bad(host, cluster))
                .collect();
            match cluster::core(&configuration, &sound, rng) {
                Some(core) => hosts.extend(core),
                None => return Core::Excused("no quorum of acceptors has retained its votes".to_owned()),
            }
        }
        hosts.sort_unstable();
        hosts.dedup();
        Core::Hosts(hosts)
    }

    fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        self.invariants.converged(core, cluster, &self.latest())
    }

    /// A host that is left out and speaks may have the others go on for ever, for it does not hear what they answer.
    fn is_in_use(&self, node: NodeId, cluster: &Cluster<'_, Node>) -> bool {
        let is_client = self.layout.client_on(node.host()).is_some();
        let is_whole = cluster.hosts().all(|host| self.core.contains(&host) || !cluster.is_up(host));
        is_whole && (is_client || self.latest().nodes().contains(&node))
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        invariants::describe(cluster)
    }

    fn finish(&mut self, _cluster: &Cluster<'_, Node>) {
        if self.healed {
            self.histories.served.check();
        }
        self.undecided = !self.histories.check();
    }

    fn is_undecided(&self) -> bool {
        self.undecided
    }

    fn history(&self) -> Option<String> {
        self.histories.to_text()
    }
}
