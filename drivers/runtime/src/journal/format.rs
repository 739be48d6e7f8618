//! How the journal looks on disk.
//!
//! A segment is a file of fixed size: one block of header, then batches, each starting at a block boundary. Numbers are
//! little-endian.
//!
//! ```text
//! segment header  magic "ORDJSEG\0" | format: u32 | crc: u32 | generation: u64 | bytes: u64 | incarnation: u128
//! batch header    magic: u32 | crc: u32 | payload bytes: u32 | chain: u32 | generation: u64 | number: u64
//!                 | durable generation: u64 | durable offset: u64 | zero: 2 x u64
//! payload         entries, then zeros up to the block boundary
//! entry           1 | slot: u32 | first position: u64 | count: u32 | count x (bytes: u32 | record)      records
//!                 2 | slot: u32 | before: u64                                                         trim
//!                 3 | slot: u32 | trimmed: u64 | next: u64                         where a slot stands
//! ```
//!
//! - Every checksum (CRC32C) starts from the directory's incarnation, the generation and the offset, so that bytes of an
//!   earlier use of the file, or of another slot in it, are never taken for a batch; nor are those that a client wrote
//!   to look like one, because it cannot know the incarnation.
//! - `chain` is the checksum of the batch before, over segments too: a batch counts only behind the one it was written
//!   behind.
//! - `durable` is the end of what was known synced when the batch was written. It distinguishes a torn tail, which no later
//!   batch vouches for, from damage to what had been synced.

use kernel::{HostSlot, Position};
use std::ops::Range;

/// The version that this code writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;
pub(crate) const BATCH_HEADER_BYTES: usize = 64;
const SEGMENT_MAGIC: &[u8; 8] = b"ORDJSEG\0";
const SEGMENT_HEADER_BYTES: usize = 48;
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"OBAT");

/// The use of a segment file: counts up over the journal's whole run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Generation(pub u64);

/// A point in the journal; the order of the fields is the order of writing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Mark {
    /// The segment.
    pub generation: Generation,
    /// Bytes from its start.
    pub offset: u64,
}

pub(crate) fn segment_name(generation: Generation) -> String {
    format!("segment-{:016x}", generation.0)
}

