//! Reads under locks, of the shards that an attempt touches.

use super::{Attempt, BACK_OFF_MAX, Kind, MADE_WAY_PAUSE_MAX, OneShotCall, Pending, Phase, holds};
use crate::gateway::{GatewayTimer, TxnGateway};
use crate::machine::entry::ReplicaValues;
use crate::messages::gateway::{LockedValues, LostLocks};
use crate::messages::shard::{LockedUnder, ReadLocked};
use crate::shard::READ_LOCK_BYTES_MAX;
use kernel::{Bytes, Cx, Decode, planted};
use std::time::Duration;
use wire::txn::{Condition, RowsWithin, TxnFailure};

impl TxnGateway {
    pub(super) fn read_under_locks(
        &mut self,
        number: u64,
        keys: Vec<Bytes>,
        scans: Vec<wire::txn::KeyScan>,
        cx: &mut Cx<'_, Self>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&number) else { return };
        attempt.phase = Phase::Reading;
        attempt.rows.clear();
        for key in &keys {
            let at = attempt.shards.entry(self.directory.shard_of(key)).or_default();
            let pending = at.pending.get_or_insert_with(Pending::empty);
            if !pending.what.keys.contains(key) {
                pending.what.keys.push(key.clone());
            }
        }
        for (index, scan) in scans.iter().enumerate() {
            for shard in self.directory.shards_of(&scan.range) {
                let at = attempt.shards.entry(shard).or_default();
                let pending = at.pending.get_or_insert_with(Pending::empty);
                pending.what.scans.push(scan.clone());
                pending.scans.push(index);
            }
        }
        if let Kind::OneShot(call) = &attempt.kind {
            for write in &call.writes {
                let at = attempt.shards.get_mut(&self.directory.shard_of(&write.key));
                if let Some(pending) = at.and_then(|at| at.pending.as_mut()) {
                    pending.writes.push(write.key.clone());
                }
            }
        }
        let mut is_too_much = false;
        for at in attempt.shards.values_mut() {
            let Some(pending) = &at.pending else { continue };
            at.bytes += pending.what.size() + pending.writes.iter().map(Bytes::len).sum::<usize>();
            is_too_much |= at.bytes > READ_LOCK_BYTES_MAX;
        }
        if is_too_much {
            return self.end_reading(number, TxnFailure::Malformed, cx);
        }
        attempt.keys = keys;
        attempt.scans = scans.into_iter().map(|scan| (scan, Vec::new())).collect();
        self.ask_shards(number, cx);
        self.finish_reading(number, cx);
    }

    pub(super) fn ask_shards(&mut self, number: u64, cx: &mut Cx<'_, Self>) {
        let Some(attempt) = self.attempts.get_mut(&number) else { return };
        attempt.asked_at = cx.now();
        for (&shard, at) in &attempt.shards {
            let Some(pending) = &at.pending else { continue };
            let Some(role) = self.directory.role(shard, cx.node().host()) else { continue };
            let (txn, priority, held) = (attempt.txn, attempt.priority, at.held);
            // What is known of this incarnation must outlive it.
            let writes = Some(pending.writes.clone());
            cx.send_durable(role, ReadLocked { txn, priority, held, what: pending.what.clone(), writes });
        }
    }

    pub(in crate::gateway) fn on_locked_values(&mut self, message: LockedValues, cx: &mut Cx<'_, Self>) {
        let LockedValues { txn, shard, held, values } = message;
        let Some(attempt) = self.attempts.get_mut(&txn.number).filter(|it| it.txn == txn) else { return };
        let Some(at) = attempt.shards.get_mut(&shard) else { return };
        if at.held.map_or(0, |before| before.reads) + 1 != held.reads
            || !matches!(attempt.phase, Phase::Reading)
        {
            return;
        }
        let found = match ReplicaValues::decoded(&values) {
            Ok(ReplicaValues::Found(found)) => found,
            Ok(ReplicaValues::Collected) | Err(_) => return cx.reject("values that do not decode"),
        };
        let are_others = |before: LockedUnder| (before.epoch, before.since) != (held.epoch, held.since);
        if found.is_short || (at.held.is_some_and(are_others) && !planted!(lock_epoch_not_checked)) {
            let why = if found.is_short { TxnFailure::Malformed } else { TxnFailure::Aborted };
            return self.end_reading(txn.number, why, cx);
        }
        let Some(pending) = at.pending.take() else { return };
        at.held = Some(held);
        // Its user will have seen this, whatever becomes of it.
        if !planted!(reads_under_locks_not_in_token) {
            attempt.token = attempt.token.max(found.newest);
        }
        attempt.rows.extend(found.rows.into_iter().map(|row| (row.key.clone(), row)));
        for (index, rows) in pending.scans.into_iter().zip(found.scans) {
            attempt.scans[index].1.push(rows);
        }
        self.finish_reading(txn.number, cx);
    }

