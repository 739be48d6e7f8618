//! The leader: orders commands by giving each batch a slot.
//!
//! `election` decides who leads, `phase1` learns what may have been chosen, `pipeline` assigns slots, `membership` puts new
//! configurations in force, `recall` reads chosen values back for a replica that no other replica can help, `rest` is what is said while nothing
//! changes.

mod election;
mod membership;
mod phase1;
mod pipeline;
mod recall;
mod rest;

use super::Paxos;
use crate::configuration::Configurations;
pub use crate::multipaxos::messages::leader::*;
use crate::parameters::Parameters;
use kernel::{AwaitedTimers, Cx, Instant, NodeId, Position, Recount, Role, Statement};
use parts::{Ballot, Map, Slot};
use std::collections::BTreeSet;
use std::time::Duration;

kernel::timers! {
    /// The leader's timers.
    pub enum LeaderTimer {
        /// No leader was heard for too long.
        Election,
        /// Report to everybody that this leader is alive, and look whether it is heard.
        Heartbeat,
        /// Look for proposals that were not executed.
        Resend,
    }
}

kernel::record! {
    /// What a leader must not forget: the rounds it has used.
    pub struct LeaderRecord {
        /// It may have proposed in this round; it will not again after a restart.
        round: u64,
    }
}

#[derive(Clone, Debug)]
enum State {
    /// Somebody else leads, or nobody.
    Following,
    /// Asking whether an election has a chance.
    PreVoting(election::PreVoting),
    /// Learning what may have been chosen.
    Recovering(phase1::Phase1),
    /// Leading.
    Leading(Box<pipeline::Pipeline>),
}

/// Leads, or waits to.
///
/// Invariant: a proposal in slot `i` is made only when everything up to `i - window` is known to be executed, under the
/// configuration that governs `i`, after Phase 1 with that configuration's acceptors.
#[derive(Clone, Debug)]
pub struct Leader {
    parameters: Parameters,
    configurations: Configurations,
    state: State,
    /// The highest round this node has used in any incarnation.
    round: u64,
    round_position: Option<Position>,
    /// The highest ballot seen anywhere.
    highest: Ballot,
    /// The leader heard last.
    heard: Option<(Ballot, Instant)>,
    /// The leader that the acceptor of this host hears.
    hears: Option<Ballot>,
    patience: election::Patience,
    /// How far each replica's durable snapshot reaches.
    snapshots: Map<NodeId, Slot>,
    /// Replicas and proxy leaders that were heard of late.
    alive: Map<NodeId, election::Sign>,
    /// The timer runs that looks for proposals that were not executed.
    resends: bool,
    /// Acceptors that asked to be counted, with their incarnations.
    learners: Map<NodeId, u64>,
    inquiries: u64,
    /// Everything below is executed somewhere, and the configurations up to there are known.
    known: Slot,
}

impl Leader {
    /// A candidate that knows nothing but the cluster file.
    pub fn new(parameters: Parameters, configurations: Configurations) -> Self {
        Self {
            parameters,
            configurations,
            state: State::Following,
            round: 0,
            round_position: None,
            highest: Ballot::ZERO,
            heard: None,
            hears: None,
            patience: election::Patience::new(),
            snapshots: Map::default(),
            alive: Map::default(),
            resends: false,
            learners: Map::default(),
            inquiries: 0,
            known: Slot(0),
        }
    }

    /// True if it leads, as far as it knows.
    pub fn is_leading(&self) -> bool {
        matches!(self.state, State::Leading(_))
    }

    /// The leader it knows of, itself included.
    pub fn leader(&self) -> Option<Ballot> {
        match &self.state {
            State::Leading(pipeline) => Some(pipeline.ballot()),
            State::Following | State::PreVoting(_) | State::Recovering(_) => {
                self.heard.map(|(ballot, _)| ballot)
            }
        }
    }

    /// The leader, this node included, while it is heard: a leader hears a write quorum, the others hear it.
    pub fn heard_leader(&self, now: Instant, within: Duration) -> Option<Ballot> {
        match &self.state {
            State::Leading(pipeline) => {
                let is_heard = pipeline.rest.listens() || pipeline.unheard_since(now) <= within;
                is_heard.then(|| pipeline.ballot())
            }
            State::Following | State::PreVoting(_) | State::Recovering(_) => {
                let is_heard = |(ballot, at): &(Ballot, Instant)| {
                    now.since(*at) <= within || self.hears == Some(*ballot)
                };
                self.heard.filter(is_heard).map(|(ballot, _)| ballot)
            }
        }
    }

    /// The highest round in which it has stood, in any incarnation.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The highest round that it knows of. It does not sink while the node runs.
    pub fn highest_round(&self) -> u64 {
        self.highest.round.max(self.round)
    }

