//! CORFU': a sequencer, chains of storage servers, auxiliaries, and clients on hosts of their own.

mod history;
mod late_votes;

use crate::audit::corfu::{self as audit, CorfuAudit, Journal};
use crate::limits::{self, Sizes};
use ::corfu::{
    Auxiliary, Client, CorfuRequest, CorfuResponse, Entry, Epoch, LogPosition, Member, Parameters,
    Projection, Sequencer, StorageServer,
};
use history::History;
use kernel::{Bounds, Bytes, HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use late_votes::LateVotes;
use sim::{
    Aim, Blow, Class, Classes, Cluster, Control, Core, Fact, HostIndex, HostMask, HostSpec, Incarnation,
    IsClaim, Loss, OperationId, Replacement, Scenario, StrikeKind, Tuning,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a host runs.
type Node = Member;

/// Smaller than the real ones in proportion; a page of a copy, which has one size, fits in a frame with an entry.
const BOUNDS: Bounds = Bounds::small(48 << 10);
/// The largest entry.
const ENTRY_BYTES_MAX: usize = 12 << 10;

/// One cluster, drawn from a seed.
pub struct CorfuScenario {
    servers: Vec<HostId>,
    clients: Vec<HostId>,
    /// Nothing fails in this run.
    has_no_faults: bool,
    auxiliaries: Vec<NodeId>,
    sequencers: Vec<NodeId>,
    initial: Projection,
    /// Servers of each chain that wait until one is lost.
    spares: Vec<Vec<NodeId>>,
    /// Whether a host that loses its disk comes back with an empty one.
    comes_back: bool,
    /// How many learners are still to be struck between the last that they copy and its fsync.
    plots: u32,
    late_votes: LateVotes,
    /// The host whose server was let into a chain last.
    let_in: Option<HostId>,
    parameters: Parameters,
    sizes: Sizes,
    /// What each storage server holds; some clusters drop their oldest entries all the time.
    retain_bytes: u64,
    /// Positions that an answer to a learner reports: few, so that copies take many.
    page: usize,
    history: History,
    audit: CorfuAudit,
    /// Every projection that any auxiliary has installed.
    projections: BTreeMap<Epoch, Projection>,
}

const AUXILIARY: HostSlot = HostSlot(1);
const SEQUENCER: HostSlot = HostSlot(2);
const CLIENT: HostSlot = HostSlot(3);
/// The server of chain `c` on a host has the slot `STORAGE + c`.
const STORAGE: u32 = 0x10;
const AUXILIARIES: usize = 3;
const CLIENTS: usize = 3;

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "auxiliary.adopted_a_projection",
    "auxiliary.began_a_change",
    "auxiliary.gave_votes_back",
    "auxiliary.left_a_server_out",
    "auxiliary.let_a_server_in",
    "auxiliary.lost_to_another",
    "auxiliary.made_a_flapping_server_wait_longer",
    "auxiliary.replaced_the_sequencer",
    "auxiliary.suspected_somebody_who_was_there",
    "auxiliary.went_on_without_a_learner",
    "client.filled_a_hole",
    "client.found_its_entry_after_a_change",
    "client.helped_a_writer",
    "client.left_a_hole",
    "client.lost_its_position",
    "client.was_reported_what_is_gone",
    "scenario.a_spare_came_in",
    "scenario.had_a_vote_for_an_earlier_ballot_come_late",
    "scenario.struck_a_learner_that_had_the_rest",
    "storage.began_to_copy",
    "storage.copied_the_rest_of_a_sealed_server",
    "storage.dropped_its_oldest",
    "storage.dropped_what_its_chain_has_not",
    "storage.was_let_in",
];

const STRIKES: [StrikeKind; 8] = [
    StrikeKind { name: "kill the sequencer", class: Class::Strike },
    StrikeKind { name: "pause the sequencer", class: Class::Strike },
    StrikeKind { name: "kill a chain's head", class: Class::Strike },
    StrikeKind { name: "pause a chain's tail", class: Class::Strike },
    StrikeKind { name: "kill everybody", class: Class::Strike },
    StrikeKind { name: "kill who was let in last", class: Class::Strike },
    StrikeKind { name: "kill a learner", class: Class::Strike },
    StrikeKind { name: "kill the tail of a chain that is copied", class: Class::Strike },
];

/// How long an operation takes at most where nothing fails.
const CALM_MOST: Duration = Duration::from_millis(400);

impl CorfuScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let count = rng.between(3, 5) as usize;
        let servers: Vec<HostId> = (0..count).map(|number| HostId::named(&format!("h{number}"))).collect();
        let clients = (0..CLIENTS).map(|number| HostId::named(&format!("c{number}"))).collect();
        let (chains, replicas) = (rng.between(1, 3) as usize, rng.between(2, 3) as usize);
        let server = |chain: usize, replica: usize| {
            NodeId::new(servers[(chain + replica) % count], HostSlot(STORAGE + chain as u32))
        };
        // One more for each chain, in some clusters that have another host for it.
        let spare = replicas < count && rng.chance(0.5);
        let spares = (0..chains).map(|chain| if spare { vec![server(chain, replicas)] } else { Vec::new() });
        let spares = spares.collect();
        let comes_back = !spare || rng.chance(0.5);
        let chains = (0..chains).map(|chain| (0..replicas).map(|nth| server(chain, nth)).collect()).collect();
        let sequencers: Vec<NodeId> =
            servers.iter().take(rng.between(2, 3) as usize).map(|&it| NodeId::new(it, SEQUENCER)).collect();
        let parameters = Parameters {
            tick: ms(rng.between(10, 40)),
            resend_after: ms(rng.between(30, 120)),
            hole_after: ms(rng.between(10, 200)),
            suspect_after: ms(rng.between(80, 400)),
            suspect_max: ms(3_000),
            seal_for: ms(rng.between(20, 200)),
            finish_for: ms(rng.between(50, 400)),
            back_off: ms(rng.between(50, 500)),
            back_off_max: ms(3_000),
            entry_bytes_max: ENTRY_BYTES_MAX,
            ..Parameters::default()
        };
        let has_no_faults = limits::is_calm(rng);
        let parameters = match has_no_faults {
            true => Parameters { resend_after: limits::CALM_PATIENCE, ..parameters },
            false => parameters,
        };
        let sizes = Sizes::draw(rng);
        Self {
            has_no_faults,
            sizes,
            auxiliaries: servers.iter().take(AUXILIARIES).map(|&it| NodeId::new(it, AUXILIARY)).collect(),
            initial: Projection::initial(sequencers[0], chains),
            sequencers,
            servers,
            clients,
            spares,
            comes_back,
            plots: if rng.chance(0.4) && !has_no_faults { 6 } else { 0 },
            late_votes: LateVotes::draw(rng),
            let_in: None,
            parameters,
            retain_bytes: if rng.chance(0.3) { 1_000 } else { u64::MAX },
            page: rng.between(2, 30) as usize,
            history: History::default(),
            audit: CorfuAudit::default(),
            projections: BTreeMap::new(),
        }
    }

    fn latest(&self) -> &Projection {
        self.projections.last_key_value().map_or(&self.initial, |(_, projection)| projection)
    }

    /// Kills a server's host when it has written to its journal, and before that is on the disk.
    fn crash_unsynced(&self, host: HostId, down: Duration, draw: u64, control: &mut Control<'_, Node>) {
        if let Some(index) = self.servers.iter().position(|&it| it == host) {
            let hosts = HostMask::of(index as HostIndex);
            let (aim, loss, output_lost) = (Aim::Unsynced, Loss::All, false);
            control.inflict(Blow::Crash { hosts, aim, loss, output_lost, draw }, down);
        }
    }

    /// All that may keep entries.
    fn candidates(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.initial.servers().chain(self.spares.iter().flatten().copied())
    }

    fn look(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.called_nodes_of(host) {
            match node {
                Node::Auxiliary(auxiliary) => {
                    self.audit.check_counted(id, auxiliary);
                    self.audit.check_promises(id, auxiliary, self.auxiliaries.len());
                    let installed = auxiliary.installed();
                    if installed.epoch > self.latest().epoch {
                        let before: Vec<NodeId> = self.latest().servers().collect();
                        let learner = installed.servers().find(|server| !before.contains(server));
                        self.let_in = learner.map(NodeId::host).or(self.let_in);
                    }
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
            // One that lost its disk and that nobody has missed yet serves nobody.
            let is_meant = latest.journal(id) == server.journal() || serves(server, latest);
            if position < server.first() || !is_meant {
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

/// True if the server serves in the projection, by right or not.
fn serves(server: &StorageServer, projection: &Projection) -> bool {
    server.epoch() == projection.epoch && server.serves()
}

impl CorfuScenario {
    /// No chain needs a host's disk, and nobody else has lost one whose loss is not made good yet.
    fn is_whole_without(&self, host: HostId, cluster: &Cluster<'_, Node>) -> Result<(), String> {
        let latest = self.latest();
        for &id in &self.auxiliaries {
            match cluster.node(id) {
                Some(Node::Auxiliary(it)) if it.installed() != latest || it.is_changing() => {
                    return Err(format!("{id} is changing, or behind"));
                }
                Some(Node::Auxiliary(it)) if it.journal() == latest.journal(id) => {}
                _ => return Err(format!("{id} has no votes")),
            }
        }
        for (chain, servers) in latest.chains.iter().enumerate() {
            for &id in servers {
                match cluster.node(id) {
                    Some(Node::Storage(it)) if it.journal() == latest.journal(id) && serves(it, latest) => {}
                    _ => return Err(format!("{id} does not serve")),
                }
            }
            if servers.iter().all(|server| server.host() == host) {
                return Err(format!("nobody else has chain {chain}"));
            }
        }
        Ok(())
    }

    /// Each server of a chain has what the ones behind it have.
    fn check_nested(&self, cluster: &Cluster<'_, Node>) {
        let latest = self.latest();
        let serving = |id: &NodeId| match cluster.node(*id) {
            Some(Node::Storage(server)) if serves(server, latest) => Some((*id, server)),
            _ => None,
        };
        for chain in &latest.chains {
            let servers: Vec<_> = chain.iter().filter_map(serving).collect();
            for pair in servers.windows(2) {
                let [(before, upper), (id, lower)] = pair else { continue };
                for (position, entry) in lower.entries().filter(|(position, _)| *position >= upper.first()) {
                    let above = upper.entry(position);
                    invariant!(NEST, above == Some(entry), "{id} has {position}, {before} has {above:?}");
                }
            }
        }
    }
}

impl Scenario for CorfuScenario {
    type Node = Node;

    const FAMILY: &'static str = "corfu";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        let servers = self.servers.iter().map(|&host| HostSpec::server(host));
        servers.chain(self.clients.iter().map(|&host| HostSpec::client(host))).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        self.clients.iter().flat_map(|&host| [NodeId::new(host, CLIENT); 3]).collect()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.with(Class::Strike).with(Class::DiskLost)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning {
            safety: (s(10), s(30)),
            busy_at_least: Some(s(5)),
            operations: (30, 200),
            liveness: s(60),
            bounds: BOUNDS,
            calm: self.has_no_faults.then_some(CALM_MOST),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        self.audit.forget(incarnation.host);
        self.blank_nodes(incarnation.host)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        let (initial, parameters) = (self.initial.clone(), self.parameters.clone());
        if self.clients.contains(&host) {
            let client = Client::new(self.auxiliaries.clone(), initial, parameters);
            return vec![(CLIENT, Node::Client(client))];
        }
        let mut nodes = Vec::new();
        if self.auxiliaries.iter().any(|auxiliary| auxiliary.host() == host) {
            let (peers, sequencers) = (self.auxiliaries.clone(), self.sequencers.clone());
            let auxiliary = Auxiliary::new(peers, sequencers, initial, parameters).with_spares(&self.spares);
            nodes.push((AUXILIARY, Node::Auxiliary(auxiliary)));
        }
        if self.sequencers.iter().any(|sequencer| sequencer.host() == host) {
            nodes.push((SEQUENCER, Node::Sequencer(Sequencer::new())));
        }
        let here = self.candidates().filter(|server| server.host() == host);
        nodes.extend(here.map(|server| {
            (server.host_slot(), Node::Storage(StorageServer::new(self.retain_bytes).with_page(self.page)))
        }));
        nodes
    }

    fn on_dry_restart(&mut self, node: NodeId, running: &Node, restarted: &Node) {
        crate::audit::corfu::on_dry_restart(node, running, restarted);
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let sizes = self.sizes;
        let body = |part: u64, rng: &mut Rng| {
            let text = format!("{}.{}.{part}", operation.client, operation.nth);
            Bytes::from(sizes.stretch(text, ENTRY_BYTES_MAX, rng))
        };
        let request = if rng.chance(0.4) {
            CorfuRequest::Append(body(0, rng))
        } else if rng.chance(0.2) {
            CorfuRequest::AppendAll((0..rng.between(1, 4)).map(|part| body(part, rng)).collect())
        } else if rng.chance(0.1) {
            CorfuRequest::Stat
        } else if rng.chance(0.05) {
            CorfuRequest::Trim(LogPosition(rng.between(0, self.history.end().0)))
        } else {
            // Often near the end, where there are holes.
            let end = self.history.end().0 + 4;
            let from = if rng.chance(0.7) { end.saturating_sub(12) } else { 0 };
            CorfuRequest::Read(LogPosition(rng.between(from, end)))
        };
        let id = control.request(node, request.clone());
        self.history.asked(id, node, request, control.cluster.now());
    }

    fn on_response(
        &mut self,
        _node: NodeId,
        id: RequestId,
        response: CorfuResponse,
        control: &mut Control<'_, Node>,
    ) {
        let may_go = self.retain_bytes < u64::MAX;
        for position in self.history.answered(id, &response, may_go, control.cluster.now()) {
            self.check_durable(position, &control.cluster);
        }
        let latest = self.latest();
        if self.spares.iter().flatten().any(|&spare| latest.servers().any(|server| server == spare)) {
            control.mark("scenario.a_spare_came_in");
        }
    }

    fn claims(&self) -> Option<IsClaim<Node>> {
        Some(audit::is_claim)
    }

    fn on_fact(&mut self, fact: Fact<::corfu::CorfuMessage>, _cluster: &Cluster<'_, Node>) {
        let auxiliaries = self.auxiliaries.len();
        self.audit.on_fact(fact, auxiliaries, |node| match node.host_slot() {
            AUXILIARY => Journal::Auxiliary,
            SEQUENCER => Journal::Sequencer,
            CLIENT => Journal::Client,
            HostSlot(_) => Journal::Storage,
        });
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.look(host, cluster);
    }

    fn watches(&self) -> bool {
        self.plots > 0 || self.late_votes.any()
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        self.look_at_votes(control);
        // Its source is sealed, and has more.
        let lacks = |server: &StorageServer| {
            let source = server.copies_from().and_then(|source| control.cluster.node(source));
            matches!(source, Some(Node::Storage(it)) if !it.serves() && it.len() > server.len())
        };
        let mut nodes = control.cluster.nodes();
        let finishing = nodes.find_map(|(id, node)| match node {
            Node::Storage(server) if server.is_finishing() && lacks(server) => Some(id.host()),
            _ => None,
        });
        if let Some(host) = finishing.filter(|_| self.plots > 0) {
            self.plots -= 1;
            control.mark("scenario.struck_a_learner_that_had_the_rest");
            self.crash_unsynced(host, Duration::from_millis(100), 0, control);
        }
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        self.servers.contains(&host) && self.is_whole_without(host, cluster).is_ok()
    }

    fn on_disk_lost(&mut self, _host: HostId, _cluster: &Cluster<'_, Node>) -> Replacement {
        if self.comes_back { Replacement::Wiped } else { Replacement::StayDown }
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
            (5, _) if self.let_in.is_some() => {
                let host = self.let_in.unwrap_or(sequencer);
                control.crash(host, Loss::All, down, rng);
            }
            (6 | 7, _) => {
                let copying = self.candidates().find_map(|id| match control.cluster.node(id) {
                    Some(Node::Storage(server)) => Some((id, server.copies_from()?)),
                    _ => None,
                });
                let Some((learner, source)) = copying else { return false };
                let host = if which == 6 { learner.host() } else { source.host() };
                match rng.chance(0.5) {
                    true => self.crash_unsynced(host, down, rng.bits(), control),
                    false => control.crash(host, Loss::All, down, rng),
                }
            }
            (4, _) => control.crash_all(self.servers.iter().copied(), Loss::All, rng),
            _ => return false,
        }
        true
    }

    /// Which of the servers are needed is known to the auxiliary that changes the projection: all that have not lost their disks for good.
    fn core(&mut self, cluster: &Cluster<'_, Node>, _rng: &mut Rng) -> Core {
        let servers = self.servers.iter().filter(|&&host| !cluster.is_lost(host));
        Core::Hosts(servers.chain(&self.clients).copied().collect())
    }

    fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        let latest = self.latest();
        for (id, node) in cluster.nodes() {
            if let Node::Auxiliary(auxiliary) = node
                && (auxiliary.installed() != latest || auxiliary.journal() != latest.journal(id))
            {
                return Err(format!("{id} knows {:?}, not {:?}", auxiliary.installed().epoch, latest.epoch));
            }
        }
        for (number, chain) in latest.chains.iter().enumerate() {
            let candidates = self.initial.chains[number].iter().chain(&self.spares[number]);
            let there = candidates.filter(|candidate| core.contains(&candidate.host())).count();
            if chain.len() < there.min(self.initial.chains[number].len()) {
                return Err(format!("chain {number} is {chain:?} only"));
            }
            for &id in chain {
                let serves = |it: &StorageServer| it.journal() == latest.journal(id) && serves(it, latest);
                if !matches!(cluster.node(id), Some(Node::Storage(server)) if serves(server)) {
                    return Err(format!("{id} does not serve in {:?}", latest.epoch));
                }
            }
        }
        Ok(())
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        let words = cluster.nodes().filter_map(|(id, node)| match node {
            Node::Auxiliary(auxiliary) => {
                let changing = if auxiliary.is_changing() { ", changing" } else { "" };
                Some(format!("{id} has {:?}{changing}", auxiliary.installed()))
            }
            Node::Sequencer(sequencer) => Some(format!("{id} serves {:?}", sequencer.serves())),
            Node::Storage(server) => {
                let how = if server.serves() { "serves" } else { "waits for" };
                Some(format!("{id} {how} {:?}, copies {:?}", server.epoch(), server.copies_from()))
            }
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
        self.check_nested(cluster);
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}
