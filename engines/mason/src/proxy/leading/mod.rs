//! The volatile part of the proxy that leads its group: what waits for numbers, and what waits for the log.
//!
//! `sequencing` watches the sequencer and follows its recoveries, `collector` is the ring that collects views, `durable` counts
//! what shards' snapshots have, `proposing` hands entries to the log, `rest` says when nothing is to be done.

mod collector;
mod durable;
mod early;
mod proposing;
mod rest;
mod sequencing;

use proposing::{propose, propose_batch};

use super::entry::{Claim, Entry, Item};
use super::{Allocated, Applied, Began, FollowUp, Frame, Proxy, SubmitOperations};
use crate::messages::sequencer::{self, Allocation};
use crate::order::{ConsistentCut, GroupTime, Gsn, Number, Operation, Placed, Range, Space};
use crate::topology::ShardMap;
use kernel::{Cx, Instant, NodeId, PageBudget, planted};
use parts::Ballot;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// One batch on its way: numbers first, then the log.
#[derive(Clone, Debug)]
struct Pending {
    items: Vec<Item>,
    /// Numbers of allocations that earlier leaders lost; such a batch has no items.
    lost: bool,
    stage: Stage,
    since: Instant,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Not asked for yet.
    New,
    /// The sequencer was asked.
    Asked { request: u64 },
    /// Everything is there.
    Numbered(Numbers),
    /// In the log as this batch of the leader, as far as it depends on us.
    Proposed { index: u64, numbers: Numbers },
}

#[derive(Clone, Debug)]
struct Numbers {
    request: u64,
    rows: Vec<Range>,
    gsn: Gsn,
    cut: Option<ConsistentCut>,
    /// The wall clock when the numbers came: the same however often the batch is proposed.
    time: u64,
}

/// What a leader knows of the sequencer.
#[derive(Clone, Debug)]
struct Sequencing {
    /// The epoch in force in the group's log.
    epoch: u64,
    /// Whose it is.
    claim: Option<Claim>,
    /// The next request.
    next_request: u64,
    /// The last request whose answer the log has.
    committed: u64,
    /// Nothing may be asked before the sequencer has reported what the leader before had asked.
    probing: bool,
    heard_at: Instant,
    /// The epoch in which it has answered: from then on a beacon says that it is alive.
    answered: Option<u64>,
    /// Its beacon was all that was wanted of it.
    rested: bool,
    asked_at: Instant,
    /// How long the next silence may last; grows while no sequencer comes up.
    patience: Duration,
    /// When a standby was last called.
    called_at: Instant,
    /// When patience last grew or shrank.
    patient_since: Instant,
    /// The highest epoch that was asked to take over.
    called: u64,
    /// The claim that is on its way to the log, for which epoch, and since when. `Sealed` goes there if the log has it.
    sealing: Option<(u64, Claim, Instant)>,
    filling: Option<(u64, NodeId)>,
    /// Who has a resharding logged, and for which epoch.
    handing: Option<(u64, NodeId)>,
}

/// Leading.
#[derive(Clone, Debug)]
pub(crate) struct Lead {
    ballot: Ballot,
    epoch: u64,
    begun: bool,
    begun_at: Instant,
    index: u64,
    expected: BTreeMap<NodeId, (u64, u64)>,
    queue: VecDeque<Item>,
    queue_bytes: usize,
    pending: VecDeque<Pending>,
    sequencing: Sequencing,
    /// By which spaces are chosen: as the sequencer in force has it, or is guessed to have.
    shard_map: ShardMap,
    /// Where the one group without a sequencer counts.
    own: Vec<(Space, Number)>,
    own_gsn: Gsn,
    clock: GroupTime,
    clock_at: Instant,
    /// When new members, or their log, were last proposed.
    moved_at: Option<Instant>,
    /// When something of a change of the groups was last proposed.
    arranged_at: Option<Instant>,
    /// Nothing is numbered any more: the log is to say so.
    retiring: bool,
    durable: BTreeMap<(Space, NodeId), Number>,
    durable_logged: BTreeMap<Space, Number>,
    waits_for_last: BTreeMap<Space, durable::Wait>,
    /// Bytes of batches that were put into the log.
    proposed_bytes: u64,
    collecting: Collecting,
    /// Its tick waits for a silence of the sequencer.
    listens: bool,
}

