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
//! follows, the projection before it, so that whoever was away learns that first.

mod change;

use crate::client;
use crate::projection::{Epoch, LogPosition, Parameters, Projection};
use crate::sequencer::{self, Begin};
use crate::storage;
use crate::{Corfu, Message};
use change::Change;
use kernel::{Cx, Instant, NodeId, Position, Role};
use parts::Ballot;
use std::collections::BTreeMap;
use std::time::Duration;

kernel::record! {
    /// What an auxiliary has accepted for an epoch.
    pub struct Vote {
        /// In which ballot.
        ballot: Ballot,
        /// What.
        projection: Projection,
    }
}

kernel::messages! {
    /// Everything an auxiliary can be sent.
    pub enum AuxiliaryIn in Message::Auxiliary {
        /// From a client: is there a projection of this epoch, or a later one?
        1 => WantProjection {
            /// The epoch.
            epoch: Epoch,
        },
        /// From a storage server: it is there, and sealed for this epoch.
        2 => StoragePong {
            /// The epoch.
            epoch: Epoch,
        },
        /// From a sequencer: it is there.
        3 => SequencerPong {
            /// The last epoch that it began to serve.
            began: Epoch,
            /// Whether it still does.
            serves: bool,
        },
        /// From a storage server: it is sealed.
        4 => SealAck {
            /// For this epoch.
            epoch: Epoch,
            /// The position after the last one that is written there.
            next: LogPosition,
        },
        /// From a storage server: it is sealed for a later epoch than asked for.
        5 => Beyond {
            /// The epoch.
            epoch: Epoch,
        },
        /// From another auxiliary: vote in no ballot below this one on what follows `base`.
        6 => Prepare {
            /// The last projection that it knows to be decided.
            base: Projection,
            /// Its ballot.
            ballot: Ballot,
        },
        /// From another auxiliary: it will not.
        7 => Promise {
            /// Of which epoch.
            epoch: Epoch,
            /// The ballot promised.
            ballot: Ballot,
            /// What it has accepted before.
            accepted: Option<Vote>,
        },
        /// From another auxiliary: accept this.
        8 => Accept {
            /// Its ballot, and what.
            vote: Vote,
        },
        /// From another auxiliary: it has.
        9 => Accepted {
            /// Of which epoch.
            epoch: Epoch,
            /// In which ballot.
            ballot: Ballot,
        },
        /// From another auxiliary: it has promised more.
        10 => Refused {
            /// Of which epoch.
            epoch: Epoch,
            /// The ballot that it has promised.
            promised: Ballot,
        },
        /// From another auxiliary: this is decided.
        11 => Install {
            /// What.
            projection: Projection,
        },
        /// From another auxiliary: the last projection that it knows is of this epoch.
        12 => Hello {
            /// The epoch.
            epoch: Epoch,
        },
    }
}

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
    }
}

