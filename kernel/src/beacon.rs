//! Beacons: what a role would say again and again is said by its driver, and a receiver asks when it was heard last.

use crate::id::{HostId, NodeId};
use crate::time::Instant;
use std::collections::BTreeMap;

/// Which beacons a host's nodes hear; see [`crate::Cx::set_beacon`]. Drivers write it, and roles read it through [`crate::Cx`].
#[derive(Clone, Debug, Default)]
pub struct Beacons {
    /// By receiver and sender.
    lit: BTreeMap<(NodeId, NodeId), Lit>,
    heard: BTreeMap<HostId, Heard>,
    unfailing: bool,
}

#[derive(Clone, Copy, Debug)]
enum Lit {
    /// It is heard as long as its host is.
    Now,
    /// It was, over a connection that is over.
    Until(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    connection: u64,
    at: Instant,
}

impl Beacons {
    /// Where no host and no link fails.
    pub fn unfailing() -> Self {
        Self { unfailing: true, ..Self::default() }
    }

    /// When the beacon between these was heard last; none if there is none. A beacon of the receiver's own host is heard at all times.
    pub fn heard_at(&self, from: NodeId, to: NodeId, now: Instant) -> Option<Instant> {
        match self.lit.get(&(to, from))? {
            Lit::Now if self.unfailing || from.host() == to.host() => Some(now),
            Lit::Now => self.heard.get(&from.host()).map(|heard| heard.at),
            Lit::Until(at) => Some(*at),
        }
    }

    /// A host was heard: all of its beacons are lit that were not stopped. Another connection, or run, of it must light them anew.
    pub fn hear(&mut self, host: HostId, connection: u64, now: Instant) {
        let before = self.heard.insert(host, Heard { connection, at: now });
        if let Some(before) = before.filter(|before| before.connection != connection) {
            for ((_, from), lit) in &mut self.lit {
                if from.host() == host && matches!(lit, Lit::Now) {
                    *lit = Lit::Until(before.at);
                }
            }
        }
    }

    /// A beacon is set.
    pub fn light(&mut self, from: NodeId, to: NodeId) {
        self.lit.insert((to, from), Lit::Now);
    }

    /// It is stopped.
    pub fn put_out(&mut self, from: NodeId, to: NodeId) {
        self.lit.remove(&(to, from));
    }

    /// The host is no longer one of the cluster.
    pub fn forget(&mut self, host: HostId) {
        self.heard.remove(&host);
        self.lit.retain(|(_, from), _| from.host() != host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::HostSlot;

    fn node(host: u32, slot: u32) -> NodeId {
        NodeId::new(HostId(host), HostSlot(slot))
    }

    // A beacon of an earlier run that counts as heard hides the death of its host; one that is forgotten with its connection makes a short
    // break of a link look like a long silence.
    #[test]
    fn a_beacon_is_heard_as_long_as_the_run_that_lit_it() {
        let (from, to, now) = (node(1, 1), node(2, 1), Instant(90));
        let mut beacons = Beacons::default();
        beacons.hear(HostId(1), 1, Instant(10));
        assert_eq!(beacons.heard_at(from, to, now), None, "it was not lit");
        beacons.light(from, to);
        beacons.hear(HostId(1), 1, Instant(20));
        beacons.hear(HostId(3), 1, Instant(30));
        assert_eq!(beacons.heard_at(from, to, now), Some(Instant(20)));
        beacons.hear(HostId(1), 2, Instant(40));
        assert_eq!(beacons.heard_at(from, to, now), Some(Instant(20)), "another connection");
        beacons.hear(HostId(1), 2, Instant(50));
        assert_eq!(beacons.heard_at(from, to, now), Some(Instant(20)));
        beacons.light(from, to);
        assert_eq!(beacons.heard_at(from, to, now), Some(Instant(50)));
        beacons.put_out(from, to);
        assert_eq!(beacons.heard_at(from, to, now), None);
        beacons.light(from, to);
        beacons.forget(HostId(1));
        assert_eq!(beacons.heard_at(from, to, now), None);
        beacons.light(node(2, 3), to);
        assert_eq!(beacons.heard_at(node(2, 3), to, now), Some(now), "of the same host");
    }
}
