//! Histories of transactions to files that others read.

use super::tree::Tree;
use crate::history::{Access, AccessKind, History, Operation};
use crate::json::quoted;
use crate::level::Level;
use crate::terms::{Fate, Time, Value};
use std::io::{self, Write};

fn json(value: &Value) -> String {
    match value {
        Value::Nil => "null".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => quoted(text),
    }
}

fn edn(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => quoted(text),
    }
}

/// Micro-operations; the separator distinguishes JSON from EDN. `answered` false leaves out what reads saw.
fn micro(history: &History, operation: &Operation, is_edn: bool, answered: bool) -> String {
    let show = if is_edn { edn } else { json };
    let comma = if is_edn { " " } else { "," };
    let part = |access: &Access| {
        let (name, value) = match &access.kind {
            AccessKind::Read(value) if answered => ("r", show(history.values().value(*value))),
            AccessKind::Write(value) => ("w", show(history.values().value(*value))),
            AccessKind::Append(value) => ("append", show(history.values().value(*value))),
            AccessKind::ReadList(range) if answered => {
                let list: Vec<String> = history
                    .elements(range)
                    .iter()
                    .map(|element| show(history.values().value(*element)))
                    .collect();
                ("r", format!("[{}]", list.join(comma)))
            }
            AccessKind::Read(_) | AccessKind::ReadList(_) => ("r", show(&Value::Nil)),
        };
        let name = if is_edn { format!(":{name}") } else { quoted(name) };
        let key = show(history.keys().value(access.key));
        let timestamp =
            access.timestamp.filter(|_| answered).map_or(String::new(), |timestamp| match timestamp.0 {
                [version, 0, 0] => format!("{comma}{version}"),
                [a, b, c] => format!("{comma}[{a}{comma}{b}{comma}{c}]"),
            });
        format!("[{name}{comma}{key}{comma}{value}{timestamp}]")
    };
    let parts: Vec<String> = history.accesses(operation).iter().map(part).collect();
    format!("[{}]", parts.join(comma))
}

/// What an operation says of its level, by field; nothing where it is strict.
fn levels(operation: &Operation) -> Vec<(&'static str, String)> {
    let usual = if operation.fence { Level::Rss } else { Level::Strict };
    let level = Some(operation.level).filter(|level| *level != usual);
    let named = level.map(|level| ("level", quoted(level.word())));
    named.into_iter().chain(operation.as_of.map(|at| ("at", at.to_string()))).collect()
}

/// Our own JSON lines: a header, one operation or message end a line, a trailer.
pub fn write_intervals<W: Write>(history: &History, out: &mut W) -> io::Result<()> {
    let pipelined = if history.is_pipelined() { ",\"pipelined\":true" } else { "" };
    let initial = history.initial().map_or(String::new(), |value| format!(",\"initial\":{}", json(value)));
    writeln!(out, "{{\"ordinate\":\"history\",\"format\":1,\"data\":\"transactions\"{pipelined}{initial}}}")?;
    for operation in history.operations() {
        let (f, value) = match operation.fence {
            true => ("fence", "null".to_owned()),
            false => ("txn", micro(history, operation, false, operation.fate == Fate::Ok)),
        };
        let service = match history.services().value(operation.service) {
            Value::Nil => String::new(),
            service => format!(",\"service\":{}", json(service)),
        };
        let end = match operation.fate {
            Fate::Unknown => String::new(),
            Fate::Ok | Fate::Fail => format!(",\"return\":{}", operation.complete),
        };
        let level: String =
            levels(operation).iter().map(|(field, text)| format!(",\"{field}\":{text}")).collect();
        writeln!(
            out,
            "{{\"client\":{},\"f\":\"{f}\",\"value\":{value}{service}{level},\"call\":{}{end},\"type\":\"{}\"}}",
            operation.process.0,
            operation.invoke,
            operation.fate.word(),
        )?;
    }
    for event in history.messages() {
        let word = if event.sent { "send" } else { "recv" };
        let name = json(history.message_names().value(event.message));
        writeln!(out, "{{\"{word}\":{name},\"client\":{},\"time\":{}}}", event.process.0, event.at)?;
    }
    writeln!(out, "{{\"end\":{}}}", history.operations().len())
}

/// One event of Jepsen's: (time, completions before invocations, operation, message).
fn events(history: &History) -> Vec<(Time, bool, usize, bool)> {
    let mut events = Vec::new();
    for (index, operation) in history.operations().iter().enumerate() {
        events.push((operation.invoke, true, index, false));
        if operation.fate != Fate::Unknown {
            events.push((operation.complete, false, index, false));
        }
    }
    for (index, event) in history.messages().iter().enumerate() {
        events.push((event.at, event.sent, index, true));
    }
    events.sort_unstable();
    // An operation that answers at the time it was invoked must still be invoked first.
    let mut invoked = vec![false; history.operations().len()];
    let mut ordered: Vec<(Time, bool, usize, bool)> = Vec::with_capacity(events.len());
    let mut early: Vec<usize> = Vec::new();
    for event in events {
        let (at, invokes, index, message) = event;
        if !message && !invokes && !invoked[index] {
            early.push(index);
            continue;
        }
        ordered.push(event);
        if !message && invokes {
            invoked[index] = true;
            if let Some(at_early) = early.iter().position(|known| *known == index) {
                early.swap_remove(at_early);
                ordered.push((at, false, index, false));
            }
        }
    }
    ordered
}

