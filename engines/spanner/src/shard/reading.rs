//! Read-only transactions that a leader has not answered.

use crate::txn::{ReadSet, TxnId};
use kernel::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use wire::txn::Timestamp;

/// Names a read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ReadKey {
    pub(super) gateway: NodeId,
    pub(super) id: u64,
}

/// A read that is not answered.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) t_read: Timestamp,
    pub(super) t_min: Timestamp,
    pub(super) skips: bool,
    pub(super) what: ReadSet,
    pub(super) blocked_on: BTreeSet<TxnId>,
    pub(super) skipped: Vec<TxnId>,
}

/// The reads of a leader.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    pub(super) all: BTreeMap<ReadKey, Reading>,
    /// Those that wait for the horizon.
    pub(super) beyond: BTreeSet<(Timestamp, ReadKey)>,
    /// Those that wait for a transaction.
    pub(super) blocked: BTreeMap<TxnId, BTreeSet<ReadKey>>,
    /// Those that have skipped it, and are to be notified how it ends.
    pub(super) skipped: BTreeMap<TxnId, BTreeSet<ReadKey>>,
}
