//! Servers that copy a chain and come into it, and nodes that lost their disks.

use crate::cast::{
    Did, E1, E2, P0, Table, at_once, auxiliaries, auxiliary_at, data_of, durably, initial, journal_of,
    journals_of, me, pong, receivers_of, restored, second, sent, sequencers, servers, serving, unborn,
    waiting,
};
use corfu::auxiliary::{self, AuxiliaryTimer, Copied, StoragePong, StorageStatus, Whole};
use corfu::client::{Found, Written};
use corfu::storage::{Finish, Project, Read, Seal, StorageRecord, StorageTimer, Write};
use corfu::{
    Auxiliary, CorfuMessage, Entry, Epoch, JournalId, LogPosition, Parameters, Projection, Sequencer,
    StorageServer, sequencer,
};
use kernel::{NodeId, Position, Role};
use std::time::Duration;

const E3: Epoch = Epoch(3);

fn learner() -> NodeId {
    servers()[0]
}

/// The tail of the second epoch, which has the other two.
fn source() -> NodeId {
    servers()[2]
}

/// The source in the second epoch, in which it holds these.
fn source_with(entries: &[(u64, Entry)]) -> Table<StorageServer> {
    let mut role = waiting(source(), u64::MAX);
    role.restore(Position(0), StorageRecord::Sealed(E2));
    role.restore(Position(1), StorageRecord::Serves(E2));
    let mut table = Table::new(role.with_page(2), source());
    for (position, entry) in entries {
        write(&mut table, *position, entry);
    }
    table
}

fn write(table: &mut Table<StorageServer>, position: u64, entry: &Entry) {
    let (epoch, position, entry) = (table.role.epoch(), LogPosition(position), entry.clone());
    let did = table.hear(me(), Write { id: 1, epoch, position, entry });
    assert_eq!(sent(&did), durably(me(), Written { id: 1, epoch, position }));
}

/// Hands over what the learner asks and what it is answered, until it asks nothing; returns whatever else it said.
fn exchange(
    learner_table: &mut Table<StorageServer>,
    source_table: &mut Table<StorageServer>,
    mut did: Did,
) -> Vec<(NodeId, CorfuMessage, bool)> {
    let mut said = Vec::new();
    for _ in 0..100 {
        let mut answers = Did::new();
        for (to, message, durable) in sent(&did) {
            match message {
                CorfuMessage::Storage(question) if to == source() => {
                    answers.extend(source_table.hear(learner(), question));
                }
                message => said.push((to, message, durable)),
            }
        }
        if answers.is_empty() {
            return said;
        }
        did = Did::new();
        for (to, message, durable) in sent(&answers) {
            let CorfuMessage::Storage(answer) = message else { panic!("the source said {message:?}") };
            assert!(to == learner() && durable, "what is not durable may be taken back");
            did.extend(learner_table.hear(source(), answer));
        }
    }
    panic!("they never come to an end");
}

/// The learner, with what it has of its former run, when it has copied the source.
fn copied(mine: &[(u64, Entry)], theirs: &[(u64, Entry)]) -> (Table<StorageServer>, Table<StorageServer>) {
    let mut source_table = source_with(theirs);
    let mut table = Table::new(serving(learner(), u64::MAX).with_page(2), learner());
    for (position, entry) in mine {
        write(&mut table, *position, entry);
    }
    let did = table.hear(auxiliaries()[0], Project { projection: second(), chain: Some(0) });
    assert!(exchange(&mut table, &mut source_table, did).is_empty());
    (table, source_table)
}

fn entries(server: &StorageServer) -> Vec<(u64, Entry)> {
    server.entries().map(|(position, entry)| (position.0, entry.clone())).collect()
}

/// The next run of a server, by its journal.
fn restarted(table: &mut Table<StorageServer>) -> StorageServer {
    restored(StorageServer::new(u64::MAX), &table.journal())
}

// What a server had that its chain has not shows readers two entries at one position; what it lacks is denied when others die.
#[test]
fn a_learner_takes_what_its_chain_has_and_drops_the_rest() {
    let entry = |number: u64| data_of(b"x", number);
    let theirs =
        [(0, entry(0)), (1, entry(1)), (2, Entry::Junk), (5, entry(5)), (7, entry(7)), (8, entry(8))];
    let mine = [(0, entry(0)), (1, entry(91)), (2, entry(92)), (3, entry(93)), (5, entry(5)), (9, entry(99))];
    let (mut table, _) = copied(&mine, &theirs);
    assert_eq!(entries(&table.role), theirs);
    assert!(!table.role.serves());
    let did = table.hear(me(), Read { id: 1, epoch: E2, position: P0 });
    assert!(sent(&did).is_empty(), "nobody reads from one that is not in the projection");
    assert_eq!(entries(&restarted(&mut table)), theirs, "and in a later incarnation");
}

