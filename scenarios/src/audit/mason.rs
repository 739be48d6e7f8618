//! A whole deployment of Mason: its groups' logs, its shards, and the incarnations of its gateways.

use super::log::{self, Journal, LogAudit};
use super::rising::Rising;
use super::shards::ShardAudit;
use ::mason::proxy::entry::Claim;
use ::mason::proxy::machine::ProxyMachine;
use ::mason::proxy::{FromGateway, FromShard, ProxyIn};
use ::mason::sequencer::{Sequencer, SequencerIn};
use ::mason::{GatewayRole, Group, LogRole, MasonMember, MasonMessage, Part, Post, Shard, Stub};
use kernel::{Bytes, Decode, HostId, NodeId, Position, invariant};
use parts::Incarnation;
use sim::{Cluster, Fact};
use std::collections::{BTreeMap, BTreeSet};

/// Every promise of a deployment.
#[derive(Debug, Default)]
pub(crate) struct MasonAudit {
    logs: BTreeMap<Group, LogAudit>,
    shards: ShardAudit,
    /// The incarnations that gateways' disks know of.
    incarnations: BTreeMap<NodeId, u64>,
    /// Whose a group's log has called an epoch first.
    claims: BTreeMap<(Group, u64), Claim>,
    /// Which groups have said that they have filled the holes of which epoch.
    filled: BTreeSet<(Group, u64)>,
    /// Which groups had holes to fill when each sequencer began its epoch.
    holes: BTreeMap<NodeId, (u64, BTreeSet<Group>)>,
    rising: Rising,
    /// In which incarnation each origin has spoken last, as each group's replica has it.
    spoken: BTreeMap<(NodeId, NodeId), u64>,
}

/// What never sinks: of a group's replica, and of a shard's server.
const MACHINE: [&str; 8] = [
    "its leaders' count",
    "its sequencer",
    "its global sequence number",
    "its clock",
    "its members",
    "its settled members",
    "its layout",
    "its shard map",
];
const SERVER: [&str; 4] = ["its next number", "what it has executed", "what is durable", "what it covers"];

/// True if a message makes a promise that it must honour.
pub(crate) fn is_claim(message: &MasonMessage) -> bool {
    match message {
        MasonMessage::Log(message) => log::is_claim(message),
        MasonMessage::Proxy(message) => {
            matches!(
                message,
                ProxyIn::Shard(FromShard::ShardDurable(_))
                    | ProxyIn::Gateway(FromGateway::SubmitOperations(_))
            )
        }
        MasonMessage::Sequencer(message) => matches!(message, SequencerIn::Filled(_)),
        MasonMessage::Shard(_) | MasonMessage::Client(_) | MasonMessage::Connection(_) => false,
    }
}

fn journal_of(part: Part) -> Journal {
    match part {
        Part::Log(LogRole::Acceptor) => Journal::Acceptor,
        Part::Log(LogRole::Replica) => Journal::Replica,
        Part::Log(LogRole::Leader) => Journal::Leader,
        _ => Journal::Other,
    }
}

impl MasonAudit {
    pub(crate) fn on_fact(&mut self, fact: Fact<MasonMessage>) {
        match fact {
            Fact::Durable { node, position, record } => self.on_durable(node, position, &record),
            Fact::Trimmed { node, before } => match Post::at(node.host_slot().0) {
                Some(Post::Part(group, part)) => {
                    self.logs.entry(group).or_default().on_trimmed(journal_of(part), node, before);
                }
                Some(Post::Shard(space)) => self.shards.on_trimmed(space, node, before),
                Some(Post::Sequencer | Post::Gateway) | None => {}
            },
            Fact::Reported { from, message, .. } => self.on_report(from, &message),
            Fact::DiskLost { host } => {
                self.logs.values_mut().for_each(|log| log.on_disk_lost(host));
                self.shards.on_disk_lost(host);
                self.incarnations.retain(|node, _| node.host() != host);
            }
        }
    }

