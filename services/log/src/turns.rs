//! Whose turn it is to read: many readers that wake at once are asked for some after the other, so that what they are answered together is
//! bounded in bytes and time.

use crate::wire::READ_BYTES_MAX;
use kernel::Instant;
use kernel::bounds::ANSWER_BYTES_MAX;
use parts::{Turn, TurnBounds};
use std::collections::VecDeque;
use std::time::Duration;

/// Until the next turn.
pub(crate) const TURN: Duration = Duration::from_millis(1);
/// A shard that has more for a read than there is room for has looked at it all the same.
const BOUNDS: TurnBounds = TurnBounds { requests_max: 64, bytes_max: 2 << 20 };
/// The least that a read has room for.
const ROOM_MIN: usize = 4 << 10;

/// See the file's head.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    waiting: VecDeque<u64>,
    turn: Turn,
    /// The size of the answers of late.
    usual: usize,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { waiting: VecDeque::new(), turn: Turn::new(BOUNDS), usual: ROOM_MIN }
    }

    /// A read is to be asked for.
    pub(crate) fn push(&mut self, tag: u64) {
        self.waiting.push_back(tag);
    }

    /// A read whose answer there was no room for goes before those that were not looked at.
    pub(crate) fn push_first(&mut self, tag: u64) {
        self.waiting.push_front(tag);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next read, if it has its turn now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<u64> {
        if !self.turn.has_requests(now) || !self.turn.has_bytes(now) {
            return None;
        }
        let tag = self.waiting.pop_front()?;
        self.turn.spend_request();
        Some(tag)
    }

    /// It may be answered so many bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.turn.spend(bytes);
    }

    /// How much room a read has of whose answer nothing is known.
    pub(crate) fn expected(&self) -> usize {
        (self.usual + self.usual / 4).clamp(ROOM_MIN, READ_BYTES_MAX as usize)
    }

    /// An answer was so large.
    pub(crate) fn learn(&mut self, bytes: usize) {
        self.usual = bytes.min(ANSWER_BYTES_MAX).max(self.usual - self.usual.div_ceil(8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Thousands that wake at once are answered a megabyte each in one go.
    #[test]
    fn a_turn_is_bounded_in_reads_and_bytes() {
        let mut turns = Turns::new();
        (0..1_000).for_each(|tag| turns.push(tag));
        let all = |turns: &mut Turns, now: u64, bytes: usize| {
            let mut tags = Vec::new();
            while let Some(tag) = turns.next(Instant(now)) {
                turns.spend(bytes);
                tags.push(tag);
            }
            tags
        };
        assert_eq!(all(&mut turns, 1, 100), (0..64).collect::<Vec<_>>());
        assert_eq!(all(&mut turns, 1, 100), [], "the turn is over");
        turns.push_first(7);
        assert_eq!(all(&mut turns, 2, 1 << 20), [7, 64]);
        assert_eq!(all(&mut turns, 3, 64 << 20), [65], "one of any size");
    }

    // Room that never shrinks makes every turn one of a few reads; room that shrinks at once has large answers made twice.
    #[test]
    fn room_follows_what_is_answered() {
        let mut turns = Turns::new();
        assert_eq!(turns.expected(), ROOM_MIN + ROOM_MIN / 4);
        turns.learn(400_000);
        assert_eq!(turns.expected(), 500_000);
        turns.learn(100);
        assert!((400_000..500_000).contains(&turns.expected()));
        (0..60).for_each(|_| turns.learn(100));
        assert_eq!(turns.expected(), ROOM_MIN);
    }
}
