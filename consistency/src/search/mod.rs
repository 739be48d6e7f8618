//! Linearizability of any sequential object: Wing and Gong's search with Lowe's memo of (done set, state).
//!
//! Exponential only in what overlaps. Operations of unknown fate are first left out altogether (a yes without
//! them is a yes), then tried where they change the state. A budget makes the answer `Undecided`, never wrong.

mod objects;

use crate::hash::FixedState;
use crate::terms::{Fate, Process, Time};
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

pub use objects::{
    Log, LogCall, LogReply, LogState, Queue, QueueCall, QueueReply, ZnodeCall, ZnodeReply, Znodes,
    linearize_log, linearize_parts,
};

/// A sequential object.
///
/// Contract: `step` is a pure function. It returns the state after `call` if the object in `state` may answer
/// `reply`, and `None` if it may not. With no reply (the fate is unknown) any answer is possible.
pub trait Object {
    /// What the object remembers.
    type State: Clone + Eq + Hash;
    /// What it is asked.
    type Call: fmt::Debug;
    /// What it answers.
    type Reply: fmt::Debug;
    /// The state before the first operation.
    fn initial(&self) -> Self::State;
    /// The state after `call`, if `reply` is possible.
    fn step(
        &self,
        state: &Self::State,
        call: &Self::Call,
        reply: Option<&Self::Reply>,
    ) -> Option<Self::State>;
}

/// One operation: a call, its interval, and what came of it.
#[derive(Clone, Debug)]
pub struct Interval<C, R> {
    /// Who called.
    pub process: Process,
    /// When it was invoked.
    pub invoke: Time,
    /// When it answered; [`Time::NEVER`] unless the fate is ok or fail.
    pub complete: Time,
    /// What became of it.
    pub fate: Fate,
    /// What was asked.
    pub call: C,
    /// What was answered; present exactly when the fate is ok.
    pub reply: Option<R>,
}

/// How much a search may use before it gives up with an honest "undecided".
#[derive(Clone, Copy, Debug)]
pub struct SearchBudget {
    /// Steps of the object, all partitions together.
    pub steps: u64,
    /// Remembered (set, state) pairs per partition.
    pub remembered_max: usize,
}

impl Default for SearchBudget {
    fn default() -> SearchBudget {
        SearchBudget { steps: 20_000_000, remembered_max: 4_000_000 }
    }
}

/// What a search found. Indices are positions in the slice that was searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A legal order exists; this is one.
    Holds(Vec<usize>),
    /// None exists. `longest` is the longest legal prefix met; `stuck` the operation no extension of it could answer.
    Violated {
        /// The longest legal prefix.
        longest: Vec<usize>,
        /// An operation that had to be placed next and could not.
        stuck: usize,
    },
    /// The budget ran out.
    Undecided,
}

/// Searches for a legal order of `ops` that respects their intervals (closed: equal times are concurrent).
/// Operations with fate fail are ignored. `budget.steps` is lowered by what was used.
pub fn linearize<O: Object>(
    object: &O,
    ops: &[&Interval<O::Call, O::Reply>],
    budget: &mut SearchBudget,
) -> Found {
    let certain = run(object, ops, false, budget);
    let unknowns = ops.iter().any(|op| op.fate == Fate::Unknown);
    match certain {
        Found::Holds(_) => certain,
        Found::Violated { .. } if !unknowns => certain,
        Found::Violated { .. } | Found::Undecided => run(object, ops, true, budget),
    }
}

/// A doubly linked list of call and return events; lifting an operation unlinks both of its events.
struct Events {
    next: Vec<usize>,
    previous: Vec<usize>,
    /// (operation, is a call) of each event; event 0 is the head.
    what: Vec<(usize, bool)>,
    answer_of: Vec<usize>,
}

const HEAD: usize = 0;

impl Events {
    fn of<C, R>(ops: &[&Interval<C, R>], with_unknown: bool) -> Events {
        let mut order: Vec<(Time, bool, usize)> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            match op.fate {
                Fate::Ok => {
                    order.push((op.invoke, false, index));
                    order.push((op.complete, true, index));
                }
                Fate::Unknown if with_unknown => order.push((op.invoke, false, index)),
                Fate::Unknown | Fate::Fail => {}
            }
        }
        // At equal times calls come before returns, which makes the intervals closed.
        order.sort_unstable();
        let count = order.len() + 1;
        let mut what = vec![(usize::MAX, false)];
        let mut answer_of = vec![usize::MAX; ops.len()];
        for (position, (_, returns, index)) in order.iter().enumerate() {
            what.push((*index, !returns));
            if *returns {
                answer_of[*index] = position + 1;
            }
        }
        let next = (0..count).map(|event| (event + 1) % count).collect();
        let previous = (0..count).map(|event| (event + count - 1) % count).collect();
        Events { next, previous, what, answer_of }
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

    fn lift(&mut self, call: usize, op: usize) {
        self.unlink(call);
        if self.answer_of[op] != usize::MAX {
            self.unlink(self.answer_of[op]);
        }
    }

    fn unlift(&mut self, call: usize, op: usize) {
        if self.answer_of[op] != usize::MAX {
            self.relink(self.answer_of[op]);
        }
        self.relink(call);
    }
}

fn run<O: Object>(
    object: &O,
    ops: &[&Interval<O::Call, O::Reply>],
    with_unknown: bool,
    budget: &mut SearchBudget,
) -> Found {
    let mut events = Events::of(ops, with_unknown);
    let mut waiting = ops.iter().filter(|op| op.fate == Fate::Ok).count();
    let mut done = vec![0u64; ops.len().div_ceil(64)];
    let mut seen: HashSet<(Box<[u64]>, O::State), FixedState> = HashSet::with_hasher(FixedState);
    let mut path: Vec<(usize, O::State)> = Vec::new();
    let mut state = object.initial();
    let mut longest: Vec<usize> = Vec::new();
    let mut stuck = ops.iter().position(|op| op.fate == Fate::Ok).unwrap_or(0);
    let mut event = events.next[HEAD];
    while waiting > 0 {
        if budget.steps == 0 || seen.len() > budget.remembered_max {
            return Found::Undecided;
        }
        budget.steps -= 1;
        let (op, calls) = events.what[event];
        if event != HEAD && calls {
            let after = object.step(&state, &ops[op].call, ops[op].reply.as_ref());
            let useful = after.filter(|after| ops[op].fate == Fate::Ok || *after != state);
            if let Some(after) = useful {
                done[op / 64] |= 1 << (op % 64);
                if seen.insert((done.clone().into_boxed_slice(), after.clone())) {
                    path.push((event, std::mem::replace(&mut state, after)));
                    events.lift(event, op);
                    waiting -= usize::from(ops[op].fate == Fate::Ok);
                    event = events.next[HEAD];
                    continue;
                }
                done[op / 64] &= !(1 << (op % 64));
            }
            event = events.next[event];
            continue;
        }
        if path.len() >= longest.len() && event != HEAD {
            longest = path.iter().map(|(event, _)| events.what[*event].0).collect();
            stuck = op;
        }
        let Some((back, before)) = path.pop() else {
            return Found::Violated { longest, stuck };
        };
        let undone = events.what[back].0;
        state = before;
        done[undone / 64] &= !(1 << (undone % 64));
        events.unlift(back, undone);
        waiting += usize::from(ops[undone].fate == Fate::Ok);
        event = events.next[back];
    }
    Found::Holds(path.iter().map(|(event, _)| events.what[*event].0).collect())
}
