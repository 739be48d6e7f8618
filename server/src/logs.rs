//! The shared log's roles on one host: a deployment of Mason of its own.

use crate::cluster::{ClusterFile, Logs};
use crate::family::{LogMember, Node};
use kernel::{HostId, NodeId, Place};
use mason::proxy::SpacesOf;
use mason::{Deployment, HostParts, PLACES_PER_DEPLOYMENT, Stub as _};
use paxos::HostEntry;
use shared_log::{Bounds, Gateway, Names, Routes};
use std::sync::Arc;

/// The places of the coordination service and of the sequence come before.
const FIRST_PLACE: u32 = 2 * PLACES_PER_DEPLOYMENT;

/// Which role of which host is where.
pub fn deployment(file: &ClusterFile, logs: &Logs) -> Deployment {
    let entry = |host: &crate::cluster::HostLine| HostEntry {
        name: host.name.clone(),
        address: host.address.clone(),
    };
    let hosts: Vec<HostEntry> = file.hosts.iter().map(entry).collect();
    let sequencers = hosts.len();
    let (parameters, log) = (mason::Parameters::default(), file.parameters.clone());
    Deployment::beginning_at(FIRST_PLACE, hosts, logs.proxies, logs.spaces, sequencers, parameters, log)
}

/// The gateway of the host `name`.
pub fn gateway(file: &ClusterFile, logs: &Logs, name: &str) -> NodeId {
    deployment(file, logs).gateway_of(HostId::named(name))
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub fn nodes(file: &ClusterFile, logs: &Logs, name: &str, joins: bool) -> Vec<(Place, Node)> {
    let host = HostId::named(name);
    let deployment = deployment(file, logs);
    let stub = Names { spaces: logs.spaces };
    let spaces_of: SpacesOf = Arc::new(move |body| stub.spaces(body));
    let (proxies, shards) = (deployment.proxies_of(host), deployment.servers_of(host));
    let parts = HostParts {
        stub: &|_| stub,
        shard: &|space| shared_log::Logs::new(space, logs.spaces, Bounds::within(logs.memory_bytes)),
        gateway: Gateway::new(Routes { proxies, shards, capacity: logs.space_bytes }),
    };
    let deployment = if joins { deployment.joining(deployment.hosts().to_vec()) } else { deployment };
    let nodes: Vec<(Place, LogMember)> = deployment.build(host, &spaces_of, parts);
    nodes.into_iter().map(|(place, member)| (place, member.into())).collect()
}
