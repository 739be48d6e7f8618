//! What must hold after every burst, and when a healed core has come to rest.

use super::Node;
use ::mason::Shard as _;
use ::mason::view::View;
use ::mason::{Number, Placed, Space, Stamp};
use kernel::{HostId, NodeId, invariant};
use sim::Cluster;
use std::collections::BTreeMap;

/// What all servers have agreed on so far.
#[derive(Default)]
pub(super) struct Invariants {
    digests: BTreeMap<(Space, Number), u64>,
    checked: BTreeMap<NodeId, Number>,
}

impl Invariants {
    pub(super) fn forget(&mut self, host: HostId) {
        self.checked.retain(|node, _| node.host() != host);
    }

    pub(super) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.nodes_of(host) {
            let Node::Shard(server) = node else { continue };
            let next = server.next();
            if self.checked.get(&id) == Some(&next) {
                continue;
            }
            let went_back = self.checked.insert(id, next).is_some_and(|before| before > next);
            invariant!(CONTIG, !went_back, "{id} went back to {next}");
            let digest = server.service().digest();
            let known = *self.digests.entry((server.space(), next)).or_insert(digest);
            invariant!(PREFIX, known == digest, "{id} differs from another server below number {next}");
        }
        self.check_order(host, cluster);
        let active = cluster.nodes().filter_map(|(_, node)| match node {
            Node::Sequencer(sequencer) => sequencer.active_epoch(),
            _ => None,
        });
        let mut epochs: Vec<u64> = active.collect();
        epochs.sort_unstable();
        invariant!(
            UNIQ,
            epochs.windows(2).all(|pair| pair[0] != pair[1]),
            "two sequencers of one epoch: {epochs:?}"
        );
    }

    /// What is to be executed next stands in the order of its stamps.
    fn check_order(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.nodes_of(host) {
            let Node::Shard(server) = node else { continue };
            let mut before = Stamp(0);
            for (number, delivered) in server.waiting().filter(|(_, entry)| entry.operation.is_some()) {
                let stamp = delivered.order.stamp;
                invariant!(MSO, stamp > before, "{id} has stamp {before} below {number}, and {stamp} there");
                before = stamp;
            }
        }
    }

    /// A hole that is there long after everything was healed is one for ever.
    pub(super) fn check_contiguity(&self, core: &[HostId], cluster: &Cluster<'_, Node>) {
        let mut view = View::default();
        for (_, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            let Node::Log(embedded) = node else { continue };
            let paxos::Member::Replica(replica) = embedded.node() else { continue };
            view.merge(replica.machine().view());
        }
        let holes = view.holes();
        invariant!(CONTIG, holes.is_empty(), "nobody has filled {holes:?}");
    }

    /// Every server of the core has executed the same numbers, and none is missing that any proxy has assigned.
    pub(super) fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        let mut reached: BTreeMap<Space, (Number, u64)> = BTreeMap::new();
        for (id, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            let Node::Shard(server) = node else { continue };
            let at = (server.next(), server.service().digest());
            let known = *reached.entry(server.space()).or_insert(at);
            if known != at {
                return Err(format!("{id} is at {at:?}, another server of its shard at {known:?}"));
            }
        }
        for (id, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            let Node::Log(embedded) = node else { continue };
            let paxos::Member::Replica(replica) = embedded.node() else { continue };
            for (&space, &(next, _)) in &reached {
                let end = replica.machine().view().end(space);
                if end > next {
                    let missing = Placed { space, number: next };
                    return Err(format!("{missing:?} is missing, and {id} has assigned numbers below {end}"));
                }
            }
        }
        Ok(())
    }
}

/// Who leads, who is the sequencer, and how far everybody is.
pub(super) fn standing(cluster: &Cluster<'_, Node>) -> String {
    let mut words = Vec::new();
    for (id, node) in cluster.nodes() {
        match node {
            Node::Sequencer(sequencer) => {
                if let Some(epoch) = sequencer.active_epoch() {
                    words.push(format!("{id} is sequencer {epoch}"));
                }
            }
            Node::Proxy(proxy) if proxy.is_leading() => {
                words.push(format!("{id} leads {proxy:?}"));
            }
            Node::Shard(server) => {
                words.push(format!("{id} {}", server.standing()));
            }
            Node::Gateway(gateway) if gateway.outstanding() > 0 => {
                words.push(format!("{id} waits for {}", gateway.outstanding()));
            }
            Node::Proxy(_) | Node::Gateway(_) => {}
            Node::Log(embedded) => match embedded.node() {
                paxos::Member::Leader(leader) => words.push(format!("{id} {}", leader.standing())),
                paxos::Member::Replica(replica) => {
                    words.push(format!("{id} executed {}", replica.executed()))
                }
                _ => {}
            },
        }
    }
    words.join(" | ")
}
