//! Everything that the engine's nodes say to each other, a file for each receiver.

pub mod gateway;
pub mod shard;
