//! Changes under a caller's number: sent again, through whichever process, they are executed once.

use crate::SEEDS;
use crate::simulated::SimulatedLog;
use crate::storing::block_on;
use crate::workload::SHARDS;
use kernel::Bytes;
use ordinate_client::maps::{AtomicMap, CrdtMap, ShardedMap, TxCrdtMap, TxMap, ViewLimits};
use ordinate_client::{FuzzyError, FuzzyFailure, NumberedBy};

/// A map of each kind in one process.
struct Maps {
    sharded: ShardedMap<SimulatedLog>,
    atomic: AtomicMap<SimulatedLog>,
    tx: TxMap<SimulatedLog>,
    crdt: CrdtMap<SimulatedLog>,
    tx_crdt: TxCrdtMap<SimulatedLog>,
}

const KINDS: usize = 5;
const KEYS: [&str; 3] = ["k", "l", "m"];
const VIEWS: ViewLimits = ViewLimits { log_bytes: 1, view_bytes: 1 << 20, chunk_bytes: 64 };

impl Maps {
    fn open(log: &SimulatedLog, process: u64) -> Self {
        let log = log.session();
        Self {
            sharded: ShardedMap::open(&log, "s", SHARDS),
            atomic: AtomicMap::open(&log, "a", SHARDS),
            tx: TxMap::open(&log, "t", SHARDS, process),
            crdt: CrdtMap::open(&log, "c", process),
            tx_crdt: TxCrdtMap::open(&log, "w", SHARDS, process),
        }
    }

    /// Sets all keys, or the first one where there are no changes of several.
    async fn put(&self, kind: usize, by: Option<NumberedBy>, value: &str) -> Result<(), FuzzyError> {
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        let all = KEYS.map(|key| (key, value.clone()));
        match kind {
            0 => self.sharded.change(by, KEYS[0], value).await,
            1 => self.atomic.change_all(by, all).await,
            2 => {
                let mut txn = self.tx.begin();
                KEYS.iter().for_each(|key| txn.put(key, value.clone().unwrap_or_default()));
                txn.commit_by(by).await.map(|is_committed| assert!(is_committed))
            }
            3 => self.crdt.change(by, KEYS[0], value).await,
            _ => self.tx_crdt.change_all(by, all).await,
        }
    }

    /// What a key holds, with all that was put before.
    async fn get(&self, kind: usize, key: &str) -> String {
        let value = match kind {
            0 => self.sharded.get(key).await.expect("it is read"),
            1 => self.atomic.get(key).await.expect("it is read"),
            2 => self.tx.get(key).await.expect("it is read"),
            3 => {
                self.crdt.sync().await.expect("it is played");
                self.crdt.get(key).await
            }
            _ => {
                self.tx_crdt.sync().await.expect("it is played");
                self.tx_crdt.get_all(&[key]).await.remove(0)
            }
        };
        String::from_utf8_lossy(&value.unwrap_or_default()).into_owned()
    }

    async fn store_views(&self) {
        self.sharded.store_views(&VIEWS).await.expect("views are stored");
        self.atomic.store_views(&VIEWS).await.expect("views are stored");
        self.tx.store_views(&VIEWS).await.expect("views are stored");
        self.crdt.store_views(&VIEWS).await.expect("views are stored");
        self.tx_crdt.store_views(&VIEWS).await.expect("views are stored");
    }
}

fn keys_of(kind: usize) -> &'static [&'static str] {
    if kind == 0 || kind == 3 { &KEYS[..1] } else { &KEYS }
}

/// A client of each kind.
fn by(kind: usize, number: u64, below: u64) -> Option<NumberedBy> {
    Some(NumberedBy { client: 70 + kind as u64, number, below })
}

