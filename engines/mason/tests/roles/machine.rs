//! What a proxy's log makes of its entries.

use super::runs_of;
use super::{at, gateway, operation, proxy, range, sequencer, server, topology};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, StateMachine};
use mason::client::{Answers, GatewayIn, GroupNotice, OperationAnswer, Skipped};
use mason::proxy::delivery::{Delivered, Run, Work};
use mason::proxy::entry::{AssignmentBatch, Claim, Entry, Item, Question};
use mason::proxy::machine::ProxyMachine;
use mason::proxy::{
    Applied, AwaitsTime, Began, DidFill, DidMove, DidSeal, DidSettle, FollowUp, NextTag, ProxyIn,
};
use mason::sequencer::{Moved, SequencerIn};
use mason::shard::{self, Deliver, ShardBehind, ShardIn};
use mason::{
    ConsistentCut, Group, GroupTime, Gsn, Layout, Members, Number, Operation, Order, Placed, Range, ShardMap,
    Space, Stub, StubOut, Verdict,
};
use parts::Ballot;
use paxos::HostEntry;

/// Voids what begins with `v`, answers it, asks for a follow-up after `f`, and notifies its origin after `t`.
#[derive(Default)]
struct Words(Vec<u8>);

impl Stub for Words {
    fn spaces(&self, _body: &[u8], _shard_map: &ShardMap) -> Vec<Space> {
        Vec::new()
    }

    fn apply(&mut self, body: &Bytes, _order: Option<&Order>, _now: GroupTime, out: &mut StubOut) -> Verdict {
        self.0.extend_from_slice(body);
        match body.first() {
            Some(b'v') => {
                out.answer(Bytes::from_static(b"void"));
                return Verdict::Void;
            }
            Some(b'f') => out.follow_up(Bytes::from_static(b"later")),
            Some(b't') => out.notify(gateway(1), Bytes::from_static(b"news")),
            Some(_) | None => {}
        }
        Verdict::Execute
    }

    fn on_clock(&mut self, now: GroupTime, new_leader: bool, _out: &mut StubOut) {
        self.0.extend([now.0 as u8, u8::from(new_leader)]);
    }

    fn apply_follow_up(&mut self, body: &Bytes, _: Option<&Order>, _: GroupTime, _: &mut StubOut) {
        self.0.extend_from_slice(body);
    }

    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn load(&mut self, saved: &[u8]) -> Result<(), DecodeError> {
        self.0 = saved.to_vec();
        Ok(())
    }
}

type Machine = ProxyMachine<Words>;
type Notices = Vec<(NodeId, Bytes)>;

fn machine() -> Machine {
    ProxyMachine::new(Group(0), proxy(1, 0).host(), topology(), 64, Words::default())
}

fn apply(machine: &mut Machine, entry: Entry) -> Notices {
    machine.apply_entry(&entry.encoded().into());
    let mut notices = Vec::new();
    machine.take_notices(&mut notices);
    notices
}

fn ballot(round: u64) -> Ballot {
    Ballot { round, leader: proxy(2, 0) }
}

fn claim(attempt: u64) -> Option<Claim> {
    Some(Claim { sequencer: sequencer(1), attempt })
}

fn seal(epoch: u64) -> Entry {
    Entry::Seal { epoch, claim: claim(epoch) }
}

fn begin(round: u64) -> Entry {
    Entry::Begin { ballot: ballot(round), leader: proxy(2, 0) }
}

/// Led for the first time, sealed for sequencer 5.
fn begun() -> Machine {
    let mut machine = machine();
    apply(&mut machine, begin(1));
    apply(&mut machine, seal(5));
    machine
}

fn cut() -> ConsistentCut {
    ConsistentCut { gsn: Gsn(90), next: vec![at(0, 50), at(1, 50)] }
}

fn item(operation: Operation, spaces: &[u16]) -> Item {
    Item { spaces: spaces.iter().map(|&space| Space(space)).collect(), follow_up: None, operation }
}

fn batch(index: u64, rows: &[Range], items: Vec<Item>) -> AssignmentBatch {
    let (rows, gsn, cut) = (rows.to_vec(), Gsn(30), Some(cut()));
    AssignmentBatch { epoch: 1, index, sequencer: 5, request: index, rows, gsn, cut, time: 77, items }
}

