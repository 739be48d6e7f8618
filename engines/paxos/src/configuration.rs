//! Who plays which role from which slot on; changed by a command of the log itself.

use kernel::{Decode, DecodeError, Encode, NodeId, Reader, planted};
use parts::Slot;
use std::sync::Arc;
pub use wire::commands::configuration::{Configuration, HostEntry};

/// The configurations that still matter: the one in force, and those that will be.
///
/// Invariant: never empty; versions and first slots strictly increase.
#[derive(Clone, PartialEq, Debug)]
pub struct Configurations {
    all: Arc<Vec<Configuration>>,
    /// Given by the cluster file of a machine that joins. Never sent.
    unconfirmed: bool,
}

impl Configurations {
    /// Only the first: what every machine of the cluster's bootstrap starts with.
    pub fn starting_with(first: Configuration) -> Self {
        Self { all: Arc::new(vec![first]), unconfirmed: false }
    }

    /// What a machine that joins starts with: its cluster file lists the machine itself, perhaps others that are no
    /// members yet, and nothing of what happened since the bootstrap.
    pub fn unconfirmed(file: Configuration) -> Self {
        Self { unconfirmed: true, ..Self::starting_with(file) }
    }

    /// Oldest first.
    pub fn all(&self) -> &[Configuration] {
        &self.all
    }

    /// The one that governs `slot`; the oldest known for slots before it.
    pub fn governing(&self, slot: Slot) -> &Configuration {
        self.all.iter().rev().find(|configuration| configuration.first_slot <= slot).unwrap_or(&self.all[0])
    }

    /// The one with `version`; unconfirmed ones have none that could be relied on.
    pub fn with_version(&self, version: u64) -> Option<&Configuration> {
        self.all.iter().find(|known| known.version == version && !self.are_unconfirmed())
    }

    /// The newest.
    pub fn latest(&self) -> &Configuration {
        &self.all[self.all.len() - 1]
    }

    /// Adds the next one.
    pub fn push(&mut self, next: Configuration) {
        kernel::invariant!(
            AGREE,
            next.version == self.latest().version + 1 && next.first_slot > self.latest().first_slot,
            "configuration {} from slot {} follows {} from slot {}",
            next.version,
            next.first_slot,
            self.latest().version,
            self.latest().first_slot
        );
        Arc::make_mut(&mut self.all).push(next);
    }

    /// The incarnation in which `acceptor` is a member, if it joined after the bootstrap.
    pub fn counts(&self, acceptor: NodeId) -> Option<u64> {
        let joined = self.all.iter().rev().flat_map(|configuration| &configuration.joined);
        joined.filter(|(node, _)| *node == acceptor).map(|&(_, incarnation)| incarnation).next()
    }

    /// Takes over what `other` knows of earlier slots.
    pub fn recall(&mut self, other: &Configurations) {
        let first = self.all[0].version;
        let mut merged: Vec<_> = other.all.iter().filter(|known| known.version < first).cloned().collect();
        if !merged.is_empty() {
            merged.extend(self.all.iter().cloned());
            self.all = Arc::new(merged);
        }
    }

    /// Drops those that govern only slots before `slot`.
    pub fn forget_before(&mut self, slot: Slot) {
        let keep = self.all.iter().rposition(|configuration| configuration.first_slot <= slot).unwrap_or(0);
        if keep > 0 {
            Arc::make_mut(&mut self.all).drain(..keep);
        }
    }

    /// True on a machine that joins and knows no more than its cluster file, which is good for finding others and for
    /// nothing else.
    pub fn are_unconfirmed(&self) -> bool {
        self.unconfirmed && !planted!(joining_replica_trusts_cluster_file)
    }

    /// Takes over `other` if it knows of a later version, or if all we know is unconfirmed.
    pub fn adopt(&mut self, other: &Configurations) -> bool {
        if self.are_unconfirmed() && !other.are_unconfirmed() {
            *self = other.clone();
            return true;
        }
        let newer = other.latest().version > self.latest().version;
        if newer {
            // What only we know about earlier slots stays: those slots may still need it.
            let first = other.all[0].version;
            let mut merged: Vec<_> = self.all.iter().filter(|known| known.version < first).cloned().collect();
            merged.extend(other.all.iter().cloned());
            self.all = Arc::new(merged);
        }
        newer
    }

    /// Every node of any of them, each once.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.all.iter().flat_map(Configuration::nodes).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

impl Encode for Configurations {
    fn encode(&self, out: &mut Vec<u8>) {
        self.all.encode(out);
    }
}

impl Decode for Configurations {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let all = Vec::<Configuration>::decode(input)?;
        let increasing = all
            .windows(2)
            .all(|pair| pair[0].version < pair[1].version && pair[0].first_slot < pair[1].first_slot);
        if all.is_empty() || !increasing || !all.iter().all(Configuration::is_complete) {
            return Err(DecodeError::Invalid("configurations"));
        }
        Ok(Self { all: Arc::new(all), unconfirmed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};
    use parts::{AcceptorGroup, Acceptors};

    /// Complete, with so many batchers.
    fn configuration(batchers: u32) -> Configuration {
        let nodes = |count| (0..count).map(|host| NodeId::new(HostId(host), HostSlot(1))).collect::<Vec<_>>();
        Configuration {
            version: 1,
            first_slot: Slot(1),
            acceptors: Acceptors::new(vec![AcceptorGroup::majority(nodes(3)).expect("three")])
                .expect("a group"),
            leaders: nodes(3),
            proxy_leaders: nodes(3),
            replicas: nodes(3),
            batchers: nodes(batchers),
            unbatchers: nodes(3),
            hosts: vec![HostEntry { name: "a".to_owned(), address: "a:1".to_owned() }],
            joined: vec![],
        }
    }

    // A client that asks for a configuration of a million nodes has every host send it with each heartbeat, for ever.
    #[test]
    fn a_configuration_of_any_number_of_nodes_is_not_read() {
        let read = |batchers| Configuration::decoded(&configuration(batchers).encoded().into());
        let large = read(10_000).expect("larger than any cluster, and it fits");
        assert_eq!(large, configuration(10_000));
        assert!(matches!(read(40_000), Err(DecodeError::Invalid(_))));
    }
}
