//! The shard's role on each host: with its log's leader beside it, it leads the shard; else it hands on what is for the leader, and
//! serves what its host's replica can answer.
//!
//! `lead` is what a leader knows beside its log, `locks` its lock table, `locking` how transactions wait and wound each other,
//! `participant` and `coordinator` the two sides of two-phase commit, `reads` the read-only transactions, `gateways` those who play the
//! clients, `replica` what any host serves.

mod active;
mod coordinator;
mod counts;
mod frame;
mod gateways;
mod knowledge;
mod lead;
mod locking;
mod locks;
mod moved;
mod moving;
mod owners;
mod participant;
mod questions;
mod reading;
mod reads;
mod replica;
mod steps;
mod view;

pub use counts::{BoundedUse, ShardCounts};
pub use knowledge::LeaderKnowledge;
pub use moving::ShardPlacement;
pub(crate) use participant::READ_LOCK_BYTES_MAX;
pub use view::TxnInProgress;

use crate::directory::Directory;
use crate::messages::shard::ShardIn;
use crate::parameters::SpannerParameters;
use crate::txn::ShardId;
use crate::{Spanner, SpannerMessage};
use frame::Frame;
use kernel::{Bytes, Cx, Decode, Instant, NodeId, Position, RequestId, Role};
use lead::Lead;
use moving::Moves;
use parts::Ballot;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::ClientIn as LogAnswer;
use paxos::multipaxos::unbatcher::UnbatcherIn;
use paxos::{EmbeddedLog, Members};
use questions::{Asker, Questions};
use replica::ReplicaReads;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

kernel::timers! {
    /// The timers of a shard's role.
    pub enum ShardTimer {
        /// Look after what is late.
        Tick,
        /// A timestamp has surely passed.
        Passed,
    }
}

/// Where the shard's log is on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogNodes {
    /// Orders entries, if it leads.
    pub leader: NodeId,
    /// Executes them.
    pub replica: NodeId,
    /// A leader that was not heard for so long leads no more, or is no good to ask.
    pub silent_after: Duration,
}

/// Everything that a shard's role hears.
#[derive(Clone, PartialEq, Debug)]
pub enum ShardHears {
    /// From the engine's own nodes.
    Own(ShardIn),
    /// From the roles of its log.
    Log(paxos::Message),
}

/// A shard's role on one host.
#[derive(Clone, Debug)]
pub struct SpannerShard {
    shard: ShardId,
    directory: Arc<Directory>,
    parameters: SpannerParameters,
    log: LogNodes,
    embedded: EmbeddedLog,
    /// This host's gateway.
    gateway: NodeId,
    /// Who leads the log, as far as is known.
    leader: Option<Ballot>,
    attempt: u64,
    lead: Option<Lead>,
    questions: Questions,
    replica: ReplicaReads,
    moves: Moves,
    counts: ShardCounts,
    /// It had nothing to look after at its last tick.
    rests: bool,
}

impl SpannerShard {
    /// The role of `shard` on a host whose log roles and gateway are these; `embedded` says where the log's roles are on every host.
    pub fn new(
        shard: ShardId,
        directory: Arc<Directory>,
        parameters: SpannerParameters,
        log: LogNodes,
        embedded: EmbeddedLog,
        gateway: NodeId,
    ) -> Self {
        Self {
            shard,
            directory,
            parameters,
            log,
            embedded,
            gateway,
            leader: None,
            attempt: 0,
            lead: None,
            questions: Questions::default(),
            replica: ReplicaReads::default(),
            moves: Moves::default(),
            counts: ShardCounts::default(),
            rests: false,
        }
    }

