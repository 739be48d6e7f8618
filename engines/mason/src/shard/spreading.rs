//! How a service's state is spread over more or fewer shards while it runs.
//!
//! ```text
//! shard a                         shard b (its server on the same host)
//!   | (the hand-over is due)          |
//!   |   Inputs: parts of the state -->|  (the hand-over is due)
//!   |<----------------------- Inputs  |
//!   |   Watched: what is watched ---->|
//!   |<---------------------- Watched  |
//!   | drops what leaves               | drops what leaves
//!   | takes what comes                | takes what comes
//! ```
//! The hand-over is one operation of all shards that take part. All numbers below were chosen by the spread before and all above
//! by this one, so no shard ever meets an operation that concerns it no more. The state crosses as the inputs of any operation over
//! several shards do: asked for in parts, kept until enough servers have it durably, the same from every server.
//!
//! What readers watch is a server's own, and goes from server to server on each host, before either executes anything further: the
//! new one tells of all that comes after. Between giving and the hand-over a server answers no reads, which could register more. A
//! server that a snapshot carries past the hand-over gives what it has when it has taken that; whoever takes it compares.
//!
//! Reads name the spread by which their shard was chosen. A shard that is not there yet lets them wait, one that is beyond refuses
//! them, and the reader asks again. Before a server tells or answers anything by a spread it says so ([`crate::messages::client::Spreads`]).

use super::inputs::Part;
use super::{Query, ShardServer, WantWatched, Watched};
use crate::messages::client::{Notice, ReadAnswer, ReadAnswers, Spreads};
use crate::order::{Order, Space, Stamp};
use crate::service::Shard;
use crate::topology::Spread;
use kernel::{Bytes, Cx, NodeId};
use std::collections::BTreeMap;

/// What a server knows of how the state is spread.
#[derive(Debug)]
pub(super) struct Spreading {
    /// What its state is spread by.
    spread: Spread,
    /// The version by which it has given away what is watched.
    given: u64,
    /// What it was given by others, by version.
    watched: BTreeMap<(u64, Space), Bytes>,
}

impl Spreading {
    pub(super) fn new(spread: Spread) -> Self {
        Self { given: spread.version, spread, watched: BTreeMap::new() }
    }

    /// No reads are answered.
    pub(super) fn is_under_way(&self) -> bool {
        self.given > self.spread.version
    }

    pub(super) fn spread(&self) -> &Spread {
        &self.spread
    }
}

impl<S: Shard> ShardServer<S> {
    /// How its state is spread.
    pub fn spread(&self) -> &Spread {
        self.spreading.spread()
    }

    /// False while nothing is spread over it.
    pub fn is_in_use(&self) -> bool {
        self.spread().spaces().any(|space| space == self.space)
    }

    /// What this shard says to the others at a hand-over: something to everybody.
    pub(super) fn parts_leaving(&self, spread: &Spread, order: &Order) -> Vec<Part> {
        let resharded = self.service.as_resharded();
        let mut leaving =
            resharded.map_or_else(Vec::new, |it| it.leaving(spread, self.parameters.page_bytes));
        for placed in order.numbers.iter().filter(|placed| placed.space != self.space) {
            if !leaving.iter().any(|(space, pages)| *space == placed.space && !pages.is_empty()) {
                leaving.push((placed.space, vec![Bytes::new()]));
            }
        }
        let parts = leaving
            .into_iter()
            .flat_map(|(space, pages)| pages.into_iter().map(move |bytes| Part { to: Some(space), bytes }));
        parts.collect()
    }

    /// True if everything is here that this shard gets at the hand-over that is due.
    pub(super) fn may_hand_over(&mut self, spread: &Spread, cx: &mut Cx<'_, Self>) -> bool {
        if !self.has_inputs(cx) {
            return false;
        }
        if self.spreading.given < spread.version {
            let due = self.waiting.get(&self.next).map(|entry| entry.delivered.order.stamp);
            self.give_watches(spread, due.unwrap_or(self.executed), cx);
        }
        self.unwatched(spread).next().is_none()
    }

    /// The spaces that have not said what is watched there.
    fn unwatched(&self, spread: &Spread) -> impl Iterator<Item = Space> {
        let version = spread.version;
        let others = spread.spaces().filter(|&space| space != self.space);
        others.filter(move |&space| !self.spreading.watched.contains_key(&(version, space)))
    }

    fn give_watches(&mut self, spread: &Spread, through: Stamp, cx: &mut Cx<'_, Self>) {
        let version = spread.version;
        self.spreading.given = version;
        let resharded = self.service.as_resharded_mut();
        let leaving = resharded.map_or_else(Vec::new, |it| it.watches_leaving(spread, through));
        let leaving: BTreeMap<Space, Bytes> = leaving.into_iter().collect();
        if leaving.values().any(|watches| !watches.is_empty()) {
            cx.mark("shard.gave_watches_away");
        }
        for space in spread.spaces().filter(|&space| space != self.space) {
            if let Some(server) = self.server_here(space, cx) {
                let watches = leaving.get(&space).cloned().unwrap_or_default();
                cx.send(server, Watched { version, space: self.space, watches });
            }
        }
    }

