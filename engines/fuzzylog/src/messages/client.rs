//! What a client can be sent.

use crate::FuzzyMessage;
use crate::map::{ColourMoves, MoveFlaw, PartitionFlaw};
use crate::partition::command::Outcome;
use crate::partition::{ColourNode, ScanPage};
use crate::projection::ChainProjection;
use crate::terms::{
    AppendId, AppendTime, ChainEpoch, Colour, Content, Edge, MapVersion, NodePosition, Owner, PartitionId,
    RowIndex,
};
use kernel::{Decode, DecodeError, Encode, NodeId, Reader};

kernel::messages! {
    /// Everything a client can be sent.
    pub enum FuzzyClientIn in FuzzyMessage::Client {
        /// From a tail.
        /// Promise: all servers of the chain have the command on their disks.
        1 => CommandDone {
            /// The client's name for its call.
            call: u64,
            /// The partition.
            partition: PartitionId,
            /// What came of it.
            outcome: Outcome,
            /// In this epoch all servers of the chain take several appends in one command. None from one of an earlier version.
            takes_many_in: Option<ChainEpoch>,
        },
        /// From a head: it is too busy to order that now.
        2 => HeadBusy {
            /// The client's name for its call.
            call: u64,
            /// The partition.
            partition: PartitionId,
            /// The partition has as much as it may have: it will not be otherwise soon.
            is_full: bool,
        },
        /// From a server: it serves another epoch, or waits for one.
        3 => ServerSealed {
            /// The client's name for its call.
            call: u64,
            /// The partition.
            partition: PartitionId,
            /// It serves no epoch below.
            epoch: ChainEpoch,
        },
        /// From a server that is not the tail: the epoch was in force after the question.
        4 => EpochInForce {
            /// The client's name for its call.
            call: u64,
            /// The epoch.
            epoch: ChainEpoch,
        },
        /// From a tail: how far a colour goes.
        /// Promise: all servers of the chain have all of that on their disks.
        5 => Synced {
            /// The client's name for its call.
            call: u64,
            /// The epoch.
            epoch: ChainEpoch,
            /// The colour's first node that is left.
            first: NodePosition,
            /// The position after its last node.
            tail: NodePosition,
            /// When its last node was delivered.
            last: AppendTime,
        },
        /// From any server: nodes.
        /// Promise: all servers of the chain have them on their disks.
        6 => NodesPage {
            /// The client's name for its call.
            call: u64,
            /// The colour.
            colour: Colour,
            /// As asked.
            from: NodePosition,
            /// The first node that is left.
            first: NodePosition,
            /// Nodes in order, from the later of these two on.
            nodes: Vec<ColourNode>,
        },
        /// From a server: it has not so much of the colour yet.
        7 => NotThere {
            /// The client's name for its call.
            call: u64,
            /// As asked.
            from: NodePosition,
        },
        /// From a head: an append to several partitions is not going on. To the client beside it, and to those whose appends wait.
        8 => StuckAppend {
            /// The append.
            id: AppendId,
            /// Who works on it.
            owner: Owner,
            /// What it is.
            content: Content,
        },
        /// From a director, or from the chain server beside the client, which has it of one: this is decided.
        9 => ProjectionDecided {
            /// What.
            projection: ChainProjection,
        },
        /// From a tail: what came of appends that were sent together.
        /// Promise: all servers of the chain have them on their disks.
        10 => CommandsDone {
            /// The partition.
            partition: PartitionId,
            /// What came of each.
            outcomes: Vec<NamedOutcome>,
        },
        /// From the director beside it.
        11 => DirectorsMoved {
            /// Who directs.
            directors: Vec<NodeId>,
        },
        /// From any server: so many nodes of each region's log.
        /// Promise: all servers of the chain have them on their disks.
        12 => LogsCounted {
            /// The client's name for its call.
            call: u64,
            /// The colour's first node that is left. If the position that was asked for is below, nobody knows it any more.
            first: NodePosition,
            /// The regions with nodes there, in their order, and how many of each.
            counts: Vec<Edge>,
        },
        /// From any server: where they are.
        /// Promise: all servers of the chain have them on their disks.
        13 => LogsFound {
            /// The client's name for its call.
            call: u64,
            /// All of them are below; none while some are not there.
            below: Option<NodePosition>,
            /// When the last node before that was delivered, or a later time.
            at: AppendTime,
        },
        /// From any server: what is there.
        /// Promise: all servers of the chain have them on their disks.
        14 => Scanned {
            /// The client's name for its call.
            call: u64,
            /// What is there from where it was asked for on.
            page: ScanPage,
        },
        /// From any server: it has not come to the time of the snapshot yet.
        15 => ScanTooEarly {
            /// The client's name for its call.
            call: u64,
        },
        /// From a server that is not the tail, in the strict order: the epoch was in force after the question.
        16 => InForceThrough {
            /// The client's name for its call.
            call: u64,
            /// The epoch.
            epoch: ChainEpoch,
            /// The length of its row then.
            length: RowIndex,
        },
        /// From any server: the colour that was asked for is not here, or leaves.
        17 => ColourElsewhere {
            /// The client's name for its call.
            call: u64,
            /// By this version of the map, or a later one, it is elsewhere.
            version: MapVersion,
        },
        /// From a director, or from the chain server beside the client, which has it of one: this is decided.
        18 => ColoursPlaced {
            /// What.
            moves: ColourMoves,
        },
        /// From any server: colours came or left since the cut that was asked for.
        19 => ScanOutdated {
            /// The client's name for its call.
            call: u64,
        },
        /// From the director that leads: how a change of where colours are stands.
        20 => ChangeStands {
            /// The client's name for its call.
            call: u64,
            /// How.
            state: ChangeState,
        },
    }
}

