//! How transactions wait for each other and wound each other: the older one goes first, so that nobody waits in a circle.

use super::SpannerShard;
use super::active::{Active, Stage, Wanted};
use super::frame::Frame;
use super::lead::Lead;
use super::locks::Want;
use crate::messages::gateway::LostLocks;
use crate::messages::shard::{CannotPrepare, MakeWay};
use crate::txn::TxnId;
use kernel::{Cx, planted};
use std::collections::BTreeSet;
use wire::txn::Timestamp;

impl Lead {
    /// Takes the locks that a transaction wants, wounding the younger ones that are in its way; false if it has to wait.
    pub(super) fn lock(&mut self, txn: &TxnId, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) -> bool {
        loop {
            let Some(active) = self.txns.get(txn) else { return false };
            let want = match (&active.wants, &active.asked) {
                (Some(Wanted::Read(what, writes)), _) => Want::Read(what, writes),
                (Some(Wanted::Write), Some(asked)) => Want::Write(&asked.writes),
                (Some(Wanted::Write) | None, _) => return true,
            };
            let conflicts = self.locks.conflicts(txn, want);
            if conflicts.is_empty() {
                self.locks.acquire(*txn, want);
                return true;
            }
            if !self.wound_younger(txn, &conflicts, frame, cx) {
                self.wait(txn, &conflicts, cx);
                return false;
            }
        }
    }

    fn wait(&mut self, txn: &TxnId, conflicts: &BTreeSet<TxnId>, cx: &mut Cx<'_, SpannerShard>) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        active.waits_since.get_or_insert(cx.now());
        if let Some(first) = conflicts.first() {
            self.waiters.entry(*first).or_default().insert(active.priority);
        }
    }

    /// True if somebody has given up locks.
    fn wound_younger(
        &mut self,
        txn: &TxnId,
        conflicts: &BTreeSet<TxnId>,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) -> bool {
        let Some(own) = self.txns.get(txn).map(|active| active.priority) else { return false };
        let mut wounded = false;
        for other in conflicts {
            let Some(active) = self.txns.get(other).filter(|active| active.priority > own) else { continue };
            match active.stage {
                Stage::Preparing if active.is_decided_by(frame.shard) => {
                    self.abort_undecided(other, frame, cx);
                }
                Stage::Collecting => self.have_participants_make_way(other, frame, cx),
                Stage::Open | Stage::Preparing => {
                    cx.mark("shard.wounded");
                    frame.counts.wounds += 1;
                    self.give_up(other, false, frame, cx);
                    wounded = true;
                }
                Stage::Prepared { .. } if planted!(prepared_is_wounded) => {
                    self.leave(other, frame, cx);
                    wounded = true;
                }
                Stage::Prepared { .. } => {
                    cx.mark("shard.asked_a_coordinator_to_make_way");
                    self.ask_to_make_way(other, frame, cx);
                }
                // It ends soon, and nothing that it waits for can wait for us.
                Stage::Logging { .. } | Stage::Ending { .. } | Stage::Passing { .. } => {}
            }
        }
        wounded
    }

    /// A prepared transaction is in the way of an older one: only its coordinator can still abort it.
    pub(super) fn ask_to_make_way(
        &mut self,
        txn: &TxnId,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(asked) = self.txns.get(txn).and_then(|active| active.asked.as_ref()) else { return };
        let coordinator = asked.coordinator;
        if let Some(role) = frame.directory.role(coordinator, cx.node().host()) {
            cx.send(role, MakeWay { txn: *txn, coordinator });
        }
    }

    /// An older transaction waits for one that is not decided. That one ends soon, unless it waits for locks itself: then both might wait
    /// for each other, and it is aborted.
    pub(super) fn on_make_way(
        &mut self,
        message: &MakeWay,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let txn = &message.txn;
        let Some(active) = self.txns.get(txn) else { return };
        match active.stage {
            Stage::Preparing if active.is_decided_by(frame.shard) => self.abort_undecided(txn, frame, cx),
            Stage::Collecting => self.have_participants_make_way(txn, frame, cx),
            Stage::Preparing if active.wants.is_some() => {
                cx.mark("shard.made_way_while_it_waited");
                frame.counts.wounds += 1;
                self.give_up(txn, false, frame, cx);
            }
            Stage::Open
            | Stage::Preparing
            | Stage::Logging { .. }
            | Stage::Prepared { .. }
            | Stage::Ending { .. }
            | Stage::Passing { .. } => {}
        }
    }

