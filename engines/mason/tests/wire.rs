//! The wire, journal and log formats: golden bytes of every message, record and entry, and hostile input.

use kernel::client::{Close, Connected, Disconnected, Input, Output, Pause, Proven, Taken};
use kernel::{BlobId, Bytes, Encode as _, HostId, HostSlot, NodeId};
use mason::client::{self, OperationAnswer, ReadAnswer};
use mason::proxy::delivery::{Run, Runs};
use mason::proxy::entry::{AssignmentBatch, Claim, Entry, Item, Question, StubPage};
use mason::proxy::{self, NextTag};
use mason::sequencer::{self, Allocation};
use mason::shard::{self, ShardQuery};
use mason::view::View;
use mason::{
    ConsistentCut, Group, GroupTime, Gsn, Layout, MasonMessage, Members, Number, Operation, Order, Placed,
    Range, ShardMap, Space,
};
use parts::{Ballot, Incarnation, SnapshotRecord};
use paxos::Value;
use paxos::multipaxos::leader;
use table::formats::{Format, Golden, withstand};

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

fn ballot() -> Ballot {
    Ballot { round: 3, leader: node(1, 2) }
}

fn placed() -> Placed {
    Placed { space: Space(1), number: Number(12) }
}

fn range() -> Range {
    Range { space: Space(1), first: Number(12), count: 3 }
}

fn view() -> View {
    let mut view = View::default();
    view.collect(&Placed { space: Space(1), number: Number(5) });
    view.insert_range(&range());
    view
}

fn claim() -> Option<Claim> {
    Some(Claim { sequencer: node(3, 0x100), attempt: 77 })
}

fn members() -> Members {
    Members { version: 2, hosts: vec![paxos::HostEntry { name: "d".to_owned(), address: "d:1".to_owned() }] }
}

fn layout() -> Layout {
    Layout { version: 4, serving: 2, spanning: 3, after: 6, shard_map: shard_map() }
}

fn shard_map() -> ShardMap {
    ShardMap { version: 3, shards: 5, before: 4 }
}

fn page() -> StubPage {
    StubPage { from: Group(0), to: Group(2), version: 4, index: 1, last: true, bytes: body() }
}

fn cut() -> ConsistentCut {
    ConsistentCut { gsn: Gsn(40), next: vec![placed()] }
}

fn order() -> Order {
    Order { numbers: [placed()].into(), gsn: Gsn(39), time: 1_000 }
}

fn operation() -> Operation {
    Operation { origin: node(2, 7), incarnation: 6, tag: 4, body: Bytes::from_static(b"set") }
}

fn allocation() -> Allocation {
    Allocation { request: 8, rows: vec![range()], gsn: Gsn(37), cut: cut() }
}

fn runs() -> Vec<Run> {
    let (order, mut runs) = (order(), Runs::default());
    for placed in &order.numbers {
        runs.at(placed, order.time).push(&order.numbers, order.gsn, &operation());
    }
    let last = order.numbers.last().expect("an order has a number");
    let next = Placed { space: last.space, number: last.number.next() };
    runs.at(&next, order.time).push(std::slice::from_ref(&next), order.gsn.next(), &operation());
    runs.finish()
}

fn batch() -> AssignmentBatch {
    AssignmentBatch {
        epoch: 2,
        index: 3,
        sequencer: 5,
        request: 8,
        rows: vec![range()],
        gsn: Gsn(37),
        cut: Some(cut()),
        time: 1_000,
        items: vec![Item {
            spaces: [Space(1)].as_slice().into(),
            follow_up: Some(2),
            operation: operation(),
        }],
    }
}

fn body() -> Bytes {
    Bytes::from_static(b"body")
}

fn to_sequencers() -> Vec<MasonMessage> {
    let (group, epoch, proxy_epoch) = (Group(1), 5, 2);
    vec![
        sequencer::Allocate {
            group,
            proxy_epoch,
            epoch,
            request: 8,
            committed: 7,
            counts: vec![(Space(1), 3)],
            operations: 3,
            shard_map: Some(3),
        }
        .into(),
        sequencer::Probe { group, proxy_epoch, epoch, after: 7 }.into(),
        sequencer::Ping { epoch }.into(),
        sequencer::Recover { epoch }.into(),
        sequencer::GroupSealed {
            group,
            epoch,
            view: view(),
            gsn: Gsn(39),
            attempt: Some(77),
            layout: Some(layout()),
            handed: Some(shard_map()),
        }
        .into(),
        sequencer::Filled { group, epoch }.into(),
        sequencer::Moved { members: members() }.into(),
        sequencer::Arranged { layout: layout() }.into(),
        sequencer::HandedOver { epoch }.into(),
        sequencer::Overtaken { epoch, attempt: Some(77) }.into(),
    ]
}

