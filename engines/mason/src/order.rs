//! Positions in the multi-sequence: spaces, numbers, global sequence numbers (the paper's section 2.1).

use kernel::{Bytes, NodeId};
use smallvec::SmallVec;

kernel::number! {
    /// A sequence space; each shard of a service has its own.
    pub struct Space(u16);
}

kernel::number! {
    /// A position in one space. The first is 1; contiguous: every number gets exactly one operation, a no-op if need be.
    pub struct Number(u64);
}

kernel::number! {
    /// A position in the one order of all operations, drawn from a counter that every allocation of the sequencer advances. Where
    /// two operations share a space their global sequence numbers are ordered as their numbers; where one was answered before the other
    /// began, so are the global sequence numbers. Has holes, and outlives a sequencer: the next one starts above.
    pub struct Gsn(u64);
}

kernel::number! {
    /// Which proxy: a replicated group.
    pub struct Group(u16);
}

kernel::number! {
    /// The clock of a group: milliseconds that its leaders have counted, logged so that all replicas agree. Stands still while
    /// nobody leads.
    pub struct GroupTime(u64);
}

kernel::record! {
    /// One operation's position in one space.
    pub struct Placed {
        /// The space.
        space: Space,
        /// The number there.
        number: Number,
    }
}

/// A multi-sequence number; most are of one space.
pub type MultiNumber = SmallVec<[Placed; 1]>;

kernel::record! {
    /// An operation's position: its multi-sequence number, its global sequence number, and the time that its proxy saw.
    pub struct Order {
        /// Sorted by space, each once; never empty.
        numbers: MultiNumber,
        /// Its position among all operations.
        gsn: Gsn,
        /// The wall clock of the proxy that had it ordered, in milliseconds since 1970.
        time: u64,
    }
}

impl Order {
    /// Its number in `space`, if it has one there.
    pub fn number_in(&self, space: Space) -> Option<Number> {
        self.numbers.iter().find(|placed| placed.space == space).map(|placed| placed.number)
    }
}

kernel::record! {
    /// An operation on its way: who asks, by which name, for what.
    pub struct Operation {
        /// Who gets the answer.
        origin: NodeId,
        /// The origin's incarnation, larger than those before: one that restarts numbers its operations anew.
        incarnation: u64,
        /// Counts the origin's operations at this proxy, from 1, without gaps: they are admitted in this order, each once.
        tag: u64,
        /// What to do, in the service's encoding.
        body: Bytes,
    }
}

kernel::record! {
    /// A row of numbers of one space.
    pub struct Range {
        /// The space.
        space: Space,
        /// The first number.
        first: Number,
        /// How many.
        count: u64,
    }
}

impl Range {
    /// The numbers.
    pub fn numbers(&self) -> impl Iterator<Item = Number> + use<> {
        (self.first.0..self.first.0.saturating_add(self.count)).map(Number)
    }
}

kernel::record! {
    /// What the sequencer knew after an allocation: every operation with a global sequence number below `gsn` has, in each space, a number
    /// below the one given here. A server that has executed all those numbers has executed all those operations.
    pub struct ConsistentCut {
        /// The next global sequence number.
        gsn: Gsn,
        /// The next number of each space.
        next: Vec<Placed>,
    }
}

impl ConsistentCut {
    /// The next number of `space`.
    pub fn next_in(&self, space: Space) -> Option<Number> {
        self.next.iter().find(|placed| placed.space == space).map(|placed| placed.number)
    }
}
