//! Calls of maps: what each kind does, what is refused, and what bounds it.

use super::post;
use crate::grants::access;
use crate::support::cluster::{Cluster, ORDINATE};
use crate::support::http::{self, Answer};
use crate::support::side_by_side;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use wire::fuzzylog::SeenTime;

const SETTINGS: &str = "[fuzzylog]\npartitions = 2\nmap_bytes = \"1MiB\"\nmap_log_bytes = \"16KiB\"\n";

pub(super) fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let answer = http::ask(address, method, path, body.as_bytes()).expect("an answer");
    (answer.code, answer.json())
}

pub(super) fn create(address: SocketAddr, map: &str, kind: &str, shards: Option<u64>) -> (u16, Value) {
    let body = json!({ "kind": kind, "shards": shards }).to_string();
    ask(address, "PUT", &format!("/v1/map/{map}"), &body)
}

/// It was refused, with this in its words.
pub(super) fn refused((code, answer): (u16, Value), expected: u16, why: &str) {
    assert_eq!((code, &answer["executed"]), (expected, &json!(false)), "{answer}");
    assert!(answer["error"].as_str().is_some_and(|it| it.contains(why)), "{answer}: not {why}");
}

// Each wrong call is refused in so many words; a map that is opened as another kind is read as what it is not.
#[test]
fn maps_are_made_once_and_wrong_calls_are_refused() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        let call = |method: &str, path: &str, body: &str| ask(address, method, path, body);
        refused(call("GET", "/v1/map/cities", ""), 404, "no map cities");
        refused(call("PUT", "/v1/map/cities/keys/a", "1"), 404, "no map cities");
        let (code, made) = create(address, "cities", "log", None);
        assert_eq!((code, &made["created"], &made["shards"]), (200, &json!(true), &json!(1)), "{made}");
        assert_eq!(made["consistency"], "linearizable");
        assert_eq!(create(address, "cities", "log", None).1["created"], false);
        refused(create(address, "cities", "atomic", None), 409, "of the kind log and of 1 shards");
        refused(create(address, "cities", "sharded", Some(1)), 409, "of the kind log");
        refused(create(address, "cities", "log", Some(2)), 400, "has one shard");
        refused(create(address, "other", "cap", None), 400, "no kind of map");
        refused(create(address, "other", "atomic", Some(65)), 400, "1 to 64");
        refused(create(address, "other", "atomic", Some(0)), 400, "1 to 64");
        refused(create(address, "a%2Cb", "log", None), 400, "is no colour");
        refused(create(address, &"x".repeat(121), "log", None), 400, "is no colour");
        refused(call("PUT", "/v1/map/other", "{\"kind\":\"log\",\"of\":1}"), 400, "unknown field");
        for (kind, several) in
            [("sharded", false), ("atomic", true), ("tx", true), ("crdt", false), ("tx-crdt", true)]
        {
            assert_eq!(create(address, kind, kind, None).0, 200);
            let done = call("POST", &format!("/v1/map/{kind}/put"), "{\"puts\":{\"a\":\"1\",\"b\":\"2\"}}");
            let read = call("POST", &format!("/v1/map/{kind}/get"), "{\"keys\":[\"b\",\"a\",\"c\"]}");
            if several {
                assert_eq!(done.0, 200, "{}", done.1);
                let values: Vec<&Value> =
                    read.1["entries"].as_array().expect("entries").iter().map(|it| &it["value"]).collect();
                assert_eq!(values, [&json!("2"), &json!("1"), &Value::Null], "{kind}");
                let deleted = call("POST", &format!("/v1/map/{kind}/put"), "{\"deletes\":[\"b\"]}");
                assert_eq!(deleted.0, 200, "{}", deleted.1);
                assert_eq!(call("GET", &format!("/v1/map/{kind}/keys/b"), "").0, 404, "{kind}");
            } else {
                refused(done, 409, "no changes of several keys");
                refused(read, 409, "no reads of several keys");
            }
            if kind != "tx" {
                let transaction =
                    call("POST", &format!("/v1/map/{kind}/transaction"), "{\"puts\":{\"a\":\"1\"}}");
                refused(transaction, 409, "no transactions: tx has");
            }
        }
        let long = "k".repeat(1_025);
        refused(call("PUT", &format!("/v1/map/cities/keys/{long}"), "1"), 400, "1 to 1024");
        let keys = json!({ "keys": (0..257).map(|it| it.to_string()).collect::<Vec<_>>() }).to_string();
        refused(call("POST", "/v1/map/atomic/get", &keys), 400, "more than 256");
        refused(call("POST", "/v1/map/atomic/put", "{}"), 400, "changes nothing");
        refused(
            call("POST", "/v1/map/atomic/put", "{\"puts\":{\"a\":\"1\"},\"deletes\":[\"a\"]}"),
            400,
            "twice",
        );
        refused(call("POST", "/v1/map/atomic/put", "{\"puts\":{\"a\":1}}"), 400, "base64");
        refused(call("GET", "/v1/map/cities/keys/a?seen=soon", ""), 400, "no time");
        // What nobody was answered is not taken over: it would be every user's.
        refused(call("GET", "/v1/map/cities/keys/a?seen=ffffffffffffffff-0-0", ""), 400, "beyond a limit");
        let (code, answer) = call("PUT", "/v1/map/cities/keys/a%2Fb", "\u{e4}");
        assert_eq!(code, 200, "{answer}");
        let (code, answer) = call("GET", "/v1/map/cities/keys/a/b", "");
        assert_eq!((code, &answer["value"]), (200, &json!("\u{e4}")), "{answer}");
    });
}