fn to_proxies() -> Vec<MasonMessage> {
    let epoch = 5;
    vec![
        proxy::SubmitOperations { operations: vec![operation()] }.into(),
        proxy::Barrier { id: 6 }.into(),
        proxy::Allocated { epoch, allocation: allocation() }.into(),
        proxy::Probed { epoch, highest: 8, lost: vec![allocation()] }.into(),
        proxy::Pong { epoch }.into(),
        proxy::NotActive { asked: epoch, epoch: 4, recovering: true }.into(),
        proxy::GetMaxAndSeal { epoch, attempt: Some(77) }.into(),
        proxy::Fill { epoch, holes: vec![range()] }.into(),
        proxy::Active { epoch }.into(),
        proxy::Lacking { from: placed() }.into(),
        proxy::ShardDurable { below: placed() }.into(),
        proxy::Collect { round: 9, hops: 1, firsts: vec![placed()], counts: vec![2] }.into(),
        proxy::Complete { hops: 1, low_watermarks: vec![placed()] }.into(),
        proxy::Viewed { view: view() }.into(),
        proxy::Began {
            epoch: 2,
            ballot: ballot(),
            leader: node(1, 7),
            sequencer: epoch,
            request: 8,
            next: vec![placed()],
            gsn: Gsn(39),
            now: GroupTime(900),
            tags: vec![NextTag { origin: node(2, 7), incarnation: 6, next: 5 }],
            follow_ups: vec![proxy::FollowUp { id: 2, body: body() }],
            claim: claim(),
            durable: Some(vec![placed()]),
        }
        .into(),
        proxy::DidMove { members: members(), durable: vec![placed()] }.into(),
        proxy::DidSettle { version: 3 }.into(),
        proxy::AwaitsTime { awaits: true }.into(),
        proxy::Applied { epoch: 2, index: 3, sequencer: epoch }.into(),
        proxy::DidSeal {
            epoch: 2,
            index: 3,
            sequencer: epoch,
            view: view(),
            gsn: Gsn(39),
            claim: claim(),
            layout: Some(layout()),
            handed: Some(shard_map()),
        }
        .into(),
        proxy::DidFill { sequencer: epoch }.into(),
        proxy::FollowUp { id: 2, body: body() }.into(),
        proxy::Arrange { groups: 5 }.into(),
        proxy::SetShards { shards: 5 }.into(),
        proxy::OtherShardMap { epoch, shard_map: shard_map() }.into(),
        proxy::Reshard { epoch, shard_map: shard_map(), order: order() }.into(),
        proxy::DidReshard { sequencer: epoch }.into(),
        proxy::GroupStatus {
            group: Group(1),
            layout: layout(),
            sealed: 3,
            leaving: vec![Group(2)],
            awaited: vec![proxy::Awaited { from: Group(0), next: 1 }],
            retired: true,
            spent: Some(proxy::Spent { below: vec![placed()], gsn: Gsn(39) }),
            handed: Some(3),
        }
        .into(),
        proxy::Leaving { page: page() }.into(),
    ]
}

fn to_shards() -> Vec<MasonMessage> {
    let (number, space) = (Number(12), Space(1));
    vec![
        shard::ReadShard {
            at_least: Gsn(39),
            reads: vec![ShardQuery { tag: 4, body: body() }],
            shard_map: Some(3),
            limits: Some(vec![77]),
        }
        .into(),
        shard::Attach {}.into(),
        shard::Deliver { group: Group(1), runs: runs(), cut: Some(cut()), more: true }.into(),
        shard::ShardBehind { durable: number }.into(),
        shard::Reach { through: number }.into(),
        shard::Inputs { number, space, inputs: body(), more: true, part: Some((1, 2)) }.into(),
        shard::WantInputs { number, wanted_at: Number(13), part: Some(1) }.into(),
        shard::PullShardSnapshot { transfer: 6, index: 1 }.into(),
        shard::ShardSnapshotChunk { transfer: 6, below: number, index: 1, chunk: body(), last: true }.into(),
        shard::Settled { below: placed() }.into(),
        shard::Moved { members: members() }.into(),
        shard::Hurry {}.into(),
        shard::Watched { version: 3, space, watches: body() }.into(),
        shard::WantWatched { version: 3, space }.into(),
        shard::PullBlob { id: BlobId { series: 2, first: 3 }, offset: 4, bytes: 5 }.into(),
        shard::BlobPage { id: BlobId { series: 2, first: 3 }, offset: 4, page: body() }.into(),
        shard::WhetherArchived { blobs: vec![BlobId { series: 2, first: 3 }] }.into(),
        shard::WereArchived { blobs: vec![BlobId { series: 2, first: 3 }] }.into(),
    ]
}

