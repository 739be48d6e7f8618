//! What shards still watch for this gateway though nobody here does: reported to them in time, but never so that a registration
//! on its way is taken back with it.

use crate::gateway::Gateway;
use crate::gateway::watchers::Unwatched;
use crate::wire::{Query, WatchSeq};
use mason::Space;
use std::collections::BTreeMap;
use std::sync::Arc;

/// At most so many paths in one message.
const FORGET_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Unneeded {
    /// Whether all shards may know the path, and the last registration when it became unneeded.
    paths: BTreeMap<Arc<str>, (bool, WatchSeq)>,
    /// Registrations that were sent and are not answered, and by how many questions.
    in_flight: BTreeMap<WatchSeq, u32>,
}

impl Unneeded {
    pub(crate) fn sent(&mut self, watch: WatchSeq) {
        *self.in_flight.entry(watch).or_default() += 1;
    }

    pub(crate) fn answered(&mut self, watch: WatchSeq) {
        if let Some(count) = self.in_flight.get_mut(&watch) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&watch);
            }
        }
    }

    /// Every registration up to here is known to this gateway, if it was executed.
    fn known(&self, last: WatchSeq) -> WatchSeq {
        self.in_flight.keys().next().map_or(last, |first| WatchSeq(first.0 - 1))
    }
}

impl Gateway {
    /// Nobody watches these any more; the shards are notified in time.
    pub(crate) fn forget(&mut self, unwatched: impl IntoIterator<Item = Unwatched>) {
        let last = self.reads.last_watch();
        for Unwatched { path, recursive } in unwatched {
            let (everywhere, noted) = self.unneeded.paths.entry(path).or_insert((recursive, last));
            (*everywhere, *noted) = (*everywhere || recursive, last);
        }
    }

    /// Reports to the shards what nobody watches.
    pub(crate) fn send_unneeded(&mut self) {
        let through = self.unneeded.known(self.reads.last_watch());
        let mut by_space: BTreeMap<Space, Vec<Arc<str>>> = BTreeMap::new();
        let watchers = &self.watchers;
        self.unneeded.paths.retain(|path, (everywhere, noted)| {
            if watchers.knows(path) {
                // Watched anew: it becomes unneeded again later, or not.
                return *everywhere;
            }
            let here = self.settings.placement.space_of(path);
            for space in self.settings.placement.spaces().filter(|&space| *everywhere || space == here) {
                by_space.entry(space).or_default().push(path.clone());
            }
            // Until a registration that was in flight then is answered, the shards may keep it.
            *noted > through
        });
        for (space, paths) in by_space {
            for paths in paths.chunks(FORGET_MAX) {
                let query = Query::Forget { through, paths: paths.iter().map(|path| &**path).collect() };
                self.reads.ask_to_forget(space, self.marks.shard_map().version, &query);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A registration that was executed and is not heard of yet would be taken back with those that are known.
    #[test]
    fn what_is_in_flight_bounds_what_is_known() {
        let mut unneeded = Unneeded::default();
        [3, 5, 5].into_iter().for_each(|watch| unneeded.sent(WatchSeq(watch)));
        assert_eq!(unneeded.known(WatchSeq(9)), WatchSeq(2));
        unneeded.answered(WatchSeq(3));
        unneeded.answered(WatchSeq(5));
        assert_eq!(unneeded.known(WatchSeq(9)), WatchSeq(4), "one of two answers is missing");
        unneeded.answered(WatchSeq(5));
        assert_eq!(unneeded.known(WatchSeq(9)), WatchSeq(9));
    }
}
