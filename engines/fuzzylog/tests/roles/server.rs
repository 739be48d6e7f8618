//! A chain server, message by message.

use fuzzylog::chain_server::{
    ChainRecord, ChainServerIn, ChainTimer, CutBack, DurableThrough, Forward, FromServer, Ordered, Project,
    Pulled, SealChain, StableThrough, Submit, Sync,
};
use fuzzylog::messages::client::FuzzyClientIn;
use fuzzylog::messages::director::DirectorIn;
use fuzzylog::partition::command::{Append, AppendMany, NamedAppend, ProposeTime, RowEntry, TakeOver};
use fuzzylog::{
    AppendId, AppendTime, ChainEpoch, ChainJournal, ChainMember, ChainProjection, ChainServer, Colour,
    ColourPlacement, Content, FuzzyLog, FuzzyMessage, FuzzyParameters, PartitionId, RowIndex,
};
use kernel::{Bytes, Effect, Encode as _, HostId, HostSlot, NodeId};
use std::time::Duration;
use table::{Did, Table, restored, sent};

pub(super) const PARTITION: PartitionId = PartitionId(0);
const OTHER_JOURNAL: ChainJournal = ChainJournal(7);

pub(super) fn node(host: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(16))
}

pub(super) fn client_role() -> NodeId {
    NodeId::new(HostId(9), HostSlot(1))
}

fn server() -> ChainServer {
    let beside = NodeId::new(HostId(1), HostSlot(1));
    ChainServer::new(PARTITION, ColourPlacement::over(1), FuzzyParameters::default(), beside)
}

fn append(number: u64) -> Append {
    let content = Content::new(vec![Colour(0)], vec![Bytes::from_static(b"body")]);
    let id = AppendId { client: 1, number, content: content.digest() };
    Append { id, below: 0, seen: AppendTime::ZERO, content }
}

fn entry(number: u64) -> RowEntry {
    RowEntry { origin: client_role(), call: number, command: append(number).into() }
}

pub(super) fn submit(number: u64, epoch: ChainEpoch) -> Submit {
    Submit { call: number, epoch, command: append(number).into() }
}

/// The server of host 1 serves epoch 2 with that of host 2, first or last.
fn serving(first: bool) -> Table<ChainServer> {
    serving_as(server(), first)
}

pub(super) fn serving_as(server: ChainServer, first: bool) -> Table<ChainServer> {
    let mut table = Table::new(server, node(1));
    table.burst(node(3), SealChain { epoch: ChainEpoch(2), journal: None });
    let projection = projection(&table, ChainEpoch(2), first);
    table.burst(node(3), Project { projection, copies: false });
    assert_eq!(table.role.serves(), Some(ChainEpoch(2)));
    table
}

fn projection(table: &Table<ChainServer>, epoch: ChainEpoch, first: bool) -> ChainProjection {
    let own = ChainMember { node: node(1), journal: table.role.journal() };
    let other = ChainMember { node: node(2), journal: Some(OTHER_JOURNAL) };
    let members = if first { vec![own, other] } else { vec![other, own] };
    ChainProjection { partition: PARTITION, epoch, members, whole_from: RowIndex(0) }
}

/// What leaves for a client, and whether it waits for the disk.
fn answers(did: &Did<FuzzyLog>) -> Vec<(bool, FuzzyClientIn)> {
    let of = |(_, message, waits)| match message {
        FuzzyMessage::Client(message) => Some((waits, message)),
        FuzzyMessage::ChainServer(_) | FuzzyMessage::Director(_) | FuzzyMessage::Log(_) => None,
    };
    sent(did).into_iter().filter_map(of).collect()
}

// A head that answers before the disks behind it have the command loses what it acknowledged.
#[test]
fn a_head_orders_and_leaves_the_answer_to_the_tail() {
    let mut table = serving(true);
    let did = table.burst(client_role(), submit(0, ChainEpoch(2)));
    assert!(answers(&did).is_empty());
    assert_eq!((table.role.length(), table.role.state().applied()), (RowIndex(1), RowIndex(0)));
    table.burst(node(2), StableThrough { epoch: ChainEpoch(2), through: RowIndex(1) });
    assert_eq!(table.role.state().applied(), RowIndex(1));
}

