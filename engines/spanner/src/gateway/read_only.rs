//! Read-only transactions (the paper's Algorithm 1).

use super::merge::{merge, overwrite};
use super::users::Caller;
use super::{TxnGateway, read_write::OneShotCall};
use crate::machine::entry::{FoundValues, ReplicaValues};
use crate::messages::gateway::{FastReply, ReadRefusal, ReadRefused, SkippedTxn, SlowReply};
use crate::messages::shard::{ReadAt, ReadReplica, WantClosed};
use crate::txn::{Fate, ReadSet, ShardId, TrueTime, TxnId};
use kernel::{Bytes, Cx, Decode, Instant, planted};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::txn::{KeyRow, KeyScan, NotMet, ReadRows, ScannedRows, Timestamp, TxnFailure, TxnLevel};

/// Behind this, a shard is asked to close what is there, so that the next process-ordered read sees it.
const PROCESS_ORDERED_LAG: Duration = Duration::from_millis(500);

/// What is done with the rows.
#[derive(Clone, Debug)]
enum Then {
    Answer,
    /// A condition of a one-shot did not hold when it was read: either it still does not, in this snapshot, or all is tried again.
    JudgeConditions(Box<OneShotCall>),
}

#[derive(Clone, Debug)]
struct OfShard {
    what: ReadSet,
    /// The index of each of its scans among those asked for.
    scans: Vec<usize>,
    found: Option<FoundValues>,
    skipped: BTreeMap<TxnId, SkippedTxn>,
    asked_at: Instant,
}

/// A read-only transaction in progress.
#[derive(Clone, Debug)]
pub(super) struct ReadOnly {
    pub(super) caller: Option<Caller>,
    level: TxnLevel,
    t_read: Timestamp,
    t_min: Timestamp,
    keys: Vec<Bytes>,
    scans: Vec<KeyScan>,
    shards: BTreeMap<ShardId, OfShard>,
    /// How skipped transactions have ended.
    ended: BTreeMap<TxnId, Fate>,
    then: Then,
    since: Instant,
}

impl TxnGateway {
    pub(super) fn on_read_only(&mut self, caller: Caller, call: wire::txn::ReadOnly, cx: &mut Cx<'_, Self>) {
        let wire::txn::ReadOnly { token, level, keys, scans, .. } = call;
        self.start_read(caller, (level, token), keys, scans, Then::Answer, cx);
    }

    /// Reads again, in one snapshot, what the conditions of a one-shot are about.
    pub(super) fn judge_conditions(&mut self, caller: Caller, call: OneShotCall, cx: &mut Cx<'_, Self>) {
        let mut keys: Vec<Bytes> = call.conditions.iter().map(|condition| condition.key.clone()).collect();
        keys.extend(call.otherwise.iter().cloned());
        let then = Then::JudgeConditions(Box::new(call.clone()));
        self.start_read(caller, (TxnLevel::Strict, call.token), keys, Vec::new(), then, cx);
    }

