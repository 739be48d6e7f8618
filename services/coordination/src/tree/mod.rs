//! One shard of the tree: nodes, watches of gateways, and the operations that change them.

mod acls;
mod config;
mod execute;
mod meta;
mod names;
mod packed;
mod quotas;
mod read;
mod reshard;
mod snapshot;
mod table;
mod transaction;
mod votes;
mod watches;

use crate::placement::Placement;
pub(crate) use crate::tree::config::{CONFIG, lists};
use crate::tree::meta::{Kind, Meta};
use crate::tree::quotas::Quotas;
use crate::tree::snapshot::Snapshot;
use crate::tree::table::{Node, NodeIndex, Table};
use crate::tree::transaction::{Change, ESSENTIAL};
use crate::tree::watches::{Missed, Notices, Watches};
use crate::wire::{Acl, EventKind, Identity, Permission, RestoredNode, ZkSessionId, name_of, parent_of};
use kernel::{BlobRange, Bytes, DecodeError, NodeId, Recount, SnapshotStep, planted};
use mason::{Gsn, Order, ShardMap, ShardOut, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The znodes of one shard.
#[derive(Debug)]
pub struct Znodes {
    space: Space,
    placement: Placement,
    table: Table,
    /// The ephemeral nodes that live here, by their sessions.
    ephemerals: BTreeMap<ZkSessionId, BTreeSet<NodeIndex>>,
    /// Containers and nodes with a time to live that live here.
    mortal: BTreeSet<NodeIndex>,
    quotas: Quotas,
    watches: Watches,
    snapshot: Option<Snapshot>,
    /// Of the last operation executed.
    gsn: u64,
    /// What was watched before a snapshot was installed, until readers learn what they missed.
    missed: Option<Missed>,
    /// Changes that this server has skipped, and has announced together, by a later number than their own.
    skipped: Range<u64>,
    /// The node whose children's names the next chunk of a snapshot may go on with.
    last_installed: Option<NodeIndex>,
}

/// A node, and its children as its shard knows them: the nodes themselves may live in other shards.
#[derive(Clone, Debug)]
pub struct Kinship<'a> {
    /// Its path.
    pub path: &'a str,
    /// The zxid of its creation.
    pub czxid: u64,
    /// The zxid of the last change of its children.
    pub pzxid: u64,
    /// It goes with its session.
    pub is_ephemeral: bool,
    /// The names of its children.
    pub children: Vec<&'a str>,
}

impl Znodes {
    /// The shard of `space` with the nodes that are always there. `hash_seed` should differ from process to process; nothing
    /// observable depends on it.
    pub fn new(space: Space, placement: Placement, hash_seed: u64) -> Self {
        let mut znodes = Self {
            space,
            placement,
            table: Table::new(hash_seed),
            ephemerals: BTreeMap::new(),
            mortal: BTreeSet::new(),
            quotas: Quotas::default(),
            watches: Watches::default(),
            snapshot: None,
            gsn: 0,
            missed: None,
            skipped: 0..0,
            last_installed: None,
        };
        znodes.plant_essential();
        znodes
    }

    fn plant_essential(&mut self) {
        let readable: Arc<[Acl]> =
            Arc::new([Acl { permissions: Permission::READ.0, who: Identity::new("world", "anyone") }]);
        for path in ESSENTIAL {
            // ZooKeeper sets this node's list with version -1, and keeps that.
            let (acl, aversion) = if path == CONFIG { (&readable, -1) } else { (self.table.acls.open(), 0) };
            let meta = Meta {
                czxid: 0,
                mzxid: 0,
                pzxid: 0,
                ctime: 0,
                mtime: 0,
                version: 0,
                creates: 0,
                aversion,
                kind: Kind::Persistent,
                children: 0,
                data_len: 0,
                acl: acl.clone(),
            };
            if self.owns(path) {
                self.table.insert(path, Some(b""), &meta);
            }
            if let Some(parent) = parent_of(path).filter(|&parent| parent != path && self.owns(parent)) {
                let found = self.table.find(parent).map(|(index, _)| index);
                found.and_then(|index| {
                    self.table.change(index, |node, _| node.update_directory(&meta).insert(name_of(path)))
                });
            }
        }
    }

    fn owns(&self, path: &str) -> bool {
        self.placement.space_of(path) == self.space
    }

    /// How many nodes live here.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if no node is here.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// The last operation that the state has, for invariants.
    pub fn gsn(&self) -> u64 {
        self.gsn
    }

