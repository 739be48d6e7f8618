//! The Rust client of Ordinate.
//!
//! ```no_run
//! # async fn example() -> Result<(), ordinate_client::CallError> {
//! use ordinate_client::{Client, Level};
//! let client = Client::connect(["127.0.0.1:7071"]);
//! let version = client.put("city", "Zürich").await?;
//! let found = client.get("city", Level::Linearizable).await?;
//! assert!(found.is_some_and(|found| found.version >= version));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is cheap to clone; calls of all its clones share one session and one connection, and travel in batches.
//! Calls are sent again, to another host if need be, until they are answered or time out; a command is executed once.
#![forbid(unsafe_code)]

mod baggage;
mod calls;
mod connect;
mod connection;
mod credentials;
mod directed;
mod driver;
mod fuzzylog;
mod log;
pub mod maps;
#[doc(hidden)]
pub mod planted;
mod process;
mod sequence;
mod suspicion;
mod tls;
mod txn;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use wire::commands::{Call, Configuration, Outcome, Refusal};
use wire::kv::{Answer, Command, Query};

pub use crate::fuzzylog::{
    FuzzyAppended, FuzzyCut, FuzzyError, FuzzyInstance, FuzzyLog, FuzzyNode, FuzzyScan,
};
pub use crate::log::{Log, LogEntries, LogError, LogOptions};
pub use crate::sequence::{Sequence, SequencePosition};
pub use baggage::{BaggageLayer, CarriesBaggage};
pub use credentials::{AccessToken, Credentials};
pub use kernel::Bytes;
pub use process::{LinearizableKv, Process, ProcessError};
pub use tls::{Tls, TlsError, TlsFiles};
pub use txn::{OneShotCall, OneShotOutcome, ReadCall, ReadResult, Transaction, TxnClient, TxnError};
pub use wire::commands::Level;
pub use wire::fuzzylog::{
    FuzzyFailure, FuzzyFault, LogCount, NewNode, NodeAt, NodeOrigin, NodePoint, NumberedBy, SeenTime,
    SnapshotId,
};
pub use wire::kv::{Expect, Item, Versioned};
pub use wire::log::{Cleanup, Description, GroupState, LogIdentity, LogStat, Progress, Rows};
pub use wire::native as protocol;
pub use wire::rss::ServiceName;
pub use wire::txn::{
    CallFault, CallKey, KeyRange, KeyRow, KeyScan, ScannedRows, Timestamp, TxnFailure, TxnLevel,
};

/// How long calls wait unless their client was configured otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// No host answered in time. A write may have been executed.
    #[error("no answer within {0:?}; a write may have been executed: read before you send it again")]
    TimedOut(Duration),
    /// Never executed: in time there was no host that the request could be sent to, and it is not sent any more.
    #[error("no answer within {0:?}; the request was sent to no host, so nothing was executed")]
    NotSent(Duration),
    /// No host answered in time, and some turned the client away. A write may have been executed.
    #[error(
        "no answer within {after:?}; {why}; a write may have been executed: read before you send it again"
    )]
    TurnedAway {
        /// The time limit.
        after: Duration,
        /// What hosts said, by endpoint.
        why: String,
    },
    /// The session was lost while the write was in flight. It may have been executed.
    #[error("the session was lost; the write may have been executed: read before you send it again")]
    MaybeExecuted,
    /// Never executed: the request is malformed or too large.
    #[error("the request was refused and not executed: malformed or larger than the server allows")]
    Refused,
    /// Never executed: the server says what is wrong with the command.
    #[error("the command was refused and not executed: {0}")]
    Invalid(String),
    /// Not executed: another change of membership came first.
    #[error("another change of the membership came first; look at it and ask again")]
    Conflict,
    /// Not executed: the disks of the host, or of half of the hosts, are full.
    #[error("the disk is full, not executed: send it again when there is room")]
    DiskFull,
    /// Not executed: too much is waiting at the service, and was for a while.
    #[error("busy, not executed: too much is waiting; send it again later")]
    Busy,
    /// Never executed: the client was not granted it.
    #[error("not granted, not executed: the cluster's access file does not let this client do it")]
    NotGranted,
    /// The answer cannot be read: client and server do not fit.
    #[error("the answer cannot be read ({0}); is the server newer than this client?")]
    Unreadable(String),
    /// Never executed: the cluster does not have the service, by its file.
    #[error("the service is off there, so nothing was executed: {0}")]
    Off(String),
    /// The client's task has ended.
    #[error("the client is closed")]
    Closed,
}