// A tail must not answer, nor show anything, before those before it have it on their disks, and it on its own.
#[test]
fn a_tail_answers_when_all_disks_have_it() {
    let mut table = serving(false);
    let forward = Forward {
        epoch: ChainEpoch(2),
        first: RowIndex(0),
        entries: vec![entry(0), entry(1)],
        takes_many: Some(true),
    };
    assert!(answers(&table.burst(node(2), forward)).is_empty());
    let did = table.burst(node(2), DurableThrough { epoch: ChainEpoch(2), through: RowIndex(1) });
    let answered = answers(&did);
    assert!(
        matches!(&answered[..], [(true, FuzzyClientIn::CommandDone(done))] if done.call == 0),
        "{answered:?}"
    );
    // A sync waits for what the tail had when it was asked.
    let sync = Sync { call: 5, epoch: ChainEpoch(2), colour: Colour(0), seen: AppendTime::ZERO };
    assert!(answers(&table.burst(client_role(), sync)).is_empty());
    let did = table.burst(node(2), DurableThrough { epoch: ChainEpoch(2), through: RowIndex(2) });
    let synced = answers(&did).into_iter().find_map(|(waits, message)| match message {
        FuzzyClientIn::Synced(synced) => Some((waits, synced.tail.0)),
        _ => None,
    });
    assert_eq!(synced, Some((true, 2)));
}

// On slow disks what is sent again would be written again, and make them slower.
#[test]
fn what_is_on_its_way_down_the_chain_is_not_ordered_again() {
    let epoch = ChainEpoch(2);
    let mut table = serving(true);
    table.burst(client_role(), submit(0, epoch));
    let appends = vec![0, 1].into_iter().map(|number| NamedAppend { call: number, append: append(number) });
    let both = AppendMany { appends: appends.collect() };
    let both = || Submit { call: 7, epoch, command: both.clone().into() };
    table.burst(client_role(), submit(0, epoch));
    assert_eq!(table.role.length(), RowIndex(1));
    table.burst(client_role(), both());
    assert_eq!(table.role.length(), RowIndex(2), "one of the two was not on its way");
    table.burst(client_role(), both());
    assert_eq!(table.role.length(), RowIndex(2));
    table.burst(NodeId::new(HostId(8), HostSlot(1)), submit(0, epoch));
    assert_eq!(table.role.length(), RowIndex(3), "another client has the same numbers");
    table.burst(node(2), StableThrough { epoch, through: RowIndex(3) });
    for length in [4, 5] {
        table.burst(client_role(), submit(length - 4, epoch));
        assert_eq!(table.role.length(), RowIndex(length), "its answer was lost");
    }
}

fn many(numbers: std::ops::Range<u64>) -> AppendMany {
    AppendMany {
        appends: numbers.map(|number| NamedAppend { call: number, append: append(number) }).collect(),
    }
}

