//! Many seeds: what broke, what was reached, and whether the sweep itself was good enough to say so.

use crate::class::{Class, Classes, Injections};
use crate::outcome::{Options, Outcome};
use crate::run::run_seed;
use crate::scenario::Scenario;
use kernel::Rng;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Below this many seeds a sweep is too small to be held to its coverage.
const SEEDS_TO_JUDGE: u64 = 100;

/// A sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Which seeds.
    pub seeds: Range<u64>,
    /// On how many threads.
    pub threads: usize,
    /// Stop drawing new seeds after this time.
    pub budget: Option<Duration>,
    /// Stop drawing new seeds after this many violations.
    pub violations_max: u64,
    /// How each run is made.
    pub options: Options,
}

impl Sweep {
    /// A sweep over `seeds` on one thread.
    pub fn of(seeds: Range<u64>) -> Self {
        Self { seeds, threads: 1, budget: None, violations_max: u64::MAX, options: Options::default() }
    }
}

/// One violation of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// The invariant that broke.
    pub invariant: String,
    /// What was found.
    pub what: String,
    /// After how many events.
    pub step: u64,
}

/// In how many seeds a mark was reached, and how often.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Reached {
    /// Seeds.
    pub seeds: u64,
    /// Times.
    pub times: u64,
}

/// What a sweep found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SweepReport {
    /// The scenario's family.
    pub family: String,
    /// How many seeds were run.
    pub seeds: u64,
    /// How many of them broke an invariant.
    pub violations: u64,
    /// The violations, by seed.
    pub found: Vec<Found>,
    /// How many seeds broke each invariant.
    pub by_invariant: BTreeMap<String, u64>,
    /// Simulated hours of the whole cluster.
    pub sim_hours: f64,
    /// Real seconds.
    pub wall_seconds: f64,
    /// Events handled.
    pub events: u64,
    /// Operations begun by clients.
    pub operations: u64,
    /// Family, class, how often it struck.
    pub matrix: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// In how many seeds each class struck.
    pub class_seeds: BTreeMap<&'static str, u64>,
    /// Partitions that are not symmetric, among all.
    pub asymmetric_partitions: f64,
    /// Pairs of applicable classes that struck one seed together, among all pairs.
    pub pairs_covered: f64,
    /// The marks.
    pub marks: BTreeMap<&'static str, Reached>,
    /// What nodes turned away, by reason.
    pub rejects: BTreeMap<&'static str, u64>,
    /// Seeds that no core could be asked to converge in.
    pub excused: u64,
    /// Why.
    pub excuses: BTreeMap<String, u64>,
    /// Seeds whose history was too hard to check.
    pub undecided: u64,
    /// The sum of all trace hashes: equal for equal sweeps.
    pub hash: u64,
    /// Why the sweep fails, beside violations: what it did not reach.
    pub shortfalls: Vec<String>,
    #[serde(skip)]
    injections: Injections,
    #[serde(skip)]
    pairs: BTreeMap<(Class, Class), u64>,
    #[serde(skip)]
    applicable: Classes,
}

