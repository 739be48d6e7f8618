//! A process with a map of each kind open, as a host or a program has them, and what its users have it do.

use super::port::{ColourNames, Port};
use ::fuzzylog::{AppendTime, FuzzyRequest, FuzzyResponse};
use kernel::Bytes;
use ordinate_client::maps::{AtomicMap, CrdtMap, ShardedMap, StoreError, TxCrdtMap, TxMap, ViewLimits};
use ordinate_client::{FuzzyError, FuzzyFailure, NumberedBy};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Shards of maps that have several.
pub(super) const SHARDS: usize = 3;
/// Views are stored whenever somebody tries, in many chunks.
const VIEWS: ViewLimits = ViewLimits { log_bytes: 1, view_bytes: 1 << 20, chunk_bytes: 200 };

/// A kind of map; its number is that of its session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Log,
    Sharded,
    Atomic,
    Tx,
    Crdt,
    TxCrdt,
}

pub(super) const KINDS: [Kind; 6] =
    [Kind::Log, Kind::Sharded, Kind::Atomic, Kind::Tx, Kind::Crdt, Kind::TxCrdt];

impl Kind {
    /// The map's colours, without those of its views.
    pub(super) fn colours(self) -> Vec<String> {
        let several = |name: &str| (0..SHARDS).map(|at| format!("{name}.{at}")).collect();
        match self {
            Self::Log => vec!["log.0".to_owned()],
            Self::Sharded => several("sharded"),
            Self::Atomic => several("atomic"),
            Self::Tx => several("tx"),
            Self::Crdt => vec!["crdt".to_owned()],
            Self::TxCrdt => several("tx-crdt"),
        }
    }

    /// Reads go by what was played, and ask nobody.
    pub(super) fn asks_nobody(self) -> bool {
        matches!(self, Self::Crdt | Self::TxCrdt)
    }
}

/// What a user wants of a map.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Put(Vec<(String, String)>),
    Delete(String),
    Get(Vec<String>),
    /// Reads keys, and writes some if they are as they were.
    Transact(Vec<String>, Vec<(String, String)>),
    Sync,
    StoreViews,
}

/// How a call is made.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) call: Call,
    pub(super) by: Option<NumberedBy>,
    /// What its user has seen, here or elsewhere.
    pub(super) seen: AppendTime,
    /// Of a transaction: what its keys held and which versions that were, once they were read; the same for all attempts.
    pub(super) read: Arc<Mutex<Option<Vec<Found>>>>,
}

/// What a key held, and its version where the kind has versions.
pub(super) type Found = (Option<Bytes>, u64);

/// What a call came to.
#[derive(Clone, Debug)]
pub(super) struct Done {
    /// What was read, in the order of the call's keys; of a transaction, whether it committed.
    pub(super) result: Result<(Vec<Option<Bytes>>, bool), FuzzyError>,
    /// What the session has seen by then.
    pub(super) seen: AppendTime,
    /// Views that it has stored.
    pub(super) stored: usize,
}

#[derive(Clone)]
struct Maps {
    log: ShardedMap<Port>,
    sharded: ShardedMap<Port>,
    atomic: AtomicMap<Port>,
    tx: TxMap<Port>,
    crdt: CrdtMap<Port>,
    tx_crdt: TxCrdtMap<Port>,
}

type Running = (u64, Pin<Box<dyn Future<Output = Done>>>);

