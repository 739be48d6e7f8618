//! Who serves a partition in an epoch.

use crate::terms::{ChainEpoch, ChainJournal, PartitionId, RowIndex};
use kernel::NodeId;

kernel::record! {
    /// A server of a chain, and the journal by which it is what it is.
    pub struct ChainMember {
        /// The server.
        node: NodeId,
        /// Its journal; none before the first change, in which nobody serves.
        journal: Option<ChainJournal>,
    }
}

kernel::record! {
    /// The servers of a partition's chain in an epoch (the paper's replicas).
    pub struct ChainProjection {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: ChainEpoch,
        /// The servers, the head first.
        members: Vec<ChainMember>,
        /// Everything that was acknowledged before this epoch is below. A member with a shorter row lacks something, and takes it from
        /// those before it.
        whole_from: RowIndex,
    }
}

/// The most servers of one chain.
pub const CHAIN_MAX: usize = 8;

impl ChainProjection {
    /// The first one, which everybody knows, and in which nobody serves.
    pub fn initial(partition: PartitionId, members: &[NodeId]) -> Self {
        let members = members.iter().map(|&node| ChainMember { node, journal: None }).collect();
        Self { partition, epoch: ChainEpoch(1), members, whole_from: RowIndex(0) }
    }

    /// True if it says by which journals its members are meant.
    pub fn is_bootstrapped(&self) -> bool {
        self.members.iter().all(|member| member.journal.is_some())
    }

    /// True if it has members, each once, and not too many: what a peer sends may be anything.
    pub fn is_sound(&self) -> bool {
        let mut nodes: Vec<NodeId> = self.nodes().collect();
        nodes.sort_unstable();
        !nodes.is_empty() && nodes.len() <= CHAIN_MAX && nodes.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// The servers, the head first.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }

    /// True if `node` is meant, by this journal.
    pub fn means(&self, node: NodeId, journal: ChainJournal) -> bool {
        self.members.iter().any(|member| member.node == node && member.journal == Some(journal))
    }

    /// Who orders.
    pub fn head(&self) -> Option<NodeId> {
        self.nodes().next()
    }

    /// Who answers.
    pub fn tail(&self) -> Option<NodeId> {
        self.nodes().last()
    }

    /// Who is before a server.
    pub fn before(&self, node: NodeId) -> Option<NodeId> {
        let at = self.nodes().position(|it| it == node)?;
        self.nodes().nth(at.checked_sub(1)?)
    }

    /// Who is behind a server.
    pub fn behind(&self, node: NodeId) -> Option<NodeId> {
        let at = self.nodes().position(|it| it == node)?;
        self.nodes().nth(at + 1)
    }
}
