//! Transactions.
//!
//! ```no_run
//! # async fn example() -> Result<(), ordinate_client::TxnError> {
//! use ordinate_client::{TxnClient, TxnLevel};
//! let client = TxnClient::connect(["127.0.0.1:7071"]);
//! let before = client
//!     .transaction(|t| async move {
//!         let balance = t.get("bank/1").await?;
//!         t.put("bank/1", "90");
//!         Ok::<_, ordinate_client::TxnError>(balance)
//!     })
//!     .await?;
//! let found = client.read(TxnLevel::Rss).keys(["bank/1"]).scan("bank/", 100).run().await?;
//! # let _ = (before, found);
//! # Ok(())
//! # }
//! ```
//!
//! A [`TxnClient`] is a session: what it has seen, all its later transactions see, whatever their level. Its clones are the same session;
//! [`TxnClient::session`] begins another one.

mod asked;
mod errors;
mod one_shot;
mod read;
mod transaction;

pub use errors::TxnError;
pub use one_shot::{OneShotCall, OneShotOutcome};
pub use read::{ReadCall, ReadResult};
pub use transaction::Transaction;

use crate::calls::{Calls, drawn};
use crate::connect::connects;
use crate::{CallError, TIMEOUT};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::txn::{CallKey, CommitStatus, Fence, Timestamp, TxnCall, TxnFailure, TxnReply};

/// A client of the transaction service, and a session of it. Cheap to clone; must be made inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct TxnClient {
    calls: Calls<TxnCall>,
    timeout: Duration,
    session: Arc<Mutex<Session>>,
}

/// What a session knows.
#[derive(Debug)]
struct Session {
    token: Timestamp,
    /// What its commits are called by.
    name: u64,
    next: u64,
    /// Commits without an answer.
    open: BTreeSet<u64>,
}

impl Session {
    fn new(token: Timestamp) -> Self {
        Self { token, name: drawn(), next: 1, open: BTreeSet::new() }
    }

    /// A name for a commit, and the number below which the session has all answers.
    fn name_commit(&mut self) -> (CallKey, u64) {
        let number = self.next;
        self.next += 1;
        self.open.insert(number);
        let acknowledged = self.open.first().copied().unwrap_or(number);
        (CallKey { session: self.name, number }, acknowledged)
    }

    fn is_answered(&mut self, key: CallKey) {
        if key.session == self.name {
            self.open.remove(&key.number);
        }
    }

    /// Nobody learns how a commit has ended: it stays open, as it may still be executed. The session goes on under another name, or
    /// shards would remember all that it commits from now on, and refuse it when that is too much.
    fn is_lost(&mut self, key: CallKey) {
        if key.session == self.name {
            (self.name, self.next) = (drawn(), 1);
            self.open.clear();
        }
    }
}

connects!(TxnClient, |calls| Self {
    calls,
    timeout: TIMEOUT,
    session: Arc::new(Mutex::new(Session::new(Timestamp(0)))),
});

/// A commit without an answer; one whose caller stops waiting is lost.
struct OpenCommit<'a> {
    client: &'a TxnClient,
    key: CallKey,
    is_answered: bool,
}

impl OpenCommit<'_> {
    /// The answer is here.
    fn answered(mut self) {
        self.is_answered = true;
        self.client.session_now().is_answered(self.key);
    }

    /// No answer will come.
    fn lost(self) -> TxnError {
        TxnError::Unknown { id: self.key }
    }
}

impl Drop for OpenCommit<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.client.session_now().is_lost(self.key);
        }
    }
}

impl TxnClient {
    /// Another session over the same connection, which has seen nothing yet.
    #[must_use]
    pub fn session(&self) -> Self {
        Self { session: Arc::new(Mutex::new(Session::new(Timestamp(0)))), ..self.clone() }
    }

    fn session_now(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the session has seen, to be carried to another process or host: everything committed up to this timestamp.
    pub fn token(&self) -> Timestamp {
        self.session_now().token
    }

    /// The session has seen what a token of another session says.
    pub fn absorb(&self, token: Timestamp) {
        let mut session = self.session_now();
        session.token = session.token.max(token);
    }

    /// A read-only transaction of this level.
    pub fn read(&self, level: wire::txn::TxnLevel) -> ReadCall<'_> {
        ReadCall::new(self, level)
    }

