//! Commands that stay in memory for servers that join: one that takes a snapshot lacks what comes until it has written it to its own
//! journal, and then until it has copied that.
//!
//! Invariant: they come to no more than the snapshot, or it is given up, and begins again. A chain that orders as much as the snapshot in
//! the time that this takes to be handed over and written is too fast for that server anyway.

use crate::projection::ChainProjection;
use crate::terms::RowIndex;
use kernel::{Instant, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that was silent for so long joins no more. One that writes a snapshot asks in the meantime.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// A server that joins.
#[derive(Clone, Debug)]
struct Joining {
    /// Its transfer's name.
    transfer: u64,
    /// It has the row up to here, or will when it has written the snapshot.
    lacks_from: RowIndex,
    /// Bytes of commands that are retained for it at most.
    bytes_max: usize,
    heard_at: Instant,
}

/// Who joins, and takes or has taken a snapshot of this server.
#[derive(Clone, Debug, Default)]
pub(super) struct Retained {
    joining: BTreeMap<NodeId, Joining>,
    /// The most of those that do not join any more, until what was retained for them is gone.
    past_bytes_max: usize,
    given_up: u64,
}

impl Retained {
    /// A server begins to take a snapshot of all commands below, of about so many bytes.
    pub(super) fn begin(
        &mut self,
        node: NodeId,
        transfer: u64,
        (below, bytes): (RowIndex, usize),
        now: Instant,
    ) {
        let joining = Joining { transfer, lacks_from: below, bytes_max: bytes, heard_at: now };
        self.joining.insert(node, joining);
    }

    /// It still takes it, or writes it.
    pub(super) fn on_question(&mut self, node: NodeId, transfer: u64, now: Instant) {
        if let Some(joining) = self.joining.get_mut(&node).filter(|it| it.transfer == transfer) {
            joining.heard_at = now;
        }
    }

    /// It asks for the row from here on.
    pub(super) fn on_pull(&mut self, node: NodeId, from: RowIndex, now: Instant) {
        if let Some(joining) = self.joining.get_mut(&node).filter(|it| it.lacks_from <= from) {
            (joining.lacks_from, joining.heard_at) = (from, now);
        }
    }

    /// The first command that somebody lacks.
    pub(super) fn lacked_from(&self) -> Option<RowIndex> {
        self.joining.values().map(|joining| joining.lacks_from).min()
    }

    /// Bytes of commands that are retained at most.
    pub(super) fn bytes_max(&self) -> usize {
        let joining = self.joining.values().map(|joining| joining.bytes_max).max();
        joining.unwrap_or(0).max(self.past_bytes_max)
    }

    /// Nothing is retained.
    pub(super) fn all_is_gone(&mut self) {
        self.past_bytes_max = 0;
    }

    /// Gives up who lacks most.
    pub(super) fn give_up_last(&mut self) {
        let last = self.joining.iter().min_by_key(|(_, joining)| joining.lacks_from);
        if let Some(node) = last.map(|(node, _)| *node) {
            self.forget_unless(|other, _| other != node);
            self.given_up += 1;
        }
    }

    /// How many were given up.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Members lack nothing that the chain does not give them.
    pub(super) fn forget_members(&mut self, projection: &ChainProjection) {
        self.forget_unless(|node, _| projection.nodes().all(|member| member != node));
    }

    pub(super) fn forget_silent(&mut self, now: Instant) {
        self.forget_unless(|_, joining| now.since(joining.heard_at) <= SILENT_FOR);
    }

    fn forget_unless(&mut self, joins: impl Fn(NodeId, &Joining) -> bool) {
        let before = self.bytes_max();
        let count = self.joining.len();
        self.joining.retain(|node, joining| joins(*node, joining));
        if self.joining.len() < count {
            self.past_bytes_max = before;
        }
    }
}
