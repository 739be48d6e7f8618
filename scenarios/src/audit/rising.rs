//! Numbers of roles that only grow while a role runs: rounds, epochs, versions, watermarks, clocks.

use kernel::{HostId, NodeId, invariant};
use std::collections::BTreeMap;

/// At most so many of one role.
const NUMBERS_MAX: usize = 8;

/// What each role's numbers were when it was looked at last.
#[derive(Debug, Default)]
pub(crate) struct Rising(BTreeMap<NodeId, [u64; NUMBERS_MAX]>);

impl Rising {
    /// The numbers of a role, in an order of its own, and what they are.
    pub(crate) fn look<const N: usize>(&mut self, node: NodeId, names: [&str; N], now: [u64; N]) {
        const { assert!(N <= NUMBERS_MAX) };
        let before = self.0.entry(node).or_default();
        for ((name, now), before) in names.iter().zip(now).zip(before) {
            invariant!(RISE, now >= *before, "{node}: {name} was {before}, and is {now}");
            *before = now;
        }
    }

    /// A host starts a new incarnation, which knows what is durable alone.
    pub(crate) fn forget(&mut self, host: HostId) {
        self.0.retain(|node, _| node.host() != host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::HostSlot;

    const NODE: NodeId = NodeId::new(HostId(1), HostSlot(1));

    // An audit that compares with the least it has seen, or never forgets a run, sees nothing or too much.
    #[test]
    #[should_panic(expected = "RISE")]
    fn a_number_that_sinks_within_a_run_is_noticed() {
        let mut rising = Rising::default();
        rising.look(NODE, ["epoch", "end"], [3, 9]);
        rising.look(NODE, ["epoch", "end"], [4, 9]);
        rising.forget(HostId(1));
        rising.look(NODE, ["epoch", "end"], [2, 7]);
        rising.look(NODE, ["epoch", "end"], [2, 6]);
    }
}
