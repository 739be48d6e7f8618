//! The backup: a second journal with the same entries.

use super::PrimaryBackup;
use super::messages::{BackupIn, Copy, Entry, Stored};
use kernel::{Cx, NodeId, Position, Role};
use std::convert::Infallible;

/// Has a copy of the log.
#[derive(Debug)]
pub struct Backup {
    primary: NodeId,
    /// How many entries it has.
    len: u64,
}

impl Backup {
    /// A backup with an empty journal.
    pub fn new(primary: NodeId) -> Self {
        Self { primary, len: 0 }
    }

    /// How many entries it has, durable or not: for invariants.
    pub fn entries(&self) -> u64 {
        self.len
    }
}

impl Role for Backup {
    type Family = PrimaryBackup;
    type In = BackupIn;
    type Timer = Infallible;
    type Record = Entry;

    fn restore(&mut self, _position: Position, _entry: Entry) {
        self.len += 1;
    }

    fn on_message(&mut self, from: NodeId, message: BackupIn, cx: &mut Cx<'_, Self>) {
        let BackupIn::Copy(Copy { index, entry }) = message;
        if from != self.primary {
            return cx.reject("a copy from a node that is not the primary");
        }
        if index == self.len {
            let position = cx.append(&entry);
            assert_eq!(position, Position(index), "an entry's index is its position in the journal");
            self.len += 1;
        }
        // Of an earlier entry, or of one with a gap before it: what is here already.
        cx.send_durable(from, Stored { below: self.len });
    }
}
