//! The bare sequence: the next multi-sequence number over any set of spaces (Mason's paper, sections 2.1 and 7).
//!
//! What is ordered is a label of the caller's choice. Each space remembers how many numbers it has given and the latest labels,
//! so that a caller who lost its answer can look whether it was given one.
#![forbid(unsafe_code)]

mod gateway;
mod label;
pub mod planted;
mod shard;

pub use ::wire::sequence as native;
pub use gateway::{DISK_FULL, Gateway, READY, UNKNOWN};
pub use label::{Ask, LABEL_BYTES_MAX};
pub use shard::Labels;

use kernel::{Bytes, Decode, DecodeError};
use mason::{GroupTime, Order, ShardMap, Space, Stub, StubOut, Verdict};

/// The proxies' part: operations go where they ask to go.
#[derive(Clone, Copy, Debug)]
pub struct Spaces {
    /// How many there are.
    pub count: u16,
}

impl Stub for Spaces {
    fn spaces(&self, body: &[u8], _shard_map: &ShardMap) -> Vec<Space> {
        let ask = Ask::decoded(&Bytes::copy_from_slice(body));
        let mut spaces = ask.map(|ask| ask.spaces).unwrap_or_default();
        spaces.retain(|space| space.0 < self.count);
        spaces.sort_unstable();
        spaces.dedup();
        spaces
    }

    fn apply(&mut self, _body: &Bytes, order: Option<&Order>, _now: GroupTime, out: &mut StubOut) -> Verdict {
        if order.is_none() {
            // Spaces that do not exist: there is nothing to order.
            out.answer(Bytes::new());
            return Verdict::Void;
        }
        Verdict::Execute
    }

    fn on_clock(&mut self, _now: GroupTime, _new_leader: bool, _out: &mut StubOut) {}

    fn apply_follow_up(&mut self, _: &Bytes, _: Option<&Order>, _: GroupTime, _: &mut StubOut) {}

    fn save(&self, _out: &mut Vec<u8>) {}

    fn load(&mut self, _saved: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }
}
