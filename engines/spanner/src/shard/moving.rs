//! How a shard follows the cluster when its hosts change.
//!
//! ```text
//! host's server     shard's role that leads     log              every host's role
//!   | Members(v)        |                        |                    |
//!   |------------------>| Follow(v)              |                    |
//!   |                   |----------------------->| (chosen, applied)  |
//!   |                   | ChangeConfiguration    |                    |
//!   |                   |----------------------->| (learners vote)    |
//!   |                   |                        | Heartbeat          |
//!   |  settled          |                        |------------------->|
//!   |<----------------------------------------------------------------|
//! ```
//! The members stand in the log before the log moves: a later leader that has heard of fewer changes moves nothing back. The shard is
//! settled when all of its log is on the new hosts, in snapshots or in slots of the new configuration.

use super::SpannerShard;
use super::frame::Frame;
use super::lead::Lead;
use super::steps::Applied;
use crate::machine::entry::Follow;
use crate::messages::shard::FollowMembers;
use kernel::client::Response;
use kernel::{Bytes, Cx, Instant, NodeId, RequestId};
use paxos::multipaxos::{Pulse, leader};
use paxos::{EmbeddedLog, LogPlacement, Members};
use std::sync::Arc;

/// What a role answers that was asked to follow members: the shard needs no host but those.
const SETTLED: Bytes = Bytes::from_static(b"settled");
/// What it answers while that is not so, or not known here yet.
const UNSETTLED: Bytes = Bytes::from_static(b"unsettled");

/// Where the shard is to be, and where its log is.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    wanted: Option<Members>,
    placement: Option<LogPlacement>,
    /// When the leader was asked to follow.
    asked_at: Option<Instant>,
}

impl Moves {
    /// The shard is to be on these hosts, if nobody has said so of later ones.
    pub(super) fn want(&mut self, members: Members) {
        let is_newer = self.wanted.as_ref().is_none_or(|known| known.version < members.version);
        if !members.hosts.is_empty() && is_newer {
            self.wanted = Some(members);
        }
    }

    /// A leader of the log says where it is.
    pub(super) fn note(&mut self, pulse: &Pulse) {
        let placement = LogPlacement::of(pulse);
        if self.placement.as_ref().is_none_or(|known| known.version <= placement.version) {
            self.placement = Some(placement);
        }
    }

    /// The version of the members that the shard needs none beside, as far as this host knows; 0 for those of the bootstrap.
    fn settled_on(&self) -> u64 {
        let Some(wanted) = &self.wanted else { return 0 };
        let is_there = |placement: &LogPlacement| placement.is_on(wanted) && placement.is_settled;
        if self.placement.as_ref().is_some_and(is_there) { wanted.version } else { 0 }
    }
}

impl SpannerShard {
    /// The version of the cluster's members that the shard needs none beside, as far as this host knows; 0 for those of the bootstrap.
    pub fn settled_on(&self) -> u64 {
        self.moves.settled_on()
    }

    pub(super) fn on_members(&mut self, id: RequestId, members: Members, cx: &mut Cx<'_, Self>) {
        let version = members.version;
        self.moves.want(members);
        cx.respond(id, Response(if self.settled_on() >= version { SETTLED } else { UNSETTLED }));
    }

    /// First the members, so that later leaders find them in the log; then the log itself.
    pub(super) fn follow(&mut self, cx: &mut Cx<'_, Self>) {
        let (Some(wanted), Some(placement)) = (self.moves.wanted.clone(), self.moves.placement.clone())
        else {
            return;
        };
        if !self.leads_here() {
            return self.ask_to_follow(wanted, &placement, cx);
        }
        let log = self.embedded;
        self.leading(cx, |lead, frame, cx| lead.follow(&wanted, &placement, log, frame, cx));
    }
}

impl SpannerShard {
    /// The leader's host may be none of the members any more, and then nobody asks it but those who stay.
    fn ask_to_follow(&mut self, members: Members, placement: &LogPlacement, cx: &mut Cx<'_, Self>) {
        let again_after = 10 * self.parameters.resend_after;
        let is_due = self.moves.asked_at.is_none_or(|at| cx.now().since(at) >= again_after);
        if let Some(leader) = self.leader.filter(|_| is_due && !placement.is_on(&members)) {
            self.moves.asked_at = Some(cx.now());
            let role = NodeId::new(leader.leader.host(), cx.node().host_slot());
            cx.send(role, FollowMembers { members });
        }
    }
}

impl Lead {
    fn follow(
        &mut self,
        wanted: &Members,
        placement: &LogPlacement,
        log: EmbeddedLog,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let again_after = 10 * frame.parameters.resend_after;
        let is_due = self.moved_at.is_none_or(|at| cx.now().since(at) >= again_after);
        if !self.serves() || !is_due {
            return;
        }
        if wanted.version > self.members.version {
            self.moved_at = Some(cx.now());
            cx.mark("shard.logged_new_members");
            let bytes = wanted.hosts.iter().map(|host| host.name.len() + host.address.len() + 8).sum();
            let members = wanted.clone();
            self.steps.push(Follow { members: members.clone() }, Applied::Followed(members), bytes);
            return;
        }
        // Members that this host has not heard of are in the log: their hosts are known from there alone.
        if self.members.version == 0 || placement.is_on(&self.members) {
            return;
        }
        if let Some(configuration) = log.configuration(placement.version + 1, &self.members) {
            self.moved_at = Some(cx.now());
            cx.mark("shard.moves_its_log");
            let change = leader::ChangeConfiguration { configuration: Arc::new(configuration) };
            cx.send(frame.log.leader, paxos::Message::from(change));
        }
    }

    pub(super) fn on_followed(&mut self, members: Members) {
        if members.version > self.members.version {
            (self.members, self.moved_at) = (members, None);
        }
    }
}
