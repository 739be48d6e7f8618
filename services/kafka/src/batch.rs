//! Record batches, version 2: what Produce brings and Fetch returns.
//!
//! A record is an entry of its own, so that its offset is its position and everybody can read it. A batch is therefore taken apart,
//! decompressed if need be, and Fetch puts records into batches anew, uncompressed.

use crate::code::Code;
use crate::compression;
use crate::entry::{NO_TIMESTAMP, Record};
use crate::wire::{Malformed, PutKafka as _, RequestBytes};
use kernel::Bytes;
use shared_log::{APPEND_BYTES_MAX, ROW_OVERHEAD, Rows};

/// Who sends a batch, and as which: retries are distinguished from new batches by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// The producer; -1 for one that is not idempotent.
    pub producer: i64,
    /// Its epoch.
    pub epoch: i16,
    /// The sequence of the first record.
    pub sequence: i32,
}

impl Sender {
    /// As what the records after `count` more are sent: numbers wrap at 2^31.
    #[must_use]
    pub fn after(self, count: u32) -> Self {
        let sequence = (self.sequence as u32).wrapping_add(count) & i32::MAX as u32;
        Self { sequence: sequence as i32, ..self }
    }
}

/// Records for one append.
#[derive(Clone, PartialEq, Debug)]
pub struct Chunk {
    /// Entries; see [`Rows`].
    pub rows: Bytes,
    /// How many.
    pub count: u32,
}

/// A batch that was produced.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// Who sent it.
    pub sender: Sender,
    /// Its records, in as few appends as they fit into: mostly one.
    pub chunks: Vec<Chunk>,
}

const MAGIC: i8 = 2;
const CODEC_BITS: i16 = 0b111;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

impl Batch {
    /// Reads the one batch of a partition in Produce; the code says what is wrong with it. What is decompressed is taken from
    /// the `budget`, in bytes.
    pub fn read(records: Bytes, budget: &mut usize) -> Result<Self, Code> {
        let mut input = RequestBytes(records);
        let head = Self::check(&mut input)?;
        if head.attributes & (TRANSACTIONAL | CONTROL) != 0 {
            return Err(Code::INVALID_REQUEST);
        }
        let plain = compression::plain(head.attributes & CODEC_BITS, input.0, budget)?;
        let mut input = RequestBytes(plain);
        let mut chunks = Chunks::default();
        for delta in 0..head.count {
            let record =
                read_record(&mut input, head.base_timestamp, delta).map_err(|_| Code::INVALID_RECORD)?;
            chunks.push(&record)?;
        }
        input.end().map_err(|_| Code::INVALID_RECORD)?;
        Ok(Self { sender: head.sender, chunks: chunks.done() })
    }

    /// Reads the head of the only batch in `input`, up to its records.
    fn check(input: &mut RequestBytes) -> Result<Head, Code> {
        let corrupt = |_| Code::CORRUPT_MESSAGE;
        input.i64().map_err(corrupt)?;
        let length = input.i32().map_err(corrupt)?;
        if usize::try_from(length) != Ok(input.remaining()) {
            // Fewer bytes are truncated; more hold a second batch, which Produce does not allow.
            return Err(Code::CORRUPT_MESSAGE);
        }
        input.i32().map_err(corrupt)?;
        if input.i8().map_err(corrupt)? != MAGIC {
            return Err(Code::UNSUPPORTED_FOR_MESSAGE_FORMAT);
        }
        let crc = input.u32().map_err(corrupt)?;
        if crc != crc32c::crc32c(&input.0) {
            return Err(Code::CORRUPT_MESSAGE);
        }
        Head::read(input).map_err(|_| Code::INVALID_RECORD)
    }
}

struct Head {
    attributes: i16,
    base_timestamp: i64,
    sender: Sender,
    count: i32,
}

