//! The timers of all nodes of a host: a heap with at most about one entry a pending timer.

use kernel::{Beacons, Instant, Listener, NodeId, TimerIndex};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
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
    /// Of those that run out later while others are heard; all of these are lax.
    listeners: BTreeMap<(NodeIndex, TimerIndex), Listener>,
    /// While nobody uses the host, what waits for long runs out when it speaks: so far apart.
    pub(crate) together: Option<Duration>,
}

impl Timers {
    pub(crate) fn set(&mut self, node: NodeIndex, timer: TimerIndex, now: Instant, after: Duration) {
        self.stop(node, timer);
        let queue = if after >= LAX_FROM { &mut self.lax } else { &mut self.exact };
        queue.set(node, timer, later(now + after, after, self.together));
    }

    /// Sets one that listens.
    pub(crate) fn listen(
        &mut self,
        node: NodeIndex,
        timer: TimerIndex,
        mut listener: Listener,
        beacons: &Beacons,
    ) {
        self.stop(node, timer);
        listener.until = later(listener.until, listener.until.since(listener.since), self.together);
        let at = beacons.runs_out(&listener, listener.since);
        self.lax.set(node, timer, at);
        self.listeners.insert((node, timer), listener);
    }

    /// A beacon was stopped: timers that listen for it run out.
    pub(crate) fn end_silences(&mut self, from: NodeId, to: NodeId, now: Instant) {
        let ended = self.listeners.extract_if(.., |_, it| it.node == to && it.listens_for(from));
        ended.for_each(|((node, timer), _)| self.lax.set(node, timer, now));
    }

    pub(crate) fn stop(&mut self, node: NodeIndex, timer: TimerIndex) {
        self.listeners.remove(&(node, timer));
        self.exact.stop(node, timer);
        self.lax.stop(node, timer);
    }

    /// When to look again: at the first deadline of an exact one, and not much after that of any other.
    pub(crate) fn next(&mut self, now: Instant, beacons: &Beacons) -> Option<Instant> {
        let lax = loop {
            let Some((at, node, timer)) = self.lax.first() else { break None };
            let later = self.listeners.get(&(node, timer)).map(|listener| beacons.runs_out(listener, now));
            let Some(later) = later.filter(|&later| later > at) else { break Some(at) };
            self.lax.set(node, timer, later);
        };
        self.exact.first().map(|(at, ..)| at).into_iter().chain(lax.map(|at| at + SLACK)).min()
    }

    /// A timer that has run out by `now`, which is then no longer pending.
    pub(crate) fn pop(&mut self, now: Instant, beacons: &Beacons) -> Option<(NodeIndex, TimerIndex)> {
        if let Some(due) = self.exact.pop(now) {
            return Some(due);
        }
        while let Some((node, timer)) = self.lax.pop(now) {
            let listener = self.listeners.get(&(node, timer));
            let later = listener.map(|listener| beacons.runs_out(listener, now)).filter(|&later| later > now);
            let Some(later) = later else {
                self.listeners.remove(&(node, timer));
                return Some((node, timer));
            };
            self.lax.set(node, timer, later);
        }
        None
    }
}

