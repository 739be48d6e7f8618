//! What a host knows of the sequence.

use crate::admin::exposition::MetricsPage;
use crate::family::SequenceMember;
use crate::services::ServiceStatus;
use crate::services::mason::MasonStatus;
use crate::services::status::json;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a host does for the sequence.
#[derive(Clone, Default, Debug)]
pub struct SequenceStatus {
    /// Positions that each space has given, as far as this host has executed them.
    pub given: BTreeMap<String, u64>,
    /// Its groups.
    pub groups: MasonStatus,
}

impl SequenceStatus {
    /// Of a host's roles.
    pub fn of<'a>(spaces: &[String], members: impl Iterator<Item = &'a SequenceMember>) -> Self {
        let mut status = Self::default();
        for member in members {
            status.groups.add(member);
            if let mason::MasonMember::Shard(server) = member
                && let Some(name) = spaces.get(usize::from(server.space().0))
            {
                status.given.insert(name.clone(), server.service().given());
            }
        }
        status
    }
}

impl ServiceStatus for SequenceStatus {
    fn fields(&self) -> Map<String, Value> {
        [("sequence", json(&self.given)), ("sequence_groups", json(&self.groups))]
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }

    fn metrics(&self, page: &mut MetricsPage) {
        self.groups.metrics("sequence", page);
        for (space, given) in &self.given {
            page.counter_of(
                "sequence_given",
                "Positions that a space has given",
                &[("space", space)],
                *given,
            );
        }
    }
}
