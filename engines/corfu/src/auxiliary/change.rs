//! The way from one projection to the next.

use super::{Accept, Accepted, Auxiliary, Prepare, Promise, Refused, SealAck, Vote, Whole};
use crate::messages::storage::{Finish, Seal};
use crate::projection::{Epoch, JournalId, LogPosition, NodeJournal, Projection};
use kernel::{Cx, Instant, NodeId, planted};
use parts::Ballot;
use std::collections::{BTreeMap, BTreeSet};

/// A change in flight.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The epoch to come.
    epoch: Epoch,
    began: Instant,
    /// Servers that serve no epoch before it any more, how far they are written (the slow check), and their incarnations.
    sealed: BTreeMap<NodeId, (LogPosition, JournalId)>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Sealing,
    /// Learners copy the rest.
    Finishing {
        chains: Vec<Vec<NodeId>>,
        learners: Vec<Entrant>,
        since: Instant,
    },
    Preparing {
        proposal: Projection,
        ballot: Ballot,
        promises: BTreeMap<NodeId, Option<Vote>>,
    },
    Accepting {
        vote: Vote,
        accepted: BTreeSet<NodeId>,
    },
}

/// A server that is to come behind the last one of a chain.
#[derive(Clone, Copy, Debug)]
struct Entrant {
    chain: usize,
    server: NodeId,
    journal: JournalId,
    source: NodeId,
    is_whole: bool,
}

/// A change that takes this many times as long as servers are waited for is given up.
const PATIENCE: u32 = 10;

impl Auxiliary {
    /// Whose votes it counts, for what and in which ballot, for invariants.
    pub fn counted(&self) -> impl Iterator<Item = (&Vote, NodeId)> {
        let counted = self.change.iter().filter_map(|change| match &change.stage {
            Stage::Accepting { vote, accepted } => Some(accepted.iter().map(move |&voter| (vote, voter))),
            Stage::Sealing | Stage::Finishing { .. } | Stage::Preparing { .. } => None,
        });
        counted.flatten()
    }

    /// The epoch and the ballot in which it asks for votes, if it does.
    pub fn asks_for_votes(&self) -> Option<(Epoch, Ballot)> {
        self.change.iter().find_map(|change| match &change.stage {
            Stage::Accepting { vote, .. } => Some((change.epoch, vote.ballot)),
            Stage::Sealing | Stage::Finishing { .. } | Stage::Preparing { .. } => None,
        })
    }

    pub(super) fn begin_change(&mut self, cx: &mut Cx<'_, Self>) {
        let epoch = self.state.installed.epoch.next();
        let sealed = BTreeMap::new();
        self.change = Some(Change { epoch, began: cx.now(), sealed, stage: Stage::Sealing });
        cx.mark("auxiliary.began_a_change");
        self.go_on(cx);
    }

