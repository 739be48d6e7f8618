//! Hodsdon et al., *Mason*, sections 7.2 and 7.3: services over Mason, and what they are compared with.

use super::Figure;
use super::drawing::{Axis, Claim, Drawing, Panel, Point, Series, Unit};
use super::measure::Watch;
use crate::profile::Profile;
use crate::services::{Appends, Corfu, Deployment, Operations, Service};
use kernel::Bytes;
use sim::cost::{Measured, Pace, Window};
use std::time::Duration;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "mason-4",
        source: "Mason, Figure 4",
        title: "Appends to a log by CORFU' and by Corfu-Mason",
        draw: logs,
    },
    Figure {
        name: "mason-5",
        source: "Mason, Figure 5",
        title: "Operations executed by shards, and by one replicated thread",
        draw: shards,
    },
];

const TESTBED: &str = "simulated d430 machines (costs from the paper's published rates), in memory, f = 1";
const WINDOW: Window = Window { warm_up: Duration::from_millis(3), measured: Duration::from_millis(2) };
/// "We use 6 (replicated) proxies for every Corfu shard."
const LEADERS_PER_CHAIN: usize = 6;
/// "2 proxies per shard".
const LEADERS_PER_SHARD: usize = 2;
/// Clients' threads for each machine of leaders: two a leader.
const CLIENTS_PER_LEADERS: usize = 16;
const ENTRY_BYTES: usize = 64;

#[derive(Clone, Copy)]
enum System {
    Corfu { chains: usize },
    Mason { service: Service, leader_machines: usize },
}

#[derive(Clone, Copy)]
struct Run {
    system: System,
    outstanding: u32,
}

