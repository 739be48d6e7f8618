//! A connection over the logs of one space, whose answers may be held back.

use kafka::{
    APIS, Broker, Brokers, Connection, Fault, NO_TIMESTAMP, Outgoing, Permitted, ProducerIds, PutKafka as _,
    Record, RequestBytes, Settings, Shared, key, write_batch,
};
use kernel::{Decode as _, Encode as _, Instant, NodeId};
use mason::{Gsn, Number, Order, Placed, Shard as _, ShardOut, Space};
use shared_log::{
    Answer, Append, Commit, Create, Logs, Named, Part, Progress, RETAIN_BYTES_MIN, Request, Rows, Trim,
};
use std::rc::Rc;
use std::time::Duration;

struct Twin {
    logs: Logs,
    gsn: u64,
    connection: Connection,
    brokers: Brokers,
    now: Instant,
    /// Calls that the log has not answered yet.
    calls: Vec<(u64, Request)>,
    /// Reads that wait for an entry.
    waiting: Vec<(u64, Request)>,
    output: Vec<u8>,
}

impl Twin {
    fn new() -> Self {
        let broker = Broker { node: 5, address: "here".to_owned(), port: 9092, is_up: true };
        let settings =
            Settings { creates_topics: true, retain_bytes: RETAIN_BYTES_MIN, retain_ms: 0, node: 5 };
        let shared = Shared { producer_ids: ProducerIds::beginning_at(u64::MAX), groups: Rc::default() };
        Self {
            logs: Logs::new(Space(0), 1, shared_log::SpaceBounds::default()),
            gsn: 0,
            connection: Connection::new(settings, shared, Permitted::all()),
            brokers: Brokers { cluster: "c".to_owned(), all: vec![broker] },
            now: Instant::default(),
            calls: Vec::new(),
            waiting: Vec::new(),
            output: Vec::new(),
        }
    }

    fn with_log() -> Self {
        let mut twin = Self::new();
        let create = Create {
            name: "t".to_owned(),
            retain_bytes: RETAIN_BYTES_MIN,
            retain_ms: 0,
            capacity: 0,
            cleanup: None,
            first: None,
        };
        assert_eq!(twin.ask(Request::Create(create)), Answer::Done);
        twin
    }

    fn ask(&mut self, mut request: Request) -> Answer {
        if let Request::Create(create) = &mut request {
            create.capacity = 1 << 30;
        }
        if request.written().is_empty() {
            let mut out = Vec::new();
            self.logs.read(NodeId::ZERO, &request.encoded(), &mut out);
            return Answer::decoded(&out.into()).expect("shards answer in their own words");
        }
        self.gsn += 1;
        let numbers = vec![Placed { space: Space(0), number: Number(self.gsn) }].into();
        let order = Order { numbers, gsn: Gsn(self.gsn), time: 1 };
        let mut out = ShardOut::default();
        self.logs.execute(&request.encoded().into(), &order, &[], &mut out);
        Answer::decoded(&out.into_parts().0.into()).expect("shards answer in their own words")
    }

    fn act(
        &mut self,
        act: impl FnOnce(&mut Connection, &Brokers, Instant, &mut Outgoing) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut out = Outgoing::default();
        let outcome = act(&mut self.connection, &self.brokers, self.now, &mut out);
        self.calls.append(&mut out.calls);
        self.output.append(&mut out.bytes);
        outcome
    }

    fn send(&mut self, api: i16, version: i16, correlation: i32, body: &[u8]) -> Result<(), Fault> {
        let mut frame = Vec::new();
        frame.put_i16(api);
        frame.put_i16(version);
        frame.put_i32(correlation);
        frame.put_text(None);
        frame.extend_from_slice(body);
        self.act(|connection, brokers, now, out| connection.on_frame(frame.into(), brokers, now, out))
    }

    fn answer(&mut self, call: u64, answer: Answer) -> Result<(), Fault> {
        self.act(|connection, brokers, now, out| connection.on_answer(call, answer, brokers, now, out))
    }

