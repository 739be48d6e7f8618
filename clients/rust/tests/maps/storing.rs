//! Views that are stored: between any two nodes, and by processes that die between any two calls.

use crate::simulated::SimulatedLog;
use crate::workload::{SHARDS, atomic, causal, causal_whole, sharded, transactional};
use crate::{CALLS, run};
use kernel::Bytes;
use ordinate_client::maps::{
    AtomicMap, CrdtMap, LatestValues, MapLog, MapMemory, MapPage, MapView, ObservedChanges, ObservedKeys,
    ShardedMap, TxCrdtMap, TxMap, TxView, ViewLimits,
};
use ordinate_client::{FuzzyAppended, FuzzyError, FuzzyFailure, FuzzyNode, NumberedBy, SnapshotId};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const LIMITS: ViewLimits = ViewLimits { log_bytes: 1, view_bytes: 1 << 20, chunk_bytes: 16 };
/// More calls than one store makes.
const CALLS_MAX: i64 = 60;

/// A log that fails from a call on; the first that fails is carried out or not.
#[derive(Clone)]
pub(crate) struct FailingLog {
    log: SimulatedLog,
    left: Arc<AtomicI64>,
    is_carried_out: bool,
    memory: MapMemory,
}

impl FailingLog {
    pub(crate) fn new(log: SimulatedLog, left: i64, is_carried_out: bool) -> Self {
        Self { log, left: Arc::new(AtomicI64::new(left)), is_carried_out, memory: MapMemory::default() }
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, FuzzyError>>,
        failure: FuzzyFailure,
    ) -> Result<T, FuzzyError> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left > 0 {
            return call.await;
        }
        if left == 0 && self.is_carried_out {
            call.await?;
        }
        Err(FuzzyError::Failed(failure))
    }
}

impl MapLog for FailingLog {
    async fn append(&self, bodies: Vec<(String, Bytes)>) -> Result<FuzzyAppended, FuzzyError> {
        self.call(self.log.append(bodies), FuzzyFailure::Unknown).await
    }

    async fn append_numbered(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.call(self.log.append_numbered(by, bodies), FuzzyFailure::Unknown).await
    }

    async fn snapshot(&self, colours: &[String]) -> Result<SnapshotId, FuzzyError> {
        self.call(self.log.snapshot(colours), FuzzyFailure::Busy).await
    }

    async fn play(&self, colour: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        self.call(self.log.play(colour, from, to), FuzzyFailure::Busy).await
    }

    async fn trim(&self, colour: &str, before: u64) -> Result<(), FuzzyError> {
        self.call(self.log.trim(colour, before), FuzzyFailure::Unknown).await
    }

    fn is_among_regions(&self) -> bool {
        self.log.is_among_regions()
    }

    fn memory(&self) -> MapMemory {
        self.memory.clone()
    }
}

/// All of it on one thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(work)
}

fn opened<L: MapLog>(log: &L) -> ShardedMap<L> {
    ShardedMap::log_map(log, "m")
}

/// Puts, and what the map must have then.
async fn put(map: &ShardedMap<impl MapLog>, keys: std::ops::Range<u64>) {
    for key in keys {
        map.put(&format!("k{key}"), format!("value {key}")).await.expect("it is put");
    }
}

async fn holds(log: &SimulatedLog, keys: std::ops::Range<u64>, about: &str) {
    let map = opened(&log.session());
    for key in keys {
        let found = map.get(&format!("k{key}")).await.unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_eq!(found, Some(format!("value {key}").into()), "{about}: k{key}");
    }
}

