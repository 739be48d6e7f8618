//! Proxies distributed over machines as in the paper: each machine holds leaders or followers of several groups.

use super::service::{Numbers, Seat};
use crate::profile::Profile;
use crate::step::Steps;
use kernel::{Embedded, HostId, HostSlot, Node, NodeId};
use mason::proxy::machine::ProxyMachine;
use mason::proxy::{LogNodes, Proxy, SpacesOf};
use mason::sequencer::Sequencer;
use mason::{Group, Layout, MasonMember, MasonParameters, ProxyGroup, Shard, Space, Stub, Topology};
use paxos::multipaxos::{acceptor, batcher, leader, proxy_leader, replica, unbatcher};
use paxos::{Configuration, Configurations, EmbeddedLog};
use sequence::Gateway;
use sim::cost::{HostPlan, MachineIndex, MachineSpec, Scale, Tariff, Testbed};
use std::sync::Arc;
use std::time::Duration;

const MEMBERS: usize = 3;
const LEADER: HostSlot = HostSlot(1);
const PROXY_LEADER: HostSlot = HostSlot(2);
const ACCEPTOR: HostSlot = HostSlot(3);
const REPLICA: HostSlot = HostSlot(4);
const BATCHER: HostSlot = HostSlot(5);
const UNBATCHER: HostSlot = HostSlot(6);
const PROXY: HostSlot = HostSlot(7);
const SEQUENCER: HostSlot = HostSlot(8);
const GATEWAY: HostSlot = HostSlot(9);

const GROUPS_FROM: u32 = 0x1_0000;
const SEQUENCERS_FROM: u32 = 0x100;
const CLIENTS_FROM: u32 = 0x200;
/// Threads of a machine: leaders or followers on it.
const THREADS: usize = 8;
const READY_WITHIN: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(50);

/// Proxies, and clients that speak to one of them each.
#[derive(Clone, Debug)]
pub struct OrderingDeployment {
    /// Replicated groups: each leading thread has one, and a machine holds eight leaders or eight followers.
    pub groups: usize,
    /// Sequence spaces.
    pub spaces: u16,
    /// Clients' threads, each an origin of operations, distributed over the groups.
    pub clients: usize,
    /// The group's own log is the order: there is no sequencer, and one group.
    pub alone: bool,
    /// Clients speak to their groups' second members, who pass operations on: those outlive a leader.
    pub by_followers: bool,
    /// Mason's numbers.
    pub parameters: MasonParameters,
    /// After how long a silence followers elect a leader.
    pub election_timeout: Duration,
}

impl OrderingDeployment {
    /// So many proxy machines, of which a third hold leaders, with patience enough for any load.
    pub fn new(proxy_machines: usize, spaces: u16, clients: usize) -> Self {
        let parameters = MasonParameters {
            resend_after: Duration::from_secs(2),
            suspect_after: Duration::from_secs(2),
            // Nothing restarts here.
            snapshot_every_bytes: u64::MAX,
            ..MasonParameters::default()
        };
        Self {
            groups: proxy_machines / MEMBERS * THREADS,
            spaces,
            clients,
            alone: false,
            by_followers: false,
            parameters,
            election_timeout: Duration::from_secs(2),
        }
    }

    /// Who plays what; `server` says where the shards' servers are taken to be by the replicas of a host.
    pub(crate) fn topology(&self, server: impl Fn(Space) -> Vec<NodeId>) -> Topology {
        let group = |group: usize| ProxyGroup {
            proxies: (0..MEMBERS).map(|member| NodeId::new(host_of(group, member), PROXY)).collect(),
        };
        let sequencers = if self.alone { 0 } else { 2 };
        Topology {
            version: 0,
            groups: (0..self.groups).map(group).collect(),
            layout: Layout::at_bootstrap(self.groups as u16, self.spaces),
            sequencers: (0..sequencers)
                .map(|number| NodeId::new(HostId(SEQUENCERS_FROM + number), SEQUENCER))
                .collect(),
            shards: (0..self.spaces).map(|space| server(Space(space))).collect(),
        }
    }
}

/// The host of a group's member.
pub(crate) fn host_of(group: usize, member: usize) -> HostId {
    HostId(GROUPS_FROM + (group * MEMBERS + member) as u32)
}

fn configuration(group: usize) -> Configuration {
    // Proxies hear the leader as batchers do.
    let log = EmbeddedLog { first: HostSlot(0), number: 0, proposer: PROXY };
    let hosts = (0..MEMBERS).map(|member| host_of(group, member)).collect();
    log.configuration_on(0, hosts, Vec::new()).expect("three different hosts")
}

/// Not every group got a leader with a sequencer in time.
#[derive(Clone, Debug)]
pub struct NotReady {
    /// How many did.
    pub leading: usize,
    /// What was refused meanwhile.
    pub rejects: Vec<(&'static str, u64)>,
}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { leading, rejects } = self;
        write!(f, "{leading} groups lead after {READY_WITHIN:?} of virtual time; refused: {rejects:?}")
    }
}

