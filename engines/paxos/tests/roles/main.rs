//! One input, exact effects: the decisions of the roles, one by one.

mod bounds;
mod handing;
mod membership;
mod replica;
mod rest;
mod resume;

use kernel::{Bytes, Effect, HostId, HostSlot, NodeId, Position, RequestId, Role as _};
use parts::{AcceptorGroup, Acceptors, Ballot, Sequence, SessionId, Slot};
use paxos::multipaxos::acceptor::{self, Acceptor, AcceptorIn, AcceptorRecord};
use paxos::multipaxos::batcher::{self, Batcher};
use paxos::multipaxos::client::{self, CommandClient};
use paxos::multipaxos::leader::{self, Leader};
use paxos::multipaxos::proxy_leader::{self, ProxyLeader};
use paxos::multipaxos::{Paxos, Pulse};
use paxos::{
    Call, Commands, Configuration, Configurations, GroupKind, Level, Message, Outcome, Parameters, Value,
};
use std::time::Duration;
use table::{Table, sends};

const BATCHER: u32 = 1;
const LEADER: u32 = 2;
const PROXY: u32 = 3;
const ACCEPTOR: u32 = 4;
const REPLICA: u32 = 5;
const UNBATCHER: u32 = 6;
const CLIENT: u32 = 7;

fn node(host: u32, host_slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(host_slot))
}

fn ballot(round: u64) -> Ballot {
    Ballot { round, leader: node(1, LEADER) }
}

fn noop(slot: u64, round: u64) -> acceptor::Phase2a {
    acceptor::Phase2a { ballot: ballot(round), slot: Slot(slot), value: Value::Noop }
}

/// Three hosts with every role each, in `groups` groups of acceptors on hosts of their own.
fn configurations(groups: u32) -> Configurations {
    let on = |hosts: std::ops::RangeInclusive<u32>, host_slot| {
        hosts.map(|host| node(host, host_slot)).collect::<Vec<_>>()
    };
    let group = |at| AcceptorGroup::majority(on(3 * at + 1..=3 * at + 3, ACCEPTOR)).expect("three hosts");
    Configurations::starting_with(Configuration {
        version: 0,
        first_slot: Slot(0),
        acceptors: Acceptors::new((0..groups).map(group).collect()).expect("at least one group"),
        leaders: on(1..=3, LEADER),
        proxy_leaders: on(1..=3, PROXY),
        replicas: on(1..=3, REPLICA),
        batchers: on(1..=3, BATCHER),
        unbatchers: on(1..=3, UNBATCHER),
        hosts: Vec::new(),
        joined: Vec::new(),
    })
}

fn pulse(round: u64) -> Pulse {
    Pulse {
        ballot: ballot(round),
        configurations: configurations(1),
        executed: Slot(0),
        truncate_below: Slot(0),
        alive: Vec::new(),
    }
}

type Did = table::Did<Paxos>;

fn now(to: NodeId, message: impl Into<Message>) -> Did {
    vec![Effect::Send { to, message: message.into() }]
}

fn active_acceptor() -> Table<Acceptor> {
    let mut acceptor = Acceptor::new(Parameters::default(), configurations(1), Some(node(1, REPLICA)));
    let members = (1..=3).map(|host| (node(host, ACCEPTOR), 7)).collect();
    acceptor.restore(Position(0), AcceptorRecord::Blank { incarnation: 7 });
    acceptor.restore(Position(1), AcceptorRecord::Active { members });
    Table::new(acceptor, node(1, ACCEPTOR))
}

