//! Shards on some of the hosts, moved there while transactions run.

use super::{SETTINGS, load::TxnLoad};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use ordinate_client::{TxnClient, TxnLevel};
use std::time::Duration;

/// What we claim of how long a leader stays away from the host that is to lead.
const RETURN_WITHIN: Duration = Duration::from_secs(60);

/// Every shard is on three hosts, is led where it is to be, and needs nobody else.
fn are_placed(cluster: &Cluster, hosts: &[usize]) -> bool {
    hosts.iter().all(|&host| {
        let status = cluster.status(host).unwrap_or_default();
        let Some(shards) = status["txn"]["shards"].as_object() else { return false };
        shards.values().all(|shard| {
            shard["settled"] == true
                && shard["replicas"].as_array().is_some_and(|replicas| replicas.len() == 3)
                && shard["leader"].is_string()
                && shard["leader"] == shard["preferred"]
        })
    })
}

// A shard that stays on every host costs what it did before; a host without a replica that serves nobody is one host less.
#[test]
fn shards_of_an_earlier_version_move_to_some_hosts_and_all_serve() {
    side_by_side(async {
        let mut cluster = Cluster::planned(5, SETTINGS, "");
        // As it was before there was a placement: every host holds every shard.
        (0..5).for_each(|host| cluster.set_environment(host, "ORDINATE_TXN__REPLICAS", "5"));
        cluster.launch_all();
        cluster.until_ready().await;
        let clients: Vec<TxnClient> = (0..5)
            .map(|host| TxnClient::connect(cluster.endpoints_from(host)).with_timeout(PATIENCE / 2))
            .collect();
        let load = TxnLoad::start("bank", clients).await;
        load.until_acknowledged(100, PATIENCE).await;
        let at = load.now();
        cluster.kill_all();
        (0..5).for_each(|host| cluster.set_environment(host, "ORDINATE_TXN__REPLICAS", "3"));
        cluster.launch_all();
        cluster.until_ready().await;
        let all = [0, 1, 2, 3, 4];
        let begun = std::time::Instant::now();
        cluster.until("shards are where they are wanted", RETURN_WITHIN, |it| are_placed(it, &all)).await;
        let took = begun.elapsed();
        load.until_everybody_is_served(at, PATIENCE).await;
        for host in all {
            let own = cluster.hosts[host].native.to_string();
            let client = TxnClient::connect(vec![own]).with_timeout(PATIENCE / 2);
            let levels =
                [TxnLevel::Strict, TxnLevel::Rss, TxnLevel::ProcessOrdered, TxnLevel::Stale(5_000_000)];
            for level in levels {
                let found = client.read(level).scan("bank/", 100).run().await;
                let found = found.unwrap_or_else(|error| panic!("{level:?} at host {host}: {error}"));
                assert!(!found.scans.is_empty(), "{level:?} at host {host}");
            }
        }
        // A leader that dies comes back to its host.
        let at = load.now();
        cluster.kill(0);
        load.until_acknowledged(40, PATIENCE).await;
        cluster.launch(0);
        cluster.until_ready().await;
        load.until_everybody_is_served(at, PATIENCE).await;
        cluster.until("leaders have returned", RETURN_WITHIN, |it| are_placed(it, &all)).await;
        let shown = load.finish().await;
        println!("placed within {took:?}; {} answered, {} commits", shown.answered, shown.commits);
    });
}

// More replicas than hosts is a wish that nothing can fulfil: a host that starts all the same has one that is never settled.
#[test]
fn more_replicas_than_hosts_are_refused() {
    side_by_side(async {
        let cluster = Cluster::planned(3, &format!("{SETTINGS}\nreplicas = 4"), "");
        let refused = cluster.refusal(0);
        assert_eq!(refused.status.and_then(|status| status.code()), Some(2), "{}", refused.said);
        assert!(refused.said.contains("txn.replicas is 4, and there are 3 hosts"), "{}", refused.said);
    });
}