// A change that its caller made after it had seen another one comes before that one, where the two are of different partitions.
#[test]
fn what_was_seen_elsewhere_comes_before() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let put = |host: usize, map: &str, seen: &str| {
            let query = if seen.is_empty() { String::new() } else { format!("?seen={seen}") };
            let (code, answer) = ask(hosts[host], "PUT", &format!("/v1/map/{map}/keys/k{query}"), "v");
            assert_eq!(code, 200, "{answer}");
            answer["seen"].as_str().expect("a time").to_owned()
        };
        let time = |seen: &str| seen.parse::<SeenTime>().expect("a time");
        let make = |map: &str| assert_eq!(create(hosts[0], map, "log", None).0, 200);
        make("first");
        let partition = time(&put(0, "first", "")).partition;
        let is_elsewhere = |map: &String| {
            make(map);
            time(&put(1, map, "")).partition != partition
        };
        let other = ["second", "cities", "accounts", "orders", "jobs", "names", "parts", "users"];
        let other = other.map(str::to_owned).into_iter().find(is_elsewhere).expect("one of them");
        // The clock of the first one's partition goes ahead of the other one's.
        (0..100).for_each(|_| drop(put(0, "first", "")));
        let last = put(0, "first", "");
        let next = put(1, &other, &last);
        assert!(time(&next) > time(&last), "{next} is behind {last}");
    });
}

