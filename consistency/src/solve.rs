//! Version orders that nothing reports: a legal order is looked for directly, pruned by what is forced.
//!
//! First a greedy schedule (reads at once, writes by answer), which settles nearly every sound history in
//! linear time. Then saturation: a write that must precede a read precedes the read's source, a write that must
//! follow the source follows the read, to a fixpoint; a cycle is a certain violation. Then search over what is
//! left, remembering (scheduled set, current writers). The problem is NP-complete, so there is a budget.

use crate::graph::{Graph, Step, shortest_cycle, smallest_component, topological_order};
use crate::hash::FixedState;
use crate::history::History;
use crate::model::{EdgeKind, EdgeSet};
use crate::order::{NONE, Resolved};
use crate::search::SearchBudget;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What is known about the existence of a legal order.
#[derive(Debug)]
pub(crate) enum Solved {
    Holds,
    /// Forced edges close a cycle; each forced edge with the reader that forces it.
    Cycle(Vec<Step>, Vec<Forced>),
    /// Every order was tried; this many writes could be placed at most.
    Exhausted,
    Undecided(String),
}

/// An edge that some read forces: in the other order the read would be wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forced {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) kind: EdgeKind,
    pub(crate) reader: u32,
}

/// Looks for a legal order that respects the edges of `set`; the steps of `budget` are writes placed.
pub(crate) fn solve(
    history: &History,
    graph: &Graph,
    resolved: &Resolved,
    set: EdgeSet,
    budget: &mut SearchBudget,
) -> Solved {
    match Schedule::new(history, graph, resolved, set).map(|schedule| schedule.run(budget, false)) {
        None => return cycle(history, resolved, graph, set, Vec::new()),
        Some(Some(true)) => return Solved::Holds,
        Some(Some(false) | None) => {}
    }
    let bytes = reach_bytes(graph);
    if bytes > budget.bytes {
        return Solved::Undecided(format!(
            "version orders are not known, and what {} operations force takes {} MiB of the {} MiB that a search may \
             take (--memory-limit)",
            graph.operations,
            bytes >> 20,
            budget.bytes >> 20
        ));
    }
    let forced = saturate(graph, resolved, set, budget);
    let saturated = graph.with(&edges(&forced));
    match Schedule::new(history, &saturated, resolved, set).map(|schedule| schedule.run(budget, true)) {
        None => cycle(history, resolved, &saturated, set, forced),
        Some(Some(true)) => Solved::Holds,
        Some(Some(false)) => Solved::Exhausted,
        Some(None) => Solved::Undecided(format!(
            "version orders are not known, and the search gave up: {}",
            budget.exhausted()
        )),
    }
}

fn edges(forced: &[Forced]) -> Vec<(u32, u32, EdgeKind)> {
    forced.iter().map(|edge| (edge.from, edge.to, edge.kind)).collect()
}

fn cycle(history: &History, resolved: &Resolved, graph: &Graph, set: EdgeSet, forced: Vec<Forced>) -> Solved {
    match smallest_component(graph, set) {
        Some(component) => {
            let interval = |vertex: u32| resolved.interval(history, vertex);
            Solved::Cycle(shortest_cycle(graph, set, &component, interval), forced)
        }
        None => Solved::Exhausted,
    }
}

/// Bits of which operations each vertex reaches.
struct Reach {
    words: usize,
    bits: Vec<u64>,
}

impl Reach {
    fn of(graph: &Graph, order: &[u32], set: EdgeSet) -> Reach {
        let words = graph.operations.div_ceil(64);
        // Barriers and messages need rows too, but only while their successors are summed up.
        let mut bits = vec![0u64; words * graph.len()];
        for vertex in order.iter().rev() {
            for (to, _) in graph.out(*vertex, set) {
                let (from_row, to_row) = (*vertex as usize * words, to as usize * words);
                for word in 0..words {
                    bits[from_row + word] |= bits[to_row + word];
                }
                if graph.is_operation(to) {
                    bits[from_row + to as usize / 64] |= 1 << (to % 64);
                }
            }
        }
        Reach { words, bits }
    }

