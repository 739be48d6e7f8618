//! The simulated MultiPaxos clusters, as far as every test run can afford them.

use scenarios::paxos::PaxosScenario;
use sim::{Options, Sweep};

fn draw(rng: &mut kernel::Rng) -> PaxosScenario {
    PaxosScenario::draw(rng)
}

// A role that depends on a map's order or a real clock makes every failing seed worthless.
#[test]
fn the_same_seed_gives_the_same_run() {
    let diverged = sim::determinism(&draw, 0..20, &Options::default());
    assert!(diverged.is_empty(), "{diverged:?}");
}

// Any broken invariant of agreement, order, sessions or liveness on fresh ground.
#[test]
fn a_short_sweep_is_clean() {
    let report = sim::sweep(&draw, &Sweep { threads: 2, ..Sweep::of(0..90) });
    assert_eq!(report.violations, 0, "{:#?}", report.found);
    assert!(report.operations > 10_000 && report.excused <= 1, "{}", report.to_json());
}

// An invariant that no mistake can break guards nothing.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_caught_as_expected() {
    use scenarios::mutants::{MUTANTS, hunt};
    use std::time::Duration;

    let families = scenarios::families();
    // The others need more seeds than a test run has time for; `ordinate-sim mutants --all` hunts them all.
    let quick = ["P01", "P03", "P04", "P07", "P08", "P09", "P10", "P21", "P22", "K13"];
    for mutant in MUTANTS.iter().filter(|mutant| quick.contains(&format!("{:?}", mutant.planted).as_str())) {
        let family = families.iter().find(|family| family.family() == mutant.family);
        let hunted =
            hunt(family.expect("every family is listed").as_ref(), *mutant, 2_000, Duration::from_secs(60));
        assert!(hunted.is_caught(), "{hunted:?}");
    }
}
