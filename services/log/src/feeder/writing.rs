//! From a gateway's operations to nodes, and from nodes' answers to the operations' own.
//!
//! Of each space one node of this feeder is on its way at a time. Its client, for the engine, is the space's own, so what it appends
//! has the numbers that follow one another, and a node that is stuck in one partition holds up no other.

use super::{Asked, Feeder, GROUP, Pack, packed, unpacked};
use ::fuzzylog::{AppendCall, AppendOutcome, AppendTime, Content, FuzzyRequest};
use kernel::{Bytes, Cx, Encode as _, Instant, Wall};
use mason::client::{Answers, OperationAnswer, Skipped};
use mason::{MasonMessage, Operation, ShardMap, Space, Stub as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Operations of one node.
const NODE_OPERATIONS: usize = 8_192;
/// A node for which there was no room is appended again after this.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// An operation that is in no node yet.
#[derive(Clone, Debug)]
struct Queued {
    tag: u64,
    spaces: Vec<Space>,
    body: Bytes,
}

/// A node that is not known to be in its colours.
#[derive(Clone, Debug)]
struct Flight {
    spaces: Vec<Space>,
    call: AppendCall,
    /// It is to be appended again then.
    again_at: Option<Instant>,
}

/// A node that is not known to be executed.
#[derive(Clone, Debug)]
struct Awaited {
    /// Of the operations in it.
    tags: Vec<u64>,
    /// Where the server that answers finds it, once that is known.
    placed: Option<(Space, u64)>,
}

/// What the feeder has in hand for its gateway.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    /// The gateway's incarnation: earlier ones' operations are nobody's.
    incarnation: u64,
    /// The next tag that is taken.
    next_tag: u64,
    queued: BTreeMap<u64, Queued>,
    /// Of each space the operations that wait, in their order.
    queues: Vec<VecDeque<u64>>,
    flights: BTreeMap<u64, Flight>,
    /// Spaces that a node is on its way to.
    busy: BTreeSet<Space>,
    awaited: BTreeMap<u64, Awaited>,
    last_node: u64,
    /// Spaces to look at.
    ready: BTreeSet<Space>,
    /// The last time that was answered.
    seen: AppendTime,
    /// Bytes of a node's operations, unless there is one alone.
    node_bytes: usize,
}

impl Writing {
    pub(super) fn new(spaces: u16, node_bytes: usize) -> Self {
        Self {
            node_bytes,
            incarnation: 0,
            next_tag: 1,
            queued: BTreeMap::new(),
            queues: vec![VecDeque::new(); spaces.into()],
            flights: BTreeMap::new(),
            busy: BTreeSet::new(),
            awaited: BTreeMap::new(),
            last_node: 0,
            ready: BTreeSet::new(),
            seen: AppendTime::ZERO,
        }
    }

    pub(super) fn unfinished(&self) -> usize {
        self.queued.len() + self.awaited.values().map(|node| node.tags.len()).sum::<usize>()
    }

    /// True if a node is to be appended again.
    pub(super) fn waits(&self) -> bool {
        self.flights.values().any(|flight| flight.again_at.is_some())
    }

    /// What an earlier incarnation of the gateway wants is wanted by nobody; its nodes that are on their way come nonetheless.
    fn begin_incarnation(&mut self, incarnation: u64) {
        (self.incarnation, self.next_tag) = (incarnation, 1);
        self.queued.clear();
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.awaited.clear();
    }

    /// The space's server is beyond this position, and has answered what it executed before: the rest it has from a snapshot.
    pub(super) fn forget_skipped(&mut self, space: Space, below: u64) {
        let is_skipped = |placed: (Space, u64)| placed.0 == space && placed.1 < below;
        self.awaited.retain(|_, node| !node.placed.is_some_and(is_skipped));
    }

    fn push(&mut self, queued: Queued) {
        for space in &queued.spaces {
            self.queues[usize::from(space.0)].push_back(queued.tag);
            self.ready.insert(*space);
        }
        self.queued.insert(queued.tag, queued);
    }

    fn head(&self, space: Space) -> Option<&Queued> {
        self.queues.get(usize::from(space.0))?.front().and_then(|tag| self.queued.get(tag))
    }

