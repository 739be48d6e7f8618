//! One log: its segments follow one another without a gap.

use crate::ROW_OVERHEAD;
use crate::Rows;
use crate::pages::PageCache;
use crate::retired::Origin;
use crate::segment::{Part, Room, Segment};
use crate::storage::Storage;
use crate::wire::{Admitted, Answer, Cleanup, Description, Entries, LogStat, READ_BYTES_MAX, Read, Why};
use kernel::Encode;
use kernel::{BlobId, BlobRange};
use std::collections::VecDeque;
use std::sync::Arc;

/// One log. Its parts reach from at most `first` to `next`.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) origin: Arc<Origin>,
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) bytes: u64,
    /// 0: no limit.
    pub(crate) retain_bytes: u64,
    pub(crate) retain_ms: u64,
    pub(crate) sealed: bool,
    pub(crate) cleanup: Cleanup,
    pub(crate) dropped: Dropped,
    /// Entries are added to the last part.
    pub(crate) open: bool,
    pub(crate) parts: VecDeque<Part>,
}

/// Entries that a log has dropped by itself, apart from those that expired.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Dropped {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// What a participant says of a part that it can take.
pub(crate) const FITS: u8 = 0;

impl Log {
    /// What must be alike on all servers; where its parts are is each server's own matter.
    pub(crate) fn encode_facts(&self, name: &str, out: &mut Vec<u8>) {
        let Self {
            origin,
            first,
            next,
            bytes,
            retain_bytes,
            retain_ms,
            sealed,
            open,
            parts,
            cleanup,
            dropped,
        } = self;
        let Dropped { entries, bytes: dropped_bytes } = dropped;
        let Origin { name: origin_name, number, created_ms } = &**origin;
        [name, origin_name].into_iter().for_each(|text| text.encode(out));
        let flags = (*cleanup as u64) << 2 | u64::from(*sealed) << 1 | u64::from(*open);
        let limits = [bytes, retain_bytes, retain_ms, &flags, entries, dropped_bytes];
        for number in [number, created_ms, first, next].into_iter().chain(limits) {
            number.encode(out);
        }
        parts.iter().for_each(|part| [part.first(), part.next()].iter().for_each(|at| at.encode(out)));
    }

    pub(crate) fn stat(&self, name: &str) -> LogStat {
        let Self { first, next, bytes, retain_bytes, retain_ms, sealed, .. } = *self;
        LogStat { name: name.to_owned(), first, next, bytes, retain_bytes, retain_ms, sealed }
    }

    pub(crate) fn description(&self, name: &str) -> Description {
        let Dropped { entries, bytes } = self.dropped;
        Description { stat: self.stat(name), cleanup: self.cleanup, dropped: entries, dropped_bytes: bytes }
    }

    /// The name of the segment that begins at `first`.
    pub(crate) fn blob_id(&self, first: u64) -> BlobId {
        BlobId { series: self.origin.number, first }
    }

    /// Where the entries would go, or why they cannot.
    pub(crate) fn position(&self, expect: Option<u64>) -> (u8, u64) {
        if self.sealed {
            return (Why::Sealed as u8, self.next);
        }
        let moved = expect.is_some_and(|at| at != self.next);
        (if moved { Why::Moved as u8 } else { FITS }, self.next)
    }

    /// What the segment that is added to holds, in bytes.
    pub(crate) fn open_bytes(&self) -> usize {
        if self.open { self.parts.back().map_or(0, Part::bytes) } else { 0 }
    }

    /// What it may hold, in bytes.
    fn bytes_max(&self) -> u64 {
        if self.retain_bytes == 0 { u64::MAX } else { self.retain_bytes }
    }

    /// Adds sound rows; returns what they cost.
    pub(crate) fn append(
        &mut self,
        rows: &[u8],
        time: u64,
        admitted: Option<Admitted>,
        storage: &mut Storage,
    ) -> usize {
        let count = Rows::count(rows).unwrap_or(0);
        let bytes = rows.len() + count * (ROW_OVERHEAD - 4);
        let segment_bytes = storage.bounds.segment_bytes.min((self.bytes_max() / 4) as usize);
        let fits = match self.parts.back() {
            Some(Part::InMemory(last)) => self.open && last.has_room_for(bytes, segment_bytes),
            Some(Part::Stored(_)) | None => false,
        };
        if !fits {
            self.end_segment(storage);
            self.parts.push_back(Part::InMemory(Arc::new(Segment::new(self.next))));
            self.open = true;
        }
        let mut now = time;
        if let Some(Part::InMemory(open)) = self.parts.back_mut() {
            let open = Arc::make_mut(open);
            now = time.max(open.last_time);
            open.push(rows, now);
        }
        self.next += count as u64;
        let before = self.bytes;
        self.bytes += bytes as u64;
        storage.entry_bytes += bytes as u64;
        let (end, next) = (self.parts.back().map(Part::next), self.next);
        kernel::invariant!(CONTIG, end == Some(next), "the last segment ends at {end:?}, the log at {next}");
        self.expire(now, storage);
        let may_drop = self.cleanup == Cleanup::DropOldest || kernel::planted!(dropped_without_leave);
        let bytes_max = match admitted {
            // It shrinks by what was added, until the host's logs are within their budget again.
            Some(Admitted::BeyondBudget) if may_drop => {
                self.bytes_max().min(before.saturating_sub(bytes as u64))
            }
            Some(Admitted::BeyondBudget | Admitted::WithinBudget) | None => self.bytes_max(),
        };
        self.drop_beyond(bytes_max, admitted.is_some(), storage);
        bytes
    }

