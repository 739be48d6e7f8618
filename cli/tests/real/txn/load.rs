//! A load of transactions whose history is recorded on one monotonic clock and judged: transfers between accounts, reads of all
//! accounts at every level, and Retwis.

use consistency::history::{Draft, History, Timestamp as Version};
use consistency::{Level, Model, Process, Time, check};
use ordinate_client::{KeyRow, OneShotOutcome, ReadResult, Timestamp, TxnClient, TxnError, TxnLevel};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Accounts of a load; few, so that transactions meet.
const ACCOUNTS: u64 = 12;
/// What each holds at first.
const BALANCE: i64 = 100;
/// Keys of Retwis.
const USERS: u64 = 40;
/// The pause between two transactions of a client.
const THINK: Duration = Duration::from_millis(2);
/// How far a stale read may lie behind.
const STALE: Duration = Duration::from_millis(50);

struct Shared {
    begun: Instant,
    prefix: String,
    drafts: Mutex<Vec<Draft>>,
    /// When commits were acknowledged, in nanoseconds since `begun`, and to which client.
    acknowledged: Mutex<Vec<(u64, u64)>>,
    processes: AtomicU64,
    writes: AtomicU64,
    stop: AtomicBool,
    errors: Mutex<Vec<String>>,
}

/// A load in flight. It goes on until it is finished.
pub struct TxnLoad {
    shared: Arc<Shared>,
    clients: usize,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// What a load showed.
pub struct Shown {
    /// Transactions that were answered.
    pub answered: usize,
    /// Commits acknowledged.
    pub commits: usize,
    /// What errors clients received, each once.
    pub errors: Vec<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn account(&self, number: u64) -> String {
        format!("{}/{number:02}", self.prefix)
    }

    fn user(&self, number: u64) -> String {
        format!("{}-retwis/{number:02}", self.prefix)
    }

    /// A value that nobody else writes.
    fn value(&self, amount: i64) -> String {
        format!("{amount} #{}", self.writes.fetch_add(1, Ordering::Relaxed))
    }

