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
    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn note(&mut self, safe: Timestamp, _collected: Timestamp) {
        self.safe = self.safe.max(safe);
    }
}

impl SpannerShard {
    /// Served here if this host has a replica; else, and when it was asked in vain before, another host's is asked.
    pub(super) fn on_read_replica(&mut self, from: NodeId, message: ReadReplica, cx: &mut Cx<'_, Self>) {
        let ReadReplica { gateway, id, at, what } = message;
        let (own, slot) = (cx.node().host(), cx.node().host_slot());
        let holds = self.moves.holds(own);
        let is_again = self.replica.waiting.contains_key(&(at, gateway, id));
        if (!holds || is_again)
            && from.host_slot() != slot
            && let Some(host) = self.moves.another(own)
        {
            cx.mark("shard.handed_a_read_to_another_replica");
            let what = what.clone();
            cx.send(NodeId::new(host, slot), ReadReplica { gateway, id, at, what });
        }
        if !holds {
            // What waited here for a replica that left is asked again elsewhere.
            return self.replica.waiting.clear();
        }
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
        if !self.holds() {
            return self.replica.waiting.clear();
        }
        if let Some((&(at, ..), _)) = self.replica.waiting.last_key_value() {
            self.want_closed(at, cx);
        }
    }

    /// True if reads wait until this host's replica is far enough.
    pub(super) fn has_replica_reads(&self) -> bool {
        !self.replica.waiting.is_empty()
    }

    fn want_closed(&mut self, at: Timestamp, cx: &mut Cx<'_, Self>) {
        self.on_leaders(NodeId::ZERO, WantClosed { at }.into(), cx);
    }

    pub(super) fn on_replica_values(&self, gateway: NodeId, id: u64, values: Bytes, cx: &mut Cx<'_, Self>) {
        if gateway.host() != cx.node().host() {
            // Its own host has no replica that could say so.
            cx.send(gateway, ReplicaSafe { shard: self.shard, safe: self.replica.safe });
        }
        cx.send(gateway, FastReply { id, shard: self.shard, values, skipped: Vec::new() });
    }
}
