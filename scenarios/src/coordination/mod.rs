//! The coordination service: real gateways, sessions and shards of znodes over Mason, and users that speak ZooKeeper's bytes.

mod again;
mod asking;
pub(crate) mod calls;
pub(crate) mod checks;
mod connections;
mod cutting;
mod drawn;
pub(crate) mod ephemerals;
mod expiring;
mod handing;
pub(crate) mod judged;
mod judging;
pub(crate) mod lasting;
mod leaving;
mod living;
mod looking_back;
mod marks;
mod memory;
pub(crate) mod node;
mod quiet;
mod rest;
mod returning;
pub(crate) mod seldom;
mod striking;
pub(crate) mod user;
pub(crate) mod words;
pub(crate) mod workload;

pub use node::{Seat, Socket};

use crate::audit::{self, mason::MasonAudit};
use crate::limits::{self, OPERATION_BYTES_MAX, Sizes};
use crate::moments::ambush::Ambushes;
use crate::moments::arranging::{ASK_EVERY, Wishes};
use crate::moments::{membership::Changes, operator};
use checks::Checks;
use coordination::{Consistency, Gateway, HomeSessions, Placement, Routes, SessionSettings, Settings};
use cutting::Cutting;
use drawn::draw_parameters;
use ephemerals::Ephemerals;
use expiring::{EXPIRE_EVERY, Expiring, LET_EXPIRE, LOOK_AT_A_SESSION};
use judged::{JudgedSessions, JudgedTree, SharedTree};
use kernel::client::Response;
use kernel::{Bytes, HostId, HostSlot, NodeId, RequestId, Rng, invariant};
use leaving::{LEAVE, Leaving};
use living::Living;
use marks::{MARKS, STRIKES};
use mason::proxy::SpacesOf;
use mason::{Deployment, Group, HostParts, MasonMember, Stub as _};
use memory::Memory;
use parts::ReplyBounds;
use quiet::Quiet;
use rest::Servers;
use sim::{
    Class, Classes, Cluster, Control, Core, Fact, HostSpec, Incarnation, IsClaim, OperationId, Scenario,
    StrikeKind, Tuning,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use striking::is_bad;
use user::User;

/// One cluster with its users, drawn from a seed.
pub struct CoordinationScenario {
    hosts: Vec<HostId>,
    /// Where the users' operations wait; the users themselves are the scenario.
    desk: HostId,
    deployment: Deployment,
    placement: Placement,
    sessions: SessionSettings,
    consistency: Consistency,
    /// What users may be owed: often so little that a pipeline has to wait for it.
    replies: ReplyBounds,
    users: Vec<User>,
    rng: Rng,
    sizes: Sizes,
    values: u64,
    checks: Checks,
    /// The history was too hard to check.
    undecided: bool,
    servers: Servers,
    lost: BTreeSet<HostId>,
    changes: Changes,
    ambushes: Ambushes,
    cutting: Option<Cutting>,
    quiet: Option<Quiet>,
    expiring: Option<Expiring>,
    /// In some seeds where there is room for several groups.
    leaving: Option<Leaving>,
    ephemerals: Ephemerals,
    /// Users that are made busy write large values mostly.
    writes_much: bool,
    audit: MasonAudit,
    living: Living,
    memory: Memory,
    core: Vec<HostId>,
    healed_at: Option<u64>,
    wishes: Wishes,
    /// Until then a sequencer that has shards hand over is killed.
    looks_until: u64,
    /// The host where one shard is held back when shards hand over next.
    holds_back: Option<HostId>,
    /// Hosts that are to be killed again.
    killed_again: Vec<HostId>,
    /// What the znodes of all shards must be.
    tree: SharedTree,
    /// Little goes wrong but sessions that expire, one after the other.
    is_calm: bool,
    /// Users send requests that are seldom, too.
    asks_seldom: bool,
}

/// A transaction of a user writes its value so often.
const PARTS_MAX: usize = 2;
/// How often a gateway looks for nodes that have served, at least.
const REAP_EVERY: Duration = Duration::from_secs(3);
const SOCKETS: u32 = 0x8000;
const DESKS: u32 = 0x9000;
/// A user's connections to one host take turns among so many nodes, so that what one was sent late is not another's.
const SOCKETS_PER_USER: u32 = 8;
const TICK: Duration = Duration::from_millis(150);
/// How long after the heal all must be at rest: less than a core has to converge.
const AT_REST_AFTER: Duration = Duration::from_secs(110);
const AT_REST: u64 = 1 << 32;
/// The alarm that asks for groups, and the one that wishes for others when all is well.
const ASK_FOR_GROUPS: u64 = AT_REST + 1;
const WISH_WHEN_CALM: u64 = AT_REST + 2;
/// The alarm that asks whether the hosts have changed.
const ASK_FOR_HOSTS: u64 = AT_REST + 7;
const CALM_AFTER: Duration = Duration::from_secs(35);
const WISH_AFTER: Duration = Duration::from_secs(5);

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl CoordinationScenario {
    /// The roles of the service on a host, in its incarnation of this number.
    fn members_on(&self, host: HostId, number: u64) -> Vec<(HostSlot, Seat)> {
        let (sessions, placement) = (self.sessions.clone(), self.placement);
        let counting = HomeSessions::new(Group(0), sessions.clone());
        let spaces_of: SpacesOf = Arc::new(move |body, shard_map| counting.spaces(body, shard_map));
        let parts = HostParts {
            stub: &|group| JudgedSessions::new(group, sessions.clone()),
            shard: &|space| JudgedTree::new(space, placement, number, self.tree.clone()),
            gateway: Gateway::new(self.settings(host)),
        };
        let deployment = self.changes.deployment_of(host);
        let members: Vec<(HostSlot, MasonMember<_, _, _>)> = deployment.build(host, &spaces_of, parts);
        members.into_iter().map(|(slot, member)| (slot, Seat::Member(Box::new(member)))).collect()
    }

    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let entries: Vec<paxos::HostEntry> = (0..3).map(operator::entry).collect();
        let hosts = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let alone = rng.chance(0.2);
        let groups = if alone { 1 } else { rng.between(1, 4) as u16 };
        let room = if alone || rng.chance(0.4) { groups } else { rng.between(u64::from(groups), 4) as u16 };
        let shards = rng.between(1, 4) as u16;
        let fixed = alone || rng.chance(0.4);
        let shards_room = if fixed { shards } else { rng.between(u64::from(shards), 5) as u16 };
        let (parameters, log) = draw_parameters(rng);
        let sequencers = if alone { 0 } else { 3 };
        let placement = Placement::new(shards).resharding(rng.below(3) as u16);
        let sessions = SessionSettings::new(placement, [7; 32]);
        let consistency = if rng.chance(0.75) { Consistency::Linearizable } else { Consistency::Sequential };
        let is_calm = rng.chance(0.06);
        let timeout_max = if is_calm { 2_000 } else { 6_000 };
        let users = (0..rng.between(3, 6))
            .map(|_| User::new(rng.between(1_500, timeout_max) as i32, rng.chance(0.5)));
        let users = users.collect();
        let replies = ReplyBounds { bytes_max: 4_000 << rng.below(6), free_bytes: 64 << rng.below(5) };
        let deployment = Deployment::new(entries, groups, shards, sequencers, parameters, log)
            .with_room_for(room, shards_room);
        Self {
            hosts,
            desk: HostId::named("users"),
            changes: Changes::new(deployment.clone(), ASK_FOR_HOSTS, rng.chance(0.5)),
            deployment,
            ambushes: Ambushes::default(),
            cutting: None,
            quiet: None,
            expiring: None,
            ephemerals: Ephemerals::default(),
            writes_much: false,
            placement,
            sessions,
            consistency,
            replies,
            users,
            rng: Rng::seeded(rng.bits()),
            sizes: Sizes::draw(rng),
            values: 0,
            checks: Checks::default(),
            undecided: false,
            servers: Servers::default(),
            lost: BTreeSet::new(),
            audit: MasonAudit::default(),
            living: Living::default(),
            memory: Memory::default(),
            core: Vec::new(),
            healed_at: None,
            looks_until: 0,
            holds_back: None,
            killed_again: Vec::new(),
            tree: SharedTree::new(),
            is_calm,
            // Without a sequencer nothing can be handed over.
            wishes: Wishes::new((groups, shards), (room, if alone { 0 } else { shards_room })),
            leaving: (room > 1 && rng.chance(0.2)).then(|| Leaving::new(rng.fork())),
            asks_seldom: rng.chance(0.25),
        }
    }

    fn value(&mut self) -> String {
        self.values += 1;
        // One in eight is long.
        let padding = if self.rng.chance(0.125) { self.rng.below(1_500) as usize } else { 0 };
        let value = format!("v{}{:.<padding$}", self.values, "");
        self.sizes.stretch(value, OPERATION_BYTES_MAX / PARTS_MAX, &mut self.rng)
    }

    fn desk_of(&self, user: usize) -> NodeId {
        NodeId::new(self.desk, HostSlot(DESKS + user as u32))
    }

    fn user_of(&self, desk: NodeId) -> usize {
        (desk.host_slot().0 - DESKS) as usize
    }

    fn settings(&self, host: HostId) -> Settings {
        let routes =
            Routes { proxies: self.deployment.proxies_of(host), shards: self.deployment.servers_of(host) };
        let layout = self.deployment.topology().layout.clone();
        Settings {
            session_timeouts: user::TIMEOUTS,
            consistency: self.consistency,
            replies: self.replies,
            layout,
            reap_every: REAP_EVERY,
            ..Settings::new(routes, self.placement)
        }
    }

    /// Where users may connect.
    fn hosts_to_try(&mut self) -> Vec<HostId> {
        // One that has left may still be in somebody's list.
        match self.healed_at {
            Some(_) => self.core.clone(),
            None if self.rng.chance(0.125) => self.changes.ever(),
            None => self.changes.members(),
        }
    }

    fn is_bootstrapped(&self) -> bool {
        self.audit.bootstrapped(&self.hosts) == self.hosts.len() * self.deployment.topology().groups.len()
    }

    fn is_linearizable(&self) -> bool {
        self.consistency == Consistency::Linearizable
    }
}

