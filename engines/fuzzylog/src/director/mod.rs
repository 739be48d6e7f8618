//! A director: decides with the others, by a replicated log, who serves which partition, and replaces what has failed.
//!
//! ```text
//! director (leads)      chain servers          directors' log
//!   | Ping                   |                       |
//!   |----------------------->|                       |
//!   |<------------------ Pong|                       |
//!   | SealChain              |                       |
//!   |----------------------->| (fsync)               |
//!   |<--------------- SealAck|                       |
//!   | the next projection                            | (fsync, chosen)
//!   |----------------------------------------------->|
//!   |<----------------------------------ChangeDecided|
//!   | Project                |                       |
//!   |----------------------->| serves                |
//! ```
//! The director beside the log's leader acts; the others ask who is there as well, so that they know it when they lead. If another one
//! acts too, that is a pause and no harm: an entry counts only if it follows the projection that is in force, and every server in it was
//! sealed.
//!
//! **Why a chain serves on.** What was acknowledged in an epoch is on the disks of all its members. The next one begins with those
//! members who answered, in the order of the lengths of their rows: all of these are beginnings of one row, and the longest is the
//! head's. A server that joins stands behind them. It may lack what was acknowledged until it has caught up, and `whole_from` says so:
//! it does not count as somebody who has it all before its row is that long.

mod change;
mod following;
mod hearing;
mod machine;
mod moving;

pub use crate::messages::director::*;
use change::Changing;
use following::Following;
pub use machine::DirectorMachine;
use moving::Placing;

use crate::map::ColourMap;
use crate::messages::chain_server::{Ping, Project};
use crate::messages::client::ProjectionDecided;
use crate::parameters::FuzzyParameters;
use crate::projection::ChainProjection;
use crate::terms::{ChainJournal, ColourPlacement, PartitionId};
use crate::{FuzzyLog, FuzzyMessage, FuzzyRequest};
use kernel::{AwaitedTimers, Cx, HostId, Instant, NodeId, Position, RequestId, Role};
use parts::Ballot;
use paxos::EmbeddedLog;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

kernel::timers! {
    /// The director's timers.
    pub enum DirectorTimer {
        /// Ask who is there, and go on with what waits.
        Tick,
    }
}

/// Where the directors' log is on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectorLog {
    /// Orders entries, if it leads.
    pub leader: NodeId,
    /// Executes them.
    pub replica: NodeId,
    /// Where its roles are on every host.
    pub embedded: EmbeddedLog,
    /// A leader that was not heard for so long leads no more.
    pub silent_after: Duration,
}

/// Everything that a director hears.
#[derive(Clone, PartialEq, Debug)]
pub enum DirectorHears {
    /// From the engine's own nodes.
    Own(DirectorIn),
    /// From the roles of its log.
    Log(paxos::Message),
}

/// A member that was not heard for so long is copied for, whether or not it is taken for failed.
const COPY_AFTER: Duration = Duration::from_millis(500);
/// The most by which wrong suspicions lengthen the time to suspect.
const PATIENCE_MAX: u32 = 16;
/// Wrong suspicions within so long count as one.
const ONE_LATENESS: Duration = Duration::from_secs(1);
/// Without a wrong suspicion, patience is halved after that.
const PATIENCE_FOR: Duration = Duration::from_secs(10);
/// When no leader was heard for so long, hosts are taken to start anew, and are given `start_for`.
const STARTED_ANEW_AFTER: Duration = Duration::from_secs(3);
/// A director that did nothing for so many ticks was away itself: nobody is silent for that.
const AWAY_TICKS: u32 = 3;

/// A partition, as a director sees it.
#[derive(Clone, Debug)]
struct Watch {
    /// Who may be in its chain.
    candidates: Vec<NodeId>,
    /// How many servers the chain is to have.
    width: usize,
    projection: ChainProjection,
    heard: BTreeMap<NodeId, Heard>,
    changing: Option<Changing>,
    /// Members that were not heard when the last change began.
    missing: Vec<NodeId>,
    /// Candidates are all members of the cluster.
    follows: bool,
}

/// A chain server, as it was heard last.
#[derive(Clone, Debug)]
struct Heard {
    at: Instant,
    pong: Pong,
}

