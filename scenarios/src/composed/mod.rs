//! Services composed: sessions use libRSS over two deployments of transactions, whose reads are RSS, and a log and a coordination service,
//! which are linearizable. Each fences what it used before it goes on to another service, and what it sends to others carries its context. All that they see at
//! all services must be regular sequential serializable together.

mod answers;
mod history;
mod node;
mod photos;
mod session;
mod striking;
mod zookeeper;

use crate::limits::{self, OPERATION_BYTES_MAX};
use crate::moments::{ambush::Ambushes, snapshots::DeafReplica};
use ::mason::proxy::SpacesOf;
use ::mason::{Deployment, Group, HostParts, MasonParameters, Space};
use ::spanner::{SpannerDeployment, SpannerParameters};
use answers::{of_answer, of_client, of_txn};
use coordination::{
    Consistency, Gateway as ZkGateway, HomeSessions, Placement, Routes as ZkRoutes, SessionSettings,
    Settings, Znodes,
};
use history::{Asked, Call, History, Outcome};
use kernel::client::Response;
use kernel::{Bytes, Embedded, Encode as _, HostId, HostSlot, NodeId, RequestId, Rng};
use node::{ComposedNode, LogMember};
use photos::Photos;
use session::{Service, Session, Step};
use shared_log::{
    Append, Create, Gateway, Logs, Names, Part, RETAIN_BYTES_MIN, Read, Request, Routes, Rows, SpaceBounds,
};
use sim::{
    Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Scenario, StrikeKind, Tuning,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::txn::{CallKey, Fence, KeyWrite, OneShot, ReadOnly, TxnCall, TxnLevel};
use zookeeper::{ZNODES, ZkCall, ZkClient, ZkSeat};

/// What a host runs.
type Node = ComposedNode;

/// One cluster, drawn from a seed.
pub struct ComposedScenario {
    hosts: Vec<HostId>,
    log: Deployment,
    log_bounds: SpaceBounds,
    spaces: u16,
    znodes: Deployment,
    placement: Placement,
    bank: SpannerDeployment,
    stock: SpannerDeployment,
    sessions: BTreeMap<u16, Session>,
    history: History,
    distances: Vec<Duration>,
    commits: u64,
    /// In most seeds one host is far from the others.
    away: Option<HostId>,
    photos: Photos,
    deaf: DeafReplica,
    ambushes: Ambushes,
}

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "gateway.waited_out_an_earliest_end",
    "scenario.fenced_before_another_service",
    "scenario.held_a_decision",
    "scenario.looked_at_what_was_held_back",
    "scenario.sent_another_session_its_context",
    "scenario.went_from_coordination_to_another_service",
    "scenario.went_to_coordination_from_another_service",
    "shard.rss_read_skipped_a_prepared_transaction",
];

/// Behind the log's slots.
const BANK_FROM: u32 = 0x0010_0000;
const STOCK_FROM: u32 = 0x0020_0000;
const ZNODES_FROM: u32 = 0x0030_0000;
/// A host's ZooKeeper client, behind all slots of the service.
const ZK_CLIENT: HostSlot = HostSlot(0x0040_0000);
const LOG: &str = "feed";
/// Pairs of keys, one of each at one end of the key space: they are written together.
const PAIRS: u64 = 2;

const LOG_BOUNDS: SpaceBounds = SpaceBounds {
    segment_bytes: 1 << 10,
    open_bytes: 4 << 10,
    page_bytes: 256,
    unstored_bytes: 8 << 10,
    cache_bytes: 1 << 10,
};

/// How the logs work, where messages take `far` times as long.
fn draw_log(far: u64, rng: &mut Rng) -> (MasonParameters, paxos::Parameters) {
    let ms = Duration::from_millis;
    let log = paxos::Parameters {
        election_timeout: ms(far * rng.between(160, 400)),
        heartbeat_every: ms(rng.between(25, 40)),
        resend_after: ms(far * rng.between(50, 150)),
        window: 32,
        snapshot_every_bytes: 2_000 << rng.below(4),
        snapshot_chunk_bytes: 256 << rng.below(3),
        retained_bytes_max: 4_000 << rng.below(4),
        ..paxos::Parameters::default()
    };
    let of_log = MasonParameters {
        suspect_after: ms(far * rng.between(160, 400)),
        snapshot_every_bytes: 1_000 << rng.below(4),
        snapshot_chunk_bytes: 1_024,
        page_bytes: 2_048,
        ..MasonParameters::default()
    };
    limits::fit(of_log, log)
}

