//! Hodsdon et al., *Mason*, sections 7.2 and 7.3: services over Mason, and what they are compared with.

use super::Figure;
use super::drawing::{Axis, Claim, Drawing, Kind, Panel, Point, Series, Unit};
use super::measure::Watch;
use crate::profile::Profile;
use crate::services::{Appends, Corfu, Deployment, Operations, Reads, Service};
use kernel::Bytes;
use sim::cost::{Measured, Pace, Window};
use std::time::Duration;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "mason-4",
        source: "Mason, Figure 4",
        title: "Appends to a log, and reads of it, by CORFU' and by Corfu-Mason",
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
/// One thread alone does a hundred operations a millisecond: more of them, or chance is seen.
const WINDOW_ALONE: Window =
    Window { warm_up: Duration::from_millis(5), measured: Duration::from_millis(20) };
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
enum Calls {
    Writes,
    Reads,
}

#[derive(Clone, Copy)]
struct Run {
    system: System,
    calls: Calls,
    outstanding: u32,
}

/// A system under growing loads: calls of each client's thread.
struct Curve<'a> {
    system: System,
    calls: Calls,
    loads: &'a [u32],
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
            let written = matches!(run.calls, Calls::Reads);
            let mut running = Corfu { chains, clients: CORFU_CLIENTS, written }.start(&profile, 1);
            let clients = running.clients.clone();
            let measured = match run.calls {
                Calls::Writes => {
                    let mut load = Appends { body: Bytes::from(vec![b'x'; ENTRY_BYTES]) };
                    running.testbed.run(&clients, pace, &mut load, WINDOW)
                }
                Calls::Reads => running.testbed.run(&clients, pace, &mut Reads, WINDOW),
            };
            let servers = measured.traffic.len() - clients.len();
            // The sequencer, one that waits, and the chains.
            Ok(given(&measured, &running.stations, 2 + 2 * chains, &profile, servers))
        }
        System::Mason { service, leader_machines } => {
            let clients = match service {
                Service::Alone => CLIENTS_PER_LEADERS / 2,
                Service::Log { .. } | Service::LogReads { .. } | Service::Shards { .. } => {
                    leader_machines * CLIENTS_PER_LEADERS
                }
            };
            let deployment = Deployment { service, leader_machines, clients };
            let mut running = deployment.start(&profile, 1).map_err(|error| error.to_string())?;
            let nodes = running.clients.clone();
            let spaces = match service {
                Service::Shards { shards } => shards,
                Service::Log { .. } | Service::LogReads { .. } | Service::Alone => 1,
            };
            let window = if service == Service::Alone { WINDOW_ALONE } else { WINDOW };
            let testbed = &mut running.testbed;
            let measured = match (service, run.calls) {
                (Service::LogReads { .. }, _) => testbed.run(&nodes, pace, &mut Reads, window),
                (_, Calls::Writes) => {
                    testbed.run(&nodes, pace, &mut Operations::over(spaces, ENTRY_BYTES), window)
                }
                (_, Calls::Reads) => testbed.run(&nodes, pace, &mut Operations::reads_over(spaces), window),
            };
            let servers = measured.traffic.len() - nodes.len();
            Ok(given(&measured, &running.stations, deployment.machines(), &profile, servers))
        }
    }
}

