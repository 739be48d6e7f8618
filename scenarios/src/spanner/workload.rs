//! What users ask: every level, one-shot and interactive transactions, deletions, scans, calls that are sent again, tokens that one user
//! gives another.

use ::spanner::ShardId;
use kernel::{Bytes, RequestId, Rng};
use sim::{OperationId, WALL_EPOCH};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::txn::{
    Begin, CallKey, Commit, Condition, Fence, KeyRange, KeyScan, KeyWrite, OneShot, ReadOnly, ReadWithin,
    Timestamp, TxnCall, TxnLevel, TxnReply,
};

/// Keys that users read and write.
const KEYS: u64 = 8;

/// What one user knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    /// What it has seen.
    pub(super) token: Timestamp,
    /// Counts up when it does not know how an operation ended: it goes on as somebody else.
    pub(super) incarnation: u32,
    /// Versions that it has read.
    pub(super) versions: BTreeMap<Bytes, Timestamp>,
    /// A commit of which it does not know how it ended.
    pub(super) unsettled: Option<(OneShot, u64)>,
    commits: u64,
}

/// All users.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<u16, Session>,
    messages: u64,
}

impl Sessions {
    pub(super) fn of(&mut self, client: u16) -> &mut Session {
        self.sessions.entry(client).or_default()
    }

    /// At times another user sends this one what it has seen: who sends to whom, and which message that is.
    pub(super) fn exchange(&mut self, client: u16, rng: &mut Rng) -> Option<Message> {
        let others: Vec<u16> = self.sessions.keys().copied().filter(|it| *it != client).collect();
        if !rng.chance(0.2) {
            return None;
        }
        let other = *rng.pick(&others)?;
        let (token, incarnation) =
            self.sessions.get(&other).map(|session| (session.token, session.incarnation))?;
        let session = self.of(client);
        session.token = session.token.max(token);
        let to = (client, session.incarnation);
        self.messages += 1;
        Some(Message { from: (other, incarnation), to, message: self.messages })
    }
}

/// A message between users, who are named with their incarnations.
pub(super) struct Message {
    pub(super) from: (u16, u32),
    pub(super) to: (u16, u32),
    pub(super) message: u64,
}

/// What this seed's users do, and how often.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    levels: Vec<u8>,
    writes: f64,
    interactive: f64,
    scans: f64,
    dumps: f64,
    fences: f64,
    hot: u64,
    /// How many values are large.
    large: f64,
    send_again_within: u64,
}

/// A transaction that reads a key under locks, and writes it.
pub(super) fn reads_and_writes(id: u64, value: &str) -> Planned {
    let (token, keys) = (Timestamp(0), vec![key(0)]);
    let writes = vec![KeyWrite { key: key(0), value: Some(Bytes::from(value.to_owned())) }];
    let interactive = Interactive { name: id, first: None, keys, scans: Vec::new(), writes, has_read: false };
    let call = Begin { id, token, priority: None };
    Planned { call: call.into(), interactive: Some(interactive) }
}

/// A write of the same key.
pub(super) fn writes_alone(id: u64, value: &str) -> Planned {
    writes(id, 0..1, value)
}

/// A write of keys of the `nth` user's own, which begin with different parts.
pub(super) fn writes_own(id: u64, nth: usize, value: &str) -> Planned {
    let first = KEYS + 3 * nth as u64;
    writes(id, first..first + 3, value)
}

/// A key of each of these shards.
pub(super) fn keys_of(shards: &[ShardId], shard_of: impl Fn(&[u8]) -> ShardId) -> Vec<Bytes> {
    shards.iter().filter_map(|shard| (0..KEYS * KEYS).map(key).find(|key| shard_of(key) == *shard)).collect()
}

fn writes(id: u64, keys: std::ops::Range<u64>, value: &str) -> Planned {
    writes_each(id, &keys.map(key).collect::<Vec<_>>(), value)
}

/// A write of these keys.
pub(super) fn writes_each(id: u64, keys: &[Bytes], value: &str) -> Planned {
    let write = |key: &Bytes| KeyWrite { key: key.clone(), value: Some(Bytes::from(value.to_owned())) };
    let writes = keys.iter().map(write).collect();
    let (token, none) = (Timestamp(0), Vec::new());
    let key = Some(CallKey { session: id, number: 1 });
    let (conditions, reads, otherwise) = (Vec::new(), none.clone(), none);
    let call = OneShot { id, token, key, acknowledged: 0, conditions, writes, reads, otherwise };
    Planned { call: call.into(), interactive: None }
}

