//! Whether everything that speaks of a host's health says what is true, and how soon.

use crate::network::{Network, Partition as Way};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ALL: &str =
    "[coordination]\nengine = \"mason\"\nshards = 2\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1";

/// What we claim. Machines that run tests are noisy: half of the looks must keep it.
const TRUE_WITHIN: Duration = Duration::from_secs(2);

/// How two of three hosts, or one of them, come to be of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    Pause,
    Partition,
}

/// What each signal of a host says: that it serves, or that it does not.
async fn signals(cluster: &Cluster, host: usize) -> BTreeMap<&'static str, Option<bool>> {
    let admin = cluster.hosts[host].admin;
    let page = http::get(admin, "/metrics").map(|answer| answer.text()).unwrap_or_default();
    let is_one = |name: &str| {
        let mut values = page.lines().filter(|line| line.starts_with(name)).peekable();
        values.peek().is_some().then(|| values.all(|line| line.ends_with(" 1")))
    };
    let status = cluster.status(host);
    let said = cluster.ordinate(&["status", "--admin", &admin.to_string()]).await;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let log = cluster.log(host);
    let mut lines =
        log.lines().filter(|line| line.contains("health: serving") || line.contains("health: not serving"));
    let mut leads = log
        .lines()
        .filter(|line| line.contains("leads (round") || line.ends_with("health: no leader is heard"));
    BTreeMap::from([
        ("/readyz", http::get(admin, "/readyz").map(|answer| answer.code == 200)),
        ("metrics, in total", is_one("ordinate_ready ")),
        ("metrics, by service", is_one("ordinate_service_ready{")),
        ("metrics, quorum", is_one("ordinate_quorum ")),
        ("status", status.as_ref().map(|status| status["not_serving"].is_null())),
        ("status, leader", status.as_ref().map(|status| status["leader"].is_string())),
        ("command line", (!said.is_empty()).then(|| said.contains("serving     yes"))),
        ("log", lines.next_back().map(|line| line.contains("health: serving"))),
        ("log, leader", leads.next_back().map(|line| line.contains("leads"))),
    ])
}

/// The members that a host says that it does not hear.
fn unheard(cluster: &Cluster, host: usize) -> Option<Vec<usize>> {
    let status = cluster.status(host)?;
    let names = status["unheard"].as_array()?.iter().filter_map(|name| name.as_str());
    let index = |name: &str| cluster.hosts.iter().position(|host| host.name == name);
    names.map(index).collect()
}

