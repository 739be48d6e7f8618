//! The testbed: machines, hosts, clients, and the loop that lets time pass.

use super::host::{Host, Input, Seat, Visits};
use super::load::{Call, Calls, Client, Load, LoadSession, Measured, Pace, Window};
use super::machine::{Link, Machine, MachineIndex, MachineSpec};
use super::outside::{Address, Outside};
use super::price::{Cost, Scale, Tariff, TariffIndex};
use super::queue::Event;
use kernel::{Family, HostId, HostSlot, Node, NodeId, RequestId, Rng, TimerIndex};
use std::collections::BTreeMap;
use std::time::Duration;

/// Clients of a closed load make their first calls within this span, so that they do not march in step.
const CALLS_BEGIN_WITHIN: Duration = Duration::from_micros(500);
const PICOS: u64 = 1_000_000_000_000;

/// Where a host runs, and what it pays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostPlan {
    /// Its identity.
    pub id: HostId,
    /// Its machine.
    pub machine: MachineIndex,
    /// Which of the machine's cores.
    pub core: usize,
    /// What its steps cost.
    pub tariff: TariffIndex,
}

/// A cluster, its clients, and what they cost.
pub struct Testbed<N: Node, S> {
    hosts: Vec<Host<N>>,
    ids: Vec<HostId>,
    calls: Calls,
    rng: Rng,
    started: usize,
    events: u64,
    hash: u64,
    out: Outside<N::Family, S>,
}

impl<N: Node, S: Scale<N::Family>> Testbed<N, S> {
    /// Nothing yet, at time zero.
    pub fn new(seed: u64, scale: S, link: Link) -> Self {
        Self {
            hosts: Vec::new(),
            ids: Vec::new(),
            calls: Calls::none(),
            rng: Rng::seeded(seed),
            started: 0,
            events: 0,
            hash: 0,
            out: Outside::new(scale, link),
        }
    }

    /// Adds a tariff.
    pub fn tariff(&mut self, tariff: Tariff) -> TariffIndex {
        self.out.tariffs.push(tariff);
        TariffIndex(self.out.tariffs.len() - 1)
    }

    /// Adds a machine.
    pub fn machine(&mut self, spec: MachineSpec) -> MachineIndex {
        self.out.machines.push(Machine::new(spec, self.out.cores.len()));
        self.out.cores.resize(self.out.cores.len() + spec.cores, 0);
        MachineIndex(self.out.machines.len() - 1)
    }

    /// Sets the latency between two machines, both ways, where it is not what it is between any two.
    pub fn set_latency(&mut self, one: MachineIndex, other: MachineIndex, latency: Duration) {
        for pair in [(one.0, other.0), (other.0, one.0)] {
            self.out.latencies.insert(pair, Cost::from(latency).0);
        }
    }

    /// Sets how far clocks may be off as far as their hosts know. They are right nevertheless.
    pub fn set_clock_error(&mut self, error: Duration) {
        self.out.clock_error = error.as_nanos() as u64;
    }

    /// Adds a host with its nodes; it runs from the next [`Testbed::run_for`] on.
    ///
    /// # Panics
    /// If the machine has no such core, or a node's identity is taken.
    pub fn host(&mut self, plan: HostPlan, nodes: impl IntoIterator<Item = (HostSlot, N)>) {
        let index = self.hosts.len() as u32;
        let machine = &self.out.machines[plan.machine.0];
        assert!(plan.core < machine.cores, "{plan:?}, and the machine has {} cores", machine.cores);
        let mut host = Host::new(plan.machine.0, machine.first_core + plan.core, plan.tariff.0);
        for (host_slot, node) in nodes {
            let id = NodeId::new(plan.id, host_slot);
            let address = Address { host: index, seat: host.seats.len() as u32 };
            assert!(self.out.register(id, address), "two nodes are called {id}");
            host.seat(id, node, self.rng.fork());
        }
        self.out.machine_of.push(plan.machine.0);
        self.hosts.push(host);
        self.ids.push(plan.id);
    }

