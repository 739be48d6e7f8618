//! The wire and journal formats: golden bytes of every message and record, and hostile input.

use kernel::{Bytes, Decode, Encode, HostId, NodeId, Place, Reader, Rng};
use parts::{Acceptors, Ballot, Group, Sequence, SessionId, Slot};
use paxos::multipaxos::acceptor::{self, AcceptorRecord, Summary};
use paxos::multipaxos::leader::{self, LeaderRecord, ReportedVote};
use paxos::multipaxos::replica::{self, ReadGroup, ReplicaRecord};
use paxos::multipaxos::{Pulse, batcher, client, proxy_leader, unbatcher};
use paxos::{BatchId, Commands, Configuration, Configurations, GroupKind, HostEntry, Level, Message, Value};
use std::fmt::Write as _;
use std::sync::Arc;

fn node(host: u32, place: u8) -> NodeId {
    NodeId::new(HostId(host), Place(u32::from(place)))
}

fn ballot() -> Ballot {
    Ballot { round: 3, leader: node(1, 2) }
}

fn configuration() -> Configuration {
    let one = |place| vec![node(1, place)];
    Configuration {
        version: 1,
        first_slot: Slot(9),
        acceptors: Acceptors::new(vec![Group::grid(one(4), 1).expect("one is a rectangle")])
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
    row
}

fn batch() -> Value {
    Value::Batch(Bytes::from_static(b"batch"))
}

/// One of every message, in the order of their tags.
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
        leader::HeartbeatAck { ballot }.into(),
        leader::Executed {
            executed: slot,
            version: 1,
            snapshot: slot,
            configurations: Some(configurations()),
            hears: Some(ballot),
        }
        .into(),
        leader::Wanted { through: slot }.into(),
        leader::Reconfigure { configuration: wanted() }.into(),
        leader::Sealed { ballot, version: 1 }.into(),
        leader::Enlist { incarnation: 7, acceptor: Some(node(3, 4)) }.into(),
        leader::Known { configurations: configurations() }.into(),
        leader::Stuck { from: slot, configurations: configurations() }.into(),
        leader::ProxyAlive {}.into(),
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
        acceptor::Blank { incarnation: 7 }.into(),
        acceptor::Born { members: vec![(node(1, 4), 7)] }.into(),
        acceptor::Known { configurations: configurations() }.into(),
        acceptor::Executed { from: Slot(4), below: slot }.into(),
        acceptor::Resume { from: slot }.into(),
        replica::Chosen { ballot, slot, value: None }.into(),
        replica::Voted { ballot, slot, value: batch() }.into(),
        replica::Read {
            through: slot,
            unbatcher: node(1, 6),
            reads: vec![ReadGroup { client: node(2, 7), session, queries: commands() }],
        }
        .into(),
        replica::Fetch { from: slot }.into(),
        replica::Entries { from: slot, values: vec![batch()], executed: slot }.into(),
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
        unbatcher::Results {
            batch: Some(BatchId { batcher: node(1, 1), number: 4 }),
            executed: slot,
            replies: vec![unbatcher::Reply { client: node(2, 7), session, results: row(), opened: None }],
        }
        .into(),
        client::Results { session, executed: slot, results: row() }.into(),
    ]
}

fn records() -> (Vec<AcceptorRecord>, Vec<LeaderRecord>, Vec<ReplicaRecord>) {
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
    ];
    let replica = vec![
        ReplicaRecord::Begin { through: slot },
        ReplicaRecord::Chunk { bytes: Bytes::from_static(b"chunk") },
        ReplicaRecord::End,
    ];
    (acceptor, vec![LeaderRecord { round: 3 }], replica)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn golden() -> String {
    let mut text = String::new();
    let mut line = |name: String, bytes: Vec<u8>| {
        // The name alone: what the fields hold is in this file.
        let name: String = name.chars().filter(|c| c.is_alphanumeric() || *c == '(').collect();
        let name = name.split("ballot").next().unwrap_or_default();
        let words: Vec<&str> = name.split('(').take(2).collect();
        let _ = writeln!(text, "{} {}", words.join("."), hex(&bytes));
    };
    for message in messages() {
        line(format!("{message:?}").split(' ').next().unwrap_or_default().to_owned(), message.encoded());
    }
    let (acceptor, leader, replica) = records();
    let first = |text: String| text.split(['(', ' ']).next().unwrap_or_default().to_owned();
    acceptor.iter().for_each(|it| line(format!("AcceptorRecord({}", first(format!("{it:?}"))), it.encoded()));
    leader.iter().for_each(|it| line("LeaderRecord".to_owned(), it.encoded()));
    replica.iter().for_each(|it| line(format!("ReplicaRecord({}", first(format!("{it:?}"))), it.encoded()));
    text
}

