//! One host: nodes that share a journal, work in bursts, and crash together.

mod beacons;
mod blobs;
mod seat;

use beacons::BeaconTables;
use blobs::InFlight;
pub(crate) use seat::Seat;

use crate::beacons::BeaconList;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::draw::{Purpose, mix, root};
use crate::effects::Held;
use crate::fact::Fact;
use crate::outside::{Happening, Outside};
use crate::plan::{Aim, HostIndex, Loss};
use crate::queue::Event;
use kernel::{
    BlobNotice, Bytes, Effects, Family, HostId, HostSlot, Node, NodeId, RequestId, Rng, TimerIndex,
};
use std::collections::VecDeque;
use std::time::Duration;

/// How many times the nodes of one host may wake each other within one burst.
const ROUNDS_MAX: usize = 10_000;

pub(crate) const NEVER: u64 = u64::MAX;

/// Whether a host runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Up,
    Down,
    /// Its disk is lost and it will not come back.
    Lost,
}

/// What arrived at a host.
pub(crate) enum Input<F: Family> {
    Message { from: NodeId, to: NodeId, message: F::Message },
    Timer { seat: usize, timer: TimerIndex },
    Request { to: NodeId, id: RequestId, request: F::Request },
    Blob { seat: usize, notice: BlobNotice },
    Beacons(BeaconList),
}

/// A crash that waits for its moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    /// Its number among the faults that have begun.
    pub(crate) fault: u32,
    pub(crate) aim: Aim,
    pub(crate) expires: u64,
}

pub(crate) struct Host<N: Node> {
    pub(crate) id: HostId,
    pub(crate) index: HostIndex,
    pub(crate) status: Status,
    pub(crate) incarnation: u32,
    /// Packets of this incarnation and earlier ones that are still in flight are lost.
    pub(crate) output_lost_to: Option<u32>,
    pub(crate) wiped: bool,
    /// A durable byte is wrong, or is about to be.
    pub(crate) damaged: bool,
    pub(crate) seats: Vec<Seat<N>>,
    /// The seats in the order of their nodes.
    order: Vec<(NodeId, u8)>,
    /// The seats that were called since their last burst end.
    pub(crate) touched: Vec<u8>,
    /// The seats that were called since the scenario looked at them.
    pub(crate) called: Vec<u8>,
    inbox: VecDeque<Input<N::Family>>,
    pub(crate) local: VecDeque<(NodeId, NodeId, <N::Family as Family>::Message)>,
    pub(crate) held: Held<<N::Family as Family>::Message>,
    pub(crate) disk: Disk,
    pub(crate) blobs: InFlight,
    pub(crate) beacons: BeaconTables,
    pub(crate) clock: Clock,
    busy_until: u64,
    pub(crate) paused_until: u64,
    wakes: bool,
    syncing: Option<u64>,
    /// The one moment at which a `Synced` event counts.
    synced_at: u64,
    release_waits: bool,
    pub(crate) node_slowness: u32,
    pub(crate) disk_slowness: u32,
    pub(crate) disk_full_until: u64,
    pub(crate) armed: Option<Armed>,
    /// The write error that the next sync meets, by its number among the faults that have begun.
    pub(crate) write_error: Option<u32>,
    /// The misdirection after whose sync the host stops.
    pub(crate) misdirection: Option<u32>,
    bursts: u64,
}

