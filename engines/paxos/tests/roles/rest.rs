//! What is said while nothing happens, and what ends that.

use super::replica::replica;
use super::*;
use paxos::multipaxos::acceptor::AcceptorTimer;
use paxos::multipaxos::leader::{LeaderIn, LeaderTimer};
use paxos::multipaxos::replica::{self as replica_messages, ReplicaIn, ReplicaTimer};

const EVERY: Duration = Parameters::DEFAULT.heartbeat_every;

/// One heartbeat of a leader that all answer as far as `acks` says, and what it does then.
fn beat(bench: &mut Table<Leader>, acks: impl Fn(u32) -> Option<Option<bool>>) -> Did {
    bench.pass(EVERY);
    let did = bench.timer(LeaderTimer::Heartbeat);
    for host in 1..=3 {
        if let Some(knows_rest) = acks(host) {
            bench.hear(node(host, ACCEPTOR), leader::HeartbeatAck { ballot: ballot(1), knows_rest });
        }
        let hears = Some(ballot(1));
        let (executed, snapshot) = (Slot(0), Slot(0));
        let report = leader::Executed { executed, version: 0, snapshot, configurations: None, hears };
        bench.hear(node(host, REPLICA), report);
        bench.hear(node(host, PROXY), leader::ProxyAlive {});
    }
    did
}

fn all_answer(_host: u32) -> Option<Option<bool>> {
    Some(Some(true))
}

fn nobody_answers(_host: u32) -> Option<Option<bool>> {
    None
}

fn begins_to_rest(did: &Did) -> bool {
    did.iter().any(|effect| matches!(effect, Effect::SetBeacon { .. }))
}

/// To whom nothing is said without end any more.
fn stopped(did: &Did) -> Vec<NodeId> {
    let stopped = |effect: &Effect<_, _>| match effect {
        Effect::StopBeacon { to } => Some(*to),
        _ => None,
    };
    did.iter().filter_map(stopped).collect()
}

/// A leader that has begun to rest, and whose acceptors have beacons lit.
fn resting() -> Table<Leader> {
    resting_by(Parameters::default())
}

fn resting_by(parameters: Parameters) -> Table<Leader> {
    let (mut bench, _) = leading_by(parameters, Vec::new(), Vec::new());
    assert!((0..60).any(|_| begins_to_rest(&beat(&mut bench, all_answer))), "it rests when nothing happens");
    (1..=3).for_each(|host| bench.beacons.light(node(host, ACCEPTOR), node(1, LEADER)));
    bench
}

/// Whose silence is waited for, and how long.
fn awaits(did: &Did) -> Option<(Vec<NodeId>, Duration)> {
    did.iter().rev().find_map(|effect| match effect {
        Effect::SetTimer { silence, .. } => silence.clone().map(|silence| (silence.of, silence.lasts)),
        _ => None,
    })
}

/// The beacons of these hosts are heard.
fn shine(bench: &mut Table<Leader>, hosts: std::ops::RangeInclusive<u32>) {
    let now = bench.now();
    hosts.for_each(|host| _ = bench.beacons.hear(HostId(host), 1, now));
}

// A leader that reports to everybody thirty times a second keeps three hosts busy with nothing; one that is silent to proposers or others is
// taken for dead.
#[test]
fn a_leader_at_rest_says_little_and_everything_now_and_then() {
    let mut bench = resting();
    let (mut proposers, mut whole) = (0, 0);
    for _ in 0..400 {
        shine(&mut bench, 2..=3);
        let did = beat(&mut bench, nobody_answers);
        assert!(stopped(&did).is_empty() && !begins_to_rest(&did), "{did:?}");
        let said = sends(&did);
        proposers += u32::from(said.iter().any(|(to, _)| *to == node(2, BATCHER)));
        whole += u32::from(said.iter().any(|(to, _)| *to == node(2, REPLICA)));
        let acceptors = said.iter().filter(|(to, _)| to.host_slot() == HostSlot(ACCEPTOR)).count();
        assert!(said.is_empty() || said.iter().any(|(to, _)| *to == node(2, BATCHER)), "{said:?}");
        assert_eq!(acceptors, if said.iter().any(|(to, _)| *to == node(2, REPLICA)) { 3 } else { 0 });
    }
    assert_eq!((proposers, whole), (3, 3), "in twelve seconds, to proposers and to all");
}