// A put that is sent again, because nobody had answered, undoes one that somebody else has made since.
#[test]
fn a_change_that_is_sent_again_undoes_nothing() {
    for seed in 0..SEEDS {
        block_on(async {
            let log = SimulatedLog::seeded(seed);
            let (one, two, three) = (Maps::open(&log, 1), Maps::open(&log, 2), Maps::open(&log, 3));
            for kind in 0..KINDS {
                // Through two processes at once, and through one whose first try was lost on its way.
                let (first, again) = tokio::join!(
                    one.put(kind, by(kind, 1, 1), "first"),
                    two.put(kind, by(kind, 1, 1), "first")
                );
                assert_eq!((first, again), (Ok(()), Ok(())), "{kind} of seed {seed}");
                assert_eq!(three.get(kind, KEYS[0]).await, "first", "{kind} of seed {seed}");
                three.put(kind, None, "second").await.expect("it is put");
            }
            if seed % 2 == 0 {
                // What is remembered is stored, too: the nodes are gone.
                for _ in 0..3 {
                    three.store_views().await;
                    for kind in 0..KINDS {
                        three.put(kind, None, "second").await.expect("it is put");
                        three.get(kind, KEYS[0]).await;
                    }
                }
            }
            let late = Maps::open(&log, 4);
            for kind in 0..KINDS {
                for maps in [&one, &two, &late] {
                    assert_eq!(
                        maps.put(kind, by(kind, 1, 1), "first").await,
                        Ok(()),
                        "{kind} of seed {seed}"
                    );
                }
                for key in keys_of(kind) {
                    assert_eq!(late.get(kind, key).await, "second", "{kind} of seed {seed}");
                }
            }
        });
    }
}

// A number that is used for something else is taken for the change that it names, which is never made.
#[test]
fn a_number_that_is_used_for_something_else_is_refused() {
    let refused = |why| Err(FuzzyError::Failed(why));
    block_on(async {
        let log = SimulatedLog::seeded(1);
        let (one, two) = (Maps::open(&log, 1), Maps::open(&log, 2));
        for kind in 0..KINDS {
            let number = 10;
            assert_eq!(one.put(kind, by(kind, number, number), "first").await, Ok(()));
            let other = two.put(kind, by(kind, number, number), "other").await;
            assert_eq!(other, refused(FuzzyFailure::NumberUsed), "{kind}");
            assert_eq!(two.get(kind, KEYS[0]).await, "first", "{kind}");
        }
        for kind in [3, 4] {
            assert_eq!(one.put(kind, by(kind, 100, 100), "last").await, Ok(()));
            let number = 10;
            let late = two.put(kind, by(kind, number, number), "first").await;
            assert_eq!(late, refused(FuzzyFailure::Forgotten), "{kind}");
            assert!(two.put(kind, by(kind, 5, 7), "first").await.is_err_and(|it| it.is_surely_void()));
            assert_eq!(two.get(kind, KEYS[0]).await, "last", "{kind}");
        }
    });
}

// A transaction that is sent again after it was refused commits then, or is said to have.
#[test]
fn a_transaction_that_is_sent_again_ends_as_it_did() {
    block_on(async {
        let log = SimulatedLog::seeded(2);
        let maps = [Maps::open(&log, 1), Maps::open(&log, 2), Maps::open(&log, 3)];
        let commit = async |at: usize, number: u64, version: u64, value: &'static str| {
            let mut txn = maps[at].tx.begin();
            txn.read_version("k", version);
            KEYS.iter().for_each(|key| txn.put(key, value));
            txn.commit_by(by(2, number, 1)).await.expect("it is decided")
        };
        assert!(commit(0, 1, 0, "first").await);
        assert!(!commit(0, 2, 0, "refused").await);
        let (_, version) = maps[0].tx.get_version("k").await.expect("it is read");
        maps[2].put(2, None, "second").await.expect("it is put");
        for (at, own) in maps.iter().enumerate() {
            assert!(commit(at, 1, 0, "first").await, "it was committed");
            assert!(!commit(at, 2, 0, "refused").await, "it was refused");
            assert!(!commit(at, 3, version, "third").await, "it has read the first one");
            assert_eq!(own.get(2, "l").await, "second");
        }
    });
}
