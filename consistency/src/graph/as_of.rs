//! Reads as of a timestamp: behind every write of their keys up to it, before every later one.

use super::Edges;
use crate::history::{AccessKind, History, Symbol, Timestamp};
use crate::model::EdgeKind;
use crate::order::{NONE, Resolved};
use crate::terms::Fate;
use std::collections::BTreeMap;

/// A read of one key: as of when, who.
type Reader = (Timestamp, u32);

/// Adds the edges between timestamped writes and the answered reads that say as of when they are. Two chains of barriers for each key,
/// one up and one down its timestamps, make that linear.
pub(super) fn add(history: &History, resolved: &Resolved, edges: &mut Edges) {
    let mut readers: BTreeMap<Symbol, Vec<Reader>> = BTreeMap::new();
    for (vertex, op) in resolved.vertices.iter().enumerate() {
        let operation = &history.operations()[op.at()];
        let (Some(as_of), Fate::Ok) = (operation.as_of, operation.fate) else { continue };
        for access in history.accesses(operation) {
            match access.kind {
                AccessKind::Read(_) | AccessKind::ReadList(_) => {
                    let reader = (Timestamp::version(as_of.0), vertex as u32);
                    readers.entry(access.key).or_default().push(reader);
                }
                AccessKind::Write(_) | AccessKind::Append(_) => {}
            }
        }
    }
    let mut writers: BTreeMap<Symbol, Vec<(Timestamp, u32)>> = BTreeMap::new();
    for write in resolved.writes.iter().filter(|write| write.vertex != NONE) {
        if let (Some(timestamp), true) = (write.timestamp, readers.contains_key(&write.key)) {
            writers.entry(write.key).or_default().push((timestamp, write.vertex));
        }
    }
    for (key, mut writers) in writers {
        writers.sort_unstable();
        one_key(&readers[&key], &writers, edges);
    }
}

fn one_key(readers: &[Reader], writers: &[(Timestamp, u32)], edges: &mut Edges) {
    let until = edges.vertices as u32;
    for (position, (_, writer)) in writers.iter().enumerate() {
        let barrier = edges.vertex();
        edges.add(*writer, barrier, EdgeKind::AsOf);
        if position > 0 {
            edges.add(barrier - 1, barrier, EdgeKind::AsOf);
        }
    }
    let from = edges.vertices as u32;
    for (position, (_, writer)) in writers.iter().enumerate() {
        let barrier = edges.vertex();
        edges.add(barrier, *writer, EdgeKind::AsOf);
        if position > 0 {
            edges.add(barrier - 1, barrier, EdgeKind::AsOf);
        }
    }
    for (as_of, reader) in readers {
        let shown = writers.partition_point(|(timestamp, _)| timestamp <= as_of) as u32;
        if shown > 0 {
            edges.add(until + shown - 1, *reader, EdgeKind::AsOf);
        }
        if shown < writers.len() as u32 {
            edges.add(*reader, from + shown, EdgeKind::AsOf);
        }
    }
}
