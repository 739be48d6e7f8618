//! The way from one projection to the next.

use super::{Accept, Accepted, Auxiliary, Install, Prepare, Promise, Refused, SealAck, Vote};
use crate::projection::{Epoch, LogPosition, Projection};
use crate::storage::Seal;
use kernel::{Cx, Instant, NodeId, planted};
use parts::Ballot;
use std::collections::{BTreeMap, BTreeSet};

/// A change under way.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The epoch to come.
    epoch: Epoch,
    began: Instant,
    /// Servers that serve no epoch before it any more, and how far they are written: the slow check.
    sealed: BTreeMap<NodeId, LogPosition>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Sealing,
    Preparing { proposal: Projection, ballot: Ballot, promises: BTreeMap<NodeId, Option<Vote>> },
    Accepting { vote: Vote, accepted: BTreeSet<NodeId> },
}

/// A change that takes this many times as long as servers are waited for is given up.
const PATIENCE: u32 = 10;

impl Auxiliary {
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
        if cx.now().since(change.began) > self.parameters.seal_for * PATIENCE {
            self.change = None;
            return self.be_patient(cx);
        }
        match &change.stage {
            Stage::Sealing => {
                let missing = self.state.installed.servers().filter(|it| !change.sealed.contains_key(it));
                cx.multicast(missing, Seal { epoch: change.epoch });
                self.propose(cx);
            }
            Stage::Preparing { ballot, promises, .. } => {
                let missing = self.peers.iter().copied().filter(|peer| !promises.contains_key(peer));
                let prepare = Prepare { base: self.state.installed.clone(), ballot: *ballot };
                missing.for_each(|peer| cx.send_durable(peer, prepare.clone()));
            }
            Stage::Accepting { vote, accepted } => {
                let missing = self.peers.iter().copied().filter(|peer| !accepted.contains(peer));
                cx.multicast(missing, Accept { vote: vote.clone() });
            }
        }
    }

    pub(super) fn on_seal_ack(&mut self, from: NodeId, message: &SealAck, cx: &mut Cx<'_, Self>) {
        self.heard.insert(from, cx.now());
        let Some(change) = self.change.as_mut().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        if let Stage::Sealing = change.stage {
            change.sealed.insert(from, message.next);
            self.propose(cx);
        }
    }

    /// When all are sealed, or those that are silent have been waited for.
    fn propose(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(change) = &self.change else { return };
        let installed = &self.state.installed;
        let all = installed.servers().all(|server| change.sealed.contains_key(&server));
        if !all && cx.now().since(change.began) < self.parameters.seal_for {
            return;
        }
        let is_sealed = |server: &&NodeId| change.sealed.contains_key(server) || planted!(C08);
        let chains: Vec<Vec<NodeId>> =
            installed.chains.iter().map(|chain| chain.iter().filter(is_sealed).copied().collect()).collect();
        let highest = if planted!(C09) { change.sealed.values().min() } else { change.sealed.values().max() };
        let proposal = Projection {
            epoch: change.epoch,
            sequencer: self.next_sequencer(cx.now()),
            first: highest.copied().unwrap_or(LogPosition(0)).max(installed.first),
            chains,
        };
        if !proposal.is_sound() {
            return;
        }
        if !all {
            cx.mark("auxiliary.left_a_server_out");
        }
        if proposal.sequencer != installed.sequencer {
            cx.mark("auxiliary.replaced_the_sequencer");
        }
        // Kept before anybody hears of it: another life must not use it again.
        let ballot = self.state.promised.above(cx.node());
        self.state.promised = ballot;
        self.keep(cx);
        if let Some(change) = &mut self.change {
            change.stage = Stage::Preparing { proposal, ballot, promises: BTreeMap::new() };
        }
        self.go_on(cx);
    }

    pub(super) fn on_promise(&mut self, from: NodeId, message: Promise, cx: &mut Cx<'_, Self>) {
        let peers = self.peers.len();
        let Some(change) = self.change.as_mut().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        let Stage::Preparing { proposal, ballot, promises } = &mut change.stage else { return };
        if message.ballot != *ballot {
            return;
        }
        promises.insert(from, message.accepted);
        if 2 * promises.len() <= peers {
            return;
        }
        // What may have been decided is what was accepted in the highest ballot.
        let before = promises.values().flatten().max_by_key(|vote| vote.ballot);
        let projection = match before.filter(|_| !planted!(C13)) {
            Some(vote) => {
                cx.mark("auxiliary.adopted_a_projection");
                vote.projection.clone()
            }
            None => proposal.clone(),
        };
        let vote = Vote { ballot: *ballot, projection };
        change.stage = Stage::Accepting { vote, accepted: BTreeSet::new() };
        self.go_on(cx);
    }

    pub(super) fn on_accepted(&mut self, from: NodeId, message: &Accepted, cx: &mut Cx<'_, Self>) {
        let Some(change) = self.change.as_mut().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        let Stage::Accepting { vote, accepted } = &mut change.stage else { return };
        if message.ballot != vote.ballot {
            return;
        }
        accepted.insert(from);
        let (count, projection) = (accepted.len(), vote.projection.clone());
        if self.is_majority(count) {
            self.install(projection.clone(), cx);
            let me = cx.node();
            for peer in self.others(me).collect::<Vec<_>>() {
                cx.send_durable(peer, Install { projection: projection.clone() });
            }
        }
    }

    pub(super) fn on_refused(&mut self, message: &Refused, cx: &mut Cx<'_, Self>) {
        let Some(change) = self.change.as_ref().filter(|change| change.epoch == message.epoch) else {
            return;
        };
        let mine = match &change.stage {
            Stage::Sealing => return,
            Stage::Preparing { ballot, .. } => *ballot,
            Stage::Accepting { vote, .. } => vote.ballot,
        };
        if message.promised > mine {
            cx.mark("auxiliary.lost_to_another");
            self.state.promised = self.state.promised.max(message.promised);
            self.change = None;
            self.be_patient(cx);
        }
    }
}
