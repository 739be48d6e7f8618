//! The hosts as Kafka's clients see them.

use kernel::HostId;

/// A host that serves Kafka's protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broker {
    /// Stays the same as long as the host has its name.
    pub node: i32,
    /// Where clients reach it.
    pub address: String,
    /// There as well.
    pub port: u16,
    /// Whether the host that says so can reach it.
    pub is_up: bool,
}

/// All hosts, sorted by their node ids.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Brokers {
    /// The cluster's name.
    pub cluster: String,
    /// The hosts.
    pub all: Vec<Broker>,
}

/// The node id of a host: its identity without the sign.
pub fn node_of(host: HostId) -> i32 {
    (host.0 & i32::MAX as u32) as i32
}

impl Brokers {
    /// Who coordinates the group `name`, as far as this host sees.
    pub fn coordinator_of(&self, name: &str) -> Option<&Broker> {
        // A group and a topic of one name need not be at one host.
        let node = self.leader_of(&format!("group {name}"));
        self.all.iter().find(|broker| broker.node == node)
    }

    /// Who of those that are up is to serve `name`. Any host could: this only spreads clients, and lets all hosts that see the same
    /// name the same one.
    pub fn leader_of(&self, name: &str) -> i32 {
        let first = (parts::digest(name.as_bytes()) % self.all.len().max(1) as u64) as usize;
        let mut turn = self.all.iter().cycle().skip(first).take(self.all.len());
        turn.find(|broker| broker.is_up).map_or(-1, |broker| broker.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A client that is sent to a host that is gone comes back to ask, and is sent there again.
    #[test]
    fn a_host_that_is_down_leads_nothing() {
        let broker = |node| Broker { node, address: String::new(), port: 1, is_up: node != 2 };
        let brokers = Brokers { cluster: String::new(), all: (1..4).map(broker).collect() };
        let leaders: Vec<i32> = (0..100).map(|topic| brokers.leader_of(&topic.to_string())).collect();
        assert!([1, 3].iter().all(|node| leaders.iter().filter(|leader| *leader == node).count() > 20));
        assert!(!leaders.contains(&2));
        assert_eq!(Brokers::default().leader_of("a"), -1);
    }
}
