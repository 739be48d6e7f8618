//! One history from file to answer, whatever it is about.

use super::{Export, Shared};
use crate::check::{Options, Report, Watch, check_all, fates};
use crate::draw::{write_dot, write_html};
use crate::format::{self, LoadOptions, Loaded};
use crate::history::{History, OpIndex};
use crate::kv::{KvHistory, KvVerdict};
use crate::model::Model;
use crate::search::{Found, Interval, Object, Queue, SearchBudget, Znodes, linearize, linearize_log};
use crate::verdict::Verdict;
use crate::witness::Witness;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// What to do with one file.
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    pub(crate) load: LoadOptions,
    pub(crate) models: Vec<Option<Model>>,
    pub(crate) strongest: bool,
    pub(crate) writes_by_type: bool,
    pub(crate) memory_max: usize,
    pub(crate) search_steps: u64,
    pub(crate) allow_empty: bool,
    pub(crate) settle_after: u64,
    pub(crate) html: Option<PathBuf>,
    pub(crate) dot: Option<PathBuf>,
    pub(crate) export: Option<(Export, PathBuf)>,
}

impl Job {
    /// What its searches may use until somebody sets `stop`.
    fn search(&self, shared: &Shared) -> SearchBudget {
        SearchBudget { steps: self.search_steps, bytes: self.memory_max / 4, stop: Some(shared.stop()) }
    }
}

/// What came of it.
pub(crate) enum Answer {
    /// The verdicts, and one line for each operation of their witnesses.
    Report(Box<Report>, BTreeMap<OpIndex, String>),
    BadInput(String),
    Failure(String),
    Undecided(String),
}

pub(crate) fn decide(job: &Job, shared: &Arc<Shared>) -> Answer {
    let file = match File::open(&job.path) {
        Ok(file) => file,
        Err(error) => return Answer::BadInput(format!("it cannot be opened: {error}")),
    };
    shared.on_total(file.metadata().map_or(0, |metadata| metadata.len()));
    let mut watch = shared.clone();
    watch.phase("reading");
    let empty = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    let reader = BufReader::with_capacity(1 << 20, file);
    let loaded = match format::load(reader, &job.load, &mut |bytes| shared.on_bytes(bytes)) {
        Ok(loaded) => loaded,
        Err(_) if empty && job.allow_empty => Loaded::Transactions(Box::default()),
        Err(error) => return Answer::BadInput(error.to_string()),
    };
    if loaded.is_empty() && !job.allow_empty {
        return Answer::BadInput("the history is empty (--allow-empty accepts it)".to_owned());
    }
    let search = job.search(shared);
    let answered = match loaded {
        Loaded::Transactions(history) => transactions(job, &history, search, &mut watch),
        Loaded::Kv(history) => kv(job, &history, search, &mut watch),
        Loaded::Queues(ops) => object(job, ops.len(), search, |budget| {
            let (names, ops): (Vec<String>, Vec<_>) = ops.into_iter().unzip();
            parts(&Queue, &names, &ops, budget)
        }),
        Loaded::Logs(ops) => object(job, ops.len(), search, |budget| {
            let mut logs: BTreeMap<String, Vec<_>> = BTreeMap::new();
            ops.into_iter().for_each(|(name, op)| logs.entry(name).or_default().push(op));
            let found = logs.iter().map(|(name, ops)| (name.clone(), linearize_log(ops, budget)));
            worst(found.map(|(name, found)| verdict(&name, &found)).collect())
        }),
        Loaded::Znodes(ops) => object(job, ops.len(), search, |budget| {
            parts(&Znodes, &vec![String::new(); ops.len()], &ops, budget)
        }),
    };
    answered.unwrap_or_else(|answer| answer)
}

fn options(job: &Job, models: Vec<Model>, search: SearchBudget) -> Options {
    let mut options = Options::of(Model::Serializable);
    options.models = models;
    options.strongest = job.strongest;
    options.writes_by_type = job.writes_by_type;
    options.memory_max = job.memory_max;
    options.settle_after = job.settle_after;
    options.search = search;
    options
}

