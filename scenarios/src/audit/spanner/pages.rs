//! Snapshots on disks: each is read back into a new machine, which must be what replicas were at that slot.

use ::spanner::ShardMachine;
use kernel::{Bytes, Decode, NodeId, Reader, StateMachine, invariant};
use parts::{Slot, SnapshotRecord};
use std::collections::BTreeMap;

/// What journals of replicas have of snapshots that are not complete.
#[derive(Debug, Default)]
pub(super) struct SnapshotPages {
    begun: BTreeMap<NodeId, (Slot, Vec<Bytes>)>,
}

impl SnapshotPages {
    /// A record of a replica's journal is durable; the slot and the chunks of the snapshot that it completes.
    pub(super) fn on_durable(&mut self, node: NodeId, record: &Bytes) -> Option<(Slot, Vec<Bytes>)> {
        match SnapshotRecord::<Slot>::decoded(record).expect("a journal holds what its role wrote") {
            SnapshotRecord::Begin { below } => {
                self.begun.insert(node, (below, Vec::new()));
                None
            }
            SnapshotRecord::Chunk { bytes } => {
                if let Some((_, chunks)) = self.begun.get_mut(&node) {
                    chunks.push(bytes);
                }
                None
            }
            SnapshotRecord::End => self.begun.remove(&node),
        }
    }
}

/// A snapshot reads back as what replicas were at its slot: `digest`.
pub(super) fn check(node: NodeId, slot: Slot, chunks: &[Bytes], mut machine: ShardMachine, digest: u64) {
    let Some((preamble, rest)) = chunks.split_first() else { return };
    // The slot, and how many chunks belong to the log itself.
    let mut preamble = Reader::new(preamble.clone());
    let pieces = Slot::decode(&mut preamble).and_then(|_| u32::decode(&mut preamble));
    let pieces = pieces.expect("a snapshot begins with its preamble") as usize;
    for chunk in rest.iter().skip(pieces) {
        machine.install(chunk).expect("a snapshot holds what its machine wrote");
    }
    let found = machine.digest();
    invariant!(
        PREFIX,
        found == digest,
        "{node} has a snapshot below slot {slot} that reads back as another state than replicas had there"
    );
}
