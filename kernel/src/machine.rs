//! The contract between an engine that orders commands and a service that executes them.

use crate::codec::DecodeError;
use crate::id::NodeId;
use crate::recount::Recount;
use bytes::Bytes;
use std::collections::VecDeque;

/// Whether a snapshot has more to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotStep {
    /// Call again.
    More,
    /// That was the last chunk.
    Done,
}

/// What a machine is but for what it keeps for others, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// Counts up as long as the machine exists.
    pub number: u64,
    /// In chunks that the machine would install.
    pub chunks: VecDeque<Bytes>,
}

/// A deterministic service: the same commands in the same order give the same state and the same responses, on every
/// replica and in every version that may share a cluster.
///
/// **Contract.** `apply` and `query` never panic on any input: malformed commands get an error response. A snapshot is of
/// the state at `begin_snapshot`, while `apply` may be called between its steps; a machine keeps what it needs for
/// that (for instance the earlier values of what changes before it was written out).
pub trait StateMachine: Sized + 'static {
    /// These commands come next: whatever they will touch may be brought near. Changes nothing. Called for all commands of a
    /// batch before the first is applied, because a processor waits for many memory lines at once as long as for one.
    fn anticipate<'a>(&self, _commands: impl Iterator<Item = &'a [u8]>) {}

    /// Whatever is stored and was not asked for, such as what a failed condition found, is repeated by the responses that follow
    /// up to so many bytes. Part of the replicated rules: called before each batch, with the same on all replicas.
    fn repeat_at_most(&mut self, _bytes: usize) {}

    /// Executes a command and appends the response to `response`.
    fn apply(&mut self, command: &[u8], response: &mut Vec<u8>);

    /// Executes what an engine that embeds the log has put there. Nobody is answered; see `take_notices`.
    fn apply_entry(&mut self, entry: &Bytes) {
        self.apply(entry, &mut Vec::new());
    }

    /// Executes a read and appends the response to `response`.
    fn query(&self, query: &[u8], response: &mut Vec<u8>);

    /// Moves what the machine has to notify nodes of, without having been asked, into `notices`: called when an incarnation begins, when a snapshot was installed and after every slot, before the
    /// answers leave. Every replica is called; a machine that wants one to speak knows which one it is.
    fn take_notices(&mut self, _notices: &mut Vec<(NodeId, Bytes)>) {}

    /// Starts a snapshot of the present state; one that was in flight is dropped.
    fn begin_snapshot(&mut self);

    /// Appends the next chunk, of about `budget` bytes, to `chunk`.
    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep;

    /// For a machine that keeps much, for as long as others need it: all but that, as it is now. A snapshot of now can be completed
    /// when less of it is needed, see [`StateMachine::completion`]. None from a machine whose state is all its own.
    fn capture(&mut self) -> Option<Capture> {
        None
    }

    /// Bytes of what was retained at this capture and is needed still.
    fn needed_of(&self, _capture: u64) -> usize {
        0
    }

    /// What was retained at this capture and is needed still: the chunks that make it a snapshot, installed behind the capture's. What is
    /// executed behind the capture says again what nobody needs.
    fn completion(&self, _capture: u64) -> VecDeque<Bytes> {
        VecDeque::new()
    }

    /// About how many bytes a snapshot of the present state would come to; 0 where that is not known.
    fn snapshot_bytes(&self) -> u64 {
        0
    }

    /// Back to the empty state, before the chunks of a snapshot are installed.
    fn reset(&mut self);

    /// Takes one chunk, in the order they were written.
    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError>;

    /// A digest of the whole state; equal on replicas that have executed the same commands.
    fn digest(&self) -> u64;

    /// The numbers that it keeps beside what they count.
    fn recounts(&self) -> Vec<Recount> {
        Vec::new()
    }
}
