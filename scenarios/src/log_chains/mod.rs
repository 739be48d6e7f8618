//! The shared log over FuzzyLog: every host has a gateway, the servers of all shards, a feeder, and servers of chains.

mod node;

use crate::fuzzylog::draw_segment_bytes;
use crate::limits::{self, OPERATION_BYTES_MAX, Sizes};
use crate::log::history::History;
use crate::log::numbered::Numbered;
use crate::log::{NAMES, SEALED, requests};
use ::fuzzylog::{ChainServer, FuzzyDeployment, FuzzyMember, FuzzyParameters};
use ::mason::shard::ShardServer;
use ::mason::{Deployment, Layout, MasonParameters, Number, ProxyGroup, Shard as _, Space, Topology};
use kernel::client::Response;
use kernel::{Decode as _, Embedded, Encode as _, HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use node::{ChainedNode, LogMember};
use shared_log::feeder::{Feeder, FeederNode, FeederPlan};
use shared_log::{Answer, Gateway, List, Logs, Named, Request, Routes, SpaceBounds, Trim};
use sim::{
    Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, Loss, OperationId, Scenario, StrikeKind,
    Tuning,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a host runs.
type Node = ChainedNode;

/// One cluster, drawn from a seed.
pub struct LogChainsScenario {
    hosts: Vec<HostId>,
    spaces: u16,
    sizes: Sizes,
    /// Nothing fails in this run.
    has_no_faults: bool,
    bounds: SpaceBounds,
    disk_bytes: u64,
    /// Where gateways and shards are.
    over: Deployment,
    chains: FuzzyDeployment,
    topology: Arc<Topology>,
    parameters: MasonParameters,
    wait_for_last: Duration,
    retained_bytes_max: u64,
    node_bytes: usize,
    history: History,
    numbered: Numbered,
    /// The digests of the shards, by space and number.
    digests: BTreeMap<(Space, Number), u64>,
    /// How far each server was when it was looked at last.
    checked: BTreeMap<NodeId, Number>,
}

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "feeder.appended_to_several_spaces",
    "feeder.found_nodes_trimmed",
    "feeder.hurried_the_shards",
    "feeder.packed_operations",
    "feeder.played_again_what_a_server_lacked",
    "feeder.synced_for_a_barrier",
    "feeder.trimmed_a_colour",
    "log.had_a_log_drop_its_oldest",
    "log.lost_track_of_calls",
    "log.refused_to_break_a_seal",
    "log.woke_a_reader",
    "shard.fetched_a_blob",
    "shard.stored_a_blob",
    "shard.took_a_snapshot_from_a_peer",
    "shard.wrote_a_snapshot",
];

const STRIKES: [StrikeKind; 4] = [
    StrikeKind { name: "kill a chain's head", class: Class::Strike },
    StrikeKind { name: "pause a chain's tail", class: Class::Strike },
    StrikeKind { name: "kill everybody", class: Class::Strike },
    StrikeKind { name: "kill a host for long", class: Class::Strike },
];

/// Behind the slots of gateways and shards.
const CHAINS_FROM: u32 = 0x0010_0000;

fn draw_chains(rng: &mut Rng) -> FuzzyParameters {
    let ms = Duration::from_millis;
    FuzzyParameters {
        segment_bytes: draw_segment_bytes(rng),
        tick: ms(rng.between(5, 30)),
        resend_after: ms(rng.between(30, 150)),
        stuck_after: ms(rng.between(50, 400)),
        back_off_max: ms(rng.between(20, 200)),
        suspect_after: ms(rng.between(80, 400)),
        seal_for: ms(rng.between(20, 200)),
        start_for: ms(rng.between(50, 300)),
        behind_max: rng.between(0, 20),
        append_bytes_max: OPERATION_BYTES_MAX + (1 << 10),
        page_bytes: 256 << rng.below(5),
        window_bytes: 4_000 << rng.below(5),
        snapshot_every_bytes: 1_000 << rng.below(6),
        snapshot_chunk_bytes: 512 << rng.below(3),
        row_memory_bytes: 200 << rng.below(6),
        pending_max: rng.between(4, 100) as usize,
        replicas_min: 2,
        ..FuzzyParameters::default()
    }
}

impl LogChainsScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let count = if rng.chance(0.8) { 3 } else { 5 };
        let entries: Vec<paxos::HostEntry> = (0..count).map(crate::moments::operator::entry).collect();
        let hosts: Vec<HostId> = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let (partitions, spaces) = (rng.between(1, 3) as u16, rng.between(1, 4) as u16);
        let log = paxos::Parameters {
            election_timeout: ms(rng.between(150, 400)),
            heartbeat_every: ms(rng.between(15, 40)),
            resend_after: ms(rng.between(50, 150)),
            snapshot_every_bytes: 2_000 << rng.below(6),
            retained_bytes_max: 4_000 << rng.below(6),
            ..paxos::Parameters::default()
        };
        let parameters = MasonParameters {
            ask_after: ms(rng.between(20, 80)),
            snapshot_every_bytes: 500 << rng.below(6),
            snapshot_chunk_bytes: 256 << rng.below(4),
            page_bytes: 128 << rng.below(6),
            ..MasonParameters::default()
        };
        let has_no_faults = limits::is_calm(rng);
        let (parameters, log) = limits::narrowed(parameters, log, rng);
        let (parameters, log) =
            if has_no_faults { limits::patient(parameters, log) } else { (parameters, log) };
        let (parameters, log) = limits::fit(parameters, log);
        let over = Deployment::new(entries.clone(), 1, spaces, 0, parameters.clone(), log.clone());
        let chains =
            FuzzyDeployment::new(CHAINS_FROM, &entries, partitions, (3, count), draw_chains(rng), log);
        let proxies = hosts.iter().map(|&host| chains.client_of(host)).collect();
        let topology = Topology {
            version: 0,
            groups: vec![ProxyGroup { proxies }],
            layout: Layout::at_bootstrap(1, spaces),
            sequencers: Vec::new(),
            shards: over.topology().shards.clone(),
        };
        Self {
            has_no_faults,
            sizes: Sizes::draw(rng),
            bounds: SpaceBounds {
                segment_bytes: 32 << rng.below(5),
                open_bytes: 200 << rng.below(4),
                page_bytes: 8 << rng.below(4),
                unstored_bytes: 64 << rng.below(8),
                cache_bytes: if rng.chance(0.5) { 0 } else { 64 << rng.below(5) },
            },
            disk_bytes: if rng.chance(0.4) { 2_000 << rng.below(5) } else { u64::MAX },
            // Where nobody waits for the last server, it has to take a snapshot.
            wait_for_last: if rng.chance(0.5) { Duration::ZERO } else { ms(500) },
            retained_bytes_max: 2_000 << rng.below(8),
            node_bytes: 64 << rng.below(8),
            hosts,
            spaces,
            over,
            chains,
            topology: Arc::new(topology),
            parameters,
            history: History::default(),
            numbered: Numbered::default(),
            digests: BTreeMap::new(),
            checked: BTreeMap::new(),
        }
    }

    fn draw_request(&mut self, operation: OperationId, rng: &mut Rng) -> Request {
        let one = *rng.pick(&NAMES).unwrap_or(&SEALED);
        let name = || one.to_owned();
        match rng.below(100) {
            _ if operation.nth < NAMES.len() as u32 => requests::create(NAMES[operation.nth as usize]),
            0..10 => {
                let entries = requests::entries(self.sizes, operation, 1, rng);
                self.numbered.produce(operation.client, entries, rng)
            }
            10..15 => self.numbered.of_a_group(rng),
            15..45 => requests::append(self.sizes, &[one], operation, None, rng),
            45..50 => requests::append_at_tail((self.sizes, &self.history), one, operation, rng),
            50..70 => requests::append_to_several(self.sizes, one, operation, rng),
            70..92 => requests::read(&self.history, one, rng),
            92..95 => Request::Stat(Named { name: name() }),
            95..97 => Request::List(List { after: String::new(), limit: 10 }),
            97..99 => {
                let (name, before) = ("trimmed".to_owned(), self.history.tail("trimmed") / 2);
                Request::Trim(Trim { name, before })
            }
            _ if operation.nth > 30 => Request::Seal(Named { name: SEALED.to_owned() }),
            _ => Request::Describe(Named { name: name() }),
        }
    }

    /// What was executed up to a number is the same at all servers of a shard.
    fn check_shards(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, server) in shards(cluster.called_nodes_of(host)) {
            let next = server.next();
            if self.checked.get(&id) == Some(&next) {
                continue;
            }
            let went_back = self.checked.insert(id, next).is_some_and(|before| before > next);
            invariant!(CONTIG, !went_back, "{id} went back to {next}");
            let digest = server.service().digest();
            let known = *self.digests.entry((server.space(), next)).or_insert(digest);
            invariant!(PREFIX, known == digest, "{id} differs from another server below number {next}");
        }
    }

    /// What a colour has lost, enough shard servers have in durable snapshots. Who is down has at least what it had.
    fn check_trims(&self, host: HostId, cluster: &Cluster<'_, Node>) {
        if self.hosts.iter().any(|&host| !cluster.is_up(host)) {
            return;
        }
        for (id, server) in chain_servers(cluster.called_nodes_of(host)) {
            for (space, colour) in (0..).map(Space).zip(self.colours()) {
                let first = server.state().first(colour);
                if first.0 == 0 {
                    continue;
                }
                let has = |server: &&ShardServer<Logs>| {
                    server.space() == space && server.durable_below() > Number(first.0)
                };
                let count = shards(cluster.nodes()).filter(|(_, server)| has(server)).count();
                invariant!(
                    DUR,
                    count > self.hosts.len() / 2,
                    "{id} has lost what is below {first} of space {space}, and {count} servers have it"
                );
            }
        }
    }

    fn colours(&self) -> Vec<::fuzzylog::Colour> {
        shared_log::feeder::colours_of(self.chains.placement(), self.spaces)
    }
}

