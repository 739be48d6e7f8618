//! Ephemeral nodes that are deleted, by a user or because their session is over: who watches them is notified of both.
//!
//! No user asks for what a clean-up does, so servers are looked at. One that has executed a single operation since the last look shows
//! what that has deleted.

use super::judged::JudgedTree;
use kernel::{HostId, NodeId};
use mason::shard::ShardServer;
use mason::{Number, Space};
use std::collections::{BTreeMap, BTreeSet};

/// An ephemeral node that a server has deleted.
pub(crate) struct Deleted {
    pub(crate) path: String,
    pub(crate) zxid: u64,
    /// When any server of the shard was first seen to have executed it.
    pub(crate) at: u64,
}

/// What servers have had, and how far they were.
#[derive(Default)]
pub(crate) struct Ephemerals {
    had: BTreeMap<NodeId, Had>,
    /// When the server that is furthest first came to a number; both grow.
    reached: BTreeMap<Space, Vec<(Number, u64)>>,
}

struct Had {
    next: Number,
    shard_map: u64,
    paths: BTreeSet<String>,
}

impl Ephemerals {
    pub(crate) fn forget(&mut self, host: HostId) {
        self.had.retain(|node, _| node.host() != host);
    }

    /// What servers have deleted in the last burst.
    pub(crate) fn look<'a>(
        &mut self,
        servers: impl Iterator<Item = (NodeId, &'a ShardServer<JudgedTree>)>,
        now: u64,
    ) -> Vec<Deleted> {
        let mut deleted = Vec::new();
        for (id, server) in servers {
            let (next, shard_map) = (server.next(), server.shard_map().version);
            if self.had.get(&id).is_some_and(|had| had.next == next) {
                continue;
            }
            let reached = self.reached.entry(server.space()).or_default();
            if reached.last().is_none_or(|(furthest, _)| *furthest < next) {
                reached.push((next, now));
            }
            let at = reached[reached.partition_point(|(known, _)| *known < next)].1;
            let paths = server.service().znodes().ephemeral_paths().map(str::to_owned).collect();
            let had = self.had.insert(id, Had { next, shard_map, paths });
            let Some(had) = had.filter(|had| had.next.next() == next && had.shard_map == shard_map) else {
                continue;
            };
            let zxid = server.executed().0;
            let gone = had.paths.into_iter().filter(|path| !server.service().znodes().contains(path));
            deleted.extend(gone.map(|path| Deleted { path, zxid, at }));
        }
        deleted
    }
}
