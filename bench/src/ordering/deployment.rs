//! Proxies spread over machines as in the paper: each machine holds leaders or followers of several groups.

use super::service::{Numbers, Seat};
use crate::profile::Profile;
use crate::step::Steps;
use kernel::{Embedded, HostId, NodeId, Place};
use mason::proxy::machine::ProxyMachine;
use mason::proxy::{LogNodes, Proxy, SpacesOf};
use mason::sequencer::Sequencer;
use mason::{Group, Layout, Member, Parameters, ProxyGroup, Stub, Topology};
use parts::{Acceptors, Slot};
use paxos::multipaxos::{acceptor, batcher, leader, proxy_leader, replica, unbatcher};
use paxos::{Configuration, Configurations};
use sequence::Gateway;
use sim::cost::{HostPlan, MachineIndex, MachineSpec, Tariff, Testbed};
use std::sync::Arc;
use std::time::Duration;

const MEMBERS: usize = 3;
const LEADER: Place = Place(1);
const PROXY_LEADER: Place = Place(2);
const ACCEPTOR: Place = Place(3);
const REPLICA: Place = Place(4);
const BATCHER: Place = Place(5);
const UNBATCHER: Place = Place(6);
const PROXY: Place = Place(7);
const SEQUENCER: Place = Place(8);
const GATEWAY: Place = Place(9);

const GROUPS_FROM: u32 = 0x1_0000;
const SEQUENCERS_FROM: u32 = 0x100;
const CLIENTS_FROM: u32 = 0x200;
/// Threads of a machine: leaders or followers on it.
const THREADS: usize = 8;
const READY_WITHIN: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(50);

/// Bare ordering.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Proxy machines; a third of them hold leaders, the others followers, eight each. A multiple of three.
    pub proxy_machines: usize,
    /// Sequence spaces.
    pub spaces: u16,
    /// Clients' threads, each an origin of operations.
    pub clients: usize,
    /// Clients speak to their groups' second members, who pass operations on: those outlive a leader.
    pub by_followers: bool,
    /// Mason's numbers.
    pub parameters: Parameters,
    /// After how long a silence followers elect a leader.
    pub election_timeout: Duration,
}

impl Deployment {
    /// So many machines, with patience enough for any load.
    pub fn new(proxy_machines: usize, spaces: u16, clients: usize) -> Self {
        let parameters = Parameters {
            resend_after: Duration::from_secs(2),
            suspect_after: Duration::from_secs(2),
            ..Parameters::default()
        };
        let election_timeout = Duration::from_secs(2);
        Self { proxy_machines, spaces, clients, by_followers: false, parameters, election_timeout }
    }

    /// Replicated groups: each leading thread has one.
    pub fn groups(&self) -> usize {
        self.proxy_machines / MEMBERS * THREADS
    }

    fn topology(&self) -> Topology {
        let group = |group: usize| ProxyGroup {
            proxies: (0..MEMBERS).map(|member| NodeId::new(host_of(group, member), PROXY)).collect(),
        };
        Topology {
            version: 0,
            groups: (0..self.groups()).map(group).collect(),
            layout: Layout::of_birth(self.groups() as u16),
            sequencers: (0..2)
                .map(|number| NodeId::new(HostId(SEQUENCERS_FROM + number), SEQUENCER))
                .collect(),
            // Spaces without servers: nothing is executed.
            shards: vec![Vec::new(); usize::from(self.spaces)],
        }
    }
}

fn host_of(group: usize, member: usize) -> HostId {
    HostId(GROUPS_FROM + (group * MEMBERS + member) as u32)
}

