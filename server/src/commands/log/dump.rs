//! A log in a file: what `ordinate log dump` writes and `ordinate log load` appends.
//!
//! Frames, each with its length and checksum (`length: u32 | crc32c: u32 | body`, little-endian). The body of the first is a line that
//! says what the file is, then JSON that says of which log. Each further one has the position of its first entry (`u64`) and
//! entries (`length: u32 | bytes`). The last has the position behind the last entry, and no entries: a truncated file lacks it.

use super::{IN_FLIGHT_MAX, Sent, broken, failure, progress_of};
use crate::commands::kv::Endpoint;
use crate::failure::Failure;
use bytes::BytesMut;
use indicatif::ProgressBar;
use kernel::{Bytes, FRAME_HEADER_BYTES, FrameReader, FrameWriter};
use ordinate_client::{Log, LogError, Rows};
use serde_json::json;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FIRST_LINE: &[u8] = b"ordinate log dump 1\n";
const POSITION_BYTES: usize = 8;
/// The largest body: one read's entries, of which the first may be as large as an append.
const BODY_BYTES_MAX: usize = 4 << 20;
const CHUNK_BYTES: usize = 1 << 20;
/// Entries of one read.
const PAGE: u32 = 10_000;
/// Bytes of entries in one append.
const BATCH_BYTES: usize = 256 << 10;

/// Writes a dump.
struct Writer<W> {
    out: W,
    frame: FrameWriter,
}

impl<W: io::Write> Writer<W> {
    fn begin(out: W, about: &serde_json::Value) -> io::Result<Self> {
        let mut writer = Self { out, frame: FrameWriter::default() };
        writer.frame.body().extend_from_slice(FIRST_LINE);
        writer.frame.body().extend_from_slice(about.to_string().as_bytes());
        writer.flush()?;
        Ok(writer)
    }

    /// Adds entries of consecutive positions; none of them: the end.
    fn add(&mut self, first: u64, entries: &[Bytes]) -> io::Result<()> {
        let body = self.frame.body();
        body.extend_from_slice(&first.to_le_bytes());
        for entry in entries {
            body.extend_from_slice(&(entry.len() as u32).to_le_bytes());
            body.extend_from_slice(entry);
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = self.frame.bytes();
        let written = self.out.write_all(bytes);
        bytes.clear();
        written
    }
}

/// A part of a dump.
#[derive(PartialEq, Debug)]
enum Part {
    /// Of which log.
    About(serde_json::Value),
    /// Entries from this position on.
    Entries(u64, Bytes),
    /// There is no more; the position behind the last entry.
    End(u64),
}

/// Reads a dump.
struct Reader<R> {
    input: R,
    read: BytesMut,
    /// Where the next frame begins in the file.
    at: u64,
    begun: bool,
    ended: bool,
}

fn unsound(at: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("at byte {at}: {what}"))
}

impl<R: io::Read> Reader<R> {
    fn new(input: R) -> Self {
        Self { input, read: BytesMut::new(), at: 0, begun: false, ended: false }
    }

