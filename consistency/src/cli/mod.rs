//! `ordinate check`: arguments, budgets, progress, exit codes. The only part of the crate with a clock and files.

mod decide;
mod report;

use crate::check::Watch;
use crate::format::LoadOptions;
use crate::level::Level;
use crate::model::Model;
use crate::terms::Value;
use clap::{Args, ValueEnum};
use decide::{Answer, Job, decide};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Decide histories against consistency models, and show why.
#[derive(Clone, Debug, Args)]
#[command(after_help = models_help())]
pub struct CheckArgs {
    /// Models, separated by commas; `auto` is the strongest that suits the data; `session` the four guarantees.
    #[arg(long, short, value_delimiter = ',', default_value = "auto")]
    pub model: Vec<String>,
    /// Histories: Jepsen EDN or JSON lines, interval lines, Porcupine JSON, or our own. The format is detected.
    #[arg(required = true, value_name = "HISTORY")]
    pub histories: Vec<PathBuf>,
    /// How to answer.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Do not look for the strongest models that hold.
    #[arg(long)]
    pub no_strongest: bool,
    /// Whether refused conditional writes count as writes for real time.
    #[arg(long, value_enum, default_value_t = Writes::ByEffect)]
    pub writes: Writes,
    /// Seconds per history; afterwards the answer is "undecided".
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    pub time_limit: f64,
    /// MiB of memory for the whole process; beyond it the answer is "undecided". A search takes a quarter at most
    /// to remember what failed, then forgets it and goes on.
    #[arg(long, default_value_t = 8192, value_name = "MIB")]
    pub memory_limit: u64,
    /// Steps that a search may take; without it, only --time-limit ends one.
    #[arg(long, value_name = "STEPS")]
    pub search_steps: Option<u64>,
    /// Accept a history without operations, of which every model holds.
    #[arg(long)]
    pub allow_empty: bool,
    /// For `eventual`: how long after the last write all must agree, in the history's unit of time.
    #[arg(long, default_value_t = 0)]
    pub settle_after: u64,
    /// What unwritten registers hold, besides nil.
    #[arg(long)]
    pub initial: Option<String>,
    /// The level of reads that name none, for `by-level`: strict, rss, process-ordered, at or stale.
    #[arg(long)]
    pub level: Option<Level>,
    /// Processes may have several operations open; they are ordered by invocation.
    #[arg(long)]
    pub pipelined: bool,
    /// Ignore unknown fields and missing trailers.
    #[arg(long)]
    pub lenient: bool,
    /// Draw the history and the witness into this page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the witness as a Graphviz graph.
    #[arg(long, value_name = "FILE")]
    pub dot: Option<PathBuf>,
    /// Write the history again in another format.
    #[arg(long, value_enum, requires = "to")]
    pub export: Option<Export>,
    /// Where to export to.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

/// How to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// One JSON object per history, one a line.
    Json,
}

/// What counts as a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Writes {
    /// What wrote.
    ByEffect,
    /// What asked to write.
    ByType,
}

/// Formats to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Export {
    /// Our own JSON lines.
    Ordinate,
    /// Jepsen's EDN.
    Edn,
    /// Jepsen's events as JSON lines.
    JepsenJson,
    /// Porcupine's operations as a JSON array.
    Porcupine,
}

/// What a run came to, as an exit code. When several histories differ, the first of violated, failure, bad input,
/// undecided wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// Every model asked holds on every history: 0.
    Holds,
    /// Some answer is unknown: 3.
    Undecided,
    /// Some history is none: 2.
    BadInput,
    /// A file could not be opened or written: 1.
    Failure,
    /// Some model does not hold: 5.
    Violated,
}

impl Outcome {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Holds => 0,
            Outcome::Undecided => 3,
            Outcome::BadInput => 2,
            Outcome::Failure => 1,
            Outcome::Violated => 5,
        }
    }
}

/// Checks every history and prints the answers. The exit code: 0 holds, 5 violated, 3 undecided, 2 bad input,
/// 1 other failure.
pub fn run(args: CheckArgs) -> u8 {
    let models = match models(&args.model) {
        Ok(models) => models,
        Err(reason) => {
            eprintln!("error[O9001]: the model cannot be checked\n  {reason}\n  -> ordinate check --help");
            return Outcome::BadInput.code();
        }
    };
    let several = args.histories.len() > 1;
    if several && (args.html.is_some() || args.dot.is_some() || args.to.is_some()) {
        let fact = "--html, --dot and --to name one file, so they take one history";
        eprintln!("error[O9001]: several histories\n  {fact}\n  -> ordinate check --help");
        return Outcome::BadInput.code();
    }
    let outcomes = args.histories.iter().map(|path| one(&args, &models, path.clone()));
    outcomes.max().unwrap_or(Outcome::Holds).code()
}

