//! The journal that all nodes of a host share: appended in batches, made durable in order, trimmed by node.
//!
//! **Promises.** After a crash, `open` and `replay` give back a prefix of what was appended that holds everything that
//! was reported durable, or `open` fails with an error that names file, offset and cause. Never less, never
//! silence: what is not whole is truncated only where no later batch says that it had been synced. The last batch
//! before a stop is vouched for by a witness, an empty batch written when the journal has nothing else to do. That the last
//! segments are there at all, a file beside them says: see `extent`.
//!
//! **Disk.** Segments are files of written zeros, prepared ahead on another thread and recycled, because overwriting
//! written blocks syncs about three times as fast as growing a file. A batch is padded to whole blocks, so that no synced
//! byte is ever written again. After a failed sync nothing is acknowledged any more. When no segment can be had because
//! the disk is full, the journal keeps what was appended in memory and goes on by itself when there is room.

mod extent;
mod format;
mod recover;
mod segments;
mod survey;
mod sync;
#[cfg(test)]
mod tests;
mod write;

pub use format::{Generation, Mark};
pub use survey::{SegmentState, SegmentSurvey, SlotSurvey, Survey};

use crate::direct::Blocks;
use crate::disk::{Disk, DiskFile};
use crate::metrics::{Histogram, RecentHistogram};
use crate::shortage::Shortage;
use crate::worker::Worker;
use extent::Extent;
use format::RUN_HEADER_BYTES;
use kernel::bounds::{RECORD_BYTES_MAX, SEGMENT_BYTES};
use kernel::{HostSlot, Journaled, Position};
use recover::{Segment, Stand};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sync::{Chore, Prepared, UNFINISHED, Write, Written};

/// Why a journal cannot be opened or can no longer be written. None of them is retried.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk refused.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        file: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Something that had been synced is not there any more.
    #[error("{} is damaged at byte {offset}: {cause}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Bytes from its start.
        offset: u64,
        /// What was found.
        cause: String,
    },
    /// Written by a later version.
    #[error("{} has format {found}; this version reads up to {}", file.display(), format::FORMAT)]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
    },
}

/// Which thread waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsyncPlacement {
    /// The reactor while syncs are quick, a thread of the journal's own while they are not.
    Adaptive,
    /// Always the reactor.
    Inline,
    /// Always a thread of the journal's own.
    Thread,
}

/// The journal's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalOptions {
    /// The size of new segments: a multiple of 4096, at least 16 KiB. A record is at most a quarter of it.
    pub segment_bytes: u64,
    /// Which thread waits for the disk.
    pub placement: FsyncPlacement,
    /// Prepare segments on the caller's thread: for tests that must not depend on timing.
    pub prepare_inline: bool,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES as u64,
            placement: FsyncPlacement::Adaptive,
            prepare_inline: false,
        }
    }
}

/// Counts commits of one run. What is appended now is durable when `Journal::durable` reaches `Journal::pending`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CommitNumber(pub u64);

struct Run {
    bytes: usize,
    host_slot: HostSlot,
    next: Position,
    commit: CommitNumber,
}

/// The batch being made durable.
struct InFlight {
    end: Mark,
    /// How many batches there are with it.
    batches: u64,
    commit: CommitNumber,
    trims: BTreeMap<HostSlot, Position>,
    witness: bool,
}

enum Next {
    Wanted,
    InFlight,
    Ready(Arc<dyn DiskFile>),
    /// There was no room for it when it was last tried, or files or memory were short.
    NoSpace,
}

/// See the module.
pub struct Journal {
    disk: Arc<dyn Disk>,
    options: JournalOptions,
    incarnation: u128,
    /// In order; the last is being written.
    segments: VecDeque<Segment>,
    /// Segments without needed records, oldest first; still on disk until they are reused.
    retired: VecDeque<Segment>,
    next: Next,
    chain: u32,
    number: u64,
    durable_mark: Mark,
    /// How many batches were ever written when it was opened, and how many are durable now.
    batches_found: u64,
    batches_durable: u64,
    extent: Extent,
    /// It is on the disk.
    extent_retained: bool,
    host_slots: BTreeMap<HostSlot, Stand>,
    staged: Vec<u8>,
    runs: VecDeque<Run>,
    trims: BTreeMap<HostSlot, Position>,
    pending: CommitNumber,
    durable: CommitNumber,
    in_flight: Option<InFlight>,
    /// A write that found no room and is to be tried again.
    stuck: Option<Write>,
    /// What was short when a write or a segment was last tried in vain.
    shortage: Option<Shortage>,
    blocked: bool,
    full: bool,
    unwitnessed: bool,
    failed: bool,
    /// Why no segment could be prepared, other than for want of space.
    prepare_error: Option<std::io::Error>,
    spare: Blocks,
    committer: Option<Worker<Write, Written>>,
    preparer: Option<Worker<Chore, Prepared>>,
    notify: Arc<dyn Fn() + Send + Sync>,
    mean: Duration,
    inline: bool,
    latency: Histogram,
    latency_recent: RecentHistogram,
    /// The slowest sync of those that are to be reported.
    slow_sync: Option<Duration>,
    syncs: u64,
}

