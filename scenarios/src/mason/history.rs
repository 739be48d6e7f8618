//! What callers asked for and were given, and what must hold of it.

use super::Node;
use ::mason::{Gsn, Number, Order, Space};
use kernel::{Bytes, Decode, NodeId, RequestId, invariant};
use sim::Cluster;
use std::collections::BTreeMap;
use std::fmt::Write as _;

struct Asked {
    node: NodeId,
    spaces: Vec<Space>,
    label: Bytes,
    at: u64,
    /// The highest global sequence number that anybody had received when this was asked: its own must be larger.
    after: Gsn,
    answered: Option<(u64, Order)>,
}

/// All calls of one run.
#[derive(Default)]
pub(super) struct History {
    calls: BTreeMap<RequestId, Asked>,
    given: BTreeMap<(Space, Number), (RequestId, Gsn)>,
    highest: Gsn,
}

impl History {
    pub(super) fn asked(&mut self, id: RequestId, node: NodeId, spaces: Vec<Space>, label: Bytes, at: u64) {
        let label = Bytes::from([label.as_ref(), b"/", id.0.to_string().as_bytes()].concat());
        let asked = Asked { node, spaces, label, at, after: self.highest, answered: None };
        self.calls.insert(id, asked);
    }

    pub(super) fn forget(&mut self, _gateway: NodeId) {}

    pub(super) fn answered(&mut self, id: RequestId, order: &Bytes, now: u64) {
        let Some(asked) = self.calls.get_mut(&id) else { return };
        if *order == sequence::UNKNOWN {
            return;
        }
        if *order == sequence::DISK_FULL {
            // Whatever is given for it now is given for nothing that was asked.
            self.calls.remove(&id);
            return;
        }
        let order = Order::decoded(order).expect("a space was asked for, so an order is the answer");
        let spaces: Vec<Space> = order.numbers.iter().map(|placed| placed.space).collect();
        invariant!(UNIQ, spaces == asked.spaces, "asked for {:?}, given {:?}", asked.spaces, order.numbers);
        invariant!(
            RT,
            order.gsn > asked.after,
            "{} was asked after {} had been given, and was given {}",
            id.0,
            asked.after,
            order.gsn
        );
        for placed in &order.numbers {
            let position = (placed.space, placed.number);
            let other = self.given.insert(position, (id, order.gsn));
            invariant!(UNIQ, other.is_none(), "{placed:?} was given to {} and to {other:?}", id.0);
            let before = self.given.range((placed.space, Number(0))..position).next_back();
            let after = self
                .given
                .range((placed.space, placed.number.next())..(placed.space.next(), Number(0)))
                .next();
            let ordered = before.is_none_or(|(_, (_, gsn))| *gsn < order.gsn)
                && after.is_none_or(|(_, (_, gsn))| *gsn > order.gsn);
            invariant!(
                MSO,
                ordered,
                "{placed:?} with gsn {} lies between {before:?} and {after:?}",
                order.gsn
            );
        }
        self.highest = self.highest.max(order.gsn);
        asked.answered = Some((now, order));
    }

    /// What was answered is in every space it was ordered in, once, on every server that has come that far; and what is in one
    /// space is in all of its spaces.
    pub(super) fn check(&self, cluster: &Cluster<'_, Node>) {
        for (node, member) in cluster.nodes() {
            let Node::Shard(server) = member else { continue };
            let mut seen: BTreeMap<Bytes, Gsn> = BTreeMap::new();
            for given in server.service().latest() {
                let twice = seen.insert(given.label.clone(), given.gsn);
                invariant!(
                    UNIQ,
                    twice.is_none(),
                    "{node} executed {:?} at {twice:?} and at {}",
                    given.label,
                    given.gsn
                );
            }
            for asked in self.calls.values() {
                let Some((_, order)) = &asked.answered else { continue };
                let Some(number) = order.number_in(server.space()).filter(|number| *number < server.next())
                else {
                    continue;
                };
                let label = asked.label.split(|byte| *byte == b'/').next().unwrap_or_default();
                let at = seen.get(label);
                invariant!(
                    DUR,
                    at == Some(&order.gsn),
                    "{node} is beyond number {number} and has not executed {:?} there but at {at:?}",
                    asked.label
                );
            }
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (id, asked) in &self.calls {
            let outcome = asked.answered.as_ref().map(|(at, order)| format!("{at} {order:?}"));
            let outcome = outcome.unwrap_or_else(|| "unknown".to_owned());
            let Asked { node, spaces, at, .. } = asked;
            let _ = writeln!(text, "{} {node} {at} {spaces:?} -> {outcome}", id.0);
        }
        text
    }
}
