//! What a home group remembers of its sessions: where they have made ephemeral nodes. What is forgotten of it is never cleaned up.

use super::node::Seat;
use super::rest::{self, Member};
use kernel::{HostId, NodeId, invariant};
use mason::{Group, MasonMember, Space};
use parts::Slot;
use sim::Cluster;
use std::collections::{BTreeMap, BTreeSet};

/// By session.
type Remembered = BTreeMap<u64, BTreeSet<Space>>;

/// What groups remember, as of the replica of each that is furthest.
#[derive(Debug, Default)]
pub(super) struct Memory {
    groups: BTreeMap<Group, (Slot, Remembered)>,
    /// What was remembered of a session last, by whichever group.
    last: Remembered,
}

impl Memory {
    /// Looks at what runs on a host, after a burst.
    pub(super) fn look(&mut self, host: HostId, cluster: &Cluster<'_, Seat>) {
        for (node, member) in rest::members_of(host, cluster) {
            self.look_at_replica(node, member);
        }
        for (node, member) in rest::members_of(host, cluster) {
            self.look_at_server(node, member);
        }
    }

    /// What is remembered of a session does not shrink, nor when it moves to another group.
    fn look_at_replica(&mut self, node: NodeId, member: &Member) {
        let MasonMember::Log(embedded) = member else { return };
        let paxos::Member::Replica(replica) = embedded.node() else { return };
        let (executed, machine) = (replica.executed(), replica.machine());
        let (furthest, known) = self.groups.entry(machine.group()).or_default();
        if executed <= *furthest || replica.is_joining() {
            return;
        }
        *furthest = executed;
        known.clear();
        for (session, spaces) in machine.stub().sessions().spaces_of_sessions() {
            let before = self.last.entry(session.0).or_default();
            invariant!(
                EPH,
                before.is_subset(spaces),
                "{node} remembers that session {session} has nodes in {spaces:?}, and it had some in {before:?}"
            );
            before.clone_from(spaces);
            known.insert(session.0, spaces.clone());
        }
    }

    /// Whose nodes a server has, their group knows of, until shards have handed over.
    fn look_at_server(&self, node: NodeId, member: &Member) {
        let MasonMember::Shard(server) = member else { return };
        if server.shard_map().version > 0 {
            return;
        }
        for owner in server.service().znodes().owners() {
            let known = self.groups.values().find_map(|(_, sessions)| sessions.get(&owner.0));
            invariant!(
                EPH,
                known.is_none_or(|spaces| spaces.contains(&server.space())),
                "{node} has nodes of session {owner}, and its group remembers some in {known:?} alone"
            );
        }
    }
}