/// Each curve's points.
fn sweep(curves: &[Curve<'_>], watch: &Watch<'_>) -> Result<Vec<Vec<Given>>, String> {
    let of = |curve: &Curve<'_>| -> Vec<Run> {
        let Curve { system, calls, loads } = *curve;
        loads.iter().map(|&outstanding| Run { system, calls, outstanding }).collect()
    };
    let runs: Vec<Run> = curves.iter().flat_map(of).collect();
    let all: Result<Vec<Given>, String> = watch.each(&runs, run).into_iter().collect();
    let mut all = all?.into_iter();
    Ok(curves.iter().map(|curve| all.by_ref().take(curve.loads.len()).collect()).collect())
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

/// Median latency at the last load that still raised throughput by a twentieth, in microseconds.
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

const CHAINS: [usize; 3] = [1, 2, 4];

fn shards_of(name: &str, count: usize) -> String {
    format!("{name}, {count} shard{}", if count == 1 { "" } else { "s" })
}

fn over_chains(rows: &[Vec<Given>], name: &str, first_colour: usize) -> Vec<Series> {
    let named = rows.iter().zip(CHAINS).enumerate();
    named
        .map(|(at, (given, chains))| Series::ours(shards_of(name, chains), first_colour + at, points(given)))
        .collect()
}

fn logs(watch: &Watch<'_>) -> Result<Drawing, String> {
    let mason = |service, chains| System::Mason { service, leader_machines: LEADERS_PER_CHAIN * chains };
    let mut curves = Vec::new();
    curves.extend(CHAINS.map(|chains| Curve {
        system: System::Corfu { chains },
        calls: Calls::Writes,
        loads: &[1, 3, 7, 14, 28],
    }));
    curves.extend(CHAINS.map(|chains| Curve {
        system: mason(Service::Log { chains }, chains),
        calls: Calls::Writes,
        loads: &[2, 6, 16, 48, 128],
    }));
    curves.extend(CHAINS.map(|chains| Curve {
        system: System::Corfu { chains },
        calls: Calls::Reads,
        loads: &[1, 2, 4, 8],
    }));
    curves.extend(CHAINS.map(|chains| Curve {
        system: mason(Service::LogReads { chains }, chains),
        calls: Calls::Reads,
        loads: &[1, 2, 4, 8],
    }));
    let rows = sweep(&curves, watch)?;
    let by_system: Vec<&[Vec<Given>]> = rows.chunks(CHAINS.len()).collect();
    let [prime, over, prime_reads, reads] = by_system[..] else {
        return Err("a curve has no points".to_owned());
    };
    let mut left = over_chains(prime, "CORFU'", 0);
    left.push(Series::paper("the paper, most", 6, &[(14.1e6, 70.0)]));
    let mut middle = over_chains(over, "Corfu-Mason", 0);
    middle.push(Series::paper("the paper, 1 and 4 shards", 6, &[(7.3e6, 200.0), (29.1e6, 200.0)]));
    let right = [over_chains(prime_reads, "CORFU'", 0), over_chains(reads, "Corfu-Mason", 3)].concat();
    let mut claims = append_claims(prime, over);
    claims.extend(read_claims(prime_reads, reads));
    let title = "Entries of 64 bytes: CORFU' stops at its sequencer, Corfu-Mason goes on".into();
    let panels = vec![
        panel("(a) appends, CORFU'", left),
        panel("(a) appends, Corfu-Mason, 18 proxy machines a shard", middle),
        panel("(b) reads", right),
    ];
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims })
}

fn append_claims(prime: &[Vec<Given>], over: &[Vec<Given>]) -> Vec<Claim> {
    let (one, two, four) = (peak(&prime[0]), peak(&prime[1]), peak(&prime[2]));
    let (low, high) = (peak(&over[0]), peak(&over[2]));
    let slower = latency_at_peak(&over[2]) / latency_at_peak(&prime[1]);
    vec![
        Claim::rate("CORFU', the most", 14.1e6, four.max(two), 0.1)
            .of(Kind::Fit)
            .because("the sequencer's card; tokens are as long here as the paper's rate says"),
        Claim::shape("CORFU', 2 shards over 1", two / one, two > 1.7 * one)
            .because("\"roughly doubles from one to two Corfu shards\""),
        Claim::shape("CORFU', 4 shards over 2", four / two, four < 1.1 * two)
            .because("\"before the sequencer saturates\""),
        Claim::rate("Corfu-Mason, 1 shard", 7.3e6, low, 0.1).of(Kind::Fit),
        Claim::rate("Corfu-Mason, 4 shards", 29.1e6, high, 0.1),
        Claim::ratio("Corfu-Mason, 4 shards over 1", 3.98, high / low, 0.1),
        Claim::ratio("Corfu-Mason over CORFU', the most of each", 29.1 / 14.1, high / four.max(two), 0.15),
        Claim::ratio("latency of it, 4 shards, over CORFU', 2", 200.0 / 70.0, slower, 0.25)
            .because("at the most; bursts of many messages go round, and leave when they end"),
    ]
}

