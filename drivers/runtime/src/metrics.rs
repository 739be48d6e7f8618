//! What a host counts: plain numbers on the reactor's thread, copied out whole when asked for.

use crate::clock::ClockState;
use crate::shortage::Shortage;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A copy of a host's counters. Totals count from the host's start; the rest is of the moment of the copy.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Messages received from other hosts.
    pub messages_in: u64,
    /// Messages queued for other hosts.
    pub messages_out: u64,
    /// Messages to other hosts that were the same as before: many of them leave as one message.
    pub repeats_out: u64,
    /// Messages from other hosts that were the same as before.
    pub repeats_in: u64,
    /// Messages between nodes of this host, and between its nodes and its clients.
    pub messages_local: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Rounds of the reactor in which something happened.
    pub bursts: u64,
    /// Journal batches made durable.
    pub fsyncs: u64,
    /// Write and sync of one batch, since the start.
    pub fsync_latency: Histogram,
    /// The same over the last minute.
    pub fsync_latency_recent: Histogram,
    /// True while the reactor itself waits for the disk; false while the journal's thread does.
    pub fsync_inline: bool,
    /// What peers or clients did wrong, by reason.
    pub rejects: BTreeMap<&'static str, u64>,
    /// Rare situations reached, by name.
    pub marks: BTreeMap<&'static str, u64>,
    /// Messages that were not delivered, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Connections refused or disconnected, by reason.
    pub closes: BTreeMap<&'static str, u64>,
    /// Client connections now open.
    pub clients: u64,
    /// Client connections that may be open at once, at all ports together.
    pub clients_max: u64,
    /// The same of each protocol, by its name.
    pub clients_by_protocol: BTreeMap<&'static str, ProtocolClients>,
    /// Other hosts with a link up now.
    pub links_up: u64,
    /// How often reading from a client stopped because it has not taken what it was sent.
    pub reads_stopped: u64,
    /// Rounds that ended by their time or amount, with work left for the next.
    pub rounds_limited: u64,
    /// Memory held for what waits to be written to sockets, in bytes.
    pub buffered_bytes: u64,
    /// Bytes of records appended but not yet handed to the disk.
    pub staged_bytes: u64,
    /// Bytes of the journal's segments on disk.
    pub journal_bytes: u64,
    /// True while the journal, or a blob, waits for disk space.
    pub disk_full: bool,
    /// What the journal, or a blob, waits for.
    pub shortage: Option<Shortage>,
    /// Descriptors that clients of all ports have, and may have.
    pub descriptors: (u64, u64),
    /// How the wall clock stands.
    pub clock: ClockState,
    /// What the nodes keep beside the journal.
    pub blobs: BlobCounts,
    /// What was archived of it; none without an archive.
    pub archive: Option<ArchiveCounts>,
}

/// Connections of one protocol's clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProtocolClients {
    /// Open now.
    pub open: u64,
    /// May be open at once.
    pub max: u64,
}

/// Blobs of a host's nodes. Totals count from the host's start; `files` and `bytes` are of the moment of the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlobCounts {
    /// Blobs that are durable.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Blobs that were written.
    pub stores: u64,
    /// Parts that were read.
    pub loads: u64,
    /// Bytes that were read.
    pub loaded_bytes: u64,
    /// Reads of what was not there, or not what was written.
    pub lost: u64,
}

/// What was archived. Totals count from the host's start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArchiveCounts {
    /// Objects that this host has written.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Why the last one failed, until one does not.
    pub error: Option<String>,
}

impl Metrics {
    pub(crate) fn drop_message(&mut self, reason: &'static str) {
        *self.drops.entry(reason).or_insert(0) += 1;
    }
}

const STEPS_PER_OCTAVE: usize = 8;
const OCTAVES: usize = 40;

