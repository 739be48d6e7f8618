//! Which shards a read is asked of: chosen when the request comes, and anew when the tree is spread over others by then.

use crate::gateway::Gateway;
use crate::gateway::connection::{EntrySeq, Part, Purpose, Read, Work};
use crate::gateway::kinds::Kinds;
use crate::placement::Placement;
use crate::wire::{Caller, Query, WatchSeq};
use kernel::{Bytes, NodeId};
use mason::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Paths that a returning client watches: data, exist, child; persistent, recursive.
pub(crate) type Watched<'a> = ([Vec<&'a str>; 3], [Vec<&'a str>; 2]);

/// Of these, those whose watches fire once.
type WatchedOnce = [Vec<Arc<str>>; 3];

/// Asks the shard of `path`.
pub(crate) fn at(placement: &Placement, path: &str, query: impl Into<Bytes>) -> Part {
    Part::new(placement.space_of(path), query.into())
}

/// Asks all shards.
pub(crate) fn everywhere(placement: &Placement, query: &Bytes) -> Vec<Part> {
    placement.spaces().map(|space| Part::new(space, query.clone())).collect()
}

/// Asks for several nodes: one part a shard; and for each node which part has it.
pub(crate) fn of_nodes(
    placement: &Placement,
    caller: &Caller<'_>,
    reads: &[(i32, &str)],
) -> (Vec<Part>, Vec<u16>) {
    let mut by_space: BTreeMap<Space, Vec<(i32, &str)>> = BTreeMap::new();
    for &(opcode, path) in reads {
        by_space.entry(placement.space_of(path)).or_default().push((opcode, path));
    }
    let part_of = |(_, path): &(i32, &str)| {
        by_space.keys().position(|&space| space == placement.space_of(path)).unwrap_or(0) as u16
    };
    let order = reads.iter().map(part_of).collect();
    let parts = by_space.iter().map(|(&space, reads)| {
        let query = Query::Nodes { caller: caller.clone(), reads: reads.clone() };
        Part::new(space, query.written().into())
    });
    (parts.collect(), order)
}

/// Registers watches of a returning client: one part a shard; and for each part the paths that are watched once.
pub(crate) fn of_watches(
    placement: &Placement,
    (seq, relative_zxid): (WatchSeq, i64),
    (once, [persistent, recursive]): &Watched<'_>,
) -> (Vec<Part>, Vec<WatchedOnce>) {
    let mut by_space: BTreeMap<Space, Watched<'_>> = BTreeMap::new();
    for (list, paths) in once.iter().enumerate() {
        for path in paths {
            by_space.entry(placement.space_of(path)).or_default().0[list].push(path);
        }
    }
    for path in persistent {
        by_space.entry(placement.space_of(path)).or_default().1[0].push(path);
    }
    for path in recursive {
        for space in placement.spaces() {
            by_space.entry(space).or_default().1[1].push(path);
        }
    }
    let (mut parts, mut retained) = (Vec::new(), Vec::new());
    for (space, (paths, lasting)) in by_space {
        retained.push(paths.clone().map(|paths| paths.into_iter().map(Arc::from).collect()));
        let query = Query::SetWatches { seq, relative_zxid, paths, lasting };
        parts.push(Part::new(space, query.written().into()));
    }
    (parts, retained)
}

/// Chooses the shards of a read anew; what it asks stays.
pub(crate) fn choose_anew(placement: &Placement, version: u64, read: &mut Read) {
    read.shard_map = version;
    let queries: Vec<Bytes> = read.parts.iter().map(|part| part.query.clone()).collect();
    // This gateway wrote them.
    let asked = || queries.iter().filter_map(|query| Query::read(query).ok());
    read.parts = match &mut read.purpose {
        Purpose::Node { path, .. } => vec![at(placement, path, queries[0].clone())],
        Purpose::Survey(_) => {
            let parts = asked().zip(&queries).filter_map(|(asked, query)| match asked {
                Query::Node { path, .. } => Some(at(placement, path, query.clone())),
                _ => None,
            });
            parts.collect()
        }
        Purpose::Nodes { parts: order } => {
            let (mut by_part, mut caller) = (Vec::new(), Caller::default());
            for query in asked() {
                if let Query::Nodes { caller: same, reads } = query {
                    caller = same;
                    by_part.push(reads.into_iter());
                }
            }
            let next = |part: &u16| by_part.get_mut(usize::from(*part))?.next();
            let reads: Vec<(i32, &str)> = order.iter().filter_map(next).collect();
            let (parts, chosen) = of_nodes(placement, &caller, &reads);
            *order = chosen;
            parts
        }
        Purpose::SetWatches { paths, .. } => {
            let (mut watched, mut head) = (Watched::default(), (WatchSeq(0), 0));
            for query in asked() {
                if let Query::SetWatches { seq, relative_zxid, paths, lasting } = query {
                    head = (seq, relative_zxid);
                    watched.0.iter_mut().zip(paths).for_each(|(all, paths)| all.extend(paths));
                    watched.1.iter_mut().zip(lasting).for_each(|(all, paths)| all.extend(paths));
                }
            }
            // Every shard was asked for the recursive ones.
            watched.1[1].sort_unstable();
            watched.1[1].dedup();
            let (parts, retained) = of_watches(placement, head, &watched);
            *paths = retained;
            parts
        }
        Purpose::AddWatch { path, kinds } if *kinds == Kinds::PERSISTENT => {
            vec![at(placement, path, queries[0].clone())]
        }
        Purpose::Descendants => {
            let first = asked().find_map(|asked| match asked {
                Query::Node { path, .. } => Some(at(placement, path, queries[0].clone())),
                _ => None,
            });
            first
                .into_iter()
                .chain(queries.last().into_iter().flat_map(|query| everywhere(placement, query)))
                .collect()
        }
        Purpose::AddWatch { .. } | Purpose::Ephemerals | Purpose::Dump | Purpose::Greeting { .. } => {
            queries.first().map(|query| everywhere(placement, query)).unwrap_or_default()
        }
    };
    read.unanswered = read.parts.len();
}

impl Gateway {
    /// A shard would not answer a part, because others have what it had: all of the read is asked anew.
    pub(crate) fn ask_anew(&mut self, node: NodeId, seq: EntrySeq, asked: u64) {
        let (placement, version) = (self.settings.placement, self.marks.shard_map().version);
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let Some(Work::Read(read)) = connection.entry(seq).map(|entry| &mut entry.work) else { return };
        if read.shard_map != asked || asked >= version {
            return;
        }
        let left: Vec<Arc<str>> = match &read.purpose {
            Purpose::Node { path, watch: true, .. } | Purpose::AddWatch { path, .. } => vec![path.clone()],
            Purpose::SetWatches { paths, lasting } => {
                let once = paths.iter().flatten().flatten().cloned();
                once.chain(lasting.iter().map(|(path, _)| path.clone())).collect()
            }
            Purpose::Node { watch: false, .. }
            | Purpose::Nodes { .. }
            | Purpose::Ephemerals
            | Purpose::Dump
            | Purpose::Descendants
            | Purpose::Greeting { .. }
            | Purpose::Survey(_) => Vec::new(),
        };
        let room = read.room();
        choose_anew(&placement, version, read);
        read.sent = false;
        self.pool.release(&mut connection.account, room);
        connection.next = connection.next.min(seq);
        self.runnable.insert(node);
        if !left.is_empty() {
            // What the first answers left is void: the client never sees those answers.
            connection.events.retain(|_, event| event.after != seq);
        }
        for path in left {
            let Some(connection) = self.connections.get_mut(&node) else { return };
            let unwatched = self.watchers.take_back(connection, &path, seq, &placement);
            self.forget(unwatched);
        }
        self.metrics.reads_again += 1;
    }
}
