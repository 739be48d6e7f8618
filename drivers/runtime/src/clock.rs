//! The clocks of a host: monotonic since its start, and a wall clock that is an interval.

use kernel::{Instant, Wall};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where the wall clock's error bound comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockSource {
    /// The operator vouches that the system clock is within `epsilon` of true time.
    Fixed {
        /// The largest error, either way.
        epsilon: Duration,
    },
    /// The bound that the kernel keeps (`adjtimex` maxerror), as disciplined by chrony or ntpd.
    Kernel {
        /// Refuse to start if the kernel's clock is not synchronised; otherwise the kernel's own huge bound is used.
        required: bool,
    },
}

/// Why a host has no usable wall clock.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClockError {
    /// The kernel says that nobody disciplines its clock.
    #[error(
        "the system clock is not synchronised (kernel bound: {bound_us} us); start chrony, or give a fixed epsilon"
    )]
    Unsynchronised {
        /// The kernel's bound, in microseconds.
        bound_us: u64,
    },
    /// The kernel gives no bound.
    #[error("the kernel's clock state cannot be read: {0}")]
    Unreadable(String),
}

/// The kernel raises its bound by 500 us a second; read once a second, a bound is stale by at most that.
const BOUND_STALE: Duration = Duration::from_micros(500);
const BOUND_READ_EVERY: Duration = Duration::from_secs(1);

/// The clocks of one host. A reading is retained until `refresh`.
#[derive(Debug)]
pub(crate) struct Clock {
    source: ClockSource,
    start: std::time::Instant,
    now: Instant,
    wall: Wall,
    bound: Duration,
    bound_read: Instant,
}

impl Clock {
    pub(crate) fn new(source: ClockSource) -> Result<Self, ClockError> {
        let bound = match source {
            ClockSource::Fixed { epsilon } => epsilon,
            ClockSource::Kernel { required } => match kernel_bound()? {
                (bound, true) => bound,
                (bound, false) if required => {
                    return Err(ClockError::Unsynchronised { bound_us: bound.as_micros() as u64 });
                }
                (bound, false) => bound,
            },
        };
        let start = std::time::Instant::now();
        let zero = Wall { earliest: 0, latest: 0 };
        let mut clock = Self { source, start, now: Instant(0), wall: zero, bound, bound_read: Instant(0) };
        clock.refresh();
        Ok(clock)
    }

    /// Reads both clocks. Must follow every read from a socket: a message's arrival is before `latest`.
    pub(crate) fn refresh(&mut self) {
        self.now = Instant(self.start.elapsed().as_nanos() as u64);
        if let ClockSource::Kernel { .. } = self.source
            && self.now.since(self.bound_read) >= BOUND_READ_EVERY
        {
            self.bound_read = self.now;
            if let Ok((bound, _)) = kernel_bound() {
                self.bound = bound + BOUND_STALE;
            }
        }
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let bound = self.bound.as_nanos() as u64;
        self.wall = Wall { earliest: nanos.saturating_sub(bound), latest: nanos.saturating_add(bound) };
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn wall(&self) -> Wall {
        self.wall
    }
}

/// The kernel's error bound, and whether its clock is synchronised.
fn kernel_bound() -> Result<(Duration, bool), ClockError> {
    // SAFETY: `timex` is plain data for which all zeros is valid, and mode 0 asks adjtimex only to fill it in.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut timex), timex)
    };
    if state < 0 {
        return Err(ClockError::Unreadable(std::io::Error::last_os_error().to_string()));
    }
    let synchronised = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    Ok((Duration::from_micros(timex.maxerror.max(0) as u64), synchronised))
}

#[cfg(test)]
mod tests {
    use super::*;

    // An interval that leaves out the true time breaks every protocol that waits it out.
    #[test]
    fn the_interval_holds_the_system_time_and_has_the_width_asked_for() {
        let epsilon = Duration::from_millis(2);
        let system = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let before = system();
        let clock = Clock::new(ClockSource::Fixed { epsilon }).expect("a fixed bound is always there");
        let wall = clock.wall();
        assert!(wall.earliest <= before + 2_000_000 && wall.latest >= before + 2_000_000);
        assert!(wall.latest - 2_000_000 <= system());
        assert_eq!(wall.latest - wall.earliest, 4_000_000);
    }

    // An unsynchronised machine must be reported at start, not by a commit wait of sixteen seconds.
    #[test]
    fn an_unsynchronised_kernel_clock_is_refused_if_required() {
        let (_, synchronised) = kernel_bound().expect("adjtimex is readable by everybody");
        let clock = Clock::new(ClockSource::Kernel { required: true });
        assert_eq!(clock.is_ok(), synchronised);
        assert!(Clock::new(ClockSource::Kernel { required: false }).is_ok());
    }
}
