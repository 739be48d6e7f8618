//! The smallest MultiPaxos cluster in every order of its steps, as far as every test run can afford it.

use scenarios::paxos::smallest::{CANDIDACIES, FAULTS, Smallest};
use sim::{Exploration, ExploreBounds, explore};

fn explored(bounds: ExploreBounds) -> Exploration {
    explore(&Smallest { leaders: 2, bounds })
}

// Two leaders that meet in an order nobody thought of choose two values for one slot.
#[test]
fn two_candidacies_agree_in_every_order() {
    let found = explored(CANDIDACIES);
    assert!(found.passed() && found.complete, "{}", found.to_json());
    assert!(
        found.states > 200_000 && found.marks.contains_key("leader.recovered_votes"),
        "{}",
        found.to_json()
    );
}

// A leader that a crash, a loss or a repetition at the worst moment misleads chooses twice.
#[test]
fn one_candidacy_bears_a_crash_a_loss_and_a_repetition_anywhere() {
    let found = explored(FAULTS);
    assert!(found.passed() && found.complete, "{}", found.to_json());
    assert!(found.states > 100_000 && found.taken.len() == 7, "{}", found.to_json());
}

// An exploration that walks past a known mistake proves nothing.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found_in_the_smallest_cluster() {
    for bug in [&paxos::planted::phase1_quorum_one_short, &paxos::planted::phase1_ignores_votes] {
        kernel::plant(Some(bug));
        let found = explored(CANDIDACIES);
        kernel::plant(None);
        let violation = found.violation.unwrap_or_else(|| panic!("{bug:?} was not found"));
        assert_eq!(violation.invariant, "AGREE");
        assert!(violation.path.len() <= 60, "{:#?}", violation.path);
    }
}
