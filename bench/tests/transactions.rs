//! Deployments of transactions in the cost simulator.

use bench::Profile;
use bench::transactions::{Draws, READ_ONLY, Script, Sites, TxnDeployment, TxnLoad, TxnWorkload, Zipf};
use kernel::Bytes;
use sim::cost::{Measured, Pace, Window};
use spanner::{ShardId, SpannerParameters, shard_of};
use std::sync::Arc;
use std::time::Duration;
use wire::txn::{ReadOnly, Timestamp, TxnLevel, TxnReply};

const CALIFORNIA: usize = 0;
const IRELAND: usize = 2;

fn deployment() -> TxnDeployment {
    let log = paxos::Parameters {
        heartbeat_every: Duration::from_millis(200),
        election_timeout: Duration::from_secs(4),
        resend_after: Duration::from_secs(2),
        ..paxos::Parameters::DEFAULT
    };
    let parameters = SpannerParameters { resend_after: Duration::from_secs(2), ..SpannerParameters::DEFAULT };
    TxnDeployment {
        sites: Sites::of_the_paper(),
        shards: 3,
        machines: None,
        led_at_one_site: false,
        gateways_per_site: 1,
        clock_error: Duration::from_millis(1),
        parameters,
        log,
    }
}

fn draws(level: TxnLevel) -> Draws {
    let zipf = Arc::new(Zipf::new(100_000, 0.0));
    Draws { workload: TxnWorkload::Retwis, level, zipf, keys: 100_000, value: Bytes::from_static(b"v") }
}

/// A key that is led in California.
fn near_key() -> Bytes {
    let mut keys = (0..100).map(|number| Bytes::from(format!("k{number}")));
    keys.find(|key| shard_of(key, 0, 3) == ShardId(0))
        .expect("one key of a hundred is on the first of three shards")
}

// A card that took packets in the order in which they left made a near sender wait for a far one.
#[test]
fn those_who_are_near_do_not_wait_for_those_who_are_far() {
    let mut script = Script::new(deployment().start(&Profile::t2_large(), 1).expect("leaders"));
    let read = || ReadOnly {
        id: 1,
        token: Timestamp(0),
        level: TxnLevel::Strict,
        keys: vec![near_key()],
        scans: Vec::new(),
    };
    // The first one has the leader log a horizon.
    let first = script.ask(CALIFORNIA, read());
    script.await_answer(first).expect("an answer");
    let far = script.ask(IRELAND, read());
    let near = script.ask(CALIFORNIA, read());
    let took = |script: &mut Script, asked| {
        let (at, reply) = script.await_answer(asked).expect("an answer");
        assert!(matches!(reply, TxnReply::ReadRows(_)), "{reply:?}");
        at - script.asked_at(asked)
    };
    let near = took(&mut script, near);
    assert!(near < Duration::from_millis(1), "{near:?}");
    let far = took(&mut script, far);
    assert!((136..140).contains(&far.as_millis()), "a round trip to Ireland takes 136 ms: {far:?}");
}

fn partly_open(level: TxnLevel) -> (Measured, usize) {
    let mut running = deployment().start(&Profile::t2_large(), 7).expect("leaders");
    let mut load = TxnLoad::new(draws(level));
    let pace = Pace::PartlyOpen { sessions_per_second: 20.0, stay: 0.9 };
    let window = Window { warm_up: Duration::from_secs(10), measured: Duration::from_secs(60) };
    let measured = running.testbed.run(&running.gateways, pace, &mut load, window);
    (measured, load.sessions())
}

// Sessions that never leave, or leave at once, make another load than the one asked for; and a run that differs from itself is no run.
#[test]
fn sessions_come_stay_and_leave() {
    let (measured, open) = partly_open(TxnLevel::Rss);
    // 20 sessions a second, ten transactions each.
    assert!((170.0..230.0).contains(&measured.throughput()), "{:.0}/s", measured.throughput());
    assert!((1..400).contains(&open), "{open} sessions are open");
    assert_eq!(partly_open(TxnLevel::Rss).0.hash, measured.hash);
    let reads = &measured.classes[usize::from(READ_ONLY.0)];
    assert!(
        reads.operations > 4_000 && reads.refused == 0,
        "{} reads, {} refused",
        reads.operations,
        reads.refused
    );
}
