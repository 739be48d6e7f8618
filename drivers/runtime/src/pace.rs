//! How often a host says that it is alive. Hosts that nobody uses say it rarely: nobody waits for one that fails. A host that is used
//! says so at once, and then all speak often.

use kernel::{HostId, Instant, REPEAT_WITHIN};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long after the last client and the last request a host counts as unused.
const UNUSED_AFTER: Duration = Duration::from_secs(5);
/// How often hosts say that they are alive while all are unused.
const RARELY: Duration = REPEAT_WITHIN.saturating_mul(8);
/// No sound host is silent for longer.
const TRUST_MAX: Duration = Duration::from_secs(1);

/// What a host knows of who is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Pace {
    /// Somebody uses it, or did so a moment ago.
    #[default]
    Used,
    /// Nobody uses it, and others may be used.
    Unused,
    /// Nobody uses any host.
    AllUnused,
}

impl Pace {
    /// How often the host says that it is alive.
    pub(crate) fn every(self) -> Duration {
        match self {
            Self::Used | Self::Unused => REPEAT_WITHIN,
            Self::AllUnused => RARELY,
        }
    }
}

/// Which hosts are used.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    used_at: Instant,
    /// Hosts that say that nobody uses them.
    unused: BTreeSet<HostId>,
    /// Of these, whose word is still to be taken back.
    doubted: BTreeSet<HostId>,
    pace: Pace,
}

impl Uses {
    /// This host is used.
    pub(crate) fn note(&mut self, now: Instant) {
        self.used_at = now;
    }

    /// Another host says that nobody uses it, and that it speaks again within so many milliseconds: how much longer than others it may be
    /// trusted, and whether it has not said so before. `Err` if no sound host says that.
    pub(crate) fn on_unused(&mut self, host: HostId, again_within: u32) -> Result<(Duration, bool), String> {
        let within = Duration::from_millis(again_within.into());
        if within > TRUST_MAX {
            return Err(format!("it speaks again within {again_within} ms, and {TRUST_MAX:?} is the most"));
        }
        Ok((within.saturating_sub(REPEAT_WITHIN), self.unused.insert(host)))
    }

    /// It says no longer so, or its connection has ended; true if it did before.
    pub(crate) fn on_used(&mut self, host: HostId) -> bool {
        let changed = self.unused.remove(&host);
        if changed {
            self.doubted.insert(host);
        }
        changed
    }

    /// As if no host had said so.
    pub(crate) fn doubt_all(&mut self) {
        self.doubted.append(&mut self.unused);
    }

    /// Hosts that are trusted no longer than they were heard.
    pub(crate) fn take_doubted(&mut self) -> BTreeSet<HostId> {
        std::mem::take(&mut self.doubted)
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// When another pace is due if nobody uses this host until then.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.pace == Pace::Used).then_some(self.used_at + UNUSED_AFTER)
    }

    /// Decides how often this host speaks. `others`: the other hosts, and whether there is a link to them. True if it speaks more often
    /// than before.
    pub(crate) fn decide(&mut self, now: Instant, mut others: impl Iterator<Item = (HostId, bool)>) -> bool {
        let before = self.pace;
        self.pace = if now < self.used_at + UNUSED_AFTER {
            Pace::Used
        } else if others.all(|(host, is_up)| is_up && self.unused.contains(&host)) {
            Pace::AllUnused
        } else {
            Pace::Unused
        };
        if before == Pace::AllUnused && self.pace != before {
            // From now on somebody waits for a host that fails. Sound ones speak at once, as this one does.
            self.doubt_all();
        }
        before != self.pace && before != Pace::Used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostId = HostId(1);
    const B: HostId = HostId(2);

    // A host that speaks rarely while somebody uses another one is missed late when it fails.
    #[test]
    fn hosts_speak_rarely_while_all_of_them_are_unused() {
        let (mut uses, now) = (Uses::default(), |ms: u64| Instant(ms * 1_000_000));
        let up = || [(A, true), (B, true)].into_iter();
        uses.note(now(1_000));
        assert!(!uses.decide(now(5_999), up()) && uses.pace() == Pace::Used);
        assert_eq!(uses.due(), Some(now(6_000)));
        assert!(!uses.decide(now(6_000), up()) && uses.pace() == Pace::Unused, "the others are used");
        assert_eq!(uses.on_unused(A, 50), Ok((Duration::ZERO, true)));
        assert_eq!(uses.on_unused(B, 200), Ok((Duration::from_millis(150), true)));
        assert_eq!(uses.on_unused(B, 200), Ok((Duration::from_millis(150), false)));
        assert!(
            uses.decide(now(6_100), up()) && uses.pace() == Pace::AllUnused,
            "it says that it may be trusted"
        );
        assert!(uses.decide(now(6_100), [(A, true), (B, false)].into_iter()), "a link is down");
        assert_eq!(uses.pace(), Pace::Unused);
        assert!(uses.decide(now(6_100), up()));
        assert!(uses.on_used(B) && !uses.on_used(B));
        assert!(uses.decide(now(6_200), up()) && uses.pace() == Pace::Unused);
        assert_eq!(uses.take_doubted(), BTreeSet::from([B]));
        uses.doubt_all();
        assert_eq!((uses.take_doubted(), uses.take_doubted()), (BTreeSet::from([A]), BTreeSet::new()));
        uses.note(now(7_000));
        assert!(uses.decide(now(7_000), up()) && uses.pace() == Pace::Used);
        assert!(uses.on_unused(A, 1_001).is_err());
    }
}
