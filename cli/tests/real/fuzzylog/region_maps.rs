//! The maps of several regions over real hosts: two regions together, cut from each other, and together again.

#[path = "../../../../clients/rust/tests/maps/region_workload.rs"]
mod region_workload;

use super::maps::workload;
use super::regions::{OHIO, TOKYO, planned};
use crate::support::cluster::{Cluster, PATIENCE, free_address};
use crate::support::relay::{self, Cut};
use crate::support::side_by_side;
use consistency::Model;
use consistency::history::Draft;
use ordinate_client::FuzzyLog;
use ordinate_client::maps::{CapMap, CapOrder, CapStatus, CopsMap, PrimaryRegion, RedBlueMap};
use region_workload::{KEYS, Ledger, banking, capped, has_enough, set_all, travelling};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use workload::{Recorder, decide, name};

const CALLS: usize = 20;
const SHARDS: usize = 3;
const USERS: u64 = 4;
/// How long a region waits for the other one, twice in a call: a machine that is busy must not look like a cut, unless that costs but time.
const WAIT: Duration = Duration::from_secs(3);
const SHORT_WAIT: Duration = Duration::from_millis(300);
/// How often a process that is alone looks for the primary region.
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// How often it is tried to find all processes together all the time.
const ROUNDS_MAX: u64 = 10;

/// What was seen.
#[derive(Default)]
struct Seen {
    ledger: Arc<Ledger>,
    cap: Arc<Recorder>,
    cops: Arc<Recorder>,
    /// How often a user came to a region that had not yet what it had seen.
    early: AtomicUsize,
}

/// A process of a region, with all maps open.
#[derive(Clone)]
struct Worker {
    bank: RedBlueMap<FuzzyLog>,
    cap: CapMap<FuzzyLog>,
    cops: CopsMap<FuzzyLog>,
}

/// Two regions, and two processes in each, those of Tokyo behind relays to Ohio's hosts.
struct Stage {
    cluster: Cluster,
    cut: Cut,
    workers: Vec<Worker>,
}

impl Stage {
    async fn begin() -> Self {
        let cut = Cut::default();
        let mut cluster = planned(&cut);
        cluster.launch_all();
        cluster.until_ready().await;
        let native = |host: usize| cluster.hosts[host].native;
        let relayed = OHIO.map(|host| {
            let address = free_address();
            let listener = TcpListener::bind(address).expect("nobody else has it");
            relay::start(listener, native(host), &cut);
            address.to_string()
        });
        let open = |process: u64| {
            let hosts = if process.is_multiple_of(2) { OHIO } else { TOKYO };
            let session = || {
                let endpoints = hosts.map(|host| native(host).to_string());
                FuzzyLog::connect(endpoints).with_timeout(PATIENCE)
            };
            let primary = |wait| match process % 2 {
                0 => PrimaryRegion::here("ohio"),
                _ => {
                    let log = FuzzyLog::connect(relayed.clone()).with_timeout(wait);
                    PrimaryRegion::reached_by("ohio", log).with_wait(wait)
                }
            };
            Worker {
                bank: RedBlueMap::open(&session(), "bank", primary(SHORT_WAIT), process),
                cap: CapMap::open(&session(), "cap", primary(WAIT), process, Some(RETRY_EVERY)),
                cops: CopsMap::open(&session(), "cops", SHARDS, process, SHORT_WAIT),
            }
        };
        let workers = (0..4).map(open).collect();
        Self { cluster, cut, workers }
    }

