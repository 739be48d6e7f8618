//! Whittaker et al., *Scaling Replicated State Machines with Compartmentalization*, section 8.

use super::Figure;
use super::drawing::{
    AcceptedRange, Axis, ClaimKind, Drawing, LineStyle, Panel, PaperClaim, Point, Series, Unit,
};
use super::measure::{Given, Run, RunWatch, run_all};
use crate::multipaxos::{AcceptorLayout, Batching, Clients, MachineLayout, Model, StoreDeployment, Workload};
use crate::profile::Profile;
use paxos::Level;
use std::time::Duration;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "compartmentalization-28",
        source: "Compartmentalization, Figure 28",
        title: "MultiPaxos, compartmentalized and not",
        remarks: include_str!("page/compartmentalization-28.txt"),
        draw: latency_throughput,
    },
    Figure {
        name: "compartmentalization-29",
        source: "Compartmentalization, Figure 29",
        title: "Larger values",
        remarks: include_str!("page/compartmentalization-29.txt"),
        draw: larger_values,
    },
    Figure {
        name: "compartmentalization-31",
        source: "Compartmentalization, Figure 31",
        title: "One compartmentalization after the other",
        remarks: include_str!("page/compartmentalization-31.txt"),
        draw: ablation,
    },
    Figure {
        name: "compartmentalization-32",
        source: "Compartmentalization, Figure 32",
        title: "Linearizable reads by the number of replicas",
        remarks: include_str!("page/compartmentalization-32.txt"),
        draw: linearizable_reads,
    },
    Figure {
        name: "compartmentalization-33",
        source: "Compartmentalization, Figure 33",
        title: "The law of reads and writes, and the simulation on it",
        remarks: include_str!("page/compartmentalization-33.txt"),
        draw: analytical,
    },
    Figure {
        name: "compartmentalization-34",
        source: "Compartmentalization, Figure 34",
        title: "Eventual and sequential reads by the number of replicas",
        remarks: include_str!("page/compartmentalization-34.txt"),
        draw: weaker_reads,
    },
];

const GRID: AcceptorLayout = AcceptorLayout::Grid { rows: 2, columns: 2 };
const THROUGHPUT: Axis = Axis::linear("commands a second", Unit::PerSecond);
const MEDIAN: Axis = Axis::linear("median latency (ms)", Unit::Millis);
const TESTBED: &str =
    "simulated m5.xlarge machines (costs from the paper's published rates), in memory, f = 1";

fn compartmentalized(proxy_leaders: usize, acceptors: AcceptorLayout, replicas: usize) -> StoreDeployment {
    let shape = MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas };
    StoreDeployment { shape, clients: Clients::Gather, batching: Batching::NONE }
}

fn plain() -> StoreDeployment {
    let shape = MachineLayout::Colocated { hosts: 3, clients_everywhere: false };
    StoreDeployment { shape, clients: Clients::Gather, batching: Batching::NONE }
}

fn unreplicated() -> StoreDeployment {
    StoreDeployment { shape: MachineLayout::Unreplicated, clients: Clients::Gather, batching: Batching::NONE }
}

/// Three front machines gather and answer for the paper's two batchers and three unbatchers: ours do both.
fn in_batches(shape: MachineLayout, batchers: usize, commands: usize) -> StoreDeployment {
    StoreDeployment { shape, clients: Clients::Connect { batchers }, batching: Batching::of(commands) }
}

/// A curve from an idle deployment to one that has more than it can do.
fn curve(deployment: StoreDeployment, workload: Workload, clients: &[usize]) -> Vec<Run> {
    clients.iter().map(|&clients| Run::new(deployment, workload, clients)).collect()
}

/// Runs several curves at once.
fn curves(runs: Vec<Vec<Run>>, watch: &RunWatch<'_>) -> Result<Vec<Vec<Given>>, String> {
    let flat: Vec<Run> = runs.iter().flatten().cloned().collect();
    let mut given = run_all(&flat, &Profile::m5_xlarge(), watch)?.into_iter();
    Ok(runs.iter().map(|row| given.by_ref().take(row.len()).collect()).collect())
}

