//! From a gateway's operations to nodes, and from the home's answers to the gateway's.
//!
//! One node of this feeder is on its way at a time, so what its users ask stays in order.

use super::pack::{ITEMS_MAX, Pack, PackItem};
use super::{Asked, COLOUR, TICK, TreeFeeder, TreeFeederTimer};
use crate::home::{GROUP, HomeAnswers};
use ::fuzzylog::{AppendCall, AppendOutcome, AppendTime, Content, FuzzyRequest};
use kernel::{Bytes, Cx, Decode as _, Encode as _, Instant, Wall};
use mason::client::{Answers, OperationAnswer, Skipped};
use mason::{Gsn, MasonMessage, Operation};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A node for which there was no room is appended again after this.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Bytes of operations that wait; beyond it the gateway has to send again.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// What an operation is taken for beside its body.
const OPERATION_HEAD_BYTES: usize = 48;

/// A node that is not known to be in the colour.
#[derive(Clone, Debug)]
struct Flight {
    node: u64,
    call: AppendCall,
    /// It is to be appended again then.
    again_at: Option<Instant>,
}

/// What the feeder has in hand for its gateway.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    /// The gateway's incarnation: earlier ones' operations are nobody's.
    incarnation: u64,
    /// The next tag that is taken.
    next_tag: u64,
    queue: VecDeque<Operation>,
    queue_bytes: usize,
    /// What the feeder adds to the next node.
    own: Vec<PackItem>,
    flight: Option<Flight>,
    /// Of nodes that the home has not executed, the operations in them: their indexes and tags.
    awaited: BTreeMap<u64, Vec<(u16, u64)>>,
    last_node: u64,
    /// Bytes of a node's operations, unless there is one alone.
    node_bytes: usize,
}

impl Writing {
    pub(super) fn new(node_bytes: usize) -> Self {
        Self {
            incarnation: 0,
            next_tag: 1,
            queue: VecDeque::new(),
            queue_bytes: 0,
            own: Vec::new(),
            flight: None,
            awaited: BTreeMap::new(),
            last_node: 0,
            node_bytes,
        }
    }

    pub(super) fn unfinished(&self) -> usize {
        self.queue.len() + self.awaited.values().map(Vec::len).sum::<usize>()
    }

    pub(super) fn first_awaited(&self) -> Option<u64> {
        self.awaited.first_key_value().map(|(&node, _)| node)
    }

    /// A node has one operation at least.
    pub(super) fn asked_through(&self) -> u64 {
        self.last_node + self.queue.len() as u64
    }

    /// True if a node is to be appended again.
    pub(super) fn waits(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.again_at.is_some())
    }

    /// The home has taken another one's state: what it has skipped it will not answer.
    pub(super) fn forget_awaited(&mut self) {
        self.awaited.clear();
    }

    /// Goes into the next node.
    pub(super) fn add(&mut self, item: PackItem) {
        self.own.push(item);
    }

    /// True if the next node has a tick of the clock.
    pub(super) fn has_tick(&self) -> bool {
        self.own.iter().any(|item| matches!(item, PackItem::Tick(_)))
    }

    /// What an earlier incarnation of the gateway wants is wanted by nobody; its node that is on its way comes nonetheless.
    fn begin_incarnation(&mut self, incarnation: u64) {
        (self.incarnation, self.next_tag) = (incarnation, 1);
        (self.queue, self.queue_bytes) = (VecDeque::new(), 0);
        self.awaited.clear();
    }

    /// Takes out what goes into the next node.
    fn next_items(&mut self) -> (Vec<PackItem>, Vec<(u16, u64)>) {
        let mut items = std::mem::take(&mut self.own);
        let (mut tags, mut bytes) = (Vec::new(), 0);
        while let Some(operation) = self.queue.front()
            && items.len() < ITEMS_MAX
            && (tags.is_empty() || bytes + operation.body.len() <= self.node_bytes)
        {
            bytes += operation.body.len() + OPERATION_HEAD_BYTES;
            tags.push((items.len() as u16, operation.tag));
            items.extend(self.queue.pop_front().map(PackItem::Asked));
        }
        self.queue_bytes = self.queue_bytes.saturating_sub(bytes);
        (items, tags)
    }
}

fn milliseconds(wall: Wall) -> u64 {
    wall.midpoint() / 1_000_000
}

