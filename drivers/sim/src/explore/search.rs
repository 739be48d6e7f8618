//! Depth first through all states, and the short way to a violation.

use super::fingerprint::AsItIs;
use super::state::{State, Step};
use super::world::World;
use super::{Counterexample, Exploration, Scope, StepKind};
use crate::panics::{self, Panic};
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;
use std::time::Instant;

/// How many states are visited between two looks at the clock.
const LOOK_EVERY: u64 = 4_096;

struct Frame<S: Scope> {
    state: State<S>,
    steps: Vec<Step>,
    next: usize,
}

/// Visits every state within the scope's bounds, or as many as its budgets allow.
pub fn explore<S: Scope>(scope: &S) -> Exploration {
    let began = Instant::now();
    let mut world = World::new(scope);
    let mut report = Exploration {
        family: S::FAMILY,
        states: 0,
        steps: 0,
        depth: 0,
        complete: false,
        quiet: 0,
        taken: BTreeMap::new(),
        marks: BTreeMap::new(),
        never_taken: Vec::new(),
        violation: None,
        wall_seconds: 0.0,
    };
    let mut path = Vec::new();
    let found = panics::caught(|| search(&mut world, &mut report, &mut path, began));
    if let Err(panic) = found {
        report.violation = Some(shortened(scope, path, &panic));
    }
    let bounds = world.bounds;
    report.never_taken = StepKind::ALL.into_iter().filter(|kind| !report.taken.contains_key(kind)).collect();
    report.never_taken.retain(|kind| match kind {
        StepKind::Deliver => true,
        StepKind::Request => world.asks(),
        StepKind::Duplicate => bounds.duplications > 0,
        StepKind::Lose => bounds.losses > 0,
        StepKind::Timer => bounds.timers > 0,
        StepKind::Crash | StepKind::Restart => bounds.crashes > 0,
        // A family without a journal has nothing to sync.
        StepKind::Sync => false,
    });
    report.marks = world.marks;
    report.wall_seconds = began.elapsed().as_secs_f64();
    report
}

fn search<S: Scope>(
    world: &mut World<'_, S>,
    report: &mut Exploration,
    path: &mut Vec<Step>,
    began: Instant,
) {
    let mut seen: HashSet<u64, BuildHasherDefault<AsItIs>> = HashSet::default();
    let first = State::first(world);
    first.check(world);
    seen.insert(first.hash());
    report.states = 1;
    let mut steps = Vec::new();
    first.steps(world, &mut steps);
    let mut stack = vec![Frame { state: first, steps, next: 0 }];
    let mut spare: Vec<Vec<Step>> = Vec::new();
    let mut stopped = false;
    while let Some(frame) = stack.last_mut() {
        let Some(&step) = frame.steps.get(frame.next) else {
            spare.extend(stack.pop().map(|frame| frame.steps));
            path.pop();
            continue;
        };
        frame.next += 1;
        let mut state = frame.state.clone();
        path.push(step);
        state.step(step, world);
        report.steps += 1;
        *report.taken.entry(step.kind()).or_default() += 1;
        if !seen.insert(state.hash()) {
            path.pop();
            continue;
        }
        report.states += 1;
        state.check(world);
        report.quiet += u64::from(state.check_quiet(world));
        let late = report.states.is_multiple_of(LOOK_EVERY) && began.elapsed() >= world.bounds.time;
        if late || report.states >= world.bounds.states {
            return;
        }
        if path.len() >= world.bounds.depth {
            stopped = true;
            path.pop();
            continue;
        }
        report.depth = report.depth.max(path.len());
        let mut steps = spare.pop().unwrap_or_default();
        state.steps(world, &mut steps);
        stack.push(Frame { state, steps, next: 0 });
    }
    report.complete = !stopped;
}

/// Leaves out every step that the violation does not need.
fn shortened<S: Scope>(scope: &S, path: Vec<Step>, panic: &Panic) -> Counterexample {
    let invariant = panic.invariant();
    let mut best = Walk { taken: path, described: Vec::new(), panic: panic.clone() };
    let mut chunk = best.taken.len();
    while chunk > 0 {
        let mut start = 0;
        while start < best.taken.len() {
            let end = (start + chunk).min(best.taken.len());
            let tried = [&best.taken[..start], &best.taken[end..]].concat();
            match walk(scope, &tried) {
                Some(walk) if walk.panic.invariant() == invariant => best = walk,
                Some(_) | None => start = end,
            }
        }
        chunk /= 2;
    }
    let best = walk(scope, &best.taken).unwrap_or(best);
    Counterexample { invariant, what: best.panic.what(), path: best.described }
}

/// A path that ends in a violation.
struct Walk {
    taken: Vec<Step>,
    described: Vec<String>,
    panic: Panic,
}

/// Takes those of the steps that are there; `None` if nothing breaks.
fn walk<S: Scope>(scope: &S, steps: &[Step]) -> Option<Walk> {
    let (mut taken, mut described) = (Vec::new(), Vec::new());
    let walked = panics::caught(|| {
        let mut world = World::new(scope);
        let mut state = State::first(&mut world);
        state.check(&world);
        for &step in steps {
            let before = state.clone();
            taken.push(step);
            described.push(before.described(step, &world));
            if state.step(step, &mut world) {
                state.check(&world);
                state.check_quiet(&world);
            } else {
                state = before;
                taken.pop();
                described.pop();
            }
        }
    });
    walked.err().map(|panic| Walk { taken, described, panic })
}
