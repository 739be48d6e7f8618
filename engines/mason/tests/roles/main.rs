//! One input, exact effects: the decisions of the sequencer, of what a proxy's log does, and of a shard's server, one by one.

mod archive;
mod arranging;
mod blobs;
mod machine;
mod sequencer;
mod shard;
mod spreading;

use kernel::{
    Bytes, Cx, Effect, Effects, HostId, Instant, NodeId, Place, Position, Rng, Role, Situation, Wall,
};
use mason::proxy::delivery::{Delivered, Run, Runs, Work};
use mason::{
    Group, Layout, Mason, Message, Number, Operation, Placed, ProxyGroup, Range, Response, Space, Topology,
};
use std::sync::Arc;

const SEQUENCER: u32 = 0x100;
const GATEWAY: u32 = 0x101;

fn node(host: u32, place: u32) -> NodeId {
    NodeId::new(HostId(host), Place(place))
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
        layout: Layout::of_birth(2, 2),
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

/// A role on a table: its clock is turned by hand.
struct Bench<R: Role<Family = Mason>> {
    role: R,
    me: NodeId,
    now: u64,
    rng: Rng,
    effects: Effects<Mason>,
}

type Did = Vec<Effect<Message, Response>>;

impl<R: Role<Family = Mason>> Bench<R> {
    fn new(role: R, me: NodeId) -> Self {
        let effects = Effects::new(Position(0), false);
        let mut bench = Self { role, me, now: 1 << 40, rng: Rng::seeded(1), effects };
        bench.call(|role, cx| role.on_start(cx));
        bench
    }

    fn call(&mut self, call: impl FnOnce(&mut R, &mut Cx<'_, R>)) -> Did {
        let situation = Situation {
            node: self.me,
            now: Instant(self.now),
            wall: Wall { earliest: 0, latest: 0 },
            rng: &mut self.rng,
        };
        call(&mut self.role, &mut Cx::new(situation, &mut self.effects));
        self.effects.drain().collect()
    }

    fn hear(&mut self, from: NodeId, message: impl Into<R::In>) -> Did {
        let message = message.into();
        self.call(|role, cx| role.on_message(from, message, cx))
    }

    /// A message, and the end of the burst it came in.
    fn burst(&mut self, from: NodeId, message: impl Into<R::In>) -> Did {
        let mut did = self.hear(from, message);
        did.extend(self.call(|role, cx| role.on_burst_end(cx)));
        did
    }

    fn journal(&mut self) -> Vec<Bytes> {
        let records = self.effects.records().map(|record| Bytes::copy_from_slice(record.bytes)).collect();
        self.effects.clear_records();
        records
    }
}

fn sends(did: &Did) -> Vec<(NodeId, Message)> {
    let sent = did.iter().filter_map(|effect| match effect {
        Effect::Send { to, message } | Effect::SendDurable { to, message, .. } => {
            Some((*to, message.clone()))
        }
        _ => None,
    });
    sent.collect()
}

fn one(to: NodeId, message: impl Into<Message>) -> Vec<(NodeId, Message)> {
    vec![(to, message.into())]
}

fn all(to: impl IntoIterator<Item = NodeId>, message: impl Into<Message>) -> Vec<(NodeId, Message)> {
    let message = message.into();
    to.into_iter().map(|to| (to, message.clone())).collect()
}

fn rejects(did: &Did) -> bool {
    matches!(did[..], [Effect::Reject { .. }])
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
            Work::Operation(operation) => run.push(&order.numbers, order.stamp, operation),
            Work::NoOp => run.push_no_op(order.stamp),
            Work::HandOver(spread) => run.push_hand_over(&order.numbers, order.stamp, spread),
        }
    }
    runs.finish()
}
