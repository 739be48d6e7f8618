//! A run of a log's entries.

use crate::rows::{ROW_OVERHEAD, Rows};
use kernel::Bytes;

/// Entries of consecutive positions, with an index.
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

/// Where a segment ends, unless one append is larger.
pub(crate) const SEGMENT_BYTES: usize = 256 << 10;

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

    /// The entries from position `from` on: at most `entries_max`, and `bytes_max` bytes unless `always` and the first is larger.
    pub(crate) fn read_into(
        &self,
        from: u64,
        entries_max: usize,
        bytes_max: usize,
        always: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        let begin = from.saturating_sub(self.first) as usize;
        let Some(&start) = self.index.get(begin) else { return 0 };
        let end_of = |at: usize| self.index.get(at + 1).map_or(self.rows.len(), |&next| next as usize);
        let last = begin.saturating_add(entries_max).min(self.index.len());
        let fits = |&at: &usize| end_of(at) - start as usize <= bytes_max || (always && at == begin);
        let count = (begin..last).take_while(fits).count();
        if count > 0 {
            out.extend_from_slice(&self.rows[start as usize..end_of(begin + count - 1)]);
        }
        count
    }

    pub(crate) fn rows_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.rows)
    }
}
