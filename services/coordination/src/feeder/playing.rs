//! The nodes of the colour: plays what is new, and retains what is not handed over.

use super::{Asked, COLOUR, TreeFeeder};
use crate::feeder::pack::Pack;
use ::fuzzylog::{AppendTime, FuzzyRequest, NodePosition, PlayCall, PlayOutcome, SyncCall};
use kernel::{Bytes, Cx, Decode as _};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of nodes that wait to be handed over; beyond it no more are played.
const READY_BYTES_MAX: usize = 4 << 20;
/// Own nodes that are known by their answers; others are played like everybody's.
const OWN_MAX: usize = 64;
/// What a node is taken for beside its body.
const NODE_HEAD_BYTES: usize = 128;
/// Retained bytes are counted in steps of so many.
const COUNTED_BYTES: u64 = 64 << 10;

/// A node of the colour.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) position: u64,
    pub(super) body: Bytes,
    /// None if no feeder has appended it.
    pub(super) pack: Option<Pack>,
}

impl Node {
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + NODE_HEAD_BYTES
    }
}

/// What is known of the colour.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// The next position that is to be played.
    next: u64,
    /// Positions below this are there.
    known: u64,
    /// Positions below this are gone.
    trimmed: u64,
    /// Nodes below `next` that are not handed over yet, one after the other.
    ready: VecDeque<Node>,
    ready_bytes: usize,
    /// Own nodes that are not played yet, by position.
    own: BTreeMap<u64, Bytes>,
    plays: bool,
    syncs: bool,
    /// Others may have appended.
    looks: bool,
    /// Barriers up to this one have been synced.
    synced: u64,
    /// Bytes of nodes that were played, and how many below some positions.
    played_bytes: u64,
    counted_below: u64,
    counted: VecDeque<(u64, u64)>,
    trimmed_bytes: u64,
}

impl Stream {
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    pub(super) fn trimmed(&self) -> u64 {
        self.trimmed
    }

    pub(super) fn retained_bytes(&self) -> u64 {
        self.played_bytes.saturating_sub(self.trimmed_bytes)
    }

    /// True if something is to come.
    pub(super) fn waits(&self) -> bool {
        self.looks || !self.ready.is_empty() || self.known > self.next
    }

    pub(super) fn describe(&self) -> String {
        let Self { next, known, trimmed, ready, .. } = self;
        format!("played below {next} of {known}, trimmed below {trimmed}, {} ready", ready.len())
    }

    /// Positions below this are there.
    pub(super) fn learn(&mut self, known: u64) {
        self.known = self.known.max(known);
    }

    /// Others may have appended.
    pub(super) fn look(&mut self) {
        self.looks = true;
    }

    /// True if it has played all that it knows of.
    pub(super) fn is_at_the_end(&self) -> bool {
        self.known <= self.next
    }

    /// An own node was answered.
    pub(super) fn add_own(&mut self, position: u64, body: &Bytes) {
        if position >= self.next && self.own.len() < OWN_MAX {
            self.own.insert(position, body.clone());
        }
    }

    /// The node at a position, if it was played and is not handed over.
    pub(super) fn node(&self, position: u64) -> Option<&Node> {
        let first = self.ready.front()?.position;
        self.ready.get(usize::try_from(position.checked_sub(first)?).ok()?)
    }

    /// Nodes below a position are not needed any more.
    pub(super) fn drop_below(&mut self, position: u64) {
        while let Some(node) = self.ready.pop_front_if(|node| node.position < position) {
            self.ready_bytes -= node.bytes();
        }
    }

    /// Plays from here on, unless that is what it does.
    pub(super) fn go_to(&mut self, position: u64) {
        let first = self.ready.front().map_or(self.next, |node| node.position);
        if (first..=self.next).contains(&position) {
            return;
        }
        self.ready.clear();
        (self.ready_bytes, self.next) = (0, position);
        self.own = self.own.split_off(&position);
        self.known = self.known.max(position);
    }

    fn take(&mut self, position: u64, body: Bytes) -> Option<&Node> {
        if position != self.next {
            return None;
        }
        self.next += 1;
        self.known = self.known.max(self.next);
        let pack = Pack::decoded(&body).ok();
        let node = Node { position, body, pack };
        // What is played again counts once.
        if position >= self.counted_below {
            self.counted_below = position + 1;
            self.played_bytes += node.bytes() as u64;
            if self.counted.back().is_none_or(|&(_, bytes)| self.played_bytes >= bytes + COUNTED_BYTES) {
                self.counted.push_back((position, self.played_bytes));
            }
        }
        self.ready_bytes += node.bytes();
        self.ready.push_back(node);
        self.ready.back()
    }

