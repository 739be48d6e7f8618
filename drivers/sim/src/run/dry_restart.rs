//! Dry restarts: what a host's records would make of its nodes, beside the nodes as they are.

use super::Run;
use crate::draw::{Purpose, mix, root};
use crate::host::Status;
use crate::plan::HostIndex;
use crate::scenario::Scenario;
use kernel::{Bytes, Node, NodeId};

/// One burst in so many is followed by one.
const EVERY_BURSTS: u64 = 2_048;

impl<S: Scenario> Run<S> {
    /// Now and then after a burst, as the seed draws it.
    pub(crate) fn restart_dry_at_times(&mut self, index: HostIndex, scenario: &mut S) {
        let draw = mix(root(self.seed, Purpose::DryRestart), self.out.trace.step);
        if draw.is_multiple_of(EVERY_BURSTS) {
            self.restart_dry(index, draw / EVERY_BURSTS, scenario);
        }
    }

    /// All that was written is read back into new nodes, as if the process ended and nothing of it were lost. Nothing of the run changes.
    pub(crate) fn restart_dry(&self, index: HostIndex, draw: u64, scenario: &mut S) {
        let host = &self.hosts[usize::from(index)];
        if host.status != Status::Up || host.is_damaged() {
            return;
        }
        self.check_statements(index);
        // What is trimmed may be there still, or not.
        let trimmed = draw & 1 == 1;
        for (host_slot, mut restarted) in scenario.blank_nodes(host.id) {
            let id = NodeId::new(host.id, host_slot);
            let Some(running) = host.node(id) else { continue };
            for (position, record) in host.disk.records(host_slot, trimmed) {
                let restored = restarted.restore(position, Bytes::copy_from_slice(record));
                assert!(restored.is_ok(), "CODEC: {id} cannot read its record at {position:?}: {restored:?}");
            }
            scenario.on_dry_restart(id, running, &restarted);
        }
    }
}
