//! One input, exact effects: the decisions of the roles, one by one.

mod earliest_end;
mod refusals;

use kernel::{Bytes, Decode as _, Effect, Encode as _, HostId, NodeId, RequestId, Role as _, Wall};
use parts::{Ballot, Slot};
use paxos::multipaxos::leader::LeaderIn;
use paxos::multipaxos::{Pulse, batcher};
use paxos::{Configurations, HostEntry, LogRole, Members};
use spanner::gateway::TxnGateway;
use spanner::machine::entry::{Change, Entry, FoundValues, ReplicaValues};
use spanner::messages::gateway::FastReply;
use spanner::messages::shard::{Began, ReadReplica, ShardIn, Stepped};
use spanner::placement::placed;
use spanner::shard::{ShardHears, ShardTimer, SpannerShard};
use spanner::{
    ReadSet, ShardId, Spanner, SpannerDeployment, SpannerMember, SpannerMessage, SpannerParameters,
};
use std::time::Duration;
use table::{Did, Table, sends};
use wire::txn::{KeyRow, ReadOnly, Timestamp, TxnLevel, TxnReply};

const SHARD: ShardId = ShardId(0);
const SECOND: u64 = 1_000_000_000;

fn members() -> Members {
    let entry = |at| HostEntry { name: format!("h{at}"), address: format!("h{at}:1") };
    Members { version: 1, hosts: (0..5).map(entry).collect() }
}

fn deployment() -> SpannerDeployment {
    let parameters = SpannerParameters::default();
    SpannerDeployment::new(0, members().hosts, 1, 1, parameters, paxos::Parameters::default())
}

fn shard_of(host: HostId) -> Table<SpannerShard> {
    let nodes = deployment().build(host);
    let role = nodes.into_iter().find_map(|(_, member)| match member {
        SpannerMember::Shard(role) => Some(*role),
        _ => None,
    });
    let mut table = Table::new(role.expect("every host has one"), deployment().shard_on(host, SHARD));
    table.wall = Wall::between(100 * SECOND, 101 * SECOND);
    table
}

/// What the leader at `leader` sends those who listen: the shard is where it is wanted.
fn pulse(leader: HostId) -> batcher::Heartbeat {
    let log = deployment().log_of(SHARD);
    let on = placed(SHARD, &members(), 3);
    let configuration = log.configuration_placed(0, &on, &members()).expect("three hosts make a group");
    let alive = on.iter().map(|&host| log.node(host, LogRole::Replica)).collect();
    batcher::Heartbeat {
        pulse: Pulse {
            ballot: Ballot { round: 3, leader: log.node(leader, LogRole::Leader) },
            configurations: Configurations::starting_with(configuration),
            executed: Slot(9),
            truncate_below: Slot(5),
            alive,
        },
    }
}

fn heartbeat(leader: HostId) -> ShardHears {
    ShardHears::Log(paxos::Message::from(pulse(leader)))
}

fn read(host: HostId) -> ReadReplica {
    let what = ReadSet { keys: vec![Bytes::from_static(b"k")], scans: Vec::new() };
    ReadReplica { gateway: deployment().gateway_of(host), id: 7, at: Timestamp(5), what }
}

fn handed_on(did: &Did<Spanner>) -> Vec<NodeId> {
    let reads = sends(did).into_iter().filter_map(|(to, message)| match message {
        SpannerMessage::Shard(ShardIn::ReadReplica(_)) => Some(to),
        _ => None,
    });
    reads.collect()
}