/// The ring round that the first group's leader has in flight.
#[derive(Clone, Debug)]
struct Collecting {
    round: u64,
    begun_at: Instant,
    firsts: Vec<Placed>,
    /// What the last round counted, and after how many periods the next begins: where nothing is assigned, rounds become rare.
    counted: Vec<u64>,
    pause: u32,
    /// The view's rows of this group, to count from: a copy made from what the log applied.
    view: crate::view::View,
}

impl Sequencing {
    /// The sequencer in force.
    fn node(&self) -> Option<NodeId> {
        self.claim.as_ref().map(|claim| claim.sequencer)
    }

    /// A claim is on its way to the log. It stays known afterwards, to be answered again.
    fn is_sealing(&self) -> bool {
        self.sealing.as_ref().is_some_and(|(epoch, ..)| *epoch > self.epoch)
    }

    /// When its beacon was seen last.
    fn seen_at(&self, cx: &Cx<'_, Proxy>) -> Option<Instant> {
        let node = self.node().filter(|_| self.answered == Some(self.epoch))?;
        cx.beacon_heard_at(node)
    }

    fn is_well(&mut self, now: Instant) {
        self.heard_at = now;
        // Where sequencers had to be called often, because disks or links are slow, patience is lost slowly.
        if now.since(self.patient_since) >= CALM_AFTER * self.patience {
            (self.patience, self.patient_since) = (self.patience / 2, now);
        }
    }
}

/// A sequencer that is silent for so many beacons is asked, before it is suspected.
const BEACONS_MISSED: u32 = 2;
/// How long all must be well before patience shrinks, in units of it.
const CALM_AFTER: u32 = 16;

/// The longest silence that is borne, in units of the shortest.
const PATIENCE_GROWS_TO: u32 = 16;

