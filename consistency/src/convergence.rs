//! Eventual convergence: once everything settled, all reads of a key agree, on a write that nothing overwrote.

use crate::history::{History, OpIndex, Symbol};
use crate::order::{NONE, Resolved};
use crate::terms::{Fate, Time};
use crate::verdict::Verdict;
use crate::witness::Witness;
use std::collections::BTreeMap;

/// Checks the reads invoked more than `settle_after` after the last answered or attempted write.
pub(crate) fn check(history: &History, resolved: &Resolved, settle_after: u64) -> Verdict {
    let mut quiet = Time(0);
    for operation in history.operations().iter().filter(|op| history.writes(op, false)) {
        let end = match operation.fate {
            Fate::Ok => operation.complete,
            // It may still land later; the recorder of the history chose the settling time with that in mind.
            Fate::Unknown => operation.invoke,
            Fate::Fail => continue,
        };
        quiet = quiet.max(end);
    }
    let from = Time(quiet.0.saturating_add(settle_after));
    let operation = |vertex: u32| &history.operations()[resolved.vertices[vertex as usize].at()];
    let mut settled: BTreeMap<Symbol, (u32, u32)> = BTreeMap::new();
    let mut any = false;
    for read in resolved.reads.iter().filter(|read| operation(read.vertex).invoke > from) {
        any = true;
        let (source, first) = *settled.entry(read.key).or_insert((read.source, read.vertex));
        if source != read.source {
            let ops = vec![resolved.vertices[first as usize], resolved.vertices[read.vertex as usize]];
            return violated(history, read.key, ops, "were read after everything settled, and differ");
        }
    }
    if !any {
        return Verdict::Undecided(format!(
            "no read was invoked after time {from}, when all writes had settled"
        ));
    }
    for (key, (source, reader)) in &settled {
        let reader = resolved.vertices[*reader as usize];
        if let Some(lost) = lost(history, resolved, *key, *source) {
            return violated(
                history,
                *key,
                vec![reader, lost],
                "were read and overwritten in turn, yet the older stayed",
            );
        }
    }
    Verdict::Holds
}

/// An acknowledged or observed write of `key` that the settled version misses: newer in the key's order, or in its process
/// after the write that stayed; or any at all when the key stayed unwritten.
fn lost(history: &History, resolved: &Resolved, key: Symbol, source: u32) -> Option<OpIndex> {
    let mut own = resolved.writes.iter().filter(|write| write.key == key && write.vertex != NONE);
    if source == NONE {
        return own.next().map(|write| write.op);
    }
    let stayed = &resolved.writes[source as usize];
    if resolved.tails.contains_key(&key) || stayed.next != NONE {
        let newer = if stayed.next == NONE { resolved.tails[&key][0] } else { stayed.next };
        return Some(resolved.writes[newer as usize].op);
    }
    let retained = &history.operations()[stayed.op.at()];
    own.find(|write| {
        let other = &history.operations()[write.op.at()];
        other.fate == Fate::Ok && other.process == retained.process && retained.complete < other.invoke
    })
    .map(|write| write.op)
}

fn violated(history: &History, key: Symbol, operations: Vec<OpIndex>, why: &str) -> Verdict {
    let names: Vec<String> = operations.iter().map(|op| format!("T{}", op.0)).collect();
    Verdict::Violated(Witness {
        summary: format!("replicas did not converge on {}", history.keys().value(key)),
        sentences: vec![format!("{}: {} {why}", history.keys().value(key), names.join(" and "))],
        operations,
        cycle: Vec::new(),
    })
}
