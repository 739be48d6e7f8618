//! The nodes of a host, and what each call of them needs.

use crate::journal::CommitNumber;
use crate::timers::{NodeIndex, Timers};
use kernel::{
    Beacons, BlobNotice, Effects, Family, HostSlot, Instant, Node, NodeId, RequestId, Rng, Situation,
    TimerIndex, Wall,
};

/// One node.
pub(crate) struct Slot<N: Node> {
    pub(crate) id: NodeId,
    pub(crate) node: N,
    pub(crate) effects: Effects<N::Family>,
    rng: Rng,
    /// What it appended last becomes durable with this commit.
    pub(crate) last_append: CommitNumber,
    dirty: bool,
    touched: bool,
}

/// All nodes, by rank of their slots.
pub(crate) struct Nodes<N: Node> {
    pub(crate) slots: Vec<Slot<N>>,
    pub(crate) timers: Timers,
    /// May have pushed effects since they were last drained.
    dirty: Vec<NodeIndex>,
    /// Have been called since their last burst end.
    touched: Vec<NodeIndex>,
    pub(crate) now: Instant,
    pub(crate) wall: Wall,
    /// What roles learn of disks.
    pub(crate) disk_full: bool,
    /// And of other nodes.
    pub(crate) beacons: Beacons,
}

type Message<N> = <<N as Node>::Family as Family>::Message;
type Request<N> = <<N as Node>::Family as Family>::Request;

impl<N: Node> Nodes<N> {
    pub(crate) fn new(now: Instant, wall: Wall) -> Self {
        let (slots, dirty, touched) = (Vec::new(), Vec::new(), Vec::new());
        let (timers, beacons) = (Timers::default(), Beacons::default());
        Self { slots, timers, dirty, touched, now, wall, disk_full: false, beacons }
    }

    pub(crate) fn push(&mut self, id: NodeId, node: N, effects: Effects<N::Family>, rng: Rng) {
        let last_append = CommitNumber(0);
        self.slots.push(Slot { id, node, effects, rng, last_append, dirty: false, touched: false });
        self.slots.sort_by_key(|slot| slot.id.host_slot());
    }

    pub(crate) fn find(&self, host_slot: HostSlot) -> Option<NodeIndex> {
        self.slots.binary_search_by_key(&host_slot, |slot| slot.id.host_slot()).ok().map(NodeIndex)
    }

    fn call(&mut self, index: NodeIndex, call: impl FnOnce(&mut N, Situation<'_>, &mut Effects<N::Family>)) {
        let slot = &mut self.slots[index.0];
        let (now, wall, disk_full, beacons) = (self.now, self.wall, self.disk_full, &self.beacons);
        let situation = Situation { node: slot.id, now, wall, rng: &mut slot.rng, disk_full, beacons };
        call(&mut slot.node, situation, &mut slot.effects);
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(index);
        }
    }

    fn touch(&mut self, index: NodeIndex) {
        if !self.slots[index.0].touched {
            self.slots[index.0].touched = true;
            self.touched.push(index);
        }
    }

    pub(crate) fn start(&mut self) {
        for index in (0..self.slots.len()).map(NodeIndex) {
            self.touch(index);
            self.call(index, |node, situation, effects| node.on_start(situation, effects));
        }
    }

    pub(crate) fn message(&mut self, index: NodeIndex, from: NodeId, message: Message<N>) {
        self.touch(index);
        self.call(index, |node, situation, effects| node.on_message(from, message, situation, effects));
    }

    /// A timer has run out. Nothing happens if an earlier call of this round has set it again or stopped it: that is not carried out yet.
    pub(crate) fn timer(&mut self, index: NodeIndex, timer: TimerIndex) {
        if self.slots[index.0].effects.has_changed_timer(timer) {
            return;
        }
        self.touch(index);
        self.call(index, |node, situation, effects| node.on_timer(timer, situation, effects));
    }

    pub(crate) fn request(&mut self, index: NodeIndex, id: RequestId, request: Request<N>) {
        self.touch(index);
        self.call(index, |node, situation, effects| node.on_request(id, request, situation, effects));
    }

    pub(crate) fn blob(&mut self, index: NodeIndex, notice: BlobNotice) {
        self.touch(index);
        self.call(index, |node, situation, effects| node.on_blob(notice, situation, effects));
    }

    /// Ends the burst of every node that took part in it; false if there was none.
    pub(crate) fn end_burst(&mut self) -> bool {
        let mut touched = std::mem::take(&mut self.touched);
        let any = !touched.is_empty();
        for index in touched.drain(..) {
            self.slots[index.0].touched = false;
            self.call(index, |node, situation, effects| node.on_burst_end(situation, effects));
        }
        self.touched = touched;
        any
    }

    /// The next node whose effects are to be drained.
    pub(crate) fn next_dirty(&mut self) -> Option<NodeIndex> {
        let index = self.dirty.pop()?;
        self.slots[index.0].dirty = false;
        Some(index)
    }
}
