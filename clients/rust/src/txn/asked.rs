//! A call of the transaction service on its way.

use crate::CallError;
use crate::calls::Ask;
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

    /// A host that is busy is asked again, but not within a transaction, which it has ended.
    fn outcome(&self, reply: TxnReply) -> Option<Result<TxnReply, CallError>> {
        let busy = matches!(&reply, TxnReply::Failed(failed) if failed.why == TxnFailure::Busy);
        let within = matches!(self, Self::ReadWithin(_) | Self::Commit(_));
        (!busy || within).then_some(Ok(reply))
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
