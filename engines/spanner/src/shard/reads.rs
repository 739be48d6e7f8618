//! Read-only transactions at a shard's leader (the paper's Algorithm 2).
//!
//! A leader answers a read at `t_read` when its horizon, which its own log has, is not below, and every prepared transaction that the
//! read must see has ended. From then on it assigns no timestamp at or below `t_read`. A successor assigns nothing at or below the
//! horizon, so a leader that is deposed and does not know it answers nothing wrong.

use super::SpannerShard;
use super::active::{Active, Stage};
use super::frame::Frame;
use super::lead::Lead;
use super::questions::Asker;
use super::reading::{ReadKey, Reading};
use super::steps::Applied;
use crate::machine::entry::{Collect, Extend, ValuesAt};
use crate::messages::gateway::{FastReply, FateFound, ReadRefusal, ReadRefused, SkippedTxn, SlowReply};
use crate::messages::shard::ReadAt;
use crate::txn::{Fate, TrueTime, TxnId};
use kernel::{Bytes, Cx, Decode, NodeId, planted};
use std::collections::BTreeSet;
use wire::txn::Timestamp;

/// Readers that are notified of the end of one transaction; more ask again.
const NOTIFIED_MAX: usize = 4_096;

impl Lead {
    pub(super) fn on_read_at(
        &mut self,
        message: ReadAt,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let ReadAt { gateway, id, t_read, t_min, skips, what } = message;
        let key = ReadKey { gateway, id };
        let ahead = frame.parameters.clock_error_max.as_micros() as u64;
        let refusal = if t_read > TrueTime(cx.wall()).latest().plus(ahead) {
            Some(ReadRefusal::FROM_THE_FUTURE)
        } else {
            (self.reads.all.len() >= frame.parameters.waiting_reads_max).then_some(ReadRefusal::BUSY)
        };
        if let Some(why) = refusal {
            return cx.send(gateway, ReadRefused { id, shard: frame.shard, why });
        }
        if self.reads.all.contains_key(&key) {
            // Asked again while it waits.
            return;
        }
        let t_min = if planted!(t_min_ignored) { Timestamp(0) } else { t_min };
        let reading =
            Reading { t_read, t_min, skips, what, blocked_on: BTreeSet::new(), skipped: Vec::new() };
        self.reads.all.insert(key, reading);
        let half = frame.parameters.horizon_ahead.as_micros() as u64 / 2;
        if t_read.plus(half) > self.horizon_asked {
            self.ask_for_horizon(t_read, frame);
        }
        if t_read > self.horizon && !planted!(deposed_leader_serves_beyond_its_horizon) {
            cx.mark("shard.read_waited_for_the_horizon");
            self.reads.beyond.insert((t_read, key));
            return;
        }
        self.start_read(key, frame, cx);
    }

    /// Asks for more than is needed now, so that few reads wait.
    fn ask_for_horizon(&mut self, t_read: Timestamp, frame: &Frame<'_>) {
        let ahead = frame.parameters.horizon_ahead.as_micros() as u64;
        self.horizon_asked = t_read.plus(ahead);
        self.steps.push_horizon(self.horizon_asked);
    }

    pub(super) fn on_extended(
        &mut self,
        horizon: Timestamp,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        self.horizon = self.horizon.max(horizon);
        while let Some(&(t_read, key)) = self.reads.beyond.first()
            && t_read <= self.horizon
        {
            self.reads.beyond.pop_first();
            self.start_read(key, frame, cx);
        }
    }

    /// From here on nothing is assigned at or below `t_read`, so what is prepared now is all that there is to wait for.
    fn start_read(&mut self, key: ReadKey, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let Some(reading) = self.reads.all.get(&key) else { return };
        let (t_read, t_min, skips) = (reading.t_read, reading.t_min, reading.skips);
        let counts = |txn: &TxnId| {
            let active = self.txns.get(txn)?;
            let t_p = active.stage.prepared_at().filter(|t_p| *t_p <= t_read)?;
            let in_flight = matches!(active.stage, Stage::Logging { .. });
            (!(in_flight && planted!(commit_in_flight_not_counted))).then_some((t_p, active.t_ee()))
        };
        let bound = frame.parameters.fence_bound.as_micros() as u64;
        let (mut blocked_on, mut skipped) = (BTreeSet::new(), BTreeSet::new());
        for txn in reading.what.keys.iter().filter_map(|key| self.locks.writer(key)) {
            let Some((t_p, t_ee)) = counts(&txn) else { continue };
            // It commits neither before it was prepared, nor more than L before its earliest end.
            let commits_at_least = t_p.max(Timestamp(t_ee.0.saturating_sub(bound)));
            let seen = if planted!(skips_what_was_seen_at_its_timestamp) { t_min.before() } else { t_min };
            let must_be_seen = commits_at_least <= seen || (t_ee <= t_read && !planted!(t_ee_ignored));
            if (skips && !must_be_seen) || planted!(does_not_wait_for_prepared) {
                skipped.insert(txn);
            } else {
                blocked_on.insert(txn);
            }
        }
        // A scan waits for all: what it skipped could change which rows its limit lets through.
        for scan in &reading.what.scans {
            blocked_on.extend(self.locks.writers_in(&scan.range).filter(|txn| counts(txn).is_some()));
        }
        skipped.retain(|txn| !blocked_on.contains(txn));
        self.promise(t_read);
        for txn in &blocked_on {
            self.reads.blocked.entry(*txn).or_default().insert(key);
        }
        if !blocked_on.is_empty() {
            frame.counts.blocked_reads += 1;
            cx.mark(if skips { "shard.rss_read_was_blocked" } else { "shard.strict_read_was_blocked" });
        }
        let ready = blocked_on.is_empty();
        if let Some(reading) = self.reads.all.get_mut(&key) {
            (reading.blocked_on, reading.skipped) = (blocked_on, skipped.into_iter().collect());
        }
        if ready {
            self.ask_for_values(&key, frame);
        }
    }

