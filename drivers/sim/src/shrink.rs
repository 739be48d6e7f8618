//! Takes out of a failing run what it does not need to fail: faults and operations, as many at a time as the run can do without.

use crate::draw::{Purpose, root};
use crate::effort::Budget;
use crate::outcome::{Options, Outcome, Violation};
use crate::plan::{BegunOperation, Fault, Plan};
use crate::run::run_seed;
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
    let rng = Rng::seeded(failing.seed);
    let mut trials = Trials { factory, options, wanted, budget, rng, runs: 0, liveness: None };
    let mut best = trials.fails(failing.plan.clone())?;
    trials.hurry(&best);
    trials.drop_what_came_later(&mut best);
    trials.keep_only_what_was_begun(&mut best);
    trials.drop_messages(&mut best);
    trials.drop_classes(&mut best);
    trials.drop_clients(&mut best);
    trials.heal_earlier(&mut best);
    // Operations and faults depend on each other: the less there is of one, the less is needed of the other. So both are tried in large
    // chunks before either is in small ones.
    for parts in [1, 2, 4, 8, 16] {
        trials.leave_out(&mut best, parts, |best| best.plan.faults.clone(), with_faults);
        trials.leave_out(&mut best, parts, retained, with_operations);
        trials.heal_earlier(&mut best);
    }
    trials.drop_at_random(&mut best);
    if size(&best) <= ONE_BY_ONE_MAX {
        trials.drop_one_by_one(&mut best);
    }
    let small = |best: &Outcome| {
        10 * best.plan.faults.len() <= faults_before && 10 * retained(best).len() <= operations_before
    };
    let mut in_vain = 0;
    while in_vain < ROUNDS_IN_VAIN_MAX && !small(&best) && !trials.budget.is_spent() {
        let before = size(&best);
        trials.drop_at_random(&mut best);
        in_vain = if size(&best) < before { 0 } else { in_vain + 1 };
    }
    trials.drop_one_by_one(&mut best);
    let traced = Options { plan: Some(best.plan.clone()), trace: true, ..options.clone() };
    let mut outcome = run_seed(factory, failing.seed, &traced);
    outcome.plan = best.plan;
    Some(Shrunk { outcome, faults_before, operations_before, runs: trials.runs, took: trials.budget.spent() })
}

/// How much later than the earliest a trial may break, beside a quarter that is no longer than the second: with less to do, everything
/// comes at another time.
const LATER_MAX: u64 = 500_000_000;
const QUARTER_MAX: u64 = 2_000_000_000;
/// The largest share that is dropped at random, and how a success and a failure change the share.
const SHARE_MAX: f64 = 0.8;
const AFTER_SUCCESS: f64 = 1.4;
const AFTER_FAILURE: f64 = 0.85;
/// So many failures in a row with a share of hardly more than one, and chance has nothing more to drop.
const IN_VAIN_MAX: u32 = 24;
/// Of more than so many one at a time is too slow before chance has dropped what it can.
const ONE_BY_ONE_MAX: usize = 60;
/// With how many latencies a trial is made that would drop much: what fails by its timing may fail with less by another timing.
const LATENCIES_FOR_MESSAGES: u32 = 8;
const LATENCIES_FOR_MANY: u32 = 3;
const FEW_PARTS: usize = 4;
/// How long after its last fault and its last operation a run may be healed, in nanoseconds.
const REST_BEFORE_HEAL: [u64; 2] = [1_000_000_000, 10_000_000_000];
/// The part of a core's time to converge that trials wait for.
const HURRY: u32 = 6;
/// So many rounds of chance that drop nothing, and the run is as small as it gets.
const ROUNDS_IN_VAIN_MAX: u32 = 40;

fn with_faults(outcome: &Outcome, faults: &[Fault]) -> Plan {
    Plan { faults: faults.to_vec(), ..outcome.plan.clone() }
}

fn retained(outcome: &Outcome) -> Vec<BegunOperation> {
    outcome.plan.retained.clone().unwrap_or_else(|| outcome.operations.clone())
}

