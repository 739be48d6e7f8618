//! Mason under the bare sequence: every host plays every role.

mod beginning;
mod deposing;
mod history;
pub(crate) mod invariants;

use crate::audit::{self, mason::MasonAudit};
use crate::limits::{self, Sizes};
use crate::moments;
use crate::moments::ambush::{Ambushes, Kind};
use crate::moments::arranging::{ASK_EVERY, Wishes};
use crate::moments::{membership::Changes, operator};
use ::mason::proxy::SpacesOf;
use ::mason::{Deployment, Group, HostParts, MasonParameters, Space, Stub};
use beginning::Sealing;
use deposing::Deposing;
use history::History;
use invariants::Invariants;
use kernel::client::Response;
use kernel::{Bytes, Encode, HostId, HostSlot, NodeId, RequestId, Rng};
use sequence::{Ask, Gateway, LABEL_BYTES_MAX, Labels, Spaces};
use sim::{
    Classes, Cluster, Control, Core, Fact, HostSpec, Incarnation, IsClaim, Loss, OperationId, Scenario,
    StrikeKind, Tuning,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What a host runs.
type Node = ::mason::MasonMember<Spaces, Labels, Gateway>;

/// One cluster, drawn from a seed.
pub struct MasonScenario {
    hosts: Vec<HostId>,
    shards: u16,
    deployment: Deployment,
    sizes: Sizes,
    /// Nothing fails in this run.
    has_no_faults: bool,
    history: History,
    invariants: Invariants,
    audit: MasonAudit,
    lost: BTreeSet<HostId>,
    core: Vec<HostId>,
    changes: Changes,
    arranging: Wishes,
    ambushes: Ambushes,
    /// Operations that nobody waits for: begun, and still to be begun.
    busy: (u32, u32),
    deposing: Option<Deposing>,
    /// How often it still looks for the next sequencer.
    looks_for_the_next: u32,
    sealing: Sealing,
    /// Until then clients ask for nothing.
    hushed_until: u64,
    /// Little goes wrong but leaders that are deposed, one after the other.
    is_calm: bool,
}

/// The alarm that asks whether the hosts have changed, and the one that asks for groups.
const ASK_FOR_HOSTS: u64 = 1;
const ASK_FOR_GROUPS: u64 = 2;
/// The alarm that makes logs longer, how often, and how many operations that are no client's it begins.
const BE_BUSY: u64 = 3;
/// The alarm that goes on with deposing a leader.
const DEPOSE: u64 = 4;
/// The alarm that deposes another, and how often, where little else goes wrong.
const DEPOSE_ANOTHER: u64 = 5;
/// The alarm that looks for the next sequencer, which is to be killed.
const KILL_NEXT: u64 = 6;
const DEPOSE_EVERY: Duration = Duration::from_secs(5);
const BUSY_EVERY: Duration = Duration::from_millis(10);
const BUSY_OPERATIONS: u32 = 250;
/// The client that these are named by.
const NOBODY: u16 = u16::MAX;

/// How long after the heal every hole must be filled: less than a core has to converge.
const CONTIGUOUS_AFTER: Duration = Duration::from_secs(110);

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "proxy.adds_groups",
    "proxy.called_a_sequencer_for_a_layout",
    "proxy.collected_an_interval",
    "proxy.drains_groups",
    "proxy.filled_holes",
    "proxy.filled_numbers_of_a_dead_leader",
    "proxy.found_its_sequencer_restarted",
    "proxy.leads",
    "proxy.logged_new_members",
    "proxy.moves_its_log",
    "proxy.proposed_again",
    "proxy.refused_a_sealed_sequencers_answer",
    "proxy.retires",
    "proxy.sealed",
    "proxy.suspected_the_sequencer",
    "proxy.took_groups_out",
    "proxy.took_over_a_layout",
    "proxy.took_over_from_a_stub",
    "scenario.changed_the_groups",
    "scenario.changed_the_hosts",
    "scenario.deposed_a_leader_whose_requests_were_late",
    "scenario.held_one_shard_back",
    "scenario.killed_a_sequencer_that_had_just_begun",
    "scenario.repeated_seals_to_a_later_attempt",
    "scenario.killed_the_sequencer_when_a_group_retired",
    "scenario.killed_who_took_a_snapshot",
    "scenario.lost_answers_one_by_one_and_then_all",
    "scenario.paused_until_the_logs_had_forgotten",
    "scenario.restarted_a_standby_that_was_sealing",
    "scenario.used_groups_that_had_idled",
    "sequencer.answered_a_request_again",
    "sequencer.began_a_recovery",
    "sequencer.found_holes",
    "sequencer.learned_of_a_layout_from_a_seal",
    "sequencer.recovered_anew_in_the_middle",
    "replica.resumed_from_its_acceptor",
    "replica.wrote_a_ripe_capture",
    "replica.wrote_an_unripe_capture",
    "sequencer.reported_a_new_leader_of_lost_requests",
    "sequencer.took_over",
    "shard.asked_for_a_missing_number",
    "shard.asked_for_inputs",
    "shard.had_forgotten_inputs",
    "shard.sent_inputs_again",
    "shard.took_a_snapshot_from_a_peer",
    "shard.wrote_a_snapshot",
    "sequence.asked_another_group",
];

