//! Proxies with shards on machines of their own, or one group alone.

use super::corfu_prime::{self, RandomReads};
use super::node::{Relay, Seat, Services};
use super::register::Register;
use crate::ordering::{self, MayLead, NotReady, Site};
use crate::profile::Profile;
use crate::step::Steps;
use corfu::Projection;
use kernel::client::Response;
use kernel::{Bytes, Embedded, Encode, HostId, HostSlot, Node, NodeId, Rng};
use mason::shard::ShardServer;
use mason::{Group, MasonMember, MasonParameters, Space};
use sequence::{Ask, Spaces};
use sim::cost::{Class, HostPlan, Load, LoadSession, MachineSpec, Tariff, Testbed};
use std::sync::Arc;
use std::time::Duration;

/// What is ordered, and who executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderedService {
    /// Corfu-Mason: one space, whose numbers are positions of a log that goes round over so many chains of two.
    Log {
        /// Chains.
        chains: usize,
    },
    /// Its entries, read: by the proxies, for clients that each speak to one, at the chains' tails. Nothing is appended.
    LogReads {
        /// Chains.
        chains: usize,
    },
    /// So many shards of three servers, one thread each, with a space each (ZK-Mason's shape).
    Shards {
        /// Shards.
        shards: u16,
    },
    /// One group whose log is the order, and whose hosts execute it, all on one thread (RSMKeeper's shape).
    Alone,
}

/// A service.
#[derive(Clone, Debug)]
pub struct ServiceDeployment {
    /// Which.
    pub service: OrderedService,
    /// Machines of leading proxies; each has two machines of followers.
    pub leader_machines: usize,
    /// Clients' threads.
    pub clients: usize,
}

/// A deployment whose groups all lead.
pub struct Running<N: Node = Seat> {
    /// The testbed.
    pub testbed: Testbed<N, Steps>,
    /// The clients' gateways.
    pub clients: Vec<NodeId>,
    /// What each host is for, in the order of [`sim::cost::Measured::busy`].
    pub stations: Vec<&'static str>,
}

const SERVERS_FROM: u32 = 0x8_0000;
const READERS_FROM: u32 = 0x4_0000;
/// What a shard's value is long.
const VALUE_BYTES: usize = 64;
/// On a proxy's host: the relay of a space. On a server's own: the server.
const SERVER: u32 = 0x40;
const MEMBERS: usize = 3;
/// Servers of a chain: one failure is survived.
const CHAIN: usize = 2;
/// Batches of a log's leader in flight. Its thread also writes the chains, so that a batch waits long for its turn: with fewer the thread
/// is idle, and with more the batches are so small that their requests fill the sequencer's card, at 9.6 million a second.
const LOG_BATCHES_MAX: usize = 6;
/// Entries of a group alone in flight: the paper has two rounds with the followers for each operation.
const ALONE_BATCHES_MAX: usize = 256;
/// All threads of a storage server's machine serve it.
const STORAGE_THREADS: u64 = 8;

fn server_of(space: Space, member: usize) -> NodeId {
    let host = HostId(SERVERS_FROM + u32::from(space.0) * MEMBERS as u32 + member as u32);
    NodeId::new(host, HostSlot(SERVER + u32::from(space.0)))
}

fn chains(count: usize) -> Vec<Vec<NodeId>> {
    let server = |chain: usize, nth: usize| {
        NodeId::new(HostId(SERVERS_FROM + (chain * CHAIN + nth) as u32), HostSlot(SERVER))
    };
    (0..count).map(|chain| (0..CHAIN).map(|nth| server(chain, nth)).collect()).collect()
}

impl ServiceDeployment {
    /// Machines, without the clients'.
    pub fn machines(&self) -> usize {
        let proxies = self.leader_machines * MEMBERS;
        match self.service {
            // A sequencer and one that waits.
            OrderedService::Log { chains } | OrderedService::LogReads { chains } => {
                proxies + chains * CHAIN + 2
            }
            OrderedService::Shards { shards } => proxies + usize::from(shards) * MEMBERS + 2,
            OrderedService::Alone => MEMBERS,
        }
    }

    fn spaces(&self) -> u16 {
        match self.service {
            OrderedService::Shards { shards } => shards,
            OrderedService::Log { .. } | OrderedService::LogReads { .. } | OrderedService::Alone => 1,
        }
    }