impl std::error::Error for NotReady {}

/// A deployment whose groups all lead.
pub struct Running {
    /// The testbed.
    pub testbed: Testbed<Seat, Steps>,
    /// The clients' gateways.
    pub clients: Vec<NodeId>,
    /// What each host is for, in the order of [`sim::cost::Measured::busy`].
    pub stations: Vec<&'static str>,
}

/// A node that may be a proxy.
pub(crate) trait MayLead {
    /// The proxy that it is.
    fn proxy(&self) -> Option<&Proxy>;
}

impl<T: Stub, S: Shard, G: mason::GatewayRole> MayLead for MasonMember<T, S, G> {
    fn proxy(&self) -> Option<&Proxy> {
        match self {
            Self::Proxy(proxy) => Some(proxy),
            Self::Sequencer(_) | Self::Shard(_) | Self::Gateway(_) | Self::Log(_) => None,
        }
    }
}

/// A testbed under construction.
pub(crate) struct Site<N: Node, S> {
    pub(crate) testbed: Testbed<N, S>,
    /// What each host is for.
    pub(crate) stations: Vec<&'static str>,
    pub(crate) clients: Vec<NodeId>,
}

impl<N: Node + MayLead, S: Scale<N::Family>> Site<N, S> {
    pub(crate) fn new(seed: u64, scale: S, profile: &Profile) -> Self {
        let testbed = Testbed::new(seed, scale, profile.link());
        Self { testbed, stations: Vec::new(), clients: Vec::new() }
    }

    /// Sequencers and groups; `wrap` makes them this testbed's nodes, and `beside` are more nodes of a group's member.
    pub(crate) fn proxies<T: Stub + Copy + Send + Sync, H: Shard>(
        &mut self,
        deployment: &OrderingDeployment,
        topology: &Arc<Topology>,
        profile: &Profile,
        stub: T,
        wrap: impl Fn(MasonMember<T, H, Gateway>) -> N,
        beside: impl Fn(usize, usize) -> Vec<(HostSlot, N)>,
    ) -> Result<(), NotReady> {
        let tariff = self.testbed.tariff(profile.tariff_of_threads(THREADS as u64));
        for sequencer in &topology.sequencers {
            let machine = self.testbed.machine(profile.machine(1));
            let role = Sequencer::new(topology.clone(), deployment.parameters.clone());
            let plan = HostPlan { id: sequencer.host(), machine, core: 0, tariff };
            self.testbed.host(plan, [(SEQUENCER, wrap(MasonMember::Sequencer(Box::new(role))))]);
            self.stations.push("sequencer");
        }
        let tariff = self.testbed.tariff(profile.tariff());
        let mut machines: Vec<MachineIndex> = Vec::new();
        for group in 0..deployment.groups {
            if group % THREADS == 0 {
                machines = (0..MEMBERS).map(|_| self.testbed.machine(profile.machine(THREADS))).collect();
            }
            for (member, &machine) in machines.iter().enumerate() {
                let nodes = member_nodes(deployment, topology, group, member, stub);
                let nodes = nodes.into_iter().map(|(slot, node)| (slot, wrap(node)));
                let plan = HostPlan { id: host_of(group, member), machine, core: group % THREADS, tariff };
                self.testbed.host(plan, nodes.chain(beside(group, member)));
                self.stations.push(if member == 0 { "proxy leader" } else { "proxy follower" });
            }
        }
        self.testbed.run_for(Duration::from_millis(1));
        await_leaders(&mut self.testbed, deployment)?;
        let free = self.testbed.tariff(Tariff::free());
        for number in 0..deployment.clients {
            let machine = self.testbed.machine(MachineSpec { cores: 1, bytes_per_second: None });
            let id = HostId(CLIENTS_FROM + number as u32);
            let member = usize::from(deployment.by_followers);
            let proxies = topology.groups.iter().map(|group| group.proxies[member]).collect();
            let group = Group((number % deployment.groups) as u16);
            let gateway = Gateway::new(proxies, Vec::new()).staying_with(group);
            let plan = HostPlan { id, machine, core: 0, tariff: free };
            self.testbed.host(plan, [(GATEWAY, wrap(MasonMember::Gateway(Box::new(gateway))))]);
            self.stations.push("clients");
            self.clients.push(NodeId::new(id, GATEWAY));
        }
        Ok(())
    }
}

impl Running {
    /// Builds the deployment and waits for its leaders.
    ///
    /// # Errors
    /// If one is missing after a while.
    pub fn start(deployment: &OrderingDeployment, profile: &Profile, seed: u64) -> Result<Running, NotReady> {
        // Spaces without servers: nothing is executed.
        let topology = Arc::new(deployment.topology(|_| Vec::new()));
        let mut site = Site::new(seed, Steps, profile);
        let numbers = Numbers { spaces: deployment.spaces };
        site.proxies(deployment, &topology, profile, numbers, |node| node, |_, _| Vec::new())?;
        let Site { testbed, stations, clients } = site;
        Ok(Running { testbed, clients, stations })
    }

