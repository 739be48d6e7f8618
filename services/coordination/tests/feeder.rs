//! The feeder of a host over FuzzyLog, message by message: its chain has one server, and its home and shards are played by the test.

use coordination::feeder::{COLOUR, FedTreeMessage, TreeFeeder, TreeFeederPlan, TreeFeederTimer};
use coordination::home::{HomeQuery, Located, Place, Voids};
use coordination::wire::{Body, Caller, ConnectionEpoch, JuteOutput as _, WriteHead, ZkSessionId, op};
use coordination::{Placement, SessionSettings};
use fuzzylog::chain_server::{ChainServerIn, FromClient};
use fuzzylog::client::{CommandDone, FuzzyClientIn, Synced};
use fuzzylog::partition::command::{Delivered, Outcome, Placed as PlacedNode};
use fuzzylog::{
    AppendTime, ChainEpoch, ChainJournal, ChainMember, ChainProjection, ColourPlacement, FuzzyClient,
    FuzzyMessage, FuzzyParameters, NodePosition, PartitionId,
};
use kernel::{Bytes, Decode as _, Encode as _, HostId, HostSlot, NodeId, RequestId, Role as _};
use mason::client::{GatewayIn, ReadAnswer, ReadAnswers};
use mason::proxy::arranging::ProxyCall;
use mason::proxy::{Barrier, Lacking, SubmitOperations};
use mason::shard::ShardIn;
use mason::{Gsn, Layout, MasonMessage, Number, Operation, Placed, ProxyGroup, ShardMap, Space, Topology};
use std::sync::Arc;
use std::time::Duration;
use table::{Table, sends};

const SHARDS: u16 = 2;
const HOME: Space = Space(SHARDS);

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

const GATEWAY: u32 = 3;
const CHAIN: u32 = 16;

fn server(space: Space) -> NodeId {
    node(1, 100 + u32::from(space.0))
}

fn settings() -> SessionSettings {
    SessionSettings::new(Placement::new(SHARDS), [7; 32])
}

/// What it sent, by receiver.
type Sent = Vec<(NodeId, FedTreeMessage)>;

struct Fed {
    table: Table<TreeFeeder>,
    /// Sent, and not looked at yet.
    sent: Sent,
}

impl Fed {
    /// A feeder whose servers have executed nothing, and of which it knows that.
    fn new() -> Self {
        let mut projection = ChainProjection::initial(PartitionId(0), &[node(1, CHAIN)]);
        projection.members = vec![ChainMember { node: node(1, CHAIN), journal: Some(ChainJournal(7)) }];
        let client = FuzzyClient::new(
            FuzzyParameters::default(),
            ColourPlacement::over(1),
            vec![node(1, 2)],
            vec![projection],
        );
        let servers = |space| vec![server(space), node(2, server(space).host_slot().0)];
        let topology = Topology {
            version: 0,
            groups: vec![ProxyGroup { proxies: vec![node(1, 1), node(2, 1)] }],
            layout: Layout::at_bootstrap(1, SHARDS),
            sequencers: Vec::new(),
            shards: (0..=SHARDS).map(Space).map(servers).collect(),
        };
        let plan = TreeFeederPlan {
            client,
            topology: Arc::new(topology),
            gateway: node(1, GATEWAY),
            sessions: settings(),
            clock_every: Duration::from_millis(100),
            wait_for_last: Duration::ZERO,
            retained_bytes_max: 1 << 20,
            node_bytes: 1 << 10,
        };
        let mut fed = Self { table: Table::new(TreeFeeder::new(plan), node(1, 1)), sent: Vec::new() };
        for space in (0..=SHARDS).map(Space) {
            let from = Placed { space, number: Number(1) };
            fed.hear(server(space), MasonMessage::from(Lacking { from }));
        }
        let shard_map = ShardMap { version: 0, shards: SHARDS, before: SHARDS };
        let place = Place { position: 0, next: vec![1; usize::from(SHARDS)], shard_map };
        fed.answer_home(Located { first: Some(place.clone()), found: Some(place) }.encoded());
        // It looks twice whether there is something that its servers lack.
        fed.answer_sync(0);
        fed.answer_sync(0);
        fed
    }

    fn hear(&mut self, from: NodeId, message: impl Into<FedTreeMessage>) {
        let did = self.table.burst(from, message.into());
        self.sent.extend(sends(&did));
    }

