//! A log in a file: what `ordinate log dump` writes and `ordinate log load` appends.
//!
//! A file of frames. Each behind the first has the position of its first entry (`u64`) and entries (`length: u32 | bytes`). The last has
//! the position behind the last entry, and no entries: a file that ends too early lacks it.

use super::{IN_FLIGHT_MAX, Sent, broken, failed_read, failure, progress_of};
use crate::commands::frame_file::{CHUNK_BYTES, FrameFileReader, FrameFileWriter, unsound};
use crate::commands::kv::{Endpoint, Output};
use crate::failure::Failure;
use indicatif::ProgressBar;
use kernel::Bytes;
use ordinate_client::{Log, LogError, Rows};
use serde_json::json;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FIRST_LINE: &[u8] = b"ordinate log dump 1\n";
const POSITION_BYTES: usize = 8;
/// Entries of one read.
const PAGE: u32 = 10_000;
/// Bytes of entries in one append.
const BATCH_BYTES: usize = 256 << 10;

/// Writes a dump.
struct Writer<W> {
    file: FrameFileWriter<W>,
}

impl<W: io::Write> Writer<W> {
    fn begin(out: W, about: &serde_json::Value) -> io::Result<Self> {
        Ok(Self { file: FrameFileWriter::begin(out, FIRST_LINE, about)? })
    }

    /// Adds entries of consecutive positions; none of them: the end.
    fn add(&mut self, first: u64, entries: &[Bytes]) -> io::Result<()> {
        self.file.add(|body| {
            body.extend_from_slice(&first.to_le_bytes());
            for entry in entries {
                body.extend_from_slice(&(entry.len() as u32).to_le_bytes());
                body.extend_from_slice(entry);
            }
        })
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
    file: FrameFileReader<R>,
    begun: bool,
    ended: bool,
}

impl<R: io::Read> Reader<R> {
    fn new(input: R) -> Self {
        Self { file: FrameFileReader::new(input), begun: false, ended: false }
    }

    /// The next part; none behind the end. An error names the location.
    fn next(&mut self) -> io::Result<Option<Part>> {
        if !std::mem::replace(&mut self.begun, true) {
            return self.file.about(FIRST_LINE, "dump of a log").map(|about| Some(Part::About(about)));
        }
        let Some((at, body)) = self.file.next()? else {
            return if self.ended { Ok(None) } else { Err(self.file.truncated()) };
        };
        if self.ended {
            return Err(unsound(at, "there is more behind the end"));
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
        let stat = log.stat(name).await.map_err(|error| failed_read(&error))?;
        let bar = std::io::stderr().is_terminal().then(|| progress_of(stat.next - stat.first));
        let file = File::create(&partial).map_err(&written)?;
        let about = json!({ "log": name, "first": stat.first, "tail": stat.next, "sealed": stat.sealed,
            "retain_bytes": stat.retain_bytes, "retain_ms": stat.retain_ms });
        let mut writer =
            Writer::begin(BufWriter::with_capacity(CHUNK_BYTES, file), &about).map_err(&written)?;
        let (mut at, mut count) = (stat.first, 0);
        while at < stat.next {
            let most = (stat.next - at).min(PAGE.into()) as u32;
            let page = log.read(name, at, most, Duration::ZERO).await.map_err(|error| failed_read(&error))?;
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
        let file = writer.file.into_inner().into_inner().map_err(|error| written(error.into_error()))?;
        file.sync_all().and_then(|()| std::fs::rename(&partial, out)).map_err(&written)?;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let (first, out) = (stat.first, out.display());
        endpoint.output().say(
            || json!({ "entries": count, "first": first, "next": at, "file": out.to_string() }),
            || format!("{count} entries, positions {first} to {at}, in {out}"),
        );
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
    let to = range.1;
    endpoint.output().say(
        || json!({ "log": about["log"], "entries": count, "first": from, "next": to, "sound": true }),
        || format!("{count} entries of the log {}, positions {from} to {to}, sound", about["log"]),
    );
    if check {
        return Ok(());
    }
    let reader = open()?;
    endpoint
        .with_log(|log| async move { append_all(&log, name, reader, count, path, endpoint.output()).await })
}

async fn append_all(
    log: &Log,
    name: &str,
    mut reader: Reader<File>,
    count: u64,
    path: &Path,
    output: Output,
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
    output.say(|| json!({ "appended": done }), || format!("{done} entries appended"));
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
