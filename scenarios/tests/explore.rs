//! The smallest clusters in every order of their steps, as far as every test run can afford it.

use scenarios::fuzzylog::smallest::{LOST, RIVALS, SHORT_TAKE_OVER, SmallestAppends, TWO_ORIGINS};
use scenarios::paxos::smallest::{CANDIDACIES, CRASHES, FAULTS, Smallest};
use scenarios::spanner::smallest::{APART, COORDINATOR, PARTICIPANT};
use sim::{Exploration, ExploreBounds};

fn explored(bounds: ExploreBounds) -> Exploration {
    Smallest { leaders: 2, bounds }.explore()
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

// An acceptor that forgets at the worst moment what it promised or voted lets two candidates choose differently.
#[test]
fn two_candidacies_bear_a_crash_anywhere() {
    let found = explored(CRASHES);
    assert!(found.passed() && found.complete, "{}", found.to_json());
    assert!(
        found.states > 5_000_000 && found.marks.contains_key("leader.recovered_votes"),
        "{}",
        found.to_json()
    );
}

// A transaction of two shards, or a reader of both, that meets a change of a leader in an order nobody thought of.
#[test]
fn transactions_bear_a_change_of_a_leader_in_every_order() {
    for scope in [PARTICIPANT, COORDINATOR] {
        let found = scope.explore();
        assert!(found.passed() && found.complete, "{}", found.to_json());
        assert!(found.states > 100_000, "{}", found.to_json());
        for mark in ["shard.took_back_prepared_locks", "shard.read_waited_for_the_horizon"] {
            assert!(
                found.marks.contains_key(mark) || scope.coordinator_changes,
                "{mark}: {}",
                found.to_json()
            );
        }
    }
}

// A leader that is deposed and does not know it answers who has not heard of it, either.
#[test]
fn a_reader_and_a_writer_that_are_apart_bear_a_change_of_the_leader_in_every_order() {
    let found = APART.explore();
    assert!(found.passed() && found.complete, "{}", found.to_json());
    assert!(found.states > 1_000, "{}", found.to_json());
    assert!(found.marks.contains_key("shard.read_waited_for_the_horizon"), "{}", found.to_json());
}

/// An exploration that ends without a violation, has more states than that, and reaches these marks.
fn explored_appends(scope: SmallestAppends, states: u64, marks: &[&str]) {
    let found = scope.explore();
    assert!(found.passed() && found.complete && found.states > states, "{}", found.to_json());
    for mark in marks {
        assert!(found.marks.contains_key(mark), "{mark}: {}", found.to_json());
    }
}

// An append to two partitions whose origin crashes must not be half there.
#[test]
fn appends_whose_origin_crashes_are_finished_in_every_order() {
    let marks = [
        "chain.reported_what_is_stuck",
        "client.begins_to_recover",
        "client.took_an_append_over",
        "partition.refused_a_late_phase_1",
        "partition.taken_over_before_phase_1",
    ];
    explored_appends(SHORT_TAKE_OVER, 100_000, &marks);
}

// Nor if several finish it, one of which is its origin.
#[test]
fn appends_that_two_take_over_are_finished_in_every_order() {
    let marks = [
        "client.lost_the_test_and_set",
        "client.found_itself_replaced",
        "partition.refused_a_take_over",
        "partition.refused_a_replaced_owner",
    ];
    explored_appends(RIVALS, 1_000_000, &marks);
}

// One that is sent twice, or finished by two, must not be there twice.
#[test]
fn appends_bear_a_loss_and_a_repetition_in_every_order() {
    let marks = ["client.took_an_append_over", "partition.repeated_phase_1", "partition.repeated_phase_2"];
    explored_appends(LOST, 1_000_000, &marks);
}

// Two appends to the same partitions must not be in another order in each.
#[test]
fn two_appends_are_in_one_order_everywhere() {
    explored_appends(TWO_ORIGINS, 500_000, &[]);
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found_in_the_smallest_appends() {
    use ::fuzzylog::planted;

    let bugs =
        [&planted::delivered_before_pending, &planted::clock_not_raised, &planted::repeated_proposal_is_new];
    for bug in bugs {
        kernel::plant(Some(bug));
        let found = TWO_ORIGINS.explore();
        kernel::plant(None);
        let violation = found.violation.unwrap_or_else(|| panic!("{bug:?} was not found: {}", found.states));
        assert!(["TS", "ATOMIC"].contains(&&violation.invariant[..]), "{violation:?}");
        assert!(violation.path.len() <= 60, "{:#?}", violation.path);
    }
}

// The same for transactions: a leader that forgets what was promised, locks that are not taken back, and a participant that guesses.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found_in_the_smallest_transactions() {
    use scenarios::spanner::smallest::IN_DOUBT;
    use spanner::planted;

    let bugs = [
        (&planted::assigns_below_what_was_promised, PARTICIPANT),
        (&planted::locks_of_prepared_not_taken_back, PARTICIPANT),
        (&planted::in_doubt_aborts_alone, IN_DOUBT),
        (&planted::deposed_leader_serves_beyond_its_horizon, APART),
    ];
    for (bug, scope) in bugs {
        kernel::plant(Some(bug));
        let found = scope.explore();
        kernel::plant(None);
        let violation = found.violation.unwrap_or_else(|| panic!("{bug:?} was not found: {}", found.states));
        assert!(
            ["TS", "SNAP", "BYLEVEL", "ATOMIC", "LOCK"].contains(&&violation.invariant[..]),
            "{violation:?}"
        );
        assert!(violation.path.len() <= 60, "{:#?}", violation.path);
    }
}

// An exploration that walks past a known mistake proves nothing.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found_in_the_smallest_cluster() {
    use paxos::planted;

    let bugs = [
        (&planted::vote_not_persisted, CRASHES),
        (&planted::promise_not_persisted, CRASHES),
        (&planted::phase1_quorum_one_short, CANDIDACIES),
        (&planted::phase1_ignores_votes, CANDIDACIES),
    ];
    for (bug, bounds) in bugs {
        kernel::plant(Some(bug));
        let found = explored(bounds);
        kernel::plant(None);
        let violation = found.violation.unwrap_or_else(|| panic!("{bug:?} was not found"));
        assert_eq!(violation.invariant, "AGREE");
        assert!(violation.path.len() <= 60, "{:#?}", violation.path);
    }
}
