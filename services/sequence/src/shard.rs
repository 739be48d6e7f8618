//! One space: its numbers are the state.

use crate::label::{Ask, LABEL_BYTES_MAX};
use kernel::{BlobRange, Bytes, Decode, DecodeError, Encode, NodeId, SnapshotStep};
use mason::{Gsn, Order, Shard, ShardOut, Space};
use std::collections::VecDeque;

kernel::record! {
    /// A position that was given.
    pub struct Given {
        /// Its global sequence number.
        gsn: Gsn,
        /// What for.
        label: Bytes,
    }
}

kernel::record! {
    /// A chunk of a snapshot: what is not in pages stands in each.
    struct Page {
        given: u64,
        digest: u64,
        latest: Vec<Given>,
    }
}

/// The latest labels of one space, and a digest of all there were.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    latest: VecDeque<Given>,
    given: u64,
    digest: u64,
    writing: Option<Page>,
}

/// Labels that are remembered in each space.
const LATEST_MAX: usize = 4_096;

impl Labels {
    /// How many positions were given for labels; no-ops are not counted.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// The latest positions given, oldest first.
    pub fn latest(&self) -> impl Iterator<Item = &Given> {
        self.latest.iter()
    }
}

impl Shard for Labels {
    fn inputs(&self, _body: &[u8], order: &Order, out: &mut Vec<u8>) {
        // Nothing is needed to know; that everybody has come this far makes the answer one that all spaces agree on.
        order.gsn.encode(out);
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
        let last = self.latest.back().map(|given| given.gsn);
        kernel::invariant!(UNIQ, last < Some(order.gsn), "{} is given after {last:?}", order.gsn);
        self.latest.push_back(Given { gsn: order.gsn, label });
        order.encode(out.answer());
    }

    /// How many positions were given.
    fn read(&mut self, _reader: NodeId, _query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        self.given.encode(out);
        None
    }

    fn forget_reader(&mut self, _reader: NodeId) {}

    fn begin_snapshot(&mut self) {
        let latest = self.latest.iter().cloned().collect();
        self.writing = Some(Page { given: self.given, digest: self.digest, latest });
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let Some(Page { given, digest, mut latest }) = self.writing.take() else { return SnapshotStep::Done };
        let at_once = (budget / (LABEL_BYTES_MAX + 16)).max(1);
        let later = latest.split_off(at_once.min(latest.len()));
        Page { given, digest, latest }.encode(chunk);
        if later.is_empty() {
            return SnapshotStep::Done;
        }
        self.writing = Some(Page { given, digest, latest: later });
        SnapshotStep::More
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let Page { given, digest, latest } = Page::decoded(&Bytes::copy_from_slice(chunk))?;
        (self.given, self.digest) = (given, digest);
        self.latest.extend(latest);
        Ok(())
    }

    fn digest(&self) -> u64 {
        let last = self.latest.back().map_or(0, |given| given.gsn.0);
        let retained = [self.given, self.latest.len() as u64, last];
        retained.iter().fold(self.digest, |digest, number| {
            (digest ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    }
}
