//! Causal consistency and causal+ (Bouajjani, Enea, Guerraoui, Hamza 2017) with one vector clock per operation.
//!
//! Causal order is process order, messages and reads-from, closed. CC is violated by a cycle, by a read of the
//! initial value with a write of that key before it, and by a read of w with another write of the key between w
//! and the read. CCv adds an edge from each such other write to w and asks for no cycle with those either.

use crate::explain::reasons;
use crate::graph::{Graph, Levels, build, shortest_cycle, smallest_component, topological_order};
use crate::history::{History, OpIndex, Symbol};
use crate::model::{EdgeKind, EdgeSet};
use crate::order::{NONE, Resolved};
use crate::rules::Rules;
use crate::terms::Fate;
use crate::verdict::Verdict;
use crate::witness::Witness;
use std::collections::BTreeMap;

/// WR, SO and MP.
const CAUSAL: EdgeSet =
    EdgeSet::NONE.with(EdgeKind::WriteRead).with(EdgeKind::SessionOrder).with(EdgeKind::Message);

/// Which process, after restarts by unknown fates, and how far along it each vertex stands.
struct Sessions {
    of: Vec<u32>,
    position: Vec<u32>,
    count: usize,
}

impl Sessions {
    fn of(history: &History, resolved: &Resolved) -> Sessions {
        let mut sessions = Sessions {
            of: vec![0; resolved.vertices.len()],
            position: vec![0; resolved.vertices.len()],
            count: 0,
        };
        let (mut process, mut position) = (None, 0);
        for op in history.by_process() {
            let operation = &history.operations()[op.at()];
            if process != Some(operation.process) {
                (process, position) = (Some(operation.process), 0);
                sessions.count += 1;
            }
            let vertex = resolved.vertex_of[op.at()];
            if vertex != NONE {
                position += 1;
                sessions.of[vertex as usize] = sessions.count as u32 - 1;
                sessions.position[vertex as usize] = position;
            }
            if operation.fate == Fate::Unknown {
                process = None;
            }
        }
        sessions
    }
}

/// For each key and session, its writes in session order: (position, vertex).
struct WritesBySession(BTreeMap<(u32, u32), Vec<(u32, u32)>>);

impl WritesBySession {
    fn of(resolved: &Resolved, sessions: &Sessions) -> WritesBySession {
        let mut by_session = WritesBySession(BTreeMap::new());
        for write in resolved.writes.iter().filter(|write| write.vertex != NONE) {
            let session = sessions.of[write.vertex as usize];
            let position = sessions.position[write.vertex as usize];
            by_session.0.entry((write.key.0, session)).or_default().push((position, write.vertex));
        }
        by_session.0.values_mut().for_each(|writes| writes.sort_unstable());
        by_session
    }
}

/// For every vertex, how far along each session its causal past reaches.
struct Clocks {
    width: usize,
    clocks: Vec<u32>,
}

impl Clocks {
    /// Causal order must have no cycle; vertices on one keep an empty past.
    fn of(graph: &Graph, sessions: &Sessions) -> Clocks {
        let width = sessions.count;
        let mut clocks = vec![0u32; graph.len() * width];
        for vertex in topological_order(graph, CAUSAL).unwrap_or_default() {
            let row = vertex as usize * width;
            if graph.is_operation(vertex) {
                let own = row + sessions.of[vertex as usize] as usize;
                clocks[own] = clocks[own].max(sessions.position[vertex as usize]);
            }
            for (to, _) in graph.out(vertex, CAUSAL) {
                for column in 0..width {
                    let mine = clocks[row + column];
                    let theirs = &mut clocks[to as usize * width + column];
                    *theirs = (*theirs).max(mine);
                }
            }
        }
        Clocks { width, clocks }
    }

    fn row(&self, vertex: u32) -> &[u32] {
        &self.clocks[vertex as usize * self.width..(vertex as usize + 1) * self.width]
    }
}