// A host without a replica that has reads wait for one serves nobody; one that asks a dead replica again and again does not, either.
#[test]
fn a_host_without_a_replica_hands_reads_on_to_each_in_turn() {
    let on = placed(SHARD, &members(), 3);
    let without = members().ids().find(|host| !on.contains(host)).expect("five hosts, three replicas");
    let mut table = shard_of(without);
    table.hear(deployment().gateway_of(without), heartbeat(on[0]));
    let mut asked: Vec<HostId> = (0..3)
        .flat_map(|_| handed_on(&table.hear(deployment().gateway_of(without), read(without))))
        .map(|role| role.host())
        .collect();
    asked.sort_unstable();
    let mut all = on.clone();
    all.sort_unstable();
    assert_eq!(asked, all);
    // A host that has none hands on nothing that was handed to it: two would send it to and fro.
    let from = deployment().shard_on(on[0], SHARD);
    assert!(handed_on(&table.hear(from, read(on[0]))).is_empty());
    let mut with = shard_of(on[1]);
    with.hear(deployment().gateway_of(on[1]), heartbeat(on[0]));
    assert!(handed_on(&with.hear(deployment().gateway_of(on[1]), read(on[1]))).is_empty(), "it has one");
    let again = handed_on(&with.hear(deployment().gateway_of(on[1]), read(on[1])));
    assert!(again.len() == 1 && again[0].host() != on[1], "its own is late: {again:?}");
}

fn asks_to_lead(did: &Did<Spanner>) -> Vec<HostId> {
    let asked = sends(did).into_iter().filter_map(|(to, message)| match message {
        SpannerMessage::Shard(ShardIn::AskToLead(_)) => Some(to.host()),
        _ => None,
    });
    asked.collect()
}

// A leader that never returns has one host lead everything after a rolling restart; one whose clock is lost must not ask for it.
#[test]
fn the_host_that_is_to_lead_asks_for_it_when_it_could() {
    let on = placed(SHARD, &members(), 3);
    let after = |host: HostId, usable: bool| {
        let mut table = shard_of(host);
        table.wall.usable = usable;
        let mut asked = Vec::new();
        for _ in 0..14 {
            table.hear(deployment().gateway_of(host), heartbeat(on[1]));
            asked.extend(asks_to_lead(&table.timer(ShardTimer::Tick)));
            table.pass(Duration::from_millis(990));
        }
        asked
    };
    assert_eq!(after(on[0], true), [on[1], on[1]], "after ten seconds, and again a second later");
    assert!(after(on[2], true).is_empty(), "another one is to lead");
    assert!(after(on[0], false).is_empty(), "its clock cannot be relied on");
    let mut silent = shard_of(on[0]);
    silent.hear(deployment().gateway_of(on[0]), heartbeat(on[1]));
    silent.pass(Duration::from_secs(30));
    assert!(asks_to_lead(&silent.timer(ShardTimer::Tick)).is_empty(), "nobody is heard to lead");
}

// The next read of the session, at a level that sees only what it has seen, misses a write that a fence has made sure of.
#[test]
fn an_rss_read_lies_behind_what_fences_have_made_sure_of() {
    let (host, bound) = (HostId::named("h0"), SpannerParameters::DEFAULT.fence_bound.as_micros() as u64);
    let gateway = TxnGateway::new(deployment().directory().clone(), SpannerParameters::default());
    let mut table = Table::new(gateway, deployment().gateway_of(host));
    table.wall = Wall::between(100 * SECOND, 101 * SECOND);
    let keys = vec![Bytes::from_static(b"k")];
    let ask =
        ReadOnly { id: 1, token: Timestamp(0), level: TxnLevel::Rss, keys: keys.clone(), scans: Vec::new() };
    let call = wire::txn::TxnCall::from(ask).encoded();
    let did = table.call(|role, cx| role.on_request(RequestId(5), call.into(), cx));
    let asked = sends(&did).into_iter().find_map(|(_, message)| match message {
        SpannerMessage::Shard(ShardIn::ReadAt(read)) => Some(read),
        _ => None,
    });
    let asked = asked.expect("the shard is asked");
    assert_eq!(asked.t_read, Timestamp(101_000_000));
    let rows = vec![KeyRow { key: keys[0].clone(), value: None, version: Timestamp(0) }];
    let found = FoundValues { rows, scans: Vec::new(), newest: Timestamp(0), is_short: false };
    let values = ReplicaValues::Found(found).encoded().into();
    let reply = FastReply { id: asked.id, shard: SHARD, values, skipped: Vec::new() };
    let did = table.hear(deployment().shard_on(host, SHARD), reply);
    let answered = did.iter().find_map(|effect| match effect {
        Effect::Respond { response, .. } => TxnReply::decoded(&response.0).ok(),
        _ => None,
    });
    let Some(TxnReply::ReadRows(rows)) = answered else { panic!("{did:?}") };
    assert_eq!((rows.at.0, rows.token.0), (101_000_000 - bound, 101_000_000 - bound));
}

