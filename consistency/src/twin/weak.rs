//! The models without one total order, straight from their definitions.

use super::brute::{World, end_of_writes};
use crate::history::{AccessKind, History, Symbol, Timestamp};
use crate::{Fate, Model};
use std::collections::BTreeMap;

/// External reads of an operation: the first access of a key, if it is a read.
fn external(history: &History, op: usize) -> Vec<(Symbol, Symbol)> {
    let mut touched: Vec<Symbol> = Vec::new();
    let mut reads = Vec::new();
    for access in history.accesses(&history.operations()[op]) {
        if let (AccessKind::Read(value), false) = (&access.kind, touched.contains(&access.key)) {
            reads.push((access.key, *value));
        }
        touched.push(access.key);
    }
    reads
}

fn last_written(history: &History, op: usize, key: Symbol) -> Option<Symbol> {
    let accesses = history.accesses(&history.operations()[op]).iter().rev();
    accesses
        .filter_map(|access| match access.kind {
            AccessKind::Write(value) if access.key == key => Some(value),
            _ => None,
        })
        .next()
}

/// Whether every order in `orders` of the causal past of some operation explains its reads.
fn explained(history: &History, op: usize, past_in_order: &[usize]) -> bool {
    external(history, op).iter().all(|(key, value)| {
        let last = past_in_order.iter().rev().find_map(|other| last_written(history, *other, *key));
        last.map_or(history.is_initial(*value), |last| last == *value)
    })
}

/// CC (convergent false; single accesses only) or CCv by enumeration.
pub(super) fn causal(history: &History, convergent: bool) -> bool {
    let world = World::of(history);
    let order = world.causal(|_| true);
    let count = history.operations().len();
    if (0..count).any(|op| order[op][op])
        || (0..count).any(|a| (0..count).any(|b| order[a][b] && order[b][a]))
    {
        return false;
    }
    let retained: Vec<usize> = (0..count).filter(|op| history.operations()[*op].fate != Fate::Fail).collect();
    let reads: Vec<usize> =
        retained.iter().copied().filter(|op| history.operations()[*op].fate == Fate::Ok).collect();
    if convergent {
        return arrangements(&order, &retained, &mut Vec::new(), &mut |whole| {
            reads.iter().all(|op| {
                let past: Vec<usize> = whole.iter().copied().filter(|other| order[*other][*op]).collect();
                explained(history, *op, &past)
            })
        });
    }
    reads.iter().all(|op| {
        let past: Vec<usize> = retained.iter().copied().filter(|other| order[*other][*op]).collect();
        arrangements(&order, &past, &mut Vec::new(), &mut |whole| explained(history, *op, whole))
    })
}

/// Whether some order of `rest` that respects `before` satisfies `test`.
fn arrangements(
    before: &[Vec<bool>],
    rest: &[usize],
    placed: &mut Vec<usize>,
    test: &mut dyn FnMut(&[usize]) -> bool,
) -> bool {
    if rest.is_empty() {
        return test(placed);
    }
    for op in rest {
        if rest.iter().any(|other| before[*other][*op]) {
            continue;
        }
        let others: Vec<usize> = rest.iter().copied().filter(|other| other != op).collect();
        placed.push(*op);
        let found = arrangements(before, &others, placed, test);
        placed.pop();
        if found {
            return true;
        }
    }
    false
}

/// Known timestamps of writes, 0 for the initial version.
fn ranks(history: &History) -> BTreeMap<(Symbol, Symbol), Timestamp> {
    let mut ranks = BTreeMap::new();
    for op in history.operations().iter().filter(|op| op.fate == Fate::Ok) {
        for access in history.accesses(op) {
            if let (AccessKind::Read(value) | AccessKind::Write(value), Some(timestamp)) =
                (&access.kind, access.timestamp)
            {
                ranks.insert((access.key, *value), timestamp);
            }
        }
    }
    ranks
}

/// Whether an answered operation read a write of another.
fn saw(history: &History, world: &World<'_>, reader: usize, writer: usize) -> bool {
    history.operations()[reader].fate == Fate::Ok
        && external(history, reader)
            .iter()
            .any(|(key, value)| world.writer.get(&(*key, *value)) == Some(&writer))
}

