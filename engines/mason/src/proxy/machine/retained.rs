//! Operations that servers of shards may still ask for: until enough of them have what came of them in durable snapshots.

use super::snapshot::RETAINED_CHUNK;
use crate::order::{Number, Placed, Space};
use crate::proxy::delivery::Run;
use kernel::{Bytes, Encode, PageBudget, Recount};
use std::collections::{BTreeMap, VecDeque};

/// Runs by space and first number.
///
/// A mark divides what was retained before it from what came after, so that a capture of the machine can be completed later.
#[derive(Clone, Debug, Default)]
pub(super) struct Retained {
    /// Each with the number of the next mark when it came.
    runs: BTreeMap<(Space, Number), (Run, u64)>,
    bytes: usize,
    /// Bytes that came before each mark and after the one before it.
    before: VecDeque<usize>,
    /// The number of the first of those.
    first_mark: u64,
    next_mark: u64,
}

impl Retained {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = (Space, Number, Number)> {
        self.runs.values().map(|(run, _)| (run.space, run.first, run.end()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn clear(&mut self) {
        // Marks are not used again.
        let next_mark = self.next_mark;
        *self = Self { first_mark: next_mark, next_mark, ..Self::default() };
    }

    fn bytes_at(&mut self, mark: u64) -> &mut usize {
        let at = (mark - self.first_mark) as usize;
        if at >= self.before.len() {
            self.before.resize(at + 1, 0);
        }
        &mut self.before[at]
    }

    pub(super) fn insert(&mut self, run: Run) {
        let mark = self.next_mark;
        self.bytes += run.size();
        *self.bytes_at(mark) += run.size();
        if let Some((run, mark)) = self.runs.insert((run.space, run.first), (run, mark)) {
            self.bytes -= run.size();
            *self.bytes_at(mark) -= run.size();
        }
    }

    pub(super) fn recounts(&self) -> [Recount; 2] {
        let counted = self.runs.values().map(|(run, _)| run.size()).sum();
        [
            Recount::of("bytes of retained runs", self.bytes, counted),
            Recount::of("the same, by marks", self.before.iter().sum(), counted),
        ]
    }

    /// The number of the new mark.
    pub(super) fn mark(&mut self) -> u64 {
        self.next_mark += 1;
        self.next_mark - 1
    }

    /// Bytes that came before this mark and are here.
    pub(super) fn bytes_before(&self, mark: u64) -> usize {
        let marks = (mark + 1).saturating_sub(self.first_mark) as usize;
        self.before.iter().take(marks).sum()
    }

    pub(super) fn forget_below(&mut self, low_watermark: &Placed) {
        let Placed { space, number } = *low_watermark;
        // A run is one batch's: the few before the first that reaches further are all that go.
        while let Some((&key, (run, mark))) = self.runs.range((space, Number(0))..(space, number)).next()
            && (run.end() <= number || kernel::planted!(run_beyond_low_watermark_forgotten))
        {
            let (bytes, mark) = (run.size(), *mark);
            self.bytes -= bytes;
            *self.bytes_at(mark) -= bytes;
            self.runs.remove(&key);
        }
        while self.before.len() > 1 && self.before[0] == 0 {
            self.before.pop_front();
            self.first_mark += 1;
        }
    }

    /// `page_bytes` of what is there of a space from a number on, or one run, and whether there is more.
    pub(super) fn page_from(&self, from: &Placed, page_bytes: usize) -> (Vec<Run>, bool) {
        let Placed { space, number } = *from;
        let retained = |first, end| self.runs.range((space, first)..(space, end)).map(|(_, (run, _))| run);
        let reaches = retained(Number(0), number).next_back().filter(|run| run.end() > number);
        let (mut runs, mut page) = (Vec::new(), PageBudget::new(page_bytes));
        let mut lacking = reaches.into_iter().chain(retained(number, Number(u64::MAX))).peekable();
        while let Some(run) = lacking.next_if(|run| page.admits(run.size())) {
            runs.push(run.clone());
        }
        (runs, lacking.next().is_some())
    }

    /// What came before this mark and is here, in chunks of a snapshot of `page_bytes`, or of one run; one chunk at least.
    pub(super) fn chunks(&self, mark: u64, page_bytes: usize) -> VecDeque<Bytes> {
        let (mut chunks, mut page) = (VecDeque::new(), Vec::new());
        let mut budget = PageBudget::new(page_bytes);
        for (run, _) in self.runs.values().filter(|(_, came)| *came <= mark) {
            if !budget.admits(run.size()) {
                chunks.push_back(chunk_of(&std::mem::take(&mut page)));
                budget = PageBudget::new(page_bytes);
                budget.admits(run.size());
            }
            page.push(run.clone());
        }
        chunks.push_back(chunk_of(&page));
        chunks
    }
}

fn chunk_of(page: &Vec<Run>) -> Bytes {
    let mut chunk = vec![RETAINED_CHUNK];
    page.encode(&mut chunk);
    chunk.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Decode;

    fn run(space: u16, first: u64, count: u64) -> Run {
        Run { space: Space(space), first: Number(first), count, time: 0, rows: Bytes::from_static(b"rows") }
    }

    fn below(space: u16, number: u64) -> Placed {
        Placed { space: Space(space), number: Number(number) }
    }

    fn firsts(chunks: VecDeque<Bytes>) -> Vec<(u16, u64)> {
        let runs =
            chunks.into_iter().flat_map(|chunk| Vec::<Run>::decoded(&chunk.slice(1..)).expect("a page"));
        runs.map(|run| (run.space.0, run.first.0)).collect()
    }

    // A snapshot without what is needed still, and with a low watermark that hides it, leaves a server that lacks it nobody to ask.
    #[test]
    fn a_capture_is_completed_with_what_is_needed_still() {
        let (mut retained, size) = (Retained::default(), run(0, 1, 2).size());
        [run(0, 1, 2), run(1, 1, 2)].into_iter().for_each(|run| retained.insert(run));
        let first = retained.mark();
        retained.insert(run(0, 3, 2));
        let second = retained.mark();
        [run(0, 5, 2), run(1, 3, 2)].into_iter().for_each(|run| retained.insert(run));
        assert_eq!((retained.bytes_before(first), retained.bytes_before(second)), (2 * size, 3 * size));
        assert_eq!(firsts(retained.chunks(first, size)), [(0, 1), (1, 1)]);
        retained.forget_below(&below(0, 2));
        assert_eq!(retained.bytes_before(first), 2 * size, "half of a run is needed");
        retained.forget_below(&below(0, 5));
        assert_eq!((retained.bytes_before(first), retained.bytes_before(second)), (size, size));
        assert_eq!(firsts(retained.chunks(second, size)), [(1, 1)]);
        retained.forget_below(&below(1, 3));
        assert_eq!((retained.bytes_before(first), retained.bytes_before(second)), (0, 0));
        assert_eq!(
            (retained.bytes(), firsts(retained.chunks(u64::MAX, size))),
            (2 * size, vec![(0, 5), (1, 3)])
        );
        let third = retained.mark();
        assert_eq!(retained.bytes_before(third), 2 * size);
        retained.clear();
        assert_eq!((retained.bytes(), retained.bytes_before(third)), (0, 0));
        retained.insert(run(0, 7, 1));
        assert_eq!(retained.bytes_before(third), 0, "it came later");
        assert_eq!(retained.bytes_before(retained.next_mark), size);
    }
}
