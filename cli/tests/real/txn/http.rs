//! Transactions by curl and on the command line.

use super::SETTINGS;
use crate::support::cluster::Cluster;
use crate::support::http;
use crate::support::side_by_side;
use serde_json::{Value, json};

fn post(cluster: &Cluster, host: usize, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = http::ask(cluster.hosts[host].admin, "POST", path, body.as_bytes()).expect("it answers");
    (answer.code, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
}

fn done(answer: (u16, Value)) -> Value {
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

// What a user reads in the documentation and types has to do what it says, at any host.
#[test]
fn transactions_over_http() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let put = done(post(&cluster, 0, "/v1/txn", &json!({ "put": { "bank/1": "100", "bank/2": "50" } })));
        let at = number(&put["committed"]);
        let read = json!({ "read": ["bank/1", "nobody"], "scan": [{ "prefix": "bank/", "limit": 1 }] });
        for level in ["strict", "rss"] {
            let mut read = read.clone();
            read["level"] = json!(level);
            read["token"] = put["token"].clone();
            let found = done(post(&cluster, 1, "/v1/txn", &read));
            assert_eq!(
                found["rows"][0],
                json!({ "key": "bank/1", "value": "100", "version": at }),
                "{level}"
            );
            assert_eq!(found["rows"][1], json!({ "key": "nobody", "value": null, "version": 0 }));
            assert_eq!(found["scans"][0]["next"], "bank/2");
            assert!(number(&found["token"]) >= at && number(&found["at"]) >= at, "{found}");
        }
        // A session that has seen the commit sees it at another host, whatever the level.
        let ordered = json!({ "level": "process-ordered", "read": ["bank/2"], "token": put["token"] });
        assert_eq!(done(post(&cluster, 2, "/v1/txn", &ordered))["rows"][0]["value"], "50");
        let before = json!({ "at": at - 1, "read": ["bank/1"] });
        assert_eq!(done(post(&cluster, 2, "/v1/txn", &before))["rows"][0]["value"], Value::Null);

        let condition = json!([{ "key": "bank/1", "version": 17 }]);
        let refused = json!({ "if": condition, "put": { "bank/1": "0" }, "else": { "read": ["bank/1"] } });
        let (code, refused) = post(&cluster, 1, "/v1/txn", &refused);
        assert_eq!((code, &refused["rows"][0]["value"]), (409, &json!("100")), "{refused}");
        let condition = json!([{ "key": "bank/1", "version": at }, { "key": "bank/3", "version": 0 }]);
        let id = "00000000000000aa-1";
        let moved = json!({ "if": condition, "put": { "bank/1": "90", "bank/3": "10" }, "delete": ["bank/2"],
            "read": ["bank/1"], "id": id });
        let first = done(post(&cluster, 1, "/v1/txn", &moved));
        assert_eq!(first["rows"][0]["value"], "100");
        // Sent again to another host, it is the same commit.
        let again = done(post(&cluster, 2, "/v1/txn", &moved));
        assert_eq!(again["committed"], first["committed"], "{again}");
        let status = http::get(cluster.hosts[0].admin, &format!("/v1/txn/status/{id}")).expect("it answers");
        assert_eq!(status.json()["committed"], first["committed"]);
        let scan = done(post(&cluster, 0, "/v1/txn", &json!({ "scan": [{ "prefix": "bank/" }] })));
        let rows = scan["scans"][0]["rows"].as_array().expect("rows").clone();
        let keys: Vec<&Value> = rows.iter().map(|row| &row["key"]).collect();
        assert_eq!(keys, ["bank/1", "bank/3"]);
        interactive(&cluster);
        refusals(&cluster);
    });
}

