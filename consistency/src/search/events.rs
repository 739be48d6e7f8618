//! The calls and answers that are not placed yet, in the order of time.

use super::Interval;
use crate::terms::{Fate, Time};

/// A doubly linked list of call and answer events; lifting an operation unlinks both of its events.
pub(super) struct Events {
    next: Vec<usize>,
    previous: Vec<usize>,
    /// (operation, is a call) of each event; event 0 is the head.
    what: Vec<(usize, bool)>,
    /// (call, answer) of each operation.
    of: Vec<(usize, usize)>,
}

pub(super) const HEAD: usize = 0;

impl Events {
    /// Of the answered operations.
    pub(super) fn of<C, R>(ops: &[&Interval<C, R>]) -> Events {
        let answered = ops.iter().enumerate().filter(|(_, op)| op.fate == Fate::Ok);
        let mut order: Vec<(Time, bool, usize)> = answered
            .flat_map(|(index, op)| [(op.invoke, false, index), (op.complete, true, index)])
            .collect();
        // At equal times calls come before answers, which makes the intervals closed.
        order.sort_unstable();
        let count = order.len() + 1;
        let mut what = vec![(usize::MAX, false)];
        let mut of = vec![(HEAD, HEAD); ops.len()];
        for (position, (_, answers, index)) in order.iter().enumerate() {
            what.push((*index, !answers));
            let pair = &mut of[*index];
            *(if *answers { &mut pair.1 } else { &mut pair.0 }) = position + 1;
        }
        let next = (0..count).map(|event| (event + 1) % count).collect();
        let previous = (0..count).map(|event| (event + count - 1) % count).collect();
        Events { next, previous, what, of }
    }

    /// The rank of each operation by its call, for operations that have one.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let mut ranks = vec![u32::MAX; self.of.len()];
        let calls = self.what.iter().filter(|(_, calls)| *calls);
        calls.enumerate().for_each(|(rank, (op, _))| ranks[*op] = rank as u32);
        ranks
    }

    /// How many calls are open at one time, at most.
    pub(super) fn overlap_max(&self) -> usize {
        let mut open = 0usize;
        let counts = self.what[1..].iter().map(|(_, calls)| {
            open = if *calls { open + 1 } else { open - 1 };
            open
        });
        counts.max().unwrap_or(0)
    }

    pub(super) fn first(&self) -> usize {
        self.next[HEAD]
    }

    pub(super) fn after(&self, event: usize) -> usize {
        self.next[event]
    }

    /// The operation whose call this is, if it is one.
    pub(super) fn call(&self, event: usize) -> Option<usize> {
        let (op, calls) = self.what[event];
        (event != HEAD && calls).then_some(op)
    }

    /// The operation whose answer this is, and when it came.
    pub(super) fn answer<C, R>(&self, event: usize, ops: &[&Interval<C, R>]) -> (usize, Time) {
        // The list holds the answer of every call it holds, so it never ends before one while any is left.
        debug_assert_ne!(event, HEAD, "calls without answers are not in the list");
        let (op, _) = self.what[event];
        (op, ops[op].complete)
    }

    pub(super) fn lift(&mut self, op: usize) {
        let (call, answer) = self.of[op];
        self.unlink(call);
        self.unlink(answer);
    }

    /// Undoes the last `lift` that is not undone, which must have been of `op`.
    pub(super) fn unlift(&mut self, op: usize) {
        let (call, answer) = self.of[op];
        self.relink(answer);
        self.relink(call);
    }

    fn unlink(&mut self, event: usize) {
        let (before, after) = (self.previous[event], self.next[event]);
        self.next[before] = after;
        self.previous[after] = before;
    }

    fn relink(&mut self, event: usize) {
        let (before, after) = (self.previous[event], self.next[event]);
        self.next[before] = event;
        self.previous[after] = event;
    }
}
