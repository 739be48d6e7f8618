//! What a host does for each service over Mason, and for the log over CORFU'.

use crate::cluster::{LogEngine, Logs};
use crate::family::{CoordinationMember, LogMember, Node};
use kernel::HostId;
use mason::proxy::arranging::{FIRST, Progress};
use mason::shard::ShardServer;
use mason::{GatewayRole, Layout, Shard, Stub};
use paxos::Member;
use runtime::ArchiveCounts;
use serde::Serialize;
use shared_log::StorageStat;
use std::collections::BTreeMap;

/// The roles of a service over Mason.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Groups {
    /// The epoch of the sequencer here, if it is the active one.
    pub sequencer: Option<u64>,
    /// The groups whose proxies lead here, each with the epoch of the sequencer that it asks.
    pub leads: BTreeMap<u16, u64>,
    /// How many proxies there are, and how far the last change of that has come, as this host knows.
    pub proxies: Option<Proxies>,
    /// Over how many shards the service's state is spread, and how far the last change of that has come, as this host knows.
    pub spread: Option<Spread>,
    /// How far each shard's server is that is in use, in words.
    pub shards: BTreeMap<u16, String>,
}

/// How many proxies there are.
#[derive(Clone, Debug, Serialize)]
pub struct Proxies {
    /// They serve users.
    pub serving: u16,
    /// They are in use; more than those that serve while some are drained.
    pub spanning: u16,
    /// Hosts have room for so many.
    pub room: u16,
    /// Counts the changes.
    pub version: u64,
    /// Nothing of the last change is left to be done.
    pub settled: bool,
}

/// Over how many shards a service's state is spread.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// So many hold it.
    pub shards: u16,
    /// So many did before the last change.
    pub before: u16,
    /// Hosts have room for so many.
    pub room: u16,
    /// Counts the changes, those of proxies among them.
    pub version: u64,
    /// The hand-over has its place in the order, and nothing else of the last change is left to be done.
    pub settled: bool,
}

impl From<Progress> for Spread {
    fn from(progress: Progress) -> Self {
        let Progress { layout, shards_room, settled, .. } = progress;
        let mason::Spread { shards, before, .. } = layout.spread;
        Self { shards, before, room: shards_room.unwrap_or(shards), version: layout.version, settled }
    }
}

impl From<Progress> for Proxies {
    fn from(progress: Progress) -> Self {
        let Progress { layout: Layout { version, serving, spanning, .. }, room, settled, .. } = progress;
        Self { serving, spanning, room, version, settled }
    }
}

impl Groups {
    /// Takes a role into account.
    pub fn add<T, S, G>(&mut self, member: &mason::Member<T, S, G>)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        match member {
            mason::Member::Sequencer(sequencer) => self.sequencer = sequencer.active_epoch(),
            mason::Member::Proxy(proxy) => {
                if proxy.group() == FIRST {
                    self.proxies = Some(proxy.progress().into());
                    self.spread = Some(proxy.progress().into());
                }
                if proxy.is_leading() && proxy.is_in_use() {
                    self.leads.insert(proxy.group().0, proxy.sequencer_epoch().unwrap_or(0));
                }
            }
            mason::Member::Shard(server) if !server.is_in_use() => {}
            mason::Member::Shard(server) => {
                self.shards.insert(server.space().0, server.standing());
            }
            mason::Member::Gateway(_) | mason::Member::Log(_) => {}
        }
    }
}

/// What a host does for the coordination service.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Coordination {
    /// Its groups and shards.
    #[serde(flatten)]
    pub groups: Groups,
    /// Sessions, of all groups.
    pub sessions: usize,
    /// What the gateway counts, by ZooKeeper's names.
    pub monitor: BTreeMap<String, String>,
}

impl Coordination {
    /// Takes a role into account.
    pub fn add(&mut self, member: &CoordinationMember) {
        self.groups.add(member);
        match member {
            mason::Member::Gateway(gateway) => self.monitor = gateway.metrics().rows().into_iter().collect(),
            mason::Member::Log(embedded) => {
                if let Member::Replica(replica) = embedded.node() {
                    self.sessions += replica.machine().stub().len();
                }
            }
            mason::Member::Sequencer(_) | mason::Member::Proxy(_) | mason::Member::Shard(_) => {}
        }
    }
}

/// What a host does for the shared log.
#[derive(Clone, Debug, Serialize)]
pub struct LogService {
    /// What orders it.
    pub engine: String,
    /// Its groups and spaces; empty over CORFU'.
    #[serde(flatten)]
    pub groups: Groups,
    /// Logs whose entries are here.
    pub logs: usize,
    /// Their entries, as far as they are left.
    pub entries: u64,
    /// What those cost, in bytes.
    pub bytes: u64,
    /// Where the entries of each space are; empty over CORFU'.
    pub storage: BTreeMap<u16, Storage>,
    /// Users' calls that wait for an answer here.
    pub outstanding: usize,
    /// Where trimmed segments go, if they are kept.
    pub archive: Option<ArchiveStanding>,
    /// Who serves, over CORFU'.
    pub projection: Option<Projection>,
}

/// Where a space's entries are on this host.
#[derive(Clone, Debug, Serialize)]
pub struct Storage {
    /// Segments that a snapshot names and that are fetched from other hosts.
    pub missing: usize,
    /// Segments on the disk.
    pub segments: u64,
    /// Bytes of their entries.
    pub stored_bytes: u64,
    /// Bytes of entries in memory, because they are not on the disk yet.
    pub memory_bytes: u64,
    /// Bytes in memory of what was read from the disk.
    pub cached_bytes: u64,
    /// Pages that reads found in memory.
    pub page_hits: u64,
    /// Pages that reads had read from the disk.
    pub page_loads: u64,
    /// Trimmed segments that wait for the archive.
    pub waiting: u64,
    /// Bytes of their entries.
    pub waiting_bytes: u64,
}

