//! From colours to shards: plays what is new, pairs nodes of several colours, and hands operations over by their numbers.

use super::{Asked, Feeder, GROUP, Pack};
use ::fuzzylog::{
    AppendTime, Colour, ColourNode, FuzzyRequest, NodePosition, PlayCall, PlayOutcome, SyncCall,
};
use kernel::{Bytes, Cx, Decode as _};
use mason::proxy::delivery::Run;
use mason::shard::{Deliver, Reach, ShardBehind};
use mason::{Gsn, MasonMessage, Number, Operation, Placed, Space};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of nodes that wait in one space for what comes before them; beyond it no more are played.
const READY_BYTES_MAX: usize = 1 << 20;
/// Own nodes of one space that are known by their answers; others are played like everybody's.
const OWN_MAX: usize = 64;
/// What a node is taken for beside its body.
const NODE_HEAD_BYTES: usize = 128;
/// Retained bytes are counted in steps of so many.
const COUNTED_BYTES: u64 = 64 << 10;
/// A server that takes a snapshot asks often: it is answered at one tick of so many.
const BEHIND_TICKS: u32 = 20;

/// A node of a space.
#[derive(Clone, Debug)]
pub(super) struct Node {
    position: u64,
    pub(super) at: AppendTime,
    spaces: Vec<Space>,
    body: Bytes,
}

impl Node {
    fn bytes(&self) -> usize {
        self.body.len() + NODE_HEAD_BYTES
    }
}

/// What is known of a space's colour.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    colour: Colour,
    /// The next position that is to be played.
    next: u64,
    /// Positions below this are there.
    known: u64,
    /// Positions below this are gone.
    trimmed: u64,
    /// Nodes that are not handed over yet.
    ready: VecDeque<Node>,
    ready_bytes: usize,
    /// Own nodes that are not played yet, by position.
    own: BTreeMap<u64, Node>,
    /// The time of the last node that has left `ready`, or at which the colour had no more.
    passed: AppendTime,
    /// The server has what is below this position.
    wanted: u64,
    /// The server had that when it last said what it lacks.
    lacked: u64,
    /// The server takes a snapshot, and is handed nothing.
    lags: bool,
    plays: bool,
    syncs: bool,
    /// The next look is due: others may have appended.
    looks: bool,
    /// Another space's next node is to come here, too.
    is_missed: bool,
    /// Its barriers up to this one have been synced.
    synced: u64,
    runs: Vec<Run>,
    runs_bytes: usize,
    /// As much of `known` was reported to the server.
    said: u64,
    /// Bytes of nodes that were played, and how many below some positions.
    played_bytes: u64,
    counted_below: u64,
    counted: VecDeque<(u64, u64)>,
    trimmed_bytes: u64,
    /// Ticks until the server is notified again that it is behind.
    quiet: u32,
}

impl Stream {
    pub(super) fn new(colour: Colour) -> Self {
        Self {
            colour,
            next: 0,
            known: 0,
            trimmed: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            own: BTreeMap::new(),
            passed: AppendTime::ZERO,
            wanted: 0,
            lacked: 0,
            lags: false,
            plays: false,
            syncs: false,
            looks: true,
            is_missed: false,
            synced: 0,
            runs: Vec::new(),
            runs_bytes: 0,
            said: 0,
            played_bytes: 0,
            counted_below: 0,
            counted: VecDeque::new(),
            trimmed_bytes: 0,
            quiet: 0,
        }
    }

    pub(super) fn colour(&self) -> Colour {
        self.colour
    }

    pub(super) fn known(&self) -> u64 {
        self.known
    }

