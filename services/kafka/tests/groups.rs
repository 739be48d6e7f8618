//! The members of groups: who waits for whom, and who is let go.

use kafka::{Code, Groups, Join, Next};
use kernel::{Bytes, Instant};
use std::time::Duration;

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

fn join(member: &str, protocols: &[&str]) -> Join {
    Join {
        group: "g".into(),
        member: member.to_owned(),
        session_ms: SESSION.as_millis() as i32,
        rebalance_ms: REBALANCE.as_millis() as i32,
        kind: "consumer".to_owned(),
        protocols: protocols
            .iter()
            .map(|name| ((*name).to_owned(), Bytes::from((*name).to_owned())))
            .collect(),
    }
}

fn at(seconds: u64) -> Instant {
    Instant::default() + Duration::from_secs(seconds)
}

/// A group of two in generation 7, of which the first member leads.
fn two() -> (Groups, String, String) {
    let mut groups = Groups::default();
    let one = groups.join(join("", &["range", "sticky"]), at(0)).expect("it may join");
    let other = groups.join(join("", &["sticky"]), at(0)).expect("it may join");
    assert_eq!(groups.next("g", &one, at(0)), Next::Begin);
    assert_eq!(groups.next("g", &other, at(0)), Next::Wait);
    groups.begun("g", 7, at(0));
    for member in [&one, &other] {
        assert_eq!(groups.next("g", member, at(0)), Next::Ready);
    }
    (groups, one, other)
}

// Two members with one partition each read it twice; one without is idle for ever.
#[test]
fn members_get_what_their_leader_says() {
    let (mut groups, one, other) = two();
    let (led, follows) =
        (groups.joined("g", &one).expect("it is in"), groups.joined("g", &other).expect("it is in"));
    assert_eq!((led.generation, led.protocol.as_str(), &led.leader), (7, "sticky", &one));
    assert_eq!((led.members.len(), follows.members.len()), (2, 0), "the leader alone knows the others");
    groups.assign("g", &other, vec![(other.clone(), "all".into())]);
    assert_eq!(groups.assignment("g", &other), None, "only the leader assigns");
    groups.assign("g", &one, vec![(one.clone(), "left".into()), (other.clone(), "right".into())]);
    assert_eq!(groups.assignment("g", &other), Some("right".into()));
    assert_eq!(groups.hear("g", &other, 7, at(1)), Ok(()));
    assert_eq!(groups.hear("g", &other, 6, at(1)), Err(Code::ILLEGAL_GENERATION));
    assert_eq!(groups.hear("g", "stranger", 7, at(1)), Err(Code::UNKNOWN_MEMBER_ID));
    assert_eq!(groups.join(join("stranger", &["sticky"]), at(1)), Err(Code::UNKNOWN_MEMBER_ID));
}

// A group that goes on without asking everybody gives away what somebody still reads.
#[test]
fn members_join_anew_when_one_comes_or_goes() {
    let (mut groups, one, other) = two();
    groups.assign("g", &one, Vec::new());
    let third = groups.join(join("", &["sticky"]), at(2)).expect("it may join");
    assert_eq!(groups.next("g", &third, at(2)), Next::Wait);
    for member in [&one, &other] {
        assert_eq!(groups.hear("g", member, 7, at(3)), Err(Code::REBALANCE_IN_PROGRESS));
    }
    for member in [&one, &other] {
        groups.join(join(member, &["sticky"]), at(4)).expect("it is known");
    }
    assert_eq!(groups.next("g", &one, at(4)), Next::Begin);
    groups.begun("g", 8, at(4));
    assert_eq!(groups.leave("g", &other, at(5)), Ok(()));
    assert_eq!(groups.hear("g", &one, 8, at(5)), Err(Code::REBALANCE_IN_PROGRESS));
    assert_eq!(groups.next("g", &one, at(5)), Next::Wait, "the third has not come yet");
    assert_eq!(
        groups.next("g", &third, at(5)),
        Next::Begin,
        "a member that still waits for the last generation is in the next"
    );
}

// A member that died keeps its partition for ever, or holds up the others.
#[test]
fn silent_members_are_let_go() {
    let (mut groups, one, other) = two();
    groups.assign("g", &one, Vec::new());
    for second in 1..10 {
        assert_eq!(groups.hear("g", &one, 7, at(second)), Ok(()));
    }
    assert_eq!(groups.hear("g", &one, 7, at(10)), Err(Code::REBALANCE_IN_PROGRESS), "the other is gone");
    assert_eq!(groups.hear("g", &other, 7, at(10)), Err(Code::UNKNOWN_MEMBER_ID));
    groups.join(join(&one, &["range"]), at(11)).expect("it is known");
    assert_eq!(groups.next("g", &one, at(11)), Next::Begin);
    // The log does not answer: it is asked again.
    assert_eq!(groups.next("g", &one, at(12)), Next::Wait);
    assert_eq!(groups.next("g", &one, at(16)), Next::Begin);
    groups.begun("g", 9, at(16));
    assert_eq!(groups.joined("g", &one).map(|joined| joined.protocol), Ok("range".to_owned()));
}

// A stranger who joins with a megabyte, or without a protocol, must not end up in a group.
#[test]
fn strange_members_are_refused() {
    let (mut groups, ..) = two();
    let large = Join { protocols: vec![("p".to_owned(), vec![0; 1 << 20].into())], ..join("", &[]) };
    assert_eq!(groups.join(large, at(0)), Err(Code::INVALID_GROUP_ID));
    assert_eq!(groups.join(join("", &[]), at(0)), Err(Code::INVALID_GROUP_ID));
    let other_kind = Join { kind: "connect".to_owned(), ..join("", &["sticky"]) };
    assert_eq!(groups.join(other_kind, at(0)), Err(Code::INCONSISTENT_GROUP_PROTOCOL));
    for number in 0..2_000 {
        let mut join = join("", &["p"]);
        join.group = format!("g{number}").into();
        let joined = groups.join(join, at(0));
        assert_eq!(joined.is_ok(), number < 999, "{number}");
    }
}
