//! The logs of a space beside a model of all logs: every answer is the model's, and so are reads at servers that have executed all that any
//! server of their space has, and whom an append is announced to.

mod model;

use kernel::{BlobRange, Bytes, Decode, DecodeError, Encode, NodeId, Recount, SnapshotStep, invariant};
use mason::{Archived, BlobBacked, Order, Shard, ShardOut, Space};
use model::Model;
use shared_log::{Answer, List, Logs, Named, Request, SpaceBounds};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The model that all servers of a run share.
#[derive(Clone, Debug)]
pub(super) struct SharedModel(Rc<RefCell<Model>>);

impl SharedModel {
    pub(super) fn new(spaces: u16, bounds: SpaceBounds) -> Self {
        Self(Rc::new(RefCell::new(Model::new(spaces, bounds))))
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct JudgedLogs {
    logs: Logs,
    space: Space,
    model: SharedModel,
    /// Who waits for what is appended to a log.
    waiting: BTreeSet<(String, NodeId)>,
    /// Of the last operation; none from a snapshot on until the next one.
    gsn: Option<u64>,
}

impl JudgedLogs {
    pub(super) fn new(space: Space, logs: Logs, model: SharedModel) -> Self {
        Self { logs, space, model, waiting: BTreeSet::new(), gsn: Some(0) }
    }

    /// The shard itself.
    pub(super) fn logs(&self) -> &Logs {
        &self.logs
    }

    fn is_newest(&self) -> bool {
        self.gsn.is_some_and(|gsn| self.model.0.borrow().is_newest(self.space, gsn))
    }

    fn judge(&self, request: &Request, answer: &Answer) {
        if !self.is_newest() {
            return;
        }
        let model = self.model.0.borrow();
        let wanted = model.answer(request, self.space);
        let first = |answer: &Answer| match answer {
            Answer::Description(described) => Some(described.stat.first),
            _ => None,
        };
        let (given, may_go) = (first(answer), wanted.as_ref().and_then(first));
        invariant!(
            DUR,
            given.is_none() || may_go.is_none() || given <= may_go,
            "space {} answers {request:?} with what begins at {given:?}, and what is below {may_go:?} may go",
            self.space
        );
        invariant!(
            LIN,
            wanted.as_ref().is_none_or(|wanted| wanted == answer),
            "space {} answers {request:?} with {answer:?}, and the model says {wanted:?}",
            self.space
        );
        if let (Request::Identify(named), Answer::Identity(identity)) = (request, answer) {
            let (wanted, given) = (model.origin(&named.name), (identity.number, identity.created_ms));
            invariant!(
                LIN,
                wanted == Some(given),
                "{} is {given:?}, and the model says {wanted:?}",
                named.name
            );
        }
        model.judge_entries(request, answer);
    }

    /// What a question is answered, if nothing has to be loaded for it.
    fn look(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        if self.logs.read(NodeId::ZERO, &request.encoded(), &mut bytes).is_none()
            && let Ok(answer) = Answer::decoded(&bytes.into())
        {
            self.judge(request, &answer);
        }
    }

    /// All logs are the model's.
    fn judge_all(&mut self) {
        if !self.is_newest() {
            return;
        }
        let names: Vec<String> = self.model.0.borrow().names(self.space).cloned().collect();
        self.look(&Request::List(List { after: String::new(), limit: u32::MAX }));
        for name in names {
            self.look(&Request::Describe(Named { name: name.clone() }));
            self.look(&Request::Identify(Named { name }));
        }
    }
}

impl Shard for JudgedLogs {
    fn inputs(&self, body: &[u8], order: &Order, out: &mut Vec<u8>) {
        self.logs.inputs(body, order, out);
    }

    fn execute(&mut self, body: &Bytes, order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut) {
        let mut own = ShardOut::default();
        self.logs.execute(body, order, others, &mut own);
        let (answer, notices) = own.into_parts();
        let (executed, is_first) = self.model.0.borrow_mut().execute(body, order);
        let given = Answer::decoded(&answer.clone().into());
        invariant!(
            LIN,
            given.as_ref() == Ok(&executed.answer),
            "space {} answers operation {:#x} with {given:?}, and the model with {:?}",
            self.space,
            order.gsn.0,
            executed.answer
        );
        self.gsn = Some(order.gsn.0);
        let woken: BTreeSet<(String, NodeId)> =
            self.waiting.extract_if(.., |(name, _)| executed.moved.contains(name)).collect();
        let said: BTreeSet<(String, NodeId)> = notices
            .iter()
            .map(|(reader, name)| (String::from_utf8_lossy(name).into_owned(), *reader))
            .collect();
        invariant!(WATCH, said == woken, "an append is announced to {said:?}, and {woken:?} wait for it");
        if is_first {
            let all: Vec<String> = self.model.0.borrow().names(self.space).cloned().collect();
            let moved = all.into_iter().filter(|name| executed.moved.contains(name));
            moved.for_each(|name| self.look(&Request::Describe(Named { name })));
        }
        out.answer().extend(answer);
        notices.into_iter().for_each(|(reader, notice)| out.notify(reader, notice));
    }

    fn read(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        let at = out.len();
        let range = self.logs.read(reader, query, out);
        let request = Request::decoded(&Bytes::copy_from_slice(query));
        if range.is_none()
            && let (Ok(request), Ok(answer)) = (request, Answer::decoded(&Bytes::copy_from_slice(&out[at..])))
        {
            if let (Request::Read(read), Answer::Entries(entries)) = (&request, &answer)
                && read.wait_ms > 0
                && entries.tail == read.from
                && !entries.sealed
            {
                self.waiting.insert((read.name.clone(), reader));
            }
            self.judge(&request, &answer);
        }
        range
    }

    fn answer_bytes(&self, query: &[u8]) -> Option<usize> {
        self.logs.answer_bytes(query)
    }

    fn forget_reader(&mut self, reader: NodeId) {
        self.waiting.retain(|(_, other)| *other != reader);
        self.logs.forget_reader(reader);
    }

    fn begin_snapshot(&mut self) {
        self.judge_all();
        self.logs.begin_snapshot();
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        self.logs.snapshot_step(budget, chunk)
    }

    fn reset(&mut self) {
        self.gsn = None;
        self.logs.reset();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.logs.install(chunk)
    }

    fn remark(&mut self) -> Option<Bytes> {
        self.logs.remark()
    }

    fn installed(&mut self, out: &mut ShardOut) {
        self.waiting.clear();
        self.logs.installed(out);
    }

    fn as_blob_backed(&self) -> Option<&dyn BlobBacked> {
        self.logs.as_blob_backed()
    }

    fn as_blob_backed_mut(&mut self) -> Option<&mut dyn BlobBacked> {
        self.logs.as_blob_backed_mut()
    }

    fn as_archived(&self) -> Option<&dyn Archived> {
        self.logs.as_archived()
    }

    fn as_archived_mut(&mut self) -> Option<&mut dyn Archived> {
        self.logs.as_archived_mut()
    }

    fn digest(&self) -> u64 {
        self.logs.digest()
    }

    fn recounts(&self) -> Vec<Recount> {
        self.logs.recounts()
    }
}
