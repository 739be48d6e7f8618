//! The smallest appends to several partitions, for the explorer: two partitions of one server each, an origin that may crash at any
//! moment, and a client beside each server that finishes what is stuck, in every order. The roles are the engine's own. A partition's
//! changes of its chain are left out: directors are one node that lets both serve, once.
//!
//! An append that a server finds unfinished when it looks is stuck. Time moves when a timer runs out.

use ::fuzzylog::chain_server::{ChainTimer, Project, SealChain};
use ::fuzzylog::client::{FuzzyClientTimer, ProjectionDecided};
use ::fuzzylog::messages::director::{DirectorIn, SealAck};
use ::fuzzylog::{
    AppendCall, AppendId, AppendTime, ChainEpoch, ChainMember, ChainProjection, ChainServer, Colour,
    ColourPlacement, Content, FuzzyClient, FuzzyLog, FuzzyMessage, FuzzyParameters, FuzzyRequest,
    FuzzyResponse, NodePosition, Owner, PartitionId,
};
use kernel::{
    Bytes, Cx, HostId, HostSlot, Instant, NodeId, Position, RequestId, Role, TimerIndex, TimerKey, invariant,
};
use sim::{Exploration, ExploreBounds, ExploredCluster, Scope, Spent};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

/// The smallest appends.
#[derive(Clone, Copy, Debug)]
pub struct SmallestAppends {
    /// Whether a user beside the first partition's server appends to both colours, too.
    pub two_origins: bool,
    /// The bounds of each path and of the whole. `timers` counts looks after what is stuck, and waits before a take-over.
    pub bounds: ExploreBounds,
}

/// A crash of the origin, a look of each server at what is stuck, and what two rivals need to finish it.
const APPEND_BOUNDS: ExploreBounds = ExploreBounds {
    timers: 4,
    losses: 0,
    duplications: 0,
    crashes: 1,
    depth: 1_000,
    states: 20_000_000,
    time: Duration::from_secs(600),
};

/// An origin that may crash, and two that may take over.
pub const TAKE_OVER: SmallestAppends = SmallestAppends { two_origins: false, bounds: APPEND_BOUNDS };

/// The same with a look less: an origin that crashes, and one that takes over.
pub const SHORT_TAKE_OVER: SmallestAppends =
    SmallestAppends { bounds: ExploreBounds { timers: 3, ..APPEND_BOUNDS }, ..TAKE_OVER };

/// The same without a crash: two that take over from each other, and from an origin that goes on.
pub const RIVALS: SmallestAppends =
    SmallestAppends { bounds: ExploreBounds { crashes: 0, ..APPEND_BOUNDS }, ..TAKE_OVER };

/// One that may take over, and any one message is lost, and any one arrives twice.
pub const LOST: SmallestAppends = SmallestAppends {
    bounds: ExploreBounds { losses: 1, duplications: 1, timers: 2, ..APPEND_BOUNDS },
    ..TAKE_OVER
};

/// Two origins that nobody interrupts, and any one message arrives twice.
pub const TWO_ORIGINS: SmallestAppends = SmallestAppends {
    two_origins: true,
    bounds: ExploreBounds { timers: 0, duplications: 1, crashes: 0, ..APPEND_BOUNDS },
};

kernel::nodes! {
    /// What the hosts run.
    #[derive(Clone, Debug)]
    pub enum SmallestFuzzyNode of FuzzyLog {
        /// Has a partition's row.
        role ChainServer(Box<ChainServer>) "chain server",
        /// Appends, and finishes what is stuck.
        role Client(Box<FuzzyClient>) "client",
        /// Lets the servers serve.
        role Director(OneDirector) "director",
    }
}

/// Directors, as far as they let every partition serve one epoch.
#[derive(Clone, Debug)]
pub struct OneDirector;

/// What a director hears.
#[derive(Debug)]
pub struct ToDirector(DirectorIn);

impl TryFrom<FuzzyMessage> for ToDirector {
    type Error = FuzzyMessage;

    fn try_from(message: FuzzyMessage) -> Result<Self, FuzzyMessage> {
        match message {
            FuzzyMessage::Director(message) => Ok(Self(message)),
            other => Err(other),
        }
    }
}

impl Role for OneDirector {
    type Family = FuzzyLog;
    type In = ToDirector;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.multicast(SERVERS, SealChain { epoch: EPOCH, journal: None });
    }

    fn on_message(&mut self, from: NodeId, ToDirector(message): ToDirector, cx: &mut Cx<'_, Self>) {
        if let DirectorIn::SealAck(SealAck { partition, epoch, journal, length, .. }) = message {
            let members = vec![ChainMember { node: from, journal: Some(journal) }];
            let projection = ChainProjection { partition, epoch, members, whole_from: length };
            cx.multicast(CLIENTS, ProjectionDecided { projection: projection.clone() });
            cx.send(from, Project { projection, copies: false });
        }
    }
}

