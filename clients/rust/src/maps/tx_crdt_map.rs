//! TXCRDTMap (the paper's section 4.2): an observed-remove map over several colours, whose changes of many keys are seen as a whole.

use super::crdt_map::{KeyChange, ObservedKeys};
use super::key_hash;
use super::log::MapLog;
use super::named::{self, ChangeName};
use super::scan::{MapKeys, MapScan, MapScanPoint, page_of};
use super::shard::{LockedView, MapShard, MapView, ShardPlayed, follow_to_one_point, status_of, store_each};
use super::stored::{StoreError, ViewLimits};
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, Decode as _, DecodeError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::fuzzylog::NumberedBy;

kernel::record! {
    /// Changes of one shard's keys.
    pub struct ShardChange {
        /// They have one tag.
        changes: Vec<KeyChange>,
    }
}

kernel::record! {
    /// The same as a node holds them.
    pub struct NamedShardChange {
        /// The changes.
        changes: Vec<KeyChange>,
        /// Their name, if they are to be executed once.
        name: Option<ChangeName>,
    }
}

/// The view of a shard.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ObservedChanges(ObservedKeys);

impl MapView for ObservedChanges {
    fn play(&mut self, node: &FuzzyNode) {
        if let Ok(NamedShardChange { changes, name }) = NamedShardChange::decoded(&node.body) {
            self.0.take(&changes, name, node.position);
        }
    }

    fn stored(&self) -> Vec<u8> {
        self.0.stored()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        self.0.load(stored)
    }

    fn entries(&self) -> usize {
        self.0.entries()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// A map over several colours. Causally consistent, and a change of several keys is seen as a whole or not at all: reads go by what this
/// process has played, which is a point of the order of all colours, and ask nobody. Cheap to clone; [`TxCrdtMap::sync`] plays on.
#[derive(Debug)]
pub struct TxCrdtMap<L> {
    shards: Vec<MapShard<L, ObservedChanges>>,
    log: L,
    process: u64,
    /// The count of the last change that was begun here; changed while all views are locked.
    count: Arc<AtomicU64>,
}

impl<L: Clone> Clone for TxCrdtMap<L> {
    fn clone(&self) -> Self {
        let (shards, log, count) = (self.shards.clone(), self.log.clone(), Arc::clone(&self.count));
        Self { shards, log, process: self.process, count }
    }
}

impl<L: MapLog> TxCrdtMap<L> {
    /// The map `name`, of so many shards, at most 64; every process must say the same. `process`: 64 bits that no other process has.
    pub fn open(log: &L, name: &str, shards: usize, process: u64) -> Self {
        let shard = |at| MapShard::new(log.clone(), &format!("{name}.{at}"), ObservedChanges::default());
        let shards = (0..shards.clamp(1, wire::fuzzylog::COLOURS_MAX)).map(shard).collect();
        Self { shards, log: log.clone(), process, count: Arc::default() }
    }

    fn shard_of(&self, key: &str) -> usize {
        key_hash(key) as usize % self.shards.len()
    }

    /// All views: nobody plays on meanwhile. Everybody locks in one order.
    async fn views(&self) -> Vec<LockedView<'_, L, ObservedChanges>> {
        let mut views = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            views.push(shard.locked().await);
        }
        views
    }

    /// Sets keys, or removes what this process knows those to hold that have no value: all or none.
    pub async fn put_all<K: AsRef<str>>(
        &self,
        changes: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<(), FuzzyError> {
        self.change_all(None, changes).await
    }

    /// The same; with a number once, however often and through whichever process it is sent. A map of several regions has no numbers.
    pub async fn change_all<K: AsRef<str>>(
        &self,
        by: Option<NumberedBy>,
        changes: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<(), FuzzyError> {
        let changes: Vec<(K, Option<Bytes>)> = changes.into_iter().collect();
        let name = match by {
            Some(by) => {
                by.check(1)?;
                self.sync().await?;
                Some(named::name_of(by, changes.iter().map(|(key, put)| (key.as_ref(), put))))
            }
            None => None,
        };
        let mut bodies: BTreeMap<usize, ShardChange> = BTreeMap::new();
        {
            let views = self.views().await;
            if let Some(name) = &name {
                let past =
                    |(key, _): &(K, _)| views[self.shard_of(key.as_ref())].played.view.0.names().past(name);
                if named::is_over(&self.log, changes.iter().map(past))? {
                    return Ok(());
                }
            }
            // Later than all that was seen in any shard, and one name for all of it: all copies choose alike, and whole changes.
            let seen = views.iter().map(|it| it.played.view.0.puts().count()).max().unwrap_or(0);
            let count = self.count.load(Ordering::Relaxed).max(seen) + 1;
            self.count.store(count, Ordering::Relaxed);
            for (key, put) in changes {
                let at = self.shard_of(key.as_ref());
                let mut change = views[at].played.view.0.puts().change(key.as_ref(), put, self.process);
                change.tag.count = count;
                let empty = || ShardChange { changes: Vec::new() };
                bodies.entry(at).or_insert_with(empty).changes.push(change);
            }
        }
        let colour = |at: usize| self.shards[at].colour().to_owned();
        let bodies = bodies.into_iter().map(|(at, change)| (colour(at), named::body_of(&change, name)));
        self.log.append(bodies.collect()).await?;
        // Who goes on from here has seen its own change.
        self.sync().await.map_err(FuzzyError::behind_an_append)
    }

    /// What keys hold, as far as this process has played: all at one point of the order.
    pub async fn get_all<K: AsRef<str>>(&self, keys: &[K]) -> Vec<Option<Bytes>> {
        let views = self.views().await;
        keys.iter()
            .map(|key| views[self.shard_of(key.as_ref())].played.view.0.puts().get(key.as_ref()))
            .collect()
    }

    /// A page of keys and what they hold, in order, as far as this process has played: all at one point of the order of changes.
    pub async fn scan(&self, scan: &MapScan, point: Option<&MapScanPoint>) -> MapKeys<Bytes> {
        let views = self.views().await;
        let views: Vec<_> = views.iter().map(|it| it.played.view.0.puts()).collect();
        page_of(&views, scan, point)
    }

    /// Plays everything that was appended before, up to one point of the order of all colours.
    ///
    /// # Errors
    /// What was played remains; until a sync succeeds, changes may be half seen.
    pub async fn sync(&self) -> Result<(), FuzzyError> {
        follow_to_one_point(&self.log, &self.shards).await
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
