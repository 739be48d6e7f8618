//! How long users wait for their answers, by service and operation, as the ports of a host see it.

use crate::admin::exposition::MetricsPage;
use kernel::Instant;
use std::collections::BTreeMap;
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
}

impl Histogram {
    fn record(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        if let Some(bucket) = BOUNDS_US.iter().position(|bound| micros <= *bound) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.sum_us.fetch_add(micros, Relaxed);
    }

    fn at_most(&self) -> impl Iterator<Item = (f64, u64)> {
        let buckets = BOUNDS_US.iter().zip(&self.buckets);
        buckets.scan(0, |sum, (bound, count)| {
            *sum += count.load(Relaxed);
            Some((*bound as f64 / 1e6, *sum))
        })
    }
}

/// What all ports of a host have measured. Cheap to clone; all clones are one.
#[derive(Clone, Default, Debug)]
pub struct Latencies(Arc<Mutex<BTreeMap<MeasuredOperation, Arc<Histogram>>>>);

impl Latencies {
    /// Where the answers to an operation are counted.
    fn of(&self, operation: MeasuredOperation) -> Arc<Histogram> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(operation).or_default())
    }

    /// Counts one answer.
    pub fn record(&self, operation: MeasuredOperation, took: Duration) {
        self.of(operation).record(took);
    }

    /// Adds the metrics of what was answered.
    pub fn metrics(&self, page: &mut MetricsPage) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((service, operation), histogram) in all {
            let labels = [("service", service), ("operation", operation)];
            let help = "From a call's arrival at a port of this host to its answer";
            // Read first: what is answered meanwhile is in the buckets and not in the count, and never the other way round.
            let (count, sum_us) = (histogram.count.load(Relaxed), histogram.sum_us.load(Relaxed));
            if count == 0 {
                continue;
            }
            let buckets = histogram.at_most().map(|(bound, at_most)| (bound, at_most.min(count)));
            page.histogram_of("latency_seconds", help, &labels, buckets, (count, sum_us as f64 / 1e6));
        }
    }
}

/// Calls of one connection whose answers are waited for; of more, the time is not measured.
const CALLS_MAX: usize = 4_096;

/// What is not answered for so long is not measured, once there are too many.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// The calls of one connection, by what distinguishes them.
#[derive(Debug)]
pub struct Stopwatch<K> {
    latencies: Latencies,
    /// The operations that this connection has asked for: a few.
    operations: Vec<(MeasuredOperation, Arc<Histogram>)>,
    /// When each call came, and which of the operations it is.
    in_flight: BTreeMap<K, (Instant, usize)>,
}

impl<K: Ord> Stopwatch<K> {
    /// For a connection.
    pub fn new(latencies: Latencies) -> Self {
        Self { latencies, operations: Vec::new(), in_flight: BTreeMap::new() }
    }

    /// A call has come. One that comes again is the same call.
    pub fn start(&mut self, call: K, operation: MeasuredOperation, now: Instant) {
        if self.in_flight.len() >= CALLS_MAX {
            self.in_flight.retain(|_, (since, _)| now.since(*since) < ANSWERED_WITHIN);
        }
        if self.in_flight.len() < CALLS_MAX {
            let index = self.index_of(operation);
            self.in_flight.entry(call).or_insert((now, index));
        }
    }

    fn index_of(&mut self, operation: MeasuredOperation) -> usize {
        if let Some(index) = self.operations.iter().position(|(known, _)| *known == operation) {
            return index;
        }
        self.operations.push((operation, self.latencies.of(operation)));
        self.operations.len() - 1
    }

    /// It is answered.
    pub fn stop(&mut self, call: &K, now: Instant) {
        if let Some((since, index)) = self.in_flight.remove(call) {
            self.operations[index].1.record(now.since(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::exposition::Format;

    // A histogram whose buckets do not add up shows quantiles that nobody waited for.
    #[test]
    fn what_was_measured_is_in_every_bucket_above() {
        let latencies = Latencies::default();
        let mut watch = Stopwatch::new(latencies.clone());
        let at = |micros: u64| Instant(0) + Duration::from_micros(micros);
        for call in 0..3 {
            watch.start(call, ("log", "append"), at(0));
        }
        watch.stop(&0, at(100));
        watch.start(1, ("log", "append"), at(500));
        watch.stop(&1, at(1_500));
        watch.stop(&1, at(9_000));
        // Calls that are never answered make room, in the end.
        for call in 100..100 + CALLS_MAX {
            watch.start(call, ("log", "lost"), at(0));
        }
        let much_later = at(0) + ANSWERED_WITHIN;
        watch.start(4, ("log", "late"), much_later);
        watch.stop(&4, much_later);
        watch.stop(&2, much_later);
        watch.start(3, ("log", "read"), at(0));
        watch.stop(&3, at(20_000_000));
        let mut page = MetricsPage::default();
        latencies.metrics(&mut page);
        let text = page.written(Format::Text);
        let bucket = |operation: &str, bound: &str, count: u64| {
            let line = format!(
                "ordinate_latency_seconds_bucket{{service=\"log\",operation=\"{operation}\",le=\"{bound}\"}} {count}\n"
            );
            assert!(text.contains(&line), "no {line}in {text}");
        };
        bucket("append", "0.0001", 1);
        bucket("append", "0.001", 1);
        bucket("append", "0.002", 2);
        bucket("append", "+Inf", 2);
        bucket("late", "+Inf", 1);
        assert!(!text.contains("lost"), "{text}");
        bucket("read", "10", 0);
        bucket("read", "+Inf", 1);
        assert!(text.contains("_sum{service=\"log\",operation=\"append\"} 0.0016\n"), "{text}");
    }
}
