//! The arrows of a cycle: through the gaps between lanes, and beside the lanes where they pass several.

use super::layout::{BAR, BAR_TOP, Bar, LANE, Layout};
use crate::history::History;
use crate::terms::Process;
use crate::witness::Witness;
use std::collections::BTreeSet;

/// The radius of an arrow's number.
pub(super) const NUMBER: usize = 8;
/// From one arrow that passes lanes to the next.
const COLUMN: usize = 2 * NUMBER + 4;
/// From one arrow in a gap to the next.
const TRACK: usize = 5;
/// Arrows in one gap that have a track of their own.
const TRACKS: usize = (LANE - BAR - 8) / TRACK;

/// One arrow, with the number of its sentence.
pub(super) struct Arrow<'a> {
    pub(super) points: Vec<(usize, usize)>,
    pub(super) number: usize,
    pub(super) number_at: (usize, usize),
    pub(super) sentence: &'a str,
}

/// The room left of all bars that the arrows need.
pub(super) fn room(history: &History, witness: &Witness) -> usize {
    let processes = witness.cycle.iter().map(|reason| history.operations()[reason.before.at()].process);
    let lanes: BTreeSet<Process> = processes.collect();
    // With one or two lanes, none passes another.
    if lanes.len() <= 2 { 0 } else { COLUMN * (witness.cycle.len() + 1) }
}

/// The arrows of a cycle whose operations are all in the picture.
pub(super) fn of<'a>(layout: &Layout, witness: &'a Witness) -> Vec<Arrow<'a>> {
    let first = layout.bars.values().map(|bar| bar.left).min().unwrap_or(0);
    let mut tracks = vec![0; layout.lanes.len() + 1];
    let mut columns = 0;
    let mut arrows: Vec<Arrow<'a>> = Vec::new();
    for (index, reason) in witness.cycle.iter().enumerate() {
        let ends = (layout.bars.get(&reason.before), layout.bars.get(&reason.after));
        let (Some(from), Some(to)) = ends else { continue };
        let mut track = |gap: usize| {
            tracks[gap] += 1;
            TRACK * (tracks[gap] % TRACKS)
        };
        let points = if from.top == to.top {
            along(from, to, track(lane(from) + 1))
        } else if from.top.abs_diff(to.top) <= LANE {
            across(from, to)
        } else {
            columns += 1;
            let down = from.top < to.top;
            let gaps = if down { [lane(from) + 1, lane(to)] } else { [lane(from), lane(to) + 1] };
            beside(from, to, first.saturating_sub(COLUMN * columns), gaps.map(&mut track))
        };
        let taken: Vec<(usize, usize)> = arrows.iter().map(|arrow| arrow.number_at).collect();
        let number_at = clear_position(&points, layout, &taken);
        arrows.push(Arrow { points, number: index + 1, number_at, sentence: &reason.sentence });
    }
    arrows
}

fn lane(bar: &Bar) -> usize {
    bar.top / LANE
}

fn above(bar: &Bar) -> usize {
    bar.top + BAR_TOP
}

fn below(bar: &Bar) -> usize {
    bar.top + BAR_TOP + BAR
}

/// Within a lane, through the gap below it.
fn along(from: &Bar, to: &Bar, track: usize) -> Vec<(usize, usize)> {
    let (x1, x2, y) = (from.anchor(true), to.anchor(false), below(from) + 6 + track);
    vec![(x1, below(from)), (x1, y), (x2, y), (x2, below(to))]
}

/// To the next lane, through the gap between them.
fn across(from: &Bar, to: &Bar) -> Vec<(usize, usize)> {
    let down = from.top < to.top;
    let (y1, y2) = if down { (below(from), above(to)) } else { (above(from), below(to)) };
    vec![(from.anchor(down), y1), (to.anchor(down), y2)]
}

/// Past other lanes, left of all bars.
fn beside(from: &Bar, to: &Bar, column: usize, [leave, arrive]: [usize; 2]) -> Vec<(usize, usize)> {
    let down = from.top < to.top;
    let (x1, x2) = (from.anchor(down), to.anchor(down));
    let (y1, y4, y2, y3) = if down {
        (below(from), above(to), below(from) + 6 + leave, above(to) - 6 - arrive)
    } else {
        (above(from), below(to), above(from) - 6 - leave, below(to) + 6 + arrive)
    };
    vec![(x1, y1), (x1, y2), (column, y2), (column, y3), (x2, y3), (x2, y4)]
}

