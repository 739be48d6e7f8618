//! What a storage server can be sent.

use crate::CorfuMessage;
use crate::projection::{Entry, Epoch, JournalId, LogPosition, Projection};
use kernel::NodeId;

kernel::messages! {
    /// Everything a storage server can be sent.
    pub enum StorageIn in CorfuMessage::Storage {
        /// From a client: keep this, if nothing is there.
        1 => Write {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
            /// What.
            entry: Entry,
        },
        /// From a client: what is there?
        2 => Read {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
        },
        /// From an auxiliary: serve no epoch below this one any more, and say how far you are written.
        3 => Seal {
            /// The epoch.
            epoch: Epoch,
            /// The journal by which it is meant.
            journal: Option<JournalId>,
        },
        /// From an auxiliary: are you there?
        4 => Ping {},
        /// From a client: drop what is below a position.
        5 => Trim {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
            /// The first position to keep.
            before: LogPosition,
        },
        /// From a client: how much is there?
        6 => Measure {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
        },
        /// From an auxiliary: this is decided. A server that is in it serves from now on.
        7 => Project {
            /// What.
            projection: Projection,
            /// For one that is not in it: the chain to copy, if that has room.
            chain: Option<u32>,
        },
        /// From an auxiliary: your source is sealed; copy the rest, and say when you have it.
        8 => Finish {
            /// The epoch to come.
            epoch: Epoch,
            /// The learner's journal.
            journal: JournalId,
            /// Behind whom it is to be.
            source: NodeId,
        },
        /// From a learner to the server that it copies: this is what I have of these positions.
        9 => Compare {
            /// The copy's name.
            session: u64,
            /// The source's journal.
            journal: JournalId,
            /// The first of the positions.
            from: LogPosition,
            /// The first one behind them; none if all that follow are meant.
            to: Option<LogPosition>,
            /// Those that hold something, in order, and what.
            names: Vec<Named>,
        },
        /// From the source: this is what you lack, and what you have wrongly.
        10 => Compared {
            /// The copy's name.
            session: u64,
            /// As asked.
            from: LogPosition,
            /// How far this goes; none if there is nothing behind it.
            to: Option<LogPosition>,
            /// The first position that is left.
            first: LogPosition,
            /// Where the source's journal ends.
            end: u64,
            /// Positions where nothing is.
            absent: Vec<LogPosition>,
            /// Entries that the learner lacks, or has others for.
            entries: Vec<Placed>,
        },
        /// From a learner: what have you written since your journal was so long?
        11 => Follow {
            /// The copy's name.
            session: u64,
            /// The source's journal.
            journal: JournalId,
            /// Records.
            from: u64,
        },
        /// From the source: this.
        12 => Followed {
            /// The copy's name.
            session: u64,
            /// As asked.
            from: u64,
            /// How far this goes.
            to: u64,
            /// Where the source's journal ends.
            end: u64,
            /// The first position that is left.
            first: LogPosition,
            /// The epoch that the source serves, or waits to serve.
            epoch: Epoch,
            /// Whether it serves it already.
            serves: bool,
            /// What was written.
            entries: Vec<Placed>,
        },
    }
}

kernel::record! {
    /// An entry's name, as good as the entry: no writer uses a tag twice.
    pub struct Named {
        /// Where.
        position: LogPosition,
        /// Of an append: its writer, and the writer's name for it; none is junk.
        name: Option<Name>,
    }
}

kernel::record! {
    /// Which append.
    pub struct Name {
        /// The client.
        writer: NodeId,
        /// The client's name for it.
        tag: u64,
    }
}

kernel::record! {
    /// An entry and its position.
    pub struct Placed {
        /// Where.
        position: LogPosition,
        /// What.
        entry: Entry,
    }
}
