//! Which roles a host plays: the same numbers of nodes under every driver.

use crate::family::{GatewayRole, MasonMember};
use crate::order::{Group, Space};
use crate::proxy::machine::ProxyMachine;
use crate::proxy::{LogNodes, Proxy, SpacesOf};
use crate::sequencer::Sequencer;
use crate::service::{Shard, Stub};
use crate::shard::ShardServer;
use crate::slots::{GATEWAY, SEQUENCER, log_of, proxy_slot, shard_slot};
use crate::topology::{Layout, MasonParameters, ProxyGroup, Topology};
use kernel::{HostId, HostSlot, NodeId};
use paxos::{Beginning, Configuration, HostEntry, LogRole, Members};
use std::sync::Arc;

/// A deployment on hosts that all play every role: a replica of every proxy, a server of every shard, a gateway.
#[derive(Clone, Debug)]
pub struct Deployment {
    hosts: Vec<HostEntry>,
    topology: Arc<Topology>,
    parameters: MasonParameters,
    log: paxos::Parameters,
    first: u32,
    joins: bool,
}

/// The service's parts of one host.
pub struct HostParts<'a, T, S, G> {
    /// Its share in each proxy.
    pub stub: &'a dyn Fn(Group) -> T,
    /// Its shards.
    pub shard: &'a dyn Fn(Space) -> S,
    /// Its gateway.
    pub gateway: G,
}

impl Deployment {
    /// Spreads `groups` proxies and `shards` shards over `hosts`; `sequencers` of them may be the sequencer. With none, `groups`
    /// must be 1: its log is the order.
    pub fn new(
        hosts: Vec<HostEntry>,
        groups: u16,
        shards: u16,
        sequencers: usize,
        parameters: MasonParameters,
        log: paxos::Parameters,
    ) -> Self {
        Self::beginning_at(0, hosts, groups, shards, sequencers, parameters, log)
    }

    /// The same for one of several deployments of the same hosts: its slots begin at `first`, a multiple of
    /// [`SLOTS_PER_DEPLOYMENT`].
    pub fn beginning_at(
        first: u32,
        hosts: Vec<HostEntry>,
        groups: u16,
        shards: u16,
        sequencers: usize,
        parameters: MasonParameters,
        log: paxos::Parameters,
    ) -> Self {
        let ids: Vec<HostId> = hosts.iter().map(|host| HostId::named(&host.name)).collect();
        let on_all = |slot: HostSlot| ids.iter().map(|&host| NodeId::new(host, slot)).collect::<Vec<_>>();
        let topology = Topology {
            version: 0,
            groups: (0..groups)
                .map(|group| ProxyGroup { proxies: on_all(proxy_slot(first, Group(group))) })
                .collect(),
            layout: Layout::at_bootstrap(groups, shards),
            sequencers: on_all(HostSlot(first + SEQUENCER.0)).into_iter().take(sequencers).collect(),
            shards: (0..shards).map(|shard| on_all(shard_slot(first, shard))).collect(),
        };
        Self { hosts, topology: Arc::new(topology), parameters, log, first, joins: false }
    }

    /// The same with roles for up to `groups_max` groups and `shards_max` shards on every host: those that are not in use keep an
    /// idle log, or an empty state, and can be added while running.
    #[must_use]
    pub fn with_room_for(mut self, groups_max: u16, shards_max: u16) -> Self {
        let mut topology = Topology::clone(&self.topology);
        let ids: Vec<HostId> = self.hosts.iter().map(|host| HostId::named(&host.name)).collect();
        for group in topology.groups.len() as u16..groups_max {
            let slot = proxy_slot(self.first, Group(group));
            let proxies = ids.iter().map(|&host| NodeId::new(host, slot)).collect();
            topology.groups.push(ProxyGroup { proxies });
        }
        for space in topology.shards.len() as u16..shards_max {
            let slot = shard_slot(self.first, space);
            topology.shards.push(ids.iter().map(|&host| NodeId::new(host, slot)).collect());
        }
        self.topology = Arc::new(topology);
        self
    }