/// A call, and what is known of it.
pub(super) struct Planned {
    pub(super) call: TxnCall,
    pub(super) interactive: Option<Interactive>,
}

/// An interactive transaction: what it does next.
#[derive(Clone, Debug)]
pub(super) struct Interactive {
    name: u64,
    first: Option<RequestId>,
    keys: Vec<Bytes>,
    scans: Vec<KeyScan>,
    writes: Vec<KeyWrite>,
    has_read: bool,
}

impl Interactive {
    /// The request by which the history knows it.
    pub(super) fn first(&mut self, id: RequestId) -> RequestId {
        *self.first.get_or_insert(id)
    }

    /// The ranges that it reads.
    pub(super) fn scans(&self) -> &[KeyScan] {
        &self.scans
    }

    /// What it writes.
    pub(super) fn writes(&self) -> &[KeyWrite] {
        &self.writes
    }

    /// The call that follows an answer; none if the transaction is over.
    pub(super) fn next(&mut self, reply: &TxnReply) -> Option<TxnCall> {
        match reply {
            TxnReply::Begun(_) => {
                let (keys, scans) = (self.keys.clone(), self.scans.clone());
                Some(ReadWithin { id: self.name + 1, txn: self.name, keys, scans }.into())
            }
            TxnReply::RowsWithin(_) if !self.has_read => {
                self.has_read = true;
                let (txn, writes) = (self.name, self.writes.clone());
                Some(Commit { id: self.name + 2, txn, key: None, acknowledged: 0, writes }.into())
            }
            TxnReply::RowsWithin(_)
            | TxnReply::ReadRows(_)
            | TxnReply::Committed(_)
            | TxnReply::NotMet(_)
            | TxnReply::Fenced(_)
            | TxnReply::CommitFate(_)
            | TxnReply::Failed(_) => None,
        }
    }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("p{}/{number}", number % 3))
}

/// A read of all keys.
pub(super) fn read_of_all(id: u64, level: TxnLevel) -> Planned {
    let (token, scans) = (Timestamp(0), Vec::new());
    let call = ReadOnly { id, token, level, keys: (0..KEYS).map(key).collect(), scans };
    Planned { call: call.into(), interactive: None }
}

impl Mix {
    /// `is_tight`: there is little room, which large values fill.
    pub(super) fn draw(send_again_within: Duration, is_tight: bool, rng: &mut Rng) -> Self {
        let levels = match rng.below(7) {
            0 => vec![0],
            1 | 2 => vec![1],
            3 => vec![1, 2],
            4 => vec![0, 1],
            _ => vec![0, 1, 2, 3, 4],
        };
        Self {
            levels,
            writes: 0.2 + 0.5 * rng.unit(),
            interactive: if rng.chance(0.5) { 0.3 * rng.unit() } else { 0.0 },
            scans: if rng.chance(0.5) { 0.3 * rng.unit() } else { 0.0 },
            dumps: if rng.chance(0.5) { 0.05 } else { 0.0 },
            fences: if rng.chance(0.25) { 0.3 } else { 0.05 },
            hot: rng.between(1, KEYS),
            large: if rng.chance(if is_tight { 0.6 } else { 0.2 }) {
                if is_tight { 0.7 } else { 0.3 }
            } else {
                0.0
            },
            send_again_within: send_again_within.as_nanos() as u64,
        }
    }

