//! What a leader has done to move its log.

use kernel::Instant;

/// What a leader has done to move its log.
#[derive(Clone, Debug, Default)]
pub(super) struct Moved {
    pub(super) at: Option<Instant>,
    /// The configuration that it was to leave, and how often that was tried.
    pub(super) from: u64,
    pub(super) attempts: usize,
}
