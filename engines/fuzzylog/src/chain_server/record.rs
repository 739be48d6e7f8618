//! What a chain server writes to its journal.

use crate::partition::command::RowEntry;
use crate::terms::{ChainEpoch, ChainJournal, RowIndex};

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
    }
}
