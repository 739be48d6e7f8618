//! A sequencer that is killed when it has hardly begun, or while it seals: what it was answered for its epoch comes once more to its
//! next run.

use super::{KILL_NEXT, MasonScenario, Node};
use crate::moments;
use kernel::{NodeId, Rng};
use sim::{Control, Hindrance, Loss};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Looks until none is expected any more.
const LOOKS_MAX: u32 = 1_000;
const DOWN: Duration = Duration::from_millis(20);
/// For how long what is sent to one that is killed while it seals comes once more when that is over.
const REPEATED_FOR: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(250));

/// In a quarter of the seeds standbys are killed while they seal.
pub(super) struct Sealing {
    left: u32,
    /// The last one that was seen to seal.
    seen: Option<(NodeId, u64)>,
    rng: Rng,
}

impl Sealing {
    /// From a generator of its own.
    pub(super) fn draw(rng: &Rng) -> Self {
        let mut own = Rng::seeded(rng.clone().bits() ^ 0x7365_616c);
        let left = if own.chance(0.25) { own.between(1, 4) as u32 } else { 0 };
        Self { left, seen: None, rng: own }
    }

    pub(super) fn is_on(&self) -> bool {
        self.left > 0
    }

    /// A standby dies when it has asked for its seals. Its next run is asked to recover the same epoch, and nobody hears its own attempt
    /// when the seals of the one before come.
    pub(super) fn look(&mut self, control: &mut Control<'_, Node>) {
        let sealing =
            moments::recovering(&control.cluster).filter(|it| self.left > 0 && self.seen != Some(*it));
        let Some((standby, epoch)) = sealing else { return };
        self.seen = Some((standby, epoch));
        if self.rng.chance(0.5) {
            return;
        }
        self.left -= 1;
        control.mark("scenario.repeated_seals_to_a_later_attempt");
        let lasts = self.rng.duration(REPEATED_FOR.0, REPEATED_FOR.1);
        control.hinder(standby, Hindrance::Repeated, lasts);
        control.mute(standby.host(), lasts + DOWN);
        control.crash(standby.host(), Loss::All, DOWN, &mut self.rng);
    }
}

impl MasonScenario {
    /// In two of five strikes at the sequencer: the next one is killed, too. From a generator of its own, so that all other strikes draw
    /// what they drew without.
    pub(super) fn kill_the_next(&mut self, rng: &Rng, control: &mut Control<'_, Node>) {
        let mut own = Rng::seeded(rng.clone().bits() ^ 0x6e65_7874);
        if own.chance(0.4) && self.looks_for_the_next == 0 {
            self.looks_for_the_next = LOOKS_MAX;
            control.alarm(LOOK_EVERY, KILL_NEXT);
        }
    }

    pub(super) fn look_for_the_next(&mut self, control: &mut Control<'_, Node>) {
        self.looks_for_the_next -= 1;
        if !self.core.is_empty() || self.looks_for_the_next == 0 {
            self.looks_for_the_next = 0;
            return;
        }
        let Some(host) = moments::sequencer(&control.cluster) else {
            return control.alarm(LOOK_EVERY, KILL_NEXT);
        };
        self.looks_for_the_next = 0;
        control.mark("scenario.killed_a_sequencer_that_had_just_begun");
        let mut rng = Rng::seeded(control.cluster.now());
        control.crash(host, Loss::All, DOWN, &mut rng);
    }
}
