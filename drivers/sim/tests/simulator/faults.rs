//! The simulator against a small real protocol and known mistakes in it.

use crate::register::Mistake;
use crate::register::scenario::RegisterScenario;
use kernel::Rng;
use sim::{Class, Classes, Experiment, Fault, Options, Outcome, Report, Sweep, SweepReport, run_seed};
use std::time::Duration;

fn factory(mistake: Mistake) -> impl Fn(&mut Rng) -> RegisterScenario + Sync {
    move |rng| RegisterScenario::draw(mistake, rng)
}

fn run(mistake: Mistake, seed: u64, options: &Options) -> Outcome {
    run_seed(&factory(mistake), seed, options)
}

fn sweep(mistake: Mistake, sweep: &Sweep) -> SweepReport {
    sim::sweep(&factory(mistake), sweep)
}

/// The first seed that breaks something, and how.
fn first(mistake: Mistake, seeds: u64) -> Outcome {
    let broken = |seed| Some(run(mistake, seed, &Options::default())).filter(|run| run.violation.is_some());
    (0..seeds).find_map(broken).unwrap_or_else(|| panic!("{mistake:?} survived {seeds} seeds"))
}

const MISTAKES: [(Mistake, &str, u64); 7] = [
    (Mistake::AckBeforeDurable, "LIN", 300),
    (Mistake::NoJournal, "LIN", 50),
    (Mistake::TrimTooMuch, "LIN", 500),
    (Mistake::ReadFromOne, "LIN", 50),
    (Mistake::NoWriteBack, "LIN", 1000),
    (Mistake::NeverResends, "LIVE", 50),
    (Mistake::Panics, "AGREE", 50),
];

// A run that depends on anything but its seed cannot be debugged; a plan that replays otherwise cannot be shrunk.
#[test]
fn a_seed_is_one_run_and_its_plan_repeats_it() {
    assert_eq!(sim::determinism(&factory(Mistake::None), 0..30, &Options::default()), []);
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let drawn = run(Mistake::None, seed, &Options::default());
        let plan = sim::Plan::from_text(&drawn.plan.to_text()).expect("it was just written");
        let repeated = run(Mistake::None, seed, &Options { plan: Some(plan), ..Options::default() });
        assert_eq!((repeated.hash, repeated.events), (drawn.hash, drawn.events), "seed {seed}");
        assert_eq!(repeated.injections, drawn.injections);
        let traced = run(Mistake::None, seed, &Options { trace: true, ..Options::default() });
        assert_eq!(traced.hash, drawn.hash, "seed {seed} depends on being watched");
        hashes.insert(drawn.hash);
    }
    assert_eq!(hashes.len(), 60);
}

// A simulator that accuses a correct protocol is worth nothing, and one that never strikes is worth less.
#[test]
fn a_correct_protocol_is_not_accused_and_every_class_strikes() {
    let report = sweep(Mistake::None, &Sweep { threads: 2, ..Sweep::of(0..800) });
    assert!(report.passed(), "{}", report.to_json());
    assert_eq!(report.seeds, 800);
    // Its roles do not rest on the wall clock.
    let possible = Class::ALL.iter().filter(|class| !class.needs_clock()).count() - 2;
    assert_eq!(report.matrix["register"].len(), possible);
    assert!(report.asymmetric_partitions >= 0.3 && report.pairs_covered >= 0.95);
    assert!(report.sim_hours > 1.0);
    // The same seeds are the same runs, on however many threads.
    let hashes = [1, 2].map(|threads| sweep(Mistake::None, &Sweep { threads, ..Sweep::of(0..50) }).hash);
    assert_eq!(hashes[0], hashes[1]);
}

// A sweep that would pass without reaching what it must reach says nothing.
#[test]
fn a_sweep_that_reaches_too_little_fails() {
    let options = Options { classes: Classes::NONE.with(Class::Pause), ..Options::default() };
    let report = sweep(Mistake::NeverResends, &Sweep { options, ..Sweep::of(0..100) });
    assert_eq!(report.violations, 0);
    assert!(!report.passed());
    assert!(
        report.shortfalls.iter().any(|shortfall| shortfall.contains("client.resend")),
        "{:?}",
        report.shortfalls
    );
}

// A mistake that survives thousands of seeds, or dies of the wrong invariant, means that the simulator cannot make the
// schedule it needs.
#[test]
fn every_mistake_is_found_by_the_expected_invariant() {
    for (mistake, expected, seeds) in MISTAKES {
        let outcome = first(mistake, seeds);
        let violation = outcome.violation.expect("the first violation was asked for");
        assert_eq!(violation.invariant, expected, "{mistake:?}: {}", violation.what);
    }
}

// If the mistake died without lost writes, something else than the disk would be accusing it.
#[test]
fn an_early_acknowledgement_is_found_through_lost_writes_only() {
    let losing =
        [Class::LostWrites, Class::TornWrite, Class::ReorderedWrites, Class::WriteError, Class::Strike];
    let harmless = losing.into_iter().fold(Classes::ALL, Classes::without);
    let with = |classes| Sweep { options: Options { classes, ..Options::default() }, ..Sweep::of(0..400) };
    assert_eq!(sweep(Mistake::AckBeforeDurable, &with(harmless)).violations, 0);
    assert!(sweep(Mistake::AckBeforeDurable, &with(Classes::ALL)).violations > 0);
}

