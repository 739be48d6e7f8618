//! A shard's server.

use super::runs_of;
use super::{Did, Table, all, at, gateway, one, operation, proxy, sends, server, topology};
use kernel::{BlobRange, Bytes, Decode, DecodeError, Effect, NodeId, Position, Role, SnapshotStep};
use mason::client::{Answers, GatewayNotice, OperationAnswer, Progress, ReadAnswer, ReadAnswers, Skipped};
use mason::proxy::delivery::{Delivered, Work};
use mason::proxy::{Lacking, ShardDurable};
use mason::shard::{
    Attach, Deliver, Inputs, PullShardSnapshot, Reach, ReadShard, Settled, ShardBehind, ShardIn, ShardQuery,
    ShardServer, ShardTimer, WantInputs,
};
use mason::{
    ConsistentCut, Group, Gsn, MasonMessage, MasonParameters, Number, Order, Placed, Shard, ShardOut, Space,
};
use parts::SnapshotRecord;
use std::time::Duration;

/// Writes down what it executes, and notifies the last reader.
#[derive(Default, Debug)]
struct Diary {
    text: Vec<u8>,
    reader: Option<NodeId>,
    writing: Vec<u8>,
}

impl Shard for Diary {
    fn inputs(&self, _body: &[u8], _order: &Order, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
    }

    fn execute(&mut self, body: &Bytes, _order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut) {
        self.text.extend_from_slice(body);
        others.iter().for_each(|(_, said)| self.text.extend_from_slice(said));
        out.answer().extend_from_slice(&self.text);
        if let Some(reader) = self.reader {
            out.notify(reader, body.clone());
        }
    }

    fn read(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        self.reader = Some(reader);
        out.extend_from_slice(query);
        out.extend_from_slice(&self.text);
        None
    }

    fn answer_bytes(&self, query: &[u8]) -> Option<usize> {
        Some(query.len() + self.text.len())
    }

    fn forget_reader(&mut self, _reader: NodeId) {
        self.reader = None;
    }

    fn begin_snapshot(&mut self) {
        self.writing = self.text.clone();
    }

    fn snapshot_step(&mut self, _budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let half = self.writing.split_off(self.writing.len() / 2);
        chunk.append(&mut self.writing);
        self.writing = half;
        if chunk.is_empty() {
            chunk.append(&mut self.writing);
        }
        if self.writing.is_empty() { SnapshotStep::Done } else { SnapshotStep::More }
    }

    fn reset(&mut self) {
        self.text.clear();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.text.extend_from_slice(chunk);
        Ok(())
    }

    fn digest(&self) -> u64 {
        parts::digest(&self.text)
    }
}

type Server = ShardServer<Diary>;

fn bench(host: u32, space: u32, snapshot_every_bytes: u64) -> Table<Server> {
    let parameters = MasonParameters { snapshot_every_bytes, ..MasonParameters::default() };
    let server_ = ShardServer::new(Space(space as u16), topology(), parameters, Diary::default());
    Table::new(server_, server(host, space))
}

fn shard() -> Table<Server> {
    bench(1, 0, u64::MAX)
}

fn executes(numbers: &[Placed], gsn: u64, tag: u64, body: &'static [u8]) -> Delivered {
    let order = Order { numbers: numbers.into(), gsn: Gsn(gsn), time: 0 };
    Delivered { order, work: Work::Operation(operation(tag, body)) }
}

fn deliver(entries: Vec<Delivered>) -> Deliver {
    Deliver { group: Group(1), runs: runs_of(0, &entries), cut: None, more: false }
}

fn simple(number: u64, body: &'static [u8]) -> Deliver {
    deliver(vec![executes(&[at(0, number)], 10 * number, number, body)])
}

fn replica() -> NodeId {
    super::node(1, 0x99)
}

fn text(bench: &Table<Server>) -> &[u8] {
    &bench.role.service().text
}

fn answer(tag: u64, gsn: u64, body: &'static [u8]) -> OperationAnswer {
    OperationAnswer { incarnation: 1, tag, gsn: Gsn(gsn), body: Bytes::from_static(body) }
}

fn to_gateway(message: impl Into<MasonMessage>) -> Vec<(NodeId, MasonMessage)> {
    one(gateway(1), message)
}

