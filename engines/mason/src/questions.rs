//! What a gateway asks of its host's shards, gathered until a burst ends: one message goes to each.

use crate::Mason;
use crate::messages::shard::{ReadShard, ShardQuery};
use crate::order::{Gsn, Space};
use kernel::{Bytes, Cx, NodeId, Role};
use std::collections::BTreeMap;

/// Where a question goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct To {
    /// The shard.
    pub space: Space,
    /// The version of the shard map by which it was chosen; none where it does not matter.
    pub shard_map: Option<u64>,
}

/// Questions that are not sent yet.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    waiting: BTreeMap<To, Asked>,
}

#[derive(Clone, Debug, Default)]
struct Asked {
    at_least: u64,
    queries: Vec<ShardQuery>,
    limits: Vec<u64>,
}

impl Questions {
    /// Adds a question of a state that is not older than `at_least`, whose answer has room for `limit` bytes.
    pub fn ask(&mut self, to: To, (tag, body): (u64, Bytes), at_least: Gsn, limit: u64) {
        let asked = self.waiting.entry(to).or_default();
        asked.at_least = asked.at_least.max(at_least.0);
        asked.queries.push(ShardQuery { tag, body });
        asked.limits.push(limit);
    }

    /// Sends them to the host's servers, given by space.
    pub fn flush<R: Role<Family = Mason>>(&mut self, servers: &[NodeId], cx: &mut Cx<'_, R>) {
        for (To { space, shard_map }, Asked { at_least, queries: reads, limits }) in
            std::mem::take(&mut self.waiting)
        {
            if let Some(&server) = servers.get(usize::from(space.0)) {
                cx.send(
                    server,
                    ReadShard { at_least: Gsn(at_least), reads, shard_map, limits: Some(limits) },
                );
            }
        }
    }
}
