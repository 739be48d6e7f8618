//! The table: keys by hash for point operations, keys in order for scans.
//!
//! Key and value of an entry share one allocation, so that an update of a value of equal length touches the hash
//! table's line, the entry and the value, and nothing else. The order is held apart and changes only when keys come
//! and go.

use hashbrown::HashTable;
use kernel::Recount;
use std::collections::BTreeSet;
use std::ops::Bound;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

#[derive(Clone, Debug)]
struct Entry {
    /// The key, then the value.
    bytes: Box<[u8]>,
    key_len: u32,
    version: u64,
}

impl Entry {
    fn new(key: &[u8], value: &[u8], version: u64) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self { bytes: bytes.into_boxed_slice(), key_len: key.len() as u32, version }
    }

    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    fn value(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }

    fn digest(&self) -> u64 {
        xxh3_64(&self.bytes)
            ^ (self.version ^ u64::from(self.key_len) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Versioned values by key.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    entries: HashTable<Entry>,
    order: BTreeSet<Box<[u8]>>,
    /// Differs from process to process, so that nobody can prepare keys that collide. Nothing observable depends on it.
    hash_seed: u64,
    digest: u64,
    /// Of all keys and values.
    bytes: u64,
}

impl Table {
    pub(crate) fn new(hash_seed: u64) -> Self {
        Self { entries: HashTable::new(), order: BTreeSet::new(), hash_seed, digest: 0, bytes: 0 }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.hash_seed);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A digest of all keys, values and versions, updated write by write.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The length of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn recounts(&self) -> Vec<Recount> {
        let bytes = self.entries.iter().map(|entry| entry.bytes.len() as u64).sum();
        let digest = self.entries.iter().fold(0, |digest, entry| digest ^ entry.digest());
        vec![
            Recount { what: "bytes of keys and values", known: self.bytes, counted: bytes },
            Recount { what: "digest of keys and values", known: self.digest, counted: digest },
            Recount::of("keys in order", self.order.len(), self.entries.len()),
        ]
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.hash_seed)
    }

    /// Reads the memory lines that a write of this key will need.
    pub(crate) fn touch(&self, key: &[u8]) -> u64 {
        let found = self.entries.find(self.hash(key), |entry| entry.key_len as usize == key.len());
        found.map_or(0, |entry| u64::from(entry.bytes[0]) + u64::from(entry.bytes[entry.bytes.len() - 1]))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<(&[u8], u64)> {
        let entry = self.entries.find(self.hash(key), |entry| entry.key() == key)?;
        Some((entry.value(), entry.version))
    }

    /// Sets a key and returns its version before; 0 if it is new.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], version: u64) -> u64 {
        let hash = self.hash(key);
        if let Some(entry) = self.entries.find_mut(hash, |entry| entry.key() == key) {
            let previous = entry.version;
            self.digest ^= entry.digest();
            self.bytes -= entry.bytes.len() as u64;
            if entry.bytes.len() == key.len() + value.len() {
                entry.bytes[key.len()..].copy_from_slice(value);
                entry.version = version;
            } else {
                *entry = Entry::new(key, value, version);
            }
            self.digest ^= entry.digest();
            self.bytes += entry.bytes.len() as u64;
            return previous;
        }
        let entry = Entry::new(key, value, version);
        self.digest ^= entry.digest();
        self.bytes += entry.bytes.len() as u64;
        let seed = self.hash_seed;
        self.entries.insert_unique(hash, entry, |entry| xxh3_64_with_seed(entry.key(), seed));
        self.order.insert(key.into());
        0
    }

    /// Removes a key and returns its version; 0 if it was not there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> u64 {
        let Ok(found) = self.entries.find_entry(self.hash(key), |entry| entry.key() == key) else { return 0 };
        let (entry, _) = found.remove();
        self.digest ^= entry.digest();
        self.bytes -= entry.bytes.len() as u64;
        if !kernel::planted!(deleted_key_stays_in_order) {
            self.order.remove(key);
        }
        entry.version
    }

    /// Keys above a bound, in order.
    pub(crate) fn keys_above<'t>(&'t self, lower: Bound<&[u8]>) -> impl Iterator<Item = &'t [u8]> + use<'t> {
        self.order.range::<[u8], _>((lower, Bound::Unbounded)).map(|key| &key[..])
    }

    /// Keys from `start` on and below `end`, in order.
    pub(crate) fn range<'a>(
        &'a self,
        start: &'a [u8],
        end: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8], u64)> {
        let empty = end.is_some_and(|end| end <= start);
        let upper = if empty {
            Bound::Excluded(start)
        } else {
            end.map_or(
                Bound::Unbounded,
                if kernel::planted!(scan_includes_its_end) { Bound::Included } else { Bound::Excluded },
            )
        };
        let lower = Bound::Included(start);
        let keys = if empty { None } else { Some(self.order.range::<[u8], _>((lower, upper))) };
        keys.into_iter().flatten().filter_map(|key| {
            let (value, version) = self.get(key)?;
            Some((&key[..], value, version))
        })
    }
}