fn order(numbers: &[Placed], gsn: u64) -> Order {
    Order { numbers: numbers.into(), gsn: Gsn(gsn), time: 77 }
}

fn executes(numbers: &[Placed], gsn: u64, operation: Operation) -> Delivered {
    Delivered { order: order(numbers, gsn), work: Work::Operation(operation) }
}

fn no_op(placed: Placed, gsn: u64, time: u64) -> Delivered {
    Delivered { order: Order { numbers: [placed].into(), gsn: Gsn(gsn), time }, work: Work::NoOp }
}

fn to_proxy(message: impl Into<ProxyIn>) -> (NodeId, Bytes) {
    (proxy(1, 0), message.into().encoded().into())
}

fn to_server(space: u32, entries: Vec<Delivered>, cut: Option<ConsistentCut>) -> (NodeId, Bytes) {
    let runs = runs_of(space as u16, &entries);
    let deliver = ShardIn::from(Deliver { group: Group(0), runs, cut, more: false });
    (server(1, space), deliver.encoded().into())
}

fn to_gateway(message: impl Into<GatewayIn>) -> (NodeId, Bytes) {
    (gateway(1), message.into().encoded().into())
}

fn applied(index: u64) -> (NodeId, Bytes) {
    to_proxy(Applied { epoch: 1, index, sequencer: 5 })
}

fn operations(runs: &[Run]) -> Vec<Delivered> {
    runs.iter().flat_map(Run::iter).map(|row| row.expect("a row").1).collect()
}

/// What the first space was handed, of a batch that concerns it alone.
fn first_space(notices: &Notices) -> Vec<Delivered> {
    let mut entries = Vec::new();
    for (to, bytes) in notices {
        if *to == server(1, 0) {
            let Ok(ShardIn::Deliver(deliver)) = ShardIn::decoded(bytes) else { panic!("{bytes:?}") };
            entries.extend(operations(&deliver.runs));
        }
    }
    entries
}

// A leader that begins on anything but what the log holds numbers operations twice or loses their order.
#[test]
fn a_leader_begins_with_all_that_the_log_has() {
    let mut machine = begun();
    apply(&mut machine, Entry::Clock { epoch: 1, now: GroupTime(9) });
    apply(&mut machine, Entry::Batch(batch(1, &[range(0, 1, 1)], vec![item(operation(1, b"f"), &[0])])));
    let began = |epoch, round| Began {
        epoch,
        ballot: ballot(round),
        leader: proxy(2, 0),
        sequencer: 5,
        request: 1,
        next: vec![at(0, 2), at(1, 1)],
        gsn: Gsn(30),
        now: GroupTime(9),
        tags: vec![NextTag { origin: gateway(1), incarnation: 1, next: 2 }],
        follow_ups: vec![FollowUp { id: 1, body: Bytes::from_static(b"later") }],
        claim: claim(5),
        durable: Some(vec![]),
    };
    assert_eq!(apply(&mut machine, begin(3)), [to_proxy(began(2, 3))]);
    assert_eq!(apply(&mut machine, begin(3)), [to_proxy(began(2, 3))], "said again, and no new leader");
    assert_eq!(apply(&mut machine, begin(2)), [], "an earlier leader comes too late");
}

// Every server of the host gets its operations and the consistent cut; the leader learns that it may go on.
#[test]
fn a_batch_assigns_and_delivers() {
    let mut machine = begun();
    let both = operation(1, b"both");
    let items = vec![item(both.clone(), &[0, 1]), item(operation(2, b"one"), &[0])];
    let did = apply(&mut machine, Entry::Batch(batch(1, &[range(0, 4, 2), range(1, 7, 1)], items)));
    let shared = executes(&[at(0, 4), at(1, 7)], 30, both);
    let second = executes(&[at(0, 5)], 31, operation(2, b"one"));
    let expected = [
        to_server(0, vec![shared.clone(), second], Some(cut())),
        to_server(1, vec![shared], Some(cut())),
        applied(1),
    ];
    assert_eq!(did, expected);
    assert_eq!(machine.view().end(Space(0)), Number(6));
}

