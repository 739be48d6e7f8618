//! The order of FuzzyLog for the tree of a host: stands where Mason has a proxy, so gateway and shards are the same over both.
//!
//! ```text
//! gateway         feeder               chain (fuzzylog)      other hosts' feeders    home, shards (this host)
//!   | SubmitOperations |                    |                        |                      |
//!   |----------------->| Append (a node)    |                        |                      |
//!   |                  |------------------->|                        |                      |
//!   |                  |     Appended       |                        |                      |
//!   |                  |<-------------------|                        |                      |
//!   |                  | Complete (nodes below this are there)       |                      |
//!   |                  |-------------------------------------------->| (plays)              |
//!   |                  | Deliver (the node)                                          home   |
//!   |                  |-------------------------------------------------------------->| admits, counts
//!   |                  | ReadShard (what is void?)                                     |    |
//!   |                  |-------------------------------------------------------------->|    |
//!   |                  | Deliver (operations, numbers)                                      |
//!   |                  |------------------------------------------------------------------->| executes
//!   |   Answers        |                                                                    |
//!   |<--------------------------------------------------------------------------------------|
//!   | Barrier          |                    |
//!   |----------------->| Sync               |
//!   |                  |------------------->|
//!   |<-- BarrierPassed | (all that was there is handed over)
//! ```
//! **One colour.** All writes pass the sessions, and every host has a server of every shard. So one colour orders them all: see
//! docs/zookeeper-over-fuzzylog.md for what that gives and what it costs.
//!
//! **Nodes.** What a host's users ask while a node of theirs is on its way goes into the next node together ([`pack`]). So everything
//! stays in the order in which it was asked: nothing is sent behind what may be sent again.
//!
//! **Numbers.** A zxid is made of a node's position and an item's index in it. The home ([`crate::home`]) executes nodes, so its number
//! is the position. A shard's numbers are counted: what the home admits, by the shards that it concerns. The home retains such counts
//! for the nodes that are there, so the feeder journals nothing: it asks for the place from which its host's servers lack something.

mod asking;
mod barriers;
mod family;
mod handing;
pub mod pack;
mod playing;
mod ticking;
mod trimming;
mod writing;

pub use family::{FedTree, FedTreeMessage, HomeNode, TreeFeederNode};

use crate::home::{GROUP, HomeQuery, HomeRemark};
use crate::sessions::{HomeSessions, SessionSettings};
use ::fuzzylog::client::FuzzyClientTimer;
use ::fuzzylog::{Colour, FuzzyClient, FuzzyMessage, FuzzyRequest};
use asking::Questions;
use barriers::Barrier;
use handing::Handing;
use kernel::client::Response;
use kernel::{
    AwaitedTimers, Bytes, Cx, Decode as _, Encode as _, InnerRole, NodeId, Position, RequestId, Role,
    Statement,
};
use mason::client::GatewayIn;
use mason::proxy::arranging::{Progress, ProxyCall};
use mason::proxy::moving::{SETTLED, UNSETTLED};
use mason::proxy::{FromGateway, FromProxy, FromShard, ProxyIn};
use mason::shard::{Attach, Moved};
use mason::{Layout, MasonMessage, Members, Number, Placed, ShardMap, Space, Topology};
use playing::Stream;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use ticking::Ticking;
use trimming::Trimming;
use writing::Writing;

kernel::timers! {
    /// The feeder's timers.
    pub enum TreeFeederTimer {
        /// The engine's client has something to look at.
        Client,
        /// Look after what waits.
        Tick,
    }
}

/// How often it looks after what waits, and while nothing does.
const TICK: Duration = Duration::from_millis(10);
const RARE_TICK: Duration = Duration::from_millis(250);
/// After news, what is known is said again at so many rare ticks: one message of them may be lost.
const SAYS_AGAIN: u32 = 3;
/// The colour of the tree.
pub const COLOUR: Colour = Colour(1);

/// What a feeder is made of.
#[derive(Clone, Debug)]
pub struct TreeFeederPlan {
    /// The engine's client.
    pub client: FuzzyClient,
    /// Feeders, as the one group's proxies, the servers of the shards, and behind those the homes.
    pub topology: Arc<Topology>,
    /// This host's gateway.
    pub gateway: NodeId,
    /// What the sessions agree on: by it operations have their shards.
    pub sessions: SessionSettings,
    /// How often the group's clock is read.
    pub clock_every: Duration,
    /// How long nodes are retained for the last of a shard's servers when enough others have them in durable snapshots.
    pub wait_for_last: Duration,
    /// With more bytes of nodes the shards are asked for snapshots, and nobody is waited for.
    pub retained_bytes_max: u64,
    /// Operations go into one node until they have so many bytes together; an operation that is larger is alone.
    pub node_bytes: usize,
}

