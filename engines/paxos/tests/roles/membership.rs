//! How a leader puts a configuration in force.

use super::*;
use paxos::multipaxos::leader::LeaderIn;

const FIRST: u64 = 4;

/// Host 4 instead of host 3, from slot `FIRST` on.
fn changed() -> Configurations {
    let mut both = configurations(1);
    let voters = [1, 2, 4].map(|host| node(host, ACCEPTOR)).to_vec();
    both.push(Configuration {
        version: 1,
        first_slot: Slot(FIRST),
        acceptors: Acceptors::new(vec![AcceptorGroup::majority(voters).expect("three hosts")])
            .expect("one group"),
        joined: vec![(node(4, ACCEPTOR), 9)],
        ..configurations(1).latest().clone()
    });
    both
}

fn executed(through: u64) -> leader::Executed {
    leader::Executed {
        executed: Slot(through),
        version: 1,
        snapshot: Slot(0),
        configurations: Some(changed()),
        hears: None,
    }
}

fn asked(did: &Did) -> (Vec<NodeId>, Vec<NodeId>, Option<acceptor::Phase1a>) {
    let (mut promise, mut seal, mut question) = (Vec::new(), Vec::new(), None);
    for (to, message) in sends(did) {
        match message {
            Message::Acceptor(AcceptorIn::Phase1a(ask)) => {
                promise.push(to);
                question = Some(ask);
            }
            Message::Acceptor(AcceptorIn::Seal(_)) => seal.push(to),
            _ => {}
        }
    }
    (promise, seal, question)
}

/// A leader that has just heard that slot 0 held the change, and what it asked.
fn activating() -> (Table<Leader>, Did, acceptor::Phase1a) {
    let (mut bench, _) = leading(Vec::new(), Vec::new());
    let did = bench.hear(node(1, REPLICA), executed(1));
    let question = asked(&did).2.expect("the new acceptors are asked");
    (bench, did, question)
}

fn promise(question: &acceptor::Phase1a, votes: Vec<leader::ReportedVote>) -> leader::Phase1b {
    let (ballot, inquiry) = (question.ballot, question.inquiry);
    leader::Phase1b { ballot, inquiry, truncated_below: Slot(0), votes, more: None }
}

// New acceptors that have not promised may vote for another leader; old ones that are not sealed hide new writes.
#[test]
fn a_change_asks_the_new_acceptors_and_seals_the_old_ones() {
    let (_, did, question) = activating();
    let (promised, sealed, _) = asked(&did);
    let mut promised: Vec<NodeId> = promised;
    promised.dedup();
    for host in [1, 2, 4] {
        assert!(promised.contains(&node(host, ACCEPTOR)), "{promised:?}");
    }
    assert!(!promised.contains(&node(3, ACCEPTOR)) && question.from == Slot(FIRST));
    for host in 1..=3 {
        assert!(sealed.contains(&node(host, ACCEPTOR)), "{sealed:?}");
    }
    let slots: Vec<u64> = assigned(&did).iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, [1, 2, 3], "what the old configuration owns is filled, and nothing beyond");
}

// A slot proposed before both are done may be chosen unseen by a read or by the next leader.
#[test]
fn a_change_is_in_force_after_promises_and_seals_and_not_before() {
    let (mut bench, _, question) = activating();
    let sealed = || leader::Sealed { ballot: ballot(1), version: 1 };
    assert!(assigned(&bench.hear(node(4, ACCEPTOR), promise(&question, Vec::new()))).is_empty());
    assert!(assigned(&bench.hear(node(2, ACCEPTOR), promise(&question, Vec::new()))).is_empty());
    assert!(assigned(&bench.hear(node(3, ACCEPTOR), sealed())).is_empty());
    assert!(assigned(&bench.hear(node(3, ACCEPTOR), sealed())).is_empty(), "one old acceptor, twice");
    let did = bench.hear(node(1, ACCEPTOR), sealed());
    assert_eq!(assigned(&did), [(FIRST, Value::Noop)], "the first slot is filled at once");
    let assign = sends(&did).into_iter().find_map(|(_, message)| match message {
        Message::ProxyLeader(proxy_leader::ProxyLeaderIn::Assign(assign)) => Some(assign.version),
        _ => None,
    });
    assert_eq!(assign, Some(1), "under the new configuration");
}

// What the new acceptors voted for under an earlier leader may be chosen: forgetting it chooses twice.
#[test]
fn votes_of_the_new_acceptors_are_adopted() {
    let (mut bench, _, question) = activating();
    let earlier = leader::ReportedVote { slot: Slot(FIRST), ballot: Ballot::ZERO, value: value("reported") };
    bench.hear(node(4, ACCEPTOR), promise(&question, vec![earlier]));
    bench.hear(node(2, ACCEPTOR), promise(&question, Vec::new()));
    for host in [1, 2] {
        let did = bench.hear(node(host, ACCEPTOR), leader::Sealed { ballot: ballot(1), version: 1 });
        assert_eq!(assigned(&did).len(), usize::from(host == 2));
        if host == 2 {
            assert_eq!(assigned(&did), [(FIRST, value("reported"))]);
        }
    }
}