pub(crate) fn check(
    history: &History,
    resolved: &Resolved,
    rules: &Rules,
    memory_max: usize,
    convergent: bool,
) -> Verdict {
    let graph = build(history, resolved, EdgeSet::NONE, Levels::Ignored, rules);
    if let Some(component) = smallest_component(&graph, CAUSAL) {
        let steps = shortest_cycle(&graph, CAUSAL, &component, |vertex| resolved.interval(history, vertex));
        let cycle = reasons(history, resolved, &steps);
        return Verdict::Violated(Witness {
            summary: "a cycle in causal order".to_owned(),
            operations: cycle.iter().map(|reason| reason.before).collect(),
            sentences: cycle.iter().map(|reason| reason.sentence.clone()).collect(),
            cycle,
        });
    }
    let sessions = Sessions::of(history, resolved);
    let needed = graph.len().saturating_mul(sessions.count).saturating_mul(4);
    if needed > memory_max {
        return Verdict::Undecided(format!(
            "vector clocks of {} sessions need {} MiB, more than the budget of {} MiB",
            sessions.count,
            needed >> 20,
            memory_max >> 20
        ));
    }
    let clocks = Clocks::of(&graph, &sessions);
    let by_session = WritesBySession::of(resolved, &sessions);
    let mut conflicts: Vec<(u32, u32, EdgeKind)> = Vec::new();
    for read in &resolved.reads {
        let row = clocks.row(read.vertex);
        let source = if read.source == NONE { NONE } else { resolved.writes[read.source as usize].vertex };
        for ((_, session), writes) in by_session.0.range((read.key.0, 0)..=(read.key.0, u32::MAX)) {
            // The last write of the key in this session that is causally before the read, itself excluded.
            let past = writes.partition_point(|(position, _)| *position <= row[*session as usize]);
            let last =
                writes[..past].iter().rev().map(|(_, vertex)| *vertex).find(|vertex| *vertex != read.vertex);
            let Some(other) = last.filter(|other| *other != source) else { continue };
            let after_source = source == NONE
                || clocks.row(other)[sessions.of[source as usize] as usize]
                    >= sessions.position[source as usize];
            if after_source {
                return Verdict::Violated(hidden(history, resolved, read.key, read.vertex, source, other));
            }
            if convergent {
                conflicts.push((other, source, EdgeKind::WriteWrite));
            }
        }
    }
    if !convergent {
        return Verdict::Holds;
    }
    converges(history, resolved, &graph, &conflicts)
}

/// Whether one arbitration order resolves all conflicts. Only the conflicts are write-write edges here: causal
/// consistency knows no version order.
fn converges(
    history: &History,
    resolved: &Resolved,
    graph: &Graph,
    conflicts: &[(u32, u32, EdgeKind)],
) -> Verdict {
    let set = CAUSAL.with(EdgeKind::WriteWrite);
    let conflicting = graph.only(CAUSAL).with(conflicts);
    let Some(component) = smallest_component(&conflicting, set) else { return Verdict::Holds };
    let steps = shortest_cycle(&conflicting, set, &component, |vertex| resolved.interval(history, vertex));
    let cycle = reasons(history, resolved, &steps);
    Verdict::Violated(Witness {
        summary: "concurrent writes are resolved in different orders (causal, but not causal+)".to_owned(),
        operations: cycle.iter().map(|reason| reason.before).collect(),
        sentences: cycle.iter().map(|reason| reason.sentence.clone()).collect(),
        cycle,
    })
}

fn hidden(
    history: &History,
    resolved: &Resolved,
    key: Symbol,
    reader: u32,
    source: u32,
    other: u32,
) -> Witness {
    let op = |vertex: u32| resolved.vertices[vertex as usize];
    let key = history.keys().value(key);
    let (reader, other) = (op(reader), op(other));
    let mut operations: Vec<OpIndex> = vec![other, reader];
    let sentence = if source == NONE {
        format!(
            "T{} read {key} in its initial state, though T{}'s write of it was in its causal past",
            reader.0, other.0
        )
    } else {
        operations.insert(0, op(source));
        format!(
            "T{} read {key} from T{}, though T{} overwrote that, and both lie in the reader's causal past in this order",
            reader.0,
            op(source).0,
            other.0
        )
    };
    Witness {
        summary: "a read misses a write of its causal past".to_owned(),
        operations,
        cycle: Vec::new(),
        sentences: vec![sentence],
    }
}