fn send(to: NodeId, kind: u8, bytes: &[u8], control: &mut Control<'_, Seat>) {
    control.request(to, [&[kind], bytes].concat().into());
}

impl Scenario for CoordinationScenario {
    type Node = Seat;

    const FAMILY: &'static str = "coordination";
    const STRIKES: &'static [StrikeKind] = &STRIKES;
    const MARKS: &'static [&'static str] = MARKS;

    fn hosts(&self) -> Vec<HostSpec> {
        let servers = self.hosts.iter().map(|&host| HostSpec::server(host));
        servers
            .chain(self.changes.spares().map(HostSpec::spare))
            .chain([HostSpec::client(self.desk)])
            .collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        (0..self.users.len()).map(|user| self.desk_of(user)).collect()
    }

    fn classes(&self) -> Classes {
        Classes::ALL.without(Class::Upgrade).without(Class::ClockLie)
    }

    fn tuning(&self) -> Tuning {
        let s = Duration::from_secs;
        Tuning {
            safety: (s(10), s(40)),
            busy_at_least: if self.is_calm { None } else { Some(s(5)) },
            blows: if self.is_calm { (0.01, 0.1) } else { Tuning::default().blows },
            operations: (30, 200),
            liveness: s(120),
            bounds: limits::BOUNDS,
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Seat)> {
        self.servers.forget(incarnation.host);
        self.ephemerals.forget(incarnation.host);
        self.audit.forget(incarnation.host);
        self.living.forget(incarnation.host);
        let socket = |slot| (HostSlot(slot), Seat::Socket(Socket::default()));
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

    fn on_dry_restart(&mut self, node: NodeId, running: &Seat, restarted: &Seat) {
        if let (Seat::Member(running), Seat::Member(restarted)) = (running, restarted) {
            self.audit.on_dry_restart(node, running, restarted);
            self.servers.check_restarted(node, restarted);
        }
    }

    fn on_begin(&mut self, control: &mut Control<'_, Seat>) {
        for user in 0..self.users.len() {
            control.alarm(TICK, user as u64);
        }
        if self.is_calm {
            control.alarm(EXPIRE_EVERY, LET_EXPIRE);
        }
        if let Some(leaving) = &mut self.leaving {
            control.alarm(leaving.begins_after(), LEAVE);
        }
    }

    fn operate(&mut self, _: OperationId, node: NodeId, rng: &mut Rng, control: &mut Control<'_, Seat>) {
        let number = self.user_of(node);
        let ticket = control.request(node, Bytes::from_static(&[node::HOLD]));
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
        if self.changes.on_answer(id, &answer, control) {
            return;
        }
        if let Some(fulfilled) = self.wishes.on_answer(id, &answer) {
            if fulfilled {
                control.mark("scenario.changed_the_groups");
            }
            return;
        }
        let polls = |user: &User| user.link.as_ref().is_some_and(|link| link.poll == id);
        if let Some(number) = self.users.iter().position(polls) {
            self.hear(number, &answer.0, control);
        }
    }

    fn on_lost(&mut self, _node: NodeId, id: RequestId) {
        self.wishes.lost(id);
        self.changes.lost(id);
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
            if let Err((invariant, what)) = rest::sound(&self.core, &control.cluster) {
                panic!("{invariant}: {what}");
            }
            return;
        }
        let now = control.cluster.now();
        if token == WISH_WHEN_CALM {
            return self.wish_when_calm(control);
        }
        if token == LOOK_AT_A_SESSION {
            return self.look_at_a_session(control);
        }
        if token == LET_EXPIRE && self.healed_at.is_none() {
            self.let_expire(control);
            return control.alarm(EXPIRE_EVERY, LET_EXPIRE);
        }
        if token == again::KILL_AGAIN {
            return self.on_kill_again(control);
        }
        if token == LEAVE {
            return self.go_on_leaving(control);
        }
        if token == ASK_FOR_HOSTS {
            return self.changes.ask_whether_settled(control);
        }
        if token == ASK_FOR_GROUPS && self.healed_at.is_some() {
            // Who comes again while its session is on the way finds it.
            let number = self.rng.index(self.users.len());
            self.disconnect(number, now, Some(control));
        }
        if token == ASK_FOR_GROUPS {
            let hosts = self.changes.members();
            let first =
                hosts.into_iter().filter_map(|host| self.deployment.proxies_of(host).first().copied());
            if self.wishes.ask(first, control) {
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
            }
        }
        self.on_resharding_alarm(token, control);
        if token > AT_REST {
            return;
        }
        let number = token as usize;
        self.tick(number, control);
        self.pump(number, control);
        control.alarm(TICK, token);
    }

    fn claims(&self) -> Option<IsClaim<Seat>> {
        Some(audit::mason::is_claim)
    }

    fn on_fact(&mut self, fact: Fact<mason::MasonMessage>, _cluster: &Cluster<'_, Seat>) {
        self.audit.on_fact(fact);
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Seat>) {
        self.audit.check(|| rest::members_of(host, cluster));
        rest::check_answers(host, &self.replies, cluster);
        self.living.check_host(host, cluster);
        self.memory.look(host, cluster);
        if self.servers.check_host(host, cluster) {
            let there = |user: &&mut User| user.link.as_ref().is_some_and(|link| link.host == host);
            let now = cluster.now();
            self.users.iter_mut().filter(there).for_each(|user| user.lasting.skipped(now));
        }
        for deleted in self.ephemerals.look(rest::servers_of(host, cluster), cluster.now()) {
            self.checks.on_deleted(&deleted);
        }
        let sessions = self.users.iter().filter_map(|user| user.session.as_ref());
        self.servers.watch_sessions(host, sessions.map(|session| session.id), cluster);
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Seat>) -> bool {
        self.carry_out_strike(which, rng, control)
    }

    fn watches(&self) -> bool {
        self.ambushes.any()
    }

    fn watch(&mut self, control: &mut Control<'_, Seat>) {
        self.ambushes.look(control);
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Seat>) -> bool {
        let is_gone =
            |other| other == host || is_bad(&self.lost, other, cluster) || self.changes.leaves(other);
        host != self.desk && self.is_bootstrapped() && self.changes.bears(is_gone)
    }

    fn on_disk_lost(&mut self, host: HostId, _cluster: &Cluster<'_, Seat>) -> sim::Replacement {
        self.lost.insert(host);
        sim::Replacement::StayDown
    }

    fn core(&mut self, cluster: &Cluster<'_, Seat>, rng: &mut Rng) -> Core {
        let is_bad = |host| is_bad(&self.lost, host, cluster);
        match self.changes.core(self.is_bootstrapped(), is_bad, rng) {
            Some(sound) => Core::Hosts(sound.into_iter().chain([self.desk]).collect()),
            None => Core::Excused("no majority has retained its journal".to_owned()),
        }
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
        if self.rng.chance(0.6) {
            control.alarm(CALM_AFTER, WISH_WHEN_CALM);
        }
    }

    fn converged(&self, _core: &[HostId], cluster: &Cluster<'_, Seat>) -> Result<(), String> {
        rest::agreed(&self.core, cluster)?;
        if let Some(missing) = self.changes.unsettled(&self.core).or_else(|| self.wishes.unfulfilled()) {
            return Err(missing);
        }
        if let Some(lost) = self.users.iter().find_map(|user| self.checks.lost_watch(user, true)) {
            return Err(lost);
        }
        if let Some(endless) = self.living.endless(&self.core, cluster) {
            return Err(endless);
        }
        rest::sound(&self.core, cluster).map_err(|(_, what)| what)
    }

    fn describe(&self, cluster: &Cluster<'_, Seat>) -> String {
        rest::describe(cluster)
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
