//! What local applications ask, and are answered.

use super::reads::Reading;
use super::several::SeveralTask;
use super::{FuzzyClient, Task};
use crate::partition::ColourNode;
use crate::partition::command::{Append, Placed, Trim};
use crate::terms::{AppendId, AppendTime, Colour, Content, ContentFlaw, NodePosition};
use kernel::{Cx, RequestId, planted};

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
    /// It did not happen.
    Refused(FuzzyRefusal),
}

/// Why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FuzzyRefusal {
    /// Too many calls are in flight; it may be tried again.
    Busy,
    /// The content is unsound.
    Content(ContentFlaw),
    /// The number is below what the user says it has the answers to, or so far above that it could not be remembered.
    NumberOutOfRange,
    /// The user has said that it has the answer.
    Forgotten,
    /// The user has used the number for something else.
    NumberUsed,
    /// A trim or a play beyond the end.
    BeyondTail {
        /// The end, as far as is known.
        tail: NodePosition,
    },
}

/// Numbers of a client that a partition may have to remember at a time.
const NUMBERS_MAX: u64 = 1_024;

impl FuzzyClient {
    pub(super) fn on_call(&mut self, id: RequestId, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        if let Some(refusal) = self.refusal(&request) {
            return cx.respond(id, FuzzyResponse::Refused(refusal));
        }
        match request {
            FuzzyRequest::Append(call) => self.append(id, call, cx),
            FuzzyRequest::Snapshot(call) if planted!(snapshot_asks_one_by_one) => {
                self.snapshot_one_by_one(id, &call, cx);
            }
            FuzzyRequest::Snapshot(call) => {
                let SnapshotCall { client, number, below, seen, colours } = call;
                let content = Content { colours, bodies: Vec::new() };
                self.append(id, AppendCall { client, number, below, seen, content }, cx);
            }
            FuzzyRequest::Sync(call) => {
                let partition = self.placement.partition_of(call.colour);
                self.begin(Some(id), Task::Reading(Box::new(Reading::sync(partition, call))), cx);
            }
            FuzzyRequest::Play(call) => {
                let partition = self.placement.partition_of(call.colour);
                let reading = Reading::play(partition, call, self.next_call);
                self.begin(Some(id), Task::Reading(Box::new(reading)), cx);
            }
            FuzzyRequest::Trim(TrimCall { colour, before }) => {
                let partition = self.placement.partition_of(colour);
                let command = Trim { colour, before }.into();
                self.begin(Some(id), Task::One { partition, command }, cx);
            }
        }
    }

    fn refusal(&self, request: &FuzzyRequest) -> Option<FuzzyRefusal> {
        if self.outstanding() >= self.parameters.calls_max {
            return Some(FuzzyRefusal::Busy);
        }
        let flaw = |content: &Content| {
            let (colours, bytes) = (self.parameters.colours_max, self.parameters.append_bytes_max);
            content.flaw(colours, bytes).map(FuzzyRefusal::Content)
        };
        let out_of_range = |number: u64, below: u64| {
            (number < below || number - below >= NUMBERS_MAX).then_some(FuzzyRefusal::NumberOutOfRange)
        };
        match request {
            // Nothing is what a snapshot stores.
            FuzzyRequest::Append(call) if call.content.bodies.is_empty() => {
                Some(FuzzyRefusal::Content(ContentFlaw::BodiesDoNotMatch))
            }
            FuzzyRequest::Append(call) => {
                flaw(&call.content).or_else(|| out_of_range(call.number, call.below))
            }
            FuzzyRequest::Snapshot(call) => {
                let content = Content { colours: call.colours.clone(), bodies: Vec::new() };
                flaw(&content).or_else(|| out_of_range(call.number, call.below))
            }
            FuzzyRequest::Play(call) if call.from > call.to => {
                Some(FuzzyRefusal::BeyondTail { tail: call.to })
            }
            FuzzyRequest::Sync(_) | FuzzyRequest::Play(_) | FuzzyRequest::Trim(_) => None,
        }
    }

    fn append(&mut self, request: RequestId, call: AppendCall, cx: &mut Cx<'_, Self>) {
        let AppendCall { client, number, below, seen, content } = call;
        let id = AppendId { client, number, content: content.digest() };
        let partitions = self.placement.partitions_of(&content.colours);
        let task = match partitions[..] {
            [partition] => Task::One { partition, command: Append { id, below, seen, content }.into() },
            _ => {
                let identity = several::identity(cx);
                Task::Several(Box::new(SeveralTask::new(id, below, seen, content, partitions, identity)))
            }
        };
        self.begin(Some(request), task, cx);
    }
}

use super::several;
