//! Maps that are removed while hosts serve them and die: gone at all hosts, freed, and never seen in a map that has the name later.

use super::map_calls::{ask, create, refused, run};
use super::post;
use crate::grants::access;
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, number, side_by_side};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[fuzzylog]\npartitions = 2\nmap_log_bytes = \"4KiB\"\n";
const KINDS: [&str; 6] = ["log", "sharded", "atomic", "tx", "crdt", "tx-crdt"];

/// A call that is sent to one host after the other until it is answered.
fn anywhere(hosts: &[SocketAddr], method: &str, path: &str, body: &str) -> (u16, Value) {
    let deadline = Instant::now() + PATIENCE;
    for host in hosts.iter().cycle() {
        if let Some(answer) = http::ask(*host, method, path, body.as_bytes())
            && !matches!(answer.code, 503 | 504)
        {
            return (answer.code, answer.json());
        }
        assert!(Instant::now() < deadline, "{method} {path} is not answered for a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    unreachable!("there are hosts")
}

/// Colours of maps that are named like this, with how many nodes each still has.
fn nodes_left(address: SocketAddr, map: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for partition in 0..2 {
        let mut next = String::new();
        loop {
            let path = format!("/v1/fuzzylog/colours?partition={partition}{next}");
            // A host that is back serves a partition as soon as it is in its chain again.
            let (code, page) = anywhere(&[address], "GET", &path, "");
            assert_eq!(code, 200, "{page}");
            for colour in page["colours"].as_array().expect("colours") {
                let at = |name: &str| colour[name].as_u64().expect("a position");
                let left = at("tail") - at("first");
                let named = colour["colour"].as_str().filter(|name| name.starts_with(map) && left > 0);
                all.extend(named.map(|name| (name.to_owned(), left)));
            }
            let Some(from) = page["next"].as_str() else { break };
            next = format!("&from={from}");
        }
    }
    all
}

/// Calls a map, also while it is removed, until a host says that it is gone.
fn use_until_gone(host: SocketAddr, map: &str, user: usize, served: &AtomicUsize) {
    let (deadline, path) = (Instant::now() + PATIENCE, format!("/v1/map/{map}/keys/k{user}"));
    let mut is_served = false;
    loop {
        let (code, answer) = ask(host, ["GET", "PUT"][user % 2], &path, "late");
        assert!(matches!(code, 200 | 404), "{code} {answer}");
        if code == 404 {
            assert!(is_served, "{answer}");
            return;
        }
        if !is_served {
            is_served = true;
            served.fetch_add(1, Ordering::Relaxed);
        }
        assert!(Instant::now() < deadline, "{map} is served for a minute");
    }
}

async fn until_freed(address: SocketAddr, map: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !nodes_left(address, map).is_empty() {
        assert!(Instant::now() < deadline, "{:?} are not trimmed", nodes_left(address, map));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// A host that goes on serving what is removed, or shows it in the map that has its name now; bytes that are not freed.
#[test]
fn removed_maps_are_gone_at_all_hosts_and_their_names_are_free() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        refused(ask(hosts[0], "DELETE", "/v1/map/none", ""), 404, "no map none");
        let value = "x".repeat(1_000);
        for (at, kind) in KINDS.into_iter().enumerate() {
            let map = format!("{kind}-map");
            let (_, made) = create(hosts[0], &map, kind, None);
            for key in 0..20 {
                let path = format!("/v1/map/{map}/keys/k{key}");
                assert_eq!(ask(hosts[key % 3], "PUT", &path, &value).0, 200);
            }
            let served = Arc::new(AtomicUsize::new(0));
            let users: Vec<_> = hosts
                .iter()
                .enumerate()
                .map(|(user, host)| {
                    let (host, map, served) = (*host, map.clone(), Arc::clone(&served));
                    std::thread::spawn(move || use_until_gone(host, &map, user, &served))
                })
                .collect();
            let deadline = Instant::now() + PATIENCE;
            while served.load(Ordering::Relaxed) < hosts.len() {
                assert!(Instant::now() < deadline, "{map} is not served at all hosts");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let id = made["id"].as_str().expect("an id").to_owned();
            let path = format!("/v1/map/{map}?id={id}");
            let (code, answer) = ask(hosts[at % 3], "DELETE", &path, "");
            assert_eq!((code, &answer["removed"]), (200, &json!(true)), "{answer}");
            // A call that begins now does not find it.
            for host in &hosts {
                let key = format!("/v1/map/{map}/keys/k0");
                if !kind.ends_with("crdt") {
                    refused(ask(*host, "GET", &key, ""), 404, "no ");
                }
                refused(ask(*host, "PUT", &key, "late"), 404, "no ");
                refused(ask(*host, "GET", &format!("/v1/map/{map}"), ""), 404, "no map");
                refused(ask(*host, "GET", &key, ""), 404, "no map");
                assert_eq!(ask(*host, "DELETE", &path, "").1["removed"], false);
            }
            users.into_iter().for_each(|user| user.join().expect("it does not panic"));
            let (other, shards) = if kind == "log" { ("tx", 2) } else { ("log", 1) };
            let (code, made) = create(hosts[1], &map, other, Some(shards));
            assert_eq!((code, &made["created"]), (200, &json!(true)), "{made}");
            assert_ne!(made["id"], id.as_str());
            for host in &hosts {
                assert_eq!(ask(*host, "GET", &format!("/v1/map/{map}/keys/k0"), "").0, 404);
                let page = ask(*host, "GET", &format!("/v1/map/{map}/keys"), "").1;
                assert_eq!(page["entries"], json!([]), "{kind} {page}");
            }
            refused(ask(hosts[2], "DELETE", &format!("/v1/map/{map}?id=7"), ""), 409, "another map now");
            assert_eq!(ask(hosts[2], "DELETE", &path, "").1["removed"], false, "the old one, again");
            assert_eq!(ask(hosts[0], "PUT", &format!("/v1/map/{map}/keys/k0"), "new").0, 200);
            assert_eq!(ask(hosts[2], "GET", &format!("/v1/map/{map}/keys/k0"), "").1["value"], "new");
            until_freed(hosts[0], &format!("{map}.")).await;
        }
        refused(ask(hosts[0], "DELETE", "/v1/map/log-map?id=x", ""), 400, "id is none");
        refused(create(hosts[0], "m%230123456789abcdef", "log", None), 400, "no map can be made");
    });
}

// A removal that ends with its host leaves a map that some hosts have and others not; or a host that was away brings it back.
#[test]
fn removals_are_ended_though_hosts_die_in_them() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let (mut unanswered, rounds) = (0, number("ORDINATE_REMOVALS", 3));
        for round in 0..rounds {
            let (dies, kind) = ((round % 3) as usize, KINDS[round as usize % KINDS.len()]);
            let left: Vec<SocketAddr> = (0..3).filter(|at| *at != dies).map(|at| hosts[at]).collect();
            let (code, made) = anywhere(&hosts, "PUT", "/v1/map/m", &json!({ "kind": kind }).to_string());
            assert_eq!((code, &made["created"]), (200, &json!(true)), "{made}");
            for key in 0..10 {
                let path = format!("/v1/map/m/keys/k{key}");
                assert_eq!(anywhere(&hosts[key % 3..], "PUT", &path, &format!("of {round}")).0, 200);
            }
            let id = made["id"].as_str().expect("an id").to_owned();
            let (path, host) = (format!("/v1/map/m?id={id}"), hosts[dies]);
            let asked = path.clone();
            let removal = std::thread::spawn(move || http::ask(host, "DELETE", &asked, b""));
            tokio::time::sleep(Duration::from_micros(700 * round)).await;
            cluster.kill(dies);
            let answer = removal.join().expect("it does not panic").filter(|it| it.code == 200);
            unanswered += u64::from(answer.is_none());
            // Its caller asks another host.
            assert_eq!(anywhere(&left, "DELETE", &path, "").0, 200);
            for host in &left {
                let key = "/v1/map/m/keys/k0";
                let (code, answer) = anywhere(&[*host], "PUT", key, "late");
                assert_eq!(code, 404, "{answer}");
            }
            let body = json!({ "kind": "sharded", "shards": 2 }).to_string();
            assert_eq!(anywhere(&left, "PUT", "/v1/map/m", &body).1["created"], true);
            assert_eq!(anywhere(&left, "PUT", "/v1/map/m/keys/new", "new").0, 200);
            cluster.launch(dies);
            cluster.until_ready().await;
            for host in &hosts {
                let (code, page) = anywhere(&[*host], "GET", "/v1/map/m/keys", "");
                assert_eq!(code, 200, "{page}");
                let entries = page["entries"].as_array().expect("entries");
                assert_eq!((entries.len(), &entries[0]["value"]), (1, &json!("new")), "{page}");
            }
            assert_eq!(anywhere(&hosts, "DELETE", "/v1/map/m", "").0, 200);
            until_freed(hosts[dies], "m").await;
        }
        println!("{unanswered} of {rounds} removals were not answered");
        assert!(unanswered > 0, "no host died in a removal");
    });
}