    fn start_read(
        &mut self,
        caller: Caller,
        (level, token): (TxnLevel, Timestamp),
        keys: Vec<Bytes>,
        scans: Vec<KeyScan>,
        then: Then,
        cx: &mut Cx<'_, Self>,
    ) {
        let mut shards: BTreeMap<ShardId, OfShard> = BTreeMap::new();
        let new = || OfShard {
            what: ReadSet { keys: Vec::new(), scans: Vec::new() },
            scans: Vec::new(),
            found: None,
            skipped: BTreeMap::new(),
            asked_at: cx.now(),
        };
        for key in &keys {
            let of = shards.entry(self.directory.shard_of(key)).or_insert_with(new);
            if !of.what.keys.contains(key) {
                of.what.keys.push(key.clone());
            }
        }
        for (index, scan) in scans.iter().enumerate() {
            for shard in self.directory.shards_of(&scan.range) {
                let of = shards.entry(shard).or_insert_with(new);
                of.what.scans.push(scan.clone());
                of.scans.push(index);
            }
        }
        let now = TrueTime(cx.wall());
        let t_read = match level {
            TxnLevel::Strict | TxnLevel::Rss => now.latest().max(token),
            TxnLevel::ProcessOrdered => self.process_ordered_at(&shards, now.earliest(), cx).max(token),
            TxnLevel::At(at) => at,
            TxnLevel::Stale(by) => self.safe_of(&shards).max(Timestamp(now.earliest().0.saturating_sub(by))),
        };
        if matches!(level, TxnLevel::At(_)) && t_read > now.latest() {
            return caller.fail(TxnFailure::FromTheFuture, cx);
        }
        // So far back is refused whether or not there was something to collect: a shard that was idle still has all.
        let oldest = Timestamp(now.earliest().0.saturating_sub(2 * self.parameters.keep.as_micros() as u64));
        if matches!(level, TxnLevel::At(_)) && t_read < oldest {
            return caller.fail(TxnFailure::Collected, cx);
        }
        let (id, since) = (self.next_number(), cx.now());
        let (ended, t_min) = (BTreeMap::new(), token);
        let caller = Some(caller);
        let read = ReadOnly { caller, level, t_read, t_min, keys, scans, shards, ended, then, since };
        self.reads.insert(id, read);
        let all: Vec<ShardId> =
            self.reads.get(&id).into_iter().flat_map(|read| read.shards.keys().copied()).collect();
        for shard in all {
            self.ask_shard(id, shard, cx);
        }
        self.finish_read(id, cx);
    }

    /// Where a read is placed that has to see only what its session has seen: as far as the replicas here may be read at once. Idle
    /// shards close nothing by themselves, so they are asked to.
    fn process_ordered_at(
        &self,
        shards: &BTreeMap<ShardId, OfShard>,
        now: Timestamp,
        cx: &mut Cx<'_, Self>,
    ) -> Timestamp {
        let before = |span: Duration| Timestamp(now.0.saturating_sub(span.as_micros() as u64));
        for &shard in shards.keys() {
            let safe = self.safe.get(usize::from(shard.0)).copied().unwrap_or_default();
            if safe < before(PROCESS_ORDERED_LAG)
                && let Some(role) = self.directory.role(shard, cx.node().host())
            {
                cx.mark("gateway.asked_an_idle_shard_to_close");
                cx.send(role, WantClosed { at: now });
            }
        }
        let safe = self.safe_of(shards);
        // Far behind, versions are collected. Of a shard that no replica here has, nothing is known at first.
        safe.max(before(if safe == Timestamp(0) { PROCESS_ORDERED_LAG } else { self.parameters.keep / 2 }))
    }

    /// How far this host's replicas of these shards may be read.
    fn safe_of(&self, shards: &BTreeMap<ShardId, OfShard>) -> Timestamp {
        let safe = shards.keys().filter_map(|shard| self.safe.get(usize::from(shard.0)));
        safe.min().copied().unwrap_or_default()
    }

    fn ask_shard(&mut self, id: u64, shard: ShardId, cx: &mut Cx<'_, Self>) {
        let gateway = cx.node();
        let Some(role) = self.directory.role(shard, gateway.host()) else { return };
        let Some(read) = self.reads.get_mut(&id) else { return };
        let (t_read, t_min, level) = (read.t_read, read.t_min, read.level);
        let Some(of) = read.shards.get_mut(&shard) else { return };
        of.asked_at = cx.now();
        let what = of.what.clone();
        match level {
            TxnLevel::Strict | TxnLevel::Rss => {
                let skips = level == TxnLevel::Rss;
                let t_min = if planted!(t_min_not_sent) { Timestamp(0) } else { t_min };
                cx.send(role, ReadAt { gateway, id, t_read, t_min, skips, what });
            }
            TxnLevel::ProcessOrdered | TxnLevel::At(_) | TxnLevel::Stale(_) => {
                cx.send(role, ReadReplica { gateway, id, at: t_read, what });
            }
        }
    }