// A batch out of turn, of a deposed leader or of a sealed sequencer assigns numbers that others have.
#[test]
fn only_the_next_batch_of_the_leader_and_the_sequencer_in_force_counts() {
    let mut machine = begun();
    let of = |index, number| batch(index, &[range(0, number, 1)], vec![item(operation(1, b"x"), &[0])]);
    let digest = machine.digest();
    assert_eq!(apply(&mut machine, Entry::Batch(of(2, 1))), []);
    assert_eq!(apply(&mut machine, Entry::Batch(AssignmentBatch { epoch: 0, ..of(1, 1) })), []);
    assert_eq!(apply(&mut machine, Entry::Batch(AssignmentBatch { sequencer: 4, ..of(1, 1) })), []);
    assert_eq!(machine.digest(), digest);
    assert_eq!(apply(&mut machine, Entry::Batch(of(1, 1))).len(), 3);
    assert_eq!(apply(&mut machine, Entry::Batch(of(1, 1))), [], "proposed again");
    let view = machine.view().clone();
    let (gsn, claim, layout) = (Gsn(30), claim(6), Some(Layout::at_bootstrap(2, 2)));
    let sealed = DidSeal { epoch: 1, index: 1, sequencer: 6, view, gsn, claim, layout, handed: None };
    assert_eq!(apply(&mut machine, seal(6)), [to_proxy(sealed.clone())]);
    assert_eq!(apply(&mut machine, Entry::Batch(of(2, 2))), [], "void after the seal");
    assert_eq!(apply(&mut machine, seal(6)), [to_proxy(sealed.clone())], "the answer was lost");
    let second = Entry::Seal { epoch: 6, claim: self::claim(7) };
    assert_eq!(apply(&mut machine, second), [to_proxy(sealed)], "the epoch is another's");
    assert_eq!(apply(&mut machine, seal(5)), []);
}

// An operation executed twice, or before an earlier one of its origin, or for an origin's incarnation that is over.
#[test]
fn tags_are_admitted_in_their_order_and_once() {
    let mut machine = begun();
    let mut next = 0;
    let mut admitted = |machine: &mut Machine, incarnation, tag| {
        next += 1;
        let operation = Operation { incarnation, ..operation(tag, b"x") };
        let entry = Entry::Batch(batch(next, &[range(0, next, 1)], vec![item(operation, &[0])]));
        let entries = first_space(&apply(machine, entry));
        assert_eq!(entries[0].order.numbers[..], [at(0, next)], "the number is used in any case");
        entries[0].work.operation().is_some()
    };
    assert!(!admitted(&mut machine, 1, 2));
    assert!(admitted(&mut machine, 1, 1));
    assert!(!admitted(&mut machine, 1, 1));
    assert!(admitted(&mut machine, 1, 2));
    assert!(!admitted(&mut machine, 2, 2), "an incarnation begins with its first");
    assert!(admitted(&mut machine, 2, 1));
    assert!(!admitted(&mut machine, 1, 3), "the incarnation before is over");
}

// A voided operation that its shards execute all the same, or whose origin never hears of it.
#[test]
fn a_void_operation_becomes_a_no_op_and_is_answered_by_the_group() {
    let mut machine = begun();
    let items = vec![item(operation(1, b"v"), &[0, 1])];
    let did = apply(&mut machine, Entry::Batch(batch(1, &[range(0, 1, 1), range(1, 1, 1)], items)));
    let answer = OperationAnswer { incarnation: 1, tag: 1, gsn: Gsn(0), body: Bytes::from_static(b"void") };
    let expected = [
        to_gateway(Answers { group: Group(0), answers: vec![answer] }),
        to_server(0, vec![no_op(at(0, 1), 30, 77)], Some(cut())),
        to_server(1, vec![no_op(at(1, 1), 30, 77)], Some(cut())),
        applied(1),
    ];
    assert_eq!(did, expected);
}

// What the stub says must come from one replica: the one on the origin's host.
#[test]
fn the_replica_on_the_origins_host_speaks() {
    let say = || Entry::Batch(batch(1, &[], vec![item(operation(1, b"t"), &[])]));
    let reported = GroupNotice { group: Group(0), body: Bytes::from_static(b"news") };
    let mut near = begun();
    assert_eq!(apply(&mut near, say())[0], to_gateway(reported));
    let mut far = ProxyMachine::new(Group(0), proxy(2, 0).host(), topology(), 64, Words::default());
    apply(&mut far, begin(1));
    apply(&mut far, seal(5));
    assert!(apply(&mut far, say()).iter().all(|(to, _)| *to != gateway(1)));
    assert_eq!(far.digest(), near.digest());
}

