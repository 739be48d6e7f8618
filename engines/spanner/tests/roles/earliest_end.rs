//! The earliest end of a transaction that waits for locks, and the commit timestamp that follows from it.

use super::{SECOND, SHARD, deployment, heartbeat, members, proposed, pulse, shard_of};
use kernel::{Bytes, NodeId, Wall};
use paxos::{LogRole, Members};
use spanner::machine::entry::Change;
use spanner::messages::gateway::GatewayIn;
use spanner::messages::shard::{Began, Decided, PrepareTxn, Stepped};
use spanner::placement::placed;
use spanner::shard::ShardHears;
use spanner::{Fate, PreparedTxn, Priority, ShardId, SpannerMessage, SpannerParameters, TxnId};
use std::time::Duration;
use table::sends;
use wire::txn::{KeyWrite, Timestamp};

/// Another shard, which coordinates what is prepared here.
const ELSEWHERE: ShardId = ShardId(1);
const WAITED: Duration = Duration::from_millis(300);

fn txn(gateway: NodeId, number: u64) -> TxnId {
    TxnId { gateway, incarnation: 1, number }
}

fn priority(txn: TxnId) -> Priority {
    Priority { first_start: Timestamp(txn.number), txn }
}

fn write() -> Vec<KeyWrite> {
    vec![KeyWrite { key: Bytes::from_static(b"k"), value: None }]
}

/// What the leader of an earlier time has prepared.
fn prepared(txn: TxnId) -> PreparedTxn {
    PreparedTxn {
        txn,
        priority: priority(txn),
        t_p: Timestamp(9),
        t_ee: Timestamp(9),
        coordinator: ELSEWHERE,
        reads: Vec::new(),
        ranges: Vec::new(),
        writes: write(),
    }
}

fn stepped(index: u64) -> ShardHears {
    let (refused, safe, collected) = (Vec::new(), Timestamp(0), Timestamp(0));
    Stepped { epoch: 1, index, refused, safe, collected, due: Timestamp::MAX }.into()
}

// A reader that may not skip what waits for a lock waits with it; a commit that ends later after its timestamp than a fence waits is one
// that a fence misses.
#[test]
fn a_wait_for_locks_puts_off_the_earliest_end_and_raises_the_commit_timestamp() {
    let host = placed(SHARD, &members(), 3)[0];
    let mut table = shard_of(host);
    let (gateway, log) = (deployment().gateway_of(host), deployment().log_of(SHARD));
    let replica = log.node(host, LogRole::Replica);
    let (older, waiting) = (txn(gateway, 1), txn(gateway, 2));
    table.burst(gateway, heartbeat(host));
    let began = Began {
        ballot: pulse(host).pulse.ballot,
        leader: deployment().shard_on(host, SHARD),
        attempt: 1,
        epoch: 1,
        index: 0,
        assigns_above: Timestamp(9),
        last_commit: Timestamp(5),
        due: Timestamp::MAX,
        prepared: vec![prepared(older)],
        decisions: Vec::new(),
        owners: Vec::new(),
        members: Members { version: 0, hosts: Vec::new() },
    };
    table.burst(replica, ShardHears::from(began));
    let bound = SpannerParameters::DEFAULT.fence_bound.as_micros() as u64;
    // As a gateway says whose clock is far ahead.
    let t_ee = Timestamp(101_000_000 + 2 * bound);
    let prepare = PrepareTxn {
        txn: waiting,
        priority: priority(waiting),
        call: None,
        locked: None,
        start: Timestamp(101_000_000),
        t_ee,
        coordinator: SHARD,
        participants: vec![SHARD],
        writes: write(),
    };
    let did = table.burst(gateway, ShardHears::from(prepare));
    assert!(proposed(&did).is_empty(), "it waits for a lock");
    table.pass(WAITED);
    let at = 100 * SECOND + WAITED.as_nanos() as u64;
    table.wall = Wall::between(at, at + SECOND);
    let decided = Decided { txn: older, coordinator: ELSEWHERE, fate: Fate::Aborted };
    let did = table.burst(gateway, ShardHears::from(decided));
    assert!(matches!(proposed(&did)[..], [Change::Conclude(_)]), "{did:?}");
    let did = table.burst(replica, stepped(1));
    let changes = proposed(&did);
    let [Change::CommitAlone(commit)] = &changes[..] else { panic!("{changes:?}") };
    let put_off = Timestamp(t_ee.0 + WAITED.as_micros() as u64);
    assert_eq!(commit.t_c, Timestamp(put_off.0 - bound), "no more than the bound before the earliest end");
    let did = table.burst(replica, stepped(2));
    let ended = sends(&did).into_iter().find_map(|(_, message)| match message {
        SpannerMessage::Gateway(GatewayIn::Ended(ended)) => Some(ended),
        _ => None,
    });
    let ended = ended.expect("its gateway is answered");
    assert_eq!((ended.fate, ended.t_ee), (Fate::Committed(commit.t_c), put_off));
}