/// Durations, counted in buckets of at most 12.5 % width from 1 ns to about 18 minutes.
#[derive(Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; STEPS_PER_OCTAVE * OCTAVES],
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        let nanos = duration.as_nanos().min(u128::from(u64::MAX)) as u64;
        let bucket = bucket_of(nanos).min(self.buckets.len() - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += duration;
        self.max = self.max.max(duration);
    }

    /// Counts what another one has, too.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(ours, theirs)| *ours += theirs);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// How many were at most about this long: those of its bucket are counted as longer unless it is the upper edge.
    pub fn at_most(&self, bound: Duration) -> u64 {
        let nanos = bound.as_nanos().min(u128::from(u64::MAX)) as u64;
        let whole = (0..self.buckets.len()).take_while(|bucket| edge_of(*bucket) <= nanos).count();
        self.buckets[..whole].iter().sum()
    }

    fn cleared(mut self) -> Self {
        self.buckets.fill(0);
        Self { buckets: self.buckets, count: 0, sum: Duration::ZERO, max: Duration::ZERO }
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The upper edge of the bucket that holds the `quantile` (0 to 1); zero if nothing was counted.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (quantile.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            below += count;
            if count > 0 && below >= rank {
                return Duration::from_nanos(edge_of(bucket)).min(self.max);
            }
        }
        Duration::ZERO
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} (p50 {:?}, p99 {:?}, max {:?})",
            self.count,
            self.quantile(0.5),
            self.quantile(0.99),
            self.max
        )
    }
}

/// Parts of the time that a [`RecentHistogram`] looks back on.
const RECENT_PARTS: usize = 6;
const RECENT_PART: Duration = Duration::from_secs(10);

/// Durations of the last minute: of six parts of ten seconds, the oldest goes whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentHistogram(VecDeque<(Instant, Histogram)>);

impl RecentHistogram {
    /// Counts one duration.
    pub(crate) fn record(&mut self, duration: Duration, now: Instant) {
        match self.0.back_mut() {
            Some((began, part)) if now.saturating_duration_since(*began) < RECENT_PART => {
                part.record(duration)
            }
            Some(_) | None => {
                let mut part = if self.0.len() < RECENT_PARTS {
                    Histogram::default()
                } else {
                    self.0.pop_front().map(|(_, oldest)| oldest).unwrap_or_default().cleared()
                };
                part.record(duration);
                self.0.push_back((now, part));
            }
        }
    }

    /// Those of the last minute.
    pub(crate) fn at(&self, now: Instant) -> Histogram {
        let mut sum = Histogram::default();
        let within = RECENT_PART * RECENT_PARTS as u32;
        let recent = self.0.iter().filter(|(began, _)| now.saturating_duration_since(*began) < within);
        recent.for_each(|(_, part)| sum.add(part));
        sum
    }
}

fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.max(1);
    let octave = nanos.ilog2() as usize;
    let step =
        if octave >= 3 { (nanos >> (octave - 3)) as usize & 7 } else { (nanos << (3 - octave)) as usize & 7 };
    octave * STEPS_PER_OCTAVE + step
}

fn edge_of(bucket: usize) -> u64 {
    let (octave, step) = (bucket / STEPS_PER_OCTAVE, (bucket % STEPS_PER_OCTAVE) as u64);
    ((9 + step) << octave) >> 3
}

#[cfg(test)]
mod tests {
    use super::*;

    // A quantile that is off by more than a bucket would hide a slow disk, or invent one.
    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (quantile, exact) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = histogram.quantile(quantile).as_secs_f64() * 1e6;
            assert!(got >= exact && got <= exact * 1.13, "quantile {quantile}: {got} for {exact}");
        }
        assert_eq!((histogram.count(), histogram.max()), (1000, Duration::from_millis(1)));
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
        assert_eq!(histogram.at_most(Duration::from_secs(1)), 1000);
        assert_eq!(histogram.sum(), Duration::from_micros(500_500));
        let half = histogram.at_most(Duration::from_micros(500));
        assert!((430..=500).contains(&half), "{half} of 1000 took at most half the time");
    }

    // A disk that was slow an hour ago, and is not, must not be shown as slow; one that has just become slow must be.
    #[test]
    fn a_minute_later_it_is_forgotten() {
        let (mut recent, start) = (RecentHistogram::default(), Instant::now());
        let (slow, fast) = (Duration::from_secs(1), Duration::from_millis(1));
        let at = |seconds| start + Duration::from_secs(seconds);
        recent.record(slow, at(0));
        (1..=59).for_each(|second| recent.record(fast, at(second)));
        assert_eq!((recent.at(at(59)).count(), recent.at(at(59)).max()), (60, slow));
        (60..200).for_each(|second| recent.record(fast, at(second)));
        let now = recent.at(at(200));
        assert!((50..=60).contains(&now.count()) && now.max() == fast, "{now:?}");
        assert!(recent.0.len() <= RECENT_PARTS);
        assert_eq!(recent.at(at(300)).count(), 0);
    }
}
