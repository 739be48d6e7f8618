//! The proxy: has its origins' operations numbered by the sequencer, and assigns the numbers by putting both into its
//! replicated log (the paper's Algorithms 2 and 3).
//!
//! `machine` is what the log makes of its entries, alike on every replica; `leading` is the volatile part of the one that leads;
//! `entry` says what stands in the log, `delivery` what the shards are handed of it.

pub mod arranging;
pub mod delivery;
pub mod entry;
mod heard;
mod leading;
pub mod machine;
pub mod moving;

use crate::messages::client;
pub use crate::messages::proxy::*;
use crate::messages::shard;
use crate::order::{Number, Placed, Space};
use crate::topology::{Layout, MasonParameters, ShardMap, Topology};
use crate::{Group, Mason};
use arranging::ProxyCall;
use entry::Question;
pub use heard::Heard;
use kernel::client::Response;
use kernel::{
    AwaitedTimers, Bytes, Cx, Decode, Encode, Instant, NodeId, Position, RequestId, Role, Statement,
};
use leading::Lead;
use parts::{Ballot, Sequence, SessionId, Slot};
use paxos::Members;
use paxos::multipaxos::batcher;
use paxos::multipaxos::replica;
use paxos::{Commands, Level};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

kernel::timers! {
    /// The proxy's timers.
    pub enum ProxyTimer {
        /// Look after requests, the log and the sequencer.
        Tick,
    }
}

/// Where a proxy's part of the log is: roles on its own host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogNodes {
    /// Takes reads of the log.
    pub batcher: NodeId,
    /// Orders entries, if it leads.
    pub leader: NodeId,
    /// Executes them.
    pub replica: NodeId,
    /// Where the deployment's slots begin.
    pub first: u32,
}

/// What a stub says of spaces; the part of it that a leader needs before the log has spoken.
pub type SpacesOf = Arc<dyn Fn(&[u8], &ShardMap) -> Vec<Space> + Send + Sync>;

/// One replica's active part.
pub struct Proxy {
    group: Group,
    topology: Arc<Topology>,
    parameters: MasonParameters,
    log: LogNodes,
    spaces_of: SpacesOf,
    /// Who leads the log, as far as is known.
    leader: Option<Ballot>,
    /// Where the log is, as its leader says.
    placed: Option<paxos::LogPlacement>,
    /// The members that the cluster wants.
    wanted: Option<Members>,
    /// The version of the members that are all the group needs.
    settled_on: u64,
    /// How many groups were in use at the bootstrap.
    bootstrap: Layout,
    arranging: arranging::Arranging,
    heard_leader_at: Instant,
    /// The stub needs the group's clock, as far as this host's replica has said.
    awaits_time: bool,
    lead: Option<Lead>,
    barriers: BTreeMap<u64, (NodeId, u64)>,
    next_barrier: u64,
}

/// Barriers in flight; gateways ask again.
const BARRIERS_MAX: usize = 1_024;

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("group", &self.group).field("lead", &self.lead).finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy of `group` whose log's roles on this host are `log`.
    pub fn new(
        group: Group,
        topology: Arc<Topology>,
        parameters: MasonParameters,
        log: LogNodes,
        spaces_of: SpacesOf,
    ) -> Self {
        Self {
            group,
            bootstrap: topology.layout.clone(),
            topology,
            parameters,
            log,
            spaces_of,
            leader: None,
            placed: None,
            wanted: None,
            settled_on: 0,
            arranging: arranging::Arranging::default(),
            heard_leader_at: Instant(0),
            awaits_time: true,
            lead: None,
            barriers: BTreeMap::new(),
            next_barrier: 0,
        }
    }

    /// True if it leads its group and has begun.
    pub fn is_leading(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::has_begun)
    }

    /// False while the group is one that could be added, or was removed.
    pub fn is_in_use(&self) -> bool {
        self.group.0 < self.topology.layout.spanning
    }

    /// Its group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The sequencer's epoch, as a leader knows it.
    pub fn sequencer_epoch(&self) -> Option<u64> {
        self.lead.as_ref().map(Lead::sequencer_epoch)
    }

    fn leads_here(&self) -> bool {
        self.leader.is_some_and(|ballot| ballot.leader == self.log.leader)
    }
}