fn tick(bench: &mut Table<Server>) -> Vec<(NodeId, MasonMessage)> {
    bench.pass(MasonParameters::default().ask_after);
    sends(&bench.timer(ShardTimer::Tick))
}

// A shard that executes past a hole, twice, or out of order is not the others' equal.
#[test]
fn numbers_are_executed_in_order_and_once() {
    let mut bench = shard();
    assert_eq!(bench.burst(replica(), simple(2, b"b")), []);
    assert_eq!((bench.role.next(), bench.role.backlog()), (Number(1), 1));
    let no_op = Order { numbers: [at(0, 1)].into(), gsn: Gsn(0), time: 0 };
    let no_op = deliver(vec![Delivered { order: no_op, work: Work::NoOp }]);
    let did = sends(&bench.burst(replica(), no_op.clone()));
    assert_eq!(did, to_gateway(Answers { group: Group(1), answers: vec![answer(2, 20, b"b")] }));
    assert_eq!(bench.burst(replica(), no_op), [], "executed already");
    assert_eq!(bench.burst(replica(), simple(2, b"B")), []);
    assert_eq!((bench.role.next(), text(&bench)), (Number(3), b"b".as_slice()));
    let stray = executes(&[at(1, 3)], 30, 3, b"stray");
    assert!(table::rejects(
        &bench
            .hear(replica(), Deliver { group: Group(1), runs: runs_of(1, &[stray]), cut: None, more: false })
    ));
}

// One server answers an origin: the one on its host.
#[test]
fn the_server_on_the_origins_host_answers() {
    let mut far = bench(2, 0, u64::MAX);
    assert_eq!(far.burst(replica(), simple(1, b"a")), []);
    assert_eq!(text(&far), b"a");
}

// A missing number that nobody asks for stops the shard for ever.
#[test]
fn what_is_missing_is_asked_for() {
    let mut bench = shard();
    bench.burst(replica(), simple(3, b"c"));
    assert_eq!(tick(&mut bench), [], "it may be on its way");
    let lacking = Lacking { from: at(0, 1) };
    assert_eq!(tick(&mut bench), all([proxy(1, 0), proxy(1, 1)], lacking));
}

// Executed without the others' inputs, or with another operation's, an operation over two shards ends in two ways.
#[test]
fn an_operation_over_two_shards_waits_for_the_other_ones_inputs() {
    let (mut first, mut second) = (shard(), bench(1, 1, u64::MAX));
    first.burst(replica(), simple(1, b"a"));
    let both = |space| {
        let entries = [executes(&[at(0, 2), at(1, 1)], 20, 2, b"both")];
        Deliver { group: Group(1), runs: runs_of(space, &entries), cut: None, more: false }
    };
    let did = sends(&first.burst(replica(), both(0)));
    let said = |number, space, inputs: &'static [u8]| Inputs {
        number: Number(number),
        space: Space(space),
        inputs: Bytes::from_static(inputs),
        more: false,
        part: None,
    };
    assert_eq!(did, one(server(1, 1), said(1, 0, b"a")), "to the server of this host, once");
    assert_eq!(first.burst(replica(), both(0)), []);
    assert_eq!(first.role.next(), Number(2));
    second.hear(server(1, 0), said(1, 0, b"a"));
    let did = sends(&second.burst(replica(), both(1)));
    assert_eq!(did, one(server(1, 0), said(2, 1, b"")), "the first space's server answers, not this one");
    assert_eq!(text(&second), b"botha");
    first.burst(server(1, 1), said(3, 1, b"of a later one"));
    assert_eq!(first.role.next(), Number(2));
    let did = sends(&first.burst(server(1, 1), said(2, 1, b"")));
    assert_eq!(did, to_gateway(Answers { group: Group(1), answers: vec![answer(2, 20, b"aboth")] }));
}

