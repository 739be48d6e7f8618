//! Execution: chosen values in slot order, reads when their slot is reached.

use super::{Chosen, Entry, READ_BYTES_PER_BURST_MAX, ReadBatch, Replica, Voted, WaitingRead};
use crate::multipaxos::messages::client::{Row, Status};
use crate::multipaxos::messages::{client, leader, unbatcher};
use crate::value::{
    Batch, BatchId, CommandGroup, GroupKind, REPEATED_BYTES_MAX, RETAINED_ANSWERS_BYTES_MAX, Value,
};
use kernel::{Bytes, Cx, Decode, NodeId, PageBudget, StateMachine, planted};
use parts::{Admission, Sequence, SessionId, Slot};

/// 2^64 by the golden ratio: the upper half of the product is spread whatever the stride of the slots.
const SPREADS: u64 = 0x9e37_79b9_7f4a_7c15;

impl<S: StateMachine> Replica<S> {
    pub(super) fn on_chosen(&mut self, message: Chosen, cx: &mut Cx<'_, Self>) {
        let Chosen { ballot, slot, value } = message;
        let Some(entry) = self.entry(slot) else { return };
        if entry.value.is_some() {
            return;
        }
        // A vote in this ballot or a later one is for the chosen value: that is what Paxos promises.
        let voted = entry
            .vote
            .take_if(|(voted_in, _)| *voted_in >= ballot || planted!(vote_of_other_ballot_taken_as_chosen))
            .map(|(_, value)| value);
        entry.own = voted.is_some();
        match voted.or(value) {
            Some(value) => entry.value = Some(value),
            None => entry.chosen_in = Some(entry.chosen_in.map_or(ballot, |known| known.min(ballot))),
        }
        self.execute(cx);
    }

    pub(super) fn on_voted(&mut self, message: Voted, cx: &mut Cx<'_, Self>) {
        let Voted { ballot, slot, value } = message;
        let Some(entry) = self.entry(slot) else { return };
        if entry.value.is_some() {
            return;
        }
        if entry.chosen_in.is_some_and(|chosen_in| ballot >= chosen_in) {
            (entry.value, entry.own) = (Some(value), true);
            self.execute(cx);
        } else {
            entry.vote = Some((ballot, value));
        }
    }

    fn entry(&mut self, slot: Slot) -> Option<&mut Entry> {
        if !self.log.admits(slot) {
            return None;
        }
        if self.log.get(slot).is_none() {
            self.log.insert(slot, Entry::default()).ok()?;
        }
        self.log.get_mut(slot)
    }

    /// Executes as far as the chosen values reach.
    pub(super) fn execute(&mut self, cx: &mut Cx<'_, Self>) {
        if self.joining {
            return;
        }
        let before = self.state.executed;
        if planted!(executes_past_holes) {
            self.skip_hole();
        }
        while let Some(entry) = self.log.get_mut(self.state.executed)
            && let Some(value) = entry.value.take()
        {
            let (slot, own) = (self.state.executed, entry.own);
            let start = self.log.start();
            kernel::invariant!(PREFIX, slot == start, "executes {slot}, and waits for {start}");
            self.state.digest.add_value(slot, &value);
            self.apply(slot, &value, cx);
            self.send_notices(cx);
            self.hand_to_acceptor(slot, own, &value, cx);
            self.retain(slot, value);
            self.state.executed = slot.next();
            self.checkpoints.passed(self.state.executed, self.state.digest);
            self.log.advance(self.state.executed);
        }
        if self.state.executed > before {
            self.answer_waiting_reads(cx);
        }
    }

    fn skip_hole(&mut self) {
        let first = self.log.iter().find(|(_, entry)| entry.value.is_some()).map(|(slot, _)| slot);
        if let Some(slot) = first {
            self.state.executed = slot;
            self.log.advance(slot);
        }
    }

    fn apply(&mut self, slot: Slot, value: &Value, cx: &mut Cx<'_, Self>) {
        match value {
            Value::Noop => {}
            Value::Batch(batch) => self.apply_batch(slot, batch.bytes(), cx),
            Value::Entry(entry) => {
                self.due.count_executed(entry.bytes().len());
                self.machine.apply_entry(entry.bytes());
            }
            Value::Configure(wanted) => {
                let latest = self.state.configurations.latest();
                let settled = latest.first_slot <= slot;
                if wanted.version != latest.version + 1 || !settled || !wanted.is_complete() {
                    return cx.mark("replica.skipped_an_outdated_configuration");
                }
                let mut next = (**wanted).clone();
                let early = u64::from(planted!(new_configuration_one_slot_early));
                next.first_slot = slot.plus(self.parameters.window - early);
                self.state.configurations.push(next);
                self.state.configurations.forget_before(slot);
                cx.mark("replica.executed_a_configuration");
            }
        }
    }

