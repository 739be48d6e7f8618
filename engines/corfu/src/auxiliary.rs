//! An auxiliary: keeps the projections, decides them with the others, and replaces what has failed.
//!
//! ```text
//! auxiliary          storage servers          auxiliaries             sequencer
//!   | Seal                 |                      |                       |
//!   |--------------------->| (fsync)              |                       |
//!   |<------------ SealAck |                      |                       |
//!   | Prepare                                     | (fsync)               |
//!   |-------------------------------------------->|                       |
//!   |<----------------------------------- Promise |                       |
//!   | Accept                                      | (fsync)               |
//!   |-------------------------------------------->|                       |
//!   |<---------------------------------- Accepted |                       |
//!   | Install                                     |                       |
//!   |-------------------------------------------->|     Begin             |
//!   |-------------------------------------------------------------------->|
//! ```
//! The projection of an epoch is decided once, by single-decree Paxos among the auxiliaries; each message of an epoch carries, or
//! follows, the projection before it, so that a server that was away learns that first.
//!
//! **Who votes.** Those auxiliaries whose journals the projection before means. One that lost its disk forgets its votes, so it has
//! none, and proposes nothing, until the others have put its new journal into a projection. The first change is the log's bootstrap: it
//! needs every auxiliary, every server and a sequencer, and says by which journals they are meant.

mod change;
mod healing;

use crate::Corfu;
pub use crate::messages::auxiliary::*;
use crate::messages::client;
use crate::messages::sequencer::{self, Begin};
use crate::messages::storage;
use crate::projection::{Epoch, JournalId, Parameters, Projection};
use change::Change;
pub use healing::Learner;
use healing::{Comeback, Patience};
use kernel::{AwaitedTimers, Cx, Instant, NodeId, Position, Role};
use parts::Ballot;
use std::collections::BTreeMap;
use std::time::Duration;

kernel::timers! {
    /// The auxiliary's timers.
    pub enum AuxiliaryTimer {
        /// Ask who is there, and go on with what waits.
        Tick,
    }
}

kernel::record! {
    /// What an auxiliary must not forget.
    pub struct AuxiliaryRecord {
        /// The last projection that it knows to be decided.
        installed: Projection,
        /// The ballot below which it does not vote on the next one.
        promised: Ballot,
        /// What it has accepted for the next one.
        accepted: Option<Vote>,
        /// Its incarnation.
        journal: Option<JournalId>,
    }
}

/// Keeps projections.
///
/// Invariant: a projection that a majority of the auxiliaries which the one before means has accepted in one ballot is the only one of
/// its epoch that is ever installed; in one that is proposed, each server of a chain has all that was acknowledged.
#[derive(Clone, Debug)]
pub struct Auxiliary {
    /// All auxiliaries, this one too.
    peers: Vec<NodeId>,
    /// Who may be the sequencer.
    sequencers: Vec<NodeId>,
    /// Who may be in each chain.
    candidates: Vec<Vec<NodeId>>,
    /// How many servers each chain is to have.
    widths: Vec<usize>,
    parameters: Parameters,
    state: AuxiliaryRecord,
    /// When each incarnation of a server, sequencer or auxiliary was heard last.
    heard: BTreeMap<(NodeId, JournalId), Instant>,
    /// What storage servers said last of themselves.
    statuses: BTreeMap<NodeId, StorageStatus>,
    /// Servers that have to wait before they are let in again.
    comebacks: BTreeMap<NodeId, Comeback>,
    /// Since when servers are known to be sealed for an epoch that is not installed.
    beyond_since: Option<Instant>,
    /// True if the sequencer of the epoch is there and does not serve it any more.
    restarted: bool,
    change: Option<Change>,
    /// No change is begun before.
    patient_until: Instant,
    patience: Patience,
    /// Servers that were taken for failed and not heard since, and in which run they were.
    suspected: BTreeMap<NodeId, u64>,
    /// A sequencer of which the same holds.
    suspected_sequencer: Option<NodeId>,
}