    pub(super) fn on_fast_reply(&mut self, message: FastReply, cx: &mut Cx<'_, Self>) {
        let FastReply { id, shard, values, skipped } = message;
        let Some(of) = self.reads.get_mut(&id).and_then(|read| read.shards.get_mut(&shard)) else { return };
        match ReplicaValues::decoded(&values) {
            Ok(ReplicaValues::Found(found)) if !found.is_short => {
                // Asked again, the newer answer is as true as the one before, and stands for it.
                of.found = Some(found);
                of.skipped = skipped.into_iter().map(|skipped| (skipped.txn, skipped)).collect();
                self.finish_read(id, cx);
            }
            Ok(ReplicaValues::Found(_)) => self.fail_read(id, TxnFailure::Malformed, cx),
            Ok(ReplicaValues::Collected) => self.fail_read(id, TxnFailure::Collected, cx),
            Err(_) => cx.reject("values that do not decode"),
        }
    }

    pub(super) fn on_slow_reply(&mut self, message: &SlowReply, cx: &mut Cx<'_, Self>) {
        let Some(read) = self.reads.get_mut(&message.id) else { return };
        read.ended.insert(message.txn, message.fate);
        self.finish_read(message.id, cx);
    }

    pub(super) fn on_read_refused(&mut self, message: &ReadRefused, cx: &mut Cx<'_, Self>) {
        match message.why {
            // Asked again, as long as the user waits.
            ReadRefusal::BUSY => {}
            _ => self.fail_read(message.id, TxnFailure::FromTheFuture, cx),
        }
    }

    fn fail_read(&mut self, id: u64, why: TxnFailure, cx: &mut Cx<'_, Self>) {
        if let Some(caller) = self.reads.remove(&id).and_then(|read| read.caller) {
            caller.fail(why, cx);
        }
    }

    /// Answers if all shards have, and nothing that was skipped could have committed before the snapshot.
    fn finish_read(&mut self, id: u64, cx: &mut Cx<'_, Self>) {
        let Some(read) = self.reads.get(&id) else { return };
        let found: Option<Vec<&FoundValues>> = read.shards.values().map(|of| of.found.as_ref()).collect();
        let Some(found) = found else { return };
        let t_snap = found.iter().map(|found| found.newest).max().unwrap_or_default();
        let skipped = read.shards.values().flat_map(|of| of.skipped.values());
        let open = skipped.filter(|skipped| !read.ended.contains_key(&skipped.txn));
        if open.map(|skipped| skipped.t_p).min().is_some_and(|t_p| t_p <= t_snap)
            && !planted!(skipped_before_snapshot_not_awaited)
        {
            return cx.mark("gateway.waited_for_a_slow_reply");
        }
        let Some(read) = self.reads.remove(&id) else { return };
        // What was skipped commits at least L before its earliest end, which follows t_read: so it follows this position, too. And all that
        // fences have made sure of by now lies at or before it: a later read of the session, at any level, sees that.
        let bound = self.parameters.fence_bound.as_micros() as u64;
        let fenced = Timestamp(read.t_read.0.saturating_sub(bound));
        let position = match read.level {
            TxnLevel::Rss => t_snap.max(read.t_min).max(fenced),
            TxnLevel::Strict | TxnLevel::ProcessOrdered | TxnLevel::At(_) | TxnLevel::Stale(_) => read.t_read,
        };
        if t_snap < read.t_min && read.level == TxnLevel::Rss {
            cx.mark("gateway.snapshot_below_what_its_session_had_seen");
        }
        let token = match read.level {
            TxnLevel::Strict | TxnLevel::Rss | TxnLevel::ProcessOrdered => position.max(read.t_min),
            TxnLevel::At(_) | TxnLevel::Stale(_) => read.t_min,
        };
        self.answer_read(read, t_snap, position, token, cx);
    }

