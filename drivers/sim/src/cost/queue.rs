//! What is going to happen, by time and, at equal times, by order of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A packet comes to its machine's card. Only where links differ: else packets come in the order in which they leave.
    Land { packet: u32 },
    /// A packet is in its host's memory.
    Deliver { packet: u32 },
    /// A core is free for a host that has work.
    Wake { host: u32 },
    /// A timer runs out, if it was not set anew.
    Timer { host: u32, seat: u32, timer: u8, setting: u32 },
    /// An fsync returns.
    Synced { host: u32 },
    /// A session of a client asks.
    Ask { client: u32, session: u64 },
    /// The next of an open load's calls is due.
    Arrival,
    /// A host stops for good.
    Crash { host: u32 },
}

#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.heap.push(Reverse((at, self.scheduled, event)));
        self.scheduled += 1;
    }

    /// The next event, if it is due by `until`.
    pub(super) fn pop_until(&mut self, until: u64) -> Option<(u64, Event)> {
        let &Reverse((at, _, event)) = self.heap.peek()?;
        if at > until {
            return None;
        }
        self.heap.pop();
        Some((at, event))
    }
}
