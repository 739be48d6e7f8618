//! Single roles, driven by hand.

mod client;
mod partition;
mod regions;
mod replication;
mod server;
