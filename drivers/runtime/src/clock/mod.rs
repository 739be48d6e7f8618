//! The clocks of a host: monotonic since its start, and a wall clock that is an interval.
//!
//! CLOCK_REALTIME and CLOCK_MONOTONIC are slewed alike, so their difference changes only when somebody sets the clock: that is a step.
//! Steps of less than 10 us are not distinguished from the time between two readings, and every interval is wider by as much. A machine
//! that stands still as a whole stops both clocks: only its source, or other hosts' clocks, can show that.

mod chrony;
mod clockbound;
mod error;
mod kernel;
mod reader;
mod source;

pub use error::ClockError;
pub use source::{ClockReading, ClockSource};

use ::kernel::{ClockReport, ClockTrouble, HostId, Instant, Wall, WallClock, since_rare_moment};
use reader::Reader;
use source::Sources;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a host knows the time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockConfig {
    /// Who bounds the error.
    pub source: ClockSource,
    /// With a larger error the clock is not usable.
    pub error_max: Duration,
    /// Refuse to start without a usable clock.
    pub required: bool,
}

/// The state of a host's wall clock, for status and metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockState {
    /// The source that was read last; what was asked for if none worked.
    pub source: &'static str,
    /// The largest error.
    pub error: Duration,
    /// Why it may not be relied on; none if it may.
    pub trouble: Option<ClockTrouble>,
    /// What the source said when it was read last and had no bound.
    pub complaint: Option<String>,
    /// How often somebody set the clock since the host started.
    pub steps: u64,
    /// The hosts whose clocks contradict this one's.
    pub contradicted_by: Vec<HostId>,
}

impl Default for ClockState {
    fn default() -> Self {
        Self {
            source: ClockSource::Auto.name(),
            error: Duration::ZERO,
            trouble: Some(ClockTrouble::Unsynchronised),
            complaint: None,
            steps: 0,
            contradicted_by: Vec::new(),
        }
    }
}

/// Two readings that are closer show a step as well as the protocol tolerates one unseen.
const CLOSE: Duration = Duration::from_micros(5);
/// How often the clocks are read again to see whether there was a step, or the thread was held between two readings.
const LOOKS_MAX: usize = 8;

/// The clocks of one host. A reading is retained until `refresh`.
pub(crate) struct Clock {
    start: std::time::Instant,
    now: Instant,
    wall: Wall,
    judge: WallClock,
    /// The system's clock less the monotonic one, when both were read close to each other.
    offset: i64,
    /// The system's clock is read as if it were so many nanoseconds further.
    off: i64,
    steps: u64,
    source: ClockSource,
    complaint: Option<String>,
    /// None for a source that need not be read again.
    reader: Option<Reader>,
}

impl Clock {
    /// `notify` is called from another thread when the source is lost, or is back.
    pub(crate) fn new(config: &ClockConfig, notify: Arc<dyn Fn() + Send + Sync>) -> Result<Self, ClockError> {
        // Hosts whose clocks agree have the same moments: each hears the others when it is awake anyway.
        let start = std::time::Instant::now() - since_rare_moment(Instant(system_nanos()));
        let mut sources = Sources::new(start);
        let first = sources.read(config.source);
        let zero = Wall { earliest: 0, latest: 0, usable: false };
        let mut clock = Self {
            start,
            now: Instant(0),
            wall: zero,
            judge: WallClock::new(config.error_max),
            offset: 0,
            off: 0,
            steps: 0,
            source: config.source,
            complaint: None,
            reader: None,
        };
        let (now, system, _) = clock.closest();
        (clock.now, clock.offset) = (now, system as i64 - now.0 as i64);
        clock.take(first.clone());
        if config.required {
            first.clone()?;
            if let Some(trouble) = clock.judge.trouble(now, clock.judge.wall(now, system)) {
                let fact = format!("{trouble}: {:?}", clock.judge.error(now));
                return Err(ClockError::Unreadable { of: clock.source.name(), fact });
            }
        }
        if !matches!(config.source, ClockSource::Fixed { .. }) {
            let unreadable = |error: io::Error| ClockError::Unreadable {
                of: config.source.name(),
                fact: format!("no thread to read it: {error}"),
            };
            clock.reader = Some(Reader::start(config.source, sources, first, notify).map_err(unreadable)?);
        }
        clock.refresh();
        Ok(clock)
    }