fn size(outcome: &Outcome) -> usize {
    outcome.plan.faults.len() + retained(outcome).len()
}

fn with_operations(outcome: &Outcome, retained: &[BegunOperation]) -> Plan {
    Plan { retained: Some(retained.to_vec()), ..outcome.plan.clone() }
}

struct Trials<'a, F> {
    factory: &'a F,
    options: &'a Options,
    wanted: Violation,
    budget: Budget,
    rng: Rng,
    runs: u64,
    /// How long trials wait for a core to converge before a whole run shows that it never does.
    liveness: Option<Duration>,
}

impl<S: Scenario, F: Fn(&mut Rng) -> S> Trials<'_, F> {
    /// The outcome of a plan if it breaks the same invariant, and not much later than the earliest run that did.
    fn fails(&mut self, plan: Plan) -> Option<Outcome> {
        if self.liveness.is_some() {
            self.runs_to_violation(plan.clone(), self.liveness)?;
        }
        let outcome = self.runs_to_violation(plan, None)?;
        if outcome.violation.as_ref()?.invariant != self.wanted.invariant {
            return None;
        }
        self.wanted.at = outcome.violation.as_ref().map_or(self.wanted.at, |it| it.at.min(self.wanted.at));
        Some(outcome)
    }

    /// The outcome of a plan that breaks any invariant.
    fn runs_to_violation(&mut self, plan: Plan, liveness: Option<Duration>) -> Option<Outcome> {
        self.runs += 1;
        let until = Some(self.wanted.at + (self.wanted.at / 4).min(QUARTER_MAX) + LATER_MAX);
        let plan_of_run = Some(plan.clone());
        let options = Options { plan: plan_of_run, trace: false, until, liveness, ..self.options.clone() };
        let mut outcome = run_seed(self.factory, plan.seed, &options);
        outcome.violation.as_ref()?;
        outcome.plan = plan;
        Some(outcome)
    }

    /// Where the violation is that a core does not converge, most of a run is the wait for it. A core that has converged after a part
    /// of that time need not be waited for.
    fn hurry(&mut self, best: &Outcome) {
        let scenario = (self.factory)(&mut Rng::seeded(root(best.plan.seed, Purpose::Scenario)));
        let part = Some(scenario.tuning().liveness / HURRY);
        let hurried = self.runs_to_violation(best.plan.clone(), part).and_then(|outcome| outcome.violation);
        if hurried.is_some_and(|violation| violation.at < self.wanted.at) {
            self.liveness = part;
        }
    }

    /// All faults of single messages at once.
    fn drop_messages(&mut self, best: &mut Outcome) {
        let is_of_host = |fault: &&Fault| !matches!(fault, Fault::Message { .. });
        let faults: Vec<_> = best.plan.faults.iter().filter(is_of_host).copied().collect();
        self.take_if_any_fails(best, with_faults(best, &faults), LATENCIES_FOR_MESSAGES);
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
            self.take_if_any_fails(best, with_faults(best, &faults), LATENCIES_FOR_MANY);
        }
    }

    /// A core that never converges need not wait for its heal long after the last fault and the last operation. Shorter runs are quicker
    /// to try, and to read.
    fn heal_earlier(&mut self, best: &mut Outcome) {
        let is_after_heal = |violation: &Violation| violation.at > best.swarm.safety;
        if !best.violation.as_ref().is_some_and(is_after_heal) {
            return;
        }
        let of_fault = |fault: &Fault| match fault {
            Fault::Message { at, .. } => at.unwrap_or(0),
            Fault::Timed { at, .. } => *at,
            Fault::Freeze { .. } => 0,
        };
        let healed_at = best.swarm.safety;
        let faults = best.plan.faults.iter().map(of_fault);
        let times = faults.chain(retained(best).into_iter().map(|retained| retained.at));
        let last = times.filter(|&at| at < healed_at).max().unwrap_or(0);
        for rest in REST_BEFORE_HEAL {
            let heal_at = last + rest;
            if heal_at < healed_at {
                let plan = Plan { heal_at: Some(heal_at), ..best.plan.clone() };
                if self.take_if_any_fails(best, plan, LATENCIES_FOR_MANY) {
                    return;
                }
            }
        }
    }

    /// All operations of a client at a time.
    fn drop_clients(&mut self, best: &mut Outcome) {
        let mut clients: Vec<u16> = retained(best).iter().map(|retained| retained.operation.client).collect();
        clients.sort_unstable();
        clients.dedup();
        for unwanted in clients {
            let others: Vec<_> =
                retained(best).into_iter().filter(|retained| retained.operation.client != unwanted).collect();
            self.take_if_any_fails(best, with_operations(best, &others), LATENCIES_FOR_MANY);
        }
    }

    /// A random share of all, scattered or together. Where few things of many are needed, that drops most with fewest trials; and since all
    /// that happens depends on its exact time, another try of the same size may succeed.
    fn drop_at_random(&mut self, best: &mut Outcome) {
        let (mut share, mut in_vain) = (0.5, 0);
        while in_vain < IN_VAIN_MAX && !self.budget.is_spent() {
            let (faults, operations) = (best.plan.faults.clone(), retained(best));
            let all = faults.len() + operations.len();
            if all <= 1 {
                return;
            }
            let scattered = self.rng.chance(0.5);
            let faults = some_of(&faults, share, scattered, &mut self.rng);
            let operations = some_of(&operations, share, scattered, &mut self.rng);
            if faults.len() + operations.len() == all {
                in_vain += 1;
                continue;
            }
            let salt = if self.rng.chance(0.5) { best.plan.salt } else { self.rng.bits() };
            let plan = Plan { salt, faults, retained: Some(operations), ..best.plan.clone() };
            if self.take_if_fails(best, plan) {
                (share, in_vain) = ((share * AFTER_SUCCESS).min(SHARE_MAX), 0);
            } else {
                let least = 1.5 / all as f64;
                in_vain += u32::from(share <= least);
                share = (share * AFTER_FAILURE).max(least);
            }
        }
    }

    /// What was needed may not be, when something else is gone: again and again, until nothing can be spared.
    fn drop_one_by_one(&mut self, best: &mut Outcome) {
        loop {
            let before = size(best);
            let (faults, operations) = (best.plan.faults.len(), retained(best).len());
            self.leave_out(best, faults.max(1), |best| best.plan.faults.clone(), with_faults);
            self.leave_out(best, operations.max(1), retained, with_operations);
            if size(best) == before || self.budget.is_spent() {
                return;
            }
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

    /// Tries a plan with the latencies that it has, and with others.
    fn take_if_any_fails(&mut self, best: &mut Outcome, plan: Plan, latencies: u32) -> bool {
        (0..latencies).any(|nth| {
            let salt = if nth == 0 { plan.salt } else { self.rng.bits() };
            self.take_if_fails(best, Plan { salt, ..plan.clone() })
        })
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
            let retained = [&items[..start], &items[end..]].concat();
            let latencies = if parts <= FEW_PARTS { LATENCIES_FOR_MANY } else { 1 };
            if self.take_if_any_fails(best, plan_with(best, &retained), latencies) {
                items = items_of(best);
            }
            end = start.min(items.len());
        }
    }
}

/// All but about such a share: one here and one there, or what stands together.
fn some_of<T: Copy>(items: &[T], share: f64, scattered: bool, rng: &mut Rng) -> Vec<T> {
    if scattered {
        return items.iter().filter(|_| !rng.chance(share)).copied().collect();
    }
    let count = ((items.len() as f64 * share).ceil() as usize).min(items.len());
    let start = rng.below((items.len() - count) as u64 + 1) as usize;
    [&items[..start], &items[start + count..]].concat()
}

/// A number for the kind of a fault, single messages first.
fn kind(fault: &Fault) -> usize {
    match fault.class(&[]) {
        Some(class) => class as usize,
        None => usize::MAX,
    }
}
