//! The proxy leader: broadcasts the leader's proposals, counts votes, notifies the replicas (the paper's section 3.1).

use super::{Paxos, Pulse};
use crate::configuration::Configurations;
use crate::multipaxos::messages::acceptor;
pub use crate::multipaxos::messages::proxy_leader::*;
use crate::multipaxos::messages::{leader, replica};
use crate::parameters::Parameters;
use crate::value::Value;
use kernel::{AwaitedTimers, Cx, Instant, NodeId, Position, Role, Statement};
use parts::{Ballot, Slot, Tally};
use std::collections::BTreeMap;
use std::convert::Infallible;

kernel::timers! {
    /// The proxy leader's timers.
    pub enum ProxyLeaderTimer {
        /// Look for proposals without a quorum.
        Resend,
    }
}

/// Slots in flight in one proxy leader; the leader's window keeps it far below.
const PENDING_MAX: usize = 1 << 16;

#[derive(Clone, Debug)]
struct Pending {
    ballot: Ballot,
    version: u64,
    value: Value,
    tally: Tally,
    sent_at: Instant,
    attempts: u64,
}

/// Forgets everything when it crashes; the leader notices and assigns the slot again.
#[derive(Clone, Debug)]
pub struct ProxyLeader {
    parameters: Parameters,
    configurations: Configurations,
    pending: BTreeMap<Slot, Pending>,
}

impl ProxyLeader {
    /// Knows no proposals yet.
    pub fn new(parameters: Parameters, configurations: Configurations) -> Self {
        Self { parameters, configurations, pending: BTreeMap::new() }
    }

    /// Slots without a quorum yet, for metrics and bounds.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whose votes it counts for a slot, and in which ballot, for invariants.
    pub fn counted(&self) -> impl Iterator<Item = (Slot, Ballot, NodeId)> {
        self.pending.iter().flat_map(|(&slot, pending)| {
            let configuration = self.configurations.with_version(pending.version);
            let members = configuration.map(|known| known.group(slot).members()).unwrap_or_default();
            let counted = members.iter().enumerate().filter(|(index, _)| pending.tally.contains(*index));
            counted.map(move |(_, &acceptor)| (slot, pending.ballot, acceptor))
        })
    }
}

impl Role for ProxyLeader {
    type Family = Paxos;
    type In = ProxyLeaderIn;
    type Timer = ProxyLeaderTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, from: NodeId, message: ProxyLeaderIn, cx: &mut Cx<'_, Self>) {
        match message {
            ProxyLeaderIn::Assign(message) => self.on_assign(message, cx),
            ProxyLeaderIn::Phase2b(message) => self.on_phase2b(from, message, cx),
            ProxyLeaderIn::Nack(message) => self.on_nack(message, cx),
            ProxyLeaderIn::Heartbeat(message) => self.on_heartbeat(from, message, cx),
        }
    }

    fn on_timer(&mut self, timer: ProxyLeaderTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ProxyLeaderTimer::Resend => self.resend(cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(ProxyLeaderTimer::Resend, !self.pending.is_empty())
    }

    fn statement(&self) -> Statement {
        Statement { unfinished: vec![("slots without a quorum", self.pending.len())], ..Statement::default() }
    }
}

impl ProxyLeader {
    fn on_assign(&mut self, message: Assign, cx: &mut Cx<'_, Self>) {
        let Assign { ballot, slot, version, value } = message;
        // Not even a slot executed long ago is turned away: those who executed it may have lost it.
        if self.pending.get(&slot).is_some_and(|pending| pending.ballot >= ballot) {
            return;
        }
        if self.pending.len() >= PENDING_MAX {
            return cx.reject("more slots in flight than a proxy leader keeps");
        }
        if self.pending.is_empty() {
            cx.set_timer(ProxyLeaderTimer::Resend, self.parameters.resend_after);
        }
        let pending =
            Pending { ballot, version, value, tally: Tally::default(), sent_at: cx.now(), attempts: 0 };
        self.broadcast(slot, &pending, cx);
        let before = self.pending.insert(slot, pending).map(|before| before.ballot);
        kernel::invariant!(AGREE, before < Some(ballot), "{slot} in {ballot:?} replaces {before:?}");
    }

