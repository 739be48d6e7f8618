//! Execution before the log has spoken: what planted bugs do and nobody else.

use super::{Frame, Pending, Proxy, Stage};
use crate::order::{Number, Order, Placed, Space};
use crate::proxy::entry::Delivered;
use crate::shard::Deliver;
use kernel::{Cx, NodeId, planted};
use std::collections::BTreeMap;

/// Hands a batch's operations to shards, as if the log had applied it.
pub(super) fn have_executed(pending: &Pending, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
    let Stage::Proposed { numbers, .. } = &pending.stage else { return };
    let mut next: BTreeMap<Space, Number> = numbers.rows.iter().map(|row| (row.space, row.first)).collect();
    let mut stamp = numbers.stamp;
    for item in &pending.items {
        let taken = item.spaces.iter().filter_map(|&space| {
            let number = next.get_mut(&space)?;
            let placed = Placed { space, number: *number };
            *number = number.next();
            Some(placed)
        });
        let order = Order { numbers: taken.collect(), stamp, time: numbers.time };
        stamp = stamp.next();
        for space in &item.spaces {
            let entry = Delivered { order: order.clone(), operation: Some(item.operation.clone()) };
            deliver(*space, entry, frame, cx);
        }
    }
}

/// Hands no-ops for a batch's numbers to shards, as if it could not be applied any more.
pub(super) fn have_no_ops_executed(pending: &Pending, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
    let Stage::Proposed { numbers, .. } = &pending.stage else { return };
    for row in &numbers.rows {
        for number in row.numbers() {
            let placed = Placed { space: row.space, number };
            let order = Order { numbers: vec![placed], stamp: numbers.stamp, time: numbers.time };
            deliver(row.space, Delivered { order, operation: None }, frame, cx);
        }
    }
}

fn deliver(space: Space, entry: Delivered, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
    let here = cx.node().host();
    let servers = frame.topology.servers(space).iter().copied();
    let servers: Vec<NodeId> = servers.filter(|server| planted!(M10) || server.host() == here).collect();
    let deliver = Deliver { group: frame.group, entries: vec![entry], cut: None };
    cx.multicast(servers, deliver);
}
