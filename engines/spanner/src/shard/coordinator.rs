//! A coordinator's side: collects the participants' prepare timestamps, chooses the commit timestamp, and has the decision logged before
//! it is sent to anybody.

use super::SpannerShard;
use super::active::{Active, OpenFate, Stage};
use super::frame::Frame;
use super::lead::Lead;
use super::steps::Applied;
use crate::machine::entry::{Decide, Settle};
use crate::messages::gateway::Ended;
use crate::messages::shard::{Decided, DidConclude, DidPrepare, PrepareTxn};
use crate::txn::{Fate, ShardId, TxnId};
use kernel::{Cx, planted};
use std::collections::BTreeSet;
use wire::txn::{KeyWrite, Timestamp};

impl Lead {
    pub(super) fn on_did_prepare(
        &mut self,
        message: &DidPrepare,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let DidPrepare { txn, by, t_p, t_ee, asks, .. } = *message;
        if let Some(fate) = self.decisions.get(&txn).map(|open| open.fate) {
            // One that is on its way to the log is reported from there.
            if !self.owners.is_deciding_unknown(&txn) {
                self.report_fate(&txn, by, fate, frame, cx);
            }
            return;
        }
        if let Some(fate) = self.owners.fate(&txn) {
            return self.report_fate(&txn, by, fate, frame, cx);
        }
        match self.txns.get_mut(&txn) {
            Some(active) => {
                if matches!(active.stage, Stage::Preparing | Stage::Collecting) {
                    active.votes.prepared.insert(by, t_p);
                    active.votes.t_ee = active.votes.t_ee.max(t_ee);
                    self.decide_if_all_have_prepared(&txn, frame, cx);
                }
            }
            None if asks => {
                if planted!(unknown_called_aborted_unlogged) {
                    return self.report_fate(&txn, by, Fate::Aborted, frame, cx);
                }
                let others = usize::from(frame.directory.count()).saturating_sub(1);
                if self.decisions.len() >= others * frame.parameters.transactions_max {
                    // The participant asks again.
                    return;
                }
                cx.mark("shard.logged_the_abort_of_what_it_does_not_know");
                if !self.owners.decides_unknown(&txn) {
                    self.decisions.insert(
                        txn,
                        OpenFate { fate: Fate::Aborted, waits_for: BTreeSet::from([by]), sent_at: cx.now() },
                    );
                    let (fate, participants) = (Fate::Aborted, vec![by]);
                    let decide = Decide { txn, call: None, fate, writes: Vec::new(), participants };
                    self.steps.push(decide, Applied::DecidedForUnknown(txn), 0);
                }
            }
            // The gateway's own message may be on its way.
            None => {}
        }
    }

    fn report_fate(
        &self,
        txn: &TxnId,
        participant: ShardId,
        fate: Fate,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        if let Some(role) = frame.directory.role(participant, cx.node().host()) {
            cx.send_durable(role, Decided { txn: *txn, coordinator: frame.shard, fate });
        }
    }

    pub(super) fn decide_if_all_have_prepared(
        &mut self,
        txn: &TxnId,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get(txn).filter(|active| active.stage == Stage::Collecting) else {
            return;
        };
        let Some(asked) = active.asked.clone() else { return };
        let others = asked.participants.iter().filter(|shard| **shard != frame.shard);
        let Some(highest) = others
            .map(|shard| active.votes.prepared.get(shard).copied())
            .try_fold(Timestamp(0), |highest, t_p| t_p.map(|t_p| highest.max(t_p)))
        else {
            return;
        };
        let t_ee = asked.t_ee.max(active.votes.t_ee);
        let start = asked.start.max(highest);
        let began = asked.start;
        let (t_c, t_ee) = self.commit_timestamp(&PrepareTxn { start, ..asked.clone() }, t_ee, frame, cx);
        if self.is_too_late(&PrepareTxn { start: began, ..asked.clone() }, t_c, frame) {
            return self.decide(txn, Fate::Aborted, frame, cx);
        }
        if let Some(asked) = self.txns.get_mut(txn).and_then(|active| active.asked.as_mut()) {
            asked.t_ee = t_ee;
        }
        self.decide(txn, Fate::Committed(t_c), frame, cx);
        if planted!(decision_sent_before_durable) {
            self.send_decision_early(txn, Fate::Committed(t_c), frame, cx);
        }
    }

