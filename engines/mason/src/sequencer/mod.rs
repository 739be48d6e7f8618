//! The sequencer: allocates multi-sequence numbers (the paper's Algorithm 1).
//!
//! `recovery` is how a standby takes over. A sequencer keeps nothing on disk: one that restarts is a standby.

mod recovery;

use crate::Mason;
use crate::messages::proxy;
pub use crate::messages::sequencer::*;
use crate::order::{ConsistentCut, Group, Gsn, Number, Order, Placed, Range, Space};
use crate::topology::{Layout, MasonParameters, ShardMap, Topology};
use kernel::{AwaitedTimers, Cx, NodeId, Position, Role, Statement, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

kernel::timers! {
    /// The sequencer's timers.
    pub enum SequencerTimer {
        /// Ask the nodes that have not answered during a recovery again.
        Retry,
    }
}

/// What is remembered of a group, so that each request is answered once (the paper's atMostOnce).
#[derive(Clone, Debug, Default)]
struct Served {
    proxy_epoch: u64,
    highest: u64,
    /// Allocations whose position in the group's log is not known yet; at most as many as a proxy has in flight.
    remembered: BTreeMap<u64, Allocation>,
}

#[derive(Clone, Debug)]
enum State {
    Standby,
    Recovering(recovery::Recovery),
    Active(Counters),
}

/// The next number of each space, and the next global sequence number.
#[derive(Clone, Debug)]
struct Counters {
    next: Vec<Number>,
    gsn: Gsn,
    served: BTreeMap<Group, Served>,
    /// The groups below this one were sealed for it.
    spanning: u16,
    /// Holes that groups still have to fill.
    filling: BTreeMap<Group, Vec<Range>>,
    /// By which all is numbered.
    shard_map: ShardMap,
    /// Where it comes into force: until this stands in the first group's log, nothing else is given away.
    handing: Option<Order>,
}

/// Allocates, or stands by.
///
/// Invariant: no number of a space is allocated twice by one sequencer, and none that an earlier one allocated and a proxy has
/// assigned.
#[derive(Clone, Debug)]
pub struct Sequencer {
    topology: Arc<Topology>,
    parameters: MasonParameters,
    /// The highest epoch this node was asked to be in this incarnation.
    epoch: u64,
    state: State,
    /// In which epoch beacons say that it allocates, and to whom.
    seen_by: (u64, BTreeSet<NodeId>),
}

/// Requests of one group that may be remembered: more are refused until the group's log catches up.
const REMEMBERED_MAX: usize = 1_024;

impl Sequencer {
    /// A standby.
    pub fn new(topology: Arc<Topology>, parameters: MasonParameters) -> Self {
        Self { topology, parameters, epoch: 0, state: State::Standby, seen_by: (0, BTreeSet::new()) }
    }

    /// The epoch in which it allocates, if it does.
    pub fn active_epoch(&self) -> Option<u64> {
        matches!(self.state, State::Active(_)).then_some(self.epoch)
    }

    /// The epoch for which it seals the groups, if it does.
    pub fn recovering_epoch(&self) -> Option<u64> {
        matches!(self.state, State::Recovering(_)).then_some(self.epoch)
    }

    /// Of which groups it counts the seals of its attempt, which is named by its number; for invariants.
    pub fn seals_counted(&self) -> Option<(u64, &BTreeSet<Group>)> {
        match &self.state {
            State::Recovering(recovery) => Some(recovery.counted()),
            State::Standby | State::Active(_) => None,
        }
    }

    /// How many groups were sealed for it, the first ones; for invariants.
    pub fn spanning(&self) -> Option<u16> {
        match &self.state {
            State::Active(counters) => Some(counters.spanning),
            State::Standby | State::Recovering(_) => None,
        }
    }

    /// Which groups have yet to fill which holes; for invariants.
    pub fn filling(&self) -> Option<&BTreeMap<Group, Vec<Range>>> {
        match &self.state {
            State::Active(counters) => Some(&counters.filling),
            State::Standby | State::Recovering(_) => None,
        }
    }

    /// It waits for the log to have a resharding.
    pub fn is_handing_over(&self) -> bool {
        matches!(&self.state, State::Active(counters) if counters.handing.is_some())
    }

    /// Allocations remembered for all groups: the measure of its memory.
    pub fn remembered(&self) -> usize {
        match &self.state {
            State::Active(counters) => counters.served.values().map(|served| served.remembered.len()).sum(),
            State::Standby | State::Recovering(_) => 0,
        }
    }
}

impl Role for Sequencer {
    type Family = Mason;
    type In = SequencerIn;
    type Timer = SequencerTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, from: NodeId, message: SequencerIn, cx: &mut Cx<'_, Self>) {
        match message {
            SequencerIn::Allocate(message) => self.on_allocate(from, message, cx),
            SequencerIn::Probe(message) => self.on_probe(from, message, cx),
            SequencerIn::Ping(message) => self.on_ping(from, message, cx),
            SequencerIn::Recover(message) => self.on_recover(message, cx),
            SequencerIn::GroupSealed(message) => self.on_sealed(message, cx),
            SequencerIn::Filled(message) => self.on_filled(message),
            SequencerIn::Moved(message) if from.host() == cx.node().host() => self.on_moved(&message),
            SequencerIn::Moved(_) => cx.reject("members from another host"),
            SequencerIn::Arranged(message) if from.host() == cx.node().host() => {
                self.on_arranged(&message.layout);
            }
            SequencerIn::Arranged(_) => cx.reject("layout from another host"),
            SequencerIn::HandedOver(message) => self.on_handed_over(&message, cx),
            SequencerIn::Overtaken(message) => self.on_overtaken(&message, cx),
        }
    }

    fn on_timer(&mut self, timer: SequencerTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            SequencerTimer::Retry => self.retry(cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        let waits = match &self.state {
            State::Standby => false,
            State::Recovering(_) => true,
            State::Active(counters) => !counters.filling.is_empty() || counters.handing.is_some(),
        };
        AwaitedTimers::NONE.and(SequencerTimer::Retry, waits)
    }

    fn statement(&self) -> Statement {
        let unfinished = match &self.state {
            State::Standby => Vec::new(),
            State::Recovering(_) => vec![("recoveries", 1)],
            State::Active(counters) => vec![
                ("groups that have holes to fill", counters.filling.len()),
                ("reshardings to log", usize::from(counters.handing.is_some())),
            ],
        };
        Statement { unfinished, beacons: Some(self.seen_by.1.clone()), ..Statement::default() }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        if self.seen_by.0 != self.epoch || !self.is_ready() {
            cx.stop_beacon(std::mem::take(&mut self.seen_by.1));
        }
    }
}

impl Sequencer {
    /// It is active, and nothing has to come first.
    fn is_ready(&self) -> bool {
        matches!(&self.state, State::Active(counters) if counters.handing.is_none() || planted!(numbers_before_resharding_logged))
    }

    /// The counters, for a message that means this sequencer and no other; notifies a proxy that is ahead or behind.
    fn counters(&mut self, from: NodeId, epoch: u64, cx: &mut Cx<'_, Self>) -> Option<&mut Counters> {
        if epoch != self.epoch || !self.is_ready() {
            let recovering = matches!(self.state, State::Recovering(_)) || self.is_handing_over();
            cx.send(from, proxy::NotActive { asked: epoch, epoch: self.epoch, recovering });
            return None;
        }
        match &mut self.state {
            State::Active(counters) => Some(counters),
            State::Standby | State::Recovering(_) => None,
        }
    }

    fn on_allocate(&mut self, from: NodeId, message: Allocate, cx: &mut Cx<'_, Self>) {
        let Allocate { group, proxy_epoch, epoch, request, committed, counts, operations, shard_map } =
            message;
        let spaces = self.topology.shards.len();
        let Some(counters) = self.counters(from, epoch, cx) else { return };
        let sound = counts
            .iter()
            .all(|(space, count)| usize::from(space.0) < spaces && *count <= u64::from(u32::MAX));
        if !sound || operations > u64::from(u32::MAX) {
            return cx.reject("allocation that no proxy would ask for");
        }
        let group = if planted!(requests_of_proxies_not_distinguished) { Group(0) } else { group };
        let served = counters.served.entry(group).or_default();
        if proxy_epoch < served.proxy_epoch {
            return cx.reject("allocation for a leader that was followed by another");
        }
        served.proxy_epoch = proxy_epoch;
        if shard_map.unwrap_or(0) != counters.shard_map.version && !planted!(stale_shard_map_served) {
            cx.mark("sequencer.refused_another_shard_map");
            return cx.send(from, proxy::OtherShardMap { epoch, shard_map: counters.shard_map.clone() });
        }
        served.remembered = served.remembered.split_off(&(committed.min(served.highest) + 1));
        if let Some(allocation) = served.remembered.get_mut(&request) {
            if planted!(request_numbered_in_two_steps) {
                take_rows(&mut counters.next, counts.get(allocation.rows.len()..).unwrap_or_default())
                    .for_each(|row| allocation.rows.push(row));
            }
            cx.mark("sequencer.answered_a_request_again");
            return cx.send(from, proxy::Allocated { epoch, allocation: allocation.clone() });
        }
        // Requests are served in their order, so that what one origin asked first is ordered first.
        if request != served.highest + 1 || served.remembered.len() >= REMEMBERED_MAX {
            return;
        }
        let last = served.remembered.last_key_value().map(|(&last, allocation)| (last, allocation.gsn));
        kernel::invariant!(
            UNIQ,
            last.is_none_or(|(last, gsn)| last < request && gsn <= counters.gsn),
            "request {request} gets {} after {last:?}",
            counters.gsn
        );
        served.highest = request;
        let at_once =
            if planted!(request_numbered_in_two_steps) { counts.len().min(1) } else { counts.len() };
        let rows: Vec<Range> = take_rows(&mut counters.next, &counts[..at_once]).collect();
        let gsn = counters.gsn;
        counters.gsn = gsn.plus(operations);
        let allocation = Allocation { request, rows, gsn, cut: counters.cut() };
        if let Some(served) = counters.served.get_mut(&group) {
            served.remembered.insert(request, allocation.clone());
        }
        if at_once == counts.len() {
            cx.send(from, proxy::Allocated { epoch, allocation });
        }
    }

    fn on_probe(&mut self, from: NodeId, message: Probe, cx: &mut Cx<'_, Self>) {
        let Probe { group, proxy_epoch, epoch, after } = message;
        let Some(counters) = self.counters(from, epoch, cx) else { return };
        let served = counters.served.entry(group).or_default();
        if proxy_epoch < served.proxy_epoch {
            return cx.reject("probe by a leader that was followed by another");
        }
        if !planted!(probe_does_not_fence) {
            served.proxy_epoch = proxy_epoch;
        }
        served.remembered = served.remembered.split_off(&(after.min(served.highest) + 1));
        let lost: Vec<Allocation> = served.remembered.values().cloned().collect();
        if !lost.is_empty() {
            cx.mark("sequencer.reported_a_new_leader_of_lost_requests");
        }
        cx.send(from, proxy::Probed { epoch, highest: served.highest, lost });
    }

    fn on_moved(&mut self, message: &Moved) {
        if message.members.version > self.topology.version {
            self.topology = Arc::new(self.topology.moved_to(&message.members));
        }
    }

    pub(super) fn on_arranged(&mut self, layout: &Layout) {
        if let Some(arranged) =
            self.topology.arranged(layout).filter(|_| !planted!(added_groups_not_waited_for))
        {
            self.topology = Arc::new(arranged);
        }
    }

    fn on_ping(&mut self, from: NodeId, message: Ping, cx: &mut Cx<'_, Self>) {
        if self.counters(from, message.epoch, cx).is_some() {
            let pong = proxy::Pong { epoch: message.epoch };
            if self.seen_by.0 != self.epoch {
                cx.stop_beacon(std::mem::take(&mut self.seen_by.1));
                self.seen_by.0 = self.epoch;
            }
            self.seen_by.1.insert(from);
            cx.repeat([from], pong.clone());
            // Who is answered need not ask again.
            cx.set_beacon([from], pong);
        }
    }
}

fn take_rows(next: &mut [Number], counts: &[(Space, u64)]) -> impl Iterator<Item = Range> {
    counts.iter().map(|&(space, count)| {
        let next = &mut next[usize::from(space.0)];
        let first = *next;
        *next = next.plus(count);
        Range { space, first, count }
    })
}

impl Counters {
    fn cut(&self) -> ConsistentCut {
        let next = self.next.iter().enumerate();
        let next = next.map(|(space, &number)| Placed { space: Space(space as u16), number }).collect();
        ConsistentCut { gsn: self.gsn, next }
    }
}
