//! What a leader does for gateways: those that live say what they go on with, and what those that are dead had open aborts.

use super::SpannerShard;
use super::active::Stage;
use super::frame::Frame;
use super::lead::Lead;
use super::steps::Applied;
use crate::machine::entry::{Extend, ForgetBelow};
use crate::messages::shard::{AskFate, OwnerAlive};
use crate::txn::TxnId;
use kernel::{Cx, NodeId, planted};
use std::collections::BTreeSet;
use wire::txn::Timestamp;

impl Lead {
    pub(super) fn on_owner_alive(
        &mut self,
        message: &OwnerAlive,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let OwnerAlive { gateway, incarnation, next, .. } = *message;
        if !self.owners.on_alive(message, cx.now()) {
            return;
        }
        let open: BTreeSet<u64> = message.open.iter().copied().collect();
        // What it does not go on with holds no locks, though its release may be lost.
        let abandoned: Vec<TxnId> = self.open_of(gateway, |txn| {
            txn.incarnation < incarnation
                || txn.incarnation == incarnation && txn.number < next && !open.contains(&txn.number)
        });
        for txn in abandoned {
            cx.mark("shard.dropped_what_its_gateway_gave_up");
            self.drop_open(&txn, frame, cx);
        }
    }

    fn open_of(&self, gateway: NodeId, holds: impl Fn(&TxnId) -> bool) -> Vec<TxnId> {
        let first = TxnId { gateway, incarnation: 0, number: 0 };
        let all = self.txns.range(first..).take_while(|(txn, _)| txn.gateway == gateway);
        let open =
            all.filter(|(_, it)| matches!(it.stage, Stage::Open | Stage::Preparing | Stage::Collecting));
        open.map(|(&txn, _)| txn).filter(holds).collect()
    }

    fn drop_open(&mut self, txn: &TxnId, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        if self.txns.get(txn).is_some_and(|active| active.is_decided_by(frame.shard)) {
            self.abort_undecided(txn, frame, cx);
        } else {
            self.give_up(txn, false, frame, cx);
        }
    }

    /// Drops what the dead have open, and has the log forget what nobody will ask for.
    pub(super) fn look_after_owners(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let dead = self.owners.silent_for(frame.parameters.owner_silence, cx.now());
        for gateway in dead.into_iter().filter(|_| !planted!(dead_gateways_not_minded)) {
            for txn in self.open_of(gateway, |_| true) {
                cx.mark("shard.dropped_what_a_dead_gateway_had_open");
                self.drop_open(&txn, frame, cx);
            }
        }
        if self.steps.is_idle()
            && let Some((gateway, incarnation, below)) = self.owners.take_forgettable()
        {
            self.steps.push(ForgetBelow { gateway, incarnation, below }, Applied::Nothing, 0);
        }
    }

    /// Answered when a step of this leader is in the log: a leader that is deposed has none.
    pub(super) fn on_ask_fate(&mut self, message: &AskFate, frame: &Frame<'_>) {
        let AskFate { gateway, id, key } = *message;
        if self.steps.has_room(0, frame) {
            let (horizon, closed) = (self.horizon, Timestamp(0));
            self.steps.push(Extend { horizon, closed }, Applied::Asked { gateway, id, key }, 0);
        }
    }
}