impl Auxiliary {
    /// One of `peers`, in a log that begins with `initial`.
    pub fn new(
        peers: Vec<NodeId>,
        sequencers: Vec<NodeId>,
        initial: Projection,
        parameters: Parameters,
    ) -> Self {
        Self {
            peers,
            sequencers,
            candidates: initial.chains.clone(),
            widths: initial.chains.iter().map(Vec::len).collect(),
            parameters,
            state: AuxiliaryRecord {
                installed: initial,
                promised: Ballot::ZERO,
                accepted: None,
                journal: None,
            },
            heard: BTreeMap::new(),
            statuses: BTreeMap::new(),
            comebacks: BTreeMap::new(),
            beyond_since: None,
            restarted: false,
            change: None,
            patient_until: Instant(0),
            patience: Patience::new(),
            suspected: BTreeMap::new(),
            suspected_sequencer: None,
        }
    }

    /// The same, with servers for each chain that come in when others are lost.
    #[must_use]
    pub fn with_spares(mut self, spares: &[Vec<NodeId>]) -> Self {
        for (candidates, spares) in self.candidates.iter_mut().zip(spares) {
            candidates.extend(spares);
        }
        self
    }

    /// The last projection that it knows to be decided.
    pub fn installed(&self) -> &Projection {
        &self.state.installed
    }

    /// What it must not forget.
    pub fn record(&self) -> &AuxiliaryRecord {
        &self.state
    }

    /// Its journal's name; none before it has started.
    pub fn journal(&self) -> Option<JournalId> {
        self.state.journal
    }

    /// True while it is changing the projection itself.
    pub fn has_begun_a_change(&self) -> bool {
        self.change.is_some()
    }

    /// True while it is changing the projection, or has accepted one that may be decided.
    pub fn is_changing(&self) -> bool {
        self.change.is_some() || self.state.accepted.is_some()
    }

    fn keep(&mut self, cx: &mut Cx<'_, Self>) {
        let position = cx.append(&self.state);
        cx.trim(position);
    }

    fn others(&self, me: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.peers.iter().copied().filter(move |&peer| peer != me)
    }

    /// All that may ever keep entries.
    fn all_candidates(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.candidates.iter().flatten().copied()
    }

    /// Whether an auxiliary's answer counts.
    fn has_vote(&self, peer: NodeId, journal: Option<JournalId>) -> bool {
        let installed = &self.state.installed;
        let meant =
            !installed.is_bootstrapped() || journal.is_some_and(|journal| installed.means(peer, journal));
        meant && self.peers.contains(&peer)
    }

    /// Whether so many answers that count decide; a bootstrap needs all, since nobody knows yet who has lost what.
    fn is_quorum(&self, count: usize) -> bool {
        let all = self.peers.len();
        if self.state.installed.is_bootstrapped() { 2 * count > all } else { count == all }
    }

    fn hear(&mut self, node: NodeId, journal: Option<JournalId>, now: Instant) {
        if let Some(journal) = journal {
            self.heard.insert((node, journal), now);
        }
    }

    /// A server that was not heard for so long is taken for failed.
    fn suspect_after(&self) -> Duration {
        let longest = self.parameters.suspect_max.max(self.parameters.suspect_after);
        (self.parameters.suspect_after * self.patience.factor()).min(longest)
    }

    /// The incarnation of a node that was heard last, unless that was long ago.
    fn journal_of(&self, node: NodeId, now: Instant) -> Option<JournalId> {
        let journals = self.heard.range((node, JournalId(0))..=(node, JournalId(u64::MAX)));
        let (&(_, journal), &at) = journals.max_by_key(|(_, at)| **at)?;
        (now.since(at) <= self.suspect_after()).then_some(journal)
    }