    fn take(&mut self, reading: Result<ClockReading, ClockError>) {
        match reading {
            Ok(ClockReading { source, bound }) => {
                self.judge.on_bound(bound);
                (self.source, self.complaint) = (source, None);
            }
            Err(error) => {
                self.judge.on_loss();
                self.complaint = Some(error.to_string());
            }
        }
    }

    /// Reads both clocks. Must follow every read from a socket: a message's arrival is before `latest`.
    pub(crate) fn refresh(&mut self) {
        if let Some(reading) = self.reader.as_mut().and_then(Reader::take) {
            self.take(reading);
        }
        let (now, system) = self.read();
        let moved = self.moved(now, system);
        if moved <= ::kernel::STEP_UNSEEN {
            self.now = now;
            self.wall = self.judge.wall(now, system);
            return;
        }
        let (now, system, close) = self.closest();
        let moved = self.moved(now, system);
        self.now = now;
        if close && moved > ::kernel::STEP_UNSEEN {
            self.steps += 1;
            self.offset = system as i64 - now.0 as i64;
            self.judge.on_step(moved, now);
        }
        self.wall = self.judge.wall(now, system);
        if !close {
            // The thread is held again and again: this one interval holds either case.
            let more = moved.as_nanos() as u64;
            self.wall.earliest = self.wall.earliest.saturating_sub(more);
            self.wall.latest = self.wall.latest.saturating_add(more);
        }
    }

    /// The monotonic clock, then the system's.
    fn read(&self) -> (Instant, u64) {
        let now = Instant(self.start.elapsed().as_nanos() as u64);
        (now, system_nanos().saturating_add_signed(self.off))
    }

    /// The same, read as close to each other as can be; false if that was not close.
    fn closest(&self) -> (Instant, u64, bool) {
        let mut best: Option<(Duration, Instant, u64)> = None;
        for _ in 0..LOOKS_MAX {
            let (before, system) = self.read();
            let between = self.start.elapsed().saturating_sub(Duration::from_nanos(before.0));
            if best.is_none_or(|(least, _, _)| between < least) {
                best = Some((between, before, system));
            }
            if between <= CLOSE {
                break;
            }
        }
        let (between, now, system) = best.expect("it was read at least once");
        (now, system, between <= CLOSE)
    }

