//! What a call may ask for: checked by clients before they send, and by gateways before they ask a shard.

use super::{
    Condition, ITEMS_MAX, KEY_BYTES_MAX, KeyScan, KeyWrite, SCAN_ROWS_MAX, TXN_BYTES_MAX,
    TXN_VALUE_BYTES_MAX, TxnCall,
};
use kernel::Bytes;
use std::fmt;

/// What is wrong with a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallFault {
    /// More than there may be.
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much there is.
        used: usize,
        /// How much there may be.
        limit: usize,
    },
    /// A key has no bytes.
    EmptyKey,
    /// A key is written twice.
    WrittenTwice(Bytes),
    /// A scan that may give no row.
    NoRows,
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMuch { what, used, limit } => write!(f, "{what}: {used}/{limit}"),
            Self::EmptyKey => f.write_str("a key is empty"),
            Self::WrittenTwice(key) => {
                write!(f, "the key {} is written twice", String::from_utf8_lossy(key))
            }
            Self::NoRows => f.write_str("a scan has the limit 0"),
        }
    }
}

impl TxnCall {
    /// What is wrong with it, if a limit is exceeded or it makes no sense.
    pub fn fault(&self) -> Option<CallFault> {
        let checked = match self {
            Self::ReadOnly(call) => reads(&call.keys, &call.scans),
            Self::OneShot(call) => conditions(&call.conditions)
                .and_then(|()| {
                    within("reads and conditions", call.reads.len() + call.conditions.len(), ITEMS_MAX)
                })
                .and_then(|()| reads(&call.reads, &[]))
                .and_then(|()| reads(&call.otherwise, &[]))
                .and_then(|()| writes(&call.writes)),
            Self::ReadWithin(call) => reads(&call.keys, &call.scans),
            Self::Commit(call) => writes(&call.writes),
            Self::Begin(_) | Self::GiveUp(_) | Self::Fence(_) | Self::CommitStatus(_) => Ok(()),
        };
        checked.err()
    }
}

fn within(what: &'static str, used: usize, limit: usize) -> Result<(), CallFault> {
    if used <= limit { Ok(()) } else { Err(CallFault::TooMuch { what, used, limit }) }
}

fn key(key: &Bytes) -> Result<(), CallFault> {
    if key.is_empty() {
        return Err(CallFault::EmptyKey);
    }
    within("bytes of a key", key.len(), KEY_BYTES_MAX)
}

fn conditions(conditions: &[Condition]) -> Result<(), CallFault> {
    conditions.iter().try_for_each(|condition| key(&condition.key))
}

fn reads(keys: &[Bytes], scans: &[KeyScan]) -> Result<(), CallFault> {
    within("keys and scans", keys.len() + scans.len(), ITEMS_MAX)?;
    keys.iter().try_for_each(key)?;
    scans.iter().try_for_each(|scan| {
        // The first key behind the largest one has a byte more.
        within("bytes of a scan's start", scan.range.start.len(), KEY_BYTES_MAX + 1)?;
        within("bytes of a scan's end", scan.range.end.as_ref().map_or(0, Bytes::len), KEY_BYTES_MAX + 1)?;
        if scan.limit == 0 {
            return Err(CallFault::NoRows);
        }
        within("rows of a scan", scan.limit as usize, SCAN_ROWS_MAX as usize)
    })
}

fn writes(writes: &[KeyWrite]) -> Result<(), CallFault> {
    within("writes", writes.len(), ITEMS_MAX)?;
    for write in writes {
        key(&write.key)?;
        within("bytes of a value", write.value.as_ref().map_or(0, Bytes::len), TXN_VALUE_BYTES_MAX)?;
    }
    within("bytes written", writes.iter().map(KeyWrite::size).sum(), TXN_BYTES_MAX)?;
    let mut keys: Vec<&Bytes> = writes.iter().map(|write| &write.key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(CallFault::WrittenTwice(pair[0].clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::{Commit, KeyRange, ReadWithin};

    fn commit(writes: Vec<KeyWrite>) -> Option<CallFault> {
        TxnCall::Commit(Commit { id: 1, txn: 1, key: None, acknowledged: 0, writes }).fault()
    }

    fn write(key: usize, value: usize) -> KeyWrite {
        KeyWrite { key: vec![b'k'; key].into(), value: Some(vec![0; value].into()) }
    }

    // A limit that is off by one lets through what a shard cannot log, or refuses what the documentation allows.
    #[test]
    fn calls_at_their_limits_pass_and_beyond_them_do_not() {
        let too_much = |what, used, limit| Some(CallFault::TooMuch { what, used, limit });
        assert_eq!(commit(vec![write(KEY_BYTES_MAX, TXN_VALUE_BYTES_MAX)]), None);
        assert_eq!(commit(vec![write(KEY_BYTES_MAX + 1, 0)]), too_much("bytes of a key", 4_097, 4_096));
        assert_eq!(
            commit(vec![write(1, TXN_VALUE_BYTES_MAX + 1)]),
            too_much("bytes of a value", 1_048_577, 1_048_576)
        );
        assert_eq!(commit(vec![write(0, 1)]), Some(CallFault::EmptyKey));
        let two = |one, other| commit(vec![write(1, one), write(2, other)]);
        let max = TXN_VALUE_BYTES_MAX;
        assert_eq!(two(max - 1, max - 2), None);
        assert_eq!(two(max - 1, max - 1), too_much("bytes written", TXN_BYTES_MAX + 1, TXN_BYTES_MAX));
        assert!(matches!(commit(vec![write(3, 1), write(3, 2)]), Some(CallFault::WrittenTwice(_))));
        let many: Vec<KeyWrite> = (0..=ITEMS_MAX).map(|length| write(length + 1, 0)).collect();
        assert_eq!(commit(many[..ITEMS_MAX].to_vec()), None);
        assert_eq!(commit(many), too_much("writes", 1_001, 1_000));
        let scan = |limit| KeyScan { range: KeyRange { start: Bytes::new(), end: None }, limit };
        let read = |limit| {
            TxnCall::ReadWithin(ReadWithin { id: 1, txn: 1, keys: vec![], scans: vec![scan(limit)] }).fault()
        };
        assert_eq!(read(SCAN_ROWS_MAX), None);
        assert_eq!(read(0), Some(CallFault::NoRows));
        assert_eq!(
            read(SCAN_ROWS_MAX + 1).map(|fault| fault.to_string()).as_deref(),
            Some("rows of a scan: 10001/10000")
        );
    }
}
