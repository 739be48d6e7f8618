//! What is gone, and how far the log goes.

use super::{Call, Client, CorfuResponse, Gone, Measured, Operation, Stage, Written};
use crate::projection::LogPosition;
use kernel::{Cx, NodeId};

/// How far a log goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Every position below may be gone, none from here on is.
    pub first: LogPosition,
    /// The next position that will be given away.
    pub next: LogPosition,
    /// What the entries cost on the tails of all chains.
    pub bytes: u64,
}

impl Client {
    pub(super) fn on_gone(&mut self, from: NodeId, message: &Gone, cx: &mut Cx<'_, Self>) {
        let Gone { id, position, resume_from, .. } = *message;
        let Some(operation) = self.operations.get(&id) else { return };
        cx.mark("client.was_reported_what_is_gone");
        match (&operation.call, &operation.stage) {
            (Call::Append { .. }, Stage::Write { position: mine, at, .. }) if *mine == position => {
                if self.projection.chain(position).get(*at) != Some(&from) {
                    return;
                }
                match at {
                    // The writer was so slow that the log has gone beyond it.
                    0 => self.enter(id, Stage::Token, cx),
                    // It was there, before its turn to go.
                    _ => {
                        let epoch = self.projection.epoch;
                        self.on_written(from, &Written { id, epoch, position }, cx);
                    }
                }
            }
            (Call::Append { .. }, Stage::Check { position: mine }) if *mine == position => {
                self.enter(id, Stage::Token, cx);
            }
            (Call::Read { position: mine, .. }, _) if *mine == position => {
                self.end(id, CorfuResponse::Gone(resume_from), cx);
            }
            // An answer to what it does not ask any more.
            (_, _) => {}
        }
    }

    pub(super) fn on_trimmed(&mut self, from: NodeId, id: u64, cx: &mut Cx<'_, Self>) {
        let Some(Operation { stage: Stage::Trim { done }, .. }) = self.operations.get_mut(&id) else {
            return;
        };
        if !done.contains(&from) {
            done.push(from);
        }
        if self.projection.servers().all(|server| done.contains(&server)) {
            self.end(id, CorfuResponse::Trimmed, cx);
        }
    }

    pub(super) fn on_measured(&mut self, from: NodeId, message: &Measured, cx: &mut Cx<'_, Self>) {
        let Measured { id, first, bytes, .. } = *message;
        let Some(Operation { stage: Stage::Measure { next, said }, .. }) = self.operations.get_mut(&id)
        else {
            return;
        };
        said.insert(from, (first, bytes));
        if self.projection.tails().all(|tail| said.contains_key(&tail)) {
            let first = said.values().map(|(first, _)| *first).max().unwrap_or_default();
            let extent = Extent {
                first: first.min(*next),
                next: *next,
                bytes: said.values().map(|(_, bytes)| bytes).sum(),
            };
            self.end(id, CorfuResponse::Stat(extent), cx);
        }
    }
}
