//! The shared log's roles on one host over Mason, or over one replicated state machine.

use super::SharedLog;
use super::budget::disk_bytes;
use crate::cluster::ClusterFile;
use crate::family::{HostedNode, LogMember};
use crate::services::{Engine, mason as over_mason, slots};
use kernel::{HostId, HostSlot};
use mason::proxy::SpacesOf;
use mason::{Deployment, HostParts, Space, Stub as _};
use shared_log::{Archiving, Gateway, Logs, Names, Routes, SpaceBounds};
use std::sync::Arc;

/// Which role of which host is where.
pub(super) fn deployment(file: &ClusterFile, logs: &SharedLog) -> Deployment {
    let hosts = over_mason::hosts(file);
    let sequencers = if logs.engine == Engine::Mason { hosts.len() } else { 0 };
    let (parameters, log) = (mason::MasonParameters::default(), file.parameters.clone());
    let first = slots::LOG.first;
    Deployment::beginning_at(first, hosts, logs.proxies, logs.spaces, sequencers, parameters, log)
}

/// A space's logs, before there are any.
pub(super) fn state(file: &ClusterFile, logs: &SharedLog, space: Space) -> Logs {
    let state = Logs::new(space, logs.spaces, SpaceBounds::within(logs.memory_bytes));
    match logs.archive {
        Some(_) => state.with_archive(Archiving {
            cluster: file.cluster.clone(),
            backlog_bytes_max: logs.archive_backlog_bytes,
        }),
        None => state,
    }
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub(super) fn nodes(
    file: &ClusterFile,
    logs: &SharedLog,
    name: &str,
    joins: bool,
) -> Vec<(HostSlot, HostedNode)> {
    let host = HostId::named(name);
    let deployment = deployment(file, logs);
    let stub = Names { spaces: logs.spaces };
    let spaces_of: SpacesOf = Arc::new(move |body, shard_map| stub.spaces(body, shard_map));
    let (proxies, shards) = (deployment.proxies_of(host), deployment.servers_of(host));
    let parts = HostParts {
        stub: &|_| stub,
        shard: &|space| state(file, logs, space),
        gateway: Gateway::new(Routes {
            proxies,
            shards,
            capacity: logs.space_bytes,
            disk_bytes: disk_bytes(file, logs, name),
        }),
    };
    let deployment = if joins { deployment.joining(deployment.hosts().to_vec()) } else { deployment };
    let nodes: Vec<(HostSlot, LogMember)> = deployment.build(host, &spaces_of, parts);
    nodes.into_iter().map(|(host_slot, member)| (host_slot, member.into())).collect()
}
