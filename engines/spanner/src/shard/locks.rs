//! Locks on keys and ranges: shared for what is read, exclusive for what is written. A range that is read is locked whole, so that no
//! key appears in it.

use crate::txn::{ReadSet, TxnId};
use kernel::{Bytes, planted};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use wire::txn::{KeyRange, KeyWrite};

/// What a transaction wants to lock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want<'a> {
    /// Shared, what is read; exclusive, keys that are written afterwards.
    Read(&'a ReadSet, &'a [Bytes]),
    /// Shared, what was read.
    HasRead(&'a [Bytes], &'a [KeyRange]),
    /// Exclusive, what is written.
    Write(&'a [KeyWrite]),
}

impl Want<'_> {
    /// How many locks that are.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Read(what, writes) => what.keys.len() + what.scans.len() + writes.len(),
            Self::HasRead(keys, ranges) => keys.len() + ranges.len(),
            Self::Write(writes) => writes.len(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct KeyLock {
    writer: Option<TxnId>,
    readers: BTreeSet<TxnId>,
}

/// What one transaction holds, each lock once.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// Keys that it has read.
    pub(super) reads: Vec<Bytes>,
    /// Ranges that it has read.
    pub(super) ranges: Vec<KeyRange>,
    writes: Vec<Bytes>,
}

impl Held {
    /// Keys that it writes.
    pub(super) fn writes(&self) -> &[Bytes] {
        &self.writes
    }
}

/// The lock table of a shard's leader.
///
/// Invariant: no two transactions hold locks that conflict.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    keys: BTreeMap<Bytes, KeyLock>,
    held: BTreeMap<TxnId, Held>,
    /// Who has locked ranges.
    range_readers: BTreeSet<TxnId>,
    count: usize,
}

impl Locks {
    /// How many locks are held.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What a transaction holds.
    pub(super) fn held(&self, txn: &TxnId) -> Option<&Held> {
        self.held.get(txn)
    }

    /// Who writes a key.
    pub(super) fn writer(&self, key: &[u8]) -> Option<TxnId> {
        self.keys.get(key).and_then(|lock| lock.writer)
    }

