//! What stands in a partition's row, and what comes of it.

use super::{ColourNode, DoneAppend};
use crate::map::ColourMove;
use crate::terms::{
    AppendId, AppendTime, Colour, Content, Edge, MapVersion, NodePosition, Owner, PartitionId, RegionId,
    RestoreId, RowIndex,
};
use kernel::{Bytes, NodeId};

kernel::messages! {
    /// A command of the row.
    pub enum Command {
        /// Append to colours of this partition alone, or take a snapshot of them.
        1 => Append {
            /// Its name.
            id: AppendId,
            /// Its client has the answers to all numbers below.
            below: u64,
            /// The last time that its client has seen.
            seen: AppendTime,
            /// What.
            content: Content,
        },
        /// Propose a time for an append to several partitions (the paper's phase 1).
        2 => ProposeTime {
            /// Its name.
            id: AppendId,
            /// Its client has the answers to all numbers below.
            below: u64,
            /// The last time that its client has seen.
            seen: AppendTime,
            /// Who asks.
            owner: Owner,
            /// What, for all partitions.
            content: Content,
        },
        /// The time is this, the latest of all proposals (phase 2).
        3 => Fix {
            /// The append.
            id: AppendId,
            /// Who asks.
            owner: Owner,
            /// The time.
            at: AppendTime,
        },
        /// Somebody else works on it from now on; propose a time if none was proposed here.
        4 => TakeOver {
            /// The append.
            id: AppendId,
            /// At the partition that decides who takes over: from whom. None elsewhere.
            expected: Option<Owner>,
            /// Who.
            owner: Owner,
            /// What, for all partitions.
            content: Content,
        },
        /// All partitions have delivered it: forget how it came about.
        5 => CleanUp {
            /// The append.
            id: AppendId,
            /// Who asks.
            owner: Owner,
        },
        /// Drop a colour's nodes below a position.
        6 => Trim {
            /// The colour.
            colour: Colour,
            /// The first node to keep.
            before: NodePosition,
        },
        /// Let the clock be no less than this time's.
        7 => Raise {
            /// The time.
            seen: AppendTime,
        },
        /// From the head: forget users' clients of which no command from here on was.
        8 => ForgetClients {
            /// The index.
            used_below: RowIndex,
        },
        /// Several appends of one client role, each as if it came alone, in this order.
        9 => AppendMany {
            /// Which.
            appends: Vec<NamedAppend>,
        },
        /// From the head, once: there are several regions, and this is one of them.
        10 => JoinRegions {
            /// This one.
            own: RegionId,
            /// The others, in their order.
            others: Vec<RegionPartitions>,
        },
        /// From the head: what comes next of another region's partition.
        11 => CopyNodes {
            /// The region.
            region: RegionId,
            /// The partition there.
            partition: PartitionId,
            /// The page before went so far.
            after: AppendTime,
            /// This one goes so far.
            through: AppendTime,
            /// Nodes, in the order of their times.
            nodes: Vec<ShadowNode>,
            /// Logs whose first nodes were trimmed before this region was known there; none, if there are none.
            begins: Option<Vec<LogBegin>>,
        },
        /// From the head: a partition of another region has copied this one so far.
        12 => CopiedThrough {
            /// The region.
            region: RegionId,
            /// The partition there.
            partition: PartitionId,
            /// How far.
            through: AppendTime,
        },
        /// Put nodes of a backup behind those that the restore has put into a colour, out of view until it is opened.
        13 => Restore {
            /// The restore.
            restore: RestoreId,
            /// The colour, which has had no node in view.
            colour: Colour,
            /// The position of the first node.
            at: NodePosition,
            /// The colour begins there: what a restore has put into it before goes.
            begins: bool,
            /// The nodes, as they were.
            nodes: Vec<ColourNode>,
        },
        /// From the head: there is one more region, and trims wait for it from now on.
        14 => AddRegion {
            /// The region.
            region: RegionId,
            /// How many partitions it has.
            partitions: u16,
        },
        /// From the head: a region is gone for good. Nothing waits for it any more, and it does not come back.
        15 => RemoveRegion {
            /// The region.
            region: RegionId,
        },
        /// From the head: these colours leave. What is on its way to them ends, and nothing new begins.
        16 => SealColours {
            /// The move.
            begun: ColourMove,
        },
        /// From the head: a page of colours that come, out of view until they are here.
        17 => TakeColours {
            /// The move.
            begun: ColourMove,
            /// The page.
            page: MovePage,
        },
        /// From the head: the colours that were taken are here.
        18 => OwnColours {
            /// The move.
            id: MapVersion,
            /// By this version of the map.
            version: MapVersion,
        },
        /// From the head: the colours that were sealed are elsewhere.
        19 => ForgetColours {
            /// The move.
            id: MapVersion,
            /// By this version of the map.
            version: MapVersion,
        },
        /// From the head: the move came to nothing. What was sealed stays, what was taken goes.
        20 => KeepColours {
            /// The move.
            id: MapVersion,
            /// By this version of the map.
            version: MapVersion,
        },
    }
}

