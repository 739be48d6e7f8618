//! CORFU': a sequencer, chains of storage servers, auxiliaries, and clients on hosts of their own.

mod history;

use ::corfu::{
    Auxiliary, Client, Entry, Epoch, LogPosition, Member, Parameters, Projection, Request, Response,
    Sequencer, StorageServer,
};
use history::History;
use kernel::{Bytes, HostId, NodeId, Place, RequestId, Rng, invariant};
use sim::{Classes, Cluster, Control, Core, HostSpec, Life, Loss, OperationId, Scenario, StrikeKind, Tuning};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a host runs.
type Node = Member;

/// One cluster, drawn from a seed.
pub struct CorfuScenario {
    servers: Vec<HostId>,
    clients: Vec<HostId>,
    auxiliaries: Vec<NodeId>,
    sequencers: Vec<NodeId>,
    initial: Projection,
    parameters: Parameters,
    /// What each storage server holds; some clusters drop their oldest entries all the time.
    retain_bytes: u64,
    history: History,
    /// Every projection that any auxiliary has installed.
    projections: BTreeMap<Epoch, Projection>,
}

const AUXILIARY: Place = Place(1);
const SEQUENCER: Place = Place(2);
const CLIENT: Place = Place(3);
/// The server of chain `c` on a host has the place `STORAGE + c`.
const STORAGE: u32 = 0x10;
const AUXILIARIES: usize = 3;
const CLIENTS: usize = 3;

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "auxiliary.adopted_a_projection",
    "auxiliary.began_a_change",
    "auxiliary.left_a_server_out",
    "auxiliary.lost_to_another",
    "auxiliary.replaced_the_sequencer",
    "client.filled_a_hole",
    "client.found_its_entry_after_a_change",
    "client.helped_a_writer",
    "client.left_a_hole",
    "client.lost_its_position",
    "client.was_told_what_is_gone",
    "storage.dropped_its_oldest",
];

const STRIKES: [StrikeKind; 5] = [
    StrikeKind { name: "kill the sequencer", class: sim::Class::Strike },
    StrikeKind { name: "pause the sequencer", class: sim::Class::Strike },
    StrikeKind { name: "kill a chain's head", class: sim::Class::Strike },
    StrikeKind { name: "pause a chain's tail", class: sim::Class::Strike },
    StrikeKind { name: "kill everybody", class: sim::Class::Strike },
];

impl CorfuScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let count = rng.between(3, 5) as usize;
        let servers: Vec<HostId> = (0..count).map(|number| HostId::named(&format!("h{number}"))).collect();
        let clients = (0..CLIENTS).map(|number| HostId::named(&format!("c{number}"))).collect();
        let (chains, replicas) = (rng.between(1, 3) as usize, rng.between(2, 3) as usize);
        let server = |chain: usize, replica: usize| {
            NodeId::new(servers[(chain + replica) % count], Place(STORAGE + chain as u32))
        };
        let chains = (0..chains).map(|chain| (0..replicas).map(|nth| server(chain, nth)).collect()).collect();
        let sequencers: Vec<NodeId> =
            servers.iter().take(rng.between(2, 3) as usize).map(|&it| NodeId::new(it, SEQUENCER)).collect();
        let parameters = Parameters {
            tick: ms(rng.between(10, 40)),
            resend_after: ms(rng.between(30, 120)),
            hole_after: ms(rng.between(10, 200)),
            suspect_after: ms(rng.between(80, 400)),
            seal_for: ms(rng.between(20, 200)),
            ..Parameters::default()
        };
        Self {
            auxiliaries: servers.iter().take(AUXILIARIES).map(|&it| NodeId::new(it, AUXILIARY)).collect(),
            initial: Projection::initial(sequencers[0], chains),
            sequencers,
            servers,
            clients,
            parameters,
            retain_bytes: if rng.chance(0.3) { 1_000 } else { u64::MAX },
            history: History::default(),
            projections: BTreeMap::new(),
        }
    }

    fn latest(&self) -> &Projection {
        self.projections.last_key_value().map_or(&self.initial, |(_, projection)| projection)
    }

    fn look(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.nodes_of(host) {
            match node {
                Node::Auxiliary(auxiliary) => {
                    let installed = auxiliary.installed();
                    let known = self.projections.entry(installed.epoch).or_insert_with(|| installed.clone());
                    invariant!(AGREE, known == installed, "{id} has {installed:?}, another {known:?}");
                }
                Node::Sequencer(sequencer) => {
                    if let Some((_, next)) = sequencer.serves() {
                        self.history.given_away(next);
                    }
                }
                Node::Storage(_) | Node::Client(_) => {}
            }
        }
    }

    /// What is known to be in the log is on every server of its chain that is there.
    fn check_durable(&self, position: LogPosition, cluster: &Cluster<'_, Node>) {
        let Some(known) = self.history.known(position) else { return };
        let latest = self.latest();
        for &id in latest.chain(position) {
            let Some(Node::Storage(server)) = cluster.node(id) else { continue };
            if position < server.first() {
                continue;
            }
            let entry = server.entry(position);
            let same = match (entry, known) {
                (Some(Entry::Data(data)), Some(body)) => data.body == *body,
                (Some(Entry::Junk), None) => true,
                (Some(_) | None, _) => false,
            };
            invariant!(DUR, same, "{id} has {entry:?} at {position} in {:?}, not {known:?}", latest.epoch);
        }
    }
}

