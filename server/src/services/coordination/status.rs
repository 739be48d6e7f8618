//! What a host knows of the coordination service.

use super::over_fuzzylog::{self, TreeChainStatus};
use crate::admin::exposition::MetricsPage;
use crate::cluster::ClusterFile;
use crate::family::{CoordinationMember, HostedNode};
use crate::services::ServiceStatus;
use crate::services::mason::MasonStatus;
use crate::services::status::json;
use coordination::gateway::Metrics;
use paxos::Member;
use serde::Serialize;
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

/// What a host does for the coordination service.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoordinationStatus {
    /// Its groups and shards.
    #[serde(flatten)]
    pub groups: MasonStatus,
    /// Sessions, of all groups.
    pub sessions: usize,
    /// What orders it over FuzzyLog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<TreeChainStatus>,
    /// What the gateway counts, by ZooKeeper's names.
    pub monitor: BTreeMap<String, Number>,
    /// The same as it was counted.
    #[serde(skip)]
    counted: Metrics,
}

impl CoordinationStatus {
    /// Of a host's roles.
    pub fn of(file: &ClusterFile, nodes: &[&HostedNode]) -> Self {
        let mut status = Self { chain: TreeChainStatus::of(file, nodes), ..Self::default() };
        nodes.iter().filter_map(|node| super::member_of(node)).for_each(|member| status.add(member));
        if let Some(feeder) = nodes.iter().find_map(|node| over_fuzzylog::feeder_of(node)) {
            status.groups.shard_map = Some(feeder.progress().into());
        }
        let homes = nodes.iter().filter_map(|node| over_fuzzylog::home_of(node));
        status.sessions += homes.map(|home| home.service().sessions().len()).sum::<usize>();
        status
    }

    fn add(&mut self, member: &CoordinationMember) {
        self.groups.add(member);
        match member {
            mason::MasonMember::Gateway(gateway) => {
                self.monitor = numbers(gateway.metrics().rows());
                self.counted = gateway.metrics().clone();
            }
            mason::MasonMember::Log(embedded) => {
                if let Member::Replica(replica) = embedded.node() {
                    self.sessions += replica.machine().stub().len();
                }
            }
            mason::MasonMember::Sequencer(_)
            | mason::MasonMember::Proxy(_)
            | mason::MasonMember::Shard(_) => {}
        }
    }
}

fn numbers(rows: Vec<(String, String)>) -> BTreeMap<String, Number> {
    let number = |text: &str| {
        let whole = text.parse::<u64>().ok().map(Number::from);
        whole.or_else(|| Number::from_f64(text.parse().ok()?))
    };
    rows.into_iter().filter_map(|(name, text)| Some((name, number(&text)?))).collect()
}

impl ServiceStatus for CoordinationStatus {
    fn fields(&self) -> Map<String, Value> {
        [("coordination".to_owned(), json(self))].into_iter().collect()
    }

    fn metrics(&self, page: &mut MetricsPage) {
        let counted = &self.counted;
        for (name, help, value) in [
            ("coordination_sessions", "Sessions of the cluster", self.sessions as u64),
            ("coordination_connections", "Users' connections at this host", counted.connections),
            ("coordination_watches", "Paths watched by users of this host", counted.watches),
            ("coordination_requests_outstanding", "Requests without an answer", counted.outstanding),
            (
                "coordination_answer_bytes_owed",
                "Bytes that users of this host have not taken",
                counted.owed_bytes,
            ),
            ("coordination_quotas", "Quotas of the tree", counted.quotas),
            (
                "coordination_quotas_exceeded",
                "Quotas of whose path more is used than they allow",
                counted.quotas_exceeded,
            ),
        ] {
            page.gauge(name, help, value as f64);
        }
        for (space, sizes) in &counted.sizes {
            let shard = space.to_string();
            let of = [("shard", shard.as_str())];
            page.gauge_of("coordination_znodes", "Nodes of the tree", &of, sizes.nodes as f64);
            page.gauge_of("coordination_ephemerals", "Nodes of sessions", &of, sizes.ephemerals as f64);
            let help = "Length of all paths and data";
            page.gauge_of("coordination_data_bytes", help, &of, sizes.data_bytes as f64);
        }
        for (name, help, value) in COUNTERS.map(|(name, help, read)| (name, help, read(counted))) {
            page.counter(name, help, value);
        }
        self.groups.metrics("coordination", page);
        self.chain.iter().for_each(|chain| chain.metrics(page));
    }
}

type Counter = (&'static str, &'static str, fn(&Metrics) -> u64);

/// What the gateway counts from its start on.
const COUNTERS: [Counter; 17] = [
    ("coordination_notifications", "Events sent to watchers", |it| it.notifications),
    ("coordination_connections_closed", "Users' connections that have ended", |it| it.connections_closed),
    ("coordination_connections_refused", "Connections turned away because there are too many", |it| {
        it.connections_refused
    }),
    ("coordination_connections_unread", "Connections closed that took nothing while others waited", |it| {
        it.unread
    }),
    (
        "coordination_connections_stalled",
        "Connections closed because shards or groups did not answer",
        |it| it.stalled,
    ),
    ("coordination_sessions_expired", "Sessions that have expired", |it| it.sessions_expired),
    ("coordination_sessions_refused", "Sessions turned away because there are too many", |it| {
        it.sessions_refused
    }),
    ("coordination_sessions_ahead", "Users turned away that have seen what no shard has executed", |it| {
        it.from_the_future
    }),
    ("coordination_watches_refused", "Watches refused because there are too many", |it| it.watches_refused),
    ("coordination_frames_refused", "Requests refused because they are too long", |it| it.frames_refused),
    ("coordination_nodes_refused", "Writes refused because their data are too long", |it| it.nodes_refused),
    ("coordination_quota_refused", "Writes refused by the hard limit of a quota", |it| it.quota_refused),
    ("coordination_answers_refused", "Reads refused because their answers are too long", |it| {
        it.answers_refused
    }),
    (
        "coordination_answers_withheld",
        "Answers longer than expected, asked for again when there was room",
        |it| it.answers_withheld,
    ),
    ("coordination_requests_throttled", "Times a user was read no further", |it| it.pauses),
    (
        "coordination_requests_waited_for_room",
        "Requests that waited until answers before them were taken",
        |it| it.waits_for_room,
    ),
    ("coordination_reads_repeated", "Reads repeated because they were overtaken", |it| it.reads_again),
];
