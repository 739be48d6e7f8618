//! Lockerman et al., *The FuzzyLog*, section 6.2: a map whose shards are colours, with puts to several shards.

use super::Figure;
use super::drawing::{AcceptedRange, Axis, Drawing, Panel, PaperClaim, Point, Series, Table, Unit};
use super::measure::RunWatch;
use crate::chains::{ChainDeployment, MapLoad};
use crate::profile::Profile;
use sim::cost::{Class, Pace, Window};
use std::time::Duration;

pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "fuzzylog-8",
    source: "FuzzyLog, Figure 8",
    title: "A map that is spread over colours, with puts to two shards",
    remarks: include_str!("page/fuzzylog-8.txt"),
    draw: multi_puts,
}];

/// Servers of the map and of the log: "between 8 and 16 chainservers", each a chain of one.
const SIZES: [(usize, u16); 5] = [(1, 8), (2, 8), (4, 8), (8, 8), (16, 16)];
/// Shares of puts that go to two shards.
const SHARES: [f64; 5] = [0.0, 0.001, 0.01, 0.1, 1.0];
/// Calls that a server of the map has in flight.
const OUTSTANDING: u32 = 200;
/// What the drawing has where all puts go to two shards, over where none does.
const IN_TWO_OVER_ONE: f64 = 1.0 / 5.5;
const WINDOW: Window = Window { warm_up: Duration::from_millis(15), measured: Duration::from_millis(15) };

struct Given {
    puts: f64,
    /// Nodes played, over those that puts made: 1 if the map's servers have all that was put.
    played: f64,
    busiest: (&'static str, f64),
}

fn run(share: f64, (servers, partitions): (usize, u16)) -> Result<Given, String> {
    let profile = Profile::c4_2xlarge();
    let deployment = ChainDeployment { partitions, width: 1, sequencer: None, clients: servers };
    let mut running = deployment.start(&profile, 1).map_err(|error| error.to_string())?;
    let colour = |server: usize| {
        let partitions = usize::from(partitions);
        running.colour((server % partitions) as u16, server / partitions)
    };
    let mut load = MapLoad::new((0..servers).map(colour).collect(), share);
    let clients = running.clients.clone();
    let measured =
        running.testbed.run(&clients, Pace::Closed { outstanding: OUTSTANDING }, &mut load, WINDOW);
    let busy = running.stations.iter().copied().zip(measured.busy.iter().copied());
    let busiest = busy.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nobody", 0.0));
    let (single, double) = (measured.throughput_of(Class(0)), measured.throughput_of(Class(1)));
    let seconds = (WINDOW.warm_up + WINDOW.measured).as_secs_f64();
    let played = load.played() as f64 / seconds / (single + 2.0 * double);
    Ok(Given { puts: single + double, played, busiest })
}

fn multi_puts(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let runs: Vec<(f64, (usize, u16))> =
        SHARES.iter().flat_map(|&share| SIZES.map(|size| (share, size))).collect();
    let given: Result<Vec<Given>, String> =
        watch.each(&runs, |&(share, size)| run(share, size)).into_iter().collect();
    let given = given?;
    let rows: Vec<&[Given]> = given.chunks(SIZES.len()).collect();
    let series = |(colour, (row, share)): (usize, (&&[Given], f64))| {
        let point = |(given, (servers, _)): (&Given, (usize, u16))| Point {
            x: servers as f64,
            y: given.puts,
            note: format!("{} {:.0} % busy", given.busiest.0, given.busiest.1 * 100.0),
        };
        let points = row.iter().zip(SIZES).map(point).collect();
        Series::ours(format!("{} % to two shards", share * 100.0), colour, points)
    };
    let panel = Panel {
        title: "puts by the map's servers".to_owned(),
        x: Axis::linear("servers of the map", Unit::Count),
        y: Axis::linear("puts a second", Unit::PerSecond),
        series: rows.iter().zip(SHARES).enumerate().map(series).collect(),
        bars: Vec::new(),
    };
    let line = |(row, share): (&&[Given], f64)| -> Vec<String> {
        let puts = row.iter().map(|given| format!("{:.2} M", given.puts / 1e6));
        std::iter::once(format!("{} %", share * 100.0)).chain(puts).collect()
    };
    let heads = SIZES.map(|(servers, partitions)| format!("{servers} / {partitions}"));
    let table = Table {
        title: "Puts a second, by servers of the map and of the log".to_owned(),
        heads: std::iter::once("to two shards".to_owned()).chain(heads).collect(),
        rows: rows.iter().zip(SHARES).map(line).collect(),
    };
    Ok(Drawing {
        title: "Shards scale, and puts to two of them cost two phases".to_owned(),
        subtitle: "simulated c4.2xlarge machines (costs are inputs), in memory; chains of one, 200 calls in flight a server of the map"
            .to_owned(),
        panels: vec![panel],
        claims: claims(&rows),
        tables: vec![table],
    })
}

fn claims(rows: &[&[Given]]) -> Vec<PaperClaim> {
    let last = SIZES.len() - 1;
    let grows = |row: &[Given]| row[last].puts / row[0].puts;
    let steps = rows.windows(2).map(|pair| pair[1][last].puts / pair[0][last].puts);
    let steepest = steps.clone().fold(f64::MAX, f64::min);
    let least_played =
        rows.iter().flat_map(|row| row.iter()).map(|given| given.played).fold(f64::MAX, f64::min);
    vec![
        PaperClaim::shape("0 %: 16 servers of the map over 1", grows(rows[0]), AcceptedRange::AtLeast(14.4))
            .because("\"scales linearly from 1 to 16\""),
        PaperClaim::shape(
            "from one share to the next, at 16, the most",
            steps.fold(0.0, f64::max),
            AcceptedRange::AtMost(1.02),
        )
        .because("\"as the percentage ... increases ... throughput degrade[s]\""),
        PaperClaim::shape(
            "from one share to the next, at 16, the least",
            steepest,
            AcceptedRange::AtLeast(0.25),
        )
        .because("\"gracefully\""),
        PaperClaim::ratio(
            "100 % over 0 %, the most servers",
            IN_TWO_OVER_ONE,
            rows[SHARES.len() - 1][last].puts / rows[0][last].puts,
        )
        .because("read off the drawing: 1 million a second of 5.5 million"),
        PaperClaim::shape(
            "nodes played over nodes put, the least",
            least_played,
            AcceptedRange::AtLeast(0.9),
        )
        .because("not in the paper: what is put can be read"),
    ]
}
