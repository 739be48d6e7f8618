//! What users are answered.

use super::{AppendedNode, NodeAt, NodeOrigin, NodePoint, PlayedNode, SeenTime};
use kernel::{Bytes, Decode, DecodeError, Encode, Reader};
use std::fmt;

kernel::messages! {
    /// Everything a user is answered. Each answer has the user's number of the call, and what the user has seen by now.
    pub enum FuzzyReply {
        /// To an append: every node is in all its colours, and on the disks of their chains.
        1 => AppendedNodes {
            /// The user's number of the call.
            id: u64,
            /// What the user has seen by now.
            seen: SeenTime,
            /// The nodes, in the order of the call.
            nodes: Vec<AppendedNode>,
        },
        /// To a sync or a play.
        2 => PlayedNodes {
            /// The user's number of the call.
            id: u64,
            /// What the user has seen by now.
            seen: SeenTime,
            /// The position of the first node.
            from: u64,
            /// The position after the colour's last node, as of the sync; as asked, of a play.
            tail: u64,
            /// Nodes, one position after the other: a page of them.
            nodes: Vec<PlayedNode>,
        },
        /// To a snapshot.
        3 => SnapshotTaken {
            /// The user's number of the call.
            id: u64,
            /// What the user has seen by now.
            seen: SeenTime,
            /// When it is of.
            at: SeenTime,
            /// The position after the last node of each colour, in the order of the call.
            tails: Vec<u64>,
        },
        /// To a trim.
        4 => TrimmedColour {
            /// The user's number of the call.
            id: u64,
            /// The position of the first node that is left.
            first: u64,
        },
        /// To a call that was not executed, or of which that is not known.
        5 => FuzzyFailed {
            /// The user's number of the call.
            id: u64,
            /// Why.
            why: FuzzyFailure,
            /// The first position that is left, of what was trimmed; the colour's end, of what is beyond; else 0.
            position: u64,
        },
        /// To a sync or a play, among several regions.
        6 => PlayedAcross {
            /// The user's number of the call.
            id: u64,
            /// What the user has seen by now.
            seen: SeenTime,
            /// The position of the first node.
            from: u64,
            /// The position after the colour's last node, as of the sync; as asked, of a play.
            tail: u64,
            /// Nodes, one position after the other: a page of them.
            nodes: Vec<PlayedNode>,
            /// The region that is played: positions are of it alone.
            region: Bytes,
            /// Where each of the nodes is from, in their order.
            origins: Vec<NodeOrigin>,
        },
        /// To one who names what it has seen.
        7 => SnapshotNamed {
            /// The user's number of the call.
            id: u64,
            /// The snapshot's id, as text.
            snapshot: Bytes,
        },
        /// To one who has waited for a snapshot: the region has all of it.
        8 => SnapshotIsHere {
            /// The user's number of the call.
            id: u64,
            /// What was seen with it, in this region.
            seen: SeenTime,
            /// All nodes that it has are below: a position of each of its colours, in the order of their names.
            tails: Vec<u64>,
            /// The same as a snapshot's id of this region, as text.
            snapshot: Bytes,
        },
        /// To a cut, and to an opening: it is done in all partitions.
        9 => ColoursCut {
            /// The user's number of the call.
            id: u64,
            /// When.
            at: SeenTime,
            /// How many partitions there are.
            partitions: u16,
            /// How many colours an opening has brought into view.
            opened: u64,
        },
        /// To a scan.
        10 => NodesScanned {
            /// The user's number of the call.
            id: u64,
            /// A page of nodes; none if a digest was asked for.
            nodes: Vec<NodeAt>,
            /// The digest of the page, or of what was asked for.
            digest: u64,
            /// Where to go on; none: that was all.
            next: Option<NodePoint>,
        },
        /// To one who restores: the nodes are there, out of view.
        11 => NodesRestored {
            /// The user's number of the call.
            id: u64,
            /// The position after the last one.
            tail: u64,
        },
        /// To an operator: colours are where they were to go, or the partition is there, or gone.
        12 => MapChanged {
            /// The user's number of the call.
            id: u64,
            /// The version of the map: how much was decided about where colours are.
            version: u64,
            /// The partition that was added or removed, or where the colours are.
            partition: u16,
        },
    }
}

impl FuzzyReply {
    /// The user's number of the call.
    pub fn id(&self) -> u64 {
        match self {
            Self::AppendedNodes(reply) => reply.id,
            Self::PlayedNodes(reply) => reply.id,
            Self::SnapshotTaken(reply) => reply.id,
            Self::TrimmedColour(reply) => reply.id,
            Self::FuzzyFailed(reply) => reply.id,
            Self::PlayedAcross(reply) => reply.id,
            Self::SnapshotNamed(reply) => reply.id,
            Self::SnapshotIsHere(reply) => reply.id,
            Self::ColoursCut(reply) => reply.id,
            Self::NodesScanned(reply) => reply.id,
            Self::NodesRestored(reply) => reply.id,
            Self::MapChanged(reply) => reply.id,
        }
    }

    /// What the user has seen by now, if the answer says so.
    pub fn seen(&self) -> Option<SeenTime> {
        match self {
            Self::AppendedNodes(reply) => Some(reply.seen),
            Self::PlayedNodes(reply) => Some(reply.seen),
            Self::SnapshotTaken(reply) => Some(reply.seen),
            Self::PlayedAcross(reply) => Some(reply.seen),
            Self::SnapshotIsHere(reply) => Some(reply.seen),
            Self::ColoursCut(reply) => Some(reply.at),
            Self::TrimmedColour(_)
            | Self::FuzzyFailed(_)
            | Self::SnapshotNamed(_)
            | Self::NodesScanned(_)
            | Self::NodesRestored(_)
            | Self::MapChanged(_) => None,
        }
    }
}

