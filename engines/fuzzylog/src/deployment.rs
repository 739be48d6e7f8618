//! Which roles a host plays: the same slots under every driver.

use crate::chain_server::{ChainServer, OtherRegion, RegionPlan};
use crate::client::FuzzyClient;
use crate::director::{Director, DirectorBeginning, DirectorLog, DirectorMachine};
use crate::family::FuzzyMember;
use crate::parameters::FuzzyParameters;
use crate::projection::ChainProjection;
use crate::terms::{ColourPlacement, PARTITIONS_MAX, PartitionId, RegionId};
use kernel::{HostId, HostSlot, NodeId};
use paxos::{Beginning, EmbeddedLog, HostEntry, LogRole, Members};
use std::sync::Arc;
use std::time::Duration;

/// So many hosts have a director, if there are so many: one of them may fail.
pub(crate) const DIRECTORS: usize = 3;
const CLIENT: u32 = 1;
const DIRECTOR: u32 = 2;
const LOG: u32 = 2;
const CHAIN_SERVERS: u32 = 0x10;
/// A director takes its log's leader for silent after that, or so many heartbeats if those take longer.
const SILENT_AFTER: Duration = Duration::from_secs(1);
const HEARTBEATS_MISSED: u32 = 8;

/// What is at a slot of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FuzzySlot {
    /// The client.
    Client,
    /// The director.
    Director,
    /// A role of the directors' log.
    Log(LogRole),
    /// A partition's chain server.
    ChainServer(PartitionId),
}

impl FuzzySlot {
    /// What is at the slot that is `offset` after the deployment's first; none if nothing ever is.
    pub fn at(offset: u32) -> Option<Self> {
        match offset {
            CLIENT => Some(Self::Client),
            DIRECTOR => Some(Self::Director),
            offset if offset < CHAIN_SERVERS => LogRole::at(offset.checked_sub(LOG)?).map(Self::Log),
            offset => {
                let partition = u16::try_from(offset - CHAIN_SERVERS).ok();
                partition.filter(|it| *it < PARTITIONS_MAX).map(|it| Self::ChainServer(PartitionId(it)))
            }
        }
    }
}

/// A deployment on hosts that all have a client, some of them directors, and partitions' chains spread over them. Every host has the
/// roles of directors and of all chains: those that are not needed there yet wait to be.
#[derive(Clone, Debug)]
pub struct FuzzyDeployment {
    /// Hosts that direct at first: the first ones.
    directors: Vec<HostEntry>,
    /// Only these hosts have roles: it follows no members.
    is_fixed: bool,
    /// It is of a host that comes to a running deployment.
    joins: bool,
    /// How many servers a chain is to have, if there are so many hosts.
    replicas: usize,
    /// Who may be in each partition's chain; the first `width` of them are at the beginning.
    candidates: Vec<Vec<NodeId>>,
    /// Of all partitions, and behind them of those that may be added.
    initial: Vec<ChainProjection>,
    placement: ColourPlacement,
    parameters: FuzzyParameters,
    log: paxos::Parameters,
    first: u32,
    /// The other regions, if there are any.
    regions: Option<Arc<RegionPlan>>,
}

impl FuzzyDeployment {
    /// `partitions` partitions on `hosts`, at slots from `first` on: chains of `width` servers, and `spares` more candidates each until the
    /// members change. With fewer hosts chains are shorter, until others join.
    ///
    /// # Panics
    /// If there is no host.
    pub fn new(
        first: u32,
        hosts: &[HostEntry],
        partitions: u16,
        (width, spares): (usize, usize),
        parameters: FuzzyParameters,
        log: paxos::Parameters,
    ) -> Self {
        assert!(!hosts.is_empty(), "a deployment has hosts");
        let ids: Vec<HostId> = hosts.iter().map(|host| HostId::named(&host.name)).collect();
        let (replicas, width) = (width, width.clamp(1, ids.len()));
        let count = (width + spares).min(ids.len());
        let chain = |partition: u16| {
            (0..count).map(|nth| ids[(usize::from(partition) + nth) % ids.len()]).collect::<Vec<_>>()
        };
        let chains: Vec<Vec<HostId>> = (0..partitions.clamp(1, PARTITIONS_MAX)).map(chain).collect();
        let directors = hosts.iter().take(DIRECTORS).cloned().collect();
        let with = Self::with(first, directors, &chains, width, parameters, log);
        Self { is_fixed: false, replicas, ..with }
    }

