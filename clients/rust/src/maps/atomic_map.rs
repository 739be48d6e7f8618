//! AtomicMap (the paper's section 4.1): changes of keys in several shards, all or none.

use super::key_hash;
use super::log::MapLog;
use super::log_map::{LatestValues, MapChange};
use super::scan::{MapKeys, MapScan, MapScanPoint, page_of};
use super::shard::{LockedView, MapShard, ShardPlayed, play_to_one_point, status_of, store_each, sync_each};
use super::stored::{StoreError, ViewLimits};
use crate::fuzzylog::FuzzyError;
use kernel::{Bytes, Encode as _, planted};
use std::collections::{BTreeMap, BTreeSet};
use wire::fuzzylog::NumberedBy;

/// A map over several colours whose changes may concern many keys. Serializable, in an order that each session's own order agrees
/// with; not strictly, unless the log's order is: two changes of different keys may be seen in an order that real time contradicts. Cheap
/// to clone.
#[derive(Debug)]
pub struct AtomicMap<L> {
    shards: Vec<MapShard<L, LatestValues>>,
    log: L,
}

impl<L: Clone> Clone for AtomicMap<L> {
    fn clone(&self) -> Self {
        Self { shards: self.shards.clone(), log: self.log.clone() }
    }
}

impl<L: MapLog> AtomicMap<L> {
    /// The map `name`, of so many shards, at most 64; every process must say the same.
    pub fn open(log: &L, name: &str, shards: usize) -> Self {
        let shard = |at| MapShard::new(log.clone(), &format!("{name}.{at}"), LatestValues::default());
        let shards = (0..shards.clamp(1, wire::fuzzylog::COLOURS_MAX)).map(shard).collect();
        Self { shards, log: log.clone() }
    }

    fn shard_of(&self, key: &str) -> usize {
        key_hash(key) as usize % self.shards.len()
    }

    /// Sets keys, or removes those that have no value: all or none. A key that is named twice has its last value.
    pub async fn put_all<K: AsRef<str>>(
        &self,
        changes: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<(), FuzzyError> {
        self.change_all(None, changes).await
    }

    /// The same; with a number once, however often and through whichever process it is sent.
    pub async fn change_all<K: AsRef<str>>(
        &self,
        by: Option<NumberedBy>,
        changes: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<(), FuzzyError> {
        let mut bodies: BTreeMap<usize, MapChange> = BTreeMap::new();
        for (key, value) in changes {
            let key = key.as_ref();
            let empty = || MapChange { keys: Vec::new(), values: Vec::new() };
            let change = bodies.entry(self.shard_of(key)).or_insert_with(empty);
            change.keys.push(Bytes::copy_from_slice(key.as_bytes()));
            change.values.push(value);
        }
        let name = |at: usize| self.shards[at].colour().to_owned();
        let bodies = bodies.into_iter().map(|(at, change)| (name(at), change.encoded().into()));
        self.log.append_by(by, bodies.collect()).await.map(|_| ())
    }

    /// Sets a key.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<(), FuzzyError> {
        self.put_all([(key, Some(value.into()))]).await
    }

    /// Removes a key.
    pub async fn delete(&self, key: &str) -> Result<(), FuzzyError> {
        self.put_all([(key, None)]).await
    }

    /// Whether the map is there: it plays the key's colour, of a removed map to its last node.
    ///
    /// # Errors
    /// [`FuzzyError::MapRemoved`].
    pub async fn is_there(&self, key: &str) -> Result<(), FuzzyError> {
        self.shards[self.shard_of(key)].synced().await.map(drop)
    }

    /// What a key holds, with everything that was acknowledged before.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, FuzzyError> {
        Ok(self.shards[self.shard_of(key)].synced().await?.view.get(key))
    }

    /// The views of some shards at one point of the order.
    async fn at_one_point(
        &self,
        shards: impl Iterator<Item = usize>,
    ) -> Result<Vec<LockedView<'_, L, LatestValues>>, FuzzyError> {
        // Nobody plays on while this is between the snapshot and the views: they would go beyond it. Everybody locks in one order.
        let mut views = Vec::new();
        for at in shards {
            views.push(self.shards[at].locked().await);
        }
        match &mut views[..] {
            [] => {}
            [view] => view.catch_up().await?,
            views if planted!(read_goes_colour_by_colour) => {
                for view in views {
                    view.catch_up().await?;
                }
            }
            views => play_to_one_point(&self.log, views).await?,
        }
        Ok(views)
    }

    /// A page of keys and their values, in order, all at one point of the order of changes.
    pub async fn scan(
        &self,
        scan: &MapScan,
        point: Option<&MapScanPoint>,
    ) -> Result<MapKeys<Bytes>, FuzzyError> {
        let views = self.at_one_point(0..self.shards.len()).await?;
        let views: Vec<_> = views.iter().map(|it| &it.played.view).collect();
        Ok(page_of(&views, scan, point))
    }

    /// What keys hold, all at one point of the order: no change is half seen.
    pub async fn get_all<K: AsRef<str>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>, FuzzyError> {
        let shards: BTreeSet<usize> = keys.iter().map(|key| self.shard_of(key.as_ref())).collect();
        let views = self.at_one_point(shards.iter().copied()).await?;
        let played: BTreeMap<usize, _> = shards.into_iter().zip(&views).collect();
        let get = |key: &K| played.get(&self.shard_of(key.as_ref()))?.played.view.get(key.as_ref());
        Ok(keys.iter().map(get).collect())
    }

    /// Plays everything that was appended before, shard by shard.
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