const EPOCH: ChainEpoch = ChainEpoch(2);
const CLIENT: HostSlot = HostSlot(1);
const ORIGIN: NodeId = NodeId::new(HostId(1), CLIENT);
/// One partition's server each.
const SERVERS: [NodeId; 2] = [NodeId::new(HostId(2), HostSlot(2)), NodeId::new(HostId(3), HostSlot(2))];
const CLIENTS: [NodeId; 3] = [ORIGIN, NodeId::new(HostId(2), CLIENT), NodeId::new(HostId(3), CLIENT)];
const DIRECTOR: NodeId = NodeId::new(HostId(4), HostSlot(1));
/// How much time passes when a timer runs out.
const STEP: Duration = Duration::from_millis(100);

/// A colour of each partition.
fn colours() -> [Colour; 2] {
    let of = |partition| {
        let mut all = (0..).map(Colour);
        let first = all.find(|&colour| placement().partition_of(colour) == PartitionId(partition));
        first.expect("some colour is in each partition")
    };
    [of(0), of(1)]
}

fn placement() -> ColourPlacement {
    ColourPlacement::over(SERVERS.len() as u16)
}

fn parameters() -> FuzzyParameters {
    let never = Duration::from_secs(3_600);
    FuzzyParameters {
        resend_after: never,
        stuck_after: Duration::ZERO,
        back_off_max: Duration::from_nanos(1),
        ..FuzzyParameters::default()
    }
}

fn initial() -> Vec<ChainProjection> {
    (0..)
        .zip(SERVERS)
        .map(|(partition, server)| ChainProjection::initial(PartitionId(partition), &[server]))
        .collect()
}

/// An append to both colours, by the nth user.
fn append(nth: u64) -> FuzzyRequest {
    let mut colours = colours().to_vec();
    colours.sort_unstable();
    let content = Content::new(colours, vec![Bytes::from(vec![nth as u8])]);
    FuzzyRequest::Append(AppendCall { client: nth, number: 0, below: 0, seen: AppendTime::ZERO, content })
}

/// What was seen so far, for what must hold of it.
#[derive(Clone, Hash, Debug, Default)]
pub struct SeenAppends {
    /// When each user's append was delivered, where it was first.
    delivered: BTreeMap<u64, (u64, u16, u64)>,
    /// The owner of each generation.
    owners: BTreeMap<(u64, u32), u64>,
    /// Users that were answered.
    answered: Vec<u64>,
    /// Whose node is at each position of each colour.
    nodes: BTreeMap<(usize, u64), u64>,
}

fn clock_of(at: AppendTime) -> (u64, u16, u64) {
    (at.clock, at.partition.0, at.ahead)
}

impl SeenAppends {
    fn own(&mut self, id: AppendId, owner: Owner) {
        let known = *self.owners.entry((id.client, owner.generation)).or_insert(owner.identity);
        invariant!(
            UNIQ,
            known == owner.identity,
            "{id:?} has two owners of generation {}: {known} and {}",
            owner.generation,
            owner.identity
        );
    }

    fn look_at(&mut self, nth: usize, server: &ChainServer) {
        let state = server.state();
        for it in state.unfinished() {
            // The same identity may be drawn by a later owner, and is none of this generation.
            self.own(it.id, it.owner);
        }
        let nodes: Vec<_> = state.nodes(colours()[nth], NodePosition(0)).collect();
        for (position, node) in (0..).zip(&nodes) {
            let user = node.id.client;
            let known = *self.nodes.entry((nth, position)).or_insert(user);
            invariant!(PREFIX, known == user, "node {position} of colour {nth} is of {user} and of {known}");
            let at = clock_of(node.at);
            let first = *self.delivered.entry(user).or_insert(at);
            invariant!(ATOMIC, first == at, "the append of {user} is delivered at {first:?} and at {at:?}");
        }
        let of = |user: u64| nodes.iter().filter(|node| node.id.client == user).count();
        invariant!(ONCE, (0..2).all(|user| of(user) <= 1), "colour {nth} has an append twice: {nodes:?}");
        let is_in_order = nodes.windows(2).all(|pair| pair[0].at < pair[1].at);
        invariant!(TS, is_in_order, "colour {nth} is not in the order of its times: {nodes:?}");
    }

    fn check(&self, cluster: &ExploredCluster<'_, SmallestFuzzyNode>) {
        for &user in &self.answered {
            for (nth, &server) in SERVERS.iter().enumerate() {
                let has = |server: &ChainServer| {
                    server.state().nodes(colours()[nth], NodePosition(0)).any(|node| node.id.client == user)
                };
                let is_there = match cluster.node(server) {
                    Some(SmallestFuzzyNode::ChainServer(server)) => has(server),
                    _ => true,
                };
                invariant!(DUR, is_there, "the append of {user} was answered, and {server} lacks it");
            }
        }
    }
}

