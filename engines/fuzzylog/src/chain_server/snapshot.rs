//! Snapshots: what of a partition's state replaces the beginning of its row, in the journal and for servers that lack it.
//!
//! ```text
//! journal:   names  Begin(i)  Chunk  command  Chunk ... End(i)     commands from i on are retained, and what is behind the names
//! ```
//! A snapshot is of what is applied, and written while commands go on. It begins when everything that it holds is known to be on the
//! disks of all servers of the chain in force, those that were let in last too; so no member of a chain ever lacks what the one
//! before it has as a snapshot only. A server that joins takes the snapshot of the one that it copies, and when it has all of it writes
//! it to its own journal, chunk by chunk; then it is the server's state, and the row goes on from there. What comes meanwhile its source
//! has in memory.
//!
//! Invariant: while a server is sealed for an epoch that it does not serve, its row begins where it has said, also after a restart.

use super::{
    Applied, ChainServer, ChainTimer, Copies, JournalName, PullState, SealedFor, Serves, SnapshotPage,
};
use crate::partition::PartitionState;
use crate::terms::RowIndex;
use kernel::{BlobId, Bytes, Cx, NodeId, Position, planted};
use parts::{
    Look, Page, Restored, Served, SnapshotRecord, Snapshots, TakenPage, WantedPage, WrittenSnapshot, chunk_of,
};
use std::collections::BTreeSet;

/// One is due as well when the journal has so many times what is retained, and the least: what was trimmed is to go.
const GARBAGE_FACTOR: usize = 2;
/// So many notes of what is applied in the bytes of commands that stay in memory.
const NOTES: usize = 2;

/// A snapshot that is written or handed over.
#[derive(Clone, Debug)]
struct Writer {
    /// The first record that is needed when it is complete.
    from: Position,
}

/// Its next chunk, and whether it is the last.
fn next_chunk(state: &mut PartitionState, budget: usize) -> (Bytes, bool) {
    chunk_of(budget, |budget, chunk| state.snapshot_step(budget, chunk))
}

/// Another server's snapshot, which is written, and is to be the state then.
#[derive(Clone, Debug)]
struct Taken {
    state: Box<PartitionState>,
    /// The question that had its source know that all of it has come.
    wanted: WantedPage,
}

/// What a server knows of its snapshots.
#[derive(Clone, Debug, Default)]
pub(super) struct Saved {
    snapshots: Snapshots<RowIndex, Writer>,
    /// Bytes of the last one, or of the one that is written.
    bytes: usize,
    /// Bytes of commands that were appended since the last one began.
    grown: usize,
    /// Bytes of commands that were applied since the journal noted it.
    unnoted: usize,
    /// The last one that has begun, or was taken, is of all commands below.
    below: RowIndex,
    /// The journal notes, as far as it was read back, that all commands below were applied.
    noted: RowIndex,
    /// One that was taken is written.
    taken: Option<Taken>,
}

impl Saved {
    pub(super) fn has_grown(&mut self, bytes: usize) {
        self.grown += bytes;
    }

    /// True from the first question for another server's snapshot until it is this one's state.
    pub(super) fn is_taking(&self) -> bool {
        self.snapshots.is_taking() || self.taken.is_some()
    }

    /// What its source is asked again while it is written.
    pub(super) fn installing(&self) -> Option<WantedPage> {
        self.taken.as_ref().map(|taken| taken.wanted)
    }

    pub(super) fn stop_taking(&mut self) {
        self.snapshots.stop_taking();
    }
}

/// Writing.
impl ChainServer {
    /// The first command that the row has, in memory or after a restart.
    pub fn base(&self) -> RowIndex {
        self.row.base().max(self.saved.below)
    }

    /// The last snapshot that was written, or is being written, is of all commands below.
    pub fn saved_below(&self) -> RowIndex {
        self.saved.below
    }

    /// Bytes of the commands and snapshots that its journal has, about.
    pub fn journal_bytes(&self) -> usize {
        self.saved.bytes + self.saved.grown
    }

    /// All servers of its chain have the row up to here, as far as this one knows; none while its row must stay as it is.
    fn settled(&self) -> Option<RowIndex> {
        if self.serves().is_some() {
            return Some(self.state.applied().min(self.links.stable));
        }
        let copies = self.copy.as_ref().is_some_and(|copy| copy.epoch() == self.sealed);
        copies.then(|| self.state.applied())
    }

