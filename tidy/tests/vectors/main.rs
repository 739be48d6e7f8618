//! The test vectors of `docs/protocol.md`: what the code writes is what the files say, and reads back as the same.
//!
//! The values are written out here. After a deliberate change: `ORDINATE_WRITE_VECTORS=1 cargo test -p tidy --test vectors`.

mod baggage;
mod fuzzylog;
mod txn;

use kernel::{Bytes, Decode, Encode, FrameReader, FrameWriter, HostId, HostSlot, NodeId};
use kv::{Answer, Command, Expect, Item, Query, Versioned};
use ordinate_client::protocol;
use parts::{AcceptorGroup, Acceptors, Sequence, SessionId, Slot};
use paxos::multipaxos::{batcher, client};
use paxos::{Commands, Configuration, GroupKind, HostEntry, Level, Message};
use sequence::native::{Native, Next, Numbered, Outcome};
use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of vectors under construction.
struct Vectors {
    name: &'static str,
    text: String,
}

impl Vectors {
    fn new(name: &'static str, about: &str) -> Self {
        let mut text = String::new();
        for line in about.lines() {
            writeln!(text, "# {line}").expect("a string takes all");
        }
        Self { name, text }
    }

    /// Adds one; `read` must make the value of the bytes again.
    fn add<T: PartialEq + Debug>(
        &mut self,
        name: &str,
        meaning: &str,
        value: &T,
        bytes: &[u8],
        read: impl Fn(&[u8]) -> T,
    ) {
        assert_eq!(&read(bytes), value, "{}: {name} reads back as something else", self.name);
        write!(self.text, "\nname     {name}\nmeaning  {meaning}\n").expect("a string takes all");
        for (line, row) in bytes.chunks(32).enumerate() {
            let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            let label = if line == 0 { "hex     " } else { "        " };
            writeln!(self.text, "{label} {}", hex.join(" ")).expect("a string takes all");
        }
    }

