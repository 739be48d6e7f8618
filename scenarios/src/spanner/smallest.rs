//! The smallest transactions, for the explorer: two shards, a writer of both, a reader of both, and a change of the leader of one of
//! them, in every order. The roles are the engine's own; a shard's log is a model (`model_log`), for the real one is explored apart.
//! Left out, as if lost: what participants report when they have concluded.
//!
//! Time moves when a timer runs out: by more than clocks are off. The gateway's clock is at the late edge of its interval, the shards' at
//! the early edge.

use super::model_log::{ModelOrder, ModelReplica, OrderTimer, OrderedBy};
use ::spanner::gateway::{GatewayTimer, TxnGateway};
use ::spanner::messages::shard::ShardIn;
use ::spanner::shard::{LogNodes, ShardTimer, SpannerShard};
use ::spanner::{
    Directory, ShardId, ShardMachine, Spanner, SpannerDeployment, SpannerMessage, SpannerParameters, TxnId,
    shard_of,
};
use kernel::client::Response;
use kernel::{
    Bytes, Decode as _, Encode as _, HostId, HostSlot, Instant, NodeId, RequestId, TimerIndex, TimerKey,
    Wall, invariant,
};
use paxos::{Configurations, HostEntry};
use sim::{Exploration, ExploreBounds, ExploredCluster, Scope, WALL_EPOCH};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::txn::{CallKey, KeyRow, KeyWrite, OneShot, ReadOnly, Timestamp, TxnCall, TxnLevel, TxnReply};

/// The smallest transactions.
#[derive(Clone, Copy, Debug)]
pub struct SmallestTxns {
    /// Whether the shard whose leader changes coordinates the writer's transaction; else it takes part.
    pub coordinator_changes: bool,
    /// What the reader asks for.
    pub level: TxnLevel,
    /// Whether the writer and the reader have a gateway each, beside the replicas of the shard whose leader changes, and use that shard
    /// alone: one may turn to a leader that the other knows to be deposed.
    pub apart: bool,
    /// Whether shards look after what is late: leaders ask again, and those in doubt ask for the decision.
    pub looks_after: bool,
    /// The bounds of each path and of the whole. `timers` counts elections, waits and looks.
    pub bounds: ExploreBounds,
}

/// Two or three waits for the time of a commit, and the election.
pub const TXN_BOUNDS: ExploreBounds = ExploreBounds {
    timers: 3,
    losses: 0,
    duplications: 0,
    crashes: 0,
    depth: 1_000,
    states: 20_000_000,
    time: Duration::from_secs(600),
};

/// A participant's leader changes under a writer, and a reader that may skip what has not ended.
pub const PARTICIPANT: SmallestTxns = SmallestTxns {
    coordinator_changes: false,
    level: TxnLevel::Rss,
    apart: false,
    looks_after: false,
    bounds: TXN_BOUNDS,
};

/// A coordinator's leader changes under a writer and a strict reader.
pub const COORDINATOR: SmallestTxns =
    SmallestTxns { coordinator_changes: true, level: TxnLevel::Strict, ..PARTICIPANT };

/// A participant's leader changes, and leaders look after what is late.
pub const IN_DOUBT: SmallestTxns = SmallestTxns { looks_after: true, ..PARTICIPANT };

/// The leader changes of a shard that a writer and a strict reader use from different hosts.
pub const APART: SmallestTxns = SmallestTxns { apart: true, coordinator_changes: true, ..COORDINATOR };

kernel::nodes! {
    /// What the hosts run.
    #[derive(Clone, Debug)]
    pub enum SmallestTxnNode of Spanner {
        /// Plays the client.
        role Gateway(Box<TxnGateway>) "gateway",
        /// Leads a shard, or hands on to its leader.
        role Shard(Box<SpannerShard>) "shard",
        /// A shard's log on one host.
        role Replica(Box<ModelReplica>) "replica",
        /// Decides the order of a log.
        role Order(Box<ModelOrder>) "order",
    }
}

