//! Maps that hosts serve: each kind is what it says, and has all that was acknowledged, while hosts die one after the other and its log is
//! trimmed.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use consistency::history::{Draft, History};
use consistency::{Model, Process, Time, Verdict, check, operation_line};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[fuzzylog]\npartitions = 3\nmap_log_bytes = \"4KiB\"\n";
/// A worker of each kind at each host.
const WORKERS: usize = 3;
/// Keys that all workers of a kind read and write.
const KEYS: usize = 5;
/// Keys that one worker alone writes.
const OWN_KEYS: usize = 8;
/// Makes its log grow.
const PADDING: usize = 200;

const KINDS: [(&str, Model); 6] = [
    ("log", Model::Linearizable),
    ("sharded", Model::Linearizable),
    ("atomic", Model::ProcessOrderedSerializable),
    ("tx", Model::StrictSerializable),
    ("crdt", Model::CausalPlus),
    ("tx-crdt", Model::CausalPlus),
];

/// What workers share.
struct Stage {
    hosts: Vec<SocketAddr>,
    stop: AtomicBool,
    clock: AtomicU64,
    values: AtomicU64,
    /// By kinds.
    drafts: [Mutex<Vec<Draft>>; KINDS.len()],
    turns: [AtomicU64; KINDS.len() * WORKERS],
}

/// What came of a call.
enum Outcome {
    Done(u16, Value),
    /// It may have been done.
    Unknown,
}

struct Worker {
    stage: Arc<Stage>,
    kind: usize,
    number: usize,
    at: usize,
    /// Another one after each call whose outcome is not known: it does not know what it has done.
    process: u64,
    seen: Option<String>,
    /// It names its changes, so many by now, and sends them again until they are answered.
    named: Option<u64>,
    /// It was at another host before, which it must say at one that asks nobody.
    has_moved: bool,
    /// What its own keys may hold: what was acknowledged last, and what is not known since.
    own: BTreeMap<String, BTreeSet<String>>,
}

fn kind_of(worker: &Worker) -> &'static str {
    KINDS[worker.kind].0
}

impl Worker {
    fn now(&self) -> Time {
        Time(self.stage.clock.fetch_add(1, Ordering::SeqCst))
    }

    fn value(&self) -> String {
        format!("v{}", self.stage.values.fetch_add(1, Ordering::SeqCst))
    }

