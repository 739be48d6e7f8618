//! The shared log over FuzzyLog: its roles on one host, and whose their records are.
//!
//! Gateway and shards are those over Mason, at the same slots of theirs. Chains, directors and the feeder, which takes the proxies'
//! place, have slots of their own.

mod status;

pub use status::{ColourExtent, LogChainsStatus};

use super::SharedLog;
use super::budget::disk_bytes;
use crate::cluster::ClusterFile;
use crate::family::{HostedNode, LogMember};
use crate::services::fuzzylog::{chain_parameters, slot_owner};
use crate::services::records::RecordOwner;
use crate::services::{Follower, mason as over_mason, slots};
use ::fuzzylog::{FuzzyDeployment, FuzzyMember, FuzzyParameters};
use kernel::{Embedded, Encode as _, HostId, HostSlot, NodeId};
use mason::shard::ShardServer;
use mason::{Layout, MasonParameters, ProxyGroup, Space, Topology};
use shared_log::feeder::{Feeder, FeederNode, FeederPlan};
use shared_log::{Gateway, Routes};
use std::sync::Arc;

const FIRST: u32 = slots::LOG_OVER_FUZZYLOG.first;
/// How many hosts hold each partition, and without how many it does not serve.
const REPLICAS: usize = 3;
const REPLICAS_MIN: usize = 2;
/// What may live of a partition. Trims come long before.
const PARTITION_BYTES: usize = 512 << 20;
/// With more nodes in all colours the shards are asked for snapshots.
const RETAINED_BYTES_MAX: u64 = 96 << 20;
/// Operations go into one node until they have so many bytes together.
const NODE_BYTES: usize = 256 << 10;
/// And it holds one operation of a gateway at least.
const NODE_BYTES_MAX: usize = 2 << 20;

/// Which role of which host is where.
pub(super) fn chains(file: &ClusterFile, logs: &SharedLog) -> FuzzyDeployment {
    let hosts = over_mason::hosts(file);
    let parameters = FuzzyParameters {
        replicas_min: REPLICAS_MIN.min(hosts.len()),
        live_bytes_max: PARTITION_BYTES,
        append_bytes_max: NODE_BYTES_MAX,
        colours_max: usize::from(logs.spaces),
        ..chain_parameters()
    };
    let chains = (REPLICAS, hosts.len());
    FuzzyDeployment::new(FIRST, &hosts, logs.proxies, chains, parameters, file.parameters.clone())
}

/// The feeder of the host `name`, where its client is.
fn feeder(chains: &FuzzyDeployment, host: HostId) -> NodeId {
    chains.client_of(host)
}

/// Feeders as the one group, gateways and shards where they are over Mason.
fn topology(file: &ClusterFile, logs: &SharedLog, chains: &FuzzyDeployment) -> Topology {
    let over = super::nodes::deployment(file, logs);
    let hosts = over.hosts().iter().map(|entry| HostId::named(&entry.name));
    let proxies = hosts.map(|host| feeder(chains, host)).collect();
    Topology {
        version: 0,
        groups: vec![ProxyGroup { proxies }],
        layout: Layout::at_bootstrap(1, logs.spaces),
        sequencers: Vec::new(),
        shards: over.topology().shards.clone(),
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
    let chains = chains(file, logs);
    let chains = if joins { chains.joining(&over_mason::hosts(file)) } else { chains };
    let topology = Arc::new(topology(file, logs, &chains));
    let over = super::nodes::deployment(file, logs);
    let (servers, gateway) = (over.servers_of(host), over.gateway_of(host));
    let parameters = MasonParameters::default();
    let mut nodes: Vec<(HostSlot, HostedNode)> = Vec::new();
    for (space, server) in (0..).map(Space).zip(&servers) {
        let state = super::nodes::state(file, logs, space).of_packs();
        let role = ShardServer::new(space, topology.clone(), parameters.clone(), state);
        nodes.push((server.host_slot(), LogMember::Shard(Box::new(role)).into()));
    }
    let routes = Routes {
        proxies: vec![feeder(&chains, host)],
        shards: servers,
        capacity: logs.space_bytes,
        disk_bytes: disk_bytes(file, logs, name),
    };
    nodes.push((gateway.host_slot(), LogMember::Gateway(Box::new(Gateway::new(routes))).into()));
    for (host_slot, member) in chains.build(host) {
        let node = match member {
            FuzzyMember::Client(client) => {
                let plan = FeederPlan {
                    client: *client,
                    placement: chains.placement(),
                    topology: topology.clone(),
                    gateway,
                    wait_for_last: parameters.wait_for_last,
                    retained_bytes_max: RETAINED_BYTES_MAX,
                    node_bytes: NODE_BYTES,
                };
                FeederNode::Feeder(Box::new(Feeder::new(plan))).into()
            }
            member @ (FuzzyMember::ChainServer(_) | FuzzyMember::Director(_) | FuzzyMember::Log(_)) => {
                HostedNode::LogChains(Box::new(Embedded::new(member)))
            }
        };
        nodes.push((host_slot, node));
    }
    nodes
}

/// The director and the feeder of the host `name` follow the members.
pub(super) fn followers(file: &ClusterFile, logs: &SharedLog, name: &str) -> Vec<Follower> {
    let (chains, host) = (chains(file, logs), HostId::named(name));
    let follower =
        |node: NodeId| Follower { host_slot: node.host_slot(), call: |members| members.encoded().into() };
    vec![follower(chains.director_of(host)), follower(feeder(&chains, host))]
}

/// The role at a slot.
pub(super) fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    slot_owner(slots::LOG_OVER_FUZZYLOG, "log", "log feeder", host_slot)
}
