//! The wire and journal formats: golden bytes of every message, command and record, and hostile input.

use fuzzylog::chain_server::{
    Applied, ChainRecord, ColoursPulled, Copies, CountLogs, CutBack, DurableThrough, FindLogs, Forgets,
    Forward, JournalName, LeavingRegion, NodesPulled, Ordered, Ping, PlaceColours, Play, Project,
    PullColours, PullNodes, PullRow, PullState, Pulled, Received, Scan, SealChain, SealedFor, Serves,
    SnapshotPage, SnapshotPart, StableThrough, Submit, Sync, SyncThrough,
};
use fuzzylog::client::{
    ChangeDone, ChangeFlaw, ChangeInFlight, ChangeRefused, ChangeStands, ColourElsewhere, ColoursPlaced,
    CommandDone, CommandsDone, DirectorsMoved, EpochInForce, HeadBusy, InForceThrough, LogsCounted,
    LogsFound, NamedOutcome, NodesPage, NotThere, ProjectionDecided, ScanOutdated, ScanTooEarly, Scanned,
    ServerSealed, StuckAppend, Synced,
};
use fuzzylog::director::{
    ChangeDecided, ComingColours, CopyProgress, FewerPartitions, FollowMembers, FollowedMembers,
    MembersSettled, MorePartitions, MoveColours, MovesSeen, Pong, SealAck, WantChange, WantMap,
    WantProjection,
};
use fuzzylog::partition::SegmentBlob;
use fuzzylog::partition::command::{
    AddRegion, Append, AppendMany, BeyondTail, CleanUp, Command, Conflict, CopiedThrough, CopyNodes,
    Delivered, Elsewhere, Fix, Fixed, ForgetClients, ForgetColours, Forgotten, Held, JoinRegions,
    KeepColours, LogBegin, MovePage, MovePoint, MovedChain, MovedClient, Moving, NamedAppend, Outcome,
    OwnColours, Placed, ProposeTime, Proposed, Raise, RegionPartitions, RemoveRegion, Restore, RestoredTo,
    Restoring, RowEntry, SealColours, ShadowNode, ShadowPart, StreamPoint, TakeColours, TakeOver, Trim,
    TrimmedTo, Unknown,
};
use fuzzylog::partition::snapshot::{
    ArrivedColour, ClientDone, ClientHead, ColourHead, LogBegins, LogHeads, LooseNodes, MovesHead, NextNode,
    RegionsHead, RestoredHead, SegmentRun, SegmentStored, SeveralState, SnapshotItem, StateHead, TakenHead,
    WaitingShadow, WaitingSingle, WaitingTrim,
};
use fuzzylog::partition::{DoneAppend, LogHead};
use fuzzylog::{
    Across, AppendId, AppendTime, BeginMove, BeginPartition, ChainEpoch, ChainJournal, ChainMember,
    ChainProjection, Colour, ColourMove, ColourMoves, ColourNode, ColourPlan, Content, Edge, EmptyPartition,
    EndMove, EndPartition, FuzzyDeployment, FuzzyMessage, FuzzyParameters, FuzzySlot, MapDecision,
    MapVersion, MoveFlaw, MovedColour, NodePosition, NodeSource, Owner, PartitionId, RegionId, RestoreId,
    RowIndex, ScanPage, ScanPoint, ScannedNode, TakeMoveBack,
};
use kernel::{BlobId, Bytes, HostId, HostSlot, NodeId};
use parts::SnapshotRecord;
use table::formats::{Format, Golden, withstand};

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

const EPOCH: ChainEpoch = ChainEpoch(5);
const PARTITION: PartitionId = PartitionId(2);
const JOURNAL: ChainJournal = ChainJournal(77);
const AT: AppendTime = AppendTime { clock: 9, partition: PARTITION, ahead: 1 };
const OWNER: Owner = Owner { generation: 1, identity: 33 };
const COLOUR: Colour = Colour(4);
const FIRST: NodePosition = NodePosition(6);
const SEGMENT: BlobId = BlobId { series: 12, first: 13 };
const REGION: RegionId = RegionId(3);
const LEAVING: LeavingRegion = LeavingRegion { region: REGION, was_there: true };
const BEGIN: LogBegin = LogBegin { colour: COLOUR, number: 7 };
const INDEX: RowIndex = RowIndex(8);
const RESTORE: RestoreId = RestoreId(55);
const MOVE: MapVersion = MapVersion(13);
const VERSION: MapVersion = MapVersion(14);
const MOVE_POINT: MovePoint =
    MovePoint { past_clients: true, client: 0, number: 0, content: 0, colour: COLOUR, position: FIRST };
