//! The four session guarantees (Terry et al. 1994), for versions whose order is known.
//!
//! A version of a key is its rank in the key's order, 0 the initial one. Each session is one process; what it
//! has read and written so far bounds what it may read next.

use crate::history::{History, OpIndex, Symbol};
use crate::model::Model;
use crate::order::{NONE, Resolved};
use crate::terms::Fate;
use crate::verdict::Verdict;
use crate::witness::Witness;
use std::collections::BTreeMap;

/// The rank of every write in its key's order; tails and free writes have none.
struct Ranks(Vec<u32>);

impl Ranks {
    fn of(resolved: &Resolved) -> Ranks {
        let mut ranks = vec![NONE; resolved.writes.len()];
        for first in &resolved.first {
            let (mut slot, mut rank) = (*first, 1);
            while slot != NONE {
                ranks[slot as usize] = rank;
                (slot, rank) = (resolved.writes[slot as usize].next, rank + 1);
            }
        }
        // Appends that nobody read come after all that somebody read.
        for slot in resolved.tails.values().flatten() {
            ranks[*slot as usize] = NONE - 1;
        }
        Ranks(ranks)
    }
}

/// What an operation did to keys, by rank.
#[derive(Default)]
struct Row {
    reads: Vec<(Symbol, u32)>,
    writes: Vec<(Symbol, u32)>,
    /// The writers it read from.
    sources: Vec<u32>,
}

/// The newest rank of a key that a session had met when it was at a position: (position, rank), growing.
struct Newest(Vec<(u32, u32, OpIndex)>);

impl Newest {
    fn add(&mut self, position: u32, rank: u32, op: OpIndex) {
        if self.0.last().is_none_or(|(_, known, _)| *known < rank) {
            self.0.push((position, rank, op));
        }
    }

    /// The newest met before `position`.
    fn before(&self, position: u32) -> Option<(u32, OpIndex)> {
        let at = self.0.partition_point(|(known, _, _)| *known < position);
        at.checked_sub(1).map(|at| (self.0[at].1, self.0[at].2))
    }
}

/// A session's position: which, and how far.
#[derive(Clone, Copy)]
struct SessionPosition {
    session: u32,
    position: u32,
}

pub(crate) fn check(history: &History, resolved: &Resolved, model: Model) -> Verdict {
    if !resolved.free.is_empty() {
        return Verdict::Undecided("the order of versions is not known for every key".to_owned());
    }
    let ranks = Ranks::of(resolved);
    let mut rows: Vec<Row> = resolved.vertices.iter().map(|_| Row::default()).collect();
    for read in &resolved.reads {
        let row = &mut rows[read.vertex as usize];
        let rank = if read.source == NONE { 0 } else { ranks.0[read.source as usize] };
        row.reads.push((read.key, rank));
        if read.source != NONE {
            row.sources.push(resolved.writes[read.source as usize].vertex);
        }
    }
    for (slot, write) in resolved.writes.iter().enumerate().filter(|(_, write)| write.vertex != NONE) {
        rows[write.vertex as usize].writes.push((write.key, ranks.0[slot]));
    }
    let mut positions = vec![SessionPosition { session: 0, position: 0 }; rows.len()];
    let order = sessions(history, resolved, &mut positions);
    match model {
        Model::ReadYourWrites => own(history, resolved, &order, &rows, &positions, true),
        Model::MonotonicReads => own(history, resolved, &order, &rows, &positions, false),
        Model::MonotonicWrites => others(history, resolved, &order, &rows, &positions, true),
        _ => others(history, resolved, &order, &rows, &positions, false),
    }
}

/// The vertices session by session, in order; fills in their positions.
fn sessions(history: &History, resolved: &Resolved, positions: &mut [SessionPosition]) -> Vec<u32> {
    let mut order = Vec::with_capacity(positions.len());
    let (mut process, mut position) = (None, SessionPosition { session: 0, position: 0 });
    for op in history.by_process() {
        let operation = &history.operations()[op.at()];
        if process != Some(operation.process) {
            process = Some(operation.process);
            position = SessionPosition { session: position.session + 1, position: 0 };
        }
        let vertex = resolved.vertex_of[op.at()];
        if vertex != NONE {
            position.position += 1;
            positions[vertex as usize] = position;
            order.push(vertex);
        }
        if operation.fate == Fate::Unknown {
            process = None;
        }
    }
    order
}

