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

use crate::client;
use crate::order::{GroupTime, Number, Operation, Order, Placed, Range, Space, Stamp};
use crate::sequencer::Allocation;
use crate::shard;
use crate::topology::{Layout, Parameters, Spread, Topology};
use crate::view::View;
use crate::{Group, Mason, Message};
use arranging::Call;
use entry::{Claim, Page, Question};
pub use heard::Heard;
use kernel::client::Response;
use kernel::{Bytes, Cx, Decode, Encode, Instant, NodeId, Position, RequestId, Role};
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

kernel::record! {
    /// The next tag that is admitted from an origin.
    pub struct NextTag {
        /// The origin.
        origin: NodeId,
        /// Its life.
        incarnation: u64,
        /// The tag.
        next: u64,
    }
}

kernel::record! {
    /// What a group's log says to a barrier.
    pub struct Reached {
        /// The highest number assigned, in each space.
        numbers: Vec<Placed>,
        /// How many groups are in use.
        layout: Option<Layout>,
    }
}

kernel::record! {
    /// Another group that has not handed over everything.
    pub struct Awaited {
        /// Which.
        from: Group,
        /// The page that comes next.
        next: u32,
    }
}

kernel::record! {
    /// What a group that has retired leaves: all of it is executed and in durable snapshots.
    pub struct Spent {
        /// The number after the last one it assigned, in each space.
        below: Vec<Placed>,
        /// The highest stamp it assigned.
        stamp: Stamp,
    }
}