    /// All shards have answered: what was read goes to the user, or a one-shot goes on.
    pub(super) fn finish_reading(&mut self, number: u64, cx: &mut Cx<'_, Self>) {
        let Some(attempt) = self.attempts.get_mut(&number) else { return };
        if attempt.shards.values().any(|at| at.pending.is_some()) {
            return;
        }
        attempt.phase = Phase::Idle;
        attempt.used_at = cx.now();
        let rows = &attempt.rows;
        match &attempt.kind {
            Kind::Interactive { .. } => {
                let rows = attempt.keys.iter().filter_map(|key| rows.get(key).cloned()).collect();
                let scans = std::mem::take(&mut attempt.scans);
                let scans = scans
                    .into_iter()
                    .map(|(scan, parts)| crate::gateway::merge::merge(&scan, parts))
                    .collect();
                if let Some(caller) = attempt.caller.take() {
                    let token = attempt.token;
                    caller.answer(RowsWithin { id: caller.id(), token, rows, scans }, cx);
                }
            }
            Kind::OneShot(call) => {
                let holds = |it: &Condition| rows.get(&it.key).is_some_and(|row| holds(it, row));
                if call.conditions.iter().all(holds) {
                    let (call, writes) = (call.call, call.writes.clone());
                    return self.commit(number, call, writes, cx);
                }
                let (call, caller) = ((**call).clone(), attempt.caller);
                self.drop_attempt(number, cx);
                if let Some(caller) = caller {
                    self.judge_conditions(caller, call, cx);
                }
            }
        }
    }

    pub(in crate::gateway) fn on_lost_locks(&mut self, message: &LostLocks, cx: &mut Cx<'_, Self>) {
        let LostLocks { txn, busy, .. } = *message;
        let Some(attempt) = self.attempts.get(&txn.number).filter(|it| it.txn == txn) else { return };
        match attempt.phase {
            Phase::Idle | Phase::Reading => {
                cx.mark("gateway.lost_its_locks");
                self.end_reading(txn.number, if busy { TxnFailure::Busy } else { TxnFailure::Aborted }, cx);
            }
            // The coordinator's log says how it ends.
            Phase::Committing(_) | Phase::Lost { .. } | Phase::BackingOff { .. } => {}
        }
    }

    /// An attempt cannot be committed: it is tried again, or its user is notified.
    pub(super) fn end_reading(&mut self, number: u64, why: TxnFailure, cx: &mut Cx<'_, Self>) {
        let Some(attempt) = self.attempts.get(&number).cloned() else { return };
        self.release(&attempt, cx);
        match attempt.kind {
            Kind::OneShot(call) => {
                if why == TxnFailure::Malformed {
                    self.attempts.remove(&number);
                    if let Some(caller) = attempt.caller {
                        caller.fail(why, cx);
                    }
                    return;
                }
                let longest = if why == TxnFailure::Busy { BACK_OFF_MAX } else { MADE_WAY_PAUSE_MAX };
                self.try_again(number, *call, longest, cx);
            }
            Kind::Interactive { name, owner, .. } => match attempt.caller {
                Some(caller) => {
                    self.interactive.remove(&(owner, name));
                    self.attempts.remove(&number);
                    caller.fail(why, cx);
                }
                None => {
                    if let Some(attempt) = self.attempts.get_mut(&number) {
                        attempt.phase = Phase::Lost { busy: why == TxnFailure::Busy };
                        attempt.shards.clear();
                    }
                }
            },
        }
    }

    /// A pause at random, longer with each attempt, before the next.
    pub(super) fn try_again(
        &mut self,
        number: u64,
        call: OneShotCall,
        longest: Duration,
        cx: &mut Cx<'_, Self>,
    ) {
        let most = longest.min(Duration::from_micros(200 << call.attempts.min(12)));
        let pause = cx.rng().duration(Duration::from_micros(100), most);
        if let Some(attempt) = self.attempts.get_mut(&number) {
            let until = cx.now() + pause;
            attempt.phase = Phase::BackingOff { until };
            attempt.shards.clear();
            self.paused.insert((until, number));
            self.try_paused(cx);
        }
    }

    /// Tries what has paused for long enough, and sets the timer for the rest.
    pub(in crate::gateway) fn try_paused(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(&(until, number)) = self.paused.first() {
            let now = cx.now();
            if until > now {
                return cx.set_timer(GatewayTimer::Again, until.since(now));
            }
            self.paused.pop_first();
            let pauses =
                |attempt: &Attempt| matches!(attempt.phase, Phase::BackingOff { until: of } if of == until);
            if !self.attempts.get(&number).is_some_and(pauses) {
                continue;
            }
            let Some(Attempt { kind, caller, .. }) = self.attempts.remove(&number) else { continue };
            if let (Kind::OneShot(call), Some(caller)) = (kind, caller) {
                cx.mark("gateway.tried_again");
                self.try_one_shot(caller, *call, cx);
            }
        }
    }
}
