//! Large values, many at once: what is refused was not executed, what is acknowledged is there, and nobody stops.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::http;
use crate::support::side_by_side;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a value: near the most that a batch takes.
const VALUE_BYTES: usize = 200_000;

/// What became of the writes.
#[derive(Debug, Default)]
struct Fates {
    acknowledged: Vec<String>,
    refused: Vec<String>,
    unknown: usize,
    longest: Duration,
}

/// The value of a key.
fn value_of(key: &str) -> Vec<u8> {
    key.bytes().cycle().take(VALUE_BYTES).collect()
}

fn put(admin: SocketAddr, key: String, fates: &Mutex<Fates>) {
    let begun = Instant::now();
    let answer = http::ask(admin, "PUT", &format!("/v1/kv/{key}"), &value_of(&key));
    let mut fates = fates.lock().unwrap_or_else(PoisonError::into_inner);
    fates.longest = fates.longest.max(begun.elapsed());
    match answer {
        Some(answer) if answer.code == 200 => fates.acknowledged.push(key),
        Some(answer) if answer.code == 503 => {
            assert!(answer.text().contains("not executed"), "{}", answer.text());
            fates.refused.push(key);
        }
        Some(answer) if answer.code == 504 => fates.unknown += 1,
        other => panic!("{key}: {other:?}"),
    }
}

/// Every key that was acknowledged reads as it was written, and none that was refused is there; once more after all were killed.
async fn check(cluster: &mut Cluster, fates: &Fates) {
    for round in ["before", "after"] {
        let admins: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        for (nth, key) in fates.acknowledged.iter().enumerate() {
            let admin = admins[nth % admins.len()];
            let answer = http::ask(admin, "GET", &format!("/v1/kv/{key}?raw"), b"").expect("an answer");
            assert_eq!((answer.code, answer.body.len()), (200, VALUE_BYTES), "{key} {round} the restart");
            assert!(answer.body == value_of(key), "{key} reads as another value");
        }
        for key in &fates.refused {
            let answer = http::ask(admins[0], "GET", &format!("/v1/kv/{key}"), b"").expect("an answer");
            assert_eq!(answer.code, 404, "{key} was refused, and is there {round} the restart");
        }
        if round == "before" {
            cluster.kill_all();
            cluster.launch_all();
            cluster.until_ready().await;
        }
    }
}

fn nobody_exited(cluster: &mut Cluster) {
    for host in 0..cluster.hosts.len() {
        assert!(cluster.is_alive(host), "host {host} has stopped\n{}", cluster.logs());
        assert!(!cluster.log(host).contains("panicked"), "{}", cluster.log(host));
    }
}

// Batches that grow beyond what the journal takes while others are in flight stop a majority of the hosts.
#[test]
fn a_hundred_large_writes_at_once_stop_nobody() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, "", "").await;
        let (admin, fates) = (cluster.hosts[0].admin, Mutex::new(Fates::default()));
        std::thread::scope(|scope| {
            for nth in 0..100 {
                let fates = &fates;
                scope.spawn(move || put(admin, format!("large{nth}"), fates));
            }
        });
        let fates = fates.into_inner().unwrap_or_else(PoisonError::into_inner);
        nobody_exited(&mut cluster);
        println!(
            "100 PUTs of {VALUE_BYTES} bytes at once: {} acknowledged, {} refused, {} unknown, the longest {:?}",
            fates.acknowledged.len(),
            fates.refused.len(),
            fates.unknown,
            fates.longest
        );
        assert!(fates.acknowledged.len() + fates.refused.len() == 100, "{} are unknown", fates.unknown);
        assert!(!fates.acknowledged.is_empty());
        check(&mut cluster, &fates).await;
    });
}

// What piles up while no majority answers must not come out as one batch when it does.
#[test]
fn large_writes_while_a_majority_is_paused_stop_nobody() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, "", "").await;
        let (admin, fates) = (cluster.hosts[0].admin, Arc::new(Mutex::new(Fates::default())));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..60)
            .map(|writer| {
                let (fates, stop) = (Arc::clone(&fates), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut nth = 0;
                    while !stop.load(Ordering::Relaxed) {
                        put(admin, format!("paused{writer}.{nth}"), &fates);
                        nth += 1;
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        (1..3).for_each(|host| cluster.signal(host, "-STOP"));
        tokio::time::sleep(Duration::from_secs(3)).await;
        (1..3).for_each(|host| cluster.signal(host, "-CONT"));
        let resumed = Instant::now();
        let acknowledged = || fates.lock().unwrap_or_else(PoisonError::into_inner).acknowledged.len();
        let before = acknowledged();
        while acknowledged() == before {
            assert!(resumed.elapsed() < PATIENCE, "nothing is acknowledged any more\n{}", cluster.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let served = resumed.elapsed();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        nobody_exited(&mut cluster);
        let fates = std::mem::take(&mut *fates.lock().unwrap_or_else(PoisonError::into_inner));
        let by_kind: BTreeMap<&str, usize> = BTreeMap::from([
            ("acknowledged", fates.acknowledged.len()),
            ("refused", fates.refused.len()),
            ("unknown", fates.unknown),
        ]);
        println!(
            "60 writers of {VALUE_BYTES} bytes, two of three hosts paused for 3 s: {by_kind:?}, the longest {:?}, \
             served {served:?} after",
            fates.longest
        );
        check(&mut cluster, &fates).await;
    });
}
