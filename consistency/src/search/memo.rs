//! Which answered operations are placed, and what is known to fail.
//!
//! Only what failed is remembered: a search that never turns back remembers nothing. A placed set is stored from its
//! first gap on, because nearly all of it is a prefix in the order of calls.

use super::unknown::Unknown;
use crate::hash::{FixedState, mix};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// The answered operations that are placed, by the rank of their calls.
pub(super) struct Done {
    rank_of: Vec<u32>,
    bits: Vec<u64>,
    /// All ranks below are placed.
    first_gap: usize,
    /// No rank from here on is placed.
    end: usize,
    fingerprint: u64,
}

impl Done {
    pub(super) fn of(rank_of: Vec<u32>) -> Done {
        let bits = vec![0; rank_of.len().div_ceil(64) + 1];
        Done { rank_of, bits, first_gap: 0, end: 0, fingerprint: 0 }
    }

    fn has(&self, rank: usize) -> bool {
        self.bits[rank / 64] >> (rank % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, op: usize) {
        let rank = self.rank_of[op] as usize;
        self.bits[rank / 64] |= 1 << (rank % 64);
        self.fingerprint ^= mix(rank as u64, u64::MAX);
        self.end = self.end.max(rank + 1);
        while self.has(self.first_gap) {
            self.first_gap += 1;
        }
    }

    pub(super) fn remove(&mut self, op: usize) {
        let rank = self.rank_of[op] as usize;
        self.bits[rank / 64] &= !(1 << (rank % 64));
        self.fingerprint ^= mix(rank as u64, u64::MAX);
        self.first_gap = self.first_gap.min(rank);
        while self.end > 0 && !self.has(self.end - 1) {
            self.end -= 1;
        }
    }

    /// The words from the first gap on.
    fn window(&self) -> &[u64] {
        &self.bits[self.first_gap / 64..self.end.div_ceil(64).max(self.first_gap / 64)]
    }
}

/// A partial order that no full one extends.
struct Dead<S> {
    first_gap: usize,
    window: Box<[u64]>,
    unknown: Box<[(u32, u32)]>,
    state: S,
}

impl<S: Eq> Dead<S> {
    fn is(&self, done: &Done, unknown: &Unknown, state: &S) -> bool {
        self.first_gap == done.first_gap
            && self.state == *state
            && *self.window == *done.window()
            && unknown.placed().eq(self.unknown.iter().copied())
    }
}

/// What is known to fail.
pub(super) struct Memo<S> {
    dead: HashMap<u64, Vec<Dead<S>>, FixedState>,
    bytes: usize,
    bytes_max: usize,
}

/// What an entry costs beside its slices.
const ENTRY_BYTES: usize = 96;

impl<S: Clone + Eq + Hash> Memo<S> {
    pub(super) fn new(bytes_max: usize) -> Memo<S> {
        Memo { dead: HashMap::default(), bytes: 0, bytes_max }
    }

    fn key(done: &Done, unknown: &Unknown, state: &S) -> u64 {
        mix(done.fingerprint ^ unknown.fingerprint(), FixedState.hash_one(state))
    }

    pub(super) fn has(&self, done: &Done, unknown: &Unknown, state: &S) -> bool {
        if self.dead.is_empty() {
            return false;
        }
        let alike = self.dead.get(&Self::key(done, unknown, state));
        alike.is_some_and(|alike| alike.iter().any(|dead| dead.is(done, unknown, state)))
    }

    /// Remembers; forgets everything else first where that would take too much.
    pub(super) fn insert(&mut self, done: &Done, unknown: &Unknown, state: &S) {
        let dead = Dead {
            first_gap: done.first_gap,
            window: done.window().into(),
            unknown: unknown.placed().collect(),
            state: state.clone(),
        };
        let bytes = ENTRY_BYTES + size_of::<S>() + 8 * (dead.window.len() + dead.unknown.len());
        if self.bytes + bytes > self.bytes_max {
            self.dead = HashMap::default();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.dead.entry(Self::key(done, unknown, state)).or_default().push(dead);
    }
}