// Of several appends in one command one is answered twice, or not, or before it is on all disks; or others are answered with them.
#[test]
fn appends_of_one_command_are_answered_together() {
    let mut table = serving(false);
    let together = RowEntry { origin: client_role(), call: 1, command: many(1..3).into() };
    let entries = vec![entry(0), together];
    let epoch = ChainEpoch(2);
    table.burst(node(2), Forward { epoch, first: RowIndex(0), entries, takes_many: Some(true) });
    let did = table.burst(node(2), DurableThrough { epoch, through: RowIndex(2) });
    let answered: Vec<Vec<u64>> = answers(&did)
        .into_iter()
        .map(|(waits, message)| match message {
            FuzzyClientIn::CommandDone(done) if waits && done.takes_many_in == Some(epoch) => vec![done.call],
            FuzzyClientIn::CommandsDone(done) if waits => done.outcomes.iter().map(|it| it.call).collect(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(answered, [vec![0], vec![1, 2]]);
    assert_eq!(table.role.state().tail(Colour(0)).0, 3, "each is a node of its own");
}

// A server of an earlier version cannot read several appends in one command: clients send them only where all can.
#[test]
fn a_chain_takes_several_appends_when_all_its_servers_do() {
    for (before, known) in [(None, None), (Some(false), None), (Some(true), Some(ChainEpoch(2)))] {
        let mut table = serving(false);
        let (epoch, entries) = (ChainEpoch(2), vec![entry(0)]);
        table.burst(node(2), Forward { epoch, first: RowIndex(0), entries, takes_many: before });
        let did = table.burst(node(2), DurableThrough { epoch, through: RowIndex(1) });
        let [(_, FuzzyClientIn::CommandDone(done))] = &answers(&did)[..] else { panic!("{did:?}") };
        assert_eq!(done.takes_many_in, known);
    }
}

// What there is no room for must not take with it what there is room for, and must not be ordered unsaid.
#[test]
fn of_several_appends_those_without_room_are_turned_away() {
    let parameters = FuzzyParameters { clients_max: 1, ..FuzzyParameters::default() };
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let mut table =
        serving_as(ChainServer::new(PARTITION, ColourPlacement::over(1), parameters, beside), true);
    let epoch = ChainEpoch(2);
    table.burst(client_role(), submit(0, epoch));
    table.burst(node(2), StableThrough { epoch, through: RowIndex(1) });
    let mut appends = many(1..3).appends;
    appends[0].append.id.client = 2;
    let did = table.burst(client_role(), Submit { call: 1, epoch, command: AppendMany { appends }.into() });
    let [(_, FuzzyClientIn::HeadBusy(busy))] = &answers(&did)[..] else { panic!("{did:?}") };
    assert_eq!((busy.call, busy.is_full), (1, false));
    assert_eq!(table.role.entry(RowIndex(1)).map(|it| it.command.clone()), Some(many(2..3).into()));
    // None, too many, and one that is not what its name says.
    let mut forged = many(2..4);
    forged.appends[1].append.id.content += 1;
    for unsound in [many(0..0), many(0..257), forged] {
        let did = table.burst(client_role(), Submit { call: 1, epoch, command: unsound.into() });
        assert!(did.iter().any(|effect| matches!(effect, Effect::Reject { .. })), "{did:?}");
    }
    assert_eq!(table.role.length(), RowIndex(2));
}

// Messages of a stranger, or of an epoch before, must change nothing.
#[test]
fn strangers_and_old_epochs_are_refused() {
    let mut table = serving(false);
    let forward =
        |epoch| Forward { epoch, first: RowIndex(0), entries: vec![entry(0)], takes_many: Some(true) };
    table.burst(node(3), forward(ChainEpoch(2)));
    table.burst(node(2), forward(ChainEpoch(1)));
    table.burst(client_role(), submit(0, ChainEpoch(2)));
    assert_eq!(table.role.length(), RowIndex(0));
    let did = table.burst(client_role(), submit(0, ChainEpoch(1)));
    assert!(matches!(&answers(&did)[..], [(true, FuzzyClientIn::ServerSealed(_))]));
    // A gap is not filled with what comes behind it.
    let gap =
        Forward { epoch: ChainEpoch(2), first: RowIndex(3), entries: vec![entry(0)], takes_many: Some(true) };
    table.burst(node(2), gap);
    assert_eq!(table.role.length(), RowIndex(0));
}

// A sealed server whose row changes would be a head with another row than the director chose it for.
#[test]
fn a_sealed_server_changes_nothing() {
    let mut table = serving(false);
    let did = table.burst(node(3), SealChain { epoch: ChainEpoch(3), journal: None });
    let acked = sent(&did).into_iter().any(|(_, message, waits)| match message {
        FuzzyMessage::Director(DirectorIn::SealAck(ack)) => {
            waits && ack.epoch == ChainEpoch(3) && ack.length == RowIndex(0)
        }
        _ => false,
    });
    assert!(acked, "{did:?}");
    let forward =
        Forward { epoch: ChainEpoch(2), first: RowIndex(0), entries: vec![entry(0)], takes_many: Some(true) };
    table.burst(node(2), forward);
    assert_eq!((table.role.length(), table.role.serves()), (RowIndex(0), None));
    // It does not serve an epoch again for which it is sealed no more.
    let old = projection(&table, ChainEpoch(2), false);
    table.burst(node(3), Project { projection: old, copies: false });
    assert_eq!(table.role.serves(), None);
}

// A server that was started again may lack what others had from it: it must not go on in its epoch.
#[test]
fn a_restarted_server_waits_for_another_epoch() {
    let mut table = serving(true);
    table.burst(client_role(), submit(0, ChainEpoch(2)));
    let own = ChainMember { node: node(1), journal: table.role.journal() };
    let mut again = Table::new(restored(server(), &table.journal()), node(1));
    let projection = |epoch| ChainProjection {
        partition: PARTITION,
        epoch,
        members: vec![own.clone()],
        whole_from: RowIndex(0),
    };
    again.burst(node(3), Project { projection: projection(ChainEpoch(2)), copies: false });
    assert_eq!((again.role.serves(), again.role.length()), (None, RowIndex(1)));
    again.burst(node(3), SealChain { epoch: ChainEpoch(3), journal: None });
    again.burst(node(3), Project { projection: projection(ChainEpoch(3)), copies: false });
    assert_eq!(again.role.serves(), Some(ChainEpoch(3)));
    assert_eq!(again.role.state().applied(), RowIndex(1), "alone, it has what its chain has");
}

// What a server has beyond what it has applied may be what no chain has any more.
#[test]
fn a_server_that_was_left_out_drops_what_it_has_not_applied() {
    let mut table = serving(false);
    let forward = Forward {
        epoch: ChainEpoch(2),
        first: RowIndex(0),
        entries: vec![entry(0), entry(1)],
        takes_many: Some(true),
    };
    table.burst(node(2), forward);
    table.burst(node(2), DurableThrough { epoch: ChainEpoch(2), through: RowIndex(1) });
    let other = ChainMember { node: node(2), journal: Some(OTHER_JOURNAL) };
    let (epoch, whole_from) = (ChainEpoch(3), RowIndex(2));
    let projection = ChainProjection { partition: PARTITION, epoch, members: vec![other], whole_from };
    let did = table.burst(node(3), Project { projection, copies: true });
    assert_eq!((table.role.serves(), table.role.length()), (None, RowIndex(1)));
    let pull = sent(&did).into_iter().find_map(|(to, message, _)| match message {
        FuzzyMessage::ChainServer(ChainServerIn::Server(FromServer::PullRow(pull))) => Some((to, pull)),
        _ => None,
    });
    let (source, pull) = pull.expect("it copies");
    assert_eq!((source, pull.journal, pull.from), (node(2), OTHER_JOURNAL, RowIndex(1)));
    // Sealed for what follows, it takes nothing more.
    table.burst(node(3), SealChain { epoch: ChainEpoch(4), journal: None });
    let (session, first, entries) = (pull.session, RowIndex(1), vec![entry(3)]);
    let pulled = Pulled { session, first, entries, length: RowIndex(2), stable: RowIndex(2), base: None };
    table.burst(node(2), pulled);
    assert_eq!(table.role.length(), RowIndex(1));
}

// A client that is forgotten too early has its append executed twice; one that is never forgotten keeps everybody new away.
#[test]
fn silent_clients_are_forgotten_when_there_is_little_room() {
    let forget_after = Duration::from_secs(60);
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let parameters = FuzzyParameters { clients_max: 4, forget_after, ..FuzzyParameters::default() };
    let mut table =
        serving_as(ChainServer::new(PARTITION, ColourPlacement::over(1), parameters, beside), true);
    let named = |client: u64, number: u64| {
        let append = append(number);
        Submit {
            call: client << 32 | number,
            epoch: ChainEpoch(2),
            command: Append { id: AppendId { client, ..append.id }, ..append }.into(),
        }
    };
    let stable = |table: &mut Table<ChainServer>| {
        let through = table.role.length();
        table.burst(node(2), StableThrough { epoch: ChainEpoch(2), through });
    };
    for client in 1..=4 {
        table.burst(client_role(), named(client, 0));
    }
    stable(&mut table);
    let is_busy =
        |did: &Did<FuzzyLog>| answers(did).iter().any(|(_, it)| matches!(it, FuzzyClientIn::HeadBusy(_)));
    assert!(is_busy(&table.burst(client_role(), named(5, 0))), "the table is full");
    for _ in 0..4 {
        // The first one goes on; nobody is silent for long enough yet.
        table.pass(forget_after / 5);
        table.timer(ChainTimer::Tick);
        let number = table.role.length().0;
        table.burst(client_role(), named(1, number));
        stable(&mut table);
    }
    assert_eq!(table.role.state().clients(), 4);
    table.pass(forget_after);
    table.timer(ChainTimer::Tick);
    stable(&mut table);
    assert_eq!(table.role.state().clients(), 1, "all but the one that went on");
    assert!(table.role.state().knows_client(1));
    assert!(!is_busy(&table.burst(client_role(), named(5, 0))));
}

// A head that goes on ordering takes the memory of every host of its chain.
#[test]
fn a_full_partition_takes_no_more_appends() {
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let parameters = FuzzyParameters { live_bytes_max: 300, ..FuzzyParameters::default() };
    let server = ChainServer::new(PARTITION, ColourPlacement::over(1), parameters.clone(), beside);
    let mut table = serving_as(server, true);
    let refused = |did: &Did<FuzzyLog>| {
        let full =
            |it: &(bool, FuzzyClientIn)| matches!(&it.1, FuzzyClientIn::HeadBusy(busy) if busy.is_full);
        answers(did).iter().any(full)
    };
    let taken = (0..10)
        .take_while(|&number| !refused(&table.burst(client_role(), submit(number, ChainEpoch(2)))))
        .count();
    assert!((2..=4).contains(&taken), "{taken} were taken");
    let through = table.role.length();
    table.burst(node(2), StableThrough { epoch: ChainEpoch(2), through });
    let again = table.burst(client_role(), submit(0, ChainEpoch(2)));
    assert!(!refused(&again), "what is delivered is answered");
    let bytes = table.role.row_bytes();
    let server = ChainServer::new(PARTITION, ColourPlacement::over(1), parameters, beside);
    assert_eq!(restored(server, &table.journal()).row_bytes(), bytes);
}

/// A server that writes a snapshot after every third append or so, and has hardly any of its row in memory.
pub(super) fn snapping() -> ChainServer {
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let parameters = FuzzyParameters {
        snapshot_every_bytes: 300,
        snapshot_chunk_bytes: 100,
        row_memory_bytes: 0,
        ..FuzzyParameters::default()
    };
    ChainServer::new(PARTITION, ColourPlacement::over(1), parameters, beside)
}

/// Time passes until a snapshot is written; which record is needed then.
fn write_snapshot(table: &mut Table<ChainServer>) -> Option<usize> {
    let mut needed = None;
    for _ in 0..500 {
        table.pass(Duration::from_millis(3));
        let did = table.timer(ChainTimer::Tick);
        needed = needed.or(did.iter().find_map(|effect| match effect {
            Effect::Trim { before } => Some(before.0 as usize),
            _ => None,
        }));
    }
    needed
}

/// The head has ordered so many commands, and they are stable.
pub(super) fn order(table: &mut Table<ChainServer>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        table.burst(client_role(), submit(number, ChainEpoch(2)));
    }
    let through = table.role.length();
    table.burst(node(2), StableThrough { epoch: ChainEpoch(2), through });
}

// A row that stays for ever fills memory and journal; one that goes too early is lost with the next restart.
#[test]
fn a_snapshot_replaces_the_beginning_of_the_row() {
    let mut table = serving_as(snapping(), true);
    order(&mut table, 0..20);
    let needed = write_snapshot(&mut table).expect("it is due");
    assert_eq!((table.role.saved_below(), table.role.length()), (RowIndex(20), RowIndex(20)));
    order(&mut table, 20..400);
    table.end();
    assert_eq!(table.role.begins_at(), RowIndex(400), "those before are applied, and everybody has them");
    let records = table.journal().split_off(needed);
    let again = restored(snapping(), &records);
    assert_eq!((again.state().applied(), again.length()), (RowIndex(400), RowIndex(400)));
    assert_eq!(again.state().digest(), table.role.state().digest());
    assert_eq!((again.journal(), again.base()), (table.role.journal(), RowIndex(400)));
    // The chain in force has not said that it has all of this: one that was let in may lack some.
    let mut again = Table::new(again, node(1));
    again.burst(node(3), SealChain { epoch: ChainEpoch(3), journal: None });
    let projection = projection(&again, ChainEpoch(3), true);
    again.burst(node(3), Project { projection, copies: false });
    assert_eq!(write_snapshot(&mut again), None);
    again.burst(node(2), StableThrough { epoch: ChainEpoch(3), through: RowIndex(400) });
    assert!(write_snapshot(&mut again).is_some());
}

// A restart that forgets what was applied while a snapshot was written cuts back what another one, which finds older records, has applied.
#[test]
fn what_was_applied_while_a_snapshot_was_written_stays_applied() {
    let mut table = serving_as(snapping(), true);
    order(&mut table, 0..20);
    table.timer(ChainTimer::Tick);
    assert_eq!(table.role.saved_below(), RowIndex(20), "one is being written");
    order(&mut table, 20..24);
    let needed = write_snapshot(&mut table).expect("it is complete");
    assert_eq!(table.role.saved_below(), RowIndex(20));
    let whole = table.journal();
    let mut trimmed = Table::new(restored(snapping(), &whole[needed..]), node(1));
    assert_eq!(trimmed.role.state().applied(), restored(snapping(), &whole).state().applied());
    // Its chain goes on without it.
    trimmed.burst(node(3), SealChain { epoch: ChainEpoch(3), journal: None });
    let other = ChainMember { node: node(2), journal: Some(OTHER_JOURNAL) };
    let (epoch, whole_from) = (ChainEpoch(3), RowIndex(24));
    let projection = ChainProjection { partition: PARTITION, epoch, members: vec![other], whole_from };
    trimmed.burst(node(3), Project { projection, copies: true });
    let (length, later) = (trimmed.role.length(), trimmed.journal());
    for records in [&whole[..], &whole[needed..]] {
        let again = restored(snapping(), &[records, &later].concat());
        assert_eq!(again.length(), length, "whether or not a trim outlived the power");
    }
    // Journals of an earlier version are cut back below that, and have the same commands once more behind it.
    let cut = ChainRecord::from(CutBack { length: RowIndex(20) });
    let once_more = ChainRecord::from(Ordered { index: RowIndex(20), entry: entry(20) });
    let earlier = [cut, once_more].map(|record| Bytes::from(record.encoded()));
    let again = restored(snapping(), &[&whole[..], &earlier].concat());
    assert_eq!((again.length(), again.state().applied()), (RowIndex(24), RowIndex(24)));
}

/// An append of a colour in each of two partitions.
fn of_two_partitions(placement: ColourPlacement) -> (AppendId, Content) {
    let in_partition = |partition: u16| {
        let found = (0..64).map(Colour).find(|it| placement.partition_of(*it) == PartitionId(partition));
        found.expect("each partition has colours")
    };
    let mut colours = vec![in_partition(0), in_partition(1)];
    colours.sort_unstable();
    let content = Content::new(colours, vec![Bytes::from_static(b"body")]);
    (AppendId { client: 1, number: 0, content: content.digest() }, content)
}

/// Something is reported as stuck.
fn reports(did: &Did<FuzzyLog>) -> bool {
    answers(did).iter().any(|(_, message)| matches!(message, FuzzyClientIn::StuckAppend(_)))
}

// An operator who sees the time since the last report, or of an append that goes on, looks for a fault in the wrong place.
#[test]
fn a_head_knows_for_how_long_an_append_is_as_it_is() {
    let placement = ColourPlacement::over(2);
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let parameters = FuzzyParameters::default();
    let stuck_after = parameters.stuck_after;
    let mut table = serving_as(ChainServer::new(PARTITION, placement, parameters, beside), true);
    let (id, content) = of_two_partitions(placement);
    let owner = fuzzylog::Owner { generation: 0, identity: 5 };
    let propose = ProposeTime { id, below: 0, seen: AppendTime::ZERO, owner, content };
    let epoch = ChainEpoch(2);
    table.burst(client_role(), Submit { call: 0, epoch, command: propose.into() });
    table.burst(node(2), StableThrough { epoch, through: RowIndex(1) });
    assert_eq!((table.role.state().unfinished_count(), table.role.unchanged_since(id)), (1, None));
    table.timer(ChainTimer::Tick);
    let seen_at = table.now();
    assert_eq!(table.role.unchanged_since(id), Some(seen_at));
    for _ in 0..3 {
        table.pass(stuck_after);
        let did = table.timer(ChainTimer::Tick);
        assert!(reports(&did), "{did:?}");
        assert_eq!(table.role.unchanged_since(id), Some(seen_at), "reported, and still as it was");
    }
    let (expected, owner) = (Some(owner), fuzzylog::Owner { generation: 1, identity: 6 });
    let content = table.role.state().unfinished().next().expect("it is there").content.clone();
    let take_over = TakeOver { id, expected, owner, content };
    table.burst(client_role(), Submit { call: 1, epoch, command: take_over.into() });
    table.burst(node(2), StableThrough { epoch, through: RowIndex(2) });
    table.timer(ChainTimer::Tick);
    assert_eq!(table.role.unchanged_since(id), Some(table.now()), "somebody works on it");
}

// Where disks are slow an append takes longer than the usual patience, and who takes over needs as long again: several who take it over
// from each other in turns never finish it.
#[test]
fn a_head_gives_more_time_on_slow_disks_and_after_each_take_over() {
    let usual = FuzzyParameters::default().stuck_after;
    for (slow, generation) in [(false, 0), (true, 0), (false, 3)] {
        let placement = ColourPlacement::over(2);
        let beside = NodeId::new(HostId(1), HostSlot(1));
        let server = ChainServer::new(PARTITION, placement, FuzzyParameters::default(), beside);
        let mut table = serving_as(server, true);
        let (id, content) = of_two_partitions(placement);
        let owner = fuzzylog::Owner { generation, identity: 5 };
        let propose = ProposeTime { id, below: 0, seen: AppendTime::ZERO, owner, content };
        let epoch = ChainEpoch(2);
        table.burst(client_role(), Submit { call: 0, epoch, command: propose.into() });
        table.timer(ChainTimer::Tick);
        table.pass(if slow { usual } else { Duration::from_millis(1) });
        table.burst(node(2), StableThrough { epoch, through: RowIndex(1) });
        table.timer(ChainTimer::Tick);
        let times = if slow { 3 } else { 1 << generation };
        for _ in 1..times {
            table.pass(usual);
            let did = table.timer(ChainTimer::Tick);
            assert!(!reports(&did), "{did:?}");
        }
        table.pass(usual);
        assert!(reports(&table.timer(ChainTimer::Tick)), "slow {slow}, generation {generation}");
    }
}
