//! Whether users are served at all: who answers every request of a kind as busy breaks no other invariant.

use kernel::invariant;
use std::collections::BTreeMap;

/// So many requests of a kind that were not executed are no accident, where none was.
const REFUSED_MIN: u64 = 12;

/// What became of the requests of a run, by kind.
#[derive(Debug, Default)]
pub(super) struct Served(BTreeMap<&'static str, Counts>);

#[derive(Debug, Default)]
struct Counts {
    done: u64,
    refused: u64,
}

impl Served {
    /// It was executed, or answered for a reason of its own.
    pub(super) fn done(&mut self, kind: &'static str) {
        self.0.entry(kind).or_default().done += 1;
    }

    /// It was not executed, and may be sent again.
    pub(super) fn refused(&mut self, kind: &'static str) {
        self.0.entry(kind).or_default().refused += 1;
    }

    /// For the end of a run whose core was healed.
    pub(super) fn check(&self) {
        for (kind, Counts { done, refused }) in &self.0 {
            let is_served = *done > 0 || *refused < REFUSED_MIN;
            invariant!(LIVE, is_served, "{refused} requests were refused, none was done: {kind}");
        }
    }
}
