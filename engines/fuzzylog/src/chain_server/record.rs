//! What a chain server writes to its journal.

use crate::partition::command::RowEntry;
use crate::terms::{ChainEpoch, ChainJournal, RowIndex};
use parts::SnapshotRecord;

kernel::messages! {
    /// A record of a chain server.
    pub enum ChainRecord {
        /// Its row has this command, behind those before.
        1 => Ordered {
            /// Its index.
            index: RowIndex,
            /// The command.
            entry: RowEntry,
        },
        /// It serves no epoch below.
        2 => SealedFor {
            /// The epoch.
            epoch: ChainEpoch,
        },
        /// It has begun to serve an epoch.
        3 => Serves {
            /// The epoch.
            epoch: ChainEpoch,
        },
        /// Its journal's name.
        4 => JournalName {
            /// The name.
            journal: ChainJournal,
        },
        /// Its row ends here; what was behind is not what its chain has.
        5 => CutBack {
            /// The row's length.
            length: RowIndex,
        },
        /// A part of a snapshot of its state.
        6 => SnapshotPart {
            /// The part.
            part: SnapshotRecord<RowIndex>,
        },
        /// It has applied the row up to here: all servers of its chain had that on their disks.
        7 => Applied {
            /// The first command that it may not have applied.
            through: RowIndex,
        },
        /// What is behind what it has applied is a copy of the row of an epoch that it does not serve.
        8 => Copies {
            /// The epoch.
            epoch: ChainEpoch,
        },
        /// It has lost a segment: what is before is of no use, and it begins as one without a disk.
        9 => Forgets {},
    }
}

impl From<SnapshotRecord<RowIndex>> for ChainRecord {
    fn from(part: SnapshotRecord<RowIndex>) -> Self {
        SnapshotPart { part }.into()
    }
}
