//! Snapshots: written to the journal so that it can be trimmed, and handed to peers that lag too far.
//!
//! A snapshot is a row of chunks: a preamble, the replicated state in pieces, then the machine's own chunks. It is taken
//! while commands go on; the machine keeps what it needs for that.
//!
//! Of a machine that keeps much for others, the small rest is captured often, and the latest capture is written of which hardly anything
//! retained is needed still: so what is retained is in the acceptors' journals and is not copied into snapshots, too.

use super::divergence::Digest;
use super::{PullSnapshot, Replica, ReplicaTimer, Replicated, SnapshotChunk};
use crate::configuration::Configurations;
use kernel::{Bytes, Capture, Cx, Decode, DecodeError, Encode, NodeId, Position, Reader, StateMachine};
use kernel::{invariant, planted};
use parts::{
    Look, Page, ReadBack, Restored, Served, Slot, SnapshotRecord, TakenPage, WantedPage, WrittenSnapshot,
    chunk_of,
};
use std::collections::VecDeque;

/// Captures that wait; then the oldest is written, whatever is needed of what was retained at it.
const CAPTURES_MAX: usize = 8;
/// A capture is written when no more than this share of what was executed between two captures is still needed of it.
const NEEDED_SHARE: u64 = 8;

/// A snapshot is not written more often than so many times while as much as it holds is executed: what is written stays in proportion
/// to the commands, and what is read at a start to the state.
const SNAPSHOTS_PER_SIZE: u64 = 4;

/// When the next snapshot is due, and of what.
#[derive(Clone, Debug, Default)]
pub(super) struct Due {
    executed_bytes: u64,
    captures: VecDeque<(Writer, u64)>,
}

/// Produces the chunks of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct Writer {
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

/// A snapshot that is being installed, chunk by chunk: what is not the machine's waits for the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Installation {
    preamble: Option<Preamble>,
    replicated: Vec<Bytes>,
    /// Why it cannot be installed.
    fault: Option<DecodeError>,
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
        chunk_of(chunk_bytes, |budget, chunk| machine.snapshot_step(budget, chunk))
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

impl Due {
    pub(super) fn count_executed(&mut self, bytes: usize) {
        self.executed_bytes += bytes as u64;
    }
}

/// Writing snapshots, and reading one back after a restart.
impl<S: StateMachine> Replica<S> {
    pub(super) fn step_snapshot(&mut self, cx: &mut Cx<'_, Self>) {
        if self.snapshots.is_idle()
            && !self.joining
            && !self.is_resuming()
            && let Some(writer) = self.due_snapshot(cx)
        {
            let through = writer.through;
            self.snapshots.begin(through, writer, cx);
            if planted!(snapshot_durable_when_begun) {
                self.snapshots.set_durable(through);
            }
        }
        let (machine, chunk_bytes) = (&mut self.machine, self.parameters.snapshot_chunk_bytes);
        let next = |writer: &mut Writer| writer.next(machine, chunk_bytes);
        if let Some(WrittenSnapshot { begin, end, .. }) =
            self.snapshots.step(ReplicaTimer::Snapshot, cx, next)
        {
            cx.trim(if planted!(trim_keeps_only_end_of_snapshot) { end } else { begin });
            self.have_votes_held(cx);
            cx.mark("replica.wrote_a_snapshot");
        }
    }

    fn due_snapshot(&mut self, cx: &mut Cx<'_, Self>) -> Option<Writer> {
        let (every, chunk_bytes) =
            (self.parameters.snapshot_every_bytes, self.parameters.snapshot_chunk_bytes);
        let capture_every = every / CAPTURES_MAX as u64;
        if self.owes_a_snapshot() {
            (self.due.executed_bytes, self.due.captures) = (0, VecDeque::new());
            return Some(Writer::begin(&self.state, &mut self.machine, chunk_bytes));
        }
        let due = &mut self.due;
        if due.executed_bytes >= capture_every
            && due.captures.len() < CAPTURES_MAX
            && let Some(Capture { number, chunks }) = self.machine.capture()
        {
            due.executed_bytes = 0;
            let mut writer = Writer::of(&self.state, chunk_bytes);
            writer.pieces.extend(chunks);
            due.captures.push_back((writer, number));
        }
        let captures = &mut due.captures;
        if captures.is_empty() {
            if due.executed_bytes < every.max(self.snapshots.bytes() / SNAPSHOTS_PER_SIZE) {
                return None;
            }
            due.executed_bytes = 0;
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
        latest.version > 0 && self.snapshots.durable_below() <= first && first < self.state.executed
    }

    pub(super) fn restore_snapshot(&mut self, position: Position, record: SnapshotRecord<Slot>) {
        match self.snapshots.restore_by_chunks(position, record) {
            ReadBack::Nothing => {}
            ReadBack::Chunk(chunk) => {
                let mut installation = std::mem::take(&mut self.restoring);
                self.install_chunk(&mut installation, chunk);
                self.restoring = installation;
            }
            ReadBack::Whole(Restored { below, chunks }) => {
                let begun = std::mem::take(&mut self.restoring);
                let installed = self.install(begun, chunks);
                invariant!(
                    DUR,
                    installed == Ok(below),
                    "own snapshot through {below} reads back as {installed:?}"
                );
                self.snapshots.set_durable(below);
            }
        }
    }

    /// Replaces the whole state by a snapshot, of which some chunks may have been installed already. Each is freed when it is installed,
    /// or the state would be in memory twice.
    fn install(&mut self, mut installation: Installation, chunks: Vec<Bytes>) -> Result<Slot, DecodeError> {
        for chunk in chunks {
            self.install_chunk(&mut installation, chunk);
        }
        let Installation { preamble, replicated, fault } = installation;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let Preamble { through, pieces } = preamble.ok_or(DecodeError::Truncated)?;
        if replicated.len() < pieces as usize {
            return Err(DecodeError::Truncated);
        }
        let mut state = Reader::new(replicated.concat().into());
        let configurations = Configurations::decode(&mut state)?;
        self.checkpoints.forget();
        self.due.captures.clear();
        self.state.sessions.install(&mut state)?;
        self.state.digest = Digest::of(u64::decode(&mut state)?);
        self.state.configurations = configurations;
        self.state.executed = through;
        self.joining = false;
        self.log.advance(through);
        self.resume.begin_at(through);
        if !planted!(retained_values_stay_across_snapshot) {
            self.forget_all_retained();
        }
        Ok(through)
    }

    /// Takes the next chunk, unless one before it was not what it must be.
    fn install_chunk(&mut self, installation: &mut Installation, chunk: Bytes) {
        let Installation { preamble, replicated, fault } = installation;
        let taken = match preamble {
            _ if fault.is_some() => Ok(()),
            None => Preamble::decoded(&chunk).map(|first| {
                let (through, executed) = (first.through, self.state.executed);
                invariant!(
                    PREFIX,
                    through >= executed || self.joining,
                    "a snapshot through {through} undoes what is executed up to {executed}"
                );
                *preamble = Some(first);
                self.machine.reset();
            }),
            Some(Preamble { pieces, .. }) if replicated.len() < *pieces as usize => {
                replicated.push(chunk);
                Ok(())
            }
            Some(_) => self.machine.install(&chunk),
        };
        *fault = fault.take().or(taken.err());
    }
}

/// Handing snapshots over.
impl<S: StateMachine> Replica<S> {
    pub(super) fn is_installing(&self) -> bool {
        self.snapshots.is_taking()
    }

