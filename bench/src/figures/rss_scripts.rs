//! Helt et al., Figure 4, Table 1 and appendix A: single executions, played by the engine's roles or judged by the checker.

use super::Figure;
use super::drawing::{AcceptedRange, Axis, Drawing, Panel, PaperClaim, Point, Series, Table, Unit};
use super::measure::RunWatch;
use super::rss::over_three_regions;
use crate::profile::Profile;
use crate::transactions::{Script, ScriptedCall};
use consistency::{Model, check, litmus};
use kernel::Bytes;
use spanner::{ShardId, shard_of};
use std::time::Duration;
use wire::txn::{CallKey, KeyWrite, OneShot, ReadOnly, Timestamp, TxnLevel, TxnReply};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "rss-4",
        source: "RSS, Figure 4",
        title: "A read that strict serializability has wait, and RSS does not",
        remarks: include_str!("page/rss-4.txt"),
        draw: one_execution,
    },
    Figure {
        name: "rss-table1",
        source: "RSS, Table 1",
        title: "Invariants and anomalies of the photo-sharing application",
        remarks: include_str!("page/rss-table1.txt"),
        draw: photos,
    },
    Figure {
        name: "rss-litmus",
        source: "RSS, Figures 9 to 16",
        title: "Executions that models allow or forbid",
        remarks: include_str!("page/rss-litmus.txt"),
        draw: executions,
    },
];

const CALIFORNIA: usize = 0;
const VIRGINIA: usize = 1;
const IRELAND: usize = 2;
const COORDINATOR: ShardId = ShardId(CALIFORNIA as u16);
const PARTICIPANT: ShardId = ShardId(VIRGINIA as u16);
/// From California to Ireland.
const ANSWER_TRAVELS: Duration = Duration::from_millis(68);
const SHARDS: u16 = 3;
const WRITER: u64 = 2;

/// A key of this name on a shard.
fn key_on(shard: ShardId, name: &str) -> Bytes {
    let named = (0..u64::MAX).map(|number| Bytes::from(format!("{name}/{number}")));
    let mut there = named.filter(|key| shard_of(key, 0, SHARDS) == shard);
    there.next().unwrap_or_default()
}

fn read(token: Timestamp, level: TxnLevel, keys: Vec<Bytes>) -> ReadOnly {
    ReadOnly { id: 1, token, level, keys, scans: Vec::new() }
}

/// A commit of both keys that the first one's shard decides.
fn commit(number: u64, keys: [&Bytes; 2]) -> OneShot {
    let value = Bytes::from(format!("{number}"));
    let write = |key: &Bytes| KeyWrite { key: key.clone(), value: Some(value.clone()) };
    OneShot {
        id: 1,
        token: Timestamp(0),
        // The coordinator is found by the sum of both: it is even.
        key: Some(CallKey { session: WRITER * number, number: 0 }),
        acknowledged: 0,
        conditions: Vec::new(),
        writes: keys.map(write).to_vec(),
        reads: Vec::new(),
        otherwise: Vec::new(),
    }
}

fn token_of(reply: &TxnReply) -> Result<Timestamp, String> {
    match reply {
        TxnReply::ReadRows(reply) => Ok(reply.token),
        TxnReply::Committed(reply) => Ok(reply.token),
        other => Err(format!("an answer without a token: {other:?}")),
    }
}

/// The first value of an answer.
fn value_of(reply: &TxnReply) -> Result<Option<Bytes>, String> {
    match reply {
        TxnReply::ReadRows(reply) => Ok(reply.rows.first().and_then(|row| row.value.clone())),
        other => Err(format!("an answer without rows: {other:?}")),
    }
}

/// A writer far from both shards, whose commit is decided and on its way to it.
struct InFlight {
    script: Script,
    keys: [Bytes; 2],
    began: Duration,
    write: ScriptedCall,
    /// The value that it writes.
    value: Bytes,
}

impl InFlight {
    /// Commits often enough that its gateway knows how long that takes, then once more, and stops when the coordinator has decided.
    fn start() -> Result<Self, String> {
        let running =
            over_three_regions().start(&Profile::t2_large(), 1).map_err(|error| error.to_string())?;
        let mut script = Script::new(running);
        let keys = [key_on(COORDINATOR, "photo"), key_on(PARTICIPANT, "album")];
        let mut took = Duration::ZERO;
        for number in 1..=3 {
            let asked = script.ask(IRELAND, commit(number, [&keys[0], &keys[1]]));
            let (answered, reply) = script.await_answer(asked)?;
            token_of(&reply)?;
            took = answered - script.asked_at(asked);
            script.wait_until(answered + Duration::from_secs(1));
        }
        // Leaders that have served readers lately have a horizon in their logs; the first reader would wait for that.
        let asked = script.ask(VIRGINIA, read(Timestamp(0), TxnLevel::Strict, keys.to_vec()));
        script.await_answer(asked)?;
        let began = script.now();
        let write = script.ask(IRELAND, commit(4, [&keys[0], &keys[1]]));
        script.wait_until(began + took - ANSWER_TRAVELS + Duration::from_millis(4));
        Ok(Self { script, keys, began, write, value: Bytes::from_static(b"4") })
    }

