//! FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup: see [`crate::groups`].

use super::{ANSWER_WITHIN, Fault, Job, JobCx, NO_THROTTLE, ResponseBody, Wanted};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::groups::{Groups, Join, Joined, Next};
use crate::permits::{Of, Permitted, Verb};
use crate::request::Membership;
use crate::wire::PutKafka as _;
use kernel::{Bytes, Instant};
use shared_log::{Answer, Named};
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The groups of a host that coordinates the one asked for, or what is said by one that does not.
pub(super) struct Coordinator(pub(super) Result<Rc<RefCell<Groups>>, Code>);

impl Coordinator {
    pub(super) fn groups(&self) -> Result<RefMut<'_, Groups>, Code> {
        self.0.as_ref().map(|groups| groups.borrow_mut()).map_err(|code| *code)
    }
}

/// Kinds of coordinators: of groups; others are of transactions.
const OF_GROUPS: i8 = 0;

/// FindCoordinator.
pub(super) struct Find {
    group: Arc<str>,
    kind: i8,
    is_granted: bool,
}

impl Find {
    pub(super) fn new(group: Arc<str>, kind: i8, permitted: &Permitted) -> Self {
        let is_granted = permitted.may(Verb::Read, Of::Group(&group));
        Self { group, kind, is_granted }
    }
}

impl Job for Find {
    fn slots(&self) -> usize {
        0
    }

    fn ask(&mut self, _slot: usize, _cx: &mut JobCx) {}

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn write(&self, version: i16, brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        let found = match self.kind {
            _ if !self.is_granted => Err(Code::GROUP_AUTHORIZATION_FAILED),
            OF_GROUPS => brokers.coordinator_of(&self.group).ok_or(Code::COORDINATOR_NOT_AVAILABLE),
            _ => Err(Code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        };
        if version >= 1 {
            out.put_i32(NO_THROTTLE);
        }
        out.put_code(found.map_or_else(|code| code, |_| Code::NONE));
        if version >= 1 {
            let why = (self.kind != OF_GROUPS).then_some("there are no transactions of Kafka's here");
            out.put_text(why);
        }
        out.put_i32(found.map_or(-1, |broker| broker.node));
        out.put_text(Some(found.map_or("", |broker| &broker.address)));
        out.put_i32(found.map_or(-1, |broker| broker.port.into()));
        Ok(Wanted::Yes)
    }
}

/// JoinGroup: answered when the next generation has begun.
pub(super) struct JoinGroup {
    join: Option<Join>,
    group: Arc<str>,
    member: String,
    patience: Duration,
    coordinator: Coordinator,
    outcome: Option<Result<Joined, Code>>,
}

impl JoinGroup {
    pub(super) fn new(join: Join, coordinator: Coordinator) -> Self {
        let (group, member) = (join.group.clone(), join.member.clone());
        let patience = Duration::from_millis(join.rebalance_ms.max(0) as u64) + ANSWER_WITHIN;
        Self { join: Some(join), group, member, patience, coordinator, outcome: None }
    }
}

impl Job for JoinGroup {
    fn slots(&self) -> usize {
        1
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn ask(&mut self, _slot: usize, cx: &mut JobCx) {
        let Some(join) = self.join.take() else { return };
        match self.coordinator.groups().and_then(|mut groups| groups.join(join, cx.now)) {
            Ok(member) => self.member = member,
            Err(code) => self.outcome = Some(Err(code)),
        }
    }

    fn poll(&mut self, cx: &mut JobCx) {
        if self.outcome.is_some() {
            return;
        }
        let Ok(mut groups) = self.coordinator.groups() else { return };
        let outcome = match groups.next(&self.group, &self.member, cx.now) {
            Next::Wait => None,
            Next::Begin => {
                let begin = Named { name: self.group.to_string() };
                cx.calls.push((0, shared_log::Request::BeginGeneration(begin)));
                None
            }
            Next::Ready => Some(groups.joined(&self.group, &self.member)),
        };
        drop(groups);
        self.outcome = outcome;
    }

    fn on_answer(&mut self, _slot: usize, answer: Answer, cx: &mut JobCx) {
        // Without an answer it is begun again by the member that looks next.
        if let (Answer::Group(state), Ok(mut groups)) = (answer, self.coordinator.groups()) {
            groups.begun(&self.group, state.generation as i32, cx.now);
        }
    }

    fn is_done(&self, _asked: bool, _now: Instant) -> bool {
        self.outcome.is_some()
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        out.put_i32(NO_THROTTLE);
        let none =
            Joined { generation: -1, protocol: String::new(), leader: String::new(), members: Vec::new() };
        let (code, joined) = match &self.outcome {
            Some(Ok(joined)) => (Code::NONE, joined),
            Some(Err(code)) => (*code, &none),
            None => (Code::COORDINATOR_NOT_AVAILABLE, &none),
        };
        out.put_code(code);
        out.put_i32(joined.generation);
        out.put_text(Some(&joined.protocol));
        out.put_text(Some(&joined.leader));
        out.put_text(Some(&self.member));
        out.put_array(joined.members.iter(), |out, (member, said)| {
            out.put_text(Some(member));
            if version >= 5 {
                out.put_text(None);
            }
            out.put_bytes(said);
        });
        Ok(Wanted::Yes)
    }
}

/// SyncGroup: answered when the leader has said who reads what.
pub(super) struct SyncGroup {
    membership: Membership,
    assignments: Vec<(String, Bytes)>,
    coordinator: Coordinator,
    outcome: Option<Result<Bytes, Code>>,
}

impl SyncGroup {
    pub(super) fn new(
        membership: Membership,
        assignments: Vec<(String, Bytes)>,
        coordinator: Coordinator,
    ) -> Self {
        // They are held for as long as the group is: a request's memory is not.
        let retained = |(member, bytes): (String, Bytes)| (member, Bytes::copy_from_slice(&bytes));
        let assignments = assignments.into_iter().map(retained).collect();
        Self { membership, assignments, coordinator, outcome: None }
    }
}

impl Job for SyncGroup {
    fn slots(&self) -> usize {
        1
    }