struct Given {
    throughput: f64,
    median: Duration,
    tail: Duration,
    machines: usize,
    busiest: (&'static str, f64),
    /// Of a card, the share in use: the busiest one's.
    card: f64,
}

/// CORFU's clients, enough that none of them is what bounds it.
const CORFU_CLIENTS: usize = 64;

fn given(
    measured: &Measured,
    stations: &[&'static str],
    machines: usize,
    profile: &Profile,
    servers: usize,
) -> Given {
    let busy = stations.iter().copied().zip(measured.busy.iter().copied());
    let busiest = busy.filter(|(station, _)| *station != "clients").max_by(|a, b| a.1.total_cmp(&b.1));
    let most = measured.traffic.iter().take(servers).flat_map(|&(out, into)| [out, into]).fold(0.0, f64::max);
    Given {
        throughput: measured.throughput(),
        median: measured.latency(0.5),
        tail: measured.latency(0.99),
        machines,
        busiest: busiest.unwrap_or(("nobody", 0.0)),
        card: most / (profile.network.gigabits_per_second * 1e9 / 8.0),
    }
}

fn run(run: &Run) -> Result<Given, String> {
    let profile = Profile::d430();
    let pace = Pace::Closed { outstanding: run.outstanding };
    match run.system {
        System::Corfu { chains } => {
            let mut running = Corfu { chains, clients: CORFU_CLIENTS }.start(&profile, 1);
            let clients = running.clients.clone();
            let mut load = Appends { body: Bytes::from(vec![b'x'; ENTRY_BYTES]) };
            let measured = running.testbed.run(&clients, pace, &mut load, WINDOW);
            let servers = measured.traffic.len() - clients.len();
            // The sequencer, one that waits, and the chains.
            Ok(given(&measured, &running.stations, 2 + 2 * chains, &profile, servers))
        }
        System::Mason { service, leader_machines } => {
            let clients = match service {
                Service::Alone => CLIENTS_PER_LEADERS / 2,
                Service::Log { .. } | Service::Shards { .. } => leader_machines * CLIENTS_PER_LEADERS,
            };
            let deployment = Deployment { service, leader_machines, clients };
            let mut running = deployment.start(&profile, 1).map_err(|error| error.to_string())?;
            let nodes = running.clients.clone();
            let mut load = match service {
                Service::Log { .. } => Operations::over(1, ENTRY_BYTES),
                Service::Shards { shards } => Operations::over(shards, ENTRY_BYTES),
                Service::Alone => Operations::over(1, ENTRY_BYTES),
            };
            let measured = running.testbed.run(&nodes, pace, &mut load, WINDOW);
            let servers = measured.traffic.len() - nodes.len();
            Ok(given(&measured, &running.stations, deployment.machines(), &profile, servers))
        }
    }
}

/// Each system under each load; rows by system.
fn sweep(curves: &[(System, &[u32])], watch: &Watch<'_>) -> Result<Vec<Vec<Given>>, String> {
    let runs: Vec<Run> = curves
        .iter()
        .flat_map(|&(system, loads)| loads.iter().map(move |&outstanding| Run { system, outstanding }))
        .collect();
    let all: Result<Vec<Given>, String> = watch.each(&runs, run).into_iter().collect();
    let mut all = all?.into_iter();
    Ok(curves.iter().map(|(_, loads)| all.by_ref().take(loads.len()).collect()).collect())
}

fn points(given: &[Given]) -> Vec<Point> {
    let point = |given: &Given| Point {
        x: given.throughput,
        y: given.median.as_secs_f64() * 1e6,
        note: format!(
            "99 % within {:.0} us; {} machines; {} {:.0} % busy, the busiest card {:.0} %",
            given.tail.as_secs_f64() * 1e6,
            given.machines,
            given.busiest.0,
            given.busiest.1 * 100.0,
            given.card * 100.0
        ),
    };
    given.iter().map(point).collect()
}

fn peak(given: &[Given]) -> f64 {
    given.iter().map(|given| given.throughput).fold(0.0, f64::max)
}

/// Latency at the last load that still raised throughput by a twentieth, in microseconds.
fn latency_at_peak(given: &[Given]) -> f64 {
    let mut at = 0;
    while at + 1 < given.len() && given[at + 1].throughput > given[at].throughput * 1.05 {
        at += 1;
    }
    given.get(at).map_or(0.0, |given| given.median.as_secs_f64() * 1e6)
}

fn panel(title: &str, series: Vec<Series>) -> Panel {
    Panel {
        title: title.to_owned(),
        x: Axis::linear("operations a second", Unit::PerSecond),
        y: Axis::linear("median latency (us)", Unit::Micros),
        series,
        bars: Vec::new(),
    }
}

fn logs(watch: &Watch<'_>) -> Result<Drawing, String> {
    let chains = [1, 2, 4];
    let corfu: [u32; 5] = [1, 3, 7, 14, 28];
    let masons: [u32; 5] = [2, 6, 16, 48, 128];
    let mut curves: Vec<(System, &[u32])> =
        chains.iter().map(|&chains| (System::Corfu { chains }, &corfu[..])).collect();
    curves.extend(chains.iter().map(|&chains| {
        let leader_machines = LEADERS_PER_CHAIN * chains;
        (System::Mason { service: Service::Log { chains }, leader_machines }, &masons[..])
    }));
    let rows = sweep(&curves, watch)?;
    let (prime, over) = rows.split_at(chains.len());
    let series = |rows: &[Vec<Given>], name: &str| -> Vec<Series> {
        let named = rows.iter().zip(chains).enumerate();
        named
            .map(|(colour, (given, chains))| {
                let plural = if chains == 1 { "" } else { "s" };
                Series::ours(format!("{name}, {chains} shard{plural}"), colour, points(given))
            })
            .collect()
    };
    let mut left = series(prime, "CORFU'");
    left.push(Series::paper("the paper, most", 6, &[(14.1e6, 70.0)]));
    let mut right = series(over, "Corfu-Mason");
    right.push(Series::paper("the paper, 1 and 4 shards", 6, &[(7.3e6, 200.0), (29.1e6, 200.0)]));
    let (one, two, four) = (peak(&prime[0]), peak(&prime[1]), peak(&prime[2]));
    let (low, high) = (peak(&over[0]), peak(&over[2]));
    let claims = vec![
        Claim::rate("CORFU', the most", 14.1e6, four.max(two), 0.1)
            .because("the sequencer's card; tokens are as long here as the paper's rate says"),
        Claim::shape("CORFU', 2 shards over 1", two / one, two > 1.7 * one)
            .because("\"roughly doubles from one to two Corfu shards\""),
        Claim::shape("CORFU', 4 shards over 2", four / two, four < 1.1 * two)
            .because("\"before the sequencer saturates\""),
        Claim::rate("Corfu-Mason, 1 shard", 7.3e6, low, 0.1),
        Claim::rate("Corfu-Mason, 4 shards", 29.1e6, high, 0.1),
        Claim::ratio("Corfu-Mason, 4 shards over 1", 3.98, high / low, 0.1),
        Claim::ratio("Corfu-Mason over CORFU', the most of each", 29.1 / 14.1, high / four.max(two), 0.15),
        Claim::shape(
            "latency of Corfu-Mason, 4 shards, over CORFU', 2",
            latency_at_peak(&over[2]) / latency_at_peak(&prime[1]),
            latency_at_peak(&over[2]) > latency_at_peak(&prime[1]),
        )
        .because("200 us over 70 us in the paper: more trips, and batches"),
    ];
    let title = "Appends of 64 bytes: CORFU' stops at its sequencer, Corfu-Mason goes on".into();
    let panels = vec![panel("(a) CORFU'", left), panel("(b) Corfu-Mason, 18 proxy machines a shard", right)];
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims })
}