/// What was seen so far, for what must hold of it.
#[derive(Clone, Hash, Debug, Default)]
pub struct SeenTxns {
    /// When the writer's transaction was committed, as it was answered; none: it was not.
    answered: Option<Option<Timestamp>>,
    /// Whether the writer had been answered by a commit when the reader asked.
    reads_after_commit: bool,
    /// What the reader has found: the state as of a timestamp, and the version of each key.
    found: Option<(Timestamp, Vec<(usize, Timestamp)>)>,
    /// When each key was written, as replicas have it.
    written: BTreeMap<usize, Timestamp>,
    /// How attempts have ended, by gateway, incarnation and number, as replicas have it.
    ended: BTreeMap<(u64, u64, u64), Option<Timestamp>>,
}

const GATEWAY: NodeId = NodeId::new(HostId(1), HostSlot(1));
/// Those beside the replicas, for the writer and the reader: the reader's is beside the first leader.
const GATEWAYS_APART: [NodeId; 2] =
    [NodeId::new(HostId(4), HostSlot(1)), NodeId::new(HostId(3), HostSlot(1))];
/// The shard that has one leader, and the one whose leader changes.
const STAYS: ShardId = ShardId(0);
const CHANGES: ShardId = ShardId(1);
const ORDER: NodeId = NodeId::new(HostId(5), HostSlot(1));
/// The hosts of a shard's replicas.
const STAYS_ON: [HostId; 1] = [HostId(2)];
const CHANGES_ON: [HostId; 2] = [HostId(3), HostId(4)];
/// How far clocks are off, and by how much time moves when a timer runs out.
const EPSILON: u64 = 1_000_000;
const STEP: u64 = 3_000_000;

/// A shard's role on a host. Shards have slots of their own: by them a role knows what another host's has handed on.
fn role_on(shard: ShardId, host: HostId) -> NodeId {
    NodeId::new(host, HostSlot(0x10 * (1 + u32::from(shard.0))))
}

/// A shard's log on a host.
fn replica_on(shard: ShardId, host: HostId) -> NodeId {
    NodeId::new(host, HostSlot(role_on(shard, host).host_slot().0 + 1))
}

fn directory() -> Arc<Directory> {
    let roles = |shard, hosts: &[HostId]| hosts.iter().map(|&host| role_on(shard, host)).collect();
    let shards = vec![roles(STAYS, &STAYS_ON), roles(CHANGES, &CHANGES_ON)];
    Arc::new(Directory { shards, spread_levels: 0 })
}

/// One key of each shard.
fn keys() -> [Bytes; 2] {
    [STAYS, CHANGES].map(|shard| {
        let mut names = (0..).map(|number| format!("k{number}"));
        let of_shard = names.find(|name| shard_of(name.as_bytes(), 0, 2) == shard);
        Bytes::from(of_shard.expect("some key is in each shard"))
    })
}

fn node_of(txn: &TxnId) -> (u64, u64, u64) {
    (txn.gateway.as_u64(), txn.incarnation, txn.number)
}

impl SmallestTxns {
    /// Where the writer and the reader ask.
    fn gateways(&self) -> [NodeId; 2] {
        if self.apart { GATEWAYS_APART } else { [GATEWAY; 2] }
    }

    /// Which of the keys are written and read.
    fn used(&self) -> std::ops::Range<usize> {
        usize::from(self.apart)..2
    }

    fn parameters(&self) -> SpannerParameters {
        let late = Duration::from_nanos(STEP);
        SpannerParameters { resend_after: late, doubt_after: late, ..SpannerParameters::default() }
    }

    /// The configuration that leaders name: nobody moves here.
    fn configurations(&self) -> Configurations {
        let entry = |at| HostEntry { name: format!("h{at}"), address: format!("h{at}:1") };
        let (hosts, log) = ((0..2).map(entry).collect(), paxos::Parameters::default());
        let deployment = SpannerDeployment::new(0, hosts, 1, 0, self.parameters(), log);
        Configurations::starting_with(deployment.configuration(ShardId(0)))
    }

    fn shard(&self, shard: ShardId, host: HostId, ordered_by: OrderedBy) -> Vec<(HostSlot, SmallestTxnNode)> {
        let replica = replica_on(shard, host);
        let log = LogNodes { leader: replica, replica, silent_after: Duration::from_secs(1) };
        let hosts = vec![HostEntry { name: "h0".to_owned(), address: "h0:1".to_owned() }];
        let deployment =
            SpannerDeployment::new(0, hosts, 1, 0, self.parameters(), paxos::Parameters::default());
        let embedded = deployment.log_of(ShardId(0));
        let beside = self.gateways().into_iter().find(|gateway| gateway.host() == host).unwrap_or(GATEWAY);
        let role = SpannerShard::new(shard, directory(), self.parameters(), log, embedded, beside);
        let id = role_on(shard, host);
        let machine = ShardMachine::new(shard, id);
        let model = ModelReplica::new(id, ordered_by, machine, self.configurations());
        vec![
            (id.host_slot(), SmallestTxnNode::Shard(Box::new(role))),
            (replica.host_slot(), SmallestTxnNode::Replica(Box::new(model))),
        ]
    }

