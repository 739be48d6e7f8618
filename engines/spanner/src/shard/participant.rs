//! A participant's side: reads under locks, prepares, and holds everything until it knows the decision. It never guesses one.

use super::SpannerShard;
use super::active::{Active, Stage, Wanted, bytes_of};
use super::frame::Frame;
use super::lead::Lead;
use super::locks::Want;
use super::questions::Asker;
use super::steps::Applied;
use crate::machine::entry::{CommitAlone, Conclude, FateOf, Prepare, ValuesAt};
use crate::messages::gateway::{Ended, LockedValues, LostLocks};
use crate::messages::shard::{
    Decided, DidConclude, DidPrepare, LockedUnder, PrepareTxn, ReadLocked, Stepped,
};
use crate::txn::{Fate, PreparedTxn, ReadSet, ShardId, TrueTime, TxnId};
use kernel::{Bytes, Cx, planted};
use wire::txn::{KeyWrite, Timestamp};

/// What a transaction may lock at a shard to read it, in bytes of keys: all of it stands in one record when it prepares.
pub(crate) const READ_LOCK_BYTES_MAX: usize = 512 << 10;

impl Lead {
    pub(super) fn on_read_locked(
        &mut self,
        message: ReadLocked,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let ReadLocked { txn, priority, held, what, writes } = message;
        let writes = writes.unwrap_or_default();
        let lost = |busy| LostLocks { txn, shard: frame.shard, busy };
        if self.owners.is_over(&txn) {
            return cx.send(txn.gateway, lost(false));
        }
        self.owners.hear(&txn, cx.now());
        if !self.txns.contains_key(&txn) {
            if held.is_some() {
                return cx.send(txn.gateway, lost(false));
            }
            if self.txns.len() + self.decisions.len() >= frame.parameters.transactions_max {
                return cx.send(txn.gateway, lost(true));
            }
            let since = self.next_since();
            self.txns.insert(txn, Active::new(priority, since, cx.now()));
        }
        let epoch = self.epoch();
        let Some(active) = self.txns.get_mut(&txn).filter(|active| active.stage == Stage::Open) else {
            return;
        };
        let now = active.held(epoch);
        let is_again = held.map_or(0, |held| held.reads) + 1 == active.reads;
        if is_again && held.is_none_or(|held| held.since == active.since) && active.wants.is_none() {
            // The answer was lost; the locks are held.
            let at = Timestamp::MAX;
            return frame.questions.push(Asker::Locked { txn, held: now }, ValuesAt { at, what });
        }
        if held.map_or(active.reads > 0, |held| held != now) {
            return self.give_up(&txn, false, frame, cx);
        }
        if active.wants.is_some() {
            return;
        }
        let more = what.size() + writes.iter().map(Bytes::len).sum::<usize>();
        let has_room = self.has_room_for_locks(Want::Read(&what, &writes), frame);
        if self.locked_bytes(&txn) + more > READ_LOCK_BYTES_MAX || !has_room {
            return self.give_up(&txn, true, frame, cx);
        }
        if let Some(active) = self.txns.get_mut(&txn) {
            active.wants = Some(Wanted::Read(what, writes));
            self.wanted += active.wanted();
        }
        if self.lock(&txn, frame, cx) {
            self.on_locked(&txn, frame, cx);
        }
    }

    /// True if so many locks more may be held or waited for.
    fn has_room_for_locks(&self, want: Want<'_>, frame: &Frame<'_>) -> bool {
        self.locks.count() + self.wanted + want.count() <= frame.parameters.locks_max
    }

    fn locked_bytes(&self, txn: &TxnId) -> usize {
        self.locks.held(txn).map_or(0, |held| {
            let ranges = held.ranges.iter().map(|it| it.start.len() + it.end.as_ref().map_or(0, Bytes::len));
            held.reads.iter().map(Bytes::len).sum::<usize>() + ranges.sum::<usize>()
        })
    }

    pub(super) fn read_locked(&mut self, txn: &TxnId, what: ReadSet, frame: &mut Frame<'_>) {
        let epoch = self.epoch();
        let Some(active) = self.txns.get_mut(txn) else { return };
        active.reads += 1;
        let held = active.held(epoch);
        frame.questions.push(Asker::Locked { txn: *txn, held }, ValuesAt { at: Timestamp::MAX, what });
    }

