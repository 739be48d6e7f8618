//! What a search may use before it gives up with an honest "undecided".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much a search may use. All parts of a history draw on the same steps.
#[derive(Clone, Debug)]
pub struct SearchBudget {
    /// Steps of the object that are left.
    pub steps: u64,
    /// Bytes that one search may take to remember what failed. When they are used up it forgets, and goes on.
    pub bytes: usize,
    /// Gives up as soon as this is set, for instance when the time is over.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for SearchBudget {
    /// The same answer on every machine: steps alone decide.
    fn default() -> SearchBudget {
        SearchBudget { steps: 20_000_000, bytes: 1 << 30, stop: None }
    }
}

/// Steps between two looks at `stop`.
const STEPS_A_LOOK: u64 = 1 << 10;

impl SearchBudget {
    /// Takes one step; false when none is left.
    pub(crate) fn step(&mut self) -> bool {
        let Some(left) = self.steps.checked_sub(1) else { return false };
        self.steps = left;
        left % STEPS_A_LOOK != 0 || !self.stopped()
    }

    /// Whether it was asked to give up.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Why a search under this budget gave up.
    pub(crate) fn exhausted(&self) -> &'static str {
        if self.stopped() { "it was stopped" } else { "its steps ran out (--search-steps)" }
    }
}