    /// The same for a host that joins the running deployment: the hosts that it knows are unconfirmed, good for finding others.
    ///
    /// # Panics
    /// If it knows none.
    #[must_use]
    pub fn joining(&self, known: &[HostEntry]) -> Self {
        let Self { first, replicas, placement, parameters, log, regions, .. } = self.clone();
        let chains = (replicas, known.len());
        let of_known = Self::new(first, known, placement.partitions(), chains, parameters, log);
        Self { joins: true, regions, ..of_known }.with_room(self.initial.len())
    }

    /// The same, where so many partitions may be: what is beyond the first ones is added later, or never.
    #[must_use]
    pub fn with_room(mut self, most: usize) -> Self {
        let mut hosts: Vec<HostId> = Vec::new();
        for node in self.candidates.iter().flatten() {
            if !hosts.contains(&node.host()) {
                hosts.push(node.host());
            }
        }
        let width = self.replicas.clamp(1, hosts.len());
        for number in self.initial.len()..most.min(usize::from(PARTITIONS_MAX)) {
            hosts.rotate_left(1);
            let partition = PartitionId(number as u16);
            let servers: Vec<NodeId> = hosts.iter().map(|&host| self.server_of(host, partition)).collect();
            self.initial.push(ChainProjection::initial(partition, &servers[..width]));
            self.candidates.push(servers);
        }
        self
    }

    /// A chain for each partition, on hosts of one's choice, and directors on others: at most three.
    ///
    /// # Panics
    /// If there is no director, or no partition.
    pub fn of_chains(
        first: u32,
        directors: Vec<HostEntry>,
        chains: &[Vec<HostId>],
        parameters: FuzzyParameters,
        log: paxos::Parameters,
    ) -> Self {
        assert!((1..=DIRECTORS).contains(&directors.len()), "{} directors", directors.len());
        assert!((1..=usize::from(PARTITIONS_MAX)).contains(&chains.len()), "{} partitions", chains.len());
        Self::with(first, directors, chains, usize::MAX, parameters, log)
    }

    /// The first `width` of each partition's hosts are its chain at the beginning.
    fn with(
        first: u32,
        directors: Vec<HostEntry>,
        chains: &[Vec<HostId>],
        width: usize,
        parameters: FuzzyParameters,
        log: paxos::Parameters,
    ) -> Self {
        let servers = |(partition, hosts): (u32, &Vec<HostId>)| -> Vec<NodeId> {
            let slot = HostSlot(first + CHAIN_SERVERS + partition);
            hosts.iter().map(|&host| NodeId::new(host, slot)).collect()
        };
        let candidates: Vec<Vec<NodeId>> = (0..).zip(chains).map(servers).collect();
        let initial = (0..)
            .zip(&candidates)
            .map(|(it, of)| ChainProjection::initial(PartitionId(it), &of[..width.min(of.len())]))
            .collect();
        let placement = ColourPlacement::over(chains.len() as u16);
        let replicas = width.min(crate::CHAIN_MAX);
        let (is_fixed, joins) = (true, false);
        let regions = None;
        Self {
            directors,
            is_fixed,
            joins,
            replicas,
            candidates,
            initial,
            placement,
            parameters,
            log,
            first,
            regions,
        }
    }

    /// The same as one region among others, each of which is a deployment of its own at the same slots. Those that were removed the host
    /// was started with before.
    #[must_use]
    pub fn among(self, own: RegionId, others: Vec<OtherRegion>, removed: Vec<RegionId>) -> Self {
        let first_server = HostSlot(self.first + CHAIN_SERVERS);
        let regions = Some(Arc::new(RegionPlan { own, others, removed, first_server }));
        Self { regions, ..self }
    }

    /// The partitions' first projections.
    pub fn initial(&self) -> &[ChainProjection] {
        &self.initial
    }

