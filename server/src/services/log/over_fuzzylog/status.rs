//! What a host knows of the chains under the shared log over FuzzyLog.

use crate::admin::exposition::MetricsPage;
use crate::cluster::ClusterFile;
use crate::family::HostedNode;
use crate::services::fuzzylog::{ChainServerStatus, ChainStatus};
use ::fuzzylog::FuzzyMember;
use mason::Space;
use serde::Serialize;
use shared_log::feeder::FeederNode;
use std::collections::BTreeMap;

/// The log's chains, as far as a host knows.
#[derive(Clone, Default, Debug, Serialize)]
pub struct LogChainsStatus {
    /// Its servers, by their partitions.
    pub partitions: BTreeMap<u16, ChainServerStatus>,
    /// The chains, as this host knows them.
    pub chains: Vec<ChainStatus>,
    /// The director of this host leads.
    pub directs: bool,
    /// Of each space how far its colour goes, and where it begins, as this host's feeder knows.
    pub colours: BTreeMap<u16, ColourExtent>,
    /// Bytes of nodes that are not trimmed, as far as the feeder has played them.
    pub retained_bytes: u64,
    /// Operations that are not in the order yet, or not executed.
    pub unfinished: usize,
    /// Appends to several partitions that are finished here for others.
    pub taking_over: usize,
}

/// A space's colour.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ColourExtent {
    /// The first position that is left.
    pub first: u64,
    /// The position after the last one.
    pub next: u64,
}

impl LogChainsStatus {
    /// Of a host's roles; none if the log has no chains.
    pub(crate) fn of<'a>(
        file: &ClusterFile,
        nodes: impl Iterator<Item = &'a HostedNode> + Clone,
    ) -> Option<Self> {
        let feeder = nodes.clone().find_map(|node| {
            let HostedNode::LogFeeder(embedded) = node else { return None };
            let FeederNode::Feeder(feeder) = embedded.node();
            Some(feeder)
        })?;
        let extent = |(space, next, first): (Space, u64, u64)| (space.0, ColourExtent { first, next });
        let mut status = Self {
            colours: feeder.extents().map(extent).collect(),
            retained_bytes: feeder.retained_bytes(),
            unfinished: feeder.unfinished(),
            taking_over: feeder.client().recovering(),
            ..Self::default()
        };
        for node in nodes {
            let HostedNode::LogChains(embedded) = node else { continue };
            match embedded.node() {
                FuzzyMember::ChainServer(server) => {
                    status.partitions.insert(server.partition().0, ChainServerStatus::of(server));
                }
                FuzzyMember::Director(director) => {
                    status.directs = director.is_leading();
                    let newest = director.projections().zip(feeder.client().projections());
                    let newest =
                        newest.map(|(one, other)| if one.epoch >= other.epoch { one } else { other });
                    status.chains = newest.map(|it| ChainStatus::of(it, director, file)).collect();
                }
                // The client is in the feeder.
                FuzzyMember::Client(_) | FuzzyMember::Log(_) => {}
            }
        }
        Some(status)
    }

    pub(crate) fn metrics(&self, page: &mut MetricsPage) {
        for (name, help, value) in [
            ("log_chain_directs", "1 where the director of the log's chains leads", u64::from(self.directs)),
            (
                "log_chain_retained_bytes",
                "Bytes of nodes of the log's colours that are not trimmed, as this host has played them",
                self.retained_bytes,
            ),
            (
                "log_chain_unfinished",
                "Operations of this host that are not in the order yet, or not executed",
                self.unfinished as u64,
            ),
            (
                "log_chain_taking_over",
                "Appends to several partitions that this host finishes for others",
                self.taking_over as u64,
            ),
        ] {
            page.gauge(name, help, value as f64);
        }
        for (partition, status) in &self.partitions {
            let partition = partition.to_string();
            let of = [("partition", partition.as_str())];
            let serves = usize::from(status.serves.is_some());
            for (name, help, value) in [
                ("log_chain_serves", "1 where the host is in the chain of the log's partition", serves),
                ("log_chain_live_bytes", "Bytes of all that is retained of the partition", status.live_bytes),
                ("log_chain_queued", "Appends that wait for their turn", status.queued),
            ] {
                page.gauge_of(name, help, &of, value as f64);
            }
            let help = "Commands of the log's partition that the host has applied";
            page.counter_of("log_chain_applied", help, &of, status.applied);
        }
        for chain in &self.chains {
            let partition = chain.partition.to_string();
            let of = [("partition", partition.as_str())];
            let help = "Servers of the chain of the log's partition, as this host knows it";
            page.gauge_of("log_chain_servers", help, &of, chain.chain.len() as f64);
        }
    }
}
