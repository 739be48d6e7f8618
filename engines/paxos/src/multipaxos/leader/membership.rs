//! Changes of membership: a configuration chosen in slot `s` governs from `s + window` on, once its acceptors have
//! promised and the old ones refuse reads.

use super::election::Tallies;
use super::phase1::Phase1;
use super::{ChangeConfiguration, Enlist, Leader, LeaderTimer, Phase1b, Sealed, State};
use crate::configuration::Configuration;
use crate::multipaxos::messages::acceptor;
use crate::value::Value;
use kernel::{Cx, NodeId, planted};
use parts::{Ballot, Slot};
use std::collections::BTreeMap;

/// Acceptors that may ask to be counted.
const LEARNERS_MAX: usize = 1024;

/// Putting one configuration in force.
#[derive(Clone, Debug)]
pub(super) struct Activation {
    ballot: Ballot,
    version: u64,
    previous: Configuration,
    phase1: Option<Phase1>,
    sealed: Tallies,
}

impl Activation {
    pub(super) fn ask(&self, cx: &mut Cx<'_, Leader>) {
        if let Some(phase1) = &self.phase1 {
            phase1.ask(cx);
        }
        let seal = acceptor::Seal { ballot: self.ballot, version: self.version };
        cx.multicast(self.previous.acceptors.nodes(), seal);
    }

    /// Phase 1 with the acceptors of the next configuration, while it lasts.
    pub(super) fn phase1(&self) -> Option<&Phase1> {
        self.phase1.as_ref()
    }

    /// True if acceptors of the next configuration have forgotten slots that it governs: another leader has had them chosen, and what is
    /// not voted for there any more must not be taken for open.
    pub(super) fn is_overtaken(&self, message: &Phase1b, known: Slot) -> bool {
        let asked = self.phase1.as_ref().and_then(|phase1| phase1.asked_from(message.inquiry));
        asked.is_some_and(|from| message.truncated_below > from.max(known))
    }

    /// Takes one page; the votes when Phase 1 is through.
    pub(super) fn on_phase1b(
        &mut self,
        from: NodeId,
        message: Phase1b,
        cx: &mut Cx<'_, Leader>,
    ) -> Option<BTreeMap<Slot, Value>> {
        let complete = self.phase1.as_mut()?.on_phase1b(from, message, cx);
        if complete { self.phase1.take().map(Phase1::into_votes) } else { None }
    }

    /// A write quorum of the old acceptors meets each of their read quorums: no old read quorum answers any more.
    fn is_complete(&self) -> bool {
        let is_sealed = if planted!(seal_counts_a_read_quorum) {
            self.sealed.can_read(&self.previous)
        } else {
            self.sealed.can_write(&self.previous)
        };
        self.phase1.is_none() && is_sealed
    }
}

impl Leader {
    pub(super) fn on_reconfigure(&mut self, message: ChangeConfiguration, cx: &mut Cx<'_, Self>) {
        let truncation = self.truncation();
        let State::Leading(pipeline) = &mut self.state else { return };
        let latest = self.configurations.latest();
        // All slots of the one before and one of its own are in durable snapshots: two configurations matter at most.
        let settled = (latest.version == 0
            || latest.first_slot < truncation
            || planted!(change_settled_one_slot_early) && latest.first_slot <= truncation)
            && pipeline.active_version == latest.version;
        let in_flight = pipeline.has(|value| matches!(value, Value::Configure(_)));
        if message.configuration.version != latest.version + 1 || in_flight {
            return;
        }
        if !settled {
            return cx.mark("leader.waited_for_the_last_change_to_settle");
        }
        let mut configuration = (*message.configuration).clone();
        // What acceptors have forgotten is in snapshots of this configuration's replicas. If none of those stays, nobody has it.
        let has_it = |replica| self.snapshots.get(replica).is_some_and(|through| *through >= truncation);
        if !configuration.replicas.iter().any(has_it) {
            return cx.mark("leader.waited_for_a_replica_that_stays");
        }
        let members: Vec<NodeId> = latest.acceptors.nodes().collect();
        configuration.joined = latest.joined.clone();
        let stays: Vec<NodeId> = configuration.acceptors.nodes().collect();
        configuration.joined.retain(|(node, _)| stays.contains(node));
        for comer in configuration.acceptors.nodes().filter(|node| !members.contains(node)) {
            // A learner that nobody has heard from would count for a quorum and could not vote.
            let Some(&incarnation) = self.learners.get(&comer) else {
                cx.send(comer, acceptor::Invite { configurations: self.configurations.clone() });
                return cx.mark("leader.waited_for_a_learner");
            };
            configuration.joined.push((comer, incarnation));
        }
        cx.mark("leader.proposed_a_configuration");
        if pipeline.enqueue(Value::Configure(configuration.into())) {
            self.fill_window(cx);
        }
    }

