//! Writers in each region of the demo, with a recorded history, and what it says: whether something acknowledged was lost or is there
//! twice, whether all is causal, and how long appends took with and without a cut.

use super::sessions::{Plays, ReadBack, number_of};
use consistency::history::{Draft, History};
use consistency::{Model, Process, Time, Verdict, check};
use ordinate_client::{FuzzyError, FuzzyLog};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{RwLock, RwLockWriteGuard};

/// What is written to; few, so that writers meet.
pub(super) const COLOURS: [&str; 3] = ["red", "blue", "green"];
pub(super) const WRITERS: usize = 2;
/// The pause between two steps of a writer.
const THINK: Duration = Duration::from_millis(20);
/// Somebody who is not answered tries again after this.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// More are not recorded: writers rest from then on.
const APPENDS_MAX: usize = 50_000;

/// A step of a writer in one colour. Its number is the only one of its writer's name.
enum Step {
    /// So far it has played: the last number of each writer.
    Played(Plays),
    Appended {
        writer: Arc<str>,
        number: u64,
        is_acknowledged: bool,
    },
}

struct Operation {
    process: u64,
    colour: &'static str,
    invoked: u64,
    completed: u64,
    step: Step,
}

/// An append that was acknowledged: in which region it is where.
#[derive(Clone)]
pub(super) struct Acknowledged {
    pub(super) region: usize,
    pub(super) colour: String,
    pub(super) position: u64,
    pub(super) body: String,
}

/// How long an append took that was acknowledged.
#[derive(Clone, Copy)]
struct Call {
    region: usize,
    took: Duration,
    in_cut: bool,
}

#[derive(Default)]
struct Record {
    operations: Vec<Operation>,
    acknowledged: Vec<Acknowledged>,
    calls: Vec<Call>,
    writers: BTreeSet<Arc<str>>,
    appends: usize,
    /// The first node that a writer played twice, or in another order than its own writer's.
    disorder: Option<String>,
}

struct Shared {
    begun: Instant,
    record: Mutex<Record>,
    /// Writers hold it in a step.
    steps: RwLock<()>,
    is_cut: AtomicBool,
}

/// The writers of all regions.
pub(super) struct Writers {
    shared: Arc<Shared>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

impl Writers {
    /// Starts them: each has a session of its region.
    pub(super) fn start(regions: &[(String, FuzzyLog)]) -> Self {
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            record: Mutex::default(),
            steps: RwLock::default(),
            is_cut: AtomicBool::new(false),
        });
        let mut tasks = Vec::new();
        for (region, (name, log)) in regions.iter().enumerate() {
            for number in 0..WRITERS {
                let writer = Writer {
                    shared: Arc::clone(&shared),
                    log: log.session(),
                    region,
                    process: (region * WRITERS + number) as u64,
                    named: format!("{name}.{number}"),
                    name: Arc::from(format!("{name}.{number}")),
                    plays: Default::default(),
                    number: 0,
                };
                tasks.push(tokio::spawn(writer.run()));
            }
        }
        Self { shared, tasks }
    }

    pub(super) fn set_cut(&self, is_cut: bool) {
        self.shared.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// They rest for as long as this is held.
    pub(super) async fn rest(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.steps.write().await
    }

    /// Somebody else has appended.
    pub(super) fn acknowledge(&self, acknowledged: Acknowledged) {
        self.shared.record().acknowledged.push(acknowledged);
    }

    pub(super) fn acknowledged(&self) -> Vec<Acknowledged> {
        self.shared.record().acknowledged.clone()
    }

    pub(super) fn stop(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }

    /// A region was read to the end by somebody who has seen nothing before.
    pub(super) fn has_read(&self, colour: &'static str, read: &ReadBack) {
        let now = self.shared.now();
        let mut record = self.shared.record();
        // Each reader is a process of its own.
        let process = (1 << 32) + record.operations.len() as u64;
        let step = Step::Played(read.plays.clone());
        record.operations.push(Operation { process, colour, invoked: now, completed: now, step });
        record.disorder = record.disorder.take().or_else(|| read.disorder.clone());
    }

    /// What is wrong with all that was recorded, and how many operations that is.
    pub(super) fn judge(&self) -> (usize, Option<String>) {
        let record = self.shared.record();
        let mut violation = record.disorder.clone();
        for colour in COLOURS {
            if violation.is_none() {
                violation = violation_of(&record.history(colour)).map(|why| format!("{colour}: {why}"));
            }
        }
        (record.operations.len(), violation)
    }

    /// How long the appends of a region took, without a cut and in one.
    pub(super) fn print_calls(&self, region: usize, name: &str) {
        let record = self.shared.record();
        let of = |in_cut: bool| {
            let calls = record.calls.iter().filter(|call| call.region == region && call.in_cut == in_cut);
            let mut took: Vec<Duration> = calls.map(|call| call.took).collect();
            took.sort_unstable();
            let ms = |at: usize| took.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e3);
            let (middle, last) = (ms(took.len() / 2), ms(took.len().saturating_sub(1)));
            format!("appends {}, median {middle:.1} ms, longest {last:.0} ms", took.len())
        };
        println!("  {name:<8}{}", of(false));
        if record.calls.iter().any(|call| call.in_cut) {
            println!("  {:<8}{}", "  cut", of(true));
        }
        if record.appends >= APPENDS_MAX {
            println!("  the writers rest: they have appended {APPENDS_MAX} nodes");
        }
    }
}

