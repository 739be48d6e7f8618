//! Transactions as the engine's nodes name them.

use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader, Wall};
use wire::txn::{CallKey, KeyRange, KeyScan, KeyWrite, Timestamp};

kernel::number! {
    /// A shard.
    pub struct ShardId(u16);
}

kernel::record! {
    /// One attempt at a transaction, named by the gateway that plays its client.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct TxnId {
        /// The gateway.
        gateway: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// Counts its attempts.
        number: u64,
    }
}

kernel::record! {
    /// Who goes first: the smaller one, which is older.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct Priority {
        /// When the first attempt began.
        first_start: Timestamp,
        /// The attempt.
        txn: TxnId,
    }
}

kernel::record! {
    /// What the user calls a commit.
    #[derive(Copy, Eq)]
    pub struct CallRef {
        /// The call.
        key: CallKey,
        /// The session has the answers to its calls below this number.
        acknowledged: u64,
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It has no effect.
    Aborted,
    /// Its writes have this timestamp (t_c).
    Committed(Timestamp),
}

impl Fate {
    /// The commit timestamp, if it was committed.
    pub fn committed(self) -> Option<Timestamp> {
        match self {
            Self::Committed(at) => Some(at),
            Self::Aborted => None,
        }
    }
}

impl Encode for Fate {
    fn encode(&self, out: &mut Vec<u8>) {
        self.committed().encode(out);
    }
}

impl Decode for Fate {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Option::<Timestamp>::decode(input)?.map_or(Self::Aborted, Self::Committed))
    }
}

kernel::record! {
    /// A prepared transaction, with all that it has read and writes here: every leader of the shard holds its locks until its fate is
    /// known.
    pub struct PreparedTxn {
        /// Which.
        txn: TxnId,
        /// Who goes first.
        priority: Priority,
        /// Its prepare timestamp: it will commit at this or later.
        t_p: Timestamp,
        /// Its client ends no earlier than this.
        t_ee: Timestamp,
        /// The shard that decides.
        coordinator: ShardId,
        /// Keys that it has read.
        reads: Vec<Bytes>,
        /// Ranges that it has read.
        ranges: Vec<KeyRange>,
        /// Its writes.
        writes: Vec<KeyWrite>,
    }
}

kernel::record! {
    /// What a transaction reads of a shard.
    #[derive(Eq)]
    pub struct ReadSet {
        /// Keys.
        keys: Vec<Bytes>,
        /// Ranges.
        scans: Vec<KeyScan>,
    }
}

impl ReadSet {
    /// True if nothing is read.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.scans.is_empty()
    }

    /// True if it reads the key.
    pub fn touches(&self, key: &[u8]) -> bool {
        self.keys.iter().any(|read| read == key) || self.scans.iter().any(|scan| scan.range.contains(key))
    }

    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        let ends = |scan: &KeyScan| scan.range.start.len() + scan.range.end.as_ref().map_or(0, Bytes::len);
        self.keys.iter().map(Bytes::len).sum::<usize>() + self.scans.iter().map(ends).sum::<usize>()
    }
}

/// True time, as it bounds timestamps (the paper's TrueTime).
#[derive(Clone, Copy, Debug)]
pub struct TrueTime(pub Wall);

impl TrueTime {
    /// A timestamp that no true time of this moment is after (TT.now.latest).
    pub fn latest(self) -> Timestamp {
        Timestamp(self.0.latest_micros())
    }

    /// A timestamp that no true time of this moment is before (TT.now.earliest).
    pub fn earliest(self) -> Timestamp {
        Timestamp(self.0.earliest_micros())
    }

    /// True if the timestamp has surely passed (TT.after). By a clock that cannot be relied on, none has.
    pub fn has_passed(self, at: Timestamp) -> bool {
        self.0.has_passed_micros(at.0)
    }

    /// How long it takes at least until it has surely passed; zero if it has.
    pub fn until_passed(self, at: Timestamp) -> std::time::Duration {
        self.0.until_passed_micros(at.0)
    }
}

/// The shard of a key: keys whose first `levels` parts, separated by slashes, are the same are in one shard.
pub fn shard_of(key: &[u8], levels: u32, shards: u16) -> ShardId {
    ShardId((parts::digest(shard_part(key, levels)) % u64::from(shards.max(1))) as u16)
}

/// The part of a key that decides where it is. With no levels, all of it does.
fn shard_part(key: &[u8], levels: u32) -> &[u8] {
    if levels == 0 {
        return key;
    }
    let mut slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let end = slashes.nth(levels as usize - 1).unwrap_or(key.len());
    &key[..end]
}

/// The only shard that has keys of a range; none if several may.
pub(crate) fn shard_of_range(range: &KeyRange, levels: u32, shards: u16) -> Option<ShardId> {
    if shards == 1 {
        return Some(ShardId(0));
    }
    // All keys begin with the same parts if start and end do, up to the slash behind them.
    let common =
        |end: &Bytes| range.start.iter().zip(end.iter()).take_while(|(one, other)| one == other).count();
    let prefix = match &range.end {
        _ if *range == KeyRange::with_prefix(range.start.clone()) => &range.start[..],
        Some(end) => &range.start[..common(end)],
        None => &[],
    };
    let part = shard_part(prefix, levels);
    (levels > 0 && part.len() < prefix.len()).then(|| shard_of(prefix, levels, shards))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A timestamp that is called passed too early is a commit wait that does not wait.
    #[test]
    fn a_timestamp_has_passed_when_the_earliest_time_is_after_it() {
        let at = |earliest| TrueTime(Wall { earliest, latest: earliest + 5_001, usable: true });
        assert!(!at(7_000).has_passed(Timestamp(7)) && at(7_001).has_passed(Timestamp(7)));
        assert_eq!(at(7_000).until_passed(Timestamp(7)).as_nanos(), 1);
        assert_eq!(at(7_001).until_passed(Timestamp(7)).as_nanos(), 0);
        let unusable = TrueTime(Wall { usable: false, ..at(9_000).0 });
        assert!(!unusable.has_passed(Timestamp(7)), "nobody knows");
        assert_eq!((at(7_999).earliest(), at(7_000).latest()), (Timestamp(7), Timestamp(13)));
    }

    // Keys that are said to live together and do not are read from shards that have half of them.
    #[test]
    fn keys_with_equal_first_parts_live_together() {
        let of = |key: &str, levels| shard_of(key.as_bytes(), levels, 64);
        assert_eq!(of("bank/a/1", 1), of("bank/b/2", 1));
        assert_eq!(of("bank/a/1", 2), of("bank/a/2", 2));
        assert_ne!(of("bank/a", 0), of("bank/b", 0));
        assert_eq!(of("bank", 1), of("bank/x", 1), "a parent is where its children are");
        let range = |start: &'static str, end: &'static str| KeyRange {
            start: Bytes::from_static(start.as_bytes()),
            end: Some(Bytes::from_static(end.as_bytes())),
        };
        assert_eq!(shard_of_range(&range("bank/a", "bank/b"), 1, 64), Some(of("bank/a", 1)));
        assert_eq!(shard_of_range(&range("bank", "banl"), 1, 64), None);
        assert_eq!(shard_of_range(&range("bank/", "bank0"), 1, 64), Some(of("bank/a", 1)));
        assert_eq!(shard_of_range(&range("bank/", "bank1"), 1, 64), None, "bank0 is another part");
        assert_eq!(shard_of_range(&range("a", "b"), 0, 64), None);
    }
}
