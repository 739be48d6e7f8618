//! The shared log while hosts die, and a file that goes in and comes out.

use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::{http, number, side_by_side};
use ordinate_client::{CallError, Log, LogError, Rows};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["orders", "payments", "parcels"];
const WRITERS: usize = 6;

/// An append that was answered: what, and where it is in each log.
type Appended = (String, BTreeMap<&'static str, u64>);

#[derive(Default)]
struct Record {
    stop: AtomicBool,
    appended: Mutex<Vec<Appended>>,
}

impl Record {
    fn count(&self) -> usize {
        self.appended.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn one(entry: &str) -> Rows {
    let mut rows = Rows::default();
    rows.push(entry.as_bytes());
    rows
}

/// Appends until stopped, now to one log, now to several.
async fn write_on(writer: usize, endpoints: Vec<String>, record: Arc<Record>) {
    let log = Log::connect(endpoints).with_timeout(Duration::from_secs(20));
    let mut turn = writer;
    while !record.stop.load(Ordering::Relaxed) {
        turn += 1;
        let wanted = (0..NAMES.len()).filter(|name| (turn % 7 + 1) >> name & 1 == 1);
        let names: Vec<&'static str> = wanted.map(|name| NAMES[name]).collect();
        let entry = format!("{writer}.{turn}");
        let parts = names.iter().map(|name| ((*name).to_owned(), one(&entry))).collect();
        match log.append_to_all(parts).await {
            Ok(firsts) => {
                let positions = names.into_iter().zip(firsts).collect();
                record.appended.lock().unwrap_or_else(PoisonError::into_inner).push((entry, positions));
            }
            Err(LogError::Call(
                CallError::MaybeExecuted | CallError::TimedOut(_) | CallError::NotSent(_),
            )) => {}
            Err(error) => panic!("writer {writer}: {error}"),
        }
    }
}

async fn until_appended(record: &Record, more: usize) {
    let wanted = record.count() + more;
    let deadline = Instant::now() + PATIENCE;
    while record.count() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} appends in a minute", record.count());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn all_of(log: &Log, name: &str) -> Vec<String> {
    let mut entries = Vec::new();
    loop {
        let page = log.read(name, entries.len() as u64, 1_000, Duration::ZERO).await.expect("it can be read");
        assert_eq!(page.first, entries.len() as u64);
        let words = page.entries.iter().map(|entry| String::from_utf8_lossy(entry).into_owned());
        entries.extend(words);
        if entries.len() as u64 >= page.tail {
            return entries;
        }
        assert!(!page.entries.is_empty(), "a hole at {} of {name}", entries.len());
    }
}

async fn start() -> Cluster {
    start_with("mason").await
}

async fn start_with(engine: &str) -> Cluster {
    let settings = format!("[log]\nengine = \"{engine}\"\nspaces = 3\nspace_bytes = \"300MiB\"");
    Cluster::start(3, &settings, "").await
}

// An acknowledged entry that is gone, or at another position, or half of an append over two logs, is what a log must never show.
#[test]
fn acknowledged_entries_stay_where_they_are_while_hosts_die() {
    entries_stay_while_hosts_die("mason");
}

// The same where one log orders everything and nobody gives numbers.
#[test]
fn acknowledged_entries_stay_with_one_state_machine() {
    entries_stay_while_hosts_die("paxos");
}

// The same where chains order each space, and nobody orders all: an append over several spaces could be in one alone.
#[test]
fn acknowledged_entries_stay_over_chains() {
    entries_stay_while_hosts_die("fuzzylog");
}

fn entries_stay_while_hosts_die(engine: &'static str) {
    side_by_side(async move {
        let mut cluster = start_with(engine).await;
        let record = Arc::new(Record::default());
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_secs(30));
        for name in NAMES {
            log.create(name, 64 << 20, None).await.expect("a log is made");
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write_on(writer, cluster.endpoints_from(writer), record.clone())))
            .collect();
        until_appended(&record, 200).await;
        for host in 0..3 {
            cluster.kill(host);
            until_appended(&record, 100).await;
            cluster.launch(host);
            cluster.until("the host is back", PATIENCE, |cluster| cluster.is_ready(host)).await;
            until_appended(&record, 100).await;
        }
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        until_appended(&record, 100).await;
        record.stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.expect("a writer does not panic");
        }
        let mut copies = Vec::new();
        for host in 0..3 {
            let log = Log::connect([cluster.hosts[host].native.to_string()]);
            let mut logs = BTreeMap::new();
            for name in NAMES {
                logs.insert(name, all_of(&log, name).await);
            }
            copies.push(logs);
        }
        assert!(copies.windows(2).all(|pair| pair[0] == pair[1]), "hosts hold different logs");
        let logs = &copies[0];
        let appended = record.appended.lock().unwrap_or_else(PoisonError::into_inner);
        println!("log: {} appends answered, {} entries there", appended.len(), logs["orders"].len());
        for (entry, positions) in appended.iter() {
            for (name, at) in positions {
                assert_eq!(logs[name].get(*at as usize), Some(entry), "position {at} of {name}");
            }
        }
        let sets: Vec<BTreeSet<&String>> = NAMES.iter().map(|name| logs[name].iter().collect()).collect();
        for (name, set) in NAMES.iter().zip(&sets) {
            assert_eq!(set.len(), logs[name].len(), "an entry is twice in {name}");
        }
        for entry in sets.iter().flatten() {
            let turn: usize = entry.split('.').nth(1).and_then(|turn| turn.parse().ok()).expect("a turn");
            let wanted = turn % 7 + 1;
            let is_in = |name: usize| sets[name].contains(entry);
            assert!((0..NAMES.len()).all(|name| is_in(name) == (wanted >> name & 1 == 1)), "half of {entry}");
        }
    });
}

