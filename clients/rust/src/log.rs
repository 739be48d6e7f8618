//! Calls of the shared log.

use crate::calls::{Ask, Calls, SoFar};
use crate::connect::connects;
use crate::{CallError, TIMEOUT};
use kernel::Bytes;
use std::future::Future;
use std::time::Duration;
use wire::log::native::{Call, Native, Reply};
use wire::log::{
    Answer, Append, Cleanup, Commit, Create, Description, List, LogIdentity, LogStat, Named, Part, Progress,
    READ_BYTES_MAX, Read, Refused, Request, Rows, Trim, Why,
};

/// Why a call of the log failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogError {
    /// As for any call.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There is no such log.
    #[error("there is no log {0}")]
    NoSuchLog(String),
    /// There is one already.
    #[error("there is a log {0} already")]
    Exists(String),
    /// Nothing can be appended any more.
    #[error("the log {name} is sealed at {tail}")]
    Sealed {
        /// The log.
        name: String,
        /// Where it ends.
        tail: u64,
    },
    /// The tail is not where the append expects it; nothing was appended.
    #[error("the tail of {name} is {tail}, and not where the append expects it")]
    Moved {
        /// The log.
        name: String,
        /// Where it ends.
        tail: u64,
    },
    /// The entries asked for are gone.
    #[error("entries of {name} below {resume_from} are gone: resume there")]
    Trimmed {
        /// The log.
        name: String,
        /// The first position that is left.
        resume_from: u64,
    },
    /// There is no such position yet.
    #[error("the log {name} ends at {tail}")]
    BeyondTail {
        /// The log.
        name: String,
        /// Where it ends.
        tail: u64,
    },
    /// No room for a log that may hold so much.
    #[error(
        "no room for {name}: {free} bytes are free where it would live (log.space_bytes of the cluster file)"
    )]
    Full {
        /// The log.
        name: String,
        /// What is free.
        free: u64,
    },
    /// The entries of one append are too large.
    #[error("one append may hold 1 MiB, each entry counted with 8 bytes more; nothing was appended")]
    TooLarge,
    /// Nothing was appended, and the same may succeed later.
    #[error(
        "nothing is appended to {name} while {waiting_bytes} bytes of what was trimmed wait for the archive (log.archive_backlog_bytes \
         of the cluster file): it does not take them"
    )]
    Unarchived {
        /// The log.
        name: String,
        /// What waits, in its space.
        waiting_bytes: u64,
    },
    /// Nothing was appended: the logs of the host have reached their disk budget.
    #[error(
        "nothing was appended to {name}: the host's logs hold {held_bytes} bytes and have reached log.disk_bytes of the cluster file"
    )]
    OverBudget {
        /// The log.
        name: String,
        /// What the host's logs hold.
        held_bytes: u64,
    },
    /// The cluster's log cannot do this.
    #[error(
        "the engine of the cluster's log (log.engine of the cluster file) does not do this; nothing was done"
    )]
    Unsupported,
}

/// What a log is to hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogOptions {
    /// Beyond so many bytes the oldest entries go: at least 1 MiB; each entry costs 8 bytes more than it holds. 0: no limit but the
    /// disk budget of the hosts.
    pub retain_bytes: u64,
    /// Older entries go, when something is appended.
    pub retain: Option<Duration>,
    /// What becomes of appends when that budget is reached.
    pub cleanup: Cleanup,
    /// The position of its first entry, below 2^62: of a log that is restored.
    pub first: u64,
}

/// Entries that were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntries {
    /// The position of the first entry.
    pub first: u64,
    /// The log's tail.
    pub tail: u64,
    /// The tail is final.
    pub sealed: bool,
    /// The entries, one position after the other.
    pub entries: Vec<Bytes>,
}

impl LogEntries {
    /// Where to read on.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

impl Ask for Request {
    type Message = Native;
    type Reply = Answer;
    type Answer = Answer;

    fn message(&self, id: u64) -> Native {
        Native::Call(Call { id, request: self.clone() })
    }

    fn reply(message: Native) -> Option<(u64, Answer)> {
        match message {
            Native::Reply(Reply { id, answer }) => Some((id, answer)),
            Native::Call(_) => None,
        }
    }

    fn outcome(&self, answer: Answer, so_far: SoFar) -> Option<Result<Answer, CallError>> {
        match matches!(&answer, Answer::Refused(refused) if refused.why == Why::Busy) {
            true => so_far.is_last.then_some(Err(CallError::Busy)),
            false => Some(Ok(answer)),
        }
    }

    fn may_repeat(&self) -> bool {
        self.written().is_empty()
    }

