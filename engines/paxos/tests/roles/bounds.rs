//! What is bounded where it is built, and what the answer to more is.

use super::*;
use kernel::{Decode as _, Encode as _};
use paxos::Refusal;
use paxos::multipaxos::batcher::BatcherIn;

const BYTES: usize = 1_000;

fn parameters() -> Parameters {
    Parameters {
        batch_bytes_max: BYTES,
        pending_bytes_max: 20 * BYTES,
        batches_in_flight_max: 2,
        ..Parameters::default()
    }
}

fn busy_batcher() -> Table<Batcher> {
    let role = Batcher::new(parameters(), configurations(1), node(1, UNBATCHER));
    let mut bench = Table::new(role, node(1, BATCHER));
    bench.hear(node(1, LEADER), batcher::Heartbeat { pulse: pulse(1) });
    bench
}

/// A row with commands of these sizes.
fn submit(first: u64, sizes: &[usize]) -> batcher::Submit {
    let mut row = Vec::new();
    for (sequence, &size) in (first..).zip(sizes) {
        Commands::push(&mut row, Sequence(sequence), &vec![7; size]);
    }
    let (session, acknowledged) = (SessionId(4), Sequence(0));
    batcher::Submit { session, acknowledged, kind: GroupKind::Execute, commands: Commands::from_row(row) }
}

/// The commands of the batches that are proposed, by batch.
fn proposed(did: &Did) -> Vec<(u64, usize, Vec<u64>)> {
    let batch = |(_, message): (NodeId, Message)| match message {
        Message::Leader(leader::LeaderIn::Propose(leader::Propose { value: Value::Batch(payload) })) => {
            let batch = paxos::Batch::decoded(payload.bytes()).expect("a batch");
            let commands = batch.groups.iter().flat_map(|group| group.commands.iter());
            Some((
                batch.id.number,
                payload.bytes().len(),
                commands.map(|command| command.sequence.0).collect(),
            ))
        }
        _ => None,
    };
    sends(did).into_iter().filter_map(batch).collect()
}

fn statuses(did: &Did) -> Vec<(u64, client::Status)> {
    let rows = sends(did).into_iter().filter_map(|(_, message)| match message {
        Message::Client(client::ClientIn::Results(results)) => Some(results.results),
        _ => None,
    });
    rows.flat_map(|row| row.iter().map(|it| (it.sequence.0, it.status)).collect::<Vec<_>>()).collect()
}

// A batch that grows while others are in flight comes out larger than any journal takes.
#[test]
fn what_waits_comes_out_in_batches_that_fit() {
    let mut bench = busy_batcher();
    let mut batches = Vec::new();
    for sequence in 0..12 {
        batches.extend(proposed(&bench.hear(node(9, CLIENT), submit(sequence, &[400]))));
        batches.extend(proposed(&bench.end()));
    }
    assert_eq!(batches.len(), 2, "so many may be in flight: {batches:?}");
    let mut done = 0;
    while done < batches.len() {
        let number = batches[done].0;
        done += 1;
        bench.hear(node(1, UNBATCHER), batcher::Done { number });
        batches.extend(proposed(&bench.end()));
    }
    let all: Vec<u64> = batches.iter().flat_map(|(_, _, commands)| commands.clone()).collect();
    assert_eq!(all, (0..12).collect::<Vec<_>>(), "in order, each once");
    assert!(batches.iter().all(|(_, bytes, _)| *bytes <= BYTES + 128), "{batches:?}");
    assert!(bench.role.waiting_bytes() == 0, "all is accounted for");
}

// Neighbours of a command that is too large, in a row that is, must not be refused with it.
#[test]
fn a_row_longer_than_a_batch_is_taken_apart() {
    let mut bench = busy_batcher();
    let mut did = bench.hear(node(9, CLIENT), submit(0, &[600, BYTES + 1, 600]));
    did.extend(bench.end());
    assert_eq!(statuses(&did), [(1, client::Status::Malformed)]);
    let taken: Vec<u64> = proposed(&did).into_iter().flat_map(|(.., commands)| commands).collect();
    assert_eq!(taken, [0, 2]);
}

// An impatient client fills the batcher with copies of what it has, and everybody else is refused for them.
#[test]
fn a_copy_of_what_is_in_flight_adds_nothing() {
    let mut bench = busy_batcher();
    bench.hear(node(9, CLIENT), submit(0, &[600]));
    bench.end();
    let waiting = bench.role.waiting_bytes();
    let did = bench.hear(node(9, CLIENT), submit(0, &[600]));
    assert!(statuses(&did).is_empty() && bench.role.waiting_bytes() == waiting);
    bench.hear(node(8, CLIENT), submit(0, &[600]));
    assert!(bench.role.waiting_bytes() > waiting, "another connection's is another one");
}

