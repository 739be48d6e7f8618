//! What local applications ask, and are answered.

use crate::messages::client::ChangeFlaw;
use crate::messages::director::PlacementChange;
use crate::partition::command::Placed;
use crate::partition::{ColourNode, ScanPage};
use crate::terms::{
    AppendTime, Colour, Content, ContentFlaw, Edge, MapVersion, NodePosition, PartitionId, RestoreId,
    ScanPoint,
};
use paxos::Members;

/// Append a node to colours.
#[derive(Clone, PartialEq, Debug)]
pub struct AppendCall {
    /// The user's client.
    pub client: u64,
    /// Its number for this append: at or above `below`.
    pub number: u64,
    /// The user has the answers to all numbers below. One that says so too early may leave an append of its own unfinished.
    pub below: u64,
    /// The last time that the user has seen: the append is ordered behind.
    pub seen: AppendTime,
    /// What, and where.
    pub content: Content,
}

/// Find out how far several colours go, at one point of the order.
#[derive(Clone, PartialEq, Debug)]
pub struct SnapshotCall {
    /// The user's client.
    pub client: u64,
    /// Its number, from the same row as appends'.
    pub number: u64,
    /// The user has the answers to all numbers below.
    pub below: u64,
    /// The last time that the user has seen.
    pub seen: AppendTime,
    /// The colours, each once, in their order.
    pub colours: Vec<Colour>,
}

/// Find out how far a colour goes, which is linearizable, and play the first page of what is new.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SyncCall {
    /// The colour.
    pub colour: Colour,
    /// The first node that the user has not played.
    pub from: NodePosition,
    /// The last time that the user has seen.
    pub seen: AppendTime,
}

/// Play a page of nodes that are known to be there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlayCall {
    /// The colour.
    pub colour: Colour,
    /// The first node.
    pub from: NodePosition,
    /// The position after the last node; not beyond what a sync or a snapshot has answered.
    pub to: NodePosition,
}

/// Drop a colour's nodes below a position. They stay in their other colours.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TrimCall {
    /// The colour.
    pub colour: Colour,
    /// The first node to keep.
    pub before: NodePosition,
}

/// Find out how many nodes of each region's log are below a position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountLogsCall {
    /// The colour.
    pub colour: Colour,
    /// The position, not beyond what a sync or a snapshot has answered.
    pub below: NodePosition,
}

/// Find out a time of all partitions: all that was acknowledged before is earlier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CutCall {
    /// The user's client.
    pub client: u64,
    /// Its number, from the same row as appends'.
    pub number: u64,
    /// The user has the answers to all numbers below.
    pub below: u64,
}

/// Read a page of what a partition had at a cut, or the digest of a part of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScanCall {
    /// The partition.
    pub partition: PartitionId,
    /// The cut's time.
    pub below: AppendTime,
    /// From here.
    pub from: ScanPoint,
    /// To here; none: to the end.
    pub to: Option<ScanPoint>,
    /// A digest is enough.
    pub digests: bool,
}

/// Put nodes of a backup into a colour, out of view.
#[derive(Clone, PartialEq, Debug)]
pub struct RestoreCall {
    /// The restore.
    pub restore: RestoreId,
    /// The colour.
    pub colour: Colour,
    /// The position of the first node.
    pub at: NodePosition,
    /// The colour begins there.
    pub begins: bool,
    /// The nodes.
    pub nodes: Vec<ColourNode>,
}

/// Bring what a restore has made into view, in all partitions at one time; of restore 0: drop what any has made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OpenCall {
    /// The user's client.
    pub client: u64,
    /// Its number, from the same row as appends'.
    pub number: u64,
    /// The user has the answers to all numbers below.
    pub below: u64,
    /// The restore.
    pub restore: RestoreId,
}

/// Find out behind which position so many nodes of each region's log are.
#[derive(Clone, PartialEq, Debug)]
pub struct FindLogsCall {
    /// The colour.
    pub colour: Colour,
    /// The regions, and how many nodes of each.
    pub counts: Vec<Edge>,
}

/// What a local application asks.
#[derive(Clone, PartialEq, Debug)]
pub enum FuzzyRequest {
    /// Append.
    Append(AppendCall),
    /// A snapshot of colours.
    Snapshot(SnapshotCall),
    /// How far a colour goes, and what is new.
    Sync(SyncCall),
    /// More of what is there.
    Play(PlayCall),
    /// Drop what nobody needs.
    Trim(TrimCall),
    /// How much of each region's log is below a position.
    CountLogs(CountLogsCall),
    /// Where so much of each region's log is.
    FindLogs(FindLogsCall),
    /// A time of all partitions.
    Cut(CutCall),
    /// What a partition had at a cut.
    Scan(ScanCall),
    /// Nodes of a backup.
    Restore(RestoreCall),
    /// A backup's nodes come into view.
    Open(OpenCall),
    /// Of a director: the members of the cluster are these.
    Follow(Members),
    /// Another place for colours, or another partition.
    Change(PlacementChange),
}

impl FuzzyRequest {
    /// The last time that the user has seen, of what is answered with a time.
    pub(super) fn seen(&self) -> Option<AppendTime> {
        match self {
            Self::Append(call) => Some(call.seen),
            Self::Snapshot(call) => Some(call.seen),
            Self::Sync(call) => Some(call.seen),
            Self::Play(_) | Self::Cut(_) | Self::Open(_) => Some(AppendTime::ZERO),
            Self::Trim(_)
            | Self::CountLogs(_)
            | Self::FindLogs(_)
            | Self::Scan(_)
            | Self::Restore(_)
            | Self::Follow(_)
            | Self::Change(_) => None,
        }
    }
}

