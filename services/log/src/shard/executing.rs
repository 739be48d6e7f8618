//! What an operation does to the logs of its space, and the packs of operations that the order of FuzzyLog has.

use super::Logs;
use crate::feeder::{packed, unpacked};
use crate::wire::{Answer, Request, Trim, Why};
use kernel::{Bytes, Decode as _, Encode as _};
use mason::{Order, ShardOut, Space};

impl Logs {
    /// The operation of a body that may concern several spaces; it is alone in its pack.
    pub(super) fn operation_of_several(&self, body: &Bytes) -> Option<Bytes> {
        if !self.is_packed {
            return Some(body.clone());
        }
        let mut operations = unpacked(body).ok()?;
        (operations.len() == 1).then(|| operations.swap_remove(0))
    }

    /// Executes the operations of a pack in their order; the answer is the pack of theirs.
    pub(super) fn execute_pack(
        &mut self,
        body: &Bytes,
        order: &Order,
        others: &[(Space, Bytes)],
        out: &mut ShardOut,
    ) {
        let operations = unpacked(body).unwrap_or_default();
        let answers: Vec<Bytes> = operations
            .iter()
            .map(|operation| self.execute_one(operation, order, others, out).encoded().into())
            .collect();
        out.answer().extend_from_slice(&packed(&answers));
    }

    pub(super) fn execute_one(
        &mut self,
        body: &Bytes,
        order: &Order,
        others: &[(Space, Bytes)],
        out: &mut ShardOut,
    ) -> Answer {
        let answer = match Request::decoded(body) {
            Err(_) => Answer::refused(Why::Malformed),
            Ok(request) => match (request.fault(), request) {
                (Some(why), _) => Answer::refused(why),
                (None, Request::Append(append)) => self.append(&append, order, others, out),
                (None, Request::Produce(produce)) => self.produce(&produce, order, out),
                (None, Request::BeginGeneration(group)) => self.groups.begin(&group.name),
                (None, Request::Commit(commit)) => self.groups.commit(commit),
                (None, Request::Create(create)) => self.create(create, order.time),
                (None, Request::Trim(Trim { name, before })) => {
                    self.change(&name, |log, storage| log.trim(before, storage))
                }
                (None, Request::Expire(_)) => self.expire(order.time),
                (None, Request::Seal(named)) => {
                    let sealed = self.change(&named.name, |log, storage| {
                        log.sealed = true;
                        log.end_segment(storage);
                    });
                    if !kernel::planted!(sealing_wakes_nobody) {
                        self.notify(&named.name, out);
                    }
                    sealed
                }
                (None, Request::Delete(named)) => {
                    let deleted = self.delete(&named.name);
                    self.notify(&named.name, out);
                    deleted
                }
                (
                    None,
                    Request::Read(_)
                    | Request::Recall(_)
                    | Request::Stat(_)
                    | Request::Identify(_)
                    | Request::Describe(_)
                    | Request::List(_)
                    | Request::GroupOf(_),
                ) => Answer::refused(Why::Malformed),
            },
        };
        let mut step = self.digest.encoded();
        order.encode(&mut step);
        answer.encode(&mut step);
        parts::digest(body).encode(&mut step);
        self.digest = parts::digest(&step);
        answer
    }
}
