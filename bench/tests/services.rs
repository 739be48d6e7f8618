//! Services over Mason and CORFU' in the cost simulator: their peaks are what their cards and threads add up to.

use bench::Profile;
use bench::services::{Appends, Corfu, Deployment, Operations, Response, Service, Services};
use corfu::{Epoch, LogPosition, client};
use kernel::{Bytes, Decode, Encode, Rng};
use sim::cost::{Class, Load, Pace, Window};
use std::time::Duration;

const WINDOW: Window = Window { warm_up: Duration::from_millis(2), measured: Duration::from_millis(2) };

fn entry() -> Bytes {
    Bytes::from(vec![b'x'; 64])
}

// A sequencer that is bound by anything but its card would make the baseline look worse than the paper's.
#[test]
fn corfu_stops_at_its_sequencers_card() {
    let profile = Profile::d430();
    let mut running = Corfu { chains: 4, clients: 64 }.start(&profile, 1);
    let (clients, pace) = (running.clients.clone(), Pace::Closed { outstanding: 28 });
    let measured = running.testbed.run(&clients, pace, &mut Appends { body: entry() }, WINDOW);
    let token = client::Token { id: 1, epoch: Epoch(1), position: LogPosition(1) };
    let bytes = corfu::Message::from(token).encoded().len() as u64 + profile.network.overhead_bytes;
    let expected = profile.network.gigabits_per_second * 1e9 / 8.0 / bytes as f64;
    let off = measured.throughput() / expected - 1.0;
    assert!(off.abs() < 0.02, "{:.0}/s, by hand {expected:.0}/s", measured.throughput());
}

/// Keeps the positions that were answered.
struct Kept {
    load: Operations,
    positions: Vec<u64>,
}

impl Load<Services> for Kept {
    fn ask(&mut self, client: usize, rng: &mut Rng) -> (Bytes, Class) {
        self.load.ask(client, rng)
    }

    fn answered(&mut self, client: usize, class: Class, response: &Response, now: Duration) -> bool {
        let position = LogPosition::decoded(&response.0).expect("a relay answers with a position");
        self.positions.push(position.0);
        self.load.answered(client, class, response, now)
    }
}

// A relay that drops or repeats an entry measures less, or more, than the service does.
#[test]
fn corfu_mason_gives_every_position_once() {
    let deployment = Deployment { service: Service::Log { chains: 2 }, leader_machines: 1, clients: 8 };
    let mut running = deployment.start(&Profile::d430(), 1).expect("leaders");
    let clients = running.clients.clone();
    let mut load = Kept { load: Operations::over(1, 64), positions: Vec::new() };
    let measured = running.testbed.run(&clients, Pace::Closed { outstanding: 16 }, &mut load, WINDOW);
    assert!(measured.throughput() > 500_000.0, "{:.0}/s", measured.throughput());
    let mut positions = load.positions;
    positions.sort_unstable();
    assert!(positions.windows(2).all(|pair| pair[0] < pair[1]), "a position is answered twice");
    // What is under way at the end has no answer yet.
    let (count, last) = (positions.len() as u64, positions.last().copied().unwrap_or(0));
    assert!(last < count + 8 * 16, "{count} positions up to {last}");
}

// Shards that are fed by the proxies' machines, and not by their own, must execute everything, each on every server.
#[test]
fn a_thread_bounds_its_shard() {
    let profile = Profile::d430();
    let peak = |shards: u16| {
        let service = Service::Shards { shards };
        let deployment = Deployment { service, leader_machines: 4, clients: 32 };
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
    let handle = profile.handle(bench::Step::Deliver);
    assert!(one < 1e9 / handle.item && one > 0.5e9 / handle.item, "{one:.0}/s of {handle:?}");
    let (two, servers) = peak(2);
    assert!(two > 1.5 * one && servers.len() == 6, "{one:.0}/s and {two:.0}/s");
}
