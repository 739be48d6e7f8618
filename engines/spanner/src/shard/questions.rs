//! What this host's replica is asked: one message a burst.

use super::SpannerShard;
use super::reading::ReadKey;
use crate::machine::entry::Question;
use crate::messages::shard::LockedUnder;
use crate::txn::TxnId;
use kernel::{Cx, Encode, NodeId};
use parts::{Map, Sequence, SessionId, Slot};
use paxos::Commands;
use paxos::multipaxos::messages::replica::{ReadBatch, ReadGroup};

/// Who waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// A transaction that reads under locks.
    Locked { txn: TxnId, held: LockedUnder },
    /// A read at a timestamp.
    Fast(ReadKey),
    /// Somebody who wants to know what became of a commit.
    Fate { gateway: NodeId, id: u64 },
    /// A read of this replica.
    Replica { gateway: NodeId, id: u64 },
}

/// Questions that are not asked yet, and those without an answer. The replica is on the same host: it answers each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions {
    next: u64,
    row: Vec<u8>,
    asked: Map<u64, Asker>,
}

impl Questions {
    pub(super) fn push(&mut self, asker: Asker, question: impl Into<Question>) {
        self.next += 1;
        self.asked.insert(self.next, asker);
        Commands::push(&mut self.row, Sequence(self.next), &question.into().encoded());
    }

    pub(super) fn answered(&mut self, number: Sequence) -> Option<Asker> {
        self.asked.remove(&number.0)
    }

    pub(super) fn ask(&mut self, replica: NodeId, cx: &mut Cx<'_, SpannerShard>) {
        if self.row.is_empty() {
            return;
        }
        let queries = Commands::from_row(std::mem::take(&mut self.row));
        let reads = vec![ReadGroup { client: cx.node(), session: SessionId(0), queries }];
        let batch = ReadBatch { through: Slot(0), unbatcher: cx.node(), reads };
        cx.send(replica, paxos::Message::from(batch));
    }
}
