//! What a host knows of itself and its cluster, for status pages, readiness and metrics.

use crate::cluster::{ClusterFile, RoleName};
use crate::family::{HostedNode, KvMember};
use crate::readiness::{Health, Unready, name_of};
use crate::services::status::Statuses;
use kernel::{ClockTrouble, HostId, Instant, NodeId};
use parts::{Shape, Tally};
use paxos::{Configuration, Member};
use runtime::{ClockState, HostHandle, HostView, LinkStatus, Metrics, PeerConfig, Shortage};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Followers of a host make do with what was seen so long ago: its readiness is looked at twice a second.
pub const OF_LATE: Duration = Duration::from_millis(700);

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
    /// The leader, while this host hears him.
    pub leader: Option<String>,
    /// The highest round of elections that this host knows of.
    pub round: u64,
    /// This host hears a quorum of the acceptors, its own among them.
    pub quorum: bool,
    /// It would hear one without any one of those that it hears, too.
    pub quorum_redundant: bool,
    /// Members that it does not hear.
    pub unheard: Vec<String>,
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
    /// The same in words.
    pub not_serving: Option<String>,
    /// Whether users of each service are served here.
    pub serves: BTreeMap<&'static str, bool>,
    /// What each service knows.
    #[serde(flatten)]
    pub services: Statuses,
}

/// A link to another host.
#[derive(Clone, Debug, Serialize)]
pub struct PeerLinkStatus {
    /// Messages can leave for it.
    pub up: bool,
    /// It was heard within the last second.
    pub heard: bool,
    /// How long ago it was heard last, in milliseconds; none while it has no connection to this host.
    pub silent_for_ms: Option<u64>,
    /// Where it is dialled.
    pub address: String,
}

