//! Disks that are lost in a moment when the others have what they had. Two runs in five have one, where disks are lost at all: what is drawn
//! at any time mostly finds a chain that needs the disk.

use super::{FuzzyScenario, Node};
use kernel::{HostId, Rng};
use sim::{Control, Scenario as _};
use std::time::Duration;

/// What is drawn of them.
pub(super) struct Losing {
    rng: Rng,
    /// A disk is still to be lost.
    waits: bool,
}

impl Losing {
    /// From a generator of its own, so that everything else is drawn as it is without.
    pub(super) fn draw(rng: &Rng) -> Self {
        let mut rng = Rng::seeded(rng.clone().bits() ^ 0x6c6f_7374);
        let waits = rng.chance(0.4);
        Self { rng, waits }
    }

    /// No disk is lost in this run, or no more.
    pub(super) fn rest(&mut self) {
        self.waits = false;
    }
}

impl FuzzyScenario {
    /// Now and then a host's disk is lost, if others have what it has.
    pub(super) fn lose_a_disk(&mut self, control: &mut Control<'_, Node>) {
        if !self.losing.waits || !self.losing.rng.chance(0.1) {
            return;
        }
        let bears = |host: &HostId| self.may_lose_disk(*host, &control.cluster);
        let hosts: Vec<HostId> = self.machines().filter(bears).collect();
        let Some(&host) = self.losing.rng.pick(&hosts) else { return };
        self.losing.waits = false;
        let down = self.losing.rng.duration(Duration::from_millis(50), Duration::from_secs(2));
        control.mark("scenario.lost_a_disk_that_others_bear");
        control.lose_disk(host, down);
    }
}