    /// True if the node, as the projection means it, was not heard for long.
    fn is_silent(&self, node: NodeId, now: Instant) -> bool {
        let installed = &self.state.installed;
        let journals = self.heard.range((node, JournalId(0))..=(node, JournalId(u64::MAX)));
        let mut meant = journals
            .filter(|((_, journal), _)| !installed.is_bootstrapped() || installed.means(node, *journal));
        !meant.any(|(_, &at)| now.since(at) <= self.suspect_after())
    }

    fn install(&mut self, projection: Projection, cx: &mut Cx<'_, Self>) {
        if projection.epoch <= self.state.installed.epoch || !projection.is_sound() {
            return;
        }
        // A server that serves from now on is given the time to be heard.
        let now = cx.now();
        self.hear_all_of(&projection, now);
        self.note_who_left(&projection, cx);
        let journal = self.state.journal;
        self.state =
            AuxiliaryRecord { installed: projection, promised: Ballot::ZERO, accepted: None, journal };
        (self.change, self.beyond_since, self.restarted) = (None, None, false);
        self.keep(cx);
    }

    fn hear_all_of(&mut self, projection: &Projection, now: Instant) {
        let serving = projection.journals.iter().filter(|lived| !self.peers.contains(&lived.node));
        self.heard.extend(serving.map(|lived| ((lived.node, lived.journal), now)));
    }

    /// Reports to everybody who serves what was just decided.
    fn announce(&self, cx: &mut Cx<'_, Self>) {
        let projection = &self.state.installed;
        for peer in self.others(cx.node()) {
            cx.send_durable(peer, Install { projection: projection.clone() });
        }
        for server in self.all_candidates() {
            self.notify(server, cx);
        }
        self.begin_sequencer(cx);
    }

    fn begin_sequencer(&self, cx: &mut Cx<'_, Self>) {
        let installed = &self.state.installed;
        let Projection { epoch, sequencer, first, .. } = *installed;
        if installed.is_bootstrapped() {
            cx.send_durable(sequencer, Begin { epoch, first, journal: installed.journal(sequencer) });
        }
    }

    fn on_want_projection(&mut self, client: NodeId, epoch: Epoch, cx: &mut Cx<'_, Self>) {
        if self.state.installed.epoch >= epoch {
            let projection = self.state.installed.clone();
            cx.send_durable(client, client::Installed { projection });
        }
    }

    fn on_pong(&mut self, from: NodeId, message: StoragePong, cx: &mut Cx<'_, Self>) {
        let StoragePong { epoch, status } = message;
        let Some(status) = status.filter(|_| self.all_candidates().any(|it| it == from)) else {
            return cx.reject("word of a server that is not of this log");
        };
        self.hear(from, Some(status.journal), cx.now());
        self.see_epoch(epoch, cx.now());
        if self.suspected.remove(&from) == Some(status.run) {
            self.was_wrong(cx);
        }
        if status.reported < self.state.installed.epoch {
            self.notify(from, cx);
        }
        self.statuses.insert(from, status);
    }

    fn see_epoch(&mut self, epoch: Epoch, now: Instant) {
        if epoch > self.state.installed.epoch {
            self.beyond_since.get_or_insert(now);
        }
    }

    fn on_sequencer_pong(&mut self, from: NodeId, message: &SequencerPong, cx: &mut Cx<'_, Self>) {
        if !self.sequencers.contains(&from) {
            return cx.reject("word of a sequencer that is not of this log");
        }
        self.hear(from, message.journal, cx.now());
        if self.suspected_sequencer.take_if(|it| *it == from).is_some() && message.serves {
            self.was_wrong(cx);
        }
        let Projection { epoch, sequencer, .. } = self.state.installed;
        if from != sequencer || self.state.installed.journal(sequencer) != message.journal {
            return;
        }
        if message.began < epoch {
            self.begin_sequencer(cx);
        } else if message.began == epoch && !message.serves {
            self.restarted = true;
        }
    }