fn transactions(
    job: &Job,
    history: &History,
    search: SearchBudget,
    watch: &mut Arc<Shared>,
) -> Result<Answer, Answer> {
    let single = history.operations().iter().all(|op| history.accesses(op).len() <= 1);
    let auto = match (history.has_levels(), single) {
        (true, _) => Model::ByLevel,
        (false, true) => Model::Linearizable,
        (false, false) => Model::StrictSerializable,
    };
    let models = job.models.iter().map(|model| model.unwrap_or(auto)).collect();
    let report = check_all(history, &options(job, models, search), watch)
        .map_err(|error| Answer::BadInput(error.to_string()))?;
    files(job, history, &report).map_err(Answer::Failure)?;
    Ok(with_lines(history, report))
}

fn with_lines(history: &History, report: Report) -> Answer {
    let witnesses = report.verdicts.iter().filter_map(|(_, verdict)| match verdict {
        Verdict::Violated(witness) => Some(witness),
        Verdict::Holds | Verdict::Undecided(_) => None,
    });
    let operations = witnesses.flat_map(|witness| witness.operations.iter().copied());
    let lines = operations.map(|op| (op, crate::explain::operation_line(history, op))).collect();
    Answer::Report(Box::new(report), lines)
}

/// Linearizability by the sweep and the search; other models by the effects of the operations.
fn kv(job: &Job, kv: &KvHistory, search: SearchBudget, watch: &mut Arc<Shared>) -> Result<Answer, Answer> {
    let history = kv.to_history();
    history.validate().map_err(|error| Answer::BadInput(error.to_string()))?;
    let models: Vec<Model> = job.models.iter().map(|model| model.unwrap_or(Model::Linearizable)).collect();
    let linear = |model: &Model| matches!(model, Model::Linearizable | Model::StrictSerializable);
    let mut others: Vec<Model> = models.iter().copied().filter(|model| !linear(model)).collect();
    others.dedup();
    watch.phase("linearizable");
    let asked_linear = models.iter().any(linear);
    let by_keys = if asked_linear { kv_verdict(kv, search.clone()) } else { Verdict::Holds };
    let mut options = options(job, others, search);
    options.strongest = job.strongest && !(asked_linear && by_keys.holds());
    let report = check_all(&history, &options, watch);
    let mut report = match report {
        Ok(report) => report,
        // Linearizability needs no unique values; the other models do.
        Err(_) if options.models.is_empty() => {
            options.strongest = false;
            let empty = History::new();
            let mut report =
                check_all(&empty, &options, watch).map_err(|error| Answer::BadInput(error.to_string()))?;
            report.warnings.clear();
            report.counts = fates(&history);
            report
        }
        Err(error) => return Err(Answer::BadInput(error.to_string())),
    };
    if asked_linear && by_keys.holds() && job.strongest {
        report.strongest = vec![Model::Linearizable];
    }
    if by_keys.is_violated() {
        report.strongest.retain(|model| !linear(model));
    }
    let mut rest = std::mem::take(&mut report.verdicts).into_iter();
    for model in models {
        let verdict = if linear(&model) { Some((model, by_keys.clone())) } else { rest.next() };
        report.verdicts.extend(verdict);
    }
    files(job, &history, &report).map_err(Answer::Failure)?;
    Ok(with_lines(&history, report))
}

fn kv_verdict(kv: &KvHistory, mut search: SearchBudget) -> Verdict {
    match kv.check_linearizable_within(&mut search) {
        KvVerdict::Holds { .. } => Verdict::Holds,
        KvVerdict::Undecided { key } => {
            Verdict::Undecided(format!("the search on key {key} gave up: {}", search.exhausted()))
        }
        KvVerdict::Violated { key, operations, sentences } => Verdict::Violated(Witness {
            summary: format!("key {key} is not linearizable"),
            operations: operations.into_iter().map(|op| OpIndex(op.0 as u32)).collect(),
            cycle: Vec::new(),
            sentences,
        }),
    }
}

