//! Twenty-four kinds of ordinary and hostile load at the ports of real `ordinate serve` processes, one at a time and three together. Meanwhile
//! polite clients, at the host that is struck and at another one, measure how long they wait; every host's memory is looked at, and
//! in the end every write that was acknowledged is read.
//!
//! `cargo test -p server --test abuse -- --nocapture` does each for a second or two;
//! `ORDINATE_ABUSE_SECONDS=30 cargo test -p server --test abuse -- --nocapture` for half a minute and prints the table of
//! `docs/reliability.md`. `ORDINATE_ABUSE_ONLY=mute,garbage` does those whose names contain one of the words, `ORDINATE_ABUSE_P99_MS` is what
//! polite clients at the struck host may wait.
#![forbid(unsafe_code)]

#[allow(dead_code)]
#[path = "../real/cluster.rs"]
mod cluster;
mod few_files;
#[allow(dead_code)]
#[path = "../real/http.rs"]
mod http;
mod kinds;
mod polite;
#[allow(dead_code)]
#[path = "../clients/raw.rs"]
mod raw;
mod stage;
mod topic;

use kinds::{KINDS, Kind};
use stage::Stage;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static TURN: Mutex<()> = Mutex::new(());

/// Runs one test, alone.
fn alone<T>(test: impl Future<Output = T>) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the system has threads").block_on(test)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Kinds that meet: each of them once, with two that are far from it in the list.
fn triples(count: usize) -> Vec<[&'static Kind; 3]> {
    let at = |index: usize| &KINDS[index % KINDS.len()];
    (0..count).map(|first| [at(first * 5), at(first * 5 + 7), at(first * 5 + 16)]).collect()
}

// A client, or a few together, must not stop a host, take its memory, or keep others waiting; what it leaves behind must not last.
#[test]
fn no_client_stops_a_host_or_keeps_others_waiting() {
    let long = number("ORDINATE_ABUSE_SECONDS", 0);
    let lasts = if long > 0 { Duration::from_secs(long) } else { Duration::from_millis(1_200) };
    let only = std::env::var("ORDINATE_ABUSE_ONLY").unwrap_or_default();
    let wanted = |kind: &&Kind| only.is_empty() || only.split(',').any(|word| kind.name.contains(word));
    alone(async {
        let mut stage = Stage::set().await;
        stage.head();
        for kind in KINDS.iter().filter(wanted) {
            stage.strike(&[kind], lasts).await;
        }
        if only.is_empty() {
            for triple in triples(if long > 0 { 10 } else { 2 }) {
                stage.strike(&triple, lasts).await;
            }
        }
        stage.close().await;
    });
}
