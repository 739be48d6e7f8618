//! How chains and directors follow the cluster when its hosts change.
//!
//! ```text
//! host's server     director       director that leads     log            every host's director
//!   | Members(v)      |                    |                |                     |
//!   |---------------->| FollowMembers(v)   |                |                     |
//!   |                 |------------------->| Follow(v)      |                     |
//!   |                 |                    |--------------->| (chosen, applied)   |
//!   |                 |                    | ChangeConfiguration                  |
//!   |                 |                    |--------------->| (learners vote)     |
//!   |                 |                    |   (one host at a time)               |
//!   |                 |                    |   (chains: servers join, then leave) |
//!   |                 |     MembersSettled |                                      |
//!   |                 |<-------------------|------------------------------------->|
//! ```
//! The members stand in the log before anything moves. A director that begins to lead has them written again, with a number that it draws:
//! when it hears of that, it knows everything that earlier directors have decided, and moves nothing back.
//!
//! Those who direct stay as long as they are members. So a change moves one replica of the directors' log at most, and a cluster of an
//! earlier version, whose directors are its first three hosts, moves none. Who joins as a director is asked to until it comes; if another
//! member could, that one is asked in turn.

use super::machine::DirectorEntry;
use super::{Director, DirectorLog, FollowMembers, FollowedMembers, MembersSettled, Watch};
use crate::deployment::DIRECTORS;
use crate::messages::client::DirectorsMoved;
use crate::parameters::FuzzyParameters;
use kernel::{Cx, Encode as _, HostId, Instant, NodeId, RequestId, planted};
use paxos::multipaxos::{Pulse, leader};
use paxos::{HostEntry, LogPlacement, LogRole, Members, Value, next_step};
use std::sync::Arc;

/// One of so many attempts to leave hands the lead over: where that fails, the log moves all the same.
const HAND_OVERS_OF: usize = 3;
/// So many times as long as a message is waited for until a change is tried again.
const AGAIN_AFTER: u32 = 10;

/// What a director knows of the members, and of where directors are.
#[derive(Clone, Debug)]
pub(super) struct Following {
    /// The latest members that anybody has named to it.
    wanted: Option<Members>,
    /// Those in the log.
    pub(super) known: Option<FollowedMembers>,
    /// Drawn when it began to lead.
    drawn: u64,
    placement: Option<LogPlacement>,
    /// Hosts with directors before the first change.
    first: Vec<HostId>,
    /// When it last asked, or proposed.
    asked_at: Option<Instant>,
    /// When it last tried to move the log, from which configuration, and how often.
    moved_at: Option<Instant>,
    moves_from: u64,
    attempts: usize,
    /// No host but the members of this version is needed.
    settled: u64,
}

impl Following {
    pub(super) fn new(first: Vec<HostId>) -> Self {
        Self {
            wanted: None,
            known: None,
            drawn: 0,
            placement: None,
            first,
            asked_at: None,
            moved_at: None,
            moves_from: 0,
            attempts: 0,
            settled: 0,
        }
    }

    /// The hosts that direct, as far as is known.
    pub(super) fn directors(&self) -> &[HostId] {
        self.placement.as_ref().map_or(&self.first, LogPlacement::hosts)
    }

    fn want(&mut self, members: Members) {
        let is_newer = self.wanted.as_ref().is_none_or(|known| known.version < members.version);
        if !members.hosts.is_empty() && is_newer {
            self.wanted = Some(members);
        }
    }

    fn known_version(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.members.version)
    }

    fn wanted_version(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |wanted| wanted.version)
    }

    fn is_due(at: Option<Instant>, now: Instant, parameters: &FuzzyParameters) -> bool {
        at.is_none_or(|at| now.since(at) >= AGAIN_AFTER * parameters.resend_after)
    }

    /// The hosts that are to direct: those that do and are members, and others if those are too few.
    fn goal(&self, members: &Members, is_there: impl Fn(HostId) -> bool) -> Vec<HostId> {
        let count = DIRECTORS.min(members.hosts.len());
        if planted!(directors_move_at_once) {
            return members.ids().skip(members.hosts.len() - count).collect();
        }
        let mut goal: Vec<HostId> = members.ids().filter(|host| self.directors().contains(host)).collect();
        goal.truncate(count);
        // Of those who are there, another one at each attempt.
        let others = members.ids().filter(|host| !goal.contains(host));
        let (mut there, away): (Vec<HostId>, Vec<HostId>) = others.partition(|host| is_there(*host));
        let first = self.attempts % there.len().max(1);
        there.rotate_left(first);
        goal.extend(there.into_iter().chain(away).take(count - goal.len()));
        goal
    }
}

impl Director {
    /// The hosts that direct, as far as is known.
    pub fn directors(&self) -> &[HostId] {
        self.following.directors()
    }

    /// The configuration of the directors' log that it has heard of last, by its version, and its hosts.
    pub fn directors_in(&self) -> Option<(u64, &[HostId])> {
        self.following.placement.as_ref().map(|placement| (placement.version, placement.hosts()))
    }

