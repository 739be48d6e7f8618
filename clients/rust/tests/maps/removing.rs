//! Maps that are removed and made anew: by processes that die between any two calls, and beside others that know nothing of it.

use crate::simulated::SimulatedLog;
use crate::simulated_regions::RegionSession;
use crate::storing::{FailingLog, block_on};
use kernel::{Bytes, Rng};
use ordinate_client::maps::{
    AtomicMap, CrdtMap, MapCatalogue, MapLog, NotCreated, NotRemoved, ShardedMap, TxCrdtMap, TxMap,
    ViewLimits,
};
use ordinate_client::{FuzzyError, FuzzyFailure};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const LIMITS: ViewLimits = ViewLimits { log_bytes: 1, view_bytes: 1 << 20, chunk_bytes: 16 };
const SHARDS: u16 = 2;
/// More calls than a removal makes.
const CALLS_MAX: i64 = 120;

/// All nodes of colours that are named like this are trimmed.
fn is_trimmed_whole(log: &SimulatedLog, opened_as: &str) -> bool {
    let colours = (0..SHARDS).flat_map(|at| [format!("{opened_as}.{at}"), format!("{opened_as}.{at}.view")]);
    let mut colours = colours.filter(|colour| !log.all(colour).is_empty());
    colours.all(|colour| log.trimmed_of(&colour) == log.all(&colour).len() as u64)
}

// A removal that ends half leaves a map that some have and others not, or bytes that nobody frees; or the name cannot be used again.
#[test]
fn a_removal_that_ends_between_any_two_calls_is_ended_by_others() {
    block_on(async {
        let (mut is_done, mut early, mut half) = (false, 0, 0);
        for left in 0..CALLS_MAX {
            for is_carried_out in [false, true] {
                let about = format!("{left} calls, the next is carried out: {is_carried_out}");
                let log = SimulatedLog::seeded(left as u64);
                let catalogue = MapCatalogue::open(&log.session());
                let (made, is_new) = catalogue.create("m", "sharded", SHARDS, 7).await.expect("it is made");
                assert!(is_new && made.opened_as("m") == "m");
                let old = ShardedMap::open(&log.session(), "m", usize::from(SHARDS));
                let late = ShardedMap::open(&log.session(), "m", usize::from(SHARDS));
                for key in 0..12 {
                    old.put(&format!("k{key}"), "old").await.expect("it is put");
                    old.get("k0").await.expect("it is read");
                    old.store_views(&LIMITS).await.expect("it is stored");
                }
                late.sync().await.expect("it is played");
                let dying = FailingLog::new(log.session(), left, is_carried_out);
                is_done = MapCatalogue::open(&dying).remove("m", Some(7)).await.is_ok();
                let other = MapCatalogue::open(&log.session());
                let is_removed = other.find("m").await.expect("it is read").is_none();
                assert!(is_removed || !is_done, "{about}");
                if !is_removed {
                    early += 1;
                    assert_eq!(late.get("k3").await, Ok(Some("old".into())), "{about}: it is whole");
                    assert_eq!(other.end_removals().await, Ok(0), "{about}");
                    let (_, is_new) = other.remove("m", None).await.expect("it is removed");
                    assert!(is_new, "{about}");
                }
                half += usize::from(is_removed && !is_trimmed_whole(&log, "m"));
                other.end_removals().await.expect("it is ended");
                assert_eq!(other.unfinished().await, Ok(0), "{about}");
                assert!(is_trimmed_whole(&log, "m"), "{about}");
                // Who has not heard of it.
                for map in [&old, &late] {
                    let found = map.get("k0").await.expect_err("it is gone");
                    let is_gone = matches!(found, FuzzyError::MapRemoved | FuzzyError::AlreadyTrimmed { .. });
                    assert!(is_gone, "{about}: {found}");
                }
                // One shard of it knows, and the other does not: its view may be stored, for nobody.
                let _ = late.store_views(&LIMITS).await;
                let (again, is_new) = catalogue.create("m", "log", 1, 9).await.expect("it is made anew");
                assert!(is_new && again.opened_as("m") != "m", "{about}");
                late.put("k0", "late").await.expect("its colour is there");
                let new = ShardedMap::log_map(&log.session(), &again.opened_as("m"));
                assert_eq!(new.get("k0").await, Ok(None), "{about}");
                new.put("k0", "new").await.expect("it is put");
                assert_eq!(other.find_now("m").await, Ok(Some(again.clone())), "{about}");
                other.trim_again("m", &made).await.expect("it is trimmed");
                assert!(is_trimmed_whole(&log, "m"), "{about}: what was late, too");
                assert!(other.trim_again("m", &again).await.is_err(), "{about}: it is there");
                let (_, is_new) = other.remove("m", Some(7)).await.expect("it was removed");
                assert_eq!((is_new, new.get("k0").await), (false, Ok(Some("new".into()))), "{about}");
                assert_eq!(other.remove("m", Some(8)).await, Err(NotRemoved::Other(again)), "{about}");
                assert_eq!(other.remove("n", None).await, Err(NotRemoved::NoMap), "{about}");
            }
        }
        println!("{early} removals had not begun, {half} were half done");
        assert!(is_done && early > 2 && half > 10, "{early} and {half}: a removal makes fewer calls");
    });
}

