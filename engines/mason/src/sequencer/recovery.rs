//! How a standby becomes the sequencer (the paper's section 4.3): seal every proxy, learn what was assigned, have the holes
//! filled, go on above.
//!
//! ```text
//! proxy          standby        all proxies
//!   | Recover(e)   |               |
//!   |------------->|    Seal(e)    |
//!   |              |-------------->| (log: sealed, from now on only answers of epoch e count)
//!   |              |  Sealed(view) |
//!   |              |<--------------|
//!   |              |  Fill(holes)  |   Active(e)
//!   |              |-------------->| (log: no-ops)
//! ```
//! Epochs are explicit and the largest counts, so that a recovery can be asked for any number of times by anybody. An epoch
//! belongs to the first attempt that the logs were sealed for: two that are asked to be the same one, because who asks knows
//! different standbys, or one that forgot that it has been, cannot both have every group's seal. Nothing is
//! lost if the standby dies in the middle: the next one finds the holes that are still there.
//!
//! Which groups must be sealed, the first group's log says: it has a layout before any group of it can be sealed, and so assign
//! anything. A standby that begins with an older one learns of it from that group's seal. If that log has a shard map whose resharding
//! it has not, the standby has it logged before it gives anything away: what was numbered by then was numbered by the old
//! shard map, and what comes after by the new one.

use super::{
    Counters, Filled, GroupSealed, HandedOver, Overtaken, Recover, Sequencer, SequencerTimer, State,
};
use crate::messages::proxy;
use crate::order::{Group, Gsn, Number, Order, Placed, Range};
use crate::topology::FIRST;
use crate::topology::{Layout, ShardMap};
use crate::view::View;
use kernel::{Cx, planted};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) struct Recovery {
    sealed: BTreeSet<Group>,
    /// Which groups are in use: as this host knows at first, then as the first group's log had it when it was sealed.
    layout: Layout,
    /// Distinguishes this attempt from an earlier incarnation's, and from others'.
    attempt: u64,
    view: View,
    gsn: Gsn,
    /// By which all is numbered so far: as the first group's log had it.
    handed: ShardMap,
}

impl Recovery {
    pub(super) fn counted(&self) -> (u64, &BTreeSet<Group>) {
        (self.attempt, &self.sealed)
    }

    fn unsealed(&self) -> impl Iterator<Item = Group> + use<'_> {
        self.layout.groups().filter(|group| !self.sealed.contains(group))
    }
}

impl Sequencer {
    pub(super) fn on_recover(&mut self, message: Recover, cx: &mut Cx<'_, Self>) {
        if message.epoch <= self.epoch {
            return;
        }
        cx.mark("sequencer.began_a_recovery");
        if matches!(self.state, State::Recovering(_)) {
            cx.mark("sequencer.recovered_anew_in_the_middle");
        }
        self.epoch = message.epoch;
        let (sealed, attempt) = (BTreeSet::new(), cx.rng().bits());
        let layout = self.topology.layout.clone();
        let handed = ShardMap::at_bootstrap(layout.shard_map.shards);
        let recovery = Recovery { sealed, layout, attempt, view: View::default(), gsn: Gsn(0), handed };
        self.state = State::Recovering(recovery);
        self.retry(cx);
    }

    pub(super) fn on_sealed(&mut self, message: GroupSealed, cx: &mut Cx<'_, Self>) {
        let GroupSealed { group, epoch, view, gsn, attempt, layout, handed } = message;
        let State::Recovering(recovery) = &mut self.state else { return };
        if epoch != self.epoch || attempt != Some(recovery.attempt) || !recovery.sealed.insert(group) {
            return;
        }
        recovery.view.merge(&view);
        recovery.gsn = recovery.gsn.max(gsn);
        if let Some(handed) = handed.filter(|_| group == FIRST) {
            recovery.handed = handed;
        }
        let reported = layout.filter(|layout| group == FIRST && layout.version > recovery.layout.version);
        if let Some(layout) = reported.filter(|_| !planted!(added_groups_not_waited_for)) {
            cx.mark("sequencer.learned_of_a_layout_from_a_seal");
            recovery.layout = layout;
        }
        let enough = if planted!(recovery_with_most_proxies) { recovery.layout.spanning / 2 } else { 0 };
        if recovery.unsealed().count() <= usize::from(enough) {
            self.activate(cx);
        }
    }

