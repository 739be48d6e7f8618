//! The row as a server has it: what is behind its last snapshot.

use crate::partition::command::RowEntry;
use crate::terms::RowIndex;
use kernel::Position;
use std::collections::VecDeque;

/// Commands in order, and where the journal has them.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredRow {
    base: RowIndex,
    entries: VecDeque<(Position, RowEntry)>,
}

impl StoredRow {
    /// The first command that is left.
    pub(super) fn base(&self) -> RowIndex {
        self.base
    }

    /// The index of the next command.
    pub(super) fn length(&self) -> RowIndex {
        self.base.plus(self.entries.len() as u64)
    }

    fn offset(&self, index: RowIndex) -> Option<usize> {
        usize::try_from(index.0.checked_sub(self.base.0)?).ok()
    }

    pub(super) fn get(&self, index: RowIndex) -> Option<&RowEntry> {
        self.entries.get(self.offset(index)?).map(|(_, entry)| entry)
    }

    pub(super) fn last(&self) -> Option<&RowEntry> {
        self.entries.back().map(|(_, entry)| entry)
    }

    /// Commands from an index on, which is not below the base.
    pub(super) fn from(&self, index: RowIndex) -> impl Iterator<Item = &RowEntry> {
        let skipped = self.offset(index).unwrap_or(usize::MAX);
        self.entries.iter().skip(skipped).map(|(_, entry)| entry)
    }

    /// The journal's first record of a command from an index on.
    pub(super) fn record_from(&self, index: RowIndex) -> Option<Position> {
        self.entries.get(self.offset(index)?).map(|(record, _)| *record)
    }

    pub(super) fn push(&mut self, record: Position, entry: RowEntry) {
        self.entries.push_back((record, entry));
    }

    /// Takes a record back: it is behind those before, or replaces what was there. What is left of a trimmed journal begins anywhere.
    pub(super) fn restore(&mut self, record: Position, index: RowIndex, entry: RowEntry) {
        if index > self.length() {
            (self.base, self.entries) = (index, VecDeque::new());
        }
        self.truncate(index);
        if index == self.length() {
            self.push(record, entry);
        }
    }

    pub(super) fn truncate(&mut self, length: RowIndex) {
        if let Some(offset) = self.offset(length) {
            self.entries.truncate(offset);
        }
    }

    /// Drops commands below an index, or begins there if it has none so far.
    pub(super) fn drop_below(&mut self, index: RowIndex) {
        while self.base < index && self.entries.pop_front().is_some() {
            self.base = self.base.next();
        }
        self.base = self.base.max(index);
    }
}