impl Lead {
    pub(super) fn new(ballot: Ballot, round: u64, shard_map: ShardMap, now: Instant) -> Self {
        Self {
            ballot,
            epoch: 0,
            begun: false,
            begun_at: now,
            index: 0,
            expected: BTreeMap::new(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            pending: VecDeque::new(),
            sequencing: Sequencing {
                epoch: 0,
                claim: None,
                next_request: 1,
                committed: 0,
                probing: false,
                heard_at: now,
                answered: None,
                rested: false,
                asked_at: now,
                patience: Duration::ZERO,
                called_at: now,
                patient_since: now,
                called: 0,
                sealing: None,
                filling: None,
                handing: None,
            },
            shard_map,
            own: Vec::new(),
            own_gsn: Gsn(0),
            clock: GroupTime(0),
            clock_at: now,
            moved_at: None,
            arranged_at: None,
            retiring: false,
            durable: BTreeMap::new(),
            durable_logged: BTreeMap::new(),
            waits_for_last: BTreeMap::new(),
            proposed_bytes: 0,
            collecting: Collecting {
                round,
                begun_at: now,
                firsts: Vec::new(),
                counted: Vec::new(),
                pause: 1,
                view: crate::view::View::default(),
            },
            listens: false,
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn sequencer_epoch(&self) -> u64 {
        self.sequencing.epoch
    }

    pub(super) fn propose_begin(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        propose(&Entry::Begin { ballot: self.ballot, leader: cx.node() }, frame, cx);
    }

    /// The log has all that the leaders before have put there: what this one proposes comes after.
    pub(super) fn on_began(&mut self, message: Began, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if message.ballot != self.ballot || message.leader != cx.node() || self.begun {
            return;
        }
        let waiting = (self.queue.len(), self.pending.len());
        kernel::invariant!(
            ORDER,
            waiting == (0, 0),
            "took {waiting:?} operations and batches before it began"
        );
        (self.begun, self.epoch) = (true, message.epoch);
        let now = cx.now();
        self.expected = message.tags.iter().map(|tag| (tag.origin, (tag.incarnation, tag.next))).collect();
        (self.clock, self.clock_at) = (message.now, now);
        self.own = message.next.iter().map(|placed| (placed.space, placed.number)).collect();
        self.own_gsn = message.gsn.next();
        self.hold_low_watermarks(message.durable.unwrap_or_default());
        let sequencing = &mut self.sequencing;
        (sequencing.epoch, sequencing.claim) = (message.sequencer, message.claim);
        sequencing.committed = message.request;
        sequencing.called = message.sequencer;
        (sequencing.heard_at, sequencing.asked_at) = (now, now);
        for follow_up in message.follow_ups {
            self.queue_follow_up(follow_up, frame);
        }
        if frame.topology.sequencers.is_empty() || frame.idle {
            return;
        }
        if self.sequencing.node().is_none() {
            self.call_next(frame, cx);
        } else {
            self.probe(frame, cx);
        }
    }
}

/// From the origins to the log.
impl Lead {
    pub(super) fn on_submit(&mut self, message: SubmitOperations, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if !self.begun {
            return;
        }
        for operation in message.operations {
            let first = (operation.incarnation, 1);
            let expected = self.expected.entry(operation.origin).or_insert(first);
            if expected.0 < operation.incarnation && operation.tag == 1 {
                *expected = first;
            }
            if *expected != (operation.incarnation, operation.tag) {
                continue;
            }
            if operation.body.len() > frame.parameters.operation_bytes_max {
                // Gateways refuse it; behind one that does not, the origin's lane stands still.
                cx.reject("operation larger than a slot holds");
                return;
            }
            if self.queue_bytes + operation.body.len() > frame.parameters.queue_bytes_max {
                cx.reject("more operations waiting than a proxy keeps");
                return;
            }
            expected.1 += 1;
            self.queue_bytes += operation.body.len();
            // A group that retires has origins notified, which needs no numbers.
            let retires = frame.idle || self.retiring;
            let spaces =
                if retires { Vec::new() } else { (frame.spaces_of)(&operation.body, &self.shard_map) };
            self.queue.push_back(Item { spaces: spaces.into(), follow_up: None, operation });
        }
    }

    pub(super) fn queue_follow_up(&mut self, message: FollowUp, frame: &Frame<'_>) {
        let FollowUp { id, body } = message;
        let queued = self.queue.iter().chain(self.pending.iter().flat_map(|pending| &pending.items));
        if !self.begun || queued.into_iter().any(|item| item.follow_up == Some(id)) {
            return;
        }
        let spaces = (frame.spaces_of)(&body, &self.shard_map);
        self.queue_bytes += body.len();
        let operation = Operation { origin: NodeId::ZERO, incarnation: 0, tag: 0, body };
        self.queue.push_back(Item { spaces: spaces.into(), follow_up: Some(id), operation });
    }

    /// Makes batches, asks for their numbers, and puts those that are numbered into the log, in their order.
    pub(super) fn advance(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if !self.begun {
            return;
        }
        let ready = frame.topology.sequencers.is_empty()
            || frame.idle
            || (self.sequencing.epoch > 0 && !self.sequencing.probing);
        while ready && !self.queue.is_empty() && self.pending.len() < frame.parameters.batches_max {
            let items = self.take_batch(frame);
            self.pending.push_back(Pending { items, lost: false, stage: Stage::New, since: cx.now() });
        }
        if ready {
            self.ask_for_numbers(frame, cx);
        }
        self.propose_numbered(frame, cx);
    }

    fn take_batch(&mut self, frame: &Frame<'_>) -> Vec<Item> {
        let (mut items, mut page) = (Vec::new(), PageBudget::new(frame.parameters.batch_bytes_max));
        while let Some(item) = self.queue.front()
            && items.len() < frame.parameters.batch_operations_max
            && (page.admits(bytes_of(item)) || planted!(leader_batch_unbounded))
        {
            let (bytes, all) = (item.operation.body.len(), self.queue_bytes);
            kernel::invariant!(
                BOUND,
                bytes <= all,
                "an operation of {bytes} bytes of {all} leaves the queue"
            );
            self.queue_bytes = all - bytes;
            items.extend(self.queue.pop_front());
        }
        items
    }

    fn ask_for_numbers(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let time = now_in_ms(cx);
        for index in 0..self.pending.len() {
            let Stage::New = self.pending[index].stage else { continue };
            let counts = count(&self.pending[index].items);
            let operations =
                self.pending[index].items.iter().filter(|item| !item.spaces.is_empty()).count() as u64;
            let stage = if counts.is_empty() {
                let none = Numbers { request: 0, rows: Vec::new(), gsn: Gsn(0), cut: None, time };
                Stage::Numbered(none)
            } else if frame.topology.sequencers.is_empty() {
                Stage::Numbered(self.number_alone(&counts, operations, time))
            } else {
                let request = self.sequencing.next_request;
                self.sequencing.next_request += 1;
                self.request(request, counts, operations, frame, cx);
                Stage::Asked { request }
            };
            self.pending[index].stage = stage;
            self.pending[index].since = cx.now();
        }
    }

    /// The one group's log is the order: its leader counts, and batches of leaders before it are void.
    fn number_alone(&mut self, counts: &[(Space, u64)], operations: u64, time: u64) -> Numbers {
        let mut rows = Vec::new();
        for &(space, count) in counts {
            let Some((_, next)) = self.own.iter_mut().find(|(known, _)| *known == space) else { continue };
            rows.push(Range { space, first: *next, count });
            *next = next.plus(count);
        }
        let gsn = self.own_gsn;
        self.own_gsn = gsn.plus(operations);
        let next = self.own.iter().map(|&(space, number)| Placed { space, number }).collect();
        Numbers { request: 0, rows, gsn, cut: Some(ConsistentCut { gsn: self.own_gsn, next }), time }
    }

    fn request(
        &self,
        request: u64,
        counts: Vec<(Space, u64)>,
        operations: u64,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, Proxy>,
    ) {
        let Sequencing { epoch, committed, .. } = self.sequencing;
        let Some(sequencer) = self.sequencing.node() else { return };
        let (group, proxy_epoch, shard_map) = (frame.group, self.epoch, Some(self.shard_map.version));
        let allocate = sequencer::Allocate {
            group,
            proxy_epoch,
            epoch,
            request,
            committed,
            counts,
            operations,
            shard_map,
        };
        cx.send(sequencer, allocate);
    }

    pub(super) fn on_allocated(&mut self, message: Allocated, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let Allocated { epoch, allocation } = message;
        if epoch != self.sequencing.epoch && !planted!(sealed_sequencer_accepted) {
            return cx.mark("proxy.refused_a_sealed_sequencers_answer");
        }
        self.sequencing.is_well(cx.now());
        let waits = |pending: &&mut Pending| matches!(pending.stage, Stage::Asked { request } if request == allocation.request);
        let Some(pending) = self.pending.iter_mut().find(waits) else { return };
        let Allocation { request, rows, gsn, cut } = allocation;
        pending.stage = Stage::Numbered(Numbers { request, rows, gsn, cut: Some(cut), time: now_in_ms(cx) });
        self.propose_numbered(frame, cx);
    }

    fn propose_numbered(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        for pending in &mut self.pending {
            match &pending.stage {
                Stage::Proposed { .. } => continue,
                Stage::New | Stage::Asked { .. } => return,
                Stage::Numbered(numbers) => {
                    self.index += 1;
                    pending.since = cx.now();
                    pending.stage = Stage::Proposed { index: self.index, numbers: numbers.clone() };
                }
            }
            self.proposed_bytes += propose_batch(pending, self.epoch, self.sequencing.epoch, frame, cx);
        }
    }

    pub(super) fn on_applied(&mut self, message: &Applied, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if message.epoch != self.epoch || message.sequencer != self.sequencing.epoch {
            return;
        }
        while let Some(Pending { stage: Stage::Proposed { index, numbers }, .. }) = self.pending.front() {
            if *index > message.index {
                break;
            }
            self.sequencing.committed = self.sequencing.committed.max(numbers.request);
            self.pending.pop_front();
        }
        self.advance(frame, cx);
    }
}

/// What has to be done again and again.
impl Lead {
    pub(super) fn on_tick(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let now = cx.now();
        if !self.begun {
            if now.since(self.begun_at) >= frame.parameters.resend_after {
                self.begun_at = now;
                self.propose_begin(frame, cx);
            }
            return;
        }
        if frame.idle {
            // A group that comes into use waits for the sequencer that is called for it.
            self.sequencing.heard_at = now;
        }
        if frame.group.0 >= frame.topology.layout.spanning {
            return self.propose_again(frame, cx);
        }
        if !frame.awaits_time {
            self.let_time_stand(now);
        }
        if now.since(self.clock_at) >= frame.parameters.clock_every {
            let elapsed = now.since(self.clock_at).as_millis() as u64;
            self.clock = self.clock.plus(elapsed);
            self.clock_at = self.clock_at + Duration::from_millis(elapsed);
            propose(&Entry::Clock { epoch: self.epoch, now: self.clock }, frame, cx);
        }
        self.propose_again(frame, cx);
        self.log_durable(frame, cx);
        if !frame.topology.sequencers.is_empty() && !frame.idle {
            self.ask_again(frame.parameters.resend_after, frame, cx);
            self.watch_the_sequencer(frame, cx);
            self.begin_round(frame, cx);
        }
    }

    /// The group's clock has stood until now: what begins now has all of its time before it.
    pub(super) fn let_time_stand(&mut self, now: Instant) {
        self.clock_at = now;
    }

    fn propose_again(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let now = cx.now();
        let (epoch, sequencer) = (self.epoch, self.sequencing.epoch);
        for pending in &mut self.pending {
            let late = now.since(pending.since) >= 2 * frame.parameters.resend_after;
            if late && matches!(pending.stage, Stage::Proposed { .. }) {
                pending.since = now;
                cx.mark("proxy.proposed_again");
                self.proposed_bytes += propose_batch(pending, epoch, sequencer, frame, cx);
            }
        }
    }

    fn ask_again(&mut self, patience: Duration, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let now = cx.now();
        if self.sequencing.probing {
            if now.since(self.sequencing.asked_at) >= patience {
                self.probe(frame, cx);
            }
            return;
        }
        for index in 0..self.pending.len() {
            let pending = &mut self.pending[index];
            if let Stage::Asked { request } = pending.stage
                && now.since(pending.since) >= patience
            {
                pending.since = now;
                let counts = count(&pending.items);
                let operations = pending.items.iter().filter(|item| !item.spaces.is_empty()).count() as u64;
                self.request(request, counts, operations, frame, cx);
            }
        }
    }

    /// True once every `patience`.
    pub(super) fn may_move(&mut self, now: Instant, patience: Duration) -> bool {
        let due = self.begun && self.moved_at.is_none_or(|at| now.since(at) >= patience);
        if due {
            self.moved_at = Some(now);
        }
        due
    }

    /// True once every `patience`.
    pub(super) fn may_arrange(&mut self, now: Instant, patience: Duration) -> bool {
        let due = self.begun && self.arranged_at.is_none_or(|at| now.since(at) >= patience);
        if due {
            self.arranged_at = Some(now);
        }
        due
    }

    /// True if nothing is in flight that needs numbers; from then on nothing is.
    pub(super) fn retires(&mut self) -> bool {
        self.retiring |= self.queue.is_empty() && self.pending.is_empty() && !self.sequencing.probing;
        self.retiring
    }

    /// The group serves again.
    pub(super) fn serves_again(&mut self) {
        self.retiring = false;
    }
}

fn now_in_ms(cx: &Cx<'_, Proxy>) -> u64 {
    cx.wall().midpoint() / 1_000_000
}

/// How many numbers of which space the items need.
fn count(items: &[Item]) -> Vec<(Space, u64)> {
    let mut counts: BTreeMap<Space, u64> = BTreeMap::new();
    for space in items.iter().flat_map(|item| &item.spaces) {
        *counts.entry(*space).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// What an item adds to an entry, and to the runs made of it, at most.
fn bytes_of(item: &Item) -> usize {
    item.operation.body.len() + ITEM_HEAD_BYTES + item.spaces.len() * PLACED_BYTES
}

/// Names, lengths and global sequence numbers of an item.
const ITEM_HEAD_BYTES: usize = 64;
/// A number in a space, and the space.
const PLACED_BYTES: usize = 12;