// More than is retained must be refused while it is known that nobody has it.
#[test]
fn a_full_batcher_and_a_full_disk_refuse() {
    let mut bench = busy_batcher();
    let mut refused = Vec::new();
    for sequence in 0..60 {
        refused.extend(statuses(&bench.hear(node(9, CLIENT), submit(sequence, &[900]))));
        bench.end();
        assert!(bench.role.waiting_bytes() <= parameters().pending_bytes_max);
    }
    assert!(refused.len() > 30 && refused.iter().all(|(_, status)| *status == client::Status::Busy));
    let mut bench = busy_batcher();
    bench.disk_full = true;
    let did = bench.hear(node(9, CLIENT), submit(3, &[9]));
    assert_eq!(statuses(&did), [(3, client::Status::DiskFull)]);
    assert!(proposed(&bench.end()).is_empty());
}

fn opened_client() -> (Table<CommandClient<paxos::Paxos>>, SessionId) {
    let role = CommandClient::<paxos::Paxos>::new(
        vec![node(1, BATCHER), node(2, BATCHER)],
        Duration::from_millis(100),
    );
    let mut bench = Table::new(role, node(9, CLIENT));
    bench.call(|role, cx| role.on_request(RequestId(1), Call::Write(Bytes::from_static(b"put")), cx));
    let opening = sends(&bench.end());
    let Message::Batcher(BatcherIn::Submit(open)) = &opening[0].1 else { panic!("{opening:?}") };
    let session = open.session;
    let results = client::Row::default();
    bench.hear(node(1, UNBATCHER), client::Results { session, executed: Slot(6), results });
    assert_eq!(sends(&bench.end()).len(), 1, "the write leaves");
    (bench, session)
}

fn refusal(session: SessionId, executed: u64, status: client::Status) -> client::Results {
    let mut results = client::Row::default();
    results.push(Sequence(0), status, &[]);
    client::Results { session, executed: Slot(executed), results }
}

fn outcomes(did: &Did) -> Vec<Outcome> {
    let outcome = |effect: &Effect<Message, Outcome>| match effect {
        Effect::Respond { response, .. } => Some(response.clone()),
        _ => None,
    };
    did.iter().filter_map(outcome).collect()
}

// "Not executed" is said of what nobody has, and of nothing else: the client may ask again.
#[test]
fn a_client_says_not_executed_when_it_knows() {
    let busy = client::Status::Busy;
    let (mut bench, session) = opened_client();
    assert!(
        outcomes(&bench.hear(node(1, BATCHER), refusal(session, 0, busy))).is_empty(),
        "it is tried again"
    );
    for _ in 0..10 {
        bench.pass(Duration::from_millis(100));
        bench.timer(client::ClientTimer::Resend);
        assert_eq!(sends(&bench.end()).len(), 1);
        let did = bench.hear(node(1, BATCHER), refusal(session, 0, busy));
        if !outcomes(&did).is_empty() {
            assert_eq!(outcomes(&did), [Outcome::Refused(Refusal::Busy)]);
            return;
        }
    }
    panic!("a client that is refused for a second goes on");
}

// A copy that was sent and not answered may be executed, whatever is said of another one.
#[test]
fn a_client_that_sent_a_copy_does_not_know() {
    for (resends, executed, status) in [
        (true, 0, client::Status::Busy),
        (true, 0, client::Status::DiskFull),
        (false, 9, client::Status::Busy),
    ] {
        let (mut bench, session) = opened_client();
        if resends {
            bench.pass(Duration::from_millis(100));
            bench.timer(client::ClientTimer::Resend);
            bench.end();
        }
        bench.pass(Duration::from_secs(5));
        let did = bench.hear(node(2, BATCHER), refusal(session, executed, status));
        assert!(outcomes(&did).is_empty(), "{status:?} of slot {executed}: {did:?}");
    }
    let (mut bench, session) = opened_client();
    let did = bench.hear(node(1, BATCHER), refusal(session, 0, client::Status::DiskFull));
    assert_eq!(outcomes(&did), [Outcome::Refused(Refusal::DiskFull)]);
}

// A value that no journal holds comes from a host of an older version that was about to stop: nobody may take it.
#[test]
fn a_message_with_a_value_that_fits_nowhere_is_none() {
    let mut value = vec![1];
    vec![7_u8; kernel::bounds::VALUE_BYTES_MAX + 1].encode(&mut value);
    let phase2a = acceptor::Phase2a { ballot: ballot(1), slot: Slot(1), value: Value::Noop };
    let mut message = Message::from(phase2a).encoded();
    message.pop();
    message.extend_from_slice(&value);
    assert!(Message::decoded(&message.into()).is_err());
}

