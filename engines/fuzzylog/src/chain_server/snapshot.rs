//! Snapshots: what of a partition's state replaces the beginning of its row, in the journal and for servers that join.
//!
//! A snapshot is of what is applied. It is written in pieces, between commands; when its last piece is durable, the journal goes up to
//! its first one. It is written again when the row has grown as large as the snapshot is, so that at most half of what is written is
//! written again.

use super::{
    ChainRecord, ChainServer, JournalName, PullSnapshot, PulledSnapshot, SealedFor, Serves, SnapshotPiece,
};
use crate::partition::PartitionState;
use crate::terms::RowIndex;
use kernel::{Bytes, Cx, Instant, NodeId, Position};
use std::collections::VecDeque;
use std::time::Duration;

/// Pieces that are written in one turn.
const PIECES_A_TURN: usize = 8;
/// A joining server that was not heard for so long is given no more of a snapshot.
const OFFERED_FOR: Duration = Duration::from_secs(2);

/// The snapshot of the journal, and the one that is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshots {
    /// The last one is of all commands below.
    index: RowIndex,
    /// Its bytes.
    bytes: usize,
    /// Bytes of commands that were appended since.
    grown: usize,
    writing: Option<Writing>,
    /// Pieces of one that is read back, and of what.
    reading: Option<(RowIndex, Vec<Bytes>)>,
    offer: Option<Offer>,
}

#[derive(Clone, Debug)]
struct Writing {
    index: RowIndex,
    begin: Position,
    left: VecDeque<Bytes>,
    number: u32,
    bytes: usize,
}

/// A snapshot for a joining server.
#[derive(Clone, Debug)]
struct Offer {
    session: u64,
    index: RowIndex,
    pieces: Vec<Bytes>,
    asked_at: Instant,
}

impl Snapshots {
    pub(super) fn has_grown(&mut self, bytes: usize) {
        self.grown += bytes;
    }
}

impl ChainServer {
    /// Begins a snapshot if it is due, and goes on with the one that is written.
    pub(super) fn write_snapshot(&mut self, cx: &mut Cx<'_, Self>) {
        let due = self.parameters.snapshot_every_bytes.max(self.snapshots.bytes);
        let applied = self.state.applied();
        if self.snapshots.writing.is_none() && self.snapshots.grown >= due && applied > self.snapshots.index {
            self.begin_snapshot(cx);
        }
        let Some(writing) = &mut self.snapshots.writing else { return };
        let index = writing.index;
        for _ in 0..PIECES_A_TURN {
            let Some(bytes) = writing.left.pop_front() else { break };
            writing.bytes += bytes.len();
            let (number, is_last) = (writing.number, writing.left.is_empty());
            cx.append(&SnapshotPiece { index, number, is_last, bytes }.into());
            writing.number += 1;
        }
        if writing.left.is_empty() {
            let (begin, bytes) = (writing.begin, writing.bytes);
            (self.snapshots.writing, self.snapshots.bytes) = (None, bytes);
            // Commands since the last one stay: a server that joins may lack some of them.
            let left = std::mem::replace(&mut self.snapshots.index, index);
            self.row.drop_below(left);
            // What replaces the records before is durable before they go.
            let needed = self.row.record_from(left).map_or(begin, |record| record.min(begin));
            cx.trim(needed);
            cx.mark("chain.wrote_a_snapshot");
        }
    }

    fn begin_snapshot(&mut self, cx: &mut Cx<'_, Self>) {
        let (index, begin) = (self.state.applied(), cx.cursor());
        self.snapshots.grown = 0;
        if let Some(journal) = self.journal {
            cx.append(&JournalName { journal }.into());
        }
        cx.append(&SealedFor { epoch: self.sealed }.into());
        cx.append(&Serves { epoch: self.opened }.into());
        let left = self.state.pieces(self.parameters.piece_bytes).into();
        self.snapshots.writing = Some(Writing { index, begin, left, number: 0, bytes: 0 });
    }

