//! Which machine plays which role, and the testbed that comes of it.

use super::node::{Seat, Unreplicated};
use super::workload::Workload;
use crate::profile::Profile;
use crate::step::Steps;
use kernel::{Encode, HostId, HostSlot, Node, NodeId};
use kv::Store;
use parts::{AcceptorGroup, Sequence, SessionId, Slot};
use paxos::multipaxos::acceptor::Acceptor;
use paxos::multipaxos::batcher::Batcher;
use paxos::multipaxos::client::CommandClient;
use paxos::multipaxos::leader::Leader;
use paxos::multipaxos::proxy_leader::ProxyLeader;
use paxos::multipaxos::replica::Replica;
use paxos::multipaxos::unbatcher::Unbatcher;
use paxos::{Commands, Configuration, Configurations, GroupKind, HostEntry, Member, Parameters, Paxos};
use sim::cost::{HostPlan, MachineSpec, Measured, Pace, Tariff, Testbed, Window};
use std::time::Duration;

const BATCHER: HostSlot = HostSlot(1);
const LEADER: HostSlot = HostSlot(2);
const PROXY_LEADER: HostSlot = HostSlot(3);
const ACCEPTOR: HostSlot = HostSlot(4);
const REPLICA: HostSlot = HostSlot(5);
const UNBATCHER: HostSlot = HostSlot(6);
const FIRST_CLIENT: u32 = 0x100;

/// How long a cluster has, of virtual time, to bootstrap and to elect its leader.
const BOOTSTRAP_WITHIN: Duration = Duration::from_secs(10);
const BOOTSTRAP_STEP: Duration = Duration::from_millis(50);
/// Machines that stand for the clients'.
const CLIENT_MACHINES: usize = 8;

/// Who votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptorLayout {
    /// So many, of whom most are a quorum.
    Majority(usize),
    /// A row is asked by reads, a column by writes (the paper's section 3.2).
    Grid {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
}

impl AcceptorLayout {
    /// How many there are.
    pub fn count(self) -> usize {
        match self {
            Self::Majority(count) => count,
            Self::Grid { rows, columns } => rows * columns,
        }
    }
}

/// Where clients' commands are gathered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Batchers and unbatchers are part of the clients, as in the paper's deployments without any.
    Gather,
    /// On so many machines, each with a batcher and an unbatcher.
    Connect {
        /// Machines.
        batchers: usize,
    },
}

/// How commands share slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batching {
    /// Commands of a batch; 1: each has a slot of its own.
    pub commands: usize,
    /// How long a batch that is not full waits.
    pub delay: Duration,
}

impl Batching {
    /// None.
    pub const NONE: Batching = Batching { commands: 1, delay: Duration::ZERO };

    /// So many commands a batch.
    pub fn of(commands: usize) -> Self {
        let delay = if commands > 1 { Duration::from_millis(1) } else { Duration::ZERO };
        Self { commands, delay }
    }
}

/// Which roles there are, and on how many machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineLayout {
    /// Each role instance on a machine of its own (the paper's sections 3 and 4); two leaders, one of which waits.
    Compartmentalized {
        /// Proxy leaders.
        proxy_leaders: usize,
        /// Acceptors.
        acceptors: AcceptorLayout,
        /// Replicas.
        replicas: usize,
    },
    /// Classic MultiPaxos: so many machines play every role. Clients send to the leader's.
    Colocated {
        /// Machines.
        hosts: usize,
        /// Clients connect to all of them, and not to the leader's alone.
        clients_everywhere: bool,
    },
    /// One machine that is not replicated.
    Unreplicated,
}

/// A deployment of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreDeployment {
    /// The roles.
    pub shape: MachineLayout,
    /// Where clients' commands are gathered. Co-located machines always have batchers of their own, beside those.
    pub clients: Clients,
    /// How commands share slots.
    pub batching: Batching,
}

