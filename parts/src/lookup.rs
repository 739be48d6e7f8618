//! A hash table for keys that users choose, which can be looked up and not iterated.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};

/// Each part grows by itself: moving all entries of a large table at once would stop a host for that long.
const PARTS: usize = 256;

/// A hash table that can be looked up and not iterated, so that nothing depends on its order. The hash is drawn anew in each process:
/// no client can choose keys that collide.
#[derive(Clone)]
pub struct Lookup<K, V> {
    parts: Box<[HashTable<(K, V)>]>,
    hasher: RandomState,
    len: usize,
}

impl<K, V> Default for Lookup<K, V> {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| HashTable::new()).collect();
        Self { parts, hasher: RandomState::new(), len: 0 }
    }
}

impl<K, V> fmt::Debug for Lookup<K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} entries", self.len)
    }
}

/// Bits of a hash that tables do not use while they are small.
fn part_of(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

impl<K: Hash + Eq, V> Lookup<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A key as it is stored, and its value.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let found = self.parts[part_of(hash)].find(hash, |(known, _)| known.borrow() == key);
        found.map(|(key, value)| (key, value))
    }

    /// A key as it is stored, and its value, to be changed.
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<(&K, &mut V)>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let found = self.parts[part_of(hash)].find_mut(hash, |(known, _)| known.borrow() == key);
        found.map(|(key, value)| (&*key, value))
    }

    /// Adds an entry; what was there under the key goes.
    pub fn insert(&mut self, key: K, value: V) {
        let hash = self.hasher.hash_one(&key);
        let (part, hasher) = (&mut self.parts[part_of(hash)], &self.hasher);
        match part.entry(hash, |(known, _)| *known == key, |(known, _)| hasher.hash_one(known)) {
            Entry::Occupied(mut entry) => entry.get_mut().1 = value,
            Entry::Vacant(entry) => {
                entry.insert((key, value));
                self.len += 1;
            }
        }
    }

    /// Removes an entry.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let entry = self.parts[part_of(hash)].find_entry(hash, |(known, _)| known.borrow() == key).ok()?;
        let ((_, value), _) = entry.remove();
        self.len -= 1;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    // An entry that is lost while a part grows, or found under another key, is a value that nobody wrote.
    #[test]
    fn it_holds_what_an_ordered_map_holds() {
        let (mut lookup, mut map) = (Lookup::default(), BTreeMap::new());
        for turn in 0..40_000_u64 {
            let key = turn.wrapping_mul(7_919) % 9_001;
            if turn % 3 == 2 {
                assert_eq!(lookup.remove(&key), map.remove(&key));
            } else {
                lookup.insert(key, turn);
                map.insert(key, turn);
            }
            if let Some((stored, value)) = lookup.get_mut(&(turn % 9_001)) {
                assert_eq!((*stored, Some(&*value)), (turn % 9_001, map.get(&(turn % 9_001))));
                *value += 1;
                map.entry(turn % 9_001).and_modify(|value| *value += 1);
            }
            assert_eq!(lookup.len(), map.len());
        }
        assert!((0..9_001).all(|key| lookup.get(&key).map(|(_, value)| value) == map.get(&key)));
    }
}