    /// The paths of the nodes that live here, for invariants.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|node| node.path())
    }

    /// Shows all nodes that are here as they can be restored, in any order: neither those of sessions nor those that every tree has.
    pub fn restorable(&self, mut show: impl FnMut(&RestoredNode<'_>)) {
        for node in self.table.iter().filter(|node| !ESSENTIAL.contains(&node.path())) {
            let meta = node.meta(&self.table.acls);
            let (flags, ttl) = match meta.kind {
                Kind::Persistent => (0, -1),
                Kind::Container => (4, -1),
                Kind::Ttl(milliseconds) => (5, milliseconds as i64),
                Kind::Ephemeral(_) => continue,
            };
            show(&RestoredNode {
                path: node.path(),
                data: node.data(),
                acl: meta.acl.to_vec(),
                flags,
                ttl,
                version: meta.version,
                creates: meta.creates,
                aversion: meta.aversion,
                ctime: meta.ctime as i64,
                mtime: meta.mtime as i64,
            });
        }
    }

    /// A node that is here and belongs elsewhere, for invariants.
    pub fn misplaced(&self) -> Option<&str> {
        self.paths().find(|path| !self.owns(path))
    }

    /// The nodes that live here with the names of their children, for invariants.
    pub fn kinships(&self) -> impl Iterator<Item = Kinship<'_>> {
        self.table.iter().map(|node| {
            let meta = node.meta(&self.table.acls);
            let children = node.directory().into_iter().flat_map(|directory| directory.names.iter());
            Kinship {
                path: node.path(),
                czxid: meta.czxid,
                pzxid: meta.pzxid,
                is_ephemeral: matches!(meta.kind, Kind::Ephemeral(_)),
                children: children.collect(),
            }
        })
    }

    /// The sessions that own ephemeral nodes here, for invariants.
    pub fn owners(&self) -> impl Iterator<Item = ZkSessionId> {
        self.ephemerals.keys().copied()
    }

    /// Whether a node is here, for invariants.
    pub fn contains(&self, path: &str) -> bool {
        self.table.find(path).is_some()
    }

    /// The paths of the ephemeral nodes that live here, for invariants.
    pub fn ephemeral_paths(&self) -> impl Iterator<Item = &str> {
        self.ephemerals.values().flatten().filter_map(|&index| self.table.at(index)).map(|node| node.path())
    }

    /// How many ephemeral nodes a session has here.
    pub fn ephemerals_of(&self, session: ZkSessionId) -> usize {
        self.ephemerals.get(&session).map_or(0, BTreeSet::len)
    }

    /// Carries out what is here of a change, and notes whom to notify. `alone`: no other shard takes part in the operation.
    /// `position`: of the step within its operation.
    fn apply(&mut self, change: &Change<'_>, alone: bool, position: u32, notices: &mut Notices) {
        let path = &*change.path;
        if alone || self.owns(path) {
            self.apply_to_node(change);
            let acl = change.after.as_ref().or(change.before.as_ref()).map(|meta| &meta.acl);
            if let (Some(event), Some(acl)) = (change.event, acl) {
                self.watches.fire(event, path, acl, position * 2, notices);
            }
        }
        if let (Some(meta), Some(parent)) = (&change.parent, parent_of(path))
            && (alone || self.owns(parent))
            && (self.owns(path) || !planted!(parent_half_of_create_missing))
        {
            self.apply_to_parent(parent, meta, path, change.after.is_some());
            self.watches.fire(EventKind::ChildrenChanged, parent, &meta.acl, position * 2 + 1, notices);
        }
    }

    fn apply_to_node(&mut self, change: &Change<'_>) {
        let path = &*change.path;
        let found = self.table.find(path).map(|(index, node)| (index, node.kind()));
        match (found, &change.after) {
            (None, Some(meta)) => {
                self.keep(self.table.next_slot());
                let data = change.data.flatten();
                let index = self.table.insert(path, data, meta);
                self.quotas.inserted(index, path, data.map_or(0, <[u8]>::len));
                match meta.kind {
                    Kind::Ephemeral(session) => {
                        self.ephemerals.entry(session).or_default().insert(index);
                    }
                    Kind::Container | Kind::Ttl(_) => {
                        self.mortal.insert(index);
                    }
                    Kind::Persistent => {}
                }
            }
            (Some((index, _)), Some(meta)) => {
                self.keep(index);
                if let Some(data) = change.data {
                    let before = self.table.at(index).and_then(Node::data).map_or(0, <[u8]>::len);
                    self.quotas.updated(path, before, data.map_or(0, <[u8]>::len));
                }
                self.table.change(index, |node, acls| {
                    if **acls.list(node.acl) != *meta.acl {
                        let held = acls.hold(&meta.acl);
                        acls.release(std::mem::replace(&mut node.acl, held));
                    }
                    node.update(meta, change.data);
                });
            }
            (Some((index, kind)), None) => self.remove_node(index, path, kind),
            (None, None) => {}
        }
    }

    fn remove_node(&mut self, index: NodeIndex, path: &str, kind: Kind) {
        self.keep(index);
        let bytes = self.table.at(index).and_then(Node::data).map_or(0, <[u8]>::len);
        self.quotas.removed(index, path, bytes);
        self.table.remove(index);
        self.mortal.remove(&index);
        if let Kind::Ephemeral(session) = kind
            && let Some(owned) = self.ephemerals.get_mut(&session)
        {
            owned.remove(&index);
            if owned.is_empty() {
                self.ephemerals.remove(&session);
            }
        }
    }

    fn apply_to_parent(&mut self, parent: &str, meta: &Meta, child: &str, comes: bool) {
        let Some((index, _)) = self.table.find(parent) else { return };
        self.keep(index);
        self.table.change(index, |node, _| {
            let names = node.update_directory(meta);
            if comes { names.insert(name_of(child)) } else { names.remove(name_of(child)) }
        });
    }
}