/// A director on one host.
#[derive(Clone, Debug)]
pub struct Director {
    parameters: FuzzyParameters,
    log: DirectorLog,
    /// Who leads the log, as far as is known.
    leader: Option<Ballot>,
    /// The last that was heard: its beacon says that it still leads, while it is lit.
    heard: Option<Ballot>,
    heard_leader: Instant,
    /// This host's leads.
    leads: bool,
    /// Since when there is a leader, this one or another, with short gaps.
    led_since: Option<Instant>,
    /// When it looked after what is late the last time.
    looked_at: Instant,
    watches: Vec<Watch>,
    /// By how much servers are given more time, because some were suspected wrongly.
    patience: u32,
    patient_since: Instant,
    /// How many servers a chain is to have, if there are so many hosts.
    replicas: usize,
    /// The client beside it.
    client: NodeId,
    following: Following,
    placing: Placing,
}

/// What a director begins with.
#[derive(Clone, Debug)]
pub struct DirectorBeginning<'a> {
    /// Where the log is.
    pub log: DirectorLog,
    /// The partitions' first projections.
    pub initial: &'a [ChainProjection],
    /// Who may be in each partition's chain.
    pub candidates: &'a [Vec<NodeId>],
    /// How many servers a chain is to have, if there are so many hosts.
    pub replicas: usize,
    /// The hosts that direct at first, as far as is known.
    pub directors: Vec<HostId>,
    /// The client beside it.
    pub client: NodeId,
    /// Where colours are by the fixed spread. The first projections beyond its partitions are of partitions that may be added.
    pub placement: ColourPlacement,
    /// There are other regions.
    pub among_regions: bool,
}

impl Director {
    /// The director of a host, which may be one that does not direct.
    pub fn new(parameters: FuzzyParameters, beginning: DirectorBeginning<'_>) -> Self {
        let DirectorBeginning { log, initial, candidates, replicas, directors, client, .. } = beginning;
        let map = ColourMap::new(beginning.placement).with_room(initial.len());
        let placing = Placing::new(map, beginning.among_regions);
        let watch = |(projection, candidates): (&ChainProjection, &Vec<NodeId>)| Watch {
            candidates: candidates.clone(),
            width: projection.members.len(),
            projection: projection.clone(),
            heard: BTreeMap::new(),
            changing: None,
            missing: Vec::new(),
            follows: false,
        };
        Self {
            parameters,
            log,
            leader: None,
            heard_leader: Instant(0),
            heard: None,
            leads: false,
            led_since: None,
            looked_at: Instant(0),
            watches: initial.iter().zip(candidates).map(watch).collect(),
            patience: 1,
            patient_since: Instant(0),
            replicas,
            client,
            following: Following::new(directors),
            placing,
        }
    }

    /// The projections that it knows to be decided.
    pub fn projections(&self) -> impl Iterator<Item = &ChainProjection> {
        self.watches.iter().map(|watch| &watch.projection)
    }

    /// True while it acts.
    pub fn is_leading(&self) -> bool {
        self.leads
    }

    /// True while it changes a partition's chain.
    pub fn is_changing(&self) -> bool {
        self.watches.iter().any(|watch| watch.changing.is_some())
    }

    fn watch(&mut self, partition: PartitionId) -> Option<&mut Watch> {
        self.watches.get_mut(usize::from(partition.0))
    }

    fn on_want_projection(&mut self, from: NodeId, message: &WantProjection, cx: &mut Cx<'_, Self>) {
        let WantProjection { partition, epoch } = *message;
        let Some(watch) = self.watch(partition) else { return cx.reject("unknown partition") };
        if watch.projection.epoch >= epoch && watch.projection.is_bootstrapped() {
            let projection = watch.projection.clone();
            cx.send(from, ProjectionDecided { projection });
        }
    }

    fn on_pong(&mut self, from: NodeId, message: Pong, cx: &mut Cx<'_, Self>) {
        if let Some(seen) = message.moves {
            self.on_moves_seen(from, seen, cx);
        }
        let (now, leads) = (cx.now(), self.leads);
        let Some(watch) = self.watch(message.partition) else { return cx.reject("unknown partition") };
        if watch.projection.nodes().all(|node| node.host_slot() != from.host_slot()) {
            return cx.reject("word of a server that is not of this partition");
        }
        if leads && message.notified < watch.projection.epoch {
            watch.notify(from, cx);
        }
        if !watch.watched().contains(&from) {
            return;
        }
        let run = message.run;
        let before = watch.heard.insert(from, Heard { at: now, pong: message });
        let was_missing = watch.missing.iter().position(|it| *it == from);
        if let Some(at) = was_missing {
            watch.missing.swap_remove(at);
            if before.is_none_or(|before| before.pong.run != run) {
                // It was down: to leave it out was right.
                return;
            }
            // It was slow: haste has cost a change. A host is late in all of its partitions at once.
            if self.patience == 1 || now.since(self.patient_since) >= ONE_LATENESS {
                self.patience = (2 * self.patience).min(PATIENCE_MAX);
                self.patient_since = now;
            }
        }
    }

