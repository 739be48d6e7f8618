//! Which numbers have been assigned: a proxy's local view of the spaces (the paper's section 4.3).

use crate::order::{Number, Placed, Range, Space};
use kernel::{Decode, DecodeError, Encode, Reader};
use std::collections::BTreeMap;

/// The assigned numbers of every space: everything below a low watermark, and rows of numbers above it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    spaces: BTreeMap<Space, SpaceView>,
}

/// Invariant: rows do not touch each other and start above the low watermark.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SpaceView {
    /// Every number below is assigned, by some proxy.
    low_watermark: Number,
    /// First number of each row, and the one after its last.
    rows: BTreeMap<u64, u64>,
}

impl Default for SpaceView {
    fn default() -> Self {
        Self { low_watermark: Number(1), rows: BTreeMap::new() }
    }
}

impl View {
    /// Adds one number.
    pub fn insert(&mut self, placed: Placed) {
        self.insert_range(&Range { space: placed.space, first: placed.number, count: 1 });
    }

    /// Adds a row of numbers.
    pub fn insert_range(&mut self, range: &Range) {
        let space = self.spaces.entry(range.space).or_default();
        let (mut first, mut end) = (range.first.0, range.first.0.saturating_add(range.count));
        first = first.max(space.low_watermark.0);
        if first >= end {
            return;
        }
        if let Some((&before, &before_end)) = space.rows.range(..=first).next_back()
            && before_end >= first
        {
            (first, end) = (before, end.max(before_end));
            space.rows.remove(&before);
        }
        while let Some((&after, &after_end)) = space.rows.range(first..=end).next() {
            end = end.max(after_end);
            space.rows.remove(&after);
        }
        space.rows.insert(first, end);
    }

    /// True if the number is known to be assigned.
    pub fn contains(&self, placed: &Placed) -> bool {
        self.spaces.get(&placed.space).is_some_and(|space| {
            let row = space.rows.range(..=placed.number.0).next_back();
            placed.number < space.low_watermark || row.is_some_and(|(_, &end)| placed.number.0 < end)
        })
    }

    /// True if any number of the row is known to be assigned.
    pub fn intersects(&self, range: &Range) -> bool {
        let (first, end) = (range.first.0, range.first.0.saturating_add(range.count));
        self.spaces.get(&range.space).is_some_and(|space| {
            let row = space.rows.range(..end).next_back();
            first < end && (first < space.low_watermark.0 || row.is_some_and(|(_, &row_end)| row_end > first))
        })
    }

    /// Everything below `low_watermark` is assigned: single numbers below need not be known any more.
    pub fn collect(&mut self, low_watermark: &Placed) {
        let space = self.spaces.entry(low_watermark.space).or_default();
        if low_watermark.number <= space.low_watermark {
            return;
        }
        space.low_watermark = low_watermark.number;
        let mut above = space.rows.split_off(&low_watermark.number.0);
        if let Some((_, &end)) = space.rows.last_key_value()
            && end > low_watermark.number.0
            && !kernel::planted!(row_across_low_watermark_forgotten)
        {
            above.insert(low_watermark.number.0, end);
        }
        space.rows = above;
    }

    /// The low watermark of a space.
    pub fn low_watermark(&self, space: Space) -> Number {
        self.spaces.get(&space).map_or(Number(1), |space| space.low_watermark)
    }

    /// The number after the highest one assigned.
    pub fn end(&self, space: Space) -> Number {
        let Some(space) = self.spaces.get(&space) else { return Number(1) };
        let rows_end = space.rows.last_key_value().map_or(0, |(_, &end)| end);
        Number(rows_end.max(space.low_watermark.0))
    }

    /// How many of the numbers from `first` up to, but without, `end` are assigned by this view's own rows.
    pub fn count_between(&self, space: Space, first: Number, end: Number) -> u64 {
        let Some(space) = self.spaces.get(&space) else { return 0 };
        let rows = space.rows.iter().map(|(&from, &to)| {
            let (from, to) = (from.max(first.0), to.min(end.0));
            to.saturating_sub(from)
        });
        rows.sum()
    }

    /// Adds all that another view knows.
    pub fn merge(&mut self, other: &View) {
        for (&space, theirs) in &other.spaces {
            self.collect(&Placed { space, number: theirs.low_watermark });
            for (&first, &end) in &theirs.rows {
                self.insert_range(&Range { space, first: Number(first), count: end - first });
            }
        }
    }

