//! A host: nodes that share a core and a journal, and work in bursts.

use super::load::Visit;
use super::outside::{Address, Outside, Packet};
use super::price::{Cost, Scale};
use super::queue::Event;
use crate::effects::{Deferred, Held, Sink, Waiting};
use kernel::{
    BlobEffect, Effects, Family, Instant, Journaled, Node, NodeId, Position, RequestId, Rng, Silence,
    Situation, TimerIndex, Wall,
};
use std::collections::VecDeque;
use std::time::Duration;

/// The wall clock at the beginning, in nanoseconds since 1970.
const EPOCH: u64 = 1_700_000_000_000_000_000;
/// Local messages of one burst beyond which nodes are taken to wake each other without end.
const CASCADE_MAX: usize = 1 << 24;

/// What waits for a host's core.
pub(super) enum Input<F: Family> {
    Message { from_host: u32, from: NodeId, seat: u32, message: F::Message, bytes: u32 },
    Timer { seat: u32, timer: TimerIndex, setting: u32 },
    Request { seat: u32, id: RequestId, request: F::Request },
    Synced,
}

/// Messages that a host has worked off, in picoseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Visits {
    pub(super) messages: u64,
    /// From arrival until the burst that took them began.
    pub(super) waited: u64,
    /// From there until the burst ended, and what it sent left.
    pub(super) worked: u64,
}

impl Visits {
    /// What came since, on average.
    pub(super) fn since(self, before: Visits) -> Visit {
        let messages = self.messages - before.messages;
        let mean = |after: u64, before: u64| {
            Duration::from_nanos((after - before).checked_div(messages).unwrap_or(0) / 1_000)
        };
        let (waited, worked) = (mean(self.waited, before.waited), mean(self.worked, before.worked));
        Visit { messages, waited, worked }
    }
}

pub(super) struct Seat<N: Node> {
    pub(super) id: NodeId,
    pub(super) node: N,
    effects: Effects<N::Family>,
    rng: Rng,
    /// By timer: which setting is in force, if any.
    timers: Vec<(u32, bool)>,
    touched: bool,
}

pub(super) struct Host<N: Node> {
    pub(super) core: usize,
    pub(super) machine: usize,
    pub(super) tariff: usize,
    pub(super) alive: bool,
    pub(super) wakes: bool,
    pub(super) busy: u64,
    pub(super) seats: Vec<Seat<N>>,
    /// With the time of arrival.
    pub(super) inbox: VecDeque<(u64, Input<N::Family>)>,
    pub(super) visits: Visits,
    local: VecDeque<(NodeId, u32, <N::Family as Family>::Message)>,
    held: Held<<N::Family as Family>::Message>,
    sends: Vec<(NodeId, NodeId, <N::Family as Family>::Message)>,
    /// Bytes appended, and how far they are durable.
    appended: u64,
    durable: u64,
    syncing: Option<u64>,
    /// The burst in which each other host was read from and written to last.
    read_in: Vec<u64>,
    written_in: Vec<u64>,
    bursts: u64,
}

impl<N: Node> Host<N> {
    pub(super) fn new(machine: usize, core: usize, tariff: usize) -> Self {
        Self {
            core,
            machine,
            tariff,
            alive: true,
            wakes: false,
            busy: 0,
            seats: Vec::new(),
            inbox: VecDeque::new(),
            visits: Visits::default(),
            local: VecDeque::new(),
            held: Held::default(),
            sends: Vec::new(),
            appended: 0,
            durable: 0,
            syncing: None,
            read_in: Vec::new(),
            written_in: Vec::new(),
            bursts: 0,
        }
    }

    pub(super) fn seat(&mut self, id: NodeId, node: N, rng: Rng) {
        let effects = Effects::new(Position(0), false);
        self.seats.push(Seat { id, node, effects, rng, timers: Vec::new(), touched: false });
    }

