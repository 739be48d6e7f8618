//! Execution before the log has spoken: what planted bugs do and nobody else.

use super::{Frame, Pending, Proxy, Stage};
use crate::messages::shard::Deliver;
use crate::order::{Number, Placed, Space};
use crate::proxy::delivery::{Run, RunWriter};
use kernel::{Cx, NodeId, planted};
use std::collections::BTreeMap;

/// Hands a batch's operations to shards, as if the log had applied it.
pub(super) fn have_executed(pending: &Pending, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
    let Stage::Proposed { numbers, .. } = &pending.stage else { return };
    let mut next: BTreeMap<Space, Number> = numbers.rows.iter().map(|row| (row.space, row.first)).collect();
    let (mut gsn, time) = (numbers.gsn, numbers.time);
    for item in &pending.items {
        let taken = item.spaces.iter().filter_map(|&space| {
            let number = next.get_mut(&space)?;
            let placed = Placed { space, number: *number };
            *number = number.next();
            Some(placed)
        });
        let numbers: Vec<Placed> = taken.collect();
        for placed in &numbers {
            let push = |run: &mut RunWriter| run.push(&numbers, gsn, &item.operation);
            deliver(placed, time, push, frame, cx);
        }
        gsn = gsn.next();
    }
}

/// Hands no-ops for a batch's numbers to shards, as if it could not be applied any more.
pub(super) fn have_no_ops_executed(pending: &Pending, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
    let Stage::Proposed { numbers, .. } = &pending.stage else { return };
    for row in &numbers.rows {
        for number in row.numbers() {
            let placed = Placed { space: row.space, number };
            deliver(&placed, numbers.time, |run| run.push_no_op(numbers.gsn), frame, cx);
        }
    }
}

fn deliver(
    placed: &Placed,
    time: u64,
    push: impl FnOnce(&mut RunWriter),
    frame: &Frame<'_>,
    cx: &mut Cx<'_, Proxy>,
) {
    let here = cx.node().host();
    let servers = frame.topology.servers(placed.space).iter().copied();
    let servers: Vec<NodeId> =
        servers.filter(|server| planted!(operations_not_in_log) || server.host() == here).collect();
    let mut run = Run::begin(placed.space, placed.number, time, 0);
    push(&mut run);
    cx.multicast(
        servers,
        Deliver { group: frame.group, runs: run.finish().into_iter().collect(), cut: None, more: false },
    );
}