    /// Says again what has no answer.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(change) = &self.change else { return };
        let parameters = &self.parameters;
        let patience = parameters.seal_for * PATIENCE + self.suspect_after() + parameters.finish_for;
        if cx.now().since(change.began) > patience {
            self.change = None;
            return self.be_patient(cx);
        }
        let installed = &self.state.installed;
        match &change.stage {
            Stage::Sealing => {
                for server in installed.servers().filter(|it| !change.sealed.contains_key(it)) {
                    // Before the bootstrap nobody is meant by a journal yet.
                    let journal = installed.journal(server).or_else(|| self.journal_of(server, cx.now()));
                    // Sealed by somebody who forgets the projection before, they would refuse its epoch to all others.
                    cx.send_durable(server, Seal { epoch: change.epoch, journal });
                }
                self.settle_servers(cx);
            }
            Stage::Finishing { learners, since, .. } => {
                for learner in learners.iter().filter(|learner| !learner.is_whole) {
                    let Entrant { server, journal, source, .. } = *learner;
                    cx.send(server, Finish { epoch: change.epoch, journal, source });
                }
                if cx.now().since(*since) > parameters.finish_for {
                    self.propose(cx);
                }
            }
            Stage::Preparing { ballot, promises, .. } => {
                let missing = self.peers.iter().copied().filter(|peer| !promises.contains_key(peer));
                let prepare = Prepare { base: installed.clone(), ballot: *ballot };
                missing.for_each(|peer| cx.send_durable(peer, prepare.clone()));
            }
            Stage::Accepting { vote, accepted } => {
                let missing = self.peers.iter().copied().filter(|peer| !accepted.contains(peer));
                cx.multicast(missing, Accept { vote: vote.clone() });
            }
        }
    }

    pub(super) fn on_seal_ack(&mut self, from: NodeId, message: &SealAck, cx: &mut Cx<'_, Self>) {
        let installed = &self.state.installed;
        let Some(journal) =
            message.journal.filter(|&journal| !installed.is_bootstrapped() || installed.means(from, journal))
        else {
            return;
        };
        self.hear(from, message.journal, cx.now());
        let Some(change) = self.change.as_mut().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        if let Stage::Sealing = change.stage {
            change.sealed.insert(from, (message.next, journal));
            self.settle_servers(cx);
        }
    }

    /// When all are sealed, or those that are silent have been waited for, it is settled who stays.
    fn settle_servers(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(change) = &self.change else { return };
        let (installed, now) = (&self.state.installed, cx.now());
        let missing: Vec<NodeId> =
            installed.servers().filter(|server| !change.sealed.contains_key(server)).collect();
        if !missing.is_empty() {
            let waited = now.since(change.began);
            let are_silent = missing.iter().all(|&server| self.is_silent(server, now));
            let long = if are_silent { self.parameters.seal_for } else { self.suspect_after() };
            if waited < long || !installed.is_bootstrapped() {
                return;
            }
        }
        let is_sealed =
            |server: &&NodeId| change.sealed.contains_key(server) || planted!(unsealed_server_in_projection);
        let chains: Vec<Vec<NodeId>> =
            installed.chains.iter().map(|chain| chain.iter().filter(is_sealed).copied().collect()).collect();
        // A server that is sealed from here on stays out: learners are compared with those of now.
        let mut learners = Vec::new();
        for (chain, servers) in chains.iter().enumerate() {
            let Some(&source) = servers.last() else { return };
            let ready = self.ready(chain, source, now).into_iter();
            learners.extend(ready.map(|(server, journal)| Entrant {
                chain,
                server,
                journal,
                source,
                is_whole: false,
            }));
        }
        if !missing.is_empty() {
            cx.mark("auxiliary.left_a_server_out");
        }
        let has_learners = !learners.is_empty();
        if let Some(change) = &mut self.change {
            change.stage = Stage::Finishing { chains, learners, since: now };
        }
        if has_learners { self.go_on(cx) } else { self.propose(cx) }
    }

    pub(super) fn on_whole(&mut self, from: NodeId, message: &Whole, cx: &mut Cx<'_, Self>) {
        let Whole { epoch, journal, source } = *message;
        self.hear(from, Some(journal), cx.now());
        let Some(change) = self.change.as_mut().filter(|change| change.epoch == epoch) else { return };
        let Stage::Finishing { learners, .. } = &mut change.stage else { return };
        let is_it = |it: &&mut Entrant| (it.server, it.journal, it.source) == (from, journal, source);
        learners.iter_mut().filter(is_it).for_each(|learner| learner.is_whole = true);
        if learners.iter().all(|learner| learner.is_whole) {
            self.propose(cx);
        }
    }

    /// Those who stay, and behind them those who have all that the last of them has.
    fn propose(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(Change { epoch, sealed, stage: Stage::Finishing { chains, learners, .. }, .. }) =
            &self.change
        else {
            return;
        };
        let (epoch, mut chains, learners, now) = (*epoch, chains.clone(), learners.clone(), cx.now());
        let installed = &self.state.installed;
        let nexts = sealed.values().map(|(next, _)| *next);
        let highest = if planted!(sequencer_starts_at_lowest_tail) { nexts.min() } else { nexts.max() };
        let sequencer = self.next_sequencer(now);
        let stays = |node: NodeId| {
            let sealed = sealed.get(&node).map(|(_, journal)| *journal);
            sealed.or_else(|| installed.journal(node)).map(|journal| NodeJournal { node, journal })
        };
        let present = |node: NodeId| {
            let meant = installed.journal(node).filter(|_| !self.is_silent(node, now));
            let journal = meant.or_else(|| self.journal_of(node, now)).or_else(|| installed.journal(node))?;
            Some(NodeJournal { node, journal })
        };
        let mut journals: Vec<NodeJournal> =
            chains.iter().flatten().filter_map(|&server| stays(server)).collect();
        journals.extend(self.peers.iter().copied().chain([sequencer]).filter_map(present));
        for learner in learners.iter().filter(|learner| learner.is_whole) {
            cx.mark("auxiliary.let_a_server_in");
            chains[learner.chain].push(learner.server);
            journals.push(NodeJournal { node: learner.server, journal: learner.journal });
        }
        let first = highest.unwrap_or(LogPosition(0)).max(installed.first);
        let proposal = Projection { epoch, sequencer, first, chains, journals };
        if sequencer != installed.sequencer {
            cx.mark("auxiliary.replaced_the_sequencer");
        }
        let has_votes_again = |&peer: &NodeId| installed.journal(peer) != proposal.journal(peer);
        if installed.is_bootstrapped() && self.peers.iter().any(has_votes_again) {
            cx.mark("auxiliary.gave_votes_back");
        }
        // Durable before anybody hears of it: another incarnation must not use it again. Where nobody knows of incarnations yet, chance has
        // to do.
        let lowest = self.state.promised.above(cx.node());
        let ballot = match installed.is_bootstrapped() {
            true => lowest,
            false => Ballot { round: lowest.round + cx.rng().below(1 << 40), ..lowest },
        };
        let promised = self.state.promised;
        kernel::invariant!(AGREE, ballot > promised, "asks for promises in {ballot:?} after {promised:?}");
        self.state.promised = ballot;
        self.keep(cx);
        for learner in learners.iter().filter(|learner| !learner.is_whole) {
            cx.mark("auxiliary.went_on_without_a_learner");
            self.make_wait(learner.server, cx);
        }
        if let Some(change) = &mut self.change {
            change.stage = Stage::Preparing { proposal, ballot, promises: BTreeMap::new() };
        }
        self.go_on(cx);
    }

    pub(super) fn on_promise(&mut self, from: NodeId, message: Promise, cx: &mut Cx<'_, Self>) {
        if !self.has_vote(from, message.journal) && !planted!(promise_of_lost_vote_counted) {
            return;
        }
        let Some(change) = self.change.as_mut().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        let Stage::Preparing { ballot, promises, .. } = &mut change.stage else { return };
        if message.ballot != *ballot {
            return;
        }
        promises.insert(from, message.accepted);
        let count = promises.len();
        if !self.is_quorum(count) {
            return;
        }
        let Some(Change { stage, .. }) = &mut self.change else { return };
        let Stage::Preparing { proposal, ballot, promises } = stage else { return };
        // What may have been decided is what was accepted in the highest ballot.
        let mut accepted: Vec<&Vote> = promises.values().flatten().collect();
        accepted.sort_by_key(|vote| vote.ballot);
        let before = if planted!(lowest_vote_adopted) { accepted.first() } else { accepted.last() };
        let projection = match before.filter(|_| !planted!(accepted_projection_ignored)) {
            Some(vote) => {
                cx.mark("auxiliary.adopted_a_projection");
                vote.projection.clone()
            }
            None => proposal.clone(),
        };
        let vote = Vote { ballot: *ballot, projection };
        *stage = Stage::Accepting { vote, accepted: BTreeSet::new() };
        self.go_on(cx);
    }

    pub(super) fn on_accepted(&mut self, from: NodeId, message: &Accepted, cx: &mut Cx<'_, Self>) {
        if !self.has_vote(from, message.journal) {
            return;
        }
        let Some(change) = self.change.as_mut().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        let Stage::Accepting { vote, accepted } = &mut change.stage else { return };
        if message.ballot != vote.ballot && !planted!(projection_votes_of_other_ballots_counted) {
            return;
        }
        accepted.insert(from);
        let (count, projection) = (accepted.len(), vote.projection.clone());
        if self.is_quorum(count) {
            self.install(projection, cx);
            self.announce(cx);
        }
    }

    pub(super) fn on_refused(&mut self, message: &Refused, cx: &mut Cx<'_, Self>) {
        let Some(change) = self.change.as_ref().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        let mine = match &change.stage {
            Stage::Sealing | Stage::Finishing { .. } => return,
            Stage::Preparing { ballot, .. } => *ballot,
            Stage::Accepting { vote, .. } => vote.ballot,
        };
        if message.promised > mine {
            cx.mark("auxiliary.lost_to_another");
            if message.promised > self.state.promised {
                // It is a promise of this one, too: who asks for it by this ballot is notified at once.
                self.state.promised = message.promised;
                self.keep(cx);
            }
            self.change = None;
            self.be_patient(cx);
        }
    }
}