// A put that is sent again because nobody has answered it undoes one that somebody else has made since; or it is made twice by two hosts,
// or again by a host that was killed.
#[test]
fn changes_with_numbers_are_executed_once() {
    const KINDS: [&str; 6] = ["log", "sharded", "atomic", "tx", "crdt", "tx-crdt"];
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let key = |host: usize, method: &str, kind: &str, query: &str, value: &str| {
            ask(hosts[host], method, &format!("/v1/map/{kind}/keys/a{query}"), value)
        };
        let put = |host: usize, kind: &str, query: &str, value: &str| {
            let (code, answer) = key(host, "PUT", kind, query, value);
            assert_eq!(code, 200, "{kind}: {answer}");
            format!("?seen={}", answer["seen"].as_str().expect("a time"))
        };
        let holds = |host: usize, kind: &str, seen: &str| {
            let (code, answer) = key(host, "GET", kind, seen, "");
            assert_eq!(code, 200, "{kind}: {answer}");
            answer["value"].clone()
        };
        // A client of each kind: numbers are those of all maps.
        let named = |kind: &str, number: u64| {
            let at = KINDS.iter().position(|it| *it == kind).expect("one of them");
            format!("?client=2{at}f&number={number}&below={number}")
        };
        for (at, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(create(hosts[0], kind, kind, None).0, 200);
            let name = named(kind, 7);
            let seen = put(at % 3, kind, &name, "first");
            let seen = put((at + 1) % 3, kind, &seen, "second");
            let again = put((at + 2) % 3, kind, &name, "first");
            for seen in [seen, again] {
                assert_eq!(holds(at % 3, kind, &seen), "second", "{kind}");
            }
            refused(key(at % 3, "PUT", kind, &name, "other"), 409, "used this number for something else");
            let put = |from: &str, to: &str| key(at % 3, "PUT", kind, &name.replace(from, to), "first");
            refused(put("&below=7", ""), 400, "client, number and below");
            refused(put("&below=7", "&below=8"), 400, "below what the client has");
            refused(put("client=2", "client=x"), 400, "is no client");
        }
        let both = |host: usize, kind: &str, rest: &str, number: u64| {
            let client = json!({ "id": "abc", "number": number, "below": 1 });
            let body = json!({ "puts": { "b": "1", "c": "1" }, "deletes": ["a"], "client": client });
            ask(hosts[host], "POST", &format!("/v1/map/{kind}/{rest}"), &body.to_string()).0
        };
        let several =
            [("atomic", "put", 1), ("tx", "put", 2), ("tx", "transaction", 3), ("tx-crdt", "put", 4)];
        for (kind, rest, number) in several {
            assert_eq!(both(0, kind, rest, number), 200, "{kind} {rest}");
            put(0, kind, "", "last");
        }
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        for (host, (kind, rest, number)) in several.into_iter().enumerate() {
            assert_eq!(both(host % 3, kind, rest, number), 200, "{kind} {rest}");
            assert_eq!(holds(host % 3, kind, ""), "last", "{kind} {rest}: what it deletes was put since");
        }
        for kind in ["log", "sharded", "crdt"] {
            let seen = put(1, kind, &named(kind, 7), "first");
            assert_eq!(holds(2, kind, &seen), "second", "{kind}");
            // It says that it has the answer to the number before.
            put(1, kind, &named(kind, 8), "third");
            let (code, answer) = key(0, "PUT", kind, &named(kind, 7), "first");
            // It was done, and nobody knows any more whether.
            assert_eq!((code, answer["executed"].is_null()), (409, true), "{kind}: {answer}");
        }
    });
}

// A transaction that commits although what it has read was written since loses that.
#[test]
fn a_transaction_commits_if_what_it_has_read_is_as_it_was() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        assert_eq!(create(hosts[0], "t", "tx", Some(2)).0, 200);
        let transact =
            |host: usize, body: Value| ask(hosts[host], "POST", "/v1/map/t/transaction", &body.to_string());
        let first = json!({ "reads": { "a": 0, "b": 0 }, "puts": { "a": "1", "b": "1" } });
        assert_eq!(transact(1, first.clone()).0, 200);
        refused(transact(2, first), 409, "written since");
        let (_, read) = ask(hosts[2], "POST", "/v1/map/t/get", "{\"keys\":[\"a\",\"b\"]}");
        let version = |at: usize| read["entries"][at]["version"].as_u64().expect("a version");
        assert_eq!((&read["entries"][0]["value"], version(0) > 0), (&json!("1"), true), "{read}");
        assert_eq!(ask(hosts[0], "PUT", "/v1/map/t/keys/b", "2").0, 200);
        let body = json!({ "reads": { "b": version(1) }, "puts": { "a": "3" } });
        refused(transact(1, body), 409, "written since");
        let body = json!({ "reads": { "a": version(0) }, "puts": { "c": "3" }, "deletes": ["a"] });
        assert_eq!(transact(1, body).0, 200);
        assert_eq!(ask(hosts[2], "GET", "/v1/map/t/keys/a", "").0, 404);
        assert_eq!(ask(hosts[2], "GET", "/v1/map/t/keys/c", "").1["value"], "3");
    });
}

