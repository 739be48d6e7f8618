//! The maps of several regions over a simulated log of two, one thread, one seed: together, cut from each other, and together again.

use crate::region_workload::{KEYS, Ledger, banking, capped, has_enough, set_all, travelling};
use crate::simulated_regions::{REGIONS, RegionSession};
use crate::workload::{Recorder, decide, name};
use consistency::Model;
use consistency::history::Draft;
use kernel::{Bytes, Decode as _};
use ordinate_client::FuzzyNode;
use ordinate_client::maps::{CapMap, CapNode, CapOrder, CopsChange, CopsMap, PrimaryRegion, RedBlueMap};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SEEDS: u64 = 40;
/// Processes of each region.
const PROCESSES: usize = 2;
const CALLS: usize = 20;
/// As long as a call may take where no time passes.
const LONG: Duration = Duration::from_secs(3_600);
const SHARDS: usize = 3;

/// Runs these at once, on one thread.
async fn all_at_once<T: 'static>(tasks: impl IntoIterator<Item: Future<Output = T> + 'static>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().map(tokio::task::spawn_local).collect();
    let mut ends = Vec::new();
    for task in tasks {
        ends.push(task.await.expect("it ends"));
    }
    ends
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// How a process of a region reaches the first one.
fn primary(log: &RegionSession, region: usize) -> PrimaryRegion<RegionSession> {
    let primary = match region {
        0 => PrimaryRegion::here(REGIONS[0]),
        _ => PrimaryRegion::reached_by(REGIONS[0], log.session(0, region)),
    };
    primary.with_wait(LONG)
}

/// The region of each process.
fn regions() -> impl Iterator<Item = (u64, usize)> {
    (0..2 * PROCESSES).map(|process| (process as u64, process % 2))
}

// A balance that is below 0 somewhere, a taking that one region counts and the other does not, or one that is lost or done twice.
#[test]
fn balances_are_never_below_nothing() {
    let (mut taken, mut refused, mut unreached, mut trims) = (0, 0, 0, Trims::default());
    for seed in 0..SEEDS {
        run(async {
            let (log, ledger) = (RegionSession::seeded(seed), Rc::new(Ledger::default()));
            let open = |process, region| {
                RedBlueMap::open(&log.session(region, region), "bank", primary(&log, region), process)
            };
            let maps: Vec<_> = regions().map(|(process, region)| open(process, region)).collect();
            for (phase, is_cut) in [(0, false), (1, true), (2, false)] {
                log.cut(is_cut);
                let work = |(worker, map): (u64, &RedBlueMap<RegionSession>)| {
                    let (map, ledger, seed) = (map.clone(), Rc::clone(&ledger), 1_000 * seed + 10 * phase);
                    async move { banking(map, seed + worker, CALLS, &ledger).await }
                };
                all_at_once((0..).zip(&maps).map(work)).await;
            }
            trims.count(&log, "bank");
            log.settle();
            let mut sums = Vec::new();
            for map in maps.iter().chain([&open(99, 1), &open(98, 0)]) {
                map.sync().await.expect("it is played");
                has_enough(map).await;
                let mut balances = Vec::new();
                for key in 0..KEYS {
                    balances.push(map.balance(&name(key)).await);
                }
                sums.push(balances);
            }
            sums.dedup();
            assert_eq!(sums.len(), 1, "seed {seed}: {sums:?}");
            let (sum, most) = (sums[0].iter().sum::<i128>(), ledger.sum.load(Ordering::SeqCst).into());
            let least = most - i128::from(ledger.doubtful.load(Ordering::SeqCst));
            assert!((least..=most).contains(&sum), "seed {seed}: {sum} of {least} to {most}");
            taken += ledger.taken.load(Ordering::SeqCst);
            refused += ledger.refused.load(Ordering::SeqCst);
            unreached += ledger.unreached.load(Ordering::SeqCst);
        });
    }
    println!("takings: {taken} done, {refused} refused, {unreached} not answered");
    assert!(taken > 100 && refused > 100 && unreached > 100);
    trims.check();
}

