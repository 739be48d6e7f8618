//! How a shard follows the cluster when its hosts change, and how its leader returns to the host that is to lead it.
//!
//! ```text
//! host's server     shard's role that leads     log              every host's role
//!   | Members(v)        |                        |                    |
//!   |------------------>| Follow(v)              |                    |
//!   |                   |----------------------->| (chosen, applied)  |
//!   |                   | ChangeConfiguration    |                    |
//!   |                   |----------------------->| (learners vote)    |
//!   |                   |   (one replica at a time)                   |
//!   |                   |                        | Heartbeat          |
//!   |  settled          |                        |------------------->|
//!   |<----------------------------------------------------------------|
//! ```
//! The members stand in the log before the log moves: a later leader that has heard of fewer changes moves nothing back. Who of the
//! members holds the shard follows from them ([`placed`]). The shard is settled when all of its log is there, in snapshots or in slots of
//! the new configuration. All members hear its leader, so every host hands on what is for it, or for a replica.
//!
//! A bootstrap begins on all hosts, as data folders of earlier versions did: the log moves from there.

use super::SpannerShard;
use super::frame::Frame;
use super::lead::Lead;
use super::moved::Moved;
use super::steps::Applied;
use crate::machine::entry::Follow;
use crate::messages::shard::{AskToLead, FollowMembers};
use crate::placement::placed;
use crate::txn::ShardId;
use kernel::client::Response;
use kernel::{Bytes, Cx, HostId, Instant, NodeId, RequestId, planted};
use parts::Ballot;
use paxos::multipaxos::{Pulse, leader};
use paxos::{EmbeddedLog, LogPlacement, LogRole, Members, next_step};
use std::sync::Arc;
use std::time::Duration;

/// What a role answers that was asked to follow members: the shard needs no host but those.
const SETTLED: Bytes = Bytes::from_static(b"settled");
/// What it answers while that is not so, or not known here yet.
const UNSETTLED: Bytes = Bytes::from_static(b"unsettled");
/// A leader that is asked to hand over first finishes what is in progress, for so long.
const FINISHES_FOR: Duration = Duration::from_secs(2);

/// Where the shard is to be, and where its log is.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    wanted: Option<Members>,
    placement: Option<LogPlacement>,
    /// Replicas that its leader hears.
    alive: Vec<HostId>,
    heard_at: Option<Instant>,
    /// The last leader that was heard: its beacon says that it still leads, while it is lit.
    heard: Option<Ballot>,
    /// When the leader last said that it hears the replica of this host.
    own_heard_at: Option<Instant>,
    /// When the leader was asked to follow, or to hand over.
    asked_at: Option<Instant>,
    /// Since when this host could lead, and is to.
    could_lead_since: Option<Instant>,
    /// Counts reads that were handed on, so that each replica has its turn.
    handed_on: usize,
}

/// Where a shard is, as a host knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardPlacement {
    /// Hosts that have a replica.
    pub replicas: Vec<String>,
    /// The host that leads, as far as is known.
    pub leader: Option<String>,
    /// The host that is to lead.
    pub preferred: Option<String>,
    /// Hosts that are to have a replica.
    pub wanted: Vec<String>,
    /// The shard is where it is wanted, and needs no other host.
    pub is_settled: bool,
}

impl Moves {
    /// The shard is to be on these hosts, if nobody has said so of later ones.
    pub(super) fn want(&mut self, members: Members) {
        let is_newer = self.wanted.as_ref().is_none_or(|known| known.version < members.version);
        if !members.hosts.is_empty() && is_newer {
            self.wanted = Some(members);
        }
    }

    /// A leader of the log says where it is, to this host.
    pub(super) fn note(&mut self, pulse: &Pulse, own: HostId, now: Instant) {
        let version = pulse.configurations.latest().version;
        if self.placement.as_ref().is_none_or(|known| known.version <= version) {
            self.placement = Some(LogPlacement::of(pulse));
            let replicas = &pulse.configurations.latest().replicas;
            self.alive = pulse.alive.iter().filter(|it| replicas.contains(it)).map(|it| it.host()).collect();
            if self.alive.contains(&own) {
                self.own_heard_at = Some(now);
            }
        }
    }

