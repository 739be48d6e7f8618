//! The timers of all nodes of a host: a heap with at most about one entry a pending timer.

use kernel::{Instant, TimerIndex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A node's number on its host, by rank of its slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeIndex(pub(crate) usize);

#[derive(Clone, Copy, Default)]
struct Pending {
    /// When it runs out; `None` if stopped.
    deadline: Option<Instant>,
    /// The heap entry that stands for it, which may come before the deadline: setting a timer again to a later time,
    /// which most roles do at every message, touches no heap.
    queued: Option<Instant>,
}

/// Timers of at least this may run out later by [`SLACK`], with others: a host that wakes for each of hundreds does little else.
const LAX_FROM: Duration = Duration::from_millis(20);
const SLACK: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Default)]
pub(crate) struct Timers {
    exact: Queue,
    lax: Queue,
}

impl Timers {
    pub(crate) fn set(&mut self, node: NodeIndex, timer: TimerIndex, now: Instant, after: Duration) {
        let is_lax = after >= LAX_FROM;
        let (queue, other) =
            if is_lax { (&mut self.lax, &mut self.exact) } else { (&mut self.exact, &mut self.lax) };
        other.stop(node, timer);
        queue.set(node, timer, now + after);
    }

    pub(crate) fn stop(&mut self, node: NodeIndex, timer: TimerIndex) {
        self.exact.stop(node, timer);
        self.lax.stop(node, timer);
    }

    /// When to look again: at the first deadline of an exact one, and not much after that of any other.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        self.exact.next().into_iter().chain(self.lax.next().map(|at| at + SLACK)).min()
    }

    /// A timer that has run out by `now`, which is then no longer pending.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(NodeIndex, TimerIndex)> {
        self.exact.pop(now).or_else(|| self.lax.pop(now))
    }
}

/// Invariant: a timer with a deadline has a heap entry at `queued`, not after the deadline.
#[derive(Default)]
struct Queue {
    heap: BinaryHeap<Reverse<(Instant, NodeIndex, u8)>>,
    pending: Vec<Vec<Pending>>,
}

impl Queue {
    fn set(&mut self, node: NodeIndex, timer: TimerIndex, deadline: Instant) {
        let pending = self.pending(node, timer);
        pending.deadline = Some(deadline);
        if pending.queued.is_none_or(|queued| queued > deadline) {
            pending.queued = Some(deadline);
            self.heap.push(Reverse((deadline, node, timer.0)));
        }
    }

    fn stop(&mut self, node: NodeIndex, timer: TimerIndex) {
        self.pending(node, timer).deadline = None;
    }

    /// The first deadline. An entry that stands for a later one is moved there: a timer that is set again and again, as those are that wait
    /// for a silence, wakes nobody.
    fn next(&mut self) -> Option<Instant> {
        while let Some(&Reverse((at, node, timer))) = self.heap.peek() {
            let pending = self.pending(node, TimerIndex(timer));
            if pending.queued == Some(at) && pending.deadline == Some(at) {
                return Some(at);
            }
            self.heap.pop();
            let pending = self.pending(node, TimerIndex(timer));
            if pending.queued == Some(at) {
                pending.queued = pending.deadline;
                if let Some(deadline) = pending.deadline {
                    self.heap.push(Reverse((deadline, node, timer)));
                }
            }
        }
        None
    }

    /// A timer that has run out by `now`, which is then no longer pending.
    fn pop(&mut self, now: Instant) -> Option<(NodeIndex, TimerIndex)> {
        while let Some(&Reverse((at, node, timer))) = self.heap.peek()
            && at <= now
        {
            self.heap.pop();
            let pending = self.pending(node, TimerIndex(timer));
            if pending.queued != Some(at) {
                continue; // An earlier entry was moved to this one's index.
            }
            pending.queued = None;
            match pending.deadline {
                Some(deadline) if deadline <= now => {
                    pending.deadline = None;
                    return Some((node, TimerIndex(timer)));
                }
                Some(deadline) => {
                    pending.queued = Some(deadline);
                    self.heap.push(Reverse((deadline, node, timer)));
                }
                None => {}
            }
        }
        None
    }