// Inputs that were lost are asked for, sent again, and retained until enough servers need them no more.
#[test]
fn inputs_are_retained_until_the_others_are_durable() {
    let mut bench = shard();
    let both = deliver(vec![executes(&[at(0, 1), at(1, 1)], 20, 1, b"both")]);
    bench.burst(replica(), both);
    tick(&mut bench);
    let want = WantInputs { number: Number(1), wanted_at: Number(1), part: None };
    assert_eq!(tick(&mut bench), all((1..=3).map(|host| server(host, 1)), want.clone()));
    let inputs = Inputs {
        number: Number(1),
        space: Space(1),
        inputs: Bytes::from_static(b"x"),
        more: false,
        part: None,
    };
    bench.burst(server(1, 1), inputs);
    let sent = Inputs { number: Number(1), space: Space(0), inputs: Bytes::new(), more: false, part: None };
    assert_eq!(sends(&bench.hear(server(2, 1), want.clone())), one(server(2, 1), sent.clone()));
    bench.hear(replica(), Settled { below: at(1, 1) });
    bench.hear(replica(), Settled { below: at(0, 2) });
    bench.hear(server(2, 1), Settled { below: at(1, 2) });
    assert_eq!(sends(&bench.hear(server(3, 1), want.clone())), one(server(3, 1), sent), "no log's word");
    bench.hear(replica(), Settled { below: at(1, 2) });
    let behind = ShardBehind { durable: Number(2) };
    assert_eq!(sends(&bench.hear(server(3, 1), want)), one(server(3, 1), behind));
}

// A server that starts from an old snapshot asks for one operation's inputs at a time, and takes hours.
#[test]
fn inputs_are_sent_again_in_pages() {
    let both = |number| executes(&[at(0, number), at(1, number)], 20 + number, number, b"b");
    let mut ahead = shard();
    for number in 1..=1_000 {
        ahead.burst(replica(), deliver(vec![both(number)]));
        let (number, inputs) = (Number(number), Bytes::from_static(b"x"));
        ahead.burst(server(1, 1), Inputs { number, space: Space(1), inputs, more: false, part: None });
    }
    assert_eq!(ahead.role.next(), Number(1_001));
    let mut late = bench(1, 1, u64::MAX);
    late.burst(
        replica(),
        Deliver { runs: runs_of(1, &(1..=1_000).map(both).collect::<Vec<_>>()), ..deliver(Vec::new()) },
    );
    let mut wanted = Some(WantInputs { number: Number(1), wanted_at: Number(1), part: None });
    let mut pages = 0;
    while let Some(want) = wanted.take() {
        pages += 1;
        for (_, message) in sends(&ahead.hear(server(1, 1), want)) {
            let MasonMessage::Shard(ShardIn::Inputs(inputs)) = message else { panic!("{message:?}") };
            for (to, message) in sends(&late.burst(server(1, 0), inputs)) {
                if let MasonMessage::Shard(ShardIn::WantInputs(want)) = message {
                    assert_eq!(to, server(1, 0), "who has sent the page");
                    assert!(wanted.replace(want).is_none(), "once a page");
                }
            }
        }
    }
    assert_eq!(late.role.next(), Number(1_001));
    assert!((3..=8).contains(&pages), "{pages} pages of 256 KiB for about 1 MiB");
}

// An answer that is made, only to be found too large, costs as much as one that is sent: readers who take nothing had shards copy all day.
#[test]
fn an_answer_that_there_is_no_room_for_is_not_made() {
    let mut bench = shard();
    let read = |limit| ReadShard {
        at_least: Gsn(0),
        reads: vec![ShardQuery { tag: 1, body: Bytes::from_static(b"how much?") }],
        shard_map: None,
        limits: Some(vec![limit]),
    };
    let answers = |answers, withheld| {
        let (space, executed) = (Space(0), Gsn(0));
        one(gateway(2), ReadAnswers { space, executed, answers, refused: None, withheld })
    };
    assert_eq!(sends(&bench.burst(gateway(2), read(8))), answers(vec![], Some(vec![(1, 9)])));
    assert_eq!(bench.role.service().reader, None, "it was not even looked at");
    let answer = ReadAnswer { tag: 1, body: Bytes::from_static(b"how much?") };
    assert_eq!(sends(&bench.burst(gateway(2), read(9))), answers(vec![answer], None));
    assert_eq!(bench.role.service().reader, Some(gateway(2)));
}