fn shards(watch: &Watch<'_>) -> Result<Drawing, String> {
    let counts: [u16; 4] = [1, 2, 4, 8];
    let alone: [u32; 4] = [1, 2, 4, 8];
    let loads: [u32; 4] = [2, 6, 16, 48];
    let mut curves: Vec<(System, &[u32])> =
        vec![(System::Mason { service: Service::Alone, leader_machines: 1 }, &alone[..])];
    curves.extend(counts.iter().map(|&shards| {
        let leader_machines = LEADERS_PER_SHARD * usize::from(shards);
        (System::Mason { service: Service::Shards { shards }, leader_machines }, &loads[..])
    }));
    let rows = sweep(&curves, watch)?;
    let (alone, sharded) = (&rows[0], &rows[1..]);
    let mut series = vec![Series::ours("one group alone (RSMKeeper)", 0, points(alone))];
    series.extend(sharded.iter().zip(counts).enumerate().map(|(index, (given, shards))| {
        let plural = if shards == 1 { "" } else { "s" };
        Series::ours(format!("over Mason, {shards} shard{plural}"), index + 1, points(given))
    }));
    series.push(Series::paper("the paper", 6, &[(150e3, 211.0), (1.29e6, 192.0), (7.1e6, 276.0)]));
    let (single, one, eight) = (peak(alone), peak(&sharded[0]), peak(&sharded[3]));
    let grows = sharded.windows(2).all(|pair| peak(&pair[1]) > 1.4 * peak(&pair[0]));
    let claims = vec![
        Claim::rate("one group alone", 150e3, single, 0.2),
        Claim::rate("over Mason, 1 shard", 1.29e6, one, 0.2),
        Claim::ratio("over Mason with 1 shard, over one group alone", 8.6, one / single, 0.25),
        Claim::rate("over Mason, 8 shards", 7.1e6, eight, 0.2),
        Claim::ratio("8 shards over 1", 7.1 / 1.29, eight / one, 0.25),
        Claim::shape("each doubling of shards and proxies raises it", eight / one, grows),
    ];
    let title = "Operations of 64 bytes, executed by shards of one thread".into();
    let panels = vec![panel("writes (the paper's setData)", series)];
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims })
}