    fn note_error(&self, error: &TxnError) {
        let said = match error {
            TxnError::Unknown { .. } => "unknown".to_owned(),
            other => other.to_string(),
        };
        let mut errors = locked(&self.errors);
        if !errors.contains(&said) {
            errors.push(said);
        }
    }
}

fn amount_of(value: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(value);
    text.split(' ').next().and_then(|amount| amount.parse().ok()).unwrap_or_else(|| panic!("{text:?}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads and writes of a transaction, for its history.
#[derive(Clone, Default)]
struct Accesses {
    reads: Vec<KeyRow>,
    writes: Vec<(String, String)>,
}

impl Accesses {
    fn of(self, mut draft: Draft) -> Draft {
        for row in self.reads {
            let value = row.value.map(|value| text(&value)).expect("accounts are never deleted");
            draft = draft.read(text(&row.key), value).timestamped(Version::version(row.version.0));
        }
        for (key, value) in self.writes {
            draft = draft.write(key, value);
        }
        draft
    }
}

/// One client: a session, and a process of the history, which begins anew after a commit of unknown fate.
struct Caller {
    shared: Arc<Shared>,
    client: TxnClient,
    number: u64,
    process: Process,
    turn: u64,
}

impl Caller {
    fn record(&self, draft: Draft) {
        locked(&self.shared.drafts).push(draft);
    }

    fn committed(&mut self, began: u64, accesses: Accesses, at: Timestamp) {
        let now = self.shared.now();
        let draft = Draft::new(self.process, Time(began), Time(now)).committed_at(Version::version(at.0));
        self.record(accesses.of(draft));
        locked(&self.shared.acknowledged).push((now, self.number));
    }

    fn failed(&mut self, began: u64, accesses: Accesses, error: &TxnError) {
        self.shared.note_error(error);
        if !error.is_surely_void() {
            let draft = Draft::new(self.process, Time(began), Time::NEVER).unknown();
            self.record(accesses.of(draft));
            self.process = Process(self.shared.processes.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// A closure's transaction is over: `last` is what its last attempt read and wrote.
    fn ended(&mut self, began: u64, last: Mutex<Accesses>, done: Result<((), Timestamp), TxnError>) {
        let accesses = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        match done {
            Ok(((), at)) => self.committed(began, accesses, at),
            Err(error) => self.failed(began, accesses, &error),
        }
    }

    /// Two different accounts.
    fn pair(&self) -> (String, String) {
        let from = (self.turn * 7 + self.number) % ACCOUNTS;
        let to = (from + 1 + self.turn % (ACCOUNTS - 1)) % ACCOUNTS;
        (self.shared.account(from), self.shared.account(to))
    }

    async fn transfer(&mut self) {
        let (began, (from, to)) = (self.shared.now(), self.pair());
        let last = Mutex::new(Accesses::default());
        let (shared, last_of, from, to) = (&*self.shared, &last, &from, &to);
        let done = self.client.committed(|txn| async move {
            let rows = txn.rows([from.as_str(), to.as_str()]).await?;
            let amounts = rows.iter().map(|row| amount_of(row.value.as_deref().unwrap_or_default()));
            let writes: Vec<(String, String)> = [from.clone(), to.clone()]
                .into_iter()
                .zip(amounts.zip([-1, 1]))
                .map(|(key, (amount, change))| (key, shared.value(amount + change)))
                .collect();
            for (key, value) in &writes {
                txn.put(key.as_str(), value.as_str());
            }
            *locked(last_of) = Accesses { reads: rows, writes };
            Ok::<(), TxnError>(())
        });
        let done = done.await;
        self.ended(began, last, done);
    }

    /// The same by conditions on the versions that a read has found.
    async fn transfer_at_once(&mut self) {
        let (from, to) = self.pair();
        let Some(found) = self.read(TxnLevel::Rss, &[&from, &to]).await else { return };
        let began = self.shared.now();
        let (mut call, mut accesses) = (self.client.one_shot(), Accesses::default());
        for (row, change) in found.rows.iter().zip([-1, 1]) {
            let amount = amount_of(row.value.as_deref().unwrap_or_default());
            let (key, value) = (text(&row.key), self.shared.value(amount + change));
            call = call.if_version(key.as_str(), row.version).put(key.as_str(), value.as_str());
            accesses.writes.push((key, value));
        }
        accesses.reads = found.rows;
        match call.run().await {
            Ok(OneShotOutcome::Committed { at, .. }) => self.committed(began, accesses, at),
            Ok(OneShotOutcome::NotMet { .. }) => {}
            Err(error) => self.failed(began, accesses, &error),
        }
    }

    async fn read(&mut self, level: TxnLevel, keys: &[&str]) -> Option<ReadResult> {
        let began = self.shared.now();
        match self.client.read(level).keys(keys.iter().copied()).run().await {
            Ok(found) => {
                let draft = Draft::new(self.process, Time(began), Time(self.shared.now()));
                let draft = match level {
                    TxnLevel::Strict => draft.at_level(Level::Strict),
                    TxnLevel::Rss => draft.at_level(Level::Rss),
                    TxnLevel::ProcessOrdered => draft.at_level(Level::ProcessOrdered),
                    TxnLevel::At(at) => draft.at_level(Level::At).as_of(consistency::Version(at.0)),
                    TxnLevel::Stale(_) => draft.at_level(Level::Stale),
                };
                self.record(Accesses { reads: found.rows.clone(), writes: Vec::new() }.of(draft));
                Some(found)
            }
            Err(error) => {
                self.shared.note_error(&error);
                None
            }
        }
    }

    /// Reads all accounts: together they hold what they held at first, in every snapshot.
    async fn look(&mut self, level: TxnLevel) {
        let keys: Vec<String> = (0..ACCOUNTS).map(|number| self.shared.account(number)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let Some(found) = self.read(level, &keys).await else { return };
        let values = found.rows.iter().filter_map(|row| row.value.as_deref());
        let sum: i64 = values.map(amount_of).sum();
        assert_eq!(sum, BALANCE * ACCOUNTS as i64, "{level:?} at {}: {:?}", found.at, found.rows);
    }

    /// A transaction of Retwis: add-user, follow, post-tweet, or load-timeline at some level.
    async fn retwis(&mut self) {
        let draw = self.turn * 7 + self.number * 3;
        let keys = |count: u64| -> Vec<String> {
            (0..count).map(|nth| self.shared.user((draw * 11 + nth * 13) % USERS)).collect()
        };
        let (gets, puts) = match draw % 20 {
            0 => (1, 3),
            1..=3 => (2, 2),
            4..=9 => (3, 5),
            timeline => {
                let keys = keys(1 + draw % 10);
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let level = match timeline % 3 {
                    0 => TxnLevel::Strict,
                    1 => TxnLevel::Rss,
                    _ => TxnLevel::ProcessOrdered,
                };
                self.read(level, &keys).await;
                return;
            }
        };
        let (read, written, began) = (keys(gets), keys(puts), self.shared.now());
        let last = Mutex::new(Accesses::default());
        let (shared, last_of, read, written) = (&*self.shared, &last, &read, &written);
        let done = self.client.committed(|txn| async move {
            let reads = txn.rows(read.iter().map(String::as_str)).await?;
            let writes: Vec<(String, String)> =
                written.iter().map(|key| (key.clone(), shared.value(0))).collect();
            for (key, value) in &writes {
                txn.put(key.as_str(), value.as_str());
            }
            *locked(last_of) = Accesses { reads, writes };
            Ok::<(), TxnError>(())
        });
        let done = done.await;
        self.ended(began, last, done);
    }

    async fn bank(&mut self) {
        match (self.turn + self.number) % 10 {
            0..=3 => self.transfer().await,
            4 => self.transfer_at_once().await,
            5 => self.look(TxnLevel::Strict).await,
            6 | 7 => self.look(TxnLevel::Rss).await,
            8 => self.look(TxnLevel::ProcessOrdered).await,
            _ if self.turn.is_multiple_of(2) => {
                self.look(TxnLevel::Stale(STALE.as_micros() as u64)).await;
            }
            _ => self.look(TxnLevel::At(self.client.token())).await,
        }
    }

    /// Every third client plays Retwis, the others the bank.
    async fn go_on(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.turn += 1;
            if self.number % 3 == 2 {
                self.retwis().await
            } else {
                self.bank().await
            }
            tokio::time::sleep(THINK).await;
        }
    }
}

impl TxnLoad {
    /// Makes the accounts and begins with one task for each client. Keys begin with `prefix`: another for each load of a cluster.
    pub async fn start(prefix: &str, clients: Vec<TxnClient>) -> Self {
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            prefix: prefix.to_owned(),
            drafts: Mutex::default(),
            acknowledged: Mutex::default(),
            processes: AtomicU64::new(1_000),
            writes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            errors: Mutex::default(),
        });
        let mut call = clients[0].one_shot();
        let mut accesses = Accesses::default();
        let accounts = (0..ACCOUNTS).map(|number| (shared.account(number), shared.value(BALANCE)));
        let users = (0..USERS).map(|number| (shared.user(number), shared.value(0)));
        for (key, value) in accounts.chain(users) {
            call = call.put(key.as_str(), value.as_str());
            accesses.writes.push((key, value));
        }
        let began = shared.now();
        let Ok(OneShotOutcome::Committed { at, .. }) = call.run().await else { panic!("no accounts") };
        let count = clients.len();
        let token = clients[0].token();
        let mut callers: Vec<Caller> = (0..)
            .zip(clients)
            .map(|(number, client)| {
                // `at` and `stale` reads know nothing of what is not seen yet: there are accounts in all of theirs.
                client.absorb(token);
                Caller { shared: Arc::clone(&shared), client, number, process: Process(number), turn: 0 }
            })
            .collect();
        callers[0].committed(began, accesses, at);
        // A stale read lies behind: nothing was there before.
        tokio::time::sleep(4 * STALE).await;
        Self {
            shared,
            clients: count,
            tasks: callers.into_iter().map(|it| tokio::spawn(it.go_on())).collect(),
        }
    }

    /// More clients, which begin with what these have seen.
    pub fn join(&mut self, clients: Vec<TxnClient>, token: Timestamp) {
        for client in clients {
            let number = self.clients as u64;
            self.clients += 1;
            client.absorb(token);
            let shared = Arc::clone(&self.shared);
            let caller = Caller { shared, client, number, process: Process(number), turn: 0 };
            self.tasks.push(tokio::spawn(caller.go_on()));
        }
    }

    /// Now, in nanoseconds of the history.
    pub fn now(&self) -> u64 {
        self.shared.now()
    }

    /// Waits for so many more acknowledged commits.
    pub async fn until_acknowledged(&self, more: usize, within: Duration) {
        let wanted = locked(&self.shared.acknowledged).len() + more;
        let deadline = Instant::now() + within;
        while locked(&self.shared.acknowledged).len() < wanted {
            let (got, errors) =
                (locked(&self.shared.acknowledged).len(), locked(&self.shared.errors).clone());
            assert!(Instant::now() < deadline, "{got} of {wanted} commits within {within:?}; {errors:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until every client has had a commit acknowledged that began later.
    pub async fn until_everybody_is_served(&self, since: u64, within: Duration) {
        let deadline = Instant::now() + within;
        loop {
            let served: std::collections::BTreeSet<u64> = locked(&self.shared.acknowledged)
                .iter()
                .filter(|(at, _)| *at > since)
                .map(|(_, client)| *client)
                .collect();
            if served.len() == self.clients {
                return;
            }
            let errors = locked(&self.shared.errors).clone();
            assert!(Instant::now() < deadline, "{served:?} of {} are served; {errors:?}", self.clients);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The longest time without an acknowledged commit since then.
    pub fn longest_gap_after(&self, since: u64) -> Duration {
        let mut times: Vec<u64> =
            locked(&self.shared.acknowledged).iter().map(|(at, _)| *at).filter(|at| *at > since).collect();
        times.push(since);
        times.push(self.now());
        times.sort_unstable();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        Duration::from_nanos(longest)
    }

    /// Stops, and judges what was recorded.
    pub async fn finish(self) -> Shown {
        self.shared.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a client does not panic");
        }
        let drafts = std::mem::take(&mut *locked(&self.shared.drafts));
        let mut history = History::new();
        drafts.into_iter().for_each(|draft| {
            history.add(draft);
        });
        let answered = history.operations().len();
        let verdict = check(&history, Model::ByLevel).expect("the history is well formed");
        assert!(verdict.holds(), "not by-level: {verdict:?}");
        let commits = locked(&self.shared.acknowledged).len();
        let errors = locked(&self.shared.errors).clone();
        Shown { answered, commits, errors }
    }
}
