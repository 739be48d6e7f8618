//! The shared log over Mason: every host plays every role.

mod archive;
pub(crate) mod history;
mod judged;
pub(crate) mod numbered;
mod remade;
pub(crate) mod requests;
mod scratch;
mod waking;

use crate::audit::{self, mason::MasonAudit};
use crate::limits::{self, Sizes};
use crate::mason::invariants::{self, Invariants};
use ::mason::proxy::SpacesOf;
use ::mason::shard::ShardServer;
use ::mason::{Deployment, Group, HostParts, MasonParameters, Space, Stub};
use archive::Archived;
use history::History;
use judged::{JudgedLogs, SharedModel};
use kernel::client::Response;
use kernel::{Decode, Encode, HostId, HostSlot, NodeId, RequestId, Rng};
use numbered::Numbered;
use remade::Remade;
use scratch::Scratch;
use shared_log::{Answer, Archiving, Gateway, List, Logs, Named, Names, Request, Routes, SpaceBounds, Trim};
use sim::{
    Classes, Cluster, Control, Core, Fact, HostSpec, Incarnation, IsClaim, Loss, OperationId, Scenario,
    StrikeKind, Tuning,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What a host runs.
type Node = ::mason::MasonMember<Names, JudgedLogs, Gateway>;

/// One cluster, drawn from a seed.
pub struct LogScenario {
    hosts: Vec<HostId>,
    spaces: u16,
    sizes: Sizes,
    /// Nothing fails in this run.
    has_no_faults: bool,
    bounds: SpaceBounds,
    /// What the logs of a host may hold together.
    disk_bytes: u64,
    /// Of the seeds that archive: how.
    archiving: Option<Archiving>,
    deployment: Deployment,
    /// What the logs of all servers must be.
    model: SharedModel,
    history: History,
    numbered: Numbered,
    scratch: Scratch,
    /// In half of the seeds with a disk budget.
    remade: Option<Remade>,
    archived: Archived,
    invariants: Invariants,
    audit: MasonAudit,
    lost: BTreeSet<HostId>,
}

/// True for a log that is deleted and made anew: its positions are used again.
pub(crate) fn begins_anew(name: &str) -> bool {
    name == scratch::SCRATCH || name == remade::REMADE
}

/// The logs that users know of.
pub(crate) const NAMES: [&str; 6] = ["audit", "dropping", "orders", "payments", "retained", "trimmed"];
/// The one whose oldest entries go when the disk budget is reached.
const DROPPING: &str = "dropping";
/// The one whose entries are retained for a second.
const RETAINED: &str = "retained";
/// The one that is sealed some time.
pub(crate) const SEALED: &str = "audit";

/// The servers of shards among nodes.
fn shards<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a Node)>,
) -> impl Iterator<Item = (NodeId, &'a ShardServer<JudgedLogs>)> {
    nodes.filter_map(|(id, node)| if let Node::Shard(server) = node { Some((id, &**server)) } else { None })
}

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "log.deleted_a_log",
    "log.fenced_a_producer_off",
    "log.fenced_readers_off",
    "log.had_a_log_drop_its_oldest",
    "log.lost_track_of_calls",
    "log.refused_a_late_writer",
    "log.refused_to_break_a_seal",
    "log.refused_what_the_archive_has_no_room_for",
    "log.refused_what_the_budget_has_no_room_for",
    "log.reported_a_reader_where_to_resume",
    "log.woke_a_reader",
    "proxy.filled_holes",
    "scenario.remade_a_log_under_its_writers",
    "sequencer.took_over",
    "shard.archived_a_blob",
    "shard.asked_for_inputs",
    "shard.did_not_reach_the_archive",
    "shard.fetched_a_blob",
    "shard.heard_that_a_blob_is_archived",
    "shard.lost_a_blob",
    "shard.read_a_blob",
    "shard.stored_a_blob",
    "shard.took_a_snapshot_from_a_peer",
    "shard.waited_for_its_disk",
    "shard.wrote_a_snapshot",
];

const STRIKES: [StrikeKind; 6] = [
    StrikeKind { name: "kill a proxy's leader", class: sim::Class::Strike },
    StrikeKind { name: "pause the sequencer", class: sim::Class::Strike },
    StrikeKind { name: "kill everybody", class: sim::Class::Strike },
    StrikeKind { name: "rot a segment", class: sim::Class::Strike },
    StrikeKind { name: "partition everybody from the archive", class: sim::Class::Strike },
    StrikeKind { name: "partition one host from the archive", class: sim::Class::Strike },
];

