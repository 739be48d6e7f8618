//! Who leads: elections by timeouts, with a pre-vote among the acceptors, and leaders that resign when unheard.

use super::{Executed, Heartbeat, HeartbeatAck, Known, Leader, LeaderTimer, Nack, PreVoteAck, Stand, State};
use crate::configuration::{Configuration, Configurations};
use crate::multipaxos::Pulse;
use crate::multipaxos::messages::{acceptor, batcher, proxy_leader, replica};
use kernel::{Cx, Instant, NodeId};
use parts::{Ballot, Slot, Tally};
use std::time::Duration;

/// Answers per group of one configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies(Vec<Tally>);

impl Tallies {
    /// Counts `from` in every group it belongs to.
    pub(super) fn count(&mut self, configuration: &Configuration, from: NodeId) {
        let groups = configuration.acceptors.groups();
        self.0.resize(groups.len(), Tally::default());
        for (group, tally) in groups.iter().zip(&mut self.0) {
            if let Some(index) = group.index_of(from) {
                tally.insert(index);
            }
        }
    }

    /// True if every group has a read quorum.
    pub(super) fn can_read(&self, configuration: &Configuration) -> bool {
        let groups = configuration.acceptors.groups();
        self.0.len() == groups.len()
            && groups.iter().zip(&self.0).all(|(group, &tally)| group.is_read_quorum(tally))
    }

    /// True if every group has a write quorum.
    pub(super) fn can_write(&self, configuration: &Configuration) -> bool {
        let groups = configuration.acceptors.groups();
        self.0.len() == groups.len()
            && groups.iter().zip(&self.0).all(|(group, &tally)| group.is_write_quorum(tally))
    }

    /// True if in some group a read quorum was not counted.
    pub(super) fn leaves_a_read_quorum(&self, configuration: &Configuration) -> bool {
        configuration.acceptors.groups().iter().enumerate().any(|(number, group)| {
            let counted = self.0.get(number).copied().unwrap_or_default();
            let mut rest = Tally::default();
            let others = (0..group.members().len()).filter(|&index| !counted.contains(index));
            others.for_each(|index| rest.insert(index));
            group.is_read_quorum(rest)
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct PreVoting {
    ballot: Ballot,
    granted: Tallies,
}

/// When a replica or proxy leader was heard last, and when it or its host's acceptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    own: Instant,
    any: Instant,
}

/// A leader that a write quorum has not answered for this many election timeouts resigns.
const UNHEARD_TIMEOUTS: u32 = 2;
/// A term that silence ends after fewer election timeouts than this was too short to be worth its election.
const YOUNG_TIMEOUTS: u32 = 10;
const STRETCH_MAX: u32 = 8;
/// At rest a replica or proxy leader is taken for dead that was not heard in so many turns.
const TURNS_MISSED_MAX: u32 = 4;

/// How many election timeouts of silence are borne. Nobody knows how slow a network is: where terms end young, the
/// timeout is shorter than the pauses of the links, and must grow or nobody leads for long.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    stretch: u32,
    term: Option<(Ballot, Instant)>,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { stretch: 1, term: None }
    }

    pub(super) fn of(&self, timeout: Duration) -> Duration {
        self.stretch * timeout
    }

    fn leader_speaks(&mut self, ballot: Ballot, now: Instant) {
        if self.term.is_none_or(|(known, _)| known < ballot) {
            self.term = Some((ballot, now));
        }
    }

    /// True if the next silence is borne for longer.
    fn leader_fell_silent(&mut self, timeout: Duration, now: Instant) -> bool {
        let Some((_, began)) = self.term.take() else { return false };
        let young = now.since(began) < YOUNG_TIMEOUTS * self.of(timeout);
        self.stretch = if young { (2 * self.stretch).min(STRETCH_MAX) } else { (self.stretch / 2).max(1) };
        young
    }
}

impl Leader {
    /// For how long an unfinished candidacy goes on.
    pub(super) fn await_phase1(&mut self, cx: &mut Cx<'_, Self>) {
        let patience = 4 * self.patience.of(self.parameters.election_timeout);
        cx.set_timer(LeaderTimer::Election, patience);
    }

