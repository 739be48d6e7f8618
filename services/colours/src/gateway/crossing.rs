//! What users carry from one region to another: a snapshot is named in the one, and waited for in the other (the paper's proxies, section
//! 4.3).
//!
//! ```text
//! user                 gateway in ohio                user                 gateway in tokyo
//!   | NameSnapshot           |                          | AwaitSnapshot           |
//!   |----------------------->| CountLogs, each colour   |------------------------>| FindLogs, each colour
//!   |<-------- SnapshotNamed |                          |    again each LOOK_EVERY, until all are found
//!   |                                                   |<-------- SnapshotIsHere |
//! ```

use super::{Caller, ColourGateway, Work};
use crate::names::colours_of;
use fuzzylog::{
    AppendTime, Colour, CountLogsCall, Edge, FindLogsCall, FuzzyRequest, FuzzyResponse, NodePosition,
};
use kernel::{Bytes, Cx, Instant};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::fuzzylog::{
    COLOURS_MAX, FuzzyFailure, NameSnapshot, SnapshotId, SnapshotIsHere, SnapshotNamed, WAIT_MS_MAX,
};

/// Snapshots that are looked for in one turn.
const LOOKED_FOR_PER_TURN: usize = 64;

/// What of a snapshot's colours is known so far.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    seen: AppendTime,
    colours: Vec<(String, NodePosition, Option<Vec<Edge>>)>,
}

/// A colour of a snapshot that is looked for.
#[derive(Clone, Debug)]
struct Sought {
    name: String,
    colour: Colour,
    counts: Vec<Edge>,
    below: Option<NodePosition>,
}

/// A snapshot that is looked for.
#[derive(Clone, Debug)]
pub(super) struct Seeking {
    seen: AppendTime,
    colours: Vec<Sought>,
    /// Questions without an answer.
    asked: usize,
    until: Instant,
}

/// Calls whose snapshots are not here yet; where the next turn begins.
#[derive(Clone, Default, Debug)]
pub(super) struct Awaited {
    calls: BTreeSet<u64>,
    next: u64,
}

impl Awaited {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn forget(&mut self, call: u64) {
        self.calls.remove(&call);
    }

    fn turn(&mut self) -> Vec<u64> {
        let ahead = self.calls.range(self.next..).chain(self.calls.range(..self.next));
        let turn: Vec<u64> = ahead.take(LOOKED_FOR_PER_TURN).copied().collect();
        self.next = turn.last().map_or(0, |last| last + 1);
        turn
    }
}

fn name_of(colour: &Bytes) -> String {
    String::from_utf8_lossy(colour).into_owned()
}

impl ColourGateway {
    pub(super) fn on_name_snapshot(&mut self, caller: Caller, call: NameSnapshot, cx: &mut Cx<'_, Self>) {
        let NameSnapshot { seen: given, colours: names, tails, .. } = call;
        let Some(seen) = self.time_seen(given, caller, cx) else { return };
        let Ok(colours) = colours_of(&names) else { return caller.fail(FuzzyFailure::OneDigest, cx) };
        let of = names.iter().map(name_of).zip(tails);
        if self.regions.is_none() {
            let id = SnapshotId { seen: given, tails: of.collect(), across: None };
            return answer_named(caller, &id, cx);
        }
        let named = of.map(|(name, tail)| (name, NodePosition(tail), None)).collect();
        let work = Work::Name(Naming { seen, colours: named });
        let number = self.begin(caller, seen, work, Duration::ZERO, cx);
        for (index, colour) in colours.into_iter().enumerate() {
            let Some(Work::Name(naming)) = self.work(number) else { return };
            let below = naming.colours[index].1;
            self.ask(number, index, FuzzyRequest::CountLogs(CountLogsCall { colour, below }), cx);
        }
    }

    /// How much of each region's log one of the colours has.
    pub(super) fn on_counted(
        &mut self,
        call: u64,
        index: usize,
        response: FuzzyResponse,
        cx: &mut Cx<'_, Self>,
    ) {
        let FuzzyResponse::LogsCounted { counts } = response else {
            return self.fail_by(call, &response, cx);
        };
        let Some(Work::Name(naming)) = self.work(call) else { return };
        if let Some((_, _, known)) = naming.colours.get_mut(index) {
            *known = Some(counts);
        }
        if naming.colours.iter().any(|(_, _, counts)| counts.is_none()) {
            return;
        }
        let Naming { seen, colours } = naming.clone();
        let counted =
            colours.into_iter().map(|(name, tail, counts)| (name, tail, counts.unwrap_or_default()));
        let id = self.regions.as_ref().map(|regions| regions.snapshot(seen, counted));
        if let (Some(pending), Some(id)) = (self.leave(call), id) {
            answer_named(pending.caller, &id, cx);
        }
    }

