//! Disks that fill up, and have room again.

use crate::failover::clients;
use crate::load::Load;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::http::{self, Answer};
use crate::support::kafka;
use crate::support::raw::Raw;
use crate::support::side_by_side;
use crate::support::zookeeper::{create_body, read_body, session, set_body};
use coordination::wire::op;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::Scope;
use std::time::{Duration, Instant};

/// A small file system that is gone when this is dropped.
pub struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&path).ok()?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=72m", "tmpfs"]).arg(&path).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a host that is being killed may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Three hosts, each with a small file system of its own; none where such cannot be mounted.
pub async fn start_on_small_disks(settings: &str) -> Option<(Cluster, Vec<Small>)> {
    let cluster = Cluster::planned(3, settings, "");
    launch_on_small_disks(cluster).await
}

/// The same of hosts that were planned.
async fn launch_on_small_disks(mut cluster: Cluster) -> Option<(Cluster, Vec<Small>)> {
    let mounted: Option<Vec<Small>> = (0..3).map(|host| Small::mount(cluster.data_of(host))).collect();
    let Some(mounted) = mounted else {
        println!("SKIPPED: a small file system needs root and mount");
        return None;
    };
    cluster.launch_all();
    cluster.until_ready().await;
    Some((cluster, mounted))
}

/// All the room that is left in a folder's file system goes to a file, which is returned.
pub fn fill(folder: &Path) -> PathBuf {
    let filler = folder.join("filler");
    // Ends with an error when the disk is full.
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "status=none"])
        .arg(format!("of={}", filler.display()))
        .stderr(std::process::Stdio::null())
        .status();
    filler
}

// A host that acknowledges what it could not write, stops for good, or loses what it had when the disk is full.
#[test]
fn full_disks_make_clients_wait_and_nothing_else() {
    side_by_side(async {
        let Some((mut cluster, mounted)) = start_on_small_disks("").await else { return };
        let load = Load::start("full", clients(&cluster, 3));
        load.until_acknowledged(50, PATIENCE).await;
        // On two hosts of three.
        let fillers: Vec<PathBuf> = (0..2).map(|host| fill(&cluster.data_of(host))).collect();
        let client = clients(&cluster, 1)[0].clone().with_timeout(Duration::from_secs(1));
        let mut written = 0u32;
        let waited = loop {
            assert!(written < 2_000, "no disk is full after {written} writes of 64 KiB\n{}", cluster.logs());
            let answer = client.put(format!("fill/{}", written % 16), vec![b'x'; 64 << 10]).await;
            written += 1;
            if answer.is_err() && (0..2).all(|host| cluster.log(host).contains("the disk is full")) {
                break answer;
            }
        };
        let ready = cluster.page(0, "/readyz", 503).await.text();
        let full_at = load.now();
        for filler in fillers {
            std::fs::remove_file(filler).expect("it was written");
        }
        load.until_everybody_is_served(full_at, PATIENCE).await;
        let resumed = load.last_client_served_after(full_at).expect("it was waited for");
        cluster.until_ready().await;
        let verdict = load.finish().await;
        println!(
            "disk full on two of three hosts after {written} writes of 64 KiB: a write then: {waited:?}, readyz \
             {ready:?}; served again {resumed:?} after there was room; {} operations, linearizable",
            verdict.answered
        );
        assert_eq!(ready, "the disk is full\n");
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        drop(cluster);
        drop(mounted);
    });
}

/// What each service is asked to write, and to read.
const WRITES: [(&str, &str, &str); 3] = [
    ("PUT", "/v1/kv/there", "again"),
    ("POST", "/v1/log/jobs/append", "again"),
    ("POST", "/v1/sequence/next", "{\"spaces\": [\"s\"]}"),
];
const READS: [&str; 2] = ["/v1/kv/there?raw", "/v1/log/jobs?from=0"];
/// No answer to a refused write, and to a read, may take longer.
const AT_ONCE: Duration = Duration::from_millis(1_000);

fn timed(admin: SocketAddr, method: &str, path: &str, body: &str) -> (Answer, Duration) {
    let begun = Instant::now();
    let answer = http::ask(admin, method, path, body.as_bytes()).expect("an answer");
    (answer, begun.elapsed())
}

fn says_full(admin: SocketAddr) -> bool {
    let page = http::ask(admin, "GET", "/metrics", b"").expect("an answer").text();
    page.lines().any(|line| line == "ordinate_disk_full 1")
}

