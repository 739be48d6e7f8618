//! FuzzyLog: partitions with chains of servers, directors, and users who append to colours and play them.

mod bounds;
mod chains;
mod changing;
mod disks;
mod drawn;
mod history;
mod losing;
pub mod maps;
mod marks;
mod moving;
mod outdated;
pub mod regions;
mod rotting;
pub mod smallest;
mod strict;
mod truth;
mod users;

use crate::audit::rising::Rising;
use crate::limits;
use ::fuzzylog::{
    ChainServer, FuzzyDeployment, FuzzyMember, FuzzyMessage, FuzzyParameters, FuzzyResponse, PartitionId,
};
use chains::{Chains, empty_server, server};
use changing::{Changes, Moment};
use disks::Disks;
pub(crate) use drawn::draw_segment_bytes;
use drawn::{draw_log, draw_parameters};
use history::History;
use kernel::{HostId, HostSlot, NodeId, RequestId, Rng};
use losing::Losing;
use moving::Moving;
use outdated::Outdated;
use rotting::Rotting;
use sim::{
    Class, Classes, Cluster, Control, Core, Fact, HostSpec, Incarnation, IsClaim, Loss, OperationId,
    Replacement, Scenario, StrikeKind, Tuning,
};
use std::collections::BTreeMap;
use std::time::Duration;
use strict::Strictness;
use truth::Truth;
use users::{Planned, Users};

/// What a host runs.
type Node = FuzzyMember;

/// One cluster, drawn from a seed.
pub struct FuzzyScenario {
    servers: Vec<HostId>,
    clients: Vec<HostId>,
    deployment: FuzzyDeployment,
    users: Users,
    history: History,
    truth: Truth,
    disks: Disks,
    rising: Rising,
    parameters: FuzzyParameters,
    chains: Chains,
    /// How many clients are still to be struck in the middle of an append.
    plots: u32,
    /// A host that other servers do not hear, nor it them.
    apart: Option<HostId>,
    /// What users' companions ask in a moment.
    beside: Vec<(u16, NodeId, Planned)>,
    /// How often others looked for what was appended meanwhile.
    probes: u16,
    /// How many servers a chain is to have, if there are so many hosts.
    replicas: usize,
    changes: Changes,
    /// Who directs, by the version of their log's configuration.
    directors: BTreeMap<u64, Vec<HostId>>,
    strictness: Strictness,
    moving: Moving,
    rotting: Rotting,
    losing: Losing,
    outdated: Outdated,
}

const CLIENTS: usize = 3;
const USERS_PER_CLIENT: usize = 2;
/// In the strict order: a clock that is worse is not relied on.
const CLOCK_ERROR_MAX: Duration = Duration::from_millis(500);
/// The alarm by which a host and the others hear each other again.
const TOGETHER: u64 = 1;
/// The alarm by which users' companions ask.
const BESIDE: u64 = 2;

const STRIKES: [StrikeKind; 13] = [
    StrikeKind { name: "kill a chain's head", class: Class::Strike },
    StrikeKind { name: "pause a chain's head", class: Class::Strike },
    StrikeKind { name: "kill a chain's tail", class: Class::Strike },
    StrikeKind { name: "pause a chain's tail", class: Class::Strike },
    StrikeKind { name: "kill all servers", class: Class::Strike },
    StrikeKind { name: "kill who acts as director", class: Class::Strike },
    StrikeKind { name: "kill a client that appends", class: Class::Strike },
    StrikeKind { name: "pause a client that appends", class: Class::Strike },
    StrikeKind { name: "a chain's tail hears clients alone", class: Class::Strike },
    StrikeKind { name: "replace a host", class: Class::Membership },
    StrikeKind { name: "grow or shrink", class: Class::Membership },
    StrikeKind { name: "replace a host during a seal", class: Class::Membership },
    StrikeKind { name: "replace a host while a server copies", class: Class::Membership },
];

