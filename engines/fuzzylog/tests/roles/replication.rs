//! What heads of different regions say to each other, message by message.

use fuzzylog::chain_server::{
    ChainServerIn, ChainTimer, FromRegion, FromServer, LeavingRegion, NodesPulled, Project, PullNodes,
    Received, SealChain, StableThrough, Submit,
};
use fuzzylog::partition::command::{Append, ShadowNode, ShadowPart};
use fuzzylog::{
    AppendId, AppendTime, ChainEpoch, ChainJournal, ChainMember, ChainProjection, ChainServer, Colour,
    ColourPlacement, Content, FuzzyLog, FuzzyMessage, FuzzyParameters, OtherRegion, PartitionId, RegionId,
    RegionPlan, RowIndex,
};
use kernel::{Bytes, HostId, HostSlot, NodeId};
use std::sync::Arc;
use std::time::Duration;
use table::{Did, Table, rejects, restored, sent};

const OHIO: RegionId = RegionId(1);
const TOKYO: RegionId = RegionId(2);
const PARIS: RegionId = RegionId(3);
const HERE: PartitionId = PartitionId(0);
const EPOCH: ChainEpoch = ChainEpoch(2);
const PATIENCE: Duration = Duration::from_secs(1);

fn node(host: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(16))
}

/// A server of Ohio, whose hosts are 1 and 2; Tokyo's are 11 and 12.
fn server() -> ChainServer {
    server_of(&[TOKYO], &[])
}

/// The same with other regions, and before with those that are removed now.
fn server_of(regions: &[RegionId], removed: &[RegionId]) -> ChainServer {
    let region = |&region: &RegionId| {
        let first = 10 * (region.0 - 1);
        OtherRegion { region, partitions: 1, hosts: vec![HostId(first + 1), HostId(first + 2)] }
    };
    let others = regions.iter().map(region).collect();
    let plan = RegionPlan { own: OHIO, others, first_server: HostSlot(16), removed: removed.to_vec() };
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let server = ChainServer::new(HERE, ColourPlacement::over(1), FuzzyParameters::default(), beside);
    server.in_regions(Some(Arc::new(plan)))
}

/// It is the only server of its chain, in an epoch, and knows of its regions.
fn serving(server: ChainServer, epoch: ChainEpoch) -> Table<ChainServer> {
    let mut table = Table::new(server, node(1));
    table.burst(node(3), SealChain { epoch, journal: None });
    let members = vec![ChainMember { node: node(1), journal: table.role.journal() }];
    let projection = ChainProjection { partition: HERE, epoch, members, whole_from: RowIndex(0) };
    table.burst(node(3), Project { projection, copies: false });
    assert_eq!(table.role.state().region(), Some(OHIO));
    table
}

fn tick(table: &mut Table<ChainServer>) -> Did<FuzzyLog> {
    let mut did = table.timer(ChainTimer::Tick);
    did.extend(table.end());
    did
}

/// What leaves for servers of other regions, and whether it waits for the disk.
fn across(did: &Did<FuzzyLog>) -> Vec<(NodeId, FromRegion, bool)> {
    let of = |(to, message, waits)| match message {
        FuzzyMessage::ChainServer(ChainServerIn::Region(message)) => Some((to, message, waits)),
        _ => None,
    };
    sent(did).into_iter().filter_map(of).collect()
}

/// The only question that leaves, when what it asks behind is durable, and for whom.
fn question(did: &Did<FuzzyLog>) -> (NodeId, PullNodes) {
    match &across(did)[..] {
        [(to, FromRegion::PullNodes(question), true)] => (*to, question.clone()),
        other => panic!("{other:?}"),
    }
}

fn at(clock: u64) -> AppendTime {
    AppendTime { clock, ..AppendTime::ZERO }
}

/// A node of Tokyo.
fn shadow(number: u64) -> ShadowNode {
    let id = AppendId { client: 9, number, content: 0 };
    let parts = vec![ShadowPart { colour: Colour(0), number, edges: Vec::new() }];
    let bodies = vec![Bytes::from_static(b"body")];
    ShadowNode { id, at: at(number + 1), colours: vec![Colour(0)], parts, bodies }
}

