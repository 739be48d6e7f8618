//! One-shot transactions: conditions, writes and reads in one message.

use super::{TxnClient, TxnError, unreadable};
use crate::CallError;
use kernel::Bytes;
use wire::txn::{CallKey, Condition, KeyRow, KeyWrite, OneShot, Timestamp, TxnCall, TxnFailure, TxnReply};

/// A one-shot transaction to be run.
#[derive(Clone, Debug)]
pub struct OneShotCall<'a> {
    client: &'a TxnClient,
    conditions: Vec<Condition>,
    writes: Vec<KeyWrite>,
    reads: Vec<Bytes>,
    otherwise: Vec<Bytes>,
}

/// What a one-shot came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OneShotOutcome {
    /// Its writes have this timestamp.
    Committed {
        /// The version of what was written.
        at: Timestamp,
        /// What was read before, in the order asked for. Empty if the call was committed when it was sent earlier.
        rows: Vec<KeyRow>,
        /// What the commit is called.
        id: CallKey,
    },
    /// A condition does not hold, and nothing was written.
    NotMet {
        /// Which one, counted from 0.
        condition: usize,
        /// What was to be read then.
        rows: Vec<KeyRow>,
    },
}

impl<'a> OneShotCall<'a> {
    pub(super) fn new(client: &'a TxnClient) -> Self {
        let (conditions, writes) = (Vec::new(), Vec::new());
        Self { client, conditions, writes, reads: Vec::new(), otherwise: Vec::new() }
    }

    /// Only if the key has this version; 0: there is no such key.
    #[must_use]
    pub fn if_version(mut self, key: impl Into<Vec<u8>>, version: Timestamp) -> Self {
        self.conditions.push(Condition { key: key.into().into(), version });
        self
    }

    /// Only if there is no such key.
    #[must_use]
    pub fn if_absent(self, key: impl Into<Vec<u8>>) -> Self {
        self.if_version(key, Timestamp(0))
    }

    /// Sets a key.
    #[must_use]
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.writes.push(KeyWrite { key: key.into().into(), value: Some(value.into().into()) });
        self
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.writes.push(KeyWrite { key: key.into().into(), value: None });
        self
    }

    /// Reads what a key holds before the writes.
    #[must_use]
    pub fn read(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.reads.push(Bytes::from(key.into()));
        self
    }

    /// Reads a key if a condition does not hold.
    #[must_use]
    pub fn otherwise_read(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.otherwise.push(Bytes::from(key.into()));
        self
    }

    /// Runs it. Sent again when a connection breaks, and executed once.
    pub async fn run(self) -> Result<OneShotOutcome, TxnError> {
        let Self { client, conditions, writes, reads, otherwise } = self;
        let (open, acknowledged) = client.name_commit();
        let (key, token) = (open.key, client.token());
        let key_of = Some(key);
        let call: TxnCall =
            OneShot { id: 0, token, key: key_of, acknowledged, conditions, writes, reads, otherwise }.into();
        if let Some(fault) = call.fault() {
            open.answered();
            return Err(TxnError::Fault(fault));
        }
        let reply = match client.calls.call(call, client.timeout).await {
            Ok(reply) => reply,
            Err(unsent @ (CallError::NotSent(_) | CallError::Off(_))) => {
                open.answered();
                return Err(TxnError::Unreached(unsent));
            }
            Err(_) => return Err(open.lost()),
        };
        client.take_token(&reply);
        if matches!(&reply, TxnReply::Failed(failed) if failed.why == TxnFailure::Unknown) {
            return Err(open.lost());
        }
        open.answered();
        match reply {
            TxnReply::Committed(reply) => {
                Ok(OneShotOutcome::Committed { at: reply.at, rows: reply.rows, id: key })
            }
            TxnReply::NotMet(reply) => {
                Ok(OneShotOutcome::NotMet { condition: reply.condition as usize, rows: reply.rows })
            }
            TxnReply::Failed(failed) => Err(TxnError::Failed(failed.why)),
            TxnReply::ReadRows(_)
            | TxnReply::Begun(_)
            | TxnReply::RowsWithin(_)
            | TxnReply::Fenced(_)
            | TxnReply::CommitFate(_) => Err(unreadable()),
        }
    }
}
