//! Where the shards are.

use crate::txn::{ShardId, shard_of, shard_of_range};
use kernel::{HostId, NodeId};
use wire::txn::KeyRange;

/// The roles of all shards, and which keys are whose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    /// The roles of each shard, one a host.
    pub shards: Vec<Vec<NodeId>>,
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

    /// The role of a shard that a host turns to: its own, else the first. It hands on what is for the leader.
    pub fn role(&self, shard: ShardId, host: HostId) -> Option<NodeId> {
        let nodes = self.shards.get(usize::from(shard.0))?;
        nodes.iter().find(|node| node.host() == host).or_else(|| nodes.first()).copied()
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