impl LogScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let count = if rng.chance(0.8) { 3 } else { 5 };
        let entries: Vec<paxos::HostEntry> = (0..count)
            .map(|number| paxos::HostEntry { name: format!("h{number}"), address: format!("h{number}:1") })
            .collect();
        let hosts = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let (groups, spaces) = (rng.between(1, 3) as u16, rng.between(1, 4) as u16);
        let parameters = MasonParameters {
            suspect_after: ms(rng.between(80, 400)),
            batches_max: rng.between(1, 6) as usize,
            batch_operations_max: if rng.chance(0.3) { 2 } else { 64 },
            collect_every: ms(rng.between(100, 1_000)),
            collect_interval: rng.between(4, 64),
            ask_after: ms(rng.between(20, 80)),
            snapshot_every_bytes: 500 << rng.below(6),
            snapshot_chunk_bytes: 256 << rng.below(4),
            page_bytes: 128 << rng.below(6),
            archive_turn: ms(rng.between(20, 2_000)),
            // Where nobody waits for the last server, it has to take a snapshot.
            wait_for_last: if rng.chance(0.5) { Duration::ZERO } else { ms(100) },
            ..MasonParameters::default()
        };
        let backlog_bytes_max = 100 << rng.below(6);
        let archiving = rng.chance(0.7).then(|| Archiving { cluster: "sim".to_owned(), backlog_bytes_max });
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
        let sizes = Sizes::draw(rng);
        let bounds = SpaceBounds {
            segment_bytes: 32 << rng.below(5),
            open_bytes: 200 << rng.below(4),
            page_bytes: 8 << rng.below(4),
            unstored_bytes: 64 << rng.below(8),
            cache_bytes: if rng.chance(0.5) { 0 } else { 64 << rng.below(5) },
        };
        let disk_bytes = if rng.chance(0.4) { 2_000 << rng.below(5) } else { u64::MAX };
        let is_remade = disk_bytes < u64::MAX && rng.chance(0.5);
        Self {
            has_no_faults,
            sizes,
            hosts,
            spaces,
            model: SharedModel::new(spaces, bounds),
            bounds,
            disk_bytes,
            archiving,
            archived: Archived::default(),
            deployment: Deployment::new(entries, groups, spaces, count, parameters, log),
            history: History::default(),
            numbered: Numbered::default(),
            scratch: Scratch::default(),
            remade: is_remade.then(|| Remade::new(bounds.segment_bytes, rng.fork())),
            invariants: Invariants::default(),
            audit: MasonAudit::default(),
            lost: BTreeSet::new(),
        }
    }

    fn is_bad(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        self.lost.contains(&host) || cluster.is_lost(host) || cluster.is_damaged(host)
    }

    fn is_bootstrapped(&self) -> bool {
        self.audit.bootstrapped(&self.hosts) == self.hosts.len() * self.deployment.topology().groups.len()
    }

    fn draw_request(&mut self, operation: OperationId, rng: &mut Rng) -> Request {
        let one = *rng.pick(&NAMES).unwrap_or(&SEALED);
        let name = || one.to_owned();
        match rng.below(100) {
            _ if operation.nth < NAMES.len() as u32 => requests::create(NAMES[operation.nth as usize]),
            0..10 => {
                let entries = requests::entries(self.sizes, operation, 1, rng);
                if operation.client == scratch::CLIENT
                    && rng.chance(0.5)
                    && let Some(request) = self.scratch.draw(entries.clone(), rng)
                {
                    return request;
                }
                self.numbered.produce(operation.client, entries, rng)
            }
            10..15 => self.numbered.of_a_group(rng),
            15..45 => requests::append(self.sizes, &[one], operation, None, rng),
            45..50 => requests::append_at_tail((self.sizes, &self.history), one, operation, rng),
            50..70 => requests::append_to_several(self.sizes, one, operation, rng),
            70..90 => requests::read(&self.history, one, rng),
            90..92 => Request::Stat(Named { name: name() }),
            92 => Request::Describe(Named { name: name() }),
            93 => Request::Identify(Named { name: name() }),
            94 => Request::Expire(Named { name: name() }),
            95..97 => Request::List(List { after: String::new(), limit: 10 }),
            97..99 => {
                let (name, before) = ("trimmed".to_owned(), self.history.tail("trimmed") / 2);
                Request::Trim(Trim { name, before })
            }
            _ if operation.nth > 30 => Request::Seal(Named { name: SEALED.to_owned() }),
            _ => Request::Stat(Named { name: name() }),
        }
    }
}

impl Scenario for LogScenario {
    type Node = Node;