/// Why a call has no result. Says whether it may be sent again, and whether it may have been executed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FuzzyFailure {
    /// Not executed: too much is waiting. May be sent again, after a while.
    Busy,
    /// It may have been executed, in part or as a whole, and may still be. May be sent again, under its number.
    Unknown,
    /// Never executed: a limit is exceeded, or the call is malformed.
    Malformed,
    /// Its client has said that it has the answer to this number: it was executed, or never will be.
    Forgotten,
    /// Not executed: its client has used this number for something else.
    NumberUsed,
    /// Not executed: nodes from there on were trimmed; the position is the first that is left.
    Trimmed,
    /// Not executed: beyond the colour's end, which is the position.
    BeyondTail,
    /// A partition of its colours has as much as it may have. A copy that was sent before may still be executed.
    Full,
    /// Not executed: the disks are full.
    DiskFull,
    /// Never executed: two of its colours have one digest.
    OneDigest,
    /// Never executed: the caller was not granted it.
    NotGranted,
    /// Never executed: what its caller has seen, or the position, is another region's.
    OtherRegion,
    /// Not executed: the region has not all of the snapshot yet. May be sent again.
    NotHere,
    /// Never executed: the snapshot's id is cut or changed, or another cluster's.
    NoSnapshot,
    /// Not executed, in the strict order: the host's clock cannot be relied on. May be sent again, best to another host.
    NoClock,
    /// Not executed, in the strict order: what its caller has seen is of a time that has not come.
    FromTheFuture,
    /// Not executed: colours have moved since the cut. Another cut is needed.
    MovedSince,
    /// Not executed: there is no such partition, or it is being removed.
    NoPartition,
    /// Not executed: as many colours have moved, or as many partitions are there, as may be.
    MapFull,
    /// Not executed: the partition that the colour was to go to, or a chain that it concerns, has no room or did not answer in time.
    TakenBack,
    /// Never executed: the partition was there from the beginning, and stays.
    FirstPartition,
    /// Never executed: among several regions colours do not move.
    AmongRegions,
}

impl FuzzyFailure {
    /// All, in the order of their numbers on the wire, from 1 on.
    pub const ALL: [Self; 22] = [
        Self::Busy,
        Self::Unknown,
        Self::Malformed,
        Self::Forgotten,
        Self::NumberUsed,
        Self::Trimmed,
        Self::BeyondTail,
        Self::Full,
        Self::DiskFull,
        Self::OneDigest,
        Self::NotGranted,
        Self::OtherRegion,
        Self::NotHere,
        Self::NoSnapshot,
        Self::NoClock,
        Self::FromTheFuture,
        Self::MovedSince,
        Self::NoPartition,
        Self::MapFull,
        Self::TakenBack,
        Self::FirstPartition,
        Self::AmongRegions,
    ];

    /// True if the call surely had no effect.
    pub fn is_surely_void(self) -> bool {
        !matches!(self, Self::Unknown | Self::Forgotten | Self::Full)
    }

    /// True if the same call may be sent again, under its number, and may succeed then.
    pub fn may_be_retried(self) -> bool {
        matches!(self, Self::Busy | Self::Unknown | Self::DiskFull | Self::NotHere | Self::NoClock)
    }
}

impl fmt::Display for FuzzyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "too many calls at once: nothing was executed, try again later",
            Self::Unknown => "no answer in time: it may have been executed, or still be",
            Self::Malformed => "malformed, or beyond a limit: nothing was executed",
            Self::Forgotten => "the client has the answer to this number",
            Self::NumberUsed => "the client has used this number for something else",
            Self::Trimmed => {
                "it was trimmed: go on at the first position, with the state before it from elsewhere"
            }
            Self::BeyondTail => "beyond the colour's end",
            Self::Full => "the colours' partition has as much as fuzzylog.partition_bytes allows",
            Self::DiskFull => "the disks are full: nothing was executed",
            Self::OneDigest => "two of the colours have one digest: rename one",
            Self::NotGranted => "not granted: nothing was executed",
            Self::OtherRegion => {
                "what was seen, or the position, is another region's: give a snapshot's id. Nothing was executed"
            }
            Self::NotHere => "this region has not all of the snapshot yet: nothing was executed",
            Self::NoSnapshot => {
                "the snapshot's id is cut or changed, or another cluster's: nothing was executed"
            }
            Self::NoClock => "the host's clock cannot be relied on: nothing was executed",
            Self::FromTheFuture => "what was seen is of a time that has not come: nothing was executed",
            Self::MovedSince => "colours have moved since the cut: begin anew",
            Self::NoPartition => "there is no such partition, or it is being removed: nothing was changed",
            Self::MapFull => {
                "as many colours have moved, or as many partitions are there, as may be: nothing was changed"
            }
            Self::TakenBack => {
                "the move was taken back: a partition had no room, or did not answer in time"
            }
            Self::FirstPartition => {
                "the partition was there from the beginning, and stays: nothing was changed"
            }
            Self::AmongRegions => "among several regions colours do not move: nothing was changed",
        })
    }
}

impl Encode for FuzzyFailure {
    fn encode(&self, out: &mut Vec<u8>) {
        let at = Self::ALL.iter().position(|known| known == self).unwrap_or(0);
        out.push(at as u8 + 1);
    }
}

impl Decode for FuzzyFailure {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let tag = u8::decode(input)?;
        let known = usize::from(tag).checked_sub(1).and_then(|at| Self::ALL.get(at));
        known.copied().ok_or(DecodeError::UnknownTag("failure of the partially ordered log", tag))
    }
}