// A follow-up that two leaders order is executed twice; one that nobody remembers never.
#[test]
fn a_follow_up_is_executed_once() {
    let mut machine = begun();
    let did = apply(&mut machine, Entry::Batch(batch(1, &[], vec![item(operation(1, b"f"), &[])])));
    let body = Bytes::from_static(b"later");
    assert_eq!(did[0], to_proxy(FollowUp { id: 1, body: body.clone() }));
    let follow_up = Operation { origin: NodeId::ZERO, incarnation: 0, tag: 0, body };
    let ordered = |index: u64| {
        let item = Item { follow_up: Some(1), ..item(follow_up.clone(), &[0]) };
        Entry::Batch(batch(index, &[range(0, index, 1)], vec![item]))
    };
    let first = first_space(&apply(&mut machine, ordered(2)));
    assert_eq!(first, [executes(&[at(0, 2)], 30, follow_up.clone())]);
    let second = first_space(&apply(&mut machine, ordered(3)));
    assert_eq!(second, [no_op(at(0, 3), 30, 77)]);
    assert_eq!(machine.stub().0, [b"\0\x01f".as_slice(), b"later"].concat());
}

// Filling a number that is assigned turns an answered operation into nothing; another sequencer's holes are none.
#[test]
fn only_holes_are_filled() {
    let mut machine = begun();
    let items = vec![item(operation(1, b"x"), &[0])];
    apply(&mut machine, Entry::Batch(batch(1, &[range(0, 2, 1)], items)));
    assert_eq!(apply(&mut machine, Entry::Fill { epoch: 4, holes: vec![range(0, 1, 1)] }), []);
    let did = apply(&mut machine, Entry::Fill { epoch: 5, holes: vec![range(0, 1, 3)] });
    let filled = vec![no_op(at(0, 1), 0, 0), no_op(at(0, 3), 0, 0)];
    assert_eq!(did, [to_server(0, filled, None), to_proxy(DidFill { sequencer: 5 })]);
    let again = apply(&mut machine, Entry::Fill { epoch: 5, holes: vec![range(0, 1, 3)] });
    assert_eq!(again, [to_proxy(DidFill { sequencer: 5 })]);
}

// Numbers that a dead leader was given: each gets its no-op, in every space.
#[test]
fn a_batch_without_operations_fills_its_rows() {
    let mut machine = begun();
    let did = apply(&mut machine, Entry::Batch(batch(1, &[range(0, 1, 2), range(1, 1, 1)], Vec::new())));
    let expected = [
        to_server(0, vec![no_op(at(0, 1), 0, 77), no_op(at(0, 2), 0, 77)], Some(cut())),
        to_server(1, vec![no_op(at(1, 1), 0, 77)], Some(cut())),
        applied(1),
    ];
    assert_eq!(did, expected);
}

fn lacking(machine: &Machine, number: u64) -> ShardIn {
    let mut answer = Vec::new();
    machine.query(&Question::Lacking { from: at(0, number) }.encoded(), &mut answer);
    ShardIn::decoded(&answer.into()).expect("an answer to a shard")
}

// A server that is sent less than everything retained waits for ever; one that is sent a gap as if all were there executes past it.
#[test]
fn what_is_retained_is_handed_out_until_it_is_durable() {
    let mut machine = begun();
    let items =
        |tags: std::ops::RangeInclusive<u64>| tags.map(|tag| item(operation(tag, b"x"), &[0])).collect();
    apply(&mut machine, Entry::Batch(batch(1, &[range(0, 1, 2)], items(1..=2))));
    apply(&mut machine, Entry::Batch(batch(2, &[range(0, 3, 1)], items(3..=3))));
    let ShardIn::Deliver(page) = lacking(&machine, 2) else { panic!("operations are retained") };
    let whole = [1, 2].map(|n| executes(&[at(0, n)], 29 + n, operation(n, b"x")));
    assert_eq!(operations(&page.runs), whole, "a page holds 64 bytes: the run that has it");
    let before = machine.retained_bytes();
    apply(&mut machine, Entry::Durable { low_watermarks: vec![at(0, 3)], version: Some(0) });
    assert_eq!(lacking(&machine, 2), ShardBehind { durable: Number(3) }.into());
    let ShardIn::Deliver(page) = lacking(&machine, 3) else { panic!("the third is retained") };
    assert_eq!(operations(&page.runs), [executes(&[at(0, 3)], 30, operation(3, b"x"))]);
    assert!(machine.retained_bytes() < before);
}