    pub(super) fn on_locked_values(
        &mut self,
        txn: TxnId,
        held: LockedUnder,
        values: Bytes,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        // Wounded in the meantime: what was read may be overwritten.
        if self.txns.get(&txn).is_some_and(|active| active.held(held.epoch) == held) {
            cx.send(txn.gateway, LockedValues { txn, shard: frame.shard, held, values });
        }
    }

    pub(super) fn on_release(&mut self, txn: &TxnId, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        // Once it was asked to prepare, its coordinator decides.
        if self.txns.get(txn).is_some_and(|active| active.stage == Stage::Open) {
            self.leave(txn, frame, cx);
        }
    }

    pub(super) fn on_prepare(
        &mut self,
        message: PrepareTxn,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let txn = message.txn;
        let coordinates = message.coordinator == frame.shard;
        if let Some(fate) = self.owners.fate(&txn) {
            if coordinates {
                // Participants may have put it off; how far, only the leader knew that decided. It is never further than that.
                let bound = frame.parameters.fence_bound.as_micros() as u64;
                let latest = fate.committed().map_or(Timestamp(0), |t_c| t_c.plus(bound));
                let t_ee = message.t_ee.max(latest);
                cx.send_durable(txn.gateway, Ended { txn, shard: frame.shard, fate, t_ee });
            }
            return;
        }
        if self.owners.is_over(&txn) {
            return;
        }
        self.owners.hear(&txn, cx.now());
        let known = self.txns.get(&txn);
        if known.is_some_and(|active| active.asked.is_some()) {
            // Sent again: it is in progress, and its coordinator is notified by itself.
            return;
        }
        let holds = match message.locked {
            Some(_) if planted!(lock_epoch_not_checked) => true,
            Some(locked) => known.is_some_and(|active| active.held(self.epoch()) == locked),
            None => known.is_none_or(|active| active.reads == 0),
        };
        let parameters = frame.parameters;
        let has_room = self.bytes + bytes_of(&message.writes) <= parameters.queue_bytes_max;
        // What is decided here and not known to all who take part counts, too.
        let decides_for_others = coordinates && message.participants.len() > 1;
        let undelivered = if decides_for_others { self.decisions.len() } else { 0 };
        let in_progress = self.txns.len() + undelivered;
        let busy = !(has_room || planted!(bytes_in_progress_not_bounded))
            || (known.is_none() && in_progress >= parameters.transactions_max)
            || !self.has_room_for_locks(Want::Write(&message.writes), frame);
        if busy && coordinates && known.is_none() {
            // The gateway asks again.
            return cx.mark("shard.refused_to_prepare_when_busy");
        }
        if (!holds || busy) && !coordinates {
            cx.mark("shard.refused_to_prepare");
            self.refuse_to_prepare(&txn, message.coordinator, frame, cx);
            return self.leave(&txn, frame, cx);
        }
        let (priority, since) = (message.priority, self.next_since());
        let active = self.txns.entry(txn).or_insert_with(|| Active::new(priority, since, cx.now()));
        if !holds || busy {
            // Another leader may have committed it: what its gateway is answered has to stand in the log. And who holds locks, and has no
            // room to go on, may be who others wait for.
            cx.mark(if holds { "shard.aborted_when_busy" } else { "shard.logged_the_abort_of_lost_locks" });
            active.stage = Stage::Preparing;
            active.asked = Some(PrepareTxn { writes: Vec::new(), ..message });
            self.bytes += active.bytes();
            return self.decide(&txn, Fate::Aborted, frame, cx);
        }
        active.stage = Stage::Preparing;
        self.wanted -= active.wanted();
        active.wants = Some(Wanted::Write);
        active.asked = Some(message);
        self.bytes += active.bytes();
        self.wanted += active.wanted();
        if self.lock(&txn, frame, cx) {
            self.on_locked(&txn, frame, cx);
        }
    }

