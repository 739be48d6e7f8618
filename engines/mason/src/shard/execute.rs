//! Execution in the order of the numbers, reads when what they must see is executed, and asking for what is missing.

use super::{
    CUTS_MAX, Deliver, Entry, READS_MAX, ReadShard, ShardServer, WAITING_FULL_MAX, WAITING_MAX, Waiting,
};
use crate::messages::client::{Answers, GatewayNotice, OperationAnswer, Progress, ReadAnswer, ReadAnswers};
use crate::order::{Gsn, Number, Operation, Order, Space};
use crate::proxy::delivery::{Delivered, Run, Work};
use crate::service::Shard;
use kernel::{Bytes, Cx, NodeId, PageBudget};
use std::time::Duration;

/// How long a server hears of nothing new before it asks whether there is.
const ASK_IDLE_AFTER: Duration = Duration::from_millis(500);
/// So many times as long when the last question brought nothing.
const ASK_AGAIN_TIMES: u32 = 8;
/// That doubles with each question that brings nothing, at most so often.
const ASK_AGAIN_DOUBLED_MAX: u32 = 2;
/// A server that catches up asks for the next page of operations when it has executed one, and not for each of several groups' pages.
const ASK_PAGES_AFTER: Duration = Duration::from_millis(2);
/// What is retained of the memory that answers are written to.
const SCRATCH_RETAINED_BYTES: usize = 1 << 20;

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
            for placed in self.missing_inputs() {
                cx.multicast(self.server_here(placed.space, cx), self.wanted(&placed));
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
            let Ok((number, delivered)) = row else { return cx.reject("a run with a malformed row") };
            if number < self.next {
                continue;
            }
            self.reach = self.reach.max(number);
            let alone = match &delivered.work {
                Work::NoOp => true,
                Work::Operation(_) => delivered.order.numbers.len() == 1,
                Work::Reshard(_) => false,
            };
            if number == self.next && alone && !self.is_installing_half() && !self.is_full() {
                self.waiting.remove(&number);
                self.execute_next(group, delivered, cx);
            } else if self.waiting.len() < if self.is_full() { WAITING_FULL_MAX } else { WAITING_MAX } {
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
            if self.is_full() {
                cx.mark("shard.waited_for_its_disk");
                break;
            }
            let ready = match &entry.delivered.work {
                Work::NoOp => true,
                Work::Operation(_) => entry.delivered.order.numbers.len() == 1 || self.has_inputs(cx),
                Work::Reshard(shard_map) => {
                    let shard_map = shard_map.clone();
                    self.may_reshard(&shard_map, cx)
                }
            };
            if !ready {
                break;
            }
            let Some(Entry { group, delivered }) = self.waiting.remove(&self.next) else { break };
            self.execute_next(group, delivered, cx);
        }
    }

    fn execute_next(&mut self, group: crate::Group, delivered: Delivered, cx: &mut Cx<'_, Self>) {
        let (number, next) = (delivered.order.number_in(self.space), self.next);
        let is_no_op = matches!(delivered.work, Work::NoOp);
        kernel::invariant!(CONTIG, is_no_op || number == Some(next), "executes {number:?} as {next}");
        match delivered.work {
            Work::Operation(operation) => self.execute_operation(group, &operation, &delivered.order, cx),
            Work::NoOp => self.due.count_executed(16),
            Work::Reshard(shard_map) => self.reshard(shard_map, &delivered.order, cx),
        }
        self.executed = self.executed.max(delivered.order.gsn);
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
        let next = if kernel::planted!(progress_one_number_early) { self.next.next() } else { self.next };
        let covered =
            self.cuts.iter().filter(|cut| cut.next_in(self.space).is_none_or(|number| number <= next));
        if let Some(gsn) = covered.map(|cut| cut.gsn).max() {
            self.covered = self.covered.max(gsn);
            let (space, covered) = (self.space, self.covered);
            self.cuts
                .retain(|cut| cut.gsn > covered && cut.next_in(space).is_some_and(|number| number > next));
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
            .filter_map(|placed| Some((placed.space, self.inputs.take(number, placed.space)?.pop()?)))
            .collect();
        self.due.count_executed(operation.body.len() + 32);
        self.service.execute(&operation.body, order, &others, &mut self.out);
        for (reader, body) in self.out.notices.drain(..) {
            cx.send(reader, GatewayNotice { space: self.space, gsn: order.gsn, body });
        }
        let heard = order.numbers.first().is_some_and(|placed| placed.space == self.space);
        if heard && operation.origin != NodeId::ZERO && self.answers_to(operation.origin, number, cx.node()) {
            let body = Bytes::copy_from_slice(&self.out.answer);
            let Operation { incarnation, tag, .. } = *operation;
            let answer = OperationAnswer { incarnation, tag, gsn: order.gsn, body };
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
}

/// Answers, progress, reads.
impl<S: Shard> ShardServer<S> {
    pub(super) fn send_answers(&mut self, cx: &mut Cx<'_, Self>) {
        for ((origin, group), mut answers) in std::mem::take(&mut self.answers) {
            // In messages of a page each: answers may be as large as what they answer.
            while !answers.is_empty() {
                let mut page = PageBudget::new(self.parameters.page_bytes);
                let fits =
                    answers.iter().take_while(|it| page.admits(it.body.len() + READ_HEAD_BYTES)).count();
                let rest = answers.split_off(fits);
                cx.send(origin, Answers { group, answers: std::mem::replace(&mut answers, rest) });
            }
        }
    }

    /// The last global sequence number of which it is known that everything up to it is executed here.
    pub(super) fn progress(&self) -> Gsn {
        Gsn(self.covered.0.saturating_sub(1)).max(self.executed)
    }

    pub(super) fn report_progress(&mut self, cx: &mut Cx<'_, Self>) {
        let through = self.progress();
        if through > self.reported {
            self.reported = through;
            for &observer in &self.observers {
                cx.send(observer, Progress { space: self.space, through });
            }
        }
    }

    pub(super) fn on_read(&mut self, from: NodeId, message: ReadShard, cx: &mut Cx<'_, Self>) {
        if self.reads.len() + self.reads_waiting_for_blobs() >= READS_MAX {
            return cx.reject("more reads waiting than a shard keeps");
        }
        let ReadShard { at_least, reads, shard_map, limits } = message;
        let limits = limits.unwrap_or_default();
        self.reads.push_back(Waiting {
            reader: from,
            at_least,
            through: self.reach,
            reads,
            shard_map,
            limits,
        });
    }

    pub(super) fn answer_reads(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_installing_half() || self.resharding.is_in_flight() {
            return;
        }
        let shard_map = self.shard_map().version;
        let (next, progress) = (self.next, self.progress());
        for _ in 0..self.reads.len() {
            let Some(waiting) = self.reads.pop_front() else { return };
            let comes = waiting.shard_map.is_some_and(|asked| asked > shard_map);
            if waiting.through >= next || waiting.at_least > progress || comes {
                self.reads.push_back(waiting);
                continue;
            }
            if waiting.shard_map.is_some_and(|asked| asked < shard_map)
                && !kernel::planted!(resharding_not_announced)
            {
                self.refuse_reads(waiting.reader, waiting.reads, cx);
                continue;
            }
            self.answer(waiting, cx);
        }
    }

    /// An answer that is larger than its reader has room for is not copied, and not made where its size is known: the reader asks again
    /// when it has.
    fn answer(&mut self, waiting: Waiting, cx: &mut Cx<'_, Self>) {
        let Waiting { reader, reads, limits, .. } = waiting;
        let (mut answers, mut withheld) = (Vec::with_capacity(reads.len()), Vec::new());
        let mut page = PageBudget::new(self.parameters.page_bytes);
        let limits = limits.into_iter().chain(std::iter::repeat(u64::MAX));
        for (query, limit) in reads.into_iter().zip(limits) {
            self.scratch.clear();
            let known = if limit < u64::MAX { self.service.answer_bytes(&query.body) } else { None };
            if let Some(bytes) = known.filter(|&bytes| bytes as u64 > limit) {
                withheld.push((query.tag, bytes as u64));
                continue;
            }
            match self.service.read(reader, &query.body, &mut self.scratch) {
                None if self.scratch.len() as u64 > limit => {
                    withheld.push((query.tag, self.scratch.len() as u64));
                }
                None => {
                    let body = Bytes::copy_from_slice(&self.scratch);
                    if !page.admits(body.len() + READ_HEAD_BYTES) {
                        self.send_read_answers(reader, std::mem::take(&mut answers), Vec::new(), cx);
                        page = PageBudget::new(self.parameters.page_bytes);
                        page.admits(body.len() + READ_HEAD_BYTES);
                    }
                    answers.push(ReadAnswer { tag: query.tag, body });
                }
                Some(range) => self.wait_for(range, reader, query),
            }
        }
        self.scratch.clear();
        self.scratch.shrink_to(SCRATCH_RETAINED_BYTES);
        if !withheld.is_empty() {
            cx.mark("shard.withheld_an_answer");
        }
        self.send_read_answers(reader, answers, withheld, cx);
    }

    fn send_read_answers(
        &self,
        reader: NodeId,
        answers: Vec<ReadAnswer>,
        withheld: Vec<(u64, u64)>,
        cx: &mut Cx<'_, Self>,
    ) {
        if !answers.is_empty() || !withheld.is_empty() {
            let (space, executed) = (self.space, self.executed);
            let withheld = (!withheld.is_empty()).then_some(withheld);
            cx.send(reader, ReadAnswers { space, executed, answers, refused: None, withheld });
        }
    }
}

/// What an answer to a read adds to its body.
const READ_HEAD_BYTES: usize = 32;

/// What does not come by itself.
impl<S: Shard> ShardServer<S> {
    pub(super) fn look_for_what_is_missing(&mut self, cx: &mut Cx<'_, Self>) {
        let wanted = self.reach >= self.next
            || self.cuts.iter().any(|cut| cut.next_in(self.space).is_some_and(|number| number > self.next))
            || self.reads.iter().any(|waiting| {
                let comes = waiting.shard_map.is_some_and(|asked| asked > self.shard_map().version);
                waiting.at_least > self.progress() || comes
            });
        if !wanted {
            self.stuck_since = None;
            // A gateway that was away while its proxies went on does not know that there is anything to lack.
            let again = self.asked_again.min(ASK_AGAIN_DOUBLED_MAX);
            let times = if self.asked_from == self.next { ASK_AGAIN_TIMES << again } else { 1 };
            if cx.now().since(self.asked_at) >= times * ASK_IDLE_AFTER {
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
            cx.multicast(self.topology.servers(placed.space).iter().copied(), self.wanted(&placed));
        }
        let due = self.waiting.get(&self.next).map(|entry| &entry.delivered.work);
        if let Some(Work::Reshard(shard_map)) = due {
            let shard_map = shard_map.clone();
            self.ask_what_is_watched(&shard_map, cx);
        }
    }
}