/// What the engine's client was asked.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// To append a node.
    Append(u64),
    /// To play nodes.
    Play,
    /// How far the colour goes; for all barriers up to this one.
    Sync(u64),
    /// To trim.
    Trim,
}

/// The feeder of a host. It journals nothing: what it lacks it plays.
#[derive(Debug)]
pub struct TreeFeeder {
    client: InnerRole<FuzzyClient>,
    /// For the shards of operations alone.
    sessions: HomeSessions,
    topology: Arc<Topology>,
    /// The homes' space.
    home: Space,
    gateway: NodeId,
    /// Distinguishes its runs.
    run: u64,
    asked: BTreeMap<u64, Asked>,
    next_asked: u64,
    writing: Writing,
    stream: Stream,
    handing: Handing,
    questions: Questions,
    ticking: Ticking,
    trimming: Trimming,
    barriers: VecDeque<Barrier>,
    last_barrier: u64,
    /// The shard map of the bootstrap.
    shard_map: ShardMap,
    /// The version of the members that are followed.
    version: u64,
    /// Others are to know that the colour has gone on.
    has_news: bool,
    /// Rare ticks at which what is known is said again to the others.
    says_again: u32,
    is_started: bool,
}

impl TreeFeeder {
    /// The feeder of a host.
    pub fn new(plan: TreeFeederPlan) -> Self {
        let TreeFeederPlan { client, topology, gateway, sessions, .. } = plan;
        let home = Space(topology.shards.len().saturating_sub(1) as u16);
        Self {
            client: InnerRole::new(client),
            sessions: HomeSessions::new(GROUP, sessions),
            shard_map: topology.layout.shard_map.clone(),
            home,
            topology,
            gateway,
            run: 0,
            asked: BTreeMap::new(),
            next_asked: 0,
            writing: Writing::new(plan.node_bytes),
            stream: Stream::default(),
            handing: Handing::new(home),
            questions: Questions::default(),
            ticking: Ticking::new(plan.clock_every),
            trimming: Trimming::new(plan.wait_for_last, plan.retained_bytes_max),
            barriers: VecDeque::new(),
            last_barrier: 0,
            version: 0,
            has_news: false,
            says_again: 0,
            is_started: false,
        }
    }

    /// The engine's client.
    pub fn client(&self) -> &FuzzyClient {
        self.client.get()
    }

    /// Below which position the colour is known to be trimmed, and how far it is known to go.
    pub fn extent(&self) -> (u64, u64) {
        (self.stream.trimmed(), self.stream.known())
    }

    /// The next node that is to be handed to shards; none while it is not known where they are.
    pub fn handed(&self) -> Option<u64> {
        self.handing.position()
    }

    /// Bytes of nodes that are not trimmed, as far as it has played them.
    pub fn retained_bytes(&self) -> u64 {
        self.stream.retained_bytes()
    }

    /// The version of the members of whom enough have what was trimmed, in durable snapshots.
    pub fn settled_on(&self) -> u64 {
        if self.has_settled() { self.version } else { 0 }
    }

    /// Operations that are not in the order yet, or not executed by the home.
    pub fn unfinished(&self) -> usize {
        self.writing.unfinished()
    }

    /// The number of its first node that its host's home has not executed, if there is one.
    pub fn first_awaited(&self) -> Option<u64> {
        self.writing.first_awaited()
    }

    /// What it was asked for so far is in its nodes up to this number.
    pub fn asked_through(&self) -> u64 {
        self.writing.asked_through()
    }

    /// Where it stands, in words.
    pub fn describe(&self) -> String {
        let (stream, handing) = (self.stream.describe(), self.handing.describe());
        let (unfinished, barriers) = (self.unfinished(), self.barriers.len());
        format!("{stream}; {handing}; {unfinished} unfinished, {barriers} barriers")
    }

