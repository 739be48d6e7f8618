//! The log at the native port: calls for this host's gateway.

use crate::family::{Message, Ordinate};
use crate::owed::{Asked, Reads};
use crate::services::NativeCalls;
use crate::services::native::{SMALL_ANSWER_BYTES, UNREADABLE};
use kernel::client::{ConnectionIn, Input, Output};
use kernel::{Bytes, Decode as _, Encode as _, NodeId};
use runtime::{CloseReason, SessionCx};
use shared_log::native::{Native, Reply, TO_CLIENT, TO_HOST};
use shared_log::{Answer, READ_BYTES_MAX, Request, Why};

/// What an answer that lists logs may take.
const LIST_ANSWER_BYTES: usize = 256 << 10;

/// Calls to this host's gateway.
pub(super) struct Calls {
    pub(super) gateway: NodeId,
}

impl NativeCalls for Calls {
    fn take(
        &self,
        message: &Bytes,
        reads: &mut Reads,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason> {
        if message.first() != Some(&TO_HOST) {
            return Err(UNREADABLE);
        }
        let (id, bytes, waits) = answer_of_call(message);
        let bytes = reads.room_of_call(bytes, waits);
        if !reads.admits(bytes) {
            return Ok(false);
        }
        reads.ask(Asked::Call(TO_HOST, id), bytes, cx.now());
        cx.send(self.gateway, Message::User(Input { bytes: message.clone() }.into()));
        Ok(true)
    }

    fn answered(&self, message: Message, reads: &mut Reads) -> Message {
        let Message::Connection(ConnectionIn::Output(output)) = message else { return message };
        let refused =
            reply_id(&output.bytes).filter(|&id| !reads.takes_call(TO_HOST, id, output.bytes.len()));
        let output = refused.map_or(output, |id| {
            let reply = Reply { id, answer: Answer::refused(Why::Busy) };
            Output { bytes: Native::Reply(reply).encoded().into() }
        });
        Message::Connection(ConnectionIn::Output(output))
    }
}

/// The number of a call, how large its answer may be, and whether it waits for what is not there yet.
fn answer_of_call(message: &Bytes) -> (u64, usize, bool) {
    match Native::decoded(message) {
        Ok(Native::Call(call)) => {
            let bytes = match &call.request {
                Request::Read(read) | Request::Recall(read) => read.bytes_max.min(READ_BYTES_MAX) as usize,
                Request::List(_) => LIST_ANSWER_BYTES,
                _ => 0,
            };
            let waits = matches!(&call.request, Request::Read(read) if read.wait_ms > 0);
            (call.id, bytes + SMALL_ANSWER_BYTES, waits)
        }
        // The gateway says what is wrong with it.
        Ok(Native::Reply(_)) | Err(_) => (0, SMALL_ANSWER_BYTES, false),
    }
}

/// The number of the call that a reply answers.
fn reply_id(bytes: &Bytes) -> Option<u64> {
    let head = bytes.get(..10)?;
    (head[0] == TO_CLIENT).then(|| u64::from_le_bytes(head[2..].try_into().unwrap_or_default()))
}
