//! The constraint graph: operations, messages and real-time barriers, and the edges of every model at once.
//!
//! A history is legal under a model, for given version orders, iff the graph restricted to that model's edge
//! kinds has no cycle (docs/checking.md has the proof). Real time is sparse: the sources of a class, sorted by
//! answer, each enter a chain of barriers, and each target has one edge from the last barrier before it.

mod as_of;
mod causality;
mod cycle;
mod real_time;
mod strong;

use crate::history::{History, OpIndex, Operation};
use crate::level::Level;
use crate::model::{EdgeKind, EdgeSet};
use crate::order::{NONE, Resolved};
use crate::rules::Rules;
use crate::terms::Fate;

pub(crate) use cycle::{Step, shortest_cycle};
pub(crate) use strong::{Residue, is_acyclic, residue, smallest_component, topological_order};

/// A directed graph in compressed rows. Vertices below `operations` are the retained operations of the history.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) operations: usize,
    start: Vec<u32>,
    to: Vec<u32>,
    kind: Vec<EdgeKind>,
}

/// Edges in the order they were thought of.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    vertices: usize,
    dropped: Option<EdgeSet>,
    from: Vec<u32>,
    to: Vec<u32>,
    kind: Vec<EdgeKind>,
}

impl Edges {
    pub(crate) fn add(&mut self, from: u32, to: u32, kind: EdgeKind) {
        if self.dropped.is_some_and(|dropped| dropped.has(kind)) {
            return;
        }
        self.from.push(from);
        self.to.push(to);
        self.kind.push(kind);
    }

    /// A vertex that is no operation: a barrier, a message, the end of a list.
    fn vertex(&mut self) -> u32 {
        self.vertices += 1;
        self.vertices as u32 - 1
    }

    fn into_graph(self, operations: usize) -> Graph {
        let mut start = vec![0u32; self.vertices + 1];
        for from in &self.from {
            start[*from as usize + 1] += 1;
        }
        for vertex in 0..self.vertices {
            start[vertex + 1] += start[vertex];
        }
        let mut fill = start.clone();
        let mut to = vec![0u32; self.to.len()];
        let mut kind = vec![EdgeKind::WriteRead; self.to.len()];
        for edge in 0..self.to.len() {
            let at = &mut fill[self.from[edge] as usize];
            to[*at as usize] = self.to[edge];
            kind[*at as usize] = self.kind[edge];
            *at += 1;
        }
        Graph { operations, start, to, kind }
    }
}

impl Graph {
    /// How many vertices, barriers included.
    pub(crate) fn len(&self) -> usize {
        self.start.len() - 1
    }

    /// How many edges.
    pub(crate) fn edges(&self) -> usize {
        self.to.len()
    }

    /// The edges out of a vertex that are in `set`.
    pub(crate) fn out(&self, vertex: u32, set: EdgeSet) -> impl Iterator<Item = (u32, EdgeKind)> {
        let range = self.start[vertex as usize] as usize..self.start[vertex as usize + 1] as usize;
        let kinds = &self.kind[range.clone()];
        self.to[range].iter().copied().zip(kinds.iter().copied()).filter(move |(_, kind)| set.has(*kind))
    }

    /// True for a real operation.
    pub(crate) fn is_operation(&self, vertex: u32) -> bool {
        (vertex as usize) < self.operations
    }

    /// The graph with the edges of `set` alone.
    pub(crate) fn only(&self, set: EdgeSet) -> Graph {
        let mut edges = Edges { vertices: self.len(), ..Edges::default() };
        for (vertex, to, kind) in self.triples(set) {
            edges.add(vertex, to, kind);
        }
        edges.into_graph(self.operations)
    }

    fn triples(&self, set: EdgeSet) -> impl Iterator<Item = (u32, u32, EdgeKind)> {
        (0..self.len() as u32)
            .flat_map(move |vertex| self.out(vertex, set).map(move |(to, kind)| (vertex, to, kind)))
    }

    /// The graph with more edges among its vertices: completed version orders.
    pub(crate) fn with(&self, more: &[(u32, u32, EdgeKind)]) -> Graph {
        let mut edges = Edges { vertices: self.len(), ..Edges::default() };
        for (vertex, to, kind) in self.triples(EdgeSet::ALL) {
            edges.add(vertex, to, kind);
        }
        for (from, to, kind) in more {
            edges.add(*from, *to, *kind);
        }
        edges.into_graph(self.operations)
    }
}

