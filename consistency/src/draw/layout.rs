//! Where operations stand in a picture: a lane for each process, and time as the order of calls and answers.
//!
//! Distances say nothing: two answers a microsecond or an hour apart stand side by side, so that a label always has
//! the room that it needs.

use crate::explain::operation_line;
use crate::history::{History, OpIndex};
use crate::terms::{Process, Time};
use std::collections::BTreeMap;

/// Points from the top of one lane to the next: a bar with its label beside it, and a gap for arrows.
pub(super) const LANE: usize = 56;
/// Where the bars of a lane begin below its top.
pub(super) const BAR_TOP: usize = 16;
/// How high a bar is.
pub(super) const BAR: usize = 18;
/// Room for the names of the processes.
pub(super) const NAMES: usize = 96;
const TOP: usize = 8;
/// Points from one moment to the next, at least.
const MOMENT: usize = 10;
/// The shortest bar.
const BAR_MIN: usize = 44;
/// Points that a letter of a label takes.
const LETTER: usize = 6;
const LABEL_MAX: usize = 40;

/// One operation in the picture.
pub(super) struct Bar {
    pub(super) op: OpIndex,
    pub(super) left: usize,
    pub(super) right: usize,
    /// The top of its lane.
    pub(super) top: usize,
    /// What stands behind it; empty where only a bar is drawn.
    pub(super) label: String,
}

/// Points between a bar and its label.
pub(super) const LABEL_GAP: usize = 5;

impl Bar {
    /// Where arrows meet it that go down, or up: each way on its own third.
    pub(super) fn anchor(&self, down: bool) -> usize {
        let third = (self.right - self.left) / 3;
        if down { self.right - third } else { self.left + third }
    }

    /// How far its label reaches.
    pub(super) fn label_end(&self) -> usize {
        self.right + LABEL_GAP + LETTER * self.label.chars().count()
    }
}

/// A picture's operations and measures.
pub(super) struct Layout {
    pub(super) bars: BTreeMap<OpIndex, Bar>,
    pub(super) lanes: BTreeMap<Process, usize>,
    pub(super) width: usize,
    pub(super) height: usize,
    /// Where each moment stands.
    moments: BTreeMap<Time, usize>,
}

impl Layout {
    /// The operations of `drawn`, right of `left`; `labelled` says which have their label.
    pub(super) fn of(
        history: &History,
        drawn: &[OpIndex],
        left: usize,
        labelled: impl Fn(OpIndex) -> bool,
    ) -> Layout {
        let operation = |op: &OpIndex| &history.operations()[op.at()];
        let mut lanes: BTreeMap<Process, usize> = drawn.iter().map(|op| (operation(op).process, 0)).collect();
        lanes.values_mut().enumerate().for_each(|(at, top)| *top = TOP + LANE * at);
        // (time, answers, operation): at one time calls stand before answers.
        let mut events: Vec<(Time, bool, OpIndex)> = drawn
            .iter()
            .flat_map(|op| [(operation(op).invoke, false, *op), (operation(op).complete, true, *op)])
            .collect();
        events.sort_unstable();
        let mut layout =
            Layout { bars: BTreeMap::new(), lanes, width: left, height: 0, moments: BTreeMap::new() };
        let mut lane_end: BTreeMap<Process, usize> = BTreeMap::new();
        let mut last = Time(0);
        for (time, answers, op) in events {
            let process = operation(&op).process;
            let apart = if time == last { 0 } else { MOMENT };
            last = time;
            let mut at = layout.width + apart;
            if answers {
                if let Some(bar) = layout.bars.get_mut(&op) {
                    at = at.max(bar.left + BAR_MIN);
                    bar.right = at;
                    let end = lane_end.entry(process).or_default();
                    *end = (*end).max(bar.label_end());
                }
            } else {
                at = at.max(lane_end.get(&process).map_or(0, |end| end + MOMENT));
                let label = if labelled(op) { label(history, op) } else { String::new() };
                let top = layout.lanes[&process];
                let bar = Bar { op, left: at, right: at + BAR_MIN, top, label };
                // Operations of one process that overlap (pipelined ones) keep their labels apart, too.
                lane_end.insert(process, bar.label_end());
                layout.bars.insert(op, bar);
            }
            layout.moments.insert(time, at);
            layout.width = at;
        }
        layout.width = layout.bars.values().map(Bar::label_end).max().unwrap_or(left) + 16;
        layout.height = TOP + LANE * layout.lanes.len() + 8;
        layout
    }

    /// Where a time stands: at the last moment that is not later.
    pub(super) fn x(&self, at: Time) -> usize {
        self.moments.range(..=at).next_back().map_or(NAMES, |(_, x)| *x)
    }
}

/// An operation in a few words.
fn label(history: &History, op: OpIndex) -> String {
    let line = operation_line(history, op);
    let what = line.split_once("): ").map_or("", |(_, what)| what);
    let text = format!("T{} {what}", op.0);
    if text.chars().count() <= LABEL_MAX {
        return text;
    }
    text.chars().take(LABEL_MAX - 1).chain(['…']).collect()
}
