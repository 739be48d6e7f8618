//! Algebra that several engines share, each part tested by itself.
#![forbid(unsafe_code)]

mod ballot;
mod deterministic;
mod quorum;
mod replies;
mod sessions;
mod slots;
mod transfer;

pub use ballot::Ballot;
pub use deterministic::{FixedHasher, Map, Set, digest};
pub use quorum::{Acceptors, Group, Shape, Tally};
pub use replies::{Account, Pool, ReplyBounds};
pub use sessions::{Admission, Answer, Sequence, SessionId, Sessions};
pub use slots::{Slot, SlotRing};
pub use transfer::{Look, Offer, Offered, Page, Pull, Taken, Transfers, Wanted};
