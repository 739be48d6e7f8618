//! What shards have in durable snapshots, and what need not be retained for them any more: the low watermarks.

use super::{Lead, propose};
use crate::order::{Number, Placed, Space};
use crate::proxy::entry::Entry;
use crate::proxy::{Frame, Proxy, ShardDurable};
use crate::topology::Topology;
use kernel::{Cx, NodeId};

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

    /// What one server more than may fail has in durable snapshots need not be retained for those that lag.
    pub(super) fn log_durable(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let mut low_watermarks = Vec::new();
        for space in frame.topology.spaces() {
            let number = self.durable_at(space, frame.topology);
            let logged = self.durable_logged.entry(space).or_insert(Number(0));
            if number > *logged {
                *logged = number;
                low_watermarks.push(Placed { space, number });
            }
        }
        if !low_watermarks.is_empty() {
            propose(&Entry::Durable { low_watermarks, version: Some(frame.topology.version) }, frame, cx);
        }
    }

    /// The number below which one server more than may fail has everything in durable snapshots.
    fn durable_at(&self, space: Space, topology: &Topology) -> Number {
        let servers = topology.servers(space);
        let known = |server| self.durable.get(&(space, server)).copied().unwrap_or(Number(0));
        let mut numbers: Vec<Number> = servers.iter().copied().map(known).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let spare = usize::from(kernel::planted!(low_watermark_one_server_short));
        numbers.get((servers.len().saturating_sub(1) / 2).saturating_sub(spare)).copied().unwrap_or(Number(0))
    }

    /// Those of the log, and no others.
    pub(in crate::proxy) fn hold_low_watermarks(&mut self, low_watermarks: Vec<Placed>) {
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
