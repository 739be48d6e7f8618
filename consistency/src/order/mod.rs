//! Who read from whom, and in which order the versions of each key stand.
//!
//! The sources of version orders are those of docs/checking.md: longest list reads, returned versions and
//! timestamps, chains of read-modify-writes. What they leave open is `free`, and goes to [`crate::solve`].

mod lists;
mod registers;
mod sources;

use crate::anomaly::{Anomalies, Anomaly};
use crate::history::{History, HistoryError, OpIndex, Symbol, Timestamp};
use crate::rules::Rules;
use crate::terms::Fate;
use std::collections::BTreeMap;

/// No vertex, no write, nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// What one retained operation left in one key.
#[derive(Clone, Debug)]
pub(crate) struct WriteSlot {
    pub(crate) op: OpIndex,
    pub(crate) vertex: u32,
    pub(crate) key: Symbol,
    /// The write of the next version of the key; [`NONE`] after the last, and where the order is open.
    pub(crate) next: u32,
    /// The position the service gave it, or that a reader reported.
    pub(crate) timestamp: Option<Timestamp>,
    /// The value it left (registers) or its last element (lists).
    pub(crate) value: Symbol,
}

/// One external read of one retained operation.
#[derive(Clone, Debug)]
pub(crate) struct ReadSlot {
    pub(crate) vertex: u32,
    pub(crate) key: Symbol,
    /// The write it saw; [`NONE`] for the initial version.
    pub(crate) source: u32,
}

/// A history with every read resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    /// The retained operations; a vertex is a position here.
    pub(crate) vertices: Vec<OpIndex>,
    /// The vertex of each operation, or [`NONE`].
    pub(crate) vertex_of: Vec<u32>,
    pub(crate) writes: Vec<WriteSlot>,
    pub(crate) reads: Vec<ReadSlot>,
    /// The first known write of each key, or [`NONE`].
    pub(crate) first: Vec<u32>,
    /// Appends that nobody read: after everything known of their list, in any order.
    pub(crate) tails: BTreeMap<Symbol, Vec<u32>>,
    /// Writes without a known position, by key. The chain of the key holds for the others all the same.
    pub(crate) free: BTreeMap<Symbol, Vec<u32>>,
    pub(crate) anomalies: Vec<Anomaly>,
}

impl Resolved {
    /// When the operation of a vertex was invoked and when it answered.
    pub(crate) fn interval(&self, history: &History, vertex: u32) -> (u64, u64) {
        let operation = &history.operations()[self.vertices[vertex as usize].at()];
        (operation.invoke.0, operation.complete.0)
    }
}

/// The fate under the rules: a mutant may take unknown for failed.
fn fate(history: &History, op: usize, rules: &Rules) -> Fate {
    match history.operations()[op].fate {
        Fate::Unknown if rules.unknown_as_failed => Fate::Fail,
        fate => fate,
    }
}

/// Resolves reads and version orders. Errors are bad input: values that are not unique where they must be.
pub(crate) fn resolve(history: &History, rules: &Rules) -> Result<Resolved, HistoryError> {
    let mut anomalies = Anomalies::default();
    let mut sources = sources::Sources::of(history, rules);
    let mut pending = registers::read_all(history, rules, &mut sources, &mut anomalies)?;
    lists::resolve_reads(history, &mut sources, &mut pending, &mut anomalies)?;

    let mut resolved = Resolved { vertex_of: vec![NONE; history.operations().len()], ..Resolved::default() };
    for op in 0..history.operations().len() {
        let retained = match fate(history, op, rules) {
            Fate::Ok => true,
            Fate::Fail => false,
            Fate::Unknown => sources.observed[op],
        };
        if retained {
            resolved.vertex_of[op] = resolved.vertices.len() as u32;
            resolved.vertices.push(OpIndex(op as u32));
        }
    }
    for slot in &mut sources.slots {
        slot.vertex = resolved.vertex_of[slot.op.at()];
    }
    // Reads of failed or vanished writes are anomalies already; they lend no edges.
    resolved.reads = pending
        .reads
        .iter()
        .filter(|read| read.source == NONE || sources.slots[read.source as usize].vertex != NONE)
        .map(|read| ReadSlot { vertex: resolved.vertex_of[read.vertex as usize], ..read.clone() })
        .collect();
    resolved.first = vec![NONE; history.keys().len()];
    let slots_of_key = sources.slots_by_key(history.keys().len());
    for key in 0..history.keys().len() {
        let slots = slots_of_key.of(key);
        if slots.is_empty() {
            continue;
        }
        if pending.is_list[key] {
            lists::order(key, slots, &pending, &mut sources, &mut resolved);
        } else {
            registers::order(history, key, slots, &mut sources, &mut resolved, &mut anomalies);
        }
    }
    resolved.writes = sources.slots;
    resolved.anomalies = anomalies.into_vec();
    Ok(resolved)
}

/// Links `chain` as the versions of `key`, in order.
fn link(key: usize, chain: &[u32], slots: &mut [WriteSlot], resolved: &mut Resolved) {
    resolved.first[key] = chain.first().copied().unwrap_or(NONE);
    for pair in chain.windows(2) {
        slots[pair[0] as usize].next = pair[1];
    }
}

/// Reads found in the first pass; `vertex` still holds the operation's index.
#[derive(Debug, Default)]
struct Pending {
    reads: Vec<ReadSlot>,
    is_list: Vec<bool>,
    /// The writes of each list in the order its longest read shows, by key.
    shown: BTreeMap<usize, Vec<u32>>,
    list_reads: Vec<lists::ListRead>,
}