    fn on_decided(&mut self, message: ChangeDecided, cx: &mut Cx<'_, Self>) {
        let ChangeDecided { projections, followed, moves } = message;
        if let Some(followed) = followed {
            self.on_followed(followed, cx);
        }
        let (leads, first) = (self.is_leading(), self.placing.map.base().partitions());
        for projection in projections {
            let Some(watch) = self.watch(projection.partition) else { continue };
            if projection.epoch <= watch.projection.epoch {
                // A partition that is added begins with the servers that were there then.
                if projection.partition.0 >= first && !watch.projection.is_bootstrapped() {
                    watch.begin_with(projection);
                }
                continue;
            }
            let is_own = watch.changing.take().is_some_and(|it| it.proposed.as_ref() == Some(&projection));
            if leads && !is_own {
                cx.mark("director.learned_of_another_change");
            }
            // Those who are left out learn it, too.
            let concerned = watch.watched();
            watch.projection = projection;
            // Who serves from now on is given the time to be heard.
            watch.heard.values_mut().for_each(|heard| heard.at = heard.at.max(cx.now()));
            if leads {
                concerned.into_iter().for_each(|server| watch.notify(server, cx));
            }
        }
        if let Some(moves) = moves {
            self.on_placed(moves, cx);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        self.excuse_silence(now);
        self.hear_beacon(cx);
        let silence = now.since(self.heard_leader);
        if silence >= self.log.silent_after {
            // Behind this leader's back another one may lead; what this one proposes comes too late then.
            (self.leader, self.leads) = (None, false);
        }
        self.led_since.take_if(|_| silence >= STARTED_ANEW_AFTER);
        if self.patience > 1 && now.since(self.patient_since) >= PATIENCE_FOR {
            (self.patience, self.patient_since) = (self.patience / 2, now);
        }
        let is_patient = self.led_since.is_none_or(|since| now.since(since) < self.parameters.start_for);
        self.follow(cx);
        if !self.directs(cx.node().host()) {
            return;
        }
        let (parameters, log) = (self.patient_parameters(), self.log);
        let map = &self.placing.map;
        for watch in &mut self.watches {
            // Nobody is asked about a partition that may be added once.
            if !watch.projection.is_bootstrapped() && !map.has(watch.projection.partition) {
                continue;
            }
            // Who does not lead asks all the same: when it does, it knows who is silent.
            cx.repeat(watch.watched(), Ping {});
            if self.leads {
                watch.look(is_patient, &parameters, &log, cx);
            }
        }
        self.look_after_map(cx);
    }

    /// Nobody was silent while this host did nothing.
    fn excuse_silence(&mut self, now: Instant) {
        let before = std::mem::replace(&mut self.looked_at, now);
        let away = now.since(before);
        if before == Instant(0) || away < AWAY_TICKS * self.parameters.tick {
            return;
        }
        for heard in self.watches.iter_mut().flat_map(|watch| watch.heard.values_mut()) {
            heard.at = (heard.at + away).min(now);
        }
    }

    fn patient_parameters(&self) -> FuzzyParameters {
        FuzzyParameters {
            suspect_after: self.parameters.suspect_after * self.patience,
            seal_for: self.parameters.seal_for * self.patience,
            ..self.parameters.clone()
        }
    }
}

impl Watch {
    /// Candidates, and servers of the chain that are none.
    fn watched(&self) -> Vec<NodeId> {
        self.candidates.iter().copied().chain(self.leavers()).collect()
    }

    /// Its chain begins with these servers, if nothing has come of those before.
    fn begin_with(&mut self, projection: ChainProjection) {
        if projection.members != self.projection.members && projection.epoch == self.projection.epoch {
            (self.projection, self.changing) = (projection, None);
        }
    }

