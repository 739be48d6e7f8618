//! What an auxiliary can be sent.

use crate::CorfuMessage;
use crate::projection::{Epoch, JournalId, LogPosition, Projection};
use kernel::NodeId;
use parts::Ballot;

kernel::record! {
    /// What an auxiliary has accepted for an epoch.
    pub struct Vote {
        /// In which ballot.
        ballot: Ballot,
        /// What.
        projection: Projection,
    }
}

kernel::record! {
    /// How a storage server stands.
    pub struct StorageStatus {
        /// Its journal.
        journal: JournalId,
        /// Drawn anew at every start.
        run: u64,
        /// The last projection that it was notified of in this run.
        reported: Epoch,
        /// What it copies, if it does.
        copied: Option<Copied>,
    }
}

kernel::record! {
    /// A copy in flight.
    pub struct Copied {
        /// The epoch whose projection has its source.
        epoch: Epoch,
        /// From whom.
        source: NodeId,
        /// Records that the source's journal had beyond the copy when it was asked last; none while older ones are compared.
        behind: Option<u64>,
    }
}

kernel::messages! {
    /// Everything an auxiliary can be sent.
    pub enum AuxiliaryIn in CorfuMessage::Auxiliary {
        /// From a client: is there a projection of this epoch, or a later one?
        1 => WantProjection {
            /// The epoch.
            epoch: Epoch,
        },
        /// From a storage server: it is there, and sealed for this epoch.
        2 => StoragePong {
            /// The epoch.
            epoch: Epoch,
            /// More about it.
            status: Option<StorageStatus>,
        },
        /// From a sequencer: it is there.
        3 => SequencerPong {
            /// The last epoch that it began to serve.
            began: Epoch,
            /// Whether it still does.
            serves: bool,
            /// Its journal.
            journal: Option<JournalId>,
        },
        /// From a storage server: it is sealed.
        /// Promise: it serves no epoch below this one.
        4 => SealAck {
            /// For this epoch.
            epoch: Epoch,
            /// The position after the last one that is written there.
            next: LogPosition,
            /// Its journal.
            journal: Option<JournalId>,
        },
        /// From a storage server: it is sealed for a later epoch than asked for.
        5 => Beyond {
            /// The epoch.
            epoch: Epoch,
        },
        /// From another auxiliary: vote in no ballot below this one on what follows `base`.
        6 => Prepare {
            /// The last projection that it knows to be decided.
            base: Projection,
            /// Its ballot.
            ballot: Ballot,
        },
        /// From another auxiliary: it will not.
        /// Promise: it votes in no ballot below this one.
        7 => Promise {
            /// Of which epoch.
            epoch: Epoch,
            /// The ballot promised.
            ballot: Ballot,
            /// What it has accepted before.
            accepted: Option<Vote>,
            /// Its journal.
            journal: Option<JournalId>,
        },
        /// From another auxiliary: accept this.
        8 => Accept {
            /// Its ballot, and what.
            vote: Vote,
        },
        /// From another auxiliary: it has.
        /// Promise: it has this vote for good.
        9 => Accepted {
            /// Of which epoch.
            epoch: Epoch,
            /// In which ballot.
            ballot: Ballot,
            /// Its journal.
            journal: Option<JournalId>,
        },
        /// From another auxiliary: it has promised more.
        10 => Refused {
            /// Of which epoch.
            epoch: Epoch,
            /// The ballot that it has promised.
            promised: Ballot,
        },
        /// From another auxiliary: this is decided.
        11 => Install {
            /// What.
            projection: Projection,
        },
        /// From another auxiliary: the last projection that it knows is of this epoch.
        12 => Hello {
            /// The epoch.
            epoch: Epoch,
            /// Its journal.
            journal: Option<JournalId>,
        },
        /// From a learner: it has everything that its source has, and the source is sealed.
        /// Promise: its disk has all that the source's has.
        13 => Whole {
            /// For this epoch.
            epoch: Epoch,
            /// The learner's journal.
            journal: JournalId,
            /// The source.
            source: NodeId,
        },
    }
}
