//! The decisions of each role, one by one.

use crate::cast::{
    Did, E1, E2, P0, P3, Table, at_once, auxiliaries, auxiliary_at, data_of, durably, initial, journal_of,
    me, pong, receivers_of, responses, restored, second, sent, sequencers, servers, serving, waiting,
};
use corfu::auxiliary::{self, AuxiliaryTimer, Vote};
use corfu::client::{self, ClientTimer, Found, Installed, Occupied, Token, Written};
use corfu::sequencer::{self, Began, Begin, Next};
use corfu::storage::{self, Read, Seal, StorageRecord, Write};
use corfu::{
    Auxiliary, Client, CorfuMessage, CorfuRequest, CorfuResponse, Data, Entry, Epoch, Extent, LogPosition,
    Parameters, Projection, Sequencer,
};
use kernel::{Bytes, Decode, Effect, NodeId, Position, RequestId, Role};
use parts::Ballot;

// A position that is written twice is one that two readers know differently; junk must not replace an entry.
#[test]
fn a_storage_server_writes_a_position_once() {
    let mut table = Table::new(serving(servers()[0], u64::MAX), servers()[0]);
    let write = |entry: &Entry| Write { id: 1, epoch: E1, position: P0, entry: entry.clone() };
    let (first, second) = (data_of(b"a", 1), data_of(b"b", 2));
    let did = table.hear(me(), write(&first));
    assert_eq!(sent(&did), durably(me(), Written { id: 1, epoch: E1, position: P0 }));
    let retained: Vec<_> = table.journal().iter().map(StorageRecord::decoded).collect();
    assert_eq!(retained, [Ok(StorageRecord::Retained(P0, first.clone()))]);
    let did = table.hear(me(), write(&first));
    assert_eq!(sent(&did), durably(me(), Written { id: 1, epoch: E1, position: P0 }), "said again");
    assert!(table.journal().is_empty());
    for other in [second, Entry::Junk] {
        let did = table.hear(me(), write(&other));
        let occupied = Occupied { id: 1, epoch: E1, position: P0, entry: first.clone() };
        assert_eq!(sent(&did), durably(me(), occupied));
    }
    let did = table.hear(me(), Read { id: 2, epoch: E1, position: P0 });
    assert_eq!(sent(&did), durably(me(), Found { id: 2, epoch: E1, position: P0, entry: Some(first) }));
}

// A server that serves an epoch after it was sealed for the next lets appends end that nobody will find.
#[test]
fn a_sealed_server_refuses_the_epoch_before_in_a_later_run_too() {
    let mut table = Table::new(serving(servers()[0], u64::MAX), servers()[0]);
    table.hear(me(), Write { id: 1, epoch: E1, position: LogPosition(6), entry: Entry::Junk });
    let auxiliary = auxiliaries()[0];
    let did = table.hear(auxiliary, Seal { epoch: E2, journal: Some(journal_of(servers()[0])) });
    assert_eq!(
        sent(&did),
        durably(
            auxiliary,
            auxiliary::SealAck { epoch: E2, next: LogPosition(7), journal: Some(journal_of(servers()[0])) }
        )
    );
    let did = table.hear(me(), Write { id: 2, epoch: E1, position: P0, entry: Entry::Junk });
    assert_eq!(sent(&did), durably(me(), client::Sealed { id: 2, epoch: E2 }));
    let role = restored(waiting(servers()[0], u64::MAX), &table.journal());
    let mut next_run = Table::new(role, servers()[0]);
    let did = next_run.hear(me(), Read { id: 3, epoch: E1, position: P0 });
    assert_eq!(sent(&did), durably(me(), client::Sealed { id: 3, epoch: E2 }));
    let did = next_run.hear(auxiliary, Seal { epoch: E1, journal: Some(journal_of(servers()[0])) });
    assert_eq!(sent(&did), durably(auxiliary, auxiliary::Beyond { epoch: E2 }));
}

