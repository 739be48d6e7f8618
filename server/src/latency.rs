//! How long users wait for their answers, and how often they fail, by service and operation, as the ports of a host see it.

use crate::admin::exposition::MetricsPage;
use kernel::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The bounds of the buckets, in microseconds: three a decade.
const BOUNDS_US: [u64; 16] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// What is measured: a service, and an operation of its.
pub type MeasuredOperation = (&'static str, &'static str);

/// Written by the host's reactor for each answer, read by scrapes: without a lock, and not quite of one moment.
#[derive(Default, Debug)]
struct Histogram {
    /// How many took at most each bound and more than the one before.
    buckets: [AtomicU64; BOUNDS_US.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
    /// How many took longer than a slow one may, and the longest, since that was last asked.
    slow: AtomicU64,
    slowest_us: AtomicU64,
}

impl Histogram {
    /// So many answers took as long.
    fn record(&self, took: Duration, answers: u64, slow_after: &AtomicU64) {
        let micros = took.as_micros() as u64;
        if micros > slow_after.load(Relaxed) {
            self.slow.fetch_add(answers, Relaxed);
            self.slowest_us.fetch_max(micros, Relaxed);
        }
        if let Some(bucket) = BOUNDS_US.iter().position(|bound| micros <= *bound) {
            self.buckets[bucket].fetch_add(answers, Relaxed);
        }
        self.count.fetch_add(answers, Relaxed);
        self.sum_us.fetch_add(micros.saturating_mul(answers), Relaxed);
    }

    fn copied(&self) -> Counted {
        // Read last: what is answered meanwhile is in the count and not in the buckets, as if it had taken long.
        let buckets = std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed));
        Counted { buckets, count: self.count.load(Relaxed), sum_us: self.sum_us.load(Relaxed) }
    }
}

/// A copy of a histogram.
#[derive(Clone, Copy, Default, Debug)]
struct Counted {
    buckets: [u64; BOUNDS_US.len()],
    count: u64,
    sum_us: u64,
}

impl Counted {
    fn since(&self, before: &Self) -> Self {
        Self {
            buckets: std::array::from_fn(|bucket| self.buckets[bucket] - before.buckets[bucket]),
            count: self.count - before.count,
            sum_us: self.sum_us.saturating_sub(before.sum_us),
        }
    }

    fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        BOUNDS_US.iter().map(|bound| *bound as f64 / 1e6).zip(self.buckets)
    }

    /// What so many of all took at most, in seconds: within a bucket as if all took equally often as long; beyond the last, its bound.
    fn quantile(&self, quantile: f64) -> f64 {
        let rank = quantile * self.count as f64;
        let (mut below, mut from) = (0, 0.0);
        for (bound, count) in self.buckets() {
            if count > 0 && (below + count) as f64 >= rank {
                return from + (bound - from) * ((rank - below as f64) / count as f64).clamp(0.0, 1.0);
            }
            (below, from) = (below + count, bound);
        }
        from
    }
}

/// Whose fault it is that a call was not done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    /// What it asked for cannot be, or not as things are: no such key, a version that has passed, no grant.
    Caller,
    /// The service could not: busy, out of time, out of room.
    Service,
}

/// Why a call was not done. The reasons of a service are few and fixed: they are labels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CallFailure {
    class: Class,
    reason: &'static str,
}

impl CallFailure {
    /// The caller was not granted it.
    pub const NOT_GRANTED: Self = Self::of_caller("not_granted");
    /// Too much was waiting.
    pub const BUSY: Self = Self::of_service("busy");

    /// What was asked cannot be, or not as things are.
    pub const fn of_caller(reason: &'static str) -> Self {
        Self { class: Class::Caller, reason }
    }

    /// The service could not do it.
    pub const fn of_service(reason: &'static str) -> Self {
        Self { class: Class::Service, reason }
    }
}

/// The last minute is looked back on in steps of so long.
const STEP: Duration = Duration::from_secs(10);
/// Steps that are remembered.
const STEPS: usize = 6;

/// What all ports of a host have measured. Cheap to clone; all clones are one.
#[derive(Clone, Default, Debug)]
pub struct Latencies(Arc<Measured>);