    fn since(&self, at: Duration) -> f64 {
        (at - self.began).as_secs_f64() * 1e3
    }
}

/// One call of a timeline.
struct Bar {
    who: &'static str,
    from: f64,
    to: f64,
    saw: bool,
}

impl Bar {
    fn took(&self) -> f64 {
        self.to - self.from
    }
}

fn played(level: TxnLevel) -> Result<Vec<Bar>, String> {
    let mut at = InFlight::start()?;
    let first = at.script.ask(CALIFORNIA, read(Timestamp(0), level, vec![at.keys[0].clone()]));
    let (first_answered, first_reply) = at.script.await_answer(first)?;
    let second = at.script.ask(VIRGINIA, read(Timestamp(0), level, vec![at.keys[1].clone()]));
    let (second_answered, second_reply) = at.script.await_answer(second)?;
    let (ended, _) = at.script.await_answer(at.write)?;
    let saw = |reply: &TxnReply| value_of(reply).map(|value| value.as_ref() == Some(&at.value));
    Ok(vec![
        Bar { who: "C_W", from: 0.0, to: at.since(ended), saw: true },
        Bar {
            who: "C_R1",
            from: at.since(at.script.asked_at(first)),
            to: at.since(first_answered),
            saw: saw(&first_reply)?,
        },
        Bar {
            who: "C_R2",
            from: at.since(at.script.asked_at(second)),
            to: at.since(second_answered),
            saw: saw(&second_reply)?,
        },
    ])
}

/// The bars of one level, one below the other.
fn timeline(colour: usize, level: TxnLevel, bars: &[Bar]) -> Vec<Series> {
    bars.iter()
        .enumerate()
        .map(|(row, bar)| {
            let y = 3.0 - row as f64 + if level == TxnLevel::Rss { 0.2 } else { 0.0 };
            let note = format!("{} at {level}: {:.1} ms", bar.who, bar.took());
            let point = |x: f64| Point { x, y, note: note.clone() };
            let name = if row == 0 { level.name() } else { "" };
            Series::ours(name, colour, vec![point(bar.from), point(bar.to)])
        })
        .collect::<Vec<_>>()
}

fn execution_claims(strict: &[Bar], rss: &[Bar]) -> Vec<PaperClaim> {
    let seen = |bars: &[Bar]| usize::from(bars[1].saw) + usize::from(bars[2].saw);
    let one_trip = 1.0;
    vec![
        PaperClaim::count("strict: readers that see the write", 2, seen(strict)),
        PaperClaim::count("RSS: readers that see the write", 1, seen(rss)),
        PaperClaim::millis(
            "strict: C_R2 waits for two-phase commit",
            10.0,
            strict[2].took(),
            AcceptedRange::AtLeast(10.0),
        )
        .because("the paper draws it without a scale; more than 10 ms is no round trip within a site"),
        PaperClaim::millis(
            "RSS: C_R2 answers at once",
            one_trip,
            rss[2].took(),
            AcceptedRange::AtMost(one_trip),
        )
        .because("a round trip within a site is 0.3 ms here"),
        PaperClaim::shape(
            "C_R2 is done before C_W is, by its end",
            rss[2].to / rss[0].to,
            AcceptedRange::AtMost(1.0),
        ),
    ]
}