    fn patience(&self) -> Duration {
        // A leader that is silent is let go of before.
        Duration::from_secs(600)
    }

    fn ask(&mut self, _slot: usize, cx: &mut JobCx) {
        let Membership { group, generation, member } = &self.membership;
        let assignments = std::mem::take(&mut self.assignments);
        let reported = self.coordinator.groups().and_then(|mut groups| {
            groups.hear(group, member, *generation, cx.now)?;
            groups.assign(group, member, assignments);
            Ok(())
        });
        self.outcome = reported.err().map(Err);
    }

    fn poll(&mut self, cx: &mut JobCx) {
        let Membership { group, generation, member } = &self.membership;
        if self.outcome.is_none()
            && let Ok(mut groups) = self.coordinator.groups()
        {
            // A member that waits here is alive.
            let outcome = match groups.hear(group, member, *generation, cx.now) {
                Ok(()) => groups.assignment(group, member).map(Ok),
                Err(code) => Some(Err(code)),
            };
            drop(groups);
            self.outcome = outcome;
        }
    }

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn is_done(&self, _asked: bool, _now: Instant) -> bool {
        self.outcome.is_some()
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        let (code, assignment) = match &self.outcome {
            Some(Ok(assignment)) => (Code::NONE, assignment.as_ref()),
            Some(Err(code)) => (*code, [].as_slice()),
            None => (Code::REBALANCE_IN_PROGRESS, [].as_slice()),
        };
        if version >= 1 {
            out.put_i32(NO_THROTTLE);
        }
        out.put_code(code);
        out.put_bytes(assignment);
        Ok(Wanted::Yes)
    }
}

/// Heartbeat.
pub(super) struct Heartbeat {
    membership: Membership,
    coordinator: Coordinator,
    code: Code,
}

impl Heartbeat {
    pub(super) fn new(membership: Membership, coordinator: Coordinator) -> Self {
        Self { membership, coordinator, code: Code::NONE }
    }
}

impl Job for Heartbeat {
    fn slots(&self) -> usize {
        1
    }

    fn ask(&mut self, _slot: usize, cx: &mut JobCx) {
        let Membership { group, generation, member } = &self.membership;
        let heard =
            self.coordinator.groups().and_then(|mut groups| groups.hear(group, member, *generation, cx.now));
        self.code = heard.err().unwrap_or(Code::NONE);
    }

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        if version >= 1 {
            out.put_i32(NO_THROTTLE);
        }
        out.put_code(self.code);
        Ok(Wanted::Yes)
    }
}

/// LeaveGroup.
pub(super) struct LeaveGroup {
    group: Arc<str>,
    members: Vec<(String, Code)>,
    coordinator: Coordinator,
}

impl LeaveGroup {
    pub(super) fn new(group: Arc<str>, members: Vec<String>, coordinator: Coordinator) -> Self {
        let members = members.into_iter().map(|member| (member, Code::NONE)).collect();
        Self { group, members, coordinator }
    }
}

impl Job for LeaveGroup {
    fn slots(&self) -> usize {
        self.members.len()
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        let (member, code) = &mut self.members[slot];
        let left = self.coordinator.groups().and_then(|mut groups| groups.leave(&self.group, member, cx.now));
        *code = left.err().unwrap_or(Code::NONE);
    }

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        if version >= 1 {
            out.put_i32(NO_THROTTLE);
        }
        let elsewhere = self.coordinator.0.as_ref().err().copied().unwrap_or(Code::NONE);
        if version < 3 {
            out.put_code(self.members.first().map_or(elsewhere, |(_, code)| *code));
            return Ok(Wanted::Yes);
        }
        out.put_code(elsewhere);
        out.put_array(self.members.iter(), |out, (member, code)| {
            out.put_text(Some(member));
            out.put_text(None);
            out.put_code(*code);
        });
        Ok(Wanted::Yes)
    }
}