// What is dropped and comes back after a restart, or a late write into what is gone, shows readers entries that were not there.
#[test]
fn what_is_trimmed_is_gone_in_a_later_run_too() {
    // Room for four entries.
    let mut table = Table::new(serving(servers()[0], 4 * 65), servers()[0]);
    let write = |position: u64| Write {
        id: 1,
        epoch: E1,
        position: LogPosition(position),
        entry: data_of(b"a", position),
    };
    let gone = |position, first| client::Gone {
        id: 1,
        epoch: E1,
        position: LogPosition(position),
        resume_from: LogPosition(first),
    };
    (0..3).for_each(|position| _ = table.hear(me(), write(position)));
    let did = table.hear(me(), storage::Trim { id: 2, epoch: E1, before: LogPosition(9) });
    assert_eq!(sent(&did), durably(me(), client::Trimmed { id: 2, epoch: E1 }));
    let did = table.hear(me(), storage::Measure { id: 3, epoch: E1 });
    let measured = client::Measured { id: 3, epoch: E1, first: P3, bytes: 0 };
    assert_eq!(sent(&did), durably(me(), measured), "not beyond what was written");
    assert_eq!(sent(&table.hear(me(), write(2))), durably(me(), gone(2, 3)));
    // The fifth drops the oldest.
    let did: Vec<Did> = (3..8).map(|position| table.hear(me(), write(position))).collect();
    assert!(did[4].iter().any(|effect| matches!(effect, Effect::Trim { .. })), "the journal is let go of");
    let role = restored(waiting(servers()[0], 4 * 65), &table.journal());
    assert_eq!((role.first(), role.len()), (LogPosition(5), 3));
    let mut next_run = Table::new(role, servers()[0]);
    let did = next_run.hear(me(), Read { id: 1, epoch: E1, position: LogPosition(4) });
    assert_eq!(sent(&did), durably(me(), gone(4, 5)));
    let did = next_run.hear(auxiliaries()[0], Seal { epoch: E2, journal: Some(journal_of(servers()[0])) });
    let next = LogPosition(8);
    assert_eq!(
        sent(&did),
        durably(
            auxiliaries()[0],
            auxiliary::SealAck { epoch: E2, next, journal: Some(journal_of(servers()[0])) }
        )
    );
}

fn begun_never(at: NodeId) -> Sequencer {
    let mut role = Sequencer::new();
    role.restore(Position(0), Began { epoch: Epoch(0), journal: Some(journal_of(at)) });
    role
}

// A sequencer that begins an epoch twice gives positions away below acknowledged ones.
#[test]
fn a_sequencer_serves_an_epoch_in_one_run() {
    let (at, auxiliary) = (sequencers()[0], auxiliaries()[0]);
    let mut table = Table::new(begun_never(at), at);
    assert!(sent(&table.hear(me(), Next { id: 1, epoch: E1, count: 1 })).is_empty(), "it serves nobody yet");
    table.hear(auxiliary, Begin { epoch: E1, first: P0, journal: Some(journal_of(at)) });
    for position in [P0, LogPosition(1)] {
        let did = table.hear(me(), Next { id: 2, epoch: E1, count: 1 });
        assert_eq!(sent(&did), durably(me(), Token { id: 2, epoch: E1, position }));
    }
    table.hear(auxiliary, Begin { epoch: E1, first: P0, journal: Some(journal_of(at)) });
    let did = table.hear(me(), sequencer::Tail { id: 3, epoch: E1 });
    let tail = client::TailIs { id: 3, epoch: E1, next: LogPosition(2) };
    assert_eq!(sent(&did), durably(me(), tail), "a late Begin changes nothing");
    let mut next_run = Table::new(restored(begun_never(at), &table.journal()), at);
    next_run.hear(auxiliary, Begin { epoch: E1, first: P0, journal: Some(journal_of(at)) });
    assert!(
        sent(&next_run.hear(me(), Next { id: 4, epoch: E1, count: 1 })).is_empty(),
        "begun in another incarnation"
    );
    let did = next_run.hear(auxiliary, sequencer::Ping {});
    let pong = auxiliary::SequencerPong { began: E1, serves: false, journal: Some(journal_of(at)) };
    assert_eq!(sent(&did), durably(auxiliary, pong), "so auxiliaries know");
    next_run.hear(auxiliary, Begin { epoch: E2, first: LogPosition(9), journal: Some(journal_of(at)) });
    let did = next_run.hear(me(), Next { id: 5, epoch: E1, count: 1 });
    assert_eq!(sent(&did), durably(me(), client::Sealed { id: 5, epoch: E2 }));
}