    /// Answers all calls, but leaves reads at the tail waiting until something is there.
    fn settle(&mut self) -> Result<(), Fault> {
        let mut calls = std::mem::take(&mut self.waiting);
        loop {
            calls.append(&mut self.calls);
            if calls.is_empty() {
                return Ok(());
            }
            let (call, request) = calls.remove(0);
            let waits = matches!(&request, Request::Read(read) if read.wait_ms > 0);
            let answer = self.ask(request.clone());
            if waits
                && matches!(&answer, Answer::Entries(entries) if entries.first == entries.next && !entries.sealed)
            {
                self.waiting.push((call, request));
            } else {
                self.answer(call, answer)?;
            }
        }
    }

    /// The next response, if there is one: its correlation id and body.
    fn response(&mut self) -> Option<(i32, RequestBytes)> {
        let length = u32::from_be_bytes(*self.output.first_chunk()?) as usize;
        let frame: Vec<u8> = self.output.drain(..4 + length).skip(4).collect();
        let mut input = RequestBytes(frame.into());
        Some((input.i32().expect("a correlation id"), input))
    }

    fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        self.now = self.now + time;
        self.act(|connection, brokers, now, out| connection.on_tick(brokers, now, out))
    }
}

fn batch(values: &[&str]) -> Vec<u8> {
    let mut rows = Rows::default();
    for value in values {
        let mut entry = Vec::new();
        Record { timestamp: 50, key: None, value: Some((*value).to_owned().into()), headers: Vec::new() }
            .write(&mut entry);
        rows.push(&entry);
    }
    let mut batch = Vec::new();
    write_batch(0, &rows.into_bytes(), &mut batch);
    batch
}

fn produce(acks: i16, topic: &str, partition: i32, batch: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_text(None);
    body.put_i16(acks);
    body.put_i32(1_000);
    body.put_count(1);
    body.put_text(Some(topic));
    body.put_count(1);
    body.put_i32(partition);
    body.put_count(batch.len());
    body.extend_from_slice(batch);
    body
}

/// The code and base offset of a Produce (version 7) with one partition.
fn produced(input: &mut RequestBytes) -> (i16, i64) {
    input.i32().expect("topics");
    input.text().expect("a topic");
    input.i32().expect("partitions");
    input.i32().expect("a partition");
    (input.i16().expect("a code"), input.i64().expect("an offset"))
}

fn fetch(wait_ms: i32, bytes_min: i32, offset: i64) -> Vec<u8> {
    let mut body = Vec::new();
    for number in [-1, wait_ms, bytes_min, 1 << 20] {
        body.put_i32(number);
    }
    body.push(0);
    body.put_count(1);
    body.put_text(Some("t"));
    body.put_count(1);
    body.put_i32(0);
    body.put_i64(offset);
    body.put_i32(1 << 20);
    body
}

/// The code, the tail and how many bytes of records a Fetch (version 4) of one partition brings.
fn fetched(input: &mut RequestBytes) -> (i16, i64, usize) {
    for _ in 0..2 {
        input.i32().expect("throttling, topics");
    }
    input.text().expect("a topic");
    for _ in 0..2 {
        input.i32().expect("partitions, a partition");
    }
    let (code, tail) = (input.i16().expect("a code"), input.i64().expect("a tail"));
    input.i64().expect("the last stable offset");
    input.i32().expect("aborted transactions");
    (code, tail, input.bytes().expect("records").map_or(0, |records| records.len()))
}

// An append that is answered out of turn is taken for another one's answer.
#[test]
fn appends_are_in_flight_together_and_answered_in_order() {
    let mut twin = Twin::with_log();
    for correlation in 0..3 {
        twin.send(key::PRODUCE, 7, correlation, &produce(-1, "t", 0, &batch(&["a", "b"])))
            .expect("it is sound");
    }
    assert_eq!(twin.calls.len(), 3, "none waits for another");
    let calls = std::mem::take(&mut twin.calls);
    let answers: Vec<(u64, Answer)> =
        calls.into_iter().map(|(call, request)| (call, twin.ask(request))).collect();
    for (call, answer) in answers.into_iter().rev() {
        assert!(twin.output.is_empty());
        twin.answer(call, answer).expect("it is sound");
    }
    for correlation in 0..3 {
        let (found, mut input) = twin.response().expect("a response");
        assert_eq!((found, produced(&mut input)), (correlation, (0, i64::from(correlation) * 2)));
    }
}

