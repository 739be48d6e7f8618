//! Helt et al., *Regular Sequential Serializability and Regular Sequential Consistency*, section 6: Spanner and Spanner-RSS.

use super::Figure;
use super::drawing::{
    AcceptedRange, Axis, ClaimKind, Drawing, Panel, PaperClaim, Point, Series, Table, Unit,
};
use super::measure::RunWatch;
use crate::profile::Profile;
use crate::transactions::{Draws, READ_ONLY, READ_WRITE, Sites, TxnDeployment, TxnLoad, TxnWorkload, Zipf};
use hdrhistogram::Histogram;
use sim::cost::{Measured, Pace, Window};
use spanner::SpannerParameters;
use std::sync::Arc;
use std::time::Duration;
use wire::txn::TxnLevel;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "rss-5",
        source: "RSS, Figure 5",
        title: "Latencies of read-only transactions on Retwis, by skew",
        remarks: include_str!("page/rss-5.txt"),
        draw: tails,
    },
    Figure {
        name: "rss-6",
        source: "RSS, Figure 6",
        title: "Throughput and median latency under high load",
        remarks: include_str!("page/rss-6.txt"),
        draw: overhead,
    },
];

const KEYS: u64 = 10_000_000;
/// "The client chooses to stay with probability p = 0.9".
const STAY: f64 = 0.9;
const LEVELS: [TxnLevel; 2] = [TxnLevel::Strict, TxnLevel::Rss];
const NAMES: [&str; 2] = ["Spanner (strict)", "Spanner-RSS (rss)"];
const VALUE_BYTES: usize = 64;

fn draws(zipf: &Arc<Zipf>, level: TxnLevel) -> Draws {
    let value = vec![b'v'; VALUE_BYTES].into();
    Draws { workload: TxnWorkload::Retwis, level, zipf: zipf.clone(), keys: KEYS, value }
}

/// Timeouts that suit sites far from each other, and no end to what waits for locks.
pub(super) fn far_parameters() -> (SpannerParameters, paxos::Parameters) {
    let seconds = Duration::from_secs;
    let parameters = SpannerParameters {
        tick: Duration::from_millis(50),
        resend_after: seconds(2),
        horizon_ahead: seconds(2),
        close_every: seconds(1),
        owner_silence: seconds(20),
        owner_alive_every: seconds(2),
        keep: seconds(3_600),
        fence_bound: seconds(5),
        clock_error_max: seconds(5),
        doubt_after: seconds(10),
        collect_for: seconds(60),
        idle_max: seconds(600),
        try_for: seconds(600),
        ..SpannerParameters::DEFAULT
    };
    let log = paxos::Parameters {
        heartbeat_every: Duration::from_millis(200),
        election_timeout: seconds(4),
        resend_after: seconds(2),
        snapshot_every_bytes: u64::MAX,
        retained_bytes_max: 1 << 20,
        ..paxos::Parameters::DEFAULT
    };
    (parameters, log)
}

/// Section 6's deployment: three shards, led from California, Virginia and Ireland.
pub(super) fn over_three_regions() -> TxnDeployment {
    let (parameters, log) = far_parameters();
    TxnDeployment {
        sites: Sites::of_the_paper(),
        shards: 3,
        machines: None,
        led_at_one_site: false,
        gateways_per_site: 1,
        clock_error: Duration::from_millis(10),
        parameters,
        log,
    }
}

/// A skew with its load, and what the paper says of a quantile.
struct Skew {
    theta: f64,
    /// Transactions a second.
    per_second: f64,
    measured: Duration,
    quantile: f64,
    /// By how much that quantile is lower: the paper's share, in parts of one.
    reduction: f64,
    kind: ClaimKind,
}

const SKEWS: [Skew; 3] = [
    Skew {
        theta: 0.5,
        per_second: 2_100.0,
        // So rare are reads that wait that the quantile moves by a third from one minute to the next, and a tenth in three.
        measured: Duration::from_secs(540),
        quantile: 0.999,
        reduction: 0.14,
        kind: ClaimKind::Fit,
    },
    Skew {
        theta: 0.7,
        per_second: 620.0,
        measured: Duration::from_secs(150),
        quantile: 0.999,
        reduction: 0.37,
        kind: ClaimKind::Prediction,
    },
    Skew {
        theta: 0.9,
        per_second: 62.0,
        measured: Duration::from_secs(1_500),
        quantile: 0.99,
        reduction: 0.49,
        kind: ClaimKind::Prediction,
    },
];

fn millis(latency: &Histogram<u64>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64 / 1e6
}

fn class(measured: &Measured, class: sim::cost::Class) -> Option<&Histogram<u64>> {
    measured.classes.get(usize::from(class.0)).map(|served| &served.latency)
}

