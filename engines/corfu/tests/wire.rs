//! The wire and journal formats: golden bytes of every message and record, and hostile input.

use corfu::auxiliary::{self, AuxiliaryRecord, Vote};
use corfu::sequencer::{self, Began};
use corfu::storage::{self, StorageRecord};
use corfu::{CorfuMessage, Data, Entry, Epoch, JournalId, LogPosition, NodeJournal, Projection, client};
use kernel::{Bytes, Decode, Encode, HostId, HostSlot, NodeId};
use parts::Ballot;
use table::formats::{Format, Golden, withstand};

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

const JOURNAL: JournalId = JournalId(11);

fn projection() -> Projection {
    Projection {
        epoch: Epoch(3),
        sequencer: node(1, 2),
        first: LogPosition(20),
        chains: vec![vec![node(1, 16), node(2, 16)], vec![node(2, 17)]],
        journals: vec![
            NodeJournal { node: node(1, 16), journal: JOURNAL },
            NodeJournal { node: node(2, 16), journal: JournalId(12) },
        ],
    }
}

fn data() -> Entry {
    Entry::Data(Data { writer: node(9, 3), tag: 5, body: Bytes::from_static(b"entry") })
}

fn ballot() -> Ballot {
    Ballot { round: 4, leader: node(1, 1) }
}

fn vote() -> Vote {
    Vote { ballot: ballot(), projection: projection() }
}

/// One of every message, in the order of their tags.
fn messages() -> Vec<CorfuMessage> {
    let (id, epoch, position, ballot) = (6, Epoch(2), LogPosition(12), ballot());
    let (journal, session, source) = (Some(JOURNAL), 21, node(3, 16));
    let copied = Some(auxiliary::Copied { epoch, source, behind: Some(4) });
    let status = Some(auxiliary::StorageStatus { journal: JOURNAL, run: 8, reported: epoch, copied });
    let name = Some(storage::Name { writer: node(9, 3), tag: 5 });
    let names =
        vec![storage::Named { position, name }, storage::Named { position: LogPosition(14), name: None }];
    let entries = vec![storage::Placed { position, entry: data() }];
    let (to, first) = (Some(LogPosition(15)), LogPosition(2));
    vec![
        sequencer::Next { id, epoch, count: 3 }.into(),
        sequencer::Tail { id, epoch }.into(),
        sequencer::Begin { epoch, first: position, journal }.into(),
        sequencer::Ping {}.into(),
        storage::Write { id, epoch, position, entry: data() }.into(),
        storage::Read { id, epoch, position }.into(),
        storage::Seal { epoch, journal }.into(),
        storage::Ping {}.into(),
        auxiliary::WantProjection { epoch }.into(),
        auxiliary::StoragePong { epoch, status }.into(),
        auxiliary::SequencerPong { began: epoch, serves: true, journal }.into(),
        auxiliary::SealAck { epoch, next: position, journal }.into(),
        auxiliary::Beyond { epoch }.into(),
        auxiliary::Prepare { base: projection(), ballot }.into(),
        auxiliary::Promise { epoch, ballot, accepted: Some(vote()), journal }.into(),
        auxiliary::Accept { vote: vote() }.into(),
        auxiliary::Accepted { epoch, ballot, journal }.into(),
        auxiliary::Refused { epoch, promised: ballot }.into(),
        auxiliary::Install { projection: projection() }.into(),
        auxiliary::Hello { epoch, journal }.into(),
        client::Token { id, epoch, position }.into(),
        client::TailIs { id, epoch, next: position }.into(),
        client::Written { id, epoch, position }.into(),
        client::Occupied { id, epoch, position, entry: Entry::Junk }.into(),
        client::Found { id, epoch, position, entry: Some(data()) }.into(),
        client::Sealed { id, epoch }.into(),
        client::Installed { projection: projection() }.into(),
        storage::Trim { id, epoch, before: position }.into(),
        storage::Measure { id, epoch }.into(),
        client::Gone { id, epoch, position, resume_from: LogPosition(13) }.into(),
        client::Trimmed { id, epoch }.into(),
        client::Measured { id, epoch, first: position, bytes: 7 }.into(),
        auxiliary::Whole { epoch, journal: JOURNAL, source }.into(),
        storage::Project { projection: projection(), chain: Some(1) }.into(),
        storage::Finish { epoch, journal: JOURNAL, source }.into(),
        storage::Compare { session, journal: JOURNAL, from: position, to, names }.into(),
        storage::Compared {
            session,
            from: position,
            to,
            first,
            end: 30,
            absent: vec![first],
            entries: entries.clone(),
        }
        .into(),
        storage::Follow { session, journal: JOURNAL, from: 30 }.into(),
        storage::Followed { session, from: 30, to: 31, end: 32, first, epoch, serves: false, entries }.into(),
    ]
}

fn records() -> Vec<StorageRecord> {
    vec![
        StorageRecord::Sealed(Epoch(2)),
        StorageRecord::Retained(LogPosition(12), data()),
        StorageRecord::Trimmed(LogPosition(9)),
        StorageRecord::JournalId(JOURNAL),
        StorageRecord::Serves(Epoch(2)),
        StorageRecord::Dropped(LogPosition(12)),
    ]
}

fn decisions() -> Vec<AuxiliaryRecord> {
    let accepted = Some(vote());
    vec![AuxiliaryRecord { installed: projection(), promised: ballot(), accepted, journal: Some(JOURNAL) }]
}

fn epochs() -> Vec<Began> {
    vec![Began { epoch: Epoch(2), journal: Some(JOURNAL) }]
}

// A changed byte makes old journals, and peers of another version, unreadable.
#[test]
fn every_message_and_record_has_its_golden_bytes() {
    let mut golden = Golden::default();
    golden.values("", &messages());
    golden.values("StorageRecord.", &records());
    golden.values("", &decisions());
    golden.values("", &epochs());
    golden.check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden"));
}

// The journals of logs that began before nodes had incarnations must be read: their projections mean nobody's journal.
#[test]
fn a_projection_without_journals_is_read() {
    let mut old = Vec::new();
    let Projection { epoch, sequencer, first, chains, .. } = projection();
    (epoch, sequencer).encode(&mut old);
    first.encode(&mut old);
    chains.encode(&mut old);
    ballot().encode(&mut old);
    None::<Vote>.encode(&mut old);
    let read = AuxiliaryRecord::decoded(&Bytes::from(old));
    let installed = Projection { journals: Vec::new(), ..projection() };
    let retained = AuxiliaryRecord { installed, promised: ballot(), accepted: None, journal: None };
    assert_eq!(read, Ok(retained));
}

// A peer's or a disk's garbage must not take a host down, hang it, or make it allocate without bound.
#[test]
fn hostile_bytes_never_harm() {
    withstand(&[
        Format::of(&messages()),
        Format::of(&records()),
        Format::of(&decisions()),
        Format::of(&epochs()),
    ]);
}