/// Objects that only linearizability is defined for.
fn object(
    job: &Job,
    count: usize,
    mut search: SearchBudget,
    decide: impl FnOnce(&mut SearchBudget) -> Verdict,
) -> Result<Answer, Answer> {
    let models: Vec<Model> = job.models.iter().map(|model| model.unwrap_or(Model::Linearizable)).collect();
    if let Some(model) =
        models.iter().find(|model| !matches!(model, Model::Linearizable | Model::StrictSerializable))
    {
        return Err(Answer::BadInput(format!(
            "line 0: {model} is not defined for this kind of object: only linearizable is"
        )));
    }
    let verdict = decide(&mut search);
    let strongest = if job.strongest && verdict.holds() { vec![Model::Linearizable] } else { Vec::new() };
    let counts = crate::check::Counts { ok: count, ..crate::check::Counts::default() };
    let verdicts = models.into_iter().map(|model| (model, verdict.clone())).collect();
    let report = Report { verdicts, strongest, counts, warnings: Vec::new() };
    Ok(Answer::Report(Box::new(report), BTreeMap::new()))
}

/// Objects that never meet, each by its name.
fn parts<O: Object>(
    object: &O,
    names: &[String],
    ops: &[Interval<O::Call, O::Reply>],
    budget: &mut SearchBudget,
) -> Verdict {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        by_name.entry(name).or_default().push(index);
    }
    let verdicts = by_name.iter().map(|(name, indices)| {
        let ops: Vec<_> = indices.iter().map(|index| &ops[*index]).collect();
        verdict(name, &linearize(object, &ops, budget))
    });
    worst(verdicts.collect())
}

fn verdict(name: &str, found: &Found) -> Verdict {
    match found {
        Found::Holds(_) => Verdict::Holds,
        Found::Undecided => Verdict::Undecided("the search gave up (--search-steps)".to_owned()),
        Found::Violated { longest, stuck } => Verdict::Violated(Witness {
            summary: format!(
                "no order of the operations{} is legal",
                if name.is_empty() { String::new() } else { format!(" on {name}") }
            ),
            operations: Vec::new(),
            cycle: Vec::new(),
            sentences: vec![format!(
                "operation {stuck} (in file order, of its object) fits after none of the orders tried; the longest \
                 legal one had {} operations",
                longest.len()
            )],
        }),
    }
}

fn worst(verdicts: Vec<Verdict>) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Holds => 0,
        Verdict::Undecided(_) => 1,
        Verdict::Violated(_) => 2,
    };
    verdicts.into_iter().max_by_key(rank).unwrap_or(Verdict::Holds)
}

fn files(job: &Job, history: &History, report: &Report) -> Result<(), String> {
    let violated = report.verdicts.iter().find_map(|(model, verdict)| match verdict {
        Verdict::Violated(witness) => Some((model, witness)),
        Verdict::Holds | Verdict::Undecided(_) => None,
    });
    let open = |path: &PathBuf| {
        File::create(path)
            .map(BufWriter::new)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    let io = |path: &PathBuf, done: std::io::Result<()>| {
        done.map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &job.html {
        let mut out = open(path)?;
        let title = match violated {
            Some((model, _)) => format!("{}: not {model}", job.path.display()),
            None => format!("{}: no violation", job.path.display()),
        };
        let done = write_html(history, &title, violated.map(|(_, witness)| witness), &mut out)
            .and_then(|()| out.flush());
        io(path, done)?;
    }
    if let (Some(path), Some((_, witness))) = (&job.dot, violated) {
        let mut out = open(path)?;
        let done = write_dot(history, witness, &mut out).and_then(|()| out.flush());
        io(path, done)?;
    }
    if let Some((format, path)) = &job.export {
        let mut out = open(path)?;
        let done = match format {
            Export::Ordinate => format::write_intervals(history, &mut out),
            Export::Edn => format::write_edn(history, &mut out),
            Export::JepsenJson => format::write_jepsen_json(history, &mut out),
            Export::Porcupine => match format::write_porcupine(history, &mut out) {
                Ok(true) => Ok(()),
                Ok(false) => return Err("Porcupine's format holds single reads and writes only".to_owned()),
                Err(error) => Err(error),
            },
        };
        io(path, done.and_then(|()| out.flush()))?;
    }
    Ok(())
}