fn points(given: &[Given]) -> Vec<Point> {
    given.iter().map(Given::latency_point).collect()
}

/// The paper's peak, as a line up from the axis at that throughput.
fn peak(name: &str, colour: usize, at: f64, height: f64) -> Series {
    Series::paper(name, colour, &[(at, 0.0), (at, height)])
}

fn latency_throughput(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let workload = Workload::writes(16);
    let unbatched = [1, 4, 16, 32, 64, 100, 150, 200];
    let batched = [50, 200, 500, 1_000, 2_000, 4_000];
    let majority = AcceptorLayout::Majority(3);
    let fronts = MachineLayout::Compartmentalized { proxy_leaders: 3, acceptors: majority, replicas: 2 };
    let colocated = MachineLayout::Colocated { hosts: 3, clients_everywhere: false };
    let given = curves(
        vec![
            curve(plain(), workload, &unbatched[..6]),
            curve(compartmentalized(10, GRID, 4), workload, &unbatched),
            curve(unreplicated(), workload, &unbatched),
            curve(in_batches(colocated, 0, 100), workload, &batched),
            curve(in_batches(fronts, 5, 100), workload, &batched),
            curve(in_batches(MachineLayout::Unreplicated, 7, 100), workload, &batched),
            curve(
                in_batches(MachineLayout::Colocated { hosts: 3, clients_everywhere: true }, 0, 100),
                workload,
                &batched,
            ),
        ],
        watch,
    )?;
    let names = ["MultiPaxos", "Compartmentalized MultiPaxos", "Unreplicated", "MultiPaxos, clients spread"];
    let panel = |title: &str, given: &[Vec<Given>], paper: [f64; 3]| {
        let mut series: Vec<Series> = names
            .iter()
            .zip(given)
            .enumerate()
            .map(|(colour, (name, given))| Series::ours(*name, colour, points(given)))
            .collect();
        let height = series.iter().map(Series::highest).fold(0.0, f64::max) * 0.55;
        for (colour, peak_at) in paper.into_iter().enumerate() {
            let name = if colour == 0 { "the paper's peaks" } else { "" };
            series.push(peak(name, colour, peak_at, height));
        }
        Panel { title: title.to_owned(), x: THROUGHPUT, y: MEDIAN, series, bars: Vec::new() }
    };
    let papers = [[25_000.0, 150_000.0, 250_000.0], [200_000.0, 800_000.0, 1_000_000.0]];
    let panels = vec![
        panel("(a) without batching", &given[..3], papers[0]),
        panel("(b) in batches of 100", &given[3..], papers[1]),
    ];
    let best = |given: &[Given]| given.iter().map(|given| given.throughput).fold(0.0, f64::max);
    let ours: Vec<f64> = given.iter().map(|given| best(given)).collect();
    let claims = vec![
        PaperClaim::rate("MultiPaxos, no batches", papers[0][0], ours[0])
            .because("no input of the profile: the sum of the roles on one core"),
        PaperClaim::rate("compartmentalized, no batches", papers[0][1], ours[1]).of(ClaimKind::Fit),
        PaperClaim::rate("unreplicated, no batches", papers[0][2], ours[2]).of(ClaimKind::Fit),
        PaperClaim::ratio("compartmentalized over MultiPaxos", 6.0, ours[1] / ours[0]),
        PaperClaim::rate("MultiPaxos, batches", papers[1][0], ours[3])
            .because("clients at the leader's host, as in the paper; see docs/figures.md"),
        PaperClaim::rate("compartmentalized, batches", papers[1][1], ours[4]).of(ClaimKind::Fit),
        PaperClaim::rate("unreplicated, batches", papers[1][2], ours[5]).of(ClaimKind::Fit),
        PaperClaim::ratio("compartmentalized over MultiPaxos, batches", 4.0, ours[4] / ours[3])
            .because(format!("{:.1}x with clients at all three hosts", ours[4] / ours[6])),
    ];
    Ok(Drawing {
        title: "MultiPaxos, compartmentalized and not".into(),
        subtitle: TESTBED.into(),
        panels,
        claims,
        tables: Vec::new(),
    })
}

