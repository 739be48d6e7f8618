//! Lockerman et al., *The FuzzyLog*, section 6.1: latencies of appends, and a partial order beside a total one.

use super::Figure;
use super::drawing::{
    AcceptedRange, Axis, ClaimKind, Drawing, Panel, PaperClaim, Point, Series, Table, Unit,
};
use super::measure::RunWatch;
use crate::chains::{ChainDeployment, ColourLoad, PastOf, RunningChains, TokenLoad, recoveries};
use crate::profile::Profile;
use sim::cost::{Class, Measured, Pace, Window};
use std::time::Duration;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "fuzzylog-6",
        source: "FuzzyLog, Figure 6",
        title: "Latency of appends to one colour, to two, and of recovery",
        remarks: include_str!("page/fuzzylog-6.txt"),
        draw: latencies,
    },
    Figure {
        name: "fuzzylog-7",
        source: "FuzzyLog, Figure 7",
        title: "Appends to colours, and to a total order with a sequencer (Tango)",
        remarks: include_str!("page/fuzzylog-7.txt"),
        draw: parallelism,
    },
];

const TESTBED: &str = "simulated c4.2xlarge machines (costs are inputs), in memory";
const REPLICAS: [usize; 3] = [1, 2, 3];
const ROWS: [&str; 3] = ["one colour", "two colours", "recovery"];
/// Origins that stop in mid-append, of each replication.
const ORIGINS: usize = 40;
const QUANTILES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// Latencies of one row and replication, in microseconds.
struct Spread(Vec<f64>);

impl Spread {
    fn at(&self, quantile: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((quantile * last as f64).round() as usize).copied().unwrap_or(0.0)
    }

    fn median(&self) -> f64 {
        self.at(0.5)
    }
}

fn light(width: usize, two: f64) -> Result<Spread, String> {
    let profile = Profile::c4_2xlarge();
    let deployment = ChainDeployment { partitions: 2, width, sequencer: None, clients: 2 };
    let mut running = deployment.start(&profile, 1).map_err(|error| error.to_string())?;
    let colours = (0..2).map(|partition| running.colour(partition, 0)).collect();
    let mut load = ColourLoad::new(colours, two, PastOf::Handle);
    let window = Window { warm_up: Duration::from_millis(20), measured: Duration::from_millis(500) };
    let pace = Pace::Open { per_second: 2_000.0 };
    let measured = running.testbed.run(&running.clients, pace, &mut load, window);
    let class = measured.classes.last().ok_or("nobody was served")?;
    let nanos = |step: u32| class.latency.value_at_quantile(f64::from(step) / 100.0) as f64;
    Ok(Spread((0..=100).map(|step| nanos(step) / 1e3).collect()))
}

fn recovered(width: usize) -> Result<Spread, String> {
    let profile = Profile::c4_2xlarge();
    let found = recoveries(width, ORIGINS, &profile, 1).map_err(|error| error.to_string())?;
    if found.len() < ORIGINS {
        return Err(format!("{} of {ORIGINS} appends were taken over", found.len()));
    }
    let mut micros: Vec<f64> = found.iter().map(|took| took.as_secs_f64() * 1e6).collect();
    micros.sort_by(f64::total_cmp);
    Ok(Spread(micros))
}

fn latencies(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let runs: Vec<(usize, usize)> =
        (0..ROWS.len()).flat_map(|row| REPLICAS.map(|width| (row, width))).collect();
    let spreads: Result<Vec<Spread>, String> = watch
        .each(&runs, |&(row, width)| match row {
            0 => light(width, 0.0),
            1 => light(width, 1.0),
            _ => recovered(width),
        })
        .into_iter()
        .collect();
    let spreads = spreads?;
    let rows: Vec<&[Spread]> = spreads.chunks(REPLICAS.len()).collect();
    let panels = rows.iter().zip(ROWS).map(|(row, name)| latency_panel(name, row)).collect();
    let cells = |row: &[Spread], name: &str| -> Vec<Vec<String>> {
        let line = |(spread, width): (&Spread, usize)| {
            let quantiles = QUANTILES.map(|quantile| format!("{:.0}", spread.at(quantile)));
            [name.to_owned(), width.to_string()].into_iter().chain(quantiles).collect()
        };
        row.iter().zip(REPLICAS).map(line).collect()
    };
    let table = Table {
        title: "Microseconds within which a share is done".to_owned(),
        heads: ["", "servers of a chain", "5 %", "25 %", "50 %", "75 %", "95 %"].map(str::to_owned).to_vec(),
        rows: rows.iter().zip(ROWS).flat_map(|(row, name)| cells(row, name)).collect(),
    };
    Ok(Drawing {
        title: "One phase, two phases, three phases".to_owned(),
        subtitle: format!("{TESTBED}; two partitions, 2,000 appends of 16 bytes a second"),
        panels,
        claims: latency_claims(&rows),
        tables: vec![table],
    })
}

