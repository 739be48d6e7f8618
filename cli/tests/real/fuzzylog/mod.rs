//! The partially ordered log while hosts die: what was acknowledged is there once, in all its colours, and in one order.

mod client;
mod map_calls;
mod map_removal;
mod map_scans;
mod maps;
mod members;
mod moving;
mod region_changes;
mod region_maps;
mod regions;
mod served_maps;
mod strict;

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[fuzzylog]\npartitions = 3\n";
const COLOURS: [&str; 4] = ["red", "blue", "green", "black"];
const WRITERS: u64 = 4;

fn post(address: SocketAddr, path: &str, body: &Value) -> Option<(u16, Value)> {
    let answer = http::ask(address, "POST", path, body.to_string().as_bytes())?;
    Some((answer.code, answer.json()))
}

/// All nodes of a colour, from its first.
fn nodes_of(address: SocketAddr, colour: &str, from: u64) -> Vec<Value> {
    let (mut from, mut nodes) = (from, Vec::new());
    loop {
        let answer = http::ask(address, "GET", &format!("/v1/fuzzylog/colours/{colour}?from={from}"), b"");
        let page = answer.expect("an answer").json();
        nodes.extend(page["nodes"].as_array().expect("nodes").iter().cloned());
        from = page["next"].as_u64().expect("a position");
        if Some(from) >= page["tail"].as_u64() {
            return nodes;
        }
    }
}

#[derive(Default)]
struct Record {
    stop: AtomicBool,
    /// What was acknowledged: the body, and where it is.
    appended: Mutex<Vec<(String, Value)>>,
    /// Whom to ask.
    hosts: Mutex<Vec<SocketAddr>>,
    /// How long each append took, with everything that was sent again.
    calls: Mutex<Vec<Duration>>,
}

/// Appends until stopped, now to one colour, now to several; what has no answer is sent again, under its number, to the next host.
fn write(writer: u64, record: &Record) {
    let (mut number, mut host, mut seen) = (0, writer as usize, None);
    while !record.stop.load(Ordering::Relaxed) {
        number += 1;
        let bits = 1 + (number + writer) % 15;
        let colours: Vec<&str> = (0..4).filter(|at| bits >> at & 1 == 1).map(|at| COLOURS[at]).collect();
        let body = format!("{writer}-{number}");
        let client = json!({ "id": format!("{:x}", writer + 1), "number": number, "below": number });
        let mut call = json!({ "colours": colours, "body": body, "client": client });
        if let Some(seen) = &seen {
            call["seen"] = json!(seen);
        }
        let begun = Instant::now();
        let deadline = begun + PATIENCE;
        let positions = loop {
            let asked = {
                let hosts = record.hosts.lock().unwrap_or_else(PoisonError::into_inner);
                hosts[host % hosts.len()]
            };
            match post(asked, "/v1/fuzzylog/append", &call) {
                Some((200, answer)) => {
                    seen = answer["seen"].as_str().map(str::to_owned);
                    break answer["positions"].clone();
                }
                Some((503 | 504, _)) | None => host += 1,
                Some((code, answer)) => panic!("{code} {answer}"),
            }
            assert!(Instant::now() < deadline, "writer {writer} is not answered for a minute");
        };
        record.calls.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed());
        record.appended.lock().unwrap_or_else(PoisonError::into_inner).push((body, positions));
    }
}

async fn until_appended(record: &Record, more: usize) {
    let count = || record.appended.lock().unwrap_or_else(PoisonError::into_inner).len();
    let (wanted, deadline) = (count() + more, Instant::now() + PATIENCE);
    while count() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} appends in a minute", count());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Every acknowledged append is at its positions and nowhere else, and nodes that two colours share have one order in both.
fn judge(address: SocketAddr, appended: &[(String, Value)]) {
    let mut found: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let mut times: BTreeMap<String, String> = BTreeMap::new();
    for colour in COLOURS {
        let nodes = nodes_of(address, colour, 0);
        for (position, node) in (0..).zip(&nodes) {
            assert_eq!(node["position"], position, "{colour} has a hole");
            let body = node["body"].as_str().expect("text").to_owned();
            let before = found.entry(body.clone()).or_default().insert(colour.to_owned(), position);
            assert_eq!(before, None, "{body} is in {colour} twice");
            let at = node["at"].as_str().expect("a time").to_owned();
            let other = times.insert(body.clone(), at.clone());
            assert!(other.as_ref().is_none_or(|other| *other == at), "{body} has two times");
        }
    }
    for (body, positions) in appended {
        let expected: BTreeMap<String, u64> =
            serde_json::from_value(positions.clone()).expect("positions by colour");
        assert_eq!(found.get(body), Some(&expected), "{body}");
    }
    for one in COLOURS {
        for other in COLOURS {
            let mut shared: Vec<(u64, u64)> =
                found.values().filter_map(|placed| Some((*placed.get(one)?, *placed.get(other)?))).collect();
            shared.sort_unstable();
            assert!(shared.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{one} and {other} disagree");
        }
    }
}

// A host that dies takes an acknowledged node with it, leaves half of one, or has a retry appended twice.
#[test]
fn appends_are_there_once_and_whole_while_hosts_die() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let record = Arc::new(Record { hosts: Mutex::new(hosts.clone()), ..Record::default() });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let record = Arc::clone(&record);
                std::thread::spawn(move || write(writer, &record))
            })
            .collect();
        until_appended(&record, 50).await;
        for host in 0..3 {
            cluster.kill(host);
            until_appended(&record, 30).await;
            cluster.launch(host);
            cluster.until_ready().await;
            until_appended(&record, 30).await;
        }
        (0..3).for_each(|host| cluster.kill(host));
        cluster.launch_all();
        until_appended(&record, 30).await;
        record.stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        let appended = std::mem::take(&mut *record.appended.lock().unwrap_or_else(PoisonError::into_inner));
        for address in &hosts {
            judge(*address, &appended);
        }
        println!("fuzzylog: {} appends, each there once", appended.len());
    });
}

