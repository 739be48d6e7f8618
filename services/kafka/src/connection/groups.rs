//! ListGroups and DescribeGroups: what tools ask of the groups that this host coordinates.

use super::membership::Coordinator;
use super::{Fault, Job, JobCx, NO_THROTTLE, ResponseBody, Wanted};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::groups::{Described, Groups};
use crate::permits::{Of, Permitted};
use crate::wire::PutKafka as _;
use kernel::Instant;
use shared_log::{Answer, Named};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// ListGroups: those that have members at this host. Others are asked for by their names.
pub(super) struct ListGroups {
    groups: Rc<RefCell<Groups>>,
    found: Vec<(Arc<str>, String)>,
    permitted: Permitted,
}

impl ListGroups {
    pub(super) fn new(groups: Rc<RefCell<Groups>>, permitted: Permitted) -> Self {
        Self { groups, found: Vec::new(), permitted }
    }
}

impl Job for ListGroups {
    fn slots(&self) -> usize {
        1
    }

    fn ask(&mut self, _slot: usize, cx: &mut JobCx) {
        self.found = self.groups.borrow_mut().list(cx.now);
        self.found.retain(|(group, _)| self.permitted.sees(Of::Group(group)));
    }

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        if version >= 1 {
            out.put_i32(NO_THROTTLE);
        }
        out.put_code(Code::NONE);
        out.put_array(self.found.iter(), |out, (group, kind)| {
            out.put_text(Some(group));
            out.put_text(Some(kind));
        });
        Ok(Wanted::Yes)
    }
}

/// DescribeGroups.
pub(super) struct DescribeGroups {
    asked: Vec<(Arc<str>, Coordinator)>,
    found: Vec<Result<Described, Code>>,
}

impl DescribeGroups {
    pub(super) fn new(asked: Vec<(Arc<str>, Coordinator)>) -> Self {
        let found = asked.iter().map(|_| Err(Code::COORDINATOR_NOT_AVAILABLE)).collect();
        Self { asked, found }
    }
}

/// No list of what the client may do is stored.
const UNKNOWN_OPERATIONS: i32 = i32::MIN;

impl Job for DescribeGroups {
    fn slots(&self) -> usize {
        self.asked.len()
    }

    fn ask(&mut self, slot: usize, cx: &mut JobCx) {
        let (name, coordinator) = &self.asked[slot];
        match coordinator.groups().map(|mut groups| groups.describe(name, cx.now)) {
            Ok(Some(described)) => self.found[slot] = Ok(described),
            // It may have committed, and have no members now.
            Ok(None) if shared_log::is_group(name) => {
                cx.calls.push((slot, shared_log::Request::GroupOf(Named { name: name.to_string() })));
            }
            Ok(None) => self.found[slot] = Err(Code::INVALID_GROUP_ID),
            Err(code) => self.found[slot] = Err(code),
        }
    }

    fn on_answer(&mut self, slot: usize, answer: Answer, _cx: &mut JobCx) {
        if let Answer::Group(state) = answer {
            let is_known = state.generation > 0 || !state.progress.is_empty();
            self.found[slot] = Ok(Described::without_members(if is_known { "Empty" } else { "Dead" }));
        }
    }

    fn is_done(&self, asked: bool, _now: Instant) -> bool {
        asked
    }

    fn write(&self, version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        if version >= 1 {
            out.put_i32(NO_THROTTLE);
        }
        let none = Described::without_members("");
        out.put_array(self.asked.iter().zip(&self.found), |out, ((name, _), found)| {
            let (code, described) = match found {
                Ok(described) => (Code::NONE, described),
                Err(code) => (*code, &none),
            };
            out.put_code(code);
            out.put_text(Some(name));
            out.put_text(Some(described.state));
            out.put_text(Some(&described.kind));
            out.put_text(Some(&described.protocol));
            out.put_array(described.members.iter(), |out, (member, said, assignment)| {
                out.put_text(Some(member));
                if version >= 4 {
                    out.put_text(None);
                }
                // Neither the client's name nor its address is stored.
                out.put_text(Some(""));
                out.put_text(Some(""));
                out.put_bytes(said);
                out.put_bytes(assignment);
            });
            if version >= 3 {
                out.put_i32(UNKNOWN_OPERATIONS);
            }
        });
        Ok(Wanted::Yes)
    }
}