// A read that is answered before what it must see is executed is stale.
#[test]
fn reads_wait_for_what_they_must_see() {
    let mut bench = shard();
    let read = |tag, at_least| ReadShard {
        at_least: Gsn(at_least),
        reads: vec![ShardQuery { tag, body: Bytes::from_static(b"?") }],
        shard_map: None,
        limits: None,
    };
    let answer = |tag, executed, body: &'static [u8]| ReadAnswers {
        space: Space(0),
        executed: Gsn(executed),
        answers: vec![ReadAnswer { tag, body: Bytes::from_static(body) }],
        refused: None,
        withheld: None,
    };
    let did = sends(&bench.burst(gateway(2), read(1, 0)));
    assert_eq!(did, one(gateway(2), answer(1, 0, b"?")));
    bench.hear(proxy(1, 0), Reach { through: Number(2) });
    bench.hear(proxy(1, 1), Reach { through: Number(1) });
    assert_eq!(bench.burst(gateway(2), read(2, 0)), []);
    assert_eq!(bench.burst(gateway(2), read(3, 25)), []);
    let notice = |number: u64, body: &'static [u8]| {
        let body = Bytes::from_static(body);
        (gateway(2), MasonMessage::from(GatewayNotice { space: Space(0), gsn: Gsn(10 * number), body }))
    };
    let did = sends(&bench.burst(replica(), simple(1, b"a")));
    assert_eq!(did[0], notice(1, b"a"));
    assert!(
        did.iter()
            .all(|(_, it)| !matches!(it, MasonMessage::Client(mason::client::GatewayIn::ReadAnswers(_))))
    );
    let did = sends(&bench.burst(replica(), simple(2, b"b")));
    let answers = to_gateway(Answers { group: Group(1), answers: vec![super::shard::answer(2, 20, b"ab")] });
    let expected = [vec![notice(2, b"b")], answers, one(gateway(2), answer(2, 20, b"?ab"))];
    assert_eq!(did, expected.concat(), "what was noticed comes before what is read");
    let cut = Some(ConsistentCut { gsn: Gsn(26), next: vec![at(0, 3)] });
    let did = sends(&bench.burst(replica(), Deliver { group: Group(0), runs: Vec::new(), cut, more: false }));
    assert_eq!(
        did,
        one(gateway(2), answer(3, 20, b"?ab")),
        "a consistent cut covers what concerns other shards"
    );
}

// An answer that its gateway has no room for would take the host's memory; withheld without a word, it never comes.
#[test]
fn answers_that_are_too_large_are_withheld() {
    let mut bench = shard();
    bench.hear(proxy(1, 0), Reach { through: Number(1) });
    bench.burst(replica(), simple(1, b"abcdefgh"));
    let query = |tag| ShardQuery { tag, body: Bytes::from_static(b"?") };
    let read =
        |limits| ReadShard { at_least: Gsn(0), reads: vec![query(1), query(2)], shard_map: None, limits };
    let answer = |tag| ReadAnswer { tag, body: Bytes::from_static(b"?abcdefgh") };
    let reported = |answers, withheld| {
        let (space, executed) = (Space(0), Gsn(10));
        one(gateway(2), ReadAnswers { space, executed, answers, refused: None, withheld })
    };
    let did = sends(&bench.burst(gateway(2), read(Some(vec![8, 9]))));
    assert_eq!(did, reported(vec![answer(2)], Some(vec![(1, 9)])));
    let did = sends(&bench.burst(gateway(2), read(Some(vec![8, 8]))));
    assert_eq!(did, reported(Vec::new(), Some(vec![(1, 9), (2, 9)])));
    for limits in [None, Some(Vec::new()), Some(vec![u64::MAX, 9])] {
        let did = sends(&bench.burst(gateway(2), read(limits)));
        assert_eq!(did, reported(vec![answer(1), answer(2)], None));
    }
}

// A gateway that believes a shard to be further than it is skips events.
#[test]
fn progress_is_reported_when_it_is_covered() {
    let mut bench = shard();
    let reported = |through| one(gateway(1), Progress { space: Space(0), through: Gsn(through) });
    assert_eq!(sends(&bench.burst(gateway(1), Attach {})), reported(0));
    let cut = |gsn, next| Deliver {
        group: Group(0),
        runs: Vec::new(),
        cut: Some(ConsistentCut { gsn: Gsn(gsn), next: vec![at(0, next)] }),
        more: false,
    };
    assert_eq!(sends(&bench.burst(replica(), cut(8, 1))), reported(7));
    assert_eq!(sends(&bench.burst(replica(), cut(30, 2))), [], "number 1 is missing");
    let did = sends(&bench.burst(replica(), simple(1, b"a")));
    let answers = to_gateway(Answers { group: Group(1), answers: vec![answer(1, 10, b"a")] });
    assert_eq!(did, [answers, reported(29)].concat());
}