kernel::record! {
    /// A point of what moves: clients by their numbers and those of their appends, then nodes by colour and position.
    #[derive(Copy, Default, PartialOrd)]
    pub struct MovePoint {
        /// All clients are before.
        past_clients: bool,
        /// The client.
        client: u64,
        /// Its number.
        number: u64,
        /// The digest of what was appended.
        content: u64,
        /// The colour.
        colour: Colour,
        /// The position.
        position: NodePosition,
    }
}

kernel::record! {
    /// A page of what moves.
    pub struct MovePage {
        /// It begins here.
        at: MovePoint,
        /// The next one begins here; none: this is the last one.
        next: Option<MovePoint>,
        /// The clock of the partition that they leave, after they were sealed.
        clock: u64,
        /// What is remembered of users' clients.
        clients: Vec<MovedClient>,
        /// Nodes.
        chains: Vec<MovedChain>,
    }
}

kernel::record! {
    /// What is remembered of a client that may ask for an append again.
    pub struct MovedClient {
        /// The client.
        client: u64,
        /// It has the answers to all numbers below.
        below: u64,
        /// Its appends to the colours.
        done: Vec<DoneAppend>,
    }
}

kernel::record! {
    /// Nodes of a colour.
    pub struct MovedChain {
        /// The colour.
        colour: Colour,
        /// Its first node that is left.
        first: NodePosition,
        /// When its last node was delivered.
        last: AppendTime,
        /// The position of the first node here.
        at: NodePosition,
        /// The nodes.
        nodes: Vec<ColourNode>,
    }
}

kernel::record! {
    /// Another region.
    pub struct RegionPartitions {
        /// The region.
        region: RegionId,
        /// How many partitions it has.
        partitions: u16,
    }
}

kernel::record! {
    /// How far a partition of another region is copied, or has copied.
    #[derive(Copy)]
    pub struct StreamPoint {
        /// The region.
        region: RegionId,
        /// The partition there.
        partition: PartitionId,
        /// How far.
        at: AppendTime,
    }
}

kernel::record! {
    /// Where a region's log of a colour begins for who did not have what is before.
    #[derive(Copy)]
    pub struct LogBegin {
        /// The colour.
        colour: Colour,
        /// The number of its first node that is to be had.
        number: u64,
    }
}

kernel::record! {
    /// A node of another region, as far as it is in colours of one partition here.
    pub struct ShadowNode {
        /// The append.
        id: AppendId,
        /// When it was delivered there.
        at: AppendTime,
        /// All its colours.
        colours: Vec<Colour>,
        /// What it is in each colour of the partition.
        parts: Vec<ShadowPart>,
        /// One body for all parts, or one for each.
        bodies: Vec<Bytes>,
    }
}

kernel::record! {
    /// A node of another region, in one colour.
    pub struct ShadowPart {
        /// The colour.
        colour: Colour,
        /// Which node of that region's log; the first is 0.
        number: u64,
        /// What of other regions comes before it.
        edges: Vec<Edge>,
    }
}

kernel::record! {
    /// One of several appends.
    pub struct NamedAppend {
        /// The client role's name for its call.
        call: u64,
        /// What.
        append: Append,
    }
}

