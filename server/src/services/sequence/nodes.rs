//! The sequence's roles on one host: a deployment of Mason of its own, beside that of the coordination service.

use super::SequenceService;
use crate::cluster::ClusterFile;
use crate::family::{HostedNode, SequenceMember};
use crate::services::{mason as over_mason, slots};
use ::sequence::{Gateway, Labels, Spaces};
use kernel::{HostId, HostSlot, NodeId};
use mason::proxy::SpacesOf;
use mason::{Deployment, HostParts, Stub as _};
use std::sync::Arc;

/// Which role of which host is where.
pub fn deployment(file: &ClusterFile, sequence: &SequenceService) -> Deployment {
    let hosts = over_mason::hosts(file);
    let (sequencers, spaces) = (hosts.len(), sequence.spaces.len() as u16);
    Deployment::beginning_at(
        slots::SEQUENCE.first,
        hosts,
        sequence.proxies,
        spaces,
        sequencers,
        mason::MasonParameters::default(),
        file.parameters.clone(),
    )
}

/// The gateway of the host `name`.
pub fn gateway(file: &ClusterFile, sequence: &SequenceService, name: &str) -> NodeId {
    deployment(file, sequence).gateway_of(HostId::named(name))
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub fn nodes(
    file: &ClusterFile,
    sequence: &SequenceService,
    name: &str,
    joins: bool,
) -> Vec<(HostSlot, HostedNode)> {
    let host = HostId::named(name);
    let deployment = deployment(file, sequence);
    let stub = Spaces { count: sequence.spaces.len() as u16 };
    let spaces_of: SpacesOf = Arc::new(move |body, shard_map| stub.spaces(body, shard_map));
    let gateway = Gateway::new(deployment.proxies_of(host), deployment.servers_of(host));
    let parts = HostParts {
        stub: &|_| stub,
        shard: &|_| Labels::default(),
        gateway: gateway.with_names(sequence.spaces.clone()),
    };
    let deployment = if joins { deployment.joining(deployment.hosts().to_vec()) } else { deployment };
    let nodes: Vec<(HostSlot, SequenceMember)> = deployment.build(host, &spaces_of, parts);
    nodes.into_iter().map(|(host_slot, member)| (host_slot, member.into())).collect()
}