// Where nobody writes any more, a server that restarted would never learn that it has everything, and would leave reads of those unanswered
// who have seen what came after its own last operation.
#[test]
fn the_newest_consistent_cut_is_sent_to_who_lacks_nothing() {
    let mut machine = begun();
    let reported = |machine: &Machine, number| match lacking(machine, number) {
        ShardIn::Deliver(page) => (page.runs.len(), page.cut, page.more),
        other => panic!("{other:?}"),
    };
    assert_eq!(reported(&machine, 1), (0, None, false));
    let one = |tag| vec![item(operation(tag, b"x"), &[0])];
    apply(&mut machine, Entry::Batch(batch(1, &[range(0, 1, 1)], one(1))));
    let older = Some(ConsistentCut { gsn: Gsn(cut().gsn.0 - 1), next: Vec::new() });
    apply(&mut machine, Entry::Batch(AssignmentBatch { cut: older, ..batch(2, &[range(0, 2, 1)], one(2)) }));
    assert_eq!(reported(&machine, 3), (0, Some(cut()), false));
    let (_, early, more) = reported(&machine, 1);
    assert!(early.is_none() == more, "not before there is nothing more");
}

// A replica that comes back from a snapshot and decides otherwise than the others.
#[test]
fn a_snapshot_is_the_machine() {
    let mut machine = begun();
    let items = vec![item(operation(1, b"f"), &[0, 1]), item(operation(2, b"x"), &[0])];
    apply(&mut machine, Entry::Batch(batch(1, &[range(0, 2, 2), range(1, 1, 1)], items)));
    apply(&mut machine, Entry::Durable { low_watermarks: vec![at(1, 1)], version: None });
    apply(&mut machine, Entry::Clock { epoch: 1, now: GroupTime(9) });
    machine.begin_snapshot();
    let mut chunks = Vec::new();
    loop {
        let mut chunk = Vec::new();
        let step = machine.snapshot_step(64, &mut chunk);
        chunks.push(chunk);
        if step == kernel::SnapshotStep::Done {
            break;
        }
    }
    let mut copy = self::machine();
    apply(&mut copy, begin(9));
    copy.reset();
    chunks.iter().for_each(|chunk| copy.install(chunk).expect("its own chunk"));
    assert_eq!((copy.digest(), copy.retained_bytes()), (machine.digest(), machine.retained_bytes()));
    for number in 1..5 {
        assert_eq!(lacking(&copy, number), lacking(&machine, number));
    }
    let mut notices = Vec::new();
    copy.take_notices(&mut notices);
    let skipped: Bytes = GatewayIn::from(Skipped { space: Space(0) }).encoded().into();
    assert_eq!(notices, [(gateway(1), skipped)], "what was answered in between, nobody else says here");
    let next = || Entry::Batch(batch(2, &[range(0, 4, 1)], vec![item(operation(3, b"y"), &[0])]));
    let did = apply(&mut machine, next());
    assert!(did.len() == 3 && apply(&mut copy, next()) == did);
    assert_eq!(apply(&mut copy, begin(3)), apply(&mut machine, begin(3)));
}

// A capture that is written later must be what the machine was, or its replica goes another way after a restart.
#[test]
fn a_capture_is_the_machine_as_it_was_but_for_what_nobody_needs() {
    let mut machine = begun();
    let items = vec![item(operation(1, b"x"), &[0]), item(operation(2, b"x"), &[1])];
    apply(&mut machine, Entry::Batch(batch(1, &[range(0, 1, 1), range(1, 1, 1)], items)));
    let (capture, digest) = (machine.capture().expect("it keeps much for others"), machine.digest());
    let later = || {
        [
            Entry::Batch(batch(2, &[range(0, 2, 1)], vec![item(operation(3, b"x"), &[0])])),
            Entry::Durable { low_watermarks: vec![at(0, 2)], version: Some(0) },
        ]
    };
    later().into_iter().for_each(|entry| drop(apply(&mut machine, entry)));
    assert_eq!(machine.needed_of(capture.number), machine.retained_bytes() / 2, "the one in space 1");
    let mut copy = self::machine();
    let chunks = capture.chunks.into_iter().chain(machine.completion(capture.number));
    chunks.for_each(|chunk| copy.install(&chunk).expect("its own chunk"));
    assert_eq!(copy.digest(), digest);
    later().into_iter().for_each(|entry| drop(apply(&mut copy, entry)));
    assert_eq!((copy.digest(), copy.retained_bytes()), (machine.digest(), machine.retained_bytes()));
    for number in 1..4 {
        assert_eq!(lacking(&copy, number), lacking(&machine, number));
    }
}

