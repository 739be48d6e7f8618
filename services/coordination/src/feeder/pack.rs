//! What a node holds: operations of one host's users, in their order, and what its feeder adds.

use kernel::{Bytes, NodeId};
use mason::{Gsn, Operation, ShardMap};

kernel::record! {
    /// A node's body.
    pub struct Pack {
        /// The feeder that has appended it.
        feeder: NodeId,
        /// Which run of that feeder.
        run: u64,
        /// Which node of the run.
        number: u64,
        /// The wall clock of its host, in milliseconds since 1970.
        time: u64,
        /// Positions below this are gone, as the feeder knew.
        trimmed: u64,
        /// At most [`ITEMS_MAX`].
        items: Vec<PackItem>,
    }
}

kernel::sum! {
    /// One thing to execute.
    pub enum PackItem {
        /// A gateway's operation.
        1 => Asked(Operation),
        /// Work that the sessions' part has asked for.
        2 => FollowUp(OwedWork),
        /// The group's clock goes on.
        3 => Tick(Tick),
        /// The tree is spread over other shards.
        4 => Reshard(Respread),
    }
}

kernel::record! {
    /// Work that the sessions' part has asked for.
    pub struct OwedWork {
        /// Its number among those.
        id: u64,
        /// What it is.
        body: Bytes,
    }
}

kernel::record! {
    /// The group's clock goes on. What it goes on by lies between two ticks, so no time is counted twice.
    pub struct Tick {
        /// One more than the position of the last node with a tick that the feeder has played; 0 if there was none.
        after: u64,
        /// Milliseconds since then, by the feeder's own clock.
        passed: u64,
    }
}

kernel::record! {
    /// Another shard map, if it follows the one in force.
    pub struct Respread {
        /// Its version.
        version: u64,
        /// Over how many shards.
        shards: u16,
    }
}

impl Respread {
    /// The shard map that it makes of this one, where there is room for so many shards; none if it does not follow.
    pub fn after(&self, now: &ShardMap, room: usize) -> Option<ShardMap> {
        let Self { version, shards } = *self;
        let follows = version == now.version + 1 && shards != now.shards;
        let fits = (1..=room).contains(&usize::from(shards));
        (follows && fits).then_some(ShardMap { version, shards, before: now.shards })
    }
}

/// Bits of a zxid below the position.
const INDEX_BITS: u32 = 12;
/// The most items of a node.
pub const ITEMS_MAX: usize = (1 << INDEX_BITS) - 1;

/// The zxid of an item. Those of a node are between those of the nodes around it.
pub fn zxid_of(position: u64, index: usize) -> Gsn {
    Gsn((position + 1) << INDEX_BITS | (index.min(ITEMS_MAX)) as u64)
}

/// No item of the nodes below this position has a larger one.
pub fn zxid_below(position: u64) -> Gsn {
    Gsn(((position + 1) << INDEX_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{Decode as _, Encode as _};

    // Zxids that are not in the order of their nodes show a client a past that it has left.
    #[test]
    fn zxids_follow_the_nodes() {
        assert!(zxid_of(0, 0) < zxid_of(0, 1) && zxid_of(0, ITEMS_MAX) < zxid_of(1, 0));
        assert_eq!(zxid_below(1), zxid_of(0, ITEMS_MAX));
        assert!(zxid_below(7) < zxid_of(7, 0) && zxid_below(0) < zxid_of(0, 0));
    }

    // Items that come out otherwise are executed otherwise.
    #[test]
    fn what_was_packed_comes_out() {
        let body = Bytes::from_static(b"what is asked");
        let operation = Operation { origin: NodeId::ZERO, incarnation: 1, tag: 2, body: body.clone() };
        let items = vec![
            PackItem::Asked(operation),
            PackItem::FollowUp(OwedWork { id: 3, body }),
            PackItem::Tick(Tick { after: 4, passed: 11 }),
            PackItem::Reshard(Respread { version: 5, shards: 6 }),
        ];
        let pack = Pack { feeder: NodeId::ZERO, run: 7, number: 8, time: 9, trimmed: 10, items };
        assert_eq!(Pack::decoded(&pack.encoded().into()), Ok(pack));
    }

    // A change that does not follow the shard map in force would be carried out on another one.
    #[test]
    fn a_resharding_follows_the_shard_map() {
        let now = ShardMap { version: 3, shards: 4, before: 4 };
        let of = |version, shards| Respread { version, shards }.after(&now, 5);
        assert_eq!(of(4, 5), Some(ShardMap { version: 4, shards: 5, before: 4 }));
        assert_eq!([of(3, 5), of(5, 5), of(4, 4), of(4, 6), of(4, 0)], [None, None, None, None, None]);
    }
}
