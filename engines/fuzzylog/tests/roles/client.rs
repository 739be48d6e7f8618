//! The client role, call by call.

use fuzzylog::client::FuzzyClientTimer;
use fuzzylog::{
    AppendCall, AppendTime, ChainMember, ChainProjection, Colour, ColourPlacement, Content, FuzzyClient,
    FuzzyLog, FuzzyMessage, FuzzyParameters, FuzzyRefusal, FuzzyRequest, FuzzyResponse, PartitionId,
};
use kernel::{Bytes, Effect, HostId, HostSlot, NodeId, RequestId, Role as _};
use std::time::Duration;
use table::{Did, Table, sent};

const PARTITION: PartitionId = PartitionId(0);

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

/// A client of one partition with one server.
fn client(parameters: FuzzyParameters) -> Table<FuzzyClient> {
    let mut projection = ChainProjection::initial(PARTITION, &[node(1, 16)]);
    projection.members = vec![ChainMember { node: node(1, 16), journal: Some(fuzzylog::ChainJournal(7)) }];
    let placement = ColourPlacement::over(1);
    Table::new(FuzzyClient::new(parameters, placement, vec![node(1, 2)], vec![projection]), node(9, 1))
}

fn append(table: &mut Table<FuzzyClient>, number: u64, bytes: usize) -> Did<FuzzyLog> {
    let content = Content { colours: vec![Colour(0)], bodies: vec![Bytes::from(vec![b'x'; bytes])] };
    let call = AppendCall { client: 1, number, below: 0, seen: AppendTime::ZERO, content };
    table.call(|role, cx| role.on_request(RequestId(number), FuzzyRequest::Append(call), cx))
}

fn is_busy(did: &Did<FuzzyLog>) -> bool {
    let busy = FuzzyResponse::Refused(FuzzyRefusal::Busy);
    did.iter().any(|effect| matches!(effect, Effect::Respond { response, .. } if *response == busy))
}

fn submits(did: &Did<FuzzyLog>) -> usize {
    sent(did).iter().filter(|(_, message, _)| matches!(message, FuzzyMessage::ChainServer(_))).count()
}

// A host whose chains stand still must not take all that its users send into its memory.
#[test]
fn what_is_in_flight_is_bounded_in_bytes() {
    let mut table = client(FuzzyParameters { calls_bytes_max: 1_000, ..FuzzyParameters::default() });
    assert!(!is_busy(&append(&mut table, 0, 600)));
    assert!(is_busy(&append(&mut table, 1, 600)));
    assert!(!is_busy(&append(&mut table, 2, 400)));
    assert_eq!(table.role.outstanding(), 2);
}

// A head that is busy is not helped by everything once more every few milliseconds.
#[test]
fn what_is_late_is_sent_again_less_and_less() {
    let parameters = FuzzyParameters::default();
    let (tick, resend_after) = (parameters.tick, parameters.resend_after);
    let mut table = client(parameters);
    assert_eq!(submits(&append(&mut table, 0, 10)), 1);
    let mut passed = Duration::ZERO;
    let mut repeats = 0;
    while passed < 100 * resend_after {
        table.pass(tick);
        passed += tick;
        repeats += submits(&table.timer(FuzzyClientTimer::Tick));
    }
    assert!((7..=12).contains(&repeats), "sent again {repeats} times");
}