// A follower that waits for heartbeats from a leader that rests stands against it; so does one that has no acceptor to listen for it. A
// beacon that goes on says that a leader leads which does not.
#[test]
fn whatever_happens_ends_the_rest() {
    let everybody =
        [ACCEPTOR, BATCHER].into_iter().flat_map(|slot| (1..=3).map(move |host| node(host, slot)));
    let everybody: Vec<_> = everybody.collect();
    let mut bench = resting();
    let ended = (0..5).map(|_| {
        shine(&mut bench, 2..=2);
        stopped(&beat(&mut bench, nobody_answers))
    });
    assert_eq!(
        ended.flatten().collect::<Vec<_>>(),
        everybody,
        "one is silent for most of an election timeout"
    );

    let mut bench = resting();
    let resigned = (0..30).map(|_| stopped(&beat(&mut bench, nobody_answers)));
    assert_eq!(resigned.flatten().collect::<Vec<_>>(), everybody, "once");
    assert!(!bench.role.is_leading(), "no quorum is heard");

    let mut bench = resting();
    bench.hear(node(1, BATCHER), leader::Propose { value: value("a") });
    shine(&mut bench, 2..=3);
    assert_eq!(stopped(&beat(&mut bench, nobody_answers)), everybody, "something is to be executed");

    let mut bench = resting();
    let did = bench.hear(node(2, ACCEPTOR), leader::Nack { promised: ballot(9) });
    assert_eq!(stopped(&did), everybody, "it has resigned");

    let (mut bench, _) = leading(Vec::new(), Vec::new());
    let old = |host| if host == 2 { Some(None) } else { all_answer(host) };
    assert!((0..60).all(|_| !begins_to_rest(&beat(&mut bench, old))), "an older acceptor does not know how");

    let (mut bench, _) = leading(Vec::new(), Vec::new());
    bench.beacons.light(node(2, ACCEPTOR), node(1, LEADER));
    let silent = |host| if host == 2 { None } else { all_answer(host) };
    let begun = (0..60).any(|_| {
        shine(&mut bench, 2..=2);
        begins_to_rest(&beat(&mut bench, silent))
    });
    assert!(!begun, "a beacon to a leader of an earlier ballot is no answer");
}

// A leader that looks ten times a second whether all is well keeps an idle host busy; one that waits when something has come, or when one of
// its acceptors is not heard, leads on when it should not.
#[test]
fn a_leader_at_rest_waits_for_a_silence() {
    let acceptors = vec![node(1, ACCEPTOR), node(2, ACCEPTOR), node(3, ACCEPTOR)];
    let timeout = Parameters::DEFAULT.election_timeout;
    let waiting = || {
        let mut bench = resting();
        assert_eq!(awaits(&bench.timer(LeaderTimer::Heartbeat)), None, "no beacon is heard yet");
        shine(&mut bench, 2..=3);
        let did = bench.timer(LeaderTimer::Heartbeat);
        assert_eq!(awaits(&did), Some((acceptors.clone(), timeout * 3 / 4)), "{did:?}");
        bench
    };
    let mut bench = waiting();
    for _ in 0..3 {
        bench.pass(Duration::from_secs(4));
        assert!(bench.role.heard_leader(bench.now(), timeout).is_some(), "all that were heard still are");
        shine(&mut bench, 2..=3);
        let did = bench.timer(LeaderTimer::Heartbeat);
        assert!(stopped(&did).is_empty() && awaits(&did).is_some(), "it rests on: {did:?}");
        assert!(
            sends(&did).iter().any(|(to, _)| *to == node(2, REPLICA)),
            "and sends its whole pulse: {did:?}"
        );
    }
    let did = bench.hear(node(1, BATCHER), leader::Propose { value: value("a") });
    let looks = did.iter().any(|effect| {
        matches!(effect, Effect::SetTimer { timer, silence: None, .. }
            if *timer == kernel::TimerKey::index(LeaderTimer::Heartbeat))
    });
    assert!(looks, "something has come: {did:?}");
    assert_eq!(stopped(&beat(&mut bench, nobody_answers)).len(), 6, "which ends the rest");

    let mut bench = waiting();
    bench.pass(timeout);
    shine(&mut bench, 2..=2);
    let did = bench.timer(LeaderTimer::Heartbeat);
    assert_eq!((stopped(&did).len(), awaits(&did)), (6, None), "one is silent");

    let mut bench = waiting();
    bench.pass(Duration::from_secs(3));
    shine(&mut bench, 2..=3);
    (1..=3).for_each(|host| bench.beacons.put_out(node(host, ACCEPTOR), node(1, LEADER)));
    bench.timer(LeaderTimer::Heartbeat);
    assert!(bench.role.is_leading(), "all were heard until they stopped");
    (0..20).for_each(|_| drop(beat(&mut bench, nobody_answers)));
    assert!(!bench.role.is_leading(), "and not since");
}

