//! What hosts have reported to others, held against what a crash would leave on their disks at that moment.
//!
//! The simulator reports every record that becomes durable, every trim that takes effect and every message that makes a promise, in
//! their order. A promise that its host's disk does not keep is a violation at once, whether a crash comes to show it or not.

mod acceptor;
pub(crate) mod corfu;
pub(crate) mod log;
pub(crate) mod mason;
pub(crate) mod rising;
pub(crate) mod shards;
mod snapshots;
pub(crate) mod spanner;