    fn ask_for_values(&mut self, key: &ReadKey, frame: &mut Frame<'_>) {
        if let Some(reading) = self.reads.all.get(key) {
            let values = ValuesAt { at: reading.t_read, what: reading.what.clone() };
            frame.questions.push(Asker::Fast(*key), values);
        }
    }

    pub(super) fn on_fast_values(
        &mut self,
        key: &ReadKey,
        values: Bytes,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(reading) = self.reads.all.remove(key) else { return };
        let mut skipped = Vec::new();
        for txn in reading.skipped {
            let Some(active) = self.txns.get(&txn) else { continue };
            let (Some(t_p), Some(asked)) = (active.stage.prepared_at(), &active.asked) else { continue };
            let writes =
                asked.writes.iter().filter(|write| reading.what.touches(&write.key)).cloned().collect();
            skipped.push(SkippedTxn { txn, t_p, writes });
            let notified = self.reads.skipped.entry(txn).or_default();
            if notified.len() < NOTIFIED_MAX {
                notified.insert(*key);
            }
        }
        frame.counts.skipped += skipped.len() as u64;
        if !skipped.is_empty() {
            cx.mark("shard.rss_read_skipped_a_prepared_transaction");
        }
        cx.send(key.gateway, FastReply { id: key.id, shard: frame.shard, values, skipped });
    }

    /// A transaction is over: those that waited for it go on, those that skipped it learn how it ended.
    pub(super) fn readers_go_on(
        &mut self,
        txn: &TxnId,
        active: &Active,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        for key in self.reads.blocked.remove(txn).unwrap_or_default() {
            let Some(reading) = self.reads.all.get_mut(&key) else { continue };
            reading.blocked_on.remove(txn);
            if reading.blocked_on.is_empty() {
                self.ask_for_values(&key, frame);
            }
        }
        let fate = active.fate.unwrap_or(Fate::Aborted);
        for key in self.reads.skipped.remove(txn).unwrap_or_default() {
            cx.mark(if fate == Fate::Aborted {
                "shard.notified_of_an_abort"
            } else {
                "shard.notified_of_a_commit"
            });
            cx.send(key.gateway, SlowReply { id: key.id, shard: frame.shard, txn: *txn, fate });
        }
    }

    /// Closes what has passed, while somebody waits for that or something was committed.
    pub(super) fn close(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let due = cx.now().since(self.closed_at) >= frame.parameters.close_every;
        // One at a time: it has to stand behind everything that was assigned before.
        if !self.close_wanted || !due || !self.steps.is_idle() {
            return;
        }
        self.close_wanted = false;
        self.closed_at = cx.now();
        let closed = TrueTime(cx.wall()).earliest().before();
        if !planted!(closed_is_not_promised) {
            self.promise(closed);
        }
        let horizon = self.horizon_asked.max(closed);
        self.steps.push(Extend { horizon, closed }, Applied::Extended(horizon), 0);
    }

    /// Has versions and outcomes go that are older than they are retained. If none are, nothing is logged: no host writes to its
    /// disk for it.
    pub(super) fn collect(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let keep = frame.parameters.keep.as_micros() as u64;
        let early = if planted!(collected_while_still_readable) { keep / 2 } else { 0 };
        let below = Timestamp(TrueTime(cx.wall()).earliest().0.saturating_sub(keep - early));
        let is_time = below > self.collected.plus(keep / COLLECTIONS_PER_KEEP);
        if below >= self.due && is_time && self.steps.is_idle() {
            self.collected = below;
            self.steps.push(Collect { below }, Applied::Nothing, 0);
        }
    }
}

/// How often something is collected in the time that it is retained.
const COLLECTIONS_PER_KEEP: u64 = 16;

impl SpannerShard {
    pub(super) fn on_fate(&self, gateway: NodeId, id: u64, found: &Bytes, cx: &mut Cx<'_, Self>) {
        if let Ok(committed) = Option::<Timestamp>::decoded(found) {
            cx.send(gateway, FateFound { id, shard: self.shard, committed });
        }
    }
}