impl Scenario for CorfuScenario {
    type Node = Node;

    const FAMILY: &'static str = "corfu";

    fn hosts(&self) -> Vec<HostSpec> {
        let servers = self.servers.iter().map(|&host| HostSpec::server(host));
        servers.chain(self.clients.iter().map(|&host| HostSpec::client(host))).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        self.clients.iter().flat_map(|&host| [NodeId::new(host, CLIENT); 3]).collect()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.with(sim::Class::Strike)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning { safety: (s(10), s(30)), operations: (30, 200), liveness: s(60), ..Tuning::default() }
    }

    fn strikes(&self) -> Vec<StrikeKind> {
        STRIKES.to_vec()
    }

    fn marks(&self) -> &'static [&'static str] {
        MARKS
    }

    fn build(&mut self, life: Life) -> Vec<(Place, Node)> {
        let (initial, parameters) = (self.initial.clone(), self.parameters.clone());
        if self.clients.contains(&life.host) {
            let client = Client::new(self.auxiliaries.clone(), initial, parameters);
            return vec![(CLIENT, Node::Client(client))];
        }
        let mut nodes = Vec::new();
        if self.auxiliaries.iter().any(|auxiliary| auxiliary.host() == life.host) {
            let (peers, sequencers) = (self.auxiliaries.clone(), self.sequencers.clone());
            let auxiliary = Auxiliary::new(peers, sequencers, initial, parameters);
            nodes.push((AUXILIARY, Node::Auxiliary(auxiliary)));
        }
        if self.sequencers.iter().any(|sequencer| sequencer.host() == life.host) {
            nodes.push((SEQUENCER, Node::Sequencer(Sequencer::new())));
        }
        let here = self.initial.servers().filter(|server| server.host() == life.host);
        nodes.extend(
            here.map(|server| (server.place(), Node::Storage(StorageServer::new(self.retain_bytes)))),
        );
        nodes
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let body = |part: u64| Bytes::from(format!("{}.{}.{part}", operation.client, operation.nth));
        let request = if rng.chance(0.4) {
            Request::Append(body(0))
        } else if rng.chance(0.2) {
            Request::AppendAll((0..rng.between(1, 4)).map(body).collect())
        } else if rng.chance(0.1) {
            Request::Stat
        } else if rng.chance(0.05) {
            Request::Trim(LogPosition(rng.between(0, self.history.end().0)))
        } else {
            // Often near the end, where there are holes.
            let end = self.history.end().0 + 4;
            let from = if rng.chance(0.7) { end.saturating_sub(12) } else { 0 };
            Request::Read(LogPosition(rng.between(from, end)))
        };
        let id = control.request(node, request.clone());
        self.history.asked(id, node, request, control.cluster.now());
    }

    fn on_response(
        &mut self,
        _node: NodeId,
        id: RequestId,
        response: Response,
        control: &mut Control<'_, Node>,
    ) {
        let may_go = self.retain_bytes < u64::MAX;
        for position in self.history.answered(id, &response, may_go, control.cluster.now()) {
            self.check_durable(position, &control.cluster);
        }
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.look(host, cluster);
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let second = Duration::from_secs(1);
        let down = rng.duration(second / 20, 2 * second);
        let latest = self.latest();
        let sequencer = latest.sequencer.host();
        let chain = rng.pick(&latest.chains).cloned().unwrap_or_default();
        match (which, &chain[..]) {
            (0, _) => control.crash(sequencer, Loss::All, down, rng),
            (1, _) => control.pause(sequencer, down),
            (2, [head, ..]) => control.crash(head.host(), Loss::All, down, rng),
            (3, [.., tail]) => control.pause(tail.host(), down),
            (4, _) => {
                for &host in &self.servers {
                    if control.cluster.is_up(host) {
                        control.crash(host, Loss::All, rng.duration(second / 10, second), rng);
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// Servers that were left out do not come back: which of the others are needed is known to whoever changes the projection.
    fn core(&mut self, _cluster: &Cluster<'_, Node>, _rng: &mut Rng) -> Core {
        Core::Hosts(self.servers.iter().chain(&self.clients).copied().collect())
    }

    fn converged(&self, _core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        let latest = self.latest().epoch;
        for (id, node) in cluster.nodes() {
            if let Node::Auxiliary(auxiliary) = node
                && auxiliary.installed().epoch != latest
            {
                return Err(format!("{id} knows {:?} only, not {latest:?}", auxiliary.installed().epoch));
            }
        }
        Ok(())
    }

    fn standing(&self, cluster: &Cluster<'_, Node>) -> String {
        let words = cluster.nodes().filter_map(|(id, node)| match node {
            Node::Auxiliary(auxiliary) => {
                let changing = if auxiliary.is_changing() { ", changing" } else { "" };
                Some(format!("{id} has {:?}{changing}", auxiliary.installed()))
            }
            Node::Sequencer(sequencer) => Some(format!("{id} serves {:?}", sequencer.serves())),
            Node::Storage(server) => Some(format!("{id} is in {:?}", server.epoch())),
            Node::Client(client) if client.outstanding() > 0 => {
                Some(format!("{id} in {:?} waits for {}", client.epoch(), client.outstanding()))
            }
            Node::Client(_) => None,
        });
        words.collect::<Vec<_>>().join(" | ")
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        for position in self.history.positions() {
            self.check_durable(position, cluster);
        }
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}