/// The servers of shards among nodes.
fn shards<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a Node)>,
) -> impl Iterator<Item = (NodeId, &'a ShardServer<Logs>)> {
    nodes.filter_map(|(id, node)| match node {
        Node::Log(embedded) => match embedded.node() {
            LogMember::Shard(server) => Some((id, &**server)),
            _ => None,
        },
        Node::Feeder(_) | Node::Chains(_) => None,
    })
}

fn chain_servers<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a Node)>,
) -> impl Iterator<Item = (NodeId, &'a ChainServer)> {
    nodes.filter_map(|(id, node)| match node {
        Node::Chains(embedded) => match embedded.node() {
            FuzzyMember::ChainServer(server) => Some((id, &**server)),
            FuzzyMember::Client(_) | FuzzyMember::Director(_) | FuzzyMember::Log(_) => None,
        },
        Node::Log(_) | Node::Feeder(_) => None,
    })
}

fn feeders<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a Node)>,
) -> impl Iterator<Item = (NodeId, &'a Feeder)> {
    nodes.filter_map(|(id, node)| match node {
        Node::Feeder(embedded) => {
            let FeederNode::Feeder(feeder) = embedded.node();
            Some((id, &**feeder))
        }
        Node::Log(_) | Node::Chains(_) => None,
    })
}