    /// Its shard.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// True if it leads the shard and serves.
    pub fn is_leading(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::serves)
    }

    /// True if this host has a replica of the shard, as far as it knows.
    pub fn holds(&self) -> bool {
        self.moves.holds(self.gateway.host())
    }

    /// Hosts that have a replica of the shard, as far as this host knows.
    pub fn replicas(&self) -> &[kernel::HostId] {
        self.moves.replicas()
    }

    /// Transactions that a leader has in progress, prepared ones among them; none at other hosts.
    pub fn in_progress(&self) -> usize {
        self.lead.as_ref().map_or(0, Lead::in_progress)
    }

    /// What a leader has in progress, in a few words, for reports.
    pub fn describe(&self) -> String {
        self.lead.as_ref().map_or(String::new(), Lead::describe)
    }

    fn leads_here(&self) -> bool {
        self.leader.is_some_and(|ballot| ballot.leader == self.log.leader)
    }

    /// Calls the leading part, if this host leads.
    fn leading(
        &mut self,
        cx: &mut Cx<'_, Self>,
        call: impl FnOnce(&mut Lead, &mut Frame<'_>, &mut Cx<'_, Self>),
    ) {
        let mut frame = Frame {
            shard: self.shard,
            directory: &self.directory,
            parameters: &self.parameters,
            log: self.log,
            questions: &mut self.questions,
            counts: &mut self.counts,
        };
        if let Some(lead) = &mut self.lead {
            call(lead, &mut frame, cx);
            lead.settle(&mut frame, cx);
        }
    }

    fn begin(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(ballot) = self.leader.filter(|_| self.leads_here()) else { return };
        self.attempt += 1;
        self.lead = Some(Lead::new(ballot, self.attempt, cx.now()));
        self.leading(cx, |lead, frame, cx| lead.propose_begin(frame, cx));
    }

    /// A leader of the log was heard `at` then.
    fn on_pulse(&mut self, ballot: Ballot, at: Instant, cx: &mut Cx<'_, Self>) {
        if self.leader <= Some(ballot) {
            self.moves.heard(ballot, at);
        }
        if self.leader >= Some(ballot) {
            return;
        }
        self.leader = Some(ballot);
        self.lead = None;
        if self.leads_here() {
            cx.mark("shard.leads");
            self.begin(cx);
        }
    }

    /// Taken by the leader; passed on to it, once, by the others.
    fn on_leaders(&mut self, from: NodeId, message: ShardIn, cx: &mut Cx<'_, Self>) {
        if self.leads_here() {
            return self.leading(cx, |lead, frame, cx| lead.on_message(message, frame, cx));
        }
        let slot = cx.node().host_slot();
        if let Some(leader) = self.leader.filter(|_| from.host_slot() != slot) {
            cx.send(NodeId::new(leader.leader.host(), slot), SpannerMessage::Shard(message));
        }
    }

    fn on_own(&mut self, from: NodeId, message: ShardIn, cx: &mut Cx<'_, Self>) {
        if std::mem::take(&mut self.rests) {
            cx.set_timer(ShardTimer::Tick, self.parameters.tick);
        }
        match message {
            message if message.is_for_leader() => self.on_leaders(from, message, cx),
            ShardIn::ReadReplica(message) => self.on_read_replica(from, message, cx),
            ShardIn::FollowMembers(message) => self.moves.want(message.members),
            _ if from != self.log.replica => cx.reject("replica's word from somebody else"),
            ShardIn::Began(message) => {
                self.leading(cx, |lead, frame, cx| lead.on_began(message, frame, cx));
            }
            ShardIn::Stepped(message) => {
                self.replica.note(message.safe, message.collected);
                self.leading(cx, |lead, frame, cx| lead.on_stepped(&message, frame, cx));
                self.serve_replica_reads(cx);
            }
            ShardIn::Installed(message) => {
                self.replica.note(message.safe, message.collected);
                if self.lead.is_some() {
                    cx.mark("shard.began_again_behind_a_snapshot");
                }
                // Steps of this leader may be in there that it was not notified of.
                self.begin(cx);
                self.serve_replica_reads(cx);
            }
            ShardIn::ReadLocked(_)
            | ShardIn::PrepareTxn(_)
            | ShardIn::Release(_)
            | ShardIn::ReadAt(_)
            | ShardIn::OwnerAlive(_)
            | ShardIn::AskFate(_)
            | ShardIn::WantClosed(_)
            | ShardIn::DidPrepare(_)
            | ShardIn::CannotPrepare(_)
            | ShardIn::Decided(_)
            | ShardIn::DidConclude(_)
            | ShardIn::MakeWay(_)
            | ShardIn::AskToLead(_) => cx.reject("message for a leader"),
        }
    }

    fn on_log(&mut self, from: NodeId, message: paxos::Message, cx: &mut Cx<'_, Self>) {
        match message {
            paxos::Message::Batcher(BatcherIn::Heartbeat(message)) => {
                self.moves.note(&message.pulse, cx.node().host(), cx.now());
                self.on_pulse(message.pulse.ballot, cx.now(), cx);
            }
            paxos::Message::Unbatcher(UnbatcherIn::BatchResults(message)) => {
                for reply in message.replies {
                    for answered in reply.results.iter() {
                        if let Some(asker) = self.questions.answered(answered.sequence) {
                            self.on_answer(asker, &answered, cx);
                        }
                    }
                }
            }
            paxos::Message::Client(LogAnswer::Notice(message)) => match ShardIn::decoded(&message.bytes) {
                Ok(notice) => self.on_own(from, notice, cx),
                Err(_) => cx.reject("notice that does not decode"),
            },
            paxos::Message::Client(LogAnswer::Results(_))
            | paxos::Message::Batcher(_)
            | paxos::Message::Leader(_)
            | paxos::Message::ProxyLeader(_)
            | paxos::Message::Acceptor(_)
            | paxos::Message::Replica(_) => cx.reject("message for another role of the log"),
        }
    }

    /// This host's replica has answered; one that has no room for the answer now is asked again by the gateway.
    fn on_answer(
        &mut self,
        asker: Asker,
        answered: &paxos::multipaxos::client::Answered,
        cx: &mut Cx<'_, Self>,
    ) {
        let values = answered.bytes.clone();
        if answered.status != paxos::multipaxos::client::Status::Done {
            return cx.mark("shard.replica_was_busy");
        }
        match asker {
            Asker::Locked { txn, held } => {
                self.leading(cx, |lead, frame, cx| lead.on_locked_values(txn, held, values, frame, cx));
            }
            Asker::Fast(read) => {
                self.leading(cx, |lead, frame, cx| lead.on_fast_values(&read, values, frame, cx));
            }
            Asker::Fate { gateway, id } => self.on_fate(gateway, id, &values, cx),
            Asker::Replica { gateway, id } => self.on_replica_values(gateway, id, values, cx),
        }
    }
}