    /// All locks of a transaction that is to prepare are held.
    pub(super) fn prepare_locked(
        &mut self,
        txn: &TxnId,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        let Some(asked) = active.asked.clone() else { return };
        if asked.coordinator == frame.shard && asked.participants.len() > 1 {
            (active.stage, active.sent_at) = (Stage::Collecting, cx.now());
            return self.decide_if_all_have_prepared(txn, frame, cx);
        }
        let bytes: usize = asked.writes.iter().map(KeyWrite::size).sum();
        if asked.coordinator == frame.shard {
            let (t_c, _) = self.commit_timestamp(&asked, asked.t_ee, frame, cx);
            if self.is_too_late(&asked, t_c, frame) {
                return self.decide(txn, Fate::Aborted, frame, cx);
            }
            let commit = CommitAlone { txn: *txn, call: asked.call, t_c, writes: asked.writes };
            self.steps.push(commit, Applied::Alone(*txn, t_c), bytes);
            return self.set_stage(txn, Stage::Logging { t_p: t_c });
        }
        let t_p = self.assign(Timestamp(0), cx);
        let held = self.locks.held(txn).cloned().unwrap_or_default();
        let prepared = PreparedTxn {
            txn: *txn,
            priority: asked.priority,
            t_p,
            t_ee: asked.t_ee,
            coordinator: asked.coordinator,
            reads: held.reads.into_iter().filter(|_| !planted!(prepares_without_its_reads)).collect(),
            ranges: held.ranges,
            writes: asked.writes,
        };
        let bytes = bytes + self.locked_bytes(txn);
        self.steps.push(Prepare { prepared }, Applied::Prepared(*txn), bytes);
        self.set_stage(txn, Stage::Logging { t_p });
    }

    pub(super) fn set_stage(&mut self, txn: &TxnId, stage: Stage) {
        if let Some(active) = self.txns.get_mut(txn) {
            active.stage = stage;
        }
    }

    /// The log has a step of this leader.
    pub(super) fn on_stepped(
        &mut self,
        message: &Stepped,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        (self.collected, self.due) = (self.collected.max(message.collected), message.due);
        let ended_before =
            |txn: &TxnId| message.refused.iter().find(|(it, _)| it == txn).map(|(_, fate)| *fate);
        for applied in self.steps.applied(message.epoch, message.index) {
            match applied {
                Applied::Alone(txn, t_c) => {
                    let fate = ended_before(&txn).unwrap_or(Fate::Committed(t_c));
                    self.on_committed_alone(&txn, fate, frame, cx);
                }
                Applied::Prepared(txn) => self.on_prepared(&txn, frame, cx),
                Applied::Decided(txn) => self.on_decision_logged(&txn, ended_before(&txn), frame, cx),
                Applied::DecidedForUnknown(txn) => {
                    self.owners.ended(&txn, Fate::Aborted);
                    self.send_decision(&txn, frame, cx);
                }
                Applied::Concluded(txn) => self.on_concluded(&txn, frame, cx),
                Applied::Extended(horizon) => self.on_extended(horizon, frame, cx),
                Applied::Asked { gateway, id, key } => {
                    frame.questions.push(Asker::Fate { gateway, id }, FateOf { key });
                }
                Applied::Settled(txns) => self.on_settled(&txns),
                Applied::Followed(members) => self.on_followed(members),
                Applied::Nothing => {}
            }
        }
    }

    fn on_committed_alone(
        &mut self,
        txn: &TxnId,
        fate: Fate,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        let own = active.stage.prepared_at().map(Fate::Committed);
        let t_ee = active.t_ee();
        cx.send_durable(txn.gateway, Ended { txn: *txn, shard: frame.shard, fate, t_ee });
        if own == Some(fate) {
            self.owners.ended(txn, fate);
            self.pass(txn, fate, frame, cx);
        } else {
            cx.mark("shard.executed_a_call_once");
            self.owners.ended(txn, Fate::Aborted);
            self.leave(txn, frame, cx);
        }
    }

    /// Its locks are held until its timestamp has surely passed: nobody sees it before.
    pub(super) fn pass(
        &mut self,
        txn: &TxnId,
        fate: Fate,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        if let Some(active) = self.txns.get_mut(txn) {
            active.fate = Some(fate);
        }
        let Fate::Committed(t_c) = fate else { return self.leave(txn, frame, cx) };
        self.note_assigned(t_c);
        let has_passed = TrueTime(cx.wall()).has_passed(t_c)
            || planted!(no_commit_wait)
            || planted!(shown_when_decided_and_not_when_passed);
        if has_passed {
            return self.leave(txn, frame, cx);
        }
        self.set_stage(txn, Stage::Passing { t_c });
        self.passing.insert((t_c, *txn));
        self.look_at_the_time(frame, cx);
    }

    fn on_prepared(&mut self, txn: &TxnId, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        let Stage::Logging { t_p } = active.stage else { return };
        active.stage = Stage::Prepared { t_p };
        active.prepared_since = cx.now();
        let decided = active.fate;
        self.report_prepared(txn, frame, cx);
        if let Some(fate) = decided {
            self.conclude(txn, fate);
        }
        if self.waiters.contains_key(txn) {
            // An older one may have come while it could not be asked to abort.
            let waiting = self.waiters.remove(txn).unwrap_or_default();
            self.woken.extend(waiting);
        }
    }

