//! Which timers a role waits for, for the simulator to hold against those that are set.

use super::{TimerIndex, TimerKey};

/// The timers of a role that are to be pending, by what it has to do. What waits for one that was not set waits for ever, though most
/// runs do not show it: another message comes, or nobody needs it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AwaitedTimers(u64);

impl AwaitedTimers {
    /// None.
    pub const NONE: Self = Self(0);

    /// One more, where something waits for it.
    #[must_use]
    pub fn and(self, timer: impl TimerKey, waits: bool) -> Self {
        Self(self.0 | u64::from(waits) << timer.index().0)
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = TimerIndex> {
        (0..64).filter(move |number| self.0 >> number & 1 != 0).map(TimerIndex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug)]
    struct Numbered(u8);

    impl TimerKey for Numbered {
        fn index(self) -> TimerIndex {
            TimerIndex(self.0)
        }

        fn from_index(index: TimerIndex) -> Option<Self> {
            Some(Self(index.0))
        }
    }

    // A timer that is left out, or is taken for another, is looked for in vain, or not at all.
    #[test]
    fn timers_are_named_when_something_waits_for_them() {
        let awaited = |first, second| AwaitedTimers::NONE.and(Numbered(0), first).and(Numbered(1), second);
        let numbers = |awaited: AwaitedTimers| awaited.iter().map(|timer| timer.0).collect::<Vec<_>>();
        assert_eq!(numbers(awaited(false, true)), [1]);
        assert_eq!(numbers(awaited(true, true)), [0, 1]);
        assert_eq!(awaited(false, false), AwaitedTimers::NONE);
    }
}