    /// Notifies a server of the projection in force.
    fn notify(&self, server: NodeId, cx: &mut Cx<'_, Director>) {
        let projection = self.projection.clone();
        let copies = self.is_short(cx.now()) && !self.leaves(server);
        // It is decided: a majority has it on its disks.
        cx.send(server, Project { projection, copies });
    }

    /// A server that was heard lately.
    fn present(&self, node: NodeId, now: Instant, parameters: &FuzzyParameters) -> Option<&Pong> {
        let heard = self.heard.get(&node)?;
        (now.since(heard.at) <= parameters.suspect_after).then_some(&heard.pong)
    }

    /// True if the chain has fewer servers than it is to have, or some were not heard for a while.
    fn is_short(&self, now: Instant) -> bool {
        let is_silent = |node| self.heard.get(&node).is_none_or(|heard| now.since(heard.at) > COPY_AFTER);
        let projection = &self.projection;
        let stay = projection.nodes().filter(|node| !self.leaves(*node) && !self.is_stranger(*node)).count();
        projection.is_bootstrapped() && (stay < self.width || projection.nodes().any(is_silent))
    }

    /// True of a server that has a member's name, and another journal: that one is lost.
    fn is_stranger(&self, node: NodeId) -> bool {
        let (meant, heard) = (self.journal_of(node), self.heard.get(&node));
        meant.is_some() && heard.is_some_and(|heard| Some(heard.pong.journal) != meant)
    }

    /// By which journal a member is meant.
    fn journal_of(&self, node: NodeId) -> Option<ChainJournal> {
        self.projection.members.iter().find(|member| member.node == node)?.journal
    }
}

impl Role for Director {
    type Family = FuzzyLog;
    type In = DirectorHears;
    type Timer = DirectorTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(DirectorTimer::Tick, self.parameters.tick);
    }

    fn on_message(&mut self, from: NodeId, message: DirectorHears, cx: &mut Cx<'_, Self>) {
        match message {
            DirectorHears::Own(DirectorIn::WantProjection(message)) => {
                self.on_want_projection(from, &message, cx);
            }
            DirectorHears::Own(DirectorIn::Pong(message)) => self.on_pong(from, message, cx),
            DirectorHears::Own(DirectorIn::SealAck(message)) => self.on_seal_ack(from, message, cx),
            DirectorHears::Own(DirectorIn::ChangeDecided(_)) => cx.reject("decision from somebody else"),
            DirectorHears::Own(DirectorIn::FollowMembers(message)) => {
                self.on_follow_members(from, message, cx);
            }
            DirectorHears::Own(DirectorIn::MembersSettled(message)) => self.on_settled(from, &message, cx),
            DirectorHears::Own(DirectorIn::WantMap(message)) => self.on_want_map(from, &message, cx),
            DirectorHears::Own(DirectorIn::WantChange(message)) => self.on_want_change(from, message, cx),
            DirectorHears::Log(message) => self.on_log(from, message, cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(DirectorTimer::Tick, true)
    }

    fn on_timer(&mut self, timer: DirectorTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            DirectorTimer::Tick => {
                self.tick(cx);
                cx.set_timer(DirectorTimer::Tick, self.parameters.tick);
            }
        }
    }

    /// A host asks it to follow the cluster's members.
    fn on_request(&mut self, id: RequestId, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        match request {
            FuzzyRequest::Follow(members) => self.on_members(id, members, cx),
            FuzzyRequest::Append(_)
            | FuzzyRequest::Snapshot(_)
            | FuzzyRequest::Sync(_)
            | FuzzyRequest::Play(_)
            | FuzzyRequest::CountLogs(_)
            | FuzzyRequest::FindLogs(_)
            | FuzzyRequest::Cut(_)
            | FuzzyRequest::Scan(_)
            | FuzzyRequest::Restore(_)
            | FuzzyRequest::Open(_)
            | FuzzyRequest::Change(_)
            | FuzzyRequest::Trim(_) => cx.reject("request for a client"),
        }
    }
}

impl TryFrom<FuzzyMessage> for DirectorHears {
    type Error = FuzzyMessage;

    fn try_from(message: FuzzyMessage) -> Result<Self, FuzzyMessage> {
        match message {
            FuzzyMessage::Director(message) => Ok(Self::Own(message)),
            FuzzyMessage::Log(message) => Ok(Self::Log(message)),
            other => Err(other),
        }
    }
}
