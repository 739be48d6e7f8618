//! Interactive transactions: a closure that reads and writes, tried again until it commits.

use super::{OpenCommit, TxnClient, TxnError, ends_an_attempt, unreadable};
use crate::CallError;
use kernel::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::txn::{
    Begin, Commit, GiveUp, KeyRange, KeyRow, KeyScan, KeyWrite, ReadWithin, ScannedRows, Timestamp, TxnCall,
    TxnFailure, TxnReply,
};

/// The first pause before a transaction is tried again; twice as long after each attempt.
const PAUSE: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// How often the fate of a commit is asked for whose host is gone.
const ASK_FATE_EVERY: Duration = Duration::from_millis(200);
/// What no log has after so long was most likely never prepared: shards abort what a dead host began within a second.
const ASK_FATE_WITHIN: Duration = Duration::from_secs(5);

/// One attempt at an interactive transaction. What it reads, nobody writes before it ends; what it writes, nobody sees before it is
/// committed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Transaction {
    client: TxnClient,
    number: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Its own writes, which its reads see.
    writes: BTreeMap<Bytes, Option<Bytes>>,
    /// Why it cannot be committed any more.
    ended: Option<TxnFailure>,
}

impl Transaction {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a key holds; none if there is no such key.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<Bytes>, TxnError> {
        let key = Bytes::from(key.into());
        if let Some(written) = self.state().writes.get(&key) {
            return Ok(written.clone());
        }
        let (rows, _) = self.read(vec![key], Vec::new()).await?;
        Ok(rows.into_iter().next().and_then(|row| row.value))
    }

    /// What keys hold. Those that this transaction has written have the version 0.
    pub async fn rows<K: Into<Vec<u8>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<KeyRow>, TxnError> {
        let keys = keys.into_iter().map(|key| Bytes::from(key.into())).collect();
        let (mut rows, _) = self.read(keys, Vec::new()).await?;
        let writes = &self.state().writes;
        for row in &mut rows {
            if let Some(written) = writes.get(&row.key) {
                (row.value, row.version) = (written.clone(), Timestamp(0));
            }
        }
        Ok(rows)
    }

    /// The keys that begin so, `limit` at most. Nobody adds or removes one before this transaction ends. Its own writes are in
    /// there, with the version 0.
    pub async fn scan(&self, prefix: impl Into<Vec<u8>>, limit: u32) -> Result<ScannedRows, TxnError> {
        let range = KeyRange::with_prefix(prefix.into().into());
        let scan = KeyScan { range, limit };
        let (_, scans) = self.read(Vec::new(), vec![scan.clone()]).await?;
        let found = scans.into_iter().next().ok_or_else(unreadable)?;
        Ok(with_own_writes(&scan, found, &self.state().writes))
    }