fn violated(history: &History, key: Symbol, before: OpIndex, reader: OpIndex, why: &str) -> Verdict {
    let key = history.keys().value(key);
    Verdict::Violated(Witness {
        summary: format!("a session saw an older version of {key} than it must"),
        operations: vec![before, reader],
        cycle: Vec::new(),
        sentences: vec![format!("T{} {why}, and T{} read an older version of {key}", before.0, reader.0)],
    })
}

/// What a session itself wrote (or read) bounds what it reads later.
fn own(
    history: &History,
    resolved: &Resolved,
    order: &[u32],
    rows: &[Row],
    positions: &[SessionPosition],
    writes: bool,
) -> Verdict {
    let mut newest: BTreeMap<Symbol, (u32, OpIndex)> = BTreeMap::new();
    let mut session = 0;
    for vertex in order {
        if positions[*vertex as usize].session != session {
            session = positions[*vertex as usize].session;
            newest.clear();
        }
        let op = resolved.vertices[*vertex as usize];
        let row = &rows[*vertex as usize];
        for (key, rank) in &row.reads {
            if let Some((known, before)) = newest.get(key).filter(|(known, _)| known > rank) {
                let _ = known;
                let why = if writes {
                    "wrote the key in the same session"
                } else {
                    "read the key in the same session"
                };
                return violated(history, *key, *before, op, why);
            }
        }
        for (key, rank) in if writes { &row.writes } else { &row.reads } {
            let known = newest.entry(*key).or_insert((*rank, op));
            if known.0 < *rank {
                *known = (*rank, op);
            }
        }
    }
    Verdict::Holds
}

/// What a session had written (or read) before a write bounds the sessions that saw that write.
fn others(
    history: &History,
    resolved: &Resolved,
    order: &[u32],
    rows: &[Row],
    positions: &[SessionPosition],
    writes: bool,
) -> Verdict {
    // What each session had written (or read) of each key, up to each of its positions.
    let mut met: BTreeMap<(Symbol, u32), Newest> = BTreeMap::new();
    for vertex in order {
        let (row, position) = (&rows[*vertex as usize], positions[*vertex as usize]);
        let op = resolved.vertices[*vertex as usize];
        for (key, rank) in if writes { &row.writes } else { &row.reads } {
            let newest = met.entry((*key, position.session)).or_insert_with(|| Newest(Vec::new()));
            let older = writes && newest.0.last().is_some_and(|(_, known, _)| known > rank);
            if older && *rank != NONE - 1 {
                let before = newest.0.last().map_or(op, |(_, _, before)| *before);
                return violated(
                    history,
                    *key,
                    before,
                    op,
                    "wrote the key earlier in the same session at a newer version",
                );
            }
            newest.add(position.position, *rank, op);
        }
        if !writes {
            // A write must come after the versions its own session had read of the same key.
            for (key, rank) in &row.writes {
                let read = met
                    .get(&(*key, position.session))
                    .and_then(|newest| newest.before(position.position + 1));
                if let Some((known, before)) = read.filter(|(known, _)| known > rank) {
                    let _ = known;
                    return violated(
                        history,
                        *key,
                        before,
                        op,
                        "read the key, then wrote it at an older version",
                    );
                }
            }
        }
    }
    readers(history, resolved, order, rows, positions, &met, writes)
}

/// Who saw a write of a session must see what that session had met before it.
fn readers(
    history: &History,
    resolved: &Resolved,
    order: &[u32],
    rows: &[Row],
    positions: &[SessionPosition],
    met: &BTreeMap<(Symbol, u32), Newest>,
    writes: bool,
) -> Verdict {
    // What each reader has seen of each session.
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    let mut session = 0;
    for vertex in order {
        let (row, position) = (&rows[*vertex as usize], positions[*vertex as usize]);
        if position.session != session {
            session = position.session;
            seen.clear();
        }
        let op = resolved.vertices[*vertex as usize];
        for source in &row.sources {
            let of = positions[*source as usize];
            let known = seen.entry(of.session).or_insert(0);
            *known = (*known).max(of.position);
        }
        for (key, rank) in &row.reads {
            for (of, position) in &seen {
                let bound =
                    met.get(&(*key, *of)).and_then(|newest| newest.before(*position + u32::from(writes)));
                let Some((known, before)) = bound.filter(|(known, _)| known > rank) else { continue };
                let _ = known;
                let why = if writes {
                    "wrote the key before a write that the reader had seen"
                } else {
                    "read the key before its session made a write that the reader had seen"
                };
                return violated(history, *key, before, op, why);
            }
        }
    }
    Verdict::Holds
}