    /// Everybody works at once. Returns what was seen of the CAPMap.
    async fn work(&self, round: u64, seen: &Seen) -> Vec<Draft> {
        let (mut tasks, mut users) = (Vec::new(), Vec::new());
        for (number, worker) in (0..).zip(&self.workers) {
            let (Worker { bank, cap: map, .. }, seed) = (worker.clone(), 10 * round + number);
            let (ledger, recorder) = (Arc::clone(&seen.ledger), Arc::clone(&seen.cap));
            tasks.push(tokio::spawn(async move { banking(bank, seed, CALLS, &ledger).await }));
            tasks.push(tokio::spawn(async move { capped(map, number, CALLS, &recorder).await }));
        }
        for user in 0..USERS {
            let maps: Vec<_> = self.workers.iter().map(|worker| worker.cops.clone()).collect();
            let (recorder, user) = (Arc::clone(&seen.cops), 100 * round + user);
            users.push(tokio::spawn(async move { travelling(maps, user, CALLS, &recorder).await }));
        }
        for task in tasks {
            task.await.expect("it ends");
        }
        for user in users {
            seen.early.fetch_add(user.await.expect("it ends"), Ordering::Relaxed);
        }
        std::mem::take(&mut *seen.cap.drafts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn statuses(&self) -> Vec<CapStatus> {
        let mut all = Vec::new();
        for worker in &self.workers {
            all.push(worker.cap.status().await);
        }
        all
    }

    /// Everybody works while all are together, and what they see is linearizable. Returns what was seen until that was so.
    async fn work_together(&self, round: u64, seen: &Seen) -> Vec<Draft> {
        let mut all = Vec::new();
        for round in round..round + ROUNDS_MAX {
            self.until_ordered().await;
            let before = self.statuses().await;
            // What was there before is not looked at by those who look at this part alone.
            set_all(&self.workers[1].cap, 100, &seen.cap).await;
            let part = self.work(round, seen).await;
            all.extend(part.clone());
            let since = |statuses: Vec<CapStatus>| statuses.iter().map(|it| it.since).collect::<Vec<_>>();
            if since(before) == since(self.statuses().await) {
                assert_eq!(decide(part, Model::Linearizable), KEYS + self.workers.len() * CALLS);
                return all;
            }
        }
        panic!("some were alone each time, without a cut\n{}", self.cluster.logs());
    }

    /// Returns when all processes are of one order, as each has found out by itself.
    async fn until_ordered(&self) {
        let deadline = Instant::now() + PATIENCE;
        for worker in &self.workers {
            while worker.cap.status().await.order != CapOrder::Linearizable {
                assert!(Instant::now() < deadline, "it is alone for a minute\n{}", self.cluster.logs());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// All balances, when all processes have the same: what was late may still come.
    async fn balances(&self) -> Vec<i128> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut all = BTreeSet::new();
            for Worker { bank, .. } in &self.workers {
                bank.sync().await.expect("it is played");
                has_enough(bank).await;
                let mut own = Vec::new();
                for key in 0..KEYS {
                    own.push(bank.balance(&name(key)).await);
                }
                all.insert(own);
            }
            match all.pop_first() {
                Some(own) if all.is_empty() => return own,
                _ => assert!(Instant::now() < deadline, "{all:?} differ for a minute"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

// Over hosts that are cut from each other: a map that is not linearizable while all hear each other, or not causal while they do not; a
// balance below 0; a process that waits for a region that it does not need, or does not find out that it is heard again.
#[test]
fn maps_of_two_regions_are_what_they_say_before_a_cut_in_it_and_behind_it() {
    side_by_side(async {
        let (stage, seen) = (Stage::begin().await, Seen::default());
        let mut cap = stage.work_together(0, &seen).await;
        stage.cut.store(true, Ordering::Relaxed);
        cap.extend(stage.work(100, &seen).await);
        let statuses = stage.statuses().await;
        println!("in the cut: {statuses:?}");
        let (here, there) = (CapOrder::Linearizable, CapOrder::Causal);
        assert_eq!(statuses.iter().map(|it| it.order).collect::<Vec<_>>(), [here, there, here, there]);
        assert!(statuses[1].fork_nodes > 0 && statuses[0].fork_nodes == 0);
        stage.cut.store(false, Ordering::Relaxed);
        cap.extend(stage.work_together(200, &seen).await);
        let calls = decide(cap, Model::CausalPlus);
        let users = seen.cops.decide(Model::CausalPlus);
        assert!(users > USERS as usize * CALLS);
        let Ledger { sum, doubtful, taken, refused, unreached } = &*seen.ledger;
        let (left, most) = (stage.balances().await.iter().sum::<i128>(), sum.load(Ordering::SeqCst).into());
        let least = most - i128::from(doubtful.load(Ordering::SeqCst));
        assert!((least..=most).contains(&left), "{left} of {least} to {most}");
        let [taken, refused, unreached] = [taken, refused, unreached].map(|it| it.load(Ordering::SeqCst));
        println!("takings: {taken} done, {refused} refused, {unreached} not answered");
        println!("{calls} calls of the CAPMap, {users} of the COPSMap, {:?} too early", seen.early);
        assert!(unreached > 0, "a taking without the primary region");
    });
}
