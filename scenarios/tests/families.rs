//! Every simulated family, as far as every test run can afford it; `ordinate sim run FAMILY --seeds N` goes on.

use sim::{Experiment, Options, Sweep};

/// How many seeds are swept, if `ORDINATE_SEEDS` does not say: the more of a family's run is its rare cases, the more.
fn seeds_of(family: &dyn Experiment) -> u64 {
    let asked = std::env::var("ORDINATE_SEEDS").ok().map(|text| text.parse().expect("a number of seeds"));
    asked.unwrap_or(match family.family() {
        "mason" | "paxos" => 100,
        _ => 60,
    })
}

// A role that depends on a map's order or a real clock makes every failing seed worthless.
#[test]
fn the_same_seed_gives_the_same_run() {
    for family in scenarios::families() {
        let diverged = family.determinism(0..20, &Options::default());
        assert!(diverged.is_empty(), "{}: {diverged:?}", family.family());
    }
}

// Any broken promise, or a service that stands still, on fresh ground.
#[test]
fn a_short_sweep_is_clean() {
    for family in scenarios::families() {
        let report = family.sweep(&Sweep { threads: 2, ..Sweep::of(0..seeds_of(family.as_ref())) });
        assert_eq!(report.violations, 0, "{}: {:#?}", family.family(), report.found);
        assert!(report.operations > 100 * report.seeds && report.excused <= 1, "{}", report.to_json());
    }
}

// An invariant that no mistake can break guards nothing. Two halves, for two cores.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_caught_as_expected() {
    hunt_every_second(0);
}

#[cfg(feature = "planted")]
#[test]
fn other_planted_bugs_are_caught_as_expected() {
    hunt_every_second(1);
}

#[cfg(feature = "planted")]
fn hunt_every_second(first: usize) {
    use scenarios::mutants::{MUTANTS, hunt};
    use std::time::Duration;

    // These need more seeds than a test run has time for; `ordinate-sim mutants --all` hunts them all.
    let slow = ["C38", "K29", "P25", "P47", "P49", "T30"];
    let families = scenarios::families();
    let hunted = MUTANTS.iter().filter(|mutant| !slow.contains(&mutant.planted.id));
    let mut survivors = Vec::new();
    for mutant in hunted.skip(first).step_by(2) {
        let family = families.iter().find(|family| family.family() == mutant.family);
        let family = family.expect("every family is listed");
        let hunted = hunt(family.as_ref(), *mutant, 2_000, Duration::from_secs(60));
        if !hunted.is_caught() {
            survivors.push(hunted);
        }
    }
    assert!(survivors.is_empty(), "{survivors:#?}");
}
