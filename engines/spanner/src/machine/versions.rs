//! The data: versions of keys by commit timestamp, and what is read of them at one.

use kernel::{Bytes, planted};
use parts::Lookup;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use wire::txn::{KeyRange, KeyRow, KeyScan, KeyWrite, READ_BYTES_MAX, ScannedRows, Timestamp};

kernel::record! {
    /// One version of a key.
    #[derive(Eq)]
    pub struct KeyVersion {
        /// The commit that wrote it.
        at: Timestamp,
        /// The commit that created the key, if it exists.
        created: Timestamp,
        /// How often it has been written since, that write included.
        count: u64,
        /// The value; none: deleted.
        value: Option<Bytes>,
    }
}

/// Oldest first; never empty.
type History = SmallVec<[KeyVersion; 1]>;

/// Versions of keys.
///
/// Invariants: the versions of a key have increasing timestamps; the same keys are in `keys` and in `in_order`.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    keys: Lookup<Bytes, History>,
    /// For scans. Reads and writes of one key do not pay for the order.
    in_order: BTreeSet<Bytes>,
    /// What goes when all timestamps below are collected: superseded versions by the timestamp of the next, and deletions by
    /// their own. The least is the first to go; what is added is mostly the greatest, which costs a heap next to nothing.
    superseded: BinaryHeap<Reverse<(Timestamp, Bytes)>>,
    digest: u64,
    /// What is digested is written here.
    digested: Vec<u8>,
    count: usize,
    bytes: usize,
}

impl Versions {
    /// How many keys there are, deleted ones that are remembered included.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// How many versions there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the versions' keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Equal if the versions are, in whatever order they came.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// The versions of a key, oldest first.
    pub(super) fn history(&self, key: &[u8]) -> Option<&[KeyVersion]> {
        self.keys.get(key).map(|(_, history)| &history[..])
    }

