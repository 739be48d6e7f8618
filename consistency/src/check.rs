//! The verdict on a history: for each model asked, and the strongest models that hold.

use crate::graph::{Graph, Levels, Residue, build, is_acyclic, residue};
use crate::history::{History, HistoryError};
use crate::model::{EdgeSet, Model};
use crate::order::{Resolved, resolve};
use crate::rules::Rules;
use crate::search::SearchBudget;
use crate::solve::{Solved, solve};
use crate::terms::Fate;
use crate::verdict::Verdict;
use crate::witness::{Witness, anomaly_witness, first_cycle, forced_witness, zone_witness};
use crate::{causal, convergence, session, zones};
use std::collections::BTreeMap;

/// What to check, and how much it may cost.
#[derive(Clone, Debug)]
pub struct Options {
    /// The models asked.
    pub models: Vec<Model>,
    /// Also find the strongest models that hold.
    pub strongest: bool,
    /// A refused conditional write counts as a write for real time.
    pub writes_by_type: bool,
    /// What the search for unknown version orders may use: its steps are writes placed, over all models.
    pub search: SearchBudget,
    /// Bytes that one table may take (causal clocks).
    pub memory_max: usize,
    /// For eventual convergence: how long after the last write all replicas must agree, in the history's unit.
    pub settle_after: u64,
}

impl Options {
    /// One model, default budgets.
    pub fn of(model: Model) -> Options {
        Options {
            models: vec![model],
            strongest: false,
            writes_by_type: false,
            search: SearchBudget::default(),
            memory_max: 1 << 30,
            settle_after: 0,
        }
    }
}

/// Numbers that show what a verdict rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Operations that answered ok.
    pub ok: usize,
    /// Operations that certainly failed.
    pub failed: usize,
    /// Operations of unknown fate.
    pub unknown: usize,
    /// Operations of unknown fate that somebody observed.
    pub unknown_observed: usize,
    /// Messages sent and received.
    pub messages: usize,
    /// Fences.
    pub fences: usize,
    /// Vertices of the graph, barriers included; 0 when no graph was needed.
    pub vertices: usize,
    /// Edges of the graph.
    pub edges: usize,
}

/// Everything a check found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// One verdict per model asked, in that order.
    pub verdicts: Vec<(Model, Verdict)>,
    /// The strongest models that certainly hold, none implied by another; empty unless asked for.
    pub strongest: Vec<Model>,
    /// What it rests on.
    pub counts: Counts,
    /// What the reader should know before trusting a yes.
    pub warnings: Vec<String>,
}

/// Receives how the work goes; answers whether to go on.
pub trait Watch {
    /// A phase begins. False gives up: the remaining models are undecided.
    fn phase(&mut self, name: &str) -> bool;
}

/// Nobody watches.
pub struct Unwatched;

impl Watch for Unwatched {
    fn phase(&mut self, _: &str) -> bool {
        true
    }
}

/// Checks `history` against one model with default budgets.
///
/// ```
/// use consistency::history::{Draft, History};
/// use consistency::{Model, Process, Time, check};
///
/// let mut history = History::new().with_initial(0);
/// history.add(Draft::new(Process(1), Time(0), Time(5)).write("x", 1));
/// history.add(Draft::new(Process(2), Time(6), Time(9)).read("x", 0));
/// assert!(check(&history, Model::Sequential)?.holds());
/// assert!(check(&history, Model::Rsc)?.is_violated());
/// # Ok::<(), consistency::history::HistoryError>(())
/// ```
pub fn check(history: &History, model: Model) -> Result<Verdict, HistoryError> {
    let report = check_all(history, &Options::of(model), &mut Unwatched)?;
    let first = report.verdicts.into_iter().next();
    Ok(first.map_or(Verdict::Undecided("no model".to_owned()), |(_, verdict)| verdict))
}

