//! Partitions in one direction and hangs.

use crate::ensemble;
use crate::failover::clients;
use crate::load::Load;
use crate::network::{Network, Partition};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

// A leader that is heard but does not hear, or hears but is not heard, keeps others from leading without being able to lead.
#[test]
fn one_way_partitions_and_hangs_of_the_leader_are_survived() {
    side_by_side(async {
        let Some(network) = Network::or_skipped(3) else { return };
        let mut cluster = Cluster::planned(3, "", "");
        network.take_in(&mut cluster);
        cluster.launch_all();
        cluster.until_ready().await;
        let load = Load::start("partition", clients(&cluster, 6));
        load.until_acknowledged(100, PATIENCE).await;
        let mut gaps = Vec::new();
        let strikes = [
            ("the leader is not heard", Some(Partition::Mute)),
            ("the leader does not hear", Some(Partition::Deaf)),
            ("the leader is partitioned", Some(Partition::Off)),
            ("the leader hangs", None),
        ];
        for (what, partition) in strikes {
            let leader = cluster.leader().await;
            let struck_at = load.now();
            match partition {
                Some(partition) => network.strike(leader, partition),
                None => cluster.signal(leader, "-STOP"),
            }
            load.until_everybody_is_served(struck_at, PATIENCE).await;
            load.until_acknowledged(60, PATIENCE).await;
            gaps.push((what, load.longest_gap_after(struck_at)));
            match partition {
                Some(partition) => network.mend(leader, partition),
                None => cluster.signal(leader, "-CONT"),
            }
            cluster.until_ready().await;
            load.until_acknowledged(100, PATIENCE).await;
        }
        let verdict = load.finish().await;
        let shown: Vec<String> =
            gaps.iter().map(|(what, gap)| format!("{what}: {:.0} ms", gap.as_secs_f64() * 1e3)).collect();
        println!(
            "partitions, longest time without an acknowledged write: {}; {} operations, linearizable; errors: {:?}",
            shown.join(", "),
            verdict.answered,
            verdict.errors
        );
    });
}

// Links that lose packets stall for TCP's timers, and with them every write that needs the host behind.
#[test]
fn lossy_links_delay_writes_and_lose_none() {
    side_by_side(async {
        let Some(network) = Network::or_skipped(3) else { return };
        if !network.lose(0) {
            return println!("SKIPPED: packet loss needs nftables (scripts/test-tools.sh)");
        }
        let mut cluster = Cluster::planned(3, "", "");
        network.take_in(&mut cluster);
        cluster.launch_all();
        cluster.until_ready().await;
        let load = Load::start("loss", clients(&cluster, 6));
        load.until_acknowledged(100, PATIENCE).await;
        let seconds = std::env::var("ORDINATE_LOSS_SECONDS").ok().and_then(|text| text.parse().ok());
        let lasts = Duration::from_secs(seconds.unwrap_or(3));
        let mut gaps = Vec::new();
        for percent in [5, 10, 20] {
            let struck_at = load.now();
            assert!(network.lose(percent), "packets are lost");
            tokio::time::sleep(lasts).await;
            gaps.push(format!(
                "{percent} %: {:.0} ms",
                load.longest_gap_after(struck_at).as_secs_f64() * 1e3
            ));
            assert!(network.lose(0), "and are not any more");
            load.until_everybody_is_served(load.now(), PATIENCE).await;
            load.until_acknowledged(60, PATIENCE).await;
        }
        let verdict = load.finish().await;
        println!(
            "packet loss between hosts for {} s, longest time without an acknowledged write: {}; {} operations, linearizable; errors: {:?}",
            lasts.as_secs(),
            gaps.join(", "),
            verdict.answered,
            verdict.errors
        );
    });
}

// A host that is heard and does not hear keeps its sequencer, its leading proxies and its shards' servers from being followed, or goes
// on serving by itself: writes are lost, sessions end though they are used, or everybody waits.
#[test]
fn a_host_of_the_coordination_service_is_partitioned_in_one_direction() {
    side_by_side(async {
        let Some(network) = Network::or_skipped(3) else { return };
        let mut cluster = Cluster::planned(3, &ensemble::settings(4), "");
        network.take_in(&mut cluster);
        let addresses: Vec<SocketAddr> = (0..3).map(|host| network.address_of(host, 2181)).collect();
        for (host, address) in addresses.iter().enumerate() {
            cluster.set_environment(host, "ORDINATE_LISTEN__ZOOKEEPER", &address.to_string());
        }
        cluster.launch_all();
        cluster.until_ready().await;
        let (shared, writers) = ensemble::write_everywhere(&addresses);
        ensemble::until_acknowledged(&shared, 300).await;
        let mut gaps = Vec::new();
        for partition in [Partition::Mute, Partition::Deaf, Partition::Off] {
            let mut of_this = Vec::new();
            for host in 0..3 {
                let struck = Instant::now();
                network.strike(host, partition);
                ensemble::until_acknowledged(&shared, 300).await;
                of_this.push(shared.gap_since(struck));
                network.mend(host, partition);
                shared.go_home();
                cluster.until_ready().await;
                ensemble::until_acknowledged(&shared, 300).await;
            }
            of_this.sort_unstable();
            gaps.push((partition, of_this));
        }
        ensemble::stop(&shared, writers);
        println!("coordination: {} writes acknowledged, gaps after partitions {gaps:?}", shared.count());
        ensemble::check(&addresses, &shared);
        // What is claimed is half of it, on a machine that is not busy with other things.
        let held = gaps.iter().all(|(_, gaps)| gaps[1] <= 2 * ensemble::HANG_GAP_MAX);
        assert!(held, "{gaps:?}\n{}", cluster.logs());
    });
}
