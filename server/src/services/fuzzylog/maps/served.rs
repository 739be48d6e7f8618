//! A map of whichever kind, as calls use it.

use super::kinds::MapKind;
use super::log::HostLog;
use crate::unique::unique_number;
use kernel::Bytes;
use ordinate_client::maps::{
    AtomicMap, CrdtMap, MapKeys, MapScan, MapScanPoint, ShardPlayed, ShardedMap, StoreError, TxCrdtMap,
    TxMap, ViewLimits,
};
use ordinate_client::{FuzzyError, FuzzyFailure, NumberedBy};

/// How often a read of several keys is tried again whose keys are written meanwhile.
const READS_MAX: usize = 16;

/// One map.
#[derive(Clone)]
pub(super) enum ServedMap {
    /// Of one colour or several.
    Sharded(ShardedMap<HostLog>),
    Atomic(AtomicMap<HostLog>),
    Tx(TxMap<HostLog>),
    Crdt(CrdtMap<HostLog>),
    TxCrdt(TxCrdtMap<HostLog>),
}

/// What a key holds, and its version where the kind has versions.
pub(super) struct Found {
    pub(super) value: Option<Bytes>,
    pub(super) version: Option<u64>,
}

impl From<Option<Bytes>> for Found {
    fn from(value: Option<Bytes>) -> Self {
        Self { value, version: None }
    }
}

/// Changes of keys; no value deletes.
pub(super) type Changes = Vec<(String, Option<Bytes>)>;

/// Calls what maps of all kinds have.
macro_rules! of_each {
    ($map:expr, $it:ident => $call:expr) => {
        match $map {
            ServedMap::Sharded($it) => $call,
            ServedMap::Atomic($it) => $call,
            ServedMap::Tx($it) => $call,
            ServedMap::Crdt($it) => $call,
            ServedMap::TxCrdt($it) => $call,
        }
    };
}

impl ServedMap {
    /// The map `name`: its colours are `name.0`, `name.1` and so on, and those of its views.
    pub(super) fn open(log: &HostLog, name: &str, kind: MapKind, shards: usize) -> Self {
        match kind {
            MapKind::Log => Self::Sharded(ShardedMap::log_map(log, name)),
            MapKind::Sharded => Self::Sharded(ShardedMap::open(log, name, shards)),
            MapKind::Atomic => Self::Atomic(AtomicMap::open(log, name, shards)),
            MapKind::Tx => Self::Tx(TxMap::open(log, name, shards, unique_number())),
            // Its name is that of its colour.
            MapKind::Crdt => Self::Crdt(CrdtMap::open(log, &format!("{name}.0"), unique_number())),
            MapKind::TxCrdt => Self::TxCrdt(TxCrdtMap::open(log, name, shards, unique_number())),
        }
    }

    /// Plays everything that was appended before.
    pub(super) async fn sync(&self) -> Result<(), FuzzyError> {
        of_each!(self, map => map.sync().await)
    }

    /// What this host has of each shard.
    pub(super) async fn status(&self) -> Vec<ShardPlayed> {
        of_each!(self, map => map.status().await)
    }

    /// Stores views where it is time, and trims the log behind them. Returns how many.
    pub(super) async fn store_views(&self, limits: &ViewLimits) -> Result<usize, StoreError> {
        of_each!(self, map => map.store_views(limits).await)
    }

    /// It answers with what was played here, and asks nobody.
    pub(super) fn asks_nobody(&self) -> bool {
        matches!(self, Self::Crdt(_) | Self::TxCrdt(_))
    }

    /// What a key holds.
    pub(super) async fn get(&self, key: &str) -> Result<Found, FuzzyError> {
        Ok(match self {
            Self::Sharded(map) => map.get(key).await?.into(),
            Self::Atomic(map) => map.get(key).await?.into(),
            Self::Tx(map) => {
                let (value, version) = map.get_version(key).await?;
                Found { value, version: Some(version) }
            }
            Self::Crdt(map) => map.get(key).await.into(),
            Self::TxCrdt(map) => map.get_all(&[key]).await.pop().flatten().into(),
        })
    }

    /// What keys hold, all at one point of the order; of a kind that has it.
    pub(super) async fn get_all(&self, keys: &[String]) -> Result<Vec<Found>, FuzzyError> {
        let plain = |values: Vec<Option<Bytes>>| values.into_iter().map(Found::from).collect();
        match self {
            Self::Atomic(map) => map.get_all(keys).await.map(plain),
            Self::TxCrdt(map) => Ok(plain(map.get_all(keys).await)),
            Self::Tx(map) => read_all(map, keys).await,
            Self::Sharded(_) | Self::Crdt(_) => Err(OTHER_KIND),
        }
    }

