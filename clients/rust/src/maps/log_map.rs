//! LogMap and ShardedMap (the paper's sections 4 and 4.1): a key's shard is a colour. Linearizable.

use super::log::MapLog;
use super::shard::{MapShard, MapView, store_each};
use super::stored::{StoreError, ViewLimits};
use super::{detached, key_hash};
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, Decode as _, DecodeError, Encode as _};
use std::collections::BTreeMap;

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
pub struct LatestValues(BTreeMap<Bytes, Bytes>);

impl LatestValues {
    /// What a key holds.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.0.get(key.as_bytes()).cloned()
    }
}

impl MapView for LatestValues {
    fn play(&mut self, node: &FuzzyNode) {
        let Ok(change) = MapChange::decoded(&node.body) else { return };
        for (key, value) in change.keys.into_iter().zip(change.values) {
            match value {
                Some(value) => self.0.insert(detached(&key), detached(&value)),
                None => self.0.remove(&key),
            };
        }
    }

    fn stored(&self) -> Vec<u8> {
        let (keys, values) = self.0.iter().map(|(key, value)| (key.clone(), value.clone())).unzip();
        StoredValues { keys, values }.encoded()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredValues { keys, values } = StoredValues::decoded(stored)?;
        self.0 = keys.iter().map(detached).zip(values.iter().map(detached)).collect();
        Ok(())
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
        self.change(key, Some(value.into())).await
    }

    /// Removes a key.
    pub async fn delete(&self, key: &str) -> Result<(), FuzzyError> {
        self.change(key, None).await
    }

    async fn change(&self, key: &str, value: Option<Bytes>) -> Result<(), FuzzyError> {
        let shard = self.shard(key);
        let body = MapChange::one(key, value).encoded();
        shard.log().append(vec![(shard.colour().to_owned(), body.into())]).await.map(|_| ())
    }

    /// What a key holds.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, FuzzyError> {
        Ok(self.shard(key).synced().await?.view.get(key))
    }

    /// Stores views where it is time, and trims the log behind them. Returns how many.
    pub async fn store_views(&self, limits: &ViewLimits) -> Result<usize, StoreError> {
        store_each(&self.shards, limits).await
    }
}
