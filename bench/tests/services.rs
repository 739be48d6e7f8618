//! Services over Mason and CORFU' in the cost simulator: their peaks are what their cards and threads add up to.

use bench::Profile;
use bench::services::{
    Appends, CorfuPrimeLog, Operations, OrderedService, RandomReads, Register, ServiceDeployment, Services,
};
use corfu::{Data, Entry, Epoch, LogPosition, client};
use kernel::client::Response;
use kernel::{Bytes, Decode, Encode, NodeId, Rng, SnapshotStep};
use mason::{Gsn, Number, Order, Placed, Shard, ShardOut, Space};
use sequence::Ask;
use sim::cost::{Class, Load, LoadSession, Pace, Window};
use std::time::Duration;

const WINDOW: Window = Window { warm_up: Duration::from_millis(2), measured: Duration::from_millis(2) };

fn entry() -> Bytes {
    Bytes::from(vec![b'x'; 64])
}

// A sequencer that is bound by anything but its card would make the baseline look worse than the paper's.
#[test]
fn corfu_stops_at_its_sequencers_card() {
    let profile = Profile::d430();
    let mut running = CorfuPrimeLog { chains: 4, clients: 64, written: false }.start(&profile, 1);
    let (clients, pace) = (running.clients.clone(), Pace::Closed { outstanding: 28 });
    let measured = running.testbed.run(&clients, pace, &mut Appends { body: entry() }, WINDOW);
    let token = client::Token { id: 1, epoch: Epoch(1), position: LogPosition(1) };
    let bytes = corfu::CorfuMessage::from(token).encoded().len() as u64 + profile.network.overhead_bytes;
    let expected = profile.network.gigabits_per_second * 1e9 / 8.0 / bytes as f64;
    let off = measured.throughput() / expected - 1.0;
    assert!(off.abs() < 0.02, "{:.0}/s, by hand {expected:.0}/s", measured.throughput());
}

/// Keeps the positions that were answered.
struct Retained {
    load: Operations,
    positions: Vec<u64>,
}

impl Load<Services> for Retained {
    fn ask(&mut self, session: LoadSession, rng: &mut Rng) -> (Bytes, Class) {
        self.load.ask(session, rng)
    }

    fn answered(&mut self, session: LoadSession, class: Class, response: &Response, now: Duration) -> bool {
        let position = LogPosition::decoded(&response.0).expect("a relay answers with a position");
        self.positions.push(position.0);
        self.load.answered(session, class, response, now)
    }
}

// A relay that drops or repeats an entry measures less, or more, than the service does.
#[test]
fn corfu_mason_gives_every_position_once() {
    let deployment =
        ServiceDeployment { service: OrderedService::Log { chains: 2 }, leader_machines: 1, clients: 8 };
    let mut running = deployment.start(&Profile::d430(), 1).expect("leaders");
    let clients = running.clients.clone();
    let mut load = Retained { load: Operations::over(1, 64), positions: Vec::new() };
    let measured = running.testbed.run(&clients, Pace::Closed { outstanding: 16 }, &mut load, WINDOW);
    assert!(measured.throughput() > 500_000.0, "{:.0}/s", measured.throughput());
    let mut positions = load.positions;
    positions.sort_unstable();
    assert!(positions.windows(2).all(|pair| pair[0] < pair[1]), "a position is answered twice");
    // What is in flight at the end has no answer yet.
    let (count, last) = (positions.len() as u64, positions.last().copied().unwrap_or(0));
    assert!(last < count + 8 * 16, "{count} positions up to {last}");
}

