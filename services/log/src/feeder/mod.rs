//! The order of FuzzyLog for the logs of a host: stands where Mason has a proxy, so gateway and shards are the same over both.
//!
//! A space is a colour. The number of an operation's node in the space is one more than its position in the colour.
//! ```text
//! gateway         feeder            chains (fuzzylog)      other hosts' feeders      shards (this host)
//!   | SubmitOperations |                    |                        |                      |
//!   |----------------->| Append (a node)    |                        |                      |
//!   |                  |------------------->|                        |                      |
//!   |                  |     Appended       |                        |                      |
//!   |                  |<-------------------|                        |                      |
//!   |                  | Complete (numbers below these are there)    |                      |
//!   |                  |-------------------------------------------->| (plays)              |
//!   |                  | Play (what others have appended before)     |                      |
//!   |                  |------------------->|                        |                      |
//!   |                  | Deliver                                                            |
//!   |                  |------------------------------------------------------------------->| executes
//!   |   Answers        |                       Answers (of a node)                          |
//!   |<-----------------|<-------------------------------------------------------------------|
//!   | Barrier          |                    |
//!   |----------------->| Sync, each colour  |
//!   |                  |------------------->|                             Reach
//!   |                  |------------------------------------------------------------------->|
//!   |<-- BarrierPassed |
//! ```
//! **Nodes.** What one host's users append to one space while a node of theirs is on its way there goes into the next node together
//! ([`pack`]). So the operations of a connection stay in their order: nothing is sent behind what may be sent again. An operation over
//! several spaces is a node of its own, of several colours.
//!
//! **Delivery.** A node of several colours is handed over when it is the next one in all of them. So who reads what such a node
//! appended to one log finds, in the others, what came before it there: see the README. Order by the nodes' times has no circles, so
//! nothing waits for ever.
//!
//! **Trims.** A colour is trimmed behind what enough shard servers have in durable snapshots, in that colour and, for nodes of several, in
//! all of them. A server that is behind takes another one's snapshot, as over Mason.

mod pack;
mod playing;
mod shared;
mod trimming;
mod writing;

pub use pack::Pack;
pub(crate) use pack::{packed, unpacked};

use crate::Names;
use ::fuzzylog::client::FuzzyClientTimer;
use ::fuzzylog::{Colour, ColourPlacement, FuzzyClient, FuzzyMessage, FuzzyRequest, FuzzyResponse};
use kernel::client::Response;
use kernel::{
    AwaitedTimers, Bytes, Cx, Decode as _, Family, InnerRole, NodeId, Position, RequestId, Role, Statement,
};
use mason::client::{BarrierPassed, GatewayIn};
use mason::proxy::moving::{SETTLED, UNSETTLED};
use mason::proxy::{FromGateway, FromProxy, FromShard, ProxyIn};
use mason::shard::Moved;
use mason::{Group, MasonMessage, Members, Number, Placed, Space, Topology};
use playing::Stream;
use shared::Shared;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use trimming::Trimming;
use writing::Writing;

/// The family of the feeder.
#[derive(Debug)]
pub struct FedLog;

impl Family for FedLog {
    type Message = FedMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// What the feeder hears and says.
    pub enum FedMessage {
        /// As a proxy of Mason.
        1 => Mason(MasonMessage),
        /// As a client of the engine.
        2 => Fuzzy(FuzzyMessage),
    }
}

impl From<MasonMessage> for FedMessage {
    fn from(message: MasonMessage) -> Self {
        Self::Mason(message)
    }
}

impl From<FuzzyMessage> for FedMessage {
    fn from(message: FuzzyMessage) -> Self {
        Self::Fuzzy(message)
    }
}

kernel::timers! {
    /// The feeder's timers.
    pub enum FeederTimer {
        /// The engine's client has something to look at.
        Client,
        /// Look after what waits.
        Tick,
    }
}

/// How often it looks after what waits, and while nothing does.
const TICK: Duration = Duration::from_millis(10);
const RARE_TICK: Duration = Duration::from_secs(1);
/// Barriers that have not passed; gateways ask again.
const BARRIERS_MAX: usize = 1_024;
/// The one group that gateways and shards see.
const GROUP: Group = Group(0);