impl FuzzyScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let count = rng.between(3, 5) as usize;
        let entries: Vec<paxos::HostEntry> = (0..count).map(crate::moments::operator::entry).collect();
        let servers: Vec<HostId> = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let clients = (0..CLIENTS).map(|number| HostId::named(&format!("c{number}"))).collect();
        let (partitions, width) = (rng.between(1, 3) as u16, rng.between(1, 3) as usize);
        let spares = rng.below(2) as usize;
        let parameters = draw_parameters(width, rng);
        let log = draw_log(rng);
        let (all_change, users) = (rng.chance(0.5), Users::draw(rng));
        let plots = if rng.chance(0.5) { 12 } else { 0 };
        let strictness = Strictness::draw(rng);
        let order = strictness.order;
        let parameters = FuzzyParameters { order, clock_error_max: CLOCK_ERROR_MAX, ..parameters };
        let mut moving = Moving::draw(rng);
        let parameters = moving.parameters(parameters);
        let most = moving.most(partitions);
        let deployment =
            FuzzyDeployment::new(0, &entries, partitions, (width, spares), parameters.clone(), log)
                .with_room(most);
        let changes = Changes::new(deployment.clone(), entries, all_change);
        Self {
            servers,
            clients,
            users,
            history: History::default(),
            truth: Truth::new(deployment.placement(), most as u16, order),
            disks: Disks::default(),
            rising: Rising::default(),
            parameters,
            chains: Chains::new(&deployment),
            deployment,
            plots,
            apart: None,
            beside: Vec::new(),
            probes: 0,
            replicas: width,
            changes,
            directors: BTreeMap::new(),
            strictness,
            moving,
            rotting: Rotting::draw(rng),
            losing: Losing::draw(rng),
            outdated: Outdated::draw(rng),
        }
    }

    fn ask(&mut self, user: u16, node: NodeId, planned: Planned, control: &mut Control<'_, Node>) {
        if planned.again.is_some() {
            control.mark("scenario.asked_again_elsewhere");
        }
        let id = control.request(node, planned.request.clone());
        self.users.began(user, id);
        let who = (user, planned.incarnation);
        self.history.asked(id, who, node, planned.request, planned.again, control.cluster.now());
    }

    fn look(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.chains.look(host, cluster);
        self.truth.look(host, &mut self.disks, cluster);
        self.outdated.look(host, cluster);
    }

    /// The hosts of the bootstrap, and those that may join.
    fn machines(&self) -> impl Iterator<Item = HostId> + '_ {
        self.servers.iter().copied().chain(self.changes.spares())
    }

    /// A client that is in the middle of an append, as far as is wanted.
    fn appending(&self, cluster: &Cluster<'_, Node>) -> Vec<(HostId, &'static str)> {
        let mut found = Vec::new();
        for (id, node) in cluster.nodes() {
            let Node::Client(client) = node else { continue };
            for it in client.several_in_flight().filter(|it| !it.waits && it.answered < it.asked) {
                let mark = match (it.is_taken_over, it.is_phase_2) {
                    (true, _) => "scenario.struck_who_took_over",
                    (false, false) => "scenario.struck_an_origin_in_phase_1",
                    (false, true) => "scenario.struck_an_origin_in_phase_2",
                };
                found.push((id.host(), mark));
            }
        }
        found
    }

    /// Nobody else's disk is needed for what the host has.
    fn is_whole_without(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        let directs = self.may_direct(host, cluster);
        let is_changing = cluster
            .nodes()
            .any(|(_, node)| matches!(node, Node::Director(director) if director.is_changing()));
        !directs
            && !is_changing
            && self.chains.partitions().all(|partition| {
                let latest = self.chains.latest(partition);
                let well = latest.nodes().filter(|&id| {
                    server(id, cluster).is_some_and(|server| {
                        server.serves() == Some(latest.epoch)
                            && server.length() >= latest.whole_from
                            && server.length() >= self.truth.replayed(partition)
                            && server.state().applied() == self.truth.replayed(partition)
                    })
                });
                let well: Vec<NodeId> = well.collect();
                well.len() == latest.members.len() && well.iter().any(|id| id.host() != host)
            })
    }
}

impl FuzzyScenario {
    /// What is in the log at the end is whole.
    fn finish_log(&mut self, cluster: &Cluster<'_, Node>) {
        self.check_durable(cluster);
        for (id, node) in cluster.nodes() {
            if let Node::ChainServer(server) = node
                && self.chains.latest(server.partition()).nodes().any(|it| it == id)
            {
                self.truth.replay(id, server, &mut self.disks);
                self.truth.check_whole(id, server, &self.disks);
            }
        }
        self.truth.check_atomic(|_, _| false);
    }
}

impl Scenario for FuzzyScenario {
    type Node = Node;

    const FAMILY: &'static str = "fuzzylog";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = marks::MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        let servers = self.servers.iter().copied().map(HostSpec::server);
        let servers = servers.chain(self.changes.spares().map(HostSpec::spare));
        servers.chain(self.clients.iter().map(|&host| HostSpec::client(host))).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        let of_host = |&host: &HostId| [self.deployment.client_of(host); USERS_PER_CLIENT];
        self.clients.iter().flat_map(of_host).collect()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.with(Class::Strike).with(Class::DiskLost).with(Class::Membership)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning {
            safety: (s(8), s(20)),
            busy_at_least: Some(s(5)),
            operations: (20, 120),
            liveness: s(60),
            bounds: limits::BOUNDS,
            clock_error_max: self.strictness.order.is_strict().then_some(CLOCK_ERROR_MAX),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        self.rising.forget(incarnation.host);
        if self.clients.contains(&incarnation.host) {
            return vec![self.deployment.build_client(incarnation.host)];
        }
        self.blank_nodes(incarnation.host)
    }