    /// Every proxy refuses the sequencers before: what they have assigned is all that ever will be.
    fn activate(&mut self, cx: &mut Cx<'_, Self>) {
        let State::Recovering(recovery) = std::mem::replace(&mut self.state, State::Standby) else { return };
        let Recovery { view, gsn, layout, handed, .. } = recovery;
        let mut next: Vec<Number> = self
            .topology
            .spaces()
            .map(|space| {
                if planted!(recovery_at_highest_number) {
                    Number(view.end(space).0 - 1).max(Number(1))
                } else {
                    view.end(space)
                }
            })
            .collect();
        let mut filling: BTreeMap<Group, Vec<Range>> = BTreeMap::new();
        // One that is drained may have retired, and fills nothing any more.
        let groups = layout.serving;
        let holes = if planted!(holes_not_filled) { Vec::new() } else { view.holes() };
        for (index, hole) in holes.into_iter().enumerate() {
            if planted!(holes_of_one_space_filled) && hole.space.0 != 0 {
                continue;
            }
            let below = next[usize::from(hole.space.0)];
            let end = hole.first.plus(hole.count);
            kernel::invariant!(
                CONTIG,
                end <= below || planted!(recovery_at_highest_number),
                "{hole:?} is to be filled, and {below} is given next"
            );
            filling.entry(Group(index as u16 % groups)).or_default().push(hole);
        }
        if !filling.is_empty() {
            cx.mark("sequencer.found_holes");
        }
        cx.mark("sequencer.took_over");
        let epoch = self.epoch;
        cx.note(|| format!("sequencer of epoch {epoch} goes on at {next:?}, holes {filling:?}"));
        let mut gsn = gsn.plus(self.parameters.gsn_gap);
        let shard_map = layout.shard_map.clone();
        let handing = (shard_map.version > handed.version).then(|| {
            cx.mark("sequencer.hands_over");
            let numbers = shard_map.spaces().map(|space| {
                let number = next[usize::from(space.0)];
                next[usize::from(space.0)] = number.next();
                Placed { space, number }
            });
            let order = Order { numbers: numbers.collect(), gsn, time: cx.wall().midpoint() / 1_000_000 };
            gsn = gsn.next();
            order
        });
        let (served, spanning) = (BTreeMap::new(), layout.spanning);
        self.state = State::Active(Counters { next, gsn, served, spanning, filling, shard_map, handing });
        self.announce(cx);
        if planted!(numbers_before_resharding_logged) {
            return cx.set_timer(SequencerTimer::Retry, self.parameters.resend_after);
        }
        self.retry(cx);
    }

    /// Says that it is there, unless something has to come first.
    fn announce(&self, cx: &mut Cx<'_, Self>) {
        if !self.is_ready() {
            return;
        }
        let epoch = self.epoch;
        for group in self.topology.groups() {
            cx.multicast(self.topology.proxies(group).iter().copied(), proxy::Active { epoch });
        }
    }

    pub(super) fn on_handed_over(&mut self, message: &HandedOver, cx: &mut Cx<'_, Self>) {
        if let State::Active(counters) = &mut self.state
            && message.epoch == self.epoch
            && counters.handing.take().is_some()
        {
            self.announce(cx);
        }
    }

    pub(super) fn on_filled(&mut self, message: Filled) {
        if let State::Active(counters) = &mut self.state
            && message.epoch == self.epoch
        {
            counters.filling.remove(&message.group);
        }
    }

    /// Some group never does what this one asks, so it stands by.
    pub(super) fn on_overtaken(&mut self, message: &Overtaken, cx: &mut Cx<'_, Self>) {
        let is_overtaken = match &self.state {
            State::Standby => false,
            State::Recovering(recovery) => {
                let is_refused = message.epoch == self.epoch && message.attempt == Some(recovery.attempt);
                message.epoch > self.epoch || is_refused
            }
            State::Active(_) => message.epoch > self.epoch,
        };
        if is_overtaken {
            cx.mark("sequencer.found_itself_overtaken");
            self.state = State::Standby;
        }
    }

    /// Asks everybody whose answer is missing.
    pub(super) fn retry(&mut self, cx: &mut Cx<'_, Self>) {
        let epoch = self.epoch;
        match &self.state {
            State::Standby => return,
            State::Recovering(recovery) => {
                let seal = proxy::GetMaxAndSeal { epoch, attempt: Some(recovery.attempt) };
                // The mistake: those that were added are sealed and not waited for.
                let others = self.topology.groups().filter(|_| planted!(added_groups_not_waited_for));
                for group in recovery.unsealed().chain(others) {
                    cx.multicast(self.topology.proxies(group).iter().copied(), seal.clone());
                }
            }
            State::Active(counters) if counters.filling.is_empty() && counters.handing.is_none() => return,
            State::Active(counters) => {
                if let Some(order) = counters.handing.clone() {
                    let reshard = proxy::Reshard { epoch, shard_map: counters.shard_map.clone(), order };
                    cx.multicast(self.topology.proxies(FIRST).iter().copied(), reshard);
                }
                for (&group, holes) in &counters.filling {
                    let fill = proxy::Fill { epoch, holes: holes.clone() };
                    cx.multicast(self.topology.proxies(group).iter().copied(), fill);
                }
            }
        }
        cx.set_timer(SequencerTimer::Retry, self.parameters.resend_after);
    }
}