    fn ordering(&self) -> ordering::OrderingDeployment {
        let proxies =
            ordering::OrderingDeployment::new(self.leader_machines * MEMBERS, self.spaces(), self.clients);
        match self.service {
            OrderedService::Alone => {
                let parameters = MasonParameters {
                    batches_max: ALONE_BATCHES_MAX,
                    batch_operations_max: 1,
                    ..proxies.parameters
                };
                ordering::OrderingDeployment { groups: 1, alone: true, parameters, ..proxies }
            }
            OrderedService::Log { .. } => {
                let parameters = MasonParameters { batches_max: LOG_BATCHES_MAX, ..proxies.parameters };
                ordering::OrderingDeployment { parameters, ..proxies }
            }
            // Readers are no origins of operations.
            OrderedService::LogReads { .. } => ordering::OrderingDeployment { clients: 0, ..proxies },
            OrderedService::Shards { .. } => proxies,
        }
    }

    /// Builds the deployment and waits for its leaders.
    ///
    /// # Errors
    /// If one is missing after a while.
    pub fn start(&self, profile: &Profile, seed: u64) -> Result<Running, NotReady> {
        self.start_as(profile, seed, |seat| seat)
    }

    /// As [`Deployment::start`], with something around each node.
    pub(crate) fn start_as<N: Node<Family = Services> + MayLead>(
        &self,
        profile: &Profile,
        seed: u64,
        around: impl Fn(Seat) -> N,
    ) -> Result<Running<N>, NotReady> {
        let ordering = self.ordering();
        // Replicas hand what is ordered to this slot of their own host.
        let here = |space: Space| {
            let host = |member: usize| ordering::host_of(0, member);
            (0..MEMBERS).map(|it| NodeId::new(host(it), HostSlot(SERVER + u32::from(space.0)))).collect()
        };
        let topology = Arc::new(ordering.topology(here));
        let mut site = Site::new(seed, Steps, profile);
        self.servers(&ordering, profile, &mut site, &around);
        let chains = match self.service {
            OrderedService::Log { chains } | OrderedService::LogReads { chains } => self::chains(chains),
            OrderedService::Shards { .. } | OrderedService::Alone => Vec::new(),
        };
        let beside = |group: usize, member: usize| -> Vec<(HostSlot, N)> {
            let slot = |space: Space| HostSlot(SERVER + u32::from(space.0));
            match self.service {
                OrderedService::Log { .. } | OrderedService::LogReads { .. } => {
                    let leads = (member == 0).then_some(Group(group as u16));
                    let relay = Relay::to_chains(chains.clone(), leads);
                    vec![(HostSlot(SERVER), around(Seat::Relay(relay)))]
                }
                OrderedService::Shards { shards } => {
                    let relay =
                        |space| around(Seat::Relay(Relay::Forward { server: server_of(space, member) }));
                    (0..shards).map(Space).map(|space| (slot(space), relay(space))).collect()
                }
                OrderedService::Alone => {
                    let parameters = ordering.parameters.clone();
                    let server =
                        ShardServer::new(Space(0), topology.clone(), parameters, Register::of(VALUE_BYTES));
                    vec![(
                        HostSlot(SERVER),
                        around(Seat::Mason(Box::new(Embedded::new(MasonMember::Shard(Box::new(server)))))),
                    )]
                }
            }
        };
        let stub = Spaces { count: self.spaces() };
        let wrap = |member| around(Seat::Mason(Box::new(Embedded::new(member))));
        site.proxies(&ordering, &topology, profile, stub, wrap, beside)?;
        if let OrderedService::LogReads { .. } = self.service {
            self.readers(&ordering, &mut site, &around);
        }
        let Site { testbed, stations, clients } = site;
        Ok(Running { testbed, clients, stations })
    }

