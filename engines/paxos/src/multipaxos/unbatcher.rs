//! The unbatcher: hands the results of a batch to the clients (the paper's section 4.2).

use super::Paxos;
pub use crate::multipaxos::messages::unbatcher::*;
use crate::multipaxos::messages::{batcher, client};
use kernel::{Cx, NodeId, Position, Role};
use parts::Slot;
use std::convert::Infallible;

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
            UnbatcherIn::BatchResults(BatchResults { batch, executed, replies }) => {
                for GroupResults { client, session, results, opened } in replies {
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