    /// Hands the nodes everything that waits, or as much as a burst takes; a first burst starts them.
    pub(super) fn burst<S: Scale<N::Family>>(
        &mut self,
        me: u32,
        first: bool,
        out: &mut Outside<N::Family, S>,
    ) {
        self.bursts += 1;
        let tariff = self.tariff;
        let appended_before = self.appended;
        let mut cost = out.tariffs[tariff].burst;
        if first {
            for seat in 0..self.seats.len() {
                self.call(seat, me, out, |node, situation, effects| node.on_start(situation, effects));
            }
        }
        let messages_before = self.visits.messages;
        for _ in 0..self.inbox.len().min(out.tariffs[tariff].burst_inputs_max) {
            let Some((arrived, input)) = self.inbox.pop_front() else { break };
            if let Input::Message { .. } = input {
                self.visits.messages += 1;
                self.visits.waited += out.now - arrived;
            }
            cost += self.deliver_input(input, me, out);
        }
        cost += self.settle(me, out);
        cost += out.tariffs[tariff].append_byte * (self.appended - appended_before);
        cost += self.send_all(me, cost, out);
        let ends = out.now + cost.0;
        self.busy += cost.0;
        self.visits.worked += cost.0 * (self.visits.messages - messages_before);
        out.cores[self.core] = ends;
        self.sync(me, out);
        for response in &mut out.responses {
            response.2 = response.2.max(ends);
        }
    }

    fn deliver_input<S: Scale<N::Family>>(
        &mut self,
        input: Input<N::Family>,
        me: u32,
        out: &mut Outside<N::Family, S>,
    ) -> Cost {
        match input {
            Input::Message { from_host, from, seat, message, bytes } => {
                let tariff = &out.tariffs[self.tariff];
                let mut cost = tariff.receive + tariff.receive_byte * u64::from(bytes);
                cost += tariff.handling(out.scale.weigh(&message));
                if is_first(&mut self.read_in, from_host, self.bursts) {
                    cost += tariff.read;
                }
                self.call(seat as usize, me, out, |node, situation, effects| {
                    node.on_message(from, message, situation, effects);
                });
                cost
            }
            Input::Timer { seat, timer, setting } => {
                let slot = &mut self.seats[seat as usize].timers[usize::from(timer.0)];
                if *slot != (setting, true) {
                    return Cost::ZERO;
                }
                slot.1 = false;
                self.call(seat as usize, me, out, |node, situation, effects| {
                    node.on_timer(timer, situation, effects);
                });
                out.tariffs[self.tariff].timer
            }
            Input::Request { seat, id, request } => {
                self.call(seat as usize, me, out, |node, situation, effects| {
                    node.on_request(id, request, situation, effects);
                });
                out.tariffs[self.tariff].request
            }
            Input::Synced => {
                self.durable = self.syncing.take().unwrap_or(self.durable);
                self.release_held(me, out);
                Cost::ZERO
            }
        }
    }

    /// Local messages until quiet, burst ends of the nodes that were called, until quiet.
    fn settle<S: Scale<N::Family>>(&mut self, me: u32, out: &mut Outside<N::Family, S>) -> Cost {
        let mut cost = Cost::ZERO;
        let mut cascade = 0;
        loop {
            while let Some((from, seat, message)) = self.local.pop_front() {
                cascade += 1;
                assert!(cascade < CASCADE_MAX, "BOUND: local messages of one burst never end");
                cost += out.tariffs[self.tariff].handling(out.scale.weigh(&message));
                self.call(seat as usize, me, out, |node, situation, effects| {
                    node.on_message(from, message, situation, effects);
                });
            }
            for seat in 0..self.seats.len() {
                if std::mem::take(&mut self.seats[seat].touched) {
                    self.call(seat, me, out, |node, situation, effects| {
                        node.on_burst_end(situation, effects);
                    });
                    self.seats[seat].touched = false;
                }
            }
            if self.local.is_empty() {
                return cost;
            }
        }
    }