    /// Where a transaction waits for locks it is to give up, so that it can be aborted.
    fn have_participants_make_way(
        &mut self,
        txn: &TxnId,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        let Some(asked) = &active.asked else { return };
        active.made_way_at = Some(cx.now());
        let (coordinator, host) = (frame.shard, cx.node().host());
        for shard in asked.participants.iter().filter(|it| **it != coordinator) {
            if !active.votes.prepared.contains_key(shard)
                && let Some(role) = frame.directory.role(*shard, host)
            {
                cx.send(role, MakeWay { txn: *txn, coordinator });
            }
        }
    }

    /// Says so again: a participant may not have been asked to prepare before, and wait for locks now.
    pub(super) fn look_after_those_in_the_way(
        &mut self,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let (now, after) = (cx.now(), frame.parameters.resend_after);
        let is_in_the_way = |(txn, active): &(&TxnId, &Active)| {
            let is_due = active.made_way_at.is_none_or(|at| now.since(at) >= after);
            let oldest = self.waiters.get(txn).and_then(BTreeSet::first);
            active.stage == Stage::Collecting
                && is_due
                && oldest.is_some_and(|oldest| *oldest < active.priority)
        };
        let all: Vec<TxnId> = self.txns.iter().filter(is_in_the_way).map(|(&txn, _)| txn).collect();
        for txn in all {
            self.have_participants_make_way(&txn, frame, cx);
        }
    }

    /// A transaction that is not prepared loses its locks, and its gateway and its coordinator learn that.
    pub(super) fn give_up(
        &mut self,
        txn: &TxnId,
        busy: bool,
        frame: &mut Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        let Some(active) = self.txns.get(txn) else { return };
        kernel::invariant!(
            LOCK,
            matches!(active.stage, Stage::Open | Stage::Preparing),
            "{txn:?} gives up its locks in {:?}",
            active.stage
        );
        if let Some(asked) = &active.asked {
            self.refuse_to_prepare(txn, asked.coordinator, frame, cx);
        }
        cx.send(txn.gateway, LostLocks { txn: *txn, shard: frame.shard, busy });
        self.leave(txn, frame, cx);
    }

    pub(super) fn refuse_to_prepare(
        &self,
        txn: &TxnId,
        coordinator: crate::txn::ShardId,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, SpannerShard>,
    ) {
        if let Some(role) = frame.directory.role(coordinator, cx.node().host()) {
            cx.send(role, CannotPrepare { txn: *txn, coordinator });
        }
    }

    /// A transaction is over here: its locks go, and those that wait for it go on.
    pub(super) fn leave(&mut self, txn: &TxnId, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let Some(active) = self.txns.remove(txn) else { return };
        self.wanted -= active.wanted();
        self.bytes -= active.bytes();
        self.locks.release(txn);
        if let Some(waiting) = self.waiters.remove(txn) {
            self.woken.extend(waiting);
        }
        self.readers_go_on(txn, &active, frame, cx);
    }

    /// Gives those their turn whose wait may be over, the oldest first.
    pub(super) fn settle(&mut self, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        while let Some(priority) = self.woken.pop_first() {
            let txn = priority.txn;
            if self.txns.get(&txn).is_some_and(|active| active.wants.is_some()) && self.lock(&txn, frame, cx)
            {
                self.on_locked(&txn, frame, cx);
            }
        }
    }

    /// A transaction has the locks that it wanted.
    pub(super) fn on_locked(&mut self, txn: &TxnId, frame: &mut Frame<'_>, cx: &mut Cx<'_, SpannerShard>) {
        let Some(active) = self.txns.get_mut(txn) else { return };
        note_wait(active, cx);
        self.wanted -= active.wanted();
        match active.wants.take() {
            Some(Wanted::Read(what, _)) => self.read_locked(txn, what, frame),
            Some(Wanted::Write) | None => self.prepare_locked(txn, frame, cx),
        }
    }
}

/// What it waited for locks puts off its earliest end.
fn note_wait(active: &mut Active, cx: &mut Cx<'_, SpannerShard>) {
    let Some(since) = active.waits_since.take() else { return };
    if let Some(asked) = &mut active.asked {
        let waited = cx.now().since(since).as_micros() as u64;
        asked.t_ee = Timestamp(asked.t_ee.0.saturating_add(waited)).min(Timestamp::MAX);
        cx.mark("shard.put_off_an_earliest_end");
    }
}