pub(crate) fn generation_of(name: &str) -> Option<Generation> {
    let digits = name.strip_prefix("segment-").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(Generation)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) generation: Generation,
    pub(crate) bytes: u64,
    pub(crate) incarnation: u128,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderError {
    Newer(u32),
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[..8].copy_from_slice(SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        out[32..48].copy_from_slice(&self.incarnation.to_le_bytes());
        let crc = segment_checksum(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Self, HeaderError> {
        let header = block.first_chunk::<SEGMENT_HEADER_BYTES>().ok_or(HeaderError::Damaged)?;
        if &header[..8] != SEGMENT_MAGIC {
            return Err(HeaderError::Damaged);
        }
        let format = u32_at(header, 8);
        if format > FORMAT {
            return Err(HeaderError::Newer(format));
        }
        if segment_checksum(header) != u32_at(header, 12) {
            return Err(HeaderError::Damaged);
        }
        let incarnation = u128::from(u64_at(header, 32)) | u128::from(u64_at(header, 40)) << 64;
        Ok(Self { generation: Generation(u64_at(header, 16)), bytes: u64_at(header, 24), incarnation })
    }
}

fn segment_checksum(header: &[u8; SEGMENT_HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchHeader {
    /// The checksum of the batch before.
    pub(crate) chain: u32,
    pub(crate) number: u64,
    pub(crate) durable: Mark,
}

/// A batch found on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) header: BatchHeader,
    pub(crate) crc: u32,
    /// Where its entries are in the segment.
    pub(crate) payload: Range<usize>,
}

/// Fills in the header of `batch` (header space, then payload) that will stand at `at`; returns its checksum.
pub(crate) fn seal(batch: &mut [u8], header: &BatchHeader, incarnation: u128, at: Mark) -> u32 {
    let payload_bytes = u32::try_from(batch.len() - BATCH_HEADER_BYTES).expect("a batch fits in its segment");
    batch[..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
    batch[8..12].copy_from_slice(&payload_bytes.to_le_bytes());
    batch[12..16].copy_from_slice(&header.chain.to_le_bytes());
    let words = [at.generation.0, header.number, header.durable.generation.0, header.durable.offset, 0, 0];
    for (index, word) in words.into_iter().enumerate() {
        batch[16 + 8 * index..24 + 8 * index].copy_from_slice(&word.to_le_bytes());
    }
    let crc = batch_checksum(&batch[8..], incarnation, at);
    batch[4..8].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The batch that stands whole and undamaged at `offset` of a segment of this generation.
pub(crate) fn batch_at(
    segment: &[u8],
    incarnation: u128,
    generation: Generation,
    offset: usize,
) -> Option<Batch> {
    if !begins_batch(segment, generation, offset) {
        return None;
    }
    let header = segment.get(offset..)?.first_chunk::<BATCH_HEADER_BYTES>()?;
    let start = offset + BATCH_HEADER_BYTES;
    let payload = start..start.checked_add(u32_at(header, 8) as usize)?;
    let checked = segment.get(offset + 8..payload.end)?;
    let crc = batch_checksum(checked, incarnation, Mark { generation, offset: offset as u64 });
    if crc != u32_at(header, 4) {
        return None;
    }
    let durable = Mark { generation: Generation(u64_at(header, 32)), offset: u64_at(header, 40) };
    let header = BatchHeader { chain: u32_at(header, 12), number: u64_at(header, 24), durable };
    Some(Batch { header, crc, payload })
}

/// True if a batch of this use of the segment was begun at `offset`, be it whole or not.
pub(crate) fn begins_batch(segment: &[u8], generation: Generation, offset: usize) -> bool {
    let header = segment.get(offset..).and_then(<[u8]>::first_chunk::<BATCH_HEADER_BYTES>);
    header.is_some_and(|header| u32_at(header, 0) == BATCH_MAGIC && u64_at(header, 16) == generation.0)
}

fn batch_checksum(bytes: &[u8], incarnation: u128, at: Mark) -> u32 {
    let mut host_slot = [0; 32];
    host_slot[..8].copy_from_slice(&at.generation.0.to_le_bytes());
    host_slot[8..16].copy_from_slice(&at.offset.to_le_bytes());
    host_slot[16..].copy_from_slice(&incarnation.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&host_slot), bytes)
}

/// One entry of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry<'a> {
    Record { host_slot: HostSlot, position: Position, bytes: &'a [u8] },
    Trim { host_slot: HostSlot, before: Position },
    Stand { host_slot: HostSlot, trimmed: Position, next: Position },
}

pub(crate) const RUN_HEADER_BYTES: usize = 17;
pub(crate) const STAND_BYTES: usize = 21;
pub(crate) const TRIM_BYTES: usize = 13;

/// The head of a row of records; the count is filled in by `set_run_count`.
pub(crate) fn push_run(out: &mut Vec<u8>, host_slot: HostSlot, first: Position) {
    out.push(1);
    out.extend_from_slice(&host_slot.0.to_le_bytes());
    out.extend_from_slice(&first.0.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
}

pub(crate) fn set_run_count(run: &mut [u8], count: u32) {
    run[13..17].copy_from_slice(&count.to_le_bytes());
}

pub(crate) fn push_record(out: &mut Vec<u8>, record: &[u8]) {
    let bytes = u32::try_from(record.len()).expect("a record fits in a segment, which is checked first");
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(record);
}

pub(crate) fn push_trim(out: &mut Vec<u8>, host_slot: HostSlot, before: Position) {
    out.push(2);
    out.extend_from_slice(&host_slot.0.to_le_bytes());
    out.extend_from_slice(&before.0.to_le_bytes());
}

pub(crate) fn push_stand(out: &mut Vec<u8>, host_slot: HostSlot, trimmed: Position, next: Position) {
    out.push(3);
    out.extend_from_slice(&host_slot.0.to_le_bytes());
    out.extend_from_slice(&trimmed.0.to_le_bytes());
    out.extend_from_slice(&next.0.to_le_bytes());
}

/// Calls `visit` with each entry; `Err` for a payload that no version of this code writes.
pub(crate) fn each_entry<'a, E>(
    payload: &'a [u8],
    malformed: impl Fn(&'static str) -> E,
    mut visit: impl FnMut(Entry<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = payload;
    while let Some((&kind, after)) = rest.split_first() {
        let short = || malformed("entry ends early");
        let (host_slot, after) = after.split_first_chunk::<4>().ok_or_else(short)?;
        let host_slot = HostSlot(u32::from_le_bytes(*host_slot));
        let (number, after) = after.split_first_chunk::<8>().ok_or_else(short)?;
        let number = Position(u64::from_le_bytes(*number));
        rest = after;
        match kind {
            1 => {
                let (count, mut records) = rest.split_first_chunk::<4>().ok_or_else(short)?;
                for index in 0..u32::from_le_bytes(*count) {
                    let (bytes, after) = records.split_first_chunk::<4>().ok_or_else(short)?;
                    let bytes = u32::from_le_bytes(*bytes) as usize;
                    let record = after.get(..bytes).ok_or_else(short)?;
                    visit(Entry::Record {
                        host_slot,
                        position: Position(number.0.saturating_add(u64::from(index))),
                        bytes: record,
                    })?;
                    records = &after[bytes..];
                }
                rest = records;
            }
            2 => visit(Entry::Trim { host_slot, before: number })?,
            3 => {
                let (next, after) = rest.split_first_chunk::<8>().ok_or_else(short)?;
                rest = after;
                visit(Entry::Stand {
                    host_slot,
                    trimmed: number,
                    next: Position(u64::from_le_bytes(*next)),
                })?;
            }
            _ => return Err(malformed("entry of an unknown kind")),
        }
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden_batch() -> Vec<u8> {
        let mut payload = Vec::new();
        push_run(&mut payload, HostSlot(3), Position(9));
        push_record(&mut payload, b"ab");
        push_record(&mut payload, b"");
        set_run_count(&mut payload, 2);
        push_trim(&mut payload, HostSlot(3), Position(8));
        push_stand(&mut payload, HostSlot(4), Position(1), Position(2));
        let mut batch = vec![0; BATCH_HEADER_BYTES];
        batch.extend_from_slice(&payload);
        batch
    }

    const HEADER: BatchHeader =
        BatchHeader { chain: 5, number: 6, durable: Mark { generation: Generation(2), offset: 4096 } };

    // What is written must be read back, and only at its own slot in its own use of the file.
    #[test]
    fn a_batch_is_read_back_only_where_it_was_written() {
        let mut segment = vec![0; 2 * 4096];
        let mut batch = golden_batch();
        let at = Mark { generation: Generation(2), offset: 4096 };
        let crc = seal(&mut batch, &HEADER, 77, at);
        segment.extend_from_slice(&batch);
        segment.copy_within(2 * 4096.., 4096);
        let found = batch_at(&segment, 77, at.generation, 4096).expect("the batch stands here");
        assert_eq!((found.header, found.crc), (HEADER, crc));
        assert_eq!(batch_at(&segment, 77, at.generation, 2 * 4096), None, "a copy elsewhere is not a batch");
        assert_eq!(batch_at(&segment, 77, Generation(3), 4096), None, "a later use of the file");
        assert_eq!(batch_at(&segment, 78, at.generation, 4096), None, "another directory's");
        let mut entries = Vec::new();
        let outcome = each_entry(
            &segment[found.payload],
            |what| what,
            |entry| {
                entries.push(entry);
                Ok(())
            },
        );
        assert_eq!(outcome, Ok(()));
        assert_eq!(
            entries,
            [
                Entry::Record { host_slot: HostSlot(3), position: Position(9), bytes: b"ab" },
                Entry::Record { host_slot: HostSlot(3), position: Position(10), bytes: b"" },
                Entry::Trim { host_slot: HostSlot(3), before: Position(8) },
                Entry::Stand { host_slot: HostSlot(4), trimmed: Position(1), next: Position(2) },
            ]
        );
    }

    // A changed byte order or field would make yesterday's journals unreadable.
    #[test]
    fn the_golden_bytes_stay() {
        let mut batch = golden_batch();
        seal(&mut batch, &HEADER, 77, Mark { generation: Generation(2), offset: 4096 });
        assert_eq!(crc32c::crc32c(&batch), GOLDEN_BATCH);
        let header = SegmentHeader { generation: Generation(2), bytes: 1 << 20, incarnation: 77 };
        assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        assert_eq!(crc32c::crc32c(&header.encode()), GOLDEN_SEGMENT);
    }

    const GOLDEN_BATCH: u32 = 2150117178;
    const GOLDEN_SEGMENT: u32 = 1142536363;
}