// What acceptors of the next configuration have truncated, another leader had chosen: a no-op there would choose twice.
#[test]
fn a_leader_whose_next_acceptors_have_truncated_their_slots_resigns() {
    for (below, resigns) in [(FIRST, false), (FIRST + 1, true)] {
        let (mut bench, _, question) = activating();
        let truncated = leader::Phase1b { truncated_below: Slot(below), ..promise(&question, Vec::new()) };
        bench.hear(node(4, ACCEPTOR), truncated);
        assert_eq!(bench.role.is_leading(), !resigns, "truncated below {below}");
        bench.hear(node(2, ACCEPTOR), promise(&question, Vec::new()));
        let sealed = |host, bench: &mut Table<Leader>| {
            assigned(&bench.hear(node(host, ACCEPTOR), leader::Sealed { ballot: ballot(1), version: 1 }))
        };
        assert!(sealed(3, &mut bench).is_empty());
        assert_eq!(sealed(1, &mut bench).len(), usize::from(!resigns), "truncated below {below}");
    }
}

// A leader that others have overtaken knows nothing of what the new acceptors chose, and would choose again.
#[test]
fn an_overtaken_leader_resigns() {
    let (mut bench, _) = leading(Vec::new(), Vec::new());
    let did = bench.hear(node(1, REPLICA), executed(FIRST + 1));
    assert!(!bench.role.is_leading() && assigned(&did).is_empty(), "{did:?}");
}

// A candidate of a configuration long gone unseats the leader that everybody else hears, for ever.
#[test]
fn an_acceptor_stands_by_the_leader_it_hears() {
    let mut acceptor = active_acceptor();
    acceptor.hear(node(1, LEADER), acceptor::Heartbeat { pulse: pulse(2) });
    let rival = Ballot { round: 7, leader: node(2, LEADER) };
    let ask = |ballot| acceptor::Phase1a { ballot, from: Slot(0), inquiry: 1, version: Some(0) };
    assert!(sends(&acceptor.hear(node(2, LEADER), ask(rival))).is_empty());
    assert_eq!(sends(&acceptor.hear(node(1, LEADER), ask(ballot(3)))).len(), 1, "its leader may ask");
    acceptor.pass(Parameters::default().election_timeout);
    assert_eq!(sends(&acceptor.hear(node(2, LEADER), ask(rival))).len(), 1, "silence ends that");
}

// A machine that joins knows members and perhaps not the leader; a member that keeps its asking to itself keeps it out for ever.
#[test]
fn a_learner_is_handed_on_to_the_leader() {
    let comer = node(7, ACCEPTOR);
    let mut follower = Table::new(Leader::new(Parameters::default(), configurations(1)), node(2, LEADER));
    let ask = || leader::Enlist { incarnation: 5, acceptor: None };
    assert!(sends(&follower.hear(comer, ask())).is_empty(), "nobody is known to lead");
    follower.hear(node(1, LEADER), leader::Heartbeat { pulse: pulse(1) });
    let handed = leader::Enlist { incarnation: 5, acceptor: Some(comer) };
    let did = follower.hear(comer, ask());
    assert_eq!(sends(&did), vec![(node(1, LEADER), handed.clone().into())]);
    assert!(sends(&follower.hear(node(1, LEADER), handed.clone())).is_empty(), "handed on twice");
    // One whose own candidacy came to nothing has a higher ballot than the leader that acceptors stand by.
    let mut candidate = Table::new(Leader::new(Parameters::default(), configurations(1)), node(2, LEADER));
    let promised = Ballot { round: 7, leader: node(2, LEADER) };
    candidate.hear(node(1, ACCEPTOR), leader::Nack { promised });
    candidate.hear(node(1, LEADER), leader::Heartbeat { pulse: pulse(1) });
    assert_eq!(sends(&candidate.hear(comer, ask())), vec![(node(1, LEADER), handed.into())]);
}

// Nobody leads for long whom a candidate of a cluster that is gone unseats again and again, and that candidate never learns.
#[test]
fn a_candidate_of_old_is_sent_the_cluster_that_is() {
    let mut acceptor = active_acceptor();
    let now = Pulse { configurations: changed(), executed: Slot(FIRST + 2), ..pulse(2) };
    acceptor.hear(node(1, LEADER), acceptor::Heartbeat { pulse: now });
    acceptor.pass(Parameters::default().election_timeout);
    let rival = Ballot { round: 7, leader: node(3, LEADER) };
    let ask =
        |version| acceptor::Phase1a { ballot: rival, from: Slot(0), inquiry: 1, version: Some(version) };
    acceptor.journal();
    let reported = sends(&acceptor.hear(node(3, LEADER), ask(0)));
    let [(to, Message::Leader(LeaderIn::Known(known)))] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!((*to, known.configurations.latest().version), (node(3, LEADER), 1));
    assert_eq!(acceptor.journal().len(), 0, "it promised");
    let asked = acceptor::PreVote { ballot: rival, version: Some(0) };
    assert!(matches!(
        &sends(&acceptor.hear(node(3, LEADER), asked))[..],
        [(_, Message::Leader(LeaderIn::Known(_)))]
    ));
    assert_eq!(
        sends(&acceptor.hear(node(2, LEADER), ask(1))).len(),
        1,
        "a node that knows the cluster may ask"
    );
    assert_eq!(acceptor.journal().len(), 1);

    let mut candidate = Table::new(Leader::new(Parameters::default(), configurations(1)), node(2, LEADER));
    candidate.hear(node(1, ACCEPTOR), known.clone());
    assert_eq!(candidate.role.configurations().latest().version, 1);
}