    /// The next part; none behind the end. An error names the location.
    fn next(&mut self) -> io::Result<Option<Part>> {
        let frames = FrameReader { body_max: BODY_BYTES_MAX };
        let mut chunk = vec![0; CHUNK_BYTES];
        let body = loop {
            let frame = frames.next(&mut self.read).map_err(|error| unsound(self.at, &error.to_string()))?;
            if let Some(body) = frame {
                break body;
            }
            let count = self.input.read(&mut chunk)?;
            if count == 0 {
                return match self.ended && self.read.is_empty() {
                    true => Ok(None),
                    false => Err(unsound(self.at, "the file is truncated here")),
                };
            }
            self.read.extend_from_slice(&chunk[..count]);
        };
        let at = self.at;
        self.at += (FRAME_HEADER_BYTES + body.len()) as u64;
        if self.ended {
            return Err(unsound(at, "there is more behind the end"));
        }
        if !std::mem::replace(&mut self.begun, true) {
            let about = body.strip_prefix(FIRST_LINE).and_then(|about| serde_json::from_slice(about).ok());
            return about
                .map(|about| Some(Part::About(about)))
                .ok_or_else(|| unsound(at, "this is no dump of a log"));
        }
        let Some((first, rows)) = body.split_first_chunk::<POSITION_BYTES>() else {
            return Err(unsound(at, "entries without a position"));
        };
        let first = u64::from_le_bytes(*first);
        if rows.is_empty() {
            self.ended = true;
            return Ok(Some(Part::End(first)));
        }
        let rows = body.slice_ref(rows);
        match Rows::count(&rows) {
            Some(_) => Ok(Some(Part::Entries(first, rows))),
            None => Err(unsound(at, "malformed entries")),
        }
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| {
        Failure::input(
            "O1018",
            format!("{path} cannot be loaded"),
            error.to_string(),
            "ordinate log dump NAME --out FILE",
        )
    }
}

/// Writes what is in the log now.
pub(super) fn dump(endpoint: &Endpoint, name: &str, out: &Path) -> Result<(), Failure> {
    let partial = PathBuf::from(format!("{}.partial", out.display()));
    endpoint.with_log(|log| async move {
        let written = broken("the dump cannot be written");
        let stat = log.stat(name).await.map_err(|error| failure(&error))?;
        let bar = std::io::stderr().is_terminal().then(|| progress_of(stat.next - stat.first));
        let file = File::create(&partial).map_err(&written)?;
        let about = json!({ "log": name, "first": stat.first, "tail": stat.next, "sealed": stat.sealed,
            "retain_bytes": stat.retain_bytes, "retain_ms": stat.retain_ms });
        let mut writer =
            Writer::begin(BufWriter::with_capacity(CHUNK_BYTES, file), &about).map_err(&written)?;
        let (mut at, mut count) = (stat.first, 0);
        while at < stat.next {
            let most = (stat.next - at).min(PAGE.into()) as u32;
            let page = log.read(name, at, most, Duration::ZERO).await.map_err(|error| failure(&error))?;
            if !page.entries.is_empty() {
                writer.add(page.first, &page.entries).map_err(&written)?;
            }
            count += page.entries.len() as u64;
            at = page.next();
            if let Some(bar) = &bar {
                bar.set_position(at - stat.first);
            }
        }
        writer.add(at, &[]).map_err(&written)?;
        let file = writer.out.into_inner().map_err(|error| written(error.into_error()))?;
        file.sync_all().and_then(|()| std::fs::rename(&partial, out)).map_err(&written)?;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        eprintln!("{count} entries, positions {} to {at}, in {}", stat.first, out.display());
        Ok(())
    })
}

/// Checks the whole file, and appends its entries unless only that was asked.
pub(super) fn load(endpoint: &Endpoint, name: &str, path: &Path, check: bool) -> Result<(), Failure> {
    let unreadable = unreadable(path);
    let open = || File::open(path).map(Reader::new).map_err(&unreadable);
    let (mut reader, mut count, mut about) = (open()?, 0, serde_json::Value::Null);
    let mut range = (None, 0);
    while let Some(part) = reader.next().map_err(&unreadable)? {
        match part {
            Part::About(said) => about = said,
            Part::Entries(first, rows) => {
                range.0 = range.0.or(Some(first));
                count += Rows::count(&rows).unwrap_or(0) as u64;
            }
            Part::End(next) => range.1 = next,
        }
    }
    let from = range.0.unwrap_or(range.1);
    eprintln!("{count} entries of the log {}, positions {from} to {}, sound", about["log"], range.1);
    if check {
        return Ok(());
    }
    let reader = open()?;
    endpoint.with_log(|log| async move { append_all(&log, name, reader, count, path).await })
}

async fn append_all(
    log: &Log,
    name: &str,
    mut reader: Reader<File>,
    count: u64,
    path: &Path,
) -> Result<(), Failure> {
    let bar: Option<ProgressBar> = std::io::stderr().is_terminal().then(|| progress_of(count));
    let (mut in_flight, mut done, mut open): (VecDeque<Sent>, _, _) = (VecDeque::new(), 0, true);
    let mut batches: VecDeque<(u64, Rows)> = VecDeque::new();
    loop {
        while open && batches.is_empty() {
            match reader.next().map_err(unreadable(path))? {
                Some(Part::Entries(_, rows)) => batches.extend(split(&rows)),
                Some(Part::About(_)) => {}
                Some(Part::End(_)) | None => open = false,
            }
        }
        if in_flight.len() < IN_FLIGHT_MAX
            && let Some((lines, rows)) = batches.pop_front()
        {
            in_flight.push_back((lines, Box::pin(log.append(name, rows))));
            continue;
        }
        let Some((lines, answer)) = in_flight.pop_front() else { break };
        let appended: Result<u64, LogError> = answer.await;
        appended.map_err(|error| {
            eprintln!("{done} entries appended");
            failure(&error)
        })?;
        done += lines;
        if let Some(bar) = &bar {
            bar.set_position(done);
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    eprintln!("{done} entries appended");
    Ok(())
}

/// Entries in pieces that one append takes.
fn split(rows: &Bytes) -> Vec<(u64, Rows)> {
    let mut batches: Vec<(u64, Rows)> = Vec::new();
    for entry in Rows::iter(rows) {
        match batches.last_mut().filter(|(_, batch)| batch.len() + entry.len() <= BATCH_BYTES) {
            Some((count, batch)) => {
                batch.push(entry);
                *count += 1;
            }
            None => {
                let mut batch = Rows::default();
                batch.push(entry);
                batches.push((1, batch));
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
        let mut writer = Writer::begin(&mut out, &json!({ "log": "a" })).expect("memory");
        writer.add(3, &[Bytes::from_static(b"x"), Bytes::from_static(b"")]).expect("memory");
        writer.add(9, &[Bytes::from_static(b"after a hole")]).expect("memory");
        writer.add(10, &[]).expect("memory");
        out
    }

    fn all(bytes: &[u8]) -> Result<Vec<Part>, String> {
        let mut reader = Reader::new(bytes);
        let mut parts = Vec::new();
        while let Some(part) = reader.next().map_err(|error| error.to_string())? {
            parts.push(part);
        }
        Ok(parts)
    }

    // A backup that says nothing of what it has lost is worse than none.
    #[test]
    fn what_was_dumped_comes_back_and_damage_is_reported() {
        let whole = dumped();
        let parts = all(&whole).expect("it is sound");
        let entries = |part: &Part| match part {
            Part::Entries(first, rows) => {
                Some((*first, Rows::iter(rows).map(<[u8]>::to_vec).collect::<Vec<_>>()))
            }
            Part::About(_) | Part::End(_) => None,
        };
        let found: Vec<_> = parts.iter().filter_map(entries).collect();
        assert_eq!(found, [(3, vec![b"x".to_vec(), vec![]]), (9, vec![b"after a hole".to_vec()])]);
        assert_eq!(parts.last(), Some(&Part::End(10)));
        for length in 0..whole.len() {
            let said = all(&whole[..length]).expect_err("it is truncated");
            assert!(said.contains("truncated"), "{length}: {said}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(all(&damaged).is_err(), "byte {at}");
        }
        assert!(all(&[whole.clone(), whole].concat()).expect_err("two files").contains("behind the end"));
    }
}
