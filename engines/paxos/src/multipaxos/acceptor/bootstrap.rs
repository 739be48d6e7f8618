//! Who may vote: an acceptor that has lost its votes must not.

use super::{Acceptor, AcceptorRecord, AcceptorTimer, Blank, BlankToo, Bootstrapped, Invite, Summary};
use crate::configuration::Configurations;
use crate::multipaxos::messages::leader;
use kernel::{Cx, NodeId, planted};
use std::time::Duration;

const ENLIST_EVERY: Duration = Duration::from_millis(50);
/// Incarnations of one acceptor that another answers before a bootstrap.
const ANSWERED_MAX: usize = 64;

/// At a cluster's bootstrap every acceptor of the first configuration is blank; each asks all the others and becomes active when they
/// have answered this incarnation that they are, too. It remembers with which incarnations. One that is blank later was there and has
/// lost its votes: the others answer it so. A learner is counted, by its incarnation, in the configuration that makes it a member.
///
/// Invariant: of two acceptors that are active by a bootstrap each has counted the other's incarnation. So none has lost votes that
/// another one has counted: who answers an incarnation counts no earlier one of that acceptor any more, also after a restart.
impl Acceptor {
    pub(super) fn enlist(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(summary) = &self.summary else { return };
        if summary.active || self.waits {
            return;
        }
        cx.set_timer(AcceptorTimer::Enlist, ENLIST_EVERY);
        let (me, incarnation) = (cx.node(), summary.incarnation);
        let latest = self.configurations.latest();
        // Durably: an incarnation that is forgotten again would be counted and never come back.
        for &leader in &latest.leaders {
            cx.send_durable(leader, leader::Enlist { incarnation, acceptor: None });
        }
        if planted!(joining_replica_trusts_cluster_file)
            && self.joins
            && latest.acceptors.nodes().any(|acceptor| acceptor == me)
        {
            return self.activate(Vec::new(), cx);
        }
        if self.joins || latest.version > 0 {
            return;
        }
        let peers: Vec<NodeId> = latest.acceptors.nodes().filter(|&peer| peer != me).collect();
        for &peer in &peers {
            cx.send_durable(peer, Blank { incarnation });
        }
        if !self.refused && peers.iter().all(|peer| self.counts_as_blank(*peer)) {
            let members = self
                .blank
                .iter()
                .map(|(&peer, &incarnation)| (peer, incarnation))
                .chain([(me, incarnation)])
                .collect();
            self.activate(members, cx);
        }
    }

    /// It is blank, and this one has answered no later incarnation of it.
    fn counts_as_blank(&self, peer: NodeId) -> bool {
        let last_answered = self.answered.get(&peer).and_then(|answered| answered.last());
        self.blank.get(&peer).is_some_and(|known| last_answered.is_none_or(|last| last == known))
    }

    fn activate(&mut self, members: Vec<(NodeId, u64)>, cx: &mut Cx<'_, Self>) {
        if let Some(summary) = &mut self.summary {
            self.refused = false;
            summary.active = true;
            summary.members = members.clone();
            cx.append(&AcceptorRecord::Active { members });
        }
    }

    pub(super) fn on_blank(&mut self, from: NodeId, message: Blank, cx: &mut Cx<'_, Self>) {
        let Some(summary) = &self.summary else { return };
        if summary.active {
            // Only durable memories are shared: a bootstrap that is forgotten again was none.
            return cx.send_durable(from, Bootstrapped { members: summary.members.clone() });
        }
        let (incarnation, asked) = (summary.incarnation, message.incarnation);
        if self.configurations.latest().acceptors.nodes().all(|acceptor| acceptor != from) {
            return;
        }
        let answered = self.answered.entry(from).or_default();
        if !answered.contains(&asked) {
            if answered.len() >= ANSWERED_MAX {
                return cx.reject("acceptor that has lost its disk too often before the bootstrap");
            }
            answered.push(asked);
            cx.append(&AcceptorRecord::Answered { acceptor: from, incarnation: asked });
        }
        // Durably: an incarnation that is forgotten again would be counted and never come back.
        cx.send_durable(from, BlankToo { incarnation, asked });
    }

    pub(super) fn on_blank_too(&mut self, from: NodeId, message: &BlankToo) {
        let Some(summary) = &self.summary else { return };
        let is_founder = || self.configurations.latest().acceptors.nodes().any(|acceptor| acceptor == from);
        let is_answer =
            message.asked == summary.incarnation || planted!(blank_word_to_earlier_incarnation_counts);
        if !summary.active && is_answer && is_founder() {
            self.blank.insert(from, message.incarnation);
        }
    }

    pub(super) fn on_bootstrapped(&mut self, message: Bootstrapped, cx: &mut Cx<'_, Self>) {
        let Some(summary) = &self.summary else { return };
        let mine = message.members.iter().find(|(member, _)| *member == cx.node());
        match mine {
            Some(_) if summary.active => {}
            Some(&(_, incarnation)) if incarnation == summary.incarnation => {
                self.activate(message.members, cx)
            }
            Some(_) => self.refuse(cx),
            None => {}
        }
    }

    /// A leader wants it: also one that was a member before, with the votes that it has retained.
    pub(super) fn on_invite(&mut self, from: NodeId, message: &Invite, cx: &mut Cx<'_, Self>) {
        self.learn(&message.configurations, cx);
        let Some(summary) = &self.summary else { return };
        let me = cx.node();
        if self.configurations.latest().acceptors.nodes().all(|acceptor| acceptor != me) {
            cx.mark("acceptor.was_invited");
            // Durably: an incarnation that is forgotten again would be counted and never come back.
            cx.send_durable(from, leader::Enlist { incarnation: summary.incarnation, acceptor: None });
        }
    }

    fn refuse(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.refused {
            cx.mark("acceptor.refused_because_it_lost_its_votes");
            cx.note(|| "lost its votes and must be replaced by a change of membership".to_owned());
            self.refused = true;
        }
    }

    /// A configuration that counts this very incarnation makes it a member; one that counts another refuses it.
    pub(super) fn learn(&mut self, configurations: &Configurations, cx: &mut Cx<'_, Self>) {
        self.configurations.adopt(configurations);
        let Some(summary) = &self.summary else { return };
        if summary.active {
            return;
        }
        match configurations.counts(cx.node()) {
            Some(incarnation) if incarnation == summary.incarnation => {
                cx.mark("acceptor.admitted_by_a_configuration");
                self.activate(Vec::new(), cx);
            }
            Some(_) => self.refuse(cx),
            None => {}
        }
    }

    pub(super) fn restored(&mut self) -> &mut Summary {
        self.summary.get_or_insert_with(|| Summary::blank(0))
    }
}