// Hosts that speak rarely have promised when they speak again. A leader that looks more often, and counts them only when they speak, takes
// itself for unheard and resigns.
#[test]
fn hosts_that_speak_rarely_are_heard_in_between() {
    let (rarely, look) = (Duration::from_millis(450), Duration::from_millis(90));
    for looks_before in 0..3 {
        let mut bench = resting();
        for _ in 0..looks_before {
            drop(bench.timer(LeaderTimer::Heartbeat));
            bench.pass(Duration::from_millis(10));
        }
        shine(&mut bench, 2..=3);
        (2..=3).for_each(|host| bench.beacons.trust_until(HostId(host), bench.now() + rarely));
        for _ in 0..5 {
            drop(bench.timer(LeaderTimer::Heartbeat));
            bench.pass(look);
        }
        drop(bench.timer(LeaderTimer::Heartbeat));
        assert!(bench.role.is_leading(), "they have not been silent for longer than they promised");
        bench.pass(4 * look);
        drop(bench.timer(LeaderTimer::Heartbeat));
        assert!(!bench.role.is_leading(), "and now they have");
    }
}

// Nodes that are silent because all rest are as alive as their hosts. A leader that forgets them when one of them speaks ends its rest for
// nothing, and an idle cluster is busy for most of a second.
#[test]
fn one_that_speaks_has_no_other_forgotten() {
    let (mut bench, beat) = (resting(), kernel::REPEAT_WITHIN);
    shine(&mut bench, 2..=3);
    assert!(awaits(&bench.timer(LeaderTimer::Heartbeat)).is_some());
    for _ in 0..30 {
        bench.pass(beat);
        shine(&mut bench, 2..=3);
    }
    let report = || {
        let (executed, snapshot) = (Slot(0), Slot(0));
        leader::Executed { executed, version: 0, snapshot, configurations: None, hears: Some(ballot(1)) }
    };
    for _ in 0..4 {
        // Just before the next beacons.
        bench.pass(beat);
        assert_eq!(stopped(&bench.hear(node(2, REPLICA), report())), []);
        shine(&mut bench, 2..=3);
    }
    assert_eq!(stopped(&bench.timer(LeaderTimer::Heartbeat)), [], "it rests on");
}

// Nodes of a host that speaks rarely, and has said so, look dead between two of its beacons, and the rest ends for nothing.
#[test]
fn nodes_of_hosts_that_speak_rarely_are_alive_in_between() {
    let (mut bench, beat) = (resting(), kernel::REPEAT_WITHIN);
    let speak = |bench: &mut Table<Leader>| {
        shine(bench, 2..=3);
        let until = bench.now() + 3 * beat;
        (2..=3).for_each(|host| bench.beacons.trust_until(HostId(host), until));
    };
    let report = || {
        let (executed, snapshot) = (Slot(0), Slot(0));
        leader::Executed { executed, version: 0, snapshot, configurations: None, hears: Some(ballot(1)) }
    };
    speak(&mut bench);
    assert!(awaits(&bench.timer(LeaderTimer::Heartbeat)).is_some());
    for _ in 0..4 {
        speak(&mut bench);
        bench.pass(beat);
        assert_eq!(stopped(&bench.hear(node(2, REPLICA), report())), []);
        bench.pass(2 * beat);
        let did = bench.timer(LeaderTimer::Heartbeat);
        assert_eq!((stopped(&did), awaits(&did).is_some()), (vec![], true), "it listens again");
        assert_eq!(stopped(&bench.hear(node(3, REPLICA), report())), []);
        bench.pass(beat);
        speak(&mut bench);
        bench.pass(beat);
        assert_eq!(stopped(&bench.timer(LeaderTimer::Heartbeat)), [], "it rests on");
    }
}

