//! Trimmed segments go to an archive before they go: while hosts die, and while it is away.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, number, side_by_side};
use ordinate_client::{CallError, Log, LogError, Rows};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A folder for an archive, gone when this is dropped.
struct Archive(PathBuf);

impl Archive {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the build's folder is writable");
        Self(path)
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    fn files(&self) -> Vec<PathBuf> {
        let (mut folders, mut files) = (vec![self.0.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path if path.extension().is_some_and(|it| it == "segment") => files.push(path),
                    _ => {}
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        self.files().iter().filter_map(|file| file.ancestors().nth(3)).for_each(|folder| lock(folder, false));
        // What cannot be removed goes with the build.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(archive: &Archive, more: &str) -> String {
    format!("[log]\nspaces = 1\nspace_bytes = \"64MiB\"\narchive = \"{}\"\n{more}", archive.url())
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn entry(number: u64) -> String {
    format!("{number} {}", "x".repeat((number % 97) as usize * 20))
}

/// What was answered, and where it is.
#[derive(Default)]
struct Record {
    stop: AtomicBool,
    appended: Mutex<BTreeMap<u64, String>>,
}

impl Record {
    fn count(&self) -> usize {
        self.appended.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);

async fn write_on(endpoints: Vec<String>, record: Arc<Record>) {
    let log = Log::connect(endpoints).with_timeout(Duration::from_secs(20));
    while !record.stop.load(Ordering::Relaxed) {
        let mut rows = Rows::default();
        let entries: Vec<String> = (0..20).map(|_| entry(NEXT.fetch_add(1, Ordering::Relaxed))).collect();
        entries.iter().for_each(|entry| rows.push(entry.as_bytes()));
        match log.append("jobs", rows).await {
            Ok(first) => {
                let mut appended = record.appended.lock().unwrap_or_else(PoisonError::into_inner);
                appended.extend((first..).zip(entries));
            }
            Err(LogError::Call(
                CallError::MaybeExecuted | CallError::TimedOut(_) | CallError::NotSent(_),
            )) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn trim_on(endpoints: Vec<String>, record: Arc<Record>) {
    let log = Log::connect(endpoints).with_timeout(Duration::from_secs(20));
    while !record.stop.load(Ordering::Relaxed) {
        let known =
            record.appended.lock().unwrap_or_else(PoisonError::into_inner).last_key_value().map(|it| *it.0);
        // A client without an answer in time trims again.
        let _ = log.trim("jobs", known.unwrap_or(0) * 9 / 10).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until_appended(record: &Record, more: usize) {
    let (wanted, deadline) = (record.count() + more, Instant::now() + PATIENCE);
    while record.count() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} appends in a minute", record.count());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn waiting(cluster: &Cluster, host: usize) -> Option<u64> {
    cluster.status(host)?["log"]["archive"]["waiting"].as_u64()
}

/// The archive alone has what was archived, whole; damage to it is found and named.
async fn read_without_hosts(cluster: &mut Cluster, archive: &Archive, out: &str) {
    cluster.kill_all();
    let url = archive.url();
    let offline = cluster.ordinate(&["log", "archive", "read", "jobs", "--archive", &url]).await;
    let (alone, err) = said(&offline);
    assert!(offline.status.success() && out.starts_with(&alone) && !alone.is_empty(), "{err}");
    let list = cluster.ordinate(&["log", "archive", "list", "--archive", &url, "-o", "json"]).await;
    let listed: serde_json::Value = serde_json::from_slice(&list.stdout).expect("one log");
    let counted = alone.lines().count() as u64;
    assert_eq!(
        (&listed["log"], listed["next"].as_u64(), listed["missing"].as_u64()),
        (&"jobs".into(), Some(counted), Some(0))
    );
    assert_eq!(listed["segments"].as_u64(), Some(archive.files().len() as u64));
    // Damage is found, and named.
    let file = &archive.files()[1];
    let whole = std::fs::read(file).expect("it is there");
    let inspected = cluster.ordinate(&["inspect", &file.display().to_string()]).await;
    assert!(said(&inspected).0.contains("log jobs of cluster"), "{inspected:?}");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(file, &damaged).expect("it can be written");
    let refused = cluster.ordinate(&["log", "archive", "read", "jobs", "--archive", &url]).await;
    assert!(said(&refused).1.starts_with("error[O1021]") && refused.status.code() == Some(1), "{refused:?}");
    let refused = cluster.ordinate(&["inspect", &file.display().to_string()]).await;
    assert!(said(&refused).1.starts_with("error[O2110]"), "{refused:?}");
    std::fs::remove_file(file).expect("our own file");
    let refused = cluster.ordinate(&["log", "archive", "read", "jobs", "--archive", &url]).await;
    assert!(said(&refused).1.starts_with("error[O1022]"), "{refused:?}");
    let list = cluster.ordinate(&["log", "archive", "list", "--archive", &url]).await;
    assert!(said(&list).0.contains("MISSING"), "{list:?}");
}

// A segment that goes with the host that was to archive it, or that each host believes another has archived.
#[test]
fn what_is_trimmed_while_hosts_die_is_read_from_the_archive() {
    side_by_side(async {
        let archive = Archive::new("archive-kill");
        let mut cluster = Cluster::start(3, &settings(&archive, ""), "").await;
        let record = Arc::new(Record::default());
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_secs(30));
        log.create("jobs", 16 << 20, None).await.expect("a log is made");
        let mut tasks: Vec<_> = (0..3)
            .map(|writer| tokio::spawn(write_on(cluster.endpoints_from(writer), record.clone())))
            .collect();
        tasks.push(tokio::spawn(trim_on(cluster.endpoints_from(0), record.clone())));
        let turn = number("ORDINATE_ARCHIVE_TURN", 3_000);
        until_appended(&record, turn).await;
        for host in 0..3 {
            cluster.kill(host);
            until_appended(&record, turn).await;
            cluster.launch(host);
            cluster.until("the host is back", PATIENCE, |cluster| cluster.is_ready(host)).await;
            until_appended(&record, turn).await;
        }
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        until_appended(&record, turn).await;
        record.stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("it does not panic");
        }
        let all_idle = |cluster: &Cluster| (0..3).all(|host| waiting(cluster, host) == Some(0));
        cluster.until("nothing waits for the archive", PATIENCE, all_idle).await;
        let url = archive.url();
        let read = cluster.ordinate(&["log", "read", "jobs", "--from", "0", "--archive", &url]).await;
        let (out, err) = said(&read);
        assert!(read.status.success(), "{err}");
        let lines: Vec<&str> = out.lines().collect();
        let stat = log.stat("jobs").await.expect("it answers");
        assert_eq!(lines.len() as u64, stat.next, "every position once");
        let appended = std::mem::take(&mut *record.appended.lock().unwrap_or_else(PoisonError::into_inner));
        for (&position, entry) in appended.iter() {
            assert_eq!(lines[position as usize], entry, "position {position}");
        }
        let archived = archive.files().len();
        println!(
            "{} entries acknowledged, {} trimmed, {archived} segments archived; all {} read back from the archive and the hosts",
            appended.len(),
            stat.first,
            lines.len()
        );
        assert!(archived >= 10 && stat.first > 0, "{archived} segments, {stat:?}");
        read_without_hosts(&mut cluster, &archive, &out).await;
    });
}

fn lock(path: &Path, locked: bool) {
    // A directory that root may not write either.
    let flag = if locked { "+i" } else { "-i" };
    let _ = Command::new("chattr").arg(flag).arg(path).output();
}

/// An archive that may only be read is as far away.
async fn trim_into_a_folder_that_may_only_be_read(cluster: &mut Cluster, archive: &Archive, log: &Log) {
    let cluster_of = archive.files()[0].ancestors().nth(3).expect("three parts are ours").to_owned();
    lock(&cluster_of, true);
    let writable = std::fs::write(cluster_of.join("probe"), b"x").is_ok();
    if writable {
        println!("SKIPPED: a folder that root may not write");
        let _ = std::fs::remove_file(cluster_of.join("probe"));
    } else {
        log.create("other", 4 << 20, None).await.expect("a log is made");
        let mut rows = Rows::default();
        (0..100).for_each(|number| rows.push(entry(number).as_bytes()));
        log.append("other", rows).await.expect("below the bound");
        log.trim("other", 100).await.expect("it is trimmed");
        let reports = |cluster: &Cluster| {
            let error = cluster.status(0).map(|status| status["log"]["archive"]["error"].clone());
            error.is_some_and(|error| error.is_string())
        };
        cluster.until("a host says that it may not write", PATIENCE, reports).await;
        lock(&cluster_of, false);
        let idle = |cluster: &Cluster| (0..3).all(|host| waiting(cluster, host) == Some(0));
        cluster.until("nothing waits for the archive", PATIENCE, idle).await;
    }
}

// An archive that is away must stop neither hosts nor, below the bound, writers; beyond it nothing may be lost or taken silently.
#[test]
fn an_archive_that_is_away_makes_appends_wait_at_their_callers() {
    side_by_side(async {
        let archive = Archive::new("archive-away");
        let away = archive.0.with_extension("away");
        let bound = "archive_backlog_bytes = \"3MiB\"\n";
        let mut cluster = Cluster::start(3, &settings(&archive, bound), "").await;
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_secs(30));
        log.create("jobs", 4 << 20, None).await.expect("a log is made");
        std::fs::rename(&archive.0, &away).expect("our own folder");
        let (mut appended, mut refused) = (0_u64, None);
        while refused.is_none() {
            assert!(appended < 100_000, "{appended} entries, and nothing is refused");
            let mut rows = Rows::default();
            (appended..appended + 100).for_each(|number| rows.push(entry(number).as_bytes()));
            match log.append("jobs", rows).await {
                Ok(first) => {
                    assert_eq!(first, appended);
                    appended += 100;
                }
                Err(error) => refused = Some(error),
            }
        }
        let Some(LogError::Unarchived { name, waiting_bytes }) = refused else { panic!("{refused:?}") };
        assert_eq!(name, "jobs");
        let admin = cluster.hosts[0].admin;
        let answer = http::ask(admin, "POST", "/v1/log/jobs/append", b"x").expect("it answers");
        assert_eq!(answer.code, 503, "{}", answer.text());
        assert!(answer.json()["waiting_bytes"].as_u64() > Some(3 << 20));
        let command = cluster.ordinate(&["status", "--admin", &admin.to_string()]).await;
        let (out, _) = said(&command);
        assert!(out.contains("archive     file://") && out.contains("is it mounted?"), "{out}");
        assert!(out.contains("appends are refused"), "{out}");
        assert!(cluster.log(0).contains("the archive does not take trimmed segments"), "{}", cluster.log(0));
        let metrics = http::get(admin, "/metrics").expect("it answers").text();
        let failing = metrics.lines().any(|line| line == "ordinate_archive_failing 1");
        assert!(failing, "{metrics}");
        // Reads go on; and what waits survives every host.
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        let page = log.recall("jobs", 0, 10).await.expect("it is still here");
        assert_eq!(page.entries[7][..], *entry(7).as_bytes());
        assert_eq!(archive.files().len(), 0);
        let back = Instant::now();
        std::fs::rename(&away, &archive.0).expect("our own folder");
        let idle = |cluster: &Cluster| (0..3).all(|host| waiting(cluster, host) == Some(0));
        cluster.until("nothing waits for the archive", PATIENCE, idle).await;
        let caught_up = back.elapsed();
        let mut rows = Rows::default();
        rows.push(entry(appended).as_bytes());
        assert_eq!(log.append("jobs", rows).await, Ok(appended), "it goes on where it was refused");
        let url = archive.url();
        let read = cluster.ordinate(&["log", "read", "jobs", "--archive", &url]).await;
        let (out, err) = said(&read);
        assert!(read.status.success(), "{err}");
        assert!(out.lines().eq((0..=appended).map(entry)), "every entry, once, in order");
        println!(
            "archive away: {appended} entries taken until {waiting_bytes} bytes waited; all hosts killed; {caught_up:?} after it \
             was back nothing waited"
        );
        trim_into_a_folder_that_may_only_be_read(&mut cluster, &archive, &log).await;
    });
}