impl ComposedScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let entries: Vec<paxos::HostEntry> = (0..3).map(crate::moments::operator::entry).collect();
        let hosts = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let is_wide = rng.chance(0.75);
        let far = if is_wide { 4 } else { 1 };
        // Who writes from afar learns late that others see it already.
        let away = rng.below(3);
        let far_away = if rng.chance(0.5) { 60 } else { 110 };
        let distance = |host| ms(if is_wide && host == away { far_away } else { 0 });
        let distances = (0..3).map(distance).collect();
        let parameters = SpannerParameters {
            resend_after: ms(far * rng.between(50, 150)),
            horizon_ahead: ms(rng.between(50, 300)),
            fence_bound: ms(rng.between(400, 800)),
            clock_error_max: ms(500),
            doubt_after: ms(far * rng.between(200, 600)),
            try_for: ms(far * rng.between(1_000, 2_000)),
            step_bytes_max: OPERATION_BYTES_MAX / 2,
            ..SpannerParameters::default()
        };
        let (of_log, log) = draw_log(far, rng);
        let [groups, spaces, znode_shards] = std::array::from_fn(|_| rng.between(1, 2) as u16);
        let txn = |first, rng: &mut Rng| {
            let shards = rng.between(2, 3) as u16;
            SpannerDeployment::new(first, entries.clone(), shards, 1, parameters.clone(), log.clone())
        };
        Self {
            hosts,
            bank: txn(BANK_FROM, rng),
            stock: txn(STOCK_FROM, rng),
            znodes: Deployment::beginning_at(
                ZNODES_FROM,
                entries.clone(),
                1,
                znode_shards,
                3,
                of_log.clone(),
                log.clone(),
            ),
            placement: Placement::new(znode_shards),
            log: Deployment::new(entries.clone(), groups, spaces, 3, of_log, log),
            log_bounds: LOG_BOUNDS,
            spaces,
            sessions: BTreeMap::new(),
            history: History::default(),
            distances,
            commits: 0,
            away: is_wide.then(|| HostId::named(&entries[away as usize].name)),
            photos: Photos::default(),
            deaf: DeafReplica::default(),
            ambushes: Ambushes::default(),
        }
    }

    fn gateway(&self, service: Service, host: HostId) -> NodeId {
        match service {
            Service::Bank => self.bank.gateway_of(host),
            Service::Stock => self.stock.gateway_of(host),
            Service::Log => self.log.gateway_of(host),
            // Users speak to the client of their host, and that to the gateway.
            Service::Znodes => NodeId::new(host, ZK_CLIENT),
        }
    }

    /// A host's part of the coordination service, and its client.
    fn build_znodes(&self, incarnation: Incarnation) -> Vec<(HostSlot, ZkSeat)> {
        let host = incarnation.host;
        let (placement, sessions) = (self.placement, SessionSettings::new(self.placement, [7; 32]));
        let counting = HomeSessions::new(Group(0), sessions.clone());
        let spaces_of: SpacesOf =
            Arc::new(move |body, shard_map| ::mason::Stub::spaces(&counting, body, shard_map));
        let routes = ZkRoutes { proxies: self.znodes.proxies_of(host), shards: self.znodes.servers_of(host) };
        let settings = Settings {
            consistency: Consistency::Linearizable,
            layout: self.znodes.topology().layout.clone(),
            ..Settings::new(routes, placement)
        };
        let parts = HostParts {
            stub: &|group| HomeSessions::new(group, sessions.clone()),
            shard: &|space| Znodes::new(space, placement, u64::from(incarnation.number)),
            gateway: ZkGateway::new(settings),
        };
        let members = self.znodes.build(host, &spaces_of, parts).into_iter();
        let members = members.map(|(slot, member)| (slot, ZkSeat::Member(Box::new(member))));
        let client = ZkClient::new(self.znodes.gateway_of(host));
        members.chain([(ZK_CLIENT, ZkSeat::Client(client))]).collect()
    }

    fn of_znodes(operation: OperationId, rng: &mut Rng) -> ZkCall {
        let path = ZNODES[rng.below(ZNODES.len() as u64) as usize];
        if rng.chance(0.5) {
            return ZkCall::Get(path);
        }
        ZkCall::Set(path, format!("{}.{}", operation.client, operation.nth))
    }

    /// At times another session sends this one what it knows.
    fn exchange(&mut self, client: u16, rng: &mut Rng, control: &mut Control<'_, Node>) {
        let others: Vec<u16> = self.sessions.keys().copied().filter(|it| *it != client).collect();
        let Some(&other) = rng.pick(&others).filter(|_| rng.chance(0.1)) else { return };
        let Some(sender) = self.sessions.get(&other) else { return };
        let (header, from) = (sender.header(), (other, sender.incarnation));
        let session = self.sessions.entry(client).or_default();
        session.hears(&header);
        self.history.message(from, (client, session.incarnation), control.cluster.now());
        control.mark("scenario.sent_another_session_its_context");
    }

    /// A write of the two keys of a pair, at times of one of them, or a read of one key.
    fn transaction(
        &mut self,
        id: u64,
        operation: OperationId,
        token: wire::txn::Timestamp,
        rng: &mut Rng,
    ) -> (TxnCall, Call) {
        let pair = rng.below(PAIRS);
        let names = [format!("a{pair}/x"), format!("b{pair}/x")];
        if rng.chance(0.6) {
            let keys = vec![Bytes::from(names[rng.below(2) as usize].clone())];
            let level = TxnLevel::Rss;
            return (ReadOnly { id, token, level, keys, scans: Vec::new() }.into(), Call::Read);
        }
        self.commits += 1;
        let value = |name: &String| (name.clone(), format!("{}.{}.{name}", operation.client, operation.nth));
        let written = if rng.chance(0.2) { &names[..1] } else { &names[..] };
        let written: Vec<(String, String)> = written.iter().map(value).collect();
        let write = |(key, value): &(String, String)| KeyWrite {
            key: Bytes::from(key.clone()),
            value: Some(Bytes::from(value.clone())),
        };
        let call = OneShot {
            id,
            token,
            key: Some(CallKey { session: u64::from(operation.client) + 1, number: self.commits }),
            acknowledged: self.commits,
            conditions: Vec::new(),
            writes: written.iter().map(write).collect(),
            reads: Vec::new(),
            otherwise: Vec::new(),
        };
        (call.into(), Call::Write(written))
    }

    fn of_log(&self, operation: OperationId, log_end: u64, rng: &mut Rng) -> (Request, Call) {
        if rng.chance(0.5) {
            let from = log_end.saturating_sub(rng.below(3));
            let read = Read { name: LOG.to_owned(), from, entries_max: 64, bytes_max: 1 << 12, wait_ms: 0 };
            return (Request::Read(read), Call::ReadLog);
        }
        let entry = format!("{}.{}", operation.client, operation.nth);
        let mut rows = Rows::default();
        rows.push(entry.as_bytes());
        let part = Part { name: LOG.to_owned(), expect: None, entries: rows.into_bytes() };
        (Request::Append(Append { parts: vec![part], admitted: None }), Call::Append(entry))
    }
}

