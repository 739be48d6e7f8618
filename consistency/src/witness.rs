//! Why a model does not hold, put together from what the checkers found.

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::explain::{Reason, reasons};
use crate::graph::{Residue, Step, shortest_cycle, smallest_component};
use crate::history::{History, OpIndex};
use crate::model::{EdgeKind, EdgeSet, Model};
use crate::order::Resolved;
use crate::solve::Forced;
use crate::zones;

/// Why a model does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Witness {
    /// One line: the class of the violation.
    pub summary: String,
    /// The operations involved, each once.
    pub operations: Vec<OpIndex>,
    /// The edges of the cycle, where there is one.
    pub cycle: Vec<Reason>,
    /// The whole explanation, one sentence each.
    pub sentences: Vec<String>,
}

pub(crate) fn zone_witness(history: &History, conflict: &zones::Conflict) -> Witness {
    let mut sentences = Vec::new();
    for (before, after) in &conflict.pairs {
        let (complete, invoke) =
            (history.operations()[before.at()].complete, history.operations()[after.at()].invoke);
        sentences.push(format!(
            "T{} answered at {complete}, {} before T{} was invoked at {invoke}, so what the first saw or wrote \
             must come before what the second saw or wrote",
            before.0,
            invoke.0.saturating_sub(complete.0),
            after.0,
        ));
    }
    let operations: std::collections::BTreeSet<OpIndex> =
        conflict.pairs.iter().flat_map(|(before, after)| [*before, *after]).collect();
    Witness {
        summary: "two values must each come before the other".to_owned(),
        operations: operations.into_iter().collect(),
        cycle: Vec::new(),
        sentences,
    }
}

/// Anomalies that convict `model`: all of them, except that weak models do not need one order of each list.
pub(crate) fn anomaly_witness(anomalies: &[Anomaly], model: Model) -> Option<Witness> {
    let weak = model.edges().is_none();
    let order_only = |kind: AnomalyKind| {
        matches!(
            kind,
            AnomalyKind::DuplicateVersion | AnomalyKind::IncompatibleOrder | AnomalyKind::TornAppend
        )
    };
    let counted: Vec<&Anomaly> =
        anomalies.iter().filter(|anomaly| !(weak && order_only(anomaly.kind))).collect();
    let first = counted.first()?;
    let mut operations: Vec<OpIndex> =
        counted.iter().flat_map(|anomaly| anomaly.operations.clone()).collect();
    operations.sort_unstable();
    operations.dedup();
    Some(Witness {
        summary: first.kind.to_string(),
        operations,
        cycle: Vec::new(),
        sentences: counted.iter().map(|anomaly| format!("{}: {}", anomaly.kind, anomaly.sentence)).collect(),
    })
}

/// A cycle of the weakest broken stage; where that is long, a shorter one of the whole model, if there is one.
pub(crate) fn first_cycle(history: &History, resolved: &Resolved, cyclic: &Residue, model: Model) -> Witness {
    const LONG: usize = 3;
    let whole = |vertex: u32| cyclic.whole[vertex as usize];
    let shortest = |set: EdgeSet| {
        let component = smallest_component(&cyclic.graph, set)?;
        let interval = |vertex: u32| resolved.interval(history, whole(vertex));
        let mut steps = shortest_cycle(&cyclic.graph, set, &component, interval);
        for step in &mut steps {
            (step.from, step.to) = (whole(step.from), whole(step.to));
        }
        Some(steps)
    };
    let mut found: Option<(Vec<Step>, String)> = None;
    for (stage, broken) in model.stages() {
        if let Some(steps) = shortest(stage) {
            found = Some((steps, broken.to_owned()));
            break;
        }
    }
    let (mut steps, mut broken) = found.unwrap_or((Vec::new(), "the graph".to_owned()));
    if steps.len() > LONG
        && let Some(shorter) = model.edges().and_then(shortest).filter(|other| other.len() < steps.len())
    {
        broken = format!("{model} (a longer one, of {}, lies in {broken})", steps.len());
        steps = shorter;
    }
    cycle_witness(history, resolved, &steps, &broken)
}

/// A cycle with edges that reads force among writes whose order nobody reported.
pub(crate) fn forced_witness(
    history: &History,
    resolved: &Resolved,
    steps: &[Step],
    forced: &[Forced],
    model: Model,
) -> Witness {
    let mut cycle = reasons(history, resolved, steps);
    for (reason, step) in cycle.iter_mut().zip(steps) {
        let edge = forced
            .iter()
            .find(|edge| (edge.from, edge.to, edge.kind) == (step.from, step.to, EdgeKind::WriteWrite));
        if let Some(edge) = edge {
            let (a, b, reader) = (reason.before.0, reason.after.0, resolved.vertices[edge.reader as usize].0);
            reason.sentence = format!(
                "T{a} < T{b}: both wrote what T{reader} read from T{b}, and T{a} must come before T{reader}, so it \
                 came before T{b} too"
            );
        }
    }
    Witness {
        summary: format!("every order of the writes breaks {model}: cycle of {} operations", steps.len()),
        operations: cycle.iter().map(|reason| reason.before).collect(),
        sentences: cycle.iter().map(|reason| reason.sentence.clone()).collect(),
        cycle,
    }
}

fn cycle_witness(history: &History, resolved: &Resolved, steps: &[Step], broken: &str) -> Witness {
    let cycle = reasons(history, resolved, steps);
    let anti = steps.iter().filter(|step| step.last == EdgeKind::ReadWrite).count();
    let data = steps
        .iter()
        .all(|step| matches!(step.last, EdgeKind::WriteRead | EdgeKind::WriteWrite | EdgeKind::ReadWrite));
    let class = match (data, anti) {
        (true, 0) if steps.iter().all(|step| step.last == EdgeKind::WriteWrite) => "G0: ",
        (true, 0) => "G1c: ",
        (true, 1) => "G-single: ",
        (true, _) => "G2: ",
        (false, _) => "",
    };
    Witness {
        summary: format!("{class}cycle of {} operations in {broken}", steps.len()),
        operations: cycle.iter().map(|reason| reason.before).collect(),
        sentences: cycle.iter().map(|reason| reason.sentence.clone()).collect(),
        cycle,
    }
}
