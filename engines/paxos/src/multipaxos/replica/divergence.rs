//! Whether replicas did the same: each keeps a rolling digest of what it executed and answered, and compares it with its
//! peers' at the same slots. One that most of the others contradict stops: its state is worth nothing.

use super::{Checkpoint, Replica};
use crate::value::Value;
use kernel::{Cx, Encode, NodeId, StateMachine};
use parts::{FixedHasher, Map, Slot};
use std::collections::VecDeque;
use std::hash::Hasher;

/// Digests are compared after slots that are multiples of this.
const CHECKPOINT_EVERY: u64 = 16;
/// A replica remembers so many of its own checkpoints, for peers that lag.
const CHECKPOINTS_MAX: usize = 256;

/// A rolling digest, part of the replicated state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn of(value: u64) -> Self {
        Self(value)
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }

    /// Adds what a slot holds.
    pub(super) fn add_value(&mut self, slot: Slot, value: &Value) {
        self.add(slot.0, |hasher| match value {
            Value::Noop => hasher.write_u32(0),
            Value::Batch(payload) | Value::Entry(payload) => hasher.write(payload.bytes()),
            Value::Configure(configuration) => hasher.write(&configuration.encoded()),
        });
    }

    /// Adds what a command answered.
    pub(super) fn add_answer(&mut self, answer: &[u8]) {
        self.add(1, |hasher| hasher.write(answer));
    }

    fn add(&mut self, tag: u64, write: impl FnOnce(&mut FixedHasher)) {
        let mut hasher = FixedHasher::default();
        hasher.write_u64(self.0);
        hasher.write_u64(tag);
        write(&mut hasher);
        self.0 = hasher.finish();
    }
}

/// How this replica and its peers stood after the slots that all compare.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    mine: VecDeque<(Slot, u64)>,
    reported: Slot,
    /// The latest of each peer, until this replica gets there.
    theirs: Map<NodeId, (Slot, u64)>,
    /// Who stood otherwise, and after which slot.
    contradicted: Map<NodeId, Slot>,
    diverged: Option<Slot>,
}

impl Checkpoints {
    pub(super) fn diverged(&self) -> Option<Slot> {
        self.diverged
    }

    pub(super) fn passed(&mut self, executed: Slot, digest: Digest) {
        if executed.0.is_multiple_of(CHECKPOINT_EVERY) {
            self.mine.push_back((executed, digest.value()));
            if self.mine.len() > CHECKPOINTS_MAX {
                self.mine.pop_front();
            }
        }
    }

    /// Another state was installed: what was remembered belongs to the old one.
    pub(super) fn forget(&mut self) {
        self.mine.clear();
        self.contradicted.clear();
    }

    /// True if the peer's latest checkpoint contradicts ours; none if it cannot be compared (yet).
    fn contradicts(&self, peer: NodeId) -> Option<(bool, Slot)> {
        let &(slot, digest) = self.theirs.get(&peer)?;
        let at = self.mine.binary_search_by_key(&slot, |&(mine, _)| mine).ok()?;
        Some((self.mine[at].1 != digest, slot))
    }
}

impl<S: StateMachine> Replica<S> {
    /// Called by the timer.
    pub(super) fn report_checkpoint(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(&(executed, digest)) = self.checkpoints.mine.back() else { return };
        if executed > self.checkpoints.reported {
            self.checkpoints.reported = executed;
            let me = cx.node();
            let peers = self.state.configurations.latest().replicas.iter().copied();
            let peers: Vec<NodeId> = peers.filter(|&peer| peer != me).collect();
            cx.multicast(peers, Checkpoint { executed, digest });
        }
        let peers: Vec<NodeId> = self.checkpoints.theirs.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.compare(peer, cx));
    }

    pub(super) fn on_checkpoint(&mut self, from: NodeId, message: Checkpoint, cx: &mut Cx<'_, Self>) {
        if !self.state.configurations.latest().replicas.contains(&from) {
            return cx.reject("checkpoint of a node that is no replica");
        }
        self.checkpoints.theirs.insert(from, (message.executed, message.digest));
        self.compare(from, cx);
    }

    fn compare(&mut self, peer: NodeId, cx: &mut Cx<'_, Self>) {
        let Some((contradicts, slot)) = self.checkpoints.contradicts(peer) else { return };
        self.checkpoints.theirs.remove(&peer);
        if !contradicts {
            cx.mark("replica.compared_with_a_peer");
            self.checkpoints.contradicted.remove(&peer);
            return;
        }
        self.checkpoints.contradicted.insert(peer, slot);
        let replicas = &self.state.configurations.latest().replicas;
        let against =
            replicas.iter().filter(|peer| self.checkpoints.contradicted.contains_key(*peer)).count();
        // One that is wrong is contradicted by all others; of two, nobody can know which.
        if 2 * against >= replicas.len() {
            cx.note(|| format!("stops: most replicas stood otherwise after slot {slot}"));
            cx.reject("own state contradicted by most replicas");
            self.checkpoints.diverged = Some(slot);
        }
    }
}