    /// The file in the repository is this one.
    fn compare(&self) {
        let path = folder().join(self.name);
        if std::env::var_os("ORDINATE_WRITE_VECTORS").is_some() {
            std::fs::write(&path, &self.text).expect("the repository can be written");
        }
        let filed = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = filed.lines().zip(self.text.lines()).position(|(filed, ours)| filed != ours);
        let line = differs.unwrap_or_else(|| filed.lines().count().min(self.text.lines().count()));
        assert!(
            filed == self.text,
            "docs/vectors/{}:{}: the code writes something else:\n{}",
            self.name,
            line + 1,
            self.text.lines().nth(line).unwrap_or("(nothing)")
        );
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/vectors")
}

fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

// A preface that changes locks out every client there is.
#[test]
fn prefaces() {
    let mut vectors = Vectors::new("preface.txt", "The 16 bytes that open a connection, either way.");
    let names =
        [(1, "a client or a server of version 1"), (0, "the server speaks none of the client's versions")];
    for (version, meaning) in names {
        let preface = protocol::preface(version);
        vectors.add(&format!("version-{version}"), meaning, &Some(version), &preface, |bytes| {
            protocol::version_of(bytes.try_into().expect("a preface has 16 bytes"))
        });
    }
    vectors.compare();
}

fn commands(rows: &[(u64, &[u8])]) -> Commands {
    let mut row = Vec::new();
    rows.iter().for_each(|(sequence, bytes)| Commands::push(&mut row, Sequence(*sequence), bytes));
    Commands::from_row(row)
}

fn open() -> batcher::Submit {
    batcher::Submit {
        session: SessionId(0x1122_3344_5566_7788),
        acknowledged: Sequence(0),
        kind: GroupKind::Open,
        commands: Commands::default(),
    }
}

fn put_city() -> Vec<u8> {
    encoded(|out| Command::Put { key: b"city", value: "Zürich".as_bytes() }.encode(out))
}

fn configuration() -> Configuration {
    let on = |position: u32| {
        ["a", "b", "c"].map(|host| NodeId::new(HostId::named(host), HostSlot(position))).to_vec()
    };
    let group = AcceptorGroup::majority(on(4)).expect("three different nodes are a group");
    let entry = |name: &str| HostEntry { name: name.into(), address: format!("{name}.example.net:7072") };
    Configuration {
        version: 1,
        first_slot: Slot(0),
        acceptors: Acceptors::new(vec![group]).expect("one group is enough"),
        leaders: on(2),
        proxy_leaders: on(3),
        replicas: on(5),
        batchers: on(1),
        unbatchers: on(6),
        hosts: vec![entry("a"), entry("b"), entry("c")],
        joined: Vec::new(),
    }
}

// A tag or field that moves makes old clients say what they do not mean.
#[test]
fn messages() {
    let about = "Messages, without the length that precedes them in a frame.\nThe first byte is the receiver (1 batcher, 7 client), the second the message.";
    let mut vectors = Vectors::new("messages.txt", about);
    let mut add = |name: &str, meaning: &str, message: Message| {
        let read =
            |bytes: &[u8]| Message::decoded(&Bytes::copy_from_slice(bytes)).expect("a vector is a message");
        vectors.add(name, meaning, &message, &message.encoded(), read);
    };
    let session = SessionId(0x1122_3344_5566_7788);
    add("submit-open", "open session 1122334455667788", open().into());
    let execute = batcher::Submit {
        acknowledged: Sequence(3),
        kind: GroupKind::ExecuteIn(Slot(6)),
        commands: commands(&[(3, &put_city()), (4, b"\x02\x01\x00\x00\x00k")]),
        ..open()
    };
    let meaning = "in the session opened in slot 6, command 3 (put city Zürich) and command 4 (delete k); every answer below 3 is here";
    add("submit-execute", meaning, execute.clone().into());
    let meaning = "the same in whatever session has the name: for those who send nothing twice";
    add("submit-execute-once", meaning, batcher::Submit { kind: GroupKind::Execute, ..execute }.into());
    add("submit-close", "close the session", batcher::Submit { kind: GroupKind::Close, ..open() }.into());
    let levels = [Level::Linearizable, Level::Sequential, Level::Eventual];
    for (level, word) in levels.into_iter().zip(["linearizable", "sequential", "eventual"]) {
        let get = encoded(|out| Query::Get { key: b"city" }.encode(out));
        let queries = commands(&[(1 << 63, &get)]);
        let meaning = format!("read 2^63 (get city), {word}, having seen slot 41");
        let query = batcher::Query { session, level, seen: Slot(42), queries };
        add(&format!("query-{word}"), &meaning, query.into());
    }
    let reconfigure = batcher::Reconfigure {
        session,
        sequence: Sequence((1 << 63) + 1),
        configuration: Arc::new(configuration()),
    };
    let meaning = "call 2^63 + 1: the membership a b c, every role on every host, as version 1";
    add("reconfigure", meaning, reconfigure.into());
    let results = |executed: u64, rows: &[(u64, client::Status, &[u8])]| {
        let mut row = Vec::new();
        let mut results = client::Row::default();
        for (sequence, status, bytes) in rows {
            results.push(Sequence(*sequence), *status, bytes);
        }
        results.encode(&mut row);
        // As it arrives: the row is one byte string.
        let results = client::Row::decoded(&Bytes::from(row)).expect("a row is a byte string");
        Message::from(client::Results { session, executed: Slot(executed), results })
    };
    add("results-opened", "the session is open since slot 6", results(7, &[]));
    let written = encoded(|out| Answer::Written { version: 9, previous: 0 }.encode(out));
    let rows: [(u64, client::Status, &[u8]); 2] =
        [(3, client::Status::Done, &written), (4, client::Status::Busy, b"")];
    add(
        "results-done",
        "command 3 was executed in slot 41 (written as version 9); command 4 was not: busy",
        results(42, &rows),
    );
    let statuses = [
        ("session-lost", client::Status::SessionLost),
        ("malformed", client::Status::Malformed),
        ("conflict", client::Status::Conflict),
    ];
    for (word, status) in statuses {
        add(&format!("results-{word}"), &format!("call 5 ended as {word}"), results(0, &[(5, status, b"")]));
    }
    vectors.compare();
}

// A frame that looks like noise would be executed.
#[test]
fn frames() {
    let about = "Whole frames: length, CRC-32C, and a body of length-prefixed messages.";
    let mut vectors = Vectors::new("frames.txt", about);
    let mut add = |name: &str, meaning: &str, messages: Vec<Message>| {
        let mut writer = FrameWriter::default();
        messages.iter().for_each(|message| writer.message(message));
        let bytes = std::mem::take(writer.bytes());
        vectors.add(name, meaning, &messages, &bytes, |bytes| {
            let frames = FrameReader { body_max: 1 << 20 };
            let body = frames.next(&mut bytes::BytesMut::from(bytes)).expect("sound").expect("whole");
            let mut reader = kernel::Reader::new(body);
            let mut messages = Vec::new();
            while reader.remaining() > 0 {
                let message = Bytes::decode(&mut reader).expect("a body is a row of messages");
                messages.push(Message::decoded(&message).expect("a vector is a message"));
            }
            messages
        });
    };
    add("one-message", "submit-open of messages.txt, alone", vec![open().into()]);
    let get = encoded(|out| Query::Get { key: b"city" }.encode(out));
    let queries = commands(&[(1 << 63, &get)]);
    let query =
        batcher::Query { session: open().session, level: Level::Linearizable, seen: Slot(0), queries };
    let meaning = "submit-open, and behind it a linearizable read (get city)";
    add("two-messages", meaning, vec![open().into(), query.into()]);
    vectors.compare();
}

// A command that reads as another one writes what nobody asked for.
#[test]
fn commands_of_the_store() {
    let mut vectors = Vectors::new("kv-commands.txt", "Commands of the key-value service.");
    let mut add = |name: &str, meaning: &str, command: Command<'static>| {
        let bytes = encoded(|out| command.encode(out));
        let read = |bytes: &[u8]| format!("{:?}", Command::decode(bytes));
        vectors.add(name, meaning, &format!("{:?}", Ok::<_, kv::WireError>(&command)), &bytes, read);
    };
    let city = "Zürich".as_bytes();
    add("put", "put city Zürich", Command::Put { key: b"city", value: city });
    add("put-empty", "put city to the empty value", Command::Put { key: b"city", value: b"" });
    add("delete", "delete city", Command::Delete { key: b"city" });
    let swap = |expect, value| Command::CompareAndSet { key: b"city", expect, value };
    add("set-if-absent", "put city Zürich if there is no city", swap(Expect::Absent, Some(city)));
    add("set-if-version", "put city Zürich if its version is 9", swap(Expect::Version(9), Some(city)));
    add("set-if-value", "put city Zürich if it is Bern", swap(Expect::Value(b"Bern"), Some(city)));
    add("delete-if-version", "delete city if its version is 9", swap(Expect::Version(9), None));
    add("increment", "add 5 to n", Command::Increment { key: b"n", by: 5 });
    add("decrement", "add -1 to n", Command::Increment { key: b"n", by: -1 });
    let both = vec![Command::Put { key: b"a", value: b"1" }, Command::Increment { key: b"n", by: 1 }];
    add("batch", "put a 1 and add 1 to n, both or neither", Command::Batch { commands: both });
    vectors.compare();
}