// A vote or promise revealed before it is durable is forgotten by a crash and counted by others.
#[test]
fn an_acceptor_promises_and_votes_durably_and_once() {
    let mut acceptor = active_acceptor();
    let ask = acceptor::Phase1a { ballot: ballot(2), from: Slot(0), inquiry: 5, version: Some(0) };
    let did = acceptor.hear(node(1, LEADER), ask);
    assert_eq!(acceptor.journal().len(), 1);
    assert!(matches!(did[..], [Effect::SendDurable { after: Position(1), .. }]), "{did:?}");
    let did = acceptor.hear(node(2, PROXY), noop(4, 2));
    let vote = proxy_leader::Phase2b { ballot: ballot(2), slot: Slot(4) };
    assert_eq!(did[0], Effect::SendDurable { to: node(2, PROXY), message: vote.into(), after: Position(2) });
    assert_eq!(sends(&did)[1].0, node(1, REPLICA), "the replica of this host takes the value from here");
    assert_eq!(acceptor.journal().len(), 1);
    let again = acceptor.hear(node(2, PROXY), noop(4, 2));
    assert!(matches!(again[0], Effect::SendDurable { .. }), "a repeated question is answered as before");
    assert_eq!(acceptor.journal().len(), 0, "and not written twice");
}

// An acceptor that votes below its promise lets an old leader choose a second value.
#[test]
fn an_acceptor_refuses_lower_ballots() {
    let mut acceptor = active_acceptor();
    acceptor.hear(node(1, PROXY), noop(0, 5));
    acceptor.journal();
    let promised = ballot(5);
    let did = acceptor.hear(node(2, PROXY), noop(1, 4));
    assert_eq!(did, now(node(2, PROXY), proxy_leader::Nack { slot: Slot(1), promised }));
    let ask = acceptor::Phase1a { ballot: ballot(4), from: Slot(0), inquiry: 1, version: None };
    assert_eq!(acceptor.hear(node(2, LEADER), ask), now(node(2, LEADER), leader::Nack { promised }));
    let seal = acceptor::Seal { ballot: ballot(4), version: 3 };
    assert_eq!(acceptor.hear(node(2, LEADER), seal), now(node(2, LEADER), leader::Nack { promised }));
    assert_eq!(acceptor.journal().len(), 0);
}

// A candidate that is granted votes while a leader is heard unseats it again and again.
#[test]
fn an_acceptor_grants_no_vote_while_it_hears_a_leader() {
    let mut acceptor = active_acceptor();
    let asks = |bench: &mut Table<Acceptor>| {
        sends(&bench.hear(node(2, LEADER), acceptor::PreVote { ballot: ballot(9), version: Some(0) }))
    };
    let answer = |granted, promised| leader::PreVoteAck { ballot: ballot(9), granted, promised }.into();
    assert_eq!(asks(&mut acceptor), [(node(2, LEADER), answer(true, Ballot::ZERO))]);
    acceptor.hear(node(1, LEADER), acceptor::Heartbeat { pulse: pulse(2) });
    assert_eq!(asks(&mut acceptor), [(node(2, LEADER), answer(false, Ballot::ZERO))]);
    acceptor.pass(Parameters::default().election_timeout);
    assert_eq!(asks(&mut acceptor), [(node(2, LEADER), answer(true, Ballot::ZERO))]);
}

// Old acceptors that answer reads after a change hide the writes of the new ones.
#[test]
fn a_sealed_acceptor_answers_no_older_reads() {
    let mut acceptor = active_acceptor();
    acceptor.hear(node(1, PROXY), noop(6, 1));
    let read = || acceptor::PreRead { id: 3, version: 0 };
    let ack = batcher::PreReadAck { id: 3, voted_through: Slot(7) };
    assert_eq!(acceptor.hear(node(2, BATCHER), read()), now(node(2, BATCHER), ack));
    acceptor.journal();
    let did = acceptor.hear(node(1, LEADER), acceptor::Seal { ballot: ballot(1), version: 1 });
    assert!(matches!(did[..], [Effect::SendDurable { .. }]) && acceptor.journal().len() == 1);
    let superseded = batcher::Superseded { id: 3, configurations: configurations(1) };
    assert!(sends(&acceptor.hear(node(2, BATCHER), read())).contains(&(node(2, BATCHER), superseded.into())));
}

/// What a blank acceptor asks another one, by the question's name.
fn question_to(did: &Did, host: u32) -> Option<u64> {
    let to = node(host, ACCEPTOR);
    let asked =
        sends(did).into_iter().filter(|(node, _)| *node == to).find_map(|(_, message)| match message {
            Message::Acceptor(AcceptorIn::Blank(blank)) => Some(blank.question),
            _ => None,
        });
    asked.flatten()
}

