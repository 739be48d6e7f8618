//! What a host knows of the transaction service.

use super::LISTED;
use crate::admin::exposition::MetricsPage;
use crate::family::HostedNode;
use crate::services::ServiceStatus;
use crate::services::status::json;
use crate::status::HEARD_WITHIN;
use kernel::Instant;
use parts::Ballot;
use serde::Serialize;
use serde_json::{Map, Value};
use spanner::SpannerMember;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a host does for transactions.
#[derive(Clone, Default, Debug, Serialize)]
pub struct TxnStatus {
    /// Its shards.
    pub shards: BTreeMap<u16, TxnShardStatus>,
    /// Users' calls that wait for an answer here.
    pub calls_in_progress: usize,
    /// Commits that waited here for their timestamp to pass.
    pub commit_waits: u64,
    /// How long they waited together, in seconds.
    pub commit_wait_seconds: f64,
    /// Who leads the logs of its shards, in which round, as far as each is heard.
    #[serde(skip)]
    heard: Vec<Option<Ballot>>,
}

/// A shard, as far as a host has to do with it.
#[derive(Clone, Default, Debug, Serialize)]
pub struct TxnShardStatus {
    /// It is led here.
    pub leads: bool,
    /// The hosts that have a replica of it, as far as is known here.
    pub replicas: Vec<String>,
    /// The host that leads it.
    pub leader: Option<String>,
    /// The host that is to lead it.
    pub preferred: Option<String>,
    /// The hosts that are to have a replica of it.
    pub wanted: Vec<String>,
    /// It is where it is wanted, and needs no other host.
    pub settled: bool,
    /// This host has a replica of it.
    pub holds: bool,
    /// Transactions in progress, where it is led.
    pub in_progress: usize,
    /// Read-only transactions that waited for a prepared one, since the host started, where it leads or led.
    pub blocked_reads: u64,
    /// Prepared transactions that read-only ones did not wait for.
    pub skipped: u64,
    /// Transactions that gave up their locks for an older one.
    pub wounds: u64,
    /// Keys that this host's replica has.
    pub keys: usize,
    /// Versions of them.
    pub versions: usize,
    /// Bytes of them.
    pub bytes: usize,
    /// Transactions that are prepared, and whose end the replica has not seen.
    pub prepared: usize,
    /// When the oldest of them was prepared, in microseconds since 1970; 0 if none is.
    pub prepared_at: u64,
    /// Decisions that participants have not logged yet.
    pub undecided_participants: usize,
    /// The timestamp up to which the replica may be read.
    pub safe: u64,
    /// The highest commit timestamp.
    pub last_commit: u64,
}

impl TxnShardStatus {
    /// How long the oldest transaction has been prepared, by a clock of this time.
    fn in_doubt_for(&self, now: SystemTime) -> Duration {
        let since = UNIX_EPOCH + Duration::from_micros(self.prepared_at);
        if self.prepared_at == 0 { Duration::ZERO } else { now.duration_since(since).unwrap_or_default() }
    }
}

