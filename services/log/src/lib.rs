//! The shared log: named logs whose positions have no holes, and appends to several logs at once (Mason's paper, section 6.2).
//!
//! **Promised.** Positions of a log are contiguous from 0; each holds one entry for good, until it is trimmed. An append over
//! several logs is in all of them or in none, and logs that share appends agree on their order. What was answered survives the
//! loss of a minority of hosts and of everything that was not fsynced. Reads are linearizable.
//!
//! **Where we differ from Corfu-Mason, and why.** There, a position is the number that the sequencer gives. Here a log's name decides
//! which space it is in, and its positions are counted by the space's shard as it executes: spaces have no holes, so neither have
//! logs, no-ops take no position, and there may be many more logs than spaces. An append that the log refuses (it is sealed, or
//! its tail is not where the writer expects it) takes no position either. There is no chain of storage servers: a log is divided into
//! segments, which every server of the space keeps on its disk; memory and snapshots hold what is not there yet ([`Bounds`]).
#![forbid(unsafe_code)]

pub mod archive;
mod budget;
pub mod corfu;
pub mod feeder;
mod gateway;
mod groups;
mod log;
mod pages;
pub mod planted;
mod producers;
mod retired;
mod segment;
mod shard;
mod snapshot;
mod storage;
mod turns;

pub use ::wire::log::{ROW_OVERHEAD, Rows, native};
pub use gateway::{Gateway, Routes};
pub use retired::Archiving;
pub use shard::{LogView, Logs, SegmentView};
pub use storage::{SpaceBounds, StorageStat};
pub use wire::{
    APPEND_BYTES_MAX, Admitted, Answer, Append, Cleanup, Commit, Create, Description, Entries,
    GROUP_BYTES_MAX, GroupState, LOGS_MAX, List, LogIdentity, LogStat, NAME_BYTES_MAX, NOTE_BYTES_MAX, Named,
    PARTS_MAX, Part, Produce, Progress, READ_BYTES_MAX, RETAIN_BYTES_MIN, Read, Refused, Rejected, Request,
    Trim, Why, is_group, is_name,
};

use ::wire::log as wire;
use kernel::{Bytes, Decode, DecodeError};
use mason::{GroupTime, Order, ShardMap, Space, Stub, StubOut, Verdict};

/// The space where a log is.
pub fn space_of(name: &str, spaces: u16) -> Space {
    Space((parts::digest(name.as_bytes()) % u64::from(spaces.max(1))) as u16)
}

/// The proxies' part: operations go to the spaces of the logs they name.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// How many spaces there are.
    pub spaces: u16,
}

impl Stub for Names {
    fn spaces(&self, body: &[u8], _shard_map: &ShardMap) -> Vec<Space> {
        let request = Request::decoded(&Bytes::copy_from_slice(body));
        let Ok(request) = request else { return Vec::new() };
        let mut spaces: Vec<Space> =
            request.written().into_iter().map(|name| space_of(name, self.spaces)).collect();
        spaces.sort_unstable();
        spaces.dedup();
        spaces
    }

    fn apply(&mut self, _body: &Bytes, order: Option<&Order>, _now: GroupTime, out: &mut StubOut) -> Verdict {
        if order.is_none() {
            // It names no log: there is nothing to order.
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