fn tails(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let runs: Vec<(usize, TxnLevel)> =
        (0..SKEWS.len()).flat_map(|skew| LEVELS.map(|level| (skew, level))).collect();
    let zipfs: Vec<Arc<Zipf>> = SKEWS.iter().map(|skew| Arc::new(Zipf::new(KEYS, skew.theta))).collect();
    let measured: Result<Vec<Measured>, String> = watch
        .each(&runs, |&(at, level)| {
            let skew = &SKEWS[at];
            let mut running =
                over_three_regions().start(&Profile::t2_large(), 1).map_err(|error| error.to_string())?;
            let pace = Pace::PartlyOpen { sessions_per_second: skew.per_second * (1.0 - STAY), stay: STAY };
            let window = Window { warm_up: skew.measured / 10, measured: skew.measured };
            let mut load = TxnLoad::new(draws(&zipfs[at], level));
            Ok(running.testbed.run(&running.gateways, pace, &mut load, window))
        })
        .into_iter()
        .collect();
    let measured = measured?;
    let (mut panels, mut claims, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (pair, (skew, letter)) in measured.chunks(LEVELS.len()).zip(SKEWS.iter().zip(["a", "b", "c"])) {
        let reads: Vec<&Histogram<u64>> = pair.iter().filter_map(|run| class(run, READ_ONLY)).collect();
        let writes: Vec<&Histogram<u64>> = pair.iter().filter_map(|run| class(run, READ_WRITE)).collect();
        let ([strict, rss], [strict_writes, rss_writes]) = (&reads[..], &writes[..]) else {
            return Err("nobody was served".to_owned());
        };
        panels.push(tail_panel(&format!("({letter}) skew {}", skew.theta), [strict, rss]));
        claims.extend(tail_claims(letter, skew, [strict, rss], [strict_writes, rss_writes]));
        for (name, run, reads, writes) in
            [(NAMES[0], &pair[0], strict, strict_writes), (NAMES[1], &pair[1], rss, rss_writes)]
        {
            let cells = QUANTILES.map(|quantile| format!("{:.0}", millis(reads, quantile)));
            let of_writes = [0.5, 0.99].map(|quantile| format!("{:.0}", millis(writes, quantile)));
            let head = [format!("{}", skew.theta), name.to_owned(), format!("{:.0}/s", run.throughput())];
            rows.push(head.into_iter().chain(cells).chain(of_writes).collect());
        }
    }
    let heads = ["skew", "level", "load", "50 %", "90 %", "99 %", "99.5 %", "99.9 %", "writes 50 %", "99 %"];
    let table = Table {
        title: "Milliseconds within which a share of the read-only transactions is answered".to_owned(),
        heads: heads.map(str::to_owned).to_vec(),
        rows,
    };
    Ok(Drawing {
        title: "Read-only transactions skip what may not have ended: the tail is shorter".to_owned(),
        subtitle:
            "simulated t2.large machines in California, Virginia and Ireland (round trips of 62, 136 and \
                   68 ms), three shards, clocks 10 ms off, sessions that stay with 0.9"
                .to_owned(),
        panels,
        claims,
        tables: vec![table],
    })
}

const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.995, 0.999];

/// Latency across; up, the share of transactions that took longer, by powers of ten.
fn tail_panel(title: &str, curves: [&Histogram<u64>; 2]) -> Panel {
    let shares = || (0..=35).map(|step| 10f64.powf(-f64::from(step) / 10.0));
    let series = curves.into_iter().zip(NAMES).enumerate().map(|(colour, (curve, name))| {
        let point = |share: f64| Point {
            x: millis(curve, 1.0 - share),
            y: share,
            note: format!("{:.2} % within", (1.0 - share) * 100.0),
        };
        Series::ours(name, colour, shares().map(point).collect())
    });
    Panel {
        title: title.to_owned(),
        x: Axis::linear("latency (ms)", Unit::Millis),
        y: Axis::logarithmic("share of transactions that take longer", Unit::Share),
        series: series.collect(),
        bars: Vec::new(),
    }
}

fn tail_claims(
    letter: &str,
    skew: &Skew,
    [strict, rss]: [&Histogram<u64>; 2],
    [strict_writes, rss_writes]: [&Histogram<u64>; 2],
) -> Vec<PaperClaim> {
    let percent = skew.quantile * 100.0;
    let lower = |quantile: f64| 1.0 - millis(rss, quantile) / millis(strict, quantile);
    let over = QUANTILES.map(|quantile| millis(rss, quantile) / millis(strict, quantile));
    let worst = over.into_iter().fold(0.0, f64::max);
    let writes = [0.5, 0.75].map(|quantile| millis(rss_writes, quantile) / millis(strict_writes, quantile));
    let off = writes.into_iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    let mut claims = vec![
        PaperClaim::percent(
            format!("({letter}) RSS's {percent} % is lower by"),
            skew.reduction * 100.0,
            lower(skew.quantile) * 100.0,
            10.0,
        )
        .of(skew.kind),
        PaperClaim::shape(
            format!("({letter}) RSS over strict, the highest of five quantiles"),
            worst,
            AcceptedRange::AtMost(1.02),
        )
        .because("50, 90, 99, 99.5 and 99.9 %"),
        PaperClaim::shape(
            format!("({letter}) transactions that write, RSS over strict"),
            1.0 + off,
            AcceptedRange::AtMost(1.03),
        )
        .because("the median and the 75 % quantile, whichever is further off; \"identical\""),
    ];
    if letter == "b" {
        let least = [0.995, 0.999].map(|quantile| millis(strict, quantile) - millis(rss, quantile));
        let least = least.into_iter().fold(f64::MAX, f64::min);
        claims.push(PaperClaim::millis(
            "(b) from 99.5 % on, lower by at least",
            76.0,
            least,
            AcceptedRange::AtLeast(76.0),
        ));
    }
    claims
}

