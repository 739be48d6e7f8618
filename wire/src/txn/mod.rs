//! Transactions: what users ask and are answered. Keys and values are bytes; a key's version is the commit timestamp of the
//! transaction that wrote it.

mod calls;
mod codec;
mod commit_id;
mod limits;
mod replies;

pub use calls::*;
pub use codec::{TO_CLIENT, TO_HOST, native_call, native_reply, read_native_call, read_native_reply};
pub use commit_id::NoCommitId;
pub use limits::CallFault;
pub use replies::*;

use kernel::Bytes;
use std::fmt;

/// Keys and scans that one call may read, and keys that it may write.
pub const ITEMS_MAX: usize = 1_000;
/// The largest key, in bytes.
pub const KEY_BYTES_MAX: usize = 4 << 10;
/// The largest value, in bytes.
pub const TXN_VALUE_BYTES_MAX: usize = 1 << 20;
/// The most that a transaction writes, in bytes of keys and values.
pub const TXN_BYTES_MAX: usize = 2 << 20;
/// The most rows that one scan gives.
pub const SCAN_ROWS_MAX: u32 = 10_000;
/// The most that one call reads, in bytes of keys and values.
pub const READ_BYTES_MAX: usize = 2 << 20;

kernel::number! {
    /// Microseconds since the Unix epoch, on the axis that all commits are placed on. Below 2^53, so that JSON numbers hold it. 0 is
    /// before everything.
    pub struct Timestamp(u64);
}

impl Timestamp {
    /// The largest that JSON numbers hold.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The timestamp before this one.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// How fresh a read-only transaction has to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TxnLevel {
    /// Strictly serializable: sees all that was committed before it was asked.
    Strict,
    /// Regular sequential serializable (the paper's section 3.4): sees what its session has seen, and each write that it conflicts with
    /// and that had ended before it was asked.
    Rss,
    /// Process-ordered serializable: sees what its session has seen.
    ProcessOrdered,
    /// The state at a timestamp.
    At(Timestamp),
    /// A state that is at most so many microseconds old.
    Stale(u64),
}

impl TxnLevel {
    /// The level's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Rss => "rss",
            Self::ProcessOrdered => "process-ordered",
            Self::At(_) => "at",
            Self::Stale(_) => "stale",
        }
    }
}

impl fmt::Display for TxnLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

kernel::record! {
    /// What a caller calls a commit, so that it is executed once however often it is sent.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct CallKey {
        /// The caller's session, drawn at random.
        session: u64,
        /// Which of its commits.
        number: u64,
    }
}

kernel::record! {
    /// The keys from `start` on and below `end`, in the order of their bytes.
    #[derive(Eq, PartialOrd, Ord)]
    pub struct KeyRange {
        /// The first key that may be in it.
        start: Bytes,
        /// The first key behind it; none: it goes to the last key.
        end: Option<Bytes>,
    }
}

impl KeyRange {
    /// True if the key is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// True if no key can be in it.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end <= &self.start)
    }

    /// All keys that begin so.
    pub fn with_prefix(prefix: Bytes) -> Self {
        let last = prefix.iter().rposition(|&byte| byte != u8::MAX);
        let end = last.map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end.into()
        });
        Self { start: prefix, end }
    }
}

kernel::record! {
    /// A scan: rows in the order of their keys.
    #[derive(Eq)]
    pub struct KeyScan {
        /// Which keys.
        range: KeyRange,
        /// The most rows wanted.
        limit: u32,
    }
}

kernel::record! {
    /// A write.
    #[derive(Eq)]
    pub struct KeyWrite {
        /// Which key.
        key: Bytes,
        /// The value; none deletes the key.
        value: Option<Bytes>,
    }
}

impl KeyWrite {
    /// Bytes of key and value.
    pub fn size(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

kernel::record! {
    /// A condition of a commit: the key has this version.
    #[derive(Eq)]
    pub struct Condition {
        /// Which key.
        key: Bytes,
        /// Its version; 0: there is no such key.
        version: Timestamp,
    }
}

kernel::record! {
    /// A key as a read found it.
    #[derive(Eq)]
    pub struct KeyRow {
        /// Which key.
        key: Bytes,
        /// Its value; none: there is no such key.
        value: Option<Bytes>,
        /// The commit that wrote the value, or that deleted the key; 0 where neither is known.
        version: Timestamp,
    }
}

kernel::record! {
    /// What a scan found.
    #[derive(Eq)]
    pub struct ScannedRows {
        /// The rows.
        rows: Vec<KeyRow>,
        /// Where to go on, if there may be more.
        next: Option<Bytes>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A prefix whose range ends too early hides keys; one that ends too late shows those of others.
    #[test]
    fn a_prefix_is_the_range_of_its_keys() {
        let range = |prefix: &'static [u8]| KeyRange::with_prefix(Bytes::from_static(prefix));
        assert!(range(b"a/").contains(b"a/") && range(b"a/").contains(b"a/\xff\xff"));
        assert!(!range(b"a/").contains(b"a0") && !range(b"a/").contains(b"a"));
        assert_eq!(range(b"a\xff").end.as_deref(), Some(&b"b"[..]));
        assert_eq!(range(b"\xff\xff").end, None);
        assert!(range(b"").contains(b"\xff") && !range(b"x").is_empty());
    }
}
