//! How far each shard has told this gateway of its events, and by which spread.

use mason::{Space, Spread};

/// One of each shard there is room for.
#[derive(Debug)]
pub(crate) struct Marks {
    through: Vec<u64>,
    /// The version of the spread that a shard has said it has come to.
    come_to: Vec<u64>,
    /// The newest that any shard has come to: by it shards are chosen.
    spread: Spread,
}

impl Marks {
    pub(crate) fn new(room: usize, spread: Spread) -> Self {
        Self { through: vec![0; room], come_to: vec![spread.version; room], spread }
    }

    pub(crate) fn spread(&self) -> &Spread {
        &self.spread
    }

    /// Every event of the shard up to `stamp` has arrived.
    pub(crate) fn advance(&mut self, space: Space, stamp: u64) {
        if let Some(through) = self.through.get_mut(usize::from(space.0)) {
            *through = stamp.max(*through);
        }
    }

    pub(crate) fn of(&self, space: Space) -> u64 {
        self.through.get(usize::from(space.0)).copied().unwrap_or(0)
    }

    /// The shard has come to this spread. True if that is news of the spread.
    pub(crate) fn come_to(&mut self, space: Space, spread: &Spread) -> bool {
        if let Some(version) = self.come_to.get_mut(usize::from(space.0)) {
            *version = spread.version.max(*version);
        }
        let news = spread.version > self.spread.version;
        if news {
            self.spread = spread.clone();
        }
        news
    }

    /// Some shard has still to hand over: it may tell of nodes that others are asked for by now.
    pub(crate) fn is_mixed(&self) -> bool {
        let come_to = |space: Space| self.come_to.get(usize::from(space.0)).copied().unwrap_or(u64::MAX);
        self.spread.version > 0 && self.spread.spaces().any(|space| come_to(space) < self.spread.version)
    }

    /// Where the events of every shard that is in use have arrived up to.
    pub(crate) fn least(&self) -> u64 {
        self.spread.spaces().map(|space| self.of(space)).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A node's events come from the shard that has it: while it is on its way, from either of two.
    #[test]
    fn all_shards_count_while_some_have_to_hand_over() {
        let mut marks = Marks::new(4, Spread::at_bootstrap(2));
        (0..2).for_each(|space| marks.advance(Space(space), 10));
        assert_eq!((marks.is_mixed(), marks.least()), (false, 10), "what is not in use does not count");
        let spread = Spread { version: 3, shards: 3, before: 2 };
        assert!(marks.come_to(Space(0), &spread), "news");
        assert_eq!((marks.is_mixed(), marks.least()), (true, 0));
        assert!(!marks.come_to(Space(1), &spread), "no news any more");
        marks.come_to(Space(2), &spread);
        marks.advance(Space(2), 9);
        assert_eq!((marks.is_mixed(), marks.least()), (false, 9));
    }
}
