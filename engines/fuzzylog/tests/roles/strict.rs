//! The strict order: what a head writes into its row, when a tail answers a sync, and what a client waits for.

use crate::server::{PARTITION, client_role, node, serving_as};
use fuzzylog::chain_server::{ChainServerIn, FromClient, StableThrough, Submit, Sync, SyncThrough};
use fuzzylog::client::{CommandDone, FuzzyClientIn, FuzzyClientTimer, InForceThrough, NodesPage};
use fuzzylog::partition::command::{
    Append, Command, Delivered, Outcome, Placed, ProposeTime, RowEntry, TakeOver,
};
use fuzzylog::{
    AppendCall, AppendId, AppendTime, ChainEpoch, ChainJournal, ChainMember, ChainProjection, ChainServer,
    Colour, ColourNode, ColourPlacement, Content, FuzzyClient, FuzzyLog, FuzzyMessage, FuzzyOrder,
    FuzzyParameters, FuzzyRefusal, FuzzyRequest, FuzzyResponse, NodePosition, Owner, PartitionId,
    PartitionState, PlayCall, RowIndex, SyncCall,
};
use kernel::{Bytes, Effect, HostId, HostSlot, NodeId, RequestId, Role as _, Wall};
use std::time::Duration;
use table::{Did, Table, sends};

const EPOCH: ChainEpoch = ChainEpoch(2);
const OWNER: Owner = Owner { generation: 0, identity: 5 };
/// When it is, in microseconds, and by how much clocks may be off.
const NOW: u64 = 1_000_000;
const ERROR: u64 = 2_000;

fn wall(now: u64) -> Wall {
    Wall::between((now - ERROR) * 1_000, (now + ERROR) * 1_000)
}

fn strict() -> FuzzyParameters {
    let clock_error_max = Duration::from_millis(10);
    FuzzyParameters { order: FuzzyOrder::Strict, clock_error_max, ..FuzzyParameters::default() }
}

fn at(clock: u64) -> AppendTime {
    AppendTime { clock, ..AppendTime::ZERO }
}

/// Two colours in two partitions, the first in this one.
fn colours() -> Vec<Colour> {
    ColourPlacement::over(2).one_of_each()
}

fn content(colours: Vec<Colour>) -> Content {
    Content::new(colours, vec![Bytes::from_static(b"body")])
}

fn id(number: u64, content: &Content) -> AppendId {
    AppendId { client: 1, number, content: content.digest() }
}

fn single(number: u64, seen: AppendTime) -> Append {
    let here = colours().into_iter().find(|it| ColourPlacement::over(2).partition_of(*it) == PARTITION);
    let content = content(vec![here.expect("there is one of each")]);
    Append { id: id(number, &content), below: 0, seen, content }
}

fn both(number: u64) -> ProposeTime {
    let content = content(colours());
    ProposeTime { id: id(number, &content), below: 0, seen: AppendTime::ZERO, owner: OWNER, content }
}

fn take_over(number: u64) -> TakeOver {
    let content = content(colours());
    let owner = Owner { generation: 1, identity: 6 };
    TakeOver { id: id(number, &content), expected: None, owner, content }
}

// What goes ahead of a pending append gets a time that had passed when it began.
#[test]
fn nothing_goes_ahead_of_a_pending_append() {
    for (order, waiting) in [(FuzzyOrder::Serializable, 0), (FuzzyOrder::Strict, 1)] {
        let mut state = PartitionState::new(PARTITION, ColourPlacement::over(2), order);
        for (call, command) in (0..).zip([both(0).into(), single(1, AppendTime::ZERO).into()]) {
            state.apply(&RowEntry { origin: NodeId::ZERO, call, command });
        }
        assert_eq!(state.waiting().count(), waiting, "{order:?}");
    }
}

fn head() -> Table<ChainServer> {
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let mut table = serving_as(ChainServer::new(PARTITION, ColourPlacement::over(2), strict(), beside), true);
    table.wall = wall(NOW);
    table
}

fn submit(table: &mut Table<ChainServer>, command: impl Into<Command>) -> Did<FuzzyLog> {
    table.burst(client_role(), Submit { call: 7, epoch: EPOCH, command: command.into() })
}

fn is_busy(did: &Did<FuzzyLog>) -> bool {
    sends(did).iter().any(|(_, it)| matches!(it, FuzzyMessage::Client(FuzzyClientIn::HeadBusy(_))))
}

/// The clock when the whole row is applied.
fn clock_of(table: &mut Table<ChainServer>) -> u64 {
    let through = table.role.length();
    table.burst(node(2), StableThrough { epoch: EPOCH, through });
    assert_eq!(table.role.state().applied(), through);
    table.role.state().clock()
}

