//! Execution in the order of the numbers, reads when what they must see is executed, and asking for what is missing.

use super::{
    Behind, CUTS_MAX, Deliver, Entry, Inputs, READS_MAX, Read, Sent, Settled, ShardServer, WAITING_FULL_MAX,
    WAITING_MAX, Waiting, WantInputs,
};
use crate::client::{Answer, Answers, Notice, Progress, ReadAnswer, ReadAnswers};
use crate::order::{Number, Operation, Order, Placed, Space, Stamp};
use crate::proxy::delivery::{Delivered, Run};
use crate::service::Shard;
use kernel::{Bytes, Cx, NodeId};
use std::time::Duration;

/// How long a server hears of nothing new before it asks whether there is.
const ASK_IDLE_AFTER: Duration = Duration::from_millis(500);
/// A server that catches up asks for the next page of operations when it has executed one, and not for each of several groups' pages.
const ASK_PAGES_AFTER: Duration = Duration::from_millis(2);
/// Inputs are sent again in pages of about so many bytes: whoever starts from an old snapshot lacks those of many operations.
const INPUTS_PAGE_BYTES: usize = 256 << 10;

impl<S: Shard> ShardServer<S> {
    pub(super) fn on_deliver(&mut self, message: Deliver, cx: &mut Cx<'_, Self>) {
        let Deliver { group, runs, cut, more } = message;
        let before = self.next;
        for run in runs {
            if run.space != self.space {
                cx.reject("operations of another space");
                continue;
            }
            self.take_run(group, &run, cx);
        }
        if let Some(cut) = cut {
            if self.cuts.len() >= CUTS_MAX {
                self.cuts.pop_front();
            }
            self.cuts.push_back(cut);
        }
        self.execute_waiting(cx);
        self.has_executed(before, cx);
        if more && self.next > before && cx.now().since(self.page_asked_at) >= ASK_PAGES_AFTER {
            self.page_asked_at = cx.now();
            let here = cx.node().host();
            for placed in self.missing_inputs() {
                let server = self.topology.servers_on(here).find(|(space, _)| *space == placed.space);
                let want = WantInputs { number: placed.number, wanted_at: self.next };
                cx.multicast(server.map(|(_, server)| server), want);
            }
            if !self.waiting.contains_key(&self.next) {
                self.ask_proxies(cx);
            }
        }
    }

    /// What is due is executed at once, what comes later waits.
    fn take_run(&mut self, group: crate::Group, run: &Run, cx: &mut Cx<'_, Self>) {
        if run.end() <= self.next {
            return;
        }
        for row in run.iter() {
            let Ok((number, delivered)) = row else { return cx.reject("a run with a row that is none") };
            if number < self.next {
                continue;
            }
            self.reach = self.reach.max(number);
            let alone = delivered.order.numbers.len() == 1 || delivered.operation.is_none();
            if number == self.next && alone && !self.is_installing_half() && !self.service.is_full() {
                self.waiting.remove(&number);
                self.execute_next(group, delivered, cx);
            } else if self.waiting.len() < if self.service.is_full() { WAITING_FULL_MAX } else { WAITING_MAX }
            {
                self.waiting.entry(number).or_insert(Entry { group, delivered });
            }
        }
    }

    /// Executes as far as the numbers, and the other participants' inputs, reach.
    pub(super) fn execute(&mut self, cx: &mut Cx<'_, Self>) {
        let before = self.next;
        self.execute_waiting(cx);
        self.has_executed(before, cx);
    }

    fn execute_waiting(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_installing_half() {
            return;
        }
        while let Some(entry) = self.waiting.get(&self.next) {
            if self.service.is_full() {
                cx.mark("shard.waited_for_its_disk");
                break;
            }
            let numbers = &entry.delivered.order.numbers;
            if numbers.len() > 1 && entry.delivered.operation.is_some() && !self.has_inputs(cx) {
                break;
            }
            let Some(Entry { group, delivered }) = self.waiting.remove(&self.next) else { break };
            self.execute_next(group, delivered, cx);
        }
    }

    fn execute_next(&mut self, group: crate::Group, delivered: Delivered, cx: &mut Cx<'_, Self>) {
        match delivered.operation {
            Some(operation) => self.execute_operation(group, &operation, &delivered.order, cx),
            None => self.snapshots.count_executed(16),
        }
        self.executed = self.executed.max(delivered.order.stamp);
        self.next = self.next.next();
    }