    /// Which acceptors' whole answers it counts in a Phase 1, by ballot and inquiry; for invariants.
    pub fn counted(&self) -> impl Iterator<Item = (Ballot, u64, NodeId)> {
        let phase1 = match &self.state {
            State::Recovering(phase1) => Some(phase1),
            State::Leading(pipeline) => pipeline.activating.as_ref().and_then(|it| it.phase1()),
            State::Following | State::PreVoting(_) => None,
        };
        phase1.into_iter().flat_map(|phase1| phase1.counted())
    }

    /// The configurations it knows.
    pub fn configurations(&self) -> &Configurations {
        &self.configurations
    }

    /// Everything below is executed somewhere.
    pub fn known_executed(&self) -> Slot {
        self.known
    }

    /// The numbers that it keeps beside what they count, while it leads.
    pub fn recounts(&self) -> Vec<Recount> {
        if let State::Leading(pipeline) = &self.state { pipeline.recounts() } else { Vec::new() }
    }

    /// Where it stands, in words.
    pub fn describe(&self) -> String {
        let latest = self.configurations.latest();
        let state = match &self.state {
            State::Following => "follows".to_owned(),
            State::PreVoting(_) => "asks for votes".to_owned(),
            State::Recovering(phase1) => format!("recovers: {}", phase1.describe()),
            State::Leading(pipeline) => format!("leads: {}", pipeline.describe()),
        };
        format!(
            "{state}, highest {:?}, knows {} executed and configuration {} from {}",
            self.highest, self.known, latest.version, latest.first_slot
        )
    }

    /// The configuration of the last slot executed.
    fn version_in_force(&self) -> u64 {
        self.configurations.governing(Slot(self.known.0.saturating_sub(1))).version
    }

    fn may_lead(&self, me: NodeId) -> bool {
        self.configurations.latest().leaders.contains(&me)
    }
}

impl Role for Leader {
    type Family = Paxos;
    type In = LeaderIn;
    type Timer = LeaderTimer;
    type Record = LeaderRecord;

    fn restore(&mut self, position: Position, record: LeaderRecord) {
        self.round = self.round.max(record.round);
        self.round_position = Some(position);
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.await_election(cx);
    }

    fn on_message(&mut self, from: NodeId, message: LeaderIn, cx: &mut Cx<'_, Self>) {
        self.look_soon(cx);
        match message {
            LeaderIn::Propose(message) => self.on_propose(message, cx),
            LeaderIn::PreVoteAck(message) => self.on_pre_vote_ack(from, message, cx),
            LeaderIn::Phase1b(message) => self.on_phase1b(from, message, cx),
            LeaderIn::Nack(message) => self.on_nack(message, cx),
            LeaderIn::Heartbeat(message) => self.on_heartbeat(message, cx),
            LeaderIn::HeartbeatAck(message) => self.on_heartbeat_ack(from, message, cx),
            LeaderIn::Executed(message) => self.on_executed(from, message, cx),
            LeaderIn::Wanted(message) => self.on_wanted(message, cx),
            LeaderIn::ChangeConfiguration(message) => self.on_reconfigure(message, cx),
            LeaderIn::Sealed(message) => self.on_sealed(from, message, cx),
            LeaderIn::Enlist(message) => self.on_enlist(from, message, cx),
            LeaderIn::ProxyAlive(ProxyAlive {}) => self.saw_alive(from, cx.now()),
            LeaderIn::Known(message) => self.on_known(message, cx),
            LeaderIn::HandOver(_) if from.host() != cx.node().host() => cx.reject("another host's wish"),
            LeaderIn::HandOver(message) => self.on_hand_over(message.to, cx),
            LeaderIn::Hears(message) => self.on_hears(from, message.leader, cx),
            LeaderIn::Stand(message) => self.on_stand(from, message.ballot, cx),
            LeaderIn::Stuck(message) => self.on_stuck(from, message, cx),
        }
    }

    fn on_timer(&mut self, timer: LeaderTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            LeaderTimer::Election => self.on_election_timeout(cx),
            LeaderTimer::Heartbeat => self.on_heartbeat_due(cx),
            LeaderTimer::Resend => self.resend(cx),
        }
    }

    fn awaited_timers(&self, me: NodeId) -> AwaitedTimers {
        let (leads, proposes) = match &self.state {
            State::Following | State::PreVoting(_) => (false, false),
            State::Recovering(_) => (false, true),
            State::Leading(pipeline) => (true, pipeline.has_proposals()),
        };
        AwaitedTimers::NONE
            .and(LeaderTimer::Election, !leads && self.hears.is_none() && self.may_lead(me))
            .and(LeaderTimer::Heartbeat, leads)
            .and(LeaderTimer::Resend, proposes || self.resends)
    }

    fn statement(&self) -> Statement {
        let State::Leading(pipeline) = &self.state else {
            return Statement { beacons: Some(BTreeSet::new()), ..Statement::default() };
        };
        let (unfinished, beacons) = (pipeline.unfinished(), Some(pipeline.rest.shown().collect()));
        Statement { recounts: pipeline.recounts(), unfinished, beacons, ..Statement::default() }
    }
}
