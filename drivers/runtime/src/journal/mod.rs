//! The journal that all nodes of a host share: appended in batches, made durable in order, trimmed by node.
//!
//! **Promises.** After a crash, `open` and `replay` give back a prefix of what was appended that holds everything that
//! was reported durable, or `open` fails with an error that names file, offset and cause. Never less, never
//! silence: what is not whole is cut only where no later batch says that it had been synced. The last batch
//! before a stop is vouched for by a witness, an empty batch written when the journal has nothing else to do.
//!
//! **Disk.** Segments are files of written zeros, prepared ahead on another thread and recycled, because overwriting
//! written blocks syncs about three times as fast as growing a file. A batch is padded to whole blocks, so that no synced
//! byte is ever written again. After a failed sync nothing is acknowledged any more. When no segment can be had because
//! the disk is full, the journal keeps what was appended in memory and goes on by itself when there is room.

mod format;
mod recover;
mod sync;
#[cfg(test)]
mod tests;

pub use format::{Generation, Mark};

use crate::direct::Blocks;
use crate::disk::{Disk, DiskFile, is_out_of_space};
use crate::metrics::Histogram;
use format::{BATCH_HEADER_BYTES, BatchHeader, RUN_HEADER_BYTES, STAND_BYTES, SegmentHeader, TRIM_BYTES};
use kernel::{Journaled, Place, Position};
use recover::{Segment, Stand};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use sync::{Chore, Prepared, UNFINISHED, Worker, Write, WriteError, Written};

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
        Self { segment_bytes: 16 << 20, placement: FsyncPlacement::Adaptive, prepare_inline: false }
    }
}

/// Counts commits of one run. What is appended now is durable when `Journal::durable` reaches `Journal::pending`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CommitNumber(pub u64);

/// Above the one a thread waits for the disk, below the other the caller does: two thread hand-offs cost about 30 us on a
/// quick disk, a reactor that waits for a slow one costs everybody.
const TO_THREAD_ABOVE: Duration = Duration::from_micros(400);
const TO_INLINE_BELOW: Duration = Duration::from_micros(250);
/// One stray slow sync must not move the mean across the threshold.
const SAMPLE_MAX: Duration = Duration::from_millis(2);
const RETIRED_MAX: usize = 2;
const BUFFER_KEPT_BYTES: usize = 1 << 20;

struct Run {
    bytes: usize,
    place: Place,
    next: Position,
    commit: CommitNumber,
}

/// The batch being made durable.
struct InFlight {
    end: Mark,
    commit: CommitNumber,
    trims: BTreeMap<Place, Position>,
    witness: bool,
}

