//! What a leader that serves knows beside its log, for invariants: it is held against what the log says.

use super::SpannerShard;
use super::active::Stage;
use super::lead::Lead;
use crate::txn::{Fate, PreparedTxn, TxnId};
use wire::txn::Timestamp;

/// What a leader that serves knows.
#[derive(Clone, Copy, Debug)]
pub struct LeaderKnowledge<'a> {
    lead: &'a Lead,
}

impl SpannerShard {
    /// What it knows as a leader; none while it does not serve as one.
    pub fn knowledge(&self) -> Option<LeaderKnowledge<'_>> {
        self.lead.as_ref().filter(|lead| lead.serves()).map(|lead| LeaderKnowledge { lead })
    }
}

impl LeaderKnowledge<'_> {
    /// Which leader of the shard it is, counted, and the last of its steps that it knows to be in the log.
    pub fn position(&self) -> (u64, u64) {
        (self.lead.epoch(), self.lead.steps.last_applied())
    }

    /// True if nothing is on its way to the log.
    pub fn is_at_rest(&self) -> bool {
        self.lead.steps.is_at_rest()
    }

    /// What leaders before it have committed has this timestamp at most.
    pub fn last_before(&self) -> Timestamp {
        self.lead.visible_from()
    }

    /// All timestamps that it assigns are above this.
    pub fn assigns_above(&self) -> Timestamp {
        self.lead.assigns_above()
    }

    /// The latest timestamp of a read that it has begun and not answered.
    pub fn latest_read(&self) -> Option<Timestamp> {
        let begun = self.lead.reads.all.values().map(|reading| reading.t_read);
        begun.filter(|t_read| *t_read <= self.lead.horizon).max()
    }

    /// True if it holds a prepared transaction for prepared, with its locks and no others for its reads.
    pub fn holds_prepared(&self, prepared: &PreparedTxn) -> bool {
        let stage = self.lead.txns.get(&prepared.txn).map(|active| active.stage);
        let is_prepared = match stage {
            Some(Stage::Prepared { t_p } | Stage::Logging { t_p }) => t_p == prepared.t_p,
            Some(Stage::Ending { .. }) => true,
            Some(Stage::Open | Stage::Preparing | Stage::Collecting | Stage::Passing { .. }) | None => false,
        };
        let Some(held) = self.lead.locks.held(&prepared.txn) else {
            let PreparedTxn { reads, ranges, writes, .. } = prepared;
            return is_prepared && reads.is_empty() && ranges.is_empty() && writes.is_empty();
        };
        is_prepared
            && (prepared.reads.len(), prepared.ranges.len()) == (held.reads.len(), held.ranges.len())
            && prepared.reads.iter().all(|key| held.reads.contains(key))
            && prepared.ranges.iter().all(|range| held.ranges.contains(range))
            && prepared.writes.iter().all(|write| self.writer(&write.key) == Some(prepared.txn))
    }

    /// Who has locked a key to write it.
    pub fn writer(&self, key: &[u8]) -> Option<TxnId> {
        self.lead.locks.writer(key)
    }

    /// Two transactions that hold locks which conflict.
    pub fn conflict(&self) -> Option<(TxnId, TxnId)> {
        self.lead.locks.conflict()
    }

    /// A decision that it sends to participants until they have it in their logs.
    pub fn decision(&self, txn: &TxnId) -> Option<Fate> {
        self.lead.decisions.get(txn).map(|open| open.fate)
    }

    /// True if it knows that a transaction may not go on.
    pub fn is_over(&self, txn: &TxnId) -> bool {
        self.lead.owners.is_over(txn)
    }
}