fn jepsen<W: Write>(history: &History, out: &mut W, is_edn: bool) -> io::Result<()> {
    let name = |word: &str| if is_edn { format!(":{word}") } else { format!("{}:", quoted(word)) };
    let word = |word: &str| if is_edn { format!(":{word}") } else { quoted(word) };
    let comma = if is_edn { ", " } else { "," };
    let gap = if is_edn { " " } else { "" };
    for (index, (at, first, which, message)) in events(history).into_iter().enumerate() {
        let mut fields: Vec<(&str, String)> = vec![("index", index.to_string()), ("time", at.to_string())];
        if message {
            let event = &history.messages()[which];
            let show = if is_edn { edn } else { json };
            fields.push(("process", event.process.0.to_string()));
            fields.push(("type", word(if event.sent { "send" } else { "recv" })));
            fields.push(("msg", show(history.message_names().value(event.message))));
        } else {
            let operation = &history.operations()[which];
            let kind = if first { "invoke" } else { operation.fate.word() };
            let answered = !first && operation.fate == Fate::Ok;
            fields.push(("process", operation.process.0.to_string()));
            fields.push(("type", word(kind)));
            fields.push(("f", word(if operation.fence { "fence" } else { "txn" })));
            fields.push(("value", micro(history, operation, is_edn, answered)));
            let service = history.services().value(operation.service);
            if *service != Value::Nil {
                fields.push(("service", if is_edn { edn(service) } else { json(service) }));
            }
            fields.extend(levels(operation));
        }
        let fields: Vec<String> =
            fields.iter().map(|(field, text)| format!("{}{gap}{text}", name(field))).collect();
        writeln!(out, "{{{}}}", fields.join(comma))?;
    }
    Ok(())
}

/// Jepsen's `history.edn`.
pub fn write_edn<W: Write>(history: &History, out: &mut W) -> io::Result<()> {
    jepsen(history, out, true)
}

/// Jepsen's events as JSON lines.
pub fn write_jepsen_json<W: Write>(history: &History, out: &mut W) -> io::Result<()> {
    jepsen(history, out, false)
}

/// A JSON array of Porcupine's `Operation`; single reads and writes only. Operations of unknown fate return after
/// everything else, failed ones are left out. False when some operation is no single read or write.
pub fn write_porcupine<W: Write>(history: &History, out: &mut W) -> io::Result<bool> {
    let ends = history.operations().iter().filter(|operation| operation.fate == Fate::Ok);
    let after = ends.map(|operation| operation.complete.0).max().unwrap_or(0).saturating_add(1);
    let mut lines = Vec::new();
    for operation in history.operations().iter().filter(|operation| operation.fate != Fate::Fail) {
        let [access] = history.accesses(operation) else { return Ok(false) };
        let (op, value) = match &access.kind {
            AccessKind::Read(value) => ("get", value),
            AccessKind::Write(value) => ("put", value),
            AccessKind::Append(_) | AccessKind::ReadList(_) => return Ok(false),
        };
        if operation.fate == Fate::Unknown && op == "get" {
            continue;
        }
        let (key, value) = (json(history.keys().value(access.key)), json(history.values().value(*value)));
        let complete = if operation.fate == Fate::Unknown { after } else { operation.complete.0 };
        let (input, output) =
            if op == "get" { ("null".to_owned(), value) } else { (value, "null".to_owned()) };
        lines.push(format!(
            "{{\"ClientId\":{},\"Input\":{{\"op\":\"{op}\",\"key\":{key},\"value\":{input}}},\"Call\":{},\
             \"Output\":{output},\"Return\":{complete}}}",
            operation.process.0, operation.invoke,
        ));
    }
    writeln!(out, "[{}]", lines.join(",\n"))?;
    Ok(true)
}

/// A parsed value as EDN again.
pub(super) fn edn_text(tree: &Tree<'_>) -> String {
    let join = |items: &[Tree<'_>]| items.iter().map(edn_text).collect::<Vec<_>>().join(" ");
    match tree {
        Tree::Nil => "nil".to_owned(),
        Tree::Bool(truth) => truth.to_string(),
        Tree::Int(number) => number.to_string(),
        Tree::Number(text) => (*text).to_owned(),
        Tree::Text(text) => quoted(text),
        Tree::Keyword(word) => format!(":{word}"),
        Tree::Seq(items) => format!("[{}]", join(items)),
        Tree::Map(entries) => {
            let parts: Vec<String> =
                entries.iter().map(|(key, value)| format!("{} {}", edn_text(key), edn_text(value))).collect();
            format!("{{{}}}", parts.join(", "))
        }
    }
}