    fn has(&self, from: u32, to: u32) -> bool {
        self.bits[from as usize * self.words + to as usize / 64] >> (to % 64) & 1 == 1
    }
}

/// What the reachability of a graph takes: a row of bits for each vertex, barriers too.
fn reach_bytes(graph: &Graph) -> usize {
    graph.len().saturating_mul(graph.operations.div_ceil(64)).saturating_mul(8)
}

/// The forced edges among writes and reads of keys with free writes.
fn saturate(graph: &Graph, resolved: &Resolved, set: EdgeSet, budget: &SearchBudget) -> Vec<Forced> {
    let mut writers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for write in resolved.writes.iter().filter(|write| write.vertex != NONE) {
        if resolved.free.contains_key(&write.key) {
            writers.entry(write.key.0).or_default().push(write.vertex);
        }
    }
    let mut forced: Vec<Forced> = Vec::new();
    let mut known: BTreeSet<(u32, u32)> = BTreeSet::new();
    loop {
        let grown = graph.with(&edges(&forced));
        if reach_bytes(&grown) > budget.bytes || budget.stopped() {
            return forced;
        }
        let Some(order) = topological_order(&grown, set) else { return forced };
        let reach = Reach::of(&grown, &order, set);
        let before = forced.len();
        for read in &resolved.reads {
            let Some(others) = writers.get(&read.key.0) else { continue };
            let source = match read.source {
                NONE => NONE,
                slot => resolved.writes[slot as usize].vertex,
            };
            for other in others.iter().copied().filter(|other| *other != source && *other != read.vertex) {
                if source != NONE
                    && reach.has(other, read.vertex)
                    && !reach.has(other, source)
                    && known.insert((other, source))
                {
                    forced.push(Forced {
                        from: other,
                        to: source,
                        kind: EdgeKind::WriteWrite,
                        reader: read.vertex,
                    });
                }
                let after = source == NONE || reach.has(source, other);
                if after && !reach.has(read.vertex, other) && known.insert((read.vertex, other)) {
                    let (from, kind) = (read.vertex, EdgeKind::ReadWrite);
                    forced.push(Forced { from, to: other, kind, reader: from });
                }
            }
        }
        if forced.len() == before {
            return forced;
        }
    }
}

/// A partial order of operations that is legal so far, and what may come next.
struct Schedule<'a> {
    graph: &'a Graph,
    set: EdgeSet,
    /// Predecessors not scheduled yet.
    waiting: Vec<u32>,
    scheduled: Vec<u64>,
    left: usize,
    /// Operations without unscheduled predecessors: (due, invocation, vertex).
    ready: BTreeSet<(u64, u64, u32)>,
    times: Vec<(u64, u64)>,
    /// The write that stands in each key.
    current: Vec<u32>,
    /// Reads not scheduled yet, by the write they saw; the initial versions after all writes, by key.
    pending: Vec<u32>,
    writes_of: Rows,
    reads_of: Rows,
}

/// (key, slot) pairs of each vertex.
struct Rows {
    start: Vec<u32>,
    pairs: Vec<(u32, u32)>,
}

impl Rows {
    fn of(vertices: usize, entries: impl Iterator<Item = (u32, u32, u32)> + Clone) -> Rows {
        let mut start = vec![0u32; vertices + 1];
        entries.clone().for_each(|(vertex, _, _)| start[vertex as usize + 1] += 1);
        for vertex in 0..vertices {
            start[vertex + 1] += start[vertex];
        }
        let mut fill = start.clone();
        let mut pairs = vec![(0, 0); start[vertices] as usize];
        for (vertex, key, slot) in entries {
            pairs[fill[vertex as usize] as usize] = (key, slot);
            fill[vertex as usize] += 1;
        }
        Rows { start, pairs }
    }

    fn row(&self, vertex: u32) -> &[(u32, u32)] {
        &self.pairs[self.start[vertex as usize] as usize..self.start[vertex as usize + 1] as usize]
    }
}

/// One choice of the search: what was scheduled since, and which writes of the same moment were not tried yet.
struct Frame {
    /// Vertices scheduled by this choice, in order, each with the writes it replaced.
    undo: Vec<(u32, Vec<u32>)>,
    untried: Vec<u32>,
}

