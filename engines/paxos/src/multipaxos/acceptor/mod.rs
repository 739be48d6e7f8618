//! The acceptor: promises, votes, and reports how far it has voted.
//!
//! `bootstrap` decides who may vote at all, `hearing` which leader is heard, `record` is what must not be forgotten, `resume` gives a replica
//! that starts what it had executed.

mod bootstrap;
mod hearing;
mod record;
mod resume;

use super::Paxos;
use crate::configuration::Configurations;
pub use crate::multipaxos::messages::acceptor::*;
use crate::multipaxos::messages::{batcher, leader, proxy_leader, replica};
use crate::parameters::Parameters;
use crate::value::Value;
use kernel::bounds::VOTE_BYTES;
use kernel::{AwaitedTimers, Cx, NodeId, PageBudget, Position, Role, Statement, planted};
use parts::{Ballot, Slot, SlotRing};
use std::collections::BTreeMap;
use std::ops::Range;

pub use record::{AcceptorRecord, Summary};

kernel::timers! {
    /// The acceptor's timers.
    pub enum AcceptorTimer {
        /// Ask again to be counted.
        Enlist,
        /// The leader was not heard for an election timeout.
        Silence,
    }
}

#[derive(Clone, Debug)]
struct Vote {
    ballot: Ballot,
    value: Value,
    position: Position,
}

/// The longest span of slots between the oldest vote retained and the newest.
const VOTES_SPAN_MAX: usize = 1 << 22;

/// Votes in the slots of its group.
///
/// Invariant: no vote below `promised` is cast after the promise, and nothing that reveals a promise or a vote leaves
/// before it is durable.
#[derive(Clone, Debug)]
pub struct Acceptor {
    parameters: Parameters,
    configurations: Configurations,
    /// The replica on this host, which takes values from here instead of a second time from the network.
    replica: Option<NodeId>,
    /// True on a machine that joins a living cluster: it takes no part in a bootstrap.
    joins: bool,
    /// True where it asks to be counted only when it is invited.
    waits: bool,
    summary: Option<Summary>,
    refused: bool,
    /// The others at a bootstrap.
    founders: BTreeMap<NodeId, bootstrap::Founder>,
    votes: SlotRing<Vote>,
    /// Slots that are chosen, with the values learned here, or else voted for here last.
    executed: Range<Slot>,
    /// Values that this host's replica learned elsewhere, for its next start.
    learned: resume::LearnedValues,
    /// Votes below are known to be durable.
    durable_through: Slot,
    /// There are newer ones.
    voted: bool,
    /// Those that the replica on this host may need.
    held: resume::Held,
    hearing: hearing::Hearing,
}

impl Acceptor {
    /// An acceptor with an empty memory. `configuration` is the cluster file's; `replica` the one on this host.
    pub fn new(parameters: Parameters, configurations: Configurations, replica: Option<NodeId>) -> Self {
        Self {
            parameters,
            configurations,
            replica,
            joins: false,
            waits: false,
            summary: None,
            refused: false,
            founders: BTreeMap::new(),
            votes: SlotRing::new(Slot(0), VOTES_SPAN_MAX),
            executed: Slot(0)..Slot(0),
            learned: resume::LearnedValues::default(),
            durable_through: Slot(0),
            voted: false,
            held: resume::Held::default(),
            hearing: hearing::Hearing::default(),
        }
    }

    /// The acceptor of a machine that joins a living cluster: it waits to be made a member.
    pub fn joining(parameters: Parameters, configurations: Configurations, replica: Option<NodeId>) -> Self {
        Self { joins: true, ..Self::new(parameters, configurations, replica) }
    }

    /// The same where many logs run and few of them are for this machine: it waits until a leader wants it.
    pub fn invited(parameters: Parameters, configurations: Configurations, replica: Option<NodeId>) -> Self {
        Self { waits: true, ..Self::joining(parameters, configurations, replica) }
    }

    /// True if the cluster counted another incarnation of this node before: this one has lost its votes, and must be
    /// replaced by a change of membership.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// True if it may vote.
    pub fn is_active(&self) -> bool {
        self.summary.as_ref().is_some_and(|summary| summary.active)
    }

    /// The highest ballot that it has promised.
    pub fn promised(&self) -> Ballot {
        self.summary.as_ref().map_or(Ballot::ZERO, |summary| summary.promised)
    }

    /// Where it stands, in words.
    pub fn describe(&self) -> String {
        let Some(summary) = &self.summary else { return "has not started".to_owned() };
        let Summary { active, promised, voted_through, truncated_below, sealed, .. } = summary;
        let refused = if self.refused { " refused" } else { "" };
        let latest = self.configurations.latest().version;
        format!(
            "active {active}{refused} promised {promised:?} voted {truncated_below} to {voted_through} \
             sealed {sealed} knows {latest}"
        )
    }

