//! The row as a server has it in memory: from some command on, which all servers of its chain have.

use super::row::entry_bytes;
use crate::partition::command::RowEntry;
use crate::terms::RowIndex;
use kernel::Position;
use std::collections::VecDeque;

/// Commands in order, and where the journal has them.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredRow {
    base: RowIndex,
    entries: VecDeque<(Position, RowEntry)>,
    bytes: usize,
}

impl StoredRow {
    /// The first command that is there.
    pub(super) fn base(&self) -> RowIndex {
        self.base
    }

    /// The index of the next command.
    pub(super) fn length(&self) -> RowIndex {
        self.base.plus(self.entries.len() as u64)
    }

    /// Bytes of the commands that are there.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
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

    /// Commands from an index on; none if that one is gone.
    pub(super) fn from(&self, index: RowIndex) -> impl Iterator<Item = &RowEntry> {
        let skipped = self.offset(index).unwrap_or(usize::MAX);
        self.entries.iter().skip(skipped).map(|(_, entry)| entry)
    }

    /// Where the journal has the first command from an index on.
    pub(super) fn record_from(&self, index: RowIndex) -> Option<Position> {
        self.entries.get(self.offset(index)?).map(|(record, _)| *record)
    }

    pub(super) fn push(&mut self, record: Position, entry: RowEntry) {
        self.bytes += entry_bytes(&entry);
        self.entries.push_back((record, entry));
    }

    /// Takes a record back. It is behind those before, or replaces what was there. What is left of a trimmed journal may begin anywhere.
    pub(super) fn restore(&mut self, record: Position, index: RowIndex, entry: RowEntry) {
        if index < self.base || index > self.length() {
            self.begin_at(index);
        }
        self.truncate(index);
        self.push(record, entry);
    }

    /// Drops what is from an index on.
    pub(super) fn truncate(&mut self, length: RowIndex) {
        while self.length() > length
            && let Some((_, entry)) = self.entries.pop_back()
        {
            self.bytes -= entry_bytes(&entry);
        }
    }

    /// Drops the first command, if it is below an index.
    pub(super) fn drop_first(&mut self, below: RowIndex) -> bool {
        if self.base >= below {
            return false;
        }
        let Some((_, entry)) = self.entries.pop_front() else { return false };
        self.base = self.base.next();
        self.bytes -= entry_bytes(&entry);
        true
    }

    /// Without a command: the next one has this index.
    pub(super) fn begin_at(&mut self, index: RowIndex) {
        *self = Self { base: index, ..Self::default() };
    }
}