/// Checks `history` against every model of `options`. Errors are bad input.
pub fn check_all(
    history: &History,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Report, HistoryError> {
    let rules = Rules { writes_by_type: options.writes_by_type, ..Rules::default() };
    check_under(history, options, &rules, watch)
}

pub(crate) fn check_under(
    history: &History,
    options: &Options,
    rules: &Rules,
    watch: &mut dyn Watch,
) -> Result<Report, HistoryError> {
    watch.phase("validating");
    history.validate()?;
    watch.phase("resolving reads and version orders");
    let resolved = resolve(history, rules)?;
    let mut deciding = Deciding {
        history,
        options,
        rules,
        resolved: &resolved,
        alike: Built::default(),
        levelled: Built::default(),
        known: BTreeMap::new(),
        search: options.search.clone(),
    };
    let mut verdicts = Vec::with_capacity(options.models.len());
    for model in &options.models {
        let verdict = deciding.verdict(*model, watch);
        verdicts.push((*model, verdict));
    }
    let strongest = if options.strongest { deciding.strongest(watch) } else { Vec::new() };
    let mut counts = counts(history, &resolved);
    if let Some(graph) = deciding.alike.graph.as_ref().or(deciding.levelled.graph.as_ref()) {
        (counts.vertices, counts.edges) = (graph.len(), graph.edges());
    }
    Ok(Report { verdicts, strongest, counts, warnings: warnings(history, &counts, options) })
}

fn counts(history: &History, resolved: &Resolved) -> Counts {
    let mut counts = fates(history);
    counts.unknown_observed = resolved.vertices.len().saturating_sub(counts.ok);
    counts
}

/// What a history says of itself, before anything is resolved.
pub(crate) fn fates(history: &History) -> Counts {
    let mut counts = Counts { messages: history.messages().len(), ..Counts::default() };
    for operation in history.operations() {
        match operation.fate {
            Fate::Ok => counts.ok += 1,
            Fate::Fail => counts.failed += 1,
            Fate::Unknown => counts.unknown += 1,
        }
        counts.fences += usize::from(operation.fence);
    }
    counts
}

fn warnings(history: &History, counts: &Counts, options: &Options) -> Vec<String> {
    let mut warnings = Vec::new();
    if counts.ok == 0 {
        warnings.push("no operation answered ok: a yes means nothing".to_owned());
    }
    let causal =
        |model: &Model| matches!(model, Model::Rss | Model::Rsc | Model::ByLevel) || is_causal(*model);
    if counts.messages == 0 && options.models.iter().any(causal) {
        warnings.push("0 messages recorded: causality between processes is not checked".to_owned());
    }
    if options.models.contains(&Model::ByLevel) && !history.has_levels() {
        warnings.push("no levels recorded: every operation is taken as strict".to_owned());
    }
    if history.is_pipelined() {
        warnings.push("pipelined: each process is ordered by invocation".to_owned());
    }
    warnings
}

/// A graph, and where its cycles lie; the models' own cycles are among them.
#[derive(Default)]
struct Built {
    graph: Option<Graph>,
    residue: Option<Residue>,
}

/// A check in flight: each graph is built once, verdicts are remembered by their edges.
struct Deciding<'a> {
    history: &'a History,
    options: &'a Options,
    rules: &'a Rules,
    resolved: &'a Resolved,
    /// For all models to which every operation is alike.
    alike: Built,
    /// For those that look at each operation's level.
    levelled: Built,
    known: BTreeMap<Model, Verdict>,
    search: SearchBudget,
}