const STRIKES: [StrikeKind; 17] = [
    StrikeKind { name: "kill the sequencer", class: sim::Class::Strike },
    StrikeKind { name: "pause the sequencer", class: sim::Class::Strike },
    StrikeKind { name: "kill a proxy's leader", class: sim::Class::Strike },
    StrikeKind { name: "pause a proxy's leader", class: sim::Class::Strike },
    StrikeKind { name: "kill the sequencer and a proxy's leader", class: sim::Class::Strike },
    StrikeKind { name: "kill everybody", class: sim::Class::Strike },
    StrikeKind { name: "replace a host", class: sim::Class::Membership },
    StrikeKind { name: "grow or shrink", class: sim::Class::Membership },
    StrikeKind { name: "add or remove groups", class: sim::Class::Membership },
    StrikeKind { name: "kill who takes a peer's snapshot, and a proxy's leader", class: sim::Class::Strike },
    StrikeKind { name: "kill the sequencer when a group retires", class: sim::Class::Membership },
    StrikeKind { name: "use groups that have idled for long", class: sim::Class::Membership },
    StrikeKind { name: "pause a host until the logs forget what it lacks", class: sim::Class::Strike },
    StrikeKind { name: "hold one shard of a host back", class: sim::Class::Strike },
    StrikeKind { name: "lose a host's answers one by one and then all", class: sim::Class::Strike },
    StrikeKind {
        name: "depose a leader whose requests to the sequencer are late",
        class: sim::Class::Strike,
    },
    StrikeKind {
        name: "kill the sequencer, and start a standby that seals again",
        class: sim::Class::Strike,
    },
];

/// How long an operation takes at most where nothing fails.
const CALM_MOST: Duration = Duration::from_millis(100);

