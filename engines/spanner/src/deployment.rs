//! Which roles a host plays: the same numbers of nodes under every driver.

use crate::directory::Directory;
use crate::family::SpannerMember;
use crate::gateway::TxnGateway;
use crate::machine::ShardMachine;
use crate::parameters::SpannerParameters;
use crate::shard::{LogNodes, SpannerShard};
use crate::txn::ShardId;
use kernel::{HostId, HostSlot, NodeId};
use paxos::{Beginning, Configuration, EmbeddedLog, HostEntry, LogRole, Members};
use std::sync::Arc;
use std::time::Duration;

/// The most shards of a deployment.
pub const SHARDS_MAX: u16 = 256;
/// How many slots a deployment may use.
pub const SLOTS: u32 = FIRST_SHARD + SLOTS_PER_SHARD * SHARDS_MAX as u32;

const GATEWAY: u32 = 1;
const FIRST_SHARD: u32 = 0x10;
const SLOTS_PER_SHARD: u32 = 0x10;
/// A shard's role takes its log's leader for silent after that, or so many heartbeats if those take longer.
const SILENT_AFTER: Duration = Duration::from_secs(1);
const HEARTBEATS_MISSED: u32 = 8;
/// Behind the roles of the shard's log.
const SHARD: u32 = 7;

/// What is at a slot of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpannerSlot {
    /// The gateway.
    Gateway,
    /// The role of a shard.
    Shard(ShardId),
    /// A role of a shard's log.
    Log(ShardId, LogRole),
}

impl SpannerSlot {
    /// What is at the slot that is `offset` after the deployment's first; none if nothing ever is.
    pub fn at(offset: u32) -> Option<Self> {
        if offset == GATEWAY {
            return Some(Self::Gateway);
        }
        let behind = offset.checked_sub(FIRST_SHARD)?;
        let shard = u16::try_from(behind / SLOTS_PER_SHARD).ok().filter(|shard| *shard < SHARDS_MAX)?;
        match behind % SLOTS_PER_SHARD {
            SHARD => Some(Self::Shard(ShardId(shard))),
            role => LogRole::at(role).map(|role| Self::Log(ShardId(shard), role)),
        }
    }
}

/// A deployment on hosts that all have a gateway, and roles for every shard. It begins with a replica of every shard on every host; then
/// shards move to those that are to hold them ([`crate::placement::placed`]).
#[derive(Clone, Debug)]
pub struct SpannerDeployment {
    hosts: Vec<HostEntry>,
    directory: Arc<Directory>,
    parameters: SpannerParameters,
    log: paxos::Parameters,
    first: u32,
    joins: bool,
}

impl SpannerDeployment {
    /// `shards` shards on `hosts`, at slots from `first` on. Keys whose first `spread_levels` parts are the same are in one shard.
    pub fn new(
        first: u32,
        hosts: Vec<HostEntry>,
        shards: u16,
        spread_levels: u32,
        parameters: SpannerParameters,
        log: paxos::Parameters,
    ) -> Self {
        let role = |shard: u16, host: &HostEntry| {
            NodeId::new(HostId::named(&host.name), log_of(first, ShardId(shard)).proposer)
        };
        let shards = (0..shards).map(|shard| hosts.iter().map(|host| role(shard, host)).collect()).collect();
        let directory = Arc::new(Directory { shards, spread_levels });
        Self { hosts, directory, parameters, log, first, joins: false }
    }

    /// The same for a host that joins the running deployment: the hosts that it knows are unconfirmed, good for finding others.
    #[must_use]
    pub fn joining(&self, known: Vec<HostEntry>) -> Self {
        Self { hosts: known, joins: true, ..self.clone() }
    }

    /// Its slots follow this one.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The hosts that it was made of.
    pub fn hosts(&self) -> &[HostEntry] {
        &self.hosts
    }

    /// Where the shards are.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The gateway of a host.
    pub fn gateway_of(&self, host: HostId) -> NodeId {
        NodeId::new(host, HostSlot(self.first + GATEWAY))
    }

    /// A shard's role on a host.
    pub fn shard_on(&self, host: HostId, shard: ShardId) -> NodeId {
        NodeId::new(host, log_of(self.first, shard).proposer)
    }

    /// The log of a shard.
    pub fn log_of(&self, shard: ShardId) -> EmbeddedLog {
        log_of(self.first, shard)
    }

    /// The configuration of a shard's log at its bootstrap.
    pub fn configuration(&self, shard: ShardId) -> Configuration {
        log_of(self.first, shard)
            .configuration(0, &Members { version: 0, hosts: self.hosts.clone() })
            .expect("hosts have different names, and there are at most 64")
    }

    /// Where the shards are, for a host: its own roles hand on what is for others. One that joins may stand in no list that it knows.
    fn directory_of(&self, host: HostId) -> Arc<Directory> {
        let mut directory = Directory::clone(&self.directory);
        for (shard, roles) in (0..).map(ShardId).zip(&mut directory.shards) {
            if roles.iter().all(|role| role.host() != host) {
                roles.push(self.shard_on(host, shard));
            }
        }
        Arc::new(directory)
    }

    /// The nodes of one host.
    pub fn build(&self, host: HostId) -> Vec<(HostSlot, SpannerMember)> {
        let gateway = self.gateway_of(host);
        let directory = self.directory_of(host);
        let client = TxnGateway::new(directory.clone(), self.parameters.clone());
        let mut nodes = vec![(gateway.host_slot(), SpannerMember::Gateway(Box::new(client)))];
        let silent_after = SILENT_AFTER.max(HEARTBEATS_MISSED * self.log.heartbeat_every);
        for shard in self.directory.all() {
            let log = log_of(self.first, shard);
            let role = self.shard_on(host, shard);
            let log_nodes = LogNodes {
                leader: log.node(host, LogRole::Leader),
                replica: log.node(host, LogRole::Replica),
                silent_after,
            };
            let (directory, parameters) = (directory.clone(), self.parameters.clone());
            let leads = SpannerShard::new(shard, directory, parameters, log_nodes, log, gateway);
            nodes.push((role.host_slot(), SpannerMember::Shard(Box::new(leads))));
            let beginning =
                Beginning { configuration: self.configuration(shard), joins: self.joins, waits: true };
            let machine = ShardMachine::new(shard, role);
            let roles = log.build(host, &self.log, beginning, machine);
            nodes.extend(roles.into_iter().map(|(slot, role)| (slot, SpannerMember::Log(Box::new(role)))));
        }
        nodes
    }
}

fn log_of(first: u32, shard: ShardId) -> EmbeddedLog {
    let first = first + FIRST_SHARD + SLOTS_PER_SHARD * u32::from(shard.0);
    EmbeddedLog { first: HostSlot(first), number: shard.0, proposer: HostSlot(first + SHARD) }
}
