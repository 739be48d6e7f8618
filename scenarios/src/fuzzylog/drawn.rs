//! What is drawn of timeouts and bounds.

use crate::limits;
use ::fuzzylog::FuzzyParameters;
use kernel::Rng;
use std::time::Duration;

/// Timeouts and bounds that make what is rare frequent.
pub(super) fn draw_parameters(width: usize, rng: &mut Rng) -> FuzzyParameters {
    let ms = Duration::from_millis;
    FuzzyParameters {
        segment_bytes: draw_segment_bytes(rng),
        tick: ms(rng.between(5, 30)),
        resend_after: ms(rng.between(30, 150)),
        stuck_after: ms(rng.between(50, 400)),
        back_off_max: ms(rng.between(20, 200)),
        suspect_after: ms(rng.between(80, 400)),
        seal_for: ms(rng.between(20, 200)),
        start_for: ms(rng.between(50, 300)),
        behind_max: rng.between(0, 20),
        append_bytes_max: 4 << 10,
        page_bytes: 256 << rng.below(5),
        window_bytes: 2_000 << rng.below(5),
        snapshot_every_bytes: 500 << rng.below(6),
        snapshot_chunk_bytes: 512 << rng.below(4),
        row_memory_bytes: 200 << rng.below(6),
        pending_max: rng.between(2, 100) as usize,
        syncs_max: rng.between(2, 100) as usize,
        replicas_min: rng.between(1, width as u64) as usize,
        ..FuzzyParameters::default()
    }
}

/// So small that a run fills some. From a generator of its own: what else is drawn is what it was before there were segments.
pub(crate) fn draw_segment_bytes(rng: &Rng) -> usize {
    let mut own = Rng::seeded(rng.clone().bits() ^ 0x7365_676d);
    200 << own.below(5)
}

/// The same of the directors' log.
pub(super) fn draw_log(rng: &mut Rng) -> paxos::Parameters {
    let ms = Duration::from_millis;
    paxos::Parameters {
        election_timeout: ms(rng.between(120, 400)),
        heartbeat_every: ms(rng.between(15, 40)),
        resend_after: ms(rng.between(50, 150)),
        window: 8 << rng.below(4),
        snapshot_every_bytes: 2_000 << rng.below(6),
        snapshot_chunk_bytes: 128 << rng.below(5),
        retained_bytes_max: 4_000 << rng.below(6),
        batch_bytes_max: limits::OPERATION_BYTES_MAX,
        page_bytes: limits::OPERATION_BYTES_MAX,
        ..paxos::Parameters::default()
    }
}