// What is damaged, too much or for nobody must be distinguished, and none of it appended.
#[test]
fn appends_that_cannot_be_are_refused_in_kafkas_codes() {
    let mut twin = Twin::with_log();
    let mut corrupt = batch(&["a"]);
    *corrupt.last_mut().expect("a batch") ^= 1;
    let large = batch(&[&"x".repeat(1 << 20)]);
    let sound = batch(&["a"]);
    let old = {
        let mut old = sound.clone();
        old[16] = 1;
        old
    };
    let cases: [(i16, &str, i32, &[u8], i16); 7] = [
        (-1, "t", 0, &corrupt, 2),
        (-1, "nosuch", 0, &sound, 3),
        (-1, "t", 1, &sound, 3),
        (-1, "t", 0, &large, 10),
        (-1, "no/log", 0, &sound, 17),
        (2, "t", 0, &sound, 21),
        (1, "t", 0, &old, 43),
    ];
    for (acks, topic, partition, batch, code) in cases {
        twin.send(key::PRODUCE, 7, 1, &produce(acks, topic, partition, batch)).expect("it is sound");
        twin.settle().expect("it is sound");
        let (_, mut input) = twin.response().expect("a response");
        assert_eq!(produced(&mut input), (code, -1), "{topic}");
    }
    assert_eq!(twin.logs.bytes(), 0, "nothing was appended");
    twin.ask(Request::Seal(Named { name: "t".to_owned() }));
    twin.send(key::PRODUCE, 7, 1, &produce(-1, "t", 0, &sound)).expect("it is sound");
    twin.settle().expect("it is sound");
    assert_eq!(produced(&mut twin.response().expect("a response").1), (44, -1));
    // Nobody waits for a response: the connection's end is the only one.
    twin.send(key::PRODUCE, 7, 1, &produce(0, "t", 0, &sound)).expect("it is sound");
    assert_eq!(twin.settle(), Err(Fault::UnacknowledgedAppend));
    assert!(twin.output.is_empty());
}

