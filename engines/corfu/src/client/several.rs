//! Appends of several entries: one token for all, and then each is written by itself.

use super::{Call, Client, CorfuResponse, Operation, Stage};
use crate::projection::{Data, Entry, LogPosition};
use kernel::{Bytes, Cx, RequestId};

/// An append of several entries on its way.
#[derive(Clone, Debug)]
pub(super) struct Several {
    request: RequestId,
    /// Where those are that are there.
    positions: Vec<Option<LogPosition>>,
    missing: usize,
}

impl Client {
    /// One of several entries is there.
    pub(super) fn appended_one(
        &mut self,
        id: u64,
        index: usize,
        position: LogPosition,
        cx: &mut Cx<'_, Self>,
    ) {
        let Some(several) = self.several.get_mut(&id) else { return };
        several.positions[index] = Some(position);
        several.missing -= 1;
        if several.missing == 0
            && let Some(several) = self.several.remove(&id)
        {
            let positions = several.positions.into_iter().flatten().collect();
            cx.respond(several.request, CorfuResponse::AllAppended(positions));
        }
    }

    /// Each of several entries is written by itself from here on.
    pub(super) fn write_all(
        &mut self,
        id: u64,
        request: RequestId,
        first: LogPosition,
        bodies: Vec<Bytes>,
        cx: &mut Cx<'_, Self>,
    ) {
        let several = Several { request, positions: vec![None; bodies.len()], missing: bodies.len() };
        self.several.insert(id, several);
        for (index, body) in bodies.into_iter().enumerate() {
            let tag = self.name();
            let data = Data { writer: cx.node(), tag, body };
            let position = LogPosition(first.0 + index as u64);
            let stage = Stage::Write { position, entry: Entry::Data(data.clone()), at: 0 };
            let call = Call::Append { data, part: Some((id, index)) };
            self.operations.insert(tag, Operation { request, call, stage, sent_at: cx.now() });
            self.say(tag, cx);
        }
    }
}
