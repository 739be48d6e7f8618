//! Scans of maps that hosts serve: page by page, over several hosts, also when a host has died.

use super::map_calls::{ask, create, refused, run};
use crate::support::cluster::Cluster;
use crate::support::{http, side_by_side};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

const SETTINGS: &str = "[fuzzylog]\npartitions = 2\nmap_log_bytes = \"4KiB\"\n";
const KINDS: [&str; 6] = ["log", "sharded", "atomic", "tx", "crdt", "tx-crdt"];
const KEYS: usize = 60;

/// All that a scan has, each page from the next host.
fn scanned(hosts: &[SocketAddr], kind: &str, query: &str, seen: &str) -> BTreeMap<String, Value> {
    let (mut found, mut next, mut seen) = (BTreeMap::new(), String::new(), seen.to_owned());
    for host in hosts.iter().cycle() {
        let path = format!("/v1/map/{kind}/keys?{query}&seen={seen}{next}");
        let (code, page) = ask(*host, "GET", &path, "");
        assert_eq!(code, 200, "{path}: {page}");
        for entry in page["entries"].as_array().expect("entries") {
            let key = entry["key"].as_str().expect("text").to_owned();
            assert_eq!(entry["version"].is_u64(), kind == "tx", "{entry}");
            assert_eq!(found.insert(key, entry["value"].clone()), None, "{entry} is there twice");
        }
        seen = page["seen"].as_str().expect("a time").to_owned();
        match page["next"].as_str() {
            Some(point) => next = format!("&next={point}"),
            None => break,
        }
    }
    found
}

// A scan that misses what was put, or has what was deleted; one that another host cannot go on with, or that is another one after a restart.
#[test]
fn scans_have_what_was_put_page_by_page_at_any_host() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let (mut wanted, mut seens) = (BTreeMap::new(), BTreeMap::new());
        for kind in KINDS {
            assert_eq!(create(hosts[0], kind, kind, None).0, 200);
            let mut seen = String::new();
            let mut change = |host: usize, method: &str, key: &str, value: &str| {
                let query = if seen.is_empty() { String::new() } else { format!("?seen={seen}") };
                let path = format!("/v1/map/{kind}/keys/{key}{query}");
                let (code, answer) = ask(hosts[host], method, &path, value);
                assert_eq!(code, 200, "{path}: {answer}");
                seen = answer["seen"].as_str().expect("a time").to_owned();
            };
            for at in 0..KEYS {
                let key = format!("{}/{at:02}", ["a", "b", "ab"][at % 3]);
                change(at % 3, "PUT", &key, &format!("{kind} {key}"));
                wanted.insert(key.clone(), ());
            }
            change(1, "DELETE", "a/00", "");
            wanted.remove("a/00");
            seens.insert(kind, seen);
        }
        let check = |hosts: &[SocketAddr]| {
            for kind in KINDS {
                for (query, prefix, from, to) in [
                    ("limit=7", "", "", "~"),
                    ("prefix=a%2F&limit=3", "a/", "", "~"),
                    ("from=ab%2F10&to=b%2F40&limit=1000", "", "ab/10", "b/40"),
                ] {
                    let is_wanted =
                        |key: &&String| key.starts_with(prefix) && key.as_str() >= from && key.as_str() < to;
                    let expected: BTreeMap<String, Value> = wanted
                        .keys()
                        .filter(is_wanted)
                        .map(|key| (key.clone(), json!(format!("{kind} {key}"))))
                        .collect();
                    assert!(expected.len() > 10, "{query}");
                    assert_eq!(scanned(hosts, kind, query, &seens[kind]), expected, "{kind} {query}");
                }
            }
        };
        check(&hosts);
        cluster.kill(0);
        check(&hosts[1..]);
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        check(&hosts);
    });
}