kernel::messages! {
    /// Everything a proxy can be sent.
    pub enum ProxyIn in Message::Proxy {
        /// From a gateway: have these ordered. Their tags follow one another. Sent again, from the first without an answer on,
        /// when answers take long.
        1 => Submit {
            /// The operations.
            operations: Vec<Operation>,
        },
        /// From a gateway of this host: tell me when this host's shards know of all that any log holds now.
        2 => Barrier {
            /// Names the question.
            id: u64,
        },
        /// From the sequencer: the numbers of a request.
        3 => Allocated {
            /// The sequencer.
            epoch: u64,
            /// The numbers.
            allocation: Allocation,
        },
        /// From the sequencer, to a new leader: what its predecessors asked for and have not put into the log.
        4 => Probed {
            /// The sequencer.
            epoch: u64,
            /// The last request served.
            highest: u64,
            /// The allocations.
            lost: Vec<Allocation>,
        },
        /// From the sequencer: I am here.
        5 => Pong {
            /// The sequencer.
            epoch: u64,
        },
        /// From a node that is not the sequencer it was taken for.
        6 => NotActive {
            /// Which epoch it was asked as.
            asked: u64,
            /// The highest epoch it knows of for itself.
            epoch: u64,
            /// It is about to be.
            recovering: bool,
        },
        /// From a standby that takes over: refuse all sequencers before this one (the paper's GetMaxAndSeal).
        7 => Seal {
            /// Its epoch.
            epoch: u64,
            /// Drawn when it was asked to take over.
            attempt: Option<u64>,
        },
        /// From the new sequencer: fill these holes with no-ops.
        8 => Fill {
            /// Its epoch.
            epoch: u64,
            /// The holes.
            holes: Vec<Range>,
        },
        /// From the new sequencer: ask me.
        9 => Active {
            /// Its epoch.
            epoch: u64,
        },
        /// From a shard's server: hand me what you keep of this space.
        10 => Lacking {
            /// The space, and the first number it lacks.
            from: Placed,
        },
        /// From a shard's server: everything below is in my durable snapshot.
        11 => ShardDurable {
            /// The space and the number.
            below: Placed,
        },
        /// From the proxy before in the ring: how many numbers of each interval are assigned by those who were asked so far.
        12 => Collect {
            /// Names the round.
            round: u64,
            /// How many proxies have counted.
            hops: u32,
            /// The first number of each interval.
            firsts: Vec<Placed>,
            /// How many of each interval are assigned.
            counts: Vec<u64>,
        },
        /// From the proxy before in the ring: everything below is assigned.
        13 => Complete {
            /// How many proxies know.
            hops: u32,
            /// One number a space.
            floors: Vec<Placed>,
        },
        /// From this host's replica of the group: what was asked for.
        14 => Viewed {
            /// The numbers assigned.
            view: View,
        },
        /// From this host's replica of the group: a leader has begun.
        20 => Began {
            /// Counts leaders.
            epoch: u64,
            /// Its ballot in the log.
            ballot: Ballot,
            /// The proxy that leads.
            leader: NodeId,
            /// The sequencer in force.
            sequencer: u64,
            /// The last request whose answer is in the log.
            request: u64,
            /// The number after the last one assigned here, in each space.
            next: Vec<Placed>,
            /// The highest stamp assigned here.
            stamp: Stamp,
            /// The group's clock.
            now: GroupTime,
            /// Whose operations are admitted next.
            tags: Vec<NextTag>,
            /// The group's own operations that are still to be ordered.
            follow_ups: Vec<FollowUp>,
            /// Whose the sequencer's epoch is.
            claim: Option<Claim>,
            /// The floors that the log has: see [`entry::Entry::Durable`].
            durable: Option<Vec<Placed>>,
        },
        /// From this host's replica of the group: a batch was applied.
        21 => Applied {
            /// Its leader.
            epoch: u64,
            /// Its number.
            index: u64,
            /// Its sequencer.
            sequencer: u64,
        },
        /// From this host's replica of the group: sealed.
        22 => DidSeal {
            /// The leader in force.
            epoch: u64,
            /// Its last batch applied.
            index: u64,
            /// The sequencer in force from here on.
            sequencer: u64,
            /// The numbers assigned.
            view: View,
            /// The highest stamp assigned.
            stamp: Stamp,
            /// Whose that sequencer's epoch is.
            claim: Option<Claim>,
            /// How many groups the log has in use.
            layout: Option<Layout>,
            /// The spread whose hand-over the log has.
            handed: Option<Spread>,
        },
        /// From this host's replica of the group: holes were filled.
        23 => DidFill {
            /// For this sequencer.
            sequencer: u64,
        },
        /// From this host's replica of the group: the stub wants this ordered.
        24 => FollowUp {
            /// Its number among the group's own operations.
            id: u64,
            /// What it is.
            body: Bytes,
        },
        /// From this host's replica of the group: the deployment's hosts are others.
        25 => DidMove {
            /// Who they are.
            members: Members,
            /// The floors that the log has: those on their way to it are void.
            durable: Vec<Placed>,
        },
        /// From this host's replica of the group: it needs no host but the members of this version.
        28 => DidSettle {
            /// The version.
            version: u64,
        },
        /// From this host's replica of any group: where that group's log stands, since the layout is not the bootstrap's.
        26 => Standing {
            /// The group.
            group: Group,
            /// How many groups are in use.
            layout: Layout,
            /// The version of the layout that the log had when it was sealed last.
            sealed: u64,
            /// Who has not taken all that this group's stub has handed over.
            leaving: Vec<Group>,
            /// Who has not handed over everything.
            awaited: Vec<Awaited>,
            /// It assigns nothing any more.
            retired: bool,
            /// It can be taken out.
            spent: Option<Spent>,
            /// The version of the spread whose hand-over the log has.
            handed: Option<u64>,
        },
        /// From this host's replica of another group: its stub hands this over.
        27 => Leaving {
            /// The page.
            page: Page,
        },
        /// From a proxy of the first group: have origins served by so many groups.
        15 => Arrange {
            /// How many.
            groups: u16,
        },
        /// From a proxy of the first group: have the service's state spread over so many shards.
        16 => SpreadOver {
            /// How many.
            shards: u16,
        },
        /// From the sequencer: your spaces were chosen by another spread than the one in force.
        17 => OtherSpread {
            /// The sequencer.
            epoch: u64,
            /// The one in force.
            spread: Spread,
        },
        /// From the new sequencer, to the first group: put this into the log, before I give anything away.
        18 => HandOver {
            /// Its epoch.
            epoch: u64,
            /// The spread.
            spread: Spread,
            /// A number in each space that takes part.
            order: Order,
        },
        /// From this host's replica of the first group: the hand-over stands in the log.
        29 => DidHandOver {
            /// For this sequencer.
            sequencer: u64,
        },
    }
}

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
    /// Where the deployment's places begin.
    pub first: u32,
}