/// A process.
pub(super) struct MapProcess {
    port: Port,
    /// A session of each kind, for all its users.
    sessions: Vec<Port>,
    maps: Maps,
    running: Vec<Running>,
    /// Maps that were played once: before that, every call plays first.
    begun: Arc<Mutex<BTreeSet<Kind>>>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl MapProcess {
    pub(super) fn new(names: &Arc<ColourNames>, number: u64) -> Self {
        let port = Port::new(Arc::clone(names), number);
        let sessions: Vec<Port> = KINDS.iter().map(|_| port.session()).collect();
        let of = |kind: Kind| &sessions[kind as usize];
        let maps = Maps {
            log: ShardedMap::log_map(of(Kind::Log), "log"),
            sharded: ShardedMap::open(of(Kind::Sharded), "sharded", SHARDS),
            atomic: AtomicMap::open(of(Kind::Atomic), "atomic", SHARDS),
            tx: TxMap::open(of(Kind::Tx), "tx", SHARDS, number),
            crdt: CrdtMap::open(of(Kind::Crdt), "crdt", number),
            tx_crdt: TxCrdtMap::open(of(Kind::TxCrdt), "tx-crdt", SHARDS, number),
        };
        Self { port, sessions, maps, running: Vec::new(), begun: Arc::default() }
    }

    /// Begins a call, under the caller's number for it. `has_moved`: its user has seen something elsewhere.
    pub(super) fn begin(&mut self, number: u64, kind: Kind, attempt: Attempt, has_moved: bool) {
        let session = self.sessions[kind as usize].clone();
        session.absorb(attempt.seen);
        let begun = Arc::clone(&self.begun);
        let is_begun = begun.lock().unwrap_or_else(PoisonError::into_inner).contains(&kind);
        let plays_first = !is_begun || (has_moved && kind.asks_nobody());
        let maps = self.maps.clone();
        let call = async move {
            let first = if plays_first { sync(&maps, kind).await } else { Ok(()) };
            if first.is_ok() {
                begun.lock().unwrap_or_else(PoisonError::into_inner).insert(kind);
            }
            let performed = match first {
                Ok(()) => perform(&maps, kind, attempt).await,
                Err(error) => Err(error),
            };
            let (result, stored) = match performed {
                Ok(Performed::Stored(count)) => (Ok((Vec::new(), true)), count),
                Ok(Performed::Read(found, is_committed)) => (Ok((found, is_committed)), 0),
                Err(error) => (Err(error), 0),
            };
            Done { result, seen: session.seen(), stored }
        };
        self.running.push((number, Box::pin(call)));
    }

    /// Calls on their way.
    pub(super) fn running(&self) -> impl Iterator<Item = u64> + '_ {
        self.running.iter().map(|(number, _)| *number)
    }

