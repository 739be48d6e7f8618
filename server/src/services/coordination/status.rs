//! What a host knows of the coordination service.

use crate::admin::metrics::Page;
use crate::family::CoordinationMember;
use crate::services::ServiceStatus;
use crate::services::mason::Groups;
use crate::services::status::json;
use paxos::Member;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a host does for the coordination service.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoordinationStatus {
    /// Its groups and shards.
    #[serde(flatten)]
    pub groups: Groups,
    /// Sessions, of all groups.
    pub sessions: usize,
    /// What the gateway counts, by ZooKeeper's names.
    pub monitor: BTreeMap<String, String>,
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

impl ServiceStatus for CoordinationStatus {
    fn fields(&self) -> Map<String, Value> {
        [("coordination".to_owned(), json(self))].into_iter().collect()
    }

    fn metrics(&self, page: &mut Page) {
        for (name, value) in &self.monitor {
            if let Ok(value) = value.parse() {
                page.plain(name, value);
            }
        }
    }
}