    fn write(&self) -> TxnCall {
        // The number of a call decides which of its participants coordinates it.
        let coordinator = if self.coordinator_changes { CHANGES } else { STAYS };
        let key = CallKey { session: 2, number: u64::from(coordinator.0) };
        let write = |key| KeyWrite { key, value: Some(Bytes::from_static(b"1")) };
        let (conditions, reads, otherwise) = (Vec::new(), Vec::new(), Vec::new());
        let (key, writes) = (Some(key), keys()[self.used()].iter().cloned().map(write).collect());
        let (token, acknowledged) = (Timestamp(0), 0);
        OneShot { id: 1, token, key, acknowledged, conditions, writes, reads, otherwise }.into()
    }

    fn read(&self) -> TxnCall {
        let (token, level, scans) = (Timestamp(0), self.level, Vec::new());
        ReadOnly { id: 2, token, level, keys: keys()[self.used()].to_vec(), scans }.into()
    }
}

impl SeenTxns {
    fn look_at(&mut self, id: NodeId, machine: &ShardMachine) {
        let nth = usize::from(machine.shard().0);
        let history = machine.history(&keys()[nth]);
        invariant!(ONCE, history.len() <= 1, "{id} has written {} versions", history.len());
        if let Some(version) = history.first() {
            let known = *self.written.entry(nth).or_insert(version.at);
            invariant!(PREFIX, known == version.at, "{id} has written at {}, another at {known}", version.at);
        }
        for prepared in machine.prepared() {
            self.ended.entry(node_of(&prepared.txn)).or_default();
        }
    }

    fn check(&self) {
        let written: Vec<Timestamp> = self.written.values().copied().collect();
        invariant!(
            ATOMIC,
            written.windows(2).all(|pair| pair[0] == pair[1]),
            "the keys were written at {written:?}"
        );
        if let (Some(Some(at)), Some(written)) = (self.answered, written.first()) {
            invariant!(DUR, at == *written, "it was committed at {at}, and answered {written}");
        }
        let Some((at, versions)) = &self.found else { return };
        let at = *at;
        for (nth, version) in versions {
            let Some(&written) = self.written.get(nth) else { continue };
            let expected = if written <= at { written } else { Timestamp(0) };
            invariant!(
                SNAP,
                *version == expected,
                "key {nth} was read as of {version} at {at}, and written at {written}"
            );
        }
        invariant!(
            BYLEVEL,
            !self.reads_after_commit || versions.iter().all(|(_, version)| *version > Timestamp(0)),
            "the reader asked when the writer had been answered, and found {versions:?} at {at}"
        );
    }
}

impl SmallestTxns {
    /// Visits its states, as far as its bounds allow.
    pub fn explore(&self) -> Exploration {
        sim::explore(self)
    }
}

impl Scope for SmallestTxns {
    type Node = SmallestTxnNode;
    type Monitor = SeenTxns;

    const FAMILY: &'static str = "spanner";

    fn hosts(&self) -> Vec<HostId> {
        (1..=5).map(HostId).collect()
    }

    fn build(&self, host: HostId, _incarnation: u32) -> Vec<(HostSlot, SmallestTxnNode)> {
        let gateway = || {
            let gateway = TxnGateway::new(directory(), self.parameters());
            vec![(GATEWAY.host_slot(), SmallestTxnNode::Gateway(Box::new(gateway)))]
        };
        if host == GATEWAY.host() {
            return if self.apart { Vec::new() } else { gateway() };
        }
        if host == ORDER.host() {
            let replicas = CHANGES_ON.map(|host| replica_on(CHANGES, host));
            let roles = CHANGES_ON.map(|host| role_on(CHANGES, host));
            let order = ModelOrder::new(replicas, roles, self.configurations());
            return vec![(ORDER.host_slot(), SmallestTxnNode::Order(Box::new(order)))];
        }
        if STAYS_ON.contains(&host) {
            return self.shard(STAYS, host, OrderedBy::Itself);
        }
        let beside = if self.apart { gateway() } else { Vec::new() };
        beside.into_iter().chain(self.shard(CHANGES, host, OrderedBy::Node(ORDER))).collect()
    }

