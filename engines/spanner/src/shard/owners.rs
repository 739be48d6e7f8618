//! Gateways, as a shard's leader knows them: who lives, whose transactions have ended how, and what nobody will ask for any more.

use super::SpannerShard;
use super::lead::{Frame, Lead, Stage};
use super::steps::Applied;
use crate::machine::entry::{Extend, ForgetBelow};
use crate::messages::shard::{AskFate, OwnerAlive, OwnerState};
use crate::txn::{Fate, ShardId, TxnId};
use kernel::{Cx, Instant, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use wire::txn::Timestamp;

#[derive(Clone, Debug)]
struct Owner {
    incarnation: u64,
    /// It has the answers to everything below.
    below: u64,
    /// The same, as far as the log has it or is about to.
    below_logged: u64,
    ended: BTreeMap<u64, Fate>,
    heard_at: Instant,
}

/// All gateways that have been heard of.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    owners: BTreeMap<NodeId, Owner>,
    /// Aborts of what is not known here, on their way to the log.
    deciding: BTreeSet<TxnId>,
    concluding: BTreeMap<TxnId, (ShardId, Fate)>,
}

impl Owners {
    pub(super) fn begin(&mut self, states: Vec<OwnerState>, now: Instant) {
        for OwnerState { gateway, incarnation, below, ended } in states {
            let ended = ended.into_iter().collect();
            let owner = Owner { incarnation, below, below_logged: below, ended, heard_at: now };
            self.owners.insert(gateway, owner);
        }
    }

    fn of(&mut self, gateway: NodeId, incarnation: u64, now: Instant) -> &mut Owner {
        let new = || Owner { incarnation, below: 0, below_logged: 0, ended: BTreeMap::new(), heard_at: now };
        let owner = self.owners.entry(gateway).or_insert_with(new);
        if owner.incarnation < incarnation {
            *owner = new();
        }
        owner
    }

    /// The gateway of a transaction has spoken.
    pub(super) fn hear(&mut self, txn: &TxnId, now: Instant) {
        self.of(txn.gateway, txn.incarnation, now).heard_at = now;
    }

    /// True if a transaction may not go on: it has ended, its end is on its way to the log, or its gateway is another by now.
    pub(super) fn is_over(&self, txn: &TxnId) -> bool {
        let over = |owner: &Owner| {
            owner.incarnation > txn.incarnation
                || owner.incarnation == txn.incarnation
                    && (txn.number < owner.below || owner.ended.contains_key(&txn.number))
        };
        self.owners.get(&txn.gateway).is_some_and(over)
            || self.deciding.contains(txn)
            || self.concluding.contains_key(txn)
    }

    /// How a transaction ended, if that is known.
    pub(super) fn fate(&self, txn: &TxnId) -> Option<Fate> {
        let owner = self.owners.get(&txn.gateway).filter(|owner| owner.incarnation == txn.incarnation)?;
        owner.ended.get(&txn.number).copied()
    }

    /// The log has a transaction's end.
    pub(super) fn ended(&mut self, txn: &TxnId, fate: Fate) {
        self.deciding.remove(txn);
        let owner = self.of(txn.gateway, txn.incarnation, Instant(0));
        if owner.incarnation == txn.incarnation && txn.number >= owner.below {
            owner.ended.insert(txn.number, fate);
        }
    }

    /// The abort of a transaction that is not known is to be decided here; true if it is on its way.
    pub(super) fn decides_unknown(&mut self, txn: &TxnId) -> bool {
        !self.deciding.insert(*txn)
    }

    /// True while that is on its way to the log.
    pub(super) fn is_deciding_unknown(&self, txn: &TxnId) -> bool {
        self.deciding.contains(txn)
    }

    /// The end of a transaction that is not known was decided elsewhere; true if it is on its way to the log here.
    pub(super) fn concludes(&mut self, txn: &TxnId, decided: (ShardId, Fate)) -> bool {
        self.concluding.insert(*txn, decided).is_some()
    }

    /// It is in the log now: who decided it, and how.
    pub(super) fn concluded(&mut self, txn: &TxnId) -> Option<(ShardId, Fate)> {
        self.concluding.remove(txn)
    }
}

impl Lead {
    pub(super) fn on_owner_alive(
        &mut self,
        message: &OwnerAlive,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let OwnerAlive { gateway, incarnation, below, next, .. } = *message;
        let owner = self.owners.of(gateway, incarnation, cx.now());
        if owner.incarnation != incarnation {
            return;
        }
        owner.heard_at = cx.now();
        if below > owner.below {
            owner.below = below;
            owner.ended = owner.ended.split_off(&below);
        }
        // What it does not go on with holds no locks, though its release may be lost.
        let abandoned: Vec<TxnId> = self.open_of(gateway, |txn| {
            txn.incarnation < incarnation
                || txn.incarnation == incarnation && txn.number < next && !message.open.contains(&txn.number)
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
        let (now, silence) = (cx.now(), frame.parameters.owner_silence);
        let dead = self.owners.owners.iter().filter(|(_, owner)| now.since(owner.heard_at) >= silence);
        let dead: Vec<NodeId> = dead.map(|(&gateway, _)| gateway).collect();
        for gateway in dead {
            for txn in self.open_of(gateway, |_| true) {
                cx.mark("shard.dropped_what_a_dead_gateway_had_open");
                self.drop_open(&txn, frame, cx);
            }
        }
        for (&gateway, owner) in &mut self.owners.owners {
            if owner.below > owner.below_logged && self.steps.is_idle() {
                owner.below_logged = owner.below;
                let (incarnation, below) = (owner.incarnation, owner.below);
                self.steps.push(ForgetBelow { gateway, incarnation, below }, Applied::Nothing, 0);
            }
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
