//! Sessions close while their home moves. Their clean-up waits for its number meanwhile, and is their old home's still.

use super::node::Seat;
use super::words::{Ask, EPHEMERAL, SEQUENTIAL};
use super::{ASK_FOR_GROUPS, AT_REST, CoordinationScenario, checks, expiring, nanos, rest};
use kernel::Rng;
use sim::{Cluster, Control, Hindrance};
use std::time::Duration;

/// The alarm for the next step.
pub(super) const LEAVE: u64 = AT_REST + 10;

const LOOK_EVERY: Duration = Duration::from_millis(3);

/// How far it is.
#[derive(Clone, Copy)]
enum Stage {
    /// There are groups enough to move from, or there soon are.
    Waits,
    /// Sessions make ephemeral nodes: one without is over as soon as it is closing.
    Owns,
    /// They are closing, and fewer groups are asked for.
    Looks { until: u64 },
}

/// See the file's head.
pub(super) struct Leaving {
    rng: Rng,
    stage: Stage,
}

/// True if some session is closing where it is at home no more.
fn is_left_behind(cluster: &Cluster<'_, Seat>) -> bool {
    rest::replicas(cluster.nodes()).any(|(_, machine)| machine.stub().closes_for_others())
}

impl Leaving {
    pub(super) fn new(rng: Rng) -> Self {
        Self { rng, stage: Stage::Waits }
    }

    pub(super) fn begins_after(&mut self) -> Duration {
        self.rng.duration(Duration::from_secs(1), Duration::from_secs(4))
    }
}

impl CoordinationScenario {
    pub(super) fn go_on_leaving(&mut self, control: &mut Control<'_, Seat>) {
        let Some(mut leaving) = self.leaving.take().filter(|_| self.healed_at.is_none()) else { return };
        let (stage, after) = self.leave(&mut leaving, control);
        leaving.stage = stage;
        self.leaving = Some(leaving);
        control.alarm(after, LEAVE);
    }

    /// Returns what comes next, and when.
    fn leave(&mut self, leaving: &mut Leaving, control: &mut Control<'_, Seat>) -> (Stage, Duration) {
        let (now, ms) = (control.cluster.now(), Duration::from_millis);
        let rng = &mut leaving.rng;
        match leaving.stage {
            Stage::Waits => {
                if self.wishes.can_have_fewer_groups() {
                    for number in 0..self.users.len() {
                        let (path, value) = (format!("{}/n-", checks::LOCK), self.value());
                        let ask = Ask::Create { path, value, flags: EPHEMERAL | SEQUENTIAL };
                        self.say(number, ask, false, control);
                    }
                    return (Stage::Owns, rng.duration(ms(100), ms(800)));
                }
                if self.wishes.draw_more_groups(rng) {
                    control.alarm(Duration::ZERO, ASK_FOR_GROUPS);
                }
                (Stage::Waits, rng.duration(ms(300), ms(1_500)))
            }
            Stage::Owns => {
                if !self.wishes.draw_fewer_groups(rng) {
                    return (Stage::Waits, rng.duration(ms(300), ms(1_500)));
                }
                let held_for = rng.duration(ms(300), ms(1_200));
                for sequencer in expiring::sequencers(&control.cluster) {
                    control.hinder(sequencer, Hindrance::Held, held_for);
                }
                for number in 0..self.users.len() {
                    if rng.chance(0.7) {
                        self.say(number, Ask::Close, false, control);
                    }
                }
                control.alarm(rng.duration(ms(1), ms(100)), ASK_FOR_GROUPS);
                (Stage::Looks { until: now + nanos(held_for) }, LOOK_EVERY)
            }
            Stage::Looks { until } => {
                if is_left_behind(&control.cluster) {
                    control.mark("scenario.moved_the_home_of_a_closing_session");
                } else if now < until {
                    return (leaving.stage, LOOK_EVERY);
                }
                (Stage::Waits, leaving.begins_after())
            }
        }
    }
}
