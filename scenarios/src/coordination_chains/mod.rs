//! The coordination service over FuzzyLog: real gateways, sessions and shards of znodes, and the users of the family over Mason.

mod looks;
mod node;

// Users are the same over both engines.
#[path = "../coordination/asking.rs"]
mod asking;
#[path = "../coordination/connections.rs"]
mod connections;
#[path = "../coordination/judging.rs"]
mod judging;

use crate::coordination::ephemerals;
use crate::coordination::judged::{JudgedSessions, JudgedTree, SharedTree};
use crate::coordination::user::User;
use crate::coordination::{Socket, checks, seldom, user, words, workload};
use crate::fuzzylog::draw_segment_bytes;
use crate::limits::{self, OPERATION_BYTES_MAX, Sizes};
use crate::moments::operator;
use ::fuzzylog::{FuzzyDeployment, FuzzyMember, FuzzyParameters};
use ::mason::proxy::arranging::ProxyCall;
use ::mason::shard::ShardServer;
use ::mason::{Deployment, Layout, MasonMember, MasonParameters, ProxyGroup, Space, Topology};
use checks::Checks;
use coordination::feeder::{TreeFeeder, TreeFeederNode, TreeFeederPlan};
use coordination::home::GROUP;
use coordination::{Consistency, Gateway, HomeShard, Placement, Routes, SessionSettings, Settings};
use kernel::client::Response;
use kernel::{Bytes, Embedded, Encode as _, HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use looks::{Living, Servers};
use node::{ChainedSeat as Seat, HomeOrSocket};
use parts::ReplyBounds;
use sim::{
    Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, Loss, OperationId, Scenario, StrikeKind,
    Tuning,
};
use std::sync::Arc;
use std::time::Duration;

/// As the files that both families share name it.
type CoordinationScenario = CoordinationChainsScenario;

/// One cluster with its users, drawn from a seed.
pub struct CoordinationChainsScenario {
    hosts: Vec<HostId>,
    /// Where the users' operations wait; the users themselves are the scenario.
    desk: HostId,
    /// Where gateways and shards are.
    over: Deployment,
    chain: FuzzyDeployment,
    topology: Arc<Topology>,
    parameters: MasonParameters,
    retained_bytes_max: u64,
    node_bytes: usize,
    placement: Placement,
    sessions: SessionSettings,
    consistency: Consistency,
    replies: ReplyBounds,
    users: Vec<User>,
    rng: Rng,
    sizes: Sizes,
    values: u64,
    checks: Checks,
    undecided: bool,
    servers: Servers,
    living: Living,
    ephemerals: ephemerals::Ephemerals,
    core: Vec<HostId>,
    healed_at: Option<u64>,
    /// What the znodes of all shards must be.
    tree: SharedTree,
    asks_seldom: bool,
    /// The requests for other shards that are not answered.
    reshardings: Vec<RequestId>,
}

const REAP_EVERY: Duration = Duration::from_secs(3);
const SOCKETS: u32 = 0x8000;
const DESKS: u32 = 0x9000;
/// A user's connections to one host take turns among so many nodes, so that what one was sent late is not another's.
const SOCKETS_PER_USER: u32 = 8;
const TICK: Duration = Duration::from_millis(150);
/// How long after the heal all must be at rest: less than a core has to converge.
const AT_REST_AFTER: Duration = Duration::from_secs(110);
const AT_REST: u64 = 1 << 32;
/// Behind the slots of gateways and shards.
const CHAIN_FROM: u32 = 0x0010_0000;
const HOME: HostSlot = HostSlot(CHAIN_FROM + 0x8000);

/// What a sweep must reach.
const MARKS: &[&str] = &[
    "coordination.closed_a_session",
    "coordination.heard_an_event",
    "coordination.heard_from_below",
    "coordination.heard_of_a_missed_event",
    "coordination.held_the_lock",
    "coordination.learned_of_a_shard_map",
    "coordination.lost_a_session",
    "coordination.multi_was_done",
    "coordination.multi_was_refused",
    "coordination.set_watches_again",
    "coordination.turned_a_stranger_away",
    "coordination.version_did_not_match",
    "shard.gave_watches_away",
    "shard.handed_over_to_fewer",
    "shard.handed_over_to_more",
    "shard.took_a_snapshot_from_a_peer",
    "shard.wrote_a_snapshot",
    "tree_feeder.began_to_read_the_clock",
    "tree_feeder.found_nodes_trimmed",
    "tree_feeder.hurried_the_shards",
    "tree_feeder.left_out_what_is_void",
    "tree_feeder.packed_operations",
    "tree_feeder.played_again_what_a_server_lacked",
    "tree_feeder.read_the_clock",
    "tree_feeder.resharded",
    "tree_feeder.synced_for_a_barrier",
    "tree_feeder.trimmed_the_colour",
];

const STRIKES: [StrikeKind; 8] = [
    StrikeKind { name: "break a user's connection", class: Class::Strike },
    StrikeKind { name: "kill a user's host", class: Class::Strike },
    StrikeKind { name: "silence a user until its session is over", class: Class::Strike },
    StrikeKind { name: "kill everybody", class: Class::Strike },
    StrikeKind { name: "kill a host for long", class: Class::Strike },
    StrikeKind { name: "pause a host", class: Class::Strike },
    StrikeKind { name: "spread the tree over other shards", class: Class::Strike },
    StrikeKind { name: "close a session and come back", class: Class::Strike },
];

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn send(to: NodeId, kind: u8, bytes: &[u8], control: &mut Control<'_, Seat>) {
    control.request(to, [&[kind], bytes].concat().into());
}

fn draw_chain(rng: &mut Rng) -> FuzzyParameters {
    let ms = Duration::from_millis;
    FuzzyParameters {
        tick: ms(rng.between(5, 30)),
        resend_after: ms(rng.between(30, 150)),
        stuck_after: ms(rng.between(50, 400)),
        back_off_max: ms(rng.between(20, 200)),
        suspect_after: ms(rng.between(80, 400)),
        seal_for: ms(rng.between(20, 200)),
        start_for: ms(rng.between(50, 300)),
        behind_max: rng.between(0, 20),
        append_bytes_max: OPERATION_BYTES_MAX + (2 << 10),
        page_bytes: 256 << rng.below(5),
        window_bytes: 12_000 << rng.below(4),
        snapshot_every_bytes: 1_000 << rng.below(6),
        snapshot_chunk_bytes: 512 << rng.below(3),
        segment_bytes: draw_segment_bytes(rng),
        row_memory_bytes: 200 << rng.below(6),
        replicas_min: 2,
        ..FuzzyParameters::default()
    }
}

impl CoordinationChainsScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let ms = Duration::from_millis;
        let entries: Vec<paxos::HostEntry> = (0..3).map(operator::entry).collect();
        let hosts: Vec<HostId> = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let shards = rng.between(1, 4) as u16;
        let room = rng.between(u64::from(shards), 5) as u16;
        let log = paxos::Parameters {
            election_timeout: ms(rng.between(150, 400)),
            heartbeat_every: ms(rng.between(15, 40)),
            resend_after: ms(rng.between(50, 150)),
            snapshot_every_bytes: 2_000 << rng.below(6),
            retained_bytes_max: 4_000 << rng.below(6),
            ..paxos::Parameters::default()
        };
        let parameters = MasonParameters {
            clock_every: ms(rng.between(100, 300)),
            ask_after: ms(rng.between(20, 80)),
            snapshot_every_bytes: 2_000 << rng.below(6),
            snapshot_chunk_bytes: 256 << rng.below(4),
            page_bytes: 128 << rng.below(7),
            // Where nobody waits for the last server, it has to take a snapshot.
            wait_for_last: if rng.chance(0.5) { Duration::ZERO } else { ms(500) },
            ..MasonParameters::default()
        };
        let (parameters, log) = limits::fit(parameters, log);
        let over = Deployment::new(entries.clone(), 1, shards, 0, parameters.clone(), log.clone())
            .with_room_for(1, room);
        let chain = FuzzyDeployment::new(CHAIN_FROM, &entries, 1, (3, 3), draw_chain(rng), log);
        let mut servers = over.topology().shards.clone();
        servers.push(hosts.iter().map(|&host| NodeId::new(host, HOME)).collect());
        let topology = Topology {
            version: 0,
            groups: vec![ProxyGroup { proxies: hosts.iter().map(|&host| chain.client_of(host)).collect() }],
            layout: Layout::at_bootstrap(1, shards),
            sequencers: Vec::new(),
            shards: servers,
        };
        let placement = Placement::new(shards).resharding(rng.below(3) as u16);
        let users =
            (0..rng.between(3, 6)).map(|_| User::new(rng.between(1_500, 6_000) as i32, rng.chance(0.5)));
        Self {
            users: users.collect(),
            desk: HostId::named("users"),
            hosts,
            over,
            chain,
            topology: Arc::new(topology),
            parameters,
            retained_bytes_max: 2_000 << rng.below(8),
            node_bytes: 64 << rng.below(8),
            placement,
            sessions: SessionSettings::new(placement, [7; 32]),
            consistency: if rng.chance(0.75) { Consistency::Linearizable } else { Consistency::Sequential },
            replies: ReplyBounds { bytes_max: 4_000 << rng.below(6), free_bytes: 64 << rng.below(5) },
            rng: Rng::seeded(rng.bits()),
            sizes: Sizes::draw(rng),
            values: 0,
            checks: Checks::default(),
            undecided: false,
            servers: Servers::default(),
            living: Living::default(),
            ephemerals: ephemerals::Ephemerals::default(),
            core: Vec::new(),
            healed_at: None,
            tree: SharedTree::new(),
            asks_seldom: rng.chance(0.25),
            reshardings: Vec::new(),
        }
    }

    /// The roles of the service on a host, in its incarnation of this number.
    fn members_on(&self, host: HostId, number: u64) -> Vec<(HostSlot, Seat)> {
        let (servers, gateway) = (self.over.servers_of(host), self.over.gateway_of(host));
        let (topology, parameters) = (&self.topology, &self.parameters);
        let (room, feeder) = (servers.len() as u16, self.chain.client_of(host));
        let member = |member: node::TreeMember| Seat::Tree(Box::new(Embedded::new(member)));
        let mut nodes = Vec::new();
        for (space, server) in (0..).map(Space).zip(&servers) {
            let state = JudgedTree::new(space, self.placement, number, self.tree.clone());
            let role = ShardServer::new(space, topology.clone(), parameters.clone(), state);
            nodes.push((server.host_slot(), member(MasonMember::Shard(Box::new(role)))));
        }
        let sessions = JudgedSessions::new(GROUP, self.sessions.clone());
        let home = HomeShard::of(sessions, room, feeder, self.topology.layout.shard_map.shards);
        let home = ShardServer::new(Space(room), topology.clone(), parameters.clone(), home);
        nodes.push((HOME, Seat::Beside(Box::new(Embedded::new(HomeOrSocket::Home(Box::new(home)))))));
        let routes = Routes { proxies: vec![feeder], shards: servers };
        let settings = Settings {
            session_timeouts: user::TIMEOUTS,
            consistency: self.consistency,
            replies: self.replies,
            layout: self.topology.layout.clone(),
            reap_every: REAP_EVERY,
            ..Settings::new(routes, self.placement)
        };
        let role = MasonMember::Gateway(Box::new(Gateway::new(settings)));
        nodes.push((gateway.host_slot(), member(role)));
        for (slot, role) in self.chain.build(host) {
            let node = match role {
                FuzzyMember::Client(client) => {
                    let feeder = TreeFeeder::new(TreeFeederPlan {
                        client: *client,
                        topology: topology.clone(),
                        gateway,
                        sessions: self.sessions.clone(),
                        clock_every: parameters.clock_every,
                        wait_for_last: parameters.wait_for_last,
                        retained_bytes_max: self.retained_bytes_max,
                        node_bytes: self.node_bytes,
                    });
                    Seat::Feeder(Box::new(Embedded::new(TreeFeederNode::Feeder(Box::new(feeder)))))
                }
                role @ (FuzzyMember::ChainServer(_) | FuzzyMember::Director(_) | FuzzyMember::Log(_)) => {
                    Seat::Chain(Box::new(Embedded::new(role)))
                }
            };
            nodes.push((slot, node));
        }
        nodes
    }

    fn value(&mut self) -> String {
        self.values += 1;
        // One in eight is long.
        let padding = if self.rng.chance(0.125) { self.rng.below(1_500) as usize } else { 0 };
        let value = format!("v{}{:.<padding$}", self.values, "");
        // A transaction writes its value twice.
        self.sizes.stretch(value, OPERATION_BYTES_MAX / 2, &mut self.rng)
    }

    fn desk_of(&self, user: usize) -> NodeId {
        NodeId::new(self.desk, HostSlot(DESKS + user as u32))
    }

    fn user_of(&self, desk: NodeId) -> usize {
        (desk.host_slot().0 - DESKS) as usize
    }

    fn is_linearizable(&self) -> bool {
        self.consistency == Consistency::Linearizable
    }

    /// Where users may connect.
    fn hosts_to_try(&mut self) -> Vec<HostId> {
        if self.healed_at.is_some() { self.core.clone() } else { self.hosts.clone() }
    }

    /// A user's connection is broken: nothing else was planned for it.
    fn forget_what_was_planned(&mut self, _number: usize) {}

    /// No user of this family only pings.
    fn is_quiet(&self, _number: usize) -> bool {
        false
    }

    /// None says nothing at all.
    fn is_silent(&self, _number: usize) -> bool {
        false
    }

    fn end_quiet(&mut self, _number: usize, _control: &mut Control<'_, Seat>) {}

    /// No answers of this family are lost one by one.
    fn is_disconnected(&self, _number: usize, _control: &mut Control<'_, Seat>) -> bool {
        false
    }

    fn spread_over_others(&mut self, rng: &mut Rng, control: &mut Control<'_, Seat>) -> bool {
        let room = (self.topology.shards.len() - 1) as u64;
        let (shards, host) = (rng.between(1, room) as u16, *rng.pick(&self.hosts).unwrap_or(&self.hosts[0]));
        if room < 2 || !control.cluster.is_up(host) {
            return false;
        }
        let call = ProxyCall::SetShards(shards).encoded().into();
        self.reshardings.push(control.request(self.chain.client_of(host), call));
        true
    }
}

