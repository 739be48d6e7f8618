//! Real-time edges, sparsely: one chain of barriers per class of sources.

use super::{Edges, Levels, answered};
use crate::history::{AccessKind, History, Operation, Symbol};
use crate::level::Level;
use crate::model::{EdgeKind, EdgeSet};
use crate::order::Resolved;
use crate::rules::Rules;
use crate::terms::Time;

/// An operation that may come after others.
struct Target {
    invoke: Time,
    vertex: u32,
    kind: EdgeKind,
}

/// Adds every real-time class that `wanted` asks for, each among the operations whose levels demand it.
pub(super) fn add(
    history: &History,
    resolved: &Resolved,
    wanted: EdgeSet,
    levels: Levels,
    rules: &Rules,
    edges: &mut Edges,
) {
    let operation = |vertex: usize| &history.operations()[resolved.vertices[vertex].at()];
    let count = resolved.vertices.len();
    let writes: Vec<bool> =
        (0..count).map(|vertex| history.writes(operation(vertex), rules.writes_by_type)).collect();
    let regular: Vec<bool> = (0..count).map(|vertex| levels.of(operation(vertex)).is_regular()).collect();
    let mut all: Vec<(Time, u32)> = (0..count)
        .filter(|vertex| regular[*vertex] && answered(history, resolved.vertices[*vertex]))
        .map(|vertex| (operation(vertex).complete, vertex as u32))
        .collect();
    all.sort_unstable();
    let every = |kind: fn(bool) -> EdgeKind| {
        let (writes, regular) = (&writes, &regular);
        (0..count).filter(|vertex| regular[*vertex]).map(move |vertex| Target {
            invoke: operation(vertex).invoke,
            vertex: vertex as u32,
            kind: kind(writes[vertex]),
        })
    };
    let retained = |kind: EdgeKind| wanted.has(kind);
    if retained(EdgeKind::AnyAnswered) {
        let is_strict = |vertex: u32| levels.of(operation(vertex as usize)) == Level::Strict;
        let kind = |writes| if writes { EdgeKind::AnyBeforeWrite } else { EdgeKind::AnyBeforeRead };
        let strict: Vec<(Time, u32)> = all.iter().copied().filter(|(_, vertex)| is_strict(*vertex)).collect();
        let targets = every(kind).filter(|target| retained(target.kind) && is_strict(target.vertex));
        chain(&strict, targets, EdgeKind::AnyAnswered, rules, edges);
    }
    if retained(EdgeKind::WriteAnswered) {
        let sources: Vec<(Time, u32)> = all
            .iter()
            .copied()
            .filter(|(_, vertex)| writes[*vertex as usize] || rules.real_time_from_reads)
            .collect();
        let kind = |writes| if writes { EdgeKind::WriteBeforeWrite } else { EdgeKind::WriteBeforeRead };
        let targets = every(kind).filter(|target| retained(target.kind));
        chain(&sources, targets, EdgeKind::WriteAnswered, rules, edges);
    }
    if retained(EdgeKind::KeyAnswered) {
        by_key(history, resolved, &writes, &regular, &all, rules, edges);
    }
    if retained(EdgeKind::FenceAnswered) {
        // A fence shows nothing, so none comes after another where what follows it may be weaker than it is.
        let is_target: Vec<bool> = (0..count)
            .map(|vertex| regular[vertex] && !(levels == Levels::Honoured && operation(vertex).fence))
            .collect();
        by_service(history, resolved, &is_target, &all, rules, edges);
    }
}

/// One chain: each source enters at its answer, each target leaves from the last barrier before its invocation.
fn chain(
    sources: &[(Time, u32)],
    targets: impl Iterator<Item = Target>,
    kind: EdgeKind,
    rules: &Rules,
    edges: &mut Edges,
) {
    if sources.is_empty() {
        return;
    }
    let first = edges.vertices as u32;
    for (position, (_, source)) in sources.iter().enumerate() {
        let barrier = edges.vertex();
        edges.add(*source, barrier, kind);
        if position > 0 {
            edges.add(barrier - 1, barrier, kind);
        }
    }
    for target in targets {
        let before = sources.partition_point(|(complete, source)| {
            *complete < target.invoke
                || (rules.half_open && *complete == target.invoke && *source != target.vertex)
        });
        if before > 0 {
            edges.add(first + before as u32 - 1, target.vertex, target.kind);
        }
    }
}

