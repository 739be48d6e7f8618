//! Shards on machines of several sites, and the gateways of their users.

use crate::profile::Profile;
use crate::step::Steps;
use kernel::{HostId, HostSlot, NodeId};
use paxos::{Beginning, EmbeddedLog, LogRole};
use sim::cost::{HostPlan, MachineIndex, MachineSpec, Tariff, Testbed};
use spanner::gateway::TxnGateway;
use spanner::shard::{LogNodes, SpannerShard};
use spanner::{Directory, ShardId, ShardMachine, SpannerMember, SpannerParameters};
use std::sync::Arc;
use std::time::Duration;

const LOG_FROM: HostSlot = HostSlot(0);
const SHARD: HostSlot = HostSlot(7);
const GATEWAY: HostSlot = HostSlot(9);
const SHARDS_FROM: u32 = 0x1_0000;
const GATEWAYS_FROM: u32 = 0x100;
const READY_WITHIN: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(50);

/// The sites of a deployment, and how far they are from each other.
#[derive(Clone, Debug)]
pub struct Sites {
    /// Their names.
    pub names: Vec<&'static str>,
    /// Round trips in milliseconds, by two sites; within one it is the profile's latency.
    pub round_trips_ms: Vec<(usize, usize, f64)>,
}

impl Sites {
    /// So many, as near to each other as machines of one site are.
    pub fn near(count: usize) -> Self {
        Self { names: vec!["site"; count], round_trips_ms: Vec::new() }
    }

    /// Section 6's: California, Virginia and Ireland.
    pub fn of_the_paper() -> Self {
        let round_trips_ms = vec![(0, 1, 62.0), (0, 2, 136.0), (1, 2, 68.0)];
        Self { names: vec!["California", "Virginia", "Ireland"], round_trips_ms }
    }
}

/// Shards with a replica at each site, each on a core of its own; and gateways.
#[derive(Clone, Debug)]
pub struct TxnDeployment {
    /// Where replicas and users are.
    pub sites: Sites,
    /// How many shards there are.
    pub shards: u16,
    /// Replicas share so many machines of one core; else each has a core of its own, at its site.
    pub machines: Option<usize>,
    /// The leaders are at one site, the first; else each is at another site than the one before.
    pub led_at_one_site: bool,
    /// Users' gateways at each site, on machines of which there are always enough.
    pub gateways_per_site: usize,
    /// What clocks may be off.
    pub clock_error: Duration,
    /// The engine's numbers.
    pub parameters: SpannerParameters,
    /// The logs' numbers.
    pub log: paxos::Parameters,
}

/// Not every shard is led where the deployment wants it.
#[derive(Clone, Debug)]
pub struct TxnsNotReady {
    /// How many are.
    pub leading: usize,
    /// What was refused meanwhile.
    pub rejects: Vec<(&'static str, u64)>,
}

impl std::fmt::Display for TxnsNotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { leading, rejects } = self;
        write!(f, "{leading} shards are led after {READY_WITHIN:?} of virtual time; refused: {rejects:?}")
    }
}

impl std::error::Error for TxnsNotReady {}

/// A deployment whose shards are all led.
pub struct RunningTxns {
    /// The testbed.
    pub testbed: Testbed<SpannerMember, Steps>,
    /// The users' gateways.
    pub gateways: Vec<NodeId>,
    /// The hosts of the shards' leaders, in the order of [`sim::cost::Measured::busy`].
    pub leaders: Vec<usize>,
}

impl TxnDeployment {
    /// The site that leads a shard.
    fn leads(&self, shard: u16) -> usize {
        if self.led_at_one_site { 0 } else { usize::from(shard) % self.sites.names.len() }
    }

    /// The machine of a replica among `count`: the three of a shard are a third of the machines apart.
    fn shared_machine(&self, shard: u16, site: usize, count: usize) -> usize {
        (usize::from(shard) + site * count / self.sites.names.len()) % count
    }

    /// The share of its time in which each shared machine worked for replicas, by what was measured of their hosts.
    pub fn shared_machines_busy(&self, hosts: &[f64]) -> Vec<f64> {
        let mut busy = vec![0.0; self.machines.unwrap_or(0)];
        let replicas =
            (0..self.sites.names.len()).flat_map(|site| (0..self.shards).map(move |shard| (shard, site)));
        for ((shard, site), share) in replicas.zip(hosts) {
            let machine = self.shared_machine(shard, site, busy.len().max(1));
            if let Some(of) = busy.get_mut(machine) {
                *of += share;
            }
        }
        busy
    }

    fn host_of(&self, shard: u16, site: usize) -> HostId {
        HostId(SHARDS_FROM + (usize::from(shard) * self.sites.names.len() + site) as u32)
    }

    /// A shard's hosts, the one that is to lead first.
    fn hosts_of(&self, shard: u16) -> Vec<HostId> {
        let count = self.sites.names.len();
        (0..count).map(|step| self.host_of(shard, (self.leads(shard) + step) % count)).collect()
    }

