//! Those who ask: local applications, and connections that speak the native protocol.

use super::TxnGateway;
use kernel::client::{Event, Output, Response};
use kernel::{Bytes, Cx, Encode, NodeId, RequestId};
use wire::txn::{
    Failed, ITEMS_MAX, KEY_BYTES_MAX, KeyScan, KeyWrite, SCAN_ROWS_MAX, TXN_BYTES_MAX, TXN_VALUE_BYTES_MAX,
    Timestamp, TxnCall, TxnFailure, TxnLevel, TxnReply, native_reply, read_native_call,
};

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

/// Refuses what no shard may be asked.
pub(super) fn check_limits(call: &TxnCall) -> Result<(), TxnFailure> {
    let sound = match call {
        TxnCall::ReadOnly(call) => reads_fit(&call.keys, &call.scans),
        TxnCall::OneShot(call) => {
            let conditions: Vec<Bytes> = call.conditions.iter().map(|it| it.key.clone()).collect();
            reads_fit(&conditions, &[])
                && reads_fit(&call.reads, &[])
                && reads_fit(&call.otherwise, &[])
                && writes_fit(&call.writes)
        }
        TxnCall::ReadWithin(call) => reads_fit(&call.keys, &call.scans),
        TxnCall::Commit(call) => writes_fit(&call.writes),
        TxnCall::Begin(_) | TxnCall::GiveUp(_) | TxnCall::Fence(_) | TxnCall::CommitStatus(_) => true,
    };
    if sound { Ok(()) } else { Err(TxnFailure::Malformed) }
}

fn is_key(key: &Bytes) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX
}

fn reads_fit(keys: &[Bytes], scans: &[KeyScan]) -> bool {
    let end_fits = |end: &Bytes| end.len() <= KEY_BYTES_MAX + 1;
    let fits = |scan: &KeyScan| {
        scan.range.start.len() <= KEY_BYTES_MAX + 1
            && scan.range.end.as_ref().is_none_or(end_fits)
            && (1..=SCAN_ROWS_MAX).contains(&scan.limit)
    };
    keys.len() + scans.len() <= ITEMS_MAX && keys.iter().all(is_key) && scans.iter().all(fits)
}

fn writes_fit(writes: &[KeyWrite]) -> bool {
    let value_fits = |value: &Bytes| value.len() <= TXN_VALUE_BYTES_MAX;
    let fits = |write: &KeyWrite| is_key(&write.key) && write.value.as_ref().is_none_or(value_fits);
    let mut keys: Vec<&Bytes> = writes.iter().map(|write| &write.key).collect();
    keys.sort_unstable();
    keys.dedup();
    writes.len() <= ITEMS_MAX
        && writes.iter().all(fits)
        && writes.iter().map(KeyWrite::size).sum::<usize>() <= TXN_BYTES_MAX
        && keys.len() == writes.len()
}

impl TxnGateway {
    /// A user's connection.
    pub(super) fn on_event(&mut self, from: NodeId, event: Event, cx: &mut Cx<'_, Self>) {
        match event {
            Event::Input(input) => match read_native_call(&input.bytes) {
                Ok(call) => self.on_call(Asker::Connection(from), call, cx),
                Err(_) => cx.reject("message that is no call"),
            },
            Event::Disconnected(_) => self.on_disconnected(Asker::Connection(from), cx),
            Event::Connected(_) | Event::Taken(_) => {}
        }
    }
}
