//! Everything as of one timestamp in a file: what `ordinate txn dump` writes and `ordinate txn load` writes back.
//!
//! A file of frames. Each behind the first has rows (`key length: u32 | key | value length: u32 | value`). The last has no row but the
//! number of all rows (`u64`): a file that ends too early lacks it.

use super::explain;
use crate::commands::frame_file::{CHUNK_BYTES, FrameFileReader, FrameFileWriter, unsound};
use crate::commands::kv::Endpoint;
use crate::failure::Failure;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kernel::Bytes;
use ordinate_client::{KeyRange, KeyRow, OneShotOutcome, Timestamp, TxnClient, TxnError, TxnLevel};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

const FIRST_LINE: &[u8] = b"ordinate txn dump 1\n";
/// Rows of one read.
const PAGE: u32 = 10_000;
/// Keys and bytes that one transaction of a load writes.
const BATCH_KEYS: usize = 500;
const BATCH_BYTES: usize = 512 << 10;
/// Transactions of a load in flight.
const IN_FLIGHT_MAX: usize = 8;
/// Distinguishes the end from rows, whose keys have a byte at least.
const END_MARK: u32 = 0;

fn put_row(body: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    for part in [key, value] {
        body.extend_from_slice(&(part.len() as u32).to_le_bytes());
        body.extend_from_slice(part);
    }
}

fn take_part(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    Some(part.to_vec())
}

/// A key and its value.
type Row = (Vec<u8>, Vec<u8>);

/// A frame of a dump.
#[derive(PartialEq, Debug)]
enum Part {
    Rows(Vec<Row>),
    End(u64),
}

fn part_of(at: u64, body: &[u8]) -> io::Result<Part> {
    if let Some(end) = body.strip_prefix(&END_MARK.to_le_bytes()) {
        let count = end.try_into().map_err(|_| unsound(at, "malformed end"))?;
        return Ok(Part::End(u64::from_le_bytes(count)));
    }
    let (mut rest, mut rows) = (body, Vec::new());
    while !rest.is_empty() {
        let row =
            take_part(&mut rest).zip(take_part(&mut rest)).ok_or_else(|| unsound(at, "malformed rows"))?;
        rows.push(row);
    }
    Ok(Part::Rows(rows))
}

/// Reads a dump; the rows that it has are those that it says it has.
struct Reader<R> {
    file: FrameFileReader<R>,
    count: u64,
    ended: bool,
}

impl<R: io::Read> Reader<R> {
    fn new(input: R) -> io::Result<(Self, serde_json::Value)> {
        let mut file = FrameFileReader::new(input);
        let about = file.about(FIRST_LINE, "dump of transactions' keys")?;
        Ok((Self { file, count: 0, ended: false }, about))
    }

    /// The next rows; none at the end.
    fn next(&mut self) -> io::Result<Option<Vec<Row>>> {
        let Some((at, body)) = self.file.next()? else {
            return if self.ended { Ok(None) } else { Err(self.file.truncated()) };
        };
        if self.ended {
            return Err(unsound(at, "there is more behind the end"));
        }
        match part_of(at, &body)? {
            Part::Rows(rows) => {
                self.count += rows.len() as u64;
                Ok(Some(rows))
            }
            Part::End(count) if count == self.count => {
                self.ended = true;
                self.next()
            }
            Part::End(count) => Err(unsound(at, &format!("{} rows of {count}", self.count))),
        }
    }
}

fn unwritable(error: io::Error) -> Failure {
    Failure::failed("O1016", "the dump cannot be written", error.to_string(), "df -h")
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| {
        let what = format!("{path} cannot be loaded");
        Failure::input("O1018", what, error.to_string(), "ordinate txn dump --out FILE")
    }
}

/// Writes everything as of `at`, or as of now.
pub(super) fn dump(endpoint: &Endpoint, out: &Path, at: Option<Timestamp>) -> Result<(), Failure> {
    let partial = PathBuf::from(format!("{}.partial", out.display()));
    endpoint.with_transactions(|client| async move {
        let failed = |error: TxnError| explain(&error, endpoint);
        let at = match at {
            Some(at) => at,
            // A strict read of a key says when now is.
            None => client.read(TxnLevel::Strict).keys(["now"]).run().await.map_err(failed)?.at,
        };
        let file = BufWriter::with_capacity(CHUNK_BYTES, File::create(&partial).map_err(unwritable)?);
        let about = json!({ "at": at.0 });
        let mut writer = FrameFileWriter::begin(file, FIRST_LINE, &about).map_err(unwritable)?;
        let (mut start, mut count) = (Bytes::new(), 0u64);
        loop {
            let range = KeyRange { start, end: None };
            let found = client.read(TxnLevel::At(at)).scan_range(range, PAGE).run().await.map_err(failed)?;
            let Some(page) = found.scans.into_iter().next() else { break };
            let rows: Vec<&KeyRow> = page.rows.iter().filter(|row| row.value.is_some()).collect();
            if !rows.is_empty() {
                let put = |body: &mut Vec<u8>| {
                    rows.iter().for_each(|row| {
                        put_row(body, &row.key, row.value.as_deref().unwrap_or_default());
                    });
                };
                writer.add(put).map_err(unwritable)?;
            }
            count += rows.len() as u64;
            match page.next {
                Some(next) => start = next,
                None => break,
            }
        }
        let end = |body: &mut Vec<u8>| {
            body.extend_from_slice(&END_MARK.to_le_bytes());
            body.extend_from_slice(&count.to_le_bytes());
        };
        writer.add(end).map_err(unwritable)?;
        let file = writer.into_inner().into_inner().map_err(|error| unwritable(error.into_error()))?;
        file.sync_all().and_then(|()| std::fs::rename(&partial, out)).map_err(unwritable)?;
        let out = out.display();
        endpoint.output().say(
            || json!({ "keys": count, "at": at.0, "file": out.to_string() }),
            || format!("{count} keys as of {at} in {out}"),
        );
        Ok(())
    })
}