fn latency_panel(name: &str, row: &[Spread]) -> Panel {
    let curve = |(spread, width): (&Spread, usize)| {
        let point = |step: u32| {
            let share = f64::from(step) / 20.0;
            Point { x: spread.at(share), y: share, note: String::new() }
        };
        Series::ours(format!("{width} of a chain"), width - 1, (0..=20).map(point).collect())
    };
    Panel {
        title: name.to_owned(),
        x: Axis::linear("latency (us)", Unit::Micros),
        y: Axis::linear("share that is done", Unit::Share),
        series: row.iter().zip(REPLICAS).map(curve).collect(),
        bars: Vec::new(),
    }
}

fn latency_claims(rows: &[&[Spread]]) -> Vec<PaperClaim> {
    let median = |row: usize, nth: usize| rows[row][nth].median();
    let grows = |row: usize| {
        let steps = (1..REPLICAS.len()).map(|nth| median(row, nth) / median(row, nth - 1));
        steps.fold(f64::MAX, f64::min)
    };
    let mut claims: Vec<PaperClaim> = (0..ROWS.len())
        .map(|row| {
            let what = format!("{}: a server more over one less, at least", ROWS[row]);
            PaperClaim::shape(what, grows(row), AcceptedRange::AtLeast(1.05))
                .because("\"latency increases with increasing replication factor\"")
        })
        .collect();
    for (nth, width) in REPLICAS.into_iter().enumerate() {
        let (one, two, recovery) = (median(0, nth), median(1, nth), median(2, nth));
        claims.push(
            PaperClaim::shape(
                format!("two colours over one, chains of {width}"),
                two / one,
                AcceptedRange::Between(1.8, 2.2),
            )
            .because("two phases"),
        );
        claims.push(
            PaperClaim::shape(
                format!("recovery over one colour, chains of {width}"),
                recovery / one,
                AcceptedRange::Between(2.5, 3.5),
            )
            .because("three phases"),
        );
    }
    claims
}

const PARTITIONS: u16 = 5;
const WIDTH: usize = 2;
const CLIENTS: [usize; 4] = [1, 2, 4, 8];
/// Shares of appends that go to two colours.
const SHARES: [f64; 5] = [0.0, 0.001, 0.01, 0.1, 1.0];
/// Appends that a client has in flight: two handles, 750 each.
const OUTSTANDING: u32 = 1_500;
/// "roughly ... 600K ops/sec (Tango)" (section 2.2): 1,667 nanoseconds a position.
const SEQUENCER_NANOS: f64 = 1_667.0;
const WINDOW: Window = Window { warm_up: Duration::from_millis(20), measured: Duration::from_millis(20) };

#[derive(Clone, Copy, PartialEq)]
enum System {
    Tango,
    Fuzzy { share: f64, past: PastOf },
}

