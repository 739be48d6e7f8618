//! What the directors agree on: the projections of all partitions.

use crate::messages::director::{ChangeDecided, DirectorIn};
use crate::projection::ChainProjection;
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, SnapshotStep, StateMachine};

/// The state machine of the directors' log: an entry is a projection, and is taken if it follows the one of its partition.
#[derive(Clone, Debug)]
pub struct DirectorMachine {
    /// The director's role on this host.
    role: NodeId,
    initial: Vec<ChainProjection>,
    projections: Vec<ChainProjection>,
    notices: Vec<(NodeId, Bytes)>,
    writing: Option<Vec<u8>>,
    installing: Vec<u8>,
}

impl DirectorMachine {
    /// The machine of a host's replica, before the first entry.
    pub fn new(role: NodeId, initial: Vec<ChainProjection>) -> Self {
        let projections = initial.clone();
        Self { role, initial, projections, notices: Vec::new(), writing: None, installing: Vec::new() }
    }

    /// Of all partitions.
    pub fn projections(&self) -> &[ChainProjection] {
        &self.projections
    }

    fn notify(&mut self) {
        let decided = DirectorIn::from(ChangeDecided { projections: self.projections.clone() });
        self.notices.push((self.role, decided.encoded().into()));
    }
}

impl StateMachine for DirectorMachine {
    /// It takes entries alone.
    fn apply(&mut self, _command: &[u8], _response: &mut Vec<u8>) {}

    fn apply_entry(&mut self, entry: &Bytes) {
        let proposed = ChainProjection::decoded(entry);
        kernel::invariant!(AGREE, proposed.is_ok(), "an entry of the directors' log: {proposed:?}");
        if let Ok(proposed) = proposed
            && let Some(known) = self.projections.get_mut(usize::from(proposed.partition.0))
            && proposed.epoch == known.epoch.next()
        {
            *known = proposed;
        }
        self.notify();
    }

    fn query(&self, _query: &[u8], _response: &mut Vec<u8>) {}

    fn take_notices(&mut self, notices: &mut Vec<(NodeId, Bytes)>) {
        notices.append(&mut self.notices);
    }

    fn begin_snapshot(&mut self) {
        self.writing = Some(self.projections.encoded());
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let Some(mut left) = self.writing.take() else { return SnapshotStep::Done };
        let rest = left.split_off(budget.clamp(1, left.len().max(1)).min(left.len()));
        chunk.push(u8::from(rest.is_empty()));
        chunk.extend_from_slice(&left);
        if rest.is_empty() {
            return SnapshotStep::Done;
        }
        self.writing = Some(rest);
        SnapshotStep::More
    }

    fn reset(&mut self) {
        *self = Self::new(self.role, self.initial.clone());
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let Some((&is_last, bytes)) = chunk.split_first() else { return Err(DecodeError::Truncated) };
        self.installing.extend_from_slice(bytes);
        if is_last == 1 {
            let whole = Bytes::from(std::mem::take(&mut self.installing));
            self.projections = Vec::decoded(&whole)?;
            self.notify();
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        parts::digest(&self.projections.encoded())
    }
}
