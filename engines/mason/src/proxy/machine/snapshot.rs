//! The chunks of a proxy's snapshot, written and read back.

use super::{Assigned, ProxyMachine};
use crate::messages::client::{GatewayIn, Skipped};
use crate::order::Space;
use crate::proxy::delivery::Run;
use crate::service::Stub;
use kernel::{Bytes, Decode, DecodeError, Encode, planted};
use std::collections::VecDeque;

const STATE_CHUNK: u8 = 1;
const STUB_CHUNK: u8 = 2;
// 3 was a page of single operations.
pub(super) const RETAINED_CHUNK: u8 = 4;
/// The beginning of what a later chunk of another kind ends.
const PIECE_CHUNK: u8 = 5;

/// Chunks of at most `piece_bytes` and one byte. A journal bounds its records, and this grows with the sessions of a service.
fn pieces_of(kind: u8, bytes: &[u8], piece_bytes: usize) -> VecDeque<Bytes> {
    let last = bytes.len().saturating_sub(1) / piece_bytes;
    let piece = |index: usize| {
        let bytes = &bytes[index * piece_bytes..bytes.len().min((index + 1) * piece_bytes)];
        [&[if index < last { PIECE_CHUNK } else { kind }], bytes].concat().into()
    };
    (0..=last).map(piece).collect()
}

impl<S: Stub> ProxyMachine<S> {
    /// A snapshot's chunks but for what is retained.
    pub(super) fn own_chunks(&self) -> VecDeque<Bytes> {
        let mut stub = Vec::new();
        self.stub.save(&mut stub);
        let mut chunks = pieces_of(STATE_CHUNK, &self.state.encoded(), self.page_bytes);
        chunks.append(&mut pieces_of(STUB_CHUNK, &stub, self.page_bytes));
        chunks
    }

    pub(super) fn install_chunk(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let (&kind, rest) = chunk.split_first().ok_or(DecodeError::Truncated)?;
        match kind {
            PIECE_CHUNK => self.installing.extend_from_slice(rest),
            STATE_CHUNK | STUB_CHUNK => {
                self.installing.extend_from_slice(rest);
                let whole = Bytes::from(std::mem::take(&mut self.installing));
                if kind == STATE_CHUNK {
                    self.state = Assigned::decoded(&whole)?;
                    if planted!(next_operations_not_in_snapshot) {
                        self.state.tags.clear();
                    }
                    if planted!(low_watermarks_not_in_snapshot) {
                        self.state.durable.clear();
                    }
                    if planted!(group_operations_not_in_snapshot) {
                        self.state.follow_ups.clear();
                    }
                    self.report_skipped_answers();
                } else {
                    self.stub.load(&whole)?;
                    self.arrange_stub();
                }
            }
            RETAINED_CHUNK if planted!(retained_operations_not_in_snapshot) => {}
            RETAINED_CHUNK => {
                let runs = Vec::<Run>::decoded(&Bytes::copy_from_slice(rest))?;
                runs.into_iter().for_each(|run| self.retained.insert(run));
            }
            kind => return Err(DecodeError::UnknownTag("chunk of a proxy's snapshot", kind)),
        }
        Ok(())
    }

    /// What this replica did not apply itself it has reported to nobody, and nobody else notifies this host's origins.
    fn report_skipped_answers(&mut self) {
        let skipped: Bytes = GatewayIn::from(Skipped { space: Space(0) }).encoded().into();
        let origins = self.state.tags.iter().map(|known| known.origin);
        let here = origins.filter(|origin| origin.host() == self.host);
        self.notices.extend(here.map(|origin| (origin, skipped.clone())));
    }
}