    fn directory(&self) -> Directory {
        let roles = |shard| self.hosts_of(shard).into_iter().map(|host| NodeId::new(host, SHARD)).collect();
        Directory { shards: (0..self.shards).map(roles).collect(), spread_levels: 0 }
    }

    /// The nodes of a shard's replica.
    fn replica(&self, shard: u16, site: usize, directory: &Arc<Directory>) -> Vec<(HostSlot, SpannerMember)> {
        let host = self.host_of(shard, site);
        // Number 0, so that the hosts stay in the order in which they are given.
        let log = EmbeddedLog { first: LOG_FROM, number: 0, proposer: SHARD };
        let configuration = log
            .configuration_on(0, self.hosts_of(shard), Vec::new())
            .expect("sites are at least one and different");
        // The patience of the one that is to lead is shorter.
        let shorter = if site == self.leads(shard) { 4 } else { 1 };
        let silent_after = 8 * self.log.heartbeat_every.max(std::time::Duration::from_millis(125));
        let parameters =
            paxos::Parameters { election_timeout: self.log.election_timeout / shorter, ..self.log.clone() };
        let role = NodeId::new(host, SHARD);
        let nodes = LogNodes {
            leader: log.node(host, LogRole::Leader),
            replica: log.node(host, LogRole::Replica),
            silent_after,
        };
        let shard = ShardId(shard);
        let gateway = NodeId::new(host, GATEWAY);
        let leads = SpannerShard::new(shard, directory.clone(), self.parameters.clone(), nodes, log, gateway);
        let beginning = Beginning { configuration, joins: false, waits: false };
        let log = log.build(host, &parameters, beginning, ShardMachine::new(shard, role));
        let mut nodes = vec![(SHARD, SpannerMember::Shard(Box::new(leads)))];
        nodes.extend(log.into_iter().map(|(slot, role)| (slot, SpannerMember::Log(Box::new(role)))));
        nodes
    }

    /// Builds the deployment and waits for its leaders.
    ///
    /// # Errors
    /// If one is missing after a while.
    pub fn start(&self, profile: &Profile, seed: u64) -> Result<RunningTxns, TxnsNotReady> {
        let mut testbed = Testbed::new(seed, Steps, profile.link());
        testbed.set_clock_error(self.clock_error);
        let directory = Arc::new(self.directory());
        let tariff = testbed.tariff(profile.tariff());
        let free = testbed.tariff(Tariff::free());
        let mut by_site = Vec::new();
        let shared: Vec<MachineIndex> =
            (0..self.machines.unwrap_or(0)).map(|_| testbed.machine(profile.machine(1))).collect();
        for site in 0..self.sites.names.len() {
            let machine = testbed.machine(profile.machine(usize::from(self.shards)));
            for shard in 0..self.shards {
                let id = self.host_of(shard, site);
                let (machine, core) = match shared.len() {
                    0 => (machine, usize::from(shard)),
                    count => (shared[self.shared_machine(shard, site, count)], 0),
                };
                let plan = HostPlan { id, machine, core, tariff };
                testbed.host(plan, self.replica(shard, site, &directory));
            }
            by_site.push(vec![machine]);
        }
        let mut gateways = Vec::new();
        for (site, machines) in by_site.iter_mut().enumerate() {
            for number in 0..self.gateways_per_site {
                let machine = testbed.machine(MachineSpec { cores: 1, bytes_per_second: None });
                let id = HostId(GATEWAYS_FROM + (site * self.gateways_per_site + number) as u32);
                let gateway = TxnGateway::new(directory.clone(), self.parameters.clone());
                let plan = HostPlan { id, machine, core: 0, tariff: free };
                testbed.host(plan, [(GATEWAY, SpannerMember::Gateway(Box::new(gateway)))]);
                machines.push(machine);
                gateways.push(NodeId::new(id, GATEWAY));
            }
        }
        for &(one, other, milliseconds) in &self.sites.round_trips_ms {
            for &here in &by_site[one] {
                for &there in &by_site[other] {
                    testbed.set_latency(here, there, Duration::from_secs_f64(milliseconds / 2e3));
                }
            }
        }
        self.await_leaders(&mut testbed)?;
        let index =
            |shard| testbed.hosts().iter().position(|&id| id == self.host_of(shard, self.leads(shard)));
        let leaders = (0..self.shards).filter_map(index).collect();
        Ok(RunningTxns { testbed, gateways, leaders })
    }

    fn await_leaders(&self, testbed: &mut Testbed<SpannerMember, Steps>) -> Result<(), TxnsNotReady> {
        loop {
            testbed.run_for(STEP);
            let leads = |shard: &u16| {
                let role = NodeId::new(self.host_of(*shard, self.leads(*shard)), SHARD);
                matches!(testbed.node(role), Some(SpannerMember::Shard(role)) if role.is_leading())
            };
            let leading = (0..self.shards).filter(leads).count();
            if leading == usize::from(self.shards) {
                return Ok(());
            }
            if testbed.now() > READY_WITHIN {
                let rejects = testbed.rejects().iter().map(|(&what, &count)| (what, count)).collect();
                return Err(TxnsNotReady { leading, rejects });
            }
        }
    }
}
