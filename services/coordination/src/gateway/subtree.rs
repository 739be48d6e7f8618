//! Our own operations over subtrees: a survey by plain reads, then one multi that fails if anything has changed since.
//!
//! Rename keeps data and ACLs; the nodes get new global sequence numbers and versions, and containers and nodes with a time to live become
//! persistent. A subtree with ephemeral nodes is not renamed.

use crate::gateway::Gateway;
use crate::gateway::connection::{EntrySeq, Part, PartAnswer, Purpose, Read, Reply, Work};
use crate::gateway::survey::Survey;
use crate::wire::{Body, Code, JuteOutput, WriteHead, op};
use kernel::{Bytes, NodeId};
use std::sync::Arc;

/// After so many surveys that were outdated when the multi came, the user is answered.
const SURVEYS_MAX: u32 = 8;

impl Gateway {
    pub(crate) fn survey_parts(&mut self, node: NodeId, ahead: &[(i32, Arc<str>)]) -> Vec<Part> {
        ahead.iter().map(|(opcode, path)| self.node_query(node, *opcode, path, false)).collect()
    }

    /// The reads of one level have been answered: on to the next, or to the multi.
    pub(crate) fn advance_survey(&mut self, node: NodeId, seq: EntrySeq, answers: &[PartAnswer]) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let Some(entry) = connection.entry(seq) else { return };
        let Work::Read(read) = &mut entry.work else { return };
        let Purpose::Survey(survey) = &mut read.purpose else { return };
        let mut survey = survey.clone();
        let next = match survey.take(answers.iter().map(|answer| (answer.error, &answer.body))) {
            Ok(()) if !survey.ahead.is_empty() => self.read_on(node, survey),
            Ok(()) => self.work_of_multi(node, survey),
            Err(Code::BadVersion) if survey.surveys < SURVEYS_MAX => {
                survey.again();
                self.read_on(node, survey)
            }
            Err(code) => Work::Done(Reply::new(0, code.number(), Bytes::new())),
        };
        if let Some(entry) = self.connections.get_mut(&node).and_then(|connection| connection.entry(seq)) {
            entry.work = next;
        }
        self.runnable.insert(node);
    }

    fn read_on(&mut self, node: NodeId, survey: Box<Survey>) -> Work {
        let parts = self.survey_parts(node, &survey.ahead);
        let shard_map = self.marks.shard_map().version;
        Work::Read(Box::new(Read::new(Purpose::Survey(survey), parts, 0, self.reads.last_watch(), shard_map)))
    }

    fn work_of_multi(&mut self, node: NodeId, survey: Box<Survey>) -> Work {
        let Some(connection) = self.connections.get(&node) else { return Work::Close };
        let request = match survey.multi() {
            Ok(request) if request.len() <= self.settings.frame_bytes_max => request,
            Ok(_) => return Work::Done(Reply::new(0, Code::BadArguments.number(), Bytes::new())),
            Err(code) => return Work::Done(Reply::new(0, code.number(), Bytes::new())),
        };
        let head = WriteHead {
            session: connection.session,
            epoch: connection.epoch,
            ephemeral: false,
            ttl_allowed: false,
            caller: connection.caller.borrowed(),
            opcode: op::MULTI,
        };
        let body = Body::Write { head, request: &request }.written().into();
        Work::Write { body, survey: Some(survey), sent: false }
    }

    /// The multi has been executed.
    pub(crate) fn after_multi(
        &mut self,
        node: NodeId,
        mut survey: Box<Survey>,
        gsn: u64,
        body: &Bytes,
    ) -> Work {
        let verdict = Survey::verdict(body);
        let conflicts = [Code::BadVersion, Code::NotEmpty, Code::NoNode].map(Code::number).contains(&verdict);
        // The target's parent may be what is missing: that no survey would change.
        if conflicts && survey.surveys < SURVEYS_MAX.min(if survey.to.is_some() { 2 } else { SURVEYS_MAX }) {
            survey.again();
            return self.read_on(node, survey);
        }
        let mut counted = Vec::new();
        counted.put_count(survey.found.len());
        Work::Done(Reply::new(gsn, verdict, counted))
    }
}
