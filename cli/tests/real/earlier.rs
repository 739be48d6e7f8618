//! A data directory that an earlier version wrote: this one starts on it, and serves all that is in it.
//!
//! `data_7ae3f12.tar.gz` was written by commit 7ae3f12, by the test below with `ORDINATE_WRITE_DATA=1`, and `ORDINATE_BINARY` naming that program:
//! snapshots, segments on disk, an archive, open sessions, and records after the last snapshot.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::kafka::Client as KafkaClient;
use crate::support::raw::Raw;
use crate::support::side_by_side;
use crate::support::zookeeper::{create_body, read_body, session, set_version_body};
use coordination::wire::{JuteInput, op};
use ordinate_client::{Client, Level, Log, Rows, Sequence};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const KEYS: u64 = 300;
const ZNODES: u64 = 120;
const ENTRIES: u64 = 2_400;
const ENTRIES_TRIMMED: u64 = 1_700;
const KAFKA_ENTRIES: u64 = 20;
const NUMBERS: u64 = 40;
const BAD_VERSION: i32 = -103;

/// What orders the services of a cluster; each writes records of its own.
struct Arrangement {
    name: &'static str,
    hosts: usize,
    settings: &'static str,
    /// The log that is written; the baseline has one only, of a name of its own.
    log: &'static str,
    has_kafka: bool,
}

impl Arrangement {
    fn trims(&self) -> bool {
        self.name != BASELINE.name
    }
}

const SHARDED: Arrangement = Arrangement {
    name: "sharded",
    hosts: 3,
    settings: "[coordination]\nengine = \"mason\"\n[sequence]\nspaces = \"a, b\"\n[log]\nspaces = 2\narchive = \"file://ARCHIVE\"\n",
    log: "jobs",
    has_kafka: true,
};
const REPLICATED: Arrangement = Arrangement {
    name: "replicated",
    hosts: 1,
    settings: "[coordination]\nengine = \"paxos\"\n[log]\nengine = \"paxos\"\nspaces = 1\narchive = \"file://ARCHIVE\"\n",
    log: "jobs",
    has_kafka: true,
};
const BASELINE: Arrangement = Arrangement {
    name: "baseline",
    hosts: 1,
    settings: "[log]\nengine = \"corfu\"\nspaces = 1\n",
    log: "log",
    has_kafka: false,
};

/// A cluster that is not started, and where each service listens.
struct Served {
    cluster: Cluster,
    zookeeper: Option<SocketAddr>,
    kafka: Option<SocketAddr>,
}

impl Arrangement {
    fn plan(&self) -> Served {
        let settings = format!("[paxos]\nsnapshot_every_bytes = \"64KiB\"\n{}", self.settings);
        let mut cluster = Cluster::named(&format!("earlier-{}", self.name), self.hosts, |folder| {
            let archive = folder.join("archive");
            std::fs::create_dir_all(&archive).expect("the folder is writable");
            settings.replace("ARCHIVE", &archive.display().to_string())
        });
        let mut listen = |key| (0..self.hosts).fold(None, |_, host| Some(cluster.listen(host, key)));
        let zookeeper = self.settings.contains("[coordination]").then(|| listen("ZOOKEEPER")).flatten();
        let kafka = self.has_kafka.then(|| listen("KAFKA")).flatten();
        Served { cluster, zookeeper, kafka }
    }
}

fn key(number: u64) -> String {
    format!("key-{number:03}")
}

fn value(number: u64) -> Vec<u8> {
    vec![b'a' + (number % 26) as u8; 600 + number as usize]
}

fn path(number: u64) -> String {
    format!("/node-{number:03}")
}

fn entry(number: u64) -> Vec<u8> {
    let mut entry = format!("entry {number} ").into_bytes();
    entry.resize(1_500, b'.');
    entry
}

async fn write_keys(cluster: &Cluster) {
    let client = Client::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    for number in 0..KEYS {
        client.put(key(number), value(number)).await.expect("a write");
    }
    for number in (0..KEYS).step_by(7) {
        client.delete(key(number)).await.expect("a delete");
    }
    assert_eq!(client.increment("counter", 41).await, Ok(41));
}

