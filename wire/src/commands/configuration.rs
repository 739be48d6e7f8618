//! Who plays which role, as clients and hosts name it.

use kernel::bounds::CONFIGURATION_BYTES_MAX;
use kernel::{Decode, DecodeError, Encode, HostId, NodeId, Reader};
use parts::{AcceptorGroup, Acceptors, Slot};

kernel::record! {
    /// A machine, for those who dial.
    pub struct HostEntry {
        /// Its name; the identity is derived from it.
        name: String,
        /// Where its peers reach it, `name:port`; resolved on every dial.
        address: String,
    }
}

/// The placement of all roles, valid for the slots from `first_slot` until the next configuration's.
///
/// Invariant: one that was read takes [`CONFIGURATION_BYTES_MAX`] at most. It stands in a slot, in snapshots and in every heartbeat.
#[derive(Clone, PartialEq, Debug)]
pub struct Configuration {
    /// 0 for the cluster file's, then one more for each change.
    pub version: u64,
    /// The first slot it governs.
    pub first_slot: Slot,
    /// Who votes.
    pub acceptors: Acceptors,
    /// Who may lead.
    pub leaders: Vec<NodeId>,
    /// Who broadcasts for the leader.
    pub proxy_leaders: Vec<NodeId>,
    /// Who executes.
    pub replicas: Vec<NodeId>,
    /// Who takes clients' commands.
    pub batchers: Vec<NodeId>,
    /// Who answers clients.
    pub unbatchers: Vec<NodeId>,
    /// The machines.
    pub hosts: Vec<HostEntry>,
    /// Acceptors that joined after the bootstrap, each with the incarnation that joined; filled in by the leader.
    pub joined: Vec<(NodeId, u64)>,
}

impl Encode for Configuration {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.first_slot.encode(out);
        self.acceptors.encode(out);
        self.leaders.encode(out);
        self.proxy_leaders.encode(out);
        self.replicas.encode(out);
        self.batchers.encode(out);
        self.unbatchers.encode(out);
        self.hosts.encode(out);
        self.joined.encode(out);
    }
}

impl Decode for Configuration {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let begun = input.position();
        let it = Self {
            version: input.field()?,
            first_slot: input.field()?,
            acceptors: input.field()?,
            leaders: input.field()?,
            proxy_leaders: input.field()?,
            replicas: input.field()?,
            batchers: input.field()?,
            unbatchers: input.field()?,
            hosts: input.field()?,
            joined: input.field()?,
        };
        if input.position() - begun > CONFIGURATION_BYTES_MAX {
            return Err(DecodeError::Invalid("configuration of more nodes than any cluster has"));
        }
        Ok(it)
    }
}

impl Configuration {
    /// Every node that plays a role, each once.
    pub fn nodes(&self) -> Vec<NodeId> {
        let others = [&self.leaders, &self.proxy_leaders, &self.replicas, &self.batchers, &self.unbatchers];
        let mut nodes: Vec<NodeId> =
            others.into_iter().flatten().copied().chain(self.acceptors.nodes()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The group of acceptors that votes on `slot`.
    pub fn group(&self, slot: Slot) -> &AcceptorGroup {
        &self.acceptors.groups()[self.acceptors.group_of(slot)]
    }

    /// True if a replica runs on `host`.
    pub fn has_replica_on(&self, host: HostId) -> bool {
        self.replicas.iter().any(|replica| replica.host() == host)
    }

    /// True if it slots all roles as `other` does.
    pub fn is_like(&self, other: &Configuration) -> bool {
        let agreed =
            Configuration { first_slot: other.first_slot, joined: other.joined.clone(), ..self.clone() };
        agreed == *other
    }

    /// True if every role has a player; a configuration that lacks one could not go on.
    pub fn is_complete(&self) -> bool {
        let roles = [&self.leaders, &self.proxy_leaders, &self.replicas, &self.batchers, &self.unbatchers];
        roles.iter().all(|role| !role.is_empty())
    }
}
