//! Takes out of a failing run what it does not need to fail: first faults, then operations.

use crate::plan::{Fault, OperationId, Plan};
use crate::run::{Options, Outcome, run_seed};
use crate::scenario::Scenario;
use kernel::Rng;
use std::time::{Duration, Instant};

/// A run made smaller.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest run found that breaks the same invariant, with its trace.
    pub outcome: Outcome,
    /// How many faults the run had at first.
    pub faults_before: usize,
    /// How many operations it had at first.
    pub operations_before: usize,
    /// How many runs were tried.
    pub runs: u64,
    /// How long it took.
    pub took: Duration,
}

/// Shrinks a failing run for at most `budget`. `options` as they were for the run; `None` if its plan, repeated, does
/// not break the invariant again.
pub fn shrink<S: Scenario>(
    factory: &impl Fn(&mut Rng) -> S,
    failing: &Outcome,
    options: &Options,
    budget: Duration,
) -> Option<Shrunk> {
    let invariant = failing.violation.as_ref()?.invariant.clone();
    let mut trials = Trials { factory, options, invariant, began: Instant::now(), budget, runs: 0 };
    let mut best = trials.fails(&failing.plan)?;
    let (faults_before, operations_before) = (failing.plan.faults.len(), best.operations.len());
    trials.drop_what_came_later(&mut best);
    trials.drop_classes(&mut best);
    trials.minimise(&mut best, faults_of, with_faults);
    trials.minimise(&mut best, operations_of, with_operations);
    // Fewer operations may need fewer faults.
    trials.minimise(&mut best, faults_of, with_faults);
    let traced = Options { plan: Some(best.plan.clone()), trace: true, ..options.clone() };
    let outcome = run_seed(factory, failing.seed, &traced);
    let took = trials.began.elapsed();
    Some(Shrunk { outcome, faults_before, operations_before, runs: trials.runs, took })
}

fn faults_of(outcome: &Outcome) -> Vec<Fault> {
    outcome.plan.faults.clone()
}

fn with_faults(outcome: &Outcome, faults: &[Fault]) -> Plan {
    Plan { faults: faults.to_vec(), ..outcome.plan.clone() }
}

fn operations_of(outcome: &Outcome) -> Vec<OperationId> {
    outcome.operations.clone()
}

fn with_operations(outcome: &Outcome, kept: &[OperationId]) -> Plan {
    let dropped = outcome.operations.iter().filter(|operation| !kept.contains(operation));
    let mut plan = outcome.plan.clone();
    plan.omitted.extend(dropped);
    plan
}

struct Trials<'a, F> {
    factory: &'a F,
    options: &'a Options,
    invariant: String,
    began: Instant,
    budget: Duration,
    runs: u64,
}

impl<S: Scenario, F: Fn(&mut Rng) -> S> Trials<'_, F> {
    /// The outcome of a plan if it breaks the same invariant.
    fn fails(&mut self, plan: &Plan) -> Option<Outcome> {
        self.runs += 1;
        let options = Options { plan: Some(plan.clone()), trace: false, ..self.options.clone() };
        let outcome = run_seed(self.factory, plan.seed, &options);
        let violation = outcome.violation.as_ref()?;
        (violation.invariant == self.invariant).then_some(outcome)
    }

    fn late(&self) -> bool {
        self.began.elapsed() >= self.budget
    }

    /// Faults planned for after the violation took no part in it.
    fn drop_what_came_later(&mut self, best: &mut Outcome) {
        let end = best.violation.as_ref().map_or(u64::MAX, |violation| violation.at);
        let before = |fault: &&Fault| !matches!(fault, Fault::Timed { at, .. } if *at > end);
        let faults: Vec<_> = best.plan.faults.iter().filter(before).copied().collect();
        self.take_if_fails(best, with_faults(best, &faults));
    }

    /// Whole kinds of faults at a time, the many small ones first.
    fn drop_classes(&mut self, best: &mut Outcome) {
        let mut kinds: Vec<_> = best.plan.faults.iter().map(kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for unwanted in kinds {
            let faults: Vec<_> =
                best.plan.faults.iter().filter(|fault| kind(fault) != unwanted).copied().collect();
            self.take_if_fails(best, with_faults(best, &faults));
        }
    }

    fn take_if_fails(&mut self, best: &mut Outcome, plan: Plan) -> bool {
        if self.late() {
            return false;
        }
        match self.fails(&plan) {
            Some(outcome) => {
                *best = outcome;
                true
            }
            None => false,
        }
    }

    /// Delta debugging (Zeller and Hildebrandt 2002), complements only: ever smaller chunks are left out for good if
    /// the run still fails without them.
    fn minimise<T: Copy>(
        &mut self,
        best: &mut Outcome,
        items_of: impl Fn(&Outcome) -> Vec<T>,
        plan_with: impl Fn(&Outcome, &[T]) -> Plan,
    ) {
        let mut items = items_of(best);
        let mut chunk = items.len();
        while chunk > 0 && !items.is_empty() {
            let mut start = 0;
            while start < items.len() {
                let end = (start + chunk).min(items.len());
                let kept = [&items[..start], &items[end..]].concat();
                if self.late() {
                    return;
                }
                if self.take_if_fails(best, plan_with(best, &kept)) {
                    items = items_of(best);
                } else {
                    start = end;
                }
            }
            chunk /= 2;
        }
    }
}

/// A number for the kind of a fault, single messages first.
fn kind(fault: &Fault) -> usize {
    match fault.class(&[]) {
        Some(class) => class as usize,
        None => usize::MAX,
    }
}
