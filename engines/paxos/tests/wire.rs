//! The wire and journal formats: golden bytes of every message and record, and hostile input.

use kernel::{Bytes, Decode as _, Encode as _, HostId, HostSlot, NodeId};
use parts::{AcceptorGroup, Acceptors, Ballot, Sequence, SessionId, Slot, SnapshotRecord};
use paxos::multipaxos::acceptor::{self, AcceptorRecord, Summary};
use paxos::multipaxos::leader::{self, LeaderRecord, ReportedVote};
use paxos::multipaxos::replica::{self, ReadGroup};
use paxos::multipaxos::{Pulse, batcher, client, proxy_leader, unbatcher};
use paxos::{BatchId, Commands, Configuration, Configurations, GroupKind, HostEntry, Level, Message, Value};
use std::sync::Arc;
use table::formats::{Format, Golden, withstand};

fn node(host: u32, host_slot: u8) -> NodeId {
    NodeId::new(HostId(host), HostSlot(u32::from(host_slot)))
}

fn ballot() -> Ballot {
    Ballot { round: 3, leader: node(1, 2) }
}

fn configuration() -> Configuration {
    let one = |host_slot| vec![node(1, host_slot)];
    Configuration {
        version: 1,
        first_slot: Slot(9),
        acceptors: Acceptors::new(vec![AcceptorGroup::grid(one(4), 1).expect("one is a rectangle")])
            .expect("a group"),
        leaders: one(2),
        proxy_leaders: one(3),
        replicas: one(5),
        batchers: one(1),
        unbatchers: one(6),
        hosts: vec![HostEntry { name: "a".to_owned(), address: "a:1".to_owned() }],
        joined: vec![(node(1, 4), 7)],
    }
}

fn configurations() -> Configurations {
    Configurations::starting_with(configuration())
}

fn pulse() -> Pulse {
    Pulse {
        ballot: ballot(),
        configurations: configurations(),
        executed: Slot(5),
        truncate_below: Slot(4),
        alive: vec![node(1, 5)],
    }
}

fn commands() -> Commands {
    let mut row = Vec::new();
    Commands::push(&mut row, Sequence(2), b"x");
    Commands::from_row(row)
}

fn row() -> client::Row {
    let mut row = client::Row::default();
    row.push(Sequence(2), client::Status::Done, b"y");
    // As a receiver has it.
    client::Row::decoded(&row.encoded().into()).expect("it was just written")
}

fn batch() -> Value {
    Value::batch(Bytes::from_static(b"batch")).expect("it is small")
}

