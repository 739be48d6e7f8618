//! Access control lists, each stored once however many nodes have it.

use crate::wire::{Acl, Identity, OPEN, write_acls};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A list in the table; what it is depends on the history of this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AclId(u32);

#[derive(Debug)]
pub(crate) struct Acls {
    lists: Vec<(Arc<[Acl]>, u32)>,
    ids: BTreeMap<Arc<[Acl]>, u32>,
    free: Vec<u32>,
}

impl Default for Acls {
    fn default() -> Self {
        let open: Arc<[Acl]> = Arc::new([Acl { permissions: OPEN, who: Identity::new("world", "anyone") }]);
        // The open list is never given up.
        Self { lists: vec![(open.clone(), 1)], ids: BTreeMap::from([(open, 0)]), free: Vec::new() }
    }
}

impl Acls {
    /// The list that allows everybody everything.
    pub(crate) fn open(&self) -> &Arc<[Acl]> {
        &self.lists[0].0
    }

    pub(crate) fn list(&self, id: AclId) -> &Arc<[Acl]> {
        &self.lists[id.0 as usize].0
    }

    /// Of the list itself; where it stands in the table differs between servers.
    pub(crate) fn digest(&self, id: AclId) -> u64 {
        if id == AclId::default() {
            return 0;
        }
        let mut text = Vec::new();
        write_acls(self.list(id), &mut text);
        xxh3_64(&text)
    }

    /// One more node has this list.
    pub(crate) fn hold(&mut self, list: &Arc<[Acl]>) -> AclId {
        if Arc::ptr_eq(list, self.open()) {
            self.lists[0].1 += 1;
            return AclId::default();
        }
        if let Some(&id) = self.ids.get(list) {
            self.lists[id as usize].1 += 1;
            return AclId(id);
        }
        let entry = (list.clone(), 1);
        let id = match self.free.pop() {
            Some(id) => {
                self.lists[id as usize] = entry;
                id
            }
            None => {
                self.lists.push(entry);
                self.lists.len() as u32 - 1
            }
        };
        self.ids.insert(list.clone(), id);
        AclId(id)
    }

    /// One node less has it.
    pub(crate) fn release(&mut self, id: AclId) {
        let (list, holders) = &mut self.lists[id.0 as usize];
        *holders -= 1;
        if *holders == 0 {
            self.ids.remove(&**list);
            *list = Arc::new([]);
            self.free.push(id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A list that is given up too early leaves nodes without protection, one that is never given up fills memory.
    #[test]
    fn lists_live_as_long_as_somebody_holds_them() {
        let mut acls = Acls::default();
        let list: Arc<[Acl]> = Arc::new([Acl { permissions: 1, who: Identity::new("ip", "::1") }]);
        let (first, second) = (acls.hold(&list), acls.hold(&list));
        assert_eq!(first, second);
        acls.release(first);
        assert_eq!(acls.list(second), &list);
        acls.release(second);
        let other: Arc<[Acl]> = Arc::new([Acl { permissions: 2, who: Identity::new("ip", "::1") }]);
        assert_eq!(acls.hold(&other), first, "the slot is used again");
        assert_eq!(acls.hold(&acls.open().clone()), AclId(0));
    }
}
