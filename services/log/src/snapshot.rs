//! What a snapshot of a space's logs is made of: a head, each log before its segments, then what waits for the archive, what is known
//! of producers, and of groups.

use crate::producers::Known;
use crate::retired::Origin;
use crate::segment::Part;
use crate::segment::{Page, Segment, Stored};
use crate::wire::{Cleanup, GroupState, LogStat};
use kernel::{BlobId, Bytes, Encode};
use mason::BlobRef;
use std::sync::Arc;

kernel::record! {
    pub(crate) struct Head {
        digest: u64,
    }
}

kernel::record! {
    pub(crate) struct SavedSegment {
        first: u64,
        last_time: u64,
        rows: Bytes,
    }
}

kernel::record! {
    pub(crate) struct Numbered {
        number: u64,
        open: bool,
    }
}

kernel::record! {
    pub(crate) struct Created {
        created_ms: u64,
    }
}

kernel::record! {
    /// Of a log that is not as logs were before there was a budget.
    pub(crate) struct Cleaned {
        cleanup: Cleanup,
        dropped: u64,
        dropped_bytes: u64,
    }
}

kernel::record! {
    pub(crate) struct SavedOrigin {
        name: String,
        number: u64,
        created_ms: u64,
    }
}

kernel::record! {
    /// Pages: how many entries and bytes are before each.
    pub(crate) struct SavedStored {
        first: u64,
        next: u64,
        last_time: u64,
        bytes: u64,
        digest: u64,
        pages: Vec<(u32, u32)>,
    }
}

impl SavedSegment {
    /// None if it holds no entries.
    pub(crate) fn part(self) -> Option<Part> {
        let segment = Segment::read(self.first, self.last_time, &self.rows)?;
        Some(Part::InMemory(Arc::new(segment)))
    }
}

impl SavedStored {
    /// None if it makes no sense: it may come from a peer.
    pub(crate) fn part(self, series: u64) -> Option<Part> {
        let Self { first, next, last_time, bytes, digest, pages } = self;
        let pages = pages.into_iter().map(|(entries, offset)| Page { entries, offset }).collect();
        let blob = BlobRef { id: BlobId { series, first }, bytes, digest };
        let stored = Stored { first, next, last_time, blob, pages };
        stored.is_sound().then(|| Part::Stored(Arc::new(stored)))
    }
}

/// Tags: 1 and 6 a head, 2, 7, 9 and 11 a log, 3 and 8 its segments, 4 a producer, 5 a group, 10 a segment of what waits.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Head(Head, u64),
    Log(LogStat, Numbered, Created, Option<Cleaned>),
    Part(Part),
    Retired(Arc<Origin>, Part),
    Producer(Known),
    Group(GroupState),
}

impl Item {
    pub(crate) fn write(self, chunk: &mut Vec<u8>) {
        match self {
            Self::Head(head, created) => {
                tagged(1, &head, chunk);
                tagged(6, &created, chunk);
            }
            Self::Log(stat, numbered, created, cleaned) => {
                tagged(2, &stat, chunk);
                tagged(7, &numbered, chunk);
                tagged(9, &created, chunk);
                if let Some(cleaned) = cleaned {
                    tagged(11, &cleaned, chunk);
                }
            }
            Self::Part(part) => write_part(&part, chunk),
            Self::Retired(origin, part) => {
                let Origin { name, number, created_ms } = &*origin;
                let (number, created_ms) = (*number, *created_ms);
                tagged(10, &SavedOrigin { name: name.clone(), number, created_ms }, chunk);
                write_part(&part, chunk);
            }
            Self::Producer(known) => tagged(4, &known, chunk),
            Self::Group(state) => tagged(5, &state, chunk),
        }
    }
}

fn tagged(tag: u8, what: &impl Encode, chunk: &mut Vec<u8>) {
    chunk.push(tag);
    what.encode(chunk);
}

fn write_part(part: &Part, chunk: &mut Vec<u8>) {
    match part {
        Part::InMemory(segment) => {
            let (first, last_time) = (segment.first, segment.last_time);
            tagged(3, &SavedSegment { first, last_time, rows: segment.rows_bytes() }, chunk);
        }
        Part::Stored(stored) => {
            let Stored { first, next, last_time, blob, pages } = &**stored;
            let pages = pages.iter().map(|page| (page.entries, page.offset)).collect();
            let (first, next, last_time) = (*first, *next, *last_time);
            let (bytes, digest) = (blob.bytes, blob.digest);
            tagged(8, &SavedStored { first, next, last_time, bytes, digest, pages }, chunk);
        }
    }
}