fn sent_by(mut batch: Vec<u8>, producer: i64, epoch: i16, sequence: i32) -> Vec<u8> {
    batch[43..51].copy_from_slice(&producer.to_be_bytes());
    batch[51..53].copy_from_slice(&epoch.to_be_bytes());
    batch[53..57].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

// A batch that is sent again because its answer was lost must not be there twice, also where it took several appends.
#[test]
fn what_an_idempotent_producer_sends_again_is_there_once() {
    let mut twin = Twin::with_log();
    let mut ids = Vec::new();
    for body in [&[255, 255, 0, 0, 0, 1], &[255, 255, 0, 0, 0, 1]] {
        twin.send(key::INIT_PRODUCER_ID, 1, 1, body).expect("it is sound");
        let (_, mut input) = twin.response().expect("a response");
        assert_eq!((input.i32(), input.i16()), (Ok(0), Ok(0)));
        ids.push((input.i64().expect("a number"), input.i16().expect("an epoch")));
    }
    assert_eq!(ids, [(i64::MAX, 0), (0, 0)]);
    let large = "x".repeat(400_000);
    let three = batch(&[&large, &large, &large]);
    let cases: [(Vec<u8>, (i16, i64)); 6] = [
        (sent_by(three.clone(), 5, 0, 0), (0, 0)),
        (sent_by(three, 5, 0, 0), (0, 0)),
        (sent_by(batch(&["b"]), 5, 0, 4), (45, -1)),
        (sent_by(batch(&["a"]), 5, 0, 3), (0, 3)),
        (sent_by(batch(&["a"]), 5, 1, 0), (0, 4)),
        (sent_by(batch(&["b"]), 6, 0, 9), (59, -1)),
    ];
    for (batch, expected) in cases {
        twin.send(key::PRODUCE, 7, 1, &produce(-1, "t", 0, &batch)).expect("it is sound");
        twin.settle().expect("it is sound");
        assert_eq!(produced(&mut twin.response().expect("a response").1), expected);
    }
}

// An append without an answer must not hold up the connection for ever.
#[test]
fn an_append_without_an_answer_times_out() {
    let mut twin = Twin::with_log();
    twin.send(key::PRODUCE, 7, 1, &produce(-1, "t", 0, &batch(&["a"]))).expect("it is sound");
    twin.pass(Duration::from_millis(999)).expect("it is sound");
    assert!(twin.response().is_none());
    twin.pass(Duration::from_millis(1)).expect("it is sound");
    assert_eq!(produced(&mut twin.response().expect("a response").1), (7, -1));
    twin.settle().expect("a late answer is nobody's");
    assert!(twin.response().is_none());
}

// A consumer that is answered at once with nothing asks again at once; one that is never woken misses what comes.
#[test]
fn a_fetch_waits_for_what_it_wants() {
    let mut twin = Twin::with_log();
    let append = |twin: &mut Twin, value: &str| {
        let mut rows = Rows::default();
        rows.push(value.as_bytes());
        let part = Part { name: "t".to_owned(), expect: None, entries: rows.into_bytes() };
        assert!(matches!(
            twin.ask(Request::Append(Append { parts: vec![part], admitted: None })),
            Answer::Appended(_)
        ));
    };
    twin.send(key::FETCH, 4, 1, &fetch(500, 1, 0)).expect("it is sound");
    twin.settle().expect("it is sound");
    assert!(twin.response().is_none());
    append(&mut twin, "plain");
    twin.settle().expect("it is sound");
    let (_, mut input) = twin.response().expect("a response");
    let (code, tail, bytes) = fetched(&mut input);
    assert!((code, tail) == (0, 1) && bytes > 61, "{code} {tail} {bytes}");
    // More is wanted than comes: it is answered in time with what there is.
    twin.send(key::FETCH, 4, 2, &fetch(500, 1_000, 1)).expect("it is sound");
    twin.settle().expect("it is sound");
    append(&mut twin, "more");
    twin.settle().expect("it is sound");
    twin.pass(Duration::from_millis(499)).expect("it is sound");
    assert!(twin.response().is_none());
    twin.pass(Duration::from_millis(1)).expect("it is sound");
    assert!(fetched(&mut twin.response().expect("a response").1).2 > 61);
    // The read that is left behind serves the next Fetch of the same offset.
    assert_eq!(twin.waiting.len(), 1);
    twin.send(key::FETCH, 4, 3, &fetch(0, 1, 2)).expect("it is sound");
    twin.settle().expect("it is sound");
    assert_eq!(fetched(&mut twin.response().expect("a response").1), (0, 2, 0));
    for turn in 4..20 {
        twin.send(key::FETCH, 4, turn, &fetch(500, 1, 2)).expect("it is sound");
        twin.settle().expect("it is sound");
        twin.pass(Duration::from_millis(500)).expect("it is sound");
        assert_eq!(fetched(&mut twin.response().expect("a response").1), (0, 2, 0));
    }
    assert!(twin.waiting.len() <= 2, "{} reads are left at the log", twin.waiting.len());
    twin.ask(Request::Trim(Trim { name: "t".to_owned(), before: 1 }));
    for (offset, code) in [(0, 1), (3, 1), (-1, 1), (1, 0)] {
        twin.send(key::FETCH, 4, 3, &fetch(500, 1, offset)).expect("it is sound");
        twin.settle().expect("it is sound");
        assert_eq!(fetched(&mut twin.response().expect("a response").1).0, code, "offset {offset}");
    }
}

// A consumer that begins at a time must not miss what was written then, wherever the timestamps came from.
#[test]
fn offsets_are_found_by_position_and_by_time() {
    let mut twin = Twin::with_log();
    for values in [["a", "b"], ["c", "d"]] {
        twin.send(key::PRODUCE, 7, 1, &produce(-1, "t", 0, &batch(&values))).expect("it is sound");
    }
    twin.settle().expect("it is sound");
    twin.output.clear();
    twin.ask(Request::Trim(Trim { name: "t".to_owned(), before: 1 }));
    for (asked, found) in [
        (-2, (0, NO_TIMESTAMP, 1)),
        (-1, (0, NO_TIMESTAMP, 4)),
        (50, (0, 50, 1)),
        (51, (0, -1, -1)),
        (-9, (42, -1, -1)),
    ] {
        let mut body = Vec::new();
        body.put_i32(-1);
        body.put_count(1);
        body.put_text(Some("t"));
        body.put_count(1);
        body.put_i32(0);
        body.put_i64(asked);
        twin.send(key::LIST_OFFSETS, 1, 1, &body).expect("it is sound");
        twin.settle().expect("it is sound");
        let (_, mut input) = twin.response().expect("a response");
        input.take(4 + 3 + 4 + 4).expect("a partition");
        let code = input.i16().expect("a code");
        assert_eq!((code, input.i64().expect("a time"), input.i64().expect("an offset")), found, "{asked}");
    }
}

// Clients of all ages begin with these; what they read amiss ends the acquaintance.
#[test]
fn versions_and_hosts_are_reported() {
    let mut twin = Twin::new();
    for (version, code) in [(0, 0), (2, 0), (9, 35)] {
        twin.send(key::API_VERSIONS, version, 1, b"").expect("it is sound");
        let (_, mut input) = twin.response().expect("a response");
        assert_eq!((input.i16(), input.i32()), (Ok(code), Ok(APIS.len() as i32)));
        assert_eq!(input.remaining(), APIS.len() * 6 + if version == 2 { 4 } else { 0 });
    }
    twin.send(key::API_VERSIONS, 3, 1, b"").expect("it is sound");
    let (_, input) = twin.response().expect("a response");
    assert_eq!((input.0[2], input.remaining()), (APIS.len() as u8 + 1, 2 + 1 + APIS.len() * 7 + 4 + 1));
    // A topic that is not there is made.
    twin.send(key::METADATA, 1, 1, &[0, 0, 0, 1, 0, 1, b't']).expect("it is sound");
    twin.settle().expect("it is sound");
    let (_, mut input) = twin.response().expect("a response");
    assert_eq!(
        (input.i32(), input.i32(), input.text().as_deref(), input.i32()),
        (Ok(1), Ok(5), Ok("here"), Ok(9092))
    );
    assert_eq!(
        (input.text_or_null(), input.i32(), input.i32(), input.i16()),
        (Ok(None), Ok(5), Ok(1), Ok(0))
    );
    assert_eq!(twin.logs.logs().map(|(name, _)| name.to_owned()).collect::<Vec<_>>(), ["t"]);
    assert_eq!(twin.send(key::METADATA, 1, 1, &[0, 0, 0, 9, 0]), Err(Fault::Malformed));
    assert_eq!(twin.send(77, 0, 1, b""), Err(Fault::Malformed));
}

// A tool that is shown a group that is not there, or not of one that is, hides who lags behind.
#[test]
fn groups_are_listed_and_described() {
    let mut twin = Twin::new();
    let mut join = Vec::new();
    join.put_text(Some("g"));
    join.put_i32(10_000);
    join.put_i32(60_000);
    join.put_text(Some(""));
    join.put_text(Some("consumer"));
    join.put_array([()].iter(), |out, ()| {
        out.put_text(Some("range"));
        out.put_bytes(b"said");
    });
    twin.send(key::JOIN_GROUP, 2, 1, &join).expect("it is sound");
    twin.settle().expect("it is sound");
    twin.pass(Duration::from_millis(100)).expect("time passes");
    twin.settle().expect("it is sound");
    twin.pass(Duration::from_millis(100)).expect("time passes");
    twin.response().expect("it has joined");
    twin.send(key::LIST_GROUPS, 0, 2, b"").expect("it is sound");
    let (_, mut input) = twin.response().expect("a response");
    assert_eq!((input.i16(), input.i32()), (Ok(0), Ok(1)));
    assert_eq!((input.text().as_deref(), input.text().as_deref()), (Ok("g"), Ok("consumer")));
    let commit = Commit {
        group: "left".to_owned(),
        generation: None,
        progress: vec![Progress { log: "t".to_owned(), position: 3, note: String::new() }],
    };
    assert_eq!(twin.ask(Request::Commit(commit)), Answer::Done);
    let mut names = Vec::new();
    names.put_array(["g", "left", "nosuch"].iter(), |out, name| out.put_text(Some(name)));
    twin.send(key::DESCRIBE_GROUPS, 0, 3, &names).expect("it is sound");
    twin.settle().expect("it is sound");
    let (_, mut input) = twin.response().expect("a response");
    assert_eq!(input.i32(), Ok(3));
    for (name, state, kind, protocol, members) in [
        ("g", "CompletingRebalance", "consumer", "range", 1),
        ("left", "Empty", "", "", 0),
        ("nosuch", "Dead", "", "", 0),
    ] {
        assert_eq!((input.i16(), input.text().as_deref()), (Ok(0), Ok(name)));
        assert_eq!((input.text().as_deref(), input.text().as_deref()), (Ok(state), Ok(kind)));
        assert_eq!((input.text().as_deref(), input.i32()), (Ok(protocol), Ok(members)));
        for _ in 0..members {
            assert!(input.text().is_ok_and(|member| member.starts_with("member-")));
            assert_eq!((input.text().as_deref(), input.text().as_deref()), (Ok(""), Ok("")));
            assert_eq!(input.bytes().ok().flatten().as_deref(), Some(b"said".as_slice()));
            assert_eq!(input.bytes().ok().flatten().as_deref(), Some(b"".as_slice()));
        }
    }
    assert_eq!(input.remaining(), 0);
}

// A client that never reads its answers, or sends without end, must not fill the memory.
#[test]
fn what_a_connection_holds_is_bounded() {
    let mut twin = Twin::with_log();
    let values = vec!["x".repeat(1_000); 900];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let body = produce(-1, "t", 0, &batch(&values));
    for correlation in 0..20 {
        twin.send(key::PRODUCE, 7, correlation, &body).expect("it is sound");
    }
    assert!(twin.connection.is_full());
    assert_eq!(twin.calls.len(), 5, "about 4 MiB are in flight");
    twin.settle().expect("it is sound");
    assert!(!twin.connection.is_full());
    for correlation in 0..20 {
        assert_eq!(twin.response().map(|(found, _)| found), Some(correlation));
    }
}

// A client that fetches and does not read has response after response made for it: 60 fetches became 120 MiB.
#[test]
fn no_response_is_made_before_the_one_before_is_taken() {
    let mut twin = Twin::with_log();
    twin.send(key::PRODUCE, 7, 1, &produce(-1, "t", 0, &batch(&["a", "b"]))).expect("it is sound");
    twin.settle().expect("it is sound");
    assert!(twin.response().is_some());
    twin.connection.hold(true);
    for correlation in 2..40 {
        twin.send(key::FETCH, 4, correlation, &fetch(0, 1, 0)).expect("it is sound");
    }
    assert!(twin.connection.is_full(), "it is read no further");
    twin.settle().expect("it is sound");
    assert!(twin.calls.is_empty() && twin.output.is_empty(), "nothing is asked of the log");
    // What is appended goes on: its answer is small.
    twin.send(key::PRODUCE, 7, 40, &produce(-1, "t", 0, &batch(&["c"]))).expect("it is sound");
    for correlation in 2..40 {
        twin.connection.hold(false);
        twin.pass(Duration::ZERO).expect("it is sound");
        twin.connection.hold(true);
        twin.settle().expect("it is sound");
        let (answered, mut input) = twin.response().expect("one at a time");
        assert_eq!(answered, correlation);
        assert_eq!(fetched(&mut input).0, 0);
        // Behind the last of them is the answer to the append.
        assert_eq!(twin.output.is_empty(), correlation < 39, "and no more");
    }
}
