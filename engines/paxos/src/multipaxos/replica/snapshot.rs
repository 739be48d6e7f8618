//! Snapshots: written to the journal so that it can be cut, and handed to peers that lag too far.
//!
//! A snapshot is a row of chunks: a preamble, the replicated state in pieces, then the machine's own chunks. It is taken
//! while commands go on; the machine keeps what it needs for that.
//!
//! Of a machine that keeps much for others, the small rest is captured often, and the latest capture is written of which hardly anything
//! kept is needed still: so what is kept stands in the acceptors' journals and is not copied into snapshots, too.

use super::divergence::Digest;
use super::{PullSnapshot, Replica, Replicated, SnapshotChunk};
use crate::configuration::Configurations;
use kernel::{
    Bytes, Capture, Cx, Decode, DecodeError, Encode, Instant, NodeId, Position, Reader, SnapshotStep,
    StateMachine,
};
use kernel::{invariant, planted};
use parts::{Look, Offer, Offered, Page, Slot, Taken, Transfers, Wanted};
use std::collections::VecDeque;
use std::time::Duration;

/// What a replica must not forget: its snapshots.
#[derive(Clone, PartialEq, Debug)]
pub enum ReplicaRecord {
    /// A snapshot begins; an unfinished one before it is void.
    Begin {
        /// It holds everything below this slot.
        through: Slot,
    },
    /// Its next chunk.
    Chunk {
        /// The contents.
        bytes: Bytes,
    },
    /// It is complete.
    End,
}

/// The least time between two chunks written, so that a snapshot does not crowd out the votes.
const CHUNK_EVERY: Duration = Duration::from_millis(2);
/// Captures that wait; then the oldest is written, whatever is needed of what was kept at it.
const CAPTURES_MAX: usize = 8;
/// A capture is written when no more than this share of what was executed between two captures is still needed of it.
const NEEDED_SHARE: u64 = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct Snapshots {
    durable_through: Slot,
    executed_bytes: u64,
    captures: VecDeque<(Writer, u64)>,
    job: Option<Job>,
    restoring: Option<Restoring>,
    transfers: Transfers<Slot>,
}

#[derive(Clone, Debug)]
enum Job {
    Writing { writer: Writer, begin: Position, stepped_at: Instant },
    Serving { writer: Writer, offer: Offer },
}

#[derive(Clone, Debug)]
struct Restoring {
    through: Slot,
    chunks: Vec<Bytes>,
}

/// Produces the chunks of a snapshot.
#[derive(Clone, Debug)]
struct Writer {
    through: Slot,
    /// The chunks that are ready.
    pieces: VecDeque<Bytes>,
    /// They are all; else those of the snapshot that the machine has begun follow.
    complete: bool,
}

kernel::record! {
    /// The first chunk.
    pub(super) struct Preamble {
        /// Everything below this slot is contained.
        through: Slot,
        /// How many of the next chunks hold the replicated state.
        pieces: u32,
    }
}

impl Writer {
    fn begin<S: StateMachine>(state: &Replicated, machine: &mut S, chunk_bytes: usize) -> Self {
        machine.begin_snapshot();
        Self::of(state, chunk_bytes)
    }

    fn of(state: &Replicated, chunk_bytes: usize) -> Self {
        let mut pieces: VecDeque<Bytes> =
            encode_state(state).chunks(chunk_bytes).map(Bytes::copy_from_slice).collect();
        let preamble = Preamble { through: state.executed, pieces: pieces.len() as u32 };
        pieces.push_front(preamble.encoded().into());
        Self { through: state.executed, pieces, complete: false }
    }

    /// The next chunk, and whether it is the last.
    fn next<S: StateMachine>(&mut self, machine: &mut S, chunk_bytes: usize) -> (Bytes, bool) {
        if let Some(piece) = self.pieces.pop_front() {
            return (piece, self.complete && self.pieces.is_empty());
        }
        let mut chunk = Vec::with_capacity(chunk_bytes + 1024);
        let step = machine.snapshot_step(chunk_bytes, &mut chunk);
        (chunk.into(), step == SnapshotStep::Done)
    }
}

fn encode_state(state: &Replicated) -> Vec<u8> {
    let mut out = Vec::new();
    state.configurations.encode(&mut out);
    if planted!(sessions_not_in_snapshot) {
        parts::Sessions::default().encode(&mut out);
    } else {
        state.sessions.encode(&mut out);
    }
    state.digest.value().encode(&mut out);
    out
}

impl Snapshots {
    pub(super) fn durable_through(&self) -> Slot {
        self.durable_through
    }

    pub(super) fn count_executed(&mut self, bytes: usize) {
        self.executed_bytes += bytes as u64;
    }
}