    fn pending(&mut self, node: NodeIndex, timer: TimerIndex) -> &mut Pending {
        if self.pending.len() <= node.0 {
            self.pending.resize_with(node.0 + 1, Vec::new);
        }
        let timers = &mut self.pending[node.0];
        if timers.len() <= usize::from(timer.0) {
            timers.resize(usize::from(timer.0) + 1, Pending::default());
        }
        &mut timers[usize::from(timer.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Rng;
    use std::collections::BTreeMap;

    // A lost timer stops a protocol for ever; one that fires early or twice breaks a lease. The twin is a plain map.
    #[test]
    fn timers_agree_with_a_plain_map() {
        let (mut timers, mut twin, mut fired) = (Queue::default(), BTreeMap::new(), 0);
        let mut rng = Rng::seeded(3);
        for now in 0..20_000u64 {
            for _ in 0..rng.below(3) {
                let (node, timer) = (NodeIndex(rng.index(3)), TimerIndex(rng.below(4) as u8));
                if rng.chance(0.2) {
                    timers.stop(node, timer);
                    twin.remove(&(node, timer.0));
                } else {
                    let deadline = Instant(now + 1 + rng.below(200));
                    timers.set(node, timer, deadline);
                    twin.insert((node, timer.0), deadline);
                }
            }
            if let Some(first) = twin.values().min() {
                assert_eq!(timers.next(), Some(*first), "neither sleeps through it nor wakes before");
            }
            let mut due: Vec<_> = twin.extract_if(.., |_, at| at.0 <= now).map(|(key, _)| key).collect();
            let mut popped: Vec<_> = std::iter::from_fn(|| timers.pop(Instant(now)))
                .map(|(node, timer)| (node, timer.0))
                .collect();
            due.sort_unstable();
            popped.sort_unstable();
            assert_eq!(popped, due);
            fired += due.len();
        }
        assert!(fired > 500, "only {fired} timers fired");
        assert!(timers.heap.len() < 300, "{} entries for 12 timers", timers.heap.len());
    }
    // A host that wakes late for a short timer answers late; one that wakes for each long one alone is busy with nothing.
    #[test]
    fn long_timers_run_out_together() {
        let (mut timers, ms) = (Timers::default(), |count: u64| Instant(count * 1_000_000));
        let fired = |timers: &mut Timers, now| {
            std::iter::from_fn(|| timers.pop(now)).map(|(node, _)| node.0).collect::<Vec<_>>()
        };
        timers.set(NodeIndex(0), TimerIndex(0), ms(0), Duration::from_millis(20));
        timers.set(NodeIndex(1), TimerIndex(0), ms(3), Duration::from_millis(20));
        assert_eq!(timers.next(), Some(ms(25)));
        assert_eq!(fired(&mut timers, ms(19)), [], "none before its time");
        assert_eq!(fired(&mut timers, ms(25)), [0, 1]);
        timers.set(NodeIndex(0), TimerIndex(0), ms(25), Duration::from_millis(20));
        timers.set(NodeIndex(1), TimerIndex(0), ms(25), Duration::from_millis(19));
        assert_eq!((timers.next(), fired(&mut timers, ms(44))), (Some(ms(44)), vec![1]));
        // One that is set anew, or stopped, runs out no more as it was.
        timers.set(NodeIndex(0), TimerIndex(0), ms(44), Duration::from_millis(2));
        assert_eq!((fired(&mut timers, ms(45)), fired(&mut timers, ms(46))), (vec![], vec![0]));
        timers.set(NodeIndex(0), TimerIndex(0), ms(46), Duration::from_millis(30));
        timers.stop(NodeIndex(0), TimerIndex(0));
        assert_eq!(fired(&mut timers, ms(99)), []);
    }
}