/// The next time at which timers run out together, for one that waits for as long as that takes.
fn later(deadline: Instant, after: Duration, together: Option<Duration>) -> Instant {
    match together {
        Some(together) if after >= together => {
            Instant(deadline.0.next_multiple_of(together.as_nanos() as u64))
        }
        _ => deadline,
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

    /// The one with the first deadline. An entry that stands for a later one is moved there: a timer that is set again and again, as those are that wait
    /// for a silence, wakes nobody.
    fn first(&mut self) -> Option<(Instant, NodeIndex, TimerIndex)> {
        while let Some(&Reverse((at, node, timer))) = self.heap.peek() {
            let pending = self.pending(node, TimerIndex(timer));
            if pending.queued == Some(at) && pending.deadline == Some(at) {
                return Some((at, node, TimerIndex(timer)));
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
                assert_eq!(
                    timers.first().map(|(at, ..)| at),
                    Some(*first),
                    "neither sleeps through it nor wakes before"
                );
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
        let beacons = Beacons::default();
        let fired = |timers: &mut Timers, now| {
            std::iter::from_fn(|| timers.pop(now, &beacons)).map(|(node, _)| node.0).collect::<Vec<_>>()
        };
        timers.set(NodeIndex(0), TimerIndex(0), ms(0), Duration::from_millis(20));
        timers.set(NodeIndex(1), TimerIndex(0), ms(3), Duration::from_millis(20));
        assert_eq!(timers.next(ms(3), &beacons), Some(ms(25)));
        assert_eq!(fired(&mut timers, ms(19)), [], "none before its time");
        assert_eq!(fired(&mut timers, ms(25)), [0, 1]);
        timers.set(NodeIndex(0), TimerIndex(0), ms(25), Duration::from_millis(20));
        timers.set(NodeIndex(1), TimerIndex(0), ms(25), Duration::from_millis(19));
        assert_eq!((timers.next(ms(25), &beacons), fired(&mut timers, ms(44))), (Some(ms(44)), vec![1]));
        // One that is set anew, or stopped, runs out no more as it was.
        timers.set(NodeIndex(0), TimerIndex(0), ms(44), Duration::from_millis(2));
        assert_eq!((fired(&mut timers, ms(45)), fired(&mut timers, ms(46))), (vec![], vec![0]));
        timers.set(NodeIndex(0), TimerIndex(0), ms(46), Duration::from_millis(30));
        timers.stop(NodeIndex(0), TimerIndex(0));
        assert_eq!(fired(&mut timers, ms(99)), []);
    }

    // A host that wakes to see that another one was heard is busy with nothing; one that sleeps through a silence is late.
    #[test]
    fn a_listener_wakes_nobody_while_others_are_heard() {
        let (mut timers, ms) = (Timers::default(), |count: u64| Instant(count * 1_000_000));
        let node = |host| NodeId::new(kernel::HostId(host), kernel::HostSlot(1));
        let (mut beacons, index, timer) = (Beacons::default(), NodeIndex(4), TimerIndex(2));
        let listener = |since| {
            let silence = kernel::Silence { of: vec![node(1)], lasts: Duration::from_millis(100) };
            Listener { node: node(2), silence, since, until: ms(1_000) }
        };
        beacons.light(node(1), node(2));
        for at in (0..500).step_by(50) {
            beacons.hear(kernel::HostId(1), 1, ms(at));
            if at == 0 {
                timers.listen(index, timer, listener(ms(0)), &beacons);
            }
            assert_eq!(timers.next(ms(at), &beacons), Some(ms(at + 100) + SLACK));
            assert_eq!(timers.pop(ms(at + 99), &beacons), None);
        }
        assert_eq!(timers.pop(ms(550), &beacons), Some((index, timer)), "silence");
        assert_eq!((timers.next(ms(550), &beacons), timers.pop(ms(2_000), &beacons)), (None, None), "once");
        beacons.hear(kernel::HostId(1), 1, ms(990));
        timers.listen(index, timer, listener(ms(990)), &beacons);
        assert_eq!(timers.pop(ms(1_000), &beacons), Some((index, timer)), "in any case");
        timers.listen(index, timer, listener(ms(990)), &beacons);
        timers.end_silences(node(1), node(3), ms(991));
        timers.end_silences(node(3), node(2), ms(991));
        assert_eq!(timers.pop(ms(991), &beacons), None);
        timers.end_silences(node(1), node(2), ms(991));
        assert_eq!(timers.pop(ms(991), &beacons), Some((index, timer)), "it was stopped");
        timers.listen(index, timer, listener(ms(991)), &beacons);
        timers.set(index, timer, ms(991), Duration::from_secs(5));
        assert_eq!(timers.pop(ms(5_990), &beacons), None, "it listens no more");
    }
}