    fn has_executed(&mut self, before: Number, cx: &mut Cx<'_, Self>) {
        if self.is_installing_half() {
            return;
        }
        if self.next > before {
            self.stuck_since = None;
            self.asked_at = cx.now();
        }
        let next = self.next;
        let covered =
            self.cuts.iter().filter(|cut| cut.next_in(self.space).is_none_or(|number| number <= next));
        if let Some(stamp) = covered.map(|cut| cut.stamp).max() {
            self.covered = self.covered.max(stamp);
            let (space, covered) = (self.space, self.covered);
            self.cuts
                .retain(|cut| cut.stamp > covered && cut.next_in(space).is_some_and(|number| number > next));
        }
    }

    fn execute_operation(
        &mut self,
        group: crate::Group,
        operation: &Operation,
        order: &Order,
        cx: &mut Cx<'_, Self>,
    ) {
        let number = self.next;
        let others: Vec<(Space, Bytes)> = order
            .numbers
            .iter()
            .filter(|placed| placed.space != self.space)
            .filter_map(|placed| Some((placed.space, self.inputs.remove(&(number, placed.space))?)))
            .collect();
        self.snapshots.count_executed(operation.body.len() + 32);
        self.service.execute(&operation.body, order, &others, &mut self.out);
        for (reader, body) in self.out.notices.drain(..) {
            cx.send(reader, Notice { space: self.space, stamp: order.stamp, body });
        }
        let heard = order.numbers.first().is_some_and(|placed| placed.space == self.space);
        if heard && operation.origin != NodeId::ZERO && self.answers_to(operation.origin, number, cx.node()) {
            let body = Bytes::copy_from_slice(&self.out.answer);
            let Operation { incarnation, tag, .. } = *operation;
            let answer = Answer { incarnation, tag, stamp: order.stamp, body };
            self.answers.entry((operation.origin, group)).or_default().push(answer);
        }
        self.out.answer.clear();
    }

    /// One server answers: the one on the origin's host, else number modulo servers.
    fn answers_to(&self, origin: NodeId, number: Number, me: NodeId) -> bool {
        let servers = self.topology.servers(self.space);
        if origin.host() == me.host() || servers.iter().any(|server| server.host() == origin.host()) {
            return origin.host() == me.host();
        }
        servers[(number.0 % servers.len() as u64) as usize] == me
    }

    /// True if the next operation's inputs are all here; sends this shard's own the first time.
    fn has_inputs(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let number = self.next;
        let Some(entry) = self.waiting.get(&number) else { return false };
        let order = entry.delivered.order.clone();
        if !self.sent.contains_key(&number)
            && let Some(operation) = &entry.delivered.operation
        {
            self.scratch.clear();
            self.service.inputs(&operation.body, &order, &mut self.scratch);
            let inputs = Bytes::copy_from_slice(&self.scratch);
            let others: Vec<Placed> =
                order.numbers.iter().filter(|placed| placed.space != self.space).cloned().collect();
            self.sent.insert(number, Sent { others: others.clone(), inputs: inputs.clone() });
            for other in others {
                let message =
                    Inputs { number: other.number, space: self.space, inputs: inputs.clone(), more: false };
                let here = cx.node().host();
                if let Some((_, server)) = self.topology.servers_on(here).find(|(at, _)| *at == other.space) {
                    cx.send(server, message);
                }
            }
        }
        let mut others = order.numbers.iter().filter(|placed| placed.space != self.space);
        others.all(|placed| self.inputs.contains_key(&(number, placed.space)))
    }

    pub(super) fn on_inputs(&mut self, from: NodeId, message: Inputs, cx: &mut Cx<'_, Self>) {
        let Inputs { number, space, inputs, more } = message;
        if number < self.next {
            return;
        }
        self.inputs.insert((number, space), inputs);
        if number == self.next {
            self.execute(cx);
        }
        // Another participant's page may not be here yet; then the clock asks.
        if more && let Some(placed) = self.missing_inputs().into_iter().find(|placed| placed.space == space) {
            cx.send(from, WantInputs { number: placed.number, wanted_at: self.next });
        }
    }

    /// What the next operation lacks, if it is here: its numbers in the spaces whose inputs are not.
    fn missing_inputs(&self) -> Vec<Placed> {
        let Some(entry) = self.waiting.get(&self.next) else { return Vec::new() };
        let is_missing = |placed: &&Placed| {
            placed.space != self.space && !self.inputs.contains_key(&(self.next, placed.space))
        };
        entry.delivered.order.numbers.iter().filter(is_missing).cloned().collect()
    }

