//! One state of a small world, and the steps out of it. States share the hosts that a step does not touch.

use super::burst::Burst;
use super::fingerprint::Fingerprint;
use super::host::{HostState, Message};
use super::world::{Flying, Progress, Transition, World};
use super::{Scope, Spent, StepKind};
use crate::draw::mix;
use kernel::{Decode, Node, NodeId, RequestId, TimerIndex};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// Inputs that are no packet.
const SYNC: u64 = 1;
const RESTART: u64 = 2;
const REQUEST: u64 = 3;

/// A step, named so that it means the same on a shortened path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Request { client: usize },
    Deliver { packet: u64 },
    Duplicate { packet: u64 },
    Lose { packet: u64 },
    Timer { node: NodeId, timer: TimerIndex },
    Sync { host: usize },
    Crash { host: usize, retained: u64 },
    Restart { host: usize },
}

impl Step {
    pub(super) fn kind(self) -> StepKind {
        match self {
            Self::Request { .. } => StepKind::Request,
            Self::Deliver { .. } => StepKind::Deliver,
            Self::Duplicate { .. } => StepKind::Duplicate,
            Self::Lose { .. } => StepKind::Lose,
            Self::Timer { .. } => StepKind::Timer,
            Self::Sync { .. } => StepKind::Sync,
            Self::Crash { .. } => StepKind::Crash,
            Self::Restart { .. } => StepKind::Restart,
        }
    }
}

/// Everything that decides what can happen next.
pub(super) struct State<S: Scope> {
    hosts: Vec<Rc<HostState<S::Node>>>,
    flying: Vec<Rc<Flying>>,
    /// The sum of the packets' hashes: the same in every order.
    flying_hash: u64,
    clients: Vec<Progress>,
    used: Spent,
    monitor: Rc<S::Monitor>,
}

impl<S: Scope> Clone for State<S> {
    fn clone(&self) -> Self {
        Self {
            hosts: self.hosts.clone(),
            flying: self.flying.clone(),
            flying_hash: self.flying_hash,
            clients: self.clients.clone(),
            used: self.used,
            monitor: self.monitor.clone(),
        }
    }
}

/// The live nodes of one state.
pub struct ExploredCluster<'a, N: Node> {
    hosts: &'a [Rc<HostState<N>>],
}

impl<'a, N: Node> ExploredCluster<'a, N> {
    /// Every live node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &'a N)> + use<'a, N> {
        self.hosts.iter().flat_map(|host| host.seats.iter().map(|seat| (seat.id, &seat.node)))
    }

    /// One node; `None` if it is not alive.
    pub fn node(&self, id: NodeId) -> Option<&'a N> {
        self.nodes().find(|&(node, _)| node == id).map(|(_, node)| node)
    }
}

impl<S: Scope> State<S> {
    pub(super) fn first(world: &mut World<'_, S>) -> Self {
        let hosts: Vec<_> = world.scope.hosts().into_iter().map(|id| Rc::new(HostState::new(id))).collect();
        let mut state = Self {
            clients: vec![Progress::default(); world.requests.len()],
            hosts,
            flying: Vec::new(),
            flying_hash: 0,
            used: Spent::default(),
            monitor: Rc::new(world.scope.monitor()),
        };
        for host in 0..state.hosts.len() {
            state.step(Step::Restart { host }, world);
        }
        while world.scope.begins_at_rest()
            && let Some(step) = state.of_itself()
        {
            state.step(step, world);
        }
        state
    }

    /// What happens next if nobody asks for anything: the oldest packet arrives, or an fsync returns.
    fn of_itself(&self) -> Option<Step> {
        let packet = self.flying.first().map(|flying| Step::Deliver { packet: flying.hash });
        let unsynced = self.hosts.iter().position(|host| host.up && host.durable < host.written());
        packet.or(unsynced.map(|host| Step::Sync { host }))
    }

