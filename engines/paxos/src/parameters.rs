//! The numbers that tune the engine; every one has a default that suits a local network.

use kernel::bounds::{BATCH_HEAD_BYTES, ENVELOPE_BYTES, PAGE_HEAD_BYTES, RECORD_BYTES_MAX, VOTE_BYTES};
use kernel::{Bounds, Misfit};
use std::time::Duration;

/// Timeouts, batch sizes and bounds. Equal on all hosts, `window` above all: it is part of the agreement.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// How often a leader reports to everybody that it is alive.
    pub heartbeat_every: Duration,
    /// The least silence after which another leader may be elected; each candidate adds up to as much again at random.
    pub election_timeout: Duration,
    /// How long an unanswered message waits before it is sent again.
    pub resend_after: Duration,
    /// How far proposals may run ahead of execution, in slots. A configuration chosen in slot `s` governs the slots from
    /// `s + window` on.
    pub window: u64,
    /// The most a batch holds, in bytes.
    pub batch_bytes_max: usize,
    /// The same of a batch of reads, in bytes of what is asked, where that is less.
    pub read_batch_bytes_max: usize,
    /// How long a batcher waits for a batch to fill; zero sends what a burst brought.
    pub batch_delay: Duration,
    /// Batches that a batcher has in flight; what comes meanwhile joins the next.
    pub batches_in_flight_max: usize,
    /// Read batches that a batcher has in flight.
    pub read_batches_in_flight_max: usize,
    /// Commands and reads that wait in a batcher, in bytes; beyond it clients are refused as busy.
    pub pending_bytes_max: usize,
    /// Ask only one write quorum of a majority group at first, and everybody when it is slow.
    pub thrifty: bool,
    /// A replica takes a snapshot when it has executed this many bytes of commands since the last.
    pub snapshot_every_bytes: u64,
    /// The size of a snapshot's chunks.
    pub snapshot_chunk_bytes: usize,
    /// A page of an acceptor's answer in Phase 1, or of entries for a replica that lags, holds this many bytes, or one value.
    pub page_bytes: usize,
    /// Executed entries that a replica keeps for lagging peers, in bytes.
    pub retained_bytes_max: usize,
    /// Open client sessions; the least recently used leaves first.
    pub sessions_max: usize,
    /// Unacknowledged commands of one session.
    pub outstanding_max: usize,
    /// Reads that wait in a replica for their slot, in bytes.
    pub waiting_read_bytes_max: usize,
}

impl Parameters {
    /// What suits a local network.
    pub const DEFAULT: Self = Self {
        heartbeat_every: Duration::from_millis(30),
        election_timeout: Duration::from_millis(150),
        resend_after: Duration::from_millis(100),
        window: 512,
        batch_bytes_max: 256 << 10,
        read_batch_bytes_max: 256 << 10,
        batch_delay: Duration::ZERO,
        batches_in_flight_max: 8,
        read_batches_in_flight_max: 8,
        pending_bytes_max: 64 << 20,
        thrifty: false,
        snapshot_every_bytes: 64 << 20,
        snapshot_chunk_bytes: 256 << 10,
        page_bytes: 1 << 20,
        retained_bytes_max: 64 << 20,
        sessions_max: 65_536,
        outstanding_max: 4_096,
        waiting_read_bytes_max: 64 << 20,
    };

    /// The most a batch of reads holds, in bytes of what is asked.
    pub(crate) fn read_batch_bytes(&self) -> usize {
        self.read_batch_bytes_max.min(self.batch_bytes_max)
    }

    /// What of these contradicts the bounds of journals and links, if anything does.
    pub const fn misfit(&self, bounds: &Bounds) -> Option<Misfit> {
        let (record, frame) = (bounds.record_bytes_max, bounds.frame_bytes_max);
        // A machine's chunk may end with an item as large as a command.
        let chunk = self.snapshot_chunk_bytes + self.batch_bytes_max + head(PAGE_HEAD_BYTES, bounds);
        let value = self.batch_bytes_max + BATCH_HEAD_BYTES;
        let page = self.page_bytes + value + head(PAGE_HEAD_BYTES, bounds);
        Misfit::first([
            Misfit::of("the vote for a batch", value + VOTE_BYTES, record),
            Misfit::of("a chunk of a snapshot", chunk, record),
            Misfit::of("a page of votes", page, frame),
            // Each with its head, as large as three of the smallest reads.
            Misfit::of("a batch of reads", 4 * self.batch_bytes_max + ENVELOPE_BYTES, frame),
        ])
    }
}

/// What a page adds, in the proportion of a small cluster's bounds.
const fn head(bytes: usize, bounds: &Bounds) -> usize {
    bytes * bounds.record_bytes_max / RECORD_BYTES_MAX + ENVELOPE_BYTES
}

const _: () = assert!(Parameters::DEFAULT.misfit(&Bounds::REAL).is_none(), "the default parameters fit");

impl Default for Parameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}
