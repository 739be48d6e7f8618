//! Three hosts with every service, what troublemakers find there, and the judgement of a strike.

use crate::kinds::Kind;
use crate::polite::Polite;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::http;
use crate::support::number;
use crate::support::zookeeper::{create_body, session};
use crate::topic::produce;
use coordination::wire::{JuteOutput, op};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[coordination]\nengine = \"mason\"\nshards = 2\nproxies = 2\n[log]\nspaces = 1\nproxies = 1\n\
                        space_bytes = \"256MiB\"\n[limits]\nconnections_max = 4000\nunread_for_max = \"10s\"";
/// What a host may have in memory for its clients: `limits.backlog_bytes_max`, and a third more.
const GROWTH_MAX: u64 = 256 << 20;
/// What it may have, like all hosts, of what the loads write: of each of the four groups 64 MiB for hosts that lag, and half as much again
/// while snapshots are written.
const RETAINED_MAX: u64 = (4 * 96) << 20;
const LARGE_BYTES: usize = 1_000_000;

/// A release is measured, which `ORDINATE_BINARY` names; a development build shares the cores with other tests.
fn is_measured() -> bool {
    std::env::var_os("ORDINATE_BINARY").is_some()
}

/// How soon after the end polite clients are to be served as ever.
fn back_to_normal_within() -> Duration {
    Duration::from_secs(if is_measured() { 5 } else { 30 })
}

/// How long 99 of 100 polite requests may wait, unless `ORDINATE_ABUSE_P99_MS` says it.
fn p99_max() -> Duration {
    Duration::from_millis(number("ORDINATE_ABUSE_P99_MS", if is_measured() { 1_000 } else { 5_000 }))
}

/// What a troublemaker needs to know.
#[derive(Clone)]
pub struct Target {
    pub zookeeper: SocketAddr,
    pub native: SocketAddr,
    pub admin: SocketAddr,
    pub kafka: SocketAddr,
    pub peer: SocketAddr,
    stop: Arc<AtomicBool>,
    /// What was done, in the kind's own unit.
    pub done: Arc<AtomicU64>,
}