// A blank acceptor that counts what was said before somebody lost its disk has it vote again in a cluster that knows its votes.
#[test]
fn a_bootstrap_counts_the_incarnations_that_are_there() {
    let role = Acceptor::new(Parameters::default(), configurations(1), None);
    let mut acceptor = Table::new(role, node(1, ACCEPTOR));
    let answer = |incarnation, question: Option<u64>| acceptor::BlankToo {
        incarnation,
        question: question.expect("it asks"),
    };
    let is_active = |acceptor: &mut Table<Acceptor>| {
        acceptor.timer(acceptor::AcceptorTimer::Enlist);
        acceptor.role.is_active()
    };
    let asked = acceptor.timer(acceptor::AcceptorTimer::Enlist);
    let first = [2, 3].map(|host| question_to(&asked, host));
    acceptor.hear(node(2, ACCEPTOR), answer(2, first[0]));
    acceptor.hear(node(3, ACCEPTOR), answer(3, first[0]));
    assert!(!is_active(&mut acceptor), "another question, perhaps of before this disk was lost");
    acceptor.hear(node(3, ACCEPTOR), answer(3, first[1]));
    // The other one has lost its disk since.
    let did = acceptor.hear(node(2, ACCEPTOR), acceptor::Blank { incarnation: 22, question: Some(9) });
    let own = acceptor.role.summary().map_or(0, |summary| summary.incarnation);
    assert!(sends(&did).contains(&(node(2, ACCEPTOR), answer(own, Some(9)).into())), "{did:?}");
    let second = question_to(&did, 2);
    assert!(second.is_some() && second != first[0], "it is asked anew, and at once");
    acceptor.hear(node(2, ACCEPTOR), answer(2, first[0]));
    assert!(!is_active(&mut acceptor), "an answer of before");
    let did = acceptor.hear(node(2, ACCEPTOR), acceptor::Blank { incarnation: 22, question: Some(9) });
    assert_eq!(question_to(&did, 2), None, "it is the same incarnation");
    acceptor.hear(node(2, ACCEPTOR), answer(22, second));
    assert!(is_active(&mut acceptor));
}

// An acceptor that lost its votes and votes again breaks every quorum it was in.
#[test]
fn a_blank_acceptor_is_silent_until_all_were_blank_together() {
    let mut acceptor =
        Table::new(Acceptor::new(Parameters::default(), configurations(1), None), node(1, ACCEPTOR));
    assert!(acceptor.hear(node(1, PROXY), noop(0, 1)).is_empty());
    let asked = acceptor.timer(acceptor::AcceptorTimer::Enlist);
    let questions = [2, 3].map(|host| question_to(&asked, host).expect("it asks"));
    acceptor.hear(node(2, ACCEPTOR), acceptor::BlankToo { incarnation: 2, question: questions[0] });
    acceptor.timer(acceptor::AcceptorTimer::Enlist);
    assert!(!acceptor.role.is_active(), "one is not heard yet");
    acceptor.hear(node(3, ACCEPTOR), acceptor::BlankToo { incarnation: 3, question: questions[1] });
    let did = acceptor.timer(acceptor::AcceptorTimer::Enlist);
    assert!(acceptor.role.is_active());
    let reveals = |effect: &Effect<Message, Outcome>| {
        matches!(effect, Effect::Send { message: Message::Acceptor(AcceptorIn::Blank(_)), .. })
    };
    assert!(!did.iter().any(reveals), "an incarnation leaves only when it is durable");

    let mut wiped =
        Table::new(Acceptor::new(Parameters::default(), configurations(1), None), node(1, ACCEPTOR));
    let members = (1..=3).map(|host| (node(host, ACCEPTOR), 40)).collect();
    wiped.hear(node(2, ACCEPTOR), acceptor::Bootstrapped { members });
    assert!(wiped.role.is_refused() && wiped.hear(node(1, PROXY), noop(0, 1)).is_empty());
}

