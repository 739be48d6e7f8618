//! The log over CORFU', the baseline, while hosts die and come back, and what it says of that which it does not do.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use ordinate_client::{CallError, Log, LogError, Rows};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[log]\nengine = \"corfu\"\nspaces = 1\nspace_bytes = \"60MiB\"";
const NAME: &str = "log";
const WRITERS: usize = 4;
/// Entries of one append.
const BATCH: usize = 3;

#[derive(Default)]
struct Record {
    stop: AtomicBool,
    /// First positions of appends that were answered, by their first entry.
    appended: Mutex<BTreeMap<String, u64>>,
}

fn entry(writer: usize, turn: usize, part: usize) -> String {
    format!("{writer}.{turn}.{part}")
}

async fn write_on(writer: usize, endpoints: Vec<String>, record: Arc<Record>) {
    let log = Log::connect(endpoints).with_timeout(Duration::from_secs(20));
    let mut turn = 0;
    while !record.stop.load(Ordering::Relaxed) {
        turn += 1;
        let mut rows = Rows::default();
        (0..BATCH).for_each(|part| rows.push(entry(writer, turn, part).as_bytes()));
        match log.append(NAME, rows).await {
            Ok(first) => {
                let mut appended = record.appended.lock().unwrap_or_else(PoisonError::into_inner);
                appended.insert(entry(writer, turn, 0), first);
            }
            Err(LogError::Call(
                CallError::MaybeExecuted | CallError::TimedOut(_) | CallError::NotSent(_),
            )) => {}
            Err(error) => panic!("writer {writer}: {error}"),
        }
    }
}

async fn until_appended(cluster: &Cluster, record: &Record, more: usize) {
    let count = || record.appended.lock().unwrap_or_else(PoisonError::into_inner).len();
    let (wanted, deadline) = (count() + more, Instant::now() + PATIENCE);
    while count() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} appends in a minute\n{}", count(), cluster.logs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// All entries by position, and the tail.
async fn all_of(log: &Log) -> (BTreeMap<u64, String>, u64) {
    let (mut entries, mut at) = (BTreeMap::new(), 0);
    loop {
        let page = log.read(NAME, at, 1_000, Duration::ZERO).await.expect("it can be read");
        for (position, entry) in (page.first..).zip(&page.entries) {
            entries.insert(position, String::from_utf8_lossy(entry).into_owned());
        }
        assert!(page.next() > at || at >= page.tail, "no way on from {at} to {}", page.tail);
        at = page.next();
        if at >= page.tail {
            return (entries, at);
        }
    }
}

/// Writers on a cluster, and what was answered to them.
struct Load {
    record: Arc<Record>,
    writers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(cluster: &Cluster) -> Self {
        let record = Arc::new(Record::default());
        let writers = (0..WRITERS)
            .map(|writer| tokio::spawn(write_on(writer, cluster.endpoints_from(writer), record.clone())))
            .collect();
        Self { record, writers }
    }

    /// Waits for a hundred more.
    async fn goes_on(&self, cluster: &Cluster) {
        until_appended(cluster, &self.record, 100).await;
    }

    /// Stops it; every host must then hold the same log, which has every acknowledged entry at its position, and none twice.
    async fn check(self, cluster: &Cluster) -> usize {
        self.record.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.expect("a writer does not panic");
        }
        let mut copies = Vec::new();
        for host in &cluster.hosts {
            copies.push(all_of(&Log::connect([host.native.to_string()])).await);
        }
        assert!(copies.windows(2).all(|pair| pair[0] == pair[1]), "hosts hold different logs");
        let (entries, tail) = &copies[0];
        let appended = self.record.appended.lock().unwrap_or_else(PoisonError::into_inner);
        println!("corfu: {} appends answered, {} entries, tail {tail}", appended.len(), entries.len());
        for (first, at) in appended.iter() {
            for part in 0..BATCH {
                let wanted = first.strip_suffix('0').map(|stem| format!("{stem}{part}"));
                assert_eq!(entries.get(&(at + part as u64)), wanted.as_ref(), "position {at} and {part}");
            }
        }
        let mut all: Vec<&String> = entries.values().collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "an entry is there twice");
        appended.len()
    }
}

/// The chains as a host knows them, each with its hosts in the order of their names.
fn chains_of(cluster: &Cluster, host: usize) -> Vec<Vec<String>> {
    let status = cluster.status(host).unwrap_or_default();
    let chains = status["log"]["projection"]["chains"].as_array().cloned().unwrap_or_default();
    let names = |chain: &serde_json::Value| {
        let hosts = chain.as_array().into_iter().flatten();
        let mut names: Vec<String> = hosts.filter_map(|name| Some(name.as_str()?.to_owned())).collect();
        names.sort();
        names
    };
    chains.iter().map(names).collect()
}

/// Waits until these hosts know that each of the three chains has exactly the hosts `names`, and returns how long that took.
async fn until_chains_are(cluster: &Cluster, names: &[&str], known_by: &[usize]) -> Duration {
    let began = Instant::now();
    let wanted = vec![names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(); 3];
    let holds = |cluster: &Cluster| known_by.iter().all(|&host| chains_of(cluster, host) == wanted);
    cluster.until(&format!("all chains are {names:?}"), PATIENCE, holds).await;
    began.elapsed()
}