/// What a stub says of spaces; the part of it that a leader needs before the log has spoken.
pub type SpacesOf = Arc<dyn Fn(&[u8], &Spread) -> Vec<Space> + Send + Sync>;

/// One replica's active part.
pub struct Proxy {
    group: Group,
    topology: Arc<Topology>,
    parameters: Parameters,
    log: LogNodes,
    spaces_of: SpacesOf,
    /// Who leads the log, as far as is known.
    leader: Option<Ballot>,
    /// Where the log is, as its leader says.
    placed: Option<moving::LogPlaced>,
    /// The members that the cluster wants.
    wanted: Option<Members>,
    /// The version of the members that are all the group needs.
    settled_on: u64,
    /// How many groups were in use at the bootstrap.
    bootstrap: Layout,
    arranging: arranging::Arranging,
    heard_leader_at: Instant,
    lead: Option<Lead>,
    barriers: BTreeMap<u64, (NodeId, u64)>,
    next_barrier: u64,
}

/// Barriers under way; gateways ask again.
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
        parameters: Parameters,
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

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(ProxyTimer::Tick, self.parameters.tick);
    }

    fn on_message(&mut self, from: NodeId, message: Heard, cx: &mut Cx<'_, Self>) {
        match message {
            Heard::Own(message) => self.on_own(from, message, cx),
            Heard::Log(message) => self.on_log(from, message, cx),
        }
    }

    fn on_timer(&mut self, timer: ProxyTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ProxyTimer::Tick => {
                cx.set_timer(ProxyTimer::Tick, self.parameters.tick);
                self.leading(cx, |lead, frame, cx| lead.on_tick(frame, cx));
                self.move_on(cx);
                self.arrange(cx);
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match Call::decoded(&request) {
            Ok(Call::Follow(members)) => self.on_wanted(id, members, cx),
            Ok(Call::Arrange(groups)) => {
                if let Some(groups) = groups {
                    self.on_arrange(cx.node(), &Arrange { groups }, cx);
                }
                cx.respond(id, Response(self.progress().encoded().into()));
            }
            Ok(Call::SpreadOver(shards)) => {
                self.on_spread_over(cx.node(), &SpreadOver { shards }, cx);
                cx.respond(id, Response(self.progress().encoded().into()));
            }
            Err(_) => cx.reject("request that does not decode"),
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.leading(cx, |lead, frame, cx| lead.advance(frame, cx));
    }
}

/// What the leading part needs of the proxy around it.
pub(crate) struct Frame<'a> {
    group: Group,
    topology: &'a Topology,
    parameters: &'a Parameters,
    log: LogNodes,
    spaces_of: &'a SpacesOf,
    /// The log's leader of this host has said lately that it leads. One that nobody hears any more resigns in silence, and its
    /// proxy must not disturb the sequencer.
    confident: bool,
    /// The group is not in use, or has retired: it has nothing numbered.
    idle: bool,
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
        let frame = Frame {
            group: self.group,
            topology: &self.topology,
            parameters: &self.parameters,
            log: self.log,
            spaces_of: &self.spaces_of,
            idle: self.group.0 >= self.topology.layout.spanning || self.arranging.is_retired(self.group),
            confident: cx.now().since(self.heard_leader_at) < DOUBT_AFTER,
        };
        if let Some(lead) = &mut self.lead {
            call(lead, &frame, cx);
        }
    }

    /// Taken by the leader; passed on to it, once, by the others.
    fn on_submit(&mut self, from: NodeId, message: Submit, cx: &mut Cx<'_, Self>) {
        if self.leads_here() {
            return self.leading(cx, |lead, frame, cx| lead.on_submit(message, frame, cx));
        }
        let place = cx.node().place();
        if let Some(leader) = self.leader.filter(|_| from.place() != place) {
            cx.send(NodeId::new(leader.leader.host(), place), message);
        }
    }

    /// A barrier is a linearizable read of the log by this host's replica: how far has the group assigned numbers? The shards of
    /// this host are told, so that they answer no later read before they have executed that far.
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

    /// Asked of this host's replica as it is: whoever lacks operations asks again.
    fn on_lacking(&mut self, from: NodeId, message: Lacking, cx: &mut Cx<'_, Self>) {
        ask_replica(self.log.replica, from, &Question::Lacking { from: message.from }, cx);
    }

    /// Of Mason's own nodes, and of the log where it answers in their words.
    fn on_own(&mut self, from: NodeId, message: ProxyIn, cx: &mut Cx<'_, Self>) {
        match message {
            ProxyIn::Submit(message) => self.on_submit(from, message, cx),
            ProxyIn::Barrier(message) => self.on_barrier(from, message, cx),
            ProxyIn::Allocated(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_allocated(message, frame, cx))
            }
            ProxyIn::Probed(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_probed(message, frame, cx))
            }
            ProxyIn::Pong(message) => self.leading(cx, |lead, _, cx| lead.on_pong(&message, cx)),
            ProxyIn::NotActive(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_not_active(&message, frame, cx));
            }
            ProxyIn::Seal(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_seal(from, &message, frame, cx))
            }
            ProxyIn::Fill(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_fill(from, message, frame, cx))
            }
            ProxyIn::Active(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_active(&message, frame, cx))
            }
            ProxyIn::Lacking(message) => self.on_lacking(from, message, cx),
            ProxyIn::ShardDurable(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_shard_durable(from, message, frame, cx));
            }
            ProxyIn::Collect(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_collect(message, frame, cx))
            }
            ProxyIn::Complete(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_complete(message, frame, cx))
            }
            ProxyIn::Arrange(message) => self.on_arrange(from, &message, cx),
            ProxyIn::SpreadOver(message) => self.on_spread_over(from, &message, cx),
            ProxyIn::OtherSpread(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_other_spread(message, frame, cx));
            }
            ProxyIn::HandOver(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_hand_over(from, message, frame, cx));
            }
            // What this host's replicas of any group say; nobody else may.
            ProxyIn::Standing(_) | ProxyIn::Leaving(_) if from.host() != cx.node().host() => {
                cx.reject("replica's word from another host");
            }
            ProxyIn::Standing(message) => self.on_standing(message),
            ProxyIn::Leaving(message) => self.on_leaving(message.page),
            // What this host's replica of the group says.
            message if from != self.log.replica => {
                let _ = message;
                cx.reject("replica's word from somebody else");
            }
            ProxyIn::Viewed(message) => self.leading(cx, |lead, _, _| lead.on_viewed(message)),
            ProxyIn::Began(message) => self.leading(cx, |lead, frame, cx| lead.on_began(message, frame, cx)),
            ProxyIn::Applied(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_applied(&message, frame, cx))
            }
            ProxyIn::DidSeal(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_did_seal(message, frame, cx))
            }
            ProxyIn::DidFill(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_did_fill(&message, frame, cx))
            }
            ProxyIn::DidHandOver(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_did_hand_over(&message, frame, cx));
            }
            ProxyIn::FollowUp(message) => {
                self.leading(cx, |lead, frame, _| lead.queue_follow_up(message, frame))
            }
            ProxyIn::DidMove(message) => self.on_did_move(message),
            ProxyIn::DidSettle(message) => self.settled_on = self.settled_on.max(message.version),
        }
    }
}

/// Asks a replica of this host as it is; the answer comes back to the proxy, for `client`.
fn ask_replica(replica: NodeId, client: NodeId, question: &Question, cx: &mut Cx<'_, Proxy>) {
    let mut row = Vec::new();
    Commands::push(&mut row, Sequence(0), &question.encoded());
    let reads = vec![replica::ReadGroup { client, session: SessionId(0), queries: Commands::from_row(row) }];
    let read = replica::Read { through: Slot(0), unbatcher: cx.node(), reads };
    cx.send(replica, paxos::Message::from(read));
}