    /// Asks one write quorum at first, everybody from the second attempt on.
    fn broadcast(&self, slot: Slot, pending: &Pending, cx: &mut Cx<'_, Self>) {
        let Some(configuration) = self.configurations.with_version(pending.version) else {
            return cx.mark("proxy_leader.assigned_under_an_unknown_configuration");
        };
        let phase2a = acceptor::Phase2a { ballot: pending.ballot, slot, value: pending.value.clone() };
        let group = configuration.group(slot);
        if pending.attempts > 0 {
            if self.parameters.thrifty && pending.attempts == 1 {
                cx.mark("proxy_leader.asked_beyond_a_thrifty_quorum");
            }
            let silent =
                group.members().iter().enumerate().filter(|&(index, _)| !pending.tally.contains(index));
            return cx.multicast(silent.map(|(_, &acceptor)| acceptor), phase2a);
        }
        if self.parameters.thrifty && group.shape() == parts::Shape::Majority {
            let needed = group.members().len() / 2 + 1;
            let start = slot.0 as usize;
            let chosen = (0..needed).map(|step| group.members()[(start + step) % group.members().len()]);
            return cx.multicast(chosen, phase2a);
        }
        cx.multicast(group.write_quorum(slot.0), phase2a);
    }

    fn on_phase2b(&mut self, from: NodeId, message: Phase2b, cx: &mut Cx<'_, Self>) {
        let Some(pending) = self.pending.get_mut(&message.slot) else { return };
        if pending.ballot != message.ballot && !kernel::planted!(votes_of_other_ballots_counted) {
            return;
        }
        let Some(configuration) = self.configurations.with_version(pending.version) else { return };
        let group = configuration.group(message.slot);
        let Some(index) = group.index_of(from) else {
            return cx.reject("vote of a node that is no acceptor of the slot");
        };
        pending.tally.insert(index);
        if !group.is_write_quorum(pending.tally) && !kernel::planted!(chosen_one_vote_short) {
            return;
        }
        if let Some(pending) = self.pending.remove(&message.slot) {
            self.notify_replicas(message.slot, pending, cx);
        }
        if self.pending.is_empty() {
            cx.stop_timer(ProxyLeaderTimer::Resend);
        }
    }

    /// A replica whose host has an acceptor that was asked takes the value from there.
    fn notify_replicas(&self, slot: Slot, pending: Pending, cx: &mut Cx<'_, Self>) {
        let Pending { ballot, version, value, tally, attempts, .. } = pending;
        let Some(configuration) = self.configurations.with_version(version) else { return };
        let group = configuration.group(slot);
        kernel::invariant!(
            AGREE,
            group.is_write_quorum(tally) || kernel::planted!(chosen_one_vote_short),
            "says that {slot} is chosen in {ballot:?} by {tally:?}"
        );
        let asks_all = group.shape() == parts::Shape::Majority && (!self.parameters.thrifty || attempts > 0);
        for &replica in &self.configurations.latest().replicas {
            let has_value =
                asks_all && group.members().iter().any(|acceptor| acceptor.host() == replica.host());
            let value = if has_value { None } else { Some(value.clone()) };
            cx.send(replica, replica::Chosen { ballot, slot, value });
        }
    }

    fn on_nack(&mut self, message: Nack, cx: &mut Cx<'_, Self>) {
        let Some(pending) = self.pending.get(&message.slot) else { return };
        if pending.ballot < message.promised {
            cx.send(pending.ballot.leader, leader::Nack { promised: message.promised });
            self.pending.remove(&message.slot);
        }
    }

    fn on_heartbeat(&mut self, from: NodeId, message: Heartbeat, cx: &mut Cx<'_, Self>) {
        cx.repeat([from], leader::ProxyAlive {});
        let Pulse { configurations, executed, .. } = message.pulse;
        self.configurations.adopt(&configurations);
        self.configurations.forget_before(Slot(executed.0.saturating_sub(1)));
        // A leader that begins further back needs what was forgotten here.
        self.configurations.recall(&configurations);
        self.pending = self.pending.split_off(&executed);
    }

    fn resend(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, patience) = (cx.now(), self.parameters.resend_after);
        let late: Vec<Slot> = self
            .pending
            .iter()
            .filter(|(_, pending)| now.since(pending.sent_at) >= patience)
            .map(|(&slot, _)| slot)
            .collect();
        for slot in late {
            let Some(pending) = self.pending.get_mut(&slot) else { continue };
            pending.attempts += 1;
            pending.sent_at = now;
            let pending = pending.clone();
            cx.mark("proxy_leader.resent_phase2a");
            self.broadcast(slot, &pending, cx);
        }
        if !self.pending.is_empty() {
            cx.set_timer(ProxyLeaderTimer::Resend, patience);
        }
    }
}
