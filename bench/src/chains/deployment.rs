//! Chains of servers, each on a machine of its own, and clients.

use crate::profile::Profile;
use crate::step::Steps;
use fuzzylog::{
    ChainProjection, Colour, ColourPlacement, FuzzyDeployment, FuzzyMember, FuzzyParameters, PartitionId,
};
use kernel::{HostId, NodeId};
use paxos::HostEntry;
use sim::cost::{HostPlan, MachineSpec, Tariff, Testbed};
use std::time::Duration;

/// The first slot of the deployment on each host.
const FIRST: u32 = 0x100;
const DIRECTORS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(10);
/// Projections have come to their servers by then.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);

/// Partitions, each a chain of servers.
#[derive(Clone, Debug)]
pub struct ChainDeployment {
    /// Partitions that hold what is appended.
    pub partitions: u16,
    /// Servers of each chain.
    pub width: usize,
    /// One more partition of one server hands out positions: the sequencer of a totally ordered log.
    pub sequencer: Option<Tariff>,
    /// Machines of clients.
    pub clients: usize,
}

/// A deployment whose chains serve.
pub struct RunningChains {
    /// The testbed.
    pub testbed: Testbed<FuzzyMember, Steps>,
    /// The clients.
    pub clients: Vec<NodeId>,
    /// The client beside each server, by partition and place in its chain.
    pub beside: Vec<Vec<NodeId>>,
    /// What each host is for, in the order of [`sim::cost::Measured::busy`].
    pub stations: Vec<&'static str>,
    /// Where colours are.
    pub placement: ColourPlacement,
}

/// No chains were decided.
#[derive(Clone, Debug)]
pub struct ChainsNotReady {
    /// What was refused meanwhile.
    pub rejects: Vec<(&'static str, u64)>,
}

impl std::fmt::Display for ChainsNotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "chains do not serve after {READY_WITHIN:?} of virtual time; refused: {:?}", self.rejects)
    }
}

impl std::error::Error for ChainsNotReady {}

fn director(number: usize) -> HostEntry {
    HostEntry { name: format!("director{number}"), address: String::new() }
}

impl ChainDeployment {
    /// Patience enough for any load.
    fn parameters() -> FuzzyParameters {
        FuzzyParameters {
            resend_after: Duration::from_secs(2),
            suspect_after: Duration::from_secs(5),
            ..FuzzyParameters::default()
        }
    }

    fn chain(&self, partition: u16) -> Vec<HostId> {
        let width = if partition < self.partitions { self.width } else { 1 };
        (0..width).map(|nth| HostId::named(&format!("server{partition}-{nth}"))).collect()
    }

    /// Builds the deployment and waits until its chains serve.
    ///
    /// # Errors
    /// If they do not after a while.
    pub fn start(&self, profile: &Profile, seed: u64) -> Result<RunningChains, ChainsNotReady> {
        let all = self.partitions + u16::from(self.sequencer.is_some());
        let chains: Vec<Vec<HostId>> = (0..all).map(|partition| self.chain(partition)).collect();
        let directors: Vec<HostEntry> = (0..DIRECTORS).map(director).collect();
        let log = paxos::Parameters::DEFAULT;
        let of = FuzzyDeployment::of_chains(FIRST, directors.clone(), &chains, Self::parameters(), log);
        let mut testbed = Testbed::new(seed, Steps, profile.link());
        let mut stations = Vec::new();
        let (servers, free) = (testbed.tariff(profile.tariff()), testbed.tariff(Tariff::free()));
        let sequencer = self.sequencer.clone().map(|tariff| testbed.tariff(tariff));
        for director in &directors {
            let machine = testbed.machine(MachineSpec { cores: 1, bytes_per_second: None });
            let id = HostId::named(&director.name);
            testbed.host(HostPlan { id, machine, core: 0, tariff: free }, of.build(id));
            stations.push("director");
        }
        for (partition, chain) in (0..).zip(&chains) {
            let is_sequencer = partition == self.partitions;
            for &id in chain {
                let machine = testbed.machine(profile.machine(1));
                let tariff = sequencer.filter(|_| is_sequencer).unwrap_or(servers);
                testbed.host(HostPlan { id, machine, core: 0, tariff }, of.build(id));
                stations.push(if is_sequencer { "sequencer" } else { "server" });
            }
        }
        let mut clients = Vec::new();
        for number in 0..self.clients {
            let machine = testbed.machine(profile.machine(1));
            let id = HostId::named(&format!("client{number}"));
            testbed.host(HostPlan { id, machine, core: 0, tariff: servers }, [of.build_client(id)]);
            stations.push("client");
            clients.push(of.client_of(id));
        }
        let beside = chains.iter().map(|chain| chain.iter().map(|&host| of.client_of(host)).collect());
        let running =
            RunningChains { testbed, clients, beside: beside.collect(), stations, placement: of.placement() };
        running.ready(&of)
    }
}

impl RunningChains {
    fn ready(mut self, of: &FuzzyDeployment) -> Result<Self, ChainsNotReady> {
        let directors: Vec<NodeId> = of.director_hosts().map(|host| of.director_of(host)).collect();
        loop {
            self.testbed.run_for(STEP);
            let has_begun = |id: &NodeId| {
                let Some(FuzzyMember::Director(role)) = self.testbed.node(*id) else { return false };
                role.projections().all(ChainProjection::is_bootstrapped)
            };
            if directors.iter().all(has_begun) {
                self.testbed.run_for(SETTLES_WITHIN);
                return Ok(self);
            }
            if self.testbed.now() > READY_WITHIN {
                let rejects = self.testbed.rejects().iter().map(|(&what, &count)| (what, count)).collect();
                return Err(ChainsNotReady { rejects });
            }
        }
    }

    /// A colour of a partition: the `nth` of those.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn colour(&self, partition: u16, nth: usize) -> Colour {
        let placed = |number: &u64| self.placement.partition_of(Colour(*number)) == PartitionId(partition);
        let found = (0..u64::MAX).filter(placed).nth(nth).expect("colours are spread over all partitions");
        Colour(found)
    }
}
