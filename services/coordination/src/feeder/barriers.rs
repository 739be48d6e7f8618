//! Barriers: how far the colour goes is asked, and what was there then is handed to the shards before the gateway reads.

use super::TreeFeeder;
use crate::home::GROUP;
use kernel::{Cx, planted};
use mason::MasonMessage;
use mason::client::BarrierPassed;

/// Barriers that have not passed; gateways ask again.
const BARRIERS_MAX: usize = 1_024;

/// A gateway's barrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    pub(super) number: u64,
    /// The gateway's own.
    pub(super) id: u64,
    /// Nodes below are to be handed over; none while that is not known.
    pub(super) through: Option<u64>,
}

impl TreeFeeder {
    pub(super) fn on_barrier(&mut self, id: u64, cx: &mut Cx<'_, Self>) {
        // One that nobody waits for asks how many groups there are.
        let is_known = id == 0 || self.barriers.iter().any(|barrier| barrier.id == id);
        if is_known || self.barriers.len() >= BARRIERS_MAX {
            return;
        }
        self.last_barrier += 1;
        self.barriers.push_back(Barrier { number: self.last_barrier, id, through: None });
        cx.mark("tree_feeder.synced_for_a_barrier");
    }

    /// All that was in the order when a barrier came was handed to the shards. They have perhaps not executed it, so they are notified.
    pub(super) fn pass_barriers(&mut self, cx: &mut Cx<'_, Self>) {
        let handed = self.handing.position().unwrap_or(0);
        let mut passed = Vec::new();
        while let Some(barrier) = self.barriers.pop_front_if(|barrier| {
            let is_handed = |through| through <= handed || planted!(barrier_before_it_is_handed_over);
            barrier.through.is_some_and(is_handed)
        }) {
            passed.push(barrier.id);
        }
        if !passed.is_empty() {
            self.announce_reach(cx);
        }
        for id in passed {
            cx.send(self.gateway, MasonMessage::from(BarrierPassed { group: GROUP, id, layout: None }));
        }
    }
}