/// The models by name, for `--help`.
fn models_help() -> String {
    let width = Model::ALL.iter().map(|model| model.name().len()).max().unwrap_or(0);
    let lines = Model::ALL.map(|model| format!("  {:width$}  {}\n", model.name(), model.meaning()));
    format!("Models:\n{}", lines.concat())
}

/// `None` stands for the strongest model that suits the data.
fn models(names: &[String]) -> Result<Vec<Option<Model>>, String> {
    let session =
        [Model::ReadYourWrites, Model::MonotonicReads, Model::MonotonicWrites, Model::WritesFollowReads];
    let mut models = Vec::new();
    for name in names {
        match &**name {
            "auto" => models.push(None),
            "session" => models.extend(session.map(Some)),
            name => models.push(Some(name.parse()?)),
        }
    }
    Ok(models)
}

/// What the worker is at, for the person who waits.
#[derive(Default)]
pub(crate) struct Shared {
    read: AtomicU64,
    total: AtomicU64,
    stop: Arc<AtomicBool>,
    phase: Mutex<String>,
}

impl Shared {
    pub(crate) fn on_bytes(&self, bytes: u64) -> bool {
        self.read.store(bytes, Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed)
    }

    /// Set when the caller gave up.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    pub(crate) fn on_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }
}

impl Watch for Arc<Shared> {
    fn phase(&mut self, name: &str) -> bool {
        if let Ok(mut phase) = self.phase.lock() {
            name.clone_into(&mut phase);
        }
        !self.stop.load(Ordering::Relaxed)
    }
}

fn one(args: &CheckArgs, models: &[Option<Model>], path: PathBuf) -> Outcome {
    let initial =
        args.initial.as_ref().map(|text| text.parse().map_or_else(|_| Value::from(text.clone()), Value::Int));
    let load = LoadOptions { lenient: args.lenient, initial, pipelined: args.pipelined, level: args.level };
    let job = Job {
        path: path.clone(),
        load,
        models: models.to_vec(),
        strongest: !args.no_strongest,
        writes_by_type: args.writes == Writes::ByType,
        memory_max: args.memory_limit.saturating_mul(1 << 20) as usize,
        search_steps: args.search_steps.unwrap_or(u64::MAX),
        allow_empty: args.allow_empty,
        settle_after: args.settle_after,
        html: args.html.clone(),
        dot: args.dot.clone(),
        export: args.export.zip(args.to.clone()),
    };
    let began = Instant::now();
    let shared = Arc::new(Shared::default());
    let (sender, receiver) = channel();
    let worker_shared = shared.clone();
    // The worker is never joined: when a budget runs out it is left behind and dies with the process.
    std::thread::spawn(move || {
        let answer = decide(&job, &worker_shared);
        let _ = sender.send(answer);
    });
    let mut bar = Bar::new(&path);
    let answer = loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Disconnected) => {
                break Answer::Failure("the checker itself stopped: this is a bug".to_owned());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        bar.show(&shared, began);
        let spent = began.elapsed().as_secs_f64();
        if spent > args.time_limit {
            shared.stop.store(true, Ordering::Relaxed);
            break Answer::Undecided(format!("no answer within {} s (--time-limit)", args.time_limit));
        }
        if resident_mib().is_some_and(|used| used > args.memory_limit) {
            shared.stop.store(true, Ordering::Relaxed);
            break Answer::Undecided(format!(
                "more than {} MiB of memory (--memory-limit)",
                args.memory_limit
            ));
        }
    };
    bar.clear();
    report::print(args.output, &path, &answer, began.elapsed().as_secs_f64())
}

/// Memory of this process, where the system reports it.
fn resident_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib >> 10)
}

/// Progress with rate and time left: on a terminal only, and only for what takes more than half a second.
struct Bar {
    name: String,
    bar: Option<ProgressBar>,
    terminal: bool,
}

impl Bar {
    fn new(path: &std::path::Path) -> Bar {
        Bar { name: path.display().to_string(), bar: None, terminal: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, shared: &Shared, began: Instant) {
        if !self.terminal || began.elapsed() < Duration::from_millis(500) {
            return;
        }
        let total = shared.total.load(Ordering::Relaxed);
        let name = &self.name;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(total);
            let style = "{prefix} {bar:24} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left  {msg}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar.set_prefix(name.clone());
            bar
        });
        bar.set_position(shared.read.load(Ordering::Relaxed).min(total));
        if let Ok(phase) = shared.phase.lock() {
            bar.set_message(format!("{phase} ({:.1} s)", began.elapsed().as_secs_f64()));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
