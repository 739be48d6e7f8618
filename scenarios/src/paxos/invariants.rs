//! What must hold after every burst: one value per slot, equal states at equal slots, bounds.

use super::judged::Judged;
use super::sessions::Table;
use kernel::{HostId, NodeId, StateMachine};
use parts::Slot;
use paxos::{Configuration, Member, Parameters, Value};
use sim::Cluster;
use std::collections::BTreeMap;

type Node = Member<Judged>;

/// What the run has shown so far.
#[derive(Default)]
pub(super) struct Invariants {
    chosen: BTreeMap<Slot, Value>,
    /// Of the machine, and of everything executed and answered.
    digests: BTreeMap<Slot, (u64, u64)>,
    checked: BTreeMap<NodeId, Slot>,
    sessions: Table,
    /// What has come true, whether anybody still knows it or not.
    pub(super) truth: Truth,
}

/// What the run has shown to be chosen and durable. Nobody can take it back, so it does not matter who is up.
#[derive(Default)]
pub(super) struct Truth {
    /// Some replica has executed everything below.
    pub(super) executed: Slot,
    /// Enough replicas had everything below in durable snapshots.
    pub(super) settled: Slot,
    /// Every configuration that was ever executed, by its version.
    pub(super) configurations: BTreeMap<u64, Configuration>,
}

impl Truth {
    /// The newest configuration.
    pub(super) fn latest(&self) -> Option<&Configuration> {
        self.configurations.last_key_value().map(|(_, latest)| latest)
    }

    /// The configurations whose acceptors or replicas may still be needed: from the latest on of which one slot is in
    /// durable snapshots.
    pub(super) fn needed(&self) -> Vec<Configuration> {
        let all = self.configurations.values();
        let oldest = all.rev().find(|known| known.first_slot < self.settled).map_or(0, |known| known.version);
        self.configurations.range(oldest..).map(|(_, known)| known.clone()).collect()
    }
}

impl Invariants {
    /// A host starts a new incarnation: its replica may begin again from a snapshot.
    pub(super) fn forget(&mut self, host: HostId) {
        self.checked.retain(|node, _| node.host() != host);
    }

    pub(super) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, Node>, parameters: &Parameters) {
        for (id, node) in cluster.called_nodes_of(host) {
            match node {
                Member::Replica(replica) => self.check_replica(id, replica, parameters),
                Member::Batcher(batcher) => kernel::invariant!(
                    BOUND,
                    batcher.waiting_bytes() <= parameters.pending_bytes_max + parameters.batch_bytes_max,
                    "batcher {id} holds {} bytes",
                    batcher.waiting_bytes()
                ),
                Member::ProxyLeader(proxy) => kernel::invariant!(
                    BOUND,
                    proxy.pending() as u64 <= 4 * parameters.window,
                    "proxy leader {id} has {} slots in flight",
                    proxy.pending()
                ),
                Member::Leader(leader) => {
                    // One that led for a moment within the burst has notified others already.
                    let latest = self.truth.latest().map_or(0, |latest| latest.version);
                    if leader.is_leading() || leader.configurations().latest().version == latest {
                        self.truth.settled = self.truth.settled.max(leader.truncation());
                    }
                }
                Member::Acceptor(_) | Member::Unbatcher(_) | Member::Client(_) => {}
            }
        }
    }

    fn check_replica(
        &mut self,
        id: NodeId,
        replica: &paxos::multipaxos::replica::Replica<Judged>,
        parameters: &Parameters,
    ) {
        let checked = self.checked.get(&id).copied().unwrap_or(Slot(0));
        let executed = replica.executed();
        if executed == checked {
            return;
        }
        for (slot, value) in replica.retained().filter(|&(slot, _)| slot >= checked) {
            match self.chosen.get(&slot) {
                None => {
                    self.chosen.insert(slot, value.clone());
                }
                Some(known) => kernel::invariant!(
                    AGREE,
                    known == value,
                    "slot {slot} holds {known:?}, and {id} executed {value:?} there"
                ),
            }
        }
        let acknowledged = replica.acknowledged();
        self.sessions.check((id, executed), &self.chosen, acknowledged, parameters.sessions_max);
        if executed > self.truth.executed {
            self.truth.executed = executed;
        }
        for known in replica.configurations().all() {
            self.truth.configurations.entry(known.version).or_insert_with(|| known.clone());
        }
        let digest = (replica.machine().digest(), replica.digest());
        kernel::invariant!(
            PREFIX,
            replica.diverged().is_none(),
            "{id} stopped: most replicas stood otherwise after slot {:?}",
            replica.diverged()
        );
        let known = *self.digests.entry(executed).or_insert(digest);
        kernel::invariant!(
            PREFIX,
            known == digest,
            "{id} differs from another replica after slot {executed}"
        );
        kernel::invariant!(
            BOUND,
            replica.waiting_read_bytes() <= parameters.waiting_read_bytes_max
                && replica.open_sessions() <= parameters.sessions_max,
            "{id} holds {} bytes of reads and {} sessions",
            replica.waiting_read_bytes(),
            replica.open_sessions()
        );
        self.checked.insert(id, executed);
    }

    /// The replicas of the core have executed the same commands to the same end.
    pub(super) fn converged(
        &self,
        core: &[HostId],
        cluster: &Cluster<'_, Node>,
        latest: &Configuration,
    ) -> Result<(), String> {
        let replicas: Vec<(NodeId, Slot, u64)> = cluster
            .nodes()
            .filter(|(id, _)| core.contains(&id.host()) && latest.replicas.contains(id))
            .filter_map(|(id, node)| match node {
                Member::Replica(replica) => Some((id, replica.executed(), replica.machine().digest())),
                _ => None,
            })
            .collect();
        let Some(&(first, executed, digest)) = replicas.first() else {
            return Err("no replica is up".to_owned());
        };
        match replicas.iter().find(|&&(_, slot, other)| slot != executed || other != digest) {
            None => Ok(()),
            Some((id, slot, _)) => Err(format!("{first} is at slot {executed}, {id} at slot {slot}")),
        }
    }
}

/// Who leads, who may vote, and how far each replica is.
pub(super) fn describe(cluster: &Cluster<'_, Node>) -> String {
    let mut words = Vec::new();
    for (id, node) in cluster.nodes() {
        match node {
            Member::Leader(leader) => words.push(format!("{id} {}", leader.describe())),
            Member::Acceptor(acceptor) => words.push(format!("{id} {}", acceptor.describe())),
            Member::Replica(replica) => {
                let latest = replica.configurations().latest();
                words.push(format!(
                    "{id} executed {} snapshot {} configuration {} from {}{}",
                    replica.executed(),
                    replica.snapshot_through(),
                    latest.version,
                    latest.first_slot,
                    if replica.is_joining() { " joining" } else { "" }
                ));
            }
            Member::Batcher(batcher) => words.push(format!("{id} sends to {:?}", batcher.leader())),
            Member::ProxyLeader(_) | Member::Unbatcher(_) | Member::Client(_) => {}
        }
    }
    words.join(" | ")
}
