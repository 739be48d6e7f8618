//! Quotas in one shard: which of them live here, and how much there is below the paths that are asked for.
//!
//! Counts are no part of the replicated state: they are made when a gateway asks for the first time, and updated while
//! it goes on asking.

use crate::tree::Znodes;
use crate::tree::table::{Node, NodeIndex};
use crate::wire::{JuteOutput, is_limits};
use kernel::{Recount, planted};
use std::collections::{BTreeMap, BTreeSet};

/// How much there is below a path, the path included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Usage {
    nodes: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    limits: BTreeSet<NodeIndex>,
    counted: BTreeMap<Box<str>, Usage>,
}

fn holds(above: &str, path: &str) -> bool {
    above == "/" || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Quotas {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn inserted(&mut self, index: NodeIndex, path: &str, bytes: usize) {
        if is_limits(path) {
            self.limits.insert(index);
        }
        self.change(path, |usage| {
            usage.nodes += 1;
            usage.bytes += bytes as u64;
        });
    }

    pub(crate) fn updated(&mut self, path: &str, before: usize, after: usize) {
        self.change(path, |usage| usage.bytes = (usage.bytes + after as u64).saturating_sub(before as u64));
    }

    pub(crate) fn removed(&mut self, index: NodeIndex, path: &str, bytes: usize) {
        self.limits.remove(&index);
        self.change(path, |usage| {
            if !planted!(removed_node_stays_counted) {
                usage.nodes = usage.nodes.saturating_sub(1);
            }
            usage.bytes = usage.bytes.saturating_sub(bytes as u64);
        });
    }

    fn change(&mut self, path: &str, change: impl Fn(&mut Usage)) {
        let held = self.counted.iter_mut().filter(|(above, _)| holds(above, path));
        held.for_each(|(_, usage)| change(usage));
    }
}

impl Znodes {
    /// Nodes below paths with quotas, and their bytes, as they are counted and as they are.
    pub(super) fn recount_quotas(&self) -> [Recount; 2] {
        let mut counted = Usage::default();
        for above in self.quotas.counted.keys() {
            let usage = self.usage_below(above);
            counted = Usage { nodes: counted.nodes + usage.nodes, bytes: counted.bytes + usage.bytes };
        }
        let known = self.quotas.counted.values();
        let nodes = known.clone().map(|usage| usage.nodes).sum();
        let bytes = known.map(|usage| usage.bytes).sum();
        [
            Recount { what: "nodes below paths with quotas", known: nodes, counted: counted.nodes },
            Recount { what: "bytes below paths with quotas", known: bytes, counted: counted.bytes },
        ]
    }

    fn usage_below(&self, path: &str) -> Usage {
        let below = self.table.iter().filter(|node| holds(path, node.path()));
        below.fold(Usage::default(), |usage, node| Usage {
            nodes: usage.nodes + 1,
            bytes: usage.bytes + node.data().map_or(0, <[u8]>::len) as u64,
        })
    }

    /// Writes the limits that live here, and how much there is here below each of `paths`.
    pub(crate) fn write_quotas(&mut self, paths: &[&str], out: &mut Vec<u8>) {
        let nodes = self.quotas.limits.iter().filter_map(|&index| self.table.at(index));
        let limits: Vec<&Node> = nodes.collect();
        out.put_count(limits.len());
        for node in limits {
            out.put_text(node.path());
            out.put_buffer(Some(node.data().unwrap_or_default()));
        }
        let before = std::mem::take(&mut self.quotas.counted);
        for &path in paths {
            let usage = before.get(path).copied().unwrap_or_else(|| self.usage_below(path));
            out.put_u64(usage.nodes);
            out.put_u64(usage.bytes);
            self.quotas.counted.insert(path.into(), usage);
        }
    }
}