// A kind of map that takes the last node for a change, or goes on behind it.
#[test]
fn every_kind_ends_at_the_last_node() {
    block_on(async {
        let log = SimulatedLog::seeded(3);
        let catalogue = MapCatalogue::open(&log.session());
        for (id, kind) in (1..).zip(["sharded", "atomic", "tx", "crdt", "tx-crdt"]) {
            let shards = if kind == "crdt" { 1 } else { SHARDS };
            catalogue.create(kind, kind, shards, id).await.expect("it is made");
        }
        let (session, shards) = (log.session(), usize::from(SHARDS));
        let one = ShardedMap::open(&session, "sharded", shards);
        let two = AtomicMap::open(&session, "atomic", shards);
        let three = TxMap::open(&session, "tx", shards, 1);
        let four = CrdtMap::open(&session, "crdt.0", 1);
        let five = TxCrdtMap::open(&session, "tx-crdt", shards, 1);
        let commit = |map: TxMap<SimulatedLog>| async move {
            let mut txn = map.begin();
            txn.put("a", "1");
            txn.put("b", "1");
            txn.commit().await.map(|_| ())
        };
        let both = || [("a", Some(Bytes::from("1"))), ("b", Some(Bytes::from("1")))];
        one.put("a", "1").await.expect("it is put");
        two.put_all(both()).await.expect("it is put");
        commit(three.clone()).await.expect("it is put");
        four.put("a", "1").await.expect("it is put");
        five.put_all(both()).await.expect("it is put");
        for kind in ["sharded", "atomic", "tx", "crdt", "tx-crdt"] {
            catalogue.remove(kind, None).await.expect("it is removed");
        }
        let is_gone = |error: FuzzyError| {
            assert!(matches!(error, FuzzyError::MapRemoved | FuzzyError::AlreadyTrimmed { .. }), "{error:?}");
        };
        is_gone(one.get("a").await.expect_err("it is gone"));
        is_gone(one.is_there("a").await.expect_err("it is gone"));
        is_gone(two.get_all(&["a", "b"]).await.expect_err("it is gone"));
        is_gone(two.is_there("a").await.expect_err("it is gone"));
        is_gone(three.get("a").await.expect_err("it is gone"));
        assert!(commit(three).await.is_err());
        is_gone(four.sync().await.expect_err("it is gone"));
        assert!(four.put("a", "2").await.is_err());
        is_gone(five.sync().await.expect_err("it is gone"));
        assert!(five.put_all(both()).await.is_err());
    });
}

/// What all processes of a run share: the maps that were removed for good, by their ids.
#[derive(Default)]
struct Removed(Mutex<Vec<u64>>);