    /// (Re)starts the wait for silence.
    pub(super) fn await_election(&mut self, cx: &mut Cx<'_, Self>) {
        self.await_election_after(Duration::ZERO, cx);
    }

    pub(super) fn follow(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_leading() {
            cx.mark("leader.resigned");
            cx.stop_timer(LeaderTimer::Heartbeat);
            cx.stop_timer(LeaderTimer::Resend);
            self.resends = kernel::planted!(stopped_timer_taken_for_set);
        }
        if let State::Leading(pipeline) = &mut self.state
            && !kernel::planted!(resigned_leader_shows_beacons)
        {
            pipeline.rest.stop_beacons(cx);
        }
        self.state = State::Following;
        if self.is_listened_for(cx.node()) {
            cx.stop_timer(LeaderTimer::Election);
        } else {
            self.await_election(cx);
        }
    }

    fn lost_the_leader(&mut self, cx: &mut Cx<'_, Self>) {
        if self.patience.leader_fell_silent(self.parameters.election_timeout, cx.now()) {
            cx.mark("leader.bears_longer_silence");
        }
    }

    pub(super) fn on_election_timeout(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_leading() {
            return;
        }
        if self.is_listened_for(cx.node()) {
            // Its candidacy came to nothing, and another one leads.
            return self.follow(cx);
        }
        self.lost_the_leader(cx);
        self.await_election(cx);
        if !self.may_lead(cx.node()) {
            return;
        }
        let ballot =
            Ballot { round: self.highest.round.max(self.round), leader: NodeId::ZERO }.above(cx.node());
        self.state = State::PreVoting(PreVoting { ballot, granted: Tallies::default() });
        let version = Some(self.configurations.latest().version);
        let governing = self.configurations.governing(self.known);
        cx.multicast(governing.acceptors.nodes(), acceptor::PreVote { ballot, version });
    }

    /// Resigns so that another one leads, without the silence that an election waits for.
    pub(super) fn on_hand_over(&mut self, to: NodeId, cx: &mut Cx<'_, Self>) {
        let State::Leading(pipeline) = &self.state else { return };
        // A change that is not in force yet is this leader's to finish.
        let may = to != cx.node() && self.may_lead(to) && pipeline.activating.is_none();
        if !may {
            return;
        }
        let ballot = pipeline.ballot();
        cx.mark("leader.handed_over");
        for configuration in self.configurations.all() {
            cx.multicast(configuration.acceptors.nodes(), acceptor::Resigned { ballot });
        }
        self.follow(cx);
        cx.send(to, Stand { ballot });
    }

    /// The leader that it hears wants it to lead: no pre-vote is needed, for nobody is unseated.
    pub(super) fn on_stand(&mut self, from: NodeId, ballot: Ballot, cx: &mut Cx<'_, Self>) {
        let follows = matches!(self.state, State::Following);
        if from != ballot.leader || ballot < self.highest || !follows || !self.may_lead(cx.node()) {
            return;
        }
        self.highest = ballot;
        self.await_election(cx);
        let round = ballot.round.max(self.round);
        cx.mark("leader.stood_when_it_was_handed_over_to");
        self.begin_phase1(Ballot { round, leader: NodeId::ZERO }.above(cx.node()), cx);
    }

    /// The candidacy was made for a cluster that is gone; the next one asks those who vote now, if this node may lead at all.
    pub(super) fn on_known(&mut self, message: Known, cx: &mut Cx<'_, Self>) {
        match self.state {
            // A leader learns of changes from replicas, which have executed them.
            State::Leading(_) => {}
            State::Following | State::PreVoting(_) | State::Recovering(_) => {
                if self.configurations.adopt(&message.configurations) {
                    self.follow(cx);
                }
            }
        }
    }

