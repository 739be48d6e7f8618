//! The bounds of the clusters under Mason: small, in the proportions of the real ones, so that pages, chunks and batches reach them; and,
//! in one seed of four, operations as large as they may be.

use kernel::{Bounds, Rng};

/// What a journal takes in one record, and a link in four times as much.
pub(crate) const BOUNDS: Bounds = Bounds::small(16 << 10);
/// The largest operation, and the most that goes into one batch unless it is one operation.
pub(crate) const OPERATION_BYTES_MAX: usize = 8 << 10;
/// The largest page of votes.
const PAGE_BYTES_MAX: usize = 8 << 10;
/// The share of an operation that is not what a user gives it.
const REQUEST_SHARE: usize = 16;

/// Brings what the drawn parameters leave at its default into proportion.
pub(crate) fn fit(
    parameters: mason::MasonParameters,
    log: paxos::Parameters,
) -> (mason::MasonParameters, paxos::Parameters) {
    let parameters = mason::MasonParameters {
        operation_bytes_max: OPERATION_BYTES_MAX,
        batch_bytes_max: OPERATION_BYTES_MAX,
        ..parameters
    };
    let log = paxos::Parameters {
        batch_bytes_max: OPERATION_BYTES_MAX,
        page_bytes: log.page_bytes.min(PAGE_BYTES_MAX),
        snapshot_chunk_bytes: log.snapshot_chunk_bytes.min(PAGE_BYTES_MAX / 2),
        ..log
    };
    let (misfit, of_log) = (parameters.misfit(&BOUNDS), log.misfit(&BOUNDS));
    assert!(misfit.is_none() && of_log.is_none(), "BOUND: {misfit:?}, {of_log:?}");
    (parameters, log)
}

/// How large what users write is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    large: bool,
}

impl Sizes {
    /// Large in one seed of four.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self { large: rng.chance(0.25) }
    }

    /// Adds to a text what makes it as large as `room`, or smaller, at times: the rest of its operation needs some.
    pub(crate) fn stretch(self, text: String, room: usize, rng: &mut Rng) -> String {
        if !self.large || rng.chance(0.7) {
            return text;
        }
        let most = (room - room / REQUEST_SHARE).max(1);
        let size = if rng.chance(0.5) { most } else { rng.between(1, most as u64) as usize };
        let more = size.saturating_sub(text.len() + 1);
        format!("{text}.{}", "x".repeat(more))
    }
}