impl Storage {
    fn of(server: &ShardServer<shared_log::Logs>) -> Self {
        let StorageStat {
            segments,
            stored_bytes,
            memory_bytes,
            cached_bytes,
            hits,
            loads,
            waiting,
            waiting_bytes,
        } = server.service().storage();
        Self {
            missing: server.blobs_missing(),
            segments,
            stored_bytes,
            memory_bytes,
            cached_bytes,
            page_hits: hits,
            page_loads: loads,
            waiting,
            waiting_bytes,
        }
    }
}

/// The archive of trimmed segments, as far as this host has to do with it.
#[derive(Clone, Debug, Serialize)]
pub struct ArchiveStanding {
    /// Where it is.
    pub url: String,
    /// Segments that this host has put there, since it started.
    pub objects: u64,
    /// Segments that wait here, of all spaces.
    pub waiting: u64,
    /// Bytes of their entries.
    pub waiting_bytes: u64,
    /// The most that may wait in the fullest space before its logs take no appends, in bytes.
    pub waiting_bytes_max: u64,
    /// A space's logs take no appends here.
    pub refuses: bool,
    /// Why the last attempt failed, if none has succeeded since.
    pub error: Option<String>,
}

/// A projection of CORFU' as the auxiliary of this host knows it.
#[derive(Clone, Debug, Serialize)]
pub struct Projection {
    /// Its epoch.
    pub epoch: u64,
    /// The sequencer's host.
    pub sequencer: String,
    /// The hosts of each chain, its head first.
    pub chains: Vec<Vec<String>>,
    /// Those that copy each chain, to be let in.
    pub catching_up: Vec<Vec<CatchingUp>>,
}

/// A host whose storage server is not in its chain yet.
#[derive(Clone, Debug, Serialize)]
pub struct CatchingUp {
    /// The host.
    pub host: String,
    /// Records that it lacked when it asked last; none while what it had before is compared.
    pub behind: Option<u64>,
}

impl LogService {
    /// Nothing yet.
    pub fn of(engine: LogEngine) -> Self {
        let (engine, groups) = (engine.to_string(), Groups::default());
        let storage = BTreeMap::new();
        Self {
            engine,
            groups,
            logs: 0,
            entries: 0,
            bytes: 0,
            storage,
            outstanding: 0,
            archive: None,
            projection: None,
        }
    }

    /// Takes the archive into account, when all roles were.
    pub fn add_archive(&mut self, logs: &Logs, counts: Option<&ArchiveCounts>) {
        let Some(place) = &logs.archive else { return };
        let most = logs.archive_backlog_bytes;
        self.archive = Some(ArchiveStanding {
            url: place.to_string(),
            objects: counts.map_or(0, |counts| counts.objects),
            waiting: self.storage.values().map(|space| space.waiting).sum(),
            waiting_bytes: self.storage.values().map(|space| space.waiting_bytes).sum(),
            waiting_bytes_max: most,
            refuses: self.storage.values().any(|space| space.waiting_bytes > most),
            error: counts.and_then(|counts| counts.error.clone()),
        });
    }

    /// Takes a role into account, if it is one of the log's.
    pub fn add(&mut self, node: &Node, name_of: &dyn Fn(HostId) -> Option<String>) {
        match node {
            Node::Log(embedded) => self.add_member(embedded.node()),
            Node::Corfu(embedded) => self.add_corfu(embedded.node(), name_of),
            Node::CorfuGateway(embedded) => {
                let shared_log::corfu::GatewayNode::Gateway(gateway) = embedded.node();
                self.outstanding = gateway.outstanding();
            }
            Node::Kv(_) | Node::Coordination(_) | Node::Sequence(_) => {}
        }
    }

    fn add_member(&mut self, member: &LogMember) {
        self.groups.add(member);
        match member {
            mason::Member::Shard(server) => {
                let ranges = server.service().logs().map(|(_, log)| log.range());
                let (logs, entries) = ranges
                    .fold((0, 0), |(logs, entries), (first, next)| (logs + 1, entries + (next - first)));
                self.logs += logs;
                self.entries += entries;
                self.bytes += server.service().bytes();
                self.storage.insert(server.space().0, Storage::of(server));
            }
            mason::Member::Gateway(gateway) => self.outstanding = gateway.outstanding() + gateway.reading(),
            mason::Member::Sequencer(_) | mason::Member::Proxy(_) | mason::Member::Log(_) => {}
        }
    }

    fn add_corfu(&mut self, member: &corfu::Member, name_of: &dyn Fn(HostId) -> Option<String>) {
        let name = |id: kernel::NodeId| name_of(id.host()).unwrap_or_else(|| format!("{:?}", id.host()));
        match member {
            corfu::Member::Storage(server) => {
                self.logs = 1;
                self.entries += server.len() as u64;
                self.bytes += server.bytes();
            }
            corfu::Member::Auxiliary(auxiliary) => {
                let installed = auxiliary.installed();
                let chain = |chain: &Vec<kernel::NodeId>| chain.iter().copied().map(name).collect();
                let copies = |it: corfu::Learner| CatchingUp { host: name(it.server), behind: it.behind };
                let chains = 0..installed.chains.len();
                self.projection = Some(Projection {
                    epoch: installed.epoch.0,
                    sequencer: name(installed.sequencer),
                    chains: installed.chains.iter().map(chain).collect(),
                    catching_up: chains
                        .map(|number| auxiliary.learners(number).map(copies).collect())
                        .collect(),
                });
            }
            corfu::Member::Sequencer(_) | corfu::Member::Client(_) => {}
        }
    }
}
