//! List append: the longest read shows the order; appends nobody read come after it, in any order.

use super::sources::Sources;
use super::{NONE, Pending, ReadSlot, Resolved, link};
use crate::anomaly::{Anomalies, AnomalyKind, name};
use crate::history::{Access, AccessKind, History, HistoryError, OpIndex, Symbol};
use std::collections::BTreeMap;
use std::ops::Range;

/// One external list read: a prefix of the list, without what the reader had appended itself.
#[derive(Clone, Debug)]
pub(super) struct ListRead {
    op: OpIndex,
    key: Symbol,
    seen: Range<u32>,
}

/// What one operation knows of lists by its own earlier accesses.
#[derive(Debug, Default)]
pub(super) struct Views {
    views: Vec<View>,
}

#[derive(Debug)]
struct View {
    key: Symbol,
    /// The external part it read, if it read any.
    seen: Option<Range<u32>>,
    appended: Vec<Symbol>,
}

impl Views {
    pub(super) fn clear(&mut self) {
        self.views.clear();
    }

    /// Follows one access of `op`; an external read is pushed to `reads`.
    pub(super) fn access(
        &mut self,
        history: &History,
        op: OpIndex,
        access: &Access,
        reads: &mut Vec<ListRead>,
        anomalies: &mut Anomalies,
    ) {
        let at = self.views.iter().position(|view| view.key == access.key).unwrap_or_else(|| {
            self.views.push(View { key: access.key, seen: None, appended: Vec::new() });
            self.views.len() - 1
        });
        let view = &mut self.views[at];
        let range = match &access.kind {
            AccessKind::Append(element) => return view.appended.push(*element),
            AccessKind::ReadList(range) => range.clone(),
            AccessKind::Read(_) | AccessKind::Write(_) => return,
        };
        let list = history.elements(&range);
        let own = list.len().saturating_sub(view.appended.len());
        let mut consistent = list.ends_with(&view.appended);
        let seen = range.start..range.start + own as u32;
        match &view.seen {
            Some(earlier) => consistent &= history.elements(earlier) == history.elements(&seen),
            None if consistent => {
                view.seen = Some(seen.clone());
                reads.push(ListRead { op, key: access.key, seen });
            }
            None => {}
        }
        if !consistent {
            anomalies.add(AnomalyKind::Internal, vec![op], || {
                let key = history.keys().value(access.key);
                format!("{} read {key} without what it had read or appended before", name(history, op))
            });
        }
    }
}

/// Finds each list's longest read, turns it into writes, and places every other read in it.
pub(super) fn resolve_reads(
    history: &History,
    sources: &mut Sources,
    pending: &mut Pending,
    anomalies: &mut Anomalies,
) -> Result<(), HistoryError> {
    let mut longest: BTreeMap<Symbol, (Range<u32>, OpIndex)> = BTreeMap::new();
    for read in &pending.list_reads {
        let known = longest.entry(read.key).or_insert((0..0, read.op));
        if read.seen.len() > known.0.len() {
            *known = (read.seen.clone(), read.op);
        }
    }
    // For each position of each longest read: the write whose elements are complete there, else none.
    let mut complete_at: BTreeMap<Symbol, Vec<u32>> = BTreeMap::new();
    for (key, (range, reader)) in &longest {
        let (complete, chain) = show(history, sources, *key, range, *reader, anomalies)?;
        complete_at.insert(*key, complete);
        pending.shown.insert(key.at(), chain);
    }
    for read in &pending.list_reads {
        let source = place(history, sources, read, &longest[&read.key].0, &complete_at[&read.key], anomalies);
        if let Some(source) = source {
            pending.reads.push(ReadSlot { vertex: read.op.0, key: read.key, source });
            if let Some(own) = sources.slot_of(read.op.at(), read.key) {
                sources.follows[own as usize] = source;
            }
        }
    }
    Ok(())
}

