//! What a host knows of the shared log.

use super::SharedLog;
use super::corfu::ProjectionStatus;
use super::over_fuzzylog::LogChainsStatus;
use super::settings::ArchiveLocation;
use crate::admin::exposition::MetricsPage;
use crate::cluster::ClusterFile;
use crate::family::{HostedNode, LogMember};
use crate::services::ServiceStatus;
use crate::services::mason::MasonStatus;
use crate::services::status::json;
use ::corfu;
use mason::shard::ShardServer;
use runtime::ArchiveCounts;
use serde::Serialize;
use serde_json::{Map, Value};
use shared_log::corfu::GatewayNode;
use shared_log::{Description, StorageStat};
use std::collections::BTreeMap;

/// What a host does for the shared log.
#[derive(Clone, Debug, Serialize)]
pub struct LogStatus {
    /// What orders it.
    pub engine: String,
    /// Its groups and spaces; empty over CORFU'.
    #[serde(flatten)]
    pub groups: MasonStatus,
    /// Logs whose entries are here.
    pub logs: usize,
    /// Their entries, as far as they are left.
    pub entries: u64,
    /// What those cost, in bytes.
    pub bytes: u64,
    /// Where the entries of each space are; empty over CORFU'.
    pub storage: BTreeMap<u16, Storage>,
    /// What of the host's disk budget for logs is used; none over CORFU', which has none.
    pub disk: Option<DiskUse>,
    /// What logs have dropped for want of room or beyond their limits, by their names: the first thousand of them.
    pub dropped: BTreeMap<String, Dropped>,
    /// Users' calls that wait for an answer here.
    pub outstanding: usize,
    /// Where trimmed segments go, if they are retained.
    pub archive: Option<ArchiveStatus>,
    /// What became of segments there.
    #[serde(skip)]
    archived: ArchiveCounts,
    /// Who serves, over CORFU'.
    pub projection: Option<ProjectionStatus>,
    /// Who holds what, over FuzzyLog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<LogChainsStatus>,
}

/// How this host's logs are with their disk budget.
#[derive(Clone, Debug, Serialize)]
pub struct DiskUse {
    /// What the logs hold, with what waits for the archive, in bytes.
    pub bytes: u64,
    /// What they may hold.
    pub bytes_max: u64,
    /// Appends are refused here, but to logs that drop their oldest entries.
    pub refuses: bool,
}

/// What a log has dropped by itself; what was trimmed or has expired is not counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Dropped {
    /// Entries.
    pub entries: u64,
    /// What they had cost, in bytes.
    pub bytes: u64,
}

/// Logs that are listed with what they have dropped.
const DROPPED_MAX: usize = 1_000;

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
pub struct ArchiveStatus {
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

impl LogStatus {
    /// Of a host's roles; `counts`: what became of its segments at the archive.
    pub fn of<'a>(
        log: &SharedLog,
        file: &ClusterFile,
        nodes: impl Iterator<Item = &'a HostedNode>,
        counts: Option<&ArchiveCounts>,
    ) -> Self {
        let mut status = Self {
            engine: log.engine.to_string(),
            groups: MasonStatus::default(),
            logs: 0,
            entries: 0,
            bytes: 0,
            storage: BTreeMap::new(),
            disk: None,
            dropped: BTreeMap::new(),
            outstanding: 0,
            archive: None,
            archived: counts.cloned().unwrap_or_default(),
            projection: None,
            chains: None,
        };
        nodes.for_each(|node| status.add(node, file));
        status.archive = log.archive.as_ref().map(|location| status.archive_at(log, location));
        status
    }

    fn archive_at(&self, log: &SharedLog, location: &ArchiveLocation) -> ArchiveStatus {
        let most = log.archive_backlog_bytes;
        ArchiveStatus {
            url: location.to_string(),
            objects: self.archived.objects,
            waiting: self.storage.values().map(|space| space.waiting).sum(),
            waiting_bytes: self.storage.values().map(|space| space.waiting_bytes).sum(),
            waiting_bytes_max: most,
            refuses: self.storage.values().any(|space| space.waiting_bytes > most),
            error: self.archived.error.clone(),
        }
    }

    /// Takes a role into account, if it is one of the log's.
    fn add(&mut self, node: &HostedNode, file: &ClusterFile) {
        if let HostedNode::Log(embedded) = node {
            self.add_member(embedded.node());
        } else if let HostedNode::Corfu(embedded) = node {
            self.add_corfu(embedded.node(), file);
        } else if let HostedNode::CorfuGateway(embedded) = node {
            let GatewayNode::Gateway(gateway) = embedded.node();
            self.outstanding = gateway.outstanding();
        }
    }

