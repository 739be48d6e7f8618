//! A call of the partially ordered log on its way.

use crate::CallError;
use crate::calls::{Ask, SoFar};
use crate::directed::Directed;
use std::time::Duration;
use wire::fuzzylog::{CHANGE_WAIT_MS, FuzzyCall, FuzzyFailure, FuzzyReply, TO_CLIENT, TO_HOST};

/// A host that owes an answer and says nothing for so long may hang: its calls go to another one, and are executed once.
const SILENT_FOR: Duration = Duration::from_secs(2);

type ColourMessage = Directed<FuzzyCall, FuzzyReply, TO_HOST, TO_CLIENT>;

impl Ask for FuzzyCall {
    type Message = ColourMessage;
    type Reply = FuzzyReply;
    type Answer = FuzzyReply;

    fn message(&self, number: u64) -> ColourMessage {
        ColourMessage::Call(self.clone().numbered(number))
    }

    fn reply(message: ColourMessage) -> Option<(u64, FuzzyReply)> {
        let ColourMessage::Reply(reply) = message else { return None };
        Some((reply.id(), reply))
    }

    /// What may have been executed is asked for again, too: it has a number.
    fn outcome(&self, reply: FuzzyReply, _so_far: SoFar) -> Option<Result<FuzzyReply, CallError>> {
        let again = |why| matches!(why, FuzzyFailure::Busy | FuzzyFailure::Unknown | FuzzyFailure::NoClock);
        let again = matches!(&reply, FuzzyReply::FuzzyFailed(failed) if again(failed.why));
        (!again).then_some(Ok(reply))
    }

    /// Appends and snapshots have numbers, by which they are executed once; a trim comes to the same.
    fn may_repeat(&self) -> bool {
        true
    }

    fn wait(&self) -> Duration {
        let wait_ms = match self {
            Self::SyncColour(call) => call.wait_ms,
            Self::AwaitSnapshot(call) => call.wait_ms,
            Self::AppendNodes(_)
            | Self::AppendPlayed(_)
            | Self::PlayColour(_)
            | Self::SnapshotColours(_)
            | Self::NameSnapshot(_)
            | Self::TrimColour(_)
            | Self::TrimSeen(_)
            | Self::CutColours(_)
            | Self::ScanNodes(_)
            | Self::RestoreNodes(_)
            | Self::OpenRestored(_) => 0,
            Self::MoveColour(_) | Self::AddPartition(_) | Self::RemovePartition(_) => CHANGE_WAIT_MS,
        };
        Duration::from_millis(wait_ms.into())
    }

    fn patience(&self) -> Option<Duration> {
        Some(SILENT_FOR + self.wait())
    }
}
