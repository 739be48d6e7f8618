//! The logs of one space and of two, given operations as the proxies' logs would hand them over.

use kernel::{BlobId, Bytes, Decode, Encode, HostId, HostSlot, NodeId, SnapshotStep};
use mason::{BlobBacked as _, Gsn, Number, Order, Placed, Shard, ShardOut, Space};
use shared_log::{
    APPEND_BYTES_MAX, Admitted, Answer, Append, Cleanup, Create, Entries, Logs, Named, Part, Produce,
    RETAIN_BYTES_MIN, Read, Refused, Rejected, Request, Rows, SpaceBounds, Trim, Why, space_of,
};

use std::collections::BTreeMap;

const READER: NodeId = NodeId::ZERO;

fn order(gsn: u64, spaces: &[u16], time: u64) -> Order {
    let numbers = spaces.iter().map(|&space| Placed { space: Space(space), number: Number(gsn) }).collect();
    Order { numbers, gsn: Gsn(gsn), time }
}

struct One {
    logs: Logs,
    gsn: u64,
    time: u64,
    reported: Vec<(NodeId, Bytes)>,
    disk: BTreeMap<BlobId, Bytes>,
    loads: usize,
}

/// Segments of a few entries, pages of two.
fn tiny() -> SpaceBounds {
    SpaceBounds { segment_bytes: 100, open_bytes: 300, page_bytes: 20, unstored_bytes: 400, cache_bytes: 60 }
}

impl One {
    fn new() -> Self {
        Self::within(SpaceBounds::default())
    }

    fn within(bounds: SpaceBounds) -> Self {
        let (reported, disk) = (Vec::new(), BTreeMap::new());
        Self { logs: Logs::new(Space(0), 1, bounds), gsn: 0, time: 1_000, reported, disk, loads: 0 }
    }

    /// What waits for the disk is there now.
    fn store(&mut self) {
        while let Some((id, bytes)) = self.logs.unstored() {
            assert_eq!(self.disk.insert(id, bytes), None, "{id} is stored once");
            self.logs.stored(id);
        }
    }