    fn chain_says(&mut self, message: impl Into<FuzzyClientIn>) {
        self.hear(node(1, CHAIN), FuzzyMessage::Client(message.into()));
    }

    /// What was sent to a node since the last look.
    fn sent_to(&mut self, to: NodeId) -> Vec<FedTreeMessage> {
        let (found, others) = std::mem::take(&mut self.sent).into_iter().partition(|(it, _)| *it == to);
        self.sent = others;
        let found: Sent = found;
        found.into_iter().map(|(_, message)| message).collect()
    }

    fn sent_to_shard(&mut self, space: Space) -> Vec<ShardIn> {
        let of = |message| match message {
            FedTreeMessage::Mason(MasonMessage::Shard(message)) => Some(message),
            FedTreeMessage::Mason(_) | FedTreeMessage::Fuzzy(_) => None,
        };
        self.sent_to(server(space)).into_iter().filter_map(of).collect()
    }

    fn sent_to_gateway(&mut self) -> Vec<GatewayIn> {
        let of = |message| match message {
            FedTreeMessage::Mason(MasonMessage::Client(message)) => Some(message),
            FedTreeMessage::Mason(_) | FedTreeMessage::Fuzzy(_) => None,
        };
        self.sent_to(node(1, GATEWAY)).into_iter().filter_map(of).collect()
    }

    fn sent_to_chain(&mut self) -> Vec<FromClient> {
        let of = |message| match message {
            FedTreeMessage::Fuzzy(FuzzyMessage::ChainServer(ChainServerIn::Client(message))) => Some(message),
            FedTreeMessage::Mason(_) | FedTreeMessage::Fuzzy(_) => None,
        };
        self.sent_to(node(1, CHAIN)).into_iter().filter_map(of).collect()
    }

    /// What the home is asked, each with its tag.
    fn asked_home(&mut self) -> Vec<(u64, HomeQuery)> {
        let of = |message| if let ShardIn::ReadShard(read) = message { read.reads } else { Vec::new() };
        let reads = self.sent_to_shard(HOME).into_iter().flat_map(of);
        reads.map(|it| (it.tag, HomeQuery::decoded(&it.body).expect("it is a query"))).collect()
    }

    /// The home answers the last thing that it was asked.
    fn answer_home(&mut self, body: Vec<u8>) {
        let (tag, _) = self.asked_home().pop().expect("the home is asked something");
        let answers = vec![ReadAnswer { tag, body: body.into() }];
        let (space, executed) = (HOME, Gsn(0));
        let answers = ReadAnswers { space, executed, answers, refused: None, withheld: None };
        self.hear(server(HOME), MasonMessage::from(answers));
    }

    /// The gateway asks for the creation of a node; it is appended at this position.
    fn create(&mut self, path: &str, tag: u64, position: u64) {
        let (caller, opcode) = (Caller::default(), op::CREATE);
        let (session, epoch) = (ZkSessionId(1), ConnectionEpoch(1));
        let head = WriteHead { session, epoch, ephemeral: false, ttl_allowed: false, caller, opcode };
        let mut request = Vec::new();
        request.put_text(path);
        request.put_buffer(Some(b"x"));
        request.put_i32(1);
        request.put_i32(31);
        request.put_text("world");
        request.put_text("anyone");
        request.put_i32(0);
        let body = Bytes::from(Body::Write { head, request: &request }.written());
        let operations = vec![Operation { origin: node(1, GATEWAY), incarnation: 1, tag, body }];
        self.hear(node(1, GATEWAY), MasonMessage::from(SubmitOperations { operations }));
        let asked = self.sent_to_chain();
        let [FromClient::Submit(submit)] = &asked[..] else { panic!("a node is appended: {asked:?}") };
        let at = AppendTime { clock: position + 1, ..AppendTime::ZERO };
        let placed = vec![PlacedNode { colour: COLOUR, position: NodePosition(position) }];
        let outcome = Outcome::from(Delivered { at, placed });
        let (call, partition) = (submit.call, PartitionId(0));
        self.chain_says(CommandDone { call, partition, outcome, takes_many_in: None });
    }

    /// The home says that nothing is void of what it was asked for.
    fn admit(&mut self) {
        self.answer_home(Voids { voids: Vec::new() }.encoded());
    }

