//! What clients ask for, how fast, and how they were served.

use hdrhistogram::Histogram;
use kernel::{Family, Rng};
use std::time::Duration;

/// A class of calls that are counted together: reads, say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(pub u8);

/// A user whose calls follow one another, and the client that makes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LoadSession {
    /// The client's number.
    pub client: usize,
    /// The session's, among all of the load. Where calls are independent of each other, each is a session of its own.
    pub number: u64,
}

/// What clients ask for.
pub trait Load<F: Family> {
    /// The next call of a session.
    fn ask(&mut self, session: LoadSession, rng: &mut Rng) -> (F::Request, Class);

    /// It was answered at `now`; false if the answer is a refusal.
    fn answered(&mut self, session: LoadSession, class: Class, response: &F::Response, now: Duration)
    -> bool;

    /// A session has made its last call.
    fn left(&mut self, _session: LoadSession) {}
}

/// When clients ask.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Each keeps so many calls in flight, and makes the next one when one is answered.
    Closed {
        /// Calls of one client.
        outstanding: u32,
    },
    /// All together so many a second, at random moments, answered or not.
    Open {
        /// Calls.
        per_second: f64,
    },
    /// Sessions come at random moments, and each makes one call after the other without a pause (Schroeder et al., *Open Versus
    /// Closed*).
    PartlyOpen {
        /// Sessions that come, all clients together.
        sessions_per_second: f64,
        /// How likely a session makes another call after each answer.
        stay: f64,
    },
    /// Only by [`Testbed::ask_once`](super::Testbed::ask_once).
    OnDemand,
}

/// What is measured: calls answered in the second of two spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Not measured.
    pub warm_up: Duration,
    /// Measured.
    pub measured: Duration,
}

/// How calls of one class were served.
#[derive(Clone, Debug)]
pub struct Served {
    /// Answered.
    pub operations: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Nanoseconds from call to answer, to three digits.
    pub latency: Histogram<u64>,
}

/// Longer latencies count as this one: a minute.
const LATENCY_NANOS_MAX: u64 = 60_000_000_000;

impl Served {
    /// Nothing yet.
    fn new() -> Self {
        let latency = Histogram::new_with_max(LATENCY_NANOS_MAX, 3).expect("bounds and digits are sound");
        Self { operations: 0, refused: 0, latency }
    }

    fn add(&mut self, served: bool, nanos: u64) {
        self.operations += 1;
        self.refused += u64::from(!served);
        self.latency.saturating_record(nanos);
    }
}

/// What the messages that one host worked off met there, on average.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Visit {
    /// How many.
    pub messages: u64,
    /// Until the core took them.
    pub waited: Duration,
    /// From then until what came of them left, with all else that the core took together with them.
    pub worked: Duration,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Virtual seconds.
    pub seconds: f64,
    /// Calls that were begun in that time.
    pub asked: u64,
    /// By class.
    pub classes: Vec<Served>,
    /// The share of each host's time in which its core worked for it, in the order the hosts were added.
    pub busy: Vec<f64>,
    /// What messages met at each host, in the same order.
    pub visits: Vec<Visit>,
    /// Bytes a second that each machine's card sent and received, in the order the machines were added.
    pub traffic: Vec<(f64, f64)>,
    /// Events worked off, warm-up included.
    pub events: u64,
    /// Mixes the times of all events since the testbed was made: equal for equal seeds.
    pub hash: u64,
}

impl Measured {
    /// Calls of all classes a second, refusals left out.
    pub fn throughput(&self) -> f64 {
        let served: u64 = self.classes.iter().map(|class| class.operations - class.refused).sum();
        served as f64 / self.seconds
    }

    /// Calls of one class a second, refusals left out.
    pub fn throughput_of(&self, class: Class) -> f64 {
        let served = self.classes.get(usize::from(class.0));
        served.map_or(0.0, |served| (served.operations - served.refused) as f64 / self.seconds)
    }

    /// The latency below which this share of all calls stayed.
    pub fn latency(&self, share: f64) -> Duration {
        let mut all = Served::new().latency;
        for class in &self.classes {
            all.add(&class.latency).expect("histograms without bounds");
        }
        Duration::from_nanos(all.value_at_quantile(share))
    }
}

/// A client of the load.
pub(super) struct Client {
    pub(super) host: u32,
    pub(super) seat: u32,
}

/// A call in flight.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) client: u32,
    pub(super) session: u64,
    pub(super) class: Class,
    /// In picoseconds.
    pub(super) begun: u64,
}

impl Call {
    pub(super) fn asked_by(&self) -> LoadSession {
        LoadSession { client: self.client as usize, number: self.session }
    }
}

/// Calls in flight, and what is counted.
pub(super) struct Calls {
    pub(super) clients: Vec<Client>,
    pub(super) pace: Pace,
    calls: Vec<Option<Call>>,
    free: Vec<u32>,
    measure_from: u64,
    asked: u64,
    classes: Vec<Served>,
    pub(super) next_arrival_at: usize,
    next_session: u64,
}

impl Calls {
    pub(super) fn none() -> Self {
        Self {
            clients: Vec::new(),
            pace: Pace::Closed { outstanding: 0 },
            calls: Vec::new(),
            free: Vec::new(),
            measure_from: u64::MAX,
            asked: 0,
            classes: Vec::new(),
            next_arrival_at: 0,
            next_session: 0,
        }
    }

    /// The number of a session that begins.
    pub(super) fn new_session(&mut self) -> u64 {
        self.next_session += 1;
        self.next_session
    }

    pub(super) fn measure_from(&mut self, at: u64) {
        self.measure_from = at;
        self.asked = 0;
        self.classes.clear();
    }

    pub(super) fn measured(&mut self) -> Vec<Served> {
        std::mem::take(&mut self.classes)
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Notes a call; the number names it.
    pub(super) fn begin(&mut self, call: Call) -> u64 {
        self.asked += 1;
        match self.free.pop() {
            Some(slot) => {
                self.calls[slot as usize] = Some(call);
                u64::from(slot)
            }
            None => {
                self.calls.push(Some(call));
                self.calls.len() as u64 - 1
            }
        }
    }

    /// The call that is answered; none if the number is nobody's.
    pub(super) fn end(&mut self, id: u64) -> Option<Call> {
        let slot = u32::try_from(id).ok()?;
        let call = self.calls.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(call)
    }

    pub(super) fn count(&mut self, call: Call, served: bool, now: u64) {
        if now < self.measure_from {
            return;
        }
        let class = usize::from(call.class.0);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Served::new);
        }
        self.classes[class].add(served, (now - call.begun) / 1_000);
    }
}
