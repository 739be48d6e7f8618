//! A call of the transaction service on its way.

use crate::CallError;
use crate::calls::{Ask, SoFar};
use crate::directed::Directed;
use wire::txn::{TO_CLIENT, TO_HOST, TxnCall, TxnFailure, TxnReply};

type TxnMessage = Directed<TxnCall, TxnReply, TO_HOST, TO_CLIENT>;

impl Ask for TxnCall {
    type Message = TxnMessage;
    type Reply = TxnReply;
    type Answer = TxnReply;

    fn message(&self, number: u64) -> TxnMessage {
        let mut call = self.clone();
        match &mut call {
            Self::ReadOnly(call) => call.id = number,
            Self::OneShot(call) => call.id = number,
            Self::Begin(call) => call.id = number,
            Self::ReadWithin(call) => call.id = number,
            Self::Commit(call) => call.id = number,
            Self::GiveUp(_) => {}
            Self::Fence(call) => call.id = number,
            Self::CommitStatus(call) => call.id = number,
        }
        TxnMessage::Call(call)
    }

    fn reply(message: TxnMessage) -> Option<(u64, TxnReply)> {
        let TxnMessage::Reply(reply) = message else { return None };
        let id = match &reply {
            TxnReply::ReadRows(reply) => reply.id,
            TxnReply::Committed(reply) => reply.id,
            TxnReply::NotMet(reply) => reply.id,
            TxnReply::Begun(reply) => reply.id,
            TxnReply::RowsWithin(reply) => reply.id,
            TxnReply::Fenced(reply) => reply.id,
            TxnReply::CommitFate(reply) => reply.id,
            TxnReply::Failed(reply) => reply.id,
        };
        Some((id, reply))
    }

    /// A host that is busy is asked again, but not within a transaction, which it has ended. That one host has executed nothing says
    /// nothing of another one, which was lost with the call.
    fn outcome(&self, reply: TxnReply, so_far: SoFar) -> Option<Result<TxnReply, CallError>> {
        let TxnReply::Failed(failed) = &reply else { return Some(Ok(reply)) };
        let within = matches!(self, Self::ReadWithin(_) | Self::Commit(_));
        if failed.why == TxnFailure::Busy && !within && !so_far.is_last {
            return None;
        }
        let may_be_executed = so_far.was_lost && matches!(self, Self::OneShot(_));
        Some(if may_be_executed { Err(CallError::MaybeExecuted) } else { Ok(reply) })
    }

    /// A one-shot has a name, by which it is executed once.
    fn may_repeat(&self) -> bool {
        match self {
            Self::ReadOnly(_) | Self::Fence(_) | Self::CommitStatus(_) | Self::Begin(_) => true,
            Self::OneShot(call) => call.key.is_some(),
            Self::ReadWithin(_) | Self::Commit(_) | Self::GiveUp(_) => false,
        }
    }

    fn is_answered(&self) -> bool {
        !matches!(self, Self::GiveUp(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::txn::{CallKey, Failed, OneShot, Timestamp};

    // "Busy, not executed" of the second host is a lie if the first has executed it before it died; and nobody asks a third time when
    // there is no time.
    #[test]
    fn a_failure_is_worth_what_was_sent_before() {
        let key = Some(CallKey { session: 1, number: 1 });
        let (conditions, writes, reads, otherwise) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (token, acknowledged) = (Timestamp(0), 1);
        let call: TxnCall =
            OneShot { id: 0, token, key, acknowledged, conditions, writes, reads, otherwise }.into();
        let of =
            |why, is_last, was_lost| call.outcome(Failed { id: 1, why }.into(), SoFar { is_last, was_lost });
        let failed = |why| Some(Ok(Failed { id: 1, why }.into()));
        let unknown = Some(Err(CallError::MaybeExecuted));
        assert_eq!(of(TxnFailure::Busy, false, false), None);
        assert_eq!(of(TxnFailure::Busy, true, false), failed(TxnFailure::Busy));
        assert_eq!(of(TxnFailure::Busy, false, true), None);
        assert_eq!(of(TxnFailure::Busy, true, true), unknown);
        assert_eq!(of(TxnFailure::DiskFull, false, false), failed(TxnFailure::DiskFull));
        assert_eq!(of(TxnFailure::DiskFull, false, true), unknown);
    }
}
