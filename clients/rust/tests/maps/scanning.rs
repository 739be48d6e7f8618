//! Scans of maps over a simulated log, while others change them.

use crate::simulated::SimulatedLog;
use crate::workload::{Recorder, SHARDS, Seen, name};
use consistency::Model;
use kernel::{Bytes, Rng};
use ordinate_client::maps::{
    AtomicMap, CrdtMap, MapKeys, MapLog, MapScan, MapScanPoint, ShardedMap, TxCrdtMap, TxMap,
};
use ordinate_client::{FuzzyError, FuzzyFailure};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SEEDS: u64 = 20;
const WORKERS: u64 = 4;
const CALLS: usize = 20;
/// Keys of all maps.
const KEYS: usize = 5;
const BYTES_MAX: usize = 1 << 20;

/// All keys on one page, as a call of each has it.
fn read_of(page: MapKeys<Bytes>) -> Vec<(usize, Option<Bytes>)> {
    assert_eq!(page.next, None, "one page has all keys");
    let held: BTreeMap<Bytes, Bytes> = page.entries.into_iter().collect();
    (0..KEYS).map(|key| (key, held.get(name(key).as_bytes()).cloned())).collect()
}

/// What a worker does with a map, its random choices made: puts keys, or scans all of them.
trait Scanned: Clone + 'static {
    fn put(&self, keys: [usize; 2], value: &str) -> impl Future<Output = Vec<usize>>;
    fn scan(&self) -> impl Future<Output = Result<MapKeys<Bytes>, FuzzyError>>;
}

fn both(keys: [usize; 2], value: &str) -> [(String, Option<Bytes>); 2] {
    keys.map(|key| (name(key), Some(Bytes::copy_from_slice(value.as_bytes()))))
}

fn all() -> MapScan {
    MapScan::all(KEYS, BYTES_MAX)
}

impl<L: MapLog> Scanned for ShardedMap<L> {
    async fn put(&self, [key, _]: [usize; 2], value: &str) -> Vec<usize> {
        self.put(&name(key), value.to_owned()).await.expect("it is put");
        vec![key]
    }

    async fn scan(&self) -> Result<MapKeys<Bytes>, FuzzyError> {
        self.scan(&all(), None).await
    }
}

impl<L: MapLog> Scanned for AtomicMap<L> {
    async fn put(&self, keys: [usize; 2], value: &str) -> Vec<usize> {
        self.put_all(both(keys, value)).await.expect("it is put");
        keys.to_vec()
    }

    async fn scan(&self) -> Result<MapKeys<Bytes>, FuzzyError> {
        self.scan(&all(), None).await
    }
}

impl<L: MapLog> Scanned for TxMap<L> {
    async fn put(&self, keys: [usize; 2], value: &str) -> Vec<usize> {
        let mut txn = self.begin();
        keys.iter().for_each(|key| txn.put(&name(*key), value.to_owned()));
        assert!(txn.commit().await.expect("it ends"), "it has read nothing");
        keys.to_vec()
    }

    async fn scan(&self) -> Result<MapKeys<Bytes>, FuzzyError> {
        let MapKeys { entries, next } = self.scan(&all(), None).await?;
        let entries = entries.into_iter().map(|(key, (version, value))| {
            assert!(version > 0);
            (key, value)
        });
        Ok(MapKeys { entries: entries.collect(), next })
    }
}

impl<L: MapLog> Scanned for CrdtMap<L> {
    async fn put(&self, [key, _]: [usize; 2], value: &str) -> Vec<usize> {
        self.put(&name(key), value.to_owned()).await.expect("it is put");
        vec![key]
    }

    async fn scan(&self) -> Result<MapKeys<Bytes>, FuzzyError> {
        Ok(self.scan(&all(), None).await)
    }
}

impl<L: MapLog> Scanned for TxCrdtMap<L> {
    async fn put(&self, keys: [usize; 2], value: &str) -> Vec<usize> {
        self.put_all(both(keys, value)).await.expect("it is put");
        keys.to_vec()
    }

    async fn scan(&self) -> Result<MapKeys<Bytes>, FuzzyError> {
        Ok(self.scan(&all(), None).await)
    }
}

