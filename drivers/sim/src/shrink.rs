//! Takes out of a failing run what it does not need to fail: faults and operations, as many at a time as the run can do without.

use crate::effort::Budget;
use crate::plan::{Fault, OperationId, Plan};
use crate::run::{Options, Outcome, Violation, run_seed};
use crate::scenario::Scenario;
use kernel::Rng;
use std::time::Duration;

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
    /// How much of a core's time it took.
    pub took: Duration,
}

/// Shrinks a failing run for at most `budget` of this thread's time on a core. `options` as they were for the run; `None` if its plan,
/// repeated, does not break the invariant again.
pub fn shrink<S: Scenario>(
    factory: &impl Fn(&mut Rng) -> S,
    failing: &Outcome,
    options: &Options,
    budget: Duration,
) -> Option<Shrunk> {
    let wanted = failing.violation.clone()?;
    let (faults_before, operations_before) = (failing.plan.faults.len(), failing.operations.len());
    let budget = Budget::of(budget);
    let mut trials = Trials { factory, options, wanted, budget, runs: 0 };
    let mut best = trials.fails(failing.plan.clone())?;
    trials.drop_what_came_later(&mut best);
    trials.keep_only_what_was_begun(&mut best);
    trials.drop_classes(&mut best);
    // Operations and faults depend on each other: the less there is of one, the less is needed of the other. So both are tried in large
    // chunks before either is in small ones.
    let mut parts = 1;
    loop {
        let before = (best.plan.faults.len(), kept(&best).len());
        trials.leave_out(&mut best, parts, |best| best.plan.faults.clone(), with_faults);
        trials.leave_out(&mut best, parts, kept, with_operations);
        let after = (best.plan.faults.len(), kept(&best).len());
        let finest = parts >= after.0.max(after.1);
        if trials.budget.is_spent() || finest && before == after {
            break;
        }
        // What was needed may not be, when something else is gone.
        parts = if finest { (parts / 4).max(1) } else { 2 * parts };
    }
    let traced = Options { plan: Some(best.plan.clone()), trace: true, ..options.clone() };
    let mut outcome = run_seed(factory, failing.seed, &traced);
    outcome.plan = best.plan;
    Some(Shrunk { outcome, faults_before, operations_before, runs: trials.runs, took: trials.budget.spent() })
}

/// How much later than the earliest a trial may break, beside a quarter: with less to do, everything comes at another time.
const LATER_MAX: u64 = 500_000_000;

fn with_faults(outcome: &Outcome, faults: &[Fault]) -> Plan {
    Plan { faults: faults.to_vec(), ..outcome.plan.clone() }
}

fn kept(outcome: &Outcome) -> Vec<OperationId> {
    outcome.plan.kept.clone().unwrap_or_else(|| outcome.operations.clone())
}

fn with_operations(outcome: &Outcome, kept: &[OperationId]) -> Plan {
    Plan { kept: Some(kept.to_vec()), ..outcome.plan.clone() }
}

struct Trials<'a, F> {
    factory: &'a F,
    options: &'a Options,
    wanted: Violation,
    budget: Budget,
    runs: u64,
}

impl<S: Scenario, F: Fn(&mut Rng) -> S> Trials<'_, F> {
    /// The outcome of a plan if it breaks the same invariant, and not much later than the earliest run that did.
    fn fails(&mut self, plan: Plan) -> Option<Outcome> {
        self.runs += 1;
        let until = Some(self.wanted.at + self.wanted.at / 4 + LATER_MAX);
        let options = Options { plan: Some(plan.clone()), trace: false, until, ..self.options.clone() };
        let mut outcome = run_seed(self.factory, plan.seed, &options);
        let violation = outcome.violation.as_ref()?;
        if violation.invariant != self.wanted.invariant {
            return None;
        }
        self.wanted.at = violation.at.min(self.wanted.at);
        outcome.plan = plan;
        Some(outcome)
    }

    /// Faults planned for after the violation took no part in it.
    fn drop_what_came_later(&mut self, best: &mut Outcome) {
        let end = best.violation.as_ref().map_or(u64::MAX, |violation| violation.at);
        let before = |fault: &&Fault| !matches!(fault, Fault::Timed { at, .. } if *at > end);
        let faults: Vec<_> = best.plan.faults.iter().filter(before).copied().collect();
        self.take_if_fails(best, with_faults(best, &faults));
    }

    /// With fewer faults clients come further, and would begin operations that they had not begun.
    fn keep_only_what_was_begun(&mut self, best: &mut Outcome) {
        let operations = best.operations.clone();
        self.take_if_fails(best, with_operations(best, &operations));
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
        if self.budget.is_spent() {
            return false;
        }
        match self.fails(plan) {
            Some(outcome) => {
                *best = outcome;
                true
            }
            None => false,
        }
    }

    /// Delta debugging (Zeller and Hildebrandt 2002), complements only: each of so many parts is left out for good if the run still
    /// fails without it.
    fn leave_out<T: Copy>(
        &mut self,
        best: &mut Outcome,
        parts: usize,
        items_of: impl Fn(&Outcome) -> Vec<T>,
        plan_with: impl Fn(&Outcome, &[T]) -> Plan,
    ) {
        let mut items = items_of(best);
        let chunk = items.len().div_ceil(parts);
        // From the end: what came last is needed least, but for the very last.
        let mut end = items.len();
        while end > 0 && !self.budget.is_spent() {
            let start = end.saturating_sub(chunk);
            let kept = [&items[..start], &items[end..]].concat();
            if self.take_if_fails(best, plan_with(best, &kept)) {
                items = items_of(best);
            }
            end = start.min(items.len());
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
