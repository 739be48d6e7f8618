//! The chains of a deployment, as its directors have decided them.

use super::Node;
use ::fuzzylog::{ChainEpoch, ChainProjection, ChainServer, FuzzyDeployment, FuzzySlot, PartitionId};
use kernel::{HostId, HostSlot, NodeId, invariant};
use sim::Cluster;
use std::collections::BTreeMap;

pub(super) struct Chains {
    initial: Vec<ChainProjection>,
    /// Partitions that there are from the beginning.
    first: u16,
    /// Every projection that any director knows to be decided.
    decided: BTreeMap<(PartitionId, ChainEpoch), ChainProjection>,
}

impl Chains {
    pub(super) fn new(deployment: &FuzzyDeployment) -> Self {
        let first = deployment.placement().partitions();
        Self { initial: deployment.initial().to_vec(), first, decided: BTreeMap::new() }
    }

    /// The first ones, and those that were added and have a chain.
    pub(super) fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let all = (0..self.initial.len() as u16).map(PartitionId);
        let are: Vec<PartitionId> =
            all.filter(|it| it.0 < self.first || self.latest(*it).is_bootstrapped()).collect();
        are.into_iter()
    }

    /// The latest projection of a partition that is known to be decided.
    pub(super) fn latest(&self, partition: PartitionId) -> &ChainProjection {
        let of_partition = self.decided.range((partition, ChainEpoch(0))..=(partition, ChainEpoch(u64::MAX)));
        of_partition.last().map_or(&self.initial[usize::from(partition.0)], |(_, projection)| projection)
    }

    /// What a host's director knows; all directors know the same.
    pub(super) fn look(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.called_nodes_of(host) {
            let Node::Director(director) = node else { continue };
            // Before the first change each host has what its cluster file says, and nobody serves.
            for projection in director.projections().filter(|it| it.is_bootstrapped()) {
                let of_epoch = (projection.partition, projection.epoch);
                let known = self.decided.entry(of_epoch).or_insert_with(|| projection.clone());
                invariant!(AGREE, known == projection, "{id} has {projection:?}, another {known:?}");
            }
        }
    }
}

pub(super) fn server<'a>(id: NodeId, cluster: &Cluster<'a, Node>) -> Option<&'a ChainServer> {
    match cluster.node(id) {
        Some(Node::ChainServer(server)) => Some(server),
        _ => None,
    }
}

/// True of a slot in which hosts with servers have one.
pub(super) fn is_of_a_server(slot: HostSlot) -> bool {
    matches!(FuzzySlot::at(slot.0), Some(FuzzySlot::ChainServer(_)))
}

/// The chain server among a host's nodes, as they are before their records are restored.
pub(super) fn empty_server(id: NodeId, nodes: Vec<(HostSlot, Node)>) -> ChainServer {
    match nodes.into_iter().find(|(slot, _)| *slot == id.host_slot()) {
        Some((_, Node::ChainServer(server))) => *server,
        _ => unreachable!("a record of {id}, which is no chain server"),
    }
}
