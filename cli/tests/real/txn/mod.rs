//! Transactions while hosts die, hang and lose power; over HTTP and the command line; and what is refused.

mod http;
mod load;
mod placed;

use crate::membership::change;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::number;
use crate::support::power::lose_what_is_not_synced;
use crate::support::{alone, side_by_side};
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

// A change of hosts that leaves a shard behind has it depend on hosts that are gone; one that moves it back loses it.
#[test]
fn shards_follow_the_members_of_the_cluster() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let founders =
            clients(&cluster, CLIENTS).into_iter().map(|client| client.with_timeout(Duration::from_secs(5)));
        let founders: Vec<TxnClient> = founders.collect();
        let token_of = founders[0].clone();
        let mut load = TxnLoad::start("bank", founders).await;
        load.until_acknowledged(100, PATIENCE).await;
        let is_settled = |host: usize, version: u64| {
            move |cluster: &Cluster| {
                let status = cluster.status(host).unwrap_or_default();
                status["membership"]["settled"].as_u64().is_some_and(|settled| settled >= version)
            }
        };
        let d = cluster.plan_host(true);
        cluster.launch(d);
        change(&cluster, 0, &["add", &format!("d={}", cluster.hosts[d].peer)]).await;
        cluster.until("all shards are on four hosts", PATIENCE, is_settled(0, 1)).await;
        // A host that is gone with its disk is replaced, and the next one leaves: what is left holds everything.
        cluster.kill(2);
        cluster.wipe(2);
        let e = cluster.plan_host(true);
        cluster.launch(e);
        change(&cluster, 0, &["replace", "c", &format!("e={}", cluster.hosts[e].peer)]).await;
        cluster.until("e has taken over from c", PATIENCE, is_settled(0, 2)).await;
        change(&cluster, 0, &["remove", "b"]).await;
        cluster.until("b is not needed", PATIENCE, is_settled(0, 3)).await;
        cluster.kill(1);
        let joined: Vec<String> = [d, e].map(|host| cluster.hosts[host].native.to_string()).into();
        load.join(vec![TxnClient::connect(joined).with_timeout(PATIENCE)], token_of.token());
        load.until_acknowledged(200, PATIENCE).await;
        // One of three may die again.
        cluster.kill(0);
        load.until_acknowledged(50, PATIENCE).await;
        let shown = load.finish().await;
        println!(
            "transactions while hosts come and go: {} answered, {} commits, by-level; errors: {:?}",
            shown.answered, shown.commits, shown.errors
        );
    });
}

// A clock that nobody keeps, and commits that wait for it for ever, or not at all: a host has to say so when it starts.
#[test]
fn a_host_without_a_clock_refuses_and_names_one_remedy() {
    side_by_side(async {
        let cluster = Cluster::planned(3, "[txn]\nshards = 2", "");
        cluster.write_file();
        let survey = cluster.ordinate(&["clock"]).await;
        if survey.status.success() {
            println!("SKIPPED: this machine has a synchronised clock");
            return;
        }
        let refused = cluster.refusal(0);
        assert_eq!(refused.status.and_then(|status| status.code()), Some(1), "{}", refused.said);
        assert!(refused.said.contains("error[O2115]") && refused.said.contains("-> "), "{}", refused.said);
    });
}

/// Nothing is left of transactions that ended: no locks, nothing in doubt.
async fn until_nothing_is_in_doubt(cluster: &Cluster, hosts: [usize; 3], within: Duration) {
    let settled = |cluster: &Cluster| {
        hosts.into_iter().all(|host| {
            let status = cluster.status(host).unwrap_or_default();
            let Some(shards) = status["txn"]["shards"].as_object() else { return false };
            let none = |field: &str| shards.values().all(|shard| shard[field].as_u64() == Some(0));
            none("prepared") && none("in_progress") && none("undecided_participants")
        })
    };
    cluster.until("nothing is in doubt", within, settled).await;
}

/// What we claim of how long a transaction may stay in doubt once all hosts serve.
const IN_DOUBT_MAX: Duration = Duration::from_secs(2);

/// No transaction that was in doubt when all hosts served again is so any more.
async fn until_doubts_are_settled(cluster: &Cluster, hosts: [usize; 3]) -> Duration {
    let begun = std::time::Instant::now();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_micros() as u64);
    let settled = |cluster: &Cluster| {
        hosts.into_iter().all(|host| {
            let status = cluster.status(host).unwrap_or_default();
            let Some(shards) = status["txn"]["shards"].as_object() else { return false };
            shards.values().all(|shard| {
                let oldest = shard["prepared_at"].as_u64().unwrap_or(0);
                shard["prepared"].as_u64().is_some() && (oldest == 0 || oldest > now)
            })
        })
    };
    cluster.until("what was in doubt is settled", PATIENCE, settled).await;
    begun.elapsed()
}

