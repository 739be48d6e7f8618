//! The simulated shared log, as far as every test run can afford it.

use scenarios::log::LogScenario;
use sim::{Options, Sweep};

fn draw(rng: &mut kernel::Rng) -> LogScenario {
    LogScenario::draw(rng)
}

// A role that depends on a map's order or a real clock makes every failing seed worthless.
#[test]
fn the_same_seed_gives_the_same_run() {
    let diverged = sim::determinism(&draw, 0..8, &Options::default());
    assert!(diverged.is_empty(), "{diverged:?}");
}

// An entry lost, a hole, a place used twice, or half an append, on fresh ground.
#[test]
fn a_short_sweep_is_clean() {
    let report = sim::sweep(&draw, &Sweep { threads: 2, ..Sweep::of(0..40) });
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
    let family = families.iter().find(|family| family.family() == "log").expect("every family is listed");
    for mutant in MUTANTS.iter().filter(|mutant| mutant.family == "log") {
        let hunted = hunt(family.as_ref(), *mutant, 2_000, Duration::from_secs(60));
        assert!(hunted.is_caught(), "{hunted:?}");
    }
}
