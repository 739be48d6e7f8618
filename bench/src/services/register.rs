//! What a shard of such a service holds: a value, written and read in the space's order.

use kernel::{BlobRange, Bytes, Decode, DecodeError, Encode, NodeId, SnapshotStep};
use mason::{Order, Shard, ShardOut, Space};
use sequence::{Ask, Labels};

/// One value, and the labels of those who wrote it.
#[derive(Clone, Debug, Default)]
pub struct Register {
    labels: Labels,
    value: Bytes,
    /// Of a snapshot in flight: its first chunk.
    writing: Option<Bytes>,
    /// The first chunk of a snapshot is still to come.
    empty: bool,
}

impl Register {
    /// One that holds so many bytes, before anybody writes.
    pub fn of(bytes: usize) -> Self {
        Self { value: Bytes::from(vec![b'x'; bytes]), ..Self::default() }
    }
}

impl Shard for Register {
    fn inputs(&self, body: &[u8], order: &Order, out: &mut Vec<u8>) {
        self.labels.inputs(body, order, out);
    }

    /// A label is written; none reads.
    fn execute(&mut self, body: &Bytes, order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut) {
        match Ask::decoded(body) {
            Ok(Ask { label, .. }) if label.is_empty() => self.value.encode(out.answer()),
            Ok(Ask { label, .. }) => {
                self.value = label;
                self.labels.execute(body, order, others, out);
            }
            Err(_) => {}
        }
    }

    fn read(&mut self, _reader: NodeId, _query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        self.value.encode(out);
        None
    }

    fn forget_reader(&mut self, _reader: NodeId) {}

    fn begin_snapshot(&mut self) {
        self.writing = Some(self.value.clone());
        self.labels.begin_snapshot();
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let Some(value) = self.writing.take() else { return self.labels.snapshot_step(budget, chunk) };
        chunk.extend_from_slice(&value);
        SnapshotStep::More
    }

    fn reset(&mut self) {
        *self = Self { empty: true, ..Self::default() };
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        if !std::mem::take(&mut self.empty) {
            return self.labels.install(chunk);
        }
        self.value = Bytes::copy_from_slice(chunk);
        Ok(())
    }

    fn digest(&self) -> u64 {
        parts::digest(&[&self.labels.digest().to_le_bytes(), &self.value[..]].concat())
    }
}