    pub(super) fn on_watched(&mut self, message: Watched, cx: &mut Cx<'_, Self>) {
        let Watched { version, space, watches } = message;
        if version > self.spreading.spread.version {
            self.spreading.watched.entry((version, space)).or_insert(watches);
            return self.execute(cx);
        }
        self.take_watches(&watches, self.executed, cx);
    }

    fn take_watches(&mut self, watches: &Bytes, stamp: Stamp, cx: &mut Cx<'_, Self>) {
        if watches.is_empty() || kernel::planted!(watches_lost_in_resharding) {
            return;
        }
        if let Some(resharded) = self.service.as_resharded_mut() {
            resharded.take_watches(watches, &mut self.out);
        }
        for (reader, body) in self.out.notices.drain(..) {
            cx.send(reader, Notice { space: self.space, stamp, body });
        }
    }

    /// Asks those that have not said what is watched there: they may have, in an earlier life.
    pub(super) fn ask_what_is_watched(&mut self, spread: &Spread, cx: &mut Cx<'_, Self>) {
        let silent: Vec<Space> = self.unwatched(spread).collect();
        for space in silent {
            if let Some(server) = self.server_here(space, cx) {
                cx.send(server, WantWatched { version: spread.version, space: self.space });
            }
        }
    }

    pub(super) fn on_want_watched(&mut self, from: NodeId, message: &WantWatched, cx: &mut Cx<'_, Self>) {
        // What was given in this life has arrived before; in an earlier one, whoever watched is gone.
        if self.spreading.given >= message.version {
            let (version, space) = (message.version, self.space);
            cx.send(from, Watched { version, space, watches: Bytes::new() });
        }
    }

    pub(super) fn hand_over(&mut self, spread: Spread, order: &Order, cx: &mut Cx<'_, Self>) {
        cx.mark(if spread.shards > spread.before {
            "shard.handed_over_to_more"
        } else {
            "shard.handed_over_to_fewer"
        });
        let others = order.numbers.iter().filter(|placed| placed.space != self.space);
        let pages: Vec<(Space, Vec<Bytes>)> = others
            .filter_map(|placed| Some((placed.space, self.inputs.take(self.next, placed.space)?)))
            .collect();
        let bytes: usize = pages.iter().flat_map(|(_, pages)| pages).map(Bytes::len).sum();
        self.due.count_executed(bytes + 64);
        if let Some(resharded) = self.service.as_resharded_mut() {
            resharded.hand_over(&spread, order, &pages);
        }
        self.come_to(spread, order.stamp, cx);
        // What was given away is kept for the others until they have it durably, which a snapshot of theirs brings about.
        self.due.hurry();
    }

    /// The state is spread so from here on.
    pub(super) fn come_to(&mut self, spread: Spread, stamp: Stamp, cx: &mut Cx<'_, Self>) {
        let version = spread.version;
        self.spreading.given = self.spreading.given.max(version);
        self.spreading.spread = spread;
        for observer in self.observers.clone() {
            self.tell_spread(observer, cx);
        }
        let later = self.spreading.watched.split_off(&(version + 1, Space(0)));
        let taken = std::mem::replace(&mut self.spreading.watched, later);
        for watches in taken.into_values() {
            self.take_watches(&watches, stamp, cx);
        }
    }

    /// A snapshot was restored in this life's beginning, or is about to be installed.
    pub(super) fn restore_spread(&mut self, spread: Spread) {
        if let Some(resharded) = self.service.as_resharded_mut() {
            resharded.spread_over(&spread);
        }
        self.spreading.given = self.spreading.given.max(spread.version);
        self.spreading.spread = spread;
    }

    /// A snapshot was installed that is spread so: the hand-over will not be executed here.
    pub(super) fn skip_hand_over(&mut self, before: &Spread, cx: &mut Cx<'_, Self>) {
        let spread = self.spreading.spread.clone();
        if spread.version > before.version {
            cx.mark("shard.skipped_a_hand_over");
            self.give_watches(&spread, self.executed, cx);
            self.come_to(spread, self.executed, cx);
        }
    }

    pub(super) fn tell_spread(&mut self, to: NodeId, cx: &mut Cx<'_, Self>) {
        let spread = self.spreading.spread.clone();
        if spread.version > 0 && !kernel::planted!(resharding_not_announced) {
            cx.send(to, Spreads { space: self.space, spread });
        }
    }

    /// These were meant for the spread before.
    pub(super) fn refuse_reads(&mut self, reader: NodeId, reads: Vec<Query>, cx: &mut Cx<'_, Self>) {
        cx.mark("shard.refused_reads_of_an_old_spread");
        let answers = reads.into_iter().map(|query| ReadAnswer { tag: query.tag, body: Bytes::new() });
        let (space, executed, refused) = (self.space, self.executed, Some(self.spreading.spread.clone()));
        let answers = answers.collect();
        cx.send(reader, ReadAnswers { space, executed, answers, refused, withheld: None });
    }
}