// A time that is below the true one is given to something that began after what has the time above was answered.
#[test]
fn a_head_gives_no_time_that_has_passed() {
    let commands: [Command; 3] = [single(0, AppendTime::ZERO).into(), both(1).into(), take_over(2).into()];
    for command in commands {
        let mut table = head();
        submit(&mut table, command.clone());
        let clock = clock_of(&mut table);
        assert!((NOW + ERROR..NOW + ERROR + 10).contains(&clock), "{clock} after {command:?}");
    }
    // What was begun keeps its time, also by another owner.
    let mut table = head();
    submit(&mut table, both(0));
    let before = clock_of(&mut table);
    table.wall = wall(NOW + 500);
    submit(&mut table, take_over(0));
    assert_eq!(clock_of(&mut table), before);
}

// By a clock that may be anywhere a time is a guess; what only finishes an append needs none, and must not wait for it.
#[test]
fn without_a_clock_nothing_is_begun() {
    let mut table = head();
    submit(&mut table, both(0));
    clock_of(&mut table);
    table.wall.usable = false;
    for command in [Command::from(single(1, AppendTime::ZERO)), both(2).into(), take_over(3).into()] {
        assert!(is_busy(&submit(&mut table, command.clone())), "{command:?}");
    }
    assert!(!is_busy(&submit(&mut table, take_over(0))), "it has a time");
    table.wall = wall(NOW);
    assert!(!is_busy(&submit(&mut table, single(1, AppendTime::ZERO))));
}

// One who has seen the future, by a clock that lies, makes everybody wait for it.
#[test]
fn a_head_does_not_follow_a_user_into_the_future() {
    let mut table = head();
    assert!(is_busy(&submit(&mut table, single(0, at(NOW + 60_000_000)))));
    let sync = Sync { call: 5, epoch: EPOCH, colour: Colour(0), seen: at(NOW + 60_000_000) };
    table.burst(client_role(), sync);
    assert_eq!(table.role.length(), RowIndex(0));
}

/// The only server of its chain, which is asked how far a colour goes.
fn tail() -> Table<ChainServer> {
    let mut table = head();
    let epoch = ChainEpoch(3);
    table.burst(node(3), fuzzylog::chain_server::SealChain { epoch, journal: None });
    let members = vec![ChainMember { node: node(1), journal: table.role.journal() }];
    let projection = ChainProjection { partition: PARTITION, epoch, members, whole_from: RowIndex(0) };
    table.burst(node(3), fuzzylog::chain_server::Project { projection, copies: false });
    table
}

fn synced(did: &Did<FuzzyLog>) -> bool {
    sends(did).iter().any(|(_, it)| matches!(it, FuzzyMessage::Client(FuzzyClientIn::Synced(_))))
}

// A sync that does not wait misses what was seen of another colour before it began.
#[test]
fn a_sync_waits_for_what_had_passed_when_it_began() {
    let mut table = tail();
    let epoch = ChainEpoch(3);
    let begin = Submit { call: 1, epoch, command: both(0).into() };
    table.burst(client_role(), begin);
    let proposed = table.role.state().first_queued().expect("it is pending");
    let sync = |begun, through| SyncThrough {
        call: 5,
        epoch,
        colour: colours()[0],
        seen: AppendTime::ZERO,
        begun,
        through,
    };
    assert!(!synced(&table.burst(client_role(), sync(at(proposed.clock + 1), RowIndex(0)))));
    assert!(synced(&table.burst(client_role(), sync(at(proposed.clock - 1), RowIndex(0)))));
    assert!(!synced(&table.burst(client_role(), sync(AppendTime::ZERO, RowIndex(2)))), "a row of two");
}

fn client() -> Table<FuzzyClient> {
    client_with(strict())
}

fn client_with(parameters: FuzzyParameters) -> Table<FuzzyClient> {
    let member = |host| ChainMember { node: node(host), journal: Some(ChainJournal(7)) };
    let members = vec![member(1), member(2)];
    let projection = ChainProjection { partition: PARTITION, epoch: EPOCH, members, whole_from: RowIndex(0) };
    let role = FuzzyClient::new(parameters, ColourPlacement::over(1), Vec::new(), vec![projection]);
    let mut table = Table::new(role, client_role());
    table.wall = wall(NOW);
    table
}

fn request(table: &mut Table<FuzzyClient>, request: FuzzyRequest) -> Did<FuzzyLog> {
    table.call(|role, cx| {
        role.on_request(RequestId(1), request, cx);
        role.on_burst_end(cx);
    })
}

fn append_seen(seen: AppendTime) -> FuzzyRequest {
    let content = content(vec![Colour(0)]);
    FuzzyRequest::Append(AppendCall { client: 1, number: 0, below: 0, seen, content })
}

fn responses(did: &Did<FuzzyLog>) -> Vec<FuzzyResponse> {
    let of = |effect: &Effect<_, FuzzyResponse>| match effect {
        Effect::Respond { response, .. } => Some(response.clone()),
        _ => None,
    };
    did.iter().filter_map(of).collect()
}

