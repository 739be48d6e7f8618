//! Which leader is heard. The acceptor listens for its host: it reports to the leader role and the replica beside it when a leader is heard
//! and when it has fallen silent, so that these need no heartbeats of their own.

use super::{Acceptor, AcceptorTimer, Heartbeat, Resigned, Resting};
use crate::multipaxos::Pulse;
use crate::multipaxos::messages::{leader, replica};
use kernel::{Cx, Instant, NodeId, planted};
use parts::{Ballot, Slot};
use std::time::Duration;

/// An acceptor that hears a beacon looks so often whether it does.
const LOOK_EVERY: Duration = Duration::from_secs(16);

#[derive(Clone, Debug, Default)]
pub(super) struct Hearing {
    /// The leader heard last; a candidate that was promised something counts as well.
    heard: Option<(NodeId, Instant)>,
    /// The leader that rests, and to which a beacon says that it is heard.
    answers: Option<NodeId>,
    /// The beacon of that leader is heard.
    is_lit: bool,
    /// What the leader role of this host was reported last.
    reported: Option<Ballot>,
    /// The same of its replica: a leader that rests.
    resting: Option<Ballot>,
}

impl Acceptor {
    /// The leader that was heard within an election timeout.
    pub(super) fn heard_leader(&self, now: Instant) -> Option<NodeId> {
        let patience = self.parameters.election_timeout;
        self.hearing.heard.filter(|(_, at)| now.since(*at) < patience).map(|(leader, _)| leader)
    }

    pub(super) fn on_heartbeat(&mut self, from: NodeId, message: Heartbeat, cx: &mut Cx<'_, Self>) {
        let (ballot, below) = (message.pulse.ballot, message.pulse.truncate_below);
        self.learn_of_pulse(&message.pulse, cx);
        if self.hear(from, ballot, cx) {
            self.stop_answering(cx);
            cx.repeat([from], leader::HeartbeatAck { ballot, knows_rest: Some(true) });
            self.report_rest(None, cx);
            self.truncate(below, cx);
        }
    }

    pub(super) fn on_resting(&mut self, from: NodeId, message: Resting, cx: &mut Cx<'_, Self>) {
        let Resting { ballot, pulse } = message;
        if let Some(pulse) = &pulse {
            self.learn_of_pulse(pulse, cx);
        }
        if !self.hear(from, ballot, cx) {
            return;
        }
        self.hearing.answers = Some(from);
        cx.set_beacon([from], leader::HeartbeatAck { ballot, knows_rest: Some(true) });
        if let Some(pulse) = pulse {
            self.truncate(pulse.truncate_below, cx);
            // A configuration may have brought another role to this host.
            (self.hearing.reported, self.hearing.resting) = (None, None);
            self.report_leader(Some(ballot), cx);
        }
        self.report_rest(Some(ballot), cx);
        self.await_silence(cx);
    }

    fn learn_of_pulse(&mut self, pulse: &Pulse, cx: &mut Cx<'_, Self>) {
        self.learn(&pulse.configurations, cx);
        self.configurations.forget_before(Slot(pulse.executed.0.saturating_sub(1)));
    }

    /// False if another ballot is promised, or this acceptor may not vote.
    fn hear(&mut self, from: NodeId, ballot: Ballot, cx: &mut Cx<'_, Self>) -> bool {
        let Some(summary) = self.active() else { return false };
        if ballot < summary.promised {
            let promised = summary.promised;
            cx.send(from, leader::Nack { promised });
            return false;
        }
        self.report_leader(Some(ballot), cx);
        self.listen(ballot.leader, cx);
        true
    }

    /// A leader, or a candidate that is promised something, was heard.
    pub(super) fn listen(&mut self, leader: NodeId, cx: &mut Cx<'_, Self>) {
        if self.hearing.answers.is_some_and(|answered| answered != leader) {
            self.stop_answering(cx);
        }
        self.hearing.heard = Some((leader, cx.now()));
        self.await_silence(cx);
    }

