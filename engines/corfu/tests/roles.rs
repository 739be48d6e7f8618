//! One input, exact effects: the decisions of each role, one by one.

use corfu::auxiliary::{self, AuxiliaryTimer, Vote};
use corfu::client::{self, ClientTimer, Found, Installed, Occupied, Token, Written};
use corfu::sequencer::{self, Begin, Next};
use corfu::storage::{self, Read, Seal, StorageRecord, Write};
use corfu::{
    Auxiliary, Client, Corfu, Data, Entry, Epoch, Extent, LogPosition, Message, Parameters, Projection,
    Request, Response, Sequencer, StorageServer,
};
use kernel::{
    Bytes, Cx, Decode, Effect, Effects, HostId, Instant, NodeId, Place, Position, RequestId, Rng, Role,
    Situation, Wall,
};
use parts::Ballot;
use std::time::Duration;

fn node(host: u32, place: u32) -> NodeId {
    NodeId::new(HostId(host), Place(place))
}

/// Auxiliaries and the servers of the one chain are on hosts 1 to 3, sequencers on 4 and 5, the client on 9.
fn auxiliaries() -> Vec<NodeId> {
    (1..=3).map(|host| node(host, 1)).collect()
}

fn servers() -> Vec<NodeId> {
    (1..=3).map(|host| node(host, 16)).collect()
}

fn sequencers() -> Vec<NodeId> {
    vec![node(4, 2), node(5, 2)]
}

fn me() -> NodeId {
    node(9, 3)
}

fn initial() -> Projection {
    Projection::initial(sequencers()[0], vec![servers()])
}

/// The second epoch, without the first server.
fn second() -> Projection {
    let chains = vec![servers()[1..].to_vec()];
    Projection { epoch: E2, sequencer: sequencers()[0], first: LogPosition(7), chains }
}

fn data_of(body: &'static [u8], tag: u64) -> Entry {
    Entry::Data(Data { writer: node(8, 3), tag, body: Bytes::from_static(body) })
}

type Did = Vec<Effect<Message, Response>>;

/// A role on a table: its clock is turned by hand.
struct Table<R: Role<Family = Corfu>> {
    role: R,
    at: NodeId,
    now: Duration,
    rng: Rng,
    effects: Effects<Corfu>,
}

impl<R: Role<Family = Corfu>> Table<R> {
    fn new(role: R, at: NodeId) -> Self {
        let effects = Effects::new(Position(0), false);
        let mut table = Self { role, at, now: Duration::from_secs(1_000), rng: Rng::seeded(1), effects };
        table.call(|role, cx| role.on_start(cx));
        table
    }

