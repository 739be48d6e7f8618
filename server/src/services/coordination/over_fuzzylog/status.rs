//! What a host knows of what orders the coordination service over FuzzyLog.

use super::{feeder_of, home_of};
use crate::admin::exposition::MetricsPage;
use crate::cluster::ClusterFile;
use crate::family::HostedNode;
use crate::services::fuzzylog::{ChainServerStatus, ChainStatus};
use crate::services::mason::ShardStatus;
use ::fuzzylog::FuzzyMember;
use serde::Serialize;

/// What a host knows of what orders the tree.
#[derive(Clone, Debug, Serialize)]
pub struct TreeChainStatus {
    /// Its server of the partition, if it has begun.
    pub server: Option<ChainServerStatus>,
    /// The chain, as this host knows it.
    pub chain: Option<ChainStatus>,
    /// The director of this host leads.
    pub directs: bool,
    /// The first node that is left of the colour, and the one after the last, as this host's feeder knows.
    pub first: u64,
    /// See `first`.
    pub next: u64,
    /// The next node that shards of this host are handed; none while that is looked for.
    pub handed: Option<u64>,
    /// How far the home's server is.
    pub home: Option<ShardStatus>,
    /// Bytes of nodes that are not trimmed, as far as the feeder has played them.
    pub retained_bytes: u64,
    /// Operations that are not in the order yet, or not executed.
    pub unfinished: usize,
}

impl TreeChainStatus {
    /// Of a host's roles; none if the tree has no chain.
    pub(crate) fn of(file: &ClusterFile, nodes: &[&HostedNode]) -> Option<Self> {
        let feeder = nodes.iter().find_map(|node| feeder_of(node))?;
        let (first, next) = feeder.extent();
        let mut status = Self {
            server: None,
            chain: None,
            directs: false,
            first,
            next,
            handed: feeder.handed(),
            home: nodes.iter().find_map(|node| home_of(node)).map(ShardStatus::of),
            retained_bytes: feeder.retained_bytes(),
            unfinished: feeder.unfinished(),
        };
        for node in nodes {
            let HostedNode::TreeChain(embedded) = node else { continue };
            match embedded.node() {
                FuzzyMember::ChainServer(server) => status.server = Some(ChainServerStatus::of(server)),
                FuzzyMember::Director(director) => {
                    status.directs = director.is_leading();
                    let newest = director.projections().zip(feeder.client().projections());
                    let newest =
                        newest.map(|(one, other)| if one.epoch >= other.epoch { one } else { other });
                    status.chain = newest.map(|it| ChainStatus::of(it, director, file)).next();
                }
                // The client is in the feeder.
                FuzzyMember::Client(_) | FuzzyMember::Log(_) => {}
            }
        }
        Some(status)
    }

    pub(crate) fn metrics(&self, page: &mut MetricsPage) {
        for (name, help, value) in [
            (
                "coordination_chain_directs",
                "1 where the director of the tree's chain leads",
                u64::from(self.directs),
            ),
            (
                "coordination_chain_retained_bytes",
                "Bytes of nodes of the tree's colour that are not trimmed, as this host has played them",
                self.retained_bytes,
            ),
            (
                "coordination_chain_unfinished",
                "Operations of this host that are not in the order yet, or not executed",
                self.unfinished as u64,
            ),
            ("coordination_chain_nodes", "How far the tree's colour goes, as this host knows", self.next),
            (
                "coordination_chain_handed",
                "Below which node this host's shards were handed the tree's colour",
                self.handed.unwrap_or(0),
            ),
        ] {
            page.gauge(name, help, value as f64);
        }
        if let Some(server) = &self.server {
            let serves = usize::from(server.serves.is_some());
            for (name, help, value) in [
                ("coordination_chain_serves", "1 where the host is in the tree's chain", serves),
                (
                    "coordination_chain_live_bytes",
                    "Bytes of all that is retained of the tree's partition",
                    server.live_bytes,
                ),
            ] {
                page.gauge(name, help, value as f64);
            }
            let help = "Commands of the tree's partition that the host has applied";
            page.counter("coordination_chain_applied", help, server.applied);
        }
        if let Some(chain) = &self.chain {
            let help = "Servers of the tree's chain, as this host knows it";
            page.gauge("coordination_chain_servers", help, chain.chain.len() as f64);
        }
    }
}