impl<N: Node> Host<N> {
    pub(crate) fn new(id: HostId, index: HostIndex, clock_error: Duration) -> Self {
        Self {
            id,
            index,
            status: Status::Down,
            incarnation: 0,
            output_lost_to: None,
            wiped: false,
            damaged: false,
            seats: Vec::new(),
            order: Vec::new(),
            touched: Vec::new(),
            called: Vec::new(),
            inbox: VecDeque::new(),
            local: VecDeque::new(),
            held: Held::default(),
            disk: Disk::default(),
            blobs: InFlight::default(),
            beacons: BeaconTables::default(),
            clock: Clock::new(clock_error),
            busy_until: 0,
            paused_until: 0,
            wakes: false,
            syncing: None,
            synced_at: 0,
            release_waits: false,
            node_slowness: 1,
            disk_slowness: 1,
            disk_full_until: 0,
            armed: None,
            write_error: None,
            misdirection: None,
            bursts: 0,
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &N)> {
        self.seats.iter().map(|seat| (seat.id, &seat.node))
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&N> {
        self.seat(id).map(|seat| &self.seats[seat].node)
    }

    /// Those that were called since the scenario looked at them.
    pub(crate) fn called_nodes(&self) -> impl Iterator<Item = (NodeId, &N)> {
        self.called.iter().map(|&seat| &self.seats[usize::from(seat)]).map(|seat| (seat.id, &seat.node))
    }

    /// The same, as they sit here.
    pub(crate) fn called_seats(&self) -> impl Iterator<Item = &Seat<N>> {
        self.called.iter().map(|&seat| &self.seats[usize::from(seat)])
    }

    /// The scenario has looked.
    pub(crate) fn was_looked_at(&mut self) {
        for seat in self.called.drain(..) {
            self.seats[usize::from(seat)].called = false;
        }
    }

    /// Reads the disk back; what an unsynced write left of itself is durable from now on. False if something durable is damaged.
    pub(crate) fn recover(&mut self, out: &mut Outside<N::Family>) -> bool {
        let before = self.disk.durable();
        let sound = self.disk.recover().is_ok();
        if sound {
            self.notify_durable(before, self.disk.durable(), out);
        }
        sound
    }

    fn notify_durable(&self, after: u64, through: u64, out: &mut Outside<N::Family>) {
        if out.claims.is_none() {
            return;
        }
        for (host_slot, position, record) in self.disk.records_between(after, through) {
            let (node, record) = (NodeId::new(self.id, host_slot), Bytes::copy_from_slice(record));
            out.facts.push(Fact::Durable { node, position, record });
        }
    }

    /// Starts an incarnation with fresh nodes: restores their records, then runs the first burst. The disk must be recovered.
    pub(crate) fn start(&mut self, seed: u64, nodes: Vec<(HostSlot, N)>, out: &mut Outside<N::Family>) {
        self.status = Status::Up;
        out.happened(Happening::Start, u64::from(self.id.0), u64::from(self.incarnation));
        out.trace.line(out.now, Some(self.id), || format!("START incarnation {}", self.incarnation));
        let key = mix(mix(root(seed, Purpose::Boot), u64::from(self.index)), u64::from(self.incarnation));
        self.clock.boot(out.now, mix(key, 0) >> 14);
        for (host_slot, mut node) in nodes {
            let id = NodeId::new(self.id, host_slot);
            for (position, record) in self.disk.records(host_slot, out.swarm.trimmed_restored) {
                let restored = node.restore(position, Bytes::copy_from_slice(record));
                assert!(restored.is_ok(), "CODEC: {id} cannot read its record at {position:?}: {restored:?}");
            }
            if out.trace.is_read() {
                out.names.insert(id.to_string(), node.role_name());
            }
            let effects = Effects::new(self.disk.next_position(host_slot), out.trace.is_read());
            let rng = Rng::seeded(mix(mix(key, 1), u64::from(host_slot.0)));
            self.seats.push(Seat {
                id,
                node,
                effects,
                rng,
                timers: Vec::new(),
                appended_end: 0,
                touched: false,
                called: false,
            });
        }
        self.order = self.seats.iter().map(|seat| seat.id).zip(0..).collect();
        self.order.sort_unstable();
        for seat in 0..self.seats.len() {
            self.call(seat, out, |node, situation, effects| node.on_start(situation, effects));
        }
        self.settle(0, out);
    }

    /// The process ends. True if unsynced writes were lost, torn or reordered.
    pub(crate) fn crash(&mut self, loss: Loss, draw: u64, out: &mut Outside<N::Family>) -> bool {
        out.happened(Happening::Crash, u64::from(self.id.0), u64::from(self.incarnation));
        out.trace.line(out.now, Some(self.id), || {
            format!(
                "CRASH incarnation {}, {} bytes unsynced, loss {loss:?}",
                self.incarnation,
                self.disk.unsynced()
            )
        });
        self.status = Status::Down;
        self.incarnation += 1;
        let host_slots: Vec<HostSlot> = self.seats.iter().map(|seat| seat.id.host_slot()).collect();
        self.blobs.crash(&mut self.disk, &mut out.archive, |seat| host_slots[seat], draw);
        self.seats.clear();
        self.order.clear();
        self.touched.clear();
        self.called.clear();
        self.inbox.clear();
        self.local.clear();
        self.held.clear();
        self.beacons = BeaconTables::default();
        (self.busy_until, self.paused_until) = (0, 0);
        (self.wakes, self.release_waits, self.syncing) = (false, false, None);
        (self.armed, self.write_error, self.misdirection) = (None, None, None);
        self.disk.crash(loss, draw)
    }

    /// Calls off what waits for its moment.
    pub(crate) fn disarm(&mut self) {
        (self.armed, self.write_error, self.misdirection) = (None, None, None);
        self.damaged &= !self.disk.disarm();
    }

    /// Ends every lasting fault of the host itself.
    pub(crate) fn mend(&mut self, out: &mut Outside<N::Family>) {
        (self.paused_until, self.disk_full_until) = (0, 0);
        (self.node_slowness, self.disk_slowness) = (1, 1);
        self.busy_until = self.busy_until.min(out.now);
        self.clock.set_lie(0);
        self.clock.set_step(out.now, 0);
        self.clock.set_lost(out.now, false);
        if self.syncing.is_some() {
            self.sync_returns(out.now + out.swarm.sync, out);
        }
        self.hurry_blobs(out);
        if self.status == Status::Up {
            out.queue.push(out.now, Event::Wake { host: self.index, incarnation: self.incarnation });
        }
    }

    /// Ends a pause.
    pub(crate) fn resume(&mut self, out: &mut Outside<N::Family>) {
        if self.status == Status::Up && self.paused_until > out.now {
            out.trace.line(out.now, Some(self.id), || "RESUMES".to_owned());
            self.paused_until = out.now;
            out.queue.push(out.now, Event::Wake { host: self.index, incarnation: self.incarnation });
        }
    }

    fn free_at(&self) -> u64 {
        self.busy_until.max(self.paused_until)
    }

    /// Something arrives; true if the host works it off at once.
    pub(crate) fn arrive(&mut self, input: Input<N::Family>, out: &mut Outside<N::Family>) -> bool {
        self.inbox.push_back(input);
        self.wake(out)
    }

    /// True if the host is free now; otherwise it will wake when it is.
    fn wake(&mut self, out: &mut Outside<N::Family>) -> bool {
        if self.wakes {
            return false;
        }
        if self.free_at() <= out.now {
            return true;
        }
        self.wakes = true;
        out.queue.push(self.free_at(), Event::Wake { host: self.index, incarnation: self.incarnation });
        false
    }

    /// A wake event; true if there is work and the host is free for it.
    pub(crate) fn woken(&mut self, out: &mut Outside<N::Family>) -> bool {
        self.wakes = false;
        if self.free_at() > out.now {
            self.wake(out);
            return false;
        }
        if std::mem::take(&mut self.release_waits) {
            self.release(out);
        }
        !self.inbox.is_empty() || !self.local.is_empty()
    }

    /// The queue reminds us of a timer; true if that makes work to do at once.
    pub(crate) fn timer(&mut self, seat: usize, timer: TimerIndex, out: &mut Outside<N::Family>) -> bool {
        let (now, local_now) = (out.now, self.clock.monotonic(out.now));
        let slot = &mut self.seats[seat].timers[usize::from(timer.0)];
        if slot.reminder != now {
            return false;
        }
        slot.reminder = NEVER;
        if slot.deadline == NEVER {
            return false;
        }
        if let Some(listener) = slot.listener.as_ref().filter(|_| slot.deadline <= now) {
            slot.local_deadline = self.beacons.heard.runs_out(listener);
        }
        let left = slot.local_deadline.since(local_now);
        if slot.deadline <= now && !left.is_zero() {
            slot.deadline = now + self.clock.true_duration(left).max(1);
        }
        if slot.deadline > now {
            slot.reminder = slot.deadline;
            let event = Event::Timer {
                host: self.index,
                seat: seat as u8,
                timer: timer.0,
                incarnation: self.incarnation,
            };
            out.queue.push(slot.deadline, event);
            return false;
        }
        slot.deadline = NEVER;
        slot.due = true;
        self.arrive(Input::Timer { seat, timer }, out)
    }

    /// Works off everything that has arrived.
    pub(crate) fn burst(&mut self, out: &mut Outside<N::Family>) {
        let arrived = self.inbox.len();
        if out.swarm.timers_last && arrived > 1 {
            let is_timer = |input: &Input<N::Family>| matches!(input, Input::Timer { .. });
            self.inbox.make_contiguous().sort_by_key(is_timer);
        }
        for _ in 0..arrived {
            let input = self.inbox.pop_front().expect("nothing else takes from the inbox");
            self.deliver_input(input, out);
        }
        self.settle(arrived as u64, out);
    }

    fn deliver_input(&mut self, input: Input<N::Family>, out: &mut Outside<N::Family>) {
        match input {
            Input::Message { from, to, message } => self.deliver(from, to, message, out),
            Input::Beacons(list) => self.hear_beacons(list, out),
            Input::Timer { seat, timer } => {
                let slot = &mut self.seats[seat].timers[usize::from(timer.0)];
                if !std::mem::take(&mut slot.due) {
                    return;
                }
                let id = self.seats[seat].id;
                out.happened(Happening::Timer, id.as_u64(), u64::from(timer.0));
                out.trace.line(out.now, Some(self.id), || format!("{id} timer {}", timer.0));
                self.call(seat, out, |node, situation, effects| node.on_timer(timer, situation, effects));
            }
            Input::Blob { seat, notice } => {
                let id = self.seats[seat].id;
                out.trace.line(out.now, Some(self.id), || format!("{id} {notice:?}"));
                self.call(seat, out, |node, situation, effects| node.on_blob(notice, situation, effects));
            }
            Input::Request { to, id, request } => {
                let Some(seat) = self.seat(to) else { return };
                out.happened(Happening::Request, to.as_u64(), id.0);
                out.trace.line(out.now, Some(self.id), || format!("{to} request {} {request:?}", id.0));
                self.call(seat, out, |node, situation, effects| {
                    node.on_request(id, request, situation, effects);
                });
            }
        }
    }

    fn deliver(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: <N::Family as Family>::Message,
        out: &mut Outside<N::Family>,
    ) {
        let Some(seat) = self.seat(to) else {
            *out.rejects.entry("message to a slot without a node").or_default() += 1;
            return;
        };
        out.trace.line(out.now, Some(self.id), || format!("{from} -> {to} {message:?}"));
        self.call(seat, out, |node, situation, effects| node.on_message(from, message, situation, effects));
    }

    pub(crate) fn seat(&self, id: NodeId) -> Option<usize> {
        let at = self.order.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(usize::from(self.order[at].1))
    }

    /// Local cascades until quiet, burst ends of the nodes that were called until quiet, then the write and its fsync.
    fn settle(&mut self, arrived: u64, out: &mut Outside<N::Family>) {
        let mut handled = arrived;
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "BOUND: the nodes of {:?} wake each other without end", self.id);
            while let Some((from, to, message)) = self.local.pop_front() {
                handled += 1;
                out.happened_locally(from, to);
                self.deliver(from, to, message, out);
                assert!(
                    handled < 100 * ROUNDS_MAX as u64,
                    "BOUND: local messages of {:?} never end",
                    self.id
                );
            }
            let mut ending = std::mem::take(&mut self.touched);
            ending.sort_unstable();
            for seat in ending.drain(..).map(usize::from) {
                self.call(seat, out, |node, situation, effects| node.on_burst_end(situation, effects));
                self.seats[seat].touched = false;
            }
            // Nobody else was called meanwhile.
            self.touched = ending;
            if self.local.is_empty() {
                break;
            }
        }
        self.send_changed_beacons(out);
        self.bursts += 1;
        let slowness = u64::from(self.node_slowness);
        self.busy_until = out.now + (out.swarm.burst + out.swarm.per_message * handled) * slowness;
        self.disk.end_write();
        self.sync(out);
        if let Some(armed) = self.armed
            && armed.aim == Aim::Unsynced
            && self.disk.unsynced() > 0
        {
            self.trigger(armed, out);
        }
    }