    fn on_hello(&mut self, from: NodeId, message: &Hello, cx: &mut Cx<'_, Self>) {
        if !self.peers.contains(&from) {
            return cx.reject("word of an auxiliary that is not of this log");
        }
        self.hear(from, message.journal, cx.now());
        if message.epoch < self.state.installed.epoch {
            cx.send_durable(from, Install { projection: self.state.installed.clone() });
        }
    }

    fn on_prepare(&mut self, from: NodeId, message: Prepare, cx: &mut Cx<'_, Self>) {
        let Prepare { base, ballot } = message;
        if base.epoch < self.state.installed.epoch {
            return cx.send_durable(from, Install { projection: self.state.installed.clone() });
        }
        self.install(base, cx);
        let epoch = self.state.installed.epoch.next();
        if ballot < self.state.promised {
            return cx.send_durable(from, Refused { epoch, promised: self.state.promised });
        }
        if ballot > self.state.promised {
            self.state.promised = ballot;
            self.keep(cx);
        }
        let voted = self.state.accepted.as_ref().map(|vote| vote.ballot);
        kernel::invariant!(AGREE, voted <= Some(ballot), "promises {ballot:?} after a vote in {voted:?}");
        let (accepted, journal) = (self.state.accepted.clone(), self.state.journal);
        cx.send_durable(from, Promise { epoch, ballot, accepted, journal });
    }

    fn on_accept(&mut self, from: NodeId, vote: Vote, cx: &mut Cx<'_, Self>) {
        let (epoch, ballot) = (vote.projection.epoch, vote.ballot);
        if epoch <= self.state.installed.epoch {
            return cx.send_durable(from, Install { projection: self.state.installed.clone() });
        }
        // One that lacks the projection before has not promised anything either.
        if epoch != self.state.installed.epoch.next() || !vote.projection.is_sound() {
            return cx.reject("a vote on a projection that does not follow");
        }
        if ballot < self.state.promised {
            return cx.send_durable(from, Refused { epoch, promised: self.state.promised });
        }
        let again = self.state.accepted.as_ref() == Some(&vote);
        if !again {
            (self.state.promised, self.state.accepted) = (ballot, Some(vote));
            self.keep(cx);
        }
        let promised = self.state.promised;
        kernel::invariant!(AGREE, promised == ballot, "votes in {ballot:?}, with a promise of {promised:?}");
        cx.send_durable(from, Accepted { epoch, ballot, journal: self.state.journal });
    }

    fn tick(&mut self, cx: &mut Cx<'_, Self>) {
        let (me, now, epoch) = (cx.node(), cx.now(), self.state.installed.epoch);
        self.patience.calm_down(now, self.parameters.suspect_after);
        let forget_after = self.suspect_after() * FORGET;
        self.heard.retain(|_, at| now.since(*at) <= forget_after);
        self.hear(me, self.state.journal, now);
        cx.repeat(self.all_candidates(), storage::Ping {});
        cx.repeat(self.sequencers.iter().copied(), sequencer::Ping {});
        cx.repeat_durable(self.others(me), Hello { epoch, journal: self.state.journal });
        match self.change.is_some() {
            true => self.go_on(cx),
            false if now >= self.patient_until && self.may_change(me, now) => self.begin_change(cx),
            false => {}
        }
    }

    /// True if a change is needed or heals, and can be done.
    fn may_change(&self, me: NodeId, now: Instant) -> bool {
        if !self.state.installed.is_bootstrapped() {
            let everybody = self.state.installed.servers().chain(self.peers.iter().copied());
            return everybody.chain([self.state.installed.sequencer]).all(|node| !self.is_silent(node, now));
        }
        // Another incarnation's ballots are not to be used again, and its votes are not this one's.
        self.has_vote(me, self.state.journal) && (self.sees_trouble(now) || self.can_heal(now))
    }