impl mason::Shard for Znodes {
    fn inputs(&self, body: &[u8], order: &Order, out: &mut Vec<u8>) {
        self.write_inputs(body, order, out);
    }

    fn execute(&mut self, body: &Bytes, order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut) {
        let mut notices = Notices::default();
        self.notify_missed(&mut notices);
        self.execute_body(body, order, others, out.answer(), &mut notices);
        let (gsn, last) = (order.gsn.0, self.gsn);
        kernel::invariant!(ORDER, gsn > last, "zxid {gsn:#x} is executed after {last:#x}");
        self.gsn = gsn;
        notices.send(out);
    }

    fn read(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        self.answer_query(reader, query, out);
        None
    }

    fn answer_bytes(&self, query: &[u8]) -> Option<usize> {
        self.size_of_answer(query)
    }

    fn forget_reader(&mut self, reader: NodeId) {
        self.watches.forget_reader(reader);
    }

    fn begin_snapshot(&mut self) {
        self.snapshot = Some(Snapshot::begin(&self.table, self.gsn));
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        self.write_snapshot(budget, chunk)
    }

    fn reset(&mut self) {
        self.remember_watched();
        self.table.clear();
        self.ephemerals.clear();
        self.mortal.clear();
        self.quotas.clear();
        self.snapshot = None;
        self.last_installed = None;
        self.gsn = 0;
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.install_chunk(chunk).map_err(|_| DecodeError::Invalid("snapshot of znodes"))
    }

    fn installed(&mut self, out: &mut ShardOut) {
        let mut notices = Notices::default();
        self.notify_missed(&mut notices);
        notices.send(out);
    }

    fn recounts(&self) -> Vec<Recount> {
        let (mut ephemeral, mut mortal) = (0, 0);
        for node in self.table.iter() {
            match node.meta(&self.table.acls).kind {
                Kind::Ephemeral(_) => ephemeral += 1,
                Kind::Container | Kind::Ttl(_) => mortal += 1,
                Kind::Persistent => {}
            }
        }
        let owned = self.ephemerals.values().map(BTreeSet::len).sum();
        let mut recounts = vec![
            Recount::of("ephemeral nodes", owned, ephemeral),
            Recount::of("nodes that end by themselves", self.mortal.len(), mortal),
            self.watches.recount(),
        ];
        recounts.extend(self.recount_quotas());
        recounts
    }

    fn digest(&self) -> u64 {
        self.table.digest() ^ self.gsn.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn as_resharded(&self) -> Option<&dyn mason::Resharded> {
        Some(self)
    }

    fn as_resharded_mut(&mut self) -> Option<&mut dyn mason::Resharded> {
        Some(self)
    }
}

impl mason::Resharded for Znodes {
    fn use_shard_map(&mut self, shard_map: &ShardMap) {
        self.placement = self.placement.over(shard_map.shards);
    }

    fn leaving(&self, shard_map: &ShardMap, page_bytes: usize) -> Vec<(Space, Vec<Bytes>)> {
        self.pages_leaving(shard_map, page_bytes)
    }

    fn watches_leaving(&mut self, shard_map: &ShardMap, through: Gsn) -> Vec<(Space, Bytes)> {
        self.take_watches_leaving(shard_map, through)
    }

    fn reshard(&mut self, shard_map: &ShardMap, order: &Order, pages: &[(Space, Vec<Bytes>)]) {
        self.take_pages(shard_map, pages);
        self.gsn = order.gsn.0;
    }

    fn take_watches(&mut self, watches: &Bytes, out: &mut ShardOut) {
        let mut notices = Notices::default();
        self.take_watches_given(watches, &mut notices);
        notices.send(out);
    }
}
