//! Changes of a log's configuration: when one may be proposed.

use super::LogAudit;
use crate::audit::snapshots::Snapshots;
use kernel::{NodeId, invariant};
use parts::Slot;
use paxos::{Configuration, Value};

/// How many replicas need what acceptors forget: as many as may fail, plus one. Either of two may leave.
pub(super) fn needed_of(configuration: &Configuration) -> usize {
    let spare = configuration.acceptors.faults().max(usize::from(configuration.replicas.len() == 2));
    (spare + 1).min(configuration.replicas.len())
}

impl LogAudit {
    /// A change is proposed when all slots of the configuration before the last, and one of the last, are in durable snapshots: so nobody
    /// needs to know of more than two.
    pub(super) fn check_change(&self, slot: Slot, value: &Value) {
        let Value::Configure(next) = value else { return };
        let known =
            self.proposals.get(&slot).is_some_and(|known| known.values().any(|it| it.value == *value));
        let latest = next.version.checked_sub(1).and_then(|version| self.configurations.get(&version));
        let Some(latest) = latest.filter(|latest| !known && latest.version > 0) else { return };
        let reach = |node: &&NodeId| {
            let through = self.replicas.get(node).and_then(Snapshots::furthest);
            through.is_some_and(|through| through > latest.first_slot)
        };
        let (count, needed) = (latest.replicas.iter().filter(reach).count(), needed_of(latest));
        invariant!(
            DUR,
            count >= needed,
            "configuration {} is proposed in slot {slot}, and {count} of {needed} replicas have a slot of the one before, which begins with {}, in durable snapshots",
            next.version,
            latest.first_slot
        );
    }
}