async fn ordinate_with(cluster: &Cluster, arguments: &[&str], input: Stdio, output: Stdio) -> Output {
    let mut command = Command::new(ORDINATE);
    let endpoints = cluster.endpoints_from(0).join(",");
    command.args(arguments).env("ORDINATE_ENDPOINTS", endpoints);
    command.stdin(input).stdout(output).stderr(Stdio::piped());
    let ended =
        tokio::task::spawn_blocking(move || command.spawn().and_then(|child| child.wait_with_output()));
    ended.await.expect("it does not panic").expect("the binary under test runs")
}

// A line lost, doubled or out of order in a file that went through the log. `ORDINATE_LINES` sets how many.
#[test]
fn a_file_goes_in_and_comes_out_identical() {
    side_by_side(async {
        let cluster = start().await;
        let (lines, folder) = (number("ORDINATE_LINES", 50_000), cluster.data_of(0));
        let (into, out) = (folder.join("in.txt"), folder.join("out.txt"));
        let mut file = BufWriter::new(File::create(&into).expect("a file"));
        for line in 0..lines {
            let padding = "x".repeat(line * 31 % 150);
            writeln!(file, "{line} {padding}").expect("the file can be written");
        }
        file.into_inner().expect("the file can be written");
        let created = cluster.ordinate(&["log", "create", "file", "--retain-bytes", "256MiB"]).await;
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let began = Instant::now();
        let input = Stdio::from(File::open(&into).expect("the file is there"));
        let appended = ordinate_with(&cluster, &["log", "append", "file"], input, Stdio::piped()).await;
        let said = String::from_utf8_lossy(&appended.stderr).into_owned();
        assert!(appended.status.success() && said.contains(&format!("{lines} entries appended")), "{said}");
        let within = began.elapsed();
        let output = Stdio::from(File::create(&out).expect("a file"));
        let read = ordinate_with(&cluster, &["log", "read", "file"], Stdio::null(), output).await;
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        println!("log: {lines} lines in within {within:?}, out within {:?}", began.elapsed() - within);
        let (into, out) = (std::fs::read(into).expect("the file"), std::fs::read(out).expect("the file"));
        assert!(into == out, "{} bytes went in, {} came out", into.len(), out.len());
    });
}

