//! The one queue of everything that is going to happen, by time and, at equal times, by order of scheduling.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something that happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A packet reaches its host.
    Deliver { packet: u32 },
    /// A timer may have run out.
    Timer { host: u8, seat: u8, timer: u8, incarnation: u32 },
    /// A host is free to work off its inbox.
    Wake { host: u8, incarnation: u32 },
    /// A host's fsync returns.
    Synced { host: u8, incarnation: u32 },
    /// A blob of a host is written or read.
    Blob { host: u8, ticket: u32, incarnation: u32 },
    /// A host that is down comes back.
    Restart { host: u8, incarnation: u32 },
    /// A planned fault strikes.
    FaultStart { fault: u32 },
    /// A fault that lasts is over.
    FaultEnd { fault: u32 },
    /// Hosts report to each other how their clocks stand.
    Clocks,
    /// A client may start its next operation.
    Operate { client: u16 },
    /// A host sends lists of its beacons.
    Beacons { host: u8, incarnation: u32 },
    /// An alarm of the scenario.
    Alarm { token: u64 },
    /// The safety phase is over.
    Heal,
    /// Has the healed core converged?
    Poll,
}

#[derive(Clone, Copy)]
struct Scheduled {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Events in the order they happen.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Scheduled>,
    scheduled: u64,
}

impl Queue {
    /// Schedules an event; of two at one time, the one scheduled first happens first.
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.heap.push(Scheduled { at, order: self.scheduled, event });
        self.scheduled += 1;
    }

    /// The next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|scheduled| (scheduled.at, scheduled.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Events of one moment in the heap's own order would differ between versions of the standard library.
    #[test]
    fn events_come_by_time_then_by_order_of_scheduling() {
        let mut queue = Queue::default();
        for (at, token) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            queue.push(at, Event::Alarm { token });
        }
        let tokens: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [(3, 1), (3, 3), (4, 4), (5, 0), (5, 2)];
        assert_eq!(tokens, expected.map(|(at, token)| (at, Event::Alarm { token })));
    }
}