    fn is_due(&self) -> bool {
        let (every, live) = (self.parameters.snapshot_every_bytes, self.state.live_bytes());
        // By as much as the last one has, or the least: so snapshots write about as much as the row does.
        let grown = self.saved.grown >= every.max(self.saved.bytes);
        let stored = self.journal_bytes() + self.state.segment_bytes();
        grown || self.saved.grown > 0 && stored >= GARBAGE_FACTOR * live + every
    }

    /// The state of which the snapshot is that is written.
    pub(super) fn written_state(&mut self) -> &mut PartitionState {
        self.saved.taken.as_mut().map_or(&mut self.state, |taken| &mut taken.state)
    }

    /// The first record that is needed when the snapshot is complete is this.
    fn begin_own_snapshot(&mut self, below: RowIndex, from: Position, cx: &mut Cx<'_, Self>) {
        let (segment_bytes, series) = (self.parameters.segment_bytes, self.blobs.next_series(self.run));
        self.written_state().begin_own_snapshot(segment_bytes, series);
        self.saved.snapshots.begin(below, Writer { from }, cx);
        if planted!(segment_dropped_too_early) {
            self.drop_segments_but(BTreeSet::new(), cx);
        }
    }

    /// Begins a snapshot if it is due, and goes on with the one that is written.
    pub(super) fn write_snapshot(&mut self, cx: &mut Cx<'_, Self>) {
        let (settled, applied) = (self.settled(), self.state.applied());
        // Sealed, it takes nothing, but completes what it has begun: its row begins there already, as far as others know, and who joins
        // waits for it.
        if settled.is_none() && self.saved.taken.is_some() {
            return;
        }
        let may_begin = self.saved.snapshots.is_idle() && !self.saved.is_taking() && settled == Some(applied);
        if may_begin && self.is_due() && applied > self.saved.below {
            let from = self.write_names(cx);
            let from = self.row.record_from(applied).map_or(from, |record| record.min(from));
            (self.saved.bytes, self.saved.grown, self.saved.below) = (0, 0, applied);
            self.begin_own_snapshot(applied, from, cx);
            if planted!(row_dropped_before_snapshot) {
                cx.trim(from);
            }
        }
        if self.saved.snapshots.is_writing() {
            self.write_chunk(cx);
        }
    }

    /// Writes the next chunk of the snapshot that is written, unless that waits for segments.
    fn write_chunk(&mut self, cx: &mut Cx<'_, Self>) {
        if self.waits_for_segments() {
            return cx.mark("chain.snapshot_waits_for_segments");
        }
        let named: BTreeSet<BlobId> = self.written_state().named_segments().collect();
        let Saved { snapshots, taken, bytes, .. } = &mut self.saved;
        let state = taken.as_mut().map_or(&mut self.state, |taken| &mut taken.state);
        let budget = self.parameters.snapshot_chunk_bytes;
        let next = |_: &mut Writer| {
            let (chunk, last) = next_chunk(state, budget);
            *bytes += chunk.len();
            (chunk, last)
        };
        let written = snapshots.step(ChainTimer::Snapshot, cx, next);
        self.store_cut_segments(cx);
        for mark in self.state.take_marks() {
            cx.mark(mark);
        }
        if let Some(WrittenSnapshot { below, writer, .. }) = written {
            // What replaces the records before is durable before they go.
            cx.trim(writer.from);
            cx.mark("chain.wrote_a_snapshot");
            let taken = self.saved.taken.take();
            let is_taken = taken.is_some();
            if let Some(Taken { state, .. }) = taken {
                self.install_snapshot(below, *state, cx);
            }
            self.drop_segments_but(named, cx);
            if is_taken {
                self.pull(cx);
            }
        }
    }

    /// Writes again what must not be lost with the journal's beginning. Returns where that stands.
    fn write_names(&self, cx: &mut Cx<'_, Self>) -> Position {
        let from = cx.cursor();
        if let Some(journal) = self.journal {
            cx.append(&JournalName { journal }.into());
        }
        cx.append(&SealedFor { epoch: self.sealed }.into());
        cx.append(&Serves { epoch: self.opened }.into());
        if let Some(epoch) = self.copied {
            cx.append(&Copies { epoch }.into());
        }
        from
    }

    /// Notes in the journal how far the row is applied, so that a restart need not hold more of it in memory.
    pub(super) fn note_applied(&mut self, bytes: usize, cx: &mut Cx<'_, Self>) {
        self.saved.unnoted += bytes;
        if self.saved.unnoted > self.parameters.row_memory_bytes / NOTES {
            self.saved.unnoted = 0;
            cx.append(&Applied { through: self.state.applied() }.into());
        }
    }