// A map that grows without a bound takes a host's memory, and its log a partition; one that is never read is never trimmed.
#[test]
fn maps_are_bounded_in_memory_and_in_the_log() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        assert_eq!(create(address, "m", "log", None).0, 200);
        let value = "x".repeat(50_000);
        let put = |key: u64| ask(address, "PUT", &format!("/v1/map/m/keys/k{key}"), &value);
        let full = (0..40).find_map(|key| {
            let (code, answer) = put(key);
            (code != 200).then_some((key, code, answer))
        });
        let (held, code, answer) = full.expect("maps have a bound");
        assert!((18..21).contains(&held), "{held} values of 50 kB are less than 1 MiB");
        refused((code, answer), 507, "fuzzylog.map_bytes");
        let status = ask(address, "GET", "/v1/status", "").1;
        let maps = &status["fuzzylog"]["maps"];
        assert_eq!(
            (&maps["open"], &maps["refused"], &maps["bytes_max"]),
            (&json!(1), &json!(1), &json!(1 << 20))
        );
        assert!(maps["bytes"].as_u64().is_some_and(|it| it <= 1 << 20), "{maps}");
        assert_eq!(ask(address, "GET", "/v1/map/m/keys/k0", "").0, 200, "what is there is read");
        assert_eq!(ask(address, "DELETE", "/v1/map/m/keys/k0", "").0, 200);
        assert_eq!(put(held).0, 200, "what is deleted makes room");
        for key in 11..16 {
            assert_eq!(ask(address, "DELETE", &format!("/v1/map/m/keys/k{key}"), "").0, 200);
        }
        // Only puts: the server itself plays them, stores views and trims.
        for turn in 0..200 {
            assert_eq!(put(1 + turn % 10).0, 200, "what is overwritten has room, when it is played");
            if turn % 20 == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            }
        }
        let gone = http::ask(address, "GET", "/v1/fuzzylog/colours/m.0?from=0", b"").expect("an answer");
        assert_eq!(gone.code, 410, "{}", gone.text());
        let (_, status) = ask(address, "GET", "/v1/map/m", "");
        assert_eq!(status["entries"], held - 5, "{status}");
        assert!(status["colours"]["m.0"]["covered"].as_u64().is_some_and(|it| it > 100), "{status}");
        let listed = ask(address, "GET", "/v1/map", "").1;
        assert_eq!(
            (&listed["maps"][0]["map"], &listed["maps"][0]["entries"]),
            (&json!("m"), &json!(held - 5))
        );
        let metrics = http::ask(address, "GET", "/metrics", b"").expect("an answer").text();
        let stored =
            metrics.lines().find(|line| line.starts_with("ordinate_fuzzylog_map_views_stored_total "));
        assert!(stored.is_some_and(|line| !line.ends_with(" 0")), "{stored:?}");
    });
}

// A grant on some maps that lets others be read or changed is none.
#[test]
fn maps_need_rights_on_their_names() {
    side_by_side(async {
        let mut cluster = Cluster::planned(1, SETTINGS, "");
        let file = cluster.folder.join("access.toml");
        let root = access(&file, &["init", "root"]);
        let add = |name: &str, grant: &str| access(&file, &["add", name, "--with-token", "--grant", grant]);
        let reader = add("reader", "read fuzzylog a*");
        let writer = add("writer", "write fuzzylog a*");
        let both = add("both", "read,write fuzzylog a*");
        let manager = add("manager", "manage fuzzylog a*");
        cluster.set_environment(0, "ORDINATE_ACCESS__FILE", &file.display().to_string());
        cluster.launch_all();
        cluster.until_ready().await;
        let address = cluster.hosts[0].admin;
        let call = |token: &str, method: &str, path: &str, body: &str| -> Answer {
            let header = format!("Authorization: Bearer {token}\r\n");
            http::ask_with(address, method, path, &header, body.as_bytes()).expect("an answer")
        };
        let tx = "{\"kind\":\"tx\"}";
        for token in [&reader, &writer, &both] {
            assert_eq!(call(token, "PUT", "/v1/map/a", tx).code, 403);
        }
        assert_eq!(call(&manager, "PUT", "/v1/map/a", tx).code, 200);
        assert_eq!(call(&manager, "PUT", "/v1/map/b", tx).code, 403);
        assert_eq!(call(&root, "PUT", "/v1/map/b", tx).code, 200);
        let keys = "{\"keys\":[\"k\"]}";
        let puts = "{\"puts\":{\"k\":\"v\"}}";
        for (method, rest, body, may) in [
            ("PUT", "/keys/k", "v", [false, true, true, false]),
            ("GET", "/keys/k", "", [true, false, true, false]),
            ("GET", "", "", [true, false, true, false]),
            ("GET", "/keys?prefix=k", "", [true, false, true, false]),
            ("POST", "/get", keys, [true, false, true, false]),
            ("POST", "/put", puts, [false, true, true, false]),
            ("POST", "/transaction", puts, [false, false, true, false]),
            ("DELETE", "/keys/k", "", [false, true, true, false]),
        ] {
            for (token, may) in [&reader, &writer, &both, &manager].into_iter().zip(may) {
                let code = call(token, method, &format!("/v1/map/a{rest}"), body).code;
                assert_eq!(code == 200, may, "{method} {rest}: {code}");
                assert!(may || code == 403, "{method} {rest}: {code}");
                assert_eq!(call(token, method, &format!("/v1/map/b{rest}"), body).code, 403);
            }
        }
        assert_eq!(call(&both, "GET", "/v1/map", "").code, 403, "a list of all");
        assert_eq!(call(&root, "GET", "/v1/map", "").code, 200);
        assert_eq!(post(address, "/v1/map/a/put", &json!({})).expect("an answer").0, 401);
    });
}