/// Calls in flight of each gateway.
const LOADS: [u32; 4] = [4, 16, 64, 128];
const GATEWAYS: usize = 8;

fn overhead(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let runs: Vec<(TxnLevel, u32)> =
        LEVELS.into_iter().flat_map(|level| LOADS.map(|load| (level, load))).collect();
    let zipf = Arc::new(Zipf::new(KEYS, 0.0));
    let deployment = TxnDeployment {
        sites: Sites::near(3),
        shards: 8,
        machines: None,
        led_at_one_site: true,
        gateways_per_site: GATEWAYS,
        clock_error: Duration::ZERO,
        parameters: SpannerParameters { resend_after: Duration::from_secs(2), ..SpannerParameters::DEFAULT },
        log: paxos::Parameters {
            election_timeout: Duration::from_secs(2),
            resend_after: Duration::from_secs(2),
            snapshot_every_bytes: u64::MAX,
            retained_bytes_max: 1 << 20,
            ..paxos::Parameters::DEFAULT
        },
    };
    let measured: Result<Vec<Measured>, String> = watch
        .each(&runs, |&(level, outstanding)| {
            let mut running = deployment.start(&Profile::m510(), 1).map_err(|error| error.to_string())?;
            let window = Window { warm_up: Duration::from_millis(300), measured: Duration::from_millis(500) };
            // Those of one site: all shards are led there, and its users are as near as any.
            let gateways = &running.gateways[..GATEWAYS];
            let mut load = TxnLoad::new(draws(&zipf, level));
            Ok(running.testbed.run(gateways, Pace::Closed { outstanding }, &mut load, window))
        })
        .into_iter()
        .collect();
    let measured = measured?;
    Ok(loaded(&measured))
}

/// What the runs of both levels gave.
fn loaded(measured: &[Measured]) -> Drawing {
    let (strict, rss) = measured.split_at(LOADS.len());
    let median = |run: &Measured| run.latency(0.5).as_secs_f64() * 1e3;
    let most = |runs: &[Measured]| runs.iter().map(Measured::throughput).fold(0.0, f64::max);
    let points = |runs: &[Measured]| -> Vec<Point> {
        let point = |(run, load): (&Measured, u32)| Point {
            x: run.throughput(),
            y: median(run),
            note: format!("{} calls in flight", load as usize * GATEWAYS),
        };
        runs.iter().zip(LOADS).map(point).collect()
    };
    // By class: over both, the median of a loaded system lies in the gap between the two.
    let of = |run: &Measured, kind| class(run, kind).map_or(0.0, |latency| millis(latency, 0.5));
    let ratios = strict
        .iter()
        .zip(rss)
        .flat_map(|(strict, rss)| [READ_ONLY, READ_WRITE].map(|kind| of(rss, kind) / of(strict, kind)));
    let medians = ratios.map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    let claims = vec![
        PaperClaim::shape(
            "the most, RSS over strict",
            most(rss) / most(strict),
            AcceptedRange::AtLeast(0.97),
        )
        .because("\"within a few hundreds of transactions per second\""),
        PaperClaim::shape(
            "medians, RSS over strict, at any load",
            1.0 + medians,
            AcceptedRange::AtMost(1.05),
        )
        .because("\"within a few milliseconds\"; the load and the class in which they are furthest apart"),
    ];
    Drawing {
        title: "What RSS adds to messages and handlers costs next to nothing".to_owned(),
        subtitle:
            "simulated m510 machines (costs are inputs), eight shards led on one machine, clocks without \
                   error, Retwis on ten million keys drawn alike"
                .to_owned(),
        panels: vec![Panel {
            title: "Retwis, uniform".to_owned(),
            x: Axis::linear("transactions a second", Unit::PerSecond),
            y: Axis::linear("median latency (ms)", Unit::Millis),
            series: vec![Series::ours(NAMES[0], 0, points(strict)), Series::ours(NAMES[1], 1, points(rss))],
            bars: Vec::new(),
        }],
        claims,
        tables: Vec::new(),
    }
}
