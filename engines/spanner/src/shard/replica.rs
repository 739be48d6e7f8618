//! What any host's replica answers: reads at timestamps at which nothing changes any more.

use super::SpannerShard;
use super::questions::Asker;
use crate::machine::entry::ValuesAt;
use crate::messages::gateway::{FastReply, ReadRefusal, ReadRefused, ReplicaSafe};
use crate::messages::shard::{ReadReplica, WantClosed};
use crate::txn::ReadSet;
use kernel::{Bytes, Cx, NodeId};
use std::collections::BTreeMap;
use wire::txn::Timestamp;

/// Reads of this host's replica that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaReads {
    safe: Timestamp,
    reported: Timestamp,
    waiting: BTreeMap<(Timestamp, NodeId, u64), ReadSet>,
}

impl ReplicaReads {
    pub(super) fn note(&mut self, safe: Timestamp, _collected: Timestamp) {
        self.safe = self.safe.max(safe);
    }
}

impl SpannerShard {
    pub(super) fn on_read_replica(&mut self, message: ReadReplica, cx: &mut Cx<'_, Self>) {
        let ReadReplica { gateway, id, at, what } = message;
        if self.replica.waiting.len() >= self.parameters.waiting_reads_max {
            return cx.send(gateway, ReadRefused { id, shard: self.shard, why: ReadRefusal::BUSY });
        }
        self.replica.waiting.insert((at, gateway, id), what);
        if at > self.replica.safe {
            cx.mark("shard.replica_read_waited");
            self.want_closed(at, cx);
        }
        self.serve_replica_reads(cx);
    }

    pub(super) fn serve_replica_reads(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(entry) = self.replica.waiting.first_entry()
            && entry.key().0 <= self.replica.safe
        {
            let ((at, gateway, id), what) = entry.remove_entry();
            self.questions.push(Asker::Replica { gateway, id }, ValuesAt { at, what });
        }
        if self.replica.safe > self.replica.reported {
            self.replica.reported = self.replica.safe;
            cx.send(self.gateway, ReplicaSafe { shard: self.shard, safe: self.replica.safe });
        }
    }

    pub(super) fn look_after_replica_reads(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some((&(at, ..), _)) = self.replica.waiting.last_key_value() {
            self.want_closed(at, cx);
        }
    }

    fn want_closed(&mut self, at: Timestamp, cx: &mut Cx<'_, Self>) {
        self.on_leaders(NodeId::ZERO, WantClosed { at }.into(), cx);
    }

    pub(super) fn on_replica_values(&self, gateway: NodeId, id: u64, values: Bytes, cx: &mut Cx<'_, Self>) {
        cx.send(gateway, FastReply { id, shard: self.shard, values, skipped: Vec::new() });
    }
}