    fn with_client(
        &mut self,
        cx: &mut Cx<'_, Self>,
        call: impl FnOnce(&mut FuzzyClient, &mut Cx<'_, FuzzyClient>),
    ) {
        for (id, response) in self.client.call(TreeFeederTimer::Client, cx, call) {
            match self.asked.remove(&id.0) {
                Some(Asked::Append(node)) => self.on_appended(node, response.of_append(), cx),
                Some(Asked::Play) => self.on_played(response.of_play(), cx),
                Some(Asked::Sync(barrier)) => self.on_synced(barrier, response.of_play(), cx),
                Some(Asked::Trim) => self.on_trimmed(&response, cx),
                None => {}
            }
        }
    }

    fn ask(&mut self, asked: Asked, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        self.next_asked += 1;
        let id = self.next_asked;
        self.asked.insert(id, asked);
        self.with_client(cx, |client, cx| client.on_request(RequestId(id), request, cx));
    }

    /// The server of a space on this host.
    fn server(&self, space: Space, cx: &Cx<'_, Self>) -> Option<NodeId> {
        let slot = self.topology.servers(space).first()?.host_slot();
        Some(NodeId::new(cx.node().host(), slot))
    }

    fn send_to(&self, space: Space, message: impl Into<MasonMessage>, cx: &mut Cx<'_, Self>) {
        if let Some(server) = self.server(space, cx) {
            cx.send(server, message.into());
        }
    }

    fn send_to_all(&self, message: impl Into<MasonMessage>, cx: &mut Cx<'_, Self>) {
        let message = message.into();
        for space in self.topology.spaces().collect::<Vec<_>>() {
            self.send_to(space, message.clone(), cx);
        }
    }

    /// This host's place among the servers of a space.
    fn turn(&self, cx: &Cx<'_, Self>) -> u32 {
        let proxies = self.topology.proxies(GROUP);
        proxies.iter().position(|proxy| proxy.host() == cx.node().host()).unwrap_or(proxies.len()) as u32
    }

    /// The others play what was appended here.
    fn say_how_far(&self, cx: &mut Cx<'_, Self>) {
        let known = Placed { space: self.home, number: Number(self.stream.known() + 1) };
        let complete = mason::proxy::Complete { hops: 0, low_watermarks: vec![known] };
        let own = cx.node();
        let peers = self.topology.proxies(GROUP).iter().copied().filter(|&peer| peer != own);
        cx.multicast(peers.collect::<Vec<_>>(), MasonMessage::from(complete));
    }

    fn on_members(&mut self, members: &Members, cx: &mut Cx<'_, Self>) {
        if members.hosts.is_empty() || members.version <= self.version {
            return;
        }
        self.version = members.version;
        self.topology = Arc::new(self.topology.moved_to(members));
        self.send_to_all(Moved { members: members.clone() }, cx);
    }

    fn on_proxy_message(&mut self, from: NodeId, message: ProxyIn, cx: &mut Cx<'_, Self>) {
        let is_of_here = from.host() == cx.node().host();
        match message {
            ProxyIn::Gateway(FromGateway::SubmitOperations(message)) if is_of_here => {
                self.on_submit(message.operations);
            }
            ProxyIn::Gateway(FromGateway::Barrier(message)) if is_of_here => self.on_barrier(message.id, cx),
            ProxyIn::Shard(FromShard::Lacking(message)) if is_of_here => self.on_lacking(&message.from, cx),
            ProxyIn::Shard(FromShard::ShardDurable(message))
                if self.topology.serves(message.below.space, from) =>
            {
                self.on_durable(from.host(), &message.below, cx.now());
            }
            ProxyIn::Proxy(FromProxy::Complete(message)) => {
                let of_home = message.low_watermarks.iter().filter(|placed| placed.space == self.home);
                let known = of_home.map(|placed| placed.number.0.saturating_sub(1)).max();
                known.into_iter().for_each(|known| self.stream.learn(known));
            }
            ProxyIn::Gateway(_)
            | ProxyIn::Shard(_)
            | ProxyIn::Proxy(_)
            | ProxyIn::Sequencer(_)
            | ProxyIn::Replica(_)
            | ProxyIn::AnyReplica(_) => cx.reject("message that a feeder has no use for"),
        }
    }

    /// From servers of this host.
    fn on_server(&mut self, message: GatewayIn, cx: &mut Cx<'_, Self>) {
        match message {
            GatewayIn::Answers(message) => self.on_executed(message.answers, cx),
            GatewayIn::ReadAnswers(message) if message.space == self.home => {
                message.answers.into_iter().for_each(|answer| self.on_home_answer(answer, cx));
            }
            GatewayIn::Remark(message) if message.space == self.home => {
                if let Ok(remark) = HomeRemark::decoded(&message.body) {
                    self.ticking.take(remark, cx.now());
                }
            }
            GatewayIn::GatewayNotice(message) if message.space == self.home => {
                self.pass_word_on(&message.body, cx);
            }
            GatewayIn::Skipped(message) if message.space == self.home => {
                self.writing.forget_awaited();
                cx.send(self.gateway, MasonMessage::from(message));
            }
            GatewayIn::Progress(_) | GatewayIn::UsesShardMap(_) => {}
            GatewayIn::ReadAnswers(_)
            | GatewayIn::Remark(_)
            | GatewayIn::GatewayNotice(_)
            | GatewayIn::Skipped(_)
            | GatewayIn::BarrierPassed(_)
            | GatewayIn::GroupNotice(_)
            | GatewayIn::Elsewhere(_)
            | GatewayIn::Overfull(_)
            | GatewayIn::Connected(_)
            | GatewayIn::Input(_)
            | GatewayIn::Disconnected(_)
            | GatewayIn::Taken(_)
            | GatewayIn::Proven(_) => cx.reject("message that a feeder has no use for"),
        }
    }

    /// How far a change of the shards has come.
    pub fn progress(&self) -> Progress {
        let mut shard_map = self.handing.shard_map().unwrap_or(&self.shard_map).clone();
        let wanted = self.ticking.wanted_shards().filter(|wanted| *wanted != shard_map.shards);
        let settled = wanted.is_none();
        if let Some(wanted) = wanted {
            // Who asks for it again learns that it goes on, and who asks for another one that this one does.
            (shard_map.shards, shard_map.before) = (wanted, shard_map.shards);
        }
        let layout = Layout { version: shard_map.version, shard_map, ..Layout::at_bootstrap(1, 1) };
        Progress { layout, room: 1, settled, shards_room: Some(self.home.0) }
    }

    /// Does what the burst has made possible.
    fn go_on(&mut self, cx: &mut Cx<'_, Self>) {
        self.append_owed(cx);
        self.append_what_waits(cx);
        self.feed(cx);
        self.fetch(cx);
        self.pass_barriers(cx);
        if std::mem::take(&mut self.has_news) {
            self.says_again = SAYS_AGAIN;
            self.say_how_far(cx);
        }
    }

    fn waits(&self) -> bool {
        self.writing.waits() || !self.barriers.is_empty() || self.stream.waits() || self.handing.waits()
    }
}

impl Role for TreeFeeder {
    type Family = FedTree;
    type In = FedTreeMessage;
    type Timer = TreeFeederTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        // Names its nodes and its appends: one that restarts is another user.
        self.run = cx.rng().bits();
        self.is_started = true;
        self.ticking.begin(cx.now());
        self.with_client(cx, |client, cx| client.on_start(cx));
        self.send_to(self.home, Attach {}, cx);
        cx.set_timer(TreeFeederTimer::Tick, TICK);
    }