const POINT: ScanPoint = ScanPoint { colour: COLOUR, position: FIRST };

fn content() -> Content {
    Content::new(vec![COLOUR, Colour(7)], vec![bytes("one"), bytes("two")])
}

fn id() -> AppendId {
    AppendId { client: 3, number: 12, content: 0xabcd }
}

fn placed() -> Vec<Placed> {
    vec![Placed { colour: COLOUR, position: FIRST }]
}

fn others() -> Vec<RegionPartitions> {
    vec![RegionPartitions { region: REGION, partitions: 3 }]
}

fn edges() -> Vec<Edge> {
    vec![Edge { region: REGION, count: 5 }]
}

fn shadow() -> ShadowNode {
    let parts = vec![ShadowPart { colour: COLOUR, number: 4, edges: edges() }];
    ShadowNode { id: id(), at: AT, colours: content().colours, parts, bodies: vec![bytes("body")] }
}

fn content_colours() -> Vec<Colour> {
    content().colours
}

fn stored() -> ColourNode {
    ColourNode { id: id(), at: AT, colours: content_colours(), body: bytes("body"), across: None }
}

fn scanned() -> ScanPage {
    let node = |node| ScannedNode { colour: COLOUR, position: FIRST, node };
    ScanPage { nodes: vec![node(Some(stored())), node(None)], digest: 5, next: Some(POINT) }
}

/// A node of another region.
fn copied() -> ColourNode {
    let source = Some(NodeSource { region: REGION, number: 4, at: AT });
    let across = Some(Box::new(Across { edges: edges(), source }));
    ColourNode { id: id(), at: AT, colours: content().colours, body: bytes("body"), across }
}

fn begun() -> ColourMove {
    ColourMove { id: MOVE, colours: content_colours(), from: PARTITION, to: PartitionId(3) }
}

fn page() -> MovePage {
    let done = vec![DoneAppend { id: id(), at: AT, placed: placed() }];
    let clients = vec![MovedClient { client: 3, below: 11, done }];
    let chains =
        vec![MovedChain { colour: COLOUR, first: FIRST, last: AT, at: FIRST, nodes: vec![stored()] }];
    MovePage { at: MovePoint::default(), next: Some(MOVE_POINT), clock: 9, clients, chains }
}

fn moves() -> ColourMoves {
    ColourMoves {
        version: VERSION,
        moved: vec![MovedColour { colour: COLOUR, partition: PARTITION }],
        moving: Some(begun()),
        taken_back: MOVE,
        added: vec![PartitionId(3)],
        emptied: Some(PartitionId(3)),
    }
}

/// A content whose colours are where a map has them.
fn planned() -> Content {
    let plan = ColourPlan { version: VERSION, partitions: vec![PARTITION, PartitionId(3)] };
    Content { plan: Some(Box::new(plan)), ..content() }
}

/// One of every command, in the order of their tags.
fn commands() -> Vec<Command> {
    let (id, below, seen, owner, content) = (id(), 11, AT, OWNER, content());
    let one = Append { id, below, seen, content: content.clone() };
    vec![
        one.clone().into(),
        ProposeTime { id, below, seen, owner, content: content.clone() }.into(),
        Fix { id, owner, at: AT }.into(),
        TakeOver { id, expected: Some(OWNER), owner, content }.into(),
        CleanUp { id, owner }.into(),
        Trim { colour: COLOUR, before: FIRST }.into(),
        ForgetClients { used_below: INDEX }.into(),
        Raise { seen }.into(),
        AppendMany {
            appends: vec![
                NamedAppend { call: 6, append: one.clone() },
                NamedAppend { call: 7, append: one.clone() },
            ],
        }
        .into(),
        JoinRegions { own: REGION, others: others() }.into(),
        CopyNodes {
            region: REGION,
            partition: PARTITION,
            after: AT,
            through: AT,
            nodes: vec![shadow()],
            begins: Some(vec![BEGIN]),
        }
        .into(),
        CopiedThrough { region: REGION, partition: PARTITION, through: AT }.into(),
        Append { content: Content { played: vec![FIRST, FIRST], ..one.content.clone() }, ..one.clone() }
            .into(),
        Append { content: Content::opening(content_colours(), RESTORE), ..one }.into(),
        Restore { restore: RESTORE, colour: COLOUR, at: FIRST, begins: true, nodes: vec![stored()] }.into(),
        AddRegion { region: REGION, partitions: 3 }.into(),
        RemoveRegion { region: REGION }.into(),
        SealColours { begun: begun() }.into(),
        TakeColours { begun: begun(), page: page() }.into(),
        OwnColours { id: MOVE, version: VERSION }.into(),
        ForgetColours { id: MOVE, version: VERSION }.into(),
        KeepColours { id: MOVE, version: VERSION }.into(),
        ProposeTime { id, below, seen, owner, content: planned() }.into(),
    ]
}