    /// The version of the cluster's members that chains and directors need none beside, as far as this host knows; 0 for those of the
    /// bootstrap.
    pub fn settled_on(&self) -> u64 {
        self.following.settled
    }

    /// The members that the directors follow, by their version; 0 before the first change.
    pub fn follows(&self) -> u64 {
        self.following.known_version()
    }

    /// A host is no member, as far as this one knows.
    pub fn leaves(&self, host: HostId) -> bool {
        let known = self.following.known.as_ref().map(|known| &known.members);
        known.or(self.following.wanted.as_ref()).is_some_and(|members| members.ids().all(|it| it != host))
    }

    /// All hosts of whom it has heard, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &HostEntry> {
        let known = self.following.known.iter().map(|known| &known.members);
        let named = known.chain(&self.following.wanted).flat_map(|members| &members.hosts);
        named.chain(self.following.placement.iter().flat_map(|placement| &placement.entries))
    }

    /// This host directs.
    pub(super) fn directs(&self, own: HostId) -> bool {
        self.following.directors().contains(&own)
    }

    /// Drawn anew by each director that begins to lead.
    pub(super) fn begin_to_lead(&mut self, cx: &mut Cx<'_, Self>) {
        let following = &mut self.following;
        following.drawn = cx.rng().bits();
        (following.asked_at, following.moved_at, following.attempts) = (None, None, 0);
        self.placing.begin_to_lead();
    }

    pub(super) fn note_placement(&mut self, pulse: &Pulse, cx: &mut Cx<'_, Self>) {
        let version = pulse.configurations.latest().version;
        let known = self.following.placement.as_ref();
        if known.is_some_and(|known| known.version > version) {
            return;
        }
        let placement = LogPlacement::of(pulse);
        let are_others = placement.hosts() != self.following.directors();
        self.following.placement = Some(placement);
        if are_others && version > 0 {
            self.name_directors(cx);
        }
    }

    /// Notifies the client beside it of who directs.
    fn name_directors(&self, cx: &mut Cx<'_, Self>) {
        let slot = cx.node().host_slot();
        let directors = self.directors().iter().map(|&host| NodeId::new(host, slot)).collect();
        cx.send(self.client, DirectorsMoved { directors });
    }

    /// The host's server has it follow these members.
    pub(super) fn on_members(&mut self, id: RequestId, members: Members, cx: &mut Cx<'_, Self>) {
        let version = members.version;
        self.following.want(members);
        let is_settled = self.following.settled >= version;
        cx.respond(id, crate::FuzzyResponse::Followed { is_settled });
    }

    pub(super) fn on_follow_members(&mut self, from: NodeId, message: FollowMembers, cx: &mut Cx<'_, Self>) {
        if from.host_slot() != cx.node().host_slot() {
            return cx.reject("members named by somebody who is no director");
        }
        self.following.want(message.members);
        if self.leads && self.following.settled > 0 {
            cx.send(from, MembersSettled { version: self.following.settled });
        }
    }

    pub(super) fn on_settled(&mut self, from: NodeId, message: &MembersSettled, cx: &mut Cx<'_, Self>) {
        if from.host_slot() != cx.node().host_slot() {
            return cx.reject("settled members named by somebody who is no director");
        }
        self.following.settled = self.following.settled.max(message.version);
    }

    /// The log has these members.
    pub(super) fn on_followed(&mut self, followed: FollowedMembers, cx: &mut Cx<'_, Self>) {
        let is_newer = self.following.known_version() < followed.members.version;
        if is_newer {
            cx.mark("director.follows_new_members");
            let hosts: Vec<HostId> = followed.members.ids().collect();
            let replicas = self.replicas;
            self.watches.iter_mut().for_each(|watch| watch.follow(&hosts, replicas));
            (self.following.moved_at, self.following.attempts) = (None, 0);
        }
        self.following.known = Some(followed);
    }

    pub(super) fn follow(&mut self, cx: &mut Cx<'_, Self>) {
        if self.leads {
            return self.lead_others(cx);
        }
        let (now, following) = (cx.now(), &mut self.following);
        let Some(members) = following.wanted.clone().filter(|it| it.version > following.settled) else {
            return;
        };
        if !Following::is_due(following.asked_at, now, &self.parameters) {
            return;
        }
        following.asked_at = Some(now);
        let slot = cx.node().host_slot();
        let leader = self.leader.map(|ballot| ballot.leader.host());
        // Who has never heard the leader asks those of whom it knows.
        let asked = leader.map_or_else(|| following.directors().to_vec(), |leader| vec![leader]);
        let asked = asked.into_iter().filter(|host| *host != cx.node().host());
        let asked: Vec<NodeId> = asked.map(|host| NodeId::new(host, slot)).collect();
        cx.multicast(asked, FollowMembers { members });
    }

    /// First the members, so that later directors find them in the log; then the log moves, and chains do by themselves.
    fn lead_others(&mut self, cx: &mut Cx<'_, Self>) {
        let following = &self.following;
        let newest = following.wanted_version().max(following.known_version());
        // The first entries of the log would be another state to those who begin with another cluster file.
        if newest == 0 || !self.is_bootstrapped() {
            return;
        }
        let is_confirmed = following.known.as_ref().is_some_and(|known| known.drawn == following.drawn);
        if !is_confirmed || following.wanted_version() > following.known_version() {
            return self.propose_members(cx);
        }
        let Some(FollowedMembers { members, .. }) = following.known.clone() else { return };
        let Some(placement) = following.placement.clone() else { return };
        if !self.move_log(&members, &placement, cx) {
            return;
        }
        let has_leavers = self.used().any(|watch| watch.leavers().next().is_some());
        if placement.is_settled && !has_leavers && self.following.settled < members.version {
            cx.mark("director.settled_on_new_members");
            self.following.settled = members.version;
            // Others would ask for it at some time: a host that has not heard of it lets nobody make the next change.
            let (own, slot) = (cx.node().host(), cx.node().host_slot());
            let others = members.ids().filter(|host| *host != own).map(|host| NodeId::new(host, slot));
            cx.multicast(others, MembersSettled { version: members.version });
        }
    }

    fn propose_members(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, following) = (cx.now(), &mut self.following);
        if !Following::is_due(following.asked_at, now, &self.parameters) {
            return;
        }
        let known = following.known.as_ref().map(|known| &known.members);
        let newest = following.wanted.iter().chain(known).max_by_key(|members| members.version).cloned();
        let Some(members) = newest else { return };
        following.asked_at = Some(now);
        let entry = DirectorEntry::Follow(FollowedMembers { members, drawn: following.drawn });
        match Value::entry(entry.encoded()) {
            Ok(value) => cx.send(self.log.leader, paxos::Message::from(leader::Propose { value })),
            Err(_) => cx.reject("more members than a slot holds"),
        }
    }

    /// Moves the directors' log a step on; true if it is where it is wanted.
    fn move_log(&mut self, members: &Members, placement: &LogPlacement, cx: &mut Cx<'_, Self>) -> bool {
        let now = cx.now();
        if placement.version > self.following.moves_from {
            (self.following.moves_from, self.following.moved_at, self.following.attempts) =
                (placement.version, None, 0);
        }
        let (watch, parameters) = (self.watches.first(), &self.parameters);
        let is_there = |host: HostId| watch.is_some_and(|watch| watch.hears(host, now, parameters));
        let goal = self.following.goal(members, is_there);
        if placement.is_placed(&goal, members) {
            return true;
        }
        if !Following::is_due(self.following.moved_at, now, &self.parameters) {
            return false;
        }
        let (present, own) = (placement.hosts(), cx.node().host());
        let next = match next_step(present, &goal, members, own, 0) {
            Some(_) if planted!(directors_move_at_once) => goal,
            Some(next) => next,
            None => goal,
        };
        let attempt = self.following.attempts;
        (self.following.moved_at, self.following.attempts) = (Some(now), attempt + 1);
        let DirectorLog { leader, embedded, .. } = self.log;
        // Who leaves hands over before, so that nobody waits for an election.
        if !next.contains(&own)
            && let Some(&to) = next.iter().find(|host| present.contains(host))
            && attempt.is_multiple_of(HAND_OVERS_OF)
        {
            cx.mark("director.handed_over_before_it_leaves");
            let to = embedded.node(to, LogRole::Leader);
            cx.send(leader, paxos::Message::from(leader::HandOver { to }));
        } else if let Some(next) = embedded.configuration_placed(placement.version + 1, &next, members) {
            cx.mark("director.moves_the_log");
            let change = leader::ChangeConfiguration { configuration: Arc::new(next) };
            cx.send(leader, paxos::Message::from(change));
        }
        false
    }
}

impl Watch {
    /// These hosts are the members from now on.
    fn follow(&mut self, hosts: &[HostId], replicas: usize) {
        let Some(slot) = self.projection.nodes().next().map(NodeId::host_slot) else { return };
        self.candidates = hosts.iter().map(|&host| NodeId::new(host, slot)).collect();
        self.width = replicas.clamp(1, hosts.len().max(1));
        let (candidates, projection) = (&self.candidates, &self.projection);
        self.heard.retain(|node, _| candidates.contains(node) || projection.nodes().any(|it| it == *node));
        self.follows = true;
    }

    /// True of a server whose host is no member.
    pub(super) fn leaves(&self, node: NodeId) -> bool {
        self.follows && !self.candidates.contains(&node)
    }

    /// Servers of the chain whose hosts are no members.
    pub(super) fn leavers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.projection.nodes().filter(|node| self.leaves(*node))
    }

    pub(super) fn hears(&self, host: HostId, now: Instant, parameters: &FuzzyParameters) -> bool {
        let server = self.candidates.iter().find(|node| node.host() == host);
        server.is_some_and(|&server| self.present(server, now, parameters).is_some())
    }
}