/// Checks the whole file, and writes its keys unless only that was asked.
pub(super) fn load(endpoint: &Endpoint, path: &Path, check: bool, merge: bool) -> Result<(), Failure> {
    let unreadable = unreadable(path);
    let open = || File::open(path).and_then(Reader::new).map_err(&unreadable);
    let (mut reader, about) = open()?;
    while reader.next().map_err(&unreadable)?.is_some() {}
    let count = reader.count;
    let sound = || json!({ "keys": count, "at": about["at"], "sound": true });
    endpoint.output().say(sound, || format!("{count} keys as of {}, sound", about["at"]));
    if check {
        return Ok(());
    }
    let (mut reader, _) = open()?;
    endpoint.with_transactions(|client| async move {
        let failed = |error: TxnError| explain(&error, endpoint);
        let found = client.read(TxnLevel::Strict).scan("", 1).run().await.map_err(failed)?;
        if !merge && found.scans.iter().any(|scan| !scan.rows.is_empty()) {
            let fact = "what is there and not in the file would stay: the result would be neither";
            let remedy = format!("ordinate txn load --merge --in {}", path.display());
            return Err(Failure::input("O1035", "there are keys already: nothing was written", fact, remedy));
        }
        let (mut in_flight, mut done) = (FuturesUnordered::new(), 0usize);
        while let Some(rows) = reader.next().map_err(&unreadable)? {
            for batch in batches(rows) {
                if in_flight.len() >= IN_FLIGHT_MAX {
                    let written: Option<Result<usize, TxnError>> = in_flight.next().await;
                    done += written.transpose().map_err(failed)?.unwrap_or(0);
                }
                in_flight.push(write(client.session(), batch));
            }
        }
        while let Some(written) = in_flight.next().await {
            done += written.map_err(failed)?;
        }
        endpoint.output().say(|| json!({ "written": done }), || format!("{done} keys written"));
        Ok(())
    })
}

async fn write(client: TxnClient, rows: Vec<Row>) -> Result<usize, TxnError> {
    let count = rows.len();
    let call = rows.into_iter().fold(client.one_shot(), |call, (key, value)| call.put(key, value));
    match call.run().await? {
        OneShotOutcome::Committed { .. } | OneShotOutcome::NotMet { .. } => Ok(count),
    }
}

/// Rows in pieces that one transaction writes.
fn batches(rows: Vec<Row>) -> Vec<Vec<Row>> {
    let (mut batches, mut bytes): (Vec<Vec<Row>>, usize) = (Vec::new(), 0);
    for row in rows {
        let size = row.0.len() + row.1.len();
        match batches.last_mut().filter(|batch| batch.len() < BATCH_KEYS && bytes + size <= BATCH_BYTES) {
            Some(batch) => {
                bytes += size;
                batch.push(row);
            }
            None => {
                bytes = size;
                batches.push(vec![row]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumped() -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = FrameFileWriter::begin(&mut out, FIRST_LINE, &json!({ "at": 7 })).expect("memory");
        let two = |body: &mut Vec<u8>| {
            put_row(body, b"a", b"");
            put_row(body, b"b", b"value");
        };
        writer.add(two).expect("memory");
        writer.add(|body| put_row(body, b"c", b"1")).expect("memory");
        let end = |body: &mut Vec<u8>| {
            body.extend_from_slice(&END_MARK.to_le_bytes());
            body.extend_from_slice(&3u64.to_le_bytes());
        };
        writer.add(end).expect("memory");
        out
    }

    fn all(bytes: &[u8]) -> Result<Vec<Row>, String> {
        let (mut reader, _) = Reader::new(bytes).map_err(|error| error.to_string())?;
        let mut rows = Vec::new();
        while let Some(more) = reader.next().map_err(|error| error.to_string())? {
            rows.extend(more);
        }
        Ok(rows)
    }

    // A backup that says nothing of what it has lost is worse than none.
    #[test]
    fn what_was_dumped_comes_back_and_damage_is_reported() {
        let whole = dumped();
        let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(all(&whole), Ok(vec![row(b"a", b""), row(b"b", b"value"), row(b"c", b"1")]));
        for length in 0..whole.len() {
            assert!(all(&whole[..length]).is_err(), "{length} bytes of it");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(all(&damaged).is_err(), "byte {at}");
        }
        assert!(all(&[whole.clone(), whole].concat()).expect_err("two files").contains("behind the end"));
    }
}
