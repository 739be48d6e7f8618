//! Wall clocks that roles rest on: where they begin, and how hosts compare them.

use super::Run;
use crate::clock::REPORT_EVERY;
use crate::draw::{Purpose, mix, root};
use crate::host::Status;
use crate::plan::HostIndex;
use crate::queue::Event;
use crate::scenario::Scenario;
use kernel::Rng;

impl<S: Scenario> Run<S> {
    /// If roles rest on the clocks: each begins at an edge of its error, or anywhere within.
    pub(super) fn rely_on_clocks(&mut self) {
        let Some(error_max) = self.tuning.clock_error_max else { return };
        let mut rng = Rng::seeded(mix(root(self.seed, Purpose::Clocks), 1));
        for host in &mut self.hosts {
            host.clock.is_relied_on(error_max);
            host.clock.set_grain(self.tuning.clock_grain);
            let within = rng.between(0, 2_000_000) as f64 / 1e6 - 1.0;
            host.clock.set_offset(if self.out.swarm.clocks_at_edges { within.signum() } else { within });
        }
        self.out.queue.push(0, Event::Clocks);
    }

    /// Every member reports to all hosts that it reaches how its clock stands: the others, and those of clients that rest on theirs. That
    /// takes no time, which is the hardest judge of honest clocks.
    pub(super) fn compare_clocks(&mut self, scenario: &S) {
        let now = self.out.now;
        let members = scenario.members();
        for host in &mut self.hosts {
            let others = members.iter().copied().filter(|&member| member != host.id);
            host.clock.set_peers(others.collect());
        }
        let hears = |run: &Self, index: HostIndex| {
            let host = &run.hosts[usize::from(index)];
            host.status == Status::Up && host.paused_until <= now
        };
        let hosts = 0..self.hosts.len() as HostIndex;
        for (from, to) in hosts.clone().flat_map(|from| hosts.clone().map(move |to| (from, to))) {
            let reaches = !self.out.network.is_severed(from, to) && hears(self, from) && hears(self, to);
            if from == to || !reaches {
                continue;
            }
            let (sender, receiver) = (self.hosts[usize::from(from)].id, self.hosts[usize::from(to)].id);
            if let Some(report) = self.hosts[usize::from(from)].clock.report(receiver, now) {
                self.hosts[usize::from(to)].clock.on_report(sender, report, now);
            }
        }
        self.out.queue.push(now + REPORT_EVERY, Event::Clocks);
    }
}