    pub(super) fn hash(&self) -> u64 {
        let mut hasher = Fingerprint(self.flying_hash);
        for host in &self.hosts {
            hasher.write_u64(host.fingerprint);
        }
        self.clients.hash(&mut hasher);
        self.used.hash(&mut hasher);
        self.monitor.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn check(&self, world: &World<'_, S>) {
        world.scope.check(&self.monitor, &ExploredCluster { hosts: &self.hosts });
    }

    /// True if nothing is in flight; checks what must then hold.
    pub(super) fn check_quiet(&self, world: &World<'_, S>) -> bool {
        let asked = |(client, progress): (usize, &Progress)| {
            progress.asked as usize == world.requests[client].1.len()
        };
        let quiet = self.flying.is_empty()
            && self.clients.iter().enumerate().all(asked)
            && self.hosts.iter().all(|host| host.up && host.written() == host.durable);
        if quiet {
            world.scope.check_quiet(&self.monitor, &ExploredCluster { hosts: &self.hosts }, self.used);
        }
        quiet
    }

    /// All steps out of this state.
    pub(super) fn steps(&self, world: &World<'_, S>, steps: &mut Vec<Step>) {
        steps.clear();
        let (bounds, used) = (&world.bounds, &self.used);
        for (client, progress) in self.clients.iter().enumerate() {
            let (node, requests) = &world.requests[client];
            let up = self.hosts.iter().any(|host| host.id == node.host() && host.up);
            if up && !progress.waits && (progress.asked as usize) < requests.len() {
                steps.push(Step::Request { client });
            }
        }
        for (at, packet) in self.flying.iter().enumerate() {
            if self.flying[..at].iter().any(|earlier| earlier.hash == packet.hash) {
                continue;
            }
            let packet_hash = packet.hash;
            if self.hosts.iter().any(|host| host.id == packet.to.host() && host.up) {
                steps.push(Step::Deliver { packet: packet_hash });
                if used.duplications < bounds.duplications {
                    steps.push(Step::Duplicate { packet: packet_hash });
                }
            }
            if used.losses < bounds.losses {
                steps.push(Step::Lose { packet: packet_hash });
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if !host.up {
                steps.push(Step::Restart { host: index });
                continue;
            }
            if host.durable < host.written() {
                steps.push(Step::Sync { host: index });
            }
            if used.crashes < bounds.crashes && world.scope.may_crash(host.id) {
                steps.extend(
                    (host.durable..=host.written()).map(|retained| Step::Crash { host: index, retained }),
                );
            }
            if used.timers < bounds.timers {
                for seat in &host.seats {
                    let pending = (0..64u8).filter(|timer| seat.timers & 1 << timer != 0);
                    steps
                        .extend(pending.map(|timer| Step::Timer { node: seat.id, timer: TimerIndex(timer) }));
                }
            }
        }
    }

    /// Takes a step; false if this state does not have it (on a shortened path).
    pub(super) fn step(&mut self, step: Step, world: &mut World<'_, S>) -> bool {
        let taken = self.take(step, world);
        if taken {
            self.lose_the_late(world);
            let cluster = ExploredCluster { hosts: &self.hosts };
            world.scope.observe(Rc::make_mut(&mut self.monitor), &cluster);
        }
        taken
    }

    fn lose_the_late(&mut self, world: &mut World<'_, S>) {
        let mut at = 0;
        while let Some(flying) = self.flying.get(at) {
            let (packet, to) = (flying.hash, flying.to);
            let host = self.host_of(to).filter(|_| world.scope.loses_the_late(to));
            if host.is_some_and(|host| self.is_late(packet, host, world)) {
                self.take_off(packet);
            } else {
                at += 1;
            }
        }
    }

    fn is_late(&self, packet: u64, host: usize, world: &mut World<'_, S>) -> bool {
        let before = self.hosts[host].fingerprint;
        let key = mix(packet, before);
        if world.late.contains(&key) || world.timely.contains(&key) {
            return world.late.contains(&key);
        }
        let mut after = self.clone();
        after.deliver(packet, false, world);
        let late = after.hosts[host].fingerprint == before && after.flying.len() + 1 == self.flying.len();
        if late {
            world.late.insert(key)
        } else {
            world.timely.insert(key)
        };
        late
    }

    fn take(&mut self, step: Step, world: &mut World<'_, S>) -> bool {
        match step {
            Step::Request { client } => return self.request(client, world),
            Step::Deliver { packet } => return self.deliver(packet, false, world),
            Step::Duplicate { packet } => {
                self.used.duplications += 1;
                return self.deliver(packet, true, world);
            }
            Step::Lose { packet } => {
                self.used.losses += 1;
                return self.take_off(packet).is_some();
            }
            Step::Timer { node, timer } => {
                let Some(host) = self.host_of(node) else { return false };
                let seat = self.hosts[host].seats.iter().position(|seat| seat.id == node);
                let Some(seat) = seat.filter(|&seat| self.hosts[host].seats[seat].timers & 1 << timer.0 != 0)
                else {
                    return false;
                };
                let input = mix(node.as_u64(), u64::from(timer.0));
                self.burst(host, input, world, |burst| {
                    burst.host.seats[seat].timers &= !(1 << timer.0);
                    burst.timers += 1;
                    burst.call(seat, |node, situation, effects| node.on_timer(timer, situation, effects));
                });
                self.used.timers += 1;
            }
            Step::Sync { host } => {
                if !self.hosts[host].up || self.hosts[host].durable == self.hosts[host].written() {
                    return false;
                }
                self.burst(host, SYNC, world, |burst| burst.sync());
            }
            Step::Crash { host, retained } => return self.crash(host, retained, world),
            Step::Restart { host } => return self.restart(host, world),
        }
        true
    }

    /// What a step out of this state does, for people.
    pub(super) fn described(&self, step: Step, world: &World<'_, S>) -> String {
        let packet = |hash: u64| {
            let Some(flying) = self.flying.iter().find(|flying| flying.hash == hash) else {
                return String::new();
            };
            let message = Message::<S::Node>::decoded(&flying.bytes);
            message.map_or_else(
                |error| error.to_string(),
                |message| format!("{} -> {} {message:?}", flying.from, flying.to),
            )
        };
        match step {
            Step::Request { client } => {
                let (node, requests) = &world.requests[client];
                format!("{node} asks {:?}", requests.get(self.clients[client].asked as usize))
            }
            Step::Deliver { packet: hash } => packet(hash),
            Step::Duplicate { packet: hash } => format!("{} (and again later)", packet(hash)),
            Step::Lose { packet: hash } => format!("LOST {}", packet(hash)),
            Step::Timer { node, timer } => format!("{node} timer {}", timer.0),
            Step::Sync { host } => format!("{:?} synced", self.hosts[host].id),
            Step::Crash { host, retained } => {
                let lost = self.hosts[host].written() - retained;
                format!("{:?} CRASHES, {lost} records lost", self.hosts[host].id)
            }
            Step::Restart { host } => format!("{:?} RESTARTS", self.hosts[host].id),
        }
    }

    fn host_of(&self, node: NodeId) -> Option<usize> {
        self.hosts.iter().position(|host| host.id == node.host() && host.up)
    }

    /// One host's work on one input, which `input` identifies; done once for each state of the host.
    fn burst(
        &mut self,
        host: usize,
        input: u64,
        world: &mut World<'_, S>,
        work: impl FnOnce(&mut Burst<'_, '_, S>),
    ) {
        let before = &self.hosts[host];
        let moment = mix(host as u64, u64::from(self.used.timers));
        let key = mix(mix(before.fingerprint, moment), input);
        let transition = world.transition(key).unwrap_or_else(|| {
            let mut after = HostState::clone(before);
            let mut burst = Burst {
                host: &mut after,
                clients: &mut self.clients,
                monitor: &mut self.monitor,
                world,
                local: VecDeque::new(),
                timers: self.used.timers,
                sent: Vec::new(),
                marks: Vec::new(),
                answered: false,
            };
            work(&mut burst);
            burst.settle();
            let Burst { sent, marks, answered, .. } = burst;
            let transition = Rc::new(Transition { after: Rc::new(after), sent, marks });
            // An answer changes what is remembered of its client.
            if !answered {
                world.remember(key, transition.clone());
            }
            transition
        });
        self.hosts[host] = transition.after.clone();
        for packet in &transition.sent {
            self.flying_hash = self.flying_hash.wrapping_add(packet.hash);
            self.flying.push(packet.clone());
        }
        for mark in &transition.marks {
            *world.marks.entry(mark).or_default() += 1;
        }
    }

    fn request(&mut self, client: usize, world: &mut World<'_, S>) -> bool {
        let progress = self.clients[client];
        let (node, requests) = &world.requests[client];
        let (node, request) = (*node, requests.get(progress.asked as usize).cloned());
        let (Some(request), Some(host), false) = (request, self.host_of(node), progress.waits) else {
            return false;
        };
        let id = RequestId((client as u64) << 32 | u64::from(progress.asked));
        self.clients[client] = Progress { asked: progress.asked + 1, waits: true };
        world.scope.on_request(Rc::make_mut(&mut self.monitor), node, id, &request);
        self.burst(host, mix(REQUEST, id.0), world, |burst| {
            if let Some(seat) = burst.host.seats.iter().position(|seat| seat.id == node) {
                burst.call(seat, |node, situation, effects| node.on_request(id, request, situation, effects));
            }
        });
        true
    }

    fn take_off(&mut self, packet: u64) -> Option<Rc<Flying>> {
        let at = self.flying.iter().position(|flying| flying.hash == packet)?;
        self.flying_hash = self.flying_hash.wrapping_sub(packet);
        Some(self.flying.remove(at))
    }

    fn deliver(&mut self, packet: u64, again: bool, world: &mut World<'_, S>) -> bool {
        let Some(flying) = self.take_off(packet) else { return false };
        if again {
            self.flying_hash = self.flying_hash.wrapping_add(packet);
            self.flying.push(flying.clone());
        }
        let Some(host) = self.host_of(flying.to) else { return false };
        self.burst(host, packet, world, |burst| match Message::<S::Node>::decoded(&flying.bytes) {
            Ok(message) => burst.deliver(flying.from, flying.to, message),
            Err(error) => panic!("CODEC: a message to {} does not decode: {error}", flying.to),
        });
        true
    }

    fn crash(&mut self, index: usize, retained: u64, world: &mut World<'_, S>) -> bool {
        let host = Rc::make_mut(&mut self.hosts[index]);
        if !host.up || retained < host.durable || retained > host.written() {
            return false;
        }
        self.used.crashes += 1;
        host.records.truncate((retained - host.trimmed) as usize);
        host.durable = retained;
        (host.up, host.incarnation) = (false, host.incarnation + 1);
        host.seats.clear();
        host.held.clear();
        host.refresh(world.scope);
        let id = host.id;
        for (client, progress) in self.clients.iter_mut().enumerate() {
            let node = world.requests[client].0;
            if node.host() == id && std::mem::take(&mut progress.waits) {
                let request = RequestId((client as u64) << 32 | u64::from(progress.asked - 1));
                world.scope.on_lost(Rc::make_mut(&mut self.monitor), node, request);
            }
        }
        true
    }

    fn restart(&mut self, index: usize, world: &mut World<'_, S>) -> bool {
        if self.hosts[index].up {
            return false;
        }
        let (id, incarnation) = (self.hosts[index].id, self.hosts[index].incarnation);
        self.burst(index, RESTART, world, |burst| {
            let nodes = burst.world.scope.build(id, incarnation);
            burst.start(nodes);
        });
        true
    }
}