impl MasonScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let count = if rng.chance(0.8) { 3 } else { 5 };
        let entries: Vec<paxos::HostEntry> = (0..count).map(operator::entry).collect();
        let hosts = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let alone = rng.chance(0.15);
        let (groups, shards) =
            if alone { (1, 1) } else { (rng.between(1, 4) as u16, rng.between(1, 4) as u16) };
        let sequencers = if alone { 0 } else { count };
        let parameters = MasonParameters {
            tick: ms(rng.between(10, 40)),
            resend_after: ms(rng.between(30, 120)),
            suspect_after: ms(rng.between(80, 400)),
            batches_max: rng.between(1, 6) as usize,
            batch_operations_max: if rng.chance(0.3) { 2 } else { 64 },
            clock_every: ms(rng.between(200, 800)),
            collect_every: ms(rng.between(100, 1_000)),
            collect_interval: rng.between(4, 64),
            ask_after: ms(rng.between(20, 80)),
            snapshot_every_bytes: 500 << rng.below(6),
            snapshot_chunk_bytes: 256 << rng.below(4),
            page_bytes: 128 << rng.below(6),
            // Where nobody waits for the last server, it has to take a snapshot.
            wait_for_last: if rng.chance(0.5) { Duration::ZERO } else { ms(100) },
            ..MasonParameters::default()
        };
        let log = paxos::Parameters {
            election_timeout: ms(rng.between(150, 400)),
            heartbeat_every: ms(rng.between(25, 60)),
            resend_after: ms(rng.between(50, 150)),
            window: 8 << rng.below(4),
            snapshot_every_bytes: 2_000 << rng.below(6),
            snapshot_chunk_bytes: 128 << rng.below(5),
            retained_bytes_max: 4_000 << rng.below(6),
            ..paxos::Parameters::default()
        };
        let has_no_faults = limits::is_calm(rng);
        let (parameters, log) = limits::narrowed(parameters, log, rng);
        let (parameters, log) =
            if has_no_faults { limits::patient(parameters, log) } else { (parameters, log) };
        let (parameters, log) = limits::fit(parameters, log);
        let room = if alone || rng.chance(0.4) { groups } else { rng.between(u64::from(groups), 4) as u16 };
        let deployment =
            Deployment::new(entries, groups, shards, sequencers, parameters, log).with_room_for(room, shards);
        let sizes = Sizes::draw(rng);
        let changes = Changes::new(deployment.clone(), ASK_FOR_HOSTS, rng.chance(0.5));
        Self {
            hosts,
            has_no_faults,
            shards,
            deployment,
            sizes,
            history: History::default(),
            invariants: Invariants::default(),
            audit: MasonAudit::default(),
            lost: BTreeSet::new(),
            core: Vec::new(),
            changes,
            arranging: Wishes::new((groups, shards), (room, 0)),
            ambushes: Ambushes::default(),
            busy: (0, 0),
            deposing: None,
            looks_for_the_next: 0,
            sealing: Sealing::draw(rng),
            hushed_until: 0,
            is_calm: rng.chance(0.125),
        }
    }

    /// True once every acceptor of the bootstrap may vote, durably: a machine that is lost before is one that an operator has to replace.
    fn is_bootstrapped(&self) -> bool {
        self.audit.bootstrapped(&self.hosts) == self.hosts.len() * self.deployment.topology().groups.len()
    }

    fn be_busy(&mut self, control: &mut Control<'_, Node>) {
        if self.busy.1 == 0 {
            control.alarm(BUSY_EVERY, BE_BUSY);
        }
        self.busy.1 = BUSY_OPERATIONS;
    }

    /// Makes logs longer, so that they forget sooner.
    fn go_on_being_busy(&mut self, control: &mut Control<'_, Node>) {
        if self.busy.1 == 0 || !self.core.is_empty() {
            return;
        }
        let nth = self.busy.0;
        self.busy = (nth + 1, self.busy.1 - 1);
        let hosts = self.changes.members();
        let host = hosts[nth as usize % hosts.len()];
        let mut rng = Rng::seeded(u64::from(nth));
        if control.cluster.is_up(host) {
            let operation = OperationId { client: NOBODY, nth };
            self.operate(operation, Deployment::gateway(host), &mut rng, control);
        }
        control.alarm(BUSY_EVERY, BE_BUSY);
    }

    /// Asks for numbers in some spaces.
    fn ask(&mut self, operation: OperationId, node: NodeId, rng: &mut Rng, control: &mut Control<'_, Node>) {
        let mut spaces: Vec<Space> = (0..self.shards).map(Space).filter(|_| rng.chance(0.5)).collect();
        if spaces.is_empty() {
            spaces.push(Space(rng.below(u64::from(self.shards)) as u16));
        }
        let label = format!("{}.{}", operation.client, operation.nth);
        let label = Bytes::from(self.sizes.stretch(label, LABEL_BYTES_MAX, rng));
        let ask = Ask { spaces: spaces.clone(), label: label.clone() };
        let id = control.request(node, ask.encoded().into());
        self.history.asked(id, node, spaces, label, control.cluster.now());
    }

    /// Where calls come from: hosts of the bootstrap, and those that join.
    fn gateways(&self) -> Vec<NodeId> {
        self.hosts.iter().copied().chain(self.changes.spares()).map(Deployment::gateway).collect()
    }
}

