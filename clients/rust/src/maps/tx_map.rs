//! TXMap (the paper's section 4.1): transactions that read and write keys of several shards.

use super::key_hash;
use super::log::MapLog;
use super::scan::{MapKeys, MapScan, MapScanPoint, page_of};
use super::shard::{LockedView, MapShard, ShardPlayed, play_to_one_point, status_of, store_each, sync_each};
use super::stored::{StoreError, ViewLimits};
use super::tx_view::{Decision, Intention, MapTxn, TxView, Written, body_of};
use crate::fuzzylog::FuzzyError;
use kernel::{Bytes, Encode as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::fuzzylog::{FuzzyFailure, NumberedBy};

/// Rounds in which a transaction is decided; each plays all colours that are in its way.
const ROUNDS_MAX: usize = 1_000;
/// Points of the order at which a page is tried; at each, some of its keys were in doubt.
const PAGES_MAX: usize = 64;

/// A map over several colours with transactions. Strictly serializable: a transaction is an intention in all its colours, and is applied
/// when each of them has found that nothing was written since it was read. Each process that has the map open decides; nothing else has to run.
/// Cheap to clone.
#[derive(Debug)]
pub struct TxMap<L> {
    shards: Vec<MapShard<L, TxView>>,
    log: L,
    process: u64,
    number: Arc<AtomicU64>,
}

impl<L: Clone> Clone for TxMap<L> {
    fn clone(&self) -> Self {
        let (shards, log, number) = (self.shards.clone(), self.log.clone(), Arc::clone(&self.number));
        Self { shards, log, process: self.process, number }
    }
}

/// A transaction. What is dropped has had no effect.
#[derive(Debug)]
pub struct MapTransaction<'a, L> {
    map: &'a TxMap<L>,
    reads: BTreeMap<String, Written>,
    writes: BTreeMap<String, Option<Bytes>>,
}

impl<L: MapLog> TxMap<L> {
    /// The map `name`, of so many shards, at most 64; every process must say the same. `process`: 64 bits that no other process has.
    pub fn open(log: &L, name: &str, shards: usize, process: u64) -> Self {
        let shard = |at| {
            let colour = format!("{name}.{at}");
            MapShard::new(log.clone(), &colour, TxView::of(&colour))
        };
        let shards = (0..shards.clamp(1, wire::fuzzylog::COLOURS_MAX)).map(shard).collect();
        Self { shards, log: log.clone(), process, number: Arc::default() }
    }

    /// Begins a transaction.
    pub fn begin(&self) -> MapTransaction<'_, L> {
        MapTransaction { map: self, reads: BTreeMap::new(), writes: BTreeMap::new() }
    }

    /// What a key holds, with everything that was committed before.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, FuzzyError> {
        Ok(self.read(key).await?.value)
    }

    /// The same, and which version that is: it has another one after every write. 0: it holds nothing.
    pub async fn get_version(&self, key: &str) -> Result<(Option<Bytes>, u64), FuzzyError> {
        self.read(key).await.map(|read| (read.value, read.version))
    }

    /// A page of keys with their versions and values, in order, all at one point of the order of transactions.
    ///
    /// # Errors
    /// [`FuzzyFailure::Busy`]: at each of 64 points, transactions that write some of these keys were undecided.
    pub async fn scan(
        &self,
        scan: &MapScan,
        point: Option<&MapScanPoint>,
    ) -> Result<MapKeys<(u64, Bytes)>, FuzzyError> {
        let after = point.and_then(|point| point.after.as_ref());
        for _ in 0..PAGES_MAX {
            let doubtful: Vec<usize> = {
                let views = self.at_one_point().await?;
                let views: Vec<_> = views.iter().map(|it| &it.played.view).collect();
                let page = page_of(&views, scan, point);
                let is_doubtful = |view: &TxView| view.makes_doubtful(scan, after, &page);
                let doubtful = views.iter().enumerate().filter(|(_, view)| is_doubtful(view));
                let doubtful: Vec<usize> = doubtful.map(|(at, _)| at).collect();
                if doubtful.is_empty() {
                    return Ok(page);
                }
                doubtful
            };
            self.decide(&doubtful).await?;
        }
        Err(FuzzyError::Failed(FuzzyFailure::Busy))
    }

    /// All views at one point of the order.
    async fn at_one_point(&self) -> Result<Vec<LockedView<'_, L, TxView>>, FuzzyError> {
        let mut views = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            views.push(shard.locked().await);
        }
        match &mut views[..] {
            [view] => view.catch_up().await?,
            views => play_to_one_point(&self.log, views).await?,
        }
        Ok(views)
    }

    /// Plays everything that was appended before, shard by shard, and decides nothing.
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

    fn shard(&self, key: &str) -> usize {
        key_hash(key) as usize % self.shards.len()
    }

    async fn read(&self, key: &str) -> Result<Written, FuzzyError> {
        let shard = self.shard(key);
        let mut before = None;
        for _ in 0..ROUNDS_MAX {
            {
                let played = self.shards[shard].synced().await?;
                // What is appended later need not be waited for.
                let below = *before.get_or_insert(played.next);
                if !played.view.is_in_doubt(key, below) {
                    return Ok(played.view.get(key));
                }
            }
            self.decide(&[shard]).await?;
        }
        Err(FuzzyError::Failed(FuzzyFailure::Busy))
    }

    /// Plays some shards, and those that the first undecided transactions there wait for; appends the decisions that are due.
    async fn decide(&self, shards: &[usize]) -> Result<(), FuzzyError> {
        let mut ahead: Vec<usize> = shards.to_vec();
        let mut seen = 0;
        let mut due: Vec<(Vec<String>, Decision)> = Vec::new();
        while let Some(&at) = ahead.get(seen) {
            seen += 1;
            let mut played = self.shards[at].synced().await?;
            let mut own = played.view.take_due();
            if own.is_empty() {
                // Somebody else took it, and may be gone.
                played.view.remind();
                own = played.view.take_due();
            }
            due.append(&mut own);
            for colour in played.view.awaited() {
                let other = self.shards.iter().position(|shard| shard.colour() == colour);
                ahead.extend(other.filter(|other| !ahead.contains(other)));
            }
        }
        for (colours, decision) in due {
            let body = body_of(decision);
            let bodies = colours.into_iter().map(|colour| (colour, body.clone())).collect();
            self.log.append(bodies).await?;
        }
        Ok(())
    }

    /// Appends an intention, and waits for its outcome.
    async fn commit(&self, by: Option<NumberedBy>, parts: BTreeMap<usize, Part>) -> Result<bool, FuzzyError> {
        let txn = match by {
            // It has the same name through whichever process it comes, and another one than what else may have its number.
            Some(by) => MapTxn { process: digest_of(by.client, &parts), number: by.number },
            None => MapTxn { process: self.process, number: self.number.fetch_add(1, Ordering::Relaxed) },
        };
        let shards: Vec<usize> = parts.keys().copied().collect();
        let Some(&first) = shards.first() else { return Ok(true) };
        let colours: Vec<String> = shards.iter().map(|&at| self.shards[at].colour().to_owned()).collect();
        self.shards[first].view().await.view.want(txn);
        let body = |part: Part| {
            let Part { reads, versions, keys, values } = part;
            body_of(Intention { txn, colours: colours.clone(), reads, versions, keys, values })
        };
        let bodies = colours.iter().cloned().zip(parts.into_values().map(body)).collect();
        let outcome = self.appended(by, bodies, txn, &shards).await;
        if outcome.is_err() {
            self.shards[first].view().await.view.forget(txn);
        }
        outcome
    }

    async fn appended(
        &self,
        by: Option<NumberedBy>,
        bodies: Vec<(String, Bytes)>,
        txn: MapTxn,
        shards: &[usize],
    ) -> Result<bool, FuzzyError> {
        self.log.append_by(by, bodies).await?;
        self.outcome(txn, shards).await.map_err(FuzzyError::behind_an_append)
    }

    /// Waits until a transaction is over that was appended.
    async fn outcome(&self, txn: MapTxn, shards: &[usize]) -> Result<bool, FuzzyError> {
        for _ in 0..ROUNDS_MAX {
            let mut played = self.shards[shards[0]].synced().await?;
            if let Some(outcome) = played.view.outcome(txn) {
                return Ok(outcome);
            }
            if !played.view.is_open(txn) {
                // It is over, and so many others since that no view says how it ended.
                break;
            }
            drop(played);
            self.decide(shards).await?;
        }
        Err(FuzzyError::Failed(FuzzyFailure::Unknown))
    }
}

