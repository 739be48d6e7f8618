//! InitProducerId: a number for an idempotent producer. What it sends under it is counted by the log (see [`shared_log::Produce`]).

use super::{Fault, Job, JobCx, NO_THROTTLE, ResponseBody, Wanted};
use crate::brokers::Brokers;
use crate::code::Code;
use crate::wire::PutKafka as _;
use shared_log::Answer;

/// The number, or why there is none.
pub(super) struct Given(pub(super) Result<i64, Code>);

/// What a producer of transactions is answered: there are none.
pub(super) const NO_TRANSACTIONS: Given = Given(Err(Code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED));

impl Job for Given {
    fn slots(&self) -> usize {
        0
    }

    fn ask(&mut self, _slot: usize, _cx: &mut JobCx) {}

    fn on_answer(&mut self, _slot: usize, _answer: Answer, _cx: &mut JobCx) {}

    fn write(&self, _version: i16, _brokers: &Brokers, out: &mut ResponseBody) -> Result<Wanted, Fault> {
        let (code, number, epoch) = match self.0 {
            Ok(number) => (Code::NONE, number, 0),
            Err(code) => (code, -1, -1),
        };
        out.put_i32(NO_THROTTLE);
        out.put_code(code);
        out.put_i64(number);
        out.put_i16(epoch);
        Ok(Wanted::Yes)
    }
}