async fn check_keys(cluster: &Cluster) {
    let client = Client::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    for number in 0..KEYS {
        let read =
            client.get(key(number), Level::Linearizable).await.expect("a read").map(|it| it.value.to_vec());
        assert_eq!(read, (number % 7 != 0).then(|| value(number)), "{}", key(number));
    }
    assert_eq!(client.increment("counter", 1).await, Ok(42));
}

fn write_znodes(session: &mut Raw) {
    for number in 0..ZNODES {
        let made =
            session.call(op::CREATE, &create_body(&path(number), &value(number), 0)).expect("a create");
        assert_eq!(made.error, 0);
        for version in 0..number % 3 {
            let body = set_version_body(&path(number), &value(number + 1), version as i32);
            assert_eq!(session.call(op::SET_DATA, &body).expect("a set").error, 0);
        }
    }
    for _ in 0..3 {
        assert_eq!(
            session.call(op::CREATE, &create_body("/node-000/turn-", b"", 2)).expect("a create").error,
            0
        );
    }
    assert_eq!(session.call(op::CREATE, &create_body("/alive", b"", 1)).expect("a create").error, 0);
}

fn check_znodes(session: &mut Raw) {
    for number in 0..ZNODES {
        let read = session.call(op::GET_DATA, &read_body(&path(number), false)).expect("a read");
        assert_eq!(read.error, 0, "{}", path(number));
        let mut body = JuteInput(&read.body);
        let written = value(if number % 3 == 0 { number } else { number + 1 });
        assert_eq!(body.buffer().expect("data").unwrap_or_default(), written, "{}", path(number));
        let version = (number % 3) as i32;
        let stale = set_version_body(&path(number), b"", version - 1);
        if version > 0 {
            assert_eq!(session.call(op::SET_DATA, &stale).expect("a set").error, BAD_VERSION);
        }
    }
    let next = session.call(op::CREATE, &create_body("/node-000/turn-", b"", 2)).expect("a create");
    assert_eq!(JuteInput(&next.body).text().expect("a path"), "/node-000/turn-0000000003");
}

fn one(entry: &[u8]) -> Rows {
    let mut rows = Rows::default();
    rows.push(entry);
    rows
}

async fn write_log(cluster: &Cluster, arrangement: &Arrangement) {
    let log = Log::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    if arrangement.trims() {
        log.create(arrangement.log, 32 << 20, None).await.expect("a log is made");
    }
    for first in (0..ENTRIES).step_by(20) {
        let mut rows = Rows::default();
        (first..first + 20).for_each(|number| rows.push(&entry(number)));
        assert_eq!(log.append(arrangement.log, rows).await, Ok(first));
        // What follows has a snapshot written, after which whole segments go to the archive.
        if arrangement.trims() && first == ENTRIES_TRIMMED {
            log.trim(arrangement.log, ENTRIES_TRIMMED).await.expect("a trim");
        }
    }
}

async fn check_log(cluster: &Cluster, arrangement: &Arrangement) {
    let log = Log::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    let mut from = if arrangement.trims() { ENTRIES_TRIMMED } else { 0 };
    while from < ENTRIES {
        let read = log.read(arrangement.log, from, 500, Duration::ZERO).await.expect("a read");
        assert_eq!(read.first, from);
        for found in &read.entries {
            assert_eq!(*found, entry(from), "entry {from}");
            from += 1;
        }
    }
    assert_eq!(log.append(arrangement.log, one(b"later")).await, Ok(ENTRIES));
}

async fn take_numbers(cluster: &Cluster) -> u64 {
    let sequence = Sequence::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    let mut last = 0;
    for _ in 0..NUMBERS {
        last = sequence.next(&["a", "b"], b"").await.expect("a number").numbers[0];
    }
    last
}

