//! Linearizability of one register when every read names its write but nothing reports the order of writes.
//!
//! Gibbons and Korach (1997): a write and its readers form a cluster with the zone between its first answer and
//! its last invocation. The register is linearizable iff no read answers before its write is invoked and no two
//! clusters must each precede the other. O(n log n).

use crate::history::{History, OpIndex, Symbol};
use crate::order::{NONE, Resolved};
use crate::terms::Time;
use std::collections::BTreeMap;

/// Two clusters that each must come first, or a read before its write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Conflict {
    /// In pairs: the first of each pair answered before the second was invoked.
    pub(crate) pairs: Vec<(OpIndex, OpIndex)>,
}

/// A cluster: who answered first and who was invoked last.
#[derive(Clone, Copy)]
struct Cluster {
    first_answer: (Time, OpIndex),
    last_invoked: (Time, OpIndex),
    /// The cluster of the initial version, which precedes all others.
    initial: bool,
}

/// Looks for a conflict on `key`.
pub(crate) fn conflict(history: &History, resolved: &Resolved, key: Symbol) -> Option<Conflict> {
    let operation = |vertex: u32| {
        let op = resolved.vertices[vertex as usize];
        (op, &history.operations()[op.at()])
    };
    let mut clusters: BTreeMap<u32, Cluster> = BTreeMap::new();
    for (slot, write) in resolved.writes.iter().enumerate() {
        if write.key == key && write.vertex != NONE {
            let (op, write) = operation(write.vertex);
            let (first_answer, last_invoked) = ((write.complete, op), (write.invoke, op));
            clusters.insert(slot as u32, Cluster { first_answer, last_invoked, initial: false });
        }
    }
    for read in resolved.reads.iter().filter(|read| read.key == key) {
        let (op, reader) = operation(read.vertex);
        let (answer, invoked) = ((reader.complete, op), (reader.invoke, op));
        let fresh = Cluster { first_answer: answer, last_invoked: invoked, initial: true };
        let cluster = clusters.entry(read.source).or_insert(fresh);
        cluster.first_answer = cluster.first_answer.min(answer);
        cluster.last_invoked = cluster.last_invoked.max(invoked);
        if read.source != NONE {
            let (writer, write) = operation(resolved.writes[read.source as usize].vertex);
            if reader.complete < write.invoke {
                return Some(Conflict { pairs: vec![(op, writer)] });
            }
        }
    }
    between(clusters.into_values().collect())
}

/// Two clusters a and b with a's first answer before b's last invocation and the reverse.
fn between(mut clusters: Vec<Cluster>) -> Option<Conflict> {
    if let Some(at) = clusters.iter().position(|cluster| cluster.initial) {
        let initial = clusters.swap_remove(at);
        let early = clusters.iter().min_by_key(|cluster| cluster.first_answer)?;
        if early.first_answer.0 < initial.last_invoked.0 {
            return Some(Conflict { pairs: vec![(early.first_answer.1, initial.last_invoked.1)] });
        }
    }
    // For each b, among the clusters a before it with a's first answer before b's last invocation (a prefix),
    // the one invoked last decides whether b's first answer also comes before a's last invocation.
    clusters.sort_by_key(|cluster| cluster.first_answer);
    let mut latest: Vec<usize> = Vec::with_capacity(clusters.len());
    for at in 0..clusters.len() {
        let before = latest.last().copied().unwrap_or(at);
        let own = clusters[at].last_invoked > clusters[before].last_invoked;
        latest.push(if own { at } else { before });
    }
    for (at, b) in clusters.iter().enumerate() {
        let preceding = clusters.partition_point(|a| a.first_answer.0 < b.last_invoked.0).min(at);
        let Some(last) = preceding.checked_sub(1) else { continue };
        let a = &clusters[latest[last]];
        if b.first_answer.0 < a.last_invoked.0 {
            return Some(Conflict {
                pairs: vec![(a.first_answer.1, b.last_invoked.1), (b.first_answer.1, a.last_invoked.1)],
            });
        }
    }
    None
}
