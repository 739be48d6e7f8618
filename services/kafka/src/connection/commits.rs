//! OffsetCommit and OffsetFetch: how far a group has come is stored by the log, as durably as what it reads.

use super::membership::Coordinator;
use super::{Fault, Job, JobCx, NO_THROTTLE, ResponseBody, Wanted, put_by_topic};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::permits::{Of, Permitted, Verb};
use crate::request::{self, Membership, Part};
use crate::wire::PutKafka as _;
use shared_log::{Answer, GroupState, NOTE_BYTES_MAX, Named, Progress, Rejected, Why, is_name};
use std::sync::Arc;

/// The offset of a group that has committed none.
const NO_OFFSET: i64 = -1;

/// What an answer to a group's call says.
fn code_of(answer: &Answer) -> Code {
    match answer {
        Answer::Done | Answer::Group(_) => Code::NONE,
        Answer::Rejected(Rejected::Fenced(_)) => Code::ILLEGAL_GENERATION,
        Answer::Refused(refused) if refused.why == Why::Malformed => Code::INVALID_GROUP_ID,
        Answer::Refused(refused) if refused.why == Why::NotGranted => Code::GROUP_AUTHORIZATION_FAILED,
        Answer::Refused(refused) if refused.why == Why::Full => Code::POLICY_VIOLATION,
        Answer::Refused(_)
        | Answer::Rejected(_)
        | Answer::Appended(_)
        | Answer::Entries(_)
        | Answer::Logs(_)
        | Answer::Identity(_)
        | Answer::Description(_) => Code::COORDINATOR_NOT_AVAILABLE,
    }
}

/// OffsetCommit.
pub(super) struct Commit {
    membership: Membership,
    /// Each with what is wrong with it, by any member.
    parts: Vec<(Part<request::Committed>, Option<Code>)>,
    coordinator: Coordinator,
    /// What came of those that can be stored.
    code: Option<Code>,
}

impl Commit {
    pub(super) fn new(
        membership: Membership,
        parts: Vec<Part<request::Committed>>,
        coordinator: Coordinator,
        permitted: &Permitted,
    ) -> Self {
        let parts = parts.into_iter().map(|part| {
            let fault = match permitted.may(Verb::Read, Of::Topic(&part.topic)) {
                true => fault_of(&part),
                false => Some(Code::TOPIC_AUTHORIZATION_FAILED),
            };
            (part, fault)
        });
        Self { membership, parts: parts.collect(), coordinator, code: None }
    }
}

/// What is wrong with a part, by any member.
fn fault_of(part: &Part<request::Committed>) -> Option<Code> {
    if part.partition != 0 || !is_name(&part.topic) {
        return Some(Code::UNKNOWN_TOPIC_OR_PARTITION);
    }
    if part.asked.note.as_ref().is_some_and(|note| note.len() > NOTE_BYTES_MAX) {
        return Some(Code::OFFSET_METADATA_TOO_LARGE);
    }
    (part.asked.offset < 0).then_some(Code::OFFSET_OUT_OF_RANGE)
}

impl Job for Commit {
    fn slots(&self) -> usize {
        1
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        let Membership { group, generation, member } = &self.membership;
        let heard = self.coordinator.groups().and_then(|mut groups| {
            // Who assigns topics by itself is in no generation.
            if *generation < 0 && member.is_empty() {
                return Ok(());
            }
            match groups.hear(group, member, *generation, cx.now) {
                // What was read before the members join anew is to be stored.
                Err(Code::REBALANCE_IN_PROGRESS) => Ok(()),
                heard => heard,
            }
        });
        if let Err(code) = heard {
            self.code = Some(code);
            return;
        }
        let sound = self.parts.iter().filter(|(_, fault)| fault.is_none());
        let progress = sound.map(|(Part { topic, asked, .. }, _)| Progress {
            log: topic.to_string(),
            position: asked.offset as u64,
            note: asked.note.clone().unwrap_or_default(),
        });
        let commit = shared_log::Commit {
            group: group.to_string(),
            generation: u32::try_from(*generation).ok(),
            progress: progress.collect(),
        };
        cx.calls.push((slot, shared_log::Request::Commit(commit)));
    }

    fn on_answer(&mut self, _slot: usize, answer: Answer, _cx: &mut JobCx) {
        self.code = Some(code_of(&answer));
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        if version >= 3 {
            out.put_i32(NO_THROTTLE);
        }
        let retained = self.code.unwrap_or(Code::COORDINATOR_NOT_AVAILABLE);
        let put = |out: &mut ResponseBody, (part, fault): &(Part<request::Committed>, Option<Code>)| {
            out.put_i32(part.partition);
            out.put_code(fault.unwrap_or(retained));
        };
        put_by_topic(&self.parts, |(part, _)| &part.topic, put, out);
        Ok(Wanted::Yes)
    }
}

/// OffsetFetch.
pub(super) struct Committed {
    group: Arc<str>,
    /// None for all that there are.
    parts: Option<Vec<Part<()>>>,
    state: Option<Result<GroupState, Code>>,
}

impl Committed {
    pub(super) fn new(group: Arc<str>, parts: Option<Vec<Part<()>>>, permitted: &Permitted) -> Self {
        let is_granted = permitted.may(Verb::Read, Of::Group(&group));
        let state = (!is_granted).then_some(Err(Code::GROUP_AUTHORIZATION_FAILED));
        Self { group, parts, state }
    }
}

impl Job for Committed {
    fn slots(&self) -> usize {
        1
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        if self.state.is_none() {
            cx.calls.push((slot, shared_log::Request::GroupOf(Named { name: self.group.to_string() })));
        }
    }

    fn on_answer(&mut self, _slot: usize, answer: Answer, _cx: &mut JobCx) {
        self.state = Some(match answer {
            Answer::Group(state) => Ok(state),
            other => Err(code_of(&other)),
        });
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        let (code, progress) = match &self.state {
            Some(Ok(state)) => (Code::NONE, state.progress.as_slice()),
            Some(Err(code)) => (*code, [].as_slice()),
            None => (Code::COORDINATOR_NOT_AVAILABLE, [].as_slice()),
        };
        let all = || {
            let part = |it: &Progress| Part { topic: it.log.as_str().into(), partition: 0, asked: () };
            progress.iter().map(part).collect()
        };
        let parts = self.parts.clone().unwrap_or_else(all);
        if version >= 3 {
            out.put_i32(NO_THROTTLE);
        }
        let put = |out: &mut ResponseBody, part: &Part<()>| {
            let found = progress.iter().find(|it| *it.log == *part.topic && part.partition == 0);
            out.put_i32(part.partition);
            out.put_i64(found.map_or(NO_OFFSET, |it| it.position as i64));
            if version >= 5 {
                out.put_i32(-1);
            }
            out.put_text(Some(found.map_or("", |it| &it.note)));
            out.put_code(code);
        };
        put_by_topic(&parts, |part| &part.topic, put, out);
        if version >= 2 {
            out.put_code(code);
        }
        Ok(Wanted::Yes)
    }
}