/// What the acceptor of host 2 reports to the leader role beside it.
fn reported(did: &Did) -> Vec<Option<Ballot>> {
    let beside = sends(did).into_iter().filter_map(|(to, message)| match message {
        Message::Leader(LeaderIn::Hears(message)) => (to == node(2, LEADER)).then_some(message.leader),
        _ => None,
    });
    beside.collect()
}

// An acceptor that does not report a silence leaves its host without an election for ever; one that reports each heartbeat spares nothing.
#[test]
fn an_acceptor_listens_for_its_host() {
    let acceptor = Acceptor::new(Parameters::default(), configurations(1), Some(node(2, REPLICA)));
    let mut acceptor = Table::unstarted(acceptor, node(2, ACCEPTOR));
    let members = (1..=3).map(|host| (node(host, ACCEPTOR), 7)).collect();
    acceptor.role.restore(Position(0), AcceptorRecord::Blank { incarnation: 7 });
    acceptor.role.restore(Position(1), AcceptorRecord::Active { members });
    acceptor.start();
    let leader = node(1, LEADER);
    let did = acceptor.hear(leader, acceptor::Heartbeat { pulse: pulse(2) });
    assert_eq!(reported(&did), [Some(ballot(2))]);
    let did = acceptor.hear(leader, acceptor::Resting { ballot: ballot(2), pulse: None });
    assert_eq!(reported(&did), []);
    let rest = |leader| (node(2, REPLICA), replica_messages::LeaderRests { leader }.into());
    assert!(sends(&did).contains(&rest(Some(ballot(2)))), "{did:?}");
    let answers =
        |did: &Did| did.iter().any(|effect| matches!(effect, Effect::SetBeacon { to, .. } if *to == leader));
    assert!(answers(&did), "{did:?}");
    acceptor.beacons.light(leader, node(2, ACCEPTOR));
    for _ in 0..20 {
        acceptor.pass(Duration::from_millis(100));
        let now = acceptor.now();
        acceptor.beacons.hear(leader.host(), 1, now);
        acceptor.pass(Duration::from_millis(50));
        let did = acceptor.timer(AcceptorTimer::Silence);
        assert_eq!((reported(&did), stopped(&did)), (vec![], vec![]), "its beacon is heard");
        assert_eq!(awaits(&did), Some((vec![leader], Parameters::DEFAULT.election_timeout)), "{did:?}");
    }
    let ask = |by| acceptor::PreVote { ballot: Ballot { round: 9, leader: by }, version: Some(0) };
    let did = acceptor.hear(node(3, LEADER), ask(node(3, LEADER)));
    let refused = |did: &Did| {
        matches!(
            sends(did)[..],
            [(_, Message::Leader(LeaderIn::PreVoteAck(leader::PreVoteAck { granted: false, .. })))]
        )
    };
    assert!(refused(&did), "it stands by a leader whose beacon it hears: {did:?}");
    acceptor.pass(Duration::from_millis(100));
    let did = acceptor.timer(AcceptorTimer::Silence);
    assert_eq!((reported(&did), stopped(&did)), (vec![None], vec![leader]));
    assert!(sends(&did).contains(&rest(None)), "{did:?}");

    let did = acceptor.hear(leader, acceptor::Resting { ballot: ballot(2), pulse: None });
    assert!(answers(&did) && reported(&did) == [Some(ballot(2))], "{did:?}");
    let did = acceptor.hear(leader, acceptor::Heartbeat { pulse: pulse(2) });
    assert_eq!(stopped(&did), [leader], "the rest is over: {did:?}");
    acceptor.hear(leader, acceptor::Resting { ballot: ballot(2), pulse: None });
    acceptor.pass(Duration::from_millis(150));
    let now = acceptor.now();
    acceptor.beacons.hear(leader.host(), 1, now);
    let candidate = Ballot { round: 3, leader: node(3, LEADER) };
    let did = acceptor.hear(
        candidate.leader,
        acceptor::Phase1a { ballot: candidate, from: Slot(0), inquiry: 1, version: Some(0) },
    );
    assert_eq!(stopped(&did), [], "its beacon is heard, and it stands by its leader: {did:?}");
    acceptor.beacons.put_out(leader, node(2, ACCEPTOR));
    let did = acceptor.timer(AcceptorTimer::Silence);
    assert_eq!(
        (reported(&did), stopped(&did), awaits(&did)),
        (vec![], vec![], None),
        "it was heard until then"
    );
    acceptor.pass(Duration::from_millis(150));
    let did = acceptor.hear(
        candidate.leader,
        acceptor::Phase1a { ballot: candidate, from: Slot(0), inquiry: 1, version: Some(0) },
    );
    assert_eq!(stopped(&did), [leader], "another one is promised: {did:?}");
    let did = acceptor.hear(leader, acceptor::Resting { ballot: ballot(2), pulse: None });
    assert!(matches!(sends(&did)[..], [(_, Message::Leader(LeaderIn::Nack(_)))]), "{did:?}");
}