/// "Expectedly, throughput decreases", and the text has no numbers.
const FALLS: f64 = 0.999;

fn larger_values(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let clients = [1, 4, 16, 32, 64, 100, 150, 200];
    let sizes = [16, 100, 1_000];
    let kinds =
        [("Compartmentalized MultiPaxos", compartmentalized(10, GRID, 4)), ("Unreplicated", unreplicated())];
    let runs = kinds
        .iter()
        .flat_map(|(_, deployment)| {
            sizes.iter().map(|&bytes| curve(*deployment, Workload::writes(bytes), &clients))
        })
        .collect();
    let given = curves(runs, watch)?;
    let peaks: Vec<f64> =
        given.iter().map(|given| given.iter().map(|given| given.throughput).fold(0.0, f64::max)).collect();
    let panels = kinds
        .iter()
        .zip(given.chunks(sizes.len()))
        .map(|((name, _), given)| Panel {
            title: (*name).to_owned(),
            x: THROUGHPUT,
            y: MEDIAN,
            series: sizes
                .iter()
                .zip(given)
                .enumerate()
                .map(|(colour, (bytes, given))| Series::ours(format!("{bytes} bytes"), colour, points(given)))
                .collect(),
            bars: Vec::new(),
        })
        .collect();
    let falls = |name: &str, peaks: &[f64]| {
        let over = |large: usize, small: usize| peaks[large] / peaks[small];
        [("100 bytes over 16", over(1, 0)), ("1000 bytes over 100", over(2, 1))].map(|(what, ratio)| {
            PaperClaim::shape(format!("{name}: {what}"), ratio, AcceptedRange::AtMost(FALLS))
        })
    };
    let mut claims = falls("compartmentalized", &peaks[..3]).to_vec();
    claims.extend(falls("unreplicated", &peaks[3..]));
    Ok(Drawing {
        title: "Larger values".into(),
        subtitle: TESTBED.into(),
        panels,
        claims,
        tables: Vec::new(),
    })
}

/// A bar: its name, its deployment, the paper's height where the text gives one.
struct Bar {
    name: &'static str,
    run: Run,
    paper: Option<f64>,
}

fn bars(title: &str, bars: &[Bar], given: &[Given]) -> Panel {
    let ours = given.iter().enumerate().map(|(index, given)| Point {
        x: index as f64,
        y: given.throughput,
        note: given.note(),
    });
    let paper = bars.iter().enumerate().filter_map(|(index, bar)| Some((index as f64, bar.paper?)));
    Panel {
        title: title.to_owned(),
        x: Axis::linear("", Unit::Count),
        y: THROUGHPUT,
        series: vec![
            Series { name: "here".into(), line: LineStyle::Bars, colour: 0, points: ours.collect() },
            Series::paper("the paper", 1, &paper.collect::<Vec<_>>()),
        ],
        bars: bars.iter().map(|bar| bar.name.to_owned()).collect(),
    }
}