    /// Who plays what.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The gateway of a host, in the deployment that begins at 0.
    pub fn gateway(host: HostId) -> NodeId {
        NodeId::new(host, GATEWAY)
    }

    /// The gateway of a host.
    pub fn gateway_of(&self, host: HostId) -> NodeId {
        NodeId::new(host, HostSlot(self.first + GATEWAY.0))
    }

    /// The proxies of a host, by group.
    pub fn proxies_of(&self, host: HostId) -> Vec<NodeId> {
        self.topology.groups().map(|group| NodeId::new(host, proxy_slot(self.first, group))).collect()
    }

    /// The shards' servers of a host, by space.
    pub fn servers_of(&self, host: HostId) -> Vec<NodeId> {
        self.topology.spaces().map(|space| NodeId::new(host, shard_slot(self.first, space.0))).collect()
    }

    /// The configuration of a group's log at its bootstrap.
    pub fn configuration(&self, group: Group) -> Configuration {
        log_of(self.first, group)
            .configuration(0, &Members { version: 0, hosts: self.hosts.clone() })
            .expect("hosts have different names, and there are at most 64")
    }

    /// The same for a host that joins the running deployment: the hosts that it knows are unconfirmed, good for finding others.
    #[must_use]
    pub fn joining(&self, known: Vec<HostEntry>) -> Self {
        let members = Members { version: 0, hosts: known };
        let topology = Arc::new(self.topology.moved_to(&members));
        Self { hosts: members.hosts, topology, joins: true, ..self.clone() }
    }

    /// The hosts that it was made of.
    pub fn hosts(&self) -> &[HostEntry] {
        &self.hosts
    }

    /// The nodes of one host.
    pub fn build<T, S, G>(
        &self,
        host: HostId,
        spaces_of: &SpacesOf,
        parts: HostParts<'_, T, S, G>,
    ) -> Vec<(HostSlot, MasonMember<T, S, G>)>
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        let mut nodes = Vec::new();
        if !self.topology.sequencers.is_empty() {
            let sequencer = Sequencer::new(self.topology.clone(), self.parameters.clone());
            nodes.push((HostSlot(self.first + SEQUENCER.0), MasonMember::Sequencer(Box::new(sequencer))));
        }
        for group in self.topology.groups() {
            self.build_group(host, group, spaces_of, &parts, &mut nodes);
        }
        for space in self.topology.spaces() {
            let service = (parts.shard)(space);
            let server = ShardServer::new(space, self.topology.clone(), self.parameters.clone(), service);
            nodes.push((shard_slot(self.first, space.0), MasonMember::Shard(Box::new(server))));
        }
        nodes.push((HostSlot(self.first + GATEWAY.0), MasonMember::Gateway(Box::new(parts.gateway))));
        nodes
    }

    fn build_group<T: Stub, S: Shard, G: GatewayRole>(
        &self,
        host: HostId,
        group: Group,
        spaces_of: &SpacesOf,
        parts: &HostParts<'_, T, S, G>,
        nodes: &mut Vec<(HostSlot, MasonMember<T, S, G>)>,
    ) {
        let log = log_of(self.first, group);
        let beginning =
            Beginning { configuration: self.configuration(group), joins: self.joins, waits: false };
        let page_bytes = self.parameters.page_bytes;
        let machine = ProxyMachine::new(group, host, self.topology.clone(), page_bytes, (parts.stub)(group));
        let proxy = Proxy::new(
            group,
            self.topology.clone(),
            self.parameters.clone(),
            LogNodes {
                batcher: log.node(host, LogRole::Batcher),
                leader: log.node(host, LogRole::Leader),
                replica: log.node(host, LogRole::Replica),
                first: self.first,
            },
            spaces_of.clone(),
        );
        let roles = log.build(host, &self.log, beginning, machine);
        nodes.extend(roles.into_iter().map(|(slot, role)| (slot, MasonMember::Log(Box::new(role)))));
        nodes.push((proxy_slot(self.first, group), MasonMember::Proxy(Box::new(proxy))));
    }
}