    /// Positions below this are gone.
    pub(super) fn lose(&mut self, first: u64) {
        self.trimmed = self.trimmed.max(first);
        self.known = self.known.max(first);
        while let Some((_, bytes)) = self.counted.pop_front_if(|&mut (position, _)| position < first) {
            self.trimmed_bytes = bytes;
        }
    }
}

impl TreeFeeder {
    /// Takes a node, if it is the next one, and notes what it says of other feeders.
    fn take_node(&mut self, position: u64, body: Bytes, cx: &mut Cx<'_, Self>) {
        let Some(node) = self.stream.take(position, body) else { return };
        let Some(pack) = &node.pack else { return cx.reject("node that no feeder has appended") };
        let trimmed = pack.trimmed;
        self.ticking.look_at(position, pack, self.handing.shard_map(), cx.now());
        if trimmed > self.stream.trimmed() {
            self.lose(trimmed, cx);
        }
    }

    pub(super) fn take_own(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(entry) = self.stream.own.first_entry() {
            match entry.key().cmp(&self.stream.next) {
                std::cmp::Ordering::Less => drop(entry.remove()),
                std::cmp::Ordering::Equal => {
                    let (position, body) = entry.remove_entry();
                    self.take_node(position, body, cx);
                }
                std::cmp::Ordering::Greater => return,
            }
        }
    }

    fn take_page(&mut self, from: u64, bodies: Vec<Bytes>, cx: &mut Cx<'_, Self>) {
        for (position, body) in (from..).zip(bodies) {
            self.take_own(cx);
            self.take_node(position, body, cx);
        }
    }

    pub(super) fn on_played(&mut self, outcome: PlayOutcome, cx: &mut Cx<'_, Self>) {
        self.stream.plays = false;
        match outcome {
            PlayOutcome::Page(page) => {
                let bodies = page.nodes.into_iter().map(|node| node.body).collect();
                self.take_page(page.from.0, bodies, cx);
            }
            PlayOutcome::Gone(first) => self.on_gone(first, cx),
            // Asked again at the next tick.
            PlayOutcome::Failed => {}
        }
    }

    pub(super) fn on_synced(&mut self, barrier: u64, outcome: PlayOutcome, cx: &mut Cx<'_, Self>) {
        self.stream.syncs = false;
        match outcome {
            PlayOutcome::Page(page) => {
                self.stream.synced = self.stream.synced.max(barrier);
                self.stream.learn(page.tail.0);
                for waiting in self.barriers.iter_mut().filter(|waiting| waiting.number <= barrier) {
                    waiting.through.get_or_insert(page.tail.0);
                }
                let bodies = page.nodes.into_iter().map(|node| node.body).collect();
                self.take_page(page.from.0, bodies, cx);
            }
            PlayOutcome::Gone(first) => {
                // It has not said how far the colour goes.
                self.stream.looks = true;
                self.on_gone(first, cx);
            }
            PlayOutcome::Failed => self.stream.looks = true,
        }
    }

    /// Nodes below `first` are trimmed: who lacks them takes a snapshot that has them.
    fn on_gone(&mut self, first: NodePosition, cx: &mut Cx<'_, Self>) {
        cx.mark("tree_feeder.found_nodes_trimmed");
        self.lose(first.0, cx);
    }

    /// Asks for what is known to be there, and how far the colour goes if somebody has to know.
    pub(super) fn fetch(&mut self, cx: &mut Cx<'_, Self>) {
        let last_barrier = self.last_barrier;
        let stream = &mut self.stream;
        let has_room = stream.ready_bytes < READY_BYTES_MAX && self.handing.takes();
        if stream.known > stream.next && !stream.plays && has_room {
            stream.plays = true;
            let to = stream.own.first_key_value().map_or(stream.known, |(&own, _)| own.min(stream.known));
            let (from, to) = (NodePosition(stream.next), NodePosition(to));
            self.ask(Asked::Play, FuzzyRequest::Play(PlayCall { colour: COLOUR, from, to }), cx);
        }
        let stream = &mut self.stream;
        if !stream.syncs && (stream.looks || stream.synced < last_barrier) {
            (stream.syncs, stream.looks) = (true, false);
            let from = NodePosition(stream.known.max(stream.next));
            let call = SyncCall { colour: COLOUR, from, seen: AppendTime::ZERO };
            self.ask(Asked::Sync(last_barrier), FuzzyRequest::Sync(call), cx);
        }
    }
}
