//! The messages of MultiPaxos, by who receives them; the ladders are in [`crate::multipaxos`].

pub mod acceptor;
pub mod batcher;
pub mod client;
pub mod leader;
pub mod proxy_leader;
pub mod replica;
pub mod unbatcher;
