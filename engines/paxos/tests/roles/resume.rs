//! What a replica goes on with after a restart.

use super::replica::{Counter, batch, chosen, replica};
use super::*;
use kernel::bounds::VOTE_BYTES;
use paxos::multipaxos::replica::{self, Replica, ReplicaTimer};

fn voted(slot: u64, round: u64) -> replica::Voted {
    replica::Voted { ballot: ballot(round), slot: Slot(slot), value: batch(slot) }
}

fn tick(bench: &mut Table<Replica<Counter>>) -> Vec<(NodeId, Message)> {
    sends(&bench.call(|role, cx| role.on_timer(ReplicaTimer::CatchUp, cx)))
}

fn executed(from: u64, below: u64) -> Message {
    acceptor::Executed { from: Slot(from), below: Slot(below) }.into()
}

fn learned(slot: u64, value: u64) -> Message {
    acceptor::Learned { slot: Slot(slot), value: batch(value) }.into()
}

// What the acceptor did not vote for, it would give back as something else.
#[test]
fn a_replica_hands_its_acceptor_what_that_one_did_not_vote_for() {
    let mut bench = replica();
    for slot in 0..20 {
        bench.hear(node(1, ACCEPTOR), voted(slot, 1));
        bench.hear(node(2, PROXY), chosen(slot, 1, None));
    }
    assert!(tick(&mut bench).contains(&(node(1, ACCEPTOR), executed(0, 20))));
    assert!(tick(&mut bench).iter().all(|(to, _)| *to != node(1, ACCEPTOR)), "reported once");
    // The acceptor missed this one: it comes with its value.
    let did = bench.hear(node(2, PROXY), chosen(20, 1, Some(batch(20))));
    assert!(sends(&did).contains(&(node(1, ACCEPTOR), learned(20, 20))), "{did:?}");
    // And of this one it has a vote that lost.
    bench.hear(node(1, ACCEPTOR), voted(21, 1));
    let did = bench.hear(node(2, PROXY), chosen(21, 2, Some(batch(7))));
    assert!(sends(&did).contains(&(node(1, ACCEPTOR), learned(21, 7))), "{did:?}");
    for slot in 22..40 {
        bench.hear(node(2, PROXY), chosen(slot, 2, None));
        bench.hear(node(1, ACCEPTOR), voted(slot, 2));
    }
    assert_eq!(bench.role.executed(), Slot(40));
    assert!(tick(&mut bench).contains(&(node(1, ACCEPTOR), executed(0, 40))));
}

// Where acceptors are spared votes on purpose, their journals must not take the values after all.
#[test]
fn a_thrifty_replica_reports_to_its_acceptor_only_of_what_that_one_voted_for() {
    let parameters = Parameters { thrifty: true, ..Parameters::default() };
    let role = Replica::new(parameters, configurations(1), Counter::default());
    let mut bench = Table::new(role, node(1, REPLICA));
    bench.hear(node(1, ACCEPTOR), replica::Resumed { from: Slot(0), values: Vec::new() });
    let did = bench.hear(node(2, PROXY), chosen(0, 1, Some(batch(0))));
    assert!(sends(&did).iter().all(|(to, _)| *to != node(1, ACCEPTOR)), "{did:?}");
    for slot in 1..20 {
        bench.hear(node(1, ACCEPTOR), voted(slot, 1));
        bench.hear(node(2, PROXY), chosen(slot, 1, None));
    }
    assert!(tick(&mut bench).contains(&(node(1, ACCEPTOR), executed(1, 20))));
}

// An acceptor that gives more than was reported to it gives values that were never chosen.
#[test]
fn an_acceptor_gives_back_what_was_executed_and_no_more() {
    let mut acceptor = active_acceptor();
    (0..6).for_each(|slot| drop(acceptor.hear(node(1, PROXY), noop(slot, 1))));
    acceptor.journal();
    let resume = |acceptor: &mut Table<Acceptor>, from| {
        acceptor.hear(node(1, REPLICA), acceptor::Resume { from: Slot(from) })
    };
    let page = |from, count| {
        now(node(1, REPLICA), replica::Resumed { from: Slot(from), values: vec![Value::Noop; count] })
    };
    assert_eq!(resume(&mut acceptor, 0), page(0, 0));
    acceptor.hear(node(1, REPLICA), acceptor::Executed { from: Slot(1), below: Slot(4) });
    assert_eq!(acceptor.journal().len(), 1, "it remembers");
    assert_eq!(resume(&mut acceptor, 0), page(0, 0), "of slot 0 it may have a vote that lost");
    assert_eq!(resume(&mut acceptor, 2), page(2, 2));
    assert_eq!(resume(&mut acceptor, 4), page(4, 0));
    let did = acceptor.hear(node(2, REPLICA), acceptor::Executed { from: Slot(0), below: Slot(6) });
    assert!(matches!(did[..], [Effect::Reject { .. }]), "{did:?}");

    let mut role = Acceptor::new(Parameters::default(), configurations(1), Some(node(1, REPLICA)));
    let vote = |slot| AcceptorRecord::Vote { ballot: ballot(1), slot: Slot(slot), value: batch(slot) };
    let records = [
        AcceptorRecord::Blank { incarnation: 7 },
        AcceptorRecord::Active { members: Vec::new() },
        vote(0),
        vote(1),
        vote(2),
        AcceptorRecord::Executed { from: Slot(0), below: Slot(2) },
    ];
    for (position, record) in records.into_iter().enumerate() {
        role.restore(Position(position as u64), record);
    }
    let mut acceptor = Table::new(role, node(1, ACCEPTOR));
    let values = vec![batch(0), batch(1)];
    let page = replica::Resumed { from: Slot(0), values };
    assert_eq!(resume(&mut acceptor, 0), now(node(1, REPLICA), page));
}