kernel::messages! {
    /// How a change of where colours are stands.
    pub enum ChangeState {
        /// It is done.
        1 => ChangeDone {
            /// By this version of the map.
            version: MapVersion,
            /// The partition that was added or removed, or to which colours have moved.
            partition: PartitionId,
        },
        /// It is in flight, or waits for another one.
        2 => ChangeInFlight {
            /// The move that is in flight for it; none while it waits.
            id: Option<MapVersion>,
            /// The partition that is being added.
            partition: Option<PartitionId>,
        },
        /// It is refused.
        3 => ChangeRefused {
            /// Why.
            why: ChangeFlaw,
        },
    }
}

/// Why where colours are is not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeFlaw {
    /// A move cannot be.
    Move(MoveFlaw),
    /// A partition cannot be added or removed.
    Partition(PartitionFlaw),
    /// There are other regions, which copy partition by partition.
    AmongRegions,
    /// The move was taken back: a partition did not answer in time, or had no room.
    TakenBack,
}

/// All of them, by the numbers that they have on the wire.
const FLAWS: [ChangeFlaw; 12] = [
    ChangeFlaw::AmongRegions,
    ChangeFlaw::TakenBack,
    ChangeFlaw::Move(MoveFlaw::NoPartition),
    ChangeFlaw::Move(MoveFlaw::Colours),
    ChangeFlaw::Move(MoveFlaw::Scattered),
    ChangeFlaw::Move(MoveFlaw::TooManyMoved),
    ChangeFlaw::Move(MoveFlaw::OtherMove),
    ChangeFlaw::Move(MoveFlaw::Emptied),
    ChangeFlaw::Partition(PartitionFlaw::NoRoom),
    ChangeFlaw::Partition(PartitionFlaw::NoPartition),
    ChangeFlaw::Partition(PartitionFlaw::IsOfTheFirst),
    ChangeFlaw::Partition(PartitionFlaw::OtherOne),
];

impl Encode for ChangeFlaw {
    fn encode(&self, out: &mut Vec<u8>) {
        let number = FLAWS.iter().position(|it| it == self).unwrap_or_default();
        out.push(number as u8);
    }
}

impl Decode for ChangeFlaw {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let number = u8::decode(input)?;
        FLAWS.get(usize::from(number)).copied().ok_or(DecodeError::Invalid("flaw of a change"))
    }
}

kernel::record! {
    /// What came of one of several commands.
    pub struct NamedOutcome {
        /// The client's name for its call.
        call: u64,
        /// What.
        outcome: Outcome,
    }
}
