//! Beacons: what a role would say again and again is said by its driver, and a receiver asks when it was heard last.

use crate::id::{HostId, NodeId};
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

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

/// What ends the wait of a timer early: see [`crate::Cx::await_silence`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Silence {
    /// The senders of beacons; as many as a configuration has nodes.
    pub of: Vec<NodeId>,
    /// One of them was not heard for so long.
    pub lasts: Duration,
}

/// A timer that waits for a silence, as a driver remembers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Whose timer it is.
    pub node: NodeId,
    /// What ends its wait early.
    pub silence: Silence,
    /// When it was set.
    pub since: Instant,
    /// When it runs out in any case.
    pub until: Instant,
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

    /// When a timer runs out if nothing more is heard. A beacon that is not lit counts as heard when the timer was set.
    pub fn runs_out(&self, listener: &Listener, now: Instant) -> Instant {
        let Listener { node, silence, since, until } = listener;
        let heard = silence.of.iter().map(|&from| self.heard_at(from, *node, now).unwrap_or(*since));
        heard.map(|at| at + silence.lasts).min().map_or(*until, |silent| silent.min(*until))
    }

    /// A host was heard: all of its beacons are lit that were not stopped. Another connection, or run, of it must light them anew. True if it
    /// is another one than before.
    pub fn hear(&mut self, host: HostId, connection: u64, now: Instant) -> bool {
        let before = self.heard.get(&host).copied();
        let is_new = before.is_none_or(|before| before.connection != connection);
        // What it has promised meanwhile stands.
        let at = before.filter(|_| !is_new).map_or(now, |before| before.at.max(now));
        self.heard.insert(host, Heard { connection, at });
        if let Some(before) = before.filter(|_| is_new) {
            for ((_, from), lit) in &mut self.lit {
                if from.host() == host && matches!(lit, Lit::Now) {
                    *lit = Lit::Until(before.at);
                }
            }
        }
        is_new
    }

    /// A host that was heard just now says rarely that it is alive: it counts as heard until then.
    pub fn trust_until(&mut self, host: HostId, until: Instant) {
        if let Some(heard) = self.heard.get_mut(&host) {
            heard.at = heard.at.max(until);
        }
    }

    /// What a host has promised holds no longer: it says more often that it is alive, or its connection has ended.
    pub fn trust_no_longer(&mut self, host: HostId, now: Instant) {
        if let Some(heard) = self.heard.get_mut(&host) {
            heard.at = heard.at.min(now);
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

impl Listener {
    /// Whether it waits for the silence of `from`, a beacon of which was stopped.
    pub fn listens_for(&self, from: NodeId) -> bool {
        self.silence.of.contains(&from)
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

    // A host that speaks rarely and is not trusted until then looks dead; one that is trusted after its connection has ended looks alive.
    #[test]
    fn a_host_that_speaks_rarely_is_heard_until_it_has_to_speak() {
        let (from, to, host) = (node(1, 1), node(2, 1), HostId(1));
        let mut beacons = Beacons::default();
        let heard_at = |beacons: &Beacons| beacons.heard_at(from, to, Instant(0));
        beacons.hear(host, 1, Instant(10));
        beacons.light(from, to);
        beacons.trust_until(host, Instant(40));
        assert_eq!(heard_at(&beacons), Some(Instant(40)));
        beacons.hear(host, 1, Instant(20));
        assert_eq!(heard_at(&beacons), Some(Instant(40)), "it has said something else");
        beacons.trust_no_longer(host, Instant(25));
        assert_eq!(heard_at(&beacons), Some(Instant(25)));
        beacons.trust_until(host, Instant(60));
        beacons.trust_no_longer(host, Instant(70));
        assert_eq!(heard_at(&beacons), Some(Instant(60)), "it was not heard since");
        beacons.hear(host, 2, Instant(50));
        beacons.light(from, to);
        assert_eq!(heard_at(&beacons), Some(Instant(50)), "another connection has promised nothing");
    }

    // A timer that runs out while all are heard is a tick that nobody needs; one that waits on when one is silent hides a failure.
    #[test]
    fn a_timer_waits_while_all_are_heard() {
        let (node_of, to) = (|host| node(host, 1), node(2, 1));
        let silence = Silence { of: vec![node_of(1), node_of(3)], lasts: Duration::from_nanos(30) };
        let listener = Listener { node: to, silence, since: Instant(100), until: Instant(400) };
        let mut beacons = Beacons::default();
        let runs_out = |beacons: &Beacons| beacons.runs_out(&listener, Instant(300));
        assert_eq!(runs_out(&beacons), Instant(130), "neither is lit");
        for host in [1, 3] {
            beacons.light(node_of(host), to);
            beacons.hear(HostId(host), 1, Instant(200));
        }
        assert_eq!(runs_out(&beacons), Instant(230));
        beacons.hear(HostId(1), 1, Instant(300));
        assert_eq!(runs_out(&beacons), Instant(230), "one is silent");
        beacons.hear(HostId(3), 1, Instant(290));
        assert_eq!(runs_out(&beacons), Instant(320));
        beacons.hear(HostId(3), 2, Instant(390));
        assert_eq!(runs_out(&beacons), Instant(320), "another connection, over which it is not lit");
        beacons.light(node_of(3), to);
        beacons.hear(HostId(1), 1, Instant(390));
        assert_eq!(runs_out(&beacons), Instant(400), "in any case");
        assert!(listener.listens_for(node_of(1)) && !listener.listens_for(node_of(2)));
    }
}