    fn wait(&self) -> Duration {
        let wait_ms = if let Self::Read(read) = self { read.wait_ms } else { 0 };
        Duration::from_millis(wait_ms.into())
    }
}

/// A client of the shared log. Cheap to clone; must be made inside a tokio runtime.
///
/// Appends that are in flight at once are appended in the order of the calls, as long as their connection is open and the host is not
/// too busy to take one of them.
#[derive(Clone, Debug)]
pub struct Log {
    calls: Calls<Request>,
    timeout: Duration,
}

connects!(Log, |calls| Self { calls, timeout: TIMEOUT });

impl Log {
    /// The call is on its way when this returns.
    fn call(
        &self,
        request: Request,
        patience: Duration,
    ) -> impl Future<Output = Result<Answer, LogError>> + use<> {
        // The host would say so, too, unless the call is so large that it closes the connection.
        let fault = request.fault().map(|why| error_of(Refused { why, name: String::new(), at: 0 }));
        let call = fault.is_none().then(|| self.calls.call(request, self.timeout + patience));
        async move {
            let Some(call) = call else { return Err(fault.unwrap_or_else(unreadable)) };
            match call.await? {
                Answer::Refused(refused) => Err(error_of(refused)),
                answer => Ok(answer),
            }
        }
    }

    async fn done(&self, request: Request) -> Result<(), LogError> {
        match self.call(request, Duration::ZERO).await? {
            Answer::Done => Ok(()),
            _ => Err(unreadable()),
        }
    }

    /// Makes a log that holds `retain_bytes` (at least 1 MiB; each entry costs 8 bytes more than it holds), and entries for as long
    /// as `retain` says, if it says anything. What is beyond goes, the oldest first.
    pub async fn create(
        &self,
        name: &str,
        retain_bytes: u64,
        retain: Option<Duration>,
    ) -> Result<(), LogError> {
        self.create_with(name, LogOptions { retain_bytes, retain, ..LogOptions::default() }).await
    }

    /// Makes a log that is as `options` say; by default it drops nothing by itself.
    pub async fn create_with(&self, name: &str, options: LogOptions) -> Result<(), LogError> {
        let LogOptions { retain_bytes, retain, cleanup, first } = options;
        let retain_ms = retain.map_or(0, |retain| retain.as_millis().max(1) as u64);
        let (name, cleanup, first) = (name.to_owned(), Some(cleanup), Some(first));
        let create = Create { name, retain_bytes, retain_ms, capacity: 0, cleanup, first };
        self.done(Request::Create(create)).await
    }

    /// What a log was made to be, and what it has dropped. [`LogError::Unsupported`] over an engine that does not count that.
    pub async fn describe(&self, name: &str) -> Result<Description, LogError> {
        match self.call(Request::Describe(Named { name: name.to_owned() }), Duration::ZERO).await? {
            Answer::Description(description) => Ok(description),
            _ => Err(unreadable()),
        }
    }

    /// Appends entries to one log, at positions that follow one another; returns the first. The call is on its way when this
    /// returns; its answer comes by the future.
    ///
    /// [`CallError::MaybeExecuted`] and [`CallError::TimedOut`]: they may have been appended. Appends are never sent twice.
    pub fn append(&self, name: &str, entries: Rows) -> impl Future<Output = Result<u64, LogError>> + use<> {
        self.append_if(name, None, entries)
    }

    /// The same, and nothing is appended unless the first entry gets the position `expect`.
    pub fn append_if(
        &self,
        name: &str,
        expect: Option<u64>,
        entries: Rows,
    ) -> impl Future<Output = Result<u64, LogError>> + use<> {
        let parts = vec![Part { name: name.to_owned(), expect, entries: entries.into_bytes() }];
        let call = self.call(Request::Append(Append { parts, admitted: None }), Duration::ZERO);
        async move {
            match call.await? {
                Answer::Appended(firsts) => firsts.first().copied().ok_or_else(unreadable),
                _ => Err(unreadable()),
            }
        }
    }

    /// Appends to several logs at once, all or nothing; returns the first position in each.
    pub async fn append_to_all(&self, parts: Vec<(String, Rows)>) -> Result<Vec<u64>, LogError> {
        let part =
            |(name, entries): (String, Rows)| Part { name, expect: None, entries: entries.into_bytes() };
        let parts = parts.into_iter().map(part).collect();
        match self.call(Request::Append(Append { parts, admitted: None }), Duration::ZERO).await? {
            Answer::Appended(firsts) => Ok(firsts),
            _ => Err(unreadable()),
        }
    }