fn to_users() -> Vec<MasonMessage> {
    let (group, space, gsn) = (Group(1), Space(1), Gsn(39));
    vec![
        client::Answers {
            group,
            answers: vec![OperationAnswer { incarnation: 6, tag: 4, gsn, body: body() }],
        }
        .into(),
        client::GatewayNotice { space, gsn, body: body() }.into(),
        client::Progress { space, through: gsn }.into(),
        client::ReadAnswers {
            space,
            executed: gsn,
            answers: vec![ReadAnswer { tag: 4, body: body() }],
            refused: Some(shard_map()),
            withheld: Some(vec![(4, 77)]),
        }
        .into(),
        client::BarrierPassed { group, id: 6, layout: Some(layout()) }.into(),
        client::Elsewhere { group, incarnation: 6, tag: 4, layout: layout() }.into(),
        client::GroupNotice { group, body: body() }.into(),
        client::Skipped { space }.into(),
        client::UsesShardMap { space, shard_map: shard_map() }.into(),
        client::Overfull { space, bytes: 5 }.into(),
        client::Remark { space, body: body() }.into(),
        Connected { address: "::1".to_owned(), certificate: Some("cn".to_owned()), port: Some(7) }.into(),
        Input { bytes: body() }.into(),
        Disconnected {}.into(),
        Taken { bytes: 77 }.into(),
        Proven { number: 7, answer: body(), who: Some("u".to_owned()), is_refused: true }.into(),
        Output { bytes: body() }.into(),
        Close { reason: "slow".to_owned() }.into(),
        Pause { paused: true }.into(),
    ]
}

/// One of every message; of the log's own, whose formats are tested there, one.
fn messages() -> Vec<MasonMessage> {
    let log = paxos::Message::from(leader::Propose { value: Value::entry(body()).expect("it is small") });
    [to_sequencers(), to_proxies(), to_shards(), to_users(), vec![log.into()]].concat()
}

fn entries() -> Vec<Entry> {
    vec![
        Entry::Begin { ballot: ballot(), leader: node(1, 7) },
        Entry::Batch(batch()),
        Entry::Seal { epoch: 5, claim: claim() },
        Entry::Fill { epoch: 5, holes: vec![range()] },
        Entry::Clock { epoch: 2, now: GroupTime(900) },
        Entry::Collected { low_watermarks: vec![placed()] },
        Entry::Durable { low_watermarks: vec![placed()], version: Some(2) },
        Entry::Members(members()),
        Entry::Layout { layout: layout(), below: vec![placed()], gsn: Gsn(39) },
        Entry::Reshard { epoch: 5, shard_map: shard_map(), order: order() },
        Entry::Page(page()),
        Entry::Arrived { at: Group(2), version: 4 },
        Entry::Retire { version: 4 },
        Entry::Settled { version: 3 },
    ]
}

fn questions() -> Vec<Question> {
    vec![Question::Reach, Question::Lacking { from: placed() }, Question::View]
}

fn records() -> Vec<SnapshotRecord<Number>> {
    vec![
        SnapshotRecord::Begin { below: Number(12) },
        SnapshotRecord::Chunk { bytes: body() },
        SnapshotRecord::End,
    ]
}

// A changed byte locks running clusters and old journals out.
#[test]
fn every_message_entry_and_record_has_its_golden_bytes() {
    let mut golden = Golden::default();
    golden.values("", &messages());
    golden.values("Entry.", &entries());
    for question in questions() {
        golden.line("Question.", &question, &question.encoded());
        assert_eq!(Question::read(&question.encoded()), Ok(question));
    }
    golden.values("ShardRecord.", &records());
    golden.values("", &[Incarnation { number: 6 }]);
    golden.check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden"));
}

fn feed_question(bytes: &[u8]) -> bool {
    let Ok(question) = Question::read(bytes) else { return false };
    assert_eq!(Question::read(&question.encoded()), Ok(question));
    true
}

// A peer's or a disk's garbage must not take a host down, hang it, or make it allocate without bound.
#[test]
fn hostile_bytes_never_harm() {
    let asked = questions().iter().map(Question::encoded).collect();
    withstand(&[
        Format::of(&messages()),
        Format::of(&entries()),
        Format::read_by(asked, |bytes| feed_question(bytes)),
        Format::of(&records()),
    ]);
}
