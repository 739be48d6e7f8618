//! How a service's state is spread over more or fewer shards while it runs.
//!
//! ```text
//! shard a                         shard b (its server on the same host)
//!   | (the resharding is due)          |
//!   |   Inputs: parts of the state -->|  (the resharding is due)
//!   |<----------------------- Inputs  |
//!   |   Watched: what is watched ---->|
//!   |<---------------------- Watched  |
//!   | drops what leaves               | drops what leaves
//!   | takes what comes                | takes what comes
//! ```
//! The resharding is one operation of all shards that take part. All numbers below were chosen by the shard map before and all above
//! by this one, so no shard ever meets an operation that concerns it no more. The state crosses as the inputs of any operation over
//! several shards do: asked for in parts, retained until enough servers have it durably, the same from every server.
//!
//! What readers watch is a server's own, and goes from server to server on each host, before either executes anything further: the
//! new one notifies of all that comes after. Between giving and the resharding a server answers no reads, which could register more. A
//! server that a snapshot carries past the resharding gives what it has when it has taken that; the receiver compares.
//!
//! Reads name the shard map by which their shard was chosen. A shard that is not there yet lets them wait, one that is beyond refuses
//! them, and the reader asks again. Before a server reports or answers anything by a shard map it says so
//! ([`crate::messages::client::UsesShardMap`]).

use super::inputs::Part;
use super::{ShardQuery, ShardServer, WantWatched, Watched};
use crate::messages::client::{GatewayNotice, ReadAnswer, ReadAnswers, UsesShardMap};
use crate::order::{Gsn, Order, Space};
use crate::service::Shard;
use crate::topology::ShardMap;
use kernel::{Bytes, Cx, NodeId};
use std::collections::BTreeMap;

/// What a server knows of the shard map.
#[derive(Debug)]
pub(super) struct Resharding {
    /// Its shard map.
    shard_map: ShardMap,
    /// The version by which it has given away what is watched.
    given: u64,
    /// What it was given by others, by version.
    watched: BTreeMap<(u64, Space), Bytes>,
}

impl Resharding {
    pub(super) fn new(shard_map: ShardMap) -> Self {
        Self { given: shard_map.version, shard_map, watched: BTreeMap::new() }
    }

    /// No reads are answered.
    pub(super) fn is_in_flight(&self) -> bool {
        self.given > self.shard_map.version
    }

    pub(super) fn shard_map(&self) -> &ShardMap {
        &self.shard_map
    }
}

impl<S: Shard> ShardServer<S> {
    /// Its shard map.
    pub fn shard_map(&self) -> &ShardMap {
        self.resharding.shard_map()
    }

    /// False while nothing is spread over it.
    pub fn is_in_use(&self) -> bool {
        self.shard_map().spaces().any(|space| space == self.space)
    }

