//! Hodsdon et al., *Mason: Scalable, Contiguous Sequencing for Building Consistent Services*, section 7.

use super::Figure;
use super::breakdown::{self, Met, Way};
use super::drawing::{AcceptedRange, Axis, ClaimKind, Drawing, Panel, PaperClaim, Point, Series, Unit};
use super::measure::RunWatch;
use crate::ordering::{Asks, OrderingDeployment, Running};
use crate::profile::Profile;
use mason::{MasonParameters, Number, Placed, Space};
use sim::cost::{Pace, Window};
use std::time::Duration;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "mason-3",
        source: "Mason, Figure 3",
        title: "Ordering by the number of proxies and of sequence spaces",
        remarks: include_str!("page/mason-3.txt"),
        draw: ordering,
    },
    Figure {
        name: "mason-6",
        source: "Mason, Figure 6",
        title: "A contiguous sequence over two failures",
        remarks: include_str!("page/mason-6.txt"),
        draw: failures,
    },
];

const TESTBED: &str =
    "simulated d430 machines (costs from the paper's published rates), in memory, groups of 3";

struct Run {
    machines: usize,
    spaces: u16,
    /// For each leading thread.
    in_flight: u32,
}

struct Given {
    throughput: f64,
    median: Duration,
    tail: Duration,
    busiest: (&'static str, f64),
    sequencer: f64,
    met: Met,
}

/// Clients' threads for each leading thread; each speaks to one leader, as the paper's do.
const CLIENTS_PER_LEADER: u32 = 2;
/// Calls in flight for each leading thread, doubled from load to load.
const LOADS: [u32; 5] = [4, 16, 30, 60, 120];
/// What the paper had in flight: 31.5 million a second within 243 us, over 128 leading threads. 24 machines had 63.
const PAPERS_LOAD: usize = 3;
/// The paper's proxies close a batch after 20 us, however many are in flight: of about 8 operations, so 8 of 60.
const BATCHES_MAX: usize = 8;
/// From a client to its proxy's leader, which has the batch numbered and replicated, and answers.
const WAY: Way = Way { trips: 6, stations: &[("proxy leader", 3), ("sequencer", 1), ("proxy follower", 1)] };

fn run(run: &Run) -> Result<Given, String> {
    let profile = Profile::d430();
    let clients = run.machines / 3 * 8 * CLIENTS_PER_LEADER as usize;
    let mut deployment = OrderingDeployment::new(run.machines, run.spaces, clients);
    deployment.parameters.batches_max = BATCHES_MAX;
    let mut running = Running::start(&deployment, &profile, 1).map_err(|error| error.to_string())?;
    let window = Window { warm_up: Duration::from_millis(3), measured: Duration::from_millis(2) };
    let clients = running.clients.clone();
    let pace = Pace::Closed { outstanding: run.in_flight / CLIENTS_PER_LEADER };
    let measured = running.testbed.run(&clients, pace, &mut Asks::of_all(run.spaces), window);
    let busy = || running.stations.iter().copied().zip(measured.busy.iter().copied());
    Ok(Given {
        throughput: measured.throughput(),
        median: measured.latency(0.5),
        tail: measured.latency(0.99),
        busiest: busy().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("nobody", 0.0)),
        sequencer: busy()
            .filter(|(station, _)| *station == "sequencer")
            .map(|(_, busy)| busy)
            .fold(0.0, f64::max),
        met: Met::of(&measured, &running.stations),
    })
}

const MACHINES: [usize; 3] = [12, 24, 48];
const SPACE_COUNTS: [u16; 2] = [1, 8];

fn ordering(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let mut runs = Vec::new();
    for spaces in SPACE_COUNTS {
        for machines in MACHINES {
            runs.extend(LOADS.map(|in_flight| Run { machines, spaces, in_flight }));
        }
    }
    let given: Result<Vec<Given>, String> = watch.each(&runs, run).into_iter().collect();
    let given = given?;
    let rows: Vec<&[Given]> = given.chunks(LOADS.len()).collect();
    let panels = SPACE_COUNTS.iter().zip(rows.chunks(MACHINES.len())).map(|(&spaces, rows)| {
        let curves = MACHINES.iter().zip(rows).enumerate();
        let mut series: Vec<Series> = curves
            .map(|(colour, (machines, given))| {
                Series::ours(format!("{machines} proxy machines"), colour, points(given))
            })
            .collect();
        if spaces == 1 {
            let papers = [(16.7e6, 243.0), (31.5e6, 243.0)];
            series.push(Series::paper("the paper, 24 and 48 machines", 6, &papers));
        }
        Panel {
            title: format!("{spaces} space{}", if spaces == 1 { "" } else { "s" }),
            x: Axis::linear("operations ordered a second", Unit::PerSecond),
            y: Axis::linear("median latency (us)", Unit::Micros),
            series,
            bars: Vec::new(),
        }
    });
    let runs = [("4 in flight", &rows[2][0].met), ("60, as in the paper", &rows[2][PAPERS_LOAD].met)];
    let table = breakdown::table(
        "Where an operation's time goes, 48 machines and 1 space",
        &WAY,
        "the rest: waiting for a slot among the batches in flight, and cards",
        &Profile::d430(),
        &runs,
    );
    let title = "Ordering by the number of proxies and of sequence spaces".into();
    let (panels, claims) = (panels.collect(), ordering_claims(&rows));
    Ok(Drawing { title, subtitle: TESTBED.into(), panels, claims, tables: vec![table] })
}

