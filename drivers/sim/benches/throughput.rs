//! How fast the simulator is, and how soon it finds what it should: the register on 3 and 5 servers, all faults, on one
//! thread. `cargo bench -p sim`.
#![allow(missing_docs)]

#[path = "../tests/simulator/register/mod.rs"]
mod register;

use register::Mistake;
use register::scenario::RegisterScenario;
use register::scope::RegisterScope;
use sim::{ExploreBounds, Options, Sweep};
use std::time::Duration;

fn main() {
    let factory = |rng: &mut kernel::Rng| RegisterScenario::draw(Mistake::None, rng);
    let report = sim::sweep(&factory, &Sweep::of(0..10_000));
    assert!(report.passed(), "{}", report.to_json());
    println!(
        "hash {:016x}: {} seeds, {:.1} simulated hours, {} operations, {} events in {:.1} s: {:.0} events a second",
        report.hash,
        report.seeds,
        report.sim_hours,
        report.operations,
        report.events,
        report.wall_seconds,
        report.events as f64 / report.wall_seconds
    );
    let requests =
        vec![vec![register::Request::Write { key: 0, value: 1 }], vec![register::Request::Read { key: 0 }]];
    let bounds = ExploreBounds { states: 2_000_000, ..ExploreBounds::default() };
    let found = sim::explore(&RegisterScope { mistake: Mistake::None, servers: 3, requests, bounds });
    assert!(found.passed(), "{}", found.to_json());
    println!(
        "{} distinct states, {} steps in {:.1} s: {:.0} states a second",
        found.states,
        found.steps,
        found.wall_seconds,
        found.states as f64 / found.wall_seconds
    );
    for mistake in [
        Mistake::AckBeforeDurable,
        Mistake::NoJournal,
        Mistake::TrimTooMuch,
        Mistake::ReadFromOne,
        Mistake::NoWriteBack,
        Mistake::NeverResends,
        Mistake::Panics,
    ] {
        first_kill(mistake);
    }
}

fn first_kill(mistake: Mistake) {
    let factory = move |rng: &mut kernel::Rng| RegisterScenario::draw(mistake, rng);
    let report = sim::sweep(&factory, &Sweep { violations_max: 1, ..Sweep::of(0..2_000) });
    let Some(found) = report.found.first() else {
        return println!("{mistake:?}: survived {} seeds", report.seeds);
    };
    let failing = sim::run_seed(&factory, found.seed, &Options::default());
    let shrunk = sim::shrink(&factory, &failing, &Options::default(), Duration::from_secs(60))
        .expect("the recorded plan fails again");
    println!(
        "{mistake:?}: {} at seed {} ({:.2} s); {} faults to {}, {} operations to {}, {} runs, {:.2} s",
        found.invariant,
        found.seed,
        report.wall_seconds,
        shrunk.faults_before,
        shrunk.outcome.plan.faults.len(),
        shrunk.operations_before,
        shrunk.outcome.operations.len(),
        shrunk.runs,
        shrunk.took.as_secs_f64()
    );
}