    fn keys(&self, most: u64, rng: &mut Rng) -> Vec<Bytes> {
        let count = rng.between(1, most);
        let mut keys: Vec<Bytes> = (0..count)
            .map(|_| key(if rng.chance(0.5) { rng.below(self.hot) } else { rng.below(KEYS) }))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Each with a value of its own, and at least one that is no deletion: that one shows whether the commit was executed.
    fn writes(&self, operation: OperationId, rng: &mut Rng) -> Vec<KeyWrite> {
        let keys = self.keys(3, rng);
        let value = |index: usize, rng: &mut Rng| {
            let mut value = format!("{}.{}.{index}", operation.client, operation.nth);
            if rng.chance(self.large) {
                value.push_str(&"x".repeat(rng.between(100, 2_000) as usize));
            }
            Bytes::from(value)
        };
        let mut writes = Vec::new();
        for (index, key) in keys.into_iter().enumerate() {
            let deletes = index > 0 && rng.chance(0.25);
            let value = value(index, rng);
            writes.push(KeyWrite { key, value: (!deletes).then_some(value) });
        }
        writes
    }

    fn level(&self, truth_now: u64, rng: &mut Rng) -> TxnLevel {
        let now = (WALL_EPOCH + truth_now) / 1_000;
        match rng.pick(&self.levels).copied().unwrap_or(0) {
            0 => TxnLevel::Strict,
            1 => TxnLevel::Rss,
            2 => TxnLevel::ProcessOrdered,
            3 => {
                // Some are older than what is retained: those are refused.
                let retained = 4 * self.send_again_within / 1_000;
                let most = if rng.chance(0.3) { 2 * retained } else { 4_000_000 };
                let at = now.saturating_sub(rng.between(0, most)).max(WALL_EPOCH / 1_000);
                TxnLevel::At(Timestamp(at))
            }
            _ => TxnLevel::Stale(rng.between(1_000, 3_000_000)),
        }
    }

    pub(super) fn plan(
        &self,
        operation: OperationId,
        session: &mut Session,
        now: u64,
        rng: &mut Rng,
    ) -> Planned {
        let id = u64::from(operation.client) << 32 | u64::from(operation.nth) << 4;
        let token = session.token;
        let plain = |call: TxnCall| Planned { call, interactive: None };
        // It is known for as long as outcomes are retained whether a call was executed, and no longer.
        let late = |(_, asked): &(OneShot, u64)| now.saturating_sub(*asked) > self.send_again_within;
        if let Some((unsettled, _)) = session.unsettled.take().filter(|it| !late(it)) {
            let call = OneShot { id, token, ..unsettled };
            return Planned { call: call.into(), interactive: None };
        }
        if rng.chance(self.fences) {
            return plain(Fence { id, token }.into());
        }
        if rng.chance(self.interactive) {
            let scans = self.some_scans(rng);
            let interactive = Interactive {
                name: id,
                first: None,
                keys: self.keys(3, rng),
                scans,
                writes: self.writes(operation, rng),
                has_read: false,
            };
            let call = Begin { id, token, priority: None };
            return Planned { call: call.into(), interactive: Some(interactive) };
        }
        if rng.chance(self.dumps) {
            let range = KeyRange { start: Bytes::new(), end: None };
            let (keys, scans) = (Vec::new(), vec![KeyScan { range, limit: 1_000 }]);
            let at = (WALL_EPOCH + now) / 1_000 - rng.between(0, 1_000_000).min(now / 1_000);
            let level = TxnLevel::At(Timestamp(at));
            return plain(ReadOnly { id, token, level, keys, scans }.into());
        }
        if !rng.chance(self.writes) {
            let (keys, scans) = (self.keys(4, rng), self.some_scans(rng));
            let level = self.level(now, rng);
            return plain(ReadOnly { id, token, level, keys, scans }.into());
        }
        session.commits += 1;
        let (writes, mut conditions) = (self.writes(operation, rng), Vec::new());
        if rng.chance(0.3) {
            let most = if rng.chance(0.5) { 1 } else { 3 };
            for key in self.keys(most, rng) {
                let version = session.versions.get(&key).copied().unwrap_or_default();
                conditions.push(Condition { key, version });
            }
        }
        let reads = if rng.chance(0.5) { self.keys(2, rng) } else { Vec::new() };
        let otherwise = self.keys(2, rng);
        let key = CallKey { session: u64::from(operation.client) + 1, number: session.commits };
        // Whatever was not settled is not sent again from here on.
        let (acknowledged, key) = (key.number, Some(key));
        plain(OneShot { id, token, key, acknowledged, conditions, writes, reads, otherwise }.into())
    }

    fn some_scans(&self, rng: &mut Rng) -> Vec<KeyScan> {
        if !rng.chance(self.scans) {
            return Vec::new();
        }
        let range = match rng.below(3) {
            0 => KeyRange { start: Bytes::new(), end: None },
            _ => KeyRange::with_prefix(Bytes::from(format!("p{}/", rng.below(3)))),
        };
        vec![KeyScan { range, limit: rng.between(1, 10) as u32 }]
    }
}
