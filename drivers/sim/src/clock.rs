//! A host's clocks: a monotonic one that may drift, and a wall clock with an error it declares.

use kernel::planted;
use kernel::{ClockBound, ClockReport, ClockTrouble, HostId, Instant, Wall, WallClock};
use std::time::Duration;

/// Where simulated wall time begins: 2026-01-01T00:00:00Z in nanoseconds since the Unix epoch.
pub const WALL_EPOCH: u64 = 1_767_225_600_000_000_000;

const BILLION: i64 = 1_000_000_000;

/// The clocks of one host.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Nanoseconds the monotonic clock gains per second.
    drift: i64,
    since: u64,
    local_then: u64,
    /// Half the width of the wall clock's interval.
    error: u64,
    /// How far the middle of the interval is off; within `error` unless the clock lies.
    offset: i64,
    lie: i64,
    /// By how much somebody set it; the interval is wider by that.
    step: i64,
    /// The late edge of the wall clock's interval is a multiple of this: clocks of several hosts say the same; 1: it is as it is.
    grain: u64,
    /// Nobody keeps it.
    lost: bool,
    /// What roles that rest on it rely on; none where they do not.
    timed: Option<Timed>,
}

/// What decides whether a wall clock may be relied on, as in the runtime.
#[derive(Clone, Debug)]
struct Timed {
    error_max: Duration,
    peers: Vec<HostId>,
    judge: WallClock,
    measurements: u64,
}

/// How often hosts report to each other how their clocks stand.
pub(crate) const REPORT_EVERY: u64 = 250_000_000;

impl Clock {
    /// Clocks without drift or offset.
    pub(crate) fn new(error: Duration) -> Self {
        let error = error.as_nanos() as u64;
        Self {
            drift: 0,
            since: 0,
            local_then: 0,
            error,
            offset: 0,
            lie: 0,
            step: 0,
            grain: 1,
            lost: false,
            timed: None,
        }
    }

    /// A new incarnation of the host starts the monotonic clock anywhere: nobody may compare it across incarnations or hosts.
    pub(crate) fn boot(&mut self, now: u64, local: u64) {
        self.since = now;
        self.local_then = local;
        if let Some(timed) = &mut self.timed {
            timed.judge = WallClock::new(timed.error_max);
            timed.judge.set_peers(timed.peers.iter().copied());
            self.set_step(now, self.step);
            self.set_lost(now, self.lost);
        }
    }

    /// Roles rest on the clock.
    pub(crate) fn is_relied_on(&mut self, error_max: Duration) {
        let judge = WallClock::new(error_max);
        self.timed = Some(Timed { error_max, peers: Vec::new(), judge, measurements: 0 });
    }

    /// These hosts compare their clocks with it.
    pub(crate) fn set_peers(&mut self, peers: Vec<HostId>) {
        if let Some(timed) = self.timed.as_mut().filter(|timed| timed.peers != peers) {
            timed.judge.set_peers(peers.iter().copied());
            timed.peers = peers;
        }
    }

    pub(crate) fn set_grain(&mut self, grain: Duration) {
        self.grain = (grain.as_nanos() as u64).max(1);
    }

    pub(crate) fn monotonic(&self, now: u64) -> Instant {
        let passed = (now - self.since) as i64;
        let gained = if self.drift == 0 { 0 } else { scaled(passed, self.drift) };
        Instant(self.local_then + (passed + gained) as u64)
    }

    pub(crate) fn wall(&self, now: u64) -> Wall {
        let wall = self.fine_wall(now);
        Wall { latest: wall.latest.next_multiple_of(self.grain), ..wall }
    }

    fn fine_wall(&self, now: u64) -> Wall {
        let middle = self.middle(now);
        match &self.timed {
            Some(timed) => {
                let wall = timed.judge.wall(self.monotonic(now), middle);
                let is_open = planted!(contradicted_clock_relied_on)
                    && self.trouble(now) == Some(ClockTrouble::Contradicted);
                Wall { usable: wall.usable || is_open, ..wall }
            }
            None => Wall::between(middle - self.error, middle + self.error),
        }
    }

    /// Why roles that rest on the wall clock may not rely on it; none if they may, or do not rest on it.
    pub(crate) fn trouble(&self, now: u64) -> Option<ClockTrouble> {
        let timed = self.timed.as_ref()?;
        let local = self.monotonic(now);
        timed.judge.trouble(local, timed.judge.wall(local, self.middle(now)))
    }

    fn middle(&self, now: u64) -> u64 {
        (WALL_EPOCH + now).saturating_add_signed(self.offset + self.lie + self.step)
    }