/// One of every outcome, in the order of their tags.
fn outcomes() -> Vec<Outcome> {
    vec![
        Delivered { at: AT, placed: placed() }.into(),
        Proposed { at: AT }.into(),
        Fixed { at: AT }.into(),
        Held { owner: OWNER }.into(),
        Forgotten {}.into(),
        Conflict {}.into(),
        Unknown {}.into(),
        TrimmedTo { first: FIRST }.into(),
        BeyondTail { tail: FIRST }.into(),
        Restoring {}.into(),
        RestoredTo { tail: FIRST }.into(),
        Moving {}.into(),
        Elsewhere { version: VERSION }.into(),
    ]
}

fn entries() -> Vec<RowEntry> {
    let command = Raise { seen: AT }.into();
    vec![RowEntry { origin: node(1, 1), call: 6, command }]
}

fn projection() -> ChainProjection {
    let member = |host, journal| ChainMember { node: node(host, 18), journal };
    let members = vec![member(1, Some(JOURNAL)), member(2, None)];
    ChainProjection { partition: PARTITION, epoch: EPOCH, members, whole_from: INDEX }
}

fn followed() -> FollowedMembers {
    let host = paxos::HostEntry { name: "d".to_owned(), address: "d:1".to_owned() };
    FollowedMembers { members: paxos::Members { version: 3, hosts: vec![host] }, drawn: 21 }
}