    /// The numbers between the low watermark and the end that are not assigned.
    pub fn holes(&self) -> Vec<Range> {
        let mut holes = Vec::new();
        for (&space, view) in &self.spaces {
            let mut expected = view.low_watermark.0;
            for (&first, &end) in &view.rows {
                if first > expected {
                    holes.push(Range { space, first: Number(expected), count: first - expected });
                }
                expected = end;
            }
        }
        holes
    }

    /// How many rows are retained: the measure of its memory.
    pub fn rows(&self) -> usize {
        self.spaces.values().map(|space| space.rows.len()).sum()
    }
}

impl Encode for View {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.spaces.len() as u32).encode(out);
        for (space, view) in &self.spaces {
            space.encode(out);
            view.low_watermark.encode(out);
            let rows: Vec<(u64, u64)> = view.rows.iter().map(|(&first, &end)| (first, end)).collect();
            rows.encode(out);
        }
    }
}

impl Decode for View {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let mut view = Self::default();
        for _ in 0..u32::decode(input)? {
            let space = Space::decode(input)?;
            let low_watermark = Number::decode(input)?;
            view.collect(&Placed { space, number: low_watermark });
            view.spaces.entry(space).or_default();
            for (first, end) in Vec::<(u64, u64)>::decode(input)? {
                if first < low_watermark.0 || end <= first {
                    return Err(DecodeError::Invalid("view of a space"));
                }
                view.insert_range(&Range { space, first: Number(first), count: end - first });
            }
        }
        Ok(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SPACE: Space = Space(3);

    fn range(first: u64, count: u64) -> Range {
        Range { space: SPACE, first: Number(first), count }
    }

    fn placed(number: u64) -> Placed {
        Placed { space: SPACE, number: Number(number) }
    }

    // A view that joins rows wrongly would hide a hole or fill a number twice: compared with a plain set.
    #[test]
    fn a_view_is_the_set_it_stands_for() {
        let mut rng = kernel::Rng::seeded(7);
        for _ in 0..300 {
            let (mut view, mut set, mut low_watermark) = (View::default(), BTreeSet::new(), 1);
            for _ in 0..40 {
                let (first, count) = (1 + rng.index(60) as u64, 1 + rng.index(6) as u64);
                view.insert_range(&range(first, count));
                set.extend((first..first + count).filter(|&number| number >= low_watermark));
                let complete = (1..)
                    .find(|number| *number >= low_watermark && !set.contains(number))
                    .unwrap_or(low_watermark);
                if rng.index(8) == 0 {
                    low_watermark = complete;
                    view.collect(&placed(low_watermark));
                    set.retain(|&number| number >= low_watermark);
                }
                let holes: BTreeSet<u64> =
                    view.holes().iter().flat_map(Range::numbers).map(|n| n.0).collect();
                let end = set.last().map_or(low_watermark, |last| last + 1);
                let expected: BTreeSet<u64> =
                    (low_watermark..end).filter(|number| !set.contains(number)).collect();
                assert_eq!(holes, expected);
                assert_eq!(view.end(SPACE), Number(end));
                assert!(
                    (1..70).all(|n| view.contains(&placed(n)) == (n < low_watermark || set.contains(&n)))
                );
                let (from, count) = (1 + rng.index(60) as u64, rng.index(8) as u64);
                let touched = (from..from + count).any(|n| n < low_watermark || set.contains(&n));
                assert_eq!(view.intersects(&range(from, count)), touched);
                let between = set.range(10..30).count() as u64;
                assert_eq!(view.count_between(SPACE, Number(10), Number(30)), between);
            }
            let read = View::decoded(&view.encoded().into()).expect("what was just encoded");
            assert_eq!(read, view);
        }
    }

    // A sequencer merges the views of proxies that have collected up to different low watermarks.
    #[test]
    fn merged_views_know_what_each_knew() {
        let (mut low, mut high) = (View::default(), View::default());
        low.insert_range(&range(1, 4));
        low.insert_range(&range(9, 1));
        high.collect(&placed(5));
        high.insert_range(&range(6, 2));
        low.merge(&high);
        assert_eq!(low.holes(), [range(5, 1), range(8, 1)]);
        assert_eq!(low.low_watermark(SPACE), Number(5));
    }
}
