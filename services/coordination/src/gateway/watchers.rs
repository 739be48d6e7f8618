//! Which connections watch what, and the rules of D3 about events: who is notified, once or always.

use crate::gateway::connection::{Connection, EntrySeq, Waiting};
use crate::gateway::kinds::Kinds;
use crate::placement::Placement;
use crate::wire::{EventKind, Permission, WatchEvent, allowed, parent_of};
use kernel::{NodeId, Recount};
use mason::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
struct Watcher {
    connection: NodeId,
    kinds: Kinds,
    /// The request that left each kind, by bit.
    since: [EntrySeq; 4],
}

#[derive(Debug, Default)]
struct Watched {
    watchers: Vec<Watcher>,
    /// Whether a recursive watch was ever among them: then every shard knows the path.
    recursive: bool,
}

/// A path that nobody watches any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unwatched {
    pub(crate) path: Arc<str>,
    /// On every shard, and not only on the path's own.
    pub(crate) recursive: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Watchers {
    paths: BTreeMap<Arc<str>, Watched>,
    /// How many entries, of whatever connection and path.
    len: usize,
    recursive: usize,
}

impl Watchers {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = (&Arc<str>, Vec<NodeId>)> {
        let of = |watched: &Watched| watched.watchers.iter().map(|watcher| watcher.connection).collect();
        self.paths.iter().map(move |(path, watched)| (path, of(watched)))
    }

    /// The numbers that stand here and at connections beside what they count.
    pub(crate) fn recounts(&self, connections: &BTreeMap<NodeId, Connection>) -> Vec<Recount> {
        let entries = || self.paths.values().flat_map(|watched| &watched.watchers);
        let recursive = |watcher: &&Watcher| watcher.kinds.has(Kinds::RECURSIVE);
        let of_connections = connections.values().map(|connection| connection.watched.len()).sum();
        let in_spaces = connections.values().flat_map(|connection| connection.watched_spaces.values());
        let recursive_ones = connections.values().map(|connection| connection.recursive as usize).sum();
        vec![
            Recount::of("watchers", self.len, entries().count()),
            Recount::of("paths that connections watch", of_connections, entries().count()),
            Recount::of("the same by spaces", in_spaces.sum::<u32>() as usize, entries().count()),
            Recount::of("watchers of all below", self.recursive, entries().filter(recursive).count()),
            Recount::of("the same of connections", recursive_ones, self.recursive),
        ]
    }

    /// The connection watches from the answer of request `since` on.
    pub(crate) fn register(
        &mut self,
        connection: &mut Connection,
        path: &Arc<str>,
        kinds: Kinds,
        since: EntrySeq,
        placement: &Placement,
    ) {
        let watched = self.paths.entry(path.clone()).or_default();
        watched.recursive |= kinds.has(Kinds::RECURSIVE);
        let node = connection.node;
        let at = match watched.watchers.iter().position(|watcher| watcher.connection == node) {
            Some(at) => at,
            None => {
                watched.watchers.push(Watcher {
                    connection: node,
                    kinds: Kinds(0),
                    since: Default::default(),
                });
                self.len += 1;
                connection.watched.insert(path.clone());
                *connection.watched_spaces.entry(placement.space_of(path)).or_default() += 1;
                watched.watchers.len() - 1
            }
        };
        let watcher = &mut watched.watchers[at];
        let new = Kinds(kinds.0 & !watcher.kinds.0);
        for bit in (0..4).filter(|bit| kinds.0 >> bit & 1 != 0) {
            // Answers of several shards come in any order: the oldest request counts, whose answer comes first.
            let known = new.0 >> bit & 1 == 0;
            watcher.since[bit] = if known { watcher.since[bit].min(since) } else { since };
        }
        watcher.kinds = watcher.kinds.or(kinds);
        if new.has(Kinds::RECURSIVE) {
            self.recursive += 1;
            connection.recursive += 1;
        }
    }

    /// Takes kinds away, and the path if nobody is left.
    fn take(
        &mut self,
        connection: &mut Connection,
        path: &str,
        taken: impl Fn(usize, EntrySeq) -> bool,
        space: Space,
    ) -> Option<Unwatched> {
        let watched = self.paths.get_mut(path)?;
        let at = watched.watchers.iter().position(|watcher| watcher.connection == connection.node)?;
        let watcher = &mut watched.watchers[at];
        let before = watcher.kinds;
        for bit in 0..4 {
            if before.0 >> bit & 1 != 0 && taken(bit, watcher.since[bit]) {
                watcher.kinds.0 &= !(1 << bit);
            }
        }
        let recursive = before.has(Kinds::RECURSIVE) && !watcher.kinds.has(Kinds::RECURSIVE);
        self.recursive -= usize::from(recursive);
        connection.recursive -= u32::from(recursive);
        if watcher.kinds == Kinds(0) {
            watched.watchers.swap_remove(at);
            self.len -= 1;
            connection.watched.remove(path);
            if let Some(count) = connection.watched_spaces.get_mut(&space) {
                *count -= 1;
                if *count == 0 {
                    connection.watched_spaces.remove(&space);
                }
            }
        }
        if !watched.watchers.is_empty() {
            return None;
        }
        let (path, watched) = self.paths.remove_entry(path)?;
        Some(Unwatched { path, recursive: watched.recursive })
    }