    pub(super) fn send_notices(&mut self, cx: &mut Cx<'_, Self>) {
        self.machine.take_notices(&mut self.notices);
        for (node, bytes) in self.notices.drain(..) {
            cx.send(node, client::Notice { bytes });
        }
    }

    /// One replica answers: the one where the clients' connections end, else one by a hash of the slot. The slot modulo
    /// replicas would do where nobody fails: a batch that is proposed again and again in step with another one may meet
    /// the same dead replica for ever.
    fn is_responsible(&self, slot: Slot, origin: NodeId, me: NodeId) -> bool {
        if origin.host() == me.host() {
            return true;
        }
        let configuration = self.state.configurations.governing(slot);
        let replicas = &configuration.replicas;
        !configuration.has_replica_on(origin.host())
            && replicas.get((slot.0.wrapping_mul(SPREADS) >> 32) as usize % replicas.len()) == Some(&me)
    }

    fn apply_batch(&mut self, slot: Slot, encoded: &Bytes, cx: &mut Cx<'_, Self>) {
        let Ok(batch) = Batch::decoded(encoded) else {
            return cx.reject("chosen batch that does not decode");
        };
        self.due.count_executed(encoded.len());
        let answers = self.is_responsible(slot, batch.unbatcher, cx.node());
        let mut replies = Replies::new(batch.unbatcher, slot.next(), self.parameters.page_bytes);
        let keeps_much = self.state.sessions.answer_bytes() > RETAINED_ANSWERS_BYTES_MAX;
        self.machine.repeat_at_most(match batch.rules {
            None => usize::MAX,
            Some(_) if keeps_much => 0,
            Some(_) => REPEATED_BYTES_MAX,
        });
        let commands = batch.groups.iter().flat_map(|group| group.commands.iter());
        self.machine.anticipate(commands.map(|command| command.bytes));
        for group in &batch.groups {
            let opened = self.apply_group(slot, group, &mut replies, answers, cx);
            if answers {
                replies.end_group(group.client, group.session, opened);
            }
        }
        if answers {
            replies.send(Some(batch.id), cx);
        }
    }

    /// Returns the slot in which the session was opened, if that is what the group asks.
    fn apply_group(
        &mut self,
        slot: Slot,
        group: &CommandGroup,
        replies: &mut Replies,
        answers: bool,
        cx: &mut Cx<'_, Self>,
    ) -> Option<Slot> {
        match group.kind {
            GroupKind::Open => return Some(self.state.sessions.open(group.session, slot)),
            GroupKind::Close => self.state.sessions.close(group.session),
            GroupKind::ExecuteIn(opened)
                if !planted!(late_opening_resets_session)
                    && self.state.sessions.opened(group.session) != Some(opened) =>
            {
                if answers {
                    cx.mark("replica.refused_a_lost_session");
                }
                for command in group.commands.iter().filter(|_| answers) {
                    replies.row.push(command.sequence, Status::SessionLost, &[]);
                }
                return None;
            }
            GroupKind::Execute | GroupKind::ExecuteIn(_) => {
                let early = u64::from(planted!(answer_forgotten_early));
                self.state.sessions.touch(group.session, parts::Sequence(group.acknowledged.0 + early));
            }
        }
        for command in group.commands.iter() {
            let (status, answer): (Status, &[u8]) =
                match self.state.sessions.admit(group.session, command.sequence) {
                    Admission::Execute => {
                        self.scratch.clear();
                        self.machine.apply(command.bytes, &mut self.scratch);
                        self.state.sessions.record(group.session, command.sequence, &self.scratch);
                        self.state.digest.add_answer(&self.scratch);
                        (Status::Done, &self.scratch)
                    }
                    Admission::Again(answer) => (Status::Done, answer),
                    Admission::Acknowledged => continue,
                    Admission::Unknown => (Status::SessionLost, &[]),
                    Admission::TooMany => {
                        cx.mark("replica.refused_too_many_of_a_session");
                        (Status::Busy, &[])
                    }
                };
            if answers {
                replies.push((group.client, group.session), (command.sequence, status, answer), cx);
            }
        }
        None
    }