    /// Takes out what goes into the next node of a space, if it may be sent: its spaces, tags and operations.
    fn next_of(&mut self, space: Space) -> Option<(Vec<Space>, Vec<u64>, Vec<Bytes>)> {
        let head = self.head(space)?;
        let (tag, spaces) = (head.tag, head.spaces.clone());
        let is_next = |space: &Space| {
            !self.busy.contains(space) && self.head(*space).is_some_and(|head| head.tag == tag)
        };
        if !spaces.iter().all(is_next) {
            return None;
        }
        let (mut tags, mut bodies, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(head) = self.head(space)
            && (tags.is_empty()
                || spaces.len() == 1
                    && head.spaces == spaces
                    && bytes + head.body.len() <= self.node_bytes
                    && tags.len() < NODE_OPERATIONS)
        {
            let tag = head.tag;
            for space in &spaces {
                self.queues[usize::from(space.0)].pop_front();
            }
            if let Some(queued) = self.queued.remove(&tag) {
                bytes += queued.body.len();
                tags.push(tag);
                bodies.push(queued.body);
            }
        }
        Some((spaces, tags, bodies))
    }
}

fn milliseconds(wall: Wall) -> u64 {
    wall.midpoint() / 1_000_000
}

impl Feeder {
    /// Taken in the order of the tags, each once; what comes again is on its way.
    pub(super) fn on_submit(&mut self, operations: Vec<Operation>, cx: &mut Cx<'_, Self>) {
        let shard_map = ShardMap::at_bootstrap(self.names.spaces);
        for Operation { incarnation, tag, body, .. } in operations {
            if incarnation > self.writing.incarnation {
                self.writing.begin_incarnation(incarnation);
            }
            if incarnation < self.writing.incarnation || tag != self.writing.next_tag {
                continue;
            }
            self.writing.next_tag += 1;
            let spaces = self.names.spaces(&body, &shard_map);
            if spaces.is_empty() {
                // It names no log: there is nothing to order.
                self.answer(vec![(tag, mason::Gsn(0), Bytes::new())], cx);
            } else {
                self.writing.push(Queued { tag, spaces, body });
            }
        }
    }

    fn answer(&mut self, answered: Vec<(u64, mason::Gsn, Bytes)>, cx: &mut Cx<'_, Self>) {
        let incarnation = self.writing.incarnation;
        let answer = |(tag, gsn, body)| OperationAnswer { incarnation, tag, gsn, body };
        let answers = answered.into_iter().map(answer).collect();
        cx.send(self.gateway, MasonMessage::from(Answers { group: GROUP, answers }));
    }

    /// Appends nodes to the spaces that no node of this feeder is on its way to.
    pub(super) fn append_what_waits(&mut self, cx: &mut Cx<'_, Self>) {
        for space in std::mem::take(&mut self.writing.ready) {
            if !self.writing.busy.contains(&space)
                && let Some((spaces, tags, bodies)) = self.writing.next_of(space)
            {
                self.append_node(spaces, tags, &bodies, cx);
            }
        }
    }

    fn append_node(&mut self, spaces: Vec<Space>, tags: Vec<u64>, bodies: &[Bytes], cx: &mut Cx<'_, Self>) {
        self.writing.last_node += 1;
        let number = self.writing.last_node;
        if spaces.len() > 1 {
            cx.mark("feeder.appended_to_several_spaces");
        } else if tags.len() > 1 {
            cx.mark("feeder.packed_operations");
        }
        let (run, time, operations) = (self.run, milliseconds(cx.wall()), packed(bodies));
        let pack = Pack { origin: cx.node(), run, number, time, operations };
        let colour = |space: &Space| Some(self.streams.get(usize::from(space.0))?.colour());
        let mut colours: Vec<_> = spaces.iter().filter_map(colour).collect();
        colours.sort_unstable();
        let first = spaces.first().map_or(0, |space| u64::from(space.0));
        let call = AppendCall {
            client: self.run.wrapping_add(first),
            number,
            below: number,
            seen: self.writing.seen,
            content: Content::new(colours, vec![pack.encoded().into()]),
        };
        self.writing.busy.extend(&spaces);
        self.writing.awaited.insert(number, Awaited { tags, placed: None });
        self.writing.flights.insert(number, Flight { spaces, call: call.clone(), again_at: None });
        self.ask(Asked::Append(number), FuzzyRequest::Append(call), cx);
    }

