//! Transactions while hosts die, hang and lose power; over HTTP and the command line; and what is refused.

mod http;
mod load;

use crate::support::alone;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::number;
use load::TxnLoad;
use ordinate_client::TxnClient;
use std::time::Duration;

/// One machine has one clock: hosts on it differ by nothing, and a bound that is small makes commits as quick as they are in production.
pub const SETTINGS: &str = "[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n[txn]\nshards = 4";

const CLIENTS: usize = 6;
/// What we claim of the longest time without a commit when a host is killed.
const KILL_GAP_MAX: Duration = Duration::from_millis(700);

fn clients(cluster: &Cluster, count: usize) -> Vec<TxnClient> {
    let connect = |number| TxnClient::connect(cluster.endpoints_from(number));
    (0..count).map(|number| connect(number).with_timeout(PATIENCE / 2)).collect()
}

/// Nothing is left of transactions that ended: no locks, nothing in doubt.
async fn until_nothing_is_in_doubt(cluster: &Cluster, within: Duration) {
    let settled = |cluster: &Cluster| {
        (0..3).all(|host| {
            let status = cluster.status(host).unwrap_or_default();
            let Some(shards) = status["txn"]["shards"].as_object() else { return false };
            let none = |field: &str| shards.values().all(|shard| shard[field].as_u64() == Some(0));
            none("prepared") && none("in_progress") && none("undecided_participants")
        })
    };
    cluster.until("nothing is in doubt", within, settled).await;
}

// A transaction that is half done after a crash makes or loses money; a commit that was acknowledged and is gone was a lie; locks of the
// dead stop the living.
#[test]
fn transfers_keep_their_sum_while_hosts_die() {
    alone(async {
        let rounds = number("ORDINATE_ROUNDS", 3);
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let load = TxnLoad::start("bank", clients(&cluster, CLIENTS)).await;
        load.until_acknowledged(100, PATIENCE).await;
        let (mut killed, mut hung, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let host = round % 3;
            let at = load.now();
            cluster.kill(host);
            load.until_acknowledged(40, PATIENCE).await;
            killed.push(load.longest_gap_after(at));
            cluster.launch(host);
            cluster.until_ready().await;
            load.until_everybody_is_served(at, PATIENCE).await;
            let at = load.now();
            cluster.signal(host, "-STOP");
            load.until_acknowledged(40, PATIENCE).await;
            hung.push(load.longest_gap_after(at));
            cluster.signal(host, "-CONT");
            load.until_everybody_is_served(at, PATIENCE).await;
            let at = load.now();
            cluster.kill_all();
            cluster.launch_all();
            cluster.until_ready().await;
            load.until_everybody_is_served(at, PATIENCE).await;
            all.push(load.longest_gap_after(at));
        }
        let shown = load.finish().await;
        until_nothing_is_in_doubt(&cluster, PATIENCE).await;
        println!(
            "transactions: {rounds} rounds, {} answered, {} commits, by-level; longest without a commit: \
             killed {killed:?}, hung {hung:?}, all killed {all:?}; errors: {:?}",
            shown.answered, shown.commits, shown.errors
        );
        let held = killed.iter().filter(|gap| **gap <= KILL_GAP_MAX).count();
        assert!(held >= 1, "gaps of {killed:?}, claimed {KILL_GAP_MAX:?}");
    });
}