    /// Who writes keys of a range.
    pub(super) fn writers_in(&self, range: &KeyRange) -> impl Iterator<Item = TxnId> + '_ {
        let upper = range.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let keys =
            (!range.is_empty()).then(|| self.keys.range((Bound::Included(range.start.clone()), upper)));
        keys.into_iter().flatten().filter_map(|(_, lock)| lock.writer)
    }

    /// Others whose locks conflict with these.
    pub(super) fn conflicts(&self, txn: &TxnId, want: Want<'_>) -> BTreeSet<TxnId> {
        let mut others = BTreeSet::new();
        match want {
            Want::Read(what, writes) => {
                others.extend(what.keys.iter().filter_map(|key| self.writer(key)));
                for scan in &what.scans {
                    others.extend(self.writers_in(&scan.range));
                }
                writes.iter().for_each(|key| self.add_holders(key, &mut others));
            }
            Want::HasRead(keys, ranges) => {
                others.extend(keys.iter().filter_map(|key| self.writer(key)));
                for range in ranges {
                    others.extend(self.writers_in(range));
                }
            }
            Want::Write(writes) => {
                writes.iter().for_each(|write| self.add_holders(&write.key, &mut others));
            }
        }
        others.remove(txn);
        others
    }

    /// Two transactions that hold locks which conflict; by the invariant there are none.
    pub(super) fn conflict(&self) -> Option<(TxnId, TxnId)> {
        self.keys.iter().find_map(|(key, lock)| {
            let writer = lock.writer?;
            let readers = lock.readers.iter().copied().chain(self.range_readers_of(key));
            readers.filter(|reader| *reader != writer).map(|reader| (writer, reader)).next()
        })
    }

    /// Adds those who hold a lock of a key, its ranges' included.
    fn add_holders(&self, key: &Bytes, holders: &mut BTreeSet<TxnId>) {
        if let Some(lock) = self.keys.get(key) {
            holders.extend(lock.writer.iter().chain(&lock.readers));
        }
        holders.extend(self.range_readers_of(key));
    }

    fn range_readers_of(&self, key: &Bytes) -> impl Iterator<Item = TxnId> + '_ {
        let key = key.clone();
        self.range_readers.iter().copied().filter(move |reader| {
            let ranges = self.held.get(reader).map(|held| &held.ranges[..]).unwrap_or_default();
            ranges.iter().any(|range| range.contains(&key))
        })
    }

    /// Locks what conflicts with nobody.
    pub(super) fn acquire(&mut self, txn: TxnId, want: Want<'_>) {
        kernel::invariant!(
            LOCK,
            self.conflicts(&txn, want).is_empty() || planted!(scan_locks_found_keys_only),
            "{txn:?} takes locks that {:?} hold",
            self.conflicts(&txn, want)
        );
        match want {
            Want::Read(what, writes) => {
                what.keys.iter().for_each(|key| self.read(txn, key));
                what.scans.iter().for_each(|scan| self.read_range(txn, &scan.range));
                writes.iter().for_each(|key| self.write(txn, key));
            }
            Want::HasRead(keys, ranges) => {
                keys.iter().for_each(|key| self.read(txn, key));
                ranges.iter().for_each(|range| self.read_range(txn, range));
            }
            Want::Write(writes) => writes.iter().for_each(|write| self.write(txn, &write.key)),
        }
    }

    fn write(&mut self, txn: TxnId, key: &Bytes) {
        let key = Bytes::copy_from_slice(key);
        let lock = self.keys.entry(key.clone()).or_default();
        if lock.writer.replace(txn) != Some(txn) {
            self.held.entry(txn).or_default().writes.push(key);
            self.count += 1;
        }
    }

    fn read(&mut self, txn: TxnId, key: &Bytes) {
        let key = Bytes::copy_from_slice(key);
        if self.keys.entry(key.clone()).or_default().readers.insert(txn) {
            self.held.entry(txn).or_default().reads.push(key);
            self.count += 1;
        }
    }

    fn read_range(&mut self, txn: TxnId, range: &KeyRange) {
        if planted!(scan_locks_found_keys_only) {
            return;
        }
        let ranges = &mut self.held.entry(txn).or_default().ranges;
        if !ranges.contains(range) {
            let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
            ranges.push(KeyRange { start: own(&range.start), end: range.end.as_ref().map(own) });
            self.range_readers.insert(txn);
            self.count += 1;
        }
    }

    /// Gives up all that a transaction holds.
    pub(super) fn release(&mut self, txn: &TxnId) {
        let Some(held) = self.held.remove(txn) else { return };
        self.range_readers.remove(txn);
        self.count -= held.reads.len() + held.ranges.len() + held.writes.len();
        for key in held.reads.into_iter().chain(held.writes) {
            let Entry::Occupied(mut entry) = self.keys.entry(key) else { continue };
            let lock = entry.get_mut();
            lock.readers.remove(txn);
            lock.writer = lock.writer.filter(|writer| writer != txn);
            if lock.writer.is_none() && lock.readers.is_empty() {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::NodeId;
    use wire::txn::KeyScan;

    fn txn(number: u64) -> TxnId {
        TxnId { gateway: NodeId::ZERO, incarnation: 1, number }
    }

    fn key(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn reads(keys: &[&'static str], prefixes: &[&'static str]) -> ReadSet {
        let scan = |prefix: &&'static str| KeyScan { range: KeyRange::with_prefix(key(prefix)), limit: 9 };
        ReadSet {
            keys: keys.iter().map(|text| key(text)).collect(),
            scans: prefixes.iter().map(scan).collect(),
        }
    }

    fn writes(keys: &[&'static str]) -> Vec<KeyWrite> {
        keys.iter().map(|text| KeyWrite { key: key(text), value: None }).collect()
    }

    fn found(others: BTreeSet<TxnId>) -> Vec<u64> {
        others.into_iter().map(|txn| txn.number).collect()
    }

    // A range that is locked by the keys that were found in it lets a phantom in.
    #[test]
    fn ranges_are_locked_whole() {
        let mut locks = Locks::default();
        locks.acquire(txn(1), Want::Read(&reads(&["x"], &["p/"]), &[]));
        assert_eq!(found(locks.conflicts(&txn(2), Want::Write(&writes(&["p/new"])))), [1]);
        assert_eq!(found(locks.conflicts(&txn(2), Want::Write(&writes(&["p0"])))), []);
        assert_eq!(found(locks.conflicts(&txn(1), Want::Write(&writes(&["p/new", "x"])))), [], "its own");
        assert_eq!(
            found(locks.conflicts(&txn(2), Want::Read(&reads(&["x"], &["p/"]), &[]))),
            [],
            "both read"
        );
        locks.acquire(txn(2), Want::Read(&reads(&["x"], &[]), &[]));
        assert_eq!(found(locks.conflicts(&txn(1), Want::Write(&writes(&["x"])))), [2], "an upgrade");
        locks.release(&txn(1));
        locks.acquire(txn(3), Want::Write(&writes(&["p/new"])));
        assert_eq!(found(locks.conflicts(&txn(2), Want::Read(&reads(&[], &["p/"]), &[]))), [3]);
        assert_eq!(found(locks.conflicts(&txn(2), Want::HasRead(&[key("p/new")], &[]))), [3]);
        assert_eq!((locks.writer(b"p/new"), locks.count()), (Some(txn(3)), 2));
        // What will be written is locked with the read.
        locks.acquire(txn(4), Want::Read(&reads(&["y"], &[]), &[key("y"), key("z")]));
        assert_eq!(found(locks.conflicts(&txn(5), Want::Read(&reads(&["z"], &[]), &[]))), [4]);
        assert_eq!(found(locks.conflicts(&txn(5), Want::Read(&reads(&[], &[]), &[key("y")]))), [4]);
        assert_eq!(found(locks.conflicts(&txn(4), Want::Write(&writes(&["y", "z"])))), [], "its own");
        locks.acquire(txn(4), Want::Write(&writes(&["y", "z"])));
        assert_eq!(locks.count(), 5);
        locks.release(&txn(4));
        locks.release(&txn(3));
        locks.release(&txn(2));
        assert!(locks.keys.is_empty() && locks.held.is_empty() && locks.range_readers.is_empty());
        assert_eq!(locks.count(), 0);
    }
}