/// The writes that one list shows, and for each of its positions the write that is complete there.
fn show(
    history: &History,
    sources: &mut Sources,
    key: Symbol,
    range: &Range<u32>,
    reader: OpIndex,
    anomalies: &mut Anomalies,
) -> Result<(Vec<u32>, Vec<u32>), HistoryError> {
    let elements = history.elements(range);
    let mut complete = Vec::with_capacity(elements.len());
    let mut chain: Vec<u32> = Vec::new();
    let mut open = NONE;
    let mut sorted = elements.to_vec();
    sorted.sort_unstable();
    let mut torn = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    let mut expected = NONE;
    for element in elements {
        let Some(instance) = sources.by_value(history, reader.at(), key, *element)? else {
            complete.push(NONE);
            let element = history.values().value(*element);
            anomalies.add(AnomalyKind::GarbageRead, vec![reader], || {
                let key = history.keys().value(key);
                format!("{} read element {element} in {key}, which nobody appended", name(history, reader))
            });
            continue;
        };
        let writer = sources.slots[instance.slot as usize].op;
        sources.observed[writer.at()] = true;
        if history.operations()[writer.at()].fate == crate::Fate::Fail {
            anomalies.add(AnomalyKind::AbortedRead, vec![reader, writer], || {
                let (element, key) = (history.values().value(*element), history.keys().value(key));
                let writer = name(history, writer);
                format!(
                    "{} read element {element} in {key}, whose append by {writer} failed",
                    name(history, reader)
                )
            });
        }
        // A transaction's own elements must stand together, in its order, from the first to the last.
        let starts = first_append(history, writer, key);
        let in_turn =
            if open == instance.slot { instance.access == expected } else { instance.access == starts };
        torn |= !in_turn || (open != NONE && open != instance.slot);
        expected = next_append(history, writer, key, instance.access);
        open = if instance.last { NONE } else { instance.slot };
        complete.push(if instance.last { instance.slot } else { NONE });
        if instance.last {
            chain.push(instance.slot);
        }
    }
    if torn {
        anomalies.add(AnomalyKind::TornAppend, vec![reader], || {
            let key = history.keys().value(key);
            format!(
                "{} read {key} with an element twice or a transaction's elements apart",
                name(history, reader)
            )
        });
        let mut seen = std::collections::BTreeSet::new();
        chain.retain(|slot| seen.insert(*slot));
    }
    Ok((complete, chain))
}

fn appends(history: &History, op: OpIndex, key: Symbol) -> impl Iterator<Item = u32> {
    let accesses = history.accesses(&history.operations()[op.at()]);
    accesses.iter().enumerate().filter_map(move |(at, access)| {
        (access.key == key && matches!(access.kind, AccessKind::Append(_))).then_some(at as u32)
    })
}

fn first_append(history: &History, op: OpIndex, key: Symbol) -> u32 {
    appends(history, op, key).next().unwrap_or(NONE)
}

fn next_append(history: &History, op: OpIndex, key: Symbol, after: u32) -> u32 {
    appends(history, op, key).find(|at| *at > after).unwrap_or(NONE)
}

/// The write that one read ends with.
fn place(
    history: &History,
    sources: &Sources,
    read: &ListRead,
    longest: &Range<u32>,
    complete_at: &[u32],
    anomalies: &mut Anomalies,
) -> Option<u32> {
    let (seen, all) = (history.elements(&read.seen), history.elements(longest));
    if !all.starts_with(seen) {
        anomalies.add(AnomalyKind::IncompatibleOrder, vec![read.op], || {
            let key = history.keys().value(read.key);
            format!("{} read a list {key} that is no prefix of the longest one read", name(history, read.op))
        });
        return None;
    }
    let Some(last) = seen.len().checked_sub(1) else { return Some(NONE) };
    if complete_at[last] != NONE {
        return Some(complete_at[last]);
    }
    let writer =
        sources.any_by_value(read.key, seen[last]).map(|instance| sources.slots[instance.slot as usize].op);
    if let Some(writer) = writer {
        anomalies.add(AnomalyKind::IntermediateRead, vec![read.op, writer], || {
            let key = history.keys().value(read.key);
            format!(
                "{} read only part of what {} appended to {key}",
                name(history, read.op),
                name(history, writer)
            )
        });
    }
    None
}

/// The versions of one list: what its longest read shows, then the appends that nobody read.
pub(super) fn order(
    key: usize,
    slots: &[u32],
    pending: &Pending,
    sources: &mut Sources,
    resolved: &mut Resolved,
) {
    let none = Vec::new();
    let shown = pending.shown.get(&key).unwrap_or(&none);
    let chain: Vec<u32> =
        shown.iter().copied().filter(|slot| sources.slots[*slot as usize].vertex != NONE).collect();
    let mut known = chain.clone();
    known.sort_unstable();
    let mut unread: Vec<u32> =
        slots.iter().copied().filter(|slot| known.binary_search(slot).is_err()).collect();
    // Who read all that is known and then appended comes first among the unread: its own read says so.
    let end = chain.last().copied().unwrap_or(NONE);
    let mut chain = chain;
    if let Some(at) = unread.iter().position(|slot| sources.follows[*slot as usize] == end) {
        chain.push(unread.remove(at));
    }
    link(key, &chain, &mut sources.slots, resolved);
    if !unread.is_empty() {
        resolved.tails.insert(Symbol(key as u32), unread);
    }
}
