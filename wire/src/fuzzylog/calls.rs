//! What users ask.

use super::{NewNode, NodePoint, NumberedBy, SeenTime};
use kernel::Bytes;

kernel::messages! {
    /// Everything a user asks of the partially ordered log. Each call has the user's number for it. `seen` is the latest time that the
    /// user has of earlier answers: what it asks for is ordered behind.
    pub enum FuzzyCall {
        /// Appends nodes, each to all of its colours or to none. They have the numbers from `by.number` on.
        1 => AppendNodes {
            /// The user's number for this call.
            id: u64,
            /// What the user has seen.
            seen: SeenTime,
            /// By whom, and the number of the first node.
            by: NumberedBy,
            /// The nodes. They are not ordered among each other.
            nodes: Vec<NewNode>,
        },
        /// Finds out how far a colour goes, which is linearizable, and plays the first page from a position on.
        2 => SyncColour {
            /// The user's number for this call.
            id: u64,
            /// What the user has seen.
            seen: SeenTime,
            /// The colour.
            colour: Bytes,
            /// The position of the first node.
            from: u64,
            /// How long to wait for a node where there is none yet, in milliseconds; at most 30,000.
            wait_ms: u32,
        },
        /// Plays a page of what a sync or a snapshot has found.
        3 => PlayColour {
            /// The user's number for this call.
            id: u64,
            /// The colour.
            colour: Bytes,
            /// The position of the first node.
            from: u64,
            /// The position after the last node; not beyond what was found.
            to: u64,
        },
        /// Finds out how far several colours go, at one point of the order.
        4 => SnapshotColours {
            /// The user's number for this call.
            id: u64,
            /// What the user has seen.
            seen: SeenTime,
            /// By whom, and its number.
            by: NumberedBy,
            /// The colours, each once.
            colours: Vec<Bytes>,
        },
        /// Drops the nodes of a colour below a position. They stay in their other colours.
        5 => TrimColour {
            /// The user's number for this call.
            id: u64,
            /// The colour.
            colour: Bytes,
            /// The position of the first node that stays.
            before: u64,
        },
        /// Among several regions: appends nodes by one who has played so much of their colours.
        6 => AppendPlayed {
            /// The user's number for this call.
            id: u64,
            /// What the user has seen, in this region.
            seen: SeenTime,
            /// By whom, and the number of the first node.
            by: NumberedBy,
            /// The nodes. They are not ordered among each other.
            nodes: Vec<NewNode>,
            /// Of each node: how far the user has played each of its colours in this region, in their order.
            played: Vec<Vec<u64>>,
        },
        /// Names what the user has seen of colours, so that it may be carried to another region.
        7 => NameSnapshot {
            /// The user's number for this call.
            id: u64,
            /// What the user has seen.
            seen: SeenTime,
            /// The colours, each once.
            colours: Vec<Bytes>,
            /// The position after the last node of each.
            tails: Vec<u64>,
        },
        /// Waits until the region has all that a snapshot has.
        8 => AwaitSnapshot {
            /// The user's number for this call.
            id: u64,
            /// The snapshot's id, of whichever region, as text.
            snapshot: Bytes,
            /// How long to wait, in milliseconds; at most 30,000.
            wait_ms: u32,
        },
        /// Among several regions: drops the nodes of a colour below a position of this one.
        9 => TrimSeen {
            /// The user's number for this call.
            id: u64,
            /// What the user has seen: of the region whose position it is.
            seen: SeenTime,
            /// The colour.
            colour: Bytes,
            /// The position of the first node that stays.
            before: u64,
        },
        /// For a backup: finds out a time of all partitions. All that was acknowledged before the call is earlier.
        10 => CutColours {
            /// The user's number for this call.
            id: u64,
            /// By whom, and its number.
            by: NumberedBy,
        },
        /// For a backup: reads a page of what a partition had at a cut, by colour and position, or the digest of a part of it.
        11 => ScanNodes {
            /// The user's number for this call.
            id: u64,
            /// The partition.
            partition: u16,
            /// The cut's time.
            below: SeenTime,
            /// From here.
            from: NodePoint,
            /// To here; none: to the end.
            to: Option<NodePoint>,
            /// A digest is enough.
            digests: bool,
        },
        /// Puts nodes of a backup into a colour that has had none, out of view.
        12 => RestoreNodes {
            /// The user's number for this call.
            id: u64,
            /// The restore: not 0, and drawn at random.
            restore: u64,
            /// The colour, as the engine knows it, and the position of the first node.
            at: NodePoint,
            /// The colour begins there: what the restore has put into it before goes.
            begins: bool,
            /// The nodes, as a scan has them; at most 256 and 1 MiB.
            nodes: Vec<Bytes>,
        },
        /// Brings what a restore has put into colours into view, in all partitions at one time.
        13 => OpenRestored {
            /// The user's number for this call.
            id: u64,
            /// By whom, and its number.
            by: NumberedBy,
            /// The restore; 0: drops what any has put there.
            restore: u64,
        },
        /// For operators: moves a colour to another partition. Asked for again, it comes to the same.
        14 => MoveColour {
            /// The user's number for this call.
            id: u64,
            /// The colour.
            colour: Bytes,
            /// The partition.
            partition: u16,
        },
        /// For operators: adds a partition.
        15 => AddPartition {
            /// The user's number for this call.
            id: u64,
            /// Its number: asked for again, it comes to the same. None: the first that is not used; asked for again, that is another one.
            partition: Option<u16>,
        },
        /// For operators: moves the colours of a partition that was added away, and removes it. Asked for again, it comes to the same.
        16 => RemovePartition {
            /// The user's number for this call.
            id: u64,
            /// The partition.
            partition: u16,
        },
    }
}

impl FuzzyCall {
    /// The user's number for the call.
    pub fn id(&self) -> u64 {
        match self {
            Self::AppendNodes(call) => call.id,
            Self::SyncColour(call) => call.id,
            Self::PlayColour(call) => call.id,
            Self::SnapshotColours(call) => call.id,
            Self::TrimColour(call) => call.id,
            Self::AppendPlayed(call) => call.id,
            Self::NameSnapshot(call) => call.id,
            Self::AwaitSnapshot(call) => call.id,
            Self::TrimSeen(call) => call.id,
            Self::CutColours(call) => call.id,
            Self::ScanNodes(call) => call.id,
            Self::RestoreNodes(call) => call.id,
            Self::OpenRestored(call) => call.id,
            Self::MoveColour(call) => call.id,
            Self::AddPartition(call) => call.id,
            Self::RemovePartition(call) => call.id,
        }
    }

    /// The same call under another number of its user's.
    #[must_use]
    pub fn numbered(mut self, number: u64) -> Self {
        let id = match &mut self {
            Self::AppendNodes(call) => &mut call.id,
            Self::SyncColour(call) => &mut call.id,
            Self::PlayColour(call) => &mut call.id,
            Self::SnapshotColours(call) => &mut call.id,
            Self::TrimColour(call) => &mut call.id,
            Self::AppendPlayed(call) => &mut call.id,
            Self::NameSnapshot(call) => &mut call.id,
            Self::AwaitSnapshot(call) => &mut call.id,
            Self::TrimSeen(call) => &mut call.id,
            Self::CutColours(call) => &mut call.id,
            Self::ScanNodes(call) => &mut call.id,
            Self::RestoreNodes(call) => &mut call.id,
            Self::OpenRestored(call) => &mut call.id,
            Self::MoveColour(call) => &mut call.id,
            Self::AddPartition(call) => &mut call.id,
            Self::RemovePartition(call) => &mut call.id,
        };
        *id = number;
        self
    }
}
