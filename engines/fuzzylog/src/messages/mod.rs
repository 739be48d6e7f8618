//! Everything that travels, a file for each receiver.

pub mod chain_server;
pub mod client;
pub mod director;