    fn answer_read(
        &mut self,
        read: ReadOnly,
        t_snap: Timestamp,
        at: Timestamp,
        token: Timestamp,
        cx: &mut Cx<'_, Self>,
    ) {
        let (rows, scans) = rows_of(&read, t_snap, cx);
        let Some(caller) = read.caller else { return };
        match read.then {
            Then::Answer => caller.answer(ReadRows { id: caller.id(), token, at, rows, scans }, cx),
            Then::JudgeConditions(call) => {
                let found = call.conditions.iter().zip(&rows);
                match found.into_iter().position(|(condition, row)| !super::read_write::holds(condition, row))
                {
                    Some(condition) => {
                        let rows = rows[call.conditions.len()..].to_vec();
                        let condition = condition as u32;
                        let not_met = NotMet { id: caller.id(), token, condition, rows };
                        match call.call {
                            // Its own writes, when it was sent before, may be what the condition has found.
                            Some(call) => self.answer_unless_committed(caller, call.key, not_met, cx),
                            None => caller.answer(not_met, cx),
                        }
                    }
                    None => self.try_one_shot(caller, *call, cx),
                }
            }
        }
    }

    /// What the session of a read in progress had seen when it began, for invariants.
    pub fn seen_before(&self, id: u64) -> Option<Timestamp> {
        self.reads.get(&id).map(|read| read.t_min)
    }

    /// Asks again where answers are late, and gives up what nobody can answer in time.
    pub(super) fn look_after_reads(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, after, most) = (cx.now(), self.parameters.resend_after, self.parameters.try_for);
        let mut late = Vec::new();
        let mut expired = Vec::new();
        for (&id, read) in &self.reads {
            if now.since(read.since) >= most {
                expired.push(id);
                continue;
            }
            for (&shard, of) in &read.shards {
                let is_open = of.skipped.keys().any(|txn| !read.ended.contains_key(txn));
                if now.since(of.asked_at) >= after && (of.found.is_none() || is_open) {
                    late.push((of.asked_at, (id, shard)));
                }
            }
        }
        for id in expired {
            self.fail_read(id, TxnFailure::Unavailable, cx);
        }
        for (id, shard) in super::longest_late(late) {
            cx.mark("gateway.read_again");
            self.ask_shard(id, shard, cx);
        }
    }
}

/// The rows as of the snapshot: what was skipped and committed before it is in there.
fn rows_of(
    read: &ReadOnly,
    t_snap: Timestamp,
    cx: &mut Cx<'_, TxnGateway>,
) -> (Vec<KeyRow>, Vec<ScannedRows>) {
    let mut by_key: BTreeMap<Bytes, KeyRow> = BTreeMap::new();
    let mut scanned: Vec<Vec<ScannedRows>> = vec![Vec::new(); read.scans.len()];
    for of in read.shards.values() {
        let Some(found) = &of.found else { continue };
        by_key.extend(found.rows.iter().map(|row| (row.key.clone(), row.clone())));
        for (&index, rows) in of.scans.iter().zip(&found.scans) {
            scanned[index].push(rows.clone());
        }
    }
    for skipped in read.shards.values().flat_map(|of| of.skipped.values()) {
        let Some(Fate::Committed(at)) = read.ended.get(&skipped.txn).copied() else { continue };
        if at > t_snap {
            continue;
        }
        cx.mark("gateway.answered_by_the_writes_of_what_was_skipped");
        for write in &skipped.writes {
            if let Some(row) = by_key.get_mut(&write.key) {
                overwrite(row, write.value.clone(), at);
            }
        }
    }
    let absent = |key: &Bytes| KeyRow { key: key.clone(), value: None, version: Timestamp(0) };
    let rows = read.keys.iter().map(|key| by_key.get(key).cloned().unwrap_or_else(|| absent(key))).collect();
    let scans = read.scans.iter().zip(scanned).map(|(scan, parts)| merge(scan, parts)).collect();
    (rows, scans)
}
