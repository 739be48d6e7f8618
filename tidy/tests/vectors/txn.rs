//! Those of transactions.

use super::Vectors;
use kernel::Bytes;
use wire::txn::{
    Begin, Begun, CallKey, Commit, CommitFate, CommitStatus, Committed, Condition, Failed, Fence, Fenced,
    GiveUp, KeyRange, KeyRow, KeyScan, KeyWrite, NotMet, OneShot, ReadOnly, ReadRows, ReadWithin, RowsWithin,
    ScannedRows, Timestamp, TxnCall, TxnFailure, TxnLevel, TxnReply, native_call, native_reply,
    read_native_call, read_native_reply,
};

// A call that reads as another one commits what nobody asked for.
#[test]
fn transactions() {
    let about = "Messages of transactions (protocol.md, section 9): calls to a host, and its replies, each behind its receiver's tag.";
    let mut vectors = Vectors::new("txn.txt", about);
    calls(&mut vectors);
    replies(&mut vectors);
    vectors.compare();
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn calls(vectors: &mut Vectors) {
    let mut call = |name: &str, meaning: &str, call: TxnCall| {
        let read =
            |bytes: &[u8]| read_native_call(&Bytes::copy_from_slice(bytes)).expect("a vector is a call");
        vectors.add(name, &format!("call 7: {meaning}"), &call, &native_call(&call), read);
    };
    let (id, token, txn, acknowledged) = (7, Timestamp(1_000), 5, 3);
    let key = CallKey { session: 0x1122_3344_5566_7788, number: 4 };
    let scan = || KeyScan { range: KeyRange::with_prefix(bytes("p/")), limit: 100 };
    for (name, level) in [
        ("read-strict", TxnLevel::Strict),
        ("read-rss", TxnLevel::Rss),
        ("read-process-ordered", TxnLevel::ProcessOrdered),
        ("read-at", TxnLevel::At(Timestamp(900))),
        ("read-stale", TxnLevel::Stale(2_000_000)),
    ] {
        let read = ReadOnly { id, token, level, keys: vec![bytes("a")], scans: vec![scan()] };
        call(name, &format!("key a and 100 rows of p/ at the level {level}"), read.into());
    }
    let writes = || {
        let put = KeyWrite { key: bytes("a"), value: Some(bytes("1")) };
        vec![put, KeyWrite { key: bytes("b"), value: None }]
    };
    let one_shot = OneShot {
        id,
        token,
        key: Some(key),
        acknowledged,
        conditions: vec![Condition { key: bytes("a"), version: Timestamp(17) }],
        writes: writes(),
        reads: vec![bytes("c")],
        otherwise: vec![bytes("a")],
    };
    call("one-shot", "if a has version 17: a is 1, b goes, c is read; else a is read", one_shot.into());
    call("begin", "begins", Begin { id, token, priority: None }.into());
    call(
        "begin-again",
        "begins with the first attempt's priority",
        Begin { id, token, priority: Some(Timestamp(800)) }.into(),
    );
    let within = ReadWithin { id, txn, keys: vec![bytes("a")], scans: vec![scan()] };
    call("read-within", "the same keys within transaction 5", within.into());
    let commit = Commit { id, txn, key: Some(key), acknowledged, writes: writes() };
    call("commit", "commits transaction 5", commit.into());
    call("give-up", "gives up transaction 5", GiveUp { txn }.into());
    call("fence", "a fence", Fence { id, token }.into());
    call("status", "what became of commit 4 of a session", CommitStatus { id, key }.into());
}

fn replies(vectors: &mut Vectors) {
    let (id, token) = (7, Timestamp(1_000));
    let mut reply = |name: &str, meaning: &str, reply: TxnReply| {
        let read =
            |bytes: &[u8]| read_native_reply(&Bytes::copy_from_slice(bytes)).expect("a vector is a reply");
        vectors.add(name, &format!("call 7: {meaning}"), &reply, &native_reply(&reply), read);
    };
    let at = Timestamp(1_200);
    let rows = || {
        let found = KeyRow { key: bytes("a"), value: Some(bytes("1")), version: Timestamp(17) };
        vec![found, KeyRow { key: bytes("c"), value: None, version: Timestamp(0) }]
    };
    let scans = || vec![ScannedRows { rows: rows(), next: Some(bytes("p/7")) }];
    reply(
        "read-rows",
        "what was read at 1200",
        ReadRows { id, token: at, at, rows: rows(), scans: scans() }.into(),
    );
    reply("committed", "committed at 1200", Committed { id, token: at, at, rows: rows() }.into());
    reply("not-met", "condition 0 does not hold", NotMet { id, token, condition: 0, rows: rows() }.into());
    reply("begun", "begun", Begun { id, priority: Timestamp(800) }.into());
    reply(
        "rows-within",
        "what was read under locks",
        RowsWithin { id, token, rows: rows(), scans: scans() }.into(),
    );
    reply("fenced", "the fence has passed", Fenced { id, token }.into());
    reply("fate", "it was committed at 1200", CommitFate { id, committed: Some(at) }.into());
    for why in TxnFailure::ALL {
        let name = format!("{why:?}").to_lowercase();
        reply(&format!("failed-{name}"), &why.to_string(), Failed { id, why }.into());
    }
}