/// What came of a compare-and-set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Swap {
    /// The key was as expected, and was changed at this version.
    Done {
        /// The revision of the write.
        version: u64,
    },
    /// It was not, and nothing was changed.
    Mismatch {
        /// What it holds.
        found: Option<Versioned>,
    },
    /// The same, where what it holds is too large to be sent unasked.
    MismatchAt {
        /// Its version.
        version: u64,
    },
}

/// A page of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// In the order of keys.
    pub items: Vec<Item>,
    /// The key to go on with; none at the end.
    pub next: Option<Vec<u8>>,
}

/// A client. Must be made inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct Client {
    calls: mpsc::UnboundedSender<driver::Order>,
    timeout: Duration,
    refusals: driver::Refusals,
    /// The number of the next call.
    next: Arc<AtomicU64>,
}

impl Client {
    /// A client of the cluster behind `endpoints`: native addresses, `name:port`, of one or more hosts. Names are resolved
    /// on every dial. Returns at once; calls wait for the connection.
    pub fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self::connect_as(endpoints, Credentials::default())
    }

    /// The same over TLS: each endpoint's name must be in its host's certificate.
    pub fn connect_tls<E: Into<String>>(endpoints: impl IntoIterator<Item = E>, tls: Tls) -> Self {
        Self::connect_as(endpoints, tls.into())
    }

    /// The same with any credentials.
    pub fn connect_as<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
        credentials: Credentials,
    ) -> Self {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        let (calls, orders) = mpsc::unbounded_channel();
        let refusals = driver::Refusals::default();
        // Without endpoints nobody listens, and calls say that the client is closed.
        if !endpoints.is_empty() {
            tokio::spawn(driver::run(endpoints, credentials, orders, Arc::clone(&refusals)));
        }
        Self { calls, timeout: TIMEOUT, refusals, next: Arc::default() }
    }

    /// The same client with another time limit per call (10 s unless said).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    async fn call(&self, call: Call) -> Result<Bytes, CallError> {
        let (answer, answered) = oneshot::channel();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.calls.send(driver::Order::Call { number, call, answer }).map_err(|_| CallError::Closed)?;
        match tokio::time::timeout(self.timeout, answered).await {
            Err(_) => Err(self.unanswered(number).await),
            Ok(Err(_)) => Err(CallError::Closed),
            Ok(Ok(Err(off))) => Err(off),
            Ok(Ok(Ok(Outcome::Done(bytes)))) => Ok(bytes),
            Ok(Ok(Ok(Outcome::Refused(Refusal::MaybeExecuted)))) => Err(CallError::MaybeExecuted),
            Ok(Ok(Ok(Outcome::Refused(Refusal::Malformed)))) => Err(CallError::Refused),
            Ok(Ok(Ok(Outcome::Refused(Refusal::Conflict)))) => Err(CallError::Conflict),
            Ok(Ok(Ok(Outcome::Refused(Refusal::Busy)))) => Err(CallError::Busy),
            Ok(Ok(Ok(Outcome::Refused(Refusal::DiskFull)))) => Err(CallError::DiskFull),
            Ok(Ok(Ok(Outcome::Refused(Refusal::NotGranted)))) => Err(CallError::NotGranted),
        }
    }

    async fn unanswered(&self, number: u64) -> CallError {
        let (answer, answered) = oneshot::channel();
        let asked = self.calls.send(driver::Order::GiveUp { number, answer });
        let is_unsent = asked.is_ok() && answered.await == Ok(true);
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let why: Vec<String> = refusals.iter().map(|(endpoint, why)| format!("{endpoint}: {why}")).collect();
        match why.is_empty() {
            true if is_unsent => CallError::NotSent(self.timeout),
            true => CallError::TimedOut(self.timeout),
            false => CallError::TurnedAway { after: self.timeout, why: why.join("; ") },
        }
    }

    /// Executes any command.
    pub async fn execute(&self, command: &Command<'_>) -> Result<Answer, CallError> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        read(&self.call(Call::Write(bytes.into())).await?)
    }

    /// Executes any query.
    pub async fn query(&self, query: &Query<'_>, level: Level) -> Result<Answer, CallError> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        read(&self.call(Call::Read { query: bytes.into(), level }).await?)
    }

    /// Sets a key and returns its version.
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, CallError> {
        match self.execute(&Command::Put { key: key.as_ref(), value: value.as_ref() }).await? {
            Answer::Written { version, .. } => Ok(version),
            other => Err(unexpected(other)),
        }
    }

    /// Removes a key; false if it did not exist.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, CallError> {
        match self.execute(&Command::Delete { key: key.as_ref() }).await? {
            Answer::Deleted { version, .. } => Ok(version > 0),
            other => Err(unexpected(other)),
        }
    }

    /// Sets (or with `None` removes) a key if it is as expected.
    pub async fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expect: Expect<'_>,
        value: Option<&[u8]>,
    ) -> Result<Swap, CallError> {
        match self.execute(&Command::CompareAndSet { key: key.as_ref(), expect, value }).await? {
            Answer::Written { version, .. } | Answer::Deleted { version, .. } => Ok(Swap::Done { version }),
            Answer::Mismatch { found } => Ok(Swap::Mismatch { found }),
            Answer::MismatchAt { version } => Ok(Swap::MismatchAt { version }),
            other => Err(unexpected(other)),
        }
    }

    /// Adds to a decimal integer and returns the sum; an absent key counts as 0.
    pub async fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, CallError> {
        match self.execute(&Command::Increment { key: key.as_ref(), by }).await? {
            Answer::Counted { number, .. } => Ok(number),
            other => Err(unexpected(other)),
        }
    }

    /// What a key holds.
    pub async fn get(&self, key: impl AsRef<[u8]>, level: Level) -> Result<Option<Versioned>, CallError> {
        match self.query(&Query::Get { key: key.as_ref() }, level).await? {
            Answer::Found(found) => Ok(found),
            other => Err(unexpected(other)),
        }
    }

    /// At most `limit` keys in order, from `start` on and below `end`.
    pub async fn scan(
        &self,
        start: impl AsRef<[u8]>,
        end: Option<&[u8]>,
        limit: u32,
        level: Level,
    ) -> Result<Page, CallError> {
        match self.query(&Query::Scan { start: start.as_ref(), end, limit }, level).await? {
            Answer::Page { items, next } => Ok(Page { items, next }),
            other => Err(unexpected(other)),
        }
    }

    /// Changes the membership of the cluster; returns when the change is in force.
    pub async fn reconfigure(&self, configuration: Configuration) -> Result<(), CallError> {
        self.call(Call::Reconfigure(Arc::new(configuration))).await.map(|_| ())
    }
}

fn read(bytes: &Bytes) -> Result<Answer, CallError> {
    Answer::decode(bytes).map_err(|error| CallError::Unreadable(error.to_string()))
}

fn unexpected(answer: Answer) -> CallError {
    match answer {
        Answer::Invalid(why) => CallError::Invalid(why),
        other => CallError::Unreadable(format!("{other:?}")),
    }
}