    pub(super) fn trimmed(&self) -> u64 {
        self.trimmed
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// The first position that is not handed over, or passed by.
    pub(super) fn front(&self) -> u64 {
        self.ready.front().map_or(self.next, |node| node.position)
    }

    pub(super) fn retained_bytes(&self) -> u64 {
        self.played_bytes.saturating_sub(self.trimmed_bytes)
    }

    /// True if something is to come.
    pub(super) fn waits(&self) -> bool {
        self.looks || self.lags || !self.ready.is_empty() || self.known > self.next
    }

    pub(super) fn tick(&mut self) {
        self.quiet = self.quiet.saturating_sub(1);
        self.looks |= std::mem::take(&mut self.is_missed);
    }

    /// Positions below this are there.
    pub(super) fn learn(&mut self, known: u64) {
        self.known = self.known.max(known);
    }

    /// An own node was answered.
    pub(super) fn add_own(&mut self, position: u64, at: AppendTime, spaces: &[Space], body: &Bytes) {
        if position >= self.next && self.own.len() < OWN_MAX {
            let (spaces, body) = (spaces.to_vec(), body.clone());
            self.own.insert(position, Node { position, at, spaces, body });
        }
    }

    fn take(&mut self, node: Node) {
        if node.position != self.next {
            return;
        }
        self.next += 1;
        self.known = self.known.max(self.next);
        self.count(&node);
        self.ready_bytes += node.bytes();
        self.ready.push_back(node);
    }

    /// What is played again counts once.
    fn count(&mut self, node: &Node) {
        if node.position < self.counted_below {
            return;
        }
        self.counted_below = node.position + 1;
        self.played_bytes += node.bytes() as u64;
        if self.counted.back().is_none_or(|&(_, bytes)| self.played_bytes >= bytes + COUNTED_BYTES) {
            self.counted.push_back((node.position, self.played_bytes));
        }
    }

    fn take_own(&mut self) {
        while let Some(entry) = self.own.first_entry() {
            match entry.key().cmp(&self.next) {
                std::cmp::Ordering::Less => drop(entry.remove()),
                std::cmp::Ordering::Equal => {
                    let node = entry.remove();
                    self.take(node);
                }
                std::cmp::Ordering::Greater => return,
            }
        }
    }

    fn leave(&mut self) -> Option<Node> {
        let node = self.ready.pop_front()?;
        self.ready_bytes -= node.bytes();
        self.passed = self.passed.max(node.at);
        Some(node)
    }

    /// Plays from a position that was played before.
    fn go_back(&mut self, position: u64) {
        self.ready.clear();
        self.own.clear();
        (self.ready_bytes, self.next, self.passed) = (0, position, AppendTime::ZERO);
    }

    /// Positions below this are gone.
    pub(super) fn lose(&mut self, first: u64) {
        self.trimmed = self.trimmed.max(first);
        self.known = self.known.max(first);
        while let Some(&(position, bytes)) = self.counted.front()
            && position < first
        {
            self.counted.pop_front();
            self.trimmed_bytes = bytes;
        }
    }
}

impl Feeder {
    fn stream(&mut self, space: Space) -> Option<&mut Stream> {
        self.streams.get_mut(usize::from(space.0))
    }

    fn node_of(&self, position: u64, node: ColourNode) -> Node {
        let mut spaces: Vec<Space> =
            node.colours.iter().filter_map(|colour| self.spaces.get(colour).copied()).collect();
        spaces.sort_unstable();
        Node { position, at: node.at, spaces, body: node.body }
    }

    fn take_page(&mut self, space: Space, from: u64, nodes: Vec<ColourNode>) {
        let nodes: Vec<Node> =
            (from..).zip(nodes).map(|(position, node)| self.node_of(position, node)).collect();
        let Some(stream) = self.stream(space) else { return };
        for node in nodes {
            stream.take_own();
            stream.take(node);
        }
    }

    pub(super) fn on_played(&mut self, space: Space, outcome: PlayOutcome, cx: &mut Cx<'_, Self>) {
        if let Some(stream) = self.stream(space) {
            stream.plays = false;
        }
        match outcome {
            PlayOutcome::Page(page) => self.take_page(space, page.from.0, page.nodes),
            PlayOutcome::Gone(first) => self.on_gone(space, first, cx),
            // Asked again at the next tick.
            PlayOutcome::Failed => {}
        }
    }

    pub(super) fn on_synced(
        &mut self,
        space: Space,
        barrier: u64,
        outcome: PlayOutcome,
        cx: &mut Cx<'_, Self>,
    ) {
        let Some(stream) = self.stream(space) else { return };
        stream.syncs = false;
        match outcome {
            PlayOutcome::Page(page) => {
                stream.synced = stream.synced.max(barrier);
                stream.known = stream.known.max(page.tail.0);
                if page.nodes.is_empty() && page.tail.0 == stream.next && stream.ready.is_empty() {
                    stream.passed = stream.passed.max(page.seen);
                }
                self.take_page(space, page.from.0, page.nodes);
            }
            PlayOutcome::Gone(first) => {
                // It has not said how far the colour goes.
                stream.looks = true;
                self.on_gone(space, first, cx);
            }
            PlayOutcome::Failed => stream.looks = true,
        }
    }