/// Table: one of every message, by receiver, in the order of their tags.
fn messages() -> Vec<FuzzyMessage> {
    let (call, epoch, partition, colour, from) = (6, EPOCH, PARTITION, COLOUR, FIRST);
    let (session, length, journal) = (44, INDEX, JOURNAL);
    let nodes =
        vec![ColourNode { id: id(), at: AT, colours: content().colours, body: bytes("body"), across: None }];
    vec![
        Submit { call, epoch, command: Raise { seen: AT }.into() }.into(),
        Sync { call, epoch, colour, seen: AT }.into(),
        Play { call, colour, from, to: NodePosition(9) }.into(),
        CountLogs { call, colour, below: FIRST }.into(),
        FindLogs { call, colour, counts: edges() }.into(),
        Scan { call, below: AT, from: POINT, to: Some(POINT), digests: true }.into(),
        SyncThrough { call, epoch, colour, seen: AT, begun: AT, through: INDEX }.into(),
        Forward { epoch, first: INDEX, entries: entries(), takes_many: Some(true) }.into(),
        DurableThrough { epoch, through: INDEX }.into(),
        Received { epoch, length, without: Some(vec![LEAVING]) }.into(),
        StableThrough { epoch, through: INDEX }.into(),
        PullRow { session, epoch, journal, from: INDEX }.into(),
        Pulled {
            session,
            first: INDEX,
            entries: entries(),
            length,
            stable: RowIndex(7),
            base: Some(RowIndex(2)),
        }
        .into(),
        PullState { transfer: 44, index: 3, epoch, journal }.into(),
        SnapshotPage { transfer: 44, below: INDEX, index: 3, last: true, bytes: bytes("page") }.into(),
        PullColours { id: MOVE, at: MOVE_POINT }.into(),
        ColoursPulled { id: MOVE, page: page() }.into(),
        PullNodes { session, region: REGION, partition, partitions: 3, after: AT }.into(),
        NodesPulled {
            session,
            after: AT,
            through: AT,
            nodes: vec![shadow()],
            head: Some(node(1, 18)),
            begins: Some(vec![BEGIN]),
        }
        .into(),
        Ping {}.into(),
        SealChain { epoch, journal: Some(journal) }.into(),
        Project { projection: projection(), copies: true }.into(),
        PlaceColours { moves: moves(), sources: vec![node(1, 18)] }.into(),
        CommandDone { call, partition, outcome: Proposed { at: AT }.into(), takes_many_in: Some(EPOCH) }
            .into(),
        HeadBusy { call, partition, is_full: true }.into(),
        ServerSealed { call, partition, epoch }.into(),
        EpochInForce { call, epoch }.into(),
        Synced { call, epoch, first: FIRST, tail: NodePosition(9), last: AT }.into(),
        NodesPage { call, colour, from, first: FIRST, nodes }.into(),
        NodesPage { call, colour, from, first: FIRST, nodes: vec![copied()] }.into(),
        NotThere { call, from }.into(),
        StuckAppend { id: id(), owner: OWNER, content: content() }.into(),
        ProjectionDecided { projection: projection() }.into(),
        CommandsDone {
            partition,
            outcomes: vec![NamedOutcome { call, outcome: Proposed { at: AT }.into() }],
        }
        .into(),
        DirectorsMoved { directors: vec![node(1, 2)] }.into(),
        LogsCounted { call, first: FIRST, counts: edges() }.into(),
        LogsFound { call, below: Some(FIRST), at: AT }.into(),
        Scanned { call, page: scanned() }.into(),
        ScanTooEarly { call }.into(),
        InForceThrough { call, epoch, length }.into(),
        ColourElsewhere { call, version: VERSION }.into(),
        ColoursPlaced { moves: moves() }.into(),
        ScanOutdated { call }.into(),
        ChangeStands { call, state: ChangeDone { version: VERSION, partition }.into() }.into(),
        ChangeStands { call, state: ChangeInFlight { id: Some(MOVE), partition: Some(PARTITION) }.into() }
            .into(),
        ChangeStands { call, state: ChangeRefused { why: ChangeFlaw::Move(MoveFlaw::TooManyMoved) }.into() }
            .into(),
        WantProjection { partition, epoch }.into(),
        Pong {
            partition,
            journal,
            sealed: epoch,
            notified: epoch,
            serves: true,
            copy: Some(CopyProgress { epoch, lacks: Some(3) }),
            run: 9,
            has_all: Some(true),
            moves: Some(MovesSeen {
                version: VERSION,
                taken: Some(MOVE),
                has_no_room: None,
                coming: Some(ComingColours { id: MOVE, next: MOVE_POINT }),
            }),
        }
        .into(),
        SealAck { partition, epoch, journal, length, copy: Some(epoch), base: Some(RowIndex(2)) }.into(),
        ChangeDecided { projections: vec![projection()], followed: Some(followed()), moves: Some(moves()) }
            .into(),
        FollowMembers { members: followed().members }.into(),
        MembersSettled { version: 3 }.into(),
        WantMap { version: VERSION }.into(),
        WantChange {
            call,
            change: MoveColours { colours: content_colours(), to: partition }.into(),
            begun: Some(MOVE),
            client: Some(node(1, 1)),
        }
        .into(),
        WantChange {
            call,
            change: MorePartitions { added: Some(partition) }.into(),
            begun: None,
            client: None,
        }
        .into(),
        WantChange { call, change: FewerPartitions { removed: partition }.into(), begun: None, client: None }
            .into(),
    ]
}

/// One of every record, in the order of their tags.
fn records() -> Vec<ChainRecord> {
    vec![
        Ordered { index: INDEX, entry: entries().remove(0) }.into(),
        SealedFor { epoch: EPOCH }.into(),
        Serves { epoch: EPOCH }.into(),
        JournalName { journal: JOURNAL }.into(),
        CutBack { length: INDEX }.into(),
        SnapshotPart { part: SnapshotRecord::Begin { below: INDEX } }.into(),
        SnapshotPart { part: SnapshotRecord::Chunk { bytes: bytes("chunk") } }.into(),
        SnapshotPart { part: SnapshotRecord::End }.into(),
        Applied { through: INDEX }.into(),
        Copies { epoch: EPOCH }.into(),
        Forgets {}.into(),
    ]
}

