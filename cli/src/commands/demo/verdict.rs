//! A small load with a recorded history, and what it says about a fault: how long nothing was acknowledged, whether an
//! acknowledged write was lost, whether everything was linearizable.

use consistency::kv::{KvCall, KvHistory, KvReply, OperationId};
use consistency::{Process, Time, Value, Version};
use ordinate_client::{CallError, Client, Level};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Keys of one load; few, so that operations meet.
const KEYS: usize = 4;
const CLIENTS: u64 = 4;
/// The pause between two operations of a client.
const THINK: Duration = Duration::from_millis(2);

struct Shared {
    begun: Instant,
    prefix: String,
    history: Mutex<KvHistory>,
    /// When the last write was acknowledged, and the longest pause so far, in nanoseconds since `begun`.
    acknowledged_at: AtomicU64,
    longest_gap: AtomicU64,
    stop: AtomicBool,
}

/// A load in flight.
pub struct Watch {
    shared: Arc<Shared>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

/// What the load showed.
pub struct Verdict {
    /// Operations that were answered or may have been executed.
    pub operations: usize,
    /// The longest time without an acknowledged write.
    pub longest_gap: Duration,
    /// Why the history is not linearizable; none if it is.
    pub violation: Option<String>,
}

impl Shared {
    fn history(&self) -> MutexGuard<'_, KvHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn acknowledged(&self) {
        let now = self.now();
        let before = self.acknowledged_at.swap(now, Ordering::Relaxed);
        self.longest_gap.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

impl Watch {
    /// Starts the load on keys of its own. Each client begins at another of the endpoints.
    pub fn start(endpoints: &[String], round: u64) -> Self {
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            prefix: format!("check/{round}/"),
            history: Mutex::new(KvHistory::new()),
            acknowledged_at: AtomicU64::new(0),
            longest_gap: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let clients = (0..CLIENTS).map(|number| {
            let mut endpoints = endpoints.to_vec();
            let turn = number as usize % endpoints.len();
            endpoints.rotate_left(turn);
            tokio::spawn(client(Arc::clone(&shared), Client::connect(endpoints), number))
        });
        let clients = clients.collect();
        Self { shared, clients }
    }

    /// Waits until a write has been acknowledged after this moment; false if none is in time.
    pub async fn next_acknowledgement(&self, within: Duration) -> bool {
        let (from, deadline) = (self.shared.now(), Instant::now() + within);
        while Instant::now() < deadline {
            if self.shared.acknowledged_at.load(Ordering::Relaxed) > from {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        false
    }

    /// Ends the load, reads every key once more, and judges.
    pub async fn finish(self) -> Verdict {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            // A client that panicked has recorded what it knew.
            let _ = client.await;
        }
        let history = self.shared.history();
        let verdict = history.check_linearizable();
        Verdict {
            operations: history.len(),
            longest_gap: Duration::from_nanos(self.shared.longest_gap.load(Ordering::Relaxed)),
            violation: (!verdict.holds()).then(|| format!("{verdict:?}")),
        }
    }
}

async fn client(shared: Arc<Shared>, client: Client, number: u64) {
    let client = client.with_timeout(Duration::from_secs(5));
    let (mut step, mut incarnations) = (0u64, 0u64);
    while !shared.stop.load(Ordering::Relaxed) {
        step += 1;
        // Golden-ratio steps visit the keys evenly and differ between clients.
        let key = ((step + number * 7).wrapping_mul(0x9e37_79b9) >> 16) as usize % KEYS;
        let process = Process(incarnations << 8 | number);
        if !operate(&shared, &client, process, key, step, number).await {
            // After an unknown outcome the client goes on as another process.
            incarnations += 1;
        }
        tokio::time::sleep(THINK).await;
    }
    let process = Process(incarnations << 8 | number);
    for key in 0..KEYS {
        read(&shared, &client, process, &format!("{}{key}", shared.prefix)).await;
    }
}

async fn operate(
    shared: &Shared,
    client: &Client,
    process: Process,
    key: usize,
    step: u64,
    number: u64,
) -> bool {
    let key = format!("{}{key}", shared.prefix);
    if step.is_multiple_of(3) {
        return read(shared, client, process, &key).await;
    }
    let value = format!("{number}.{step}");
    let call = KvCall::Put(Value::from(value.as_str()));
    let id = shared.history().invoke(process, &key, call, Time(shared.now()));
    let answer = client.put(&key, &value).await;
    if answer.is_ok() {
        shared.acknowledged();
    }
    record(shared, id, answer.map(|version| KvReply::written(Version(version))))
}

async fn read(shared: &Shared, client: &Client, process: Process, key: &str) -> bool {
    let id = shared.history().invoke(process, key, KvCall::Get, Time(shared.now()));
    let answer = client.get(key, Level::Linearizable).await.map(|found| match found {
        None => KvReply::absent(),
        Some(found) => {
            let value = String::from_utf8_lossy(&found.value).into_owned();
            KvReply::found(Value::from(value.as_str()), Version(found.version))
        }
    });
    record(shared, id, answer)
}

/// False if the outcome is unknown.
fn record(shared: &Shared, id: OperationId, answer: Result<KvReply, CallError>) -> bool {
    let mut history = shared.history();
    match answer {
        Ok(reply) => {
            history.complete(id, reply, Time(shared.now()));
            true
        }
        Err(CallError::Refused | CallError::Invalid(_)) => {
            history.fail(id, Time(shared.now()));
            true
        }
        Err(_) => {
            history.unknown(id);
            false
        }
    }
}