impl Journal {
    /// Opens the journal in `disk`, or makes one. `notify` is called from other threads
    /// when `poll` has something to fetch.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: JournalOptions,
        incarnation: u128,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, JournalError> {
        assert!(
            options.segment_bytes >= 16 << 10 && options.segment_bytes.is_multiple_of(4096),
            "a segment of {} bytes",
            options.segment_bytes
        );
        let scan = recover::scan(&*disk, incarnation)?;
        let mut surplus = scan.surplus;
        let prepared = scan.prepared.filter(|next| {
            let fits = next.bytes == options.segment_bytes;
            if !fits {
                surplus.push(next.generation);
            }
            fits
        });
        let (chain, number) = scan.last.map_or((0, 0), |(crc, number)| (crc, number + 1));
        let mut journal = Self {
            options,
            incarnation,
            segments: scan.segments.into(),
            retired: VecDeque::new(),
            next: prepared.map_or(Next::Wanted, |segment| Next::Ready(segment.file)),
            chain,
            number,
            durable_mark: Mark::default(),
            batches_found: number,
            batches_durable: number,
            extent_retained: scan.extent.is_some(),
            extent: scan.extent.unwrap_or_default(),
            host_slots: scan.host_slots,
            staged: Vec::new(),
            runs: VecDeque::new(),
            trims: BTreeMap::new(),
            pending: CommitNumber(1),
            durable: CommitNumber(0),
            in_flight: None,
            stuck: None,
            shortage: None,
            blocked: false,
            full: false,
            unwitnessed: false,
            failed: false,
            prepare_error: None,
            spare: Blocks::default(),
            committer: None,
            preparer: None,
            notify,
            mean: Duration::ZERO,
            inline: options.placement != FsyncPlacement::Thread,
            latency: Histogram::default(),
            latency_recent: RecentHistogram::default(),
            slow_sync: None,
            syncs: 0,
            disk,
        };
        journal.start_writing(surplus)?;
        Ok(journal)
    }

    /// Makes what was found durable before anybody acts on it: it may have been written but never synced.
    fn start_writing(&mut self, mut surplus: Vec<Generation>) -> Result<(), JournalError> {
        surplus.sort_unstable();
        if !surplus.is_empty() && self.extent.prepared > self.tail().generation {
            // They hold nothing, and nobody shall miss them.
            self.extent.prepared = self.tail().generation;
            self.write_extent()
                .map_err(|source| self.io("write the extent at", self.extent.prepared, source))?;
        }
        for generation in surplus.into_iter().rev() {
            sync::perform_chore(&*self.disk, Chore::Remove(generation));
        }
        let _ = self.disk.remove(UNFINISHED);
        if self.segments.is_empty() {
            let generation = Generation(1);
            let file = sync::perform_chore(&*self.disk, self.preparation(generation, None))
                .expect("a preparation has an outcome")
                .map_err(|source| self.io("create", generation, source))?;
            self.segments.push_back(self.new_segment(generation, file));
            (self.extent.prepared, self.extent_retained) = (generation, true);
        }
        for segment in self.segments.iter().rev().take(2) {
            segment.file.sync().map_err(|source| self.io("sync", segment.generation, source))?;
        }
        let prepared = u64::from(matches!(self.next, Next::Ready(_)));
        let prepared = Generation(self.tail().generation.0 + prepared);
        if !self.extent_retained {
            // Written by a version that did not say so. On a full disk the next segment will.
            self.extent.prepared = prepared;
            self.extent_retained = self.write_extent().is_ok();
        }
        self.extent.prepared = self.extent.prepared.max(prepared);
        let tail = self.tail();
        self.durable_mark = Mark { generation: tail.generation, offset: tail.end };
        self.prepare();
        // The first batch of a run vouches for all that was found. If the disk is full it comes with what is appended next.
        let placement = std::mem::replace(&mut self.inline, true);
        let outcome = self.witness();
        self.inline = placement;
        outcome
    }

