//! Whether a host serves its users.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Whether this host serves clients. It is open unless somebody has said why not.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    is_closed: AtomicBool,
    why: Mutex<String>,
}

impl Gate {
    /// Closes it for a reason that clients are sent, or opens it.
    pub fn set(&self, closed: Option<String>) {
        self.0.is_closed.store(closed.is_some(), Ordering::Release);
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = closed.unwrap_or_default();
    }

    /// True while clients are not served.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Acquire)
    }

    /// What clients are sent; none if they are served.
    pub fn refusal(&self) -> Option<String> {
        self.is_closed().then(|| self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