fn moved(version: u64) -> Members {
    let hosts = ["b", "c", "d"].map(|name| HostEntry { name: name.to_owned(), address: format!("{name}:1") });
    Members { version, hosts: hosts.into() }
}

// Roles of a host that are not notified send to hosts that are gone; notified of an earlier change after a later one, they would again.
#[test]
fn a_hosts_roles_are_notified_of_its_members_once_an_incarnation() {
    let mut machine = begun();
    let low_watermark = Entry::Durable { low_watermarks: vec![at(0, 3)], version: Some(0) };
    let settled = ShardIn::from(shard::Settled { below: at(0, 3) });
    assert_eq!(apply(&mut machine, low_watermark), [(server(1, 1), settled.encoded().into())]);
    let reported = |members: Members, durable: Vec<Placed>| {
        let to_shard = ShardIn::from(shard::Moved { members: members.clone() }).encoded();
        let to_standby = SequencerIn::from(Moved { members: members.clone() }).encoded();
        vec![
            to_proxy(DidMove { members, durable }),
            (server(1, 0), to_shard.clone().into()),
            (server(1, 1), to_shard.into()),
            (sequencer(1), to_standby.into()),
        ]
    };
    assert_eq!(apply(&mut machine, Entry::Members(moved(4))), reported(moved(4), vec![at(0, 3)]));
    assert_eq!(apply(&mut machine, Entry::Members(moved(4))), []);
    assert_eq!(apply(&mut machine, Entry::Members(moved(3))), []);
    assert_eq!(apply(&mut machine, Entry::Members(Members { version: 9, hosts: vec![] })), []);
    let settled = to_proxy(DidSettle { version: 4 });
    assert_eq!(apply(&mut machine, Entry::Settled { version: 3 }), [], "members of before");
    assert_eq!(apply(&mut machine, Entry::Settled { version: 4 }), std::slice::from_ref(&settled));
    assert_eq!(apply(&mut machine, Entry::Settled { version: 4 }), []);
    machine.begin_snapshot();
    let mut again = self::machine();
    let mut last = false;
    while !last {
        let mut chunk = Vec::new();
        last = machine.snapshot_step(64, &mut chunk) == kernel::SnapshotStep::Done;
        again.install(&chunk).expect("its own chunk");
    }
    let clock = Entry::Clock { epoch: 1, now: GroupTime(9) };
    let awaits = to_proxy(AwaitsTime { awaits: false });
    let all = [reported(moved(4), vec![at(0, 3)]), vec![settled, awaits]].concat();
    assert_eq!(apply(&mut again, clock), all, "it starts from a snapshot");
}

// A low watermark that was counted among hosts that left is reached by too few of those that stay: what is below would be lost with one.
#[test]
fn low_watermarks_of_other_members_are_void() {
    let mut machine = begun();
    apply(&mut machine, Entry::Batch(batch(1, &[range(0, 1, 1)], vec![item(operation(1, b"x"), &[0])])));
    apply(&mut machine, Entry::Members(moved(1)));
    let low_watermark = |version| Entry::Durable { low_watermarks: vec![at(0, 2)], version };
    assert_eq!(apply(&mut machine, low_watermark(Some(0))), []);
    assert_eq!(apply(&mut machine, low_watermark(None)), []);
    assert!(matches!(lacking(&machine, 1), ShardIn::Deliver(_)));
    assert_eq!(apply(&mut machine, low_watermark(Some(1))).len(), 1);
    assert_eq!(lacking(&machine, 1), ShardBehind { durable: Number(2) }.into());
}