/// Writes until the first two hosts say so: what is on its way then waits, and is answered when there is room.
fn until_two_say_full<'a>(scope: &'a Scope<'a, '_>, admins: &[SocketAddr], cluster: &Cluster) {
    let begun = Instant::now();
    while !(says_full(admins[0]) && says_full(admins[1])) {
        assert!(begun.elapsed() < PATIENCE, "no disk is full\n{}", cluster.logs());
        for &admin in admins {
            scope.spawn(move || http::ask(admin, "PUT", "/v1/kv/filler", &[b'x'; 60 << 10]));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How long it takes from now on until every write is taken by every host again.
fn until_all_writes_are_back(admins: &[SocketAddr], cluster: &Cluster) -> Duration {
    let room_at = Instant::now();
    let mut back = Duration::ZERO;
    for &admin in admins {
        for (method, path, body) in WRITES {
            while timed(admin, method, path, body).0.code != 200 {
                assert!(room_at.elapsed() < PATIENCE, "{path} does not come back\n{}", cluster.logs());
                std::thread::sleep(Duration::from_millis(10));
            }
            back = back.max(room_at.elapsed());
        }
    }
    back
}

// Clients that wait ten seconds for each write, or cannot read what is there, are no better off than without a cluster.
#[test]
fn full_disks_refuse_writes_at_once_and_answer_reads() {
    side_by_side(async {
        let services = "[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1\nspace_bytes = \"60MiB\"\n";
        let Some((cluster, mounted)) = start_on_small_disks(services).await else { return };
        let admins: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let created =
            http::ask(admins[0], "PUT", "/v1/log/jobs?retain_bytes=1048576", b"").expect("an answer");
        assert_eq!(created.code, 201, "{}", created.text());
        for (method, path, body) in WRITES {
            let (answer, _) = timed(admins[0], method, path, body);
            assert_eq!(answer.code, 200, "{path}: {}", answer.text());
        }
        let fillers: Vec<PathBuf> = (0..2).map(|host| fill(&cluster.data_of(host))).collect();
        std::thread::scope(|scope| {
            until_two_say_full(scope, &admins, &cluster);
            let full_at = Instant::now();
            let (mut longest_write, mut longest_read, mut steady) = (Duration::ZERO, Duration::ZERO, 0);
            while full_at.elapsed() < Duration::from_secs(4) {
                for &admin in &admins {
                    for (method, path, body) in WRITES {
                        let (answer, took) = timed(admin, method, path, body);
                        assert_eq!(
                            answer.code,
                            507,
                            "{path} after {:?}: {}",
                            full_at.elapsed(),
                            answer.text()
                        );
                        longest_write = longest_write.max(took);
                    }
                    for path in READS {
                        let (answer, took) = timed(admin, "GET", path, "");
                        assert_eq!(answer.code, 200, "{path}: {}", answer.text());
                        longest_read = longest_read.max(took);
                    }
                }
                assert!(says_full(admins[0]) && says_full(admins[1]), "the metric flaps");
                steady += 1;
                std::thread::sleep(Duration::from_millis(40));
            }
            let said = |host: usize| cluster.log(host).matches("the disk is full: writes").count();
            let lines = (said(0), said(1));
            for filler in &fillers {
                std::fs::remove_file(filler).expect("it was written");
            }
            let back = until_all_writes_are_back(&admins, &cluster);
            println!(
                "two of three disks full for 4 s: writes of three services refused on all hosts, the slowest in \
                 {longest_write:?}; reads answered, the slowest in {longest_read:?}; disk_full 1 in {steady} of \
                 {steady} looks; {lines:?} lines; back {back:?} after there was room"
            );
            assert!(longest_write < AT_ONCE && longest_read < AT_ONCE, "{longest_write:?} {longest_read:?}");
            assert_eq!(lines, (1, 1), "one line a minute\n{}", cluster.logs());
            assert!(back < Duration::from_secs(2), "{back:?}");
        });
        drop(cluster);
        drop(mounted);
    });
}

/// A host as clients of ZooKeeper's and Kafka's protocols see it.
struct Clients {
    zookeeper: Raw,
    kafka: kafka::Client,
}

const NODE: &str = "/there";
const TOPIC: &str = "there";
/// "Not executed, try again later": of ZooKeeper's protocol, and of Kafka's.
const THROTTLED: i32 = -127;
const NOT_ENOUGH_REPLICAS: i16 = 19;

impl Clients {
    /// The codes of a write by each, and how long the slower one took.
    fn write(&mut self) -> ((i32, i16), Duration) {
        let (mut took, entry) = (Duration::ZERO, kafka::record(b"again".to_vec()));
        let mut timed = |begun: Instant| took = took.max(begun.elapsed());
        let begun = Instant::now();
        let set =
            self.zookeeper.call(op::SET_DATA, &set_body(NODE, b"again")).expect("its connection is open");
        timed(begun);
        let begun = Instant::now();
        let produced = self.kafka.produce(TOPIC, &[entry]).expect("its connection is open");
        timed(begun);
        ((set.error, produced.0), took)
    }

    /// Reads what was written before the disks were full; how long the slower one took.
    fn read(&mut self) -> Duration {
        let begun = Instant::now();
        let got = self.zookeeper.call(op::GET_DATA, &read_body(NODE, false)).expect("its connection is open");
        assert_eq!(got.error, 0);
        let of_zookeeper = begun.elapsed();
        let begun = Instant::now();
        let (code, records) = self.kafka.fetch(TOPIC).expect("its connection is open");
        assert!(code == 0 && !records.is_empty(), "{code}, {} bytes", records.len());
        of_zookeeper.max(begun.elapsed())
    }
}

// Clients of other people's protocols that time out, and do not know whether their writes were made, or that cannot even read.
#[test]
fn full_disks_refuse_zookeepers_and_kafkas_writes_at_once() {
    side_by_side(async {
        let services = "[coordination]\nengine = \"mason\"\nshards = 2\nproxies = 1\n\
                        [log]\nspaces = 1\nproxies = 1\nspace_bytes = \"60MiB\"\n";
        let mut cluster = Cluster::planned(3, services, "");
        let mut listen = |key| (0..3).map(|host| cluster.listen(host, key)).collect::<Vec<SocketAddr>>();
        let (zookeeper, kafka) = (listen("ZOOKEEPER"), listen("KAFKA"));
        let Some((cluster, mounted)) = launch_on_small_disks(cluster).await else { return };
        let connect = |host: usize| Clients {
            zookeeper: session(zookeeper[host]),
            kafka: kafka::Client::connect(kafka[host]),
        };
        let mut clients: Vec<Clients> = (0..3).map(connect).collect();
        let made = clients[0].zookeeper.call(op::CREATE, &create_body(NODE, b"once", 0)).expect("it serves");
        assert_eq!(made.error, 0);
        let begun = Instant::now();
        clients[0].kafka.metadata(TOPIC).expect("it serves");
        for client in &mut clients {
            while client.write().0 != (0, 0) {
                assert!(begun.elapsed() < PATIENCE, "no topic\n{}", cluster.logs());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let admins: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let fillers: Vec<PathBuf> = (0..2).map(|host| fill(&cluster.data_of(host))).collect();
        std::thread::scope(|scope| {
            until_two_say_full(scope, &admins, &cluster);
            let full_at = Instant::now();
            let (mut longest_write, mut longest_read, mut rounds) = (Duration::ZERO, Duration::ZERO, 0);
            while full_at.elapsed() < Duration::from_secs(4) {
                for client in &mut clients {
                    let (codes, took) = client.write();
                    assert_eq!(codes, (THROTTLED, NOT_ENOUGH_REPLICAS), "after {:?}", full_at.elapsed());
                    longest_write = longest_write.max(took);
                    longest_read = longest_read.max(client.read());
                }
                rounds += 1;
                std::thread::sleep(Duration::from_millis(40));
            }
            for filler in &fillers {
                std::fs::remove_file(filler).expect("it was written");
            }
            let room_at = Instant::now();
            for client in &mut clients {
                while client.write().0 != (0, 0) {
                    assert!(room_at.elapsed() < PATIENCE, "no writes again\n{}", cluster.logs());
                    std::thread::sleep(Duration::from_millis(10));
                }
                client.read();
            }
            let back = room_at.elapsed();
            println!(
                "two of three disks full for 4 s, ZooKeeper's and Kafka's clients: {rounds} rounds of writes refused on \
                 all hosts, the slowest in {longest_write:?}; reads answered, the slowest in {longest_read:?}; back \
                 {back:?} after there was room"
            );
            assert!(longest_write < AT_ONCE && longest_read < AT_ONCE, "{longest_write:?} {longest_read:?}");
            assert!(back < Duration::from_secs(2), "{back:?}");
        });
        drop(cluster);
        drop(mounted);
    });
}
