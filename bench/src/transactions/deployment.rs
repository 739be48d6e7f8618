//! Shards on machines of several sites, and the gateways of their users.

use crate::profile::Profile;
use crate::step::Steps;
use kernel::{HostId, HostSlot, NodeId};
use paxos::{Beginning, EmbeddedLog, LogRole};
use sim::cost::{HostPlan, MachineSpec, Tariff, Testbed};
use spanner::gateway::TxnGateway;
use spanner::shard::{LogNodes, SpannerShard};
use spanner::{Directory, ShardId, ShardMachine, SpannerMember, SpannerParameters};
use std::sync::Arc;
use std::time::Duration;

const GATEWAY: HostSlot = HostSlot(1);
/// Each shard has so many slots on a host: those of its log, and its role's.
const SLOTS_PER_SHARD: u32 = 0x10;
const ROLE: u32 = 7;
/// Nobody fails, so a log that is silent is no sign of anything.
const SILENT_AFTER: Duration = Duration::from_secs(60);
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

    fn host_of(&self, shard: u16, site: usize) -> HostId {
        HostId(SHARDS_FROM + (usize::from(shard) * self.sites.names.len() + site) as u32)
    }

    /// A shard's hosts, the one that is to lead first.
    fn hosts_of(&self, shard: u16) -> Vec<HostId> {
        let count = self.sites.names.len();
        (0..count).map(|step| self.host_of(shard, (self.leads(shard) + step) % count)).collect()
    }

    fn all_hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        let sites = self.sites.names.len();
        let gateways =
            (0..(sites * self.gateways_per_site) as u32).map(|number| HostId(GATEWAYS_FROM + number));
        let replicas =
            (0..(sites * usize::from(self.shards)) as u32).map(|number| HostId(SHARDS_FROM + number));
        gateways.chain(replicas)
    }

    fn directory(&self) -> Directory {
        Directory { shards: (0..self.shards).map(|shard| log_of(shard).proposer).collect(), spread_levels: 0 }
    }

    /// A shard's role on a host.
    fn role(&self, shard: u16, host: HostId, directory: &Arc<Directory>) -> SpannerShard {
        let log = log_of(shard);
        let nodes = LogNodes {
            leader: log.node(host, LogRole::Leader),
            replica: log.node(host, LogRole::Replica),
            silent_after: SILENT_AFTER,
        };
        let (directory, parameters) = (directory.clone(), self.parameters.clone());
        SpannerShard::new(ShardId(shard), directory, parameters, nodes, log, NodeId::new(host, GATEWAY))
    }

    /// The nodes of a shard's replica.
    fn replica(&self, shard: u16, site: usize, directory: &Arc<Directory>) -> Vec<(HostSlot, SpannerMember)> {
        let (host, log) = (self.host_of(shard, site), log_of(shard));
        let mut configuration = log
            .configuration_on(0, self.hosts_of(shard), Vec::new())
            .expect("sites are at least one and different");
        // The roles of other hosts hand on what is for the leader, so they hear it.
        let others = self.all_hosts().filter(|other| !self.hosts_of(shard).contains(other));
        configuration.batchers.extend(others.map(|other| NodeId::new(other, log.proposer)));
        // The patience of the one that is to lead is shorter.
        let shorter = if site == self.leads(shard) { 4 } else { 1 };
        let parameters =
            paxos::Parameters { election_timeout: self.log.election_timeout / shorter, ..self.log.clone() };
        let leads = self.role(shard, host, directory);
        let beginning = Beginning { configuration, joins: false, waits: false };
        let machine = ShardMachine::new(ShardId(shard), NodeId::new(host, log.proposer));
        let roles = log.build(host, &parameters, beginning, machine);
        let mut nodes = vec![(log.proposer, SpannerMember::Shard(Box::new(leads)))];
        nodes.extend(self.roles_beside(Some(shard), host, directory));
        nodes.extend(roles.into_iter().map(|(slot, role)| (slot, SpannerMember::Log(Box::new(role)))));
        nodes
    }

    /// A gateway, and the roles that it turns to.
    fn gateway(&self, host: HostId, directory: &Arc<Directory>) -> Vec<(HostSlot, SpannerMember)> {
        let gateway = TxnGateway::new(directory.clone(), self.parameters.clone());
        let mut nodes = vec![(GATEWAY, SpannerMember::Gateway(Box::new(gateway)))];
        nodes.extend(self.roles_beside(None, host, directory));
        nodes
    }

    /// The roles of shards of which a host has no replica: what it says to them goes through these.
    fn roles_beside(
        &self,
        own: Option<u16>,
        host: HostId,
        directory: &Arc<Directory>,
    ) -> Vec<(HostSlot, SpannerMember)> {
        let others = (0..self.shards).filter(|shard| Some(*shard) != own);
        others
            .map(|shard| {
                let role = self.role(shard, host, directory);
                (log_of(shard).proposer, SpannerMember::Shard(Box::new(role)))
            })
            .collect()
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
        for site in 0..self.sites.names.len() {
            let machine = testbed.machine(profile.machine(usize::from(self.shards)));
            for shard in 0..self.shards {
                let (id, core) = (self.host_of(shard, site), usize::from(shard));
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
                let plan = HostPlan { id, machine, core: 0, tariff: free };
                testbed.host(plan, self.gateway(id, &directory));
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
                let role = NodeId::new(self.host_of(*shard, self.leads(*shard)), log_of(*shard).proposer);
                matches!(testbed.node(role), Some(SpannerMember::Shard(role)) if role.is_leading())
            };
            let leading = (0..self.shards).filter(leads).count();
            if leading == usize::from(self.shards) {
                // Gateways hear of their leaders by the next heartbeats.
                testbed.run_for(2 * self.log.heartbeat_every + STEP);
                return Ok(());
            }
            if testbed.now() > READY_WITHIN {
                let rejects = testbed.rejects().iter().map(|(&what, &count)| (what, count)).collect();
                return Err(TxnsNotReady { leading, rejects });
            }
        }
    }
}

/// A shard's log. All have the number 0, so that their hosts stay in the order in which they are given.
fn log_of(shard: u16) -> EmbeddedLog {
    let first = SLOTS_PER_SHARD * (u32::from(shard) + 1);
    EmbeddedLog { first: HostSlot(first), number: 0, proposer: HostSlot(first + ROLE) }
}
