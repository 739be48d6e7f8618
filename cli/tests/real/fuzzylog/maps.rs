//! The maps over real hosts, one of which dies meanwhile: what workers see at once is as each map says.

#[path = "../../../../clients/rust/tests/maps/workload.rs"]
pub(super) mod workload;

use super::SETTINGS;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use consistency::Model;
use ordinate_client::FuzzyLog;
use ordinate_client::maps::{AtomicMap, CrdtMap, ShardedMap, TxCrdtMap, TxMap};
use std::sync::Arc;
use std::time::Duration;
use workload::{Recorder, SHARDS, atomic, causal, causal_whole, sharded, transactional};

const WORKERS: u64 = 3;
const CALLS: usize = 30;

// A map that is what it says over a simulated log, and another thing over hosts that fail.
#[test]
fn maps_are_what_they_say_while_a_host_dies() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let recorders: [Arc<Recorder>; 5] = Default::default();
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let endpoints = cluster.endpoints_from(worker as usize);
            let log = || FuzzyLog::connect(endpoints.clone()).with_timeout(PATIENCE);
            let [one, two, three, four, five] = recorders.clone();
            let maps = (
                ShardedMap::open(&log(), "sharded", SHARDS),
                AtomicMap::open(&log(), "atomic", SHARDS),
                TxMap::open(&log(), "tx", SHARDS, worker),
                CrdtMap::open(&log(), "crdt", worker),
                TxCrdtMap::open(&log(), "txcrdt", SHARDS, worker),
            );
            workers.push(tokio::spawn(async move { sharded(maps.0, worker, CALLS, &one).await }));
            workers.push(tokio::spawn(async move { atomic(maps.1, worker, CALLS, &two).await }));
            workers.push(tokio::spawn(async move { transactional(maps.2, worker, CALLS, &three).await }));
            workers.push(tokio::spawn(async move { causal(maps.3, worker, CALLS, &four).await }));
            workers.push(tokio::spawn(async move { causal_whole(maps.4, worker, CALLS, &five).await }));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        cluster.kill(0);
        for worker in workers {
            worker.await.expect("the worker ends");
        }
        let models = [
            Model::Linearizable,
            Model::ProcessOrderedSerializable,
            Model::StrictSerializable,
            Model::CausalPlus,
            Model::CausalPlus,
        ];
        for (recorder, model) in recorders.iter().zip(models) {
            assert!(recorder.decide(model) > CALLS, "{model:?}");
        }
    });
}