    /// Goes on until everything waits for answers. Returns what is over.
    pub(super) fn go_on(&mut self) -> Vec<(u64, Done)> {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut over = Vec::new();
        while woken.0.swap(false, Ordering::Relaxed) {
            let mut at = 0;
            while let Some((number, call)) = self.running.get_mut(at) {
                match call.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Pending => at += 1,
                    Poll::Ready(done) => {
                        over.push((*number, done));
                        drop(self.running.remove(at));
                        // It may have given something back.
                        woken.0.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        over
    }

    pub(super) fn take_questions(&self) -> Vec<(u64, FuzzyRequest)> {
        self.port.take_questions()
    }

    pub(super) fn answer(&self, question: u64, response: FuzzyResponse) {
        self.port.answer(question, response);
    }

    /// The concurrent puts of a key of the observed-remove map of one colour, as far as this process has played.
    pub(super) fn concurrent(&self, key: &str) -> BTreeSet<Bytes> {
        let mut all = std::pin::pin!(self.maps.crdt.get_concurrent(key));
        match all.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(all) => all,
            Poll::Pending => BTreeSet::new(),
        }
    }
}

enum Performed {
    Read(Vec<Option<Bytes>>, bool),
    Stored(usize),
}

const OTHER_KIND: FuzzyError = FuzzyError::Failed(FuzzyFailure::Malformed);

async fn sync(maps: &Maps, kind: Kind) -> Result<(), FuzzyError> {
    match kind {
        Kind::Log => maps.log.sync().await,
        Kind::Sharded => maps.sharded.sync().await,
        Kind::Atomic => maps.atomic.sync().await,
        Kind::Tx => maps.tx.sync().await,
        Kind::Crdt => maps.crdt.sync().await,
        Kind::TxCrdt => maps.tx_crdt.sync().await,
    }
}

async fn store(maps: &Maps, kind: Kind) -> Result<usize, FuzzyError> {
    let stored = match kind {
        Kind::Log => maps.log.store_views(&VIEWS).await,
        Kind::Sharded => maps.sharded.store_views(&VIEWS).await,
        Kind::Atomic => maps.atomic.store_views(&VIEWS).await,
        Kind::Tx => maps.tx.store_views(&VIEWS).await,
        Kind::Crdt => maps.crdt.store_views(&VIEWS).await,
        Kind::TxCrdt => maps.tx_crdt.store_views(&VIEWS).await,
    };
    stored.map_err(|error| match error {
        StoreError::Log(error) => error,
        StoreError::TooLarge { .. } => OTHER_KIND,
    })
}

async fn get(maps: &Maps, kind: Kind, keys: &[String]) -> Result<Vec<Option<Bytes>>, FuzzyError> {
    match (kind, keys) {
        (Kind::Log, [key]) => Ok(vec![maps.log.get(key).await?]),
        (Kind::Sharded, [key]) => Ok(vec![maps.sharded.get(key).await?]),
        (Kind::Atomic, [key]) => Ok(vec![maps.atomic.get(key).await?]),
        (Kind::Atomic, keys) => maps.atomic.get_all(keys).await,
        (Kind::Tx, [key]) => Ok(vec![maps.tx.get(key).await?]),
        (Kind::Crdt, [key]) => Ok(vec![maps.crdt.get(key).await]),
        (Kind::TxCrdt, keys) => Ok(maps.tx_crdt.get_all(keys).await),
        _ => Err(OTHER_KIND),
    }
}

async fn change(
    maps: &Maps,
    kind: Kind,
    by: Option<NumberedBy>,
    changes: Vec<(String, Option<Bytes>)>,
) -> Result<(), FuzzyError> {
    match (kind, &changes[..]) {
        (Kind::Log, [(key, value)]) => maps.log.change(by, key, value.clone()).await,
        (Kind::Sharded, [(key, value)]) => maps.sharded.change(by, key, value.clone()).await,
        (Kind::Crdt, [(key, value)]) => maps.crdt.change(by, key, value.clone()).await,
        (Kind::Atomic, _) => maps.atomic.change_all(by, changes).await,
        (Kind::TxCrdt, _) => maps.tx_crdt.change_all(by, changes).await,
        _ => Err(OTHER_KIND),
    }
}

/// A transaction: what it reads is read once, and sent with each attempt.
async fn transact(
    maps: &Maps,
    attempt: &Attempt,
    reads: &[String],
    writes: &[(String, String)],
) -> Result<Performed, FuzzyError> {
    let known = || attempt.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let found = match known() {
        Some(found) => found,
        None => {
            let mut found = Vec::new();
            for key in reads {
                found.push(maps.tx.get_version(key).await?);
            }
            let mut slot = attempt.read.lock().unwrap_or_else(PoisonError::into_inner);
            slot.get_or_insert(found).clone()
        }
    };
    let mut txn = maps.tx.begin();
    reads.iter().zip(&found).for_each(|(key, (_, version))| txn.read_version(key, *version));
    writes.iter().for_each(|(key, value)| txn.put(key, value.clone()));
    let is_committed = txn.commit_by(attempt.by).await?;
    Ok(Performed::Read(found.into_iter().map(|(value, _)| value).collect(), is_committed))
}

async fn perform(maps: &Maps, kind: Kind, attempt: Attempt) -> Result<Performed, FuzzyError> {
    match &attempt.call {
        Call::Put(writes) => {
            let change_of = |(key, value): &(String, String)| (key.clone(), Some(Bytes::from(value.clone())));
            change(maps, kind, attempt.by, writes.iter().map(change_of).collect()).await?;
            Ok(Performed::Read(Vec::new(), true))
        }
        Call::Delete(key) => {
            change(maps, kind, attempt.by, vec![(key.clone(), None)]).await?;
            Ok(Performed::Read(Vec::new(), true))
        }
        Call::Get(keys) => Ok(Performed::Read(get(maps, kind, keys).await?, true)),
        Call::Transact(reads, writes) => transact(maps, &attempt, reads, writes).await,
        Call::Sync => sync(maps, kind).await.map(|()| Performed::Read(Vec::new(), true)),
        Call::StoreViews => store(maps, kind).await.map(Performed::Stored),
    }
}