    fn on_durable(&mut self, node: NodeId, position: Position, record: &Bytes) {
        match Post::at(node.host_slot().0) {
            Some(Post::Part(group, part)) => {
                self.logs.entry(group).or_default().on_durable(journal_of(part), node, position, record);
            }
            Some(Post::Shard(space)) => self.shards.on_durable(space, node, position, record),
            Some(Post::Gateway) => {
                let incarnation = Incarnation::decoded(record).expect("a gateway journals its incarnations");
                self.incarnations.insert(node, incarnation.number);
            }
            Some(Post::Sequencer) | None => {}
        }
    }

    fn on_report(&mut self, from: NodeId, message: &MasonMessage) {
        match message {
            MasonMessage::Log(message) => {
                if let Some(Post::Part(group, _)) = Post::at(from.host_slot().0) {
                    self.logs.entry(group).or_default().on_report(from, message);
                }
            }
            MasonMessage::Sequencer(SequencerIn::Filled(filled)) => {
                self.filled.insert((filled.group, filled.epoch));
            }
            MasonMessage::Proxy(ProxyIn::Shard(FromShard::ShardDurable(durable))) => {
                self.shards.on_report(from, &durable.below)
            }
            MasonMessage::Proxy(ProxyIn::Gateway(FromGateway::SubmitOperations(submit))) => {
                let durable = self.incarnations.get(&from).copied();
                for operation in submit.operations.iter().filter(|operation| operation.origin == from) {
                    invariant!(
                        UNIQ,
                        Some(operation.incarnation) <= durable,
                        "{from} asks in incarnation {}, and its disk has {durable:?}",
                        operation.incarnation
                    );
                }
            }
            _ => {}
        }
    }

    /// How many acceptors of these hosts have ever known durably that they may vote: a bootstrap is over when all do, for one that forgot
    /// it needs everybody again.
    pub(crate) fn bootstrapped(&self, hosts: &[HostId]) -> usize {
        self.logs.values().map(|log| log.bootstrapped(hosts)).sum()
    }

    /// A host starts a new incarnation.
    pub(crate) fn forget(&mut self, host: HostId) {
        self.logs.values_mut().for_each(|log| log.forget(host));
        self.shards.forget(host);
        self.rising.forget(host);
        self.spoken.retain(|(node, _), _| node.host() != host);
        self.holes.retain(|node, _| node.host() != host);
    }

