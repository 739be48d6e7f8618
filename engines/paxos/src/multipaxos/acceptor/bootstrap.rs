//! Who may vote: an acceptor that has lost its votes must not.

use super::{Acceptor, AcceptorRecord, AcceptorTimer, Blank, BlankToo, Bootstrapped, Invite, Summary};
use crate::configuration::Configurations;
use crate::multipaxos::messages::leader;
use kernel::{Cx, NodeId, planted};
use std::collections::BTreeMap;
use std::time::Duration;

const ENLIST_EVERY: Duration = Duration::from_millis(50);

/// Another acceptor of the first configuration, which is asked whether its journal is blank, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Founder {
    /// The question's name.
    question: u64,
    /// The incarnation by which it has asked last.
    heard: Option<u64>,
    /// It is blank, of this incarnation: it has answered.
    blank: Option<u64>,
}

/// At a cluster's bootstrap every acceptor of the first configuration is blank; each asks all the others, and becomes active when all of
/// them have answered that they are, too. It remembers with which incarnations. One that is blank later was there and has lost its votes:
/// the others answer it so. A learner is counted, by its incarnation, in the configuration that makes it a member.
///
/// An answer counts if its question was asked in this run, and after the last incarnation of that acceptor was heard of. So it is the
/// incarnation that is there which counts, and nobody takes what was said before it lost its disk for an answer.
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
            self.ask(peer, cx);
        }
        let blank = |peer: &NodeId| Some((*peer, self.founders.get(peer)?.blank?));
        let all_blank: Option<BTreeMap<NodeId, u64>> = peers.iter().map(blank).collect();
        if let Some(others) = all_blank.filter(|_| !self.refused) {
            self.activate(others.into_iter().chain([(me, incarnation)]).collect(), cx);
        }
    }

    /// True if it may become active with the others of the first configuration.
    fn takes_part(&self, me: NodeId) -> bool {
        !self.joins && !self.waits && self.is_founder(me)
    }

    fn is_founder(&self, node: NodeId) -> bool {
        let latest = self.configurations.latest();
        latest.version == 0 && latest.acceptors.nodes().any(|acceptor| acceptor == node)
    }

    fn ask(&mut self, peer: NodeId, cx: &mut Cx<'_, Self>) {
        let Some(summary) = &self.summary else { return };
        let founder = self.founders.entry(peer);
        let founder =
            founder.or_insert_with(|| Founder { question: cx.rng().bits(), heard: None, blank: None });
        let question = Some(founder.question);
        // Durably: an incarnation that is forgotten again would be counted and never come back.
        cx.send_durable(peer, Blank { incarnation: summary.incarnation, question });
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
        let incarnation = summary.incarnation;
        if !self.takes_part(cx.node()) || !self.is_founder(from) {
            return;
        }
        let heard = Some(message.incarnation);
        if self.founders.get(&from).and_then(|founder| founder.heard) != heard {
            self.founders.insert(from, Founder { question: cx.rng().bits(), heard, blank: None });
            self.ask(from, cx);
        }
        if let Some(question) = message.question {
            cx.send_durable(from, BlankToo { incarnation, question });
        }
    }

    pub(super) fn on_blank_too(&mut self, from: NodeId, message: &BlankToo) {
        let is_active = self.summary.as_ref().is_none_or(|summary| summary.active);
        let Some(founder) = self.founders.get_mut(&from).filter(|_| !is_active) else { return };
        if founder.question == message.question || planted!(blank_word_to_earlier_incarnation_counts) {
            founder.blank = Some(message.incarnation);
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
