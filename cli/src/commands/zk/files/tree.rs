//! The nodes of a ZooKeeper in memory, and what its transactions do to them.

use coordination::wire::{Acl, parent_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The owner of a container.
const CONTAINER_OWNER: i64 = i64::MIN;
/// Owners with this highest byte are times to live.
const TTL_BYTE: i64 = 0xff;
const TTL_MASK: i64 = 0xff_ffff_ffff;

/// A node.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its data; null is not the same as empty.
    pub data: Option<Vec<u8>>,
    /// Who may do what.
    pub acl: Arc<[Acl]>,
    /// Of the transaction that made it.
    pub czxid: i64,
    /// Milliseconds since 1970.
    pub ctime: i64,
    /// Milliseconds since 1970.
    pub mtime: i64,
    /// Its version.
    pub version: i32,
    /// How many children were ever created.
    pub creates: i32,
    /// The version of its list.
    pub aversion: i32,
    /// Its session, or a kind of node in ZooKeeper's encoding.
    pub owner: i64,
}

impl Node {
    /// Flags of a create, and a time to live; none for an ephemeral node.
    pub fn kind(&self) -> Option<(i32, i64)> {
        match self.owner {
            0 => Some((0, -1)),
            CONTAINER_OWNER => Some((4, -1)),
            owner if owner >> 56 & 0xff == TTL_BYTE => Some((5, owner & TTL_MASK)),
            _ => None,
        }
    }
}

/// All nodes by path; a parent comes before its children.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tree {
    /// The nodes.
    pub nodes: BTreeMap<String, Node>,
    /// The last transaction in it.
    pub zxid: u64,
    /// Sessions that are open, with their timeouts in milliseconds.
    pub sessions: BTreeMap<i64, i32>,
}

/// When a transaction happened.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Its session.
    pub session: i64,
    /// Its position in the order.
    pub zxid: i64,
    /// Milliseconds since 1970.
    pub time: i64,
}

/// A snapshot is taken while transactions go on, so it may hold effects of transactions that are replayed on it. Replaying is made for
/// that: what is there is not made again, what is gone is not missed.
impl Tree {
    /// `creates`: the parent's counter behind this create; -1 where the log is too old to say.
    pub fn create(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        acl: Arc<[Acl]>,
        owner: i64,
        creates: i32,
        at: At,
    ) {
        let known = self.nodes.contains_key(path);
        let Some(parent) = parent_of(path).filter(|parent| *parent != path) else { return };
        if let Some(parent) = self.nodes.get_mut(parent) {
            let creates = if creates == -1 && !known { parent.creates.wrapping_add(1) } else { creates };
            // A counter that has wrapped is behind none.
            if creates.wrapping_sub(parent.creates) > 0 {
                parent.creates = creates;
            }
        } else {
            return;
        }
        if !known {
            let node = Node {
                data: data.map(<[u8]>::to_vec),
                acl,
                czxid: at.zxid,
                ctime: at.time,
                mtime: at.time,
                version: 0,
                creates: 0,
                aversion: 0,
                owner,
            };
            self.nodes.insert(path.to_owned(), node);
        }
    }

    /// Deletes a node.
    pub fn delete(&mut self, path: &str) {
        self.nodes.remove(path);
    }

    /// Sets data.
    pub fn set_data(&mut self, path: &str, data: Option<&[u8]>, version: i32, at: At) {
        if let Some(node) = self.nodes.get_mut(path) {
            (node.data, node.version, node.mtime) = (data.map(<[u8]>::to_vec), version, at.time);
        }
    }

    /// Sets a list.
    pub fn set_acl(&mut self, path: &str, acl: Arc<[Acl]>, version: i32) {
        if let Some(node) = self.nodes.get_mut(path) {
            (node.acl, node.aversion) = (acl, version);
        }
    }

    /// A session ends: its nodes go.
    pub fn close(&mut self, session: i64) {
        self.sessions.remove(&session);
        self.nodes.retain(|_, node| node.owner != session);
    }
}