// A changed byte locks running clusters and old journals out. Written anew by ORDINATE_BLESS=1, to be read in review.
#[test]
fn every_message_and_record_has_its_golden_bytes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden");
    if std::env::var_os("ORDINATE_BLESS").is_some() {
        std::fs::write(path, golden()).expect("the source tree is writable where this is asked");
    }
    let kept = std::fs::read_to_string(path).expect("the golden file is part of the source tree");
    for (now, then) in golden().lines().zip(kept.lines()) {
        assert_eq!(now, then);
    }
    assert_eq!(golden().lines().count(), kept.lines().count());
}

/// Decodes hostile bytes; what decodes must read back as itself.
fn feed<T: Encode + Decode>(bytes: &Bytes) -> bool {
    let Ok(value) = T::decode(&mut Reader::new(bytes.clone())) else { return false };
    let once = value.encoded();
    assert!(once.len() <= 4 * bytes.len() + 64, "{} bytes became {}", bytes.len(), once.len());
    let again = T::decoded(&Bytes::from(once.clone())).map(|value| value.encoded());
    assert_eq!(again, Ok(once), "reads back otherwise: {}", hex(bytes));
    true
}

fn mutated(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    match rng.below(6) {
        0 => bytes.truncate(rng.index(bytes.len() + 1)),
        1 => bytes = (0..rng.below(64)).map(|_| rng.bits() as u8).collect(),
        _ => {
            for _ in 0..rng.between(1, 4) {
                if !bytes.is_empty() {
                    let at = rng.index(bytes.len());
                    // Counts and tags are where decoders break.
                    bytes[at] =
                        *rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xff, rng.clone().bits() as u8]).unwrap_or(&0);
                }
            }
        }
    }
    bytes
}

// A peer's or a disk's garbage must not take a host down, hang it, or make it allocate without bound.
#[test]
fn hostile_bytes_never_harm() {
    let inputs = std::env::var("ORDINATE_FUZZ_INPUTS").ok().and_then(|count| count.parse().ok());
    let (acceptor, leader, replica) = records();
    let seeds: Vec<Vec<u8>> = messages().iter().map(Encode::encoded).collect();
    let journal: Vec<Vec<u8>> = acceptor
        .iter()
        .map(Encode::encoded)
        .chain(leader.iter().map(Encode::encoded))
        .chain(replica.iter().map(Encode::encoded))
        .collect();
    let mut rng = Rng::seeded(11);
    let (mut decoded, mut refused) = (0u64, 0u64);
    for _ in 0..inputs.unwrap_or(1_000_000u64) {
        let of_wire = rng.chance(0.6);
        let seed = rng.pick(if of_wire { &seeds } else { &journal }).expect("there are seeds").clone();
        let bytes = Bytes::from(mutated(&seed, &mut rng));
        let sound = if of_wire {
            feed::<Message>(&bytes)
        } else {
            [feed::<AcceptorRecord>(&bytes), feed::<LeaderRecord>(&bytes), feed::<ReplicaRecord>(&bytes)]
                .contains(&true)
        };
        *if sound { &mut decoded } else { &mut refused } += 1;
    }
    assert!(
        decoded > 1_000 && refused > 1_000,
        "{decoded} decoded, {refused} refused: the fuzz is one-sided"
    );
}
