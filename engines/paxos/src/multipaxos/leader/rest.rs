//! A leader at rest: nothing changes, and every acceptor answers. It sends its whole pulse rarely then. In between beacons say that it leads,
//! and that acceptors hear it; each acceptor listens for its host. Whatever changes, or falls silent, ends the rest.
//!
//! A follower's part is here as well: while the acceptor of its host hears the leader, it waits for no heartbeats.

use super::{Heartbeat, Leader, LeaderTimer, State};
use crate::multipaxos::Pulse;
use crate::multipaxos::messages::{acceptor, batcher, proxy_leader, replica};
use kernel::{Cx, Instant, NodeId, REPEAT_WITHIN, until_moment};
use parts::{Ballot, Map};
use std::time::Duration;

/// So many heartbeats that say the same begin a rest.
const UNCHANGED_HEARTBEATS: u32 = 16;
/// At rest the whole pulse goes out so often, for those that came late or missed it.
const WHOLE_EVERY: Duration = Duration::from_secs(4);
/// And not more often than once in so many heartbeats.
const HEARTBEATS_OF_WHOLE: u32 = 4;
/// A beacon is heard at least so often in an election timeout, or there is no rest.
const BEACONS_PER_TIMEOUT: u32 = 3;

/// What a leader knows of its rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// Acceptors that know how a leader rests, and when they were heard last.
    heard: Map<NodeId, Instant>,
    last: Option<Pulse>,
    /// Heartbeats in a row in which nothing changed.
    unchanged: u32,
    /// When everybody was sent the whole pulse last in this rest; none while there is none.
    whole_at: Option<Instant>,
    /// To whom beacons are set.
    beacons: Vec<NodeId>,
    /// Since when it has waited for a silence of an acceptor, or for the next whole pulse: all that was alive then still is.
    listens_since: Option<Instant>,
}

impl Rest {
    pub(super) fn is_resting(&self) -> bool {
        self.unchanged >= UNCHANGED_HEARTBEATS
    }

    /// Every acceptor is heard, or it would have been called.
    pub(super) fn listens(&self) -> bool {
        self.listens_since.is_some()
    }

    /// What is said without end is no longer.
    pub(super) fn stop_beacons(&mut self, cx: &mut Cx<'_, Leader>) {
        cx.stop_beacon(self.beacons.drain(..));
    }

    /// To whom they are set.
    pub(super) fn shown(&self) -> impl Iterator<Item = NodeId> {
        self.beacons.iter().copied()
    }

    pub(super) fn note(&mut self, acceptor: NodeId, now: Instant) {
        self.heard.insert(acceptor, now);
    }
}

impl Leader {
    /// Everybody is sent the whole pulse within this time of a rest.
    pub(super) fn whole_every(&self) -> Duration {
        WHOLE_EVERY.max(HEARTBEATS_OF_WHOLE * self.parameters.heartbeat_every)
    }

