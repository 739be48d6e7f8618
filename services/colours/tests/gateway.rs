//! The gateway, call by call: its users' calls in, commands of one chain server out, and back.

use colours::names::{colour_of, colours_of, content_of};
use colours::{ColourGateway, ColourTimer, Colours, ColoursMessage, RegionNames};
use fuzzylog::client::{CommandDone, FuzzyClientIn, HeadBusy, LogsCounted, LogsFound, NodesPage, Synced};
use fuzzylog::messages::chain_server::{ChainServerIn, FromClient};
use fuzzylog::partition::command::{Command, Delivered, Outcome, Placed, RestoredTo};
use fuzzylog::{
    AppendId, AppendTime, ChainJournal, ChainMember, ChainProjection, ColourNode, ColourPlacement, Edge,
    FuzzyClient, FuzzyMessage, FuzzyParameters, NodePosition, PartitionId, RegionId,
};
use kernel::client::{ConnectionIn, Disconnected, Event, Input};
use kernel::{Bytes, Encode as _, HostId, HostSlot, NodeId};
use std::time::Duration;
use table::{Did, Table, sends};
use wire::fuzzylog::{
    AppendNodes, AppendPlayed, AppendedNode, AppendedNodes, AwaitSnapshot, FuzzyCall, FuzzyFailed,
    FuzzyFailure, FuzzyReply, NameSnapshot, NewNode, NodePoint, NodesRestored, NumberedBy, PlayedNode,
    PlayedNodes, RestoreNodes, SeenTime, SnapshotId, SyncColour, TO_HOST, TrimColour, TrimSeen, native_call,
    read_native_reply,
};

const PARTITION: PartitionId = PartitionId(0);

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

const HEAD: fn() -> NodeId = || node(1, 16);
const USER: fn() -> NodeId = || node(9, 1_000);

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A gateway whose client has one partition with one server.
fn gateway() -> Table<ColourGateway> {
    Table::new(role(), node(9, 1))
}

const OHIO: RegionId = RegionId(1);
const TOKYO: RegionId = RegionId(2);

/// The same in Tokyo.
fn gateway_in_tokyo() -> Table<ColourGateway> {
    let names = [(OHIO, "ohio".to_owned()), (TOKYO, "tokyo".to_owned())];
    Table::new(role().among(RegionNames::new("c", TOKYO, names)), node(9, 1))
}

fn role() -> ColourGateway {
    let mut projection = ChainProjection::initial(PARTITION, &[HEAD()]);
    projection.members = vec![ChainMember { node: HEAD(), journal: Some(ChainJournal(7)) }];
    let placement = ColourPlacement::over(1);
    let client = FuzzyClient::new(FuzzyParameters::default(), placement, vec![node(1, 2)], vec![projection]);
    ColourGateway::new(client)
}

fn ask(table: &mut Table<ColourGateway>, user: NodeId, call: impl Into<FuzzyCall>) -> Did<Colours> {
    let bytes = native_call(&call.into()).into();
    table.burst(user, ColoursMessage::User(Event::Input(Input { bytes })))
}

fn replies(did: &Did<Colours>) -> Vec<(NodeId, FuzzyReply)> {
    let output = |(to, message): (NodeId, ColoursMessage)| match message {
        ColoursMessage::Connection(ConnectionIn::Output(output)) => {
            Some((to, read_native_reply(&output.bytes).expect("a reply")))
        }
        _ => None,
    };
    sends(did).into_iter().filter_map(output).collect()
}

fn to_servers(did: &Did<Colours>) -> Vec<FromClient> {
    let of = |(_, message): (NodeId, ColoursMessage)| match message {
        ColoursMessage::Fuzzy(FuzzyMessage::ChainServer(ChainServerIn::Client(message))) => Some(message),
        _ => None,
    };
    sends(did).into_iter().filter_map(of).collect()
}

fn hear(table: &mut Table<ColourGateway>, message: impl Into<FuzzyClientIn>) -> Did<Colours> {
    table.hear(HEAD(), ColoursMessage::Fuzzy(FuzzyMessage::Client(message.into())))
}