/// One of every message, in the order of their tags.
/// Table: of messages.
fn messages() -> Vec<Message> {
    let (session, id, slot, ballot) = (SessionId(8), 6, Slot(9), ballot());
    let wanted = || Arc::new(configuration());
    vec![
        batcher::Submit {
            session,
            acknowledged: Sequence(1),
            kind: GroupKind::ExecuteIn(slot),
            commands: commands(),
        }
        .into(),
        batcher::Query { session, level: Level::Sequential, seen: slot, queries: commands() }.into(),
        batcher::Reconfigure { session, sequence: Sequence(2), configuration: wanted() }.into(),
        batcher::PreReadAck { id, voted_through: slot }.into(),
        batcher::Superseded { id, configurations: configurations() }.into(),
        batcher::Heartbeat { pulse: pulse() }.into(),
        batcher::Done { number: 4 }.into(),
        leader::Propose { value: batch() }.into(),
        leader::PreVoteAck { ballot, granted: true, promised: ballot }.into(),
        leader::Phase1b {
            ballot,
            inquiry: id,
            truncated_below: slot,
            votes: vec![ReportedVote { slot, ballot, value: Value::Configure(wanted()) }],
            more: Some(slot),
        }
        .into(),
        leader::Nack { promised: ballot }.into(),
        leader::Heartbeat { pulse: pulse() }.into(),
        leader::HeartbeatAck { ballot, knows_rest: Some(true) }.into(),
        leader::Executed {
            executed: slot,
            version: 1,
            snapshot: slot,
            configurations: Some(configurations()),
            hears: Some(ballot),
        }
        .into(),
        leader::Wanted { through: slot }.into(),
        leader::ChangeConfiguration { configuration: wanted() }.into(),
        leader::Sealed { ballot, version: 1 }.into(),
        leader::Enlist { incarnation: 7, acceptor: Some(node(3, 4)) }.into(),
        leader::Known { configurations: configurations() }.into(),
        leader::Stuck { from: slot, configurations: configurations() }.into(),
        leader::ProxyAlive {}.into(),
        leader::HandOver { to: node(1, 2) }.into(),
        leader::Stand { ballot }.into(),
        leader::Hears { leader: Some(ballot) }.into(),
        proxy_leader::Assign { ballot, slot, version: 1, value: Value::Noop }.into(),
        proxy_leader::Phase2b { ballot, slot }.into(),
        proxy_leader::Nack { slot, promised: ballot }.into(),
        proxy_leader::Heartbeat { pulse: pulse() }.into(),
        acceptor::PreVote { ballot, version: Some(1) }.into(),
        acceptor::Phase1a { ballot, from: slot, inquiry: id, version: None }.into(),
        acceptor::Phase2a { ballot, slot, value: batch() }.into(),
        acceptor::PreRead { id, version: 1 }.into(),
        acceptor::Seal { ballot, version: 1 }.into(),
        acceptor::Heartbeat { pulse: pulse() }.into(),
        acceptor::Blank { incarnation: 7, question: Some(8) }.into(),
        acceptor::BlankToo { incarnation: 7, question: 8 }.into(),
        acceptor::Bootstrapped { members: vec![(node(1, 4), 7)] }.into(),
        acceptor::Known { configurations: configurations() }.into(),
        acceptor::Executed { from: Slot(4), below: slot }.into(),
        acceptor::Resume { from: slot }.into(),
        acceptor::Durable { voted_through: slot }.into(),
        acceptor::Hold { from: slot, bytes_max: 1 << 20 }.into(),
        acceptor::Invite { configurations: configurations() }.into(),
        acceptor::Resigned { ballot }.into(),
        acceptor::Learned { slot, value: batch() }.into(),
        acceptor::Resting { ballot, pulse: Some(pulse()) }.into(),
        replica::Chosen { ballot, slot, value: None }.into(),
        replica::Voted { ballot, slot, value: batch() }.into(),
        replica::ReadBatch {
            through: slot,
            unbatcher: node(1, 6),
            reads: vec![ReadGroup { client: node(2, 7), session, queries: commands() }],
        }
        .into(),
        replica::Fetch { from: slot }.into(),
        replica::ChosenValues { from: slot, values: vec![batch()], executed: slot }.into(),
        replica::Behind { executed: slot }.into(),
        replica::PullSnapshot { transfer: id, index: 1 }.into(),
        replica::SnapshotChunk {
            transfer: id,
            through: slot,
            index: 1,
            chunk: Bytes::from_static(b"chunk"),
            last: true,
        }
        .into(),
        replica::Heartbeat { pulse: pulse() }.into(),
        replica::Describe {}.into(),
        replica::Checkpoint { executed: slot, digest: id }.into(),
        replica::Resumed { from: slot, values: vec![batch()] }.into(),
        replica::LeaderRests { leader: Some(ballot) }.into(),
        unbatcher::BatchResults {
            batch: Some(BatchId { batcher: node(1, 1), number: 4 }),
            executed: slot,
            replies: vec![unbatcher::GroupResults {
                client: node(2, 7),
                session,
                results: row(),
                opened: None,
            }],
        }
        .into(),
        client::Results { session, executed: slot, results: row() }.into(),
    ]
}

fn records() -> (Vec<AcceptorRecord>, Vec<LeaderRecord>, Vec<SnapshotRecord<Slot>>) {
    let (slot, ballot) = (Slot(9), ballot());
    let acceptor = vec![
        AcceptorRecord::Blank { incarnation: 7 },
        AcceptorRecord::Active { members: vec![(node(1, 4), 7)] },
        AcceptorRecord::Promise { ballot },
        AcceptorRecord::Vote { ballot, slot, value: batch() },
        AcceptorRecord::Sealed { version: 1 },
        AcceptorRecord::Summary(Summary {
            incarnation: 7,
            active: true,
            members: Vec::new(),
            promised: ballot,
            voted_through: slot,
            truncated_below: Slot(4),
            sealed: 1,
        }),
        AcceptorRecord::Executed { from: Slot(4), below: slot },
        AcceptorRecord::Learned { slot, value: batch() },
    ];
    let replica = vec![
        SnapshotRecord::Begin { below: slot },
        SnapshotRecord::Chunk { bytes: Bytes::from_static(b"chunk") },
        SnapshotRecord::End,
    ];
    (acceptor, vec![LeaderRecord { round: 3 }], replica)
}

// A changed byte locks running clusters and old journals out.
#[test]
fn every_message_and_record_has_its_golden_bytes() {
    let (acceptor, leader, replica) = records();
    let mut golden = Golden::default();
    golden.values("", &messages());
    golden.values("AcceptorRecord.", &acceptor);
    golden.values("", &leader);
    golden.values("ReplicaRecord.", &replica);
    golden.check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden"));
}

// A peer's or a disk's garbage must not take a host down, hang it, or make it allocate without bound.
#[test]
fn hostile_bytes_never_harm() {
    let (acceptor, leader, replica) = records();
    withstand(&[Format::of(&messages()), Format::of(&acceptor), Format::of(&leader), Format::of(&replica)]);
}
