//! How faults strike a run, and how the core is healed of them.

use super::{Phase, Run};
use crate::class::Class;
use crate::draw::{Purpose, mix, root};
use crate::host::{Armed, Status};
use crate::outside::Happening;
use crate::plan::{Aim, Blow, Fault, Frozen, HostIndex, Loss};
use crate::queue::Event;
use crate::scenario::{Cluster, Core, Scenario};
use kernel::{HostId, Rng};

/// How long an aimed fault waits for its moment.
const AIM_EXPIRES_AFTER: u64 = 5_000_000_000;
/// How often a healed core is asked whether it has converged.
const POLL_EVERY: u64 = 20_000_000;

impl<S: Scenario> Run<S> {
    /// A planned fault strikes.
    pub(crate) fn strike(&mut self, number: u32, scenario: &mut S) {
        let Fault::Timed { lasts, blow, .. } = self.faults[number as usize] else { return };
        self.inflict(blow, lasts, scenario);
    }

    /// Aimed faults whose moment has come.
    pub(crate) fn strike_triggered(&mut self, scenario: &mut S) {
        while let Some(number) = self.out.triggered.pop() {
            let (blow, lasts) = self.begun_faults[number as usize];
            match blow {
                Blow::WriteError { host, draw } => {
                    let loss = [Loss::All, Loss::Torn, Loss::Reordered][(draw % 3) as usize];
                    self.out.injections.count(Class::WriteError);
                    self.crash(host, loss, mix(draw, 0), false, scenario);
                    self.restart_after(host, lasts);
                }
                Blow::MisdirectedWrite { host, .. } => {
                    self.out.injections.count(Class::MisdirectedWrite);
                    self.crash(host, Loss::None, 0, false, scenario);
                    self.restart_after(host, lasts);
                }
                blow => self.crash_now(blow, lasts, scenario),
            }
        }
    }

    /// Inflicts a fault now, or lets it wait for its moment.
    pub(crate) fn inflict(&mut self, blow: Blow, lasts: u64, scenario: &mut S) {
        let now = self.out.now;
        let number = self.begun_faults.len() as u32;
        self.begun_faults.push((blow, lasts));
        let class = blow.class(S::STRIKES);
        self.out.happened(Happening::Fault, class as u64, lasts);
        self.out.trace.line(now, None, || format!("FAULT {blow:?} for {} ms", lasts / 1_000_000));
        match blow {
            Blow::Crash { aim: Aim::Now, .. } => return self.crash_now(blow, lasts, scenario),
            Blow::Crash { hosts, aim, .. } => {
                let armed = Armed { fault: number, aim, expires: now + AIM_EXPIRES_AFTER };
                for host in hosts.below(self.hosts.len()) {
                    self.hosts[usize::from(host)].armed = Some(armed);
                }
                return;
            }
            Blow::WriteError { host, .. } => {
                self.hosts[usize::from(host)].write_error = Some(number);
                return;
            }
            Blow::BitRot { host, draw } => return self.rot(host, draw, lasts, scenario),
            Blow::MisdirectedWrite { host, draw } => {
                if self.may_lose_disk(host, scenario) {
                    let it = &mut self.hosts[usize::from(host)];
                    it.disk.misdirect_next(draw);
                    it.damaged = true;
                    it.misdirection = Some(number);
                }
                return;
            }
            Blow::DiskLost { host } => return self.lose_disk(host, lasts, scenario),
            Blow::Strike { which, draw } => {
                let mut rng = Rng::seeded(draw);
                let which = usize::from(which);
                if self.notify(scenario, |scenario, control| scenario.strike(which, &mut rng, control)) {
                    self.out.injections.count(class);
                }
                return;
            }
            Blow::Partition { links } => self.out.network.sever(links, true),
            Blow::Clog { from, to } => self.out.network.clog(from, to, now + lasts),
            Blow::Pause { host } => {
                let it = &mut self.hosts[usize::from(host)];
                if it.status != Status::Up {
                    return;
                }
                it.paused_until = it.paused_until.max(now + lasts);
            }
            Blow::SlowNode { host, factor } => self.hosts[usize::from(host)].node_slowness = factor,
            Blow::SlowDisk { host, factor } => self.hosts[usize::from(host)].disk_slowness = factor,
            Blow::DiskFull { host } => {
                let it = &mut self.hosts[usize::from(host)];
                it.disk_full_until = it.disk_full_until.max(now + lasts);
            }
            Blow::ClockSkew { host, .. }
            | Blow::ClockJump { host, .. }
            | Blow::ClockDrift { host, .. }
            | Blow::ClockLie { host, .. }
            | Blow::ClockLoss { host }
            | Blow::ClockStep { host, .. } => self.turn_clock(usize::from(host), blow),
        }
        self.out.injections.count(class);
        self.out.queue.push(now + lasts, Event::FaultEnd { fault: number });
    }

