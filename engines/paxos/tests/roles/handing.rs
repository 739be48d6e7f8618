//! How a leader hands over, and how a log comes to hosts that are not waited for.

use super::*;
use kernel::StateMachine as _;
use paxos::multipaxos::leader::LeaderIn;
use paxos::multipaxos::replica::{self, Replica, ReplicaIn, ReplicaTimer};

/// Without host 1, from slot 4 on.
fn without_the_first() -> Configurations {
    let mut both = configurations(1);
    let on = |host_slot| vec![node(2, host_slot), node(3, host_slot)];
    both.push(Configuration {
        version: 1,
        first_slot: Slot(4),
        acceptors: Acceptors::new(vec![AcceptorGroup::majority(on(ACCEPTOR)).expect("two hosts")])
            .expect("one group"),
        leaders: on(LEADER),
        proxy_leaders: on(PROXY),
        replicas: on(REPLICA),
        ..configurations(1).latest().clone()
    });
    both
}

fn executed(through: u64, version: u64, configurations: Option<Configurations>) -> leader::Executed {
    leader::Executed { executed: Slot(through), version, snapshot: Slot(0), configurations, hears: None }
}

fn resigned(did: &Did) -> Vec<NodeId> {
    let to_acceptors = sends(did).into_iter().filter_map(|(to, message)| match message {
        Message::Acceptor(AcceptorIn::Resigned(message)) => (message.ballot == ballot(1)).then_some(to),
        _ => None,
    });
    to_acceptors.collect()
}

// A leader that resigns in silence leaves its cluster without one for an election's time; one that hands over to who may not lead leaves
// it so for longer.
#[test]
fn a_leader_hands_over_when_its_host_asks() {
    let (mut bench, _) = leading(Vec::new(), Vec::new());
    let hand_over = |to| leader::HandOver { to };
    assert!(table::rejects(&bench.hear(node(2, BATCHER), hand_over(node(2, LEADER)))), "another host's wish");
    for to in [node(1, LEADER), node(9, LEADER)] {
        bench.hear(node(1, BATCHER), hand_over(to));
        assert!(bench.role.is_leading(), "{to} does not lead instead of it");
    }
    let did = bench.hear(node(1, BATCHER), hand_over(node(2, LEADER)));
    assert!(!bench.role.is_leading());
    assert_eq!(resigned(&did), [1, 2, 3].map(|host| node(host, ACCEPTOR)));
    let stand = leader::Stand { ballot: ballot(1) };
    assert!(sends(&did).contains(&(node(2, LEADER), stand.into())));
}

// Acceptors that go on hearing the one that resigned promise nothing to the next; those that stop hearing another one unseat it.
#[test]
fn acceptors_let_the_next_one_lead_at_once() {
    let mut acceptor = active_acceptor();
    acceptor.hear(node(1, LEADER), acceptor::Heartbeat { pulse: pulse(2) });
    let next = Ballot { round: 3, leader: node(2, LEADER) };
    let ask = || acceptor::Phase1a { ballot: next, from: Slot(0), inquiry: 1, version: Some(0) };
    let other = Ballot { round: 2, leader: node(3, LEADER) };
    acceptor.hear(node(3, LEADER), acceptor::Resigned { ballot: other });
    assert!(sends(&acceptor.hear(node(2, LEADER), ask())).is_empty(), "its own leader has not resigned");
    acceptor.hear(node(1, LEADER), acceptor::Resigned { ballot: ballot(2) });
    assert_eq!(sends(&acceptor.hear(node(2, LEADER), ask())).len(), 1);
}

// Who waits for a timer first is no help; who stands for a leader that others have replaced unseats those.
#[test]
fn the_next_one_stands_when_the_leader_it_hears_says_so() {
    let follower = || {
        let mut follower = Table::new(Leader::new(Parameters::default(), configurations(1)), node(2, LEADER));
        follower.hear(node(2, REPLICA), executed(0, 0, None));
        follower.hear(node(1, LEADER), leader::Heartbeat { pulse: pulse(3) });
        follower
    };
    let asks = |did: &Did| {
        sends(did).iter().any(|(_, message)| matches!(message, Message::Acceptor(AcceptorIn::Phase1a(_))))
    };
    let mut one = follower();
    assert!(!asks(&one.hear(node(1, LEADER), leader::Stand { ballot: ballot(2) })), "it led before");
    assert!(!asks(&one.hear(node(3, LEADER), leader::Stand { ballot: ballot(3) })), "it is not its own");
    let did = one.hear(node(1, LEADER), leader::Stand { ballot: ballot(3) });
    assert!(asks(&did) && one.journal().len() == 1, "in a round that its disk has: {did:?}");
}

