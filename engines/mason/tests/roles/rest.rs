//! A leading proxy that has nothing to do.

use super::durable::{LEADER, REPLICA, heartbeat, leading_under};
use super::*;
use kernel::{Effect, Silence};
use mason::proxy::entry::{Claim, Entry};
use mason::proxy::{AwaitsTime, Heard, Pong, Probed, Proxy, ProxyTimer, SubmitOperations};
use mason::sequencer::{Ping, Recover};
use paxos::multipaxos::leader::LeaderIn;
use paxos::{Message, Value};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_millis(100);

/// How long it waits for its next tick, and whose silence ends that.
fn waits(did: &Did) -> Option<(Duration, Option<Silence>)> {
    did.iter().rev().find_map(|effect| match effect {
        Effect::SetTimer { after, silence, .. } => Some((*after, silence.clone())),
        _ => None,
    })
}

fn hear_sequencer(bench: &mut Table<Proxy>) {
    let now = bench.now();
    bench.beacons.hear(HostId(2), 1, now);
}

/// Its sequencer is on host 2, and says by a beacon that it is there.
fn waiting() -> Table<Proxy> {
    let mut bench = leading_under(Some(Claim { sequencer: sequencer(2), attempt: 7 }));
    bench.hear(sequencer(2), Probed { epoch: 1, highest: 0, lost: Vec::new() });
    bench.hear(sequencer(2), Pong { epoch: 1 });
    bench.hear(REPLICA, AwaitsTime { awaits: false });
    let (after, silence) = waits(&bench.timer(ProxyTimer::Tick)).expect("it leads");
    assert!(after <= Duration::from_millis(50) && silence.is_none(), "no beacon is lit");
    bench.beacons.light(sequencer(2), proxy(1, 0));
    hear_sequencer(&mut bench);
    let did = bench.timer(ProxyTimer::Tick);
    let (after, silence) = waits(&did).expect("it leads");
    assert_eq!(silence, Some(Silence { of: vec![sequencer(2)], lasts: PATIENCE }), "{did:?}");
    assert!(after >= Duration::from_secs(1), "{after:?}");
    bench
}

fn calls_another(did: &Did) -> bool {
    sends(did).iter().any(|(_, message)| *message == MasonMessage::from(Recover { epoch: 2 }))
}

// Proxies that look twenty times a second whether all is well are much of what an idle host does; one that waits when it has something to
// do, or when its sequencer is silent, is late for its users.
#[test]
fn a_proxy_at_rest_waits_for_its_sequencer_to_fall_silent() {
    let mut bench = waiting();
    let submit = SubmitOperations { operations: vec![operation(1, b"x")] };
    let (after, silence) = waits(&bench.hear(gateway(1), submit)).expect("it looks soon");
    assert!(after <= Duration::from_millis(50) && silence.is_none());

    let mut bench = waiting();
    bench.pass(PATIENCE);
    let did = bench.timer(ProxyTimer::Tick);
    assert_eq!(sends(&did), one(sequencer(2), Ping { epoch: 1 }), "silent");
    assert!(matches!(waits(&did), Some((after, None)) if after <= Duration::from_millis(50)), "{did:?}");

    let mut bench = waiting();
    bench.pass(Duration::from_millis(900));
    hear_sequencer(&mut bench);
    bench.beacons.put_out(sequencer(2), proxy(1, 0));
    bench.hear(LEADER, Heard::Log(heartbeat()));
    assert!(!calls_another(&bench.timer(ProxyTimer::Tick)), "it was seen until its beacon was stopped");
    bench.pass(Duration::from_millis(200));
    bench.hear(LEADER, Heard::Log(heartbeat()));
    assert!(calls_another(&bench.timer(ProxyTimer::Tick)), "and not since");
}

// A session whose time begins while the group's clock stands loses what the leader waited before.
#[test]
fn what_begins_while_time_stands_has_all_of_its_time() {
    let mut bench = waiting();
    bench.pass(Duration::from_millis(900));
    hear_sequencer(&mut bench);
    bench.hear(REPLICA, AwaitsTime { awaits: true });
    let clock = |did: &Did| {
        sends(did).into_iter().find_map(|(_, message)| {
            let MasonMessage::Log(Message::Leader(LeaderIn::Propose(propose))) = message else { return None };
            let Value::Entry(entry) = propose.value else { return None };
            match kernel::Decode::decoded(entry.bytes()) {
                Ok(Entry::Clock { now, .. }) => Some(now.0),
                Ok(_) | Err(_) => None,
            }
        })
    };
    assert_eq!(clock(&bench.timer(ProxyTimer::Tick)), None);
    bench.pass(Duration::from_millis(500));
    assert_eq!(clock(&bench.timer(ProxyTimer::Tick)), Some(500));
}