    /// The leader in force was heard.
    pub(super) fn heard(&mut self, leader: Ballot, at: Instant) {
        self.heard = Some(leader);
        self.heard_at = self.heard_at.max(Some(at));
    }

    /// Its beacon was: what it said last still holds.
    fn heard_still(&mut self, own: HostId, at: Instant) {
        if self.alive.contains(&own) {
            self.own_heard_at = self.own_heard_at.max(Some(at));
        }
    }

    fn has_heard(&self, within: Duration, now: Instant) -> bool {
        self.heard_at.is_some_and(|at| now.since(at) < within)
    }

    /// True if this host hears the leader, and the leader this host's replica. One late report interrupts neither.
    fn hear_each_other(&self, within: Duration, now: Instant) -> bool {
        self.has_heard(within, now) && self.own_heard_at.is_some_and(|at| now.since(at) < within)
    }

    /// The members that the log's configuration names.
    fn members_of_log(&self) -> Option<Members> {
        self.placement.as_ref().map(|it| Members { version: 0, hosts: it.entries.clone() })
    }

    /// True if a host has a replica of the shard, or nothing is known.
    pub(super) fn holds(&self, host: HostId) -> bool {
        let nobody_knows = self.placement.is_none() || planted!(takes_itself_for_a_holder);
        nobody_knows || self.replicas().contains(&host)
    }

    pub(super) fn replicas(&self) -> &[HostId] {
        self.placement.as_ref().map(LogPlacement::hosts).unwrap_or_default()
    }

    /// Another host that has a replica: each in turn, those that the leader hears first.
    pub(super) fn another(&mut self, own: HostId) -> Option<HostId> {
        let alive: Vec<HostId> = self.alive.iter().copied().filter(|host| *host != own).collect();
        let others: Vec<HostId> = self.replicas().iter().copied().filter(|host| *host != own).collect();
        let among = if alive.is_empty() { others } else { alive };
        self.handed_on += 1;
        (!among.is_empty()).then(|| among[(self.handed_on + own.0 as usize) % among.len()])
    }

    /// The version of the members that the shard needs none beside, as far as this host knows; 0 for those of the bootstrap.
    fn settled_on(&self, shard: ShardId, replicas: usize) -> u64 {
        let Some(wanted) = &self.wanted else { return 0 };
        let is_there = |placement: &LogPlacement| {
            placement.is_placed(&placed(shard, wanted, replicas), wanted) && placement.is_settled
        };
        if self.placement.as_ref().is_some_and(is_there) { wanted.version } else { 0 }
    }
}

impl SpannerShard {
    /// The version of the cluster's members that the shard needs none beside, as far as this host knows; 0 for those of the bootstrap.
    pub fn settled_on(&self) -> u64 {
        self.moves.settled_on(self.shard, self.parameters.replicas)
    }

    /// Where the shard is, as far as this host knows.
    pub fn placement(&self) -> ShardPlacement {
        let logged = self.lead.as_ref().map(|lead| &lead.members).filter(|it| it.version > 0);
        let newest = self.moves.wanted.iter().chain(logged).max_by_key(|members| members.version);
        let of_log = self.moves.members_of_log();
        let members = newest.cloned().or(of_log).unwrap_or(Members { version: 0, hosts: Vec::new() });
        let known = self.moves.placement.as_ref();
        let entries = || members.hosts.iter().chain(known.iter().flat_map(|it| &it.entries));
        let name = |host: HostId| {
            let entry = entries().find(|entry| HostId::named(&entry.name) == host);
            entry.map_or_else(|| format!("{host:?}"), |entry| entry.name.clone())
        };
        let wanted = placed(self.shard, &members, self.parameters.replicas);
        ShardPlacement {
            replicas: known.iter().flat_map(|it| it.hosts()).map(|host| name(*host)).collect(),
            leader: self.leader.map(|ballot| name(ballot.leader.host())),
            preferred: wanted.first().map(|host| name(*host)),
            is_settled: known.is_some_and(|it| it.is_placed(&wanted, &members) && it.is_settled),
            wanted: wanted.into_iter().map(name).collect(),
        }
    }

