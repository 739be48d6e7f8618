//! How the groups and their logs work, as a seed draws it.

use crate::limits;
use kernel::Rng;
use mason::MasonParameters;
use std::time::Duration;

/// What a seed draws.
pub(super) fn draw_parameters(rng: &mut Rng) -> (MasonParameters, paxos::Parameters) {
    let ms = Duration::from_millis;
    let parameters = MasonParameters {
        tick: ms(rng.between(10, 40)),
        resend_after: ms(rng.between(30, 120)),
        suspect_after: ms(rng.between(80, 400)),
        clock_every: ms(rng.between(100, 300)),
        collect_every: ms(rng.between(100, 1_000)),
        collect_interval: rng.between(4, 64),
        ask_after: ms(rng.between(20, 80)),
        snapshot_every_bytes: 2_000 << rng.below(6),
        snapshot_chunk_bytes: 256 << rng.below(4),
        page_bytes: 128 << rng.below(7),
        // Where nobody waits for the last server, it has to take a snapshot.
        wait_for_last: if rng.chance(0.5) { Duration::ZERO } else { ms(100) },
        ..MasonParameters::default()
    };
    let log = paxos::Parameters {
        election_timeout: ms(rng.between(150, 400)),
        heartbeat_every: ms(rng.between(25, 60)),
        resend_after: ms(rng.between(50, 150)),
        window: 32 << rng.below(4),
        snapshot_every_bytes: 4_000 << rng.below(6),
        retained_bytes_max: 8_000 << rng.below(6),
        ..paxos::Parameters::default()
    };
    let (parameters, log) = limits::narrowed(parameters, log, rng);
    limits::fit(parameters, log)
}
