//! The coordination service: ZooKeeper's protocol and guarantees over znodes that are sharded, on Mason's multi-sequence.
//!
//! - [`wire`]: the protocol's words, and those inside of operations.
//! - [`placement`]: which shard a znode is in.
//! - [`tree`]: one shard of znodes ([`mason::Shard`]).
//! - [`sessions`]: the sessions of a home group ([`mason::Stub`]).
//! - [`gateway`]: the role in which users' connections end.
//! - [`home`]: the sessions as a shard, and [`feeder`]: the order of FuzzyLog for a host's shards, where Mason has proxies.
#![forbid(unsafe_code)]

pub mod feeder;
pub mod gateway;
pub mod home;
pub mod placement;
pub mod planted;
pub mod sessions;
pub mod tree;
pub mod wire;

pub use gateway::{Consistency, Gateway, Routes, Settings};
pub use home::HomeShard;
pub use placement::Placement;
pub use sessions::{HomeSessions, SessionSettings, SessionView};
pub use tree::{Kinship, Znodes};