impl Scenario for LogChainsScenario {
    type Node = Node;

    const FAMILY: &'static str = "log-chains";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        self.hosts.iter().map(|&host| HostSpec::server(host)).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        let gateways = self.hosts.iter().map(|&host| self.over.gateway_of(host));
        gateways.flat_map(|gateway| [gateway; 3]).collect()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.with(Class::Strike)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning {
            safety: (s(8), s(20)),
            busy_at_least: Some(s(5)),
            operations: (30, 150),
            liveness: s(120),
            bounds: limits::BOUNDS,
            calm: self.has_no_faults.then_some(limits::CALM_MOST),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        self.history.forget(incarnation.host);
        self.checked.retain(|node, _| node.host() != incarnation.host);
        self.blank_nodes(incarnation.host)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        let (servers, gateway) = (self.over.servers_of(host), self.over.gateway_of(host));
        let log = |member: LogMember| Node::Log(Box::new(Embedded::new(member)));
        let mut nodes = Vec::new();
        for (space, server) in (0..).map(Space).zip(&servers) {
            let state = Logs::new(space, self.spaces, self.bounds).of_packs();
            let role = ShardServer::new(space, self.topology.clone(), self.parameters.clone(), state);
            nodes.push((server.host_slot(), log(LogMember::Shard(Box::new(role)))));
        }
        let routes = Routes {
            proxies: vec![self.chains.client_of(host)],
            shards: servers,
            capacity: 64 << 20,
            disk_bytes: self.disk_bytes,
        };
        nodes.push((gateway.host_slot(), log(LogMember::Gateway(Box::new(Gateway::new(routes))))));
        for (slot, member) in self.chains.build(host) {
            let node = match member {
                FuzzyMember::Client(client) => {
                    let feeder = Feeder::new(FeederPlan {
                        client: *client,
                        placement: self.chains.placement(),
                        topology: self.topology.clone(),
                        gateway,
                        wait_for_last: self.wait_for_last,
                        retained_bytes_max: self.retained_bytes_max,
                        node_bytes: self.node_bytes,
                    });
                    Node::Feeder(Box::new(Embedded::new(FeederNode::Feeder(Box::new(feeder)))))
                }
                member => Node::Chains(Box::new(Embedded::new(member))),
            };
            nodes.push((slot, node));
        }
        nodes
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let request = self.draw_request(operation, rng);
        let id = control.request(node, request.encoded().into());
        let now = control.cluster.now();
        self.numbered.asked(id, operation.client, &request, now);
        self.history.asked(id, node, request, now);
    }

