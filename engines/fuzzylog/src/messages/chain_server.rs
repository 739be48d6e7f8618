//! What a chain server can be sent.

use crate::FuzzyMessage;
use crate::map::ColourMoves;
use crate::partition::command::{Command, LogBegin, MovePage, MovePoint, RowEntry, ShadowNode};
use crate::projection::ChainProjection;
use crate::terms::{
    AppendTime, ChainEpoch, ChainJournal, Colour, Edge, MapVersion, NodePosition, PartitionId, RegionId,
    RowIndex, ScanPoint,
};
use kernel::{Bytes, NodeId};

kernel::inbox! {
    /// Everything a chain server can be sent.
    pub enum ChainServerIn {
        /// By clients.
        Client(FromClient),
        /// By servers of its region, of its partition mostly.
        Server(FromServer),
        /// By directors.
        Director(FromDirector),
        /// By servers of other regions.
        Region(FromRegion),
    }
}

kernel::messages! {
    /// What servers of different regions send each other.
    pub enum FromRegion of ChainServerIn::Region in FuzzyMessage::ChainServer {
        /// From the head of a partition: what comes next of yours?
        /// Promise: all servers of its chain have on their disks what it asks behind.
        30 => PullNodes {
            /// Which of its sources the head means; the same for all its questions of one run.
            session: u64,
            /// The region that asks.
            region: RegionId,
            /// The partition that asks.
            partition: PartitionId,
            /// How many partitions the region that asks has.
            partitions: u16,
            /// All up to here is copied.
            after: AppendTime,
        },
        /// From any server of the partition that was asked.
        /// Promise: all servers of its chain have the nodes on their disks.
        31 => NodesPulled {
            /// As asked.
            session: u64,
            /// As asked.
            after: AppendTime,
            /// This goes so far.
            through: AppendTime,
            /// The nodes, in the order of their times.
            nodes: Vec<ShadowNode>,
            /// Who is the head of the partition, if the server knows.
            head: Option<NodeId>,
            /// Logs whose first nodes were trimmed before the region that asks was known here; none, if there are none.
            begins: Option<Vec<LogBegin>>,
        },
    }
}

kernel::messages! {
    /// What a client sends a chain server.
    pub enum FromClient of ChainServerIn::Client in FuzzyMessage::ChainServer {
        /// To the head: order this.
        1 => Submit {
            /// The client's name for its call.
            call: u64,
            /// The client's epoch.
            epoch: ChainEpoch,
            /// What.
            command: Command,
        },
        /// To all servers of the chain: how far does a colour go? The tail answers it, and all of them say that the epoch is in force.
        2 => Sync {
            /// The client's name for its call.
            call: u64,
            /// The client's epoch.
            epoch: ChainEpoch,
            /// The colour.
            colour: Colour,
            /// The last time that the user has seen.
            seen: AppendTime,
        },
        /// To any server: nodes of a colour that are known to be there.
        3 => Play {
            /// The client's name for its call.
            call: u64,
            /// The colour.
            colour: Colour,
            /// The first node.
            from: NodePosition,
            /// The position after the last node.
            to: NodePosition,
        },
        /// To any server: how many nodes of each region's log are below a position that is known to be there?
        4 => CountLogs {
            /// The client's name for its call.
            call: u64,
            /// The colour.
            colour: Colour,
            /// The position.
            below: NodePosition,
        },
        /// To any server: behind which position are so many nodes of each region's log?
        5 => FindLogs {
            /// The client's name for its call.
            call: u64,
            /// The colour.
            colour: Colour,
            /// The regions, and how many nodes of each.
            counts: Vec<Edge>,
        },
        /// To any server: what does the partition have from one point to another, as of a time at which a snapshot was?
        6 => Scan {
            /// The client's name for its call.
            call: u64,
            /// The time.
            below: AppendTime,
            /// From here.
            from: ScanPoint,
            /// To here; none: to the end.
            to: Option<ScanPoint>,
            /// A digest is enough.
            digests: bool,
        },
        /// To the tail, in the strict order, when all others have said that the epoch is in force: how far does a colour go?
        7 => SyncThrough {
            /// The client's name for its call.
            call: u64,
            /// The client's epoch.
            epoch: ChainEpoch,
            /// The colour.
            colour: Colour,
            /// The last time that the user has seen.
            seen: AppendTime,
            /// The latest time that it may have been when the sync began: nothing at or before it may still be pending.
            begun: AppendTime,
            /// All of the row below is to be there.
            through: RowIndex,
        },
    }
}