    /// How far the system's clock is from where it was left, by the monotonic clock.
    fn moved(&self, now: Instant, system: u64) -> Duration {
        Duration::from_nanos((system as i64 - now.0 as i64).abs_diff(self.offset))
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn wall(&self) -> Wall {
        self.wall
    }

    /// As if somebody had set the system's clock.
    pub(crate) fn set_off(&mut self, nanoseconds: i64) {
        self.off = nanoseconds;
    }

    /// The other hosts of the cluster.
    pub(crate) fn set_peers(&mut self, peers: impl IntoIterator<Item = HostId>) {
        self.judge.set_peers(peers);
    }

    /// What this host says of its clock to another one.
    pub(crate) fn report(&mut self, to: HostId) -> ClockReport {
        self.judge.report(to, self.wall, self.now)
    }

    /// Another host has said how its clock stands; `refresh` came after that.
    pub(crate) fn on_report(&mut self, from: HostId, report: ClockReport) {
        self.judge.on_report(from, report, self.wall, self.now);
        self.wall.usable = self.trouble().is_none();
    }

    pub(crate) fn state(&self) -> ClockState {
        ClockState {
            source: self.source.name(),
            error: self.judge.error(self.now),
            trouble: self.trouble(),
            complaint: self.complaint.clone(),
            steps: self.steps,
            contradicted_by: self.judge.contradicted_by(self.wall, self.now).collect(),
        }
    }

    pub(crate) fn trouble(&self) -> Option<ClockTrouble> {
        self.judge.trouble(self.now, self.wall)
    }
}

fn system_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// What each source says for a while.
pub struct ClockSurvey {
    /// By the source's name: the errors that were read, or why there is none.
    pub found: BTreeMap<&'static str, Result<Vec<Duration>, ClockError>>,
    /// What `auto` takes.
    pub auto: Option<ClockSource>,
}

/// Reads every source that measures, every 100 ms for so long.
pub fn survey(lasts: Duration) -> ClockSurvey {
    let mut sources = Sources::new(std::time::Instant::now());
    let mut found: BTreeMap<&'static str, Result<Vec<Duration>, ClockError>> = BTreeMap::new();
    let end = std::time::Instant::now() + lasts;
    loop {
        for source in ClockSource::MEASURING {
            let read = sources.read(source);
            let now = sources.now();
            match (read, found.get_mut(source.name())) {
                (Ok(reading), Some(Ok(errors))) => errors.push(reading.bound.error_at(now)),
                (Ok(reading), None) => {
                    found.insert(source.name(), Ok(vec![reading.bound.error_at(now)]));
                }
                // A source that fails once within seconds is none.
                (Err(error), _) => drop(found.insert(source.name(), Err(error))),
                (Ok(_), Some(Err(_))) => {}
            }
        }
        if std::time::Instant::now() >= end {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let works = |source: &ClockSource| found.get(source.name()).is_some_and(|outcome| outcome.is_ok());
    ClockSurvey { auto: ClockSource::MEASURING.into_iter().find(works), found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(source: ClockSource) -> ClockConfig {
        ClockConfig { source, error_max: Duration::from_millis(250), required: false }
    }

    fn clock(source: ClockSource) -> Clock {
        Clock::new(&config(source), Arc::new(|| {})).expect("no usable clock is required")
    }

    const EPSILON: Duration = Duration::from_millis(2);

    // An interval that leaves out the true time breaks every protocol that waits it out.
    #[test]
    fn the_interval_holds_the_system_time_and_has_the_width_asked_for() {
        let before = system_nanos();
        let wall = clock(ClockSource::Fixed { epsilon: EPSILON }).wall();
        assert!(wall.earliest <= before + 2_000_000 && wall.latest >= before + 2_000_000);
        assert!(wall.latest - 2_000_000 <= system_nanos());
        assert_eq!((wall.latest - wall.earliest, wall.usable), (4_000_000, true));
    }

    // An unsynchronised machine must be reported at start if that matters, and must serve what needs no clock if not.
    #[test]
    fn an_unsynchronised_clock_is_refused_only_if_it_is_required() {
        let synchronised = Sources::new(std::time::Instant::now()).read(ClockSource::Kernel).is_ok();
        let required =
            ClockConfig { required: true, error_max: Duration::MAX, ..config(ClockSource::Kernel) };
        let refused = Clock::new(&required, Arc::new(|| {}));
        assert_eq!(refused.is_ok(), synchronised);
        let mut lax = clock(ClockSource::Kernel);
        lax.refresh();
        if !synchronised {
            assert!(!lax.wall().usable && lax.state().trouble == Some(ClockTrouble::Unsynchronised));
            assert!(lax.state().complaint.is_some_and(|text| text.contains("not synchronised")));
        }
    }

    // A clock that somebody set, and whose interval stays as it was, is off by more than it says.
    #[test]
    fn a_step_is_seen_and_counted_once() {
        let mut clock = clock(ClockSource::Fixed { epsilon: EPSILON });
        for _ in 0..1_000 {
            clock.refresh();
        }
        assert_eq!(clock.state().steps, 0, "nobody has set the clock");
        let bound = ::kernel::ClockBound { vouched: false, ..::kernel::ClockBound::vouched(EPSILON) };
        clock.judge.on_bound(bound);
        clock.set_off(-3_000_000);
        clock.refresh();
        clock.refresh();
        assert_eq!(clock.state().steps, 1);
        let error = clock.judge.error(clock.now);
        let widened = EPSILON + Duration::from_millis(3);
        assert!(error >= widened && error < widened + Duration::from_micros(50), "{error:?}");
    }

    // A survey that shows an error nobody measured, or takes a source that does not work, misleads.
    #[test]
    fn a_survey_has_every_source_once() {
        let survey = survey(Duration::ZERO);
        let names: Vec<&str> = survey.found.keys().copied().collect();
        assert_eq!(names, ["chrony", "clockbound", "kernel"]);
        let working = ClockSource::MEASURING.iter().find(|source| survey.found[source.name()].is_ok());
        assert_eq!(survey.auto.as_ref(), working);
    }
}
