//! Gateways, as a shard's leader knows them: who is alive, whose transactions have ended how, and what nobody will ask for any more.

use crate::messages::shard::{OwnerAlive, OwnerState};
use crate::txn::{Fate, ShardId, TxnId};
use kernel::{Instant, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

    /// A gateway is alive. False if it is one that another incarnation has replaced.
    pub(super) fn on_alive(&mut self, message: &OwnerAlive, now: Instant) -> bool {
        let owner = self.of(message.gateway, message.incarnation, now);
        if owner.incarnation != message.incarnation {
            return false;
        }
        owner.heard_at = now;
        if message.below > owner.below {
            owner.below = message.below;
            owner.ended = owner.ended.split_off(&message.below);
        }
        true
    }

    /// Gateways that have been silent for so long.
    pub(super) fn silent_for(&self, silence: Duration, now: Instant) -> Vec<NodeId> {
        let silent = self.owners.iter().filter(|(_, owner)| now.since(owner.heard_at) >= silence);
        silent.map(|(&gateway, _)| gateway).collect()
    }

    /// A gateway that has the answers to more than the log knows, with its incarnation and the number below which it has them; it is taken
    /// for logged.
    pub(super) fn take_forgettable(&mut self) -> Option<(NodeId, u64, u64)> {
        let (&gateway, owner) = self.owners.iter_mut().find(|(_, owner)| owner.below > owner.below_logged)?;
        owner.below_logged = owner.below;
        Some((gateway, owner.incarnation, owner.below))
    }
}
