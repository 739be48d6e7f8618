//! Interval lines: one operation a line, with call and return. Porcupine's operations, and our own format.

use super::rows::{Row, Rows, as_of, level, timestamp};
use super::tree::Tree;
use super::{LoadOptions, known_fields};
use crate::terms::{Fate, Time};

/// Fields of an operation line; the second group is Porcupine's.
const FIELDS: &[&str] = &[
    "client",
    "process",
    "f",
    "key",
    "value",
    "output",
    "answer",
    "expected",
    "expected-version",
    "version",
    "zxid",
    "pos",
    "cs",
    "ts",
    "call",
    "return",
    "type",
    "service",
    "level",
    "at",
    "index",
    "ClientId",
    "Input",
    "Output",
    "Call",
    "Return",
    "Metadata",
];

const HEADER: &[&str] = &["ordinate", "format", "data", "pipelined", "initial", "level"];

/// Reads lines; remembers whether our own header and trailer were there.
#[derive(Default)]
pub(super) struct Reader {
    ours: bool,
    ended: bool,
}

impl Reader {
    pub(super) fn take(
        &mut self,
        tree: &Tree<'_>,
        line: u32,
        options: &LoadOptions,
        rows: &mut Rows,
    ) -> Result<(), String> {
        if self.ended {
            return Err("something follows the trailer".to_owned());
        }
        if tree.get("ordinate").is_some() {
            return self.header(tree, options, rows);
        }
        if let Some(end) = tree.get("end") {
            known_fields(tree, &["end"], options)?;
            self.ended = true;
            let count = rows.len() as i64;
            return match end.int() {
                Some(reported) if reported == count => Ok(()),
                reported => {
                    Err(format!("the trailer counts {} operations, {count} are here", reported.unwrap_or(-1)))
                }
            };
        }
        for (word, sent) in [("send", true), ("recv", false)] {
            if let Some(message) = tree.get(word) {
                known_fields(tree, &["send", "recv", "client", "process", "time"], options)?;
                let process = rows.process(
                    tree.get("client").or(tree.get("process")).ok_or("a message end without a client")?,
                )?;
                let at = time(tree.get("time").ok_or("a message end without a time")?)?;
                rows.message(process, at, message, sent, line);
                return Ok(());
            }
        }
        known_fields(tree, FIELDS, options)?;
        rows_take(tree, line, rows)
    }

    fn header(&mut self, tree: &Tree<'_>, options: &LoadOptions, rows: &mut Rows) -> Result<(), String> {
        known_fields(tree, HEADER, options)?;
        if self.ours || rows.len() > 0 {
            return Err("the header stands only on the first line".to_owned());
        }
        if tree.get("format") != Some(&Tree::Int(1)) {
            return Err("this format version is not known; 1 is".to_owned());
        }
        self.ours = true;
        if tree.get("pipelined") == Some(&Tree::Bool(true)) {
            rows.pipelined();
        }
        if let Some(named) = tree.get("level") {
            rows.default_level(level(named)?);
        }
        if let Some(initial) = tree.get("initial") {
            rows.initial(initial.value());
        }
        Ok(())
    }

    /// Our own files end with a trailer, or were truncated.
    pub(super) fn end(&self, options: &LoadOptions, count: usize) -> Result<(), String> {
        if self.ours && !self.ended && !options.lenient {
            return Err(format!("the trailer is missing after {count} operations: the file was truncated"));
        }
        Ok(())
    }
}

fn time(tree: &Tree<'_>) -> Result<Time, String> {
    let number = tree.int().and_then(|number| u64::try_from(number).ok());
    number.map(Time).ok_or_else(|| "a time is a whole number, 0 or more".to_owned())
}

fn rows_take(tree: &Tree<'_>, line: u32, rows: &mut Rows) -> Result<(), String> {
    let field = |names: [&str; 2]| names.into_iter().find_map(|name| tree.get(name));
    let client = field(["client", "process"]).or(tree.get("ClientId")).ok_or("client is missing")?;
    let process = rows.process(client)?;
    let invoke = time(field(["call", "Call"]).ok_or("call is missing")?)?;
    let complete = match field(["return", "Return"]) {
        None | Some(Tree::Nil) => None,
        Some(at) => Some(time(at)?),
    };
    let fate = match (tree.get("type").map(|kind| kind.word()), complete) {
        (None | Some(Some("ok")), Some(_)) => Fate::Ok,
        (None | Some(Some("info")), _) => Fate::Unknown,
        (Some(Some("fail")), _) => Fate::Fail,
        (Some(Some("ok")), None) => return Err("type ok without a return".to_owned()),
        (Some(other), _) => {
            return Err(format!("type {:?} is not known: ok, fail or info", other.unwrap_or("?")));
        }
    };
    let complete = match (fate, complete) {
        (Fate::Unknown, _) | (_, None) => Time::NEVER,
        (Fate::Ok | Fate::Fail, Some(at)) => at,
    };
    // Porcupine's Input and Output are whatever the model's author likes; these names are the usual ones.
    let input = |names: [&str; 3]| {
        tree.get("Input").and_then(|input| names.into_iter().find_map(|name| input.get(name)))
    };
    let inner_output =
        tree.get("Output").map(|output| output.get("value").or(output.get("Value")).unwrap_or(output));
    let f = tree.get("f").or(input(["op", "Op", "f"])).ok_or("f is missing")?;
    let f = match f {
        Tree::Int(0) => "get".to_owned(),
        Tree::Int(1) => "put".to_owned(),
        other => other.word().ok_or("f is a word")?.to_lowercase(),
    };
    let version = tree.get("version").or(tree.get("zxid")).or(tree.get("pos")).or(tree.get("cs"));
    let row = Row {
        line,
        process,
        invoke,
        complete,
        fate,
        f,
        key: tree.get("key").or(input(["key", "Key", "k"])),
        value: tree.get("value").or(input(["value", "Value", "v"])),
        output: tree.get("output").or(inner_output),
        answer: tree.get("answer"),
        expected: tree.get("expected"),
        expected_version: tree.get("expected-version"),
        timestamp: version.map(timestamp).transpose()?,
        committed: tree.get("ts").map(timestamp).transpose()?,
        service: tree.get("service"),
        level: tree.get("level").map(level).transpose()?,
        as_of: tree.get("at").map(as_of).transpose()?,
    };
    rows.take(&row)
}
