//! Those of the partially ordered log.

use super::Vectors;
use kernel::Bytes;
use wire::fuzzylog::{
    AddPartition, AppendNodes, AppendPlayed, AppendedNode, AppendedNodes, AwaitSnapshot, ColoursCut,
    CutColours, FuzzyCall, FuzzyFailed, FuzzyFailure, FuzzyReply, LogCount, MapChanged, MoveColour,
    NameSnapshot, NewNode, NodeAt, NodeOrigin, NodePoint, NodesRestored, NodesScanned, NumberedBy,
    OpenRestored, PlayColour, PlayedAcross, PlayedNode, PlayedNodes, RemovePartition, RestoreNodes,
    ScanNodes, SeenTime, SnapshotColours, SnapshotIsHere, SnapshotNamed, SnapshotTaken, SyncColour,
    TrimColour, TrimSeen, TrimmedColour, native_call, native_reply, read_native_call, read_native_reply,
};

const SNAPSHOT: &str = "1-2-3@5f:ohio/red=7:ohio:5:tokyo:2~0";

const SEEN: SeenTime = SeenTime { clock: 1_000, partition: 2, ahead: 1 };
const POINT: NodePoint = NodePoint { colour: 0x1234, position: 5 };
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
    let nodes = vec![NewNode { colours: colours(), bodies: vec![bytes("both")] }];
    let played = AppendPlayed { id, seen, by, nodes, played: vec![vec![5, 2]] };
    call("append-played", "a node by one who has played red up to 5 and blue up to 2", played.into());
    let named = NameSnapshot { id, seen, colours: colours(), tails: vec![5, 2] };
    call("name-snapshot", "name red up to 5 and blue up to 2 for other regions", named.into());
    let awaited = AwaitSnapshot { id, snapshot: bytes(SNAPSHOT), wait_ms: 1_000 };
    call("await-snapshot", "all that a snapshot has, within a second", awaited.into());
    call("trim-seen", "red begins at 5", TrimSeen { id, seen, colour: colour(), before: 5 }.into());
    call("cut", "a time of all partitions", CutColours { id, by }.into());
    let (from, to) = (POINT, Some(NodePoint { position: 9, ..POINT }));
    let scan = |to, digests| ScanNodes { id, partition: 2, below: SEEN, from, to, digests };
    call("scan", "partition 2 from a point on, as of a cut", scan(None, false).into());
    call("scan-digest", "the digest from one point to another", scan(to, true).into());
    let nodes = vec![bytes("a node as a scan has it")];
    let restore = RestoreNodes { id, restore: 0x99, at: POINT, begins: true, nodes };
    call("restore", "a colour begins at 5, with one node", restore.into());
    call(
        "open-restored",
        "what restore 0x99 has made comes into view",
        OpenRestored { id, by, restore: 0x99 }.into(),
    );
    call("move", "red goes to partition 3", MoveColour { id, colour: colour(), partition: 3 }.into());
    call("add-partition", "partition 3", AddPartition { id, partition: Some(3) }.into());
    call("add-any-partition", "the first that is not used", AddPartition { id, partition: None }.into());
    call("remove-partition", "partition 3", RemovePartition { id, partition: 3 }.into());
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
    let nodes = vec![PlayedNode { at: SEEN, colours: vec![bytes("red")], body: bytes("one") }];
    let edges = vec![LogCount { region: bytes("tokyo"), count: 2 }];
    let origins = vec![NodeOrigin { region: bytes("ohio"), number: 3, edges }];
    let across = PlayedAcross { id, seen, from: 5, tail: 9, nodes, region: bytes("tokyo"), origins };
    reply("played-across", "in tokyo, ohio's node 3 of red, behind two of tokyo's", across.into());
    let named = SnapshotNamed { id, snapshot: bytes(SNAPSHOT) };
    reply("snapshot-named", "a snapshot's id", named.into());
    let here = SnapshotIsHere { id, seen, tails: vec![7], snapshot: bytes(SNAPSHOT) };
    reply("snapshot-is-here", "all of it is below 7", here.into());
    let cut = ColoursCut { id, at: SEEN, partitions: 3, opened: 7 };
    reply("cut-done", "in three partitions; an opening has brought 7 colours into view", cut.into());
    let node = |node| NodeAt { at: POINT, node };
    let nodes = vec![node(Some(bytes("a node"))), node(None)];
    let scanned = NodesScanned { id, nodes, digest: 0xabcd, next: Some(POINT) };
    reply("scanned", "a node, a colour whose nodes were trimmed, and where to go on", scanned.into());
    reply("restored", "the colour goes to 9, out of view", NodesRestored { id, tail: 9 }.into());
    let changed = MapChanged { id, version: 6, partition: 3 };
    reply("map-changed", "partition 3, by version 6 of the map", changed.into());
    for why in FuzzyFailure::ALL {
        let name = format!("{why:?}").to_lowercase();
        let position = if matches!(why, FuzzyFailure::Trimmed | FuzzyFailure::BeyondTail) { 9 } else { 0 };
        reply(&format!("failed-{name}"), &why.to_string(), FuzzyFailed { id, why, position }.into());
    }
}