    fn on_response(
        &mut self,
        _node: NodeId,
        id: RequestId,
        answer: Response,
        control: &mut Control<'_, Node>,
    ) {
        let now = control.cluster.now();
        let answer = Answer::decoded(&answer.0).expect("gateways answer in their own words");
        self.numbered.answered(id, &answer, now, control);
        self.history.answered(id, answer, now);
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.check_shards(host, cluster);
        self.check_trims(host, cluster);
        self.history.look(host, shards(cluster.nodes_of(host)), cluster);
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let second = Duration::from_secs(1);
        let down = rng.duration(second / 20, 2 * second);
        let projections = self.chains.initial();
        let Some(projection) = rng.pick(projections) else { return false };
        let (Some(head), Some(tail)) = (projection.head(), projection.tail()) else { return false };
        match which {
            0 => control.crash(head.host(), Loss::All, down, rng),
            1 => control.pause(tail.host(), down),
            2 => control.crash_all(self.hosts.iter().copied(), Loss::All, rng),
            _ => control.crash(tail.host(), Loss::All, 4 * down, rng),
        }
        true
    }

    fn core(&mut self, cluster: &Cluster<'_, Node>, _rng: &mut Rng) -> Core {
        Core::Hosts(self.hosts.iter().copied().filter(|&host| !cluster.is_lost(host)).collect())
    }

    /// All servers of a space have executed all that any feeder knows to be there.
    fn converged(&self, _core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        for (id, server) in shards(cluster.nodes()) {
            let extents = feeders(cluster.nodes()).flat_map(|(_, feeder)| feeder.extents());
            let known = extents.filter(|(space, ..)| *space == server.space()).map(|(_, known, _)| known);
            let known = Number(known.max().unwrap_or(0) + 1);
            if server.next() != known {
                return Err(format!("{id} is at {}, and numbers below {known} are there", server.next()));
            }
        }
        match feeders(cluster.nodes()).find(|(_, feeder)| feeder.unfinished() > 0) {
            Some((id, feeder)) => Err(format!("{id} has {} unfinished operations", feeder.unfinished())),
            None => Ok(()),
        }
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        let shards = shards(cluster.nodes()).map(|(id, server)| format!("{id}: {}", server.describe()));
        let feeders = feeders(cluster.nodes()).map(|(id, feeder)| {
            let (extents, client) = (feeder.extents().collect::<Vec<_>>(), feeder.client().describe());
            format!("{id}: {extents:?}, {} unfinished, asks {client}", feeder.unfinished())
        });
        shards.chain(feeders).collect::<Vec<_>>().join("\n")
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        self.history.check(shards(cluster.nodes()));
        self.numbered.check();
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}