/// Writing snapshots, and reading one back after a restart.
impl<S: StateMachine> Replica<S> {
    pub(super) fn step_snapshot(&mut self, cx: &mut Cx<'_, Self>) {
        if self.snapshots.job.is_none()
            && !self.joining
            && let Some(writer) = self.due_snapshot(cx)
        {
            let begin = cx.append(&ReplicaRecord::Begin { through: writer.through });
            if planted!(snapshot_durable_when_begun) {
                self.snapshots.durable_through = writer.through;
            }
            self.snapshots.job = Some(Job::Writing { writer, begin, stepped_at: cx.now() });
        }
        let Some(Job::Writing { writer, begin, stepped_at }) = &mut self.snapshots.job else { return };
        if cx.now().since(*stepped_at) < CHUNK_EVERY {
            return cx.set_timer(super::ReplicaTimer::Snapshot, CHUNK_EVERY);
        }
        *stepped_at = cx.now();
        let (bytes, last) = writer.next(&mut self.machine, self.parameters.snapshot_chunk_bytes);
        cx.append(&ReplicaRecord::Chunk { bytes });
        if !last {
            return cx.set_timer(super::ReplicaTimer::Snapshot, CHUNK_EVERY);
        }
        let (begin, through) = (*begin, writer.through);
        let end = cx.append(&ReplicaRecord::End);
        cx.trim(if planted!(trim_keeps_only_end_of_snapshot) { end } else { begin });
        cx.mark("replica.wrote_a_snapshot");
        self.snapshots.durable_through = through;
        self.snapshots.job = None;
    }

    fn due_snapshot(&mut self, cx: &mut Cx<'_, Self>) -> Option<Writer> {
        let (every, chunk_bytes) =
            (self.parameters.snapshot_every_bytes, self.parameters.snapshot_chunk_bytes);
        let capture_every = every / CAPTURES_MAX as u64;
        if self.owes_a_snapshot() {
            (self.snapshots.executed_bytes, self.snapshots.captures) = (0, VecDeque::new());
            return Some(Writer::begin(&self.state, &mut self.machine, chunk_bytes));
        }
        let snapshots = &mut self.snapshots;
        if snapshots.executed_bytes >= capture_every
            && snapshots.captures.len() < CAPTURES_MAX
            && let Some(Capture { number, chunks }) = self.machine.capture()
        {
            snapshots.executed_bytes = 0;
            let mut writer = Writer::of(&self.state, chunk_bytes);
            writer.pieces.extend(chunks);
            snapshots.captures.push_back((writer, number));
        }
        let captures = &mut snapshots.captures;
        if captures.is_empty() {
            if snapshots.executed_bytes < every {
                return None;
            }
            snapshots.executed_bytes = 0;
            return Some(Writer::begin(&self.state, &mut self.machine, chunk_bytes));
        }
        let affordable = |number| self.machine.needed_of(number) as u64 <= capture_every / NEEDED_SHARE;
        let written = captures.partition_point(|(_, number)| affordable(*number));
        let full = captures.len() == CAPTURES_MAX;
        let (mut writer, number) = captures.drain(..written.max(usize::from(full))).next_back()?;
        cx.mark(if written > 0 { "replica.wrote_a_ripe_capture" } else { "replica.wrote_an_unripe_capture" });
        writer.pieces.extend(self.machine.completion(number));
        writer.complete = true;
        Some(writer)
    }

    /// A change of membership waits until what came before it is durable in the replicas.
    fn owes_a_snapshot(&self) -> bool {
        let latest = self.state.configurations.latest();
        let first = latest.first_slot;
        latest.version > 0 && self.snapshots.durable_through <= first && first < self.state.executed
    }

    pub(super) fn restore_snapshot(&mut self, _position: Position, record: ReplicaRecord) {
        match record {
            ReplicaRecord::Begin { through } => {
                self.snapshots.restoring = Some(Restoring { through, chunks: Vec::new() });
            }
            ReplicaRecord::Chunk { bytes } => {
                // The rest of a snapshot whose beginning was trimmed has no use.
                if let Some(restoring) = &mut self.snapshots.restoring {
                    restoring.chunks.push(bytes);
                }
            }
            ReplicaRecord::End => {
                let Some(Restoring { through, chunks }) = self.snapshots.restoring.take() else { return };
                let installed = self.install(&chunks);
                invariant!(
                    DUR,
                    installed == Ok(through),
                    "own snapshot through {through} reads back as {installed:?}"
                );
                self.snapshots.durable_through = through;
            }
        }
    }

    /// Replaces the whole state by a snapshot.
    fn install(&mut self, chunks: &[Bytes]) -> Result<Slot, DecodeError> {
        let (preamble, rest) = chunks.split_first().ok_or(DecodeError::Truncated)?;
        let Preamble { through, pieces } = Preamble::decoded(preamble)?;
        let pieces = pieces as usize;
        if rest.len() < pieces {
            return Err(DecodeError::Truncated);
        }
        let mut state = Reader::new(rest[..pieces].concat().into());
        let configurations = Configurations::decode(&mut state)?;
        self.checkpoints.forget();
        self.snapshots.captures.clear();
        self.state.sessions.install(&mut state)?;
        self.state.digest = Digest::of(u64::decode(&mut state)?);
        self.machine.reset();
        for chunk in &rest[pieces..] {
            self.machine.install(chunk)?;
        }
        self.state.configurations = configurations;
        self.state.executed = through;
        self.joining = false;
        self.log.advance(through);
        self.resume.begin_at(through);
        self.forget_all_retained();
        Ok(through)
    }
}