    /// Waits for the next heartbeat: at rest until one of the acceptors falls silent or a whole pulse is due.
    pub(super) fn await_heartbeat(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, late_after) = (cx.now(), self.late_after());
        let whole_in = self.whole_in(now);
        let acceptors = &self.configurations.governing(self.known).acceptors;
        let beacon_is_heard =
            |acceptor: NodeId| cx.beacon_heard_at(acceptor).is_some_and(|at| now.since(at) < late_after);
        if let State::Leading(pipeline) = &mut self.state
            && pipeline.rest.is_resting()
            && let Some(after) = whole_in
            && acceptors.nodes().all(beacon_is_heard)
        {
            pipeline.rest.listens_since = Some(now);
            return cx.await_silence(LeaderTimer::Heartbeat, acceptors.nodes(), late_after, after);
        }
        cx.set_timer(LeaderTimer::Heartbeat, self.heartbeat_after(now));
    }

    /// How long it is until the next whole pulse at rest, at a moment at which its host wakes anyhow.
    fn whole_in(&self, now: Instant) -> Option<Duration> {
        let State::Leading(pipeline) = &self.state else { return None };
        // All logs of a host do so at the same moments, or each would wake those that sleep for itself.
        let due = pipeline.rest.whole_at?.next_turn(self.whole_every()).since(now);
        Some(due + until_moment(now + due))
    }

    /// Something is said to a leader that waits: it looks soon whether that ends its rest. What beacons have shown until then counts, or a
    /// node that speaks would have those forgotten that are silent because all rest.
    pub(super) fn look_soon(&mut self, cx: &mut Cx<'_, Self>) {
        let listens = matches!(&self.state, State::Leading(pipeline) if pipeline.rest.listens());
        self.hear_beacons(cx);
        if listens {
            cx.set_timer(LeaderTimer::Heartbeat, self.heartbeat_after(cx.now()));
        }
    }

    /// Acceptors are given the rest of an election timeout to hear that the rest has ended.
    fn late_after(&self) -> Duration {
        self.parameters.election_timeout * 3 / 4
    }

    /// When the next heartbeat is due. At rest, when beacons do the work, all leaders of a host look at the same moments.
    fn heartbeat_after(&self, now: Instant) -> Duration {
        let State::Leading(pipeline) = &self.state else { return self.parameters.heartbeat_every };
        if !pipeline.rest.is_resting() || self.parameters.heartbeat_every > REPEAT_WITHIN {
            return self.parameters.heartbeat_every;
        }
        until_moment(now) + REPEAT_WITHIN
    }

    /// Counts heartbeats that change nothing; true while the leader rests.
    pub(super) fn rests(&mut self, pulse: &Pulse, cx: &mut Cx<'_, Self>) -> bool {
        let may_rest = self.may_rest(pulse, cx.now());
        let State::Leading(pipeline) = &mut self.state else { return false };
        let rest = &mut pipeline.rest;
        let before = rest.is_resting();
        let is_same = rest.last.as_ref() == Some(pulse);
        rest.unchanged = if may_rest && is_same { rest.unchanged.saturating_add(1) } else { 0 };
        if !is_same {
            rest.last = Some(pulse.clone());
        }
        match (before, rest.is_resting()) {
            (false, true) => {
                cx.mark("leader.began_to_rest");
                rest.whole_at = None;
            }
            (true, false) => {
                rest.stop_beacons(cx);
                cx.mark("leader.ended_its_rest");
            }
            (true, true) | (false, false) => {}
        }
        rest.is_resting()
    }

    /// True if nobody waits for anything, and everybody is there and has an acceptor that listens for it.
    fn may_rest(&self, pulse: &Pulse, now: Instant) -> bool {
        let State::Leading(pipeline) = &self.state else { return false };
        let [configuration] = self.configurations.all() else { return false };
        let late_after = self.late_after();
        let is_heard = |acceptor: NodeId| {
            pipeline.rest.heard.get(&acceptor).is_some_and(|&at| now.since(at) < late_after)
        };
        let listens =
            |node: &NodeId| configuration.acceptors.nodes().any(|acceptor| acceptor.host() == node.host());
        let is_alive = |node: &NodeId| listens(node) && pulse.alive.contains(node);
        self.parameters.election_timeout >= BEACONS_PER_TIMEOUT * REPEAT_WITHIN
            && pipeline.is_idle(self.known)
            && configuration.acceptors.nodes().all(is_heard)
            && configuration.leaders.iter().all(listens)
            && configuration.proxy_leaders.iter().all(is_alive)
            && configuration.replicas.iter().all(is_alive)
    }

    /// At rest acceptors answer by beacons.
    pub(super) fn hear_beacons(&mut self, cx: &Cx<'_, Self>) {
        let State::Leading(pipeline) = &mut self.state else { return };
        if !pipeline.rest.is_resting() {
            return;
        }
        let configuration = self.configurations.governing(self.known);
        let listens_since = pipeline.rest.listens_since.take();
        let mut heard = Vec::new();
        for acceptor in configuration.acceptors.nodes() {
            // One that has answered in this ballot.
            let Some(before) = pipeline.rest.heard.get_mut(&acceptor) else { continue };
            // One that has just stopped was heard until then: that ends the wait at once.
            let stopped = listens_since.map(|_| cx.now());
            if let Some(at) = cx.beacon_heard_at(acceptor).or(stopped).filter(|at| at > before) {
                *before = at;
                heard.push((acceptor, at));
            }
        }
        let signs = configuration.acceptors.nodes();
        let signs =
            signs.filter_map(|acceptor| Some((*pipeline.rest.heard.get(&acceptor)?, acceptor))).collect();
        pipeline.heard_at_rest(signs, configuration);
        // A host that speaks rarely counts as heard until it speaks again.
        let now = cx.now();
        for (acceptor, at) in heard {
            self.saw_host_alive(acceptor, at, listens_since.unwrap_or(at.min(now)));
        }
    }

    pub(super) fn pulse_at_rest(&mut self, pulse: &Pulse, cx: &mut Cx<'_, Self>) {
        let (now, me) = (cx.now(), cx.node());
        let whole_every = self.whole_every();
        let State::Leading(pipeline) = &mut self.state else { return };
        let (ballot, rest) = (pipeline.ballot(), &mut pipeline.rest);
        let is_due = rest.whole_at.is_none_or(|at| now >= at.next_turn(whole_every));
        if is_due {
            rest.whole_at = Some(now);
        }
        let whole = || pulse.clone();
        let begins = rest.beacons.is_empty();
        for configuration in self.configurations.all() {
            if begins {
                // Proposers doubt sooner than others.
                let batchers = configuration.batchers.iter().copied();
                cx.set_beacon(batchers.clone(), batcher::Heartbeat { pulse: whole() });
                cx.set_beacon(configuration.acceptors.nodes(), acceptor::Resting { ballot, pulse: None });
                rest.beacons.extend(configuration.acceptors.nodes().chain(batchers));
            }
            if is_due {
                let resting = acceptor::Resting { ballot, pulse: Some(whole()) };
                cx.repeat(configuration.acceptors.nodes(), resting);
                let leaders = configuration.leaders.iter().copied().filter(|&leader| leader != me);
                cx.repeat(leaders, Heartbeat { pulse: whole() });
                let proxies = configuration.proxy_leaders.iter().copied();
                cx.repeat(proxies, proxy_leader::Heartbeat { pulse: whole() });
                cx.repeat(configuration.replicas.iter().copied(), replica::Heartbeat { pulse: whole() });
                cx.repeat(configuration.batchers.iter().copied(), batcher::Heartbeat { pulse: whole() });
            }
        }
    }

    /// True while the acceptor of this host hears another leader. A higher ballot that this node knows may be of a candidacy that came to
    /// nothing; acceptors that promised it do not hear the lower one.
    pub(super) fn is_listened_for(&self, me: NodeId) -> bool {
        self.hears.is_some_and(|ballot| ballot.leader != me)
    }

    pub(super) fn on_hears(&mut self, from: NodeId, leader: Option<Ballot>, cx: &mut Cx<'_, Self>) {
        if from.host() != cx.node().host() {
            return cx.reject("word of an acceptor that is not this host's");
        }
        let (now, timeout) = (cx.now(), self.parameters.election_timeout);
        let before = std::mem::replace(&mut self.hears, leader);
        match leader {
            Some(ballot) if ballot.leader == cx.node() => {}
            Some(ballot) => {
                self.heard_of(ballot, cx);
                if matches!(self.state, State::Following | State::PreVoting(_)) {
                    self.follow(cx);
                }
            }
            None => {
                // It was heard last before the silence.
                let last = Instant(now.0.saturating_sub(timeout.as_nanos() as u64));
                let of_late = self.heard.filter(|(ballot, at)| Some(*ballot) == before && *at < last);
                if let Some((ballot, _)) = of_late {
                    self.heard = Some((ballot, last));
                }
                if matches!(self.state, State::Following) {
                    self.await_election_after(timeout, cx);
                }
            }
        }
    }

    /// (Re)starts the wait for silence, `silence` of which is over.
    pub(super) fn await_election_after(&mut self, silence: Duration, cx: &mut Cx<'_, Self>) {
        let least = self.patience.of(self.parameters.election_timeout);
        let wait = cx.rng().duration(least, 2 * least).saturating_sub(silence);
        cx.set_timer(LeaderTimer::Election, wait);
    }
}