    /// Clients of a log to whom one proxy's relay is all of it.
    fn readers<N: Node<Family = Services> + MayLead>(
        &self,
        ordering: &ordering::OrderingDeployment,
        site: &mut Site<N, Steps>,
        around: &impl Fn(Seat) -> N,
    ) {
        let tariff = site.testbed.tariff(Tariff::free());
        for number in 0..self.clients {
            let machine = site.testbed.machine(MachineSpec { cores: 1, bytes_per_second: None });
            let relay = NodeId::new(ordering::host_of(number % ordering.groups, 0), HostSlot(SERVER));
            let log = Projection::initial(relay, vec![vec![relay]]);
            let role = corfu::Client::new(Vec::new(), log, corfu_prime::parameters());
            let id = NodeId::new(HostId(READERS_FROM + number as u32), HostSlot(SERVER));
            let plan = HostPlan { id: id.host(), machine, core: 0, tariff };
            let node = Seat::Corfu(Box::new(Embedded::new(corfu::Member::Client(role))));
            site.testbed.host(plan, [(id.host_slot(), around(node))]);
            site.stations.push("clients");
            site.clients.push(id);
        }
    }

    /// The machines that execute.
    fn servers<N: Node<Family = Services> + MayLead>(
        &self,
        ordering: &ordering::OrderingDeployment,
        profile: &Profile,
        site: &mut Site<N, Steps>,
        around: &impl Fn(Seat) -> N,
    ) {
        match self.service {
            OrderedService::Log { chains } | OrderedService::LogReads { chains } => {
                let tariff = site.testbed.tariff(profile.tariff_of_threads(STORAGE_THREADS));
                for (chain, servers) in self::chains(chains).into_iter().enumerate() {
                    for server in servers {
                        let machine = site.testbed.machine(profile.machine(1));
                        let plan = HostPlan { id: server.host(), machine, core: 0, tariff };
                        let role = match self.service {
                            OrderedService::LogReads { .. } => corfu_prime::written(chain, chains),
                            OrderedService::Log { .. }
                            | OrderedService::Shards { .. }
                            | OrderedService::Alone => corfu_prime::serving(),
                        };
                        let node = Seat::Corfu(Box::new(Embedded::new(corfu::Member::Storage(role))));
                        site.testbed.host(plan, [(server.host_slot(), around(node))]);
                        site.stations.push("storage server");
                    }
                }
            }
            OrderedService::Shards { shards } => {
                let tariff = site.testbed.tariff(profile.tariff());
                let servers = |space| (0..MEMBERS).map(|member| server_of(space, member)).collect();
                let topology = Arc::new(ordering.topology(servers));
                for space in (0..shards).map(Space) {
                    for member in 0..MEMBERS {
                        let id = server_of(space, member);
                        let machine = site.testbed.machine(profile.machine(1));
                        let parameters = ordering.parameters.clone();
                        let server =
                            ShardServer::new(space, topology.clone(), parameters, Register::of(VALUE_BYTES));
                        let node = Seat::Mason(Box::new(Embedded::new(MasonMember::Shard(Box::new(server)))));
                        let plan = HostPlan { id: id.host(), machine, core: 0, tariff };
                        site.testbed.host(plan, [(id.host_slot(), around(node))]);
                        site.stations.push("shard server");
                    }
                }
            }
            OrderedService::Alone => {}
        }
    }
}

/// Clients that have operations ordered, each in one space at random, and executed.
#[derive(Clone, Debug)]
pub struct Operations {
    bodies: Vec<Bytes>,
}

impl Operations {
    /// Of so many bytes beside what names the space.
    pub fn over(spaces: u16, bytes: usize) -> Self {
        let label = Bytes::from(vec![b'x'; bytes]);
        let ask = |space| Ask { spaces: vec![Space(space)], label: label.clone() };
        Self { bodies: (0..spaces).map(|space| ask(space).encoded().into()).collect() }
    }

    /// That read the space's value, ordered as writes are.
    pub fn reads_over(spaces: u16) -> Self {
        Self::over(spaces, 0)
    }
}

impl Load<Services> for RandomReads {
    fn ask(&mut self, _session: LoadSession, rng: &mut Rng) -> (Bytes, Class) {
        (self.position(rng).encoded().into(), Class(0))
    }

    fn answered(&mut self, _: LoadSession, _: Class, response: &Response, _now: Duration) -> bool {
        !response.0.is_empty()
    }
}

impl Load<Services> for Operations {
    fn ask(&mut self, _session: LoadSession, rng: &mut Rng) -> (Bytes, Class) {
        (rng.pick(&self.bodies).cloned().unwrap_or_default(), Class(0))
    }

    fn answered(&mut self, _: LoadSession, _: Class, response: &Response, _now: Duration) -> bool {
        !response.0.is_empty()
    }
}
