//! Proxies and shards of the coordination service are added and removed while writers go on and hosts die; and it serves over any
//! number of shards.

use crate::ensemble::{check, start, stop, until_acknowledged, write_everywhere};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use serde_json::Value;
use std::time::{Duration, Instant};

fn proxies(cluster: &Cluster, host: usize) -> Value {
    cluster.status(host).map_or(Value::Null, |status| status["coordination"]["proxies"].clone())
}

/// Over one colour there are none.
fn has_proxies(cluster: &Cluster) -> bool {
    proxies(cluster, 0).is_object()
}

fn shard_map(cluster: &Cluster, host: usize) -> Value {
    cluster.status(host).map_or(Value::Null, |status| status["coordination"]["shard_map"].clone())
}

/// What `ordinate cluster proxies` prints, asked of `host`.
async fn change(cluster: &Cluster, host: usize, wanted: &str) -> String {
    change_of(cluster, host, "proxies", wanted).await
}

/// The same of `proxies` or `shards`.
async fn change_of(cluster: &Cluster, host: usize, what: &str, wanted: &str) -> String {
    let admin = cluster.hosts[host].admin.to_string();
    let output = cluster.ordinate(&["cluster", what, wanted, "--admin", &admin]).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}\n{}", String::from_utf8_lossy(&output.stderr), cluster.logs());
    said
}

// A proxy that is added and not counted on gives numbers away twice; one that is removed takes sessions or writes with it; a change
// that only one process knew is lost with it.
#[test]
fn proxies_come_and_go_while_writers_write_and_hosts_die() {
    side_by_side(async {
        let (mut cluster, addresses) = start(4).await;
        if !has_proxies(&cluster) {
            return println!("SKIPPED: there are no proxies over this engine");
        }
        let (shared, writers) = write_everywhere(&addresses);
        until_acknowledged(&shared, 300).await;
        let begun = Instant::now();
        let said = change(&cluster, 1, "5").await;
        assert!(said.contains("5 proxies of at most 8"), "{said}");
        until_acknowledged(&shared, 300).await;
        let added = shared.gap_since(begun);
        // In the middle of the next change a host dies, whatever it led.
        let begun = Instant::now();
        let (removing, struck) = tokio::join!(change(&cluster, 0, "2"), async {
            let drained = |it: &Cluster| (0..3).any(|host| proxies(it, host)["serving"] == 2);
            cluster.until("proxies are drained", PATIENCE, drained).await;
            let host = (1..3).find(|&host| {
                let leads = cluster.status(host).map(|status| status["coordination"]["leads"].clone());
                leads.is_some_and(|leads| leads.as_object().is_some_and(|leads| !leads.is_empty()))
            });
            let host = host.unwrap_or(2);
            cluster.signal(host, "-KILL");
            host
        });
        assert!(removing.contains("that are drained"), "{removing}");
        until_acknowledged(&shared, 300).await;
        let removed = shared.gap_since(begun);
        cluster.kill(struck);
        cluster.launch(struck);
        cluster.until("the host is back", Duration::from_secs(60), |it| it.is_ready(struck)).await;
        until_acknowledged(&shared, 300).await;
        // The logs say how many there are, and not the cluster file.
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        let remembered = |it: &Cluster| (0..3).all(|host| proxies(it, host)["serving"] == 2);
        cluster.until("all hosts know how many there are", PATIENCE, remembered).await;
        until_acknowledged(&shared, 300).await;
        change(&cluster, 2, "3").await;
        until_acknowledged(&shared, 300).await;
        stop(&shared, writers);
        println!(
            "coordination: 3, 5, 2, 3 proxies: {} writes acknowledged, longest time without one {added:?} while adding, \
             {removed:?} while removing with a kill -9",
            shared.count()
        );
        check(&addresses, &shared);
        let admin = cluster.hosts[0].admin.to_string();
        let output = cluster.ordinate(&["cluster", "proxies", "9", "--admin", &admin]).await;
        let refused = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && refused.contains("1 to 8 proxies"), "{refused}");
    });
}

// A node that two shards have is written in one and read in the other; one that none has is gone, and with it its watches, its
// children's names or its session's lock.
#[test]
fn shards_come_and_go_while_writers_write_and_hosts_die() {
    side_by_side(async {
        let (mut cluster, addresses) = start(2).await;
        let (shared, writers) = write_everywhere(&addresses);
        until_acknowledged(&shared, 300).await;
        let begun = Instant::now();
        let said = change_of(&cluster, 1, "shards", "5").await;
        assert!(said.contains("5 shards of at most 16"), "{said}");
        until_acknowledged(&shared, 300).await;
        let added = shared.gap_since(begun);
        // Over one colour each host knows by itself how far a change is.
        let is_done = |it: &Cluster| shard_map(it, 0)["shards"] == 5 && shard_map(it, 0)["settled"] == true;
        cluster.until("the next host knows that it is done", PATIENCE, is_done).await;
        // The sequencer's host dies in the middle of the next change.
        let begun = Instant::now();
        let (_, struck) = tokio::join!(change_of(&cluster, 0, "shards", "3"), async {
            let begins = |it: &Cluster| (0..3).any(|host| shard_map(it, host)["shards"] == 3);
            cluster.until("a change begins", PATIENCE, begins).await;
            let sequences = |&host: &usize| {
                cluster.status(host).is_some_and(|status| !status["coordination"]["sequencer"].is_null())
            };
            let host = (1..3).find(sequences).unwrap_or(2);
            cluster.signal(host, "-KILL");
            host
        });
        until_acknowledged(&shared, 300).await;
        let removed = shared.gap_since(begun);
        cluster.kill(struck);
        cluster.launch(struck);
        cluster.until("the host is back", Duration::from_secs(60), |it| it.is_ready(struck)).await;
        until_acknowledged(&shared, 300).await;
        // The logs say how many there are, and not the cluster file.
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        let remembered = |it: &Cluster| (0..3).all(|host| shard_map(it, host)["shards"] == 3);
        cluster.until("all hosts know how many there are", PATIENCE, remembered).await;
        until_acknowledged(&shared, 300).await;
        // Proxies and shards do not get into each other's way.
        if has_proxies(&cluster) {
            change(&cluster, 2, "4").await;
        }
        change_of(&cluster, 0, "shards", "8").await;
        until_acknowledged(&shared, 300).await;
        stop(&shared, writers);
        println!(
            "coordination: 2, 5, 3, 8 shards: {} writes acknowledged, longest time without one {added:?} while adding, \
             {removed:?} while removing with a kill -9",
            shared.count()
        );
        check(&addresses, &shared);
        let admin = cluster.hosts[0].admin.to_string();
        let output = cluster.ordinate(&["cluster", "shards", "17", "--admin", &admin]).await;
        let refused = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && refused.contains("1 to 16 shards"), "{refused}");
    });
}

// A rule of placement that holds for four shards only.
#[test]
fn any_number_of_shards_survives_a_kill() {
    side_by_side(async {
        for shards in [1, 2, 8] {
            let (mut cluster, addresses) = start(shards).await;
            let (shared, writers) = write_everywhere(&addresses);
            until_acknowledged(&shared, 200).await;
            cluster.kill(0);
            until_acknowledged(&shared, 200).await;
            cluster.launch(0);
            cluster.until("the host is back", Duration::from_secs(60), |it| it.is_ready(0)).await;
            until_acknowledged(&shared, 200).await;
            stop(&shared, writers);
            check(&addresses, &shared);
        }
    });
}