    /// The time that has passed.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.out.now / 1_000)
    }

    /// A node, for a look at its state.
    pub fn node(&self, id: NodeId) -> Option<&N> {
        let address = self.out.addresses.get(&id)?;
        let seat: &Seat<N> = self.hosts.get(address.host as usize)?.seats.get(address.seat as usize)?;
        Some(&seat.node)
    }

    /// How often each mark was hit.
    pub fn marks(&self) -> &BTreeMap<&'static str, u64> {
        &self.out.marks
    }

    /// What was refused as against the protocol, and how often.
    pub fn rejects(&self) -> &BTreeMap<&'static str, u64> {
        &self.out.rejects
    }

    /// The hosts, in the order of [`Measured::busy`].
    pub fn hosts(&self) -> &[HostId] {
        &self.ids
    }

    /// Stops a host for good at `at`, or at once if that is past.
    pub fn crash_at(&mut self, host: HostId, at: Duration) {
        if let Some(index) = self.ids.iter().position(|&id| id == host) {
            let at = Cost::from(at).0.max(self.out.now);
            self.out.queue.push(at, Event::Crash { host: index as u32 });
        }
    }

    /// Lets time pass without a load.
    pub fn run_for(&mut self, span: Duration) {
        self.run_load_for(span, &mut Idle);
    }

    /// Has `clients` ask from now on, and says what came of it. Call it once: calls in flight at the end stay so.
    ///
    /// # Panics
    /// If one of the clients is no node of the testbed.
    pub fn run<L: Load<N::Family>>(
        &mut self,
        clients: &[NodeId],
        pace: Pace,
        load: &mut L,
        window: Window,
    ) -> Measured {
        self.begin_load(clients, pace);
        self.run_load_for(window.warm_up, load);
        self.calls.measure_from(self.out.now);
        let busy: Vec<u64> = self.hosts.iter().map(|host| host.busy).collect();
        let visits: Vec<Visits> = self.hosts.iter().map(|host| host.visits).collect();
        let sent: Vec<(u64, u64)> = self.traffic().collect();
        self.run_load_for(window.measured, load);
        let span = Cost::from(window.measured).0.max(1) as f64;
        let seconds = span / PICOS as f64;
        let used = self.hosts.iter().zip(busy).map(|(host, before)| (host.busy - before) as f64 / span);
        let visits = self.hosts.iter().zip(visits).map(|(host, before)| host.visits.since(before));
        let rate = |after: u64, before: u64| (after - before) as f64 / seconds;
        let traffic = self.traffic().zip(sent).map(|(now, then)| (rate(now.0, then.0), rate(now.1, then.1)));
        Measured {
            seconds,
            busy: used.collect(),
            visits: visits.collect(),
            traffic: traffic.collect(),
            asked: self.calls.asked(),
            classes: self.calls.measured(),
            events: self.events,
            hash: self.hash,
        }
    }

    fn traffic(&self) -> impl Iterator<Item = (u64, u64)> {
        self.out.machines.iter().map(|machine| (machine.bytes_out, machine.bytes_in))
    }

    /// Has `clients` ask from now on, while [`Testbed::run_load_for`] lets time pass.
    ///
    /// # Panics
    /// If one of the clients is no node of the testbed.
    pub fn begin_load(&mut self, clients: &[NodeId], pace: Pace) {
        self.calls.pace = pace;
        for &client in clients {
            let address = self.out.addresses.get(&client).copied();
            let Address { host, seat } = address.unwrap_or_else(|| panic!("{client} is no node here"));
            let number = self.calls.clients.len() as u32;
            self.calls.clients.push(Client { host, seat });
            if let Pace::Closed { outstanding } = pace {
                for _ in 0..outstanding {
                    let offset = self.rng.below(Cost::from(CALLS_BEGIN_WITHIN).0);
                    let session = self.calls.new_session();
                    self.out.queue.push(self.out.now + offset, Event::Ask { client: number, session });
                }
            }
        }
        let arrive = matches!(pace, Pace::Open { .. } | Pace::PartlyOpen { .. });
        if arrive && !clients.is_empty() {
            self.out.queue.push(self.out.now, Event::Arrival);
        }
    }

    /// Has a client of the load that was begun make one call now, in a session of its own; says which.
    pub fn ask_once<L: Load<N::Family>>(&mut self, client: usize, load: &mut L) -> LoadSession {
        let session = self.calls.new_session();
        self.ask(client as u32, session, load);
        LoadSession { client, number: session }
    }

    /// Changes the pace of the load that was begun, from one rate to another.
    pub fn set_pace(&mut self, pace: Pace) {
        self.calls.pace = pace;
    }

    /// Lets time pass under the load that was begun; for those who look at it in steps.
    pub fn run_load_for<L: Load<N::Family>>(&mut self, span: Duration, load: &mut L) {
        let until = self.out.now + Cost::from(span).0;
        while self.started < self.hosts.len() {
            self.started += 1;
            self.burst(self.started as u32 - 1, true, load);
        }
        while let Some((at, event)) = self.out.queue.pop_until(until) {
            self.out.now = at;
            self.events += 1;
            self.hash = (self.hash ^ at).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
            self.happen(event, load);
        }
        self.out.now = until;
    }

    fn happen<L: Load<N::Family>>(&mut self, event: Event, load: &mut L) {
        match event {
            Event::Land { packet } => self.out.land(packet),
            Event::Deliver { packet } => {
                let packet = self.out.arrived(packet);
                let (from_host, from, seat) = (packet.from_host, packet.from, packet.seat);
                let (message, bytes) = (packet.message, packet.bytes);
                let input = Input::Message { from_host, from, seat, message, bytes };
                self.arrive(packet.host, input, load);
            }
            Event::Wake { host } => {
                self.hosts[host as usize].wakes = false;
                self.look(host, load);
            }
            Event::Timer { host, seat, timer, setting } => {
                self.arrive(host, Input::Timer { seat, timer: TimerIndex(timer), setting }, load);
            }
            Event::Synced { host } => self.arrive(host, Input::Synced, load),
            Event::Ask { client, session } => self.ask(client, session, load),
            Event::Arrival => {
                let per_second = match self.calls.pace {
                    Pace::Open { per_second } => per_second,
                    Pace::PartlyOpen { sessions_per_second, .. } => sessions_per_second,
                    Pace::Closed { .. } | Pace::OnDemand => return,
                };
                let client = self.calls.next_arrival_at % self.calls.clients.len();
                self.calls.next_arrival_at = client + 1;
                let wait = -(1.0 - self.rng.unit()).ln() / per_second * PICOS as f64;
                self.out.queue.push(self.out.now + wait as u64, Event::Arrival);
                let session = self.calls.new_session();
                self.ask(client as u32, session, load);
            }
            Event::Crash { host } => {
                let host = &mut self.hosts[host as usize];
                host.alive = false;
                host.inbox.clear();
                host.seats.iter().for_each(|seat| self.out.beacons.forget(seat.id.host()));
            }
        }
    }

    fn ask<L: Load<N::Family>>(&mut self, client: u32, session: u64, load: &mut L) {
        let asks = LoadSession { client: client as usize, number: session };
        let (request, class) = load.ask(asks, &mut self.rng);
        let Client { host, seat } = self.calls.clients[client as usize];
        let id = RequestId(self.calls.begin(Call { client, session, class, begun: self.out.now }));
        self.arrive(host, Input::Request { seat, id, request }, load);
    }

    fn arrive<L: Load<N::Family>>(&mut self, host: u32, input: Input<N::Family>, load: &mut L) {
        let there = &mut self.hosts[host as usize];
        if there.alive {
            there.inbox.push_back((self.out.now, input));
            self.look(host, load);
        }
    }

    /// Works if there is work and the core is free; comes back when it is.
    fn look<L: Load<N::Family>>(&mut self, index: u32, load: &mut L) {
        let host = &mut self.hosts[index as usize];
        if host.wakes || host.inbox.is_empty() || !host.alive {
            return;
        }
        let free_at = self.out.cores[host.core];
        if free_at > self.out.now {
            host.wakes = true;
            self.out.queue.push(free_at, Event::Wake { host: index });
            return;
        }
        self.burst(index, false, load);
        let host = &mut self.hosts[index as usize];
        if !host.inbox.is_empty() && !host.wakes {
            host.wakes = true;
            self.out.queue.push(self.out.cores[host.core], Event::Wake { host: index });
        }
    }

    fn burst<L: Load<N::Family>>(&mut self, index: u32, first: bool, load: &mut L) {
        self.hosts[index as usize].burst(index, first, &mut self.out);
        let mut responses = std::mem::take(&mut self.out.responses);
        for (id, response, at) in responses.drain(..) {
            let Some(call) = self.calls.end(id.0) else { continue };
            let now = Duration::from_nanos(at / 1_000);
            let served = load.answered(call.asked_by(), call.class, &response, now);
            self.calls.count(call, served, at);
            let goes_on = match self.calls.pace {
                Pace::Closed { .. } => true,
                Pace::Open { .. } | Pace::OnDemand => false,
                Pace::PartlyOpen { stay, .. } => self.rng.unit() < stay,
            };
            if goes_on {
                self.out.queue.push(at, Event::Ask { client: call.client, session: call.session });
            } else {
                load.left(call.asked_by());
            }
        }
        self.out.responses = responses;
    }
}

/// Nobody asks.
struct Idle;

impl<F: Family> Load<F> for Idle {
    fn ask(&mut self, session: LoadSession, _rng: &mut Rng) -> (F::Request, super::Class) {
        unreachable!("{session:?} asks, and no load was given")
    }

    fn answered(&mut self, _: LoadSession, _: super::Class, _: &F::Response, _: Duration) -> bool {
        true
    }
}
