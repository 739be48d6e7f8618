//! What a host knows of other regions: how far they are copied here, and how far they have copied this one.

use crate::admin::exposition::MetricsPage;
use crate::cluster::ClusterFile;
use fuzzylog::{ChainServer, RegionId};
use kernel::Instant;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The regions, as the servers of a host know them.
#[derive(Clone, Default, Debug, Serialize)]
pub struct RegionsStatus {
    /// The region of the host; none if there is one alone.
    pub own: Option<String>,
    /// The others, by their names.
    pub others: BTreeMap<String, OtherRegionStatus>,
    /// Nodes that are copied and wait for nodes of other regions that come before them.
    pub waiting_nodes: usize,
    /// Colours whose trims wait for other regions.
    pub waiting_trims: usize,
    /// Partitions here whose data are of other regions than the cluster file: they copy those that are in both.
    pub differing: Vec<u16>,
    /// Regions that some partition here has removed.
    pub removed: BTreeSet<String>,
}

/// Another region.
#[derive(Clone, Default, Debug, Serialize)]
pub struct OtherRegionStatus {
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its partitions, as the heads here copy them: of which partition, into which.
    pub copied: Vec<CopiedStream>,
    /// Appends of this region that it has not confirmed to have copied, by partitions of this host's heads.
    pub lacks: BTreeMap<u16, usize>,
    /// Nodes of it that were trimmed before this region came, by partitions of this host's heads: its logs begin behind them.
    pub trimmed_before: BTreeMap<u16, u64>,
}

/// A partition of another region that a head here copies.
#[derive(Clone, Debug, Serialize)]
pub struct CopiedStream {
    /// The partition there.
    pub from: u16,
    /// The partition here.
    pub into: u16,
    /// The clock there up to which it is copied.
    pub clock: u64,
    /// How long ago it answered; none: never since this head began.
    pub heard_ms_ago: Option<u64>,
}

impl OtherRegionStatus {
    /// How long ago its partitions have answered, the one that was heard least of late; none if one never did.
    fn heard_ms_ago(&self) -> Option<u64> {
        let each = self.copied.iter().map(|it| it.heard_ms_ago).collect::<Option<Vec<u64>>>()?;
        each.into_iter().max()
    }
}

impl RegionsStatus {
    /// Of a host's servers; none without regions.
    pub(super) fn of<'a>(
        file: &ClusterFile,
        servers: impl Iterator<Item = &'a ChainServer>,
        now: Instant,
    ) -> Option<Self> {
        let (own, others) = file.own_and_other_regions()?;
        let mut status = Self { own: Some(own.name.clone()), ..Self::default() };
        let mut names = BTreeMap::new();
        for region in &file.removed {
            names.insert(RegionId(region.number), region.name.clone());
        }
        for region in others {
            names.insert(RegionId(region.number), region.name.clone());
            let hosts = region.hosts.iter().map(|host| host.name.clone()).collect();
            status.others.insert(region.name.clone(), OtherRegionStatus { hosts, ..Default::default() });
        }
        for server in servers {
            status.add(server, &names, now);
        }
        Some(status)
    }

    fn add(&mut self, server: &ChainServer, names: &BTreeMap<RegionId, String>, now: Instant) {
        let (state, partition) = (server.state(), server.partition().0);
        if server.serves().is_some() && server.regions_differ() {
            self.differing.push(partition);
        }
        if !server.is_serving_head() {
            return;
        }
        for region in state.removed_regions() {
            self.removed.insert(names.get(&region).cloned().unwrap_or_else(|| region.0.to_string()));
        }
        for gone in state.gone_nodes() {
            if let Some(other) = names.get(&gone.region).and_then(|name| self.others.get_mut(name)) {
                other.trimmed_before.insert(partition, gone.count);
            }
        }
        self.waiting_nodes += state.waiting_nodes();
        self.waiting_trims += state.waiting_trims();
        for seen in server.sources() {
            let other = names.get(&seen.point.region).and_then(|name| self.others.get_mut(name));
            let heard_ms_ago = seen.heard_at.map(|at| now.since(at).as_millis() as u64);
            let (from, clock) = (seen.point.partition.0, seen.point.at.clock);
            if let Some(other) = other {
                other.copied.push(CopiedStream { from, into: partition, clock, heard_ms_ago });
            }
        }
        for (region, lacks) in state.not_copied() {
            if let Some(other) = names.get(&region).and_then(|name| self.others.get_mut(name)) {
                other.lacks.insert(partition, lacks);
            }
        }
    }

    /// What an operator is to know.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = Vec::new();
        for partition in &self.differing {
            warnings.push(format!(
                "partition {partition} of the partially ordered log has other regions than the cluster file: it copies those that are in \
                 both"
            ));
        }
        for (region, other) in &self.others {
            let gone: u64 = other.trimmed_before.values().sum();
            if gone > 0 {
                warnings.push(format!(
                    "{gone} nodes of region {region} were trimmed before this region came: its logs begin behind them here"
                ));
            }
        }
        for region in &self.removed {
            warnings.push(format!(
                "region {region} is removed: its nodes that are here stay, and it does not come back"
            ));
        }
        warnings
    }

    pub(super) fn metrics(&self, page: &mut MetricsPage) {
        page.gauge(
            "fuzzylog_region_waiting_nodes",
            "Nodes of other regions that wait for what comes before them, where this host has the head",
            self.waiting_nodes as f64,
        );
        page.gauge(
            "fuzzylog_region_waiting_trims",
            "Colours whose trims wait for other regions, where this host has the head",
            self.waiting_trims as f64,
        );
        page.gauge(
            "fuzzylog_region_differs",
            "Partitions here whose data are of other regions than the cluster file",
            self.differing.len() as f64,
        );
        for (region, other) in &self.others {
            let of = [("region", region.as_str())];
            let heard_ms_ago = other.heard_ms_ago().filter(|_| !other.copied.is_empty());
            if let Some(ms) = heard_ms_ago {
                page.gauge_of(
                    "fuzzylog_region_heard_seconds_ago",
                    "How long ago the region's partitions answered this host's heads, the slowest of them",
                    &of,
                    ms as f64 / 1_000.0,
                );
            }
            for copied in &other.copied {
                let (from, into) = (copied.from.to_string(), copied.into.to_string());
                let of = [("region", region.as_str()), ("from", from.as_str()), ("partition", into.as_str())];
                page.gauge_of(
                    "fuzzylog_region_copied_clock",
                    "The clock of the region's partition up to which it is copied here",
                    &of,
                    copied.clock as f64,
                );
            }
            for (partition, lacks) in &other.lacks {
                let partition = partition.to_string();
                let of = [("region", region.as_str()), ("partition", partition.as_str())];
                page.gauge_of(
                    "fuzzylog_region_lacks_nodes",
                    "Appends of this region that the other one has not copied, as far as this host's heads know",
                    &of,
                    *lacks as f64,
                );
            }
        }
    }
}
