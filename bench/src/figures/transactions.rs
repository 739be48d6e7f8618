//! Transactions on more machines: what no paper has drawn.

use super::Figure;
use super::drawing::{AcceptedRange, Axis, Drawing, Panel, PaperClaim, Point, Series, Table, Unit};
use super::measure::RunWatch;
use crate::profile::Profile;
use crate::transactions::{Draws, Sites, TxnDeployment, TxnLoad, TxnWorkload, Zipf};
use sim::cost::{Measured, Pace, Window};
use spanner::SpannerParameters;
use std::sync::Arc;
use std::time::Duration;
use wire::txn::TxnLevel;

pub(super) const FIGURES: &[Figure] = &[Figure {
    name: "txn-scale",
    source: "Ordinate",
    title: "Retwis on 6, 12 and 24 machines",
    remarks: include_str!("page/txn-scale.txt"),
    draw: scale,
}];

const MACHINES: [usize; 3] = [6, 12, 24];
const SHARDS: u16 = 24;
const KEYS: u64 = 10_000_000;
const SKEW: f64 = 0.5;
const GATEWAYS_PER_SITE: usize = 8;
/// Calls in flight of each gateway, for each machine: enough that machines are busy, and not so many that most wait for hot keys.
const OUTSTANDING: u32 = 6;

fn deployment(machines: usize) -> TxnDeployment {
    TxnDeployment {
        sites: Sites::near(3),
        shards: SHARDS,
        machines: Some(machines),
        led_at_one_site: true,
        gateways_per_site: GATEWAYS_PER_SITE,
        clock_error: Duration::from_micros(100),
        parameters: SpannerParameters { resend_after: Duration::from_secs(2), ..SpannerParameters::DEFAULT },
        log: paxos::Parameters {
            election_timeout: Duration::from_secs(4),
            resend_after: Duration::from_secs(2),
            snapshot_every_bytes: u64::MAX,
            retained_bytes_max: 1 << 20,
            ..paxos::Parameters::DEFAULT
        },
    }
}

fn scale(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let zipf = Arc::new(Zipf::new(KEYS, SKEW));
    let levels = [TxnLevel::Strict, TxnLevel::Rss];
    let runs: Vec<(TxnLevel, usize)> =
        levels.into_iter().flat_map(|level| MACHINES.map(|machines| (level, machines))).collect();
    let measured: Result<Vec<Measured>, String> = watch
        .each(&runs, |&(level, machines)| {
            let mut running =
                deployment(machines).start(&Profile::m510(), 1).map_err(|error| error.to_string())?;
            let window = Window { warm_up: Duration::from_millis(300), measured: Duration::from_millis(500) };
            let value = vec![b'v'; 64].into();
            let workload = TxnWorkload::Retwis;
            let mut load = TxnLoad::new(Draws { workload, level, zipf: zipf.clone(), keys: KEYS, value });
            let pace = Pace::Closed { outstanding: OUTSTANDING * machines as u32 };
            Ok(running.testbed.run(&running.gateways, pace, &mut load, window))
        })
        .into_iter()
        .collect();
    let measured = measured?;
    let rates: Vec<f64> = measured.iter().map(Measured::throughput).collect();
    let mut claims = Vec::new();
    for (level, rates) in levels.iter().zip(rates.chunks(MACHINES.len())) {
        for (machines, pair) in MACHINES.windows(2).zip(rates.windows(2)) {
            claims.push(PaperClaim::shape(
                format!("{level}: {} machines over {}", machines[1], machines[0]),
                pair[1] / pair[0],
                AcceptedRange::AtLeast(1.8),
            ));
        }
    }
    let series =
        levels.iter().zip(rates.chunks(MACHINES.len())).enumerate().map(|(colour, (level, rates))| {
            let points = MACHINES.iter().zip(rates).map(|(&machines, &rate)| Point {
                x: machines as f64,
                y: rate,
                note: format!("{:.0} a machine", rate / machines as f64),
            });
            Series::ours(level.to_string(), colour, points.collect())
        });
    let table = busy_table(&runs, &measured);
    Ok(Drawing {
        title: "Machines that share the same shards carry what they are".to_owned(),
        subtitle:
            "simulated m510 machines of one core (costs are inputs), 24 shards of three replicas, clocks \
                   100 us off, Retwis on ten million keys, skew 0.5"
                .to_owned(),
        panels: vec![Panel {
            title: "Retwis".to_owned(),
            x: Axis::linear("machines", Unit::Count),
            y: Axis::linear("transactions a second", Unit::PerSecond),
            series: series.collect(),
            bars: Vec::new(),
        }],
        claims,
        tables: vec![table],
    })
}

/// How busy the machines were.
fn busy_table(runs: &[(TxnLevel, usize)], measured: &[Measured]) -> Table {
    let rows = runs.iter().zip(measured).map(|(&(level, machines), run)| {
        let busy = deployment(machines).shared_machines_busy(&run.busy);
        let mean = busy.iter().sum::<f64>() / busy.len() as f64;
        let most = busy.iter().copied().fold(0.0, f64::max);
        vec![
            level.to_string(),
            machines.to_string(),
            format!("{:.0}/s", run.throughput()),
            format!("{:.0} %", mean * 100.0),
            format!("{:.0} %", most * 100.0),
            format!("{:.1}", run.latency(0.5).as_secs_f64() * 1e3),
            format!("{:.1}", run.latency(0.99).as_secs_f64() * 1e3),
        ]
    });
    let heads = ["level", "machines", "rate", "busy, mean", "busiest", "50 % (ms)", "99 % (ms)"];
    Table {
        title: "How busy machines are, and how soon transactions are answered".to_owned(),
        heads: heads.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}