    pub(super) fn begin_transfer(&mut self, peer: NodeId, cx: &mut Cx<'_, Self>) {
        if !self.is_installing() {
            Self::pull(self.snapshots.take_from(peer, cx), cx);
        }
    }

    fn pull(WantedPage { peer, transfer, index }: WantedPage, cx: &mut Cx<'_, Self>) {
        cx.send(peer, PullSnapshot { transfer, index });
    }

    pub(super) fn retry_transfer(&mut self, cx: &mut Cx<'_, Self>) {
        self.snapshots.drop_abandoned(cx.now());
        match self.snapshots.look(cx.now()) {
            Look::Fine => {}
            Look::Ask(wanted) => {
                cx.mark("replica.pulled_a_chunk_again");
                Self::pull(wanted, cx);
            }
            Look::GivenUp => cx.mark("replica.gave_up_a_transfer"),
        }
    }

    pub(super) fn on_pull_snapshot(&mut self, from: NodeId, message: PullSnapshot, cx: &mut Cx<'_, Self>) {
        let PullSnapshot { transfer, index } = message;
        let (wanted, now) = ((from, transfer, index), cx.now());
        let begins = index == 0 || planted!(chunks_of_two_snapshots_mixed);
        let (machine, chunk_bytes) = (&mut self.machine, self.parameters.snapshot_chunk_bytes);
        if begins && self.snapshots.is_idle() && !self.joining {
            let writer = Writer::begin(&self.state, machine, chunk_bytes);
            let made = (writer.through, writer);
            self.snapshots.serve(wanted, made, now, |writer| writer.next(machine, chunk_bytes));
        }
        match self.snapshots.on_wanted(wanted, now, |writer| writer.next(machine, chunk_bytes)) {
            Served::Nothing => {}
            Served::Chunk { below: through, bytes: chunk, last } => {
                cx.send(from, SnapshotChunk { transfer, through, index, chunk, last });
            }
            Served::Done => cx.mark("replica.served_a_snapshot"),
        }
    }

    pub(super) fn on_snapshot_chunk(&mut self, from: NodeId, message: SnapshotChunk, cx: &mut Cx<'_, Self>) {
        let SnapshotChunk { transfer, through, index, chunk, last } = message;
        let version = if planted!(chunks_of_two_snapshots_mixed) { Slot(0) } else { through };
        let page = Page { transfer, version, index, bytes: chunk, last };
        let chunks = match self.snapshots.on_chunk(from, page, cx.now()) {
            TakenPage::Stale => return,
            TakenPage::OfAnother => return cx.mark("replica.refused_a_chunk_of_another_snapshot"),
            TakenPage::Next(wanted) => return Self::pull(wanted, cx),
            TakenPage::Whole(wanted, chunks) => {
                Self::pull(wanted, cx);
                chunks
            }
        };
        let through = Preamble::decoded(&chunks[0]).map(|preamble| preamble.through);
        if !through.is_ok_and(|through| through > self.state.executed || self.joining) {
            return;
        }
        match self.install(Installation::default(), chunks) {
            Ok(_) => {
                cx.mark("replica.took_a_snapshot_from_a_peer");
                self.snapshots.drop_job();
                self.due.executed_bytes = u64::MAX / 2;
                self.execute(cx);
                // Nothing may come behind the snapshot for long.
                self.answer_waiting_reads(cx);
                self.send_notices(cx);
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