// Each wrong call is refused in so many words, and nobody is disturbed.
#[test]
fn calls_of_the_partially_ordered_log() {
    side_by_side(async {
        let settings = format!("{SETTINGS}partition_bytes = \"2MiB\"\n");
        let cluster = Cluster::start(1, &settings, "").await;
        let address = cluster.hosts[0].admin;
        let append = |body: Value| post(address, "/v1/fuzzylog/append", &body).expect("an answer");
        let (_, first) = append(
            json!({ "colours": ["red", "blue"], "bodies": { "red": "r", "blue": { "base64": "/w==" } } }),
        );
        assert_eq!(first["positions"], json!({ "red": 0, "blue": 0 }));
        assert_eq!(nodes_of(address, "blue", 0)[0]["body_base64"], "/w==");
        assert_eq!(nodes_of(address, "red", 0)[0]["body"], "r");
        let client = |number: u64| json!({ "id": "c1", "number": number, "below": 1 });
        let once = json!({ "colours": ["red"], "body": "once", "client": client(1) });
        assert_eq!(append(once.clone()), append(once));
        let (code, answer) = append(json!({ "colours": ["red"], "body": "other", "client": client(1) }));
        assert_eq!((code, &answer["executed"]), (409, &json!(false)), "{answer}");
        let large = "x".repeat((1 << 20) + 1);
        for (body, why) in [
            (json!({ "colours": [], "body": "x" }), "names no colour"),
            (json!({ "colours": ["a", "a"], "body": "x" }), "named twice"),
            (json!({ "colours": ["a,b"], "body": "x" }), "is no colour"),
            (json!({ "colours": ["a"] }), "either body"),
            (json!({ "colours": ["a", "b"], "bodies": { "a": "x" } }), "none for b"),
            (json!({ "colours": ["a"], "bodies": { "a": "x", "b": "x" } }), "none of the colours"),
            (json!({ "colours": ["a"], "body": "x", "seen": "soon" }), "no time"),
            (
                json!({ "colours": ["a"], "body": "x", "client": { "id": "red", "number": 1, "below": 1 } }),
                "no client",
            ),
            (
                json!({ "colours": ["a"], "body": "x", "client": { "id": "a", "number": 1, "below": 2 } }),
                "below client.below",
            ),
            (
                json!({ "colours": (0..65).map(|it| it.to_string()).collect::<Vec<_>>(), "body": "x" }),
                "more than 64",
            ),
            (json!({ "colours": ["a"], "body": large }), "more than 1 MiB"),
            (json!({ "colours": ["a"], "body": "x", "color": "a" }), "unknown field"),
        ] {
            let (code, answer) = append(body);
            assert_eq!((code, &answer["executed"]), (400, &json!(false)), "{answer}");
            assert!(answer["error"].as_str().is_some_and(|it| it.contains(why)), "{answer}: not {why}");
        }
        let snapshot = post(address, "/v1/fuzzylog/snapshot", &json!({ "colours": ["red", "blue", "none"] }));
        assert_eq!(snapshot.expect("an answer").1["tails"], json!({ "red": 2, "blue": 1, "none": 0 }));
        let trim = |before: u64| {
            post(address, "/v1/fuzzylog/colours/red/trim", &json!({ "before": before })).expect("an answer")
        };
        assert_eq!(trim(1), (200, json!({ "first": 1 })));
        assert_eq!(trim(9).0, 416);
        let gone = http::ask(address, "GET", "/v1/fuzzylog/colours/red?from=0", b"").expect("an answer");
        assert_eq!((gone.code, &gone.json()["first"]), (410, &json!(1)));
        let ahead = http::ask(address, "GET", "/v1/fuzzylog/colours/red?from=99", b"").expect("an answer");
        assert_eq!((ahead.code, &ahead.json()["tail"]), (416, &json!(2)));
        let body = "x".repeat(100_000);
        let full = (0..40).find_map(|_| {
            let (code, answer) = append(json!({ "colours": ["red"], "body": body }));
            (code != 200).then_some((code, answer))
        });
        let (code, answer) = full.expect("a partition has a bound");
        assert_eq!((code, &answer["retry"]), (507, &json!(false)), "{answer}");
        let left = nodes_of(address, "red", 1).len() as u64;
        assert!(left > 0, "what is there is read");
        assert_eq!(trim(1 + left), (200, json!({ "first": 1 + left })));
        let (code, answer) = append(json!({ "colours": ["red"], "body": body }));
        assert_eq!(code, 200, "{answer}: what is trimmed makes room");
    });
}

