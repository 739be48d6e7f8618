//! What a service does at the native port: takes its calls in and counts its answers out.

use crate::access::PortCaller;
use crate::family::{Ordinate, OrdinateMessage};
use crate::latency::CallFailure;
use crate::owed::{OwedRead, OwedReads};
use kernel::client::{Input, Output};
use kernel::{Bytes, Instant, NodeId};
use runtime::{CloseReason, SessionCx};

/// Who calls, and what it is owed.
pub struct Asker<'a> {
    /// Who.
    pub caller: &'a mut PortCaller,
    /// What it is to be answered.
    pub reads: &'a mut OwedReads,
    /// Messages that say that it was not granted what it asked; they are sent at once.
    pub refusals: &'a mut Vec<Bytes>,
}

/// What is known of a call before its service reads it.
pub struct NativeCall {
    /// Who of the host receives it: a tag.
    pub receiver: u8,
    /// Its number, if it is answered.
    pub id: Option<u64>,
    /// The service and what the call does, for metrics.
    pub operation: (&'static str, &'static str),
    /// How large its answer may be.
    pub bytes: usize,
    /// It waits for what is not there yet, and so says nothing of how fast the service is.
    pub waits: bool,
}

impl Asker<'_> {
    /// Hands a call on to its service's gateway; false if there is no room for its answer.
    pub fn hand_on(
        &mut self,
        call: &NativeCall,
        message: &Bytes,
        gateway: NodeId,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> bool {
        let bytes = self.reads.room_of_call(call.bytes, call.waits);
        if !self.reads.admits(bytes) {
            return false;
        }
        if let Some(id) = call.id {
            let asked = OwedRead::Call(call.receiver, id);
            self.reads.ask(asked, bytes, cx.now());
            if !call.waits {
                self.reads.watch.start(asked, call.operation, cx.now());
            }
        }
        cx.send(gateway, OrdinateMessage::User(Input { bytes: message.clone() }.into()));
        true
    }
}

/// What is known of an answer.
pub struct NativeAnswer {
    /// Whose call it answers: the tag that the call had.
    pub receiver: u8,
    /// The call's number.
    pub id: u64,
    /// Nothing was changed: where it does not fit, the call can be refused instead.
    pub may_be_refused: bool,
    /// Why the call was not done; none if it was.
    pub failure: Option<CallFailure>,
}

impl NativeAnswer {
    /// Counts an answer of a service out. What there is no room for becomes what `busy` says.
    pub fn count_out(
        &self,
        service: &'static str,
        output: Output,
        reads: &mut OwedReads,
        now: Instant,
        busy: impl FnOnce(u64) -> Bytes,
    ) -> Output {
        let fits = reads.takes_call(self.receiver, self.id, output.bytes.len()) || !self.may_be_refused;
        let call = OwedRead::Call(self.receiver, self.id);
        match if fits { self.failure } else { Some(CallFailure::BUSY) } {
            Some(failure) => reads.watch.fail(call, service, failure, now),
            None => reads.watch.stop(call, now),
        }
        if fits { output } else { Output { bytes: busy(self.id) } }
    }
}

/// A service's part of the native port of a host.
///
/// **Contract.** What the caller was not granted goes no further, and is answered in [`Asker::refusals`].
pub trait NativeCalls: Send {
    /// Hands on what a client says to this service: a message that begins with one of its receivers' tags. False if there is no room
    /// for what it would be answered; it is tried again then.
    fn take(
        &self,
        message: &Bytes,
        asker: &mut Asker<'_>,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason>;

    /// Notes an answer, if it is one of this service's. Where there is no room for it, it becomes the word that the host is busy.
    fn answered(&self, message: OrdinateMessage, _reads: &mut OwedReads, _now: Instant) -> OrdinateMessage {
        message
    }

    /// A client's connection is gone.
    fn closed(&self, _cx: &mut SessionCx<'_, Ordinate>) {}
}

/// What an answer takes that has nothing of what is stored in it.
pub const SMALL_ANSWER_BYTES: usize = 256;
/// A client says what only hosts may say.
pub const NOT_FOR_CLIENTS: CloseReason = CloseReason("message that clients may not send");
/// A client says what nobody understands.
pub const UNREADABLE: CloseReason = CloseReason("message that does not decode");
