//! Compatibility. Of ZooKeeper's protocol: the official clients, kazoo's own suite, and a differential test against Apache
//! ZooKeeper. Of Kafka's: librdkafka and the official Java client; `ORDINATE_RECORDS` sets how many records they send.
//!
//! `scripts/clients.sh` installs what they need. A test whose peers are missing and cannot be installed says so and passes;
//! with `ORDINATE_PEERS_REQUIRED` set it fails. `ORDINATE_OPERATIONS` sets the length of the differential test,
//! `ORDINATE_SEED` its seed, `ORDINATE_DIFFERENCES` how many differences it looks for, each from an empty start, `ORDINATE_KAZOO_ONLY` which of kazoo's tests run (`.` for all).
#![forbid(unsafe_code)]

mod bring;
#[allow(dead_code)]
#[path = "../real/cluster.rs"]
mod cluster;
mod differential;
mod generate;
#[allow(dead_code)]
#[path = "../real/http.rs"]
mod http;
mod kafka;
mod peers;
mod python;
#[allow(dead_code)]
mod raw;
mod suites;
mod tokens;

use std::future::Future;
use std::sync::{Mutex, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Runs one test, alone.
fn alone<T>(test: impl Future<Output = T>) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the system has threads").block_on(test)
}