    /// Above the transaction's start and all that was promised, and late enough that its client's end follows it by no more than the
    /// fence's bound (section 5.1's L).
    pub(super) fn commit_timestamp(
        &mut self,
        asked: &PrepareTxn,
        t_ee: Timestamp,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) -> (Timestamp, Timestamp) {
        let bound = frame.parameters.fence_bound.as_micros() as u64;
        let least = Timestamp(t_ee.0.saturating_sub(bound));
        (self.assign(asked.start.next().max(least), cx), t_ee)
    }

    /// A call that is committed long after it was sent may have been executed and forgotten when its user sent it before.
    pub(super) fn is_too_late(&self, asked: &PrepareTxn, t_c: Timestamp, frame: &Frame<'_>) -> bool {
        let half = frame.parameters.keep.as_micros() as u64 / 2;
        asked.call.is_some() && t_c > asked.start.plus(half)
    }

    pub(super) fn decide(
        &mut self,
        txn: &TxnId,
        fate: Fate,
        frame: &mut Frame<'_>,
        _cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        let Some(asked) = active.asked.clone() else { return };
        kernel::invariant!(ATOMIC, active.fate.is_none(), "{txn:?} is {fate:?}, and was {:?}", active.fate);
        active.fate = Some(fate);
        // Its turn for locks, if it still waits for some, is over.
        self.wanted -= active.wanted();
        active.wants = None;
        // An abort assigns no timestamp; readers need not mind it.
        active.stage = Stage::Ending { t_p: fate.committed().unwrap_or(Timestamp::MAX) };
        let participants = asked.participants.into_iter().filter(|shard| *shard != frame.shard).collect();
        let writes = if fate.committed().is_some() { asked.writes } else { Vec::new() };
        let bytes = writes.iter().map(KeyWrite::size).sum();
        let decide = Decide { txn: *txn, call: asked.call, fate, writes, participants };
        self.steps.push(decide, Applied::Decided(*txn), bytes);
    }

    /// Aborts what this shard coordinates and has not decided; nothing if there is nothing to abort.
    pub(super) fn abort_undecided(
        &mut self,
        txn: &TxnId,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get(txn) else { return };
        if active.is_decided_by(frame.shard) && matches!(active.stage, Stage::Preparing | Stage::Collecting) {
            cx.mark("shard.aborted_what_was_undecided");
            self.decide(txn, Fate::Aborted, frame, cx);
        }
    }

    pub(super) fn on_decision_logged(
        &mut self,
        txn: &TxnId,
        ended_before: Option<Fate>,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get(txn) else { return };
        let (Some(decided), Some(asked)) = (active.fate, active.asked.as_ref()) else { return };
        let fate = if ended_before.is_some() { Fate::Aborted } else { decided };
        let others: BTreeSet<ShardId> =
            asked.participants.iter().copied().filter(|shard| *shard != frame.shard).collect();
        let ended = ended_before.unwrap_or(decided);
        self.owners.ended(txn, fate);
        cx.send_durable(txn.gateway, Ended { txn: *txn, shard: frame.shard, fate: ended, t_ee: asked.t_ee });
        if !others.is_empty() {
            self.decisions.insert(*txn, OpenFate { fate, waits_for: others, sent_at: cx.now() });
            self.send_decision(txn, frame, cx);
        }
        self.pass(txn, fate, frame, cx);
    }