/// Tokyo's nodes behind what was asked, up to a number.
fn page(question: &PullNodes, through: u64) -> NodesPulled {
    let PullNodes { session, after, .. } = *question;
    let nodes = (after.clock..through).map(shadow).collect();
    NodesPulled { session, after, through: at(through), nodes, head: Some(node(11)), begins: None }
}

fn submit(number: u64) -> Submit {
    let content = Content::new(vec![Colour(0)], vec![Bytes::from_static(b"body")]);
    let id = AppendId { client: 1, number, content: content.digest() };
    let command = Append { id, below: 0, seen: AppendTime::ZERO, content }.into();
    Submit { call: number, epoch: EPOCH, command }
}

/// Tokyo asks, and has copied all up to a time.
fn asked(session: u64, after: AppendTime) -> PullNodes {
    PullNodes { session, region: TOKYO, partition: HERE, partitions: 1, after }
}

// A head that asks behind what is not in its row yet loses a page when it dies; one that asks before it copies twice.
#[test]
fn a_head_asks_behind_what_it_has_applied() {
    let mut table = serving(server(), EPOCH);
    let (to, first) = question(&tick(&mut table));
    assert_eq!((to, first.after), (node(11), AppendTime::ZERO));
    assert!(across(&tick(&mut table)).is_empty(), "one question at a time");
    let (to, second) = question(&table.burst(node(11), page(&first, 2)));
    assert_eq!((to, second.after), (node(11), at(2)));
    assert_eq!(table.role.state().log_length(Colour(0), TOKYO), 2);
    // The same page again is not what comes next.
    assert!(across(&table.burst(node(11), page(&first, 2))).is_empty());
    assert_eq!(table.role.state().log_length(Colour(0), TOKYO), 2);
    // The next incarnation goes on from there.
    let journal = table.journal();
    let mut next = serving(restored(server(), &journal), EPOCH.next());
    let (_, third) = question(&tick(&mut next));
    assert_eq!((third.after, next.role.state().log_length(Colour(0), TOKYO)), (at(2), 2));
}

// A head that asks on while its chain has not confirmed a page says that it has what others may not.
#[test]
fn a_head_does_not_ask_on_before_its_chain_has_the_page() {
    let mut table = Table::new(server(), node(1));
    table.burst(node(3), SealChain { epoch: EPOCH, journal: None });
    let own = ChainMember { node: node(1), journal: table.role.journal() };
    let members = vec![own, ChainMember { node: node(2), journal: Some(ChainJournal(7)) }];
    let projection = ChainProjection { partition: HERE, epoch: EPOCH, members, whole_from: RowIndex(0) };
    table.burst(node(3), Project { projection, copies: false });
    assert!(across(&tick(&mut table)).is_empty());
    table.burst(node(2), StableThrough { epoch: EPOCH, through: RowIndex(1) });
    let (_, first) = question(&tick(&mut table));
    assert!(across(&table.burst(node(11), page(&first, 2))).is_empty());
    table.pass(2 * PATIENCE);
    assert!(across(&tick(&mut table)).is_empty());
    let did = table.burst(node(2), StableThrough { epoch: EPOCH, through: RowIndex(2) });
    assert_eq!(question(&did).1.after, at(2));
}

// A region whose first server is gone, or that is farther away than one has patience, would not be copied any more.
#[test]
fn who_is_silent_is_not_asked_again_at_once() {
    let mut table = serving(server(), EPOCH);
    let (_, lost) = question(&tick(&mut table));
    table.pass(PATIENCE);
    let (to, again) = question(&tick(&mut table));
    assert_eq!(to, node(12));
    assert_eq!(again.after, lost.after);
    // The page was late, and is what comes next all the same; the other one's is not any more.
    let (_, next) = question(&table.burst(node(11), page(&lost, 1)));
    assert_eq!((next.after, table.role.state().log_length(Colour(0), TOKYO)), (at(1), 1));
    table.burst(node(12), page(&again, 1));
    assert_eq!(table.role.state().log_length(Colour(0), TOKYO), 1);
}