/// Keeps projections.
///
/// Invariant: a projection that a majority of auxiliaries has accepted in one ballot is the only one of its epoch that is ever
/// installed.
#[derive(Clone, Debug)]
pub struct Auxiliary {
    /// All auxiliaries, this one too.
    peers: Vec<NodeId>,
    /// Who may be the sequencer.
    sequencers: Vec<NodeId>,
    parameters: Parameters,
    state: AuxiliaryRecord,
    /// When each server and sequencer was heard last.
    heard: BTreeMap<NodeId, Instant>,
    /// Since when servers are known to be sealed for an epoch that is not installed.
    beyond_since: Option<Instant>,
    /// True if the sequencer of the epoch is there and does not serve it any more.
    restarted: bool,
    change: Option<Change>,
    /// No change is begun before.
    patient_until: Instant,
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
            parameters,
            state: AuxiliaryRecord { installed: initial, promised: Ballot::ZERO, accepted: None },
            heard: BTreeMap::new(),
            beyond_since: None,
            restarted: false,
            change: None,
            patient_until: Instant(0),
        }
    }

    /// The last projection that it knows to be decided.
    pub fn installed(&self) -> &Projection {
        &self.state.installed
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

    fn is_majority(&self, count: usize) -> bool {
        2 * count > self.peers.len()
    }

    fn is_silent(&self, node: NodeId, now: Instant) -> bool {
        self.heard.get(&node).is_none_or(|&at| now.since(at) > self.parameters.suspect_after)
    }

    fn install(&mut self, projection: Projection, cx: &mut Cx<'_, Self>) {
        if projection.epoch <= self.state.installed.epoch || !projection.is_sound() {
            return;
        }
        self.state = AuxiliaryRecord { installed: projection, promised: Ballot::ZERO, accepted: None };
        (self.change, self.beyond_since, self.restarted) = (None, None, false);
        // Whoever serves from now on is given the time to be heard.
        let now = cx.now();
        let serving: Vec<NodeId> =
            self.state.installed.servers().chain([self.state.installed.sequencer]).collect();
        serving.into_iter().for_each(|node| _ = self.heard.insert(node, now));
        self.keep(cx);
    }

    fn on_want_projection(&self, client: NodeId, epoch: Epoch, cx: &mut Cx<'_, Self>) {
        if self.state.installed.epoch >= epoch {
            let projection = self.state.installed.clone();
            cx.send_durable(client, client::Installed { projection });
        }
    }

    fn on_pong(&mut self, from: NodeId, epoch: Epoch, cx: &Cx<'_, Self>) {
        self.heard.insert(from, cx.now());
        if epoch > self.state.installed.epoch {
            self.beyond_since.get_or_insert(cx.now());
        }
    }

    fn on_sequencer_pong(&mut self, from: NodeId, message: &SequencerPong, cx: &mut Cx<'_, Self>) {
        self.heard.insert(from, cx.now());
        let Projection { epoch, sequencer, first, .. } = self.state.installed;
        if from != sequencer {
            return;
        }
        if message.began < epoch {
            cx.send_durable(from, Begin { epoch, first });
        } else if message.began == epoch && !message.serves {
            self.restarted = true;
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
        cx.send_durable(from, Promise { epoch, ballot, accepted: self.state.accepted.clone() });
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
        cx.send_durable(from, Accepted { epoch, ballot });
    }

    fn tick(&mut self, cx: &mut Cx<'_, Self>) {
        let (me, epoch) = (cx.node(), self.state.installed.epoch);
        cx.multicast(self.state.installed.servers(), storage::Ping {});
        cx.multicast(self.sequencers.iter().copied(), sequencer::Ping {});
        for peer in self.others(me) {
            cx.send_durable(peer, Hello { epoch });
        }
        match self.change.is_some() {
            true => self.go_on(cx),
            false if cx.now() >= self.patient_until && self.sees_trouble(cx.now()) => self.begin_change(cx),
            false => {}
        }
    }

    /// True if a change is needed, and can do any good.
    fn sees_trouble(&self, now: Instant) -> bool {
        let installed = &self.state.installed;
        let stuck = self.beyond_since.is_some_and(|since| now.since(since) > self.parameters.suspect_after);
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
        in_turn.copied().find(|&node| !self.is_silent(node, now)).unwrap_or(present)
    }

    /// Auxiliaries that see the same trouble do not act at the same time.
    fn be_patient(&mut self, cx: &mut Cx<'_, Self>) {
        let longest: Duration = self.parameters.suspect_after;
        let wait = cx.rng().duration(longest / 10, longest);
        self.patient_until = cx.now() + wait;
    }
}

impl Role for Auxiliary {
    type Family = Corfu;
    type In = AuxiliaryIn;
    type Timer = AuxiliaryTimer;
    type Record = AuxiliaryRecord;

    fn restore(&mut self, _position: Position, record: AuxiliaryRecord) {
        self.state = record;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let all: Vec<NodeId> =
            self.state.installed.servers().chain(self.sequencers.iter().copied()).collect();
        all.into_iter().for_each(|node| _ = self.heard.insert(node, now));
        self.be_patient(cx);
        self.patient_until = self.patient_until + self.parameters.start_for;
        self.tick(cx);
        cx.set_timer(AuxiliaryTimer::Tick, self.parameters.tick);
    }

    fn on_message(&mut self, from: NodeId, message: AuxiliaryIn, cx: &mut Cx<'_, Self>) {
        match message {
            AuxiliaryIn::WantProjection(message) => self.on_want_projection(from, message.epoch, cx),
            AuxiliaryIn::StoragePong(message) => self.on_pong(from, message.epoch, cx),
            AuxiliaryIn::Beyond(message) => self.on_pong(from, message.epoch, cx),
            AuxiliaryIn::SequencerPong(message) => self.on_sequencer_pong(from, &message, cx),
            AuxiliaryIn::SealAck(message) => self.on_seal_ack(from, &message, cx),
            AuxiliaryIn::Prepare(message) => self.on_prepare(from, message, cx),
            AuxiliaryIn::Promise(message) => self.on_promise(from, message, cx),
            AuxiliaryIn::Accept(message) => self.on_accept(from, message.vote, cx),
            AuxiliaryIn::Accepted(message) => self.on_accepted(from, &message, cx),
            AuxiliaryIn::Refused(message) => self.on_refused(&message, cx),
            AuxiliaryIn::Install(message) => self.install(message.projection, cx),
            AuxiliaryIn::Hello(message) => {
                if message.epoch < self.state.installed.epoch {
                    cx.send_durable(from, Install { projection: self.state.installed.clone() });
                }
            }
        }
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