/// Handing snapshots over.
impl<S: StateMachine> Replica<S> {
    pub(super) fn is_installing(&self) -> bool {
        self.snapshots.transfers.is_under_way()
    }

    pub(super) fn begin_transfer(&mut self, peer: NodeId, cx: &mut Cx<'_, Self>) {
        if self.is_installing() {
            return;
        }
        let transfer = cx.rng().bits();
        Self::pull(self.snapshots.transfers.begin(peer, transfer, cx.now()), cx);
    }

    fn pull(Wanted { peer, transfer, index }: Wanted, cx: &mut Cx<'_, Self>) {
        cx.send(peer, PullSnapshot { transfer, index });
    }

    pub(super) fn retry_transfer(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(Job::Serving { offer, .. }) = &self.snapshots.job
            && offer.is_abandoned(cx.now())
        {
            self.snapshots.job = None;
        }
        match self.snapshots.transfers.look(cx.now()) {
            Look::Fine => {}
            Look::Ask(wanted) => {
                cx.mark("replica.pulled_a_chunk_again");
                Self::pull(wanted, cx);
            }
            Look::GivenUp => cx.mark("replica.gave_up_a_transfer"),
        }
    }

    pub(super) fn on_pull_snapshot(&mut self, from: NodeId, message: PullSnapshot, cx: &mut Cx<'_, Self>) {
        let (PullSnapshot { transfer, index }, now) = (message, cx.now());
        let chunk_bytes = self.parameters.snapshot_chunk_bytes;
        if (index == 0 || planted!(chunks_of_two_snapshots_mixed))
            && self.snapshots.job.is_none()
            && !self.joining
        {
            let mut writer = Writer::begin(&self.state, &mut self.machine, chunk_bytes);
            let mut offer = Offer::begin(from, transfer, writer.next(&mut self.machine, chunk_bytes), now);
            for skipped in 1..index {
                offer.on_wanted(from, transfer, skipped, now, || writer.next(&mut self.machine, chunk_bytes));
            }
            self.snapshots.job = Some(Job::Serving { writer, offer });
        }
        let Some(Job::Serving { writer, offer }) = &mut self.snapshots.job else { return };
        let make = || writer.next(&mut self.machine, chunk_bytes);
        match offer.on_wanted(from, transfer, index, now, make) {
            Offered::Stale => {}
            Offered::Page { bytes: chunk, last } => {
                cx.send(from, SnapshotChunk { transfer, through: writer.through, index, chunk, last });
            }
            Offered::Done => {
                cx.mark("replica.served_a_snapshot");
                self.snapshots.job = None;
            }
        }
    }

    pub(super) fn on_snapshot_chunk(&mut self, from: NodeId, message: SnapshotChunk, cx: &mut Cx<'_, Self>) {
        let SnapshotChunk { transfer, through, index, chunk, last } = message;
        let version = if planted!(chunks_of_two_snapshots_mixed) { Slot(0) } else { through };
        let page = Page { transfer, version, index, bytes: chunk, last };
        let chunks = match self.snapshots.transfers.on_page(from, page, cx.now()) {
            Taken::Stale => return,
            Taken::OfAnother => return cx.mark("replica.refused_a_chunk_of_another_snapshot"),
            Taken::Next(wanted) => return Self::pull(wanted, cx),
            Taken::Whole(wanted, chunks) => {
                Self::pull(wanted, cx);
                chunks
            }
        };
        let through = Preamble::decoded(&chunks[0]).map(|preamble| preamble.through);
        if !through.is_ok_and(|through| through > self.state.executed || self.joining) {
            return;
        }
        match self.install(&chunks) {
            Ok(_) => {
                cx.mark("replica.took_a_snapshot_from_a_peer");
                self.snapshots.job = None;
                self.snapshots.executed_bytes = self.parameters.snapshot_every_bytes;
                self.execute(cx);
                self.tell_notices(cx);
            }
            // Half of it may be installed: nothing may be executed on top or handed on, so ask again from nothing.
            Err(_) => {
                cx.reject("snapshot that does not decode");
                self.state.executed = Slot(0);
                self.joining = true;
                self.begin_transfer(from, cx);
            }
        }
    }
}

impl Encode for ReplicaRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { through } => {
                out.push(1);
                through.encode(out);
            }
            Self::Chunk { bytes } => {
                out.push(2);
                bytes.encode(out);
            }
            Self::End => out.push(3),
        }
    }
}

impl Decode for ReplicaRecord {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match u8::decode(input)? {
            1 => Self::Begin { through: input.field()? },
            2 => Self::Chunk { bytes: input.field()? },
            3 => Self::End,
            tag => return Err(DecodeError::UnknownTag("replica record", tag)),
        })
    }
}