fn points(given: &[Given]) -> Vec<Point> {
    let point = |given: &Given| Point {
        x: given.throughput,
        y: given.median.as_secs_f64() * 1e6,
        note: format!(
            "99 % within {:.0} us; {} {:.0} % busy, sequencer {:.0} %",
            given.tail.as_secs_f64() * 1e6,
            given.busiest.0,
            given.busiest.1 * 100.0,
            given.sequencer * 100.0
        ),
    };
    given.iter().map(point).collect()
}

/// `rows`: of one space and then of eight, by machines.
fn ordering_claims(rows: &[&[Given]]) -> Vec<PaperClaim> {
    let at = |row: usize| &rows[row][PAPERS_LOAD];
    let rate = |row: usize| at(row).throughput;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let sequencer = rows[2].iter().map(|given| given.sequencer).fold(0.0, f64::max);
    vec![
        PaperClaim::rate("24 proxy machines, 1 space", 16.7e6, rate(1)),
        PaperClaim::rate("48 proxy machines, 1 space", 31.5e6, rate(2)).of(ClaimKind::Fit),
        PaperClaim::micros("the same, median latency", 243.0, micros(at(2).median))
            .of(ClaimKind::Fit)
            .because("as many calls in flight as in the paper: what the rate says, said again"),
        PaperClaim::micros("the same, 99 % within", 380.0, micros(at(2).tail)),
        PaperClaim::ratio("48 machines over 24, 1 space", 31.5 / 16.7, rate(2) / rate(1)),
        PaperClaim::shape(
            "48 machines over 24, 8 spaces",
            rate(5) / rate(4),
            AcceptedRange::Between(1.8, 2.2),
        )
        .because("\"roughly doubles for each sequence space count\""),
        PaperClaim::shape("8 spaces over 1, 48 machines", rate(5) / rate(2), AcceptedRange::AtMost(0.9))
            .because("\"as spaces increase, throughput per proxy machine decreases\""),
        PaperClaim::micros("8 spaces, median latency", 358.0, micros(at(5).median))
            .because("the paper does not say with how many calls in flight"),
        PaperClaim::micros("8 spaces, 99 % within", 693.0, micros(at(5).tail)).because("the same"),
        PaperClaim::shape(
            "the sequencer's share of its time at 48 machines",
            sequencer,
            AcceptedRange::AtMost(0.9),
        )
        .because("\"we cannot saturate the sequencer\""),
    ]
}

const PROXIES_FAIL: Duration = Duration::from_secs(10);
const SEQUENCER_FAILS: Duration = Duration::from_secs(20);
const ENDS: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SPACES: u16 = 4;
/// The load is small: contiguity and times are in question here, not throughput.
const ASKS_PER_SECOND: f64 = 2_000.0;
/// Just before each failure there is as much in flight as under full load, or a failure would strike nothing.
const RUSH: Duration = Duration::from_millis(2);
const RUSH_PER_SECOND: f64 = 500_000.0;
/// The longest span without progress that counts as none.
const FLAT_AFTER: Duration = Duration::from_millis(60);

/// The highest number of a space up to which every one is assigned, looked at again and again.
struct Contiguous {
    space: Space,
    reached: u64,
}

impl Contiguous {
    fn look(&mut self, running: &Running, groups: usize) {
        let assigned = |number: u64| {
            let placed = Placed { space: self.space, number: Number(number) };
            let knows = |group, member| {
                running.machine(group, member).is_some_and(|machine| machine.view().contains(&placed))
            };
            // The second member of each group outlives both failures.
            (0..groups).any(|group| knows(group, 1))
        };
        while assigned(self.reached + 1) {
            self.reached += 1;
        }
    }
}