    /// What it must not forget apart from its votes; none before it has started. For invariants.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Its votes, for invariants.
    pub fn votes(&self) -> impl Iterator<Item = (Slot, Ballot, &Value)> {
        self.votes.iter().map(|(slot, vote)| (slot, vote.ballot, &vote.value))
    }

    /// Its last vote in a slot, for invariants.
    pub fn vote(&self, slot: Slot) -> Option<(Ballot, &Value)> {
        self.votes.get(slot).map(|vote| (vote.ballot, &vote.value))
    }

    /// Votes below are forgotten.
    pub fn truncated_below(&self) -> Slot {
        self.summary.as_ref().map_or(Slot(0), |summary| summary.truncated_below)
    }

    /// The slots of which it knows the chosen values, for invariants.
    pub fn executed(&self) -> Range<Slot> {
        self.executed.clone()
    }

    /// The chosen value of a slot in [`Acceptor::executed`], if it is retained.
    pub fn executed_value(&self, slot: Slot) -> Option<&Value> {
        self.learned.get(slot).or_else(|| self.votes.get(slot).map(|vote| &vote.value))
    }

    fn active(&mut self) -> Option<&mut Summary> {
        self.summary
            .as_mut()
            .filter(|summary| (summary.active && !self.refused) || planted!(lost_votes_not_fenced))
    }
}

impl Role for Acceptor {
    type Family = Paxos;
    type In = AcceptorIn;
    type Timer = AcceptorTimer;
    type Record = AcceptorRecord;

    fn restore(&mut self, position: Position, record: AcceptorRecord) {
        match record {
            AcceptorRecord::Blank { incarnation } => self.summary = Some(Summary::blank(incarnation)),
            AcceptorRecord::Summary(summary) => {
                self.votes.advance(summary.truncated_below);
                self.learned.forget_below(summary.truncated_below);
                self.summary = Some(summary);
            }
            AcceptorRecord::Active { members } => {
                let summary = self.restored();
                summary.active = true;
                summary.members = members;
            }
            AcceptorRecord::Promise { ballot } => self.restored().promised = ballot,
            AcceptorRecord::Sealed { version } => self.restored().sealed = version,
            AcceptorRecord::Executed { from, below } => self.executed = from..below,
            AcceptorRecord::Learned { slot, value } => {
                if self.votes.admits(slot) {
                    self.learned.insert(slot, value, position);
                }
            }
            AcceptorRecord::Vote { ballot, slot, value } => {
                let summary = self.restored();
                if !planted!(restored_vote_makes_no_promise) {
                    summary.promised = summary.promised.max(ballot);
                }
                if !planted!(restored_votes_hidden_from_reads) {
                    summary.voted_through = summary.voted_through.max(slot.next());
                }
                if self.votes.admits(slot) {
                    let _ = self.votes.insert(slot, Vote { ballot, value, position });
                }
            }
        }
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        if self.summary.is_none() {
            let incarnation = cx.rng().bits();
            cx.append(&AcceptorRecord::Blank { incarnation });
            self.summary = Some(Summary::blank(incarnation));
        }
        self.durable_through = self.summary.as_ref().map_or(Slot(0), |summary| summary.voted_through);
        self.on_timer(AcceptorTimer::Enlist, cx);
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(summary) = &self.summary else { return };
        if std::mem::take(&mut self.voted) {
            cx.send_durable(cx.node(), Durable { voted_through: summary.voted_through });
        }
    }

    fn on_message(&mut self, from: NodeId, message: AcceptorIn, cx: &mut Cx<'_, Self>) {
        match message {
            AcceptorIn::PreVote(message) => self.on_pre_vote(from, message, cx),
            AcceptorIn::Phase1a(message) => self.on_phase1a(from, message, cx),
            AcceptorIn::Phase2a(message) => self.on_phase2a(from, message, cx),
            AcceptorIn::PreRead(message) => self.on_pre_read(from, message, cx),
            AcceptorIn::Seal(message) => self.on_seal(from, message, cx),
            AcceptorIn::Heartbeat(message) => self.on_heartbeat(from, message, cx),
            AcceptorIn::Resting(message) => self.on_resting(from, message, cx),
            AcceptorIn::Blank(message) => self.on_blank(from, message, cx),
            AcceptorIn::BlankToo(message) => self.on_blank_too(from, &message),
            AcceptorIn::Bootstrapped(message) => self.on_bootstrapped(message, cx),
            AcceptorIn::Known(message) => self.learn(&message.configurations, cx),
            AcceptorIn::Invite(message) => self.on_invite(from, &message, cx),
            AcceptorIn::Resigned(message) => self.on_resigned(&message, cx),
            AcceptorIn::Durable(_) if from != cx.node() => cx.reject("word of another acceptor's journal"),
            AcceptorIn::Durable(message) => {
                self.durable_through = self.durable_through.max(message.voted_through);
            }
            AcceptorIn::Executed(_)
            | AcceptorIn::Learned(_)
            | AcceptorIn::Resume(_)
            | AcceptorIn::Hold(_)
                if Some(from) != self.replica =>
            {
                cx.reject("word of a replica that is not this host's");
            }
            AcceptorIn::Executed(message) => self.on_executed(&message, cx),
            AcceptorIn::Learned(message) => self.on_learned(message, cx),
            AcceptorIn::Resume(message) => self.on_resume(from, &message, cx),
            AcceptorIn::Hold(message) => self.on_hold(&message),
        }
    }

