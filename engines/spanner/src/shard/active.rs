//! A transaction in progress at a shard, and what is reported of one that was decided.

use super::locks::Want;
use super::steps::CHANGE_HEAD_BYTES;
use crate::messages::shard::{LockedUnder, PrepareTxn};
use crate::txn::{Fate, Priority, ReadSet, ShardId};
use kernel::{Bytes, Instant};
use std::collections::{BTreeMap, BTreeSet};
use wire::txn::{KeyWrite, Timestamp};

/// What participants have said.
#[derive(Clone, Debug, Default)]
pub(super) struct Votes {
    pub(super) prepared: BTreeMap<ShardId, Timestamp>,
    pub(super) t_ee: Timestamp,
}

/// How far a transaction has come at this shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It reads under locks.
    Open,
    /// It is to prepare, and waits for locks.
    Preparing,
    /// It coordinates, has its locks, and waits for the other participants.
    Collecting,
    /// It is on its way to the log with this timestamp: from now on readers count it as prepared.
    Logging { t_p: Timestamp },
    /// The log has it; its coordinator decides.
    Prepared { t_p: Timestamp },
    /// Its end is on its way to the log.
    Ending { t_p: Timestamp },
    /// It has committed; its locks are held until that time has surely passed.
    Passing { t_c: Timestamp },
}

impl Stage {
    /// The timestamp from which on readers must mind it.
    pub(super) fn prepared_at(self) -> Option<Timestamp> {
        match self {
            Self::Open | Self::Preparing | Self::Collecting => None,
            Self::Logging { t_p } | Self::Prepared { t_p } | Self::Ending { t_p } => Some(t_p),
            // It is known when it commits.
            Self::Passing { t_c } => Some(t_c),
        }
    }
}

/// A lock that a transaction waits for.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// What is read, and keys that are written afterwards.
    Read(ReadSet, Vec<Bytes>),
    Write,
}

/// A transaction in progress.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) priority: Priority,
    pub(super) stage: Stage,
    /// Distinguishes it from what this leader held for the same transaction before.
    pub(super) since: u64,
    /// Reads that were given.
    pub(super) reads: u32,
    pub(super) wants: Option<Wanted>,
    pub(super) waits_since: Option<Instant>,
    /// What it was asked to prepare, and by whom it is decided.
    pub(super) asked: Option<PrepareTxn>,
    pub(super) votes: Votes,
    pub(super) fate: Option<Fate>,
    /// Since when it is prepared, and when that was last said; of a coordinator, since when it collects.
    pub(super) prepared_since: Instant,
    pub(super) sent_at: Instant,
    /// When it was last to make way for an older one, while it collects votes.
    pub(super) made_way_at: Option<Instant>,
    /// Taken back from the log by a new leader.
    pub(super) taken_back: bool,
}

impl Active {
    pub(super) fn new(priority: Priority, since: u64, now: Instant) -> Self {
        Self {
            priority,
            stage: Stage::Open,
            since,
            reads: 0,
            wants: None,
            waits_since: None,
            asked: None,
            votes: Votes::default(),
            fate: None,
            prepared_since: now,
            sent_at: now,
            made_way_at: None,
            taken_back: false,
        }
    }

    /// What a leader holds for its reads.
    pub(super) fn held(&self, epoch: u64) -> LockedUnder {
        LockedUnder { epoch, since: self.since, reads: self.reads }
    }

    /// How many locks it waits for.
    pub(super) fn wanted(&self) -> usize {
        match (&self.wants, &self.asked) {
            (Some(Wanted::Read(what, writes)), _) => Want::Read(what, writes).count(),
            (Some(Wanted::Write), Some(asked)) => Want::Write(&asked.writes).count(),
            (Some(Wanted::Write) | None, _) => 0,
        }
    }

    /// Bytes of what it was asked to write.
    pub(super) fn bytes(&self) -> usize {
        self.asked.as_ref().map_or(0, |asked| bytes_of(&asked.writes))
    }

    /// True if it was asked to prepare, and this shard decides how it ends.
    pub(super) fn is_decided_by(&self, shard: ShardId) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.coordinator == shard)
    }

    /// The client ends no earlier than this.
    pub(super) fn t_ee(&self) -> Timestamp {
        self.asked.as_ref().map_or(Timestamp(0), |asked| asked.t_ee)
    }
}

/// What a transaction's writes count while it is in progress, and what the change that makes them adds.
pub(super) fn bytes_of(writes: &[KeyWrite]) -> usize {
    if writes.is_empty() {
        // What is aborted because there is no room takes none.
        return 0;
    }
    CHANGE_HEAD_BYTES + writes.iter().map(KeyWrite::size).sum::<usize>()
}

/// A decision that is sent to participants until they have logged it.
#[derive(Clone, Debug)]
pub(super) struct OpenFate {
    pub(super) fate: Fate,
    pub(super) waits_for: BTreeSet<ShardId>,
    pub(super) sent_at: Instant,
}
