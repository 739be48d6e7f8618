//! Phase 1: promises from read quorums, and what their votes say may have been chosen.

use super::election::Tallies;
use super::{Leader, LeaderRecord, Phase1b, ReportedVote, State};
use crate::configuration::{Configuration, Configurations};
use crate::multipaxos::messages::acceptor;
use crate::value::Value;
use kernel::{Cx, NodeId, planted};
use parts::{Ballot, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// Phase 1 of one ballot with the acceptors of some configurations, for all slots from `from` on.
#[derive(Clone, Debug)]
pub(super) struct Phase1 {
    ballot: Ballot,
    inquiry: u64,
    from: Slot,
    configurations: Vec<Configuration>,
    promised: Vec<Tallies>,
    done: BTreeSet<NodeId>,
    /// Where the next page of an acceptor starts that has sent some.
    pages: BTreeMap<NodeId, Slot>,
    votes: BTreeMap<Slot, (Ballot, Value)>,
    truncated_below: Slot,
}

impl Phase1 {
    /// Asks the acceptors of `configurations` for their votes from `from` on.
    pub(super) fn begin(
        ballot: Ballot,
        inquiry: u64,
        from: Slot,
        configurations: Vec<Configuration>,
        cx: &mut Cx<'_, Leader>,
    ) -> Self {
        let promised = vec![Tallies::default(); configurations.len()];
        let phase1 = Self {
            ballot,
            inquiry,
            from,
            configurations,
            promised,
            done: BTreeSet::new(),
            pages: BTreeMap::new(),
            votes: BTreeMap::new(),
            truncated_below: Slot(0),
        };
        phase1.ask(cx);
        phase1
    }

    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    pub(super) fn describe(&self) -> String {
        let versions: Vec<u64> = self.configurations.iter().map(|known| known.version).collect();
        let Self { ballot, from, done, truncated_below, .. } = self;
        format!("{ballot:?} from {from} of {versions:?}, heard {done:?}, truncated {truncated_below}")
    }

    /// Where the inquiry of this number begins; none if it is another one.
    pub(super) fn asked_from(&self, inquiry: u64) -> Option<Slot> {
        (inquiry == self.inquiry).then_some(self.from)
    }

    /// Whose answers it counts.
    pub(super) fn counted(&self) -> impl Iterator<Item = (Ballot, u64, NodeId)> {
        self.done.iter().map(|&acceptor| (self.ballot, self.inquiry, acceptor))
    }

    /// The latest configuration whose acceptors it asks.
    pub(super) fn latest_version(&self) -> u64 {
        self.configurations.last().map_or(0, |configuration| configuration.version)
    }

    /// (Re)sends the question to every acceptor that has not sent everything: for the first page that is missing.
    pub(super) fn ask(&self, cx: &mut Cx<'_, Leader>) {
        let acceptors: BTreeSet<NodeId> =
            self.configurations.iter().flat_map(|configuration| configuration.acceptors.nodes()).collect();
        for &acceptor in acceptors.difference(&self.done) {
            // The promise must not be asked for in a round that a crash could make this node use again.
            let from = self.pages.get(&acceptor).copied().unwrap_or(self.from);
            cx.send_durable(acceptor, self.question(from));
        }
    }

    fn question(&self, from: Slot) -> acceptor::Phase1a {
        let version = Some(self.latest_version());
        acceptor::Phase1a { ballot: self.ballot, from, inquiry: self.inquiry, version }
    }

    /// Takes one page; true if that completes the read quorums.
    pub(super) fn on_phase1b(&mut self, from: NodeId, message: Phase1b, cx: &mut Cx<'_, Leader>) -> bool {
        if message.inquiry != self.inquiry && !planted!(answer_to_another_question_counted) {
            return false;
        }
        self.truncated_below = self.truncated_below.max(message.truncated_below);
        for ReportedVote { slot, ballot, value } in message.votes {
            if planted!(phase1_ignores_votes) {
                continue;
            }
            let known = self.votes.entry(slot).or_insert_with(|| (ballot, value.clone()));
            if known.0 < ballot || planted!(last_vote_taken_for_highest) {
                *known = (ballot, value);
            }
        }
        if let Some(next) = message.more {
            // A page sent twice asks for no other one twice.
            if self.pages.get(&from) >= Some(&next) {
                return false;
            }
            self.pages.insert(from, next);
            cx.send(from, self.question(next));
            return false;
        }
        self.done.insert(from);
        for (configuration, promised) in self.configurations.iter().zip(&mut self.promised) {
            promised.count(configuration, from);
        }
        self.is_complete()
    }

    fn is_complete(&self) -> bool {
        if planted!(phase1_quorum_one_short) {
            return !self.done.is_empty();
        }
        self.configurations
            .iter()
            .zip(&self.promised)
            .all(|(configuration, promised)| promised.can_read(configuration))
    }

    /// What was voted for: per slot the value of the highest ballot.
    pub(super) fn into_votes(self) -> BTreeMap<Slot, Value> {
        self.votes.into_iter().map(|(slot, (_, value))| (slot, value)).collect()
    }
}

/// The configurations whose acceptors may have votes for slots from `known` on.
pub(super) fn relevant(configurations: &Configurations, known: Slot) -> Vec<Configuration> {
    if planted!(old_configuration_not_asked) {
        return vec![configurations.latest().clone()];
    }
    let governing = configurations.governing(known).version;
    configurations.all().iter().filter(|configuration| configuration.version >= governing).cloned().collect()
}

impl Leader {
    pub(super) fn next_inquiry(&mut self) -> u64 {
        self.inquiries += 1;
        self.inquiries
    }

    pub(super) fn begin_phase1(&mut self, ballot: Ballot, cx: &mut Cx<'_, Self>) {
        if self.snapshots.is_empty() || self.configurations.are_unconfirmed() {
            // Without one replica's word it is unknown which slots are open.
            return cx.mark("leader.waited_for_a_replica");
        }
        let round = self.round;
        kernel::invariant!(
            AGREE,
            ballot.round > round,
            "stands in {ballot:?}, and has stood in round {round}"
        );
        self.round = ballot.round;
        self.highest = self.highest.max(ballot);
        let position = if planted!(candidate_round_not_persisted) {
            cx.cursor()
        } else {
            cx.append(&LeaderRecord { round: ballot.round })
        };
        cx.trim(position);
        self.round_position = Some(position);
        cx.mark("leader.began_phase1");
        let configurations = relevant(&self.configurations, self.known);
        let inquiry = self.next_inquiry();
        self.state = State::Recovering(Phase1::begin(ballot, inquiry, self.known, configurations, cx));
        self.expect_resend(cx);
        // A candidacy that does not succeed starts over.
        self.await_phase1(cx);
    }

    pub(super) fn on_phase1b(&mut self, from: NodeId, message: Phase1b, cx: &mut Cx<'_, Self>) {
        match &mut self.state {
            State::Recovering(phase1) if phase1.ballot == message.ballot => {
                let paging = message.more > phase1.pages.get(&from).copied();
                if phase1.on_phase1b(from, message, cx) {
                    self.finish_phase1(cx);
                } else if paging {
                    // Many pages take their time.
                    self.await_phase1(cx);
                }
            }
            State::Leading(pipeline) if pipeline.ballot() == message.ballot => {
                if pipeline.is_recalling(message.inquiry) {
                    return self.on_recalled(from, message, cx);
                }
                let known = self.known;
                if pipeline.activating.as_ref().is_some_and(|next| next.is_overtaken(&message, known)) {
                    cx.mark("leader.was_overtaken_by_a_change");
                    return self.follow(cx);
                }
                pipeline.on_phase1b(from, message, cx);
                self.advance(cx);
            }
            State::Following | State::PreVoting(_) | State::Recovering(_) | State::Leading(_) => {}
        }
    }

    fn finish_phase1(&mut self, cx: &mut Cx<'_, Self>) {
        let State::Recovering(phase1) = &self.state else { return };
        if phase1.truncated_below > self.known && !planted!(truncated_slots_not_waited_for) {
            // Slots that acceptors have forgotten are chosen; a replica must report how far, and which configurations.
            cx.mark("leader.waited_for_replicas_to_catch_up");
            return;
        }
        if self.version_in_force() > phase1.latest_version() {
            // Its acceptors were not asked: what they chose meanwhile is not known.
            cx.mark("leader.was_overtaken_by_a_change");
            return self.follow(cx);
        }
        let State::Recovering(phase1) = std::mem::replace(&mut self.state, State::Following) else { return };
        let (from, known) = (phase1.from, self.known);
        kernel::invariant!(AGREE, from <= known, "asked for votes from {from} on, and leads from {known} on");
        self.lead(phase1, cx);
    }

    /// A replica's report may be what a finished Phase 1 was waiting for.
    pub(super) fn retry_finish(&mut self, cx: &mut Cx<'_, Self>) {
        if let State::Recovering(phase1) = &self.state
            && phase1.is_complete()
        {
            self.finish_phase1(cx);
        }
    }
}
