//! Where the shards are.

use crate::txn::{ShardId, shard_of, shard_of_range};
use kernel::{HostId, HostSlot, NodeId};
use wire::txn::KeyRange;

/// The roles of all shards, and which keys are whose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Where each shard's role is, on every host.
    pub shards: Vec<HostSlot>,
    /// Keys whose first parts, so many, are the same are in one shard; 0: each is placed by itself.
    pub spread_levels: u32,
}

impl Directory {
    /// How many shards there are.
    pub fn count(&self) -> u16 {
        self.shards.len() as u16
    }

    /// All shards.
    pub fn all(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.count()).map(ShardId)
    }

    /// The role of a shard that a host turns to: its own, which hands on what is for the leader, or for a replica.
    pub fn role(&self, shard: ShardId, host: HostId) -> Option<NodeId> {
        let slot = self.shards.get(usize::from(shard.0))?;
        Some(NodeId::new(host, *slot))
    }

    /// The shard of a key.
    pub fn shard_of(&self, key: &[u8]) -> ShardId {
        shard_of(key, self.spread_levels, self.count())
    }

    /// The shards that may have keys of a range.
    pub fn shards_of(&self, range: &KeyRange) -> Vec<ShardId> {
        match shard_of_range(range, self.spread_levels, self.count()) {
            Some(shard) => vec![shard],
            None => self.all().collect(),
        }
    }
}
