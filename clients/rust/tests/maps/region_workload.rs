//! Workers and users of maps of several regions, and what they saw.

use super::workload::{LIMITS, Recorder, STORES, Seen, name};
use kernel::Rng;
use ordinate_client::maps::{CapMap, CopsContext, CopsMap, RedBlueMap, RegionLog};
use ordinate_client::{FuzzyError, FuzzyFailure};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Keys of all workloads.
pub(crate) const KEYS: usize = 4;

/// What was added and taken.
#[derive(Default)]
pub(crate) struct Ledger {
    /// What was added, less what was taken.
    pub(crate) sum: AtomicI64,
    /// What may have been taken besides.
    pub(crate) doubtful: AtomicI64,
    /// Takings that were done, that were refused for want of it, and that the primary region did not answer.
    pub(crate) taken: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) unreached: AtomicU64,
}

/// Nobody has less than nothing.
pub(crate) async fn has_enough(map: &RedBlueMap<impl RegionLog>) {
    for key in 0..KEYS {
        let balance = map.balance(&name(key)).await;
        assert!(balance >= 0, "{} has {balance}", name(key));
    }
}

/// Adds, takes and transfers.
pub(crate) async fn banking(map: RedBlueMap<impl RegionLog>, worker: u64, calls: usize, ledger: &Ledger) {
    let (mut rng, mut storing) = (Rng::seeded(worker), Rng::seeded(worker).fork());
    for _ in 0..calls {
        if storing.chance(STORES) {
            map.store_views(&LIMITS).await.expect("its region serves");
        }
        let (key, amount) = (rng.index(KEYS), 1 + rng.index(9) as u64);
        if rng.chance(0.5) {
            map.add(&name(key), amount).await.expect("its region serves");
            ledger.sum.fetch_add(amount as i64, Ordering::SeqCst);
        } else {
            let other = (key + 1) % KEYS;
            let (taken, less) = match rng.chance(0.3) {
                true => (map.transfer(&name(key), &name(other), amount).await, 0),
                false => (map.take(&name(key), amount).await, amount as i64),
            };
            match taken {
                Ok(true) => {
                    ledger.sum.fetch_sub(less, Ordering::SeqCst);
                    ledger.taken.fetch_add(1, Ordering::SeqCst);
                }
                Ok(false) => drop(ledger.refused.fetch_add(1, Ordering::SeqCst)),
                Err(error) => {
                    let may_be = if error.is_surely_void() { 0 } else { less };
                    ledger.doubtful.fetch_add(may_be, Ordering::SeqCst);
                    ledger.unreached.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        has_enough(&map).await;
    }
}

/// Sets all keys, one after the other.
pub(crate) async fn set_all(map: &CapMap<impl RegionLog>, worker: u64, recorder: &Recorder) {
    for key in 0..KEYS {
        let (begun, value) = (recorder.now(), recorder.value());
        map.put(&name(key), value.clone()).await.expect("it is put");
        recorder.add(worker, begun, &Seen { reads: &[], writes: &[(key, value)] });
    }
}

/// Puts and gets of single keys.
pub(crate) async fn capped(map: CapMap<impl RegionLog>, worker: u64, calls: usize, recorder: &Recorder) {
    let mut rng = Rng::seeded(worker + recorder.now());
    let mut storing = Rng::seeded(worker).fork();
    for _ in 0..calls {
        if storing.chance(STORES) {
            map.store_views(&LIMITS).await.expect("its region serves");
        }
        let (key, begun) = (rng.index(KEYS), recorder.now());
        if rng.chance(0.4) {
            let value = recorder.value();
            map.put(&name(key), value.clone()).await.expect("it is put");
            recorder.add(worker, begun, &Seen { reads: &[], writes: &[(key, value)] });
        } else {
            let found = map.get(&name(key)).await.expect("it is read");
            recorder.add(worker, begun, &Seen { reads: &[(key, found)], writes: &[] });
        }
    }
}

/// Puts and gets by a user who goes from process to process, of one region or another, with a context. Returns how often it came too early.
pub(crate) async fn travelling(
    maps: Vec<CopsMap<impl RegionLog>>,
    user: u64,
    calls: usize,
    recorder: &Recorder,
) -> usize {
    let (mut rng, mut storing) = (Rng::seeded(user), Rng::seeded(user).fork());
    let (mut context, mut at, mut early) = (CopsContext::default(), user as usize % maps.len(), 0);
    for _ in 0..calls {
        if storing.chance(STORES) {
            maps[at].store_views(&LIMITS).await.expect("its region serves");
        }
        let before = at;
        if rng.chance(0.3) {
            at = rng.index(maps.len());
            context = CopsContext::from_bytes(&context.to_bytes()).expect("it is whole");
        }
        if rng.chance(0.4) {
            maps[at].sync().await.expect("it is played");
        }
        let (key, begun, value) = (rng.index(KEYS), recorder.now(), recorder.value());
        let done = match rng.chance(0.4) {
            true => {
                let put = maps[at].put(&name(key), value.clone(), &mut context).await;
                put.map(|()| recorder.add(user, begun, &Seen { reads: &[], writes: &[(key, value)] }))
            }
            false => {
                let found = maps[at].get(&name(key), &mut context).await;
                found.map(|found| recorder.add(user, begun, &Seen { reads: &[(key, found)], writes: &[] }))
            }
        };
        match done {
            Ok(()) => {}
            // It goes back to where it has seen it.
            Err(FuzzyError::Failed(FuzzyFailure::NotHere)) => (at, early) = (before, early + 1),
            Err(error) => panic!("{error}"),
        }
    }
    early
}