// Who takes in one region what was acknowledged as given in the other one is refused, by what is known here.
#[test]
fn takings_of_both_regions_are_in_one_order() {
    for seed in 0..SEEDS {
        run(async {
            let log = RegionSession::seeded(seed);
            let open = |region| {
                let primary = primary(&log, region);
                RedBlueMap::open(&log.session(region, region), "bank", primary, region as u64)
            };
            let maps = [open(0), open(1)];
            maps[1].add("a", 5).await.expect("it is added");
            assert_eq!(maps[1].transfer("a", "b", 5).await, Ok(true), "seed {seed}");
            assert_eq!(maps[0].transfer("b", "c", 5).await, Ok(true), "seed {seed}");
            assert_eq!(maps[1].transfer("c", "d", 5).await, Ok(true), "seed {seed}");
            assert_eq!(maps[0].take("c", 1).await, Ok(false), "seed {seed}");
            log.cut(true);
            maps[1].add("d", 1).await.expect("its region serves");
            let error = maps[1].take("d", 9).await.expect_err("the primary region does not answer");
            assert!(error.is_surely_void(), "{error}");
            assert_eq!(maps[1].balance("d").await, 6);
            assert_eq!(maps[0].take("d", 5).await, Ok(true), "the primary region needs nobody");
            assert_eq!(maps[0].take("d", 1).await, Ok(false), "what is not there yet");
        });
    }
}

// What is known of one map's colour, and taken for another one's.
#[test]
fn maps_that_reach_the_primary_region_alike_know_nothing_of_each_other() {
    run(async {
        let log = RegionSession::seeded(1);
        let (here, there) = (primary(&log, 0), primary(&log, 1));
        for (name, count) in [("one", 9), ("other", 2)] {
            let giver = RedBlueMap::open(&log.session(0, 0), name, here.clone(), 0);
            let taker = RedBlueMap::open(&log.session(1, 1), name, there.clone(), 1);
            for _ in 0..count {
                giver.add("a", 1).await.expect("it is added");
            }
            assert_eq!(taker.take("a", count).await, Ok(true));
            assert_eq!(taker.take("a", 1).await, Ok(false));
        }
    });
}

/// How many of a map's nodes in the first region are joins.
fn joins(log: &RegionSession) -> usize {
    let is_join = |body: &Bytes| matches!(CapNode::decoded(body), Ok(CapNode::CapJoin(_)));
    log.all("cap", 0).iter().filter(|node| is_join(&node.body)).count()
}

/// How often something was trimmed in a region, and how often a trim waited for the other one at the end of a run.
#[derive(Default, Debug)]
struct Trims([usize; 2]);

impl Trims {
    fn count(&mut self, log: &RegionSession, name: &str) {
        for region in 0..2 {
            let (trimmed, waits) = log.trimmed(name, region);
            self.0[0] += usize::from(trimmed > 0);
            self.0[1] += usize::from(waits > 0);
        }
    }

    /// Views were stored, and logs trimmed behind them.
    fn check(&self) {
        println!("trims, and those that wait: {self:?}");
        assert!(self.0[0] > SEEDS as usize && self.0[1] > 0, "{self:?}");
    }
}

