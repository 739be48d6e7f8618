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

use super::{Counters, Filled, Recover, Sealed, Sequencer, SequencerTimer, State};
use crate::order::{Group, Number, Range, Stamp};
use crate::proxy;
use crate::view::View;
use kernel::{Cx, planted};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) struct Recovery {
    missing: BTreeSet<Group>,
    /// Tells this attempt from an earlier life's, and from others'.
    attempt: u64,
    view: View,
    stamp: Stamp,
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
        let (missing, attempt) = (self.topology.groups().collect(), cx.rng().bits());
        let recovery = Recovery { missing, attempt, view: View::default(), stamp: Stamp(0) };
        self.state = State::Recovering(recovery);
        self.retry(cx);
    }

    pub(super) fn on_sealed(&mut self, message: Sealed, cx: &mut Cx<'_, Self>) {
        let Sealed { group, epoch, view, stamp, attempt } = message;
        let State::Recovering(recovery) = &mut self.state else { return };
        if epoch != self.epoch || attempt != Some(recovery.attempt) || !recovery.missing.remove(&group) {
            return;
        }
        recovery.view.merge(&view);
        recovery.stamp = recovery.stamp.max(stamp);
        let groups = self.topology.groups.len();
        let enough = if planted!(M04) { groups / 2 } else { 0 };
        if recovery.missing.len() <= enough {
            self.activate(cx);
        }
    }

    /// Every proxy refuses the sequencers before: what they have assigned is all that ever will be.
    fn activate(&mut self, cx: &mut Cx<'_, Self>) {
        let State::Recovering(recovery) = std::mem::replace(&mut self.state, State::Standby) else { return };
        let Recovery { view, stamp, .. } = recovery;
        let next: Vec<Number> =
            self.topology
                .spaces()
                .map(|space| {
                    if planted!(M05) { Number(view.end(space).0 - 1).max(Number(1)) } else { view.end(space) }
                })
                .collect();
        let mut filling: BTreeMap<Group, Vec<Range>> = BTreeMap::new();
        let groups = self.topology.groups.len() as u16;
        let holes = if planted!(M06) { Vec::new() } else { view.holes() };
        for (index, hole) in holes.into_iter().enumerate() {
            if planted!(M07) && hole.space.0 != 0 {
                continue;
            }
            filling.entry(Group(index as u16 % groups)).or_default().push(hole);
        }
        if !filling.is_empty() {
            cx.mark("sequencer.found_holes");
        }
        cx.mark("sequencer.took_over");
        let epoch = self.epoch;
        cx.note(|| format!("sequencer of epoch {epoch} goes on at {next:?}, holes {filling:?}"));
        let stamp = stamp.plus(self.parameters.stamp_gap);
        self.state = State::Active(Counters { next, stamp, served: BTreeMap::new(), filling });
        for group in self.topology.groups() {
            cx.multicast(self.topology.proxies(group).iter().copied(), proxy::Active { epoch });
        }
        self.retry(cx);
    }

    pub(super) fn on_filled(&mut self, message: Filled) {
        if let State::Active(counters) = &mut self.state
            && message.epoch == self.epoch
        {
            counters.filling.remove(&message.group);
        }
    }

    /// Asks everybody whose answer is missing.
    pub(super) fn retry(&mut self, cx: &mut Cx<'_, Self>) {
        let epoch = self.epoch;
        match &self.state {
            State::Standby => return,
            State::Recovering(recovery) => {
                let seal = proxy::Seal { epoch, attempt: Some(recovery.attempt) };
                for &group in &recovery.missing {
                    cx.multicast(self.topology.proxies(group).iter().copied(), seal.clone());
                }
            }
            State::Active(counters) if counters.filling.is_empty() => return,
            State::Active(counters) => {
                for (&group, holes) in &counters.filling {
                    let fill = proxy::Fill { epoch, holes: holes.clone() };
                    cx.multicast(self.topology.proxies(group).iter().copied(), fill);
                }
            }
        }
        cx.set_timer(SequencerTimer::Retry, self.parameters.resend_after);
    }
}
