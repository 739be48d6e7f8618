//! Those of the partially ordered log.

use super::Vectors;
use kernel::Bytes;
use wire::fuzzylog::{
    AppendNodes, AppendedNode, AppendedNodes, FuzzyCall, FuzzyFailed, FuzzyFailure, FuzzyReply, NewNode,
    NumberedBy, PlayColour, PlayedNode, PlayedNodes, SeenTime, SnapshotColours, SnapshotTaken, SyncColour,
    TrimColour, TrimmedColour, native_call, native_reply, read_native_call, read_native_reply,
};

const SEEN: SeenTime = SeenTime { clock: 1_000, partition: 2, ahead: 1 };
const LATER: SeenTime = SeenTime { clock: 1_001, partition: 0, ahead: 0 };

// A call that reads as another one appends to colours that nobody named.
#[test]
fn fuzzylog() {
    let about = "Messages of the partially ordered log (protocol.md, section 10): calls to a host, and its replies, each behind its receiver's tag.";
    let mut vectors = Vectors::new("fuzzylog.txt", about);
    calls(&mut vectors);
    replies(&mut vectors);
    vectors.compare();
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn calls(vectors: &mut Vectors) {
    let mut call = |name: &str, meaning: &str, call: FuzzyCall| {
        let read =
            |bytes: &[u8]| read_native_call(&Bytes::copy_from_slice(bytes)).expect("a vector is a call");
        vectors.add(name, &format!("call 7: {meaning}"), &call, &native_call(&call), read);
    };
    let (id, seen) = (7, SEEN);
    let by = NumberedBy { client: 0x1122_3344_5566_7788, number: 4, below: 3 };
    let colours = || vec![bytes("red"), bytes("blue")];
    let nodes = vec![
        NewNode { colours: colours(), bodies: vec![bytes("both")] },
        NewNode { colours: colours(), bodies: vec![bytes("r"), bytes("b")] },
    ];
    call(
        "append",
        "two nodes of red and blue, the second with a body for each",
        AppendNodes { id, seen, by, nodes }.into(),
    );
    let colour = || bytes("red");
    let sync = |wait_ms| SyncColour { id, seen, colour: colour(), from: 5, wait_ms };
    call("sync", "red from 5 on", sync(0).into());
    call("sync-waiting", "red from 5 on, within a second", sync(1_000).into());
    call("play", "red from 5 on, up to 9", PlayColour { id, colour: colour(), from: 5, to: 9 }.into());
    let snapshot = SnapshotColours { id, seen, by, colours: colours() };
    call("snapshot", "how far red and blue go", snapshot.into());
    call("trim", "red begins at 5", TrimColour { id, colour: colour(), before: 5 }.into());
}

fn replies(vectors: &mut Vectors) {
    let mut reply = |name: &str, meaning: &str, reply: FuzzyReply| {
        let read =
            |bytes: &[u8]| read_native_reply(&Bytes::copy_from_slice(bytes)).expect("a vector is a reply");
        vectors.add(name, &format!("call 7: {meaning}"), &reply, &native_reply(&reply), read);
    };
    let (id, seen) = (7, LATER);
    let nodes = vec![
        AppendedNode { at: SEEN, positions: vec![5, 0] },
        AppendedNode { at: LATER, positions: vec![6, 1] },
    ];
    reply("appended", "where both nodes are", AppendedNodes { id, seen, nodes }.into());
    let nodes = vec![
        PlayedNode { at: SEEN, colours: vec![bytes("blue"), bytes("red")], body: bytes("both") },
        PlayedNode { at: LATER, colours: Vec::new(), body: Bytes::new() },
    ];
    reply(
        "played",
        "two nodes from 5 on, the second of another colour with the same digest",
        PlayedNodes { id, seen, from: 5, tail: 9, nodes }.into(),
    );
    let taken = SnapshotTaken { id, seen, at: LATER, tails: vec![7, 2] };
    reply("snapshot-taken", "red goes to 7, blue to 2", taken.into());
    reply("trimmed", "red begins at 5", TrimmedColour { id, first: 5 }.into());
    for why in FuzzyFailure::ALL {
        let name = format!("{why:?}").to_lowercase();
        let position = if matches!(why, FuzzyFailure::Trimmed | FuzzyFailure::BeyondTail) { 9 } else { 0 };
        reply(&format!("failed-{name}"), &why.to_string(), FuzzyFailed { id, why, position }.into());
    }
}