#[derive(Debug)]
struct Measured {
    /// Calls that take longer are slow, in microseconds.
    slow_after_us: AtomicU64,
    answers: Mutex<BTreeMap<MeasuredOperation, Arc<Histogram>>>,
    failures: Mutex<BTreeMap<(MeasuredOperation, CallFailure), u64>>,
    /// How it stood some steps ago, oldest first.
    steps: Mutex<VecDeque<(std::time::Instant, BTreeMap<MeasuredOperation, Counted>)>>,
}

impl Default for Measured {
    fn default() -> Self {
        let (answers, failures, steps) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { slow_after_us: AtomicU64::new(u64::MAX), answers, failures, steps }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Latencies {
    /// Where the answers to an operation are counted.
    fn of(&self, operation: MeasuredOperation) -> Arc<Histogram> {
        Arc::clone(locked(&self.0.answers).entry(operation).or_default())
    }

    /// Calls that take longer are slow from now on; zero: none is.
    pub fn note_slower_than(&self, slow_after: Duration) {
        let micros = if slow_after.is_zero() { u64::MAX } else { slow_after.as_micros() as u64 };
        self.0.slow_after_us.store(micros, Relaxed);
    }

    /// The operations of which calls were slow since that was last asked: how many of each, and how long the longest took.
    pub fn take_slow(&self) -> Vec<(MeasuredOperation, u64, Duration)> {
        let all = locked(&self.0.answers);
        let slow = all.iter().filter_map(|(operation, histogram)| {
            let count = histogram.slow.swap(0, Relaxed);
            let slowest = Duration::from_micros(histogram.slowest_us.swap(0, Relaxed));
            (count > 0).then_some((*operation, count, slowest))
        });
        slow.collect()
    }

    /// Counts one answer.
    pub fn record(&self, operation: MeasuredOperation, took: Duration) {
        self.of(operation).record(took, 1, &self.0.slow_after_us);
    }

    /// Counts a call that was not done, beside its answer.
    pub fn fail(&self, operation: MeasuredOperation, failure: CallFailure) {
        *locked(&self.0.failures).entry((operation, failure)).or_insert(0) += 1;
    }

    /// Remembers how it stands, if a step has passed. Without it quantiles are since the start.
    pub fn turn(&self, now: std::time::Instant) {
        let mut steps = locked(&self.0.steps);
        if steps.back().is_some_and(|(at, _)| now.saturating_duration_since(*at) < STEP) {
            return;
        }
        if steps.len() >= STEPS {
            steps.pop_front();
        }
        steps.push_back((now, self.copied()));
    }

    fn copied(&self) -> BTreeMap<MeasuredOperation, Counted> {
        let all = locked(&self.0.answers);
        all.iter().map(|(operation, histogram)| (*operation, histogram.copied())).collect()
    }

    /// Adds the metrics of what was answered.
    pub fn metrics(&self, page: &mut MetricsPage) {
        let before = locked(&self.0.steps).front().map(|(_, then)| then.clone()).unwrap_or_default();
        for ((service, operation), counted) in self.copied() {
            let labels = [("service", service), ("operation", operation)];
            if counted.count == 0 {
                continue;
            }
            let help = "From a call's arrival at a port of this host to its answer";
            let of_all = (counted.count, counted.sum_us as f64 / 1e6);
            page.histogram_of("latency_seconds", help, &labels, counted.buckets(), of_all);
            let recent = counted.since(&before.get(&(service, operation)).copied().unwrap_or_default());
            if recent.count > 0 {
                let help = "Half of the calls of the last minute took at most this";
                page.gauge_of("latency_p50_seconds", help, &labels, recent.quantile(0.5));
                let help = "99 of 100 calls of the last minute took at most this";
                page.gauge_of("latency_p99_seconds", help, &labels, recent.quantile(0.99));
            }
        }
        for (((service, operation), CallFailure { class, reason }), count) in &*locked(&self.0.failures) {
            let class = match class {
                Class::Caller => "caller",
                Class::Service => "service",
            };
            let labels =
                [("service", *service), ("operation", *operation), ("class", class), ("reason", *reason)];
            page.counter_of("call_failures", "Calls that were not done, or not known to be", &labels, *count);
        }
    }
}

/// Calls of one connection whose answers are waited for; of more, the time is not measured.
const CALLS_MAX: usize = 4_096;
/// Slots of a connection that has few calls in flight.
const SLOTS_FIRST: usize = 16;

/// Slots for each call in flight beyond which there become no more: numbers that meet in many sizes would make a connection cost 160 KB.
const SLOTS_PER_CALL: usize = 16;

/// What is not answered for so long gives its slot to another call.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// What distinguishes the calls of a connection.
pub trait TimedCall: Copy + Eq {
    /// Grows by one from call to call, mostly: calls with neighbouring numbers never share a slot.
    fn number(&self) -> u64;
}

impl TimedCall for i32 {
    fn number(&self) -> u64 {
        *self as u64
    }
}

/// The calls of one connection. Two calls whose numbers differ by a multiple of the slots share one: then there become more, and of
/// two that share one of [`CALLS_MAX`], or of many for each call, only the first is measured.
#[derive(Debug)]
pub struct Stopwatch<K> {
    latencies: Latencies,
    /// The operations that this connection has asked for: a few.
    operations: Vec<(MeasuredOperation, Arc<Histogram>)>,
    /// A power of two of them, or none.
    slots: Vec<Option<Started<K>>>,
    /// How many of them are taken.
    taken: usize,
}

/// A call in flight.
#[derive(Clone, Copy, Debug)]
struct Started<K> {
    call: K,
    at: Instant,
    /// Which of the operations it is.
    operation: u32,
}

/// Answers that took the same time, one behind the other: those of one message, mostly.
struct Run {
    operation: u32,
    at: Instant,
    count: u64,
}

impl<K: TimedCall> Stopwatch<K> {
    /// For a connection.
    pub fn new(latencies: Latencies) -> Self {
        Self { latencies, operations: Vec::new(), slots: Vec::new(), taken: 0 }
    }

    /// A call has come. One that comes again is the same call.
    pub fn start(&mut self, call: K, operation: MeasuredOperation, now: Instant) {
        self.start_all(std::iter::once(call), operation, now);
    }

    /// Calls of one operation have come.
    pub fn start_all(&mut self, calls: impl Iterator<Item = K>, operation: MeasuredOperation, now: Instant) {
        let operation = self.index_of(operation);
        for call in calls {
            self.start_one(Started { call, at: now, operation });
        }
    }

    fn start_one(&mut self, started: Started<K>) {
        loop {
            let slots = self.slots.len();
            let at = slot_of(started.call, slots);
            match self.slots.get_mut(at) {
                Some(free @ None) => {
                    self.taken += 1;
                    return *free = Some(started);
                }
                Some(Some(other)) if other.call == started.call => return,
                Some(Some(other)) if started.at.since(other.at) >= ANSWERED_WITHIN => {
                    return *other = started;
                }
                Some(Some(_)) if slots >= CALLS_MAX || slots > SLOTS_PER_CALL * (self.taken + 1) => return,
                Some(Some(_)) | None => self.grow(),
            }
        }
    }

    /// Calls that had a slot each have one of twice as many.
    fn grow(&mut self) {
        let slots = (2 * self.slots.len()).max(SLOTS_FIRST);
        let before = std::mem::replace(&mut self.slots, vec![None; slots]);
        for started in before.into_iter().flatten() {
            self.slots[slot_of(started.call, slots)] = Some(started);
        }
    }

    /// A call was refused before it was on its way.
    pub fn refuse(&mut self, operation: MeasuredOperation, failure: CallFailure) {
        self.latencies.fail(operation, failure);
    }

    /// It is answered that it was not done. One whose time is not measured counts as of the `service`'s operation "untimed".
    pub fn fail(&mut self, call: K, service: &'static str, failure: CallFailure, now: Instant) {
        let slot = self.slots.get(slot_of(call, self.slots.len()));
        let started = slot.and_then(Option::as_ref).filter(|started| started.call == call);
        let operation = started.map(|started| self.operations[started.operation as usize].0);
        self.latencies.fail(operation.unwrap_or((service, "untimed")), failure);
        self.stop(call, now);
    }

    fn index_of(&mut self, operation: MeasuredOperation) -> u32 {
        let known = self.operations.iter().position(|(known, _)| *known == operation);
        let index = known.unwrap_or_else(|| {
            self.operations.push((operation, self.latencies.of(operation)));
            self.operations.len() - 1
        });
        index as u32
    }

    /// It is answered.
    pub fn stop(&mut self, call: K, now: Instant) {
        self.stop_all(std::iter::once(call), now);
    }

    /// They are answered.
    pub fn stop_all(&mut self, calls: impl Iterator<Item = K>, now: Instant) {
        let mut run = Run { operation: 0, at: now, count: 0 };
        for call in calls {
            let at = slot_of(call, self.slots.len());
            let Some(slot) = self.slots.get_mut(at) else { continue };
            let Some(Started { at, operation, .. }) = slot.take_if(|started| started.call == call) else {
                continue;
            };
            self.taken -= 1;
            if (operation, at) != (run.operation, run.at) {
                self.record(&run, now);
                run = Run { operation, at, count: 0 };
            }
            run.count += 1;
        }
        self.record(&run, now);
    }

    fn record(&self, run: &Run, now: Instant) {
        if run.count > 0 {
            let slow_after = &self.latencies.0.slow_after_us;
            self.operations[run.operation as usize].1.record(now.since(run.at), run.count, slow_after);
        }
    }
}

fn slot_of<K: TimedCall>(call: K, slots: usize) -> usize {
    call.number() as usize & slots.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::exposition::Format;

    // A user who waits is looked for in vain if nobody says which operation was slow; said again and again it is noise.
    #[test]
    fn slow_calls_are_named_once() {
        let latencies = Latencies::default();
        let put = ("kv", "put");
        latencies.record(put, Duration::from_secs(9));
        assert_eq!(latencies.take_slow(), [], "nobody said what is slow");
        latencies.note_slower_than(Duration::from_secs(1));
        let mut watch = Stopwatch::new(latencies.clone());
        watch.start_all([1, 2].into_iter(), put, Instant(0));
        watch.start(3, ("kv", "get"), Instant(0));
        watch.stop(3, Instant(0) + Duration::from_secs(1));
        watch.stop_all([1, 2].into_iter(), Instant(0) + Duration::from_secs(3));
        latencies.record(put, Duration::from_secs(2));
        assert_eq!(latencies.take_slow(), [(put, 3, Duration::from_secs(3))]);
        assert_eq!(latencies.take_slow(), []);
    }

    // A histogram whose buckets do not add up shows quantiles that nobody waited for.
    #[test]
    fn what_was_measured_is_in_every_bucket_above() {
        let latencies = Latencies::default();
        let mut watch = Stopwatch::new(latencies.clone());
        let at = |micros: u64| Instant(0) + Duration::from_micros(micros);
        for call in 0..3 {
            watch.start(call, ("log", "append"), at(0));
        }
        watch.stop(0, at(100));
        watch.start(1, ("log", "append"), at(500));
        watch.stop(1, at(1_500));
        watch.stop(1, at(9_000));
        // Calls that are never answered make room, in the end.
        let lost = 100..100 + CALLS_MAX as i32;
        watch.start_all(lost, ("log", "lost"), at(0));
        let much_later = at(0) + ANSWERED_WITHIN;
        watch.start(4, ("log", "late"), much_later);
        watch.stop(4, much_later);
        watch.start(3, ("log", "read"), much_later);
        watch.stop(3, much_later + Duration::from_secs(20));
        let text = page_of(&latencies);
        let bucket = |operation: &str, bound: &str, count: u64| {
            let line = format!(
                "ordinate_latency_seconds_bucket{{le=\"{bound}\",service=\"log\",operation=\"{operation}\"}} {count}\n"
            );
            assert!(text.contains(&line), "no {line}in {text}");
        };
        bucket("append", "0.0001", 1);
        bucket("append", "0.001", 1);
        bucket("append", "0.002", 2);
        bucket("append", "+Inf", 2);
        bucket("late", "+Inf", 1);
        assert!(!text.contains("lost"), "{text}");
        bucket("read", "10.0", 0);
        bucket("read", "+Inf", 1);
        assert!(text.contains("_sum{service=\"log\",operation=\"append\"} 0.0016\n"), "{text}");
    }

    // An operation that was slow when the host started must not be shown as slow for days; a failure must say whose it is.
    #[test]
    fn quantiles_are_those_of_the_last_minute() {
        let latencies = Latencies::default();
        let append = ("log", "append");
        let begun = std::time::Instant::now();
        let line = |page: &str, quantile: &str| -> Option<f64> {
            let name =
                format!("ordinate_latency_{quantile}_seconds{{service=\"log\",operation=\"append\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
        };
        (0..100).for_each(|_| latencies.record(append, Duration::from_secs(2)));
        assert!(line(&page_of(&latencies), "p50") > Some(1.0), "before the first step");
        for second in 0..=70 {
            latencies.turn(begun + Duration::from_secs(second));
        }
        assert_eq!(line(&page_of(&latencies), "p50"), None, "nobody called within the last minute");
        (0..99).for_each(|_| latencies.record(append, Duration::from_micros(400)));
        latencies.record(append, Duration::from_millis(400));
        let page = page_of(&latencies);
        let (half, most) = (line(&page, "p50").expect("shown"), line(&page, "p99").expect("shown"));
        assert!((0.0002..=0.0005).contains(&half) && (0.0002..=0.0005).contains(&most), "{half} {most}");
        let mut watch = Stopwatch::new(latencies.clone());
        watch.start(1, append, Instant(0));
        watch.fail(1, "log", CallFailure::BUSY, Instant(5));
        watch.fail(2, "log", CallFailure::of_caller("no_such_log"), Instant(5));
        let page = page_of(&latencies);
        for (operation, class, reason) in
            [("append", "service", "busy"), ("untimed", "caller", "no_such_log")]
        {
            let labels = format!("operation=\"{operation}\",class=\"{class}\",reason=\"{reason}\"");
            let line = format!("ordinate_call_failures_total{{service=\"log\",{labels}}} 1\n");
            assert!(page.contains(&line), "no {line}in {page}");
        }
        assert!(page.contains("_count{service=\"log\",operation=\"append\"} 201\n"), "{page}");
    }

    fn page_of(latencies: &Latencies) -> String {
        let mut page = MetricsPage::default();
        latencies.metrics(&mut page);
        page.written(Format::Text)
    }

    // A call that takes the slot of another one is measured from the other's beginning, or is not measured at all.
    #[test]
    fn calls_whose_numbers_meet_are_measured_each_for_itself() {
        let latencies = Latencies::default();
        let mut watch = Stopwatch::new(latencies.clone());
        let at = |micros: u64| Instant(0) + Duration::from_micros(micros);
        let strides = [0, SLOTS_FIRST as i32, 3 * SLOTS_FIRST as i32, 1, -1];
        for (turn, call) in strides.into_iter().enumerate() {
            watch.start(call, ("log", "append"), at(turn as u64));
        }
        watch.start_all([5, 6, 7].into_iter(), ("log", "read"), at(5));
        assert!(watch.slots.len() <= 4 * SLOTS_FIRST, "{} slots", watch.slots.len());
        for (turn, call) in strides.into_iter().enumerate() {
            watch.stop(call, at(turn as u64 + 100));
        }
        watch.stop_all([7, 6, 8, 5].into_iter(), at(305));
        // Two that meet whatever the slots: the first one is measured.
        watch.start(9, ("log", "first"), at(0));
        watch.start(9 + CALLS_MAX as i32, ("log", "second"), at(0));
        watch.stop(9 + CALLS_MAX as i32, at(1));
        watch.stop(9, at(2));
        assert!(watch.slots.len() <= 4 * SLOTS_FIRST, "{} slots for a few calls", watch.slots.len());
        assert!(watch.slots.iter().all(Option::is_none), "a call that is answered gives its slot back");
        let text = page_of(&latencies);
        for (operation, count, sum) in
            [("append", 5, "0.0005"), ("read", 3, "0.0009"), ("first", 1, "0.000002")]
        {
            let of = format!("{{service=\"log\",operation=\"{operation}\"}}");
            assert!(text.contains(&format!("_count{of} {count}\n")), "{operation} in {text}");
            assert!(text.contains(&format!("_sum{of} {sum}\n")), "{operation} in {text}");
        }
        assert!(!text.contains("operation=\"second\""), "{text}");
    }
}
