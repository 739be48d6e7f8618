//! The bounds of the clusters under Mason: small, in the proportions of the real ones, so that pages, chunks and batches reach them; and,
//! in one seed of four, operations as large as they may be.

use kernel::{Bounds, Rng};
use std::time::Duration;

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

/// In a quarter of the seeds everything that has several parts has many: pages of votes and of values, batches, and how many of those
/// wait. What is drawn for that shifts nothing else.
pub(crate) fn narrowed(
    parameters: mason::MasonParameters,
    log: paxos::Parameters,
    rng: &Rng,
) -> (mason::MasonParameters, paxos::Parameters) {
    let mut own = Rng::seeded(rng.clone().bits() ^ NARROW);
    if !own.chance(0.25) {
        return (parameters, log);
    }
    let parameters = mason::MasonParameters {
        batches_max: own.between(1, 4) as usize,
        batch_operations_max: own.between(1, 4) as usize,
        ..parameters
    };
    let log = narrowed_log(log, &mut own);
    (parameters, log)
}

/// The same of a log alone.
pub(crate) fn narrowed_log(log: paxos::Parameters, own: &mut Rng) -> paxos::Parameters {
    paxos::Parameters { page_bytes: 200 << own.below(4), snapshot_chunk_bytes: 128 << own.below(4), ..log }
}

/// Nothing fails in one seed of sixteen. What is drawn for that shifts nothing else.
pub(crate) fn is_calm(rng: &Rng) -> bool {
    Rng::seeded(rng.clone().bits() ^ CALM).chance(1.0 / 16.0)
}

/// Where nothing fails nobody waits for an answer as long as this, and so nothing is asked for again: what was not done shows.
pub(crate) const CALM_PATIENCE: Duration = Duration::from_secs(4);
/// How long an operation takes there at most, where some wait for others, or for a moment.
pub(crate) const CALM_MOST: Duration = Duration::from_secs(3);

/// Parameters of a cluster where nothing fails.
pub(crate) fn patient(
    parameters: mason::MasonParameters,
    log: paxos::Parameters,
) -> (mason::MasonParameters, paxos::Parameters) {
    let (resend_after, ask_after) = (CALM_PATIENCE, CALM_PATIENCE);
    let parameters = mason::MasonParameters { resend_after, ask_after, ..parameters };
    (parameters, paxos::Parameters { resend_after, ..log })
}

/// For draws of narrow and of calm clusters, which are apart from all others.
const NARROW: u64 = 0x6e61_7272_6f77;
const CALM: u64 = 0x6361_6c6d;

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