    /// Nothing is added to the last segment any more.
    pub(crate) fn end_segment(&mut self, storage: &mut Storage) {
        if self.open
            && let Some(last) = self.parts.back()
        {
            storage.ended(self.blob_id(last.first()), last.bytes());
        }
        self.open = false;
    }

    /// Drops whole segments that are expired; never the last.
    pub(crate) fn expire(&mut self, now: u64, storage: &mut Storage) {
        while self.parts.len() > 1
            && self.retain_ms > 0
            && now.saturating_sub(self.parts[0].last_time()) > self.retain_ms
        {
            self.drop_oldest(storage);
        }
    }

    /// Drops whole segments, the oldest first, until it holds no more than that; never the last.
    fn drop_beyond(&mut self, bytes_max: u64, counted: bool, storage: &mut Storage) {
        while self.parts.len() > 1 && self.bytes > bytes_max {
            let (first, bytes) = (self.first, self.bytes);
            self.drop_oldest(storage);
            if counted && !kernel::planted!(dropped_without_count) {
                self.dropped.entries += self.first - first;
                self.dropped.bytes += bytes - self.bytes;
            }
        }
    }

    fn drop_oldest(&mut self, storage: &mut Storage) {
        if let Some(oldest) = self.parts.pop_front() {
            let (bytes, all) = (oldest.bytes() as u64, self.bytes);
            kernel::invariant!(BOUND, bytes <= all, "drops a segment of {bytes} bytes of {all}");
            self.bytes = all - bytes;
            storage.entry_bytes -= bytes;
            self.first = self.first.max(oldest.next());
            self.open &= !self.parts.is_empty();
            storage.retired(self.blob_id(oldest.first()), &self.origin, oldest);
        }
    }

    pub(crate) fn trim(&mut self, before: u64, storage: &mut Storage) {
        let before = before + u64::from(kernel::planted!(trim_one_position_too_far));
        self.first = self.first.max(before.min(self.next));
        while self.parts.front().is_some_and(|oldest| oldest.next() <= self.first) {
            self.drop_oldest(storage);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, storage: &mut Storage) {
        while !self.parts.is_empty() {
            self.drop_oldest(storage);
        }
    }

    /// The part that begins at `first`.
    pub(crate) fn part(&self, first: u64) -> Option<&Part> {
        let at = self.parts.binary_search_by_key(&first, Part::first).ok()?;
        self.parts.get(at)
    }

    /// The segment that begins at `first` is on the disk.
    pub(crate) fn stored(&mut self, first: u64, page_bytes: usize) {
        let id = self.blob_id(first);
        let Ok(at) = self.parts.binary_search_by_key(&first, Part::first) else { return };
        self.parts[at].stored(id, page_bytes);
    }

    /// Answers a read, or says what must be loaded before.
    pub(crate) fn read(&self, read: &Read, storage: &mut Storage) -> Result<Answer, BlobRange> {
        let Read { name, from, .. } = read;
        if *from < self.first {
            return Ok(Answer::about(Why::Trimmed, name, self.first));
        }
        if *from > self.next {
            return Ok(Answer::about(Why::BeyondTail, name, self.next));
        }
        let begin = self.parts.partition_point(|part| part.next() <= *from);
        let (next, rows) = gather(self.parts.range(begin..), read, &mut storage.cache)?;
        let (tail, sealed) = (self.next, self.sealed);
        Ok(Answer::Entries(Entries { first: *from, next, tail, sealed, rows: rows.into() }))
    }

    /// The same of all that is still here, trimmed or not.
    pub(crate) fn recall(&self, read: &Read, storage: &mut Storage) -> Result<Answer, BlobRange> {
        if read.from >= self.first {
            return self.read(read, storage);
        }
        let Storage { retired, cache, .. } = storage;
        let retained = retired.of(self.origin.number).chain(&self.parts);
        let mut retained = retained.skip_while(|part| part.next() <= read.from).peekable();
        let first_retained = retained.peek().map_or(self.next, |part| part.first());
        if first_retained > read.from {
            return Ok(Answer::about(Why::Trimmed, &read.name, first_retained));
        }
        let (next, rows) = gather(retained, read, cache)?;
        let (first, tail, sealed) = (read.from, self.next, self.sealed);
        Ok(Answer::Entries(Entries { first, next, tail, sealed, rows: rows.into() }))
    }
}

/// What there is room for of `parts`, of which the first holds the position `read.from`, up to a gap; or what must be loaded before.
/// Returns the position behind it, too.
fn gather<'a>(
    parts: impl Iterator<Item = &'a Part>,
    read: &Read,
    cache: &mut PageCache,
) -> Result<(u64, Vec<u8>), BlobRange> {
    let mut rows = Vec::new();
    let (mut next, mut left) = (read.from, read.entries_max.max(1) as usize);
    let bytes_max = read.bytes_max.min(READ_BYTES_MAX) as usize;
    for part in parts {
        if part.first() > next {
            break;
        }
        let bytes = bytes_max.saturating_sub(rows.len());
        let room = Room { entries: left, bytes, always: rows.is_empty() };
        let count = match part {
            Part::InMemory(segment) => segment.read_into(next, room, &mut rows),
            Part::Stored(stored) => match stored.read_into(next, room, cache, &mut rows) {
                Ok(count) => count,
                Err(range) if next == read.from => return Err(range),
                // What there is already is an answer, and the reader comes again for the rest.
                Err(_) => break,
            },
        };
        next += count as u64;
        left -= count;
        if next < part.next() || left == 0 {
            break;
        }
    }
    Ok((next, rows))
}