impl Role for Proxy {
    type Family = Mason;
    type In = Heard;
    type Timer = ProxyTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, from: NodeId, message: Heard, cx: &mut Cx<'_, Self>) {
        match message {
            Heard::Own(message) => self.on_own(from, message, cx),
            Heard::Log(message) => self.on_log(from, message, cx),
        }
        self.leading(cx, |lead, frame, cx| lead.look_soon(frame, cx));
    }

    fn on_timer(&mut self, timer: ProxyTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ProxyTimer::Tick => {
                self.leading(cx, |lead, frame, cx| lead.on_tick(frame, cx));
                self.move_on(cx);
                self.arrange(cx);
                // Only a leader has something to look after.
                let settled = self.has_settled();
                self.leading(cx, |lead, frame, cx| lead.await_tick(settled, frame, cx));
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match ProxyCall::decoded(&request) {
            Ok(ProxyCall::Follow(members)) => self.on_wanted(id, members, cx),
            Ok(ProxyCall::Arrange(groups)) => {
                if let Some(groups) = groups {
                    self.on_arrange(cx.node(), &Arrange { groups }, cx);
                }
                cx.respond(id, Response(self.progress().encoded().into()));
            }
            Ok(ProxyCall::SetShards(shards)) => {
                self.on_set_shards(cx.node(), &SetShards { shards }, cx);
                cx.respond(id, Response(self.progress().encoded().into()));
            }
            Err(_) => cx.reject("request that does not decode"),
        }
        self.leading(cx, |lead, frame, cx| lead.look_soon(frame, cx));
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(ProxyTimer::Tick, self.lead.is_some())
    }

    fn statement(&self) -> Statement {
        self.lead.as_ref().map_or_else(Statement::default, Lead::statement)
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.leading(cx, |lead, frame, cx| lead.advance(frame, cx));
    }
}

/// What the leading part needs of the proxy around it.
pub(crate) struct Frame<'a> {
    group: Group,
    topology: &'a Topology,
    parameters: &'a MasonParameters,
    log: LogNodes,
    spaces_of: &'a SpacesOf,
    /// The log's leader of this host has said lately that it leads. One that nobody hears any more resigns in silence, and its
    /// proxy must not disturb the sequencer.
    confident: bool,
    /// The group is not in use, or has retired: it has nothing numbered.
    idle: bool,
    /// Something ends by the group's clock.
    awaits_time: bool,
}

/// Heartbeats of the log's leader that a proxy may miss before it doubts that it leads.
const DOUBT_AFTER: Duration = Duration::from_millis(150);

impl Proxy {
    /// Calls the leading part, if this proxy leads.
    fn leading(
        &mut self,
        cx: &mut Cx<'_, Self>,
        call: impl FnOnce(&mut Lead, &Frame<'_>, &mut Cx<'_, Self>),
    ) {
        // A leader that rests says so by a beacon.
        let heard_leader_at =
            cx.beacon_heard_at(self.log.leader).unwrap_or_default().max(self.heard_leader_at);
        let frame = Frame {
            group: self.group,
            topology: &self.topology,
            parameters: &self.parameters,
            log: self.log,
            spaces_of: &self.spaces_of,
            idle: self.group.0 >= self.topology.layout.spanning || self.arranging.is_retired(self.group),
            awaits_time: self.awaits_time,
            confident: cx.now().since(heard_leader_at) < DOUBT_AFTER,
        };
        if let Some(lead) = &mut self.lead {
            call(lead, &frame, cx);
        }
    }

    /// True if no change of the members or of the groups is on its way.
    fn has_settled(&self) -> bool {
        let is_on = |wanted: &Members| {
            self.settled_on >= wanted.version
                && self.placed.as_ref().is_some_and(|placed| placed.is_on(wanted))
        };
        self.wanted.as_ref().is_none_or(is_on) && self.groups_have_settled()
    }

    /// Taken by the leader; passed on to it, once, by the others.
    fn on_submit(&mut self, from: NodeId, message: SubmitOperations, cx: &mut Cx<'_, Self>) {
        if self.leads_here() {
            return self.leading(cx, |lead, frame, cx| lead.on_submit(message, frame, cx));
        }
        let slot = cx.node().host_slot();
        if let Some(leader) = self.leader.filter(|_| from.host_slot() != slot) {
            cx.send(NodeId::new(leader.leader.host(), slot), message);
        }
    }

    /// A barrier is a linearizable read of the log by this host's replica: how far has the group assigned numbers? The shards of
    /// this host are notified, so that they answer no later read before they have executed that far.
    fn on_barrier(&mut self, from: NodeId, message: Barrier, cx: &mut Cx<'_, Self>) {
        if self.barriers.len() >= BARRIERS_MAX {
            self.barriers.pop_first();
        }
        let id = self.next_barrier;
        self.next_barrier += 1;
        self.barriers.insert(id, (from, message.id));
        let mut row = Vec::new();
        Commands::push(&mut row, Sequence(id), &Question::Reach.encoded());
        let query = batcher::Query {
            session: SessionId(0),
            level: Level::Linearizable,
            seen: Slot(0),
            queries: Commands::from_row(row),
        };
        cx.send(self.log.batcher, paxos::Message::from(query));
    }

