//! How far each shard has sent this gateway its events, and by which shard map.

use mason::{ShardMap, Space};

/// One of each shard there is room for.
#[derive(Debug)]
pub(crate) struct Marks {
    through: Vec<u64>,
    /// The version of the shard map that a shard has said it has come to.
    come_to: Vec<u64>,
    /// The newest that any shard has come to: by it shards are chosen.
    shard_map: ShardMap,
}

impl Marks {
    pub(crate) fn new(room: usize, shard_map: ShardMap) -> Self {
        Self { through: vec![0; room], come_to: vec![shard_map.version; room], shard_map }
    }

    pub(crate) fn shard_map(&self) -> &ShardMap {
        &self.shard_map
    }

    /// Every event of the shard up to `gsn` has arrived.
    pub(crate) fn advance(&mut self, space: Space, gsn: u64) {
        if let Some(through) = self.through.get_mut(usize::from(space.0)) {
            *through = gsn.max(*through);
        }
    }

    pub(crate) fn of(&self, space: Space) -> u64 {
        self.through.get(usize::from(space.0)).copied().unwrap_or(0)
    }

    /// The shard has come to this shard map. True if that is news of the shard map.
    pub(crate) fn come_to(&mut self, space: Space, shard_map: &ShardMap) -> bool {
        if let Some(version) = self.come_to.get_mut(usize::from(space.0)) {
            *version = shard_map.version.max(*version);
        }
        let news = shard_map.version > self.shard_map.version;
        if news {
            self.shard_map = shard_map.clone();
        }
        news
    }

    /// Some shard has still to hand over: it may announce changes of nodes that others are asked for by now.
    pub(crate) fn is_mixed(&self) -> bool {
        let come_to = |space: Space| self.come_to.get(usize::from(space.0)).copied().unwrap_or(u64::MAX);
        self.shard_map.version > 0
            && self.shard_map.spaces().any(|space| come_to(space) < self.shard_map.version)
    }

    /// Where the events of every shard that is in use have arrived up to.
    pub(crate) fn least(&self) -> u64 {
        self.shard_map.spaces().map(|space| self.of(space)).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A node's events come from the shard that has it: while it is on its way, from either of two.
    #[test]
    fn all_shards_count_while_some_have_to_resharding() {
        let mut marks = Marks::new(4, ShardMap::at_bootstrap(2));
        (0..2).for_each(|space| marks.advance(Space(space), 10));
        assert_eq!((marks.is_mixed(), marks.least()), (false, 10), "what is not in use does not count");
        let shard_map = ShardMap { version: 3, shards: 3, before: 2 };
        assert!(marks.come_to(Space(0), &shard_map), "news");
        assert_eq!((marks.is_mixed(), marks.least()), (true, 0));
        assert!(!marks.come_to(Space(1), &shard_map), "no news any more");
        marks.come_to(Space(2), &shard_map);
        marks.advance(Space(2), 9);
        assert_eq!((marks.is_mixed(), marks.least()), (false, 9));
    }
}