    fn on_timer(&mut self, timer: AcceptorTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            AcceptorTimer::Enlist => self.enlist(cx),
            AcceptorTimer::Silence => self.on_silence(cx),
        }
    }

    fn awaited_timers(&self, me: NodeId) -> AwaitedTimers {
        let asks = !self.waits && self.summary.as_ref().is_some_and(|summary| !summary.active);
        AwaitedTimers::NONE
            .and(AcceptorTimer::Enlist, asks)
            .and(AcceptorTimer::Silence, self.awaits_silence(me))
    }

    fn statement(&self) -> Statement {
        Statement { beacons: Some(self.answered_leader().into_iter().collect()), ..Statement::default() }
    }
}

/// Elections, votes, and reads.
impl Acceptor {
    /// True if a candidate's latest configuration governs no slot any more that is still to be executed. Its ballots would
    /// unseat the leader, and it would go on waiting for replicas that are gone; it is sent what it does not know.
    fn turned_away(&self, candidate: NodeId, version: Option<u64>, cx: &mut Cx<'_, Self>) -> bool {
        let known = &self.configurations;
        let outdated =
            version.is_some_and(|version| version < known.all()[0].version) && !known.are_unconfirmed();
        if outdated {
            cx.mark("acceptor.reported_a_candidate_of_later_configurations");
            cx.send(candidate, leader::Known { configurations: known.clone() });
        }
        outdated
    }

    fn on_pre_vote(&mut self, from: NodeId, message: PreVote, cx: &mut Cx<'_, Self>) {
        self.hear_beacon(cx);
        let hears_leader = self.heard_leader(cx.now()).is_some();
        if let Some(summary) = self.summary.as_ref().filter(|summary| !summary.active && !self.refused) {
            // The proxy leader that counts this vote may know of the configuration that admits it.
            let enlist = leader::Enlist { incarnation: summary.incarnation, acceptor: None };
            return cx.send_durable(from, enlist);
        }
        if self.turned_away(from, message.version, cx) {
            return;
        }
        let Some(summary) = self.active() else { return };
        let granted = message.ballot > summary.promised && !hears_leader;
        let promised = summary.promised;
        cx.send(from, leader::PreVoteAck { ballot: message.ballot, granted, promised });
    }

    fn on_phase1a(&mut self, from: NodeId, message: Phase1a, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        if self.turned_away(from, message.version, cx) {
            return;
        }
        self.hear_beacon(cx);
        let hears_another = self.heard_leader(now).is_some_and(|leader| leader != message.ballot.leader);
        let Some(summary) = self.active() else { return };
        if message.ballot < summary.promised {
            let promised = summary.promised;
            return cx.send(from, leader::Nack { promised });
        }
        if hears_another && message.ballot > summary.promised {
            // A candidate of a configuration long gone may have the pre-votes of that one's acceptors.
            return cx.mark("acceptor.stood_by_its_leader");
        }
        if message.ballot > summary.promised {
            summary.promised = message.ballot;
            if !planted!(promise_not_persisted) {
                cx.append(&AcceptorRecord::Promise { ballot: message.ballot });
            }
        }
        let promised = summary.promised;
        kernel::invariant!(AGREE, promised == message.ballot, "asked for {:?}: {promised:?}", message.ballot);
        let (truncated_below, page_bytes) = (summary.truncated_below, self.parameters.page_bytes);
        let (mut votes, mut page, mut more) = (Vec::new(), PageBudget::new(page_bytes), None);
        for (slot, vote) in self.votes.iter_from(message.from) {
            if !page.admits(vote.value.size() + VOTE_BYTES) {
                more = Some(if planted!(page_of_votes_skips_one) { slot.next() } else { slot });
                break;
            }
            votes.push(leader::ReportedVote { slot, ballot: vote.ballot, value: vote.value.clone() });
        }
        if more.is_some() {
            cx.mark("acceptor.phase1b_in_pages");
        }
        // A candidate that is being sent many pages is not to be overtaken by another one.
        self.listen(message.ballot.leader, cx);
        cx.send_durable(
            from,
            leader::Phase1b {
                ballot: message.ballot,
                inquiry: message.inquiry,
                truncated_below,
                votes,
                more,
            },
        );
    }