    fn drawn(&mut self, classes: Classes) {
        if !classes.has(Class::DiskLost) {
            self.losing.rest();
        }
        if !classes.has(Class::Strike) {
            self.outdated.rest();
        }
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        if self.clients.contains(&host) { Vec::new() } else { self.changes.deployment_of(host).build(host) }
    }

    fn on_dry_restart(&mut self, node: NodeId, running: &Node, restarted: &Node) {
        if let (Node::ChainServer(running), Node::ChainServer(restarted)) = (running, restarted) {
            disks::on_dry_restart(node, running, restarted);
        }
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let planned = self.users.plan(operation.client, rng);
        self.ask(operation.client, node, planned, control);
        self.lie(rng, control);
        self.rot_segments(control);
        self.lose_a_disk(control);
        self.set_a_tail_apart(control);
        self.begin_moving(control);
        for user in self.users.companions(operation.client) {
            let planned = self.users.plan(user, rng);
            self.beside.push((user, node, planned));
            control.alarm(Duration::from_nanos(1), BESIDE);
        }
    }

    fn on_response(
        &mut self,
        node: NodeId,
        id: RequestId,
        response: FuzzyResponse,
        control: &mut Control<'_, Node>,
    ) {
        if self.on_followed(id, &response, control) || self.on_changed(id, &response, control) {
            return;
        }
        if let Some((user, request)) = self.history.answered(id, &response, control.cluster.now()) {
            self.users.answered(user, &request, &response);
        }
        self.probe(node, &response, control);
    }

    fn on_lost(&mut self, _node: NodeId, id: RequestId) {
        self.changes.lost(id);
        self.moving.lost(id);
        if let Some((user, request)) = self.history.user_of(id) {
            self.users.lost(user, id, request);
        }
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, Node>) {
        if token == changing::ASK {
            self.changes.ask_whether_settled(control);
        }
        if token == moving::MOVE {
            self.ask_to_move(control);
        }
        if token == BESIDE {
            for (user, node, planned) in std::mem::take(&mut self.beside) {
                self.ask(user, node, planned, control);
            }
        }
        if token == TOGETHER
            && let Some(host) = self.apart.take()
        {
            for other in self.machines().filter(|&it| it != host) {
                control.mend(other, host);
                control.mend(host, other);
            }
        }
    }

    fn members(&self) -> Vec<HostId> {
        self.changes.needed().into_iter().collect()
    }

    fn claims(&self) -> Option<IsClaim<Node>> {
        Some(disks::is_claim)
    }

    fn on_fact(&mut self, fact: Fact<FuzzyMessage>, cluster: &Cluster<'_, Node>) {
        let mut disks = std::mem::take(&mut self.disks);
        let read_back = disks.on_fact(
            fact,
            |id| self.is_server(id),
            |id| empty_server(id, self.blank_nodes(id.host())),
            |id, blob| cluster.blob(id, blob),
        );
        if let Some((id, state)) = read_back {
            self.truth.check_nodes(id, &state);
        }
        self.disks = disks;
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.look(host, cluster);
        self.check_directors(host, cluster);
        self.check_nested(host, cluster);
        self.check_bounded(host, cluster);
        self.check_state(host, cluster);
        self.disks.check_segments(host, cluster);
    }

    fn reads_blobs_at_start(&self) -> bool {
        true
    }

    fn watches(&self) -> bool {
        self.plots > 0 || self.changes.waits() || self.moving.watches() || self.apart.is_some()
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        self.change_hosts_in_a_moment(control);
        self.strike_a_mover(control);
        self.sync_by_an_epoch_that_is_over(control);
        // Not the first one that is seen: what is seen first is always at its beginning.
        let now = control.cluster.now();
        let found = self.appending(&control.cluster);
        let mut rng = Rng::seeded(now);
        if self.plots > 0
            && rng.chance(0.02)
            && let Some(&(host, mark)) = rng.pick(&found)
        {
            self.plots -= 1;
            control.mark(mark);
            let lasts = rng.duration(Duration::from_millis(100), Duration::from_secs(2));
            match rng.chance(0.6) {
                true => control.crash(host, Loss::All, lasts, &mut rng),
                false => control.pause(host, lasts),
            }
        }
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        self.changes.needed().contains(&host) && self.is_whole_without(host, cluster)
    }

