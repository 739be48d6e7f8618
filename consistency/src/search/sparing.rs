//! A first search that uses as few calls of unknown fate as it can.
//!
//! A search that explains every dead end by them soon lacks the ones that really took effect, and fails far from the
//! mistake. So the orders of a few rounds of overlapping calls are all tried with as many unknown calls as were needed
//! so far, and only then with one more. It never looks further back, so what it misses the whole search must find.

use super::memo::Memo;
use super::{Found, Next, Object, Search, SearchBudget};
use crate::terms::Time;

/// A dead end is looked at again from this many times the overlapping calls before it.
const ROUNDS: usize = 3;
/// Unknown calls that one dead end may take.
const TAKEN_MAX: usize = 3;
/// Steps that one dead end may take.
const STEPS_MAX: u64 = 1_000_000;

/// The answer that no order could give yet, and what was spent on it.
struct DeadEnd {
    answer: Option<(Time, usize)>,
    /// Operations before this one of the path stay where they are.
    low_watermark: usize,
    taken: usize,
    steps: u64,
}

impl<O: Object> Search<'_, O> {
    /// A legal order, if this finds one.
    pub(super) fn run_sparing(mut self, budget: &mut SearchBudget) -> Option<Found> {
        let window = ROUNDS * self.events.overlap_max().max(4);
        let mut memo = Memo::new(budget.bytes);
        let mut dead_end = DeadEnd { answer: None, low_watermark: 0, taken: 0, steps: 0 };
        let mut unknown_max = 0;
        let mut next = Next::Event(self.events.first());
        while self.waiting > 0 {
            if !budget.step() || dead_end.steps > STEPS_MAX {
                return None;
            }
            dead_end.steps += 1;
            let (op, resume) = match next {
                Next::Event(event) => match self.events.call(event) {
                    Some(op) => (op, Next::Event(self.events.after(event))),
                    None => {
                        let (stuck, until) = self.events.answer(event, self.ops);
                        if dead_end.answer < Some((until, stuck)) {
                            let low_watermark =
                                dead_end.low_watermark.max(self.path.len().saturating_sub(window));
                            dead_end =
                                DeadEnd { answer: Some((until, stuck)), low_watermark, taken: 0, steps: 0 };
                        }
                        next = Next::Unknown(0, until);
                        continue;
                    }
                },
                Next::Unknown(position, until) => {
                    let class = self.object.class_of_state(&self.state);
                    let may = self.unknown.placed_count() < unknown_max;
                    match self.unknown.candidate(class, position, until).filter(|_| may) {
                        Some((op, after)) => (op, Next::Unknown(after, until)),
                        None => {
                            memo.insert(&self.done, &self.unknown, &self.state);
                            if self.path.len() > dead_end.low_watermark {
                                next = self.turn_back()?;
                                continue;
                            }
                            if dead_end.taken == TAKEN_MAX {
                                return None;
                            }
                            dead_end.taken += 1;
                            unknown_max += 1;
                            memo = Memo::new(budget.bytes);
                            next = Next::Event(self.events.first());
                            continue;
                        }
                    }
                }
            };
            next = if self.place(op, resume, &memo) { Next::Event(self.events.first()) } else { resume };
        }
        Some(self.found())
    }
}