fn ablation(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let workload = Workload::writes(16);
    let majority = AcceptorLayout::Majority(3);
    let one = |name, deployment, paper| Bar { name, run: Run::new(deployment, workload, 250), paper };
    let unbatched = [
        one("Multi-\nPaxos", plain(), Some(25_000.0)),
        one("2 proxy\nleaders", compartmentalized(2, majority, 2), Some(70_000.0)),
        one("3", compartmentalized(3, majority, 2), None),
        one("4", compartmentalized(4, majority, 2), None),
        one("5", compartmentalized(5, majority, 2), None),
        one("7", compartmentalized(7, majority, 2), Some(135_000.0)),
        one("7, and\n3 replicas", compartmentalized(7, majority, 3), Some(135_000.0)),
        one("10", compartmentalized(10, majority, 3), Some(150_000.0)),
    ];
    let batched = |name, shape, batchers, commands, paper| {
        let run = Run::new(in_batches(shape, batchers, commands), workload, 4_000);
        Bar { name, run, paper }
    };
    let fronts = MachineLayout::Compartmentalized { proxy_leaders: 3, acceptors: majority, replicas: 2 };
    let in_batches = [
        batched(
            "Multi-\nPaxos",
            MachineLayout::Colocated { hosts: 3, clients_everywhere: false },
            0,
            100,
            Some(200_000.0),
        ),
        batched("3 fronts,\nby 10", fronts, 3, 10, Some(300_000.0)),
        batched("of 50", fronts, 3, 50, None),
        batched("of 100", fronts, 3, 100, Some(500_000.0)),
        batched("5 fronts", fronts, 5, 100, Some(800_000.0)),
    ];
    let runs: Vec<Run> = unbatched.iter().chain(&in_batches).map(|bar| bar.run.clone()).collect();
    let given = run_all(&runs, &Profile::m5_xlarge(), watch)?;
    let (left, right) = given.split_at(unbatched.len());
    let panels =
        vec![bars("(a) without batching", &unbatched, left), bars("(b) in batches", &in_batches, right)];
    let rate = |index: usize| given[index].throughput;
    let claims = vec![
        PaperClaim::rate("decoupled, 2 proxy leaders", 70_000.0, rate(1)).of(ClaimKind::Fit),
        PaperClaim::rate("the plateau of proxy leaders, 2 replicas", 135_000.0, rate(5))
            .of(ClaimKind::Fit)
            .because("reached with 4 proxy leaders here, with 7 in the paper: see docs/figures.md"),
        PaperClaim::rate("leader-bound at the end", 150_000.0, rate(7)).of(ClaimKind::Fit),
        PaperClaim::rate("MultiPaxos in batches", 200_000.0, rate(8))
            .because("clients at the leader's host, as in the paper"),
        PaperClaim::rate("batches of 10, fronts as the paper's 2 + 2", 300_000.0, rate(9))
            .because("batchers and unbatchers are one machine here, and each bounds it"),
        PaperClaim::rate("batches of 100, fronts as the paper's 2 + 2", 500_000.0, rate(11)),
        PaperClaim::rate("one unbatcher more (2 + 3)", 800_000.0, rate(12)).of(ClaimKind::Fit),
    ];
    let title = "One compartmentalization after the other".into();
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims, tables: Vec::new() })
}

const REPLICAS: [usize; 5] = [2, 3, 4, 5, 6];
const SHARES: [f64; 4] = [0.0, 0.6, 0.9, 1.0];

/// Proxy leaders and acceptors until neither is what bounds it, as the paper chooses them.
fn saturating(replicas: usize, workload: &Workload, batching: Batching) -> StoreDeployment {
    let profile = Profile::m5_xlarge();
    let (mut proxy_leaders, mut columns) = (2, 2);
    loop {
        let acceptors = AcceptorLayout::Grid { rows: columns, columns };
        let deployment =
            StoreDeployment { batching, ..compartmentalized(proxy_leaders, acceptors, replicas) };
        match Model::of(&deployment, &profile, workload).bottleneck().station {
            "proxy leader" => proxy_leaders += 1,
            "acceptor" if columns < 8 => columns += 1,
            _ => return deployment,
        }
    }
}

/// Peaks by replicas, a series for each share of reads.
fn by_replicas(level: Level, batching: Batching) -> Vec<Vec<Run>> {
    let run = |share: f64, replicas: usize| {
        let workload = Workload::writes(16).with_reads(share, level);
        let deployment = saturating(replicas, &workload, batching);
        if batching.commands == 1 {
            // Enough to keep what bounds it busy, and no more than fits its capacity within a few milliseconds.
            let capacity = Model::of(&deployment, &Profile::m5_xlarge(), &workload).capacity();
            let clients = (capacity * 0.003) as usize + 100;
            return Run { measured: Duration::from_millis(50), ..Run::new(deployment, workload, clients) };
        }
        let clients = if share >= 1.0 { 1_200 } else { 400 };
        Run {
            outstanding: 100,
            measured: Duration::from_millis(30),
            ..Run::new(deployment, workload, clients)
        }
    };
    SHARES.iter().map(|&share| REPLICAS.iter().map(|&replicas| run(share, replicas)).collect()).collect()
}

