//! What users ask.

use super::{NewNode, NumberedBy, SeenTime};
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
        };
        *id = number;
        self
    }
}