/// One of every item of a snapshot, in the order of their tags.
fn items() -> Vec<SnapshotItem> {
    let (id, content, colour) = (id(), content(), COLOUR);
    let done = DoneAppend { id, at: AT, placed: placed() };
    let delivered = Some(Delivered { at: AT, placed: placed() });
    let (origin, call, owner) = (node(1, 1), 6, OWNER);
    let stored =
        ColourNode { id, at: AT, colours: content.colours.clone(), body: bytes("body"), across: None };
    let waiting = content.clone();
    vec![
        StateHead { clock: 9, last: AT, applied: INDEX, digest: 5 }.into(),
        ClientHead { client: 3, below: 11, used: INDEX }.into(),
        ClientDone { done }.into(),
        SeveralState { id, owner, content, at: AT, is_fixed: true, delivered, origin, call }.into(),
        WaitingSingle { id, content: waiting, at: AT, origin, call }.into(),
        ColourHead { colour, first: FIRST, last: AT }.into(),
        NextNode { colour, node: stored }.into(),
        RegionsHead {
            own: REGION,
            others: others(),
            copied: vec![StreamPoint { region: REGION, partition: PARTITION, at: AT }],
            confirmed: Vec::new(),
            everywhere: AT,
            removed: Some(vec![REGION]),
            gone: Some(edges()),
        }
        .into(),
        LogHeads {
            colour,
            logs: vec![LogHead { region: REGION, before: 2, edge: 3 }],
            of_trimmed: Some(edges()),
            absent: Some(edges()),
        }
        .into(),
        WaitingShadow { colour, region: REGION, node: shadow() }.into(),
        WaitingTrim { colour, before: FIRST }.into(),
        RestoredHead { restore: RESTORE, colour, first: FIRST, last: AT }.into(),
        LogBegins { at: AT, begins: vec![BEGIN] }.into(),
        MovesHead {
            version: VERSION,
            arrived: VERSION,
            over: MOVE,
            since: AT,
            leaving: Some(begun()),
            taking: None,
            next: Some(MOVE_POINT),
            clock: 9,
            here: vec![ArrivedColour { colour, clock: 9 }],
            gone: vec![colour],
        }
        .into(),
        TakenHead { id: MOVE, colour, first: FIRST, last: AT }.into(),
        SegmentRun { colour, segment: SEGMENT, first: FIRST, count: 3 }.into(),
        LooseNodes { nodes: bytes("nodes") }.into(),
        SegmentStored { segment: SegmentBlob { id: SEGMENT, bytes: 700, digest: 5, cost: 800 } }.into(),
    ]
}

/// One of every decision about where colours are, in the order of their tags.
fn decisions() -> Vec<MapDecision> {
    vec![
        BeginMove { begun: begun() }.into(),
        EndMove { id: MOVE }.into(),
        TakeMoveBack { id: MOVE }.into(),
        BeginPartition { partition: PARTITION, servers: vec![node(1, 18)] }.into(),
        EmptyPartition { partition: PARTITION }.into(),
        EndPartition { partition: PARTITION }.into(),
    ]
}

// A changed byte makes old journals, and peers of another version, unreadable.
#[test]
fn every_message_and_record_has_its_golden_bytes() {
    let mut golden = Golden::default();
    golden.values("", &messages());
    golden.values("Command.", &commands());
    golden.values("Outcome.", &outcomes());
    golden.values("Record.", &records());
    golden.values("Item.", &items());
    golden.values("Decision.", &decisions());
    golden.values("", &[projection()]);
    golden.check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden"));
}

// A peer's mistake must end in a refusal: no panic, and no memory that the input does not pay for.
#[test]
fn damaged_and_random_bytes_never_panic() {
    withstand(&[
        Format::of(&messages()),
        Format::of(&commands()),
        Format::of(&outcomes()),
        Format::of(&records()),
        Format::of(&items()),
        Format::of(&decisions()),
        Format::of(&[projection()]),
    ]);
}

// Two kinds of nodes at one slot would read each other's journals.
#[test]
fn every_slot_has_one_role() {
    let host = |name: &str| paxos::HostEntry { name: name.to_owned(), address: format!("{name}:1") };
    let hosts = [host("a"), host("b")];
    let (parameters, log) = (FuzzyParameters::default(), paxos::Parameters::default());
    let deployment = FuzzyDeployment::new(0x100, &hosts, 3, (2, 0), parameters, log);
    let mut slots: Vec<FuzzySlot> = Vec::new();
    for (slot, member) in deployment.build(HostId::named("a")) {
        let at = FuzzySlot::at(slot.0 - 0x100).expect("a role stands there");
        let named = match at {
            FuzzySlot::Client => "client".to_owned(),
            FuzzySlot::Director => "director".to_owned(),
            FuzzySlot::ChainServer(_) => "chain server".to_owned(),
            FuzzySlot::Log(role) => format!("{role:?}").to_lowercase().replace("proxyleader", "proxy_leader"),
        };
        assert_eq!(kernel::Node::role_name(&member), named);
        assert!(!slots.contains(&at), "{at:?} twice");
        slots.push(at);
    }
    assert_eq!(slots.len(), 1 + 1 + 6 + 3);
    assert_eq!((FuzzySlot::at(0), FuzzySlot::at(0x10 + 256)), (None, None));
}