    fn on_message(&mut self, from: NodeId, message: FedTreeMessage, cx: &mut Cx<'_, Self>) {
        match message {
            FedTreeMessage::Fuzzy(FuzzyMessage::Client(message)) => {
                self.with_client(cx, |client, cx| client.on_message(from, message, cx));
            }
            FedTreeMessage::Mason(MasonMessage::Proxy(message)) => self.on_proxy_message(from, message, cx),
            FedTreeMessage::Mason(MasonMessage::Client(message)) if from.host() == cx.node().host() => {
                self.on_server(message, cx);
            }
            FedTreeMessage::Fuzzy(_) | FedTreeMessage::Mason(_) => cx.reject("message for another role"),
        }
    }

    fn on_timer(&mut self, timer: TreeFeederTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            TreeFeederTimer::Client => {
                self.with_client(cx, |client, cx| client.on_timer(FuzzyClientTimer::Tick, cx));
            }
            TreeFeederTimer::Tick => {
                self.retry(cx);
                self.tick_clock(cx);
                self.trim(cx);
                self.ask_again(cx);
                let waits = self.waits();
                if !waits && self.says_again > 0 {
                    self.says_again -= 1;
                    self.say_how_far(cx);
                }
                cx.set_timer(TreeFeederTimer::Tick, if waits { TICK } else { RARE_TICK });
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        let answer = match ProxyCall::decoded(&request) {
            Ok(ProxyCall::Follow(members)) => {
                let version = members.version;
                self.on_members(&members, cx);
                let is_settled = self.has_settled() && self.version >= version;
                if is_settled { SETTLED } else { UNSETTLED }
            }
            Ok(ProxyCall::Arrange(_)) => self.progress().encoded().into(),
            Ok(ProxyCall::SetShards(shards)) => {
                self.ticking.want_shards(shards);
                self.progress().encoded().into()
            }
            Err(_) => return cx.reject("request that does not decode"),
        };
        cx.respond(id, Response(answer));
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.go_on(cx);
        self.with_client(cx, |client, cx| client.on_burst_end(cx));
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(TreeFeederTimer::Tick, self.is_started)
    }

    fn statement(&self) -> Statement {
        Statement { unfinished: vec![("operations", self.unfinished())], ..Statement::default() }
    }
}