    /// A page of keys and what they hold.
    pub(super) async fn scan(
        &self,
        scan: &MapScan,
        point: Option<&MapScanPoint>,
    ) -> Result<MapKeys<Found>, FuzzyError> {
        let plain = |value: Bytes| Found::from(Some(value));
        Ok(match self {
            Self::Sharded(map) => each_found(map.scan(scan, point).await?, plain),
            Self::Atomic(map) => each_found(map.scan(scan, point).await?, plain),
            Self::Tx(map) => {
                let versioned = |(version, value)| Found { value: Some(value), version: Some(version) };
                each_found(map.scan(scan, point).await?, versioned)
            }
            Self::Crdt(map) => each_found(map.scan(scan, point).await, plain),
            Self::TxCrdt(map) => each_found(map.scan(scan, point).await, plain),
        })
    }

    /// Sets a key, or removes it; with a number once.
    pub(super) async fn change(
        &self,
        by: Option<NumberedBy>,
        key: String,
        value: Option<Bytes>,
    ) -> Result<(), FuzzyError> {
        match self {
            Self::Sharded(map) => {
                let (done, is_there) = tokio::join!(map.change(by, &key, value), map.is_there(&key));
                done.and(is_there_or_may_be(is_there))
            }
            Self::Crdt(map) => map.change(by, &key, value).await,
            Self::Atomic(_) => self.change_all(by, vec![(key, value)]).await,
            Self::TxCrdt(map) => map.change_all(by, [(key, value)]).await,
            Self::Tx(map) => commit(map, by, &[], vec![(key, value)]).await.map(|_| ()),
        }
    }

    /// Changes several keys, all or none; of a kind that has it; with a number once.
    pub(super) async fn change_all(
        &self,
        by: Option<NumberedBy>,
        changes: Changes,
    ) -> Result<(), FuzzyError> {
        match self {
            Self::Atomic(map) => {
                let first = changes.first().map(|(key, _)| key.clone()).unwrap_or_default();
                let (done, is_there) = tokio::join!(map.change_all(by, changes), map.is_there(&first));
                done.and(is_there_or_may_be(is_there))
            }
            Self::TxCrdt(map) => map.change_all(by, changes).await,
            Self::Tx(map) => commit(map, by, &[], changes).await.map(|_| ()),
            Self::Sharded(_) | Self::Crdt(_) => Err(OTHER_KIND),
        }
    }

    /// Changes keys if others still have the versions that were read: true if so. Of a kind that has versions; with a number once.
    pub(super) async fn transact(
        &self,
        by: Option<NumberedBy>,
        reads: &[(String, u64)],
        changes: Changes,
    ) -> Result<bool, FuzzyError> {
        match self {
            Self::Tx(map) => commit(map, by, reads, changes).await,
            Self::Sharded(_) | Self::Atomic(_) | Self::Crdt(_) | Self::TxCrdt(_) => Err(OTHER_KIND),
        }
    }
}

/// Who looks whether a map is there while it is changed learns that it is removed, if that was so when the change began. That it cannot be
/// read here for want of memory says nothing; otherwise nobody knows.
fn is_there_or_may_be(is_there: Result<(), FuzzyError>) -> Result<(), FuzzyError> {
    match is_there {
        Ok(()) | Err(FuzzyError::NoMemory { .. }) => Ok(()),
        Err(error @ (FuzzyError::MapRemoved | FuzzyError::AlreadyTrimmed { .. })) => Err(error),
        Err(_) => Err(FuzzyError::Failed(FuzzyFailure::Unknown)),
    }
}

fn each_found<T>(page: MapKeys<T>, found: impl Fn(T) -> Found) -> MapKeys<Found> {
    let entries = page.entries.into_iter().map(|(key, held)| (key, found(held)));
    MapKeys { entries: entries.collect(), next: page.next }
}

/// Nothing was done: the map's kind has no such call.
const OTHER_KIND: FuzzyError = FuzzyError::Failed(FuzzyFailure::Malformed);

async fn commit(
    map: &TxMap<HostLog>,
    by: Option<NumberedBy>,
    reads: &[(String, u64)],
    changes: Changes,
) -> Result<bool, FuzzyError> {
    let mut txn = map.begin();
    reads.iter().for_each(|(key, version)| txn.read_version(key, *version));
    for (key, value) in changes {
        match value {
            Some(value) => txn.put(&key, value),
            None => txn.delete(&key),
        }
    }
    txn.commit_by(by).await
}

/// A transaction that only reads, until nothing was written between its reads.
async fn read_all(map: &TxMap<HostLog>, keys: &[String]) -> Result<Vec<Found>, FuzzyError> {
    for _ in 0..READS_MAX {
        let (mut found, mut reads) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for key in keys {
            let (value, version) = map.get_version(key).await?;
            found.push(Found { value, version: Some(version) });
            reads.push((key.clone(), version));
        }
        if commit(map, None, &reads, Vec::new()).await? {
            return Ok(found);
        }
    }
    Err(FuzzyError::Failed(FuzzyFailure::Busy))
}
