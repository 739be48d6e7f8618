//! Segments that rot. One run in three has some.

use super::{FuzzyScenario, Node};
use kernel::{HostId, Rng};
use sim::{Control, Scenario as _};

/// What is drawn of them.
pub(super) struct Rotting {
    rng: Rng,
    /// How often one is still to rot.
    left: u32,
}

impl Rotting {
    /// From a generator of its own, so that everything else is drawn as it was before there were segments.
    pub(super) fn draw(rng: &Rng) -> Self {
        let mut rng = Rng::seeded(rng.clone().bits() ^ 0x726f_7421);
        let left = if rng.chance(0.33) { rng.between(1, 3) as u32 } else { 0 };
        Self { rng, left }
    }

    /// None rots any more.
    pub(super) fn rest(&mut self) {
        self.left = 0;
    }
}

impl FuzzyScenario {
    /// Now and then a host's segments rot, if others have what it has.
    pub(super) fn rot_segments(&mut self, control: &mut Control<'_, Node>) {
        if self.rotting.left == 0 || !self.rotting.rng.chance(0.1) {
            return;
        }
        let bears = |host: &HostId| self.may_lose_disk(*host, &control.cluster);
        let hosts: Vec<HostId> = self.machines().filter(bears).collect();
        let Some(&host) = self.rotting.rng.pick(&hosts) else { return };
        if control.rot_blob(host, &mut self.rotting.rng) {
            self.rotting.left -= 1;
            control.mark("scenario.rotted_a_segment");
        }
    }
}
