//! What a host knows of the coordination service.

use crate::admin::exposition::{MetricKind, MetricsPage};
use crate::family::CoordinationMember;
use crate::services::ServiceStatus;
use crate::services::mason::MasonStatus;
use crate::services::status::json;
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
    /// What the gateway counts, by ZooKeeper's names.
    pub monitor: BTreeMap<String, Number>,
}

impl CoordinationStatus {
    /// Of a host's roles.
    pub fn of<'a>(members: impl Iterator<Item = &'a CoordinationMember>) -> Self {
        let mut status = Self::default();
        members.for_each(|member| status.add(member));
        status
    }

    fn add(&mut self, member: &CoordinationMember) {
        self.groups.add(member);
        match member {
            mason::MasonMember::Gateway(gateway) => self.monitor = numbers(gateway.metrics().rows()),
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
        for (name, value) in &self.monitor {
            let value = value.as_f64().unwrap_or_default();
            page.named_by_others(name, MetricKind::Unknown, "As ZooKeeper's mntr has it", value);
        }
        self.groups.metrics("coordination", page);
    }
}
