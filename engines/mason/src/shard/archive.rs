//! What of a shard's state is to go into the archive before it may go from the disk.
//!
//! ```text
//! server (its turn)          the archive           server (not its turn)
//!   | (both have executed what made a blob superfluous, and keep it)  |
//!   | Archive ------------------>|                                    |
//!   |<----------------- Archived |                                    |
//!   |<------------------------------------------------ WhetherArchived|
//!   | WereArchived ------------------------------------------------> |
//!   | both let it go: their next snapshots do not name it, and it is dropped when those are durable
//! ```
//!
//! Every server has every blob, so any of them can do it. For each blob they take turns, in an order that depends on the blob; a server
//! that is dead or cannot reach the archive only costs the others' patience. An object that two have written is written once, for its name
//! and its bytes are the same everywhere.
//!
//! Invariant: a server lets a blob go when it knows that it is in the archive: because the archive said so, or a server that was notified.

use super::blobs::blob_of;
use super::{ShardServer, WereArchived, WhetherArchived};
use crate::messages::client::Overfull;
use crate::service::{Archived, Shard};
use kernel::{BlobId, Cx, Instant, NodeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Blobs on their way to the archive.
const ARCHIVES_MAX: usize = 4;
/// Blobs that are looked at together, and asked about in one message; the others wait behind them.
const WAITING_MAX: usize = 256;
/// What is remembered for peers that ask.
const KNOWN_MAX: usize = 4_096;
/// A blob that is not here is looked for in the archive after so many turns, again and again: a server that put it there may have let it
/// go, and not remember that since it was started again.
const ABSENT_TURNS: u32 = 8;
/// After the first failure it is tried again; then after twice the time, and so on.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(16);

#[derive(Debug, Default)]
pub(super) struct Archiving {
    /// When it is this server's turn.
    turns: BTreeMap<BlobId, Instant>,
    in_flight: BTreeSet<BlobId>,
    /// When the archive is asked for blobs that are not here.
    absent: BTreeMap<BlobId, Instant>,
    /// Failures in a row, and when the archive is tried again.
    failures: u32,
    again_at: Instant,
    asked_at: Instant,
    /// What the archive is known to have, and the same in the order of learning it.
    known: BTreeSet<BlobId>,
    learnt: VecDeque<BlobId>,
    /// What was reported to the gateways of this host last.
    reported: u64,
}

impl Archiving {
    fn learn(&mut self, id: BlobId) {
        if self.known.insert(id) {
            self.learnt.push_back(id);
        }
        if self.learnt.len() > KNOWN_MAX
            && let Some(oldest) = self.learnt.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl<S: Shard> ShardServer<S> {
    /// Looks whether there is something for the archive.
    pub(super) fn step_archive(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(archived) = self.service.as_archived() else { return };
        let wanted = archived.to_archive(WAITING_MAX);
        self.archiving.turns.retain(|id, _| wanted.binary_search(id).is_ok());
        self.archiving.absent.retain(|id, _| wanted.binary_search(id).is_ok());
        let now = cx.now();
        for &id in &wanted {
            if !self.archiving.turns.contains_key(&id) {
                let turn = now + self.patience(id, cx.node());
                self.archiving.turns.insert(id, turn);
            }
        }
        for id in wanted {
            let Archiving { turns, in_flight, again_at, .. } = &self.archiving;
            if in_flight.len() >= ARCHIVES_MAX || now < *again_at {
                break;
            }
            if turns[&id] <= now
                && !in_flight.contains(&id)
                && (self.has_blob(id) || self.looks_for_absent(id, now))
                && let Some(object) = self.service.as_archived().and_then(|it| it.archive_object(id))
            {
                self.archiving.in_flight.insert(id);
                cx.archive_blob(id, object);
                if kernel::planted!(segment_freed_before_archived) {
                    self.let_go(id);
                }
            }
        }
        self.ask_whether_archived(cx);
    }

    /// Whether the archive is to be asked for a blob that is not here.
    fn looks_for_absent(&mut self, id: BlobId, now: Instant) -> bool {
        let again_at = now + self.parameters.archive_turn * ABSENT_TURNS;
        let due = self.archiving.absent.entry(id).or_insert(again_at);
        let is_due = *due <= now;
        if is_due {
            *due = again_at;
        }
        is_due
    }

    /// A blob is in the archive.
    fn let_go(&mut self, id: BlobId) {
        if let Some(archived) = self.service.as_archived_mut() {
            archived.archived(id);
        }
    }

    /// What waits for the archive, in bytes, where that is too much.
    pub(super) fn waiting_for_archive(&self) -> u64 {
        self.service.as_archived().map_or(0, Archived::overfull)
    }

    /// How long this server leaves a blob to those before it.
    fn patience(&self, id: BlobId, me: NodeId) -> Duration {
        let servers = self.topology.servers(self.space);
        let count = servers.len().max(1);
        let first = (id.series.wrapping_mul(31).wrapping_add(id.first) % count as u64) as usize;
        let mine = servers.iter().position(|&server| server == me).unwrap_or(0);
        self.parameters.archive_turn * ((mine + count - first) % count) as u32
    }

    fn ask_whether_archived(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let Archiving { turns, in_flight, asked_at, .. } = &self.archiving;
        let turn = self.parameters.archive_turn;
        if now.since(*asked_at) < turn / 2 || turns.is_empty() {
            return;
        }
        let blobs: Vec<BlobId> = turns.keys().filter(|id| !in_flight.contains(id)).copied().collect();
        self.archiving.asked_at = now;
        if !blobs.is_empty()
            && let Some(peer) = self.any_peer(cx)
        {
            cx.send(peer, WhetherArchived { blobs });
        }
    }

    pub(super) fn on_whether_archived(
        &mut self,
        from: NodeId,
        message: &WhetherArchived,
        cx: &mut Cx<'_, Self>,
    ) {
        let known = &self.archiving.known;
        let here = |id: &&BlobId| {
            blob_of(&self.service, **id).is_none() && kernel::planted!(missing_blob_taken_as_archived)
        };
        let blobs: Vec<BlobId> =
            message.blobs.iter().filter(|id| known.contains(id) || here(id)).copied().collect();
        if !blobs.is_empty() {
            cx.send(from, WereArchived { blobs });
        }
    }

    pub(super) fn on_were_archived(&mut self, message: &WereArchived, cx: &mut Cx<'_, Self>) {
        for &id in &message.blobs {
            if self.archiving.turns.contains_key(&id) {
                cx.mark("shard.heard_that_a_blob_is_archived");
                self.archiving.learn(id);
                self.let_go(id);
            }
        }
        self.report_what_waits(cx);
    }

    pub(super) fn on_archived(&mut self, id: BlobId, cx: &mut Cx<'_, Self>) {
        cx.mark("shard.archived_a_blob");
        self.archiving.in_flight.remove(&id);
        (self.archiving.failures, self.archiving.again_at) = (0, Instant(0));
        self.archiving.learn(id);
        self.let_go(id);
        self.step_archive(cx);
        self.report_what_waits(cx);
    }

    pub(super) fn on_unarchived(&mut self, id: BlobId, cx: &mut Cx<'_, Self>) {
        cx.mark("shard.did_not_reach_the_archive");
        let archiving = &mut self.archiving;
        archiving.in_flight.remove(&id);
        // Those that were in flight together fail together, and count once.
        if archiving.again_at <= cx.now() {
            let pause = AGAIN_AFTER * 2u32.pow(archiving.failures.min(8));
            archiving.again_at = cx.now() + pause.min(AGAIN_AFTER_MAX);
            archiving.failures += 1;
        }
    }

    /// It is neither here nor in the archive: it has its turn again when it was fetched.
    pub(super) fn on_lost_for_archive(&mut self, id: BlobId) {
        self.archiving.in_flight.remove(&id);
    }

    /// The gateways of this host refuse what would make more of what waits, beyond a bound.
    pub(super) fn report_what_waits(&mut self, cx: &mut Cx<'_, Self>) {
        let bytes = self.waiting_for_archive();
        if bytes != self.archiving.reported {
            self.archiving.reported = bytes;
            for &observer in &self.observers {
                cx.send(observer, Overfull { space: self.space, bytes });
            }
        }
    }
}