fn append(id: u64, number: u64, nodes: Vec<NewNode>) -> AppendNodes {
    let by = NumberedBy { client: 1, number, below: 1 };
    AppendNodes { id, seen: SeenTime::default(), by, nodes }
}

fn in_colours(colours: &[&'static str]) -> NewNode {
    NewNode { colours: colours.iter().map(|name| bytes(name)).collect(), bodies: vec![bytes("x")] }
}

fn time(clock: u64) -> AppendTime {
    AppendTime { clock, partition: PARTITION, ahead: 0 }
}

fn seen(clock: u64) -> SeenTime {
    SeenTime { clock, partition: 0, ahead: 0 }
}

fn delivered(call: u64, clock: u64, colours: &[&'static str], position: u64) -> CommandDone {
    let placed =
        |name: &&'static str| Placed { colour: colour_of(name.as_bytes()), position: NodePosition(position) };
    let mut placed: Vec<Placed> = colours.iter().map(placed).collect();
    placed.sort_unstable_by_key(|it| it.colour);
    let outcome = Outcome::Delivered(Delivered { at: time(clock), placed });
    CommandDone { call, partition: PARTITION, outcome, takes_many_in: None }
}

fn sync(id: u64, wait_ms: u32) -> SyncColour {
    SyncColour { id, seen: SeenTime::default(), colour: bytes("red"), from: 0, wait_ms }
}

fn synced(did: &Did<Colours>, tail: u64) -> Synced {
    let FromClient::Sync(sync) = &to_servers(did)[0] else { panic!("a sync") };
    let (call, epoch, first, tail) = (sync.call, sync.epoch, NodePosition(0), NodePosition(tail));
    Synced { call, epoch, first, tail, last: time(3) }
}

// A call whose first node is there is answered although the second one is not, or in another order.
#[test]
fn a_call_is_answered_when_all_its_nodes_are_there() {
    let mut table = gateway();
    let nodes = vec![in_colours(&["red", "blue"]), in_colours(&["green"])];
    let asked = to_servers(&ask(&mut table, USER(), append(7, 4, nodes)));
    let calls: Vec<(u64, u64)> = asked
        .iter()
        .map(|message| match message {
            FromClient::Submit(submit) => match &submit.command {
                Command::Append(append) => (submit.call, append.id.number),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(calls.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [4, 5]);
    assert!(replies(&hear(&mut table, delivered(calls[1].0, 6, &["green"], 3))).is_empty());
    let did = hear(&mut table, delivered(calls[0].0, 5, &["red", "blue"], 2));
    let nodes = vec![
        AppendedNode { at: seen(5), positions: vec![2, 2] },
        AppendedNode { at: seen(6), positions: vec![3] },
    ];
    assert_eq!(replies(&did), [(USER(), AppendedNodes { id: 7, seen: seen(6), nodes }.into())]);
    assert_eq!(table.role.outstanding(), 0);
}

// A wrong call reaches a chain, or its user is not answered.
#[test]
fn wrong_calls_are_refused() {
    let mut table = gateway();
    let did = ask(&mut table, USER(), append(7, 4, vec![in_colours(&["red", "red"])]));
    let refused = |id, why| FuzzyReply::from(FuzzyFailed { id, why, position: 0 });
    assert_eq!(replies(&did), [(USER(), refused(7, FuzzyFailure::Malformed))]);
    assert!(to_servers(&did).is_empty());
    table.disk_full = true;
    let did = ask(&mut table, USER(), append(8, 4, vec![in_colours(&["red"])]));
    assert_eq!(replies(&did), [(USER(), refused(8, FuzzyFailure::DiskFull))]);
    let did = table.hear(USER(), ColoursMessage::User(Input { bytes: bytes("\x1a\x63") }.into()));
    let closes = |(_, message): &(NodeId, ColoursMessage)| {
        matches!(message, ColoursMessage::Connection(ConnectionIn::Close(_)))
    };
    assert!(sends(&did).iter().any(closes), "byte {TO_HOST} and a variant that nobody knows");
}

// A partition that is full is said to be, and one that does not answer is not waited for any more.
#[test]
fn calls_that_come_to_nothing_are_answered() {
    let mut table = gateway();
    let did = ask(&mut table, USER(), append(7, 4, vec![in_colours(&["red"])]));
    let FromClient::Submit(submit) = &to_servers(&did)[0] else { panic!("a command") };
    let did = hear(&mut table, HeadBusy { call: submit.call, partition: PARTITION, is_full: true });
    let failed = |id, why| FuzzyReply::from(FuzzyFailed { id, why, position: 0 });
    assert_eq!(replies(&did), [(USER(), failed(7, FuzzyFailure::Full))]);
    ask(&mut table, USER(), append(8, 5, vec![in_colours(&["red"])]));
    table.pass(Duration::from_secs(9));
    assert!(replies(&table.timer(ColourTimer::Overdue)).is_empty());
    table.pass(Duration::from_secs(1));
    assert_eq!(replies(&table.timer(ColourTimer::Overdue)), [(USER(), failed(8, FuzzyFailure::Unknown))]);
    ask(&mut table, USER(), append(9, 6, vec![in_colours(&["red"])]));
    table.hear(USER(), ColoursMessage::User(Disconnected {}.into()));
    assert_eq!(table.role.outstanding(), 0, "nobody waits for it");
}

// Followers of a colour each ask all servers twenty times a second, or miss a node, or wait for ever.
#[test]
fn syncs_that_wait_are_answered_when_there_is_a_node_or_their_time_is_over() {
    let mut table = gateway();
    let other = node(9, 1_001);
    for (id, user) in [(7, USER()), (8, other)] {
        let did = ask(&mut table, user, sync(id, 1_000));
        let did = hear(&mut table, synced(&did, 0));
        assert!(replies(&did).is_empty(), "there is nothing yet");
    }
    let look = table.timer(ColourTimer::Look);
    assert_eq!(to_servers(&look).len(), 1, "one looks for both");
    let did = hear(&mut table, synced(&look, 1));
    let FromClient::Play(play) = &to_servers(&did)[0] else { panic!("a play") };
    let names = vec![bytes("red")];
    let colours = colours_of(&names).expect("one");
    let body = content_of(&in_colours(&["red"]), &colours).body(0);
    let id = AppendId { client: 1, number: 1, content: 1 };
    let nodes = vec![ColourNode { id, at: time(3), colours: colours.clone(), body, across: None }];
    let page = |call| NodesPage {
        call,
        colour: colours[0],
        from: NodePosition(0),
        first: NodePosition(0),
        nodes: nodes.clone(),
    };
    let did = hear(&mut table, page(play.call));
    let played = |id| {
        let nodes = vec![PlayedNode { at: seen(3), colours: names.clone(), body: bytes("x") }];
        FuzzyReply::from(PlayedNodes { id, seen: seen(3), from: 0, tail: 1, nodes })
    };
    assert_eq!(replies(&did), [(USER(), played(7))]);
    let did = hear(&mut table, synced(&did, 1));
    let FromClient::Play(play) = &to_servers(&did)[0] else { panic!("a play") };
    let did = hear(&mut table, page(play.call));
    assert_eq!(replies(&did), [(other, played(8))]);
    let did = ask(&mut table, USER(), sync(9, 1_000));
    hear(&mut table, synced(&did, 0));
    table.pass(Duration::from_secs(1));
    let look = table.timer(ColourTimer::Look);
    let did = hear(&mut table, synced(&look, 0));
    let nothing = PlayedNodes { id: 9, seen: seen(3), from: 0, tail: 0, nodes: Vec::new() };
    assert_eq!(replies(&did), [(USER(), nothing.into())]);
}

fn snapshot_of(did: &Did<Colours>) -> SnapshotId {
    let text = match &replies(did)[..] {
        [(_, FuzzyReply::SnapshotNamed(named))] => named.snapshot.clone(),
        [(_, FuzzyReply::SnapshotIsHere(here))] => here.snapshot.clone(),
        other => panic!("{other:?}"),
    };
    std::str::from_utf8(&text).expect("text").parse().expect("an id")
}

fn is_failed(did: &Did<Colours>, expected: FuzzyFailure) {
    match &replies(did)[..] {
        [(_, FuzzyReply::FuzzyFailed(failed))] => assert_eq!(failed.why, expected),
        other => panic!("{other:?}"),
    }
}

/// A snapshot as ohio names it: five nodes of its own of red, two of tokyo's.
fn of_ohio() -> SnapshotId {
    let text = "9-41-0/red=7".to_owned();
    let mut id: SnapshotId = text.parse().expect("an id");
    let cluster = {
        let mut table = gateway_in_tokyo();
        let call =
            NameSnapshot { id: 1, seen: SeenTime::default(), colours: vec![bytes("red")], tails: vec![0] };
        let did = ask(&mut table, USER(), call);
        let FromClient::CountLogs(count) = &to_servers(&did)[0] else { panic!("a count") };
        let counted = LogsCounted { call: count.call, first: NodePosition(0), counts: Vec::new() };
        snapshot_of(&hear(&mut table, counted)).across.expect("regions").cluster
    };
    let logs = [("ohio".to_owned(), 5), ("tokyo".to_owned(), 2)].into_iter().collect();
    let logs = [("red".to_owned(), logs)].into_iter().collect();
    id.across = Some(wire::fuzzylog::SnapshotAcross { cluster, region: "ohio".to_owned(), logs });
    id
}

fn wait_for(id: &SnapshotId, wait_ms: u32) -> AwaitSnapshot {
    AwaitSnapshot { id: 5, snapshot: id.to_string().into_bytes().into(), wait_ms }
}

// One who comes from another region is let go on before what it has seen is there, or waits for ever.
#[test]
fn a_snapshot_of_another_region_is_waited_for() {
    let mut table = gateway_in_tokyo();
    let id = of_ohio();
    let did = ask(&mut table, USER(), wait_for(&id, 1_000));
    let found = |did: &Did<Colours>, below: Option<u64>| {
        let FromClient::FindLogs(find) = &to_servers(did)[0] else { panic!("a question") };
        let counts = [Edge { region: OHIO, count: 5 }, Edge { region: TOKYO, count: 2 }];
        assert_eq!(find.counts, counts);
        LogsFound { call: find.call, below: below.map(NodePosition), at: time(30) }
    };
    let not_yet = found(&did, None);
    assert!(replies(&hear(&mut table, not_yet)).is_empty());
    let look = table.timer(ColourTimer::Look);
    let here = found(&look, Some(12));
    let here = snapshot_of(&hear(&mut table, here));
    assert_eq!(here.tail("red"), 12);
    let across = here.across.as_ref().expect("regions");
    assert_eq!((across.region.as_str(), across.logs["red"]["ohio"]), ("tokyo", 5));
    // What was seen is of tokyo now, and is taken there.
    let by = NumberedBy { client: 1, number: 1, below: 1 };
    let append = |played| AppendPlayed {
        id: 6,
        seen: here.seen,
        by,
        nodes: vec![in_colours(&["red"])],
        played: vec![vec![played]],
    };
    let did = ask(&mut table, USER(), append(12));
    let FromClient::Submit(submit) = &to_servers(&did)[0] else { panic!("a command") };
    let Command::Append(appended) = &submit.command else { panic!("an append") };
    assert_eq!((appended.content.played(0), appended.seen), (NodePosition(12), time(30)));
    // And in vain.
    let did = ask(&mut table, USER(), wait_for(&id, 1_000));
    let not_yet = found(&did, None);
    hear(&mut table, not_yet);
    table.pass(Duration::from_secs(1));
    let look = table.timer(ColourTimer::Look);
    let not_yet = found(&look, None);
    is_failed(&hear(&mut table, not_yet), FuzzyFailure::NotHere);
}

// Times and positions of another region are numbers that mean something else here.
#[test]
fn what_is_of_another_region_or_of_nobody_is_refused() {
    let mut table = gateway_in_tokyo();
    let id = of_ohio();
    let seen_in_ohio = SeenTime { clock: 9, partition: 1 << 6, ahead: 0 };
    let by = NumberedBy { client: 1, number: 1, below: 1 };
    let append = AppendNodes { id: 1, seen: seen_in_ohio, by, nodes: vec![in_colours(&["red"])] };
    is_failed(&ask(&mut table, USER(), append), FuzzyFailure::OtherRegion);
    let sync = SyncColour { id: 2, seen: seen_in_ohio, colour: bytes("red"), from: 0, wait_ms: 0 };
    is_failed(&ask(&mut table, USER(), sync), FuzzyFailure::OtherRegion);
    let trim = |seen| TrimSeen { id: 3, seen, colour: bytes("red"), before: 1 };
    is_failed(&ask(&mut table, USER(), trim(seen_in_ohio)), FuzzyFailure::OtherRegion);
    is_failed(&ask(&mut table, USER(), trim(SeenTime::default())), FuzzyFailure::OtherRegion);
    let unsaid = TrimColour { id: 3, colour: bytes("red"), before: 1 };
    is_failed(&ask(&mut table, USER(), unsaid), FuzzyFailure::OtherRegion);
    let plain: SnapshotId = "9-41-0/red=7".parse().expect("an id");
    is_failed(&ask(&mut table, USER(), wait_for(&plain, 0)), FuzzyFailure::OtherRegion);
    let mut other = id.clone();
    other.across.as_mut().expect("regions").cluster += 1;
    is_failed(&ask(&mut table, USER(), wait_for(&other, 0)), FuzzyFailure::NoSnapshot);
    let mut unknown = id.clone();
    unknown.across.as_mut().expect("regions").region = "iowa".to_owned();
    is_failed(&ask(&mut table, USER(), wait_for(&unknown, 0)), FuzzyFailure::NoSnapshot);
    let text = id.to_string();
    let cut =
        AwaitSnapshot { id: 4, snapshot: text[..text.len() - 1].to_owned().into_bytes().into(), wait_ms: 0 };
    is_failed(&ask(&mut table, USER(), cut), FuzzyFailure::NoSnapshot);
    // Where there is one region alone, an id that names several is another cluster's.
    is_failed(&ask(&mut gateway(), USER(), wait_for(&id, 0)), FuzzyFailure::NoSnapshot);
    assert_eq!(table.role.outstanding(), 0);
}

// Nodes of a backup that a region takes get positions that other regions do not have; a forged time stops all clocks.
#[test]
fn nodes_of_a_backup_are_taken_if_they_can_be() {
    let stored = |clock| {
        let (colours, body) = (vec![colour_of(b"red")], bytes("body"));
        let id = AppendId { client: 1, number: 2, content: 3 };
        let across = Some(Box::new(fuzzylog::Across { edges: Vec::new(), source: None }));
        ColourNode { id, at: time(clock), colours, body, across }
    };
    let restore = |node: Bytes| {
        let at = NodePoint { colour: colour_of(b"red").0, position: 5 };
        RestoreNodes { id: 7, restore: 99, at, begins: true, nodes: vec![node] }
    };
    let sound = || Bytes::from(stored(4).encoded());
    is_failed(&ask(&mut gateway_in_tokyo(), USER(), restore(sound())), FuzzyFailure::OtherRegion);
    let mut table = gateway();
    is_failed(&ask(&mut table, USER(), restore(bytes("no node"))), FuzzyFailure::Malformed);
    let forged = stored(u64::MAX).encoded().into();
    is_failed(&ask(&mut table, USER(), restore(forged)), FuzzyFailure::Malformed);
    let did = ask(&mut table, USER(), restore(sound()));
    let Some(FromClient::Submit(submit)) = to_servers(&did).pop() else { panic!("{did:?}") };
    let Command::Restore(command) = submit.command else { panic!("{:?}", submit.command) };
    assert_eq!((command.at, command.begins, command.nodes.len()), (NodePosition(5), true, 1));
    assert_eq!(
        command.nodes[0],
        ColourNode { across: None, ..stored(4) },
        "what regions know of it is nothing here"
    );
    let outcome = RestoredTo { tail: NodePosition(6) }.into();
    let (call, partition) = (submit.call, PARTITION);
    let did = hear(&mut table, CommandDone { call, partition, outcome, takes_many_in: None });
    assert_eq!(replies(&did), [(USER(), NodesRestored { id: 7, tail: 6 }.into())]);
}