/// The point of a line, nearest to its middle, whose number hides no bar, no label and no other number; where there is
/// none, the one farthest from other numbers.
fn clear_position(points: &[(usize, usize)], layout: &Layout, taken: &[(usize, usize)]) -> (usize, usize) {
    let positions: Vec<(usize, usize)> = (0..=40)
        .map(|step| at(points, if step % 2 == 0 { 500 + 12 * step } else { 500 - 12 * step }))
        .collect();
    let nearest = |position: &(usize, usize)| {
        taken.iter().map(|other| distance_squared(*position, *other)).min().unwrap_or(usize::MAX)
    };
    let hides = |position: &(usize, usize)| layout.bars.values().any(|bar| covers(bar, *position));
    let clear =
        positions.iter().find(|position| !hides(position) && nearest(position) >= 4 * NUMBER * NUMBER);
    let best =
        || positions.iter().filter(|position| !hides(position)).max_by_key(|position| nearest(position));
    clear.or_else(best).copied().unwrap_or(positions[0])
}

/// Whether a number there would hide a part of the bar or its label; a little of the edge may be touched.
fn covers(bar: &Bar, (x, y): (usize, usize)) -> bool {
    let beside = x + NUMBER < bar.left || x > bar.label_end() + NUMBER;
    let clear = y + NUMBER <= above(bar) + 2 || y + 2 >= below(bar) + NUMBER;
    !beside && !clear
}

fn distance_squared(one: (usize, usize), other: (usize, usize)) -> usize {
    one.0.abs_diff(other.0).pow(2) + one.1.abs_diff(other.1).pow(2)
}

/// The point after so many thousandths of the length of a line.
fn at(points: &[(usize, usize)], thousandths: usize) -> (usize, usize) {
    let length = |pair: &[(usize, usize)]| distance_squared(pair[0], pair[1]).isqrt().max(1);
    let mut left = points.windows(2).map(length).sum::<usize>() * thousandths / 1000;
    for pair in points.windows(2) {
        let whole = length(pair);
        if left <= whole {
            let mixed = |from: usize, to: usize| (from * (whole - left) + to * left) / whole;
            return (mixed(pair[0].0, pair[1].0), mixed(pair[0].1, pair[1].1));
        }
        left -= whole;
    }
    points[points.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::super::layout::NAMES;
    use super::*;
    use crate::check::check;
    use crate::dice::Dice;
    use crate::history::Draft;
    use crate::model::Model;
    use crate::terms::{Time, Value};
    use crate::verdict::Verdict;

    /// Each of `count` transactions read what the next one wrote, before it was written; two share a process.
    fn ring(dice: &mut Dice, count: usize) -> History {
        let mut lanes: Vec<u64> = (0..count as u64).collect();
        for at in (1..count).rev() {
            lanes.swap(at, dice.below(at + 1));
        }
        let mut history = History::new();
        for (at, lane) in lanes.into_iter().enumerate() {
            let (process, late) = (lane / 2, lane % 2 * 1000);
            let (invoke, complete) = (late + dice.below(300) as u64, late + 400 + dice.below(300) as u64);
            let draft = Draft::new(Process(process), Time(invoke), Time(complete));
            let draft = draft.read(format!("key{}", (at + 1) % count), Value::Nil);
            history.add(draft.write(format!("key{at}"), at as i64));
        }
        history
    }

    #[test]
    fn nothing_of_a_cycle_of_ten_covers_another() {
        // Numbers and labels on top of each other are what nobody can read.
        let mut dice = Dice(11);
        for _ in 0..200 {
            let history = ring(&mut dice, 10);
            let verdict = check(&history, Model::Serializable).expect("a valid history");
            let Verdict::Violated(witness) = verdict else { panic!("a cycle of ten holds") };
            assert_eq!(witness.cycle.len(), 10);
            let layout =
                Layout::of(&history, &witness.operations, NAMES + room(&history, &witness), |_| true);
            assert!(layout.height < 600, "{} points do not fit one screen", layout.height);
            let bars: Vec<&Bar> = layout.bars.values().collect();
            for (at, bar) in bars.iter().enumerate() {
                for other in bars[..at].iter().filter(|other| other.top == bar.top) {
                    let apart = bar.label_end() < other.left || other.label_end() < bar.left;
                    assert!(apart, "{} and {} overlap", bar.label, other.label);
                }
            }
            let arrows = of(&layout, &witness);
            assert_eq!(arrows.len(), 10);
            for (at, arrow) in arrows.iter().enumerate() {
                let (x, y) = arrow.number_at;
                for bar in &bars {
                    assert!(!covers(bar, (x, y)), "number {} covers {}", arrow.number, bar.label);
                }
                for other in &arrows[..at] {
                    let (dx, dy) = (x.abs_diff(other.number_at.0), y.abs_diff(other.number_at.1));
                    let (one, two) = (arrow.number, other.number);
                    assert!(
                        dx * dx + dy * dy >= 12 * 12,
                        "{one} covers {two}: {:?} {:?}",
                        arrow.number_at,
                        other.number_at
                    );
                }
            }
        }
    }
}