// What makes no sense is taken for something else; a point that was forged leaves out keys; a large map is one answer.
#[test]
fn wrong_scans_are_refused_and_pages_are_bounded() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        let scan = |map: &str, query: &str| ask(address, "GET", &format!("/v1/map/{map}/keys?{query}"), "");
        refused(scan("m", ""), 404, "no map m");
        assert_eq!(create(address, "m", "sharded", Some(3)).0, 200);
        assert_eq!(create(address, "n", "sharded", Some(3)).0, 200);
        let (code, none) = scan("m", "");
        assert_eq!((code, &none["entries"], &none["next"]), (200, &json!([]), &Value::Null), "{none}");
        for key in 0..30 {
            let path = format!("/v1/map/m/keys/k{key}");
            assert_eq!(ask(address, "PUT", &path, &"x".repeat(100_000)).0, 200);
        }
        let long = "k".repeat(1_025);
        for (query, why) in [
            ("limit=0", "limit is 0"),
            ("limit=1001", "1 to 1000"),
            (&format!("prefix={long}")[..], "prefix has 1025 bytes"),
            (&format!("from={long}"), "from has 1025 bytes"),
            (&format!("to={long}"), "to has 1025 bytes"),
            ("next=k1", "not what a page of this scan"),
            ("next=00000000-0000000000000000", "not what a page of this scan"),
            ("seen=soon", "no time"),
        ] {
            refused(scan("m", query), 400, why);
        }
        for query in ["limit=x", "count=1", "limit=-1"] {
            let answer = http::ask(address, "GET", &format!("/v1/map/m/keys?{query}"), b"");
            assert_eq!(answer.expect("an answer").code, 400, "{query}");
        }
        let (_, page) = scan("m", "limit=1000");
        let point = page["next"].as_str().expect("it is longer than a page");
        let len = page["entries"].as_array().expect("entries").len();
        assert_eq!(len, 10, "1 MiB is a page");
        assert_eq!(scan("m", &format!("limit=3&next={point}")).0, 200);
        refused(scan("n", &format!("next={point}")), 400, "not what a page of this scan");
        refused(scan("m", &format!("prefix=k&next={point}")), 400, "not what a page of this scan");
        refused(scan("m", &format!("next={}", &point[1..])), 400, "not what a page of this scan");
        let (_, keys) = scan("m", "limit=1000&values=false");
        assert_eq!(
            (keys["next"].is_string(), keys["entries"][0].as_object().map(|it| it.len())),
            (true, Some(1))
        );
        let metrics = http::ask(address, "GET", "/metrics", b"").expect("an answer").text();
        let of = |name: &str| {
            let line = metrics
                .lines()
                .find_map(|line| line.strip_prefix(&format!("ordinate_fuzzylog_map_{name}_total ")));
            line.and_then(|count| count.parse::<u64>().ok()).expect("a counter")
        };
        assert_eq!((of("pages_scanned"), of("keys_scanned")), (4, 23));
    });
}

// A verb that prints another thing than the map holds.
#[test]
fn scans_from_the_command_line() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        let done = |arguments: &[&str]| {
            let (code, out, err) = run(address, arguments);
            assert_eq!(code, Some(0), "{arguments:?}: {err}");
            (out, err)
        };
        done(&["create", "m", "--kind", "tx"]);
        done(&["put", "m", "a/1=x", "a/2=y", "b=z", "c d=w"]);
        let (all, more) = done(&["scan", "m"]);
        let lines: Vec<&str> = all.lines().filter_map(|line| line.split("  version ").next()).collect();
        assert_eq!((lines, more.as_str()), (vec!["a/1=x", "a/2=y", "b=z", "c d=w"], ""));
        let (first, more) = done(&["scan", "m", "--limit", "1", "--keys-only", "--prefix", "a/"]);
        let next = more.strip_prefix("there are more: --next ").expect("where to go on");
        assert_eq!(first, "a/1");
        let (second, more) =
            done(&["scan", "m", "--limit", "1", "--keys-only", "--prefix", "a/", "--next", next]);
        assert_eq!((second.as_str(), more.as_str()), ("a/2", ""));
        assert_eq!(done(&["scan", "m", "--limit", "1", "--keys-only", "--all"]).0, "a/1\na/2\nb\nc d");
        assert_eq!(done(&["scan", "m", "--keys-only", "--from", "a/2", "--to", "c"]).0, "a/2\nb");
        let (json, _) = done(&["scan", "m", "--limit", "3", "-o", "json"]);
        let page: Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!((&page["entries"][2]["value"], page["next"].is_string()), (&json!("z"), true));
        assert_eq!(run(address, &["scan", "m", "--limit", "0"]).0, Some(2));
        assert_eq!(run(address, &["scan", "m", "--next", next]).0, Some(2), "it is of another scan");
        assert_eq!(run(address, &["scan", "none"]).0, Some(2));
    });
}