// A process that dies while it stores leaves a log that is trimmed behind a view that is not there, or one that nobody can store after it.
#[test]
fn a_store_that_ends_between_any_two_calls_loses_nothing() {
    block_on(async {
        let mut is_done = false;
        for left in 0..CALLS_MAX {
            for is_carried_out in [false, true] {
                let about = format!("{left} calls, the next is carried out: {is_carried_out}");
                let log = SimulatedLog::seeded(7);
                let first = opened(&log.session());
                for round in 0..3 {
                    put(&first, round * 4..round * 4 + 4).await;
                    holds(&log, 0..1, &about).await;
                    first.get("k0").await.expect("it is played");
                    first.store_views(&LIMITS).await.expect("it is stored");
                }
                assert!(log.trimmed("m.0") > 0, "the next one loads a view");
                put(&first, 12..16).await;
                let dying = FailingLog::new(log.session(), CALLS_MAX, is_carried_out);
                let second = opened(&dying);
                second.get("k0").await.expect("it is played");
                put(&first, 16..17).await;
                second.get("k0").await.expect("it is played");
                dying.left.store(left, Ordering::SeqCst);
                is_done = second.store_views(&LIMITS).await == Ok(1);
                holds(&log, 0..17, &about).await;
                // Others go on.
                for round in 5..8 {
                    put(&first, 17..round * 4).await;
                    first.get("k0").await.expect("it is played");
                    assert_eq!(first.store_views(&LIMITS).await, Ok(1), "{about}");
                    holds(&log, 0..round * 4, &about).await;
                }
            }
        }
        assert!(is_done, "a store makes fewer calls than {CALLS_MAX}");
    });
}

/// A view that was stored behind any of these nodes, and loaded into one that has played `older` of them, goes on like the one that was.
fn goes_on<V: MapView>(nodes: &[FuzzyNode], empty: impl Fn() -> V) {
    let stored_behind = |count: usize| {
        let mut view = empty();
        nodes[..count].iter().for_each(|node| view.play(node));
        view.stored()
    };
    let whole: Vec<Vec<u8>> = (0..=nodes.len()).map(stored_behind).collect();
    let bytes_behind = |count: usize| {
        let mut view = empty();
        nodes[..count].iter().for_each(|node| view.play(node));
        view.bytes()
    };
    for cut in 0..=nodes.len() {
        for older in [0, cut / 2] {
            let mut view = empty();
            nodes[..older].iter().for_each(|node| view.play(node));
            view.load(&Bytes::copy_from_slice(&whole[cut])).expect("it is a view of this kind");
            assert_eq!(view.stored(), whole[cut], "at once, behind {cut}");
            assert_eq!(view.bytes(), bytes_behind(cut), "in memory, behind {cut}");
            for (at, node) in nodes.iter().enumerate().skip(cut) {
                view.play(node);
                assert_eq!(view.stored(), whole[at + 1], "stored behind {cut}, played through {at}");
            }
            assert_eq!(view.bytes(), bytes_behind(nodes.len()), "in memory, stored behind {cut}");
        }
    }
    let last = &whole[nodes.len()];
    for length in 0..last.len() {
        let (mut view, before) = (empty(), empty().stored());
        let is_refused = view.load(&Bytes::copy_from_slice(&last[..length])).is_err();
        assert!(is_refused && view.stored() == before, "a torn view of {length} bytes was taken");
    }
}

// A view that lacks what is in doubt, or orders what it has in another way, differs from others' for good.
#[test]
fn a_loaded_view_goes_on_like_the_one_that_was_stored() {
    const SEEDS: u64 = 3;
    let colours = || (0..SHARDS).map(|at| format!("m.{at}"));
    let of_each = |log: SimulatedLog| colours().map(move |colour| (log.all(&colour), colour));
    for seed in 0..SEEDS {
        let (log, _) = run(seed, |log, worker, recorder| async move {
            sharded(ShardedMap::open(&log, "m", SHARDS), worker, CALLS, &recorder).await;
        });
        of_each(log).for_each(|(nodes, _)| goes_on(&nodes, LatestValues::default));
        let (log, _) = run(seed, |log, worker, recorder| async move {
            atomic(AtomicMap::open(&log, "m", SHARDS), worker, CALLS, &recorder).await;
        });
        of_each(log).for_each(|(nodes, _)| goes_on(&nodes, LatestValues::default));
        let (log, _) = run(seed, |log, worker, recorder| async move {
            transactional(TxMap::open(&log, "m", SHARDS, worker), worker, CALLS, &recorder).await;
        });
        of_each(log).for_each(|(nodes, colour)| goes_on(&nodes, || TxView::of(&colour)));
        let (log, _) = run(seed, |log, worker, recorder| async move {
            causal_whole(TxCrdtMap::open(&log, "m", SHARDS, worker), worker, CALLS, &recorder).await;
        });
        of_each(log).for_each(|(nodes, _)| goes_on(&nodes, ObservedChanges::default));
        let (log, _) = run(seed, |log, worker, recorder| async move {
            causal(CrdtMap::open(&log, "m", worker), worker, CALLS, &recorder).await;
        });
        let nodes = log.all("m");
        assert!(nodes.len() > CALLS, "it is the map's colour");
        goes_on(&nodes, ObservedKeys::default);
    }
}