    /// Sends it to the participants that have not logged it.
    pub(super) fn send_decision(&mut self, txn: &TxnId, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let host = cx.node().host();
        let Some(open) = self.decisions.get_mut(txn) else { return };
        if self.owners.is_deciding_unknown(txn) {
            return;
        }
        open.sent_at = cx.now();
        for &shard in &open.waits_for {
            if let Some(role) = frame.directory.role(shard, host) {
                let (coordinator, fate) = (frame.shard, open.fate);
                cx.send_durable(role, Decided { txn: *txn, coordinator, fate });
            }
        }
    }

    /// The mistake: the decision may still be lost.
    fn send_decision_early(&self, txn: &TxnId, fate: Fate, frame: &Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let Some(asked) = self.txns.get(txn).and_then(|active| active.asked.as_ref()) else { return };
        for &shard in asked.participants.iter().filter(|shard| **shard != frame.shard) {
            self.report_fate(txn, shard, fate, frame, cx);
        }
        cx.send_durable(txn.gateway, Ended { txn: *txn, shard: frame.shard, fate, t_ee: asked.t_ee });
    }

    pub(super) fn on_did_conclude(&mut self, message: DidConclude) {
        let DidConclude { by, txns, .. } = message;
        for txn in txns {
            let Some(open) = self.decisions.get_mut(&txn) else { continue };
            if !open.waits_for.remove(&by) {
                continue;
            }
            // It is remembered until the log has that, so that who asks late gets no other answer.
            self.settled.entry(by).or_default().push(txn);
        }
    }

    /// The log has it: a decision that nobody waits for any more goes.
    pub(super) fn on_settled(&mut self, txns: &[TxnId]) {
        for txn in txns {
            if self.decisions.get(txn).is_some_and(|open| open.waits_for.is_empty()) {
                self.decisions.remove(txn);
            }
        }
    }

    /// Has the log forget, at the end of a burst, what participants have logged.
    pub(super) fn log_settled(&mut self) {
        for (by, txns) in std::mem::take(&mut self.settled) {
            let bytes = txns.len() * TXN_ID_BYTES;
            self.steps.push(Settle { by, txns: txns.clone() }, Applied::Settled(txns), bytes);
        }
    }

    /// What waits for locks for long is aborted while its user still waits for it; nobody comes back for it else, and those behind it
    /// wait for nothing.
    fn give_up_waiting(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let (now, most, shard) = (cx.now(), frame.parameters.lock_wait_max(), frame.shard);
        let is_stuck = |active: &Active| {
            active.stage == Stage::Preparing
                && active.is_decided_by(shard)
                && active.waits_since.is_some_and(|since| now.since(since) >= most)
        };
        let stuck: Vec<TxnId> =
            self.txns.iter().filter(|(_, it)| is_stuck(it)).map(|(&txn, _)| txn).collect();
        for txn in stuck {
            cx.mark("shard.gave_up_waiting_for_locks");
            self.abort_undecided(&txn, frame, cx);
        }
    }

    pub(super) fn look_after_decisions(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let (now, after) = (cx.now(), frame.parameters.resend_after);
        let waits = |open: &OpenFate| !open.waits_for.is_empty() && now.since(open.sent_at) >= after;
        let late = self.decisions.iter().filter(|(_, open)| waits(open));
        let late: Vec<TxnId> = late.map(|(&txn, _)| txn).collect();
        for txn in late {
            self.send_decision(&txn, frame, cx);
        }
        let most = frame.parameters.collect_for;
        let stuck = self
            .txns
            .iter()
            .filter(|(_, active)| active.stage == Stage::Collecting && now.since(active.sent_at) >= most);
        for txn in stuck.map(|(&txn, _)| txn).collect::<Vec<_>>() {
            cx.mark("shard.gave_up_collecting");
            self.abort_undecided(&txn, frame, cx);
        }
        self.give_up_waiting(frame, cx);
        if planted!(decision_forgotten_early) && !self.decisions.is_empty() {
            self.decisions.clear();
        }
    }
}

/// A transaction's name on the wire.
const TXN_ID_BYTES: usize = 24;
