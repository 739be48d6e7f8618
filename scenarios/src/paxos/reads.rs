//! Linearizable reads wait for all that was executed anywhere when they were asked. Answers seldom show a wait that is too short, for most
//! replicas have executed more than they must.

use kernel::{NodeId, invariant};
use parts::{Sequence, SessionId, Slot};
use paxos::Level;
use paxos::multipaxos::batcher::Query;
use paxos::multipaxos::replica::ReadBatch;
use std::collections::BTreeMap;

/// How far somebody had executed when each read was asked for the first time.
#[derive(Default)]
pub(super) struct Reads {
    asked: BTreeMap<(NodeId, SessionId, Sequence), Slot>,
}

impl Reads {
    pub(super) fn on_query(&mut self, client: NodeId, query: &Query, executed: Slot) {
        if query.level == Level::Linearizable {
            for command in query.queries.iter() {
                self.asked.entry((client, query.session, command.sequence)).or_insert(executed);
            }
        }
    }

    pub(super) fn on_batch(&self, batcher: NodeId, batch: &ReadBatch) {
        for group in &batch.reads {
            for command in group.queries.iter() {
                let asked = self.asked.get(&(group.client, group.session, command.sequence));
                invariant!(
                    LIN,
                    asked.is_none_or(|&executed| executed <= batch.through),
                    "{batcher} has read {} of {} wait for slot {}, and slot {asked:?} was executed when it was asked",
                    command.sequence,
                    group.client,
                    batch.through
                );
            }
        }
    }
}