// A vote that lost, given back for the value that was chosen: the replica would execute what nobody else does. A value that is not given
// back costs a peer's whole snapshot.
#[test]
fn an_acceptor_gives_back_what_its_replica_learned_elsewhere() {
    let mut acceptor = active_acceptor();
    let hear = |acceptor: &mut Table<Acceptor>, from, message: Message| match message {
        Message::Acceptor(message) => acceptor.hear(from, message),
        other => panic!("{other:?}"),
    };
    let here = node(1, REPLICA);
    for slot in [0, 1, 3] {
        drop(acceptor.hear(node(1, PROXY), noop(slot, 1)));
    }
    let did = hear(&mut acceptor, node(2, REPLICA), learned(1, 7));
    assert!(matches!(did[..], [Effect::Reject { .. }]), "{did:?}");
    acceptor.journal();
    hear(&mut acceptor, here, learned(1, 7));
    hear(&mut acceptor, here, learned(2, 8));
    hear(&mut acceptor, here, learned(2, 8));
    hear(&mut acceptor, here, executed(0, 4));
    let journal = acceptor.journal();
    assert_eq!(journal.len(), 3, "each once");
    let resumed = |values| now(here, replica::Resumed { from: Slot(0), values });
    let all = vec![Value::Noop, batch(7), batch(8), Value::Noop];
    let resume = || acceptor::Resume { from: Slot(0) };
    assert_eq!(acceptor.hear(here, resume()), resumed(all.clone()));
    // A vote that comes late, in a ballot that lost, is not what was chosen.
    drop(acceptor.hear(node(1, PROXY), noop(2, 1)));
    assert_eq!(acceptor.hear(here, resume()), resumed(all));

    // What it cannot note, it does not vouch for.
    acceptor
        .hear(node(1, LEADER), acceptor::Heartbeat { pulse: Pulse { truncate_below: Slot(3), ..pulse(1) } });
    hear(&mut acceptor, here, learned(2, 8));
    hear(&mut acceptor, here, learned(3, 9));
    hear(&mut acceptor, here, executed(0, 5));
    assert_eq!(acceptor.role.executed(), Slot(3)..Slot(5));
    assert_eq!(acceptor.role.executed_value(Slot(2)), None);
    assert_eq!(acceptor.role.executed_value(Slot(3)), Some(&batch(9)));

    // The same after a restart.
    let mut role = Acceptor::new(Parameters::default(), configurations(1), Some(here));
    let vote = |slot| AcceptorRecord::Vote { ballot: ballot(1), slot: Slot(slot), value: batch(slot) };
    let records = [
        AcceptorRecord::Blank { incarnation: 7 },
        AcceptorRecord::Active { members: Vec::new() },
        vote(0),
        AcceptorRecord::Learned { slot: Slot(0), value: batch(5) },
        AcceptorRecord::Learned { slot: Slot(1), value: batch(6) },
        AcceptorRecord::Executed { from: Slot(0), below: Slot(2) },
    ];
    for (position, record) in records.into_iter().enumerate() {
        role.restore(Position(position as u64), record);
    }
    let mut acceptor = Table::new(role, node(1, ACCEPTOR));
    assert_eq!(acceptor.hear(here, resume()), resumed(vec![batch(5), batch(6)]));
}

// Two of three replicas have snapshots and the votes go: the third takes the whole state from a peer at its next start.
#[test]
fn votes_are_held_for_this_hosts_replica_within_bounds() {
    let mut acceptor = active_acceptor();
    (0..9).for_each(|slot| drop(acceptor.hear(node(1, PROXY), noop(slot, 1))));
    let truncate = |acceptor: &mut Table<Acceptor>, below| {
        let pulse = Pulse { truncate_below: Slot(below), ..pulse(1) };
        acceptor.hear(node(1, LEADER), acceptor::Heartbeat { pulse });
        acceptor.role.truncated_below()
    };
    let hold = |from, bytes_max| acceptor::Hold { from: Slot(from), bytes_max };
    acceptor.hear(node(2, REPLICA), hold(0, 1 << 20));
    assert_eq!(truncate(&mut acceptor, 1), Slot(1), "another host's replica has its own acceptor");
    acceptor.hear(node(1, REPLICA), hold(3, 1 << 20));
    assert_eq!(truncate(&mut acceptor, 2), Slot(2));
    assert_eq!(truncate(&mut acceptor, 5), Slot(3));
    assert_eq!(truncate(&mut acceptor, 6), Slot(3));
    acceptor.hear(node(1, REPLICA), hold(5, 1 << 20));
    assert_eq!(truncate(&mut acceptor, 6), Slot(5));
    acceptor.hear(node(1, REPLICA), hold(6, 2 * VOTE_BYTES as u64));
    assert_eq!(truncate(&mut acceptor, 7), Slot(6));
    assert_eq!(truncate(&mut acceptor, 9), Slot(9), "three votes come to more than it is worth");
    acceptor.hear(node(1, REPLICA), hold(6, 1 << 20));
    drop(acceptor.hear(node(1, PROXY), noop(9, 1)));
    assert_eq!(truncate(&mut acceptor, 10), Slot(10), "without the first of them the others have no use");
}

