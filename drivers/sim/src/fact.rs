//! What a scenario that audits sees of disks and of messages.

use crate::spec::MessageOf;
use kernel::{Bytes, HostId, NodeId, Position};

/// Says whether a message makes a promise that its host's disk has to keep.
pub type IsClaim<N> = fn(&MessageOf<N>) -> bool;

/// What a scenario that audits learns: see [`crate::Scenario::on_fact`].
#[derive(Clone, Debug)]
pub enum Fact<M> {
    /// A record is durable: whatever happens to the process, the next incarnation finds it.
    Durable {
        /// Whose record.
        node: NodeId,
        /// Its position.
        position: Position,
        /// The record.
        record: Bytes,
    },
    /// The node needs no record before this one: the next incarnation may find them or not.
    Trimmed {
        /// Whose records.
        node: NodeId,
        /// The first that it still needs.
        before: Position,
    },
    /// A message has left its node.
    Reported {
        /// Who says it.
        from: NodeId,
        /// To whom.
        to: NodeId,
        /// What it says.
        message: M,
    },
    /// A host's disk is lost or damaged, and with it all that was durable there.
    DiskLost {
        /// Whose.
        host: HostId,
    },
}
