//! Reads that ask nobody, while nobody answers.

use crate::simulated::SimulatedLog;
use crate::storing::block_on;
use crate::workload::SHARDS;
use kernel::Bytes;
use ordinate_client::maps::{CrdtMap, MapLog, MapPage, TxCrdtMap};
use ordinate_client::{FuzzyAppended, FuzzyError, NumberedBy, SnapshotId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A log that does not answer any more from a time on.
#[derive(Clone)]
struct SilentLog {
    log: SimulatedLog,
    is_silent: Arc<AtomicBool>,
}

impl SilentLog {
    async fn ask(&self) {
        if self.is_silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

impl MapLog for SilentLog {
    async fn append(&self, bodies: Vec<(String, Bytes)>) -> Result<FuzzyAppended, FuzzyError> {
        self.ask().await;
        self.log.append(bodies).await
    }

    async fn append_numbered(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.ask().await;
        self.log.append_numbered(by, bodies).await
    }

    async fn snapshot(&self, colours: &[String]) -> Result<SnapshotId, FuzzyError> {
        self.log.snapshot(colours).await
    }

    async fn play(&self, colour: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        self.ask().await;
        self.log.play(colour, from, to).await
    }

    async fn trim(&self, colour: &str, before: u64) -> Result<(), FuzzyError> {
        self.ask().await;
        self.log.trim(colour, before).await
    }

    fn is_among_regions(&self) -> bool {
        false
    }
}

// A map whose reads wait for those who play it on answers nobody while a partition does not serve.
#[test]
fn reads_that_ask_nobody_go_on_while_nobody_answers() {
    block_on(async {
        let log = SilentLog { log: SimulatedLog::seeded(5), is_silent: Arc::default() };
        let (one, whole) = (CrdtMap::open(&log, "c", 1), TxCrdtMap::open(&log, "w", SHARDS, 1));
        let keys = ["k", "l", "m"];
        for key in keys {
            one.put(key, "1").await.expect("it is put");
            whole.put_all([(key, Some("1".into()))]).await.expect("it is put");
        }
        let other = TxCrdtMap::open(&log, "w", SHARDS, 2);
        other.put_all(keys.map(|key| (key, Some("2".into())))).await.expect("it is put");
        log.is_silent.store(true, Ordering::SeqCst);
        let played = async { tokio::join!(one.sync(), whole.sync()) };
        let read = async {
            // The others wait for the log by now.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            (one.get("k").await, whole.get_all(&keys).await)
        };
        let long = async {
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = played => panic!("nobody answers"),
            () = long => panic!("the reads wait, too"),
            (one, whole) = read => {
                assert_eq!(one, Some("1".into()));
                assert_eq!(whole, keys.map(|_| Some("1".into())));
            }
        }
    });
}
