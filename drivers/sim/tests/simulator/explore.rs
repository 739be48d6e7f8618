//! The explorer against a small real protocol and known mistakes in it.

use crate::register::scope::RegisterScope;
use crate::register::{Mistake, Request};
use sim::{Exploration, ExploreBounds, StepKind, explore};
use std::time::Duration;

const READ: Request = Request::Read { key: 0 };
const WRITE: Request = Request::Write { key: 0, value: 1 };

const STILL: ExploreBounds = ExploreBounds {
    timers: 0,
    losses: 0,
    duplications: 0,
    crashes: 0,
    depth: 1_000,
    states: 3_000_000,
    time: Duration::from_secs(100),
};
const CRASHING: ExploreBounds = ExploreBounds { crashes: 1, ..STILL };

fn explored(mistake: Mistake, servers: u32, requests: &[&[Request]], bounds: ExploreBounds) -> Exploration {
    let requests = requests.iter().map(|requests| requests.to_vec()).collect();
    explore(&RegisterScope { mistake, servers, requests, bounds })
}

// An explorer that misses states would call a scope finished that is not; the number is that of all orders.
#[test]
fn a_small_scope_is_explored_to_its_end() {
    let found = explored(Mistake::None, 2, &[&[WRITE], &[READ]], STILL);
    assert!(found.passed() && found.complete, "{}", found.to_json());
    // One client and one server: ask, 4 deliveries and a sync in a row, and nothing else can happen.
    let line = explored(Mistake::None, 1, &[&[WRITE]], STILL);
    assert_eq!((line.states, line.steps, line.quiet), (7, 6, 1));
    assert!(found.states > 1_000 && found.steps > found.states);
}

// Exhaustive checks are worth their name only if they reach a million states and take every kind of step.
#[test]
fn a_million_states_of_a_correct_protocol_are_clean() {
    let bounds =
        ExploreBounds { timers: 1, losses: 1, duplications: 1, crashes: 1, states: 1_000_000, ..STILL };
    let found = explored(Mistake::None, 3, &[&[WRITE], &[READ]], bounds);
    assert!(found.passed(), "{}", found.to_json());
    assert_eq!(found.states, 1_000_000);
    assert_eq!(found.taken.len(), 8, "{:?}", found.taken);
}

// A mistake that the explorer walks past would also pass as proven.
#[test]
fn mistakes_are_found_with_a_path_that_shows_them() {
    let sequence: &[&[Request]] = &[&[WRITE, READ]];
    for (mistake, requests, bounds) in [
        (Mistake::AckBeforeDurable, sequence, CRASHING),
        (Mistake::NoJournal, sequence, CRASHING),
        (Mistake::ReadFromOne, sequence, STILL),
    ] {
        let found = explored(mistake, 3, requests, bounds);
        let violation = found.violation.unwrap_or_else(|| panic!("{mistake:?} was not found"));
        assert_eq!(violation.invariant, "LIN");
        let crashes = violation.path.iter().filter(|step| step.contains("CRASHES")).count();
        assert_eq!(crashes, usize::from(bounds.crashes), "{mistake:?}: {:#?}", violation.path);
        assert!(violation.path.len() <= 25, "{mistake:?}: {:#?}", violation.path);
    }
}

// Without a crash the early acknowledgement is harmless: if it were found, a sync would lose what it should keep.
#[test]
fn an_early_acknowledgement_needs_a_crash() {
    let found = explored(Mistake::AckBeforeDurable, 3, &[&[WRITE, READ]], STILL);
    assert!(found.passed() && found.complete, "{}", found.to_json());
}

// An exploration that never did what its bounds allow has shown less than it claims.
#[test]
fn steps_that_are_never_taken_fail_the_exploration() {
    let found = explored(Mistake::NeverResends, 1, &[&[WRITE]], ExploreBounds { timers: 1, ..STILL });
    assert_eq!(found.never_taken, [StepKind::Timer]);
    assert!(found.violation.is_none() && !found.passed());
}
