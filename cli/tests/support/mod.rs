//! What the tests of real processes share: clusters, and the smallest clients of every protocol.

pub mod browser;
pub mod bucket;
pub mod cluster;
pub mod http;
pub mod kafka;
pub mod power;
pub mod prometheus;
pub mod raw;
pub mod relay;
pub mod tls;
pub mod zookeeper;

use std::future::Future;
use std::str::FromStr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

static RUNNING: Mutex<Running> = Mutex::new(Running { side_by_side: 0, alone: false });
static ENDED: Condvar = Condvar::new();

/// The tests of this binary that run now.
struct Running {
    side_by_side: usize,
    alone: bool,
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A test that runs: its end, also by a panic, lets others begin.
struct Turn {
    alone: bool,
}

impl Turn {
    /// Begins when no other test runs (`alone`), or when none runs that is to be alone.
    fn begin(alone: bool) -> Self {
        let waits = |now: &mut Running| now.alone || (alone && now.side_by_side > 0);
        let mut now = ENDED.wait_while(running(), waits).unwrap_or_else(PoisonError::into_inner);
        if alone {
            now.alone = true;
        } else {
            now.side_by_side += 1;
        }
        Self { alone }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut now = running();
        if self.alone {
            now.alone = false;
        } else {
            now.side_by_side -= 1;
        }
        ENDED.notify_all();
    }
}

/// Runs a test beside no other of its binary: it measures time, or takes what the whole machine has.
pub fn alone<T>(test: impl Future<Output = T>) -> T {
    run(true, test)
}

/// Runs a test beside others: it waits for processes most of the time, and measures nothing.
pub fn side_by_side<T>(test: impl Future<Output = T>) -> T {
    run(false, test)
}

fn run<T>(alone: bool, test: impl Future<Output = T>) -> T {
    let _turn = Turn::begin(alone);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the system has threads").block_on(test)
}

/// A number from the environment.
pub fn number<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