// A write below what is copied already is where a copy by position alone forgets it.
#[test]
fn a_learner_follows_what_is_written_meanwhile_wherever_it_is() {
    let (mut table, mut source_table) = copied(&[], &[(4, Entry::Junk), (6, Entry::Junk), (7, Entry::Junk)]);
    for (position, tag) in [(8, 1), (5, 2), (1, 3)] {
        write(&mut source_table, position, &data_of(b"late", tag));
    }
    table.pass(Duration::from_millis(20));
    let did = table.timer(StorageTimer::Copy);
    exchange(&mut table, &mut source_table, did);
    assert_eq!(entries(&table.role), entries(&source_table.role));
}

// What is written between two pages of the comparison, in the first of them, is in none of the others.
#[test]
fn what_is_written_during_the_comparison_is_followed_from_its_beginning() {
    let mut source_table = source_with(&[(4, Entry::Junk), (6, Entry::Junk), (7, Entry::Junk)]);
    let mut table = Table::new(waiting(learner(), u64::MAX), learner());
    let did = table.hear(auxiliaries()[0], Project { projection: second(), chain: Some(0) });
    let [(_, CorfuMessage::Storage(compare), _)] = &sent(&did)[..] else {
        panic!("it does not compare: {did:?}")
    };
    let first_page = source_table.hear(learner(), compare.clone());
    write(&mut source_table, 5, &data_of(b"between", 1));
    let [(_, CorfuMessage::Storage(page), _)] = &sent(&first_page)[..] else {
        panic!("no answer: {first_page:?}")
    };
    let did = table.hear(source(), page.clone());
    exchange(&mut table, &mut source_table, did);
    assert_eq!(entries(&table.role), entries(&source_table.role));
}

// A server that says that it has everything while its source is written lacks what is written next, and is let in.
#[test]
fn a_learner_is_whole_when_its_source_is_sealed_and_it_has_the_rest() {
    let (mut table, mut source_table) = copied(&[], &[(0, Entry::Junk)]);
    write(&mut source_table, 1, &data_of(b"last", 1));
    let auxiliary = auxiliaries()[0];
    let finish = || Finish { epoch: E3, journal: journal_of(learner()), source: source() };
    let did = table.hear(auxiliary, finish());
    assert!(exchange(&mut table, &mut source_table, did).is_empty(), "its source serves");
    source_table.hear(auxiliary, Seal { epoch: E3, journal: Some(journal_of(source())) });
    let did = table.hear(auxiliary, finish());
    let whole = Whole { epoch: E3, journal: journal_of(learner()), source: source() };
    assert_eq!(exchange(&mut table, &mut source_table, did), durably(auxiliary, whole));
    assert_eq!(entries(&table.role), entries(&source_table.role));
    let chains = vec![vec![servers()[1], source(), learner()]];
    let journals = journals_of(servers().into_iter().chain(auxiliaries()));
    let third = Projection { epoch: E3, chains, journals, ..second() };
    table.hear(auxiliary, Project { projection: third, chain: None });
    let did = table.hear(me(), Read { id: 2, epoch: E3, position: P0 });
    let found = Found { id: 2, epoch: E3, position: P0, entry: Some(Entry::Junk) };
    assert_eq!(sent(&did), durably(me(), found), "it serves");
    assert_eq!(table.role.copies_from(), None);
    assert!(restarted(&mut table).serves(), "in a later incarnation, too");
}

// A server that lost its disk, and is sealed or asked to serve as if it had not, denies what it acknowledged.
#[test]
fn a_storage_server_without_its_journal_is_not_what_it_was() {
    let mut table = Table::new(StorageServer::new(u64::MAX), servers()[0]);
    let journal = table.role.journal().expect("it has started");
    assert_ne!(journal, journal_of(servers()[0]));
    let auxiliary = auxiliaries()[0];
    let did = table.hear(auxiliary, Seal { epoch: E2, journal: Some(journal_of(servers()[0])) });
    let [(_, CorfuMessage::Auxiliary(auxiliary::AuxiliaryIn::StoragePong(pong)), true)] = &sent(&did)[..]
    else {
        panic!("it does not say who it is: {did:?}");
    };
    let status = pong.status.clone().expect("it has an incarnation");
    assert_eq!((pong.epoch, status.journal, status.reported), (E1, journal, Epoch(0)));
    table.hear(auxiliary, Project { projection: initial(), chain: None });
    assert!(!table.role.serves());
    assert!(sent(&table.hear(me(), Read { id: 1, epoch: E1, position: P0 })).is_empty());
    assert_eq!(restarted(&mut table).journal(), Some(journal), "it is the same from now on");
}