    /// Lets commands go from memory that no server of the chain lacks, but for so many bytes of them for servers that join, and for what
    /// those lack that take a snapshot.
    pub(super) fn drop_commands(&mut self, cx: &mut Cx<'_, Self>) {
        // What was applied in this burst stays until the next one.
        let before = std::mem::replace(&mut self.was_applied, self.state.applied());
        let Some(settled) = self.settled() else { return };
        let below = settled.min(before);
        self.drop_commands_below(below);
        let most = self.window + self.parameters.row_memory_bytes;
        while self.row.bytes() > most + self.retained.bytes_max()
            && self.retained.lacked_from().is_some_and(|lacked| lacked < below)
        {
            cx.mark("chain.gave_up_who_joins");
            self.retained.give_up_last();
            self.drop_commands_below(below);
        }
        if self.row.bytes() <= most {
            self.retained.all_is_gone();
        }
    }

    fn drop_commands_below(&mut self, below: RowIndex) {
        let most = self.window + self.parameters.row_memory_bytes;
        let below = self.retained.lacked_from().map_or(below, |lacked| lacked.min(below));
        while self.row.bytes() > most && self.row.drop_first(below) {}
    }
}

/// Reading back.
impl ChainServer {
    pub(super) fn restore_part(&mut self, part: SnapshotRecord<RowIndex>) {
        let Some(Restored { below, chunks }) = self.saved.snapshots.restore(part) else { return };
        self.saved.snapshots.set_durable(below);
        (self.saved.bytes, self.saved.below) = (self.saved.snapshots.bytes() as usize, below);
        self.saved.grown = self.row.from(below).map(super::row::entry_bytes).sum();
        let read = PartitionState::of_chunks(self.partition, self.placement, self.parameters.order, chunks);
        let applied = read.as_ref().map(PartitionState::applied);
        kernel::invariant!(DUR, applied == Ok(below), "own snapshot of {below} reads back as {applied:?}");
        if let Ok(state) = read {
            self.blobs.restored(state.segments().map(|blob| blob.id));
            if below <= self.state.applied() {
                return;
            }
            self.state = state;
            // A row that ends before is an old one, whose rest is in the snapshot.
            if self.length() < below {
                self.row.begin_at(below);
            }
            self.apply_noted();
        }
    }

    /// What was applied in an earlier run is applied again.
    pub(super) fn restore_applied(&mut self, through: RowIndex) {
        self.saved.noted = through.max(self.saved.noted);
        // The state before is still to come, if it is not there.
        if self.row.base() <= self.state.applied() {
            self.apply_noted();
        }
    }

    fn apply_noted(&mut self) {
        if self.state.missing_segments().next().is_some() {
            return;
        }
        self.apply_silently(self.saved.noted);
        self.window = 0;
        self.drop_commands_below(self.state.applied());
    }

    /// The row ended there. What was applied stays: each chain has that.
    pub(super) fn restore_cut(&mut self, length: RowIndex) {
        self.row.truncate(length.max(self.state.applied()));
    }

    fn apply_silently(&mut self, through: RowIndex) {
        while self.state.applied() < through
            && let Some(entry) = self.row.get(self.state.applied())
        {
            self.state.apply(entry);
        }
        // They were given in the earlier run.
        self.state.take_answers();
        self.state.take_marks();
    }

    /// All records were read back.
    pub(super) fn end_restoring(&mut self) {
        self.saved.snapshots.drop_unfinished();
        self.apply_noted();
        let (base, applied, length) = (self.row.base(), self.state.applied(), self.length());
        kernel::invariant!(
            DUR,
            base <= applied && applied <= length,
            "the journal has commands from {base} to {length}, and a state after {applied}"
        );
    }
}

/// Handing over, and taking.
impl ChainServer {
    pub(super) fn take_snapshot(&mut self, source: NodeId, cx: &mut Cx<'_, Self>) {
        cx.mark("chain.asked_for_a_snapshot");
        self.drop_snapshot();
        let wanted = self.saved.snapshots.take_from(source, cx);
        self.ask_for_page(wanted, cx);
    }

    /// What is written or handed over is not gone on with.
    pub(super) fn drop_snapshot(&mut self) {
        self.saved.snapshots.drop_job();
        self.saved.taken = None;
        self.state.end_snapshot();
    }

