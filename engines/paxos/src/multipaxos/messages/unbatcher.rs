//! What an unbatcher can be sent.

use crate::multipaxos::Message;
use crate::multipaxos::messages::client::Row;
use crate::value::BatchId;
use kernel::NodeId;
use parts::{SessionId, Slot};

kernel::record! {
    /// The results of one group, for one client.
    pub struct GroupResults {
        /// The client's connection.
        client: NodeId,
        /// Its session.
        session: SessionId,
        /// What it is sent.
        results: Row,
        /// The slot in which its session was opened, if that was asked.
        opened: Option<Slot>,
    }
}

kernel::messages! {
    /// Everything an unbatcher can be sent.
    pub enum UnbatcherIn in Message::Unbatcher {
        /// From a replica: these commands were executed.
        1 => BatchResults {
            /// The batch; none for reads.
            batch: Option<BatchId>,
            /// The slot after the one that was executed, or that the reads saw.
            executed: Slot,
            /// One per group.
            replies: Vec<GroupResults>,
        },
    }
}
