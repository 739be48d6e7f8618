//! What the engine of transactions says of them: from the first message of a gateway to the fate that it is notified of.

use super::observer::RequestObserver;
use super::request::RequestTrace;
use kernel::NodeId;
use spanner::messages::gateway::GatewayIn;
use spanner::messages::shard::ShardIn;
use spanner::{SpannerMessage, TxnId};

impl RequestObserver {
    pub(super) fn on_txn_sent(&mut self, from: NodeId, message: &SpannerMessage) {
        match message {
            SpannerMessage::Shard(ShardIn::ReadLocked(asked)) if from == asked.txn.gateway => {
                self.begin_txn(from, &asked.txn);
            }
            SpannerMessage::Shard(ShardIn::PrepareTxn(asked)) if from == asked.txn.gateway => {
                self.begin_txn(from, &asked.txn);
            }
            // One that does not lead hands it on.
            SpannerMessage::Shard(ShardIn::PrepareTxn(asked)) => self.end_txn(from, &asked.txn),
            SpannerMessage::Shard(ShardIn::DidPrepare(prepared)) => self.end_txn(from, &prepared.txn),
            // By the gateway: it reads no more, and has written nothing.
            SpannerMessage::Shard(ShardIn::Release(released)) => self.end_txn(from, &released.txn),
            SpannerMessage::Gateway(GatewayIn::Ended(ended)) => self.end_txn(from, &ended.txn),
            // The rest says nothing of where a transaction is.
            SpannerMessage::Shard(_)
            | SpannerMessage::Gateway(_)
            | SpannerMessage::User(_)
            | SpannerMessage::Connection(_)
            | SpannerMessage::Log(_) => {}
        }
    }

    pub(super) fn on_txn_received(&mut self, from: NodeId, to: NodeId, message: &SpannerMessage) {
        match message {
            SpannerMessage::Shard(ShardIn::PrepareTxn(asked)) => {
                self.open(&self.of_txn(&asked.txn), to, Some(from), "shard", None);
            }
            SpannerMessage::Gateway(GatewayIn::Ended(ended)) => self.end_txn(to, &ended.txn),
            SpannerMessage::Shard(_)
            | SpannerMessage::Gateway(_)
            | SpannerMessage::User(_)
            | SpannerMessage::Connection(_)
            | SpannerMessage::Log(_) => {}
        }
    }

    fn begin_txn(&mut self, gateway: NodeId, txn: &TxnId) {
        self.open(&self.of_txn(txn), gateway, None, "gateway", None);
    }

    fn end_txn(&mut self, node: NodeId, txn: &TxnId) {
        self.end(&self.of_txn(txn), node);
    }

    /// Its trace, if it is sampled.
    fn of_txn(&self, txn: &TxnId) -> Vec<RequestTrace> {
        self.sampling.of_txn(txn.gateway, txn.incarnation, txn.number).into_iter().collect()
    }
}