    const FAMILY: &'static str = "log";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        self.hosts.iter().map(|&host| HostSpec::server(host)).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        let gateways = self.hosts.iter().map(|&host| Deployment::gateway(host));
        gateways.flat_map(|gateway| [gateway; 3]).collect()
    }

    fn classes(&self) -> Classes {
        Classes::ALL
            .without(sim::Class::Upgrade)
            .without(sim::Class::ClockLie)
            .without(sim::Class::Membership)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning {
            safety: (s(10), s(30)),
            busy_at_least: Some(s(5)),
            operations: (30, 150),
            liveness: s(120),
            bounds: limits::BOUNDS,
            calm: self.has_no_faults.then_some(limits::CALM_MOST),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        self.invariants.forget(incarnation.host);
        self.audit.forget(incarnation.host);
        self.history.forget(incarnation.host);
        self.blank_nodes(incarnation.host)
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Node)> {
        let stub = Names { spaces: self.spaces };
        let spaces_of: SpacesOf = Arc::new(move |body, shard_map| stub.spaces(body, shard_map));
        let (proxies, shards) = (self.deployment.proxies_of(host), self.deployment.servers_of(host));
        let parts = HostParts {
            stub: &|_: Group| stub,
            shard: &|space: Space| {
                let logs = Logs::new(space, self.spaces, self.bounds);
                let logs = match &self.archiving {
                    Some(archiving) => logs.with_archive(archiving.clone()),
                    None => logs,
                };
                JudgedLogs::new(space, logs, self.model.clone())
            },
            gateway: Gateway::new(Routes {
                proxies,
                shards,
                capacity: 64 << 20,
                disk_bytes: self.disk_bytes,
            }),
        };
        self.deployment.build(host, &spaces_of, parts)
    }

    fn on_dry_restart(&mut self, node: NodeId, running: &Node, restarted: &Node) {
        self.audit.on_dry_restart(node, running, restarted);
        self.invariants.check_restarted(node, restarted);
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
        if self.scratch.asked(id, &request) {
            return;
        }
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
        self.scratch.answered(id, &answer, control);
        if let Some(remade) = &mut self.remade {
            remade.answered(id, &answer, control);
        }
        self.numbered.answered(id, &answer, now, control);
        self.history.answered(id, answer, now);
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
        self.history.look(host, shards(cluster.nodes_of(host)), cluster);
        waking::check(host, cluster);
        if self.archiving.is_some() {
            self.archived.check_host(host, cluster);
        }
    }

    fn watches(&self) -> bool {
        self.remade.is_some()
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        if let Some(remade) = &mut self.remade {
            remade.watch(control);
        }
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let second = Duration::from_secs(1);
        let down = rng.duration(second / 20, 2 * second);
        let cluster = &control.cluster;
        let leading = |node: &Node| matches!(node, Node::Proxy(proxy) if proxy.is_leading());
        let active = |node: &Node| matches!(node, Node::Sequencer(one) if one.active_epoch().is_some());
        let wanted: &dyn Fn(&Node) -> bool = if which == 0 { &leading } else { &active };
        let hosts: Vec<HostId> =
            cluster.nodes().filter(|(_, node)| wanted(node)).map(|(id, _)| id.host()).collect();
        match (which, rng.pick(&hosts).copied()) {
            (0, Some(host)) => control.crash(host, Loss::All, down, rng),
            (1, Some(host)) => control.pause(host, down),
            (2, _) => control.crash_all(self.hosts.iter().copied(), Loss::All, rng),
            (3, _) => {
                let bears = |host: &&HostId| self.may_lose_disk(**host, &control.cluster);
                let hosts: Vec<HostId> = self.hosts.iter().filter(bears).copied().collect();
                return rng.pick(&hosts).copied().is_some_and(|host| control.rot_blob(host, rng));
            }
            (4, _) if self.archiving.is_some() => {
                control.partition_archive(None, rng.duration(second, 8 * second));
            }
            (5, _) if self.archiving.is_some() => {
                control.partition_archive(rng.pick(&self.hosts).copied(), rng.duration(second, 8 * second));
            }
            _ => return false,
        }
        true
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        let sound = self.hosts.iter().filter(|&&other| other != host && !self.is_bad(other, cluster)).count();
        self.is_bootstrapped() && sound > self.hosts.len() / 2
    }

    fn on_disk_lost(&mut self, host: HostId, _cluster: &Cluster<'_, Node>) -> sim::Replacement {
        self.lost.insert(host);
        sim::Replacement::StayDown
    }

    fn core(&mut self, cluster: &Cluster<'_, Node>, rng: &mut Rng) -> Core {
        let mut sound: Vec<HostId> =
            self.hosts.iter().copied().filter(|&host| !self.is_bad(host, cluster)).collect();
        let quorum = self.hosts.len() / 2 + 1;
        if sound.len() < quorum {
            return Core::Excused("no majority has retained its journal".to_owned());
        }
        // A bootstrap needs every host.
        while self.is_bootstrapped() && sound.len() > quorum && rng.chance(0.7) {
            sound.remove(rng.index(sound.len()));
        }
        Core::Hosts(sound)
    }

    fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        self.invariants.converged(core, cluster)?;
        self.archived.converged(core, cluster)
    }

    fn describe(&self, cluster: &Cluster<'_, Node>) -> String {
        invariants::describe(cluster, |gateway: &Gateway| gateway.outstanding() + gateway.reading())
    }

    fn finish(&mut self, cluster: &Cluster<'_, Node>) {
        self.history.check(shards(cluster.nodes()));
        self.numbered.check();
        self.archived.check(cluster, &self.history);
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}
