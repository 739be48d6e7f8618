//! A cluster in memory, without the engine: gateways, stubs and shards on several hosts, and one order that every host
//! executes at its own pace, as the dice say.

mod connections;
mod groups;

use coordination::gateway::HostCall;
use coordination::{Gateway, HomeSessions, Placement, Routes, SessionSettings, Settings, Znodes};
use kernel::client::ConnectionIn;
use kernel::{
    Bytes, Cx, Effect, Effects, Encode, HostId, HostSlot, Instant, NodeId, Position, RequestId, Rng, Role,
    Situation, Wall,
};
use mason::client::{
    Answers, BarrierPassed, Elsewhere, GatewayIn, GatewayNotice, GroupNotice, OperationAnswer, Progress,
    ReadAnswer, ReadAnswers,
};
use mason::proxy::{FromGateway, ProxyIn};
use mason::shard::ShardIn;
use mason::{
    Group, GroupTime, Gsn, Layout, Mason, MasonMessage, Number, Order, Placed, Shard, ShardOut, Space, Stub,
    StubOut, Verdict,
};
use std::collections::{BTreeMap, VecDeque};

/// An operation that has its slot.
struct Sequenced {
    order: Order,
    body: Bytes,
    void: bool,
    /// Who hears of it.
    origin: Option<(NodeId, Group, u64, u64)>,
    /// By participant, as soon as one replica of it has come so far.
    inputs: BTreeMap<Space, Bytes>,
}

/// Reads that wait for a log of this length, and for a global sequence number; each with the room for its answer.
struct Asked {
    length: usize,
    at_least: u64,
    reader: NodeId,
    reads: Vec<(mason::shard::ShardQuery, u64)>,
}

/// One shard's server on one host.
struct Server {
    znodes: Znodes,
    /// How much of the log it has looked at.
    at: usize,
    executed: u64,
    /// Reads that wait.
    reads: VecDeque<Asked>,
    readers: Vec<NodeId>,
    reported: u64,
}

struct Home {
    stub: HomeSessions,
    now: u64,
    /// By origin: incarnation and the next tag.
    expected: BTreeMap<NodeId, (u64, u64)>,
}

struct Host {
    gateway: Gateway,
    node: NodeId,
    effects: Effects<Mason>,
    /// Its gateway waits for its next turn.
    turn_due: bool,
    servers: Vec<Server>,
}

/// See the file's head.
pub(crate) struct Cluster {
    pub(crate) rng: Rng,
    pub(crate) now: Instant,
    hosts: Vec<Host>,
    homes: Vec<Home>,
    log: Vec<Sequenced>,
    numbers: Vec<u64>,
    pub(crate) gsn: u64,
    /// What was written to connections.
    outputs: BTreeMap<NodeId, Vec<u8>>,
    /// How much that was, since they came.
    written: BTreeMap<NodeId, u64>,
    pub(crate) closed: BTreeMap<NodeId, String>,
    pub(crate) paused: BTreeMap<NodeId, bool>,
    next_slot: u32,
    /// Which servers may execute; a held one falls behind.
    pub(crate) held: Vec<(usize, Space)>,
    /// The share of submissions that is lost.
    pub(crate) loss: f64,
    pub(crate) rejected: Vec<&'static str>,
    /// The words of groups do not arrive.
    pub(crate) deaf: bool,
    /// Messages on their way to gateways.
    pending: VecDeque<(usize, NodeId, GatewayIn)>,
    placement: Placement,
    pub(crate) layout: Layout,
    /// This group hears nobody.
    pub(crate) deaf_group: Option<Group>,
    /// What stubs have handed over and nobody has yet.
    pages: Vec<(Group, Bytes)>,
    /// What groups have ordered for themselves waits, as it does for a sequencer: signs of life are answered before it is.
    pub(crate) holds_follow_ups: bool,
    follow_ups: VecDeque<(usize, Bytes)>,
}

fn proxy(host: usize, group: usize) -> NodeId {
    NodeId::new(HostId(host as u32 + 1), HostSlot(100 + group as u32))
}

fn server(host: usize, space: usize) -> NodeId {
    NodeId::new(HostId(host as u32 + 1), HostSlot(200 + space as u32))
}

/// How a cluster is built.
pub(crate) struct Shape {
    pub(crate) hosts: usize,
    pub(crate) groups: u16,
    pub(crate) shards: u16,
    pub(crate) seed: u64,
}