impl StoreDeployment {
    /// Machines, without the clients'.
    pub fn machines(&self) -> usize {
        let batchers = match self.clients {
            Clients::Gather => 0,
            Clients::Connect { batchers } => batchers,
        };
        match self.shape {
            MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas } => {
                batchers + 2 + proxy_leaders + acceptors.count() + replicas
            }
            MachineLayout::Colocated { hosts, .. } => hosts,
            MachineLayout::Unreplicated => 1 + batchers,
        }
    }

    /// The deployment under `clients` clients with a call each in flight, as `workload` asks.
    pub fn measure(
        &self,
        profile: &Profile,
        workload: &Workload,
        clients: usize,
        window: Window,
    ) -> Result<Measured, NotBootstrapped> {
        let mut running = Running::start(self, profile, workload, clients, 1)?;
        let nodes = running.clients.clone();
        Ok(running.testbed.run(&nodes, Pace::Closed { outstanding: 1 }, &mut workload.clone(), window))
    }

    pub(super) fn parameters(&self, workload: &Workload) -> Parameters {
        let kind = GroupKind::ExecuteIn(Slot(0));
        let (client, session, commands) =
            (NodeId::ZERO, SessionId(0), Commands::from_row(row(&workload.put(0))));
        let put = paxos::CommandGroup { client, session, acknowledged: Sequence(0), kind, commands };
        // With one command a batch, bursts of one make them; see the tariff of clients.
        let batch_of = |bytes: usize| match self.batching.commands {
            1 => 2 << 20,
            commands => commands * bytes,
        };
        Parameters {
            heartbeat_every: Duration::from_millis(20),
            election_timeout: Duration::from_millis(200),
            resend_after: Duration::from_secs(1),
            window: 1 << 14,
            batch_bytes_max: batch_of(put.encoded().len()),
            // As many reads as commands, and not as many bytes: a read is shorter.
            read_batch_bytes_max: batch_of(Commands::from_row(row(&workload.get(0))).size()),
            batch_delay: self.batching.delay,
            batches_in_flight_max: 1 << 20,
            read_batches_in_flight_max: 1 << 20,
            thrifty: true,
            snapshot_every_bytes: u64::MAX,
            retained_bytes_max: 1 << 20,
            ..Parameters::default()
        }
    }
}

fn row(command: &[u8]) -> Vec<u8> {
    let mut row = Vec::new();
    Commands::push(&mut row, Sequence(0), command);
    row
}

/// No leader was elected in time, which no deployment without faults should show.
#[derive(Clone, Debug)]
pub struct NotBootstrapped {
    /// What was refused meanwhile.
    pub rejects: Vec<(&'static str, u64)>,
}

impl std::fmt::Display for NotBootstrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no leader after {BOOTSTRAP_WITHIN:?} of virtual time; refused meanwhile: {:?}",
            self.rejects
        )
    }
}

impl std::error::Error for NotBootstrapped {}

/// A deployment that has its leader.
pub struct Running<N: Node = Seat> {
    /// The testbed.
    pub testbed: Testbed<N, Steps>,
    /// The clients' nodes.
    pub clients: Vec<NodeId>,
    /// What each host is for, in the order of [`Measured::busy`]; the leader that waits is "standby".
    pub stations: Vec<&'static str>,
}

struct Builder<'a, N: Node, W> {
    testbed: Testbed<N, Steps>,
    /// What becomes of each node.
    wrap: W,
    profile: &'a Profile,
    parameters: Parameters,
    known: Configurations,
    stations: Vec<&'static str>,
}

/// Host names are numbers: the first in a list leads.
fn hosts(from: u32, count: usize) -> Vec<HostId> {
    (from..from + count as u32).map(HostId).collect()
}

fn on(hosts: &[HostId], host_slot: HostSlot) -> Vec<NodeId> {
    hosts.iter().map(|&host| NodeId::new(host, host_slot)).collect()
}

const LEADERS: u32 = 0x100;
const PROXIES: u32 = 0x200;
const ACCEPTORS: u32 = 0x300;
const REPLICAS: u32 = 0x400;
const BATCHERS: u32 = 0x500;
const COLOCATED: u32 = 0x600;
const CLIENTS: u32 = 0x700;

fn configuration(deployment: &StoreDeployment) -> Configuration {
    let fronts = match deployment.clients {
        Clients::Gather => hosts(CLIENTS, CLIENT_MACHINES),
        Clients::Connect { batchers } => hosts(BATCHERS, batchers),
    };
    let (leaders, proxies, replicas, acceptors, fronts) = match deployment.shape {
        MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas } => {
            let members = on(&hosts(ACCEPTORS, acceptors.count()), ACCEPTOR);
            let group = match acceptors {
                AcceptorLayout::Majority(_) => AcceptorGroup::majority(members),
                AcceptorLayout::Grid { columns, .. } => AcceptorGroup::grid(members, columns),
            };
            let group = group.expect("acceptors are different, and as many as rows times columns");
            (hosts(LEADERS, 2), hosts(PROXIES, proxy_leaders), hosts(REPLICAS, replicas), group, fronts)
        }
        MachineLayout::Colocated { hosts: count, .. } => {
            let all = hosts(COLOCATED, count);
            let group = AcceptorGroup::majority(on(&all, ACCEPTOR)).expect("hosts are different");
            let fronts = if deployment.clients == Clients::Gather { fronts } else { all.clone() };
            (all.clone(), all.clone(), all, group, fronts)
        }
        MachineLayout::Unreplicated => {
            let one = hosts(LEADERS, 1);
            let group = AcceptorGroup::majority(on(&one, ACCEPTOR)).expect("one host");
            (one.clone(), one.clone(), one, group, fronts)
        }
    };
    Configuration {
        version: 0,
        first_slot: Slot(0),
        acceptors: parts::Acceptors::new(vec![acceptors]).expect("one group"),
        leaders: on(&leaders, LEADER),
        proxy_leaders: on(&proxies, PROXY_LEADER),
        replicas: on(&replicas, REPLICA),
        batchers: on(&fronts, BATCHER),
        unbatchers: on(&fronts, UNBATCHER),
        hosts: Vec::<HostEntry>::new(),
        joined: Vec::new(),
    }
}

