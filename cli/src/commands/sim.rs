//! `ordinate sim`: sweeps, single runs, replays, shrinking, and the check that a seed is one run.

use super::output::{GivenOutput, Output};
use crate::failure::Failure;
use clap::Subcommand;
use serde_json::json;
use sim::{Before, Experiment, Options, Outcome, Plan, Report, Sweep};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The fault simulator
#[derive(Subcommand)]
pub enum Sim {
    /// Run a protocol family over many seeds, or over one
    Run {
        /// The family, for example paxos
        family: String,
        /// How many seeds
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// The first seed
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Only this seed, with its trace when it fails
        #[arg(long, conflicts_with_all = ["seeds", "from"])]
        seed: Option<u64>,
        /// Repeat the faults of this plan
        #[arg(long, value_name = "FILE", requires = "seed")]
        shrunk: Option<PathBuf>,
        /// Stop drawing seeds after so many minutes
        #[arg(long, value_parser = super::seconds)]
        minutes: Option<Duration>,
        /// Write the report as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Threads
        #[arg(long, default_value_t = 2)]
        threads: usize,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// Repeat the faults of a saved plan
    Replay {
        /// The family
        family: String,
        /// The plan
        plan: PathBuf,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// Take faults out of a failing seed for as long as it fails, and save the plan
    Shrink {
        /// The family
        family: String,
        /// The seed
        seed: u64,
        /// Where the plan goes
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// For how long to try, in seconds of a core
        #[arg(long, default_value = "30", value_parser = super::seconds)]
        seconds: Duration,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// Run seeds alone and in the middle of others, and compare every step
    Determinism {
        /// The family
        family: String,
        /// How many seeds
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// The families there are
    List {
        #[command(flatten)]
        output: GivenOutput,
    },
}

const VIOLATED: u8 = 5;
/// Seeds between two lines of progress.
const SEEDS_PER_STEP: u64 = 100;

impl Sim {
    /// Runs and prints.
    pub fn run(self) -> ExitCode {
        let outcome = match self {
            Self::Run { family, seed: Some(seed), shrunk, output: GivenOutput(output), .. } => {
                with(&family, |it| one(it, seed, shrunk.as_deref(), output))
            }
            Self::Run { family, seeds, from, minutes, json, threads, output, .. } => with(&family, |it| {
                let budget = minutes.map(|minutes| minutes * 60);
                let options = Sweep {
                    threads,
                    budget,
                    violations_max: 20,
                    ..Sweep::of(from..from.saturating_add(seeds))
                };
                many(it, &options, json.as_deref(), output.0)
            }),
            Self::Replay { family, plan, output } => with(&family, |it| one(it, 0, Some(&plan), output.0)),
            Self::Shrink { family, seed, out, seconds, output } => {
                with(&family, |it| shrink(it, seed, out, seconds, output.0))
            }
            Self::Determinism { family, seeds, output } => {
                with(&family, |it| determinism(it, seeds, output.0))
            }
            Self::List { output: GivenOutput(output) } => {
                for family in scenarios::families() {
                    let name = family.family();
                    output.print(|| json!(name), || name.to_owned());
                }
                Ok(ExitCode::SUCCESS)
            }
        };
        outcome.unwrap_or_else(|error| {
            Failure::input("O6001", error, "", "ordinate sim list, or ordinate sim run --help").report()
        })
    }
}

fn with(
    name: &str,
    act: impl FnOnce(&dyn Experiment) -> Result<ExitCode, String>,
) -> Result<ExitCode, String> {
    let families = scenarios::families();
    match families.iter().find(|family| family.family() == name) {
        Some(family) => act(family.as_ref()),
        None => {
            let names: Vec<_> = families.iter().map(|family| family.family()).collect();
            Err(format!("no family {name}; there are: {}", names.join(", ")))
        }
    }
}

fn many(
    family: &dyn Experiment,
    wanted: &Sweep,
    json: Option<&Path>,
    output: Output,
) -> Result<ExitCode, String> {
    let begun = Instant::now();
    show_progress(family, wanted);
    let report = family.sweep(wanted);
    if let Some(path) = json {
        std::fs::write(path, report.to_json()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let passed = if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) };
    if output.is_json() {
        println!("{}", report.to_json());
        return Ok(passed);
    }
    println!(
        "{}: {} seeds, {} violations, {:.1} simulated hours, {} events, {} operations in {:.1} s",
        report.family,
        report.seeds,
        report.violations,
        report.sim_hours,
        report.events,
        report.operations,
        begun.elapsed().as_secs_f64()
    );
    let classes = report.matrix.values().flat_map(|classes| classes.iter());
    println!(
        "faults: {}",
        classes.map(|(class, count)| format!("{count} {class}")).collect::<Vec<_>>().join(", ")
    );
    let marks = report.marks.iter().map(|(name, reached)| format!("{name} {}", reached.seeds));
    println!("marks (seeds): {}", marks.collect::<Vec<_>>().join(", "));
    println!("excused: {} of {} seeds", report.excused, report.seeds);
    println!("undecided histories: {} of {} seeds", report.undecided, report.seeds);
    for shortfall in &report.shortfalls {
        println!("NOT REACHED {shortfall}");
    }
    for found in report.found.iter().take(5) {
        println!(
            "VIOLATION {}/{} at step {}  seed {}\n  {}",
            report.family, found.invariant, found.step, found.seed, found.what
        );
        println!("  shrink: ordinate sim shrink {} {}", report.family, found.seed);
    }
    Ok(passed)
}

/// On a terminal, a small sweep ahead shows how fast the real one will be.
fn show_progress(family: &dyn Experiment, wanted: &Sweep) {
    let seeds = wanted.seeds.end - wanted.seeds.start;
    if !std::io::stderr().is_terminal() || seeds < SEEDS_PER_STEP {
        return;
    }
    let begun = Instant::now();
    let probe = Sweep { budget: Some(Duration::from_millis(500)), ..wanted.clone() };
    let report = family.sweep(&probe);
    if report.seeds > 0 {
        let rate = report.seeds as f64 / begun.elapsed().as_secs_f64();
        eprintln!("about {rate:.0} seeds a second: {seeds} seeds take about {:.0} s", seeds as f64 / rate);
    }
}

fn one(family: &dyn Experiment, seed: u64, plan: Option<&Path>, output: Output) -> Result<ExitCode, String> {
    let plan = plan.map(read_plan).transpose()?;
    let outcome = family.run(seed, &Options { plan, trace: true, ..Options::default() });
    Ok(notify(&outcome, None, output))
}

fn read_plan(path: &Path) -> Result<Plan, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Plan::from_text(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn notify(outcome: &Outcome, shrunk: Option<(Before, &str)>, output: Output) -> ExitCode {
    let about = Report {
        commit: option_env!("ORDINATE_COMMIT").unwrap_or_default(),
        plan_file: shrunk.map(|(_, file)| file),
        history_file: None,
        shrunk: shrunk.map(|(before, _)| before),
    };
    let text = sim::report(outcome, &about);
    if output.is_json() {
        let holds = text.is_none();
        println!(
            "{}",
            json!({ "family": outcome.family, "seed": outcome.seed, "holds": holds, "events": outcome.events,
                "operations": outcome.operations.len(), "trace": format!("{:016x}", outcome.hash),
                "plan_file": about.plan_file, "report": text })
        );
        return if holds { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) };
    }
    match text {
        Some(text) => {
            println!("{text}");
            ExitCode::from(VIOLATED)
        }
        None => {
            println!(
                "{} seed {}: holds; {} events, {} operations, {:.1} simulated s, trace {:016x}",
                outcome.family,
                outcome.seed,
                outcome.events,
                outcome.operations.len(),
                outcome.simulated as f64 / 1e9,
                outcome.hash
            );
            ExitCode::SUCCESS
        }
    }
}

fn shrink(
    family: &dyn Experiment,
    seed: u64,
    out: Option<PathBuf>,
    budget: Duration,
    output: Output,
) -> Result<ExitCode, String> {
    let failing = family.run(seed, &Options::default());
    if failing.violation.is_none() {
        return Ok(notify(&failing, None, output));
    }
    let Some(shrunk) = family.shrink(&failing, &Options { trace: true, ..Options::default() }, budget) else {
        return Err("the recorded plan does not fail again: that is a bug of the simulator".to_owned());
    };
    let path = out.unwrap_or_else(|| PathBuf::from(format!("{}-{seed}.plan", failing.family)));
    std::fs::write(&path, shrunk.outcome.plan.to_text())
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let file = path.display().to_string();
    let before = Before {
        faults: shrunk.faults_before,
        operations: shrunk.operations_before,
        seconds: shrunk.took.as_secs_f64(),
    };
    Ok(notify(&shrunk.outcome, Some((before, &file)), output))
}

fn determinism(family: &dyn Experiment, seeds: u64, output: Output) -> Result<ExitCode, String> {
    let diverged = family.determinism(0..seeds, &Options::default());
    let (name, sound) = (family.family(), seeds - diverged.len() as u64);
    let all: Vec<String> = diverged.iter().map(|divergence| format!("{divergence:?}")).collect();
    output.print(
        || json!({ "family": name, "seeds": seeds, "one_run_each": sound, "diverged": all }),
        || {
            let head = format!("{name}: {sound} of {seeds} seeds are one run each");
            all.iter().fold(head, |words, divergence| format!("{words}\n  {divergence}"))
        },
    );
    Ok(if diverged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) })
}
