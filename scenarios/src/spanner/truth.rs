//! What was committed, as the replicas' states show it, and what must hold of those states.

use super::Node;
use crate::audit::spanner::{Committed, machine_of};
use ::spanner::shard::BoundedUse;
use ::spanner::{Directory, ShardId, ShardMachine, SpannerParameters};
use kernel::{Bytes, HostId, NodeId, invariant};
use sim::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::txn::{KeyRange, Timestamp};

/// All versions that any replica has ever had, and what replicas have agreed on.
pub(super) struct Truth {
    directory: Arc<Directory>,
    versions: BTreeMap<Bytes, BTreeMap<Timestamp, Option<Bytes>>>,
    /// Digests by shard, epoch and executed slot.
    digests: BTreeMap<(ShardId, u64), u64>,
    seen: BTreeMap<NodeId, u64>,
    /// Of each shard, nobody may read below this.
    collected: BTreeMap<ShardId, Timestamp>,
}

impl Truth {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        let (versions, digests) = (BTreeMap::new(), BTreeMap::new());
        Self { directory, versions, digests, seen: BTreeMap::new(), collected: BTreeMap::new() }
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.seen.retain(|node, _| node.host() != host);
    }

    pub(super) fn look(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.called_nodes_of(host) {
            self.look_at(id, node);
        }
    }

    pub(super) fn look_at_all(&mut self, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.nodes() {
            self.look_at(id, node);
        }
    }

    fn look_at(&mut self, id: NodeId, node: &Node) {
        let Some((executed, machine)) = machine_of(node) else { return };
        if self.seen.insert(id, executed) == Some(executed) {
            return;
        }
        check_locks(id, machine);
        let digest = kernel::StateMachine::digest(machine);
        let known = *self.digests.entry((machine.shard(), executed)).or_insert(digest);
        invariant!(PREFIX, known == digest, "{id} differs from another replica below slot {executed}");
        let collected = self.collected.entry(machine.shard()).or_default();
        *collected = machine.collected().max(*collected);
        for (key, history) in machine.all() {
            let known = self.versions.entry(key.clone()).or_default();
            for version in history {
                let before = known.entry(version.at).or_insert_with(|| version.value.clone());
                invariant!(
                    ATOMIC,
                    *before == version.value,
                    "{key:?} at {} is {before:?} and {:?}",
                    version.at,
                    version.value
                );
            }
        }
    }

    /// A key as of a timestamp: its value and its version, 0 without any.
    pub(super) fn at(&self, key: &[u8], at: Timestamp) -> (Option<&Bytes>, Timestamp) {
        let versions = self.versions.get(key).map(|versions| versions.range(..=at));
        let last = versions.and_then(|mut versions| versions.next_back());
        last.map_or((None, Timestamp(0)), |(&at, value)| (value.as_ref(), at))
    }

    /// Keys of a range that exist as of a timestamp.
    pub(super) fn keys_at(&self, range: &KeyRange, at: Timestamp) -> Vec<Bytes> {
        let keys = self.versions.keys().filter(|key| range.contains(key));
        keys.filter(|key| self.at(key, at).0.is_some()).cloned().collect()
    }

    /// Where a value was written to a key: as often as it was executed.
    pub(super) fn commits_of(&self, key: &[u8], value: &Bytes) -> Vec<Timestamp> {
        let versions = self.versions.get(key).into_iter().flatten();
        versions.filter(|(_, it)| it.as_ref() == Some(value)).map(|(&at, _)| at).collect()
    }

    /// Nobody may read these keys below this.
    pub(super) fn collected<'a>(&self, keys: impl Iterator<Item = &'a Bytes>) -> Timestamp {
        let shards: BTreeSet<ShardId> = keys.map(|key| self.directory.shard_of(key)).collect();
        let all = shards.iter().filter_map(|shard| self.collected.get(shard));
        all.max().copied().unwrap_or_default()
    }

    /// Nothing is prepared or locked any more for gateways that will not come back.
    pub(super) fn check_the_dead(core: &[HostId], cluster: &Cluster<'_, Node>) {
        let is_dead = |txn: &::spanner::TxnId| !core.contains(&txn.gateway.host());
        for (id, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            let Node::Shard(role) = node else { continue };
            let left = role.transactions(usize::MAX).into_iter().find(|it| is_dead(&it.txn));
            invariant!(LIVE, left.is_none(), "{id} has {left:?} in progress, whose gateway is gone for long");
            let machines = cluster.nodes_of(id.host()).filter_map(|(_, node)| machine_of(node));
            let led = machines.map(|(_, it)| it).filter(|it| role.is_leading() && it.shard() == role.shard());
            let prepared = led.flat_map(|machine| machine.prepared()).find(|it| is_dead(&it.txn));
            invariant!(LIVE, prepared.is_none(), "{id} has {prepared:?}, whose gateway is gone for long");
        }
    }

    /// Nothing is in progress, replicas are alike where they are to be, and shards are led by whom they are to be led.
    pub(super) fn converged(
        &self,
        core: &[HostId],
        preferred: impl Fn(ShardId) -> Option<HostId>,
        cluster: &Cluster<'_, Node>,
    ) -> Result<(), String> {
        let mut digests: BTreeMap<ShardId, (u64, u64)> = BTreeMap::new();
        let mut leaders: BTreeMap<ShardId, &[HostId]> = BTreeMap::new();
        for (id, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            if let Node::Shard(role) = node
                && role.is_leading()
            {
                leaders.insert(role.shard(), role.replicas());
                let placement = role.placement();
                if !placement.is_settled {
                    return Err(format!("{id} leads what is not where it is wanted: {placement:?}"));
                }
                let to_lead = preferred(role.shard()).filter(|host| core.contains(host));
                if to_lead.is_some_and(|host| host != id.host()) {
                    return Err(format!("{id} leads what {to_lead:?} is to lead"));
                }
                if role.in_progress() > 0 {
                    return Err(format!("{id} has {} transactions in progress", role.in_progress()));
                }
            }
        }
        for (id, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            if let Some(left) = usage_of(node).into_iter().find(|it| it.used > 0) {
                return Err(format!("{id} has {} {} left", left.used, left.what));
            }
            let Some((executed, machine)) = machine_of(node) else { continue };
            if leaders.get(&machine.shard()).is_some_and(|replicas| !replicas.contains(&id.host())) {
                // What a host that left has of it is old.
                continue;
            }
            if let Some(prepared) = machine.prepared().next() {
                return Err(format!("{:?} is prepared at {id}", prepared.txn));
            }
            if machine.open_decisions() > 0 {
                return Err(format!("{id} has {} decisions to send", machine.open_decisions()));
            }
            let at = (executed, kernel::StateMachine::digest(machine));
            let known = *digests.entry(machine.shard()).or_insert(at);
            if known != at {
                return Err(format!("{id} is at {at:?}, another replica of its shard at {known:?}"));
            }
        }
        match self.directory.all().find(|shard| !leaders.contains_key(shard)) {
            Some(shard) => Err(format!("nobody leads shard {shard}")),
            None => Ok(()),
        }
    }
}