// A sequencer that lost its disk does not know what it gave away.
#[test]
fn a_sequencer_without_its_journal_does_not_begin_what_it_may_have_served() {
    let at = sequencers()[0];
    let mut table = Table::new(Sequencer::new(), at);
    table.hear(auxiliaries()[0], sequencer::Begin { epoch: E1, first: P0, journal: Some(journal_of(at)) });
    assert_eq!(table.role.serves(), None);
}

/// An auxiliary in the second epoch; the third server of the chain copies it.
fn short(age: Duration) -> (Table<Auxiliary>, Did) {
    let mut table = Table::new(auxiliary_at(auxiliaries()[0]), auxiliaries()[0]);
    table.hear(auxiliaries()[1], auxiliary::Install { projection: second() });
    let did = live_on(&mut table, age, true);
    (table, did)
}

/// Everybody is heard for so long, or until a change is begun.
fn live_on(table: &mut Table<Auxiliary>, time: Duration, is_close: bool) -> Did {
    let tick = Parameters::default().tick;
    for _ in 0..time.as_millis() / tick.as_millis() {
        for server in &servers()[1..] {
            table.hear(*server, pong(*server, E2));
        }
        let sequencer_pong =
            auxiliary::SequencerPong { began: E2, serves: true, journal: Some(journal_of(sequencers()[0])) };
        table.hear(sequencers()[0], sequencer_pong);
        let behind = is_close.then_some(0);
        let copied = Some(Copied { epoch: E2, source: source(), behind });
        let status = Some(StorageStatus { journal: journal_of(learner()), run: 1, reported: E2, copied });
        table.hear(learner(), StoragePong { epoch: E2, status });
        table.pass(tick);
        let did = table.timer(AuxiliaryTimer::Tick);
        if table.role.is_changing() {
            return did;
        }
    }
    Did::new()
}

fn seal_acks(table: &mut Table<Auxiliary>) -> Did {
    let mut did = Did::new();
    for server in &servers()[1..] {
        let ack = auxiliary::SealAck { epoch: E3, next: LogPosition(9), journal: Some(journal_of(*server)) };
        did = table.hear(*server, ack);
    }
    did
}

/// The chain that is proposed, when the others have promised.
fn proposed(table: &mut Table<Auxiliary>, did: &Did) -> Vec<NodeId> {
    let ballot = sent(did).into_iter().find_map(|(_, message, _)| match message {
        CorfuMessage::Auxiliary(auxiliary::AuxiliaryIn::Prepare(prepare)) => Some(prepare.ballot),
        _ => None,
    });
    let ballot = ballot.expect("a ballot is begun");
    let mut did = Did::new();
    for peer in &auxiliaries()[1..] {
        let journal = Some(journal_of(*peer));
        did = table.hear(*peer, auxiliary::Promise { epoch: E3, ballot, accepted: None, journal });
    }
    let accept = sent(&did).into_iter().find_map(|(_, message, _)| match message {
        CorfuMessage::Auxiliary(auxiliary::AuxiliaryIn::Accept(accept)) => Some(accept.vote.projection),
        _ => None,
    });
    accept.expect("it is proposed").chains[0].clone()
}

// A learner that is proposed before it has everything loses entries; one that is never proposed leaves the chain short.
#[test]
fn a_learner_is_proposed_behind_its_source_when_it_is_whole() {
    let (mut table, did) = short(Duration::from_secs(2));
    assert_eq!(
        receivers_of(&did, Seal { epoch: E3, journal: Some(journal_of(servers()[1])) }),
        servers()[1..2]
    );
    let did = seal_acks(&mut table);
    let finish = Finish { epoch: E3, journal: journal_of(learner()), source: source() };
    assert_eq!(sent(&did), at_once(learner(), finish));
    let lost = Whole { epoch: E3, journal: JournalId(1), source: source() };
    assert!(sent(&table.hear(learner(), lost)).is_empty(), "of another incarnation");
    let did = table.hear(learner(), Whole { epoch: E3, journal: journal_of(learner()), source: source() });
    assert_eq!(proposed(&mut table, &did), [servers()[1], source(), learner()]);
}