/// What strikes have shown: the longest time without a commit of each, by kind, and how long doubts stayed.
#[derive(Debug, Default)]
struct Struck {
    killed: Vec<Duration>,
    hung: Vec<Duration>,
    /// Until the users of a host that hangs were served by others.
    left: Vec<Duration>,
    all: Vec<Duration>,
    changed: Vec<Duration>,
    doubts: Vec<Duration>,
}

impl Struck {
    /// One host is killed, then hangs, then all of them lose power.
    async fn round(&mut self, cluster: &mut Cluster, load: &TxnLoad, hosts: [usize; 3], host: usize) {
        let at = load.now();
        cluster.kill(host);
        load.until_acknowledged(40, PATIENCE).await;
        self.killed.push(load.longest_gap_after(at));
        cluster.launch(host);
        self.served_again(cluster, load, hosts, at).await;
        let at = load.now();
        cluster.signal(host, "-STOP");
        load.until_acknowledged(40, PATIENCE).await;
        self.hung.push(load.longest_gap_after(at));
        // Its own users turn to others.
        load.until_everybody_is_served(at, PATIENCE).await;
        self.left.push(Duration::from_nanos(load.now() - at));
        cluster.signal(host, "-CONT");
        self.served_again(cluster, load, hosts, at).await;
        let at = load.now();
        cluster.kill_all();
        hosts.into_iter().for_each(|host| cluster.launch(host));
        self.served_again(cluster, load, hosts, at).await;
        self.all.push(load.longest_gap_after(at));
    }

    async fn served_again(&mut self, cluster: &Cluster, load: &TxnLoad, hosts: [usize; 3], since: u64) {
        cluster.until_ready().await;
        load.until_everybody_is_served(since, PATIENCE).await;
        self.doubts.push(until_doubts_are_settled(cluster, hosts).await);
    }

    /// A new host takes over from `leaver`; its number.
    async fn change_of_hosts(&mut self, cluster: &mut Cluster, load: &TxnLoad, leaver: usize) -> usize {
        let at = load.now();
        let joins = cluster.plan_host(true);
        cluster.take_environment(joins, leaver);
        cluster.launch(joins);
        let names = (cluster.hosts[leaver].name.clone(), cluster.hosts[joins].name.clone());
        let address = format!("{}={}", names.1, cluster.hosts[joins].peer);
        change(cluster, 0, &["replace", &names.0, &address]).await;
        let is_settled = |cluster: &Cluster| {
            let status = cluster.status(0).unwrap_or_default();
            status["membership"]["settled"].as_u64().is_some_and(|settled| settled >= 1)
        };
        cluster.until("the shards have followed", PATIENCE, is_settled).await;
        cluster.kill(leaver);
        load.until_everybody_is_served(load.now(), PATIENCE).await;
        self.changed.push(load.longest_gap_after(at));
        joins
    }
}

// A transaction that is half done after a crash makes or loses money; a commit that was acknowledged and is gone was a lie; locks of the
// dead stop the living. Power is lost with what was not synced. A host leaves and another joins half-way.
#[test]
fn transfers_keep_their_sum_while_hosts_die() {
    alone(async {
        let rounds = number("ORDINATE_ROUNDS", 2);
        let mut cluster = Cluster::planned(3, SETTINGS, "");
        let loses = lose_what_is_not_synced(&mut cluster);
        cluster.launch_all();
        cluster.until_ready().await;
        let load = TxnLoad::start("bank", clients(&cluster, CLIENTS)).await;
        load.until_acknowledged(100, PATIENCE).await;
        let (mut struck, mut hosts) = (Struck::default(), [0, 1, 2]);
        for round in 0..rounds {
            if round == rounds / 2 {
                hosts[1] = struck.change_of_hosts(&mut cluster, &load, hosts[1]).await;
            }
            struck.round(&mut cluster, &load, hosts, hosts[round % 3]).await;
        }
        let shown = load.finish().await;
        until_nothing_is_in_doubt(&cluster, hosts, PATIENCE).await;
        println!(
            "transactions: {rounds} rounds, {} answered, {} commits, by-level; longest without a commit, and how long \
             doubts stayed: {struck:?}; errors: {:?}; unsynced writes lost: {loses:?}",
            shown.answered, shown.commits, shown.errors
        );
        let held = struck.killed.iter().filter(|gap| **gap <= KILL_GAP_MAX).count();
        assert!(2 * held >= rounds, "gaps of {:?}, claimed {KILL_GAP_MAX:?}", struck.killed);
        let soon = struck.doubts.iter().filter(|took| **took <= IN_DOUBT_MAX).count();
        assert!(
            2 * soon >= struck.doubts.len(),
            "doubts settled after {:?}, claimed {IN_DOUBT_MAX:?}",
            struck.doubts
        );
    });
}