impl<'a> Schedule<'a> {
    /// Nothing scheduled; `None` if the edges have a cycle.
    fn new(history: &History, graph: &'a Graph, resolved: &Resolved, set: EdgeSet) -> Option<Schedule<'a>> {
        topological_order(graph, set)?;
        let mut waiting = vec![0u32; graph.len()];
        for vertex in 0..graph.len() as u32 {
            graph.out(vertex, set).for_each(|(to, _)| waiting[to as usize] += 1);
        }
        let retained = resolved.writes.iter().enumerate().filter(|(_, write)| write.vertex != NONE);
        let writes = retained.map(|(slot, write)| (write.vertex, write.key.0, slot as u32));
        let slots = resolved.writes.len();
        let source = move |read: &crate::order::ReadSlot| match read.source {
            NONE => slots as u32 + read.key.0,
            slot => slot,
        };
        let mut pending = vec![0u32; slots + resolved.first.len()];
        resolved.reads.iter().for_each(|read| pending[source(read) as usize] += 1);
        let mut times: Vec<(u64, u64)> = (0..resolved.vertices.len() as u32)
            .map(|vertex| {
                let (invoke, complete) = resolved.interval(history, vertex);
                (complete, invoke)
            })
            .collect();
        // A write is due when its first reader has answered, if that was earlier than its own answer.
        for read in resolved.reads.iter().filter(|read| read.source != NONE) {
            let due = resolved.interval(history, read.vertex).1;
            let writer = &mut times[resolved.writes[read.source as usize].vertex as usize];
            writer.0 = writer.0.min(due);
        }
        let mut schedule = Schedule {
            graph,
            set,
            waiting,
            scheduled: vec![0; graph.operations.div_ceil(64)],
            left: graph.operations,
            ready: BTreeSet::new(),
            times,
            current: (0..resolved.first.len()).map(|key| (slots + key) as u32).collect(),
            pending,
            writes_of: Rows::of(graph.operations, writes),
            reads_of: Rows::of(
                graph.operations,
                resolved.reads.iter().map(|read| (read.vertex, read.key.0, source(read))),
            ),
        };
        let roots: Vec<u32> =
            (0..graph.len() as u32).filter(|vertex| schedule.waiting[*vertex as usize] == 0).collect();
        for vertex in roots {
            schedule.release(vertex);
        }
        Some(schedule)
    }

    /// A vertex has no unscheduled predecessors any more: an operation is ready, anything else is passed.
    fn release(&mut self, vertex: u32) {
        let mut free = vec![vertex];
        while let Some(vertex) = free.pop() {
            if self.graph.is_operation(vertex) {
                let (complete, invoke) = self.times[vertex as usize];
                self.ready.insert((complete, invoke, vertex));
                continue;
            }
            for (to, _) in self.graph.out(vertex, self.set) {
                self.waiting[to as usize] -= 1;
                if self.waiting[to as usize] == 0 {
                    free.push(to);
                }
            }
        }
    }

    fn unrelease(&mut self, vertex: u32) {
        let mut bound = vec![vertex];
        while let Some(vertex) = bound.pop() {
            if self.graph.is_operation(vertex) {
                let (complete, invoke) = self.times[vertex as usize];
                self.ready.remove(&(complete, invoke, vertex));
                continue;
            }
            for (to, _) in self.graph.out(vertex, self.set) {
                self.waiting[to as usize] += 1;
                if self.waiting[to as usize] == 1 {
                    bound.push(to);
                }
            }
        }
    }

    /// Whether every read would see its source, and no one still waits to read what would be overwritten.
    fn legal(&self, vertex: u32) -> bool {
        let reads = self.reads_of.row(vertex);
        reads.iter().all(|(key, source)| self.current[*key as usize] == *source)
            && self.writes_of.row(vertex).iter().all(|(key, _)| {
                let current = self.current[*key as usize];
                let own = reads.iter().filter(|(_, source)| *source == current).count() as u32;
                self.pending[current as usize] == own
            })
    }

    fn place(&mut self, vertex: u32) -> Vec<u32> {
        let (complete, invoke) = self.times[vertex as usize];
        self.ready.remove(&(complete, invoke, vertex));
        self.scheduled[vertex as usize / 64] |= 1 << (vertex % 64);
        self.left -= 1;
        for (_, source) in self.reads_of.row(vertex) {
            self.pending[*source as usize] -= 1;
        }
        let mut replaced = Vec::new();
        for (key, slot) in self.writes_of.row(vertex) {
            replaced.push(std::mem::replace(&mut self.current[*key as usize], *slot));
        }
        let out: Vec<u32> = self.graph.out(vertex, self.set).map(|(to, _)| to).collect();
        for to in out {
            self.waiting[to as usize] -= 1;
            if self.waiting[to as usize] == 0 {
                self.release(to);
            }
        }
        replaced
    }

    fn unplace(&mut self, vertex: u32, replaced: Vec<u32>) {
        let out: Vec<u32> = self.graph.out(vertex, self.set).map(|(to, _)| to).collect();
        for to in out {
            self.waiting[to as usize] += 1;
            if self.waiting[to as usize] == 1 {
                self.unrelease(to);
            }
        }
        for ((key, _), before) in self.writes_of.row(vertex).iter().zip(replaced) {
            self.current[*key as usize] = before;
        }
        for (_, source) in self.reads_of.row(vertex) {
            self.pending[*source as usize] += 1;
        }
        self.left += 1;
        self.scheduled[vertex as usize / 64] &= !(1 << (vertex % 64));
        let (complete, invoke) = self.times[vertex as usize];
        self.ready.insert((complete, invoke, vertex));
    }

    /// Places every ready read: that never hurts. Then the writes that may come next, best last.
    fn settle(&mut self, frame: &mut Frame) {
        loop {
            let reads: Vec<u32> = self
                .ready
                .iter()
                .map(|(_, _, vertex)| *vertex)
                .filter(|vertex| self.writes_of.row(*vertex).is_empty() && self.legal(*vertex))
                .collect();
            if reads.is_empty() {
                break;
            }
            for vertex in reads {
                let replaced = self.place(vertex);
                frame.undo.push((vertex, replaced));
            }
        }
        let next = self.ready.iter().map(|(_, _, vertex)| *vertex).filter(|vertex| self.legal(*vertex));
        frame.untried = next.collect();
        frame.untried.reverse();
    }

    /// True when everything was placed, false when no order exists, nothing when the budget ran out, or at the
    /// first dead end when it may not turn back.
    fn run(mut self, budget: &mut SearchBudget, may_turn_back: bool) -> Option<bool> {
        let mut seen: HashSet<(Vec<u64>, Vec<u32>), FixedState> = HashSet::with_hasher(FixedState);
        let mut frame = Frame { undo: Vec::new(), untried: Vec::new() };
        self.settle(&mut frame);
        let mut frames = vec![frame];
        let mut turned_back = false;
        while self.left > 0 {
            let bytes = 8 * self.scheduled.len() + 4 * self.current.len() + 64;
            // What is remembered only saves time: when it takes too much, it is forgotten.
            if seen.len().saturating_mul(bytes) > budget.bytes {
                seen = HashSet::with_hasher(FixedState);
            }
            let Some(frame) = frames.last_mut() else { return Some(false) };
            if let Some(vertex) = frame.untried.pop() {
                if !budget.step() {
                    return None;
                }
                let mut frame = Frame { undo: Vec::new(), untried: Vec::new() };
                let replaced = self.place(vertex);
                frame.undo.push((vertex, replaced));
                self.settle(&mut frame);
                // Nothing is remembered until the first dead end: the greedy schedule costs no memory.
                if turned_back && !seen.insert((self.scheduled.clone(), self.current.clone())) {
                    frame.untried.clear();
                }
                frames.push(frame);
                continue;
            }
            if !may_turn_back {
                return None;
            }
            turned_back = true;
            let mut done = frames.pop().map(|frame| frame.undo).unwrap_or_default();
            while let Some((vertex, replaced)) = done.pop() {
                self.unplace(vertex, replaced);
            }
        }
        Some(true)
    }
}
