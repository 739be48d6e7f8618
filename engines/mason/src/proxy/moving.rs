//! How a group follows the cluster when its hosts change.
//!
//! ```text
//! host's server     proxy that leads      log                  every host's replica
//!   | Members(v)        |                  |                       |
//!   |------------------>| Members(v)       |                       |
//!   |                   |----------------->| (chosen)   DidMove    |
//!   |                   |   Reconfigure    |---------------------->| proxy, shards, standby
//!   |                   |----------------->| (learners vote, old ones are sealed)
//!   |                   | Settled(v)       |                       |
//!   |                   |----------------->| (chosen)   DidSettle  |
//!   |  settled          |                  |---------------------->| proxy
//!   |<------------------|
//! ```
//! Settled is what the group can do without the hosts that left: its log is on the new ones, and of the new shard servers as many
//! as may fail, plus one, have everything below the low watermarks in durable snapshots. What is above, the logs have. It stands in the
//! log, so that every host can say so.

use super::entry::Entry;
use super::leading::Lead;
use super::{DidMove, Proxy};
use crate::slots::log_of;
use kernel::client::Response;
use kernel::{Bytes, Cx, RequestId};
use paxos::multipaxos::leader;
use paxos::{LogPlacement, Members};
use std::sync::Arc;

/// What a proxy answers to [`Members`]: the group needs no host but those.
pub const SETTLED: Bytes = Bytes::from_static(b"settled");
/// What it answers while that is not so, or not known here yet.
pub const UNSETTLED: Bytes = Bytes::from_static(b"unsettled");

impl Proxy {
    /// True if the group needs none but these hosts, as far as its leader is here and knows.
    fn is_settled_on(&self, members: &Members) -> bool {
        let on_them = |placed: &LogPlacement| placed.is_on(members) && placed.is_settled;
        self.topology.version >= members.version
            && self.placed.as_ref().is_some_and(on_them)
            && self.lead.as_ref().is_some_and(|lead| {
                lead.has_begun()
                    && (lead.low_watermarks_are_reached(&self.topology)
                        || kernel::planted!(settled_before_servers_durable))
            })
    }

    /// The version of the members that the group needs none beside, as far as this host knows; 0 for those of the bootstrap.
    pub fn settled_on(&self) -> u64 {
        self.settled_on
    }

    pub(super) fn on_wanted(&mut self, id: RequestId, members: Members, cx: &mut Cx<'_, Self>) {
        let settled = self.settled_on >= members.version;
        if !members.hosts.is_empty()
            && self.wanted.as_ref().is_none_or(|known| known.version < members.version)
        {
            self.wanted = Some(members);
        }
        cx.respond(id, Response(if settled { SETTLED } else { UNSETTLED }));
    }

    pub(super) fn on_did_move(&mut self, message: DidMove) {
        let DidMove { members, durable } = message;
        if members.version > self.topology.version {
            self.topology = Arc::new(self.topology.moved_to(&members));
        }
        // What the log has is what every later leader goes on with, whether its own host's server has spoken or not.
        if self.wanted.as_ref().is_none_or(|known| known.version < members.version) {
            self.wanted = Some(members);
        }
        if let Some(lead) = &mut self.lead {
            lead.hold_low_watermarks(durable);
        }
    }

    /// First the members, so that learners find them in the log; then the log itself.
    pub(super) fn move_on(&mut self, cx: &mut Cx<'_, Self>) {
        let (Some(wanted), Some(placed)) = (&self.wanted, &self.placed) else { return };
        let resend_after = self.parameters.resend_after;
        if !self.lead.as_mut().is_some_and(|lead| lead.may_move(cx.now(), resend_after)) {
            return;
        }
        if wanted.version > self.topology.version {
            cx.mark("proxy.logged_new_members");
            return Lead::propose_members(wanted, self.log.leader, cx);
        }
        if wanted.version < self.topology.version {
            return;
        }
        if placed.is_on(wanted) {
            if wanted.version > self.settled_on && self.is_settled_on(wanted) {
                cx.mark("proxy.settled_on_new_members");
                Lead::propose_entry(&Entry::Settled { version: wanted.version }, self.log.leader, cx);
            }
            return;
        }
        let configuration = log_of(self.log.first, self.group).configuration(placed.version + 1, wanted);
        if let Some(configuration) = configuration {
            cx.mark("proxy.moves_its_log");
            let message = leader::ChangeConfiguration { configuration: Arc::new(configuration) };
            cx.send(self.log.leader, paxos::Message::from(message));
        }
    }
}
