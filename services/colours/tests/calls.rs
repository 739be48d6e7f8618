//! Hostile bytes where users' calls are read; what they look like stands in `docs/vectors/fuzzylog.txt`.

use kernel::Bytes;
use table::formats::{Format, withstand};
use wire::fuzzylog::{
    AddPartition, AppendNodes, AppendPlayed, AppendedNode, AppendedNodes, AwaitSnapshot, ColoursCut,
    CutColours, FuzzyCall, FuzzyFailed, FuzzyFailure, FuzzyReply, LogCount, MapChanged, MoveColour,
    NameSnapshot, NewNode, NodeAt, NodeOrigin, NodePoint, NodesRestored, NodesScanned, NumberedBy,
    OpenRestored, PlayColour, PlayedAcross, PlayedNode, PlayedNodes, RemovePartition, RestoreNodes,
    ScanNodes, SeenTime, SnapshotColours, SnapshotIsHere, SnapshotNamed, SnapshotTaken, SyncColour,
    TrimColour, TrimSeen, TrimmedColour,
};

// Bytes of a stranger that panic a host, or take more memory than they have.
#[test]
fn damaged_calls_and_replies_are_refused() {
    let seen = SeenTime { clock: 1, partition: 2, ahead: 3 };
    let (id, by) = (7, NumberedBy { client: 1, number: 4, below: 3 });
    let colour = || Bytes::from_static(b"red");
    let at = NodePoint { colour: 5, position: 6 };
    let nodes = vec![NewNode { colours: vec![colour()], bodies: vec![colour()] }];
    let calls: Vec<FuzzyCall> = vec![
        AppendNodes { id, seen, by, nodes: nodes.clone() }.into(),
        SyncColour { id, seen, colour: colour(), from: 1, wait_ms: 2 }.into(),
        PlayColour { id, colour: colour(), from: 1, to: 2 }.into(),
        SnapshotColours { id, seen, by, colours: vec![colour()] }.into(),
        TrimColour { id, colour: colour(), before: 1 }.into(),
        AppendPlayed { id, seen, by, nodes: nodes.clone(), played: vec![vec![1]] }.into(),
        NameSnapshot { id, seen, colours: vec![colour()], tails: vec![1] }.into(),
        AwaitSnapshot { id, snapshot: colour(), wait_ms: 2 }.into(),
        TrimSeen { id, seen, colour: colour(), before: 1 }.into(),
        CutColours { id, by }.into(),
        ScanNodes { id, partition: 1, below: seen, from: at, to: Some(at), digests: true }.into(),
        RestoreNodes { id, restore: 1, at, begins: true, nodes: vec![colour()] }.into(),
        OpenRestored { id, by, restore: 1 }.into(),
        MoveColour { id, colour: colour(), partition: 1 }.into(),
        AddPartition { id, partition: Some(1) }.into(),
        RemovePartition { id, partition: 1 }.into(),
    ];
    let appended = vec![AppendedNode { at: seen, positions: vec![5] }];
    let played = vec![PlayedNode { at: seen, colours: vec![colour()], body: colour() }];
    let edges = vec![LogCount { region: colour(), count: 1 }];
    let origins = vec![NodeOrigin { region: colour(), number: 1, edges }];
    let replies: Vec<FuzzyReply> = vec![
        AppendedNodes { id, seen, nodes: appended }.into(),
        PlayedNodes { id, seen, from: 1, tail: 2, nodes: played.clone() }.into(),
        SnapshotTaken { id, seen, at: seen, tails: vec![1] }.into(),
        TrimmedColour { id, first: 1 }.into(),
        PlayedAcross { id, seen, from: 1, tail: 2, nodes: played, region: colour(), origins }.into(),
        SnapshotNamed { id, snapshot: colour() }.into(),
        SnapshotIsHere { id, seen, tails: vec![1], snapshot: colour() }.into(),
        ColoursCut { id, at: seen, partitions: 1, opened: 1 }.into(),
        NodesScanned { id, nodes: vec![NodeAt { at, node: Some(colour()) }], digest: 1, next: Some(at) }
            .into(),
        NodesRestored { id, tail: 1 }.into(),
        MapChanged { id, version: 1, partition: 1 }.into(),
        FuzzyFailed { id, why: FuzzyFailure::Trimmed, position: 1 }.into(),
    ];
    withstand(&[Format::of(&calls), Format::of(&replies)]);
}