// Pages that take one item more than fits are as large as that item likes.
#[test]
fn pages_of_votes_hold_their_bound_or_one_vote() {
    let page_bytes = 1_000;
    let parameters = Parameters { page_bytes, ..Parameters::default() };
    let mut acceptor = Table::new(Acceptor::new(parameters, configurations(1), None), node(1, ACCEPTOR));
    let members = (1..=3).map(|host| (node(host, ACCEPTOR), 7)).collect();
    acceptor.role.restore(Position(0), AcceptorRecord::Blank { incarnation: 7 });
    acceptor.role.restore(Position(1), AcceptorRecord::Active { members });
    for (slot, size) in [300, 300, 300, 5_000, 300, 900, 100].into_iter().enumerate() {
        let value = Value::batch(vec![7; size]).expect("it fits");
        let vote = AcceptorRecord::Vote { ballot: ballot(1), slot: Slot(slot as u64), value };
        acceptor.role.restore(Position(2 + slot as u64), vote);
    }
    let (mut from, mut pages) = (Some(Slot(0)), Vec::new());
    while let Some(slot) = from {
        let question = acceptor::Phase1a { ballot: ballot(2), from: slot, inquiry: 1, version: None };
        let did = acceptor.hear(node(1, LEADER), question);
        let page = did.iter().find_map(|effect| match effect {
            Effect::SendDurable { message: Message::Leader(leader::LeaderIn::Phase1b(page)), .. } => {
                Some(page.clone())
            }
            _ => None,
        });
        let page = page.unwrap_or_else(|| panic!("{did:?}"));
        pages.push((page.votes.len(), page.votes.iter().map(|vote| vote.value.size()).sum::<usize>()));
        from = page.more;
    }
    let votes: Vec<usize> = pages.iter().map(|page| page.0).collect();
    assert_eq!(votes, [2, 1, 1, 1, 1, 1], "{pages:?}");
    assert!(pages.iter().all(|&(votes, bytes)| votes == 1 || bytes <= page_bytes), "{pages:?}");
}

// Votes that only one disk has room for are never chosen while the others are full: a read that waits for them waits until there is room.
#[test]
fn a_read_on_full_disks_waits_for_what_may_be_chosen_only() {
    let mut bench = busy_batcher();
    bench.disk_full = true;
    let mut row = Vec::new();
    Commands::push(&mut row, Sequence(1), b"get");
    let (session, queries) = (SessionId(4), Commands::from_row(row));
    let query = batcher::Query { session, level: Level::Linearizable, seen: Slot(0), queries };
    bench.hear(node(9, CLIENT), query);
    let asked = sends(&bench.end());
    let Message::Acceptor(AcceptorIn::PreRead(ask)) = &asked[0].1 else { panic!("{asked:?}") };
    let ack = |voted| batcher::PreReadAck { id: ask.id, voted_through: Slot(voted) };
    let through = |did: &Did| match sends(did).pop() {
        Some((_, Message::Replica(paxos::multipaxos::replica::ReplicaIn::ReadBatch(read)))) => {
            Some(read.through.0)
        }
        _ => None,
    };
    assert_eq!(through(&bench.hear(asked[0].0, ack(9))), None);
    assert_eq!(
        through(&bench.hear(asked[1].0, ack(4))),
        None,
        "the third may have voted as far as the first"
    );
    assert_eq!(through(&bench.hear(asked[2].0, ack(5))), Some(5), "slot 5 has one vote");
}

// An acceptor that reports to readers votes that are not on its disk has them wait for what nobody was promised.
#[test]
fn an_acceptor_on_a_full_disk_reports_durable_votes() {
    let mut acceptor =
        Table::new(Acceptor::new(Parameters::default(), configurations(1), None), node(1, ACCEPTOR));
    let members = (1..=3).map(|host| (node(host, ACCEPTOR), 7)).collect();
    acceptor.role.restore(Position(0), AcceptorRecord::Active { members });
    acceptor.start();
    acceptor.hear(node(1, PROXY), noop(0, 1));
    let durable = acceptor.end();
    let voted = |acceptor: &mut Table<Acceptor>| {
        let did = acceptor.hear(node(1, BATCHER), acceptor::PreRead { id: 1, version: 0 });
        match sends(&did).pop() {
            Some((_, Message::Batcher(BatcherIn::PreReadAck(ack)))) => ack.voted_through.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(voted(&mut acceptor), 1);
    acceptor.disk_full = true;
    assert_eq!(voted(&mut acceptor), 0, "the vote waits for its record");
    let reported = durable.iter().find_map(|effect| match effect {
        Effect::SendDurable { to, message: Message::Acceptor(AcceptorIn::Durable(reported)), .. } => {
            Some((*to, reported.clone()))
        }
        _ => None,
    });
    let (to, reported) = reported.unwrap_or_else(|| panic!("{durable:?}"));
    acceptor.hear(node(2, ACCEPTOR), acceptor::Durable { voted_through: Slot(9) });
    acceptor.hear(to, reported);
    assert_eq!(voted(&mut acceptor), 1);
}