// A learner that dies on the way must not keep the log sealed.
#[test]
fn a_learner_that_is_silent_is_gone_on_without() {
    let (mut table, _) = short(Duration::from_secs(2));
    seal_acks(&mut table);
    let Parameters { finish_for, tick, .. } = Parameters::default();
    table.pass(finish_for + tick);
    let did = table.timer(AuxiliaryTimer::Tick);
    assert_eq!(proposed(&mut table, &did), servers()[1..]);
}

// A server that is far behind keeps the log sealed while it copies; one that comes and goes makes it stand still for ever.
#[test]
fn who_is_not_close_or_was_just_left_out_waits() {
    let mut table = Table::new(auxiliary_at(auxiliaries()[0]), auxiliaries()[0]);
    table.hear(auxiliaries()[1], auxiliary::Install { projection: second() });
    assert!(live_on(&mut table, Duration::from_secs(3), false).is_empty(), "it still compares");
    assert!(!live_on(&mut table, Duration::from_secs(1), true).is_empty());

    // In and out again, soon after another: each time it waits twice as long.
    let mut table = Table::new(auxiliary_at(auxiliaries()[0]), auxiliaries()[0]);
    let mut waits = Vec::new();
    let mut epoch = E1;
    for _ in 0..8 {
        for projection in [second(), initial()] {
            epoch = epoch.next();
            let everybody = servers().into_iter().chain(auxiliaries()).chain([sequencers()[0]]);
            let projection = Projection { epoch, journals: journals_of(everybody), ..projection };
            table.hear(auxiliaries()[1], auxiliary::Install { projection });
        }
        waits.push(table.role.waits(learner(), table.now()));
    }
    let longest = Parameters::default().back_off * 128;
    let mut wanted: Vec<Duration> = (0..8).map(|nth| Parameters::default().back_off * (1 << nth)).collect();
    assert_eq!(wanted.pop(), Some(longest));
    wanted.push(longest.min(Parameters::default().back_off_max));
    assert_eq!(waits, wanted);
}

// Answers of an auxiliary that lost its votes, counted, let two majorities decide two projections.
#[test]
fn an_auxiliary_without_its_journal_has_no_vote() {
    let (mut table, _) = short(Duration::from_secs(2));
    seal_acks(&mut table);
    let did = table.hear(learner(), Whole { epoch: E3, journal: journal_of(learner()), source: source() });
    let ballot = sent(&did).into_iter().find_map(|(_, message, _)| match message {
        CorfuMessage::Auxiliary(auxiliary::AuxiliaryIn::Prepare(prepare)) => Some(prepare.ballot),
        _ => None,
    });
    let ballot = ballot.expect("a ballot is begun");
    let promise = |journal| auxiliary::Promise { epoch: E3, ballot, accepted: None, journal: Some(journal) };
    table.hear(auxiliaries()[0], promise(journal_of(auxiliaries()[0])));
    assert!(sent(&table.hear(auxiliaries()[1], promise(JournalId(7)))).is_empty(), "it lost its votes");
    let did = table.hear(auxiliaries()[2], promise(journal_of(auxiliaries()[2])));
    assert!(!sent(&did).is_empty(), "two of three");
    // Nor does it propose anything: its ballots may be those of its earlier run.
    let role = Auxiliary::new(auxiliaries(), sequencers(), unborn(), Parameters::default());
    let mut table = Table::new(role, auxiliaries()[0]);
    table.hear(auxiliaries()[1], auxiliary::Install { projection: second() });
    assert!(live_on(&mut table, Duration::from_secs(3), true).is_empty());
}

// A log that bootstraps while somebody is away takes one who lost its disk for one who never had any.
#[test]
fn a_log_bootstraps_when_everybody_is_there() {
    let begins = |missing: Option<NodeId>| {
        let role = Auxiliary::new(auxiliaries(), sequencers(), unborn(), Parameters::default());
        let mut table = Table::new(role, auxiliaries()[0]);
        for _ in 0..50 {
            for server in servers().into_iter().filter(|&server| Some(server) != missing) {
                table.hear(server, pong(server, Epoch(0)));
            }
            for peer in auxiliaries().into_iter().skip(1).filter(|&peer| Some(peer) != missing) {
                table.hear(peer, auxiliary::Hello { epoch: E1, journal: Some(journal_of(peer)) });
            }
            let journal = Some(journal_of(sequencers()[0]));
            let began = Epoch(0);
            table.hear(sequencers()[0], auxiliary::SequencerPong { began, serves: false, journal });
            table.pass(Parameters::default().tick);
            table.timer(AuxiliaryTimer::Tick);
        }
        table.role.is_changing()
    };
    assert!(!begins(Some(servers()[1])));
    assert!(!begins(Some(auxiliaries()[2])));
    assert!(begins(None));
}
