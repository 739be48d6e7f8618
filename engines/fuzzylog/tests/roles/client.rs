//! The client role, call by call.

use fuzzylog::chain_server::{ChainServerIn, FromClient};
use fuzzylog::client::{CommandDone, FuzzyClientIn, FuzzyClientTimer};
use fuzzylog::partition::command::{Command, Conflict, Outcome};
use fuzzylog::{
    AppendCall, AppendTime, ChainEpoch, ChainMember, ChainProjection, Colour, ColourPlacement, Content,
    FuzzyClient, FuzzyLog, FuzzyMessage, FuzzyParameters, FuzzyRefusal, FuzzyRequest, FuzzyResponse,
    PartitionId,
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
    let content = Content::new(vec![Colour(0)], vec![Bytes::from(vec![b'x'; bytes])]);
    let call = AppendCall { client: 1, number, below: 0, seen: AppendTime::ZERO, content };
    let request = FuzzyRequest::Append(call);
    table.call(|role, cx| {
        role.on_request(RequestId(number), request, cx);
        role.on_burst_end(cx);
    })
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
        table.timer(FuzzyClientTimer::Tick);
        repeats += submits(&table.end());
    }
    assert!((7..=12).contains(&repeats), "sent again {repeats} times");
}

/// The commands that leave when the burst ends.
fn commands(did: &Did<FuzzyLog>) -> Vec<Vec<u64>> {
    let of = |(_, message, _)| match message {
        FuzzyMessage::ChainServer(ChainServerIn::Client(FromClient::Submit(submit))) => Some(submit.command),
        _ => None,
    };
    let numbers = |command| match command {
        Command::Append(append) => vec![append.id.number],
        Command::AppendMany(many) => many.appends.iter().map(|it| it.append.id.number).collect(),
        other => panic!("{other:?}"),
    };
    sent(did).into_iter().filter_map(of).map(numbers).collect()
}

fn appends(table: &mut Table<FuzzyClient>, numbers: std::ops::Range<u64>, bytes: usize) -> Vec<Vec<u64>> {
    let content = Content::new(vec![Colour(0)], vec![Bytes::from(vec![b'x'; bytes])]);
    let did = table.call(|role, cx| {
        for number in numbers {
            let (seen, content) = (AppendTime::ZERO, content.clone());
            let call = AppendCall { client: 1, number, below: 0, seen, content };
            role.on_request(RequestId(number), FuzzyRequest::Append(call), cx);
        }
        role.on_burst_end(cx);
    });
    commands(&did)
}

/// It hears in which epoch the chain takes several appends, of a call that it does not know.
fn hears_of(table: &mut Table<FuzzyClient>, epoch: Option<ChainEpoch>) {
    let outcome = Outcome::Conflict(Conflict {});
    let done = CommandDone { call: 0, partition: PARTITION, outcome, takes_many_in: epoch };
    table.hear(node(1, 16), FuzzyClientIn::from(done));
}

// A chain with a server of an earlier version would stand still; one that takes several gets them one by one; or a command outgrows a page.
#[test]
fn appends_of_a_burst_go_together_where_the_chain_takes_that() {
    let mut table = client(FuzzyParameters { page_bytes: 1_000, ..FuzzyParameters::default() });
    let one_by_one = [vec![0], vec![1], vec![2]];
    assert_eq!(appends(&mut table, 0..3, 10), one_by_one);
    hears_of(&mut table, None);
    hears_of(&mut table, Some(ChainEpoch(7)));
    assert_eq!(appends(&mut table, 3..5, 10), [[3], [4]], "of another epoch");
    hears_of(&mut table, Some(ChainEpoch(1)));
    assert_eq!(appends(&mut table, 5..8, 10), [[5, 6, 7]]);
    assert_eq!(appends(&mut table, 8..11, 300), [vec![8, 9], vec![10]], "two fill a page");
    let mut table = client(FuzzyParameters::default());
    hears_of(&mut table, Some(ChainEpoch(1)));
    let sizes: Vec<usize> = appends(&mut table, 0..600, 10).iter().map(Vec::len).collect();
    assert_eq!(sizes, [256, 256, 88]);
}
