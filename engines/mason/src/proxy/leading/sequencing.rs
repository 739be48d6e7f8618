//! A leader and the sequencer: suspicion, sealing, and what a leader before had asked for (the paper's sections 4.1 and 4.3).

use super::{
    BEACONS_MISSED, Lead, Numbers, PATIENCE_GROWS_TO, Pending, Sequencing, Stage, now_in_ms, propose,
};
use crate::messages::sequencer::{self, Allocation};
use crate::proxy::entry::{Claim, Entry};
use crate::proxy::{
    Active, DidFill, DidReshard, DidSeal, Fill, Frame, FromSequencer, GetMaxAndSeal, NotActive,
    OtherShardMap, Pong, Probed, Proxy, Reshard,
};
use crate::topology::FIRST;
use crate::topology::ShardMap;
use kernel::{Cx, Instant, NodeId, REPEAT_WITHIN, planted};
use std::time::Duration;

impl Lead {
    pub(in crate::proxy) fn on_sequencer(
        &mut self,
        from: NodeId,
        message: FromSequencer,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, Proxy>,
    ) {
        match message {
            FromSequencer::Allocated(message) => self.on_allocated(message, frame, cx),
            FromSequencer::Probed(message) => self.on_probed(message, frame, cx),
            FromSequencer::Pong(message) => self.on_pong(&message, cx),
            FromSequencer::NotActive(message) => self.on_not_active(&message, frame, cx),
            FromSequencer::OtherShardMap(message) => self.on_other_shard_map(message, frame, cx),
            FromSequencer::GetMaxAndSeal(message) => self.on_seal(from, &message, frame, cx),
            FromSequencer::Fill(message) => self.on_fill(from, message, frame, cx),
            FromSequencer::Reshard(message) => self.on_reshard(from, message, frame, cx),
            FromSequencer::Active(message) => self.on_active(&message, frame, cx),
        }
    }

    pub(super) fn probe(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        self.sequencing.probing = true;
        self.sequencing.asked_at = cx.now();
        let Sequencing { epoch, committed, .. } = self.sequencing;
        if let Some(sequencer) = self.sequencing.node() {
            let (group, proxy_epoch) = (frame.group, self.epoch);
            cx.send(sequencer, sequencer::Probe { group, proxy_epoch, epoch, after: committed });
        }
    }

    /// What the leaders before asked for and did not put into the log is lost: those numbers get no-ops.
    fn on_probed(&mut self, message: Probed, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let Probed { epoch, highest, lost } = message;
        if epoch != self.sequencing.epoch || !self.sequencing.probing {
            return;
        }
        self.sequencing.probing = false;
        self.sequencing.is_well(cx.now());
        self.sequencing.next_request = highest.max(self.sequencing.committed) + 1;
        if !lost.is_empty() {
            cx.mark("proxy.filled_numbers_of_a_dead_leader");
        }
        for allocation in lost {
            if planted!(only_last_lost_request_filled) && allocation.request < highest {
                continue;
            }
            let Allocation { request, rows, gsn, cut } = allocation;
            let stage = Stage::Numbered(Numbers { request, rows, gsn, cut: Some(cut), time: now_in_ms(cx) });
            self.pending.push_back(Pending { items: Vec::new(), lost: true, stage, since: cx.now() });
        }
        self.advance(frame, cx);
    }

    fn on_pong(&mut self, message: &Pong, cx: &mut Cx<'_, Proxy>) {
        if message.epoch == self.sequencing.epoch {
            self.sequencing.answered = Some(message.epoch);
            self.sequencing.is_well(cx.now());
        }
    }

    fn on_not_active(&mut self, message: &NotActive, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if message.asked != self.sequencing.epoch || message.recovering {
            return;
        }
        // It has restarted, or was never more than a standby: no need to wait for its silence.
        if message.epoch < message.asked && self.sequencing.called <= message.asked {
            cx.mark("proxy.found_its_sequencer_restarted");
            self.call_next(frame, cx);
        }
    }

