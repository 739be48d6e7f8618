//! What shards have in durable snapshots, and what need not be retained for them any more: the low watermarks.

use super::{Lead, propose};
use crate::order::{Number, Placed, Space};
use crate::proxy::entry::Entry;
use crate::proxy::{Frame, Proxy, ShardDurable};
use crate::topology::Topology;
use kernel::{Cx, Instant, NodeId};

/// A low watermark that enough servers have reached, and the last one has not.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    number: Number,
    since: Instant,
    /// What this leader had put into the log by then.
    proposed_bytes: u64,
}

/// Waiting ends when so many bytes of operations have come: what is retained for the last server has a bound.
const RETAINED_FOR_LAST_BYTES_MAX: u64 = 32 << 20;

impl Lead {
    pub(in crate::proxy) fn on_shard_durable(
        &mut self,
        from: NodeId,
        message: ShardDurable,
        frame: &Frame<'_>,
    ) {
        let Placed { space, number } = message.below;
        if frame.topology.serves(space, from) {
            let known = self.durable.entry((space, from)).or_insert(number);
            *known = number.max(*known);
        }
    }

    /// What need not be retained for shards any more.
    pub(super) fn log_durable(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let mut low_watermarks = Vec::new();
        for space in frame.topology.spaces() {
            let logged = self.durable_logged.get(&space).copied().unwrap_or(Number(0));
            let number = self.low_watermark(space, logged, frame, cx.now());
            if number > logged {
                self.durable_logged.insert(space, number);
                low_watermarks.push(Placed { space, number });
            }
        }
        if !low_watermarks.is_empty() {
            propose(&Entry::Durable { low_watermarks, version: Some(frame.topology.version) }, frame, cx);
        }
    }

    /// What one server more than may fail has in durable snapshots need not be retained for those that lag. But the last one gets some
    /// time more: if all hosts die before its snapshot is durable, it has to take a peer's, the whole state, when they start again.
    fn low_watermark(&mut self, space: Space, logged: Number, frame: &Frame<'_>, now: Instant) -> Number {
        let enough = self.durable_at(space, frame.topology);
        if logged >= enough {
            return enough;
        }
        let all = self.durable_numbers(space, frame.topology).last().copied().unwrap_or(Number(0));
        if all >= enough {
            self.waits_for_last.remove(&space);
            return enough;
        }
        let proposed_bytes = self.proposed_bytes;
        let wait =
            self.waits_for_last.entry(space).or_insert(Wait { number: enough, since: now, proposed_bytes });
        let retained_longer = proposed_bytes - wait.proposed_bytes;
        if now.since(wait.since) < frame.parameters.wait_for_last
            && retained_longer < RETAINED_FOR_LAST_BYTES_MAX
        {
            return all;
        }
        let number = wait.number;
        self.waits_for_last.remove(&space);
        number.max(all)
    }

    /// Below which numbers the servers have everything in durable snapshots, the highest first.
    fn durable_numbers(&self, space: Space, topology: &Topology) -> Vec<Number> {
        let known = |&server: &NodeId| self.durable.get(&(space, server)).copied().unwrap_or(Number(0));
        let mut numbers: Vec<Number> = topology.servers(space).iter().map(known).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers
    }

    /// The number below which one server more than may fail has everything in durable snapshots.
    fn durable_at(&self, space: Space, topology: &Topology) -> Number {
        let numbers = self.durable_numbers(space, topology);
        let spare = usize::from(kernel::planted!(low_watermark_one_server_short));
        numbers.get((numbers.len().saturating_sub(1) / 2).saturating_sub(spare)).copied().unwrap_or(Number(0))
    }

    /// Those of the log, and no others.
    pub(in crate::proxy) fn hold_low_watermarks(&mut self, low_watermarks: Vec<Placed>) {
        self.waits_for_last.clear();
        self.durable_logged = low_watermarks
            .into_iter()
            .map(|low_watermark| (low_watermark.space, low_watermark.number))
            .collect();
    }

    /// True if enough of these servers are durable as far as the log's low watermarks, of whichever servers those were counted.
    pub(in crate::proxy) fn low_watermarks_are_reached(&self, topology: &Topology) -> bool {
        self.durable_logged
            .iter()
            .all(|(&space, &low_watermark)| self.durable_at(space, topology) >= low_watermark)
    }
}