impl Cluster {
    pub(crate) fn new(hosts: usize, groups: u16, shards: u16, seed: u64) -> Self {
        Self::with(Shape { hosts, groups, shards, seed }, |_| {})
    }

    pub(crate) fn with(shape: Shape, adjust: impl Fn(&mut Settings)) -> Self {
        let placement = Placement::new(shape.shards);
        let sessions = SessionSettings::new(placement, [7; 32]);
        let homes = (0..shape.groups).map(|group| Home {
            stub: HomeSessions::new(Group(group), sessions.clone()),
            now: 0,
            expected: BTreeMap::new(),
        });
        let hosts = (0..shape.hosts).map(|host| {
            let routes = Routes {
                proxies: (0..usize::from(shape.groups)).map(|group| proxy(host, group)).collect(),
                shards: (0..usize::from(shape.shards)).map(|space| server(host, space)).collect(),
            };
            let mut settings = Settings::new(routes, placement);
            adjust(&mut settings);
            let servers = placement.spaces().map(|space| Server {
                znodes: Znodes::new(space, placement, host as u64),
                at: 0,
                executed: 0,
                reads: VecDeque::new(),
                readers: Vec::new(),
                reported: 0,
            });
            Host {
                gateway: Gateway::new(settings),
                node: NodeId::new(HostId(host as u32 + 1), HostSlot(1)),
                effects: Effects::new(Position(0), false),
                turn_due: false,
                servers: servers.collect(),
            }
        });
        let mut cluster = Self {
            rng: Rng::seeded(shape.seed),
            now: Instant(1),
            hosts: hosts.collect(),
            homes: homes.collect(),
            log: Vec::new(),
            numbers: vec![0; usize::from(shape.shards)],
            gsn: 0,
            outputs: BTreeMap::new(),
            written: BTreeMap::new(),
            closed: BTreeMap::new(),
            paused: BTreeMap::new(),
            next_slot: 1000,
            held: Vec::new(),
            loss: 0.0,
            rejected: Vec::new(),
            deaf: false,
            pending: VecDeque::new(),
            placement,
            layout: Layout::at_bootstrap(shape.groups, shape.shards),
            deaf_group: None,
            pages: Vec::new(),
            holds_follow_ups: false,
            follow_ups: VecDeque::new(),
        };
        for host in 0..cluster.hosts.len() {
            cluster.call(host, |gateway, cx| gateway.on_start(cx));
        }
        cluster.settle();
        cluster
    }

    /// The host's server says where the gateway is to be reached.
    pub(crate) fn advertise(&mut self, host: usize, body: Vec<u8>) {
        self.host_call(host, HostCall { advertises: Some(body.into()), facts: None, probes: false });
    }

    /// A call of the host's server.
    pub(crate) fn host_call(&mut self, host: usize, call: HostCall) {
        self.call(host, |gateway, cx| gateway.on_request(RequestId(0), call.encoded().into(), cx));
        self.settle();
    }