/// Distinguishes what a client may send under one number (FNV-1a).
fn digest_of(client: u64, parts: &BTreeMap<usize, Part>) -> u64 {
    let mut bytes = client.encoded();
    for (&at, part) in parts {
        (at as u64).encode(&mut bytes);
        part.reads.encode(&mut bytes);
        part.versions.encode(&mut bytes);
        part.keys.encode(&mut bytes);
        part.values.encode(&mut bytes);
    }
    super::digest(&bytes)
}

/// What a transaction does in one shard.
#[derive(Default)]
struct Part {
    reads: Vec<Bytes>,
    versions: Vec<u64>,
    keys: Vec<Bytes>,
    values: Vec<Option<Bytes>>,
}

impl<L: MapLog> MapTransaction<'_, L> {
    /// What a key holds; of one that this transaction has written, that.
    pub async fn get(&mut self, key: &str) -> Result<Option<Bytes>, FuzzyError> {
        if let Some(written) = self.writes.get(key) {
            return Ok(written.clone());
        }
        if let Some(read) = self.reads.get(key) {
            return Ok(read.value.clone());
        }
        let read = self.map.read(key).await?;
        let value = read.value.clone();
        self.reads.insert(key.to_owned(), read);
        Ok(value)
    }

    /// The transaction commits only if a key still has this version ([`TxMap::get_version`]); it does not read the key besides.
    pub fn read_version(&mut self, key: &str, version: u64) {
        self.reads.insert(key.to_owned(), Written { version, value: None });
    }

    /// Sets a key, if the transaction commits.
    pub fn put(&mut self, key: &str, value: impl Into<Bytes>) {
        self.writes.insert(key.to_owned(), Some(value.into()));
    }

    /// Removes a key, if the transaction commits.
    pub fn delete(&mut self, key: &str) {
        self.writes.insert(key.to_owned(), None);
    }

    /// True: it is committed. False: something that it has read was written since, and nothing was done; it may be tried again.
    ///
    /// # Errors
    /// [`FuzzyError::is_surely_void`] says whether it may be committed nevertheless.
    pub async fn commit(self) -> Result<bool, FuzzyError> {
        self.commit_by(None).await
    }

    /// The same; with a number once, however often and through whichever process it is sent: sent again, it is answered as it ended, as
    /// long as its colours remember that.
    pub async fn commit_by(self, by: Option<NumberedBy>) -> Result<bool, FuzzyError> {
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        let bytes = |key: &String| Bytes::copy_from_slice(key.as_bytes());
        for (key, read) in &self.reads {
            let part = parts.entry(self.map.shard(key)).or_default();
            part.reads.push(bytes(key));
            part.versions.push(read.version);
        }
        for (key, value) in self.writes {
            let part = parts.entry(self.map.shard(&key)).or_default();
            part.keys.push(bytes(&key));
            part.values.push(value);
        }
        self.map.commit(by, parts).await
    }
}