/// Waits until every signal of these hosts says whether they serve, and that they do not hear `missing`, and returns how long that took.
async fn until_true(
    cluster: &Cluster,
    hosts: &[usize],
    serves: bool,
    missing: &[usize],
    what: &str,
) -> Duration {
    let mut missing = missing.to_vec();
    missing.sort_unstable();
    let began = Instant::now();
    loop {
        let mut wrong = Vec::new();
        for &host in hosts {
            let all = signals(cluster, host).await;
            let differ = all.iter().filter(|(_, says)| **says != Some(serves));
            wrong.extend(differ.map(|(name, says)| format!("{} {name}: {says:?}", cluster.hosts[host].name)));
            let found = unheard(cluster, host);
            if found.as_ref() != Some(&missing) {
                wrong.push(format!("{} does not hear {found:?}", cluster.hosts[host].name));
            }
            let alive = http::get(cluster.hosts[host].admin, "/livez").map(|answer| answer.code);
            assert_eq!(alive, Some(200), "to run is one thing, to serve another");
        }
        if wrong.is_empty() {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{what}, serves: {serves}, but {wrong:?}\n{}", cluster.logs());
    }
}

/// Waits until a write is acknowledged by each of these hosts.
fn until_served(cluster: &Cluster, hosts: &[usize]) {
    let deadline = Instant::now() + PATIENCE;
    for &host in hosts {
        while http::ask(cluster.hosts[host].admin, "PUT", "/v1/kv/served", b"x")
            .is_none_or(|it| it.code != 200)
        {
            assert!(Instant::now() < deadline, "host {host} is not served\n{}", cluster.logs());
        }
    }
}

struct Rounds(BTreeMap<usize, u64>);

impl Rounds {
    /// Elections are numbered, and numbers that go back hide an election.
    fn look(&mut self, cluster: &Cluster, hosts: &[usize]) {
        for &host in hosts {
            let Some(status) = cluster.status(host) else { continue };
            let round = status["round"].as_u64().expect("a number");
            let before = self.0.insert(host, round).unwrap_or(0);
            assert!(before <= round, "host {host} went back from round {before} to {round}");
        }
    }
}

fn strike(cluster: &mut Cluster, network: Option<&Network>, fault: Fault, hosts: &[usize]) {
    for &host in hosts {
        match (fault, network) {
            (Fault::Kill, _) => cluster.kill(host),
            (Fault::Pause, _) => cluster.signal(host, "-STOP"),
            (Fault::Partition, Some(network)) => network.strike(host, Way::Off),
            (Fault::Partition, None) => unreachable!("only where there is a network"),
        }
    }
}

fn mend(cluster: &mut Cluster, network: Option<&Network>, fault: Fault, hosts: &[usize]) {
    for &host in hosts {
        match (fault, network) {
            (Fault::Kill, _) => cluster.launch(host),
            (Fault::Pause, _) => cluster.signal(host, "-CONT"),
            (Fault::Partition, Some(network)) => network.mend(host, Way::Off),
            (Fault::Partition, None) => unreachable!("only where there is a network"),
        }
    }
}

async fn look_at(cluster: &mut Cluster, network: Option<&Network>, faults: &[Fault]) {
    let mut took: Vec<(String, Duration)> = Vec::new();
    let mut rounds = Rounds(BTreeMap::new());
    for &fault in faults {
        for count in [1, 2] {
            let leader = cluster.leader().await;
            let struck: Vec<usize> = (0..count).map(|step| (leader + step) % 3).collect();
            let left: Vec<usize> = (0..3).filter(|host| !struck.contains(host)).collect();
            let what = format!("{fault:?} of {count}");
            rounds.look(cluster, &[0, 1, 2]);
            strike(cluster, network, fault, &struck);
            let serves = count == 1;
            if serves {
                until_served(cluster, &left);
            }
            took.push((what.clone(), until_true(cluster, &left, serves, &struck, &what).await));
            rounds.look(cluster, &left);
            for &host in left.iter().filter(|_| !serves) {
                let ready = cluster.page(host, "/readyz", 503).await.text();
                let mut names = struck.iter().map(|&host| cluster.hosts[host].name.as_str());
                assert!(names.all(|name| ready.contains(name)), "{ready}");
            }
            if fault == Fault::Partition {
                // Those that are partitioned run, and say so, too.
                for &host in &struck {
                    let others: Vec<usize> = (0..3).filter(|&other| other != host).collect();
                    let there = until_true(cluster, &[host], false, &others, &what).await;
                    took.push((format!("{what}, there"), there));
                }
            }
            mend(cluster, network, fault, &struck);
            let restarted = if fault == Fault::Kill { &struck[..] } else { &[] };
            rounds.0.retain(|host, _| !restarted.contains(host));
            until_served(cluster, &[0, 1, 2]);
            took.push((format!("{what}, mended"), until_true(cluster, &[0, 1, 2], true, &[], &what).await));
            rounds.look(cluster, &[0, 1, 2]);
        }
    }
    let shown: Vec<String> =
        took.iter().map(|(what, time)| format!("{what}: {:.1} s", time.as_secs_f64())).collect();
    println!("all signals are true after: {}", shown.join("; "));
    let in_time = took.iter().filter(|(_, time)| *time <= TRUE_WITHIN).count();
    assert!(2 * in_time >= took.len(), "{shown:?}");
}

// A host that says that it serves while nobody does has its users sent to it, and nobody is called.
#[test]
fn every_signal_is_true_when_hosts_are_killed_and_paused() {
    side_by_side(async {
        let (mut cluster, _) = Cluster::serving("ZOOKEEPER", 3, ALL).await;
        look_at(&mut cluster, None, &[Fault::Kill, Fault::Pause]).await;
    });
}

// A host that is partitioned has its connections, and hears nobody.
#[test]
fn every_signal_is_true_when_hosts_are_partitioned() {
    side_by_side(async {
        let Some(network) = Network::or_skipped(3) else { return };
        let mut cluster = Cluster::planned(3, ALL, "");
        network.take_in(&mut cluster);
        cluster.launch_all();
        cluster.until_ready().await;
        look_at(&mut cluster, Some(&network), &[Fault::Partition]).await;
    });
}

// A host that is alone, joins, or is refused by another cluster listens, and serves nobody.
#[test]
fn a_host_says_that_it_serves_when_it_does() {
    side_by_side(async {
        let mut cluster = Cluster::planned(3, "", "");
        cluster.launch(0);
        let says = |cluster: &Cluster, host: usize, what: &str| {
            let log = cluster.log(host);
            log.lines().any(|line| line.contains("health: not serving") && line.contains(what))
        };
        cluster.until("it says that it is alone", PATIENCE, |it| says(it, 0, "does not hear b, c")).await;
        let log = cluster.log(0);
        assert!(log.contains("listening after") && !log.contains("health: serving"), "{log}");
        let ready = cluster.page(0, "/readyz", 503).await.text();
        assert!(ready.contains("b, c"), "{ready}");
        cluster.launch(1);
        cluster.launch(2);
        cluster.until_ready().await;
        cluster
            .until("it says that it serves", PATIENCE, |it| it.log(0).contains("health: serving after"))
            .await;

        let joins = cluster.plan_host(true);
        cluster.launch(joins);
        let waits = "waits to be made a member";
        cluster.until("it says that it joins", PATIENCE, |it| says(it, joins, waits)).await;
        assert!(!cluster.log(joins).contains("\nserving"), "{}", cluster.log(joins));

        let mut stranger = Cluster::named("another", 2, |_| String::new());
        stranger.hosts[1].peer = cluster.hosts[1].peer;
        stranger.write_file();
        stranger.launch(0);
        let refused = "b refuses this host: this is cluster";
        stranger.until("it says that it is refused", PATIENCE, |it| says(it, 0, refused)).await;
        assert!(!stranger.log(0).contains("\nserving"), "{}", stranger.log(0));
    });
}