    fn has_passed(&mut self, id: u64) -> bool {
        self.sent_to_gateway()
            .iter()
            .any(|it| matches!(it, GatewayIn::BarrierPassed(passed) if passed.id == id))
    }

    /// The gateway asks how far the colour goes, and the chain answers.
    fn barrier(&mut self, id: u64, tail: u64) {
        self.hear(node(1, GATEWAY), MasonMessage::from(Barrier { id }));
        self.answer_sync(tail);
    }

    fn answer_sync(&mut self, tail: u64) {
        let [FromClient::Sync(sync)] = &self.sent_to_chain()[..] else { panic!("the colour is synced") };
        let (call, epoch) = (sync.call, ChainEpoch(1));
        let (first, tail) = (NodePosition(0), NodePosition(tail));
        self.chain_says(Synced { call, epoch, first, tail, last: AppendTime::ZERO });
    }
}

fn space_of(path: &str) -> Space {
    Placement::new(SHARDS).space_of(path)
}

// A multi that waits for another host's shards is handed over and not executed: a read behind the barrier would not see it.
#[test]
fn shards_know_what_they_were_handed_before_a_barrier_passes() {
    let mut fed = Fed::new();
    fed.create("/a", 1, 0);
    fed.admit();
    let concerned = [space_of("/a"), space_of("/")];
    (0..SHARDS).for_each(|space| drop(fed.sent_to_shard(Space(space))));
    fed.barrier(5, 1);
    assert!(fed.has_passed(5));
    for space in (0..SHARDS).map(Space) {
        let through = |it| if let ShardIn::Reach(reach) = it { Some(reach.through) } else { None };
        let reached = fed.sent_to_shard(space).into_iter().filter_map(through);
        let expected = if concerned.contains(&space) { vec![Number(1)] } else { Vec::new() };
        assert_eq!(reached.collect::<Vec<_>>(), expected, "{space}");
    }
    // Nothing is new for the next one.
    fed.barrier(6, 1);
    assert!(fed.has_passed(6));
    assert!((0..SHARDS).all(|space| fed.sent_to_shard(Space(space)).is_empty()));
}

// A read would miss what was answered before it, because this host's shards were not handed that yet.
#[test]
fn a_barrier_waits_for_what_was_there() {
    let mut fed = Fed::new();
    fed.create("/a", 1, 0);
    fed.barrier(5, 1);
    assert!(!fed.has_passed(5), "the home has not said yet what it admits");
    fed.admit();
    assert!(fed.has_passed(5));
}

// A host whose users ask nothing any more would not be heard by the others: who lacks its last node does not know of it.
#[test]
fn what_was_appended_is_said_again() {
    let mut fed = Fed::new();
    fed.create("/a", 1, 0);
    fed.admit();
    let said = |fed: &mut Fed| fed.sent_to(node(2, 1)).len();
    assert_eq!(said(&mut fed), 1);
    let mut again = 0;
    for _ in 0..20 {
        fed.table.pass(Duration::from_millis(250));
        let did = fed.table.timer(TreeFeederTimer::Tick);
        fed.sent.extend(sends(&did));
        again += said(&mut fed);
    }
    assert_eq!(again, 3);
}

// An operator's second question whether the change is done would be refused because of the change itself.
#[test]
fn a_change_of_shards_that_is_on_its_way_is_shown_as_what_is_wanted() {
    let mut fed = Fed::new();
    let progress = |fed: &Fed| {
        let progress = fed.table.role.progress();
        let ShardMap { shards, before, .. } = progress.layout.shard_map;
        (shards, before, progress.settled)
    };
    assert_eq!(progress(&fed), (SHARDS, SHARDS, true));
    let wanted: Bytes = ProxyCall::SetShards(SHARDS - 1).encoded().into();
    for _ in 0..2 {
        fed.table.call(|feeder, cx| feeder.on_request(RequestId(1), wanted.clone(), cx));
        assert_eq!(progress(&fed), (SHARDS - 1, SHARDS, false));
    }
    let wanted: Bytes = ProxyCall::SetShards(SHARDS).encoded().into();
    fed.table.call(|feeder, cx| feeder.on_request(RequestId(2), wanted, cx));
    assert_eq!(progress(&fed), (SHARDS, SHARDS, true), "it is so");
}