fn asked(request: CorfuRequest) -> (Table<Client>, Did) {
    let mut table = Table::new(Client::new(auxiliaries(), initial(), Parameters::default()), me());
    let did = table.call(|role, cx| role.on_request(RequestId(1), request, cx));
    (table, did)
}

/// A client, its append of "x", and the call's name.
fn appending() -> (Table<Client>, Entry, u64) {
    let (table, did) = asked(CorfuRequest::Append(Bytes::from_static(b"x")));
    let id = match &sent(&did)[..] {
        [(to, CorfuMessage::Sequencer(sequencer::SequencerIn::Next(next)), _)] if *to == sequencers()[0] => {
            next.id
        }
        other => panic!("no position was asked for: {other:?}"),
    };
    (table, Entry::Data(Data { writer: me(), tag: id, body: Bytes::from_static(b"x") }), id)
}

// An append that is answered before the tail has it is lost with the head.
#[test]
fn an_append_is_done_when_the_whole_chain_has_it() {
    let (mut table, entry, id) = appending();
    let mut did = table.hear(sequencers()[0], Token { id, epoch: E1, position: P3 });
    for server in servers() {
        assert!(responses(&did).is_empty());
        assert_eq!(sent(&did), at_once(server, Write { id, epoch: E1, position: P3, entry: entry.clone() }));
        did = table.hear(server, Written { id, epoch: E1, position: P3 });
    }
    assert_eq!(responses(&did), [CorfuResponse::Appended(P3)]);
}

// A client that does not look takes a second position while its first may yet be read; one that writes without looking may
// end below what was acknowledged.
#[test]
fn after_a_change_the_head_is_asked_for_the_entry() {
    for has in [true, false] {
        let (mut table, entry, id) = appending();
        table.hear(sequencers()[0], Token { id, epoch: E1, position: P3 });
        let did = table.hear(servers()[0], client::Sealed { id, epoch: E2 });
        assert_eq!(receivers_of(&did, auxiliary::WantProjection { epoch: E2 }), auxiliaries());
        let head = servers()[1];
        let did = table.hear(auxiliaries()[0], Installed { projection: second() });
        assert_eq!(sent(&did), at_once(head, Read { id, epoch: E2, position: P3 }));
        let late = Found { id, epoch: E1, position: P3, entry: Some(entry.clone()) };
        assert!(table.hear(head, late).is_empty(), "of another epoch");
        let found = if has { Some(entry.clone()) } else { Some(Entry::Junk) };
        let did = table.hear(head, Found { id, epoch: E2, position: P3, entry: found });
        let wanted = if has {
            at_once(servers()[2], Write { id, epoch: E2, position: P3, entry })
        } else {
            at_once(sequencers()[0], Next { id, epoch: E2, count: 1 })
        };
        assert_eq!(sent(&did), wanted);
    }
}

/// A client, its read of position 3, and the call's name.
fn reading() -> (Table<Client>, u64) {
    let (table, did) = asked(CorfuRequest::Read(P3));
    match &sent(&did)[..] {
        [(to, CorfuMessage::Storage(storage::StorageIn::Read(read)), _)] if *to == servers()[2] => {
            (table, read.id)
        }
        other => panic!("the tail was not asked: {other:?}"),
    }
}

/// The tail has nothing, and then the whole chain.
fn nothing(table: &mut Table<Client>, id: u64) -> Did {
    let empty = || Found { id, epoch: E1, position: P3, entry: None };
    let did = table.hear(servers()[2], empty());
    assert_eq!(receivers_of(&did, Read { id, epoch: E1, position: P3 }), servers());
    servers().into_iter().map(|server| table.hear(server, empty())).last().unwrap_or_default()
}

// What is denied must be nowhere; what lies beyond the tail is no hole, and filling it would take it from its writer.
#[test]
fn nothing_is_said_to_be_there_only_when_nobody_has_it() {
    let (mut table, id) = reading();
    let did = nothing(&mut table, id);
    assert_eq!(sent(&did), at_once(sequencers()[0], sequencer::Tail { id, epoch: E1 }));
    let did = table.hear(sequencers()[0], client::TailIs { id, epoch: E1, next: P3 });
    assert_eq!(responses(&did), [CorfuResponse::Unwritten]);
}

