//! Other people's tests.

use crate::peers;
use crate::support::cluster::{Cluster, ORDINATE, free_addresses};
use crate::support::side_by_side;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// What runs of kazoo's suite by default: no waiting for timeouts. `scripts/kazoo-suite.sh` runs all of it.
const KAZOO_BOUNDED: &str =
    "test_(barrier|cache|counter|election|lease|lock|party|queue|sasl|watchers|client|partitioner)\\.py";

/// More than its hosts listen at, from the first one up.
const KAZOO_PORTS: u16 = 16;

fn kazoo(engine: &str) {
    let Some(_) = peers::installed("python") else { return };
    let only = std::env::var("ORDINATE_KAZOO_ONLY").unwrap_or_else(|_| KAZOO_BOUNDED.to_owned());
    let port = free_addresses(KAZOO_PORTS).port();
    let output = Command::new(peers::root().join("scripts/kazoo-suite.sh"))
        .arg(engine)
        .env("ORDINATE_BINARY", ORDINATE)
        .env("ORDINATE_KAZOO_ONLY", only)
        .env("ORDINATE_PORT", port.to_string())
        .output()
        .expect("the script is in the repository");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let verdict = said.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    assert!(!verdict.is_empty(), "no test of kazoo ran: {said}");
    println!("kazoo over {engine}: {verdict}");
}

// A client library that its own authors have tested against ZooKeeper behaves differently here: with shards ...
#[test]
fn kazoos_own_suite_passes_over_mason() {
    side_by_side(async { kazoo("mason") });
}

// ... or without.
#[test]
fn kazoos_own_suite_passes_over_paxos() {
    side_by_side(async { kazoo("paxos") });
}

// The client of most programs in Go closes the connection upon what it does not expect.
#[test]
fn the_go_client_works() {
    side_by_side(async {
        let Some(folder) = peers::installed("go") else { return };
        for coordination in
            ["[coordination]\nengine = \"mason\"\nshards = 4", "[coordination]\nengine = \"paxos\""]
        {
            let (_cluster, addresses) = peers::ordinate(coordination).await;
            let servers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let output = Command::new(folder.join("go-smoke")).arg(servers.join(",")).output();
            let output = output.expect("it was built, or its peers would not be there");
            let (said, trouble) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{coordination}\n{said}\n{trouble}");
            let verdict = said.lines().last().unwrap_or_default();
            assert_eq!(verdict, "9 checks passed", "{said}");
            println!("Go over {}: {verdict}", coordination.replace('\n', " "));
        }
    });
}

// The official client refuses what it does not know: a code, an order of answers, a global sequence number that goes back.
#[test]
fn the_java_client_and_curators_recipes_work() {
    side_by_side(async {
        let Some(folder) = peers::installed("java") else { return };
        for coordination in
            ["[coordination]\nengine = \"mason\"\nshards = 4", "[coordination]\nengine = \"paxos\""]
        {
            let (_cluster, addresses) = peers::ordinate(coordination).await;
            let servers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let classes = format!("{0}/classes:{0}/jars/*", folder.display());
            let output = Command::new("java").args(["-cp", &classes, "Smoke", &servers.join(",")]).output();
            let output = output.expect("java runs, or its peers would not be there");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{coordination}\n{said}");
            let verdict = said.lines().last().unwrap_or_default();
            assert!(verdict.ends_with("17 checks passed"), "{said}");
            println!("Java over {}: {verdict}", coordination.replace('\n', " "));
        }
    });
}

/// Connects Curator to the first servers; it must come to know the others, as these.
fn curator_comes_to_know(folder: &Path, servers: &[SocketAddr], wanted: &[String]) {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let classes = format!("{0}/classes:{0}/jars/*", folder.display());
    let command = ["-cp", &classes, "CurrentConfig", &servers.join(","), &wanted.join(",")];
    let output = Command::new("java").args(command).output();
    let output = output.expect("java runs, or its peers would not be there");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("Curator: {}", said.lines().last().unwrap_or_default());
}

// Curator reads the members at every connect: a line that Java refuses is an error that nobody handles, which ends programs.
#[test]
fn curator_learns_the_members_without_an_unhandled_error() {
    side_by_side(async {
        let Some(folder) = peers::installed("java") else { return };
        let coordination = "[coordination]\nengine = \"mason\"\nshards = 2";
        let (_cluster, addresses) = peers::ordinate(coordination).await;
        let listened: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        curator_comes_to_know(&folder, &addresses[..1], &listened);
        // Where clients reach hosts by other names, those are advertised, and used for the next connection.
        let mut cluster = Cluster::planned(3, coordination, "");
        let addresses: Vec<SocketAddr> = (0..3).map(|host| cluster.listen(host, "ZOOKEEPER")).collect();
        let outside: Vec<String> =
            addresses.iter().map(|address| format!("localhost:{}", address.port())).collect();
        for (host, address) in outside.iter().enumerate() {
            cluster.set_environment(host, "ORDINATE_LISTEN__ZOOKEEPER_ADVERTISED", address);
        }
        cluster.launch_all();
        cluster.until_ready().await;
        curator_comes_to_know(&folder, &addresses[1..2], &outside);
    });
}
