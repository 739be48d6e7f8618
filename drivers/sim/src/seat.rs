//! One node on its host: its timers, its calls, and what becomes of what it asks for.

use crate::host::{Host, NEVER};
use crate::outside::{Happening, Outside};
use crate::queue::Event;
use kernel::{
    BlobEffect, Effect, Effects, HostSlot, Instant, Node, NodeId, Position, Rng, Situation, TimerIndex,
};

/// What waits for the journal to be durable up to `target`.
pub(crate) enum Held<M> {
    Send { from: NodeId, to: NodeId, message: M, target: u64 },
    Trim { host_slot: HostSlot, before: Position, target: u64 },
    Blob { seat: usize, effect: BlobEffect, target: u64 },
}

impl<M> Held<M> {
    pub(crate) fn target(&self) -> u64 {
        match self {
            Self::Send { target, .. } | Self::Trim { target, .. } | Self::Blob { target, .. } => *target,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct TimerSlot {
    /// When it runs out, or never; an estimate, because the clock's drift may change.
    pub(crate) deadline: u64,
    /// When it runs out by the host's own clock.
    pub(crate) local_deadline: Instant,
    /// When the queue will remind us of it, or never.
    pub(crate) reminder: u64,
    /// It has run out and waits in the inbox.
    pub(crate) due: bool,
}

const UNSET: TimerSlot =
    TimerSlot { deadline: NEVER, local_deadline: Instant(0), reminder: NEVER, due: false };

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
        call(node, Situation { node: *id, now, wall, rng, disk_full }, effects);
        if !effects.is_empty() {
            self.carry_out(seat, out);
        }
    }

    fn carry_out(&mut self, index: usize, out: &mut Outside<N::Family>) {
        let Self { seats, disk, held, local, clock, .. } = self;
        let Seat { id, effects, timers, appended_end, .. } = &mut seats[index];
        let (id, host_slot) = (*id, id.host_slot());
        for record in effects.records() {
            let (bytes, max) = (record.bytes.len(), out.bounds.record_bytes_max);
            assert!(bytes <= max, "BOUND: {id} appends a record of {bytes} bytes; a journal takes {max}");
            disk.append(host_slot, record.position, record.bytes);
            out.happened(Happening::Record, id.as_u64(), record.position.0);
            out.trace.mix_bytes(record.bytes);
            *appended_end = disk.end();
        }
        effects.clear_records();
        let (host, incarnation, target) = (self.index, self.incarnation, *appended_end);
        let durable = target <= disk.durable();
        let mut blobs = Vec::new();
        for effect in effects.drain() {
            match effect {
                Effect::SendDurable { to, message, .. } if !durable => {
                    held.push_back(Held::Send { from: id, to, message, target });
                }
                Effect::Send { to, message } | Effect::SendDurable { to, message, .. } => {
                    if to.host() == self.id {
                        out.told(id, to, &message);
                        local.push_back((id, to, message));
                    } else {
                        out.send(id, host, incarnation, to, &message);
                    }
                }
                Effect::SetTimer { timer, after } => {
                    let slot = timer_slot(timers, timer);
                    slot.due = false;
                    slot.local_deadline = clock.monotonic(out.now) + after;
                    slot.deadline = out.now + clock.true_duration(after).max(1);
                    if slot.reminder > slot.deadline {
                        slot.reminder = slot.deadline;
                        let event = Event::Timer { host, seat: index as u8, timer: timer.0, incarnation };
                        out.queue.push(slot.deadline, event);
                    }
                }
                Effect::StopTimer { timer } => {
                    let slot = timer_slot(timers, timer);
                    (slot.deadline, slot.due) = (NEVER, false);
                }
                Effect::Respond { id: request, response } => {
                    out.happened(Happening::Response, id.as_u64(), request.0);
                    out.trace.line(out.now, Some(id.host()), || {
                        format!("{id} responds {} {response:?}", request.0)
                    });
                    out.responses.push((id, request, response));
                }
                Effect::Trim { before } if durable => {
                    disk.trim(host_slot, before);
                    out.trimmed(id, before);
                }
                Effect::Trim { before } => held.push_back(Held::Trim { host_slot, before, target }),
                Effect::Blob(effect @ BlobEffect::Drop { .. }) if !durable => {
                    held.push_back(Held::Blob { seat: index, effect, target });
                }
                Effect::Blob(effect) => blobs.push(effect),
                Effect::Reject { reason } => *out.rejects.entry(reason).or_default() += 1,
                Effect::Mark { name } => *out.marks.entry(name).or_default() += 1,
                Effect::Note { text } => out.trace.line(out.now, Some(id.host()), || format!("{id} {text}")),
            }
        }
        for effect in blobs {
            self.carry_out_blob(index, effect, out);
        }
    }
}

fn timer_slot(timers: &mut Vec<TimerSlot>, timer: TimerIndex) -> &mut TimerSlot {
    let index = usize::from(timer.0);
    if timers.len() <= index {
        timers.resize(index + 1, UNSET);
    }
    &mut timers[index]
}