// A page that leaves something out would be a hole for good.
#[test]
fn a_page_with_a_hole_is_turned_away() {
    let mut table = serving(server(), EPOCH);
    let (_, first) = question(&tick(&mut table));
    let mut holed = page(&first, 3);
    holed.nodes.remove(1);
    assert!(rejects(&table.hear(node(11), holed)));
    assert_eq!(table.role.state().log_length(Colour(0), TOKYO), 0);
    table.pass(PATIENCE);
    let (_, again) = question(&tick(&mut table));
    table.burst(node(11), page(&again, 3));
    assert_eq!(table.role.state().log_length(Colour(0), TOKYO), 3);
}

// Who polls an idle region keeps both awake; who is answered late sees its nodes late.
#[test]
fn a_question_waits_until_there_is_something_new() {
    let mut table = serving(server(), EPOCH);
    let pulled = |did: &Did<FuzzyLog>| {
        across(did).into_iter().find_map(|(to, message, waits)| match message {
            FromRegion::NodesPulled(pulled) => Some((to, pulled, waits)),
            FromRegion::PullNodes(_) => None,
        })
    };
    assert_eq!(pulled(&table.burst(node(11), asked(1, AppendTime::ZERO))), None);
    let (to, first, waits) = pulled(&table.burst(node(9), submit(0))).expect("there is something new");
    assert_eq!((to, first.session, first.nodes.len(), waits), (node(11), 1, 1, true));
    assert_eq!(first.head, Some(node(1)));
    // What is confirmed is in the row, and is retained no more.
    table.burst(node(11), asked(2, first.through));
    assert_eq!((table.role.state().outgoing(), table.role.state().confirmed()[0].at), (0, first.through));
    table.pass(PATIENCE / 2);
    let (_, empty, _) = pulled(&tick(&mut table)).expect("it has waited for long");
    assert_eq!((empty.session, empty.through, empty.nodes.len()), (2, first.through, 0));
    // Who has other partitions than the cluster file says is no region of this cluster.
    let stranger = PullNodes { partitions: 2, ..asked(3, AppendTime::ZERO) };
    assert_eq!(pulled(&table.burst(node(11), stranger)), None);
}

fn leaves(region: RegionId, was_there: bool) -> LeavingRegion {
    LeavingRegion { region, was_there }
}

fn known(table: &Table<ChainServer>) -> Vec<RegionId> {
    table.role.state().other_regions().iter().map(|it| it.region).collect()
}

// A region that a row does not take up later copies nothing, and trims drop what it lacks.
#[test]
fn a_head_takes_up_the_regions_that_it_was_started_with() {
    let mut table = serving(server(), EPOCH);
    let journal = table.journal();
    let mut next = serving(restored(server_of(&[TOKYO, PARIS], &[]), &journal), EPOCH.next());
    assert_eq!(known(&next), [TOKYO]);
    tick(&mut next);
    assert_eq!(known(&next), [TOKYO, PARIS]);
    let asked: Vec<NodeId> = across(&tick(&mut next)).into_iter().map(|(to, _, _)| to).collect();
    assert_eq!(asked, [node(21)], "Tokyo has been asked before");
    // A host with an older file goes on with what it knows, and removes nothing.
    let all = [journal, next.journal()].concat();
    table = serving(restored(server(), &all), EPOCH.next().next());
    let (to, _) = question(&tick(&mut table));
    assert_eq!((to, known(&table), table.role.regions_differ()), (node(11), vec![TOKYO, PARIS], true));
}

/// The head of two servers, both of which have the row.
fn head_of_two(server: ChainServer, epoch: ChainEpoch) -> Table<ChainServer> {
    let mut table = Table::new(server, node(1));
    table.burst(node(3), SealChain { epoch, journal: None });
    let own = ChainMember { node: node(1), journal: table.role.journal() };
    let members = vec![own, ChainMember { node: node(2), journal: Some(ChainJournal(7)) }];
    let projection = ChainProjection { partition: HERE, epoch, members, whole_from: RowIndex(0) };
    table.burst(node(3), Project { projection, copies: false });
    let length = table.role.length();
    table.burst(node(2), Received { epoch, length, without: None });
    table.burst(node(2), StableThrough { epoch, through: length });
    table
}