    /// Conditions, writes and reads in one message.
    pub fn one_shot(&self) -> OneShotCall<'_> {
        OneShotCall::new(self)
    }

    /// Returns when every later transaction, of any session and level, sees what this session has seen: to be awaited before the
    /// process turns to another service.
    pub async fn fence(&self) -> Result<(), TxnError> {
        let token = self.token();
        match self.call(Fence { id: 0, token }).await? {
            TxnReply::Fenced(_) => Ok(()),
            _ => Err(unreadable()),
        }
    }

    /// What became of a commit: its timestamp if it was committed; none if it was not, or if that is not known any more.
    pub async fn status(&self, id: CallKey) -> Result<Option<Timestamp>, TxnError> {
        match self.call(CommitStatus { id: 0, key: id }).await? {
            TxnReply::CommitFate(reply) => Ok(reply.committed),
            _ => Err(unreadable()),
        }
    }

    /// A name for a commit, and the number below which the session has all answers.
    fn name_commit(&self) -> (OpenCommit<'_>, u64) {
        let (key, acknowledged) = self.session_now().name_commit();
        (OpenCommit { client: self, key, is_answered: false }, acknowledged)
    }

    /// A call that changes nothing, or is executed once.
    async fn call(&self, call: impl Into<TxnCall>) -> Result<TxnReply, TxnError> {
        let call = call.into();
        if let Some(fault) = call.fault() {
            return Err(TxnError::Fault(fault));
        }
        let reply = self.calls.call(call, self.timeout).await.map_err(TxnError::Unreached)?;
        self.take_token(&reply);
        match reply {
            TxnReply::Failed(failed) => Err(TxnError::Failed(failed.why)),
            reply => Ok(reply),
        }
    }

    fn take_token(&self, reply: &TxnReply) {
        let token = match reply {
            TxnReply::ReadRows(reply) => reply.token,
            TxnReply::Committed(reply) => reply.token,
            TxnReply::NotMet(reply) => reply.token,
            TxnReply::RowsWithin(reply) => reply.token,
            TxnReply::Fenced(reply) => reply.token,
            TxnReply::Begun(_) | TxnReply::CommitFate(_) | TxnReply::Failed(_) => return,
        };
        self.absorb(token);
    }
}

fn unreadable() -> TxnError {
    TxnError::Unreached(CallError::Unreadable("it belongs to another call".to_owned()))
}

/// True if a failure ends an attempt, and another one may succeed.
fn ends_an_attempt(why: TxnFailure) -> bool {
    why.may_be_retried() || why == TxnFailure::NoTransaction
}

#[cfg(test)]
mod tests {
    use super::*;

    // A shard remembers what a session has not acknowledged, up to a bound: a session that waits for ever for one answer is refused in
    // the end.
    #[test]
    fn a_lost_commit_does_not_keep_later_ones_unacknowledged() {
        let mut session = Session::new(Timestamp(0));
        let (first, _) = session.name_commit();
        let (beside, _) = session.name_commit();
        session.is_lost(first);
        let (later, acknowledged) = session.name_commit();
        assert_ne!(later.session, first.session, "what is lost may still be executed under its name");
        assert_eq!(acknowledged, later.number);
        session.is_answered(beside);
        session.is_answered(later);
        let (last, acknowledged) = session.name_commit();
        assert_eq!((last.session, acknowledged), (later.session, last.number));
    }

    // Callers have deadlines of their own: they stop waiting, and the session goes on.
    #[tokio::test]
    async fn a_commit_that_nobody_waits_for_is_lost() {
        let client = TxnClient::connect(["127.0.0.1:9"]);
        let commit = client.one_shot().put("key", "value").run();
        assert!(tokio::time::timeout(Duration::from_millis(1), commit).await.is_err(), "nobody answers");
        let (open, acknowledged) = client.name_commit();
        assert_eq!(acknowledged, open.key.number);
        open.answered();
    }
}