fn wants_closed(did: &Did<Spanner>) -> bool {
    sends(did).iter().any(|(_, it)| matches!(it, SpannerMessage::Shard(ShardIn::WantClosed(_))))
}

// A read that waits for a replica that the host has no more would have the shard's leader close for ever, an entry of the log each time.
#[test]
fn a_host_that_holds_the_shard_no_more_forgets_the_reads_of_its_replica() {
    let on = placed(SHARD, &members(), 3);
    let without = members().ids().find(|host| !on.contains(host)).expect("five hosts, three replicas");
    let mut table = shard_of(without);
    table.hear(deployment().gateway_of(without), read(without));
    assert!(
        wants_closed(&table.timer(ShardTimer::Tick)) || table.role.holds(),
        "it takes itself for a holder"
    );
    table.hear(deployment().gateway_of(without), heartbeat(on[0]));
    assert!(!table.role.holds());
    assert!(!wants_closed(&table.timer(ShardTimer::Tick)));
}

/// The changes that were proposed to the log.
fn proposed(did: &Did<Spanner>) -> Vec<Change> {
    let entries = sends(did).into_iter().filter_map(|(_, message)| match message {
        SpannerMessage::Log(paxos::Message::Leader(LeaderIn::Propose(propose))) => Some(propose.value),
        _ => None,
    });
    let steps = entries.filter_map(|value| match value {
        paxos::Value::Entry(entry) => Entry::decoded(entry.bytes()).ok(),
        _ => None,
    });
    let changes = steps.flat_map(|entry| match entry {
        Entry::Step(step) => step.changes,
        Entry::Begin { .. } => Vec::new(),
    });
    changes.collect()
}

// A leader that collects what is not there has all its hosts write to their disks for nothing, for as long as nobody uses them.
#[test]
fn a_leader_collects_when_something_is_due_and_at_no_other_time() {
    let host = placed(SHARD, &members(), 3)[0];
    let mut table = shard_of(host);
    let (gateway, log) = (deployment().gateway_of(host), deployment().log_of(SHARD));
    let ballot = pulse(host).pulse.ballot;
    table.burst(gateway, heartbeat(host));
    let replica = log.node(host, LogRole::Replica);
    // A wall clock that is 100 s and `keep` ahead collects up to 100 s.
    let due = Timestamp(100_000_000);
    let began = Began {
        ballot,
        leader: deployment().shard_on(host, SHARD),
        attempt: 1,
        epoch: 1,
        index: 0,
        assigns_above: Timestamp(5),
        last_commit: Timestamp(5),
        due,
        prepared: Vec::new(),
        decisions: Vec::new(),
        owners: Vec::new(),
        members: Members { version: 0, hosts: Vec::new() },
    };
    table.burst(replica, ShardHears::from(began));
    let keep = SpannerParameters::DEFAULT.keep.as_nanos() as u64;
    let mut collections = Vec::new();
    for nth in 0..40 {
        let at = 100 * SECOND + nth * (keep / 15);
        table.wall = Wall::between(at, at + SECOND);
        table.hear(gateway, heartbeat(host));
        let mut did = table.timer(ShardTimer::Tick);
        did.extend(table.end());
        for change in proposed(&did) {
            let Change::Collect(collect) = change else { panic!("an idle leader logs {change:?}") };
            assert!(collect.below >= due, "nothing was due at {}", collect.below);
            collections.push(nth);
            let stepped = Stepped {
                epoch: 1,
                index: collections.len() as u64,
                refused: Vec::new(),
                safe: Timestamp(0),
                collected: collect.below,
                // The second time there is nothing left.
                due: if collections.len() == 1 { collect.below.plus(1) } else { Timestamp::MAX },
            };
            table.burst(replica, ShardHears::from(stepped));
        }
    }
    assert_eq!(collections, [15, 16]);
}
