//! What a simulation gives as a peak is what its costs add up to.

use bench::Profile;
use bench::multipaxos::{AcceptorLayout, Batching, Clients, MachineLayout, Model, StoreDeployment, Workload};
use paxos::Level;
use sim::cost::Window;
use std::time::Duration;

const WINDOW: Window = Window { warm_up: Duration::from_millis(60), measured: Duration::from_millis(200) };
const BAND: f64 = 0.01;

fn compartmentalized(proxy_leaders: usize, acceptors: AcceptorLayout, replicas: usize) -> StoreDeployment {
    let shape = MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas };
    StoreDeployment { shape, clients: Clients::Gather, batching: Batching::NONE }
}

// A simulator that charges a step twice, or never, would scale beautifully and wrongly.
#[test]
fn proxy_leaders_add_up_until_the_leader_has_no_time_left() {
    let workload = Workload::writes(16);
    let mut profile = Profile::m5_xlarge();
    // Replicas that have time to spare.
    profile.set(bench::PricedStep::Chosen, bench::Handle { message: 1_000.0, item: 0.0 });
    let mut bottlenecks = Vec::new();
    for proxy_leaders in [1, 2, 3, 8] {
        let deployment = compartmentalized(proxy_leaders, AcceptorLayout::Grid { rows: 2, columns: 2 }, 4);
        let model = Model::of(&deployment, &profile, &workload);
        let measured = deployment.measure(&profile, &workload, 300, WINDOW).expect("a leader");
        let (simulated, expected) = (measured.throughput(), model.capacity());
        let off = simulated / expected - 1.0;
        assert!(off.abs() < BAND, "{proxy_leaders} proxy leaders: {simulated:.0}/s, by hand {expected:.0}/s");
        bottlenecks.push(model.bottleneck().station);
    }
    assert_eq!(bottlenecks, ["proxy leader", "proxy leader", "proxy leader", "leader"]);
}

// Reads are what replicas are added for: n replicas of alpha commands a second each carry n alpha / (n fw + fr) (the paper's
// section 8.5).
#[test]
fn reads_and_writes_share_replicas_as_the_paper_says() {
    let mut profile = Profile::m5_xlarge();
    // One alpha for both: no answer costs anything, and a read costs what a write does.
    (profile.driver.send, profile.driver.send_byte, profile.driver.receive_byte) = (0.0, 0.0, 0.0);
    let alike = bench::Handle { message: 8_500.0, item: 0.0 };
    profile.set(bench::PricedStep::Chosen, alike);
    profile.set(bench::PricedStep::Read, alike);
    let alpha = 1e9 / (8_500.0 + profile.driver.receive);
    for (replicas, reads) in [(2, 0.0), (2, 0.6), (4, 0.9), (6, 0.9), (6, 1.0)] {
        let workload = Workload::writes(16).with_reads(reads, Level::Linearizable);
        let deployment = compartmentalized(12, AcceptorLayout::Grid { rows: 4, columns: 4 }, replicas);
        let n = replicas as f64;
        let expected = n * alpha / (n * (1.0 - reads) + reads);
        let measured = deployment.measure(&profile, &workload, 500, WINDOW).expect("a leader");
        let off = measured.throughput() / expected - 1.0;
        let what = format!("{replicas} replicas, {reads} reads");
        assert!(off.abs() < BAND, "{what}: {:.0}/s, by hand {expected:.0}/s", measured.throughput());
    }
}

// A run that cannot be repeated cannot be discussed.
#[test]
fn the_same_seed_gives_the_same_run() {
    let deployment = compartmentalized(2, AcceptorLayout::Majority(3), 2);
    let run = || {
        let workload = Workload::writes(16);
        let profile = Profile::m5_xlarge();
        let measured = deployment.measure(&profile, &workload, 50, WINDOW).expect("a leader");
        (measured.hash, measured.events, measured.classes[0].operations)
    };
    assert_eq!(run(), run());
}