/// A session guarantee by comparing every pair (and, for the last two, every triple) of operations.
pub(super) fn session(history: &History, model: Model) -> bool {
    let world = World::of(history);
    let ranks = ranks(history);
    // A version that nobody reported is the only write of its key, else the history would not be asked about.
    let rank = |key: Symbol, value: Symbol| {
        let unknown = Timestamp::version(u64::from(!history.is_initial(value)));
        ranks.get(&(key, value)).copied().unwrap_or(unknown)
    };
    let count = history.operations().len();
    let ok = |op: usize| history.operations()[op].fate == Fate::Ok;
    let read = |op: usize| -> Vec<(Symbol, Timestamp)> {
        if !ok(op) {
            return Vec::new();
        }
        external(history, op).iter().map(|(key, value)| (*key, rank(*key, *value))).collect()
    };
    let observed = |op: usize| ok(op) || (0..count).any(|reader| saw(history, &world, reader, op));
    let wrote = |op: usize| -> Vec<(Symbol, Timestamp)> {
        if !observed(op) || history.operations()[op].fate == Fate::Fail {
            return Vec::new();
        }
        let mut keys: Vec<Symbol> =
            history.accesses(&history.operations()[op]).iter().map(|access| access.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
            .filter_map(|key| last_written(history, op, key).map(|value| (key, rank(key, value))))
            .collect()
    };
    let older = |bound: &[(Symbol, Timestamp)], seen: &[(Symbol, Timestamp)]| {
        bound
            .iter()
            .any(|(key, least)| seen.iter().any(|(other, timestamp)| key == other && timestamp < least))
    };
    let later = |a: usize, b: usize| a == b || world.session(a, b);
    for a in 0..count {
        for b in 0..count {
            let bad = match model {
                Model::ReadYourWrites => world.session(a, b) && older(&wrote(a), &read(b)),
                Model::MonotonicReads => world.session(a, b) && older(&read(a), &read(b)),
                Model::MonotonicWrites => world.session(a, b) && older(&wrote(a), &wrote(b)),
                _ => later(a, b) && older(&read(a), &wrote(b)),
            };
            // a then b in one session; a reader that saw b and then, there or later, reads what a bounds.
            let through = |bound: &[(Symbol, Timestamp)]| {
                (0..count).any(|first| {
                    first != b
                        && saw(history, &world, first, b)
                        && (0..count).any(|second| later(first, second) && older(bound, &read(second)))
                })
            };
            let bad = bad
                || match model {
                    Model::MonotonicWrites => later(a, b) && through(&wrote(a)),
                    Model::WritesFollowReads => world.session(a, b) && through(&read(a)),
                    _ => false,
                };
            if bad {
                return false;
            }
        }
    }
    true
}

/// Convergence of timestamped registers; nothing when no read came after the writes settled.
pub(super) fn eventual(history: &History) -> Option<bool> {
    let ranks = ranks(history);
    let quiet = end_of_writes(history);
    let mut seen: BTreeMap<Symbol, Vec<Symbol>> = BTreeMap::new();
    for (index, op) in history.operations().iter().enumerate() {
        if op.fate == Fate::Ok && op.invoke > quiet {
            for (key, value) in external(history, index) {
                seen.entry(key).or_default().push(value);
            }
        }
    }
    if seen.is_empty() {
        return None;
    }
    Some(seen.iter().all(|(key, values)| {
        let agreed = values.iter().all(|value| *value == values[0]);
        let newest =
            ranks.iter().filter(|((other, _), _)| other == key).map(|(_, timestamp)| *timestamp).max();
        let own = ranks.get(&(*key, values[0])).copied();
        let writer = World::of(history).writer.get(&(*key, values[0])).copied();
        let outlived = writer.is_some_and(|writer| {
            (0..history.operations().len()).any(|later| {
                let op = &history.operations()[later];
                op.fate == Fate::Ok
                    && World::of(history).precedes(writer, later)
                    && op.process == history.operations()[writer].process
                    && last_written(history, later, *key).is_some()
            })
        });
        agreed && own == newest && !outlived
    }))
}