    fn on_phase2a(&mut self, from: NodeId, message: Phase2a, cx: &mut Cx<'_, Self>) {
        let replica = self.replica;
        let Phase2a { ballot, slot, value } = message;
        let Some(summary) = self.active() else { return };
        if ballot < summary.promised && !planted!(vote_below_promise) {
            let promised = summary.promised;
            return cx.send(from, proxy_leader::Nack { slot, promised });
        }
        let promised = summary.promised;
        if !self.votes.admits(slot) {
            // Below: chosen and snapshotted long ago. Above: a leader far ahead of its window.
            return cx.reject("vote asked outside the retained slots");
        }
        let vote = self.votes.get(slot).map(|vote| vote.ballot);
        kernel::invariant!(
            AGREE,
            promised <= ballot && vote <= Some(ballot) || planted!(vote_below_promise),
            "votes for {slot} in {ballot:?}, after {vote:?} and a promise of {promised:?}"
        );
        let repeated = vote == Some(ballot);
        // Votes are retained for long.
        let value = value.owned();
        if !repeated {
            let position = if planted!(vote_not_persisted) || planted!(coordination_vote_not_persisted) {
                cx.cursor()
            } else {
                cx.append(&AcceptorRecord::Vote { ballot, slot, value: value.clone() })
            };
            let voted = self.votes.insert(slot, Vote { ballot, value: value.clone(), position });
            debug_assert!(voted.is_ok(), "slot {slot} was admitted");
            self.voted = true;
        }
        let Some(summary) = self.active() else { return };
        summary.promised = ballot;
        summary.voted_through = summary.voted_through.max(slot.next());
        cx.send_durable(from, proxy_leader::Phase2b { ballot, slot });
        if let Some(replica) = replica {
            cx.send(replica, replica::Voted { ballot, slot, value });
        }
    }

    fn on_pre_read(&mut self, from: NodeId, message: PreRead, cx: &mut Cx<'_, Self>) {
        let Some(summary) = self.active() else { return };
        if message.version < summary.sealed && !planted!(old_configuration_answers_reads) {
            cx.mark("acceptor.read_of_a_superseded_configuration");
            return cx.send(
                from,
                batcher::Superseded { id: message.id, configurations: self.configurations.clone() },
            );
        }
        // What was answered to a client had a write quorum of durable votes. Others need not be waited for, and while disks are full
        // nobody would see the end of it.
        let voted_through = if cx.is_disk_full() {
            cx.mark("acceptor.reported_a_reader_of_durable_votes");
            self.durable_through
        } else {
            summary.voted_through
        };
        cx.send(from, batcher::PreReadAck { id: message.id, voted_through });
    }

    fn on_seal(&mut self, from: NodeId, message: Seal, cx: &mut Cx<'_, Self>) {
        let Some(summary) = self.active() else { return };
        if message.ballot < summary.promised {
            let promised = summary.promised;
            return cx.send(from, leader::Nack { promised });
        }
        if message.version > summary.sealed {
            summary.sealed = message.version;
            if !planted!(read_seal_not_persisted) {
                cx.append(&AcceptorRecord::Sealed { version: message.version });
            }
        }
        let sealed = summary.sealed;
        kernel::invariant!(LIN, sealed >= message.version, "sealed for {}: {sealed}", message.version);
        cx.send_durable(from, leader::Sealed { ballot: message.ballot, version: message.version });
    }

    /// Forgets votes for slots that enough replicas keep in durable snapshots.
    fn truncate(&mut self, below: Slot, cx: &mut Cx<'_, Self>) {
        let below = self.held.truncation(below, &self.votes, &self.learned);
        let Some(summary) = self.active() else { return };
        if below <= summary.truncated_below {
            return;
        }
        summary.truncated_below = below;
        let mut summary = summary.clone();
        if planted!(summary_without_promise) {
            summary.promised = Ballot::ZERO;
        }
        if planted!(summary_without_seal) {
            summary.sealed = 0;
        }
        let record = AcceptorRecord::Summary(summary);
        self.votes.advance(below);
        self.learned.forget_below(below);
        let start = self.votes.start();
        kernel::invariant!(DUR, start >= below, "votes from {start} on are retained, below {below} none");
        let summary = cx.append(&record);
        let votes = self.votes.iter().map(|(_, vote)| vote.position);
        let heeded = !planted!(learned_values_trimmed);
        let oldest = votes.chain(self.learned.positions().filter(|_| heeded)).min().unwrap_or(summary);
        cx.trim(if planted!(needed_votes_trimmed) { summary } else { oldest.min(summary) });
        cx.mark("acceptor.truncated");
    }
}
