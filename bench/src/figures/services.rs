//! Hodsdon et al., *Mason*, sections 7.2 and 7.3: services over Mason, and what they are compared with.

use super::Figure;
use super::breakdown::{self, Met, Way};
use super::drawing::{AcceptedRange, Axis, ClaimKind, Drawing, Panel, PaperClaim, Point, Series, Unit};
use super::measure::RunWatch;
use crate::profile::Profile;
use crate::services::{Appends, CorfuPrimeLog, Operations, OrderedService, RandomReads, ServiceDeployment};
use kernel::Bytes;
use sim::cost::{Measured, Pace, Window};
use std::time::Duration;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "mason-4",
        source: "Mason, Figure 4",
        title: "Appends to a log, and reads of it, by CORFU' and by Corfu-Mason",
        remarks: include_str!("page/mason-4.txt"),
        draw: logs,
    },
    Figure {
        name: "mason-5",
        source: "Mason, Figure 5",
        title: "Operations executed by shards, and by one replicated thread",
        remarks: include_str!("page/mason-5.txt"),
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
/// Clients' threads for each leading thread, of which a machine has eight.
const CLIENTS_PER_LEADER: u32 = 2;
const LEADERS_PER_MACHINE: usize = 8;
const ENTRY_BYTES: usize = 64;

#[derive(Clone, Copy)]
enum System {
    Corfu { chains: usize },
    Mason { service: OrderedService, leader_machines: usize },
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
    in_flight: u32,
}

/// A system under growing loads: calls in flight for each leading thread, and of CORFU' for each client's.
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
    met: Met,
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
        met: Met::of(measured, stations),
    }
}

