//! The wire and log formats: golden bytes of every message and entry, and hostile input.

use kernel::{Bytes, HostId, HostSlot, NodeId};
use parts::Ballot;
use spanner::machine::entry::{self, Change, Entry, FoundValues, Question, ReplicaValues, Step};
use spanner::messages::{gateway, shard};
use spanner::{CallRef, Fate, PreparedTxn, Priority, ReadSet, ShardId, SpannerMessage, TxnId};
use table::formats::{Format, Golden, withstand};
use wire::txn::{
    CallKey, Condition, KeyRange, KeyRow, KeyScan, KeyWrite, ScannedRows, Timestamp, TxnCall, TxnFailure,
    TxnLevel, TxnReply,
};

fn members() -> paxos::Members {
    let host =
        |name: &str| paxos::HostEntry { name: name.to_owned(), address: format!("{name}.example:7072") };
    paxos::Members { version: 3, hosts: vec![host("a"), host("d")] }
}

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

const TXN: TxnId = TxnId { gateway: NodeId::ZERO, incarnation: 7, number: 8 };
const PRIORITY: Priority = Priority { first_start: Timestamp(5), txn: TXN };
const SHARD: ShardId = ShardId(2);
const FATE: Fate = Fate::Committed(Timestamp(21));
const CALL: CallRef = CallRef { key: CallKey { session: 3, number: 4 }, acknowledged: 2 };

fn range() -> KeyRange {
    KeyRange { start: bytes("a"), end: Some(bytes("b")) }
}

fn what() -> ReadSet {
    ReadSet { keys: vec![bytes("k")], scans: vec![KeyScan { range: range(), limit: 9 }] }
}

fn writes() -> Vec<KeyWrite> {
    vec![KeyWrite { key: bytes("k"), value: Some(bytes("v")) }, KeyWrite { key: bytes("gone"), value: None }]
}

fn prepared() -> PreparedTxn {
    PreparedTxn {
        txn: TXN,
        priority: PRIORITY,
        t_p: Timestamp(20),
        t_ee: Timestamp(30),
        coordinator: SHARD,
        reads: vec![bytes("r")],
        ranges: vec![range()],
        writes: writes(),
    }
}

fn began() -> shard::Began {
    let (gateway, at) = (node(1, 1), Timestamp(17));
    shard::Began {
        ballot: Ballot { round: 4, leader: node(1, 17) },
        leader: node(1, 23),
        attempt: 2,
        epoch: 3,
        index: 4,
        assigns_above: at,
        last_commit: at,
        due: at,
        prepared: vec![prepared()],
        decisions: vec![shard::OpenDecision { txn: TXN, fate: FATE, waits_for: vec![ShardId(1)] }],
        owners: vec![shard::OwnerState {
            gateway,
            incarnation: 7,
            below: 5,
            ended: vec![(8, Fate::Aborted)],
        }],
        members: members(),
    }
}

fn stepped() -> shard::Stepped {
    let (safe, due) = (Timestamp(17), Timestamp(17));
    shard::Stepped { epoch: 3, index: 4, refused: vec![(TXN, FATE)], safe, collected: Timestamp(1), due }
}