// Votes forgotten too early lose chosen values; votes never forgotten fill the disk.
#[test]
fn an_acceptor_forgets_what_snapshots_hold_and_no_more() {
    let mut acceptor = active_acceptor();
    (0..6).for_each(|slot| drop(acceptor.hear(node(1, PROXY), noop(slot, 1))));
    acceptor
        .hear(node(1, LEADER), acceptor::Heartbeat { pulse: Pulse { truncate_below: Slot(4), ..pulse(1) } });
    assert_eq!(acceptor.role.votes().map(|(slot, ..)| slot.0).collect::<Vec<_>>(), [4, 5]);
    let did = acceptor.hear(node(1, PROXY), noop(2, 1));
    assert!(matches!(did[..], [Effect::Reject { .. }]), "{did:?}");
}

// One acceptor counted twice is no quorum; a vote in another ballot is none for this one.
#[test]
fn a_proxy_leader_counts_each_vote_once() {
    let mut proxy = Table::new(ProxyLeader::new(Parameters::default(), configurations(1)), node(1, PROXY));
    let assign = proxy_leader::Assign { ballot: ballot(2), slot: Slot(3), version: 0, value: Value::Noop };
    assert_eq!(sends(&proxy.hear(node(1, LEADER), assign.clone())).len(), 3);
    assert!(sends(&proxy.hear(node(1, LEADER), assign)).is_empty(), "assigned already");
    let vote = |round| proxy_leader::Phase2b { ballot: ballot(round), slot: Slot(3) };
    assert!(sends(&proxy.hear(node(1, ACCEPTOR), vote(2))).is_empty());
    assert!(sends(&proxy.hear(node(1, ACCEPTOR), vote(2))).is_empty());
    assert!(sends(&proxy.hear(node(2, ACCEPTOR), vote(1))).is_empty());
    let did = proxy.hear(node(9, ACCEPTOR), vote(2));
    assert!(matches!(did[..], [Effect::Reject { .. }]), "{did:?}");
    assert_eq!(sends(&proxy.hear(node(2, ACCEPTOR), vote(2))).len(), 3, "every replica is notified");
    assert_eq!(proxy.role.pending(), 0);
}

// A thrifty proxy leader that never asks the others waits for a dead acceptor for ever.
#[test]
fn a_thrifty_proxy_leader_asks_the_silent_when_it_is_late() {
    let parameters = Parameters { thrifty: true, ..Parameters::default() };
    let resend_after = parameters.resend_after;
    let mut proxy = Table::new(ProxyLeader::new(parameters, configurations(1)), node(1, PROXY));
    let assign = proxy_leader::Assign { ballot: ballot(2), slot: Slot(0), version: 0, value: Value::Noop };
    let asked: Vec<NodeId> = sends(&proxy.hear(node(1, LEADER), assign)).iter().map(|(to, _)| *to).collect();
    assert_eq!(asked, [node(1, ACCEPTOR), node(2, ACCEPTOR)]);
    proxy.hear(node(1, ACCEPTOR), proxy_leader::Phase2b { ballot: ballot(2), slot: Slot(0) });
    proxy.pass(resend_after);
    let did = proxy.timer(proxy_leader::ProxyLeaderTimer::Resend);
    let asked: Vec<NodeId> = sends(&did).iter().map(|(to, _)| *to).collect();
    assert_eq!(asked, [node(2, ACCEPTOR), node(3, ACCEPTOR)]);
}

// A refused proposal that is retained is resent for ever, and its leader never learns that it was deposed.
#[test]
fn a_refused_proxy_leader_notifies_its_leader() {
    let mut proxy = Table::new(ProxyLeader::new(Parameters::default(), configurations(1)), node(1, PROXY));
    proxy.hear(
        node(1, LEADER),
        proxy_leader::Assign { ballot: ballot(2), slot: Slot(0), version: 0, value: Value::Noop },
    );
    let did = proxy.hear(node(2, ACCEPTOR), proxy_leader::Nack { slot: Slot(0), promised: ballot(7) });
    assert_eq!(did, now(node(1, LEADER), leader::Nack { promised: ballot(7) }));
    assert_eq!(proxy.role.pending(), 0);
}

