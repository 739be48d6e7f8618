//! A deployment of Spanner: its shards' logs, and what shards report to each other and to gateways of their logs.
//!
//! `leaders` holds what leaders know against their logs, `decisions` shards against each other, `answers` what gateways are shown against
//! what is committed, before or after, `pages` snapshots on disks against what replicas were, `steps` the names of what leaders propose.

mod answers;
mod decisions;
mod leaders;
mod pages;
mod steps;

use super::log::{self, Journal, LogAudit};
use super::rising::Rising;
use ::spanner::messages::gateway::{Ended, GatewayIn};
use ::spanner::messages::shard::ShardIn;
use ::spanner::shard::SpannerShard;
use ::spanner::{Fate, ShardId, ShardMachine, SpannerMember, SpannerMessage, SpannerSlot, TxnId};
use answers::Answers;
pub(crate) use answers::Committed;
use decisions::DecisionAudit;
use kernel::{Bytes, Decode, HostId, NodeId, Position, invariant};
pub(crate) use leaders::true_time;
use pages::SnapshotPages;
use parts::Incarnation;
use paxos::multipaxos::leader::{LeaderIn, Propose};
use paxos::{LogRole, Value};
use sim::{Cluster, Fact, WALL_EPOCH};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use steps::StepNames;
use wire::txn::Timestamp;

/// Every promise of a deployment.
#[derive(Debug)]
pub(crate) struct SpannerAudit {
    /// L.
    fence_bound: Duration,
    logs: BTreeMap<ShardId, LogAudit>,
    /// The incarnations that gateways' disks know of.
    incarnations: BTreeMap<NodeId, u64>,
    /// For how long what was committed is remembered.
    keep: Duration,
    in_flight: BTreeMap<TxnId, InFlight>,
    /// By gateway and commit timestamp, the least earliest end that a gateway was answered: its user learns nothing before.
    ends: BTreeMap<(NodeId, Timestamp), Timestamp>,
    /// No clock lies in this run.
    clocks_hold: bool,
    answers: Answers,
    decisions: DecisionAudit,
    pages: SnapshotPages,
    steps: StepNames,
    /// Up to which step of which leader what a role knows was looked at.
    looked: BTreeMap<NodeId, (u64, u64)>,
    rising: Rising,
}

/// What was said of a transaction before it ended.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    /// When its call was sent, if it is one that may be sent again.
    called_at: Option<Timestamp>,
    /// The highest of its participants' earliest ends.
    earliest_end: Timestamp,
}

/// True if a message makes a promise that it must honour.
pub(crate) fn is_claim(message: &SpannerMessage) -> bool {
    match message {
        SpannerMessage::Log(message) => log::is_claim(message) || steps_in(message).is_some(),
        SpannerMessage::Shard(message) => matches!(
            message,
            ShardIn::ReadLocked(_)
                | ShardIn::PrepareTxn(_)
                | ShardIn::DidPrepare(_)
                | ShardIn::Decided(_)
                | ShardIn::DidConclude(_)
                | ShardIn::ReadAt(_)
                | ShardIn::ReadReplica(_)
        ),
        SpannerMessage::Gateway(message) => {
            matches!(message, GatewayIn::Ended(_) | GatewayIn::FastReply(_) | GatewayIn::LockedValues(_))
        }
        SpannerMessage::User(_) | SpannerMessage::Connection(_) => false,
    }
}

/// The entry that a shard's leader proposes.
fn steps_in(message: &paxos::Message) -> Option<&Bytes> {
    match message {
        paxos::Message::Leader(LeaderIn::Propose(Propose { value: Value::Entry(entry) })) => {
            Some(entry.bytes())
        }
        _ => None,
    }
}

fn journal_of(role: LogRole) -> Journal {
    match role {
        LogRole::Acceptor => Journal::Acceptor,
        LogRole::Replica => Journal::Replica,
        LogRole::Leader => Journal::Leader,
        LogRole::ProxyLeader | LogRole::Batcher | LogRole::Unbatcher => Journal::Other,
    }
}

/// The machine of a shard's replica.
pub(crate) fn machine_of(member: &SpannerMember) -> Option<(u64, &ShardMachine)> {
    let SpannerMember::Log(embedded) = member else { return None };
    let paxos::Member::Replica(replica) = embedded.node() else { return None };
    Some((replica.executed().0, replica.machine()))
}

impl SpannerAudit {
    /// Of a deployment whose fences wait for so long, and which remembers commits for so long; whether all clocks are within their bounds.
    pub(crate) fn new(fence_bound: Duration, keep: Duration, clocks_hold: bool) -> Self {
        Self {
            fence_bound,
            logs: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            keep,
            in_flight: BTreeMap::new(),
            ends: BTreeMap::new(),
            clocks_hold,
            answers: Answers::default(),
            decisions: DecisionAudit::default(),
            pages: SnapshotPages::default(),
            steps: StepNames::default(),
            looked: BTreeMap::new(),
            rising: Rising::default(),
        }
    }