impl SmallestAppends {
    /// Visits its states, as far as its bounds allow.
    pub fn explore(&self) -> Exploration {
        sim::explore(self)
    }
}

impl Scope for SmallestAppends {
    type Node = SmallestFuzzyNode;
    type Monitor = SeenAppends;

    const FAMILY: &'static str = "fuzzylog";

    fn hosts(&self) -> Vec<HostId> {
        (1..=4).map(HostId).collect()
    }

    fn build(&self, host: HostId, _incarnation: u32) -> Vec<(HostSlot, SmallestFuzzyNode)> {
        if host == DIRECTOR.host() {
            return vec![(DIRECTOR.host_slot(), SmallestFuzzyNode::Director(OneDirector))];
        }
        let client = FuzzyClient::new(parameters(), placement(), vec![DIRECTOR], initial());
        let mut nodes = vec![(CLIENT, SmallestFuzzyNode::Client(Box::new(client)))];
        if let Some(nth) = SERVERS.iter().position(|server| server.host() == host) {
            let beside = NodeId::new(host, CLIENT);
            let server = ChainServer::new(PartitionId(nth as u16), placement(), parameters(), beside);
            nodes.push((SERVERS[nth].host_slot(), SmallestFuzzyNode::ChainServer(Box::new(server))));
        }
        nodes
    }

    fn requests(&self) -> Vec<(NodeId, Vec<FuzzyRequest>)> {
        let asks = [(ORIGIN, vec![append(0)]), (CLIENTS[1], vec![append(1)])];
        asks.into_iter().take(1 + usize::from(self.two_origins)).collect()
    }

    /// Servers have disks, and come back by a change of the chain, which is left out.
    fn may_crash(&self, host: HostId) -> bool {
        host == ORIGIN.host()
    }

    fn now(&self, timers: u8) -> Instant {
        Instant((1 << 40) + u64::from(timers) * STEP.as_nanos() as u64)
    }

    fn begins_at_rest(&self) -> bool {
        true
    }

    /// The origin has nothing to look after: what it has sent is not sent again.
    fn awaits(&self, node: NodeId, timer: TimerIndex) -> bool {
        if SERVERS.contains(&node) {
            return timer == ChainTimer::Tick.index();
        }
        node != ORIGIN && timer == FuzzyClientTimer::Tick.index()
    }

    fn monitor(&self) -> SeenAppends {
        SeenAppends::default()
    }

    fn on_request(&self, _monitor: &mut SeenAppends, _node: NodeId, _id: RequestId, _request: &FuzzyRequest) {
    }

    fn on_response(&self, monitor: &mut SeenAppends, node: NodeId, _id: RequestId, response: FuzzyResponse) {
        let user = u64::from(node != ORIGIN);
        match response {
            FuzzyResponse::Appended { placed, .. } => {
                invariant!(ATOMIC, placed.len() == 2, "the append of {user} is in {placed:?}");
                monitor.answered.push(user);
            }
            other => invariant!(ONCE, false, "the append of {user} is answered {other:?}"),
        }
    }

    fn observe(&self, monitor: &mut SeenAppends, cluster: &ExploredCluster<'_, SmallestFuzzyNode>) {
        for (nth, &server) in SERVERS.iter().enumerate() {
            if let Some(SmallestFuzzyNode::ChainServer(server)) = cluster.node(server) {
                monitor.look_at(nth, server);
            }
        }
    }

    fn check(&self, monitor: &SeenAppends, cluster: &ExploredCluster<'_, SmallestFuzzyNode>) {
        monitor.check(cluster);
    }

    fn check_quiet(
        &self,
        monitor: &SeenAppends,
        cluster: &ExploredCluster<'_, SmallestFuzzyNode>,
        _spent: Spent,
    ) {
        let servers = cluster.nodes().filter_map(|(_, node)| match node {
            SmallestFuzzyNode::ChainServer(server) => Some(server),
            SmallestFuzzyNode::Client(_) | SmallestFuzzyNode::Director(_) => None,
        });
        if servers.into_iter().any(|server| server.state().unfinished_count() > 0) {
            // It is finished by timers that this path has not left.
            return;
        }
        for &user in monitor.delivered.keys() {
            let in_colours = monitor.nodes.values().filter(|it| **it == user).count();
            invariant!(ATOMIC, in_colours == 2, "the append of {user} is over, and in {in_colours} colours");
        }
    }

    fn bounds(&self) -> ExploreBounds {
        self.bounds
    }
}
