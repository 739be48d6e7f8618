//! Cycles in plain sentences: one per edge, with the data or the two times that force it.

use crate::anomaly::name;
use crate::graph::Step;
use crate::history::{AccessKind, History, OpIndex, Symbol, Timestamp};
use crate::level::Level;
use crate::model::EdgeKind;
use crate::order::{NONE, Resolved};

/// Why one operation must come before another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The earlier one.
    pub before: OpIndex,
    /// The later one.
    pub after: OpIndex,
    /// What kind of edge says so.
    pub kind: EdgeKind,
    /// Why, in words.
    pub sentence: String,
}

/// The sentences of a cycle.
pub(crate) fn reasons(history: &History, resolved: &Resolved, steps: &[Step]) -> Vec<Reason> {
    steps.iter().map(|step| reason(history, resolved, step)).collect()
}

fn reason(history: &History, resolved: &Resolved, step: &Step) -> Reason {
    let (before, after) = (resolved.vertices[step.from as usize], resolved.vertices[step.to as usize]);
    let (a, b) = (format!("T{}", before.0), format!("T{}", after.0));
    let clause = match step.last {
        EdgeKind::WriteRead => wrote_and_read(history, resolved, step, &a, &b),
        EdgeKind::WriteWrite => overwrote(history, resolved, step, &a, &b),
        EdgeKind::ReadWrite if step.first == EdgeKind::WriteWrite => {
            format!(
                "{a}'s append is in the longest list read, and {b}'s is in no list read, so it came later"
            )
        }
        EdgeKind::ReadWrite => read_before(history, resolved, step, &a, &b),
        EdgeKind::SessionOrder => {
            format!("{} ran {a} and then {b}", history.operations()[before.at()].process)
        }
        EdgeKind::Message => format!(
            "{a} had answered when its process sent a message that reached {b}'s process before {b} was invoked"
        ),
        EdgeKind::AnyAnswered | EdgeKind::AnyBeforeRead => {
            answered(history, before, after, "real time", &a, &b)
        }
        EdgeKind::AnyBeforeWrite => answered(history, before, after, "real time, a write follows", &a, &b),
        EdgeKind::WriteAnswered | EdgeKind::WriteBeforeWrite => {
            answered(history, before, after, "real time between writes", &a, &b)
        }
        EdgeKind::WriteBeforeRead => answered(history, before, after, "real time after a write", &a, &b),
        EdgeKind::KeyAnswered | EdgeKind::KeyBeforeRead => {
            answered(history, before, after, "real time, a write and a read of one key", &a, &b)
        }
        EdgeKind::FenceAnswered | EdgeKind::FenceBefore => {
            let service = history.services().value(history.operations()[before.at()].service);
            answered(history, before, after, &format!("a fence of service {service}"), &a, &b)
        }
        EdgeKind::AsOf => as_of(history, resolved, step, &a, &b),
    };
    let sentence = format!("{a} < {b}: {clause}");
    Reason { before, after, kind: step.last, sentence }
}

fn answered(history: &History, before: OpIndex, after: OpIndex, why: &str, a: &str, b: &str) -> String {
    let complete = history.operations()[before.at()].complete;
    let invoke = history.operations()[after.at()].invoke;
    let gap = invoke.0.saturating_sub(complete.0);
    format!("{a} answered at {complete}, {gap} before {b} was invoked at {invoke} ({why})")
}

/// One of the two read as of a timestamp, the other wrote one of its keys.
fn as_of(history: &History, resolved: &Resolved, step: &Step, a: &str, b: &str) -> String {
    let write_by = |writer: u32, reader: u32| {
        let operation = &history.operations()[resolved.vertices[reader as usize].at()];
        let at = operation.as_of?;
        let read = |key: Symbol| history.accesses(operation).iter().any(|access| access.key == key);
        let slot = resolved.writes.iter().position(|write| {
            let is_shown = write.timestamp.map(|timestamp| timestamp <= Timestamp::version(at.0));
            write.vertex == writer && read(write.key) && is_shown == Some(reader == step.to)
        })?;
        let written = resolved.writes[slot].timestamp?.0[0];
        Some((values(history, resolved.writes[slot].key, slot as u32, resolved), written, at))
    };
    if let Some((wrote, written, at)) = write_by(step.from, step.to) {
        return format!("{b} read as of {at}, and {a} wrote {wrote} at {written}, which it must see");
    }
    match write_by(step.to, step.from) {
        Some((wrote, written, at)) => {
            format!("{a} read as of {at}, and {b} wrote {wrote} at {written}, which it must not see")
        }
        None => format!("one of {a} and {b} read as of a timestamp, the other wrote"),
    }
}