fn one_execution(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let levels = [TxnLevel::Strict, TxnLevel::Rss];
    let runs: Result<Vec<Vec<Bar>>, String> =
        watch.each(&levels, |&level| played(level)).into_iter().collect();
    let runs = runs?;
    let [strict, rss] = &runs[..] else { return Err("two levels were played".to_owned()) };
    let rows = levels.iter().zip(&runs).flat_map(|(level, bars)| {
        bars.iter().map(move |bar| {
            let times = [bar.from, bar.to, bar.to - bar.from].map(|millis| format!("{millis:.1}"));
            let saw = if bar.saw { "yes" } else { "no" }.to_owned();
            [level.name().to_owned(), bar.who.to_owned()].into_iter().chain(times).chain([saw]).collect()
        })
    });
    let table = Table {
        title: "What each saw, and when; milliseconds since the commit began".to_owned(),
        heads: ["level", "who", "from", "to", "took", "sees the write"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    let claims = execution_claims(strict, rss);
    Ok(Drawing {
        title: "A reader that has seen a commit obliges all later readers, or those that it informs".to_owned(),
        subtitle: "simulated t2.large machines; the coordinator in California, the participant and C_R2 in Virginia, C_R1 \
                   in California, C_W in Ireland; clocks 10 ms off"
            .to_owned(),
        panels: vec![Panel {
            title: "From top to bottom: C_W, C_R1, C_R2".to_owned(),
            x: Axis::linear("milliseconds since the commit began", Unit::Millis),
            y: Axis::linear("", Unit::Count),
            series: levels.into_iter().zip(&runs).enumerate().flat_map(|(at, (level, bars))| timeline(at, level, bars)).collect(),
            bars: Vec::new(),
        }],
        claims,
        tables: vec![table],
    })
}

/// What a process has of what it saw when it informs another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carries {
    /// Nothing: a telephone call.
    Nothing,
    /// The token of its session.
    Token,
    /// Nothing, but it runs a fence first: a message through another service.
    Fence,
}

/// How a row of the table came out.
struct Seen {
    /// I1: who sees the album's new entry sees the photo.
    album: bool,
    /// I2, after a commit that has ended: a worker finds the photo.
    after_commit: bool,
    /// I2, after a read of what is in flight; without a fence, and with one.
    after_read: [bool; 2],
    /// A1: Alice reads both of her photos.
    both: bool,
    /// A2: Bob sees what Alice has added before she called.
    called: bool,
    /// A3: Bob sees what Alice has seen in flight before she called: now, and when the commit has ended.
    called_in_flight: [bool; 2],
}

/// A writer's commit in flight is seen in California; what does a reader in Virginia see then?
fn after_a_read(level: TxnLevel, carries: Carries, wait: Duration) -> Result<bool, String> {
    let mut at = InFlight::start()?;
    let first = at.script.ask(CALIFORNIA, read(Timestamp(0), first_level(level), vec![at.keys[0].clone()]));
    let (_, reply) = at.script.await_answer(first)?;
    if value_of(&reply)?.as_ref() != Some(&at.value) {
        return Err("the first reader does not see the commit in flight".to_owned());
    }
    let mut token = token_of(&reply)?;
    if carries == Carries::Fence {
        let fence = at.script.ask(CALIFORNIA, wire::txn::Fence { id: 1, token });
        at.script.await_answer(fence)?;
    }
    if carries != Carries::Token {
        token = Timestamp(0);
    }
    let now = at.script.now();
    at.script.wait_until(now + wait);
    let second = at.script.ask(VIRGINIA, read(token, level, vec![at.keys[1].clone()]));
    let (_, reply) = at.script.await_answer(second)?;
    Ok(value_of(&reply)?.as_ref() == Some(&at.value))
}

/// A process-ordered read sees what its replica has; who sees a commit in flight there asks at the leader.
fn first_level(level: TxnLevel) -> TxnLevel {
    if level == TxnLevel::ProcessOrdered { TxnLevel::Rss } else { level }
}

/// A writer commits, and has ended. What does another process read that is informed, with nothing in its hands or with the token?
fn after_a_commit(level: TxnLevel, with_token: bool, both: bool) -> Result<bool, String> {
    let at = InFlight::start()?;
    let InFlight { mut script, keys, write, value, .. } = at;
    let (_, reply) = script.await_answer(write)?;
    let token = if with_token { token_of(&reply)? } else { Timestamp(0) };
    let keys = if both { keys.to_vec() } else { vec![keys[1].clone()] };
    let asked = script.ask(VIRGINIA, read(token, level, keys));
    let (_, reply) = script.await_answer(asked)?;
    match reply {
        TxnReply::ReadRows(reply) => Ok(reply.rows.iter().all(|row| row.value.as_ref() == Some(&value))),
        other => Err(format!("an answer without rows: {other:?}")),
    }
}

/// Reads of album and photo together, at many moments of a commit: both are of it, or none.
fn whole_at_all_times(level: TxnLevel) -> Result<bool, String> {
    let mut at = InFlight::start()?;
    let mut asked = Vec::new();
    for _ in 0..200 {
        for gateway in [CALIFORNIA, VIRGINIA, IRELAND] {
            asked.push(at.script.ask(gateway, read(Timestamp(0), level, at.keys.to_vec())));
        }
        let now = at.script.now();
        at.script.wait_until(now + Duration::from_millis(1));
    }
    for asked in asked {
        let (_, reply) = at.script.await_answer(asked)?;
        let TxnReply::ReadRows(reply) = reply else { return Err(format!("no rows: {reply:?}")) };
        if reply.rows[0].value != reply.rows[1].value {
            return Ok(false);
        }
    }
    Ok(true)
}

fn row(level: TxnLevel) -> Result<Seen, String> {
    let later = Duration::from_secs(2);
    Ok(Seen {
        album: whole_at_all_times(level)?,
        after_commit: after_a_commit(level, false, false)?,
        after_read: [
            after_a_read(level, Carries::Nothing, Duration::ZERO)?,
            after_a_read(level, Carries::Fence, Duration::ZERO)?,
        ],
        both: after_a_commit(level, true, true)?,
        called: after_a_commit(level, false, false)?,
        called_in_flight: [
            after_a_read(level, Carries::Nothing, Duration::ZERO)?,
            after_a_read(level, Carries::Nothing, later)?,
        ],
    })
}

fn photos(watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let levels = [TxnLevel::Strict, TxnLevel::Rss, TxnLevel::ProcessOrdered];
    let seen: Result<Vec<Seen>, String> = watch.each(&levels, |&level| row(level)).into_iter().collect();
    let seen = seen?;
    let verdict = |holds: bool| if holds { "holds" } else { "breaks" }.to_owned();
    let shown = |sees: bool| if sees { "never" } else { "seen" }.to_owned();
    let rows = levels.iter().zip(&seen).map(|(level, seen)| {
        let third = match seen.called_in_flight {
            [true, true] => "never",
            [false, true] => "temporarily",
            [_, false] => "seen",
        };
        vec![
            level.name().to_owned(),
            verdict(seen.album),
            verdict(seen.after_commit && seen.after_read[1]),
            verdict(seen.after_commit && seen.after_read[0]),
            shown(seen.both),
            shown(seen.called),
            third.to_owned(),
        ]
    });
    let heads = ["level", "I1", "I2, with fences", "I2, without", "A1", "A2", "A3"];
    let table = Table {
        title: "As the paper's table has them".to_owned(),
        heads: heads.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    };
    let [strict, rss, process_ordered] = &seen[..] else { return Err("three levels were played".to_owned()) };
    let all = |seen: &Seen| [seen.album, seen.after_commit, seen.after_read[1]].iter().all(|&holds| holds);
    let third = |seen: &Seen| seen.called_in_flight.iter().filter(|&&sees| !sees).count();
    let claims = vec![
        PaperClaim::count("strict: invariants hold", 1, usize::from(all(strict) && strict.after_read[0])),
        PaperClaim::count("strict: anomalies 1, 2, 3 seen", 0, anomalies(strict) + third(strict)),
        PaperClaim::count("RSS: invariants hold, with fences", 1, usize::from(all(rss))),
        PaperClaim::count("RSS: I2 holds without fences", 0, usize::from(rss.after_read[0])),
        PaperClaim::count("RSS: anomalies 1, 2 seen", 0, anomalies(rss)),
        PaperClaim::count("RSS: anomaly 3 seen, and once more later", 1, third(rss)),
        PaperClaim::count("process-ordered: I1 holds", 1, usize::from(process_ordered.album)),
        PaperClaim::count("process-ordered: I2 holds", 0, usize::from(process_ordered.after_commit)),
        PaperClaim::count("process-ordered: anomaly 1 seen", 0, usize::from(!process_ordered.both)),
        PaperClaim::count("process-ordered: anomaly 2 seen", 1, usize::from(!process_ordered.called)),
    ];
    Ok(Drawing {
        title: "What each level shows of a photo that is being added".to_owned(),
        subtitle: "simulated machines in California, Virginia and Ireland; the commit of photo and album is decided in \
                   California and on its way to its writer in Ireland when others look"
            .to_owned(),
        panels: Vec::new(),
        claims,
        tables: vec![table],
    })
}

/// How many of the first two anomalies were seen.
fn anomalies(seen: &Seen) -> usize {
    usize::from(!seen.both) + usize::from(!seen.called)
}

fn executions(_watch: &RunWatch<'_>) -> Result<Drawing, String> {
    let (mut claims, mut rows) = (Vec::new(), Vec::new());
    for execution in litmus::executions() {
        let mut agree = 0;
        for &(model, allowed) in execution.verdicts {
            let verdict = check(&execution.history, model).map_err(|error| error.to_string())?;
            let ours = if verdict.holds() { "allowed" } else { "forbidden" };
            let papers = if allowed { "allowed" } else { "forbidden" };
            agree += usize::from(ours == papers && verdict.is_violated() != allowed);
            rows.push([execution.name, Model::name(model), papers, ours].map(str::to_owned).to_vec());
        }
        claims.push(PaperClaim::count(
            format!("{}: models that answer as the paper", execution.name),
            execution.verdicts.len(),
            agree,
        ));
    }
    let table = Table {
        title: "Each model's answer".to_owned(),
        heads: ["execution", "model", "paper", "here"].map(str::to_owned).to_vec(),
        rows,
    };
    Ok(Drawing {
        title: "The paper's executions, judged by `ordinate check`".to_owned(),
        subtitle: "histories of appendix A and sections 2 and 4.1".to_owned(),
        panels: Vec::new(),
        claims,
        tables: vec![table],
    })
}