    fn trigger(&mut self, armed: Armed, out: &mut Outside<N::Family>) {
        self.armed = None;
        if out.now <= armed.expires {
            out.triggered.push(armed.fault);
        }
    }

    /// Starts an fsync of everything written, unless one is in flight.
    fn sync(&mut self, out: &mut Outside<N::Family>) {
        if self.syncing.is_some() || self.disk.unsynced() == 0 {
            return;
        }
        self.syncing = Some(self.disk.end());
        let jitter = mix(mix(self.bursts, u64::from(self.index)), u64::from(self.incarnation))
            % (out.swarm.sync / 2 + 1);
        let lasts = (out.swarm.sync + jitter) * u64::from(self.disk_slowness);
        if out.swarm.sync_blocks {
            self.busy_until = self.busy_until.max(out.now + lasts);
        }
        self.sync_returns((out.now + lasts).max(self.disk_full_until), out);
    }

    fn sync_returns(&mut self, at: u64, out: &mut Outside<N::Family>) {
        self.synced_at = at;
        out.queue.push(at, Event::Synced { host: self.index, incarnation: self.incarnation });
    }

    /// The fsync in flight returns; true if what it released makes work to do at once.
    pub(crate) fn synced(&mut self, out: &mut Outside<N::Family>) -> bool {
        if out.now != self.synced_at || self.syncing.is_none() {
            return false;
        }
        if out.now < self.disk_full_until {
            // The disk filled up while the sync was in flight.
            self.sync_returns(self.disk_full_until, out);
            return false;
        }
        if let Some(fault) = self.write_error.take() {
            out.triggered.push(fault);
            return false;
        }
        let target = self.syncing.take().expect("a sync in flight was just seen");
        let landed_wrong = self.disk.misdirection_waits();
        if !landed_wrong {
            self.notify_durable(self.disk.durable(), target, out);
        }
        self.disk.synced(target);
        out.happened(Happening::Synced, u64::from(self.id.0), target);
        if landed_wrong && let Some(fault) = self.misdirection.take() {
            out.triggered.push(fault);
        }
        if let Some(armed) = self.armed
            && armed.aim == Aim::Synced
        {
            self.trigger(armed, out);
        }
        if !out.triggered.is_empty() {
            return false;
        }
        if self.paused_until > out.now {
            self.release_waits = true;
            self.wake(out);
            return false;
        }
        self.release(out);
        !self.local.is_empty() && self.wake(out)
    }

    /// Sends what waited for the journal, and syncs what was written since.
    fn release(&mut self, out: &mut Outside<N::Family>) {
        self.release_held(out);
        self.sync(out);
    }
}