impl Running {
    /// Builds the deployment on `profile`'s machines with `clients` clients, and waits for its leader.
    ///
    /// # Errors
    /// If nobody leads after a while.
    pub fn start(
        deployment: &StoreDeployment,
        profile: &Profile,
        workload: &Workload,
        clients: usize,
        seed: u64,
    ) -> Result<Running, NotBootstrapped> {
        Self::start_as(deployment, profile, workload, clients, seed, |seat| seat)
    }
}

impl<N: Node<Family = Paxos> + AsRef<Seat>> Running<N> {
    /// As [`Running::start`], with something around each node.
    ///
    /// # Errors
    /// If nobody leads after a while.
    pub fn start_as(
        deployment: &StoreDeployment,
        profile: &Profile,
        workload: &Workload,
        clients: usize,
        seed: u64,
        wrap: impl Fn(Seat) -> N,
    ) -> Result<Running<N>, NotBootstrapped> {
        let first = configuration(deployment);
        let mut builder = Builder {
            testbed: Testbed::new(seed, Steps, profile.link()),
            wrap,
            profile,
            parameters: deployment.parameters(workload),
            known: Configurations::starting_with(first.clone()),
            stations: Vec::new(),
        };
        builder.servers(deployment, &first);
        if let (
            Clients::Connect { .. },
            MachineLayout::Compartmentalized { .. } | MachineLayout::Unreplicated,
        ) = (deployment.clients, deployment.shape)
        {
            for front in &first.batchers {
                let nodes = builder.front(front.host());
                builder.server("batcher", front.host(), nodes, false);
            }
        }
        builder.testbed.run_for(Duration::from_millis(1));
        let leader = builder.await_leader(&first, deployment.shape)?;
        let clients = builder.clients(deployment, &first, clients, leader);
        // The clients' own batchers hear the leader.
        builder.testbed.run_for(BOOTSTRAP_STEP);
        let mut stations = builder.stations;
        for (station, host) in stations.iter_mut().zip(builder.testbed.hosts()) {
            if *station == "leader" && *host != leader {
                *station = "standby";
            }
        }
        Ok(Running { testbed: builder.testbed, clients, stations })
    }

    /// The busiest station but the clients, and how busy it was.
    pub fn bottleneck(&self, measured: &Measured) -> (&'static str, f64) {
        let busy = self.stations.iter().copied().zip(measured.busy.iter().copied());
        busy.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nobody", 0.0))
    }
}