fn read_claims(prime: &[Vec<Given>], over: &[Vec<Given>]) -> Vec<Claim> {
    let (few, many) = (peak(&prime[2]) / peak(&prime[0]), peak(&over[2]) / peak(&over[0]));
    let (direct, by_proxy) = (latency_at_peak(&prime[2]), latency_at_peak(&over[2]));
    vec![
        Claim::shape("reads, CORFU', 4 shards over 1", few, few > 3.6)
            .because("\"reads scale the same in both services\""),
        Claim::shape("reads, Corfu-Mason, 4 shards over 1", many, (many / few - 1.0).abs() < 0.1),
        Claim::shape(
            "reads, Corfu-Mason over CORFU', 4 shards",
            peak(&over[2]) / peak(&prime[2]),
            (peak(&over[2]) / peak(&prime[2]) - 1.0).abs() < 0.1,
        )
        .because("the tails' cards, either way"),
        Claim::plain("reads, CORFU', median us", 32.0, direct, 0.25)
            .because("clients' own time costs nothing here"),
        Claim::plain("reads, Corfu-Mason, median us", 97.0, by_proxy, 0.25).because("the same"),
        Claim::ratio("latency of reads, Corfu-Mason over CORFU'", 97.0 / 32.0, by_proxy / direct, 0.25),
    ]
}

const SHARDS: [u16; 4] = [1, 2, 4, 8];

fn shards(watch: &Watch<'_>) -> Result<Drawing, String> {
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for calls in [Calls::Writes, Calls::Reads] {
        let system = System::Mason { service: Service::Alone, leader_machines: 1 };
        curves.push(Curve { system, calls, loads: &[1, 2, 4, 8] });
        curves.extend(SHARDS.map(|shards| {
            let leader_machines = LEADERS_PER_SHARD * usize::from(shards);
            let system = System::Mason { service: Service::Shards { shards }, leader_machines };
            Curve { system, calls, loads: &[2, 6, 16, 48] }
        }));
    }
    let rows = sweep(&curves, watch)?;
    let (sets, gets) = rows.split_at(rows.len() / 2);
    let mut claims = shard_claims("setData", sets, [150e3, 1.29e6, 7.1e6]);
    claims.extend(shard_claims("getData", gets, [150e3, 1.1e6, 6e6]));
    let series = |rows: &[Vec<Given>], paper: &[(f64, f64)]| {
        let mut series = vec![Series::ours("one group alone (RSMKeeper)", 0, points(&rows[0]))];
        series.extend(rows[1..].iter().zip(SHARDS).enumerate().map(|(at, (given, shards))| {
            Series::ours(shards_of("over Mason", usize::from(shards)), at + 1, points(given))
        }));
        series.push(Series::paper("the paper", 6, paper));
        series
    };
    let title = "Operations on 64 bytes, ordered and executed by shards of one thread".into();
    let panels = vec![
        panel("(a) setData", series(sets, &[(150e3, 211.0), (1.29e6, 192.0), (7.1e6, 276.0)])),
        panel("(b) getData", series(gets, &[(150e3, 209.0), (1.1e6, 224.0), (6e6, 327.0)])),
    ];
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims })
}

/// `paper`: one group alone, one shard, eight shards.
fn shard_claims(name: &str, rows: &[Vec<Given>], paper: [f64; 3]) -> Vec<Claim> {
    let sharded = &rows[1..];
    let (alone, one, eight) = (peak(&rows[0]), peak(&sharded[0]), peak(&sharded[SHARDS.len() - 1]));
    let grows = sharded.windows(2).all(|pair| peak(&pair[1]) > 1.4 * peak(&pair[0]));
    let [papers_alone, papers_one, papers_eight] = paper;
    vec![
        Claim::rate(format!("{name}, one group alone"), papers_alone, alone, 0.2)
            .because("one operation an entry, at the profile's cost of one of eight in a batch"),
        Claim::rate(format!("{name}, over Mason, 1 shard"), papers_one, one, 0.2)
            .of(Kind::Fit)
            .because("the thread's time for an operation is the profile's"),
        Claim::ratio(
            format!("{name}, 1 shard over one group alone"),
            papers_one / papers_alone,
            one / alone,
            0.25,
        )
        .because("as the group alone"),
        Claim::rate(format!("{name}, over Mason, 8 shards"), papers_eight, eight, 0.2)
            .because("all shards' threads are busy; what the paper's lose is not said"),
        Claim::ratio(format!("{name}, 8 shards over 1"), papers_eight / papers_one, eight / one, 0.25)
            .because("the same"),
        Claim::shape(format!("{name}, each doubling raises it"), eight / one, grows),
    ]
}
