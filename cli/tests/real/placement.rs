//! Compartmentalized placements: grids, proxy leaders, replicas and batchers on machines of their own.

use crate::load::Load;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use ordinate_client::Client;
use std::collections::BTreeMap;

/// Which hosts play a role; names are single letters.
type Roles = [(&'static str, &'static str); 5];

fn placement(roles: &Roles, columns: usize) -> String {
    let section = |(role, hosts): &(&str, &str)| {
        let on: Vec<String> = hosts.chars().map(|host| format!("\"{host}\"")).collect();
        let columns = if *role == "acceptor" { format!("columns = {columns}\n") } else { String::new() };
        format!("[[place]]\nrole = \"paxos.{role}\"\non = [{}]\n{columns}", on.join(", "))
    };
    roles.iter().map(section).collect()
}

/// Kills one host of each role in turn, under load, and prints how long nothing was acknowledged.
async fn kill_each_role(what: &str, hosts: usize, roles: &Roles, columns: usize) {
    let mut cluster = Cluster::start(hosts, "", &placement(roles, columns)).await;
    let index = |host: char| (host as u8 - b'a') as usize;
    let batchers = roles.iter().find(|(role, _)| *role == "batcher").map_or("", |(_, hosts)| *hosts);
    let endpoints: Vec<String> =
        batchers.chars().map(|host| cluster.hosts[index(host)].native.to_string()).collect();
    let client = |number: usize| {
        let mut endpoints = endpoints.clone();
        endpoints.rotate_left(number % batchers.len());
        Client::connect(endpoints).with_timeout(PATIENCE / 2)
    };
    let load = Load::start(what, (0..4).map(client).collect());
    load.until_acknowledged(60, PATIENCE).await;
    let mut gaps = BTreeMap::new();
    for (role, placed) in roles {
        let victim = match *role {
            "leader" => cluster.leader().await,
            _ => index(placed.chars().next_back().expect("every role is placed")),
        };
        let struck_at = load.now();
        cluster.kill(victim);
        load.until_everybody_is_served(struck_at, PATIENCE).await;
        gaps.insert(*role, load.longest_gap_after(struck_at));
        cluster.launch(victim);
        cluster.until_ready().await;
        load.until_acknowledged(40, PATIENCE).await;
    }
    let verdict = load.finish().await;
    let shown: Vec<String> =
        gaps.iter().map(|(role, gap)| format!("{role} {:.0} ms", gap.as_secs_f64() * 1e3)).collect();
    println!(
        "{what}, kill -9 of one host of each role: longest gap {}; {} operations, linearizable; errors: {:?}",
        shown.join(", "),
        verdict.answered,
        verdict.errors
    );
}

// Roles on machines of their own fail alone: a proxy leader, a column of the grid, a replica, a batcher.
#[test]
fn a_two_by_two_grid_survives_the_loss_of_each_role() {
    let roles = [
        ("leader", "ab"),
        ("acceptor", "abcd"),
        ("proxy_leader", "cd"),
        ("replica", "ab"),
        ("batcher", "cd"),
    ];
    side_by_side(kill_each_role("grid 2x2, 2 proxy leaders, 2 replicas, 2 batchers", 4, &roles, 2));
}

// The same with hosts that play one role only, and more of them.
#[test]
fn a_two_by_three_grid_survives_the_loss_of_each_role() {
    let roles = [
        ("leader", "gh"),
        ("acceptor", "abcdef"),
        ("proxy_leader", "ghij"),
        ("replica", "abij"),
        ("batcher", "gh"),
    ];
    side_by_side(kill_each_role("grid 2x3, 4 proxy leaders, 4 replicas, 2 batchers", 10, &roles, 3));
}