/// A leader of round 1 after Phase 1 in which acceptors 1 and 2 reported `votes`.
fn leading(first: Vec<leader::ReportedVote>, second: Vec<leader::ReportedVote>) -> (Table<Leader>, Did) {
    leading_by(Parameters::default(), first, second)
}

fn leading_by(
    parameters: Parameters,
    first: Vec<leader::ReportedVote>,
    second: Vec<leader::ReportedVote>,
) -> (Table<Leader>, Did) {
    let mut bench = Table::new(Leader::new(parameters, configurations(1)), node(1, LEADER));
    let executed = leader::Executed {
        executed: Slot(0),
        version: 0,
        snapshot: Slot(0),
        configurations: None,
        hears: None,
    };
    bench.hear(node(1, REPLICA), executed);
    bench.timer(leader::LeaderTimer::Election);
    let ack = leader::PreVoteAck { ballot: ballot(1), granted: true, promised: Ballot::ZERO };
    bench.hear(node(1, ACCEPTOR), ack.clone());
    let asked = bench.hear(node(2, ACCEPTOR), ack);
    let Some((_, Message::Acceptor(AcceptorIn::Phase1a(ask)))) = sends(&asked).first().cloned() else {
        panic!("a granted candidate asks the acceptors: {asked:?}");
    };
    assert!(asked.iter().all(|effect| !matches!(effect, Effect::Send { .. })), "the round is durable first");
    let page = |votes| leader::Phase1b {
        ballot: ask.ballot,
        inquiry: ask.inquiry,
        truncated_below: Slot(0),
        votes,
        more: None,
    };
    bench.hear(node(1, ACCEPTOR), page(first));
    assert!(!bench.role.is_leading(), "one acceptor is no quorum");
    let did = bench.hear(node(2, ACCEPTOR), page(second));
    assert!(bench.role.is_leading());
    (bench, did)
}

fn assigned(did: &Did) -> Vec<(u64, Value)> {
    let assigns = sends(did).into_iter().filter_map(|(_, message)| match message {
        Message::ProxyLeader(proxy_leader::ProxyLeaderIn::Assign(assign)) => {
            Some((assign.slot.0, assign.value))
        }
        _ => None,
    });
    assigns.collect()
}

fn value(text: &'static str) -> Value {
    Value::batch(Bytes::from_static(text.as_bytes())).expect("it is small")
}

// The value of a lower ballot, or a hole left open, loses a chosen command or blocks the log.
#[test]
fn a_new_leader_adopts_the_highest_votes_and_fills_the_gaps() {
    let vote = |slot, round, text| leader::ReportedVote {
        slot: Slot(slot),
        ballot: ballot(round),
        value: value(text),
    };
    let low = Ballot { round: 0, leader: node(3, LEADER) };
    let (_, did) = leading(
        vec![leader::ReportedVote { ballot: low, ..vote(0, 0, "old") }, vote(2, 0, "later")],
        vec![leader::ReportedVote {
            ballot: Ballot { round: 0, leader: node(4, LEADER) },
            ..vote(0, 0, "new")
        }],
    );
    assert_eq!(assigned(&did), [(0, value("new")), (1, Value::Noop), (2, value("later"))]);
}

// A leader beyond its window would use acceptors that a change of membership has replaced.
#[test]
fn a_leader_stays_within_its_window() {
    let (mut bench, _) = leading(Vec::new(), Vec::new());
    let window = Parameters::default().window;
    let mut slots = Vec::new();
    for number in 0..window + 10 {
        let batch = paxos::Batch {
            id: paxos::BatchId { batcher: node(1, BATCHER), number },
            unbatcher: node(1, UNBATCHER),
            groups: Vec::new(),
            rules: None,
        };
        let propose =
            leader::Propose { value: Value::batch(kernel::Encode::encoded(&batch)).expect("it is small") };
        slots.extend(assigned(&bench.hear(node(1, BATCHER), propose.clone())));
        assert!(assigned(&bench.hear(node(1, BATCHER), propose)).is_empty(), "a repeated batch has its slot");
    }
    assert_eq!(slots.len() as u64, window);
    let did = bench.hear(node(1, LEADER), leader::Nack { promised: ballot(9) });
    assert!(!bench.role.is_leading() && !did.is_empty(), "a higher promise ends the term");
}