fn replica_panel(title: &str, given: &[Vec<Given>], paper: &[(usize, f64, &str)]) -> Panel {
    let mut series: Vec<Series> = SHARES
        .iter()
        .zip(given)
        .enumerate()
        .map(|(colour, (share, given))| {
            let points = REPLICAS.iter().zip(given).map(|(&replicas, given)| Point {
                x: replicas as f64,
                y: given.throughput,
                note: given.note(),
            });
            Series::ours(format!("{:.0} % reads", share * 100.0), colour, points.collect())
        })
        .collect();
    for &(colour, peak, name) in paper {
        series.push(Series::paper(name, colour, &[(6.0, peak)]));
    }
    let x = Axis::linear("replicas", Unit::Count);
    Panel { title: title.to_owned(), x, y: THROUGHPUT, series, bars: Vec::new() }
}

fn linearizable_reads(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let mut runs = by_replicas(Level::Linearizable, Batching::NONE);
    runs.extend(by_replicas(Level::Linearizable, Batching::of(50)));
    let given = curves(runs, watch)?;
    let (unbatched, batched) = given.split_at(SHARES.len());
    let panels = vec![
        replica_panel(
            "(a) one by one",
            unbatched,
            &[(3, 650_000.0, "the paper, reads only"), (0, 150_000.0, "the paper, writes only")],
        ),
        replica_panel("(b) in batches of 50", batched, &[(3, 17.5e6, "the paper, reads only")]),
    ];
    let at = |given: &[Vec<Given>], share: usize, replicas: usize| given[share][replicas].throughput;
    let last = REPLICAS.len() - 1;
    let claims = vec![
        PaperClaim::rate("reads only, 6 replicas", 650_000.0, at(unbatched, 3, last)).of(ClaimKind::Fit),
        PaperClaim::ratio("reads only, 6 replicas over 2", 3.0, at(unbatched, 3, last) / at(unbatched, 3, 0)),
        PaperClaim::rate("writes only", 150_000.0, at(unbatched, 0, last)).of(ClaimKind::Fit),
        PaperClaim::rate("reads only in batches, 6 replicas", 17.5e6, at(batched, 3, last))
            .of(ClaimKind::Fit),
        sublinear("90 % reads: 6 replicas over 2", at(unbatched, 2, last) / at(unbatched, 2, 0)),
        PaperClaim::shape(
            "90 % reads over reads only in batches, where they are nearest",
            (0..=last)
                .map(|replicas| at(batched, 2, replicas) / at(batched, 3, replicas))
                .fold(0.0, f64::max),
            AcceptedRange::AtMost(1.0),
        ),
        PaperClaim::shape(
            "90 % reads over reads only, 6 replicas",
            at(unbatched, 2, last) / at(unbatched, 3, last),
            AcceptedRange::AtMost(0.8),
        )
        .because("\"far less than 90 %\""),
    ];
    let title = "Linearizable reads by the number of replicas".into();
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims, tables: Vec::new() })
}

fn sublinear(what: &str, ratio: f64) -> PaperClaim {
    PaperClaim::shape(what, ratio, AcceptedRange::Between(1.05, 2.9))
        .because("scales, but less than replicas are added")
}