impl Committed for Truth {
    fn versions(&self, key: &[u8], at: Timestamp) -> Vec<Timestamp> {
        let versions = self.versions.get(key).into_iter().flat_map(|versions| versions.range(..=at).rev());
        versions.map(|(&at, _)| at).collect()
    }

    fn keys(&self, shard: ShardId, range: &KeyRange) -> Vec<Bytes> {
        let keys = self.versions.keys().filter(|key| range.contains(key));
        keys.filter(|key| self.directory.shard_of(key) == shard).cloned().collect()
    }
}

/// What is prepared holds its locks, under any leader: nobody else has prepared to write what it has read or writes, or has written that since.
fn check_locks(id: NodeId, machine: &ShardMachine) {
    for one in machine.prepared() {
        let holds = |key: &Bytes| {
            one.reads.contains(key)
                || one.ranges.iter().any(|range| range.contains(key))
                || one.writes.iter().any(|write| write.key == *key)
        };
        for other in machine.prepared().filter(|other| other.txn != one.txn) {
            let both = other.writes.iter().find(|write| holds(&write.key));
            invariant!(
                LOCK,
                both.is_none(),
                "{id}: {:?} has prepared to write {:?}, which {:?} holds",
                other.txn,
                both.map(|write| &write.key),
                one.txn
            );
        }
        let locked = machine.all().filter(|(key, _)| holds(key));
        for (key, history) in locked {
            let last = history.last().map_or(Timestamp(0), |version| version.at);
            invariant!(
                LOCK,
                last < one.t_p,
                "{id}: {key:?} was written at {last}, and {:?} holds it since {}",
                one.txn,
                one.t_p
            );
        }
    }
}

/// What is bounded at a shard's role or a gateway.
fn usage_of(node: &Node) -> Vec<BoundedUse> {
    match node {
        Node::Shard(role) => role.usage(),
        Node::Gateway(gateway) => gateway.usage().to_vec(),
        Node::Log(_) => Vec::new(),
    }
}

/// Nothing is more than its bound.
pub(super) fn check_bounds(host: HostId, parameters: &SpannerParameters, cluster: &Cluster<'_, Node>) {
    for (id, node) in cluster.called_nodes_of(host) {
        let prepared = machine_of(node).map(|(_, machine)| machine.prepared().count());
        let max = parameters.transactions_max;
        let prepared = prepared.map(|used| BoundedUse { what: "prepared transactions", used, max });
        for BoundedUse { what, used, max } in usage_of(node).into_iter().chain(prepared) {
            invariant!(BOUND, used <= max, "{id} has {used} {what}, and is to have {max} at most");
        }
    }
}

/// Who leads, and what is in progress.
pub(super) fn describe(cluster: &Cluster<'_, Node>) -> String {
    let mut words = Vec::new();
    for (id, node) in cluster.nodes() {
        match node {
            Node::Shard(role) if !role.describe().is_empty() => {
                words.push(format!("{id} leads {}: {}", role.shard(), role.describe()));
            }
            Node::Gateway(gateway) if gateway.in_progress() > 0 => {
                words.push(format!("{id} has {} calls", gateway.in_progress()));
            }
            Node::Shard(_) | Node::Gateway(_) | Node::Log(_) => {
                if let Node::Log(log) = node
                    && let paxos::Member::Leader(leader) = log.node()
                    && leader.is_leading()
                {
                    words.push(format!("{id} {}", leader.describe()));
                }
                if let Some((executed, machine)) = machine_of(node) {
                    let prepared = machine.prepared().count();
                    words.push(format!("{id} executed {executed}, prepared {prepared}"));
                }
            }
        }
    }
    words.join(" | ")
}
