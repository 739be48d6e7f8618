//! What a leader has in progress, for operators and reports.

use super::SpannerShard;
use super::active::{Active, Stage};
use super::counts::{BoundedUse, ShardCounts};
use super::lead::Lead;
use crate::txn::{ShardId, TxnId};
use kernel::Bytes;
use std::collections::BTreeSet;
use wire::txn::{KeyRange, Timestamp};

/// Locks of one transaction that a view names.
const NAMED_MAX: usize = 32;

/// A transaction in progress at a shard's leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnInProgress {
    /// Which.
    pub txn: TxnId,
    /// How far it has come here.
    pub stage: &'static str,
    /// It will commit at this or later; none if it is not prepared.
    pub t_p: Option<Timestamp>,
    /// The shard that decides, once it is to be committed.
    pub coordinator: Option<ShardId>,
    /// Whose lock it waits for.
    pub behind: Option<TxnId>,
    /// How many wait for a lock of its.
    pub waiters: usize,
    /// Locks that it holds.
    pub locks: usize,
    /// Keys that it has read, the first of them.
    pub reads: Vec<Bytes>,
    /// Ranges that it has read, the first of them.
    pub ranges: Vec<KeyRange>,
    /// Keys that it writes, the first of them.
    pub writes: Vec<Bytes>,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Preparing => "preparing",
            Self::Collecting => "collecting",
            Self::Logging { .. } => "logging",
            Self::Prepared { .. } => "prepared",
            Self::Ending { .. } => "ending",
            Self::Passing { .. } => "passing",
        }
    }
}

impl Lead {
    fn view(&self, txn: &TxnId, active: &Active) -> TxnInProgress {
        let behind = self.waiters.iter().find(|(_, waiting)| waiting.contains(&active.priority));
        let held = self.locks.held(txn);
        TxnInProgress {
            txn: *txn,
            stage: active.stage.name(),
            t_p: active.stage.prepared_at(),
            coordinator: active.asked.as_ref().map(|asked| asked.coordinator),
            behind: behind.map(|(holder, _)| *holder),
            waiters: self.waiters.get(txn).map_or(0, BTreeSet::len),
            locks: held.map_or(0, |held| held.reads.len() + held.ranges.len() + held.writes().len()),
            reads: held.iter().flat_map(|held| &held.reads).take(NAMED_MAX).cloned().collect(),
            ranges: held.iter().flat_map(|held| &held.ranges).take(NAMED_MAX).cloned().collect(),
            writes: held.iter().flat_map(|held| held.writes()).take(NAMED_MAX).cloned().collect(),
        }
    }
}

impl SpannerShard {
    /// The first `most` transactions in progress, where the shard is led.
    pub fn transactions(&self, most: usize) -> Vec<TxnInProgress> {
        let lead = self.lead.as_ref();
        let views = lead
            .into_iter()
            .flat_map(|lead| lead.txns.iter().map(move |(txn, active)| lead.view(txn, active)));
        views.take(most).collect()
    }

    /// What is bounded here, how much of it is used, and the bound.
    pub fn usage(&self) -> Vec<BoundedUse> {
        let (used, max) = (self.replica.waiting(), self.parameters.waiting_reads_max);
        let shards = self.directory.count();
        let mut all = vec![BoundedUse { what: "reads that wait for the replica", used, max }];
        all.extend(self.lead.iter().flat_map(|lead| lead.usage(shards, &self.parameters)));
        all
    }

    /// What it has counted since it started.
    pub fn counts(&self) -> ShardCounts {
        self.counts
    }

    /// Locks that are held, and their bound, where the shard is led.
    pub fn locks(&self) -> (usize, usize) {
        (self.lead.as_ref().map_or(0, |lead| lead.locks.count()), self.parameters.locks_max)
    }
}