impl Deciding<'_> {
    fn verdict(&mut self, model: Model, watch: &mut dyn Watch) -> Verdict {
        let model = canonical(model);
        if let Some(known) = self.known.get(&model) {
            return known.clone();
        }
        let stronger = self.known.iter().any(|(known, verdict)| verdict.holds() && implies(*known, model));
        let verdict = if stronger {
            Verdict::Holds
        } else if !watch.phase(model.name()) {
            Verdict::Undecided("stopped before this model was reached".to_owned())
        } else if let Some(set) = model.edges() {
            self.total_order(model, set)
        } else {
            self.without_total_order(model)
        };
        self.known.insert(model, verdict.clone());
        verdict
    }

    fn without_total_order(&self, model: Model) -> Verdict {
        if let Some(witness) = anomaly_witness(&self.resolved.anomalies, model) {
            return Verdict::Violated(witness);
        }
        let (history, resolved) = (self.history, self.resolved);
        match model {
            Model::Causal => causal::check(history, resolved, self.rules, self.options.memory_max, false),
            Model::CausalPlus => causal::check(history, resolved, self.rules, self.options.memory_max, true),
            Model::Eventual => convergence::check(history, resolved, self.options.settle_after),
            _ => session::check(history, resolved, model),
        }
    }

    fn total_order(&mut self, model: Model, set: EdgeSet) -> Verdict {
        if let Some(witness) = anomaly_witness(&self.resolved.anomalies, model) {
            return Verdict::Violated(witness);
        }
        let (history, resolved) = (self.history, self.resolved);
        let (built, levels) = match model.has_levels() && !self.rules.levels_ignored {
            true => (&mut self.levelled, Levels::Honoured),
            false => (&mut self.alike, Levels::Ignored),
        };
        let graph = built.graph.get_or_insert_with(|| {
            let asked = self.options.models.iter().filter_map(|model| model.edges());
            let wanted = if self.options.strongest || !resolved.free.is_empty() {
                EdgeSet::ALL
            } else {
                asked.fold(set, EdgeSet::union)
            };
            build(history, resolved, wanted, levels, self.rules)
        });
        let cyclic = built.residue.get_or_insert_with(|| residue(graph, EdgeSet::ALL));
        if !is_acyclic(&cyclic.graph, set) {
            return Verdict::Violated(first_cycle(history, resolved, cyclic, model));
        }
        if resolved.free.is_empty() {
            return Verdict::Holds;
        }
        if zones_apply(history) && levels == Levels::Ignored {
            let strict = Model::StrictSerializable.edges().unwrap_or(set);
            let conflict = resolved.free.keys().find_map(|key| zones::conflict(history, resolved, *key));
            match conflict {
                // What is linearizable is everything that asks for less.
                None if implies(Model::StrictSerializable, model) && is_acyclic(&cyclic.graph, strict) => {
                    return Verdict::Holds;
                }
                Some(conflict) if set == strict => {
                    return Verdict::Violated(zone_witness(history, &conflict));
                }
                None | Some(_) => {}
            }
        }
        match solve(history, graph, resolved, set, &mut self.search) {
            Solved::Holds => Verdict::Holds,
            Solved::Cycle(steps, forced) => {
                Verdict::Violated(forced_witness(history, resolved, &steps, &forced, model))
            }
            Solved::Exhausted => Verdict::Violated(Witness {
                summary: format!("every order of the writes breaks {model}"),
                operations: Vec::new(),
                cycle: Vec::new(),
                sentences: vec![
                    "all orders of the unordered writes were tried; each makes some read wrong".to_owned(),
                ],
            }),
            Solved::Undecided(reason) => Verdict::Undecided(reason),
        }
    }

    /// Whether a model surely does not hold, from what is known of weaker ones.
    fn surely_violated(&self, model: Model) -> bool {
        self.known.iter().any(|(known, verdict)| verdict.is_violated() && implies(canonical(model), *known))
    }

    fn strongest(&mut self, watch: &mut dyn Watch) -> Vec<Model> {
        let transactions = self.history.operations().iter().any(|op| self.history.accesses(op).len() > 1);
        let mut holding: Vec<Model> = Vec::new();
        if !self.verdict(Model::StrictSerializable, watch).holds() {
            // The weakest first: where it fails, all that imply it need no graph search of their own.
            self.verdict(Model::Serializable, watch);
            self.verdict(Model::ProcessOrderedSerializable, watch);
            self.verdict(Model::Causal, watch);
        }
        // Session guarantees and convergence say little beside these, and are looked at only when asked.
        let is_ranked = |model: &Model| !model.has_levels() && (model.edges().is_some() || is_causal(*model));
        let ranked = Model::ALL.into_iter().filter(is_ranked);
        for model in ranked {
            let single = matches!(model, Model::Linearizable | Model::Rsc | Model::Sequential);
            let named = single != transactions || canonical(model) == model && !has_single_name(model);
            let implied = holding.iter().any(|held| implies(canonical(*held), canonical(model)));
            if !named || implied {
                continue;
            }
            if !self.surely_violated(model) && self.verdict(model, watch).holds() {
                holding.push(model);
            }
        }
        holding
    }
}

fn is_causal(model: Model) -> bool {
    matches!(model, Model::Causal | Model::CausalPlus)
}

/// One name for models with the same edges.
fn canonical(model: Model) -> Model {
    match model {
        Model::Linearizable => Model::StrictSerializable,
        Model::Rsc => Model::Rss,
        Model::Sequential => Model::ProcessOrderedSerializable,
        other => other,
    }
}

fn has_single_name(model: Model) -> bool {
    matches!(model, Model::StrictSerializable | Model::Rss | Model::ProcessOrderedSerializable)
}

/// Whether every history of `strong` is one of `weak` (both canonical).
fn implies(strong: Model, weak: Model) -> bool {
    if strong == weak {
        return true;
    }
    let session =
        [Model::ReadYourWrites, Model::MonotonicReads, Model::MonotonicWrites, Model::WritesFollowReads];
    match strong {
        Model::StrictSerializable => !matches!(weak, Model::Eventual | Model::ByLevel),
        Model::ByLevel => weak == Model::Serializable,
        Model::Rss => {
            matches!(
                weak,
                Model::ProcessOrderedSerializable | Model::Serializable | Model::Causal | Model::CausalPlus
            ) || session.contains(&weak)
        }
        Model::OscU => {
            matches!(weak, Model::ProcessOrderedSerializable | Model::Serializable) || session.contains(&weak)
        }
        Model::ProcessOrderedSerializable => weak == Model::Serializable || session.contains(&weak),
        Model::Regular => weak == Model::Serializable,
        Model::CausalPlus => weak == Model::Causal,
        _ => false,
    }
}

/// Key by key only where every operation touches one register and process order adds nothing to real time.
fn zones_apply(history: &History) -> bool {
    let single = history.operations().iter().all(|op| history.accesses(op).len() <= 1);
    let ties = history.by_process().windows(2).any(|pair| {
        let (first, second) = (&history.operations()[pair[0].at()], &history.operations()[pair[1].at()]);
        first.process == second.process && first.complete == second.invoke
    });
    single && !ties && !history.is_pipelined()
}