async fn write_all(arrangement: &Arrangement, served: &Served) {
    let cluster = &served.cluster;
    write_keys(cluster).await;
    write_log(cluster, arrangement).await;
    if let Some(address) = served.zookeeper {
        write_znodes(&mut session(address));
    }
    if let Some(address) = served.kafka {
        let mut client = KafkaClient::connect(address);
        client.metadata("topic").expect("a topic is made");
        for number in 0..KAFKA_ENTRIES {
            assert_eq!(client.produce("topic", &[entry(number)]), Some((0, number as i64)));
        }
    }
    if arrangement.settings.contains("[sequence]") {
        take_numbers(cluster).await;
    }
}

async fn check_all(arrangement: &Arrangement, served: &Served) {
    let cluster = &served.cluster;
    check_keys(cluster).await;
    check_log(cluster, arrangement).await;
    if let Some(address) = served.zookeeper {
        check_znodes(&mut session(address));
    }
    if let Some(address) = served.kafka {
        let mut client = KafkaClient::connect(address);
        assert_eq!(client.produce("topic", &[entry(0)]), Some((0, KAFKA_ENTRIES as i64)));
        let (error, fetched) = client.fetch("topic").expect("a fetch");
        assert_eq!(error, 0);
        let first = entry(0);
        assert!(fetched.windows(first.len()).any(|part| part == first), "the topic's first entry");
    }
    if arrangement.settings.contains("[sequence]") {
        assert!(take_numbers(cluster).await + 1 >= 2 * NUMBERS, "a number was given twice");
    }
}

/// All files below a folder whose names end so.
fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.to_string_lossy().ends_with(ending) => files.push(path),
                _ => {}
            }
        }
    }
    files
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/data_7ae3f12.tar.gz")
}

fn tar(arguments: &[&str], folder: &Path) {
    let ran = Command::new("tar").args(arguments).current_dir(folder).status();
    assert!(ran.is_ok_and(|status| status.success()), "tar {arguments:?}");
}

/// Writes the file that the test reads: with ORDINATE_BINARY, of the version whose formats shall stay readable.
fn write_a_data_directory() {
    side_by_side(async {
        let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("data_of_an_earlier_version");
        for arrangement in [SHARDED, REPLICATED, BASELINE] {
            let mut served = arrangement.plan();
            served.cluster.launch_all();
            served.cluster.until_ready().await;
            write_all(&arrangement, &served).await;
            let is_archived = |cluster: &Cluster| {
                !arrangement.trims() || files_below(&cluster.folder.join("archive"), ".segment").len() > 1
            };
            served.cluster.until("trimmed segments are archived", PATIENCE, is_archived).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            served.cluster.kill_all();
            let folder = into.join(arrangement.name);
            std::fs::create_dir_all(&folder).expect("the build's folder is writable");
            for part in ["ordinate-data", "archive"] {
                std::fs::rename(served.cluster.folder.join(part), folder.join(part)).expect("it was made");
            }
        }
        let archive = recorded().display().to_string();
        tar(&["--create", "--gzip", "--sparse", "--hole-detection=raw", "--file", &archive, "."], &into);
        std::fs::remove_dir_all(&into).expect("it was made here");
    });
}

// A host that refuses what its predecessor acknowledged has lost it.
#[test]
fn a_data_directory_of_7ae3f12_serves() {
    if std::env::var_os("ORDINATE_WRITE_DATA").is_some() {
        write_a_data_directory();
    }
    side_by_side(async {
        for arrangement in [SHARDED, REPLICATED, BASELINE] {
            let mut served = arrangement.plan();
            let folder = &served.cluster.folder;
            tar(
                &[
                    "--extract",
                    "--gzip",
                    "--file",
                    &recorded().display().to_string(),
                    &format!("./{}", arrangement.name),
                ],
                folder,
            );
            for part in std::fs::read_dir(folder.join(arrangement.name)).expect("it is in the file").flatten()
            {
                std::fs::rename(part.path(), folder.join(part.file_name())).expect("the folder is writable");
            }
            let has = |ending: &str| !files_below(folder, ending).is_empty();
            assert_eq!(has(".segment"), arrangement.trims(), "archived segments");
            served.cluster.launch_all();
            served.cluster.until_ready().await;
            check_all(&arrangement, &served).await;
        }
    });
}
