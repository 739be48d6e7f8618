//! Jepsen's events: an invocation and a completion, as EDN maps or JSON objects.

use super::rows::{Row, Rows, as_of, level, timestamp};
use super::tree::Tree;
use super::{LoadError, LoadOptions, edn, json, known_fields};
use crate::terms::{Fate, Process, Time};
use std::collections::BTreeMap;

/// Fields that Jepsen's own tests write, and ours.
const FIELDS: &[&str] = &[
    "index",
    "time",
    "process",
    "type",
    "f",
    "value",
    "error",
    "exception",
    "node",
    "debug",
    "link",
    "clock-offsets",
    "ts",
    "cs",
    "version",
    "zxid",
    "pos",
    "position",
    "service",
    "level",
    "at",
    "msg",
    "final?",
    "sub-via",
];

/// Invocations without their completion yet.
#[derive(Default)]
pub(super) struct Events {
    open: BTreeMap<Process, Open>,
    /// Times are the `time` field in the whole file, or the order of lines in the whole file.
    timed: Option<bool>,
    sequence: u64,
}

/// An invocation, retained as text: only operations that fail or vanish are looked at twice.
struct Open {
    line: u32,
    at: Time,
    text: String,
    is_edn: bool,
}

impl Events {
    /// Takes one event of a file that is a vector.
    pub(super) fn take_retained(
        &mut self,
        tree: &Tree<'_>,
        line: u32,
        options: &LoadOptions,
        rows: &mut Rows,
    ) -> Result<(), String> {
        let text = super::write::edn_text(tree);
        self.take(tree, &text, true, line, options, rows)
    }

    pub(super) fn take(
        &mut self,
        tree: &Tree<'_>,
        text: &str,
        is_edn: bool,
        line: u32,
        options: &LoadOptions,
        rows: &mut Rows,
    ) -> Result<(), String> {
        let process = tree.get("process").ok_or("process is missing")?;
        if !matches!(process, Tree::Int(_)) {
            // The nemesis and its like do nothing to the data.
            return Ok(());
        }
        known_fields(tree, FIELDS, options)?;
        let process = rows.process(process)?;
        let kind = tree.get("type").and_then(Tree::word).ok_or("type is missing")?;
        self.sequence += 1;
        let at = self.time(tree)?;
        match kind {
            "send" | "recv" => {
                rows.message(
                    process,
                    at,
                    tree.get("msg").ok_or("a message end without msg")?,
                    kind == "send",
                    line,
                );
                return Ok(());
            }
            "invoke" => {
                let open = Open { line, at, text: text.to_owned(), is_edn };
                return match self.open.insert(process, open) {
                    None => Ok(()),
                    Some(other) => {
                        Err(format!("{process} invokes while its operation of line {} is open", other.line))
                    }
                };
            }
            "ok" | "fail" | "info" => {}
            other => {
                return Err(format!("type {other:?} is not known: invoke, ok, fail, info, send or recv"));
            }
        }
        let Some(open) = self.open.remove(&process) else {
            return Err(format!("{process} completes an operation that it never invoked"));
        };
        if at < open.at {
            return Err(format!(
                "it completes at {at}, before its invocation at {} on line {}",
                open.at, open.line
            ));
        }
        match kind {
            "ok" => complete(tree, &open, process, Fate::Ok, at, rows),
            "fail" => open.again(|tree| complete(tree, &open, process, Fate::Fail, at, rows)),
            _ => open.again(|tree| complete(tree, &open, process, Fate::Unknown, Time::NEVER, rows)),
        }
    }

    fn time(&mut self, tree: &Tree<'_>) -> Result<Time, String> {
        let reported = tree.get("time").filter(|time| **time != Tree::Nil);
        let timed = *self.timed.get_or_insert(reported.is_some());
        match (timed, reported) {
            (true, Some(time)) => time
                .int()
                .and_then(|time| u64::try_from(time).ok())
                .map(Time)
                .ok_or_else(|| "time is a whole number of nanoseconds, 0 or more".to_owned()),
            (true, None) => Err("time is missing, though earlier events have it".to_owned()),
            (false, _) => Ok(Time(self.sequence)),
        }
    }

    /// What is still open at the end has an unknown fate.
    pub(super) fn end(self, _: &LoadOptions, rows: &mut Rows) -> Result<(), LoadError> {
        for (process, open) in self.open {
            open.again(|tree| complete(tree, &open, process, Fate::Unknown, Time::NEVER, rows))
                .map_err(|reason| LoadError::new(open.line, reason))?;
        }
        Ok(())
    }
}

impl Open {
    fn again(&self, then: impl FnOnce(&Tree<'_>) -> Result<(), String>) -> Result<(), String> {
        let tree = if self.is_edn { edn::parse(&self.text)? } else { json::parse(&self.text)? };
        then(&tree)
    }
}

fn complete(
    tree: &Tree<'_>,
    open: &Open,
    process: Process,
    fate: Fate,
    complete: Time,
    rows: &mut Rows,
) -> Result<(), String> {
    let f = tree.get("f").and_then(Tree::word).ok_or("f is missing")?.to_owned();
    let mut value = tree.get("value");
    let mut key = None;
    // jepsen.independent wraps single accesses as [key value].
    let access = matches!(&*f, "read" | "write" | "cas");
    let pair = value.and_then(Tree::seq).filter(|pair| pair.len() == 2);
    if let (true, Some([first, second])) = (access, pair)
        && (f != "cas" || second.seq().is_some())
    {
        (key, value) = (Some(first), Some(second));
    }
    let mut expected = None;
    if let ("cas", Some([old, new])) = (&*f, value.and_then(Tree::seq)) {
        (expected, value) = (Some(old), Some(new));
    }
    let version = ["version", "zxid", "pos", "position", "cs"].into_iter().find_map(|name| tree.get(name));
    let row = Row {
        line: open.line,
        process,
        invoke: open.at,
        complete,
        fate,
        f,
        key,
        value,
        output: None,
        answer: None,
        expected,
        expected_version: None,
        timestamp: version.map(timestamp).transpose()?,
        committed: tree.get("ts").map(timestamp).transpose()?,
        service: tree.get("service"),
        level: tree.get("level").map(level).transpose()?,
        as_of: tree.get("at").map(as_of).transpose()?,
    };
    rows.take(&row)
}