    /// All keys from one on, with their versions.
    pub(super) fn from<'a>(
        &'a self,
        first: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Bytes, &'a [KeyVersion])> {
        let keys = self.in_order.range::<[u8], _>((first, Bound::Unbounded));
        keys.map(|key| (key, self.history(key).unwrap_or_default()))
    }

    /// Adds the version that a commit makes.
    pub(super) fn write(&mut self, write: &KeyWrite, at: Timestamp) {
        // What came in a message shares, and keeps alive, all that was read with it.
        let value = write.value.as_deref().map(Bytes::copy_from_slice);
        self.put(&write.key, |last| {
            kernel::invariant!(
                SNAP,
                last.is_none_or(|last| last.at < at),
                "a version at {at} follows one at {:?}",
                last.map(|last| last.at)
            );
            let alive = last.filter(|last| last.value.is_some());
            // The deletion of what never was is a version, too: who sees nothing afterwards has seen the deletion.
            KeyVersion {
                at,
                created: alive.map_or(at, |last| last.created),
                count: alive.map_or(1, |last| last.count + 1),
                value,
            }
        });
    }

    /// Takes a version as another replica has it, later than those that are here.
    pub(super) fn add(&mut self, key: &Bytes, version: KeyVersion) {
        self.put(key, |_| version);
    }

    /// Adds a version that depends on the last one.
    fn put(&mut self, key: &Bytes, version: impl FnOnce(Option<&KeyVersion>) -> KeyVersion) {
        let found = self.keys.get_mut(key);
        let version = version(found.as_ref().and_then(|(_, history)| history.last()));
        self.digest = self.digest.wrapping_add(digest_of(key, &version, &mut self.digested));
        self.count += 1;
        self.bytes += size_of(key, &version);
        let (at, is_deletion) = (version.at, version.value.is_none());
        let superseded = match found {
            Some((stored, history)) => {
                history.push(version);
                Some(stored.clone())
            }
            None => {
                // The key that is stored has memory of its own.
                let key = Bytes::copy_from_slice(key);
                self.keys.insert(key.clone(), smallvec::smallvec![version]);
                self.in_order.insert(key.clone());
                is_deletion.then_some(key)
            }
        };
        if let Some(key) = superseded {
            self.superseded.push(Reverse((at, key)));
        }
    }

    /// Forgets what no read at `below` or later sees, up to `most` keys; calls `changes` with each before it changes. True if there
    /// may be more.
    pub(super) fn collect(
        &mut self,
        below: Timestamp,
        most: usize,
        mut changes: impl FnMut(&Self, &[u8]),
    ) -> bool {
        for _ in 0..most {
            if !self.has_due(below) {
                return false;
            }
            let Some(Reverse((_, key))) = self.superseded.pop() else { return false };
            changes(self, &key);
            self.collect_key(&key, below);
        }
        self.has_due(below)
    }

    fn has_due(&self, below: Timestamp) -> bool {
        self.due().is_some_and(|due| due <= below)
    }

    /// A version goes once this is collected; none if none is to go.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.superseded.peek().map(|Reverse((at, _))| *at)
    }

    fn collect_key(&mut self, key: &Bytes, below: Timestamp) {
        let Some((_, history)) = self.keys.get_mut(key) else { return };
        let seen = history.iter().rposition(|version| version.at <= below);
        // The last one at or below is what a read at `below` sees, unless it sees nothing.
        let gone = seen.map_or(0, |seen| seen + usize::from(history[seen].value.is_none()));
        for version in history.drain(..gone) {
            self.digest = self.digest.wrapping_sub(digest_of(key, &version, &mut self.digested));
            self.count -= 1;
            self.bytes -= size_of(key, &version);
        }
        if history.is_empty() {
            self.keys.remove(key);
            self.in_order.remove(key);
        }
    }

    /// A key as of a timestamp. `unknown`: the timestamp of what is absent without a trace.
    pub(super) fn at(&self, key: &Bytes, at: Timestamp, unknown: Timestamp) -> KeyRow {
        let history = self.history(key).unwrap_or_default();
        let version = history.iter().rev().find(|version| version.at <= at);
        let unknown = if planted!(absent_key_dated_too_early) { Timestamp(0) } else { unknown };
        KeyRow {
            key: key.clone(),
            value: version.and_then(|version| version.value.clone()),
            version: version.map_or(unknown, |version| version.at),
        }
    }

    /// Rows of a scan as of a timestamp, and the newest version that was looked at, deletions included; `bytes` is what may still
    /// be answered.
    pub(super) fn scan(&self, scan: &KeyScan, at: Timestamp, bytes: &mut usize) -> (ScannedRows, Timestamp) {
        let mut found = ScannedRows { rows: Vec::new(), next: None };
        let mut newest = Timestamp(0);
        if scan.range.is_empty() {
            return (found, newest);
        }
        let KeyRange { start, end } = &scan.range;
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        for key in self.in_order.range::<[u8], _>((Bound::Included(&start[..]), upper)) {
            let history = self.history(key).unwrap_or_default();
            let Some(version) = history.iter().rev().find(|version| version.at <= at) else { continue };
            let size = key.len() + version.value.as_ref().map_or(0, Bytes::len) + ROW_BYTES;
            if version.value.is_some() && (found.rows.len() >= scan.limit as usize || size > *bytes) {
                found.next = Some(key.clone());
                break;
            }
            if version.value.is_some() || !planted!(scan_dated_without_deletions) {
                newest = newest.max(version.at);
            }
            if let Some(value) = &version.value {
                *bytes -= size;
                let (key, value) = (key.clone(), Some(value.clone()));
                found.rows.push(KeyRow { key, value, version: version.at });
            }
        }
        (found, newest)
    }
}

/// What a row adds to its key and value on the wire.
pub(super) const ROW_BYTES: usize = 24;

const _: () =
    assert!(READ_BYTES_MAX + (1 << 20) <= kernel::bounds::ANSWER_BYTES_MAX, "what is read fits in an answer");

/// Bytes of a version, with its key.
fn size_of(key: &Bytes, version: &KeyVersion) -> usize {
    key.len() + version.value.as_ref().map_or(0, Bytes::len)
}

