//! LogMap and ShardedMap (the paper's sections 4 and 4.1): a key's shard is a colour. Linearizable.

use super::log::MapLog;
use super::scan::{KeysFrom, KeysInOrder, MapKeys, MapScan, MapScanPoint, PageSoFar};
use super::shard::{MapShard, MapView, ShardPlayed, status_of, store_each, sync_each};
use super::stored::{StoreError, ViewLimits};
use super::{detached, entry_bytes, key_hash};
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, Decode as _, DecodeError, Encode as _};
use std::collections::BTreeMap;
use std::ops::Bound;
use wire::fuzzylog::{FuzzyFailure, NumberedBy};

kernel::record! {
    /// A change of a map: keys and their values, in order; no value deletes.
    pub struct MapChange {
        /// The keys.
        keys: Vec<Bytes>,
        /// Their values.
        values: Vec<Option<Bytes>>,
    }
}

impl MapChange {
    /// One key's.
    pub fn one(key: &str, value: Option<Bytes>) -> Self {
        Self { keys: vec![Bytes::copy_from_slice(key.as_bytes())], values: vec![value] }
    }
}

kernel::record! {
    /// The view, as it is stored.
    pub struct StoredValues {
        /// The keys.
        keys: Vec<Bytes>,
        /// Their values.
        values: Vec<Bytes>,
    }
}

/// The view of a shard: the last value of each key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LatestValues {
    values: BTreeMap<Bytes, Bytes>,
    /// What they take in memory.
    bytes: usize,
}

impl LatestValues {
    /// What a key holds.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.values.get(key.as_bytes()).cloned()
    }
}

impl KeysInOrder for LatestValues {
    type Held = Bytes;

    fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, Bytes> {
        let keys = self.values.range::<[u8], _>((from, Bound::Unbounded));
        Box::new(keys.map(|(key, value)| (key, value.clone())))
    }

    fn len_of(value: &Bytes) -> usize {
        value.len()
    }
}

impl MapView for LatestValues {
    fn play(&mut self, node: &FuzzyNode) {
        let Ok(change) = MapChange::decoded(&node.body) else { return };
        for (key, value) in change.keys.into_iter().zip(change.values) {
            let before = match &value {
                Some(value) => self.values.insert(detached(&key), detached(value)),
                None => self.values.remove(&key),
            };
            let bytes = |value: Option<Bytes>| value.map_or(0, |value| entry_bytes(&key, &value));
            self.bytes = self.bytes + bytes(value) - bytes(before);
        }
    }

    fn stored(&self) -> Vec<u8> {
        let (keys, values) = self.values.iter().map(|(key, value)| (key.clone(), value.clone())).unzip();
        StoredValues { keys, values }.encoded()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredValues { keys, values } = StoredValues::decoded(stored)?;
        self.values = keys.iter().map(detached).zip(values.iter().map(detached)).collect();
        self.bytes = self.values.iter().map(|(key, value)| entry_bytes(key, value)).sum();
        Ok(())
    }

    fn entries(&self) -> usize {
        self.values.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A map over one colour or several, each with some of the keys. Linearizable, key by key and as a whole: a change is one node of one
/// colour, and a read plays its colour to the end first. Cheap to clone.
#[derive(Debug)]
pub struct ShardedMap<L> {
    shards: Vec<MapShard<L, LatestValues>>,
}

impl<L: Clone> Clone for ShardedMap<L> {
    fn clone(&self) -> Self {
        Self { shards: self.shards.clone() }
    }
}

impl<L: MapLog> ShardedMap<L> {
    /// The map `name`, of so many shards; every process must say the same.
    pub fn open(log: &L, name: &str, shards: usize) -> Self {
        let shard = |at| MapShard::new(log.clone(), &format!("{name}.{at}"), LatestValues::default());
        Self { shards: (0..shards.max(1)).map(shard).collect() }
    }

    /// A map over one colour (the paper's LogMap).
    pub fn log_map(log: &L, name: &str) -> Self {
        Self::open(log, name, 1)
    }

    fn shard(&self, key: &str) -> &MapShard<L, LatestValues> {
        &self.shards[key_hash(key) as usize % self.shards.len()]
    }

    /// Sets a key.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<(), FuzzyError> {
        self.change(None, key, Some(value.into())).await
    }

    /// Removes a key.
    pub async fn delete(&self, key: &str) -> Result<(), FuzzyError> {
        self.change(None, key, None).await
    }

    /// Sets a key, or removes it; with a number once, however often and through whichever process it is sent.
    pub async fn change(
        &self,
        by: Option<NumberedBy>,
        key: &str,
        value: Option<Bytes>,
    ) -> Result<(), FuzzyError> {
        let shard = self.shard(key);
        let body = MapChange::one(key, value).encoded();
        shard.log().append_by(by, vec![(shard.colour().to_owned(), body.into())]).await.map(|_| ())
    }

    /// Whether the map is there: it plays the key's colour, of a removed map to its last node.
    ///
    /// # Errors
    /// [`FuzzyError::MapRemoved`].
    pub async fn is_there(&self, key: &str) -> Result<(), FuzzyError> {
        self.shard(key).synced().await.map(drop)
    }

    /// What a key holds.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, FuzzyError> {
        Ok(self.shard(key).synced().await?.view.get(key))
    }

    /// A page of keys and their values, shard by shard, and in order in each. The keys of a shard that are on one page are as they were at one
    /// moment of the call, with everything that was acknowledged before it.
    ///
    /// # Errors
    /// [`FuzzyFailure::Malformed`]: there is no such point.
    pub async fn scan(
        &self,
        scan: &MapScan,
        point: Option<&MapScanPoint>,
    ) -> Result<MapKeys<Bytes>, FuzzyError> {
        let first = point.map_or(0, |point| point.shard);
        if first as usize >= self.shards.len() {
            return Err(FuzzyError::Failed(FuzzyFailure::Malformed));
        }
        let mut page = PageSoFar::empty();
        let mut after = point.and_then(|point| point.after.clone());
        for (at, shard) in (first..).zip(&self.shards[first as usize..]) {
            let before = page.entries.len();
            if page.read(&[&shard.synced().await?.view], scan, after.as_ref()) {
                let last = page.entries[before..].last().map(|(key, _)| key.clone());
                let next = Some(MapScanPoint { shard: at, after: last.or(after) });
                return Ok(MapKeys { entries: page.entries, next });
            }
            after = None;
        }
        Ok(page.ended(false))
    }

    /// Plays everything that was appended before.
    pub async fn sync(&self) -> Result<(), FuzzyError> {
        sync_each(&self.shards).await
    }

    /// What this process has of each shard.
    pub async fn status(&self) -> Vec<ShardPlayed> {
        status_of(&self.shards).await
    }

    /// Stores views where it is time, and trims the log behind them. Returns how many.
    pub async fn store_views(&self, limits: &ViewLimits) -> Result<usize, StoreError> {
        store_each(&self.shards, limits).await
    }
}