enum Next {
    Wanted,
    UnderWay,
    Ready(Arc<dyn DiskFile>),
    /// The disk was full when it was last tried.
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
    places: BTreeMap<Place, Stand>,
    staged: Vec<u8>,
    runs: VecDeque<Run>,
    trims: BTreeMap<Place, Position>,
    pending: CommitNumber,
    durable: CommitNumber,
    in_flight: Option<InFlight>,
    /// A write that found no room and is to be tried again.
    stuck: Option<Write>,
    blocked: bool,
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
            places: scan.places,
            staged: Vec::new(),
            runs: VecDeque::new(),
            trims: BTreeMap::new(),
            pending: CommitNumber(1),
            durable: CommitNumber(0),
            in_flight: None,
            stuck: None,
            blocked: false,
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
            syncs: 0,
            disk,
        };
        journal.start_writing(surplus)?;
        Ok(journal)
    }

    /// Makes what was found durable before anybody acts on it: it may have been written but never synced.
    fn start_writing(&mut self, mut surplus: Vec<Generation>) -> Result<(), JournalError> {
        surplus.sort_unstable();
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
        }
        for segment in self.segments.iter().rev().take(2) {
            segment.file.sync().map_err(|source| self.io("sync", segment.generation, source))?;
        }
        let tail = self.tail();
        self.durable_mark = Mark { generation: tail.generation, offset: tail.end };
        self.prepare();
        // The first batch of a life vouches for all that was found. If the disk is full it comes with what is appended next.
        let placement = std::mem::replace(&mut self.inline, true);
        let outcome = self.witness();
        self.inline = placement;
        outcome
    }

    /// Calls `visit` with every record that is still needed, in the order they were appended. To be called before
    /// anything is appended.
    pub fn replay<E>(
        &self,
        visit: impl FnMut(Place, Position, &[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, JournalError> {
        let segments: Vec<&Segment> = self.retired.iter().chain(&self.segments).collect();
        recover::replay(&*self.disk, &segments, &self.places, visit)
    }

    /// Where the next record of `place` will stand.
    pub fn next_position(&self, place: Place) -> Position {
        self.places.get(&place).map_or(Position(0), |stand| stand.next)
    }

    /// The places that have ever appended, with how many of their records are still needed.
    pub fn places(&self) -> impl Iterator<Item = (Place, u64)> {
        self.places.iter().map(|(place, stand)| (*place, stand.next.0 - stand.trimmed.0.min(stand.next.0)))
    }

    /// Adds records of one node, whose positions follow those it appended before.
    pub fn append<'a>(&mut self, place: Place, records: impl Iterator<Item = Journaled<'a>>) {
        let record_max = self.options.segment_bytes as usize / 4;
        let (mut start, mut count, mut next) = (self.staged.len(), 0, Position(0));
        for record in records {
            assert!(
                record.bytes.len() <= record_max,
                "place {} appends a record of {} bytes; the journal takes {record_max}",
                place.0,
                record.bytes.len()
            );
            if count > 0 && self.staged.len() - start + record.bytes.len() > record_max {
                self.end_run(place, start, count, next);
                (start, count) = (self.staged.len(), 0);
            }
            if count == 0 {
                format::push_run(&mut self.staged, place, record.position);
            }
            format::push_record(&mut self.staged, record.bytes);
            (count, next) = (count + 1, Position(record.position.0 + 1));
        }
        if count > 0 {
            self.end_run(place, start, count, next);
        }
    }

    fn end_run(&mut self, place: Place, start: usize, count: u32, next: Position) {
        let run = &mut self.staged[start..];
        debug_assert!(run.len() > RUN_HEADER_BYTES);
        format::set_run_count(run, count);
        self.runs.push_back(Run { bytes: run.len(), place, next, commit: self.pending });
    }

    /// Gives up the records of `place` before `before`. The caller has waited until what replaces them is durable.
    pub fn trim(&mut self, place: Place, before: Position) {
        let trim = self.trims.entry(place).or_insert(before);
        *trim = before.max(*trim);
    }

    /// The number of the commit that what is appended now will belong to.
    pub fn pending(&self) -> CommitNumber {
        self.pending
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

    /// True if the disk was full when it was last asked.
    pub fn is_disk_full(&self) -> bool {
        self.stuck.is_some() || matches!(self.next, Next::NoSpace)
    }

    /// True if the last batch has no later one that vouches for it, or trims wait for a batch to go with.
    pub fn is_unwitnessed(&self) -> bool {
        let wanted = self.unwitnessed || !self.trims.is_empty();
        wanted && self.in_flight.is_none() && self.runs.is_empty()
    }

    /// True while the caller's own thread waits for the disk.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Batches made durable, and how long each took.
    pub fn sync_latency(&self) -> (&Histogram, u64) {
        (&self.latency, self.syncs)
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
            } else if self.blocked && matches!(self.next, Next::UnderWay) {
                let Some(prepared) = self.preparer.as_ref().and_then(Worker::wait) else { return Ok(()) };
                self.on_prepared(prepared)?;
            } else if self.is_unwitnessed() && !self.blocked && self.stuck.is_none() {
                self.witness()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Writes one batch of what fits; false if it must wait.
    fn write(&mut self, witness: bool) -> Result<bool, JournalError> {
        self.check_prepared()?;
        if self.failed || self.in_flight.is_some() {
            return Ok(false);
        }
        let first_run = self.runs.front().map_or(0, |run| run.bytes);
        self.blocked = !self.make_room(first_run);
        if self.blocked {
            return Ok(false);
        }
        let mut blocks = std::mem::take(&mut self.spare);
        blocks.clear(BUFFER_KEPT_BYTES);
        blocks.extend_from_slice(&[0; BATCH_HEADER_BYTES]);
        let trims = self.write_head(&mut blocks);
        self.write_runs(&mut blocks);
        let tail = self.segments.back_mut().expect("there is always a segment to write");
        let at = Mark { generation: tail.generation, offset: tail.end };
        let header = BatchHeader { chain: self.chain, number: self.number, durable: self.durable_mark };
        self.chain = format::seal(blocks.bytes_mut(), &header, at);
        self.number += 1;
        blocks.pad();
        tail.end += blocks.len() as u64;
        let end = Mark { generation: tail.generation, offset: tail.end };
        let write = Write { file: Arc::clone(&tail.file), offset: at.offset, blocks };
        // What is appended while this is in flight belongs to the next commit.
        let commit = self.runs.front().map_or(self.pending, |run| CommitNumber(run.commit.0 - 1));
        self.pending = CommitNumber(self.pending.0 + 1);
        self.in_flight = Some(InFlight { end, commit, trims, witness });
        self.perform(write)?;
        Ok(true)
    }

    /// Sees to it that a batch with a run of `run_bytes` fits behind the tail; false if no segment is at hand.
    fn make_room(&mut self, run_bytes: usize) -> bool {
        let needed = self.head_bytes(self.tail()) + run_bytes;
        let tail = self.tail();
        if tail.end + needed as u64 <= tail.bytes {
            return true;
        }
        let generation = Generation(tail.generation.0 + 1);
        match std::mem::replace(&mut self.next, Next::Wanted) {
            Next::Ready(file) => {
                self.segments.push_back(self.new_segment(generation, file));
                self.prepare();
                let tail = self.tail();
                let needed = self.head_bytes(tail) + run_bytes;
                assert!(tail.end + needed as u64 <= tail.bytes, "a batch of {needed} bytes fits no segment");
                true
            }
            other => {
                self.next = other;
                self.prepare();
                // Prepared on this very thread, it may be there by now.
                matches!(self.next, Next::Ready(_)) && self.make_room(run_bytes)
            }
        }
    }

    fn head_bytes(&self, tail: &Segment) -> usize {
        let stands = if is_fresh(tail) { self.places.len() * STAND_BYTES } else { 0 };
        BATCH_HEADER_BYTES + stands + self.trims.len() * TRIM_BYTES
    }

    /// The first batch of a segment says where every place stands, so that older segments can go.
    fn write_head(&mut self, blocks: &mut Blocks) -> BTreeMap<Place, Position> {
        let mut head = Vec::new();
        if is_fresh(self.tail()) {
            for (place, stand) in &self.places {
                format::push_stand(&mut head, *place, stand.trimmed, stand.next);
            }
        }
        let trims = std::mem::take(&mut self.trims);
        for (place, before) in &trims {
            format::push_trim(&mut head, *place, *before);
        }
        blocks.extend_from_slice(&head);
        trims
    }

    fn write_runs(&mut self, blocks: &mut Blocks) {
        let tail = self.segments.back_mut().expect("there is always a segment to write");
        let room = (tail.bytes - tail.end) as usize;
        let mut taken = 0;
        while let Some(run) = self.runs.front()
            && blocks.len() + taken + run.bytes <= room
        {
            taken += run.bytes;
            let stand = self.places.entry(run.place).or_default();
            stand.next = run.next;
            tail.ends.insert(run.place, run.next);
            self.runs.pop_front();
        }
        blocks.extend_from_slice(&self.staged[..taken]);
        self.staged.drain(..taken);
    }

    fn perform(&mut self, write: Write) -> Result<(), JournalError> {
        if self.inline {
            return self.on_written_or_stuck(write);
        }
        if self.committer.is_none() {
            let worker =
                Worker::start("journal-sync", Arc::clone(&self.notify), |write: Write| Some(write.perform()));
            match worker {
                Ok(worker) => self.committer = Some(worker),
                // Without a thread to be had, waiting here is still right.
                Err(_) => return self.on_written_or_stuck(write),
            }
        }
        if let Some(committer) = &self.committer {
            committer.push(write);
        }
        Ok(())
    }

    fn on_written_or_stuck(&mut self, write: Write) -> Result<(), JournalError> {
        self.on_written(write.perform())
    }

    fn on_written(&mut self, written: Written) -> Result<(), JournalError> {
        let Written { blocks, outcome, took } = written;
        let in_flight = self.in_flight.take().expect("one write is answered once");
        match outcome {
            Ok(()) => {}
            Err(WriteError::Write(error)) if is_out_of_space(&error) => {
                let file = Arc::clone(&self.tail().file);
                let offset = in_flight.end.offset - blocks.len() as u64;
                self.stuck = Some(Write { file, offset, blocks });
                self.in_flight = Some(in_flight);
                return Ok(());
            }
            Err(WriteError::Write(source)) => {
                return Err(self.fail("write", in_flight.end.generation, source));
            }
            Err(WriteError::Sync(source)) => return Err(self.fail("sync", in_flight.end.generation, source)),
        }
        self.spare = blocks;
        self.durable_mark = in_flight.end;
        self.durable = self.durable.max(in_flight.commit);
        self.unwitnessed = !in_flight.witness;
        self.measure(took);
        for (place, before) in in_flight.trims {
            let stand = self.places.entry(place).or_default();
            stand.trimmed = stand.trimmed.max(before);
        }
        self.retire();
        Ok(())
    }

    fn measure(&mut self, took: Duration) {
        self.syncs += 1;
        self.latency.record(took);
        let sample = took.min(SAMPLE_MAX);
        self.mean = if self.syncs == 1 { sample } else { self.mean - self.mean / 8 + sample / 8 };
        self.inline = match self.options.placement {
            FsyncPlacement::Inline => true,
            FsyncPlacement::Thread => false,
            FsyncPlacement::Adaptive if self.inline => self.mean <= TO_THREAD_ABOVE,
            FsyncPlacement::Adaptive => self.mean < TO_INLINE_BELOW,
        };
    }

    /// Retires the oldest segments as long as no record in them is needed. The trims are durable, and so is the first batch
    /// of the segment being written, which says where every place stands.
    fn retire(&mut self) {
        assert_eq!(
            self.durable_mark.generation,
            self.tail().generation,
            "a batch of an older segment ends last"
        );
        while self.segments.len() > 1
            && self.segments[0].ends.iter().all(|(place, end)| self.places[place].trimmed >= *end)
        {
            self.retired.extend(self.segments.pop_front());
        }
        self.prepare();
        while self.retired.len() > RETIRED_MAX {
            if let Some(segment) = self.retired.pop_front() {
                self.chore(Chore::Remove(segment.generation));
            }
        }
    }

    /// Has the next segment made, if that is not under way.
    fn prepare(&mut self) {
        if !matches!(self.next, Next::Wanted | Next::NoSpace) {
            return;
        }
        // A full disk is tried again on `retry`, unless an old segment can be had.
        let fits = self.retired.front().is_some_and(|segment| segment.bytes == self.options.segment_bytes);
        if matches!(self.next, Next::NoSpace) && !fits {
            return;
        }
        let reuse = if fits { self.retired.pop_front().map(|segment| segment.generation) } else { None };
        let generation = Generation(self.tail().generation.0 + 1);
        self.next = Next::UnderWay;
        self.chore(self.preparation(generation, reuse));
    }

    fn preparation(&self, generation: Generation, reuse: Option<Generation>) -> Chore {
        let header =
            SegmentHeader { generation, bytes: self.options.segment_bytes, incarnation: self.incarnation };
        Chore::Prepare { header, reuse }
    }

    fn chore(&mut self, chore: Chore) {
        if self.preparer.is_none() && !self.options.prepare_inline {
            let disk = Arc::clone(&self.disk);
            let work = move |chore| sync::perform_chore(&*disk, chore);
            self.preparer = Worker::start("journal-prepare", Arc::clone(&self.notify), work).ok();
        }
        if let Some(preparer) = &self.preparer {
            preparer.push(chore);
        } else if let Some(prepared) = sync::perform_chore(&*self.disk, chore) {
            self.note_prepared(prepared);
        }
    }

    fn on_prepared(&mut self, prepared: Prepared) -> Result<(), JournalError> {
        self.note_prepared(prepared);
        self.check_prepared()
    }

    fn check_prepared(&mut self) -> Result<(), JournalError> {
        match self.prepare_error.take() {
            Some(source) => Err(self.fail("prepare", Generation(self.tail().generation.0 + 1), source)),
            None => Ok(()),
        }
    }

    fn note_prepared(&mut self, prepared: Prepared) {
        self.next = match prepared {
            Ok(file) => Next::Ready(file),
            Err(error) if is_out_of_space(&error) => Next::NoSpace,
            Err(error) => {
                self.prepare_error = Some(error);
                // Not tried again: the journal fails at the next call.
                Next::UnderWay
            }
        };
    }

    fn new_segment(&self, generation: Generation, file: Arc<dyn DiskFile>) -> Segment {
        let bytes = self.options.segment_bytes;
        Segment { generation, file, bytes, end: crate::direct::BLOCK_BYTES as u64, ends: BTreeMap::new() }
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

fn is_fresh(segment: &Segment) -> bool {
    segment.end == crate::direct::BLOCK_BYTES as u64
}
