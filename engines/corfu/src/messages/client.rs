//! What a client can be sent.

use crate::CorfuMessage;
use crate::projection::{Entry, Epoch, LogPosition, Projection};

kernel::messages! {
    /// Everything a client can be sent.
    pub enum ClientIn in CorfuMessage::Client {
        /// From the sequencer: this position is yours.
        /// Promise: it gives the position to nobody else.
        1 => Token {
            /// The call.
            id: u64,
            /// The sequencer's epoch.
            epoch: Epoch,
            /// The position.
            position: LogPosition,
        },
        /// From the sequencer: positions below are given away.
        2 => TailIs {
            /// The call.
            id: u64,
            /// The sequencer's epoch.
            epoch: Epoch,
            /// The next position.
            next: LogPosition,
        },
        /// From a storage server: it has your entry.
        /// Promise: its disk has the entry.
        3 => Written {
            /// The call.
            id: u64,
            /// The server's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
        },
        /// From a storage server: another entry is there.
        4 => Occupied {
            /// The call.
            id: u64,
            /// The server's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
            /// Which.
            entry: Entry,
        },
        /// From a storage server: what is there.
        5 => Found {
            /// The call.
            id: u64,
            /// The server's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
            /// What; none if nothing is.
            entry: Option<Entry>,
        },
        /// From a storage server or a sequencer: your epoch is over.
        6 => Sealed {
            /// The call.
            id: u64,
            /// The epoch to come, or in force.
            epoch: Epoch,
        },
        /// From an auxiliary: this is decided.
        7 => Installed {
            /// What.
            projection: Projection,
        },
        /// From a storage server: what was there is gone.
        8 => Gone {
            /// The call.
            id: u64,
            /// The server's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
            /// The first position that may be left there.
            resume_from: LogPosition,
        },
        /// From a storage server: positions are dropped as asked.
        /// Promise: its disk has that the entries are gone.
        9 => Trimmed {
            /// The call.
            id: u64,
            /// The server's epoch.
            epoch: Epoch,
        },
        /// From a storage server: how much there is.
        10 => Measured {
            /// The call.
            id: u64,
            /// The server's epoch.
            epoch: Epoch,
            /// The first position that may be left there.
            first: LogPosition,
            /// What its entries cost.
            bytes: u64,
        },
    }
}