    pub(super) fn report_prepared(&mut self, txn: &TxnId, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let now = cx.now();
        let Some(active) = self.txns.get_mut(txn) else { return };
        let (Stage::Prepared { t_p }, Some(asked)) = (active.stage, &active.asked) else { return };
        active.sent_at = now;
        let asks = active.taken_back || now.since(active.prepared_since) >= frame.parameters.doubt_after;
        let (coordinator, t_ee) = (asked.coordinator, asked.t_ee);
        if let Some(role) = frame.directory.role(coordinator, cx.node().host()) {
            let message = DidPrepare { txn: *txn, coordinator, by: frame.shard, t_p, t_ee, asks };
            cx.send_durable(role, message);
        }
    }

    pub(super) fn on_decided(
        &mut self,
        message: &Decided,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Decided { txn, coordinator, fate } = message;
        let Some(active) = self.txns.get_mut(txn) else {
            if self.owners.fate(txn).is_some() {
                return self.concluded.entry(*coordinator).or_default().push(*txn);
            }
            // It has ended here, or never came here, or this leader is deposed and does not know: the log says which.
            return self.conclude_unknown(txn, *fate, *coordinator);
        };
        match active.stage {
            Stage::Prepared { .. } => self.conclude(txn, *fate),
            Stage::Logging { .. } => active.fate = Some(*fate),
            Stage::Open | Stage::Preparing if fate.committed().is_none() => {
                self.leave(txn, frame, cx);
                self.conclude_unknown(txn, *fate, *coordinator);
            }
            Stage::Open | Stage::Preparing | Stage::Collecting => {
                cx.reject("decision to commit what is not prepared");
            }
            Stage::Ending { .. } | Stage::Passing { .. } => {}
        }
    }

    fn conclude(&mut self, txn: &TxnId, fate: Fate) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        let Stage::Prepared { t_p } = active.stage else { return };
        active.fate = Some(fate);
        active.stage = Stage::Ending { t_p };
        self.steps.push(Conclude { txn: *txn, fate }, Applied::Concluded(*txn), 0);
    }

    fn conclude_unknown(&mut self, txn: &TxnId, fate: Fate, coordinator: ShardId) {
        if !self.owners.concludes(txn, (coordinator, fate)) {
            self.steps.push(Conclude { txn: *txn, fate }, Applied::Concluded(*txn), 0);
        }
    }

    fn on_concluded(&mut self, txn: &TxnId, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let unknown = self.owners.concluded(txn);
        let active = self.txns.get(txn);
        let known = active.and_then(|it| Some((it.asked.as_ref()?.coordinator, it.fate?)));
        let Some((coordinator, fate)) = known.or(unknown) else { return };
        self.owners.ended(txn, fate);
        self.concluded.entry(coordinator).or_default().push(*txn);
        self.pass(txn, fate, frame, cx);
    }

    /// Reports to coordinators, at the end of a burst, which decisions the log has.
    pub(super) fn report_concluded(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        for (coordinator, txns) in std::mem::take(&mut self.concluded) {
            if let Some(role) = frame.directory.role(coordinator, cx.node().host()) {
                cx.send_durable(role, DidConclude { by: frame.shard, coordinator, txns });
            }
        }
    }

    /// Says again what coordinators have not answered, and asks again for the older ones that wait.
    pub(super) fn look_after_participants(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let (now, after) = (cx.now(), frame.parameters.resend_after);
        let late = |active: &Active| {
            matches!(active.stage, Stage::Prepared { .. }) && now.since(active.sent_at) >= after
        };
        let late: Vec<TxnId> = self.txns.iter().filter(|(_, it)| late(it)).map(|(&txn, _)| txn).collect();
        for txn in late {
            self.report_prepared(&txn, frame, cx);
            let since = self.txns.get(&txn).map(|active| active.prepared_since);
            let is_in_doubt = since.is_some_and(|since| now.since(since) >= frame.parameters.doubt_after);
            if is_in_doubt && planted!(in_doubt_aborts_alone) {
                self.conclude(&txn, Fate::Aborted);
                continue;
            }
            let own = self.txns.get(&txn).map(|active| active.priority);
            let oldest = self.waiters.get(&txn).and_then(|waiting| waiting.first().copied());
            if oldest.zip(own).is_some_and(|(oldest, own)| oldest < own) {
                self.ask_to_make_way(&txn, frame, cx);
            }
        }
    }
}
