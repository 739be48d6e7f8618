//! What a gateway counts, under the names that ZooKeeper's `mntr` uses.

use crate::wire::{JuteInput, Malformed, op};
use mason::Space;
use std::collections::BTreeMap;
use std::time::Duration;

/// How much one shard holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Nodes.
    pub nodes: u64,
    /// Those of them that belong to sessions.
    pub ephemerals: u64,
    /// The length of all paths and data, in bytes.
    pub data_bytes: u64,
}

impl Sizes {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut input = JuteInput(body);
        Ok(Self { nodes: input.u64()?, ephemerals: input.u64()?, data_bytes: input.u64()? })
    }
}

/// Latencies by powers of two of microseconds, up to about an hour.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// How many took up to 2^index microseconds.
    pub buckets: [u64; 32],
    /// How many there were.
    pub count: u64,
    /// Their sum, in microseconds.
    pub sum: u64,
    /// The longest, in microseconds.
    pub max: u64,
    /// The shortest, in microseconds.
    pub min: u64,
}

impl Latency {
    fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (64 - micros.leading_zeros() as usize).min(self.buckets.len() - 1);
        self.buckets[bucket] += 1;
        self.min = if self.count == 0 { micros } else { self.min.min(micros) };
        self.max = self.max.max(micros);
        self.sum = self.sum.saturating_add(micros);
        self.count += 1;
    }

    /// The mean, in microseconds.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }
}

/// Counters since the start, and what is at the moment.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Metrics {
    pub packets_received: u64,
    pub packets_sent: u64,
    pub notifications: u64,
    pub connections: u64,
    pub connections_opened: u64,
    pub connections_closed: u64,
    /// Turned away because there are too many.
    pub connections_refused: u64,
    pub sessions_refused: u64,
    pub sessions_expired: u64,
    /// Clients that claim to have seen what no shard has executed.
    pub from_the_future: u64,
    pub outstanding: u64,
    pub watches: u64,
    pub watches_refused: u64,
    pub frames_refused: u64,
    /// Writes of data longer than a node may have.
    pub nodes_refused: u64,
    /// Writes that a quota's hard limit does not allow.
    pub quota_refused: u64,
    pub quotas: u64,
    /// Quotas of whose path more is used than they allow.
    pub quotas_exceeded: u64,
    pub unimplemented: u64,
    pub auth_failed: u64,
    /// How often a user was made to wait.
    pub pauses: u64,
    /// How often a request waited because its user has not taken the answers before it, or others have not.
    pub waits_for_room: u64,
    /// Answers that were larger than expected, and asked for again when there was room.
    pub answers_withheld: u64,
    /// Reads whose answers are larger than all that may wait for users.
    pub answers_refused: u64,
    /// Connections dropped because their users took nothing while others waited for room.
    pub unread: u64,
    /// What users are owed now, in bytes, and what they were owed at most.
    pub owed_bytes: u64,
    pub owed_bytes_max: u64,
    pub barriers: u64,
    /// Reads that were repeated because they were overtaken.
    pub reads_again: u64,
    /// Connections dropped because the shards or groups did not answer.
    pub stalled: u64,
    pub highest_zxid: u64,
    pub reads: Latency,
    pub writes: Latency,
    /// By shard, as last heard.
    pub sizes: BTreeMap<Space, Sizes>,
}

impl Metrics {
    pub(crate) fn answered(&mut self, opcode: i32, took: Duration) {
        self.packets_sent += 1;
        match opcode {
            op::CREATE
            | op::DELETE
            | op::SET_DATA
            | op::SET_ACL
            | op::MULTI
            | op::CREATE2
            | op::CREATE_CONTAINER
            | op::CREATE_TTL
            | op::CLOSE
            | op::RENAME
            | op::RESTORE
            | op::REMOVE_RECURSIVE => self.writes.add(took),
            _ => self.reads.add(took),
        }
    }

    pub(crate) fn reset(&mut self) {
        (self.packets_received, self.packets_sent) = (0, 0);
        (self.reads, self.writes) = (Latency::default(), Latency::default());
    }

    /// Over all shards.
    pub fn total(&self) -> Sizes {
        self.sizes.values().fold(Sizes::default(), |sum, sizes| Sizes {
            nodes: sum.nodes + sizes.nodes,
            ephemerals: sum.ephemerals + sizes.ephemerals,
            data_bytes: sum.data_bytes + sizes.data_bytes,
        })
    }

    /// Shortest, mean and longest, in milliseconds.
    pub fn latency(&self) -> (u64, f64, u64) {
        let both = [&self.reads, &self.writes];
        let count: u64 = both.iter().map(|latency| latency.count).sum();
        let sum: u64 = both.iter().map(|latency| latency.sum).sum();
        let min =
            both.iter().filter(|latency| latency.count > 0).map(|latency| latency.min).min().unwrap_or(0);
        let max = both.iter().map(|latency| latency.max).max().unwrap_or(0);
        (min / 1000, sum as f64 / count.max(1) as f64 / 1000.0, max / 1000)
    }

    /// Names without the prefix `zk_`, and values, in the order of `mntr`.
    pub fn rows(&self) -> Vec<(String, String)> {
        let (min, mean, max) = self.latency();
        let total = self.total();
        let mut rows: Vec<(String, String)> = vec![
            ("avg_latency".to_owned(), format!("{mean:.4}")),
            ("max_latency".to_owned(), max.to_string()),
        ];
        let numbers = [
            ("min_latency", min),
            ("packets_received", self.packets_received),
            ("packets_sent", self.packets_sent + self.notifications),
            ("num_alive_connections", self.connections),
            ("outstanding_requests", self.outstanding),
            ("znode_count", total.nodes),
            ("watch_count", self.watches),
            ("ephemerals_count", total.ephemerals),
            ("approximate_data_size", total.data_bytes),
            ("connection_rejected", self.connections_refused),
            ("connection_drop_count", self.connections_closed),
            ("stale_sessions_expired", self.sessions_expired),
            ("unimplemented_requests", self.unimplemented),
            ("auth_failed_count", self.auth_failed),
            ("requests_throttled", self.pauses),
            ("requests_waited_for_room", self.waits_for_room),
            ("answers_withheld", self.answers_withheld),
            ("answers_refused", self.answers_refused),
            ("connections_unread", self.unread),
            ("answer_bytes_owed", self.owed_bytes),
            ("answer_bytes_owed_max", self.owed_bytes_max),
            ("notifications_sent", self.notifications),
            ("reads_repeated", self.reads_again),
            ("connections_stalled", self.stalled),
            ("frames_refused", self.frames_refused),
            ("nodes_refused", self.nodes_refused),
            ("quota_refused", self.quota_refused),
            ("quotas", self.quotas),
            ("quotas_exceeded", self.quotas_exceeded),
            ("sessions_refused", self.sessions_refused),
            ("watches_refused", self.watches_refused),
            ("read_count", self.reads.count),
            ("write_count", self.writes.count),
        ];
        rows.extend(numbers.map(|(name, value)| (name.to_owned(), value.to_string())));
        for (space, sizes) in &self.sizes {
            rows.push((format!("shard_{space}_znode_count"), sizes.nodes.to_string()));
        }
        rows
    }
}
