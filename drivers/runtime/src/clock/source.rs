//! Where the wall clock's error bound comes from, and one reading of each.

use super::error::ClockError;
use super::{chrony, clockbound, kernel};
use ::kernel::{ClockBound, Instant};
use std::fmt;
use std::time::Duration;

/// Where the wall clock's error bound comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockSource {
    /// The first that works of those that measure: ClockBound, chrony, the kernel. Looked for anew at each reading.
    Auto,
    /// The shared memory of a ClockBound daemon.
    ClockBound,
    /// What chrony says of itself: `chronyc -c tracking`.
    Chrony,
    /// The bound that the kernel keeps (`adjtimex` maxerror), as disciplined by chrony or ntpd: sound, and wide.
    Kernel,
    /// The operator vouches that the system clock is within `epsilon` of true time.
    Fixed {
        /// The largest error, either way.
        epsilon: Duration,
    },
}

impl ClockSource {
    /// Those that measure, in the order in which `Auto` tries them.
    pub const MEASURING: [Self; 3] = [Self::ClockBound, Self::Chrony, Self::Kernel];

    /// As the cluster file writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::ClockBound => "clockbound",
            Self::Chrony => "chrony",
            Self::Kernel => "kernel",
            Self::Fixed { .. } => "fixed",
        }
    }
}

impl fmt::Display for ClockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One reading of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// The source that was read, never `Auto`.
    pub source: ClockSource,
    /// What it says.
    pub bound: ClockBound,
}

/// chrony is asked by a process of its own, so not at every reading; often enough that a loss is known within a second.
const CHRONY_EVERY: Duration = Duration::from_millis(800);

/// The clocks that measure, each read as often as is good for it.
pub(crate) struct Sources {
    start: std::time::Instant,
    chrony: Option<(Instant, Result<ClockBound, ClockError>)>,
    kernel_readings: u64,
}

impl Sources {
    /// With a monotonic clock that began at `start`.
    pub(crate) fn new(start: std::time::Instant) -> Self {
        Self { start, chrony: None, kernel_readings: 0 }
    }

    /// The monotonic clock.
    pub(crate) fn now(&self) -> Instant {
        Instant(self.start.elapsed().as_nanos() as u64)
    }

    /// Reads a source. Takes up to two seconds with a chrony that does not answer.
    pub(crate) fn read(&mut self, source: ClockSource) -> Result<ClockReading, ClockError> {
        let bound = match source {
            ClockSource::Auto => return self.first_of(&ClockSource::MEASURING),
            ClockSource::ClockBound => {
                clockbound::read(clockbound::SEGMENT, clockbound::VM_CLOCK, self.now())
            }
            ClockSource::Chrony => self.chrony(),
            ClockSource::Kernel => {
                self.kernel_readings += 1;
                kernel::read(self.now(), self.kernel_readings)
            }
            ClockSource::Fixed { epsilon } => Ok(ClockBound::vouched(epsilon)),
        };
        bound.map(|bound| ClockReading { source, bound })
    }

    fn first_of(&mut self, sources: &[ClockSource]) -> Result<ClockReading, ClockError> {
        let mut complaints = Vec::new();
        for (rank, source) in (0..).zip(sources) {
            match self.read(*source) {
                Ok(mut reading) => {
                    // Measurements of different sources are different ones.
                    reading.bound.measurement = reading.bound.measurement.wrapping_mul(4) + rank;
                    return Ok(reading);
                }
                Err(error) => complaints.push(error.to_string()),
            }
        }
        Err(ClockError::None(complaints.join("; ")))
    }

    fn chrony(&mut self) -> Result<ClockBound, ClockError> {
        let now = self.now();
        if let Some((read_at, outcome)) = &self.chrony
            && now.since(*read_at) < CHRONY_EVERY
        {
            return outcome.clone();
        }
        let outcome = chrony::read("chronyc", now);
        self.chrony = Some((now, outcome.clone()));
        outcome
    }
}