impl SweepReport {
    /// True if nothing broke and everything was reached.
    pub fn passed(&self) -> bool {
        self.violations == 0 && self.shortfalls.is_empty()
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report holds numbers and strings only")
    }

    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.operations += outcome.operations.len() as u64;
        self.sim_hours += outcome.simulated as f64 / 3.6e12;
        self.hash = self.hash.wrapping_add(outcome.hash);
        self.injections.add(&outcome.injections);
        self.applicable = outcome.applicable;
        let struck: Vec<_> = outcome.injections.iter().map(|(class, _)| class).collect();
        for (at, &first) in struck.iter().enumerate() {
            *self.class_seeds.entry(first.name()).or_default() += 1;
            for &second in &struck[at + 1..] {
                *self.pairs.entry((first, second)).or_default() += 1;
            }
        }
        for (name, times) in outcome.marks {
            let reached = self.marks.entry(name).or_default();
            reached.seeds += 1;
            reached.times += times;
        }
        for (reason, times) in outcome.rejects {
            *self.rejects.entry(reason).or_default() += times;
        }
        if let Some(reason) = outcome.excused {
            self.excused += 1;
            *self.excuses.entry(reason).or_default() += 1;
        }
        self.undecided += u64::from(outcome.undecided);
        if let Some(violation) = outcome.violation {
            self.violations += 1;
            *self.by_invariant.entry(violation.invariant.clone()).or_default() += 1;
            self.found.push(Found {
                seed: outcome.seed,
                invariant: violation.invariant,
                what: violation.what,
                step: violation.step,
            });
        }
    }

    fn merge(&mut self, other: SweepReport) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.operations += other.operations;
        self.sim_hours += other.sim_hours;
        self.hash = self.hash.wrapping_add(other.hash);
        self.injections.add(&other.injections);
        self.applicable = if other.seeds > 0 { other.applicable } else { self.applicable };
        self.violations += other.violations;
        self.excused += other.excused;
        self.undecided += other.undecided;
        self.found.extend(other.found);
        sum(&mut self.by_invariant, other.by_invariant);
        sum(&mut self.class_seeds, other.class_seeds);
        sum(&mut self.pairs, other.pairs);
        sum(&mut self.rejects, other.rejects);
        sum(&mut self.excuses, other.excuses);
        for (name, theirs) in other.marks {
            let mine = self.marks.entry(name).or_default();
            mine.seeds += theirs.seeds;
            mine.times += theirs.times;
        }
    }

    fn judge(&mut self, family: &str, wanted_marks: &[&'static str]) {
        self.family = family.to_owned();
        self.found.sort_by_key(|found| found.seed);
        for &name in wanted_marks {
            self.marks.entry(name).or_default();
        }
        let cells = self.applicable.iter().map(|class| (class.name(), self.injections.of(class))).collect();
        self.matrix = BTreeMap::from([(self.family.clone(), cells)]);
        let of = |class| self.injections.of(class) as f64;
        let asymmetric = of(Class::OneWayPartition) + of(Class::BridgePartition);
        self.asymmetric_partitions = asymmetric / (asymmetric + of(Class::Partition)).max(1.0);
        let classes = self.applicable.iter().count();
        let pairs = (classes * classes.saturating_sub(1) / 2).max(1);
        self.pairs_covered = self.pairs.len() as f64 / pairs as f64;
        if self.seeds >= SEEDS_TO_JUDGE {
            self.find_shortfalls(wanted_marks);
        }
    }

    fn find_shortfalls(&mut self, wanted_marks: &[&'static str]) {
        // 100 injections a class and 10 seeds a mark in 800 seeds, and as much less as there are fewer.
        let cell_min = (self.seeds / 8).min(100);
        let mark_min = (self.seeds / 80).clamp(1, 10);
        let mut shortfalls = Vec::new();
        for class in self.applicable.iter() {
            let count = self.injections.of(class);
            if count < cell_min {
                shortfalls.push(format!("class {class} struck {count} times, wanted {cell_min}"));
            }
        }
        for name in wanted_marks {
            let seeds = self.marks.get(name).map_or(0, |reached| reached.seeds);
            if seeds < mark_min {
                shortfalls.push(format!("mark {name} was reached in {seeds} seeds, wanted {mark_min}"));
            }
        }
        let partitions = [Class::Partition, Class::OneWayPartition, Class::BridgePartition];
        if partitions.iter().all(|&class| self.applicable.has(class)) && self.asymmetric_partitions < 0.3 {
            shortfalls.push(format!(
                "asymmetric partitions are {:.2} of all, wanted 0.30",
                self.asymmetric_partitions
            ));
        }
        if self.seeds >= 800 && self.pairs_covered < 0.95 {
            shortfalls.push(format!("{:.3} of the pairs of classes met, wanted 0.95", self.pairs_covered));
        }
        if self.excused * 100 > self.seeds {
            shortfalls.push(format!("{} of {} seeds are excused, wanted 1 in 100", self.excused, self.seeds));
        }
        if self.undecided * 50 > self.seeds {
            shortfalls.push(format!(
                "{} of {} histories are undecided, wanted 1 in 50",
                self.undecided, self.seeds
            ));
        }
        self.shortfalls = shortfalls;
    }
}

fn sum<K: Ord>(mine: &mut BTreeMap<K, u64>, theirs: BTreeMap<K, u64>) {
    for (key, count) in theirs {
        *mine.entry(key).or_default() += count;
    }
}

/// Runs many seeds of the scenario that `factory` draws from each.
pub fn sweep<S: Scenario>(factory: &(impl Fn(&mut Rng) -> S + Sync), sweep: &Sweep) -> SweepReport {
    let began = Instant::now();
    let next = AtomicU64::new(sweep.seeds.start);
    let violations = AtomicU64::new(0);
    let work = || {
        let mut report = SweepReport::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let late = sweep.budget.is_some_and(|budget| began.elapsed() >= budget);
            let enough = violations.load(Ordering::Relaxed) >= sweep.violations_max;
            if seed >= sweep.seeds.end || late || enough {
                return report;
            }
            let outcome = run_seed(factory, seed, &sweep.options);
            violations.fetch_add(u64::from(outcome.violation.is_some()), Ordering::Relaxed);
            report.add(outcome);
        }
    };
    let mut report = SweepReport::default();
    if sweep.threads <= 1 {
        report = work();
    } else {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..sweep.threads).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                report.merge(worker.join().expect("runs catch the panics of simulated code"));
            }
        });
    }
    report.wall_seconds = began.elapsed().as_secs_f64();
    report.judge(S::FAMILY, S::MARKS);
    report
}

/// A seed that did not give the same run twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The seed.
    pub seed: u64,
    /// The trace hash in a thread of its own.
    pub fresh: u64,
    /// The trace hash in the middle of a sweep.
    pub in_sweep: u64,
}

/// Runs each seed in a thread of its own, and again in the middle of a sweep; returns those that differ. The test that
/// must run before all others.
pub fn determinism<S: Scenario>(
    factory: &(impl Fn(&mut Rng) -> S + Sync),
    seeds: Range<u64>,
    options: &Options,
) -> Vec<Divergence> {
    let in_sweep: Vec<u64> = seeds.clone().map(|seed| run_seed(factory, seed, options).hash).collect();
    let fresh = |seed| {
        let run = || run_seed(factory, seed, options).hash;
        std::thread::scope(|scope| scope.spawn(run).join().expect("runs catch the panics of simulated code"))
    };
    let pairs = seeds.zip(in_sweep).map(|(seed, in_sweep)| Divergence { seed, fresh: fresh(seed), in_sweep });
    pairs.filter(|pair| pair.fresh != pair.in_sweep).collect()
}