    pub(super) fn on_members(&mut self, id: RequestId, members: Members, cx: &mut Cx<'_, Self>) {
        let version = members.version;
        self.moves.want(members);
        cx.respond(id, Response(if self.settled_on() >= version { SETTLED } else { UNSETTLED }));
    }

    /// First the members, so that later leaders find them in the log; then the log itself.
    pub(super) fn follow(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(placement) = self.moves.placement.clone() else { return };
        let wanted = self.moves.wanted.clone();
        if self.leads_here() {
            let log = self.embedded;
            return self.leading(cx, |lead, frame, cx| {
                lead.follow(wanted.as_ref(), &placement, log, frame, cx);
                lead.hand_over_to_who_asked(log, cx);
            });
        }
        if let Some(wanted) = wanted {
            self.ask_to_follow(wanted, &placement, cx);
        }
    }

    /// The leader's host may be none of the members any more, and then nobody asks it but those who stay.
    fn ask_to_follow(&mut self, members: Members, placement: &LogPlacement, cx: &mut Cx<'_, Self>) {
        let is_there = placement.is_placed(&placed(self.shard, &members, self.parameters.replicas), &members);
        if let Some(leader) = self.leader.filter(|_| !is_there && self.may_ask(cx.now())) {
            self.moves.asked_at = Some(cx.now());
            let role = NodeId::new(leader.leader.host(), cx.node().host_slot());
            cx.send(role, FollowMembers { members });
        }
    }

    fn may_ask(&self, now: Instant) -> bool {
        let again_after = 10 * self.parameters.resend_after;
        self.moves.asked_at.is_none_or(|at| now.since(at) >= again_after)
    }

    /// Who led may have resigned, or have stood for a cluster that is gone: any leader that speaks is good then.
    pub(super) fn mind_a_silent_leader(&mut self, cx: &mut Cx<'_, Self>) {
        self.hear_beacon(cx);
        if self.leader.is_some() && !self.moves.has_heard(self.log.silent_after, cx.now()) {
            if self.leads_here() {
                cx.mark("shard.leads_no_more");
            }
            (self.leader, self.lead) = (None, None);
        }
    }

    /// A leader that rests says by a beacon that it leads.
    fn hear_beacon(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(leader) = self.moves.heard else { return };
        let is_recent = |at: &Instant| cx.now().since(*at) < self.log.silent_after;
        if let Some(at) = cx.beacon_heard_at(leader.leader).filter(is_recent) {
            self.moves.heard_still(cx.node().host(), at);
            self.on_pulse(leader, at, cx);
        }
    }

    /// The host that is to lead asks for it once it could for a while: its clock can be relied on, and the leader
    /// and it hear each other.
    pub(super) fn ask_to_lead(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, own) = (cx.now(), cx.node().host());
        let could = self.moves.hear_each_other(self.log.silent_after, now)
            && cx.wall().usable
            && !self.leads_here()
            && self.is_to_lead(own);
        if !could {
            self.moves.could_lead_since = None;
            return;
        }
        let since = *self.moves.could_lead_since.get_or_insert(now);
        if now.since(since) >= self.parameters.lead_after
            && self.may_ask(now)
            && let Some(leader) = self.leader
        {
            cx.mark("shard.asked_for_the_leadership");
            self.moves.asked_at = Some(now);
            let role = NodeId::new(leader.leader.host(), cx.node().host_slot());
            cx.send(role, AskToLead { role: cx.node() });
        }
    }

    /// True if the shard is where it is wanted, and that host is to lead it.
    fn is_to_lead(&self, host: HostId) -> bool {
        // By what the log says: this host may not have heard of the last change.
        let (Some(members), Some(placement)) = (self.moves.members_of_log(), &self.moves.placement) else {
            return false;
        };
        let wanted = placed(self.shard, &members, self.parameters.replicas);
        wanted.first() == Some(&host) && placement.is_placed(&wanted, &members)
    }
}