/// Waits until every host knows that all chains are whole.
async fn until_whole(cluster: &Cluster) -> Duration {
    until_chains_are(cluster, &["a", "b", "c"], &[0, 1, 2]).await
}

/// Waits until the others know that no chain has the host.
async fn until_left_out(cluster: &Cluster, host: usize) {
    let others: Vec<usize> = (0..3).filter(|&other| other != host).collect();
    let names: Vec<&str> = others.iter().map(|&other| cluster.hosts[other].name.as_str()).collect();
    until_chains_are(cluster, &names, &others).await;
}

// A baseline that loses what it acknowledged, or has it twice, proves nothing; one whose chains only get shorter is gone after three
// restarts.
#[test]
fn acknowledged_entries_stay_over_corfu_and_its_chains_heal_while_hosts_die() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        until_whole(&cluster).await;
        let load = Load::start(&cluster);
        load.goes_on(&cluster).await;
        // The first host has the sequencer.
        for host in [0, 1, 2, 0, 1, 2] {
            cluster.kill(host);
            until_left_out(&cluster, host).await;
            load.goes_on(&cluster).await;
            cluster.launch(host);
            let healed = until_whole(&cluster).await;
            println!("corfu: chains whole {} ms after a host was started again", healed.as_millis());
            load.goes_on(&cluster).await;
        }
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        load.goes_on(&cluster).await;
        until_whole(&cluster).await;
        assert!(load.check(&cluster).await >= 1_400, "too few appends for anything to be shown");
    });
}

// A host with an empty disk that is taken for what it was denies what was acknowledged, and votes again; one that is never let in
// leaves the chains short for good.
#[test]
fn a_host_that_lost_its_disk_joins_again_over_corfu() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let load = Load::start(&cluster);
        load.goes_on(&cluster).await;
        cluster.kill(1);
        cluster.wipe(1);
        cluster.launch(1);
        until_left_out(&cluster, 1).await;
        load.goes_on(&cluster).await;
        // The others hear it when they have been started again: until then it is not the host that they know. It has no vote, so
        // both of them are needed.
        for host in [0, 2] {
            cluster.kill(host);
            cluster.launch(host);
            load.goes_on(&cluster).await;
        }
        until_whole(&cluster).await;
        // Its copies, and its vote, are as good as any.
        cluster.kill(0);
        until_left_out(&cluster, 0).await;
        load.goes_on(&cluster).await;
        cluster.launch(0);
        until_whole(&cluster).await;
        load.check(&cluster).await;
    });
}

// A call that the baseline does not serve must say so, and not hang or be half done; what it serves is as over the other engines.
#[test]
fn the_log_over_corfu_says_what_it_does_not_do() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let admin = cluster.hosts[1].admin;
        let ask = |method: &str, path: &str, body: &str| {
            http::ask(admin, method, path, body.as_bytes()).expect("it answers")
        };
        assert_eq!(
            ask("PUT", "/v1/log/log?retain_bytes=1048576", "").code,
            409,
            "it is there from the beginning"
        );
        assert_eq!(ask("PUT", "/v1/log/other?retain_bytes=1048576", "").code, 501);
        assert_eq!(ask("GET", "/v1/log/other", "").code, 404);
        let appended = ask("POST", "/v1/log/log/append", "a\nb\nc\n").json();
        assert_eq!((&appended["first"], &appended["count"]), (&0.into(), &3.into()), "{appended}");
        assert_eq!(ask("POST", "/v1/log/log/append?expect=3", "c").code, 501);
        assert_eq!(ask("GET", "/v1/log/log?from=1", "").json()["entries"][0]["text"], "b");
        assert_eq!(ask("GET", "/v1/log/log?from=9", "").code, 416);
        for refused in [["seal", "log"].as_slice(), &["delete", "log"], &["multi-append", "log=x", "other=y"]]
        {
            let said = cluster.ordinate(&[&["log"], refused].concat()).await;
            let text = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(said.status.code() == Some(2) && text.contains("error[O1017]"), "{refused:?}: {text}");
        }
        let trimmed = cluster.ordinate(&["log", "trim", "log", "--before", "2"]).await;
        assert!(trimmed.status.success(), "{}", String::from_utf8_lossy(&trimmed.stderr));
        let gone = ask("GET", "/v1/log/log?from=0", "");
        assert_eq!((gone.code, &gone.json()["resume_from"]), (410, &2.into()));
        let read = cluster.ordinate(&["log", "read", "log"]).await;
        assert_eq!(String::from_utf8_lossy(&read.stdout), "c\n");
        let listed = cluster.ordinate(&["log", "list"]).await;
        let said = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(said.starts_with("log   first 2   tail 3   "), "{said}");
        let log = Log::connect(cluster.endpoints_from(2));
        let waiting = tokio::spawn(async move { log.read(NAME, 3, 10, Duration::from_secs(20)).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(ask("POST", "/v1/log/log/append", "late\n").code, 200);
        let page = waiting.await.expect("it does not panic").expect("it is notified");
        assert_eq!(page.entries, ["late"]);
        let shown = cluster.ordinate(&["status"]).await;
        let said = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(said.contains("log         corfu   epoch ") && said.contains("chain 2"), "{said}");
    });
}