    /// Asks one host after the other, until one has done it, or may have.
    fn call(&mut self, method: &str, path: &str, body: &Value) -> Outcome {
        let (deadline, writes) = (Instant::now() + PATIENCE, method != "GET" && !path.ends_with("/get"));
        let mut body = body.clone();
        self.named = self.named.map(|number| number + u64::from(writes));
        let name = self.named.filter(|_| writes).map(|number| {
            let id = format!("{:x}", 1 + self.kind * WORKERS + self.number);
            json!({ "id": id, "number": number, "below": number })
        });
        loop {
            assert!(
                Instant::now() < deadline,
                "{} {} is not answered for a minute",
                kind_of(self),
                self.number
            );
            let host = self.stage.hosts[self.at % self.stage.hosts.len()];
            let seen = self.seen.clone().filter(|_| self.has_moved || !kind_of(self).ends_with("crdt"));
            let mut path = path.to_owned();
            let bytes = match (&seen, path.contains("/keys/")) {
                (Some(seen), true) => {
                    path += &format!("?seen={seen}");
                    body.as_str().unwrap_or_default().as_bytes().to_vec()
                }
                (None, true) => body.as_str().unwrap_or_default().as_bytes().to_vec(),
                (_, false) => {
                    body["seen"] = json!(seen);
                    if let Some(name) = &name {
                        body["client"] = name.clone();
                    }
                    body.to_string().into_bytes()
                }
            };
            if let (Some(name), true) = (&name, path.contains("/keys/")) {
                let (id, number) = (name["id"].as_str().expect("a client"), &name["number"]);
                let first = if path.contains('?') { '&' } else { '?' };
                path += &format!("{first}client={id}&number={number}&below={number}");
            }
            // Who is not there was not asked.
            let answer = match TcpStream::connect_timeout(&host, Duration::from_secs(1)) {
                Ok(_) => Some(http::ask(host, method, &path, &bytes)),
                Err(_) => None,
            };
            match answer.map(|answer| answer.map(|it| (it.code, it))) {
                Some(Some((code @ (200 | 404 | 409), answer))) => {
                    let answer = answer.json();
                    assert!(answer["seen"].is_string(), "{method} {path}: {code} {answer}");
                    self.seen = answer["seen"].as_str().map(str::to_owned);
                    self.has_moved = false;
                    return Outcome::Done(code, answer);
                }
                Some(Some((code @ (503 | 504), answer))) => {
                    if writes && name.is_none() && answer.json()["executed"] != false {
                        self.moves();
                        return Outcome::Unknown;
                    }
                    assert!(code == 503 || !writes || name.is_some(), "{}", answer.text());
                }
                Some(Some((code, answer))) => panic!("{method} {path}: {code} {}", answer.text()),
                Some(None) if writes && name.is_none() => {
                    self.moves();
                    return Outcome::Unknown;
                }
                Some(None) | None => {}
            }
            self.moves();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn moves(&mut self) {
        self.at += 1;
        self.has_moved = true;
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/map/{}{rest}", kind_of(self))
    }

    fn read(&mut self, key: usize) -> (Option<String>, u64) {
        match self.call("GET", &self.path(&format!("/keys/k{key}")), &json!("")) {
            Outcome::Done(200, answer) => (Some(text(&answer)), answer["version"].as_u64().unwrap_or(0)),
            Outcome::Done(404, _) => (None, 0),
            _ => panic!("a read is sent again until it is answered"),
        }
    }

    /// Takes a call into the history; one that has written without an answer is its process' last.
    fn record(
        &mut self,
        begun: Time,
        reads: &[(usize, Option<String>)],
        writes: &[(usize, String)],
        is_known: bool,
    ) {
        let mut draft = Draft::new(Process(self.process), begun, self.now());
        for (key, value) in reads {
            draft = match value {
                Some(value) => draft.read(format!("k{key}"), value.clone()),
                None => draft.read_nothing(format!("k{key}")),
            };
        }
        for (key, value) in writes {
            draft = draft.write(format!("k{key}"), value.clone());
        }
        if !is_known {
            draft = draft.unknown();
            self.process += (KINDS.len() * WORKERS) as u64;
        }
        self.stage.drafts[self.kind].lock().unwrap_or_else(PoisonError::into_inner).push(draft);
    }

    fn put(&mut self, key: usize) {
        let (begun, value) = (self.now(), self.value());
        let outcome = self.call("PUT", &self.path(&format!("/keys/k{key}")), &json!(value));
        self.record(begun, &[], &[(key, value)], matches!(outcome, Outcome::Done(200, _)));
    }

    fn get(&mut self, key: usize) {
        let begun = self.now();
        let (value, _) = self.read(key);
        self.record(begun, &[(key, value)], &[], true);
    }

    fn put_both(&mut self, keys: [usize; 2]) {
        let begun = self.now();
        let writes = keys.map(|key| (key, self.value()));
        let puts: serde_json::Map<String, Value> =
            writes.iter().map(|(key, value)| (format!("k{key}"), json!(value))).collect();
        let outcome = self.call("POST", &self.path("/put"), &json!({ "puts": puts }));
        self.record(begun, &[], &writes, matches!(outcome, Outcome::Done(200, _)));
    }

    fn get_both(&mut self, keys: [usize; 2]) {
        let begun = self.now();
        let names = keys.map(|key| format!("k{key}"));
        let Outcome::Done(200, answer) = self.call("POST", &self.path("/get"), &json!({ "keys": names }))
        else {
            panic!("a read is sent again until it is answered");
        };
        let entries = answer["entries"].as_array().expect("entries");
        let value = |entry: &Value| (!entry["value"].is_null()).then(|| text(entry));
        let reads: Vec<_> = keys.into_iter().zip(entries.iter().map(value)).collect();
        self.record(begun, &reads, &[], true);
    }

    /// Reads two keys and writes the first.
    fn transact(&mut self, keys: [usize; 2]) {
        let begun = self.now();
        let read = keys.map(|key| (key, self.read(key)));
        let value = self.value();
        let versions: serde_json::Map<String, Value> =
            read.iter().map(|(key, (_, version))| (format!("k{key}"), json!(version))).collect();
        let puts = json!({ format!("k{}", keys[0]): value });
        let body = json!({ "reads": versions, "puts": puts });
        let outcome = self.call("POST", &self.path("/transaction"), &body);
        let reads = read.map(|(key, (value, _))| (key, value));
        match outcome {
            Outcome::Done(200, _) => self.record(begun, &reads, &[(keys[0], value)], true),
            Outcome::Done(_, answer) => assert_eq!(answer["executed"], false, "{answer}"),
            Outcome::Unknown => self.record(begun, &reads, &[(keys[0], value)], false),
        }
    }

    /// Puts a key that nobody else writes.
    fn put_own(&mut self, turn: usize) {
        let key = format!("own-{}-{}", self.number, turn % OWN_KEYS);
        let value = format!("{} {}", self.value(), "x".repeat(PADDING));
        let outcome = self.call("PUT", &self.path(&format!("/keys/{key}")), &json!(value));
        let own = self.own.entry(key).or_default();
        if matches!(outcome, Outcome::Done(200, _)) {
            own.clear();
        }
        own.insert(value);
    }

    fn work(mut self) -> BTreeMap<String, BTreeSet<String>> {
        let slot = self.kind * WORKERS + self.number;
        for turn in 0.. {
            if self.stage.stop.load(Ordering::Relaxed) {
                break;
            }
            let one = (turn * 7 + self.number * 3) % KEYS;
            let keys = [one, (one + 1 + turn % (KEYS - 1)) % KEYS];
            match (kind_of(&self), turn % 2) {
                ("atomic" | "tx-crdt", 0) => self.put_both(keys),
                ("tx", 0) => self.transact(keys),
                (_, 0) => self.put(one),
                ("atomic" | "tx" | "tx-crdt", _) if turn % 4 == 1 => self.get_both(keys),
                _ => self.get(one),
            }
            self.put_own(turn);
            self.stage.turns[slot].fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(30));
        }
        self.own
    }
}

fn text(entry: &Value) -> String {
    entry["value"].as_str().expect("text").to_owned()
}

/// Waits until every worker has made so many turns more.
async fn until_worked(stage: &Stage, more: u64) {
    let now = || stage.turns.iter().map(|it| it.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let (before, deadline) = (now(), Instant::now() + PATIENCE);
    while now().iter().zip(&before).any(|(now, before)| *now < before + more) {
        assert!(Instant::now() < deadline, "some worker stands still: {before:?} {:?}", now());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn decide(kind: &str, drafts: Vec<Draft>, model: Model) {
    let (mut recorded, count) = (History::new(), drafts.len());
    drafts.into_iter().for_each(|draft| {
        recorded.add(draft);
    });
    match check(&recorded, model) {
        Ok(Verdict::Holds) => println!("{kind}: {count} calls are {}", model.name()),
        Ok(Verdict::Violated(witness)) => {
            let lines: Vec<String> =
                witness.operations.iter().map(|it| operation_line(&recorded, *it)).collect();
            panic!("{kind}: {}\n{}", witness.summary, lines.join("\n"));
        }
        Ok(Verdict::Undecided(why)) => panic!("{kind}: undecided, {why}"),
        Err(error) => panic!("{kind}: {error}"),
    }
}

/// Every worker's own keys hold what was acknowledged last, or what is not known since.
fn judge_own(host: SocketAddr, kind: &str, own: &BTreeMap<String, BTreeSet<String>>) {
    for (key, values) in own {
        let path = format!("/v1/map/{kind}/keys/{key}");
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            match http::ask(host, "GET", &path, b"") {
                Some(answer) if answer.code == 200 => break answer.json(),
                other => assert!(Instant::now() < deadline, "{path}: {other:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(values.contains(&text(&answer)), "{path}: {answer}, and not of {values:?}");
    }
}

/// How many of a map's nodes were trimmed.
fn trimmed(host: SocketAddr, kind: &str) -> u64 {
    let of_colour = |at: usize| {
        let path = format!("/v1/fuzzylog/colours/{kind}.{at}?from=0");
        let answer = http::ask(host, "GET", &path, b"").expect("an answer");
        if answer.code == 410 { answer.json()["first"].as_u64().expect("a position") } else { 0 }
    };
    (0..3).map(of_colour).sum()
}

// A map that a host rebuilds from a trimmed log lacks what was acknowledged, or shows it in another order than the other hosts.
#[test]
fn maps_that_hosts_serve_are_what_they_say_while_hosts_die() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        for (kind, _) in KINDS {
            let shards = if ["log", "crdt"].contains(&kind) { 1 } else { 3 };
            let body = json!({ "kind": kind, "shards": shards }).to_string();
            let made = http::ask(hosts[0], "PUT", &format!("/v1/map/{kind}"), body.as_bytes());
            assert_eq!(made.expect("an answer").code, 200, "{kind}");
        }
        let stage = Arc::new(Stage {
            hosts: hosts.clone(),
            stop: AtomicBool::new(false),
            clock: AtomicU64::new(0),
            values: AtomicU64::new(0),
            drafts: Default::default(),
            turns: Default::default(),
        });
        let mut workers = Vec::new();
        for (kind, number) in (0..KINDS.len()).flat_map(|kind| (0..WORKERS).map(move |it| (kind, it))) {
            let (stage, process) = (Arc::clone(&stage), (kind * WORKERS + number) as u64);
            let (seen, has_moved, own) = (None, false, BTreeMap::new());
            let named = (number % 2 == 1).then_some(0);
            let worker = Worker { stage, kind, number, at: number, process, seen, named, has_moved, own };
            workers.push((kind, std::thread::spawn(move || worker.work())));
        }
        // Who comes back finds logs without their beginnings.
        let deadline = Instant::now() + PATIENCE;
        while let Some((kind, _)) = KINDS.iter().find(|(kind, _)| trimmed(hosts[0], kind) == 0) {
            assert!(Instant::now() < deadline, "the log of {kind} is not trimmed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for host in 0..3 {
            until_worked(&stage, 4).await;
            cluster.kill(host);
            until_worked(&stage, 4).await;
            cluster.launch(host);
            cluster.until_ready().await;
        }
        until_worked(&stage, 4).await;
        stage.stop.store(true, Ordering::Relaxed);
        let mut own: [BTreeMap<String, BTreeSet<String>>; KINDS.len()] = Default::default();
        for (kind, worker) in workers {
            own[kind].extend(worker.join().expect("the worker ends"));
        }
        for (((kind, model), drafts), own) in KINDS.into_iter().zip(&stage.drafts).zip(&own) {
            decide(kind, std::mem::take(&mut drafts.lock().unwrap_or_else(PoisonError::into_inner)), model);
            hosts.iter().for_each(|host| judge_own(*host, kind, own));
        }
        (0..3).for_each(|host| cluster.kill(host));
        cluster.launch_all();
        cluster.until_ready().await;
        for ((kind, _), own) in KINDS.into_iter().zip(&own) {
            hosts.iter().for_each(|host| judge_own(*host, kind, own));
        }
    });
}