/// What a feeder is made of.
#[derive(Clone, Debug)]
pub struct FeederPlan {
    /// The engine's client.
    pub client: FuzzyClient,
    /// Where colours are.
    pub placement: ColourPlacement,
    /// Feeders, as the one group's proxies, and the servers of the shards.
    pub topology: Arc<Topology>,
    /// This host's gateway.
    pub gateway: NodeId,
    /// How long nodes are retained for the last of a shard's servers when enough others have them in durable snapshots.
    pub wait_for_last: Duration,
    /// With more bytes of nodes in all colours together the shards are asked for snapshots, and nobody is waited for.
    pub retained_bytes_max: u64,
    /// Operations go into one node until they have so many bytes together; an operation that is larger is alone.
    pub node_bytes: usize,
}

/// What the engine's client was asked.
#[derive(Clone, Debug)]
enum Asked {
    /// To append a node.
    Append(u64),
    /// To play nodes of a space.
    Play(Space),
    /// How far a space goes; for all barriers up to this one.
    Sync(Space, u64),
    /// To trim a space.
    Trim(Space),
}

/// The feeder of a host. It journals nothing: what it lacks it plays.
#[derive(Debug)]
pub struct Feeder {
    client: InnerRole<FuzzyClient>,
    names: Names,
    topology: Arc<Topology>,
    gateway: NodeId,
    /// Distinguishes its runs.
    run: u64,
    asked: BTreeMap<u64, Asked>,
    next_asked: u64,
    writing: Writing,
    node_bytes: usize,
    /// By space.
    streams: Vec<Stream>,
    spaces: BTreeMap<Colour, Space>,
    shared: Shared,
    trimming: Trimming,
    /// Barriers, by their numbers here, with the gateway's.
    barriers: VecDeque<(u64, u64)>,
    last_barrier: u64,
    /// The version of the members that are followed.
    version: u64,
    /// Spaces of which others are to know that they have gone on.
    news: Vec<Space>,
    /// Ticks at which everything that is known is said again to the others.
    says_again: u32,
    is_started: bool,
}

/// A colour for each space: spaces take turns among the partitions.
pub fn colours_of(placement: ColourPlacement, spaces: u16) -> Vec<Colour> {
    let mut next = 1;
    let partitions = placement.partitions();
    let mut colour_in = |partition: u16| {
        while placement.partition_of(Colour(next)).0 != partition {
            next += 1;
        }
        next += 1;
        Colour(next - 1)
    };
    (0..spaces).map(|space| colour_in(space % partitions)).collect()
}

impl Feeder {
    /// The feeder of a host.
    pub fn new(plan: FeederPlan) -> Self {
        let FeederPlan { client, placement, topology, gateway, wait_for_last, .. } = plan;
        let count = topology.shards.len() as u16;
        let colours = colours_of(placement, count);
        let spaces = colours.iter().copied().zip((0..count).map(Space)).collect();
        Self {
            client: InnerRole::new(client),
            names: Names { spaces: count },
            topology,
            gateway,
            run: 0,
            asked: BTreeMap::new(),
            next_asked: 0,
            writing: Writing::new(count, plan.node_bytes),
            node_bytes: plan.node_bytes,
            streams: colours.into_iter().map(Stream::new).collect(),
            spaces,
            shared: Shared::default(),
            trimming: Trimming::new(wait_for_last, plan.retained_bytes_max),
            barriers: VecDeque::new(),
            last_barrier: 0,
            version: 0,
            news: Vec::new(),
            says_again: 0,
            is_started: false,
        }
    }

    /// The engine's client.
    pub fn client(&self) -> &FuzzyClient {
        self.client.get()
    }