fn interactive(cluster: &Cluster) {
    let begun = done(post(cluster, 1, "/v1/txn/begin", &Value::Null));
    let txn = begun["txn"].as_str().expect("a name").to_owned();
    let path = |verb: &str| format!("/v1/txn/{txn}/{verb}");
    let scan = json!({ "scan": [{ "prefix": "stock/" }], "read": ["bank/3"] });
    let found = done(post(cluster, 1, &path("read"), &scan));
    assert_eq!((&found["rows"][0]["value"], &found["scans"][0]["rows"]), (&json!("10"), &json!([])));
    // What it has scanned is locked whole: the one that comes later waits for it.
    let shown = http::get(cluster.hosts[1].admin, "/v1/txn/transactions").expect("it answers").json();
    assert!(shown["shards"].as_array().is_some(), "{shown}");
    let committed = done(post(cluster, 1, &path("commit"), &json!({ "put": { "stock/1": "x" } })));
    let (code, gone) = post(cluster, 1, &path("commit"), &json!({ "put": { "stock/1": "y" } }));
    assert_eq!((code, &gone["executed"]), (404, &json!(false)), "{gone}");
    let (code, gone) = post(cluster, 1, &path("abort"), &Value::Null);
    assert_eq!((code, &gone["executed"]), (404, &json!(false)), "it is committed: {gone}");
    let found = done(post(cluster, 0, "/v1/txn", &json!({ "read": ["stock/1"] })));
    assert_eq!(found["rows"][0]["version"], committed["committed"]);
    let begun = done(post(cluster, 2, "/v1/txn/begin", &Value::Null));
    let name = begun["txn"].as_str().expect("a name");
    done(post(cluster, 2, &format!("/v1/txn/{name}/abort"), &Value::Null));
    let (code, _) = post(cluster, 2, &format!("/v1/txn/{name}/read"), &json!({ "read": ["a"] }));
    assert_eq!(code, 404);
    // Somebody else's, at the host where it is not.
    let begun = done(post(cluster, 2, "/v1/txn/begin", &Value::Null));
    let name = begun["txn"].as_str().expect("a name");
    let (code, _) = post(cluster, 0, &format!("/v1/txn/{name}/read"), &json!({ "read": ["a"] }));
    assert_eq!(code, 404);
}

/// What cannot be is an error that says so, and nobody else notices.
fn refusals(cluster: &Cluster) {
    let large = "x".repeat((1 << 20) + 1);
    let many: Vec<String> = (0..1_001).map(|number| format!("k{number}")).collect();
    let future = (1u64 << 53) - 1;
    for (body, code, why) in [
        (json!({ "put": { "": "1" } }), 400, "a key is empty"),
        (json!({ "put": { "a": large } }), 400, "bytes of a value: 1048577/1048576"),
        (json!({ "read": many }), 400, "keys and scans: 1001/1000"),
        (json!({ "scan": [{ "limit": 10_001 }] }), 400, "rows of a scan: 10001/10000"),
        (json!({ "put": { "a": "1" }, "delete": ["a"] }), 400, "written twice"),
        (json!({ "read": ["a"], "at": future }), 400, "in the future"),
        (json!({ "read": ["a"], "token": future }), 400, "in the future"),
        (json!({ "read": ["a"], "at": 1 }), 410, "not retained"),
        (json!({ "read": ["a"], "level": "eventual" }), 400, "unknown level"),
        (json!({ "raed": ["a"] }), 400, "cannot be read"),
        (json!({ "put": { "a": 1 } }), 400, "wanted are texts by their keys"),
    ] {
        let (found, said) = post(cluster, 0, "/v1/txn", &body);
        let error = said["error"].as_str().unwrap_or_default();
        assert!(found == code && error.contains(why), "{found}: {said}");
        assert_eq!(said["executed"], false, "{said}");
    }
    for path in ["/v1/txn/status/7", "/v1/txn/status/zz-1"] {
        assert_eq!(http::get(cluster.hosts[0].admin, path).expect("it answers").code, 400, "{path}");
    }
    assert_eq!(post(cluster, 0, "/v1/txn/7/read", &json!({ "read": ["a"] })).0, 400);
}

// Causality that is lost between two services lets a reader miss what its caller has seen; a header that is cut must not pass for none.
#[test]
fn baggage_carries_what_a_caller_has_seen() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let at = |host: usize| cluster.hosts[host].admin;
        let call = |host: usize, method: &str, path: &str, baggage: &str, body: &str| {
            let more = if baggage.is_empty() { String::new() } else { format!("baggage: {baggage}\r\n") };
            http::ask_with(at(host), method, path, &more, body.as_bytes()).expect("it answers")
        };
        let put = call(0, "POST", "/v1/txn", "tenant=7", r#"{"put": {"a": "1"}}"#);
        let seen = put.header("baggage").expect("the commit's token").to_owned();
        assert!(put.code == 200 && seen.starts_with("tenant=7,ordinate=v1."), "{seen}");
        // Another process reads at another host, at the weakest level that keeps what its session has seen.
        let read = r#"{"level": "process-ordered", "read": ["a"]}"#;
        let found = call(1, "POST", "/v1/txn", &seen, read);
        assert_eq!(found.json()["rows"][0]["value"], "1");
        // Turning to another service, it is made sure first that everybody sees the commit.
        let committed = put.json()["committed"].as_u64().expect("a timestamp");
        let turned = call(1, "PUT", "/v1/kv/b", &seen, "2");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        assert_eq!(turned.code, 200, "{}", turned.text());
        assert!(now.as_micros() as u64 >= committed + 490_000, "it did not wait for the fence");
        let after = turned.header("baggage").expect("what was carried").to_owned();
        assert!(after.starts_with("tenant=7,ordinate=v1.") && after != seen, "{after}");
        // The other service is linearizable: nothing to wait for on the way back.
        assert_eq!(call(2, "POST", "/v1/txn", &after, read).json()["rows"][0]["value"], "1");
        assert_eq!(call(2, "GET", "/v1/kv/b", "", "").header("baggage"), None);
        for (path, method, baggage, why) in [
            ("/v1/kv/b?consistency=eventual", "GET", after.clone(), "weaker than linearizable"),
            ("/v1/txn", "POST", after[..after.len() - 3].to_owned(), "cannot be read"),
            ("/v1/kv/b", "GET", "ordinate=v1.AQNub3Q".to_owned(), "cannot be read"),
        ] {
            let refused = call(1, method, path, &baggage, r#"{"read": ["a"]}"#);
            assert!(
                refused.code == 400 && refused.text().contains(why),
                "{}: {}",
                refused.code,
                refused.text()
            );
        }
    });
}

