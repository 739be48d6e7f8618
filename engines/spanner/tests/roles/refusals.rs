//! What is bounded in time, and what lies beyond the clock.

use super::{SECOND, SHARD, deployment, heartbeat, members, proposed, pulse, shard_of};
use kernel::{Bytes, Decode as _, Effect, Encode as _, HostId, NodeId, RequestId, Role as _, Wall};
use paxos::{LogRole, Members};
use spanner::gateway::{GatewayTimer, TxnGateway};
use spanner::machine::entry::{Change, FoundValues, ReplicaValues};
use spanner::messages::gateway::{Ended, GatewayIn, LockedValues, ReadRefusal};
use spanner::messages::shard::{Began, LockedUnder, OwnerAlive, PrepareTxn, ReadAt, ReadLocked, ShardIn};
use spanner::placement::placed;
use spanner::shard::{ShardHears, ShardTimer, SpannerShard};
use spanner::{Fate, Priority, ReadSet, Spanner, SpannerMessage, SpannerParameters, TxnId};
use std::collections::BTreeSet;
use std::time::Duration;
use table::{Did, Table, sends};
use wire::txn::{
    Begin, CallKey, Commit, GiveUp, KeyRow, KeyWrite, OneShot, ReadWithin, Timestamp, TxnCall, TxnFailure,
    TxnReply,
};

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

// Who hears that a commit is given up that goes on, or has ended, pays twice.
#[test]
fn only_what_is_not_to_be_committed_is_given_up() {
    let mut table = gateway();
    let begin = Begin { id: NAME, token: Timestamp(0), priority: None };
    let why = |did: Did<Spanner>| match answer(&did) {
        Some(TxnReply::Failed(failed)) => Some(failed.why),
        _ => None,
    };
    ask(&mut table, begin.clone());
    let given_up = ask(&mut table, GiveUp { txn: NAME });
    assert!(given_up.iter().any(|effect| matches!(effect, Effect::Respond { .. })), "{given_up:?}");
    assert_eq!(why(given_up), None);
    assert_eq!(why(ask(&mut table, GiveUp { txn: NAME })), Some(TxnFailure::NoTransaction));
    ask(&mut table, begin);
    let writes = vec![KeyWrite { key: Bytes::from_static(b"k"), value: None }];
    ask(&mut table, Commit { id: 4, txn: NAME, key: None, acknowledged: 0, writes });
    let given_up = ask(&mut table, GiveUp { txn: NAME });
    assert!(!releases(&given_up));
    assert_eq!(why(given_up), Some(TxnFailure::Unknown));
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

/// The shard's role on a host, when it leads and serves.
fn leading(host: HostId) -> Table<SpannerShard> {
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
        due: Timestamp::MAX,
        prepared: Vec::new(),
        decisions: Vec::new(),
        owners: Vec::new(),
        members: Members { version: 0, hosts: Vec::new() },
    };
    table.burst(log.node(host, LogRole::Replica), ShardHears::from(began));
    table
}

fn put(number: u64) -> OneShot {
    let (token, acknowledged, key) = (Timestamp(0), 0, Some(CallKey { session: 9, number }));
    let writes = vec![KeyWrite { key: Bytes::from_static(b"hot"), value: None }];
    let (conditions, reads, otherwise) = (Vec::new(), Vec::new(), Vec::new());
    OneShot { id: number, token, key, acknowledged, conditions, writes, reads, otherwise }
}

fn prepares(did: &Did<Spanner>) -> Vec<PrepareTxn> {
    let asked = sends(did).into_iter().filter_map(|(_, message)| match message {
        SpannerMessage::Shard(ShardIn::PrepareTxn(prepare)) => Some(prepare),
        _ => None,
    });
    asked.collect()
}

// Thousands that wait for one key, all asked for again ten times a second, fill the way to the shard's leader: nobody else gets there.
#[test]
fn a_gateway_asks_again_for_few_at_once_and_for_each_in_turn() {
    let mut table = gateway();
    for number in 0..300 {
        assert_eq!(prepares(&ask(&mut table, put(number))).len(), 1);
    }
    table.pass(SpannerParameters::DEFAULT.resend_after);
    let mut again = BTreeSet::new();
    for look in 0..5 {
        let asked = prepares(&table.timer(GatewayTimer::Tick));
        assert!(asked.len() <= 64, "{} at look {look}", asked.len());
        again.extend(asked.iter().map(|prepare| prepare.txn.number));
    }
    assert_eq!(again.len(), 300, "each is asked for before one is asked for twice");
}

// Who is answered that a commit may still be executed has to ask for its end; one that only waited for locks was not executed.
#[test]
fn a_commit_that_has_waited_too_long_for_locks_is_not_executed() {
    let mut table = gateway();
    let first = prepares(&ask(&mut table, put(1))).remove(0);
    table.pass(SpannerParameters::DEFAULT.try_for / 2);
    let (txn, shard, t_ee) = (first.txn, SHARD, Timestamp(0));
    let did = table.hear(asked_of(), Ended { txn, shard, fate: Fate::Aborted, t_ee });
    let Some(TxnReply::Failed(failed)) = answer(&did) else { panic!("{did:?}") };
    assert_eq!(failed.why, TxnFailure::Busy);
    let mut table = gateway();
    let second = prepares(&ask(&mut table, put(2))).remove(0);
    let did = table.hear(asked_of(), Ended { txn: second.txn, shard, fate: Fate::Aborted, t_ee });
    assert_eq!(answer(&did), None, "there is time for another attempt");

    let host = placed(SHARD, &members(), 3)[0];
    let (mut table, gateway) = (leading(host), deployment().gateway_of(host));
    let of = |number| TxnId { gateway, incarnation: 1, number };
    let what = ReadSet { keys: vec![Bytes::from_static(b"hot")], scans: Vec::new() };
    let holds = |number| Priority { first_start: Timestamp(number), txn: of(number) };
    let read = ReadLocked { txn: of(1), priority: holds(1), held: None, what, writes: None };
    table.burst(gateway, ShardHears::from(read));
    let prepare =
        PrepareTxn { txn: of(2), priority: holds(2), coordinator: SHARD, participants: vec![SHARD], ..first };
    let did = table.burst(gateway, ShardHears::from(prepare));
    assert!(proposed(&did).is_empty(), "it waits for a lock");
    let aborted = (1..100).find(|_| {
        table.pass(Duration::from_millis(100));
        table.burst(gateway, heartbeat(host));
        let alive = OwnerAlive { gateway, incarnation: 1, below: 0, next: 3, open: vec![1, 2] };
        table.burst(gateway, ShardHears::from(alive));
        let did = table.timer(ShardTimer::Tick);
        let ends = table.call(|role, cx| role.on_burst_end(cx));
        let all = proposed(&did).into_iter().chain(proposed(&ends));
        all.into_iter().any(|change| matches!(change, Change::Decide(decide) if decide.fate == Fate::Aborted))
    });
    assert_eq!(aborted, Some(50), "tenths of a second");
}

// A leader that promises a reader what its clock does not reach assigns timestamps that far in the future, and every commit waits for them.
#[test]
fn a_leader_refuses_to_read_beyond_what_clocks_may_differ_by() {
    let host = placed(SHARD, &members(), 3)[0];
    let (mut table, gateway) = (leading(host), deployment().gateway_of(host));
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