    /// The answer of this request is asked for anew: what it left does not count.
    pub(crate) fn take_back(
        &mut self,
        connection: &mut Connection,
        path: &str,
        since: EntrySeq,
        placement: &Placement,
    ) -> Option<Unwatched> {
        self.take(connection, path, |_, left_by| left_by == since, placement.space_of(path))
    }

    pub(crate) fn knows(&self, path: &str) -> bool {
        self.paths.contains_key(path)
    }

    /// Which of `kinds` the connection has on the path.
    pub(crate) fn has(&self, connection: NodeId, path: &str, kinds: Kinds) -> bool {
        let watchers = self.paths.get(path).map(|watched| &watched.watchers[..]).unwrap_or_default();
        watchers.iter().any(|watcher| watcher.connection == connection && watcher.kinds.has(kinds))
    }

    pub(crate) fn remove(
        &mut self,
        connection: &mut Connection,
        path: &str,
        kinds: Kinds,
        placement: &Placement,
    ) -> Option<Unwatched> {
        self.take(connection, path, |bit, _| kinds.0 >> bit & 1 != 0, placement.space_of(path))
    }

    /// The connection is gone.
    pub(crate) fn remove_all(
        &mut self,
        connection: &mut Connection,
        placement: &Placement,
    ) -> Vec<Unwatched> {
        let paths: Vec<Arc<str>> = connection.watched.iter().cloned().collect();
        let removed = paths.iter().filter_map(|path| self.remove(connection, path, Kinds(15), placement));
        removed.collect()
    }

    /// Puts an event where the connections that it concerns will be notified of it. Returns them.
    pub(crate) fn fire(
        &mut self,
        event: &WatchEvent<'_>,
        gsn: u64,
        connections: &mut BTreeMap<NodeId, Connection>,
        placement: &Placement,
    ) -> Vec<NodeId> {
        let Some(kind) = EventKind::of_number(event.kind) else { return Vec::new() };
        let concerned = match kind {
            EventKind::Created | EventKind::DataChanged => {
                Kinds::DATA.or(Kinds::PERSISTENT).or(Kinds::RECURSIVE)
            }
            EventKind::Deleted => Kinds(15),
            EventKind::ChildrenChanged => Kinds::CHILD.or(Kinds::PERSISTENT),
        };
        let spent = Kinds(concerned.0 & 3);
        let mut reported: BTreeMap<NodeId, EntrySeq> = BTreeMap::new();
        let mut notify = |watcher: &Watcher, kinds: Kinds| {
            let kinds = kinds.0 & watcher.kinds.0;
            let oldest = (0..4).filter(|bit| kinds >> bit & 1 != 0).map(|bit| watcher.since[bit]).min();
            if let Some(since) = oldest {
                let after = reported.entry(watcher.connection).or_insert(since);
                *after = since.min(*after);
            }
        };
        let path: Arc<str> = event.path.into();
        let here = self.paths.get(event.path).map(|watched| &watched.watchers[..]).unwrap_or_default();
        here.iter().for_each(|watcher| notify(watcher, concerned));
        let spending: Vec<NodeId> = here
            .iter()
            .filter(|watcher| watcher.kinds.has(spent))
            .map(|watcher| watcher.connection)
            .collect();
        if self.recursive > 0 && kind != EventKind::ChildrenChanged {
            let mut at = event.path;
            while let Some(above) = parent_of(at).filter(|&above| above != at) {
                let watchers = self.paths.get(above).map(|watched| &watched.watchers[..]).unwrap_or_default();
                watchers.iter().for_each(|watcher| notify(watcher, Kinds::RECURSIVE));
                at = above;
            }
        }
        for node in spending {
            if let Some(connection) = connections.get_mut(&node) {
                // The shard has taken its entry back itself.
                self.remove(connection, &path, spent, placement);
            }
        }
        let mut concerned = Vec::new();
        for (node, after) in reported {
            let Some(connection) = connections.get_mut(&node) else { continue };
            if allowed(&event.acls, Permission::READ, &connection.caller).is_ok() {
                let position = (gsn, event.position, path.clone());
                connection.events.insert(position, Waiting { kind, after });
                concerned.push(node);
            }
        }
        concerned
    }
}
