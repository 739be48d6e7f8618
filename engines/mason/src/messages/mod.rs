//! Mason's messages, by who receives them; the ladder is in [`crate`].

pub mod client;
pub mod proxy;
pub mod sequencer;
pub mod shard;
