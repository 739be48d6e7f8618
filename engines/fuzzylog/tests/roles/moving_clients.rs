//! Clients, while colours move from one partition to another.

use crate::moving::{BEGUN, ENDED, SOURCE, TARGET, colour_in, content, moves, placement};
use crate::server::{client_role, node};
use fuzzylog::chain_server::ChainServerIn;
use fuzzylog::client::{ColourElsewhere, ColoursPlaced, CommandDone, FuzzyClientIn, FuzzyClientTimer};
use fuzzylog::director::MoveColours;
use fuzzylog::messages::chain_server::FromClient;
use fuzzylog::messages::director::DirectorIn;
use fuzzylog::partition::command::{Command, Delivered, Elsewhere, Held, Outcome, Placed, Proposed};
use fuzzylog::{
    AppendCall, AppendId, AppendTime, ChainJournal, ChainMember, ChainProjection, Colour, FuzzyClient,
    FuzzyMessage, FuzzyParameters, FuzzyRequest, FuzzyResponse, MapVersion, MovedColour, NodePosition, Owner,
    PartitionId,
};
use kernel::{Effect, HostId, HostSlot, NodeId, RequestId, Role as _};
use table::{Table, sent};

/// A client of two partitions, each with one server.
fn client() -> Table<FuzzyClient> {
    let projection = |partition, host| {
        let members = vec![ChainMember { node: node(host), journal: Some(ChainJournal(7)) }];
        ChainProjection { members, ..ChainProjection::initial(partition, &[node(host)]) }
    };
    let initial = vec![projection(SOURCE, 1), projection(TARGET, 2)];
    let directors = vec![NodeId::new(HostId(1), HostSlot(2))];
    Table::new(FuzzyClient::new(FuzzyParameters::default(), placement(), directors, initial), client_role())
}

// A client that goes on asking where a colour was never has an answer; one that asks elsewhere under another name appends twice.
#[test]
fn a_client_asks_for_the_map_and_goes_on_where_the_colour_is() {
    let mut table = client();
    let colour = colour_in(SOURCE, 0);
    let call =
        AppendCall { client: 1, number: 7, below: 0, seen: AppendTime::ZERO, content: content(&[colour]) };
    let did = table.call(|role, cx| {
        role.on_request(RequestId(1), FuzzyRequest::Append(call), cx);
        role.on_burst_end(cx);
    });
    let submits = |did: &table::Did<fuzzylog::FuzzyLog>| -> Vec<(NodeId, u64, AppendId)> {
        let of = |(to, message, _)| match message {
            FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Submit(it))) => match it.command {
                Command::Append(append) => Some((to, it.call, append.id)),
                _ => None,
            },
            _ => None,
        };
        sent(did).into_iter().filter_map(of).collect()
    };
    let (to, asked, id) = submits(&did)[0];
    assert_eq!(to, node(1));
    let refused = CommandDone {
        call: asked,
        partition: SOURCE,
        outcome: Elsewhere { version: ENDED }.into(),
        takes_many_in: None,
    };
    let did = table.burst(node(1), FuzzyClientIn::from(refused));
    let wants = sent(&did).into_iter().any(|(_, message, _)| {
        matches!(message, FuzzyMessage::Director(DirectorIn::WantMap(it)) if it.version == ENDED)
    });
    assert!(wants);
    let moved = vec![MovedColour { colour, partition: TARGET }];
    let map = ColoursPlaced { moves: moves(ENDED, moved, None) };
    let did = table.burst(node(1), FuzzyClientIn::from(map));
    let again = submits(&did);
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].0, again[0].2), (node(2), id));
    assert_ne!(again[0].1, asked, "a late answer to the first question is none to this one");
    // What is not known to be elsewhere is asked for again where it was.
    let late = ColourElsewhere { call: again[0].1, version: MapVersion(0) };
    let did = table.burst(node(2), FuzzyClientIn::from(late));
    assert_eq!(submits(&did), []);
    assert_eq!(table.role.outstanding(), 1);
}

