//! How calls of local applications begin.

use super::moving::Changing;
use super::reads::Reading;
use super::requests::{
    AppendCall, CutCall, FuzzyRefusal, FuzzyRequest, FuzzyResponse, OpenCall, RestoreCall, SnapshotCall,
    TrimCall,
};
use super::several::{self, SeveralTask};
use super::{FuzzyClient, Task};
use crate::partition::command::{Append, Restore, Trim};
use crate::terms::{AppendId, AppendTime, Content, ContentFlaw};
use kernel::{Cx, RequestId, Wall, planted};

/// Numbers of a client that a partition may have to remember at a time.
const NUMBERS_MAX: u64 = 1_024;

impl FuzzyClient {
    pub(super) fn on_call(&mut self, id: RequestId, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        if let Some(refusal) = self.refusal(&request, cx.wall()) {
            return cx.respond(id, FuzzyResponse::Refused(refusal));
        }
        match request {
            FuzzyRequest::Append(call) => self.append(id, call, cx),
            FuzzyRequest::Snapshot(call) if planted!(snapshot_asks_one_by_one) => {
                self.snapshot_one_by_one(id, &call, cx);
            }
            FuzzyRequest::Snapshot(call) => {
                let SnapshotCall { client, number, below, seen, colours } = call;
                let content = Content::new(colours, Vec::new());
                self.append(id, AppendCall { client, number, below, seen, content }, cx);
            }
            FuzzyRequest::Sync(call) => {
                let partition = self.map.partition_of(call.colour);
                self.begin(Some(id), Task::Reading(Box::new(Reading::sync(partition, call, cx.wall()))), cx);
            }
            FuzzyRequest::Play(call) => {
                let partition = self.map.partition_of(call.colour);
                let reading = Reading::play(partition, call, self.next_call);
                self.begin(Some(id), Task::Reading(Box::new(reading)), cx);
            }
            FuzzyRequest::CountLogs(call) => {
                let partition = self.map.partition_of(call.colour);
                let reading = Reading::count_logs(partition, call, self.next_call);
                self.begin(Some(id), Task::Reading(Box::new(reading)), cx);
            }
            FuzzyRequest::FindLogs(call) => {
                let partition = self.map.partition_of(call.colour);
                let reading = Reading::find_logs(partition, call, self.next_call);
                self.begin(Some(id), Task::Reading(Box::new(reading)), cx);
            }
            FuzzyRequest::Cut(CutCall { client, number, below }) => {
                let content = Content::new(self.map.one_of_each(), Vec::new());
                self.of_all.insert(id);
                self.append(id, AppendCall { client, number, below, seen: AppendTime::ZERO, content }, cx);
            }
            FuzzyRequest::Open(OpenCall { client, number, below, restore }) => {
                let content = Content::opening(self.map.one_of_each(), restore);
                self.of_all.insert(id);
                self.append(id, AppendCall { client, number, below, seen: AppendTime::ZERO, content }, cx);
            }
            FuzzyRequest::Scan(call) => {
                let reading = Reading::scan(call, self.next_call);
                self.begin(Some(id), Task::Reading(Box::new(reading)), cx);
            }
            FuzzyRequest::Restore(RestoreCall { restore, colour, at, begins, nodes }) => {
                let partition = self.map.partition_of(colour);
                let command = Restore { restore, colour, at, begins, nodes }.into();
                self.begin(Some(id), Task::One { partition, command }, cx);
            }
            FuzzyRequest::Follow(_) => cx.reject("question for a director"),
            FuzzyRequest::Change(change) => {
                let changing = Changing::new(change, cx.now() + self.parameters.change_for);
                self.begin(Some(id), Task::Changing(Box::new(changing)), cx);
            }
            FuzzyRequest::Trim(TrimCall { colour, before }) => {
                let partition = self.map.partition_of(colour);
                let command = Trim { colour, before }.into();
                self.begin(Some(id), Task::One { partition, command }, cx);
            }
        }
    }

    fn refusal(&self, request: &FuzzyRequest, wall: Wall) -> Option<FuzzyRefusal> {
        if self.outstanding() >= self.parameters.calls_max {
            return Some(FuzzyRefusal::Busy);
        }
        if let Some(refusal) = self.refusal_by_the_clock(request, wall) {
            return Some(refusal);
        }
        let flaw = |content: &Content| {
            let (colours, bytes) = (self.parameters.colours_max, self.parameters.append_bytes_max);
            content.flaw(colours, bytes).map(FuzzyRefusal::Content)
        };
        let out_of_range = |number: u64, below: u64| {
            (number < below || number - below >= NUMBERS_MAX).then_some(FuzzyRefusal::NumberOutOfRange)
        };
        match request {
            // Nothing is what a snapshot stores.
            FuzzyRequest::Append(call) if call.content.bodies.is_empty() => {
                Some(FuzzyRefusal::Content(ContentFlaw::BodiesDoNotMatch))
            }
            FuzzyRequest::Append(call) => {
                let has_room = self.bytes + call.content.bytes() <= self.parameters.calls_bytes_max;
                let busy = || (!has_room).then_some(FuzzyRefusal::Busy);
                flaw(&call.content).or_else(|| out_of_range(call.number, call.below)).or_else(busy)
            }
            FuzzyRequest::Snapshot(call) => {
                let content = Content::new(call.colours.clone(), Vec::new());
                flaw(&content).or_else(|| out_of_range(call.number, call.below))
            }
            FuzzyRequest::Cut(call) => out_of_range(call.number, call.below),
            FuzzyRequest::Open(call) => out_of_range(call.number, call.below),
            FuzzyRequest::Scan(call) if usize::from(call.partition.0) >= self.projections.len() => {
                Some(FuzzyRefusal::Content(ContentFlaw::NoColours))
            }
            FuzzyRequest::Restore(call) => {
                let bytes: usize = call.nodes.iter().map(|node| node.body.len()).sum();
                (self.bytes + bytes > self.parameters.calls_bytes_max).then_some(FuzzyRefusal::Busy)
            }
            FuzzyRequest::Play(call) if call.from > call.to => {
                Some(FuzzyRefusal::BeyondTail { tail: call.to })
            }
            FuzzyRequest::Sync(_)
            | FuzzyRequest::Play(_)
            | FuzzyRequest::Trim(_)
            | FuzzyRequest::CountLogs(_)
            | FuzzyRequest::FindLogs(_)
            | FuzzyRequest::Scan(_)
            | FuzzyRequest::Change(_)
            | FuzzyRequest::Follow(_) => None,
        }
    }

    fn append(&mut self, request: RequestId, call: AppendCall, cx: &mut Cx<'_, Self>) {
        let AppendCall { client, number, below, seen, content } = call;
        let id = AppendId { client, number, content: content.digest() };
        let task = self.appending(Append { id, below, seen, content }, cx);
        self.begin(Some(request), task, cx);
    }

    /// An append, as where its colours are has it.
    pub(super) fn appending(&self, mut append: Append, cx: &mut Cx<'_, Self>) -> Task {
        if append.content.is_snapshot() {
            // What is to be of all partitions is refused by who knows of more.
            self.plan(&mut append.content);
        }
        match self.map.partitions_of(&append.content.colours)[..] {
            [partition] => Task::One { partition, command: append.into() },
            _ => {
                let identity = several::identity(cx);
                let Append { id, below, seen, mut content } = append;
                let partitions = self.plan(&mut content);
                Task::Several(Box::new(SeveralTask::new(id, below, seen, content, partitions, identity)))
            }
        }
    }
}