fn values(history: &History, key: Symbol, slot: u32, resolved: &Resolved) -> String {
    let key = history.keys().value(key);
    match slot {
        NONE => format!("{key} in its initial state"),
        slot => {
            let write = &resolved.writes[slot as usize];
            let list = history
                .accesses(&history.operations()[write.op.at()])
                .iter()
                .any(|access| access.key == write.key && matches!(access.kind, AccessKind::Append(_)));
            let value = history.values().value(write.value);
            if list { format!("{key} up to element {value}") } else { format!("{key} = {value}") }
        }
    }
}

fn wrote_and_read(history: &History, resolved: &Resolved, step: &Step, a: &str, b: &str) -> String {
    let read = resolved.reads.iter().find(|read| {
        read.vertex == step.to
            && read.source != NONE
            && resolved.writes[read.source as usize].vertex == step.from
    });
    match read {
        Some(read) => {
            format!("{b} read {}, which {a} wrote", values(history, read.key, read.source, resolved))
        }
        None => format!("{b} read what {a} wrote"),
    }
}

fn overwrote(history: &History, resolved: &Resolved, step: &Step, a: &str, b: &str) -> String {
    let link = resolved.writes.iter().position(|write| {
        write.vertex == step.from
            && write.next != NONE
            && resolved.writes[write.next as usize].vertex == step.to
    });
    match link {
        Some(slot) => {
            let write = &resolved.writes[slot];
            let (old, new) = (
                values(history, write.key, slot as u32, resolved),
                values(history, write.key, write.next, resolved),
            );
            format!("{a} wrote {old}, and {b} wrote the next version, {new}")
        }
        None => format!(
            "both wrote one key, and in the other order a read that must come between would be wrong ({a}, {b})"
        ),
    }
}

fn read_before(history: &History, resolved: &Resolved, step: &Step, a: &str, b: &str) -> String {
    let own = |vertex: u32, key: Symbol| {
        resolved.writes.iter().position(|write| write.vertex == vertex && write.key == key)
    };
    let reads = resolved.reads.iter().filter(|read| read.vertex == step.from);
    for read in reads {
        if let Some(slot) = own(step.to, read.key) {
            let saw = values(history, read.key, read.source, resolved);
            let wrote = values(history, read.key, slot as u32, resolved);
            return format!("{a} read {saw}, and {b} wrote {wrote} over it");
        }
    }
    format!("{a} read what {b} overwrote")
}

/// The operations of a witness, each with its accesses, for the reader to look at.
pub fn operation_line(history: &History, op: OpIndex) -> String {
    let operation = &history.operations()[op.at()];
    let mut parts: Vec<String> = Vec::new();
    if operation.fence {
        parts.push(format!("fence {}", history.services().value(operation.service)));
    }
    for access in history.accesses(operation) {
        let key = history.keys().value(access.key);
        parts.push(match &access.kind {
            AccessKind::Read(value) => format!("read {key} = {}", history.values().value(*value)),
            AccessKind::Write(value) => format!("write {key} = {}", history.values().value(*value)),
            AccessKind::Append(value) => format!("append {} to {key}", history.values().value(*value)),
            AccessKind::ReadList(range) => format!("read {key} = {}", list(history, history.elements(range))),
        });
    }
    let level = match (operation.level, operation.as_of) {
        (Level::Rss, None) if operation.fence => String::new(),
        (Level::Strict, None) => String::new(),
        (level, None) => format!(" [{level}]"),
        (level, Some(at)) => format!(" [{level}, as of {at}]"),
    };
    format!("{}: {}{level}", name(history, op), parts.join(", "))
}

fn list(history: &History, elements: &[Symbol]) -> String {
    const SHOWN_MAX: usize = 8;
    let from = elements.len().saturating_sub(SHOWN_MAX);
    let shown: Vec<String> =
        elements[from..].iter().map(|element| history.values().value(*element).to_string()).collect();
    format!("[{}{}]", if from > 0 { "... " } else { "" }, shown.join(" "))
}
