//! Whether everything that speaks of a host's health says what is true, and how soon.

use crate::network::{Network, Partition as Way};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ALL: &str =
    "[coordination]\nengine = \"mason\"\nshards = 2\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1";

/// Twice what we claim: hosts of tests are hardly optimized, and have neighbours. Half of the looks must keep it.
const TRUE_WITHIN: Duration = Duration::from_secs(4);

/// How a host comes to be of no use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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

/// Which hosts are struck, and how. Those of a class are alike: hosts differ by who leads and by nothing else.
#[derive(Clone, Debug)]
struct Class {
    hosts: usize,
    /// The one that leads is among them.
    has_leader: bool,
    /// One after the other, again and again.
    faults: Vec<Fault>,
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let with = if self.has_leader { "with" } else { "without" };
        write!(f, "{:?} of {} {with} the leader", self.faults, self.hosts)
    }
}

/// All subsets of so many hosts but the empty one and the whole, by classes.
fn classes_of(hosts: usize, faults: &[Vec<Fault>]) -> Vec<Class> {
    let of = |hosts: usize, has_leader: bool| {
        faults.iter().map(move |faults| Class { hosts, has_leader, faults: faults.clone() })
    };
    (1..hosts).flat_map(|count| of(count, true).chain(of(count, false))).collect()
}

fn strike(cluster: &mut Cluster, network: Option<&Network>, struck: &[(usize, Fault)]) {
    for &(host, fault) in struck {
        match (fault, network) {
            (Fault::Kill, _) => cluster.kill(host),
            (Fault::Pause, _) => cluster.signal(host, "-STOP"),
            (Fault::Partition, Some(network)) => network.strike(host, Way::Off),
            (Fault::Partition, None) => unreachable!("only where there is a network"),
        }
    }
}

fn mend(cluster: &mut Cluster, network: Option<&Network>, struck: &[(usize, Fault)]) {
    for &(host, fault) in struck {
        match (fault, network) {
            (Fault::Kill, _) => cluster.launch(host),
            (Fault::Pause, _) => cluster.signal(host, "-CONT"),
            (Fault::Partition, Some(network)) => network.mend(host, Way::Off),
            (Fault::Partition, None) => unreachable!("only where there is a network"),
        }
    }
}

async fn look_at(cluster: &mut Cluster, network: Option<&Network>, classes: &[Class]) {
    let mut took: Vec<(String, Duration)> = Vec::new();
    let mut rounds = Rounds(BTreeMap::new());
    let all: Vec<usize> = (0..cluster.hosts.len()).collect();
    for class in classes {
        let leader = cluster.leader().await;
        let first = if class.has_leader { leader } else { leader + 1 };
        let hosts = (0..class.hosts).map(|step| (first + step) % all.len());
        let struck: Vec<(usize, Fault)> = hosts.zip(class.faults.iter().copied().cycle()).collect();
        rounds.look(cluster, &all);
        strike(cluster, network, &struck);
        let gone: Vec<usize> = struck.iter().map(|(host, _)| *host).collect();
        let left: Vec<usize> = all.iter().copied().filter(|host| !gone.contains(host)).collect();
        let serves = 2 * left.len() > all.len();
        if serves {
            until_served(cluster, &left);
        }
        let what = class.to_string();
        took.push((what.clone(), until_true(cluster, &left, serves, &gone, &what).await));
        rounds.look(cluster, &left);
        for &host in left.iter().filter(|_| !serves) {
            let ready = cluster.page(host, "/readyz", 503).await.text();
            let mut names = gone.iter().map(|&host| cluster.hosts[host].name.as_str());
            assert!(names.all(|name| ready.contains(name)), "{ready}");
        }
        // Those that are partitioned run, and say so, too.
        for &(host, _) in struck.iter().filter(|(_, fault)| *fault == Fault::Partition) {
            let others: Vec<usize> = all.iter().copied().filter(|&other| other != host).collect();
            let there = until_true(cluster, &[host], false, &others, &what).await;
            took.push((format!("{what}, there"), there));
        }
        mend(cluster, network, &struck);
        let is_new = |host: &usize| struck.contains(&(*host, Fault::Kill));
        rounds.0.retain(|host, _| !is_new(host));
        until_served(cluster, &all);
        took.push((format!("{what}, mended"), until_true(cluster, &all, true, &[], &what).await));
        rounds.look(cluster, &all);
    }
    let shown: Vec<String> =
        took.iter().map(|(what, time)| format!("{what}: {:.1} s", time.as_secs_f64())).collect();
    println!("all signals are true after:\n  {}", shown.join("\n  "));
    let in_time = took.iter().filter(|(_, time)| *time <= TRUE_WITHIN).count();
    assert!(2 * in_time >= took.len(), "{shown:?}");
}

// A host that says that it serves while nobody does has its users sent to it, and nobody is called.
#[test]
fn every_signal_is_true_when_hosts_are_killed_and_paused() {
    side_by_side(async {
        let (mut cluster, _) = Cluster::serving("ZOOKEEPER", 3, ALL).await;
        let of = |hosts, fault| Class { hosts, has_leader: true, faults: vec![fault] };
        let classes = [Fault::Kill, Fault::Pause].into_iter().flat_map(|fault| [of(1, fault), of(2, fault)]);
        look_at(&mut cluster, None, &classes.collect::<Vec<_>>()).await;
    });
}

// Of five hosts two may fail, whichever they are: a rule that counts three for the whole says so too late, or not at all.
// `ORDINATE_SUBSETS=all` looks at every class of subsets of three and of five.
#[test]
fn every_signal_is_true_of_five_hosts() {
    side_by_side(async {
        let sweeps = std::env::var("ORDINATE_SUBSETS").is_ok_and(|which| which == "all");
        let of = |hosts, has_leader, faults: &[Fault]| Class { hosts, has_leader, faults: faults.to_vec() };
        if !sweeps {
            let (mut cluster, _) = Cluster::serving("ZOOKEEPER", 5, ALL).await;
            let classes = [
                of(2, true, &[Fault::Kill, Fault::Pause]),
                of(3, false, &[Fault::Pause]),
                of(3, true, &[Fault::Pause, Fault::Kill]),
            ];
            return look_at(&mut cluster, None, &classes).await;
        }
        let alone = [Fault::Kill, Fault::Pause, Fault::Partition].map(|fault| vec![fault]);
        let mixed = [Fault::Kill, Fault::Pause, Fault::Partition].to_vec();
        for hosts in [3, 5] {
            let Some(network) = Network::or_skipped(hosts) else { return };
            let mut cluster = Cluster::planned(hosts, ALL, "");
            network.take_in(&mut cluster);
            cluster.launch_all();
            cluster.until_ready().await;
            let faults: Vec<Vec<Fault>> = alone.iter().chain([&mixed]).cloned().collect();
            look_at(&mut cluster, Some(&network), &classes_of(hosts, &faults)).await;
        }
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
        let of = |hosts| Class { hosts, has_leader: true, faults: vec![Fault::Partition] };
        look_at(&mut cluster, Some(&network), &[of(1), of(2)]).await;
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
        cluster.until("it listens", PATIENCE, |it| it.log(0).contains("listening after")).await;
        let log = cluster.log(0);
        assert!(!log.contains("health: serving"), "{log}");
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