// A hole stops everybody who reads in order, for ever; a writer that is merely slow must be waited for.
#[test]
fn a_hole_is_filled_after_a_while() {
    let (mut table, id) = reading();
    nothing(&mut table, id);
    let given = || client::TailIs { id, epoch: E1, next: LogPosition(4) };
    assert!(sent(&table.hear(sequencers()[0], given())).is_empty(), "its writer is waited for");
    table.pass(Parameters::default().hole_after);
    let did = table.timer(ClientTimer::Tick);
    assert_eq!(receivers_of(&did, Read { id, epoch: E1, position: P3 }), servers()[2..]);
    nothing(&mut table, id);
    let did = table.hear(sequencers()[0], given());
    let write = |entry: &Entry| Write { id, epoch: E1, position: P3, entry: entry.clone() };
    assert_eq!(sent(&did), at_once(servers()[0], write(&Entry::Junk)));
    // The writer was first after all: it is helped.
    let theirs = data_of(b"late", 4);
    let did = table.hear(servers()[0], Occupied { id, epoch: E1, position: P3, entry: theirs.clone() });
    assert_eq!(sent(&did), at_once(servers()[1], write(&theirs)));
    table.hear(servers()[1], Written { id, epoch: E1, position: P3 });
    let did = table.hear(servers()[2], Written { id, epoch: E1, position: P3 });
    assert_eq!(responses(&did), [CorfuResponse::Entry(Bytes::from_static(b"late"))]);
}

/// An auxiliary that has not heard the first server for long, and what it did about it.
fn changing() -> (Table<Auxiliary>, Did) {
    let role = auxiliary_at(auxiliaries()[0]);
    let (mut table, tick) = (Table::new(role, auxiliaries()[0]), Parameters::default().tick);
    for _ in 0..40 {
        for server in &servers()[1..] {
            table.hear(*server, pong(*server, E1));
        }
        table.hear(
            sequencers()[0],
            auxiliary::SequencerPong { began: E1, serves: true, journal: Some(journal_of(sequencers()[0])) },
        );
        table.pass(tick);
        let did = table.timer(AuxiliaryTimer::Tick);
        if table.role.is_changing() {
            return (table, did);
        }
    }
    panic!("a silent server is not noticed");
}

/// The other two servers are sealed, and the first one was waited for.
fn sealed() -> (Table<Auxiliary>, Did, Ballot) {
    let (mut table, did) = changing();
    assert_eq!(
        receivers_of(&did, Seal { epoch: E2, journal: Some(journal_of(servers()[0])) }),
        servers()[..1]
    );
    table.hear(
        servers()[1],
        auxiliary::SealAck { epoch: E2, next: LogPosition(4), journal: Some(journal_of(servers()[1])) },
    );
    table.hear(
        servers()[2],
        auxiliary::SealAck { epoch: E2, next: LogPosition(7), journal: Some(journal_of(servers()[2])) },
    );
    table.pass(Parameters::default().seal_for);
    let did = table.timer(AuxiliaryTimer::Tick);
    (table, did, Ballot::ZERO.above(auxiliaries()[0]))
}

// Servers that are sealed for the epoch after one that the auxiliary's disk may yet lose refuse that one to everybody, for ever.
#[test]
fn seals_leave_when_the_projection_before_them_is_durable() {
    let (_, did) = changing();
    let is_seal =
        |message: &CorfuMessage| matches!(message, CorfuMessage::Storage(storage::StorageIn::Seal(_)));
    let seals = sent(&did).into_iter().filter(|(_, message, _)| is_seal(message));
    let durable: Vec<bool> = seals.map(|(_, _, durable)| durable).collect();
    assert_eq!(durable, vec![true; servers().len()]);
}

// A server that nobody sealed would go on; a position below what a sealed one has would be given away twice.
#[test]
fn a_change_seals_asks_and_reports_what_was_decided() {
    let (mut table, did, ballot) = sealed();
    let prepare = CorfuMessage::from(auxiliary::Prepare { base: initial(), ballot });
    let prepares: Vec<_> = sent(&did).into_iter().filter(|(_, message, _)| *message == prepare).collect();
    let wanted: Vec<_> = auxiliaries().into_iter().map(|to| (to, prepare.clone(), true)).collect();
    assert_eq!(prepares, wanted, "its own ballot is durable before anybody hears of it");
    let promise =
        |from| auxiliary::Promise { epoch: E2, ballot, accepted: None, journal: Some(journal_of(from)) };
    assert!(sent(&table.hear(auxiliaries()[1], promise(auxiliaries()[1]))).is_empty());
    let did = table.hear(auxiliaries()[2], promise(auxiliaries()[2]));
    let vote = Vote { ballot, projection: second() };
    assert_eq!(receivers_of(&did, auxiliary::Accept { vote }), auxiliaries());
    let accepted = |from| auxiliary::Accepted { epoch: E2, ballot, journal: Some(journal_of(from)) };
    table.hear(auxiliaries()[1], accepted(auxiliaries()[1]));
    assert_eq!(table.role.installed(), &initial(), "one of three is no majority");
    let did = table.hear(auxiliaries()[2], accepted(auxiliaries()[2]));
    assert_eq!(table.role.installed(), &second());
    assert_eq!(receivers_of(&did, auxiliary::Install { projection: second() }), auxiliaries()[1..]);
}