    fn stop_answering(&mut self, cx: &mut Cx<'_, Self>) {
        self.hearing.is_lit = false;
        cx.stop_beacon(self.hearing.answers.take());
    }

    /// Waits until the leader has not been heard for an election timeout, since it was heard last.
    fn await_silence(&mut self, cx: &mut Cx<'_, Self>) {
        let patience = self.parameters.election_timeout;
        let is_awaited = self.hearing.reported.is_some() || self.hearing.resting.is_some();
        let Some((leader, at)) = self.hearing.heard.filter(|_| is_awaited) else { return };
        let beacon = cx.beacon_heard_at(leader).filter(|_| self.hearing.answers == Some(leader));
        self.hearing.is_lit = beacon.is_some();
        if beacon.is_some_and(|beacon| beacon >= at) {
            return cx.await_silence(AcceptorTimer::Silence, [leader], patience, LOOK_EVERY);
        }
        cx.set_timer(AcceptorTimer::Silence, patience.saturating_sub(cx.now().since(at)));
    }

    /// A leader that rests says so by a beacon.
    pub(super) fn hear_beacon(&mut self, cx: &Cx<'_, Self>) {
        if let Some((leader, at)) = &mut self.hearing.heard
            && self.hearing.answers == Some(*leader)
        {
            let heard = cx.beacon_heard_at(*leader);
            // It was heard until it was stopped, which ends the wait at once.
            let stopped = self.hearing.is_lit && heard.is_none();
            self.hearing.is_lit = heard.is_some();
            *at = heard.or(stopped.then_some(cx.now())).unwrap_or(*at).max(*at);
        }
    }

    pub(super) fn on_silence(&mut self, cx: &mut Cx<'_, Self>) {
        self.hear_beacon(cx);
        let (now, patience) = (cx.now(), self.parameters.election_timeout);
        let silence = self.hearing.heard.map_or(patience, |(_, at)| now.since(at));
        if silence < patience {
            return self.await_silence(cx);
        }
        self.stop_answering(cx);
        cx.mark("acceptor.reported_a_silence");
        self.report_rest(None, cx);
        if !planted!(silence_not_reported) {
            self.report_leader(None, cx);
        }
    }

    /// Its next leader need not wait for the silence of the one that resigned.
    pub(super) fn on_resigned(&mut self, message: &Resigned, cx: &mut Cx<'_, Self>) {
        if self.hearing.heard.take_if(|(leader, _)| *leader == message.ballot.leader).is_some() {
            cx.mark("acceptor.heard_its_leader_resign");
            cx.stop_timer(AcceptorTimer::Silence);
            self.stop_answering(cx);
            self.report_rest(None, cx);
            self.report_leader(None, cx);
        }
    }

    /// Whom it answers by a beacon.
    pub(super) fn answered_leader(&self) -> Option<NodeId> {
        self.hearing.answers
    }

    /// True if a role of this host relies on being notified when the leader falls silent.
    pub(super) fn awaits_silence(&self, me: NodeId) -> bool {
        let leaders = self.configurations.all().iter().flat_map(|configuration| &configuration.leaders);
        let is_reported =
            self.hearing.reported.is_some() && leaders.into_iter().any(|it| it.host() == me.host());
        self.hearing.heard.is_some() && (is_reported || self.hearing.resting.is_some())
    }

    fn report_leader(&mut self, heard: Option<Ballot>, cx: &mut Cx<'_, Self>) {
        if self.hearing.reported == heard {
            return;
        }
        let here = cx.node().host();
        let mut known = self.configurations.all().iter().flat_map(|configuration| &configuration.leaders);
        if let Some(&beside) = known.find(|leader| leader.host() == here) {
            self.hearing.reported = heard;
            cx.send(beside, leader::Hears { leader: heard });
        }
    }

    fn report_rest(&mut self, resting: Option<Ballot>, cx: &mut Cx<'_, Self>) {
        if self.hearing.resting == resting {
            return;
        }
        if let Some(replica) = self.replica {
            self.hearing.resting = resting;
            cx.send(replica, replica::LeaderRests { leader: resting });
        }
    }
}