    /// Everything leaves when the burst, sending included, is over; `spent` was before.
    fn send_all<S: Scale<N::Family>>(
        &mut self,
        me: u32,
        spent: Cost,
        out: &mut Outside<N::Family, S>,
    ) -> Cost {
        let mut cost = Cost::ZERO;
        let mut packets = Vec::with_capacity(self.sends.len());
        for (from, to, message) in self.sends.drain(..) {
            let Some(&Address { host, seat }) = out.addresses.get(&to) else {
                *out.rejects.entry("message to nobody").or_default() += 1;
                continue;
            };
            let bytes = out.size_of(&message);
            let tariff = &out.tariffs[self.tariff];
            cost += tariff.send + tariff.send_byte * u64::from(bytes);
            if is_first(&mut self.written_in, host, self.bursts) {
                cost += tariff.write;
            }
            packets.push(Packet { from_host: me, from, host, seat, bytes, message });
        }
        let at = out.now + (spent + cost).0;
        for packet in packets {
            out.depart(self.machine, at, packet);
        }
        cost
    }

    fn route<S: Scale<N::Family>>(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: <N::Family as Family>::Message,
        me: u32,
        out: &mut Outside<N::Family, S>,
    ) {
        match out.addresses.get(&to) {
            Some(address) if address.host == me => self.local.push_back((from, address.seat, message)),
            _ => self.sends.push((from, to, message)),
        }
    }

    fn call<S: Scale<N::Family>>(
        &mut self,
        index: usize,
        me: u32,
        out: &mut Outside<N::Family, S>,
        call: impl FnOnce(&mut N, Situation<'_>, &mut Effects<N::Family>),
    ) {
        let nanos = out.now / 1_000;
        let wall = Wall::between(EPOCH + nanos - out.clock_error, EPOCH + nanos + out.clock_error);
        let Seat { id, node, effects, rng, touched, .. } = &mut self.seats[index];
        *touched = true;
        let (now, beacons) = (Instant(nanos), &out.beacons);
        call(node, Situation { node: *id, now, wall, rng, disk_full: false, beacons }, effects);
        if !effects.is_empty() {
            self.carry_out(index, me, out);
        }
    }

    fn carry_out<S: Scale<N::Family>>(&mut self, seat: usize, me: u32, out: &mut Outside<N::Family, S>) {
        let idle = Effects::new(Position(0), false);
        let mut effects = std::mem::replace(&mut self.seats[seat].effects, idle);
        Asking { host: self, seat, me, out }.carry_out(&mut effects);
        self.seats[seat].effects = effects;
    }

    fn release_held<S: Scale<N::Family>>(&mut self, me: u32, out: &mut Outside<N::Family, S>) {
        let mut held = std::mem::take(&mut self.held);
        held.release(self.durable, |node, deferred| match deferred {
            Deferred::Send { to, message } => self.route(node, to, message, me, out),
            Deferred::Trim { .. } | Deferred::DropBlob { .. } => {}
        });
        self.held = held;
    }

    /// Begins an fsync at the burst's end, if there is anything to sync and none is in flight.
    fn sync<S: Scale<N::Family>>(&mut self, me: u32, out: &mut Outside<N::Family, S>) {
        let Some(fsync) = out.tariffs[self.tariff].fsync else { return };
        if self.syncing.is_some() || self.durable == self.appended {
            return;
        }
        self.syncing = Some(self.appended);
        let returns = out.cores[self.core] + Cost::from(fsync.latency).0;
        if fsync.blocks {
            self.busy += Cost::from(fsync.latency).0;
            out.cores[self.core] = returns;
        }
        out.queue.push(returns, Event::Synced { host: me });
    }
}

/// A node that asks for something. Journals have no contents here, and blobs have no price.
struct Asking<'a, N: Node, S> {
    host: &'a mut Host<N>,
    seat: usize,
    me: u32,
    out: &'a mut Outside<N::Family, S>,
}