    /// How far the colour of each space is known to go, and below which position it is known to be trimmed.
    pub fn extents(&self) -> impl Iterator<Item = (Space, u64, u64)> + '_ {
        (0..).map(Space).zip(&self.streams).map(|(space, stream)| (space, stream.known(), stream.trimmed()))
    }

    /// Bytes of nodes that are not trimmed, as far as it has played them.
    pub fn retained_bytes(&self) -> u64 {
        self.streams.iter().map(Stream::retained_bytes).sum()
    }

    /// The version of the members of whom enough have what was trimmed, in durable snapshots.
    pub fn settled_on(&self) -> u64 {
        if self.has_settled() { self.version } else { 0 }
    }

    /// Nodes of several spaces whose numbers it knows.
    pub fn shared_nodes(&self) -> usize {
        self.shared.len()
    }

    /// Operations that are not in the order yet, or not executed.
    pub fn unfinished(&self) -> usize {
        self.writing.unfinished()
    }

    fn with_client(
        &mut self,
        cx: &mut Cx<'_, Self>,
        call: impl FnOnce(&mut FuzzyClient, &mut Cx<'_, FuzzyClient>),
    ) {
        for (id, response) in self.client.call(FeederTimer::Client, cx, call) {
            self.on_response(id.0, response, cx);
        }
    }

    fn ask(&mut self, asked: Asked, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        self.next_asked += 1;
        let id = self.next_asked;
        self.asked.insert(id, asked);
        self.with_client(cx, |client, cx| client.on_request(RequestId(id), request, cx));
    }

    fn on_response(&mut self, id: u64, response: FuzzyResponse, cx: &mut Cx<'_, Self>) {
        match self.asked.remove(&id) {
            Some(Asked::Append(node)) => self.on_appended(node, response.of_append(), cx),
            Some(Asked::Play(space)) => self.on_played(space, response.of_play(), cx),
            Some(Asked::Sync(space, barrier)) => self.on_synced(space, barrier, response.of_play(), cx),
            Some(Asked::Trim(space)) => self.on_trimmed(space, response, cx),
            None => {}
        }
    }

    fn server(&self, space: Space, cx: &Cx<'_, Self>) -> Option<NodeId> {
        let slot = self.topology.servers(space).first()?.host_slot();
        Some(NodeId::new(cx.node().host(), slot))
    }

    fn peers(&self, cx: &Cx<'_, Self>) -> Vec<NodeId> {
        let own = cx.node();
        self.topology.proxies(GROUP).iter().copied().filter(|&peer| peer != own).collect()
    }

    fn on_barrier(&mut self, id: u64, cx: &mut Cx<'_, Self>) {
        let is_known = self.barriers.iter().any(|&(_, known)| known == id);
        if is_known || self.barriers.len() >= BARRIERS_MAX {
            return;
        }
        self.last_barrier += 1;
        self.barriers.push_back((self.last_barrier, id));
        cx.mark("feeder.synced_for_a_barrier");
    }

    /// All that was in the order when a barrier came was handed to the shards, or they know that it is to come.
    fn pass_barriers(&mut self, cx: &mut Cx<'_, Self>) {
        let passed = self.streams.iter().map(Stream::synced).min().unwrap_or(self.last_barrier);
        let passed = if kernel::planted!(barrier_without_sync) { self.last_barrier } else { passed };
        while let Some(&(number, id)) = self.barriers.front()
            && number <= passed
        {
            self.barriers.pop_front();
            let passed = BarrierPassed { group: GROUP, id, layout: None };
            cx.send(self.gateway, MasonMessage::from(passed));
        }
    }

    /// Another feeder, or this one, has seen that numbers below these are there.
    fn on_complete(&mut self, low_watermarks: &[Placed]) {
        for Placed { space, number } in low_watermarks {
            if let Some(stream) = self.streams.get_mut(usize::from(space.0)) {
                stream.learn(number.0.saturating_sub(1));
            }
        }
    }

    /// The others play what was appended here.
    fn spread_news(&mut self, cx: &mut Cx<'_, Self>) {
        let mut news = std::mem::take(&mut self.news);
        news.sort_unstable();
        news.dedup();
        if !news.is_empty() {
            self.says_again = SAYS_AGAIN;
            self.say(news, cx);
        }
    }

    fn say(&self, spaces: Vec<Space>, cx: &mut Cx<'_, Self>) {
        let known = |space: Space| {
            let number = Number(self.streams.get(usize::from(space.0))?.known() + 1);
            Some(Placed { space, number })
        };
        let low_watermarks = spaces.into_iter().filter_map(known).collect();
        let complete = mason::proxy::Complete { hops: 0, low_watermarks };
        cx.multicast(self.peers(cx), MasonMessage::from(complete));
    }

    fn on_members(&mut self, members: &Members, cx: &mut Cx<'_, Self>) {
        if members.hosts.is_empty() || members.version <= self.version {
            return;
        }
        self.version = members.version;
        self.topology = Arc::new(self.topology.moved_to(members));
        for space in self.topology.spaces().collect::<Vec<_>>() {
            if let Some(server) = self.server(space, cx) {
                let moved = Moved { members: members.clone() };
                cx.send(server, MasonMessage::from(moved));
            }
        }
    }

    fn on_proxy_message(&mut self, from: NodeId, message: ProxyIn, cx: &mut Cx<'_, Self>) {
        let is_of_here = from.host() == cx.node().host();
        match message {
            ProxyIn::Gateway(FromGateway::SubmitOperations(message)) if is_of_here => {
                self.on_submit(message.operations, cx);
            }
            ProxyIn::Gateway(FromGateway::Barrier(message)) if is_of_here => self.on_barrier(message.id, cx),
            ProxyIn::Shard(FromShard::Lacking(message)) if is_of_here => self.on_lacking(&message.from, cx),
            ProxyIn::Shard(FromShard::ShardDurable(message))
                if self.topology.serves(message.below.space, from) =>
            {
                self.on_durable(from.host(), &message.below, cx.now());
            }
            ProxyIn::Proxy(FromProxy::Complete(message)) => self.on_complete(&message.low_watermarks),
            ProxyIn::Gateway(_)
            | ProxyIn::Shard(_)
            | ProxyIn::Proxy(_)
            | ProxyIn::Sequencer(_)
            | ProxyIn::Replica(_)
            | ProxyIn::AnyReplica(_) => cx.reject("message that a feeder has no use for"),
        }
    }

    /// Does what the burst has made possible.
    fn go_on(&mut self, cx: &mut Cx<'_, Self>) {
        self.append_what_waits(cx);
        self.deliver(cx);
        self.fetch(cx);
        self.hand_over(cx);
        self.pass_barriers(cx);
        self.spread_news(cx);
    }

    fn waits(&self) -> bool {
        self.writing.waits() || !self.barriers.is_empty() || self.streams.iter().any(Stream::waits)
    }
}

