//! One input, exact effects: the decisions of the sequencer, of what a proxy's log does, and of a shard's server, one by one.

mod archive;
mod arranging;
mod blobs;
mod durable;
mod machine;
mod resharding;
mod rest;
mod sequencer;
mod shard;

use kernel::{Bytes, HostId, HostSlot, NodeId};
use mason::proxy::delivery::{Delivered, Run, Runs, Work};
use mason::{
    Group, Layout, Mason, MasonMessage, Number, Operation, Placed, ProxyGroup, Range, Space, Topology,
};
use std::sync::Arc;
use table::{Table, rejects, restored, sends};

const SEQUENCER: u32 = 0x100;
const GATEWAY: u32 = 0x101;

fn node(host: u32, slot: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(slot))
}

fn proxy(host: u32, group: u32) -> NodeId {
    node(host, 0x10 + group)
}

fn server(host: u32, space: u32) -> NodeId {
    node(host, 0x200 + space)
}

fn sequencer(host: u32) -> NodeId {
    node(host, SEQUENCER)
}

fn gateway(host: u32) -> NodeId {
    node(host, GATEWAY)
}

/// Two groups and two shards on hosts 1 to 3. Epoch `e` is offered to host `e % 3 + 1`.
fn topology() -> Arc<Topology> {
    let on_all = |at: &dyn Fn(u32) -> NodeId| (1..=3).map(at).collect::<Vec<_>>();
    Arc::new(Topology {
        version: 0,
        groups: (0..2).map(|group| ProxyGroup { proxies: on_all(&|host| proxy(host, group)) }).collect(),
        layout: Layout::at_bootstrap(2, 2),
        sequencers: on_all(&sequencer),
        shards: (0..2).map(|space| on_all(&|host| server(host, space))).collect(),
    })
}

fn at(space: u16, number: u64) -> Placed {
    Placed { space: Space(space), number: Number(number) }
}

fn range(space: u16, first: u64, count: u64) -> Range {
    Range { space: Space(space), first: Number(first), count }
}

fn operation(tag: u64, body: &'static [u8]) -> Operation {
    Operation { origin: gateway(1), incarnation: 1, tag, body: Bytes::from_static(body) }
}

type Did = table::Did<Mason>;

fn one(to: NodeId, message: impl Into<MasonMessage>) -> Vec<(NodeId, MasonMessage)> {
    vec![(to, message.into())]
}

fn all(
    to: impl IntoIterator<Item = NodeId>,
    message: impl Into<MasonMessage>,
) -> Vec<(NodeId, MasonMessage)> {
    let message = message.into();
    to.into_iter().map(|to| (to, message.clone())).collect()
}

fn proxies(group: Group) -> Vec<NodeId> {
    topology().proxies(group).to_vec()
}

/// The runs of `space` in which the operations are handed over.
fn runs_of(space: u16, entries: &[Delivered]) -> Vec<Run> {
    let mut runs = Runs::default();
    for Delivered { order, work } in entries {
        let number = order.number_in(Space(space)).expect("an operation of the space");
        let run = runs.at(&Placed { space: Space(space), number }, order.time);
        match work {
            Work::Operation(operation) => run.push(&order.numbers, order.gsn, operation),
            Work::NoOp => run.push_no_op(order.gsn),
            Work::Reshard(shard_map) => run.push_reshard(&order.numbers, order.gsn, shard_map),
        }
    }
    runs.finish()
}