    fn requests(&self) -> Vec<(NodeId, Vec<Bytes>)> {
        let [writes, reads] = self.gateways();
        let asks = |gateway: NodeId, call: TxnCall| (gateway, vec![call.encoded().into()]);
        vec![asks(writes, self.write()), asks(reads, self.read())]
    }

    fn carries(&self, _from: NodeId, _to: NodeId, message: &SpannerMessage) -> bool {
        !matches!(message, SpannerMessage::Shard(ShardIn::DidConclude(_)))
    }

    /// What a deposed leader proposes, and answers to what is answered.
    fn loses_the_late(&self, to: NodeId) -> bool {
        to == ORDER || self.gateways().contains(&to)
    }

    fn now(&self, timers: u8) -> Instant {
        Instant((1 << 40) + u64::from(timers) * STEP)
    }

    fn wall(&self, host: HostId, timers: u8) -> Wall {
        let now = WALL_EPOCH + u64::from(timers) * STEP;
        if host == GATEWAY.host() && !self.apart {
            return Wall::between(now, now + 2 * EPSILON);
        }
        Wall::between(now - 2 * EPSILON, now)
    }

    fn begins_at_rest(&self) -> bool {
        true
    }

    fn awaits(&self, node: NodeId, timer: TimerIndex) -> bool {
        if node == ORDER {
            return timer == OrderTimer::Elect.index();
        }
        if self.gateways().contains(&node) {
            return timer == GatewayTimer::Passed.index();
        }
        timer == ShardTimer::Passed.index() || self.looks_after
    }

    fn monitor(&self) -> SeenTxns {
        SeenTxns::default()
    }

    fn on_request(&self, monitor: &mut SeenTxns, _node: NodeId, id: RequestId, _request: &Bytes) {
        if id.0 >> 32 == 1 {
            monitor.reads_after_commit = matches!(monitor.answered, Some(Some(_)));
        }
    }

    fn on_response(&self, monitor: &mut SeenTxns, _node: NodeId, _id: RequestId, response: Response) {
        match TxnReply::decoded(&response.0).expect("a gateway answers in the words of the protocol") {
            TxnReply::Committed(committed) => monitor.answered = Some(Some(committed.at)),
            TxnReply::ReadRows(found) => {
                let version = |row: &KeyRow| if row.value.is_some() { row.version } else { Timestamp(0) };
                let versions = self.used().zip(found.rows.iter().map(version)).collect();
                monitor.found = Some((found.at, versions));
            }
            TxnReply::Failed(_)
            | TxnReply::NotMet(_)
            | TxnReply::Begun(_)
            | TxnReply::RowsWithin(_)
            | TxnReply::Fenced(_)
            | TxnReply::CommitFate(_) => {}
        }
    }

    fn observe(&self, monitor: &mut SeenTxns, cluster: &ExploredCluster<'_, SmallestTxnNode>) {
        for (id, node) in cluster.nodes() {
            if let SmallestTxnNode::Replica(replica) = node {
                monitor.look_at(id, replica.machine());
            }
        }
        let known: Vec<(u64, u64, u64)> = monitor.ended.keys().copied().collect();
        for (gateway, incarnation, number) in known {
            let txn = TxnId { gateway: NodeId::from_u64(gateway), incarnation, number };
            for (id, node) in cluster.nodes() {
                let SmallestTxnNode::Replica(replica) = node else { continue };
                let Ok(Some(fate)) = replica.machine().ended(&txn) else { continue };
                let fate = fate.committed().unwrap_or_default();
                let known = monitor.ended.entry((gateway, incarnation, number)).or_default();
                let before = *known.get_or_insert(fate);
                invariant!(ATOMIC, before == fate, "{id} has {txn:?} end at {fate}, another at {before}");
            }
        }
    }

    fn check(&self, monitor: &SeenTxns, _cluster: &ExploredCluster<'_, SmallestTxnNode>) {
        monitor.check();
    }

    fn bounds(&self) -> ExploreBounds {
        self.bounds
    }
}