const MEBIBYTE: u64 = 1 << 20;
/// 64 entries of 4 KiB, less what they cost beside their bytes.
const APPEND_ENTRIES: u64 = 64;

fn entry_at(position: u64) -> Vec<u8> {
    let word = format!("entry {position} ");
    word.bytes().cycle().take(4_088).collect()
}

async fn append_from(log: &Log, first: u64, count: u64) {
    let mut rows = Rows::default();
    (first..first + count).for_each(|position| rows.push(&entry_at(position)));
    assert_eq!(log.append("long", rows).await.expect("an append is answered"), first);
}

/// The one space, as each host sees it.
fn spaces(cluster: &Cluster) -> Vec<serde_json::Value> {
    (0..3).filter_map(|host| Some(cluster.status(host)?["log"]["storage"]["0"].clone())).collect()
}

/// Reads all of the log from one host, and a part of it from each other one.
async fn read_back(cluster: &Cluster, next: u64) {
    for host in 0..3 {
        let log =
            Log::connect([cluster.hosts[host].native.to_string()]).with_timeout(Duration::from_secs(60));
        let mut at = if host == 0 { 0 } else { next * 3 / 4 };
        while at < next {
            let page = log.read("long", at, 1_000, Duration::ZERO).await.expect("it can be read");
            assert!(
                page.first == at && page.tail == next && !page.entries.is_empty(),
                "{at}: {}",
                page.first
            );
            for entry in &page.entries {
                assert!(entry[..] == entry_at(at)[..], "position {at} holds something else");
                at += 1;
            }
        }
    }
}

/// What rots on one host's disk, or is gone, comes back from the others.
async fn rot_and_fetch(cluster: &mut Cluster, next: u64) {
    cluster.kill(0);
    let segments = cluster.data_of(0).join("segments");
    let mut names: Vec<_> = std::fs::read_dir(&segments)
        .expect("the directory is there")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    names.sort();
    let mut bytes = std::fs::read(&names[0]).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&names[0], bytes).expect("our own file");
    std::fs::remove_file(&names[1]).expect("our own file");
    let path = cluster.data_of(0).display().to_string();
    let looked = cluster.ordinate(&["inspect", &path]).await;
    let (reported, said) = (String::from_utf8_lossy(&looked.stdout), String::from_utf8_lossy(&looked.stderr));
    assert!(
        reported.contains("positions 0 to ") || reported.contains("DAMAGED: it is damaged: the checksum"),
        "{reported}"
    );
    assert!(said.starts_with("error[O2110]"), "{said}");
    cluster.launch(0);
    cluster.until("the host is back", PATIENCE, |cluster| cluster.is_ready(0)).await;
    let log = Log::connect([cluster.hosts[0].native.to_string()]).with_timeout(Duration::from_secs(60));
    let mut at = 0;
    while at < 1_024.min(next) {
        let page =
            log.read("long", at, 1_000, Duration::ZERO).await.expect("it is fetched from another host");
        assert!(page.entries.iter().all(|entry| {
            at += 1;
            entry[..] == entry_at(at - 1)[..]
        }));
    }
}

