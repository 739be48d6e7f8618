//! All hosts lose power at once, again and again, on disks that lose, tear and reorder whatever was not synced.

use crate::failover::clients;
use crate::load::Load;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::number;
use crate::support::power::lose_what_is_not_synced;
use crate::support::side_by_side;
use std::time::{Duration, Instant};

/// Writes acknowledged between two power losses.
const WRITES_A_ROUND: usize = 120;

// An answer that leaves before its record is synced, a torn record that is believed, or a promise that was only in memory:
// each loses an acknowledged write when all hosts restart from what is on their disks.
#[test]
fn nothing_acknowledged_is_lost_when_all_hosts_lose_power() {
    side_by_side(async {
        let rounds = number("ORDINATE_ROUNDS", 5);
        let mut cluster = Cluster::planned(3, "", "");
        if let Err(reason) = lose_what_is_not_synced(&mut cluster) {
            println!("SKIPPED: {reason}");
            return;
        }
        cluster.launch_all();
        cluster.until_ready().await;
        let load = Load::start("power", clients(&cluster, 6));
        let mut away = Vec::new();
        for round in 0..rounds {
            // A different number each round: the power fails in the middle of different things.
            load.until_acknowledged(WRITES_A_ROUND + 7 * round % 50, PATIENCE).await;
            let failed_at = load.now();
            cluster.kill_all();
            cluster.launch_all();
            cluster.until_ready().await;
            load.until_everybody_is_served(failed_at, PATIENCE).await;
            away.push(load.longest_gap_after(failed_at));
        }
        let verdict = load.finish().await;
        away.sort();
        println!(
            "power loss of all hosts: {rounds} rounds, {} operations, {} acknowledged writes, 0 lost, linearizable; \
             without an acknowledged write for {:?} (median), {:?} (longest); errors: {:?}",
            verdict.answered,
            verdict.writes,
            away[away.len() / 2],
            away[away.len() - 1],
            verdict.errors
        );
        for host in 0..3 {
            cluster.set_environment(host, "SHIM_REPORT", "1");
        }
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        let load = Load::start("reported", clients(&cluster, 3));
        load.until_acknowledged(60, PATIENCE).await;
        load.finish().await;
        for host in 0..3 {
            cluster.signal(host, "-TERM");
            let asked = Instant::now();
            while cluster.is_alive(host) {
                assert!(asked.elapsed() < PATIENCE, "host {host} does not stop\n{}", cluster.logs());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let log = cluster.log(host);
            let reported = log.lines().find(|line| line.starts_with("shim: ")).expect("the shim was loaded");
            let mut numbers =
                reported.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
            assert!(numbers.all(|number| number != "0"), "the shim did nothing: {reported}");
        }
    });
}
