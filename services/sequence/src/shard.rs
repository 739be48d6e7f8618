//! One space: its numbers are the state.

use crate::label::{Ask, LABEL_BYTES_MAX};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader, SnapshotStep};
use mason::{Order, Shard, ShardOut, Space, Stamp};
use std::collections::VecDeque;

kernel::record! {
    /// A place that was given.
    pub struct Given {
        /// Its stamp.
        stamp: Stamp,
        /// What for.
        label: Bytes,
    }
}

/// The latest labels of one space, and a digest of all there were.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    latest: VecDeque<Given>,
    given: u64,
    digest: u64,
    writing: Option<Vec<u8>>,
}

/// Labels that are remembered in each space.
const LATEST_MAX: usize = 4_096;

impl Labels {
    /// How many places were given for labels; no-ops are not counted.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// The latest places given, oldest first.
    pub fn latest(&self) -> impl Iterator<Item = &Given> {
        self.latest.iter()
    }
}

impl Shard for Labels {
    fn inputs(&self, _body: &[u8], order: &Order, out: &mut Vec<u8>) {
        // Nothing is needed to know; that everybody has come this far makes the answer one that all spaces agree on.
        order.stamp.encode(out);
    }

    fn execute(&mut self, body: &Bytes, order: &Order, _others: &[(Space, Bytes)], out: &mut ShardOut) {
        let label = Ask::decoded(body).map(|ask| ask.label).unwrap_or_default();
        let label = Bytes::copy_from_slice(&label[..label.len().min(LABEL_BYTES_MAX)]);
        self.given += 1;
        let mut step = self.digest.encoded();
        order.encode(&mut step);
        step.extend_from_slice(&label);
        self.digest = parts::digest(&step);
        if self.latest.len() >= LATEST_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(Given { stamp: order.stamp, label });
        order.encode(out.answer());
    }

    /// How many places were given.
    fn read(&mut self, _reader: NodeId, _query: &[u8], out: &mut Vec<u8>) {
        self.given.encode(out);
    }

    fn forget_reader(&mut self, _reader: NodeId) {}

    fn begin_snapshot(&mut self) {
        let mut chunk = Vec::new();
        self.given.encode(&mut chunk);
        self.digest.encode(&mut chunk);
        self.latest.iter().cloned().collect::<Vec<_>>().encode(&mut chunk);
        self.writing = Some(chunk);
    }

    fn snapshot_step(&mut self, _budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        chunk.extend(self.writing.take().unwrap_or_default());
        SnapshotStep::Done
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let mut input = Reader::new(Bytes::copy_from_slice(chunk));
        self.given = input.field()?;
        self.digest = input.field()?;
        self.latest = Vec::<Given>::decode(&mut input)?.into();
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.digest
    }
}