// A vote that was given to an earlier attempt, which proposed something else, must not decide for this one.
#[test]
fn votes_of_another_ballot_do_not_count() {
    let (mut table, _, ballot) = sealed();
    for from in &auxiliaries()[1..] {
        let journal = Some(journal_of(*from));
        table.hear(*from, auxiliary::Promise { epoch: E2, ballot, accepted: None, journal });
    }
    let earlier = Ballot { round: ballot.round - 1, ..ballot };
    for from in &auxiliaries()[1..] {
        let journal = Some(journal_of(*from));
        table.hear(*from, auxiliary::Accepted { epoch: E2, ballot: earlier, journal });
        assert!(table.role.is_changing() && table.role.installed() == &initial());
    }
    for from in &auxiliaries()[1..] {
        let journal = Some(journal_of(*from));
        table.hear(*from, auxiliary::Accepted { epoch: E2, ballot, journal });
    }
    assert_eq!(table.role.installed(), &second());
}

// An auxiliary that proposes its own where another's may be decided makes two projections of one epoch.
#[test]
fn what_may_have_been_decided_is_proposed_again() {
    let (mut table, _, ballot) = sealed();
    let theirs = Projection { first: LogPosition(99), ..second() };
    let before = Vote { ballot: Ballot::ZERO.above(NodeId::ZERO), projection: theirs.clone() };
    table.hear(
        auxiliaries()[1],
        auxiliary::Promise {
            epoch: E2,
            ballot,
            accepted: Some(before),
            journal: Some(journal_of(auxiliaries()[1])),
        },
    );
    let did = table.hear(
        auxiliaries()[2],
        auxiliary::Promise { epoch: E2, ballot, accepted: None, journal: Some(journal_of(auxiliaries()[2])) },
    );
    assert_eq!(
        receivers_of(&did, auxiliary::Accept { vote: Vote { ballot, projection: theirs } }),
        auxiliaries()
    );
}

// An auxiliary that votes below its promise lets two majorities accept two projections.
#[test]
fn an_auxiliary_keeps_its_promise() {
    let role = auxiliary_at(auxiliaries()[0]);
    let (mut table, other) = (Table::new(role, auxiliaries()[0]), auxiliaries()[1]);
    let (low, high) = (Ballot { round: 2, leader: other }, Ballot { round: 5, leader: other });
    let did = table.hear(other, auxiliary::Prepare { base: initial(), ballot: high });
    let promise = auxiliary::Promise {
        epoch: E2,
        ballot: high,
        accepted: None,
        journal: Some(journal_of(auxiliaries()[0])),
    };
    assert_eq!(sent(&did), durably(other, promise));
    assert_eq!(table.journal().len(), 1);
    let did = table.hear(other, auxiliary::Accept { vote: Vote { ballot: low, projection: second() } });
    assert_eq!(sent(&did), durably(other, auxiliary::Refused { epoch: E2, promised: high }));
    let vote = Vote { ballot: high, projection: second() };
    let did = table.hear(other, auxiliary::Accept { vote: vote.clone() });
    assert_eq!(
        sent(&did),
        durably(
            other,
            auxiliary::Accepted { epoch: E2, ballot: high, journal: Some(journal_of(auxiliaries()[0])) }
        )
    );
    let higher = high.above(other);
    let did = table.hear(other, auxiliary::Prepare { base: initial(), ballot: higher });
    let promise = auxiliary::Promise {
        epoch: E2,
        ballot: higher,
        accepted: Some(vote),
        journal: Some(journal_of(auxiliaries()[0])),
    };
    assert_eq!(sent(&did), durably(other, promise));
}