impl Role for SpannerShard {
    type Family = Spanner;
    type In = ShardHears;
    type Timer = ShardTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(ShardTimer::Tick, self.parameters.tick);
    }

    fn on_message(&mut self, from: NodeId, message: ShardHears, cx: &mut Cx<'_, Self>) {
        match message {
            ShardHears::Own(message) => self.on_own(from, message, cx),
            ShardHears::Log(message) => self.on_log(from, message, cx),
        }
    }

    fn on_timer(&mut self, timer: ShardTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ShardTimer::Tick => {
                self.leading(cx, |lead, frame, cx| lead.on_tick(frame, cx));
                self.mind_a_silent_leader(cx);
                self.follow(cx);
                self.ask_to_lead(cx);
                self.look_after_replica_reads(cx);
                self.rests = self.lead.as_ref().is_none_or(Lead::is_at_rest) && !self.has_replica_reads();
                let rest = if self.rests { kernel::until_rare_moment(cx.now()) } else { Duration::ZERO };
                cx.set_timer(ShardTimer::Tick, rest.max(self.parameters.tick));
            }
            ShardTimer::Passed => self.leading(cx, |lead, frame, cx| lead.on_passed(frame, cx)),
        }
    }

    /// A host asks it to follow the cluster's members.
    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match Members::decoded(&request) {
            Ok(members) => self.on_members(id, members, cx),
            Err(_) => cx.reject("request that does not decode"),
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.leading(cx, |lead, frame, cx| lead.end_burst(frame, cx));
        self.questions.ask(self.log.replica, cx);
    }
}

impl<M: Into<ShardIn>> From<M> for ShardHears {
    fn from(message: M) -> Self {
        Self::Own(message.into())
    }
}

impl TryFrom<SpannerMessage> for ShardHears {
    type Error = SpannerMessage;

    fn try_from(message: SpannerMessage) -> Result<Self, SpannerMessage> {
        match message {
            SpannerMessage::Shard(message) => Ok(Self::Own(message)),
            SpannerMessage::Log(message) => Ok(Self::Log(message)),
            other => Err(other),
        }
    }
}
