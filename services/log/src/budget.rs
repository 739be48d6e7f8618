//! What a gateway lets in: the logs of its host have a disk budget, and appends that would go beyond it are refused before they
//! are ordered.
//!
//! Each host decides by what its own shards hold. Its refusal needs no agreement with others, and an append that another host lets in
//! is executed here all the same: budgets are to be alike on all hosts.

use crate::space_of;
use crate::storage::Held;
use crate::wire::{Admitted, Answer, Request, Why};
use kernel::{Bytes, Decode as _, Instant};
use mason::Space;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// While appends to a space are refused, it is looked this often whether entries have expired there.
const EXPIRE_EVERY: Duration = Duration::from_secs(5);

/// The budget of a host's logs, and what is known of its use.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    bytes_max: u64,
    spaces: u16,
    used: BTreeMap<Space, Used>,
    /// When expired entries of a space were dropped last.
    expired_at: BTreeMap<Space, Instant>,
}

#[derive(Clone, Debug)]
struct Used {
    bytes: u64,
    /// Logs that drop their oldest entries, by the digests of their names.
    droppable: BTreeSet<u64>,
}

/// What becomes of an append.
pub(crate) enum Outcome {
    /// It goes on, as this says.
    Admitted(Admitted),
    /// It is refused; with a log of whose space expired entries are to be dropped.
    Refused(Answer, Option<String>),
}

impl Budget {
    pub(crate) fn new(bytes_max: u64, spaces: u16) -> Self {
        Self { bytes_max, spaces, used: BTreeMap::new(), expired_at: BTreeMap::new() }
    }

    /// A shard of this host has said what it holds.
    pub(crate) fn learn(&mut self, space: Space, remark: &Bytes) {
        if let Ok(Held { bytes, droppable }) = Held::decoded(remark) {
            self.used.insert(space, Used { bytes, droppable: droppable.into_iter().collect() });
        }
    }

    /// What is used, and the budget, in bytes.
    pub(crate) fn disk(&self) -> (u64, u64) {
        (self.used(), self.bytes_max)
    }

    fn used(&self) -> u64 {
        self.used.values().map(|used| used.bytes).sum()
    }

    fn may_drop(&self, name: &str) -> bool {
        let used = self.used.get(&space_of(name, self.spaces));
        used.is_some_and(|used| used.droppable.contains(&parts::digest(name.as_bytes())))
    }

    /// Whether an append to logs of these names goes on.
    pub(crate) fn admit(&mut self, names: &[&str], now: Instant) -> Outcome {
        let used = self.used();
        if used < self.bytes_max {
            return Outcome::Admitted(Admitted::WithinBudget);
        }
        let Some(name) = names.iter().find(|name| !self.may_drop(name)) else {
            return Outcome::Admitted(Admitted::BeyondBudget);
        };
        let space = space_of(name, self.spaces);
        let is_due = self.expired_at.get(&space).is_none_or(|&at| now.since(at) >= EXPIRE_EVERY);
        if is_due {
            self.expired_at.insert(space, now);
        }
        Outcome::Refused(Answer::about(Why::OverBudget, name, used), is_due.then(|| (*name).to_owned()))
    }
}

/// Writes into an append how it was admitted; other calls stay as they are.
pub(crate) fn admit(request: &mut Request, how: Admitted) {
    match request {
        Request::Append(append) => append.admitted = Some(how),
        Request::Produce(produce) => produce.admitted = Some(how),
        Request::Create(_)
        | Request::Trim(_)
        | Request::Seal(_)
        | Request::Delete(_)
        | Request::Expire(_)
        | Request::BeginGeneration(_)
        | Request::Commit(_)
        | Request::Read(_)
        | Request::Recall(_)
        | Request::Stat(_)
        | Request::Describe(_)
        | Request::Identify(_)
        | Request::List(_)
        | Request::GroupOf(_) => {}
    }
}