    fn add_member(&mut self, member: &LogMember) {
        self.groups.add(member);
        match member {
            mason::MasonMember::Shard(server) => {
                let ranges = server.service().logs().map(|(_, log)| log.range());
                let (logs, entries) = ranges
                    .fold((0, 0), |(logs, entries), (first, next)| (logs + 1, entries + (next - first)));
                self.logs += logs;
                self.entries += entries;
                self.bytes += server.service().bytes();
                for (name, log) in server.service().logs() {
                    let Description { dropped: entries, dropped_bytes: bytes, .. } = log.description();
                    if entries > 0 && self.dropped.len() < DROPPED_MAX {
                        self.dropped.insert(name.to_owned(), Dropped { entries, bytes });
                    }
                }
                self.storage.insert(server.space().0, Storage::of(server));
            }
            mason::MasonMember::Gateway(gateway) => {
                self.outstanding = gateway.outstanding() + gateway.reading();
                let (bytes, bytes_max) = gateway.disk();
                self.disk = Some(DiskUse { bytes, bytes_max, refuses: bytes >= bytes_max });
            }
            mason::MasonMember::Sequencer(_) | mason::MasonMember::Proxy(_) | mason::MasonMember::Log(_) => {}
        }
    }

    fn add_corfu(&mut self, member: &corfu::Member, file: &ClusterFile) {
        match member {
            corfu::Member::Storage(server) => {
                self.logs = 1;
                self.entries += server.len() as u64;
                self.bytes += server.bytes();
            }
            corfu::Member::Auxiliary(auxiliary) => {
                self.projection = Some(ProjectionStatus::of(auxiliary, file));
            }
            corfu::Member::Sequencer(_) | corfu::Member::Client(_) => {}
        }
    }

    fn sum(&self, count: fn(&Storage) -> u64) -> u64 {
        self.storage.values().map(count).sum()
    }
}

impl ServiceStatus for LogStatus {
    fn fields(&self) -> Map<String, Value> {
        [("log".to_owned(), json(self))].into_iter().collect()
    }

    fn warnings(&self) -> Vec<String> {
        let dropping = self.dropped.keys().map(|name| {
            format!("the log {name} drops its oldest entries unread or not: ordinate log stat {name} says how many")
        });
        let refuses = self.disk.as_ref().filter(|disk| disk.refuses).map(|disk| {
            let DiskUse { bytes_max, .. } = disk;
            format!("the logs have reached log.disk_bytes, {bytes_max} bytes: appends are refused until there is room")
        });
        dropping.chain(refuses).collect()
    }

    fn metrics(&self, page: &mut MetricsPage) {
        self.groups.metrics("log", page);
        if let Some(chains) = &self.chains {
            chains.metrics(page);
        }
        let archived = &self.archived;
        for (name, help, value) in [
            ("archive_objects", "Segments that this host has archived", archived.objects),
            ("archive_bytes", "Bytes of them", archived.bytes),
            ("archive_failures", "Attempts to archive a segment that failed", archived.failures),
            ("log_page_hits", "Pages of segments that reads found in memory", self.sum(|it| it.page_hits)),
            ("log_page_loads", "Pages of segments that reads had read", self.sum(|it| it.page_loads)),
        ] {
            page.counter(name, help, value);
        }
        for (name, Dropped { entries, bytes }) in &self.dropped {
            let log = &[("log", name.as_str())];
            let help = "Entries that a log has dropped for want of room or beyond its limit in bytes";
            page.counter_of("log_dropped_entries", help, log, *entries);
            page.counter_of("log_dropped_bytes", "Bytes of them", log, *bytes);
        }
        if let Some(disk) = &self.disk {
            page.gauge("log_disk_bytes", "Bytes that the logs hold of their disk budget", disk.bytes as f64);
            page.gauge("log_disk_bytes_max", "The budget, log.disk_bytes", disk.bytes_max as f64);
            let help = "1 while appends are refused because the budget is reached";
            page.gauge("log_disk_refuses", help, f64::from(u8::from(disk.refuses)));
        }
        let failing = u64::from(archived.error.is_some());
        for (name, help, value) in [
            ("log_memory_bytes", "Bytes of entries not on the disk yet", self.sum(|it| it.memory_bytes)),
            ("log_cached_bytes", "Bytes in memory of what was read", self.sum(|it| it.cached_bytes)),
            (
                "log_segments_unarchived",
                "Trimmed segments that wait for the archive",
                self.sum(|it| it.waiting),
            ),
            ("log_unarchived_bytes", "Bytes of them", self.sum(|it| it.waiting_bytes)),
            ("archive_failing", "1 while the archive does not take them", failing),
            ("log_segments_missing", "Segments to be fetched", self.sum(|it| it.missing as u64)),
        ] {
            page.gauge(name, help, value as f64);
        }
    }
}