impl Scenario for CoordinationChainsScenario {
    type Node = Seat;

    const FAMILY: &'static str = "coordination-chains";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        let servers = self.hosts.iter().map(|&host| HostSpec::server(host));
        servers.chain([HostSpec::client(self.desk)]).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        (0..self.users.len()).map(|user| self.desk_of(user)).collect()
    }

    fn classes(&self) -> Classes {
        Classes::PHYSICAL.with(Class::Strike)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning {
            safety: (s(10), s(40)),
            busy_at_least: Some(s(5)),
            operations: (30, 200),
            liveness: s(120),
            bounds: limits::BOUNDS,
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Seat)> {
        self.servers.forget(incarnation.host);
        self.ephemerals.forget(incarnation.host);
        self.living.forget(incarnation.host);
        let socket = |slot| {
            let socket = HomeOrSocket::Socket(Socket::default());
            (HostSlot(slot), Seat::Beside(Box::new(Embedded::new(socket))))
        };
        let users = self.users.len() as u32;
        if incarnation.host == self.desk {
            return (0..users).map(|user| socket(DESKS + user)).collect();
        }
        let members = self.members_on(incarnation.host, u64::from(incarnation.number)).into_iter();
        members.chain((0..users * SOCKETS_PER_USER).map(|number| socket(SOCKETS + number))).collect()
    }

    fn blank_nodes(&self, host: HostId) -> Vec<(HostSlot, Seat)> {
        if host == self.desk { Vec::new() } else { self.members_on(host, 0) }
    }

    fn on_begin(&mut self, control: &mut Control<'_, Seat>) {
        for user in 0..self.users.len() {
            control.alarm(TICK, user as u64);
        }
    }

    fn operate(&mut self, _: OperationId, desk: NodeId, rng: &mut Rng, control: &mut Control<'_, Seat>) {
        let number = self.user_of(desk);
        let ticket = control.request(desk, Bytes::from_static(&[node::HOLD]));
        self.users[number].ticket = Some(ticket);
        if self.users[number].task.is_none() {
            let value = self.value();
            let mut task = workload::draw(&self.users[number], number, value, rng);
            if self.asks_seldom && rng.chance(0.3) {
                task.asks.push_back(seldom::draw(&self.users[number], rng));
            }
            self.users[number].task = Some(task);
        }
        self.pump(number, control);
    }

    fn on_response(&mut self, _: NodeId, id: RequestId, answer: Response, control: &mut Control<'_, Seat>) {
        self.reshardings.retain(|asked| *asked != id);
        let polls = |user: &User| user.link.as_ref().is_some_and(|link| link.poll == id);
        if let Some(number) = self.users.iter().position(polls) {
            self.hear(number, &answer.0, control);
        }
    }

    fn on_lost(&mut self, _node: NodeId, id: RequestId) {
        self.reshardings.retain(|asked| *asked != id);
        for number in 0..self.users.len() {
            let user = &mut self.users[number];
            user.ticket.take_if(|ticket| *ticket == id);
            if user.link.as_ref().is_some_and(|link| link.poll == id) {
                let at = user.retry_at;
                self.disconnect(number, at, None);
            }
        }
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, Seat>) {
        if token == AT_REST {
            let lost = self.users.iter().find_map(|user| self.checks.lost_watch(user, true));
            invariant!(WATCH, lost.is_none(), "{lost:?}");
            for host in self.core.clone() {
                let sound = looks::sound(host, &control.cluster);
                invariant!(ATOMIC, sound.is_ok(), "{sound:?}");
            }
            return;
        }
        let number = token as usize;
        self.tick(number, control);
        self.pump(number, control);
        control.alarm(TICK, token);
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Seat>) {
        if host == self.desk {
            return;
        }
        let now = cluster.now();
        for session in self.living.check_host(host, cluster) {
            self.servers.note_over(session, now);
        }
        if self.servers.check_host(host, cluster) {
            let there = |user: &&mut User| user.link.as_ref().is_some_and(|link| link.host == host);
            self.users.iter_mut().filter(there).for_each(|user| user.lasting.skipped(now));
        }
        for deleted in self.ephemerals.look(looks::shards(cluster.called_nodes_of(host)), now) {
            self.checks.on_deleted(&deleted);
        }
        looks::check_trims(&self.hosts, host, cluster);
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Seat>) -> bool {
        let (number, now) = (rng.index(self.users.len()), control.cluster.now());
        let down = rng.duration(Duration::from_millis(50), Duration::from_secs(2));
        let any = *rng.pick(&self.hosts).unwrap_or(&self.hosts[0]);
        let host = self.users[number].link.as_ref().map(|link| link.host);
        match (which, host) {
            (0, Some(_)) => self.disconnect(number, now, Some(control)),
            (1, Some(host)) => control.crash(host, Loss::All, down, rng),
            (2, Some(_)) => {
                self.disconnect(number, now, Some(control));
                let user = &mut self.users[number];
                user.retry_at = now + user.session.as_ref().map_or(0, |it| it.timeout) / 2 * 3;
            }
            (3, _) => control.crash_all(self.hosts.iter().copied(), Loss::All, rng),
            (4, _) => control.crash(any, Loss::All, 5 * down, rng),
            (5, _) => control.pause(any, down),
            (6, _) => return self.spread_over_others(rng, control),
            (7, Some(_)) => {
                self.say(number, words::Ask::Close, false, control);
                self.disconnect(number, now, None);
                self.users[number].retry_at = now + nanos(down / 50);
            }
            _ => return false,
        }
        true
    }

    fn core(&mut self, cluster: &Cluster<'_, Seat>, _rng: &mut Rng) -> Core {
        let sound = self.hosts.iter().copied().filter(|&host| !cluster.is_lost(host));
        Core::Hosts(sound.chain([self.desk]).collect())
    }

    fn on_heal(&mut self, core: &[HostId], control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        self.core = core.iter().copied().filter(|&host| host != self.desk).collect();
        self.healed_at = Some(now);
        self.users.iter_mut().for_each(|user| user.retry_at = now);
        control.alarm(AT_REST_AFTER, AT_REST);
    }

    fn converged(&self, _core: &[HostId], cluster: &Cluster<'_, Seat>) -> Result<(), String> {
        looks::agreed(cluster)?;
        if let Some(lost) = self.users.iter().find_map(|user| self.checks.lost_watch(user, true)) {
            return Err(lost);
        }
        self.core.iter().try_for_each(|&host| looks::sound(host, cluster))
    }

    fn describe(&self, cluster: &Cluster<'_, Seat>) -> String {
        looks::describe(cluster)
    }

    fn finish(&mut self, _cluster: &Cluster<'_, Seat>) {
        (0..self.users.len()).for_each(|number| self.check_watches(number));
        self.undecided = !self.checks.check();
    }

    fn is_undecided(&self) -> bool {
        self.undecided
    }

    fn history(&self) -> Option<String> {
        self.checks.to_text()
    }
}