fn failures(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let deployment = OrderingDeployment {
        by_followers: true,
        parameters: MasonParameters::default(),
        // Raft's timeouts in the paper are between 1 and 2 seconds.
        election_timeout: Duration::from_secs(1),
        ..OrderingDeployment::new(6, SPACES, 4)
    };
    let mut running = Running::start(&deployment, &Profile::d430(), 1).map_err(|error| error.to_string())?;
    let begins = running.testbed.now();
    for host in running.leaders_of_machine(0) {
        running.testbed.crash_at(host, begins + PROXIES_FAIL);
    }
    let sequencer = running.sequencer().ok_or("no sequencer is known")?;
    running.testbed.crash_at(sequencer, begins + SEQUENCER_FAILS);
    let clients = running.clients.clone();
    running.testbed.begin_load(&clients, Pace::Open { per_second: ASKS_PER_SECOND });
    let mut load = Asks::of_all(SPACES).retained(SPACES);
    let mut spaces: Vec<Contiguous> =
        (0..SPACES).map(|space| Contiguous { space: Space(space), reached: 0 }).collect();
    let mut lines: Vec<Vec<Point>> = vec![Vec::new(); usize::from(SPACES)];
    let steps = ENDS.as_millis() / LOOK_EVERY.as_millis();
    let mut flat: Vec<(Duration, Duration)> = Vec::new();
    let mut progress_at = Duration::ZERO;
    for step in 1..=steps as usize {
        let now = LOOK_EVERY * step as u32;
        if now == PROXIES_FAIL || now == SEQUENCER_FAILS {
            running.testbed.run_load_for(LOOK_EVERY - RUSH, &mut load);
            running.testbed.set_pace(Pace::Open { per_second: RUSH_PER_SECOND });
            running.testbed.run_load_for(RUSH, &mut load);
            running.testbed.set_pace(Pace::Open { per_second: ASKS_PER_SECOND });
        } else {
            running.testbed.run_load_for(LOOK_EVERY, &mut load);
        }
        let before = spaces[0].reached;
        for (space, line) in spaces.iter_mut().zip(&mut lines) {
            space.look(&running, deployment.groups);
            line.push(Point { x: now.as_secs_f64(), y: space.reached as f64, note: String::new() });
        }
        if spaces[0].reached > before {
            if now - progress_at > FLAT_AFTER {
                flat.push((progress_at, now - progress_at));
            }
            progress_at = now;
        }
        if step % 50 == 0 {
            (watch.progress)(step, steps as usize);
        }
    }
    let longest = |from: Duration| {
        let near = flat
            .iter()
            .filter(|(at, _)| *at + Duration::from_secs(1) > from && *at < from + Duration::from_secs(9));
        near.map(|(_, lasted)| lasted.as_secs_f64()).fold(0.0, f64::max)
    };
    let (proxies, sequencer) = (longest(PROXIES_FAIL), longest(SEQUENCER_FAILS));
    let answered = load.answered.unwrap_or_default();
    let gaps = answered.first().map_or(0, |numbers| spaces[0].reached.saturating_sub(numbers.len() as u64));
    let together = spaces.iter().filter(|space| space.reached.abs_diff(spaces[0].reached) <= 64).count();
    let reached = spaces[0].reached as f64;
    Ok(failures_drawn(lines, reached, (proxies, sequencer), gaps, together))
}

fn failures_drawn(
    lines: Vec<Vec<Point>>,
    reached: f64,
    (proxies, sequencer): (f64, f64),
    gaps: u64,
    together: usize,
) -> Drawing {
    let series = lines
        .into_iter()
        .enumerate()
        .map(|(space, line)| Series::ours(format!("space {space}"), space, line))
        .collect();
    let panel = Panel {
        title: "8 of 16 proxy leaders stop at 10 s, the sequencer at 20 s".into(),
        x: Axis::linear("seconds", Unit::Seconds),
        y: Axis::linear("highest number without a gap below it", Unit::PerSecond),
        series,
        bars: Vec::new(),
    };
    let expected = ASKS_PER_SECOND * ENDS.as_secs_f64() + 2.0 * RUSH_PER_SECOND * RUSH.as_secs_f64();
    let claims = vec![
        PaperClaim::seconds("no progress after proxies stop", 3.06, proxies)
            .because("both wait 1 to 2 s at random for an election; ours has no more to wait for"),
        PaperClaim::seconds("no progress after the sequencer stops", 2.38, sequencer)
            .because("suspected after 150 ms here, after 1 s in the paper"),
        PaperClaim::shape(
            "numbers reached over operations asked",
            reached / expected,
            AcceptedRange::AtLeast(0.95),
        )
        .because(format!("{gaps} of them not answered: no-ops, and what stopped replicas owed")),
        PaperClaim::count("spaces that advance together", usize::from(SPACES), together),
    ];
    let title = "A contiguous sequence over two failures".into();
    let subtitle = format!("{TESTBED}; {ASKS_PER_SECOND:.0} operations a second on {SPACES} spaces");
    Drawing { title, subtitle, panels: vec![panel], claims, tables: Vec::new() }
}