/// One of every message, in the order of their tags.
fn messages() -> Vec<SpannerMessage> {
    let (gateway, id, at, coordinator) = (node(1, 1), 6, Timestamp(17), SHARD);
    let held = shard::LockedUnder { epoch: 3, since: 2, reads: 1 };
    let skipped = vec![gateway::SkippedTxn { txn: TXN, t_p: at, writes: writes() }];
    vec![
        shard::ReadLocked {
            txn: TXN,
            priority: PRIORITY,
            held: Some(held),
            what: what(),
            writes: Some(vec![bytes("w")]),
        }
        .into(),
        shard::PrepareTxn {
            txn: TXN,
            priority: PRIORITY,
            call: Some(CALL),
            locked: Some(held),
            start: at,
            t_ee: Timestamp(30),
            coordinator,
            participants: vec![ShardId(1), SHARD],
            writes: writes(),
        }
        .into(),
        shard::Release { txn: TXN }.into(),
        shard::ReadAt { gateway, id, t_read: at, t_min: Timestamp(4), skips: true, what: what() }.into(),
        shard::OwnerAlive { gateway, incarnation: 7, below: 5, next: 9, open: vec![8] }.into(),
        shard::ReadReplica { gateway, id, at, what: what() }.into(),
        shard::AskFate { gateway, id, key: CALL.key }.into(),
        shard::WantClosed { at }.into(),
        shard::FollowMembers { members: members() }.into(),
        shard::DidPrepare { txn: TXN, coordinator, by: ShardId(1), t_p: at, t_ee: at, asks: true }.into(),
        shard::CannotPrepare { txn: TXN, coordinator }.into(),
        shard::Decided { txn: TXN, coordinator, fate: FATE }.into(),
        shard::DidConclude { by: ShardId(1), coordinator, txns: vec![TXN] }.into(),
        shard::MakeWay { txn: TXN, coordinator }.into(),
        shard::AskToLead { role: node(1, 23) }.into(),
        began().into(),
        stepped().into(),
        shard::Installed { safe: at, collected: Timestamp(1) }.into(),
        gateway::LockedValues { txn: TXN, shard: SHARD, held, values: bytes("values") }.into(),
        gateway::LostLocks { txn: TXN, shard: SHARD, busy: true }.into(),
        gateway::Ended { txn: TXN, shard: SHARD, fate: FATE, t_ee: at }.into(),
        gateway::FastReply { id, shard: SHARD, values: bytes("values"), skipped }.into(),
        gateway::SlowReply { id, shard: SHARD, txn: TXN, fate: Fate::Aborted }.into(),
        gateway::ReadRefused { id, shard: SHARD, why: gateway::ReadRefusal::BUSY }.into(),
        gateway::ReplicaSafe { shard: SHARD, safe: at }.into(),
        gateway::FateFound { id, shard: SHARD, committed: Some(at) }.into(),
    ]
}

/// One of every change, in the order of their tags.
fn changes() -> Vec<Change> {
    let at = Timestamp(17);
    vec![
        entry::CommitAlone { txn: TXN, call: Some(CALL), t_c: at, writes: writes() }.into(),
        entry::Prepare { prepared: prepared() }.into(),
        entry::Decide {
            txn: TXN,
            call: Some(CALL),
            fate: FATE,
            writes: writes(),
            participants: vec![ShardId(1)],
        }
        .into(),
        entry::Conclude { txn: TXN, fate: Fate::Aborted }.into(),
        entry::Extend { horizon: at, closed: Timestamp(9) }.into(),
        entry::Settle { by: ShardId(1), txns: vec![TXN] }.into(),
        entry::Collect { below: at }.into(),
        entry::ForgetBelow { gateway: node(1, 1), incarnation: 7, below: 5 }.into(),
        entry::Follow { members: members() }.into(),
    ]
}

fn entries() -> Vec<Entry> {
    let ballot = Ballot { round: 4, leader: node(1, 17) };
    vec![
        Entry::Begin { ballot, leader: node(1, 23), attempt: 2 },
        Entry::Step(Step { epoch: 3, index: 4, changes: changes().into_iter().take(1).collect() }),
    ]
}

fn questions() -> Vec<Question> {
    vec![entry::ValuesAt { at: Timestamp(17), what: what() }.into(), entry::FateOf { key: CALL.key }.into()]
}

fn values() -> Vec<ReplicaValues> {
    let row = KeyRow { key: bytes("k"), value: Some(bytes("v")), version: Timestamp(17) };
    let scans = vec![ScannedRows { rows: vec![row.clone()], next: Some(bytes("l")) }];
    let found = FoundValues { rows: vec![row], scans, newest: Timestamp(17), is_short: false };
    vec![ReplicaValues::Found(found), ReplicaValues::Collected]
}