fn digest_of(key: &[u8], version: &KeyVersion, bytes: &mut Vec<u8>) -> u64 {
    bytes.clear();
    kernel::Encode::encode(key, bytes);
    kernel::Encode::encode(version, bytes);
    parts::digest(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn put(versions: &mut Versions, name: &'static str, value: Option<&'static str>, at: u64) {
        versions.write(&KeyWrite { key: key(name), value: value.map(key) }, Timestamp(at));
    }

    fn get(versions: &Versions, name: &'static str, at: u64) -> (Option<Bytes>, u64) {
        let row = versions.at(&key(name), Timestamp(at), Timestamp(0));
        (row.value, row.version.0)
    }

    // A deletion that leaves no version lets a session that saw nothing go back in time.
    #[test]
    fn reads_see_the_last_version_at_or_below() {
        let mut versions = Versions::default();
        put(&mut versions, "a", Some("1"), 10);
        put(&mut versions, "a", None, 20);
        put(&mut versions, "a", Some("2"), 30);
        assert_eq!(get(&versions, "a", 9), (None, 0));
        assert_eq!(get(&versions, "a", 10), (Some(key("1")), 10));
        assert_eq!(get(&versions, "a", 29), (None, 20));
        assert_eq!(get(&versions, "a", 31), (Some(key("2")), 30));
        let history = versions.history(b"a").expect("it was written");
        assert_eq!((history[2].created, history[2].count), (Timestamp(30), 1), "a new key under an old name");
    }

    // A version that goes while a timestamp that is still allowed sees it is a read that lies.
    #[test]
    fn collection_leaves_what_reads_at_the_low_watermark_see() {
        let mut versions = Versions::default();
        for (at, value) in [(10, Some("1")), (20, Some("2")), (30, Some("3"))] {
            put(&mut versions, "a", value, at);
        }
        put(&mut versions, "b", Some("1"), 11);
        put(&mut versions, "b", None, 12);
        let mut changed = Vec::new();
        let more = versions.collect(Timestamp(25), 1, |_, key| changed.push(key.to_vec()));
        assert!(more && changed == [b"b".to_vec()]);
        assert!(!versions.collect(Timestamp(25), 10, |_, _| {}));
        assert_eq!(get(&versions, "a", 25), (Some(key("2")), 20));
        assert_eq!(get(&versions, "a", 19), (None, 0));
        assert_eq!((versions.history(b"b"), versions.count(), versions.keys()), (None, 2, 1));
        // The same versions give the same digest, whatever was there before.
        let mut other = Versions::default();
        let history = versions.history(b"a").expect("two are left").to_vec();
        history.into_iter().for_each(|version| other.add(&key("a"), version));
        assert_eq!(other.digest(), versions.digest());
        assert!(!other.collect(Timestamp(30), 10, |_, _| {}));
        assert_eq!(other.count(), 1, "what was taken over is collected, too");
    }

    // A scan that ends early without saying so loses rows; one that forgets deletions dates its answer too early.
    #[test]
    fn scans_say_where_they_stopped_and_what_they_saw() {
        let mut versions = Versions::default();
        for name in ["a", "b", "c"] {
            put(&mut versions, name, Some(name), 10);
        }
        put(&mut versions, "b", None, 20);
        let scan = |limit, at: u64, mut bytes| {
            let range = KeyRange { start: key("a"), end: None };
            let (found, newest) = versions.scan(&KeyScan { range, limit }, Timestamp(at), &mut bytes);
            let keys: Vec<Bytes> = found.rows.into_iter().map(|row| row.key).collect();
            (keys, found.next, newest.0)
        };
        assert_eq!(scan(9, 19, 1_000), (vec![key("a"), key("b"), key("c")], None, 10));
        assert_eq!(scan(9, 20, 1_000), (vec![key("a"), key("c")], None, 20));
        assert_eq!(scan(1, 20, 1_000), (vec![key("a")], Some(key("c")), 20));
        assert_eq!(scan(9, 20, 30), (vec![key("a")], Some(key("c")), 20), "no room for another row");
    }
}
