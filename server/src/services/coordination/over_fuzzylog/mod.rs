//! The coordination service over FuzzyLog: its roles on one host, and whose their records are.
//!
//! Gateway and shards are those over Mason, at the same slots. Chain, directors, the feeder, which takes the proxies' place, and the home,
//! which executes what concerns sessions, have slots of their own.

mod status;

pub use status::TreeChainStatus;

use super::{Coordination, nodes};
use crate::cluster::ClusterFile;
use crate::family::{CoordinationMember, HostedNode};
use crate::services::fuzzylog::{chain_parameters, slot_owner};
use crate::services::records::{self, RecordOwner};
use crate::services::{Follower, mason as over_mason, slots};
use ::fuzzylog::{FuzzyDeployment, FuzzyMember, FuzzyParameters};
use coordination::feeder::{HomeNode, TreeFeeder, TreeFeederNode, TreeFeederPlan};
use coordination::{Gateway, HomeShard, Routes, Znodes};
use kernel::bounds::{OPERATION_BYTES_MAX, OPERATION_HEAD_BYTES};
use kernel::{Embedded, Encode as _, HostId, HostSlot, NodeId};
use mason::proxy::arranging::ProxyCall;
use mason::shard::ShardServer;
use mason::{Layout, ProxyGroup, Space, Topology};
use std::sync::Arc;

const FIRST: u32 = slots::COORDINATION_OVER_FUZZYLOG.first;
/// Behind the chain's roles.
const HOME: HostSlot = HostSlot(FIRST + 0x8000);
/// All writes are ordered by one colour, so there is one partition.
const PARTITIONS: u16 = 1;
/// How many hosts hold it, and without how many it does not serve.
const REPLICAS: usize = 3;
const REPLICAS_MIN: usize = 2;
/// What may live of it. Trims come long before.
const PARTITION_BYTES: usize = 512 << 20;
/// With more nodes the shards are asked for snapshots.
const RETAINED_BYTES_MAX: u64 = 32 << 20;
/// Operations go into one node until they have so many bytes together.
const NODE_BYTES: usize = 256 << 10;

/// Which role of which host is where.
fn chain(file: &ClusterFile) -> FuzzyDeployment {
    let hosts = over_mason::hosts(file);
    let parameters = FuzzyParameters {
        replicas_min: REPLICAS_MIN.min(hosts.len()),
        live_bytes_max: PARTITION_BYTES,
        append_bytes_max: OPERATION_BYTES_MAX + OPERATION_HEAD_BYTES,
        colours_max: 1,
        ..chain_parameters()
    };
    let chains = (REPLICAS, hosts.len());
    FuzzyDeployment::new(FIRST, &hosts, PARTITIONS, chains, parameters, file.parameters.clone())
}

/// The feeder of a host, where the engine's client is.
pub(super) fn feeder(file: &ClusterFile, host: HostId) -> NodeId {
    chain(file).client_of(host)
}

/// Feeders as the one group, shards where they are over Mason, and homes behind them.
fn topology(file: &ClusterFile, coordination: &Coordination) -> Topology {
    let (over, chain) = (nodes::deployment(file, coordination), chain(file));
    let hosts: Vec<HostId> = over.hosts().iter().map(|entry| HostId::named(&entry.name)).collect();
    let homes = hosts.iter().map(|&host| NodeId::new(host, HOME)).collect();
    let mut shards = over.topology().shards.clone();
    shards.push(homes);
    Topology {
        version: 0,
        groups: vec![ProxyGroup { proxies: hosts.iter().map(|&host| chain.client_of(host)).collect() }],
        layout: Layout::at_bootstrap(1, coordination.shards),
        sequencers: Vec::new(),
        shards,
    }
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub(super) fn nodes(
    file: &ClusterFile,
    coordination: &Coordination,
    name: &str,
    joins: bool,
) -> Vec<(HostSlot, HostedNode)> {
    let host = HostId::named(name);
    let chain = if joins { chain(file).joining(&over_mason::hosts(file)) } else { chain(file) };
    let topology = Arc::new(topology(file, coordination));
    let over = nodes::deployment(file, coordination);
    let (servers, gateway) = (over.servers_of(host), over.gateway_of(host));
    let (placement, sessions) = (nodes::placement(coordination), nodes::sessions(coordination));
    let parameters = nodes::parameters();
    let room = servers.len() as u16;
    let feeder = chain.client_of(host);
    let mut nodes: Vec<(HostSlot, HostedNode)> = Vec::new();
    for (space, server) in (0..).map(Space).zip(&servers) {
        let state = Znodes::new(space, placement, u64::from(std::process::id()));
        let role = ShardServer::new(space, topology.clone(), parameters.clone(), state);
        nodes.push((server.host_slot(), CoordinationMember::Shard(Box::new(role)).into()));
    }
    let home = HomeShard::new(room, feeder, coordination.shards, sessions.clone());
    let home = ShardServer::new(Space(room), topology.clone(), parameters.clone(), home);
    nodes.push((HOME, HomeNode::Home(Box::new(home)).into()));
    let routes = Routes { proxies: vec![feeder], shards: servers };
    let settings = nodes::settings(file, coordination, routes, topology.layout.clone());
    let role = CoordinationMember::Gateway(Box::new(Gateway::new(settings)));
    nodes.push((gateway.host_slot(), role.into()));
    for (host_slot, member) in chain.build(host) {
        let node = match member {
            FuzzyMember::Client(client) => {
                let plan = TreeFeederPlan {
                    client: *client,
                    topology: topology.clone(),
                    gateway,
                    sessions: sessions.clone(),
                    clock_every: parameters.clock_every,
                    wait_for_last: parameters.wait_for_last,
                    retained_bytes_max: RETAINED_BYTES_MAX,
                    node_bytes: NODE_BYTES,
                };
                TreeFeederNode::Feeder(Box::new(TreeFeeder::new(plan))).into()
            }
            member @ (FuzzyMember::ChainServer(_) | FuzzyMember::Director(_) | FuzzyMember::Log(_)) => {
                HostedNode::TreeChain(Box::new(Embedded::new(member)))
            }
        };
        nodes.push((host_slot, node));
    }
    nodes
}

/// The director and the feeder of the host `name` follow the members.
pub(super) fn followers(file: &ClusterFile, name: &str) -> Vec<Follower> {
    let (chain, host) = (chain(file), HostId::named(name));
    let director =
        Follower { host_slot: chain.director_of(host).host_slot(), call: |members| members.encoded().into() };
    let feeder = Follower {
        host_slot: chain.client_of(host).host_slot(),
        call: |members| ProxyCall::Follow(members.clone()).encoded().into(),
    };
    vec![director, feeder]
}

/// The role at a slot.
pub(super) fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    if host_slot == HOME {
        return Some(records::shard_owner("coordination home"));
    }
    slot_owner(slots::COORDINATION_OVER_FUZZYLOG, "coordination", "coordination feeder", host_slot)
}

/// The feeder that a node is, if it is one.
pub(super) fn feeder_of(node: &HostedNode) -> Option<&TreeFeeder> {
    let HostedNode::TreeFeeder(embedded) = node else { return None };
    let TreeFeederNode::Feeder(feeder) = embedded.node();
    Some(feeder)
}

/// The home that a node is, if it is one.
pub(super) fn home_of(node: &HostedNode) -> Option<&ShardServer<HomeShard>> {
    let HostedNode::TreeHome(embedded) = node else { return None };
    let HomeNode::Home(home) = embedded.node();
    Some(home)
}