// A ballot that an auxiliary has lost to counts as promised by it: one that forgets it in a crash votes below what it has reported.
#[test]
fn what_an_auxiliary_lost_to_is_a_promise_that_it_keeps() {
    let (mut table, _, ballot) = sealed();
    let (me, other) = (auxiliaries()[0], auxiliaries()[1]);
    let higher = ballot.above(other);
    table.hear(auxiliaries()[2], auxiliary::Refused { epoch: E2, promised: higher });
    let did = table.hear(other, auxiliary::Prepare { base: initial(), ballot: higher });
    let promise =
        auxiliary::Promise { epoch: E2, ballot: higher, accepted: None, journal: Some(journal_of(me)) };
    assert_eq!(sent(&did), durably(other, promise));
    let mut next_run = Table::new(restored(auxiliary_at(me), &table.journal()), me);
    let did = next_run.hear(me, auxiliary::Accept { vote: Vote { ballot, projection: second() } });
    assert_eq!(sent(&did), durably(me, auxiliary::Refused { epoch: E2, promised: higher }));
}

// An append that is said to be at positions where others are, or that is answered before all of it is there.
#[test]
fn several_entries_take_one_token_and_are_answered_together() {
    let bodies = vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    let (mut table, did) = asked(CorfuRequest::AppendAll(bodies));
    let [(_, CorfuMessage::Sequencer(sequencer::SequencerIn::Next(next)), _)] = &sent(&did)[..] else {
        panic!("the sequencer was not asked: {did:?}");
    };
    assert_eq!(next.count, 2);
    let did = table.hear(sequencers()[0], Token { id: next.id, epoch: E1, position: P3 });
    let writes: Vec<Write> = sent(&did)
        .into_iter()
        .filter_map(|(to, message, _)| match message {
            CorfuMessage::Storage(storage::StorageIn::Write(write)) if to == servers()[0] => Some(write),
            _ => None,
        })
        .collect();
    assert_eq!(writes.iter().map(|write| write.position.0).collect::<Vec<_>>(), [3, 4]);
    // The second is lost to a reader that filled its position, and takes another.
    let Write { id, position, .. } = writes[1].clone();
    let did = table.hear(servers()[0], Occupied { id, epoch: E1, position, entry: Entry::Junk });
    assert_eq!(receivers_of(&did, Next { id, epoch: E1, count: 1 }), [sequencers()[0]]);
    table.hear(sequencers()[0], Token { id, epoch: E1, position: LogPosition(7) });
    let mut answers = Vec::new();
    for (id, position) in [(writes[0].id, P3), (id, LogPosition(7))] {
        for server in servers() {
            answers.extend(responses(&table.hear(server, Written { id, epoch: E1, position })));
        }
    }
    assert_eq!(answers, [CorfuResponse::AllAppended(vec![P3, LogPosition(7)])]);
}

// A deposed sequencer whose tail is believed hides what was acknowledged since.
#[test]
fn a_tail_is_reported_when_the_chains_are_still_in_its_epoch() {
    let (mut table, did) = asked(CorfuRequest::Stat);
    let [(_, CorfuMessage::Sequencer(sequencer::SequencerIn::Tail(tail)), _)] = &sent(&did)[..] else {
        panic!("the sequencer was not asked: {did:?}");
    };
    let id = tail.id;
    let did = table.hear(sequencers()[0], client::TailIs { id, epoch: E1, next: P3 });
    assert_eq!(receivers_of(&did, storage::Measure { id, epoch: E1 }), [servers()[2]]);
    assert!(responses(&did).is_empty());
    table.hear(servers()[2], client::Sealed { id, epoch: E2 });
    let did = table.hear(auxiliaries()[0], Installed { projection: second() });
    assert_eq!(receivers_of(&did, sequencer::Tail { id, epoch: E2 }), [sequencers()[0]], "asked anew");
    table.hear(sequencers()[0], client::TailIs { id, epoch: E2, next: LogPosition(9) });
    let did = table.hear(servers()[2], client::Measured { id, epoch: E2, first: P3, bytes: 7 });
    let extent = Extent { first: P3, next: LogPosition(9), bytes: 7 };
    assert_eq!(responses(&did), [CorfuResponse::Stat(extent)]);
}