impl TreeFeeder {
    /// Taken in the order of the tags, each once; what comes again is on its way.
    pub(super) fn on_submit(&mut self, operations: Vec<Operation>) {
        let writing = &mut self.writing;
        for operation in operations {
            if operation.incarnation > writing.incarnation {
                writing.begin_incarnation(operation.incarnation);
            }
            let is_next = operation.incarnation == writing.incarnation && operation.tag == writing.next_tag;
            if is_next && writing.queue_bytes < QUEUE_BYTES_MAX {
                writing.next_tag += 1;
                writing.queue_bytes += operation.body.len() + OPERATION_HEAD_BYTES;
                writing.queue.push_back(operation);
            }
        }
    }

    /// Appends a node if none is on its way.
    pub(super) fn append_what_waits(&mut self, cx: &mut Cx<'_, Self>) {
        let has_items = !self.writing.queue.is_empty() || !self.writing.own.is_empty();
        if self.writing.flight.is_some() || !has_items {
            return;
        }
        let (items, tags) = self.writing.next_items();
        if tags.len() > 1 {
            cx.mark("tree_feeder.packed_operations");
        }
        self.writing.last_node += 1;
        let node = self.writing.last_node;
        let (time, trimmed) = (milliseconds(cx.wall()), self.stream.trimmed());
        let pack = Pack { feeder: cx.node(), run: self.run, number: node, time, trimmed, items };
        let call = AppendCall {
            client: self.run,
            number: node,
            below: node,
            seen: AppendTime::ZERO,
            content: Content::new(vec![COLOUR], vec![pack.encoded().into()]),
        };
        self.writing.awaited.insert(node, tags);
        self.writing.flight = Some(Flight { node, call: call.clone(), again_at: None });
        self.ask(Asked::Append(node), FuzzyRequest::Append(call), cx);
    }

    pub(super) fn on_appended(&mut self, node: u64, outcome: AppendOutcome, cx: &mut Cx<'_, Self>) {
        match outcome {
            AppendOutcome::Appended { placed, .. } => {
                let Some(flight) = self.writing.flight.take_if(|flight| flight.node == node) else { return };
                let body = flight.call.content.body(0);
                for placed in placed.into_iter().filter(|placed| placed.colour == COLOUR) {
                    self.stream.learn(placed.position.0 + 1);
                    self.stream.add_own(placed.position.0, &body);
                    self.has_news = true;
                }
            }
            AppendOutcome::NoRoom => {
                cx.mark("tree_feeder.appends_a_node_again");
                if let Some(flight) = &mut self.writing.flight {
                    flight.again_at = Some(cx.now() + RETRY_AFTER);
                    cx.set_timer(TreeFeederTimer::Tick, TICK);
                }
            }
            AppendOutcome::Unknown => {
                cx.mark("tree_feeder.lost_track_of_a_node");
                self.writing.awaited.remove(&node);
                self.writing.flight.take_if(|flight| flight.node == node);
                cx.send(self.gateway, MasonMessage::from(Skipped { space: self.home }));
            }
        }
    }

    /// Appends again what there was no room for, under its name: it is there once.
    pub(super) fn retry(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let is_due = |flight: &&mut Flight| flight.again_at.is_some_and(|at| at <= now);
        let Some(flight) = self.writing.flight.as_mut().filter(is_due) else { return };
        flight.again_at = None;
        let (node, call) = (flight.node, flight.call.clone());
        self.ask(Asked::Append(node), FuzzyRequest::Append(call), cx);
    }

    /// The home has executed nodes of this feeder: it answers what no shard does.
    pub(super) fn on_executed(&mut self, answers: Vec<OperationAnswer>, cx: &mut Cx<'_, Self>) {
        let mut answered = Vec::new();
        let incarnation = self.writing.incarnation;
        for OperationAnswer { incarnation: run, tag: node, body, .. } in answers {
            if run != self.run {
                continue;
            }
            let Some(tags) = self.writing.awaited.remove(&node) else { continue };
            let answers = HomeAnswers::decoded(&body).map(|it| it.answers).unwrap_or_default();
            let answers: BTreeMap<u16, Bytes> = answers.into_iter().collect();
            let answer = |&(index, tag): &(u16, u64)| {
                let body = answers.get(&index)?.clone();
                Some(OperationAnswer { incarnation, tag, gsn: Gsn(0), body })
            };
            answered.extend(tags.iter().filter_map(answer));
        }
        if !answered.is_empty() {
            cx.send(self.gateway, MasonMessage::from(Answers { group: GROUP, answers: answered }));
        }
    }
}