    /// The spaces take the next node.
    fn land(&mut self, node: u64) -> Option<Flight> {
        let flight = self.writing.flights.remove(&node)?;
        for space in &flight.spaces {
            self.writing.busy.remove(space);
            // Its next operation may wait for other spaces, too.
            self.writing.ready.insert(*space);
        }
        Some(flight)
    }

    pub(super) fn on_appended(&mut self, node: u64, outcome: AppendOutcome, cx: &mut Cx<'_, Self>) {
        match outcome {
            AppendOutcome::Appended { at, placed } => {
                let Some(flight) = self.land(node) else { return };
                self.writing.seen = self.writing.seen.max(at);
                let body = flight.call.content.body(0);
                for placed in placed {
                    let Some(&space) = self.spaces.get(&placed.colour) else { continue };
                    if let Some(awaited) = self.writing.awaited.get_mut(&node) {
                        // The first space's server answers.
                        let first = awaited.placed.is_none_or(|(first, _)| space < first);
                        awaited.placed =
                            if first { Some((space, placed.position.0)) } else { awaited.placed };
                    }
                    let stream = &mut self.streams[usize::from(space.0)];
                    stream.learn(placed.position.0 + 1);
                    stream.add_own(placed.position.0, at, &flight.spaces, &body);
                    self.news.push(space);
                }
            }
            AppendOutcome::NoRoom => {
                cx.mark("feeder.appends_a_node_again");
                if let Some(flight) = self.writing.flights.get_mut(&node) {
                    flight.again_at = Some(cx.now() + RETRY_AFTER);
                    cx.set_timer(super::FeederTimer::Tick, super::TICK);
                }
            }
            AppendOutcome::Unknown => {
                cx.mark("feeder.lost_track_of_a_node");
                self.writing.awaited.remove(&node);
                if let Some(space) = self.land(node).and_then(|flight| flight.spaces.first().copied()) {
                    cx.send(self.gateway, MasonMessage::from(Skipped { space }));
                }
            }
        }
    }

    /// Appends again what there was no room for, under its name: it is there once.
    pub(super) fn retry(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let is_due = |flight: &Flight| flight.again_at.is_some_and(|at| at <= now);
        let due = self.writing.flights.iter_mut().filter(|(_, flight)| is_due(flight));
        let due = due.map(|(&node, flight)| {
            flight.again_at = None;
            (node, flight.call.clone())
        });
        for (node, call) in due.collect::<Vec<_>>() {
            self.ask(Asked::Append(node), FuzzyRequest::Append(call), cx);
        }
    }

    /// A shard's server has executed nodes of this feeder.
    pub(super) fn on_executed(&mut self, answers: Vec<OperationAnswer>, cx: &mut Cx<'_, Self>) {
        let mut answered = Vec::new();
        for OperationAnswer { incarnation, tag: node, gsn, body } in answers {
            if incarnation != self.run {
                continue;
            }
            let Some(Awaited { tags, .. }) = self.writing.awaited.remove(&node) else { continue };
            let bodies = unpacked(&body).unwrap_or_default();
            answered.extend(tags.into_iter().zip(bodies).map(|(tag, body)| (tag, gsn, body)));
        }
        if !answered.is_empty() {
            self.answer(answered, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // An operation that its server has from a snapshot is answered by nobody, and would be unfinished until the host is used again.
    #[test]
    fn what_a_server_has_skipped_is_forgotten_and_nothing_else() {
        let mut writing = Writing::new(2, 1_000);
        for (node, placed) in
            [(1, Some((Space(0), 7))), (2, Some((Space(1), 7))), (3, Some((Space(0), 8))), (4, None)]
        {
            writing.awaited.insert(node, Awaited { tags: vec![node], placed });
        }
        writing.forget_skipped(Space(0), 8);
        assert_eq!(writing.awaited.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(writing.unfinished(), 3);
    }
}
