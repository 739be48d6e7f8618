//! The gateway, call by call: its users' calls in, commands of one chain server out, and back.

use colours::names::{colour_of, colours_of, content_of};
use colours::{ColourGateway, ColourTimer, Colours, ColoursMessage};
use fuzzylog::client::{CommandDone, FuzzyClientIn, HeadBusy, NodesPage, Synced};
use fuzzylog::messages::chain_server::{ChainServerIn, FromClient};
use fuzzylog::partition::command::{Command, Delivered, Outcome, Placed};
use fuzzylog::{
    AppendId, AppendTime, ChainJournal, ChainMember, ChainProjection, ColourNode, ColourPlacement,
    FuzzyClient, FuzzyMessage, FuzzyParameters, NodePosition, PartitionId,
};
use kernel::client::{ConnectionIn, Disconnected, Event, Input};
use kernel::{Bytes, HostId, HostSlot, NodeId};
use std::time::Duration;
use table::{Did, Table, sends};
use wire::fuzzylog::{
    AppendNodes, AppendedNode, AppendedNodes, FuzzyCall, FuzzyFailed, FuzzyFailure, FuzzyReply, NewNode,
    NumberedBy, PlayedNode, PlayedNodes, SeenTime, SyncColour, TO_HOST, native_call, read_native_reply,
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
    let mut projection = ChainProjection::initial(PARTITION, &[HEAD()]);
    projection.members = vec![ChainMember { node: HEAD(), journal: Some(ChainJournal(7)) }];
    let placement = ColourPlacement::over(1);
    let client = FuzzyClient::new(FuzzyParameters::default(), placement, vec![node(1, 2)], vec![projection]);
    Table::new(ColourGateway::new(client), node(9, 1))
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