    pub(crate) fn on_fact(&mut self, fact: Fact<SpannerMessage>, cluster: &Cluster<'_, SpannerMember>) {
        match fact {
            Fact::Durable { node, position, record } => self.on_durable(node, position, &record),
            Fact::Trimmed { node, before } => {
                if let Some(SpannerSlot::Log(shard, role)) = SpannerSlot::at(node.host_slot().0) {
                    self.logs.entry(shard).or_default().on_trimmed(journal_of(role), node, before);
                }
            }
            Fact::Reported { from, to, message } => self.on_report((from, to), &message, cluster),
            Fact::DiskLost { host } => {
                self.logs.values_mut().for_each(|log| log.on_disk_lost(host));
                self.incarnations.retain(|node, _| node.host() != host);
            }
        }
    }

    /// A role, and what a restart would make of it.
    pub(crate) fn on_dry_restart(
        &mut self,
        node: NodeId,
        running: &SpannerMember,
        restarted: &SpannerMember,
    ) {
        if let (
            Some(SpannerSlot::Log(shard, _)),
            SpannerMember::Log(running),
            SpannerMember::Log(restarted),
        ) = (SpannerSlot::at(node.host_slot().0), running, restarted)
        {
            self.logs.entry(shard).or_default().on_dry_restart(node, running.node(), restarted.node());
        }
    }

    fn on_durable(&mut self, node: NodeId, position: Position, record: &Bytes) {
        match SpannerSlot::at(node.host_slot().0) {
            Some(SpannerSlot::Log(shard, role)) => {
                let log = self.logs.entry(shard).or_default();
                log.on_durable(journal_of(role), node, position, record);
                if role == LogRole::Replica
                    && let Some((slot, chunks)) = self.pages.on_durable(node, record)
                    && let Some(digest) = log.machine_digest(slot)
                {
                    pages::check(node, slot, &chunks, ShardMachine::new(shard, NodeId::ZERO), digest);
                }
            }
            Some(SpannerSlot::Gateway) => {
                let incarnation = Incarnation::decoded(record).expect("a gateway journals its incarnations");
                self.incarnations.insert(node, incarnation.number);
            }
            Some(SpannerSlot::Shard(_)) | None => {}
        }
    }

    fn on_report(
        &mut self,
        (from, to): (NodeId, NodeId),
        message: &SpannerMessage,
        cluster: &Cluster<'_, SpannerMember>,
    ) {
        let machine = || {
            let mut machines = cluster.nodes_of(from.host()).filter_map(|(_, member)| machine_of(member));
            let shard = SpannerSlot::at(from.host_slot().0);
            machines.find(|(_, machine)| shard == Some(SpannerSlot::Shard(machine.shard())))
        };
        match message {
            SpannerMessage::Log(message) => self.on_log(from, message),
            SpannerMessage::Gateway(GatewayIn::FastReply(message)) => {
                let (machine, now) = (machine().map(|(_, machine)| machine), self.true_now(cluster));
                self.answers.on_answer((from, to), message, machine, now);
            }
            SpannerMessage::Gateway(GatewayIn::LockedValues(message)) => {
                answers::check_locked(from, message, self.true_now(cluster));
            }
            SpannerMessage::Shard(message @ (ShardIn::ReadAt(_) | ShardIn::ReadReplica(_))) => {
                self.on_read((from, to), message, cluster);
            }
            // Handed on by a role that does not lead, a message is another's word.
            SpannerMessage::Shard(ShardIn::DidPrepare(message)) => {
                if let Some((_, machine)) = machine().filter(|(_, machine)| machine.shard() == message.by) {
                    check_prepared(from, &message.txn, machine);
                    let known = self.in_flight.entry(message.txn).or_default();
                    known.earliest_end = known.earliest_end.max(message.t_ee);
                }
            }
            SpannerMessage::Shard(ShardIn::Decided(message)) => {
                if let Some((_, machine)) = machine().filter(|(_, it)| it.shard() == message.coordinator) {
                    check_end(from, &message.txn, message.fate, machine, false);
                }
            }
            SpannerMessage::Gateway(GatewayIn::Ended(message)) => {
                if let Some((_, machine)) = machine() {
                    self.check_bound(message, machine);
                    if let Fate::Committed(t_c) = message.fate {
                        let least = self.ends.entry((message.txn.gateway, t_c)).or_insert(message.t_ee);
                        *least = message.t_ee.min(*least);
                    }
                    self.check_end_of_flight(message, machine);
                    if machine.ended(&message.txn) == Ok(Some(message.fate)) {
                        self.answers.on_ended(message);
                    }
                    check_end(from, &message.txn, message.fate, machine, true);
                }
            }
            SpannerMessage::Shard(ShardIn::DidConclude(message)) => {
                if let Some((_, machine)) = machine().filter(|(_, machine)| machine.shard() == message.by) {
                    check_concluded(from, &message.txns, machine);
                }
            }
            SpannerMessage::Shard(ShardIn::ReadLocked(message)) => self.check_incarnation(from, &message.txn),
            SpannerMessage::Shard(ShardIn::PrepareTxn(message)) => {
                self.check_incarnation(from, &message.txn);
                if message.call.is_some() {
                    self.in_flight.entry(message.txn).or_default().called_at = Some(message.start);
                }
            }
            _ => {}
        }
    }