/// `ordinate map`, with its exit code; none without one.
pub(super) fn run(address: SocketAddr, arguments: &[&str]) -> (Option<i32>, String, String) {
    let hosts = ["--admin", &address.to_string()];
    let output = Command::new(ORDINATE).arg("map").args(arguments).args(hosts).output();
    let output = output.expect("the binary under test runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

// A verb that calls another path than it says, or hides why it was refused.
#[test]
fn maps_from_the_command_line() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        let done = |arguments: &[&str]| {
            let (code, out, err) = run(address, arguments);
            assert_eq!(code, Some(0), "{arguments:?}: {err}");
            out
        };
        let refused = |arguments: &[&str], exit: i32, code: &str| {
            let (ended, _, err) = run(address, arguments);
            assert_eq!(ended, Some(exit), "{arguments:?}: {err}");
            assert!(err.contains(code), "{arguments:?}: {err}");
        };
        assert_eq!(done(&["status"]), "there are no maps");
        assert!(
            done(&["create", "a b", "--kind", "tx", "--shards", "2"])
                .ends_with(": strictly serializable, made")
        );
        refused(&["create", "a b", "--kind", "log"], 2, "O1067");
        refused(&["get", "nowhere", "k"], 2, "O1067");
        assert_eq!(done(&["put", "a b", "k/1=v=1"]), "done");
        assert!(done(&["get", "a b", "k/1"]).starts_with("v=1  version "));
        refused(&["get", "a b", "none"], 1, "O1068");
        assert_eq!(done(&["put", "a b", "x=1", "y=2"]), "done");
        let both = done(&["get", "a b", "x", "none", "y", "-o", "json"]);
        let both: Value = serde_json::from_str(&both).expect("it is JSON");
        let version = both["entries"][0]["version"].to_string();
        assert_eq!((&both["entries"][1]["value"], &both["entries"][2]["value"]), (&Value::Null, &json!("2")));
        let read = format!("x={version}");
        let transaction = ["transaction", "a b", "--read", &read, "--put", "x=3", "--delete", "y"];
        assert_eq!(done(&transaction), "committed");
        refused(&transaction, 1, "O1069");
        let once = ["put", "a b", "n=1", "--client", "7c", "--number", "3"];
        assert_eq!(done(&once), "done");
        assert_eq!(done(&["put", "a b", "n=2"]), "done");
        assert_eq!(done(&once), "done");
        assert!(done(&["get", "a b", "n"]).starts_with("2  version "));
        assert_eq!(done(&["delete", "a b", "n", "--client", "7c", "--number", "4"]), "done");
        refused(&once, 2, "O1067");
        refused(&["put", "a b", "n=3", "--client", "7c"], 2, "--number");
        assert_eq!(done(&["delete", "a b", "x", "k/1"]), "done");
        assert!(done(&["status", "a b"]).contains("entries 0  bytes 0"));
        assert!(done(&["status"]).contains("a b  tx of 2 shards: strictly serializable"));
    });
}