impl Head {
    fn read(input: &mut RequestBytes) -> Result<Self, Malformed> {
        let attributes = input.i16()?;
        let last_offset_delta = input.i32()?;
        let base_timestamp = input.i64()?;
        input.i64()?;
        let sender = Sender { producer: input.i64()?, epoch: input.i16()?, sequence: input.i32()? };
        let count = input.i32()?;
        let numbered = sender.producer < 0 || (sender.epoch >= 0 && sender.sequence >= 0);
        if count < 1 || last_offset_delta != count - 1 || !numbered {
            return Err(Malformed);
        }
        Ok(Self { attributes, base_timestamp, sender, count })
    }
}

fn read_record(input: &mut RequestBytes, base_timestamp: i64, delta: i32) -> Result<Record, Malformed> {
    let mut input = RequestBytes(input.varbytes()?.ok_or(Malformed)?);
    input.i8()?;
    let timestamp = base_timestamp.checked_add(input.varlong()?).ok_or(Malformed)?;
    if input.varint()? != delta {
        return Err(Malformed);
    }
    let (key, value) = (input.varbytes()?, input.varbytes()?);
    let headers = Record::read_headers(&mut input)?;
    input.end()?;
    Ok(Record { timestamp, key, value, headers })
}

#[derive(Default)]
struct Chunks {
    full: Vec<Chunk>,
    rows: Rows,
    count: u32,
    entry: Vec<u8>,
}

impl Chunks {
    fn push(&mut self, record: &Record) -> Result<(), Code> {
        self.entry.clear();
        record.write(&mut self.entry);
        let cost = |bytes: usize, count: u32| bytes + count as usize * (ROW_OVERHEAD - 4);
        if cost(self.entry.len() + 4, 1) > APPEND_BYTES_MAX {
            return Err(Code::MESSAGE_TOO_LARGE);
        }
        if cost(self.rows.len() + self.entry.len() + 4, self.count + 1) > APPEND_BYTES_MAX {
            self.split();
        }
        self.rows.push(&self.entry);
        self.count += 1;
        Ok(())
    }

    fn split(&mut self) {
        let rows = std::mem::take(&mut self.rows).into_bytes();
        self.full.push(Chunk { rows, count: std::mem::take(&mut self.count) });
    }

    fn done(mut self) -> Vec<Chunk> {
        self.split();
        self.full
    }
}

/// Writes the entries in `rows`, the first of which is at `first`, as one batch; nothing if there are none.
pub fn write(first: u64, rows: &Bytes, out: &mut Vec<u8>) {
    let records: Vec<Record> = Rows::iter(rows).map(|entry| Record::of(&rows.slice_ref(entry))).collect();
    let Some(base_timestamp) = records.first().map(|record| record.timestamp) else { return };
    let max_timestamp = records.iter().map(|record| record.timestamp).max().unwrap_or(NO_TIMESTAMP);
    let count = records.len() as i32;
    out.put_i64(first as i64);
    let length_at = out.len();
    out.put_i32(0);
    out.put_i32(-1);
    out.push(MAGIC as u8);
    let crc_at = out.len();
    out.put_i32(0);
    out.put_i16(0);
    out.put_i32(count - 1);
    out.put_i64(base_timestamp);
    out.put_i64(max_timestamp);
    out.put_i64(-1);
    out.put_i16(-1);
    out.put_i32(-1);
    out.put_i32(count);
    let mut body = Vec::new();
    for (delta, record) in records.iter().enumerate() {
        body.clear();
        body.push(0);
        // Wrapping: the reader adds the same way, so any two timestamps come back as they were.
        body.put_varlong(record.timestamp.wrapping_sub(base_timestamp));
        body.put_varlong(delta as i64);
        body.put_varbytes(record.key.as_deref());
        body.put_varbytes(record.value.as_deref());
        record.write_headers(&mut body);
        out.put_varbytes(Some(&body));
    }
    let crc = crc32c::crc32c(&out[crc_at + 4..]);
    let length = (out.len() - length_at - 4) as u32;
    out[crc_at..crc_at + 4].copy_from_slice(&crc.to_be_bytes());
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}
