//! Real `ordinate serve` processes on loopback: killed, paused, cut off, starved of disk, fed with garbage.
//!
//! `cargo test -p server --test real -- --nocapture` prints what was measured. Tests take turns, because most of them
//! measure time. `ORDINATE_ROUNDS` sets the rounds of the power-loss test, `ORDINATE_CONNECTIONS` those of the flood,
//! `ORDINATE_PACKETS` and `ORDINATE_SUBSCRIBERS` what ZooKeeper's port is fed with.
#![forbid(unsafe_code)]

mod archive;
mod arranging;
mod cluster;
mod disk_full;
mod ensemble;
mod failover;
mod http;
mod input;
mod inspect;
mod kafka;
mod large;
mod load;
mod log;
mod log_bad;
mod log_corfu;
mod membership;
mod network;
mod partition;
mod placement;
mod power_loss;
#[allow(dead_code)]
#[path = "../clients/raw.rs"]
mod raw;
mod sequence;
mod tls;
mod web;
mod zk_verbs;
mod zookeeper;

use std::future::Future;
use std::sync::{Mutex, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Runs one test, alone.
fn alone<T>(test: impl Future<Output = T>) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the system has threads").block_on(test)
}

/// A number from the environment.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