    /// What a leader proposes, and what a log's roles say to each other.
    fn on_log(&mut self, from: NodeId, message: &paxos::Message) {
        match SpannerSlot::at(from.host_slot().0) {
            Some(SpannerSlot::Log(shard, _)) => self.logs.entry(shard).or_default().on_report(from, message),
            Some(SpannerSlot::Shard(shard)) => {
                if let Some(entry) = steps_in(message) {
                    self.steps.on_proposed(from, shard, entry);
                }
            }
            Some(SpannerSlot::Gateway) | None => {}
        }
    }

    /// The time, where no clock lies.
    fn true_now(&self, cluster: &Cluster<'_, SpannerMember>) -> Option<u64> {
        self.clocks_hold.then(|| cluster.now())
    }

    /// A gateway asks for what its user's session needs.
    fn on_read(
        &mut self,
        (from, to): (NodeId, NodeId),
        message: &ShardIn,
        cluster: &Cluster<'_, SpannerMember>,
    ) {
        let (Some(SpannerSlot::Gateway), Some(SpannerSlot::Shard(shard))) =
            (SpannerSlot::at(from.host_slot().0), SpannerSlot::at(to.host_slot().0))
        else {
            return;
        };
        let seen = |id| match cluster.node(from) {
            Some(SpannerMember::Gateway(gateway)) => gateway.seen_before(id),
            Some(_) | None => None,
        };
        match message {
            ShardIn::ReadAt(message) => {
                let token = seen(message.id).unwrap_or_default();
                invariant!(
                    TOKEN,
                    message.t_min >= token && message.t_read >= token,
                    "{from} reads at {} for a session that has seen {token}, and says that it has seen {}",
                    message.t_read,
                    message.t_min
                );
                self.answers.on_read_at(shard, message);
            }
            ShardIn::ReadReplica(message) => self.answers.on_read_replica(shard, message),
            _ => {}
        }
    }

    /// When it is known what was committed: whatever was answered shows it.
    pub(crate) fn check_answers(&self, committed: &impl Committed) {
        self.answers.check(committed);
    }

    /// A client's end follows its commit timestamp by no more than a fence waits for.
    fn check_bound(&self, message: &Ended, machine: &ShardMachine) {
        let Fate::Committed(t_c) = message.fate else { return };
        let bound = self.fence_bound.as_micros() as u64;
        let is_new = machine.ended(&message.txn) == Ok(Some(message.fate));
        invariant!(
            TEE,
            !is_new || message.t_ee.0 <= t_c.0 + bound,
            "{:?} commits at {t_c}, and its client ends after {}",
            message.txn,
            message.t_ee
        );
    }

    /// A call that is committed late may have been forgotten that was committed before. And a reader that skipped a transaction for its earliest
    /// end, at any participant, relies on that end.
    fn check_end_of_flight(&mut self, message: &Ended, machine: &ShardMachine) {
        let Some(known) = self.in_flight.remove(&message.txn) else { return };
        let Fate::Committed(t_c) = message.fate else { return };
        let half = self.keep.as_micros() as u64 / 2;
        if machine.ended(&message.txn) != Ok(Some(message.fate)) {
            return;
        }
        invariant!(
            ONCE,
            known.called_at.is_none_or(|at| t_c.0 <= at.0 + half),
            "{:?} was called at {:?} and commits at {t_c}",
            message.txn,
            known.called_at
        );
        invariant!(
            TEE,
            message.t_ee >= known.earliest_end,
            "{:?} ends after {}, and a participant has said {}",
            message.txn,
            message.t_ee,
            known.earliest_end
        );
    }

    /// A gateway that may forget its incarnation would name two transactions alike.
    fn check_incarnation(&self, from: NodeId, txn: &TxnId) {
        let durable = self.incarnations.get(&txn.gateway).copied();
        invariant!(
            UNIQ,
            from != txn.gateway || Some(txn.incarnation) <= durable,
            "{from} asks in incarnation {}, and its disk has {durable:?}",
            txn.incarnation
        );
    }

