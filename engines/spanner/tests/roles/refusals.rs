//! What is bounded in time, and what lies beyond the clock.

use super::{SECOND, SHARD, deployment, heartbeat, members, pulse, shard_of};
use kernel::{Bytes, Decode as _, Effect, Encode as _, HostId, NodeId, RequestId, Role as _, Wall};
use paxos::{LogRole, Members};
use spanner::gateway::{GatewayTimer, TxnGateway};
use spanner::machine::entry::{FoundValues, ReplicaValues};
use spanner::messages::gateway::{GatewayIn, LockedValues, ReadRefusal};
use spanner::messages::shard::{Began, LockedUnder, ReadAt, ReadLocked, ShardIn};
use spanner::placement::placed;
use spanner::shard::ShardHears;
use spanner::{ReadSet, Spanner, SpannerMessage, SpannerParameters};
use std::time::Duration;
use table::{Did, Table, sends};
use wire::txn::{Begin, KeyRow, ReadWithin, Timestamp, TxnCall, TxnFailure, TxnReply};

const NAME: u64 = 3;

fn gateway() -> Table<TxnGateway> {
    let role = TxnGateway::new(deployment().directory().clone(), SpannerParameters::default());
    let mut table = Table::new(role, deployment().gateway_of(HostId::named("h0")));
    table.wall = Wall::between(100 * SECOND, 101 * SECOND);
    table
}

fn answer(did: &Did<Spanner>) -> Option<TxnReply> {
    did.iter().find_map(|effect| match effect {
        Effect::Respond { response, .. } => TxnReply::decoded(&response.0).ok(),
        _ => None,
    })
}

fn ask(table: &mut Table<TxnGateway>, call: impl Into<TxnCall>) -> Did<Spanner> {
    let call = call.into().encoded();
    table.call(|role, cx| role.on_request(RequestId(5), call.into(), cx))
}

fn asked(did: &Did<Spanner>) -> Option<ReadLocked> {
    sends(did).into_iter().find_map(|(_, message)| match message {
        SpannerMessage::Shard(ShardIn::ReadLocked(read)) => Some(read),
        _ => None,
    })
}

fn releases(did: &Did<Spanner>) -> bool {
    sends(did).iter().any(|(_, it)| matches!(it, SpannerMessage::Shard(ShardIn::Release(_))))
}

// Who reads another key every few seconds holds its locks for ever, and every younger writer waits.
#[test]
fn an_interactive_transaction_that_never_ends_is_given_up() {
    let mut table = gateway();
    let begun = ask(&mut table, Begin { id: NAME, token: Timestamp(0), priority: None });
    assert!(matches!(answer(&begun), Some(TxnReply::Begun(_))));
    let idle = SpannerParameters::DEFAULT.idle_max;
    let key = Bytes::from_static(b"k");
    let read = ReadWithin { id: 4, txn: NAME, keys: vec![key.clone()], scans: Vec::new() };
    let mut open = Duration::ZERO;
    let given_up = loop {
        let did = ask(&mut table, read.clone());
        let Some(asked) = asked(&did) else { panic!("{did:?} after {open:?}") };
        let row = KeyRow { key: key.clone(), value: None, version: Timestamp(0) };
        let found = FoundValues { rows: vec![row], scans: Vec::new(), newest: Timestamp(0), is_short: false };
        let reads = asked.held.map_or(0, |held| held.reads) + 1;
        let held = LockedUnder { epoch: 1, since: 1, reads };
        let values = ReplicaValues::Found(found).encoded().into();
        let did = table.hear(asked_of(), LockedValues { txn: asked.txn, shard: SHARD, held, values });
        assert!(matches!(answer(&did), Some(TxnReply::RowsWithin(_))), "{did:?}");
        table.pass(idle / 2);
        open += idle / 2;
        let did = table.timer(GatewayTimer::Tick);
        if releases(&did) {
            break open;
        }
        assert!(open < 20 * idle, "it holds its locks for ever");
    };
    assert_eq!(given_up, 6 * idle, "not before");
    let Some(TxnReply::Failed(failed)) = answer(&ask(&mut table, read)) else { panic!("it has ended") };
    assert_eq!(failed.why, TxnFailure::NoTransaction);
}

// Who is answered that a shard is busy sends for ever what no shard ever takes.
#[test]
fn a_transaction_that_locks_more_than_a_record_holds_is_beyond_a_limit() {
    let mut table = gateway();
    ask(&mut table, Begin { id: NAME, token: Timestamp(0), priority: None });
    let keys = |from: u32, count: u32| {
        let key = |at: u32| Bytes::from(format!("{at:04}").repeat(1_000).into_bytes());
        let (keys, scans) = ((from..from + count).map(key).collect(), Vec::new());
        ReadWithin { id: 4, txn: NAME, keys, scans }
    };
    let did = ask(&mut table, keys(0, 131));
    assert!(asked(&did).is_some_and(|asked| asked.what.keys.len() == 131), "524,000 of 524,288 bytes");
    let mut table = gateway();
    ask(&mut table, Begin { id: NAME, token: Timestamp(0), priority: None });
    let did = ask(&mut table, keys(0, 132));
    let Some(TxnReply::Failed(failed)) = answer(&did) else { panic!("{did:?}") };
    assert_eq!((failed.why, asked(&did)), (TxnFailure::Malformed, None));
}

/// The shard's role on the gateway's host.
fn asked_of() -> NodeId {
    deployment().shard_on(HostId::named("h0"), SHARD)
}

// A leader that promises a reader what its clock does not reach assigns timestamps that far in the future, and every commit waits for them.
#[test]
fn a_leader_refuses_to_read_beyond_what_clocks_may_differ_by() {
    let host = placed(SHARD, &members(), 3)[0];
    let mut table = shard_of(host);
    let (gateway, log) = (deployment().gateway_of(host), deployment().log_of(SHARD));
    table.burst(gateway, heartbeat(host));
    let began = Began {
        ballot: pulse(host).pulse.ballot,
        leader: deployment().shard_on(host, SHARD),
        attempt: 1,
        epoch: 1,
        index: 0,
        assigns_above: Timestamp(9),
        last_commit: Timestamp(5),
        prepared: Vec::new(),
        decisions: Vec::new(),
        owners: Vec::new(),
        members: Members { version: 0, hosts: Vec::new() },
    };
    table.burst(log.node(host, LogRole::Replica), ShardHears::from(began));
    let ahead = SpannerParameters::DEFAULT.clock_error_max.as_micros() as u64;
    let mut refused_at = |t_read: u64| {
        let what = ReadSet { keys: vec![Bytes::from_static(b"k")], scans: Vec::new() };
        let (t_read, t_min, skips) = (Timestamp(t_read), Timestamp(0), false);
        let did = table
            .burst(gateway, ShardHears::from(ReadAt { gateway, id: t_read.0, t_read, t_min, skips, what }));
        sends(&did).into_iter().find_map(|(_, message)| match message {
            SpannerMessage::Gateway(GatewayIn::ReadRefused(refused)) => Some(refused.why),
            _ => None,
        })
    };
    assert_eq!(refused_at(101_000_000 + ahead), None);
    assert_eq!(refused_at(101_000_001 + ahead), Some(ReadRefusal::FROM_THE_FUTURE));
}