fn analytical(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    const ALPHA: f64 = 100_000.0;
    let law = |n: f64, reads: f64| n * ALPHA / (n * (1.0 - reads) + reads);
    // Replicas that do alpha commands a second of either kind, and everything else without end.
    let mut profile = Profile::m5_xlarge();
    (profile.driver.send, profile.driver.send_byte, profile.driver.receive_byte) = (0.0, 0.0, 0.0);
    let cost = crate::Handle { message: 1e9 / ALPHA - profile.driver.receive, item: 0.0 };
    profile.set(crate::PricedStep::Chosen, cost);
    profile.set(crate::PricedStep::Read, cost);
    let shares = [0.0, 0.6, 0.9, 1.0];
    let runs: Vec<Run> = shares
        .iter()
        .flat_map(|&reads| {
            REPLICAS.iter().map(move |&replicas| {
                let workload = Workload::writes(16).with_reads(reads, Level::Linearizable);
                let acceptors = AcceptorLayout::Grid { rows: 4, columns: 4 };
                let deployment = compartmentalized(16, acceptors, replicas);
                Run { measured: Duration::from_millis(150), ..Run::new(deployment, workload, 500) }
            })
        })
        .collect();
    let given = run_all(&runs, &profile, watch)?;
    let mut series = Vec::new();
    let mut worst: f64 = 0.0;
    for (colour, (&reads, given)) in shares.iter().zip(given.chunks(REPLICAS.len())).enumerate() {
        let points = REPLICAS.iter().zip(given).map(|(&replicas, given)| {
            worst = worst.max((given.throughput / law(replicas as f64, reads) - 1.0).abs());
            Point { x: replicas as f64, y: given.throughput, note: given.note() }
        });
        series.push(Series::ours(format!("{:.0} % reads", reads * 100.0), colour, points.collect()));
        let line: Vec<(f64, f64)> = (1..=8).map(|n| (f64::from(n), law(f64::from(n), reads))).collect();
        series.push(Series::paper(if colour == 0 { "the law, alpha = 100,000" } else { "" }, colour, &line));
    }
    let panel = Panel {
        title: "n alpha / (n fw + fr)".into(),
        x: Axis::linear("replicas", Unit::Count),
        y: THROUGHPUT,
        series,
        bars: Vec::new(),
    };
    let claims = vec![PaperClaim::shape(
        "the law over the simulation, where they are furthest apart",
        1.0 + worst,
        AcceptedRange::AtMost(1.01),
    )];
    let title = "The law of reads and writes, and the simulation on it".into();
    Ok(Drawing { title, subtitle: TESTBED.into(), panels: vec![panel], claims, tables: Vec::new() })
}

fn weaker_reads(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let mut runs = by_replicas(Level::Eventual, Batching::NONE);
    runs.extend(by_replicas(Level::Sequential, Batching::NONE));
    let acceptors = |runs: &[Vec<Run>]| {
        let last = runs.last().and_then(|row| row.last());
        last.map_or(0, |run| match run.deployment.shape {
            MachineLayout::Compartmentalized { acceptors, .. } => acceptors.count(),
            MachineLayout::Colocated { .. } | MachineLayout::Unreplicated => 0,
        })
    };
    let few = acceptors(&runs);
    let many = acceptors(&by_replicas(Level::Linearizable, Batching::NONE));
    let given = curves(runs, watch)?;
    let (eventual, sequential) = given.split_at(SHARES.len());
    let panels =
        vec![replica_panel("(a) eventual", eventual, &[]), replica_panel("(b) sequential", sequential, &[])];
    let last = REPLICAS.len() - 1;
    let claims = vec![
        PaperClaim::rate(
            "eventual reads only, 6 replicas: as linearizable ones",
            650_000.0,
            eventual[3][last].throughput,
        ),
        PaperClaim::rate(
            "sequential reads only, 6 replicas: the same",
            650_000.0,
            sequential[3][last].throughput,
        ),
        PaperClaim::shape(
            "acceptors needed for linearizable reads over those for these",
            many as f64 / few as f64,
            AcceptedRange::AtLeast(1.1),
        )
        .because("\"with far fewer acceptors\""),
    ];
    let title = "Eventual and sequential reads by the number of replicas".into();
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims, tables: Vec::new() })
}