// A query that reads as another one answers what nobody asked.
#[test]
fn queries_of_the_store() {
    let mut vectors = Vectors::new("kv-queries.txt", "Queries of the key-value service.");
    let mut add = |name: &str, meaning: &str, query: Query<'static>| {
        let bytes = encoded(|out| query.encode(out));
        let read = |bytes: &[u8]| format!("{:?}", Query::decode(bytes));
        vectors.add(name, meaning, &format!("{:?}", Ok::<_, kv::WireError>(&query)), &bytes, read);
    };
    add("get", "get city", Query::Get { key: b"city" });
    add("get-many", "get a and b as of one moment", Query::GetMany { keys: vec![b"a", b"b"] });
    add(
        "scan",
        "at most 10 keys from bank/ on and below bank0",
        Query::Scan { start: b"bank/", end: Some(b"bank0"), limit: 10 },
    );
    add("scan-all", "at most 100 keys from the first on", Query::Scan { start: b"", end: None, limit: 100 });
    vectors.compare();
}

// An answer that reads as another one reports what never happened.
#[test]
fn answers_of_the_store() {
    let mut vectors = Vectors::new("kv-answers.txt", "Answers of the key-value service.");
    let mut add = |name: &str, meaning: &str, answer: Answer| {
        let bytes = encoded(|out| answer.encode(out));
        vectors.add(name, meaning, &answer, &bytes, |bytes| {
            Answer::decode(bytes).expect("a vector is an answer")
        });
    };
    let bern = || Versioned { value: b"Bern".to_vec(), version: 9 };
    let written = || Answer::Written { version: 12, previous: 9 };
    add("written", "written as version 12; it was at version 9", written());
    add(
        "deleted",
        "deleted by revision 12; it was at version 9",
        Answer::Deleted { version: 12, previous: 9 },
    );
    add("deleted-nothing", "there was nothing to delete", Answer::Deleted { version: 0, previous: 0 });
    add("mismatch", "not as expected: it holds Bern at version 9", Answer::Mismatch { found: Some(bern()) });
    add(
        "mismatch-at",
        "not as expected: it is at version 9, and its value is too large to be sent unasked",
        Answer::MismatchAt { version: 9 },
    );
    add("mismatch-absent", "not as expected: it does not exist", Answer::Mismatch { found: None });
    add(
        "counted",
        "the sum is -1, written as version 12; the key did not exist",
        Answer::Counted { number: -1, version: 12, previous: 0 },
    );
    let batch = vec![written(), Answer::Counted { number: 1, version: 13, previous: 0 }];
    add("batch", "both were executed", Answer::Batch(batch));
    let mismatch = Box::new(Answer::Mismatch { found: None });
    add(
        "batch-failed",
        "command 1 found no key, so nothing was executed",
        Answer::BatchFailed { index: 1, answer: mismatch },
    );
    add("found", "it holds Bern at version 9", Answer::Found(Some(bern())));
    add("found-nothing", "it does not exist", Answer::Found(None));
    add(
        "found-many",
        "the first holds Bern at version 9, the second does not exist",
        Answer::FoundMany(vec![Some(bern()), None]),
    );
    let items = vec![Item { key: b"city".to_vec(), versioned: bern() }];
    add(
        "page",
        "city holds Bern at version 9; go on with d",
        Answer::Page { items, next: Some(b"d".to_vec()) },
    );
    add("page-end", "no key, and none follows", Answer::Page { items: Vec::new(), next: None });
    add("invalid", "never executed, and why", Answer::Invalid("increment overflows 64 bits".into()));
    vectors.compare();
}