/// How long a role waits until it stands, if it does.
fn waits(did: &Did) -> Option<Duration> {
    did.iter().rev().find_map(|effect| match effect {
        Effect::SetTimer { timer, after, .. } if *timer == kernel::TimerKey::index(LeaderTimer::Election) => {
            Some(*after)
        }
        _ => None,
    })
}

// A follower that waits as long after a silence was reported as if it had begun then doubles the time without a leader.
#[test]
fn a_follower_waits_for_the_rest_of_a_silence() {
    let mut follower = Table::new(Leader::new(Parameters::default(), configurations(1)), node(2, LEADER));
    let hears = |leader| leader::Hears { leader };
    assert!(table::rejects(&follower.hear(node(1, ACCEPTOR), hears(None))), "another host's acceptor");
    assert_eq!(waits(&follower.hear(node(2, ACCEPTOR), hears(Some(ballot(3))))), None);
    let did = follower.hear(node(1, LEADER), leader::Heartbeat { pulse: pulse(3) });
    assert_eq!(waits(&did), None, "its acceptor listens: {did:?}");
    let lower = Ballot { round: 1, leader: node(3, LEADER) };
    assert_eq!(waits(&follower.hear(node(2, ACCEPTOR), hears(Some(lower)))), None, "acceptors hear that one");
    follower.hear(node(2, ACCEPTOR), hears(Some(ballot(3))));
    follower.pass(Duration::from_secs(9));
    let within = Duration::from_secs(1);
    assert_eq!(
        follower.role.heard_leader(follower.now(), within),
        Some(ballot(3)),
        "it is heard all the time"
    );
    let wait = waits(&follower.hear(node(2, ACCEPTOR), hears(None)));
    assert!(wait.is_some_and(|wait| wait <= Parameters::DEFAULT.election_timeout), "{wait:?}");
    follower.pass(within);
    assert_eq!(follower.role.heard_leader(follower.now(), within), None, "the silence began before");
    let did = follower.hear(node(1, LEADER), leader::Heartbeat { pulse: pulse(3) });
    assert!(waits(&did).is_some(), "nobody listens: {did:?}");
}

// A replica that looks for what is missing fifty times a second is most of what an idle host does; one that never looks again lags for ever.
#[test]
fn a_replica_at_rest_looks_when_something_comes() {
    let mut bench = replica();
    let looks = |did: &Did| did.iter().any(|effect| matches!(effect, Effect::SetTimer { .. }));
    bench.hear(node(1, LEADER), replica_messages::Heartbeat { pulse: pulse(2) });
    assert!(looks(&bench.timer(ReplicaTimer::CatchUp)), "its leader does not rest");
    let rest: ReplicaIn = replica_messages::LeaderRests { leader: Some(ballot(2)) }.into();
    assert!(table::rejects(&bench.hear(node(2, ACCEPTOR), rest.clone())), "another host's acceptor");
    bench.hear(node(1, ACCEPTOR), rest);
    assert!(!looks(&bench.timer(ReplicaTimer::CatchUp)));
    let read =
        replica_messages::ReadBatch { through: Slot(3), unbatcher: node(1, UNBATCHER), reads: Vec::new() };
    assert!(looks(&bench.hear(node(1, BATCHER), read)), "what it waits for may get lost");
    assert!(looks(&bench.timer(ReplicaTimer::CatchUp)), "a read waits");
}
