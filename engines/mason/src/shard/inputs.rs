//! The exchange of inputs: what the participants of an operation send one another.
//!
//! Most say one thing to all others. At a resharding (see [`super::resharding`]) every one has parts of its state for each of the
//! others; they are asked for in pages. Inputs are retained, in snapshots too, until nobody can need them.

use super::{Inputs, Settled, ShardBehind, ShardServer, WantInputs};
use crate::order::{Number, Order, Placed, Space};
use crate::proxy::delivery::Work;
use crate::service::Shard;
use kernel::{Bytes, Cx, Encode, NodeId};
use std::collections::BTreeMap;

/// Inputs are sent again in pages of about so many bytes: a server that starts from an old snapshot lacks those of many operations.
const INPUTS_PAGE_BYTES: usize = 256 << 10;

/// What was said, by whom, of which operation.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// What other participants have said of operations of this space.
    received: BTreeMap<(Number, Space), Received>,
    /// What this one has said.
    sent: BTreeMap<Number, Sent>,
    /// How far participants want nothing any more, by their space.
    settled: BTreeMap<Space, Number>,
}

#[derive(Debug)]
struct Received {
    parts: Vec<Bytes>,
    of: u32,
}

/// Inputs that other participants may still need: of an operation in this space.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sent {
    pub(super) others: Vec<Placed>,
    pub(super) parts: Vec<Part>,
}

/// A part of what is said.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Part {
    /// To whom; none: to all.
    pub(super) to: Option<Space>,
    pub(super) bytes: Bytes,
}

impl Sent {
    /// Of all parts, and of whom they are for.
    pub(super) fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        for Part { to, bytes: part } in &self.parts {
            to.encode(&mut bytes);
            part.encode(&mut bytes);
        }
        parts::digest(&bytes)
    }

    fn parts_for(&self, space: Space) -> impl Iterator<Item = &Bytes> {
        let mine = move |part: &&Part| part.to.is_none_or(|to| to == space);
        self.parts.iter().filter(mine).map(|part| &part.bytes)
    }
}

impl Exchange {
    fn is_complete(&self, number: Number, space: Space) -> bool {
        self.received.get(&(number, space)).is_some_and(|it| it.parts.len() == it.of as usize)
    }

    /// How many parts are here.
    fn parts_of(&self, number: Number, space: Space) -> u32 {
        self.received.get(&(number, space)).map_or(0, |it| it.parts.len() as u32)
    }

    /// Parts come in order: one that does not follow is asked for again.
    fn receive(&mut self, number: Number, space: Space, (index, of): (u32, u32), bytes: Bytes) {
        let received = self.received.entry((number, space)).or_insert(Received { parts: Vec::new(), of });
        if received.of == of && received.parts.len() == index as usize && index < of {
            received.parts.push(bytes);
        }
    }

    pub(super) fn take(&mut self, number: Number, space: Space) -> Option<Vec<Bytes>> {
        self.received.remove(&(number, space)).map(|it| it.parts)
    }

    /// A snapshot has it all, and says what was said.
    pub(super) fn begin_at(&mut self, number: Number, sent: BTreeMap<Number, Sent>) {
        if !kernel::planted!(received_inputs_stay_across_snapshot) {
            self.received = self.received.split_off(&(number, Space(0)));
        }
        self.sent = sent;
    }

    /// Of how many operations it has what others have said, and of how many from a number on.
    pub(super) fn received_from(&self, next: Number) -> (usize, usize) {
        (self.received.len(), self.received.range((next, Space(0))..).count())
    }

    pub(super) fn sent(&self) -> &BTreeMap<Number, Sent> {
        &self.sent
    }
}

/// Most is said in one part.
fn part_of(index: u32, of: u32) -> Option<(u32, u32)> {
    (of > 1).then_some((index, of))
}

fn others(order: &Order, space: Space) -> impl Iterator<Item = &Placed> {
    order.numbers.iter().filter(move |placed| placed.space != space)
}

impl<S: Shard> ShardServer<S> {
    /// True if the next operation's inputs are all here; sends this shard's own the first time.
    pub(super) fn has_inputs(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let Some(entry) = self.waiting.get(&self.next) else { return false };
        let order = entry.delivered.order.clone();
        if !self.inputs.sent.contains_key(&self.next) {
            let parts = match &entry.delivered.work {
                Work::NoOp => Vec::new(),
                Work::Operation(operation) => {
                    self.scratch.clear();
                    self.service.inputs(&operation.body, &order, &mut self.scratch);
                    vec![Part { to: None, bytes: Bytes::copy_from_slice(&self.scratch) }]
                }
                Work::Reshard(shard_map) => {
                    let shard_map = shard_map.clone();
                    self.parts_leaving(&shard_map, &order)
                }
            };
            self.say(&order, parts, cx);
        }
        let mut others = others(&order, self.space);
        others.all(|placed| self.inputs.is_complete(self.next, placed.space))
    }