    /// Who may be in each partition's chain.
    pub fn candidates(&self) -> &[Vec<NodeId>] {
        &self.candidates
    }

    /// Where colours are.
    pub fn placement(&self) -> ColourPlacement {
        self.placement
    }

    /// The hosts that direct at first.
    pub fn director_hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.directors.iter().map(|entry| HostId::named(&entry.name))
    }

    /// The client of a host.
    pub fn client_of(&self, host: HostId) -> NodeId {
        NodeId::new(host, HostSlot(self.first + CLIENT))
    }

    /// The director of a host.
    pub fn director_of(&self, host: HostId) -> NodeId {
        NodeId::new(host, HostSlot(self.first + DIRECTOR))
    }

    /// A partition's chain server on a host.
    pub fn server_of(&self, host: HostId, partition: PartitionId) -> NodeId {
        NodeId::new(host, HostSlot(self.first + CHAIN_SERVERS + u32::from(partition.0)))
    }

    /// The directors' log.
    pub fn embedded_log(&self) -> EmbeddedLog {
        let proposer = HostSlot(self.first + DIRECTOR);
        EmbeddedLog { first: HostSlot(self.first + LOG), number: 0, proposer }
    }

    /// The client of a host that has nothing else of the deployment.
    pub fn build_client(&self, host: HostId) -> (HostSlot, FuzzyMember) {
        let directors = self.director_hosts().map(|host| self.director_of(host)).collect();
        let client = self.client_of(host);
        let role = FuzzyClient::new(self.parameters.clone(), self.placement, directors, self.initial.clone());
        (client.host_slot(), FuzzyMember::Client(Box::new(role)))
    }

    /// The nodes of one host.
    pub fn build(&self, host: HostId) -> Vec<(HostSlot, FuzzyMember)> {
        let mut nodes = vec![self.build_client(host)];
        if !self.is_fixed || self.director_hosts().any(|it| it == host) {
            self.build_director(host, &mut nodes);
        }
        for (number, candidates) in (0..).map(PartitionId).zip(&self.candidates) {
            if !self.is_fixed || candidates.iter().any(|server| server.host() == host) {
                let (placement, parameters) = (self.placement, self.parameters.clone());
                let (server, client) = (self.server_of(host, number), self.client_of(host));
                let role = ChainServer::new(number, placement, parameters, client);
                let role = role.in_regions(self.regions.clone());
                let was_there = number.0 < self.placement.partitions();
                let role = if was_there { role } else { role.resting() };
                nodes.push((server.host_slot(), FuzzyMember::ChainServer(Box::new(role))));
            }
        }
        nodes
    }

    fn build_director(&self, host: HostId, nodes: &mut Vec<(HostSlot, FuzzyMember)>) {
        let log = self.embedded_log();
        let members = Members { version: 0, hosts: self.directors.clone() };
        let configuration =
            log.configuration(0, &members).expect("hosts have different names, and there are at most 3");
        // A host that joins may be among those that its file names.
        let directs = !self.joins && self.director_hosts().any(|it| it == host);
        let beginning = Beginning { configuration, joins: !directs, waits: !directs };
        let role = self.director_of(host);
        let machine = DirectorMachine::new(role, self.initial.clone(), self.placement);
        let silent_after = SILENT_AFTER.max(HEARTBEATS_MISSED * self.log.heartbeat_every);
        let roles = log.build(host, &self.log, beginning, machine);
        nodes.extend(roles.into_iter().map(|(slot, role)| (slot, FuzzyMember::Log(Box::new(role)))));
        let of_log = DirectorLog {
            leader: log.node(host, LogRole::Leader),
            replica: log.node(host, LogRole::Replica),
            embedded: log,
            silent_after,
        };
        let beginning = DirectorBeginning {
            log: of_log,
            initial: &self.initial,
            candidates: &self.candidates,
            replicas: self.replicas,
            directors: self.director_hosts().filter(|it| directs || *it != host).collect(),
            client: self.client_of(host),
            placement: self.placement,
            among_regions: self.regions.is_some(),
        };
        let director = Director::new(self.parameters.clone(), beginning);
        nodes.push((role.host_slot(), FuzzyMember::Director(Box::new(director))));
    }
}