    pub(super) fn on_want_inputs(&mut self, from: NodeId, message: &WantInputs, cx: &mut Cx<'_, Self>) {
        if !self.sent.contains_key(&message.number) {
            if message.number < self.next {
                // Enough servers of the asker's shard have it in durable snapshots, or it would be kept.
                cx.mark("shard.had_forgotten_inputs");
                cx.send(from, Behind { durable: message.wanted_at.next() });
            }
            return;
        }
        let asks = |placed: &&Placed| self.topology.serves(placed.space, from);
        let later = self.sent.range(message.number..).filter_map(|(_, sent)| {
            let other = sent.others.iter().find(asks)?;
            Some((other.number, sent.inputs.clone()))
        });
        let (mut later, mut bytes) = (later.peekable(), 0);
        while let Some((number, inputs)) = later.next() {
            cx.mark("shard.sent_inputs_again");
            bytes += inputs.len() + size_of::<Inputs>();
            let (full, more) = (bytes >= INPUTS_PAGE_BYTES, later.peek().is_some());
            cx.send(from, Inputs { number, space: self.space, inputs, more: full && more });
            if full {
                return;
            }
        }
    }

    /// Inputs are kept until enough servers of every other participant need them no more. That is the logs' word, and not the
    /// servers': a floor that no log has, nobody waits for before the hosts that reach it are let go.
    pub(super) fn on_settled(&mut self, message: &Settled) {
        let Placed { space, number } = message.below;
        let known = self.settled.entry(space).or_insert(number);
        *known = number.max(*known);
        let settled =
            |placed: &Placed| self.settled.get(&placed.space).is_some_and(|&number| placed.number < number);
        self.sent.retain(|_, sent| !sent.others.iter().all(settled));
    }
}

/// Answers, progress, reads.
impl<S: Shard> ShardServer<S> {
    pub(super) fn send_answers(&mut self, cx: &mut Cx<'_, Self>) {
        for ((origin, group), answers) in std::mem::take(&mut self.answers) {
            cx.send(origin, Answers { group, answers });
        }
    }

    /// The last stamp of which it is known that everything up to it is executed here.
    pub(super) fn progress(&self) -> Stamp {
        Stamp(self.covered.0.saturating_sub(1)).max(self.executed)
    }

    pub(super) fn tell_progress(&mut self, cx: &mut Cx<'_, Self>) {
        let through = self.progress();
        if through > self.told {
            self.told = through;
            for &observer in &self.observers {
                cx.send(observer, Progress { space: self.space, through });
            }
        }
    }

    pub(super) fn on_read(&mut self, from: NodeId, message: Read, cx: &mut Cx<'_, Self>) {
        if self.reads.len() + self.reads_waiting_for_blobs() >= READS_MAX {
            return cx.reject("more reads waiting than a shard keeps");
        }
        let Read { at_least, reads } = message;
        self.reads.push_back(Waiting { reader: from, at_least, through: self.reach, reads });
    }

    pub(super) fn answer_reads(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_installing_half() {
            return;
        }
        let (next, progress) = (self.next, self.progress());
        for _ in 0..self.reads.len() {
            let Some(waiting) = self.reads.pop_front() else { return };
            if waiting.through >= next || waiting.at_least > progress {
                self.reads.push_back(waiting);
                continue;
            }
            let mut answers = Vec::with_capacity(waiting.reads.len());
            for query in waiting.reads {
                self.scratch.clear();
                match self.service.read(waiting.reader, &query.body, &mut self.scratch) {
                    None => {
                        let body = Bytes::copy_from_slice(&self.scratch);
                        answers.push(ReadAnswer { tag: query.tag, body });
                    }
                    Some(range) => self.wait_for(range, waiting.reader, query),
                }
            }
            if !answers.is_empty() {
                let (space, executed) = (self.space, self.executed);
                cx.send(waiting.reader, ReadAnswers { space, executed, answers });
            }
        }
    }
}

/// What does not come by itself.
impl<S: Shard> ShardServer<S> {
    pub(super) fn look_for_what_is_missing(&mut self, cx: &mut Cx<'_, Self>) {
        let wanted = self.reach >= self.next
            || self.cuts.iter().any(|cut| cut.next_in(self.space).is_some_and(|number| number > self.next))
            || self.reads.iter().any(|waiting| waiting.at_least > self.progress());
        if !wanted {
            self.stuck_since = None;
            // Whoever was away while its proxies went on does not know that there is anything to lack.
            if cx.now().since(self.asked_at) >= ASK_IDLE_AFTER {
                self.ask_proxies(cx);
            }
            return;
        }
        let since = *self.stuck_since.get_or_insert(cx.now());
        if cx.now().since(since) < self.parameters.ask_after {
            return;
        }
        self.stuck_since = Some(cx.now());
        if !self.waiting.contains_key(&self.next) {
            cx.mark("shard.asked_for_a_missing_number");
            return self.ask_proxies(cx);
        }
        for placed in self.missing_inputs() {
            cx.mark("shard.asked_for_inputs");
            let want = WantInputs { number: placed.number, wanted_at: self.next };
            cx.multicast(self.topology.servers(placed.space).iter().copied(), want);
        }
    }
}
