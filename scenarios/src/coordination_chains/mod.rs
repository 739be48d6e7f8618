//! The coordination service over FuzzyLog: real gateways, sessions and shards of znodes, and the users of the family over Mason.

mod drawn;
mod looks;
mod node;

// Users are the same over both engines, and the scenario around them is another type.
#[expect(clippy::duplicate_mod, reason = "users are the same")]
#[path = "../coordination/asking.rs"]
mod asking;
#[expect(clippy::duplicate_mod, reason = "users are the same")]
#[path = "../coordination/connections.rs"]
mod connections;
#[expect(clippy::duplicate_mod, reason = "users are the same")]
#[path = "../coordination/cutting.rs"]
mod cutting;
#[expect(clippy::duplicate_mod, reason = "users are the same")]
#[path = "../coordination/judging.rs"]
mod judging;
#[expect(clippy::duplicate_mod, reason = "users are the same")]
#[path = "../coordination/quiet.rs"]
mod quiet;

use crate::coordination::ephemerals;
use crate::coordination::judged::SharedTree;
use crate::coordination::user::User;
use crate::coordination::{Socket, checks, seldom, user, words, workload};
use crate::limits::{self, OPERATION_BYTES_MAX, Sizes};
use ::fuzzylog::FuzzyDeployment;
use ::mason::proxy::arranging::ProxyCall;
use ::mason::{Deployment, MasonParameters, Topology};
use checks::Checks;
use coordination::{Consistency, Placement, SessionSettings};
use cutting::Cutting;
use kernel::client::Response;
use kernel::{Bytes, Embedded, Encode as _, HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use looks::{Living, Served, Servers};
use node::{ChainedSeat as Seat, HomeOrSocket};
use parts::ReplyBounds;
use quiet::Quiet;
use sim::{
    Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, Loss, OperationId, Replacement, Scenario,
    StrikeKind, Tuning,
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
    served: Served,
    cutting: Option<Cutting>,
    quiet: Option<Quiet>,
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
    "scenario.left_a_quiet_user_with_a_partitioned_host",
    "scenario.lost_answers_one_by_one_and_as_a_whole",
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

const STRIKES: [StrikeKind; 9] = [
    StrikeKind { name: "break a user's connection", class: Class::Strike },
    StrikeKind { name: "kill a user's host", class: Class::Strike },
    StrikeKind { name: "silence a user until its session is over", class: Class::Strike },
    StrikeKind { name: "kill everybody", class: Class::Strike },
    StrikeKind { name: "kill a host for long", class: Class::Strike },
    StrikeKind { name: "pause a host", class: Class::Strike },
    StrikeKind { name: "spread the tree over other shards", class: Class::Strike },
    StrikeKind { name: "close a session and come back", class: Class::Strike },
    StrikeKind { name: "lose a pipelining user's answers one by one", class: Class::Strike },
];

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn send(to: NodeId, kind: u8, bytes: &[u8], control: &mut Control<'_, Seat>) {
    control.request(to, [&[kind], bytes].concat().into());
}

impl CoordinationChainsScenario {
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

    /// A user's connection is broken.
    fn forget_what_was_planned(&mut self, number: usize) {
        self.quiet.take_if(|quiet| quiet.is_of(number));
    }

    /// No user of this family says nothing at all.
    fn is_silent(&self, _number: usize) -> bool {
        false
    }

    fn hosts_ever(&self) -> Vec<HostId> {
        self.hosts.clone()
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
        Classes::PHYSICAL.with(Class::Strike).with(Class::DiskLost)
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
            let pipelined = self.pipelined_by(number);
            let mut task =
                pipelined.unwrap_or_else(|| workload::draw(&self.users[number], number, value, rng));
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
            (8, _) => self.cutting = Some(Cutting::draw(number, rng)),
            _ => return false,
        }
        true
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Seat>) -> bool {
        host != self.desk && looks::bears_a_loss(&self.hosts, cluster)
    }

    fn on_disk_lost(&mut self, _host: HostId, _cluster: &Cluster<'_, Seat>) -> Replacement {
        Replacement::StayDown
    }

    fn core(&mut self, cluster: &Cluster<'_, Seat>, rng: &mut Rng) -> Core {
        let mut sound: Vec<HostId> =
            self.hosts.iter().copied().filter(|&host| !cluster.is_lost(host)).collect();
        if looks::bears_a_loss(&self.hosts, cluster) && rng.chance(0.5) {
            sound.swap_remove(rng.index(sound.len()));
        }
        Core::Hosts(sound.into_iter().chain([self.desk]).collect())
    }

    fn on_heal(&mut self, core: &[HostId], control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        self.core = core.iter().copied().filter(|&host| host != self.desk).collect();
        self.healed_at = Some(now);
        for number in 0..self.users.len() {
            let host = self.users[number].link.as_ref().map(|link| link.host);
            if host.is_some_and(|host| !self.core.contains(&host)) && !self.may_stay(number, control) {
                self.disconnect(number, now, Some(control));
            }
            self.users[number].retry_at = now;
        }
        control.alarm(AT_REST_AFTER, AT_REST);
    }

    fn converged(&self, _core: &[HostId], cluster: &Cluster<'_, Seat>) -> Result<(), String> {
        self.served.is_executed(&self.core, cluster)?;
        looks::agreed(&self.core, cluster)?;
        if let Some(lost) = self.users.iter().find_map(|user| self.checks.lost_watch(user, true)) {
            return Err(lost);
        }
        self.core.iter().try_for_each(|&host| looks::sound(host, cluster))
    }

    /// While there are sessions a reading of their clock is always on its way: what is left of users' operations is looked at by
    /// [`Served`].
    fn is_in_use(&self, node: NodeId, cluster: &Cluster<'_, Seat>) -> bool {
        let mut seat = cluster.nodes().filter(|(id, _)| *id == node);
        !seat.any(|(_, seat)| matches!(seat, Seat::Feeder(_) | Seat::Chain(_)))
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