/// A page of nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct PlayedPage {
    /// The colour.
    pub colour: Colour,
    /// The first node's position.
    pub from: NodePosition,
    /// Nodes, in order.
    pub nodes: Vec<ColourNode>,
    /// The position after the colour's last node, as of the sync; as asked, of a play.
    pub tail: NodePosition,
    /// The last time that the user has seen by now.
    pub seen: AppendTime,
}

/// What it is answered.
#[derive(Clone, PartialEq, Debug)]
pub enum FuzzyResponse {
    /// The node is in all its colours.
    Appended {
        /// When.
        at: AppendTime,
        /// Where, colour by colour.
        placed: Vec<Placed>,
    },
    /// So far the colours go.
    Snapshotted {
        /// As of when.
        at: AppendTime,
        /// The positions after their last nodes.
        tails: Vec<Placed>,
    },
    /// It is in all its colours, or was taken of all. A partition to which some of them have come has forgotten the user's client, so
    /// nobody knows where it is in those.
    PlacesForgotten {
        /// When.
        at: AppendTime,
    },
    /// Nodes.
    Played(PlayedPage),
    /// What was asked for is gone; this is the first node that is left. The state before it is to be had elsewhere.
    AlreadyTrimmed {
        /// Where to go on.
        first: NodePosition,
    },
    /// Nodes are dropped.
    Trimmed {
        /// The first one that is left.
        first: NodePosition,
    },
    /// So many nodes of each region's log.
    LogsCounted {
        /// The regions with nodes there, in their order.
        counts: Vec<Edge>,
    },
    /// Where so many nodes of each region's log are.
    LogsFound {
        /// All of them are below; none while some are not in this region.
        below: Option<NodePosition>,
        /// What is done by one who has seen this time is ordered behind them.
        at: AppendTime,
    },
    /// What a partition had.
    Scanned(ScanPage),
    /// The nodes are there, out of view.
    Restored {
        /// The position after the last one.
        tail: NodePosition,
    },
    /// By a director.
    Followed {
        /// Neither chains nor directors need a host but these members, as far as it knows.
        is_settled: bool,
    },
    /// Where colours are has changed.
    Changed {
        /// By this version of the map.
        version: MapVersion,
        /// The partition that was added or removed, or to which colours have moved.
        partition: PartitionId,
    },
    /// A change of where colours are is asked for no more; what has begun of it goes on.
    ChangeUnknown,
    /// It did not happen.
    Refused(FuzzyRefusal),
}

/// What a play or a sync has come to.
#[derive(Clone, PartialEq, Debug)]
pub enum PlayOutcome {
    /// Nodes.
    Page(PlayedPage),
    /// Nodes below this one are gone.
    Gone(NodePosition),
    /// Nothing; it may be asked again.
    Failed,
}

/// What an append has come to.
#[derive(Clone, PartialEq, Debug)]
pub enum AppendOutcome {
    /// The node is in all its colours.
    Appended {
        /// When.
        at: AppendTime,
        /// Where, colour by colour.
        placed: Vec<Placed>,
    },
    /// It has to be appended again, under the same number.
    NoRoom,
    /// It may be there or not, and cannot be asked for any more.
    Unknown,
}

impl FuzzyResponse {
    /// As the answer to a play or a sync.
    pub fn of_play(self) -> PlayOutcome {
        match self {
            Self::Played(page) => PlayOutcome::Page(page),
            Self::AlreadyTrimmed { first } => PlayOutcome::Gone(first),
            _ => PlayOutcome::Failed,
        }
    }

    /// As the answer to an append.
    pub fn of_append(self) -> AppendOutcome {
        match self {
            Self::Appended { at, placed } => AppendOutcome::Appended { at, placed },
            Self::Refused(FuzzyRefusal::Busy | FuzzyRefusal::Full | FuzzyRefusal::NoClock) => {
                AppendOutcome::NoRoom
            }
            _ => AppendOutcome::Unknown,
        }
    }

    /// Bytes of the nodes that it hands over.
    pub(super) fn page_bytes(&self) -> usize {
        match self {
            Self::Played(page) => page.nodes.iter().map(ColourNode::bytes).sum(),
            _ => 0,
        }
    }
}

/// Why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FuzzyRefusal {
    /// Too many calls are in flight; it may be tried again.
    Busy,
    /// The partition has as much as it may have. A copy that was sent before may still be executed.
    Full,
    /// The content is unsound.
    Content(ContentFlaw),
    /// The number is below what the user says it has the answers to, or so far above that it could not be remembered.
    NumberOutOfRange,
    /// The user has said that it has the answer.
    Forgotten,
    /// The user has used the number for something else.
    NumberUsed,
    /// In the strict order: this host's clock cannot be relied on; it may be tried again.
    NoClock,
    /// In the strict order: the user has seen a time that no honest clock has come to.
    FromTheFuture,
    /// Where colours are stays as it is.
    Change(ChangeFlaw),
    /// Colours came to the partition that was scanned, or left it, since the cut: another cut is needed.
    MovedSince,
    /// A trim or a play beyond the end.
    BeyondTail {
        /// The end, as far as is known.
        tail: NodePosition,
    },
}