// A failing run of hundreds of faults is not readable; one that shrinks to another failure is misleading.
#[test]
fn failing_runs_shrink_to_a_quarter_and_still_fail() {
    for (mistake, expected, seeds) in MISTAKES {
        let failing = first(mistake, seeds);
        let shrunk = sim::shrink(&factory(mistake), &failing, &Options::default(), Duration::from_secs(60))
            .expect("the recorded plan fails again");
        let after = shrunk.outcome.plan.faults.len();
        assert!(after * 4 <= shrunk.faults_before, "{mistake:?}: {} to {after} faults", shrunk.faults_before);
        let retained = shrunk.outcome.plan.retained.as_ref().map_or(shrunk.operations_before, Vec::len);
        assert!(
            retained * 3 <= shrunk.operations_before,
            "{mistake:?}: {retained} of {}",
            shrunk.operations_before
        );
        let plan = sim::Plan::from_text(&shrunk.outcome.plan.to_text()).expect("it was just written");
        let again = run(mistake, 0, &Options { plan: Some(plan), ..Options::default() });
        assert_eq!(again.hash, shrunk.outcome.hash);
        assert_eq!(again.violation.expect("it fails again").invariant, expected);
    }
}

// Operations that begin at other times as soon as one is left out make every trial another run, and few can be left out.
#[test]
fn an_operation_less_leaves_the_times_of_the_others() {
    let repeated = |plan| run(Mistake::None, 3, &Options { plan: Some(plan), ..Options::default() });
    let calm = Options { classes: Classes::NONE, ..Options::default() };
    for (drawn, calmly) in
        [(run(Mistake::None, 3, &Options::default()), false), (run(Mistake::None, 3, &calm), true)]
    {
        let plan_of = |retained| sim::Plan { retained: Some(retained), ..drawn.plan.clone() };
        assert_eq!(repeated(plan_of(drawn.operations.clone())).hash, drawn.hash);
        let half: Vec<_> = drawn.operations.iter().step_by(2).copied().collect();
        let begun = repeated(plan_of(half.clone())).operations;
        let on_time = begun.iter().filter(|begun| half.contains(begun)).count();
        assert!(begun.len() > 20 && (!calmly || on_time == half.len()), "{on_time} of {}", half.len());
    }
}

// An engineer who is woken by a red build needs the seed, the line and the command.
#[test]
fn a_violation_is_reported_with_all_that_repeats_it() {
    let failing = first(Mistake::ReadFromOne, 50);
    let shrunk =
        sim::shrink(&factory(Mistake::ReadFromOne), &failing, &Options::default(), Duration::from_secs(60))
            .expect("the recorded plan fails again");
    let about = Report {
        commit: "1a2b3c",
        plan_file: Some("3.plan"),
        history_file: Some("3.edn"),
        shrunk: Some(sim::Before {
            faults: shrunk.faults_before,
            operations: shrunk.operations_before,
            seconds: shrunk.took.as_secs_f64(),
        }),
    };
    let text = sim::report(&shrunk.outcome, &about).expect("it failed");
    let seed = shrunk.outcome.seed;
    for part in [
        "VIOLATION register/LIN at step ".to_owned(),
        format!("seed {seed}  commit 1a2b3c"),
        format!("shrunk from {} events to ", failing.plan.faults.len()),
        format!("reproduce: ordinate sim run register --seed {seed} --shrunk 3.plan     history: 3.edn"),
        "responds".to_owned(),
    ] {
        assert!(text.contains(&part), "{part:?} is missing in:\n{text}");
    }
    assert!(shrunk.outcome.last.len() <= 40);
    assert!(shrunk.outcome.history.is_some());
    assert!(sim::report(&run(Mistake::None, 1, &Options::default()), &about).is_none());
}

// A class that is switched off by the caller, and strikes anyway, makes every experiment above meaningless.
#[test]
fn classes_that_are_off_do_not_strike() {
    for seed in 0..40 {
        let options = Options { classes: Classes::NONE.with(Class::Loss), ..Options::default() };
        let outcome = run(Mistake::None, seed, &options);
        assert!(outcome.injections.iter().all(|(class, _)| class == Class::Loss), "{:?}", outcome.injections);
        let only = |fault: &Fault| matches!(fault, Fault::Message { .. } | Fault::Freeze { .. });
        assert!(outcome.plan.faults.iter().all(only));
    }
}

// A program runs the families by name; a scenario that behaves otherwise there cannot be reproduced from its report.
#[test]
fn an_experiment_is_its_scenario() {
    let families: Vec<Box<dyn Experiment>> = vec![sim::experiment(factory(Mistake::ReadFromOne))];
    let experiment =
        families.iter().find(|family| family.family() == "register").expect("it is the only one");
    let options = Options::default();
    for seed in 0..10 {
        assert_eq!(experiment.run(seed, &options).hash, run(Mistake::ReadFromOne, seed, &options).hash);
    }
    let report = experiment.sweep(&Sweep { violations_max: 1, ..Sweep::of(0..1000) });
    assert_eq!((report.violations, report.found.len()), (1, 1));
    assert!(report.seeds < 50, "it went on after the first");
    assert_eq!(experiment.determinism(0..3, &options), []);
    let failing = experiment.run(report.found[0].seed, &options);
    assert!(experiment.shrink(&failing, &options, Duration::from_secs(60)).is_some());
}