    fn call(&mut self, host: usize, call: impl FnOnce(&mut Gateway, &mut Cx<'_, Gateway>)) {
        let wall = 1_700_000_000_000_000_000 + self.now.0;
        let (found, beacons) = (&mut self.hosts[host], kernel::Beacons::default());
        let mut cx = Cx::new(
            Situation {
                node: found.node,
                now: self.now,
                wall: Wall::between(wall, wall),
                rng: &mut self.rng,
                disk_full: false,
                beacons: &beacons,
            },
            &mut found.effects,
        );
        call(&mut found.gateway, &mut cx);
        found.gateway.on_burst_end(&mut cx);
        self.hosts[host].effects.clear_records();
        let effects: Vec<_> = self.hosts[host].effects.drain().collect();
        for effect in effects {
            match effect {
                // Journals are durable at once here.
                Effect::Send { to, message }
                | Effect::SendDurable { to, message, .. }
                | Effect::SetBeacon { to, message }
                | Effect::Repeat { to, message, .. } => {
                    self.deliver(host, to, message);
                }
                Effect::Reject { reason } => self.rejected.push(reason),
                Effect::SetTimer { after, .. } if after.as_millis() < 50 => self.hosts[host].turn_due = true,
                _ => {}
            }
        }
    }

    fn deliver(&mut self, host: usize, to: NodeId, message: MasonMessage) {
        // What a gateway sends passes the codec, as it will on a wire.
        let bytes = Bytes::from(kernel::Encode::encoded(&message));
        assert_eq!(<MasonMessage as kernel::Decode>::decoded(&bytes), Ok(message.clone()));
        match message {
            MasonMessage::Proxy(ProxyIn::Gateway(FromGateway::SubmitOperations(submit))) => {
                let group = (to.host_slot().0 - 100) as usize;
                if self.deaf_group != Some(Group(group as u16)) && !self.rng.chance(self.loss) {
                    for operation in submit.operations {
                        self.on_operation(group, operation);
                    }
                }
            }
            MasonMessage::Proxy(ProxyIn::Gateway(FromGateway::Barrier(barrier))) => {
                let group = Group((to.host_slot().0 - 100) as u16);
                if self.deaf_group == Some(group) {
                    return;
                }
                // All hosts hold the whole log at any time here, and execute it when they like.
                self.notify(
                    host,
                    GatewayIn::from(BarrierPassed {
                        group,
                        id: barrier.id,
                        layout: Some(self.layout.clone()),
                    }),
                );
            }
            MasonMessage::Shard(ShardIn::ReadShard(read)) => {
                let (space, length) = ((to.host_slot().0 - 200) as usize, self.log.len());
                let reader = self.hosts[host].node;
                let limits = read.limits.unwrap_or_default().into_iter().chain(std::iter::repeat(u64::MAX));
                let reads = read.reads.into_iter().zip(limits).collect();
                self.hosts[host].servers[space].reads.push_back(Asked {
                    length,
                    at_least: read.at_least.0,
                    reader,
                    reads,
                });
            }
            MasonMessage::Shard(ShardIn::Attach(_)) => {
                let (space, reader) = ((to.host_slot().0 - 200) as usize, self.hosts[host].node);
                let server = &mut self.hosts[host].servers[space];
                server.znodes.forget_reader(reader);
                server.readers.push(reader);
            }
            MasonMessage::Connection(ConnectionIn::Output(output)) => {
                *self.written.entry(to).or_default() += output.bytes.len() as u64;
                self.outputs.entry(to).or_default().extend_from_slice(&output.bytes);
            }
            MasonMessage::Connection(ConnectionIn::Close(close)) => {
                self.closed.insert(to, close.reason);
            }
            MasonMessage::Connection(ConnectionIn::Pause(pause)) => {
                self.paused.insert(to, pause.paused);
            }
            MasonMessage::Sequencer(_)
            | MasonMessage::Client(_)
            | MasonMessage::Log(_)
            | MasonMessage::Proxy(_)
            | MasonMessage::Shard(_) => panic!("a gateway sent {message:?}"),
        }
    }

    /// Messages to a gateway come later, in order: they are queued behind what is called now.
    fn notify(&mut self, host: usize, message: GatewayIn) {
        let from = NodeId::ZERO;
        self.pending.push_back((host, from, message));
    }

    fn on_operation(&mut self, group: usize, operation: mason::Operation) {
        let expected =
            self.homes[group].expected.entry(operation.origin).or_insert((operation.incarnation, 1));
        if *expected != (operation.incarnation, operation.tag) {
            assert!(
                operation.tag <= expected.1 || self.loss > 0.0,
                "tag {} is not {expected:?}",
                operation.tag
            );
            return;
        }
        expected.1 += 1;
        let spaces = self.homes[group].stub.spaces(&operation.body, &self.layout.shard_map);
        let order = self.order(spaces);
        let mut out = StubOut::default();
        let now = GroupTime(self.homes[group].now);
        let verdict = self.homes[group].stub.apply(&operation.body, order.as_ref(), now, &mut out);
        let origin = (operation.origin, Group(group as u16), operation.incarnation, operation.tag);
        let elsewhere = out.is_elsewhere();
        let answer = self.carry_out(group, out);
        if let Some(body) = answer {
            self.answer(origin, Gsn(0), body);
        }
        if elsewhere && let Some(host) = self.hosts.iter().position(|host| host.node == origin.0) {
            let (_, group, incarnation, tag) = origin;
            let layout = self.layout.clone();
            self.notify(host, GatewayIn::from(Elsewhere { group, incarnation, tag, layout }));
        }
        if let Some(order) = order {
            let void = verdict == Verdict::Void;
            let origin = (!void).then_some(origin);
            self.log.push(Sequenced { order, body: operation.body, void, origin, inputs: BTreeMap::new() });
        }
    }

    fn order(&mut self, spaces: Vec<Space>) -> Option<Order> {
        assert!(spaces.is_sorted() && spaces.iter().all(|space| space.0 < self.placement.shards()));
        if spaces.is_empty() {
            return None;
        }
        // Global sequence numbers have holes.
        self.gsn += 1 + self.rng.below(3);
        let numbers = spaces.into_iter().map(|space| {
            let number = &mut self.numbers[usize::from(space.0)];
            *number += 1;
            Placed { space, number: Number(*number) }
        });
        let numbers = numbers.collect();
        Some(Order { numbers, gsn: Gsn(self.gsn), time: 1_700_000_000_000 + self.now.0 / 1_000_000 })
    }

    fn carry_out(&mut self, group: usize, out: StubOut) -> Option<Bytes> {
        let (answer, reports, follow_ups) = out.into_parts();
        for (to, body) in reports {
            if let Some(host) = self.hosts.iter().position(|host| host.node == to && !self.deaf) {
                self.notify(host, GatewayIn::from(GroupNotice { group: Group(group as u16), body }));
            }
        }
        self.follow_ups.extend(follow_ups.into_iter().map(|body| (group, body)));
        if !self.holds_follow_ups {
            self.follow_up();
        }
        answer
    }

    /// Everything that groups have ordered for themselves is applied.
    pub(crate) fn follow_up(&mut self) {
        while let Some((group, body)) = self.follow_ups.pop_front() {
            let spaces = self.homes[group].stub.spaces(&body, &self.layout.shard_map);
            let order = self.order(spaces);
            let mut out = StubOut::default();
            let now = GroupTime(self.homes[group].now);
            self.homes[group].stub.apply_follow_up(&body, order.as_ref(), now, &mut out);
            if let Some(order) = order {
                self.log.push(Sequenced { order, body, void: false, origin: None, inputs: BTreeMap::new() });
            }
            assert!(self.carry_out(group, out).is_none());
        }
    }

    fn answer(&mut self, (to, group, incarnation, tag): (NodeId, Group, u64, u64), gsn: Gsn, body: Bytes) {
        if let Some(host) = self.hosts.iter().position(|host| host.node == to) {
            let answers = vec![OperationAnswer { incarnation, tag, gsn, body }];
            self.notify(host, GatewayIn::from(Answers { group, answers }));
        }
    }

    /// One server does one thing, if it can.
    fn serve(&mut self, host: usize, space: usize) -> bool {
        let id = Space(space as u16);
        if self.held.contains(&(host, id)) {
            return false;
        }
        let server = &mut self.hosts[host].servers[space];
        if let Some(Asked { length, at_least, .. }) = server.reads.front() {
            let pending =
                self.log[server.at..].iter().enumerate().find(|(_, op)| op.order.number_in(id).is_some());
            let behind = pending
                .is_some_and(|(skipped, op)| server.at + skipped < *length || op.order.gsn.0 <= *at_least);
            // A read may be served later than it could.
            if !behind && *at_least <= self.gsn && (server.at == self.log.len() || self.rng.chance(0.3)) {
                self.answer_reads(host, space);
                return true;
            }
        }
        let server = &mut self.hosts[host].servers[space];
        let Some(sequenced) = self.log.get_mut(server.at) else { return self.progress(host, space) };
        if sequenced.order.number_in(id).is_none() {
            server.at += 1;
            return true;
        }
        if !sequenced.inputs.contains_key(&id) && !sequenced.void {
            let mut inputs = Vec::new();
            server.znodes.inputs(&sequenced.body, &sequenced.order, &mut inputs);
            sequenced.inputs.insert(id, inputs.into());
            return true;
        }
        if !sequenced.void && sequenced.inputs.len() < sequenced.order.numbers.len() {
            return false;
        }
        self.execute(host, space);
        true
    }

    fn execute(&mut self, host: usize, space: usize) {
        let id = Space(space as u16);
        let server = &mut self.hosts[host].servers[space];
        let sequenced = &mut self.log[server.at];
        server.at += 1;
        server.executed = sequenced.order.gsn.0;
        if sequenced.void {
            return;
        }
        let mut own = Vec::new();
        server.znodes.inputs(&sequenced.body, &sequenced.order, &mut own);
        assert_eq!(sequenced.inputs[&id], own, "replicas differ in what they send others");
        let others: Vec<(Space, Bytes)> = sequenced
            .inputs
            .iter()
            .filter(|(of, _)| **of != id)
            .map(|(of, bytes)| (*of, bytes.clone()))
            .collect();
        let mut out = ShardOut::default();
        server.znodes.execute(&sequenced.body, &sequenced.order, &others, &mut out);
        let (answer, notices) = out.into_parts();
        let (gsn, first) = (sequenced.order.gsn, sequenced.order.numbers[0].space == id);
        let origin = sequenced.origin.filter(|_| first);
        for (to, body) in notices {
            assert_eq!(to, self.hosts[host].node);
            self.notify(host, GatewayIn::from(GatewayNotice { space: id, gsn, body }));
        }
        if let Some(origin) = origin.filter(|(to, ..)| *to == self.hosts[host].node) {
            self.answer(origin, gsn, answer.into());
        }
    }

    fn answer_reads(&mut self, host: usize, space: usize) {
        let server = &mut self.hosts[host].servers[space];
        let Some(Asked { reader, reads, .. }) = server.reads.pop_front() else { return };
        let (mut answers, mut withheld) = (Vec::new(), Vec::new());
        for (query, limit) in reads {
            if let Some(bytes) = server.znodes.answer_bytes(&query.body).filter(|&bytes| bytes as u64 > limit)
            {
                withheld.push((query.tag, bytes as u64));
                continue;
            }
            let mut body = Vec::new();
            server.znodes.read(reader, &query.body, &mut body);
            if body.len() as u64 > limit {
                withheld.push((query.tag, body.len() as u64));
            } else {
                answers.push(ReadAnswer { tag: query.tag, body: body.into() });
            }
        }
        let (space, executed, withheld) = (Space(space as u16), Gsn(server.executed), Some(withheld));
        self.notify(host, GatewayIn::from(ReadAnswers { space, executed, answers, refused: None, withheld }));
    }

    /// Nothing is left to execute: everything up to the last global sequence number is covered.
    fn progress(&mut self, host: usize, space: usize) -> bool {
        let through = self.gsn;
        let server = &mut self.hosts[host].servers[space];
        if server.reported == through || server.readers.is_empty() {
            return false;
        }
        server.reported = through;
        self.notify(host, GatewayIn::from(Progress { space: Space(space as u16), through: Gsn(through) }));
        true
    }

    /// Somebody does one thing, or has nothing to do.
    fn step(&mut self) -> bool {
        if self.rng.chance(0.5)
            && let Some((host, from, message)) = self.pending.pop_front()
        {
            self.call(host, |gateway, cx| gateway.on_message(from, message, cx));
            return true;
        }
        let (host, space) = (self.rng.index(self.hosts.len()), self.rng.index(self.numbers.len()));
        self.serve(host, space)
    }

    /// A few things happen.
    pub(crate) fn work(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// Lets everybody work, in an order that the dice choose, until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        let (hosts, shards) = (self.hosts.len(), self.numbers.len());
        let mut idle = 0;
        while idle < 3 * hosts * shards || !self.pending.is_empty() {
            idle = if self.step() { 0 } else { idle + 1 };
            if idle >= 3 * hosts * shards {
                // The dice may have passed somebody over.
                let all = (0..hosts).flat_map(|host| (0..shards).map(move |space| (host, space)));
                let served = all.collect::<Vec<_>>().into_iter().any(|(host, space)| self.serve(host, space));
                if served || self.next_turns() {
                    idle = 0;
                }
            }
        }
    }

    /// Gateways that have put something off go on; false if none has.
    fn next_turns(&mut self) -> bool {
        let due: Vec<usize> = (0..self.hosts.len()).filter(|&host| self.hosts[host].turn_due).collect();
        self.now.0 += if due.is_empty() { 0 } else { 1_000_000 };
        for &host in &due {
            self.hosts[host].turn_due = false;
            self.call(host, |gateway, cx| {
                gateway.on_timer(coordination::gateway::GatewayTimer::Turn, cx);
            });
        }
        !due.is_empty()
    }

    /// Time passes; gateways and groups notice every 50 ms.
    pub(crate) fn pass(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(50) {
            self.now.0 += 50_000_000;
            for host in 0..self.hosts.len() {
                self.call(host, |gateway, cx| {
                    gateway.on_timer(coordination::gateway::GatewayTimer::Tick, cx)
                });
            }
            for group in 0..self.homes.len() {
                self.homes[group].now += 50;
                self.clock(group, false);
            }
            self.settle();
        }
    }

    pub(crate) fn metrics(&self, host: usize) -> coordination::gateway::Metrics {
        self.hosts[host].gateway.metrics()
    }

    pub(crate) fn space_of(&self, path: &str) -> Space {
        self.placement.space_of(path)
    }
}