// A number handed to another space's caller is a number used twice.
#[test]
fn calls_of_the_sequence() {
    let about = "Messages of the sequence, without the length that precedes them in a frame.\nThe first byte is the receiver (20 the host's sequence, 21 its client), the second the message.";
    let mut vectors = Vectors::new("sequence.txt", about);
    let mut add = |name: &str, meaning: &str, message: Native| {
        let read =
            |bytes: &[u8]| Native::decoded(&Bytes::copy_from_slice(bytes)).expect("a vector is a message");
        vectors.add(name, meaning, &message, &message.encoded(), read);
    };
    let spaces = vec!["orders".to_owned(), "payments".to_owned()];
    let next = Next { id: 7, spaces, label: Bytes::from_static(b"o-17") };
    add("next", "call 7: a position in orders and payments, for o-17", Native::Next(next));
    let done = Numbered { id: 7, status: Outcome::Done as u8, numbers: vec![5, 9], gsn: 1200 };
    add("done", "call 7: number 5 of orders, 9 of payments, gsn 1200", Native::Numbered(done.clone()));
    for (word, outcome) in
        [("busy", Outcome::Busy), ("unknown", Outcome::Unknown), ("malformed", Outcome::Malformed)]
    {
        assert_eq!(Outcome::of(outcome as u8), outcome);
        let refused = Numbered { status: outcome as u8, numbers: Vec::new(), gsn: 0, ..done.clone() };
        add(word, &format!("call 7 ended as {word}"), Native::Numbered(refused));
    }
    vectors.compare();
}

