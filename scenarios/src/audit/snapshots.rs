//! The snapshots of one node as its journal has them: begun, written in chunks, complete, trimmed.

use kernel::{NodeId, Position, invariant};
use std::fmt::Debug;

/// A record of a journal that holds snapshots.
pub(super) enum Written<T> {
    /// One begins that holds everything below; an unfinished one before it is void.
    Begin(T),
    /// Its next chunk.
    Chunk,
    /// It is complete.
    End,
}

/// What a crash would leave of one node's snapshots.
#[derive(Debug)]
pub(super) struct Snapshots<T> {
    begun: Option<(Position, T)>,
    /// The complete ones that are not trimmed, oldest first.
    complete: Vec<(Position, T)>,
    /// The furthest that was ever complete, on whichever disk.
    furthest: Option<T>,
    /// How far its node has reported to others as durable.
    notified: Option<T>,
}

impl<T> Default for Snapshots<T> {
    fn default() -> Self {
        Self { begun: None, complete: Vec::new(), furthest: None, notified: None }
    }
}

impl<T: Copy + Ord + Debug> Snapshots<T> {
    pub(super) fn on_durable(&mut self, node: NodeId, position: Position, written: Written<T>) {
        match written {
            Written::Begin(through) => self.begun = Some((position, through)),
            Written::Chunk => {}
            Written::End => {
                let Some((begin, through)) = self.begun.take() else { return };
                self.complete.push((begin, through));
                self.furthest = self.furthest.max(Some(through));
                self.check(node, "wrote another snapshot");
            }
        }
    }

    pub(super) fn on_trimmed(&mut self, node: NodeId, before: Position) {
        self.complete.retain(|(begin, _)| *begin >= before);
        self.begun.take_if(|(begin, _)| *begin < before);
        self.check(node, "trimmed its journal");
    }

    pub(super) fn on_report(&mut self, node: NodeId, through: T) {
        self.notified = self.notified.max(Some(through));
        self.check(node, "reported so");
    }

    /// All that was durable here is gone.
    pub(super) fn on_disk_lost(&mut self) {
        *self = Self { furthest: self.furthest, ..Self::default() };
    }

    /// The furthest that was ever durable, on whichever disk.
    pub(super) fn furthest(&self) -> Option<T> {
        self.furthest
    }

    /// How far the snapshot reaches that a restart finds.
    pub(super) fn durable(&self) -> Option<T> {
        self.complete.last().map(|(_, through)| *through)
    }

    fn check(&self, node: NodeId, when: &str) {
        invariant!(
            DUR,
            self.notified <= self.durable(),
            "{node} has reported to others that a snapshot through {:?} is durable, and its disk has {:?}, when it {when}",
            self.notified,
            self.durable()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};

    const NODE: NodeId = NodeId::new(HostId(1), HostSlot(1));

    fn with_one(through: u64) -> Snapshots<u64> {
        let mut snapshots = Snapshots::default();
        for (position, written) in [(0, Written::Begin(through)), (1, Written::Chunk), (2, Written::End)] {
            snapshots.on_durable(NODE, Position(position), written);
        }
        snapshots
    }

    // An audit that takes a begun snapshot for a durable one would believe every early claim.
    #[test]
    #[should_panic(expected = "DUR")]
    fn a_snapshot_that_has_only_begun_keeps_no_promise() {
        let mut snapshots = with_one(5);
        snapshots.on_report(NODE, 5);
        snapshots.on_durable(NODE, Position(3), Written::Begin(9));
        snapshots.on_report(NODE, 9);
    }

    // A trim that takes the last whole snapshot along leaves a host that has promised it with nothing.
    #[test]
    #[should_panic(expected = "DUR")]
    fn a_trim_that_takes_what_was_promised_is_noticed() {
        let mut snapshots = with_one(5);
        snapshots.on_report(NODE, 5);
        snapshots.on_trimmed(NODE, Position(1));
    }
}