struct Given {
    throughput: f64,
    busiest: (&'static str, f64),
}

fn run(system: System, clients: usize) -> Result<Given, String> {
    let profile = Profile::c4_2xlarge();
    let sequencer = (system == System::Tango).then(|| profile.sequencer(SEQUENCER_NANOS));
    let deployment = ChainDeployment { partitions: PARTITIONS, width: WIDTH, sequencer, clients };
    let mut running = deployment.start(&profile, 1).map_err(|error| error.to_string())?;
    let pace = Pace::Closed { outstanding: OUTSTANDING };
    let clients = running.clients.clone();
    let (measured, classes): (Measured, &[Class]) = match system {
        System::Tango => {
            let colours = (0..PARTITIONS).map(|partition| running.colour(partition, 0)).collect();
            let mut load = TokenLoad::new(running.colour(PARTITIONS, 0), colours);
            (running.testbed.run(&clients, pace, &mut load, WINDOW), &[Class(0)])
        }
        System::Fuzzy { share, past } => {
            let colours = (0..clients.len()).map(|client| colour_of(&running, client)).collect();
            let mut load = ColourLoad::new(colours, share, past);
            (running.testbed.run(&clients, pace, &mut load, WINDOW), &[Class(0), Class(1)])
        }
    };
    let busy = running.stations.iter().copied().zip(measured.busy.iter().copied());
    let busiest = busy.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nobody", 0.0));
    let throughput = classes.iter().map(|&class| measured.throughput_of(class)).sum();
    Ok(Given { throughput, busiest })
}

/// Clients' colours go round over the partitions.
fn colour_of(running: &RunningChains, client: usize) -> fuzzylog::Colour {
    let partitions = usize::from(PARTITIONS);
    running.colour((client % partitions) as u16, client / partitions)
}

fn parallelism(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let fuzzy = |past: PastOf| SHARES.map(|share| System::Fuzzy { share, past });
    let systems: Vec<System> =
        [System::Tango].into_iter().chain(fuzzy(PastOf::All)).chain(fuzzy(PastOf::Handle)).collect();
    let runs: Vec<(System, usize)> =
        systems.iter().flat_map(|&system| CLIENTS.map(|clients| (system, clients))).collect();
    let given: Result<Vec<Given>, String> =
        watch.each(&runs, |&(system, clients)| run(system, clients)).into_iter().collect();
    let given = given?;
    let curves: Vec<&[Given]> = given.chunks(CLIENTS.len()).collect();
    let (tango, rest) = curves.split_first().ok_or("nothing was run")?;
    let (blocking, overtaking) = rest.split_at(SHARES.len());
    let panel = |title: &str, of: &[&[Given]]| {
        let name = |share: f64| format!("{} % two-colour", share * 100.0);
        let colours = of.iter().zip(SHARES).enumerate();
        let colours = colours.map(|(colour, (given, share))| series(&name(share), colour, given));
        Panel {
            title: title.to_owned(),
            x: Axis::linear("clients", Unit::Count),
            y: Axis::linear("appends a second", Unit::PerSecond),
            series: std::iter::once(series("Tango", 6, tango)).chain(colours).collect(),
            bars: Vec::new(),
        }
    };
    Ok(Drawing {
        title: "Colours scale until most appends have two".to_owned(),
        subtitle: format!(
            "{TESTBED}; five partitions, chains of two, two handles of 750 appends in flight a client"
        ),
        panels: vec![
            panel("(a) nothing overtakes a pending append, as in the paper", blocking),
            panel("(b) appends overtake pending ones of others", overtaking),
        ],
        claims: parallel_claims(tango, blocking, overtaking),
        tables: Vec::new(),
    })
}

fn series(name: &str, colour: usize, given: &[Given]) -> Series {
    let point = |(given, clients): (&Given, usize)| Point {
        x: clients as f64,
        y: given.throughput,
        note: format!("{} {:.0} % busy", given.busiest.0, given.busiest.1 * 100.0),
    };
    Series::ours(name, colour, given.iter().zip(CLIENTS).map(point).collect())
}

fn parallel_claims(tango: &[Given], blocking: &[&[Given]], overtaking: &[&[Given]]) -> Vec<PaperClaim> {
    const FOUR: usize = 2;
    let last = CLIENTS.len() - 1;
    let most = tango[last].throughput;
    let over = |of: &[&[Given]], share: usize| of[share][last].throughput / most;
    let grows = |given: &[Given]| given[last].throughput / given[FOUR].throughput;
    let lowest =
        (0..SHARES.len()).map(|share| overtaking[share][last].throughput / blocking[share][last].throughput);
    vec![
        PaperClaim::shape("Tango, 8 clients over 4", grows(tango), AcceptedRange::Between(0.95, 1.1))
            .of(ClaimKind::Input)
            .because(
                "\"cannot scale beyond four clients\"; its sequencer is given so many positions a second",
            ),
        PaperClaim::shape(
            "0 % two-colour, 8 clients over 4",
            grows(blocking[0]),
            AcceptedRange::AtLeast(1.8),
        )
        .because("\"scales near-linearly\""),
        PaperClaim::shape("1 % two-colour over Tango", over(blocking, 2), AcceptedRange::Between(1.5, 2.6))
            .because("\"2X faster\""),
        PaperClaim::shape("10 % two-colour over Tango", over(blocking, 3), AcceptedRange::Between(0.8, 1.3))
            .because("\"matches Tango\""),
        PaperClaim::shape("100 % two-colour over Tango", over(blocking, 4), AcceptedRange::AtMost(0.8))
            .because("\"performs worse\""),
        PaperClaim::shape(
            "with overtaking over without, at any share, the lowest",
            lowest.fold(f64::MAX, f64::min),
            AcceptedRange::AtLeast(0.97),
        )
        .because("not in the paper"),
    ]
}
