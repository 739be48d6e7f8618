//! Asking this host's gateway of the partially ordered log.

use crate::family::{HostedNode, LocalRequest, LocalResponse};
use kernel::{Decode as _, Encode as _, HostSlot};
use runtime::HostHandle;
use std::time::Duration;
use wire::fuzzylog::{CHANGE_WAIT_MS, FuzzyCall, FuzzyFailed, FuzzyFailure, FuzzyReply, WAIT_MS_MAX};

/// How long an answer is waited for: longer than the gateway tries.
const ANSWER_WITHIN: Duration = Duration::from_secs(11);

/// Whether a call may change something, and how long it waits for what is not there yet, in milliseconds.
pub(super) fn kind_of(call: &FuzzyCall) -> (bool, u32) {
    match call {
        FuzzyCall::AppendNodes(_)
        | FuzzyCall::AppendPlayed(_)
        | FuzzyCall::TrimColour(_)
        | FuzzyCall::TrimSeen(_)
        | FuzzyCall::RestoreNodes(_)
        | FuzzyCall::OpenRestored(_) => (true, 0),
        FuzzyCall::MoveColour(_) | FuzzyCall::AddPartition(_) | FuzzyCall::RemovePartition(_) => {
            (true, CHANGE_WAIT_MS)
        }
        FuzzyCall::SyncColour(call) => (false, call.wait_ms.min(WAIT_MS_MAX)),
        FuzzyCall::AwaitSnapshot(call) => (false, call.wait_ms.min(WAIT_MS_MAX)),
        FuzzyCall::PlayColour(_)
        | FuzzyCall::SnapshotColours(_)
        | FuzzyCall::NameSnapshot(_)
        | FuzzyCall::CutColours(_)
        | FuzzyCall::ScanNodes(_) => (false, 0),
    }
}

/// Asks; nobody's answer is one that says so. The call is sound.
pub(super) async fn ask(
    handle: &HostHandle<HostedNode>,
    gateway: HostSlot,
    call: FuzzyCall,
) -> Result<FuzzyReply, FuzzyFailed> {
    let (_, wait) = kind_of(&call);
    let asked = handle.request(gateway, LocalRequest::Service(call.encoded().into()));
    let within = ANSWER_WITHIN + Duration::from_millis(wait.into());
    let answered = tokio::time::timeout(within, asked).await;
    let reply = answered.ok().and_then(Result::ok).and_then(LocalResponse::of_service);
    match reply.and_then(|body| FuzzyReply::decoded(&body).ok()) {
        Some(FuzzyReply::FuzzyFailed(failed)) => Err(failed),
        Some(reply) => Ok(reply),
        None => Err(FuzzyFailed { id: 0, why: FuzzyFailure::Unknown, position: 0 }),
    }
}
