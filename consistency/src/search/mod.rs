//! Linearizability of any sequential object: Wing and Gong's search with Lowe's memo of (done set, state).
//!
//! Exponential only in what overlaps. Operations of unknown fate come after the others, only where they change the
//! state, and equal ones only in the order of their invocation: one that began earlier may stand wherever a later
//! one may. A budget makes the answer `Undecided`, never wrong.

mod budget;
mod events;
mod memo;
mod objects;
mod sparing;
mod unknown;

use crate::terms::{Fate, Process, Time};
use events::Events;
use memo::{Done, Memo};
use std::fmt;
use std::hash::Hash;
use unknown::Unknown;

pub use budget::SearchBudget;

pub use objects::{
    LogCall, LogModel, LogReply, LogState, Queue, QueueCall, QueueReply, ZnodeCall, ZnodeReply, Znodes,
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
    type Call: fmt::Debug + Clone + Eq + Hash;
    /// What it answers.
    type Reply: fmt::Debug + Clone + Eq + Hash;
    /// The state before the first operation.
    fn initial(&self) -> Self::State;
    /// The state after `call`, if `reply` is possible.
    fn step(
        &self,
        state: &Self::State,
        call: &Self::Call,
        reply: Option<&Self::Reply>,
    ) -> Option<Self::State>;

    /// A class of states outside of which `call`, its fate unknown, changes nothing; `None` if it may change any.
    /// The search looks at a call only in states of its class: a saving, never needed for a right answer.
    fn class_of_call(&self, _call: &Self::Call) -> Option<u64> {
        None
    }

    /// The class of `state`.
    fn class_of_state(&self, _state: &Self::State) -> u64 {
        0
    }
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
    // A yes of the sparing search is a yes; nothing else of it counts.
    if ops.iter().any(|op| op.fate == Fate::Unknown)
        && let Some(found) = Search::new(object, ops).run_sparing(budget)
    {
        return found;
    }
    Search::new(object, ops).run(budget)
}

/// What to try next from a partial order.
#[derive(Clone, Copy)]
enum Next {
    /// The event at this position of the list.
    Event(usize),
    /// The group of unknown calls at this position of the candidates, among the ones begun by the time given.
    Unknown(usize, Time),
}

/// One operation placed, and what to try when everything after it has failed.
struct Placed<S> {
    op: usize,
    before: S,
    resume: Next,
}

struct Search<'a, O: Object> {
    object: &'a O,
    ops: &'a [&'a Interval<O::Call, O::Reply>],
    events: Events,
    unknown: Unknown,
    done: Done,
    path: Vec<Placed<O::State>>,
    state: O::State,
    /// Answered operations that are not placed yet.
    waiting: usize,
    longest: Longest,
}

/// The longest legal order met, and the operation that nothing after it could answer.
struct Longest {
    ops: Vec<usize>,
    stuck: usize,
    /// So much of it is the present path.
    shared: usize,
}

impl Longest {
    fn on_dead_end<S>(&mut self, path: &[Placed<S>], stuck: usize) {
        if path.len() >= self.ops.len() {
            self.ops.truncate(self.shared);
            self.ops.extend(path[self.shared..].iter().map(|placed| placed.op));
            self.shared = path.len();
            self.stuck = stuck;
        }
    }

    fn on_turn_back(&mut self, path_len: usize) {
        self.shared = self.shared.min(path_len);
    }
}

impl<'a, O: Object> Search<'a, O> {
    fn new(object: &'a O, ops: &'a [&'a Interval<O::Call, O::Reply>]) -> Self {
        let events = Events::of(ops);
        Search {
            object,
            ops,
            unknown: Unknown::of(object, ops),
            done: Done::of(events.ranks()),
            events,
            path: Vec::new(),
            state: object.initial(),
            waiting: ops.iter().filter(|op| op.fate == Fate::Ok).count(),
            longest: Longest {
                ops: Vec::new(),
                stuck: ops.iter().position(|op| op.fate == Fate::Ok).unwrap_or(0),
                shared: 0,
            },
        }
    }

    fn run(mut self, budget: &mut SearchBudget) -> Found {
        let mut memo = Memo::new(budget.bytes);
        let mut next = Next::Event(self.events.first());
        while self.waiting > 0 {
            if !budget.step() {
                return Found::Undecided;
            }
            let (op, resume) = match next {
                Next::Event(event) => match self.events.call(event) {
                    Some(op) => (op, Next::Event(self.events.after(event))),
                    None => {
                        // All that is placed next is invoked before this answer.
                        let (stuck, until) = self.events.answer(event, self.ops);
                        self.longest.on_dead_end(&self.path, stuck);
                        next = Next::Unknown(0, until);
                        continue;
                    }
                },
                Next::Unknown(position, until) => {
                    let class = self.object.class_of_state(&self.state);
                    match self.unknown.candidate(class, position, until) {
                        Some((op, after)) => (op, Next::Unknown(after, until)),
                        None => {
                            memo.insert(&self.done, &self.unknown, &self.state);
                            let Some(resume) = self.turn_back() else {
                                let Longest { ops: longest, stuck, .. } = self.longest;
                                return Found::Violated { longest, stuck };
                            };
                            next = resume;
                            continue;
                        }
                    }
                }
            };
            next = if self.place(op, resume, &memo) { Next::Event(self.events.first()) } else { resume };
        }
        self.found()
    }

    fn found(&self) -> Found {
        Found::Holds(self.path.iter().map(|placed| placed.op).collect())
    }

    /// Places `op` if its answer is possible here and what then stands is not known to fail.
    fn place(&mut self, op: usize, resume: Next, memo: &Memo<O::State>) -> bool {
        let Interval { call, reply, fate, .. } = self.ops[op];
        let Some(after) = self.object.step(&self.state, call, reply.as_ref()) else { return false };
        let answered = *fate == Fate::Ok;
        if !answered && after == self.state {
            return false;
        }
        self.mark(op, answered);
        if memo.has(&self.done, &self.unknown, &after) {
            self.unmark(op, answered);
            return false;
        }
        if answered {
            self.events.lift(op);
        }
        self.path.push(Placed { op, before: std::mem::replace(&mut self.state, after), resume });
        true
    }

    /// Takes the last operation back; where to go on, if there was one.
    fn turn_back(&mut self) -> Option<Next> {
        let Placed { op, before, resume } = self.path.pop()?;
        self.longest.on_turn_back(self.path.len());
        self.state = before;
        let answered = self.ops[op].fate == Fate::Ok;
        if answered {
            self.events.unlift(op);
        }
        self.unmark(op, answered);
        Some(resume)
    }

    fn mark(&mut self, op: usize, answered: bool) {
        if answered {
            self.done.insert(op);
            self.waiting -= 1;
        } else {
            self.unknown.take(op);
        }
    }

    fn unmark(&mut self, op: usize, answered: bool) {
        if answered {
            self.done.remove(op);
            self.waiting += 1;
        } else {
            self.unknown.give_back(op);
        }
    }
}