// Log calls that another client would write or read otherwise.
// Table: of calls and replies.
#[test]
fn calls_of_the_log() {
    use shared_log::native::{Call, Native, Reply};
    use shared_log::{
        Answer, Append, Cleanup, Create, Description, Entries, List, LogIdentity, LogStat, Named, Part,
        Produce, Read, Refused, Rejected, Request, Rows, Trim, Why,
    };
    let about = "Messages of the log, without the length that precedes them in a frame.\nThe first byte is the receiver (22 the host's logs, 23 their client), the second the message.";
    let mut vectors = Vectors::new("log.txt", about);
    let mut add = |name: &str, meaning: &str, message: Native| {
        let read =
            |bytes: &[u8]| Native::decoded(&Bytes::copy_from_slice(bytes)).expect("a vector is a message");
        vectors.add(name, meaning, &message, &message.encoded(), read);
    };
    let name = || "jobs".to_owned();
    let rows = |entries: &[&[u8]]| {
        let mut rows = Rows::default();
        entries.iter().for_each(|entry| rows.push(entry));
        rows.into_bytes()
    };
    let mut call = |word: &str, meaning: &str, request: Request| {
        add(word, &format!("call 7: {meaning}"), Native::Call(Call { id: 7, request }));
    };
    let create = Create {
        name: name(),
        retain_bytes: 1 << 20,
        retain_ms: 60_000,
        capacity: 0,
        cleanup: Some(Cleanup::DropOldest),
        first: Some(0),
    };
    call(
        "create",
        "a log jobs of 1 MiB, entries retained for a minute, that drops its oldest at the disk budget",
        Request::Create(create),
    );
    let one = Part { name: name(), expect: None, entries: rows(&[b"a", b""]) };
    let other = Part { name: "audit".to_owned(), expect: Some(5), entries: rows(&[b"b"]) };
    let append = Append { parts: vec![one, other], admitted: None };
    call("append", "a and an empty entry to jobs, b to audit at 5", Request::Append(append));
    call("trim", "drops jobs below 9", Request::Trim(Trim { name: name(), before: 9 }));
    call("seal", "seals jobs", Request::Seal(Named { name: name() }));
    call("delete", "deletes jobs", Request::Delete(Named { name: name() }));
    let read = Read { name: name(), from: 9, entries_max: 100, bytes_max: 1 << 20, wait_ms: 500 };
    call("read", "100 entries of jobs from 9 on, waiting 500 ms", Request::Read(read));
    let recall = Read { name: name(), from: 2, entries_max: 100, bytes_max: 1 << 20, wait_ms: 0 };
    call("recall", "100 entries of jobs from 2 on, trimmed or not", Request::Recall(recall));
    call("identify", "which log jobs is", Request::Identify(Named { name: name() }));
    call("stat", "how far jobs goes", Request::Stat(Named { name: name() }));
    call("describe", "what jobs was made to be", Request::Describe(Named { name: name() }));
    call("list", "10 logs after jobs", Request::List(List { after: name(), limit: 10 }));
    let produce = Produce {
        name: name(),
        producer: 0x1122,
        epoch: 1,
        sequence: 4,
        entries: rows(&[b"a"]),
        admitted: None,
    };
    call("produce", "a to jobs as entry 4 of producer 1122 in epoch 1", Request::Produce(produce));
    let mut reply = |word: &str, meaning: &str, answer: Answer| {
        add(word, &format!("call 7 answered: {meaning}"), Native::Reply(Reply { id: 7, answer }));
    };
    reply("done", "done", Answer::Done);
    reply("appended", "the first entries are at 3 and 5", Answer::Appended(vec![3, 5]));
    let entries = Entries { first: 9, next: 11, tail: 12, sealed: true, rows: rows(&[b"a", b""]) };
    reply("entries", "a and an empty entry from 9 on, the tail is 12 for good", Answer::Entries(entries));
    let stat = LogStat {
        name: name(),
        first: 9,
        next: 12,
        bytes: 300,
        retain_bytes: 1 << 20,
        retain_ms: 60_000,
        sealed: false,
    };
    reply("logs", "jobs has 9 to 12, 300 bytes", Answer::Logs(vec![stat.clone()]));
    let description = Description { stat, cleanup: Cleanup::DropOldest, dropped: 4, dropped_bytes: 400 };
    reply("description", "jobs has dropped 4 entries of 400 bytes", Answer::Description(description));
    let refused = Refused { why: Why::Trimmed, name: name(), at: 9 };
    reply("trimmed", "jobs begins at 9", Answer::Refused(refused));
    reply("busy", "busy", Answer::Refused(Refused { why: Why::Busy, name: String::new(), at: 0 }));
    let identity =
        LogIdentity { space: 3, number: 7, created_ms: 1_700_000_000_000, retained: 2, waiting_bytes: 300 };
    reply(
        "identity",
        "jobs is log 7 of space 3; from 2 on it is here, and 300 bytes wait",
        Answer::Identity(identity),
    );
    let refused = Refused { why: Why::Unarchived, name: name(), at: 300 };
    reply("unarchived", "300 bytes of the space of jobs wait for the archive", Answer::Refused(refused));
    let refused = Refused { why: Why::OverBudget, name: name(), at: 900 };
    reply("over budget", "the host's logs hold 900 bytes, all that they may", Answer::Refused(refused));
    reply("rejected", "entry 3 comes next", Answer::Rejected(Rejected::OutOfSequence(3)));
    vectors.compare();
}

// A file that no test writes would go stale unseen.
#[test]
fn every_file_is_checked() {
    let names: std::collections::BTreeSet<String> = std::fs::read_dir(folder())
        .expect("the vectors are in the repository")
        .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .collect();
    let checked = [
        "baggage.txt",
        "frames.txt",
        "fuzzylog.txt",
        "kv-answers.txt",
        "kv-commands.txt",
        "kv-queries.txt",
        "log.txt",
        "messages.txt",
        "preface.txt",
        "sequence.txt",
        "txn.txt",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), checked);
}
