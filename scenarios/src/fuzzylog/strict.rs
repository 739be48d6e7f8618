//! The strict order: times follow real time as long as no clock lies.

use super::{FuzzyScenario, Node};
use ::fuzzylog::{AppendTime, FuzzyOrder};
use kernel::{HostId, Rng, invariant};
use sim::{Blow, Control, WALL_EPOCH};
use std::time::Duration;

/// What is drawn of the strict order.
#[derive(Default)]
pub(super) struct Strictness {
    pub(super) order: FuzzyOrder,
    /// How many clocks are still to lie.
    lies: u32,
    /// In this run some do: times need not follow real time.
    pub(super) some_lie: bool,
}

/// A lie is so large at most: what got its time by one is answered when that has passed.
const LIE_MAX: Duration = Duration::from_millis(1_500);

impl Strictness {
    /// One run in four is strict, and of these one in three has clocks that lie.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        if !rng.chance(0.25) {
            return Self::default();
        }
        let lies = if rng.chance(0.33) { rng.between(1, 4) as u32 } else { 0 };
        Self { order: FuzzyOrder::Strict, lies, some_lie: lies > 0 }
    }

    /// Clocks are honest from now on.
    pub(super) fn heal(&mut self) {
        self.lies = 0;
    }

    /// True if what ends before something else begins has the earlier time.
    pub(super) fn holds(&self) -> bool {
        self.order.is_strict() && !self.some_lie
    }
}

impl FuzzyScenario {
    /// Now and then a host's clock is off by more than it says for a while: a server's, which gives times, or a client's, which waits for
    /// them.
    pub(super) fn lie(&mut self, rng: &mut Rng, control: &mut Control<'_, Node>) {
        if self.strictness.lies == 0 || !rng.chance(0.1) {
            return;
        }
        self.strictness.lies -= 1;
        let hosts: Vec<HostId> = control.cluster.hosts().collect();
        let host = rng.below(hosts.len() as u64) as u8;
        let size = rng.duration(Duration::from_millis(1), LIE_MAX).as_nanos() as i64;
        let nanoseconds = if rng.chance(0.5) { size } else { -size };
        let lasts = rng.duration(Duration::from_millis(100), Duration::from_secs(4));
        control.inflict(Blow::ClockLie { host, nanoseconds }, lasts);
        control.mark("scenario.clock_lied");
    }
}

/// When something began and was answered, and the time that it got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dated {
    pub(super) began: u64,
    pub(super) answered: u64,
    pub(super) at: AppendTime,
}

/// Each time is between the beginning and the end of what it is of, and what ended before something else began has the smaller one.
pub(super) fn check_times(mut dated: Vec<Dated>) {
    let nanos = |at: AppendTime| u128::from(at.clock) * 1_000;
    let run = |time: u64| u128::from(WALL_EPOCH) + u128::from(time);
    for it in &dated {
        let is_between = run(it.began) <= nanos(it.at) && nanos(it.at) < run(it.answered);
        invariant!(RT, is_between, "a time that is not between its beginning and its end: {it:?}");
    }
    dated.sort_by_key(|it| it.answered);
    let mut latest_until: Vec<AppendTime> = Vec::with_capacity(dated.len());
    for it in &dated {
        let ended = dated.partition_point(|other| other.answered <= it.began);
        let before = ended.checked_sub(1).map(|last| latest_until[last]);
        invariant!(RT, before < Some(it.at), "{before:?} was given to what had ended before {it:?} began");
        latest_until.push(latest_until.last().map_or(it.at, |latest| it.at.max(*latest)));
    }
}
