//! One run: a seed or a plan, from the first start to the last check.

mod clocks;
mod dry_restart;
mod faults;
mod statements;
mod workload;

use workload::{Client, Retained};

use crate::archive::SimulatedArchive;
use crate::class::{Class, Classes};
use crate::draw::{Purpose, root};
use crate::echoes::Echoes;
use crate::elders::Elders;
use crate::fact::Fact;
use crate::host::{Host, Input, Status};
use crate::network::Network;
use crate::outcome::{Options, Outcome, Violation};
use crate::outside::{Happening, Outside};
use crate::panics;
use crate::plan::{BegunOperation, Fault, HostIndex, OperationId, Plan};
use crate::queue::Event;
use crate::scenario::{Cluster, Command, Control, Replacement, Scenario};
use crate::spec::Incarnation;
use crate::swarm::{Planner, Swarm, Tuning};
use crate::trace::Trace;
use kernel::{NodeId, RequestId, Rng, TimerIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Makes one run of the scenario that `factory` draws from the seed.
pub fn run_seed<S: Scenario>(factory: &impl Fn(&mut Rng) -> S, seed: u64, options: &Options) -> Outcome {
    let seed = options.plan.as_ref().map_or(seed, |plan| plan.seed);
    kernel::plant(options.planted);
    let mut scenario = factory(&mut Rng::seeded(root(seed, Purpose::Scenario)));
    let mut tuning = scenario.tuning();
    tuning.liveness = options.liveness.unwrap_or(tuning.liveness);
    let hosts = scenario.hosts();
    assert!(hosts.len() <= 64, "a plan counts 64 hosts at most, not {}", hosts.len());
    let mut applicable = scenario.classes().and(options.classes);
    if tuning.clock_error_max.is_none() {
        applicable = without_clocks(applicable);
    }
    let mut swarm = Swarm::draw(seed, applicable, &tuning);
    let heal_at = options.plan.as_ref().and_then(|plan| plan.heal_at);
    swarm.safety = heal_at.unwrap_or(swarm.safety);
    scenario.drawn(swarm.classes);
    let script = options.plan.as_ref().map(|plan| &plan.faults[..]);
    let faults = match script {
        Some(script) => {
            script.iter().filter(|fault| !matches!(fault, Fault::Message { .. })).copied().collect()
        }
        None => Planner { swarm: &swarm, tuning: &tuning, hosts: &hosts, strikes: S::STRIKES }.draw(seed),
    };
    let salt = options.plan.as_ref().map_or(0, |plan| plan.salt);
    let network = Network::new(hosts.len(), seed, salt, &swarm, script);
    let trace = Trace::new(seed, options);
    let again = (Echoes::of(seed, &swarm, script.is_some()), Elders::of(seed, &swarm, script.is_some()));
    let clock_error = Duration::from_nanos(swarm.clock_error);
    let mut run = Run {
        hosts: (0..).zip(&hosts).map(|(index, host)| Host::new(host.id, index, clock_error)).collect(),
        out: Outside::new(&hosts, network, SimulatedArchive::new(seed), trace, swarm, tuning.bounds, again),
        clients: Vec::new(),
        asked: BTreeMap::new(),
        requests: 0,
        commands: Vec::new(),
        begun: Vec::new(),
        omitted: options.plan.iter().flat_map(|plan| plan.omitted.iter().copied()).collect(),
        retained: options.plan.as_ref().and_then(|plan| Some(Retained::of(plan.retained.as_ref()?))),
        salt,
        heal_at,
        replays: script.is_some(),
        faults,
        begun_faults: Vec::new(),
        phase: Phase::Safety,
        excused: None,
        deadline: 0,
        core: Vec::new(),
        tuning,
        seed,
        events_max: options.events_max,
    };
    run.rely_on_clocks();
    let runs: Vec<bool> = hosts.iter().map(|host| host.runs).collect();
    run.out.claims = scenario.claims();
    let caught = panics::caught(|| {
        run.begin(&mut scenario, &runs);
        while run.phase != Phase::Over {
            if options.until.is_some_and(|until| run.out.now > until) {
                return;
            }
            run.step(&mut scenario);
        }
        run.out.current = None;
        scenario.finish(&Cluster { hosts: &run.hosts, archive: &run.out.archive, now: run.out.now });
    });
    let violation = caught.err().map(|panic| run.violation(panic.invariant(), panic.what()));
    kernel::plant(None);
    run.outcome(S::FAMILY, applicable, violation, &scenario)
}

/// Those that need no clock with a known error.
fn without_clocks(classes: Classes) -> Classes {
    Class::ALL.iter().filter(|class| class.needs_clock()).fold(classes, |all, it| all.without(*it))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Faults strike.
    Safety,
    /// A core is healed and must converge.
    Liveness,
    /// The end.
    Over,
}

pub(crate) struct Run<S: Scenario> {
    pub(crate) hosts: Vec<Host<S::Node>>,
    pub(crate) out: Outside<<S::Node as kernel::Node>::Family>,
    pub(crate) clients: Vec<Client>,
    /// Requests without an answer: whose, and of which client.
    asked: BTreeMap<RequestId, (NodeId, Option<u16>)>,
    pub(crate) requests: u64,
    pub(crate) commands: Vec<Command<S::Node>>,
    pub(crate) begun: Vec<BegunOperation>,
    pub(crate) omitted: BTreeSet<OperationId>,
    retained: Option<Retained>,
    salt: u64,
    heal_at: Option<u64>,
    pub(crate) replays: bool,
    pub(crate) faults: Vec<Fault>,
    /// Every fault that has begun, those of the scenario included, and how long each lasts.
    pub(crate) begun_faults: Vec<(crate::plan::Blow, u64)>,
    pub(crate) phase: Phase,
    pub(crate) excused: Option<String>,
    pub(crate) deadline: u64,
    pub(crate) core: Vec<HostIndex>,
    pub(crate) tuning: Tuning,
    pub(crate) seed: u64,
    events_max: u64,
}

impl<S: Scenario> Run<S> {
    fn begin(&mut self, scenario: &mut S, runs: &[bool]) {
        for (number, fault) in (0..).zip(&self.faults) {
            if let Fault::Timed { at, .. } = fault {
                self.out.queue.push(*at, Event::FaultStart { fault: number });
            }
        }
        self.out.queue.push(self.out.swarm.safety, Event::Heal);
        for node in scenario.clients() {
            let host = self.out.host_index(node.host()).expect("a client runs on a host of the scenario");
            self.clients.push(Client::new(node, host));
        }
        for (index, &runs) in (0..).zip(runs) {
            if runs {
                self.start(index, scenario);
            }
        }
        self.notify(scenario, |scenario, control| scenario.on_begin(control));
    }

    fn step(&mut self, scenario: &mut S) {
        let (at, event) = self.out.queue.pop().expect("the heal and the polls after it are always ahead");
        self.out.now = at;
        self.out.current = None;
        self.out.trace.step += 1;
        assert!(self.out.trace.step <= self.events_max, "BOUND: more than {} events", self.events_max);
        match event {
            Event::Deliver { packet } => self.deliver(packet, scenario),
            Event::Timer { host, seat, timer, incarnation } => {
                if self.is_running(host, incarnation) && {
                    self.hosts[usize::from(host)].timer(usize::from(seat), TimerIndex(timer), &mut self.out)
                } {
                    self.burst(host, scenario);
                }
            }
            Event::Wake { host, incarnation } => {
                if self.is_running(host, incarnation) && self.hosts[usize::from(host)].woken(&mut self.out) {
                    self.burst(host, scenario);
                }
            }
            Event::Synced { host, incarnation } => {
                if self.is_running(host, incarnation) {
                    self.out.current = Some(self.hosts[usize::from(host)].id);
                    let works = self.hosts[usize::from(host)].synced(&mut self.out);
                    self.notify_facts(scenario);
                    self.strike_triggered(scenario);
                    if works {
                        self.burst(host, scenario);
                    }
                }
            }
            Event::Blob { host, ticket, incarnation } => {
                if self.is_running(host, incarnation) {
                    self.out.current = Some(self.hosts[usize::from(host)].id);
                    let works = self.hosts[usize::from(host)].blob_done(ticket, &mut self.out);
                    self.strike_triggered(scenario);
                    if works {
                        self.burst(host, scenario);
                    }
                }
            }
            Event::Restart { host, incarnation } => {
                let it = &self.hosts[usize::from(host)];
                if it.status == Status::Down && it.incarnation == incarnation && self.may_restart(host) {
                    self.start(host, scenario);
                }
            }
            Event::FaultStart { fault } => {
                if self.phase == Phase::Safety {
                    self.strike(fault, scenario);
                }
            }
            Event::FaultEnd { fault } => {
                if self.phase == Phase::Safety {
                    self.end_fault(fault);
                }
            }
            Event::Beacons { host, incarnation } if self.is_running(host, incarnation) => {
                self.hosts[usize::from(host)].beacons_due(&mut self.out);
            }
            Event::Beacons { .. } => {}
            Event::Clocks => self.compare_clocks(scenario),
            Event::Operate { client } => self.operate(client, scenario),
            Event::Alarm { token } => {
                self.notify(scenario, |scenario, control| scenario.on_alarm(token, control))
            }
            Event::Heal => self.heal(scenario),
            Event::Poll => self.poll(scenario),
        }
    }

    fn is_running(&self, host: HostIndex, incarnation: u32) -> bool {
        let host = &self.hosts[usize::from(host)];
        host.status == Status::Up && host.incarnation == incarnation
    }

    fn deliver(&mut self, packet: u32, scenario: &mut S) {
        let packet = self.out.arrived(packet);
        let sender = &self.hosts[usize::from(packet.from_host)];
        let lost = sender.output_lost_to.is_some_and(|incarnation| packet.from_incarnation <= incarnation);
        let host = &mut self.hosts[usize::from(packet.to_host)];
        if lost || host.status != Status::Up {
            return;
        }
        self.out.current = Some(host.id);
        self.out.happened(Happening::Delivery, packet.from.as_u64(), packet.to.as_u64());
        self.out.trace.mix_bytes(&packet.bytes);
        let input = match packet.beacons {
            Some(list) => Input::Beacons(list),
            None => {
                let message = self.out.decode(packet.from, packet.to, &packet.bytes);
                Input::Message { from: packet.from, to: packet.to, message }
            }
        };
        if host.arrive(input, &mut self.out) {
            self.burst(packet.to_host, scenario);
        }
    }

    fn burst(&mut self, host: HostIndex, scenario: &mut S) {
        let it = &mut self.hosts[usize::from(host)];
        self.out.current = Some(it.id);
        it.burst(&mut self.out);
        self.after_burst(host, scenario);
    }

    /// Notifies a scenario that audits of what it was not notified of yet.
    fn notify_facts(&mut self, scenario: &mut S) {
        if self.out.facts.is_empty() {
            return;
        }
        let mut facts = std::mem::take(&mut self.out.facts);
        let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now };
        facts.drain(..).for_each(|fact| scenario.on_fact(fact, &cluster));
        self.out.facts = facts;
    }

    fn after_burst(&mut self, host: HostIndex, scenario: &mut S) {
        self.notify_facts(scenario);
        if !self.out.responses.is_empty() {
            let mut responses = std::mem::take(&mut self.out.responses);
            for (node, id, response) in responses.drain(..) {
                let asked = self.asked.remove(&id);
                assert!(
                    asked.is_some_and(|(of, _)| of == node),
                    "RESPOND: {node} answers request {} that it does not owe an answer",
                    id.0
                );
                if let Some((_, Some(client))) = asked {
                    self.completed(client);
                }
                self.notify(scenario, |scenario, control| scenario.on_response(node, id, response, control));
            }
            self.out.responses = responses;
        }
        let id = self.hosts[usize::from(host)].id;
        self.hosts[usize::from(host)].called.sort_unstable();
        scenario
            .after_burst(id, &Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now });
        self.check_called(host);
        self.hosts[usize::from(host)].was_looked_at();
        self.restart_dry_at_times(host, scenario);
        if self.phase == Phase::Safety && scenario.watches() {
            self.notify(scenario, |scenario, control| scenario.watch(control));
        }
        self.strike_triggered(scenario);
    }

    /// Starts a host's next incarnation, if its disk allows one.
    pub(crate) fn start(&mut self, index: HostIndex, scenario: &mut S) {
        let host = &mut self.hosts[usize::from(index)];
        self.out.current = Some(host.id);
        let lost_its_disk = !host.recover(&mut self.out);
        if lost_its_disk && !self.replace_disk(index, scenario) {
            return;
        }
        let host = &mut self.hosts[usize::from(index)];
        // A misdirection that was planned while the host was down still waits for its write.
        host.damaged = host.disk.misdirection_waits();
        let nodes =
            scenario.build(Incarnation { host: host.id, number: host.incarnation, wiped: host.wiped });
        host.start(self.seed, nodes, &mut self.out);
        if self.phase == Phase::Safety {
            self.out.echo(index, lost_its_disk);
        }
        for client in 0..self.clients.len() {
            if self.clients[client].host == index {
                self.schedule(client as u16);
            }
        }
        self.after_burst(index, scenario);
    }

    /// Asks the scenario what becomes of a host without its disk; true if it starts with an empty one.
    pub(crate) fn replace_disk(&mut self, index: HostIndex, scenario: &mut S) -> bool {
        let id = self.hosts[usize::from(index)].id;
        self.out.trace.line(self.out.now, Some(id), || "DISK LOST".to_owned());
        self.out.forget_elders(index);
        if self.out.claims.is_some() {
            self.out.facts.push(Fact::DiskLost { host: id });
            self.notify_facts(scenario);
        }
        let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now };
        let replacement = scenario.on_disk_lost(id, &cluster);
        let host = &mut self.hosts[usize::from(index)];
        match replacement {
            Replacement::StayDown => {
                host.status = Status::Lost;
                false
            }
            Replacement::Wiped => {
                host.disk = crate::disk::Disk::default();
                host.wiped = true;
                true
            }
        }
    }

    /// Notifies the scenario that requests of a host that went down will not be answered.
    pub(crate) fn lose_requests(&mut self, index: HostIndex, scenario: &mut S) {
        let host = self.hosts[usize::from(index)].id;
        let lost: Vec<_> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.0.host() == host)
            .map(|(id, asked)| (*id, *asked))
            .collect();
        for (id, (node, client)) in lost {
            self.asked.remove(&id);
            if let Some(client) = client {
                self.clients[usize::from(client)].asked = None;
            }
            scenario.on_lost(node, id);
        }
    }

    /// Calls the scenario with a hand on the run, and carries out what it asks for.
    pub(crate) fn notify<R>(
        &mut self,
        scenario: &mut S,
        call: impl FnOnce(&mut S, &mut Control<'_, S::Node>) -> R,
    ) -> R {
        let mut commands = std::mem::take(&mut self.commands);
        let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now };
        let mut control = Control { cluster, commands: &mut commands, requests: &mut self.requests };
        let result = call(scenario, &mut control);
        for command in commands.drain(..) {
            self.obey(command, None, scenario);
        }
        self.commands = commands;
        result
    }

    pub(crate) fn obey(&mut self, command: Command<S::Node>, client: Option<u16>, scenario: &mut S) {
        match command {
            Command::Request { node, id, request } => {
                let Some(index) = self.out.host_index(node.host()) else {
                    panic!("SCENARIO: {node} is on no host of the scenario")
                };
                let host = &mut self.hosts[usize::from(index)];
                if host.status != Status::Up {
                    scenario.on_lost(node, id);
                    return;
                }
                self.asked.insert(id, (node, client));
                if let Some(client) = client {
                    self.clients[usize::from(client)].asked = Some(id);
                }
                // Through the queue, because the host may be in the middle of a burst.
                if host.arrive(Input::Request { to: node, id, request }, &mut self.out) {
                    self.out
                        .queue
                        .push(self.out.now, Event::Wake { host: index, incarnation: host.incarnation });
                }
            }
            Command::Inflict { blow, lasts } => {
                self.inflict(blow, lasts, scenario);
            }
            Command::Boot { host } => {
                let incarnation = self.hosts[usize::from(host)].incarnation;
                self.out.queue.push(self.out.now, Event::Restart { host, incarnation });
            }
            Command::Stop { host } => {
                self.crash(host, crate::plan::Loss::None, 0, false, scenario);
            }
            Command::Resume { host } => self.hosts[usize::from(host)].resume(&mut self.out),
            Command::Sever { from, to, severed } => {
                if self.phase == Phase::Safety {
                    self.out.network.sever_link(from, to, severed);
                }
            }
            Command::Hinder { to, how, lasts } => {
                if self.phase == Phase::Safety {
                    self.out.network.hinder(to, how, self.out.now + lasts);
                }
            }
            Command::PartitionArchive { hosts, lasts } => {
                if self.phase == Phase::Safety {
                    self.out.archive.partition(hosts, self.out.now + lasts);
                }
            }
            Command::Alarm { after, token } => {
                self.out.queue.push(self.out.now + after, Event::Alarm { token })
            }
            Command::Mark { name } => *self.out.marks.entry(name).or_default() += 1,
        }
    }

    /// The invariant broke in the step that is being made.
    fn violation(&self, invariant: String, what: String) -> Violation {
        let (step, at, host) = (self.out.trace.step, self.out.now, self.out.current);
        Violation { invariant, what, step, at, host }
    }

    fn outcome(
        mut self,
        family: &'static str,
        applicable: Classes,
        violation: Option<Violation>,
        scenario: &S,
    ) -> Outcome {
        let mut faults = std::mem::take(&mut self.faults);
        faults.append(&mut self.out.network.drawn);
        let omitted = self.omitted.iter().copied().collect();
        let history =
            violation.is_some().then(|| panics::caught(|| scenario.history()).ok().flatten()).flatten();
        let last = match &violation {
            Some(violation) => self.out.trace.last(40, violation.host),
            None => self.out.trace.last(usize::MAX, None),
        };
        Outcome {
            family,
            seed: self.seed,
            hash: self.out.trace.hash(),
            events: self.out.trace.step,
            simulated: self.out.now,
            operations: self.begun,
            injections: self.out.injections,
            marks: self.out.marks,
            rejects: self.out.rejects,
            violation,
            excused: self.excused,
            undecided: scenario.is_undecided(),
            plan: Plan {
                family: family.to_owned(),
                seed: self.seed,
                salt: self.salt,
                heal_at: self.heal_at,
                faults,
                omitted,
                retained: self.retained.map(Retained::into_all),
            },
            swarm: self.out.swarm,
            applicable,
            strikes: S::STRIKES,
            history,
            names: std::mem::take(&mut self.out.names),
            last,
            trace: self.out.trace.last(usize::MAX, None),
        }
    }
}
