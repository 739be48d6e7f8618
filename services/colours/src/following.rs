//! Syncs that wait for a node: one of each colour looks whether there is more, for all of them.

use fuzzylog::Colour;
use kernel::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Colours that are looked at in one turn.
const COLOURS_PER_TURN: usize = 64;

/// Calls that wait, by their colours.
#[derive(Clone, Default, Debug)]
pub(crate) struct Following {
    waiting: BTreeMap<Colour, BTreeMap<u64, Instant>>,
    /// The calls that look.
    looking: BTreeSet<u64>,
    /// Where the next turn begins.
    next: Colour,
}

impl Following {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A call waits until then.
    pub(crate) fn wait(&mut self, colour: Colour, call: u64, until: Instant) {
        self.looking.remove(&call);
        self.waiting.entry(colour).or_default().insert(call, until);
    }

    /// Calls that have waited for long enough.
    pub(crate) fn due(&self, now: Instant) -> Vec<u64> {
        let calls = self.waiting.values().flatten();
        calls.filter(|(_, until)| **until <= now).map(|(&call, _)| call).collect()
    }

    /// A call waits no more.
    pub(crate) fn leave(&mut self, colour: Colour, call: u64) {
        self.looking.remove(&call);
        if let Some(calls) = self.waiting.get_mut(&colour) {
            calls.remove(&call);
            if calls.is_empty() {
                self.waiting.remove(&colour);
            }
        }
    }

    /// One call has found more: all of its colour may.
    pub(crate) fn take(&mut self, colour: Colour) -> Vec<u64> {
        let calls: Vec<u64> =
            self.waiting.remove(&colour).into_iter().flat_map(BTreeMap::into_keys).collect();
        let others = calls.into_iter().filter(|call| !self.looking.remove(call));
        others.collect()
    }

    /// The calls that look now: one of each colour whose last one has its answer.
    pub(crate) fn turn(&mut self) -> Vec<u64> {
        let from = self.next;
        let ahead = self.waiting.range(from..).chain(self.waiting.range(..from));
        let (mut turn, mut last) = (Vec::new(), None);
        for (colour, calls) in ahead.take(COLOURS_PER_TURN) {
            last = Some(*colour);
            if !calls.keys().any(|call| self.looking.contains(call)) {
                turn.extend(calls.keys().next());
            }
        }
        if let Some(last) = last {
            self.next = Colour(last.0.wrapping_add(1));
        }
        self.looking.extend(&turn);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A thousand followers of one colour ask a thousand questions a turn, or none ever again.
    #[test]
    fn one_follower_of_a_colour_looks_for_all() {
        let mut following = Following::default();
        (1..=3).for_each(|call| following.wait(Colour(5), call, Instant(call)));
        following.wait(Colour(6), 9, Instant(9));
        assert_eq!(following.turn(), [1, 9]);
        assert!(following.turn().is_empty(), "the questions are on their way");
        assert_eq!(following.due(Instant(2)), [1, 2]);
        following.wait(Colour(5), 1, Instant(1));
        assert_eq!(following.turn(), [1], "nothing was found: it looks again");
        assert_eq!(following.take(Colour(5)), [2, 3], "one has found more, the others ask");
        following.leave(Colour(6), 9);
        assert!(following.is_empty());
    }

    // Colours beyond the first are never looked at.
    #[test]
    fn every_colour_has_its_turn() {
        let mut following = Following::default();
        (0..100).for_each(|at| following.wait(Colour(at), at, Instant(at)));
        let first = following.turn();
        assert_eq!(first.len(), COLOURS_PER_TURN);
        let second = following.turn();
        assert_eq!(second, (COLOURS_PER_TURN as u64..100).collect::<Vec<_>>());
    }
}
