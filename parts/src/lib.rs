//! Algebra that several engines share, each part tested by itself.
#![forbid(unsafe_code)]

mod ballot;
mod deterministic;
mod quorum;
mod sessions;
mod slots;
mod transfer;

pub use ballot::Ballot;
pub use deterministic::{FixedHasher, Map, Set, digest};
pub use quorum::{Acceptors, Group, Shape, Tally};
pub use sessions::{Admission, Answer, Sequence, SessionId, Sessions};
pub use slots::{Slot, SlotRing};
pub use transfer::{Look, Offer, Offered, Page, Pull, Taken, Transfers, Wanted};
