//! Answers that wait until what they reveal has passed, in the strict order.
//!
//! Who is answered, and begins something else, gives that a later time then: in whichever partition it is, and by whichever host's clock.

use super::{FuzzyClient, FuzzyClientTimer, FuzzyRefusal, FuzzyRequest, FuzzyResponse};
use crate::terms::AppendTime;
use kernel::{Cx, RequestId, Wall, planted};
use std::collections::BTreeMap;
use std::time::Duration;

/// What answers have waited for the time to pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassedWaits {
    /// How many have.
    pub count: u64,
    /// How long all of them together, as it was expected when they began.
    pub sum: Duration,
}

/// Answers, by the latest time that they reveal and in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Passing {
    waiting: BTreeMap<(AppendTime, u64), (RequestId, FuzzyResponse)>,
    /// Bytes of the pages among them.
    bytes: usize,
    next: u64,
    waits: PassedWaits,
}

impl Passing {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Those that wait, in a few words.
    pub(super) fn describe(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.keys().map(|(at, _)| format!("an answer until {at:?} has passed"))
    }
}

impl FuzzyClient {
    /// Since it started.
    pub fn passed_waits(&self) -> PassedWaits {
        self.passing.waits
    }

    /// In the strict order: nothing that reveals a time is begun by a clock that cannot be relied on, or by a user who has seen what an
    /// honest clock has not come to.
    pub(super) fn refusal_by_the_clock(&self, request: &FuzzyRequest, wall: Wall) -> Option<FuzzyRefusal> {
        let seen = request.seen()?;
        if self.parameters.order.is_strict() && !wall.usable {
            return Some(FuzzyRefusal::NoClock);
        }
        self.parameters.is_to_come(seen, wall).then_some(FuzzyRefusal::FromTheFuture)
    }

    /// Ends a call when what its answer reveals has surely passed.
    pub(super) fn end_when_passed(
        &mut self,
        call: u64,
        response: FuzzyResponse,
        reveals: AppendTime,
        cx: &mut Cx<'_, Self>,
    ) {
        let waits = self.parameters.order.is_strict()
            && !cx.wall().has_passed_micros(reveals.clock)
            && !planted!(answered_before_it_has_passed);
        let request = self.operations.get(&call).and_then(|operation| operation.request);
        let Some(request) = request.filter(|_| waits) else { return self.end(call, response, cx) };
        let bytes = response.page_bytes();
        if bytes > 0 && self.passing.bytes + bytes > self.parameters.calls_bytes_max {
            cx.mark("client.had_no_room_for_a_page_that_waits");
            return self.end(call, FuzzyResponse::Refused(FuzzyRefusal::Busy), cx);
        }
        self.take(call);
        self.of_all.remove(&request);
        cx.mark("client.waited_until_a_time_had_passed");
        let passing = &mut self.passing;
        passing.waits.count += 1;
        passing.waits.sum += cx.wall().until_passed_micros(reveals.clock);
        passing.bytes += bytes;
        passing.next += 1;
        passing.waiting.insert((reveals, passing.next), (request, response));
        self.set_tick(cx);
    }

    pub(super) fn answer_what_has_passed(&mut self, cx: &mut Cx<'_, Self>) {
        let wall = cx.wall();
        while let Some(first) = self.passing.waiting.first_entry() {
            if !wall.has_passed_micros(first.key().0.clock) {
                return;
            }
            let (request, response) = first.remove();
            self.passing.bytes -= response.page_bytes();
            cx.respond(request, response);
        }
    }

    /// It is called when it is to look after what is late, or before, when the first answer has passed. By a clock that cannot be relied on
    /// nobody knows when that is.
    pub(super) fn set_tick(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, wall) = (cx.now(), cx.wall());
        let first = self.passing.waiting.first_key_value().filter(|_| wall.usable);
        let passes = first.map(|((at, _), _)| wall.until_passed_micros(at.clock));
        let after = passes.map_or(self.ticks_at.since(now), |passes| passes.min(self.ticks_at.since(now)));
        cx.set_timer(FuzzyClientTimer::Tick, after.max(Duration::from_micros(1)));
    }
}