    /// Nodes below `first` are trimmed: who lacks them takes a snapshot that has them.
    fn on_gone(&mut self, space: Space, first: NodePosition, cx: &mut Cx<'_, Self>) {
        self.lose(space, first.0, cx);
        let Some(stream) = self.stream(space) else { return };
        if stream.next < first.0 {
            cx.mark("feeder.found_nodes_trimmed");
            let lacks = stream.wanted < first.0;
            // What is ready is before the gap, and still to be handed over.
            stream.next = first.0;
            if lacks {
                self.send_behind(space, Number(first.0 + 1), cx);
            }
        }
    }

    /// The server takes another one's snapshot, which has everything below a number.
    fn send_behind(&mut self, space: Space, durable: Number, cx: &mut Cx<'_, Self>) {
        let Some(server) = self.server(space, cx) else { return };
        if let Some(stream) = self.stream(space) {
            (stream.lags, stream.quiet) = (true, BEHIND_TICKS);
        }
        cx.send(server, MasonMessage::from(ShardBehind { durable }));
    }

    /// A server of this host has executed what is below, and perhaps lacks what comes then.
    pub(super) fn on_lacking(&mut self, from: &Placed, cx: &mut Cx<'_, Self>) {
        let position = from.number.0.saturating_sub(1);
        let Some(stream) = self.stream(from.space) else { return };
        // What it executed before it last said so is answered by now; answers to the rest may be on their way.
        let answered = std::mem::replace(&mut stream.lacked, position).min(position);
        self.writing.forget_skipped(from.space, answered);
        let Some(stream) = self.stream(from.space) else { return };
        if stream.lags && position == stream.wanted && stream.quiet > 0 {
            return;
        }
        (stream.lags, stream.wanted) = (false, position);
        if position < stream.trimmed {
            let durable = Number(stream.trimmed + 1);
            return self.send_behind(from.space, durable, cx);
        }
        if position < stream.front() {
            cx.mark("feeder.played_again_what_a_server_lacked");
            stream.go_back(position);
        } else if stream.known <= stream.next {
            // It hears of nothing new: there may be something.
            stream.looks = true;
        }
    }

    /// Asks for what is known to be there, and how far colours go that somebody has to know.
    pub(super) fn fetch(&mut self, cx: &mut Cx<'_, Self>) {
        let last_barrier = self.last_barrier;
        for space in (0..self.streams.len() as u16).map(Space) {
            let Some(stream) = self.stream(space) else { return };
            stream.take_own();
            let (colour, next, known) = (stream.colour, stream.next, stream.known);
            let plays = known > next && !stream.plays && stream.ready_bytes < READY_BYTES_MAX;
            let syncs = !stream.syncs && (stream.looks || stream.synced < last_barrier);
            if plays {
                stream.plays = true;
                let to = stream.own.first_key_value().map_or(known, |(&position, _)| position.min(known));
                let call = PlayCall { colour, from: NodePosition(next), to: NodePosition(to) };
                self.ask(Asked::Play(space), FuzzyRequest::Play(call), cx);
            }
            if syncs {
                let Some(stream) = self.stream(space) else { return };
                (stream.syncs, stream.looks) = (true, false);
                // Each says for itself what it has seen: see the README.
                let (from, seen) = (NodePosition(known.max(next)), AppendTime::ZERO);
                let call = SyncCall { colour, from, seen };
                self.ask(Asked::Sync(space, last_barrier), FuzzyRequest::Sync(call), cx);
            }
        }
    }

    /// Lets nodes go that are next in all their spaces.
    pub(super) fn deliver(&mut self, cx: &mut Cx<'_, Self>) {
        self.streams.iter_mut().for_each(Stream::take_own);
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            for space in (0..self.streams.len() as u16).map(Space) {
                while self.deliver_next(space, cx) {
                    goes_on = true;
                }
            }
        }
    }