    /// Takes a piece back from the journal.
    pub(super) fn restore_piece(&mut self, piece: SnapshotPiece) {
        let SnapshotPiece { index, number, is_last, bytes } = piece;
        if number == 0 {
            self.snapshots.reading = Some((index, Vec::new()));
        }
        let Some((of, pieces)) = &mut self.snapshots.reading else { return };
        if *of != index || pieces.len() as u32 != number {
            // Of one whose beginning is trimmed.
            return self.snapshots.reading = None;
        }
        pieces.push(bytes);
        if is_last {
            let pieces = self.snapshots.reading.take().map(|(_, pieces)| pieces).unwrap_or_default();
            self.snapshots.bytes = pieces.iter().map(Bytes::len).sum();
            let read = PartitionState::of_pieces(self.partition, self.placement, &pieces);
            kernel::invariant!(DUR, read.is_ok(), "a snapshot of {index} cannot be read: {read:?}");
            if let Ok(state) = read {
                self.state = state;
                self.snapshots.index = index;
                if self.row.length() < index || self.row.base() > index {
                    self.row.truncate(self.row.base());
                    self.row.drop_below(index);
                }
            }
        }
    }

    pub(super) fn on_pull_snapshot(&mut self, from: NodeId, message: &PullSnapshot, cx: &mut Cx<'_, Self>) {
        let PullSnapshot { session, epoch, journal, number } = *message;
        if self.journal != Some(journal) || self.opened != epoch {
            return;
        }
        let now = cx.now();
        let is_taken = self
            .snapshots
            .offer
            .as_ref()
            .is_some_and(|offer| offer.session != session && now.since(offer.asked_at) < OFFERED_FOR);
        if is_taken {
            return cx.mark("chain.hands_one_snapshot_over_at_a_time");
        }
        let is_known = self.snapshots.offer.as_ref().is_some_and(|offer| offer.session == session);
        if !is_known || number == 0 {
            let (index, pieces) = (self.state.applied(), self.state.pieces(self.parameters.piece_bytes));
            self.snapshots.offer = Some(Offer { session, index, pieces, asked_at: now });
        }
        let Some(offer) = &mut self.snapshots.offer else { return };
        offer.asked_at = now;
        // It began anew here: so does who asks.
        let number = if is_known { number } else { 0 };
        if let Some(bytes) = offer.pieces.get(number as usize).cloned() {
            let (index, is_last) = (offer.index, number as usize + 1 == offer.pieces.len());
            // What a tail has applied may not be on its own disk.
            cx.send_durable(from, PulledSnapshot { session, index, number, is_last, bytes });
        }
    }

    /// A joining server has all pieces: they are its state from now on, and its journal's beginning.
    pub(super) fn install_snapshot(&mut self, index: RowIndex, pieces: Vec<Bytes>, cx: &mut Cx<'_, Self>) {
        let Ok(state) = PartitionState::of_pieces(self.partition, self.placement, &pieces) else {
            return cx.reject("snapshot that cannot be read");
        };
        if state.applied() != index || index <= self.state.applied() {
            return cx.reject("snapshot of another index than it says, or of an old one");
        }
        cx.mark("chain.installed_a_snapshot");
        self.state = state;
        self.window = 0;
        self.row.truncate(self.row.base());
        self.row.drop_below(index);
        self.begin_snapshot(cx);
        if let Some(writing) = &mut self.snapshots.writing {
            // A joining server does nothing else: all at once, so that no command stands between.
            let left = std::mem::take(&mut writing.left);
            let (begin, count) = (writing.begin, left.len());
            self.snapshots.bytes = left.iter().map(Bytes::len).sum();
            for (number, bytes) in (0..).zip(left) {
                let is_last = number as usize + 1 == count;
                cx.append(&ChainRecord::from(SnapshotPiece { index, number, is_last, bytes }));
            }
            (self.snapshots.writing, self.snapshots.index) = (None, index);
            cx.trim(begin);
        }
    }
}
