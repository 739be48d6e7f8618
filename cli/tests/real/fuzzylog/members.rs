//! Hosts that come and go while nodes are appended.

use super::{Record, SETTINGS, WRITERS, judge, until_appended, write};
use crate::membership::change;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A host that joins, and one that leaves, hold no append up for longer.
const LONGEST: Duration = Duration::from_secs(3);

/// Every partition's chain is of these hosts, and serves.
fn chains_are(cluster: &Cluster, through: usize, hosts: &[&str]) -> bool {
    let Some(answer) = http::get(cluster.hosts[through].admin, "/v1/fuzzylog/partitions") else {
        return false;
    };
    let page = answer.json();
    page["partitions"].as_array().is_some_and(|chains| {
        chains.len() == 3
            && chains.iter().all(|chain| {
                let mut of: Vec<&str> =
                    chain["chain"].as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
                of.sort_unstable();
                of == hosts && chain["serves"] == true
            })
    })
}

fn longest(record: &Record) -> Duration {
    let mut calls = record.calls.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *calls).into_iter().max().unwrap_or_default()
}

// A host that leaves takes what was acknowledged with it, chains stand still until somebody restarts them, or directors that are gone
// are still needed.
#[test]
fn hosts_come_and_go_under_appends() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let founders: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let record = Arc::new(Record::default());
        record.hosts.lock().unwrap_or_else(PoisonError::into_inner).extend(founders);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let record = Arc::clone(&record);
                std::thread::spawn(move || write(writer, &record))
            })
            .collect();
        until_appended(&record, 200).await;
        longest(&record);

        let d = cluster.plan_host(true);
        cluster.launch(d);
        let d_line = format!("d={}", cluster.hosts[d].peer);
        change(&cluster, 0, &["add", &d_line]).await;
        cluster.until("d is ready", PATIENCE, |it| it.is_ready(d)).await;
        record.hosts.lock().unwrap_or_else(PoisonError::into_inner).push(cluster.hosts[d].admin);
        until_appended(&record, 200).await;
        let added = longest(&record);
        change(&cluster, 1, &["remove", "a"]).await;
        assert!(chains_are(&cluster, 1, &["b", "c", "d"]), "a has left, and chains need it");
        record.hosts.lock().unwrap_or_else(PoisonError::into_inner).remove(0);
        let removed = longest(&record);
        cluster.kill(0);
        cluster.wipe(0);
        until_appended(&record, 200).await;

        // Two of the three first directors are gone: with the third one, nobody could direct who did at first.
        let e = cluster.plan_host(true);
        cluster.launch(e);
        let e_line = format!("e={}", cluster.hosts[e].peer);
        change(&cluster, 2, &["replace", "b", &e_line]).await;
        cluster.until("e is ready", PATIENCE, |it| it.is_ready(e)).await;
        {
            let mut hosts = record.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            hosts.remove(0);
            hosts.push(cluster.hosts[e].admin);
        }
        let replaced = longest(&record);
        cluster.kill(1);
        cluster.wipe(1);
        until_appended(&record, 200).await;
        cluster.until("chains of three", PATIENCE, |it| chains_are(it, d, &["c", "d", "e"])).await;
        cluster.kill(2);
        until_appended(&record, 200).await;
        cluster.until("chains without c", PATIENCE, |it| chains_are(it, d, &["d", "e"])).await;
        cluster.launch(2);
        cluster.until("chains with c", PATIENCE, |it| chains_are(it, d, &["c", "d", "e"])).await;
        until_appended(&record, 100).await;
        record.stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        let appended = record.appended.lock().unwrap_or_else(PoisonError::into_inner);
        judge(cluster.hosts[e].admin, &appended);
        println!(
            "fuzzylog members, longest append: {added:?} while a host is added, {removed:?} removed, {replaced:?} \
             replaced; {} appends",
            appended.len()
        );
        for (what, longest) in [("added", added), ("removed", removed), ("replaced", replaced)] {
            assert!(longest < LONGEST, "an append took {longest:?} while a host was {what}");
        }
    });
}
