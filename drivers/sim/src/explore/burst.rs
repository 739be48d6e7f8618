//! One host at work: calls of its nodes, and what they ask for carried out on the state.

use super::Scope;
use super::state::{Flying, Held, HostState, Kept, Message, Progress, Seat, World};
use crate::draw::{mix, mix_bytes};
use kernel::{
    Bytes, Effect, Effects, Encode, HostSlot, Instant, Node, NodeId, Position, Rng, Situation, Wall,
};
use std::collections::VecDeque;
use std::rc::Rc;

/// How many times the nodes of one host may wake each other within one burst.
const ROUNDS_MAX: usize = 1_000;

const WALL: Wall = Wall { earliest: crate::WALL_EPOCH, latest: crate::WALL_EPOCH };

/// One host at work, with what its work touches.
pub(super) struct Burst<'s, 'w, S: Scope> {
    pub(super) host: &'s mut HostState<S::Node>,
    pub(super) flying: &'s mut Vec<Rc<Flying>>,
    pub(super) flying_hash: &'s mut u64,
    pub(super) clients: &'s mut Vec<Progress>,
    pub(super) monitor: &'s mut Rc<S::Monitor>,
    pub(super) world: &'s mut World<'w, S>,
    pub(super) local: VecDeque<(NodeId, NodeId, Message<S::Node>)>,
}

impl<S: Scope> Burst<'_, '_, S> {
    pub(super) fn start(&mut self, nodes: Vec<(HostSlot, S::Node)>) {
        self.host.up = true;
        for (host_slot, mut node) in nodes {
            let id = NodeId::new(self.host.id, host_slot);
            let trimmed = self.host.trims.iter().find(|&&(of, _)| of == host_slot);
            let mut next = trimmed.map_or(Position(0), |&(_, before)| before);
            for record in self.host.records.iter().filter(|record| record.host_slot == host_slot) {
                let restored = node.restore(record.position, record.bytes.clone());
                assert!(restored.is_ok(), "CODEC: {id} cannot read its record: {restored:?}");
                next = Position(record.position.0 + 1);
            }
            self.host.seats.push(Seat { id, node, timers: 0, next, appended: 0, touched: false });
        }
        for seat in 0..self.host.seats.len() {
            self.call(seat, |node, situation, effects| node.on_start(situation, effects));
        }
    }

    pub(super) fn deliver(&mut self, from: NodeId, to: NodeId, message: Message<S::Node>) {
        if let Some(seat) = self.host.seats.iter().position(|seat| seat.id == to) {
            self.call(seat, |node, situation, effects| node.on_message(from, message, situation, effects));
        }
    }

    /// Local cascades until quiet, burst ends until quiet.
    pub(super) fn settle(&mut self) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "BOUND: the nodes of {:?} wake each other without end", self.host.id);
            while let Some((from, to, message)) = self.local.pop_front() {
                self.deliver(from, to, message);
            }
            for seat in 0..self.host.seats.len() {
                if self.host.seats[seat].touched {
                    self.call(seat, |node, situation, effects| node.on_burst_end(situation, effects));
                    self.host.seats[seat].touched = false;
                }
            }
            if self.local.is_empty() {
                break;
            }
        }
        self.host.refresh(self.world.scope);
    }

    pub(super) fn sync(&mut self) {
        self.host.durable = self.host.written();
        for held in std::mem::take(&mut self.host.held) {
            match held {
                Held::Send { from, to, message, .. } => self.send(from, to, message),
                Held::Trim { host_slot, before, .. } => self.host.trim(host_slot, before),
            }
        }
        self.settle();
    }

    pub(super) fn call(
        &mut self,
        seat: usize,
        call: impl FnOnce(&mut S::Node, Situation<'_>, &mut Effects<<S::Node as Node>::Family>),
    ) {
        let Seat { id, node, next, touched, .. } = &mut self.host.seats[seat];
        *touched = true;
        let mut effects = Effects::new(*next, false);
        // The same draws in the same slot, or no two paths would ever meet.
        let mut rng = Rng::seeded(mix(id.as_u64(), u64::from(self.host.incarnation)));
        call(
            node,
            Situation { node: *id, now: Instant(0), wall: WALL, rng: &mut rng, disk_full: false },
            &mut effects,
        );
        if !effects.is_empty() {
            self.carry_out(seat, effects);
        }
    }

    fn carry_out(&mut self, index: usize, mut effects: Effects<<S::Node as Node>::Family>) {
        let id = self.host.seats[index].id;
        for record in effects.records() {
            let bytes = Bytes::copy_from_slice(record.bytes);
            self.host.records.push(Rc::new(Kept {
                host_slot: id.host_slot(),
                position: record.position,
                bytes,
            }));
            self.host.seats[index].appended = self.host.written();
        }
        self.host.seats[index].next = effects.cursor();
        effects.clear_records();
        let after = self.host.seats[index].appended;
        let durable = after <= self.host.durable;
        let host_slot = id.host_slot();
        for effect in effects.drain() {
            match effect {
                Effect::SendDurable { to, message, .. } if !durable => {
                    self.host.held.push(Held::Send { from: id, to, message, after });
                }
                Effect::Send { to, message } | Effect::SendDurable { to, message, .. } => {
                    self.send(id, to, message)
                }
                Effect::SetTimer { timer, .. } if !self.world.scope.awaits(id, timer) => {}
                Effect::SetTimer { timer, .. } => self.host.seats[index].timers |= 1 << timer.0,
                Effect::StopTimer { timer } => self.host.seats[index].timers &= !(1 << timer.0),
                Effect::Respond { id: request, response } => {
                    let progress = self.clients.get_mut((request.0 >> 32) as usize);
                    let owed = progress.is_some_and(|client| std::mem::take(&mut client.waits));
                    assert!(
                        owed,
                        "RESPOND: {id} answers request {} that it does not owe an answer",
                        request.0
                    );
                    self.world.scope.on_response(Rc::make_mut(self.monitor), id, request, response);
                }
                Effect::Trim { before } if durable => self.host.trim(host_slot, before),
                Effect::Trim { before } => self.host.held.push(Held::Trim { host_slot, before, after }),
                // A scope has no state for them.
                Effect::Blob(effect) => {
                    panic!("SCOPE: {id} asks {effect:?}, and an explored node has no blobs")
                }
                Effect::Mark { name } => *self.world.marks.entry(name).or_default() += 1,
                Effect::Reject { .. } | Effect::Note { .. } => {}
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message<S::Node>) {
        if to.host() == self.host.id {
            self.local.push_back((from, to, message));
            return;
        }
        if !self.world.scope.carries(from, to, &message) {
            return;
        }
        let scratch = &mut self.world.scratch;
        scratch.clear();
        message.encode(scratch);
        let hash = mix_bytes(mix(from.as_u64(), to.as_u64()), scratch);
        *self.flying_hash = self.flying_hash.wrapping_add(hash);
        self.flying.push(Rc::new(Flying { from, to, bytes: Bytes::copy_from_slice(scratch), hash }));
    }
}