    /// How far the wall clock may be off, as it is declared.
    pub(crate) fn declared_error(&self) -> Duration {
        Duration::from_nanos(self.error)
    }

    /// How much true time passes until the host's monotonic clock has counted `local`, rounded up.
    pub(crate) fn true_duration(&self, local: Duration) -> u64 {
        let local = local.as_nanos().min(i64::MAX as u128) as u64;
        if self.drift == 0 {
            return local;
        }
        let rate = i128::from(BILLION + self.drift);
        ((i128::from(local) * i128::from(BILLION) + rate - 1) / rate) as u64
    }

    /// From now on the clock gains `drift` nanoseconds a second.
    pub(crate) fn set_drift(&mut self, now: u64, drift: i64) {
        self.local_then = self.monotonic(now).0;
        self.since = now;
        self.drift = drift;
    }

    /// Puts the wall clock off by `fraction` (-1 to 1) of its declared error.
    pub(crate) fn set_offset(&mut self, fraction: f64) {
        self.offset = (self.error as f64 * fraction.clamp(-1.0, 1.0)) as i64;
    }

    /// Puts the wall clock off by `lie` nanoseconds more, without declaring it.
    pub(crate) fn set_lie(&mut self, lie: i64) {
        self.lie = lie;
    }

    /// Somebody has set the wall clock by so much, or it is right again.
    pub(crate) fn set_step(&mut self, now: u64, step: i64) {
        let (local, error, lost) = (self.monotonic(now), self.error, self.lost);
        let Some(timed) = &mut self.timed else { return };
        self.step = step;
        // A first measurement, and a younger one: what was set before is no longer in the interval.
        let mut at = local;
        for _ in 0..2 {
            timed.measurements += 1;
            at = Instant(local.0 + timed.measurements);
            timed.judge.on_bound(ClockBound {
                error: Duration::from_nanos(error),
                at,
                growth_ppb: 0,
                lasts: Duration::MAX,
                measurement: timed.measurements,
                vouched: false,
            });
        }
        if step != 0 {
            timed.judge.on_step(Duration::from_nanos(step.unsigned_abs()), at);
        }
        if lost {
            timed.judge.on_loss();
        }
    }

    /// Nobody keeps the wall clock, or somebody does again.
    pub(crate) fn set_lost(&mut self, now: u64, lost: bool) {
        self.lost = lost;
        self.set_step(now, self.step);
    }

    /// What the host says of its clock to another one; none where roles do not rest on it.
    pub(crate) fn report(&mut self, to: HostId, now: u64) -> Option<ClockReport> {
        let (wall, local) = (self.wall(now), self.monotonic(now));
        self.timed.as_mut().map(|timed| timed.judge.report(to, wall, local))
    }

    /// Another host has said how its clock stands.
    pub(crate) fn on_report(&mut self, from: HostId, report: ClockReport, now: u64) {
        let (mine, local) = (self.wall(now), self.monotonic(now));
        if let Some(timed) = &mut self.timed {
            timed.judge.on_report(from, report, mine, local);
        }
    }
}

fn scaled(passed: i64, per_billion: i64) -> i64 {
    (i128::from(passed) * i128::from(per_billion) / i128::from(BILLION)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    // A drift applied to the whole past would make the monotonic clock jump back when the drift changes.
    #[test]
    fn a_change_of_drift_keeps_the_clock_monotonic() {
        let mut clock = Clock::new(Duration::from_millis(5));
        clock.boot(0, 1_000);
        clock.set_drift(0, 10_000_000);
        let before = clock.monotonic(2_000_000_000);
        assert_eq!(before, Instant(1_000 + 2_020_000_000));
        clock.set_drift(2_000_000_000, -10_000_000);
        assert_eq!(clock.monotonic(2_000_000_000), before);
        assert_eq!(clock.true_duration(Duration::from_millis(99)), 100_000_000);
    }

    // An honest clock whose interval misses the true time would accuse every protocol that trusts it.
    #[test]
    fn only_a_lying_clock_misses_the_true_time() {
        let mut clock = Clock::new(Duration::from_millis(5));
        for fraction in [-1.0, -0.3, 0.0, 1.0] {
            clock.set_offset(fraction);
            let wall = clock.wall(77);
            assert!(wall.earliest <= WALL_EPOCH + 77 && WALL_EPOCH + 77 <= wall.latest);
        }
        clock.set_lie(20_000_000);
        assert!(clock.wall(77).earliest > WALL_EPOCH + 77);
    }
}