    /// The proxy of a group's member.
    pub fn proxy(&self, group: usize, member: usize) -> Option<&Proxy> {
        match self.testbed.node(NodeId::new(host_of(group, member), PROXY)) {
            Some(MasonMember::Proxy(proxy)) => Some(proxy),
            _ => None,
        }
    }

    /// What a group's member has applied.
    pub fn machine(&self, group: usize, member: usize) -> Option<&ProxyMachine<Numbers>> {
        match self.testbed.node(NodeId::new(host_of(group, member), REPLICA)) {
            Some(MasonMember::Log(embedded)) => match embedded.node() {
                paxos::Member::Replica(replica) => Some(replica.machine()),
                _ => None,
            },
            _ => None,
        }
    }

    /// The hosts of a machine of leaders: those of eight groups.
    pub fn leaders_of_machine(&self, machine: usize) -> impl Iterator<Item = HostId> + use<> {
        (machine * THREADS..(machine + 1) * THREADS).map(|group| host_of(group, 0))
    }

    /// The sequencer in force at the beginning.
    pub fn sequencer(&self) -> Option<HostId> {
        let epoch = self.proxy(0, 0)?.sequencer_epoch()?;
        Some(HostId(SEQUENCERS_FROM + (epoch % 2) as u32))
    }
}

fn await_leaders<N: Node + MayLead, S: Scale<N::Family>>(
    testbed: &mut Testbed<N, S>,
    deployment: &OrderingDeployment,
) -> Result<(), NotReady> {
    loop {
        let leads = |group: &usize| {
            let node = testbed.node(NodeId::new(host_of(*group, 0), PROXY));
            node.and_then(MayLead::proxy).is_some_and(|proxy| {
                let ordered = deployment.alone || proxy.sequencer_epoch().is_some_and(|epoch| epoch > 0);
                proxy.is_leading() && ordered
            })
        };
        let leading = (0..deployment.groups).filter(leads).count();
        if leading == deployment.groups {
            return Ok(());
        }
        if testbed.now() > READY_WITHIN {
            let rejects = testbed.rejects().iter().map(|(&what, &count)| (what, count)).collect();
            return Err(NotReady { leading, rejects });
        }
        testbed.run_for(STEP);
    }
}

fn member_nodes<T: Stub + Copy + Send + Sync, H: Shard>(
    deployment: &OrderingDeployment,
    topology: &Arc<Topology>,
    group: usize,
    member: usize,
    stub: T,
) -> Vec<(HostSlot, MasonMember<T, H, Gateway>)> {
    let host = host_of(group, member);
    let id = Group(group as u16);
    let known = Configurations::starting_with(configuration(group));
    // The first member's patience is shorter: leaders are where the deployment wants them.
    let shorter = if member == 0 { 4 } else { 1 };
    let log = paxos::Parameters {
        election_timeout: deployment.election_timeout / shorter,
        resend_after: deployment.parameters.resend_after,
        thrifty: false,
        snapshot_every_bytes: u64::MAX,
        retained_bytes_max: 1 << 20,
        ..paxos::Parameters::default()
    };
    let node = |slot| NodeId::new(host, slot);
    let page_bytes = deployment.parameters.page_bytes;
    let machine = ProxyMachine::new(id, host, topology.clone(), page_bytes, stub);
    let spaces_of: SpacesOf = Arc::new(move |body, shard_map| stub.spaces(body, shard_map));
    let proxy = Proxy::new(
        id,
        topology.clone(),
        deployment.parameters.clone(),
        LogNodes { batcher: node(BATCHER), leader: node(LEADER), replica: node(REPLICA), first: 0 },
        spaces_of,
    );
    let roles = [
        (LEADER, paxos::Member::Leader(leader::Leader::new(log.clone(), known.clone()))),
        (
            PROXY_LEADER,
            paxos::Member::ProxyLeader(proxy_leader::ProxyLeader::new(log.clone(), known.clone())),
        ),
        (
            ACCEPTOR,
            paxos::Member::Acceptor(acceptor::Acceptor::new(log.clone(), known.clone(), Some(node(REPLICA)))),
        ),
        (REPLICA, paxos::Member::Replica(replica::Replica::new(log.clone(), known.clone(), machine))),
        (BATCHER, paxos::Member::Batcher(batcher::Batcher::new(log, known, node(UNBATCHER)))),
        (UNBATCHER, paxos::Member::Unbatcher(unbatcher::Unbatcher)),
    ];
    let mut nodes: Vec<(HostSlot, MasonMember<T, H, Gateway>)> = roles
        .into_iter()
        .map(|(slot, member)| (slot, MasonMember::Log(Box::new(Embedded::new(member)))))
        .collect();
    nodes.push((PROXY, MasonMember::Proxy(Box::new(proxy))));
    nodes
}