// An append that is answered before its time has passed has a later one than what begins then elsewhere.
#[test]
fn an_append_is_answered_when_its_time_has_passed() {
    let mut table = client();
    let did = request(&mut table, append_seen(AppendTime::ZERO));
    let call = sends(&did).into_iter().find_map(|(_, it)| match it {
        FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Submit(submit))) => Some(submit.call),
        _ => None,
    });
    let placed = vec![Placed { colour: Colour(0), position: NodePosition(0) }];
    let outcome: Outcome = Delivered { at: at(NOW + ERROR), placed }.into();
    let call = call.expect("it is submitted");
    let done = CommandDone { call, partition: PartitionId(0), outcome, takes_many_in: None };
    assert!(responses(&table.hear(node(2), FuzzyClientIn::from(done))).is_empty());
    assert_eq!(table.role.outstanding(), 1, "it counts");
    assert_eq!(table.role.passed_waits().count, 1);
    table.wall = wall(NOW + 2 * ERROR);
    assert!(responses(&table.timer(FuzzyClientTimer::Tick)).is_empty(), "it may be that late");
    table.wall = wall(NOW + 2 * ERROR + 1);
    table.wall.usable = false;
    assert!(responses(&table.timer(FuzzyClientTimer::Tick)).is_empty(), "nobody knows");
    table.wall.usable = true;
    let answered = responses(&table.timer(FuzzyClientTimer::Tick));
    assert!(matches!(&answered[..], [FuzzyResponse::Appended { .. }]), "{answered:?}");
}

// Pages that wait for a clock that lies ahead take the memory of the client's host.
#[test]
fn pages_that_wait_are_bounded_in_bytes() {
    let node_at = |clock| ColourNode {
        id: single(0, AppendTime::ZERO).id,
        at: at(clock),
        body: Bytes::from(vec![0; 1_000]),
        colours: vec![Colour(0)],
        across: None,
    };
    let mut table = client_with(FuzzyParameters { calls_bytes_max: 2_500, ..strict() });
    let mut play = |clock: u64| {
        let (colour, from, to) = (Colour(0), NodePosition(0), NodePosition(1));
        let did = request(&mut table, FuzzyRequest::Play(PlayCall { colour, from, to }));
        let call = sends(&did).into_iter().find_map(|(_, it)| match it {
            FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Play(play))) => Some(play.call),
            _ => None,
        });
        let call = call.expect("a server is asked");
        let page = NodesPage { call, colour, from, first: from, nodes: vec![node_at(clock)] };
        responses(&table.hear(node(2), FuzzyClientIn::from(page)))
    };
    assert!(play(NOW + ERROR).is_empty() && play(NOW + ERROR).is_empty());
    assert_eq!(play(NOW + ERROR), [FuzzyResponse::Refused(FuzzyRefusal::Busy)], "a third has no room");
    assert!(
        matches!(&play(NOW - 2 * ERROR)[..], [FuzzyResponse::Played(_)]),
        "what need not wait needs none"
    );
    table.wall = wall(NOW + 3 * ERROR);
    assert_eq!(responses(&table.timer(FuzzyClientTimer::Tick)).len(), 2);
    table.wall = wall(NOW);
    let did = request(&mut table, append_seen(AppendTime::ZERO));
    assert!(responses(&did).is_empty(), "the room is there again");
}

// What cannot be answered truly is not begun.
#[test]
fn a_client_refuses_without_a_clock_and_from_the_future() {
    let refused = |did: &Did<FuzzyLog>, why| {
        assert_eq!(responses(did), [FuzzyResponse::Refused(why)]);
        assert!(sends(did).is_empty(), "nothing is sent");
    };
    let mut table = client();
    refused(&request(&mut table, append_seen(at(NOW + 60_000_000))), FuzzyRefusal::FromTheFuture);
    table.wall.usable = false;
    refused(&request(&mut table, append_seen(AppendTime::ZERO)), FuzzyRefusal::NoClock);
    let sync = SyncCall { colour: Colour(0), from: NodePosition(0), seen: AppendTime::ZERO };
    refused(&request(&mut table, FuzzyRequest::Sync(sync)), FuzzyRefusal::NoClock);
}

// A tail that is asked before the head misses what the head has ordered, with a time that had passed.
#[test]
fn a_tail_is_asked_when_all_others_have_answered() {
    let mut table = client();
    let sync = SyncCall { colour: Colour(0), from: NodePosition(0), seen: AppendTime::ZERO };
    let did = request(&mut table, FuzzyRequest::Sync(sync));
    let asked = sends(&did);
    let [(to, FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Sync(question))))] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!(*to, node(1));
    let length = RowIndex(9);
    let in_force = InForceThrough { call: question.call, epoch: EPOCH, length };
    let asked = sends(&table.hear(node(1), FuzzyClientIn::from(in_force)));
    let [(to, FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::SyncThrough(question))))] =
        &asked[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!((*to, question.through, question.begun), (node(2), length, at(NOW + ERROR)));
}
