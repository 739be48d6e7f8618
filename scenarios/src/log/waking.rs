//! Readers that wait for a log to go on. Their gateway is on the host of the server that they ask, where messages travel in memory: when
//! a burst has ended, nobody waits for what that server has.

use super::Node;
use ::mason::Deployment;
use kernel::{HostId, invariant};
use sim::Cluster;

/// After a burst of a host: each reader that waits there waits for an entry that its server does not have, of a log that goes on.
pub(super) fn check(host: HostId, cluster: &Cluster<'_, Node>) {
    let Some(Node::Gateway(gateway)) = cluster.node(Deployment::gateway(host)) else { return };
    for (space, name, from) in gateway.idle_reads() {
        let mut servers = cluster.nodes_of(host).filter_map(|(_, node)| match node {
            Node::Shard(server) if server.space() == space => Some(server),
            _ => None,
        });
        let Some(server) = servers.next() else { continue };
        let mut logs = server.service().logs().logs();
        let stands = logs.find(|(of, _)| *of == name).map(|(_, log)| (log.range(), log.is_sealed()));
        invariant!(
            WAKE,
            stands.is_some_and(|((_, next), sealed)| next == from && !sealed),
            "a reader at {host:?} waits for entry {from} of {name}, which has {stands:?} in space {space}"
        );
    }
}