// A backup that is not one state, or that comes back as another, is found out on the day that it is needed.
#[test]
fn transactions_on_the_command_line() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let ordinate = async |arguments: &[&str]| {
            let output = cluster.ordinate(arguments).await;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
        };
        let (code, said, error) = ordinate(&["txn", "put", "a/1", "x", "b/2", "y", "c/3", "z"]).await;
        assert!(code == 0 && said.starts_with("committed at "), "{said}{error}");
        assert_eq!(ordinate(&["txn", "get", "b/2"]).await.1, "y\n");
        assert_eq!(ordinate(&["txn", "get", "b/2", "--level", "rss"]).await.1, "y\n");
        for more in [&[][..], &["-o", "json"]] {
            let (code, said, error) = ordinate(&[&["txn", "get", "nobody"], more].concat()).await;
            assert!(code == 1 && said.is_empty() && error.starts_with("error[O1004]"), "{error}");
        }
        let (code, _, error) = ordinate(&["txn", "get", "a/1", "--at", "1"]).await;
        assert!(
            code == 2 && error.contains("nothing was executed\n  -> ordinate config explain txn.keep"),
            "{error}"
        );
        let (code, _, error) = ordinate(&["txn", "put", "a/1", "w", "--if-absent"]).await;
        assert!(code == 1 && error.contains("it holds \"x\""), "{error}");
        let script = cluster.folder.join("script");
        std::fs::write(&script, "get a/1\nput a/1 new value\nput d/4 w\nget a/1\ndel c/3\nscan \n")
            .expect("a file");
        let (code, said, error) = ordinate(&["txn", "run", &script.display().to_string()]).await;
        assert!(code == 0 && said.starts_with("a/1  x\na/1  new value\na/1  new value"), "{said}{error}");
        assert!(!said.contains("c/3") && said.contains("d/4  w"), "its own writes: {said}");
        let dump = cluster.folder.join("dump").display().to_string();
        let (code, _, error) = ordinate(&["txn", "dump", "--out", &dump]).await;
        assert!(code == 0 && error.starts_with("3 keys as of "), "{error}");
        let (code, _, error) = ordinate(&["txn", "load", "--in", &dump]).await;
        assert!(code == 2 && error.contains("error[O1035]"), "{error}");
        let before = ordinate(&["txn", "scan", "-o", "json"]).await.1;
        assert_eq!(ordinate(&["txn", "del", "a/1", "b/2", "d/4"]).await.0, 0);
        let (code, _, error) = ordinate(&["txn", "load", "--in", &dump]).await;
        assert!(code == 0 && error.contains("3 keys written"), "{error}");
        let after = ordinate(&["txn", "scan", "-o", "json"]).await.1;
        let values = |text: &str| {
            let found: Value = serde_json::from_str(text).expect("it is JSON");
            let rows = found["rows"].as_array().expect("rows").clone();
            rows.iter().map(|row| (row["key"].clone(), row["value"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(values(&before), values(&after));
        let admin = cluster.hosts[0].admin.to_string();
        let (code, said, error) = ordinate(&["txn", "shards", "--admin", &admin]).await;
        // Where a shard is, then what this host's replica of it holds.
        let mut lines = said.lines().skip_while(|line| !line.starts_with("  shard 3: on "));
        let (placed, held) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        assert!(code == 0 && placed.contains(", led by ") && placed.contains(" preferred)"), "{said}{error}");
        assert!(held.starts_with("    leads ") && held.contains(" keys, "), "{said}");
        let (code, said, error) = ordinate(&["txn", "locks", "--admin", &admin]).await;
        assert!(code == 0 && said.contains("0 transactions"), "{said}{error}");
    });
}