    /// What this shard says to the others at a resharding: something to everybody.
    pub(super) fn parts_leaving(&self, shard_map: &ShardMap, order: &Order) -> Vec<Part> {
        let resharded = self.service.as_resharded();
        let mut leaving =
            resharded.map_or_else(Vec::new, |it| it.leaving(shard_map, self.parameters.page_bytes));
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

    /// True if everything is here that this shard gets at the resharding that is due.
    pub(super) fn may_reshard(&mut self, shard_map: &ShardMap, cx: &mut Cx<'_, Self>) -> bool {
        if !self.has_inputs(cx) {
            return false;
        }
        if self.resharding.given < shard_map.version {
            let due = self.waiting.get(&self.next).map(|entry| entry.delivered.order.gsn);
            self.give_watches(shard_map, due.unwrap_or(self.executed), cx);
        }
        self.unwatched(shard_map).next().is_none()
    }

    /// The spaces that have not said what is watched there.
    fn unwatched(&self, shard_map: &ShardMap) -> impl Iterator<Item = Space> {
        let version = shard_map.version;
        let others = shard_map.spaces().filter(|&space| space != self.space);
        others.filter(move |&space| !self.resharding.watched.contains_key(&(version, space)))
    }

    fn give_watches(&mut self, shard_map: &ShardMap, through: Gsn, cx: &mut Cx<'_, Self>) {
        let version = shard_map.version;
        self.resharding.given = version;
        let resharded = self.service.as_resharded_mut();
        let leaving = resharded.map_or_else(Vec::new, |it| it.watches_leaving(shard_map, through));
        let leaving: BTreeMap<Space, Bytes> = leaving.into_iter().collect();
        if leaving.values().any(|watches| !watches.is_empty()) {
            cx.mark("shard.gave_watches_away");
        }
        for space in shard_map.spaces().filter(|&space| space != self.space) {
            if let Some(server) = self.server_here(space, cx) {
                let watches = leaving.get(&space).cloned().unwrap_or_default();
                cx.send(server, Watched { version, space: self.space, watches });
            }
        }
    }

    pub(super) fn on_watched(&mut self, message: Watched, cx: &mut Cx<'_, Self>) {
        let Watched { version, space, watches } = message;
        if version > self.resharding.shard_map.version {
            self.resharding.watched.entry((version, space)).or_insert(watches);
            return self.execute(cx);
        }
        self.take_watches(&watches, self.executed, cx);
    }

    fn take_watches(&mut self, watches: &Bytes, gsn: Gsn, cx: &mut Cx<'_, Self>) {
        if watches.is_empty() || kernel::planted!(watches_lost_in_resharding) {
            return;
        }
        if let Some(resharded) = self.service.as_resharded_mut() {
            resharded.take_watches(watches, &mut self.out);
        }
        for (reader, body) in self.out.notices.drain(..) {
            cx.send(reader, GatewayNotice { space: self.space, gsn, body });
        }
    }

    /// Asks those that have not said what is watched there: they may have, in an earlier incarnation.
    pub(super) fn ask_what_is_watched(&mut self, shard_map: &ShardMap, cx: &mut Cx<'_, Self>) {
        let silent: Vec<Space> = self.unwatched(shard_map).collect();
        for space in silent {
            if let Some(server) = self.server_here(space, cx) {
                cx.send(server, WantWatched { version: shard_map.version, space: self.space });
            }
        }
    }

    pub(super) fn on_want_watched(&mut self, from: NodeId, message: &WantWatched, cx: &mut Cx<'_, Self>) {
        // What was given in this incarnation has arrived before; in an earlier one, the readers that watched are gone.
        if self.resharding.given >= message.version {
            let (version, space) = (message.version, self.space);
            cx.send(from, Watched { version, space, watches: Bytes::new() });
        }
    }

    pub(super) fn reshard(&mut self, shard_map: ShardMap, order: &Order, cx: &mut Cx<'_, Self>) {
        cx.mark(if shard_map.shards > shard_map.before {
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
            resharded.reshard(&shard_map, order, &pages);
        }
        self.come_to(shard_map, order.gsn, cx);
        // What was given away is retained for the others until they have it durably, which a snapshot of theirs brings about.
        self.due.hurry();
    }

    /// The shard map from here on.
    pub(super) fn come_to(&mut self, shard_map: ShardMap, gsn: Gsn, cx: &mut Cx<'_, Self>) {
        let version = shard_map.version;
        self.resharding.given = self.resharding.given.max(version);
        self.resharding.shard_map = shard_map;
        for observer in self.observers.clone() {
            self.report_shard_map(observer, cx);
        }
        let later = self.resharding.watched.split_off(&(version + 1, Space(0)));
        let taken = std::mem::replace(&mut self.resharding.watched, later);
        for watches in taken.into_values() {
            self.take_watches(&watches, gsn, cx);
        }
    }

    /// A snapshot was restored in this incarnation's beginning, or is about to be installed.
    pub(super) fn restore_shard_map(&mut self, shard_map: ShardMap) {
        if let Some(resharded) = self.service.as_resharded_mut() {
            resharded.use_shard_map(&shard_map);
        }
        self.resharding.given = self.resharding.given.max(shard_map.version);
        self.resharding.shard_map = shard_map;
    }

    /// A snapshot was installed that has this shard map: the resharding will not be executed here.
    pub(super) fn skip_reshard(&mut self, before: &ShardMap, cx: &mut Cx<'_, Self>) {
        let shard_map = self.resharding.shard_map.clone();
        if shard_map.version > before.version {
            cx.mark("shard.skipped_a_resharding");
            self.give_watches(&shard_map, self.executed, cx);
            self.come_to(shard_map, self.executed, cx);
        }
    }

    pub(super) fn report_shard_map(&mut self, to: NodeId, cx: &mut Cx<'_, Self>) {
        let shard_map = self.resharding.shard_map.clone();
        if shard_map.version > 0 && !kernel::planted!(resharding_not_announced) {
            cx.send(to, UsesShardMap { space: self.space, shard_map });
        }
    }

    /// These were meant for the shard map before.
    pub(super) fn refuse_reads(&mut self, reader: NodeId, reads: Vec<ShardQuery>, cx: &mut Cx<'_, Self>) {
        cx.mark("shard.refused_reads_of_an_old_shard_map");
        let answers = reads.into_iter().map(|query| ReadAnswer { tag: query.tag, body: Bytes::new() });
        let (space, executed, refused) = (self.space, self.executed, Some(self.resharding.shard_map.clone()));
        let answers = answers.collect();
        cx.send(reader, ReadAnswers { space, executed, answers, refused, withheld: None });
    }
}