async fn work(map: impl Scanned, worker: u64, recorder: &Recorder) {
    let mut rng = Rng::seeded(worker);
    for _ in 0..CALLS {
        let (one, begun) = (rng.index(KEYS), recorder.now());
        if rng.chance(0.5) {
            let value = recorder.value();
            let keys = map.put([one, (one + 1 + rng.index(KEYS - 1)) % KEYS], &value).await;
            let writes: Vec<_> = keys.into_iter().map(|key| (key, value.clone())).collect();
            recorder.add(worker, begun, &Seen { reads: &[], writes: &writes });
        } else {
            match map.scan().await {
                Ok(page) => recorder.add(worker, begun, &Seen { reads: &read_of(page), writes: &[] }),
                Err(FuzzyError::Failed(FuzzyFailure::Busy)) => {
                    recorder.refused.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Workers that scan a kind of map, and what they saw; all of it is a function of the seed.
fn run<M: Scanned>(seed: u64, open: impl Fn(SimulatedLog, u64) -> M) -> Arc<Recorder> {
    let (recorder, log) = (Arc::new(Recorder::default()), SimulatedLog::seeded(seed));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let worker = |number| {
        let (map, recorder) = (open(log.session(), number), Arc::clone(&recorder));
        local.spawn_local(async move { work(map, number, &recorder).await })
    };
    let workers: Vec<_> = (0..WORKERS).map(worker).collect();
    local.block_on(&runtime, async {
        for worker in workers {
            worker.await.expect("the worker ends");
        }
    });
    recorder
}

// A page that has half of a change, misses a key that was put before, or has keys of two moments.
#[test]
fn pages_are_of_one_moment_as_each_kind_says() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        let (strict, calls) = (Model::StrictSerializable, WORKERS as usize * CALLS);
        let log_map = run(seed, |log, _| ShardedMap::log_map(&log, "m"));
        assert_eq!(log_map.decide(strict), calls, "seed {seed}");
        let atomic = run(seed, |log, _| AtomicMap::open(&log, "m", SHARDS));
        assert_eq!(atomic.decide(Model::ProcessOrderedSerializable), calls, "seed {seed}");
        let txs = run(seed, |log, worker| TxMap::open(&log, "m", SHARDS, worker));
        refused += txs.refused.load(Ordering::SeqCst);
        assert!(txs.decide(strict) > calls / 2, "seed {seed}");
        let crdt = run(seed, |log, worker| CrdtMap::open(&log, "m", worker));
        assert_eq!(crdt.decide(Model::CausalPlus), calls, "seed {seed}");
        let tx_crdt = run(seed, |log, worker| TxCrdtMap::open(&log, "m", SHARDS, worker));
        assert_eq!(tx_crdt.decide(Model::CausalPlus), calls, "seed {seed}");
    }
    println!("{refused} pages of tx maps were refused as busy");
    assert!(refused < SEEDS, "a page of a tx map is found, mostly");
}

// A scan of a map of several shards that leaves out a shard, or keys behind a full page; or one that never ends.
#[test]
fn scans_of_shards_have_each_key_once() {
    crate::storing::block_on(async {
        let log = SimulatedLog::seeded(5);
        let map = ShardedMap::open(&log.session(), "m", 7);
        let names: Vec<String> = (0..40).map(|at| format!("{}/{at}", ["a", "b"][at % 2])).collect();
        for key in &names {
            map.put(key, format!("value of {key}")).await.expect("it is put");
        }
        for entries_max in [1, 3, 1_000] {
            for prefix in ["", "a", "b/3", "c"] {
                let scan = MapScan {
                    prefix: Bytes::copy_from_slice(prefix.as_bytes()),
                    ..MapScan::all(entries_max, BYTES_MAX)
                };
                let (mut found, mut point) = (Vec::new(), None::<MapScanPoint>);
                loop {
                    let page = map.scan(&scan, point.as_ref()).await.expect("it is read");
                    assert!(page.entries.len() <= entries_max);
                    found.extend(page.entries.iter().map(|(key, value)| {
                        let key = String::from_utf8_lossy(key).into_owned();
                        assert_eq!(value, format!("value of {key}").as_bytes());
                        key
                    }));
                    point = page.next;
                    if point.is_none() {
                        break;
                    }
                }
                found.sort();
                let mut wanted = names.clone();
                wanted.retain(|key| key.starts_with(prefix));
                wanted.sort();
                assert_eq!(found, wanted, "{prefix:?} in pages of {entries_max}");
            }
        }
        let nowhere = MapScanPoint { shard: 7, after: None };
        let refused = map.scan(&all(), Some(&nowhere)).await;
        assert_eq!(refused, Err(FuzzyError::Failed(FuzzyFailure::Malformed)));
    });
}
