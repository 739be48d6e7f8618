//! Twenty-eight kinds of ordinary and hostile load at the ports of real `ordinate serve` processes, one at a time and three together. Meanwhile
//! polite clients, at the host that is struck and at another one, measure how long they wait; every host's memory is looked at, and
//! in the end every write that was acknowledged is read.
//!
//! `cargo test -p ordinate --test abuse -- --nocapture` does each for a second or two;
//! `ORDINATE_ABUSE_SECONDS=30 cargo test -p ordinate --test abuse -- --nocapture` for half a minute and prints the table of
//! `docs/reliability.md`. `ORDINATE_ABUSE_ONLY=mute,garbage` does those whose names contain one of the words, `ORDINATE_ABUSE_P99_MS` is what
//! polite clients at the struck host may wait. Hosts run the binary that `ORDINATE_BINARY` names, if it does. The first row and the last are of polite
//! clients alone: what the machine makes them wait by itself.
#![forbid(unsafe_code)]

mod few_files;
mod kinds;
mod polite;
mod slow_requests;
mod stage;
#[allow(dead_code)]
#[path = "../support/mod.rs"]
mod support;
mod topic;

use kinds::{KINDS, Kind};
use stage::Stage;
use std::time::Duration;
use support::{alone, number};

/// Kinds that meet: each of them once, with two that are far from it in the list.
fn triples(count: usize) -> Vec<[&'static Kind; 3]> {
    let at = |index: usize| &KINDS[index % KINDS.len()];
    (0..count).map(|first| [at(first * 5), at(first * 5 + 7), at(first * 5 + 16)]).collect()
}

// A client, or a few together, must not stop a host, take its memory, or keep others waiting; what it leaves behind must not last.
#[test]
fn no_client_stops_a_host_or_keeps_others_waiting() {
    let long: u64 = number("ORDINATE_ABUSE_SECONDS", 0);
    let lasts = if long > 0 { Duration::from_secs(long) } else { Duration::from_millis(1_200) };
    let only = std::env::var("ORDINATE_ABUSE_ONLY").unwrap_or_default();
    let wanted = |kind: &&Kind| only.is_empty() || only.split(',').any(|word| kind.name.contains(word));
    alone(async {
        let mut stage = Stage::set().await;
        stage.head();
        // What the machine itself makes polite clients wait.
        stage.strike(&[], lasts).await;
        for kind in KINDS.iter().filter(wanted) {
            stage.strike(&[kind], lasts).await;
        }
        if only.is_empty() {
            for triple in triples(if long > 0 { 10 } else { 2 }) {
                stage.strike(&triple, lasts).await;
            }
        }
        stage.strike(&[], lasts).await;
        stage.close().await;
    });
}
