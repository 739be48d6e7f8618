//! A deployment of Spanner: its shards' logs, and what shards report to each other and to gateways of their logs.

use super::log::{self, Journal, LogAudit};
use ::spanner::messages::gateway::{Ended, GatewayIn};
use ::spanner::messages::shard::ShardIn;
use ::spanner::{Fate, ShardId, ShardMachine, SpannerMember, SpannerMessage, SpannerSlot, TxnId};
use kernel::{Bytes, Decode, HostId, NodeId, Position, invariant};
use parts::Incarnation;
use paxos::LogRole;
use sim::{Cluster, Fact};
use std::collections::BTreeMap;
use std::time::Duration;
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
        SpannerMessage::Log(message) => log::is_claim(message),
        SpannerMessage::Shard(message) => matches!(
            message,
            ShardIn::ReadLocked(_)
                | ShardIn::PrepareTxn(_)
                | ShardIn::DidPrepare(_)
                | ShardIn::Decided(_)
                | ShardIn::DidConclude(_)
        ),
        SpannerMessage::Gateway(message) => matches!(message, GatewayIn::Ended(_)),
        SpannerMessage::User(_) | SpannerMessage::Connection(_) => false,
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
    /// Of a deployment whose fences wait for so long, and which remembers commits for so long.
    pub(crate) fn new(fence_bound: Duration, keep: Duration) -> Self {
        let (logs, incarnations) = (BTreeMap::new(), BTreeMap::new());
        Self { fence_bound, logs, incarnations, keep, in_flight: BTreeMap::new(), ends: BTreeMap::new() }
    }

    pub(crate) fn on_fact(&mut self, fact: Fact<SpannerMessage>, cluster: &Cluster<'_, SpannerMember>) {
        match fact {
            Fact::Durable { node, position, record } => self.on_durable(node, position, &record),
            Fact::Trimmed { node, before } => {
                if let Some(SpannerSlot::Log(shard, role)) = SpannerSlot::at(node.host_slot().0) {
                    self.logs.entry(shard).or_default().on_trimmed(journal_of(role), node, before);
                }
            }
            Fact::Reported { from, message, .. } => self.on_report(from, &message, cluster),
            Fact::DiskLost { host } => {
                self.logs.values_mut().for_each(|log| log.on_disk_lost(host));
                self.incarnations.retain(|node, _| node.host() != host);
            }
        }
    }

    fn on_durable(&mut self, node: NodeId, position: Position, record: &Bytes) {
        match SpannerSlot::at(node.host_slot().0) {
            Some(SpannerSlot::Log(shard, role)) => {
                self.logs.entry(shard).or_default().on_durable(journal_of(role), node, position, record);
            }
            Some(SpannerSlot::Gateway) => {
                let incarnation = Incarnation::decoded(record).expect("a gateway journals its incarnations");
                self.incarnations.insert(node, incarnation.number);
            }
            Some(SpannerSlot::Shard(_)) | None => {}
        }
    }

    fn on_report(&mut self, from: NodeId, message: &SpannerMessage, cluster: &Cluster<'_, SpannerMember>) {
        let machine = || {
            let mut machines = cluster.nodes_of(from.host()).filter_map(|(_, member)| machine_of(member));
            let shard = SpannerSlot::at(from.host_slot().0);
            machines.find(|(_, machine)| shard == Some(SpannerSlot::Shard(machine.shard())))
        };
        match message {
            SpannerMessage::Log(message) => {
                if let Some(SpannerSlot::Log(shard, _)) = SpannerSlot::at(from.host_slot().0) {
                    self.logs.entry(shard).or_default().on_report(from, message);
                }
            }
            // Handed on by a role that does not lead, a message is another's word.
            SpannerMessage::Shard(ShardIn::DidPrepare(message)) => {
                if let Some((_, machine)) = machine().filter(|(_, machine)| machine.shard() == message.by) {
                    let ended = machine.ended(&message.txn);
                    let holds = machine.is_prepared(&message.txn) || ended != Ok(None);
                    invariant!(
                        DUR,
                        holds,
                        "{from} says that {:?} is prepared, and its log does not",
                        message.txn
                    );
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
                    check_end(from, &message.txn, message.fate, machine, true);
                }
            }
            SpannerMessage::Shard(ShardIn::DidConclude(message)) => {
                if let Some((_, machine)) = machine().filter(|(_, machine)| machine.shard() == message.by) {
                    for txn in &message.txns {
                        let (prepared, ended) = (machine.is_prepared(txn), machine.ended(txn));
                        invariant!(
                            DUR,
                            !prepared && ended != Ok(None),
                            "{from} says that {txn:?} is concluded, and its log does not"
                        );
                    }
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
    }

    /// Looks at what runs on a host, after a burst.
    pub(crate) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, SpannerMember>) {
        for (node, member) in cluster.called_nodes_of(host) {
            if let (SpannerMember::Log(embedded), Some(SpannerSlot::Log(shard, _))) =
                (member, SpannerSlot::at(node.host_slot().0))
            {
                self.logs.entry(shard).or_default().check(node, embedded.node());
            }
        }
    }
}

/// What is said of a transaction's end is what the log says. To its gateway, a call that was committed before ends as it did then.
fn check_end(from: NodeId, txn: &TxnId, fate: Fate, machine: &ShardMachine, to_gateway: bool) {
    let Ok(ended) = machine.ended(txn) else { return };
    let holds = ended == Some(fate) || to_gateway && ended.is_some();
    invariant!(DUR, holds, "{from} says that {txn:?} is {fate:?}, and its log has {ended:?}");
}