fn holds(sent: Vec<(NodeId, Message)>) -> Vec<u64> {
    let held = sent.into_iter().filter_map(|(to, message)| match message {
        Message::Acceptor(AcceptorIn::Hold(hold)) if to == node(1, ACCEPTOR) => Some(hold.bytes_max),
        _ => None,
    });
    held.collect()
}

// At its start a replica has an old snapshot's state: as many votes as that is large are fewer than it is about to execute.
#[test]
fn all_votes_are_held_until_a_replica_has_resumed() {
    let role = Replica::new(Parameters::default(), configurations(1), Counter::default());
    let mut bench = Table::unstarted(role, node(1, REPLICA));
    assert_eq!(holds(sends(&bench.start())), [u64::MAX]);
    let did = bench.hear(node(1, ACCEPTOR), replica::Resumed { from: Slot(0), values: Vec::new() });
    assert_eq!(holds(sends(&did)), [64 << 20]);
}

// A state that grows faster than snapshots of it are written takes a peer's snapshot at the next start, if as many votes are held as the
// last snapshot is worth.
#[test]
fn a_state_that_has_grown_is_worth_more_votes() {
    let mut bench = replica();
    let mut execute = |slots: std::ops::Range<u64>| {
        for slot in slots {
            let entry = Value::entry(&b"x"[..]).expect("it is small");
            bench.hear(node(2, PROXY), chosen(slot, 1, Some(entry)));
        }
        holds(tick(&mut bench))
    };
    assert_eq!(execute(0..60), [], "64 MiB are held anyway");
    assert_eq!(execute(60..200), [200 << 20]);
    assert_eq!(execute(200..250), []);
    assert_eq!(execute(250..251), [251 << 20]);
}

// A snapshot of what is only being read back makes the start longer, and is out of date when it is written.
#[test]
fn no_snapshot_is_begun_before_a_replica_has_resumed() {
    let parameters = Parameters { snapshot_every_bytes: 1, ..Parameters::default() };
    let role = Replica::new(parameters, configurations(1), Counter::default());
    let mut bench = Table::new(role, node(1, REPLICA));
    let entry = || Value::entry(&b"x"[..]).expect("it is small");
    let page = |from, values| replica::Resumed { from: Slot(from), values };
    bench.burst(node(1, ACCEPTOR), page(0, vec![entry(), entry()]));
    assert_eq!((bench.role.executed(), bench.journal().len()), (Slot(2), 0));
    bench.burst(node(1, ACCEPTOR), page(2, Vec::new()));
    assert_ne!(bench.journal().len(), 0);
}

// A leader that gets a report of a replica which has only begun to resume has everything voted for again.
#[test]
fn a_replica_reports_to_leaders_how_far_it_is_when_it_has_resumed() {
    let role = Replica::new(Parameters::default(), configurations(1), Counter::default());
    let mut bench = Table::new(role, node(1, REPLICA));
    let reports = |sent: Vec<(NodeId, Message)>| {
        let reports = |message: &Message| matches!(message, Message::Leader(leader::LeaderIn::Executed(_)));
        sent.iter().filter(|(_, message)| reports(message)).count()
    };
    assert_eq!(reports(tick(&mut bench)), 0);
    assert!(sends(&bench.hear(node(2, LEADER), replica::Describe {})).is_empty());
    let page = |from, values| replica::Resumed { from: Slot(from), values };
    let did = bench.hear(node(2, ACCEPTOR), page(0, vec![batch(3)]));
    assert!(matches!(did[..], [Effect::Reject { .. }]), "{did:?}");
    let did = sends(&bench.hear(node(1, ACCEPTOR), page(0, vec![batch(0), batch(1)])));
    assert_eq!(bench.role.executed(), Slot(2));
    assert!(did.contains(&(node(1, ACCEPTOR), acceptor::Resume { from: Slot(2) }.into())));
    assert_eq!(reports(did), 0);
    assert_eq!(reports(sends(&bench.hear(node(1, ACCEPTOR), page(2, Vec::new())))), 3);
    assert_eq!(sends(&bench.hear(node(2, LEADER), replica::Describe {})).len(), 1);

    // An acceptor that is not there must not silence it for good.
    let role = Replica::new(Parameters::default(), configurations(1), Counter::default());
    let mut bench = Table::new(role, node(1, REPLICA));
    assert!((0..20).any(|_| reports(tick(&mut bench)) > 0));
}