    pub(super) fn on_pre_vote_ack(&mut self, from: NodeId, message: PreVoteAck, cx: &mut Cx<'_, Self>) {
        self.highest = self.highest.max(message.promised);
        let State::PreVoting(vote) = &mut self.state else { return };
        if vote.ballot != message.ballot || !message.granted {
            return;
        }
        let configuration = self.configurations.governing(self.known);
        vote.granted.count(configuration, from);
        if vote.granted.can_read(configuration) {
            let ballot = vote.ballot;
            self.begin_phase1(ballot, cx);
        }
    }

    pub(super) fn on_nack(&mut self, message: Nack, cx: &mut Cx<'_, Self>) {
        self.highest = self.highest.max(message.promised);
        let mine = match &self.state {
            State::Following | State::PreVoting(_) => return,
            State::Recovering(phase1) => phase1.ballot(),
            State::Leading(pipeline) => pipeline.ballot(),
        };
        if message.promised > mine {
            self.follow(cx);
        }
    }

    pub(super) fn on_heartbeat(&mut self, message: Heartbeat, cx: &mut Cx<'_, Self>) {
        let Pulse { ballot, configurations, .. } = message.pulse;
        if ballot.leader == cx.node() {
            return;
        }
        if ballot >= self.highest {
            self.configurations.adopt(&configurations);
        }
        self.heard_of(ballot, cx);
    }

    /// Another one leads.
    pub(super) fn heard_of(&mut self, ballot: Ballot, cx: &mut Cx<'_, Self>) {
        if ballot < self.highest {
            // The higher one may be of a candidacy that came to nothing. Whom acceptors stand by is theirs to say, but learners
            // are handed on to the leader.
            if self.heard.is_none_or(|(known, _)| known <= ballot) {
                self.heard = Some((ballot, cx.now()));
            }
            return;
        }
        self.highest = ballot;
        self.heard = Some((ballot, cx.now()));
        self.patience.leader_speaks(ballot, cx.now());
        self.follow(cx);
    }

    pub(super) fn on_heartbeat_due(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        self.hear_beacons(cx);
        let State::Leading(pipeline) = &mut self.state else { return };
        self.patience.leader_speaks(pipeline.ballot(), now);
        if pipeline.unheard_since(now) > UNHEARD_TIMEOUTS * self.patience.of(self.parameters.election_timeout)
        {
            cx.mark("leader.resigned_because_unheard");
            self.lost_the_leader(cx);
            return self.follow(cx);
        }
        let Some(pulse) = self.next_pulse(now) else { return };
        if self.rests(&pulse, cx) {
            self.pulse_at_rest(&pulse, cx);
        } else {
            self.send_pulse(&pulse, cx);
        }
        self.await_heartbeat(cx);
    }

    /// Reports to everybody that this leader is alive.
    pub(super) fn pulse(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(pulse) = self.next_pulse(cx.now()) {
            self.send_pulse(&pulse, cx);
        }
    }

    fn next_pulse(&self, now: Instant) -> Option<Pulse> {
        let ballot = self.leader()?;
        let mut alive: Vec<NodeId> =
            self.alive.keys().copied().filter(|&node| self.is_alive(node, now)).collect();
        alive.sort_unstable();
        let (configurations, truncate_below) = (self.configurations.clone(), self.truncation());
        Some(Pulse { ballot, configurations, executed: self.known, truncate_below, alive })
    }

    fn send_pulse(&self, pulse: &Pulse, cx: &mut Cx<'_, Self>) {
        let me = cx.node();
        for configuration in self.configurations.all() {
            let others = configuration.leaders.iter().copied().filter(|&leader| leader != me);
            cx.repeat(others, Heartbeat { pulse: pulse.clone() });
            cx.repeat(configuration.acceptors.nodes(), acceptor::Heartbeat { pulse: pulse.clone() });
            let proxies = configuration.proxy_leaders.iter().copied();
            cx.repeat(proxies, proxy_leader::Heartbeat { pulse: pulse.clone() });
            cx.repeat(configuration.replicas.iter().copied(), replica::Heartbeat { pulse: pulse.clone() });
            cx.repeat(configuration.batchers.iter().copied(), batcher::Heartbeat { pulse: pulse.clone() });
        }
    }