// Memory that grows with a log that nobody reads ends the host; a segment that was let go and is not on the disk, or is read back as
// another's bytes, loses entries. `ORDINATE_LOG_MIB` sets how much is appended.
#[test]
fn a_log_that_nobody_reads_is_on_the_disk_and_reads_back_after_all_hosts_died() {
    side_by_side(async {
        let settings = "[log]\nspaces = 1\nproxies = 1\nspace_bytes = \"2GiB\"\nmemory_bytes = \"32MiB\"\n\
                        [paxos]\nsnapshot_every_bytes = \"8MiB\"";
        let mut cluster = Cluster::start(3, settings, "").await;
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_secs(60));
        log.create("long", 2 << 30, None).await.expect("a log is made");
        let wanted = number("ORDINATE_LOG_MIB", 192) as u64 * MEBIBYTE / 4_096;
        let (mut next, mut halfway) = (0, None);
        let began = Instant::now();
        while next < wanted {
            append_from(&log, next, APPEND_ENTRIES).await;
            next += APPEND_ENTRIES;
            if next >= wanted / 2 && halfway.is_none() {
                halfway = Some([0, 1, 2].map(|host| cluster.resident_bytes(host)));
            }
        }
        let within = began.elapsed();
        for space in spaces(&cluster) {
            let in_memory = space["memory_bytes"].as_u64().expect("a number");
            assert!(in_memory <= 32 * MEBIBYTE && space["cached_bytes"] == 0, "{space}");
            assert!(space["segments"].as_u64() >= Some(next * 4_096 / MEBIBYTE - 32), "{space}");
        }
        let grown: Vec<u64> = (0..3)
            .map(|host| {
                cluster.resident_bytes(host).saturating_sub(halfway.expect("half was appended")[host])
            })
            .map(|bytes| bytes / MEBIBYTE)
            .collect();
        let resident = [0, 1, 2].map(|host| cluster.resident_bytes(host) / MEBIBYTE);
        println!(
            "log: {} MiB appended within {within:?}; resident {resident:?} MiB, {grown:?} more than halfway",
            next >> 8
        );
        let half = next * 4_096 / 2 / MEBIBYTE;
        assert!(grown.iter().all(|&grown| grown < half / 2), "{grown:?} MiB more for {half} MiB appended");
        let status = cluster.ordinate(&["status"]).await;
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        let of_the_log = |line: &str| line.contains("space 0 next") && line.contains("segments ");
        assert!(said.lines().any(of_the_log), "{said}");
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        read_back(&cluster, next).await;
        let loads: Vec<u64> =
            spaces(&cluster).iter().filter_map(|space| space["page_loads"].as_u64()).collect();
        assert!(loads.len() == 3 && loads.iter().all(|&loads| loads > 0), "read from the disk: {loads:?}");
        rot_and_fetch(&mut cluster, next).await;
    });
}

// A dump that lacks something, or a load that appends half of a damaged file, is found out when the log is needed again.
#[test]
fn a_log_is_dumped_and_loaded() {
    side_by_side(async {
        let cluster = start().await;
        let file = cluster.data_of(0).join("orders.dump");
        let path = file.display().to_string();
        let run = async |arguments: &[&str], code: i32| {
            let ran = cluster.ordinate(&[&["log"], arguments].concat()).await;
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {said}");
            format!("{said}{}", String::from_utf8_lossy(&ran.stdout))
        };
        run(&["create", "orders", "--retain", "12h"], 0).await;
        run(&["create", "copy"], 0).await;
        assert!(run(&["stat", "orders"], 0).await.contains("retained for 12h"));
        let log = Log::connect(cluster.endpoints_from(0));
        let mut rows = Rows::default();
        (0..2_500).for_each(|number| rows.push(format!("{number} {}", "x".repeat(number % 300)).as_bytes()));
        log.append("orders", rows).await.expect("it is appended");
        log.trim("orders", 100).await.expect("it is trimmed");
        let said = run(&["dump", "orders", "--out", &path], 0).await;
        assert!(said.contains("2400 entries, positions 100 to 2500"), "{said}");
        assert!(run(&["load", "copy", "--in", &path, "--check"], 0).await.contains("sound"));
        assert_eq!(log.stat("copy").await.expect("it answers").next, 0, "a check appends nothing");
        assert!(run(&["load", "copy", "--in", &path], 0).await.contains("2400 entries appended"));
        let (copy, orders) =
            (all_of(&log, "copy").await, log.read("orders", 100, 10_000, Duration::ZERO).await);
        let orders = orders.expect("it can be read");
        assert!(copy.iter().map(String::as_bytes).eq(orders.entries.iter().map(AsRef::as_ref)));
        let mut damaged = std::fs::read(&file).expect("it is there");
        let at = damaged.len() / 2;
        damaged[at] ^= 1;
        std::fs::write(&file, damaged).expect("it can be written");
        let said = run(&["load", "copy", "--in", &path], 2).await;
        assert!(said.contains("error[O1018]") && said.contains("at byte"), "{said}");
        assert_eq!(
            log.stat("copy").await.expect("it answers").next,
            2_400,
            "nothing of a damaged file is appended"
        );
    });
}

