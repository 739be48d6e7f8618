//! Workers that use maps at once, and the history of what they saw.

use consistency::history::{Draft, History};
use consistency::{Model, Process, Time, Verdict, check, operation_line};
use kernel::{Bytes, Rng};
use ordinate_client::maps::{
    AtomicMap, CrdtMap, MapLog, ShardedMap, StoreError, TxCrdtMap, TxMap, ViewLimits,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Keys of all workloads.
const KEYS: usize = 6;
/// Shards of maps that have several.
pub(crate) const SHARDS: usize = 3;

/// What was seen, in the order in which it was.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) drafts: Mutex<Vec<Draft>>,
    clock: AtomicU64,
    values: AtomicU64,
    /// Transactions that were refused.
    pub(crate) refused: AtomicU64,
    /// Views that were stored.
    pub(crate) stored: AtomicU64,
}

/// Views are stored whenever somebody tries, in many chunks.
pub(crate) const LIMITS: ViewLimits = ViewLimits { log_bytes: 1, view_bytes: 1 << 20, chunk_bytes: 64 };
/// How often a worker tries.
pub(crate) const STORES: f64 = 0.15;

/// What a call has read of keys, and written to them.
pub(crate) struct Seen<'a> {
    pub(crate) reads: &'a [(usize, Option<Bytes>)],
    pub(crate) writes: &'a [(usize, String)],
}

impl Recorder {
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// A value that nobody else writes.
    pub(crate) fn value(&self) -> String {
        format!("v{}", self.values.fetch_add(1, Ordering::SeqCst))
    }

    pub(crate) fn add(&self, worker: u64, begun: u64, seen: &Seen<'_>) {
        let mut draft = Draft::new(Process(worker), Time(begun), Time(self.now()));
        for (key, value) in seen.reads {
            draft = match value {
                Some(value) => draft.read(name(*key), String::from_utf8_lossy(value).into_owned()),
                None => draft.read_nothing(name(*key)),
            };
        }
        for (key, value) in seen.writes {
            draft = draft.write(name(*key), value.clone());
        }
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner).push(draft);
    }

    /// Views were stored.
    fn stored(&self, count: Result<usize, StoreError>) {
        self.stored.fetch_add(count.expect("views are stored") as u64, Ordering::SeqCst);
    }

    /// How many calls were made, all of which together are as the model says.
    pub(crate) fn decide(&self, model: Model) -> usize {
        let drafts = std::mem::take(&mut *self.drafts.lock().unwrap_or_else(PoisonError::into_inner));
        decide(drafts, model)
    }
}