    /// A role, and what a restart would make of it.
    pub(crate) fn on_dry_restart<T, S, G>(
        &mut self,
        node: NodeId,
        running: &MasonMember<T, S, G>,
        restarted: &MasonMember<T, S, G>,
    ) where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        match (running, restarted, Post::at(node.host_slot().0)) {
            (MasonMember::Log(running), MasonMember::Log(restarted), Some(Post::Part(group, _))) => {
                let log = self.logs.entry(group).or_default();
                log.on_dry_restart(node, running.node(), restarted.node());
            }
            (MasonMember::Shard(running), MasonMember::Shard(restarted), _) => {
                self.shards.on_dry_restart(node, running, restarted);
            }
            _ => {}
        }
    }

    /// Looks at what runs on a host, after a burst.
    pub(crate) fn check_host<T, S, G>(&mut self, host: HostId, cluster: &Cluster<'_, MasonMember<T, S, G>>)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        self.check(|| cluster.called_nodes_of(host));
    }

    /// An epoch belongs to the first sequencer that the log was sealed for: a second one would give the same numbers away.
    fn check_claim<T: Stub>(&mut self, node: NodeId, machine: &ProxyMachine<T>) {
        let Some(claim) = machine.claim() else { return };
        let of = (machine.group(), machine.sequencer());
        let first = self.claims.entry(of).or_insert_with(|| claim.clone());
        invariant!(
            UNIQ,
            first == claim,
            "{node} gives epoch {of:?} to {claim:?}, its log gave it to {first:?}"
        );
    }

    /// What an earlier incarnation of an origin asked is not done when a later one has spoken.
    fn check_origins<T: Stub>(&mut self, node: NodeId, machine: &ProxyMachine<T>) {
        for (origin, incarnation) in machine.origins() {
            let before = self.spoken.entry((node, origin)).or_insert(incarnation);
            invariant!(
                RISE,
                *before <= incarnation,
                "{node} takes {origin} for its incarnation {incarnation} again, after {before}"
            );
            *before = incarnation;
        }
    }

    /// A standby counts the seals of its own attempt, and a sequencer takes for filled what was said to be.
    fn check_sequencer(&mut self, node: NodeId, sequencer: &Sequencer) {
        if let (Some(epoch), Some((attempt, groups))) =
            (sequencer.recovering_epoch(), sequencer.seals_counted())
        {
            for &group in groups {
                let claim = self.claims.get(&(group, epoch));
                let is_its = |claim: &Claim| (claim.sequencer, claim.attempt) == (node, attempt);
                invariant!(
                    UNIQ,
                    claim.is_none_or(is_its),
                    "{node} counts the seal of group {group} for epoch {epoch} in attempt {attempt}, and its log has {claim:?}"
                );
            }
        }
        let (Some(epoch), Some(filling)) = (sequencer.active_epoch(), sequencer.filling()) else { return };
        self.check_claims(node, epoch, sequencer.spanning().unwrap_or(u16::MAX));
        let new = || (epoch, filling.keys().copied().collect());
        let holes = self.holes.entry(node).or_insert_with(new);
        if holes.0 != epoch {
            *holes = new();
        }
        for group in holes.1.iter().filter(|group| !filling.contains_key(group)) {
            invariant!(
                CONTIG,
                self.filled.contains(&(*group, epoch)),
                "{node} takes the holes for filled that group {group} had at the beginning of epoch {epoch}"
            );
        }
    }

    /// Whose seals a sequencer has counted belong to one attempt, its own.
    fn check_claims(&self, node: NodeId, epoch: u64, spanning: u16) {
        if self.holes.get(&node).is_some_and(|(known, _)| *known == epoch) {
            return;
        }
        let groups = self.logs.keys().filter(|group| group.0 < spanning);
        let mut claims = groups.filter_map(|&group| Some((group, self.claims.get(&(group, epoch))?)));
        let Some((_, first)) = claims.next() else { return };
        let other = claims.find(|(_, claim)| *claim != first);
        invariant!(
            UNIQ,
            other.is_none() && first.sequencer == node,
            "{node} begins epoch {epoch}, which logs have sealed for {first:?} and {other:?}"
        );
    }

    /// The same of these, which are all of one host.
    pub(crate) fn check<'a, T, S, G, I>(&mut self, members: impl Fn() -> I)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole + 'a,
        I: Iterator<Item = (NodeId, &'a MasonMember<T, S, G>)>,
    {
        for (node, member) in members() {
            let (MasonMember::Log(embedded), Some(Post::Part(group, _))) =
                (member, Post::at(node.host_slot().0))
            else {
                continue;
            };
            self.logs.entry(group).or_default().check(node, embedded.node());
            if let paxos::Member::Replica(replica) = embedded.node()
                && !replica.is_joining()
            {
                self.check_claim(node, replica.machine());
                self.check_origins(node, replica.machine());
                self.rising.look(node, MACHINE, replica.machine().rising());
                self.shards.check_machine(node, replica.machine(), replica.executed());
            }
        }
        for (node, member) in members() {
            match member {
                MasonMember::Shard(server) => {
                    self.shards.check_server(node, server);
                    let numbers =
                        [server.next().0, server.executed().0, server.durable_below().0, server.covered().0];
                    self.rising.look(node, SERVER, numbers);
                }
                MasonMember::Sequencer(sequencer) => self.check_sequencer(node, sequencer),
                MasonMember::Log(_) | MasonMember::Proxy(_) | MasonMember::Gateway(_) => {}
            }
        }
    }
}
