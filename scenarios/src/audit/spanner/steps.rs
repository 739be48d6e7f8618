//! Names of steps: a leader proposes one content under a number. Which of two the log takes, it would not know.

use ::spanner::ShardId;
use ::spanner::machine::entry::Entry;
use kernel::{Bytes, Decode, NodeId, invariant};
use std::collections::BTreeMap;

/// What leaders have proposed.
#[derive(Debug, Default)]
pub(super) struct StepNames {
    /// By shard, leader and number.
    proposed: BTreeMap<(ShardId, u64, u64), u64>,
}

impl StepNames {
    pub(super) fn on_proposed(&mut self, from: NodeId, shard: ShardId, entry: &Bytes) {
        let Ok(Entry::Step(step)) = Entry::decoded(entry) else { return };
        let digest = parts::digest(entry);
        let known = *self.proposed.entry((shard, step.epoch, step.index)).or_insert(digest);
        invariant!(
            UNIQ,
            known == digest,
            "{from} proposes two steps {} of leader {} of shard {shard}",
            step.index,
            step.epoch
        );
    }
}