// With two groups the other may be one round ahead: a read that ignores it misses a finished write.
#[test]
fn a_read_waits_for_every_group() {
    for (groups, through) in [(1, 9), (2, 10)] {
        let mut bench = Table::new(
            Batcher::new(Parameters::default(), configurations(groups), node(1, UNBATCHER)),
            node(1, BATCHER),
        );
        let mut row = Vec::new();
        Commands::push(&mut row, Sequence(1), b"get");
        let queries = Commands::from_row(row);
        let session = SessionId(4);
        bench.hear(
            node(9, CLIENT),
            batcher::Query { session, level: Level::Linearizable, seen: Slot(0), queries },
        );
        let asked = sends(&bench.end());
        assert_eq!(asked.len(), 3, "one group is asked");
        let (first, Message::Acceptor(AcceptorIn::PreRead(ask))) = asked[0].clone() else {
            panic!("{asked:?}")
        };
        let ack = |voted| batcher::PreReadAck { id: ask.id, voted_through: Slot(voted) };
        assert!(bench.hear(first, ack(9)).is_empty());
        assert!(bench.hear(first, ack(9)).is_empty(), "one acceptor is no quorum, however often it answers");
        let did = sends(&bench.hear(asked[1].0, ack(4)));
        let (to, message) = did[0].clone();
        assert_eq!(to, node(1, REPLICA));
        assert!(
            matches!(&message, Message::Replica(paxos::multipaxos::replica::ReplicaIn::ReadBatch(read)) if read.through == Slot(through)),
            "{message:?}"
        );
    }
}

// A client that takes another session's answer for its own reports to the application what never happened.
#[test]
fn a_client_takes_its_own_answers_only() {
    let mut bench = Table::new(
        CommandClient::<paxos::Paxos>::new(
            vec![node(1, BATCHER), node(2, BATCHER)],
            Duration::from_millis(100),
        ),
        node(9, CLIENT),
    );
    let call = Call::Write(Bytes::from_static(b"put"));
    bench.call(|role, cx| role.on_request(RequestId(1), call, cx));
    let opening = sends(&bench.end());
    let Message::Batcher(batcher::BatcherIn::Submit(open)) = &opening[0].1 else { panic!("{opening:?}") };
    assert_eq!(open.kind, GroupKind::Open);
    let mine = open.session;
    let answer = |session, results| client::Results { session, executed: Slot(6), results };
    bench.hear(node(1, UNBATCHER), answer(SessionId(mine.0 ^ 1), client::Row::default()));
    assert!(sends(&bench.end()).is_empty(), "another session was opened");
    bench.hear(node(1, UNBATCHER), answer(mine, client::Row::default()));
    let sent = sends(&bench.end());
    let Message::Batcher(batcher::BatcherIn::Submit(submit)) = &sent[0].1 else { panic!("{sent:?}") };
    assert_eq!(submit.kind, GroupKind::ExecuteIn(Slot(5)), "the slot in which the session was opened");
    let mut row = client::Row::default();
    row.push(Sequence(0), client::Status::Done, b"ok");
    assert!(bench.hear(node(1, UNBATCHER), answer(SessionId(mine.0 ^ 1), row.clone())).is_empty());
    let did = bench.hear(node(1, UNBATCHER), answer(mine, row.clone()));
    assert!(matches!(did[..], [Effect::Respond { id: RequestId(1), .. }]), "{did:?}");
    assert!(bench.hear(node(1, UNBATCHER), answer(mine, row)).is_empty(), "a second answer is nobody's");
}

// A client that stays with a dead batcher never gets an answer.
#[test]
fn a_client_turns_to_the_next_batcher() {
    let mut bench = Table::new(
        CommandClient::<paxos::Paxos>::new(
            vec![node(1, BATCHER), node(2, BATCHER)],
            Duration::from_millis(100),
        ),
        node(9, CLIENT),
    );
    let read = Call::Read { query: Bytes::from_static(b"get"), level: Level::Eventual };
    bench.call(|role, cx| role.on_request(RequestId(1), read, cx));
    assert_eq!(sends(&bench.end())[0].0, node(1, BATCHER));
    bench.pass(Duration::from_millis(100));
    bench.timer(client::ClientTimer::Resend);
    assert_eq!(sends(&bench.end())[0].0, node(2, BATCHER));
}

