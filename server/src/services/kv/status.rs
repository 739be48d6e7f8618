//! What a host knows of the key-value service.

use crate::admin::exposition::MetricsPage;
use crate::family::KvMember;
use crate::services::ServiceStatus;
use crate::services::status::json;
use paxos::Member;
use serde_json::{Map, Value};

/// The store, where this host has a replica of it.
#[derive(Clone, Copy, Default, Debug)]
pub struct KvStatus {
    /// Keys in it.
    pub keys: Option<usize>,
    /// Open client sessions.
    pub sessions: Option<usize>,
}

impl KvStatus {
    /// Of a host's roles.
    pub fn of<'a>(members: impl Iterator<Item = &'a KvMember>) -> Self {
        let mut status = Self::default();
        for member in members {
            if let Member::Replica(replica) = member {
                status.keys = Some(replica.machine().len());
                status.sessions = Some(replica.open_sessions());
            }
        }
        status
    }
}

impl ServiceStatus for KvStatus {
    fn fields(&self) -> Map<String, Value> {
        [("keys", json(&self.keys)), ("sessions", json(&self.sessions))]
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }

    fn metrics(&self, page: &mut MetricsPage) {
        page.gauge("keys", "Keys in the store", self.keys.unwrap_or(0) as f64);
        page.gauge("sessions", "Open client sessions", self.sessions.unwrap_or(0) as f64);
    }
}