    pub(super) fn ask_for_page(&self, wanted: WantedPage, cx: &mut Cx<'_, Self>) {
        let Some((epoch, journal)) = self.copy.as_ref().map(|copy| (copy.epoch(), copy.journal())) else {
            return;
        };
        let WantedPage { peer, transfer, index } = wanted;
        cx.send(peer, PullState { transfer, index, epoch, journal });
    }

    /// Asks again for what was lost, and no more for what nobody gives.
    pub(super) fn look_after_snapshots(&mut self, cx: &mut Cx<'_, Self>) {
        let was_idle = self.saved.snapshots.is_idle();
        self.saved.snapshots.drop_abandoned(cx.now());
        if !was_idle && self.saved.snapshots.is_idle() {
            self.state.end_snapshot();
        }
        self.retained.forget_silent(cx.now());
        match self.saved.snapshots.look(cx.now()) {
            Look::Fine | Look::GivenUp => {}
            Look::Ask(wanted) => {
                cx.mark("chain.asked_for_a_page_again");
                self.ask_for_page(wanted, cx);
            }
        }
    }

    pub(super) fn on_pull_snapshot(&mut self, from: NodeId, message: &PullState, cx: &mut Cx<'_, Self>) {
        let PullState { transfer, index, epoch, journal } = *message;
        if self.journal != Some(journal) || self.opened != epoch {
            return;
        }
        let (wanted, now, budget) = ((from, transfer, index), cx.now(), self.parameters.snapshot_chunk_bytes);
        self.retained.on_question(from, transfer, now);
        let state = &mut self.state;
        if index == 0 && self.saved.snapshots.is_idle() && !self.saved.is_taking() {
            state.begin_snapshot();
            let below = state.applied();
            let writer = Writer { from: cx.cursor() };
            let next = |_: &mut Writer| next_chunk(state, budget);
            self.saved.snapshots.serve(wanted, (below, writer), now, next);
            self.retained.begin(from, transfer, (below, self.state.live_bytes()), now);
        }
        let state = &mut self.state;
        match self.saved.snapshots.on_wanted(wanted, now, |_| next_chunk(state, budget)) {
            Served::Nothing => {}
            Served::Chunk { below, bytes, last } => {
                // What a tail has applied may not be on its own disk.
                cx.send_durable(from, SnapshotPage { transfer, below, index, last, bytes });
            }
            Served::Done => cx.mark("chain.handed_a_snapshot_over"),
        }
    }

    pub(super) fn on_snapshot_page(&mut self, from: NodeId, message: SnapshotPage, cx: &mut Cx<'_, Self>) {
        let SnapshotPage { transfer, below, index, last, bytes } = message;
        // Sealed for another epoch, it takes nothing.
        let sealed = self.sealed;
        if self.copy.as_ref().is_none_or(|copy| copy.epoch() != sealed || copy.source() != from) {
            return;
        }
        let page = Page { transfer, version: below, index, bytes, last };
        let (wanted, chunks) = match self.saved.snapshots.on_chunk(from, page, cx.now()) {
            TakenPage::Stale => return,
            TakenPage::OfAnother => return cx.mark("chain.refused_a_page_of_another_snapshot"),
            TakenPage::Next(wanted) => return self.ask_for_page(wanted, cx),
            TakenPage::Whole(wanted, chunks) => {
                self.ask_for_page(wanted, cx);
                (wanted, chunks)
            }
        };
        let read =
            PartitionState::of_chunks(self.partition, self.placement, self.parameters.order, chunks).ok();
        let is_whole = |it: &PartitionState| it.missing_segments().next().is_none();
        let is_sound = |it: &PartitionState| it.applied() == below && is_whole(it);
        let Some(state) = read.filter(|it| is_sound(it) && below > self.state.applied()) else {
            cx.reject("snapshot that cannot be read, or is of other commands than it says");
            return self.pull(cx);
        };
        let from = self.write_names(cx);
        let taken = Some(Taken { state: Box::new(state), wanted });
        (self.saved.bytes, self.saved.taken) = (0, taken);
        self.begin_own_snapshot(below, from, cx);
    }

    /// It stands in the journal, and is the state from now on.
    fn install_snapshot(&mut self, below: RowIndex, state: PartitionState, cx: &mut Cx<'_, Self>) {
        cx.mark("chain.installed_a_snapshot");
        (self.saved.grown, self.saved.below) = (0, below);
        (self.state, self.window, self.was_applied) = (state, 0, below);
        self.row.begin_at(below);
    }
}
