//! What the tests of real processes share: clusters, and the smallest clients of every protocol.

pub mod bucket;
pub mod cluster;
pub mod http;
pub mod kafka;
pub mod power;
pub mod prometheus;
pub mod raw;
pub mod tls;
pub mod zookeeper;

use std::future::Future;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Runs one test, alone: most of them measure time.
pub fn alone<T>(test: impl Future<Output = T>) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the system has threads").block_on(test)
}

/// A number from the environment.
pub fn number<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