// A take-over by the map of before is refused for good where a colour has come since, and nobody takes the append over any more.
#[test]
fn an_append_in_phase_2_is_taken_over_by_the_map_of_today() {
    let mut table = client();
    table.burst(node(1), FuzzyClientIn::from(ColoursPlaced { moves: moves(BEGUN, Vec::new(), None) }));
    let mut colours = [colour_in(SOURCE, 0), colour_in(TARGET, 0)];
    colours.sort_unstable();
    let call =
        AppendCall { client: 1, number: 7, below: 0, seen: AppendTime::ZERO, content: content(&colours) };
    let submits = |did: &table::Did<fuzzylog::FuzzyLog>| -> Vec<(u64, Command)> {
        let of = |(_, message, _)| match message {
            FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Submit(it))) => {
                Some((it.call, it.command))
            }
            _ => None,
        };
        sent(did).into_iter().filter_map(of).collect()
    };
    let did = table.call(|role, cx| role.on_request(RequestId(1), FuzzyRequest::Append(call), cx));
    let asked = submits(&did)[0].0;
    let done = |call, partition, outcome| {
        FuzzyClientIn::from(CommandDone { call, partition, outcome, takes_many_in: None })
    };
    let mut fixes = Vec::new();
    for partition in [SOURCE, TARGET] {
        let at = AppendTime { clock: 3, partition, ahead: 0 };
        let did = table.burst(node(1), done(asked, partition, Proposed { at }.into()));
        fixes.extend(submits(&did));
    }
    assert!(matches!(fixes[..], [(_, Command::Fix(_)), (_, Command::Fix(_))]), "{fixes:?}");
    let fixing = fixes[0].0;
    // A colour that this append does not concern moves.
    let moved = vec![MovedColour { colour: colour_in(SOURCE, 1), partition: TARGET }];
    table.burst(node(1), FuzzyClientIn::from(ColoursPlaced { moves: moves(ENDED, moved, None) }));
    let owner = Owner { generation: 1, identity: 9 };
    table.burst(node(1), done(fixing, SOURCE, Held { owner }.into()));
    let FuzzyParameters { stuck_after, back_off_max, .. } = FuzzyParameters::default();
    table.pass(owner.patience() * (stuck_after + back_off_max));
    let asked = submits(&table.timer(FuzzyClientTimer::Tick));
    let [(_, Command::TakeOver(take_over))] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((take_over.expected, take_over.content.plan_version()), (Some(owner), ENDED));
}

// A change that nobody was answered about, and that comes about when its operator has asked for another one since, moves colours back.
#[test]
fn a_change_is_asked_for_no_longer_than_its_operator_waits() {
    let mut table = client();
    let change = MoveColours { colours: vec![colour_in(SOURCE, 0)], to: TARGET };
    let wants = |did: &table::Did<fuzzylog::FuzzyLog>| {
        let is_want =
            |message: &FuzzyMessage| matches!(message, FuzzyMessage::Director(DirectorIn::WantChange(_)));
        sent(did).iter().filter(|(_, message, _)| is_want(message)).count()
    };
    let request = FuzzyRequest::Change(change.into());
    let did = table.call(|role, cx| role.on_request(RequestId(1), request, cx));
    assert_eq!(wants(&did), 1);
    let FuzzyParameters { change_for, .. } = FuzzyParameters::default();
    table.pass(change_for / 2);
    assert_eq!(wants(&table.timer(FuzzyClientTimer::Tick)), 1);
    table.pass(change_for / 2);
    let did = table.timer(FuzzyClientTimer::Tick);
    assert_eq!((wants(&did), table.role.outstanding()), (0, 0));
    let is_answer = |effect: &Effect<_, _>| {
        matches!(effect, Effect::Respond { response: FuzzyResponse::ChangeUnknown, .. })
    };
    assert!(did.iter().any(is_answer));
}

/// What a client sends partitions now.
fn asks(did: &table::Did<fuzzylog::FuzzyLog>) -> Vec<(NodeId, u64, Command)> {
    let of = |(to, message, _)| match message {
        FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Submit(it))) => {
            Some((to, it.call, it.command))
        }
        _ => None,
    };
    sent(did).into_iter().filter_map(of).collect()
}

/// What a client answers its user.
fn responses(did: &table::Did<fuzzylog::FuzzyLog>) -> Vec<FuzzyResponse> {
    let answered = did.iter().filter_map(|effect| match effect {
        Effect::Respond { response, .. } => Some(response.clone()),
        _ => None,
    });
    answered.collect()
}

fn append_to(colours: &[Colour]) -> FuzzyRequest {
    let content = content(colours);
    FuzzyRequest::Append(AppendCall { client: 1, number: 7, below: 0, seen: AppendTime::ZERO, content })
}