/// The figures of the host's servers of all partitions, summed.
fn figure(address: SocketAddr, name: &str) -> u64 {
    let status = http::ask(address, "GET", "/v1/status", b"").expect("an answer").json();
    let partitions = status["fuzzylog"]["partitions"].as_object().expect("servers of partitions");
    partitions.values().map(|it| it[name].as_u64().expect("a number")).sum()
}

// A log whose users trim it must not fill memory and disks, nor lose with a restart what is not trimmed.
#[test]
fn what_is_trimmed_leaves_memory_and_journals() {
    side_by_side(async {
        let settings = "[fuzzylog]\npartitions = 1\npartition_bytes = \"4MiB\"\nsnapshot_bytes = \"1MiB\"\n";
        let mut cluster = Cluster::start(3, settings, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let call = |host: usize, path: &str, body: &Value| {
            let deadline = Instant::now() + PATIENCE;
            loop {
                match post(hosts[host], path, body) {
                    Some((200, answer)) => return answer,
                    other => assert!(Instant::now() < deadline, "{path}: {other:?}"),
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        let rounds = 16;
        let append = |number: u64| {
            let body = format!("{number}-{}", "x".repeat(1_000_000));
            let client = json!({ "id": "c1", "number": number, "below": number });
            let body = &body[..1_000_000];
            let colours = ["red"];
            call(0, "/v1/fuzzylog/append", &json!({ "colours": colours, "body": body, "client": client }))
        };
        for number in 1..=rounds {
            append(number);
            call(0, "/v1/fuzzylog/colours/red/trim", &json!({ "before": number - 1 }));
        }
        cluster.kill(2);
        append(rounds + 1);
        cluster.launch(2);
        cluster.until_ready().await;
        (0..3).for_each(|host| cluster.kill(host));
        cluster.launch_all();
        cluster.until_ready().await;
        append(rounds + 2);
        for &address in &hosts {
            let nodes = nodes_of(address, "red", rounds - 1);
            let numbers: Vec<&str> =
                nodes.iter().filter_map(|it| it["body"].as_str()?.split('-').next()).collect();
            assert_eq!(numbers, [rounds, rounds + 1, rounds + 2].map(|it| it.to_string()));
            let gone = http::ask(address, "GET", "/v1/fuzzylog/colours/red?from=0", b"").expect("an answer");
            assert_eq!((gone.code, &gone.json()["first"]), (410, &json!(rounds - 1)));
            assert!(figure(address, "snapshot_commands") > 0);
            let live = figure(address, "live_bytes");
            assert!(live < 4 << 20 && figure(address, "journal_bytes") <= 2 * live + (3 << 20));
        }
    });
}

// A colour that is not listed is forgotten by who looks after them; one that is listed twice is counted twice.
#[test]
fn colours_are_listed_page_by_page() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        let mut expected = BTreeMap::new();
        for number in 0..20_u64 {
            let colour = format!("colour {number}");
            for _ in 0..=number % 3 {
                let (code, _) =
                    post(address, "/v1/fuzzylog/append", &json!({ "colours": [colour], "body": "x" }))
                        .expect("an answer");
                assert_eq!(code, 200);
            }
            expected.insert(colour, json!([0, 1 + number % 3]));
        }
        let trim = json!({ "before": 1 });
        post(address, "/v1/fuzzylog/colours/colour%203/trim", &trim).expect("an answer");
        expected.remove("colour 3");
        post(address, "/v1/fuzzylog/colours/colour%204/trim", &trim).expect("an answer");
        expected.insert("colour 4".to_owned(), json!([1, 2]));
        let (mut listed, mut trimmed) = (BTreeMap::new(), 0);
        for partition in 0..3 {
            let mut from = String::new();
            loop {
                let path = format!("/v1/fuzzylog/colours?partition={partition}&limit=2{from}");
                let page = http::ask(address, "GET", &path, b"").expect("an answer").json();
                let colours = page["colours"].as_array().expect("colours");
                assert!(colours.len() <= 2, "{page}");
                for it in colours {
                    match it["colour"].as_str() {
                        Some(name) => {
                            let before = listed.insert(name.to_owned(), json!([it["first"], it["tail"]]));
                            assert_eq!(before, None, "{name} twice");
                        }
                        None => {
                            assert_eq!((&it["first"], &it["tail"]), (&json!(1), &json!(1)), "{it}");
                            trimmed += 1;
                        }
                    }
                }
                let Some(next) = page["next"].as_str() else { break };
                from = format!("&from={next}");
            }
        }
        assert_eq!((listed, trimmed), (expected, 1));
    });
}