/// What the processes of a map do at once, and what they see.
async fn work(maps: &[CapMap<RegionSession>], recorder: &Rc<Recorder>) -> Vec<Draft> {
    let work = |(worker, map): (u64, &CapMap<RegionSession>)| {
        let (map, recorder) = (map.clone(), Rc::clone(recorder));
        async move { capped(map, worker, CALLS, &recorder).await }
    };
    // Two workers of each process, which have all of it in common.
    all_at_once((0..).zip(maps.iter().chain(maps)).map(work)).await;
    std::mem::take(&mut *recorder.drafts.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Processes that were alone find out that the primary region answers.
async fn join(maps: &[CapMap<RegionSession>], seed: u64) {
    for map in maps.iter().skip(1).step_by(2) {
        let status = map.join().await.expect("the primary region answers");
        assert_eq!(status.order, CapOrder::Linearizable, "seed {seed}");
    }
}

/// One run: linearizable before a cut and behind it, and causal as a whole.
async fn capped_run(seed: u64, trims: &mut Trims) {
    let (log, recorder) = (RegionSession::seeded(seed), Rc::new(Recorder::default()));
    let open = |(process, region)| {
        CapMap::open(&log.session(region, region), "cap", primary(&log, region), process, None)
    };
    let maps: Vec<_> = regions().map(open).collect();
    let mut all = Vec::new();
    for is_cut in [false, true, false] {
        log.cut(is_cut);
        if is_cut {
            all.extend(work(&maps, &recorder).await);
            let forks = [maps[0].status().await.order, maps[1].status().await.order];
            assert_eq!(forks, [CapOrder::Linearizable, CapOrder::Causal], "seed {seed}");
            log.cut(false);
            let before = joins(&log);
            match seed % 2 {
                0 => {
                    join(&maps, seed).await;
                    assert!(joins(&log) <= before + PROCESSES, "seed {seed}: one join a process is enough");
                }
                // While they work, those that are alone and the others.
                _ => all.extend(tokio::join!(work(&maps, &recorder), join(&maps, seed)).0),
            }
        } else {
            // What was there before is not looked at by those who look at this part alone.
            set_all(&maps[seed as usize % maps.len()], 100, &recorder).await;
            let part = work(&maps, &recorder).await;
            let count = decide(part.clone(), Model::Linearizable);
            assert_eq!(count, KEYS + 2 * maps.len() * CALLS, "seed {seed}");
            all.extend(part);
        }
    }
    decide(all, Model::CausalPlus);
    trims.count(&log, "cap");
    log.settle();
    let mut ends = Vec::new();
    for map in maps.iter().chain([&open((99, 1)), &open((98, 0))]) {
        assert_eq!(map.status().await.order, CapOrder::Linearizable, "seed {seed}");
        let mut values = Vec::new();
        for key in 0..KEYS {
            values.push(map.get(&name(key)).await.expect("it is read"));
        }
        ends.push(values);
    }
    ends.dedup();
    assert_eq!(ends.len(), 1, "seed {seed}: all copies are equal");
}

// A get that does not see what was put in the other region; a process that shows less after a cut than in it; forks in two orders.
#[test]
fn cap_map_is_linearizable_but_for_a_cut_and_causal_in_it() {
    let mut trims = Trims::default();
    for seed in 0..SEEDS {
        run(capped_run(seed, &mut trims));
    }
    trims.check();
}

/// Each change has a later count than all that its user had seen, in whichever shard: else two keys' copies choose against each other. And it
/// says that it comes behind what it takes away: else a copy takes that away before it is there.
fn changes_follow(log: &RegionSession) {
    let changes = |shard: usize| {
        let nodes = log.all(&format!("cops.{shard}"), 0).into_iter();
        let change = |node: FuzzyNode| {
            let origin = node.origin.expect("it has one");
            ((origin.region, origin.number), CopsChange::decoded(&node.body).expect("a change"))
        };
        nodes.map(change).collect::<BTreeMap<_, _>>()
    };
    let shards: Vec<_> = (0..SHARDS).map(changes).collect();
    for (shard, all) in shards.iter().enumerate() {
        for CopsChange { change, past } in all.values() {
            let (mut seen, mut own) = (BTreeSet::new(), BTreeSet::new());
            for (of, log) in past.iter().flat_map(|it| it.logs.iter().map(|log| (it.shard as usize, log))) {
                let tag = |number| shards[of][&(log.region.clone(), number)].change.tag;
                seen.extend((0..log.count).map(tag));
                own.extend((0..log.count).map(tag).filter(|_| of == shard));
            }
            assert!(seen.last().is_none_or(|seen| *seen < change.tag));
            assert!(change.subsumes.iter().all(|tag| own.contains(tag)));
        }
    }
}

// A user who sees a change, and not what its writer had seen; or less in the next region than in the one before.
#[test]
fn cops_map_is_causal_for_users_who_travel() {
    let (mut early, mut trims) = (0, Trims::default());
    for seed in 0..SEEDS {
        run(async {
            let (log, recorder) = (RegionSession::seeded(seed), Rc::new(Recorder::default()));
            let open = |(process, region)| {
                CopsMap::open(&log.session(region, region), "cops", SHARDS, process, LONG)
            };
            let maps: Vec<_> = regions().map(open).collect();
            for (phase, is_cut) in [(0, false), (1, true), (2, false)] {
                log.cut(is_cut);
                let work = |user: u64| {
                    let (maps, recorder) = (maps.clone(), Rc::clone(&recorder));
                    let user = 10_000 * seed + 100 * phase + user;
                    async move { travelling(maps, user, CALLS, &recorder).await }
                };
                early += all_at_once((0..5).map(work)).await.into_iter().sum::<usize>();
            }
            assert!(recorder.decide(Model::CausalPlus) > 5 * CALLS, "seed {seed}");
            trims.count(&log, "cops");
            log.settle();
            changes_follow(&log);
            let mut ends = Vec::new();
            for map in maps.iter().chain([&open((99, 1)), &open((98, 0))]) {
                map.sync().await.expect("it is played");
                let (mut values, mut context) = (Vec::new(), Default::default());
                for key in 0..KEYS {
                    values.push(map.get(&name(key), &mut context).await.expect("it is read"));
                }
                ends.push(values);
            }
            ends.dedup();
            assert_eq!(ends.len(), 1, "seed {seed}: all copies are equal");
        });
    }
    assert!(early > 0, "nobody came too early");
    trims.check();
}
