//! Numbers that a partition's state keeps beside what they count.

use super::{PartitionState, Queued, cost_of};
use kernel::Recount;

impl PartitionState {
    /// All of them.
    pub fn recounts(&self) -> Vec<Recount> {
        let singles = self.queue.values().filter_map(|queued| match queued {
            Queued::Single(single) => Some(cost_of(&single.content)),
            Queued::Pending | Queued::Fixed(_) => None,
        });
        let several = self.several.values().map(|several| cost_of(&several.content));
        let waiting = self.queue.values().filter(|queued| matches!(queued, Queued::Single(_))).count();
        let moving = self.several.values().filter(|several| !several.is_delivered()).count();
        vec![
            Recount::of("bytes of what is not delivered", self.content_bytes, singles.chain(several).sum()),
            Recount::of("appends that wait", self.waiting.len(), waiting),
            Recount::of("times in the queue", self.queue.len(), waiting + moving),
            self.clients.recount(),
            self.colours.recount(),
            self.colours.segments_recount(),
        ]
    }
}