    fn turn_clock(&mut self, host: usize, blow: Blow) {
        let (now, clock) = (self.out.now, &mut self.hosts[host].clock);
        match blow {
            Blow::ClockSkew { millionths, .. } | Blow::ClockJump { millionths, .. } => {
                clock.set_offset(f64::from(millionths) / 1e6);
            }
            Blow::ClockDrift { per_billion, .. } => {
                clock.set_drift(now, per_billion);
            }
            Blow::ClockLie { nanoseconds, .. } => {
                clock.set_lie(nanoseconds);
            }
            Blow::ClockLoss { .. } => clock.set_lost(now, true),
            Blow::ClockStep { nanoseconds, .. } => {
                clock.set_step(now, nanoseconds);
            }
            Blow::Crash { .. }
            | Blow::WriteError { .. }
            | Blow::BitRot { .. }
            | Blow::MisdirectedWrite { .. }
            | Blow::DiskLost { .. }
            | Blow::Strike { .. }
            | Blow::Partition { .. }
            | Blow::Clog { .. }
            | Blow::Pause { .. }
            | Blow::SlowNode { .. }
            | Blow::SlowDisk { .. }
            | Blow::DiskFull { .. } => {}
        }
    }

    /// A fault that lasted is over.
    pub(crate) fn end_fault(&mut self, number: u32) {
        let (blow, _) = self.begun_faults[number as usize];
        self.out.happened(Happening::FaultEnd, u64::from(number), 0);
        match blow {
            Blow::Partition { links } => self.out.network.sever(links, false),
            Blow::SlowNode { host, .. } => self.hosts[usize::from(host)].node_slowness = 1,
            Blow::SlowDisk { host, .. } => self.hosts[usize::from(host)].disk_slowness = 1,
            Blow::ClockLie { host, .. } => self.hosts[usize::from(host)].clock.set_lie(0),
            Blow::ClockLoss { host } => self.hosts[usize::from(host)].clock.set_lost(self.out.now, false),
            Blow::ClockStep { host, .. } => self.hosts[usize::from(host)].clock.set_step(self.out.now, 0),
            // These carry their end with them, or have none.
            Blow::Clog { .. }
            | Blow::Pause { .. }
            | Blow::DiskFull { .. }
            | Blow::Crash { .. }
            | Blow::WriteError { .. }
            | Blow::BitRot { .. }
            | Blow::MisdirectedWrite { .. }
            | Blow::DiskLost { .. }
            | Blow::ClockSkew { .. }
            | Blow::ClockJump { .. }
            | Blow::ClockDrift { .. }
            | Blow::Strike { .. } => return,
        }
        self.out.trace.line(self.out.now, None, || format!("FAULT OVER {blow:?}"));
    }

    fn crash_now(&mut self, blow: Blow, lasts: u64, scenario: &mut S) {
        let Blow::Crash { hosts, loss, output_lost, draw, .. } = blow else { return };
        let (mut crashed, mut damaged) = (false, false);
        for host in hosts.below(self.hosts.len()) {
            if self.hosts[usize::from(host)].status == Status::Up {
                crashed = true;
                damaged |= self.crash(host, loss, mix(draw, u64::from(host)), output_lost, scenario);
                // Hosts that fell together do not rise together.
                self.restart_after(host, lasts + mix(draw, 100 + u64::from(host)) % (lasts / 2 + 1));
            }
        }
        if damaged {
            self.out.injections.count(blow.class(S::STRIKES));
        } else if crashed {
            self.out.injections.count(Class::Crash);
        }
    }

    /// One host goes down; true if unsynced writes were damaged.
    pub(crate) fn crash(
        &mut self,
        index: HostIndex,
        loss: Loss,
        draw: u64,
        output_lost: bool,
        scenario: &mut S,
    ) -> bool {
        self.restart_dry(index, draw, scenario);
        let host = &mut self.hosts[usize::from(index)];
        if host.status != Status::Up {
            return false;
        }
        if output_lost {
            host.output_lost_to = Some(host.incarnation);
        }
        let damaged = host.crash(loss, draw, &mut self.out);
        self.lose_requests(index, scenario);
        damaged
    }

    fn restart_after(&mut self, host: HostIndex, after: u64) {
        let incarnation = self.hosts[usize::from(host)].incarnation;
        self.out.queue.push(self.out.now + after, Event::Restart { host, incarnation });
    }

    /// After the heal, only the core may come back.
    pub(crate) fn may_restart(&self, host: HostIndex) -> bool {
        self.phase == Phase::Safety || self.core.contains(&host)
    }

