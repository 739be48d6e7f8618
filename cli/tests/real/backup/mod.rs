//! Backups that are taken under load, and clusters that are made of them.

mod bucket;
mod colours;
mod prune;
mod txn;

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use crate::support::zookeeper::{create_body, session, set_version_body};
use coordination::wire::op;
use ordinate_client::{Client, Level, Log, LogOptions, Rows};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Entries that were trimmed before the backup.
const TRIMMED: u64 = 5;
/// Writes of each kind that were answered before it begins.
const BEFORE: u64 = 60;

/// What a writer has begun, and what it was answered for: numbers below these.
#[derive(Default)]
struct Count {
    begun: AtomicU64,
    answered: AtomicU64,
}

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    keys: Count,
    nodes: Count,
    entries: Count,
}

impl Load {
    fn counts(&self) -> [(&'static str, &Count); 3] {
        [("keys", &self.keys), ("nodes", &self.nodes), ("entries", &self.entries)]
    }
}

fn value(number: u64) -> Vec<u8> {
    format!("{number}:").into_bytes().repeat(1 + number as usize % 90)
}

fn one(number: u64) -> Rows {
    let mut rows = Rows::default();
    rows.push(&value(number));
    rows
}

async fn write_keys(endpoints: Vec<String>, load: Arc<Load>) {
    let client = Client::connect(endpoints).with_timeout(PATIENCE);
    for number in 0.. {
        load.keys.begun.store(number + 1, Ordering::SeqCst);
        client.put(format!("key/{number:06}"), value(number)).await.expect("a write");
        load.keys.answered.store(number + 1, Ordering::SeqCst);
        if load.stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Each entry goes to two logs at once.
async fn write_logs(endpoints: Vec<String>, load: Arc<Load>) {
    let log = Log::connect(endpoints).with_timeout(PATIENCE);
    for number in 0.. {
        load.entries.begun.store(number + 1, Ordering::SeqCst);
        let parts = ["one", "other", "third"].map(|name| (name.to_owned(), one(number)));
        log.append_to_all(parts.to_vec()).await.expect("an append");
        load.entries.answered.store(number + 1, Ordering::SeqCst);
        if load.stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn write_nodes(address: SocketAddr, load: &Load) {
    let mut session = session(address);
    let mut call = |code, body: &[u8]| assert_eq!(session.call(code, body).expect("it serves").error, 0);
    call(op::CREATE, &create_body("/below", b"", 0));
    for number in 0.. {
        load.nodes.begun.store(number + 1, Ordering::SeqCst);
        let path = format!("/below/{number:06}");
        call(op::CREATE, &create_body(&path, &value(number), 0));
        load.nodes.answered.store(number + 1, Ordering::SeqCst);
        call(op::SET_DATA, &set_version_body("/below", &value(number), -1));
        if load.stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// The newest manifest in a folder of backups.
fn manifest(folder: &Path) -> Value {
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder.join("manifests"))
        .expect("a backup")
        .flatten()
        .map(|it| it.path())
        .collect();
    names.sort();
    let text = std::fs::read(names.last().expect("a backup")).expect("it is readable");
    serde_json::from_slice(&text).expect("a manifest")
}

async fn run(cluster: &Cluster, arguments: &[&str]) -> (bool, String) {
    let ended = cluster.ordinate(arguments).await;
    let text = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8_lossy(&text).into_owned())
}

async fn done(cluster: &Cluster, arguments: &[&str]) -> String {
    let (well, said) = run(cluster, arguments).await;
    assert!(well, "ordinate {arguments:?}: {said}\n{}", cluster.logs());
    said
}

async fn keys(cluster: &Cluster) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let client = Client::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    let page = client.scan("", None, 100_000, Level::Linearizable).await.expect("a scan");
    page.items.iter().map(|item| (item.key.to_vec(), item.versioned.value.to_vec())).collect()
}

fn digests(chunks: &Value) -> Vec<String> {
    chunks.as_array().expect("chunks").iter().map(|it| it["digest"].to_string()).collect()
}

/// Flips a byte of a chunk; its digest.
fn damage(folder: &Path, chunk: &Value) -> String {
    let digest = chunk["digest"].as_str().expect("a digest").to_owned();
    let path = folder.join("chunks").join(&digest[..2]).join(&digest);
    let mut bytes = std::fs::read(&path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("the folder is writable");
    digest
}

const SETTINGS: &str = "[coordination]\nengine = \"mason\"\n[log]\nspaces = 3\n";

async fn start(hosts: usize, settings: &str) -> (Cluster, SocketAddr) {
    let (cluster, addresses) = Cluster::serving("ZOOKEEPER", hosts, settings).await;
    (cluster, addresses[0])
}

async fn is_one_state(small: &Cluster, backed_up: &Value, load: &Load, before: [u64; 3], behind: [u64; 3]) {
    let restored = keys(small).await;
    let counts =
        [restored.len() as u64, count_of(backed_up, "coordination") - 1, entries_of(backed_up, "one")];
    for (((name, _), count), (before, behind)) in
        load.counts().iter().zip(counts).zip(before.into_iter().zip(behind))
    {
        assert!(before <= count && count <= behind, "{name}: {count}, and not {before} to {behind}");
    }
    for (number, (key, found)) in restored.into_iter().enumerate() {
        let number = number as u64;
        assert_eq!((key, found), (format!("key/{number:06}").into_bytes(), value(number)), "a prefix");
    }
    let ends: Vec<u64> = ["one", "other", "third"].map(|name| entries_of(backed_up, name)).to_vec();
    assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "an append is in all of its logs: {ends:?}");
    let log = Log::connect(small.endpoints_from(0)).with_timeout(PATIENCE);
    let page = log.read("other", 0, 100_000, Duration::ZERO).await.expect("a read");
    assert!((0u64..).zip(&page.entries).all(|(number, entry)| **entry == value(number)[..]));
    let page = log.read("trimmed", TRIMMED, 100, Duration::ZERO).await.expect("positions are as they were");
    assert_eq!((page.entries.len(), page.sealed, page.tail), (15, true, 20));
}

async fn is_the_same_again(small: &Cluster, backed_up: &Value) {
    // What the small cluster backs up is what it was made of, byte for byte: znodes with their versions and times, and entries.
    let again = small.folder.join("backups");
    done(small, &["backup", "--to", &again.display().to_string()]).await;
    let again = manifest(&again);
    assert_eq!(digests(&again["coordination"]["chunks"]), digests(&backed_up["coordination"]["chunks"]));
    for (one, other) in logs_of(&again).zip(logs_of(backed_up)) {
        assert_eq!(
            (&one["name"], &one["first"], &one["next"]),
            (&other["name"], &other["first"], &other["next"])
        );
        assert_eq!(digests(&one["chunks"]), digests(&other["chunks"]));
    }
}

async fn goes_into_what_has_something_if_that_is_meant(small: &Cluster, restore: &[&str]) {
    let (well, refused) = run(small, restore).await;
    assert!(!well && refused.contains("O1043"), "{refused}");
    let client = Client::connect(small.endpoints_from(0)).with_timeout(PATIENCE);
    client.put("key/000001", "other").await.expect("a write");
    client.put("key/000002", "other").await.expect("a write");
    let some = ["--only", "kv", "--prefix", "key/000001", "--merge"];
    done(small, &[restore, &some[..]].concat()).await;
    let now = keys(small).await;
    assert_eq!((&now[&b"key/000001"[..]], &now[&b"key/000002"[..]]), (&value(1), &b"other".to_vec()));
}

async fn is_refused_where_it_is_damaged(folder: &Path, backed_up: &Value, first: &str, settings: &str) {
    let to = folder.display().to_string();
    let digest = damage(folder, &backed_up["kv"]["chunks"][0]);
    let (empty, _) = start(1, settings).await;
    for arguments in [
        &["restore", "--from", &to, "--backup", first][..],
        &["backup", "verify", "--to", &to, "--backup", first],
    ] {
        let (well, said) = run(&empty, arguments).await;
        assert!(!well && said.contains("O1041") && said.contains(&digest), "{said}");
    }
    assert!(keys(&empty).await.is_empty());
}

// A backup that holds a write without one before it, or half of an append, restores what never was; so does one that is damaged.
#[test]
fn a_backup_under_load_is_one_state_and_comes_back_in_a_cluster_of_another_size() {
    side_by_side(async {
        let (cluster, zookeeper) = start(3, SETTINGS).await;
        let folder = cluster.folder.join("backups");
        let to = folder.display().to_string();
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
        for name in ["one", "other", "third", "trimmed"] {
            log.create_with(name, LogOptions::default()).await.expect("a log is made");
        }
        for number in 0..20 {
            log.append("trimmed", one(number)).await.expect("an append");
        }
        log.trim("trimmed", TRIMMED).await.expect("a trim");
        log.seal("trimmed").await.expect("it is sealed");
        let load = Arc::new(Load::default());
        let writers = [
            tokio::spawn(write_keys(cluster.endpoints_from(1), Arc::clone(&load))),
            tokio::spawn(write_logs(cluster.endpoints_from(2), Arc::clone(&load))),
            tokio::task::spawn_blocking({
                let load = Arc::clone(&load);
                move || write_nodes(zookeeper, &load)
            }),
        ];
        let far =
            |load: &Load| load.counts().iter().all(|(_, it)| it.answered.load(Ordering::SeqCst) > BEFORE);
        cluster.until("the writers are at it", PATIENCE, |_| far(&load)).await;
        let before = load.counts().map(|(_, count)| count.answered.load(Ordering::SeqCst));
        let said = done(&cluster, &["backup", "--to", &to]).await;
        let behind = load.counts().map(|(_, count)| count.begun.load(Ordering::SeqCst));
        println!("{said}");
        load.stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.expect("it ends well");
        }
        let backed_up = manifest(&folder);
        // The second time there is only what came since, and the third time nothing.
        done(&cluster, &["backup", "--to", &to]).await;
        let third = done(&cluster, &["backup", "--to", &to]).await;
        assert!(third.contains("of which 0 bytes in 0 were not there yet"), "{third}");
        assert_eq!(done(&cluster, &["backup", "list", "--to", &to]).await.lines().count(), 3);
        let listed = done(&cluster, &["backup", "list", "--json", "--to", &to]).await;
        let first = listed.lines().next().expect("three backups");
        let first: Value = serde_json::from_str(first).expect("JSON");
        let first = first["backup"].as_str().expect("an identifier");
        assert!(
            done(&cluster, &["backup", "verify", "--backup", first, "--to", &to]).await.contains("is sound")
        );

        // One host, another identity, another number of spaces.
        let other = "[coordination]\nengine = \"paxos\"\n[log]\nengine = \"paxos\"\nspaces = 1\n";
        let (small, address) = start(1, other).await;
        let zookeeper = address.to_string();
        let restore = ["restore", "--from", &to, "--backup", first, "--zookeeper", &zookeeper];
        println!("{}", done(&small, &restore).await);
        is_one_state(&small, &backed_up, &load, before, behind).await;
        is_the_same_again(&small, &backed_up).await;
        goes_into_what_has_something_if_that_is_meant(&small, &restore).await;
        is_refused_where_it_is_damaged(&folder, &backed_up, first, other).await;
        // Removing old ones leaves what the others need.
        let said = done(&cluster, &["backup", "prune", "--keep", "1", "--to", &to]).await;
        assert!(said.contains("removed 2 backups"), "{said}");
        assert_eq!(done(&cluster, &["backup", "list", "--to", &to]).await.lines().count(), 1);
    });
}

// A schedule that every host keeps takes as many backups as there are hosts, and one that no host keeps takes none.
#[test]
fn one_host_takes_the_backups_that_the_cluster_file_asks_for() {
    side_by_side(async {
        let mut cluster = Cluster::named("scheduled", 3, |folder| {
            format!("[backup]\nto = \"{}\"\nevery = \"2s\"\nkeep = 2\n", folder.join("backups").display())
        });
        cluster.launch_all();
        cluster.until_ready().await;
        let client = Client::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
        client.put("key", "value").await.expect("a write");
        let taken = |it: &Cluster| -> Vec<usize> {
            (0..3)
                .map(|host| it.log(host).lines().filter(|line| line.contains(" backup: backup ")).count())
                .collect()
        };
        let sum = |it: &Cluster| taken(it).iter().sum::<usize>();
        cluster.until("a backup is taken", PATIENCE, |it| sum(it) >= 1).await;
        let before = taken(&cluster);
        cluster.until("more are taken", PATIENCE, |it| sum(it) >= before.iter().sum::<usize>() + 3).await;
        let by = taken(&cluster).into_iter().zip(before).filter(|(now, before)| now > before).count();
        assert_eq!(by, 1, "one host takes them: {:?}", taken(&cluster));
        let count = std::fs::read_dir(cluster.folder.join("backups/manifests")).expect("backups").count();
        assert!((1..=3).contains(&count), "{count} are retained");
        let saved = manifest(&cluster.folder.join("backups"));
        assert_eq!(count_of(&saved, "kv"), 1);
    });
}

fn logs_of(manifest: &Value) -> impl Iterator<Item = &Value> {
    manifest["logs"].as_array().into_iter().flatten()
}

fn entries_of(manifest: &Value, name: &str) -> u64 {
    let found = logs_of(manifest).find(|log| log["name"] == name).expect("it is there");
    found["next"].as_u64().expect("a position")
}

fn count_of(manifest: &Value, service: &str) -> u64 {
    let chunks = manifest[service]["chunks"].as_array().expect("chunks");
    chunks.iter().map(|chunk| chunk["count"].as_u64().expect("a number")).sum()
}
