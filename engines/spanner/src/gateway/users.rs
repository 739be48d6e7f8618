//! Those who ask: local applications, and connections that speak the native protocol.

use super::TxnGateway;
use kernel::client::{Close, Event, Output, Response};
use kernel::{Bytes, Cx, Encode, NodeId, RequestId};
use wire::txn::{Failed, Timestamp, TxnCall, TxnFailure, TxnLevel, TxnReply, native_reply, read_native_call};

/// Where an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Asker {
    /// A local application.
    Local(RequestId),
    /// A user's connection.
    Connection(NodeId),
}

/// Who waits for the answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Caller {
    asker: Asker,
    id: u64,
}

impl Caller {
    pub(super) fn of(asker: Asker, call: &TxnCall) -> Self {
        let id = match call {
            TxnCall::ReadOnly(call) => call.id,
            TxnCall::OneShot(call) => call.id,
            TxnCall::Begin(call) => call.id,
            TxnCall::ReadWithin(call) => call.id,
            TxnCall::Commit(call) => call.id,
            TxnCall::GiveUp(call) => call.txn,
            TxnCall::Fence(call) => call.id,
            TxnCall::CommitStatus(call) => call.id,
        };
        Self { asker, id }
    }

    /// The user's number of the call.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whose interactive transactions it may go on with. Local applications name theirs apart.
    pub(super) fn owner(&self) -> Asker {
        match self.asker {
            Asker::Local(_) => LOCAL,
            Asker::Connection(node) => Asker::Connection(node),
        }
    }

    pub(super) fn answer(self, reply: impl Into<TxnReply>, cx: &mut Cx<'_, TxnGateway>) {
        let reply = reply.into();
        match self.asker {
            Asker::Local(id) => cx.respond(id, Response(reply.encoded().into())),
            Asker::Connection(node) => cx.send(node, Output { bytes: native_reply(&reply).into() }),
        }
    }

    /// A connection expects no answer to what it gives up.
    pub(super) fn given_up(self, refused: Option<TxnFailure>, cx: &mut Cx<'_, TxnGateway>) {
        match (self.asker, refused) {
            (Asker::Connection(_), _) => {}
            (Asker::Local(_), Some(why)) => self.fail(why, cx),
            (Asker::Local(id), None) => cx.respond(id, Response(Bytes::new())),
        }
    }

    pub(super) fn fail(self, why: TxnFailure, cx: &mut Cx<'_, TxnGateway>) {
        self.answer(Failed { id: self.id, why }, cx);
    }
}

/// Of all local applications together.
pub(super) const LOCAL: Asker = Asker::Local(RequestId(0));

/// The session's token of a call; 0 where it has none.
pub(super) fn token_of(call: &TxnCall) -> Timestamp {
    match call {
        TxnCall::ReadOnly(call) => call.token,
        TxnCall::OneShot(call) => call.token,
        TxnCall::Begin(call) => call.token,
        TxnCall::Fence(call) => call.token,
        TxnCall::ReadWithin(_) | TxnCall::Commit(_) | TxnCall::GiveUp(_) | TxnCall::CommitStatus(_) => {
            Timestamp(0)
        }
    }
}

/// True if a call can be served by a host whose clock cannot be relied on.
pub(super) fn needs_no_clock(call: &TxnCall) -> bool {
    match call {
        TxnCall::ReadOnly(call) => matches!(call.level, TxnLevel::ProcessOrdered | TxnLevel::At(_)),
        TxnCall::GiveUp(_) | TxnCall::CommitStatus(_) => true,
        TxnCall::OneShot(_)
        | TxnCall::Begin(_)
        | TxnCall::ReadWithin(_)
        | TxnCall::Commit(_)
        | TxnCall::Fence(_) => false,
    }
}

impl TxnGateway {
    /// A user's connection.
    pub(super) fn on_event(&mut self, from: NodeId, event: Event, cx: &mut Cx<'_, Self>) {
        match event {
            Event::Input(input) => match read_native_call(&input.bytes) {
                Ok(call) => self.on_call(Asker::Connection(from), call, cx),
                Err(_) => {
                    cx.reject("message that is no call");
                    cx.send(from, Close { reason: "a call does not decode".to_owned() });
                }
            },
            Event::Disconnected(_) => self.on_disconnected(Asker::Connection(from), cx),
            Event::Connected(_) | Event::Taken(_) | Event::Proven(_) => {}
        }
    }
}
