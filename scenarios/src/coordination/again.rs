//! A gateway that is killed again when it has hardly spoken: what an earlier incarnation said first may come after what a later one has
//! said.

use super::{AT_REST, CoordinationScenario, Seat};
use kernel::{HostId, Rng};
use sim::{Control, Loss};
use std::time::Duration;

/// The alarm by which a host is killed again.
pub(super) const KILL_AGAIN: u64 = AT_REST + 11;

impl CoordinationScenario {
    /// In two of five strikes at a host: it is killed once more, soon after it is back. From a generator of its own, so that all other
    /// strikes draw what they drew without.
    pub(super) fn kill_again(
        &mut self,
        host: HostId,
        down: Duration,
        rng: &Rng,
        control: &mut Control<'_, Seat>,
    ) {
        let mut own = Rng::seeded(rng.clone().bits() ^ 0x6167_6169);
        if own.chance(0.4) {
            let after = own.duration(Duration::from_millis(100), Duration::from_millis(600));
            self.killed_again.push(host);
            control.alarm(down + after, KILL_AGAIN);
        }
    }

    pub(super) fn on_kill_again(&mut self, control: &mut Control<'_, Seat>) {
        let hosts = std::mem::take(&mut self.killed_again);
        if self.healed_at.is_some() {
            return;
        }
        let mut rng = Rng::seeded(control.cluster.now());
        for host in hosts.into_iter().filter(|host| control.cluster.is_up(*host)).collect::<Vec<_>>() {
            control.mark("scenario.killed_a_gateway_that_had_just_begun");
            control.crash(host, Loss::All, Duration::from_millis(50), &mut rng);
        }
    }
}
