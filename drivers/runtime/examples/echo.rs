//! Messages a second between two hosts on loopback: `cargo run --release --example echo [-- seconds a run]`.
//!
//! An asker keeps `window` questions in flight to an oracle on the other host, which answers at once.
#![allow(missing_docs)]

#[path = "../tests/hosts/support/mod.rs"]
mod support;

use runtime::{FsyncPlacement, Host, JournalOptions, Storage};
use std::time::{Duration, Instant};
use support::*;

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let after_name = stat.rsplit(") ").next().expect("the line has a name");
    let ticks: u64 =
        after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Duration::from_millis(ticks * 10)
}

fn run(title: &str, asker: &Host<Member>, question: Question, seconds: f64) {
    let ask = |count| {
        let answer = asker.handle().request(ASKER, Question { count, ..question.clone() });
        answer.wait(Duration::from_secs(120)).expect("the host answers")
    };
    let warm_up = 2000.max(question.window * 20);
    let start = Instant::now();
    ask(warm_up);
    let count = (warm_up as f64 * seconds / start.elapsed().as_secs_f64()) as u64;
    let (start, cpu_before) = (Instant::now(), cpu());
    ask(count);
    let (took, used) = (start.elapsed(), cpu() - cpu_before);
    println!(
        "{title:28} window {:5}: {:10.0} messages/s   round trip / window {:8.2} us   cpu {:6.3} us/message",
        question.window,
        2.0 * count as f64 / took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / count as f64,
        used.as_secs_f64() * 1e6 / (2.0 * count as f64),
    );
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let mut configs = cluster(&["a", "b"]).into_iter();
    let a = Host::start(configs.next().expect("a"), both, vec![]).expect("a starts");
    let b = Host::start(configs.next().expect("b"), both, vec![]).expect("b starts");
    let payload = kernel::Bytes::from_static(&[7; 64]);
    for window in [1, 32, 1024] {
        let question = Question { window, durable: false, payload: payload.clone(), ..question("b", 0) };
        run("memory", &a, question, seconds);
    }
    drop((a, b));
    for (title, placement) in [
        ("journal, reactor syncs", FsyncPlacement::Inline),
        ("journal, thread syncs", FsyncPlacement::Thread),
        ("journal, adaptive", FsyncPlacement::Adaptive),
    ] {
        let directory = Scratch::new("echo");
        let mut configs = cluster(&["a", "b"]).into_iter();
        let a = Host::start(configs.next().expect("a"), both, vec![]).expect("a starts");
        let mut config = configs.next().expect("b");
        let journal = JournalOptions { placement, ..JournalOptions::default() };
        config.storage = Storage::Directory { path: directory.path().to_owned(), journal };
        let nodes = || vec![(ORACLE, Member::Oracle(Oracle { keep: Some(1 << 16), ..Oracle::default() }))];
        let b = Host::start(config, nodes, vec![]).expect("b starts");
        for window in [1, 32, 1024] {
            let question = Question { window, payload: payload.clone(), ..question("b", 0) };
            run(title, &a, question, seconds);
        }
        let metrics = b.handle().metrics().wait(LIMIT).expect("b runs");
        println!(
            "{title:28} {:?}, inline now: {}, on disk {} MiB",
            metrics.fsync_latency,
            metrics.fsync_inline,
            metrics.journal_bytes >> 20
        );
    }
}