fn run(run: &Run) -> Result<Given, String> {
    let profile = Profile::d430();
    match run.system {
        System::Corfu { chains } => {
            let written = matches!(run.calls, Calls::Reads);
            let mut running = CorfuPrimeLog { chains, clients: CORFU_CLIENTS, written }.start(&profile, 1);
            let (clients, pace) = (running.clients.clone(), Pace::Closed { outstanding: run.in_flight });
            let measured = match run.calls {
                Calls::Writes => {
                    let mut load = Appends { body: Bytes::from(vec![b'x'; ENTRY_BYTES]) };
                    running.testbed.run(&clients, pace, &mut load, WINDOW)
                }
                Calls::Reads => running.testbed.run(&clients, pace, &mut RandomReads, WINDOW),
            };
            let servers = measured.traffic.len() - clients.len();
            // The sequencer, one that waits, and the chains.
            Ok(given(&measured, &running.stations, 2 + 2 * chains, &profile, servers))
        }
        System::Mason { service, leader_machines } => {
            let leaders =
                if service == OrderedService::Alone { 1 } else { leader_machines * LEADERS_PER_MACHINE };
            let clients = leaders * CLIENTS_PER_LEADER as usize;
            let pace = Pace::Closed { outstanding: run.in_flight / CLIENTS_PER_LEADER };
            let deployment = ServiceDeployment { service, leader_machines, clients };
            let mut running = deployment.start(&profile, 1).map_err(|error| error.to_string())?;
            let nodes = running.clients.clone();
            let spaces = match service {
                OrderedService::Shards { shards } => shards,
                OrderedService::Log { .. } | OrderedService::LogReads { .. } | OrderedService::Alone => 1,
            };
            let window = if service == OrderedService::Alone { WINDOW_ALONE } else { WINDOW };
            let testbed = &mut running.testbed;
            let measured = match (service, run.calls) {
                (OrderedService::LogReads { .. }, _) => testbed.run(&nodes, pace, &mut RandomReads, window),
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
fn sweep(curves: &[Curve<'_>], watch: &RunWatch<'_>) -> Result<Vec<Vec<Given>>, String> {
    let of = |curve: &Curve<'_>| -> Vec<Run> {
        let Curve { system, calls, loads } = *curve;
        loads.iter().map(|&in_flight| Run { system, calls, in_flight }).collect()
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

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
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
/// Calls in flight of each of CORFU's 64 clients. The paper's most, 14.1 million a second within 70 us, are 990 in all.
const CORFU_LOADS: [u32; 5] = [1, 2, 4, 8, 15];
/// The same of its readers: 29.2 million a second within 32 us are 930.
const CORFU_READS: [u32; 4] = [2, 4, 8, 15];
/// For each leading thread. The paper's 29.1 million a second within 200 us, over 192 of them, are 30.
const LOG_LOADS: [u32; 5] = [4, 8, 16, 30, 60];
/// Which of these loads is the paper's.
const LOG_LOAD: usize = 3;
/// The same of readers: 29.2 million a second within 97 us are 15.
const LOG_READS: [u32; 4] = [2, 4, 8, 16];
/// From a client to its proxy's leader, which has the batch numbered and replicated, writes both servers of a chain, and answers.
const APPENDS_WAY: Way = Way {
    trips: 10,
    stations: &[("proxy leader", 5), ("sequencer", 1), ("proxy follower", 1), ("storage server", 2)],
};

fn shards_of(name: &str, count: usize) -> String {
    format!("{name}, {count} shard{}", if count == 1 { "" } else { "s" })
}

fn over_chains(rows: &[Vec<Given>], name: &str, first_colour: usize) -> Vec<Series> {
    let named = rows.iter().zip(CHAINS).enumerate();
    named
        .map(|(at, (given, chains))| Series::ours(shards_of(name, chains), first_colour + at, points(given)))
        .collect()
}

fn logs(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let mason = |service, chains| System::Mason { service, leader_machines: LEADERS_PER_CHAIN * chains };
    let mut curves = Vec::new();
    curves.extend(CHAINS.map(|chains| Curve {
        system: System::Corfu { chains },
        calls: Calls::Writes,
        loads: &CORFU_LOADS,
    }));
    curves.extend(CHAINS.map(|chains| Curve {
        system: mason(OrderedService::Log { chains }, chains),
        calls: Calls::Writes,
        loads: &LOG_LOADS,
    }));
    curves.extend(CHAINS.map(|chains| Curve {
        system: System::Corfu { chains },
        calls: Calls::Reads,
        loads: &CORFU_READS,
    }));
    curves.extend(CHAINS.map(|chains| Curve {
        system: mason(OrderedService::LogReads { chains }, chains),
        calls: Calls::Reads,
        loads: &LOG_READS,
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
    let table = breakdown::table(
        "Where an append's time goes in Corfu-Mason, 4 shards",
        &APPENDS_WAY,
        "the rest: waiting for a slot among the batches in flight, and cards",
        &Profile::d430(),
        &[("4 in flight", &over[2][0].met), ("30, as in the paper", &over[2][LOG_LOAD].met)],
    );
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims, tables: vec![table] })
}

fn append_claims(prime: &[Vec<Given>], over: &[Vec<Given>]) -> Vec<PaperClaim> {
    let (one, two, four) = (peak(&prime[0]), peak(&prime[1]), peak(&prime[2]));
    let at = |given: &[Given], load: usize| (given[load].throughput, micros(given[load].median));
    let (low, high) = (&over[0][LOG_LOAD], &over[2][LOG_LOAD]);
    let (most, prime_median) = at(&prime[1], CORFU_LOADS.len() - 1);
    let median = micros(high.median);
    vec![
        PaperClaim::rate("CORFU', the most", 14.1e6, four.max(two))
            .of(ClaimKind::Fit)
            .because("the sequencer's card; tokens are as long here as the paper's rate says"),
        PaperClaim::micros("the same with 2 shards, median latency", 70.0, prime_median),
        PaperClaim::shape("CORFU', 2 shards over 1", two / one, AcceptedRange::Between(1.7, 2.1))
            .because("\"roughly doubles from one to two Corfu shards\""),
        PaperClaim::shape("CORFU', 4 shards over 2", four / two, AcceptedRange::Between(0.9, 1.1))
            .because("\"before the sequencer saturates\""),
        PaperClaim::rate("Corfu-Mason, 1 shard", 7.3e6, low.throughput),
        PaperClaim::rate("Corfu-Mason, 4 shards", 29.1e6, high.throughput),
        PaperClaim::ratio("Corfu-Mason, 4 shards over 1", 3.98, high.throughput / low.throughput),
        PaperClaim::ratio("Corfu-Mason, 4 shards, over CORFU', 2", 29.1 / 14.1, high.throughput / most),
        PaperClaim::micros("Corfu-Mason, 4 shards, median latency", 200.0, median),
        PaperClaim::micros("the same, 99 % within", 297.0, micros(high.tail)),
        PaperClaim::ratio("its median over that of CORFU', 2", 200.0 / 70.0, median / prime_median),
        PaperClaim::shape(
            "Corfu-Mason, 4 shards, the most at any load over 29.1M/s",
            peak(&over[2]) / 29.1e6,
            AcceptedRange::Between(0.9, 1.1),
        )
        .because("with twice the paper's calls in flight"),
    ]
}

fn read_claims(prime: &[Vec<Given>], over: &[Vec<Given>]) -> Vec<PaperClaim> {
    let (few, many) = (peak(&prime[2]) / peak(&prime[0]), peak(&over[2]) / peak(&over[0]));
    let last = |given: &[Given]| given.last().map_or(0.0, |given| micros(given.median));
    let (direct, by_proxy) = (last(&prime[2]), last(&over[2]));
    let alike = AcceptedRange::Between(0.9, 1.1);
    vec![
        PaperClaim::shape("reads, CORFU', 4 shards over 1", few, AcceptedRange::Between(3.6, 4.1))
            .because("\"reads scale the same in both services\""),
        PaperClaim::shape("the same of Corfu-Mason, over that of CORFU'", many / few, alike),
        PaperClaim::shape(
            "reads, Corfu-Mason over CORFU', 4 shards",
            peak(&over[2]) / peak(&prime[2]),
            alike,
        )
        .because("the tails' cards, either way"),
        PaperClaim::micros("reads, CORFU', median", 32.0, direct),
        PaperClaim::micros("reads, Corfu-Mason, median", 97.0, by_proxy),
        PaperClaim::ratio("its median over that of CORFU'", 97.0 / 32.0, by_proxy / direct),
    ]
}

const SHARDS: [u16; 4] = [1, 2, 4, 8];
/// For each leading thread. The paper's 1.29 million a second within 192 us, over 16 of them, are 15, its 7.1 million within 276 us over
/// 128 are 15, and getData's the same.
const SHARD_LOADS: [u32; 4] = [4, 8, 16, 32];
const SHARD_LOAD: usize = 2;
/// Of the one thread: 150,000 a second within 211 us are 32.
const ALONE_LOADS: [u32; 4] = [8, 16, 32, 64];
/// From a client to its proxy's leader, which has the batch numbered and replicated; every member's relay feeds a server of the shard, and
/// one of these answers.
const SHARD_WAY: Way = Way {
    trips: 7,
    stations: &[("proxy leader", 3), ("sequencer", 1), ("proxy follower", 1), ("shard server", 1)],
};
const ALONE_WAY: Way = Way { trips: 4, stations: &[("proxy leader", 2), ("proxy follower", 1)] };

fn shards(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for calls in [Calls::Writes, Calls::Reads] {
        let system = System::Mason { service: OrderedService::Alone, leader_machines: 1 };
        curves.push(Curve { system, calls, loads: &ALONE_LOADS });
        curves.extend(SHARDS.map(|shards| {
            let leader_machines = LEADERS_PER_SHARD * usize::from(shards);
            let system = System::Mason { service: OrderedService::Shards { shards }, leader_machines };
            Curve { system, calls, loads: &SHARD_LOADS }
        }));
    }
    let rows = sweep(&curves, watch)?;
    let (sets, gets) = rows.split_at(rows.len() / 2);
    let papers = [Papers(150e3, 211.0, 355.0), Papers(1.29e6, 192.0, 268.0), Papers(7.1e6, 276.0, 518.0)];
    let mut claims = shard_claims("setData", sets, papers, ClaimKind::Fit);
    let papers = [Papers(150e3, 209.0, 352.0), Papers(1.1e6, 224.0, 304.0), Papers(6e6, 327.0, 699.0)];
    claims.extend(shard_claims("getData", gets, papers, ClaimKind::Prediction));
    let series = |rows: &[Vec<Given>], paper: &[(f64, f64)]| {
        let mut series = vec![Series::ours("one group alone (RSMKeeper)", 0, points(&rows[0]))];
        series.extend(rows[1..].iter().zip(SHARDS).enumerate().map(|(at, (given, shards))| {
            Series::ours(shards_of("over Mason", usize::from(shards)), at + 1, points(given))
        }));
        series.push(Series::paper("the paper", 6, paper));
        series
    };
    let spent = |title: &str, way: &Way, rest: &str, given: &[Given]| {
        let runs = [("fewest in flight", &given[0].met), ("as many as in the paper", &given[SHARD_LOAD].met)];
        breakdown::table(title, way, rest, &Profile::d430(), &runs)
    };
    let (rest, alone) = ("the rest: waiting for a slot among the batches in flight, and cards", "the rest");
    let tables = vec![
        spent("Where a setData's time goes in one group alone", &ALONE_WAY, alone, &sets[0]),
        spent("Where it goes over Mason, 1 shard", &SHARD_WAY, rest, &sets[1]),
        spent("Where it goes over Mason, 8 shards", &SHARD_WAY, rest, &sets[SHARDS.len()]),
    ];
    let title = "Operations on 64 bytes, ordered and executed by shards of one thread".into();
    let panels = vec![
        panel("(a) setData", series(sets, &[(150e3, 211.0), (1.29e6, 192.0), (7.1e6, 276.0)])),
        panel("(b) getData", series(gets, &[(150e3, 209.0), (1.1e6, 224.0), (6e6, 327.0)])),
    ];
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims, tables })
}

/// What the paper says of a point: operations a second, median and 99th percentile in microseconds.
#[derive(Clone, Copy)]
struct Papers(f64, f64, f64);

/// `papers`: one group alone, one shard, eight shards; of what `kind` the rates of the first two are.
fn shard_claims(name: &str, rows: &[Vec<Given>], papers: [Papers; 3], kind: ClaimKind) -> Vec<PaperClaim> {
    let at = |row: usize| &rows[row][SHARD_LOAD];
    let rate = |row: usize| at(row).throughput;
    let (one, eight) = (1, SHARDS.len());
    let of_point = |what: &str, row: usize, Papers(per_second, median, tail): Papers, kind: ClaimKind| {
        vec![
            PaperClaim::rate(format!("{name}, {what}"), per_second, rate(row)).of(kind),
            PaperClaim::micros(format!("{name}, {what}, median latency"), median, micros(at(row).median))
                .of(kind),
            PaperClaim::micros(format!("{name}, {what}, 99 % within"), tail, micros(at(row).tail)),
        ]
    };
    let least = (one..eight).map(|row| rate(row + 1) / rate(row)).fold(f64::MAX, f64::min);
    let [papers_alone, papers_one, papers_eight] = papers;
    let mut claims = of_point("one group alone", 0, papers_alone, kind);
    claims.extend(of_point("over Mason, 1 shard", one, papers_one, kind));
    claims.extend(of_point("over Mason, 8 shards", eight, papers_eight, ClaimKind::Prediction));
    claims.extend([
        PaperClaim::ratio(
            format!("{name}, 1 shard over one group alone"),
            papers_one.0 / papers_alone.0,
            rate(one) / rate(0),
        )
        .of(kind),
        PaperClaim::ratio(
            format!("{name}, 8 shards over 1"),
            papers_eight.0 / papers_one.0,
            rate(eight) / rate(one),
        ),
        PaperClaim::shape(
            format!("{name}, what a doubling gives at least"),
            least,
            AcceptedRange::AtLeast(1.4),
        ),
    ]);
    claims
}
