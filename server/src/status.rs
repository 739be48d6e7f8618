//! What a host knows of itself and its cluster, for status pages, readiness and metrics.

use crate::cluster::{ClusterFile, RoleName};
use crate::family::{HostedNode, KvMember};
use crate::readiness::{Unready, name_of};
use crate::services::{Statuses, kv};
use kernel::{ClockTrouble, HostId, NodeId};
use parts::Shape;
use paxos::{Configuration, Member};
use runtime::{ClockState, HostHandle, LinkStatus, Metrics, PeerConfig, Shortage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A host's view.
#[derive(Clone, Debug, Serialize)]
pub struct HostStatus {
    /// The version of the program.
    pub version: &'static str,
    /// The cluster.
    pub cluster: String,
    /// This host.
    pub host: String,
    /// What an acknowledgement promises.
    pub durability: String,
    /// The roles that run here.
    pub roles: Vec<&'static str>,
    /// The leader, as far as this host knows.
    pub leader: Option<String>,
    /// Its ballot's round.
    pub round: u64,
    /// Whether this host's acceptor votes: `votes`, `waits` (for its cluster's bootstrap or for being made a member), or
    /// `refused` (it lost its votes and must be replaced).
    pub acceptor: Option<&'static str>,
    /// The slot after the last one executed here.
    pub executed: Option<u64>,
    /// A durable snapshot holds everything below this slot.
    pub snapshot: Option<u64>,
    /// Bytes of commands and reads at this host's batcher, from their arrival to their answers.
    pub batcher_bytes: usize,
    /// The replica has no state yet.
    pub joining: bool,
    /// The members as of this host's knowledge.
    pub membership: MembershipStatus,
    /// What other hosts say when they refuse this one.
    pub refused_by: BTreeMap<String, String>,
    /// Links to other hosts that are up.
    pub links_up: u64,
    /// The links, by the name of the other host.
    pub links: BTreeMap<String, PeerLinkStatus>,
    /// What the reactor and its disk have done.
    pub activity: Activity,
    /// How the wall clock stands.
    pub clock: ClockStatus,
    /// Clients connected.
    pub clients: u64,
    /// The disk is full: clients wait.
    pub disk_full: bool,
    /// What else the journal waits for: `files`, `files_of_system` or `memory`.
    pub short_of: Option<&'static str>,
    /// Why this host cannot serve; none if it can.
    pub waits_for: Option<Unready>,
    /// What each service knows.
    #[serde(flatten)]
    pub services: Statuses,
}

/// A link to another host.
#[derive(Clone, Debug, Serialize)]
pub struct PeerLinkStatus {
    /// Messages can leave for it.
    pub up: bool,
    /// Where it is dialled.
    pub address: String,
}

impl PeerLinkStatus {
    fn of(link: &LinkStatus) -> (String, Self) {
        let PeerConfig { name, address } = link.config.clone();
        (name, Self { up: link.partner.is_some(), address })
    }
}

/// The wall clock of a host.
#[derive(Clone, Debug, Serialize)]
pub struct ClockStatus {
    /// The source that was read last.
    pub source: &'static str,
    /// How far it may be off, in microseconds.
    pub bound_us: u64,
    /// What rests on it may be done.
    pub usable: bool,
    /// Why not.
    pub trouble: Option<String>,
    /// How often somebody set the clock since the host started.
    pub steps: u64,
    /// The hosts whose clocks contradict this one's.
    pub contradicted_by: Vec<String>,
}

impl ClockStatus {
    fn of(state: &ClockState, file: &ClusterFile) -> Self {
        let named = |id: &HostId| {
            let name = file.hosts.iter().map(|host| &host.name).find(|name| HostId::named(name) == *id);
            name.cloned().unwrap_or_else(|| format!("{id:?}"))
        };
        let why = |trouble: ClockTrouble| match (&state.complaint, trouble) {
            (Some(complaint), ClockTrouble::Unsynchronised) => complaint.clone(),
            (_, trouble) => trouble.to_string(),
        };
        Self {
            source: state.source,
            bound_us: state.error.as_micros() as u64,
            usable: state.trouble.is_none(),
            trouble: state.trouble.map(why),
            steps: state.steps,
            contradicted_by: state.contradicted_by.iter().map(named).collect(),
        }
    }
}

/// Totals since the host started, and what is of the moment.
#[derive(Clone, Debug, Serialize)]
pub struct Activity {
    /// Messages from other hosts.
    pub messages_in: u64,
    /// Messages to other hosts.
    pub messages_out: u64,
    /// Messages between nodes of this host and its clients.
    pub messages_local: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Rounds of the reactor in which something happened.
    pub bursts: u64,
    /// Times the journal was synced.
    pub fsyncs: u64,
    /// Half of the syncs took at most this, in microseconds.
    pub fsync_p50_us: u64,
    /// 99 of 100 syncs took at most this, in microseconds.
    pub fsync_p99_us: u64,
    /// The longest sync, in microseconds.
    pub fsync_max_us: u64,
    /// Size of the journal on disk, in bytes.
    pub journal_bytes: u64,
    /// Bytes that wait for the disk.
    pub staged_bytes: u64,
    /// What peers and clients did wrong, and messages that were not delivered.
    pub turned_away: u64,
}

impl Activity {
    fn of(metrics: &Metrics) -> Self {
        let micros = |latency: Duration| latency.as_micros() as u64;
        let latency = &metrics.fsync_latency;
        Self {
            messages_in: metrics.messages_in,
            messages_out: metrics.messages_out,
            messages_local: metrics.messages_local,
            bytes_in: metrics.bytes_in,
            bytes_out: metrics.bytes_out,
            bursts: metrics.bursts,
            fsyncs: metrics.fsyncs,
            fsync_p50_us: micros(latency.quantile(0.5)),
            fsync_p99_us: micros(latency.quantile(0.99)),
            fsync_max_us: micros(latency.max()),
            journal_bytes: metrics.journal_bytes,
            staged_bytes: metrics.staged_bytes,
            turned_away: metrics.rejects.values().sum::<u64>() + metrics.drops.values().sum::<u64>(),
        }
    }
}

/// Who plays which role.
#[derive(Clone, Debug, Serialize)]
pub struct MembershipStatus {
    /// Grows with each change.
    pub version: u64,
    /// The services over Mason need no host but the members of this version: only then may a host that left be given up, and the
    /// next change be made.
    pub settled: u64,
    /// The first slot it governs.
    pub first_slot: u64,
    /// Acceptors per row of the grid; none for majorities.
    pub columns: Option<usize>,
    /// Hosts by role.
    pub roles: BTreeMap<&'static str, Vec<String>>,
    /// The machines with their addresses.
    pub hosts: BTreeMap<String, String>,
}

/// How long a reactor may take to answer before it counts as hanging.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);

impl HostStatus {
    /// Asks the host behind `handle`.
    pub async fn of(
        handle: &HostHandle<HostedNode>,
        file: &ClusterFile,
        host: &str,
    ) -> Option<(Self, Metrics)> {
        let (file, host) = (file.clone(), host.to_owned());
        let view = handle.inspect(move |view| {
            let nodes: Vec<&KvMember> = view.nodes().filter_map(|(_, node)| kv::member_of(node)).collect();
            let mut status = Self::from_nodes(&nodes, view.metrics(), &file, &host);
            status.links = view.links().iter().map(PeerLinkStatus::of).collect();
            status.refused_by = view.links().iter().filter_map(refusal).collect();
            status.waits_for = status.not_ready();
            status.services = file.services().iter().map(|service| service.status(&file, view)).collect();
            let settled = view.nodes().filter_map(|(_, node)| node.settled_on());
            status.membership.settled = settled.fold(status.membership.version, u64::min);
            (status, view.metrics().clone())
        });
        tokio::time::timeout(ANSWER_WITHIN, view).await.ok()?.ok()
    }

    fn from_nodes(nodes: &[&KvMember], metrics: &Metrics, file: &ClusterFile, host: &str) -> Self {
        let mut status = Self {
            version: env!("CARGO_PKG_VERSION"),
            cluster: file.cluster.clone(),
            host: host.to_owned(),
            durability: file.durability.to_string(),
            roles: Vec::new(),
            leader: None,
            round: 0,
            acceptor: None,
            executed: None,
            snapshot: None,
            batcher_bytes: 0,
            joining: false,
            membership: MembershipStatus::of(file.placement.configuration(), file),
            refused_by: BTreeMap::new(),
            links_up: metrics.links_up,
            links: BTreeMap::new(),
            activity: Activity::of(metrics),
            clock: ClockStatus::of(&metrics.clock, file),
            clients: metrics.clients,
            disk_full: metrics.disk_full,
            short_of: metrics.shortage.filter(|it| *it != Shortage::Space).map(name_of),
            waits_for: None,
            services: Statuses::default(),
        };
        let mut newest = 0;
        for node in nodes {
            status.add(node, file, &mut newest);
        }
        status
    }

    fn add(&mut self, node: &KvMember, file: &ClusterFile, newest: &mut u64) {
        let mut learn = |status: &mut Self, configuration: &Configuration| {
            if configuration.version >= *newest {
                *newest = configuration.version;
                status.membership = MembershipStatus::of(configuration, file);
            }
        };
        match node {
            Member::Batcher(batcher) => {
                self.roles.push("batcher");
                self.batcher_bytes = batcher.waiting_bytes();
                learn(self, batcher.configurations().latest());
                self.leader =
                    self.leader.take().or(batcher.leader().map(|leader| self.name_of(leader.host())));
            }
            Member::Leader(leader) => {
                self.roles.push("leader");
                learn(self, leader.configurations().latest());
                if let Some(ballot) = leader.leader() {
                    self.round = ballot.round;
                    self.leader = Some(self.name_of(ballot.leader.host()));
                }
            }
            Member::ProxyLeader(_) => self.roles.push("proxy_leader"),
            Member::Acceptor(acceptor) => {
                self.roles.push("acceptor");
                self.acceptor = Some(match (acceptor.is_active(), acceptor.is_refused()) {
                    (_, true) => "refused",
                    (true, false) => "votes",
                    (false, false) => "waits",
                });
            }
            Member::Replica(replica) => {
                self.roles.push("replica");
                learn(self, replica.configurations().latest());
                self.executed = Some(replica.executed().0);
                self.snapshot = Some(replica.snapshot_through().0);
                self.joining = replica.is_joining();
            }
            Member::Unbatcher(_) => self.roles.push("unbatcher"),
            Member::Client(_) => {}
        }
    }

    fn name_of(&self, id: HostId) -> String {
        let known = self.membership.hosts.keys().find(|name| HostId::named(name) == id);
        known.cloned().unwrap_or_else(|| format!("{id:?}"))
    }

    /// Why this host cannot serve; none if it can.
    pub fn not_ready(&self) -> Option<Unready> {
        if self.acceptor == Some("refused") {
            return Some(Unready::VotesLost);
        }
        if self.disk_full {
            return Some(Unready::DiskFull);
        }
        if let Some(what) = self.short_of {
            return Some(Unready::ShortOf { what });
        }
        if let (None, Some((by, why))) = (&self.leader, self.refused_by.first_key_value()) {
            return Some(Unready::Refused { by: by.clone(), why: why.clone() });
        }
        // Only these roles learn who leads.
        let hears = |role: &&str| ["batcher", "leader"].contains(role);
        if self.leader.is_none() && self.roles.iter().any(hears) {
            return Some(Unready::NoLeader);
        }
        if self.acceptor == Some("waits") {
            return Some(Unready::NoVotes);
        }
        if self.joining {
            return Some(Unready::NoState);
        }
        None
    }
}

/// The host that refuses us, and why.
fn refusal(link: &LinkStatus) -> Option<(String, String)> {
    let why = link.complaint.as_ref()?.strip_prefix("refused: ")?;
    Some((link.config.name.clone(), why.to_owned()))
}

impl MembershipStatus {
    fn of(configuration: &Configuration, file: &ClusterFile) -> Self {
        let hosts: BTreeMap<String, String> =
            configuration.hosts.iter().map(|host| (host.name.clone(), host.address.clone())).collect();
        let name = |node: &NodeId| {
            let known = hosts.keys().find(|name| HostId::named(name) == node.host());
            let known = known.or_else(|| {
                file.hosts.iter().map(|host| &host.name).find(|name| HostId::named(name) == node.host())
            });
            known.cloned().unwrap_or_else(|| format!("{:?}", node.host()))
        };
        let names = |nodes: &[NodeId]| nodes.iter().map(name).collect::<Vec<_>>();
        let acceptors: Vec<NodeId> = configuration.acceptors.nodes().collect();
        let roles = BTreeMap::from([
            (RoleName::Batcher.name(), names(&configuration.batchers)),
            (RoleName::Leader.name(), names(&configuration.leaders)),
            (RoleName::ProxyLeader.name(), names(&configuration.proxy_leaders)),
            (RoleName::Acceptor.name(), names(&acceptors)),
            (RoleName::Replica.name(), names(&configuration.replicas)),
            (RoleName::Unbatcher.name(), names(&configuration.unbatchers)),
        ]);
        let columns = columns_of(configuration);
        let (version, first_slot) = (configuration.version, configuration.first_slot.0);
        Self { version, settled: version, first_slot, columns, hosts, roles }
    }
}

/// How many acceptors stand in a row of a grid; none for majorities.
fn columns_of(configuration: &Configuration) -> Option<usize> {
    match configuration.acceptors.groups()[0].shape() {
        Shape::Majority => None,
        Shape::Grid { columns } => Some(columns),
    }
}