/// One of every call of a user, in the order of their tags.
fn calls() -> Vec<TxnCall> {
    let (id, token, txn, acknowledged) = (6, Timestamp(4), 5, 2);
    let (keys, scans) = (what().keys, what().scans);
    let conditions = vec![Condition { key: bytes("k"), version: Timestamp(3) }];
    let (reads, otherwise) = (vec![bytes("r")], vec![bytes("o")]);
    let key = Some(CALL.key);
    vec![
        wire::txn::ReadOnly {
            id,
            token,
            level: TxnLevel::Stale(9),
            keys: keys.clone(),
            scans: scans.clone(),
        }
        .into(),
        wire::txn::OneShot { id, token, key, acknowledged, conditions, writes: writes(), reads, otherwise }
            .into(),
        wire::txn::Begin { id, token, priority: Some(Timestamp(1)) }.into(),
        wire::txn::ReadWithin { id, txn, keys, scans }.into(),
        wire::txn::Commit { id, txn, key, acknowledged, writes: writes() }.into(),
        wire::txn::GiveUp { txn }.into(),
        wire::txn::Fence { id, token }.into(),
        wire::txn::CommitStatus { id, key: CALL.key }.into(),
    ]
}

/// One of every answer to a user, in the order of their tags.
fn replies() -> Vec<TxnReply> {
    let (id, token, at) = (6, Timestamp(4), Timestamp(3));
    let rows = vec![KeyRow { key: bytes("k"), value: None, version: at }];
    let scans = vec![ScannedRows { rows: rows.clone(), next: None }];
    vec![
        wire::txn::ReadRows { id, token, at, rows: rows.clone(), scans: scans.clone() }.into(),
        wire::txn::Committed { id, token, at, rows: rows.clone() }.into(),
        wire::txn::NotMet { id, token, condition: 1, rows: rows.clone() }.into(),
        wire::txn::Begun { id, priority: at }.into(),
        wire::txn::RowsWithin { id, token, rows, scans }.into(),
        wire::txn::Fenced { id, token }.into(),
        wire::txn::CommitFate { id, committed: Some(at) }.into(),
        wire::txn::Failed { id, why: TxnFailure::Unknown }.into(),
    ]
}

// A changed byte makes old logs, and peers of another version, unreadable.
#[test]
fn every_message_and_entry_has_its_golden_bytes() {
    let mut golden = Golden::default();
    golden.values("", &messages());
    golden.values("", &changes());
    golden.values("Entry.", &entries());
    golden.values("Question.", &questions());
    golden.values("ReplicaValues.", &values());
    golden.values("", &calls());
    golden.values("", &replies());
    golden.check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden"));
}

// A peer's mistake must end in a refusal: no panic, and no memory that the input does not pay for.
#[test]
fn damaged_and_random_bytes_never_panic() {
    withstand(&[
        Format::of(&messages()),
        Format::of(&entries()),
        Format::of(&questions()),
        Format::of(&values()),
        Format::of(&calls()),
        Format::of(&replies()),
    ]);
}

// Two kinds of nodes at one slot would read each other's journals.
#[test]
fn every_slot_has_one_role() {
    use spanner::{SpannerDeployment, SpannerParameters, SpannerSlot};
    let hosts = vec![paxos::HostEntry { name: "a".to_owned(), address: "a:1".to_owned() }];
    let parameters = SpannerParameters::default();
    let deployment = SpannerDeployment::new(0x100, hosts, 3, 1, parameters, paxos::Parameters::default());
    let mut slots: Vec<SpannerSlot> = Vec::new();
    for (slot, member) in deployment.build(HostId::named("a")) {
        let at = SpannerSlot::at(slot.0 - 0x100).expect("a role stands there");
        let named = match at {
            SpannerSlot::Gateway => "gateway".to_owned(),
            SpannerSlot::Shard(_) => "shard".to_owned(),
            SpannerSlot::Log(_, role) => {
                format!("{role:?}").to_lowercase().replace("proxyleader", "proxy_leader")
            }
        };
        assert_eq!(kernel::Node::role_name(&member), named);
        assert!(!slots.contains(&at), "{at:?} twice");
        slots.push(at);
    }
    assert_eq!(slots.len(), 1 + 3 * 7);
    let last = spanner::deployment::SLOTS;
    assert_eq!((SpannerSlot::at(0), SpannerSlot::at(last)), (None, None));
}