    fn deliver_next(&mut self, space: Space, cx: &mut Cx<'_, Self>) -> bool {
        let Some(head) = self.streams[usize::from(space.0)].ready.front() else { return false };
        let (position, at) = (head.position, head.at);
        if head.spaces.len() <= 1 {
            let numbers = [Placed { space, number: Number(position + 1) }];
            self.pass_on(space, &numbers, cx);
            return true;
        }
        if let Some(numbers) = self.shared.numbers(at) {
            // The other spaces have it: this one was played again.
            let numbers = numbers.to_vec();
            self.pass_on(space, &numbers, cx);
            return true;
        }
        let spaces = head.spaces.clone();
        let mut numbers = Vec::with_capacity(spaces.len());
        let mut is_gone = false;
        for &other in &spaces {
            let stream = &mut self.streams[usize::from(other.0)];
            match stream.ready.front() {
                Some(node) if node.at == at => {
                    numbers.push(Placed { space: other, number: Number(node.position + 1) });
                }
                Some(node) if node.at > at => is_gone = true,
                Some(_) => return false,
                None if stream.passed >= at => is_gone = true,
                None => {
                    stream.is_missed = true;
                    return false;
                }
            }
        }
        if is_gone {
            // It was trimmed there, so enough servers of this space have it in durable snapshots.
            cx.mark("feeder.found_half_of_a_node_trimmed");
            self.skip(space, cx);
            return true;
        }
        self.shared.insert(at, &numbers);
        for &other in &spaces {
            self.pass_on(other, &numbers, cx);
        }
        true
    }

    /// A node whose numbers are not known any more.
    fn skip(&mut self, space: Space, cx: &mut Cx<'_, Self>) {
        let Some(stream) = self.stream(space) else { return };
        let Some(node) = stream.leave() else { return };
        if node.position >= stream.wanted && !stream.lags {
            self.send_behind(space, Number(node.position + 2), cx);
        }
    }

    /// The next node of a space goes to its server, unless that has it.
    fn pass_on(&mut self, space: Space, numbers: &[Placed], cx: &mut Cx<'_, Self>) {
        let node_bytes = self.node_bytes;
        let Some(stream) = self.stream(space) else { return };
        let Some(node) = stream.leave() else { return };
        if node.position < stream.wanted || stream.lags {
            return;
        }
        let number = Number(node.position + 1);
        let gsn = Gsn(node.at.clock);
        let run = match Pack::decoded(&node.body) {
            Ok(Pack { origin, run, number: tag, time, operations: body }) => {
                let mut writer = Run::begin(space, number, time, node.body.len() + NODE_HEAD_BYTES);
                writer.push(numbers, gsn, &Operation { origin, incarnation: run, tag, body });
                writer.finish()
            }
            Err(_) => {
                cx.reject("node that no feeder has appended");
                let mut writer = Run::begin(space, number, 0, NODE_HEAD_BYTES);
                writer.push_no_op(gsn);
                writer.finish()
            }
        };
        let Some(run) = run else { return };
        stream.runs_bytes += run.size();
        stream.runs.push(run);
        if stream.runs_bytes >= node_bytes {
            self.send_runs(space, cx);
        }
    }

    fn send_runs(&mut self, space: Space, cx: &mut Cx<'_, Self>) {
        let Some(server) = self.server(space, cx) else { return };
        let Some(stream) = self.stream(space) else { return };
        stream.runs_bytes = 0;
        let runs = std::mem::take(&mut stream.runs);
        if !runs.is_empty() {
            let deliver = Deliver { group: GROUP, runs, cut: None, more: false };
            cx.send(server, MasonMessage::from(deliver));
        }
    }

    /// Sends the servers what has become theirs, and how far their spaces go.
    pub(super) fn hand_over(&mut self, cx: &mut Cx<'_, Self>) {
        for space in (0..self.streams.len() as u16).map(Space) {
            self.send_runs(space, cx);
            let Some(server) = self.server(space, cx) else { return };
            let Some(stream) = self.stream(space) else { return };
            if stream.known > stream.said {
                stream.said = stream.known;
                cx.send(server, MasonMessage::from(Reach { through: Number(stream.known) }));
            }
        }
    }
}
