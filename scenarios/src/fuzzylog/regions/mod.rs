//! Regions of FuzzyLog: each a cluster of its own, far from the others and often cut from them, that copies what the others append.

mod audit;
mod changes;

use super::chains::{Chains, empty_server, is_of_a_server, server};
use super::disks::{self, Disks};
use super::history::History;
use super::truth::Truth;
use super::users::{Planned, Users};
use super::{Node, draw_log, draw_parameters};
use crate::limits;
use ::fuzzylog::{
    AppendId, ChainServer, FuzzyDeployment, FuzzyMessage, FuzzyOrder, FuzzyParameters, FuzzyRequest,
    FuzzyResponse, OtherRegion, PartitionId, RegionId,
};
use audit::Audit;
use changes::{Changes, STEP};
use kernel::{HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use paxos::HostEntry;
use sim::{
    Class, Classes, Cluster, Control, Core, Fact, HostSpec, Incarnation, IsClaim, Loss, OperationId,
    Scenario, StrikeKind, Tuning,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// One region.
struct Region {
    id: RegionId,
    servers: Vec<HostId>,
    /// The host of its users.
    client: HostId,
    deployment: FuzzyDeployment,
    history: History,
    users: Users,
    truth: Truth,
    disks: Disks,
    chains: Chains,
    width: usize,
    /// How far its hosts are from the middle of the network.
    distance: Duration,
}

/// Regions that do not hear each other: from which one to which one nothing comes.
type Cut = Vec<(usize, usize)>;

/// Several regions, drawn from a seed.
pub struct RegionsScenario {
    regions: Vec<Region>,
    audit: Audit,
    changes: Changes,
    /// By the alarms that end them.
    cuts: BTreeMap<u64, Cut>,
    next_cut: u64,
}

const USERS_PER_REGION: usize = 3;

const STRIKES: [StrikeKind; 8] = [
    StrikeKind { name: "cut two regions", class: Class::Strike },
    StrikeKind { name: "cut a region from all others", class: Class::Strike },
    StrikeKind { name: "a region does not hear another one", class: Class::Strike },
    StrikeKind { name: "cold-start a region alone", class: Class::Strike },
    StrikeKind { name: "kill a chain's head", class: Class::Strike },
    StrikeKind { name: "pause a chain's head", class: Class::Strike },
    StrikeKind { name: "kill a chain's tail", class: Class::Strike },
    StrikeKind { name: "kill all servers of a region", class: Class::Strike },
];

const MARKS: &[&str] = &[
    "chain.handed_a_snapshot_over",
    "chain.wrote_a_snapshot",
    "partition.added_a_region",
    "partition.log_begins_later",
    "partition.node_waits_for_another_region",
    "partition.page_came_twice",
    "partition.removed_a_region",
    "partition.trim_waits_for_a_region",
    "region.asked_another_server",
    "region.copied_nodes",
    "region.page_came_late",
    "region.was_asked_by_a_stranger",
    "scenario.began_a_region",
    "scenario.cut_one_way",
    "scenario.cut_regions",
    "scenario.found_what_was_carried",
    "scenario.started_a_region_alone",
    "scenario.waited_for_what_was_carried",
];

/// The parameters of all regions: they differ in nothing but their partitions.
fn parameters(width: usize, rng: &mut Rng) -> FuzzyParameters {
    let pull_again_after = rng.duration(Duration::from_millis(100), Duration::from_secs(2));
    FuzzyParameters { pull_again_after, ..draw_parameters(width, rng) }
}

impl Region {
    fn look(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.chains.look(host, cluster);
        self.truth.look(host, &mut self.disks, cluster);
    }

    fn is_server(&self, id: NodeId) -> bool {
        self.servers.contains(&id.host()) && is_of_a_server(id.host_slot())
    }

    /// Its chains have their servers, which have applied everything, and nothing waits for another region.
    fn converged(&self, cluster: &Cluster<'_, Node>) -> Result<(), String> {
        for partition in self.chains.partitions() {
            let latest = self.chains.latest(partition);
            if latest.members.len() < self.width {
                return Err(format!("the chain of {partition} in {} is {:?} only", self.id, latest.members));
            }
            let head = latest.head().and_then(|head| server(head, cluster));
            let length = head.map(ChainServer::length);
            for id in latest.nodes() {
                let Some(server) = server(id, cluster) else { return Err(format!("{id} is down")) };
                if server.serves() != Some(latest.epoch) || Some(server.state().applied()) != length {
                    return Err(format!("{id} lags in {:?}", latest.epoch));
                }
                let state = server.state();
                let waits = [state.unfinished_count(), state.queued(), state.waiting_nodes()];
                let retained = [state.outgoing(), state.waiting_trims()];
                if waits.into_iter().chain(retained).any(|count| count > 0) {
                    return Err(format!("{id} of {}: {waits:?} wait, {retained:?} retained", self.id));
                }
                if server.regions_differ() {
                    return Err(format!("{id} has joined other regions"));
                }
            }
        }
        Ok(())
    }
}

impl RegionsScenario {
    /// Two or three regions of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let count = rng.between(2, 3) as usize;
        let parts: Vec<(RegionId, u16, Vec<HostEntry>)> = (0..count)
            .map(|region| {
                let hosts = rng.between(1, 3) as usize;
                let entry = |number| {
                    let name = format!("r{region}h{number}");
                    HostEntry { address: format!("{name}:1"), name }
                };
                (RegionId(region as u32 + 1), rng.between(1, 3) as u16, (0..hosts).map(entry).collect())
            })
            .collect();
        // What it draws disturbs nothing else.
        let mut apart = rng.clone().fork();
        let users = Users::draw(rng);
        let far = rng.chance(0.7);
        let mut regions = Vec::new();
        for (id, partitions, entries) in &parts {
            let width = rng.between(1, entries.len() as u64) as usize;
            let (parameters, log) = (parameters(width, rng), draw_log(rng));
            let deployment = FuzzyDeployment::new(0, entries, *partitions, (width, 0), parameters, log);
            let most = Duration::from_millis(if far { 150 } else { 5 });
            regions.push(Region {
                id: *id,
                servers: entries.iter().map(|it| HostId::named(&it.name)).collect(),
                client: HostId::named(&format!("c{}", id.0)),
                history: History::of_region(*id),
                users: users.among_regions(),
                truth: Truth::new(deployment.placement(), 0, FuzzyOrder::Serializable),
                disks: Disks::default(),
                chains: Chains::new(&deployment),
                width,
                distance: rng.duration(Duration::from_millis(1), most),
                deployment,
            });
        }
        let all = parts.iter().map(|(region, partitions, hosts)| OtherRegion {
            region: *region,
            partitions: *partitions,
            hosts: hosts.iter().map(|it| HostId::named(&it.name)).collect(),
        });
        let changes = Changes::draw(all.collect(), &mut apart);
        let mut audit = Audit::default();
        audit.goes(changes.goes());
        Self { regions, audit, changes, cuts: BTreeMap::new(), next_cut: STEP }
    }

    fn at(&mut self, host: HostId) -> &mut Region {
        let found = self.regions.iter_mut().find(|it| it.client == host || it.servers.contains(&host));
        found.expect("every host is in a region")
    }

    fn ask(&mut self, user: u16, node: NodeId, planned: Planned, control: &mut Control<'_, Node>) {
        let id = control.request(node, planned.request.clone());
        let found = self.regions.iter_mut().find(|it| it.client == node.host());
        let region = found.expect("users are at their regions' clients");
        if let FuzzyRequest::Append(call) = &planned.request {
            let name = AppendId { client: call.client, number: call.number, content: call.content.digest() };
            self.audit.appends(name, &call.content, &region.truth);
        }
        region.users.began(user, id);
        let who = (user, planned.incarnation);
        region.history.asked(id, who, node, planned.request, planned.again, control.cluster.now());
    }

    /// Severs the links of a cut, or mends them.
    fn link(&self, cut: &Cut, severed: bool, control: &mut Control<'_, Node>) {
        for &(from, to) in cut {
            for &sender in &self.regions[from].servers {
                for &receiver in &self.regions[to].servers {
                    match severed {
                        true => control.sever(sender, receiver),
                        false => control.mend(sender, receiver),
                    }
                }
            }
        }
    }

    fn cut(&mut self, cut: Cut, lasts: Duration, control: &mut Control<'_, Node>) {
        self.link(&cut, true, control);
        self.next_cut += 1;
        control.alarm(lasts, self.next_cut);
        self.cuts.insert(self.next_cut, cut);
    }

    /// A region and each other one, both ways.
    fn alone(&self, region: usize) -> Cut {
        let others = (0..self.regions.len()).filter(|other| *other != region);
        others.flat_map(|other| [(region, other), (other, region)]).collect()
    }
}

impl Scenario for RegionsScenario {
    type Node = Node;

    const FAMILY: &'static str = "regions";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        let of_region = |region: &Region| {
            let spec = if self.changes.comes_later(region.id) { HostSpec::spare } else { HostSpec::server };
            let servers = region.servers.iter().copied().map(spec);
            servers.chain([HostSpec::client(region.client)]).collect::<Vec<_>>()
        };
        self.regions.iter().flat_map(of_region).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        let of_region = |region: &Region| [region.deployment.client_of(region.client); USERS_PER_REGION];
        self.regions.iter().flat_map(of_region).collect()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.with(Class::Strike)
    }

    fn tuning(&self) -> Tuning {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let of_hosts = |region: &Region| vec![region.distance; region.servers.len() + 1];
        let sites = (0..).zip(&self.regions);
        Tuning {
            safety: (s(8), s(25)),
            busy_at_least: Some(s(5)),
            operations: (20, 100),
            latency: (Duration::from_micros(50), ms(5)),
            distances: self.regions.iter().flat_map(of_hosts).collect(),
            sites: sites.flat_map(|(site, it)| vec![site; it.servers.len() + 1]).collect(),
            liveness: s(60),
            bounds: limits::BOUNDS,
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        let host = incarnation.host;
        let region = self.at(host);
        if region.client == host {
            return vec![region.deployment.build_client(host)];
        }
        self.changes.starts(host);
        self.blank_nodes(host)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        let region = self.regions.iter().find(|it| it.servers.contains(&host));
        let nodes =
            |region: &Region| self.changes.deployment_of(host, region.id, &region.deployment).build(host);
        region.map_or_else(Vec::new, nodes)
    }

    fn on_begin(&mut self, control: &mut Control<'_, Node>) {
        self.changes.wait(&mut Rng::seeded(control.cluster.now()), control);
    }

    fn on_heal(&mut self, _core: &[HostId], _control: &mut Control<'_, Node>) {
        self.changes.heal();
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
        let planned = self.at(node.host()).users.plan(operation.client, rng);
        self.ask(operation.client, node, planned, control);
    }

    fn on_response(
        &mut self,
        node: NodeId,
        id: RequestId,
        response: FuzzyResponse,
        control: &mut Control<'_, Node>,
    ) {
        let region = self.at(node.host());
        let Some((user, request)) = region.history.answered(id, &response, control.cluster.now()) else {
            return;
        };
        region.users.answered(user, &request, &response);
        let here = region.id;
        match (request, response) {
            (FuzzyRequest::CountLogs(call), FuzzyResponse::LogsCounted { counts }) => {
                for other in self.regions.iter_mut().filter(|it| it.id != here) {
                    other.users.carry(call.colour, counts.clone());
                }
            }
            (FuzzyRequest::FindLogs(_), FuzzyResponse::LogsFound { below, .. }) => {
                control.mark(match below {
                    Some(_) => "scenario.found_what_was_carried",
                    None => "scenario.waited_for_what_was_carried",
                });
            }
            _ => {}
        }
    }

    fn on_lost(&mut self, node: NodeId, id: RequestId) {
        let region = self.at(node.host());
        if let Some((user, request)) = region.history.user_of(id) {
            region.users.lost(user, id, request);
        }
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, Node>) {
        if token == STEP {
            self.step(control);
        } else if let Some(cut) = self.cuts.remove(&token) {
            self.link(&cut, false, control);
        }
    }

    fn claims(&self) -> Option<IsClaim<Node>> {
        Some(disks::is_claim)
    }

    fn reads_blobs_at_start(&self) -> bool {
        true
    }

    fn on_fact(&mut self, fact: Fact<FuzzyMessage>, cluster: &Cluster<'_, Node>) {
        let host = match &fact {
            Fact::Durable { node, .. } | Fact::Trimmed { node, .. } => node.host(),
            Fact::Reported { from, .. } => from.host(),
            Fact::DiskLost { host } => *host,
        };
        let mut disks = std::mem::take(&mut self.at(host).disks);
        let of_host = self.regions.iter().find(|it| it.servers.contains(&host) || it.client == host);
        let read_back = disks.on_fact(
            fact,
            |id| of_host.is_some_and(|region| region.is_server(id)),
            |id| empty_server(id, self.blank_nodes(id.host())),
            |id, blob| cluster.blob(id, blob),
        );
        let region = self.at(host);
        if let Some((id, state)) = read_back {
            region.truth.check_nodes(id, &state);
        }
        region.disks = disks;
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        let region = self.at(host);
        region.look(host, cluster);
        region.disks.check_segments(host, cluster);
        let (here, fresh) = (region.id, region.truth.take_fresh());
        let begins = region.truth.take_begins();
        self.audit.begin(here, begins);
        for (colour, node) in fresh {
            self.audit.placed(here, colour, &node);
        }
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let second = Duration::from_secs(1);
        let down = rng.duration(second / 20, 2 * second);
        let lasts = rng.duration(2 * second, 20 * second);
        let mut order: Vec<usize> = (0..self.regions.len()).collect();
        rng.shuffle(&mut order);
        let (one, other) = (order[0], order[1]);
        let region = &self.regions[one];
        if !region.servers.iter().any(|host| control.cluster.is_up(*host)) {
            return false;
        }
        let partitions: Vec<PartitionId> = region.chains.partitions().collect();
        let latest = region.chains.latest(partitions[rng.below(partitions.len() as u64) as usize]);
        let (Some(head), Some(tail)) = (latest.head(), latest.tail()) else { return false };
        let servers = region.servers.clone();
        match which {
            0 => {
                control.mark("scenario.cut_regions");
                self.cut(vec![(one, other), (other, one)], lasts, control);
            }
            1 => self.cut(self.alone(one), lasts, control),
            2 => {
                control.mark("scenario.cut_one_way");
                self.cut(vec![(one, other)], lasts, control);
            }
            3 => {
                control.mark("scenario.started_a_region_alone");
                self.cut(self.alone(one), lasts, control);
                control.crash_all(servers, Loss::All, rng);
            }
            4 => control.crash(head.host(), Loss::All, down, rng),
            5 => control.pause(head.host(), down),
            6 => control.crash(tail.host(), Loss::All, down, rng),
            _ => control.crash_all(servers, Loss::All, rng),
        }
        true
    }

    fn core(&mut self, _cluster: &Cluster<'_, Node>, _rng: &mut Rng) -> Core {
        let all = self.regions.iter().flat_map(|it| it.servers.iter().copied().chain([it.client]));
        Core::Hosts(all.collect())
    }

    fn converged(&self, _core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        let (goes, left) = (self.changes.goes(), self.changes.left());
        if left > 0 {
            return Err(format!("{left} steps of an operator are left"));
        }
        for region in self.regions.iter().filter(|it| Some(it.id) != goes) {
            region.converged(cluster)?;
            if let Some(lacks) = self.audit.lacks(region.id, goes) {
                return Err(lacks);
            }
        }
        Ok(())
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        let words = cluster.nodes().filter_map(|(id, node)| match node {
            Node::ChainServer(server) => Some(format!(
                "{id} of {} in {:?} serves {:?}, has {} of {}, sources {:?}",
                server.partition(),
                server.state().region(),
                server.serves(),
                server.state().applied(),
                server.length(),
                server.sources(),
            )),
            Node::Client(client) if client.outstanding() + client.recovering() > 0 => {
                Some(format!("{id} waits: {}", client.describe()))
            }
            Node::Client(_) | Node::Director(_) | Node::Log(_) => None,
        });
        words.collect::<Vec<_>>().join(" | ")
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        for region in &mut self.regions {
            for (id, node) in cluster.nodes().filter(|(id, _)| region.servers.contains(&id.host())) {
                let Node::ChainServer(server) = node else { continue };
                if region.chains.latest(server.partition()).nodes().any(|it| it == id) {
                    region.truth.replay(id, server, &mut region.disks);
                    region.truth.check_whole(id, server, &region.disks);
                }
            }
            self.audit.begin(region.id, region.truth.take_begins());
            for (colour, node) in region.truth.take_fresh() {
                self.audit.placed(region.id, colour, &node);
            }
        }
        self.audit.end();
        let goes = self.changes.goes();
        for region in &mut self.regions {
            let lacks = self.audit.lacks(region.id, goes).filter(|_| Some(region.id) != goes);
            invariant!(CONV, lacks.is_none(), "at the end, {}", lacks.unwrap_or_default());
            let begins = self.audit.begins_in(region.id);
            // Of a region that goes, and in it, only a part is there.
            region.truth.check_atomic(|source, colour| {
                begins.contains_key(&(source, colour))
                    || Some(source) == goes
                    || source != region.id && Some(region.id) == goes
            });
            region.history.lacks(begins, goes);
            region.history.check(&region.truth, false);
        }
    }

    fn history(&self) -> Option<String> {
        Some(self.regions.iter().map(|region| region.history.to_text()).collect())
    }
}