impl Lead {
    fn follow(
        &mut self,
        wanted: Option<&Members>,
        placement: &LogPlacement,
        log: EmbeddedLog,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let again_after = 10 * frame.parameters.resend_after;
        if placement.version > self.moved.from {
            self.moved = Moved { at: None, from: placement.version, attempts: 0 };
        }
        let is_due = self.moved.at.is_none_or(|at| cx.now().since(at) >= again_after);
        if !self.serves() || !is_due {
            return;
        }
        if let Some(wanted) = wanted.filter(|wanted| wanted.version > self.members.version) {
            self.moved.at = Some(cx.now());
            cx.mark("shard.logged_new_members");
            let bytes = wanted.hosts.iter().map(|host| host.name.len() + host.address.len() + 8).sum();
            let members = wanted.clone();
            self.steps.push(Follow { members: members.clone() }, Applied::Followed(members), bytes);
            return;
        }
        // Members that this host has not heard of are in the log: their hosts are known from there alone. Those of the bootstrap are in
        // the configuration.
        let of_log = Members { version: 0, hosts: placement.entries.clone() };
        let members = if self.members.version == 0 { &of_log } else { &self.members };
        let goal = placed(frame.shard, members, frame.parameters.replicas);
        if goal.is_empty() || placement.is_placed(&goal, members) {
            return;
        }
        let (present, own) = (placement.hosts(), cx.node().host());
        let step = next_step(present, &goal, members, own, self.moved.attempts);
        let next = step.unwrap_or_else(|| goal.clone());
        self.moved.at = Some(cx.now());
        self.moved.attempts += 1;
        // Who leaves hands over before, so that nobody waits for an election.
        if !next.contains(&own)
            && let Some(&to) = next.iter().find(|host| present.contains(host))
            && self.moved.attempts % HAND_OVERS_OF == 1
        {
            cx.mark("shard.handed_over_before_it_leaves");
            let to = log.node(to, LogRole::Leader);
            return cx.send(frame.log.leader, paxos::Message::from(leader::HandOver { to }));
        }
        if let Some(configuration) = log.configuration_placed(placement.version + 1, &next, members) {
            cx.mark("shard.moves_its_log");
            if self.txns.values().any(|active| active.stage.prepared_at().is_some()) {
                cx.mark("shard.moved_with_prepared");
            }
            let change = leader::ChangeConfiguration { configuration: Arc::new(configuration) };
            cx.send(frame.log.leader, paxos::Message::from(change));
        }
    }

    pub(super) fn on_followed(&mut self, members: Members) {
        if members.version > self.members.version {
            self.members = members;
            self.moved.at = None;
        }
    }

    pub(super) fn on_ask_to_lead(&mut self, host: HostId, cx: &mut Cx<'_, SpannerShard>) {
        let now = cx.now();
        match self.asked_by {
            Some((known, at)) if known == host && now.since(at) < 4 * FINISHES_FOR => {}
            Some(_) | None => self.asked_by = Some((host, now)),
        }
    }

    /// Hands over when nothing is in progress, or that has been waited for.
    fn hand_over_to_who_asked(&mut self, log: EmbeddedLog, cx: &mut Cx<'_, SpannerShard>) {
        let Some((host, since)) = self.asked_by else { return };
        if self.in_progress() == 0 || cx.now().since(since) >= FINISHES_FOR {
            self.asked_by = None;
            cx.mark("shard.handed_over_to_who_is_to_lead");
            let (leader, to) = (log.node(cx.node().host(), LogRole::Leader), log.node(host, LogRole::Leader));
            cx.send(leader, paxos::Message::from(leader::HandOver { to }));
        }
    }
}

/// One of so many attempts to leave hands the lead over: where that fails, the log moves all the same.
const HAND_OVERS_OF: usize = 3;