impl Scenario for ComposedScenario {
    type Node = Node;

    const FAMILY: &'static str = "composed";
    const STRIKES: &'static [StrikeKind] = &striking::STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        self.hosts.iter().map(|&host| HostSpec::server(host)).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        self.hosts.iter().flat_map(|&host| [self.bank.gateway_of(host); 3]).collect()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.with(Class::Strike)
    }

    fn tuning(&self) -> Tuning {
        let (us, ms, s) = (Duration::from_micros, Duration::from_millis, Duration::from_secs);
        Tuning {
            safety: (s(10), s(20)),
            busy_at_least: Some(s(5)),
            operations: (50, 250),
            think: (ms(1), ms(20)),
            sync: (us(50), ms(2)),
            latency: (us(50), ms(5)),
            liveness: s(240),
            clock_error: (us(100), ms(5)),
            clock_error_max: Some(ms(500)),
            distances: self.distances.clone(),
            blows: (0.3, 4.0),
            bounds: limits::BOUNDS,
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
        let host = incarnation.host;
        let stub = Names { spaces: self.spaces };
        let spaces_of: SpacesOf =
            Arc::new(move |body, shard_map| ::mason::Stub::spaces(&stub, body, shard_map));
        let (proxies, shards) = (self.log.proxies_of(host), self.log.servers_of(host));
        let parts = HostParts {
            stub: &|_: Group| stub,
            shard: &|space: Space| Logs::new(space, self.spaces, self.log_bounds),
            gateway: Gateway::new(Routes { proxies, shards, capacity: 64 << 20, disk_bytes: u64::MAX }),
        };
        let of_log = self.log.build(host, &spaces_of, parts).into_iter();
        let mut nodes: Vec<(HostSlot, Node)> =
            of_log.map(|(slot, node)| (slot, Node::Log(Box::new(Embedded::new(node))))).collect();
        let of_txn = self.bank.build(host).into_iter().chain(self.stock.build(host));
        nodes.extend(of_txn.map(|(slot, node)| (slot, Node::Txn(Box::new(Embedded::new(node))))));
        let of_znodes = self.build_znodes(incarnation).into_iter();
        nodes.extend(of_znodes.map(|(slot, node)| (slot, Node::Znodes(Box::new(Embedded::new(node))))));
        nodes
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let (client, host, at) = (operation.client, node.host(), control.cluster.now());
        let id = u64::from(client) << 32 | u64::from(operation.nth) << 4;
        if operation.nth == 0 {
            // Somebody has to create the log; a later one is answered that it exists.
            let (name, retain_bytes) = (LOG.to_owned(), RETAIN_BYTES_MIN);
            let create = Request::Create(Create {
                name,
                retain_bytes,
                retain_ms: 0,
                capacity: 0,
                cleanup: None,
                first: None,
            });
            control.request(self.log.gateway_of(host), create.encoded().into());
            return;
        }
        self.exchange(client, rng, control);
        let session = self.sessions.entry(client).or_default();
        let before = session.last();
        let (step, incarnation, log_end) = (session.step(rng), session.incarnation, session.log_end);
        if let (Some(before), Step::Operation(service)) = (before, &step)
            && before != *service
        {
            if before == Service::Znodes {
                control.mark("scenario.went_from_coordination_to_another_service");
            }
            if *service == Service::Znodes {
                control.mark("scenario.went_to_coordination_from_another_service");
            }
        }
        let (service, bytes, call): (Service, Vec<u8>, Call) = match step {
            Step::Fence(service) => {
                control.mark("scenario.fenced_before_another_service");
                let call = TxnCall::from(Fence { id, token: session.token(service) });
                (service, call.encoded(), Call::Fence)
            }
            Step::Operation(Service::Log) => {
                let (request, call) = self.of_log(operation, log_end, rng);
                (Service::Log, request.encoded(), call)
            }
            Step::Operation(Service::Znodes) => {
                let call = Self::of_znodes(operation, rng);
                let bytes = call.to_bytes().to_vec();
                (Service::Znodes, bytes, Call::from(call))
            }
            Step::Operation(service) => {
                let token = session.token(service);
                let (request, call) = self.transaction(id, operation, token, rng);
                (service, request.encoded(), call)
            }
        };
        let asked = Asked { client, incarnation, service, call, at };
        let id = control.request(self.gateway(service, host), bytes.into());
        self.history.asked(id, asked);
    }

    fn on_response(
        &mut self,
        node: NodeId,
        id: RequestId,
        response: Response,
        control: &mut Control<'_, Node>,
    ) {
        let now = control.cluster.now();
        let Some(Asked { client, service, .. }) = self.history.of(id).cloned() else { return };
        if response.0.is_empty() {
            return self.on_lost(node, id);
        }
        let session = self.sessions.entry(client).or_default();
        let outcome = match service {
            Service::Bank | Service::Stock => of_txn(&response.0, service, session),
            Service::Log => of_answer(&response.0, session),
            Service::Znodes => of_client(&response.0),
        };
        if matches!(outcome, Outcome::Unknown) {
            session.incarnation += 1;
        }
        self.history.answered(id, outcome.clone(), now);
        self.go_on_plotting(id, &outcome, control);
    }

    fn on_lost(&mut self, _node: NodeId, id: RequestId) {
        if let Some(Asked { client, .. }) = self.history.of(id).cloned() {
            self.sessions.entry(client).or_default().incarnation += 1;
        }
    }

    fn watches(&self) -> bool {
        self.away.is_some() || self.deaf.any() || self.ambushes.any()
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        self.carry_out_strike(which, rng, control)
    }

    fn watch(&mut self, control: &mut Control<'_, Node>) {
        self.plot(control);
        self.deaf.look(control);
        self.ambushes.look(control);
    }

    fn core(&mut self, _cluster: &Cluster<'_, Node>, _rng: &mut Rng) -> Core {
        Core::Hosts(self.hosts.clone())
    }

    /// As in the family of transactions: shards go from host to host.
    fn is_in_use(&self, _node: NodeId, _cluster: &Cluster<'_, Node>) -> bool {
        false
    }

    fn finish(&mut self, _cluster: &Cluster<'_, Node>) {
        self.history.check();
    }

    fn history(&self) -> Option<String> {
        Some(self.history.to_text())
    }
}

fn text_of(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