// A verb that removes what was not confirmed, or another map; a right to change a map that is one to remove it.
#[test]
fn maps_are_removed_from_the_command_line_by_those_who_may() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        assert_eq!(create(address, "m", "log", None).0, 200);
        let (code, _, err) = run(address, &["remove", "m"]);
        assert!(code == Some(2) && err.contains("O1067") && err.contains("--yes"), "{err}");
        assert_eq!(ask(address, "GET", "/v1/map/m", "").0, 200);
        assert_eq!(run(address, &["remove", "m", "--yes"]).1, "removed");
        assert_eq!(run(address, &["remove", "m", "--yes"]).1, "was removed before");
        assert_eq!(run(address, &["remove", "n", "--yes"]).0, Some(2));
        assert_eq!(run(address, &["get", "m", "k"]).0, Some(2));
        let status = ask(address, "GET", "/v1/status", "").1;
        let maps = &status["fuzzylog"]["maps"];
        assert_eq!((&maps["removed"], &maps["removals_unfinished"]), (&json!(1), &json!(0)), "{maps}");

        let mut cluster = Cluster::planned(1, SETTINGS, "");
        let file = cluster.folder.join("access.toml");
        access(&file, &["init", "root"]);
        let add = |name: &str, grant: &str| access(&file, &["add", name, "--with-token", "--grant", grant]);
        let (writer, manager) =
            (add("writer", "read,write fuzzylog a*"), add("manager", "manage fuzzylog a*"));
        cluster.set_environment(0, "ORDINATE_ACCESS__FILE", &file.display().to_string());
        cluster.launch_all();
        cluster.until_ready().await;
        let address = cluster.hosts[0].admin;
        let call = |token: &str, method: &str, path: &str, body: &str| {
            let header = format!("Authorization: Bearer {token}\r\n");
            http::ask_with(address, method, path, &header, body.as_bytes()).expect("an answer").code
        };
        assert_eq!(call(&manager, "PUT", "/v1/map/a", "{\"kind\":\"log\"}"), 200);
        assert_eq!(call(&writer, "DELETE", "/v1/map/a", ""), 403);
        assert_eq!(call(&manager, "DELETE", "/v1/map/b", ""), 403);
        assert_eq!(call(&manager, "DELETE", "/v1/map/a", ""), 200);
        assert_eq!(post(address, "/v1/map/a/put", &json!({})).expect("an answer").0, 401);
    });
}