    /// Sets a key when it commits.
    pub fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.state().writes.insert(key.into().into(), Some(value.into().into()));
    }

    /// Deletes a key when it commits.
    pub fn delete(&self, key: impl Into<Vec<u8>>) {
        self.state().writes.insert(key.into().into(), None);
    }

    async fn read(
        &self,
        keys: Vec<Bytes>,
        scans: Vec<KeyScan>,
    ) -> Result<(Vec<KeyRow>, Vec<ScannedRows>), TxnError> {
        if let Some(why) = self.state().ended {
            return Err(TxnError::Failed(why));
        }
        let read: TxnCall = ReadWithin { id: 0, txn: self.number, keys, scans }.into();
        match self.client.call(read).await {
            Ok(TxnReply::RowsWithin(reply)) => Ok((reply.rows, reply.scans)),
            Ok(_) => Err(unreadable()),
            Err(TxnError::Unreached(CallError::MaybeExecuted)) => {
                // The host that played its client is gone, and the transaction with it.
                self.state().ended = Some(TxnFailure::NoTransaction);
                Err(TxnError::Failed(TxnFailure::NoTransaction))
            }
            Err(TxnError::Failed(why)) => {
                if ends_an_attempt(why) {
                    self.state().ended = Some(why);
                }
                Err(TxnError::Failed(why))
            }
            Err(error) => Err(error),
        }
    }

    fn taken_writes(&self) -> Vec<KeyWrite> {
        let writes = std::mem::take(&mut self.state().writes);
        writes.into_iter().map(|(key, value)| KeyWrite { key, value }).collect()
    }

    /// Gives it up: nothing is written. Not answered, so nobody waits.
    pub fn abort(&self) {
        let given_up = GiveUp { txn: self.number };
        drop(self.client.calls.call(given_up.into(), Duration::ZERO));
    }

    /// Commits what was written; the commit timestamp. For transactions of [`TxnClient::begin_transaction`].
    pub async fn commit(&self) -> Result<Timestamp, TxnError> {
        if let Some(why) = self.state().ended {
            return Err(TxnError::Failed(why));
        }
        let (open, acknowledged) = self.client.name_commit();
        let (txn, writes, key) = (self.number, self.taken_writes(), open.key);
        let call: TxnCall = Commit { id: 0, txn, key: Some(key), acknowledged, writes }.into();
        if let Some(fault) = call.fault() {
            open.answered();
            self.abort();
            return Err(TxnError::Fault(fault));
        }
        match self.client.calls.call(call, self.client.timeout).await {
            Ok(TxnReply::Committed(reply)) => {
                self.client.absorb(reply.token);
                open.answered();
                Ok(reply.at)
            }
            Ok(TxnReply::Failed(failed)) if failed.why.is_surely_void() => {
                open.answered();
                Err(TxnError::Failed(failed.why))
            }
            Ok(_) | Err(_) => self.fate_of(open).await,
        }
    }

    /// The host that played its client is gone, or does not know: the shards' logs do.
    async fn fate_of(&self, open: OpenCommit<'_>) -> Result<Timestamp, TxnError> {
        let begun = tokio::time::Instant::now();
        let deadline = begun + self.client.timeout;
        // A shard that is not reached may have it: only what all have answered counts.
        let mut answered_until = begun;
        while tokio::time::Instant::now() < deadline && answered_until < begun + ASK_FATE_WITHIN {
            match self.client.status(open.key).await {
                Ok(Some(at)) => {
                    self.client.absorb(at);
                    open.answered();
                    return Ok(at);
                }
                Ok(None) => answered_until = tokio::time::Instant::now(),
                Err(_) => {}
            }
            tokio::time::sleep(ASK_FATE_EVERY).await;
        }
        // It may still be prepared somewhere: that it was not committed is not known.
        Err(open.lost())
    }
}

/// What a scan found, and what the transaction itself has written there.
fn with_own_writes(
    scan: &KeyScan,
    found: ScannedRows,
    writes: &BTreeMap<Bytes, Option<Bytes>>,
) -> ScannedRows {
    let ScannedRows { rows, mut next } = found;
    let mut rows: BTreeMap<Bytes, KeyRow> = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
    // Behind where the scan has stopped there may be keys that it has not found.
    let seen = |key: &Bytes| scan.range.contains(key) && next.as_ref().is_none_or(|next| key < next);
    for (key, value) in writes.iter().filter(|(key, _)| seen(key)) {
        match value {
            Some(value) => {
                let row = KeyRow { key: key.clone(), value: Some(value.clone()), version: Timestamp(0) };
                rows.insert(key.clone(), row);
            }
            None => {
                rows.remove(key);
            }
        }
    }
    if let Some(first_left_out) = rows.keys().nth(scan.limit as usize).cloned() {
        rows.split_off(&first_left_out);
        next = Some(first_left_out);
    }
    ScannedRows { rows: rows.into_values().collect(), next }
}

