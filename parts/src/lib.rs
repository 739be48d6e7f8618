//! Algebra that several engines share, each part tested by itself.
#![forbid(unsafe_code)]

mod ballot;
mod barriers;
mod deterministic;
mod incarnation;
mod lookup;
mod outbox;
pub mod planted;
mod quorum;
mod replies;
mod sessions;
mod slots;
mod snapshot;
mod transfer;
mod turn;
mod upstream;

pub use ballot::Ballot;
pub use barriers::{Asked, BarrierAnswer, Barriers, Passed};
pub use deterministic::{Digester, FixedHasher, Map, Set, digest};
pub use incarnation::Incarnation;
pub use lookup::Lookup;
pub use outbox::{Outbox, Tagged};
pub use quorum::{AcceptorGroup, Acceptors, Shape, Tally};
pub use replies::{Account, Pool, ReplyBounds};
pub use sessions::{Admission, Sequence, SessionId, Sessions, StoredAnswer};
pub use slots::{Slot, SlotRing};
pub use snapshot::{ReadBack, Restored, Served, SnapshotRecord, Snapshots, WrittenSnapshot, chunk_of};
pub use transfer::{Look, Offer, Offered, Page, Pull, TakenPage, Transfers, WantedPage};
pub use turn::{Turn, TurnBounds};
pub use upstream::{InUse, Ordering, Patience, Upstream};
