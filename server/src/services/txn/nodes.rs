//! The transaction service's roles on one host, and whose their records are.

use super::TxnService;
use crate::cluster::ClusterFile;
use crate::family::HostedNode;
use crate::services::records::{self, RecordOwner};
use crate::services::{Follower, mason as over_mason, slots};
use kernel::{Encode as _, HostId, HostSlot, NodeId};
use spanner::{SpannerDeployment, SpannerParameters, SpannerSlot};

/// Which role of which host is where.
pub(super) fn deployment(file: &ClusterFile, txn: &TxnService) -> SpannerDeployment {
    let parameters = SpannerParameters {
        replicas: txn.replicas,
        keep: txn.keep,
        fence_bound: txn.fence_bound,
        idle_max: txn.idle_max,
        clock_error_max: file.clock.error_max,
        ..SpannerParameters::default()
    };
    SpannerDeployment::new(
        slots::TXN.first,
        over_mason::hosts(file),
        txn.shards,
        txn.spread_levels,
        parameters,
        file.parameters.clone(),
    )
}

/// The gateway of the host `name`.
pub(super) fn gateway(file: &ClusterFile, txn: &TxnService, name: &str) -> NodeId {
    deployment(file, txn).gateway_of(HostId::named(name))
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub(super) fn nodes(
    file: &ClusterFile,
    txn: &TxnService,
    name: &str,
    joins: bool,
) -> Vec<(HostSlot, HostedNode)> {
    let deployment = deployment(file, txn);
    let deployment = if joins { deployment.joining(over_mason::hosts(file)) } else { deployment };
    let nodes = deployment.build(HostId::named(name));
    nodes.into_iter().map(|(host_slot, member)| (host_slot, member.into())).collect()
}

/// The shards' roles of the host `name`: they follow the members.
pub(super) fn followers(file: &ClusterFile, txn: &TxnService, name: &str) -> Vec<Follower> {
    let (deployment, host) = (deployment(file, txn), HostId::named(name));
    let role = |shard| Follower {
        host_slot: deployment.shard_on(host, shard).host_slot(),
        call: |members| members.encoded().into(),
    };
    deployment.directory().all().map(role).collect()
}

/// The role at a slot.
pub(super) fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    let offset = host_slot.0.checked_sub(slots::TXN.first).filter(|_| slots::TXN.contains(host_slot))?;
    Some(match SpannerSlot::at(offset)? {
        SpannerSlot::Gateway => records::gateway_owner("txn gateway"),
        SpannerSlot::Shard(shard) => RecordOwner::new(format!("txn shard {}", shard.0), records::none),
        SpannerSlot::Log(shard, role) => records::log_owner(&format!("txn shard {}", shard.0), role),
    })
}