    pub(super) fn watch_the_sequencer(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let (now, parameters) = (cx.now(), frame.parameters);
        // A beacon says nothing of whether it hears what it is asked.
        let rests = self.is_at_rest();
        let seen_at = self.sequencing.seen_at(cx).filter(|_| rests);
        if seen_at.is_none() && std::mem::take(&mut self.sequencing.rested) {
            // What is asked now has all of the patience. A beacon that was stopped was seen until then.
            self.sequencing.heard_at = now;
        }
        self.sequencing.rested |= seen_at.is_some();
        if let Some(at) = seen_at.filter(|&at| at > self.sequencing.heard_at) {
            self.sequencing.is_well(at);
        }
        let silence = now.since(self.sequencing.heard_at);
        if silence >= self.sequencing.patience.max(parameters.suspect_after) {
            if !frame.confident {
                return;
            }
            cx.mark("proxy.suspected_the_sequencer");
            return self.call_next(frame, cx);
        }
        let epoch = self.sequencing.epoch;
        let bears = if seen_at.is_some() { BEACONS_MISSED * REPEAT_WITHIN } else { Duration::ZERO };
        if silence >= bears.max(parameters.tick)
            && let Some(sequencer) = self.sequencing.node()
        {
            cx.repeat([sequencer], sequencer::Ping { epoch });
        }
    }

    pub(super) fn call_next(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let sequencing = &mut self.sequencing;
        sequencing.called = sequencing.called.max(sequencing.epoch) + 1;
        // A recovery that takes longer than the patience would be overtaken by the next one, again and again.
        let longest = PATIENCE_GROWS_TO * frame.parameters.suspect_after;
        (sequencing.called_at, sequencing.patient_since) = (cx.now(), cx.now());
        sequencing.patience = (2 * sequencing.patience).clamp(frame.parameters.suspect_after, longest);
        sequencing.heard_at = cx.now();
        if let Some(standby) = frame.topology.standby(sequencing.called) {
            cx.send(standby, sequencer::Recover { epoch: sequencing.called });
        }
    }

    /// The sequencer in force may not know of groups that the log has in use by now.
    pub(in crate::proxy) fn call_for_layout(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let patience = self.sequencing.patience.max(frame.parameters.suspect_after);
        let called_lately = self.sequencing.called > self.sequencing.epoch
            && cx.now().since(self.sequencing.called_at) < patience;
        if frame.confident && !called_lately {
            cx.mark("proxy.called_a_sequencer_for_a_layout");
            self.call_next(frame, cx);
        }
    }

    fn on_seal(&mut self, from: NodeId, message: &GetMaxAndSeal, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let now = cx.now();
        let claim = Claim { sequencer: from, attempt: message.attempt.unwrap_or(0) };
        let fresh = |(epoch, known, at): &(u64, Claim, Instant)| {
            *epoch == message.epoch && *known == claim && now.since(*at) < frame.parameters.resend_after
        };
        if !self.begun || self.sequencing.sealing.as_ref().is_some_and(fresh) {
            return;
        }
        if message.epoch < self.sequencing.epoch {
            return self.refuse_overtaken(from, message.attempt, cx);
        }
        if message.epoch == self.sequencing.epoch
            && self.sequencing.claim.as_ref().is_some_and(|known| *known != claim)
        {
            // The log has given the epoch to another, or to an earlier incarnation of this one, whose numbers may be in flight.
            cx.mark("proxy.refused_a_second_claim");
            return self.refuse_overtaken(from, message.attempt, cx);
        }
        // A recovery is in flight: give it time before the next one is called.
        // Once: one that seals and seals and hears nobody must not keep the next one from being called.
        if message.epoch > self.sequencing.called {
            self.sequencing.called = message.epoch;
            self.sequencing.heard_at = now;
        }
        self.sequencing.sealing = Some((message.epoch, claim.clone(), now));
        if planted!(proposals_voided_before_seal_logged) {
            for pending in &self.pending {
                super::early::have_no_ops_executed(pending, frame, cx);
            }
        }
        if planted!(seal_answered_early) {
            let (group, epoch) = (frame.group, message.epoch);
            let (view, attempt) = (self.collecting.view.clone(), message.attempt);
            let sealed = sequencer::GroupSealed {
                group,
                epoch,
                view,
                gsn: self.own_gsn,
                attempt,
                layout: None,
                handed: None,
            };
            cx.send(from, sealed);
        }
        propose(&Entry::Seal { epoch: message.epoch, claim: Some(claim) }, frame, cx);
    }

    /// Who is not notified asks for ever: no seal, no filling and no resharding of its epoch comes into the log any more.
    fn refuse_overtaken(&self, sequencer: NodeId, attempt: Option<u64>, cx: &mut Cx<'_, Proxy>) {
        cx.send(sequencer, sequencer::Overtaken { epoch: self.sequencing.epoch, attempt });
    }