    fn may_lose_disk(&self, host: HostIndex, scenario: &S) -> bool {
        let it = &self.hosts[usize::from(host)];
        let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now };
        it.status != Status::Lost && !it.is_damaged() && scenario.may_lose_disk(it.id, &cluster)
    }

    fn rot(&mut self, host: HostIndex, draw: u64, lasts: u64, scenario: &mut S) {
        if !self.may_lose_disk(host, scenario) {
            return;
        }
        let it = &mut self.hosts[usize::from(host)];
        if it.rot_blob(draw, &mut self.out) {
            if scenario.reads_blobs_at_start() {
                self.crash(host, Loss::None, 0, false, scenario);
                self.restart_after(host, lasts);
            }
            return;
        }
        if !it.disk.rot(draw) {
            return;
        }
        it.damaged = true;
        self.out.injections.count(Class::BitRot);
        self.crash(host, Loss::None, 0, false, scenario);
        self.restart_after(host, lasts);
    }

    fn lose_disk(&mut self, host: HostIndex, lasts: u64, scenario: &mut S) {
        if !self.may_lose_disk(host, scenario) {
            return;
        }
        self.out.injections.count(Class::DiskLost);
        self.crash(host, Loss::All, 0, false, scenario);
        if self.replace_disk(host, scenario) {
            self.restart_after(host, lasts);
        }
    }

    /// The end of the safety phase: a core is healed, the rest stays broken.
    pub(crate) fn heal(&mut self, scenario: &mut S) {
        let now = self.out.now;
        let mut rng = Rng::seeded(root(self.seed, Purpose::Core));
        for host in &mut self.hosts {
            host.disarm();
        }
        let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now };
        let core = match scenario.core(&cluster, &mut rng) {
            Core::Hosts(core) => core,
            Core::Excused(reason) => {
                self.excused = Some(reason);
                self.phase = Phase::Over;
                return;
            }
        };
        self.out.happened(Happening::Heal, core.len() as u64, 0);
        self.phase = Phase::Liveness;
        self.deadline = now + self.tuning.liveness.as_nanos() as u64;
        self.core = core.iter().filter_map(|&id| self.out.host_index(id)).collect();
        if !self.replays && self.tuning.calm.is_none() {
            self.draw_frozen(scenario, &mut rng);
        }
        self.out.network.heal();
        self.out.archive.heal();
        let frozen: Vec<_> = self
            .faults
            .iter()
            .filter_map(
                |fault| if let Fault::Freeze { host, way } = *fault { Some((host, way)) } else { None },
            )
            .collect();
        for index in 0..self.hosts.len() as HostIndex {
            if let Some(&(_, way)) = frozen.iter().find(|(host, _)| *host == index) {
                self.freeze(index, way, scenario);
            } else if self.core.contains(&index) || self.replays {
                self.mend(index, scenario);
            }
        }
        self.out.trace.line(now, None, || format!("HEAL core {core:?}, frozen {frozen:?}"));
        for client in 0..self.clients.len() {
            self.schedule(client as u16);
        }
        self.out.queue.push(now + POLL_EVERY, Event::Poll);
        self.notify(scenario, |scenario, control| scenario.on_heal(&core, control));
    }

    fn draw_frozen(&mut self, scenario: &S, rng: &mut Rng) {
        let ways = scenario.frozen_ways();
        for host in 0..self.hosts.len() as HostIndex {
            if !self.core.contains(&host)
                && let Some(&way) = rng.pick(&ways)
            {
                self.faults.push(Fault::Freeze { host, way });
            }
        }
    }

    fn freeze(&mut self, index: HostIndex, way: Frozen, scenario: &mut S) {
        let (deaf, mute) = match way {
            Frozen::Down => {
                self.crash(index, Loss::None, 0, false, scenario);
                return;
            }
            Frozen::Paused => {
                self.hosts[usize::from(index)].paused_until = u64::MAX;
                return;
            }
            Frozen::Isolated => (true, true),
            Frozen::Deaf => (true, false),
            Frozen::Mute => (false, true),
        };
        for member in self.core.clone() {
            if deaf {
                self.out.network.sever_link(member, index, true);
            }
            if mute {
                self.out.network.sever_link(index, member, true);
            }
        }
    }

    fn mend(&mut self, index: HostIndex, scenario: &mut S) {
        let host = &mut self.hosts[usize::from(index)];
        host.mend(&mut self.out);
        if host.status == Status::Down {
            self.start(index, scenario);
        }
    }

    /// Asks the healed core whether it has converged.
    pub(crate) fn poll(&mut self, scenario: &mut S) {
        let waiting = match self.waiting() {
            Some(clients) => Some(("LIVE", clients)),
            None => {
                let core: Vec<HostId> =
                    self.core.iter().map(|&host| self.hosts[usize::from(host)].id).collect();
                let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now };
                let converged = scenario.converged(&core, &cluster);
                converged.err().or_else(|| self.unfinished(scenario)).map(|text| ("CONV", text))
            }
        };
        let Some((invariant, what)) = waiting else {
            self.phase = Phase::Over;
            return;
        };
        if self.out.now >= self.deadline {
            let status = scenario.describe(&Cluster {
                hosts: &self.hosts,
                archive: &self.out.archive,
                now: self.out.now,
            });
            panic!("{invariant}: {:?} after the heal: {what}; {status}", self.tuning.liveness);
        }
        self.out.queue.push(self.out.now + POLL_EVERY, Event::Poll);
    }
}
