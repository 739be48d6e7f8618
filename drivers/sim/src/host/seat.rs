//! One node on its host: its timers, its calls, and what becomes of what it asks for.

use super::{Host, NEVER};
use crate::effects::{Deferred, Sink, Waiting};
use crate::outside::{Happening, Outside};
use crate::queue::Event;
use kernel::{
    BlobEffect, Effects, Family, Instant, Journaled, Listener, Node, NodeId, Position, RequestId, Rng,
    Silence, Situation, TimerIndex,
};
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct TimerSlot {
    /// When it runs out, or never; an estimate, because the clock's drift may change.
    pub(crate) deadline: u64,
    /// When it runs out by the host's own clock.
    pub(crate) local_deadline: Instant,
    /// When the queue will remind us of it, or never.
    pub(crate) reminder: u64,
    /// It has run out and waits in the inbox.
    pub(crate) due: bool,
    /// It runs out later while others are heard.
    pub(crate) listener: Option<Listener>,
}

impl TimerSlot {
    /// It will run out, or has and waits to be worked off.
    pub(crate) fn is_set(&self) -> bool {
        self.deadline != NEVER || self.due
    }
}

const UNSET: TimerSlot =
    TimerSlot { deadline: NEVER, local_deadline: Instant(0), reminder: NEVER, due: false, listener: None };

pub(crate) struct Seat<N: Node> {
    pub(crate) id: NodeId,
    pub(crate) node: N,
    pub(crate) effects: Effects<N::Family>,
    pub(crate) rng: Rng,
    pub(crate) timers: Vec<TimerSlot>,
    /// The end of the node's last record on the disk.
    pub(crate) appended_end: u64,
    /// Called since its last burst end.
    pub(crate) touched: bool,
    /// Called since the scenario looked at it.
    pub(crate) called: bool,
}

impl<N: Node> Host<N> {
    /// Calls a node and carries out what it asks for.
    pub(crate) fn call(
        &mut self,
        seat: usize,
        out: &mut Outside<N::Family>,
        call: impl FnOnce(&mut N, Situation<'_>, &mut Effects<N::Family>),
    ) {
        let now = self.clock.monotonic(out.now);
        let wall = self.clock.wall(out.now);
        let Seat { id, node, effects, rng, touched, called, .. } = &mut self.seats[seat];
        if !std::mem::replace(touched, true) {
            self.touched.push(seat as u8);
        }
        if !std::mem::replace(called, true) {
            self.called.push(seat as u8);
        }
        let disk_full = out.now < self.disk_full_until;
        let beacons = &self.beacons.heard;
        call(node, Situation { node: *id, now, wall, rng, disk_full, beacons }, effects);
        if !effects.is_empty() {
            self.carry_out(seat, out);
        }
    }

    fn carry_out(&mut self, seat: usize, out: &mut Outside<N::Family>) {
        let idle = Effects::new(Position(0), false);
        let mut effects = std::mem::replace(&mut self.seats[seat].effects, idle);
        Asking { host: self, seat, out }.carry_out(&mut effects);
        self.seats[seat].effects = effects;
    }

    /// (Re)starts a timer.
    fn set_timer(&mut self, seat: usize, timer: TimerIndex, at: Instant, out: &mut Outside<N::Family>) {
        let Self { seats, clock, index: host, incarnation, .. } = self;
        let slot = timer_slot(&mut seats[seat].timers, timer);
        slot.due = false;
        slot.local_deadline = at;
        let after = at.since(clock.monotonic(out.now));
        slot.deadline = out.now + clock.true_duration(after).max(1);
        if slot.reminder > slot.deadline {
            slot.reminder = slot.deadline;
            let event =
                Event::Timer { host: *host, seat: seat as u8, timer: timer.0, incarnation: *incarnation };
            out.queue.push(slot.deadline, event);
        }
    }

    /// A beacon was stopped: timers that listen for it run out.
    pub(super) fn end_silences(&mut self, from: NodeId, to: NodeId, out: &mut Outside<N::Family>) {
        let Some(seat) = self.seat(to) else { return };
        let now = self.clock.monotonic(out.now);
        for timer in 0..self.seats[seat].timers.len() {
            let slot = &mut self.seats[seat].timers[timer];
            if slot.deadline != NEVER && slot.listener.take_if(|it| it.listens_for(from)).is_some() {
                self.set_timer(seat, TimerIndex(timer as u8), now, out);
            }
        }
    }

    /// Lets go what waited for the journal.
    pub(crate) fn release_held(&mut self, out: &mut Outside<N::Family>) {
        let mut held = std::mem::take(&mut self.held);
        held.release(self.disk.durable(), |node, deferred| {
            let seat = self.seat(node).expect("what a host holds ends with its nodes");
            Asking { host: self, seat, out }.take_effect(deferred);
        });
        self.held = held;
    }
}

/// A node that asks for something.
struct Asking<'a, N: Node> {
    host: &'a mut Host<N>,
    seat: usize,
    out: &'a mut Outside<N::Family>,
}