    fn on_reach(&mut self, id: u64, reach: &Bytes, cx: &mut Cx<'_, Self>) {
        let Some((gateway, barrier)) = self.barriers.remove(&id) else { return };
        let Ok(Reached { numbers: reach, layout }) = Reached::decoded(reach) else { return };
        for (space, server) in self.topology.servers_on(cx.node().host()) {
            // Nothing is assigned in a space that is not in use.
            let reached = reach.iter().find(|placed| placed.space == space && placed.number > Number(0));
            if let Some(Placed { number: through, .. }) = reached {
                cx.send(server, shard::Reach { through: *through });
            }
        }
        cx.send(gateway, client::BarrierPassed { group: self.group, id: barrier, layout });
    }

    /// Asked of this host's replica as it is: a shard that lacks operations asks again.
    fn on_lacking(&mut self, from: NodeId, message: Lacking, cx: &mut Cx<'_, Self>) {
        ask_replica(self.log.replica, from, &Question::Lacking { from: message.from }, cx);
    }

    /// Of Mason's own nodes, and of the log where it answers in their words.
    fn on_own(&mut self, from: NodeId, message: ProxyIn, cx: &mut Cx<'_, Self>) {
        match message {
            ProxyIn::Gateway(message) => self.on_gateway(from, message, cx),
            ProxyIn::Sequencer(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_sequencer(from, message, frame, cx));
            }
            ProxyIn::Shard(message) => self.on_shard(from, message, cx),
            ProxyIn::Proxy(message) => self.on_proxy(from, message, cx),
            ProxyIn::Replica(_) if from != self.log.replica => {
                cx.reject("replica's word from somebody else");
            }
            ProxyIn::Replica(message) => self.on_replica(message, cx),
            ProxyIn::AnyReplica(_) if from.host() != cx.node().host() => {
                cx.reject("replica's word from another host");
            }
            ProxyIn::AnyReplica(FromAnyReplica::GroupStatus(message)) => self.on_group_status(message),
            ProxyIn::AnyReplica(FromAnyReplica::Leaving(message)) => self.on_leaving(message.page),
        }
    }

    fn on_gateway(&mut self, from: NodeId, message: FromGateway, cx: &mut Cx<'_, Self>) {
        match message {
            FromGateway::SubmitOperations(message) => self.on_submit(from, message, cx),
            FromGateway::Barrier(message) => self.on_barrier(from, message, cx),
        }
    }

    fn on_shard(&mut self, from: NodeId, message: FromShard, cx: &mut Cx<'_, Self>) {
        match message {
            FromShard::Lacking(message) => self.on_lacking(from, message, cx),
            FromShard::ShardDurable(message) => {
                self.leading(cx, |lead, frame, _| lead.on_shard_durable(from, message, frame));
            }
        }
    }

    fn on_proxy(&mut self, from: NodeId, message: FromProxy, cx: &mut Cx<'_, Self>) {
        match message {
            FromProxy::Collect(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_collect(message, frame, cx));
            }
            FromProxy::Complete(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_complete(message, frame, cx));
            }
            FromProxy::Arrange(message) => self.on_arrange(from, &message, cx),
            FromProxy::SetShards(message) => self.on_set_shards(from, &message, cx),
        }
    }

    fn on_replica(&mut self, message: FromReplica, cx: &mut Cx<'_, Self>) {
        match message {
            FromReplica::DidMove(message) => self.on_did_move(message),
            FromReplica::AwaitsTime(message) => {
                if let Some(lead) = self.lead.as_mut().filter(|_| !self.awaits_time) {
                    lead.let_time_stand(cx.now());
                }
                self.awaits_time = message.awaits;
            }
            FromReplica::DidSettle(message) => self.settled_on = self.settled_on.max(message.version),
            FromReplica::Viewed(message) => self.leading(cx, |lead, _, _| lead.on_viewed(message)),
            FromReplica::Began(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_began(message, frame, cx));
            }
            FromReplica::Applied(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_applied(&message, frame, cx));
            }
            FromReplica::DidSeal(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_did_seal(message, frame, cx));
            }
            FromReplica::DidFill(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_did_fill(&message, frame, cx));
            }
            FromReplica::DidReshard(message) => {
                self.leading(cx, |lead, _, cx| lead.on_did_reshard(&message, cx));
            }
            FromReplica::FollowUp(message) => {
                self.leading(cx, |lead, frame, _| lead.queue_follow_up(message, frame));
            }
        }
    }
}

/// Asks a replica of this host as it is; the answer comes back to the proxy, for `client`.
fn ask_replica(replica: NodeId, client: NodeId, question: &Question, cx: &mut Cx<'_, Proxy>) {
    let mut row = Vec::new();
    Commands::push(&mut row, Sequence(0), &question.encoded());
    let reads = vec![replica::ReadGroup { client, session: SessionId(0), queries: Commands::from_row(row) }];
    let read = replica::ReadBatch { through: Slot(0), unbatcher: cx.node(), reads };
    cx.send(replica, paxos::Message::from(read));
}