/// Why a colour's history is not causal; none if it is.
fn violation_of(history: &History) -> Option<String> {
    match check(history, Model::CausalPlus) {
        Ok(Verdict::Holds) => None,
        Ok(verdict) => Some(format!("{verdict:?}")),
        Err(error) => Some(error.to_string()),
    }
}

impl Record {
    /// A colour as registers: one for each writer, which holds its last number. Only nodes of one colour have an order.
    fn history(&self, colour: &str) -> History {
        let mut history = History::new().with_initial(0);
        for operation in self.operations.iter().filter(|operation| operation.colour == colour) {
            let (invoked, completed) = (Time(operation.invoked), Time(operation.completed));
            let mut draft = Draft::new(Process(operation.process), invoked, completed);
            match &operation.step {
                Step::Played(plays) => {
                    for writer in &self.writers {
                        let last = plays.get(writer).copied().unwrap_or(0);
                        draft = draft.read(&**writer, last as i64);
                    }
                }
                Step::Appended { writer, number, is_acknowledged } => {
                    draft = draft.write(&**writer, *number as i64);
                    if !is_acknowledged {
                        draft = draft.unknown();
                    }
                }
            }
            history.add(draft);
        }
        history
    }
}

struct Writer {
    shared: Arc<Shared>,
    log: FuzzyLog,
    region: usize,
    process: u64,
    named: String,
    /// Another one after an append whose fate is not known: that one may come later than those behind it.
    name: Arc<str>,
    plays: [ReadBack; COLOURS.len()],
    number: u64,
}

impl Writer {
    async fn run(mut self) {
        let names = COLOURS.map(|colour| self.log.new_instance(colour, None));
        let Ok(mut instances) = names.into_iter().collect::<Result<Vec<_>, FuzzyError>>() else { return };
        loop {
            let shared = Arc::clone(&self.shared);
            let step = shared.steps.read().await;
            let has_room = shared.record().appends < APPENDS_MAX;
            let first = (self.number + self.process) as usize % COLOURS.len();
            let done = has_room && self.play(&mut instances[first], first).await && self.append(first).await;
            drop(step);
            tokio::time::sleep(if done { THINK } else { TRY_AGAIN_AFTER }).await;
        }
    }

    async fn play(&mut self, instance: &mut ordinate_client::FuzzyInstance, colour: usize) -> bool {
        let invoked = self.shared.now();
        let read = &mut self.plays[colour];
        if instance.sync(|node| read.take(node)).await.is_err() {
            return false;
        }
        let completed = self.shared.now();
        let (step, colour) = (Step::Played(read.plays.clone()), COLOURS[colour]);
        let mut record = self.shared.record();
        record.disorder = record.disorder.take().or_else(|| read.disorder.clone());
        record.operations.push(Operation { process: self.process, colour, invoked, completed, step });
        true
    }

    /// Every third node is in two colours.
    async fn append(&mut self, first: usize) -> bool {
        self.number += 1;
        let second = (first + 1) % COLOURS.len();
        let colours = if self.number.is_multiple_of(3) {
            vec![COLOURS[first], COLOURS[second]]
        } else {
            vec![COLOURS[first]]
        };
        let body = format!("{} {}", self.name, self.number);
        let in_cut = self.shared.is_cut.load(Ordering::Relaxed);
        self.shared.record().writers.insert(Arc::clone(&self.name));
        let (invoked, begun) = (self.shared.now(), Instant::now());
        let appended = self.log.append(&colours, body.clone()).await;
        let (completed, took) = (self.shared.now(), begun.elapsed());
        if appended.as_ref().is_err_and(FuzzyError::is_surely_void) {
            return false;
        }
        let is_acknowledged = appended.is_ok();
        {
            let mut record = self.shared.record();
            record.appends += 1;
            for &colour in &colours {
                let writer = Arc::clone(&self.name);
                let step = Step::Appended { writer, number: self.number, is_acknowledged };
                record.operations.push(Operation { process: self.process, colour, invoked, completed, step });
            }
            if let Ok(appended) = appended {
                record.calls.push(Call { region: self.region, took, in_cut });
                for (colour, position) in appended.positions {
                    let body = body.clone();
                    record.acknowledged.push(Acknowledged { region: self.region, colour, position, body });
                }
            }
        }
        if !is_acknowledged {
            self.name = Arc::from(format!("{}.{}", self.named, self.number));
        }
        is_acknowledged
    }
}

/// True of what a writer may append.
pub(super) fn is_a_writers(body: &str) -> bool {
    number_of(body).is_some()
}
