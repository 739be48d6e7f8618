//! One host at work: calls of its nodes, and what they ask for carried out on the state.

use super::Scope;
use super::host::{HostState, Message, Retained, Seat};
use super::world::{Flying, Progress, World};
use crate::draw::{mix, mix_bytes};
use crate::effects::{Deferred, Sink, Waiting};
use crate::spec::ResponseOf;
use kernel::{
    Beacons, BlobEffect, Bytes, Effects, Encode, HostSlot, Journaled, Node, NodeId, Position, RequestId, Rng,
    Silence, Situation, TimerIndex,
};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// How many times the nodes of one host may wake each other within one burst.
const ROUNDS_MAX: usize = 1_000;

/// One host at work, with what its work touches.
pub(super) struct Burst<'s, 'w, S: Scope> {
    pub(super) host: &'s mut HostState<S::Node>,
    pub(super) clients: &'s mut Vec<Progress>,
    pub(super) monitor: &'s mut Rc<S::Monitor>,
    pub(super) world: &'s mut World<'w, S>,
    pub(super) local: VecDeque<(NodeId, NodeId, Message<S::Node>)>,
    /// How many timers have run out so far.
    pub(super) timers: u8,
    /// What left for other hosts.
    pub(super) sent: Vec<Rc<Flying>>,
    pub(super) marks: Vec<&'static str>,
    /// A client was answered.
    pub(super) answered: bool,
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
        let durable = self.host.durable;
        std::mem::take(&mut self.host.held).release(durable, |node, deferred| match deferred {
            Deferred::Send { to, message } => self.send(node, to, message),
            Deferred::Trim { before } => self.host.trim(node.host_slot(), before),
            Deferred::DropBlob { .. } => {}
        });
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
        let (now, wall) =
            (self.world.scope.now(self.timers), self.world.scope.wall(self.host.id, self.timers));
        let beacons = &Beacons::default();
        let situation = Situation { node: *id, now, wall, rng: &mut rng, disk_full: false, beacons };
        call(node, situation, &mut effects);
        if !effects.is_empty() {
            self.carry_out(seat, effects);
        }
    }

    fn carry_out(&mut self, seat: usize, mut effects: Effects<<S::Node as Node>::Family>) {
        Asking { burst: self, seat }.carry_out(&mut effects);
        self.host.seats[seat].next = effects.cursor();
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
        self.sent.push(Rc::new(Flying { from, to, bytes: Bytes::copy_from_slice(scratch), hash }));
    }
}

/// A node that asks for something.
struct Asking<'b, 's, 'w, S: Scope> {
    burst: &'b mut Burst<'s, 'w, S>,
    seat: usize,
}

impl<S: Scope> Asking<'_, '_, '_, S> {
    fn id(&self) -> NodeId {
        self.burst.host.seats[self.seat].id
    }
}

impl<S: Scope> Sink<<S::Node as Node>::Family> for Asking<'_, '_, '_, S> {
    fn append(&mut self, record: Journaled<'_>) {
        let (host_slot, position) = (self.id().host_slot(), record.position);
        let bytes = Bytes::copy_from_slice(record.bytes);
        let host = &mut *self.burst.host;
        host.records.push(Rc::new(Retained { host_slot, position, bytes }));
        host.seats[self.seat].appended = host.written();
    }

    fn is_durable(&self) -> bool {
        self.burst.host.seats[self.seat].appended <= self.burst.host.durable
    }

    fn hold(&mut self, deferred: Deferred<Message<S::Node>>) {
        let (node, target) = (self.id(), self.burst.host.seats[self.seat].appended);
        match deferred {
            Deferred::Send { .. } | Deferred::Trim { .. } => {
                self.burst.host.held.push(Waiting { node, deferred, target });
            }
            Deferred::DropBlob { id } => self.blob(BlobEffect::Drop { id }),
        }
    }

    fn send(&mut self, to: NodeId, message: Message<S::Node>) {
        self.burst.send(self.id(), to, message);
    }

    fn set_beacon(&mut self, to: NodeId, message: Message<S::Node>) {
        // Heard once and no more: silence is what is explored.
        self.burst.send(self.id(), to, message);
    }

    fn stop_beacon(&mut self, _: NodeId) {}

    fn trim(&mut self, before: Position) {
        self.burst.host.trim(self.id().host_slot(), before);
    }

    fn blob(&mut self, effect: BlobEffect) {
        // A scope has no state for them. A node that starts says that it knows none.
        if matches!(&effect, BlobEffect::Keep { ids } if ids.is_empty()) {
            return;
        }
        panic!("SCOPE: {} asks {effect:?}, and an explored node has no blobs", self.id())
    }

    fn set_timer(&mut self, timer: TimerIndex, _: Duration, _: Option<Silence>) {
        if self.burst.world.scope.awaits(self.id(), timer) {
            self.burst.host.seats[self.seat].timers |= 1 << timer.0;
        }
    }

    fn stop_timer(&mut self, timer: TimerIndex) {
        self.burst.host.seats[self.seat].timers &= !(1 << timer.0);
    }

    fn respond(&mut self, request: RequestId, response: ResponseOf<S::Node>) {
        let id = self.id();
        let progress = self.burst.clients.get_mut((request.0 >> 32) as usize);
        let owed = progress.is_some_and(|client| std::mem::take(&mut client.waits));
        self.burst.answered = true;
        assert!(owed, "RESPOND: {id} answers request {} that it does not owe an answer", request.0);
        self.burst.world.scope.on_response(Rc::make_mut(self.burst.monitor), id, request, response);
    }

    fn reject(&mut self, _: &'static str) {}

    fn mark(&mut self, name: &'static str) {
        self.burst.marks.push(name);
    }

    fn note(&mut self, _: String) {}
}