// One host with a wrong file, or the first one that has the new file, removes a region of which the others have not heard yet.
#[test]
fn a_region_goes_when_all_servers_were_started_without_it() {
    let mut before = serving(server_of(&[TOKYO, PARIS], &[]), EPOCH);
    let (epoch, journal) = (EPOCH.next(), before.journal());
    let mut head = head_of_two(restored(server_of(&[TOKYO], &[PARIS]), &journal), epoch);
    let length = head.role.length();
    tick(&mut head);
    assert_eq!(head.role.length(), length);
    // Nor does it if all have files that are older than the region.
    let mut old = head_of_two(restored(server_of(&[TOKYO], &[]), &journal), epoch);
    old.burst(node(2), Received { epoch, length, without: Some(vec![leaves(PARIS, false)]) });
    tick(&mut old);
    assert_eq!(old.role.length(), length);
    // What is said in another epoch, or by somebody else, does not count.
    let without = || Some(vec![leaves(PARIS, false)]);
    head.burst(node(2), Received { epoch: EPOCH, length, without: without() });
    head.burst(node(4), Received { epoch, length, without: without() });
    tick(&mut head);
    assert_eq!(head.role.length(), length);
    head.burst(node(2), Received { epoch, length, without: without() });
    tick(&mut head);
    tick(&mut head);
    assert_eq!(head.role.length(), length.next(), "it is ordered once");
    head.burst(node(2), StableThrough { epoch, through: length.next() });
    assert_eq!((known(&head), head.role.regions_differ()), (vec![TOKYO], false));
    assert_eq!(head.role.state().removed_regions().collect::<Vec<_>>(), [PARIS]);
    // It does not come back by a file that has it.
    let all = [journal, head.journal()].concat();
    let mut late = head_of_two(restored(server_of(&[TOKYO, PARIS], &[]), &all), epoch.next());
    let last = late.role.length();
    tick(&mut late);
    assert_eq!((late.role.length(), late.role.regions_differ()), (last, true));
}

// The words of those behind do not come up the chain, and a region that was removed stays for ever.
#[test]
fn who_is_behind_says_what_all_behind_were_started_without() {
    let length = serving(server_of(&[TOKYO, PARIS], &[]), EPOCH).role.length();
    let mut before = serving(server_of(&[TOKYO, PARIS], &[]), EPOCH);
    let journal = before.journal();
    let said = |server: ChainServer, behind: Option<Vec<LeavingRegion>>| {
        let (mut table, epoch) = (Table::new(restored(server, &journal), node(1)), EPOCH.next());
        table.burst(node(3), SealChain { epoch, journal: None });
        let own = ChainMember { node: node(1), journal: table.role.journal() };
        let other = |host| ChainMember { node: node(host), journal: Some(ChainJournal(u64::from(host))) };
        let members = vec![other(2), own, other(4)];
        let projection = ChainProjection { partition: HERE, epoch, members, whole_from: RowIndex(0) };
        table.burst(node(3), Project { projection, copies: false });
        table.burst(node(2), StableThrough { epoch, through: length });
        table.burst(node(4), StableThrough { epoch, through: length });
        table.burst(node(4), Received { epoch, length, without: behind });
        let of = |(to, message, _)| match message {
            FuzzyMessage::ChainServer(ChainServerIn::Server(FromServer::Received(it))) if to == node(2) => {
                Some(it.without)
            }
            _ => None,
        };
        sent(&tick(&mut table)).into_iter().find_map(of).flatten()
    };
    let (gone, never) = (leaves(PARIS, true), leaves(PARIS, false));
    let without = |removed: &[RegionId]| server_of(&[TOKYO], removed);
    assert_eq!(said(without(&[PARIS]), Some(vec![never, leaves(TOKYO, true)])), Some(vec![gone]));
    assert_eq!(said(without(&[]), Some(vec![gone])), Some(vec![gone]));
    assert_eq!(said(without(&[]), Some(vec![never])), Some(vec![never]), "all of them have older files");
    assert_eq!(said(without(&[PARIS]), None), None);
    assert_eq!(said(server_of(&[TOKYO, PARIS], &[]), Some(vec![gone])), None);
}