impl TxnClient {
    /// Begins one attempt, with the priority of the first if there was one. An attempt that is aborted is not made again: see
    /// [`TxnClient::transaction`].
    pub async fn begin_transaction(&self) -> Result<Transaction, TxnError> {
        self.attempt(None).await.map(|(attempt, _)| attempt)
    }

    async fn attempt(&self, priority: Option<Timestamp>) -> Result<(Transaction, Timestamp), TxnError> {
        let token = self.token();
        match self.call(Begin { id: 0, token, priority }).await? {
            TxnReply::Begun(begun) => {
                let attempt = Transaction { client: self.clone(), number: begun.id, state: Arc::default() };
                Ok((attempt, begun.priority))
            }
            _ => Err(unreadable()),
        }
    }

    /// Runs `body` in a transaction and commits what it wrote. An attempt that was aborted is made again, with the priority of the
    /// first, so that it is not always the younger one; `body` is called anew for each. If `body` fails, nothing is written.
    pub async fn transaction<T, E, F>(&self, body: impl Fn(Transaction) -> F) -> Result<T, E>
    where
        E: From<TxnError>,
        F: Future<Output = Result<T, E>>,
    {
        self.committed(body).await.map(|(done, _)| done)
    }

    /// The same, with the commit timestamp.
    pub async fn committed<T, E, F>(&self, body: impl Fn(Transaction) -> F) -> Result<(T, Timestamp), E>
    where
        E: From<TxnError>,
        F: Future<Output = Result<T, E>>,
    {
        let deadline = tokio::time::Instant::now() + self.timeout;
        let (mut priority, mut attempts) = (None, 0);
        loop {
            attempts += 1;
            let (attempt, begun) = self.attempt(priority).await?;
            priority = priority.or(Some(begun));
            let done = body(attempt.clone()).await;
            let ended = attempt.state().ended;
            let aborted = match (done, ended) {
                (Ok(done), None) => match attempt.commit().await {
                    Ok(at) => return Ok((done, at)),
                    Err(TxnError::Failed(why)) if ends_an_attempt(why) => why,
                    Err(error) => return Err(error.into()),
                },
                (Err(error), None) => {
                    attempt.abort();
                    return Err(error);
                }
                (Ok(_) | Err(_), Some(why)) => why,
            };
            let pause = PAUSE_MAX.min(PAUSE * (1 << attempts.min(10)));
            if tokio::time::Instant::now() + pause >= deadline {
                let within = self.timeout;
                return Err(TxnError::Exhausted { attempts, within, last: aborted }.into());
            }
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A transaction that does not see its own writes reads back what it has just replaced.
    #[test]
    fn scans_see_own_writes_up_to_where_they_have_stopped() {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let row = |key| KeyRow { key: bytes(key), value: Some(bytes("old")), version: Timestamp(7) };
        let scan = |limit| KeyScan { range: KeyRange::with_prefix(bytes("p/")), limit };
        let writes = BTreeMap::from([
            (bytes("a"), Some(bytes("new"))),
            (bytes("p/a"), Some(bytes("new"))),
            (bytes("p/b"), None),
            (bytes("p/z"), Some(bytes("new"))),
        ]);
        let found = |rows: &[&'static str], next: Option<&'static str>| ScannedRows {
            rows: rows.iter().map(|key| row(key)).collect(),
            next: next.map(bytes),
        };
        let seen = |limit, found| {
            let seen = with_own_writes(&scan(limit), found, &writes);
            (seen.rows.into_iter().map(|row| row.key).collect::<Vec<_>>(), seen.next)
        };
        let all = [bytes("p/a"), bytes("p/c"), bytes("p/z")];
        assert_eq!(seen(9, found(&["p/b", "p/c"], None)), (all.to_vec(), None));
        assert_eq!(seen(2, found(&["p/b", "p/c"], None)), (all[..2].to_vec(), Some(bytes("p/z"))));
        assert_eq!(seen(2, found(&["p/b", "p/c"], Some("p/d"))), (all[..2].to_vec(), Some(bytes("p/d"))));
    }
}