/// Executes `numbers` operations, then writes its snapshot as far as it is due.
fn with_snapshot(host: u32) -> (Table<Server>, Did) {
    let mut bench = bench(host, 0, 60);
    bench.burst(replica(), simple(1, b"a"));
    bench.burst(replica(), simple(2, b"b"));
    let mut did = Did::new();
    for _ in 0..8 {
        bench.pass(Duration::from_millis(2));
        did.extend(bench.end());
    }
    (bench, did)
}

// What proxies forget because a snapshot holds it is gone if the snapshot is not durable, whole and right.
#[test]
fn a_snapshot_is_reported_when_it_is_durable_and_reads_back() {
    let (mut bench, did) = with_snapshot(1);
    let records: Vec<SnapshotRecord<Number>> = bench
        .journal()
        .iter()
        .map(|record| SnapshotRecord::decoded(record).expect("what was just encoded"))
        .collect();
    assert_eq!(records.first(), Some(&SnapshotRecord::Begin { below: Number(3) }));
    assert_eq!(records.last(), Some(&SnapshotRecord::End));
    assert!(did.contains(&Effect::Trim { before: Position(0) }));
    let reported = bench.timer(ShardTimer::Tick);
    let durable: Vec<NodeId> = reported
        .iter()
        .filter_map(|effect| match effect {
            Effect::Repeat { to, message, after: Some(after) } if after.0 == records.len() as u64 => {
                (*message == ShardDurable { below: at(0, 3) }.into()).then_some(*to)
            }
            _ => None,
        })
        .collect();
    let proxies = (0..2).flat_map(|group| (1..=3).map(move |host| proxy(host, group)));
    assert_eq!(durable, proxies.collect::<Vec<_>>());
    // What the journal was trimmed to is whole, and need not be in memory beside what is made of it.
    for (first, early) in [(0, &b""[..]), (7, b"ab")] {
        let mut again = ShardServer::new(Space(0), topology(), MasonParameters::default(), Diary::default());
        for (at, record) in (first..).zip(records.iter().cloned()) {
            if record == SnapshotRecord::End {
                assert_eq!(again.service().text, early, "from position {first}");
            }
            again.restore(Position(at), record);
        }
        assert_eq!((again.next(), again.durable_below()), (Number(3), Number(3)));
        assert_eq!(again.service().text, b"ab");
    }
}

// A server that lacks what nobody keeps must get it whole from a peer, and say what it has not executed itself.
#[test]
fn a_server_that_is_behind_takes_a_peers_snapshot() {
    let (mut peer, _) = with_snapshot(2);
    let mut bench = shard();
    bench.hear(gateway(1), Attach {});
    assert_eq!(bench.hear(proxy(1, 0), ShardBehind { durable: Number(1) }), [], "nothing is lacked");
    bench.burst(replica(), simple(4, b"d"));
    let mut asked = sends(&bench.hear(proxy(1, 0), ShardBehind { durable: Number(3) }));
    assert!(bench.hear(proxy(2, 0), ShardBehind { durable: Number(3) }).is_empty(), "one transfer at a time");
    let mut reported = Vec::new();
    for _ in 0..6 {
        let Some((_, MasonMessage::Shard(ShardIn::PullShardSnapshot(pull)))) = asked.first().cloned() else {
            break;
        };
        // Of the host that was asked: here it is host 2 that answers.
        let PullShardSnapshot { transfer, index } = pull;
        let peer_id = asked[0].0;
        let chunks = sends(&peer.hear(server(1, 0), PullShardSnapshot { transfer, index }));
        let Some((_, MasonMessage::Shard(ShardIn::ShardSnapshotChunk(chunk)))) = chunks.first().cloned()
        else {
            break;
        };
        assert_eq!(bench.hear(server(3, 1), chunk.clone()), [], "somebody else's chunk");
        asked = sends(&bench.hear(peer_id, chunk.clone()));
        reported.extend(asked.clone());
        assert_eq!(bench.hear(peer_id, chunk), [], "a repeated chunk");
    }
    assert!(reported.contains(&(gateway(1), Skipped { space: Space(0) }.into())), "{reported:?}");
    assert_eq!((bench.role.next(), text(&bench)), (Number(3), b"ab".as_slice()));
    bench.burst(replica(), simple(3, b"c"));
    assert_eq!((bench.role.next(), text(&bench)), (Number(5), b"abcd".as_slice()));
}
