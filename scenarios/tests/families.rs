//! Every simulated family, as far as every test run can afford it; `ordinate sim run FAMILY --seeds N` goes on.

use sim::{Experiment, Options, Sweep};

/// How many seeds are swept, if `ORDINATE_SEEDS` does not say: the more of a family's run is its rare cases, the more.
fn seeds_of(family: &dyn Experiment) -> u64 {
    let asked = std::env::var("ORDINATE_SEEDS").ok().map(|text| text.parse().expect("a number of seeds"));
    asked.unwrap_or(match family.family() {
        "mason" | "paxos" => 60,
        _ => 40,
    })
}

// A role that depends on a map's order or a real clock makes every failing seed worthless.
#[test]
fn the_same_seed_gives_the_same_run() {
    for family in scenarios::families() {
        let diverged = family.determinism(0..10, &Options::default());
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
    planted::hunt_every_second(0);
}

#[cfg(feature = "planted")]
#[test]
fn other_planted_bugs_are_caught_as_expected() {
    planted::hunt_every_second(1);
}

#[cfg(feature = "planted")]
mod planted {
    use scenarios::mutants::{MUTANTS, hunt};
    use sim::Options;
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::time::Duration;

    /// A seed that catches each bug, so that a test run need not find it again: the id and the seed, a line each. What the code does in a
    /// seed changes with the code. Then seeds are tried from 0 on, and `ORDINATE_BLESS=1` writes the file again.
    const RECORDED: &str = include_str!("seeds_that_catch.txt");

    fn recorded() -> BTreeMap<&'static str, u64> {
        let line = |line: &'static str| {
            let (id, seed) = line.split_once(' ').expect("an id and a seed");
            (id, seed.parse().expect("a seed"))
        };
        RECORDED.lines().map(line).collect()
    }

    pub(super) fn hunt_every_second(first: usize) {
        static CAUGHT: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
        let (families, recorded) = (scenarios::families(), recorded());
        let mut survivors = Vec::new();
        for mutant in MUTANTS.iter().skip(first).step_by(2) {
            let id = mutant.planted.id;
            let family = families.iter().find(|family| family.family() == mutant.family);
            let family = family.expect("every family is listed");
            let options = Options { planted: Some(mutant.planted), ..Options::default() };
            let catches = |seed: &u64| {
                let violation = family.run(*seed, &options).violation;
                violation.is_some_and(|it| mutant.expected.contains(&it.invariant.as_str()))
            };
            let mut seed = recorded.get(id).copied().filter(catches);
            if seed.is_none() {
                let hunted = hunt(family.as_ref(), *mutant, 2_000, Duration::from_secs(60));
                seed = hunted.is_caught().then(|| hunted.seeds - 1);
            }
            match seed {
                Some(seed) => {
                    CAUGHT.lock().expect("nobody panics with it").insert(id, seed);
                }
                None => survivors.push(id),
            }
        }
        if std::env::var_os("ORDINATE_BLESS").is_some() {
            let caught = CAUGHT.lock().expect("nobody panics with it");
            let text: String = caught.iter().map(|(id, seed)| format!("{id} {seed}\n")).collect();
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/seeds_that_catch.txt"), text)
                .expect("the file can be written");
        }
        assert!(survivors.is_empty(), "not caught: {survivors:?}");
    }
}
