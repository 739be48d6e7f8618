//! The maps over a simulated log, one thread, one seed: what workers see at once is as each map says.

mod once;
mod reading;
mod region_workload;
mod regions;
mod removing;
mod scanning;
mod simulated;
mod simulated_regions;
mod storing;
mod workload;

use consistency::Model;
use ordinate_client::maps::{AtomicMap, CrdtMap, ShardedMap, TxCrdtMap, TxMap};
use simulated::SimulatedLog;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use workload::{Recorder, SHARDS, atomic, causal, causal_whole, sharded, transactional};

const SEEDS: u64 = 40;
const WORKERS: u64 = 4;
const CALLS: usize = 25;

/// Workers of one map kind, each in a process of its own, and the log that they share; all of it is a function of the seed.
fn run<F: Future<Output = ()> + 'static>(
    seed: u64,
    worker: impl Fn(SimulatedLog, u64, Arc<Recorder>) -> F,
) -> (SimulatedLog, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let log = SimulatedLog::seeded(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let spawn = |number| local.spawn_local(worker(log.session(), number, Arc::clone(&recorder)));
    let workers: Vec<_> = (0..WORKERS).map(spawn).collect();
    local.block_on(&runtime, async {
        for worker in workers {
            worker.await.expect("the worker ends");
        }
    });
    assert!(recorder.stored.load(Ordering::SeqCst) > 0, "seed {seed}: no view was stored");
    (log, recorder)
}

// A get that does not play what was acknowledged before it shows an older value.
#[test]
fn log_map_and_sharded_map_are_linearizable() {
    for seed in 0..SEEDS {
        for shards in [1, SHARDS] {
            let (_, recorder) = run(seed, |log, worker, recorder| async move {
                sharded(ShardedMap::open(&log, "m", shards), worker, CALLS, &recorder).await;
            });
            assert_eq!(recorder.decide(Model::Linearizable), WORKERS as usize * CALLS, "seed {seed}");
        }
    }
}

// Workers of one process share a view: one that another one's sync has moved on must not be read at an older cut.
#[test]
fn workers_of_one_process_share_their_map() {
    for seed in 0..SEEDS {
        let log = SimulatedLog::seeded(seed);
        let (map, txs) = (AtomicMap::open(&log, "m", SHARDS), TxMap::open(&log, "t", SHARDS, 9));
        let (_, recorder) = run(seed, |_, worker, recorder| {
            let map = map.clone();
            async move { atomic(map, worker, CALLS, &recorder).await }
        });
        recorder.decide(Model::ProcessOrderedSerializable);
        let (_, recorder) = run(seed, |_, worker, recorder| {
            let txs = txs.clone();
            async move { transactional(txs, worker, CALLS, &recorder).await }
        });
        recorder.decide(Model::StrictSerializable);
    }
}

// A get of two keys that sees half of a put, or two sessions that see two puts in two orders.
#[test]
fn atomic_map_is_serializable() {
    for seed in 0..SEEDS {
        let (_, recorder) = run(seed, |log, worker, recorder| async move {
            atomic(AtomicMap::open(&log, "m", SHARDS), worker, CALLS, &recorder).await;
        });
        assert_eq!(
            recorder.decide(Model::ProcessOrderedSerializable),
            WORKERS as usize * CALLS,
            "seed {seed}"
        );
    }
}

// A transaction that commits although what it has read was written since, in one shard or in all.
#[test]
fn tx_map_is_strictly_serializable() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        let (_, recorder) = run(seed, |log, worker, recorder| async move {
            transactional(TxMap::open(&log, "m", SHARDS, worker), worker, CALLS, &recorder).await;
        });
        assert!(recorder.decide(Model::StrictSerializable) > CALLS, "seed {seed}");
        refused += recorder.refused.load(Ordering::SeqCst);
    }
    assert!(refused > 0, "conflicts are refused");
}

// A copy that shows an older value after a newer one, or does not show its own change.
#[test]
fn crdt_map_is_causal() {
    for seed in 0..SEEDS {
        let (_, recorder) = run(seed, |log, worker, recorder| async move {
            causal(CrdtMap::open(&log, "m", worker), worker, CALLS, &recorder).await;
        });
        assert_eq!(recorder.decide(Model::CausalPlus), WORKERS as usize * CALLS, "seed {seed}");
    }
}

// A copy that shows half of a change.
#[test]
fn tx_crdt_map_is_causal_and_shows_whole_changes() {
    for seed in 0..SEEDS {
        let (_, recorder) = run(seed, |log, worker, recorder| async move {
            causal_whole(TxCrdtMap::open(&log, "m", SHARDS, worker), worker, CALLS, &recorder).await;
        });
        assert_eq!(recorder.decide(Model::CausalPlus), WORKERS as usize * CALLS, "seed {seed}");
    }
}

// A page whose example is not the one that is compiled is copied by the first who reads it.
#[test]
fn the_page_has_the_example_as_it_is_compiled() {
    let page = include_str!("../../../../docs/fuzzylog.md");
    let example = include_str!("../../examples/log_map.rs");
    assert!(page.contains(&format!("```rust\n{example}```")), "docs/fuzzylog.md has another log_map.rs");
    assert!(example.lines().count() <= 60, "it is short");
}