    /// What is wrong with a journal in `disk` that must have said how far it reaches, and has not.
    pub(crate) fn check_extent_is_there(disk: &dyn Disk, incarnation: u128) -> Result<(), JournalError> {
        match Extent::read(disk, incarnation)? {
            Some(_) => Ok(()),
            None => Err(JournalError::Damaged {
                file: disk.path_of(extent::EXTENT),
                offset: 0,
                cause: "the file is missing, and with it perhaps the journal".to_owned(),
            }),
        }
    }

    /// Calls `visit` with every record that is still needed, in the order they were appended. To be called before
    /// anything is appended.
    pub fn replay<E>(
        &self,
        visit: impl FnMut(HostSlot, Position, &[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, JournalError> {
        let segments: Vec<&Segment> = self.retired.iter().chain(&self.segments).collect();
        recover::replay(&*self.disk, self.incarnation, &segments, &self.host_slots, visit)
    }

    /// Where the next record of `slot` will stand.
    pub fn next_position(&self, host_slot: HostSlot) -> Position {
        self.host_slots.get(&host_slot).map_or(Position(0), |stand| stand.next)
    }

    /// The slots that have ever appended, with how many of their records are still needed.
    pub fn host_slots(&self) -> impl Iterator<Item = (HostSlot, u64)> {
        self.host_slots
            .iter()
            .map(|(host_slot, stand)| (*host_slot, stand.next.0 - stand.trimmed.0.min(stand.next.0)))
    }

    /// Adds records of one node, whose positions follow those it appended before.
    pub fn append<'a>(&mut self, host_slot: HostSlot, records: impl Iterator<Item = Journaled<'a>>) {
        // The table of bounds has this in the same proportion; what is built is bounded there, so that nothing larger comes here.
        let record_max = self.options.segment_bytes as usize / (SEGMENT_BYTES / RECORD_BYTES_MAX);
        let (mut start, mut count, mut next) = (self.staged.len(), 0, Position(0));
        for record in records {
            assert!(
                record.bytes.len() <= record_max,
                "slot {} appends a record of {} bytes; the journal takes {record_max}",
                host_slot.0,
                record.bytes.len()
            );
            if count > 0 && self.staged.len() - start + record.bytes.len() > record_max {
                self.end_run(host_slot, start, count, next);
                (start, count) = (self.staged.len(), 0);
            }
            if count == 0 {
                format::push_run(&mut self.staged, host_slot, record.position);
            }
            format::push_record(&mut self.staged, record.bytes);
            (count, next) = (count + 1, Position(record.position.0 + 1));
        }
        if count > 0 {
            self.end_run(host_slot, start, count, next);
        }
    }

    fn end_run(&mut self, host_slot: HostSlot, start: usize, count: u32, next: Position) {
        let run = &mut self.staged[start..];
        debug_assert!(run.len() > RUN_HEADER_BYTES);
        format::set_run_count(run, count);
        self.runs.push_back(Run { bytes: run.len(), host_slot, next, commit: self.pending });
    }

    /// Gives up the records of `slot` before `before`. The caller has waited until what replaces them is durable.
    pub fn trim(&mut self, host_slot: HostSlot, before: Position) {
        let trim = self.trims.entry(host_slot).or_insert(before);
        *trim = before.max(*trim);
    }

    /// The number of the commit that what is appended now will belong to.
    pub fn pending(&self) -> CommitNumber {
        self.pending
    }

    /// True if a start without the file that says how far this journal reaches must be refused.
    pub(crate) fn extent_is_retained(&self) -> bool {
        self.extent_retained
    }

    /// How many batches had ever been written when this journal was opened.
    pub fn batches_found(&self) -> u64 {
        self.batches_found
    }

    /// How many batches are durable, of all that were ever written.
    pub fn batches_durable(&self) -> u64 {
        self.batches_durable
    }

    /// Everything up to this commit is durable.
    pub fn durable(&self) -> CommitNumber {
        self.durable
    }

    /// Bytes appended and not yet handed to the disk.
    pub fn staged_bytes(&self) -> usize {
        self.staged.len()
    }

    /// True if records wait for a segment.
    pub fn is_blocked(&self) -> bool {
        self.stuck.is_some() || (self.blocked && !self.runs.is_empty())
    }

    /// True from a moment when the disk was full, or files or memory were short (see [`Self::shortage`]), until there was
    /// room again: while it is tried, too.
    pub fn is_disk_full(&self) -> bool {
        self.full
    }

    /// True if the last batch has no later one that vouches for it, or trims wait for a batch to go with.
    pub fn is_unwitnessed(&self) -> bool {
        let wanted = self.unwitnessed || !self.trims.is_empty();
        wanted && self.in_flight.is_none() && self.runs.is_empty()
    }

    /// What the journal waits for; none while it waits for nothing but the disk's work.
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage.filter(|_| self.is_disk_full())
    }

    /// True while the caller's own thread waits for the disk.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Batches made durable, and how long each took.
    pub fn sync_latency(&self) -> (&Histogram, u64) {
        (&self.latency, self.syncs)
    }

    /// How long each took within the last minute.
    pub fn sync_latency_recent(&self) -> Histogram {
        self.latency_recent.at(Instant::now())
    }

    /// The slowest of the batches that took half a second or longer, since this was asked last.
    pub fn take_slow_sync(&mut self) -> Option<Duration> {
        self.slow_sync.take()
    }

    /// Bytes of the segments on disk.
    pub fn disk_bytes(&self) -> u64 {
        let next = if matches!(self.next, Next::Ready(_)) { self.options.segment_bytes } else { 0 };
        self.segments.iter().chain(&self.retired).map(|segment| segment.bytes).sum::<u64>() + next
    }

    /// Starts to make what was appended durable; on this thread it is done when the call returns, unless blocked.
    pub fn commit(&mut self) -> Result<(), JournalError> {
        while !self.runs.is_empty() && self.in_flight.is_none() {
            if !self.write(false)? {
                break;
            }
        }
        Ok(())
    }

    /// Writes an empty batch, which vouches for the one before and carries the trims.
    pub fn witness(&mut self) -> Result<(), JournalError> {
        if self.in_flight.is_none() && self.runs.is_empty() {
            self.write(true)?;
        }
        Ok(())
    }

    /// Fetches what other threads have finished, and starts what waited for it.
    pub fn poll(&mut self) -> Result<(), JournalError> {
        while let Some(prepared) = self.preparer.as_ref().and_then(Worker::poll) {
            self.on_prepared(prepared)?;
        }
        while let Some(written) = self.committer.as_ref().and_then(Worker::poll) {
            self.on_written(written)?;
        }
        self.commit()
    }

    /// Tries again what failed for want of space.
    pub fn retry(&mut self) -> Result<(), JournalError> {
        if matches!(self.next, Next::NoSpace) {
            self.next = Next::Wanted;
            self.prepare();
        }
        if let Some(write) = self.stuck.take() {
            self.perform(write)?;
        }
        self.poll()
    }

    /// Waits until everything appended is durable and vouched for; returns early if the disk is full.
    pub fn finish(&mut self) -> Result<(), JournalError> {
        loop {
            self.commit()?;
            if self.failed {
                return Ok(());
            } else if self.in_flight.is_some() && self.stuck.is_none() {
                let Some(written) = self.committer.as_ref().and_then(Worker::wait) else { return Ok(()) };
                self.on_written(written)?;
            } else if self.blocked && matches!(self.next, Next::InFlight) {
                let Some(prepared) = self.preparer.as_ref().and_then(Worker::wait) else { return Ok(()) };
                self.on_prepared(prepared)?;
            } else if self.is_unwitnessed() && !self.blocked && self.stuck.is_none() {
                self.witness()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Says where the journal ends, for the next start: at a stop after which nothing is written any more. Without room for it the
    /// next start knows as much as after a crash.
    pub fn close(&mut self) -> std::io::Result<()> {
        if self.failed || self.in_flight.is_some() || !self.runs.is_empty() {
            return Ok(());
        }
        if matches!(self.next, Next::InFlight)
            && let Some(prepared) = self.preparer.as_ref().and_then(Worker::wait)
        {
            self.note_prepared(prepared);
        }
        self.extent.durable = self.durable_mark;
        self.write_extent()
    }

    fn write_extent(&self) -> std::io::Result<()> {
        self.extent.write(&*self.disk, self.incarnation)
    }

    fn tail(&self) -> &Segment {
        self.segments.back().expect("there is always a segment to write")
    }

    fn fail(&mut self, action: &'static str, generation: Generation, source: std::io::Error) -> JournalError {
        self.failed = true;
        self.io(action, generation, source)
    }

    fn io(&self, action: &'static str, generation: Generation, source: std::io::Error) -> JournalError {
        JournalError::Io { action, file: self.disk.path_of(&format::segment_name(generation)), source }
    }
}