/// How many calls these are, all of which together are as the model says.
pub(crate) fn decide(drafts: Vec<Draft>, model: Model) -> usize {
    let (mut recorded, count) = (History::new(), drafts.len());
    drafts.into_iter().for_each(|draft| {
        recorded.add(draft);
    });
    match check(&recorded, model) {
        Ok(Verdict::Holds) => count,
        Ok(Verdict::Violated(witness)) => {
            let lines: Vec<String> =
                witness.operations.iter().map(|it| operation_line(&recorded, *it)).collect();
            panic!("{}\n{}", witness.summary, lines.join("\n"));
        }
        Ok(Verdict::Undecided(why)) => panic!("undecided, {why}"),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn name(key: usize) -> String {
    format!("k{key}")
}

fn two_keys(rng: &mut Rng) -> [usize; 2] {
    let one = rng.index(KEYS);
    [one, (one + 1 + rng.index(KEYS - 1)) % KEYS]
}

/// Puts and gets of single keys.
pub(crate) async fn sharded(map: ShardedMap<impl MapLog>, worker: u64, calls: usize, recorder: &Recorder) {
    let mut rng = Rng::seeded(worker);
    for _ in 0..calls {
        if rng.chance(STORES) {
            recorder.stored(map.store_views(&LIMITS).await);
        }
        let (key, begun) = (rng.index(KEYS), recorder.now());
        if rng.chance(0.5) {
            let value = recorder.value();
            map.put(&name(key), value.clone()).await.expect("it is put");
            recorder.add(worker, begun, &Seen { reads: &[], writes: &[(key, value)] });
        } else {
            let found = map.get(&name(key)).await.expect("it is read");
            recorder.add(worker, begun, &Seen { reads: &[(key, found)], writes: &[] });
        }
    }
}

/// Puts and gets of two keys at once.
pub(crate) async fn atomic(map: AtomicMap<impl MapLog>, worker: u64, calls: usize, recorder: &Recorder) {
    let mut rng = Rng::seeded(worker);
    for _ in 0..calls {
        if rng.chance(STORES) {
            recorder.stored(map.store_views(&LIMITS).await);
        }
        let (keys, begun) = (two_keys(&mut rng), recorder.now());
        if rng.chance(0.5) {
            let writes = keys.map(|key| (key, recorder.value()));
            let changes = writes.clone().map(|(key, value)| (name(key), Some(Bytes::from(value))));
            map.put_all(changes).await.expect("they are put");
            recorder.add(worker, begun, &Seen { reads: &[], writes: &writes });
        } else {
            let found = map.get_all(&keys.map(name)).await.expect("they are read");
            let reads: Vec<_> = keys.into_iter().zip(found).collect();
            recorder.add(worker, begun, &Seen { reads: &reads, writes: &[] });
        }
    }
}

/// Transactions that read two keys and write one or both of them, and reads of single keys.
pub(crate) async fn transactional(map: TxMap<impl MapLog>, worker: u64, calls: usize, recorder: &Recorder) {
    let mut rng = Rng::seeded(worker);
    for _ in 0..calls {
        if rng.chance(STORES) {
            recorder.stored(map.store_views(&LIMITS).await);
        }
        let (keys, begun) = (two_keys(&mut rng), recorder.now());
        if rng.chance(0.3) {
            let found = map.get(&name(keys[0])).await.expect("it is read");
            recorder.add(worker, begun, &Seen { reads: &[(keys[0], found)], writes: &[] });
            continue;
        }
        let mut txn = map.begin();
        let mut reads = Vec::new();
        for key in keys {
            reads.push((key, txn.get(&name(key)).await.expect("it is read")));
        }
        let writes: Vec<(usize, String)> =
            keys[..1 + rng.index(2)].iter().map(|&key| (key, recorder.value())).collect();
        writes.iter().for_each(|(key, value)| txn.put(&name(*key), value.clone()));
        if txn.commit().await.expect("it is decided") {
            recorder.add(worker, begun, &Seen { reads: &reads, writes: &writes });
        } else {
            recorder.refused.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Puts and gets of single keys, in copies that play on when they do.
pub(crate) async fn causal(map: CrdtMap<impl MapLog>, worker: u64, calls: usize, recorder: &Recorder) {
    let mut rng = Rng::seeded(worker);
    for _ in 0..calls {
        if rng.chance(STORES) {
            recorder.stored(map.store_views(&LIMITS).await);
        }
        let (key, begun) = (rng.index(KEYS), recorder.now());
        if rng.chance(0.4) {
            let value = recorder.value();
            map.put(&name(key), value.clone()).await.expect("it is put");
            recorder.add(worker, begun, &Seen { reads: &[], writes: &[(key, value)] });
        } else {
            if rng.chance(0.2) {
                map.sync().await.expect("it is played");
            }
            let found = map.get(&name(key)).await;
            recorder.add(worker, begun, &Seen { reads: &[(key, found)], writes: &[] });
        }
    }
}

/// Puts and gets of two keys at once, in copies that play on when they do.
pub(crate) async fn causal_whole(
    map: TxCrdtMap<impl MapLog>,
    worker: u64,
    calls: usize,
    recorder: &Recorder,
) {
    let mut rng = Rng::seeded(worker);
    for _ in 0..calls {
        if rng.chance(STORES) {
            recorder.stored(map.store_views(&LIMITS).await);
        }
        let (keys, begun) = (two_keys(&mut rng), recorder.now());
        if rng.chance(0.4) {
            let writes = keys.map(|key| (key, recorder.value()));
            let changes = writes.clone().map(|(key, value)| (name(key), Some(Bytes::from(value))));
            map.put_all(changes).await.expect("they are put");
            recorder.add(worker, begun, &Seen { reads: &[], writes: &writes });
        } else {
            if rng.chance(0.3) {
                map.sync().await.expect("it is played");
            }
            let found = map.get_all(&keys.map(name)).await;
            let reads: Vec<_> = keys.into_iter().zip(found).collect();
            recorder.add(worker, begun, &Seen { reads: &reads, writes: &[] });
        }
    }
}
