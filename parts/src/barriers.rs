//! Barriers: what makes reads linearizable. One passes when every group in use has said how far its log had come after it was sent.

use kernel::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// So many barriers are in flight at most; the reads that come meanwhile share the next one.
const IN_FLIGHT_MAX: usize = 4;

#[derive(Clone, Debug)]
struct InFlight {
    id: u64,
    missing: BTreeSet<usize>,
    /// The groups below this one were asked.
    asked_below: usize,
    asked_at: Instant,
}

/// The barriers of one gateway; `W` says who waits for one.
#[derive(Clone, Debug)]
pub struct Barriers<W> {
    /// The one that reads of now will wait for; not sent yet.
    next: u64,
    wanted: bool,
    passed: u64,
    in_flight: VecDeque<InFlight>,
    waiting: BTreeMap<u64, Vec<W>>,
    ask_again_after: Duration,
}

/// A question to groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Names the barrier.
    pub id: u64,
    /// The groups to ask, by index.
    pub groups: Vec<usize>,
}

/// What a group's answer comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BarrierAnswer<W> {
    /// Groups that were not asked before.
    pub ask: Vec<usize>,
    /// The barrier has passed, and those before it.
    pub passed: Option<Passed<W>>,
}

/// A barrier that has passed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed<W> {
    /// Who has waited for it or one before it.
    pub waiters: Vec<W>,
    /// When it was asked for last.
    pub asked_at: Instant,
}

impl<W: PartialEq> Barriers<W> {
    /// None are in flight; one without an answer is asked for again after so long.
    pub fn new(ask_again_after: Duration) -> Self {
        Self {
            next: 1,
            wanted: false,
            passed: 0,
            in_flight: VecDeque::new(),
            waiting: BTreeMap::new(),
            ask_again_after,
        }
    }

    /// The barrier that a read of now has to wait for; `waiter` is returned when it has passed.
    pub fn want(&mut self, waiter: W) -> u64 {
        let waiting = self.waiting.entry(self.next).or_default();
        if waiting.last() != Some(&waiter) {
            waiting.push(waiter);
        }
        self.want_for_nobody()
    }

    /// The same where nobody is returned.
    pub fn want_for_nobody(&mut self) -> u64 {
        self.wanted = true;
        self.next
    }