impl<N: Node> Asking<'_, N> {
    fn id(&self) -> NodeId {
        self.host.seats[self.seat].id
    }
}

impl<N: Node> Sink<N::Family> for Asking<'_, N> {
    fn append(&mut self, record: Journaled<'_>) {
        let id = self.id();
        let (bytes, max) = (record.bytes.len(), self.out.bounds.record_bytes_max);
        assert!(bytes <= max, "BOUND: {id} appends a record of {bytes} bytes; a journal takes {max}");
        self.host.disk.append(id.host_slot(), record.position, record.bytes);
        self.out.happened(Happening::Record, id.as_u64(), record.position.0);
        self.out.trace.mix_bytes(record.bytes);
        self.host.seats[self.seat].appended_end = self.host.disk.end();
    }

    fn is_durable(&self) -> bool {
        self.host.seats[self.seat].appended_end <= self.host.disk.durable()
    }

    fn hold(&mut self, deferred: Deferred<<N::Family as Family>::Message>) {
        let target = self.host.seats[self.seat].appended_end;
        self.host.held.push(Waiting { node: self.id(), deferred, target });
    }

    fn send(&mut self, to: NodeId, message: <N::Family as Family>::Message) {
        let from = self.id();
        if to.host() == self.host.id {
            self.out.reported(from, to, &message);
            self.host.local.push_back((from, to, message));
        } else {
            self.out.send(from, self.host.index, self.host.incarnation, to, &message);
        }
    }

    fn set_beacon(&mut self, to: NodeId, message: <N::Family as Family>::Message) {
        let from = self.id();
        self.host.set_beacon(from, to, message, self.out);
    }

    fn stop_beacon(&mut self, to: NodeId) {
        let from = self.id();
        self.host.stop_beacon(from, to, self.out);
    }

    fn trim(&mut self, before: Position) {
        let id = self.id();
        self.host.disk.trim(id.host_slot(), before);
        self.out.trimmed(id, before);
    }

    fn blob(&mut self, effect: BlobEffect) {
        self.host.carry_out_blob(self.seat, effect, self.out);
    }

    fn set_timer(&mut self, timer: TimerIndex, after: Duration, silence: Option<Silence>) {
        let (node, since) = (self.id(), self.host.clock.monotonic(self.out.now));
        let until = since + after;
        let listener = silence.map(|silence| Listener { node, silence, since, until });
        let at = listener.as_ref().map_or(until, |it| self.host.beacons.heard.runs_out(it));
        timer_slot(&mut self.host.seats[self.seat].timers, timer).listener = listener;
        self.host.set_timer(self.seat, timer, at, self.out);
    }

    fn stop_timer(&mut self, timer: TimerIndex) {
        let slot = timer_slot(&mut self.host.seats[self.seat].timers, timer);
        (slot.deadline, slot.due) = (NEVER, false);
    }

    fn respond(&mut self, request: RequestId, response: <N::Family as Family>::Response) {
        let id = self.id();
        self.out.happened(Happening::Response, id.as_u64(), request.0);
        self.out
            .trace
            .line(self.out.now, Some(id.host()), || format!("{id} responds {} {response:?}", request.0));
        self.out.responses.push((id, request, response));
    }

    fn reject(&mut self, reason: &'static str) {
        *self.out.rejects.entry(reason).or_default() += 1;
    }

    fn mark(&mut self, name: &'static str) {
        *self.out.marks.entry(name).or_default() += 1;
    }

    fn note(&mut self, text: String) {
        let id = self.id();
        self.out.trace.line(self.out.now, Some(id.host()), || format!("{id} {text}"));
    }
}

fn timer_slot(timers: &mut Vec<TimerSlot>, timer: TimerIndex) -> &mut TimerSlot {
    let index = usize::from(timer.0);
    if timers.len() <= index {
        timers.resize(index + 1, UNSET);
    }
    &mut timers[index]
}