impl Command {
    /// The appends to this partition alone that it is.
    pub fn appends(&self) -> impl Iterator<Item = &Append> {
        let (one, many) = match self {
            Self::Append(append) => (Some(append), &[][..]),
            Self::AppendMany(many) => (None, &many.appends[..]),
            Self::ProposeTime(_)
            | Self::Fix(_)
            | Self::TakeOver(_)
            | Self::CleanUp(_)
            | Self::Trim(_)
            | Self::Raise(_)
            | Self::ForgetClients(_)
            | Self::JoinRegions(_)
            | Self::CopyNodes(_)
            | Self::CopiedThrough(_)
            | Self::Restore(_)
            | Self::AddRegion(_)
            | Self::RemoveRegion(_)
            | Self::SealColours(_)
            | Self::TakeColours(_)
            | Self::OwnColours(_)
            | Self::ForgetColours(_)
            | Self::KeepColours(_) => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().map(|named| &named.append))
    }

    /// How many commands it stands for.
    pub fn count(&self) -> usize {
        self.appends().count().max(1)
    }
}

kernel::record! {
    /// A command, and who is to be answered.
    pub struct RowEntry {
        /// The client role.
        origin: NodeId,
        /// Its name for its call.
        call: u64,
        /// The command.
        command: Command,
    }
}

kernel::record! {
    /// A node's place in one colour; of a snapshot, how far the colour goes.
    pub struct Placed {
        /// The colour.
        colour: Colour,
        /// The node's position, or the one after the snapshot's last node.
        position: NodePosition,
    }
}

kernel::messages! {
    /// What came of a command.
    pub enum Outcome {
        /// It is delivered.
        1 => Delivered {
            /// When.
            at: AppendTime,
            /// Where, in each colour of this partition.
            placed: Vec<Placed>,
        },
        /// A time is proposed; the same again for a command that is repeated.
        2 => Proposed {
            /// The time.
            at: AppendTime,
        },
        /// The time is known here, and others may go before.
        3 => Fixed {
            /// The time.
            at: AppendTime,
        },
        /// Somebody else works on it.
        4 => Held {
            /// Who.
            owner: Owner,
        },
        /// Its client had the answer, or said so: it is not executed again.
        5 => Forgotten {},
        /// The client uses its number for something else.
        6 => Conflict {},
        /// Nothing is known of it that could be fixed.
        7 => Unknown {},
        /// Nodes are dropped.
        8 => TrimmedTo {
            /// The first node that is left.
            first: NodePosition,
        },
        /// The colour does not go so far.
        9 => BeyondTail {
            /// The position after its last node.
            tail: NodePosition,
        },
        /// A colour of it is being restored, and takes nothing until that is over.
        10 => Restoring {},
        /// The nodes are behind those that the restore has put there.
        11 => RestoredTo {
            /// The position after the last one.
            tail: NodePosition,
        },
        /// A colour of it leaves this partition, and takes nothing until that is over.
        12 => Moving {},
        /// Its colours are not where who asks has them.
        13 => Elsewhere {
            /// By this version of the map, or a later one, they are elsewhere.
            version: MapVersion,
        },
    }
}

impl Outcome {
    /// The time that it reveals; the earliest one, if it reveals none.
    pub(crate) fn at(&self) -> AppendTime {
        match self {
            Self::Delivered(it) => it.at,
            Self::Proposed(it) => it.at,
            Self::Fixed(it) => it.at,
            Self::Held(_)
            | Self::Forgotten(_)
            | Self::Conflict(_)
            | Self::Unknown(_)
            | Self::TrimmedTo(_)
            | Self::BeyondTail(_)
            | Self::Restoring(_)
            | Self::RestoredTo(_)
            | Self::Moving(_)
            | Self::Elsewhere(_) => AppendTime::ZERO,
        }
    }
}

/// Who is to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommandOrigin {
    /// The client role.
    pub node: NodeId,
    /// Its name for its call.
    pub call: u64,
}

/// An answer to somebody.
#[derive(Clone, PartialEq, Debug)]
pub struct Answered {
    /// To whom.
    pub asker: CommandOrigin,
    /// What.
    pub outcome: Outcome,
    /// The command that brought it about.
    pub by: RowIndex,
}
