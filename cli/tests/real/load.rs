//! A load whose history is recorded on one monotonic clock and judged: puts, gets, compare-and-sets, increments.

use consistency::kv::{Expected, KvCall, KvHistory, KvReply, KvVerdict, OperationId};
use consistency::{Process, Time, Value, Version};
use kv::{Answer, Command};
use ordinate_client::{CallError, Client, Expect, Level, Swap, Versioned};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Registers of a load; few, so that operations meet.
const REGISTERS: u64 = 6;
/// Counters: an increment that is lost or executed twice shows in every later one.
const COUNTERS: u64 = 2;
/// The pause between two operations of a client.
const THINK: Duration = Duration::from_millis(2);

struct Shared {
    begun: Instant,
    prefix: String,
    history: Mutex<KvHistory>,
    /// When writes were acknowledged, in nanoseconds since `begun`, and to which client.
    acknowledged: Mutex<Vec<(u64, u64)>>,
    clients: AtomicU64,
    processes: AtomicU64,
    stop: AtomicBool,
    errors: Mutex<Vec<String>>,
}

/// A load in flight. It goes on until it is finished.
pub struct Load {
    shared: Arc<Shared>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// What a load showed.
pub struct Verdict {
    /// Operations answered.
    pub answered: usize,
    /// Writes acknowledged.
    pub writes: usize,
    /// What errors clients received, each once.
    pub errors: Vec<String>,
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, KvHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acknowledged(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

impl Load {
    /// A load on keys of its own, one client task for each of `clients`.
    pub fn start(name: &str, clients: Vec<Client>) -> Self {
        let mut load = Self {
            shared: Arc::new(Shared {
                begun: Instant::now(),
                prefix: format!("load/{name}/"),
                history: Mutex::new(KvHistory::new()),
                acknowledged: Mutex::new(Vec::new()),
                clients: AtomicU64::new(0),
                processes: AtomicU64::new(0),
                stop: AtomicBool::new(false),
                errors: Mutex::new(Vec::new()),
            }),
            tasks: Vec::new(),
        };
        load.join(clients);
        load
    }

    /// More clients.
    pub fn join(&mut self, clients: Vec<Client>) {
        for client in clients {
            let number = self.shared.clients.fetch_add(1, Ordering::Relaxed);
            let one = One { shared: Arc::clone(&self.shared), client, number, process: Process(0), seen: 0 };
            self.tasks.push(tokio::spawn(one.run()));
        }
    }

    /// Nanoseconds on this load's clock.
    pub fn now(&self) -> u64 {
        self.shared.now()
    }

    /// Waits until `more` further writes are acknowledged, counted from now.
    pub async fn until_acknowledged(&self, more: usize, within: Duration) {
        let wanted = self.shared.acknowledged().len() + more;
        let deadline = Instant::now() + within;
        while self.shared.acknowledged().len() < wanted {
            let errors = || self.shared.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let missing = wanted - self.shared.acknowledged().len();
            assert!(
                Instant::now() < deadline,
                "{missing} of {more} writes not acknowledged within {within:?}; errors: {:?}",
                errors()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until every client has had a write acknowledged after `from`.
    pub async fn until_everybody_is_served(&self, from: u64, within: Duration) {
        let deadline = Instant::now() + within;
        while self.last_client_served_after(from).is_none() {
            assert!(Instant::now() < deadline, "a client had no write acknowledged within {within:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// How long after `from` every client had had a write acknowledged.
    pub fn last_client_served_after(&self, from: u64) -> Option<Duration> {
        let acknowledged = self.shared.acknowledged();
        let clients = self.shared.clients.load(Ordering::Relaxed);
        let first_of = |client| {
            let mut after = acknowledged.iter().rev().take_while(|(at, _)| *at > from);
            let mut first = None;
            for (at, who) in &mut after {
                if *who == client {
                    first = Some(*at);
                }
            }
            first
        };
        let latest = (0..clients).map(first_of).collect::<Option<Vec<_>>>()?.into_iter().max()?;
        Some(Duration::from_nanos(latest - from))
    }

    /// The longest time without an acknowledged write from `from` on.
    pub fn longest_gap_after(&self, from: u64) -> Duration {
        let acknowledged = self.shared.acknowledged();
        let mut times: Vec<u64> = acknowledged.iter().map(|(at, _)| *at).filter(|&at| at > from).collect();
        times.push(self.now());
        // Clients read the clock before they take the lock: the list is sorted only nearly.
        times.sort_unstable();
        let mut before = from;
        let gaps = times.into_iter().map(|at| at - std::mem::replace(&mut before, at));
        Duration::from_nanos(gaps.max().unwrap_or(0))
    }

    /// Ends the load, has every client read every key once more, and judges: panics if the history is not linearizable.
    pub async fn finish(self) -> Verdict {
        self.shared.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a client does not panic");
        }
        let history = self.shared.history();
        let verdict = history.check_linearizable();
        let KvVerdict::Holds { answered, .. } = verdict else {
            let file = format!("{}/violation-{}.jsonl", env!("CARGO_TARGET_TMPDIR"), std::process::id());
            let _ = std::fs::File::create(&file).map(|mut out| history.write_jsonl(&mut out));
            panic!("not linearizable (history in {file}): {verdict:?}");
        };
        let acknowledged = self.shared.acknowledged();
        let mut errors = self.shared.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        errors.sort();
        errors.dedup();
        Verdict { answered, writes: acknowledged.len(), errors }
    }
}

/// One client: a process of the history until an outcome is unknown, then another one.
struct One {
    shared: Arc<Shared>,
    client: Client,
    number: u64,
    process: Process,
    /// A version this client has seen, for compare-and-set.
    seen: u64,
}

impl One {
    fn become_another_process(&mut self) {
        self.process = Process(self.shared.processes.fetch_add(1, Ordering::Relaxed));
    }

    async fn run(mut self) {
        self.become_another_process();
        let mut step = 0u64;
        while !self.shared.stop.load(Ordering::Relaxed) {
            step += 1;
            // Golden-ratio steps visit keys and kinds evenly, and differ between clients.
            let draw = (step + self.number * 7_919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let register = format!("{}r{}", self.shared.prefix, draw % REGISTERS);
            let counter = format!("{}n{}", self.shared.prefix, draw % COUNTERS);
            let value = format!("{}.{step}", self.number);
            match (draw / 64) % 10 {
                0..4 => self.put(&register, &value).await,
                4..6 => self.read(&register).await,
                6..8 => self.increment(&counter).await,
                8 => self.compare_and_set(&register, &value).await,
                _ => self.read(&counter).await,
            }
            tokio::time::sleep(THINK).await;
        }
        for key in 0..REGISTERS {
            self.read(&format!("{}r{key}", self.shared.prefix)).await;
        }
        for key in 0..COUNTERS {
            self.read(&format!("{}n{key}", self.shared.prefix)).await;
        }
    }

    fn invoke(&self, key: &str, call: KvCall) -> OperationId {
        let mut history = self.shared.history();
        history.invoke(self.process, key, call, Time(self.shared.now()))
    }

    fn record(&mut self, id: OperationId, answer: Result<KvReply, CallError>, writes: bool) {
        let now = self.shared.now();
        let unknown = {
            let mut history = self.shared.history();
            match &answer {
                Ok(reply) => {
                    history.complete(id, reply.clone(), Time(now));
                    false
                }
                Err(CallError::Refused | CallError::Invalid(_)) => {
                    history.fail(id, Time(now));
                    false
                }
                Err(_) => {
                    history.unknown(id);
                    true
                }
            }
        };
        if let Err(error) = &answer {
            let mut errors = self.shared.errors.lock().unwrap_or_else(PoisonError::into_inner);
            errors.push(error.to_string());
        } else if writes {
            self.shared.acknowledged().push((now, self.number));
        }
        if unknown {
            self.become_another_process();
        }
    }

    async fn put(&mut self, key: &str, value: &str) {
        let id = self.invoke(key, KvCall::Put(Value::from(value)));
        let answer = self.client.put(key, value).await;
        self.record(id, answer.map(|version| KvReply::written(Version(version))), true);
    }

    async fn increment(&mut self, key: &str) {
        let id = self.invoke(key, KvCall::Increment(1));
        let answer = self.client.execute(&Command::Increment { key: key.as_bytes(), by: 1 }).await;
        let answer = answer.map(|answer| match answer {
            Answer::Counted { number, version, .. } => KvReply::incremented(number, Version(version)),
            other => panic!("increment answered with {other:?}"),
        });
        self.record(id, answer, true);
    }

    async fn compare_and_set(&mut self, key: &str, value: &str) {
        if self.seen == 0 {
            return self.read(key).await;
        }
        let expected = Expected::Version(Version(self.seen));
        let id = self.invoke(key, KvCall::CompareAndSet { expected, value: Value::from(value) });
        let expect = Expect::Version(self.seen);
        let answer = self.client.compare_and_set(key, expect, Some(value.as_bytes())).await;
        let swapped = matches!(answer, Ok(Swap::Done { .. }));
        let answer = answer.map(|swap| match swap {
            Swap::Done { version } => KvReply::written(Version(version)),
            Swap::Mismatch { found: None } => KvReply::absent(),
            Swap::Mismatch { found: Some(Versioned { version, .. }) } | Swap::MismatchAt { version } => {
                self.seen = version;
                KvReply::refused(Version(version))
            }
        });
        self.record(id, answer, swapped);
    }

    async fn read(&mut self, key: &str) {
        let id = self.invoke(key, KvCall::Get);
        let answer = self.client.get(key, Level::Linearizable).await;
        let answer = answer.map(|found| match found {
            None => KvReply::absent(),
            Some(found) => {
                let text = String::from_utf8_lossy(&found.value).into_owned();
                let value = match text.parse::<i64>() {
                    Ok(number) => Value::Int(number),
                    Err(_) => Value::from(text.as_str()),
                };
                self.seen = found.version;
                KvReply::found(value, Version(found.version))
            }
        });
        self.record(id, answer, false);
    }
}
