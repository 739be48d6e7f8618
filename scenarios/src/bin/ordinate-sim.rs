//! Shows that the simulation would notice: runs each known mistake until an invariant breaks.
//!
//! `ordinate-sim mutants --all [--json]`, or `ordinate-sim mutants P01 mason::seal_answered_early`. `ordinate-sim run FAMILY FROM COUNT [ID]` sweeps seeds,
//! with a planted bug if one is named. `ordinate-sim trace FAMILY SEED [ID]` prints what happened in one. `ordinate-sim shrink FAMILY SEED [ID]` shrinks a failure and prints it. `ordinate-sim shrinking` measures how small
//! ten failures become. `ordinate-sim explore`
//! visits every state of the smallest cluster.
#![forbid(unsafe_code)]

use scenarios::fuzzylog::smallest::{LOST, RIVALS, TAKE_OVER, TWO_ORIGINS};
use scenarios::mutants::{Hunted, MUTANTS, hunt, named};
use scenarios::paxos::smallest::{CANDIDACIES, CRASHES, FAULTS, Smallest};
use scenarios::shrinking::{self, MEASURED, SMALL_MIN};
use scenarios::spanner::smallest::{APART, COORDINATOR, IN_DOUBT, PARTICIPANT};
use sim::{Experiment, Options, Sweep};
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SEEDS_MAX: u64 = 2_000;
const BUDGET: Duration = Duration::from_secs(60);
const SHRINK_BUDGET: Duration = Duration::from_secs(60);
const USAGE: &str = "usage: ordinate-sim mutants (--all | ID...) [--json] [--seeds=N] [--seconds=N]\n\
                     \u{20}      ordinate-sim run FAMILY FROM COUNT [ID]\n\
                     \u{20}      ordinate-sim shrink FAMILY SEED [ID]\n\
                     \u{20}      ordinate-sim shrinking\n\
                     \u{20}      ordinate-sim trace FAMILY SEED [ID] [--only=TEXT]...\n\
                     \u{20}      ordinate-sim explore (candidacies | faults | crashes) [ID]\n\
                     \u{20}      ordinate-sim explore (participant | coordinator | in-doubt | apart) [ID]\n\
                     \u{20}      ordinate-sim explore (take-over | rivals | lost | two-origins) [ID]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("explore", rest)) = arguments.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        return explore(rest);
    }
    if let Some(("run", rest)) = arguments.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        return run(rest);
    }
    if let Some(("shrink", rest)) = arguments.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        return shrink(rest);
    }
    if let Some(("trace", rest)) = arguments.split_first().map(|(verb, rest)| (verb.as_str(), rest)) {
        return trace(rest);
    }
    if arguments == ["shrinking"] {
        return measure_shrinking();
    }
    let (names, flags): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| !argument.starts_with("--"));
    let json = flags.iter().any(|flag| *flag == "--json");
    let all = flags.iter().any(|flag| *flag == "--all");
    let wanted = names.get(1..).unwrap_or_default();
    let within = flags.iter().find_map(|flag| flag.strip_prefix("--seeds="));
    let Ok(seeds_max) = within.map_or(Ok(SEEDS_MAX), str::parse) else { return misused() };
    let sound =
        flags.iter().all(|flag| ["--json", "--all"].contains(&flag.as_str()) || flag.starts_with("--se"));
    let known = |name: &str| named(name).is_some();
    let budget = flags.iter().find_map(|flag| flag.strip_prefix("--seconds="));
    let Ok(budget) = budget.map_or(Ok(BUDGET), |it| it.parse().map(Duration::from_secs)) else {
        return misused();
    };
    if names.first().is_none_or(|verb| *verb != "mutants")
        || all != wanted.is_empty()
        || !sound
        || !wanted.iter().all(|name| known(name))
    {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let families = scenarios::families();
    let mut survivors = 0;
    if !json {
        println!("{:<6}{:<56}{:<16}{:>6}{:>10}  fired", "id", "name", "expected", "seeds", "core s");
    }
    for mutant in MUTANTS {
        let (id, name) = (mutant.planted.id, mutant.planted.name());
        if !all && !wanted.iter().any(|wanted| **wanted == id || **wanted == name) {
            continue;
        }
        let Some(family) = families.iter().find(|family| family.family() == mutant.family) else { continue };
        let hunted = hunt(family.as_ref(), *mutant, seeds_max, budget);
        survivors += usize::from(!hunted.is_caught());
        print(id, name, &hunted, json);
    }
    if survivors > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The family of that name, and the options with a planted bug.
fn experiment(name: &str, bug: Option<&String>) -> Option<(Box<dyn Experiment>, Options)> {
    let family = scenarios::families().into_iter().find(|family| family.family() == name)?;
    let planted = match bug {
        Some(bug) => Some(named(bug)?),
        None => None,
    };
    Some((family, Options { planted, ..Options::default() }))
}

/// A mark that fewer than one of so many seeds reach is reported.
const RARE: u64 = 40;

fn run(arguments: &[String]) -> ExitCode {
    let [name, from, count, rest @ ..] = arguments else { return misused() };
    let (Ok(from), Ok(count)) = (from.parse::<u64>(), count.parse::<u64>()) else { return misused() };
    let Some((family, options)) = experiment(name, rest.first()) else { return misused() };
    let began = sim::core_seconds();
    let report = family.sweep(&Sweep { options, ..Sweep::of(from..from + count) });
    let seconds = sim::core_seconds() - began;
    for found in &report.found {
        println!("seed {} broke {} at step {}: {}", found.seed, found.invariant, found.step, found.what);
    }
    for shortfall in &report.shortfalls {
        println!("NOT REACHED {shortfall}");
    }
    for (mark, reached) in report.marks.iter().filter(|(_, reached)| reached.seeds * RARE < report.seeds) {
        println!("rare: {mark} in {} seeds", reached.seeds);
    }
    println!(
        "{name}: {} seeds, {} violations, {} excused, {} undecided, {:.2} simulated hours, {} events, {} operations, {seconds:.1} core s, {:.2} seeds a core s, hash {:x}",
        report.seeds,
        report.violations,
        report.excused,
        report.undecided,
        report.sim_hours,
        report.events,
        report.operations,
        report.seeds as f64 / seconds,
        report.hash
    );
    if report.violations > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn shrink(arguments: &[String]) -> ExitCode {
    let [name, seed, rest @ ..] = arguments else { return misused() };
    let Ok(seed) = seed.parse::<u64>() else { return misused() };
    let Some((family, options)) = experiment(name, rest.first()) else { return misused() };
    let failing = family.run(seed, &options);
    let Some(shrunk) = family.shrink(&failing, &options, SHRINK_BUDGET) else {
        println!("seed {seed} breaks nothing");
        return ExitCode::SUCCESS;
    };
    let about = sim::Report {
        shrunk: Some(sim::Before {
            faults: shrunk.faults_before,
            operations: shrunk.operations_before,
            seconds: shrunk.took.as_secs_f64(),
        }),
        ..sim::Report::default()
    };
    print!("{}", sim::report(&shrunk.outcome, &about).unwrap_or_default());
    ExitCode::FAILURE
}

/// Prints the table of the reliability page.
fn measure_shrinking() -> ExitCode {
    println!("| bug, seed | faults | operations | runs | core seconds |\n| --- | --- | --- | --- | --- |");
    let mut small = 0;
    for it in shrinking::measure(&scenarios::families(), SEEDS_MAX, SHRINK_BUDGET) {
        small += usize::from(it.is_small());
        println!(
            "| {}, {} | {} to {} | {} to {} | {} | {:.0} |",
            it.mutant.planted.id,
            it.seed,
            it.faults.before,
            it.faults.after,
            it.operations.before,
            it.operations.after,
            it.runs,
            it.seconds
        );
    }
    println!("\n{small} of {} lose 90 % of their faults and of their operations", MEASURED.len());
    if small >= SMALL_MIN { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn trace(arguments: &[String]) -> ExitCode {
    let (names, flags): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| !argument.starts_with("--"));
    let only: Option<Vec<String>> =
        flags.iter().map(|flag| flag.strip_prefix("--only=").map(str::to_owned)).collect();
    let ([name, seed, rest @ ..], Some(trace_only)) = (&names[..], only) else { return misused() };
    let Ok(seed) = seed.parse::<u64>() else { return misused() };
    let Some((family, options)) = experiment(name, rest.first().copied()) else { return misused() };
    let outcome = family.run(seed, &Options { trace: true, trace_only, ..options });
    for line in &outcome.trace {
        println!(
            "{:>8} {:>10.6} {}",
            line.step,
            line.at as f64 / 1e9,
            sim::plain(&line.text, &outcome.names)
        );
    }
    match outcome.violation {
        Some(violation) => {
            println!("{}: {}", violation.invariant, violation.what);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn misused() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn explore(arguments: &[String]) -> ExitCode {
    kernel::plant(arguments.get(1).and_then(|name| named(name)));
    let paxos = |bounds| Smallest { leaders: 2, bounds }.explore();
    let found = match arguments.first().map(String::as_str) {
        Some("candidacies") => paxos(CANDIDACIES),
        Some("faults") => paxos(FAULTS),
        Some("crashes") => paxos(CRASHES),
        Some("participant") => PARTICIPANT.explore(),
        Some("coordinator") => COORDINATOR.explore(),
        Some("in-doubt") => IN_DOUBT.explore(),
        Some("apart") => APART.explore(),
        Some("take-over") => TAKE_OVER.explore(),
        Some("rivals") => RIVALS.explore(),
        Some("lost") => LOST.explore(),
        Some("two-origins") => TWO_ORIGINS.explore(),
        Some(_) | None => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("{}", found.to_json());
    if found.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(id: &str, name: &str, hunted: &Hunted, json: bool) {
    let expected = hunted.mutant.expected.join("|");
    let Hunted { seeds, seconds, .. } = hunted;
    let caught = hunted.is_caught();
    if json {
        let fired = hunted.fired.as_ref().map_or("null".to_owned(), |fired| format!("\"{fired}\""));
        println!(
            "{{\"id\":\"{id}\",\"name\":\"{name}\",\"family\":\"{}\",\"expected\":\"{expected}\",\"seeds\":{seeds},\
             \"core_seconds\":{seconds:.2},\"fired\":{fired},\"caught\":{caught}}}",
            hunted.mutant.family
        );
        return;
    }
    let fired = hunted.fired.as_deref().unwrap_or("SURVIVED");
    let others: Vec<&str> = hunted.others.iter().map(String::as_str).collect();
    let before = if others.is_empty() { String::new() } else { format!(" (before: {})", others.join(" ")) };
    println!("{id:<6}{name:<56}{expected:<16}{seeds:>6}{seconds:>10.2}  {fired}{before}");
}