    /// True if a change is needed, and can do any good.
    fn sees_trouble(&self, now: Instant) -> bool {
        let installed = &self.state.installed;
        let stuck = self.beyond_since.is_some_and(|since| now.since(since) > self.suspect_after());
        let trouble = self.restarted
            || stuck
            || self.is_silent(installed.sequencer, now)
            || installed.servers().any(|server| self.is_silent(server, now));
        let possible =
            installed.chains.iter().all(|chain| chain.iter().any(|&server| !self.is_silent(server, now)));
        trouble && possible
    }

    /// The same sequencer if it is there, else the next one that is.
    fn next_sequencer(&self, now: Instant) -> NodeId {
        let present = self.state.installed.sequencer;
        let at = self.sequencers.iter().position(|&node| node == present).unwrap_or(0);
        let in_turn = self.sequencers.iter().cycle().skip(at).take(self.sequencers.len());
        in_turn.copied().find(|&node| self.journal_of(node, now).is_some()).unwrap_or(present)
    }

    /// Auxiliaries that see the same trouble do not act at the same time.
    fn be_patient(&mut self, cx: &mut Cx<'_, Self>) {
        // Nobody is suspected at a bootstrap.
        let is_bootstrapped = self.state.installed.is_bootstrapped();
        let longest = if is_bootstrapped { self.parameters.suspect_after } else { self.parameters.tick * 4 };
        let wait = cx.rng().duration(longest / 10, longest);
        self.patient_until = cx.now() + wait;
    }
}

/// An incarnation that was not heard for so many times as long as a silent one is suspected is forgotten.
const FORGET: u32 = 10;

impl Role for Auxiliary {
    type Family = Corfu;
    type In = AuxiliaryIn;
    type Timer = AuxiliaryTimer;
    type Record = AuxiliaryRecord;

    fn restore(&mut self, _position: Position, record: AuxiliaryRecord) {
        self.state = record;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        if self.state.journal.is_none() {
            self.state.journal = Some(JournalId(cx.rng().bits()));
            self.keep(cx);
        }
        let installed = self.state.installed.clone();
        self.hear_all_of(&installed, cx.now());
        self.be_patient(cx);
        if installed.is_bootstrapped() {
            self.patient_until = self.patient_until + self.parameters.start_for;
        }
        self.tick(cx);
        cx.set_timer(AuxiliaryTimer::Tick, self.parameters.tick);
    }

    fn on_message(&mut self, from: NodeId, message: AuxiliaryIn, cx: &mut Cx<'_, Self>) {
        match message {
            AuxiliaryIn::WantProjection(message) => self.on_want_projection(from, message.epoch, cx),
            AuxiliaryIn::StoragePong(message) => self.on_pong(from, message, cx),
            AuxiliaryIn::Beyond(message) => self.see_epoch(message.epoch, cx.now()),
            AuxiliaryIn::SequencerPong(message) => self.on_sequencer_pong(from, &message, cx),
            AuxiliaryIn::SealAck(message) => self.on_seal_ack(from, &message, cx),
            AuxiliaryIn::Prepare(message) => self.on_prepare(from, message, cx),
            AuxiliaryIn::Promise(message) => self.on_promise(from, message, cx),
            AuxiliaryIn::Accept(message) => self.on_accept(from, message.vote, cx),
            AuxiliaryIn::Accepted(message) => self.on_accepted(from, &message, cx),
            AuxiliaryIn::Refused(message) => self.on_refused(&message, cx),
            AuxiliaryIn::Install(message) => self.install(message.projection, cx),
            AuxiliaryIn::Hello(message) => self.on_hello(from, &message, cx),
            AuxiliaryIn::Whole(message) => self.on_whole(from, &message, cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(AuxiliaryTimer::Tick, true)
    }

    fn on_timer(&mut self, timer: AuxiliaryTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            AuxiliaryTimer::Tick => {
                self.tick(cx);
                cx.set_timer(AuxiliaryTimer::Tick, self.parameters.tick);
            }
        }
    }
}
