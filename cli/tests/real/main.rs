//! Real `ordinate serve` processes on loopback: killed, paused, partitioned, starved of disk, fed with garbage.
//!
//! `cargo test -p ordinate --test real -- --nocapture` prints what was measured. Tests that measure time run alone, the
//! others side by side: they wait more than they work, so `RUST_TEST_THREADS=4` is well spent on two cores.
//! `ORDINATE_ROUNDS` sets the rounds of the power-loss test, `ORDINATE_CONNECTIONS` those of the flood,
//! `ORDINATE_PACKETS` and `ORDINATE_SUBSCRIBERS` what ZooKeeper's port is fed with.
#![forbid(unsafe_code)]

mod access;
mod alerts;
mod archive;
mod arranging;
mod backup;
mod budget;
mod disk_full;
mod earlier;
mod ensemble;
mod failover;
mod fuzzylog;
mod grants;
mod grants_tls;
mod hang;
mod health;
mod input;
mod inspect;
mod kafka;
mod laptop;
mod large;
mod load;
mod log;
mod log_bad;
mod log_corfu;
mod membership;
mod metrics;
mod network;
mod openapi;
mod partition;
mod placement;
mod power_loss;
mod recover;
mod sequence;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod traces;
mod txn;
mod web;
mod zk_verbs;
mod zookeeper;
mod zookeeper_secure;
