//! What a sequencer can be sent.

use crate::CorfuMessage;
use crate::projection::{Epoch, JournalId, LogPosition};

kernel::messages! {
    /// Everything a sequencer can be sent.
    pub enum SequencerIn in CorfuMessage::Sequencer {
        /// From a client: positions that follow one another.
        1 => Next {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
            /// How many.
            count: u32,
        },
        /// From a client: how many positions are given away?
        2 => Tail {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
        },
        /// From an auxiliary: serve this epoch.
        3 => Begin {
            /// The epoch.
            epoch: Epoch,
            /// The first position to give away.
            first: LogPosition,
            /// The journal by which it is meant: one that lost its disk does not know which epochs it has served.
            journal: Option<JournalId>,
        },
        /// From an auxiliary: are you there?
        4 => Ping {},
    }
}
