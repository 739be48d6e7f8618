//! What a group's replica shows to those who look inside.

use super::ProxyMachine;
use crate::order::{Number, Placed, Space};
use crate::service::Stub;
use crate::topology::Topology;
use kernel::NodeId;

impl<S: Stub> ProxyMachine<S> {
    /// Counts the leaders that have begun.
    pub fn leader_epoch(&self) -> u64 {
        self.state.epoch
    }

    /// What never sinks, for invariants: leaders that have begun, the sequencer in force, the last global sequence number, the clock, and
    /// the versions of the members, of those that the group has settled on, of the layout, and of the shard map that was handed over.
    pub fn rising(&self) -> [u64; 8] {
        let state = &self.state;
        let handed = self.handed().map_or(0, |shard_map| shard_map.version);
        let versions = [self.members_version(), state.settled.unwrap_or(0), self.layout().version, handed];
        let [members, settled, layout, handed] = versions;
        [state.epoch, state.sequencer, state.gsn.0, state.now.0, members, settled, layout, handed]
    }

    /// In which incarnation each origin speaks, of those that are remembered.
    pub fn origins(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.state.tags.iter().map(|known| (known.origin, known.incarnation))
    }

    /// Where the group's roles are, and the shards' servers, as far as the log says.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The low watermarks that the log has: enough servers have everything below in durable snapshots.
    pub fn low_watermarks(&self) -> &[Placed] {
        &self.state.durable
    }

    /// The version of the members that are all the group needs.
    pub fn settled(&self) -> Option<u64> {
        self.state.settled
    }

    /// The runs retained for shards, by their spaces, first numbers and ends; for invariants.
    pub fn retained(&self) -> impl Iterator<Item = (Space, Number, Number)> {
        self.retained.spans()
    }
}