fn configuration(group: usize) -> Configuration {
    let on_all = |place| -> Vec<NodeId> {
        (0..MEMBERS).map(|member| NodeId::new(host_of(group, member), place)).collect()
    };
    let acceptors = parts::Group::majority(on_all(ACCEPTOR)).and_then(|group| Acceptors::new(vec![group]));
    let mut batchers = on_all(BATCHER);
    // Proxies hear the leader as batchers do.
    batchers.extend(on_all(PROXY));
    Configuration {
        version: 0,
        first_slot: Slot(0),
        acceptors: acceptors.expect("three different hosts"),
        leaders: on_all(LEADER),
        proxy_leaders: on_all(PROXY_LEADER),
        replicas: on_all(REPLICA),
        batchers,
        unbatchers: on_all(UNBATCHER),
        hosts: Vec::new(),
        joined: Vec::new(),
    }
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

impl Running {
    /// Builds the deployment and waits for its leaders.
    ///
    /// # Errors
    /// If one is missing after a while.
    pub fn start(deployment: &Deployment, profile: &Profile, seed: u64) -> Result<Running, NotReady> {
        let topology = Arc::new(deployment.topology());
        let mut testbed = Testbed::new(seed, Steps, profile.link());
        let mut stations = Vec::new();
        let tariff = testbed.tariff(profile.tariff_of_threads(THREADS as u64));
        for sequencer in &topology.sequencers {
            let machine = testbed.machine(profile.machine(1));
            let role = Sequencer::new(topology.clone(), deployment.parameters.clone());
            let plan = HostPlan { id: sequencer.host(), machine, core: 0, tariff };
            testbed.host(plan, [(SEQUENCER, Member::Sequencer(Box::new(role)))]);
            stations.push("sequencer");
        }
        let tariff = testbed.tariff(profile.tariff());
        let mut machines: Vec<MachineIndex> = Vec::new();
        for group in 0..deployment.groups() {
            if group % THREADS == 0 {
                machines = (0..MEMBERS).map(|_| testbed.machine(profile.machine(THREADS))).collect();
            }
            for (member, &machine) in machines.iter().enumerate() {
                let nodes = member_nodes(deployment, &topology, group, member);
                let plan = HostPlan { id: host_of(group, member), machine, core: group % THREADS, tariff };
                testbed.host(plan, nodes);
                stations.push(if member == 0 { "proxy leader" } else { "proxy follower" });
            }
        }
        testbed.run_for(Duration::from_millis(1));
        await_leaders(&mut testbed, deployment.groups())?;
        let free = testbed.tariff(Tariff::free());
        let mut clients = Vec::new();
        for number in 0..deployment.clients {
            let machine = testbed.machine(MachineSpec { cores: 1, bytes_per_second: None });
            let id = HostId(CLIENTS_FROM + number as u32);
            let member = usize::from(deployment.by_followers);
            let proxies = topology.groups.iter().map(|group| group.proxies[member]).collect();
            let gateway = Member::Gateway(Box::new(Gateway::new(proxies, Vec::new())));
            testbed.host(HostPlan { id, machine, core: 0, tariff: free }, [(GATEWAY, gateway)]);
            stations.push("clients");
            clients.push(NodeId::new(id, GATEWAY));
        }
        Ok(Running { testbed, clients, stations })
    }

    /// The proxy of a group's member.
    pub fn proxy(&self, group: usize, member: usize) -> Option<&Proxy> {
        match self.testbed.node(NodeId::new(host_of(group, member), PROXY)) {
            Some(Member::Proxy(proxy)) => Some(proxy),
            _ => None,
        }
    }

    /// What a group's member has applied.
    pub fn machine(&self, group: usize, member: usize) -> Option<&ProxyMachine<Numbers>> {
        match self.testbed.node(NodeId::new(host_of(group, member), REPLICA)) {
            Some(Member::Log(embedded)) => match embedded.node() {
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

fn await_leaders(testbed: &mut Testbed<Seat, Steps>, groups: usize) -> Result<(), NotReady> {
    loop {
        let leads = |group: &usize| {
            let node = testbed.node(NodeId::new(host_of(*group, 0), PROXY));
            matches!(node, Some(Member::Proxy(proxy))
                if proxy.is_leading() && proxy.sequencer_epoch().is_some_and(|epoch| epoch > 0))
        };
        let leading = (0..groups).filter(leads).count();
        if leading == groups {
            return Ok(());
        }
        if testbed.now() > READY_WITHIN {
            let rejects = testbed.rejects().iter().map(|(&what, &count)| (what, count)).collect();
            return Err(NotReady { leading, rejects });
        }
        testbed.run_for(STEP);
    }
}

fn member_nodes(
    deployment: &Deployment,
    topology: &Arc<Topology>,
    group: usize,
    member: usize,
) -> Vec<(Place, Seat)> {
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
    let node = |place| NodeId::new(host, place);
    let numbers = Numbers { spaces: deployment.spaces };
    let page_bytes = deployment.parameters.page_bytes;
    let machine = ProxyMachine::new(id, host, topology.clone(), page_bytes, numbers);
    let spaces_of: SpacesOf = Arc::new(move |body| numbers.spaces(body));
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
    let mut nodes: Vec<(Place, Seat)> = roles
        .into_iter()
        .map(|(place, member)| (place, Member::Log(Box::new(Embedded::new(member)))))
        .collect();
    nodes.push((PROXY, Member::Proxy(Box::new(proxy))));
    nodes
}