    /// From here on in the log, only answers of the new sequencer count: everything not applied asks again.
    pub(in crate::proxy) fn on_did_seal(
        &mut self,
        message: DidSeal,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, Proxy>,
    ) {
        let DidSeal { epoch, index, sequencer, view, gsn, claim, layout, handed } = message;
        if !self.begun || epoch != self.epoch {
            return;
        }
        if let Some((sealed, standby, _)) = &self.sequencing.sealing
            && *sealed == sequencer
            && claim.as_ref() == Some(standby)
        {
            let (group, view, attempt) = (frame.group, view.clone(), Some(standby.attempt));
            cx.send(
                standby.sequencer,
                sequencer::GroupSealed { group, epoch: sequencer, view, gsn, attempt, layout, handed },
            );
        }
        self.collecting.view = view;
        self.sequencing.claim = claim;
        if sequencer == self.sequencing.epoch {
            return;
        }
        cx.mark("proxy.sealed");
        self.index = index;
        let sequencing = &mut self.sequencing;
        (sequencing.epoch, sequencing.next_request, sequencing.committed) = (sequencer, 1, 0);
        sequencing.probing = false;
        sequencing.heard_at = cx.now();
        sequencing.called = sequencing.called.max(sequencer);
        self.pending.retain(|pending| !pending.lost);
        for pending in &mut self.pending {
            pending.stage = Stage::New;
        }
        self.choose_spaces(frame.topology.layout.shard_map.clone(), frame);
        self.advance(frame, cx);
    }

    /// What has no numbers yet gets them by this shard map.
    fn choose_spaces(&mut self, shard_map: ShardMap, frame: &Frame<'_>) {
        if shard_map == self.shard_map {
            return;
        }
        self.shard_map = shard_map;
        let unnumbered = self.pending.iter_mut().filter(|pending| matches!(pending.stage, Stage::New));
        let items = self.queue.iter_mut().chain(unnumbered.flat_map(|pending| &mut pending.items));
        // Those without spaces are for the group alone, or are turned away.
        for item in items.filter(|item| !item.spaces.is_empty()) {
            item.spaces = (frame.spaces_of)(&item.operation.body, &self.shard_map).into();
        }
    }

    /// None of this epoch's requests by the other shard map was served.
    fn on_other_shard_map(&mut self, message: OtherShardMap, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if message.epoch != self.sequencing.epoch || message.shard_map == self.shard_map {
            return;
        }
        cx.mark("proxy.chose_spaces_anew");
        for pending in &mut self.pending {
            if let Stage::Asked { request } = pending.stage {
                self.sequencing.next_request = self.sequencing.next_request.min(request);
                pending.stage = Stage::New;
            }
        }
        self.choose_spaces(message.shard_map, frame);
        self.advance(frame, cx);
    }

    fn on_reshard(&mut self, from: NodeId, message: Reshard, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let Reshard { epoch, shard_map, order } = message;
        if self.begun && epoch < self.sequencing.epoch {
            return self.refuse_overtaken(from, None, cx);
        }
        if !self.begun || epoch != self.sequencing.epoch || frame.group != FIRST {
            return;
        }
        self.sequencing.handing = Some((epoch, from));
        propose(&Entry::Reshard { epoch, shard_map, order }, frame, cx);
    }

    pub(in crate::proxy) fn on_did_reshard(&mut self, message: &DidReshard, cx: &mut Cx<'_, Proxy>) {
        if let Some((epoch, sequencer)) = self.sequencing.handing
            && epoch == message.sequencer
        {
            cx.send(sequencer, sequencer::HandedOver { epoch });
        }
    }

    fn on_active(&mut self, message: &Active, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if message.epoch != self.sequencing.epoch {
            return;
        }
        self.sequencing.is_well(cx.now());
        self.ask_again(Duration::ZERO, frame, cx);
    }

    fn on_fill(&mut self, from: NodeId, message: Fill, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let Fill { epoch, holes } = message;
        if self.begun && epoch < self.sequencing.epoch {
            return self.refuse_overtaken(from, None, cx);
        }
        if !self.begun || epoch != self.sequencing.epoch {
            return;
        }
        self.sequencing.filling = Some((epoch, from));
        propose(&Entry::Fill { epoch, holes }, frame, cx);
    }

    pub(in crate::proxy) fn on_did_fill(
        &mut self,
        message: &DidFill,
        frame: &Frame<'_>,
        cx: &mut Cx<'_, Proxy>,
    ) {
        if let Some((epoch, sequencer)) = self.sequencing.filling
            && epoch == message.sequencer
        {
            cx.mark("proxy.filled_holes");
            cx.send(sequencer, sequencer::Filled { group: frame.group, epoch });
        }
    }
}