impl TxnStatus {
    /// Of a host's roles.
    pub fn of<'a>(nodes: impl Iterator<Item = &'a HostedNode>, now: Instant) -> Self {
        let mut status = Self::default();
        for node in nodes {
            if let HostedNode::Txn(embedded) = node {
                status.add(embedded.node(), now);
            }
        }
        status
    }

    fn add(&mut self, member: &SpannerMember, now: Instant) {
        match member {
            SpannerMember::Shard(role) => {
                let shard = self.shards.entry(role.shard().0).or_default();
                (shard.leads, shard.in_progress) = (role.is_leading(), role.in_progress());
                let spanner::shard::ShardCounts { blocked_reads, skipped, wounds } = role.counts();
                (shard.blocked_reads, shard.skipped, shard.wounds) = (blocked_reads, skipped, wounds);
                let placement = role.placement();
                shard.holds = role.holds();
                shard.replicas = placement.replicas;
                (shard.leader, shard.preferred) = (placement.leader, placement.preferred);
                (shard.wanted, shard.settled) = (placement.wanted, placement.is_settled);
            }
            SpannerMember::Gateway(gateway) => {
                self.calls_in_progress = gateway.in_progress();
                let waits = gateway.commit_waits();
                (self.commit_waits, self.commit_wait_seconds) = (waits.count, waits.sum.as_secs_f64());
            }
            SpannerMember::Log(embedded) => {
                if let paxos::Member::Leader(leader) = embedded.node() {
                    self.heard.push(leader.heard_leader(now, HEARD_WITHIN));
                }
                if let paxos::Member::Replica(replica) = embedded.node() {
                    let machine = replica.machine();
                    let shard = self.shards.entry(machine.shard().0).or_default();
                    shard.keys = machine.keys();
                    shard.versions = machine.versions();
                    shard.bytes = machine.bytes();
                    shard.prepared = machine.prepared().count();
                    let oldest = machine.prepared().map(|prepared| prepared.t_p).min();
                    shard.prepared_at = oldest.unwrap_or_default().0;
                    shard.undecided_participants = machine.open_decisions();
                    shard.safe = machine.safe().0;
                    shard.last_commit = machine.last_commit().0;
                }
            }
        }
    }
}

impl ServiceStatus for TxnStatus {
    fn leaders_heard(&self) -> Option<(&'static str, String)> {
        let heard: Option<Vec<Ballot>> = self.heard.iter().copied().collect();
        Some((LISTED.name, format!("{:?}", heard.filter(|heard| !heard.is_empty())?)))
    }

    fn fields(&self) -> Map<String, Value> {
        [("txn".to_owned(), json(self))].into_iter().collect()
    }

    fn metrics(&self, page: &mut MetricsPage) {
        page.gauge("txn_calls", "Calls that wait for an answer here", self.calls_in_progress as f64);
        page.counter(
            "txn_commit_waits",
            "Commits that waited for their timestamp to pass",
            self.commit_waits,
        );
        page.seconds_counter(
            "txn_commit_wait_seconds",
            "How long they waited together",
            self.commit_wait_seconds,
        );
        for (shard, status) in &self.shards {
            let shard = shard.to_string();
            let of = [("shard", shard.as_str())];
            for (name, help, value) in [
                ("txn_shard_leads", "1 where the shard is led", usize::from(status.leads)),
                ("txn_shard_holds", "1 where the shard has a replica", usize::from(status.holds)),
                (
                    "txn_shard_settled",
                    "1 where the shard is known to be where it is wanted",
                    usize::from(status.settled),
                ),
                (
                    "txn_shard_in_progress",
                    "Transactions in progress, where the shard is led",
                    status.in_progress,
                ),
                ("txn_shard_keys", "Keys of the shard's replica", status.keys),
                ("txn_shard_versions", "Versions of its keys", status.versions),
                ("txn_shard_bytes", "Bytes of them", status.bytes),
                ("txn_shard_prepared", "Transactions that are prepared and have not ended", status.prepared),
                (
                    "txn_shard_decisions_open",
                    "Decisions that participants have not logged yet",
                    status.undecided_participants,
                ),
            ] {
                page.gauge_of(name, help, &of, value as f64);
            }
            for (name, help, value) in [
                (
                    "txn_shard_blocked_reads",
                    "Read-only transactions that waited for a prepared one",
                    status.blocked_reads,
                ),
                (
                    "txn_shard_skipped",
                    "Prepared transactions that read-only ones did not wait for",
                    status.skipped,
                ),
                ("txn_shard_wounds", "Transactions that gave up their locks for an older one", status.wounds),
            ] {
                page.counter_of(name, help, &of, value);
            }
            page.gauge_of(
                "txn_shard_in_doubt_seconds",
                "How long the oldest transaction has been prepared without an end",
                &of,
                status.in_doubt_for(SystemTime::now()).as_secs_f64(),
            );
        }
    }
}