/// One key, one end of an access: who, when.
struct KeyEvent {
    key: Symbol,
    at: Time,
    vertex: u32,
}

/// Per key, from its answered writers to the read-only operations that read it.
fn by_key(
    history: &History,
    resolved: &Resolved,
    writes: &[bool],
    regular: &[bool],
    all: &[(Time, u32)],
    rules: &Rules,
    edges: &mut Edges,
) {
    let operation = |vertex: u32| &history.operations()[resolved.vertices[vertex as usize].at()];
    let mut writers: Vec<KeyEvent> = Vec::new();
    for (complete, vertex) in all.iter().filter(|(_, vertex)| writes[*vertex as usize]) {
        let written = keys(history, operation(*vertex), true);
        writers.extend(written.map(|key| KeyEvent { key, at: *complete, vertex: *vertex }));
    }
    let mut readers: Vec<KeyEvent> = Vec::new();
    let reads_alone = |vertex: &u32| regular[*vertex as usize] && !writes[*vertex as usize];
    for vertex in (0..writes.len() as u32).filter(reads_alone) {
        // An operation of unknown fate that nobody saw is not here, so what is here has read for certain.
        let read = keys(history, operation(vertex), false);
        readers.extend(read.map(|key| KeyEvent { key, at: operation(vertex).invoke, vertex }));
    }
    // Writers are sorted by answer already; a stable sort by key keeps that.
    writers.sort_by_key(|event| event.key);
    readers.sort_by_key(|event| event.key);
    let (mut at, mut reader) = (0, 0);
    while at < writers.len() {
        let key = writers[at].key;
        let own = writers[at..].partition_point(|event| event.key == key);
        reader += readers[reader..].partition_point(|event| event.key < key);
        let reads = readers[reader..].partition_point(|event| event.key == key);
        if reads > 0 {
            let sources: Vec<(Time, u32)> =
                writers[at..at + own].iter().map(|event| (event.at, event.vertex)).collect();
            let targets = readers[reader..reader + reads].iter().map(|event| Target {
                invoke: event.at,
                vertex: event.vertex,
                kind: EdgeKind::KeyBeforeRead,
            });
            chain(&sources, targets, EdgeKind::KeyAnswered, rules, edges);
        }
        at += own;
        reader += reads;
    }
}

fn keys(history: &History, operation: &Operation, written: bool) -> impl Iterator<Item = Symbol> {
    history
        .accesses(operation)
        .iter()
        .filter(move |access| matches!(access.kind, AccessKind::Write(_) | AccessKind::Append(_)) == written)
        .map(|access| access.key)
}

/// Per service, from its answered fences to whatever is invoked there later.
fn by_service(
    history: &History,
    resolved: &Resolved,
    is_target: &[bool],
    all: &[(Time, u32)],
    rules: &Rules,
    edges: &mut Edges,
) {
    let operation = |vertex: u32| &history.operations()[resolved.vertices[vertex as usize].at()];
    let mut fences: Vec<(Symbol, Time, u32)> = all
        .iter()
        .filter(|(_, vertex)| operation(*vertex).fence)
        .map(|(complete, vertex)| (operation(*vertex).service, *complete, *vertex))
        .collect();
    fences.sort_by_key(|(service, _, _)| *service);
    let mut rest = &fences[..];
    while let Some((service, _, _)) = rest.first() {
        let (own, others) = rest.split_at(rest.partition_point(|fence| fence.0 == *service));
        let sources: Vec<(Time, u32)> =
            own.iter().map(|(_, complete, vertex)| (*complete, *vertex)).collect();
        let targets = (0..resolved.vertices.len() as u32)
            .filter(|vertex| is_target[*vertex as usize] && operation(*vertex).service == *service)
            .map(|vertex| Target { invoke: operation(vertex).invoke, vertex, kind: EdgeKind::FenceBefore });
        chain(&sources, targets, EdgeKind::FenceAnswered, rules, edges);
        rest = others;
    }
}