/// Makes the map, uses it, or removes it. A call that begins when a removal has ended does not reach what was removed.
async fn use_and_remove(
    log: SimulatedLog,
    worker: u64,
    ids: Arc<AtomicU64>,
    removed: Arc<Removed>,
) -> [u64; 3] {
    let mut rng = Rng::seeded(worker);
    let catalogue = MapCatalogue::open(&log);
    let (mut opened, mut counts) = (None::<(u64, ShardedMap<SimulatedLog>)>, [0; 3]);
    for _ in 0..30 {
        if opened.is_none() {
            let id = ids.fetch_add(1, Ordering::SeqCst);
            let shards = 1 + rng.index(2) as u16;
            let made = match catalogue.create("m", "sharded", shards, id).await {
                Ok((made, _)) | Err(NotCreated::Other(made)) => made,
                Err(error) => panic!("{error}"),
            };
            let map = ShardedMap::open(&log.session(), &made.opened_as("m"), usize::from(made.shards));
            opened = Some((made.id, map));
        }
        let Some((id, map)) = &opened else { continue };
        let before = removed.0.lock().expect("nobody panics").contains(id);
        let done = match rng.index(8) {
            0 => {
                let ended = catalogue.remove("m", Some(*id)).await;
                assert!(matches!(ended, Ok(_) | Err(NotRemoved::Other(_) | NotRemoved::NoMap)), "{ended:?}");
                removed.0.lock().expect("nobody panics").push(*id);
                counts[2] += 1;
                Err(FuzzyError::MapRemoved)
            }
            1..4 => {
                let (put, is_there) = tokio::join!(map.put("k", id.to_string()), map.is_there("k"));
                put.and(is_there)
            }
            _ => map.get("k").await.map(|found| {
                let own = found.is_none_or(|found| found == id.to_string().as_bytes());
                assert!(own, "what an earlier map had");
            }),
        };
        match done {
            Ok(()) => {
                assert!(!before, "the map {id} was removed before");
                counts[0] += 1;
            }
            Err(FuzzyError::MapRemoved | FuzzyError::AlreadyTrimmed { .. }) => {
                counts[1] += 1;
                opened = None;
                let found = catalogue.find_now("m").await.expect("it is read");
                assert!(
                    found.is_none_or(|found| !removed.0.lock().expect("nobody panics").contains(&found.id))
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
    counts
}

// Who uses a map that was removed before, or sees in a new one what an earlier one had.
#[test]
fn removed_maps_are_gone_for_everybody() {
    let mut counts = [0; 3];
    for seed in 0..40 {
        let log = SimulatedLog::seeded(seed);
        let (ids, removed) = (Arc::new(AtomicU64::new(1)), Arc::new(Removed::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let local = tokio::task::LocalSet::new();
        let spawn = |worker: u64| {
            let (ids, removed) = (Arc::clone(&ids), Arc::clone(&removed));
            local.spawn_local(use_and_remove(log.session(), 100 * seed + worker, ids, removed))
        };
        let workers: Vec<_> = (0..4).map(spawn).collect();
        local.block_on(&runtime, async {
            for worker in workers {
                let own = worker.await.expect("the worker ends");
                counts.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
        });
    }
    let [done, gone, removals] = counts;
    println!("{done} calls were done, {gone} found the map removed, {removals} removed it");
    assert!(done > 1_000 && gone > removals && removals > 100);
}

// A catalogue that grows with each map that was ever made.
#[test]
fn the_catalogue_is_trimmed_behind_its_views() {
    block_on(async {
        let log = SimulatedLog::seeded(1);
        let catalogue = MapCatalogue::open(&log.session());
        let mut stored = 0;
        for id in 0..3_000 {
            catalogue.create("m", "log", 1, 1 + id).await.expect("it is made");
            catalogue.remove("m", None).await.expect("it is removed");
            stored += catalogue.store_views().await.expect("it is stored");
        }
        assert!(stored > 1 && log.trimmed_of("ordinate.maps") > 0, "{stored}");
        let other = MapCatalogue::open(&log.session());
        let (made, _) = other.create("m", "log", 1, 999_999).await.expect("it is made");
        assert_ne!(made.opened_as("m"), "m", "a later process knows that it was there");
        assert_eq!(catalogue.find("m").await, Ok(Some(made)));
        log.session().append(vec![("ordinate.maps".to_owned(), "nonsense".into())]).await.expect("it is");
        assert_eq!(other.all().await.expect("it is read").len(), 1);
    });
}

// A catalogue of several regions, in which each has another map under a name.
#[test]
fn maps_are_not_made_among_regions() {
    block_on(async {
        let catalogue = MapCatalogue::open(&RegionSession::seeded(1));
        let refused = FuzzyError::Failed(FuzzyFailure::OtherRegion);
        assert_eq!(catalogue.create("m", "log", 1, 1).await, Err(NotCreated::Log(refused.clone())));
        assert_eq!(catalogue.remove("m", None).await, Err(NotRemoved::Log(refused)));
    });
}
