//! Until when a leading proxy has operations retained for the servers of a shard.

use super::*;
use mason::proxy::entry::{Claim, Entry};
use mason::proxy::{Applied, Began, Heard, LogNodes, Proxy, ProxyTimer, ShardDurable, SubmitOperations};
use mason::{GroupTime, Gsn, MasonParameters};
use parts::{AcceptorGroup, Acceptors, Ballot, Slot};
use paxos::multipaxos::{Pulse, batcher::Heartbeat};
use paxos::{Configuration, Configurations, Message, Value};
use std::time::Duration;

pub(super) const LEADER: NodeId = NodeId::new(HostId(1), HostSlot(0x31));
pub(super) const REPLICA: NodeId = NodeId::new(HostId(1), HostSlot(0x32));
const BALLOT: Ballot = Ballot { round: 1, leader: LEADER };
const OPERATION: &[u8] = &[7; 3 << 20];

pub(super) fn heartbeat() -> Message {
    let configurations = Configurations::starting_with(Configuration {
        version: 0,
        first_slot: Slot(0),
        acceptors: Acceptors::new(vec![AcceptorGroup::majority(vec![LEADER]).expect("one")]).expect("one"),
        leaders: vec![LEADER],
        proxy_leaders: vec![LEADER],
        replicas: vec![REPLICA],
        batchers: vec![LEADER],
        unbatchers: vec![LEADER],
        hosts: Vec::new(),
        joined: Vec::new(),
    });
    let (executed, truncate_below) = (Slot(0), Slot(0));
    let pulse = Pulse { ballot: BALLOT, configurations, executed, truncate_below, alive: Vec::new() };
    Heartbeat { pulse }.into()
}

/// A proxy that leads a group which numbers by itself, one shard's operations.
fn leading() -> Table<Proxy> {
    leading_under(None)
}

/// The same under a sequencer, if there is one.
pub(super) fn leading_under(claim: Option<Claim>) -> Table<Proxy> {
    let nodes = LogNodes { batcher: node(1, 0x30), leader: LEADER, replica: REPLICA, first: 0 };
    let sequencers = if claim.is_some() { topology().sequencers.clone() } else { Vec::new() };
    let topology = Topology { sequencers, layout: Layout::at_bootstrap(1, 1), ..(*topology()).clone() };
    let spaces_of = Arc::new(|_: &[u8], _: &_| vec![Space(0)]);
    let role = Proxy::new(Group(0), Arc::new(topology), MasonParameters::default(), nodes, spaces_of);
    let mut bench = Table::new(role, proxy(1, 0));
    bench.hear(LEADER, Heard::Log(heartbeat()));
    let began = Began {
        epoch: 1,
        ballot: BALLOT,
        leader: proxy(1, 0),
        sequencer: u64::from(claim.is_some()),
        request: 0,
        next: vec![at(0, 1)],
        gsn: Gsn(0),
        now: GroupTime(0),
        tags: Vec::new(),
        follow_ups: Vec::new(),
        claim,
        durable: None,
    };
    bench.hear(REPLICA, began);
    assert!(bench.role.is_leading());
    bench
}

/// The low watermarks that are put into the log within so many seconds.
fn logged(bench: &mut Table<Proxy>, seconds: u32) -> Vec<Number> {
    let mut found = Vec::new();
    for _ in 0..seconds {
        bench.pass(Duration::from_secs(1));
        bench.hear(LEADER, Heard::Log(heartbeat()));
        for (_, message) in sends(&bench.timer(ProxyTimer::Tick)) {
            if let MasonMessage::Log(Message::Leader(paxos::multipaxos::leader::LeaderIn::Propose(propose))) =
                message
                && let Value::Entry(entry) = propose.value
                && let Ok(Entry::Durable { low_watermarks, .. }) = kernel::Decode::decoded(entry.bytes())
            {
                found.extend(low_watermarks.into_iter().map(|low_watermark| low_watermark.number));
            }
        }
    }
    found
}

fn durable(bench: &mut Table<Proxy>, host: u32, number: u64) {
    bench.hear(server(host, 0), ShardDurable { below: at(0, number) });
}

// What two of three servers have in snapshots is gone, and all hosts die before the third one's snapshot is durable: at the next start it
// has to take a peer's, which is the whole state, and has it in memory twice.
#[test]
fn operations_are_retained_for_the_last_server_of_a_shard_for_a_while() {
    let mut bench = leading();
    durable(&mut bench, 1, 5);
    assert_eq!(logged(&mut bench, 20), [], "one server may fail");
    durable(&mut bench, 2, 7);
    durable(&mut bench, 3, 4);
    assert_eq!(logged(&mut bench, 9), [Number(4)], "the others wait for the third");
    durable(&mut bench, 3, 7);
    durable(&mut bench, 1, 7);
    assert_eq!(logged(&mut bench, 1), [Number(7)], "all have it");
    durable(&mut bench, 1, 9);
    durable(&mut bench, 2, 9);
    assert_eq!(logged(&mut bench, 9), []);
    assert_eq!(logged(&mut bench, 3), [Number(9)], "not for ever");

    // Its bound in bytes.
    durable(&mut bench, 1, 20);
    durable(&mut bench, 2, 20);
    assert_eq!(logged(&mut bench, 1), []);
    for tag in 1..=11 {
        let submit = SubmitOperations { operations: vec![operation(tag, OPERATION)] };
        bench.burst(gateway(1), submit);
        bench.burst(REPLICA, Applied { epoch: 1, index: tag, sequencer: 0 });
    }
    assert_eq!(logged(&mut bench, 1), [Number(20)]);
}

// A sequencer that is not answered asks for ever.
#[test]
fn who_was_overtaken_is_notified() {
    use mason::proxy::{Fill, GetMaxAndSeal};
    use mason::sequencer::Overtaken;
    let in_force = Claim { sequencer: sequencer(2), attempt: 7 };
    let mut bench = leading_under(Some(in_force.clone()));
    let attempt = Some(9);
    let refused = |attempt| one(sequencer(3), Overtaken { epoch: 1, attempt });
    let earlier = bench.hear(sequencer(3), GetMaxAndSeal { epoch: 0, attempt });
    assert_eq!(sends(&earlier), refused(attempt));
    let second = bench.hear(sequencer(3), GetMaxAndSeal { epoch: 1, attempt });
    assert_eq!(sends(&second), refused(attempt), "the epoch is another's");
    let fills = bench.hear(sequencer(3), Fill { epoch: 0, holes: vec![range(0, 1, 1)] });
    assert_eq!(sends(&fills), refused(None));
    let own = sends(&bench.hear(in_force.sequencer, GetMaxAndSeal { epoch: 1, attempt: Some(7) }));
    assert!(own.iter().all(|(to, _)| *to != in_force.sequencer), "the log answers it: {own:?}");
}