    fn call(&mut self, call: impl FnOnce(&mut R, &mut Cx<'_, R>)) -> Did {
        let situation = Situation {
            node: self.at,
            now: Instant(self.now.as_nanos() as u64),
            wall: Wall { earliest: 0, latest: 0 },
            rng: &mut self.rng,
        };
        call(&mut self.role, &mut Cx::new(situation, &mut self.effects));
        self.effects.drain().collect()
    }

    fn hear(&mut self, from: NodeId, message: impl Into<R::In>) -> Did {
        let message = message.into();
        self.call(|role, cx| role.on_message(from, message, cx))
    }

    fn timer(&mut self, timer: R::Timer, after: Duration) -> Did {
        self.now += after;
        self.call(|role, cx| role.on_timer(timer, cx))
    }

    fn journal(&mut self) -> Vec<Bytes> {
        let records = self.effects.records().map(|record| Bytes::copy_from_slice(record.bytes)).collect();
        self.effects.clear_records();
        records
    }
}

/// What was sent, and whether it waits for the disk.
fn sent(did: &Did) -> Vec<(NodeId, Message, bool)> {
    let sent = did.iter().filter_map(|effect| match effect {
        Effect::Send { to, message } => Some((*to, message.clone(), false)),
        Effect::SendDurable { to, message, .. } => Some((*to, message.clone(), true)),
        _ => None,
    });
    sent.collect()
}

fn durably(to: NodeId, message: impl Into<Message>) -> Vec<(NodeId, Message, bool)> {
    vec![(to, message.into(), true)]
}

fn at_once(to: NodeId, message: impl Into<Message>) -> Vec<(NodeId, Message, bool)> {
    vec![(to, message.into(), false)]
}

/// Who was sent this.
fn told(did: &Did, message: impl Into<Message>) -> Vec<NodeId> {
    let message = message.into();
    sent(did).into_iter().filter(|(_, it, _)| *it == message).map(|(to, _, _)| to).collect()
}

fn responses(did: &Did) -> Vec<Response> {
    let answered = did.iter().filter_map(|effect| match effect {
        Effect::Respond { response, .. } => Some(response.clone()),
        _ => None,
    });
    answered.collect()
}

const E1: Epoch = Epoch(1);
const E2: Epoch = Epoch(2);
const P0: LogPosition = LogPosition(0);
const P3: LogPosition = LogPosition(3);

// A position that is written twice is one that two readers know differently; junk must not take an entry's place.
#[test]
fn a_storage_server_writes_a_position_once() {
    let mut table = Table::new(StorageServer::new(u64::MAX), servers()[0]);
    let write = |entry: &Entry| Write { id: 1, epoch: E1, position: P0, entry: entry.clone() };
    let (first, second) = (data_of(b"a", 1), data_of(b"b", 2));
    let did = table.hear(me(), write(&first));
    assert_eq!(sent(&did), durably(me(), Written { id: 1, epoch: E1, position: P0 }));
    let kept: Vec<_> = table.journal().iter().map(StorageRecord::decoded).collect();
    assert_eq!(kept, [Ok(StorageRecord::Kept(P0, first.clone()))]);
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
fn a_sealed_server_refuses_the_epoch_before_in_a_later_life_too() {
    let mut table = Table::new(StorageServer::new(u64::MAX), servers()[0]);
    table.hear(me(), Write { id: 1, epoch: E1, position: LogPosition(6), entry: Entry::Junk });
    let auxiliary = auxiliaries()[0];
    let did = table.hear(auxiliary, Seal { epoch: E2 });
    assert_eq!(sent(&did), durably(auxiliary, auxiliary::SealAck { epoch: E2, next: LogPosition(7) }));
    let did = table.hear(me(), Write { id: 2, epoch: E1, position: P0, entry: Entry::Junk });
    assert_eq!(sent(&did), durably(me(), client::Sealed { id: 2, epoch: E2 }));
    let mut role = StorageServer::new(u64::MAX);
    for record in table.journal() {
        role.restore(Position(0), StorageRecord::decoded(&record).expect("just written"));
    }
    let mut next_life = Table::new(role, servers()[0]);
    let did = next_life.hear(me(), Read { id: 3, epoch: E1, position: P0 });
    assert_eq!(sent(&did), durably(me(), client::Sealed { id: 3, epoch: E2 }));
    let did = next_life.hear(auxiliary, Seal { epoch: E1 });
    assert_eq!(sent(&did), durably(auxiliary, auxiliary::Beyond { epoch: E2 }));
}

// What is dropped and comes back after a restart, or a late write into what is gone, shows readers entries that were not there.
#[test]
fn what_is_trimmed_is_gone_in_a_later_life_too() {
    // Room for four entries.
    let mut table = Table::new(StorageServer::new(4 * 65), servers()[0]);
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
    let mut role = StorageServer::new(4 * 65);
    for (at, record) in table.journal().iter().enumerate() {
        role.restore(Position(at as u64), StorageRecord::decoded(record).expect("just written"));
    }
    assert_eq!((role.first(), role.len()), (LogPosition(5), 3));
    let mut next_life = Table::new(role, servers()[0]);
    let did = next_life.hear(me(), Read { id: 1, epoch: E1, position: LogPosition(4) });
    assert_eq!(sent(&did), durably(me(), gone(4, 5)));
    let did = next_life.hear(auxiliaries()[0], Seal { epoch: E2 });
    let next = LogPosition(8);
    assert_eq!(sent(&did), durably(auxiliaries()[0], auxiliary::SealAck { epoch: E2, next }));
}

// A sequencer that begins an epoch twice gives positions away below acknowledged ones.
#[test]
fn a_sequencer_serves_an_epoch_in_one_life() {
    let (at, auxiliary) = (sequencers()[0], auxiliaries()[0]);
    let mut table = Table::new(Sequencer::new(), at);
    assert!(sent(&table.hear(me(), Next { id: 1, epoch: E1, count: 1 })).is_empty(), "it serves nobody yet");
    table.hear(auxiliary, Begin { epoch: E1, first: P0 });
    for position in [P0, LogPosition(1)] {
        let did = table.hear(me(), Next { id: 2, epoch: E1, count: 1 });
        assert_eq!(sent(&did), durably(me(), Token { id: 2, epoch: E1, position }));
    }
    table.hear(auxiliary, Begin { epoch: E1, first: P0 });
    let did = table.hear(me(), sequencer::Tail { id: 3, epoch: E1 });
    let tail = client::TailIs { id: 3, epoch: E1, next: LogPosition(2) };
    assert_eq!(sent(&did), durably(me(), tail), "a late Begin changes nothing");
    let mut role = Sequencer::new();
    for record in table.journal() {
        role.restore(Position(0), Decode::decoded(&record).expect("just written"));
    }
    let mut next_life = Table::new(role, at);
    next_life.hear(auxiliary, Begin { epoch: E1, first: P0 });
    assert!(
        sent(&next_life.hear(me(), Next { id: 4, epoch: E1, count: 1 })).is_empty(),
        "begun in another life"
    );
    let did = next_life.hear(auxiliary, sequencer::Ping {});
    let pong = auxiliary::SequencerPong { began: E1, serves: false };
    assert_eq!(sent(&did), durably(auxiliary, pong), "so auxiliaries know");
    next_life.hear(auxiliary, Begin { epoch: E2, first: LogPosition(9) });
    let did = next_life.hear(me(), Next { id: 5, epoch: E1, count: 1 });
    assert_eq!(sent(&did), durably(me(), client::Sealed { id: 5, epoch: E2 }));
}

fn asked(request: Request) -> (Table<Client>, Did) {
    let mut table = Table::new(Client::new(auxiliaries(), initial(), Parameters::default()), me());
    let did = table.call(|role, cx| role.on_request(RequestId(1), request, cx));
    (table, did)
}

/// A client, its append of "x", and the call's name.
fn appending() -> (Table<Client>, Entry, u64) {
    let (table, did) = asked(Request::Append(Bytes::from_static(b"x")));
    let id = match &sent(&did)[..] {
        [(to, Message::Sequencer(sequencer::SequencerIn::Next(next)), _)] if *to == sequencers()[0] => {
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
    assert_eq!(responses(&did), [Response::Appended(P3)]);
}

// A client that does not look takes a second position while its first may yet be read; one that writes without looking may
// end below what was acknowledged.
#[test]
fn after_a_change_the_head_is_asked_for_the_entry() {
    for has in [true, false] {
        let (mut table, entry, id) = appending();
        table.hear(sequencers()[0], Token { id, epoch: E1, position: P3 });
        let did = table.hear(servers()[0], client::Sealed { id, epoch: E2 });
        assert_eq!(told(&did, auxiliary::WantProjection { epoch: E2 }), auxiliaries());
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
    let (table, did) = asked(Request::Read(P3));
    match &sent(&did)[..] {
        [(to, Message::Storage(storage::StorageIn::Read(read)), _)] if *to == servers()[2] => {
            (table, read.id)
        }
        other => panic!("the tail was not asked: {other:?}"),
    }
}

/// The tail has nothing, and then the whole chain.
fn nothing(table: &mut Table<Client>, id: u64) -> Did {
    let empty = || Found { id, epoch: E1, position: P3, entry: None };
    let did = table.hear(servers()[2], empty());
    assert_eq!(told(&did, Read { id, epoch: E1, position: P3 }), servers());
    servers().into_iter().map(|server| table.hear(server, empty())).last().unwrap_or_default()
}

// What is denied must be nowhere; what lies beyond the tail is no hole, and filling it would take it from its writer.
#[test]
fn nothing_is_said_to_be_there_only_when_nobody_has_it() {
    let (mut table, id) = reading();
    let did = nothing(&mut table, id);
    assert_eq!(sent(&did), at_once(sequencers()[0], sequencer::Tail { id, epoch: E1 }));
    let did = table.hear(sequencers()[0], client::TailIs { id, epoch: E1, next: P3 });
    assert_eq!(responses(&did), [Response::Unwritten]);
}

// A hole stops everybody who reads in order, for ever; a writer that is merely slow must be waited for.
#[test]
fn a_hole_is_filled_after_a_while() {
    let (mut table, id) = reading();
    nothing(&mut table, id);
    let given = || client::TailIs { id, epoch: E1, next: LogPosition(4) };
    assert!(sent(&table.hear(sequencers()[0], given())).is_empty(), "its writer is waited for");
    let did = table.timer(ClientTimer::Tick, Parameters::default().hole_after);
    assert_eq!(told(&did, Read { id, epoch: E1, position: P3 }), servers()[2..]);
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
    assert_eq!(responses(&did), [Response::Entry(Bytes::from_static(b"late"))]);
}

/// An auxiliary that has not heard the first server for long, and what it did about it.
fn changing() -> (Table<Auxiliary>, Did) {
    let role = Auxiliary::new(auxiliaries(), sequencers(), initial(), Parameters::default());
    let (mut table, tick) = (Table::new(role, auxiliaries()[0]), Parameters::default().tick);
    for _ in 0..40 {
        for server in &servers()[1..] {
            table.hear(*server, auxiliary::StoragePong { epoch: E1 });
        }
        table.hear(sequencers()[0], auxiliary::SequencerPong { began: E1, serves: true });
        let did = table.timer(AuxiliaryTimer::Tick, tick);
        if table.role.is_changing() {
            return (table, did);
        }
    }
    panic!("a silent server is not noticed");
}

/// The other two servers are sealed, and the first one was waited for.
fn sealed() -> (Table<Auxiliary>, Did, Ballot) {
    let (mut table, did) = changing();
    assert_eq!(told(&did, Seal { epoch: E2 }), servers());
    table.hear(servers()[1], auxiliary::SealAck { epoch: E2, next: LogPosition(4) });
    table.hear(servers()[2], auxiliary::SealAck { epoch: E2, next: LogPosition(7) });
    let did = table.timer(AuxiliaryTimer::Tick, Parameters::default().seal_for);
    (table, did, Ballot::ZERO.above(auxiliaries()[0]))
}

// A server that nobody sealed would go on; a position below what a sealed one has would be given away twice.
#[test]
fn a_change_seals_asks_and_tells_what_was_decided() {
    let (mut table, did, ballot) = sealed();
    let prepare = Message::from(auxiliary::Prepare { base: initial(), ballot });
    let prepares: Vec<_> = sent(&did).into_iter().filter(|(_, message, _)| *message == prepare).collect();
    let wanted: Vec<_> = auxiliaries().into_iter().map(|to| (to, prepare.clone(), true)).collect();
    assert_eq!(prepares, wanted, "its own ballot is durable before anybody hears of it");
    let promise = || auxiliary::Promise { epoch: E2, ballot, accepted: None };
    assert!(sent(&table.hear(auxiliaries()[1], promise())).is_empty());
    let did = table.hear(auxiliaries()[2], promise());
    let vote = Vote { ballot, projection: second() };
    assert_eq!(told(&did, auxiliary::Accept { vote }), auxiliaries());
    let accepted = || auxiliary::Accepted { epoch: E2, ballot };
    table.hear(auxiliaries()[1], accepted());
    assert_eq!(table.role.installed(), &initial(), "one of three is no majority");
    let did = table.hear(auxiliaries()[2], accepted());
    assert_eq!(table.role.installed(), &second());
    assert_eq!(told(&did, auxiliary::Install { projection: second() }), auxiliaries()[1..]);
}

// An auxiliary that proposes its own where another's may be decided makes two projections of one epoch.
#[test]
fn what_may_have_been_decided_is_proposed_again() {
    let (mut table, _, ballot) = sealed();
    let theirs = Projection { first: LogPosition(99), ..second() };
    let before = Vote { ballot: Ballot::ZERO.above(NodeId::ZERO), projection: theirs.clone() };
    table.hear(auxiliaries()[1], auxiliary::Promise { epoch: E2, ballot, accepted: Some(before) });
    let did = table.hear(auxiliaries()[2], auxiliary::Promise { epoch: E2, ballot, accepted: None });
    assert_eq!(told(&did, auxiliary::Accept { vote: Vote { ballot, projection: theirs } }), auxiliaries());
}

// An auxiliary that votes below its promise lets two majorities accept two projections.
#[test]
fn an_auxiliary_keeps_its_promise() {
    let role = Auxiliary::new(auxiliaries(), sequencers(), initial(), Parameters::default());
    let (mut table, other) = (Table::new(role, auxiliaries()[0]), auxiliaries()[1]);
    let (low, high) = (Ballot { round: 2, leader: other }, Ballot { round: 5, leader: other });
    let did = table.hear(other, auxiliary::Prepare { base: initial(), ballot: high });
    let promise = auxiliary::Promise { epoch: E2, ballot: high, accepted: None };
    assert_eq!(sent(&did), durably(other, promise));
    assert_eq!(table.journal().len(), 1);
    let did = table.hear(other, auxiliary::Accept { vote: Vote { ballot: low, projection: second() } });
    assert_eq!(sent(&did), durably(other, auxiliary::Refused { epoch: E2, promised: high }));
    let vote = Vote { ballot: high, projection: second() };
    let did = table.hear(other, auxiliary::Accept { vote: vote.clone() });
    assert_eq!(sent(&did), durably(other, auxiliary::Accepted { epoch: E2, ballot: high }));
    let higher = high.above(other);
    let did = table.hear(other, auxiliary::Prepare { base: initial(), ballot: higher });
    let promise = auxiliary::Promise { epoch: E2, ballot: higher, accepted: Some(vote) };
    assert_eq!(sent(&did), durably(other, promise));
}

// An append that is said to be at positions where others are, or that is answered before all of it is there.
#[test]
fn several_entries_take_one_token_and_are_answered_together() {
    let bodies = vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    let (mut table, did) = asked(Request::AppendAll(bodies));
    let [(_, Message::Sequencer(sequencer::SequencerIn::Next(next)), _)] = &sent(&did)[..] else {
        panic!("the sequencer was not asked: {did:?}");
    };
    assert_eq!(next.count, 2);
    let did = table.hear(sequencers()[0], Token { id: next.id, epoch: E1, position: P3 });
    let writes: Vec<Write> = sent(&did)
        .into_iter()
        .filter_map(|(to, message, _)| match message {
            Message::Storage(storage::StorageIn::Write(write)) if to == servers()[0] => Some(write),
            _ => None,
        })
        .collect();
    assert_eq!(writes.iter().map(|write| write.position.0).collect::<Vec<_>>(), [3, 4]);
    // The second is lost to a reader that filled its place, and takes another.
    let Write { id, position, .. } = writes[1].clone();
    let did = table.hear(servers()[0], Occupied { id, epoch: E1, position, entry: Entry::Junk });
    assert_eq!(told(&did, Next { id, epoch: E1, count: 1 }), [sequencers()[0]]);
    table.hear(sequencers()[0], Token { id, epoch: E1, position: LogPosition(7) });
    let mut answers = Vec::new();
    for (id, position) in [(writes[0].id, P3), (id, LogPosition(7))] {
        for server in servers() {
            answers.extend(responses(&table.hear(server, Written { id, epoch: E1, position })));
        }
    }
    assert_eq!(answers, [Response::AllAppended(vec![P3, LogPosition(7)])]);
}

// A deposed sequencer whose tail is believed hides what was acknowledged since.
#[test]
fn a_tail_is_told_when_the_chains_are_still_in_its_epoch() {
    let (mut table, did) = asked(Request::Stat);
    let [(_, Message::Sequencer(sequencer::SequencerIn::Tail(tail)), _)] = &sent(&did)[..] else {
        panic!("the sequencer was not asked: {did:?}");
    };
    let id = tail.id;
    let did = table.hear(sequencers()[0], client::TailIs { id, epoch: E1, next: P3 });
    assert_eq!(told(&did, storage::Measure { id, epoch: E1 }), [servers()[2]]);
    assert!(responses(&did).is_empty());
    table.hear(servers()[2], client::Sealed { id, epoch: E2 });
    let did = table.hear(auxiliaries()[0], Installed { projection: second() });
    assert_eq!(told(&did, sequencer::Tail { id, epoch: E2 }), [sequencers()[0]], "asked anew");
    table.hear(sequencers()[0], client::TailIs { id, epoch: E2, next: LogPosition(9) });
    let did = table.hear(servers()[2], client::Measured { id, epoch: E2, first: P3, bytes: 7 });
    let extent = Extent { first: P3, next: LogPosition(9), bytes: 7 };
    assert_eq!(responses(&did), [Response::Stat(extent)]);
}