impl Target {
    /// Whether to go on.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Waits until it is over.
    pub fn wait(&self) {
        while self.goes_on() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// One more was done.
    pub fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

pub struct Stage {
    cluster: Cluster,
    zookeeper: Vec<SocketAddr>,
    kafka: Vec<SocketAddr>,
    /// At the host that is struck, and at another.
    near: Polite,
    far: Polite,
    idle_bytes: Vec<u64>,
    p99_max: Duration,
    findings: Vec<String>,
}

impl Stage {
    pub async fn set() -> Self {
        raise_descriptors();
        let mut cluster = Cluster::planned(3, SETTINGS, "");
        let mut listen = |key| (0..3).map(|host| cluster.listen(host, key)).collect::<Vec<SocketAddr>>();
        let (zookeeper, kafka) = (listen("ZOOKEEPER"), listen("KAFKA"));
        cluster.launch_all();
        cluster.until_ready().await;
        prepare(&cluster, zookeeper[0], kafka[0]);
        let (near, far) = (Polite::start(zookeeper[0], "/near"), Polite::start(zookeeper[1], "/far"));
        std::thread::sleep(Duration::from_secs(1));
        let idle_bytes = (0..3).map(|host| cluster.resident_bytes(host)).collect();
        Self { cluster, zookeeper, kafka, near, far, idle_bytes, p99_max: p99_max(), findings: Vec::new() }
    }

    pub fn head(&self) {
        println!(
            "| load at one host | done | p99 and longest there | elsewhere | processors there | memory there, elsewhere | back after |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- |");
    }

    /// Strikes the first host for a while, and judges.
    pub async fn strike(&mut self, kinds: &[&Kind], lasts: Duration) {
        let (stop, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let breaks = (self.near.breaks(), self.far.breaks());
        let host = &self.cluster.hosts[0];
        let target = || Target {
            zookeeper: self.zookeeper[0],
            native: host.native,
            admin: host.admin,
            kafka: self.kafka[0],
            peer: host.peer,
            stop: Arc::clone(&stop),
            done: Arc::default(),
        };
        let strikes: Vec<(Target, std::thread::JoinHandle<()>)> = kinds
            .iter()
            .map(|kind| {
                let (target, run) = (target(), kind.run);
                (target.clone(), std::thread::spawn(move || run(&target)))
            })
            .collect();
        let mut most = [0_u64; 3];
        let worked_before = self.cluster.processor_time(0);
        while begun.elapsed() < lasts {
            tokio::time::sleep(Duration::from_millis(50)).await;
            for (host, most) in most.iter_mut().enumerate() {
                *most = (*most).max(self.resident(host));
            }
        }
        let worked = self.cluster.processor_time(0).saturating_sub(worked_before);
        let share = worked.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
        stop.store(true, Ordering::Relaxed);
        let done: Vec<String> =
            strikes.iter().map(|(target, _)| target.done.load(Ordering::Relaxed).to_string()).collect();
        let ended = Instant::now();
        let (near, far) = (self.near.waits_since(begun), self.far.waits_since(begun));
        let back = self.until_normal(ended).await;
        for (_, strike) in strikes {
            strike.join().expect("a troublemaker does not panic");
        }
        let name = name_of(kinds);
        let grown: Vec<u64> =
            (0..3).map(|host| most[host].saturating_sub(self.idle_bytes[host]) >> 20).collect();
        let elsewhere = grown[1].max(grown[2]);
        println!(
            "| {name} | {} | {:.1?}, {:.0?} | {:.1?}, {:.0?} | {share:.0} % | +{} MiB, +{elsewhere} MiB | {back:.1?} |",
            done.join(" + "),
            near.0,
            near.1,
            far.0,
            far.1,
            grown[0],
        );
        let mut found = |what: String| self.findings.push(format!("{name}: {what}"));
        if near.0 > self.p99_max || far.0 > self.p99_max {
            found(format!("99 of 100 waited {:?} there and {:?} elsewhere", near.0, far.0));
        }
        if (self.near.breaks(), self.far.breaks()) != breaks {
            found("a polite client lost its connection".to_owned());
        }
        if back > back_to_normal_within() {
            found(format!("back to normal after {back:?}"));
        }
        // What the loads write, all hosts keep: beyond that a host holds what it makes for clients.
        let retained = grown[1].min(grown[2]);
        if grown[0].saturating_sub(retained) > GROWTH_MAX >> 20 || retained > RETAINED_MAX >> 20 {
            found(format!("memory grew by {grown:?} MiB"));
        }
        for host in 0..3 {
            assert!(self.cluster.is_alive(host), "{name}: host {host} ended\n{}", self.cluster.logs());
        }
    }

    fn resident(&self, host: usize) -> u64 {
        self.cluster.process(host).map_or(0, |_| self.cluster.resident_bytes(host))
    }

    /// How long after the end polite clients were served as ever: several requests in a row, none of them slow.
    async fn until_normal(&self, ended: Instant) -> Duration {
        const ROW: Duration = Duration::from_millis(200);
        loop {
            let row = Instant::now();
            tokio::time::sleep(ROW).await;
            let is_well = |polite: &Polite| {
                let (_, longest, count) = polite.waits_since(row);
                count >= 3 && longest < Duration::from_millis(150)
            };
            if is_well(&self.near) && is_well(&self.far) && self.cluster.is_ready(0) {
                return row - ended;
            }
            if ended.elapsed() > 4 * back_to_normal_within() {
                return ended.elapsed();
            }
        }
    }

    /// Every acknowledged write is read at a host that was not struck, and all that was found is reported.
    pub async fn close(self) {
        let mut findings = self.findings;
        let mut written = 0;
        for polite in [self.near, self.far] {
            match polite.finish(self.zookeeper[2]) {
                Ok(acknowledged) => written += acknowledged,
                Err(lost) => findings.push(lost),
            }
        }
        println!("{written} acknowledged writes of polite clients, none lost");
        let log = self.cluster.logs();
        assert!(!log.contains("panicked"), "{log}");
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}

/// What troublemakers read: large values, a node with many children, a log and a topic with some MiB in them.
fn prepare(cluster: &Cluster, zookeeper: SocketAddr, kafka: SocketAddr) {
    let mut raw = session(zookeeper);
    let mut make = |path: &str, data: &[u8]| {
        let reply = raw.call(op::CREATE, &create_body(path, data, 0)).expect("the host serves");
        assert_eq!(reply.error, 0, "{path}");
    };
    make("/large", &vec![b'x'; LARGE_BYTES]);
    make("/hot", b"0");
    make("/many", b"");
    make("/churn", b"");
    // 3 MiB of names.
    for part in 0..10 {
        let mut multi = Vec::new();
        for child in 0..600 {
            multi.put_i32(op::CREATE);
            multi.push(0);
            multi.put_i32(-1);
            multi.extend(create_body(&format!("/many/{:x<500}", format!("{part}-{child}-")), b"", 0));
        }
        multi.put_i32(-1);
        multi.push(1);
        multi.put_i32(-1);
        let reply = raw.call(op::MULTI, &multi).expect("the host serves");
        assert_eq!(reply.error, 0);
    }
    let admin = cluster.hosts[0].admin;
    let deadline = Instant::now() + PATIENCE;
    let answered = |method: &str, path: &str, body: &[u8]| {
        while http::ask(admin, method, path, body).is_none_or(|answer| answer.code >= 300) {
            assert!(Instant::now() < deadline, "{method} {path} was not answered");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    answered("PUT", "/v1/kv/large", &vec![b'y'; 200 << 10]);
    answered("PUT", "/v1/log/lines?retain_bytes=16777216", b"");
    let lines = format!("{:z<999}\n", "").repeat(500);
    for _ in 0..8 {
        answered("POST", "/v1/log/lines/append", lines.as_bytes());
    }
    produce(kafka);
}

/// This process has a socket at the other end of each connection.
fn raise_descriptors() {
    runtime::descriptors::raise_limit().expect("no right is needed");
}

fn name_of(kinds: &[&Kind]) -> String {
    let names = kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(" + ");
    if kinds.is_empty() { "nothing".to_owned() } else { names }
}