// Who is answered that nothing was done, and sees it done, does it twice.
#[test]
fn what_fails_behind_its_append_is_not_surely_void() {
    block_on(async {
        let mut unknown = 0;
        for left in 0..CALLS_MAX {
            let log = SimulatedLog::seeded(left as u64);
            let dying = FailingLog::new(log.session(), left, false);
            let (one, two) = (CrdtMap::open(&dying, "c", 1), TxCrdtMap::open(&dying, "w", SHARDS, 1));
            let three = TxMap::open(&dying, "t", SHARDS, 1);
            let (first, second) = (one.put("k", "v").await, two.put_all([("k", Some("v".into()))]).await);
            let mut txn = three.begin();
            ["k", "l", "m"].iter().for_each(|key| txn.put(key, "v"));
            let third = txn.commit().await.map(|_| ());
            let (one, two) = (CrdtMap::open(&log, "c", 2), TxCrdtMap::open(&log, "w", SHARDS, 2));
            one.sync().await.expect("it is played");
            two.sync().await.expect("it is played");
            let txs = TxMap::open(&log, "t", SHARDS, 2).get("k").await.expect("it is read");
            let found = [one.get("k").await, two.get_all(&["k"]).await.remove(0), txs];
            for (result, found) in [first, second, third].into_iter().zip(found) {
                match result {
                    Ok(()) => assert!(found.is_some(), "{left} calls"),
                    Err(error) if error.is_surely_void() => {
                        assert_eq!(found, None, "{left} calls: {error}");
                    }
                    Err(_) => unknown += usize::from(found.is_some()),
                }
            }
        }
        assert!(unknown > 0, "some fail behind their appends");
    });
}

// A process whose maps grow without a bound ends, and all maps with it.
#[test]
fn views_take_no_more_memory_than_they_may() {
    const MAX: usize = 4_000;
    const PAGE_BYTES: usize = 3 * 300;
    block_on(async {
        let log = SimulatedLog::seeded(3);
        let bounded =
            FailingLog { memory: MapMemory::of(MAX), ..FailingLog::new(log.session(), i64::MAX, false) };
        let all = opened(&log.session());
        put(&all, 0..10).await;
        let map = opened(&bounded);
        assert_eq!(map.get("k1").await, Ok(Some("value 1".into())), "there is room");
        let entries = map.status().await[0].clone();
        assert_eq!((entries.entries, entries.bytes), (10, bounded.memory.used()));
        put(&all, 10..60).await;
        let (used, max) = match map.get("k59").await {
            Err(FuzzyError::NoMemory { used, max }) => (used, max),
            other => panic!("{other:?}"),
        };
        assert!(max == MAX && (MAX..MAX + PAGE_BYTES).contains(&used), "{used}");
        // A stored view that has no room is not loaded.
        all.get("k0").await.expect("it is played");
        all.store_views(&LIMITS).await.expect("it is stored");
        put(&all, 60..61).await;
        all.get("k0").await.expect("it is played");
        all.store_views(&LIMITS).await.expect("it is stored");
        assert!(log.trimmed("m.0") > 0);
        drop(map);
        assert_eq!(bounded.memory.used(), 0, "what is closed makes room");
        for key in 0..61 {
            all.delete(&format!("k{key}")).await.expect("it is deleted");
        }
        let map = opened(&bounded);
        let small = FailingLog { memory: MapMemory::of(100), ..bounded.clone() };
        assert!(matches!(opened(&small).get("k0").await, Err(FuzzyError::NoMemory { .. })));
        assert!(matches!(map.get("k0").await, Err(FuzzyError::NoMemory { .. })), "of the view before");
        all.get("k0").await.expect("it is played");
        all.store_views(&LIMITS).await.expect("it is stored");
        assert_eq!(map.get("k0").await, Ok(None), "a later view has room");
    });
}