    pub(super) fn on_await_snapshot(
        &mut self,
        caller: Caller,
        text: &Bytes,
        wait_ms: u32,
        cx: &mut Cx<'_, Self>,
    ) {
        let id = std::str::from_utf8(text).ok().and_then(|text| text.parse::<SnapshotId>().ok());
        let Some(id) = id.filter(|id| id.tails.len() <= COLOURS_MAX) else {
            return caller.fail(FuzzyFailure::NoSnapshot, cx);
        };
        if id.across.is_none() {
            // It has positions of one region alone: this one's, or nobody knows what they are.
            let is_of_here = self.times.time_of(id.seen).is_ok();
            let is_known = self.regions.is_none() || id.seen != wire::fuzzylog::SeenTime::default();
            return match is_of_here && is_known {
                true => answer_here(caller, &id, cx),
                false => caller.fail(FuzzyFailure::OtherRegion, cx),
            };
        }
        let regions = self.regions.as_ref();
        let Some((regions, colours)) = regions.and_then(|it| Some((it, it.counts_of(&id)?))) else {
            return caller.fail(FuzzyFailure::NoSnapshot, cx);
        };
        let own = if regions.is_of_here(&id) { self.times.time_of(id.seen).ok() } else { None };
        let sought = |(name, colour, counts)| Sought { name, colour, counts, below: None };
        let (wait, seen) = (Duration::from_millis(wait_ms.min(WAIT_MS_MAX).into()), own.unwrap_or_default());
        let colours: Vec<Sought> = colours.into_iter().map(sought).collect();
        let work = Work::Await(Seeking { seen, colours, asked: 0, until: cx.now() + wait });
        let call = self.begin(caller, seen, work, wait, cx);
        self.seek(call, cx);
    }

    /// Asks for what is not found yet.
    fn seek(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(Work::Await(seeking)) = self.work(call) else { return };
        let left = (0..).zip(&seeking.colours).filter(|(_, it)| it.below.is_none());
        let questions: Vec<(usize, FindLogsCall)> = left
            .map(|(index, it)| (index, FindLogsCall { colour: it.colour, counts: it.counts.clone() }))
            .collect();
        if questions.is_empty() {
            return self.found_all(call, cx);
        }
        seeking.asked = questions.len();
        for (index, question) in questions {
            self.ask(call, index, FuzzyRequest::FindLogs(question), cx);
        }
    }

    /// Where what one of the colours has is, or that it is not here.
    pub(super) fn on_found(
        &mut self,
        call: u64,
        index: usize,
        response: FuzzyResponse,
        cx: &mut Cx<'_, Self>,
    ) {
        let FuzzyResponse::LogsFound { below, at } = response else {
            return self.fail_by(call, &response, cx);
        };
        let Some(Work::Await(seeking)) = self.work(call) else { return };
        seeking.asked = seeking.asked.saturating_sub(1);
        if let Some(sought) = seeking.colours.get_mut(index) {
            sought.below = below;
        }
        if below.is_some() {
            seeking.seen = seeking.seen.max(at);
        }
        if seeking.asked > 0 {
            return;
        }
        if seeking.colours.iter().all(|it| it.below.is_some()) {
            return self.found_all(call, cx);
        }
        if cx.now() >= seeking.until {
            cx.mark("gateway.waited_for_a_snapshot_in_vain");
            return self.fail(call, FuzzyFailure::NotHere, cx);
        }
        self.awaited.calls.insert(call);
        self.look_later(cx);
    }

    fn found_all(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(Work::Await(seeking)) = self.work(call) else { return };
        let Seeking { seen, colours, .. } = seeking.clone();
        let found = colours.into_iter().map(|it| (it.name, it.below.unwrap_or_default(), it.counts));
        let id = self.regions.as_ref().map(|regions| regions.snapshot(seen, found));
        if let (Some(pending), Some(id)) = (self.leave(call), id) {
            answer_here(pending.caller, &id, cx);
        }
    }

    /// Looks again for some of the snapshots that are waited for.
    pub(super) fn look_for_snapshots(&mut self, cx: &mut Cx<'_, Self>) {
        for call in self.awaited.turn() {
            self.awaited.forget(call);
            self.seek(call, cx);
        }
    }
}

fn answer_named(caller: Caller, id: &SnapshotId, cx: &mut Cx<'_, ColourGateway>) {
    let snapshot = Bytes::from(id.to_string().into_bytes());
    caller.answer(SnapshotNamed { id: caller.id(), snapshot }, cx);
}

fn answer_here(caller: Caller, id: &SnapshotId, cx: &mut Cx<'_, ColourGateway>) {
    let (seen, tails) = (id.seen, id.tails.values().copied().collect());
    let snapshot = Bytes::from(id.to_string().into_bytes());
    caller.answer(SnapshotIsHere { id: caller.id(), seen, tails, snapshot }, cx);
}
