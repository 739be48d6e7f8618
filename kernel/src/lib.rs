//! The vocabulary of Ordinate: what a protocol role is, what it may ask for, and how its messages look on a wire.
//!
//! Everything here is pure: no I/O, no clock, no threads, no randomness of its own. A role is a deterministic state
//! machine ([`Role`]); a driver (the fault simulator, the cost simulator, the runtime) calls it and carries out its
//! [`Effects`]. The same role code runs under every driver.
#![forbid(unsafe_code)]

mod beacon;
mod blob;
pub mod bounds;
pub mod client;
mod clock;
mod codec;
mod embed;
mod frame;
mod id;
mod invariant;
mod machine;
mod messages;
mod nodes;
mod planted;
mod recount;
mod rng;
mod role;
mod statement;
mod time;

pub use beacon::{Beacons, Listener, Silence};
pub use blob::{ArchiveObject, BlobEffect, BlobId, BlobNotice, BlobRange};
pub use bounds::{Bounds, Misfit, PageBudget, TooLarge};
pub use bytes::Bytes;
pub use clock::{
    ClockBound, ClockFence, ClockHeard, ClockMoment, ClockReport, ClockTrouble, STEP_UNSEEN, WallClock,
};
pub use codec::{Decode, DecodeError, Encode, Reader};
pub use embed::Embedded;
pub use frame::{Envelope, FRAME_HEADER_BYTES, FrameError, FrameReader, FrameWriter};
pub use id::{ClusterName, HostId, HostSlot, NodeId, RequestId};
pub use machine::{Capture, SnapshotStep, StateMachine};
pub use messages::are_distinct;
pub use planted::PlantedBug;
pub use recount::Recount;
pub use rng::Rng;
pub use role::{
    AwaitedTimers, Cx, Effect, Effects, Embeds, Family, InnerAnswers, InnerRole, Journaled, Node, Position,
    REPEAT_WITHIN, Role, Situation, TimerIndex, TimerKey, since_rare_moment, until_moment, until_rare_moment,
};
pub use statement::Statement;
pub use time::{Instant, Wall};

pub use planted::activate as plant;

#[doc(hidden)]
#[cfg(feature = "planted")]
pub mod __private {
    pub use crate::planted::active;
}
