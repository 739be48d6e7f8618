//! How soon a commit can be over at the earliest: the least that was measured, for each set of participants.

use crate::txn::ShardId;
use kernel::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sets of participants that are remembered.
const SETS_MAX: usize = 1_024;
/// A measurement counts for this long at least, and twice as long at most.
const WINDOW: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Least {
    now: Option<Duration>,
    before: Option<Duration>,
    since: Instant,
}

/// The least latencies of commits.
#[derive(Clone, Debug, Default)]
pub(super) struct Estimates {
    sets: BTreeMap<Vec<ShardId>, Least>,
}

impl Estimates {
    /// The least that a commit of these participants has taken lately; nothing is known to take nothing.
    pub(super) fn least(&self, participants: &[ShardId]) -> Duration {
        let least = self.sets.get(participants);
        let known = least.map(|least| [least.now, least.before].into_iter().flatten().min());
        known.flatten().unwrap_or(Duration::ZERO)
    }

    /// A commit of these participants took so long.
    pub(super) fn measured(&mut self, participants: &[ShardId], took: Duration, now: Instant) {
        if !self.sets.contains_key(participants) && self.sets.len() >= SETS_MAX {
            self.sets.pop_first();
        }
        let new = Least { now: None, before: None, since: now };
        let least = self.sets.entry(participants.to_vec()).or_insert(new);
        if now.since(least.since) >= WINDOW {
            (least.before, least.now, least.since) = (least.now, None, now);
        }
        least.now = Some(least.now.map_or(took, |known| known.min(took)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // An estimate above the least that a commit takes makes commits wait; one that never grows again blocks readers for nothing.
    #[test]
    fn the_least_of_late_is_taken() {
        let mut estimates = Estimates::default();
        let (set, ms) = ([ShardId(1), ShardId(2)], Duration::from_millis);
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        assert_eq!(estimates.least(&set), Duration::ZERO);
        estimates.measured(&set, ms(9), at(0));
        estimates.measured(&set, ms(3), at(1));
        estimates.measured(&set, ms(8), at(2));
        assert_eq!((estimates.least(&set), estimates.least(&set[..1])), (ms(3), Duration::ZERO));
        estimates.measured(&set, ms(7), at(5));
        assert_eq!(estimates.least(&set), ms(3));
        estimates.measured(&set, ms(8), at(10));
        assert_eq!(estimates.least(&set), ms(7));
    }
}
