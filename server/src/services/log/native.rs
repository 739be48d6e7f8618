//! The log at the native port: calls for this host's gateway.

use super::{LISTED, access};
use crate::family::{Ordinate, OrdinateMessage};
use crate::latency::CallFailure;
use crate::owed::OwedReads;
use crate::services::native::{NativeAnswer, NativeCall, SMALL_ANSWER_BYTES, UNREADABLE};
use crate::services::{Asker, NativeCalls};
use kernel::client::ConnectionIn;
use kernel::{Bytes, Decode as _, Encode as _, Instant, NodeId};
use runtime::{CloseReason, SessionCx};
use shared_log::native::{Call, Native, Reply, TO_CLIENT, TO_HOST};
use shared_log::{Answer, READ_BYTES_MAX, Rejected, Request, Why};

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
        asker: &mut Asker<'_>,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason> {
        if message.first() != Some(&TO_HOST) {
            return Err(UNREADABLE);
        }
        if asker.caller.is_checked() {
            let Ok(Native::Call(Call { id, request })) = Native::decoded(message) else {
                return Err(UNREADABLE);
            };
            if !access::may(asker.caller, &request) {
                let operation = expected_of(message).operation;
                asker.reads.watch.refuse((LISTED.name, operation), CallFailure::NOT_GRANTED);
                let reply = Reply { id, answer: Answer::refused(Why::NotGranted) };
                asker.refusals.push(Native::Reply(reply).encoded().into());
                return Ok(true);
            }
        }
        let Expected { id, bytes, waits, operation } = expected_of(message);
        let operation = (LISTED.name, operation);
        let call = NativeCall { receiver: TO_HOST, id: Some(id), operation, bytes, waits };
        Ok(asker.hand_on(&call, message, self.gateway, cx))
    }

    fn answered(&self, message: OrdinateMessage, reads: &mut OwedReads, now: Instant) -> OrdinateMessage {
        let OrdinateMessage::Connection(ConnectionIn::Output(output)) = message else { return message };
        let Some(id) = reply_id(&output.bytes) else {
            return OrdinateMessage::Connection(ConnectionIn::Output(output));
        };
        let failure = failure_in(&output.bytes);
        let answer = NativeAnswer { receiver: TO_HOST, id, may_be_refused: true, failure };
        let busy = |id| Native::Reply(Reply { id, answer: Answer::refused(Why::Busy) }).encoded().into();
        let output = answer.count_out(LISTED.name, output, reads, now, busy);
        OrdinateMessage::Connection(ConnectionIn::Output(output))
    }
}

/// What is known of a call before it is answered.
struct Expected {
    /// Its number.
    id: u64,
    /// How large its answer may be.
    bytes: usize,
    /// It waits for what is not there yet.
    waits: bool,
    /// What it does, for metrics.
    operation: &'static str,
}

fn expected_of(message: &Bytes) -> Expected {
    let Ok(Native::Call(call)) = Native::decoded(message) else {
        // The gateway says what is wrong with it.
        return Expected { id: 0, bytes: SMALL_ANSWER_BYTES, waits: false, operation: "malformed" };
    };
    let (operation, bytes, waits) = match &call.request {
        Request::Read(read) => ("read", read.bytes_max.min(READ_BYTES_MAX) as usize, read.wait_ms > 0),
        Request::Recall(read) => ("recall", read.bytes_max.min(READ_BYTES_MAX) as usize, false),
        Request::List(_) => ("list", LIST_ANSWER_BYTES, false),
        Request::Create(_) => ("create", 0, false),
        Request::Append(_) => ("append", 0, false),
        Request::Trim(_) => ("trim", 0, false),
        Request::Seal(_) => ("seal", 0, false),
        Request::Delete(_) => ("delete", 0, false),
        Request::Stat(_) => ("stat", 0, false),
        Request::Produce(_) => ("produce", 0, false),
        Request::BeginGeneration(_) => ("begin_generation", 0, false),
        Request::Commit(_) => ("commit", 0, false),
        Request::GroupOf(_) => ("group_of", 0, false),
        Request::Identify(_) => ("identify", 0, false),
        Request::Describe(_) => ("describe", 0, false),
        Request::Expire(_) => ("expire", 0, false),
    };
    Expected { id: call.id, bytes: bytes + SMALL_ANSWER_BYTES, waits, operation }
}

/// Where a reply's answer begins, which says by its tag what it is.
const ANSWER_AT: usize = 10;

/// Why a call was not done; none if it was.
fn failure_in(reply: &Bytes) -> Option<CallFailure> {
    if !Answer::FAILING_TAGS.contains(reply.get(ANSWER_AT)?) {
        return None;
    }
    let Ok(Native::Reply(Reply { answer, .. })) = Native::decoded(reply) else { return None };
    match answer {
        Answer::Refused(refused) => Some(failure_of(refused.why)),
        Answer::Rejected(Rejected::Fenced(_)) => Some(CallFailure::of_caller("fenced")),
        Answer::Rejected(Rejected::OutOfSequence(_)) => Some(CallFailure::of_caller("out_of_sequence")),
        Answer::Rejected(Rejected::Unknown(_)) => Some(CallFailure::of_caller("unknown_producer")),
        Answer::Done
        | Answer::Appended(_)
        | Answer::Entries(_)
        | Answer::Logs(_)
        | Answer::Group(_)
        | Answer::Identity(_)
        | Answer::Description(_) => None,
    }
}

fn failure_of(why: Why) -> CallFailure {
    match why {
        Why::Busy => CallFailure::BUSY,
        Why::Unknown => CallFailure::of_service("unknown"),
        Why::Malformed => CallFailure::of_caller("malformed"),
        Why::NoSuchLog => CallFailure::of_caller("no_such_log"),
        Why::Exists => CallFailure::of_caller("exists"),
        Why::Sealed => CallFailure::of_caller("sealed"),
        Why::Moved => CallFailure::of_caller("moved"),
        Why::Trimmed => CallFailure::of_caller("trimmed"),
        Why::BeyondTail => CallFailure::of_caller("beyond_tail"),
        Why::Full => CallFailure::of_service("full"),
        Why::TooLarge => CallFailure::of_caller("too_large"),
        Why::Unsupported => CallFailure::of_caller("unsupported"),
        Why::Unarchived => CallFailure::of_service("unarchived"),
        Why::DiskFull => CallFailure::of_service("disk_full"),
        Why::OverBudget => CallFailure::of_service("over_budget"),
        Why::NotGranted => CallFailure::NOT_GRANTED,
    }
}

/// The number of the call that a reply answers.
fn reply_id(bytes: &Bytes) -> Option<u64> {
    let head = bytes.get(..10)?;
    (head[0] == TO_CLIENT).then(|| u64::from_le_bytes(head[2..].try_into().unwrap_or_default()))
}