impl<N: Node<Family = Paxos> + AsRef<Seat>, W: Fn(Seat) -> N> Builder<'_, N, W> {
    fn server(
        &mut self,
        station: &'static str,
        id: HostId,
        nodes: Vec<(HostSlot, Seat)>,
        unreplicated: bool,
    ) {
        let tariff = if unreplicated { self.profile.tariff_unreplicated() } else { self.profile.tariff() };
        let tariff = self.testbed.tariff(tariff);
        let machine = self.testbed.machine(self.profile.machine(1));
        let nodes = nodes.into_iter().map(|(host_slot, seat)| (host_slot, (self.wrap)(seat)));
        self.testbed.host(HostPlan { id, machine, core: 0, tariff }, nodes);
        self.stations.push(station);
    }

    fn servers(&mut self, deployment: &StoreDeployment, first: &Configuration) {
        match deployment.shape {
            MachineLayout::Compartmentalized { .. } => {
                for leader in &first.leaders {
                    let nodes = vec![(LEADER, self.leader())];
                    self.server("leader", leader.host(), nodes, false);
                }
                for proxy in &first.proxy_leaders {
                    let nodes = vec![(PROXY_LEADER, self.proxy_leader())];
                    self.server("proxy leader", proxy.host(), nodes, false);
                }
                for acceptor in first.acceptors.nodes() {
                    let nodes = vec![(ACCEPTOR, self.acceptor(None))];
                    self.server("acceptor", acceptor.host(), nodes, false);
                }
                for replica in &first.replicas {
                    let nodes = vec![(REPLICA, self.replica())];
                    self.server("replica", replica.host(), nodes, false);
                }
            }
            MachineLayout::Colocated { .. } => {
                for leader in &first.leaders {
                    let host = leader.host();
                    let replica = NodeId::new(host, REPLICA);
                    let mut nodes = vec![
                        (LEADER, self.leader()),
                        (PROXY_LEADER, self.proxy_leader()),
                        (ACCEPTOR, self.acceptor(Some(replica))),
                        (REPLICA, self.replica()),
                    ];
                    if deployment.clients != Clients::Gather {
                        nodes.extend(self.front(host));
                    }
                    self.server("leader", host, nodes, false);
                }
            }
            MachineLayout::Unreplicated => {
                let role = Seat::Unreplicated(Box::new(Unreplicated::new(self.known.clone())));
                self.server("unreplicated", first.leaders[0].host(), vec![(LEADER, role)], true);
            }
        }
    }

    fn leader(&self) -> Seat {
        Member::Leader(Leader::new(self.parameters.clone(), self.known.clone())).into()
    }

    fn proxy_leader(&self) -> Seat {
        Member::ProxyLeader(ProxyLeader::new(self.parameters.clone(), self.known.clone())).into()
    }

    fn acceptor(&self, replica: Option<NodeId>) -> Seat {
        Member::Acceptor(Acceptor::new(self.parameters.clone(), self.known.clone(), replica)).into()
    }

    fn replica(&self) -> Seat {
        Member::Replica(Replica::new(self.parameters.clone(), self.known.clone(), Store::new(1))).into()
    }

    fn front(&self, host: HostId) -> Vec<(HostSlot, Seat)> {
        let unbatcher = NodeId::new(host, UNBATCHER);
        let batcher = Batcher::new(self.parameters.clone(), self.known.clone(), unbatcher);
        vec![(BATCHER, Member::Batcher(batcher).into()), (UNBATCHER, Member::Unbatcher(Unbatcher).into())]
    }

    fn await_leader(
        &mut self,
        first: &Configuration,
        shape: MachineLayout,
    ) -> Result<HostId, NotBootstrapped> {
        let leads = |node: &NodeId, testbed: &Testbed<N, Steps>| match testbed.node(*node).map(N::as_ref) {
            Some(Seat::Member(member)) => matches!(&**member, Member::Leader(leader) if leader.is_leading()),
            Some(Seat::Unreplicated(_)) => true,
            None => false,
        };
        while self.testbed.now() < BOOTSTRAP_WITHIN {
            if let Some(node) = first.leaders.iter().find(|node| leads(node, &self.testbed)) {
                return Ok(node.host());
            }
            self.testbed.run_for(BOOTSTRAP_STEP);
        }
        debug_assert!(shape != MachineLayout::Unreplicated, "it leads from the beginning");
        Err(NotBootstrapped {
            rejects: self.testbed.rejects().iter().map(|(&what, &count)| (what, count)).collect(),
        })
    }

    /// Clients on machines that cost nothing, each a node of its own.
    fn clients(
        &mut self,
        deployment: &StoreDeployment,
        first: &Configuration,
        count: usize,
        leader: HostId,
    ) -> Vec<NodeId> {
        let tariff = self.testbed.tariff(Tariff::free());
        let machine = self.testbed.machine(MachineSpec { cores: CLIENT_MACHINES, bytes_per_second: None });
        let mut all = Vec::with_capacity(count);
        for (index, id) in hosts(CLIENTS, CLIENT_MACHINES).into_iter().enumerate() {
            let mut nodes: Vec<(HostSlot, Seat)> = match deployment.clients {
                Clients::Gather => self.front(id),
                Clients::Connect { .. } => Vec::new(),
            };
            let mine = (index..count).step_by(CLIENT_MACHINES);
            for number in mine {
                let batchers = match (deployment.clients, deployment.shape) {
                    (Clients::Gather, _) => vec![NodeId::new(id, BATCHER)],
                    (_, MachineLayout::Colocated { clients_everywhere: false, .. }) => {
                        vec![NodeId::new(leader, BATCHER)]
                    }
                    _ => first.batchers.clone(),
                };
                let client = CommandClient::new(batchers, Duration::from_secs(5)).starting_at(number);
                let host_slot = HostSlot(FIRST_CLIENT + number as u32);
                all.push(NodeId::new(id, host_slot));
                nodes.push((host_slot, Member::Client(client).into()));
            }
            let nodes = nodes.into_iter().map(|(host_slot, seat)| (host_slot, (self.wrap)(seat)));
            self.testbed.host(HostPlan { id, machine, core: index, tariff }, nodes);
            self.stations.push("clients");
        }
        all
    }
}
