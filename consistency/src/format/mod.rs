//! Histories from files and to files (docs/checking.md, "Formats").
//!
//! Read: Jepsen's EDN, the same as JSON lines, interval lines (Porcupine's operations; our own format is these with
//! a header and a trailer), Porcupine's JSON array. Bad input is refused with its line and the reason.

mod edn;
mod intervals;
mod jepsen;
mod json;
mod rows;
mod tree;
mod write;

use crate::history::{History, HistoryError};
use crate::kv::KvHistory;
use crate::level::Level;
use crate::search::{Interval, LogCall, LogReply, QueueCall, QueueReply, ZnodeCall, ZnodeReply};
use crate::terms::Value;
use std::io::BufRead;
use thiserror::Error;
use tree::Tree;

pub use write::{write_edn, write_intervals, write_jepsen_json, write_porcupine};

/// Why a file is no history.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {reason}")]
pub struct LoadError {
    /// The line, 1 the first; in a file that is one big vector, the entry.
    pub line: u32,
    /// What is wrong there.
    pub reason: String,
}

impl LoadError {
    fn new(line: u32, reason: impl Into<String>) -> LoadError {
        LoadError { line, reason: reason.into() }
    }
}

impl From<HistoryError> for LoadError {
    fn from(error: HistoryError) -> LoadError {
        let text = error.to_string();
        // The message of a history error begins with its line already.
        let (line, reason) =
            text.strip_prefix("line ").and_then(|rest| rest.split_once(": ")).unwrap_or(("0", &text));
        LoadError::new(line.parse().unwrap_or(0), reason)
    }
}

/// How to read.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Ignore unknown fields, and a missing trailer.
    pub lenient: bool,
    /// What unwritten registers hold, besides nil.
    pub initial: Option<Value>,
    /// Processes may have several operations open.
    pub pipelined: bool,
    /// The level of reads that name none.
    pub level: Option<Level>,
}

/// A history from a file, by what it is about.
#[derive(Clone, Debug)]
pub enum Loaded {
    /// Registers, lists, transactions.
    Transactions(Box<History>),
    /// Keys with compare-and-set, deletes or increments.
    Kv(KvHistory),
    /// Queues, by name.
    Queues(Vec<(String, Interval<QueueCall, QueueReply>)>),
    /// Logs, by name.
    Logs(Vec<(String, Interval<LogCall, LogReply>)>),
    /// One tree of nodes.
    Znodes(Vec<Interval<ZnodeCall, ZnodeReply>>),
}

impl Loaded {
    /// How many operations it has.
    pub fn len(&self) -> usize {
        match self {
            Loaded::Transactions(history) => history.operations().len(),
            Loaded::Kv(history) => history.len(),
            Loaded::Queues(ops) => ops.len(),
            Loaded::Logs(ops) => ops.len(),
            Loaded::Znodes(ops) => ops.len(),
        }
    }

    /// True when nothing was in the file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which format the lines of a file are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lines {
    Edn,
    JepsenJson,
    Intervals,
}

/// Reads a whole history. `progress` receives the bytes read so far, now and then; false stops with an error.
pub fn load(
    mut reader: impl BufRead,
    options: &LoadOptions,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Loaded, LoadError> {
    let mut rows = rows::Rows::new(options);
    let mut jepsen = jepsen::Events::default();
    let mut intervals = intervals::Reader::default();
    let mut lines: Option<Lines> = None;
    let mut text = String::new();
    let (mut number, mut bytes) = (0u32, 0u64);
    loop {
        text.clear();
        let read =
            reader.read_line(&mut text).map_err(|error| LoadError::new(number + 1, error.to_string()))?;
        if read == 0 {
            break;
        }
        number += 1;
        bytes += read as u64;
        if number.is_multiple_of(8192) && !progress(bytes) {
            return Err(LoadError::new(number, "stopped"));
        }
        let line = text.trim();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        if lines.is_none() && line.starts_with('[') {
            return load_vector(line.to_owned(), reader, options);
        }
        let known = match lines {
            Some(known) => known,
            None => detect(line).map_err(|reason| LoadError::new(number, reason))?,
        };
        lines = Some(known);
        let tree = match known {
            Lines::Edn => edn::parse(line),
            Lines::JepsenJson | Lines::Intervals => json::parse(line),
        };
        let tree = tree.map_err(|reason| LoadError::new(number, reason))?;
        let taken = match known {
            Lines::Edn | Lines::JepsenJson => {
                jepsen.take(&tree, line, known == Lines::Edn, number, options, &mut rows)
            }
            Lines::Intervals => intervals.take(&tree, number, options, &mut rows),
        };
        taken.map_err(|reason| LoadError::new(number, reason))?;
    }
    if lines.is_none() {
        return Err(LoadError::new(number.max(1), "the file is empty"));
    }
    intervals.end(options, rows.len()).map_err(|reason| LoadError::new(number, reason))?;
    jepsen.end(options, &mut rows)?;
    rows.finish()
}

/// A file that is one vector: EDN events, or Porcupine's JSON array.
fn load_vector(
    mut text: String,
    mut reader: impl BufRead,
    options: &LoadOptions,
) -> Result<Loaded, LoadError> {
    reader.read_to_string(&mut text).map_err(|error| LoadError::new(1, error.to_string()))?;
    let is_edn = !text[1..].trim_start().starts_with("{\"");
    let tree = if is_edn { edn::parse(&text) } else { json::parse(&text) };
    let tree = tree.map_err(|reason| LoadError::new(1, reason))?;
    let mut rows = rows::Rows::new(options);
    let mut jepsen = jepsen::Events::default();
    let mut intervals = intervals::Reader::default();
    for (index, entry) in tree.seq().unwrap_or(&[]).iter().enumerate() {
        let number = index as u32 + 1;
        let event = is_edn || entry.get("process").is_some() && entry.get("call").is_none();
        let taken = if event {
            jepsen.take_retained(entry, number, options, &mut rows)
        } else {
            intervals.take(entry, number, options, &mut rows)
        };
        taken.map_err(|reason| LoadError::new(number, reason))?;
    }
    jepsen.end(options, &mut rows)?;
    rows.finish()
}

fn detect(line: &str) -> Result<Lines, String> {
    if !line.starts_with('{') {
        return Err("neither JSON lines, nor EDN, nor a vector of either".to_owned());
    }
    if !line[1..].trim_start().starts_with('"') {
        return Ok(Lines::Edn);
    }
    let tree = json::parse(line)?;
    let event = tree.get("process").is_some() && tree.get("call").is_none() && tree.get("f").is_some();
    Ok(if event && tree.get("type").is_some() { Lines::JepsenJson } else { Lines::Intervals })
}

/// Refuses fields that nobody knows, and says which one was probably meant.
fn known_fields(tree: &Tree<'_>, known: &[&str], options: &LoadOptions) -> Result<(), String> {
    let Tree::Map(entries) = tree else { return Err("a map with fields is wanted".to_owned()) };
    if options.lenient {
        return Ok(());
    }
    for (name, _) in entries {
        let name = name.word().unwrap_or("");
        if !known.contains(&name) {
            let near =
                known.iter().min_by_key(|candidate| strsim::levenshtein(name, candidate)).unwrap_or(&"");
            return Err(format!("unknown field {name:?} (did you mean {near:?}?); --lenient ignores it"));
        }
    }
    Ok(())
}
