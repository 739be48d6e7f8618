//! A run of a log's entries: in memory, or on the disk with an index of where its pages begin.

use crate::pages::PageCache;
use crate::{ROW_OVERHEAD, Rows};
use kernel::{BlobId, BlobRange, Bytes};
use mason::BlobRef;
use std::sync::Arc;

/// Entries of consecutive positions, in memory.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Segment {
    /// The position of its first entry.
    pub(crate) first: u64,
    /// When its last entry was appended, in milliseconds since 1970.
    pub(crate) last_time: u64,
    rows: Vec<u8>,
    /// Where in `rows` each entry begins.
    index: Vec<u32>,
}

/// What is asked for at once: so many entries at most, and so many bytes; `always` the first, however large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    pub(crate) always: bool,
}

impl Segment {
    pub(crate) fn new(first: u64) -> Self {
        Self { first, last_time: 0, rows: Vec::new(), index: Vec::new() }
    }

    /// None if `rows` are no entries.
    pub(crate) fn read(first: u64, last_time: u64, rows: &[u8]) -> Option<Self> {
        let mut segment = Self::new(first);
        Rows::count(rows)?;
        segment.push(rows, last_time);
        Some(segment)
    }

    /// Adds sound rows.
    pub(crate) fn push(&mut self, rows: &[u8], time: u64) {
        let mut at = self.rows.len();
        for entry in Rows::iter(rows) {
            self.index.push(at as u32);
            at += 4 + entry.len();
        }
        self.rows.extend_from_slice(rows);
        self.last_time = time;
    }

    /// The position after its last entry.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.index.len() as u64
    }

    /// What it costs, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.len() + self.index.len() * (ROW_OVERHEAD - 4)
    }

    pub(crate) fn has_room_for(&self, bytes: usize, segment_bytes: usize) -> bool {
        self.index.is_empty() || self.bytes() + bytes <= segment_bytes
    }

    pub(crate) fn rows(&self) -> &[u8] {
        &self.rows
    }

    /// The entries from position `from` on, as far as there is room for them; returns how many.
    pub(crate) fn read_into(&self, from: u64, room: Room, out: &mut Vec<u8>) -> usize {
        let begin = from.saturating_sub(self.first) as usize;
        let Some(&start) = self.index.get(begin) else { return 0 };
        let end_of = |at: usize| self.index.get(at + 1).map_or(self.rows.len(), |&next| next as usize);
        let last = begin.saturating_add(room.entries).min(self.index.len());
        let fits = |&at: &usize| end_of(at) - start as usize <= room.bytes || (room.always && at == begin);
        let count = (begin..last).take_while(fits).count();
        if count > 0 {
            out.extend_from_slice(&self.rows[start as usize..end_of(begin + count - 1)]);
        }
        count
    }

    pub(crate) fn rows_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.rows)
    }

    /// What is left of it in memory when the disk has it under this name.
    pub(crate) fn stored_as(&self, id: BlobId, page_bytes: usize) -> Stored {
        let mut pages: Vec<Page> = Vec::new();
        for (entries, &offset) in (0..).zip(&self.index) {
            if pages.last().is_none_or(|last| (offset - last.offset) as usize >= page_bytes) {
                pages.push(Page { entries, offset });
            }
        }
        let blob = BlobRef { id, bytes: self.rows.len() as u64, digest: parts::digest(&self.rows) };
        Stored { first: self.first, next: self.next(), last_time: self.last_time, blob, pages }
    }
}

/// Where a page begins: behind so many entries and bytes of its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) entries: u32,
    pub(crate) offset: u32,
}

/// Entries of consecutive positions, on the disk.
///
/// Invariant: pages follow one another and begin with entries; the first begins the segment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stored {
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) last_time: u64,
    pub(crate) blob: BlobRef,
    pub(crate) pages: Vec<Page>,
}

impl Stored {
    /// Whether the parts fit together: they come from a peer.
    pub(crate) fn is_sound(&self) -> bool {
        let grows = |pair: &[Page]| pair[0].entries < pair[1].entries && pair[0].offset < pair[1].offset;
        let begins = self.pages.first() == Some(&Page { entries: 0, offset: 0 });
        let within = |last: &Page| {
            u64::from(last.offset) < self.blob.bytes
                && u64::from(last.entries) < self.next.saturating_sub(self.first)
        };
        begins && self.pages.windows(2).all(grows) && self.pages.last().is_some_and(within)
    }