    pub(super) fn on_read(&mut self, message: ReadBatch, cx: &mut Cx<'_, Self>) {
        let ReadBatch { through, unbatcher, reads } = message;
        if (self.state.executed >= through && !self.joining) || planted!(executes_past_holes) {
            return self.answer(unbatcher, &reads, cx);
        }
        let bytes: usize = reads.iter().map(|read| read.queries.size() + 64).sum();
        if self.waiting_read_bytes + bytes > self.parameters.waiting_read_bytes_max {
            // The client asks again; nothing was promised.
            return cx.reject("more reads waiting than a replica keeps");
        }
        cx.mark("replica.read_waited_for_its_slot");
        self.waiting_read_bytes += bytes;
        self.waiting_reads.push_back(WaitingRead { through, unbatcher, reads });
        if self.log.end() < through {
            // Nothing is in flight in that slot: an idle log must be filled for the read's sake.
            self.want(through, cx);
        }
    }

    pub(super) fn want(&self, through: Slot, cx: &mut Cx<'_, Self>) {
        if let Some(ballot) = self.leader {
            cx.send(ballot.leader, leader::Wanted { through });
        }
    }

    pub(super) fn answer_waiting_reads(&mut self, cx: &mut Cx<'_, Self>) {
        for _ in 0..self.waiting_reads.len() {
            let Some(waiting) = self.waiting_reads.pop_front() else { return };
            if waiting.through > self.state.executed {
                self.waiting_reads.push_back(waiting);
                continue;
            }
            if !planted!(answered_read_stays_counted) {
                self.waiting_read_bytes -=
                    waiting.reads.iter().map(|read| read.queries.size() + 64).sum::<usize>();
            }
            self.answer(waiting.unbatcher, &waiting.reads, cx);
        }
    }

    fn answer(&mut self, unbatcher: NodeId, reads: &[super::ReadGroup], cx: &mut Cx<'_, Self>) {
        let mut replies = Replies::new(unbatcher, self.state.executed, self.parameters.page_bytes);
        for read in reads {
            let reader = (read.client, read.session);
            for query in read.queries.iter() {
                if self.read_bytes > READ_BYTES_PER_BURST_MAX {
                    replies.push(reader, (query.sequence, Status::Busy, &[]), cx);
                    continue;
                }
                self.scratch.clear();
                self.machine.query(query.bytes, &mut self.scratch);
                self.read_bytes += self.scratch.len();
                replies.push(reader, (query.sequence, Status::Done, &self.scratch), cx);
            }
            replies.end_group(read.client, read.session, None);
        }
        replies.send(None, cx);
    }
}

/// Answers on their way to an unbatcher, in messages of a page each, or of one answer: it may be on another host, and a few bytes of
/// commands may be answered by a megabyte each.
struct Replies {
    unbatcher: NodeId,
    executed: Slot,
    page_bytes: usize,
    page: PageBudget,
    replies: Vec<unbatcher::GroupResults>,
    /// Those of the group at hand.
    row: Row,
}

impl Replies {
    fn new(unbatcher: NodeId, executed: Slot, page_bytes: usize) -> Self {
        let page = PageBudget::new(page_bytes);
        Self { unbatcher, executed, page_bytes, page, replies: Vec::new(), row: Row::default() }
    }

    fn push<S: StateMachine>(
        &mut self,
        (client, session): (NodeId, SessionId),
        (sequence, status, answer): (Sequence, Status, &[u8]),
        cx: &mut Cx<'_, Replica<S>>,
    ) {
        if !self.page.admits(answer.len() + ANSWER_HEAD_BYTES) {
            self.end_group(client, session, None);
            self.flush(None, cx);
            self.page = PageBudget::new(self.page_bytes);
            self.page.admits(answer.len() + ANSWER_HEAD_BYTES);
        }
        self.row.push(sequence, status, answer);
    }

    fn end_group(&mut self, client: NodeId, session: SessionId, opened: Option<Slot>) {
        // A client may have every answer; a row without any would look like the answer to an opening.
        if opened.is_some() || !self.row.is_empty() {
            let results = std::mem::take(&mut self.row);
            self.replies.push(unbatcher::GroupResults { client, session, results, opened });
        }
    }

    fn flush<S: StateMachine>(&mut self, batch: Option<BatchId>, cx: &mut Cx<'_, Replica<S>>) {
        let (executed, replies) = (self.executed, std::mem::take(&mut self.replies));
        cx.send(self.unbatcher, unbatcher::BatchResults { batch, executed, replies });
    }

    /// The last message says that the batch is through.
    fn send<S: StateMachine>(mut self, batch: Option<BatchId>, cx: &mut Cx<'_, Replica<S>>) {
        if batch.is_some() || !self.replies.is_empty() {
            self.flush(batch, cx);
        }
    }
}

/// What a reply adds to an answer, at most.
const ANSWER_HEAD_BYTES: usize = 64;