    /// How many wait for one.
    pub fn waiters(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// True if it has passed.
    pub fn has_passed(&self, barrier: u64) -> bool {
        barrier <= self.passed
    }

    /// Sends the barrier that is wanted, to the first `groups`; none if none is, or too many are in flight.
    pub fn send(&mut self, groups: usize, now: Instant) -> Option<Asked> {
        if !self.wanted || self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let id = self.next;
        self.wanted = false;
        self.next += 1;
        let missing = (0..groups).collect();
        self.in_flight.push_back(InFlight { id, missing, asked_below: groups, asked_at: now });
        Some(Asked { id, groups: (0..groups).collect() })
    }

    /// What to ask again: a group that had no leader may have dropped the question.
    pub fn ask_again(&mut self, now: Instant) -> Vec<Asked> {
        let after = self.ask_again_after;
        let late = self.in_flight.iter_mut().filter(|barrier| now.since(barrier.asked_at) >= after);
        late.map(|barrier| {
            barrier.asked_at = now;
            Asked { id: barrier.id, groups: barrier.missing.iter().copied().collect() }
        })
        .collect()
    }

    /// A group has answered. `in_use`: how many groups there are, if the answer says so reliably. A write that was answered before the
    /// barrier was sent was made by one of those.
    pub fn on_answer(&mut self, id: u64, group: usize, in_use: Option<usize>) -> BarrierAnswer<W> {
        let mut answered = BarrierAnswer { ask: Vec::new(), passed: None };
        let Some(at) = self.in_flight.iter().position(|barrier| barrier.id == id) else { return answered };
        let barrier = &mut self.in_flight[at];
        barrier.missing.remove(&group);
        if let Some(in_use) = in_use {
            answered.ask.extend(barrier.asked_below..in_use);
            barrier.missing.extend(barrier.asked_below..in_use);
            barrier.missing.retain(|&group| group < in_use);
            barrier.asked_below = in_use.max(barrier.asked_below);
        }
        if barrier.missing.is_empty() {
            let asked_at = barrier.asked_at;
            // What a later barrier has waited for includes what an earlier one waits for.
            self.in_flight.drain(..=at);
            self.passed = self.passed.max(id);
            let later = self.waiting.split_off(&(self.passed + 1));
            let waited = std::mem::replace(&mut self.waiting, later);
            answered.passed = Some(Passed { waiters: waited.into_values().flatten().collect(), asked_at });
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_nanos(100);

    fn asked(id: u64, groups: &[usize]) -> Asked {
        Asked { id, groups: groups.to_vec() }
    }

    fn passed(waiters: &[char], asked_at: u64) -> BarrierAnswer<char> {
        let passed = Passed { waiters: waiters.to_vec(), asked_at: Instant(asked_at) };
        BarrierAnswer { ask: Vec::new(), passed: Some(passed) }
    }

    const NOTHING: BarrierAnswer<char> = BarrierAnswer { ask: Vec::new(), passed: None };

    // A read that is let go by fewer groups than there are misses a write that was answered before it.
    #[test]
    fn a_barrier_passes_when_every_group_has_answered() {
        let mut barriers = Barriers::new(PATIENCE);
        assert_eq!(barriers.send(2, Instant(0)), None, "nobody wants one");
        assert_eq!((barriers.want('a'), barriers.want('a'), barriers.want('b')), (1, 1, 1));
        assert_eq!(barriers.send(2, Instant(0)), Some(asked(1, &[0, 1])));
        assert_eq!(barriers.want('c'), 2, "what comes later waits for the next one");
        assert_eq!(barriers.on_answer(1, 1, None), NOTHING);
        assert_eq!(barriers.on_answer(1, 1, None), NOTHING, "it answers twice");
        assert_eq!(barriers.on_answer(1, 0, Some(3)), BarrierAnswer { ask: vec![2], passed: None });
        assert!(!barriers.has_passed(1));
        assert_eq!(barriers.on_answer(1, 2, None), passed(&['a', 'b'], 0));
        assert!(barriers.has_passed(1) && !barriers.has_passed(2) && barriers.waiters() == 1);
        assert_eq!(barriers.on_answer(1, 2, None), NOTHING);
    }

    // A group that is removed answers nobody: who waits for it waits for good.
    #[test]
    fn groups_that_are_gone_are_not_waited_for() {
        let mut barriers = Barriers::new(PATIENCE);
        barriers.want('a');
        barriers.send(3, Instant(0));
        assert_eq!(barriers.on_answer(1, 1, None), NOTHING);
        assert_eq!(barriers.on_answer(1, 0, Some(2)), passed(&['a'], 0));
    }

    // A question that was lost stops every read behind it; a thousand questions at once stop the groups.
    #[test]
    fn few_are_in_flight_and_what_is_lost_is_asked_again() {
        let mut barriers = Barriers::new(PATIENCE);
        for id in 1..=4 {
            barriers.want('a');
            assert_eq!(barriers.send(1, Instant(id)), Some(asked(id, &[0])));
        }
        barriers.want('b');
        assert_eq!(barriers.send(1, Instant(5)), None);
        assert_eq!(barriers.ask_again(Instant(102)), [asked(1, &[0]), asked(2, &[0])]);
        assert_eq!(barriers.ask_again(Instant(102)), []);
        assert_eq!(barriers.on_answer(3, 0, None), passed(&['a', 'a', 'a'], 3), "and those before it");
        assert_eq!(barriers.send(1, Instant(103)), Some(asked(5, &[0])));
    }
}