    /// A server of the same space that takes over a snapshot of this moment, and finds the disk as it is.
    fn copy(&mut self) -> Self {
        self.logs.begin_snapshot();
        let mut copy = Self { disk: self.disk.clone(), gsn: self.gsn, ..Self::within(tiny()) };
        copy.logs.reset();
        loop {
            let mut chunk = Vec::new();
            let step = self.logs.snapshot_step(100, &mut chunk);
            copy.logs.install(&chunk).expect("a chunk reads back");
            if step == SnapshotStep::Done {
                return copy;
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Answer {
        self.gsn += 1;
        let mut out = ShardOut::default();
        let body = Bytes::from(request.encoded());
        self.logs.execute(&body, &order(self.gsn, &[0], self.time), &[], &mut out);
        let (answer, reported) = out.into_parts();
        self.reported.extend(reported);
        Answer::decoded(&answer.into()).expect("shards answer in their own words")
    }

    fn create(&mut self, name: &str, retain_ms: u64) -> Answer {
        let (retain_bytes, capacity) = (RETAIN_BYTES_MIN, 3 * RETAIN_BYTES_MIN);
        self.ask(&Request::Create(Create {
            name: name.to_owned(),
            retain_bytes,
            retain_ms,
            capacity,
            cleanup: None,
            first: None,
        }))
    }

    fn read(&mut self, from: u64, entries_max: u32, bytes_max: u32, wait_ms: u32) -> Answer {
        let read = Read { name: "a".to_owned(), from, entries_max, bytes_max, wait_ms };
        let mut out = Vec::new();
        while let Some(range) = self.logs.read(READER, &Request::Read(read.clone()).encoded(), &mut out) {
            let (start, end) = (range.offset as usize, (range.offset + range.bytes) as usize);
            self.loads += 1;
            self.logs.loaded(range, &self.disk[&range.id].slice(start..end));
        }
        Answer::decoded(&out.into()).expect("shards answer in their own words")
    }

    fn words(&mut self, from: u64) -> Vec<String> {
        let Answer::Entries(Entries { rows, .. }) = self.read(from, 100, 1 << 20, 0) else {
            return Vec::new();
        };
        Rows::iter(&rows).map(|entry| String::from_utf8_lossy(entry).into_owned()).collect()
    }
}

fn part(name: &str, expect: Option<u64>, entries: &[&[u8]]) -> Part {
    let mut rows = Rows::default();
    entries.iter().for_each(|entry| rows.push(entry));
    Part { name: name.to_owned(), expect, entries: rows.into_bytes() }
}

fn append(name: &str, entries: &[&[u8]]) -> Request {
    Request::Append(Append { parts: vec![part(name, None, entries)], admitted: None })
}

fn refusal(answer: &Answer) -> Option<(Why, u64)> {
    match answer {
        Answer::Refused(Refused { why, at, .. }) => Some((*why, *at)),
        _ => None,
    }
}

// A position given twice, or left out, is what a log is there to prevent.
#[test]
fn positions_follow_one_another_and_refused_appends_take_none() {
    let mut one = One::new();
    assert_eq!(refusal(&one.ask(&append("a", &[b"x"]))), Some((Why::NoSuchLog, 0)));
    assert_eq!(one.create("a", 0), Answer::Done);
    assert_eq!(refusal(&one.create("a", 0)), Some((Why::Exists, 0)));
    assert_eq!(one.ask(&append("a", &[b"0", b"1"])), Answer::Appended(vec![0]));
    let expecting =
        |at| Request::Append(Append { parts: vec![part("a", Some(at), &[b"2"])], admitted: None });
    assert_eq!(refusal(&one.ask(&expecting(1))), Some((Why::Moved, 2)));
    assert_eq!(one.ask(&expecting(2)), Answer::Appended(vec![2]));
    assert_eq!(refusal(&one.ask(&expecting(2))), Some((Why::Moved, 3)), "a repetition changes nothing");
    assert_eq!(one.ask(&Request::Seal(Named { name: "a".to_owned() })), Answer::Done);
    assert_eq!(refusal(&one.ask(&append("a", &[b"3"]))), Some((Why::Sealed, 3)));
    assert_eq!(one.words(0), ["0", "1", "2"]);
}

// A reader that learns nothing of what is gone reads on as if it had seen it.
#[test]
fn readers_are_reported_of_what_is_gone_and_of_what_is_not_there_yet() {
    let mut one = One::new();
    one.create("a", 0);
    one.ask(&append("a", &[b"0", b"1", b"2", b"3"]));
    assert_eq!(one.ask(&Request::Trim(Trim { name: "a".to_owned(), before: 2 })), Answer::Done);
    assert_eq!(refusal(&one.read(1, 9, 99, 0)), Some((Why::Trimmed, 2)));
    assert_eq!(refusal(&one.read(5, 9, 99, 0)), Some((Why::BeyondTail, 4)));
    assert_eq!(one.words(2), ["2", "3"]);
    let Answer::Entries(few) = one.read(2, 9, 1, 0) else { panic!("entries are there") };
    assert_eq!((few.next, few.tail), (3, 4), "one entry always comes, however few bytes are wanted");
    assert_eq!(one.words(4), Vec::<String>::new());
    one.ask(&Request::Trim(Trim { name: "a".to_owned(), before: 99 }));
    assert_eq!(one.ask(&append("a", &[b"4"])), Answer::Appended(vec![4]), "positions are not used again");
    assert_eq!(one.words(4), ["4"]);
}

// A record that is in the log twice because an answer was lost, or lost because a later one came first.
#[test]
fn what_a_producer_sends_again_is_appended_once() {
    let mut one = One::new();
    one.create("a", 0);
    let produce = |epoch, sequence, entries: &[&[u8]]| {
        let entries = part("a", None, entries).entries;
        Request::Produce(Produce {
            name: "a".to_owned(),
            producer: 7,
            epoch,
            sequence,
            entries,
            admitted: None,
        })
    };
    assert_eq!(one.ask(&produce(0, 3, &[b"x"])), Answer::Rejected(Rejected::Unknown(0)));
    assert_eq!(one.ask(&produce(0, 0, &[b"0", b"1"])), Answer::Appended(vec![0]));
    assert_eq!(one.ask(&append("a", &[b"other"])), Answer::Appended(vec![2]));
    assert_eq!(one.ask(&produce(0, 3, &[b"3"])), Answer::Rejected(Rejected::OutOfSequence(2)));
    assert_eq!(one.ask(&produce(0, 2, &[b"2"])), Answer::Appended(vec![3]));
    one.logs.begin_snapshot();
    let mut chunk = Vec::new();
    while one.logs.snapshot_step(1 << 20, &mut chunk) == SnapshotStep::More {}
    let mut copy = One::new();
    copy.logs.install(&chunk).expect("a chunk reads back");
    for one in [&mut one, &mut copy] {
        assert_eq!(one.ask(&produce(0, 0, &[b"0", b"1"])), Answer::Appended(vec![0]));
        assert_eq!(one.ask(&produce(0, 2, &[b"2"])), Answer::Appended(vec![3]));
        assert_eq!(one.words(0), ["0", "1", "other", "2"]);
        one.ask(&Request::Seal(Named { name: "a".to_owned() }));
        assert_eq!(one.ask(&produce(0, 2, &[b"2"])), Answer::Appended(vec![3]), "what is done is done");
        assert_eq!(refusal(&one.ask(&produce(0, 3, &[b"3"]))), Some((Why::Sealed, 4)));
        one.ask(&Request::Delete(Named { name: "a".to_owned() }));
        one.create("a", 0);
        assert_eq!(one.ask(&produce(0, 3, &[b"3"])), Answer::Rejected(Rejected::Unknown(0)), "another log");
    }
}

// A log that forgets its bounds takes the host's memory.
#[test]
fn logs_hold_what_they_were_created_to_hold() {
    let mut one = One::new();
    for name in ["a", "b", "c"] {
        assert_eq!(one.create(name, if name == "b" { 50 } else { 0 }), Answer::Done);
    }
    assert_eq!(refusal(&one.create("d", 0)), Some((Why::Full, 0)));
    let large = vec![7; 100_000];
    let entries: Vec<&[u8]> = vec![&large; 9];
    for _ in 0..10 {
        one.ask(&append("a", &entries));
        assert!(one.logs.bytes() <= RETAIN_BYTES_MIN);
    }
    let (first, next) = one.logs.logs().next().map(|(_, log)| log.range()).expect("a is there");
    assert!(next == 90 && first > 0 && first < next, "{first} to {next}");
    let entries: Vec<&[u8]> = vec![&large; 11];
    assert_eq!(refusal(&one.ask(&append("a", &entries))), Some((Why::TooLarge, 0)));
    let nothing = vec![b"".as_slice(); APPEND_BYTES_MAX / 8];
    assert!(matches!(one.ask(&append("a", &nothing)), Answer::Appended(_)), "an empty entry costs 8 bytes");
    // By age, whole segments at a time.
    let before = one.logs.bytes();
    one.ask(&append("b", &[&large, &large]));
    one.time += 100;
    one.ask(&append("b", &[&large, &large]));
    assert_eq!(one.logs.bytes(), before + 2 * 100_008);
    assert_eq!(one.ask(&Request::Delete(Named { name: "b".to_owned() })), Answer::Done);
    assert_eq!(one.create("d", 0), Answer::Done, "a deleted log makes room");
}

// A waiting reader that nobody wakes waits for ever.
#[test]
fn a_reader_that_waits_is_reported_once() {
    let mut one = One::new();
    one.create("a", 0);
    one.read(0, 9, 99, 100);
    one.ask(&append("a", &[b"0"]));
    assert_eq!(one.reported, [(READER, Bytes::from_static(b"a"))]);
    one.ask(&append("a", &[b"1"]));
    assert_eq!(one.reported.len(), 1);
    one.read(2, 9, 99, 100);
    one.logs.forget_reader(NodeId::new(HostId(1), HostSlot(1)));
    one.logs.forget_reader(READER);
    one.ask(&append("a", &[b"2"]));
    assert_eq!(one.reported.len(), 1);
}

// A snapshot that mixes in what came later puts an entry into two slots once the log is replayed on it.
#[test]
fn a_snapshot_is_of_the_moment_it_began() {
    let mut one = One::within(tiny());
    one.create("a", 0);
    for nth in 0..40_u32 {
        one.ask(&append("a", &[format!("entry {nth}").as_bytes()]));
    }
    one.ask(&Request::Trim(Trim { name: "a".to_owned(), before: 7 }));
    let digest = one.logs.digest();
    one.logs.begin_snapshot();
    let mut chunks = Vec::new();
    loop {
        let mut chunk = Vec::new();
        let step = one.logs.snapshot_step(100, &mut chunk);
        chunks.push(chunk);
        one.ask(&append("a", &[b"later"]));
        if step == SnapshotStep::Done {
            break;
        }
    }
    assert!(chunks.len() > 3);
    let mut copy = One::new();
    copy.create("gone", 0);
    copy.logs.reset();
    chunks.iter().for_each(|chunk| copy.logs.install(chunk).expect("a chunk reads back"));
    assert_eq!(copy.logs.digest(), digest);
    assert_eq!(copy.words(7), (7..40).map(|nth| format!("entry {nth}")).collect::<Vec<_>>());
    assert_eq!(copy.logs.logs().count(), 1);
    assert!(copy.logs.install(&chunks[0][..chunks[0].len() - 1]).is_err());
}

// An entry read from the disk at another's position; memory that grows with what nobody reads.
#[test]
fn entries_on_the_disk_are_read_at_their_positions() {
    let mut one = One::within(tiny());
    one.create("a", 0);
    let word = |nth: u64| format!("entry {nth}{}", "!".repeat(nth as usize % 7));
    for nth in 0..200 {
        one.ask(&append("a", &[word(nth).as_bytes()]));
        one.store();
        let stat = one.logs.storage();
        assert!(stat.memory_bytes <= 100, "the open segment alone: {stat:?}");
    }
    let stat = one.logs.storage();
    assert_eq!((stat.segments, stat.segments), (one.disk.len() as u64, one.logs.blobs().len() as u64));
    assert!(stat.segments > 30 && stat.stored_bytes > 2_000 && stat.loads == 0, "{stat:?}");
    for from in 0..200 {
        for (entries_max, bytes_max) in [(1, 1), (1, 9_999), (3, 9_999), (50, 25), (50, 70), (50, 9_999)] {
            let Answer::Entries(read) = one.read(from, entries_max, bytes_max, 0) else {
                panic!("entries are there")
            };
            let words: Vec<String> =
                Rows::iter(&read.rows).map(|entry| String::from_utf8_lossy(entry).into_owned()).collect();
            assert_eq!(words, (from..read.next).map(word).collect::<Vec<_>>(), "from {from}");
            assert!(read.next > from && read.next - from <= entries_max.into() && read.tail == 200);
            assert!(words.len() == 1 || read.rows.len() <= bytes_max as usize);
        }
        assert!(one.logs.storage().cached_bytes <= 60 + 100, "{:?}", one.logs.storage());
    }
    let before = one.loads;
    one.read(199, 1, 1, 0);
    one.read(199, 1, 1, 0);
    assert_eq!(one.loads, before, "what is in memory is not read");
    one.ask(&Request::Trim(Trim { name: "a".to_owned(), before: 150 }));
    let retained = one.logs.blobs();
    assert!(retained.len() < 15 && retained.iter().all(|blob| one.logs.blob(blob.id) == Some(*blob)));
    assert_eq!(refusal(&one.read(149, 1, 1, 0)), Some((Why::Trimmed, 150)));
}

// A snapshot that carries what is on the disk grows with it; one that names what is not loses it.
#[test]
fn snapshots_name_what_is_stored_and_carry_the_rest() {
    let mut one = One::within(tiny());
    one.create("a", 0);
    for nth in 0..60_u32 {
        if nth == 40 {
            one.store();
        }
        one.ask(&append("a", &[format!("entry {nth}").as_bytes()]));
    }
    let stored = one.disk.len();
    let mut copy = one.copy();
    assert_eq!(copy.logs.blobs(), one.logs.blobs());
    assert_eq!(copy.logs.blobs().len(), stored);
    assert_eq!(copy.words(0).len(), one.words(0).len());
    assert_eq!((copy.logs.digest(), copy.logs.bytes()), (one.logs.digest(), one.logs.bytes()));
    for one in [&mut one, &mut copy] {
        one.store();
        one.ask(&append("a", &[b"later"]));
        one.store();
        assert!(one.logs.storage().memory_bytes <= 100);
        let mut words = Vec::new();
        while words.len() < 61 {
            words.extend(one.words(words.len() as u64));
        }
        assert_eq!((words[59].as_str(), words[60].as_str()), ("entry 59", "later"));
    }
    assert_eq!(copy.disk, one.disk, "servers divide logs alike");
    let chunk = [8, 1, 2, 3];
    assert!(copy.logs.install(&chunk).is_err());
}

// A name that is given twice: what a deleted log's segment holds is read as another's.
#[test]
fn a_log_made_again_has_other_segments() {
    let mut one = One::within(tiny());
    for (turn, word) in ["first log, first entry", "second log, first entry"].into_iter().enumerate() {
        one.create("a", 0);
        for _ in 0..9 {
            one.ask(&append("a", &[word.as_bytes()]));
        }
        one.store();
        assert_eq!(one.words(0)[0], word);
        one = one.copy();
        assert_eq!(one.words(0)[0], word, "turn {turn}");
        one.ask(&Request::Delete(Named { name: "a".to_owned() }));
        assert_eq!(one.logs.blobs(), []);
        one = one.copy();
    }
}

// Many logs with a little each fill the memory that one log with much may not.
#[test]
fn open_segments_are_bounded_together_and_so_is_what_waits_for_the_disk() {
    let mut one = One::within(tiny());
    let names: Vec<String> = (0..20).map(|nth| format!("log-{nth}")).collect();
    for name in &names {
        let (retain_bytes, capacity) = (RETAIN_BYTES_MIN, 20 * RETAIN_BYTES_MIN);
        one.ask(&Request::Create(Create {
            name: name.clone(),
            retain_bytes,
            retain_ms: 0,
            capacity,
            cleanup: None,
            first: None,
        }));
    }
    let mut copy = one.copy();
    for one in [&mut one, &mut copy] {
        for name in names.iter().chain(&names) {
            one.ask(&append(name, &[b"0123456789012345678901234567"]));
            one.store();
            assert!(one.logs.storage().memory_bytes <= 300, "{:?}", one.logs.storage());
        }
    }
    assert!(one.disk.len() > 20 && one.disk == copy.disk, "servers end the same segments");
    let mut appended = 0;
    while !one.logs.is_full() {
        one.ask(&append("log-1", &[b"0123456789012345678901234567"]));
        appended += 1;
    }
    assert!((10..20).contains(&appended), "{appended}");
    one.store();
    assert!(!one.logs.is_full());
}

// Half an append over two spaces is what nobody can repair later.
#[test]
fn an_append_over_two_spaces_is_in_both_or_in_none() {
    let name_in =
        |space| ["a", "b", "c", "d", "e", "f"].into_iter().find(|name| space_of(name, 2) == Space(space));
    let (zero, one) = (name_in(0).expect("a name"), name_in(1).expect("a name"));
    let mut shards = [0, 1].map(|space| Logs::new(Space(space), 2, SpaceBounds::default()));
    let mut gsn = 0;
    let mut on = |shards: &mut [Logs; 2], spaces: &[u16], request: &Request| {
        gsn += 1;
        let (body, order) = (Bytes::from(request.encoded()), order(gsn, spaces, 1));
        let inputs: Vec<(Space, Bytes)> = spaces
            .iter()
            .map(|&space| {
                let mut inputs = Vec::new();
                shards[usize::from(space)].inputs(&body, &order, &mut inputs);
                (Space(space), inputs.into())
            })
            .collect();
        let answers: Vec<Vec<u8>> = spaces
            .iter()
            .map(|&space| {
                let mut others = inputs.clone();
                others.retain(|(other, _)| *other != Space(space));
                let mut out = ShardOut::default();
                shards[usize::from(space)].execute(&body, &order, &others, &mut out);
                out.into_parts().0
            })
            .collect();
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "participants answer alike");
        Answer::decoded(&Bytes::from(answers[0].clone())).expect("shards answer in their own words")
    };
    let create = |name: &str| {
        let (retain_bytes, capacity) = (RETAIN_BYTES_MIN, RETAIN_BYTES_MIN);
        Request::Create(Create {
            name: name.to_owned(),
            retain_bytes,
            retain_ms: 0,
            capacity,
            cleanup: None,
            first: None,
        })
    };
    on(&mut shards, &[0], &create(zero));
    let both = Request::Append(Append {
        parts: vec![part(one, None, &[b"x"]), part(zero, None, &[b"y"])],
        admitted: None,
    });
    assert_eq!(refusal(&on(&mut shards, &[0, 1], &both)), Some((Why::NoSuchLog, 0)));
    assert_eq!(shards[0].bytes(), 0, "the log that exists took nothing either");
    on(&mut shards, &[1], &create(one));
    on(&mut shards, &[1], &append(one, &[b"before"]));
    assert_eq!(on(&mut shards, &[0, 1], &both), Answer::Appended(vec![1, 0]));
    let twice = Request::Append(Append {
        parts: vec![part(one, None, &[b"x"]), part(one, None, &[b"y"])],
        admitted: None,
    });
    assert_eq!(refusal(&on(&mut shards, &[1], &twice)), Some((Why::Malformed, 0)));
}

fn made(name: &str, retain_bytes: u64, cleanup: Cleanup) -> Request {
    let (retain_ms, capacity, cleanup) = (0, RETAIN_BYTES_MIN, Some(cleanup));
    Request::Create(Create { name: name.to_owned(), retain_bytes, retain_ms, capacity, cleanup, first: None })
}

fn appended(name: &str, admitted: Option<Admitted>) -> Request {
    let parts = vec![part(name, None, &[&[7; 100_000]])];
    Request::Append(Append { parts, admitted })
}

// Entries that go without being counted, or from a log whose maker never said that they may.
#[test]
fn only_logs_that_may_drop_entries_do_and_count_them() {
    let mut one = One::new();
    assert_eq!(one.ask(&made("grows", 0, Cleanup::Refuse)), Answer::Done);
    assert_eq!(one.ask(&made("shrinks", 0, Cleanup::DropOldest)), Answer::Done);
    assert_eq!(one.ask(&made("limited", RETAIN_BYTES_MIN, Cleanup::Refuse)), Answer::Done);
    assert_eq!(one.ask(&made("none", 1, Cleanup::Refuse)), Answer::refused(Why::Malformed));
    for _ in 0..40 {
        for name in ["grows", "shrinks"] {
            one.ask(&appended(name, Some(Admitted::WithinBudget)));
        }
    }
    // Ordered by a version that counted nothing: the hosts of that version did not count it either.
    (0..20).for_each(|_| drop(one.ask(&appended("limited", None))));
    let described = |one: &One| -> Vec<(u64, u64, u64)> {
        let described = one.logs.logs().map(|(_, log)| log.description());
        described.map(|it| (it.stat.first, it.stat.bytes, it.dropped)).collect()
    };
    let before = described(&one);
    let (grown, limited, all) = (40 * 100_008, before[1], before[2]);
    assert_eq!((before[0], all), ((0, grown, 0), (0, grown, 0)));
    assert!(limited.0 > 0 && limited.2 == 0, "{limited:?}");
    for _ in 0..10 {
        for name in ["grows", "limited", "shrinks"] {
            one.ask(&appended(name, Some(Admitted::BeyondBudget)));
        }
    }
    let after = described(&one);
    assert_eq!(after[0], (0, 50 * 100_008, 0), "it drops nothing whatever the budget");
    assert_eq!(after[1].2, after[1].0 - limited.0, "what goes beyond a limit is counted from now on");
    assert!(after[1].2 > 0);
    let (first, bytes, dropped) = after[2];
    assert!(first == dropped && dropped > 10, "{after:?}");
    assert!(bytes < all.1, "it holds less than before");
    one.ask(&Request::Trim(Trim { name: "shrinks".to_owned(), before: 60 }));
    assert_eq!(described(&one)[2].2, dropped, "what is trimmed is not dropped");
    let copy = one.copy();
    assert_eq!((described(&copy), copy.logs.digest()), (described(&one), one.logs.digest()));
    assert_eq!(one.logs.bytes(), described(&one).iter().map(|it| it.1).sum::<u64>());
}

// Expired entries that wait for the next append stay for ever where the budget lets none in.
#[test]
fn expired_entries_go_when_asked_for_and_count_as_expired() {
    let mut one = One::within(tiny());
    assert_eq!(one.create("a", 50), Answer::Done);
    (0..8).for_each(|_| drop(one.ask(&append("a", &[b"0123456789012345678901234567"]))));
    one.time += 1_000;
    assert_eq!(one.ask(&Request::Expire(Named { name: "a".to_owned() })), Answer::Done);
    let log = one.logs.logs().next().map(|(_, log)| log.description()).expect("a is there");
    assert!(log.stat.first > 0 && log.dropped == 0, "{log:?}");
}