impl<N: Node, S: Scale<N::Family>> Sink<N::Family> for Asking<'_, N, S> {
    fn append(&mut self, record: Journaled<'_>) {
        let host = &mut *self.host;
        host.appended += record.bytes.len() as u64;
        if self.out.tariffs[host.tariff].fsync.is_none() {
            host.durable = host.appended;
        }
    }

    fn is_durable(&self) -> bool {
        self.host.appended <= self.host.durable
    }

    fn hold(&mut self, deferred: Deferred<<N::Family as Family>::Message>) {
        match deferred {
            Deferred::Send { .. } => {
                let node = self.host.seats[self.seat].id;
                self.host.held.push(Waiting { node, deferred, target: self.host.appended });
            }
            Deferred::Trim { .. } | Deferred::DropBlob { .. } => {}
        }
    }

    fn send(&mut self, to: NodeId, message: <N::Family as Family>::Message) {
        self.host.route(self.host.seats[self.seat].id, to, message, self.me, self.out);
    }

    fn set_beacon(&mut self, to: NodeId, message: <N::Family as Family>::Message) {
        // What keeps it lit has no price.
        let from = self.host.seats[self.seat].id;
        if self.out.lights(from, to, &message) {
            self.host.route(from, to, message, self.me, self.out);
        }
    }

    fn stop_beacon(&mut self, to: NodeId) {
        self.out.puts_out(self.host.seats[self.seat].id, to);
    }

    fn trim(&mut self, _: Position) {}

    fn blob(&mut self, effect: BlobEffect) {
        match effect {
            BlobEffect::Store { id, .. } => {
                panic!("{} stores {id}, and blobs have no price here", self.host.seats[self.seat].id)
            }
            // There is none to be read.
            BlobEffect::Load { .. }
            | BlobEffect::Drop { .. }
            | BlobEffect::Keep { .. }
            | BlobEffect::Archive { .. } => {}
        }
    }

    fn set_timer(&mut self, timer: TimerIndex, after: Duration, silence: Option<Silence>) {
        // Who is heard never falls silent here.
        let (node, now) = (self.host.seats[self.seat].id, Instant(self.out.now / 1_000));
        let is_unlit = |from: &NodeId| self.out.beacons.heard_at(*from, node, now).is_none();
        let silent = silence.filter(|silence| silence.of.iter().any(is_unlit));
        let after = silent.map_or(after, |silence| after.min(silence.lasts));
        let timers = &mut self.host.seats[self.seat].timers;
        let slot = usize::from(timer.0);
        if timers.len() <= slot {
            timers.resize(slot + 1, (0, false));
        }
        timers[slot] = (timers[slot].0.wrapping_add(1), true);
        let setting = timers[slot].0;
        let at = self.out.now + Cost::from(after).0.max(1);
        let event = Event::Timer { host: self.me, seat: self.seat as u32, timer: timer.0, setting };
        self.out.queue.push(at, event);
    }

    fn stop_timer(&mut self, timer: TimerIndex) {
        if let Some(slot) = self.host.seats[self.seat].timers.get_mut(usize::from(timer.0)) {
            slot.1 = false;
        }
    }

    fn respond(&mut self, id: RequestId, response: <N::Family as Family>::Response) {
        self.out.responses.push((id, response, 0));
    }

    fn reject(&mut self, reason: &'static str) {
        *self.out.rejects.entry(reason).or_default() += 1;
    }

    fn mark(&mut self, name: &'static str) {
        *self.out.marks.entry(name).or_default() += 1;
    }

    fn note(&mut self, _: String) {}
}

/// True the first time that a host is named in a burst.
fn is_first(seen: &mut Vec<u64>, host: u32, burst: u64) -> bool {
    let host = host as usize;
    if seen.len() <= host {
        seen.resize(host + 1, 0);
    }
    std::mem::replace(&mut seen[host], burst) != burst
}