    pub(super) fn saw_alive(&mut self, node: NodeId, now: Instant) {
        let patience = self.alive_after();
        self.alive.retain(|_, sign| now.since(sign.any) < patience);
        // A host that speaks rarely has promised for its nodes to be alive for longer.
        let any = self.alive.get(&node).map_or(now, |sign| sign.any.max(now));
        self.alive.insert(node, Sign { own: now, any });
    }

    /// At rest nodes say little themselves: they are as alive as the acceptor of their host, if they have spoken at all.
    /// Those that were alive `before`, and whose host has been heard since, still are.
    pub(super) fn saw_host_alive(&mut self, acceptor: NodeId, now: Instant, before: Instant) {
        let (patience, turn) = (self.alive_after(), self.whole_every());
        for (node, sign) in &mut self.alive {
            let is_alive = before.since(sign.any) < patience && now.since(sign.own) < TURNS_MISSED_MAX * turn;
            if node.host() == acceptor.host() && is_alive {
                sign.any = now;
            }
        }
    }

    /// True if `node`, a replica or proxy leader, was heard of late.
    pub(super) fn is_alive(&self, node: NodeId, now: Instant) -> bool {
        self.alive.get(&node).is_some_and(|sign| now.since(sign.any) < self.alive_after())
    }

    fn alive_after(&self) -> Duration {
        self.parameters.election_timeout.max(4 * self.parameters.heartbeat_every)
    }

    pub(super) fn on_heartbeat_ack(&mut self, from: NodeId, message: HeartbeatAck, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let configuration = self.configurations.governing(self.known);
        if let State::Leading(pipeline) = &mut self.state
            && pipeline.ballot() == message.ballot
        {
            pipeline.heard(from, configuration, now);
            if message.knows_rest == Some(true) {
                pipeline.rest.note(from, now);
            }
            if pipeline.rest.is_resting() {
                self.saw_host_alive(from, now, now);
            }
        }
    }

    pub(super) fn on_executed(&mut self, from: NodeId, message: Executed, cx: &mut Cx<'_, Self>) {
        let Executed { executed, version, snapshot, configurations, hears } = message;
        if let Some(configurations) = &configurations {
            self.adopt(configurations);
        }
        // One that speaks and does not hear is of no use to anybody.
        if hears.is_some_and(|ballot| ballot.leader == cx.node()) {
            self.saw_alive(from, cx.now());
        }
        let unknown = version > self.configurations.latest().version;
        if unknown && !kernel::planted!(report_of_unknown_configuration_believed)
            || self.configurations.are_unconfirmed()
        {
            // What governs the slots to come is not known yet: ask before relying on the report.
            return cx.send(from, replica::Describe {});
        }
        self.snapshots.insert(from, snapshot);
        if executed > self.known {
            self.known = executed;
            // The configuration of the last executed slot is in force, so nothing older is needed.
            self.configurations.forget_before(Slot(executed.0 - 1));
            self.advance(cx);
        }
    }

    fn adopt(&mut self, configurations: &Configurations) {
        if self.configurations.adopt(configurations) {
            let replicas = self.configurations.latest().replicas.clone();
            self.snapshots.retain(|node, _| replicas.contains(node));
        }
    }

    /// Below this slot, as many replicas as may crash plus one have durable snapshots; both, if there are two: either may leave.
    pub fn truncation(&self) -> Slot {
        let latest = self.configurations.latest();
        let mut snapshots: Vec<Slot> =
            latest.replicas.iter().filter_map(|replica| self.snapshots.get(replica)).copied().collect();
        snapshots.sort_unstable_by(|a, b| b.cmp(a));
        let spare = usize::from(!kernel::planted!(truncation_one_replica_short));
        let needed = (latest.acceptors.faults().max(usize::from(latest.replicas.len() == 2)) + spare)
            .min(latest.replicas.len())
            .max(1);
        snapshots.get(needed - 1).copied().unwrap_or(Slot(0))
    }
}
