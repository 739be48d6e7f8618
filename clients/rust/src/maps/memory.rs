//! How much memory the views of maps take in a process, and may.

use crate::fuzzylog::FuzzyError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What views take together, in bytes, and how much they may. Cheap to clone: clones are the same memory.
#[derive(Clone, Debug)]
pub struct MapMemory {
    used: Arc<AtomicUsize>,
    max: usize,
}

impl Default for MapMemory {
    fn default() -> Self {
        Self::of(usize::MAX)
    }
}

impl MapMemory {
    /// So many bytes. A view is played on while less is used, so all together take a node of the log more at most.
    pub fn of(max: usize) -> Self {
        Self { used: Arc::default(), max }
    }

    /// What views take.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// What they may.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Whether there is room for so many bytes more.
    pub(super) fn check(&self, more: usize) -> Result<(), FuzzyError> {
        let used = self.used();
        let has_room = used.checked_add(more).is_some_and(|all| all < self.max);
        if has_room { Ok(()) } else { Err(FuzzyError::NoMemory { used, max: self.max }) }
    }

    /// A view that took so much takes something else now.
    pub(super) fn changed(&self, before: usize, after: usize) {
        if after >= before {
            self.used.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