// Reads that go to a proxy and not to the tails, or to the sequencer after all, scale otherwise than the paper's.
#[test]
fn reads_stop_at_the_tails_cards() {
    let profile = Profile::d430();
    let data = Data { writer: NodeId::ZERO, tag: 1, body: entry() };
    let found =
        client::Found { id: 1, epoch: Epoch(1), position: LogPosition(1), entry: Some(Entry::Data(data)) };
    let bytes = corfu::CorfuMessage::from(found).encoded().len() as u64 + profile.network.overhead_bytes;
    let expected = 2.0 * profile.network.gigabits_per_second * 1e9 / 8.0 / bytes as f64;
    let pace = Pace::Closed { outstanding: 16 };
    let mut prime = CorfuPrimeLog { chains: 2, clients: 64, written: true }.start(&profile, 1);
    let clients = prime.clients.clone();
    let direct = prime.testbed.run(&clients, pace, &mut RandomReads, WINDOW).throughput();
    let service = OrderedService::LogReads { chains: 2 };
    let deployment = ServiceDeployment { service, leader_machines: 6, clients: 96 };
    let mut running = deployment.start(&profile, 1).expect("leaders");
    let clients = running.clients.clone();
    let by_proxy = running.testbed.run(&clients, pace, &mut RandomReads, WINDOW).throughput();
    for (what, throughput) in [("CORFU'", direct), ("Corfu-Mason", by_proxy)] {
        let off = throughput / expected - 1.0;
        assert!(off.abs() < 0.03, "{what}: {throughput:.0}/s, by hand {expected:.0}/s");
    }
}

// A read that is answered without its value, or with one that was overwritten, costs less than one that is right.
#[test]
fn a_register_gives_back_what_was_written() {
    let mut register = Register::of(3);
    let order = |number| {
        let placed = Placed { space: Space(0), number: Number(number) };
        Order { numbers: [placed].into(), gsn: Gsn(number), time: 0 }
    };
    let ask = |register: &mut Register, number, label: &'static [u8]| {
        let body = Ask { spaces: vec![Space(0)], label: Bytes::from_static(label) }.encoded().into();
        let mut out = ShardOut::default();
        register.execute(&body, &order(number), &[], &mut out);
        Bytes::from(out.into_parts().0)
    };
    let value = |answer: Bytes| Bytes::decoded(&answer).expect("a value");
    assert_eq!(value(ask(&mut register, 1, b"")), &b"xxx"[..]);
    let written = ask(&mut register, 2, b"new");
    assert_eq!(Order::decoded(&written), Ok(order(2)));
    assert_eq!(value(ask(&mut register, 3, b"")), &b"new"[..]);
    let mut copy = Register::of(0);
    copy.reset();
    register.begin_snapshot();
    loop {
        let mut chunk = Vec::new();
        let step = register.snapshot_step(1 << 10, &mut chunk);
        copy.install(&chunk).expect("a chunk that was just written");
        if let SnapshotStep::Done = step {
            break;
        }
    }
    assert_eq!(copy.digest(), register.digest());
    assert_eq!(value(ask(&mut copy, 4, b"")), &b"new"[..]);
}

// Shards that are fed by the proxies' machines, and not by their own, must execute everything, each on every server.
#[test]
fn a_thread_bounds_its_shard() {
    let profile = Profile::d430();
    let peak = |shards: u16| {
        let service = OrderedService::Shards { shards };
        let deployment = ServiceDeployment { service, leader_machines: 4, clients: 32 };
        let mut running = deployment.start(&profile, 1).expect("leaders");
        let clients = running.clients.clone();
        let pace = Pace::Closed { outstanding: 64 };
        let measured = running.testbed.run(&clients, pace, &mut Operations::over(shards, 64), WINDOW);
        let station = |name: &str| {
            let all = running.stations.iter().zip(&measured.busy).filter(|(station, _)| **station == name);
            all.map(|(_, &busy)| busy).collect::<Vec<f64>>()
        };
        (measured.throughput(), station("shard server"))
    };
    let (one, servers) = peak(1);
    assert!(servers.len() == 3 && servers.iter().all(|&busy| busy > 0.95), "{servers:?}");
    let handle = profile.handle(bench::PricedStep::Deliver);
    assert!(one < 1e9 / handle.item && one > 0.5e9 / handle.item, "{one:.0}/s of {handle:?}");
    let (two, servers) = peak(2);
    assert!(two > 1.5 * one && servers.len() == 6, "{one:.0}/s and {two:.0}/s");
}