    fn on_disk_lost(&mut self, _host: HostId, _cluster: &Cluster<'_, Node>) -> Replacement {
        Replacement::Wiped
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        match which {
            9 | 10 => return self.change_hosts(which == 10, rng, control),
            11 => return self.changes.wait_for(Moment::Seal),
            12 => return self.changes.wait_for(Moment::Copy),
            _ => {}
        }
        let second = Duration::from_secs(1);
        let down = rng.duration(second / 20, 2 * second);
        let partition = PartitionId(rng.below(u64::from(self.deployment.placement().partitions())) as u16);
        let latest = self.chains.latest(partition);
        let (Some(head), Some(tail)) = (latest.head(), latest.tail()) else { return false };
        match which {
            0 => control.crash(head.host(), Loss::All, down, rng),
            1 => control.pause(head.host(), down),
            2 => control.crash(tail.host(), Loss::All, down, rng),
            3 => control.pause(tail.host(), down),
            8 => return self.set_apart(tail.host(), down + second, control),
            4 => control.crash_all(self.changes.needed(), Loss::All, rng),
            5 => {
                let acts = control
                    .cluster
                    .nodes()
                    .find(|(_, node)| matches!(node, Node::Director(director) if director.is_leading()));
                let Some((id, _)) = acts else { return false };
                control.crash(id.host(), Loss::All, down, rng);
            }
            _ => {
                let found = self.appending(&control.cluster);
                let Some(&(host, mark)) = rng.pick(&found) else { return false };
                control.mark(mark);
                match which {
                    6 => control.crash(host, Loss::All, down, rng),
                    _ => control.pause(host, down),
                }
            }
        }
        true
    }

    fn core(&mut self, cluster: &Cluster<'_, Node>, _rng: &mut Rng) -> Core {
        self.strictness.heal();
        self.moving.rest();
        self.rotting.rest();
        self.losing.rest();
        self.outdated.rest();
        let servers = self.changes.needed().into_iter().filter(|&host| !cluster.is_lost(host));
        Core::Hosts(servers.chain(self.clients.iter().copied()).collect())
    }

    /// All chains have their servers, which have applied everything; nothing is unfinished.
    fn converged(&self, _core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        if let Some(missing) = self.changes.unsettled().or_else(|| self.unmoved(cluster)) {
            return Err(missing);
        }
        for partition in self.chains.partitions() {
            let latest = self.chains.latest(partition);
            if latest.members.len() < self.width() || self.has_leavers(partition) {
                return Err(format!("the chain of {partition} is {:?} only", latest.members));
            }
            let head = latest.head().and_then(|head| server(head, cluster));
            let length = head.map(ChainServer::length);
            for id in latest.nodes() {
                let Some(server) = server(id, cluster) else { return Err(format!("{id} is down")) };
                if server.serves() != Some(latest.epoch) || Some(server.state().applied()) != length {
                    return Err(format!("{id} lags in {:?}", latest.epoch));
                }
                self.journal_is_bounded(id, server)?;
                let (unfinished, queued) = (server.state().unfinished_count(), server.state().queued());
                if unfinished + queued > 0 {
                    return Err(format!("{unfinished} unfinished, {queued} queued in {partition}"));
                }
            }
        }
        Ok(())
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        let words = cluster.nodes().filter_map(|(id, node)| match node {
            Node::ChainServer(server) => Some(format!(
                "{id} of {} serves {:?}, sealed {:?}, has {} of {}, copies {}",
                server.partition(),
                server.serves(),
                server.sealed(),
                server.state().applied(),
                server.length(),
                server.is_copying()
            )),
            Node::Director(director) => Some(format!(
                "{id} leads {}, changes {}, follows {}, settled on {}, knows {:?}",
                director.is_leading(),
                director.is_changing(),
                director.follows(),
                director.settled_on(),
                director.projections().map(|it| (it.epoch, it.members.len())).collect::<Vec<_>>()
            )),
            Node::Client(client) if client.outstanding() + client.recovering() > 0 => {
                let trouble = cluster.clock_trouble(id.host());
                let clock = trouble.map(|it| format!(" by a clock that is {it:?}")).unwrap_or_default();
                Some(format!("{id} waits{clock}: {}", client.describe()))
            }
            Node::Client(_) | Node::Log(_) => None,
        });
        words.collect::<Vec<_>>().join(" | ")
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        self.finish_log(cluster);
        self.history.check(&self.truth, self.strictness.holds());
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}