// One that was removed while it stood leads on where nobody of the configuration hears it, and nobody else stands.
#[test]
fn a_leader_without_a_place_in_the_configuration_in_force_resigns() {
    let mut bench = Table::new(Leader::new(Parameters::default(), without_the_first()), node(1, LEADER));
    // It knows of the change, and stood before that: what was executed says that the change is in force.
    bench.call(|role, _| {
        *role = Leader::new(Parameters::default(), configurations(1));
    });
    bench.hear(node(2, REPLICA), executed(0, 0, None));
    bench.timer(leader::LeaderTimer::Election);
    bench.hear(node(2, REPLICA), executed(1, 1, Some(without_the_first())));
    let ack = leader::PreVoteAck { ballot: ballot(1), granted: true, promised: Ballot::ZERO };
    bench.hear(node(1, ACCEPTOR), ack.clone());
    let asked = bench.hear(node(2, ACCEPTOR), ack);
    let asked = sends(&asked).into_iter().find_map(|(_, message)| match message {
        Message::Acceptor(AcceptorIn::Phase1a(ask)) => Some(ask),
        _ => None,
    });
    let ask = asked.expect("a granted candidate asks");
    bench.hear(node(2, REPLICA), executed(5, 1, Some(without_the_first())));
    let page = leader::Phase1b {
        ballot: ask.ballot,
        inquiry: ask.inquiry,
        truncated_below: Slot(0),
        votes: Vec::new(),
        more: None,
    };
    for host in 1..=3 {
        bench.hear(node(host, ACCEPTOR), page.clone());
    }
    assert!(!bench.role.is_leading(), "{}", bench.role.describe());
}

// A leader that counts on whom it has not heard waits for ever; one that was a member before is silent until it is asked.
#[test]
fn a_leader_invites_whom_it_wants() {
    let (mut bench, _) = leading(Vec::new(), Vec::new());
    let mut wanted = configurations(1).latest().clone();
    let voters = [1, 2, 7].map(|host| node(host, ACCEPTOR)).to_vec();
    wanted.acceptors =
        Acceptors::new(vec![AcceptorGroup::majority(voters).expect("three hosts")]).expect("one group");
    wanted.version = 1;
    let change = leader::ChangeConfiguration { configuration: std::sync::Arc::new(wanted) };
    let did = bench.hear(node(1, BATCHER), change.clone());
    let invited: Vec<NodeId> = sends(&did)
        .into_iter()
        .filter(|(_, message)| matches!(message, Message::Acceptor(AcceptorIn::Invite(_))))
        .map(|(to, _)| to)
        .collect();
    assert_eq!(invited, [node(7, ACCEPTOR)]);
    bench.hear(node(7, ACCEPTOR), leader::Enlist { incarnation: 5, acceptor: None });
    assert_eq!(assigned(&bench.hear(node(1, BATCHER), change)).len(), 1, "it is counted");
}

// A member that was removed has its votes: counted under another incarnation it would be refused for ever.
#[test]
fn who_was_removed_is_counted_again_when_it_is_invited() {
    let mut acceptor = active_acceptor();
    let invite = |configurations| acceptor::Invite { configurations };
    assert!(sends(&acceptor.hear(node(2, LEADER), invite(configurations(1)))).is_empty(), "it is a member");
    let did = acceptor.hear(node(2, LEADER), invite(without_the_first()));
    let enlist = leader::Enlist { incarnation: 7, acceptor: None };
    assert_eq!(sends(&did), [(node(2, LEADER), enlist.into())]);
    assert!(acceptor.role.is_active());
}

/// Executes nothing.
#[derive(Clone, Debug)]
struct Idle;

impl kernel::StateMachine for Idle {
    fn apply(&mut self, _command: &[u8], _response: &mut Vec<u8>) {}

    fn query(&self, _query: &[u8], _response: &mut Vec<u8>) {}

    fn begin_snapshot(&mut self) {}

    fn snapshot_step(&mut self, _budget: usize, _chunk: &mut Vec<u8>) -> kernel::SnapshotStep {
        kernel::SnapshotStep::Done
    }

    fn reset(&mut self) {}

    fn install(&mut self, _chunk: &[u8]) -> Result<(), kernel::DecodeError> {
        Ok(())
    }

    fn digest(&self) -> u64 {
        0
    }
}

// A host that has no part in a log, of hundreds, and asks for it all the time has its network full of that.
#[test]
fn who_is_not_invited_is_silent() {
    let known = Configurations::unconfirmed(configurations(1).latest().clone());
    let mut acceptor =
        Table::new(Acceptor::invited(Parameters::default(), known.clone(), None), node(7, ACCEPTOR));
    assert!(sends(&acceptor.timer(acceptor::AcceptorTimer::Enlist)).is_empty());
    let did = acceptor.hear(node(1, LEADER), acceptor::Invite { configurations: configurations(1) });
    assert!(matches!(&sends(&did)[..], [(_, Message::Leader(LeaderIn::Enlist(_)))]), "{did:?}");
    let mut replica = Table::new(Replica::invited(Parameters::default(), known, Idle), node(7, REPLICA));
    let pulls = |did: &table::Did<Paxos>| {
        sends(did).iter().any(|(_, message)| matches!(message, Message::Replica(ReplicaIn::PullSnapshot(_))))
    };
    for _ in 0..3 {
        assert!(!pulls(&replica.timer(ReplicaTimer::CatchUp)));
    }
    replica.hear(node(1, LEADER), replica::Heartbeat { pulse: pulse(2) });
    assert!(pulls(&replica.timer(ReplicaTimer::CatchUp)), "a leader counts on it");
    assert_eq!(Idle.digest(), 0);
}
