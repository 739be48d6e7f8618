//! What a director can be sent.

use crate::FuzzyMessage;
use crate::map::ColourMoves;
use crate::partition::command::MovePoint;
use crate::projection::ChainProjection;
use crate::terms::{ChainEpoch, ChainJournal, Colour, MapVersion, PartitionId, RowIndex};
use kernel::NodeId;
use paxos::Members;

kernel::record! {
    /// A copy in flight.
    pub struct CopyProgress {
        /// The epoch to which it belongs.
        epoch: ChainEpoch,
        /// Commands that its source had beyond it when it was asked last; none before the first answer.
        lacks: Option<u64>,
    }
}

kernel::record! {
    /// The members of the cluster that directors follow, as their log has them.
    pub struct FollowedMembers {
        /// Who.
        members: Members,
        /// Drawn by the leading director that has said so last: it knows by this that it knows all that was decided before.
        drawn: u64,
    }
}

kernel::record! {
    /// What a chain server knows about where colours are.
    #[derive(Copy)]
    pub struct MovesSeen {
        /// Its map's version.
        version: MapVersion,
        /// All colours of this move are there, on the disks of all servers of its chain.
        taken: Option<MapVersion>,
        /// The partition has no room for those of this one.
        has_no_room: Option<MapVersion>,
        /// A part of the colours of a move is there.
        coming: Option<ComingColours>,
    }
}

kernel::record! {
    /// How much of a move is there.
    #[derive(Copy, PartialOrd)]
    pub struct ComingColours {
        /// The move.
        id: MapVersion,
        /// What is not there begins here.
        next: MovePoint,
    }
}

kernel::messages! {
    /// Everything a director can be sent.
    pub enum DirectorIn in FuzzyMessage::Director {
        /// From a client: is there a projection of this epoch, or a later one?
        1 => WantProjection {
            /// The partition.
            partition: PartitionId,
            /// The epoch.
            epoch: ChainEpoch,
        },
        /// From a chain server: it is there.
        /// Promise: this is its journal, and it serves no epoch below the one it is sealed for.
        2 => Pong {
            /// The partition.
            partition: PartitionId,
            /// Its journal.
            journal: ChainJournal,
            /// It serves no epoch below.
            sealed: ChainEpoch,
            /// The last projection that it was notified of in this run.
            notified: ChainEpoch,
            /// It serves that.
            serves: bool,
            /// What it copies, if it does.
            copy: Option<CopyProgress>,
            /// Drawn at its start.
            run: u64,
            /// It has everything that was acknowledged before the epoch that it serves. None from one of an earlier version.
            has_all: Option<bool>,
            /// What it knows about where colours are. None from one of an earlier version.
            moves: Option<MovesSeen>,
        },
        /// From a chain server: it is sealed.
        /// Promise: it serves no epoch below this one, and its row does not change before it serves this one or copies again.
        3 => SealAck {
            /// The partition.
            partition: PartitionId,
            /// The epoch.
            epoch: ChainEpoch,
            /// Its journal.
            journal: ChainJournal,
            /// The length of its row.
            length: RowIndex,
            /// The epoch to which its copy belongs, if it copies.
            copy: Option<ChainEpoch>,
            /// The first command that its row has, also after a restart; an earlier version has all.
            base: Option<RowIndex>,
        },
        /// From this host's replica of the directors' log: this is decided.
        4 => ChangeDecided {
            /// All projections.
            projections: Vec<ChainProjection>,
            /// The members that are followed; none before the first change.
            followed: Option<FollowedMembers>,
            /// Where colours are; none while they are where the fixed spread has them.
            moves: Option<ColourMoves>,
        },
        /// From a director that does not lead: these are the members now.
        5 => FollowMembers {
            /// Who.
            members: Members,
        },
        /// From the director that leads: neither chains nor directors need a host but the members.
        6 => MembersSettled {
            /// Of this version.
            version: u64,
        },
        /// From a client: is there a map of this version, or a later one?
        7 => WantMap {
            /// The version.
            version: MapVersion,
        },
        /// From a client: change where colours are. The one that leads answers how it stands.
        8 => WantChange {
            /// The client's name for its call.
            call: u64,
            /// What.
            change: PlacementChange,
            /// The move that the client knows to have begun for it.
            begun: Option<MapVersion>,
            /// The client, if a director that does not lead has handed it on.
            client: Option<NodeId>,
        },
    }
}

kernel::messages! {
    /// What an operator wants of where colours are.
    pub enum PlacementChange {
        /// Move colours.
        1 => MoveColours {
            /// Which, each once, in their order.
            colours: Vec<Colour>,
            /// Where to.
            to: PartitionId,
        },
        /// One more partition.
        2 => MorePartitions {
            /// Its number, if that is known: asked for again, it is the same one. None: the first that is not used.
            added: Option<PartitionId>,
        },
        /// One partition less.
        3 => FewerPartitions {
            /// The one that is to go.
            removed: PartitionId,
        },
    }
}