fn answer(call: u64, partition: PartitionId, outcome: impl Into<Outcome>) -> FuzzyClientIn {
    CommandDone { call, partition, outcome: outcome.into(), takes_many_in: None }.into()
}

/// An append that is in these colours.
fn in_colours(at: AppendTime, colours: &[Colour]) -> Delivered {
    let placed = colours.iter().map(|&colour| Placed { colour, position: NodePosition(4) });
    Delivered { at, placed: placed.collect() }
}

// A partition that has forgotten the user's client answers for the colours that have come to it since. A client that waits for a later
// map then waits for ever, and has room for a call less.
#[test]
fn an_append_of_which_a_partition_has_forgotten_a_part_ends() {
    let (source, colours) = (colour_in(SOURCE, 0), [colour_in(TARGET, 0), colour_in(TARGET, 1)]);
    let at = AppendTime { clock: 3, partition: SOURCE, ahead: 0 };
    let mut table = client();
    table.burst(node(1), FuzzyClientIn::from(ColoursPlaced { moves: moves(ENDED, Vec::new(), None) }));
    let request = append_to(&[source, colours[0], colours[1]]);
    let did = table.call(|role, cx| role.on_request(RequestId(1), request, cx));
    let asked = asks(&did)[0].1;
    assert!(responses(&table.burst(node(1), answer(asked, SOURCE, in_colours(at, &[source])))).is_empty());
    let did = table.burst(node(2), answer(asked, TARGET, in_colours(at, &colours[1..])));
    assert_eq!(responses(&did), [FuzzyResponse::PlacesForgotten { at }]);
    // It is delivered, so nobody has to take it over.
    assert!(matches!(asks(&did)[..], [(_, _, Command::CleanUp(_)), (_, _, Command::CleanUp(_))]));
    assert_eq!(table.role.outstanding(), 0);
    // All of its colours may be in one partition by now.
    let did = table.call(|role, cx| {
        role.on_request(RequestId(2), append_to(&colours), cx);
        role.on_burst_end(cx);
    });
    let asked = asks(&did)[0].1;
    let did = table.burst(node(2), answer(asked, TARGET, in_colours(at, &colours[1..])));
    assert_eq!(responses(&did), [FuzzyResponse::PlacesForgotten { at }]);
}

// Phase 2 names no plan, so what it is answered lacks a colour that has left, though its new partition knows where the append is.
#[test]
fn who_has_a_colour_is_asked_where_an_append_is_that_phase_2_finds_in_part() {
    let (source, colours) = (colour_in(SOURCE, 0), [colour_in(TARGET, 0), colour_in(TARGET, 1)]);
    let at = AppendTime { clock: 3, partition: TARGET, ahead: 0 };
    let mut table = client();
    // The colour has left and is there again: by this map nothing has changed.
    table.burst(node(1), FuzzyClientIn::from(ColoursPlaced { moves: moves(ENDED, Vec::new(), None) }));
    let request = append_to(&[source, colours[0], colours[1]]);
    let did = table.call(|role, cx| role.on_request(RequestId(1), request, cx));
    let asked = asks(&did)[0].1;
    table.burst(node(1), answer(asked, SOURCE, Proposed { at }));
    let fixes = asks(&table.burst(node(2), answer(asked, TARGET, Proposed { at })));
    assert!(matches!(fixes[..], [(_, _, Command::Fix(_)), (_, _, Command::Fix(_))]), "{fixes:?}");
    table.burst(node(1), answer(fixes[0].1, SOURCE, in_colours(at, &[source])));
    let did = table.burst(node(2), answer(fixes[0].1, TARGET, in_colours(at, &colours[1..])));
    assert!(responses(&did).is_empty());
    let again = asks(&did);
    let [(_, asked, Command::ProposeTime(one)), (_, _, Command::ProposeTime(_))] = &again[..] else {
        panic!("{again:?}")
    };
    assert_eq!(one.content.plan_version(), ENDED);
    table.burst(node(1), answer(*asked, SOURCE, in_colours(at, &[source])));
    let did = table.burst(node(2), answer(*asked, TARGET, in_colours(at, &colours)));
    assert!(matches!(&responses(&did)[..], [FuzzyResponse::Appended { placed, .. }] if placed.len() == 3));
}