kernel::messages! {
    /// What servers of a region send each other.
    pub enum FromServer of ChainServerIn::Server in FuzzyMessage::ChainServer {
        /// From the one before: commands of the row.
        10 => Forward {
            /// The epoch.
            epoch: ChainEpoch,
            /// The first command's index.
            first: RowIndex,
            /// The commands.
            entries: Vec<RowEntry>,
            /// All servers from the head to the sender take several appends in one command. None from one of an earlier version.
            takes_many: Option<bool>,
        },
        /// From the one before.
        /// Promise: all servers from the head to it have the row up to here on their disks.
        11 => DurableThrough {
            /// The epoch.
            epoch: ChainEpoch,
            /// The first index that this does not say of.
            through: RowIndex,
        },
        /// From the one behind: it has the row up to here, on its disk or not.
        12 => Received {
            /// The epoch.
            epoch: ChainEpoch,
            /// The length of its row.
            length: RowIndex,
            /// Regions of the row that neither it nor anybody behind it was started with; none, if there are none.
            without: Option<Vec<LeavingRegion>>,
        },
        /// From the tail.
        /// Promise: all servers have the row up to here on their disks.
        13 => StableThrough {
            /// The epoch.
            epoch: ChainEpoch,
            /// The first index that this does not say of.
            through: RowIndex,
        },
        /// From a joining server: the row from here on.
        14 => PullRow {
            /// The copy's name.
            session: u64,
            /// The epoch to which the copy belongs.
            epoch: ChainEpoch,
            /// The source's journal.
            journal: ChainJournal,
            /// Where.
            from: RowIndex,
        },
        /// From its source.
        15 => Pulled {
            /// The copy's name.
            session: u64,
            /// The first command's index.
            first: RowIndex,
            /// The commands.
            entries: Vec<RowEntry>,
            /// The length of the source's row.
            length: RowIndex,
            /// All servers have the row up to here.
            stable: RowIndex,
            /// The first command that the source has; what is before it is to be had as a snapshot. An earlier version has all.
            base: Option<RowIndex>,
        },
        /// From a joining server: a page of the state that stands for the beginning of the row.
        16 => PullState {
            /// The transfer's name.
            transfer: u64,
            /// Which page.
            index: u64,
            /// The epoch to which the copy belongs.
            epoch: ChainEpoch,
            /// The source's journal.
            journal: ChainJournal,
        },
        /// From its source.
        17 => SnapshotPage {
            /// The transfer's name.
            transfer: u64,
            /// The snapshot is of all commands below.
            below: RowIndex,
            /// Which page.
            index: u64,
            /// No other follows.
            last: bool,
            /// The page.
            bytes: Bytes,
        },
        /// From the head of the partition to which colours move: what comes next of them?
        18 => PullColours {
            /// The move.
            id: MapVersion,
            /// From here.
            at: MovePoint,
        },
        /// From any server of the partition that they leave.
        /// Promise: all servers of its chain have on their disks that nothing comes to them any more.
        19 => ColoursPulled {
            /// The move.
            id: MapVersion,
            /// What.
            page: MovePage,
        },
    }
}

kernel::record! {
    /// A region of the row that servers were started without.
    #[derive(Copy)]
    pub struct LeavingRegion {
        /// The region.
        region: RegionId,
        /// One of them was started with it before. Else they have older files than the region, perhaps.
        was_there: bool,
    }
}

kernel::messages! {
    /// What a director sends a chain server.
    pub enum FromDirector of ChainServerIn::Director in FuzzyMessage::ChainServer {
        /// Are you there?
        20 => Ping {},
        /// Serve no epoch below this one any more, and say how far your row goes.
        21 => SealChain {
            /// The epoch.
            epoch: ChainEpoch,
            /// Who has another journal is not meant. None in the first change, and from a director of an earlier version.
            journal: Option<ChainJournal>,
        },
        /// This is decided. Who is in it serves from now on.
        22 => Project {
            /// What.
            projection: ChainProjection,
            /// Who is not in it is to copy the chain.
            copies: bool,
        },
        /// This is decided about where colours are.
        23 => PlaceColours {
            /// What.
            moves: ColourMoves,
            /// The chain of the partition that the colours of the move in flight leave.
            sources: Vec<NodeId>,
        },
    }
}