/// The sequences of what was submitted to `batcher`.
fn submitted(sent: &[(NodeId, Message)], batcher: NodeId) -> Vec<u64> {
    let submits = sent.iter().filter(|(to, _)| *to == batcher).filter_map(|(_, message)| match message {
        Message::Batcher(batcher::BatcherIn::Submit(submit)) => Some(&submit.commands),
        _ => None,
    });
    submits
        .flat_map(|commands| commands.iter().map(|command| command.sequence.0).collect::<Vec<_>>())
        .collect()
}

// A client that sends all of its writes again, to one batcher after the other, has a slow cluster busy with copies of them, and none is
// answered in time.
#[test]
fn a_client_sends_less_when_answers_are_late() {
    let batchers = [node(1, BATCHER), node(2, BATCHER)];
    let role = CommandClient::<paxos::Paxos>::new(batchers.to_vec(), Duration::from_millis(100));
    let mut bench = Table::new(role, node(9, CLIENT));
    for request in 0..8 {
        let put = Call::Write(Bytes::from_static(b"put"));
        bench.call(|role, cx| role.on_request(RequestId(request), put, cx));
    }
    let opening = sends(&bench.end());
    let Message::Batcher(batcher::BatcherIn::Submit(open)) = &opening[0].1 else { panic!("{opening:?}") };
    let session = open.session;
    bench.hear(
        node(1, UNBATCHER),
        client::Results { session, executed: Slot(6), results: client::Row::default() },
    );
    assert_eq!(submitted(&sends(&bench.end()), batchers[0]), [0, 1, 2, 3, 4, 5, 6, 7]);
    for (turn, expected) in [vec![0, 1, 2, 3], vec![0, 1], vec![0], vec![0]].into_iter().enumerate() {
        bench.pass(Duration::from_millis(100));
        bench.timer(client::ClientTimer::Resend);
        assert_eq!(submitted(&sends(&bench.end()), batchers[(turn + 1) % 2]), expected);
    }
    // Answers open the window again: of what waits, and of an earlier copy.
    for (answered, expected) in [(0, vec![1, 2]), (5, vec![3])] {
        let mut results = client::Row::default();
        results.push(Sequence(answered), client::Status::Done, b"ok");
        bench.hear(node(1, UNBATCHER), client::Results { session, executed: Slot(9), results });
        assert_eq!(submitted(&sends(&bench.end()), batchers[0]), expected);
    }
}

// A client that leaves the batcher that opened its session, because the opening took long, asks the dead in turn and never gets through.
#[test]
fn a_client_gives_writes_their_own_time_after_a_slow_opening() {
    let mut bench = Table::new(
        CommandClient::<paxos::Paxos>::new(
            vec![node(1, BATCHER), node(2, BATCHER)],
            Duration::from_millis(100),
        ),
        node(9, CLIENT),
    );
    let call = Call::Write(Bytes::from_static(b"put"));
    bench.call(|role, cx| role.on_request(RequestId(1), call, cx));
    let opening = sends(&bench.end());
    let Message::Batcher(batcher::BatcherIn::Submit(open)) = &opening[0].1 else { panic!("{opening:?}") };
    bench.pass(Duration::from_millis(90));
    let opened =
        client::Results { session: open.session, executed: Slot(6), results: client::Row::default() };
    bench.hear(node(1, UNBATCHER), opened);
    assert_eq!(sends(&bench.end())[0].0, node(1, BATCHER));
    for (waited, turns) in [(10, false), (90, true)] {
        bench.pass(Duration::from_millis(waited));
        bench.timer(client::ClientTimer::Resend);
        let sent = sends(&bench.end());
        assert_eq!(sent.iter().any(|(to, _)| *to == node(2, BATCHER)), turns, "{sent:?}");
    }
}