    /// Notifies this host's servers of the other participants, and asks for what they have begun to say.
    fn say(&mut self, order: &Order, parts: Vec<Part>, cx: &mut Cx<'_, Self>) {
        let others: Vec<Placed> = others(order, self.space).cloned().collect();
        let sent = Sent { others, parts };
        for other in &sent.others {
            let Some(server) = self.server_here(other.space, cx) else { continue };
            let of = sent.parts_for(other.space).count() as u32;
            if let Some(first) = sent.parts_for(other.space).next() {
                let (number, inputs) = (other.number, first.clone());
                let more = of > 1;
                cx.send(server, Inputs { number, space: self.space, inputs, more, part: part_of(0, of) });
            }
            if self.inputs.received.contains_key(&(self.next, other.space))
                && !self.inputs.is_complete(self.next, other.space)
            {
                cx.send(server, self.wanted(other));
            }
        }
        self.inputs.sent.insert(self.next, sent);
    }

    pub(super) fn server_here(&self, space: Space, cx: &Cx<'_, Self>) -> Option<NodeId> {
        let here = cx.node().host();
        self.topology.servers_on(here).find(|(at, _)| *at == space).map(|(_, server)| server)
    }

    /// What a participant is asked that has not said all of the next operation.
    pub(super) fn wanted(&self, placed: &Placed) -> WantInputs {
        let part = Some(self.inputs.parts_of(self.next, placed.space)).filter(|&part| part > 0);
        WantInputs { number: placed.number, wanted_at: self.next, part }
    }

    pub(super) fn on_inputs(&mut self, from: NodeId, message: Inputs, cx: &mut Cx<'_, Self>) {
        let Inputs { number, space, inputs, more, part } = message;
        if number < self.next {
            return;
        }
        self.inputs.receive(number, space, part.unwrap_or((0, 1)), inputs);
        if number == self.next {
            self.execute(cx);
        }
        // Another participant's page may not be here yet; then the clock asks.
        if more && let Some(placed) = self.missing_inputs().into_iter().find(|placed| placed.space == space) {
            cx.send(from, self.wanted(&placed));
        }
    }

    /// What the next operation lacks, if it is here: its numbers in the spaces whose inputs are not.
    pub(super) fn missing_inputs(&self) -> Vec<Placed> {
        let Some(entry) = self.waiting.get(&self.next) else { return Vec::new() };
        let is_missing = |placed: &&Placed| !self.inputs.is_complete(self.next, placed.space);
        others(&entry.delivered.order, self.space).filter(is_missing).cloned().collect()
    }

    pub(super) fn on_want_inputs(&mut self, from: NodeId, message: &WantInputs, cx: &mut Cx<'_, Self>) {
        let WantInputs { number: first, wanted_at, part } = message;
        if !self.inputs.sent.contains_key(first) {
            if *first < self.next {
                // Enough servers of the asker's shard have it in durable snapshots, or it would be retained.
                cx.mark("shard.had_forgotten_inputs");
                cx.send(from, ShardBehind { durable: wanted_at.next() });
            }
            return;
        }
        let later = self.inputs.sent.range(first..).flat_map(|(number, sent)| {
            let asker = sent.others.iter().find(|placed| self.topology.serves(placed.space, from));
            let skipped = if number == first { part.unwrap_or(0) } else { 0 };
            asker.into_iter().flat_map(move |asker| {
                let of = sent.parts_for(asker.space).count() as u32;
                let parts = (0..of).zip(sent.parts_for(asker.space)).skip(skipped as usize);
                parts.map(move |(index, bytes)| (asker.number, (index, of), bytes.clone()))
            })
        });
        let (mut later, mut bytes) = (later.peekable(), 0);
        while let Some((number, part, inputs)) = later.next() {
            cx.mark("shard.sent_inputs_again");
            bytes += inputs.len() + size_of::<Inputs>();
            let (full, more) = (bytes >= INPUTS_PAGE_BYTES, later.peek().is_some());
            let (space, more, part) = (self.space, full && more, part_of(part.0, part.1));
            cx.send(from, Inputs { number, space, inputs, more, part });
            if full {
                return;
            }
        }
    }

    /// Inputs are retained until enough servers of every other participant need them no more. That is the logs' word, and not the
    /// servers': a low watermark that no log has, nobody waits for before the hosts that reach it are let go.
    pub(super) fn on_settled(&mut self, message: &Settled) {
        let Exchange { sent, settled, .. } = &mut self.inputs;
        let Placed { space, number } = message.below;
        let known = settled.entry(space).or_insert(number);
        *known = number.max(*known);
        let settled = |placed: &Placed| {
            settled.get(&placed.space).is_some_and(|&number| {
                placed.number < number || kernel::planted!(inputs_forgotten_early) && placed.number == number
            })
        };
        sent.retain(|_, sent| !sent.others.iter().all(settled));
    }
}