    /// Reads entries from position `from` on: at most `entries_max`, and about 1 MiB. At the tail it waits for an entry as long as
    /// `wait` says (30 s at most), and returns none if there is none.
    pub async fn read(
        &self,
        name: &str,
        from: u64,
        entries_max: u32,
        wait: Duration,
    ) -> Result<LogEntries, LogError> {
        let (name, bytes_max, wait_ms) = (name.to_owned(), READ_BYTES_MAX, wait.as_millis() as u32);
        self.entries(Request::Read(Read { name, from, entries_max, bytes_max, wait_ms }), wait).await
    }

    /// Reads entries that may be trimmed, as far as hosts still have them: those that wait for the archive, and those of a segment
    /// that is trimmed in part. Otherwise as [`Log::read`], without waiting; [`LogError::Trimmed`] says what hosts have.
    pub async fn recall(&self, name: &str, from: u64, entries_max: u32) -> Result<LogEntries, LogError> {
        let (name, bytes_max, wait_ms) = (name.to_owned(), READ_BYTES_MAX, 0);
        let recall = Request::Recall(Read { name, from, entries_max, bytes_max, wait_ms });
        self.entries(recall, Duration::ZERO).await
    }

    /// Which of the logs that have had this name has it now.
    pub async fn identify(&self, name: &str) -> Result<LogIdentity, LogError> {
        match self.call(Request::Identify(Named { name: name.to_owned() }), Duration::ZERO).await? {
            Answer::Identity(identity) => Ok(identity),
            _ => Err(unreadable()),
        }
    }

    async fn entries(&self, request: Request, wait: Duration) -> Result<LogEntries, LogError> {
        match self.call(request, wait).await? {
            Answer::Entries(read) => {
                let entries = Rows::iter(&read.rows).map(|entry| read.rows.slice_ref(entry)).collect();
                Ok(LogEntries { first: read.first, tail: read.tail, sealed: read.sealed, entries })
            }
            _ => Err(unreadable()),
        }
    }

    /// Drops the entries below position `before`.
    pub async fn trim(&self, name: &str, before: u64) -> Result<(), LogError> {
        self.done(Request::Trim(Trim { name: name.to_owned(), before })).await
    }

    /// Lets nothing be appended any more.
    pub async fn seal(&self, name: &str) -> Result<(), LogError> {
        self.done(Request::Seal(Named { name: name.to_owned() })).await
    }

    /// Drops a log with its entries; one of the same name begins at 0 again.
    pub async fn delete(&self, name: &str) -> Result<(), LogError> {
        self.done(Request::Delete(Named { name: name.to_owned() })).await
    }

    /// Keeps how far a group of readers that have no generation has come in logs.
    pub async fn commit(&self, group: &str, progress: Vec<Progress>) -> Result<(), LogError> {
        self.done(Request::Commit(Commit { group: group.to_owned(), generation: None, progress })).await
    }

    /// How far a log goes.
    pub async fn stat(&self, name: &str) -> Result<LogStat, LogError> {
        match self.call(Request::Stat(Named { name: name.to_owned() }), Duration::ZERO).await? {
            Answer::Logs(logs) => logs.into_iter().next().ok_or_else(unreadable),
            _ => Err(unreadable()),
        }
    }

    /// Logs whose names come after `after`, at most `limit` (and at most 1,000), sorted by name.
    pub async fn list(&self, after: &str, limit: u32) -> Result<Vec<LogStat>, LogError> {
        match self.call(Request::List(List { after: after.to_owned(), limit }), Duration::ZERO).await? {
            Answer::Logs(logs) => Ok(logs),
            _ => Err(unreadable()),
        }
    }
}

fn unreadable() -> LogError {
    CallError::Unreadable("an answer of another kind".to_owned()).into()
}

fn error_of(Refused { why, name, at }: Refused) -> LogError {
    match why {
        Why::Busy | Why::Unknown => CallError::MaybeExecuted.into(),
        Why::Malformed => CallError::Refused.into(),
        Why::NoSuchLog => LogError::NoSuchLog(name),
        Why::Exists => LogError::Exists(name),
        Why::Sealed => LogError::Sealed { name, tail: at },
        Why::Moved => LogError::Moved { name, tail: at },
        Why::Trimmed => LogError::Trimmed { name, resume_from: at },
        Why::BeyondTail => LogError::BeyondTail { name, tail: at },
        Why::Full => LogError::Full { name, free: at },
        Why::DiskFull => CallError::DiskFull.into(),
        Why::NotGranted => CallError::NotGranted.into(),
        Why::TooLarge => LogError::TooLarge,
        Why::Unsupported => LogError::Unsupported,
        Why::OverBudget => LogError::OverBudget { name, held_bytes: at },
        Why::Unarchived => LogError::Unarchived { name, waiting_bytes: at },
    }
}