/// Whose levels count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Levels {
    /// All operations are alike.
    Ignored,
    /// Each operation keeps what its own level demands.
    Honoured,
}

impl Levels {
    /// The level that an operation counts at.
    fn of(self, operation: &Operation) -> Level {
        match self {
            Levels::Ignored => Level::Strict,
            Levels::Honoured => operation.level,
        }
    }
}

/// Which real-time classes the asked models need; each costs time and memory.
pub(crate) fn build(
    history: &History,
    resolved: &Resolved,
    wanted: EdgeSet,
    levels: Levels,
    rules: &Rules,
) -> Graph {
    let count = resolved.vertices.len();
    let mut edges = Edges { vertices: count, dropped: Some(rules.dropped), ..Edges::default() };
    data(resolved, &mut edges);
    causality::add(history, resolved, levels, rules, &mut edges);
    real_time::add(history, resolved, wanted, levels, rules, &mut edges);
    if levels == Levels::Honoured {
        as_of::add(history, resolved, &mut edges);
    }
    edges.into_graph(count)
}

/// WR, WW and RW.
fn data(resolved: &Resolved, edges: &mut Edges) {
    let writes = &resolved.writes;
    let mut ends: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
    for (key, tail) in &resolved.tails {
        let end = edges.vertex();
        ends.insert(key.0, end);
        for slot in tail {
            edges.add(end, writes[*slot as usize].vertex, EdgeKind::ReadWrite);
        }
    }
    let end_of = |key: u32| if ends.is_empty() { None } else { ends.get(&key).copied() };
    for write in writes.iter().filter(|write| write.vertex != NONE) {
        if write.next != NONE {
            edges.add(write.vertex, writes[write.next as usize].vertex, EdgeKind::WriteWrite);
        }
    }
    let mut last: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
    for key in resolved.tails.keys() {
        let mut slot = resolved.first[key.at()];
        while slot != NONE && writes[slot as usize].next != NONE {
            slot = writes[slot as usize].next;
        }
        last.insert(key.0, slot);
        if slot != NONE {
            edges.add(writes[slot as usize].vertex, ends[&key.0], EdgeKind::WriteWrite);
        }
    }
    for read in &resolved.reads {
        let next = if read.source == NONE {
            resolved.first[read.key.at()]
        } else {
            edges.add(writes[read.source as usize].vertex, read.vertex, EdgeKind::WriteRead);
            writes[read.source as usize].next
        };
        if next != NONE {
            let overwriter = writes[next as usize].vertex;
            if overwriter != read.vertex {
                edges.add(read.vertex, overwriter, EdgeKind::ReadWrite);
            }
        } else if let Some(end) = end_of(read.key.0)
            && last.get(&read.key.0) == Some(&read.source)
        {
            edges.add(read.vertex, end, EdgeKind::ReadWrite);
        }
    }
    free(resolved, edges);
}

/// Writes without a position still come after the initial version: its readers precede them.
fn free(resolved: &Resolved, edges: &mut Edges) {
    if resolved.free.is_empty() {
        return;
    }
    let writes = &resolved.writes;
    let mut first: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
    for (key, slots) in &resolved.free {
        let start = edges.vertex();
        first.insert(key.0, start);
        for slot in slots {
            edges.add(start, writes[*slot as usize].vertex, EdgeKind::ReadWrite);
        }
    }
    for read in resolved.reads.iter().filter(|read| read.source == NONE) {
        let Some(slots) = resolved.free.get(&read.key) else { continue };
        let own = slots.iter().any(|slot| writes[*slot as usize].vertex == read.vertex);
        if !own {
            edges.add(read.vertex, first[&read.key.0], EdgeKind::ReadWrite);
            continue;
        }
        for slot in slots.iter().filter(|slot| writes[**slot as usize].vertex != read.vertex) {
            edges.add(read.vertex, writes[*slot as usize].vertex, EdgeKind::ReadWrite);
        }
    }
}

/// Whether the operation behind a vertex has an answer that others can come after.
fn answered(history: &History, op: OpIndex) -> bool {
    history.operations()[op.at()].fate == Fate::Ok
}