/// After news, what is known is said again at so many rare ticks: one message of them may be lost.
const SAYS_AGAIN: u32 = 3;

impl Role for Feeder {
    type Family = FedLog;
    type In = FedMessage;
    type Timer = FeederTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        // Names its nodes and its appends: one that restarts is another user.
        self.run = cx.rng().bits();
        self.is_started = true;
        self.with_client(cx, |client, cx| client.on_start(cx));
        cx.set_timer(FeederTimer::Tick, TICK);
    }

    fn on_message(&mut self, from: NodeId, message: FedMessage, cx: &mut Cx<'_, Self>) {
        match message {
            FedMessage::Fuzzy(FuzzyMessage::Client(message)) => {
                self.with_client(cx, |client, cx| client.on_message(from, message, cx));
            }
            FedMessage::Mason(MasonMessage::Proxy(message)) => self.on_proxy_message(from, message, cx),
            FedMessage::Mason(MasonMessage::Client(GatewayIn::Answers(message)))
                if from.host() == cx.node().host() =>
            {
                self.on_executed(message.answers, cx);
            }
            FedMessage::Fuzzy(_) | FedMessage::Mason(_) => cx.reject("message for another role"),
        }
    }

    fn on_timer(&mut self, timer: FeederTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            FeederTimer::Client => {
                self.with_client(cx, |client, cx| client.on_timer(FuzzyClientTimer::Tick, cx));
            }
            FeederTimer::Tick => {
                self.streams.iter_mut().for_each(Stream::tick);
                self.retry(cx);
                self.trim(cx);
                let waits = self.waits();
                if !waits && self.says_again > 0 {
                    self.says_again -= 1;
                    self.say(self.topology.spaces().collect(), cx);
                }
                cx.set_timer(FeederTimer::Tick, if waits { TICK } else { RARE_TICK });
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match Members::decoded(&request) {
            Ok(members) => {
                let version = members.version;
                self.on_members(&members, cx);
                let is_settled = self.has_settled() && self.version >= version;
                cx.respond(id, Response(if is_settled { SETTLED } else { UNSETTLED }));
            }
            Err(_) => cx.reject("request that does not decode"),
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.go_on(cx);
        self.with_client(cx, |client, cx| client.on_burst_end(cx));
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(FeederTimer::Tick, self.is_started)
    }

    fn statement(&self) -> Statement {
        Statement { unfinished: vec![("operations", self.unfinished())], ..Statement::default() }
    }
}

kernel::nodes! {
    /// The feeder as a node.
    #[derive(Debug)]
    pub enum FeederNode of FedLog {
        /// The feeder.
        role Feeder(Box<Feeder>) "feeder",
    }
}