// A call that cannot be served must say so, and how to go on.
#[test]
fn the_log_says_what_is_wrong_and_where_to_resume() {
    side_by_side(async {
        let cluster = start().await;
        let admin = cluster.hosts[1].admin;
        let ask = |method: &str, path: &str, body: &str| {
            http::ask(admin, method, path, body.as_bytes()).expect("it answers")
        };
        assert_eq!(ask("PUT", "/v1/log/web?retain_bytes=1048576", "").code, 201);
        assert_eq!(ask("PUT", "/v1/log/web", "").code, 409);
        assert_eq!(ask("PUT", "/v1/log/large?retain_bytes=999999999", "").code, 507);
        assert_eq!(ask("PUT", "/v1/log/small?retain_bytes=1", "").code, 400);
        let appended = ask("POST", "/v1/log/web/append", "a\nb\n").json();
        assert_eq!((&appended["first"], &appended["count"]), (&0.into(), &2.into()), "{appended}");
        let late = ask("POST", "/v1/log/web/append?expect=1", "c");
        assert_eq!((late.code, &late.json()["tail"]), (409, &2.into()));
        let page = ask("GET", "/v1/log/web?from=1", "").json();
        assert_eq!(page["entries"][0]["text"], "b", "{page}");
        assert_eq!(ask("GET", "/v1/log/web?from=3", "").code, 416);
        assert_eq!(ask("GET", "/v1/log/nosuch", "").code, 404);
        for verb in [["trim", "web", "--before", "1"].as_slice(), &["seal", "web"]] {
            let done = cluster.ordinate(&[&["log"], verb].concat()).await;
            assert!(done.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let gone = ask("GET", "/v1/log/web?from=0", "");
        assert_eq!((gone.code, &gone.json()["resume_from"]), (410, &1.into()));
        assert_eq!(ask("POST", "/v1/log/web/append", "d").code, 409);
        let gone = cluster.ordinate(&["log", "read", "web", "--from", "0"]).await;
        let said = String::from_utf8_lossy(&gone.stderr).into_owned();
        assert!(gone.status.code() == Some(2) && said.contains("error[O1014]"), "{said}");
        let tail = cluster.ordinate(&["log", "tail", "web", "--follow"]).await;
        assert_eq!(String::from_utf8_lossy(&tail.stdout), "b\n", "a sealed log has an end");
        let both = cluster.ordinate(&["log", "multi-append", "web=x", "nosuch=y"]).await;
        assert_eq!(both.status.code(), Some(2));
        let listed = cluster.ordinate(&["log", "list"]).await;
        let said = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(said.starts_with("web   first 1   tail 2   ") && said.contains("sealed"), "{said}");
    });
}

// A benchmark that counts what was never appended, or runs for ever, or leaves its cluster behind.
#[test]
fn the_benchmark_counts_what_is_there() {
    side_by_side(async {
        let cluster = start().await;
        let endpoints = cluster.endpoints_from(0).join(",");
        let mut counted = Vec::new();
        for mix in ["append", "read"] {
            let bench =
                ["bench", "log", "--mix", mix, "--seconds", "2", "--entries", "40000", "--batch", "10"];
            let rest = ["--logs", "3", "--endpoints", &endpoints, "--output", "json"];
            let ran = cluster.ordinate(&[bench.as_slice(), &rest].concat()).await;
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            let found: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("it is json");
            counted.push(found["operations"].as_u64().expect("a count"));
        }
        let log = Log::connect(cluster.endpoints_from(0));
        let there: u64 = log.list("", 10).await.expect("it answers").iter().map(|stat| stat.next).sum();
        println!("bench log: {counted:?} counted, {there} there");
        // What is in flight at the end is not counted; the bound is looked at before every turn of a connection.
        assert!((1..=there).contains(&counted[0]), "{counted:?} of {there}");
        assert!(counted.iter().all(|&count| (1..80_000).contains(&count)), "{counted:?}");
    });
}

/// The events of a stream up to the last one wanted: id, kind and data of each.
pub(super) fn events(
    admin: SocketAddr,
    path: &str,
    last_event_id: Option<&str>,
    until: &str,
) -> Vec<[String; 3]> {
    let mut stream = TcpStream::connect(admin).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let id = last_event_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {admin}\r\n{id}\r\n").expect("it listens");
    let mut events = Vec::new();
    let mut event: [String; 3] = Default::default();
    for line in BufReader::new(stream).lines() {
        let line = line.expect("events are text");
        match line.split_once(": ") {
            Some(("id", id)) => event[0] = id.to_owned(),
            Some(("event", kind)) => event[1] = kind.to_owned(),
            Some(("data", data)) => event[2] = data.to_owned(),
            None if line.is_empty() && !event[2].is_empty() => {
                let is_last = event.iter().any(|part| part.contains(until));
                events.push(std::mem::take(&mut event));
                if is_last {
                    break;
                }
            }
            _ => {}
        }
    }
    events
}

// A browser that comes back and misses an entry, or sees one twice; one that never learns that there is no more.
#[test]
fn a_log_is_followed_over_http() {
    side_by_side(async {
        let cluster = start().await;
        let admin = cluster.hosts[0].admin;
        let ask = |method: &str, path: &str, body: &str| {
            http::ask(admin, method, path, body.as_bytes()).expect("it answers").code
        };
        assert_eq!(ask("GET", "/v1/log/news/tail", ""), 404);
        assert_eq!(ask("PUT", "/v1/log/news", ""), 201);
        assert_eq!(ask("POST", "/v1/log/news/append", "a\nb"), 200);
        let follows = |path: &'static str, last: Option<&'static str>, until: &'static str| {
            tokio::task::spawn_blocking(move || events(admin, path, last, until))
        };
        let first = follows("/v1/log/news/tail?from=0", None, "\"c\"");
        let tail = follows("/v1/log/news/tail", None, "sealed");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(ask("POST", "/v1/log/news/append", "c\n\"q"), 200);
        let entry = |position: u64, text: &str| {
            let data = serde_json::json!({ "position": position, "text": text }).to_string();
            [position.to_string(), String::new(), data]
        };
        assert_eq!(first.await.expect("it ends"), [entry(0, "a"), entry(1, "b"), entry(2, "c")]);
        let again = follows("/v1/log/news/tail?from=0", Some("1"), "sealed");
        let done = cluster.ordinate(&["log", "seal", "news"]).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let sealed = [String::new(), "sealed".to_owned(), "{\"tail\":4}".to_owned()];
        let rest = [entry(2, "c"), entry(3, "\"q"), sealed];
        assert_eq!(again.await.expect("it ends"), rest);
        assert_eq!(tail.await.expect("it ends"), rest);
        let over = follows("/v1/log/news/tail", Some("3"), "sealed").await.expect("it ends");
        assert!(over.is_empty(), "who has seen all is not notified again: {over:?}");
        let done = cluster.ordinate(&["log", "trim", "news", "--before", "3"]).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let gone = follows("/v1/log/news/tail?from=1", None, "trimmed").await.expect("it ends");
        assert_eq!(gone, [["2".to_owned(), "trimmed".to_owned(), "{\"resume_from\":3}".to_owned()]]);
        assert_eq!(
            follows("/v1/log/news/tail", Some("2"), "sealed").await.expect("it ends")[..1],
            rest[1..2]
        );
    });
}