    /// See [`Segment::bytes`].
    pub(crate) fn bytes(&self) -> usize {
        self.blob.bytes as usize + (self.next - self.first) as usize * (ROW_OVERHEAD - 4)
    }

    fn offset_of(&self, page: usize) -> u64 {
        self.pages.get(page).map_or(self.blob.bytes, |page| page.offset.into())
    }

    /// The position of the first entry behind the page.
    fn end_of(&self, page: usize) -> u64 {
        self.pages.get(page + 1).map_or(self.next, |next| self.first + u64::from(next.entries))
    }

    /// The pages that a loaded range holds, each with its bytes.
    pub(crate) fn pages_in<'a>(
        &self,
        range: BlobRange,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (u32, &'a [u8])> {
        let begin = self.pages.partition_point(|page| u64::from(page.offset) < range.offset);
        (begin..self.pages.len()).map_while(move |page| {
            let (start, end) = (self.offset_of(page) - range.offset, self.offset_of(page + 1) - range.offset);
            Some((page as u32, bytes.get(start as usize..end as usize)?))
        })
    }

    /// See [`Segment::read_into`]. If the page of the first entry is not in the cache, returns the range to load, which is all that
    /// there may be room for.
    pub(crate) fn read_into(
        &self,
        from: u64,
        room: Room,
        cache: &mut PageCache,
        out: &mut Vec<u8>,
    ) -> Result<usize, BlobRange> {
        let shift = u64::from(kernel::planted!(segment_index_off_by_one));
        let skipped = from.saturating_sub(self.first) + shift;
        let begin = self.pages.partition_point(|page| u64::from(page.entries) <= skipped).saturating_sub(1);
        let (start, mut count) = (out.len(), 0);
        for page in begin..self.pages.len() {
            let Some(bytes) = cache.get(self.blob.id, page as u32) else {
                return if count == 0 { Err(self.range(begin, from, room)) } else { Ok(count) };
            };
            let before = self.first + u64::from(self.pages[page].entries);
            let rows = Rows::iter(&bytes).skip((from + shift + count as u64).saturating_sub(before) as usize);
            for entry in rows {
                let size = out.len() - start + 4 + entry.len();
                if count == room.entries || size > room.bytes && !(room.always && count == 0) {
                    return Ok(count);
                }
                out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
                out.extend_from_slice(entry);
                count += 1;
            }
        }
        Ok(count)
    }

    /// The pages from `begin` on that a read from position `from` may need.
    fn range(&self, begin: usize, from: u64, room: Room) -> BlobRange {
        let offset = self.offset_of(begin);
        let mut last = begin;
        while last + 1 < self.pages.len()
            && self.end_of(last) - from < room.entries as u64
            && self.offset_of(last + 1) - self.offset_of(begin + 1) < room.bytes as u64
        {
            last += 1;
        }
        BlobRange { id: self.blob.id, offset, bytes: self.offset_of(last + 1) - offset }
    }
}

/// A segment. Both kinds are shared with snapshots that are being written.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    InMemory(Arc<Segment>),
    Stored(Arc<Stored>),
}

impl Part {
    pub(crate) fn first(&self) -> u64 {
        match self {
            Self::InMemory(segment) => segment.first,
            Self::Stored(stored) => stored.first,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        match self {
            Self::InMemory(segment) => segment.next(),
            Self::Stored(stored) => stored.next,
        }
    }

    pub(crate) fn last_time(&self) -> u64 {
        match self {
            Self::InMemory(segment) => segment.last_time,
            Self::Stored(stored) => stored.last_time,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::InMemory(segment) => segment.bytes(),
            Self::Stored(stored) => stored.bytes(),
        }
    }

    /// The disk has it under this name: it goes from memory.
    pub(crate) fn stored(&mut self, id: BlobId, page_bytes: usize) {
        if let Self::InMemory(segment) = self {
            *self = Self::Stored(Arc::new(segment.stored_as(id, page_bytes)));
        }
    }
}