    /// When a commit at a gateway may be over at the earliest; none if nobody has said.
    pub(crate) fn earliest_end(&self, gateway: NodeId, t_c: Timestamp) -> Option<Timestamp> {
        self.ends.get(&(gateway, t_c)).copied()
    }

    /// How many acceptors of these hosts have ever known durably that they may vote.
    pub(crate) fn bootstrapped(&self, hosts: &[HostId]) -> usize {
        self.logs.values().map(|log| log.bootstrapped(hosts)).sum()
    }

    /// A host starts a new incarnation.
    pub(crate) fn forget(&mut self, host: HostId) {
        self.logs.values_mut().for_each(|log| log.forget(host));
        self.rising.forget(host);
    }

    /// Looks at what runs on a host, after a burst.
    pub(crate) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, SpannerMember>) {
        let mut called = BTreeSet::new();
        for (node, member) in cluster.called_nodes_of(host) {
            match (member, SpannerSlot::at(node.host_slot().0)) {
                (SpannerMember::Log(embedded), Some(SpannerSlot::Log(shard, _))) => {
                    self.logs.entry(shard).or_default().check(node, embedded.node());
                    if let Some((_, machine)) = machine_of(member) {
                        called.insert(shard);
                        self.rising.look(node, MACHINE, rising(machine));
                    }
                }
                (SpannerMember::Shard(role), _) => {
                    called.insert(role.shard());
                }
                _ => {}
            }
        }
        for shard in called {
            self.check_shard(host, shard, cluster);
        }
    }

    fn check_shard(&mut self, host: HostId, shard: ShardId, cluster: &Cluster<'_, SpannerMember>) {
        let mut role: Option<(NodeId, &SpannerShard)> = None;
        let mut replica = None;
        for (node, member) in cluster.nodes_of(host) {
            match member {
                SpannerMember::Shard(it) if it.shard() == shard => role = Some((node, it)),
                SpannerMember::Log(_) => {
                    replica = replica.or(machine_of(member).filter(|(_, machine)| machine.shard() == shard));
                }
                SpannerMember::Shard(_) | SpannerMember::Gateway(_) => {}
            }
        }
        let (Some((id, role)), Some((executed, machine))) = (role, replica) else { return };
        let now = self.true_now(cluster);
        let is_new = self.looked.insert(id, machine.position()) != Some(machine.position());
        leaders::check(id, role, machine, is_new, now);
        let ended = |shard: ShardId, txn: &TxnId| {
            let mut machines = cluster.nodes().filter_map(|(_, member)| machine_of(member));
            machines.any(|(_, machine)| machine.shard() == shard && machine.ended(txn) != Ok(None))
        };
        self.decisions.look(id, executed, machine, ended);
        if let Some(now) = now.filter(|_| is_new && machine.collected() > Timestamp(0)) {
            let (collected, keep) = (machine.collected(), self.keep.as_micros() as u64);
            let retained = collected.plus(keep).0 <= (WALL_EPOCH + now) / 1_000;
            invariant!(
                GC,
                retained,
                "{id} has collected below {collected}, which is younger than is retained"
            );
        }
    }
}

/// What is said of a transaction's end is what the log says. To its gateway, a call that was committed before ends as it did then.
fn check_end(from: NodeId, txn: &TxnId, fate: Fate, machine: &ShardMachine, to_gateway: bool) {
    let Ok(ended) = machine.ended(txn) else { return };
    let holds = ended == Some(fate) || to_gateway && ended.is_some();
    invariant!(DUR, holds, "{from} says that {txn:?} is {fate:?}, and its log has {ended:?}");
}

/// Who says that a transaction is prepared has that in its log.
fn check_prepared(from: NodeId, txn: &TxnId, machine: &ShardMachine) {
    let holds = machine.is_prepared(txn) || machine.ended(txn) != Ok(None);
    invariant!(DUR, holds, "{from} says that {txn:?} is prepared, and its log does not");
}

/// Who says that transactions are concluded has that in its log.
fn check_concluded(from: NodeId, txns: &[TxnId], machine: &ShardMachine) {
    for txn in txns {
        let holds = !machine.is_prepared(txn) && machine.ended(txn) != Ok(None);
        invariant!(DUR, holds, "{from} says that {txn:?} is concluded, and its log does not");
    }
}

/// What of a shard's replica never sinks.
const MACHINE: [&str; 5] =
    ["its leaders' count", "its horizon", "what is closed", "its last commit", "what is collected"];

fn rising(machine: &ShardMachine) -> [u64; 5] {
    let (epoch, _) = machine.position();
    let times = [machine.horizon(), machine.closed(), machine.last_commit(), machine.collected()];
    let [horizon, closed, last_commit, collected] = times.map(|at| at.0);
    [epoch, horizon, closed, last_commit, collected]
}