impl PeerLinkStatus {
    fn of(link: &LinkStatus) -> (String, Self) {
        let PeerConfig { name, address } = link.config.clone();
        let silent_for_ms = link.silent_for.map(|it| it.as_millis() as u64);
        (name, Self { up: link.partner.is_some(), heard: is_heard(link), silent_for_ms, address })
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
    /// Half of the syncs of the last minute took at most this, in microseconds; 0 without any.
    pub fsync_p50_us: u64,
    /// 99 of 100 of them took at most this, in microseconds.
    pub fsync_p99_us: u64,
    /// The longest of them, in microseconds.
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
        let latency = &metrics.fsync_latency_recent;
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

/// Hosts report to each other four times a second, and leaders to everybody more often: one that is silent for longer is not heard.
pub const HEARD_WITHIN: Duration = Duration::from_secs(1);

fn is_heard(link: &LinkStatus) -> bool {
    link.silent_for.is_some_and(|it| it <= HEARD_WITHIN)
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
            let nodes: Vec<&KvMember> = view.nodes().filter_map(|(_, node)| node.as_kv()).collect();
            let links = view.links();
            let mut heard: BTreeSet<HostId> =
                links.iter().filter(|link| is_heard(link)).map(|it| it.host).collect();
            heard.insert(HostId::named(&host));
            let mut status = Self::from_nodes(&nodes, view, &heard, &file, &host);
            status.links = links.iter().map(PeerLinkStatus::of).collect();
            status.refused_by = view.links().iter().filter_map(refusal).collect();
            status.waits_for = status.not_ready();
            status.services = file.services().iter().map(|service| service.status(&file, view)).collect();
            let settled = view.nodes().filter_map(|(_, node)| node.settled_on());
            status.membership.settled = settled.fold(status.membership.version, u64::min);
            (status, view.metrics().clone())
        });
        tokio::time::timeout(ANSWER_WITHIN, view).await.ok()?.ok()
    }

    /// What is known since `within`, by the last who asked. Each look holds up the reactor, so those who only follow the host share them.
    pub async fn of_late(
        handle: &HostHandle<HostedNode>,
        file: &ClusterFile,
        host: &str,
        within: Duration,
    ) -> Option<Arc<(Self, Metrics)>> {
        if let Some(shown) = handle.shown(within) {
            return Some(shown);
        }
        let seen = Arc::new(Self::of(handle, file, host).await?);
        handle.show(Arc::clone(&seen));
        Some(seen)
    }

    /// With what is known of the services.
    pub fn with(mut self, health: &Health) -> Self {
        let whole = self.waits_for.is_none();
        self.serves =
            health.services.keys().map(|service| (*service, whole && health.serves(service))).collect();
        self.waits_for = self.waits_for.or_else(|| health.unready());
        self.not_serving = self.waits_for.as_ref().map(|why| why.words(&self.host));
        self
    }

    fn from_nodes(
        nodes: &[&KvMember],
        view: &HostView<'_, HostedNode>,
        heard: &BTreeSet<HostId>,
        file: &ClusterFile,
        host: &str,
    ) -> Self {
        let metrics = view.metrics();
        let mut status = Self {
            version: env!("CARGO_PKG_VERSION"),
            cluster: file.cluster.clone(),
            host: host.to_owned(),
            durability: file.durability.to_string(),
            roles: Vec::new(),
            leader: None,
            round: 0,
            quorum: false,
            quorum_redundant: false,
            unheard: Vec::new(),
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
            not_serving: None,
            serves: BTreeMap::new(),
            services: Statuses::default(),
        };
        let mut newest = file.placement.configuration();
        for node in nodes {
            status.add(node, &mut newest);
        }
        status.membership = MembershipStatus::of(newest, file);
        status.quorum = has_quorum(newest, heard);
        status.quorum_redundant = is_redundant(newest, heard);
        let unheard = newest.hosts.iter().map(|host| &host.name);
        status.unheard = unheard.filter(|name| !heard.contains(&HostId::named(name))).cloned().collect();
        let leader = leader_of(nodes, view.now()).filter(|host| heard.contains(host));
        status.leader = leader.map(|host| status.name_of(host));
        status
    }

    fn add<'a>(&mut self, node: &'a KvMember, newest: &mut &'a Configuration) {
        let mut learn = |configuration: &'a Configuration| {
            if configuration.version >= newest.version {
                *newest = configuration;
            }
        };
        match node {
            Member::Batcher(batcher) => {
                self.roles.push("batcher");
                self.batcher_bytes = batcher.waiting_bytes();
                learn(batcher.configurations().latest());
            }
            Member::Leader(leader) => {
                self.roles.push("leader");
                self.round = self.round.max(leader.highest_round());
                learn(leader.configurations().latest());
            }
            Member::ProxyLeader(_) => self.roles.push("proxy_leader"),
            Member::Acceptor(acceptor) => {
                self.roles.push("acceptor");
                self.round = self.round.max(acceptor.promised().round);
                self.acceptor = Some(match (acceptor.is_active(), acceptor.is_refused()) {
                    (_, true) => "refused",
                    (true, false) => "votes",
                    (false, false) => "waits",
                });
            }
            Member::Replica(replica) => {
                self.roles.push("replica");
                learn(replica.configurations().latest());
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
        if self.joining {
            return Some(Unready::NoState);
        }
        if !self.quorum {
            return Some(Unready::NoQuorum { unheard: self.unheard.clone() });
        }
        // Only these roles learn who leads.
        let hears = |role: &&str| ["batcher", "leader"].contains(role);
        if self.leader.is_none() && self.roles.iter().any(hears) {
            return Some(Unready::NoLeader);
        }
        if self.acceptor == Some("waits") {
            return Some(Unready::NoVotes);
        }
        None
    }
}

/// The leader that is heard. A host without this role knows one by what its batcher has learned.
fn leader_of(nodes: &[&KvMember], now: Instant) -> Option<HostId> {
    let role =
        nodes.iter().find_map(|node| if let Member::Leader(leader) = node { Some(leader) } else { None });
    if let Some(role) = role {
        return role.heard_leader(now, HEARD_WITHIN).map(|ballot| ballot.leader.host());
    }
    let batcher =
        nodes.iter().find_map(|node| if let Member::Batcher(batcher) = node { Some(batcher) } else { None });
    batcher.and_then(|batcher| batcher.leader()).map(NodeId::host)
}

/// Whether those that are heard include a quorum, to read and to write, of every group of acceptors.
fn has_quorum(configuration: &Configuration, heard: &BTreeSet<HostId>) -> bool {
    configuration.acceptors.groups().iter().all(|group| {
        let mut tally = Tally::default();
        let of_heard = group.members().iter().filter(|member| heard.contains(&member.host()));
        of_heard.filter_map(|member| group.index_of(*member)).for_each(|index| tally.insert(index));
        group.is_read_quorum(tally) && group.is_write_quorum(tally)
    })
}

/// Whether a quorum of all groups is left whichever one of those that are heard is lost.
fn is_redundant(configuration: &Configuration, heard: &BTreeSet<HostId>) -> bool {
    heard.iter().all(|lost| {
        let left = heard.iter().copied().filter(|host| host != lost).collect();
        has_quorum(configuration, &left)
    })
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