    /// Starts with the first known configuration that is not in force yet.
    pub(super) fn activate_next(&mut self, cx: &mut Cx<'_, Self>) {
        let State::Leading(pipeline) = &mut self.state else { return };
        if pipeline.activating.is_some() {
            return self.finish_activation(cx);
        }
        let Some(next) = self.configurations.with_version(pipeline.active_version + 1) else { return };
        let Some(previous) = self.configurations.with_version(pipeline.active_version) else { return };
        let ballot = pipeline.ballot();
        self.inquiries += 1;
        let inquiry = self.inquiries;
        let phase1 = (pipeline.phase1_version < next.version)
            .then(|| Phase1::begin(ballot, inquiry, next.first_slot, vec![next.clone()], cx));
        let activation = Activation {
            ballot,
            version: next.version,
            previous: previous.clone(),
            phase1,
            sealed: Tallies::default(),
        };
        activation.ask(cx);
        pipeline.activating = Some(activation);
        self.expect_resend(cx);
        // The new members learn of their part at once.
        self.pulse(cx);
    }

    pub(super) fn on_sealed(&mut self, from: NodeId, message: Sealed, cx: &mut Cx<'_, Self>) {
        let State::Leading(pipeline) = &mut self.state else { return };
        let Some(activation) = &mut pipeline.activating else { return };
        if activation.ballot == message.ballot && activation.version == message.version {
            activation.sealed.count(&activation.previous, from);
            self.finish_activation(cx);
        }
    }

    fn finish_activation(&mut self, cx: &mut Cx<'_, Self>) {
        let State::Leading(pipeline) = &mut self.state else { return };
        let Some(activation) = pipeline.activating.take_if(|activation| activation.is_complete()) else {
            return;
        };
        let (version, in_force) = (activation.version, pipeline.active_version);
        kernel::invariant!(
            LIN,
            !activation.sealed.leaves_a_read_quorum(&activation.previous),
            "puts {version} in force, and a read quorum of {in_force} may answer: {:?} are sealed",
            activation.sealed
        );
        kernel::invariant!(AGREE, version == in_force + 1, "puts {version} in force after {in_force}");
        pipeline.active_version = version;
        pipeline.phase1_version = pipeline.phase1_version.max(version);
        cx.mark("leader.put_a_configuration_in_force");
        self.fill_window(cx);
        self.activate_next(cx);
        self.leave_if_removed(cx);
    }

    /// A configuration in which it does not lead is in force, by its own doing or by another leader's: it leads no more.
    pub(super) fn leave_if_removed(&mut self, cx: &mut Cx<'_, Self>) {
        let State::Leading(pipeline) = &self.state else { return };
        let is_last = pipeline.active_version == self.configurations.latest().version;
        if is_last && pipeline.activating.is_none() && !self.may_lead(cx.node()) {
            cx.mark("leader.left_the_cluster");
            self.follow(cx);
            cx.stop_timer(LeaderTimer::Election);
        }
    }

    pub(super) fn on_enlist(&mut self, from: NodeId, message: Enlist, cx: &mut Cx<'_, Self>) {
        let Enlist { incarnation, acceptor } = message;
        let comer = acceptor.unwrap_or(from);
        if self.learners.len() < LEARNERS_MAX || self.learners.contains_key(&comer) {
            self.learners.insert(comer, incarnation);
        }
        if self.configurations.counts(comer).is_some() {
            cx.send(comer, acceptor::Known { configurations: self.configurations.clone() });
        }
        // Once: two that take each other for the leader must not pass it to and fro.
        if let Some(ballot) = self.leader().filter(|ballot| acceptor.is_none() && ballot.leader != cx.node())
        {
            cx.mark("leader.handed_a_learner_on");
            cx.send(ballot.leader, Enlist { incarnation, acceptor: Some(comer) });
        }
    }
}
