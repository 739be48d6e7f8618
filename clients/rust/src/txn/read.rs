//! Read-only transactions.

use super::{TxnClient, TxnError, unreadable};
use kernel::Bytes;
use wire::txn::{KeyRange, KeyRow, KeyScan, ReadOnly, ScannedRows, Timestamp, TxnLevel, TxnReply};

/// A read-only transaction to be run.
#[derive(Clone, Debug)]
pub struct ReadCall<'a> {
    client: &'a TxnClient,
    level: TxnLevel,
    keys: Vec<Bytes>,
    scans: Vec<KeyScan>,
}

/// What a read-only transaction found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadResult {
    /// It is placed here on the axis of commit timestamps.
    pub at: Timestamp,
    /// The keys, in the order in which they were asked for.
    pub rows: Vec<KeyRow>,
    /// The scans, in the order in which they were asked for.
    pub scans: Vec<ScannedRows>,
}

impl<'a> ReadCall<'a> {
    pub(super) fn new(client: &'a TxnClient, level: TxnLevel) -> Self {
        Self { client, level, keys: Vec::new(), scans: Vec::new() }
    }

    /// Reads these keys too.
    #[must_use]
    pub fn keys<K: Into<Vec<u8>>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keys.extend(keys.into_iter().map(|key| Bytes::from(key.into())));
        self
    }

    /// Scans the keys that begin so, too, and gives `limit` rows at most.
    #[must_use]
    pub fn scan(self, prefix: impl Into<Vec<u8>>, limit: u32) -> Self {
        self.scan_range(KeyRange::with_prefix(prefix.into().into()), limit)
    }

    /// Scans a range too.
    #[must_use]
    pub fn scan_range(mut self, range: KeyRange, limit: u32) -> Self {
        self.scans.push(KeyScan { range, limit });
        self
    }

    /// Reads.
    pub async fn run(self) -> Result<ReadResult, TxnError> {
        let Self { client, level, keys, scans } = self;
        let token = client.token();
        match client.call(ReadOnly { id: 0, token, level, keys, scans }).await? {
            TxnReply::ReadRows(found) => {
                Ok(ReadResult { at: found.at, rows: found.rows, scans: found.scans })
            }
            _ => Err(unreadable()),
        }
    }
}