fn is_bad(lost: &BTreeSet<HostId>, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
    lost.contains(&host) || cluster.is_lost(host) || cluster.is_damaged(host)
}

impl Scenario for MasonScenario {
    type Node = Node;

    const FAMILY: &'static str = "mason";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        let first = self.hosts.iter().map(|&host| HostSpec::server(host));
        first.chain(self.changes.spares().map(HostSpec::spare)).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        self.gateways().into_iter().flat_map(|gateway| [gateway; 3]).collect()
    }

    fn classes(&self) -> Classes {
        Classes::ALL.without(sim::Class::Upgrade).without(sim::Class::ClockLie)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning {
            safety: (s(10), s(30)),
            busy_at_least: if self.is_calm { None } else { Some(s(5)) },
            blows: if self.is_calm { (0.01, 0.3) } else { Tuning::default().blows },
            operations: (20, 150),
            liveness: s(120),
            bounds: limits::BOUNDS,
            calm: self.has_no_faults.then_some(CALM_MOST),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        self.invariants.forget(incarnation.host);
        self.audit.forget(incarnation.host);
        self.history.forget(Deployment::gateway(incarnation.host));
        self.blank_nodes(incarnation.host)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        let stub = Spaces { count: self.shards };
        let spaces_of: SpacesOf = Arc::new(move |body, shard_map| stub.spaces(body, shard_map));
        let parts = HostParts {
            stub: &|_: Group| stub,
            shard: &|_: Space| Labels::default(),
            gateway: Gateway::new(self.deployment.proxies_of(host), self.deployment.servers_of(host))
                .with_layout(self.deployment.topology().layout.clone()),
        };
        self.changes.deployment_of(host).build(host, &spaces_of, parts)
    }

    fn on_dry_restart(&mut self, node: NodeId, running: &Node, restarted: &Node) {
        self.audit.on_dry_restart(node, running, restarted);
        self.invariants.check_restarted(node, restarted);
    }

    fn on_begin(&mut self, control: &mut Control<'_, Node>) {
        if self.is_calm && !self.has_no_faults {
            control.alarm(DEPOSE_EVERY / 2, DEPOSE_ANOTHER);
        }
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        if control.cluster.now() >= self.hushed_until || !self.core.is_empty() {
            self.ask(operation, node, rng, control);
        }
    }

    fn on_response(
        &mut self,
        _node: NodeId,
        id: RequestId,
        order: Response,
        control: &mut Control<'_, Node>,
    ) {
        if self.changes.on_answer(id, &order, control) {
            return;
        }
        match self.arranging.on_answer(id, &order) {
            Some(true) => control.mark("scenario.changed_the_groups"),
            Some(false) => {}
            None => self.history.answered(id, &order.0, control.cluster.now()),
        }
    }

    fn on_lost(&mut self, _node: NodeId, id: RequestId) {
        self.changes.lost(id);
        self.arranging.lost(id);
    }

    fn claims(&self) -> Option<IsClaim<Node>> {
        Some(audit::mason::is_claim)
    }

    fn on_fact(&mut self, fact: Fact<::mason::MasonMessage>, _cluster: &Cluster<'_, Node>) {
        self.audit.on_fact(fact);
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.audit.check_host(host, cluster);
        self.invariants.check_host(host, cluster);
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let second = Duration::from_secs(1);
        let sequencer = moments::sequencer(&control.cluster);
        let leader = rng.pick(&moments::leaders(&control.cluster)).map(|(_, host)| *host);
        let down = rng.duration(second / 20, 2 * second);
        match (which, sequencer, leader) {
            (0, Some(host), _) => {
                self.kill_the_next(rng, control);
                control.crash(host, Loss::All, down, rng);
            }
            (2, _, Some(host)) => control.crash(host, Loss::All, down, rng),
            (1, Some(host), _) | (3, _, Some(host)) => control.pause(host, down),
            (4, Some(one), Some(other)) => {
                control.crash(one, Loss::All, down, rng);
                if one != other {
                    control.crash(other, Loss::All, down, rng);
                }
            }
            (5, _, _) => {
                let hosts = self.hosts.iter().copied().chain(self.changes.spares());
                control.crash_all(hosts, Loss::All, rng);
            }
            (8, _, _) => {
                if !self.is_bootstrapped() || !self.arranging.draw(rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
            }
            (9, _, _) => {
                // A host that stands still for so long takes one.
                self.be_busy(control);
                self.ambushes.lay(Kind::Forgotten, None, rng, control);
                return self.ambushes.lay(Kind::Installed, None, rng, control);
            }
            (10, _, _) => {
                if !self.is_bootstrapped() || !self.arranging.draw_fewer_groups(rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
                return self.ambushes.lay(Kind::Retired, None, rng, control);
            }
            (11, _, _) => {
                let idle = rng.duration(second, 10 * second);
                if !self.is_bootstrapped() || !self.arranging.draw_journey(idle, rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
            }
            (12, _, _) => {
                self.be_busy(control);
                return self.ambushes.lay(Kind::Forgotten, None, rng, control);
            }
            (13, _, _) => return self.ambushes.lay(Kind::Behind, None, rng, control),
            (14, _, _) => {
                self.be_busy(control);
                return self.ambushes.lay(Kind::Unanswered, None, rng, control);
            }
            (15, _, _) => return self.depose(rng, control),
            (16, _, _) => return self.ambushes.lay(Kind::Recovering, None, rng, control),
            (6 | 7, _, _) => {
                let lost = self.lost.clone();
                let is_bad = |host, cluster: &Cluster<'_, Node>| is_bad(&lost, host, cluster);
                return self.is_bootstrapped()
                    && self.changes.replace_or_resize(which == 7, is_bad, rng, control);
            }
            _ => return false,
        }
        true
    }

    fn watches(&self) -> bool {
        self.ambushes.any() || self.sealing.is_on()
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        self.ambushes.look(control);
        if self.sealing.is_on() && !self.has_no_faults {
            self.sealing.look(control);
        }
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        let is_gone =
            |other| other == host || is_bad(&self.lost, other, cluster) || self.changes.leaves(other);
        self.is_bootstrapped() && self.changes.bears(is_gone)
    }

    fn on_disk_lost(&mut self, host: HostId, _cluster: &Cluster<'_, Node>) -> sim::Replacement {
        self.lost.insert(host);
        sim::Replacement::StayDown
    }

    fn core(&mut self, cluster: &Cluster<'_, Node>, rng: &mut Rng) -> Core {
        let is_bad = |host| is_bad(&self.lost, host, cluster);
        match self.changes.core(self.is_bootstrapped(), is_bad, rng) {
            Some(core) => Core::Hosts(core),
            None => Core::Excused("no majority has retained its journal".to_owned()),
        }
    }

    fn on_heal(&mut self, core: &[HostId], control: &mut Control<'_, Node>) {
        self.core = core.to_vec();
        control.alarm(CONTIGUOUS_AFTER, 0);
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, Node>) {
        if token == ASK_FOR_HOSTS {
            return self.changes.ask_whether_settled(control);
        }
        if token == DEPOSE_ANOTHER && self.core.is_empty() {
            let mut rng = Rng::seeded(control.cluster.now());
            self.depose(&mut rng, control);
            return control.alarm(DEPOSE_EVERY, DEPOSE_ANOTHER);
        }
        if token == KILL_NEXT {
            return self.look_for_the_next(control);
        }
        if token == DEPOSE {
            return self.go_on_deposing(control);
        }
        if token == BE_BUSY {
            return self.go_on_being_busy(control);
        }
        if token == ASK_FOR_GROUPS {
            let hosts = self.changes.members();
            let first =
                hosts.into_iter().filter_map(|host| self.deployment.proxies_of(host).first().copied());
            if self.arranging.ask(first, control) {
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
            }
            return;
        }
        if token == 0 {
            self.invariants.check_contiguity(&self.core, &control.cluster);
        }
    }

    fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        if let Some(missing) = self.changes.unsettled(core) {
            return Err(missing);
        }
        if let Some(missing) = self.arranging.unfulfilled() {
            return Err(missing);
        }
        self.invariants.converged(core, cluster)
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        invariants::describe(cluster, Gateway::outstanding)
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        self.history.check(cluster);
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}
