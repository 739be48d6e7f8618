//! The unbatcher: hands the results of a batch to the clients (the paper's section 4.2).

use super::{Message, Paxos, batcher, client};
use crate::value::BatchId;
use kernel::{Cx, NodeId, Position, Role};
use parts::{SessionId, Slot};
use std::convert::Infallible;

kernel::record! {
    /// The results of one group, for one client.
    pub struct Reply {
        /// The client's connection.
        client: NodeId,
        /// Its session.
        session: SessionId,
        /// What it is told.
        results: client::Row,
        /// The slot in which its session was opened, if that was asked.
        opened: Option<Slot>,
    }
}

kernel::messages! {
    /// Everything an unbatcher can be sent.
    pub enum UnbatcherIn in Message::Unbatcher {
        /// From a replica: these commands were executed.
        1 => Results {
            /// The batch; none for reads.
            batch: Option<BatchId>,
            /// The slot after the one that was executed, or that the reads saw.
            executed: Slot,
            /// One per group.
            replies: Vec<Reply>,
        },
    }
}

/// Stateless: runs wherever clients' connections end.
#[derive(Clone, Debug, Default)]
pub struct Unbatcher;

impl Role for Unbatcher {
    type Family = Paxos;
    type In = UnbatcherIn;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_message(&mut self, _from: NodeId, message: UnbatcherIn, cx: &mut Cx<'_, Self>) {
        match message {
            UnbatcherIn::Results(Results { batch, executed, replies }) => {
                for Reply { client, session, results, opened } in replies {
                    let executed = opened.map_or(executed, Slot::next);
                    cx.send(client, client::Results { session, executed, results });
                }
                if let Some(batch) = batch {
                    cx.send(batch.batcher, batcher::Done { number: batch.number });
                }
            }
        }
    }
}
