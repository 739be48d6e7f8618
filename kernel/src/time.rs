//! Time as a role sees it: a monotonic instant, and a wall clock that is an interval.

use std::ops::{Add, Sub};
use std::time::Duration;

const NANOS_PER_MICRO: u64 = 1_000;

/// Nanoseconds on the driver's monotonic clock; comparable within one run of one host only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The last multiple of `every`, which is not zero, at or before it.
    pub fn last_turn(self, every: Duration) -> Self {
        let every = every.as_nanos() as u64;
        Self(self.0 / every * every)
    }

    /// The first multiple of `every`, which is not zero, after it.
    pub fn next_turn(self, every: Duration) -> Self {
        self.last_turn(every) + every
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration.as_nanos().min(u128::from(u64::MAX)) as u64))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// The wall clock: true time lies between `earliest` and `latest`, in nanoseconds since the Unix epoch.
///
/// While it is not usable, nobody vouches for that: the interval still is around the system's clock, and is good for display and for
/// timestamps that promise nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wall {
    /// No true time of this moment is before it.
    pub earliest: u64,
    /// No true time of this moment is after it.
    pub latest: u64,
    /// Duties that rest on true time may be done by it.
    pub usable: bool,
}

impl Wall {
    /// An interval that somebody vouches for.
    pub const fn between(earliest: u64, latest: u64) -> Self {
        Self { earliest, latest, usable: true }
    }

    /// The interval by which duties may be done that rest on true time; none while they must be given up.
    pub fn trusted(self) -> Option<Self> {
        self.usable.then_some(self)
    }

    /// Microseconds since the Unix epoch that no true time of this moment is after (the Spanner paper's TT.now.latest).
    pub fn latest_micros(self) -> u64 {
        self.latest.div_ceil(NANOS_PER_MICRO)
    }

    /// Microseconds since the Unix epoch that no true time of this moment is before (TT.now.earliest).
    pub fn earliest_micros(self) -> u64 {
        self.earliest / NANOS_PER_MICRO
    }

    /// True if so many microseconds since the Unix epoch have surely passed (TT.after). By a clock that cannot be relied on, nothing has.
    pub fn has_passed_micros(self, at: u64) -> bool {
        self.usable && self.earliest > at.saturating_mul(NANOS_PER_MICRO)
    }

    /// How long it takes at least until they have surely passed; zero if they have.
    pub fn until_passed_micros(self, at: u64) -> Duration {
        let passed = at.saturating_mul(NANOS_PER_MICRO).saturating_add(1);
        Duration::from_nanos(passed.saturating_sub(self.earliest))
    }

    /// The middle of the interval, which is the system's clock: for display and timestamps that promise nothing.
    pub fn midpoint(self) -> u64 {
        self.earliest + (self.latest - self.earliest) / 2
    }
}
